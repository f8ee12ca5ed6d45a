/* The inner loop of bf16 products with AMX: 32 rows by 32 columns in four tiles of f32.
 * All eight tiles have 16 rows of 64 bytes: of sums 16 f32, of a 32 elements along k, of b the pairs of 16 columns.
 * tdpbf16ps takes subnormal numbers for zero. The tiles are set up and given back within a call, so that a thread that
 * waits has no tile state to save. */
#include <immintrin.h>

#include "kernel/gemm/bf16_dot.h"

enum {
    HIGH = 16,                       /* rows of a tile */
    WIDE = 16,                       /* f32, or pairs, in a row of a tile */
    SUM_BYTES = BF16_DOT_TILE_N * 4, /* from row to row */
    B_BYTES = BF16_DOT_NR * 4,
};

/* As ldtilecfg reads it. */
typedef struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
} tile_config;
_Static_assert(sizeof(tile_config) == 64, "ldtilecfg reads 64 bytes");

/* Tiles 0 to 3: sums, 2 × 2; 4 and 5: a; 6 and 7: b. Tile numbers are part of the instructions. */
static void multiply_sliver(bf16_strip *s, float *sums, const uint16_t *b)
{
    const uint16_t *a = s->a, *a_low = a + HIGH * s->a_pitch;
    float *low = sums + HIGH * BF16_DOT_TILE_N;
    int64_t a_bytes = 2 * s->a_pitch;
    if (s->first) {
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
    for (int64_t k = 0; k < s->depth; k += BF16_DOT_STEP) {
        prefetch_some(s->next);
        _tile_loadd(4, a + k, a_bytes);
        _tile_loadd(6, b + k * BF16_DOT_NR, B_BYTES);
        _tile_loadd(7, b + k * BF16_DOT_NR + 2 * WIDE, B_BYTES);
        _tile_loadd(5, a_low + k, a_bytes);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, sums, SUM_BYTES);
    _tile_stored(1, sums + WIDE, SUM_BYTES);
    _tile_stored(2, low, SUM_BYTES);
    _tile_stored(3, low + WIDE, SUM_BYTES);
}

void ht_bf16_dot_amx(bf16_strip *strip)
{
    tile_config config = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        config.row_bytes[tile] = 4 * WIDE;
        config.rows[tile] = HIGH;
    }
    _tile_loadconfig(&config);
    for (int64_t j = 0; j < strip->slivers; j++)
        multiply_sliver(strip, strip->sums + j * BF16_DOT_NR, strip->b + j * BF16_DOT_KC * BF16_DOT_NR);
    _tile_release();
}
