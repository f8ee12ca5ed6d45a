/* reshape: the same elements in row-major order under other sizes; a view where the strides allow it. */
#include "op/op.h"
#include "op/view.h"

void ht_cost_view(const ht_call *call, ht_cost *cost)
{
    (void)call;
    cost->bytes = 0;
}

static ht_status reshape_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *in = call->in[0];
    if (out[0].dtype != in->dtype || out[0].space != in->space || ht_type_elems(&out[0]) != ht_type_elems(in)) {
        ht_type_text from, to;
        HT_FAIL(ctx, HT_ESHAPE, "%s cannot be read as %s", ht_type_str(in, &from), ht_type_str(&out[0], &to));
    }
    return HT_OK;
}

/* The axes that have a stride: those of more than one element. */
static int drop_ones(const ht_type *type, int64_t *dim, int64_t *stride)
{
    int rank = 0;
    for (int i = 0; i < type->rank; i++) {
        if (type->dim[i] == 1) continue;
        dim[rank] = type->dim[i];
        stride[rank++] = type->stride[i];
    }
    return rank;
}

/* Old and new axes are divided into the shortest groups of equal product. Inside a group the old axes must be
 * contiguous; the new axes then divide that contiguous range. */
static bool reshape_view(const ht_call *call, ht_type *out, int64_t *offset)
{
    int64_t dim[HT_MAX_RANK], stride[HT_MAX_RANK];
    *offset = 0;
    ht_type_row_major(out);
    if (ht_type_elems(out) == 0) return true;
    int rank = drop_ones(call->in[0], dim, stride);
    for (int from = 0, to = 0; from < rank;) {
        int from_end = from + 1, to_end = to + 1;
        int64_t have = dim[from], want = out->dim[to];
        while (have != want) {
            if (have < want)
                have *= dim[from_end++];
            else
                want *= out->dim[to_end++];
        }
        for (int i = from; i + 1 < from_end; i++)
            if (stride[i] != dim[i + 1] * stride[i + 1]) return false;
        out->stride[to_end - 1] = stride[from_end - 1];
        for (int i = to_end - 1; i > to; i--) out->stride[i - 1] = out->stride[i] * out->dim[i];
        from = from_end;
        to = to_end;
    }
    return true;
}

static ht_status reshape_grad(ht_graph *g, const ht_grad *d)
{
    ht_type like = *d->call->in[0];
    d->dx[0] = ht_reshape(g, d->dy[0], like.rank, like.dim);
    return ht_graph_status(g);
}

static void reshape_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int64_t n = ht_type_elems(call->out[0]);
    for (int64_t i = 0; i < n; i++) out[0][i] = in[0][i];
}

static const char *const reshape_samples[] = {
    "(f32[4,6]) -> f32[2,3,4]",  "(f32[2,3,4]) -> f32[24]",    "(f32[1]) -> f32[]",
    "(f32[]) -> f32[1,1,1]",     "(f32[3,1,5]) -> f32[1,5,3]", "(f32[0,3]) -> f32[5,0]",
    "(i64[6] 0..9) -> i64[2,3]", "(f32[40,60]) -> f32[30,80]", NULL,
};

const ht_op ht_op_reshape = {
    .size = sizeof(ht_op),
    .name = "reshape",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_MOVE,
    .flags = HT_OP_TYPED,
    .min_in = 1,
    .max_in = 1,
    .n_out = 1,
    .infer = reshape_infer,
    .cost = ht_cost_view,
    .grad = reshape_grad,
    .ref = reshape_ref,
    .view = reshape_view,
    .samples = reshape_samples,
};

/* The size that a -1 stands for. */
static bool fill_in_size(ht_graph *g, int64_t elems, int rank, int64_t *dims, int missing)
{
    int64_t known = 1;
    bool overflow = false;
    for (int i = 0; i < rank; i++)
        if (i != missing) overflow |= dims[i] < 0 || __builtin_mul_overflow(known, dims[i], &known);
    if (overflow || known == 0 || elems % known != 0) {
        ht_graph_fail(g, HT_ESHAPE, "reshape: %lld elements leave no whole size for the axis given as -1",
                      (long long)elems);
        return false;
    }
    dims[missing] = elems / known;
    return true;
}

ht_val ht_reshape(ht_graph *g, ht_val x, int rank, const int64_t *dims)
{
    if (!ht_graph_has(g, x)) return HT_NONE;
    if (rank < 0 || rank > HT_MAX_RANK) {
        ht_graph_fail(g, HT_ESHAPE, "reshape: rank %d is not in 0..%d", rank, HT_MAX_RANK);
        return HT_NONE;
    }
    if (!ht_graph_need_dims(g, "reshape", rank, dims)) return HT_NONE;
    int64_t sizes[HT_MAX_RANK];
    int missing = -1;
    for (int i = 0; i < rank; i++) {
        sizes[i] = dims[i];
        if (dims[i] == -1) missing = i;
    }
    ht_type in = *ht_type_of(g, x);
    if (missing >= 0 && !fill_in_size(g, ht_type_elems(&in), rank, sizes, missing)) return HT_NONE;
    ht_type want = ht_type_make(in.dtype, rank, sizes);
    want.space = in.space;
    if (ht_type_same_shape(&in, &want)) return x;
    return ht_emit1(g, "reshape", &want, HT_VALS(x), HT_NO_ATTRS);
}
