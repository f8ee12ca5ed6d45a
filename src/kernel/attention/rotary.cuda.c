/* rotary for the CUDA device.
 * x [.., T, D]: any float but f8, any strides but 1 along the last axis; position [T] or [B,T].
 * Numerics: angle, sine and cosine in double, then real and one rounding. The table of sines and cosines [P,D] is
 * made once for all heads. Traffic: 1 read, 1 write, the table from the cache. Bound: bandwidth. */
#include <math.h>

#include "kernel/cuda/cuda.h"
#include "op/op.h"

static void write_frequencies(ht_text *text, double base, int64_t half)
{
    ht_text_add(text, "DEVICE_TABLE double frequencies[] = {\n");
    for (int64_t j = 0; j < half; j++) ht_text_add(text, "    %a,\n", pow(base, -2.0 * (double)j / (double)(2 * half)));
    ht_text_add(text, "};\n");
}

static void rotary(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    const ht_type *x = call->in[0], *position = call->in[1];
    if (ht_type_elems(x) == 0) return;
    int64_t steps = x->dim[x->rank - 2], half = x->dim[x->rank - 1] / 2, rows = ht_type_elems(x) / (2 * half);
    int64_t shared = position->rank == 2 ? rows / x->dim[0] : rows, positions = ht_type_elems(position);
    ht_text axes = {0};
    for (int i = x->rank - 2; i >= 0; i--)
        ht_text_add(&axes, ", axis<%lld, 0, %lld>", (long long)x->dim[i], (long long)x->stride[i]);
    ht_cuda_include(e, "strided");
    ht_cuda_include(e, "rotary");
    write_frequencies(&e->text, ht_call_float(call, "base"), half);
    ht_cuda_add_grid(e, ht_cuda_blocks(positions * half, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "fill_rotations<%lld, %lld>(in1, frequencies, (real)%d, (real *)workspace);", (long long)positions,
                     (long long)half, ht_call_int(call, "inverse") ? -1 : 1);
    ht_cuda_add_grid(e, ht_cuda_blocks(rows * half, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "rotate<%s, %lld, %lld, %lld, %lld, %s%s>(in0, (const real *)workspace, out0);",
                     ht_type_elems(x) < INT32_MAX ? "uint32_t" : "uint64_t", (long long)rows, (long long)half,
                     (long long)steps, (long long)shared, ht_call_int(call, "interleaved") ? "true" : "false",
                     axes.data ? axes.data : "");
    e->text.failed |= axes.failed;
    ht_text_free(&axes);
}

static int64_t rotary_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    const ht_type *x = call->in[0];
    return ht_type_elems(call->in[1]) * x->dim[x->rank - 1] * (ht_cuda_has_f64(call) ? 8 : 4);
}

static const char *rotary_can(const ht_call *call, const ht_target *target)
{
    const ht_type *x = call->in[0];
    const char *reason = ht_cuda_elementwise_can(call, target);
    if (reason) return reason;
    if (x->dim[x->rank - 1] > 1 && x->stride[x->rank - 1] != 1) return "the last axis of x is strided";
    return ht_type_contiguous(call->in[1]) ? NULL : "positions are strided";
}

HT_CUDA_KERNEL(rotary, rotary_can, rotary_workspace, rotary)
