/* straight_through: the first operand as it is, while gradients go to the second, of which it was rounded. What a model reads is
 * the rounded one, and what learns is the other (Bengio et al., arXiv 1308.3432). It moves nothing. */
#include <string.h>

#include "op/op.h"
#include "op/view.h"

static ht_status straight_through_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_type_text a, b;
    HT_TRY(ht_need_float(ctx, call, 0));
    if (call->in[0]->dtype != call->in[1]->dtype || !ht_type_same_shape(call->in[0], call->in[1]))
        HT_FAIL(ctx, HT_ESHAPE, "what is rounded and what it was differ: %s, %s", ht_type_str(call->in[0], &a),
                ht_type_str(call->in[1], &b));
    out[0] = *call->in[0];
    return HT_OK;
}

static bool straight_through_view(const ht_call *call, ht_type *out, int64_t *offset)
{
    memcpy(out->stride, call->in[0]->stride, sizeof out->stride);
    *offset = 0;
    return true;
}

static ht_status straight_through_grad(ht_graph *g, const ht_grad *d)
{
    d->dx[0] = HT_NONE;
    if (d->need[1]) d->dx[1] = d->dy[0];
    return ht_graph_status(g);
}

static void straight_through_ref(const ht_call *call, const double *const *in, double *const *out)
{
    memcpy(out[0], in[0], (size_t)ht_type_elems(call->out[0]) * sizeof *out[0]);
}

static const char *const straight_through_samples[] = {
    "(f32[3,5], f32[3,5])",   "(f32[], f32[])",       "(f64[7], f64[7])",
    "(bf16[2,9], bf16[2,9])", "(f32[0,4], f32[0,4])", NULL,
};

const ht_op ht_op_straight_through = {
    .size = sizeof(ht_op),
    .name = "straight_through",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_MOVE,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .infer = straight_through_infer,
    .cost = ht_cost_view,
    .grad = straight_through_grad,
    .ref = straight_through_ref,
    .view = straight_through_view,
    .samples = straight_through_samples,
};
