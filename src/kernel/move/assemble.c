/* concat: the inputs side by side.  pad, unslice: a constant, and the input over a part of it.  Any strides, any type.
 * Numerics: bytes move; the constant rounds once.  Threads, traffic: strided.c; pad and unslice write the part twice.
 */
#include "kernel/move/strided.h"
#include "op/op.h"

static ht_status concat_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    const ht_type *out = call->out[0];
    int axis = ht_call_axis(call, "axis", out->rank);
    int64_t start = 0;
    for (size_t i = 0; i < call->n_in; i++) {
        const ht_type *in = call->in[i];
        ht_strided to = ht_strided_at(launch->out[0], out, start * out->stride[axis]);
        ht_strided from = ht_strided_at(launch->in[i], in, 0);
        ht_strided_copy(launch->pool, ht_dtype_bytes(in->dtype), in->rank, in->dim, &to, &from);
        start += in->dim[axis];
    }
    return HT_OK;
}

/* The constant everywhere: a copy of one element with strides of 0. */
static void fill_result(const ht_launch *launch, double value)
{
    const ht_type *out = launch->call->out[0];
    uint64_t element;
    ht_store_f64(&element, out->dtype, 0, value);
    ht_strided to = ht_strided_at(launch->out[0], out, 0), from = {.first = &element};
    ht_strided_copy(launch->pool, ht_dtype_bytes(out->dtype), out->rank, out->dim, &to, &from);
}

/* Input 0 into the result at starts and steps; an empty list stands for starts of 0, steps of 1. */
static void copy_part(const ht_launch *launch, const ht_attr *start, const ht_attr *step)
{
    const ht_type *in = launch->call->in[0];
    ht_type part = *launch->call->out[0];
    int64_t offset = 0;
    if (ht_type_elems(in) == 0) return;
    for (int i = 0; i < part.rank; i++) {
        if (start->count) offset += start->ints[i] * part.stride[i];
        if (step && step->count && in->dim[i] > 1) part.stride[i] *= step->ints[i];
    }
    ht_strided to = ht_strided_at(launch->out[0], &part, offset), from = ht_strided_at(launch->in[0], in, 0);
    ht_strided_copy(launch->pool, ht_dtype_bytes(in->dtype), in->rank, in->dim, &to, &from);
}

static ht_status pad_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    if (!ht_type_same_shape(call->in[0], call->out[0])) fill_result(launch, ht_call_float(call, "value"));
    copy_part(launch, ht_call_attr(call, "before"), NULL);
    return HT_OK;
}

static ht_status unslice_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    if (!ht_type_same_shape(call->in[0], call->out[0])) fill_result(launch, 0);
    copy_part(launch, ht_call_attr(call, "start"), ht_call_attr(call, "step"));
    return HT_OK;
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)call;
    (void)target;
    return NULL;
}

HT_MOVE_ROW(concat, can, concat_run)
HT_MOVE_ROW(pad, can, pad_run)
HT_MOVE_ROW(unslice, can, unslice_run)
