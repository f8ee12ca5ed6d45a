// attention and its gradient for heads of any width, by products of whole matrices (tile_product.cu): what attention.cu
// keeps in registers for a tile lies here in the workspace for all pairs. Shapes, masks and formulas are those of
// attention.cu.

// Which head a block works on, of tiles_per_head blocks for each, and which tile of it.
struct head_place {
    int64_t sequence, head, tile;
};
template <int64_t HEADS> DEVICE head_place place_of_head(int64_t tiles_per_head)
{
    const int64_t head = blockIdx.x / tiles_per_head;
    return head_place{head / HEADS, head % HEADS, blockIdx.x % tiles_per_head};
}

// [sequence, head, query, key]: scores, weights.
template <class SHAPE>
using pair_rows = rows_at<SHAPE::heads * SHAPE::queries * SHAPE::keys, SHAPE::queries * SHAPE::keys, SHAPE::keys>;

// Rows as the lines of a product, and as its depth.
template <class ROWS, class T> DEVICE matrix_side<T, ROWS::row, 1> rows_side(const T *rows) { return {rows}; }
template <class ROWS, class T> DEVICE matrix_side<T, 1, ROWS::row> depth_side(const T *rows) { return {rows}; }

// The queries of all heads of a group, one after the other, as the depth.
template <class SHAPE, class ROWS, class T> struct group_side {
    const T *data;
    int64_t sequence, group;
    static constexpr bool along_depth = false;
    DEVICE_MEMBER real at(int64_t line, int64_t k) const
    {
        const int64_t head = group * (SHAPE::heads / SHAPE::groups) + k / SHAPE::queries;
        return (real)get(ROWS::find(data, sequence, head, k % SHAPE::queries)[line]);
    }
};

template <class T, int64_t PITCH> struct scaled_store {
    T *data;
    real scale;
    DEVICE_MEMBER void operator()(int64_t row, int64_t column, real x) const { put(&data[row * PITCH + column], x * scale); }
};

// ---- forward ----

template <class SHAPE, int64_t TILES, class Q_ROWS, class K_ROWS, class Q, class K>
DEVICE void score_pairs(real scale, const Q *q, const K *k, real *scores)
{
    const head_place at = place_of_head<SHAPE::heads>(TILES);
    const int64_t group = at.head / (SHAPE::heads / SHAPE::groups);
    multiply_tile<SHAPE::queries, SHAPE::keys>(
        at.tile, 0, SHAPE::width, rows_side<Q_ROWS>(Q_ROWS::find(q, at.sequence, at.head, 0)),
        rows_side<K_ROWS>(K_ROWS::find(k, at.sequence, group, 0)),
        scaled_store<real, SHAPE::keys>{scores + (at.sequence * SHAPE::heads + at.head) * SHAPE::queries * SHAPE::keys, scale});
}

// A warp for each of ROWS queries: its scores become weights.
template <class SHAPE, int64_t ROWS, class LENGTH, class DOCUMENT, class L>
DEVICE void weigh_pairs(real *scores, const LENGTH *lengths, const DOCUMENT *documents, L *lse)
{
    const int64_t row = thread_number() / 32, query = row % SHAPE::queries;
    if (row >= ROWS) return;
    const mask<SHAPE, DOCUMENT> seen(lengths, documents, row / SHAPE::queries / SHAPE::heads);
    real most = -infinity(), total = 0;
    scores += row * SHAPE::keys;
    for (int64_t key = threadIdx.x % 32; key < SHAPE::keys; key += 32)
        if (seen.sees(query, key)) most = fn_max(most, scores[key]);
    most = warp_fold<max_of>(most);
    const bool any = most != -infinity();
    for (int64_t key = threadIdx.x % 32; key < SHAPE::keys; key += 32)
        total += scores[key] = any && seen.sees(query, key) ? fn_exp(scores[key] - most) : (real)0;
    total = warp_fold<sum_of>(total);
    for (int64_t key = threadIdx.x % 32; any && key < SHAPE::keys; key += 32) scores[key] /= total;
    if (threadIdx.x % 32 == 0) put(&lse[row], any ? most + fn_log(total) : most);
}

template <class SHAPE, int64_t TILES, class V_ROWS, class V, class LENGTH, class DOCUMENT, class Y>
DEVICE void sum_values(const real *weights, const V *v, const LENGTH *lengths, const DOCUMENT *documents, Y *y)
{
    const head_place at = place_of_head<SHAPE::heads>(TILES);
    const int64_t group = at.head / (SHAPE::heads / SHAPE::groups);
    const mask<SHAPE, DOCUMENT> seen(lengths, documents, at.sequence);
    multiply_tile<SHAPE::queries, SHAPE::value_width>(
        at.tile, 0, seen.length, rows_side<pair_rows<SHAPE>>(pair_rows<SHAPE>::find(weights, at.sequence, at.head, 0)),
        depth_side<V_ROWS>(V_ROWS::find(v, at.sequence, group, 0)),
        matrix_store<Y, SHAPE::value_width>{y + (at.sequence * SHAPE::heads + at.head) * SHAPE::queries * SHAPE::value_width});
}

// ---- backward ----

// Of a pair whose score and dp are known: p in place of the score, and ds.
template <class SHAPE, class DOCUMENT, class L> struct pair_store {
    mask<SHAPE, DOCUMENT> seen;
    const L *lse;
    const real *delta;
    real *weights, *slopes;
    DEVICE_MEMBER void operator()(int64_t query, int64_t key, real slope) const
    {
        const int64_t pair = query * SHAPE::keys + key;
        weigh(seen.sees(query, key), weights[pair], (real)get(lse[query]), delta[query], &weights[pair], &slope);
        slopes[pair] = slope;
    }
};

template <class SHAPE, int64_t TILES, class Q_ROWS, class K_ROWS, class V_ROWS, class DY_ROWS, class Q, class K, class V,
          class DY, class L, class LENGTH, class DOCUMENT>
DEVICE void weigh_pairs_again(real scale, const Q *q, const K *k, const V *v, const DY *dy, const L *lse, const real *delta,
                              const LENGTH *lengths, const DOCUMENT *documents, real *weights, real *slopes)
{
    const head_place at = place_of_head<SHAPE::heads>(TILES);
    const int64_t group = at.head / (SHAPE::heads / SHAPE::groups);
    const int64_t row = (at.sequence * SHAPE::heads + at.head) * SHAPE::queries;
    score_pairs<SHAPE, TILES, Q_ROWS, K_ROWS>(scale, q, k, weights); // a thread finds its own scores there
    const pair_store<SHAPE, DOCUMENT, L> store = {mask<SHAPE, DOCUMENT>(lengths, documents, at.sequence), lse + row,
                                                  delta + row, weights + row * SHAPE::keys, slopes + row * SHAPE::keys};
    multiply_tile<SHAPE::queries, SHAPE::keys>(
        at.tile, 0, SHAPE::value_width, rows_side<DY_ROWS>(DY_ROWS::find(dy, at.sequence, at.head, 0)),
        rows_side<V_ROWS>(V_ROWS::find(v, at.sequence, group, 0)), store);
}

template <class SHAPE, int64_t TILES, class K_ROWS, class K, class LENGTH, class DOCUMENT, class DQ>
DEVICE void wide_query_gradient(real scale, const real *slopes, const K *k, const LENGTH *lengths,
                                const DOCUMENT *documents, DQ *dq)
{
    const head_place at = place_of_head<SHAPE::heads>(TILES);
    const int64_t group = at.head / (SHAPE::heads / SHAPE::groups);
    const mask<SHAPE, DOCUMENT> seen(lengths, documents, at.sequence);
    multiply_tile<SHAPE::queries, SHAPE::width>(
        at.tile, 0, seen.length, rows_side<pair_rows<SHAPE>>(pair_rows<SHAPE>::find(slopes, at.sequence, at.head, 0)),
        depth_side<K_ROWS>(K_ROWS::find(k, at.sequence, group, 0)),
        scaled_store<DQ, SHAPE::width>{dq + (at.sequence * SHAPE::heads + at.head) * SHAPE::queries * SHAPE::width, scale});
}

// dk of slopes and q, dv of weights and dy: WIDTH columns.
template <class SHAPE, int WIDTH, int64_t TILES, class ROWS, class T, class D>
DEVICE void wide_key_gradient(real scale, const real *pairs, const T *x, D *to)
{
    constexpr int64_t depth = SHAPE::heads / SHAPE::groups * SHAPE::queries;
    const head_place at = place_of_head<SHAPE::groups>(TILES);
    multiply_tile<SHAPE::keys, WIDTH>(
        at.tile, 0, depth, group_side<SHAPE, pair_rows<SHAPE>, real>{pairs, at.sequence, at.head},
        group_side<SHAPE, ROWS, T>{x, at.sequence, at.head},
        scaled_store<D, WIDTH>{to + (at.sequence * SHAPE::groups + at.head) * SHAPE::keys * WIDTH, scale});
}
