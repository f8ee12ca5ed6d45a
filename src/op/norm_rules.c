/* Shape checks and second derivatives shared by the norms; op/norm.h has the formulas. */
#include "op/norm.h"

static ht_norm_axes norm_over(const ht_type *x, unsigned stat_axes, unsigned param_axes)
{
    ht_norm_axes norm = {.rank = x->rank, .count = 1};
    for (int i = 0; i < x->rank; i++) {
        bool stat = stat_axes >> i & 1, param = param_axes >> i & 1;
        if (stat) {
            norm.stat[norm.n_stat++] = i;
            norm.count *= (double)x->dim[i];
        }
        if (param) norm.param[norm.n_param++] = i;
        norm.dims[i] = x->dim[i];
        norm.stat_dims[i] = stat ? 1 : x->dim[i];
        norm.param_dims[i] = param ? 1 : x->dim[i];
    }
    if (norm.count == 0) norm.count = 1;
    return norm;
}

ht_norm_axes ht_norm_last(const ht_type *x)
{
    unsigned last = 1u << (x->rank - 1);
    return norm_over(x, last, ~last);
}

ht_norm_axes ht_norm_channels(const ht_type *x)
{
    return norm_over(x, ~2u, ~2u);
}

ht_dtype ht_norm_wide(ht_dtype dtype)
{
    return dtype == HT_F64 ? HT_F64 : HT_F32;
}

const ht_type *ht_norm_input(const ht_call *call, size_t i)
{
    return i < call->n_in ? call->in[i] : NULL;
}

ht_status ht_norm_need_shape(ht_context *ctx, const ht_call *call, size_t i, int rank, const int64_t *dims)
{
    ht_type want = ht_type_make(call->in[i]->dtype, rank, dims);
    HT_TRY(ht_need_float(ctx, call, i));
    if (!ht_type_same_shape(call->in[i], &want)) {
        ht_type_text given, right;
        HT_FAIL(ctx, HT_ESHAPE, "input %zu is %s, not %s", i, ht_type_str(call->in[i], &given),
                ht_type_str(&want, &right));
    }
    return HT_OK;
}

ht_status ht_norm_need_params(ht_context *ctx, const ht_call *call, size_t first, int64_t size)
{
    for (size_t i = first; i < call->n_in; i++)
        if (call->in[i]) HT_TRY(ht_norm_need_shape(ctx, call, i, 1, &size));
    return HT_OK;
}

ht_status ht_norm_need_eps(ht_context *ctx, const ht_call *call)
{
    double eps = ht_call_float(call, "eps");
    if (!(eps >= 0 && eps < INFINITY)) HT_FAIL(ctx, HT_EINVAL, "eps %g must be finite and not negative", eps);
    return HT_OK;
}

ht_val ht_norm_stat(ht_graph *g, const ht_norm_axes *norm, ht_val v)
{
    return ht_reshape(g, v, norm->rank, norm->stat_dims);
}

ht_val ht_norm_param(ht_graph *g, const ht_norm_axes *norm, ht_val v)
{
    return ht_reshape(g, v, norm->rank, norm->param_dims);
}

/* Reductions take "no axes" for "all axes". */
static ht_val sum_over(ht_graph *g, int n, const int64_t *axes, ht_val v)
{
    return n ? ht_sum(g, v, n, axes, false) : v;
}

ht_val ht_norm_total(ht_graph *g, const ht_norm_axes *norm, ht_val v)
{
    return sum_over(g, norm->n_param, norm->param, v);
}

ht_val ht_norm_plus(ht_graph *g, ht_val a, ht_val b)
{
    if (!a.id) return b;
    return b.id ? ht_add(g, a, b) : a;
}

static ht_val times(ht_graph *g, ht_val a, ht_val maybe)
{
    return maybe.id ? ht_mul(g, a, maybe) : a;
}

static ht_val mean_over(ht_graph *g, const ht_norm_axes *norm, ht_val v)
{
    return ht_mean(g, v, norm->n_stat, norm->stat, true);
}

/* The projection P: what the gradient op computes from v in place of dy scale, without the factor rstd. */
static ht_val project(ht_graph *g, const ht_norm_axes *norm, ht_val v, ht_val xhat, bool centred)
{
    ht_val along = ht_mul(g, xhat, mean_over(g, norm, ht_mul(g, v, xhat)));
    if (centred) v = ht_sub(g, v, mean_over(g, norm, v));
    return ht_sub(g, v, along);
}

/* With P the projection above (symmetric, so it is its own gradient):
 *     L = Σ a rstd P(g) + Σ b dy xhat + Σ e dy
 *     dL/dg = rstd P(a);   dL/dxhat = -rstd (mean(a xhat) g + mean(g xhat) a) + b dy;   dL/drstd = Σ a P(g) + ... */
void ht_norm_differentiate(ht_graph *g, const ht_norm_axes *norm, ht_norm_second *s)
{
    bool centred = s->mean.id != 0, inner = s->need.x || s->need.mean || s->need.rstd;
    ht_val scale = ht_norm_param(g, norm, s->scale), b = ht_norm_param(g, norm, s->b);
    ht_val rstd = ht_norm_stat(g, norm, s->rstd);
    ht_val shifted = centred ? ht_sub(g, s->x, ht_norm_stat(g, norm, s->mean)) : s->x;
    ht_val xhat = ht_mul(g, shifted, rstd), to_xhat = HT_NONE;
    if (s->a.id && (s->need.dy || s->need.scale)) {
        ht_val to_g = ht_mul(g, rstd, project(g, norm, s->a, xhat, centred));
        if (s->need.dy) s->to_dy = times(g, to_g, scale);
        if (s->need.scale) s->to_scale = ht_norm_total(g, norm, ht_mul(g, s->dy, to_g));
    }
    if (s->need.dy && s->b.id) s->to_dy = ht_norm_plus(g, s->to_dy, ht_mul(g, b, xhat));
    if (s->need.dy && s->e.id)
        s->to_dy = ht_norm_plus(g, s->to_dy, ht_expand(g, ht_norm_param(g, norm, s->e), norm->rank, norm->dims));
    if (s->a.id && inner) {
        ht_val grad = times(g, s->dy, scale);
        ht_val with_a = ht_mul(g, grad, mean_over(g, norm, ht_mul(g, s->a, xhat)));
        ht_val with_g = ht_mul(g, s->a, mean_over(g, norm, ht_mul(g, grad, xhat)));
        to_xhat = ht_neg(g, ht_mul(g, rstd, ht_add(g, with_a, with_g)));
        if (s->need.rstd) {
            ht_val direct = ht_mul(g, s->a, project(g, norm, grad, xhat, centred));
            s->to_rstd = sum_over(g, norm->n_stat, norm->stat, direct);
        }
    }
    if (s->b.id && inner) to_xhat = ht_norm_plus(g, to_xhat, ht_mul(g, b, s->dy));
    if (!to_xhat.id) return;
    ht_val to_x = ht_mul(g, to_xhat, rstd);
    if (s->need.x) s->to_x = to_x;
    if (s->need.mean) s->to_mean = ht_neg(g, sum_over(g, norm->n_stat, norm->stat, to_x));
    if (s->need.rstd) {
        ht_val through = sum_over(g, norm->n_stat, norm->stat, ht_mul(g, to_xhat, shifted));
        s->to_rstd = ht_norm_plus(g, s->to_rstd, through);
    }
}
