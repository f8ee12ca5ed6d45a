// (a, b) -> (a cos t - b sin t, b cos t + a sin t), t = position base^(-2j/D), for each pair of the last axis.

// A thread for each position and pair, whose frequency base^(-2j/D) is the host's. The table is [POSITIONS, 2, HALF]:
// cosines, sines.
template <int64_t POSITIONS, int64_t HALF, class POSITION>
DEVICE void fill_rotations(const POSITION *position, const double (&frequency)[HALF], real sign, real *table)
{
    const int64_t i = thread_number(), p = i / HALF, j = i % HALF;
    if (i >= POSITIONS * HALF) return;
    const double angle = (double)get_int(position[p]) * frequency[j];
    table[p * 2 * HALF + j] = (real)cos(angle);
    table[p * 2 * HALF + HALF + j] = sign * (real)sin(angle);
}

// N neighbours of both sides of some pairs: one side lies behind the other, or they take turns.
template <int N, int64_t HALF, bool INTERLEAVED, class T> DEVICE void get_sides(const T *from, int64_t pair, pack<T, N> (&side)[2])
{
    if constexpr (!INTERLEAVED) {
        side[0] = get_pack<N>(from + pair);
        side[1] = get_pack<N>(from + HALF + pair);
    } else if constexpr (N == 1) {
        side[0].item[0] = from[2 * pair], side[1].item[0] = from[2 * pair + 1];
    } else {
        const pack<T, 2 * N> both = get_pack<2 * N>(from + 2 * pair);
        for (int k = 0; k < 2 * N; k++) side[k % 2].item[k / 2] = both.item[k];
    }
}
template <int N, int64_t HALF, bool INTERLEAVED, class T>
DEVICE void put_sides(T *to, int64_t pair, const pack<T, N> (&side)[2])
{
    if constexpr (!INTERLEAVED) {
        put_pack(to + pair, side[0]);
        put_pack(to + HALF + pair, side[1]);
    } else if constexpr (N == 1) {
        to[2 * pair] = side[0].item[0], to[2 * pair + 1] = side[1].item[0];
    } else {
        pack<T, 2 * N> both;
        for (int k = 0; k < 2 * N; k++) both.item[k] = side[k % 2].item[k / 2];
        put_pack(to + 2 * pair, both);
    }
}

// A thread for N pairs of EACH rows at one position: it reads the table once for them. AXES are those of rows; SHARED rows
// follow each other with the same STEPS positions.
template <class INDEX, INDEX ROWS, INDEX HALF, INDEX STEPS, INDEX SHARED, int EACH, int N, bool INTERLEAVED, class... AXES,
          class X, class Y>
DEVICE void rotate(const X *x, const real *table, Y *y)
{
    constexpr INDEX across = HALF / N;
    const INDEX i = (INDEX)thread_number(), step = i / across % STEPS, first = i / across / STEPS * EACH * STEPS + step;
    const INDEX pair = i % across * N;
    if (first >= ROWS) return;
    const real *row = table + (first / SHARED * STEPS + step) * 2 * HALF + pair;
    const pack<real, N> cosine = get_pack<N>(row), sine = get_pack<N>(row + HALF);
    pack<X, N> from[EACH][2]; // all on their way at once
#pragma unroll
    for (int r = 0; r < EACH; r++)
        get_sides<N, HALF, INTERLEAVED>(x + locate<INDEX, AXES...>(first + (INDEX)r * STEPS).from, pair, from[r]);
#pragma unroll
    for (int r = 0; r < EACH; r++) {
        const place at = locate<INDEX, AXES...>(first + (INDEX)r * STEPS);
        pack<Y, N> to[2];
        for (int k = 0; k < N; k++) {
            const real a = get(from[r][0].item[k]), b = get(from[r][1].item[k]);
            put(&to[0].item[k], a * cosine.item[k] - b * sine.item[k]);
            put(&to[1].item[k], b * cosine.item[k] + a * sine.item[k]);
        }
        put_sides<N, HALF, INTERLEAVED>(y + at.to, pair, to);
    }
}
