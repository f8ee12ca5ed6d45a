/* cross_entropy: -log softmax(logits)[label] per row, or against a target that is smoothed over all classes:
 *     loss[r] = lse[r] - (1-s) x[r,label] - s mean(x[r]),  lse[r] = log Σ exp x[r]
 * as its mean over the rows that count, its sum, or row by row. Rows whose label is ignore_index do not count and are
 * 0; the mean of none is 0. Any other label outside the classes makes its row NaN, for a kernel cannot fail.
 * cross_entropy_grad: dlogits[r] = weight[r] (exp(x[r] - lse[r]) - target[r]), where the weight is dloss, over the
 * number of rows that count for the mean. Both ops treat lse as a value of its own, so derivatives of any order go
 * through it.
 * cross_entropy_both: the two in one, for the planner (plan/join.c): the logits are read once. */
#include "op/op.h"

#include <inttypes.h>
#include <string.h>

typedef struct loss_attrs {
    int64_t ignore_index;
    double smoothing;
    bool mean, none;
} loss_attrs;

static loss_attrs attrs_of(const ht_call *call)
{
    const char *reduction = ht_call_text(call, "reduction");
    return (loss_attrs){
        .ignore_index = ht_call_int(call, "ignore_index"),
        .smoothing = ht_call_float(call, "label_smoothing"),
        .mean = strcmp(reduction, "mean") == 0,
        .none = strcmp(reduction, "none") == 0,
    };
}

/* ---- shapes ---- */

static ht_type rows_type(const ht_type *logits, ht_dtype dtype)
{
    return ht_type_make(dtype, logits->rank - 1, logits->dim);
}

static ht_status need_shape(ht_context *ctx, const ht_call *call, size_t input, const ht_type *like)
{
    ht_type_text have, want;
    if (ht_type_same_shape(call->in[input], like)) return HT_OK;
    HT_FAIL(ctx, HT_ESHAPE, "input %zu is %s, not of the shape of %s", input, ht_type_str(call->in[input], &have),
            ht_type_str(like, &want));
}

static ht_status need_logits_and_labels(ht_context *ctx, const ht_call *call)
{
    const ht_type *logits = call->in[0];
    HT_TRY(ht_need_float(ctx, call, 0));
    HT_TRY(ht_need_int(ctx, call, 1));
    if (logits->rank == 0 || logits->dim[logits->rank - 1] == 0)
        HT_FAIL(ctx, HT_ESHAPE, "the logits have no classes: their last axis is missing or empty");
    ht_type rows = rows_type(logits, call->in[1]->dtype);
    HT_TRY(need_shape(ctx, call, 1, &rows));

    loss_attrs attrs = attrs_of(call);
    const char *reduction = ht_call_text(call, "reduction");
    if (!(attrs.smoothing >= 0 && attrs.smoothing <= 1))
        HT_FAIL(ctx, HT_EINVAL, "label_smoothing is 0 to 1, not %g", attrs.smoothing);
    if (attrs.ignore_index < INT32_MIN || attrs.ignore_index > INT32_MAX)
        HT_FAIL(ctx, HT_EINVAL, "ignore_index %" PRId64 " does not fit 32 bits", attrs.ignore_index);
    if (!attrs.mean && !attrs.none && strcmp(reduction, "sum") != 0)
        HT_FAIL(ctx, HT_EINVAL, "reduction is mean, sum or none, not '%s'", reduction);
    return HT_OK;
}

static ht_type loss_type(const ht_call *call)
{
    ht_dtype dtype = call->in[0]->dtype == HT_F64 ? HT_F64 : HT_F32;
    return attrs_of(call).none ? rows_type(call->in[0], dtype) : ht_type_make(dtype, 0, NULL);
}

static ht_status cross_entropy_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_logits_and_labels(ctx, call));
    out[0] = loss_type(call);
    out[1] = rows_type(call->in[0], out[0].dtype);
    return HT_OK;
}

static ht_status cross_entropy_grad_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(need_logits_and_labels(ctx, call));
    ht_type loss = loss_type(call), lse = rows_type(call->in[0], loss.dtype);
    HT_TRY(ht_need_float(ctx, call, 2));
    HT_TRY(need_shape(ctx, call, 2, &lse));
    HT_TRY(ht_need_float(ctx, call, 3));
    HT_TRY(need_shape(ctx, call, 3, &loss));
    out[0] = *call->in[0];
    return HT_OK;
}

static ht_status cross_entropy_both_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(cross_entropy_infer(ctx, call, out));
    if (attrs_of(call).none) HT_FAIL(ctx, HT_EINVAL, "reduction is mean or sum");
    HT_TRY(ht_need_float(ctx, call, 2));
    HT_TRY(need_shape(ctx, call, 2, &out[0]));
    out[2] = *call->in[0];
    return HT_OK;
}

static void cross_entropy_both_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = 8.0 * (double)ht_type_elems(call->in[0]);
}

static void cross_entropy_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = 4.0 * (double)ht_type_elems(call->in[0]);
}

/* ---- gradients ---- */

/* A value per row, or one for all, reshaped to [.., 1] or [1, .., 1] to broadcast over the logits. */
static ht_val per_row(ht_graph *g, ht_val v, const ht_type *logits)
{
    int64_t dim[HT_MAX_RANK];
    bool rows = ht_val_rank(g, v) == logits->rank - 1;
    for (int i = 0; i < logits->rank; i++) dim[i] = rows && i < logits->rank - 1 ? logits->dim[i] : 1;
    return ht_reshape(g, v, logits->rank, dim);
}

/* The inverse reshape, to [..]. */
static ht_val rows_of(ht_graph *g, ht_val v, const ht_type *logits)
{
    return ht_reshape(g, v, logits->rank - 1, logits->dim);
}

static ht_val sum_classes(ht_graph *g, ht_val v)
{
    return ht_sum(g, v, 1, (const int64_t[]){-1}, true);
}

static ht_val probabilities(ht_graph *g, ht_val logits, ht_val lse, const ht_type *type)
{
    return ht_exp(g, ht_sub(g, logits, per_row(g, lse, type)));
}

static ht_status cross_entropy_grad(ht_graph *g, const ht_grad *d)
{
    const ht_type *logits = d->call->in[0];
    ht_val dx = HT_NONE;
    if (d->dy[0].id)
        dx = ht_emit1(g, "cross_entropy_grad", logits, HT_VALS(d->x[0], d->x[1], d->y[1], d->dy[0]), d->call->n_attr,
                      d->call->attr);
    if (d->dy[1].id) {
        ht_val p = probabilities(g, d->x[0], d->y[1], logits);
        ht_val part = ht_mul(g, p, per_row(g, d->dy[1], logits));
        dx = d->dy[0].id ? ht_add(g, dx, part) : part;
    }
    d->dx[0] = ht_cast(g, dx, logits->dtype);
    return ht_graph_status(g);
}

/* With D for dy, w for the weight of a row and m for "it counts": dx = D w p, dlse = -Σ D w p, ddloss = Σ D m (p - t).
 */
static ht_status cross_entropy_grad_grad(ht_graph *g, const ht_grad *d)
{
    const ht_type *logits = d->call->in[0], *lse = d->call->in[2], *dloss = d->call->in[3];
    loss_attrs attrs = attrs_of(d->call);
    ht_dtype wide = logits->dtype == HT_F64 ? HT_F64 : HT_F32;
    double classes = (double)logits->dim[logits->rank - 1];
    ht_val labels = per_row(g, d->x[1], logits);
    ht_val counts = ht_ne(g, labels, ht_fill_like(g, labels, (double)attrs.ignore_index));
    ht_val p = probabilities(g, d->x[0], d->x[2], logits), over = HT_NONE;
    if (attrs.mean) {
        ht_val count = ht_sum(g, ht_cast(g, counts, wide), 0, NULL, false);
        over = per_row(g, ht_max(g, count, ht_fill_like(g, count, 1)), logits);
    }
    if (d->need[0] || d->need[2]) {
        ht_val weight = per_row(g, ht_cast(g, d->x[3], wide), logits);
        if (attrs.mean) weight = ht_div(g, weight, over);
        weight = ht_select(g, counts, weight, ht_fill_like(g, weight, 0));
        ht_val flow = ht_mul(g, ht_mul(g, d->dy[0], weight), p);
        if (d->need[0]) d->dx[0] = ht_cast(g, flow, logits->dtype);
        if (d->need[2]) d->dx[2] = ht_cast(g, ht_neg(g, rows_of(g, sum_classes(g, flow), logits)), lse->dtype);
    }
    if (d->need[3]) {
        ht_val target = ht_scale(g, ht_one_hot(g, d->x[1], (int64_t)classes, wide), 1 - attrs.smoothing);
        target = ht_add_scalar(g, target, attrs.smoothing / classes);
        ht_val flow = sum_classes(g, ht_mul(g, d->dy[0], ht_sub(g, p, target)));
        flow = ht_select(g, counts, flow, ht_fill_like(g, flow, 0));
        if (attrs.mean) flow = ht_div(g, flow, over);
        flow = attrs.none ? rows_of(g, flow, logits) : ht_sum(g, flow, 0, NULL, false);
        d->dx[3] = ht_cast(g, flow, dloss->dtype);
    }
    return ht_graph_status(g);
}

/* ---- references ---- */

static double row_lse(const double *x, int64_t classes)
{
    double max = -INFINITY, sum = 0;
    for (int64_t c = 0; c < classes; c++) max = fmax(max, x[c]);
    for (int64_t c = 0; c < classes; c++) sum += exp(x[c] - max);
    return max + log(sum);
}

static void cross_entropy_ref(const ht_call *call, const double *const *in, double *const *out)
{
    loss_attrs attrs = attrs_of(call);
    int64_t rows = ht_type_elems(call->in[1]), classes = call->in[0]->dim[call->in[0]->rank - 1], counted = 0;
    double total = 0;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = in[0] + r * classes;
        double lse = row_lse(x, classes), label = in[1][r], loss = 0, mean = 0;
        for (int64_t c = 0; c < classes; c++) mean += x[c] / (double)classes;
        if (label != (double)attrs.ignore_index) {
            bool known = label >= 0 && label < (double)classes;
            loss = known ? lse - (1 - attrs.smoothing) * x[(int64_t)label] : NAN;
            if (attrs.smoothing > 0) loss -= attrs.smoothing * mean;
            counted++;
        }
        total += loss;
        out[1][r] = lse;
        if (attrs.none) out[0][r] = loss;
    }
    if (!attrs.none) out[0][0] = attrs.mean && counted ? total / (double)counted : total;
}

static void cross_entropy_grad_ref(const ht_call *call, const double *const *in, double *const *out)
{
    loss_attrs attrs = attrs_of(call);
    int64_t rows = ht_type_elems(call->in[1]), classes = call->in[0]->dim[call->in[0]->rank - 1], counted = 0;
    for (int64_t r = 0; r < rows; r++) counted += in[1][r] != (double)attrs.ignore_index;
    for (int64_t r = 0; r < rows; r++) {
        double label = in[1][r], weight = in[3][attrs.none ? r : 0] / (attrs.mean ? (double)counted : 1);
        if (!(label >= 0 && label < (double)classes)) weight = NAN;
        for (int64_t c = 0; c < classes; c++) {
            double target = attrs.smoothing / (double)classes + (label == (double)c ? 1 - attrs.smoothing : 0);
            double p = exp(in[0][r * classes + c] - in[2][r]);
            out[0][r * classes + c] = label == (double)attrs.ignore_index ? 0 : weight * (p - target);
        }
    }
}

static void cross_entropy_both_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const double *grad_in[] = {in[0], in[1], out[1], in[2]};
    cross_entropy_ref(call, in, out);
    cross_entropy_grad_ref(call, grad_in, out + 2);
}

/* ---- the ops ---- */

static const ht_attr_def loss_attr_defs[] = {
    HT_DEF_INT("ignore_index", -100),
    HT_DEF_FLOAT("label_smoothing", 0),
    HT_DEF_TEXT("reduction", "mean"),
    HT_DEF_END,
};

static const char *const cross_entropy_samples[] = {
    "(f32[4,5] -2..2, i32[4] 0..4)",
    "(f32[6,5] -2..2, i64[6] 0..4) ignore_index=2",
    "(f32[2,3,4], i32[2,3] 0..3) label_smoothing=0.1",
    "(f32[6,5], i32[6] 0..4) ignore_index=1 label_smoothing=0.3 reduction=\"sum\"",
    "(f32[6,5], i32[6] 0..4) ignore_index=1 label_smoothing=0.3 reduction=\"none\"",
    "(f32[7], i32[] 0..6)",
    "(f32[3,4], i32[3] 2..2) ignore_index=2",
    "(f32[0,4], i32[0])",
    "(f32[2,0,4], i32[2,0]) reduction=\"none\"",
    "(f32[3,1500] -4..4, i64[3] 0..1499) label_smoothing=0.1",
    NULL,
};

static const char *const cross_entropy_grad_samples[] = {
    "(f32[4,5] -2..2, i32[4] 0..4, f32[4] 1..3, f32[])",
    "(f32[6,5] -2..2, i64[6] 0..4, f32[6] 1..3, f32[]) ignore_index=2",
    "(f32[2,3,4], i32[2,3] 0..3, f32[2,3] 1..2, f32[]) label_smoothing=0.1",
    "(f32[6,5], i32[6] 0..4, f32[6] 1..2, f32[]) ignore_index=1 label_smoothing=0.3 reduction=\"sum\"",
    "(f32[6,5], i32[6] 0..4, f32[6] 1..2, f32[6]) ignore_index=1 label_smoothing=0.3 reduction=\"none\"",
    "(f32[7], i32[] 0..6, f32[] 1..2, f32[])",
    "(f32[3,4], i32[3] 2..2, f32[3], f32[]) ignore_index=2",
    "(f32[0,4], i32[0], f32[0], f32[])",
    "(f32[3,1500] -4..4, i64[3] 0..1499, f32[3] 7..9, f32[]) label_smoothing=0.1",
    NULL,
};

static const char *const cross_entropy_both_samples[] = {
    "(f32[4,5] -2..2, i32[4] 0..4, f32[])",
    "(f32[6,5] -2..2, i64[6] 0..4, f32[]) ignore_index=2",
    "(f32[2,3,4], i32[2,3] 0..3, f32[]) label_smoothing=0.1",
    "(f32[6,5], i32[6] 0..4, f32[]) ignore_index=1 label_smoothing=0.3 reduction=\"sum\"",
    "(f32[7], i32[] 0..6, f32[])",
    "(f32[3,4], i32[3] 2..2, f32[]) ignore_index=2",
    "(f32[0,4], i32[0], f32[])",
    "(f32[3,1500] -4..4, i64[3] 0..1499, f32[]) label_smoothing=0.1",
    "(f32[2,25000] -4..4, i32[2] 0..24999, f32[])",
    NULL,
};

const ht_op ht_op_cross_entropy = {
    .size = sizeof(ht_op),
    .name = "cross_entropy",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 2,
    .max_in = 2,
    .n_out = 2,
    .f32_out = 3,
    .attrs = loss_attr_defs,
    .infer = cross_entropy_infer,
    .cost = cross_entropy_cost,
    .grad = cross_entropy_grad,
    .ref = cross_entropy_ref,
    .samples = cross_entropy_samples,
};

const ht_op ht_op_cross_entropy_grad = {
    .size = sizeof(ht_op),
    .name = "cross_entropy_grad",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .flags = HT_OP_INPLACE,
    .min_in = 4,
    .max_in = 4,
    .n_out = 1,
    .attrs = loss_attr_defs,
    .infer = cross_entropy_grad_infer,
    .cost = cross_entropy_cost,
    .grad = cross_entropy_grad_grad,
    .ref = cross_entropy_grad_ref,
    .samples = cross_entropy_grad_samples,
};

const ht_op ht_op_cross_entropy_both = {
    .size = sizeof(ht_op),
    .name = "cross_entropy_both",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .flags = HT_OP_INPLACE,
    .min_in = 3,
    .max_in = 3,
    .n_out = 3,
    .f32_out = 3,
    .attrs = loss_attr_defs,
    .infer = cross_entropy_both_infer,
    .cost = cross_entropy_both_cost,
    .ref = cross_entropy_both_ref,
    .no_grad = "the planner makes it, when all gradients are there",
    .samples = cross_entropy_both_samples,
};

ht_val ht_cross_entropy(ht_graph *g, ht_val logits, ht_val labels, const ht_cross_entropy_opts *opts)
{
    static const char *const names[] = {"mean", "sum", "none"};
    ht_cross_entropy_opts o = HT_CROSS_ENTROPY_OPTS;
    if (opts && opts->size < sizeof o)
        ht_graph_fail(g, HT_EINVAL, "cross_entropy: options must start from HT_CROSS_ENTROPY_OPTS");
    else if (opts)
        o = *opts;
    if ((unsigned)o.reduction > HT_REDUCE_NONE) {
        ht_graph_fail(g, HT_EINVAL, "cross_entropy: no reduction %d", (int)o.reduction);
        return HT_NONE;
    }
    ht_val out[2] = {HT_NONE, HT_NONE};
    ht_emit_n(g, "cross_entropy", NULL, HT_VALS(logits, labels),
              HT_ATTRS(HT_INT("ignore_index", o.ignore_index), HT_FLOAT("label_smoothing", o.label_smoothing),
                       HT_TEXT("reduction", names[o.reduction])),
              out);
    return out[0];
}
