// attention and attention_grad in f32 by tensor cores; formulas, masks and which block has which tile are those of
// attention.cu.
//
// Products: a = a1 + a2, a1 being a in the 11 bits of tf32 and a2 the rest, and a b = a2 b1 + a1 b2 + a1 b1. What is left
// out is at most 2^-21 of a b, and as often above zero as below. A tile's product begins at zero and is added to the sum
// over tiles in f32: tensor cores cut what they add up, and would cut hundreds of times. An infinite number becomes
// inf and inf - inf: its products are NaN. Masks come behind the products, as do rows that see nothing.
//
// A warp has 16 * M rows of the block's own tile, and streams through tiles of OTHER rows, of which the next is on its way
// while one is in use. Sums of a warp are those of mma.m16n8k8: thread (g, t) = (lane / 4, lane % 4) has, of a square of
// 16 rows and 8 columns, rows g and g + 8 and columns 2t and 2t + 1. The order in which k runs is free as long as both
// sides have the same: so what a thread has of one product is what it gives to the next, and all reads are of 16 bytes.

enum { LINE = 32, LANES = 32, ROWS_OF_16 = 16 }; // floats of a line of all banks; threads of a warp

DEVICE constexpr int line_pitch(int width) { return (width + LINE - 1) / LINE * LINE; }
// What the number of a quad (four floats) is changed by in a row: neither 8 threads that read quads t of two neighbours of
// rows meet in a bank, nor 8 that read two neighbours of quads in rows 2t.
DEVICE constexpr int row_twist(int row) { return (row >> 1 & 3) << 1 ^ (row & 1) << 2; }

// ---- instructions ----

#ifdef HT_EMULATED
template <int BYTES> DEVICE void begin_copy_or_clear(void *to, const void *from, bool inside)
{
    for (int i = 0; i < BYTES; i++) ((char *)to)[i] = inside ? ((const char *)from)[i] : 0;
}
DEVICE float cut_to_tf32(uint32_t bits) { return __uint_as_float(bits & 0xffffe000u); }
// c[16,8] += a[16,8] b[8,8], by the registers of a warp.
DEVICE void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    __shared__ float left[32][16][8], right[32][8][8];
    const int warp = threadIdx.x / LANES, g = threadIdx.x % LANES / 4, t = threadIdx.x % 4;
    for (int i = 0; i < 4; i++) left[warp][g + i % 2 * 8][t + i / 2 * 4] = cut_to_tf32(a[i]);
    for (int i = 0; i < 2; i++) right[warp][t + i * 4][g] = cut_to_tf32(b[i]);
    __syncwarp();
    for (int i = 0; i < 4; i++) {
        double sum = c[i];
        for (int k = 0; k < 8; k++) sum += (double)left[warp][g + i / 2 * 8][k] * right[warp][k][2 * t + i % 2];
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
DEVICE void multiply_add_tf32(float (&c)[4], const uint32_t (&a)[4], const uint32_t (&b)[2])
{
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#endif

// ---- parts ----

// What a thread has of one side of mma.m16n8k8.
template <int COUNT> struct parts {
    uint32_t big[COUNT], rest[COUNT];
    // BIAS 0x1000: the big part is the nearest, half away from zero; 0: it is cut. If one side of a product is cut and
    // the other is not, then what is left out has no sign.
    template <uint32_t BIAS> DEVICE_MEMBER void split(int i, float x)
    {
        big[i] = (__float_as_uint(x) + BIAS) & 0xffffe000u;
        rest[i] = __float_as_uint(x - __uint_as_float(big[i]));
    }
};
struct left_parts : parts<4> {
    DEVICE_MEMBER void set(float a, float below, float next, float next_below)
    {
        split<0x1000>(0, a), split<0x1000>(1, below), split<0x1000>(2, next), split<0x1000>(3, next_below);
    }
};
struct right_parts : parts<2> {
    DEVICE_MEMBER void set(float b, float next) { split<0>(0, b), split<0>(1, next); }
};

// sum[m][j] += left[m] right[j], all products of one kind before those of the next: what waits for each other lies apart.
template <int M, int COUNT, int N>
DEVICE void add_products(float (&sum)[M][N][4], int first, const left_parts (&left)[M], const right_parts (&right)[COUNT])
{
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int j = 0; j < COUNT; j++) multiply_add_tf32(sum[m][first + j], left[m].rest, right[j].big);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int j = 0; j < COUNT; j++) multiply_add_tf32(sum[m][first + j], left[m].big, right[j].rest);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int j = 0; j < COUNT; j++) multiply_add_tf32(sum[m][first + j], left[m].big, right[j].big);
}

// ---- a thread's place ----

DEVICE int lane_row() { return threadIdx.x % LANES / 4; }
DEVICE int lane_column() { return threadIdx.x % 4; }
DEVICE int warp_row(int m) { return (threadIdx.x / LANES) * ROWS_OF_16 * m; }

// ---- tiles: [rows, line_pitch(WIDTH)], quads twisted ----

// `count` rows; zeros behind them, and behind their end. Eight threads copy a line.
template <int TILE, int THREADS, int WIDTH, int PACK, class ROWS>
DEVICE void copy_tile(float *to, const float *from, int64_t count)
{
    constexpr int pitch = line_pitch(WIDTH), quad = LINE / 4, step = THREADS / quad; // a multiple of 8: one twist
    const int own = threadIdx.x / quad, column = threadIdx.x % quad * 4, rows = (int)at_most(count, TILE);
    float *const place = to + own * pitch + (column ^ row_twist(own) * 4);
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

// sum[m][n] = rows 16 m… of `own` · rows 8 n… of `other`: [16 M, PITCH] of the warp and [8 N, PITCH].
template <int M, int N, int PITCH>
DEVICE void multiply_lines(float (&sum)[M][N][4], const float *own, const float *other)
{
    constexpr int group = N % 4 == 0 ? 4 : 2;
    const int twist = row_twist(lane_row()), first = lane_row() * PITCH + (lane_column() ^ (twist & 2)) * 4;
    const int turned = (twist & 4) * 4;
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int n = 0; n < N; n++)
#pragma unroll
            for (int i = 0; i < 4; i++) sum[m][n][i] = 0;
#pragma unroll 1
    for (int line = 0; line < PITCH; line += LINE)
#pragma unroll
        for (int half = 0; half < 2; half++) { // 16 floats: two steps of k
            const int at = first + line + (half ? 16 - turned : turned);
            left_parts left[2][M];
#pragma unroll
            for (int m = 0; m < M; m++) {
                const pack<float, 4> row = get_pack<4>(own + m * 16 * PITCH + at);
                const pack<float, 4> below = get_pack<4>(own + (m * 16 + 8) * PITCH + at);
#pragma unroll
                for (int step = 0; step < 2; step++)
                    left[step][m].set(row.item[2 * step], below.item[2 * step], row.item[2 * step + 1],
                                      below.item[2 * step + 1]);
            }
#pragma unroll
            for (int n = 0; n < N; n += group) {
                right_parts right[2][group];
#pragma unroll
                for (int j = 0; j < group; j++) {
                    const pack<float, 4> row = get_pack<4>(other + (n + j) * 8 * PITCH + at);
#pragma unroll
                    for (int step = 0; step < 2; step++)
                        right[step][j].set(row.item[2 * step], row.item[2 * step + 1]);
                }
#pragma unroll
                for (int step = 0; step < 2; step++) add_products(sum, n, left[step], right[step]);
            }
        }
}

// total[m][c] = total[m][c] keep[m] + the weights of rows 16 m… · rows of x, [8 N, PITCH]. Column 32 h + 8 t + 4 i + j of
// x is number i of square 4 h + j of the thread.
template <int M, int N, int PITCH>
DEVICE void add_weighted_lines(float (&total)[M][PITCH / 8][4], const float (&weight)[M][N][4], const float *x,
                               const float (&keep)[M][2])
{
    const int row = 2 * lane_column(), even = row * PITCH + (lane_row() ^ row_twist(row)) * 4;
    const int odd = (row + 1) * PITCH + (lane_row() ^ row_twist(row + 1)) * 4;
#pragma unroll
    for (int line = 0; line < PITCH; line += LINE) {
        float part[M][4][4] = {};
#pragma unroll
        for (int n = 0; n < N; n++) {
            const pack<float, 4> low = get_pack<4>(x + n * 8 * PITCH + even + line);
            const pack<float, 4> high = get_pack<4>(x + n * 8 * PITCH + odd + line);
            left_parts left[M];
            right_parts right[4];
#pragma unroll
            for (int m = 0; m < M; m++)
                left[m].set(weight[m][n][0], weight[m][n][2], weight[m][n][1], weight[m][n][3]);
#pragma unroll
            for (int j = 0; j < 4; j++) right[j].set(low.item[j], high.item[j]);
            add_products(part, 0, left, right);
        }
#pragma unroll
        for (int m = 0; m < M; m++)
#pragma unroll
            for (int j = 0; j < 4; j++)
#pragma unroll
                for (int i = 0; i < 4; i++)
                    total[m][line / 8 + j][i] = fmaf(total[m][line / 8 + j][i], keep[m][i / 2], part[m][j][i]);
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
            for (int line = 0; line < line_pitch(WIDTH); line += LINE)
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const int column = line + lane_column() * 8 + i * 4;
                    float *place = to + (int64_t)row * WIDTH + column;
                    pack<float, 4> four;
#pragma unroll
                    for (int j = 0; j < 4; j++)
                        four.item[j] = total[m][line / 8 + j][below * 2 + i] * factor[m][below];
                    if (PACK == 4 && column < WIDTH) put_pack<4>(place, four);
                    if (PACK < 4)
#pragma unroll
                        for (int j = 0; j < 4; j++)
                            if (column + j < WIDTH) place[j] = four.item[j];
                }
        }
}

// Over the four threads that share rows.
template <class OF> DEVICE float quad_fold(float x)
{
    x = OF::join(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return OF::join(x, __shfl_xor_sync(0xffffffffu, x, 2));
}

DEVICE constexpr float log2_of_e() { return 1.44269504088896341f; }

template <class SHAPE, class DOCUMENT> DEVICE bool same_document(const mask<SHAPE, DOCUMENT> &seen, int query, int key)
{
    return !seen.document || (query < SHAPE::queries && key < SHAPE::keys &&
                              get_int(seen.document[query]) == get_int(seen.document[key]));
}
// The first key that a query does not see but for documents, nor any behind it: 0 or more, and 0 behind the last query.
template <class SHAPE, class DOCUMENT> DEVICE int end_of_keys(const mask<SHAPE, DOCUMENT> &seen, int query)
{
    return query < SHAPE::queries && seen.end(query) > 0 ? (int)seen.end(query) : 0;
}

// ---- forward ----

// The scores of a row against 8 N keys from `first` on, as powers of two: hidden ones are -inf.
template <class SHAPE, int N, class DOCUMENT>
DEVICE void hide_keys(float (&score)[N][4], int below, const mask<SHAPE, DOCUMENT> &seen, int query, int first)
{
    const int end = end_of_keys(seen, query);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) {
            const int key = first + n * 8 + lane_column() * 2 + i;
            if (!(key < end && same_document(seen, query, key))) score[n][below * 2 + i] = -infinity();
        }
}

// A row's scores become weights; `most` and `total`, of this thread's columns alone, go on; returns what earlier sums
// are multiplied by.
template <int N> DEVICE float weigh_row(float (&score)[N][4], int below, float *most, float *total)
{
    float top = *most, added = 0;
#pragma unroll
    for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(score[n][below * 2], score[n][below * 2 + 1]));
    top = quad_fold<max_of>(top);
    const float base = top == -infinity() ? 0 : top, keep = near_exp2(*most - base);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 2; i++) added += score[n][below * 2 + i] = near_exp2(score[n][below * 2 + i] - base);
    *total = fmaf(*total, keep, added);
    *most = top;
    return keep;
}

template <class SHAPE, int M, int OTHER, int PACK, class Q_ROWS, class K_ROWS, class V_ROWS, class LENGTH, class DOCUMENT>
DEVICE void attend_in_parts(float scale, const float *q, const float *k, const float *v, const LENGTH *lengths,
                            const DOCUMENT *documents, float *y, float *lse)
{
    constexpr int tile = SHAPE::tile, threads = tile / 16 / M * LANES, width = SHAPE::width;
    constexpr int value_width = SHAPE::value_width, pitch = line_pitch(width), value_pitch = line_pitch(value_width);
    constexpr int stage = OTHER * (pitch + value_pitch), N = OTHER / 8;
    SHARED_BYTES(bytes);
    float *q_tile = (float *)bytes, *stages = q_tile + tile * pitch;
    const tile_place at = place_of_tile<SHAPE::heads, SHAPE::query_tiles, tile, true>();
    const int64_t group = at.head / (SHAPE::heads / SHAPE::groups), count = at_most(tile, SHAPE::queries - at.first);
    const int64_t row = (at.sequence * SHAPE::heads + at.head) * SHAPE::queries + at.first;
    const mask<SHAPE, DOCUMENT> seen(lengths, documents, at.sequence);
    const int end = end_of_keys(seen, (int)(at.first + count) - 1), own = (int)at.first + warp_row(M);
    // what the warp's last query sees, and what all of them see
    const int own_end = end_of_keys(seen, own < SHAPE::queries ? (int)at_most(own + 16 * M, SHAPE::queries) - 1 : own);
    const int all_see = seen.document ? 0 : end_of_keys(seen, own);

    float total[M][value_pitch / 8][4], most[M][2], sum[M][2], factor[M][2];
    clear_squares(total);
#pragma unroll
    for (int m = 0; m < M; m++)
        for (int below = 0; below < 2; below++) most[m][below] = -infinity(), sum[m][below] = 0;
    const auto copy_stage = [&](int first, float *to) {
        copy_tile<OTHER, threads, width, PACK, K_ROWS>(to, K_ROWS::find(k, at.sequence, group, first), end - first);
        copy_tile<OTHER, threads, value_width, PACK, V_ROWS>(to + OTHER * pitch,
                                                             V_ROWS::find(v, at.sequence, group, first), end - first);
        end_of_stage();
    };
    if (end > 0) {
        copy_tile<tile, threads, width, PACK, Q_ROWS>(q_tile, Q_ROWS::find(q, at.sequence, at.head, at.first), count);
        copy_stage(0, stages);
    }
    float *here = stages, *next = stages + stage;
#pragma unroll 1
    for (int first = 0; first < end; first += OTHER) {
        await_stage(0);
        __syncthreads();
        if (first + OTHER < end) copy_stage(first + OTHER, next);
        if (first < own_end) {
            float score[M][N][4];
            multiply_lines<M, N, pitch>(score, q_tile + warp_row(M) * pitch, here);
#pragma unroll
            for (int m = 0; m < M; m++) {
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) score[m][n][i] *= scale * log2_of_e();
                if (first + OTHER > all_see)
#pragma unroll
                    for (int below = 0; below < 2; below++)
                        hide_keys<SHAPE>(score[m], below, seen, own + m * 16 + below * 8 + lane_row(), first);
#pragma unroll
                for (int below = 0; below < 2; below++)
                    factor[m][below] = weigh_row(score[m], below, &most[m][below], &sum[m][below]);
            }
            add_weighted_lines<M, N, value_pitch>(total, score, here + OTHER * pitch, factor);
        }
        float *const used = here;
        here = next, next = used;
    }
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int below = 0; below < 2; below++) {
            const float all = quad_fold<sum_of>(sum[m][below]);
            const int query = warp_row(M) + m * 16 + below * 8 + lane_row();
            factor[m][below] = all == 0 ? 0 : 1 / all;
            if (lane_column() == 0 && query < count)
                lse[row + query] = all == 0 ? -infinity() : fmaf(most[m][below], 1 / log2_of_e(), logf(all));
        }
    save_lines<M, value_width, PACK>(y + row * value_width, total, factor, count);
}

// ---- backward ----

// What is taken off a score as a power of two: where the query sees nothing, all of it.
DEVICE float power_of(float lse) { return lse == -infinity() ? infinity() : lse * log2_of_e(); }

// p in place of the score, and ds in place of dp.
DEVICE void weigh_in_parts(bool visible, float scale, float power, float delta, float *score, float *slope)
{
    *score = visible ? near_exp2(fmaf(*score, scale * log2_of_e(), -power)) : 0;
    *slope = *score == 0 ? 0 : *score * (*slope - delta);
}

// A block for each tile of queries: dq.
template <class SHAPE, int M, int OTHER, int PACK, class Q_ROWS, class K_ROWS, class V_ROWS, class DY_ROWS, class LENGTH,
          class DOCUMENT>
DEVICE void query_gradient_in_parts(float scale, const float *q, const float *k, const float *v, const float *dy,
                                    const float *lse, const float *delta, const LENGTH *lengths,
                                    const DOCUMENT *documents, float *dq)
{
    constexpr int tile = SHAPE::tile, threads = tile / 16 / M * LANES, width = SHAPE::width;
    constexpr int value_width = SHAPE::value_width, pitch = line_pitch(width), value_pitch = line_pitch(value_width);
    constexpr int stage = OTHER * (pitch + value_pitch), N = OTHER / 8;
    SHARED_BYTES(bytes);
    float *q_tile = (float *)bytes, *dy_tile = q_tile + tile * pitch, *stages = dy_tile + tile * value_pitch;
    const tile_place at = place_of_tile<SHAPE::heads, SHAPE::query_tiles, tile, true>();
    const int64_t group = at.head / (SHAPE::heads / SHAPE::groups), count = at_most(tile, SHAPE::queries - at.first);
    const int64_t row = (at.sequence * SHAPE::heads + at.head) * SHAPE::queries + at.first;
    const mask<SHAPE, DOCUMENT> seen(lengths, documents, at.sequence);
    const int end = end_of_keys(seen, (int)(at.first + count) - 1), own = (int)at.first + warp_row(M);
    const int own_end = end_of_keys(seen, own < SHAPE::queries ? (int)at_most(own + 16 * M, SHAPE::queries) - 1 : own);

    float total[M][pitch / 8][4], power[M][2], own_delta[M][2], factor[M][2], keep[M][2];
    int visible_end[M][2];
    clear_squares(total);
#pragma unroll
    for (int m = 0; m < M; m++)
#pragma unroll
        for (int below = 0; below < 2; below++) {
            const int query = warp_row(M) + m * 16 + below * 8 + lane_row();
            power[m][below] = query < count ? power_of(lse[row + query]) : infinity();
            own_delta[m][below] = query < count ? delta[row + query] : 0;
            visible_end[m][below] = end_of_keys(seen, (int)at.first + query);
            factor[m][below] = scale, keep[m][below] = 1;
        }
    const auto copy_stage = [&](int first, float *to) {
        copy_tile<OTHER, threads, width, PACK, K_ROWS>(to, K_ROWS::find(k, at.sequence, group, first), end - first);
        copy_tile<OTHER, threads, value_width, PACK, V_ROWS>(to + OTHER * pitch,
                                                             V_ROWS::find(v, at.sequence, group, first), end - first);
        end_of_stage();
    };
    if (end > 0) {
        copy_tile<tile, threads, width, PACK, Q_ROWS>(q_tile, Q_ROWS::find(q, at.sequence, at.head, at.first), count);
        copy_tile<tile, threads, value_width, PACK, DY_ROWS>(dy_tile, DY_ROWS::find(dy, at.sequence, at.head, at.first),
                                                             count);
        copy_stage(0, stages);
    }
    float *here = stages, *next = stages + stage;
#pragma unroll 1
    for (int first = 0; first < end; first += OTHER) {
        await_stage(0);
        __syncthreads();
        if (first + OTHER < end) copy_stage(first + OTHER, next);
        if (first < own_end) {
            float score[M][N][4], slope[M][N][4];
            multiply_lines<M, N, pitch>(score, q_tile + warp_row(M) * pitch, here);
            multiply_lines<M, N, value_pitch>(slope, dy_tile + warp_row(M) * value_pitch, here + OTHER * pitch);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int key = first + n * 8 + lane_column() * 2 + i % 2;
                        const bool visible = key < visible_end[m][i / 2] &&
                                             same_document(seen, own + m * 16 + i / 2 * 8 + lane_row(), key);
                        weigh_in_parts(visible, scale, power[m][i / 2], own_delta[m][i / 2], &score[m][n][i],
                                       &slope[m][n][i]);
                    }
            add_weighted_lines<M, N, pitch>(total, slope, here, keep);
        }
        float *const used = here;
        here = next, next = used;
    }
    save_lines<M, width, PACK>(dq + row * width, total, factor, count);
}

// A block for each tile of keys, over all heads of its group and all queries that see it: dk and dv.
template <class SHAPE, int M, int OTHER, int PACK, class Q_ROWS, class K_ROWS, class V_ROWS, class DY_ROWS, class LENGTH,
          class DOCUMENT>
DEVICE void key_gradient_in_parts(float scale, const float *q, const float *k, const float *v, const float *dy,
                                  const float *lse, const float *delta, const LENGTH *lengths,
                                  const DOCUMENT *documents, float *dk, float *dv)
{
    constexpr int tile = SHAPE::tile, threads = tile / 16 / M * LANES, width = SHAPE::width;
    constexpr int value_width = SHAPE::value_width, pitch = line_pitch(width), value_pitch = line_pitch(value_width);
    constexpr int stage = OTHER * (pitch + value_pitch + 2), N = OTHER / 8; // queries, dy, lse, delta
    constexpr int64_t heads = SHAPE::heads / SHAPE::groups, behind = SHAPE::keys - SHAPE::queries;
    SHARED_BYTES(bytes);
    float *k_tile = (float *)bytes, *v_tile = k_tile + tile * pitch, *stages = v_tile + tile * value_pitch;
    const tile_place at = place_of_tile<SHAPE::groups, SHAPE::key_tiles, tile, false>();
    const mask<SHAPE, DOCUMENT> seen(lengths, documents, at.sequence);
    const int own = (int)at.first + warp_row(M), key = own + lane_row();
    // the first query that sees a key, if documents let it
    const auto begin_of_queries = [&](int key) {
        const int64_t first = SHAPE::causal && key > behind ? key - behind : 0;
        return key < seen.length && first < SHAPE::queries ? (int)first : (int)SHAPE::queries;
    };
    const int begin = begin_of_queries((int)at.first) / OTHER * OTHER, own_begin = begin_of_queries(own);

    float key_total[M][pitch / 8][4], value_total[M][value_pitch / 8][4], factor[M][2], ones[M][2];
    int visible_begin[M][2];
    clear_squares(key_total);
    clear_squares(value_total);
#pragma unroll
    for (int m = 0; m < M; m++)
        for (int below = 0; below < 2; below++) {
            visible_begin[m][below] = begin_of_queries(key + m * 16 + below * 8);
            factor[m][below] = scale, ones[m][below] = 1;
        }
    const auto copy_stage = [&](int64_t head, int first, float *to) {
        const int64_t count = SHAPE::queries - first;
        const int64_t row = (at.sequence * SHAPE::heads + head) * SHAPE::queries + first;
        float *numbers = to + OTHER * (pitch + value_pitch);
        copy_tile<OTHER, threads, width, PACK, Q_ROWS>(to, Q_ROWS::find(q, at.sequence, head, first), count);
        copy_tile<OTHER, threads, value_width, PACK, DY_ROWS>(to + OTHER * pitch,
                                                              DY_ROWS::find(dy, at.sequence, head, first), count);
        for (int i = threadIdx.x; i < 2 * OTHER; i += threads) {
            const float *from = i < OTHER ? lse : delta;
            const bool inside = i % OTHER < count;
            begin_copy_or_clear<4>(numbers + i, inside ? from + row + i % OTHER : from, inside);
        }
        end_of_stage();
    };
    const int64_t last_head = (at.head + 1) * heads;
    int64_t head = begin < SHAPE::queries ? at.head * heads : last_head;
    int first = begin;
    if (head < last_head) {
        const int64_t count = seen.length - at.first;
        copy_tile<tile, threads, width, PACK, K_ROWS>(k_tile, K_ROWS::find(k, at.sequence, at.head, at.first), count);
        copy_tile<tile, threads, value_width, PACK, V_ROWS>(v_tile, V_ROWS::find(v, at.sequence, at.head, at.first),
                                                            count);
        copy_stage(head, first, stages);
    }
    float *here = stages, *next = stages + stage;
#pragma unroll 1
    while (head < last_head) {
        const int now = first;
        await_stage(0);
        __syncthreads();
        first += OTHER;
        if (first >= SHAPE::queries) head++, first = begin;
        if (head < last_head) copy_stage(head, first, next);
        if (now + OTHER > own_begin) {
            float score[M][N][4], slope[M][N][4];
            const float *q_tile = here, *dy_tile = here + OTHER * pitch, *numbers = dy_tile + OTHER * value_pitch;
            multiply_lines<M, N, pitch>(score, k_tile + warp_row(M) * pitch, q_tile);
            multiply_lines<M, N, value_pitch>(slope, v_tile + warp_row(M) * value_pitch, dy_tile);
#pragma unroll
            for (int n = 0; n < N; n++) {
                const int column = n * 8 + lane_column() * 2;
                const pack<float, 2> pair = get_pack<2>(numbers + column), deltas = get_pack<2>(numbers + OTHER + column);
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    const float power = power_of(pair.item[i]);
#pragma unroll
                    for (int m = 0; m < M; m++)
#pragma unroll
                        for (int below = 0; below < 2; below++) {
                            const bool visible = now + column + i >= visible_begin[m][below] &&
                                                 same_document(seen, now + column + i, key + m * 16 + below * 8);
                            weigh_in_parts(visible, scale, power, deltas.item[i], &score[m][n][below * 2 + i],
                                           &slope[m][n][below * 2 + i]);
                        }
                }
            }
            add_weighted_lines<M, N, value_pitch>(value_total, score, dy_tile, ones);
            add_weighted_lines<M, N, pitch>(key_total, slope, q_tile, ones);
        }
        float *const used = here;
        here = next, next = used;
    }
    const int64_t row = (at.sequence * SHAPE::groups + at.head) * SHAPE::keys + at.first;
    const int64_t count = at_most(tile, SHAPE::keys - at.first);
    save_lines<M, width, PACK>(dk + row * width, key_total, factor, count);
    save_lines<M, value_width, PACK>(dv + row * value_width, value_total, ones, count);
}
