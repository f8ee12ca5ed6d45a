/* gather, embedding, embedding_q, one_hot for the CUDA device: any type but f8, index i32 or i64, row-major. Traffic: index, what
 * it asks for, 1 write. Bound: bandwidth. */
#include "kernel/move/strided_text.h"
#include "op/op.h"

static void include(ht_cuda_emission *e)
{
    ht_cuda_include(e, "strided");
    ht_cuda_include(e, "lookup");
}

static void embedding(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *table = launch->call->in[0], *index = launch->call->in[1];
    size_t elem = ht_dtype_bytes(table->dtype);
    uintptr_t alignment = (uintptr_t)launch->in[0] | (uintptr_t)launch->out[0];
    size_t bytes = ht_text_word_bytes(elem, table->dim[1], alignment);
    int64_t rows = ht_type_elems(index), words = table->dim[1] / (int64_t)(bytes / elem);
    if (rows * words == 0) return;
    include(e);
    ht_cuda_add_grid(e, ht_cuda_blocks(rows * words, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "embed<%s, %lld, %lld, %lld>(in0, in1, out0);", ht_text_word(bytes), (long long)rows,
                     (long long)words, (long long)table->dim[0]);
}

static void embedding_q(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *table = launch->call->in[0], *index = launch->call->in[2];
    int64_t rows = ht_type_elems(index), columns = table->dim[1];
    if (rows * columns == 0) return;
    include(e);
    ht_cuda_add_grid(e, ht_cuda_blocks(rows * columns, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "embed_codes<%lld, %lld, %lld, %s>(in0, in1, in2, out0);", (long long)rows, (long long)columns,
                     (long long)table->dim[0], launch->call->in[1]->rank ? "false" : "true");
}

static void gather(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *x = launch->call->in[0], *out = launch->call->out[0];
    int axis = ht_call_axis(launch->call, "axis", x->rank);
    int64_t elems = ht_type_elems(out);
    ht_text axes = {0};
    if (elems == 0) return;
    for (int i = out->rank - 1; i >= 0; i--)
        ht_text_add(&axes, ", axis<%lld, 0, %lld>", (long long)out->dim[i], (long long)(i == axis ? 0 : x->stride[i]));
    include(e);
    ht_cuda_add_grid(e, ht_cuda_blocks(elems, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "gather<%s, %s, %lld, %lld, %lld%s>(in0, in1, out0);", ht_text_word(ht_dtype_bytes(x->dtype)),
                     elems < INT32_MAX ? "uint32_t" : "uint64_t", (long long)elems, (long long)x->dim[axis],
                     (long long)x->stride[axis], axes.data ? axes.data : "");
    e->text.failed |= axes.failed;
    ht_text_free(&axes);
}

static void one_hot(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *labels = launch->call->in[0], *out = launch->call->out[0];
    int64_t rows = ht_type_elems(labels), depth = out->dim[labels->rank];
    if (rows * depth == 0) return;
    include(e);
    ht_cuda_add_grid(e, ht_cuda_blocks(rows * depth, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "one_hot<%s, %lld, %lld>(in0, 0x%llxull, out0);", ht_text_word(ht_dtype_bytes(out->dtype)),
                     (long long)rows, (long long)depth, (unsigned long long)ht_text_bits(out->dtype, 1));
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

HT_CUDA_KERNEL(gather, can, NULL, gather)
HT_CUDA_KERNEL(embedding, can, NULL, embedding)
HT_CUDA_KERNEL(embedding_q, can, NULL, embedding_q)
HT_CUDA_KERNEL(one_hot, can, NULL, one_hot)
