// argmax: the index of the largest x along an axis. topk: the K largest of each row, descending, and their indices. NaN
// comes before all others, equal values by lower index. Exact.

// An element and its index, which is -1 where there is none.
struct entry {
    real value;
    int64_t index;
};

// Does a come before b?
DEVICE bool comes_before(entry a, entry b)
{
    if (a.index < 0 || b.index < 0) return a.index >= 0;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan || b_nan) return a_nan && (!b_nan || a.index < b.index);
    return a.value > b.value || (a.value == b.value && a.index < b.index);
}

struct first_of {
    static DEVICE_MEMBER entry join(entry a, entry b) { return comes_before(b, a) ? b : a; }
};

// The first of a row of SIZE that comes after `last`; all THREADS of the block have the result.
template <int64_t SIZE, int THREADS, class X> DEVICE entry first_after(const X *x, entry last)
{
    __shared__ entry found;
    entry best = {0, -1};
    for (int64_t i = threadIdx.x; i < SIZE; i += THREADS) {
        const entry e = {(real)get(x[i]), i};
        if ((last.index < 0 || comes_before(last, e)) && comes_before(e, best)) best = e;
    }
    best = column_fold<first_of, 1, THREADS>(best);
    if (threadIdx.x == 0) found = best;
    __syncthreads();
    return found;
}

// A block for each row.
template <int64_t SIZE, int THREADS, class X> DEVICE void argmax_row(const X *x, int64_t *y)
{
    const entry best = first_after<SIZE, THREADS>(x + blockIdx.x * SIZE, entry{0, -1});
    if (threadIdx.x == 0) y[blockIdx.x] = best.index;
}

// A thread for each column of SIZE elements that lie INNER apart, where the axis is not the last.
template <int64_t OUTER, int64_t SIZE, int64_t INNER, class X> DEVICE void argmax_column(const X *x, int64_t *y)
{
    const int64_t column = thread_number();
    if (column >= OUTER * INNER) return;
    x += column / INNER * SIZE * INNER + column % INNER;
    entry best = {0, -1};
    for (int64_t i = 0; i < SIZE; i++) best = first_of::join(best, entry{(real)get(x[i * INNER]), i});
    y[column] = best.index;
}

// A block for each row, which it reads once for every place.
template <int64_t SIZE, int64_t K, int THREADS, class X, class Y>
DEVICE void topk_row(const X *x, Y *values, int64_t *indices)
{
    x += blockIdx.x * SIZE;
    entry last = {0, -1};
    for (int64_t place = blockIdx.x * K; place < (blockIdx.x + 1) * K; place++) {
        last = first_after<SIZE, THREADS>(x, last);
        if (threadIdx.x != 0) continue;
        put(&values[place], last.value);
        indices[place] = last.index;
    }
}
