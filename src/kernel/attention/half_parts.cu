// Products of f32 rows by tensor cores, as parts of half: tiles of rows in shared memory, and what a warp does with them.
//
// A row of an operand is 2^s times numbers below 2^15, and each of them is the sum of two halves (f16): a = 2^s
// (a1 + a2), a1 being the nearest and a2 the nearest to what is left. a b is a2 b1 + a1 b2 + a1 b1, which leaves out
// 2^-24 of a b at most, as often above zero as below; what is 2^-38 of the row's largest number is lost. A tile's product
// begins at zero and is added to the sum over tiles in f32: tensor cores cut what they add up, and would cut hundreds of
// times. An infinite number is inf and inf - inf: its products are NaN.
//
// Who copies floats into shared memory puts their halves in the place, a1 of a line and then a2; the scales 2^s lie behind
// the tiles. Sums of a warp are those of mma.m16n8k16: thread (g, t) = (lane / 4, lane % 4) has, of a square of 16 rows
// and 8 columns, rows g and g + 8 and columns 2t and 2t + 1, which is also what it gives to the next product.

enum { LINE = 32, LANES = 32, ROWS_OF_16 = 16 }; // floats of a line of all banks; threads of a warp

DEVICE constexpr int line_pitch(int width) { return (width + LINE - 1) / LINE * LINE; }
// Where a quad of a line lies, in floats: eight rows of it, and eight quads of a row, meet in no bank.
DEVICE constexpr int quad_place(int row, int quad) { return (quad ^ (row & 7)) * 4; }

// ---- instructions ----

#ifdef HT_EMULATED
template <int BYTES> DEVICE void begin_copy_or_clear(void *to, const void *from, bool inside)
{
    for (int i = 0; i < BYTES; i++) ((char *)to)[i] = inside ? ((const char *)from)[i] : 0;
}
DEVICE uint32_t pair_of_halves(float low, float high) { return f16_bits(low) | (uint32_t)f16_bits(high) << 16; }
// Four squares of 8 by 8 halves; lane 8 i + r has the address of row r of square i. Thread (g, t) gets halves 2t and 2t +
// 1 of row g, or of column g.
template <bool BY_COLUMNS> DEVICE void load_squares(uint32_t (&to)[4], const float *row)
{
    const int g = threadIdx.x % LANES / 4, t = threadIdx.x % 4;
    for (int i = 0; i < 4; i++) {
        const uint16_t *first = (const uint16_t *)__shfl_sync(0xffffffffu, row, i * 8 + (BY_COLUMNS ? 2 * t : g));
        const uint16_t *next = (const uint16_t *)__shfl_sync(0xffffffffu, row, i * 8 + 2 * t + 1);
        to[i] = BY_COLUMNS ? first[g] | (uint32_t)next[g] << 16 : first[2 * t] | (uint32_t)first[2 * t + 1] << 16;
    }
}
// c[16,8] += a[16,16] b[16,8], by the registers of a warp.
DEVICE void multiply_add_halves(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    __shared__ uint32_t left[32][16][8], right[32][8][8]; // pairs along k
    const int warp = threadIdx.x / LANES, g = threadIdx.x % LANES / 4, t = threadIdx.x % 4;
    for (int i = 0; i < 4; i++) left[warp][g + i % 2 * 8][t + i / 2 * 4] = a[i];
    for (int i = 0; i < 2; i++) right[warp][t + i * 4][g] = b[i];
    __syncwarp();
    for (int i = 0; i < 4; i++) {
        double sum = c[i];
        for (int k = 0; k < 16; k++) {
            const f16 x = {(uint16_t)(left[warp][g + i / 2 * 8][k / 2] >> k % 2 * 16)};
            const f16 y = {(uint16_t)(right[warp][k / 2][2 * t + i % 2] >> k % 2 * 16)};
            sum += (double)get(x) * get(y);
        }
        c[i] = (float)sum;
    }
    __syncwarp();
}
#else
template <int BYTES> DEVICE void begin_copy_or_clear(void *to, const void *from, bool inside)
{
    const uint32_t place = (uint32_t)__cvta_generic_to_shared(to);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(inside ? 16 : 0)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(from), "n"(BYTES),
                     "r"(inside ? BYTES : 0)
                     : "memory");
}
DEVICE uint32_t pair_of_halves(float low, float high)
{
    uint32_t pair;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
    return pair;
}
template <bool BY_COLUMNS> DEVICE void load_squares(uint32_t (&to)[4], const float *row)
{
    const uint32_t place = (uint32_t)__cvta_generic_to_shared(row);
    if (BY_COLUMNS)
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(place));
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(place));
}
DEVICE void multiply_add_halves(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// ---- parts ----

DEVICE float low_half(uint32_t pair) { return get(f16{(uint16_t)pair}); }
DEVICE float high_half(uint32_t pair) { return get(f16{(uint16_t)(pair >> 16)}); }

// Two numbers as pairs of halves.
DEVICE void split_pair(float low, float high, uint32_t *big, uint32_t *rest)
{
    *big = pair_of_halves(low, high);
    *rest = pair_of_halves(low - low_half(*big), high - high_half(*big));
}

// What brings numbers up to `most` between 2^14 and 2^15, and back: powers of two. Numbers below 2^-112 stay smaller.
struct row_scale {
    float down, up;
    DEVICE_MEMBER row_scale(float most)
    {
        const uint32_t bits = __float_as_uint(most) & 0x7f800000u, exponent = bits < 15u << 23 ? 15u << 23 : bits;
        down = __uint_as_float((268u << 23) - exponent);
        up = __uint_as_float(exponent - (14u << 23));
    }
};

// What a thread has of one side of mma.m16n8k16.
template <int COUNT> struct parts {
    uint32_t big[COUNT], rest[COUNT];
};
typedef parts<4> left_parts;
struct right_parts : parts<2> {
    DEVICE_MEMBER void set(const uint32_t (&words)[4])
    {
        big[0] = words[0], big[1] = words[1], rest[0] = words[2], rest[1] = words[3];
    }
};

// sum[m][j] += left[m] right[j], all products of one kind before those of the next: what waits for each other lies apart.
template <int M, int N>
DEVICE void add_products(float (&sum)[M][N][4], const left_parts (&left)[M], const right_parts (&right)[N])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int j = 0; j < N; j++) multiply_add_halves(sum[m][j], left[m].rest, right[j].big);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int j = 0; j < N; j++) multiply_add_halves(sum[m][j], left[m].big, right[j].rest);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int j = 0; j < N; j++) multiply_add_halves(sum[m][j], left[m].big, right[j].big);
}

// ---- a thread's place ----

DEVICE int lane_row() { return threadIdx.x % LANES / 4; }
DEVICE int lane_column() { return threadIdx.x % 4; }
DEVICE int warp_row(int m) { return (threadIdx.x / LANES) * ROWS_OF_16 * m; }

// ---- tiles: [rows, line_pitch(WIDTH)] ----

// `count` rows; zeros behind them, and behind their end. Eight threads copy a line.
template <int TILE, int THREADS, int WIDTH, int PACK, class ROWS>
DEVICE void copy_tile(float *to, const float *from, int64_t count)
{
    constexpr int pitch = line_pitch(WIDTH), quad = LINE / 4, step = THREADS / quad; // a multiple of 8
    const int own = threadIdx.x / quad, column = threadIdx.x % quad * 4, rows = (int)at_most(count, TILE);
    float *const place = to + own * pitch + quad_place(own, threadIdx.x % quad);
    from += own * ROWS::row + column;
#pragma unroll
    for (int row = 0; row < TILE; row += step)
#pragma unroll
        for (int line = 0; line < pitch; line += LINE)
#pragma unroll
            for (int i = 0; i < 4; i += PACK) {
                const bool inside = row + own < rows && line + column + i < WIDTH;
                if (TILE % step == 0 || row + own < TILE)
                    begin_copy_or_clear<PACK * 4>(place + row * pitch + line + i, from + row * ROWS::row + line + i, inside);
            }
}

template <int M, int N> DEVICE void clear_squares(float (&sum)[M][N][4])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[m][n][i] = 0;
}

// What the thread has copied there becomes halves; the rows' scales.
template <int TILE, int THREADS, int WIDTH> DEVICE void split_tile(float *tile, float *scales)
{
    constexpr int pitch = line_pitch(WIDTH), quad = LINE / 4, step = THREADS / quad;
    const int own = threadIdx.x / quad, number = threadIdx.x % quad;
    float *const place = tile + own * pitch;
    uint32_t *const big = (uint32_t *)place + quad_place(own, number / 2) + number % 2 * 2;
    uint32_t *const rest = (uint32_t *)place + quad_place(own, number / 2 + 4) + number % 2 * 2;
#pragma unroll
    for (int row = 0; row < TILE; row += step) {
        if (TILE % step && row + own >= TILE) continue; // whole warps
        pack<float, 4> x[pitch / LINE];
        float most = 0;
#pragma unroll
        for (int line = 0; line < pitch / LINE; line++) {
            x[line] = get_pack<4>(place + row * pitch + line * LINE + quad_place(own, number));
#pragma unroll
            for (int i = 0; i < 4; i++) most = fmaxf(most, fabsf(x[line].item[i]));
        }
#pragma unroll
        for (int other = 1; other < quad; other *= 2) most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, other));
        const row_scale scale(most);
        __syncwarp(); // the row's threads have read
#pragma unroll
        for (int line = 0; line < pitch / LINE; line++) {
            pack<uint32_t, 2> halves[2];
#pragma unroll
            for (int i = 0; i < 2; i++)
                split_pair(x[line].item[2 * i] * scale.down, x[line].item[2 * i + 1] * scale.down, &halves[0].item[i],
                           &halves[1].item[i]);
            put_pack<2>(big + row * pitch + line * LINE, halves[0]);
            put_pack<2>(rest + row * pitch + line * LINE, halves[1]);
        }
        if (number == 0) scales[row + own] = scale.up;
    }
}

// sum[m][n] = rows 16 m… of `own` · rows 8 n… of `other`, without their scales: [16 M, PITCH] of the warp and [8 N,
// PITCH].
template <int M, int N, int PITCH>
DEVICE void multiply_lines(float (&sum)[M][N][4], const float *own, const float *other)
{
    const int row = threadIdx.x % 8, square = threadIdx.x % LANES / 8;
    const int left_place = (square % 2 * 8 + row) * PITCH + quad_place(row, square / 2);
    const int right_place = row * PITCH + quad_place(row, square / 2 * 4 + square % 2);
    clear_squares(sum);
#pragma unroll
    for (int line = 0; line < PITCH; line += LINE)
#pragma unroll
        for (int k = 0; k < 2; k++) { // 16 of a line: quads 2k and 2k + 1, and those of the rests
            left_parts left[M];
            right_parts right[N];
#pragma unroll
            for (int m = 0; m < M; m++) {
                load_squares<false>(left[m].big, own + m * 16 * PITCH + line + (left_place ^ k * 8));
                load_squares<false>(left[m].rest, own + m * 16 * PITCH + line + (left_place ^ k * 8 ^ 16));
            }
#pragma unroll
            for (int n = 0; n < N; n++) {
                uint32_t words[4];
                load_squares<false>(words, other + n * 8 * PITCH + line + (right_place ^ k * 8));
                right[n].set(words);
            }
            add_products(sum, left, right);
        }
}

// Over the four threads that share rows.
template <class OF> DEVICE float quad_fold(float x)
{
    x = OF::join(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return OF::join(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

// Times the scales of their columns.
template <int M, int N> DEVICE void scale_columns(float (&number)[M][N][4], const float *scales, float sign)
{
#pragma unroll
    for (int n = 0; n < N; n++) {
        const pack<float, 2> scale = get_pack<2>(scales + n * 8 + lane_column() * 2);
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int m = 0; m < M; m++) number[m][n][i] *= scale.item[i % 2] * sign;
    }
}

// total[m][c] = total[m][c] keep[m] + the weights of rows 16 m… · columns 8 c… of x, [8 N, PITCH], with their scales.
// Weights times scales have a scale of their own, so that what is hidden takes no digits from what is seen.
template <int M, int N, int PITCH>
DEVICE void add_weighted_lines(float (&total)[M][PITCH / 8][4], float (&weight)[M][N][4], const float *x,
                               const float *scales, const float (&keep)[M][2])
{
    left_parts left[N / 2][M];
    float up[M][2];
    scale_columns(weight, scales, 1);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int below = 0; below < 2; below++) {
            float most = 0;
#pragma unroll
            for (int n = 0; n < N; n++)
                most = fmaxf(most, fmaxf(fabsf(weight[m][n][2 * below]), fabsf(weight[m][n][2 * below + 1])));
            const row_scale own(quad_fold<max_of>(most));
            up[m][below] = own.up;
#pragma unroll
            for (int n = 0; n < N; n++)
                split_pair(weight[m][n][2 * below] * own.down, weight[m][n][2 * below + 1] * own.down,
                           &left[n / 2][m].big[n % 2 * 2 + below], &left[n / 2][m].rest[n % 2 * 2 + below]);
        }
    const int row = threadIdx.x % 8, square = threadIdx.x % LANES / 8;
    const int place = (square % 2 * 8 + row) * PITCH + quad_place(row, square / 2 * 4);
#pragma unroll
    for (int line = 0; line < PITCH; line += LINE) {
        float part[M][4][4];
        clear_squares(part);
#pragma unroll
        for (int n = 0; n < N; n += 2) {
            right_parts right[4];
#pragma unroll
            for (int j = 0; j < 4; j++) {
                uint32_t words[4];
                load_squares<true>(words, x + n * 8 * PITCH + line + (place ^ j * 4));
                right[j].set(words);
            }
            add_products(part, left[n / 2], right);
        }
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    total[m][line / 8 + j][i] =
                        fmaf(part[m][j][i], up[m][i / 2], total[m][line / 8 + j][i] * keep[m][i / 2]);
    }
}

// What add_weighted_lines has summed, times a factor for each row, to the block's tile of `count` rows.
template <int M, int WIDTH, int PACK>
DEVICE void save_lines(float *to, const float (&total)[M][line_pitch(WIDTH) / 8][4], const float (&factor)[M][2],
                       int64_t count)
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int below = 0; below < 2; below++) {
            const int row = warp_row(M) + m * 16 + below * 8 + lane_row();
            if (row >= count) continue;
#pragma unroll
            for (int c = 0; c < line_pitch(WIDTH) / 8; c++) {
                const int column = c * 8 + lane_column() * 2;
                float *place = to + (int64_t)row * WIDTH + column;
                pack<float, 2> two;
#pragma unroll
                for (int i = 0; i < 2; i++) two.item[i] = total[m][c][below * 2 + i] * factor[m][below];
                if (PACK > 1 && column < WIDTH) put_pack<2>(place, two);
                if (PACK == 1 && column < WIDTH) place[0] = two.item[0];
                if (PACK == 1 && column + 1 < WIDTH) place[1] = two.item[1];
            }
        }
}
