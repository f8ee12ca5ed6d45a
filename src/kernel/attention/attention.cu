// attention: s = scale q k', hidden keys -inf; y = softmax(s) v; lse = log sum exp s.
// attention_grad: p = exp(s - lse), ds = p (dy v' - delta), delta = sum dy y; dv = p' dy, dk = scale ds' q,
// dq = scale ds k.
// Tiles of TILE queries and TILE keys lie in shared memory as real. 256 threads stand 16 × 16: thread (own, lane) has
// SHARE rows of the block's side, from own * SHARE on, and every 16th row, or four columns, of the other, from `lane` on.
// Shared memory is read in quads, which it takes for products to wait for arithmetic only. Keys come in ascending tiles
// with a running maximum (online softmax); all sums have one order.

enum { ATTENTION_THREADS = 256, SIDE = 16 };

DEVICE int own_row() { return threadIdx.x / SIDE; }
DEVICE int lane_of_16() { return threadIdx.x % SIDE; }

// Sizes, and what follows from them.
template <int64_t HEADS, int64_t GROUPS, int64_t QUERIES, int64_t KEYS, int WIDTH, int VALUE_WIDTH, int TILE,
          bool CAUSAL>
struct attention_shape {
    static constexpr int64_t heads = HEADS, groups = GROUPS, queries = QUERIES, keys = KEYS;
    static constexpr int64_t query_tiles = (QUERIES + TILE - 1) / TILE, key_tiles = (KEYS + TILE - 1) / TILE;
    static constexpr int width = WIDTH, value_width = VALUE_WIDTH, tile = TILE, share = TILE / SIDE;
    static constexpr bool causal = CAUSAL;
};

// Strides of a tensor [sequence, head, row, :] whose rows have no gaps.
template <int64_t SEQUENCE, int64_t HEAD, int64_t ROW> struct rows_at {
    static constexpr int64_t row = ROW;
    template <class T> static DEVICE_MEMBER const T *find(const T *first, int64_t sequence, int64_t head, int64_t at)
    {
        return first + sequence * SEQUENCE + head * HEAD + at * ROW;
    }
};

// ---- tiles ----

DEVICE constexpr int quads_of(int width) { return (width + 3) / 4; }
// An odd number of quads, so that neighbouring rows lie in different banks.
DEVICE constexpr int pitch_of(int width) { return (quads_of(width) | 1) * 4; }
// How many columns of a tile a thread sums, and which is number c.
DEVICE constexpr int columns_of(int width) { return width > 0 ? (quads_of(width) + SIDE - 1) / SIDE * 4 : 4; }
DEVICE int column_of(int c) { return (c / 4 * SIDE + lane_of_16()) * 4 + c % 4; }

// `count` rows; zeros behind them, and in what is left of a row's last quad.
template <int TILE, int WIDTH, class ROWS, class T> DEVICE void load_tile(real *to, const T *from, int64_t count)
{
    constexpr int width = WIDTH > 0 ? quads_of(WIDTH) * 4 : 1;
    for (int i = threadIdx.x; i < TILE * width; i += ATTENTION_THREADS) {
        const int row = i / width, column = i % width;
        const bool inside = row < count && column < WIDTH;
        to[row * pitch_of(WIDTH) + column] = inside ? (real)get(from[row * ROWS::row + column]) : (real)0;
    }
}

// product[r][j] = a[own row r] · b[row lane + 16 j].
template <int SHARE, int WIDTH> DEVICE void multiply_rows(real (&product)[SHARE][SHARE], const real *a, const real *b)
{
    a += own_row() * SHARE * pitch_of(WIDTH);
    b += lane_of_16() * pitch_of(WIDTH);
#pragma unroll
    for (int r = 0; r < SHARE; r++)
        for (int j = 0; j < SHARE; j++) product[r][j] = 0;
    for (int d = 0; d < WIDTH; d += 4) {
        pack<real, 4> left[SHARE], right[SHARE];
#pragma unroll
        for (int r = 0; r < SHARE; r++) {
            left[r] = get_pack<4>(a + r * pitch_of(WIDTH) + d);
            right[r] = get_pack<4>(b + r * SIDE * pitch_of(WIDTH) + d);
        }
#pragma unroll
        for (int e = 0; e < 4; e++)
            for (int r = 0; r < SHARE; r++)
                for (int j = 0; j < SHARE; j++)
                    product[r][j] = fn_fma(left[r].item[e], right[j].item[e], product[r][j]);
    }
}

// sum[r][c] += sum over k of weight[own row r][k] x[k][column c].
template <int SHARE, int WIDTH>
DEVICE void add_weighted(real (&sum)[SHARE][columns_of(WIDTH)], const real *weight, const real *x)
{
    constexpr int tile = SHARE * SIDE;
    weight += own_row() * SHARE * pitch_of(tile);
    for (int k = 0; k < tile; k += 4) {
        pack<real, 4> left[SHARE];
#pragma unroll
        for (int r = 0; r < SHARE; r++) left[r] = get_pack<4>(weight + r * pitch_of(tile) + k);
#pragma unroll
        for (int e = 0; e < 4; e++)
            for (int c = 0; c < columns_of(WIDTH); c += 4) {
                if (column_of(c) >= WIDTH) continue;
                const pack<real, 4> right = get_pack<4>(x + (k + e) * pitch_of(WIDTH) + column_of(c));
                for (int r = 0; r < SHARE; r++)
                    for (int i = 0; i < 4; i++) sum[r][c + i] = fn_fma(left[r].item[e], right.item[i], sum[r][c + i]);
            }
    }
}

template <int SHARE> DEVICE void store_weights(real *weight, const real (&from)[SHARE][SHARE])
{
    constexpr int pitch = pitch_of(SHARE * SIDE);
    __syncwarp(); // the rows of a thread are read by the 16 threads beside it alone
#pragma unroll
    for (int r = 0; r < SHARE; r++)
        for (int j = 0; j < SHARE; j++) weight[(own_row() * SHARE + r) * pitch + lane_of_16() + j * SIDE] = from[r][j];
    __syncwarp();
}

template <int SHARE, int WIDTH> DEVICE void clear(real (&sum)[SHARE][columns_of(WIDTH)])
{
#pragma unroll
    for (int r = 0; r < SHARE; r++)
        for (int c = 0; c < columns_of(WIDTH); c++) sum[r][c] = 0;
}

// The thread's rows of a tile of `count` rows, times `factor[r]`; `to` is row-major.
template <int SHARE, int WIDTH, class T>
DEVICE void save_tile(T *to, const real (&sum)[SHARE][columns_of(WIDTH)], const real (&factor)[SHARE], int64_t count)
{
#pragma unroll
    for (int r = 0; r < SHARE; r++)
        for (int c = 0; c < columns_of(WIDTH); c++) {
            const int row = own_row() * SHARE + r, column = column_of(c);
            if (row < count && column < WIDTH) put(&to[(int64_t)row * WIDTH + column], sum[r][c] * factor[r]);
        }
}

// Over the 16 threads that share rows.
template <class OF> DEVICE real side_fold(real x)
{
    for (int half = SIDE / 2; half > 0; half /= 2) x = OF::join(x, __shfl_xor_sync(0xffffffffu, x, half));
    return x;
}

// ---- who sees whom ----

template <class SHAPE, class DOCUMENT> struct mask {
    int64_t length;           // keys of the sequence that are seen at all
    const DOCUMENT *document; // of the sequence; null: there are none

    template <class LENGTH> DEVICE_MEMBER mask(const LENGTH *lengths, const DOCUMENT *documents, int64_t sequence)
    {
        length = lengths ? get_int(lengths[sequence]) : SHAPE::keys;
        length = length < 0 ? 0 : length > SHAPE::keys ? SHAPE::keys : length;
        document = documents ? documents + sequence * SHAPE::keys : nullptr;
    }
    // The first key that a query does not see, nor any behind it; may be negative.
    DEVICE_MEMBER int64_t end(int64_t query) const
    {
        const int64_t causal_end = query + SHAPE::keys - SHAPE::queries + 1;
        return SHAPE::causal && causal_end < length ? causal_end : length;
    }
    DEVICE_MEMBER bool sees(int64_t query, int64_t key) const
    {
        return query < SHAPE::queries && key < end(query) &&
               (!document || get_int(document[query]) == get_int(document[key]));
    }
};

DEVICE int64_t at_most(int64_t x, int64_t most) { return x < most ? x : most; }

// Which tile a block has. With causality the last tiles of queries, and the first of keys, have the most work: these
// blocks begin.
struct tile_place {
    int64_t sequence, head, first;
};
template <int64_t HEADS, int64_t TILES, int TILE, bool LAST_FIRST> DEVICE tile_place place_of_tile()
{
    const int64_t all = gridDim.x / TILES, head = blockIdx.x % all, tile = blockIdx.x / all;
    return tile_place{head / HEADS, head % HEADS, (LAST_FIRST ? TILES - 1 - tile : tile) * TILE};
}

// ---- forward ----

template <class SHAPE, class Q_ROWS, class K_ROWS, class V_ROWS, class Q, class K, class V, class LENGTH,
          class DOCUMENT, class Y, class L>
DEVICE void attend(real scale, const Q *q, const K *k, const V *v, const LENGTH *lengths, const DOCUMENT *documents,
                   Y *y, L *lse)
{
    constexpr int tile = SHAPE::tile, share = SHAPE::share, width = SHAPE::width, value_width = SHAPE::value_width;
    SHARED_BYTES(bytes);
    real *q_tile = (real *)bytes, *k_tile = q_tile + tile * pitch_of(width), *v_tile = k_tile + tile * pitch_of(width);
    real *weights = v_tile + tile * pitch_of(value_width);
    const tile_place at = place_of_tile<SHAPE::heads, SHAPE::query_tiles, tile, true>();
    const int64_t group = at.head / (SHAPE::heads / SHAPE::groups), count = at_most(tile, SHAPE::queries - at.first);
    const int64_t row = (at.sequence * SHAPE::heads + at.head) * SHAPE::queries + at.first;
    const mask<SHAPE, DOCUMENT> seen(lengths, documents, at.sequence);
    const int64_t end = seen.end(at.first + count - 1);

    real sum[share][columns_of(value_width)], most[share], total[share];
    clear<share, value_width>(sum);
    for (int r = 0; r < share; r++) most[r] = -infinity(), total[r] = 0;
    load_tile<tile, width, Q_ROWS>(q_tile, Q_ROWS::find(q, at.sequence, at.head, at.first), count);
    for (int64_t first = 0; first < end; first += tile) {
        __syncthreads();
        load_tile<tile, width, K_ROWS>(k_tile, K_ROWS::find(k, at.sequence, group, first), end - first);
        load_tile<tile, value_width, V_ROWS>(v_tile, V_ROWS::find(v, at.sequence, group, first), end - first);
        __syncthreads();
        real score[share][share];
        multiply_rows<share, width>(score, q_tile, k_tile);
#pragma unroll
        for (int r = 0; r < share; r++) {
            const int64_t query = at.first + own_row() * share + r;
            real top = most[r], added = 0;
            for (int j = 0; j < share; j++) {
                const bool visible = seen.sees(query, first + lane_of_16() + j * SIDE);
                score[r][j] = visible ? score[r][j] * scale : -infinity();
                top = fn_max(top, score[r][j]);
            }
            top = side_fold<max_of>(top);
            const real base = top == -infinity() ? (real)0 : top, keep = fn_exp(most[r] - base);
            for (int j = 0; j < share; j++) added += score[r][j] = fn_exp(score[r][j] - base);
            for (int c = 0; c < columns_of(value_width); c++) sum[r][c] *= keep;
            total[r] = total[r] * keep + added;
            most[r] = top;
        }
        store_weights<share>(weights, score);
        add_weighted<share, value_width>(sum, weights, v_tile);
    }
    real factor[share];
    for (int r = 0; r < share; r++) {
        const real all = side_fold<sum_of>(total[r]);
        const bool any = most[r] != -infinity();
        factor[r] = any ? 1 / all : (real)0;
        if (lane_of_16() == 0 && own_row() * share + r < count)
            put(&lse[row + own_row() * share + r], any ? most[r] + fn_log(all) : most[r]);
    }
    save_tile<share, value_width>(y + row * value_width, sum, factor, count);
}

// ---- backward ----

// A warp for each of ROWS rows: delta = sum dy y.
template <class SHAPE, int64_t ROWS, class Y_ROWS, class DY_ROWS, class Y, class DY>
DEVICE void sum_delta(const Y *y, const DY *dy, real *delta)
{
    const int64_t row = thread_number() / 32, query = row % SHAPE::queries, head = row / SHAPE::queries;
    if (row >= ROWS) return;
    const Y *left = Y_ROWS::find(y, head / SHAPE::heads, head % SHAPE::heads, query);
    const DY *right = DY_ROWS::find(dy, head / SHAPE::heads, head % SHAPE::heads, query);
    real sum = 0;
    for (int d = threadIdx.x % 32; d < SHAPE::value_width; d += 32) sum += (real)get(left[d]) * (real)get(right[d]);
    sum = warp_fold<sum_of>(sum);
    if (threadIdx.x % 32 == 0) delta[row] = sum;
}

// p, and ds in place of dp, of a pair with the score s; both 0 where the query sees nothing of the key.
DEVICE void weigh(bool visible, real s, real lse, real delta, real *p, real *slope)
{
    const bool counts = visible && lse != -infinity();
    *p = counts ? fn_exp(s - lse) : (real)0;
    *slope = counts ? *p * (*slope - delta) : (real)0;
}

// A block for each tile of queries: dq.
template <class SHAPE, class Q_ROWS, class K_ROWS, class V_ROWS, class DY_ROWS, class Q, class K, class V, class DY,
          class L, class LENGTH, class DOCUMENT, class DQ>
DEVICE void query_gradient(real scale, const Q *q, const K *k, const V *v, const DY *dy, const L *lse,
                           const real *delta, const LENGTH *lengths, const DOCUMENT *documents, DQ *dq)
{
    constexpr int tile = SHAPE::tile, share = SHAPE::share, width = SHAPE::width, value_width = SHAPE::value_width;
    SHARED_BYTES(bytes);
    real *q_tile = (real *)bytes, *k_tile = q_tile + tile * pitch_of(width), *v_tile = k_tile + tile * pitch_of(width);
    real *dy_tile = v_tile + tile * pitch_of(value_width), *weights = dy_tile + tile * pitch_of(value_width);
    const tile_place at = place_of_tile<SHAPE::heads, SHAPE::query_tiles, tile, true>();
    const int64_t group = at.head / (SHAPE::heads / SHAPE::groups), count = at_most(tile, SHAPE::queries - at.first);
    const int64_t row = (at.sequence * SHAPE::heads + at.head) * SHAPE::queries + at.first;
    const mask<SHAPE, DOCUMENT> seen(lengths, documents, at.sequence);
    const int64_t end = seen.end(at.first + count - 1);

    real sum[share][columns_of(width)], own_lse[share], own_delta[share], factor[share];
    clear<share, width>(sum);
    for (int r = 0; r < share; r++) {
        const int own = own_row() * share + r;
        own_lse[r] = own < count ? (real)get(lse[row + own]) : (real)0;
        own_delta[r] = own < count ? delta[row + own] : (real)0;
        factor[r] = scale;
    }
    load_tile<tile, width, Q_ROWS>(q_tile, Q_ROWS::find(q, at.sequence, at.head, at.first), count);
    load_tile<tile, value_width, DY_ROWS>(dy_tile, DY_ROWS::find(dy, at.sequence, at.head, at.first), count);
    for (int64_t first = 0; first < end; first += tile) {
        __syncthreads();
        load_tile<tile, width, K_ROWS>(k_tile, K_ROWS::find(k, at.sequence, group, first), end - first);
        load_tile<tile, value_width, V_ROWS>(v_tile, V_ROWS::find(v, at.sequence, group, first), end - first);
        __syncthreads();
        real score[share][share], slope[share][share];
        multiply_rows<share, width>(score, q_tile, k_tile);
        multiply_rows<share, value_width>(slope, dy_tile, v_tile);
#pragma unroll
        for (int r = 0; r < share; r++)
            for (int j = 0; j < share; j++) {
                const bool visible = seen.sees(at.first + own_row() * share + r, first + lane_of_16() + j * SIDE);
                weigh(visible, score[r][j] * scale, own_lse[r], own_delta[r], &score[r][j], &slope[r][j]);
            }
        store_weights<share>(weights, slope);
        add_weighted<share, width>(sum, weights, k_tile);
    }
    save_tile<share, width>(dq + row * width, sum, factor, count);
}

// A block for each tile of keys, over all heads of its group and all queries that see it: dk and dv.
template <class SHAPE, class Q_ROWS, class K_ROWS, class V_ROWS, class DY_ROWS, class Q, class K, class V, class DY,
          class L, class LENGTH, class DOCUMENT, class DK, class DV>
DEVICE void key_gradient(real scale, const Q *q, const K *k, const V *v, const DY *dy, const L *lse, const real *delta,
                         const LENGTH *lengths, const DOCUMENT *documents, DK *dk, DV *dv)
{
    constexpr int tile = SHAPE::tile, share = SHAPE::share, width = SHAPE::width, value_width = SHAPE::value_width;
    constexpr int64_t heads = SHAPE::heads / SHAPE::groups, behind = SHAPE::keys - SHAPE::queries;
    SHARED_BYTES(bytes);
    real *q_tile = (real *)bytes, *k_tile = q_tile + tile * pitch_of(width), *v_tile = k_tile + tile * pitch_of(width);
    real *dy_tile = v_tile + tile * pitch_of(value_width), *weights = dy_tile + tile * pitch_of(value_width);
    const tile_place at = place_of_tile<SHAPE::groups, SHAPE::key_tiles, tile, false>();
    const mask<SHAPE, DOCUMENT> seen(lengths, documents, at.sequence);
    const int64_t first_query = SHAPE::causal && at.first > behind ? (at.first - behind) / tile * tile : 0;

    real key_sum[share][columns_of(width)], value_sum[share][columns_of(value_width)], factor[share], ones[share];
    clear<share, width>(key_sum);
    clear<share, value_width>(value_sum);
    for (int r = 0; r < share; r++) factor[r] = scale, ones[r] = 1;
    load_tile<tile, width, K_ROWS>(k_tile, K_ROWS::find(k, at.sequence, at.head, at.first), seen.length - at.first);
    load_tile<tile, value_width, V_ROWS>(v_tile, V_ROWS::find(v, at.sequence, at.head, at.first),
                                         seen.length - at.first);
    for (int64_t head = at.head * heads; head < (at.head + 1) * heads && at.first < seen.length; head++)
        for (int64_t first = first_query; first < SHAPE::queries; first += tile) {
            const int64_t count = at_most(tile, SHAPE::queries - first);
            const int64_t row = (at.sequence * SHAPE::heads + head) * SHAPE::queries + first;
            __syncthreads();
            load_tile<tile, width, Q_ROWS>(q_tile, Q_ROWS::find(q, at.sequence, head, first), count);
            load_tile<tile, value_width, DY_ROWS>(dy_tile, DY_ROWS::find(dy, at.sequence, head, first), count);
            __syncthreads();
            real score[share][share], slope[share][share];
            multiply_rows<share, width>(score, k_tile, q_tile);
            multiply_rows<share, value_width>(slope, v_tile, dy_tile);
#pragma unroll
            for (int j = 0; j < share; j++) {
                const int other = lane_of_16() + j * SIDE;
                const real other_lse = other < count ? (real)get(lse[row + other]) : (real)0;
                const real other_delta = other < count ? delta[row + other] : (real)0;
                for (int r = 0; r < share; r++) {
                    const bool visible = seen.sees(first + other, at.first + own_row() * share + r);
                    weigh(visible, score[r][j] * scale, other_lse, other_delta, &score[r][j], &slope[r][j]);
                }
            }
            store_weights<share>(weights, score);
            add_weighted<share, value_width>(value_sum, weights, dy_tile);
            store_weights<share>(weights, slope);
            add_weighted<share, width>(key_sum, weights, q_tile);
        }
    const int64_t row = (at.sequence * SHAPE::groups + at.head) * SHAPE::keys + at.first;
    const int64_t count = at_most(tile, SHAPE::keys - at.first);
    save_tile<share, width>(dk + row * width, key_sum, factor, count);
    save_tile<share, value_width>(dv + row * value_width, value_sum, ones, count);
}
