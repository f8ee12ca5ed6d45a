// Pooling over windows of planes and its gradients: real inside, fixed order, one rounding. A thread for each element
// of the result; windows may be much larger than the plane, so only what lies in it is walked.

// The largest element and its index in the plane: the first of equals, the last NaN.
template <int64_t COUNT, class WINDOW, class X, class Y> DEVICE void max_pool(const X *x, Y *y, int32_t *index)
{
    using h = typename WINDOW::h;
    using w = typename WINDOW::w;
    const int64_t i = thread_number();
    if (i >= COUNT) return;
    const int64_t row = i / w::steps % h::steps, column = i % w::steps;
    x += i / WINDOW::steps * WINDOW::plane;
    real most = -infinity();
    int64_t at = -1;
    for (int64_t a = h::first_tap(row); a < h::end_tap(row); a++)
        for (int64_t b = w::first_tap(column); b < w::end_tap(column); b++) {
            const int64_t place = h::at(row, a) * w::plane + w::at(column, b);
            const real value = get(x[place]);
            if (value > most || value != value || at < 0) most = value, at = place;
        }
    put(&y[i], most);
    index[i] = (int32_t)at;
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

// dx[index[i]] += dy[i]. A block for each OWNED elements of a plane of dx, a part of which belongs to each warp; it
// looks through the plane's indices in ascending order, and one of its threads adds.
template <int64_t PLANE, int64_t POSITIONS, int64_t OWNED, class DY, class INDEX, class DX>
DEVICE void max_pool_grad(const DY *dy, const INDEX *index, DX *dx)
{
    SHARED_BYTES(bytes);
    real *sum = (real *)bytes;
    constexpr int64_t blocks = (PLANE + OWNED - 1) / OWNED;
    const int64_t plane = blockIdx.x / blocks, first = blockIdx.x % blocks * OWNED;
    const int64_t owned = PLANE - first < OWNED ? PLANE - first : OWNED;
    const int64_t share = (OWNED + blockDim.x / 32 - 1) / (blockDim.x / 32), own = threadIdx.x / 32 * share;
    const int64_t count = owned - own < share ? owned - own : share;
    const int lane = threadIdx.x % 32;
    dy += plane * POSITIONS;
    index += plane * POSITIONS;
    for (int64_t i = lane; i < count; i += 32) sum[own + i] = 0;
    __syncwarp();
    for (int64_t i = 0; i < POSITIONS; i += 32) {
        const int64_t from_own = i + lane < POSITIONS ? get_int(index[i + lane]) - first - own : -1;
        const bool mine = from_own >= 0 && from_own < count;
        const int at = mine ? (int)from_own : 0;
        const real value = mine ? (real)get(dy[i + lane]) : (real)0;
        const uint32_t owners = __ballot_sync(0xffffffffu, mine);
        for (int j = 0; j < 32 && owners >> j != 0; j++) {
            if (!(owners >> j & 1)) continue;
            const int to = __shfl_sync(0xffffffffu, at, j);
            const real more = __shfl_sync(0xffffffffu, value, j);
            if (lane == 0) sum[own + to] += more;
        }
    }
    __syncwarp();
    for (int64_t i = lane; i < count; i += 32) put(&dx[plane * PLANE + first + own + i], sum[own + i]);
}
