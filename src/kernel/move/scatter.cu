// embedding_grad: y[v,:] = sum of dy[n,:] over the positions n with index[n] = v, n ascending. scatter_add: y[o,s,i]
// = sum of u[o,k,i] over the k with index[o,k,i] = s, k ascending. An index outside is skipped. Sums in real, one
// rounding.

// ---- positions sorted by row ----

// A key is a row and a position: rows in the upper half, so that keys are all different and have one order. Positions
// without a row come behind all rows.
enum { SORT_CHUNK = 1024, SORT_THREADS = SORT_CHUNK / 2, SUM_SEGMENT = 64 };

DEVICE int64_t row_of(uint64_t key) { return (int64_t)(key >> 32); }
DEVICE int64_t position_of(uint64_t key) { return (int64_t)(key & 0xffffffffull); }

// Keys before `key` among n sorted ones.
DEVICE int64_t keys_before(const uint64_t *sorted, int64_t n, uint64_t key)
{
    int64_t low = 0;
    while (n > 0) {
        const int64_t half = n / 2;
        const bool before = sorted[low + half] < key;
        low = before ? low + half + 1 : low;
        n = before ? n - half - 1 : half;
    }
    return low;
}

// A block sorts the keys of a chunk of positions, by a bitonic network.
template <int64_t COUNT, int64_t SIZE, class INDEX> DEVICE void sort_chunk(const INDEX *index, uint64_t *chunks)
{
    __shared__ uint64_t keys[SORT_CHUNK];
    const int64_t first = (int64_t)blockIdx.x * SORT_CHUNK;
    for (int k = threadIdx.x; k < SORT_CHUNK; k += SORT_THREADS) {
        const int64_t at = first + k < COUNT ? get_int(index[first + k]) : 0;
        const uint64_t row = at >= 0 && at < SIZE ? at : SIZE;
        keys[k] = first + k < COUNT ? row << 32 | (uint64_t)(first + k) : ~0ull;
    }
    for (int size = 2; size <= SORT_CHUNK; size *= 2)
        for (int half = size / 2; half > 0; half /= 2) {
            __syncthreads();
            const int low = threadIdx.x / half * 2 * half + threadIdx.x % half;
            const uint64_t a = keys[low], b = keys[low + half];
            if ((a > b) == ((low & size) == 0)) {
                keys[low] = b;
                keys[low + half] = a;
            }
        }
    __syncthreads();
    for (int k = threadIdx.x; k < SORT_CHUNK && first + k < COUNT; k += SORT_THREADS) chunks[first + k] = keys[k];
}

// A key's place is the number of keys before it in its own chunk and in all others, which the threads of a warp
// share.
template <int64_t COUNT> DEVICE void merge_chunks(const uint64_t *chunks, uint64_t *sorted)
{
    const int64_t i = thread_number() / 32, own = i / SORT_CHUNK * SORT_CHUNK;
    const int lane = threadIdx.x % 32;
    if (i >= COUNT) return;
    const uint64_t key = chunks[i];
    int place = 0;
    for (int64_t first = lane * SORT_CHUNK; first < COUNT; first += 32 * SORT_CHUNK) {
        const int64_t n = COUNT - first < SORT_CHUNK ? COUNT - first : SORT_CHUNK;
        place += (int)(first == own ? i - own : keys_before(chunks + first, n, key));
    }
    for (int half = 16; half > 0; half /= 2) place += __shfl_xor_sync(0xffffffffu, place, half);
    if (lane == 0) sorted[place] = key;
}

// Where the positions of each row begin; one more than there are rows.
template <int64_t COUNT, int64_t SIZE> DEVICE void find_rows(const uint64_t *sorted, uint32_t *first)
{
    const int64_t row = thread_number();
    if (row <= SIZE) first[row] = (uint32_t)keys_before(sorted, COUNT, (uint64_t)row << 32);
}

// ---- sums ----

template <int64_t COLUMNS, class U>
DEVICE real add_positions(real sum, const U *u, const uint64_t *sorted, int64_t from, int64_t to, int64_t column)
{
    for (int64_t k = from; k < to; k++) sum += (real)get(u[position_of(sorted[k]) * COLUMNS + column]);
    return sum;
}

// A block for each whole segment of sorted positions: its sum, where all of it belongs to one row. So a row that
// comes often is summed by many blocks.
template <int64_t SIZE, int64_t COLUMNS, class U>
DEVICE void sum_segment(const U *u, const uint64_t *sorted, real *sums)
{
    const int64_t from = (int64_t)blockIdx.x * SUM_SEGMENT, to = from + SUM_SEGMENT, row = row_of(sorted[from]);
    if (row == SIZE || row != row_of(sorted[to - 1])) return;
    for (int64_t c = threadIdx.x; c < COLUMNS; c += blockDim.x)
        sums[blockIdx.x * COLUMNS + c] = add_positions<COLUMNS>(0, u, sorted, from, to, c);
}

// A block for each row: positions before the first whole segment, whole segments, positions behind them.
template <int64_t COLUMNS, class U, class Y>
DEVICE void sum_row(const U *u, const uint64_t *sorted, const uint32_t *first, const real *sums, Y *y)
{
    const int64_t from = first[blockIdx.x], to = first[blockIdx.x + 1];
    const int64_t segment = (from + SUM_SEGMENT - 1) / SUM_SEGMENT, end = to / SUM_SEGMENT;
    for (int64_t c = threadIdx.x; c < COLUMNS; c += blockDim.x) {
        real sum = 0;
        if (segment < end) {
            sum = add_positions<COLUMNS>(sum, u, sorted, from, segment * SUM_SEGMENT, c);
            for (int64_t s = segment; s < end; s++) sum += sums[s * COLUMNS + c];
            sum = add_positions<COLUMNS>(sum, u, sorted, end * SUM_SEGMENT, to, c);
        } else {
            sum = add_positions<COLUMNS>(sum, u, sorted, from, to, c);
        }
        put(&y[(int64_t)blockIdx.x * COLUMNS + c], sum);
    }
}

// ---- scatter_add ----

// A thread for each element of the result, which looks through the indices of its column.
template <int64_t ELEMS, int64_t COUNT, int64_t SIZE, int64_t INNER, class INDEX, class U, class Y>
DEVICE void scatter_add(const INDEX *index, const U *u, Y *y)
{
    const int64_t i = thread_number();
    if (i >= ELEMS) return;
    const int64_t column = i / INNER / SIZE * COUNT * INNER + i % INNER, own = i / INNER % SIZE;
    real sum = 0;
    for (int64_t k = 0; k < COUNT; k++)
        if (get_int(index[column + k * INNER]) == own) sum += (real)get(u[column + k * INNER]);
    put(&y[i], sum);
}
