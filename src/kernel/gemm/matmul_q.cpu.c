/* matmul_q by multiply-adds of i16 pairs: the row for every processor. Both operands are widened, so no product saturates: a where
 * its rows are copied, w where it is loaded.
 * Numerics, threads, traffic: int8_gemm.c.  Bound: integer products. */
#include "kernel/gemm/int8_finish.h"
#include "kernel/gemm/int8_pairs.h"
#include "kernel/simd.h"

enum {
    LANES = VEC_BYTES / 4, /* sums in a register */
    ACROSS = 2,            /* registers of a row */
    ROWS = VEC_REGISTERS == 32 ? 14 : 6,
};
typedef HT_MADD_VECTOR(VEC_BYTES) sums_vec;
typedef int16_t pairs_vec __attribute__((vector_size(VEC_BYTES)));
typedef int8_t codes_vec __attribute__((vector_size(VEC_BYTES / 2)));

/* Pairs of k of LANES columns. */
static inline sums_vec load_pairs(const int8_t *b)
{
    codes_vec codes;
    memcpy(&codes, b, sizeof codes);
    return (sums_vec) __builtin_convertvector(codes, pairs_vec);
}

static inline sums_vec broadcast_pair(const int16_t *a)
{
    int32_t pair;
    memcpy(&pair, a, sizeof pair);
    return pair - (sums_vec){0};
}

static inline __attribute__((always_inline)) void multiply_rows(const int8_block *block, const int rows)
{
    int64_t pitch = block->a_pitch;
    for (int column = 0; column < INT8_NR; column += ACROSS * LANES) {
        const int16_t *a = block->a;
        const int8_t *b = block->b + 2 * column;
        sums_vec sums[ROWS][ACROSS];
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int c = 0; c < ACROSS; c++) {
                const int32_t *from = block->sums + r * INT8_TILE_N + column + c * LANES;
                if (block->first)
                    sums[r][c] = (sums_vec){0};
                else
                    memcpy(&sums[r][c], from, sizeof(sums_vec));
            }
        for (int64_t k = 0; k < block->depth; k += 2, a += 2, b += 2 * INT8_NR) {
            sums_vec x = load_pairs(b), y = load_pairs(b + 2 * LANES);
#pragma GCC unroll 16
            for (int r = 0; r < rows; r++) {
                sums_vec pair = broadcast_pair(a + r * pitch);
                HT_MADD(sums[r][0], pair, x);
                HT_MADD(sums[r][1], pair, y);
            }
        }
#pragma GCC unroll 16
        for (int r = 0; r < rows; r++)
#pragma GCC unroll 2
            for (int c = 0; c < ACROSS; c++)
                memcpy(block->sums + r * INT8_TILE_N + column + c * LANES, &sums[r][c], sizeof(sums_vec));
    }
}

static void multiply(const int8_block *block)
{
    if (block->rows == 1)
        multiply_rows(block, 1);
    else if (block->rows == 2)
        multiply_rows(block, 2);
    else if (block->rows <= 4)
        multiply_rows(block, 4);
    else
        multiply_rows(block, ROWS);
}

const int8_kernel HT_K(ht_int8_pairs) = {
    .rows = ROWS, .step = 4, .group = 2, .a_bytes = 2, .multiply = multiply, .finish = int8_finish};

static ht_status matmul_q_run(const ht_launch *launch)
{
    ht_int8_gemm_run(launch, &HT_K(ht_int8_pairs));
    return HT_OK;
}

static ht_status matmul_q_prepack_make(const ht_launch *launch)
{
    ht_int8_gemm_prepack(launch, &HT_K(ht_int8_pairs));
    return HT_OK;
}

static int64_t matmul_q_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_int8_gemm_prepack_bytes(call, &HT_K(ht_int8_pairs));
}

static const ht_prepack matmul_q_prepack = {1u << 1, matmul_q_prepack_bytes, HT_RUN(matmul_q_prepack_make)};

static int64_t matmul_q_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_int8_gemm_workspace(call, &HT_K(ht_int8_pairs));
}

static const char *matmul_q_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    return reason ? reason : ht_int8_gemm_can(call);
}

HT_CPU_DOT_KERNEL(matmul_q, matmul_q, matmul_q_can, matmul_q_workspace, matmul_q_run, &matmul_q_prepack)
