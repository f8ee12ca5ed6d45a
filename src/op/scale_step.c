/* scale_step: the dynamic loss scaler, by DeepSpeed's rule for its ZeRO optimizers. All operands are scalars. Inputs:
 * whether the step's gradients were finite; then the state. The results are the next value of each:
 *      scale       of the loss; f32, or f64 with values that f32 represents
 *      hysteresis  overflows until the scale is halved, that one included
 *      iteration   steps so far
 *      last        the iteration of the last overflow, -1 before the first
 *      skips       overflows in a row
 *      fatal       training cannot continue: from then on nothing changes
 * An overflow halves the scale, down to `min`, once hysteresis is used up; at `min` it is then fatal. The scale doubles
 * after each `window` steps without overflow, the first time one step later; that resets hysteresis, and with
 * `consecutive` every step without overflow does. A fixed scale never changes, and `most_skips` overflows in a row (0:
 * no limit) are fatal. */
#include "op/op.h"

#include <float.h>
#include <inttypes.h>

enum { FINITE, SCALE, HYSTERESIS, ITERATION, LAST, SKIPS, FATAL, INPUTS };

ht_scale_rule ht_scale_rule_of(const ht_call *call)
{
    return (ht_scale_rule){
        .dynamic = ht_call_int(call, "dynamic") != 0,
        .consecutive = ht_call_int(call, "consecutive") != 0,
        .window = ht_call_int(call, "window"),
        .hysteresis = ht_call_int(call, "hysteresis"),
        .most_skips = ht_call_int(call, "most_skips"),
        .min = (float)ht_call_float(call, "min"),
    };
}

static int64_t one_more(int64_t count)
{
    return count < INT64_MAX ? count + 1 : count;
}

static void overflow(const ht_scale_rule *rule, ht_scale_state *s)
{
    s->last = s->iteration;
    s->skips = one_more(s->skips);
    if (!rule->dynamic)
        s->fatal = rule->most_skips > 0 && s->skips >= rule->most_skips;
    else if (rule->hysteresis > 1 && s->hysteresis > 1)
        s->hysteresis--;
    else if (s->scale <= rule->min)
        s->fatal = true;
    else
        s->scale = s->scale / 2 > rule->min ? s->scale / 2 : rule->min;
}

static void clean(const ht_scale_rule *rule, ht_scale_state *s)
{
    /* Both may be anything that a file held: their distance is taken where it cannot overflow. */
    uint64_t since = s->iteration > s->last ? (uint64_t)s->iteration - (uint64_t)s->last - 1 : 0;
    s->skips = 0;
    if (!rule->dynamic) return;
    if (rule->consecutive) s->hysteresis = rule->hysteresis;
    if (since == 0 || since % (uint64_t)rule->window != 0) return;
    if (s->scale <= FLT_MAX / 2) s->scale *= 2;
    s->hysteresis = rule->hysteresis;
}

ht_scale_state ht_scale_next(const ht_scale_rule *rule, ht_scale_state now, bool finite)
{
    if (now.fatal) return now;
    if (finite)
        clean(rule, &now);
    else
        overflow(rule, &now);
    now.iteration = one_more(now.iteration);
    return now;
}

static ht_status scale_step_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    static const ht_dtype dtypes[INPUTS] = {HT_BOOL, HT_F32, HT_I64, HT_I64, HT_I64, HT_I64, HT_BOOL};
    for (size_t i = 0; i < INPUTS; i++) {
        ht_type_text is;
        bool wide = i == SCALE && call->in[i]->dtype == HT_F64; /* a model in f64 has all its state so */
        if (call->in[i]->rank != 0 || (call->in[i]->dtype != dtypes[i] && !wide))
            HT_FAIL(ctx, HT_EDTYPE, "input %zu is %s, not %s[]", i, ht_type_str(call->in[i], &is),
                    ht_dtype_name(dtypes[i]));
        if (i > FINITE) out[i - 1] = *call->in[i];
    }
    double min = ht_call_float(call, "min");
    if (!(min >= 0 && min <= FLT_MAX)) HT_FAIL(ctx, HT_EINVAL, "min is %g, not a number from 0 on", min);
    HT_TRY(ht_need_flag(ctx, call, "dynamic"));
    HT_TRY(ht_need_flag(ctx, call, "consecutive"));
    ht_scale_rule rule = ht_scale_rule_of(call);
    if (rule.window < 1) HT_FAIL(ctx, HT_EINVAL, "window is %" PRId64 ", not a number from 1 on", rule.window);
    if (rule.hysteresis < 1)
        HT_FAIL(ctx, HT_EINVAL, "hysteresis is %" PRId64 ", not a number from 1 on", rule.hysteresis);
    if (rule.most_skips < 0)
        HT_FAIL(ctx, HT_EINVAL, "most_skips is %" PRId64 ", not a number from 0 on", rule.most_skips);
    return HT_OK;
}

static void scale_step_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_scale_rule rule = ht_scale_rule_of(call);
    ht_scale_state now = {
        .scale = (float)ht_round_to(HT_F32, in[SCALE][0]),
        .hysteresis = (int64_t)in[HYSTERESIS][0],
        .iteration = (int64_t)in[ITERATION][0],
        .last = (int64_t)in[LAST][0],
        .skips = (int64_t)in[SKIPS][0],
        .fatal = in[FATAL][0] != 0,
    };
    ht_scale_state next = ht_scale_next(&rule, now, in[FINITE][0] != 0);
    out[SCALE - 1][0] = next.scale;
    out[HYSTERESIS - 1][0] = (double)next.hysteresis;
    out[ITERATION - 1][0] = (double)next.iteration;
    out[LAST - 1][0] = (double)next.last;
    out[SKIPS - 1][0] = (double)next.skips;
    out[FATAL - 1][0] = next.fatal;
}

static const ht_attr_def scale_step_attrs[] = {
    HT_DEF_INT("dynamic", 1),
    HT_DEF_INT("window", 1000),
    HT_DEF_INT("hysteresis", 2),
    HT_DEF_INT("consecutive", 0),
    HT_DEF_FLOAT("min", 1),
    HT_DEF_INT("most_skips", 20),
    HT_DEF_END,
};

static const char *const scale_step_samples[] = {
    "(bool[] 1..1, f32[] 1024..1024, i64[] 2..2, i64[] 5..5, i64[] 0..0, i64[] 3..3, bool[] 0..0) window=4",
    "(bool[] 1..1, f32[] 1024..1024, i64[] 1..1, i64[] 3..3, i64[] 0..0, i64[] 3..3, bool[] 0..0) consecutive=1",
    "(bool[] 0..0, f32[] 1024..1024, i64[] 2..2, i64[] 5..5, i64[] 0..0, i64[] 0..0, bool[] 0..0)",
    "(bool[] 0..0, f32[] 1024..1024, i64[] 1..1, i64[] 5..5, i64[] 0..0, i64[] 1..1, bool[] 0..0) min=600",
    "(bool[] 0..0, f32[] 1..1, i64[] 1..1, i64[] 5..5, i64[] 0..0, i64[] 1..1, bool[] 0..0)",
    "(bool[] 0..0, f32[] 64..64, i64[] 1..1, i64[] 5..5, i64[] 0..0, i64[] 19..19, bool[] 0..0) dynamic=0",
    "(bool[] 1..1, f32[] 64..64, i64[] 1..1, i64[] 5..5, i64[] 0..0, i64[] 2..2, bool[] 1..1)",
    NULL,
};

const ht_op ht_op_scale_step = {
    .size = sizeof(ht_op),
    .name = "scale_step",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_NONE,
    .flags = HT_OP_INPLACE,
    .min_in = INPUTS,
    .max_in = INPUTS,
    .n_out = INPUTS - 1,
    .attrs = scale_step_attrs,
    .infer = scale_step_infer,
    .cost = ht_cost_none,
    .no_grad = "the loss scale is set by a rule, not learned",
    .ref = scale_step_ref,
    .samples = scale_step_samples,
};
