/* npy, IDX and safetensors: what is read, what is refused, and that what was written reads back. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/base.h"
#include "data_case.h"
#include "format/format.h"

/* A block of just that size, so that a step too far is seen. */
static uint8_t *exact(const void *bytes, size_t length)
{
    uint8_t *copy = malloc(length ? length : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, length);
    return copy;
}

typedef ht_status (*array_parser)(ht_array *, ht_context *, const char *, const uint8_t *, size_t);

static void refused(array_parser parse, const void *bytes, size_t length, ht_status status, const char *message)
{
    ht_context ctx = {0};
    ht_array array;
    uint8_t *copy = exact(bytes, length);
    assert_int_equal(parse(&array, &ctx, "bad.file", copy, length), status);
    assert_non_null(strstr(ctx.message, "bad.file"));
    if (!strstr(ctx.message, message)) fail_msg("'%s' is not in: %s", message, ctx.message);
    free(copy);
}

/* ---- npy ---- */

/* Magic, version, header padded to 64, data. */
static size_t make_npy(uint8_t *out, const char *dictionary, const void *data, size_t bytes)
{
    size_t length = strlen(dictionary), header = (10 + length + 1 + 63) / 64 * 64 - 10;
    memcpy(out, "\x93NUMPY\x01\x00", 8);
    out[8] = (uint8_t)header;
    out[9] = (uint8_t)(header >> 8);
    memset(out + 10, ' ', header);
    memcpy(out + 10, dictionary, length);
    out[10 + header - 1] = '\n';
    if (bytes) memcpy(out + 10 + header, data, bytes);
    return 10 + header + bytes;
}

static void npy__reads_types_of_either_byte_order(void **state)
{
    (void)state;
    ht_context ctx = {0};
    uint8_t file[512];
    float floats[6] = {0, 1.5f, -2, 3, 4, 1e30f}, out[6];
    size_t length =
        make_npy(file, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }", floats, sizeof floats);
    ht_array array;
    assert_int_equal(ht_npy_parse(&array, &ctx, "x", file, length), HT_OK);
    assert_int_equal(array.rank, 2);
    assert_int_equal(array.shape[0] * 10 + array.shape[1], 23);
    ht_array_floats(&array, 0, 6, out);
    assert_memory_equal(out, floats, sizeof floats);

    const uint8_t big[4] = {0xff, 0xfe, 0x01, 0x00};
    length = make_npy(file, "{\"shape\": (2L,), \"fortran_order\": False, \"descr\": \">i2\"}", big, sizeof big);
    assert_int_equal(ht_npy_parse(&array, &ctx, "x", file, length), HT_OK);
    int64_t value;
    assert_true(ht_array_integer(&array, 0, &value));
    assert_int_equal(value, -2);
    assert_true(ht_array_integer(&array, 1, &value));
    assert_int_equal(value, 256);
}

static void npy__a_scalar_and_an_empty_array_are_arrays(void **state)
{
    (void)state;
    ht_context ctx = {0};
    uint8_t file[256];
    ht_array array;
    double pi = 3.25;
    size_t length = make_npy(file, "{'descr': '<f8', 'fortran_order': True, 'shape': ()}", &pi, sizeof pi);
    assert_int_equal(ht_npy_parse(&array, &ctx, "x", file, length), HT_OK);
    assert_int_equal(array.rank, 0);
    float out;
    ht_array_floats(&array, 0, 1, &out);
    assert_true(out == 3.25f);
    length = make_npy(file, "{'descr': '|u1', 'fortran_order': False, 'shape': (0, 5)}", NULL, 0);
    assert_int_equal(ht_npy_parse(&array, &ctx, "x", file, length), HT_OK);
    assert_int_equal(array.count, 0);
}

static void npy__refuses_what_it_cannot_trust(void **state)
{
    (void)state;
    static const struct {
        const char *dictionary;
        ht_status status;
        const char *message;
    } cases[] = {
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}", HT_EPARSE, "promises 12 bytes"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2)}", HT_ENOTSUP, "Fortran order"},
        {"{'descr': '<c8', 'fortran_order': False, 'shape': (1,)}", HT_EDTYPE, "'<c8'"},
        {"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}", HT_EPARSE, "records"},
        {"{'descr': '<f4', 'fortran_order': False}", HT_EPARSE, "not all there"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", HT_EPARSE, "repeated key"},
        {"{'descr': '<f4', 'fortran_order': Maybe, 'shape': (2,)}", HT_EPARSE, "neither True nor False"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}", HT_EPARSE, "overflows"},
        {"{'descr': '<f8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}", HT_ESHAPE, "overflows"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1,1,1,1,2)}", HT_ESHAPE, "more than 8"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}", HT_EPARSE, "tuple"},
        {"['descr']", HT_EPARSE, "not a dictionary"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} x", HT_EPARSE, "text after"},
    };
    uint8_t file[512], data[8] = {0};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        refused(ht_npy_parse, file, make_npy(file, cases[i].dictionary, data, sizeof data), cases[i].status,
                cases[i].message);
    size_t length = make_npy(file, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", data, sizeof data);
    for (size_t cut = 0; cut < length; cut++) refused(ht_npy_parse, file, cut, HT_EPARSE, "npy");
    file[6] = 9;
    refused(ht_npy_parse, file, length, HT_EPARSE, "version 9");
}

/* ---- IDX ---- */

static void idx__reads_sizes_and_elements_in_big_endian_order(void **state)
{
    (void)state;
    ht_context ctx = {0};
    const uint8_t file[] = {0, 0, 0x0d, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0x3f, 0x80, 0, 0, 0xc0, 0x20, 0, 0};
    ht_array array;
    assert_int_equal(ht_idx_parse(&array, &ctx, "x", file, sizeof file), HT_OK);
    assert_int_equal(array.rank, 2);
    assert_int_equal(array.shape[1], 2);
    float out[2];
    ht_array_floats(&array, 0, 2, out);
    assert_true(out[0] == 1.0f && out[1] == -2.5f);
}

static void idx__refuses_lengths_that_do_not_fit(void **state)
{
    (void)state;
    uint8_t file[] = {0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 2, 1, 2, 3, 4};
    for (size_t cut = 0; cut < sizeof file; cut++) refused(ht_idx_parse, file, cut, HT_EPARSE, "");
    refused(ht_idx_parse, "\0\0\x08\x01\xff\xff\xff\xff", 8, HT_EPARSE, "promises");
    refused(ht_idx_parse, "\0\0\x0e\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 16, HT_ESHAPE, "overflow");
    refused(ht_idx_parse, "\0\0\x0a\x01\0\0\0\0", 8, HT_EPARSE, "type 0x0a");
    refused(ht_idx_parse, "\0\0\x08\x00", 4, HT_ESHAPE, "rank 0");
    refused(ht_idx_parse, "\0\0\x08\xff", 4, HT_ESHAPE, "rank 255");
    refused(ht_idx_parse, "\x1f\x8b\x08\x00", 4, HT_EPARSE, "not an IDX file");
}

/* ---- safetensors ---- */

static size_t make_safetensors(uint8_t *out, const char *header, size_t data_bytes)
{
    size_t length = strlen(header);
    for (int i = 0; i < 8; i++) out[i] = (uint8_t)(length >> 8 * i);
    memcpy(out + 8, header, length);
    for (size_t i = 0; i < data_bytes; i++) out[8 + length + i] = (uint8_t)i;
    return 8 + length + data_bytes;
}

static ht_status try_safetensors(ht_context *ctx, const void *bytes, size_t length)
{
    ht_safetensors *file;
    uint8_t *copy = exact(bytes, length);
    ht_status status = ht_safetensors_parse(&file, ctx, "w.safetensors", copy, length);
    if (status != HT_OK) assert_null(file);
    if (status != HT_OK) assert_non_null(strstr(ctx->message, "w.safetensors"));
    ht_safetensors_free(file);
    free(copy);
    return status;
}

static void safetensors__every_rule_is_checked(void **state)
{
    (void)state;
    static const struct {
        const char *header;
        size_t bytes;
        const char *message; /* NULL: fine */
    } cases[] = {
        {"{}", 0, NULL},
        {"  {\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}  ", 4, NULL},
        {"{\"b\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[4,5]},\"a\":{\"dtype\":\"F32\",\"shape\":[1],"
         "\"data_offsets\":[0,4]}}",
         5, NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]}}", 0, NULL},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 5, "the tensors end at byte 4"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 3, "do not lie within"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[1,5]}}", 5, "bytes are free from 0"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[4],"
         "\"data_offsets\":[2,6]}}",
         6, "others reach to 4"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},\"b\":{\"dtype\":\"U8\",\"shape\":[2],"
         "\"data_offsets\":[4,6]}}",
         6, "bytes are free from 2"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},\"a\":{\"dtype\":\"U8\",\"shape\":[0],"
         "\"data_offsets\":[4,4]}}",
         4, "was given before"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4, "need 8 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904,4],\"data_offsets\":[0,4]}}", 4, "overflow"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "no whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", 4, "no whole number"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", 4, "do not lie within"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,18446744073709551615]}}", 4, "two whole numbers"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4, "two whole numbers"},
        {"{\"a\":{\"dtype\":\"F99\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "\"F99\" is not known"},
        {"{\"a\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "no dtype"},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "no shape"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"more\":1}}", 4, "unknown key \"more\""},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4, "rank 9"},
        {"{\"a\\u0000b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4, "zero byte"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "not a string"},
        {"{\"__metadata__\":[]}", 0, "not an object"},
        {"{\"a\":7}", 0, "not the description"},
        {"[]", 0, "not an object"},
        {"{", 0, "w.safetensors"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ht_context ctx = {0};
        uint8_t file[512];
        ht_status status = try_safetensors(&ctx, file, make_safetensors(file, cases[i].header, cases[i].bytes));
        if ((status == HT_OK) != (cases[i].message == NULL)) fail_msg("%s: %s", cases[i].header, ctx.message);
        if (cases[i].message && !strstr(ctx.message, cases[i].message))
            fail_msg("%s: '%s' is not in: %s", cases[i].header, cases[i].message, ctx.message);
    }
}

static void safetensors__truncation_and_nesting_are_refused(void **state)
{
    (void)state;
    ht_context ctx = {0};
    uint8_t file[4096];
    size_t length = make_safetensors(file, "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4);
    for (size_t cut = 0; cut < length; cut++) assert_int_not_equal(try_safetensors(&ctx, file, cut), HT_OK);
    char deep[3001];
    memset(deep, '[', 3000);
    deep[3000] = '\0';
    assert_int_equal(try_safetensors(&ctx, file, make_safetensors(file, deep, 0)), HT_EPARSE);
    memset(file, 0xff, 16);
    assert_int_equal(try_safetensors(&ctx, file, 16), HT_EPARSE);
    assert_non_null(strstr(ctx.message, "more than 100000000"));
}

static void safetensors__published_cases_are_judged_as_published(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool accept;
    } cases[] = {
        {"deserialization_0", true},
        {"metadata_incomplete_buffer_0", false},
        {"header_too_large_0", false},
        {"invalid_header_not_json_0", false},
        {"whitespace_leading_padded_header_0", true},
        {"zero_sized_tensor_0", true},
        {"validation_overflow_0", false},
        {"validation_overflow_1", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char name[128];
        snprintf(name, sizeof name, "formats/safetensors_cases/%s.safetensors", cases[i].name);
        const char *path = data_case_real(name);
        if (!path) skip();
        ht_context ctx = {0};
        ht_safetensors *file;
        bool accepted = ht_safetensors_open(&file, &ctx, path) == HT_OK;
        if (accepted != cases[i].accept) fail_msg("%s: %s", cases[i].name, ctx.message);
        ht_safetensors_free(file);
    }
}

static void safetensors__what_is_written_reads_back(void **state)
{
    data_case *c = *state;
    float weights[6] = {1, 2, 3, 4, 5, 6};
    int64_t steps = -7;
    const ht_named_array arrays[] = {
        {"steps", {.element = HT_ELEMENT_I64}},
        {"h.0 \"w\"\n", {.element = HT_ELEMENT_F32, .rank = 2, .shape = {2, 3}}},
        {"none", {.element = HT_ELEMENT_BF16, .rank = 1, .shape = {0}}},
    };
    const char *metadata[] = {"format", "halftone", "note", "a \\ b", NULL};
    ht_safetensors_writer *writer;
    const char *path = data_case_path(c, "w.safetensors");
    assert_int_equal(ht_safetensors_create(&writer, &c->ctx, path, arrays, 3, metadata), HT_OK);
    assert_int_equal(ht_safetensors_append(writer, &steps, 8), HT_OK);
    assert_int_equal(ht_safetensors_append(writer, weights, 4), HT_OK); /* in pieces */
    assert_int_equal(ht_safetensors_append(writer, weights + 1, 20), HT_OK);
    uint64_t checksum, again;
    int64_t bytes, bytes_again;
    assert_int_equal(ht_safetensors_finish(writer, &checksum, &bytes), HT_OK);
    assert_int_equal(ht_checksum_file(&again, &bytes_again, &c->ctx, path), HT_OK);
    assert_true(checksum == again && bytes == bytes_again);

    ht_safetensors *file;
    assert_int_equal(ht_safetensors_open(&file, &c->ctx, path), HT_OK);
    assert_int_equal(ht_safetensors_count(file), 3);
    const ht_named_array *w = ht_safetensors_find(file, "h.0 \"w\"\n");
    assert_non_null(w);
    assert_memory_equal(w->array.data, weights, sizeof weights);
    assert_int_equal((uintptr_t)w->array.data % 8, 0);
    int64_t value;
    assert_true(ht_array_integer(&ht_safetensors_find(file, "steps")->array, 0, &value));
    assert_int_equal(value, -7);
    assert_string_equal(ht_safetensors_metadata(file, "note"), "a \\ b");
    assert_null(ht_safetensors_metadata(file, "other"));
    assert_null(ht_safetensors_find(file, "other"));
    ht_safetensors_free(file);
}

/* Matrices of floats with enough zeros, bit for bit; the rest is written as it is. */
static void safetensors__stored_sparse_reads_back_dense(void **state)
{
    enum { ROWS = 37, COLUMNS = 29, COUNT = ROWS * COLUMNS };
    data_case *c = *state;
    static float some[COUNT], few[COUNT];
    static uint16_t half[COUNT];
    static int32_t whole[COUNT];
    for (int i = 0; i < COUNT; i++) {
        some[i] = i % 3 ? 0 : (float)i;
        half[i] = (uint16_t)(i % 5 ? 0 : 0x3c00 + i);
        few[i] = i < 4 ? 0 : 1;
    }
    some[1] = -0.0f;
    some[2] = NAN;
    const ht_named_array arrays[] = {
        {"some", {.element = HT_ELEMENT_F32, .rank = 2, .shape = {ROWS, COLUMNS}, .data = (uint8_t *)some}},
        {"few", {.element = HT_ELEMENT_F32, .rank = 2, .shape = {ROWS, COLUMNS}, .data = (uint8_t *)few}},
        {"line", {.element = HT_ELEMENT_F32, .rank = 1, .shape = {COUNT}, .data = (uint8_t *)some}},
        {"codes", {.element = HT_ELEMENT_I32, .rank = 2, .shape = {ROWS, COLUMNS}, .data = (uint8_t *)whole}},
        {"half", {.element = HT_ELEMENT_BF16, .rank = 3, .shape = {COLUMNS, 1, ROWS}, .data = (uint8_t *)half}},
    };
    enum { ARRAYS = sizeof arrays / sizeof arrays[0] };
    const size_t sizes[ARRAYS] = {sizeof some, sizeof few, sizeof some, sizeof whole, sizeof half};
    ht_safetensors_writer *writer;
    ht_safetensors *dense, *sparse;
    uint64_t checksum;
    int64_t bytes;
    bool stored;
    assert_int_equal(
        ht_safetensors_create(&writer, &c->ctx, data_case_path(c, "dense.safetensors"), arrays, ARRAYS, NULL), HT_OK);
    for (int i = 0; i < ARRAYS; i++)
        assert_int_equal(ht_safetensors_append(writer, arrays[i].array.data, sizes[i]), HT_OK);
    assert_int_equal(ht_safetensors_finish(writer, NULL, NULL), HT_OK);
    assert_int_equal(ht_safetensors_open(&dense, &c->ctx, data_case_path(c, "dense.safetensors")), HT_OK);
    assert_int_equal(ht_safetensors_write_sparse(&c->ctx, dense, data_case_path(c, "sparse.safetensors"), &stored,
                                                 &checksum, &bytes),
                     HT_OK);
    assert_true(stored);
    assert_int_equal(ht_safetensors_open(&sparse, &c->ctx, data_case_path(c, "sparse.safetensors")), HT_OK);
    assert_int_equal(ht_safetensors_count(sparse), ARRAYS);
    for (int i = 0; i < ARRAYS; i++) {
        const ht_named_array *is = ht_safetensors_find(sparse, arrays[i].name);
        assert_non_null(is);
        assert_int_equal(is->array.element, arrays[i].array.element);
        assert_int_equal(is->array.rank, arrays[i].array.rank);
        assert_memory_equal(is->array.shape, arrays[i].array.shape, (size_t)is->array.rank * sizeof(int64_t));
        assert_memory_equal(is->array.data, arrays[i].array.data, sizes[i]);
    }
    size_t length;
    char *file = file_read(data_case_path(c, "sparse.safetensors"), &length);
    assert_int_equal(length, bytes);
    assert_true(ht_checksum_bytes(file, length) == checksum);
    /* A third of `some` and a fifth of `half` are left, and a bit for each. */
    assert_true(length < 2 * sizeof some + sizeof whole + sizeof some / 3 + sizeof half / 5 + COUNT / 4 + 2048);
    free(file);
    ht_safetensors_free(dense);
    assert_int_equal(ht_safetensors_write_sparse(&c->ctx, sparse, data_case_path(c, "again.safetensors"), &stored,
                                                 &checksum, &bytes),
                     HT_OK);
    assert_int_equal(length, bytes);
    ht_safetensors_free(sparse);
}

static void safetensors__sparse_parts_that_do_not_fit_are_refused(void **state)
{
#define PART(name, type, count, at, end)                                                                               \
    "\"" name "\":{\"dtype\":\"" type "\",\"shape\":[" count "],\"data_offsets\":[" at "," end "]}"
    static const struct {
        const char *header;
        size_t bytes;
        const char *message; /* NULL: it is read */
    } cases[] = {
        {"{" PART("w.sparse_shape", "I64", "1", "0",
                  "8") "," PART("w.sparse", "F32", "2", "8", "16") "," PART("w.sparse_mask", "U8", "1", "16", "17") "}",
         17, NULL},
        {"{" PART("w.sparse_shape", "I64", "1", "0",
                  "8") "," PART("w.sparse", "F32", "3", "8", "20") "," PART("w.sparse_mask", "U8", "1", "20", "21") "}",
         21, "w.sparse: its mask and its shape do not fit it"},
        {"{" PART("w.sparse_shape", "I64", "1", "0",
                  "8") "," PART("w.sparse", "F32", "2", "8", "16") "," PART("w.sparse_mask", "U8", "2", "16", "18") "}",
         18, "do not fit"},
        {"{" PART("w.sparse_shape", "F64", "1", "0",
                  "8") "," PART("w.sparse", "F32", "2", "8", "16") "," PART("w.sparse_mask", "U8", "1", "16", "17") "}",
         17, "do not fit"},
        {"{" PART("w.sparse_shape", "I64", "1", "0", "8") "," PART("w.sparse", "F32", "2", "8", "16") "," PART(
             "w.sparse_mask", "U8", "1", "16", "17") "," PART("w", "U8", "1", "17", "18") "}",
         18, "the tensor is there dense, too"},
        {"{" PART("w.sparse", "F32", "2", "0", "8") "," PART("w.sparse_mask", "U8", "1", "8", "9") "}", 9, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        uint8_t file[1024];
        ht_context ctx = {0};
        size_t length = make_safetensors(file, cases[i].header, cases[i].bytes), data = length - cases[i].bytes;
        memset(file + data, 0, cases[i].bytes);
        file[data] = 5; /* elements; the mask has two of them */
        for (size_t k = data + 8; k < length; k++) file[k] = 0x0a;
        bool read = try_safetensors(&ctx, file, length) == HT_OK;
        if (read != !cases[i].message || (!read && !strstr(ctx.message, cases[i].message)))
            fail_msg("case %zu: %s", i, ctx.message);
    }
}

static void safetensors__a_writer_keeps_its_promise_or_fails(void **state)
{
    data_case *c = *state;
    const ht_named_array arrays[] = {{"a", {.element = HT_ELEMENT_F32, .rank = 1, .shape = {2}}}};
    ht_safetensors_writer *writer;
    const char *path = data_case_path(c, "w.safetensors");
    assert_int_equal(ht_safetensors_create(&writer, &c->ctx, path, arrays, 1, NULL), HT_OK);
    assert_int_equal(ht_safetensors_append(writer, "1234", 4), HT_OK);
    assert_int_equal(ht_safetensors_finish(writer, NULL, NULL), HT_EINVAL);
    assert_int_equal(ht_safetensors_create(&writer, &c->ctx, path, arrays, 1, NULL), HT_OK);
    assert_int_equal(ht_safetensors_append(writer, "123456789", 9), HT_EINVAL);
    ht_safetensors_abandon(writer);
    assert_int_equal(ht_safetensors_create(&writer, &c->ctx, "/nowhere/w.safetensors", arrays, 1, NULL), HT_EIO);
    assert_null(writer);
    assert_non_null(strstr(c->ctx.message, "/nowhere/w.safetensors"));
    if (ht_safetensors_create(&writer, &c->ctx, "/dev/full", arrays, 1, NULL) != HT_OK) skip();
    ht_safetensors_append(writer, "12345678", 8);
    assert_int_equal(ht_safetensors_finish(writer, NULL, NULL), HT_EIO);
}

/* ---- elements ---- */

static void elements__every_type_is_read(void **state)
{
    (void)state;
    static const struct {
        ht_element element;
        uint8_t bytes[8];
        float value;
    } cases[] = {
        {HT_ELEMENT_BOOL, {1}, 1},
        {HT_ELEMENT_U8, {200}, 200},
        {HT_ELEMENT_I8, {0xff}, -1},
        {HT_ELEMENT_F8E5M2, {0x3c}, 1},
        {HT_ELEMENT_F8E4M3, {0x38}, 1},
        {HT_ELEMENT_I16, {0xfe, 0xff}, -2},
        {HT_ELEMENT_U16, {0xfe, 0xff}, 65534},
        {HT_ELEMENT_F16, {0x00, 0x3e}, 1.5f},
        {HT_ELEMENT_BF16, {0xc0, 0x3f}, 1.5f},
        {HT_ELEMENT_I32, {0xff, 0xff, 0xff, 0xff}, -1},
        {HT_ELEMENT_U32, {0xff, 0xff, 0xff, 0xff}, 4294967295.0f},
        {HT_ELEMENT_F32, {0, 0, 0xc0, 0x3f}, 1.5f},
        {HT_ELEMENT_F64, {0, 0, 0, 0, 0, 0, 0xf8, 0x3f}, 1.5f},
        {HT_ELEMENT_I64, {3}, 3},
        {HT_ELEMENT_U64, {0, 0, 0, 0, 0, 0, 0, 0x80}, 0x1p63f},
    };
    assert_int_equal(sizeof cases / sizeof cases[0], HT_ELEMENT_COUNT);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ht_array array = {.element = cases[i].element, .rank = 1, .shape = {1}, .data = cases[i].bytes};
        assert_true(ht_array_measure(&array));
        float out;
        ht_array_floats(&array, 0, 1, &out);
        if (out != cases[i].value) fail_msg("%s: %g", ht_element_name(cases[i].element), (double)out);
        int64_t whole;
        bool fits = ht_array_integer(&array, 0, &whole);
        bool is_whole = cases[i].value == floorf(cases[i].value) && cases[i].value < 0x1p62f;
        if (fits != is_whole) fail_msg("%s: integer or not", ht_element_name(cases[i].element));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npy__reads_types_of_either_byte_order),
        cmocka_unit_test(npy__a_scalar_and_an_empty_array_are_arrays),
        cmocka_unit_test(npy__refuses_what_it_cannot_trust),
        cmocka_unit_test(idx__reads_sizes_and_elements_in_big_endian_order),
        cmocka_unit_test(idx__refuses_lengths_that_do_not_fit),
        cmocka_unit_test(safetensors__every_rule_is_checked),
        cmocka_unit_test(safetensors__truncation_and_nesting_are_refused),
        cmocka_unit_test(safetensors__published_cases_are_judged_as_published),
        cmocka_unit_test_setup_teardown(safetensors__what_is_written_reads_back, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(safetensors__stored_sparse_reads_back_dense, data_case_begin, data_case_end),
        cmocka_unit_test(safetensors__sparse_parts_that_do_not_fit_are_refused),
        cmocka_unit_test_setup_teardown(safetensors__a_writer_keeps_its_promise_or_fails, data_case_begin,
                                        data_case_end),
        cmocka_unit_test(elements__every_type_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
