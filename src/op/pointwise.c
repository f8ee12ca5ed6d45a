/* Point-wise ops: shape inference, promotion, cost, references, samples and builders, all made from the rows of
 * pointwise.def; the gradients are in pointwise_grad.c. */
#include "op/pointwise.h"

#include "op/op.h"

/* ---- shape rules ---- */

/* Broadcasting: sizes of 1 and missing leading axes are repeated. */
static bool broadcast(ht_type *shape, const ht_type *other)
{
    int rank = shape->rank > other->rank ? shape->rank : other->rank;
    ht_type wide = *shape;
    wide.rank = rank;
    for (int d = 1; d <= rank; d++) {
        int64_t a = d <= shape->rank ? shape->dim[shape->rank - d] : 1;
        int64_t b = d <= other->rank ? other->dim[other->rank - d] : 1;
        if (a != b && a != 1 && b != 1) return false;
        wide.dim[rank - d] = a == 1 ? b : a;
    }
    *shape = wide;
    return true;
}

/* Builders broadcast by an expand before the op; in a graph that is written as text it is written out. */
static ht_status refuse_shapes(ht_context *ctx, const ht_call *call, size_t other)
{
    const ht_type *in[2] = {call->in[0], call->in[other]};
    ht_type shape = *in[0];
    ht_type_text a, b, wide;
    ht_type_str(in[0], &a);
    ht_type_str(in[1], &b);
    if (!broadcast(&shape, in[1])) HT_FAIL(ctx, HT_ESHAPE, "shapes differ: %s and %s", a.text, b.text);
    size_t narrow = !ht_type_same_shape(in[1], &shape);
    ht_type wanted = ht_type_make(in[narrow]->dtype, shape.rank, shape.dim);
    HT_FAIL(ctx, HT_ESHAPE, "shapes differ: %s and %s; nodes do not broadcast: use expand %s on input %zu", a.text,
            b.text, ht_type_str(&wanted, &wide), narrow ? other : 0);
}

static ht_status same_shapes(ht_context *ctx, const ht_call *call)
{
    for (size_t i = 1; i < call->n_in; i++)
        if (!ht_type_same_shape(call->in[0], call->in[i])) return refuse_shapes(ctx, call, i);
    return HT_OK;
}

/* Type promotion of the inputs from `first` on: floats promote, all other types must agree. */
static ht_status common_dtype(ht_context *ctx, const ht_call *call, size_t first, ht_dtype *dtype)
{
    *dtype = call->in[first]->dtype;
    for (size_t i = first + 1; i < call->n_in; i++) {
        ht_dtype other = call->in[i]->dtype;
        if (ht_dtype_is_float(*dtype) && ht_dtype_is_float(other))
            *dtype = ht_wider(*dtype, other);
        else if (*dtype != other)
            HT_FAIL(ctx, HT_EDTYPE, "number types differ: %s and %s", ht_dtype_name(*dtype), ht_dtype_name(other));
    }
    return HT_OK;
}

static ht_status infer_number(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_dtype dtype;
    HT_TRY(same_shapes(ctx, call));
    HT_TRY(common_dtype(ctx, call, 0, &dtype));
    if (dtype == HT_BOOL) HT_FAIL(ctx, HT_EDTYPE, "takes numbers, not bool");
    out[0] = *call->in[0];
    out[0].dtype = dtype;
    return HT_OK;
}

static ht_status infer_float(ht_context *ctx, const ht_call *call, ht_type *out)
{
    for (size_t i = 0; i < call->n_in; i++) HT_TRY(ht_need_float(ctx, call, i));
    return infer_number(ctx, call, out);
}

static ht_status infer_compare(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_dtype dtype;
    HT_TRY(same_shapes(ctx, call));
    HT_TRY(common_dtype(ctx, call, 0, &dtype));
    out[0] = *call->in[0];
    out[0].dtype = HT_BOOL;
    return HT_OK;
}

static ht_status infer_logic(ht_context *ctx, const ht_call *call, ht_type *out)
{
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i]->dtype != HT_BOOL)
            HT_FAIL(ctx, HT_EDTYPE, "input %zu is %s, not bool", i, ht_dtype_name(call->in[i]->dtype));
    return infer_compare(ctx, call, out);
}

static ht_status infer_select(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_dtype dtype;
    if (call->in[0]->dtype != HT_BOOL)
        HT_FAIL(ctx, HT_EDTYPE, "the condition is %s, not bool", ht_dtype_name(call->in[0]->dtype));
    HT_TRY(same_shapes(ctx, call));
    HT_TRY(common_dtype(ctx, call, 1, &dtype));
    out[0] = *call->in[0];
    out[0].dtype = dtype;
    return HT_OK;
}

static ht_status infer_clip(ht_context *ctx, const ht_call *call, ht_type *out)
{
    double low = ht_call_float(call, "low"), high = ht_call_float(call, "high");
    if (!(low <= high)) HT_FAIL(ctx, HT_EINVAL, "from low %g to high %g is no range", low, high);
    return infer_float(ctx, call, out);
}

static ht_status infer_cast(ht_context *ctx, const ht_call *call, ht_type *out)
{
    ht_type_text a, b;
    if (!ht_type_same_shape(call->in[0], &out[0]))
        HT_FAIL(ctx, HT_ESHAPE, "a cast keeps the shape: %s to %s", ht_type_str(call->in[0], &a),
                ht_type_str(&out[0], &b));
    return HT_OK;
}

/* ---- what a kind of row means ---- */

#define KIND_FLOAT1  infer_float, NULL, 1
#define KIND_FLOAT2  infer_float, NULL, 2
#define KIND_NUMBER1 infer_number, NULL, 1
#define KIND_NUMBER2 infer_number, NULL, 2
#define KIND_SELECT  infer_select, NULL, 3
#define KIND_CLIP    infer_clip, clip_attrs, 1
#define KIND_CAST    infer_cast, NULL, 1
#define KIND_COMPARE infer_compare, NULL, 2
#define KIND_LOGIC1  infer_logic, NULL, 1
#define KIND_LOGIC2  infer_logic, NULL, 2

static const ht_attr_def clip_attrs[] = {
    HT_DEF_FLOAT("low", -INFINITY),
    HT_DEF_FLOAT("high", INFINITY),
    HT_DEF_END,
};

/* ---- references: the row's expression in f64, or the integer one ---- */

typedef double real;

static int64_t wrap(ht_dtype dtype, int64_t x)
{
    if (dtype == HT_I8) return (int8_t)(uint64_t)x;
    if (dtype == HT_U8) return (uint8_t)(uint64_t)x;
    if (dtype == HT_I32) return (int32_t)(uint64_t)x;
    return x;
}

/* An i64 that went through f64. */
static int64_t whole(double x)
{
    return x >= 0x1p63 ? INT64_MAX : (int64_t)x;
}

#define REF_HEAD(name)                                                                                                 \
    static void name##_ref(const ht_call *call, const double *const *in, double *const *out)                           \
    {                                                                                                                  \
        int64_t n = ht_type_elems(call->out[0]);                                                                       \
        double *y = out[0];
#define REF_LOOP1(expression)                                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        real x = in[0][i];                                                                                             \
        y[i] = (real)(expression);                                                                                     \
    }
#define REF_LOOP2(expression)                                                                                          \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        real a = in[0][i], b = in[1][i];                                                                               \
        y[i] = (real)(expression);                                                                                     \
    }
#define REF_IF_INTEGER                                                                                                 \
    ht_dtype dtype = call->out[0]->dtype;                                                                              \
    if (!ht_dtype_is_float(dtype))

#define REF_FLOAT1(name, expression, integers)                                                                         \
    REF_HEAD(name) REF_LOOP1(expression)                                                                               \
    }
#define REF_FLOAT2(name, expression, integers)                                                                         \
    REF_HEAD(name) REF_LOOP2(expression)                                                                               \
    }
#define REF_COMPARE(name, expression, integers) REF_FLOAT2(name, expression, )
#define REF_LOGIC1(name, expression, integers)  REF_FLOAT1(name, expression, )
#define REF_LOGIC2(name, expression, integers)  REF_FLOAT2(name, expression, )
#define REF_NUMBER1(name, expression, integers)                                                                        \
    REF_HEAD(name)                                                                                                     \
    REF_IF_INTEGER for (int64_t i = 0; i < n; i++)                                                                     \
    {                                                                                                                  \
        int64_t x = whole(in[0][i]);                                                                                   \
        y[i] = (real)wrap(dtype, (int64_t)(integers));                                                                 \
    }                                                                                                                  \
    else REF_LOOP1(expression)                                                                                         \
    }
#define REF_NUMBER2(name, expression, integers)                                                                        \
    REF_HEAD(name)                                                                                                     \
    REF_IF_INTEGER for (int64_t i = 0; i < n; i++)                                                                     \
    {                                                                                                                  \
        int64_t a = whole(in[0][i]), b = whole(in[1][i]);                                                              \
        y[i] = (real)wrap(dtype, (int64_t)(integers));                                                                 \
    }                                                                                                                  \
    else REF_LOOP2(expression)                                                                                         \
    }
#define REF_SELECT(name, expression, integers)                                                                         \
    REF_HEAD(name)                                                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        bool c = in[0][i] != 0;                                                                                        \
        real a = in[1][i], b = in[2][i];                                                                               \
        y[i] = (expression);                                                                                           \
    }                                                                                                                  \
    }
#define REF_CLIP(name, expression, integers)                                                                           \
    REF_HEAD(name)                                                                                                     \
    real low = ht_call_float(call, "low"), high = ht_call_float(call, "high");                                         \
    REF_LOOP1(expression)                                                                                              \
    }
/* A cast to a float rounds as the type of its result does for every op; a cast to anything else is a function. */
#define REF_CAST(name, expression, integers)                                                                           \
    REF_HEAD(name)                                                                                                     \
    REF_IF_INTEGER for (int64_t i = 0; i < n; i++) y[i] = ht_round_to(dtype, in[0][i]);                                \
    else REF_LOOP1(expression)                                                                                         \
    }

/* ---- samples ---- */

#define SAMPLES_FLOAT1(p, q)                                                                                           \
    "(f32[3,5] " p ")", "(f32[] " p ")", "(f32[0,4] " p ")", "(f64[7] " q ")", "(bf16[33] " q ")",                     \
        "(f16[2,3,4] " p ")", "(f32[3,500] " q ")"
#define SAMPLES_FLOAT2(p, q)                                                                                           \
    "(f32[3,5] " p ", f32[3,5] " q ")", "(f32[] " q ", f32[] " p ")", "(f32[0,4] " p ", f32[0,4] " q ")",              \
        "(f64[7] " q ", f64[7] " p ")", "(bf16[33] " p ", f32[33] " q ")", "(f16[2,3,4] " p ", bf16[2,3,4] " q ")",    \
        "(f32[3,500] " q ", f32[3,500] " p ")"
#define SAMPLES_NUMBER1(p, q)                                                                                          \
    SAMPLES_FLOAT1(p, q), "(i64[2,3] -9..9)", "(i32[7] -9..9)", "(i8[5] -9..9)", "(u8[5] 0..9)"
#define SAMPLES_NUMBER2(p, q)                                                                                          \
    SAMPLES_FLOAT2(p, q), "(i64[2,3] -9..9, i64[2,3] -9..9)", "(i32[17,1001] -9..9, i32[17,1001] -9..9)",              \
        "(i8[5] -99..99, i8[5] -99..99)", "(u8[5] 0..99, u8[5] 0..99)"
#define SAMPLES_SELECT(p, q)                                                                                           \
    "(bool[3,5], f32[3,5], f32[3,5])", "(bool[], f32[], f32[])", "(bool[0], f32[0], f32[0])",                          \
        "(bool[33], bf16[33], f32[33])", "(bool[7], i32[7] -9..9, i32[7] -9..9)", "(bool[7], bool[7], bool[7])",       \
        "(bool[5,4001], f32[5,4001], f32[5,4001])"
#define SAMPLES_CLIP(p, q)                                                                                             \
    "(f32[3,5] -0.4..0.7) low=-0.5 high=0.75", "(f32[] 0.8..2) low=-0.5 high=0.75", "(f32[0,4]) low=0 high=1",         \
        "(bf16[33] -2..-0.6) low=-0.5 high=0.75", "(f32[5] 0.1..2) low=0", "(f32[5,4001] 0.8..2) low=-0.5 high=0.75"
#define SAMPLES_CAST(p, q)                                                                                             \
    "(f32[3,5] -4..4) -> bf16[3,5]", "(f32[33] -4..4) -> f16[33]", "(f64[] -4..4) -> f32[]", "(f32[0]) -> bf16[0]",    \
        "(f32[7] -500..500) -> f8e4m3[7]", "(f8e5m2[7] -4..4) -> f32[7]", "(f32[9] -300..300) -> i8[9]",               \
        "(f32[9] -9..9) -> i64[9]", "(i64[9] -300..300) -> u8[9]", "(i32[9] -99999..99999) -> bf16[9]",                \
        "(i32[9] -2..2) -> bool[9]", "(bool[9]) -> f32[9]", "(bf16[5,4001] -4..4) -> f32[5,4001]"
#define SAMPLES_COMPARE(p, q)                                                                                          \
    "(f32[3,5], f32[3,5])", "(f32[], f32[])", "(f32[0], f32[0])", "(f64[7], f64[7])", "(bf16[33], f32[33])",           \
        "(i32[4,5] 0..3, i32[4,5] 0..3)", "(bool[9], bool[9])", "(i64[1200] -2..2, i64[1200] -2..2)",                  \
        "(f32[3,500], f32[3,500])"
#define SAMPLES_LOGIC1(p, q) "(bool[3,5])", "(bool[])", "(bool[0])", "(bool[1200])"
#define SAMPLES_LOGIC2(p, q)                                                                                           \
    "(bool[3,5], bool[3,5])", "(bool[], bool[])", "(bool[0], bool[0])", "(bool[1200], bool[1200])"

/* ---- the ops ---- */

/* Spreads the columns of a kind before they become arguments. */
#define OP(...) OP_(__VA_ARGS__)
#define OP_(id, infer_, attrs_, arity, flags_, grad_, reason)                                                          \
    const ht_op ht_point_##id = {                                                                                      \
        .size = sizeof(ht_op),                                                                                         \
        .name = #id,                                                                                                   \
        .prec = HT_PREC_POINT,                                                                                         \
        .fuse = HT_FUSE_POINT,                                                                                         \
        .flags = HT_OP_INPLACE | (flags_),                                                                             \
        .min_in = arity,                                                                                               \
        .max_in = arity,                                                                                               \
        .n_out = 1,                                                                                                    \
        .attrs = attrs_,                                                                                               \
        .infer = infer_,                                                                                               \
        .cost = id##_cost,                                                                                             \
        .grad = grad_,                                                                                                 \
        .no_grad = reason,                                                                                             \
        .ref = id##_ref,                                                                                               \
        .samples = id##_samples,                                                                                       \
    };

#define HT_POINT(id, kind, expression, integers, flags_, flops, gradient, range_p, range_q)                            \
    REF_##kind(id, expression, integers) HT_COST_PER_OUT(id##_cost, flops) static const char *const id##_samples[] = { \
        SAMPLES_##kind(range_p, range_q), NULL};                                                                       \
    OP(id, KIND_##kind, flags_, ht_##gradient, NULL)
#define HT_POINT_BOOL(id, kind, expression, flags_)                                                                    \
    REF_##kind(id, expression, )                                                                                       \
        HT_COST_PER_OUT(id##_cost, 1) static const char *const id##_samples[] = {SAMPLES_##kind("", ""), NULL};        \
    OP(id, KIND_##kind, flags_, NULL, "its result is bool")
#include "op/pointwise.def"
#undef HT_POINT
#undef HT_POINT_BOOL

/* ---- builders ---- */

/* The type that two inputs share. */
static ht_dtype promote(ht_dtype a, ht_dtype b)
{
    if (a == b) return a;
    if (ht_dtype_is_float(a)) return ht_dtype_is_float(b) ? ht_wider(a, b) : a;
    if (ht_dtype_is_float(b)) return b;
    if (a == HT_BOOL) return b;
    if (b == HT_BOOL) return a;
    return a == HT_I64 || b == HT_I64 ? HT_I64 : HT_I32;
}

/* Promotes the inputs from `first` on to one type and broadcasts them to one shape: integers and bool are cast, floats
 * of different width stay as they are. */
static ht_val build(ht_graph *g, const char *name, size_t n, const ht_val *given, size_t first, size_t n_attr,
                    const ht_attr *attr)
{
    if (ht_graph_status(g) != HT_OK) return HT_NONE;
    ht_val in[3];
    for (size_t i = 0; i < n; i++) {
        if (given[i].id == 0 || given[i].id >= g->value_count) {
            ht_graph_fail(g, HT_EINVAL, "%s: input %zu is no value of this graph", name, i);
            return HT_NONE;
        }
        in[i] = given[i];
    }
    ht_type shape = *ht_type_of(g, in[0]);
    ht_dtype dtype = ht_type_of(g, in[first])->dtype;
    for (size_t i = 1; i < n; i++) {
        ht_type_text a, b;
        if (!broadcast(&shape, ht_type_of(g, in[i]))) {
            ht_graph_fail(g, HT_ESHAPE, "%s: shapes do not broadcast: %s and %s", name, ht_type_str(&shape, &a),
                          ht_type_str(ht_type_of(g, in[i]), &b));
            return HT_NONE;
        }
        if (i > first) dtype = promote(dtype, ht_type_of(g, in[i])->dtype);
    }
    for (size_t i = 0; i < n; i++) {
        if (i >= first && !ht_dtype_is_float(ht_type_of(g, in[i])->dtype)) in[i] = ht_cast(g, in[i], dtype);
        if (!ht_type_same_shape(ht_type_of(g, in[i]), &shape)) in[i] = ht_expand(g, in[i], shape.rank, shape.dim);
    }
    return ht_emit1(g, name, NULL, n, in, n_attr, attr);
}

#define BUILD1(name)                                                                                                   \
    ht_val ht_##name(ht_graph *g, ht_val x)                                                                            \
    {                                                                                                                  \
        return build(g, #name, HT_VALS(x), 0, HT_NO_ATTRS);                                                            \
    }
#define BUILD2(name)                                                                                                   \
    ht_val ht_##name(ht_graph *g, ht_val a, ht_val b)                                                                  \
    {                                                                                                                  \
        return build(g, #name, HT_VALS(a, b), 0, HT_NO_ATTRS);                                                         \
    }
#define BUILD_FLOAT1(name)  BUILD1(name)
#define BUILD_FLOAT2(name)  BUILD2(name)
#define BUILD_NUMBER1(name) BUILD1(name)
#define BUILD_NUMBER2(name) BUILD2(name)
#define BUILD_COMPARE(name) BUILD2(name)
#define BUILD_LOGIC1(name)  BUILD1(name)
#define BUILD_LOGIC2(name)  BUILD2(name)
#define BUILD_SELECT(name)
#define BUILD_CLIP(name)
#define BUILD_CAST(name)
#define HT_POINT(name, kind, ...)      BUILD_##kind(name)
#define HT_POINT_BOOL(name, kind, ...) BUILD_##kind(name)
#include "op/pointwise.def"

ht_val ht_clip(ht_graph *g, ht_val x, double low, double high)
{
    return build(g, "clip", HT_VALS(x), 0, HT_ATTRS(HT_FLOAT("low", low), HT_FLOAT("high", high)));
}

ht_val ht_select(ht_graph *g, ht_val condition, ht_val a, ht_val b)
{
    return build(g, "select", HT_VALS(condition, a, b), 1, HT_NO_ATTRS);
}

ht_val ht_cast(ht_graph *g, ht_val x, ht_dtype dtype)
{
    if (ht_graph_status(g) != HT_OK || x.id >= g->value_count) return HT_NONE;
    ht_type want = *ht_type_of(g, x);
    if (x.id && want.dtype == dtype) return x;
    want.dtype = dtype;
    return ht_emit1(g, "cast", &want, HT_VALS(x), HT_NO_ATTRS);
}
