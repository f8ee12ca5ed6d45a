/* Weights as codes by groups: round to nearest by hand, GPTQ against its definition by an explicit inverse, AWQ on inputs of
 * different magnitude, and sums over calibration data. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/group_codes.h"
#include "op_call.h"

/* ---- data ---- */

/* Inputs of a layer that depend on each other, some of them large, and its weights. */
typedef struct layer {
    int64_t k, n, rows;
    float *x, *w;
    ht_input_moments moments;
} layer;

static layer layer_open(int64_t k, int64_t n, int64_t rows, bool related)
{
    layer l = {.k = k, .n = n, .rows = rows};
    ht_stream stream = {.seed = 5, .site = ht_hash_text("layer")};
    uint64_t next = 0;
    l.x = calloc((size_t)(rows * k), sizeof *l.x);
    l.w = calloc((size_t)(k * n), sizeof *l.w);
    assert_true(l.x && l.w);
    for (int64_t r = 0; r < rows; r++) {
        double shared[4];
        for (int i = 0; i < 4; i++) shared[i] = ht_stream_uniform(&stream, next++) - 0.5;
        for (int64_t i = 0; i < k; i++) {
            double own = ht_stream_uniform(&stream, next++) - 0.5, size = i % 13 == 3 ? 12 : 1;
            if (related) own = own * 0.4 + shared[i % 4] + 0.5 * shared[i / 4 % 4];
            l.x[r * k + i] = (float)(own * size);
        }
    }
    for (int64_t i = 0; i < k * n; i++) l.w[i] = (float)(ht_stream_uniform(&stream, next++) - 0.5);
    assert_int_equal(ht_input_moments_create(&l.moments, context_shared(), k), HT_OK);
    assert_int_equal(ht_input_moments_add(&l.moments, context_shared(), l.x, rows), HT_OK);
    return l;
}

static void layer_close(layer *l)
{
    free(l->x);
    free(l->w);
    ht_input_moments_free(&l->moments);
}

static ht_nbits_codes make(const layer *l, ht_code_method method, ht_nbits_format format)
{
    ht_nbits_codes codes;
    ht_context *ctx = context_shared();
    if (ht_group_codes_make(&codes, ctx, method, format, l->w, l->k, l->n, &l->moments) != HT_OK)
        fail_msg("%s", ht_context_message(ctx));
    return codes;
}

static double error_of(const layer *l, const ht_nbits_codes *codes)
{
    double error;
    assert_int_equal(ht_group_codes_error(&error, context_shared(), codes, l->w, &l->moments), HT_OK);
    return error;
}

/* The same by multiplying: |x w' - x w| / |x w|. */
static double error_by_products(const layer *l, const ht_nbits_codes *codes)
{
    double off = 0, all = 0;
    for (int64_t r = 0; r < l->rows; r++)
        for (int64_t j = 0; j < l->n; j++) {
            double got = 0, want = 0;
            for (int64_t i = 0; i < l->k; i++) {
                double x = (double)l->x[r * l->k + i];
                got += x * (double)ht_nbits_value(codes, i, j);
                want += x * (double)l->w[i * l->n + j];
            }
            off += (got - want) * (got - want);
            all += want * want;
        }
    return sqrt(off / all);
}

/* ---- round to nearest ---- */

static void rounding__takes_the_nearest_code_of_its_group(void **state)
{
    (void)state;
    static const float w[] = {-0.6f, 0.25f, 1, 0.1f, 7, -14, 0, 0};
    static const uint8_t even[] = {4, 10, 15, 9, 12, 1, 8, 8}, uneven[] = {0, 8, 15, 7, 15, 0, 10, 10};
    layer l = {.k = 8, .n = 1, .w = (float *)w};
    ht_nbits_codes c;
    assert_int_equal(
        ht_group_codes_make(&c, context_shared(), HT_CODES_RTN, (ht_nbits_format){4, 4, true}, l.w, 8, 1, NULL), HT_OK);
    assert_int_equal(c.groups, 2);
    assert_float_equal(c.scale[0], 1.0 / 7, 1e-7);
    assert_float_equal(c.scale[1], 2, 0);
    assert_memory_equal(c.codes, even, sizeof even);
    assert_float_equal(ht_nbits_value(&c, 5, 0), -14, 0);
    ht_group_codes_free(&c);
    assert_int_equal(
        ht_group_codes_make(&c, context_shared(), HT_CODES_RTN, (ht_nbits_format){4, 4, false}, l.w, 8, 1, NULL),
        HT_OK);
    assert_float_equal(c.scale[0], 1.6 / 15, 1e-7);
    assert_int_equal(c.zero[0], 6);
    assert_float_equal(c.scale[1], 1.4, 1e-6);
    assert_int_equal(c.zero[1], 10);
    assert_memory_equal(c.codes, uneven, sizeof uneven);
    ht_group_codes_free(&c);
}

static void weights_that_are_zero__stay_zero(void **state)
{
    (void)state;
    float w[6] = {0};
    ht_nbits_codes c;
    for (int symmetric = 0; symmetric < 2; symmetric++) {
        assert_int_equal(
            ht_group_codes_make(&c, context_shared(), HT_CODES_RTN, (ht_nbits_format){4, 4, symmetric}, w, 6, 1, NULL),
            HT_OK);
        for (int i = 0; i < 6; i++) assert_true(ht_nbits_value(&c, i, 0) == 0);
        ht_group_codes_free(&c);
    }
}

/* ---- packed, and multiplied by the op ---- */

static void packed_codes__are_what_the_op_multiplies_by(void **state)
{
    (void)state;
    for (int bits = 4; bits <= 8; bits += 4) {
        layer l = layer_open(70, 45, 60, true);
        ht_nbits_codes c = make(&l, HT_CODES_AWQ, (ht_nbits_format){bits, 32, false}), back = c;
        ht_type type = ht_nbits_type(bits, l.k, l.n);
        int32_t *packed = malloc((size_t)ht_type_bytes(&type));
        back.codes = malloc((size_t)(l.k * l.n));
        assert_true(packed && back.codes);
        ht_nbits_pack(&c, packed);
        ht_nbits_unpack(&back, packed);
        assert_memory_equal(back.codes, c.codes, (size_t)(l.k * l.n));
        op_call call;
        op_call_open(&call, "matmul_nbits", "(f32[70,70], i32[%d,45], f32[3,45], u8[3,45], f32[70]) group=32 bits=%d",
                     (int)type.dim[0], bits);
        for (int64_t i = 0; i < l.k * l.k; i++) call.a.in[0][i] = i / l.k == i % l.k;
        for (int64_t i = 0; i < op_call_elems_in(&call, 1); i++) call.a.in[1][i] = packed[i];
        for (int64_t i = 0; i < 3 * l.n; i++) call.a.in[2][i] = (double)c.scale[i];
        for (int64_t i = 0; i < 3 * l.n; i++) call.a.in[3][i] = c.zero[i];
        for (int64_t i = 0; i < l.k; i++) call.a.in[4][i] = (double)c.a_scale[i];
        op_call_kernel(&call);
        for (int64_t i = 0; i < l.k * l.n; i++)
            assert_float_equal(call.a.out[0][i], ht_nbits_value(&c, i / l.n, i % l.n), 1e-6);
        op_call_close(&call);
        free(packed);
        free(back.codes);
        ht_group_codes_free(&c);
        layer_close(&l);
    }
}

/* ---- errors ---- */

static void errors__are_those_of_the_products(void **state)
{
    (void)state;
    layer l = layer_open(40, 21, 100, true);
    for (int method = HT_CODES_RTN; method <= HT_CODES_AWQ; method++) {
        ht_nbits_codes c = make(&l, (ht_code_method)method, (ht_nbits_format){4, 16, false});
        double want = error_by_products(&l, &c);
        assert_true(want > 0 && fabs(error_of(&l, &c) - want) < 1e-6 * want);
        ht_group_codes_free(&c);
    }
    layer_close(&l);
}

static void gptq_and_awq__have_smaller_errors_than_rounding(void **state)
{
    (void)state;
    layer l = layer_open(192, 100, 400, true);
    for (int bits = 4; bits <= 8; bits += 4)
        for (int symmetric = 0; symmetric < 2; symmetric++) {
            ht_nbits_format format = {bits, 64, symmetric};
            ht_nbits_codes rtn = make(&l, HT_CODES_RTN, format), gptq = make(&l, HT_CODES_GPTQ, format),
                           awq = make(&l, HT_CODES_AWQ, format);
            double by_rtn = error_of(&l, &rtn), by_gptq = error_of(&l, &gptq), by_awq = error_of(&l, &awq);
            print_message("%d bits, %s: rtn %.5f, gptq %.5f, awq %.5f\n", bits, symmetric ? "symmetric" : "zero points",
                          by_rtn, by_gptq, by_awq);
            assert_true(by_gptq < 0.7 * by_rtn);
            assert_true(by_awq < 0.9 * by_rtn);
            ht_group_codes_free(&rtn);
            ht_group_codes_free(&gptq);
            ht_group_codes_free(&awq);
        }
    layer_close(&l);
}

/* ---- GPTQ ---- */

/* The inverse of a symmetric matrix, by elimination. */
static void invert(double *m, int64_t k)
{
    double *a = calloc((size_t)(2 * k * k), sizeof *a);
    assert_non_null(a);
    for (int64_t i = 0; i < k; i++) {
        memcpy(a + 2 * i * k, m + i * k, (size_t)k * sizeof *m);
        a[2 * i * k + k + i] = 1;
    }
    for (int64_t i = 0; i < k; i++) {
        double pivot = a[2 * i * k + i];
        for (int64_t j = 0; j < 2 * k; j++) a[2 * i * k + j] /= pivot;
        for (int64_t r = 0; r < k; r++) {
            double times = a[2 * r * k + i];
            for (int64_t j = 0; r != i && j < 2 * k; j++) a[2 * r * k + j] -= times * a[2 * i * k + j];
        }
    }
    for (int64_t i = 0; i < k; i++) memcpy(m + i * k, a + 2 * i * k + k, (size_t)k * sizeof *m);
    free(a);
}

/* As its authors define it, for one column: after each input the inverse loses its row and column. */
static void gptq_by_definition(const layer *l, const ht_nbits_codes *fitted, int64_t column, uint8_t *codes)
{
    int64_t k = l->k;
    double *h = malloc((size_t)(k * k) * sizeof *h), *left = malloc((size_t)k * sizeof *left), mean = 0;
    bool *done = calloc((size_t)k, sizeof *done);
    assert_true(h && left && done);
    memcpy(h, l->moments.products, (size_t)(k * k) * sizeof *h);
    for (int64_t i = 0; i < k; i++) mean += h[i * k + i] / (double)k;
    for (int64_t i = 0; i < k; i++) h[i * k + i] += 0.01 * mean;
    invert(h, k);
    for (int64_t i = 0; i < k; i++) left[i] = (double)l->w[i * l->n + column];
    for (int64_t step = 0; step < k; step++) {
        int64_t i = -1;
        for (int64_t t = 0; t < k; t++)
            if (!done[t] && (i < 0 || l->moments.products[t * k + t] > l->moments.products[i * k + i])) i = t;
        float value;
        codes[i] = ht_nbits_code(fitted, i / fitted->format.group, column, (float)left[i], &value);
        double error = (left[i] - (double)value) / h[i * k + i];
        done[i] = true;
        for (int64_t t = 0; t < k; t++)
            if (!done[t]) left[t] -= error * h[i * k + t];
        for (int64_t r = 0; r < k; r++)
            for (int64_t t = 0; t < k && r != i; t++)
                if (t != i) h[r * k + t] -= h[r * k + i] * h[i * k + t] / h[i * k + i];
    }
    free(h);
    free(left);
    free(done);
}

static void gptq__is_what_its_definition_gives(void **state)
{
    (void)state;
    layer l = layer_open(150, 5, 300, true); /* more than two blocks of inputs */
    ht_nbits_codes c = make(&l, HT_CODES_GPTQ, (ht_nbits_format){4, 32, false});
    uint8_t want[150];
    int64_t differ = 0;
    for (int64_t j = 0; j < l.n; j++) {
        gptq_by_definition(&l, &c, j, want);
        for (int64_t i = 0; i < l.k; i++) differ += want[i] != c.codes[i * l.n + j];
    }
    /* A weight half-way between two codes may fall either way, and moves those behind it. */
    assert_true(differ <= 2);
    ht_group_codes_free(&c);
    layer_close(&l);
}

/* Fewer rows than inputs, inputs that are always zero, and no rows at all. */
static void gptq__takes_products_without_an_inverse(void **state)
{
    (void)state;
    layer l = layer_open(96, 8, 20, true);
    for (int64_t r = 0; r < l.rows; r++) l.x[r * l.k + 7] = 0;
    ht_input_moments_free(&l.moments);
    assert_int_equal(ht_input_moments_create(&l.moments, context_shared(), l.k), HT_OK);
    for (int pass = 0; pass < 2; pass++) {
        ht_nbits_codes c = make(&l, HT_CODES_GPTQ, (ht_nbits_format){4, 64, false}),
                       a = make(&l, HT_CODES_AWQ, (ht_nbits_format){4, 64, false});
        double gptq = error_of(&l, &c), awq = error_of(&l, &a);
        assert_true(isfinite(gptq) && isfinite(awq) && (pass ? gptq > 0 : gptq == 0));
        ht_group_codes_free(&c);
        ht_group_codes_free(&a);
        assert_int_equal(ht_input_moments_add(&l.moments, context_shared(), l.x, l.rows), HT_OK);
    }
    layer_close(&l);
}

/* ---- inputs ---- */

static void moments__are_the_same_however_the_rows_come(void **state)
{
    (void)state;
    layer l = layer_open(37, 1, 50, true);
    ht_input_moments parts;
    assert_int_equal(ht_input_moments_create(&parts, context_shared(), l.k), HT_OK);
    for (int64_t row = 0; row < l.rows; row += 7) {
        int64_t rows = l.rows - row < 7 ? l.rows - row : 7;
        assert_int_equal(ht_input_moments_add(&parts, context_shared(), l.x + row * l.k, rows), HT_OK);
    }
    assert_int_equal(parts.rows, 50);
    assert_memory_equal(parts.products, l.moments.products, (size_t)(l.k * l.k) * sizeof(double));
    assert_memory_equal(parts.magnitude, l.moments.magnitude, (size_t)l.k * sizeof(double));
    double sum = 0;
    for (int64_t r = 0; r < l.rows; r++) sum += (double)l.x[r * l.k + 3] * (double)l.x[r * l.k + 20];
    assert_true(fabs(parts.products[3 * l.k + 20] - sum) < 1e-9 &&
                parts.products[20 * l.k + 3] == parts.products[3 * l.k + 20]);
    ht_input_moments_free(&parts);
    layer_close(&l);
}

static void inputs_that_are_not_finite__are_refused(void **state)
{
    (void)state;
    layer l = layer_open(5, 1, 4, false);
    l.x[2 * 5 + 3] = NAN;
    assert_int_equal(ht_input_moments_add(&l.moments, context_shared(), l.x, 4), HT_EINVAL);
    assert_non_null(strstr(ht_context_message(context_shared()), "input 3 of a layer is nan"));
    assert_int_equal(l.moments.rows, 4);
    layer_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding__takes_the_nearest_code_of_its_group),
        cmocka_unit_test(weights_that_are_zero__stay_zero),
        cmocka_unit_test(packed_codes__are_what_the_op_multiplies_by),
        cmocka_unit_test(errors__are_those_of_the_products),
        cmocka_unit_test(gptq_and_awq__have_smaller_errors_than_rounding),
        cmocka_unit_test(gptq__is_what_its_definition_gives),
        cmocka_unit_test(gptq__takes_products_without_an_inverse),
        cmocka_unit_test(moments__are_the_same_however_the_rows_come),
        cmocka_unit_test(inputs_that_are_not_finite__are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
