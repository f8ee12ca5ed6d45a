/* max_pool2d, avg_pool2d and their gradients for the CUDA device. x, y: any float but f8, row-major; tap: u8 or i32 out,
 * any integer in. Numerics: as pool2d.cpu.c. Traffic: the input once per tap, from the caches. Bound: bandwidth. */
#include "kernel/conv/window_text.h"

static void include(ht_cuda_emission *e)
{
    ht_cuda_include(e, "window");
    ht_cuda_include(e, "pool2d");
}

/* A thread for each element of the result: function<elements, window more>(operands). */
static void emit_pool(ht_cuda_emission *e, const ht_call *call, const ht_type *x, const char *function,
                      const char *more, const char *operands)
{
    ht_window window = ht_pool_of(call, x);
    ht_window_text text;
    int64_t elems = ht_type_elems(call->out[0]);
    if (elems == 0) return;
    include(e);
    ht_cuda_add_grid(e, ht_cuda_blocks(elems, HT_CUDA_THREADS), HT_CUDA_THREADS, 0, "%s<%lld, %s%s>(%s);", function,
                     (long long)elems, ht_window_write(&window, &text), more, operands);
}

static const char *padding(const ht_call *call)
{
    return ht_call_int(call, "exclude_padding") ? ", true" : ", false";
}

static void max_pool2d(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_pool(e, launch->call, launch->call->in[0], "max_pool", "", "in0, out0, out1");
}

static void avg_pool2d(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_pool(e, launch->call, launch->call->in[0], "avg_pool", padding(launch->call), "in0, out0");
}

static void avg_pool2d_grad(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_pool(e, launch->call, launch->call->out[0], "avg_pool_grad", padding(launch->call), "in0, out0");
}

static void max_pool2d_grad(ht_cuda_emission *e, const ht_launch *launch)
{
    emit_pool(e, launch->call, launch->call->out[0], "max_pool_grad", "", "in0, in1, out0");
}

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_refuse(call);
}

HT_CUDA_KERNEL(max_pool2d, can, NULL, max_pool2d)
HT_CUDA_KERNEL(max_pool2d_grad, can, NULL, max_pool2d_grad)
HT_CUDA_KERNEL(avg_pool2d, can, NULL, avg_pool2d)
HT_CUDA_KERNEL(avg_pool2d_grad, can, NULL, avg_pool2d_grad)
