// Pooling over windows of planes and its gradients: real inside, fixed order, one rounding. A thread for each element
// of the result; windows may be much larger than the plane, so only what lies in it is walked.

// The largest element and its tap, row · width + column inside the window: the first of equals, the last NaN.
template <int64_t COUNT, class WINDOW, class X, class Y, class TAP> DEVICE void max_pool(const X *x, Y *y, TAP *tap)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    const int64_t i = thread_number();
    if (i >= COUNT) return;
    const int64_t row = i / w::steps % h::steps, column = i % w::steps;
    x += i / WINDOW::steps * WINDOW::plane;
    real most = -infinity();
    int64_t chosen = -1;
    for (int64_t a = h::first_tap(row); a < h::end_tap(row); a++)
        for (int64_t b = w::first_tap(column); b < w::end_tap(column); b++) {
            const real value = get(x[h::at(row, a) * w::plane + w::at(column, b)]);
            if (value > most || value != value || chosen < 0) most = value, chosen = a * w::size + b;
        }
    put(&y[i], most);
    tap[i] = (TAP)chosen;
}

template <int64_t COUNT, class WINDOW, bool EXCLUDE_PADDING, class X, class Y> DEVICE void avg_pool(const X *x, Y *y)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    const int64_t i = thread_number();
    if (i >= COUNT) return;
    const int64_t row = i / w::steps % h::steps, column = i % w::steps;
    x += i / WINDOW::steps * WINDOW::plane;
    real sum = 0;
    for (int64_t a = h::first_tap(row); a < h::end_tap(row); a++)
        for (int64_t b = w::first_tap(column); b < w::end_tap(column); b++)
            sum += (real)get(x[h::at(row, a) * w::plane + w::at(column, b)]);
    put(&y[i], sum / ((real)h::count(row, EXCLUDE_PADDING) * (real)w::count(column, EXCLUDE_PADDING)));
}

template <int64_t COUNT, class WINDOW, bool EXCLUDE_PADDING, class DY, class DX>
DEVICE void avg_pool_grad(const DY *dy, DX *dx)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    const int64_t i = thread_number();
    if (i >= COUNT) return;
    const int64_t row = i / w::plane % h::plane, column = i % w::plane;
    dy += i / WINDOW::plane * WINDOW::steps;
    real sum = 0;
    for (int64_t a = h::first_step(row); a < h::end_step(row); a++)
        for (int64_t b = w::first_step(column); b < w::end_step(column); b++)
            sum += (real)get(dy[a * w::steps + b]) /
                   ((real)h::count(a, EXCLUDE_PADDING) * (real)w::count(b, EXCLUDE_PADDING));
    put(&dx[i], sum);
}

// The sum of dy over the windows that cover a position and whose tap it is, in ascending order.
template <int64_t COUNT, class WINDOW, class DY, class TAP, class DX>
DEVICE void max_pool_grad(const DY *dy, const TAP *tap, DX *dx)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    const int64_t i = thread_number();
    if (i >= COUNT) return;
    const int64_t row = i / w::plane % h::plane, column = i % w::plane, first = i / WINDOW::plane * WINDOW::steps;
    real sum = 0;
    for (int64_t a = h::first_step(row); a < h::end_step(row); a++)
        for (int64_t b = w::first_step(column); b < w::end_step(column); b++) {
            const int64_t from = first + a * w::steps + b;
            const int64_t own = (row - h::at(a, 0)) * w::size + column - w::at(b, 0);
            if (get_int(tap[from]) == own) sum += (real)get(dy[from]);
        }
    put(&dx[i], sum);
}
