// cross_entropy: loss[r] = lse[r] - (1-s) x[r,label] - s mean(x[r]) and its mean or sum; lse[r] = log Σ exp x[r].
// cross_entropy_grad: dlogits[r] = weight[r] (exp(x[r] - lse[r]) - target[r]).
// Exponentials in real, what is one per row in double; one rounding. An ignored row gives 0 and does not count; a label
// outside the classes gives NaN.

// NaN is passed over: it shows in the sum of exponentials.
DEVICE float larger(float a, float b) { return fmaxf(a, b); }
DEVICE double larger(double a, double b) { return fmax(a, b); }

// e^x for logits of type X.
template <class X> struct exponential {
    static DEVICE_MEMBER real of(real x) { return fn_exp(x); }
};
template <> struct exponential<bf16> {
    static DEVICE_MEMBER real of(real x) { return sizeof(real) == 4 ? (real)rough_exp((float)x) : fn_exp(x); }
};
template <> struct exponential<f16> : exponential<bf16> {};

// Σ exp(x - most) over what a thread has seen. A sum is scaled anew when a larger x comes.
template <class X> struct exponential_sum {
    real most, sum;
    DEVICE_MEMBER void begin()
    {
        most = -infinity();
        sum = 0;
    }
    // Where all so far were -∞.
    DEVICE_MEMBER real base() const { return most == -infinity() ? 0 : most; }
    template <int N> DEVICE_MEMBER void add(const real *x)
    {
        real largest = x[0], part = 0;
        for (int k = 1; k < N; k++) largest = larger(largest, x[k]);
        if (largest > most) {
            const real before = most;
            most = largest;
            sum *= fn_exp(before - most);
        }
        const real from = base();
        for (int k = 0; k < N; k++) part += exponential<X>::of(x[k] - from);
        sum += part;
    }
};

// The loss of a row that counts; all of it from differences to the maximum: a confident row keeps its digits.
template <class X> DEVICE double loss_of(const X *x, int64_t label, double most, double log_sum, double mean, double smoothing)
{
    const double loss = log_sum + (most - (double)get(x[label]));
    return smoothing == 0 ? loss : (1 - smoothing) * loss + smoothing * (log_sum + (most - mean));
}

// Of the row x, in all threads: the largest x, Σ exp(x - largest), and Σ x where it is wanted. held: each thread leaves
// there what it has read; nullptr: nothing.
template <int64_t SIZE, int N, bool SMOOTH, class X>
DEVICE void read_row(const X *x, X *held, real *most, real *sum, real *total)
{
    exponential_sum<X> part;
    real plain = 0;
    part.begin();
#pragma unroll 4
    for (int64_t c = (int64_t)threadIdx.x * N; c < SIZE; c += (int64_t)blockDim.x * N) {
        const pack<X, N> these = get_pack<N>(x + c);
        if (held) put_pack(held + c, these);
        real value[N];
        for (int k = 0; k < N; k++) value[k] = (real)get(these.item[k]);
        for (int k = 0; SMOOTH && k < N; k++) plain += value[k];
        part.template add<N>(value);
    }
    *most = block_max(part.most);
    *sum = block_sum(part.sum * fn_exp(part.most - *most));
    *total = SMOOTH ? block_sum(plain) : 0;
}

// A block for each row of SIZE classes. losses: of each row, in double; nullptr where rows are results. The row's lse, for
// all threads.
template <int64_t SIZE, int N, bool SMOOTH, class X, class L, class Y, class Z>
DEVICE real cross_entropy_row(const X *x, const L *labels, Y *loss_out, Z *lse_out, double *losses, int64_t ignored,
                              double smoothing, X *held = nullptr)
{
    __shared__ real lse;
    const int64_t row = blockIdx.x, label = get_int(labels[row]);
    real most, sum, total;
    x += row * SIZE;
    read_row<SIZE, N, SMOOTH>(x, held, &most, &sum, &total);
    if (threadIdx.x == 0) {
        const double log_sum = log((double)sum);
        double loss = 0;
        if (label != ignored) {
            loss = (double)(infinity() - infinity());
            if (label >= 0 && label < SIZE)
                loss = loss_of(x, label, (double)most, log_sum, (double)total / (double)SIZE, smoothing);
        }
        lse = (real)((double)most + log_sum);
        put(&lse_out[row], lse);
        if (losses)
            losses[row] = loss;
        else
            put(&loss_out[row], (real)loss);
    }
    __syncthreads();
    return lse;
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

// The gradient of the block's row x. counted: of a mean, else nullptr. dlogits may be x: an element is read before it is
// written. The label's own element is written last, by the thread that has written its neighbours.
template <int64_t SIZE, int N, class X, class L, class Y>
DEVICE void write_gradient(const X *x, const L *labels, real lse, real weight, Y *dlogits, const int64_t *counted,
                           int64_t ignored, real spread, real peak)
{
    const int64_t row = blockIdx.x, label = get_int(labels[row]);
    const bool is_known = label >= 0 && label < SIZE, is_ours = is_known && label / N % blockDim.x == threadIdx.x;
    const real own = is_ours ? (real)get(x[label]) : 0;
    if (counted) weight /= (real)*counted;
    if (!is_known) weight = infinity() - infinity();
    dlogits += row * SIZE;
#pragma unroll 4
    for (int64_t c = (int64_t)threadIdx.x * N; c < SIZE; c += (int64_t)blockDim.x * N) {
        pack<Y, N> result;
        if (label == ignored) {
            for (int k = 0; k < N; k++) put(&result.item[k], 0);
        } else {
            const pack<X, N> these = get_pack<N>(x + c);
            for (int k = 0; k < N; k++)
                put(&result.item[k], (exponential<X>::of((real)get(these.item[k]) - lse) - spread) * weight);
        }
        put_pack(dlogits + c, result);
    }
    if (is_ours && label != ignored) put(&dlogits[label], (exponential<X>::of(own - lse) - spread - peak) * weight);
}

template <int64_t SIZE, int N, bool BY_ROW, class X, class L, class Z, class D, class Y>
DEVICE void cross_entropy_grad_row(const X *x, const L *labels, const Z *lse_in, const D *dloss, Y *dlogits,
                                   const int64_t *counted, int64_t ignored, real spread, real peak)
{
    const real lse = (real)get(lse_in[blockIdx.x]), weight = (real)get(dloss[BY_ROW ? blockIdx.x : 0]);
    write_gradient<SIZE, N>(x + blockIdx.x * SIZE, labels, lse, weight, dlogits, counted, ignored, spread, peak);
}

// Both: the row comes from memory once; for its gradient it is HELD in shared memory, or comes from a cache. The loss, or
// lse of a single row, may lie over dloss.
template <int64_t SIZE, int N, bool SMOOTH, bool HELD, class X, class L, class D, class O, class Z, class Y>
DEVICE void cross_entropy_both_row(const X *x, const L *labels, const D *dloss, O *loss_out, Z *lse_out, Y *dlogits,
                                   double *losses, const int64_t *counted, int64_t ignored, double smoothing, real spread,
                                   real peak)
{
    SHARED_BYTES(shared);
    X *held = HELD ? (X *)shared : nullptr;
    const real weight = (real)get(dloss[0]);
    const real lse = cross_entropy_row<SIZE, N, SMOOTH>(x, labels, loss_out, lse_out, losses, ignored, smoothing, held);
    write_gradient<SIZE, N>(HELD ? held : x + blockIdx.x * SIZE, labels, lse, weight, dlogits, counted, ignored, spread,
                            peak);
}
