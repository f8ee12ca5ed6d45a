/* copy, copy_start, copy_done, reshape, permute, slice, expand for the CUDA device: as views.c, by strided.cuda.c. */
#include "kernel/move/strided_text.h"

static void copy(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *in = launch->call->in[0], *out = launch->call->out[0];
    ht_text_end to = ht_text_end_at("out0", launch->out[0], out, 0), from = ht_text_end_at("in0", launch->in[0], in, 0);
    ht_text_copy(e, ht_dtype_bytes(in->dtype), in->rank, in->dim, &to, &from);
}

/* A plan puts the result where copy_start has written. */
static void copy_done(ht_cuda_emission *e, const ht_launch *launch)
{
    if (launch->out[0] != launch->in[0]) copy(e, launch);
}

static void view(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *in = launch->call->in[0];
    ht_type from_view = *launch->call->out[0], whole = *launch->call->out[0];
    int64_t offset;
    ht_type_row_major(&whole);
    if (!launch->call->op->view(launch->call, &from_view, &offset)) {
        /* A reshape of strided elements: they are written in the order in which the input counts them. */
        from_view = whole = *in;
        ht_type_row_major(&whole);
        offset = 0;
    }
    ht_text_end to = ht_text_end_at("out0", launch->out[0], &whole, 0);
    ht_text_end from = ht_text_end_at("in0", launch->in[0], &from_view, offset);
    ht_text_copy(e, ht_dtype_bytes(in->dtype), from_view.rank, from_view.dim, &to, &from);
}

static const char *copy_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse_types(call);
}

HT_CUDA_KERNEL(copy, copy_can, NULL, copy)
HT_CUDA_KERNEL(copy_start, copy_can, NULL, copy)
HT_CUDA_KERNEL(copy_done, copy_can, NULL, copy_done)
HT_CUDA_KERNEL(reshape, ht_cuda_elementwise_can, NULL, view)
HT_CUDA_KERNEL(permute, ht_cuda_elementwise_can, NULL, view)
HT_CUDA_KERNEL(fan_out, ht_cuda_elementwise_can, NULL, view)
HT_CUDA_KERNEL(straight_through, ht_cuda_elementwise_can, NULL, view)
HT_CUDA_KERNEL(slice, ht_cuda_elementwise_can, NULL, view)
HT_CUDA_KERNEL(expand, ht_cuda_elementwise_can, NULL, view)
