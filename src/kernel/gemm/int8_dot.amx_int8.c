/* The inner loop of products of codes with AMX: 32 rows by 32 columns in four tiles of i32. All eight tiles have 16 rows of 64
 * bytes: of sums 16 i32, of a 64 elements along k, of b the quads of 16 columns. tdpbusd multiplies u8 by i8 and adds to i32,
 * exactly, and leaves the vector units free: what is to be done aside is done meanwhile. */
#include "kernel/gemm/int8_finish_avx512.h"

enum {
    HIGH = 16,                   /* rows of a tile */
    WIDE = 16,                   /* i32, or quads, in a row of a tile */
    SUM_BYTES = INT8_TILE_N * 4, /* from row to row */
    B_BYTES = INT8_NR * 4,
};

/* As ldtilecfg reads it. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "ldtilecfg reads 64 bytes");

/* In memory for good: compilers do not see that ldtilecfg reads all of it. */
static const tile_config config = {
    .palette = 1,
    .row_bytes = {4 * WIDE, 4 * WIDE, 4 * WIDE, 4 * WIDE, 4 * WIDE, 4 * WIDE, 4 * WIDE, 4 * WIDE},
    .rows = {HIGH, HIGH, HIGH, HIGH, HIGH, HIGH, HIGH, HIGH},
};

void ht_int8_amx_begin(void)
{
    _tile_loadconfig(&config);
}

void ht_int8_amx_end(void)
{
    _tile_release();
}

/* Tiles 0 to 3: sums, 2 × 2; 4 and 5: a; 6 and 7: b. Tile numbers are part of the instructions. */
void ht_int8_dot_amx(const int8_block *block)
{
    const uint8_t *a = block->a, *a_low = a + HIGH * block->a_pitch;
    int32_t *sums = block->sums, *low = sums + HIGH * INT8_TILE_N;
    if (block->first) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sums, SUM_BYTES);
        _tile_loadd(1, sums + WIDE, SUM_BYTES);
        _tile_loadd(2, low, SUM_BYTES);
        _tile_loadd(3, low + WIDE, SUM_BYTES);
    }
    for (int64_t k = 0; k < block->depth; k += INT8_AMX_STEP) {
        const int8_t *b = block->b + k * INT8_NR;
        _tile_loadd(4, a + k, block->a_pitch);
        _tile_loadd(6, b, B_BYTES);
        _tile_loadd(7, b + 4 * WIDE, B_BYTES);
        _tile_loadd(5, a_low + k, block->a_pitch);
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
        if (block->aside) block->aside(block->aside_arg);
    }
    _tile_stored(0, sums, SUM_BYTES);
    _tile_stored(1, sums + WIDE, SUM_BYTES);
    _tile_stored(2, low, SUM_BYTES);
    _tile_stored(3, low + WIDE, SUM_BYTES);
}

void ht_int8_finish_amx(const int8_results *results, int64_t rows)
{
    int8_finish_avx512(results, rows);
}
