/* matmul by cublasLt.  a, b: f32, f16, bf16 or f64, both the same, with neighbours along rows or columns and matrices of a
 * batch at equal distances; y: that type or f32, row-major.
 * Numerics: sums in f32 (f64 for f64), IEEE products, one rounding; the same bits on every run.
 * The library computes with matrices by columns: y by rows is its transpose by columns, so a and b change places. */
#include <pthread.h>
#include <stdlib.h>

#include "kernel/cuda/cuda.h"
#include "kernel/gemm/product.h"

/* The library's own types and numbers. */
typedef struct cublaslt_algorithm {
    uint64_t data[8];
} cublaslt_algorithm;
typedef struct cublaslt_choice {
    cublaslt_algorithm algorithm;
    size_t workspace_bytes;
    int status;
    float waves;
    int reserved[4];
} cublaslt_choice;
enum {
    COMPUTE_F32 = 68,
    COMPUTE_F64 = 70,
    DESC_TURN_A = 3,
    DESC_TURN_B = 4,
    LAYOUT_BATCHES = 5,
    LAYOUT_BATCH_STRIDE = 6,
    PREFERENCE_WORKSPACE_BYTES = 1,
    PREFERENCE_ALIGNMENT_A = 5,
};

enum {
    WORKSPACE_BYTES = 32 << 20, /* more than any product of a transformer asked for (split sums of weight gradients) */
    WORKSPACE_ALIGN = 256,      /* of what the library gets; the planner aligns to less */
    SMALL_PRODUCT = 1 << 24,    /* multiplications up to which a product gets none */
};

typedef struct cublaslt {
#define HT_CUBLASLT(name, parameters) int(*name) parameters;
#include "kernel/gemm/cublaslt.def"
#undef HT_CUBLASLT
} cublaslt;

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

static const int data_types[HT_DTYPE_COUNT] = {[HT_F32] = 0, [HT_F64] = 1, [HT_F16] = 2, [HT_BF16] = 14};

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
    if (dtype != HT_F32 && !data_types[dtype]) return "an input is f8";
    if (call->out[0]->dtype != dtype && (call->out[0]->dtype != HT_F32 || dtype == HT_F64))
        return "the result has another type than the inputs, and is not f32";
    if (!ht_type_contiguous(call->out[0])) return "the result is strided";
    if (ht_type_elems(call->out[0]) == 0 || p.k == 0) return "there is nothing to multiply";
    if (!describe(&p, &p.a, p.m, p.k, &a) || !describe(&p, &p.b, p.k, p.n, &b)) return "an input is strided";
    return NULL;
}

static int64_t workspace(const ht_call *call, const ht_target *target)
{
    product p = product_as_called(call, NULL, NULL);
    (void)target;
    return p.m * p.n * p.k <= SMALL_PRODUCT ? 0 : WORKSPACE_BYTES + WORKSPACE_ALIGN;
}

/* ---- prepare ---- */

typedef struct prepared {
    void *handle, *desc, *a, *b, *y;
    cublaslt_algorithm algorithm;
    void *workspace;
    size_t workspace_bytes;
    bool is_f64;
} prepared;

static ht_status check(const ht_launch *launch, int status, const char *what)
{
    if (status == 0) return HT_OK;
    HT_FAIL(launch->ctx, HT_EDEVICE, "%s: cublasLt: %s fails (%d)", launch->kernel, what, status);
}

/* One handle serves the process; the library keeps it apart from threads and streams. */
static void *handle;
static int handle_status;
static void create_handle(void)
{
    handle_status = table.library.cublasLtCreate(&handle);
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

static ht_status describe_product(const ht_launch *launch, const product *p, prepared *x)
{
    const cublaslt *l = &table.library;
    const ht_call *call = launch->call;
    int type = data_types[call->in[0]->dtype];
    operand a, b, y = {p->n, p->m * p->n, false};
    int64_t batches = product_batches(p);
    (void)describe(p, &p->a, p->m, p->k, &a);
    (void)describe(p, &p->b, p->k, p->n, &b);
    int32_t turn_a = a.turned, turn_b = b.turned;
    x->is_f64 = call->in[0]->dtype == HT_F64;
    HT_TRY(check(launch,
                 l->cublasLtMatmulDescCreate(&x->desc, x->is_f64 ? COMPUTE_F64 : COMPUTE_F32,
                                             data_types[x->is_f64 ? HT_F64 : HT_F32]),
                 "a product"));
    /* The library's first operand is our second. */
    HT_TRY(check(launch, l->cublasLtMatmulDescSetAttribute(x->desc, DESC_TURN_A, &turn_b, sizeof turn_b), "a turn"));
    HT_TRY(check(launch, l->cublasLtMatmulDescSetAttribute(x->desc, DESC_TURN_B, &turn_a, sizeof turn_a), "a turn"));
    HT_TRY(set_layout(launch, &x->a, type, &a, p->m, p->k, batches));
    HT_TRY(set_layout(launch, &x->b, type, &b, p->k, p->n, batches));
    return set_layout(launch, &x->y, data_types[call->out[0]->dtype], &y, p->m, p->n, batches);
}

/* The largest power of two up to 256 that divides an address. */
static uint32_t alignment_of(const void *address)
{
    uint32_t alignment = 256;
    while ((uintptr_t)address % alignment) alignment /= 2;
    return alignment;
}

static ht_status choose(const ht_launch *launch, prepared *x)
{
    const cublaslt *l = &table.library;
    cublaslt_choice choice = {0};
    int found = 0;
    void *preference = NULL;
    /* Operands a, b, c and d of the library. */
    const uint32_t alignments[] = {alignment_of(launch->in[1]), alignment_of(launch->in[0]),
                                   alignment_of(launch->out[0]), alignment_of(launch->out[0])};
    HT_TRY(check(launch, l->cublasLtMatmulPreferenceCreate(&preference), "a preference"));
    int status = l->cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_WORKSPACE_BYTES, &x->workspace_bytes,
                                                         sizeof x->workspace_bytes);
    for (int i = 0; i < 4 && status == 0; i++)
        status = l->cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_ALIGNMENT_A + i, &alignments[i],
                                                         sizeof alignments[i]);
    if (status == 0)
        status =
            l->cublasLtMatmulAlgoGetHeuristic(handle, x->desc, x->b, x->a, x->y, x->y, preference, 1, &choice, &found);
    l->cublasLtMatmulPreferenceDestroy(preference);
    HT_TRY(check(launch, status, "the choice of an algorithm"));
    if (!found) HT_FAIL(launch->ctx, HT_EDEVICE, "%s: cublasLt has no algorithm for this product", launch->kernel);
    x->algorithm = choice.algorithm;
    return HT_OK;
}

static ht_status prepare(ht_launch *launch)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const char *reason = ht_cuda_library_open(&cublaslt_library);
    if (reason) HT_FAIL(launch->ctx, HT_ENOTSUP, "%s: %s", launch->kernel, reason);
    pthread_once(&once, create_handle);
    HT_TRY(check(launch, handle_status, "opening it"));
    prepared *x = calloc(1, sizeof *x);
    launch->prepared = x;
    if (!x) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a launch");
    product p = product_as_called(launch->call, launch->in, launch->out);
    if (launch->workspace && workspace(launch->call, NULL)) {
        uintptr_t first = (uintptr_t)launch->workspace;
        x->workspace = (void *)((first + WORKSPACE_ALIGN - 1) / WORKSPACE_ALIGN * WORKSPACE_ALIGN);
        x->workspace_bytes = WORKSPACE_BYTES;
    }
    HT_TRY(describe_product(launch, &p, x));
    return choose(launch, x);
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
    const float one = 1, none = 0;
    const double one_f64 = 1, none_f64 = 0;
    const void *alpha = x->is_f64 ? (const void *)&one_f64 : &one, *beta = x->is_f64 ? (const void *)&none_f64 : &none;
    return check(launch,
                 table.library.cublasLtMatmul(handle, x->desc, alpha, launch->in[1], x->b, launch->in[0], x->a, beta,
                                              launch->out[0], x->y, launch->out[0], x->y, &x->algorithm, x->workspace,
                                              x->workspace_bytes, ht_cuda_stream(launch->queue)),
                 "a product");
}

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
};
