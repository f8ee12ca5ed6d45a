/* The table of kernels. It is kept sorted by op and, within an op, best ISA first, so that choosing is a short search.
 */
#include "kernel/kernel.h"

#include <string.h>

#include "op/op.h"

/* ---- the rows of this library ---- */

/* row(name, build) for every way that a *.cpu.c file was compiled, best first. */
#ifdef HT_BUILT_X86
#define HT_BUILDS(row, name)                                                                                           \
    row(name, f32_avx512) row(name, f64_avx512) row(name, f32_avx2) row(name, f64_avx2) row(name, f32_portable)        \
        row(name, f64_portable)
/* Rows of *.x86.c files, which need more than an ISA. They stand before the others of their op. */
#define HT_X86_ROWS(row) row(matmul_amx) row(matmul_avx512_bf16)
#else
#define HT_BUILDS(row, name) row(name, f32_portable) row(name, f64_portable)
#define HT_X86_ROWS(row)
#endif

#define DECLARE(name, build) extern const ht_kernel name##_row_##build;
#define LIST(name, build)    &name##_row_##build,
#define DECLARE_ARRAY(name, build)                                                                                     \
    extern const ht_kernel name##_##build[];                                                                           \
    extern const size_t name##_count_##build;
#define ADD_ARRAY(name, build)                                                                                         \
    for (size_t i = 0; i < name##_count_##build; i++) HT_TRY(ht_kernel_add(ctx, &name##_##build[i]));

#define HT_CPU_ROW(name)      HT_BUILDS(DECLARE, name)
#define HT_PORTABLE_ROW(name) extern const ht_kernel ht_kernel_##name;
HT_X86_ROWS(HT_PORTABLE_ROW)
#include "kernel/kernels.def"
#include "kernel/portable.def"
#undef HT_CPU_ROW
#undef HT_PORTABLE_ROW
HT_BUILDS(DECLARE_ARRAY, ht_pointwise)

#define HT_CPU_ROW(name)      HT_BUILDS(LIST, name)
#define HT_PORTABLE_ROW(name) &ht_kernel_##name,
static const ht_kernel *const rows[] = {HT_X86_ROWS(HT_PORTABLE_ROW)
#include "kernel/kernels.def"
#include "kernel/portable.def"
};

ht_status ht_kernels_add_all(ht_context *ctx)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) HT_TRY(ht_kernel_add(ctx, rows[i]));
    HT_BUILDS(ADD_ARRAY, ht_pointwise)
    return HT_OK;
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

static void tell_refusals(const ht_context *ctx, size_t first, size_t end, const ht_call *call, const ht_target *target,
                          ht_text *why)
{
    for (size_t i = first; i < end; i++) {
        const ht_kernel *kernel = ctx->kernels[i];
        if (i > first) ht_text_add(why, "; ");
        if (kernel->isa > target->isa)
            ht_text_add(why, "%s: needs %s", kernel->name, ht_isa_name(kernel->isa));
        else
            ht_text_add(why, "%s: %s", kernel->name, kernel->can(call, target));
    }
}

const ht_kernel *ht_kernel_choose(ht_context *ctx, const ht_call *call, const ht_target *target, ht_text *why)
{
    const char *op = call->op->name;
    size_t first = place_after(ctx, op, HT_ISA_COUNT), i = first;
    const ht_kernel *chosen = NULL;
    for (; i < ctx->kernel_count && strcmp(ctx->kernels[i]->op, op) == 0; i++) {
        const ht_kernel *kernel = ctx->kernels[i];
        if (kernel->isa > target->isa || kernel->can(call, target)) continue;
        chosen = kernel;
        break;
    }
    if (why && !chosen && first == i) ht_text_add(why, "there is no kernel for %s", op);
    if (why) tell_refusals(ctx, first, i, call, target, why);
    return chosen;
}

/* ---- refusals that many rows share ---- */

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
