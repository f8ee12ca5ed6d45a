// quantize_dynamic: codes with a scale and a zero point for each group of elements. A block for each group: its range, then codes.
// quantize_linear: codes by scales that are known. A thread for each element.

template <class... AXES> struct axes {};

// KEPT: the axes that count groups, SHARED those of a group's elements, both with the strides of x.
template <int64_t COUNT, class CODE, class... KEPT, class... SHARED, class X>
DEVICE void quantize_group(axes<KEPT...>, axes<SHARED...>, const X *x, CODE *y, float *scales, int32_t *zeros)
{
    const int64_t first = locate<int64_t, KEPT...>((int64_t)blockIdx.x).from;
    real low = 0, high = 0, bad = 0;
    for (int64_t i = threadIdx.x; i < COUNT; i += blockDim.x) {
        const float v = (float)get(x[first + locate<int64_t, SHARED...>(i).from]);
        if (!(v * 0.f == 0.f)) bad = 1;
        if (-v > low) low = -v;
        if (v > high) high = v;
    }
    low = block_max(low);
    high = block_max(high);
    bad = block_max(bad);
    const bool is_signed = lowest_code((const CODE *)nullptr) < 0;
    const float least = __uint_as_float(0x00800000u);
    float scale = is_signed ? (float)fn_max(low, high) / 127.f : (float)high / 255.f + (float)low / 255.f;
    int32_t zero = 0;
    if (scale < least) scale = least;
    if (bad != 0) scale = __uint_as_float(0x7fc00000u);
    if (!is_signed && bad == 0) zero = code_of<uint8_t>((float)low, scale, 0);
    if (threadIdx.x == 0) {
        scales[blockIdx.x] = scale;
        zeros[blockIdx.x] = zero;
    }
    for (int64_t i = threadIdx.x; i < COUNT; i += blockDim.x) {
        const int64_t at = first + locate<int64_t, SHARED...>(i).from;
        y[at] = code_of<CODE>((float)get(x[at]), scale, zero);
    }
}

// AXES are those of x, with the strides of the scales.
template <int64_t COUNT, class... AXES, class X, class CODE>
DEVICE void quantize_by(const X *x, const float *scales, const int32_t *zeros, CODE *y)
{
    const int64_t i = thread_number();
    if (i >= COUNT) return;
    const int64_t group = locate<int64_t, AXES...>(i).from;
    y[i] = code_of<CODE>((float)get(x[i]), scales[group], zeros ? zeros[group] : 0);
}
