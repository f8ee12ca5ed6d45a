// conv2d and its gradients as products of each group (tile_product.cu), which make windows as they go:
//     conv2d              row: output channel   column: image, position of the window   k: input channel, tap
//     conv2d_grad_input   row: input channel    column: image, position in the plane    k: output channel, tap
//     conv2d_grad_weight  row: output channel   column: input channel, tap              k: image, window position

// Where the elements of a value of four axes lie.
template <int64_t FIRST, int64_t CHANNEL, int64_t ROW, int64_t COLUMN> struct places {
    static DEVICE_MEMBER int64_t at(int64_t first, int64_t channel, int64_t row, int64_t column)
    {
        return first * FIRST + channel * CHANNEL + row * ROW + column * COLUMN;
    }
};

template <int64_t BATCH, int64_t GROUPS, int64_t IN_CHANNELS, int64_t OUT_CHANNELS, class WINDOW, class X, class W, class Y>
struct conv {
    static constexpr int64_t batch = BATCH, groups = GROUPS, in_channels = IN_CHANNELS, out_channels = OUT_CHANNELS;
    static constexpr int64_t taps = WINDOW::taps, steps = WINDOW::steps, plane = WINDOW::plane;
    using height = typename WINDOW::h;
    using width = typename WINDOW::w;

    // Elements of a group's channels: of x by its place in the plane, of y by the window's position, of w by the tap.
    static DEVICE_MEMBER int64_t in_at(int64_t image, int64_t group, int64_t channel, int64_t element)
    {
        return X::at(image, group * IN_CHANNELS + channel, element / width::plane, element % width::plane);
    }
    static DEVICE_MEMBER int64_t out_at(int64_t image, int64_t group, int64_t channel, int64_t step)
    {
        return Y::at(image, group * OUT_CHANNELS + channel, step / width::steps, step % width::steps);
    }
    static DEVICE_MEMBER int64_t weight_at(int64_t group, int64_t out, int64_t in, int64_t tap)
    {
        return W::at(group * OUT_CHANNELS + out, in, tap / width::size, tap % width::size);
    }
    // The element of a plane of x that a tap sees from a position; -1: padding.
    static DEVICE_MEMBER int64_t seen(int64_t step, int64_t tap)
    {
        const int64_t h = height::at(step / width::steps, tap / width::size);
        const int64_t w = width::at(step % width::steps, tap % width::size);
        return height::inside(h) && width::inside(w) ? h * width::plane + w : -1;
    }
    // The position from which a tap sees an element of the plane; -1: none.
    static DEVICE_MEMBER int64_t seen_from(int64_t element, int64_t tap)
    {
        const int64_t h = height::step_at(element / width::plane, tap / width::size);
        const int64_t w = width::step_at(element % width::plane, tap % width::size);
        return h >= 0 && w >= 0 ? h * width::steps + w : -1;
    }
};

// ---- conv2d ----

template <class CONV, class X> struct windows_of_x {
    const X *x;
    int64_t group;
    static constexpr bool along_depth = false;
    DEVICE_MEMBER real at(int64_t column, int64_t k) const
    {
        const int64_t seen = CONV::seen(column % CONV::steps, k % CONV::taps);
        return seen < 0 ? (real)0 : (real)get(x[CONV::in_at(column / CONV::steps, group, k / CONV::taps, seen)]);
    }
};

template <class CONV, class W> struct weights_by_output {
    const W *w;
    int64_t group;
    static constexpr bool along_depth = true;
    DEVICE_MEMBER real at(int64_t channel, int64_t k) const
    {
        return (real)get(w[CONV::weight_at(group, channel, k / CONV::taps, k % CONV::taps)]);
    }
};

template <class CONV, class Y> struct store_y {
    Y *y;
    int64_t group;
    DEVICE_MEMBER void operator()(int64_t row, int64_t column, real sum) const
    {
        put(&y[CONV::out_at(column / CONV::steps, group, row, column % CONV::steps)], sum);
    }
};

template <class CONV, class X, class W, class Y> DEVICE void convolve(const X *x, const W *w, Y *y)
{
    constexpr int64_t depth = CONV::in_channels * CONV::taps;
    const int64_t tiles = gridDim.x / CONV::groups, group = blockIdx.x / tiles;
    multiply_tile<CONV::out_channels, CONV::batch * CONV::steps>(
        blockIdx.x % tiles, 0, depth, weights_by_output<CONV, W>{w, group},
        windows_of_x<CONV, X>{x, group}, store_y<CONV, Y>{y, group});
}

// ---- conv2d_grad_input ----

template <class CONV, class W> struct weights_by_input {
    const W *w;
    int64_t group;
    static constexpr bool along_depth = true;
    DEVICE_MEMBER real at(int64_t channel, int64_t k) const
    {
        return (real)get(w[CONV::weight_at(group, k / CONV::taps, channel, k % CONV::taps)]);
    }
};

template <class CONV, class DY> struct windows_of_dy {
    const DY *dy;
    int64_t group;
    static constexpr bool along_depth = false;
    DEVICE_MEMBER real at(int64_t column, int64_t k) const
    {
        const int64_t from = CONV::seen_from(column % CONV::plane, k % CONV::taps);
        return from < 0 ? (real)0 : (real)get(dy[CONV::out_at(column / CONV::plane, group, k / CONV::taps, from)]);
    }
};

template <class CONV, class DX> struct store_dx {
    DX *dx;
    int64_t group;
    DEVICE_MEMBER void operator()(int64_t row, int64_t column, real sum) const
    {
        put(&dx[CONV::in_at(column / CONV::plane, group, row, column % CONV::plane)], sum);
    }
};

template <class CONV, class DY, class W, class DX> DEVICE void convolve_grad_input(const DY *dy, const W *w, DX *dx)
{
    const int64_t tiles = gridDim.x / CONV::groups, group = blockIdx.x / tiles;
    multiply_tile<CONV::in_channels, CONV::batch * CONV::plane>(
        blockIdx.x % tiles, 0, CONV::out_channels * CONV::taps, weights_by_input<CONV, W>{w, group},
        windows_of_dy<CONV, DY>{dy, group}, store_dx<CONV, DX>{dx, group});
}

// ---- conv2d_grad_weight ----

template <class CONV, class DY> struct positions_of_dy {
    const DY *dy;
    int64_t group;
    static constexpr bool along_depth = true;
    DEVICE_MEMBER real at(int64_t channel, int64_t k) const
    {
        return (real)get(dy[CONV::out_at(k / CONV::steps, group, channel, k % CONV::steps)]);
    }
};

template <class CONV, class X> struct positions_of_x {
    const X *x;
    int64_t group;
    static constexpr bool along_depth = true;
    DEVICE_MEMBER real at(int64_t column, int64_t k) const
    {
        const int64_t seen = CONV::seen(k % CONV::steps, column % CONV::taps);
        return seen < 0 ? (real)0 : (real)get(x[CONV::in_at(k / CONV::steps, group, column / CONV::taps, seen)]);
    }
};

template <class CONV, class DW> struct store_dw {
    DW *dw;
    int64_t group;
    DEVICE_MEMBER void operator()(int64_t row, int64_t column, real sum) const
    {
        put(&dw[CONV::weight_at(group, row, column / CONV::taps, column % CONV::taps)], sum);
    }
};

template <class CONV, class DY, class X, class STORE>
DEVICE void convolve_grad_weight_tile(const X *x, const DY *dy, int64_t tile, int64_t group, int64_t from, int64_t to, STORE store)
{
    multiply_tile<CONV::out_channels, CONV::in_channels * CONV::taps>(tile, from, to, positions_of_dy<CONV, DY>{dy, group},
                                                                      positions_of_x<CONV, X>{x, group}, store);
}

template <class CONV, class X, class DY, class DW> DEVICE void convolve_grad_weight(const X *x, const DY *dy, DW *dw)
{
    const int64_t tiles = gridDim.x / CONV::groups, group = blockIdx.x / tiles;
    convolve_grad_weight_tile<CONV>(x, dy, blockIdx.x % tiles, group, 0, CONV::batch * CONV::steps,
                                    store_dw<CONV, DW>{dw, group});
}

// Part `part` of k has LENGTH steps; each part has an array of its own, `to` being that of the first.
template <class CONV, int64_t PARTS, int64_t LENGTH, class X, class DY>
DEVICE void convolve_grad_weight_parts(const X *x, const DY *dy, real *to)
{
    constexpr int64_t columns = CONV::in_channels * CONV::taps, depth = CONV::batch * CONV::steps;
    constexpr int64_t elems = CONV::groups * CONV::out_channels * columns;
    const int64_t tiles = gridDim.x / PARTS / CONV::groups, group = blockIdx.x / tiles % CONV::groups;
    const int64_t part = blockIdx.x / tiles / CONV::groups, from = part * LENGTH;
    convolve_grad_weight_tile<CONV>(
        x, dy, blockIdx.x % tiles, group, from, from + LENGTH < depth ? from + LENGTH : depth,
        matrix_store<real, columns>{to + part * elems + group * CONV::out_channels * columns});
}

// The parts added in order.
template <class CONV, int64_t ELEMS, int64_t PARTS, class DW> DEVICE void add_parts(const real *parts, DW *dw)
{
    constexpr int64_t columns = CONV::in_channels * CONV::taps;
    const int64_t i = thread_number(), row = i / columns, column = i % columns;
    real sum = 0;
    if (i >= ELEMS) return;
    for (int64_t part = 0; part < PARTS; part++) sum += parts[part * ELEMS + i];
    put(&dw[CONV::weight_at(0, row, column / CONV::taps, column % CONV::taps)], sum);
}
