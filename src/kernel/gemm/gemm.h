/* The GEMM core: y = finish(a · b), blocks packed by exchangeable loaders. For *.cpu.c files of any op that is a matrix
 * product at heart. */
#ifndef HT_KERNEL_GEMM_H
#define HT_KERNEL_GEMM_H

#include "kernel/cpu.h"

typedef struct gemm_side gemm_side;

/* Block [row, row + rows) × [column, column + columns) as real, row-major with `pitch` between rows. */
typedef void (*gemm_load)(const gemm_side *side, real *to, int64_t pitch, int64_t row, int64_t rows, int64_t column,
                          int64_t columns);

/* One operand, as a matrix with any strides, or whatever `load` makes of it. */
struct gemm_side {
    const void *data;
    ht_dtype dtype;
    int64_t down, across; /* strides from row to row and column to column */
    gemm_load load;       /* NULL: by the strides above */
    const void *more;     /* for load */
};

/* The last thing that happens to results before their only rounding: a block of y, complete, whose rows lie `pitch`
 * apart, to be changed in place. Each element of y comes exactly once, on the thread that made it, while the block is in
 * L1: blocks are a few rows high, and up to 256 columns wide. */
typedef void (*gemm_finish)(const void *arg, int64_t row, int64_t column, int64_t rows, int64_t columns, real *values,
                            int64_t pitch);

typedef struct gemm_job {
    gemm_side a, b;
    int64_t m, n, k;
    void *y; /* rows of n elements, y_down apart; NULL: `finish` takes them away */
    ht_dtype dtype;
    int64_t y_down;
    gemm_finish finish; /* NULL: nothing */
    const void *finish_arg;
    void *workspace; /* HT_K(gemm_workspace) bytes, aligned to 64 */
    int64_t threads; /* that tiles are cut for; 0: any number. The bits do not depend on it. */
    const void
        *prepacked; /* all of b, as gemm_prepack left it; NULL: b is packed along the way. The same bits either way. */
} gemm_job;

#define gemm_run                    HT_K(ht_gemm_run)
#define gemm_workspace              HT_K(ht_gemm_workspace)
#define gemm_prepack                HT_K(ht_gemm_prepack)
#define gemm_prepacked_bytes        HT_K(ht_gemm_prepacked_bytes)
#define gemm_block_depth            HT_K(ht_gemm_block_depth)
#define gemm_sparse_run             HT_K(ht_gemm_sparse_run)
#define gemm_sparse_workspace       HT_K(ht_gemm_sparse_workspace)
#define gemm_sparse_prepack         HT_K(ht_gemm_sparse_prepack)
#define gemm_sparse_prepacked_bytes HT_K(ht_gemm_sparse_prepacked_bytes)

void gemm_run(const gemm_job *job, ht_pool *pool);
/* threads: as in the job. by_columns: the elements of a column of a lie together, which makes a to be packed. */
int64_t gemm_workspace(int64_t m, int64_t n, int64_t k, int64_t threads, bool by_columns);

enum { GEMM_PREPACK_ROWS = 128 }; /* with more rows, packing b along the way costs less than some 5 % (decision 0014) */

/* Packs b, n columns of k elements, for any number of products whatever their rows. `to` is aligned to 64. */
void gemm_prepack(const gemm_side *b, int64_t n, int64_t k, void *to, ht_pool *pool);
int64_t gemm_prepacked_bytes(int64_t n, int64_t k);

/* Of K at a time: sums are made within such blocks, and these are added in order. */
int64_t gemm_block_depth(int64_t k);

/* gemm_sparse.cpu.c: the same product without those runs of b that are zero, for operands of type real. The job's prepacked is
 * what gemm_sparse_prepack left. With finite numbers the bits are those of gemm_run. */
void gemm_sparse_run(const gemm_job *job, ht_pool *pool);
int64_t gemm_sparse_workspace(int64_t m, int64_t k);
void gemm_sparse_prepack(const gemm_side *b, int64_t n, int64_t k, void *to, ht_pool *pool);
int64_t gemm_sparse_prepacked_bytes(int64_t n, int64_t k);

#endif
