// The windows of pictures as rows of a matrix [positions, PITCH], in the order of weights whose channels lie last: taps, then
// channels; zeros behind them and for what lies outside of the plane. A block makes the rows of one row of positions, by
// way of the rows of the picture that they see. A thread stays with its eight columns.
template <class WINDOW, int CHANNELS, int PITCH, class T> DEVICE void im2col(const T *x, T *to)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    constexpr int row = (int)w::plane * CHANNELS, taps = (int)w::size * CHANNELS, left = (int)w::padding * CHANNELS;
    constexpr int seen = (int)((w::steps - 1) * w::stride + (w::size - 1) * w::dilation + 1) * CHANNELS;
    constexpr int step = (int)w::stride * CHANNELS, along = (int)w::dilation * CHANNELS;
    constexpr int packs = PITCH / 8, together = packs < 256 ? packs : 256, lines = 256 / together;
    const int64_t first = blockIdx.x % h::steps;
    SHARED_BYTES(bytes);
    T *const rows = (T *)bytes;
    x += blockIdx.x / h::steps * WINDOW::plane * CHANNELS;
    to += (int64_t)blockIdx.x * w::steps * PITCH;
    for (int tap = 0; tap < h::size; tap++) {
        const int64_t at = h::at(first, tap);
        const bool inside = h::inside(at);
        for (int i = threadIdx.x; i < seen; i += blockDim.x)
            rows[tap * seen + i] = inside && i >= left && i < left + row ? x[at * row + i - left] : T{};
    }
    __syncthreads();
    for (int p = threadIdx.x % together; p < packs && threadIdx.x < lines * together; p += together) {
        int from[8];
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int column = p * 8 + k, rest = column % taps;
            from[k] = column < (int)h::size * taps ? column / taps * seen + rest / CHANNELS * along + rest % CHANNELS : -1;
        }
        for (int position = threadIdx.x / together; position < w::steps; position += lines) {
            pack<T, 8> some;
#pragma unroll
            for (int k = 0; k < 8; k++) some.item[k] = from[k] < 0 ? T{} : rows[from[k] + position * step];
            put_pack(to + (int64_t)position * PITCH + p * 8, some);
        }
    }
}
