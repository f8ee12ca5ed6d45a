#include "compress/group_codes.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { COLUMNS = 16 }; /* that a thread takes at a time */

/* ---- memory ---- */

static ht_status allocate(ht_nbits_codes *out, ht_context *ctx, ht_nbits_format format, int64_t k, int64_t n)
{
    int64_t groups = ht_nbits_groups(k, format.group);
    *out = (ht_nbits_codes){.format = format,
                            .k = k,
                            .n = n,
                            .groups = groups,
                            .codes = calloc((size_t)(k * n) + 1, 1),
                            .scale = calloc((size_t)(groups * n) + 1, sizeof(float)),
                            .zero = calloc((size_t)(groups * n) + 1, 1),
                            .a_scale = calloc((size_t)k + 1, sizeof(float))};
    if (!out->codes || !out->scale || !out->zero || !out->a_scale)
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for codes of %" PRId64 " x %" PRId64 " weights", k, n);
    for (int64_t i = 0; i < k; i++) out->a_scale[i] = 1;
    return HT_OK;
}

void ht_group_codes_free(ht_nbits_codes *codes)
{
    free(codes->codes);
    free(codes->scale);
    free(codes->zero);
    free(codes->a_scale);
    *codes = (ht_nbits_codes){0};
}

ht_status ht_group_codes_make(ht_nbits_codes *out, ht_context *ctx, ht_code_method method, ht_nbits_format format,
                              const float *w, int64_t k, int64_t n, const ht_input_moments *inputs)
{
    HT_TRY(allocate(out, ctx, format, k, n));
    if (method == HT_CODES_GPTQ) return ht_group_codes_gptq(out, ctx, w, inputs);
    if (method == HT_CODES_AWQ) return ht_group_codes_awq(out, ctx, w, inputs);
    ht_group_codes_round(out, w, NULL, ctx->pool);
    return HT_OK;
}

/* ---- round to nearest ---- */

typedef struct rounding {
    ht_nbits_codes *codes;
    const float *w;
    const double *importance;
} rounding;

static void round_columns(void *arg, int64_t tile)
{
    const rounding *r = arg;
    int64_t n = r->codes->n, first = tile * COLUMNS;
    ht_nbits_round(r->codes, r->w, r->importance, first, first + COLUMNS < n ? first + COLUMNS : n);
}

void ht_group_codes_round(ht_nbits_codes *codes, const float *w, const double *importance, ht_pool *pool)
{
    rounding r = {codes, w, importance};
    ht_parallel(pool, (codes->n + COLUMNS - 1) / COLUMNS, round_columns, &r);
}

/* ---- errors of the layer's output ---- */

typedef struct output_error {
    const ht_nbits_codes *codes; /* NULL: the square of the output itself */
    const float *w;
    const ht_input_moments *inputs;
    int64_t step, n;
    double *columns; /* by tile: d, [k, COLUMNS] */
    double *sums;    /* by tile */
} output_error;

/* d' (x' x) d over a few columns d. */
static void square_columns(void *arg, int64_t tile)
{
    const output_error *e = arg;
    int64_t k = e->inputs->k;
    double *d = e->columns + tile * k * COLUMNS, sum = 0;
    for (int c = 0; c < COLUMNS; c++) {
        int64_t j = (tile * COLUMNS + c) * e->step;
        for (int64_t i = 0; i < k && j < e->n; i++) {
            double w = (double)e->w[i * e->n + j];
            d[i * COLUMNS + c] = e->codes ? (double)ht_nbits_value(e->codes, i, j) - w : w;
        }
    }
    for (int64_t i = 0; i < k; i++) {
        double line[COLUMNS] = {0};
        const double *products = e->inputs->products + i * k;
        for (int64_t t = 0; t < k; t++)
            for (int c = 0; c < COLUMNS; c++) line[c] += products[t] * d[t * COLUMNS + c];
        for (int c = 0; c < COLUMNS; c++) sum += line[c] * d[i * COLUMNS + c];
    }
    e->sums[tile] = sum;
}

static ht_status square_error(double *out, ht_context *ctx, output_error *e)
{
    int64_t columns = (e->n + e->step - 1) / e->step, tiles = (columns + COLUMNS - 1) / COLUMNS;
    e->sums = calloc((size_t)tiles + 1, sizeof *e->sums);
    e->columns = calloc((size_t)(tiles * COLUMNS * e->inputs->k) + 1, sizeof *e->columns);
    ht_status status = HT_OK;
    *out = 0;
    if (e->sums && e->columns)
        ht_parallel(ctx->pool, tiles, square_columns, e);
    else
        status = ht_fail(ctx, HT_ENOMEM, "out of memory for errors of %" PRId64 " weights", e->n * e->inputs->k);
    for (int64_t i = 0; status == HT_OK && i < tiles; i++) *out += e->sums[i];
    if (*out < 0) *out = 0;
    free(e->sums);
    free(e->columns);
    return status;
}

ht_status ht_group_codes_square_error(double *out, ht_context *ctx, const ht_nbits_codes *codes, const float *w,
                                      const ht_input_moments *inputs, int64_t step)
{
    output_error e = {.codes = codes, .w = w, .inputs = inputs, .step = step, .n = codes->n};
    return square_error(out, ctx, &e);
}

ht_status ht_group_codes_error(double *out, ht_context *ctx, const ht_nbits_codes *codes, const float *w,
                               const ht_input_moments *inputs)
{
    output_error whole = {.w = w, .inputs = inputs, .step = 1, .n = codes->n};
    double error, all;
    HT_TRY(ht_group_codes_square_error(&error, ctx, codes, w, inputs, 1));
    HT_TRY(square_error(&all, ctx, &whole));
    *out = all > 0 ? sqrt(error / all) : error > 0 ? INFINITY : 0;
    return HT_OK;
}
