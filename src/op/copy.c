/* copy: the same value with bytes of its own, row-major, perhaps in another space.
 * copy_start, copy_done: a copy in two parts, t = copy_start(x) and y = copy_done(t, x), between which other nodes run.
 * y has the bytes of t, and x lives until the copy is done, since copy_done reads it. */
#include "op/op.h"

extern const ht_op ht_op_copy_done;

static ht_status copy_grad(ht_graph *g, const ht_grad *d)
{
    d->dx[0] = ht_to_space(g, d->dy[0], d->call->in[0]->space);
    return ht_graph_status(g);
}

static void copy_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int64_t n = ht_type_elems(call->out[0]);
    for (int64_t i = 0; i < n; i++) out[0][i] = in[0][i];
}

static const char *const copy_samples[] = {
    "(f32[3,4])", "(f32[])", "(f32[2,0])", "(bool[7])", "(f16[5,3])", "(f64[2,2,2])", "(f32[70,50])", NULL,
};

/* No view rule: a copy is inserted exactly where a view is impossible. */
const ht_op ht_op_copy = {
    .size = sizeof(ht_op),
    .name = "copy",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .flags = HT_OP_ERASED | HT_OP_CROSSES,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = ht_infer_like_0,
    .cost = ht_cost_none,
    .grad = copy_grad,
    .ref = copy_ref,
    .samples = copy_samples,
};

ht_val ht_to_space(ht_graph *g, ht_val x, ht_space space)
{
    if (ht_graph_status(g) != HT_OK || !x.id || ht_type_of(g, x)->space == space) return x;
    ht_type want = *ht_type_of(g, x);
    want.space = space;
    return ht_emit1(g, "copy", &want, HT_VALS(x), HT_NO_ATTRS);
}

static const char *const copy_start_samples[] = {
    "(f32[3,4])",
    "(f32[2,0])",
    "(bool[7])",
    "(f16[5,3])",
    "(f32[70,50])",
    "(f32[3,4]) -> f32[3,4]@host",
    "(i64[]@host 0..9) -> i64[]",
    NULL,
};

const ht_op ht_op_copy_start = {
    .size = sizeof(ht_op),
    .name = "copy_start",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .flags = HT_OP_ERASED | HT_OP_CROSSES | HT_OP_NO_FOLD,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = ht_infer_like_0,
    .cost = ht_cost_none,
    .grad = copy_grad,
    .ref = copy_ref,
    .samples = copy_start_samples,
    .done = &ht_op_copy_done,
};

static ht_status copy_done_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_type_text t, x;
    if (call->in[0]->dtype != call->in[1]->dtype || !ht_type_same_shape(call->in[0], call->in[1]))
        HT_FAIL(ctx, HT_ESHAPE, "%s is no copy of %s", ht_type_str(call->in[0], &t), ht_type_str(call->in[1], &x));
    out[0] = *call->in[0];
    return HT_OK;
}

/* What was copied is in memory already. */
static void copy_done_cost(const ht_call *call, ht_cost *cost)
{
    (void)call;
    *cost = (ht_cost){0};
}

/* The gradient goes the whole way through the start. */
static ht_status copy_done_grad(ht_graph *g, const ht_grad *d)
{
    d->dx[0] = d->dy[0];
    return ht_graph_status(g);
}

static const char *const copy_done_samples[] = {
    "(f32[3,4], f32[3,4])",
    "(f32[2,0], f32[2,0])",
    "(bool[7], bool[7])",
    "(f32[3,4]@host, f32[3,4]) -> f32[3,4]@host",
    "(i64[] 0..9, i64[]@host 0..9)",
    NULL,
};

const ht_op ht_op_copy_done = {
    .size = sizeof(ht_op),
    .name = "copy_done",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .flags = HT_OP_ERASED | HT_OP_CROSSES | HT_OP_NO_FOLD,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = copy_done_infer,
    .cost = copy_done_cost,
    .grad = copy_done_grad,
    .ref = copy_ref,
    .samples = copy_done_samples,
    .start = &ht_op_copy_start,
};
