/* Layers of a model that trains, with the numbers that their codes stand for: quantisation-aware training. The scales are found as
 * the codes of the result will have them: those of weights as src/train/weight_codes.c, those of dynamic activations by
 * quantize_dynamic, those of static ones are the states that evaluation reads. While they train these follow what layers read. */
#include <float.h>

#include "pass/quantize_layers.h"

enum { STEPS = 255 };
static const double follow = 0.01; /* the share of a batch in a range that is observed */

static ht_val fake(ht_graph *g, ht_val x, ht_val scale, ht_val zero, unsigned shared, int64_t low, int64_t high)
{
    int64_t axes[HT_MAX_RANK];
    int count = 0, rank = ht_type_of(g, x)->rank;
    for (int i = 0; i < rank; i++)
        if (shared >> i & 1) axes[count++] = i;
    return ht_emit1(g, "fake_quantize", NULL, HT_VALS(x, scale, zero),
                    HT_ATTRS(HT_INTS("axes", count, axes), HT_INT("low", low), HT_INT("high", high)));
}

ht_val ht_fake_weight(ht_graph *g, ht_val w, const ht_quantize_group *how, int axis)
{
    int64_t last = (INT64_C(1) << (how->weights.bits - 1)) - 1, axes[HT_MAX_RANK];
    int rank = ht_type_of(g, w)->rank, count = 0;
    if (how->weights.granularity == HT_PER_GROUP || !how->weights.symmetric) {
        ht_graph_fail(g, HT_ENOTSUP, "quantize: '%s' has scales for groups or zero points, which training has not",
                      ht_value_of(g, w)->name);
        return HT_NONE;
    }
    unsigned shared = 0;
    for (int i = 0; i < rank; i++) {
        if (how->weights.granularity == HT_PER_CHANNEL && i == axis) continue;
        shared |= 1u << i;
        axes[count++] = i;
    }
    ht_val most = ht_reduce_max(g, ht_abs(g, w), count, axes, false);
    ht_val scale = ht_div(g, most, ht_fill_like(g, most, (double)last));
    scale = ht_max(g, scale, ht_fill_like(g, most, FLT_MIN));
    return fake(g, w, scale, HT_NONE, shared, -last, last);
}

ht_val ht_fake_activation(ht_graph *g, ht_val x, const ht_quantize_group *how, unsigned shared, const ht_val range[2])
{
    bool symmetric = how->activations.symmetric;
    return fake(g, x, range[0], symmetric ? HT_NONE : range[1], shared, symmetric ? -128 : 0, symmetric ? 127 : 255);
}

/* ---- ranges that are observed ---- */

static ht_val mix(ht_graph *g, ht_val known, ht_val old, ht_val batch)
{
    ht_val mixed = ht_add(g, ht_scale(g, old, 1 - follow), ht_scale(g, batch, follow));
    return ht_select(g, known, mixed, batch);
}

/* The ends of a range: code 0 and code 255. */
static void find_ends(ht_graph *g, ht_val scale, ht_val zero, ht_val ends[2])
{
    ht_val steps = ht_cast(g, zero, HT_F32);
    ends[0] = ht_neg(g, ht_mul(g, steps, scale));
    ends[1] = ht_add(g, ends[0], ht_scale(g, scale, STEPS));
}

void ht_observe_range(ht_graph *g, const ht_val state[2], const ht_val batch[2], ht_val now[2])
{
    ht_val known = ht_gt(g, state[0], ht_fill_like(g, state[0], 0)), least = ht_fill_like(g, state[0], FLT_MIN);
    if (!state[1].id) {
        now[0] = ht_max(g, mix(g, known, state[0], batch[0]), least);
        now[1] = HT_NONE;
    } else {
        ht_val old[2], seen[2], ends[2];
        find_ends(g, state[0], state[1], old);
        find_ends(g, batch[0], batch[1], seen);
        for (int i = 0; i < 2; i++) ends[i] = mix(g, known, old[i], seen[i]);
        now[0] = ht_max(g, ht_scale(g, ht_sub(g, ends[1], ends[0]), 1.0 / STEPS), least);
        ht_val zero =
            ht_add_scalar(g, ht_div(g, ht_neg(g, ends[0]), now[0]), 0.5); /* cast cuts what is behind the point */
        now[1] = ht_cast(g, ht_clip(g, zero, 0, STEPS), HT_I32);
        ht_store(g, state[1], now[1]);
    }
    ht_store(g, state[0], now[0]);
}
