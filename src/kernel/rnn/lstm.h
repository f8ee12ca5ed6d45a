/* What lstm and lstm_grad share: matrices, products in cache, operands, tiles, who is alive. For files that are
 * compiled with contraction. */
#ifndef HT_KERNEL_LSTM_H
#define HT_KERNEL_LSTM_H

#include "kernel/gemm/gemm.h"
#include "kernel/simd.h"
#include "op/op.h"

/* ---- matrices in the workspace ---- */

/* A matrix inside a buffer: element (i, j) lies at data[i * row + j]. */
typedef struct panel {
    real *data;
    int64_t row;
} panel;

/* Cuts buffers out of a workspace; with no start it only counts. */
typedef struct panel_scratch {
    real *start;
    int64_t used;
} panel_scratch;

static inline panel panel_take(panel_scratch *scratch, int64_t row_count, int64_t row)
{
    panel p = {scratch->start ? scratch->start + scratch->used : NULL, row};
    scratch->used += (row_count * row + 15) / 16 * 16;
    return p;
}

static inline void panel_zero(panel c, int64_t m, int64_t n)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j++) c.data[i * c.row + j] = 0;
}

/* ---- a few rows times a matrix that is packed once and used in every step ---- */

enum {
    PACKED_WIDTH = 2 * VL, /* columns of a sliver: element (k, j) at k·WIDTH + j */
    PACKED_ROWS = VEC_REGISTERS == 32 ? 8 : 4,
};

/* `count` rows of a, a_row apart, by one sliver, in the order of k. The two halves of the result's rows go to `left` and
 * `right`, to_row apart. */
static inline __attribute__((always_inline)) void packed_rows(real *left, real *right, int64_t to_row,
                                                              const real *restrict a, int64_t a_row,
                                                              const real *restrict b, int64_t depth, const int count)
{
    vec sum[PACKED_ROWS][2];
    for (int r = 0; r < count; r++) sum[r][0] = sum[r][1] = (vec){0};
    for (int64_t k = 0; k < depth; k++) {
        vec first = *(const vec *)(b + k * PACKED_WIDTH);
        vec second = *(const vec *)(b + k * PACKED_WIDTH + VL);
#pragma GCC unroll 16
        for (int r = 0; r < count; r++) {
            vec x = a[r * a_row + k] - (vec){0}; /* everywhere, sign of zero included */
            sum[r][0] += x * first;
            sum[r][1] += x * second;
        }
    }
    for (int r = 0; r < count; r++) {
        *(vec *)(left + r * to_row) = sum[r][0];
        *(vec *)(right + r * to_row) = sum[r][1];
    }
}

/* The same for up to PACKED_ROWS rows. Each row's bits are those that it would have alone. */
static inline void packed_product(real *left, real *right, int64_t to_row, const real *a, int64_t a_row, const real *b,
                                  int64_t depth, int64_t rows)
{
    if (rows == PACKED_ROWS) {
        packed_rows(left, right, to_row, a, a_row, b, depth, PACKED_ROWS);
        return;
    }
    int64_t r = 0;
    for (; r + PACKED_ROWS / 2 <= rows; r += PACKED_ROWS / 2)
        packed_rows(left + r * to_row, right + r * to_row, to_row, a + r * a_row, a_row, b, depth, PACKED_ROWS / 2);
    for (; r < rows; r++) packed_rows(left + r * to_row, right + r * to_row, to_row, a + r * a_row, a_row, b, depth, 1);
}

/* ---- the layer ---- */

/* A tile of a step: ROWS sequences by UNITS units, PACKED_ROWS sequences at a time. */
enum { ROWS = 32, UNITS = 64, COLUMNS = 128 };
enum { GATE_I, GATE_F, GATE_G, GATE_O, CELL, RESERVED };

/* An operand or a result; data is NULL where an input is left out. */
typedef struct side {
    void *data;
    ht_dtype dtype;
} side;

typedef struct layer {
    const ht_launch *launch;
    int64_t steps, batch, inputs, hidden, gates; /* gates: 4 hidden */
    int64_t threads;                             /* of the target */
    side x, h0, c0, w_input, w_hidden, lengths, reserve;
} layer;

static inline side input_side(const ht_launch *launch, size_t input)
{
    if (input >= launch->call->n_in || !launch->call->in[input]) return (side){NULL, HT_F32};
    return (side){(void *)(uintptr_t)launch->in[input], launch->call->in[input]->dtype};
}

static inline side result_side(const ht_launch *launch, size_t result)
{
    return (side){launch->out[result], launch->call->out[result]->dtype};
}

static inline layer layer_sizes(const ht_call *call)
{
    const ht_type *x = call->in[0], *h0 = call->in[1];
    return (layer){
        .steps = x->dim[0], .batch = x->dim[1], .inputs = x->dim[2], .hidden = h0->dim[1], .gates = 4 * h0->dim[1]};
}

static inline layer layer_of(const ht_launch *launch, size_t lengths)
{
    layer l = layer_sizes(launch->call);
    l.launch = launch;
    l.threads = launch->threads;
    l.x = input_side(launch, 0), l.h0 = input_side(launch, 1), l.c0 = input_side(launch, 2);
    l.w_input = input_side(launch, 3), l.w_hidden = input_side(launch, 4);
    l.lengths = input_side(launch, lengths);
    return l;
}

static inline bool alive(const layer *l, int64_t step, int64_t sequence)
{
    return !l->lengths.data || step < ht_load_int(l->lengths.data, l->lengths.dtype, sequence);
}

/* n values from element `start`, or zeros where the input is left out. */
static inline void load_or_zero(real *to, side from, int64_t start, int64_t n)
{
    if (from.data)
        ht_load(to, from.data, from.dtype, start, n);
    else
        memset(to, 0, (size_t)n * sizeof *to);
}

static inline int64_t round_up(int64_t n, int64_t unit)
{
    return ht_tiles(n, unit) * unit;
}

/* A tile of [B,H]: units run fastest, so that neighbouring tiles share the rows that they read. */
typedef struct spot {
    int64_t row, rows, unit, units;
} spot;

static inline spot spot_of(const layer *l, int64_t tile)
{
    int64_t across = ht_tiles(l->hidden, UNITS);
    spot at = {.row = tile / across * ROWS, .unit = tile % across * UNITS};
    at.rows = ht_min_i64(ROWS, l->batch - at.row);
    at.units = ht_min_i64(UNITS, l->hidden - at.unit);
    return at;
}

static inline int64_t spots(const layer *l)
{
    return ht_tiles(l->batch, ROWS) * ht_tiles(l->hidden, UNITS);
}

static inline panel part(panel whole, int64_t row, int64_t column)
{
    return (panel){whole.data + row * whole.row + column, whole.row};
}

static inline gemm_side real_matrix(panel p, int64_t down, int64_t across)
{
    return (gemm_side){.data = p.data, .dtype = HT_REAL_DTYPE, .down = down, .across = across};
}

static inline int64_t at_least_one(int64_t n)
{
    return n > 1 ? n : 1;
}

static inline const char *lstm_refuse(const ht_call *call)
{
    const char *reason = ht_refuse_real(call);
    if (!reason) reason = ht_refuse_strided(call);
    if (reason) return reason;
    layer l = layer_sizes(call);
    double rows = (double)l.steps * (double)l.batch, hidden = (double)l.hidden + UNITS;
    double reals = 8 * hidden * ((double)l.inputs + hidden) + 6 * rows * hidden + 4 * (double)l.batch * hidden;
    return reals < 0x1p50 ? NULL : "the workspace would pass 2^50 numbers";
}

#endif
