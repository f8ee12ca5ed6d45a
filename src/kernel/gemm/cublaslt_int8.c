/* y = a bᵀ of i8 into i32 by cublasLt, square: what tensor cores make of bytes. No op has it; a probe measures it. */
#include <stdlib.h>

#include "kernel/gemm/cublaslt_types.h"
#include "kernel/kernel.h"

/* The library's own numbers. */
enum { COMPUTE_I32 = 72, TYPE_I8 = 3, TYPE_I32 = 10, DESC_TURN_A = 3, PREFERENCE_WORKSPACE_BYTES = 1 };

struct ht_int8_product {
    const cublaslt *library;
    void *handle, *desc, *in, *out;
    cublaslt_choice choice;
    int found;
};

static int describe(ht_int8_product *p, int64_t size)
{
    const cublaslt *l = p->library;
    const int32_t turned = 1;
    const size_t no_workspace = 0;
    void *preference = NULL;
    uint64_t n = (uint64_t)size;
    int status = l->cublasLtCreate(&p->handle);
    if (status == 0) status = l->cublasLtMatmulDescCreate(&p->desc, COMPUTE_I32, TYPE_I32);
    if (status == 0) status = l->cublasLtMatmulDescSetAttribute(p->desc, DESC_TURN_A, &turned, sizeof turned);
    if (status == 0) status = l->cublasLtMatrixLayoutCreate(&p->in, TYPE_I8, n, n, size);
    if (status == 0) status = l->cublasLtMatrixLayoutCreate(&p->out, TYPE_I32, n, n, size);
    if (status == 0) status = l->cublasLtMatmulPreferenceCreate(&preference);
    if (status == 0)
        status = l->cublasLtMatmulPreferenceSetAttribute(preference, PREFERENCE_WORKSPACE_BYTES, &no_workspace,
                                                         sizeof no_workspace);
    if (status == 0)
        status = l->cublasLtMatmulAlgoGetHeuristic(p->handle, p->desc, p->in, p->in, p->out, p->out, preference, 1,
                                                   &p->choice, &p->found);
    if (preference) l->cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

ht_status ht_int8_product_create(ht_context *ctx, int64_t size, ht_int8_product **out)
{
    const char *reason;
    const cublaslt *library = ht_cublaslt_open(&reason);
    *out = NULL;
    if (!library) HT_FAIL(ctx, HT_ENOTSUP, "%s", reason);
    ht_int8_product *p = calloc(1, sizeof *p);
    if (!p) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a product of i8");
    p->library = library;
    int status = describe(p, size);
    if (status == 0 && p->found) {
        *out = p;
        return HT_OK;
    }
    ht_int8_product_free(p);
    HT_FAIL(ctx, HT_ENOTSUP, "cublasLt multiplies no i8 here (status %d)", status);
}

ht_status ht_int8_product_run(const ht_int8_product *p, const ht_queue *queue, const void *a, const void *b, void *y)
{
    const int32_t one = 1, zero = 0;
    int status = p->library->cublasLtMatmul(p->handle, p->desc, &one, a, p->in, b, p->in, &zero, y, p->out, y, p->out,
                                            &p->choice.algorithm, NULL, 0, ht_cuda_stream(queue));
    if (status != 0) HT_FAIL(queue->device->ctx, HT_ENOTSUP, "cublasLt: a product of i8 failed (status %d)", status);
    return HT_OK;
}

void ht_int8_product_free(ht_int8_product *p)
{
    if (!p) return;
    const cublaslt *l = p->library;
    if (p->out) l->cublasLtMatrixLayoutDestroy(p->out);
    if (p->in) l->cublasLtMatrixLayoutDestroy(p->in);
    if (p->desc) l->cublasLtMatmulDescDestroy(p->desc);
    if (p->handle) l->cublasLtDestroy(p->handle);
    free(p);
}
