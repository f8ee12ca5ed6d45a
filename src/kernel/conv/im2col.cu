// The windows of pictures as rows of a matrix [positions, PITCH], in the order of weights whose channels lie last: taps, then
// channels; zeros behind them and for what lies outside of the plane. A block makes the rows of one row of positions, by
// way of the rows of the picture that they see. A thread stays with its eight columns. T: f16 or bf16.
enum { IM2COL_THREADS = 256, IM2COL_LOADS = 16 };

// Loads of a thread are on their way at once.
template <class WINDOW, int CHANNELS, int SEEN, class T> DEVICE void load_picture_rows(uint16_t *rows, const T *x, int64_t step)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    constexpr int row = (int)w::plane * CHANNELS, left = (int)w::padding * CHANNELS, all = (int)h::size * SEEN;
    const int top = (int)h::at(step, 0);
    for (int first = threadIdx.x; first < all; first += IM2COL_LOADS * IM2COL_THREADS) {
        uint16_t bits[IM2COL_LOADS];
#pragma unroll
        for (int k = 0; k < IM2COL_LOADS; k++) {
            const int i = first + k * IM2COL_THREADS, tap = i / SEEN, column = i - tap * SEEN - left;
            const int at = top + tap * (int)h::dilation;
            const bool inside = i < all && at >= 0 && at < (int)h::plane && column >= 0 && column < row;
            bits[k] = inside ? x[(int64_t)at * row + column].bits : (uint16_t)0;
        }
#pragma unroll
        for (int k = 0; k < IM2COL_LOADS; k++)
            if (first + k * IM2COL_THREADS < all) rows[first + k * IM2COL_THREADS] = bits[k];
    }
}

template <class WINDOW, int CHANNELS, int PITCH, class T> DEVICE void im2col(const T *x, T *to)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    constexpr int steps = (int)w::steps, taps = (int)w::size * CHANNELS, columns = (int)h::size * taps;
    constexpr int seen = ((steps - 1) * (int)w::stride + ((int)w::size - 1) * (int)w::dilation + 1) * CHANNELS;
    constexpr int packs = PITCH / 8, together = packs < IM2COL_THREADS ? packs : IM2COL_THREADS;
    constexpr int lines = IM2COL_THREADS / together;
    SHARED_BYTES(bytes);
    uint16_t *const rows = (uint16_t *)bytes;
    load_picture_rows<WINDOW, CHANNELS, seen>(rows, x + blockIdx.x / h::steps * WINDOW::plane * CHANNELS,
                                              (int64_t)(blockIdx.x % h::steps));
    uint32_t *const lie = (uint32_t *)(to + (int64_t)blockIdx.x * steps * PITCH);
    __syncthreads();
    if ((int)threadIdx.x >= lines * together) return;
    for (int p = threadIdx.x % together; p < packs; p += together) {
        int from[8];
        pack<uint32_t, 4> there; // ones where a column is no zero
#pragma unroll
        for (int k = 0; k < 8; k++) {
            const int column = p * 8 + k, rest = column % taps;
            const bool is = column < columns;
            from[k] = is ? column / taps * seen + rest / CHANNELS * (int)w::dilation * CHANNELS + rest % CHANNELS : 0;
            there.item[k / 2] = (k % 2 ? there.item[k / 2] : 0u) | (is ? 0xffffu << k % 2 * 16 : 0u);
        }
        for (int position = threadIdx.x / together; position < steps; position += lines) {
            const uint16_t *const window = rows + position * (int)w::stride * CHANNELS;
            pack<uint32_t, 4> words;
#pragma unroll
            for (int k = 0; k < 4; k++)
                words.item[k] =
                    ((uint32_t)window[from[2 * k]] | (uint32_t)window[from[2 * k + 1]] << 16) & there.item[k];
            put_pack(lie + (position * PITCH + p * 8) / 2, words);
        }
    }
}
