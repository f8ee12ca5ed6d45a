/* What the rows of lstm and lstm_grad share: operands, tiles, who is alive. */
#ifndef HT_KERNEL_LSTM_H
#define HT_KERNEL_LSTM_H

#include "kernel/gemm/gemm.h"
#include "kernel/rnn/packed.h"
#include "kernel/rnn/panel.h"
#include "op/op.h"

/* A tile of a step: ROWS sequences by UNITS units, PACKED_ROWS sequences at a time. */
enum { ROWS = 32, UNITS = 64, COLUMNS = 128 };
enum { GATE_I, GATE_F, GATE_G, GATE_O, CELL, RESERVED };
#define REAL_DTYPE (sizeof(real) == sizeof(float) ? HT_F32 : HT_F64)

/* An operand or a result; data is NULL where an input is left out. */
typedef struct side {
    void *data;
    ht_dtype dtype;
} side;

typedef struct layer {
    const ht_launch *launch;
    int64_t steps, batch, inputs, hidden, gates; /* gates: 4 hidden */
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
    return (gemm_side){.data = p.data, .dtype = REAL_DTYPE, .down = down, .across = across};
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
