/* random_uniform, random_normal for the CUDA device: the numbers of draw.c.  Traffic: one write.  Bound: compute. */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

static void draw(ht_cuda_emission *e, const ht_launch *launch, const char *of, double shift, double scale)
{
    int64_t elems = ht_type_elems(launch->call->out[0]);
    ht_random_index index = ht_random_indices(launch->call, 1); /* its first number: numbers of a row */
    if (elems == 0) return;
    ht_cuda_include(e, "draw");
    ht_cuda_add_grid(e, ht_cuda_blocks(elems, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "draw<%s, %lluull, %lluull, %lluull, %lluull>(in0, in1, in2, 0x%llxull, %a, %a, out0);", of,
                     (unsigned long long)elems, (unsigned long long)index.first, (unsigned long long)index.block,
                     (unsigned long long)index.skip,
                     (unsigned long long)ht_hash_text(ht_call_text(launch->call, "site")), shift, scale);
}

static void random_uniform(ht_cuda_emission *e, const ht_launch *launch)
{
    double low = ht_call_float(launch->call, "low"), high = ht_call_float(launch->call, "high");
    draw(e, launch, "uniform_of", low, high - low);
}

static void random_normal(ht_cuda_emission *e, const ht_launch *launch)
{
    draw(e, launch, "normal_of", ht_call_float(launch->call, "mean"), ht_call_float(launch->call, "deviation"));
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

HT_CUDA_KERNEL(random_uniform, can, NULL, random_uniform)
HT_CUDA_KERNEL(random_normal, can, NULL, random_normal)
