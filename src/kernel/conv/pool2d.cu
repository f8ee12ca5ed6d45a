// Pooling over windows of planes and its gradients: real inside, fixed order, one rounding. A thread for each element
// of the result, or for N channels that lie together; windows may be much larger than the plane, so only what lies in it
// is walked.

// Planes of elements that have CHANNELS channels each: 1 where planes of channels lie one behind the other. A thread has
// N channels of element `element` of plane `plane`, which has SIZE elements.
template <int64_t COUNT, int64_t CHANNELS, int N, int64_t SIZE> struct pooled {
    static constexpr int64_t groups = CHANNELS / N;
    static DEVICE_MEMBER int64_t number() { return thread_number(); }
    static DEVICE_MEMBER bool is_none() { return number() * N >= COUNT; }
    static DEVICE_MEMBER int64_t plane() { return number() / groups / SIZE; }
    static DEVICE_MEMBER int64_t element() { return number() / groups % SIZE; }
    // The thread's channels of an element of another plane of this number, of `size` elements.
    static DEVICE_MEMBER int64_t place(int64_t size, int64_t element)
    {
        return (plane() * size + element) * CHANNELS + number() % groups * N;
    }
    static DEVICE_MEMBER int64_t own() { return number() * N; }
};

// The largest element and its tap, row · width + column inside the window: the first of equals, the last NaN.
template <int64_t COUNT, int64_t CHANNELS, int N, class WINDOW, class X, class Y, class TAP>
DEVICE void max_pool(const X *x, Y *y, TAP *tap)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    using results = pooled<COUNT, CHANNELS, N, WINDOW::steps>;
    if (results::is_none()) return;
    const int64_t row = results::element() / w::steps, column = results::element() % w::steps;
    real most[N];
    int64_t chosen[N];
    for (int k = 0; k < N; k++) most[k] = -infinity(), chosen[k] = -1;
    for (int64_t a = h::first_tap(row); a < h::end_tap(row); a++)
        for (int64_t b = w::first_tap(column); b < w::end_tap(column); b++) {
            const pack<X, N> these =
                get_pack<N>(x + results::place(WINDOW::plane, h::at(row, a) * w::plane + w::at(column, b)));
            for (int k = 0; k < N; k++) {
                const real value = get(these.item[k]);
                if (value > most[k] || value != value || chosen[k] < 0) most[k] = value, chosen[k] = a * w::size + b;
            }
        }
    pack<Y, N> values;
    pack<TAP, N> taps;
    for (int k = 0; k < N; k++) {
        put(&values.item[k], most[k]);
        taps.item[k] = (TAP)chosen[k];
    }
    put_pack(y + results::own(), values);
    put_pack(tap + results::own(), taps);
}

template <int64_t COUNT, int64_t CHANNELS, int N, class WINDOW, bool EXCLUDE_PADDING, class X, class Y>
DEVICE void avg_pool(const X *x, Y *y)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    using results = pooled<COUNT, CHANNELS, N, WINDOW::steps>;
    if (results::is_none()) return;
    const int64_t row = results::element() / w::steps, column = results::element() % w::steps;
    const real count = (real)h::count(row, EXCLUDE_PADDING) * (real)w::count(column, EXCLUDE_PADDING);
    real sum[N] = {};
    for (int64_t a = h::first_tap(row); a < h::end_tap(row); a++)
        for (int64_t b = w::first_tap(column); b < w::end_tap(column); b++) {
            const pack<X, N> these =
                get_pack<N>(x + results::place(WINDOW::plane, h::at(row, a) * w::plane + w::at(column, b)));
            for (int k = 0; k < N; k++) sum[k] += (real)get(these.item[k]);
        }
    pack<Y, N> values;
    for (int k = 0; k < N; k++) put(&values.item[k], sum[k] / count);
    put_pack(y + results::own(), values);
}

template <int64_t COUNT, int64_t CHANNELS, int N, class WINDOW, bool EXCLUDE_PADDING, class DY, class DX>
DEVICE void avg_pool_grad(const DY *dy, DX *dx)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    using results = pooled<COUNT, CHANNELS, N, WINDOW::plane>;
    if (results::is_none()) return;
    const int64_t row = results::element() / w::plane, column = results::element() % w::plane;
    real sum[N] = {};
    for (int64_t a = h::first_step(row); a < h::end_step(row); a++)
        for (int64_t b = w::first_step(column); b < w::end_step(column); b++) {
            const real count = (real)h::count(a, EXCLUDE_PADDING) * (real)w::count(b, EXCLUDE_PADDING);
            const pack<DY, N> slopes = get_pack<N>(dy + results::place(WINDOW::steps, a * w::steps + b));
            for (int k = 0; k < N; k++) sum[k] += (real)get(slopes.item[k]) / count;
        }
    pack<DX, N> values;
    for (int k = 0; k < N; k++) put(&values.item[k], sum[k]);
    put_pack(dx + results::own(), values);
}

// The sum of dy over the windows that cover a position and whose tap it is, in ascending order.
template <int64_t COUNT, int64_t CHANNELS, int N, class WINDOW, class DY, class TAP, class DX>
DEVICE void max_pool_grad(const DY *dy, const TAP *tap, DX *dx)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    using results = pooled<COUNT, CHANNELS, N, WINDOW::plane>;
    if (results::is_none()) return;
    const int64_t row = results::element() / w::plane, column = results::element() % w::plane;
    real sum[N] = {};
    for (int64_t a = h::first_step(row); a < h::end_step(row); a++)
        for (int64_t b = w::first_step(column); b < w::end_step(column); b++) {
            const int64_t from = results::place(WINDOW::steps, a * w::steps + b);
            const int64_t own = (row - h::at(a, 0)) * w::size + column - w::at(b, 0);
            const pack<DY, N> slopes = get_pack<N>(dy + from);
            const pack<TAP, N> taps = get_pack<N>(tap + from);
            for (int k = 0; k < N; k++)
                if (get_int(taps.item[k]) == own) sum[k] += (real)get(slopes.item[k]);
        }
    pack<DX, N> values;
    for (int k = 0; k < N; k++) put(&values.item[k], sum[k]);
    put_pack(dx + results::own(), values);
}
