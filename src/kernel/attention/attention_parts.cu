// attention and attention_grad in f32 by tensor cores and parts of half (half_parts.cu); formulas, masks and which block
// has which tile are those of attention.cu.
//
// A warp has 16 * M rows of the block's own tile, and streams through tiles of OTHER rows, of which the next is on its way
// while one is in use. Masks come behind the products, as do rows that see nothing.

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

// The scores of a row against 8 N keys from `first` on: hidden ones are -inf.
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

// A row's scores become weights, 2^(factor score) by the largest of all; `most` and `total`, of this thread's columns
// alone, go on; returns what earlier sums are multiplied by. The factor is above 0.
template <int N> DEVICE float weigh_row(float (&score)[N][4], int below, float factor, float *most, float *total)
{
    float top = -infinity(), added = 0;
#pragma unroll
    for (int n = 0; n < N; n++) top = fmaxf(top, fmaxf(score[n][below * 2], score[n][below * 2 + 1]));
    top = fmaxf(*most, quad_fold<max_of>(top) * factor);
    const float base = top == -infinity() ? 0 : top, keep = near_exp2(*most - base);
#pragma unroll
    for (int n = 0; n < N; n++)
#pragma unroll
        for (int i = 0; i < 2; i++)
            added += score[n][below * 2 + i] = near_exp2(fmaf(score[n][below * 2 + i], factor, -base));
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
    constexpr int stage = OTHER * (pitch + value_pitch + 2), N = OTHER / 8; // keys, values, their scales
    SHARED_BYTES(bytes);
    float *q_tile = (float *)bytes, *q_scales = q_tile + tile * pitch, *stages = q_scales + tile;
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
        await_stage(0);
        split_tile<tile, threads, width>(q_tile, q_scales);
    }
    int at_stage = 0; // the one in use: 0 or `stage`
#pragma unroll 1
    for (int first = 0; first < end; first += OTHER) {
        float *const k_tile = stages + at_stage, *const v_tile = k_tile + OTHER * pitch;
        float *const k_scales = v_tile + OTHER * value_pitch, *const v_scales = k_scales + OTHER;
        await_stage(0);
        split_tile<OTHER, threads, width>(k_tile, k_scales);
        split_tile<OTHER, threads, value_width>(v_tile, v_scales);
        __syncthreads();
        if (first + OTHER < end) copy_stage(first + OTHER, stages + stage - at_stage);
        if (first < own_end) {
            float score[M][N][4];
            multiply_lines<M, N, pitch>(score, q_tile + warp_row(M) * pitch, k_tile);
            scale_columns(score, k_scales, scale < 0 ? -1 : 1);
#pragma unroll
            for (int m = 0; m < M; m++) {
                if (first + OTHER > all_see)
#pragma unroll
                    for (int below = 0; below < 2; below++)
                        hide_keys<SHAPE>(score[m], below, seen, own + m * 16 + below * 8 + lane_row(), first);
#pragma unroll
                for (int below = 0; below < 2; below++) {
                    const float own_scale = q_scales[warp_row(M) + m * 16 + below * 8 + lane_row()];
                    factor[m][below] = weigh_row(score[m], below, fmaxf(own_scale * fabsf(scale * log2_of_e()), 1e-37f),
                                                 &most[m][below], &sum[m][below]);
                }
            }
            add_weighted_lines<M, N, value_pitch>(total, score, v_tile, v_scales, factor);
        }
        at_stage = stage - at_stage;
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

// p in place of the score, and ds in place of dp, which still lack the scales of their rows.
DEVICE void weigh_in_parts(bool visible, float scale, float power, float slope_scale, float delta, float *score,
                           float *slope)
{
    *score = visible ? near_exp2(fmaf(*score, scale, -power)) : 0;
    *slope = *score == 0 ? 0 : *score * fmaf(*slope, slope_scale, -delta);
}

// Scales of a thread's rows, times a factor.
template <int M> DEVICE void get_scales(float (&to)[M][2], const float *scales, float factor)
{
#pragma unroll
    for (int m = 0; m < M; m++)
        for (int below = 0; below < 2; below++)
            to[m][below] = scales[warp_row(M) + m * 16 + below * 8 + lane_row()] * factor;
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
    constexpr int stage = OTHER * (pitch + value_pitch + 2), N = OTHER / 8; // keys, values, their scales
    SHARED_BYTES(bytes);
    float *q_tile = (float *)bytes, *dy_tile = q_tile + tile * pitch, *q_scales = dy_tile + tile * value_pitch;
    float *dy_scales = q_scales + tile, *stages = dy_scales + tile;
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
        await_stage(0);
        split_tile<tile, threads, width>(q_tile, q_scales);
        split_tile<tile, threads, value_width>(dy_tile, dy_scales);
    }
    int at_stage = 0; // the one in use: 0 or `stage`
#pragma unroll 1
    for (int first = 0; first < end; first += OTHER) {
        float *const k_tile = stages + at_stage, *const v_tile = k_tile + OTHER * pitch;
        float *const k_scales = v_tile + OTHER * value_pitch, *const v_scales = k_scales + OTHER;
        await_stage(0);
        split_tile<OTHER, threads, width>(k_tile, k_scales);
        split_tile<OTHER, threads, value_width>(v_tile, v_scales);
        __syncthreads();
        if (first + OTHER < end) copy_stage(first + OTHER, stages + stage - at_stage);
        if (first < own_end) {
            float score[M][N][4], slope[M][N][4];
            multiply_lines<M, N, pitch>(score, q_tile + warp_row(M) * pitch, k_tile);
            multiply_lines<M, N, value_pitch>(slope, dy_tile + warp_row(M) * value_pitch, v_tile);
            float score_scale[M][2], slope_scale[M][2];
            get_scales(score_scale, q_scales, scale * log2_of_e());
            get_scales(slope_scale, dy_scales, 1);
            scale_columns(score, k_scales, 1);
            scale_columns(slope, v_scales, 1);
#pragma unroll
            for (int m = 0; m < M; m++)
#pragma unroll
                for (int n = 0; n < N; n++)
#pragma unroll
                    for (int i = 0; i < 4; i++) {
                        const int key = first + n * 8 + lane_column() * 2 + i % 2;
                        const bool visible = key < visible_end[m][i / 2] &&
                                             same_document(seen, own + m * 16 + i / 2 * 8 + lane_row(), key);
                        weigh_in_parts(visible, score_scale[m][i / 2], power[m][i / 2], slope_scale[m][i / 2],
                                       own_delta[m][i / 2], &score[m][n][i], &slope[m][n][i]);
                    }
            add_weighted_lines<M, N, pitch>(total, slope, k_tile, k_scales, keep);
        }
        at_stage = stage - at_stage;
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
    constexpr int stage = OTHER * (pitch + value_pitch + 4), N = OTHER / 8; // queries, dy, their scales, lse, delta
    constexpr int64_t heads = SHAPE::heads / SHAPE::groups, behind = SHAPE::keys - SHAPE::queries;
    SHARED_BYTES(bytes);
    float *k_tile = (float *)bytes, *v_tile = k_tile + tile * pitch, *k_scales = v_tile + tile * value_pitch;
    float *v_scales = k_scales + tile, *stages = v_scales + tile;
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
        float *numbers = to + OTHER * (pitch + value_pitch + 2);
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
        await_stage(0);
        split_tile<tile, threads, width>(k_tile, k_scales);
        split_tile<tile, threads, value_width>(v_tile, v_scales);
    }
    int at_stage = 0; // the one in use: 0 or `stage`
#pragma unroll 1
    while (head < last_head) {
        const int now = first;
        float *const q_tile = stages + at_stage, *const dy_tile = q_tile + OTHER * pitch;
        float *const q_scales = dy_tile + OTHER * value_pitch, *const dy_scales = q_scales + OTHER;
        await_stage(0);
        split_tile<OTHER, threads, width>(q_tile, q_scales);
        split_tile<OTHER, threads, value_width>(dy_tile, dy_scales);
        __syncthreads();
        first += OTHER;
        if (first >= SHAPE::queries) head++, first = begin;
        if (head < last_head) copy_stage(head, first, stages + stage - at_stage);
        if (now + OTHER > own_begin) {
            float score[M][N][4], slope[M][N][4];
            const float *numbers = dy_scales + OTHER;
            multiply_lines<M, N, pitch>(score, k_tile + warp_row(M) * pitch, q_tile);
            multiply_lines<M, N, value_pitch>(slope, v_tile + warp_row(M) * value_pitch, dy_tile);
            float score_scale[M][2], slope_scale[M][2];
            get_scales(score_scale, k_scales, scale * log2_of_e());
            get_scales(slope_scale, v_scales, 1);
            scale_columns(score, q_scales, 1);
            scale_columns(slope, dy_scales, 1);
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
                            weigh_in_parts(visible, score_scale[m][below], power, slope_scale[m][below], deltas.item[i],
                                           &score[m][n][below * 2 + i], &slope[m][n][below * 2 + i]);
                        }
                }
            }
            add_weighted_lines<M, N, value_pitch>(value_total, score, dy_tile, dy_scales, ones);
            add_weighted_lines<M, N, pitch>(key_total, slope, q_tile, q_scales, ones);
        }
        at_stage = stage - at_stage;
    }
    const int64_t row = (at.sequence * SHAPE::groups + at.head) * SHAPE::keys + at.first;
    const int64_t count = at_most(tile, SHAPE::keys - at.first);
    save_lines<M, width, PACK>(dk + row * width, key_total, factor, count);
    save_lines<M, value_width, PACK>(dv + row * value_width, value_total, ones, count);
}
