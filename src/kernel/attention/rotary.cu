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

// A thread for each pair. AXES are those of the rows of x; SHARED rows follow each other with the same STEPS
// positions.
template <class INDEX, INDEX ROWS, INDEX HALF, INDEX STEPS, INDEX SHARED, bool INTERLEAVED, class... AXES, class X,
          class Y>
DEVICE void rotate(const X *x, const real *table, Y *y)
{
    const INDEX i = (INDEX)thread_number(), row = i / HALF, j = i % HALF;
    if (row >= ROWS) return;
    const real *cosine = table + (row / SHARED * STEPS + row % STEPS) * 2 * HALF, *sine = cosine + HALF;
    const INDEX first = INTERLEAVED ? 2 * j : j, second = INTERLEAVED ? first + 1 : first + HALF;
    const int64_t from = locate<INDEX, AXES...>(row).from;
    y += (int64_t)row * 2 * HALF;
    const real a = get(x[from + first]), b = get(x[from + second]);
    put(&y[first], a * cosine[j] - b * sine[j]);
    put(&y[second], b * cosine[j] + a * sine[j]);
}
