/* Products of codes with exact sums: what the driver, its inner loops and the rows of matmul_q and conv_q share.
 * Inner loops read a as u8: codes of i8 are moved up by 128, and the zero point with them.
 * Packed w: the sums of its columns, i32, then slivers of INT8_NR columns with all of K, followed by zeros up to a multiple of
 * the kernel's step; element (k, j) of a sliver at (k / group · NR + j) · group + k % group. */
#ifndef HT_KERNEL_INT8_GEMM_H
#define HT_KERNEL_INT8_GEMM_H

#include "kernel/kernel.h"
#include "op/op.h"

enum {
    INT8_AMX_STEP = 64,        /* of k that a tile register holds */
    INT8_NR = 32,              /* columns of a sliver */
    INT8_TILE_N = 8 * INT8_NR, /* columns of a tile of y, at most: its sums lie so far apart */
    INT8_KC = 1024,            /* of k at a time, at most */
    INT8_CODE_SHIFT = 128,     /* from i8 to u8 */
};

/* One block: sums[rows × NR] (rows INT8_TILE_N apart) = a · b, or += unless it is the first block of k. depth is a multiple of
 * the kernel's step; sums and b are aligned to 64 bytes. An inner loop may do more than `rows`, up to those of its kernel: there is
 * memory for them. */
typedef struct int8_block {
    int64_t rows;
    int32_t *sums;
    const void *a;
    int64_t a_pitch; /* elements from row to row */
    const int8_t *b;
    int64_t depth;
    bool first;
    /* What an inner loop that leaves vector units free does beside its own work, at each INT8_AMX_STEP of k. */
    void (*aside)(void *arg);
    void *aside_arg;
} int8_block;

/* Sums that become results: [rows × columns] of y, at most INT8_NR columns; f32 may lie over the sums. */
typedef struct int8_results {
    int32_t *sums; /* rows INT8_TILE_N apart */
    int64_t rows, columns;
    const float *row_scale;
    int64_t scale_step; /* between rows: 1, or 0 where one serves all */
    const int32_t *row_zero;
    bool rows_alike; /* all have the scale and the zero point of the first */
    const int32_t *column_sum;
    const float *column_scale, *bias; /* bias may be NULL */
    /* What is added: f32, or the numbers that codes stand for; NULL: nothing. */
    const char *residual;
    int64_t residual_pitch; /* bytes */
    ht_dtype residual_dtype;
    float residual_scale, residual_zero; /* of codes */
    char *y;
    int64_t y_pitch; /* bytes */
    ht_dtype dtype;
    ht_coding coding; /* of codes */
} int8_results;

/* A way to compute, for one instruction set. */
typedef struct int8_kernel {
    int64_t rows;                      /* of a block */
    int64_t step;                      /* of k: blocks are multiples of it */
    int64_t group;                     /* neighbours along k that lie side by side in packed w: 4 or 2 */
    int64_t a_bytes;                   /* of an element of a as the inner loop reads it: 1, or 2 */
    bool overlaps;                     /* the inner loop has time for `aside` */
    bool any_pitch;                    /* it does not mind rows of a that meet in one set of L1 */
    void (*begin)(void), (*end)(void); /* around the blocks of a tile; NULL: nothing */
    void (*multiply)(const int8_block *block);
    void (*finish)(const int8_results *results, int64_t rows); /* the first rows of them */
} int8_kernel;

void ht_int8_dot_vnni(const int8_block *block);
void ht_int8_finish_vnni(const int8_results *results, int64_t rows);
void ht_int8_dot_amx(const int8_block *block);
void ht_int8_finish_amx(const int8_results *results, int64_t rows);
void ht_int8_amx_begin(void);
void ht_int8_amx_end(void);
enum { INT8_VNNI_ROWS = 14, INT8_AMX_ROWS = 32 };
extern const int8_kernel ht_int8_vnni, ht_int8_amx;

/* ---- the driver ---- */

/* Element (k, column) of w lies at column · across + k % channels · down + k / channels % columns · right + k / channels /
 * columns · below: a matrix has one tap. */
typedef struct int8_weights {
    const int8_t *data;
    int64_t across, down, right, below;
    int64_t channels, columns; /* columns: of taps */
} int8_weights;

/* y[m,n] = finish(a · w). */
typedef struct int8_product {
    const int8_kernel *kernel;
    int64_t m, n, k;
    const void *a;
    int64_t a_pitch; /* elements from row to row */
    bool is_signed;  /* a is i8 */
    /* Where a's rows are nowhere in memory: rows [row, row + rows) for k to k + depth, as u8, `pitch` bytes apart. */
    void (*gather)(const void *arg, uint8_t *to, int64_t pitch, int64_t row, int64_t rows, int64_t k, int64_t depth);
    const void *gather_arg;
    int8_weights w;
    const float *a_scale, *w_scale, *bias; /* bias may be NULL */
    const int32_t *a_zero;                 /* may be NULL: 0 */
    bool row_scales, row_zeros, column_scales;
    const char *residual; /* rows as y's; NULL: none */
    ht_dtype residual_dtype;
    float residual_scale, residual_zero;
    char *y;
    int64_t y_pitch, y_first; /* elements from row to row, and before the first */
    ht_dtype dtype;
    ht_coding coding;            /* of codes */
    const ht_epilogue *epilogue; /* of the calls that follow; NULL: none */
    /* The columns at hand, which are packed: ht_int8_set_columns. */
    int64_t column, n_packed;
    int32_t *column_sums;
    int8_t *b;
    int64_t tile_m, tile_n;
} int8_product;

int64_t ht_int8_packed_bytes(const int8_kernel *kernel, int64_t columns, int64_t k);
void ht_int8_set_columns(int8_product *p, void *packed, int64_t column, int64_t columns);
void ht_int8_pack(int8_product *p, ht_pool *pool);
/* The columns that are packed. */
void ht_int8_multiply(int8_product *p, ht_pool *pool, int threads);

/* ---- rows of matmul_q are made of it ---- */
void ht_int8_gemm_run(const ht_launch *launch, const int8_kernel *kernel);
int64_t ht_int8_gemm_workspace(const ht_call *call, const int8_kernel *kernel);
int64_t ht_int8_gemm_prepack_bytes(const ht_call *call, const int8_kernel *kernel);
void ht_int8_gemm_prepack(const ht_launch *launch, const int8_kernel *kernel);
const char *ht_int8_gemm_can(const ht_call *call);

#endif
