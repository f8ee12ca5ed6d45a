// Products of codes: y = (sum of (a - zero) w) scales + bias, or codes of it. A thread for each element of what is written.

// A result from its exact sum.
template <class Y> struct finished {
    const float *a_scale, *w_scale, *bias, *y_scale;
    const int32_t *a_zero, *y_zero;
    bool rows_scaled, rows_zeroed, columns_scaled; // more than one number

    DEVICE_MEMBER int32_t zero_of(int64_t row) const { return a_zero ? a_zero[rows_zeroed ? row : 0] : 0; }
    DEVICE_MEMBER void put_result(Y *y, int64_t row, int64_t column, int64_t columns, int32_t sum) const
    {
        float x = (float)sum * (a_scale[rows_scaled ? row : 0] * w_scale[columns_scaled ? column : 0]);
        if (bias) x = x + bias[column];
        if constexpr (sizeof(Y) == 1)
            y[row * columns + column] = code_of<Y>(x, *y_scale, y_zero ? *y_zero : 0);
        else
            y[row * columns + column] = x;
    }
};

// Sums as they come: modulo 2^32, so that one which fits in the end may leave the range on the way.
template <int64_t M, int64_t N, int64_t K, int64_t PITCH, int64_t DOWN, int64_t ACROSS, class A, class Y>
DEVICE void multiply_codes(const A *a, const int8_t *w, Y *y, const finished<Y> &f)
{
    const int64_t i = thread_number(), row = i / N, column = i % N;
    if (i >= M * N) return;
    const int32_t zero = f.zero_of(row);
    uint32_t sum = 0;
    for (int64_t k = 0; k < K; k++)
        sum += ((uint32_t)(int32_t)a[row * PITCH + k] - (uint32_t)zero) * (uint32_t)(int32_t)w[k * DOWN + column * ACROSS];
    f.put_result(y, row, column, N, (int32_t)sum);
}

// ---- for products by tensor cores, which read i8 along k on both sides ----

// Rows of a as i8, DEPTH apart, behind them zeros.
template <int64_t M, int64_t K, int64_t PITCH, int64_t DEPTH, class A> DEVICE void copy_codes(const A *a, int8_t *to)
{
    const int64_t i = thread_number() * 4, row = i / DEPTH, first = i % DEPTH;
    if (i >= M * DEPTH) return;
    pack<int8_t, 4> four = {{0, 0, 0, 0}};
    for (int k = 0; k < 4; k++)
        if (first + k < K) four.item[k] = (int8_t)((int32_t)a[row * PITCH + first + k] - 128 - lowest_code((const A *)nullptr));
    put_pack(to + i, four);
}

// Columns of w as rows of DEPTH, WIDE of them, zeros behind the last, where the library cannot read w as it lies, and their sums: a block turns 32 columns, 32 rows at a
// time. 256 threads.
template <int64_t N, int64_t K, int64_t DOWN, int64_t ACROSS, int64_t DEPTH, int64_t WIDE, bool COPY>
DEVICE void turn_weights(const int8_t *w, int8_t *to, int32_t *sums)
{
    __shared__ int8_t square[32][33];
    __shared__ int32_t part[8][32];
    const int64_t first = (int64_t)blockIdx.x * 32;
    const int x = threadIdx.x % 32, y = threadIdx.x / 32;
    int32_t sum = 0;
    for (int64_t k = 0; k < DEPTH; k += 32) {
        for (int r = y; r < 32; r += 8) {
            // Neighbours of x lie together in memory.
            const int64_t at = DOWN == 1 ? k + x : k + r, column = first + (DOWN == 1 ? r : x);
            const int8_t code = at < K && column < N ? w[at * DOWN + column * ACROSS] : (int8_t)0;
            square[DOWN == 1 ? x : r][DOWN == 1 ? r : x] = code;
        }
        __syncthreads();
        for (int r = y; r < 32; r += 8) {
            sum += square[r][x];
            if (COPY && first + r < WIDE && k + x < DEPTH) to[(first + r) * DEPTH + k + x] = square[x][r];
        }
        __syncthreads();
    }
    part[y][x] = sum;
    __syncthreads();
    if (y > 0 || first + x >= N) return;
    for (int r = 1; r < 8; r++) sum += part[r][x];
    sums[first + x] = sum;
}

// Rows of sums are WIDE. SHIFT: by how much codes of a were moved down.
template <int64_t M, int64_t N, int64_t WIDE, int32_t SHIFT, class Y>
DEVICE void finish_sums(const int32_t *sums, const int32_t *column_sums, Y *y, const finished<Y> &f)
{
    const int64_t i = thread_number(), row = i / N, column = i % N;
    if (i >= M * N) return;
    const uint32_t zero = (uint32_t)(f.zero_of(row) - SHIFT);
    f.put_result(y, row, column, N, (int32_t)((uint32_t)sums[row * WIDE + column] - zero * (uint32_t)column_sums[column]));
}
