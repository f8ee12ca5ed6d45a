/* matmul: y[..,m,n] = sum over k of a[..,m,k] b[..,k,n]. `ta` and `tb`: the last two axes of an input are transposed;
 * leading axes broadcast. Its gradient consists of matmuls. `sparse`: whole runs of b are zero, and kernels may leave them out: a
 * number of a that is not finite then goes where it meets anything else.
 *
 * scaled_matmul: the same for operands in f8, each with a scale, f32[]: the sum times both scales, in f32, before its
 * only rounding. */
#include "op/op.h"

#include <inttypes.h>

/* The axis of an input that runs over rows (0) or columns (1) of the matrix as it is multiplied. */
static int axis_of(const ht_type *type, bool transposed, int which)
{
    return type->rank - 2 + (transposed ? 1 - which : which);
}

static ht_status product_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *a = call->in[0], *b = call->in[1];
    for (size_t i = 0; i < 2; i++) {
        ht_type_text text;
        HT_TRY(ht_need_float(ctx, call, i));
        if (call->in[i]->rank < 2)
            HT_FAIL(ctx, HT_ESHAPE, "input %zu is %s, not a matrix", i, ht_type_str(call->in[i], &text));
    }
    HT_TRY(ht_need_flag(ctx, call, "ta"));
    HT_TRY(ht_need_flag(ctx, call, "tb"));
    bool ta = ht_call_int(call, "ta"), tb = ht_call_int(call, "tb");
    int64_t inner_a = a->dim[axis_of(a, ta, 1)], inner_b = b->dim[axis_of(b, tb, 0)];
    if (inner_a != inner_b) HT_FAIL(ctx, HT_ESHAPE, "inner sizes differ: %" PRId64 " vs %" PRId64, inner_a, inner_b);

    int rank = a->rank > b->rank ? a->rank : b->rank;
    int64_t dim[HT_MAX_RANK];
    for (int i = 0; i < rank - 2; i++) {
        int in_a = i - (rank - a->rank), in_b = i - (rank - b->rank);
        int64_t size_a = in_a < 0 ? 1 : a->dim[in_a], size_b = in_b < 0 ? 1 : b->dim[in_b];
        if (size_a != size_b && size_a != 1 && size_b != 1)
            HT_FAIL(ctx, HT_ESHAPE, "leading sizes do not broadcast: %" PRId64 " vs %" PRId64, size_a, size_b);
        dim[i] = size_a == 1 ? size_b : size_a;
    }
    dim[rank - 2] = a->dim[axis_of(a, ta, 0)];
    dim[rank - 1] = b->dim[axis_of(b, tb, 1)];
    out[0] = ht_type_make(ht_wider(a->dtype, b->dtype), rank, dim);
    return HT_OK;
}

static ht_status matmul_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(ht_need_flag(ctx, call, "sparse"));
    return product_infer(ctx, call, out);
}

static ht_status scaled_matmul_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    HT_TRY(product_infer(ctx, call, out));
    for (size_t i = 0; i < 2; i++) {
        ht_type_text text;
        const ht_type *operand = call->in[i], *scale = call->in[2 + i];
        if (!ht_dtype_is_f8(operand->dtype))
            HT_FAIL(ctx, HT_EDTYPE, "input %zu is %s, not f8", i, ht_type_str(operand, &text));
        if (scale->dtype != HT_F32 || scale->rank != 0)
            HT_FAIL(ctx, HT_EDTYPE, "the scale of input %zu is %s, not f32[]", i, ht_type_str(scale, &text));
    }
    out[0].dtype = HT_F32;
    return HT_OK;
}

static int64_t inner_size(const ht_call *call)
{
    return call->in[0]->dim[axis_of(call->in[0], ht_call_int(call, "ta"), 1)];
}

static void matmul_cost(const ht_call *call, ht_cost *cost)
{
    cost->dot_flops = 2.0 * (double)ht_type_elems(call->out[0]) * (double)inner_size(call);
}

/* ---- gradient ---- */

static ht_val product(ht_graph *g, ht_val a, bool ta, ht_val b, bool tb, const ht_type *want)
{
    return ht_emit1(g, "matmul", want, HT_VALS(a, b), HT_ATTRS(HT_INT("ta", ta), HT_INT("tb", tb)));
}

/* The type of a gradient of x before broadcast axes are summed: y's leading axes, x's matrix. */
static ht_type spread_type(const ht_type *x, const ht_type *y)
{
    ht_type type = ht_type_make(ht_wider(x->dtype, HT_F32), y->rank, y->dim);
    type.space = y->space;
    for (int i = 1; i <= 2; i++) type.dim[type.rank - i] = x->dim[x->rank - i];
    if (ht_type_elems(&type) == ht_type_elems(x)) type.dtype = x->dtype;
    ht_type_row_major(&type);
    return type;
}

/* Sums a gradient of `spread` type over the axes where x was broadcast. */
static ht_val gather_back(ht_graph *g, ht_val spread, const ht_type *x)
{
    ht_type from = *ht_type_of(g, spread), want = from;
    int64_t axes[HT_MAX_RANK];
    int missing = from.rank - x->rank, count = 0;
    for (int i = 0; i < from.rank - 2; i++) {
        if (from.dim[i] == 1 || (i >= missing && x->dim[i - missing] != 1)) continue;
        axes[count++] = i;
        want.dim[i] = 1;
    }
    if (count > 0) {
        want.dtype = x->dtype;
        ht_type_row_major(&want);
        spread = ht_emit1(g, "sum", &want, HT_VALS(spread), HT_ATTRS(HT_INTS("axes", count, axes), HT_INT("keep", 1)));
    }
    return missing ? ht_reshape(g, spread, x->rank, x->dim) : spread;
}

/* One matrix b is shared by all batches of a, so its gradient is one product over all rows instead of a sum of
 * products. */
static ht_val shared_b_grad(ht_graph *g, const ht_grad *d, const ht_type *a, const ht_type *b, const ht_type *y)
{
    int64_t rows = 1, k = a->dim[a->rank - 1], n = y->dim[y->rank - 1];
    for (int i = 0; i < y->rank - 1; i++) rows *= y->dim[i];
    ht_val all_a = ht_reshape(g, d->x[0], HT_DIMS(rows, k)), all_dy = ht_reshape(g, d->dy[0], HT_DIMS(rows, n));
    ht_type want = ht_type_make(b->dtype, 2, b->dim + b->rank - 2);
    want.space = b->space;
    bool tb = ht_call_int(d->call, "tb");
    ht_val db = tb ? product(g, all_dy, true, all_a, false, &want) : product(g, all_a, true, all_dy, false, &want);
    return b->rank > 2 ? ht_reshape(g, db, b->rank, b->dim) : db;
}

static ht_status matmul_grad(ht_graph *g, const ht_grad *d)
{
    ht_type a = *d->call->in[0], b = *d->call->in[1], y = *d->call->out[0];
    bool ta = ht_call_int(d->call, "ta"), tb = ht_call_int(d->call, "tb");
    int64_t b_matrices = 1;
    for (int i = 0; i < b.rank - 2; i++) b_matrices *= b.dim[i];
    if (d->need[0]) {
        ht_type want = spread_type(&a, &y);
        ht_val da =
            ta ? product(g, d->x[1], tb, d->dy[0], true, &want) : product(g, d->dy[0], false, d->x[1], !tb, &want);
        d->dx[0] = gather_back(g, da, &a);
    }
    if (d->need[1] && y.rank > 2 && b_matrices == 1 && !ta) {
        d->dx[1] = shared_b_grad(g, d, &a, &b, &y);
    } else if (d->need[1]) {
        ht_type want = spread_type(&b, &y);
        ht_val db =
            tb ? product(g, d->dy[0], true, d->x[0], ta, &want) : product(g, d->x[0], !ta, d->dy[0], false, &want);
        d->dx[1] = gather_back(g, db, &b);
    }
    return ht_graph_status(g);
}

/* ---- reference ---- */

/* Offset of the input matrix for matrix `batch` of the result, with broadcasting. */
static int64_t batch_offset(const ht_type *x, const ht_type *y, int64_t batch)
{
    int64_t offset = 0, step = x->dim[x->rank - 2] * x->dim[x->rank - 1];
    for (int i = y->rank - 3; i >= 0; i--) {
        int64_t index = batch % y->dim[i];
        int axis = i - (y->rank - x->rank);
        batch /= y->dim[i];
        if (axis < 0) continue;
        if (x->dim[axis] != 1) offset += index * step;
        step *= x->dim[axis];
    }
    return offset;
}

static void matmul_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *a = call->in[0], *b = call->in[1], *y = call->out[0];
    bool ta = ht_call_int(call, "ta"), tb = ht_call_int(call, "tb");
    int64_t rows = y->dim[y->rank - 2], columns = y->dim[y->rank - 1], inner = inner_size(call);
    for (int64_t i = 0; i < ht_type_elems(y); i++) {
        int64_t n = i % columns, m = i / columns % rows, batch = i / columns / rows;
        const double *x = in[0] + batch_offset(a, y, batch), *w = in[1] + batch_offset(b, y, batch);
        double sum = 0;
        for (int64_t k = 0; k < inner; k++)
            sum += x[ta ? k * rows + m : m * inner + k] * w[tb ? n * inner + k : k * columns + n];
        out[0][i] = sum;
    }
}

static void scaled_matmul_ref(const ht_call *call, const double *const *in, double *const *out)
{
    matmul_ref(call, in, out);
    for (int64_t i = 0; i < ht_type_elems(call->out[0]); i++) out[0][i] *= in[2][0] * in[3][0];
}

static const ht_attr_def matmul_attrs[] = {HT_DEF_INT("ta", 0), HT_DEF_INT("tb", 0), HT_DEF_UNHASHED_INT("sparse", 0),
                                           HT_DEF_END};
static const ht_attr_def scaled_matmul_attrs[] = {HT_DEF_INT("ta", 0), HT_DEF_INT("tb", 0), HT_DEF_END};

static const char *const matmul_samples[] = {
    "(f32[3,4], f32[4,5])",
    "(f32[4,3], f32[4,5]) ta=1",
    "(f32[3,4], f32[5,4]) tb=1",
    "(f32[4,3], f32[5,4]) ta=1 tb=1",
    "(f32[2,3,4], f32[4,5])",
    "(f32[2,3,3,4], f32[5,4]) tb=1",
    "(f32[2,4,3], f32[4,5]) ta=1",
    "(f32[2,1,3,4], f32[3,4,2])",
    "(f32[3,4], f32[2,5,4]) tb=1",
    "(f32[2,3,4], f32[1,5,4]) tb=1",
    "(f32[1,37], f32[37,9])",
    "(f32[1,37], f32[9,37]) tb=1",
    "(f32[2,9,37], f32[2,37,1])",
    "(f32[3,0], f32[0,2])",
    "(f32[0,3], f32[3,2])",
    "(f32[2,0,3], f32[3,2])",
    "(f32[70,70], f32[70,67])",
    /* Large enough for packing, with K beyond one block of it; and single rows that split K. */
    "(f32[75,300], f32[300,50])",
    "(f32[300,41], f32[300,40]) ta=1",
    "(f32[40,300], f32[45,300]) tb=1",
    "(f32[2,30,270], f32[2,270,35])",
    "(f32[1,260], f32[260,70])",
    "(f32[1,260], f32[70,260]) tb=1",
    "(f32[70,260], f32[260,1])",
    "(f32[1,260], f32[260,70]) sparse=1",
    "(f32[2,13,300], f32[45,300]) tb=1 sparse=1",
    NULL,
};

const ht_op ht_op_matmul = {
    .size = sizeof(ht_op),
    .name = "matmul",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_DOT,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .half_in = 3,
    .attrs = matmul_attrs,
    .infer = matmul_infer,
    .cost = matmul_cost,
    .grad = matmul_grad,
    .ref = matmul_ref,
    .samples = matmul_samples,
};

#define SCALES "f32[] 0.5..2, f32[] 0.5..2"
static const char *const scaled_matmul_samples[] = {
    "(f8e4m3[3,4], f8e4m3[4,5], " SCALES ")",
    "(f8e4m3[4,3], f8e5m2[4,5], " SCALES ") ta=1",
    "(f8e5m2[3,4], f8e4m3[5,4], " SCALES ") tb=1",
    "(f8e4m3[4,3], f8e4m3[5,4], " SCALES ") ta=1 tb=1",
    "(f8e4m3[2,3,4], f8e4m3[4,5], " SCALES ")",
    "(f8e5m2[2,3,4], f8e5m2[2,4,5], f32[] 0.25..0.25, f32[] 8..8)",
    "(f8e4m3[1,37], f8e4m3[37,9], " SCALES ")",
    "(f8e4m3[3,0], f8e4m3[0,2], " SCALES ")",
    "(f8e4m3[0,3], f8e4m3[3,2], " SCALES ")",
    "(f8e4m3[75,300], f8e4m3[300,50], " SCALES ")",
    "(f8e4m3[300,41], f8e5m2[300,140], " SCALES ") ta=1",
    "(f8e5m2[40,300], f8e4m3[45,300], " SCALES ") tb=1",
    "(f8e4m3[64,32] -448..448, f8e4m3[48,32] -448..448, f32[] 0.0009765625..0.0009765625, f32[] 0.5..0.5) tb=1",
    NULL,
};

const ht_op ht_op_scaled_matmul = {
    .size = sizeof(ht_op),
    .name = "scaled_matmul",
    .prec = HT_PREC_DOT,
    .fuse = HT_FUSE_DOT,
    .min_in = 4,
    .max_in = 4,
    .n_out = 1,
    .attrs = scaled_matmul_attrs,
    .infer = scaled_matmul_infer,
    .cost = matmul_cost,
    .no_grad = "it is put into steps whose gradients are there already",
    .ref = scaled_matmul_ref,
    .samples = scaled_matmul_samples,
};

ht_val ht_matmul(ht_graph *g, ht_val a, ht_val b, const ht_matmul_opts *opts)
{
    return product(g, a, opts && opts->transpose_a, b, opts && opts->transpose_b, NULL);
}
