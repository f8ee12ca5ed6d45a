/* dynamic_slice, dynamic_update_slice for the CUDA device: as dynamic_rows.c, by strided.cuda.c; the first row is
 * read by the grid. */
#include <stdio.h>

#include "kernel/move/strided_text.h"
#include "op/op.h"

static const int64_t contiguous[1] = {1};

/* Row `first` (an input, i64[]) of x, where `rows` rows are taken or replaced. */
static ht_text_end rows_end(const ht_launch *launch, const char *name, const void *address, size_t first, int64_t rows)
{
    const ht_type *x = launch->call->in[0];
    int64_t row = x->dim[0] ? ht_type_elems(x) / x->dim[0] : 0;
    ht_text_end end = {.alignment = (uintptr_t)address | (uintptr_t)row * ht_dtype_bytes(x->dtype),
                       .stride = contiguous};
    snprintf(end.first, sizeof end.first, "%s + first_row<%lld, %lld>(in%zu) * %lld", name, (long long)x->dim[0],
             (long long)rows, first, (long long)row);
    return end;
}

static ht_text_end whole_end(const char *name, const void *address)
{
    ht_text_end end = {.alignment = (uintptr_t)address, .stride = contiguous};
    snprintf(end.first, sizeof end.first, "%s", name);
    return end;
}

static void copy_elements(ht_cuda_emission *e, const ht_text_end *to, const ht_text_end *from, const ht_type *type)
{
    int64_t elems = ht_type_elems(type);
    ht_text_copy(e, ht_dtype_bytes(type->dtype), 1, &elems, to, from);
}

static void dynamic_slice(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *out = launch->call->out[0];
    ht_text_end to = whole_end("out0", launch->out[0]), from = rows_end(launch, "in0", launch->in[0], 1, out->dim[0]);
    copy_elements(e, &to, &from, out);
}

static void dynamic_update_slice(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *out = launch->call->out[0], *update = launch->call->in[1];
    if (launch->out[0] == launch->in[1]) return; /* in the bytes of an update of all rows */
    ht_text_end all = whole_end("out0", launch->out[0]), x = whole_end("in0", launch->in[0]);
    ht_text_end to = rows_end(launch, "out0", launch->out[0], 2, update->dim[0]),
                from = whole_end("in1", launch->in[1]);
    if (launch->out[0] != launch->in[0]) copy_elements(e, &all, &x, out);
    copy_elements(e, &to, &from, update);
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

HT_CUDA_KERNEL(dynamic_slice, can, NULL, dynamic_slice)
HT_CUDA_KERNEL(dynamic_update_slice, can, NULL, dynamic_update_slice)
