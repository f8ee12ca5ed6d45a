/* embedding: a lookup of rows of a table [V, D] by index [..] → [.., D]. An index out of range gives zeros and no
 * gradient. embedding_grad: the table's gradient, dtable[index[n], :] += dy[n, :], n ascending. */
#include "op/op.h"
#include "op/view.h"

static ht_status embedding_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *table = call->in[0], *index = call->in[1];
    HT_TRY(ht_need_rank(ctx, call, 0, 2));
    HT_TRY(ht_need_int(ctx, call, 1));
    if (index->rank == HT_MAX_RANK)
        HT_FAIL(ctx, HT_ESHAPE, "an index of rank %d leaves no axis for the rows", HT_MAX_RANK);
    out[0] = *index;
    out[0].dtype = table->dtype;
    out[0].dim[out[0].rank++] = table->dim[1];
    return HT_OK;
}

/* Cost: of the table only the rows that the index names, as far as that is known before the run: one for each of its
 * elements, and never more than there are. */
static void embedding_cost(const ht_call *call, ht_cost *cost)
{
    const ht_type *table = call->in[0], *index = call->in[1];
    int64_t rows = ht_type_distinct_bytes(index) / (int64_t)ht_dtype_bytes(index->dtype);
    cost->bytes -= (double)ht_type_distinct_bytes(table) - ht_cost_rows(table, rows);
}

static ht_status embedding_backward(ht_graph *g, const ht_grad *d)
{
    int64_t rows = d->call->in[0]->dim[0];
    if (d->need[0])
        d->dx[0] = ht_emit1(g, "embedding_grad", NULL, HT_VALS(d->x[1], d->dy[0]), HT_ATTRS(HT_INT("rows", rows)));
    return ht_graph_status(g);
}

static void embedding_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int64_t n = ht_type_elems(call->in[1]), rows = call->in[0]->dim[0], columns = call->in[0]->dim[1];
    for (int64_t i = 0; i < n; i++) {
        int64_t row = ht_place_of(in[1][i], rows);
        for (int64_t c = 0; c < columns; c++) out[0][i * columns + c] = row >= 0 ? in[0][row * columns + c] : 0;
    }
}

static const char *const embedding_samples[] = {
    "(f32[7,4], i32[5] 0..6)",     "(f32[5,3], i64[2,4] 0..4)",
    "(f32[4,3], i32[] 0..3)",      "(f32[4,3], i32[6] -2..6)",
    "(bf16[6,5], i32[3] 0..5)",    "(f32[5,3], i32[0])",
    "(f32[0,3], i32[2])",          "(f32[3,0], i32[4] 0..2)",
    "(f32[50,70], i32[40] 0..49)", NULL,
};

const ht_op ht_op_embedding = {
    .size = sizeof(ht_op),
    .name = "embedding",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .half_in = 1,
    .infer = embedding_infer,
    .cost = embedding_cost,
    .grad = embedding_backward,
    .ref = embedding_ref,
    .samples = embedding_samples,
};

static ht_status embedding_grad_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *index = call->in[0], *dy = call->in[1];
    int64_t rows = ht_call_int(call, "rows");
    HT_TRY(ht_need_int(ctx, call, 0));
    HT_TRY(ht_need_float(ctx, call, 1));
    bool fits = dy->rank == index->rank + 1;
    for (int i = 0; fits && i < index->rank; i++) fits = dy->dim[i] == index->dim[i];
    if (!fits) {
        ht_type_text a, b;
        HT_FAIL(ctx, HT_ESHAPE, "the gradient %s has no row for each index of %s", ht_type_str(dy, &a),
                ht_type_str(index, &b));
    }
    if (rows < 0) HT_FAIL(ctx, HT_EINVAL, "rows %lld is negative", (long long)rows);
    const int64_t dims[2] = {rows, dy->dim[dy->rank - 1]};
    out[0] = ht_type_make(dy->dtype == HT_F64 ? HT_F64 : HT_F32, 2, dims);
    return HT_OK;
}

static void embedding_grad_cost(const ht_call *call, ht_cost *cost)
{
    cost->other_flops = (double)ht_type_elems(call->in[1]);
}

static ht_status embedding_grad_backward(ht_graph *g, const ht_grad *d)
{
    if (d->need[1]) d->dx[1] = ht_embedding(g, d->dy[0], d->x[0]);
    return ht_graph_status(g);
}

static void embedding_grad_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int64_t n = ht_type_elems(call->in[0]), rows = call->out[0]->dim[0], columns = call->out[0]->dim[1];
    for (int64_t k = 0; k < rows * columns; k++) out[0][k] = 0;
    for (int64_t i = 0; i < n; i++) {
        int64_t row = ht_place_of(in[0][i], rows);
        for (int64_t c = 0; row >= 0 && c < columns; c++) out[0][row * columns + c] += in[1][i * columns + c];
    }
}

static const ht_attr_def embedding_grad_attrs[] = {HT_DEF_REQUIRED("rows", HT_ATTR_INT), HT_DEF_END};

static const char *const embedding_grad_samples[] = {
    "(i32[5] 0..6, f32[5,4]) rows=7",  "(i64[2,4] 0..4, f32[2,4,3]) rows=5",   "(i32[] 0..3, f32[3]) rows=4",
    "(i32[9] -2..6, f32[9,3]) rows=4", "(i32[3] 0..1, bf16[3,5]) rows=2",      "(i32[0], f32[0,3]) rows=5",
    "(i32[2], f32[2,3]) rows=0",       "(i32[40] 0..29, f32[40,100]) rows=30", NULL,
};

const ht_op ht_op_embedding_grad = {
    .size = sizeof(ht_op),
    .name = "embedding_grad",
    .prec = HT_PREC_REDUCE,
    .fuse = HT_FUSE_NONE,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .f32_out = 1,
    .attrs = embedding_grad_attrs,
    .infer = embedding_grad_infer,
    .cost = embedding_grad_cost,
    .grad = embedding_grad_backward,
    .ref = embedding_grad_ref,
    .samples = embedding_grad_samples,
};

ht_val ht_embedding(ht_graph *g, ht_val table, ht_val index)
{
    return ht_emit1(g, "embedding", NULL, HT_VALS(table, index), HT_NO_ATTRS);
}
