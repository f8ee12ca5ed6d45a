/* Shape checks, axes, promotion and costs shared by several ops. */
#include "op/rules.h"

#include <inttypes.h>

ht_status ht_infer_like_0(ht_context *ctx, const ht_call *call, ht_type *out)
{
    (void)ctx;
    out[0] = *call->in[0];
    return HT_OK;
}

ht_status ht_need_float(ht_context *ctx, const ht_call *call, size_t input)
{
    ht_dtype dtype = call->in[input]->dtype;
    if (!ht_dtype_is_float(dtype))
        HT_FAIL(ctx, HT_EDTYPE, "input %zu is %s, not floating point", input, ht_dtype_name(dtype));
    return HT_OK;
}

ht_status ht_need_int(ht_context *ctx, const ht_call *call, size_t input)
{
    ht_dtype dtype = call->in[input]->dtype;
    if (dtype != HT_I32 && dtype != HT_I64)
        HT_FAIL(ctx, HT_EDTYPE, "input %zu is %s, not i32 or i64", input, ht_dtype_name(dtype));
    return HT_OK;
}

ht_status ht_need_rank(ht_context *ctx, const ht_call *call, size_t input, int rank)
{
    ht_type_text text;
    if (call->in[input]->rank != rank)
        HT_FAIL(ctx, HT_ESHAPE, "input %zu is %s, not of rank %d", input, ht_type_str(call->in[input], &text), rank);
    return HT_OK;
}

ht_status ht_need_axis(ht_context *ctx, const ht_call *call, const char *key, int rank, int *axis)
{
    int64_t given = ht_call_int(call, key);
    if (given < -rank || given >= rank)
        HT_FAIL(ctx, HT_ESHAPE, "%s %" PRId64 " is outside a tensor of rank %d", key, given, rank);
    *axis = (int)(given < 0 ? given + rank : given);
    return HT_OK;
}

int ht_call_axis(const ht_call *call, const char *key, int rank)
{
    int64_t given = ht_call_int(call, key);
    return (int)(given < 0 ? given + rank : given);
}

ht_around ht_around_axis(const ht_type *type, int axis)
{
    ht_around around = {.outer = 1, .size = type->dim[axis], .inner = 1};
    for (int d = 0; d < axis; d++) around.outer *= type->dim[d];
    for (int d = axis + 1; d < type->rank; d++) around.inner *= type->dim[d];
    return around;
}

ht_status ht_need_flag(ht_context *ctx, const ht_call *call, const char *key)
{
    int64_t given = ht_call_int(call, key);
    if (given != 0 && given != 1) HT_FAIL(ctx, HT_EINVAL, "%s is 0 or 1, not %" PRId64, key, given);
    return HT_OK;
}

ht_status ht_need_axes(ht_context *ctx, const ht_call *call, const char *key)
{
    const ht_attr *axes = ht_call_attr(call, key);
    int rank = call->in[0]->rank;
    unsigned seen = 0;
    for (size_t i = 0; i < axes->count; i++) {
        int64_t axis = axes->ints[i] < 0 ? axes->ints[i] + rank : axes->ints[i];
        if (axis < 0 || axis >= rank)
            HT_FAIL(ctx, HT_ESHAPE, "axis %" PRId64 " is outside a tensor of rank %d", axes->ints[i], rank);
        if (seen >> axis & 1) HT_FAIL(ctx, HT_EINVAL, "axis %" PRId64 " is there twice", axes->ints[i]);
        seen |= 1u << axis;
    }
    return HT_OK;
}

unsigned ht_call_axes(const ht_call *call, const char *key, int rank)
{
    const ht_attr *axes = ht_call_attr(call, key);
    unsigned mask = 0;
    for (size_t i = 0; i < axes->count; i++) mask |= 1u << (axes->ints[i] < 0 ? axes->ints[i] + rank : axes->ints[i]);
    return axes->count ? mask : (1u << rank) - 1;
}

ht_dtype ht_wider(ht_dtype a, ht_dtype b)
{
    if (a == b) return a;
    size_t bytes_a = ht_dtype_bytes(a), bytes_b = ht_dtype_bytes(b);
    if (bytes_a == bytes_b) return HT_F32;
    return bytes_a > bytes_b ? a : b;
}

double ht_cost_rows(const ht_type *type, int64_t rows)
{
    ht_type part = *type;
    if (rows < part.dim[0]) part.dim[0] = rows;
    return (double)ht_type_distinct_bytes(&part);
}

void ht_cost_none(const ht_call *call, ht_cost *cost)
{
    (void)call;
    cost->other_flops = 0;
}
