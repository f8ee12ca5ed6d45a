// cross_entropy: loss[r] = lse[r] - (1-s) x[r,label] - s mean(x[r]) and its mean or sum; lse[r] = log Σ exp x[r].
// cross_entropy_grad: dlogits[r] = weight[r] (exp(x[r] - lse[r]) - target[r]).
// Exponentials in real, what is one per row in double; one rounding. An ignored row gives 0 and does not count; a label
// outside the classes gives NaN.

// NaN is passed over: it shows in the sum of exponentials.
DEVICE float larger(float a, float b) { return fmaxf(a, b); }
DEVICE double larger(double a, double b) { return fmax(a, b); }

template <int COUNT, int N, class X> DEVICE real largest_of(const pack<X, N> (&x)[COUNT])
{
    real largest = (real)get(x[0].item[0]);
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k < N; k++) largest = larger(largest, (real)get(x[i].item[k]));
    return largest;
}
#ifndef HT_EMULATED
// Two at a time.
DEVICE void larger_pair(uint32_t *a, uint32_t b, bf16) { asm("max.bf16x2 %0, %0, %1;" : "+r"(*a) : "r"(b)); }
DEVICE void larger_pair(uint32_t *a, uint32_t b, f16) { asm("max.f16x2 %0, %0, %1;" : "+r"(*a) : "r"(b)); }
template <int COUNT, int N, class X> DEVICE real largest_half(const pack<X, N> (&x)[COUNT])
{
    uint32_t pair = x[0].item[0].bits | (uint32_t)x[0].item[N - 1].bits << 16;
    for (int i = 0; i < COUNT; i++)
        for (int k = 0; k + 1 < N; k += 2)
            larger_pair(&pair, x[i].item[k].bits | (uint32_t)x[i].item[k + 1].bits << 16, X{});
    for (int i = 0; N % 2 && i < COUNT; i++) larger_pair(&pair, x[i].item[N - 1].bits * 0x10001u, X{});
    return larger((real)get(X{(uint16_t)pair}), (real)get(X{(uint16_t)(pair >> 16)}));
}
template <int COUNT, int N> DEVICE real largest_of(const pack<bf16, N> (&x)[COUNT]) { return largest_half(x); }
template <int COUNT, int N> DEVICE real largest_of(const pack<f16, N> (&x)[COUNT]) { return largest_half(x); }
#endif

// exp(x - base) for logits of type X; `base` is one for many of them.
template <class X> struct exponential {
    real base;
    DEVICE_MEMBER explicit exponential(real of) { base = of; }
    DEVICE_MEMBER real of(real x) const { return fn_exp(x - base); }
};
// Of half logits to 2^-22 and the rounding of base: one product and one instruction for the power of two.
template <> struct exponential<bf16> {
    real base;
    DEVICE_MEMBER explicit exponential(real of) { base = sizeof(real) == 4 ? of * (real)-1.44269504 : of; }
    DEVICE_MEMBER real of(real x) const
    {
        return sizeof(real) == 4 ? (real)rough_exp2(fmaf((float)x, 1.44269504f, (float)base)) : fn_exp(x - base);
    }
};
template <> struct exponential<f16> : exponential<bf16> {
    DEVICE_MEMBER explicit exponential(real of) : exponential<bf16>(of) {}
};

// Σ exp(x - most) over what a thread has seen. A sum is scaled anew when a larger x comes.
template <class X> struct exponential_sum {
    real most, sum;
    DEVICE_MEMBER void begin()
    {
        most = -infinity();
        sum = 0;
    }
    template <int COUNT, int N> DEVICE_MEMBER void add(const pack<X, N> (&x)[COUNT])
    {
        const real largest = largest_of(x);
        if (largest > most) {
            sum *= fn_exp(most - largest);
            most = largest;
        }
        const exponential<X> power(most == -infinity() ? 0 : most); // where all so far were -∞
        real part = 0;
        for (int i = 0; i < COUNT; i++)
            for (int k = 0; k < N; k++) part += power.of((real)get(x[i].item[k]));
        sum += part;
    }
};

// The loss of a row that counts; all of it from differences to the maximum: a confident row keeps its digits.
template <class X> DEVICE double loss_of(const X *x, int64_t label, double most, double log_sum, double mean, double smoothing)
{
    const double loss = log_sum + (most - (double)get(x[label]));
    return smoothing == 0 ? loss : (1 - smoothing) * loss + smoothing * (log_sum + (most - mean));
}

// How a row of SIZE lies: in packs of N, of which each of THREADS takes some. WHOLE elements are in batches, in which a
// thread has BATCH packs on their way at once.
template <int64_t SIZE_, int N_, int THREADS_> struct row_shape {
    static constexpr int64_t SIZE = SIZE_;
    static constexpr int N = N_, THREADS = THREADS_, BATCH = 4;
    static constexpr int64_t STEP = (int64_t)N * THREADS, WHOLE = SIZE / (STEP * BATCH) * (STEP * BATCH);
};

// Gives `take` the packs that a thread has of a row: take(batch, place of its first pack), whose others lie STEP apart.
template <class SHAPE, class X, class TAKE> DEVICE void for_each_batch(const X *x, TAKE &take)
{
    for (int64_t c = (int64_t)threadIdx.x * SHAPE::N; c < SHAPE::WHOLE; c += SHAPE::STEP * SHAPE::BATCH) {
        pack<X, SHAPE::N> these[SHAPE::BATCH];
#pragma unroll
        for (int b = 0; b < SHAPE::BATCH; b++) these[b] = get_pack<SHAPE::N>(x + c + b * SHAPE::STEP);
        take(these, c);
    }
    for (int64_t c = SHAPE::WHOLE + (int64_t)threadIdx.x * SHAPE::N; c < SHAPE::SIZE; c += SHAPE::STEP) {
        pack<X, SHAPE::N> these[1] = {get_pack<SHAPE::N>(x + c)};
        take(these, c);
    }
}

template <class SHAPE, bool SMOOTH, class X> struct take_sums {
    exponential_sum<X> exponentials;
    real plain;
    template <int COUNT> DEVICE_MEMBER void operator()(const pack<X, SHAPE::N> (&these)[COUNT], int64_t)
    {
        for (int b = 0; SMOOTH && b < COUNT; b++)
            for (int k = 0; k < SHAPE::N; k++) plain += (real)get(these[b].item[k]);
        exponentials.add(these);
    }
};

// Of the row x, in all threads: the largest x, Σ exp(x - largest), and Σ x where it is wanted.
template <class SHAPE, bool SMOOTH, class X> DEVICE void read_row(const X *x, real *most, real *sum, real *total)
{
    take_sums<SHAPE, SMOOTH, X> part;
    part.exponentials.begin();
    part.plain = 0;
    for_each_batch<SHAPE>(x, part);
    *most = block_max(part.exponentials.most);
    *sum = block_sum(part.exponentials.sum * fn_exp(part.exponentials.most - *most));
    *total = SMOOTH ? block_sum(part.plain) : 0;
}

// A block for each row. losses: of each row, in double; nullptr where rows are results. The row's lse, for
// all threads.
template <class SHAPE, bool SMOOTH, class X, class L, class Y, class Z>
DEVICE real cross_entropy_row(const X *x, const L *labels, Y *loss_out, Z *lse_out, double *losses, int64_t ignored,
                              double smoothing)
{
    __shared__ real lse;
    const int64_t row = blockIdx.x, label = get_int(labels[row]);
    real most, sum, total;
    x += row * SHAPE::SIZE;
    read_row<SHAPE, SMOOTH>(x, &most, &sum, &total);
    if (threadIdx.x == 0) {
        const double log_sum = log((double)sum);
        double loss = 0;
        if (label != ignored) {
            loss = (double)(infinity() - infinity());
            if (label >= 0 && label < SHAPE::SIZE)
                loss = loss_of(x, label, (double)most, log_sum, (double)total / (double)SHAPE::SIZE, smoothing);
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

template <class SHAPE, class X, class Y> struct take_gradient {
    exponential<X> power;
    real spread, weight;
    Y *to;
    template <int COUNT> DEVICE_MEMBER void operator()(const pack<X, SHAPE::N> (&these)[COUNT], int64_t c) const
    {
#pragma unroll
        for (int b = 0; b < COUNT; b++) {
            real result[SHAPE::N];
            for (int k = 0; k < SHAPE::N; k++) result[k] = of((real)get(these[b].item[k]));
            put_numbers(to + c + b * SHAPE::STEP, result);
        }
    }
    DEVICE_MEMBER real of(real x) const { return (power.of(x) - spread) * weight; }
};

// The gradient of the block's row x. counted: of a mean, else nullptr. dlogits may be x: an element is read before it is
// written. The label's own element is written last, by the thread that has written its neighbours.
template <class SHAPE, class X, class L, class Y>
DEVICE void write_gradient(const X *x, const L *labels, real lse, real weight, Y *dlogits, const int64_t *counted,
                           int64_t ignored, real spread, real peak)
{
    const int64_t row = blockIdx.x, label = get_int(labels[row]);
    const bool is_known = label >= 0 && label < SHAPE::SIZE;
    const bool is_ours = is_known && label / SHAPE::N % SHAPE::THREADS == threadIdx.x;
    const real own = is_ours ? (real)get(x[label]) : 0;
    dlogits += row * SHAPE::SIZE;
    if (label == ignored) {
        real zeros[SHAPE::N];
        for (int k = 0; k < SHAPE::N; k++) zeros[k] = 0;
        for (int64_t c = (int64_t)threadIdx.x * SHAPE::N; c < SHAPE::SIZE; c += SHAPE::STEP) put_numbers(dlogits + c, zeros);
        return;
    }
    if (counted) weight /= (real)*counted;
    if (!is_known) weight = infinity() - infinity();
    take_gradient<SHAPE, X, Y> gradient = {exponential<X>(lse), spread, weight, dlogits};
    for_each_batch<SHAPE>(x, gradient);
    if (is_ours) put(&dlogits[label], (gradient.power.of(own) - spread - peak) * weight);
}

template <class SHAPE, bool BY_ROW, class X, class L, class Z, class D, class Y>
DEVICE void cross_entropy_grad_row(const X *x, const L *labels, const Z *lse_in, const D *dloss, Y *dlogits,
                                   const int64_t *counted, int64_t ignored, real spread, real peak)
{
    const real lse = (real)get(lse_in[blockIdx.x]), weight = (real)get(dloss[BY_ROW ? blockIdx.x : 0]);
    write_gradient<SHAPE>(x + blockIdx.x * SHAPE::SIZE, labels, lse, weight, dlogits, counted, ignored, spread, peak);
}

// Both: the row comes from memory once, for its gradient from a cache. The loss, or lse of a single row, may lie over
// dloss.
template <class SHAPE, bool SMOOTH, class X, class L, class D, class O, class Z, class Y>
DEVICE void cross_entropy_both_row(const X *x, const L *labels, const D *dloss, O *loss_out, Z *lse_out, Y *dlogits,
                                   double *losses, const int64_t *counted, int64_t ignored, double smoothing, real spread,
                                   real peak)
{
    const real weight = (real)get(dloss[0]);
    const real lse = cross_entropy_row<SHAPE, SMOOTH>(x, labels, loss_out, lse_out, losses, ignored, smoothing);
    write_gradient<SHAPE>(x + blockIdx.x * SHAPE::SIZE, labels, lse, weight, dlogits, counted, ignored, spread, peak);
}
