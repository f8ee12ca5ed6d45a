/* AWQ: weights of inputs that are large on the calibration data are multiplied before rounding, and what the layer reads there
 * is divided by the same (a_scale). The factor of input i is magnitude_i ^ α; α is the one with the smallest error of the
 * output, 0 (round to nearest) included. Then ranges get narrower, group by group, where that makes the error smaller. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "compress/group_codes.h"

enum {
    TRIES = 20,           /* α = 0, 1 / TRIES, .. 1 */
    SEARCH_COLUMNS = 256, /* whose error chooses it, about */
};

typedef struct search {
    ht_nbits_codes *codes;
    ht_context *ctx;
    const float *w;
    const ht_input_moments *inputs;
    float *scaled;      /* [k, n]: w times the factors */
    double *importance; /* [k]: of an error of a scaled weight */
} search;

/* The factors of α: their largest times their smallest is 1. */
static void set_factors(search *s, double alpha)
{
    int64_t k = s->codes->k;
    double least = INFINITY, most = 0;
    for (int64_t i = 0; i < k; i++) {
        double magnitude = s->inputs->magnitude[i];
        if (magnitude > 0 && magnitude < least) least = magnitude;
        if (magnitude > most) most = magnitude;
    }
    for (int64_t i = 0; i < k; i++) {
        double magnitude = s->inputs->magnitude[i] > 0 ? s->inputs->magnitude[i] : least;
        double factor = most > 0 ? pow(magnitude / sqrt(least * most), alpha) : 1;
        s->codes->a_scale[i] = (float)(1 / factor);
        factor = 1 / (double)s->codes->a_scale[i];
        s->importance[i] = s->inputs->products[i * k + i] / (factor * factor);
        for (int64_t j = 0; j < s->codes->n; j++)
            s->scaled[i * s->codes->n + j] = (float)((double)s->w[i * s->codes->n + j] * factor);
    }
}

static ht_status try_factors(const search *s, const double *importance, int64_t step, double *error)
{
    ht_group_codes_round(s->codes, s->scaled, importance, s->ctx->pool);
    return ht_group_codes_square_error(error, s->ctx, s->codes, s->w, s->inputs, step);
}

static ht_status quantize(search *s)
{
    int64_t step = s->codes->n / SEARCH_COLUMNS + 1;
    double least = INFINITY, best = 0, error, narrow, wide;
    for (int i = 0; i <= TRIES; i++) {
        set_factors(s, (double)i / TRIES);
        HT_TRY(try_factors(s, NULL, step, &error));
        if (error >= least) continue;
        least = error;
        best = (double)i / TRIES;
    }
    set_factors(s, best);
    HT_TRY(try_factors(s, NULL, 1, &wide));
    HT_TRY(try_factors(s, s->importance, 1, &narrow));
    return narrow <= wide ? HT_OK : try_factors(s, NULL, 1, &wide);
}

ht_status ht_group_codes_awq(ht_nbits_codes *codes, ht_context *ctx, const float *w, const ht_input_moments *inputs)
{
    ht_arena *arena = ht_arena_create();
    search s = {.codes = codes, .ctx = ctx, .w = w, .inputs = inputs};
    s.scaled = arena ? HT_NEW(arena, float, codes->k * codes->n) : NULL;
    s.importance = arena ? HT_NEW(arena, double, codes->k) : NULL;
    ht_status status =
        s.scaled && s.importance
            ? quantize(&s)
            : ht_fail(ctx, HT_ENOMEM, "out of memory for AWQ of %" PRId64 " x %" PRId64 " weights", codes->k, codes->n);
    ht_arena_free(arena);
    return status;
}
