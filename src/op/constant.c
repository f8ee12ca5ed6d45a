/* Constants: fill (one number everywhere), constant (a small array), iota (0, 1, 2 … along an axis); and the builders
 * that take a number. */
#include "op/op.h"
#include "op/pointwise.h"

enum { CONSTANT_MAX = 4096 };

/* A number as it is written: the references keep floats in f64, the rounding is the result type's. */
static double written(ht_dtype dtype, double value)
{
    return ht_dtype_is_float(dtype) ? value : ht_round_to(dtype, value);
}

static ht_status fill_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    (void)ctx, (void)call, (void)out;
    return HT_OK;
}

static void fill_ref(const ht_call *call, const double *const *in, double *const *out)
{
    (void)in;
    double value = written(call->out[0]->dtype, ht_call_float(call, "value"));
    int64_t n = ht_type_elems(call->out[0]);
    for (int64_t i = 0; i < n; i++) out[0][i] = value;
}

static const ht_attr_def fill_attrs[] = {HT_DEF_REQUIRED("value", HT_ATTR_FLOAT), HT_DEF_END};
static const char *const fill_samples[] = {
    "() -> f32[3,5] value=2.5", "() -> f64[] value=-1",        "() -> bf16[0,4] value=1",
    "() -> f16[7] value=0.1",   "() -> i32[9] value=-3",       "() -> bool[4] value=1",
    "() -> f8e4m3[5] value=3",  "() -> f32[5,4001] value=0.1", NULL,
};

const ht_op ht_op_fill = {
    .size = sizeof(ht_op),
    .name = "fill",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_POINT,
    .flags = HT_OP_TYPED,
    .n_out = 1,
    .attrs = fill_attrs,
    .infer = fill_infer,
    .cost = ht_cost_none,
    .no_grad = "it has no inputs",
    .ref = fill_ref,
    .samples = fill_samples,
};

static ht_status constant_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_type_text text;
    size_t count = ht_call_attr(call, "data")->count;
    int64_t elems = ht_type_elems(&out[0]);
    if (elems > CONSTANT_MAX)
        HT_FAIL(ctx, HT_ESHAPE, "%s is too large to be written out: %d elements at most", ht_type_str(&out[0], &text),
                CONSTANT_MAX);
    if (count != (uint64_t)elems)
        HT_FAIL(ctx, HT_ESHAPE, "%zu numbers given for %s", count, ht_type_str(&out[0], &text));
    return HT_OK;
}

static void constant_ref(const ht_call *call, const double *const *in, double *const *out)
{
    (void)in;
    const ht_attr *data = ht_call_attr(call, "data");
    for (size_t i = 0; i < data->count; i++) out[0][i] = written(call->out[0]->dtype, data->floats[i]);
}

static const ht_attr_def constant_attrs[] = {HT_DEF_REQUIRED("data", HT_ATTR_FLOATS), HT_DEF_END};
static const char *const constant_samples[] = {
    "() -> f32[2,3] data=[1,2.5,-3,4,5,0.1]",
    "() -> i64[3] data=[1,-2,3]",
    "() -> bf16[] data=[0.3]",
    "() -> bool[2] data=[0,1]",
    "() -> f32[0] data=[]",
    NULL,
};

const ht_op ht_op_constant = {
    .size = sizeof(ht_op),
    .name = "constant",
    .prec = HT_PREC_MOVE,
    .flags = HT_OP_TYPED,
    .n_out = 1,
    .attrs = constant_attrs,
    .infer = constant_infer,
    .cost = ht_cost_none,
    .no_grad = "it has no inputs",
    .ref = constant_ref,
    .samples = constant_samples,
};

static ht_status iota_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    int axis;
    return ht_need_axis(ctx, call, "axis", out[0].rank, &axis);
}

static void iota_ref(const ht_call *call, const double *const *in, double *const *out)
{
    (void)in;
    const ht_type *type = call->out[0];
    ht_around a = ht_around_axis(type, ht_call_axis(call, "axis", type->rank));
    for (int64_t o = 0; o < a.outer; o++)
        for (int64_t k = 0; k < a.size; k++)
            for (int64_t i = 0; i < a.inner; i++)
                out[0][(o * a.size + k) * a.inner + i] = written(type->dtype, (double)k);
}

static const ht_attr_def iota_attrs[] = {HT_DEF_INT("axis", 0), HT_DEF_END};
static const char *const iota_samples[] = {
    "() -> i32[5]", "() -> f32[3,4] axis=1", "() -> bf16[2,3,4] axis=-2", "() -> i64[3,0]", "() -> i32[1300]", NULL,
};

const ht_op ht_op_iota = {
    .size = sizeof(ht_op),
    .name = "iota",
    .prec = HT_PREC_MOVE,
    .fuse = HT_FUSE_POINT,
    .flags = HT_OP_TYPED | HT_OP_NO_FOLD,
    .n_out = 1,
    .attrs = iota_attrs,
    .infer = iota_infer,
    .cost = ht_cost_none,
    .no_grad = "it has no inputs",
    .ref = iota_ref,
    .samples = iota_samples,
};

ht_val ht_fill(ht_graph *g, ht_dtype dtype, int rank, const int64_t *dims, double value)
{
    if (!ht_graph_need_dims(g, "fill", rank, dims)) return HT_NONE;
    ht_type want = ht_type_make(dtype, rank, dims);
    return ht_emit1(g, "fill", &want, 0, NULL, HT_ATTRS(HT_FLOAT("value", value)));
}

ht_val ht_constant(ht_graph *g, ht_dtype dtype, int rank, const int64_t *dims, const double *data)
{
    if (!ht_graph_need_dims(g, "constant", rank, dims)) return HT_NONE;
    ht_type want = ht_type_make(dtype, rank, dims);
    /* A shape that is refused anyway must not say how many numbers to copy. */
    bool sound = ht_type_check(g->ctx, &want, "constant") == HT_OK && ht_type_elems(&want) <= CONSTANT_MAX;
    int64_t count = sound ? ht_type_elems(&want) : 0;
    if (count > 0 && !ht_graph_need(g, data, "constant", "data")) return HT_NONE;
    return ht_emit1(g, "constant", &want, 0, NULL, HT_ATTRS(HT_FLOATS("data", count, data)));
}

ht_val ht_iota(ht_graph *g, ht_dtype dtype, int rank, const int64_t *dims, int axis)
{
    if (!ht_graph_need_dims(g, "iota", rank, dims)) return HT_NONE;
    ht_type want = ht_type_make(dtype, rank, dims);
    return ht_emit1(g, "iota", &want, 0, NULL, HT_ATTRS(HT_INT("axis", axis)));
}

/* One number, in x's space. */
static ht_val number_at(ht_graph *g, ht_val x, ht_dtype dtype, double value)
{
    ht_type want = ht_type_make(dtype, 0, NULL);
    want.space = ht_type_of(g, x)->space;
    return ht_emit1(g, "fill", &want, 0, NULL, HT_ATTRS(HT_FLOAT("value", value)));
}

ht_val ht_fill_like(ht_graph *g, ht_val x, double value)
{
    if (ht_graph_status(g) != HT_OK || x.id >= g->value_count) return HT_NONE;
    ht_type like = *ht_type_of(g, x);
    ht_val scalar = number_at(g, x, like.dtype, value);
    return like.rank == 0 ? scalar : ht_expand(g, scalar, like.rank, like.dim);
}

ht_val ht_number_beside(ht_graph *g, ht_val x, double value)
{
    if (ht_graph_status(g) != HT_OK || x.id >= g->value_count) return HT_NONE;
    ht_dtype dtype = ht_type_of(g, x)->dtype;
    if (ht_dtype_is_float(dtype)) dtype = ht_wider(dtype, HT_F32);
    return number_at(g, x, dtype, value);
}

/* op(x, number) in x's type: x is not widened by the number's own. */
static ht_val with_number(ht_graph *g, const char *op, ht_val x, double value)
{
    ht_val number = ht_number_beside(g, x, value);
    if (ht_graph_status(g) != HT_OK) return HT_NONE;
    ht_type want = *ht_type_of(g, x);
    if (!ht_dtype_is_float(want.dtype) && ht_round_to(want.dtype, value) != value) {
        ht_graph_fail(g, HT_EDTYPE, "%s: %g is no number of type %s", op, value, ht_dtype_name(want.dtype));
        return HT_NONE;
    }
    if (want.rank > 0) number = ht_expand(g, number, want.rank, want.dim);
    return ht_emit1(g, op, &want, HT_VALS(x, number), HT_NO_ATTRS);
}

ht_val ht_scale(ht_graph *g, ht_val x, double factor)
{
    return with_number(g, "mul", x, factor);
}

ht_val ht_add_scalar(ht_graph *g, ht_val x, double term)
{
    return with_number(g, "add", x, term);
}
