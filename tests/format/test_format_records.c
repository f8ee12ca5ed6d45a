/* gzip, lines, UTF-8, CSV, token shards, TensorBoard events, checksums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "base/base.h"
#include "data_case.h"
#include "format/format.h"

/* ---- gzip ---- */

static size_t gzip(uint8_t *out, size_t capacity, const char *text, size_t length)
{
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (Bytef *)text;
    z.avail_in = (uInt)length;
    z.next_out = out;
    z.avail_out = (uInt)capacity;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    size_t bytes = z.total_out;
    deflateEnd(&z);
    return bytes;
}

static void gzip__members_follow_each_other(void **state)
{
    (void)state;
    ht_context ctx = {0};
    uint8_t file[256], *out;
    size_t first = gzip(file, sizeof file, "one ", 4), length = first + gzip(file + first, 100, "two", 3);
    size_t bytes;
    file[length] = file[length + 1] = 0; /* padding */
    assert_int_equal(ht_gz_inflate(&ctx, "f", file, length + 2, 100, &out, &bytes), HT_OK);
    assert_int_equal(bytes, 7);
    assert_memory_equal(out, "one two", 7);
    free(out);
}

static void gzip__damage_truncation_and_bombs_are_refused(void **state)
{
    (void)state;
    ht_context ctx = {0};
    static char zeros[1 << 20];
    static uint8_t file[1 << 12];
    uint8_t *out;
    size_t bytes, length = gzip(file, sizeof file, zeros, sizeof zeros);
    assert_int_equal(ht_gz_inflate(&ctx, "bomb.gz", file, length, 1000, &out, &bytes), HT_ESHAPE);
    assert_non_null(strstr(ctx.message, "bomb.gz: inflates to more than 1000 bytes"));
    assert_null(out);
    length = gzip(file, sizeof file, "some text that is long enough", 29);
    for (size_t cut = 0; cut < length; cut++) {
        uint8_t *copy = malloc(cut + 1);
        memcpy(copy, file, cut);
        assert_int_equal(ht_gz_inflate(&ctx, "cut.gz", copy, cut, 1000, &out, &bytes), HT_EPARSE);
        assert_non_null(strstr(ctx.message, "cut.gz"));
        free(copy);
    }
    file[15] ^= 0x55;
    assert_int_equal(ht_gz_inflate(&ctx, "bad.gz", file, length, 1000, &out, &bytes), HT_EPARSE);
}

static void content__opens_plain_and_gzip_files_alike(void **state)
{
    data_case *c = *state;
    uint8_t file[256];
    data_case_file(c, "a.gz", file, gzip(file, sizeof file, "hello", 5));
    data_case_text(c, "a.txt", "hello");
    data_case_text(c, "empty", "");
    ht_content content;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ht_content_open(&content, &c->ctx, data_case_path(c, i ? "a.gz" : "a.txt")), HT_OK);
        assert_int_equal(content.length, 5);
        assert_memory_equal(content.data, "hello", 5);
        ht_content_close(&content);
    }
    assert_int_equal(ht_content_open(&content, &c->ctx, data_case_path(c, "empty")), HT_OK);
    assert_int_equal(content.length, 0);
    ht_content_close(&content);
    assert_int_equal(ht_content_open(&content, &c->ctx, data_case_path(c, "missing")), HT_EIO);
    assert_non_null(strstr(c->ctx.message, "missing: No such file"));
    assert_int_equal(ht_content_open(&content, &c->ctx, c->folder), HT_EIO);
    assert_non_null(strstr(c->ctx.message, "a folder, not a file"));
}

/* ---- text ---- */

static void lines__end_with_lf_or_cr_lf(void **state)
{
    (void)state;
    static const char text[] = "one\r\n\ntwo\nthree\r";
    static const char *const wanted[] = {"one", "", "two", "three\r"};
    ht_lines lines = {.at = text, .end = text + sizeof text - 1};
    const char *line;
    size_t length, count = 0;
    for (; ht_line_next(&lines, &line, &length); count++) {
        assert_int_equal(length, strlen(wanted[count]));
        assert_memory_equal(line, wanted[count], length);
        assert_int_equal(lines.number, count + 1);
    }
    assert_int_equal(count, 4);
}

static void utf8__there_and_back_for_every_code_point(void **state)
{
    (void)state;
    for (uint32_t code = 0; code <= 0x10ffff; code++) {
        char bytes[4];
        uint32_t back = 0;
        int length = ht_utf8_put(bytes, code);
        bool surrogate = code >= 0xd800 && code <= 0xdfff;
        if (ht_utf8_next(bytes, bytes + length, &back) != (surrogate ? 0 : length)) fail_msg("U+%04X", code);
        if (!surrogate && back != code) fail_msg("U+%04X reads as U+%04X", code, back);
        if (length > 1 && ht_utf8_next(bytes, bytes + length - 1, &back) != 0) fail_msg("U+%04X cut short", code);
    }
    static const char *const wrong[] = {
        "\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x80\x80", "\xf0\x80\x80\x80", "\xf4\x90\x80\x80", "\xff"};
    uint32_t code;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(ht_utf8_next(wrong[i], wrong[i] + strlen(wrong[i]), &code), 0);
}

/* ---- CSV ---- */

/* All rows, cells in brackets, rows with their lines; or the message. */
static const char *rows_of(const char *text, size_t length, char delimiter)
{
    static char out[4096];
    static ht_context ctx;
    ht_csv csv;
    char *copy = malloc(length + 1);
    memcpy(copy, text, length);
    ht_csv_open(&csv, &ctx, "t.csv", copy, length, delimiter);
    size_t at = 0;
    for (bool more = true; more;) {
        if (ht_csv_next(&csv, &more) != HT_OK) {
            snprintf(out, sizeof out, "%s", ctx.message);
            break;
        }
        if (more) at += (size_t)snprintf(out + at, sizeof out - at, "%d", (int)csv.line);
        for (size_t i = 0; more && i < csv.columns; i++)
            at += (size_t)snprintf(out + at, sizeof out - at, "[%s]", csv.cells[i]);
        out[at] = '\0';
    }
    ht_csv_close(&csv);
    free(copy);
    return out;
}

static void csv__quotes_line_ends_and_delimiters(void **state)
{
    (void)state;
    static const struct {
        const char *text, *rows;
        char delimiter;
    } cases[] = {
        {"a,b\n1,2\n", "1[a][b]2[1][2]", 0},
        {"a,b\r\n1,2\r\n", "1[a][b]2[1][2]", 0},
        {"a,b\n1,2", "1[a][b]2[1][2]", 0},
        {"\xef\xbb\xbf"
         "a;b,c\n1;2\n",
         "t.csv:2: 1 cells, the rows before have 2", ','},
        {"a;b;c,d\n", "1[a][b][c,d]", 0},
        {"a\tb\n", "1[a][b]", 0},
        {"\"x, \"\"y\"\"\nz\",2\n\n\n3,4\n", "1[x, \"y\"\nz][2]5[3][4]", 0},
        {",\n", "1[][]", 0},
        {"\n\n", "", 0},
        {"a,b\n1\n", "t.csv:2: 1 cells, the rows before have 2", 0},
        {"a,\"b\n1,2\n", "t.csv:1: the quote is never closed", 0},
        {"a,\"b\"c\n", "t.csv:1: text after a closing quote", 0},
        {"a,b\rc\n", "1[a][b\rc]", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(rows_of(cases[i].text, strlen(cases[i].text), cases[i].delimiter), cases[i].rows);
    assert_string_equal(rows_of("a\0b,c\n", 6, ','), "t.csv:1: a zero byte");
    assert_string_equal(rows_of("\"a\0b\",c\n", 8, ','), "t.csv:1: a zero byte");
}

static void csv__a_header_is_a_first_row_without_numbers(void **state)
{
    (void)state;
    ht_context ctx = {0};
    bool header;
    assert_int_equal(ht_csv_has_header(&header, &ctx, "t", "a,b\n1,2", 7, 0), HT_OK);
    assert_true(header);
    assert_int_equal(ht_csv_has_header(&header, &ctx, "t", "5.1,setosa\n", 11, 0), HT_OK);
    assert_false(header);
    assert_int_equal(ht_csv_has_header(&header, &ctx, "t", "", 0, 0), HT_OK);
    assert_false(header);
    assert_int_equal(ht_csv_has_header(&header, &ctx, "t", "\"a", 2, 0), HT_EPARSE);
}

/* ---- shards ---- */

static void shards__with_and_without_header(void **state)
{
    (void)state;
    ht_context ctx = {0};
    ht_shard shard;
    uint8_t file[1024 + 8] = {0};
    uint32_t header[3] = {20240520, 1, 4};
    memcpy(file, header, sizeof header);
    assert_int_equal(ht_shard_parse(&shard, &ctx, "s.bin", file, sizeof file, 4), HT_OK);
    assert_true(shard.width == 2 && shard.count == 4 && shard.tokens == file + 1024);
    header[0] = 20240801, header[1] = 7, header[2] = 2;
    memcpy(file, header, sizeof header);
    assert_int_equal(ht_shard_parse(&shard, &ctx, "s.bin", file, sizeof file, 2), HT_OK);
    assert_true(shard.width == 4 && shard.count == 2);
    assert_int_equal(ht_shard_parse(&shard, &ctx, "s.bin", file, 10, 2), HT_OK);
    assert_true(shard.width == 2 && shard.count == 5);
    assert_int_equal(ht_shard_parse(&shard, &ctx, "s.bin", file, 11, 2), HT_EPARSE);
    assert_int_equal(ht_shard_parse(&shard, &ctx, "s.bin", file, 10, 4), HT_EPARSE);
    header[2] = 0xffffffffu;
    memcpy(file, header, sizeof header);
    assert_int_equal(ht_shard_parse(&shard, &ctx, "s.bin", file, sizeof file, 2), HT_EPARSE);
    assert_non_null(strstr(ctx.message, "promises 4294967295 tokens"));
    header[1] = 3;
    memcpy(file, header, sizeof header);
    assert_int_equal(ht_shard_parse(&shard, &ctx, "s.bin", file, sizeof file, 2), HT_ENOTSUP);
    assert_non_null(strstr(ctx.message, "version 3"));
}

/* ---- events and checksums ---- */

static void events__are_the_bytes_that_tensorboard_reads(void **state)
{
    data_case *c = *state;
    assert_int_equal(ht_crc32c("123456789", 9), 0xe3069283u);
    ht_events *events;
    const char *path = data_case_path(c, "events.out.tfevents.1");
    assert_int_equal(ht_events_open(&events, &c->ctx, path, 1), HT_OK);
    assert_int_equal(ht_events_scalar(events, 1, 7, "loss", 0.5f), HT_OK);
    assert_int_equal(ht_events_close(events), HT_OK);
    assert_int_equal(ht_events_open(&events, &c->ctx, path, 2), HT_OK); /* goes on behind, with no second version */
    assert_int_equal(ht_events_scalar(events, 1, 7, "loss", 0.5f), HT_OK);
    assert_int_equal(ht_events_start(events, 1, 7), HT_OK);
    assert_int_equal(ht_events_close(events), HT_OK);
    static const uint8_t start[] = {0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf0,
                                    0x3f, 0x10, 0x07, 0x3a, 0x02, 0x08, 0x01};
    static const uint8_t scalar[] = {0x1a, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x12, 0x9b, 0xd8,
                                     0x2d, 0x09, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0xf0, 0x3f, 0x10,
                                     0x07, 0x2a, 0x0d, 0x0a, 0x0b, 0x0a, 0x04, 0x6c, 0x6f, 0x73, 0x73,
                                     0x15, 0x00, 0x00, 0x00, 0x3f, 0x86, 0x2c, 0x9a, 0x2f};
    ht_content content;
    assert_int_equal(ht_content_map(&content, &c->ctx, path), HT_OK);
    size_t version = 8 + 4 + 9 + 2 + 13 + 4;
    assert_int_equal(content.length, version + 2 * sizeof scalar + 8 + 4 + sizeof start + 4);
    assert_memory_equal(content.data + 8 + 4 + 9 + 2, "brain.Event:2", 13);
    assert_memory_equal(content.data + version, scalar, sizeof scalar);
    assert_memory_equal(content.data + version + sizeof scalar, scalar, sizeof scalar);
    assert_memory_equal(content.data + version + 2 * sizeof scalar + 8 + 4, start, sizeof start);
    ht_content_close(&content);
}

static void events__a_full_disk_and_a_long_tag_are_errors(void **state)
{
    data_case *c = *state;
    ht_events *events;
    char tag[2000];
    memset(tag, 'x', sizeof tag - 1);
    tag[sizeof tag - 1] = '\0';
    assert_int_equal(ht_events_open(&events, &c->ctx, data_case_path(c, "tfevents"), 1), HT_OK);
    assert_int_equal(ht_events_scalar(events, 1, 1, tag, 0), HT_EINVAL);
    assert_int_equal(ht_events_close(events), HT_OK);
    assert_int_equal(ht_events_open(&events, &c->ctx, "/nowhere/tfevents", 1), HT_EIO);
    assert_null(events);
    if (ht_events_open(&events, &c->ctx, "/dev/full", 1) != HT_OK) skip();
    assert_int_equal(ht_events_close(events), HT_EIO);
}

static void checksums__are_xxh3_and_see_every_bit(void **state)
{
    data_case *c = *state;
    /* The published value for no bytes. */
    assert_true(ht_checksum_bytes("", 0) == UINT64_C(0x2d06800538d394c2));
    uint8_t bytes[300] = {0};
    uint64_t plain = ht_checksum_bytes(bytes, sizeof bytes), file;
    int64_t length;
    data_case_file(c, "f", bytes, sizeof bytes);
    assert_int_equal(ht_checksum_file(&file, &length, &c->ctx, data_case_path(c, "f")), HT_OK);
    assert_true(file == plain && length == sizeof bytes);
    bytes[299] ^= 0x80;
    assert_true(ht_checksum_bytes(bytes, sizeof bytes) != plain);
    assert_int_equal(ht_checksum_file(&file, NULL, &c->ctx, data_case_path(c, "missing")), HT_EIO);
    assert_int_equal(ht_checksum_file(&file, NULL, &c->ctx, c->folder), HT_EIO);
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gzip__members_follow_each_other),
        cmocka_unit_test(gzip__damage_truncation_and_bombs_are_refused),
        IN_FOLDER(content__opens_plain_and_gzip_files_alike),
        cmocka_unit_test(lines__end_with_lf_or_cr_lf),
        cmocka_unit_test(utf8__there_and_back_for_every_code_point),
        cmocka_unit_test(csv__quotes_line_ends_and_delimiters),
        cmocka_unit_test(csv__a_header_is_a_first_row_without_numbers),
        cmocka_unit_test(shards__with_and_without_header),
        IN_FOLDER(events__are_the_bytes_that_tensorboard_reads),
        IN_FOLDER(events__a_full_disk_and_a_long_tag_are_errors),
        IN_FOLDER(checksums__are_xxh3_and_see_every_bit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
