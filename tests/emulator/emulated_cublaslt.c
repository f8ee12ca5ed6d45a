/* libcublasLt.so.13 for machines without a GPU: products of f32, tf32, f16, bf16 and i8 by columns, as rows of the CUDA
 * device ask for them. One algorithm; a bias behind the product, and what is added to it. Products in tf32 see no more
 * than the leading 11 bits of an operand, as tensor cores do. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "emulated_graphs.h"
#include "kernel/gemm/cublaslt_types.h"

#define HT_CUBLASLT(name, parameters) __attribute__((visibility("default"))) int name parameters;
#include "kernel/gemm/cublaslt.def"

enum { SUCCESS = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { F32 = 0, F16 = 2, I8 = 3, I32 = 10, BF16 = 14, COMPUTE_F32 = 68, COMPUTE_I32 = 72, COMPUTE_TF32 = 77 };
enum { DESC_TURN_A = 3, DESC_TURN_B = 4, DESC_EPILOGUE = 7, DESC_BIAS = 8 };
enum { EPILOGUE_PLAIN = 1, EPILOGUE_BIAS = 4 };

typedef struct description {
    int compute;
    int32_t turn_a, turn_b, epilogue;
    const void *bias; /* of the type of the result */
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
    if (!d || scale_type != (compute_type == COMPUTE_I32 ? I32 : F32)) return INVALID_VALUE;
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

/* Products of i8 are sums along k of both operands, whose distances are multiples of 16. */
static int takes(const description *about, const layout *a, const layout *b, const layout *d)
{
    if (a->type == F32 || a->type == F16 || a->type == BF16) return 1;
    int along = about->turn_a && !about->turn_b, apart = a->pitch % 16 == 0 && b->pitch % 16 == 0 && d->pitch % 4 == 0;
    return a->type == I8 && d->type == I32 && about->compute == COMPUTE_I32 && along && apart;
}

int cublasLtMatmulAlgoGetHeuristic(void *handle, void *desc, void *a, void *b, void *c, void *d, void *preference,
                                   int wanted, cublaslt_choice *choices, int *found)
{
    (void)handle, (void)c, (void)preference, (void)wanted;
    *found = ((const layout *)a)->type == ((const layout *)b)->type && takes(desc, a, b, d);
    if (*found) choices[0] = (cublaslt_choice){.workspace_bytes = 0};
    return SUCCESS;
}

/* ---- the product ---- */

static float load(const void *from, int type, int64_t i)
{
    uint32_t bits;
    float x;
    if (type == F32) return ((const float *)from)[i];
    if (type == F16) return (float)((const _Float16 *)from)[i];
    bits = (uint32_t)((const uint16_t *)from)[i] << 16;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static void store(void *to, int type, int64_t i, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (type == F32)
        ((float *)to)[i] = x;
    else if (type == F16)
        ((_Float16 *)to)[i] = (_Float16)x;
    else
        ((uint16_t *)to)[i] = (uint16_t)(x != x ? 0x7fc0 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* A factor as rows of k neighbours each, as the cores see it. */
static float *gather(const void *from, const layout *l, int turned, int tf32, uint64_t count, uint64_t depth)
{
    float *rows = malloc(count * depth * sizeof *rows);
    const uint32_t seen = tf32 ? ~(uint32_t)0x1fff : ~(uint32_t)0;
    for (uint64_t i = 0; rows && i < count; i++)
        for (uint64_t k = 0; k < depth; k++) {
            uint32_t bits;
            float x =
                load(from, l->type, turned ? (int64_t)i * l->pitch + (int64_t)k : (int64_t)k * l->pitch + (int64_t)i);
            memcpy(&bits, &x, sizeof bits);
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

/* A product that is under way. */
typedef struct job {
    description about;
    layout a, b, c, d;
    const void *from_a, *from_b, *from_c;
    void *to;
    float beta;
} job;

static void multiply_i8(const job *x)
{
    const int8_t *a = x->from_a, *b = x->from_b;
    int32_t *d = x->to;
    for (uint64_t column = 0; column < x->d.columns; column++)
        for (uint64_t row = 0; row < x->d.rows; row++) {
            int32_t sum = 0;
            for (uint64_t k = 0; k < x->a.rows; k++)
                sum += a[(int64_t)row * x->a.pitch + (int64_t)k] * b[(int64_t)column * x->b.pitch + (int64_t)k];
            d[(int64_t)column * x->d.pitch + (int64_t)row] = sum;
        }
}

static void multiply(const void *arg)
{
    const job *x = arg;
    if (x->about.compute == COMPUTE_I32) {
        multiply_i8(x);
        return;
    }
    int tf32 = x->about.compute == COMPUTE_TF32;
    uint64_t depth = x->about.turn_a ? x->a.rows : x->a.columns;
    float *left = gather(x->from_a, &x->a, x->about.turn_a, tf32, x->d.rows, depth);
    float *right = gather(x->from_b, &x->b, !x->about.turn_b, tf32, x->d.columns, depth);
    if (!left || !right) abort();
    for (uint64_t column = 0; column < x->d.columns; column++)
        for (uint64_t row = 0; row < x->d.rows; row++) {
            float y = dot(left + row * depth, right + column * depth, depth);
            if (x->beta != 0) y += load(x->from_c, x->c.type, (int64_t)column * x->c.pitch + (int64_t)row);
            if (x->about.epilogue == EPILOGUE_BIAS) y += load(x->about.bias, x->d.type, (int64_t)row);
            store(x->to, x->d.type, (int64_t)column * x->d.pitch + (int64_t)row, y);
        }
    free(left);
    free(right);
}

int cublasLtMatmul(void *handle, void *desc, const void *alpha, const void *a, void *a_layout, const void *b,
                   void *b_layout, const void *beta, const void *c, void *c_layout, void *d, void *d_layout,
                   const cublaslt_algorithm *algorithm, void *workspace, size_t workspace_bytes, void *stream)
{
    (void)handle, (void)algorithm, (void)workspace, (void)workspace_bytes;
    const description *about = desc;
    const layout *la = a_layout, *lb = b_layout;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    emulated_call_function *call = NULL;
    if (driver) *(void **)&call = dlsym(driver, "emulated_call");
    if (driver) dlclose(driver);
    job *x = call ? malloc(sizeof *x) : NULL;
    if (!x) return INVALID_VALUE;
    int whole = about->compute == COMPUTE_I32;
    *x =
        (job){*about, *la, *lb, *(layout *)c_layout, *(layout *)d_layout, a, b, c, d, whole ? 0 : *(const float *)beta};
    int plain = whole ? *(const int32_t *)alpha == 1 && *(const int32_t *)beta == 0 : *(const float *)alpha == 1;
    if (!plain || (about->turn_a ? la->rows : la->columns) != (about->turn_b ? lb->columns : lb->rows)) {
        free(x);
        return INVALID_VALUE;
    }
    call(stream, multiply, x);
    return SUCCESS;
}
