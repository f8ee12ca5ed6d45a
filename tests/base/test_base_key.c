#include "base/base.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const ht_key rows[] = {
    {"n_layer", HT_KEY_INT, "6", 1, 1000, NULL, "blocks"},
    {"width", HT_KEY_INT, NULL, 1, INFINITY, NULL, "of the residual stream"},
    {"dropout", HT_KEY_NUMBER, "0", 0, 0.99, NULL, "share of values set to zero"},
    {"bias", HT_KEY_BOOL, "true", 0, 0, NULL, "whether linear layers have one"},
    {"activation", HT_KEY_CHOICE, "\"gelu\"", 0, 0, "gelu|relu|auto", "between the layers"},
    {"device", HT_KEY_CHOICE, "\"cpu\"", 0, 0, "cpu|cuda|cuda:N", "where it computes"},
    {"path", HT_KEY_TEXT, "null", 0, 0, NULL, "a file"},
    {"sizes", HT_KEY_INTS, "[1, 2]", 0, 9, NULL, "of hidden layers"},
    {"betas", HT_KEY_NUMBERS, "[0.9, 0.999]", 0, 1, NULL, "decay of the moments"},
    {"files", HT_KEY_TEXTS, "[]", 0, 0, NULL, "to read"},
    {"layers", HT_KEY_JSON, "null", 0, 0, NULL, "as the sequential model reads them"},
    {"scale.power", HT_KEY_INT, "16", 0, 100, NULL, "of two"},
    {"scale.window", HT_KEY_INT, "1000", 1, INFINITY, NULL, "steps"},
    {"groups.*.bits", HT_KEY_INT, "8", 1, 16, NULL, "of a group"},
    {"specs.[].shape", HT_KEY_INTS, "null", 0, 0, NULL, "of an element"},
    {0},
};

static ht_context ctx;
static ht_arena *arena;
static ht_fields *fields;

static int set_up(void **state)
{
    (void)state;
    ctx = (ht_context){0};
    arena = ht_arena_create();
    fields = NULL;
    return arena == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    ht_fields_free(fields);
    ht_arena_free(arena);
    return 0;
}

static const ht_json *parsed(const char *text)
{
    const ht_json *value;
    if (ht_json_parse(&ctx, arena, "job.json", text, strlen(text), &value) != HT_OK) fail_msg("%s", ctx.message);
    return value;
}

static void reads(const char *text)
{
    ht_fields_free(fields);
    if (ht_fields_read(&fields, &ctx, rows, "model", parsed(text)) != HT_OK) fail_msg("%s: %s", text, ctx.message);
}

static void refused(const char *text, const char *message)
{
    ht_fields *none = NULL;
    ht_status status = ht_fields_read(&none, &ctx, rows, "model", parsed(text));
    if (status != HT_EINVAL) fail_msg("%s is read", text);
    assert_null(none);
    if (strcmp(ctx.message, message) != 0) fail_msg("%s\n   says %s\n    not %s", text, ctx.message, message);
}

static void key__defaults_fill_what_is_not_given(void **state)
{
    (void)state;
    reads("{\"width\": 64}");
    assert_int_equal(ht_field_int(fields, "n_layer"), 6);
    assert_int_equal(ht_field_int(fields, "width"), 64);
    assert_true(ht_field_bool(fields, "bias"));
    assert_string_equal(ht_field_text(fields, "activation"), "gelu");
    assert_null(ht_field_text(fields, "path"));
    assert_true(ht_field_null(fields, "path"));
    assert_null(ht_field_json(fields, "layers"));
    assert_int_equal(ht_field_count(fields, "sizes"), 2);
    assert_int_equal(ht_field_int_at(fields, "sizes", 1), 2);
    assert_true(ht_field_number_at(fields, "betas", 1) == 0.999);
    assert_int_equal(ht_field_count(fields, "files"), 0);
    assert_int_equal(ht_field_int(fields, "scale.power"), 16);
    assert_false(ht_field_given(fields, "n_layer"));
    assert_true(ht_field_given(fields, "width"));
    assert_null(ht_fields_find(fields, "groups.*.bits"));
    assert_int_equal(ht_fields_count(fields), 13);
}

static void key__values_of_every_kind(void **state)
{
    (void)state;
    reads(
        "{\"width\": 5e2, \"dropout\": 0.5, \"bias\": false, \"activation\": \"ReLU\", \"path\": \"a\", \"sizes\": 3,\n"
        "\"betas\": [1, 0.5], \"files\": [\"x\", \"y\"], \"layers\": [1], \"scale\": {\"power\": 3, \"window\": 7},\n"
        "\"groups\": {\"a.b\": {\"bits\": 4}, \"c\": {\"bits\": 2}}, \"specs\": [{}, {\"shape\": [1, 2, 3]}]}");
    assert_int_equal(ht_field_int(fields, "width"), 500);
    assert_int_equal(ht_field_json(fields, "width")->kind, HT_JSON_INT);
    assert_true(ht_field_number(fields, "dropout") == 0.5);
    assert_false(ht_field_bool(fields, "bias"));
    assert_string_equal(ht_field_text(fields, "activation"), "relu");
    assert_string_equal(ht_field_text(fields, "path"), "a");
    assert_int_equal(ht_field_count(fields, "sizes"), 1);
    assert_int_equal(ht_field_int_at(fields, "sizes", 0), 3);
    assert_true(ht_field_number_at(fields, "betas", 0) == 1);
    assert_string_equal(ht_field_text_at(fields, "files", 1), "y");
    assert_int_equal(ht_field_json(fields, "layers")->count, 1);
    assert_int_equal(ht_field_int(fields, "scale.window"), 7);
    assert_int_equal(ht_field_int(fields, "groups.a.b.bits"), 4);
    assert_int_equal(ht_field_int(fields, "groups.c.bits"), 2);
    assert_int_equal(ht_field_count(fields, "specs[1].shape"), 3);
    assert_int_equal(ht_fields_find(fields, "scale.window")->origin.line, 2);
    assert_int_equal(ht_fields_find(fields, "groups.c.bits")->origin.line, 3);
}

static void key__auto_is_the_default_unless_it_is_a_choice(void **state)
{
    (void)state;
    reads("{\"width\": 1, \"n_layer\": \"auto\", \"activation\": \"auto\", \"path\": \"auto\"}");
    assert_int_equal(ht_field_int(fields, "n_layer"), 6);
    assert_true(ht_fields_find(fields, "n_layer")->is_auto);
    assert_false(ht_field_given(fields, "n_layer"));
    assert_string_equal(ht_field_text(fields, "activation"), "auto");
    assert_null(ht_field_text(fields, "path"));
    refused("{\"width\": \"auto\"}",
            "line 1: model.width: nothing is known that \"auto\" could mean here; give an integer from 1 up");
}

static void key__a_choice_may_have_a_number(void **state)
{
    (void)state;
    reads("{\"width\": 1, \"device\": \"cuda:12\"}");
    assert_string_equal(ht_field_text(fields, "device"), "cuda:12");
    reads("{\"width\": 1, \"device\": \"CUDA\"}");
    assert_string_equal(ht_field_text(fields, "device"), "cuda");
    static const char *const wrong[] = {"cuda:", "cuda:N", "cuda:1x", "cuda:-1", "cuda:1000", "cpu:1", "cuda1"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char text[64], message[128];
        snprintf(text, sizeof text, "{\"width\": 1, \"device\": \"%s\"}", wrong[i]);
        snprintf(message, sizeof message, "line 1: model.device: expected one of cpu, cuda, cuda:N, found \"%s\"",
                 wrong[i]);
        refused(text, message);
    }
}

static void key__an_unknown_key_names_the_nearest(void **state)
{
    (void)state;
    refused("{\"width\": 1,\n\"n_layers\": 2}", "line 2: model.n_layers: unknown key; did you mean \"n_layer\"?");
    refused("{\"width\": 1, \"zebra\": 2}", "line 1: model.zebra: unknown key");
    refused("{\"width\": 1, \"scale\": {\"windov\": 2}}",
            "line 1: model.scale.windov: unknown key; did you mean \"window\"?");
    refused("{\"width\": 1, \"window\": 2}", "line 1: model.window: unknown key; it belongs to model.scale.window");
    refused("{\"width\": 1, \"scale.window\": 2}", "line 1: model.scale.window: unknown key");
    refused("{\"width\": 1, \"groups\": {\"x\": {\"bit\": 2}}}",
            "line 1: model.groups.x.bit: unknown key; did you mean \"bits\"?");
}

static void key__a_wrong_value_says_what_was_wanted(void **state)
{
    (void)state;
    refused("{\"width\": 0}", "line 1: model.width: expected an integer from 1 up, found 0");
    refused("{\"width\": 1.5}", "line 1: model.width: expected an integer from 1 up, found 1.5");
    refused("{\"width\": true}", "line 1: model.width: expected an integer from 1 up, found true");
    refused("{\"width\": null}", "line 1: model.width: expected an integer from 1 up, found null");
    refused("{\"width\": 1, \"dropout\": \"0.1\"}",
            "line 1: model.dropout: expected a number from 0 to 0.99, found \"0.1\"");
    refused("{\"width\": 1, \"activation\": \"silu\"}",
            "line 1: model.activation: expected one of gelu, relu, auto, found \"silu\"");
    refused("{\"width\": 1, \"sizes\": [1, 10]}",
            "line 1: model.sizes: expected a list of integers from 0 to 9, found [1, 10]");
    refused("{\"width\": 1, \"scale\": 3}", "line 1: model.scale: expected an object, found an integer");
    refused("{\"width\": 1, \"specs\": {}}", "line 1: model.specs: expected a list, found an object");
    refused("{\"width\": 1, \"path\": \"a\\u0000b\"}", "line 1: model.path: expected a string, found \"a\\u0000b\"");
    refused("[]",
            "line 1: model: expected an object, found an array\nmodel.width: must be given: an integer from 1 up");
}

static void key__all_errors_are_told_at_once(void **state)
{
    (void)state;
    refused("{\"n_layer\": 0,\n \"bias\": 1,\n \"hight\": 2}",
            "line 1: model.n_layer: expected an integer from 1 to 1000, found 0\n"
            "line 2: model.bias: expected true or false, found 1\n"
            "line 3: model.hight: unknown key\n"
            "model.width: must be given: an integer from 1 up");
}

static void key__endless_errors_fit_the_message(void **state)
{
    (void)state;
    ht_text text = {0};
    ht_text_add(&text, "{\"width\": 1");
    for (int i = 0; i < 100000; i++) ht_text_add(&text, ", \"nlayer%d\": 1", i);
    ht_text_add(&text, "}");
    assert_int_equal(ht_fields_read(&fields, &ctx, rows, "model", parsed(text.data)), HT_EINVAL);
    const char *end = strstr(ctx.message, "\nand ");
    assert_non_null(end);
    int lines = 1;
    for (const char *at = ctx.message; at < end; at++) lines += *at == '\n';
    char wanted[64];
    snprintf(wanted, sizeof wanted, "\nand %d more errors", 100000 - lines);
    assert_string_equal(end, wanted);
    ht_text_free(&text);
}

static void key__many_names_are_read_in_one_go(void **state)
{
    (void)state;
    ht_text text = {0};
    ht_text_add(&text, "{\"width\": 1, \"groups\": {");
    for (int i = 0; i < 200000; i++) ht_text_add(&text, "\"g%d\": {\"bits\": 4},", i);
    ht_text_add(&text, "}}");
    reads(text.data);
    assert_int_equal(ht_fields_count(fields), 13 + 200000);
    ht_text_free(&text);
}

static void key__nothing_given_is_an_empty_block(void **state)
{
    (void)state;
    assert_int_equal(ht_fields_read(&fields, &ctx, rows, "model", NULL), HT_EINVAL);
    assert_string_equal(ctx.message, "model.width: must be given: an integer from 1 up");
}

static void key__parts_override_and_keep_their_origin(void **state)
{
    (void)state;
    ht_problems problems = {0};
    ht_origin file = {.source = HT_SOURCE_FILE, .file = "job.json"}, command = {.source = HT_SOURCE_COMMAND};
    ht_origin rule = {.source = HT_SOURCE_DERIVED, .why = "3 × 4"};
    assert_int_equal(ht_fields_create(&fields, "model"), HT_OK);
    assert_int_equal(ht_fields_declare(fields, rows), HT_OK);
    const ht_json *first = parsed("{\"n_layer\": 3,\n\"width\": 4, \"groups\": {\"a\": {\"bits\": 4}}}");
    const ht_json *second = parsed("{\"n_layer\": 5, \"groups\": {\"a\": {\"bits\": 3}}}");
    assert_int_equal(ht_fields_take(fields, first, &file, &problems), HT_OK);
    assert_int_equal(ht_fields_take(fields, second, &command, &problems), HT_OK);
    assert_int_equal(ht_fields_set(fields, "scale.power", "12", &rule), HT_OK);
    assert_int_equal(ht_fields_finish(fields, &problems), HT_OK);
    assert_int_equal(problems.count, 0);
    static const struct {
        const char *name, *origin;
        int64_t value;
    } wanted[] = {{"n_layer", "--set", 5},
                  {"width", "job.json:2", 4},
                  {"scale.power", "derived: 3 × 4", 12},
                  {"scale.window", "default", 1000},
                  {"groups.a.bits", "--set", 3}};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        ht_text text = {0};
        ht_origin_print(&text, &ht_fields_find(fields, wanted[i].name)->origin);
        assert_string_equal(text.data, wanted[i].origin);
        assert_int_equal(ht_field_int(fields, wanted[i].name), wanted[i].value);
        ht_text_free(&text);
    }
    assert_int_equal(ht_fields_count(fields), 14);
    ht_problems_free(&problems);
}

static void json__what_is_printed_reads_back(void **state)
{
    (void)state;
    const char *text = "{\"a\": [1, -2.5, true, null, \"x\\\"\\\\\\n\\u0001é\\u0000\"], \"b\\t\": {}, \"c\": 1e+300}";
    ht_text out = {0}, again = {0};
    ht_json_print(&out, parsed(text));
    ht_json_print(&again, parsed(out.data));
    assert_string_equal(out.data, text);
    assert_string_equal(out.data, again.data);
    ht_text_free(&out);
    ht_text_free(&again);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(key__defaults_fill_what_is_not_given, set_up, tear_down),
        cmocka_unit_test_setup_teardown(key__values_of_every_kind, set_up, tear_down),
        cmocka_unit_test_setup_teardown(key__auto_is_the_default_unless_it_is_a_choice, set_up, tear_down),
        cmocka_unit_test_setup_teardown(key__a_choice_may_have_a_number, set_up, tear_down),
        cmocka_unit_test_setup_teardown(key__an_unknown_key_names_the_nearest, set_up, tear_down),
        cmocka_unit_test_setup_teardown(key__a_wrong_value_says_what_was_wanted, set_up, tear_down),
        cmocka_unit_test_setup_teardown(key__all_errors_are_told_at_once, set_up, tear_down),
        cmocka_unit_test_setup_teardown(key__endless_errors_fit_the_message, set_up, tear_down),
        cmocka_unit_test_setup_teardown(key__many_names_are_read_in_one_go, set_up, tear_down),
        cmocka_unit_test_setup_teardown(key__nothing_given_is_an_empty_block, set_up, tear_down),
        cmocka_unit_test_setup_teardown(key__parts_override_and_keep_their_origin, set_up, tear_down),
        cmocka_unit_test_setup_teardown(json__what_is_printed_reads_back, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
