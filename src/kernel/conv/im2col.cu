// The windows of pictures as rows of a matrix [positions, PITCH], in the order of weights whose channels lie last: taps, then
// channels; zeros behind them and for what lies outside of the plane. A block makes the rows of one row of positions, by
// way of the rows of the picture that they see.
template <class WINDOW, int64_t CHANNELS, int64_t PITCH, class T> DEVICE void im2col(const T *x, T *to)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    constexpr int64_t row = w::plane * CHANNELS, taps = w::size * CHANNELS;
    constexpr int64_t seen = ((w::steps - 1) * w::stride + (w::size - 1) * w::dilation + 1) * CHANNELS;
    constexpr int64_t across = PITCH / 8;
    const int64_t step = blockIdx.x % h::steps;
    SHARED_BYTES(bytes);
    T *const rows = (T *)bytes;
    x += blockIdx.x / h::steps * WINDOW::plane * CHANNELS;
    to += (int64_t)blockIdx.x * w::steps * PITCH;
    for (int i = threadIdx.x; i < h::size * seen; i += blockDim.x) {
        const int64_t at = h::at(step, i / seen), column = i % seen - w::padding * CHANNELS;
        const bool inside = h::inside(at) && column >= 0 && column < row;
        rows[i] = inside ? x[at * row + column] : T{};
    }
    __syncthreads();
    for (int i = threadIdx.x; i < w::steps * across; i += blockDim.x) {
        const int position = i / across, first = i % across * 8;
        const T *const from = rows + position * w::stride * CHANNELS;
        pack<T, 8> some;
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int column = first + k, tap = column % taps;
            some.item[k] = column < h::size * taps
                               ? from[column / taps * seen + tap / CHANNELS * w::dilation * CHANNELS + tap % CHANNELS]
                               : T{};
        }
        put_pack(to + position * PITCH + first, some);
    }
}
