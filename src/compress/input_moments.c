#include "compress/input_moments.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

enum { STRIP = 16 }; /* rows of the matrix of products that a thread makes at a time */

ht_status ht_input_moments_create(ht_input_moments *out, ht_context *ctx, int64_t k)
{
    *out = (ht_input_moments){.k = k,
                              .products = calloc((size_t)(k * k) + 1, sizeof(double)),
                              .magnitude = calloc((size_t)k + 1, sizeof(double))};
    if (out->products && out->magnitude) return HT_OK;
    ht_input_moments_free(out);
    HT_FAIL(ctx, HT_ENOMEM, "out of memory for products of %" PRId64 " inputs of a layer", k);
}

void ht_input_moments_free(ht_input_moments *moments)
{
    free(moments->products);
    free(moments->magnitude);
    *moments = (ht_input_moments){0};
}

typedef struct addition {
    ht_input_moments *moments;
    const float *x;
    int64_t rows;
} addition;

/* Rows [first, first + STRIP) of the products, up to the diagonal. */
static void add_strip(void *arg, int64_t strip)
{
    const addition *a = arg;
    int64_t k = a->moments->k, first = strip * STRIP, end = first + STRIP < k ? first + STRIP : k;
    for (int64_t row = 0; row < a->rows; row++) {
        const float *x = a->x + row * k;
        for (int64_t i = first; i < end; i++) {
            double *to = a->moments->products + i * k, factor = x[i];
            for (int64_t j = 0; j <= i; j++) to[j] += factor * x[j];
            a->moments->magnitude[i] += fabs(factor);
        }
    }
    for (int64_t i = first; i < end; i++)
        for (int64_t j = 0; j < i; j++) a->moments->products[j * k + i] = a->moments->products[i * k + j];
}

ht_status ht_input_moments_add(ht_input_moments *moments, ht_context *ctx, const float *x, int64_t rows)
{
    addition a = {moments, x, rows};
    for (int64_t i = 0; i < rows * moments->k; i++)
        if (!isfinite(x[i]))
            HT_FAIL(ctx, HT_EINVAL, "input %" PRId64 " of a layer is %g on the calibration data", i % moments->k,
                    (double)x[i]);
    ht_parallel(ctx->pool, (moments->k + STRIP - 1) / STRIP, add_strip, &a);
    moments->rows += rows;
    return HT_OK;
}
