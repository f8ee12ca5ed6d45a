/* fill, constant, iota for the CUDA device: any type but f8, row-major. Numerics: each value rounds once from f64;
 * fill and constant on the host. Traffic: one write. Bound: bandwidth. */
#include "kernel/move/strided_text.h"
#include "op/op.h"

static void include(ht_cuda_emission *e)
{
    ht_cuda_include(e, "strided");
    ht_cuda_include(e, "fill");
}

static void fill(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *type = launch->call->out[0];
    int64_t elems = ht_type_elems(type);
    size_t elem = ht_dtype_bytes(type->dtype), bytes = ht_text_word_bytes(elem, elems, (uintptr_t)launch->out[0]);
    int64_t count = elems / (int64_t)(bytes / elem);
    include(e);
    ht_cuda_add_grid(e, ht_cuda_blocks(count, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "fill_words<%s, %lld>(0x%llxull, out0);", ht_text_word(bytes), (long long)count,
                     (unsigned long long)ht_text_bits(type->dtype, ht_call_float(launch->call, "value")));
}

static void constant(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_attr *data = ht_call_attr(launch->call, "data");
    ht_dtype dtype = launch->call->out[0]->dtype;
    if (data->count == 0) return;
    include(e);
    const char *word = ht_text_word(ht_dtype_bytes(dtype));
    ht_text_add(&e->text, "DEVICE_TABLE %s constant_table[] = {\n", word);
    for (size_t i = 0; i < data->count; i++)
        ht_text_add(&e->text, "    (%s)0x%llxull,\n", word, (unsigned long long)ht_text_bits(dtype, data->floats[i]));
    ht_text_add(&e->text, "};\n");
    ht_cuda_add_grid(e, ht_cuda_blocks((int64_t)data->count, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "copy_table<%s, %zu>(constant_table, out0);", word, data->count);
}

static void iota(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_type *type = launch->call->out[0];
    ht_around a = ht_around_axis(type, ht_call_axis(launch->call, "axis", type->rank));
    int64_t elems = ht_type_elems(type);
    if (elems == 0) return;
    include(e);
    ht_cuda_add_grid(e, ht_cuda_blocks(elems, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "count_along<%lld, %lld, %lld>(out0);", (long long)elems, (long long)a.size, (long long)a.inner);
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

HT_CUDA_KERNEL(fill, can, NULL, fill)
HT_CUDA_KERNEL(constant, can, NULL, constant)
HT_CUDA_KERNEL(iota, can, NULL, iota)
