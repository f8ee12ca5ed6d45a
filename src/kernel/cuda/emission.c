/* The text of a CUDA kernel: `real`, the prelude, the templates that the row names, then one entry for each grid. */
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "kernel/cuda/cuda.h"
#include "kernel/cuda/cuda_files.h"

const char *ht_cuda_type(ht_dtype dtype)
{
    static const char *const names[HT_DTYPE_COUNT] = {
        [HT_F64] = "double",   [HT_F32] = "float",     [HT_F16] = "f16",       [HT_BF16] = "bf16",
        [HT_I8] = "int8_t",    [HT_U8] = "uint8_t",    [HT_I32] = "int32_t",   [HT_I64] = "int64_t",
        [HT_BOOL] = "boolean", [HT_F8E4M3] = "f8e4m3", [HT_F8E5M2] = "f8e5m2", /* of f8.cu */
    };
    return names[dtype];
}

int64_t ht_cuda_blocks(int64_t n, int threads)
{
    return (n + threads - 1) / threads;
}

int ht_cuda_row_threads(int64_t n)
{
    int threads = 32;
    while (threads < HT_CUDA_THREADS && threads < n) threads *= 2;
    return threads;
}

/* A single number has no neighbours to be read with. */
static bool is_operand_aligned(const ht_type *type, const void *address)
{
    enum { WIDEST = 16 }; /* bytes of a load */
    return !type || ht_type_elems(type) <= 1 || (uintptr_t)address % WIDEST == 0;
}

static bool is_aligned(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    bool aligned = true;
    for (size_t i = 0; i < call->n_in; i++) aligned &= is_operand_aligned(call->in[i], launch->in[i]);
    for (size_t i = 0; i < call->n_out; i++) aligned &= is_operand_aligned(call->out[i], launch->out[i]);
    return aligned;
}

int ht_cuda_pack(const ht_launch *launch, int64_t run, int most)
{
    int pack = is_aligned(launch) ? most : 1;
    while (run % pack != 0) pack /= 2;
    return pack;
}

const char *ht_cuda_optional(const ht_call *call, size_t input)
{
    static const char *const names[] = {"in0", "in1", "in2", "in3", "in4", "in5", "in6", "in7"};
    return input < call->n_in && call->in[input] ? names[input] : "(const real *)nullptr";
}

const char *ht_cuda_refuse_types(const ht_call *call)
{
    for (size_t i = 0; i < call->n_in + call->n_out; i++) {
        const ht_type *type = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        if (type && (type->dtype == HT_F8E4M3 || type->dtype == HT_F8E5M2)) return "an operand is f8";
    }
    return NULL;
}

const char *ht_cuda_refuse(const ht_call *call)
{
    const char *reason = ht_cuda_refuse_types(call);
    return reason ? reason : ht_refuse_strided(call);
}

bool ht_cuda_channels_last(const ht_call *call)
{
    bool last = false;
    for (size_t i = 0; i < call->n_in; i++) last |= call->in[i] && ht_type_is_channels_last(call->in[i]);
    for (size_t i = 0; i < call->n_out; i++) last |= ht_type_is_channels_last(call->out[i]);
    return last;
}

const char *ht_cuda_refuse_channels(const ht_call *call)
{
    const char *reason = ht_cuda_refuse_types(call);
    for (size_t i = 0; !reason && i < call->n_in + call->n_out; i++) {
        const ht_type *type = i < call->n_in ? call->in[i] : call->out[i - call->n_in];
        if (!type) continue;
        ht_type last = *type;
        if (type->rank >= 3) ht_type_channels_last(&last);
        if (type->rank >= 3 ? !ht_type_same_strides(type, &last) : !ht_type_contiguous(type))
            reason = "channels do not lie last";
    }
    return reason ? ht_cuda_refuse(call) : NULL;
}

const char *ht_cuda_elementwise_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_cuda_refuse_types(call);
    return reason ? reason : ht_refuse_strided_results(call);
}

const char *ht_cuda_pointwise_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    for (size_t i = 0; i < call->n_out; i++)
        if (!ht_type_dense(call->out[i]) || !ht_type_same_strides(call->out[i], call->out[0]))
            return "the results have gaps";
    return ht_cuda_refuse_types(call);
}

static const char *find_file(const char *name)
{
    for (size_t i = 0; i < ht_cuda_file_count; i++)
        if (strcmp(ht_cuda_files[i].name, name) == 0) return ht_cuda_files[i].text;
    return NULL;
}

void ht_cuda_include(ht_cuda_emission *e, const char *file)
{
    int i = 0;
    while (i < e->included_count && strcmp(e->included[i], file) != 0) i++;
    if (i < e->included_count) return;
    e->included[e->included_count++] = file;
    ht_text_add(&e->text, "%s", find_file(file));
}

/* What the planner gave to the call: its operands, and those of a product or reduction around element-wise calls. */
static void add_parameters(ht_text *text, const ht_call *call)
{
    for (size_t i = 0; i < call->n_in; i++)
        ht_text_add(text, "const %s *in%zu, ", call->in[i] ? ht_cuda_type(call->in[i]->dtype) : "char", i);
    for (size_t i = 0; i < call->n_out; i++) ht_text_add(text, "%s *out%zu, ", ht_cuda_type(call->out[i]->dtype), i);
    ht_text_add(text, "char *workspace");
}

void ht_cuda_add_grid(ht_cuda_emission *e, int64_t blocks, int threads, int shared_bytes, const char *body, ...)
{
    if (blocks <= 0) return;
    ht_text *text = &e->grids_text;
    e->grids[e->grid_count] = (ht_cuda_shape){blocks, threads, shared_bytes, false};
    ht_text_add(text, "extern \"C\" __global__ void __launch_bounds__(%d", threads);
    if (e->resident) ht_text_add(text, ", %d", e->resident);
    ht_text_add(text, ") %s_%d(", e->name, e->grid_count++);
    add_parameters(text, e->launch->call);
    ht_text_add(text, ")\n{\n    ");
    va_list args;
    va_start(args, body);
    ht_text_addv(text, body, args);
    va_end(args);
    ht_text_add(text, "\n}\n");
}

void ht_cuda_run_together(ht_cuda_emission *e)
{
    if (e->grid_count) e->grids[e->grid_count - 1].together = true;
}

ht_cuda_limits ht_cuda_launch_limits(const ht_launch *launch)
{
    static const ht_cuda_limits h200 = {132, 227 << 10, 50 << 20};
    return launch->queue ? ht_cuda_device_limits(launch->queue->device) : h200;
}

bool ht_cuda_has_f64(const ht_call *call)
{
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i] && call->in[i]->dtype == HT_F64) return true;
    for (size_t i = 0; i < call->n_out; i++)
        if (call->out[i]->dtype == HT_F64) return true;
    return false;
}

/* Also among the values that only the calls of a group see. */
static bool is_wide(const ht_launch *launch)
{
    bool wide = ht_cuda_has_f64(launch->call);
    for (int i = 0; launch->fused && i < launch->fused->step_count; i++)
        wide |= ht_cuda_has_f64(launch->fused->steps[i].call);
    return wide;
}

ht_status ht_cuda_emit(ht_cuda_emission *e, ht_context *ctx, const ht_launch *launch)
{
    *e = (ht_cuda_emission){.launch = launch, .wide = is_wide(launch)};
    snprintf(e->name, sizeof e->name, "%.*s", (int)strcspn(launch->row->name, "."), launch->row->name);
    ht_text_add(&e->text, "typedef %s real;\n", e->wide ? "double" : "float");
    ht_cuda_include(e, "prelude");
    launch->row->emit(e, launch);
    ht_text_add(&e->text, "%s", e->grids_text.data ? e->grids_text.data : "");
    if (e->text.failed || e->grids_text.failed)
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for the code of %s", launch->kernel);
    return HT_OK;
}

void ht_cuda_emission_free(ht_cuda_emission *e)
{
    ht_text_free(&e->text);
    ht_text_free(&e->grids_text);
}
