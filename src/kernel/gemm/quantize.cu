// quantize, quantize_both, quantize_sum: y = x / scale in f8, the scale and the largest magnitude of x, in two grids:
//     1  where the scale is not known: the largest magnitude of each part of x
//     2  y, and the largest magnitude of each block, whichever scale was used; the block that ends last joins them
//     3  of quantize_sum: the sums of columns, from those of the tiles
// Maxima do not depend on their order, so all find the same scale.

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
DEVICE float to_encode(float x, float inverse) { return fn_fma(x, 0.f, x * inverse); }

// ELEMS in parts of PART, of which a block takes one; N divides both.
template <int64_t ELEMS, int64_t PART, int N, class X>
DEVICE void quantize_parts(const X &x, const float *scale, float *parts, uint32_t *ended)
{
    if (thread_number() == 0) *ended = 0;
    if (scale_is_known(known_scale(scale))) return;
    const int64_t first = blockIdx.x * PART, end = first + PART < ELEMS ? first + PART : ELEMS;
    real largest = 0;
#pragma unroll 4
    for (int64_t i = first + (int64_t)threadIdx.x * N; i < end; i += (int64_t)blockDim.x * N) {
        const pack<typename X::item, N> these = x.template at<N>(i);
        for (int k = 0; k < N; k++) largest = fn_max(largest, fn_abs((real)get(these.item[k])));
    }
    largest = block_max(largest);
    if (threadIdx.x == 0) parts[blockIdx.x] = (float)largest;
}

// Magnitudes as bits have their order, and a NaN lies above all.
DEVICE uint32_t larger_bits(uint32_t bits, float x)
{
    const uint32_t magnitude = __float_as_uint(x) & 0x7fffffffu;
    return magnitude > bits ? magnitude : bits;
}

// What a block has found, and from the last one that ends the two numbers. ended: how many have.
struct quantized {
    const float *scale;
    float *found, *used, *amax;
    uint32_t *ended;
};
template <class Q> DEVICE void end_block(const quantized &q, real largest)
{
    __shared__ bool is_last;
    largest = block_max(largest);
    if (threadIdx.x == 0) {
        q.found[blockIdx.x] = (float)largest;
        __threadfence();
        is_last = atomicAdd(q.ended, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    const float amax = largest_of(q.found, gridDim.x), known = known_scale(q.scale);
    if (threadIdx.x != 0) return;
    *q.used = scale_is_known(known) ? known : scale_of_amax<Q>(amax);
    *q.amax = amax;
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
DEVICE void quantize_codes(const X &x, const float *parts, Q *y, const quantized &q)
{
    const int64_t first = blockIdx.x * PART, end = first + PART < ELEMS ? first + PART : ELEMS;
    const float inverse = 1.f / scale_to_use<Q>(q.scale, parts, PARTS);
    real largest = 0;
    for (int64_t i = first + (int64_t)threadIdx.x * N; i < end; i += (int64_t)blockDim.x * N)
        put_pack<N>((uint8_t *)y + i, encode<Q, N>(x.template at<N>(i), inverse, &largest));
    end_block<Q>(q, largest);
}

// Both orders: a block takes a tile of rows and columns, which it turns in shared memory.
enum { TURN_TILE = 128, TURN_THREADS = 256, TURN_PITCH = TURN_TILE + 4 };

// The sums of a tile's columns, from those of SHARES threads each.
template <int SHARES, int64_t COLUMNS> DEVICE void join_columns(const real (*share)[TURN_TILE], double *sums)
{
    constexpr int64_t across = COLUMNS ? (COLUMNS + TURN_TILE - 1) / TURN_TILE : 1;
    const int64_t column = blockIdx.x % across * TURN_TILE + threadIdx.x;
    if (threadIdx.x >= TURN_TILE || column >= COLUMNS) return;
    double sum = 0;
    for (int i = 0; i < SHARES; i++) sum += (double)share[i][threadIdx.x];
    sums[blockIdx.x / across * COLUMNS + column] = sum;
}

// Those of all TILES, WIDTH columns in a block.
template <int64_t COLUMNS, int64_t TILES, int WIDTH> DEVICE void join_tiles(const double *sums, float *y)
{
    const int64_t column = (int64_t)blockIdx.x * WIDTH + threadIdx.x % WIDTH;
    double sum = 0;
    if (column < COLUMNS)
        for (int64_t tile = threadIdx.x / WIDTH; tile < TILES; tile += TURN_THREADS / WIDTH)
            sum += sums[tile * COLUMNS + column];
    sum = column_fold<sum_of, WIDTH, TURN_THREADS>(sum);
    if (threadIdx.x < WIDTH && column < COLUMNS) y[column] = (float)sum;
}

template <bool SUMS, int64_t ROWS, int64_t COLUMNS, int64_t PARTS, class X, class Q>
DEVICE void quantize_turned(const X &x, const float *parts, Q *y, Q *turned, const quantized &q, double *sums)
{
    enum { SHARES = TURN_THREADS / TURN_TILE };
    __shared__ uint8_t tile[TURN_TILE][TURN_PITCH];
    __shared__ real share[SHARES][TURN_TILE];
    constexpr int64_t across = COLUMNS ? (COLUMNS + TURN_TILE - 1) / TURN_TILE : 1;
    const int64_t row = blockIdx.x / across * TURN_TILE, column = blockIdx.x % across * TURN_TILE;
    const float inverse = 1.f / scale_to_use<Q>(q.scale, parts, PARTS);
    real largest = 0, sum = 0;
    for (int i = threadIdx.x; i < TURN_TILE * TURN_TILE; i += TURN_THREADS) { // a thread stays in its column
        const int r = i / TURN_TILE, c = i % TURN_TILE;
        if (row + r >= ROWS || column + c >= COLUMNS) continue;
        const int64_t at = (row + r) * COLUMNS + column + c;
        const pack<typename X::item, 1> one = x.template at<1>(at);
        tile[r][c] = encode<Q, 1>(one, inverse, &largest).item[0];
        y[at].bits = tile[r][c];
        if (SUMS) sum += (real)get(one.item[0]);
    }
    if (SUMS) share[threadIdx.x / TURN_TILE][threadIdx.x % TURN_TILE] = sum;
    __syncthreads();
    if (SUMS) join_columns<SHARES, COLUMNS>(share, sums);
    for (int i = threadIdx.x; i < TURN_TILE * TURN_TILE; i += TURN_THREADS) {
        const int c = i / TURN_TILE, r = i % TURN_TILE;
        if (row + r < ROWS && column + c < COLUMNS) turned[(column + c) * ROWS + row + r].bits = tile[r][c];
    }
    end_block<Q>(q, largest);
}

// Four bytes of a and b, which are bytes 0 to 3 and 4 to 7: one hexadecimal digit of `which` for each.
DEVICE uint32_t bytes_of(uint32_t a, uint32_t b, uint32_t which)
{
#ifdef HT_EMULATED
    const uint64_t both = (uint64_t)b << 32 | a;
    uint32_t y = 0;
    for (int i = 0; i < 4; i++) y |= (uint32_t)(both >> (which >> 4 * i & 7u) * 8 & 0xffu) << 8 * i;
    return y;
#else
    uint32_t y;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(which));
    return y;
#endif
}

// Four rows of four bytes become columns.
DEVICE void turn_bytes(uint32_t *row)
{
    const uint32_t a = bytes_of(row[0], row[1], 0x5140u), b = bytes_of(row[2], row[3], 0x5140u);
    const uint32_t c = bytes_of(row[0], row[1], 0x7362u), d = bytes_of(row[2], row[3], 0x7362u);
    row[0] = bytes_of(a, b, 0x5410u), row[1] = bytes_of(a, b, 0x7632u);
    row[2] = bytes_of(c, d, 0x5410u), row[3] = bytes_of(c, d, 0x7632u);
}

// The same where 8 divides rows and columns and packs are aligned: a thread turns 8 × 8 numbers in registers, and four loads
// are on their way at once: more would leave room for fewer threads. In shared memory a column's groups of 8 rows lie in an order that keeps the 16 threads
// that write, or read, together in different banks.
template <bool SUMS, int64_t ROWS, int64_t COLUMNS, int64_t PARTS, class X, class Q>
DEVICE void quantize_turned_packs(const X &x, const float *parts, Q *y, Q *turned, const quantized &q, double *sums)
{
    enum { N = 8, GROUPS = TURN_TILE / N };
    __shared__ pack<uint32_t, 2> tile[TURN_TILE][GROUPS];
    __shared__ pack<real, N> share[SUMS ? TURN_THREADS / 32 : 1][GROUPS]; // of each warp, which has two rows of threads
    constexpr int64_t across = COLUMNS ? (COLUMNS + TURN_TILE - 1) / TURN_TILE : 1;
    const int64_t row = blockIdx.x / across * TURN_TILE, column = blockIdx.x % across * TURN_TILE;
    const int down = threadIdx.x / GROUPS, right = threadIdx.x % GROUPS;
    const bool inside = row + down * N < ROWS && column + right * N < COLUMNS;
    const int64_t at = (row + down * N) * COLUMNS + column + right * N;
    const float inverse = 1.f / scale_to_use<Q>(q.scale, parts, PARTS);
    uint32_t left_codes[N], right_codes[N], largest = 0;
    pack<real, N> sum = {{0}};
    pack<typename X::item, N> these[N];
#pragma unroll
    for (int r = 0; r < N; r++) {
        if (!inside) break;
        if (r % 4 == 0)
            for (int ahead = r; ahead < r + 4; ahead++) these[ahead] = x.template at<N>(at + ahead * COLUMNS);
        uint32_t pairs[N / 2];
#pragma unroll
        for (int k = 0; k < N; k += 2) {
            const float low = (float)get(these[r].item[k]), high = (float)get(these[r].item[k + 1]);
            largest = larger_bits(largest, low);
            largest = larger_bits(largest, high);
            if (SUMS) sum.item[k] += (real)low, sum.item[k + 1] += (real)high;
            pairs[k / 2] = f8_pair(Q{0}, to_encode(low, inverse), to_encode(high, inverse));
        }
        left_codes[r] = pairs[0] | pairs[1] << 16;
        right_codes[r] = pairs[2] | pairs[3] << 16;
        put_pack<2>((uint32_t *)(y + at + r * COLUMNS), pack<uint32_t, 2>{{left_codes[r], right_codes[r]}});
    }
    if (inside) {
        for (int half = 0; half < N; half += 4) {
            turn_bytes(left_codes + half);
            turn_bytes(right_codes + half);
        }
#pragma unroll
        for (int k = 0; k < 4; k++) {
            tile[right * N + k][down ^ right] = pack<uint32_t, 2>{{left_codes[k], left_codes[4 + k]}};
            tile[right * N + 4 + k][down ^ right] = pack<uint32_t, 2>{{right_codes[k], right_codes[4 + k]}};
        }
    }
    if (SUMS) {
        for (int k = 0; k < N; k++) sum.item[k] += __shfl_xor_sync(0xffffffffu, sum.item[k], GROUPS);
        if (threadIdx.x % 32 < GROUPS) share[threadIdx.x / 32][right] = sum;
    }
    __syncthreads();
    if (SUMS) join_columns<TURN_THREADS / 32, COLUMNS>((const real(*)[TURN_TILE])share, sums);
#pragma unroll
    for (int i = threadIdx.x; i < TURN_TILE * GROUPS; i += TURN_THREADS) {
        const int c = i / GROUPS, group = i % GROUPS;
        if (row + group * N < ROWS && column + c < COLUMNS)
            put_pack<2>((uint32_t *)(turned + (column + c) * ROWS + row + group * N), tile[c][group ^ c / N]);
    }
    end_block<Q>(q, (real)__uint_as_float(largest));
}
