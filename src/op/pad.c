/* pad: padding with `value`, before[i] and after[i] elements wide along axis i. */
#include "op/op.h"
#include "op/view.h"

/* Omitted attributes: no padding. */
static int64_t border(const ht_call *call, const char *key, int axis)
{
    const ht_attr *attr = ht_call_attr(call, key);
    return attr->count ? attr->ints[axis] : 0;
}

static ht_status check_borders(ht_context *ctx, const ht_call *call, const char *key)
{
    const ht_attr *attr = ht_call_attr(call, key);
    if (attr->count != 0 && attr->count != (size_t)call->in[0]->rank)
        HT_FAIL(ctx, HT_EINVAL, "%s has %zu numbers for %d axes", key, attr->count, (int)call->in[0]->rank);
    for (size_t i = 0; i < attr->count; i++)
        if (attr->ints[i] < 0)
            HT_FAIL(ctx, HT_EINVAL, "%s is %lld along axis %zu: slice takes away, pad only adds", key,
                    (long long)attr->ints[i], i);
    return HT_OK;
}

static ht_status pad_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(check_borders(ctx, call, "before"));
    HT_TRY(check_borders(ctx, call, "after"));
    out[0] = *call->in[0];
    for (int i = 0; i < out[0].rank; i++)
        if (__builtin_add_overflow(out[0].dim[i], border(call, "before", i), &out[0].dim[i]) ||
            __builtin_add_overflow(out[0].dim[i], border(call, "after", i), &out[0].dim[i]))
            HT_FAIL(ctx, HT_ESHAPE, "the size of axis %d overflows", i);
    return HT_OK;
}

static ht_status pad_grad(ht_graph *g, const ht_grad *d)
{
    const ht_attr *before = ht_call_attr(d->call, "before");
    ht_type in = *d->call->in[0];
    d->dx[0] = ht_slice(g, d->dy[0], before->count ? before->ints : NULL, in.dim, NULL);
    return ht_graph_status(g);
}

static void pad_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *x = call->in[0], *y = call->out[0];
    int64_t n = ht_type_elems(x), all = ht_type_elems(y), index[HT_MAX_RANK];
    for (int64_t k = 0; k < all; k++) out[0][k] = ht_call_float(call, "value");
    for (int64_t k = 0; k < n; k++) {
        ht_unravel(x, k, index);
        for (int i = 0; i < x->rank; i++) index[i] += border(call, "before", i);
        out[0][ht_ravel(y, index)] = in[0][k];
    }
}

static const ht_attr_def pad_attrs[] = {HT_DEF_INTS("before"), HT_DEF_INTS("after"), HT_DEF_FLOAT("value", 0),
                                        HT_DEF_END};

static const char *const pad_samples[] = {
    "(f32[3,4]) before=[1,0] after=[0,2]",
    "(f32[2,3,2]) before=[0,2,1] after=[1,0,3] value=-1.5",
    "(f32[5]) before=[3]",
    "(f32[4]) after=[2]",
    "(f32[])",
    "(f32[0,3]) before=[2,1] after=[0,0] value=2",
    "(i32[3] 0..9) before=[1] after=[1] value=7",
    "(f32[40,50]) before=[3,5] after=[7,1] value=0.5",
    NULL,
};

const ht_op ht_op_pad = {
    .size = sizeof(ht_op),
    .name = "pad",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .attrs = pad_attrs,
    .infer = pad_infer,
    .cost = ht_cost_none,
    .grad = pad_grad,
    .ref = pad_ref,
    .samples = pad_samples,
};

ht_val ht_pad(ht_graph *g, ht_val x, const int64_t *before, const int64_t *after, double value)
{
    if (!ht_graph_has(g, x)) return HT_NONE;
    int rank = ht_val_rank(g, x);
    return ht_emit1(g, "pad", NULL, HT_VALS(x),
                    HT_ATTRS(HT_INTS("before", before ? rank : 0, before), HT_INTS("after", after ? rank : 0, after),
                             HT_FLOAT("value", value)));
}
