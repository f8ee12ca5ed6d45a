#include "base/json_write.h"

#include "base/fail.h"
#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static ht_context ctx;
static ht_arena *arena;

static int set_up(void **state)
{
    (void)state;
    ctx = (ht_context){0};
    arena = ht_arena_create();
    return arena == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    ht_arena_free(arena);
    return 0;
}

/* Parses from a block of just that size, so that reading one byte too far is caught by AddressSanitizer. */
static ht_status parse_bytes(const char *text, size_t length, const ht_json **out)
{
    char *exact = malloc(length > 0 ? length : 1);
    memcpy(exact, text, length);
    ht_status status = ht_json_parse(&ctx, arena, "job.json", exact, length, out);
    free(exact);
    return status;
}

static const ht_json *parsed(const char *text)
{
    const ht_json *value;
    if (parse_bytes(text, strlen(text), &value) != HT_OK) fail_msg("%s: %s", text, ctx.message);
    assert_non_null(value);
    return value;
}

static void refused_bytes(const char *text, size_t length, const char *message)
{
    const ht_json *value;
    ctx.message[0] = '\0';
    ht_status status = parse_bytes(text, length, &value);
    if (status != HT_EPARSE) fail_msg("%s is read", text);
    if (strcmp(ctx.message, message) != 0) fail_msg("%s\n   says %s\n    not %s", text, ctx.message, message);
    assert_null(value);
}

static void refused(const char *text, const char *message)
{
    refused_bytes(text, strlen(text), message);
}

static void json__values_of_every_kind(void **state)
{
    (void)state;
    const ht_json *v = parsed("{\"a\": [1, -2.5, true, false, null, \"x\"], \"b\": {}, \"c\": []}");
    assert_int_equal(v->kind, HT_JSON_OBJECT);
    assert_int_equal(v->count, 3);
    const ht_json *e = ht_json_get(v, "a");
    assert_int_equal(e->kind, HT_JSON_ARRAY);
    assert_int_equal(e->count, 6);
    e = e->child;
    assert_true(e->kind == HT_JSON_INT && e->integer == 1 && e->key == NULL);
    e = e->next;
    assert_true(e->kind == HT_JSON_NUMBER && e->number == -2.5);
    e = e->next;
    assert_true(e->kind == HT_JSON_BOOL && e->boolean);
    e = e->next;
    assert_true(e->kind == HT_JSON_BOOL && !e->boolean);
    e = e->next;
    assert_int_equal(e->kind, HT_JSON_NULL);
    e = e->next;
    assert_true(e->kind == HT_JSON_STRING && e->length == 1);
    assert_string_equal(e->text, "x");
    assert_null(e->next);
    assert_true(ht_json_get(v, "b")->count == 0 && ht_json_get(v, "c")->child == NULL);
    assert_string_equal(v->child->next->key, "b");
    assert_int_equal(parsed(" 7 ")->integer, 7);
}

static void json__lookup_of_what_is_not_there_is_null(void **state)
{
    (void)state;
    const ht_json *v = parsed("{\"ab\": 1, \"\": 2}");
    assert_null(ht_json_get(v, "a"));
    assert_null(ht_json_get(v, "abc"));
    assert_int_equal(ht_json_get(v, "")->integer, 2);
    assert_null(ht_json_get(ht_json_get(v, "ab"), "x"));
    assert_null(ht_json_get(NULL, "x"));
    assert_null(ht_json_get(parsed("{}"), "x"));
}

static void json__integers_are_exact(void **state)
{
    (void)state;
    assert_true(parsed("9007199254740993")->integer == INT64_C(9007199254740993));
    assert_true(parsed("9223372036854775807")->integer == INT64_MAX);
    assert_true(parsed("-9223372036854775808")->integer == INT64_MIN);
    assert_true(parsed("-1")->integer == -1 && parsed("0")->kind == HT_JSON_INT);
    const ht_json *beyond = parsed("9223372036854775808");
    assert_true(beyond->kind == HT_JSON_NUMBER && beyond->number == 0x1p63);
    const ht_json *zero = parsed("-0");
    assert_true(zero->kind == HT_JSON_NUMBER && zero->number == 0 && signbit(zero->number));
    const ht_json *wraps = parsed("36893488147419103232"); /* 2^65: the sum of digits wraps to zero */
    assert_true(wraps->kind == HT_JSON_NUMBER && wraps->number == 0x1p65);
}

static void json__integers_may_be_written_as_numbers(void **state)
{
    (void)state;
    int64_t i = 0;
    double x = 0;
    assert_true(ht_json_as_int(parsed("5e8"), &i) && i == 500000000);
    assert_true(ht_json_as_int(parsed("-3.0"), &i) && i == -3);
    assert_true(ht_json_as_int(parsed("12"), &i) && i == 12);
    assert_true(ht_json_as_int(parsed("-9.223372036854775808e18"), &i) && i == INT64_MIN);
    assert_false(ht_json_as_int(parsed("9.223372036854775808e18"), &i));
    assert_false(ht_json_as_int(parsed("1e300"), &i));
    assert_false(ht_json_as_int(parsed("0.5"), &i));
    assert_false(ht_json_as_int(parsed("\"5\""), &i));
    assert_false(ht_json_as_int(NULL, &i));
    assert_true(ht_json_as_number(parsed("3"), &x) && x == 3);
    assert_true(ht_json_as_number(parsed("1e-5"), &x) && x == 1e-5);
    assert_false(ht_json_as_number(parsed("true"), &x));
    assert_false(ht_json_as_number(NULL, &x));
}

static void json__doubles_round_as_strtod_does(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "0.1",
        "1e-5",
        "3.14159265358979323846264338327950288",
        "1e22",
        "1e23",
        "9007199254740993.0",
        "123456789012345678901234567890",
        "1.7976931348623157e308",
        "2.2250738585072011e-308",
        "4.9e-324",
        "1e-400",
        "0e999999999999999999999999",
        "6.02214076E+23",
        "0.000000000000000000000000000000000000001",
        "-8.5e-1",
        "1.00000000000000011102230246251565404236316680908203126",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        double got = 0;
        assert_true(ht_json_as_number(parsed(texts[i]), &got));
        if (got != strtod(texts[i], NULL)) fail_msg("%s gives %.17g", texts[i], got);
    }
    uint64_t seed = 1;
    for (int i = 0; i < 20000; i++) {
        seed = seed * UINT64_C(6364136223846793005) + 1442695040888963407u;
        char text[64];
        snprintf(text, sizeof text, "%" PRIu64 ".%de%d", seed >> (i % 60), i, (int)(seed >> 33) % 60 - 30);
        assert_true(parsed(text)->number == strtod(text, NULL));
    }
}

static void json__strings_are_unescaped(void **state)
{
    (void)state;
    assert_string_equal(parsed("\"\"")->text, "");
    assert_string_equal(parsed("\"a\\\"b\\\\c\\/d\\b\\f\\n\\r\\t\"")->text, "a\"b\\c/d\b\f\n\r\t");
    assert_string_equal(parsed("\"\\u0041\\u00e9\\u20ac\\uD83D\\uDE00\"")->text,
                        "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
    assert_string_equal(parsed("\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"")->text,
                        "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f");
    const ht_json *zero = parsed("\"a\\u0000b\"");
    assert_int_equal(zero->length, 3);
    assert_memory_equal(zero->text, "a\0b", 4);
    assert_int_equal(ht_json_get(parsed("{\"\\u0061\": 4}"), "a")->integer, 4);
}

static void json__comments_and_trailing_commas_are_accepted(void **state)
{
    (void)state;
    const ht_json *v = parsed("\xef\xbb\xbf// first\n"
                              "# second\r\n"
                              "{ /* a * / \n */ \"a\" /**/ : // why\n 1, # tail\n"
                              "  \"url\": \"http://x/#/*y*/\", \"list\": [1, 2, /* three */ ],\n"
                              "} /* end */ // at the end");
    assert_int_equal(v->count, 3);
    assert_int_equal(ht_json_get(v, "a")->integer, 1);
    assert_string_equal(ht_json_get(v, "url")->text, "http://x/#/*y*/");
    assert_int_equal(ht_json_get(v, "list")->count, 2);
}

static void json__every_value_knows_its_place(void **state)
{
    (void)state;
    const ht_json *v = parsed("{\n  \"a\": 1, /* x\n y */ \"b\": [\n true,\r\n\t\"s\"]\n}");
    assert_true(v->line == 1 && v->column == 1);
    const ht_json *a = ht_json_get(v, "a"), *b = ht_json_get(v, "b");
    assert_true(a->line == 2 && a->column == 8);
    assert_true(b->line == 3 && b->column == 12);
    assert_true(b->child->line == 4 && b->child->column == 2);
    assert_true(b->child->next->line == 5 && b->child->next->column == 2);
    assert_int_equal(ht_json_fail(&ctx, "job.json", b, "wants %s, not %s", "a number", ht_json_kind_name(b->kind)),
                     HT_EPARSE);
    assert_string_equal(ctx.message, "job.json:3:12: wants a number, not an array");
}

static void json__errors_say_where_and_what(void **state)
{
    (void)state;
    refused("", "job.json:1:1: expected a value, found the end of the text");
    refused("// only\n", "job.json:2:1: expected a value, found the end of the text");
    refused("{\"a\": 1,\n \"b\" 2}", "job.json:2:6: expected ':' after the key, found '2'");
    refused("{\"a\": 1 \"b\": 2}", "job.json:1:9: expected ',' or '}', found '\"'");
    refused("[1 2]", "job.json:1:4: expected ',' or ']', found '2'");
    refused("[1}", "job.json:1:3: expected ',' or ']', found '}'");
    refused("[,]", "job.json:1:2: expected a value, found ','");
    refused("[1,,2]", "job.json:1:4: expected a value, found ','");
    refused("{,}", "job.json:1:2: expected a key in quotes, found ','");
    refused("{a: 1}", "job.json:1:2: expected a key in quotes, found 'a'");
    refused("{\"a\": }", "job.json:1:7: expected a value, found '}'");
    refused("[1", "job.json:1:3: expected ',' or ']', found the end of the text");
    refused("{\"a\"", "job.json:1:5: expected ':' after the key, found the end of the text");
    refused("1 2", "job.json:1:3: expected the end of the text, found '2'");
    refused("{} }", "job.json:1:4: expected the end of the text, found '}'");
    refused("[tru]", "job.json:1:2: \"tru\" is no value; a string needs quotes");
    refused("NaN", "job.json:1:1: \"NaN\" is no value; a string needs quotes");
    refused("[\x01]", "job.json:1:2: expected a value, found the byte 0x01");
    refused("[1] /* x\n", "job.json:1:5: the comment is never closed");
    refused("/", "job.json:1:1: expected a value, found '/'");
    refused("/*/", "job.json:1:1: the comment is never closed");
}

static void json__numbers_that_json_does_not_know_are_refused(void **state)
{
    (void)state;
    refused("-", "job.json:1:2: expected a digit, found the end of the text");
    refused("+1", "job.json:1:1: expected a value, found '+'");
    refused(".5", "job.json:1:1: expected a value, found '.'");
    refused("1.", "job.json:1:3: expected a digit after the point, found the end of the text");
    refused("[1.e5]", "job.json:1:4: expected a digit after the point, found 'e'");
    refused("1e", "job.json:1:3: expected a digit of the exponent, found the end of the text");
    refused("1e+", "job.json:1:4: expected a digit of the exponent, found the end of the text");
    refused("007", "job.json:1:1: a number starts with a zero too many");
    refused("[-01]", "job.json:1:3: a number starts with a zero too many");
    refused("0x10", "job.json:1:2: expected the end of the text, found 'x'");
    refused("1e999", "job.json:1:1: the number is beyond what a double holds");
    refused("[1, -1e99999999999999999999]", "job.json:1:5: the number is beyond what a double holds");
}

static void json__strings_that_are_broken_are_refused(void **state)
{
    (void)state;
    refused("\"abc", "job.json:1:1: the string is never closed");
    refused("\"abc\\", "job.json:1:1: the string is never closed");
    refused("\"abc\\\"", "job.json:1:1: the string is never closed");
    refused("[\"a\nb\"]", "job.json:1:2: the string is not closed on its line");
    refused("\"a\tb\"", "job.json:1:3: a string holds the control character 0x09: write \\u0009");
    refused("\"a\\qb\"", "job.json:1:3: there is no such escape");
    refused("\"\\u12G4\"", "job.json:1:2: \\u needs four hex digits");
    refused("\"\\u12\"", "job.json:1:2: \\u needs four hex digits");
    refused("\"\\uD800\"", "job.json:1:2: the first half of a surrogate pair stands alone");
    refused("\"\\uD800\\n\"", "job.json:1:2: the first half of a surrogate pair stands alone");
    refused("\"\\uD800\\u0041\"", "job.json:1:2: the first half of a surrogate pair stands alone");
    refused("\"x\\uDC00\"", "job.json:1:3: the second half of a surrogate pair stands alone");
    static const char *const not_utf8[] = {
        "\x80",         "\xc0\xaf", "\xc3",     "\xe0\x80\x80",     "\xed\xa0\x80",
        "\xe2\x82",     "\xff",     "\xf5\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80",
        "\xe2\x28\xa1", "\xc3\x28"};
    for (size_t i = 0; i < sizeof not_utf8 / sizeof not_utf8[0]; i++) {
        char text[16], message[80];
        snprintf(text, sizeof text, "\"%s\"", not_utf8[i]);
        snprintf(message, sizeof message, "job.json:1:2: a string is not UTF-8 at the byte 0x%02X",
                 (unsigned char)not_utf8[i][0]);
        refused(text, message);
    }
    refused_bytes("\"a\0b\"", 5, "job.json:1:3: a string holds the control character 0x00: write \\u0000");
}

static void json__duplicate_keys_are_refused(void **state)
{
    (void)state;
    refused("{\"a\": 1,\n \"b\": 2,\n \"a\": 3}", "job.json:3:7: the key \"a\" was given before, at line 1");
    refused("{\"a\": 1, \"\\u0061\": 3}", "job.json:1:20: the key \"a\" was given before, at line 1");
    parsed("{\"a\": {\"a\": 1}, \"A\": {\"a\": 2}}");
}

static void json__nesting_has_a_limit(void **state)
{
    (void)state;
    char text[200];
    for (int depth = 64; depth <= 65; depth++) {
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        text[2 * depth] = '\0';
        if (depth == 64)
            parsed(text);
        else
            refused(text, "job.json:1:65: nested more than 64 deep");
    }
    enum { BYTES = 1 << 20 };
    char *hostile = malloc(BYTES);
    memset(hostile, '[', BYTES);
    refused_bytes(hostile, BYTES, "job.json:1:65: nested more than 64 deep");
    for (int i = 0; i < BYTES; i++) hostile[i] = "{\"a\":"[i % 5];
    refused_bytes(hostile, BYTES, "job.json:1:321: nested more than 64 deep");
    free(hostile);
}

/* Any prefix of a good text, and any byte of it changed, is read or refused, and never does harm. */
static void json__damaged_texts_do_no_harm(void **state)
{
    (void)state;
    static const char good[] =
        "{\"a\": [1, -2.5e3, true, null], // c\n \"b\\u00e9\\uD83D\\uDE00\": \"x\\n\xe2\x82\xac\","
        " /* d */ \"c\": {\"d\": {}, \"e\": [[], [\"\"]],}, # e\n \"f\": 123456789012345678901}";
    const ht_json *value;
    for (size_t cut = 0; cut < sizeof good - 1; cut++) assert_int_equal(parse_bytes(good, cut, &value), HT_EPARSE);
    uint32_t random = 1;
    for (size_t place = 0; place < sizeof good - 1; place++) {
        for (int change = 0; change < 40; change++) {
            char text[sizeof good];
            memcpy(text, good, sizeof good);
            random = random * 1664525u + 1013904223u;
            text[place] = (char)(random >> 24);
            ht_status status = parse_bytes(text, sizeof good - 1, &value);
            assert_true(status == HT_OK ? value != NULL : status == HT_EPARSE && value == NULL);
        }
    }
}

/* The shape of a large tokenizer.json, all on one line: quadratic behaviour anywhere would take minutes. */
static void json__large_files_take_linear_time(void **state)
{
    (void)state;
    enum { KEYS = 200000 };
    ht_text text = {0};
    ht_text_add(&text, "{\"model\": {\"vocab\": {");
    for (int i = 0; i < KEYS; i++) ht_text_add(&text, "\"\\u0120token%d\": %d,", i, i);
    ht_text_add(&text, "}, \"merges\": [");
    for (int i = 0; i < KEYS; i++) ht_text_add(&text, "\"to ken%d\",", i);
    ht_text_add(&text, "]}}");
    clock_t start = clock();
    const ht_json *root;
    assert_int_equal(ht_json_parse(&ctx, arena, "tokenizer.json", text.data, text.length, &root), HT_OK);
    const ht_json *vocab = ht_json_get(ht_json_get(root, "model"), "vocab");
    assert_int_equal(vocab->count, KEYS);
    for (int i = 0; i < KEYS; i += 7) {
        char key[32];
        snprintf(key, sizeof key, "\xc4\xa0token%d", i);
        const ht_json *token = ht_json_get(vocab, key);
        assert_non_null(token);
        assert_int_equal(token->integer, i);
    }
    double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
    print_message("           %.1f MB in %.3f s\n", (double)text.length / 1e6, seconds);
    assert_true(seconds < 10);
    ht_text_free(&text);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

/* ---- writing ---- */

static void write_example(ht_json_writer *json)
{
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "text", "a \"b\"\\\n\t\x01");
    ht_json_put_text(json, "none", NULL);
    ht_json_put_number(json, "third", 1. / 3);
    ht_json_put_number(json, "huge", INFINITY);
    ht_json_put_int(json, "least", INT64_MIN);
    ht_json_put_uint(json, "most", UINT64_MAX);
    ht_json_put_hash(json, "hash", 0xabc);
    ht_json_begin_array(json, "list");
    ht_json_end_array(json);
    ht_json_begin_object(json, "inner");
    ht_json_put_bool(json, "yes", true);
    ht_json_put_json(json, "raw", "[1]");
    ht_json_end_object(json);
    ht_json_end_object(json);
}

static void writer__gives_what_the_reader_reads(void **state)
{
    (void)state;
    ht_text text = {0};
    write_example(&(ht_json_writer){.text = &text});
    assert_string_equal(text.data,
                        "{\"text\": \"a \\\"b\\\"\\\\\\n\\t\\u0001\", \"none\": null, \"third\": 0.3333333333333333, "
                        "\"huge\": null, \"least\": -9223372036854775808, \"most\": 18446744073709551615, "
                        "\"hash\": \"0000000000000abc\", \"list\": [], \"inner\": {\"yes\": true, \"raw\": [1]}}");
    assert_string_equal(ht_json_get(parsed(text.data), "text")->text, "a \"b\"\\\n\t\x01");
    ht_text_free(&text);
}

static void writer__is_compact_or_in_lines_where_asked(void **state)
{
    (void)state;
    ht_text text = {0};
    ht_json_writer json = {.text = &text, .compact = true, .long_escapes = true};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "a", "\n");
    ht_json_begin_array(&json, "b");
    ht_json_put_int(&json, NULL, 1);
    ht_json_put_int(&json, NULL, 2);
    ht_json_end_array(&json);
    ht_json_end_object(&json);
    assert_string_equal(text.data, "{\"a\":\"\\u000a\",\"b\":[1,2]}");
    text.length = 0;
    json = (ht_json_writer){.text = &text};
    ht_json_begin_array(&json, NULL);
    for (int i = 0; i < 2; i++) {
        ht_json_line(&json, 2);
        ht_json_put_int(&json, NULL, i);
    }
    ht_json_line(&json, 0);
    ht_json_end_array(&json);
    assert_string_equal(text.data, "[\n  0,\n  1\n]");
    ht_text_free(&text);
}

static void writer__repeats_what_was_parsed(void **state)
{
    (void)state;
    static const char source[] = "{\"a\": [1, 2.5, null, {\"b\": \"c\"}], \"d\": true}";
    ht_text text = {0};
    ht_json_print(&text, parsed(source));
    assert_string_equal(text.data, source);
    ht_text_free(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(json__values_of_every_kind),
        TEST(json__lookup_of_what_is_not_there_is_null),
        TEST(json__integers_are_exact),
        TEST(json__integers_may_be_written_as_numbers),
        TEST(json__doubles_round_as_strtod_does),
        TEST(json__strings_are_unescaped),
        TEST(json__comments_and_trailing_commas_are_accepted),
        TEST(json__every_value_knows_its_place),
        TEST(json__errors_say_where_and_what),
        TEST(json__numbers_that_json_does_not_know_are_refused),
        TEST(json__strings_that_are_broken_are_refused),
        TEST(json__duplicate_keys_are_refused),
        TEST(json__nesting_has_a_limit),
        TEST(json__damaged_texts_do_no_harm),
        TEST(json__large_files_take_linear_time),
        TEST(writer__gives_what_the_reader_reads),
        TEST(writer__is_compact_or_in_lines_where_asked),
        TEST(writer__repeats_what_was_parsed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
