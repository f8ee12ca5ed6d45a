/* max_pool2d, avg_pool2d and their gradients for the CUDA device. x, y: any float but f8, row-major or channels-last; tap:
 * u8 or i32 out, any integer in. Numerics: as pool2d.cpu.c. Traffic: the input once per tap, from the caches. Bound: bandwidth. */
#include "kernel/conv/window_text.h"

static void include(ht_cuda_emission *e)
{
    ht_cuda_include(e, "window");
    ht_cuda_include(e, "pool2d");
}

enum { PACK = 8 }; /* channels of a thread, where they lie together */

/* A thread for each element or pack of the result: function<elements, channels, pack, window more>(operands). */
static void emit_pool(ht_cuda_emission *e, const ht_launch *launch, const ht_type *x, const char *function,
                      const char *more, const char *operands)
{
    const ht_type *y = launch->call->out[0];
    ht_window window = ht_pool_of(launch->call, x);
    ht_window_text text;
    int64_t elems = ht_type_elems(y), channels = ht_cuda_channels_last(launch->call) ? y->dim[1] : 1;
    int pack = ht_cuda_pack(launch, channels, PACK);
    if (elems == 0) return;
    include(e);
    ht_cuda_add_grid(e, ht_cuda_blocks(elems / pack, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "%s<%lld, %lld, %d, %s%s>(%s);", function, (long long)elems, (long long)channels, pack,
                     ht_window_write(&window, &text), more, operands);
}

static const char *padding(const ht_call *call)
{
    return ht_call_int(call, "exclude_padding") ? ", true" : ", false";
}

static void max_pool2d(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_pool(e, launch, launch->call->in[0], "max_pool", "", "in0, out0, out1");
}

static void avg_pool2d(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_pool(e, launch, launch->call->in[0], "avg_pool", padding(launch->call), "in0, out0");
}

static void avg_pool2d_grad(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_pool(e, launch, launch->call->out[0], "avg_pool_grad", padding(launch->call), "in0, out0");
}

static void max_pool2d_grad(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_pool(e, launch, launch->call->out[0], "max_pool_grad", "", "in0, in1, out0");
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse_channels(call);
}

HT_CUDA_CHANNELS_KERNEL(max_pool2d, can, NULL, max_pool2d)
HT_CUDA_CHANNELS_KERNEL(max_pool2d_grad, can, NULL, max_pool2d_grad)
HT_CUDA_CHANNELS_KERNEL(avg_pool2d, can, NULL, avg_pool2d)
HT_CUDA_CHANNELS_KERNEL(avg_pool2d_grad, can, NULL, avg_pool2d_grad)
