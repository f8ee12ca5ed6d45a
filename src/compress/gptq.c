/* GPTQ: inputs of the layer are rounded one after the other, and what rounding one of them changes in the output on the
 * calibration data is made up for, as far as it goes, by those that are still to come. With H = x' x, damped, and R upper
 * triangular, R' R = H⁻¹: the error of input i, (w_i - w'_i) / R_ii, times R_ij is taken from every later input j. Inputs come in
 * the order of their squares, largest first; scales are fitted before, to the weights as they were. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/group_codes.h"

enum {
    COLUMNS = 32, /* that a thread takes at a time */
    BLOCK = 64,   /* inputs whose errors are passed on together */
};
static const double damping = 0.01; /* of the mean square of an input */

/* ---- R ---- */

typedef struct factor {
    double *m;     /* [k, k]; its upper triangle, diagonal included, counts */
    double *block; /* [BLOCK, k]: columns at hand as rows */
    int64_t k, first, end;
} factor;

/* What the columns [first, end) take from row i, left of them. */
static void subtract_block(void *arg, int64_t i)
{
    const factor *f = arg;
    double *row = f->m + i * f->k;
    for (int64_t b = 0; b < f->end - f->first; b++) {
        const double *column = f->block + b * f->k;
        double times = column[i];
        for (int64_t t = i; t < f->first; t++) row[t] -= times * column[t];
    }
}

/* m = U U', U upper triangular, in its place: columns from the last to the first, a block of them at a time. */
static bool factorize(factor *f, ht_pool *pool)
{
    int64_t k = f->k;
    for (f->end = k; f->end > 0; f->end = f->first) {
        f->first = f->end > BLOCK ? f->end - BLOCK : 0;
        for (int64_t j = f->end - 1; j >= f->first; j--) {
            double *column = f->block + (j - f->first) * k, pivot = f->m[j * k + j];
            if (!(pivot > 0) || !isfinite(pivot)) return false;
            for (int64_t i = 0; i <= j; i++) column[i] = f->m[i * k + j] / sqrt(pivot);
            for (int64_t i = 0; i <= j; i++) f->m[i * k + j] = column[i];
            for (int64_t i = 0; i < j; i++)
                for (int64_t t = i > f->first ? i : f->first; t < j; t++) f->m[i * k + t] -= column[i] * column[t];
        }
        ht_parallel(pool, f->first, subtract_block, f);
    }
    return true;
}

/* U⁻¹ in the place of U, row by row from the last. */
static void invert(factor *f)
{
    int64_t k = f->k;
    for (int64_t i = k - 1; i >= 0; i--) {
        double *row = f->m + i * k, *u = f->block, inverse = 1 / row[i];
        for (int64_t t = i + 1; t < k; t++) u[t] = -row[t] * inverse;
        memset(row + i, 0, (size_t)(k - i) * sizeof *row);
        row[i] = inverse;
        for (int64_t t = i + 1; t < k; t++)
            for (int64_t j = t; j < k; j++) row[j] += u[t] * f->m[t * k + j];
    }
}

static ht_status make_r(factor *f, ht_context *ctx, const ht_input_moments *inputs, const int64_t *order)
{
    int64_t k = f->k;
    double mean = 0;
    for (int64_t i = 0; i < k; i++) mean += inputs->products[i * k + i] / (double)k;
    for (int64_t i = 0; i < k; i++) {
        for (int64_t j = i; j < k; j++) f->m[i * k + j] = inputs->products[order[i] * k + order[j]];
        f->m[i * k + i] += mean > 0 ? damping * mean : 1;
    }
    if (!factorize(f, ctx->pool))
        HT_FAIL(ctx, HT_EINVAL, "GPTQ: the products of %" PRId64 " inputs of a layer cannot be factorised", k);
    invert(f);
    return HT_OK;
}

/* ---- rounding ---- */

typedef struct feedback {
    ht_nbits_codes *codes;
    const float *w;
    const double *r, *importance;
    const int64_t *order;
    float *left; /* by tile: [k, COLUMNS], in order: weights less what was passed on to them */
} feedback;

/* Input i: its codes, and its error into `error`. */
static void round_input(const feedback *f, int64_t i, int64_t column, int64_t columns, const float *left, float *error)
{
    ht_nbits_codes *codes = f->codes;
    int64_t row = f->order[i], k = codes->k;
    memset(error, 0, COLUMNS * sizeof *error);
    for (int64_t c = 0; c < columns; c++) {
        float value;
        codes->codes[row * codes->n + column + c] =
            ht_nbits_code(codes, row / codes->format.group, column + c, left[c], &value);
        error[c] = (left[c] - value) / (float)f->r[i * k + i];
    }
}

static void pass_on(const feedback *f, float *left, int64_t i, const float *error, int64_t first, int64_t end)
{
    const double *r = f->r + i * f->codes->k;
    for (int64_t j = first; j < end; j++) {
        float share = (float)r[j], *to = left + j * COLUMNS;
        for (int c = 0; c < COLUMNS; c++) to[c] -= share * error[c];
    }
}

static void round_columns(void *arg, int64_t tile)
{
    const feedback *f = arg;
    ht_nbits_codes *codes = f->codes;
    int64_t k = codes->k, column = tile * COLUMNS, columns = codes->n - column < COLUMNS ? codes->n - column : COLUMNS;
    float *left = f->left + column * k, error[BLOCK][COLUMNS];
    for (int64_t group = 0; group < codes->groups; group++)
        for (int64_t c = 0; c < columns; c++) ht_nbits_fit(codes, f->w, group, column + c, f->importance);
    for (int64_t i = 0; i < k; i++)
        for (int64_t c = 0; c < columns; c++) left[i * COLUMNS + c] = f->w[f->order[i] * codes->n + column + c];
    for (int64_t first = 0; first < k; first += BLOCK) {
        int64_t end = first + BLOCK < k ? first + BLOCK : k;
        for (int64_t i = first; i < end; i++) {
            round_input(f, i, column, columns, left + i * COLUMNS, error[i - first]);
            pass_on(f, left, i, error[i - first], i + 1, end);
        }
        for (int64_t i = first; i < end; i++) pass_on(f, left, i, error[i - first], end, k);
    }
}

/* ---- the order ---- */

typedef struct ranked {
    double square;
    int64_t input;
} ranked;

static int by_square(const void *a, const void *b)
{
    const ranked *x = a, *y = b;
    if (x->square != y->square) return x->square > y->square ? -1 : 1;
    return x->input < y->input ? -1 : x->input > y->input;
}

static bool order_inputs(const ht_input_moments *inputs, ht_arena *arena, int64_t *order, double *importance)
{
    int64_t k = inputs->k;
    ranked *all = HT_NEW(arena, ranked, k);
    if (!all) return false;
    for (int64_t i = 0; i < k; i++) all[i] = (ranked){importance[i] = inputs->products[i * k + i], i};
    qsort(all, (size_t)k, sizeof *all, by_square);
    for (int64_t i = 0; i < k; i++) order[i] = all[i].input;
    return true;
}

static ht_status quantize(ht_nbits_codes *codes, ht_context *ctx, const float *w, const ht_input_moments *inputs,
                          ht_arena *arena)
{
    int64_t k = codes->k, tiles = (codes->n + COLUMNS - 1) / COLUMNS;
    factor r = {.m = HT_NEW(arena, double, k *k), .block = HT_NEW(arena, double, BLOCK *k), .k = k};
    int64_t *order = HT_NEW(arena, int64_t, k);
    double *importance = HT_NEW(arena, double, k);
    feedback f = {.codes = codes, .w = w, .r = r.m, .importance = importance, .order = order};
    f.left = HT_NEW(arena, float, tiles *COLUMNS *k);
    if (!r.m || !r.block || !order || !importance || !f.left || !order_inputs(inputs, arena, order, importance))
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for GPTQ of %" PRId64 " x %" PRId64 " weights", k, codes->n);
    HT_TRY(make_r(&r, ctx, inputs, order));
    ht_parallel(ctx->pool, tiles, round_columns, &f);
    return HT_OK;
}

ht_status ht_group_codes_gptq(ht_nbits_codes *codes, ht_context *ctx, const float *w, const ht_input_moments *inputs)
{
    ht_arena *arena = ht_arena_create();
    ht_status status = arena ? quantize(codes, ctx, w, inputs, arena) : ht_fail(ctx, HT_ENOMEM, "out of memory");
    ht_arena_free(arena);
    return status;
}
