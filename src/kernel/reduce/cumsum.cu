// cumsum: y[k] = x[0] + … + x[k] along an axis, or from the other end. Sums in double, each rounded once.

// The sums of a block's values up to each thread, in a fixed order; *all is the sum of all. THREADS is a number of warps.
template <int THREADS> DEVICE double block_scan(double x, double *all)
{
    __shared__ double of_warp[THREADS / 32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    for (int step = 1; step < 32; step *= 2) {
        const double before = __shfl_up_sync(0xffffffffu, x, step);
        if (lane >= step) x += before;
    }
    __syncthreads();
    if (lane == 31) of_warp[warp] = x;
    __syncthreads();
    double earlier = 0;
    *all = 0;
    for (int i = 0; i < THREADS / 32; i++) {
        if (i == warp) earlier = *all;
        *all += of_warp[i];
    }
    return earlier + x;
}

// A block for each row of SIZE neighbours.
template <int64_t SIZE, int THREADS, bool REVERSE, class X, class Y> DEVICE void cumsum_row(const X *x, Y *y)
{
    x += blockIdx.x * SIZE;
    y += blockIdx.x * SIZE;
    double before = 0;
    for (int64_t first = 0; first < SIZE; first += THREADS) {
        const int64_t k = first + threadIdx.x, at = REVERSE ? SIZE - 1 - k : k;
        double all;
        const double sum = block_scan<THREADS>(k < SIZE ? (double)get(x[at]) : 0, &all);
        if (k < SIZE) put(&y[at], (real)(before + sum));
        before += all;
    }
}

// A thread for each column of SIZE elements that lie INNER apart, where the axis is not the last.
template <int64_t OUTER, int64_t SIZE, int64_t INNER, bool REVERSE, class X, class Y> DEVICE void cumsum_column(const X *x, Y *y)
{
    const int64_t column = thread_number();
    if (column >= OUTER * INNER) return;
    const int64_t first = column / INNER * SIZE * INNER + column % INNER;
    double sum = 0;
    for (int64_t k = 0; k < SIZE; k++) {
        const int64_t at = first + (REVERSE ? SIZE - 1 - k : k) * INNER;
        sum += (double)get(x[at]);
        put(&y[at], (real)sum);
    }
}
