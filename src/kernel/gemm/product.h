/* A matmul call as matrices: what the rows of matmul share. */
#ifndef HT_KERNEL_PRODUCT_H
#define HT_KERNEL_PRODUCT_H

#include <string.h>

#include "kernel/kernel.h"

typedef struct matrix {
    const void *data;
    ht_dtype dtype;
    int64_t down, across;       /* strides from row to row and from column to column */
    int64_t batch[HT_MAX_RANK]; /* strides of the leading axes of y; 0 where broadcast */
} matrix;

typedef struct product {
    matrix a, b;
    void *y; /* row-major */
    ht_dtype dtype;
    int64_t m, n, k;
    int batch_rank;
    int64_t batch_dim[HT_MAX_RANK];
} product;

static inline matrix product_matrix(const ht_call *call, size_t i, const void *data, const char *turned)
{
    const ht_type *type = call->in[i], *y = call->out[0];
    bool swap = ht_call_int(call, turned);
    matrix m = {
        data, type->dtype, type->stride[type->rank - (swap ? 1 : 2)], type->stride[type->rank - (swap ? 2 : 1)], {0}};
    int missing = y->rank - type->rank;
    for (int axis = 0; axis < type->rank - 2; axis++)
        if (type->dim[axis] != 1) m.batch[missing + axis] = type->stride[axis];
    return m;
}

/* Rows of a batch that all meet the same b are rows of one matrix, if a lies so. */
static inline void product_join_batches(product *p)
{
    for (; p->batch_rank > 0; p->batch_rank--) {
        int last = p->batch_rank - 1;
        if (p->batch_dim[last] == 1) continue;
        if (p->m == 1) p->a.down = p->a.batch[last];
        if (p->b.batch[last] != 0 || p->a.batch[last] != p->m * p->a.down) return;
        p->m *= p->batch_dim[last];
    }
}

/* A column is a row of the transposed product. */
static inline void product_turn(product *p)
{
    matrix row = p->b;
    row.down = p->b.across;
    row.across = p->b.down;
    p->b = p->a;
    p->b.down = p->a.across;
    p->b.across = p->a.down;
    p->a = row;
    p->n = p->m;
    p->m = 1;
}

/* As the call says it. Without pointers when only sizes matter: in and out may be NULL. */
static inline product product_as_called(const ht_call *call, const void *const *in, void *const *out)
{
    const ht_type *a = call->in[0], *y = call->out[0];
    product p = {.a = product_matrix(call, 0, in ? in[0] : NULL, "ta"),
                 .b = product_matrix(call, 1, in ? in[1] : NULL, "tb"),
                 .y = out ? out[0] : NULL,
                 .dtype = y->dtype,
                 .m = y->dim[y->rank - 2],
                 .n = y->dim[y->rank - 1],
                 .k = a->dim[a->rank - (ht_call_int(call, "ta") ? 2 : 1)],
                 .batch_rank = y->rank - 2};
    memcpy(p.batch_dim, y->dim, sizeof p.batch_dim);
    product_join_batches(&p);
    return p;
}

/* With the longer of two vectors in b: a and b may have changed places. */
static inline product product_of(const ht_call *call, const void *const *in, void *const *out)
{
    product p = product_as_called(call, in, out);
    if (p.n == 1 && p.m > 1) product_turn(&p);
    return p;
}

/* The product of an instruction: alone, or with the calls that follow it. */
static inline product product_of_launch(const ht_launch *launch)
{
    const ht_fused *fused = launch->fused;
    return product_of(fused ? fused->gemm : launch->call, launch->in + (fused ? fused->n_in : 0), launch->out);
}

static inline int64_t product_batches(const product *p)
{
    int64_t count = 1;
    for (int i = 0; i < p->batch_rank; i++) count *= p->batch_dim[i];
    return count;
}

/* Where the matrices of one batch start, in elements. */
static inline void product_batch(const product *p, int64_t batch, int64_t *a_at, int64_t *b_at)
{
    *a_at = *b_at = 0;
    for (int i = p->batch_rank - 1; i >= 0; i--) {
        *a_at += batch % p->batch_dim[i] * p->a.batch[i];
        *b_at += batch % p->batch_dim[i] * p->b.batch[i];
        batch /= p->batch_dim[i];
    }
}

/* In a text: how far the matrices of `batch` lie from the first. */
static inline void product_write_offset(ht_text *text, const product *p, const matrix *of)
{
    int64_t below = 1;
    ht_text_add(text, "0");
    for (int axis = p->batch_rank - 1; axis >= 0; below *= p->batch_dim[axis--])
        if (of->batch[axis] && p->batch_dim[axis] > 1)
            ht_text_add(text, " + batch / %lld %% %lld * %lld", (long long)below, (long long)p->batch_dim[axis],
                        (long long)of->batch[axis]);
}

#endif
