// out[r,c] = sum over k of a(r,k) b(k,c) for sides that are no plain matrices, such as the windows of a convolution.
// A side says with at(line, k) what is there, and with along_depth in which order its elements are neighbours in
// memory. Tiles of 64 × 64 by 256 threads, 4 × 4 each, k in ascending order with FMA.

enum { PRODUCT_TILE = 64, PRODUCT_PITCH = 68, PRODUCT_STEP = 16, PRODUCT_THREADS = 256 };

// A matrix in memory: element (line, k).
template <class T, int64_t LINE, int64_t DEPTH> struct matrix_side {
    const T *data;
    static constexpr bool along_depth = DEPTH == 1;
    DEVICE_MEMBER real at(int64_t line, int64_t k) const { return (real)get(data[line * LINE + k * DEPTH]); }
};

// [PRODUCT_STEP][PRODUCT_TILE] of a side, zeros beyond LINES and `to`.
template <int64_t LINES, class SIDE>
DEVICE void load_side(real (*tile)[PRODUCT_PITCH], const SIDE &side, int64_t line, int64_t from, int64_t to)
{
    for (int i = threadIdx.x; i < PRODUCT_STEP * PRODUCT_TILE; i += PRODUCT_THREADS) {
        const int along = SIDE::along_depth ? i / PRODUCT_STEP : i % PRODUCT_TILE;
        const int k = SIDE::along_depth ? i % PRODUCT_STEP : i / PRODUCT_TILE;
        tile[k][along] = line + along < LINES && from + k < to ? side.at(line + along, from + k) : (real)0;
    }
}

// Tile number `tile` of a ROWS × COLUMNS product, k from `from` to `to`; store(row, column, sum).
template <int64_t ROWS, int64_t COLUMNS, class A, class B, class STORE>
DEVICE void multiply_tile(int64_t tile, int64_t from, int64_t to, const A &a, const B &b, const STORE &store)
{
    alignas(16) __shared__ real left[PRODUCT_STEP][PRODUCT_PITCH];
    alignas(16) __shared__ real right[PRODUCT_STEP][PRODUCT_PITCH];
    constexpr int64_t across = (COLUMNS + PRODUCT_TILE - 1) / PRODUCT_TILE;
    const int64_t row = tile / across * PRODUCT_TILE, column = tile % across * PRODUCT_TILE;
    const int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
    real sum[4][4] = {};
    for (; from < to; from += PRODUCT_STEP) {
        load_side<ROWS>(left, a, row, from, to);
        load_side<COLUMNS>(right, b, column, from, to);
        __syncthreads();
#pragma unroll
        for (int k = 0; k < PRODUCT_STEP; k++) {
            const pack<real, 4> of_a = get_pack<4>(&left[k][y]), of_b = get_pack<4>(&right[k][x]);
            for (int i = 0; i < 4; i++)
                for (int j = 0; j < 4; j++) sum[i][j] = fn_fma(of_a.item[i], of_b.item[j], sum[i][j]);
        }
        __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            if (row + y + i < ROWS && column + x + j < COLUMNS) store(row + y + i, column + x + j, sum[i][j]);
}

// Into a row-major matrix.
template <class T, int64_t PITCH> struct matrix_store {
    T *data;
    DEVICE_MEMBER void operator()(int64_t row, int64_t column, real x) const { put(&data[row * PITCH + column], x); }
};
