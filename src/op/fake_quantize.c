/* fake_quantize: x as its codes stand for it, y = (code - zero) · scale with code = round(x / scale) + zero from `low` to `high`:
 * what quantize_linear and dequantize_linear give one after the other, for codes of any width, in f32 (f64 with f64).
 *
 * Inputs: x of any float type, the scales f32 (f64 with f64), the zero points i32 (left out: 0); `axes` as in quantize_linear. Numerics: those
 * of op/quantize_linear.h, so that a model that trains with it sees the weights and activations that its codes will have.
 *
 * The gradient is the straight-through estimator: rounding counts as the identity, and what lies beyond the codes has none. With
 * `learned` a scale has the gradient of LSQ (Esser et al., arXiv 1902.08153) by the same rule, over √(elements · high): y / scale
 * beyond the codes, (y - x) / scale among them. */
#include "op/op.h"

#include <inttypes.h>
#include <math.h>

enum { MOST_CODE = 1 << 20 };

/* ---- shapes ---- */

static ht_type groups_type(const ht_call *call, ht_dtype dtype)
{
    const ht_type *x = call->in[0];
    unsigned shared = ht_call_axes(call, "axes", x->rank);
    int64_t dim[HT_MAX_RANK];
    int rank = 0;
    for (int axis = 0; axis < x->rank; axis++)
        if (!(shared >> axis & 1)) dim[rank++] = x->dim[axis];
    return ht_type_make(dtype, rank, dim);
}

static ht_status need_type(ht_context *ctx, const ht_type *is, const ht_type *want, const char *what)
{
    ht_type_text a, b;
    if (is->dtype != want->dtype)
        HT_FAIL(ctx, HT_EDTYPE, "%s: %s, not %s", what, ht_type_str(is, &a), ht_type_str(want, &b));
    if (!ht_type_same_shape(is, want))
        HT_FAIL(ctx, HT_ESHAPE, "%s: %s, not %s", what, ht_type_str(is, &a), ht_type_str(want, &b));
    return HT_OK;
}

static ht_status fake_quantize_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    int64_t low = ht_call_int(call, "low"), high = ht_call_int(call, "high");
    const ht_type *x = call->in[0];
    HT_TRY(ht_need_float(ctx, call, 0));
    if (low < -MOST_CODE || low > 0 || high < 1 || high > MOST_CODE)
        HT_FAIL(ctx, HT_EINVAL, "codes from %" PRId64 " to %" PRId64 ": low is at most 0, high at least 1", low, high);
    HT_TRY(ht_need_axes(ctx, call, "axes"));
    HT_TRY(ht_need_flag(ctx, call, "learned"));
    ht_type scales = groups_type(call, x->dtype == HT_F64 ? HT_F64 : HT_F32), zeros = groups_type(call, HT_I32);
    HT_TRY(need_type(ctx, call->in[1], &scales, "the scales"));
    if (call->n_in > 2 && call->in[2]) HT_TRY(need_type(ctx, call->in[2], &zeros, "the zero points"));
    out[0] = ht_type_make(scales.dtype, x->rank, x->dim);
    return HT_OK;
}

HT_COST_PER_OUT(fake_quantize_cost, 5)

/* ---- reference ---- */

/* Steps from the zero point. */
static double steps_f64(double x, double scale, double low, double high)
{
    double steps = x * (1 / scale);
    steps = steps > low ? steps : low;
    return nearbyint(steps < high ? steps : high);
}

static void fake_quantize_ref(const ht_call *call, const double *const *in, double *const *out)
{
    ht_code_groups groups = ht_code_groups_of(call);
    int64_t lowest = ht_call_int(call, "low"), highest = ht_call_int(call, "high");
    bool wide = call->in[0]->dtype == HT_F64;
    for (int64_t i = 0; i < ht_type_elems(call->in[0]); i++) {
        int64_t group = ht_code_group(&groups, i), zero = call->n_in > 2 && call->in[2] ? (int64_t)in[2][group] : 0;
        zero = zero < lowest ? lowest : zero > highest ? highest : zero;
        double low = (double)(lowest - zero), high = (double)(highest - zero), scale = in[1][group];
        ht_coding coding = {1 / (float)scale, (float)low, (float)high, 0};
        out[0][i] = wide ? steps_f64(in[0][i], scale, low, high) * scale
                         : (double)((float)ht_code_of(&coding, (float)in[0][i]) * (float)scale);
    }
}

/* ---- gradient ---- */

/* A value per group, to broadcast over x: 1 along the axes that share one. */
static ht_val over_groups(ht_graph *g, ht_val v, const ht_call *call)
{
    const ht_type *x = call->in[0];
    unsigned shared = ht_call_axes(call, "axes", x->rank);
    int64_t dim[HT_MAX_RANK];
    for (int axis = 0; axis < x->rank; axis++) dim[axis] = shared >> axis & 1 ? 1 : x->dim[axis];
    return ht_reshape(g, v, x->rank, dim);
}

static ht_val sum_groups(ht_graph *g, ht_val v, const ht_call *call)
{
    int rank = call->in[0]->rank, count = 0;
    unsigned shared = ht_call_axes(call, "axes", rank);
    int64_t axes[HT_MAX_RANK];
    for (int axis = 0; axis < rank; axis++)
        if (shared >> axis & 1) axes[count++] = axis;
    return count ? ht_sum(g, v, count, axes, false) : v;
}

/* What rounds to a code of the range, the ends included: half a step beyond them. */
static ht_val within(ht_graph *g, const ht_grad *d, ht_val scale)
{
    const ht_call *call = d->call;
    double low = (double)ht_call_int(call, "low") - 0.5, high = (double)ht_call_int(call, "high") + 0.5;
    ht_val code = ht_div(g, d->x[0], scale);
    if (call->n_in > 2 && d->x[2].id)
        code = ht_add(g, code, over_groups(g, ht_cast(g, d->x[2], call->in[1]->dtype), call));
    return ht_and(g, ht_ge(g, code, ht_fill_like(g, code, low)), ht_le(g, code, ht_fill_like(g, code, high)));
}

static ht_status fake_quantize_grad(ht_graph *g, const ht_grad *d)
{
    const ht_call *call = d->call;
    ht_val scale = over_groups(g, d->x[1], call), inside = within(g, d, scale), zero = ht_fill_like(g, d->dy[0], 0);
    if (d->need[0]) d->dx[0] = ht_cast(g, ht_select(g, inside, d->dy[0], zero), call->in[0]->dtype);
    if (d->need[1] && ht_call_int(call, "learned")) {
        int64_t groups = ht_type_elems(call->in[1]), elements = ht_type_elems(call->in[0]);
        double weight = sqrt((double)(groups ? elements / groups : 1) * (double)ht_call_int(call, "high"));
        ht_val slope = ht_div(g, ht_sub(g, d->y[0], ht_select(g, inside, d->x[0], zero)), scale);
        ht_val sum = sum_groups(g, ht_mul(g, d->dy[0], slope), call);
        d->dx[1] = ht_cast(g, ht_scale(g, sum, 1 / weight), call->in[1]->dtype);
    }
    return ht_graph_status(g);
}

/* ---- the op ---- */

static const ht_attr_def fake_quantize_attrs[] = {HT_DEF_INTS("axes"), HT_DEF_INT("low", -127), HT_DEF_INT("high", 127),
                                                  HT_DEF_INT("learned", 0), HT_DEF_END};

static const char *const fake_quantize_samples[] = {
    "(f32[3,5], f32[] 0.003..0.02)",
    "(f32[3,5] -2..3, f32[] 0.003..0.02, i32[] 0..255) low=0 high=255",
    "(f32[300,7] -1..1, f32[7] 0.1..0.2) axes=[0] low=-7 high=7",
    "(f32[7,300] -1..1, f32[7] 0.1..0.2, i32[7] 0..15) axes=[-1] low=0 high=15 learned=1",
    "(f32[2,3,7] -1000..1000, f32[2,7] 1..8) axes=[1] low=-1 high=1",
    "(f32[64] -3..3, f32[] 0.5..0.5)",
    "(bf16[5,300] -1..1, f32[5] 0.1..0.2) axes=[1] low=-8 high=7",
    "(f16[300] -60000..60000, f32[] 500..600, i32[] 100..150) low=0 high=255",
    "(f32[4] -1e30..1e30, f32[] 1e-30..1e-30)",
    "(f32[], f32[] 0.1..0.2)",
    "(f32[0,4], f32[4] 0.1..0.2) axes=[0]",
    "(f32[70001] -1..1, f32[] 0.003..0.02, i32[] 3..3) low=0 high=255",
    NULL,
};

const ht_op ht_op_fake_quantize = {
    .size = sizeof(ht_op),
    .name = "fake_quantize",
    .prec = HT_PREC_EXACT,
    .flags = HT_OP_NO_FOLD,
    .min_in = 2,
    .max_in = 3,
    .n_out = 1,
    .attrs = fake_quantize_attrs,
    .infer = fake_quantize_infer,
    .cost = fake_quantize_cost,
    .grad = fake_quantize_grad,
    .ref = fake_quantize_ref,
    .samples = fake_quantize_samples,
};
