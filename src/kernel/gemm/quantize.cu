// quantize, quantize_both: y = x / scale in f8, the scale and the largest magnitude of x, in three grids:
//     1  where the scale is not known: the largest magnitude of each part of x
//     2  y, and the largest magnitude of each block, whichever scale was used
//     3  the two numbers
// Maxima do not depend on their order, so grids 2 and 3 find the same scale.

DEVICE bool scale_is_known(float scale)
{
    return scale >= __uint_as_float(0x00800000u) && scale <= __uint_as_float(0x7e800000u); // 2^-126 and 2^126
}

// The smallest power of two that brings amax into the range of the type; 1 where amax tells nothing.
template <class Q> DEVICE float scale_of_amax(float amax)
{
    const uint32_t bits = __float_as_uint(amax);
    int exponent = (int)(bits >> 23) - 127 + ((bits & 0x7fffffu) > 0x600000u) - Q::TOP;
    if (!(amax > 0) || !is_finite(amax)) return 1;
    if (exponent < -126) exponent = -126;
    return __uint_as_float((uint32_t)(exponent + 127) << 23);
}

DEVICE float known_scale(const float *scale) { return scale ? *scale : 0.f; }

// The largest of numbers in memory, the same for all threads of the block.
DEVICE float largest_of(const float *parts, int64_t count)
{
    real largest = 0;
    for (int64_t i = threadIdx.x; i < count; i += blockDim.x) largest = fn_max(largest, (real)parts[i]);
    return (float)block_max(largest);
}

template <class Q> DEVICE float scale_to_use(const float *scale, const float *parts, int64_t count)
{
    const float known = known_scale(scale);
    return scale_is_known(known) ? known : scale_of_amax<Q>(largest_of(parts, count));
}

// What is not finite becomes NaN, so that an overflow reaches the update's check.
DEVICE float to_encode(float x, float inverse)
{
    return is_finite(x) ? x * inverse : __uint_as_float(0x7fc00000u);
}

// ELEMS in parts of PART, of which a block takes one; N divides both.
template <int64_t ELEMS, int64_t PART, int N, class X>
DEVICE void quantize_parts(const X *x, const float *scale, float *parts)
{
    if (scale_is_known(known_scale(scale))) return;
    const int64_t first = blockIdx.x * PART, end = first + PART < ELEMS ? first + PART : ELEMS;
    real largest = 0;
#pragma unroll 4
    for (int64_t i = first + (int64_t)threadIdx.x * N; i < end; i += (int64_t)blockDim.x * N) {
        const pack<X, N> these = get_pack<N>(x + i);
        for (int k = 0; k < N; k++) largest = fn_max(largest, fn_abs((real)get(these.item[k])));
    }
    largest = block_max(largest);
    if (threadIdx.x == 0) parts[blockIdx.x] = (float)largest;
}

// N neighbours in f8; `largest` grows.
template <class Q, int N, class X> DEVICE pack<uint8_t, N> encode(const pack<X, N> &x, float inverse, real *largest)
{
    pack<uint8_t, N> codes;
    for (int k = 0; k < N; k += 2) {
        const float low = (float)get(x.item[k]), high = k + 1 < N ? (float)get(x.item[k + 1 < N ? k + 1 : k]) : 0.f;
        const uint32_t pair = f8_pair(Q{0}, to_encode(low, inverse), to_encode(high, inverse));
        *largest = fn_max(*largest, fn_max(fn_abs((real)low), fn_abs((real)high)));
        codes.item[k] = (uint8_t)pair;
        if (k + 1 < N) codes.item[k + 1] = (uint8_t)(pair >> 8);
    }
    return codes;
}

template <int64_t ELEMS, int64_t PART, int64_t PARTS, int N, class X, class Q>
DEVICE void quantize_codes(const X *x, const float *scale, const float *parts, Q *y, float *found)
{
    const int64_t first = blockIdx.x * PART, end = first + PART < ELEMS ? first + PART : ELEMS;
    const float inverse = 1.f / scale_to_use<Q>(scale, parts, PARTS);
    real largest = 0;
    for (int64_t i = first + (int64_t)threadIdx.x * N; i < end; i += (int64_t)blockDim.x * N)
        put_pack<N>((uint8_t *)y + i, encode<Q, N>(get_pack<N>(x + i), inverse, &largest));
    largest = block_max(largest);
    if (threadIdx.x == 0) found[blockIdx.x] = (float)largest;
}

// Both orders: a block takes a tile of rows and columns, which it turns in shared memory. N = 8 neighbours of a row, and of
// a column, at a time; or 1.
enum { TURN_TILE = 128, TURN_THREADS = 256, TURN_PITCH = TURN_TILE + 4 };
template <int64_t ROWS, int64_t COLUMNS, int64_t PARTS, int N, class X, class Q>
DEVICE void quantize_turned(const X *x, const float *scale, const float *parts, Q *y, Q *turned, float *found)
{
    __shared__ uint8_t tile[TURN_TILE][TURN_PITCH];
    constexpr int64_t across = (COLUMNS + TURN_TILE - 1) / TURN_TILE;
    const int64_t row = blockIdx.x / across * TURN_TILE, column = blockIdx.x % across * TURN_TILE;
    const float inverse = 1.f / scale_to_use<Q>(scale, parts, PARTS);
    real largest = 0;
    for (int i = threadIdx.x * N; i < TURN_TILE * TURN_TILE; i += TURN_THREADS * N) {
        const int r = i / TURN_TILE, c = i % TURN_TILE;
        if (row + r >= ROWS || column + c >= COLUMNS) continue;
        const int64_t at = (row + r) * COLUMNS + column + c;
        const pack<uint8_t, N> codes = encode<Q, N>(get_pack<N>(x + at), inverse, &largest);
        put_pack<N>((uint8_t *)y + at, codes);
        for (int k = 0; k < N; k++) tile[r][c + k] = codes.item[k];
    }
    largest = block_max(largest); // a barrier, too
    if (threadIdx.x == 0) found[blockIdx.x] = (float)largest;
    for (int i = threadIdx.x * N; i < TURN_TILE * TURN_TILE; i += TURN_THREADS * N) {
        const int c = i / TURN_TILE, r = i % TURN_TILE;
        if (row + r >= ROWS || column + c >= COLUMNS) continue;
        pack<uint8_t, N> codes;
        for (int k = 0; k < N; k++) codes.item[k] = tile[r + k][c];
        put_pack<N>((uint8_t *)turned + (column + c) * ROWS + row + r, codes);
    }
}

// One block.
template <class Q> DEVICE void quantize_numbers(const float *scale, const float *found, int64_t count, float *used, float *amax)
{
    const float largest = largest_of(found, count), known = known_scale(scale);
    if (threadIdx.x != 0) return;
    *used = scale_is_known(known) ? known : scale_of_amax<Q>(largest);
    *amax = largest;
}
