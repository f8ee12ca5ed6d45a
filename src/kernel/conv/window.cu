// Windows over planes, as op/window.h. Pairs are height, width; the template parameters are those of both axes.

template <int64_t PLANE, int64_t SIZE, int64_t STRIDE, int64_t PADDING, int64_t DILATION, int64_t STEPS>
struct window_axis {
    static constexpr int64_t plane = PLANE, size = SIZE, stride = STRIDE, padding = PADDING, dilation = DILATION,
                             steps = STEPS;
    // The index in the plane of element `tap` of the window at position `step`.
    static DEVICE_MEMBER int64_t at(int64_t step, int64_t tap) { return step * STRIDE - PADDING + tap * DILATION; }
    static DEVICE_MEMBER bool inside(int64_t index) { return index >= 0 && index < PLANE; }
    // The position whose element `tap` lies at an index; -1: none does.
    static DEVICE_MEMBER int64_t step_at(int64_t index, int64_t tap)
    {
        const int64_t from = index + PADDING - tap * DILATION;
        return from >= 0 && from % STRIDE == 0 && from / STRIDE < STEPS ? from / STRIDE : -1;
    }
    // The elements of a window without gaps that lie in the plane: from the first to the one behind the last.
    static DEVICE_MEMBER int64_t first_tap(int64_t step) { return at(step, 0) < 0 ? -at(step, 0) : 0; }
    static DEVICE_MEMBER int64_t end_tap(int64_t step)
    {
        return PLANE - at(step, 0) < SIZE ? PLANE - at(step, 0) : SIZE;
    }
    // How many elements an average divides by.
    static DEVICE_MEMBER int64_t count(int64_t step, bool exclude_padding)
    {
        return exclude_padding ? end_tap(step) - first_tap(step) : SIZE;
    }
    // The windows without gaps that cover an index: from the first to the one behind the last.
    static DEVICE_MEMBER int64_t first_step(int64_t index)
    {
        const int64_t beyond = index + PADDING - SIZE;
        return beyond < 0 ? 0 : beyond / STRIDE + 1;
    }
    static DEVICE_MEMBER int64_t end_step(int64_t index)
    {
        const int64_t end = (index + PADDING) / STRIDE + 1;
        return end < STEPS ? end : STEPS;
    }
};

template <class HEIGHT, class WIDTH> struct window {
    using h = HEIGHT;
    using w = WIDTH;
    static constexpr int64_t plane = h::plane * w::plane, taps = h::size * w::size, steps = h::steps * w::steps;
};
