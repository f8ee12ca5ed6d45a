/* Optimizer steps: the update of a parameter, one op per rule. `step` counts the updates applied before this one; t =
 * step + 1.
 *      sgd            g += λp; p -= lr g
 *      sgd_momentum   g += λp; b = g at t = 1, later μb + (1-τ)g; p -= lr b, or lr (g + μb) with Nesterov
 *      adam           m = β1 m + (1-β1) g, v = β2 v + (1-β2) g², p -= lr/(1-β1^t) m / (√v/√(1-β2^t) + eps);
 *                     weight decay: decoupled p *= 1 - lr λ before it (AdamW), else g += λp before all (L2);
 *                     an input after `apply` replaces β1, for a schedule that changes it
 * The optional input `apply` is true or false; if false (a skipped step), the results are the old parameter and
 * moments, whatever the gradient holds. */
#include "op/op.h"

#include <string.h>

enum { SGD_APPLY = 3, SGD_MOMENTUM_APPLY = 5, ADAM_APPLY = 6, ADAM_BETA1 = 7 }; /* positions of optional inputs */

/* Inputs 0 .. tensors-1 are floats of one shape; then come the learning rate, with_step the step, and perhaps apply. */
static ht_status need_update(ht_context *ctx, const ht_call *call, size_t tensors, bool with_step)
{
    ht_type_text a, b;
    for (size_t i = 0; i < tensors; i++) {
        HT_TRY(ht_need_float(ctx, call, i));
        if (!ht_type_same_shape(call->in[0], call->in[i]))
            HT_FAIL(ctx, HT_ESHAPE, "input %zu is %s, the parameter %s", i, ht_type_str(call->in[i], &a),
                    ht_type_str(call->in[0], &b));
    }
    size_t apply = tensors + 1 + with_step;
    HT_TRY(ht_need_float(ctx, call, tensors));
    HT_TRY(ht_need_rank(ctx, call, tensors, 0));
    if (with_step) {
        HT_TRY(ht_need_int(ctx, call, tensors + 1));
        HT_TRY(ht_need_rank(ctx, call, tensors + 1, 0));
    }
    if (call->n_in <= apply || !call->in[apply]) return HT_OK;
    if (call->in[apply]->dtype != HT_BOOL || call->in[apply]->rank != 0)
        HT_FAIL(ctx, HT_EDTYPE, "input %zu is %s, not bool[]", apply, ht_type_str(call->in[apply], &a));
    return HT_OK;
}

static ht_status need_at_least_zero(ht_context *ctx, const ht_call *call, const char *key)
{
    double value = ht_call_float(call, key);
    if (!(value >= 0 && isfinite(value))) HT_FAIL(ctx, HT_EINVAL, "%s is %g, not a number from 0 on", key, value);
    return HT_OK;
}

static ht_status need_below_one(ht_context *ctx, const ht_call *call, const char *key)
{
    double value = ht_call_float(call, key);
    if (!(value >= 0 && value < 1)) HT_FAIL(ctx, HT_EINVAL, "%s is %g, not in [0, 1)", key, value);
    return HT_OK;
}

static ht_status need_switch(ht_context *ctx, const ht_call *call, const char *key)
{
    int64_t value = ht_call_int(call, key);
    if (value != 0 && value != 1) HT_FAIL(ctx, HT_EINVAL, "%s is %lld, not 0 or 1", key, (long long)value);
    return HT_OK;
}

static ht_status sgd_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_update(ctx, call, 2, false));
    HT_TRY(need_at_least_zero(ctx, call, "weight_decay"));
    out[0] = *call->in[0];
    return HT_OK;
}

static ht_status sgd_momentum_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_update(ctx, call, 3, true));
    HT_TRY(need_at_least_zero(ctx, call, "weight_decay"));
    HT_TRY(need_at_least_zero(ctx, call, "momentum"));
    HT_TRY(need_switch(ctx, call, "nesterov"));
    double momentum = ht_call_float(call, "momentum"), dampening = ht_call_float(call, "dampening");
    if (!isfinite(dampening)) HT_FAIL(ctx, HT_EINVAL, "dampening is %g", dampening);
    if (ht_call_int(call, "nesterov") && (momentum == 0 || dampening != 0))
        HT_FAIL(ctx, HT_EINVAL, "nesterov needs a momentum (%g) and no dampening (%g)", momentum, dampening);
    out[0] = *call->in[0];
    out[1] = *call->in[2];
    return HT_OK;
}

static ht_status adam_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_update(ctx, call, 4, true));
    if (call->n_in > ADAM_BETA1) {
        if (!call->in[ADAM_APPLY]) HT_FAIL(ctx, HT_EINVAL, "beta1 as an input comes behind apply, which is absent");
        HT_TRY(ht_need_float(ctx, call, ADAM_BETA1));
        HT_TRY(ht_need_rank(ctx, call, ADAM_BETA1, 0));
    }
    HT_TRY(need_below_one(ctx, call, "beta1"));
    HT_TRY(need_below_one(ctx, call, "beta2"));
    HT_TRY(need_at_least_zero(ctx, call, "eps"));
    HT_TRY(need_at_least_zero(ctx, call, "weight_decay"));
    HT_TRY(need_switch(ctx, call, "decoupled"));
    out[0] = *call->in[0];
    out[1] = *call->in[2];
    out[2] = *call->in[3];
    return HT_OK;
}

HT_COST_PER_OUT(sgd_cost, 4)
HT_COST_PER_OUT(sgd_momentum_cost, 8)
HT_COST_PER_OUT(adam_cost, 16)

/* True for a skipped step: the input `apply` is false, and the results are the old values. */
static bool ref_kept(const ht_call *call, const double *const *in, double *const *out, size_t apply)
{
    if (call->n_in <= apply || in[apply][0] != 0) return false;
    size_t bytes = (size_t)ht_type_elems(call->out[0]) * sizeof(double);
    for (size_t i = 0; i < call->n_out && bytes; i++) memcpy(out[i], in[i ? i + 1 : 0], bytes);
    return true;
}

static void sgd_ref(const ht_call *call, const double *const *in, double *const *out)
{
    if (ref_kept(call, in, out, SGD_APPLY)) return;
    double decay = ht_call_float(call, "weight_decay"), lr = in[2][0];
    int64_t n = ht_type_elems(call->out[0]);
    for (int64_t i = 0; i < n; i++) out[0][i] = in[0][i] - lr * (in[1][i] + decay * in[0][i]);
}

static void sgd_momentum_ref(const ht_call *call, const double *const *in, double *const *out)
{
    if (ref_kept(call, in, out, SGD_MOMENTUM_APPLY)) return;
    double decay = ht_call_float(call, "weight_decay"), momentum = ht_call_float(call, "momentum");
    double dampening = ht_call_float(call, "dampening"), lr = in[3][0];
    bool first = in[4][0] == 0, nesterov = ht_call_int(call, "nesterov");
    int64_t n = ht_type_elems(call->out[0]);
    for (int64_t i = 0; i < n; i++) {
        double g = in[1][i] + decay * in[0][i];
        double b = first ? g : momentum * in[2][i] + (1 - dampening) * g;
        out[0][i] = in[0][i] - lr * (nesterov ? g + momentum * b : b);
        out[1][i] = b;
    }
}

static void adam_ref(const ht_call *call, const double *const *in, double *const *out)
{
    if (ref_kept(call, in, out, ADAM_APPLY)) return;
    double beta1 = call->n_in > ADAM_BETA1 ? in[ADAM_BETA1][0] : ht_call_float(call, "beta1"),
           beta2 = ht_call_float(call, "beta2");
    double eps = ht_call_float(call, "eps"), decay = ht_call_float(call, "weight_decay");
    bool decoupled = ht_call_int(call, "decoupled");
    double lr = in[4][0], t = in[5][0] + 1;
    double c1 = 1 - pow(beta1, t), c2 = 1 - pow(beta2, t);
    int64_t n = ht_type_elems(call->out[0]);
    for (int64_t i = 0; i < n; i++) {
        double p = in[0][i], g = in[1][i];
        if (decoupled)
            p *= 1 - lr * decay;
        else
            g += decay * p;
        double m = beta1 * in[2][i] + (1 - beta1) * g;
        double v = beta2 * in[3][i] + (1 - beta2) * g * g;
        out[0][i] = p - lr / c1 * m / (sqrt(v) / sqrt(c2) + eps);
        out[1][i] = m;
        out[2][i] = v;
    }
}

static const ht_attr_def sgd_attrs[] = {HT_DEF_FLOAT("weight_decay", 0), HT_DEF_END};
static const ht_attr_def sgd_momentum_attrs[] = {
    HT_DEF_FLOAT("momentum", 0.9),
    HT_DEF_FLOAT("dampening", 0),
    HT_DEF_INT("nesterov", 0),
    HT_DEF_FLOAT("weight_decay", 0),
    HT_DEF_END,
};
static const ht_attr_def adam_attrs[] = {
    HT_DEF_FLOAT("beta1", 0.9),      HT_DEF_FLOAT("beta2", 0.999), HT_DEF_FLOAT("eps", 1e-8),
    HT_DEF_FLOAT("weight_decay", 0), HT_DEF_INT("decoupled", 1),   HT_DEF_END,
};

static const char *const sgd_samples[] = {
    "(f32[3,5], f32[3,5], f32[] 0.01..0.1) weight_decay=0.1",
    "(f64[], f64[], f64[] 0.01..0.1)",
    "(f32[0], f32[0], f32[] 0.01..0.1)",
    "(f32[7], bf16[7], f64[] 0.01..0.1)",
    "(f32[5,4001], f32[5,4001], f32[] 0.01..0.1) weight_decay=0.01",
    "(f32[7], f32[7], f32[] 0.01..0.1, bool[] 0..0)",
    "(f32[7], f32[7], f32[] 0.01..0.1, bool[] 1..1)",
    NULL,
};
static const char *const sgd_momentum_samples[] = {
    "(f32[3,5], f32[3,5], f32[3,5], f32[] 0.01..0.1, i64[] 3..3)",
    "(f32[3,5], f32[3,5], f32[3,5], f32[] 0.01..0.1, i64[] 0..0) dampening=0.5 weight_decay=0.1",
    "(f64[], f64[], f64[], f64[] 0.01..0.1, i64[] 2..2) dampening=0.5",
    "(f32[0], f32[0], f32[0], f32[] 0.01..0.1, i64[])",
    "(f32[5,4001], bf16[5,4001], f32[5,4001], f32[] 0.01..0.1, i64[] 7..7) momentum=0.8 nesterov=1 weight_decay=0.01",
    "(f32[7], f32[7], f32[7], f32[] 0.01..0.1, i64[] 3..3, bool[] 0..0)",
    "(f32[7], f32[7], f32[7], f32[] 0.01..0.1, i64[] 3..3, bool[] 1..1)",
    NULL,
};
static const char *const adam_samples[] = {
    "(f32[3,5], f32[3,5], f32[3,5], f32[3,5] 0.01..1, f32[] 0.01..0.1, i64[] 0..0) weight_decay=0.1",
    "(f32[3,5], f32[3,5], f32[3,5], f32[3,5] 0.01..1, f32[] 0.01..0.1, i64[] 9..9) weight_decay=0.1 decoupled=0",
    "(f64[], f64[], f64[], f64[] 0.01..1, f64[] 0.01..0.1, i64[] 1..1)",
    "(f32[0], f32[0], f32[0], f32[0], f32[] 0.01..0.1, i64[])",
    "(f32[5,4001], bf16[5,4001], f32[5,4001], f32[5,4001] 0.01..1, f32[] 0.01..0.1, i64[] 99..99) beta2=0.95 eps=1e-6",
    "(f32[7], f32[7], f32[7], f32[7] 0.01..1, f32[] 0.01..0.1, i64[] 2..2, bool[] 1..1)",
    "(f32[700], f32[700], bf16[700], f32[700] 0.01..1, f32[] 0.01..0.1, i64[] 2..2, bool[] 0..0)",
    "(f32[7], f32[7], f32[7], f32[7] 0.01..1, f32[] 0.01..0.1, i64[] 2..2, bool[] 1..1, f32[] 0.8..0.95)",
    NULL,
};

#define REASON "an update of parameters is not differentiated"

const ht_op ht_op_sgd = {
    .size = sizeof(ht_op),
    .name = "sgd",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_POINT,
    .flags = HT_OP_INPLACE,
    .min_in = 3,
    .max_in = 4,
    .n_out = 1,
    .attrs = sgd_attrs,
    .infer = sgd_infer,
    .cost = sgd_cost,
    .no_grad = REASON,
    .ref = sgd_ref,
    .samples = sgd_samples,
};

const ht_op ht_op_sgd_momentum = {
    .size = sizeof(ht_op),
    .name = "sgd_momentum",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_POINT,
    .flags = HT_OP_INPLACE,
    .min_in = 5,
    .max_in = 6,
    .n_out = 2,
    .attrs = sgd_momentum_attrs,
    .infer = sgd_momentum_infer,
    .cost = sgd_momentum_cost,
    .no_grad = REASON,
    .ref = sgd_momentum_ref,
    .samples = sgd_momentum_samples,
};

const ht_op ht_op_adam = {
    .size = sizeof(ht_op),
    .name = "adam",
    .prec = HT_PREC_EXACT,
    .fuse = HT_FUSE_POINT,
    .flags = HT_OP_INPLACE,
    .min_in = 6,
    .max_in = 8,
    .n_out = 3,
    .attrs = adam_attrs,
    .infer = adam_infer,
    .cost = adam_cost,
    .no_grad = REASON,
    .ref = adam_ref,
    .samples = adam_samples,
};
