/* rotary: rotary position embedding. Pair j of the last axis is rotated by the angle position * base^(-2j / D);
 * backwards when inverse. A pair is (j, j + D/2), or (2j, 2j + 1) when interleaved. It is linear in x, and the inverse
 * rotation is its transpose, so the gradient is the op itself with inverse flipped. */
#include "op/op.h"

#include <inttypes.h>

static ht_status check_flag(ht_context *ctx, const ht_call *call, const char *key)
{
    int64_t flag = ht_call_int(call, key);
    if (flag != 0 && flag != 1) HT_FAIL(ctx, HT_EINVAL, "%s is %" PRId64 ", not 0 or 1", key, flag);
    return HT_OK;
}

static ht_status rotary_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    const ht_type *x = call->in[0], *position = call->in[1];
    ht_type_text a, b;
    HT_TRY(ht_need_float(ctx, call, 0));
    HT_TRY(ht_need_int(ctx, call, 1));
    HT_TRY(check_flag(ctx, call, "interleaved"));
    HT_TRY(check_flag(ctx, call, "inverse"));
    double base = ht_call_float(call, "base");
    if (!isfinite(base) || base <= 0) HT_FAIL(ctx, HT_EINVAL, "base is %g, not a positive number", base);
    if (x->rank < 2 || x->dim[x->rank - 1] % 2 != 0)
        HT_FAIL(ctx, HT_ESHAPE, "input 0 is %s, not [.., T, D] with D even", ht_type_str(x, &a));
    bool each = position->rank == 1 && position->dim[0] == x->dim[x->rank - 2];
    bool by_sequence =
        position->rank == 2 && x->rank > 2 && position->dim[0] == x->dim[0] && position->dim[1] == x->dim[x->rank - 2];
    if (!each && !by_sequence)
        HT_FAIL(ctx, HT_ESHAPE, "positions %s do not fit %s: they are [T], or [B, T] with B its first axis",
                ht_type_str(position, &b), ht_type_str(x, &a));
    out[0] = *x;
    return HT_OK;
}

HT_COST_PER_OUT(rotary_cost, 3)

static ht_status rotary_grad(ht_graph *g, const ht_grad *d)
{
    if (!d->need[0] || !d->dy[0].id) return HT_OK;
    d->dx[0] = ht_emit1(g, "rotary", NULL, HT_VALS(d->dy[0], d->x[1]),
                        HT_ATTRS(HT_FLOAT("base", ht_call_float(d->call, "base")),
                                 HT_INT("interleaved", ht_call_int(d->call, "interleaved")),
                                 HT_INT("inverse", !ht_call_int(d->call, "inverse"))));
    return ht_graph_status(g);
}

static void rotary_ref(const ht_call *call, const double *const *in, double *const *out)
{
    const ht_type *type = call->in[0];
    int64_t steps = type->dim[type->rank - 2], width = type->dim[type->rank - 1], half = width / 2;
    if (ht_type_elems(type) == 0) return;
    int64_t count = ht_type_elems(type) / width, per_sequence = count / type->dim[0];
    bool interleaved = ht_call_int(call, "interleaved") != 0;
    double base = ht_call_float(call, "base"), sign = ht_call_int(call, "inverse") ? -1 : 1;
    for (int64_t row = 0; row < count; row++) {
        int64_t sequence = call->in[1]->rank == 2 ? row / per_sequence : 0;
        double position = in[1][sequence * steps + row % steps];
        for (int64_t j = 0; j < half; j++) {
            double angle = position * pow(base, -2.0 * (double)j / (double)width);
            double cosine = cos(angle), sine = sign * sin(angle);
            int64_t first = row * width + (interleaved ? 2 * j : j), second = first + (interleaved ? 1 : half);
            double a = in[0][first], b = in[0][second];
            out[0][first] = a * cosine - b * sine;
            out[0][second] = b * cosine + a * sine;
        }
    }
}

static const ht_attr_def rotary_attrs[] = {
    HT_DEF_FLOAT("base", 10000),
    HT_DEF_INT("interleaved", 0),
    HT_DEF_INT("inverse", 0),
    HT_DEF_END,
};

static const char *const rotary_samples[] = {
    "(f32[2,3,5,8], i32[5] 0..100)",
    "(f32[2,3,5,8], i64[2,5] 0..2000) interleaved=1",
    "(f32[4,6], i32[4] -3..9) base=500000 inverse=1",
    "(f32[3,4,2], i64[4] 0..1000000) interleaved=1 inverse=1",
    "(f32[2,0,4], i32[0])",
    "(f32[2,3,0], i32[3])",
    "(f32[2,2,33,30], i32[2,33] 0..4096)",
    NULL,
};

const ht_op ht_op_rotary = {
    .size = sizeof(ht_op),
    .name = "rotary",
    .prec = HT_PREC_POINT,
    .fuse = HT_FUSE_NONE,
    .min_in = 2,
    .max_in = 2,
    .n_out = 1,
    .attrs = rotary_attrs,
    .infer = rotary_infer,
    .cost = rotary_cost,
    .grad = rotary_grad,
    .ref = rotary_ref,
    .samples = rotary_samples,
};

ht_val ht_rotary(ht_graph *g, ht_val x, ht_val position, double base, bool interleaved)
{
    return ht_emit1(g, "rotary", NULL, HT_VALS(x, position),
                    HT_ATTRS(HT_FLOAT("base", base), HT_INT("interleaved", interleaved)));
}
