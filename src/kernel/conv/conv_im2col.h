/* Convolution of small planes by the GEMM core. A plane of a few positions fills no micro-tile, and every image would
 * read all weights again: so the positions of all images stand side by side as one side of a single product. What the
 * taps see of them is gathered block by block out of padded planes; the matrix never exists as a whole. For
 * conv.cpu.c. */
#ifndef HT_KERNEL_CONV_IM2COL_H
#define HT_KERNEL_CONV_IM2COL_H

#include "kernel/conv/conv_planes.h"
#include "kernel/gemm/gemm.h"

enum {
    IM2COL_POSITIONS = 128, /* of a plane, at most: larger ones fill tiles of their own */
    IM2COL_ALIGN = 64,      /* bytes, of parts of the workspace */
    IM2COL_ROWS = 16,       /* of a matrix that are arranged at a time */
    IM2COL_WIDTH = 16,      /* elements that are copied at once, at most */
};

/* Element (k, q) is what (channel, tap) pair k sees at position q, counted over all images. */
typedef struct im2col {
    const planes *planes;
    const taps *taps;
} im2col;

static inline bool uses_im2col(const ht_conv *c, int64_t positions)
{
    return c->groups == 1 && c->batch > 1 && positions <= IM2COL_POSITIONS;
}

static inline int64_t im2col_bytes(int64_t elems)
{
    return ht_tiles(elems * (int64_t)sizeof(real), IM2COL_ALIGN) * IM2COL_ALIGN;
}

/* From row to row of a matrix that the GEMM core reads where it lies: rows must not meet in one cache set. */
static inline int64_t im2col_pitch(int64_t elems)
{
    return elems * (int64_t)sizeof(real) % 1024 == 0 ? elems + IM2COL_ALIGN / (int64_t)sizeof(real) : elems;
}

/* Cuts n positions from q on into runs; returns their number, n at most. */
static inline int64_t im2col_runs(run *runs, const im2col *c, int64_t q, int64_t n)
{
    const taps *t = c->taps;
    int64_t positions = positions_total(t), image = q / positions, i = q % positions / t->positions[1],
            j = q % t->positions[1];
    int64_t count = 0, down = t->advance * c->planes->line, next = c->planes->channels * c->planes->plane;
    for (int64_t at = 0; at < n; count++, j = 0) {
        runs[count] = (run){at, image * next + i * down + j, ht_min_i64(n - at, t->positions[1] - j)};
        at += runs[count].n;
        if (++i < t->positions[0]) continue;
        i = 0;
        image++;
    }
    return count;
}

/* One line of a block per offset. Runs are copied `width` elements at a time: what one writes past its end is
 * overwritten by the next ones, or surplus when these are short: less than `width` elements behind the block, and less
 * than a line of it. The last one stops at its end. */
static inline __attribute__((always_inline)) void im2col_copy(real *to, int64_t pitch, const real *data,
                                                              const int64_t *offset, int64_t lines, const run *runs,
                                                              int64_t count, const int width)
{
    const run last = runs[count - 1];
    for (int64_t i = 0; i < lines; i++, to += pitch) {
        const real *from = data + offset[i];
        for (int64_t r = 0; r < count - 1; r++)
            memcpy(to + runs[r].at, from + runs[r].from, (size_t)width * sizeof(real));
        if (last.n == width)
            memcpy(to + last.at, from + last.from, (size_t)width * sizeof(real));
        else
            memcpy(to + last.at, from + last.from, (size_t)last.n * sizeof(real));
    }
}

static inline void im2col_lines(const im2col *c, real *to, int64_t pitch, int64_t k, int64_t lines, const run *runs,
                                int64_t count)
{
    int64_t offset[KC], wide = 0;
    for (int64_t r = 0; r < count; r++) wide = runs[r].n > wide ? runs[r].n : wide;
    for (int64_t i = 0; i < lines; i += KC) {
        int64_t n = ht_min_i64(lines - i, KC);
        real *at = to + i * pitch;
        tap_offsets(offset, c->planes, c->taps, k + i, n);
        if (c->planes->in_place || wide > IM2COL_WIDTH) /* the operand itself has nothing to spare behind it */
            for (int64_t l = 0; l < n; l++)
                for (int64_t r = 0; r < count; r++)
                    memcpy(at + l * pitch + runs[r].at, c->planes->data + offset[l] + runs[r].from,
                           (size_t)runs[r].n * sizeof(real));
        else if (wide > 8)
            im2col_copy(at, pitch, c->planes->data, offset, n, runs, count, IM2COL_WIDTH);
        else if (wide > 4)
            im2col_copy(at, pitch, c->planes->data, offset, n, runs, count, 8);
        else
            im2col_copy(at, pitch, c->planes->data, offset, n, runs, count, 4);
    }
}

/* A gemm_load: pairs [row, row + rows) by positions. */
static inline void im2col_load(const gemm_side *side, real *to, int64_t pitch, int64_t row, int64_t rows,
                               int64_t column, int64_t columns)
{
    run runs[KC];
    for (int64_t q = 0; q < columns; q += KC) {
        int64_t count = im2col_runs(runs, side->more, column + q, ht_min_i64(columns - q, KC));
        im2col_lines(side->more, to + q, pitch, row, rows, runs, count);
    }
}

/* The same turned: positions [row, row + rows) by pairs. */
static inline void im2col_load_turned(const gemm_side *side, real *to, int64_t pitch, int64_t row, int64_t rows,
                                      int64_t column, int64_t columns)
{
    run runs[KC];
    real stage[NR * KC + IM2COL_WIDTH] __attribute__((aligned(64)));
    vec square[VL];
    for (int64_t q = 0; q < rows; q += KC, to += KC * pitch) {
        int64_t n = ht_min_i64(rows - q, KC), count = im2col_runs(runs, side->more, row + q, n);
        if (columns < NR || n < KC) memset(stage, 0, sizeof stage);
        im2col_lines(side->more, stage, KC, column, columns, runs, count);
        for (int64_t j = 0; j < columns; j += VL) {
            for (int64_t i = 0; i < n; i += VL) {
                for (int64_t l = 0; l < VL; l++) square[l] = *(const vec *)(stage + (j + l) * KC + i);
                vec_transpose(square);
                for (int64_t l = 0; l < ht_min_i64(VL, n - i); l++)
                    *(vec_unaligned *)(to + (i + l) * pitch + j) = square[l];
            }
        }
    }
}

#endif
