// sum, mean, reduce_max, norm over any axes; sums of integers, too. In front of it stands `struct axes`: the place of the
// first element of outer kept position i, axes::kept(i), and what outer reduced position i adds to it, axes::reduced(i).
// Numerics: a thread folds some dozens of elements in its own type, of squares in double; all further joins are in
// double, in a fixed order. One rounding to real, one to y's type. The maximum is exact, and NaN if any x is. Integers
// are exact modulo their type.

// A fold: what a thread begins with, how it takes an element, and how results are joined and finished.
struct fold_sum {
    typedef real part;
    typedef double total;
    static DEVICE_MEMBER part none() { return 0; }
    template <class X> static DEVICE_MEMBER part take(part a, X x) { return a + (real)get(x); }
    static DEVICE_MEMBER total join(total a, total b) { return a + b; }
    template <class Y> static DEVICE_MEMBER void finish(Y *y, total x, int64_t) { put(y, (real)x); }
};
struct fold_mean : fold_sum {
    template <class Y> static DEVICE_MEMBER void finish(Y *y, total x, int64_t count) { put(y, (real)(x / (double)count)); }
};
struct fold_squares : fold_sum {
    typedef double part;
    static DEVICE_MEMBER part none() { return 0; }
    template <class X> static DEVICE_MEMBER part take(part a, X x) { return a + (double)get(x) * (double)get(x); }
    template <class Y> static DEVICE_MEMBER void finish(Y *y, total x, int64_t) { put(y, (real)sqrt(x)); }
};
struct fold_max : fold_sum {
    static DEVICE_MEMBER part none() { return -infinity(); }
    template <class X> static DEVICE_MEMBER part take(part a, X x) { return fn_max(a, (real)get(x)); }
    static DEVICE_MEMBER total join(total a, total b) { return fn_max(a, b); }
};
struct fold_integers {
    typedef uint64_t part, total;
    static DEVICE_MEMBER part none() { return 0; }
    template <class X> static DEVICE_MEMBER part take(part a, X x) { return a + (uint64_t)get_int(x); }
    static DEVICE_MEMBER total join(total a, total b) { return a + b; }
    template <class Y> static DEVICE_MEMBER void finish(Y *y, total x, int64_t) { put_int(y, (int64_t)x); }
};

// Where a result of one of PARTS goes: to y if there are no others, else to the workspace.
template <class F, int64_t OUTPUTS, int64_t LENGTH, int64_t PARTS, class Y>
DEVICE void deliver(typename F::total x, int64_t output, int64_t part, Y *y, typename F::total *partials)
{
    if (PARTS == 1)
        F::finish(&y[output], x, LENGTH);
    else
        partials[part * OUTPUTS + output] = x;
}

// The innermost axis, of RUN neighbours, is reduced. WIDTH threads, a warp or the block, fold PART of the LENGTH elements
// of an output, N neighbours at a time.
template <class F, int64_t OUTPUTS, int64_t LENGTH, int64_t PARTS, int64_t PART, int64_t RUN, int N, int WIDTH, int THREADS,
          class X, class Y>
DEVICE void reduce_runs(const X &x, Y *y, typename F::total *partials)
{
    const int64_t group = (int64_t)blockIdx.x * (THREADS / WIDTH) + threadIdx.x / WIDTH;
    const int64_t output = group / PARTS, first = group % PARTS * PART;
    const int64_t end = first + PART < LENGTH ? first + PART : LENGTH;
    typename F::part folded = F::none();
    if (output < OUTPUTS) {
        const int64_t start = axes::kept(output);
#pragma unroll 4
        for (int64_t at = first + (int64_t)(threadIdx.x % WIDTH) * N; at < end; at += WIDTH * N) {
            const pack<typename X::item, N> these = x.template at<N>(start + axes::reduced(at / RUN) + at % RUN);
            for (int k = 0; k < N; k++) folded = F::take(folded, these.item[k]);
        }
    }
    typename F::total total = (typename F::total)folded;
    if (WIDTH == 32)
        for (int half = 16; half > 0; half /= 2) total = F::join(total, __shfl_xor_sync(0xffffffffu, total, half));
    else
        total = column_fold<F, 1, THREADS>(total);
    if (threadIdx.x % WIDTH == 0 && output < OUTPUTS) deliver<F, OUTPUTS, LENGTH, PARTS>(total, output, group % PARTS, y, partials);
}

// The innermost axis, of RUN neighbours, is kept: each is a column. A block takes PART of the LENGTH rows of COLUMNS
// times N columns.
template <class F, int64_t OUTPUTS, int64_t LENGTH, int64_t PARTS, int64_t PART, int64_t RUN, int N, int COLUMNS, int THREADS,
          class X, class Y>
DEVICE void reduce_columns(const X &x, Y *y, typename F::total *partials)
{
    constexpr int64_t TILES = (RUN + COLUMNS * N - 1) / (COLUMNS * N);
    const int64_t part = blockIdx.x % PARTS, tile = blockIdx.x / PARTS % TILES, outer = blockIdx.x / PARTS / TILES;
    const int64_t end = (part + 1) * PART < LENGTH ? (part + 1) * PART : LENGTH;
    const int64_t column = (tile * COLUMNS + threadIdx.x % COLUMNS) * N;
    typename F::part folded[N];
    for (int k = 0; k < N; k++) folded[k] = F::none();
    if (column < RUN) {
        const int64_t start = axes::kept(outer) + column;
#pragma unroll(X::AHEAD)
        for (int64_t row = part * PART + threadIdx.x / COLUMNS; row < end; row += THREADS / COLUMNS) {
            const pack<typename X::item, N> these = x.template at<N>(start + axes::reduced(row));
            for (int k = 0; k < N; k++) folded[k] = F::take(folded[k], these.item[k]);
        }
    }
    typename F::total totals[N];
    for (int k = 0; k < N; k++) totals[k] = (typename F::total)folded[k];
    column_folds<F, COLUMNS, THREADS>(totals);
    for (int k = 0; k < N && threadIdx.x < COLUMNS && column < RUN; k++)
        deliver<F, OUTPUTS, LENGTH, PARTS>(totals[k], outer * RUN + column + k, part, y, partials);
}

// Joins what PARTS blocks left, for COLUMNS outputs in a block.
template <class F, int64_t OUTPUTS, int64_t LENGTH, int64_t PARTS, int COLUMNS, int THREADS, class Y>
DEVICE void reduce_join(const typename F::total *partials, Y *y)
{
    const int64_t output = (int64_t)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    typename F::total total = (typename F::total)F::none();
    if (output < OUTPUTS)
        for (int64_t part = threadIdx.x / COLUMNS; part < PARTS; part += THREADS / COLUMNS)
            total = F::join(total, partials[part * OUTPUTS + output]);
    total = column_fold<F, COLUMNS, THREADS>(total);
    if (threadIdx.x < COLUMNS && output < OUTPUTS) F::finish(&y[output], total, LENGTH);
}
