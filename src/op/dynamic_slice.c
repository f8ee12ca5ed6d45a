/* dynamic_slice: `rows` neighbouring rows of x [N, ..], from a row that is an input. dynamic_update_slice: x with
 * neighbouring rows replaced from there on. A first row that leaves too few behind it is moved back, one below 0 is 0.
 * With them a micro-batch reads and writes its rows of a state of the whole batch. */
#include "op/op.h"

/* The rows that a part of x [N, ..] is taken from. */
static int64_t first_row(int64_t first, int64_t all, int64_t rows)
{
    if (first > all - rows) first = all - rows;
    return first < 0 ? 0 : first;
}

int64_t ht_dynamic_first_row(const ht_call *call, int64_t first)
{
    bool cut = strcmp(call->op->name, "dynamic_slice") == 0;
    const ht_type *part = cut ? call->out[0] : call->in[1];
    return first_row(first, call->in[0]->dim[0], part->dim[0]);
}

static ht_status need_first(ht_context *ctx, const ht_type *first)
{
    ht_type_text text;
    if (first->dtype != HT_I64 || first->rank != 0)
        HT_FAIL(ctx, HT_EDTYPE, "the first row is %s, not i64[]", ht_type_str(first, &text));
    return HT_OK;
}

static ht_status dynamic_slice_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *x = call->in[0];
    int64_t rows = ht_call_int(call, "rows");
    HT_TRY(need_first(ctx, call->in[1]));
    if (x->rank < 1 || rows < 0 || rows > x->dim[0]) {
        ht_type_text text;
        HT_FAIL(ctx, HT_ESHAPE, "%s has no %lld rows", ht_type_str(x, &text), (long long)rows);
    }
    out[0] = *x;
    out[0].dim[0] = rows;
    return HT_OK;
}

static ht_status dynamic_update_slice_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *x = call->in[0], *update = call->in[1];
    HT_TRY(need_first(ctx, call->in[2]));
    bool fits = x->rank >= 1 && x->rank == update->rank && x->dtype == update->dtype && update->dim[0] <= x->dim[0];
    for (int i = 1; fits && i < x->rank; i++) fits = x->dim[i] == update->dim[i];
    if (!fits) {
        ht_type_text a, b;
        HT_FAIL(ctx, HT_ESHAPE, "%s holds no rows of %s", ht_type_str(update, &a), ht_type_str(x, &b));
    }
    out[0] = *x;
    return HT_OK;
}

/* Only the rows of the part move; an update is made in place wherever x ends with it. */
static void dynamic_slice_cost(const ht_call *call, ht_cost *cost)
{
    const ht_type *x = call->in[0];
    cost->bytes -= (double)ht_type_distinct_bytes(x) - ht_cost_rows(x, call->out[0]->dim[0]);
}

static ht_status dynamic_slice_grad(ht_graph *g, const ht_grad *d)
{
    ht_type like = ht_type_make(ht_val_dtype(g, d->dy[0]), d->call->in[0]->rank, d->call->in[0]->dim);
    if (d->need[0])
        d->dx[0] = ht_dynamic_update_slice(g, ht_fill(g, like.dtype, like.rank, like.dim, 0), d->dy[0], d->x[1]);
    return ht_graph_status(g);
}

static ht_status dynamic_update_slice_grad(ht_graph *g, const ht_grad *d)
{
    const ht_type *update = d->call->in[1];
    if (d->need[0]) {
        ht_val zero = ht_fill(g, ht_val_dtype(g, d->dy[0]), update->rank, update->dim, 0);
        d->dx[0] = ht_dynamic_update_slice(g, d->dy[0], zero, d->x[2]);
    }
    if (d->need[1]) d->dx[1] = ht_dynamic_slice(g, d->dy[0], d->x[2], update->dim[0]);
    return ht_graph_status(g);
}

/* Where the part begins in x, in elements. */
static int64_t offset_of(const ht_call *call, double first)
{
    ht_around a = ht_around_axis(call->in[0], 0);
    return ht_dynamic_first_row(call, (int64_t)first) * a.inner;
}

static void dynamic_slice_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int64_t n = ht_type_elems(call->out[0]), offset = offset_of(call, in[1][0]);
    for (int64_t i = 0; i < n; i++) out[0][i] = in[0][offset + i];
}

static void dynamic_update_slice_ref(const ht_call *call, const double *const *in, double *const *out)
{
    int64_t all = ht_type_elems(call->out[0]), n = ht_type_elems(call->in[1]), offset = offset_of(call, in[2][0]);
    for (int64_t i = 0; i < all; i++) out[0][i] = in[0][i];
    for (int64_t i = 0; i < n; i++) out[0][offset + i] = in[1][i];
}

static const ht_attr_def dynamic_slice_attrs[] = {HT_DEF_REQUIRED("rows", HT_ATTR_INT), HT_DEF_END};

static const char *const dynamic_slice_samples[] = {
    "(f32[6,5], i64[] 0..9) rows=2",    "(f32[7], i64[] 0..4) rows=3",       "(bf16[4,3,2], i64[] -2..4) rows=1",
    "(f64[4,3], i64[] 0..9) rows=4",    "(f32[4,3], i64[] 0..9) rows=0",     "(f32[0,3], i64[] 0..9) rows=0",
    "(i32[8] 0..9, i64[] 0..5) rows=3", "(f32[60,70], i64[] 0..40) rows=20", NULL,
};

static const char *const dynamic_update_slice_samples[] = {
    "(f32[6,5], f32[2,5], i64[] 0..9)",
    "(f32[7], f32[3], i64[] 0..4)",
    "(bf16[4,3,2], bf16[1,3,2], i64[] -2..4)",
    "(f64[4,3], f64[4,3], i64[] 0..9)",
    "(f32[4,3], f32[0,3], i64[] 0..9)",
    "(f32[0,3], f32[0,3], i64[] 0..9)",
    "(i32[8] 0..9, i32[3] 0..9, i64[] 0..5)",
    "(f32[60,70], f32[20,70], i64[] 0..40)",
    NULL,
};

const ht_op ht_op_dynamic_slice = {
    .size = sizeof(ht_op),
    .name = "dynamic_slice",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs = dynamic_slice_attrs,
    .infer = dynamic_slice_infer,
    .cost = dynamic_slice_cost,
    .grad = dynamic_slice_grad,
    .ref = dynamic_slice_ref,
    .samples = dynamic_slice_samples,
};

/* In mixed precision it is as wide as the state that it changes. */
const ht_op ht_op_dynamic_update_slice = {
    .size = sizeof(ht_op),
    .name = "dynamic_update_slice",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_NONE,
    .flags = HT_OP_INPLACE,
    .min_in = 3,
    .max_in = 3,
    .n_out = 1,
    .f32_out = 1,
    .infer = dynamic_update_slice_infer,
    .cost = ht_cost_none,
    .grad = dynamic_update_slice_grad,
    .ref = dynamic_update_slice_ref,
    .samples = dynamic_update_slice_samples,
};

ht_val ht_dynamic_slice(ht_graph *g, ht_val x, ht_val first, int64_t rows)
{
    return ht_emit1(g, "dynamic_slice", NULL, HT_VALS(x, first), HT_ATTRS(HT_INT("rows", rows)));
}

ht_val ht_dynamic_update_slice(ht_graph *g, ht_val x, ht_val update, ht_val first)
{
    return ht_emit1(g, "dynamic_update_slice", NULL, HT_VALS(x, update, first), HT_NO_ATTRS);
}
