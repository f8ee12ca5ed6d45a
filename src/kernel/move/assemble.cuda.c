/* concat, pad, unslice for the CUDA device: any strides, any type. Numerics: as assemble.c. Each element of the
 * result is written once, by one grid. */
#include <stdio.h>

#include "kernel/move/strided_text.h"
#include "op/op.h"

static void concat(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    const ht_type *out = call->out[0];
    int axis = ht_call_axis(call, "axis", out->rank);
    int64_t start = 0;
    ht_text_copies copies = {.emission = e};
    for (size_t i = 0; i < call->n_in; i++) {
        const ht_type *in = call->in[i];
        char name[24];
        snprintf(name, sizeof name, "in%zu", i);
        ht_text_end to = ht_text_end_at("out0", launch->out[0], out, start * out->stride[axis]);
        ht_text_end from = ht_text_end_at(name, launch->in[i], in, 0);
        ht_text_copies_add(&copies, ht_dtype_bytes(in->dtype), in->rank, in->dim, &to, &from);
        start += in->dim[axis];
    }
    ht_text_copies_finish(&copies);
}

/* Input 0 in the result at starts and steps; an empty list stands for starts of 0, steps of 1. */
static void write_part(ht_cuda_emission *e, const ht_launch *launch, const ht_attr *start, const ht_attr *step,
                       double rest)
{
    const ht_type *in = launch->call->in[0], *out = launch->call->out[0];
    ht_text_part parts[HT_MAX_RANK];
    for (int i = 0; i < out->rank; i++)
        parts[i] =
            (ht_text_part){start->count ? start->ints[i] : 0, step && step->count ? step->ints[i] : 1, in->dim[i]};
    ht_text_end to = ht_text_end_at("out0", launch->out[0], out, 0), from = ht_text_end_at("in0", launch->in[0], in, 0);
    ht_text_copy_part(e, out->dtype, out->rank, out->dim, parts, rest, &to, &from);
}

static void pad(ht_cuda_emission *e, const ht_launch *launch)
{
    write_part(e, launch, ht_call_attr(launch->call, "before"), NULL, ht_call_float(launch->call, "value"));
}

static void unslice(ht_cuda_emission *e, const ht_launch *launch)
{
    write_part(e, launch, ht_call_attr(launch->call, "start"), ht_call_attr(launch->call, "step"), 0);
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse_types(call);
}

HT_CUDA_KERNEL(concat, can, NULL, concat)
HT_CUDA_KERNEL(pad, can, NULL, pad)
HT_CUDA_KERNEL(unslice, can, NULL, unslice)
