// Copies between strided arrays, and of a part into a whole. What the elements are does not matter: they move as
// words of 1 to 16 bytes, each by a thread. All sizes are constants, so that places need no division.

struct alignas(16) word128 {
    uint64_t low, high;
};

// An axis: its words, and the distance of neighbours in both arrays.
template <int64_t DIM, int64_t TO, int64_t FROM> struct axis {
    static constexpr int64_t dim = DIM, to = TO, from = FROM;
};

struct place {
    int64_t to, from;
};

// Where word i lies, counted over the axes, which are listed from the last to the first.
template <class INDEX, class AXIS, class... MORE> DEVICE place locate(INDEX i)
{
    if constexpr (sizeof...(MORE) == 0) {
        return place{(int64_t)i * AXIS::to, (int64_t)i * AXIS::from};
    } else {
        const place outer = locate<INDEX, MORE...>(i / (INDEX)AXIS::dim);
        const int64_t along = i % (INDEX)AXIS::dim;
        return place{outer.to + along * AXIS::to, outer.from + along * AXIS::from};
    }
}

template <class WORD, class INDEX, int64_t COUNT, class... AXES>
DEVICE void copy_strided(int64_t block, void *to, const void *from)
{
    const INDEX i = (INDEX)block * blockDim.x + threadIdx.x;
    if (i >= (INDEX)COUNT) return;
    const place p = locate<INDEX, AXES...>(i);
    ((WORD *)to)[p.to] = ((const WORD *)from)[p.from];
}

// A plane whose rows are contiguous in `from` along the columns of `to`: squares of 32 × 32 by way of shared memory,
// so that both sides are read and written in whole lines. 256 threads.
template <class WORD, int64_t ROWS, int64_t COLUMNS, int64_t TO_ROW, int64_t FROM_COLUMN, class... OUTER>
DEVICE void copy_transposed(int64_t block, void *to, const void *from)
{
    __shared__ WORD square[32][33];
    constexpr int64_t across = (COLUMNS + 31) / 32, squares = (ROWS + 31) / 32 * across;
    const place p = locate<uint64_t, OUTER...>(block / squares);
    const int64_t row = block % squares / across * 32, column = block % across * 32;
    const int x = threadIdx.x % 32;
    for (int y = threadIdx.x / 32; y < 32; y += 8)
        if (row + x < ROWS && column + y < COLUMNS)
            square[y][x] = ((const WORD *)from)[p.from + row + x + (column + y) * FROM_COLUMN];
    __syncthreads();
    for (int y = threadIdx.x / 32; y < 32; y += 8)
        if (row + y < ROWS && column + x < COLUMNS) ((WORD *)to)[p.to + (row + y) * TO_ROW + column + x] = square[x][y];
}

// ---- a part of a whole ----

// An axis of the whole, on which COUNT words of the part lie from START in steps of STEP.
template <int64_t DIM, int64_t TO, int64_t FROM, int64_t START, int64_t STEP, int64_t COUNT> struct part_axis {
    static constexpr int64_t dim = DIM, to = TO, from = FROM, start = START, step = STEP, count = COUNT;
};

// As locate; *inside becomes false where the word is not of the part.
template <class INDEX, class AXIS, class... MORE> DEVICE place locate_part(INDEX i, bool *inside)
{
    place outer = {0, 0};
    int64_t along = i;
    if constexpr (sizeof...(MORE) > 0) {
        outer = locate_part<INDEX, MORE...>(i / (INDEX)AXIS::dim, inside);
        along = i % (INDEX)AXIS::dim;
    }
    const int64_t behind = along - AXIS::start;
    *inside = *inside && behind >= 0 && behind % AXIS::step == 0 && behind / AXIS::step < AXIS::count;
    return place{outer.to + along * AXIS::to, outer.from + behind / AXIS::step * AXIS::from};
}

// A word that repeats an element, of which `bits` are 8 bytes.
template <class WORD> DEVICE WORD word_of(uint64_t bits) { return (WORD)bits; }
template <> DEVICE_MEMBER word128 word_of<word128>(uint64_t bits) { return word128{bits, bits}; }

template <class WORD, class INDEX, int64_t COUNT, class... AXES>
DEVICE void copy_part(uint64_t rest, void *to, const void *from)
{
    const INDEX i = (INDEX)thread_number();
    if (i >= (INDEX)COUNT) return;
    bool inside = true;
    const place p = locate_part<INDEX, AXES...>(i, &inside);
    ((WORD *)to)[p.to] = inside ? ((const WORD *)from)[p.from] : word_of<WORD>(rest);
}

// The first row of ROWS that are taken out of ALL.
template <int64_t ALL, int64_t ROWS> DEVICE int64_t first_row(const int64_t *first)
{
    const int64_t last = ALL - ROWS;
    return *first > last ? last : *first < 0 ? 0 : *first;
}
