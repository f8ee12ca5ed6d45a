/* matmul by cublasLt.  a, b: f32, f16, bf16 or f64, both the same, with neighbours along rows or columns and matrices of a
 * batch at equal distances; y: that type or f32, row-major.
 * Numerics: sums in f32 (f64 for f64), IEEE products, or in the row for it those of tf32, one rounding; the same bits on
 * every run.
 * The library computes with matrices by columns: y by rows is its transpose by columns, so a and b change places.
 *
 * Behind a product it takes what the library's epilogues do without another rounding: a bias and a residual. Its gelu is
 * left alone: it is not ours in f32 and f16, reads what nobody keeps, and costs as much as a kernel of its own
 * (docs/decisions/0044-gelu-reads-what-is-kept.md).
 *
 * matmul_cublaslt_i8, a part of matmul_q (matmul_q.cuda.c): a, b: i8 with neighbours along k, k a multiple of 16; y: i32.
 *
 * scaled_matmul: a, b: f8, not both f8e5m2, with neighbours along k; m, n and k multiples of 16; y: bf16, f16 or f32. The
 * library multiplies the sums by both scales. Sums of forward, where both are f8e4m3, stay in the tensor cores (the fast
 * mode, which keeps about 14 bits); those of gradients leave them for f32 every 128 steps of k. It takes the epilogues of
 * bf16. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/cuda/cuda.h"
#include "kernel/cuda/way_search.h"
#include "kernel/gemm/cublaslt_epilogue.h"
#include "kernel/gemm/cublaslt_types.h"
#include "kernel/gemm/product.h"
#include "op/op.h"

/* The library's own numbers. */
enum {
    COMPUTE_F32 = 68,
    COMPUTE_F64 = 70,
    COMPUTE_I32 = 72,
    COMPUTE_TF32 = 77,
    DESC_TURN_A = 3,
    DESC_TURN_B = 4,
    DESC_EPILOGUE = 7,
    DESC_BIAS = 8,
    DESC_SCALE_A = 17,
    DESC_SCALE_B = 18,
    DESC_FAST_ACCUM = 25,
    DESC_BIAS_TYPE = 26,
    LAYOUT_BATCHES = 5,
    LAYOUT_BATCH_STRIDE = 6,
    PREFERENCE_WORKSPACE_BYTES = 1,
    PREFERENCE_REDUCTIONS = 3,
    PREFERENCE_ALIGNMENT_A = 5,
};

enum {
    WORKSPACE_BYTES = 32 << 20, /* more than any product of a transformer asked for (split sums of weight gradients) */
    WORKSPACE_ALIGN = 256,      /* of what the library gets; the planner aligns to less */
    SMALL_PRODUCT = 1 << 24,    /* multiplications up to which a product gets none */
    LARGE_PRODUCT = 1 << 30,    /* from which on it is worth a search */
    MOST_WAYS = 8,
};

static union {
    cublaslt library;
    void (*functions[sizeof(cublaslt) / sizeof(void (*)(void))])(void);
} table;
static const char *const files[] = {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so", NULL};
static const char *const names[] = {
#define HT_CUBLASLT(name, parameters) #name,
#include "kernel/gemm/cublaslt.def"
#undef HT_CUBLASLT
};
static ht_cuda_library cublaslt_library = {files, names, sizeof names / sizeof names[0], table.functions, "", false};

const cublaslt *ht_cublaslt_open(const char **reason)
{
    *reason = ht_cuda_library_open(&cublaslt_library);
    return *reason ? NULL : &table.library;
}

static const int data_types[HT_DTYPE_COUNT] = {[HT_F32] = 0,  [HT_F64] = 1,   [HT_F16] = 2,     [HT_I8] = 3,
                                               [HT_I32] = 10, [HT_BF16] = 14, [HT_F8E4M3] = 28, [HT_F8E5M2] = 29};

/* ---- what it takes ---- */

/* A matrix as the library sees it: `turned` where its rows are our columns. */
typedef struct operand {
    int64_t pitch, batch_stride;
    bool turned;
} operand;

/* The distance between the matrices of neighbouring batches, where there is one; -1: there is none. */
static int64_t batch_stride(const product *p, const matrix *m)
{
    int64_t stride = 0, count = 1;
    for (int axis = p->batch_rank - 1; axis >= 0; axis--) {
        if (p->batch_dim[axis] == 1) continue;
        if (count == 1) stride = m->batch[axis];
        if (m->batch[axis] != stride * count) return -1;
        count *= p->batch_dim[axis];
    }
    return stride;
}

/* rows x columns elements. */
static bool describe(const product *p, const matrix *m, int64_t rows, int64_t columns, operand *out)
{
    bool by_rows = m->across == 1 || columns == 1, by_columns = m->down == 1 || rows == 1;
    if (by_rows && (rows == 1 || m->down >= columns))
        *out = (operand){rows == 1 ? columns : m->down, 0, false};
    else if (by_columns && (columns == 1 || m->across >= rows))
        *out = (operand){columns == 1 ? rows : m->across, 0, true};
    else
        return false;
    out->batch_stride = batch_stride(p, m);
    return out->batch_stride >= 0;
}

static const char *can(const ht_call *call, const ht_target *target)
{
    ht_dtype dtype = call->in[0]->dtype;
    operand a, b;
    product p = product_as_called(call, NULL, NULL);
    if (!ht_target_has_library(target, HT_LIBRARY_CUBLASLT)) return "the target lacks cublasLt";
    if (dtype != call->in[1]->dtype) return "the inputs have different types";
    if (ht_dtype_is_f8(dtype)) return "an input is f8";
    if (call->out[0]->dtype != dtype && (call->out[0]->dtype != HT_F32 || dtype == HT_F64))
        return "the result has another type than the inputs, and is not f32";
    if (!ht_type_contiguous(call->out[0])) return "the result is strided";
    if (ht_type_elems(call->out[0]) == 0 || p.k == 0) return "there is nothing to multiply";
    if (!describe(&p, &p.a, p.m, p.k, &a) || !describe(&p, &p.b, p.k, p.n, &b)) return "an input is strided";
    return NULL;
}

/* Both operands with neighbours along k, at distances that the library takes. */
static const char *can_f8(const ht_call *call, const ht_target *target)
{
    enum { STEP = 16 };
    product p = product_as_called(call, NULL, NULL);
    ht_dtype y = call->out[0]->dtype;
    if (!ht_target_has_library(target, HT_LIBRARY_CUBLASLT)) return "the target lacks cublasLt";
    if (p.a.dtype == HT_F8E5M2 && p.b.dtype == HT_F8E5M2) return "both inputs are f8e5m2";
    if (y != HT_F32 && y != HT_F16 && y != HT_BF16) return "the result is not f32, f16 or bf16";
    if (!ht_type_contiguous(call->out[0])) return "the result is strided";
    if (ht_type_elems(call->out[0]) == 0 || p.k == 0) return "there is nothing to multiply";
    if (product_batches(&p) != 1) return "a batch of products";
    if (p.m % STEP || p.n % STEP || p.k % STEP) return "a size is no multiple of 16";
    if (p.a.across != 1 || p.b.down != 1) return "an input does not lie along the axis that is summed over";
    if (p.a.down < p.k || p.b.across < p.k || p.a.down % STEP || p.b.across % STEP) return "an input is strided";
    return NULL;
}

/* For parts of long sums, as those of weight gradients are. In f16 and bf16 other products are as fast without, and the
 * library's kernels would have a few bytes of it cleared before each. */
static int64_t workspace(const ht_call *call, const ht_target *target)
{
    product p = product_as_called(call, NULL, NULL);
    bool half = p.a.dtype == HT_F16 || p.a.dtype == HT_BF16, long_sums = p.k > p.m && p.k > p.n;
    (void)target;
    return p.m * p.n * p.k <= SMALL_PRODUCT || (half && !long_sums) ? 0 : WORKSPACE_BYTES + WORKSPACE_ALIGN;
}

/* ---- prepare ---- */

typedef struct prepared {
    void *desc, *a, *b, *y;
    const product *p;
    int kind; /* of its epilogue */
    cublaslt_algorithm algorithm;
    void *workspace, *handle;
    size_t workspace_bytes;
    const void *operands[2], *residual; /* residual NULL: none */
    void *result;
    ht_dtype factors; /* the type of what a sum is multiplied by: f32, f64 or i32 */
} prepared;

static ht_status check(const ht_launch *launch, int status, const char *what)
{
    if (status == 0) return HT_OK;
    HT_FAIL(launch->ctx, HT_EDEVICE, "%s: cublasLt: %s fails (%d)", launch->kernel, what, status);
}

static void free_handle(void *handle)
{
    table.library.cublasLtDestroy(handle);
}

static ht_status find_handle(const ht_launch *launch, void **handle)
{
    ht_device *device = launch->queue->device;
    const char *reason = ht_cuda_library_open(&cublaslt_library);
    if (reason) HT_FAIL(launch->ctx, HT_ENOTSUP, "%s: %s", launch->kernel, reason);
    *handle = ht_cuda_kept(device, "cublaslt");
    if (*handle) return HT_OK;
    HT_TRY(check(launch, table.library.cublasLtCreate(handle), "opening it"));
    return ht_cuda_keep(device, "cublaslt", *handle, free_handle);
}

static ht_status set_layout(const ht_launch *launch, void **layout, int type, const operand *o, int64_t rows,
                            int64_t columns, int64_t batches)
{
    const cublaslt *l = &table.library;
    int32_t count = (int32_t)batches;
    /* By columns: our rows are its columns. */
    uint64_t down = (uint64_t)(o->turned ? rows : columns), across = (uint64_t)(o->turned ? columns : rows);
    HT_TRY(check(launch, l->cublasLtMatrixLayoutCreate(layout, type, down, across, o->pitch), "a layout"));
    if (batches == 1) return HT_OK;
    HT_TRY(
        check(launch, l->cublasLtMatrixLayoutSetAttribute(*layout, LAYOUT_BATCHES, &count, sizeof count), "batches"));
    return check(
        launch,
        l->cublasLtMatrixLayoutSetAttribute(*layout, LAYOUT_BATCH_STRIDE, &o->batch_stride, sizeof o->batch_stride),
        "a batch's stride");
}

static const ht_call *product_call(const ht_launch *launch)
{
    return launch->fused ? launch->fused->gemm : launch->call;
}

static ht_status set(const ht_launch *launch, void *desc, int attribute, const void *value, size_t bytes)
{
    return check(launch, table.library.cublasLtMatmulDescSetAttribute(desc, attribute, value, bytes), "an attribute");
}

extern const ht_kernel ht_kernel_cuda_matmul_cublaslt_tf32;

static int compute_of(const ht_launch *launch, const prepared *x)
{
    if (launch->row == &ht_kernel_cuda_matmul_cublaslt_tf32) return COMPUTE_TF32;
    return x->factors == HT_F64 ? COMPUTE_F64 : x->factors == HT_I32 ? COMPUTE_I32 : COMPUTE_F32;
}

static ht_status describe_product(const ht_launch *launch, const product *p, prepared *x)
{
    const cublaslt *l = &table.library;
    const ht_call *call = product_call(launch);
    ht_dtype dtype = call->in[0]->dtype;
    int result = data_types[launch->fused ? ht_cublaslt_dtype(call) : call->out[0]->dtype];
    operand a, b, y = {p->n, p->m * p->n, false};
    int64_t batches = product_batches(p);
    (void)describe(p, &p->a, p->m, p->k, &a);
    (void)describe(p, &p->b, p->k, p->n, &b);
    int32_t turn_a = a.turned, turn_b = b.turned;
    x->factors = dtype == HT_F64 ? HT_F64 : dtype == HT_I8 ? HT_I32 : HT_F32;
    HT_TRY(check(launch, l->cublasLtMatmulDescCreate(&x->desc, compute_of(launch, x), data_types[x->factors]),
                 "a product"));
    /* The library's first operand is our second. */
    HT_TRY(set(launch, x->desc, DESC_TURN_A, &turn_b, sizeof turn_b));
    HT_TRY(set(launch, x->desc, DESC_TURN_B, &turn_a, sizeof turn_a));
    HT_TRY(set_layout(launch, &x->a, data_types[dtype], &a, p->m, p->k, batches));
    HT_TRY(set_layout(launch, &x->b, data_types[call->in[1]->dtype], &b, p->k, p->n, batches));
    return set_layout(launch, &x->y, result, &y, p->m, p->n, batches);
}

/* Scales, and types that the library would not guess from f8. */
static ht_status describe_scales(const ht_launch *launch, const void *const *in, const prepared *x)
{
    enum { ALIGN = 16 };
    const void *scale_a = in[2], *scale_b = in[3];
    const int32_t half = data_types[HT_BF16];
    if ((uintptr_t)scale_a % ALIGN || (uintptr_t)scale_b % ALIGN)
        HT_FAIL(launch->ctx, HT_EDEVICE, "%s: a scale is not aligned to %d bytes", launch->kernel, ALIGN);
    HT_TRY(set(launch, x->desc, DESC_SCALE_A, &scale_b, sizeof scale_b));
    HT_TRY(set(launch, x->desc, DESC_SCALE_B, &scale_a, sizeof scale_a));
    const ht_call *call = product_call(launch);
    if (call->in[0]->dtype == HT_F8E4M3 && call->in[1]->dtype == HT_F8E4M3) {
        const int8_t fast = 1;
        HT_TRY(set(launch, x->desc, DESC_FAST_ACCUM, &fast, sizeof fast));
    }
    if (!launch->fused) return HT_OK;
    return set(launch, x->desc, DESC_BIAS_TYPE, &half, sizeof half);
}

/* The address of an operand of the fused calls. */
static void *address_of(const ht_launch *launch, uint32_t number)
{
    uint32_t inputs = (uint32_t)launch->fused->n_in;
    return number < inputs ? (void *)launch->in[number] : launch->out[number - inputs];
}

static ht_status describe_epilogue(const ht_launch *launch, const ht_cublaslt_epilogue *e, prepared *x)
{
    int32_t kind = x->kind = e->kind;
    HT_TRY(set(launch, x->desc, DESC_EPILOGUE, &kind, sizeof kind));
    if (e->has_bias) {
        void *bias = address_of(launch, e->bias);
        HT_TRY(set(launch, x->desc, DESC_BIAS, &bias, sizeof bias));
    }
    x->residual = e->has_residual ? address_of(launch, e->residual) : NULL;
    x->result = address_of(launch, e->result);
    return HT_OK;
}

/* The largest power of two up to 256 that divides an address. */
static uint32_t alignment_of(const void *address)
{
    uint32_t alignment = 256;
    while ((uintptr_t)address % alignment) alignment /= 2;
    return alignment;
}

/* Of the library's operands a, b, c and d. */
typedef struct alignments {
    uint32_t of[4];
} alignments;

static alignments alignments_of(const prepared *x)
{
    return (alignments){{alignment_of(x->operands[1]), alignment_of(x->operands[0]),
                         alignment_of(x->residual ? x->residual : x->result), alignment_of(x->result)}};
}

/* What the library offers for the product, best guess first. */
static ht_status ask_library(const ht_launch *launch, const prepared *x, cublaslt_choice ways[MOST_WAYS], int *found)
{
    const cublaslt *l = &table.library;
    const alignments aligned = alignments_of(x);
    void *preference = NULL;
    const uint32_t no_reductions = 0; /* sums of parts of k would be rounded before an epilogue */
    HT_TRY(check(launch, l->cublasLtMatmulPreferenceCreate(&preference), "a preference"));
    int status = l->cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_WORKSPACE_BYTES, &x->workspace_bytes,
                                                         sizeof x->workspace_bytes);
    for (int i = 0; i < 4 && status == 0; i++)
        status = l->cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_ALIGNMENT_A + i, &aligned.of[i],
                                                         sizeof aligned.of[i]);
    if (status == 0 && launch->fused)
        status = l->cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_REDUCTIONS, &no_reductions,
                                                         sizeof no_reductions);
    if (status == 0)
        status = l->cublasLtMatmulAlgoGetHeuristic(x->handle, x->desc, x->b, x->a, x->y, x->y, preference, MOST_WAYS,
                                                   ways, found);
    l->cublasLtMatmulPreferenceDestroy(preference);
    HT_TRY(check(launch, status, "the choice of an algorithm"));
    if (!*found)
        HT_FAIL(launch->ctx, HT_EDEVICE, "%s: cublasLt has no algorithm for this product%s", launch->kernel,
                ht_dtype_is_f8(product_call(launch)->in[0]->dtype) ? "; GPUs have f8 from compute capability 8.9 on"
                                                                   : "");
    return HT_OK;
}

/* The library's arguments, on this memory. */
static int multiply(const prepared *x, const cublaslt_algorithm *algorithm, const void *a, const void *b,
                    const void *residual, void *result, void *stream)
{
    const float one = 1, factor = residual ? 1 : 0;
    const double one_f64 = 1, none_f64 = 0;
    const int32_t one_i32 = 1, none_i32 = 0;
    const void *alpha = &one, *beta = &factor;
    if (x->factors == HT_F64) alpha = &one_f64, beta = &none_f64;
    if (x->factors == HT_I32) alpha = &one_i32, beta = &none_i32;
    return table.library.cublasLtMatmul(x->handle, x->desc, alpha, b, x->b, a, x->a, beta, residual ? residual : result,
                                        x->y, result, x->y, algorithm, x->workspace, x->workspace_bytes, stream);
}

enum { SEARCH_SCALES = 2, SEARCH_RESIDUAL = 3 }; /* operands of a search behind a and b */

typedef struct product_search {
    const ht_launch *launch;
    const prepared *x;
    const cublaslt_choice *ways;
} product_search;

static ht_status run_way(void *arg, size_t way, void *const *operands, void *result)
{
    const product_search *s = arg;
    const void *scales[] = {NULL, NULL, operands[SEARCH_SCALES], operands[SEARCH_SCALES]};
    if (ht_dtype_is_f8(product_call(s->launch)->in[0]->dtype)) HT_TRY(describe_scales(s->launch, scales, s->x));
    int status = multiply(s->x, &s->ways[way].algorithm, operands[0], operands[1],
                          s->x->residual ? operands[SEARCH_RESIDUAL] : NULL, result, ht_cuda_stream(s->launch->queue));
    return status == 0 ? HT_OK : HT_EDEVICE;
}

static bool is_worth_a_search(const prepared *x)
{
    const product *p = x->p;
    return x->factors == HT_F32 && p->m * p->n > LARGE_PRODUCT / p->k;
}

/* Which of these ways. The bias and the workspace are those of the launch: whatever lies there. */
static ht_search_result search(const ht_launch *launch, const prepared *x, const cublaslt_choice *ways, int found)
{
    enum { SCALES = 64 };
    const product *p = x->p;
    const int64_t batches = product_batches(p);
    const ht_call *call = product_call(launch);
    const ht_dtype result = launch->fused ? ht_cublaslt_dtype(call) : call->out[0]->dtype;
    product_search arg = {launch, x, ways};
    ht_search s = {.queue = launch->queue,
                   .ways = (size_t)found,
                   .operands = {{call->in[0]->dtype, batches * p->m * p->k},
                                {call->in[1]->dtype, batches * p->k * p->n},
                                {HT_F32, SCALES},
                                {result, x->residual ? batches * p->m * p->n : 1}},
                   .result = {result, batches * p->m * p->n},
                   .run = run_way,
                   .arg = &arg};
    ht_search_result r = ht_search_ways(&s);
    ht_note(launch->ctx, HT_LOG_INFO, "%s: %lld x %lld x %lld: way %zu of %d, %.1f us, the first %.1f us",
            launch->kernel, (long long)p->m, (long long)p->k, (long long)p->n, r.best + 1, found, 1e6 * r.fastest,
            1e6 * r.first);
    return r;
}

/* All that the choice depends on, as the name of a file. */
static void name_product(const ht_launch *launch, const prepared *x, char name[64])
{
    const product *p = x->p;
    const ht_call *call = product_call(launch);
    const alignments aligned = alignments_of(x);
    operand a, b;
    (void)describe(p, &p->a, p->m, p->k, &a);
    (void)describe(p, &p->b, p->k, p->n, &b);
    const int64_t facts[] = {table.library.cublasLtGetVersion(),
                             compute_of(launch, x),
                             call->in[0]->dtype,
                             call->in[1]->dtype,
                             launch->fused ? ht_cublaslt_dtype(call) : call->out[0]->dtype,
                             p->m,
                             p->n,
                             p->k,
                             product_batches(p),
                             a.pitch,
                             a.batch_stride,
                             a.turned,
                             b.pitch,
                             b.batch_stride,
                             b.turned,
                             x->kind,
                             x->residual != NULL,
                             launch->fused != NULL,
                             (int64_t)x->workspace_bytes,
                             aligned.of[0],
                             aligned.of[1],
                             aligned.of[2],
                             aligned.of[3]};
    uint64_t hash = ht_hash_bytes(ht_cuda_device_hash(launch->queue->device), facts, sizeof facts);
    snprintf(name, 64, "product-%016llx", (unsigned long long)hash);
}

static ht_status choose(const ht_launch *launch, prepared *x)
{
    cublaslt_choice ways[MOST_WAYS] = {{.status = 0}};
    int found = 0;
    char name[64];
    size_t bytes = 0;
    name_product(launch, x, name);
    void *known = ht_cuda_cache_read(name, &bytes);
    bool is_known = known && bytes == sizeof x->algorithm;
    if (is_known) memcpy(&x->algorithm, known, sizeof x->algorithm);
    free(known);
    if (is_known) return HT_OK;
    HT_TRY(ask_library(launch, x, ways, &found));
    bool searched = found > 1 && is_worth_a_search(x);
    ht_search_result r = searched ? search(launch, x, ways, found) : (ht_search_result){0};
    x->algorithm = ways[r.best].algorithm;
    if (!searched || r.first > 0) ht_cuda_cache_write(name, &x->algorithm, sizeof x->algorithm); /* there was memory */
    return HT_OK;
}

static ht_status prepare(ht_launch *launch)
{
    prepared *x = launch->prepared = calloc(1, sizeof *x);
    if (!x) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a launch");
    HT_TRY(find_handle(launch, &x->handle));
    size_t first = launch->fused ? (size_t)launch->fused->n_in : 0;
    product p = product_as_called(product_call(launch), launch->in + first, launch->out);
    x->p = &p;
    x->kind = HT_CUBLASLT_PLAIN;
    x->operands[0] = launch->in[first];
    x->operands[1] = launch->in[first + 1];
    x->result = launch->out[0];
    bool adds = !launch->fused && p.a.dtype == HT_F32 && launch->call->n_in > 2; /* an inner launch, to its result */
    if (adds) x->residual = launch->in[2];
    if (launch->workspace) {
        uintptr_t start = (uintptr_t)launch->workspace;
        x->workspace = (void *)((start + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN);
        x->workspace_bytes = WORKSPACE_BYTES;
    }
    HT_TRY(describe_product(launch, &p, x));
    if (ht_dtype_is_f8(p.a.dtype)) HT_TRY(describe_scales(launch, launch->in + first, x));
    if (launch->fused) {
        ht_cublaslt_epilogue e = ht_cublaslt_epilogue_of(launch->fused);
        HT_TRY(describe_epilogue(launch, &e, x));
    }
    HT_TRY(choose(launch, x));
    x->p = NULL;                                                                               /* it ends here */
    return ht_dtype_is_f8(p.a.dtype) ? describe_scales(launch, launch->in + first, x) : HT_OK; /* a search had others */
}

static void release(ht_launch *launch)
{
    const cublaslt *l = &table.library;
    prepared *x = launch->prepared;
    if (!x) return;
    if (x->desc) l->cublasLtMatmulDescDestroy(x->desc);
    if (x->a) l->cublasLtMatrixLayoutDestroy(x->a);
    if (x->b) l->cublasLtMatrixLayoutDestroy(x->b);
    if (x->y) l->cublasLtMatrixLayoutDestroy(x->y);
}

/* ---- run ---- */

static ht_status run(const ht_launch *launch)
{
    const prepared *x = launch->prepared;
    return check(launch,
                 multiply(x, &x->algorithm, x->operands[0], x->operands[1], x->residual, x->result,
                          ht_cuda_stream(launch->queue)),
                 "a product");
}

static const char *can_tf32(const ht_call *call, const ht_target *target)
{
    if (!ht_target_allows(target, HT_LIBERTY_TF32)) return ht_not_asked;
    if (call->in[0]->dtype != HT_F32) return "the inputs are not f32";
    return can(call, target);
}

const ht_kernel ht_kernel_cuda_matmul_cublaslt_tf32 = {
    .size = sizeof(ht_kernel),
    .op = "matmul",
    .name = "matmul_cublaslt_tf32.cuda",
    .device = HT_DEVICE_CUDA,
    .can = can_tf32,
    .workspace = workspace,
    .prepare = prepare,
    .release = release,
    .run = run,
    .takes = ht_cublaslt_takes,
    .parts = {1, HT_FORMAT_TF32},
};

const ht_kernel ht_kernel_cuda_matmul_cublaslt = {
    .size = sizeof(ht_kernel),
    .op = "matmul",
    .name = "matmul_cublaslt.cuda",
    .device = HT_DEVICE_CUDA,
    .can = can,
    .workspace = workspace,
    .prepare = prepare,
    .release = release,
    .run = run,
    .takes = ht_cublaslt_takes,
};

extern const ht_kernel ht_kernel_cuda_matmul_cublaslt_i8;
const ht_kernel ht_kernel_cuda_matmul_cublaslt_i8 = {
    .size = sizeof(ht_kernel),
    .op = "matmul",
    .name = "matmul_cublaslt_i8.cuda",
    .device = HT_DEVICE_CUDA,
    .workspace = workspace,
    .prepare = prepare,
    .release = release,
    .run = run,
};

const ht_kernel ht_kernel_cuda_scaled_matmul_cublaslt = {
    .size = sizeof(ht_kernel),
    .op = "scaled_matmul",
    .name = "scaled_matmul_cublaslt.cuda",
    .device = HT_DEVICE_CUDA,
    .can = can_f8,
    .workspace = workspace,
    .prepare = prepare,
    .release = release,
    .run = run,
    .takes = ht_cublaslt_takes,
};
