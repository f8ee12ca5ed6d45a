// softmax, log_softmax: y[r,c] = exp(x[r,c]-m[r])/s[r], or x[r,c]-m[r]-log s[r]. One rounding, fixed order.

// A block for each row of SIZE neighbours.
template <int64_t SIZE, bool LOGARITHM, class X, class Y> DEVICE void softmax_row(const X *x, Y *y)
{
    x += blockIdx.x * SIZE;
    y += blockIdx.x * SIZE;
    real most = -infinity(), sum = 0;
    for (int64_t c = threadIdx.x; c < SIZE; c += blockDim.x) most = fn_max(most, (real)get(x[c]));
    most = block_max(most);
    for (int64_t c = threadIdx.x; c < SIZE; c += blockDim.x) sum += fn_exp((real)get(x[c]) - most);
    sum = block_sum(sum);
    const real scale = 1 / sum, shift = fn_log(sum);
    for (int64_t c = threadIdx.x; c < SIZE; c += blockDim.x) {
        const real distance = (real)get(x[c]) - most;
        put(&y[c], LOGARITHM ? distance - shift : fn_exp(distance) * scale);
    }
}

// A thread for each column of SIZE elements that lie INNER apart, where the axis is not the last.
template <int64_t OUTER, int64_t SIZE, int64_t INNER, bool LOGARITHM, class X, class Y>
DEVICE void softmax_column(const X *x, Y *y)
{
    const int64_t column = thread_number();
    if (column >= OUTER * INNER) return;
    const int64_t first = column / INNER * SIZE * INNER + column % INNER;
    x += first;
    y += first;
    real most = -infinity(), sum = 0;
    for (int64_t c = 0; c < SIZE; c++) most = fn_max(most, (real)get(x[c * INNER]));
    for (int64_t c = 0; c < SIZE; c++) sum += fn_exp((real)get(x[c * INNER]) - most);
    const real scale = 1 / sum, shift = fn_log(sum);
    for (int64_t c = 0; c < SIZE; c++) {
        const real distance = (real)get(x[c * INNER]) - most;
        put(&y[c * INNER], LOGARITHM ? distance - shift : fn_exp(distance) * scale);
    }
}
