/* amax_step: the next histories and scales of tensors in f8 (delayed scaling), for S tensors at once. Inputs: the largest
 * magnitudes of the step at hand, f32[S]; those of the last N steps, f32[S,N], newest first; the scales, f32[S].
 * Results: the next histories and scales. `top` is the exponent of the type's largest number: 8 for f8e4m3, 15 for
 * f8e5m2; `margin` leaves so many powers of two above the largest magnitude. A magnitude of 0, inf or NaN tells nothing:
 * history and scale stay. */
#include "op/op.h"

#include <inttypes.h>

enum { MOST_MARGIN = 16 };

/* The scale with the margin: of the largest magnitude, which tells something. */
static float scale_of(const ht_amax_rule *rule, float largest)
{
    float scale = ht_scale_of_amax(rule->f8, largest) * (float)(1 << rule->margin);
    return scale < 0x1p126f ? scale : 0x1p126f;
}

float ht_amax_next(const ht_amax_rule *rule, const float *history, float scale, float amax, float *next)
{
    bool tells = ht_scale_of_amax(rule->f8, amax) > 0;
    float largest = 0;
    for (int64_t i = 0; i < rule->history; i++) {
        next[i] = !tells ? history[i] : i == 0 ? amax : history[i - 1];
        if (next[i] > largest && isfinite(next[i])) largest = next[i];
    }
    return tells ? scale_of(rule, largest) : scale;
}

ht_amax_rule ht_amax_rule_of(const ht_call *call)
{
    return (ht_amax_rule){
        .f8 = ht_call_int(call, "top") == 8 ? HT_F8E4M3 : HT_F8E5M2,
        .margin = (int)ht_call_int(call, "margin"),
        .history = call->in[1]->dim[1],
    };
}

static ht_status amax_step_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    static const char *const names[] = {"amax", "history", "scale"};
    ht_type_text text;
    const ht_type *amax = call->in[0], *history = call->in[1], *scale = call->in[2];
    for (size_t i = 0; i < 3; i++)
        if (call->in[i]->dtype != HT_F32 || call->in[i]->rank != (i == 1 ? 2 : 1))
            HT_FAIL(ctx, HT_EDTYPE, "%s is %s, not f32[%s]", names[i], ht_type_str(call->in[i], &text),
                    i == 1 ? "S,N" : "S");
    if (amax->dim[0] != history->dim[0] || amax->dim[0] != scale->dim[0])
        HT_FAIL(ctx, HT_ESHAPE, "%" PRId64 " magnitudes, %" PRId64 " histories and %" PRId64 " scales", amax->dim[0],
                history->dim[0], scale->dim[0]);
    if (history->dim[1] < 1) HT_FAIL(ctx, HT_ESHAPE, "the histories are empty");
    int64_t top = ht_call_int(call, "top");
    if (top != 8 && top != 15) HT_FAIL(ctx, HT_EINVAL, "top is %" PRId64 ", not 8 or 15", top);
    int64_t margin = ht_call_int(call, "margin");
    if (margin < 0 || margin > MOST_MARGIN)
        HT_FAIL(ctx, HT_EINVAL, "margin is %" PRId64 ", not a number from 0 to %d", margin, MOST_MARGIN);
    out[0] = *history;
    out[1] = *scale;
    return HT_OK;
}

HT_COST_PER_OUT(amax_step_cost, 1)

static void amax_step_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_amax_rule rule = ht_amax_rule_of(call);
    for (int64_t s = 0; s < call->in[0]->dim[0]; s++) {
        const double *history = in[1] + s * rule.history, amax = in[0][s];
        double *next = out[0] + s * rule.history, largest = 0;
        bool tells = amax > 0 && isfinite(amax);
        for (int64_t i = 0; i < rule.history; i++) {
            next[i] = !tells ? history[i] : i == 0 ? amax : history[i - 1];
            if (next[i] > largest && isfinite(next[i])) largest = next[i];
        }
        out[1][s] = tells ? (double)scale_of(&rule, (float)largest) : in[2][s];
    }
}

static const ht_attr_def amax_step_attrs[] = {HT_DEF_INT("top", 8), HT_DEF_INT("margin", 0), HT_DEF_END};

static const char *const amax_step_samples[] = {
    "(f32[3] 0..4, f32[3,4] 0..4, f32[3] 0.5..0.5)",
    "(f32[5] 0..1e-5, f32[5,1] 0..1, f32[5] 2..2) top=15",
    "(f32[300] 0..3, f32[300,16] 0..3, f32[300] 0..0) top=15 margin=4",
    "(f32[2] 0..0, f32[2,3] 0..1, f32[2] 1..1)",
    "(f32[0], f32[0,3], f32[0])",
    NULL,
};

const ht_op ht_op_amax_step = {
    .size = sizeof(ht_op),
    .name = "amax_step",
    .prec = HT_PREC_EXACT,
    .min_in = 3,
    .max_in = 3,
    .n_out = 2,
    .attrs = amax_step_attrs,
    .infer = amax_step_infer,
    .cost = amax_step_cost,
    .no_grad = "the end of a step is not differentiated",
    .ref = amax_step_ref,
    .samples = amax_step_samples,
};
