/* softmax: y = exp(x - max) / sum exp(x - max) along an axis; log_softmax: its logarithm. */
#include "op/op.h"

static ht_status softmax_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    int axis;
    HT_TRY(ht_need_float(ctx, call, 0));
    HT_TRY(ht_need_axis(ctx, call, "axis", call->in[0]->rank, &axis));
    out[0] = *call->in[0];
    return HT_OK;
}

HT_COST_PER_OUT(softmax_cost, 5)

/* dx = y (dy - sum(dy y)) */
static ht_status softmax_grad(ht_graph *g, const ht_grad *d)
{
    int64_t axis = ht_call_int(d->call, "axis");
    ht_val p = ht_mul(g, d->dy[0], d->y[0]);
    ht_val dx = ht_sub(g, p, ht_mul(g, d->y[0], ht_sum(g, p, 1, &axis, true)));
    d->dx[0] = ht_cast(g, dx, d->call->in[0]->dtype);
    return ht_graph_status(g);
}

/* dx = dy - exp(y) sum(dy) */
static ht_status log_softmax_grad(ht_graph *g, const ht_grad *d)
{
    int64_t axis = ht_call_int(d->call, "axis");
    ht_val total = ht_sum(g, d->dy[0], 1, &axis, true);
    ht_val dx = ht_sub(g, d->dy[0], ht_mul(g, ht_exp(g, d->y[0]), total));
    d->dx[0] = ht_cast(g, dx, d->call->in[0]->dtype);
    return ht_graph_status(g);
}

static void ref_rows(const ht_call *call, const double *x, double *y, bool logarithm)
{
    ht_around a = ht_around_axis(call->in[0], ht_call_axis(call, "axis", call->in[0]->rank));
    for (int64_t o = 0; o < a.outer; o++) {
        for (int64_t i = 0; i < a.inner; i++) {
            int64_t at = o * a.size * a.inner + i;
            double max = -INFINITY, sum = 0;
            for (int64_t k = 0; k < a.size; k++) max = fmax(max, x[at + k * a.inner]);
            for (int64_t k = 0; k < a.size; k++) sum += exp(x[at + k * a.inner] - max);
            for (int64_t k = 0; k < a.size; k++) {
                double shifted = x[at + k * a.inner] - max;
                y[at + k * a.inner] = logarithm ? shifted - log(sum) : exp(shifted) / sum;
            }
        }
    }
}

static void softmax_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ref_rows(call, in[0], out[0], false);
}

static void log_softmax_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ref_rows(call, in[0], out[0], true);
}

static const ht_attr_def softmax_attrs[] = {HT_DEF_INT("axis", -1), HT_DEF_END};

static const char *const softmax_samples[] = {
    "(f32[4,7] -3..3)",  "(f32[2,3,5]) axis=1", "(f32[9]) axis=0",     "(f32[3,0])",
    "(f32[0,4]) axis=0", "(f32[2,1500] -5..5)", "(f32[5,300]) axis=0", NULL,
};

const ht_op ht_op_softmax = {
    .size = sizeof(ht_op),
    .name = "softmax",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_REDUCE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = softmax_attrs,
    .infer = softmax_infer,
    .cost = softmax_cost,
    .grad = softmax_grad,
    .ref = softmax_ref,
    .samples = softmax_samples,
};

const ht_op ht_op_log_softmax = {
    .size = sizeof(ht_op),
    .name = "log_softmax",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_REDUCE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = softmax_attrs,
    .infer = softmax_infer,
    .cost = softmax_cost,
    .grad = log_softmax_grad,
    .ref = log_softmax_ref,
    .samples = softmax_samples,
};

ht_val ht_softmax(ht_graph *g, ht_val x, int axis)
{
    return ht_emit1(g, "softmax", NULL, HT_VALS(x), HT_ATTRS(HT_INT("axis", axis)));
}

ht_val ht_log_softmax(ht_graph *g, ht_val x, int axis)
{
    return ht_emit1(g, "log_softmax", NULL, HT_VALS(x), HT_ATTRS(HT_INT("axis", axis)));
}
