/* quantize_dynamic, quantize_linear.  x: f32, f16, bf16, row-major; y: i8, u8.
 * Numerics: op/quantize_linear.h; the bits of the CPU's rows.
 * Threads: a block for each group that has a scale, which reads it twice; of quantize_linear one for each element.
 * Traffic: x twice, or once, y once.  Bound: bandwidth, where there are many groups. */
#include "kernel/cuda/cuda.h"
#include "op/op.h"

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_cuda_has_f64(call) ? "an operand is f64" : ht_cuda_refuse(call);
}

static void include(ht_cuda_emission *e)
{
    ht_cuda_include(e, "strided");
    ht_cuda_include(e, "codes");
    ht_cuda_include(e, "quantize_dynamic");
}

/* The axes of x that share a scale, or the others, from the last to the first. */
static void write_axes(ht_text *text, const ht_call *call, bool shared)
{
    const ht_type *x = call->in[0];
    const ht_code_groups groups = ht_code_groups_of(call);
    bool any = false;
    for (int i = x->rank - 1; i >= 0; i--) {
        if ((groups.stride[i] == 0) != shared && x->dim[i] != 1) continue;
        if (x->dim[i] == 1) continue;
        ht_text_add(text, "%saxis<%lld, 0, %lld>", any ? ", " : "", (long long)x->dim[i], (long long)x->stride[i]);
        any = true;
    }
    if (!any) ht_text_add(text, "axis<1, 0, 0>");
}

static void quantize_dynamic(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    int64_t elems = ht_type_elems(call->in[0]), groups = ht_type_elems(call->out[1]);
    int64_t count = groups ? elems / groups : 0;
    ht_text kept = {0}, shared = {0};
    if (groups == 0) return;
    write_axes(&kept, call, false);
    write_axes(&shared, call, true);
    include(e);
    ht_cuda_add_grid(e, groups, ht_cuda_row_threads(count), 0,
                     "quantize_group<%lld, %s>(axes<%s>{}, axes<%s>{}, in0, out0, out1, out2);", (long long)count,
                     ht_cuda_type(call->out[0]->dtype), kept.data ? kept.data : "", shared.data ? shared.data : "");
    e->text.failed |= kept.failed || shared.failed;
    ht_text_free(&kept);
    ht_text_free(&shared);
}

static void quantize_linear(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    const ht_type *x = call->in[0];
    const ht_code_groups groups = ht_code_groups_of(call);
    int64_t elems = ht_type_elems(x);
    ht_text axes = {0};
    if (elems == 0) return;
    for (int i = x->rank - 1; i >= 0; i--)
        ht_text_add(&axes, ", axis<%lld, 0, %lld>", (long long)x->dim[i], (long long)groups.stride[i]);
    if (x->rank == 0) ht_text_add(&axes, ", axis<1, 0, 0>");
    include(e);
    ht_cuda_add_grid(e, ht_cuda_blocks(elems, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "quantize_by<%lld%s>(in0, in1, %s, out0);", (long long)elems, axes.data ? axes.data : "",
                     call->n_in > 2 && call->in[2] ? "in2" : "nullptr");
    e->text.failed |= axes.failed;
    ht_text_free(&axes);
}

HT_CUDA_KERNEL(quantize_dynamic, can, NULL, quantize_dynamic)
HT_CUDA_KERNEL(quantize_linear, can, NULL, quantize_linear)
