/* The table of kernels. It is kept sorted by op and, within an op, best ISA first, so that choosing is a short search.
 */
#include "kernel/cell.h"

#include <string.h>

#include "op/op.h"

/* ---- the rows of this library ---- */

#define HT_FEATURE_ROW(name)  extern const ht_kernel ht_kernel_##name;
#define HT_PORTABLE_ROW(name) extern const ht_kernel ht_kernel_##name;
#define HT_CUDA_ROW(name)     extern const ht_kernel ht_kernel_cuda_##name;
#include "kernel/kernels.def"

#define HT_ISA(id, name, ...) extern const ht_kernel_cell ht_kernel_cell_f32_##name, ht_kernel_cell_f64_##name;
#include "base/isas.def"

static const ht_kernel *const feature_rows[] = {
#define HT_FEATURE_ROW(name) &ht_kernel_##name,
#include "kernel/kernels.def"
    NULL};

static const ht_kernel_cell *const cells[] = {
#define HT_ISA(id, name, ...) &ht_kernel_cell_f32_##name, &ht_kernel_cell_f64_##name,
#include "base/isas.def"
};
enum { CELLS = sizeof cells / sizeof cells[0] };

static const ht_kernel *const portable_rows[] = {
#define HT_PORTABLE_ROW(name) &ht_kernel_##name,
#include "kernel/kernels.def"
    NULL};

static const ht_kernel *const cuda_rows[] = {
#define HT_CUDA_ROW(name) &ht_kernel_cuda_##name,
#include "kernel/kernels.def"
    NULL};

ht_status ht_kernels_add_all(ht_context *ctx)
{
    for (size_t i = 0; feature_rows[i]; i++) HT_TRY(ht_kernel_add(ctx, feature_rows[i]));
    for (size_t row = 0; row < HT_CPU_ROW_COUNT; row++)
        for (size_t i = 0; i < CELLS; i++) HT_TRY(ht_kernel_add(ctx, cells[i]->rows[row]));
    for (size_t i = 0; portable_rows[i]; i++) HT_TRY(ht_kernel_add(ctx, portable_rows[i]));
    for (size_t i = 0; i < CELLS; i++)
        for (size_t op = 0; op < *cells[i]->pointwise_count; op++) HT_TRY(ht_kernel_add(ctx, &cells[i]->pointwise[op]));
    for (size_t i = 0; cuda_rows[i]; i++) HT_TRY(ht_kernel_add(ctx, cuda_rows[i]));
    for (size_t i = 0; i < ht_cuda_pointwise_count; i++) HT_TRY(ht_kernel_add(ctx, &ht_cuda_pointwise[i]));
    return HT_OK;
}

/* Rows of another device are not there for a target at all. */
static bool serves(const ht_kernel *kernel, const ht_target *target)
{
    return kernel->device == (target->device == HT_DEVICE_FAKE ? HT_DEVICE_CPU : target->device);
}

static const char *refuse(const ht_kernel *kernel, const ht_call *call, const ht_target *target)
{
    bool runs = kernel->device != HT_DEVICE_CPU || ht_isa_runs(target->isa, kernel->isa);
    return runs ? kernel->can(call, target) : "the target's ISA is another";
}

/* ---- the table ---- */

static int order(const ht_kernel *kernel, const char *op, int isa)
{
    int names = strcmp(kernel->op, op);
    return names ? names : isa - (int)kernel->isa;
}

/* The first place whose row comes after (op, isa); with an ISA above all, the first row of the op. */
static size_t place_after(const ht_context *ctx, const char *op, int isa)
{
    size_t low = 0, high = ctx->kernel_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order(ctx->kernels[middle], op, isa) <= 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

ht_status ht_kernel_add(ht_context *ctx, const ht_kernel *kernel)
{
    if (kernel->size != sizeof(ht_kernel) || !kernel->op || !kernel->name || !kernel->can || !kernel->run)
        HT_FAIL(ctx, HT_EINVAL, "kernel %s: the row is not complete", kernel->name ? kernel->name : "without a name");
    if (!ht_grow((void **)&ctx->kernels, &ctx->kernel_capacity, ctx->kernel_count + 1, sizeof(const ht_kernel *)))
        HT_FAIL(ctx, HT_ENOMEM, "no memory for the table of kernels");
    size_t place = place_after(ctx, kernel->op, (int)kernel->isa);
    memmove(&ctx->kernels[place + 1], &ctx->kernels[place], (ctx->kernel_count - place) * sizeof(const ht_kernel *));
    ctx->kernels[place] = kernel;
    ctx->kernel_count++;
    return HT_OK;
}

/* Returns how many rows there are. */
static size_t tell_refusals(const ht_context *ctx, size_t first, size_t end, const ht_call *call,
                            const ht_target *target, ht_text *why)
{
    size_t told = 0;
    for (size_t i = first; i < end; i++) {
        const ht_kernel *kernel = ctx->kernels[i];
        if (!serves(kernel, target)) continue;
        if (told++) ht_text_add(why, "; ");
        if (kernel->device == HT_DEVICE_CPU && !ht_isa_runs(target->isa, kernel->isa))
            ht_text_add(why, "%s: needs %s", kernel->name, ht_isa_name(kernel->isa));
        else
            ht_text_add(why, "%s: %s", kernel->name, kernel->can(call, target));
    }
    return told;
}

static const ht_kernel *choose(ht_context *ctx, const ht_call *call, const ht_target *target, ht_text *why)
{
    const char *op = call->op->name;
    size_t first = place_after(ctx, op, HT_ISA_COUNT), i = first;
    const ht_kernel *chosen = NULL;
    for (; i < ctx->kernel_count && strcmp(ctx->kernels[i]->op, op) == 0; i++) {
        const ht_kernel *kernel = ctx->kernels[i];
        if (!serves(kernel, target) || refuse(kernel, call, target)) continue;
        chosen = kernel;
        break;
    }
    if (why && !tell_refusals(ctx, first, i, call, target, why) && !chosen)
        ht_text_add(why, "there is no kernel for %s on %s", op, ht_device_kind_names[target->device]);
    return chosen;
}

static bool touches_disk(const ht_call *call)
{
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i] && call->in[i]->space == HT_SPACE_DISK) return true;
    return call->n_out && call->out[0]->space == HT_SPACE_DISK;
}

/* Copies from and to the disk are the disk's own, whatever device computes; the row of the processor stands for them. */
static const ht_kernel *choose_for_disk(ht_context *ctx, const ht_call *call, const ht_target *target, ht_text *why)
{
    ht_target processor = *target;
    const char *strided = ht_refuse_strided(call);
    processor.device = HT_DEVICE_CPU;
    if (strided && why) ht_text_add(why, "the disk copies values without gaps: %s", strided);
    return strided ? NULL : choose(ctx, call, &processor, why);
}

static bool is_in_host(const ht_call *call)
{
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i] && call->in[i]->space != HT_SPACE_HOST) return false;
    return call->n_out && call->out[0]->space == HT_SPACE_HOST;
}

const ht_kernel *ht_kernel_choose(ht_context *ctx, const ht_call *call, const ht_target *target, ht_text *why)
{
    ht_target processor = *target;
    processor.device = HT_DEVICE_CPU;
    if (touches_disk(call)) return choose_for_disk(ctx, call, target, why);
    return choose(ctx, call, is_in_host(call) ? &processor : target, why);
}

/* ---- refusals that many rows share ---- */

const char ht_not_asked[] = "nobody asks for it";

const char *ht_refuse_strided(const ht_call *call)
{
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i] && !ht_type_contiguous(call->in[i])) return "an input is strided";
    return ht_refuse_strided_results(call);
}

const char *ht_refuse_strided_results(const ht_call *call)
{
    for (size_t i = 0; i < call->n_out; i++)
        if (!ht_type_contiguous(call->out[i])) return "a result is strided";
    return NULL;
}
