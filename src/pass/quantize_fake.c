/* Layers of a model that trains, with the numbers that their codes stand for: quantisation-aware training. The scales are found as
 * the codes of the result will have them: those of weights as src/train/weight_codes.c, those of dynamic activations by
 * quantize_dynamic, those of static ones from states of which evaluation's are made (src/train/range_tensors.c). While they train
 * these follow what layers read, or are learned. Layers in f8 compute so in evaluation, too. */
#include <float.h>

#include "pass/quantize_layers.h"

enum { STEPS = 255, LAST_I8 = 127, LAST_F8 = 448 };
static const double follow = 0.01; /* the share of a batch in a range that is observed */

static ht_val fake(ht_graph *g, ht_val x, ht_val scale, ht_val zero, unsigned shared, int64_t low, int64_t high,
                   bool learned)
{
    int64_t axes[HT_MAX_RANK];
    int count = 0, rank = ht_type_of(g, x)->rank;
    for (int i = 0; i < rank; i++)
        if (shared >> i & 1) axes[count++] = i;
    return ht_emit1(
        g, "fake_quantize", NULL, HT_VALS(x, scale, zero),
        HT_ATTRS(HT_INTS("axes", count, axes), HT_INT("low", low), HT_INT("high", high), HT_INT("learned", learned)));
}

/* ---- weights ---- */

static ht_val above_zero(ht_graph *g, ht_val scale)
{
    return ht_max(g, scale, ht_fill_like(g, scale, FLT_MIN));
}

/* The nearest numbers of f8, in units of the scale. Gradients pass. */
static ht_val fake_f8(ht_graph *g, ht_val x, ht_val scale)
{
    ht_val units = ht_clip(g, ht_div(g, x, scale), -LAST_F8, LAST_F8);
    ht_val codes = ht_cast(g, ht_cast(g, units, HT_F8E4M3), ht_type_of(g, x)->dtype);
    return ht_emit1(g, "straight_through", NULL, HT_VALS(ht_mul(g, codes, scale), x), HT_NO_ATTRS);
}

/* 1 and -1, or those and 0, by the scale that their magnitudes give. The scale is a mean, so gradients that stop beyond it would
 * leave many weights without any: all pass. */
static ht_val fake_signs(ht_graph *g, ht_val w, ht_code_kind kind, int count, const int64_t *axes)
{
    ht_val magnitude = ht_abs(g, w), mean = ht_mean(g, magnitude, count, axes, true), zero = ht_fill_like(g, w, 0);
    ht_val signs = ht_select(g, ht_ge(g, w, zero), ht_fill_like(g, w, 1), ht_fill_like(g, w, -1)), scale = mean;
    if (kind == HT_CODES_TERNARY) {
        ht_val large = ht_gt(g, magnitude, ht_scale(g, mean, HT_TERNARY_SHARE));
        ht_val number = ht_sum(g, ht_cast(g, large, ht_type_of(g, w)->dtype), count, axes, true);
        ht_val sum = ht_sum(g, ht_select(g, large, magnitude, zero), count, axes, true);
        signs = ht_select(g, large, signs, zero);
        scale = ht_div(g, sum, ht_max(g, number, ht_fill_like(g, number, 1)));
    }
    ht_val rounded = ht_mul(g, signs, above_zero(g, scale));
    return ht_emit1(g, "straight_through", NULL, HT_VALS(rounded, w), HT_NO_ATTRS);
}

ht_val ht_fake_weight(ht_graph *g, ht_val w, const ht_quantize_group *how, int axis)
{
    const ht_code_format *format = ht_code_format_of(how->weights.kind, how->weights.bits);
    int64_t axes[HT_MAX_RANK];
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
    if (format->kind == HT_CODES_BINARY || format->kind == HT_CODES_TERNARY)
        return fake_signs(g, w, format->kind, count, axes);
    bool floats = format->kind == HT_CODES_FP8;
    ht_val most = ht_reduce_max(g, ht_abs(g, w), count, axes, floats);
    ht_val scale = above_zero(g, ht_div(g, most, ht_fill_like(g, most, format->last)));
    if (floats) return fake_f8(g, w, scale);
    return fake(g, w, scale, HT_NONE, shared, -(int64_t)format->last, (int64_t)format->last, false);
}

/* ---- activations ---- */

ht_val ht_fake_activation(ht_graph *g, ht_val x, const ht_quantize_group *how, unsigned shared, const ht_val range[2])
{
    bool symmetric = how->activations.symmetric, learned = how->activations.range == HT_RANGE_LEARNED;
    return fake(g, x, range[0], symmetric ? HT_NONE : range[1], shared, symmetric ? -128 : 0,
                symmetric ? LAST_I8 : STEPS, learned);
}

ht_val ht_fake_f8_activation(ht_graph *g, ht_val x, unsigned shared, ht_val i8_scale)
{
    int64_t axes[HT_MAX_RANK];
    int count = 0, rank = ht_type_of(g, x)->rank;
    for (int i = 0; i < rank; i++)
        if (shared >> i & 1) axes[count++] = i;
    if (i8_scale.id) return fake_f8(g, x, ht_scale(g, i8_scale, (double)LAST_I8 / LAST_F8));
    ht_val most = ht_reduce_max(g, ht_abs(g, x), count, axes, true);
    return fake_f8(g, x, above_zero(g, ht_scale(g, most, 1.0 / LAST_F8)));
}

/* ---- ranges that are observed ---- */

static ht_val mix(ht_graph *g, ht_val known, ht_val old, ht_val batch)
{
    ht_val mixed = ht_add(g, ht_scale(g, old, 1 - follow), ht_scale(g, batch, follow));
    return ht_select(g, known, mixed, batch);
}

/* The lower end of a range: code 0. */
static ht_val low_of(ht_graph *g, const ht_val batch[2])
{
    return ht_neg(g, ht_mul(g, ht_cast(g, batch[1], HT_F32), batch[0]));
}

static ht_val zero_of(ht_graph *g, ht_val low, ht_val scale)
{
    ht_val zero = ht_add_scalar(g, ht_div(g, ht_neg(g, low), scale), 0.5); /* cast cuts what is behind the point */
    return ht_cast(g, ht_clip(g, zero, 0, STEPS), HT_I32);
}

/* The same number, behind which nothing is differentiated. */
static ht_val hold(ht_graph *g, ht_val x)
{
    return ht_emit1(g, "straight_through", NULL, HT_VALS(x, ht_fill_like(g, x, 0)), HT_NO_ATTRS);
}

/* The first batch begins a range. One that is learned stays what it was then, and its gain moves. The scale is the span of a range by
 * a constant, so means of scales and of lower ends, of batches or of ranks, are means of both ends. */
ht_range_states ht_observe_range(ht_graph *g, const ht_range_states *state, const ht_val batch[2])
{
    ht_range_states now = {.gain = state->gain};
    bool learned = state->gain.id;
    ht_val known = ht_gt(g, state->scale, ht_fill_like(g, state->scale, 0));
    now.scale = learned ? ht_select(g, known, state->scale, batch[0]) : mix(g, known, state->scale, batch[0]);
    now.scale = above_zero(g, now.scale);
    if (state->low.id) {
        ht_val low = low_of(g, batch);
        now.low = learned ? ht_select(g, known, state->low, low) : mix(g, known, state->low, low);
        ht_store(g, state->low, now.low);
    }
    ht_store(g, state->scale, now.scale);
    if (learned) now.scale = hold(g, now.scale);
    return now;
}

void ht_range_of(ht_graph *g, const ht_range_states *state, ht_val out[2])
{
    ht_val scale = above_zero(g, state->scale);
    out[0] = state->gain.id ? above_zero(g, ht_mul(g, scale, state->gain)) : scale;
    out[1] = state->low.id ? zero_of(g, state->low, scale) : HT_NONE;
}
