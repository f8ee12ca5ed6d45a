// lstm: [i f g o] = x_t w_input' + h w_hidden' + bias, i, f, o by sigmoid, g by tanh; c = f c + i g; h = o tanh(c);
// y_t = h. At and beyond a sequence's length y is zero, h and c stay. The products with x, over all steps, go by
// tile_product.cu; here a block runs all steps of a few sequences, since sequences do not meet. h and c go from step
// to step unrounded, in memory of the block's own.

enum { LSTM_ROWS = 4, LSTM_THREADS = 512 }; // sequences of a block

template <int64_t STEPS, int64_t BATCH, int64_t HIDDEN> struct lstm_shape {
    static constexpr int64_t steps = STEPS, batch = BATCH, hidden = HIDDEN, reserved = 5 * HIDDEN,
                             states = BATCH * HIDDEN;
};

template <class LENGTH> DEVICE bool is_alive(const LENGTH *lengths, int64_t step, int64_t sequence)
{
    return !lengths || step < get_int(lengths[sequence]);
}

template <class T> DEVICE real get_or_zero(const T *from, int64_t i) { return from ? (real)get(from[i]) : (real)0; }

// ---- forward ----

// What x adds to the gates: `pre`, with PITCH between rows.
template <int64_t ROWS, int64_t INPUTS, int64_t GATES, int64_t PITCH, class X, class W>
DEVICE void multiply_inputs(const X *x, const W *w_input, real *pre)
{
    multiply_tile<ROWS, GATES>(blockIdx.x, 0, INPUTS, matrix_side<X, INPUTS, 1>{x}, matrix_side<W, INPUTS, 1>{w_input},
                               matrix_store<real, PITCH>{pre});
}

// What h adds to the four gates of a unit, for each of the block's sequences: a warp shares the sums.
template <int64_t HIDDEN, class W>
DEVICE void multiply_hidden(real (&sum)[4][LSTM_ROWS], const real *h, int64_t rows, const W *w_hidden, int64_t unit)
{
#pragma unroll
    for (int gate = 0; gate < 4; gate++)
        for (int r = 0; r < LSTM_ROWS; r++) sum[gate][r] = 0;
    for (int64_t k = threadIdx.x % 32; k < HIDDEN; k += 32) {
        real before[LSTM_ROWS];
        for (int r = 0; r < LSTM_ROWS; r++) before[r] = r < rows ? h[r * HIDDEN + k] : (real)0;
#pragma unroll
        for (int gate = 0; gate < 4; gate++) {
            const real w = get(w_hidden[(gate * HIDDEN + unit) * HIDDEN + k]);
            for (int r = 0; r < LSTM_ROWS; r++) sum[gate][r] = fn_fma(before[r], w, sum[gate][r]);
        }
    }
#pragma unroll
    for (int gate = 0; gate < 4; gate++)
        for (int r = 0; r < LSTM_ROWS; r++) sum[gate][r] = warp_fold<sum_of>(sum[gate][r]);
}

// `state` is h before and after a step, then c: [3][BATCH][HIDDEN].
template <class SHAPE, int64_t PITCH, class H0, class C0, class W, class BIAS, class LENGTH, class Y, class H, class C,
          class KEPT>
DEVICE void run_steps(const H0 *h0, const C0 *c0, const W *w_hidden, const BIAS *bias, const LENGTH *lengths,
                      const real *pre, real *state, Y *y, H *h_end, C *c_end, KEPT *reserve)
{
    constexpr int64_t hidden = SHAPE::hidden;
    const int64_t first = (int64_t)blockIdx.x * LSTM_ROWS;
    const int64_t rows = SHAPE::batch - first < LSTM_ROWS ? SHAPE::batch - first : LSTM_ROWS;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    real *c = state + 2 * SHAPE::states;
    for (int64_t i = first * hidden + threadIdx.x; i < (first + rows) * hidden; i += blockDim.x) {
        state[i] = get(h0[i]);
        c[i] = get(c0[i]);
    }
    for (int64_t step = 0; step < SHAPE::steps; step++) {
        const real *h = state + step % 2 * SHAPE::states;
        real *next = state + (step + 1) % 2 * SHAPE::states;
        __syncthreads();
        for (int64_t unit = warp; unit < hidden; unit += warps) {
            real sum[4][LSTM_ROWS];
            multiply_hidden<hidden>(sum, h + first * hidden, rows, w_hidden, unit);
            for (int r = 0; r < LSTM_ROWS; r++) {
                const int64_t sequence = first + r, at = sequence * hidden + unit, row = step * SHAPE::batch + sequence;
                if (lane != r || r >= rows) continue;
                real kept[5] = {0, 0, 0, 0, 0}, out = 0;
                if (is_alive(lengths, step, sequence)) {
                    real gate[4];
                    for (int g = 0; g < 4; g++)
                        gate[g] =
                            sum[g][r] + (pre[row * PITCH + g * hidden + unit] + get_or_zero(bias, g * hidden + unit));
                    for (int g = 0; g < 4; g++) kept[g] = g == 2 ? fn_tanh(gate[g]) : fn_sigmoid(gate[g]);
                    c[at] = kept[4] = kept[1] * c[at] + kept[0] * kept[2];
                    next[at] = out = kept[3] * fn_tanh(kept[4]);
                } else {
                    next[at] = h[at];
                }
                put(&y[row * hidden + unit], out);
                for (int g = 0; g < 5; g++) put(&reserve[row * SHAPE::reserved + g * hidden + unit], kept[g]);
            }
        }
    }
    __syncthreads();
    for (int64_t i = first * hidden + threadIdx.x; i < (first + rows) * hidden; i += blockDim.x) {
        put(&h_end[i], state[SHAPE::steps % 2 * SHAPE::states + i]);
        put(&c_end[i], c[i]);
    }
}

// ---- backward ----

// d(gates) of one unit of a step, from dh and dc, which becomes that of the step before.
template <class SHAPE, class KEPT>
DEVICE void gate_gradient(const KEPT *kept, real c_before, real dh, real *dc, real *to)
{
    constexpr int64_t hidden = SHAPE::hidden;
    const real i = get(kept[0]), f = get(kept[hidden]), g = get(kept[2 * hidden]), o = get(kept[3 * hidden]);
    const real squashed = fn_tanh((real)get(kept[4 * hidden])), cell = *dc + dh * o * (1 - squashed * squashed);
    to[0] = cell * g * (i * (1 - i));
    to[hidden] = cell * c_before * (f * (1 - f));
    to[2 * hidden] = cell * i * (1 - g * g);
    to[3 * hidden] = dh * squashed * (o * (1 - o));
    *dc = cell * f;
}

// Step by step, last first: dh = d(gates of the step after) w_hidden, then d(gates). `pre` [STEPS,BATCH,4 HIDDEN]
// gets d(gates), `h_before` [STEPS,BATCH,HIDDEN] the h that each step began with; both are zero where a sequence has
// ended. `state` is dh, then dc: [2][BATCH][HIDDEN].
template <class SHAPE, class H0, class C0, class W, class KEPT, class LENGTH, class DY, class DH, class DC, class DH0,
          class DC0>
DEVICE void run_steps_back(const H0 *h0, const C0 *c0, const W *w_hidden, const KEPT *reserve, const LENGTH *lengths,
                           const DY *dy, const DH *dh_end, const DC *dc_end, real *pre, real *h_before, real *state,
                           DH0 *dh0, DC0 *dc0)
{
    constexpr int64_t hidden = SHAPE::hidden, batch = SHAPE::batch, gates = 4 * hidden;
    const int64_t first = (int64_t)blockIdx.x * LSTM_ROWS;
    const int64_t rows = batch - first < LSTM_ROWS ? batch - first : LSTM_ROWS;
    real *dh = state, *dc = state + SHAPE::states;
    for (int64_t i = first * hidden + threadIdx.x; i < (first + rows) * hidden; i += blockDim.x) {
        dh[i] = get_or_zero(dh_end, i);
        dc[i] = get_or_zero(dc_end, i);
    }
    for (int64_t step = SHAPE::steps - 1; step >= -1; step--) {
        __syncthreads();
        for (int64_t unit = threadIdx.x; unit < hidden; unit += blockDim.x) {
            real sum[LSTM_ROWS] = {};
            const real *after = pre + ((step + 1) * batch + first) * gates;
            for (int64_t n = 0; step + 1 < SHAPE::steps && n < gates; n++) {
                const real w = get(w_hidden[n * hidden + unit]);
                for (int r = 0; r < LSTM_ROWS; r++)
                    if (r < rows) sum[r] = fn_fma(after[r * gates + n], w, sum[r]);
            }
            for (int r = 0; r < rows; r++) {
                const int64_t sequence = first + r, at = sequence * hidden + unit, row = step * batch + sequence;
                if (step + 1 < SHAPE::steps && is_alive(lengths, step + 1, sequence)) dh[at] = sum[r];
                if (step < 0) continue;
                real *to = pre + row * gates + unit;
                real before = 0;
                if (is_alive(lengths, step, sequence)) {
                    const KEPT *kept = reserve + row * SHAPE::reserved + unit,
                               *kept_before = kept - batch * SHAPE::reserved;
                    const real c_before = step > 0 ? (real)get(kept_before[4 * hidden]) : (real)get(c0[at]);
                    before = step > 0 ? (real)get(kept_before[3 * hidden]) * fn_tanh(c_before) : (real)get(h0[at]);
                    gate_gradient<SHAPE>(kept, c_before, dh[at] + get_or_zero(dy, row * hidden + unit), &dc[at], to);
                } else {
                    to[0] = to[hidden] = to[2 * hidden] = to[3 * hidden] = 0;
                }
                h_before[row * hidden + unit] = before;
            }
        }
    }
    __syncthreads();
    for (int64_t i = first * hidden + threadIdx.x; i < (first + rows) * hidden; i += blockDim.x) {
        put(&dh0[i], dh[i]);
        put(&dc0[i], dc[i]);
    }
}

template <int64_t ROWS, int64_t INPUTS, int64_t GATES, class W, class DX>
DEVICE void input_gradient(const real *pre, const W *w_input, DX *dx)
{
    multiply_tile<ROWS, INPUTS>(blockIdx.x, 0, GATES, matrix_side<real, GATES, 1>{pre},
                                matrix_side<W, 1, INPUTS>{w_input}, matrix_store<DX, INPUTS>{dx});
}

// Rows [STEPS·BATCH, COLUMNS] of x or h_before, zeros where a sequence has ended: what padding holds does not matter.
template <class T, int64_t BATCH, int64_t COLUMNS, class LENGTH> struct alive_side {
    const T *data;
    const LENGTH *lengths;
    static constexpr bool along_depth = false;
    DEVICE_MEMBER real at(int64_t column, int64_t k) const
    {
        return is_alive(lengths, k / BATCH, k % BATCH) ? (real)get(data[k * COLUMNS + column]) : (real)0;
    }
};

template <int64_t ROWS, int64_t BATCH, int64_t COLUMNS, int64_t GATES, class X, class LENGTH, class DW>
DEVICE void weight_gradient(const real *pre, const X *x, const LENGTH *lengths, DW *dw)
{
    multiply_tile<GATES, COLUMNS>(blockIdx.x, 0, ROWS, matrix_side<real, 1, GATES>{pre},
                                  alive_side<X, BATCH, COLUMNS, LENGTH>{x, lengths}, matrix_store<DW, COLUMNS>{dw});
}

// A thread for each gate.
template <int64_t ROWS, int64_t GATES, class DBIAS> DEVICE void bias_gradient(const real *pre, DBIAS *dbias)
{
    const int64_t gate = thread_number();
    real sum = 0;
    if (gate >= GATES) return;
    for (int64_t row = 0; row < ROWS; row++) sum += pre[row * GATES + gate];
    put(&dbias[gate], sum);
}
