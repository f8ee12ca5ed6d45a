/* libcublasLt.so.13 for machines without a GPU: products of f32 and tf32 by columns, as rows of the CUDA device ask for
 * them, at once. One algorithm; a bias behind the product, and what is added to it. Products in tf32 see no more than the
 * leading 11 bits of an operand, as tensor cores do. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "kernel/gemm/cublaslt_types.h"

#define HT_CUBLASLT(name, parameters) __attribute__((visibility("default"))) int name parameters;
#include "kernel/gemm/cublaslt.def"

enum { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { F32 = 0, COMPUTE_F32 = 68, COMPUTE_TF32 = 77 };
enum { DESC_TURN_A = 3, DESC_TURN_B = 4, DESC_EPILOGUE = 7, DESC_BIAS = 8 };
enum { EPILOGUE_PLAIN = 1, EPILOGUE_BIAS = 4 };

typedef struct description {
    int compute;
    int32_t turn_a, turn_b, epilogue;
    const float *bias;
} description;

typedef struct layout {
    int type;
    uint64_t rows, columns;
    int64_t pitch;
} layout;

int cublasLtCreate(void **handle)
{
    *handle = malloc(1);
    return *handle ? SUCCESS : INVALID_VALUE;
}

int cublasLtDestroy(void *handle)
{
    free(handle);
    return SUCCESS;
}

int cublasLtGetVersion(void)
{
    return 1;
}

int cublasLtMatmulDescCreate(void **desc, int compute_type, int scale_type)
{
    description *d = calloc(1, sizeof *d);
    if (!d || scale_type != F32) return INVALID_VALUE;
    d->compute = compute_type;
    d->epilogue = EPILOGUE_PLAIN;
    *desc = d;
    return SUCCESS;
}

int cublasLtMatmulDescDestroy(void *desc)
{
    free(desc);
    return SUCCESS;
}

int cublasLtMatmulDescSetAttribute(void *desc, int attribute, const void *value, size_t bytes)
{
    description *d = desc;
    void *fields[] = {
        [DESC_TURN_A] = &d->turn_a, [DESC_TURN_B] = &d->turn_b, [DESC_EPILOGUE] = &d->epilogue, [DESC_BIAS] = &d->bias};
    if (attribute < DESC_TURN_A || attribute > DESC_BIAS || !fields[attribute]) return NOT_SUPPORTED;
    memcpy(fields[attribute], value, bytes);
    return SUCCESS;
}

int cublasLtMatrixLayoutCreate(void **made, int type, uint64_t rows, uint64_t columns, int64_t pitch)
{
    layout *l = malloc(sizeof *l);
    if (!l) return INVALID_VALUE;
    *l = (layout){type, rows, columns, pitch};
    *made = l;
    return SUCCESS;
}

int cublasLtMatrixLayoutDestroy(void *l)
{
    free(l);
    return SUCCESS;
}

int cublasLtMatrixLayoutSetAttribute(void *l, int attribute, const void *value, size_t bytes)
{
    (void)l, (void)attribute, (void)value, (void)bytes;
    return NOT_SUPPORTED; /* batches */
}

int cublasLtMatmulPreferenceCreate(void **preference)
{
    return cublasLtCreate(preference);
}

int cublasLtMatmulPreferenceDestroy(void *preference)
{
    return cublasLtDestroy(preference);
}

int cublasLtMatmulPreferenceSetAttribute(void *preference, int attribute, const void *value, size_t bytes)
{
    (void)preference, (void)attribute, (void)value, (void)bytes;
    return SUCCESS;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
                                   int wanted, cublaslt_choice *choices, int *found)
{
    (void)handle, (void)desc, (void)c, (void)d, (void)preference, (void)wanted;
    *found = ((const layout *)a)->type == F32 && ((const layout *)b)->type == F32;
    if (*found) choices[0] = (cublaslt_choice){.workspace_bytes = 0};
    return SUCCESS;
}

/* ---- the product ---- */

/* A factor as rows of k neighbours each, as the cores see it. */
static float *gather(const float *from, const layout *l, int turned, int tf32, uint64_t count, uint64_t depth)
{
    float *rows = malloc(count * depth * sizeof *rows);
    const uint32_t seen = tf32 ? ~(uint32_t)0x1fff : ~(uint32_t)0;
    for (uint64_t i = 0; rows && i < count; i++)
        for (uint64_t k = 0; k < depth; k++) {
            uint32_t bits;
            memcpy(&bits, &from[turned ? (int64_t)i * l->pitch + (int64_t)k : (int64_t)k * l->pitch + (int64_t)i],
                   sizeof bits);
            bits &= seen;
            memcpy(&rows[i * depth + k], &bits, sizeof bits);
        }
    return rows;
}

static float dot(const float *a, const float *b, uint64_t depth)
{
    enum { LANES = 16 };
    float lanes[LANES] = {0}, sum = 0;
    for (uint64_t k = 0; k < depth; k += LANES)
        for (uint64_t i = 0; i < LANES && k + i < depth; i++) lanes[i] += a[k + i] * b[k + i];
    for (int i = 0; i < LANES; i++) sum += lanes[i];
    return sum;
}

int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
                   void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                   const cublaslt_algorithm *algorithm, void *workspace, size_t workspace_bytes, void *stream)
{
    (void)handle, (void)algorithm, (void)workspace, (void)workspace_bytes, (void)stream;
    const description *about = desc;
    const layout *la = a_layout, *lb = b_layout, *lc = c_layout, *ld = d_layout;
    int tf32 = about->compute == COMPUTE_TF32;
    uint64_t depth = about->turn_a ? la->rows : la->columns;
    if (depth != (about->turn_b ? lb->columns : lb->rows) || *(const float *)alpha != 1) return INVALID_VALUE;
    float *left = gather(a, la, about->turn_a, tf32, ld->rows, depth);
    float *right = gather(b, lb, !about->turn_b, tf32, ld->columns, depth);
    for (uint64_t column = 0; left && right && column < ld->columns; column++)
        for (uint64_t row = 0; row < ld->rows; row++) {
            float y = dot(left + row * depth, right + column * depth, depth);
            if (*(const float *)beta != 0) y += ((const float *)c)[(int64_t)column * lc->pitch + (int64_t)row];
            if (about->epilogue == EPILOGUE_BIAS) y += about->bias[row];
            ((float *)d)[(int64_t)column * ld->pitch + (int64_t)row] = y;
        }
    int result = left && right ? SUCCESS : INVALID_VALUE;
    free(left);
    free(right);
    return result;
}
