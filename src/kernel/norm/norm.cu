// layernorm: y[r,c] = (x[r,c]-m[r]) s[r] scale[c] + shift[c];  rmsnorm: the same with m = 0 and no shift.
// s = 1/√(mean((x-m)²) + eps). The row stays in registers: the mean first, then squares about it. One rounding.

// Over the WIDTH threads that work on a row: a warp, or the block.
template <int WIDTH> DEVICE real row_sum(real x) { return WIDTH == 32 ? warp_fold<sum_of>(x) : block_sum(x); }

// WIDTH threads for a row of SIZE elements, of which each takes N neighbours at a time.
template <int64_t ROWS, int64_t SIZE, int N, int WIDTH, bool CENTRED, class X, class S, class H, class Y, class M, class R>
DEVICE void norm_row(const X *x, const S *scale, const H *shift, Y *y, M *mean_out, R *rstd_out, real eps)
{
    constexpr int STEP = WIDTH * N, PACKS = (int)((SIZE + STEP - 1) / STEP), UNROLL = PACKS > 16 ? 1 : PACKS;
    constexpr real COUNT = (real)(SIZE ? SIZE : 1);
    const int lane = (int)threadIdx.x % WIDTH;
    const int64_t row = (int64_t)blockIdx.x * (blockDim.x / WIDTH) + threadIdx.x / WIDTH;
    if (row >= ROWS) return;
    x += row * SIZE;
    y += row * SIZE;
    real value[PACKS ? PACKS : 1][N], mean = 0, squares = 0;
#pragma unroll(UNROLL)
    for (int p = 0; p < PACKS; p++) {
        const int64_t c = (int64_t)p * STEP + lane * N;
        if (c >= SIZE) break;
        const pack<X, N> part = get_pack<N>(x + c);
        for (int k = 0; k < N; k++) {
            value[p][k] = (real)get(part.item[k]);
            mean += value[p][k];
        }
    }
    mean = CENTRED ? row_sum<WIDTH>(mean) / COUNT : 0;
#pragma unroll(UNROLL)
    for (int p = 0; p < PACKS; p++) {
        if ((int64_t)p * STEP + lane * N >= SIZE) break;
        for (int k = 0; k < N; k++) squares += (value[p][k] - mean) * (value[p][k] - mean);
    }
    const real rstd = 1 / fn_sqrt(row_sum<WIDTH>(squares) / COUNT + eps);
#pragma unroll(UNROLL)
    for (int p = 0; p < PACKS; p++) {
        const int64_t c = (int64_t)p * STEP + lane * N;
        if (c >= SIZE) break;
        pack<S, N> scales;
        pack<H, N> shifts;
        real result[N];
        if (scale) scales = get_pack<N>(scale + c);
        if (shift) shifts = get_pack<N>(shift + c);
        for (int k = 0; k < N; k++) {
            real h = (value[p][k] - mean) * rstd;
            if (scale) h *= (real)get(scales.item[k]);
            result[k] = shift ? h + (real)get(shifts.item[k]) : h;
        }
        put_numbers(y + c, result);
    }
    if (lane != 0) return;
    if (CENTRED) put(&mean_out[row], mean);
    put(&rstd_out[row], rstd);
}
