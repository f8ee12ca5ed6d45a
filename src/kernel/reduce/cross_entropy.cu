// cross_entropy: loss[r] = lse[r] - (1-s) x[r,label] - s mean(x[r]) and its mean or sum; lse[r] = log Σ exp x[r].
// cross_entropy_grad: dlogits[r] = weight[r] (exp(x[r] - lse[r]) - target[r]).
// Exponentials in real, what is one per row in double; one rounding. An ignored row gives 0 and does not count; a label
// outside the classes gives NaN.

// NaN is passed over: it shows in the sum of exponentials.
DEVICE float larger(float a, float b) { return fmaxf(a, b); }
DEVICE double larger(double a, double b) { return fmax(a, b); }

// Σ exp(x - most) over what a thread has seen. A sum is scaled anew when a larger x comes.
struct exponential_sum {
    real most, sum;
    DEVICE_MEMBER void begin()
    {
        most = -infinity();
        sum = 0;
    }
    // exp(x - most), where the largest of all so far may be -∞.
    DEVICE_MEMBER real relative(real x) const { return fn_exp(x - (most == -infinity() ? 0 : most)); }
    template <int N> DEVICE_MEMBER void add(const real *x)
    {
        real largest = x[0], part = 0;
        for (int k = 1; k < N; k++) largest = larger(largest, x[k]);
        if (largest > most) {
            const real before = most;
            most = largest;
            sum *= fn_exp(before - most);
        }
        for (int k = 0; k < N; k++) part += relative(x[k]);
        sum += part;
    }
};

// The loss of a row that counts; all of it from differences to the maximum: a confident row keeps its digits.
template <class X> DEVICE double loss_of(const X *x, int64_t label, double most, double log_sum, double mean, double smoothing)
{
    const double loss = log_sum + (most - (double)get(x[label]));
    return smoothing == 0 ? loss : (1 - smoothing) * loss + smoothing * (log_sum + (most - mean));
}

// A block for each row of SIZE classes. losses: of each row, in double; nullptr where rows are results.
template <int64_t SIZE, int N, bool SMOOTH, class X, class L, class Y, class Z>
DEVICE void cross_entropy_row(const X *x, const L *labels, Y *loss_out, Z *lse_out, double *losses, int64_t ignored,
                              double smoothing)
{
    const int64_t row = blockIdx.x, label = get_int(labels[row]);
    exponential_sum part;
    real total = 0;
    x += row * SIZE;
    part.begin();
#pragma unroll 4
    for (int64_t c = (int64_t)threadIdx.x * N; c < SIZE; c += (int64_t)blockDim.x * N) {
        const pack<X, N> these = get_pack<N>(x + c);
        real value[N];
        for (int k = 0; k < N; k++) value[k] = (real)get(these.item[k]);
        for (int k = 0; SMOOTH && k < N; k++) total += value[k];
        part.add<N>(value);
    }
    const real most = block_max(part.most);
    const real sum = block_sum(part.sum * fn_exp(part.most - most));
    if (SMOOTH) total = block_sum(total);
    if (threadIdx.x != 0) return;
    const double log_sum = log((double)sum);
    double loss = 0;
    if (label != ignored) {
        loss = (double)(infinity() - infinity());
        if (label >= 0 && label < SIZE)
            loss = loss_of(x, label, (double)most, log_sum, (double)total / (double)SIZE, smoothing);
    }
    put(&lse_out[row], (real)((double)most + log_sum));
    if (losses)
        losses[row] = loss;
    else
        put(&loss_out[row], (real)loss);
}

// One block: how many rows count, the same in all its THREADS.
template <int64_t ROWS, int THREADS, class L> DEVICE int64_t counted_rows(const L *labels, int64_t ignored)
{
    __shared__ int64_t total;
    int64_t counted = 0;
    for (int64_t r = threadIdx.x; r < ROWS; r += THREADS) counted += get_int(labels[r]) != ignored;
    counted = column_fold<sum_of, 1, THREADS>(counted);
    if (threadIdx.x == 0) total = counted;
    __syncthreads();
    return total;
}

template <int64_t ROWS, int THREADS, bool MEAN, class L, class Y>
DEVICE void cross_entropy_join(const L *labels, const double *losses, Y *loss_out, int64_t ignored)
{
    double sum = 0;
    for (int64_t r = threadIdx.x; r < ROWS; r += THREADS) sum += losses[r];
    sum = column_fold<sum_of, 1, THREADS>(sum);
    const int64_t counted = MEAN ? counted_rows<ROWS, THREADS>(labels, ignored) : 0;
    if (threadIdx.x == 0) put(&loss_out[0], (real)(counted ? sum / (double)counted : sum));
}

template <int64_t ROWS, int THREADS, class L> DEVICE void cross_entropy_count(const L *labels, int64_t *to, int64_t ignored)
{
    const int64_t counted = counted_rows<ROWS, THREADS>(labels, ignored);
    if (threadIdx.x == 0) *to = counted;
}

// A block for each row. counted: of a mean, else nullptr. dlogits may be x: an element is read before it is written.
template <int64_t SIZE, int N, bool BY_ROW, class X, class L, class Z, class D, class Y>
DEVICE void cross_entropy_grad_row(const X *x, const L *labels, const Z *lse_in, const D *dloss, Y *dlogits,
                                   const int64_t *counted, int64_t ignored, real spread, real peak)
{
    const int64_t row = blockIdx.x, label = get_int(labels[row]);
    const real lse = (real)get(lse_in[row]);
    real weight = (real)get(dloss[BY_ROW ? row : 0]);
    if (counted) weight /= (real)*counted;
    if (label < 0 || label >= SIZE) weight = infinity() - infinity();
    x += row * SIZE;
    dlogits += row * SIZE;
#pragma unroll 4
    for (int64_t c = (int64_t)threadIdx.x * N; c < SIZE; c += (int64_t)blockDim.x * N) {
        const pack<X, N> these = get_pack<N>(x + c);
        pack<Y, N> result;
        for (int k = 0; k < N; k++) {
            const real p = fn_exp((real)get(these.item[k]) - lse) - spread;
            put(&result.item[k], label == ignored ? 0 : (c + k == label ? p - peak : p) * weight);
        }
        put_pack(dlogits + c, result);
    }
}
