// The steps of lstm and lstm_grad, each as one grid whose blocks stay for all steps. A block makes the four gates of
// 16 units for some tiles of sequences. In half it holds its part of w_hidden in registers; what blocks tell each
// other, h or d(gates) of a step, goes through memory that all processors share, and a counter for each tile says who
// has written. Tiles do not meet, so that a block works on one of them while the others' counters are on their way.
// Sums are f32, in a fixed order. Tensor cores read h and d(gates), rounded to the type of the weights.

enum { UNITS = 16, ROWS = 64, PASS = 32, WARPS = 8, THREADS = 256, QUAD = 4, COUNTER_PITCH = 32 };

// Sequences of a tile; how many tiles a block has under way.
template <class T> struct tile_size {
    static constexpr int passes = 1, slots = 2;
};
template <> struct tile_size<float> {
    static constexpr int passes = 2, slots = 1;
};

// GROUPS blocks share the units; PARTS such sets share the tiles of sequences. ALIGNED: 16 bytes of an operand can
// be read at once.
template <class TYPE, int64_t STEPS, int64_t BATCH, int64_t HIDDEN, int GROUPS, int PARTS, bool ALIGNED>
struct step_shape {
    typedef TYPE type;
    static constexpr int64_t steps = STEPS, batch = BATCH, hidden = HIDDEN, gates = 4 * HIDDEN, reserved = 5 * HIDDEN;
    static constexpr int passes = tile_size<TYPE>::passes, slots = tile_size<TYPE>::slots, sequences = passes * PASS;
    static constexpr int groups = GROUPS, parts = PARTS, tiles = (int)((BATCH + sequences - 1) / sequences);
    static constexpr int values = 4 * passes; // of a thread's cells, two numbers for each
    static constexpr bool aligned = ALIGNED;
};

template <class LENGTH> DEVICE bool is_alive(const LENGTH *lengths, int64_t step, int64_t sequence)
{
    return !lengths || step < get_int(lengths[sequence]);
}

template <class T> DEVICE float get_or_zero(const T *from, int64_t i) { return from ? (float)get(from[i]) : 0; }

template <bool ALIGNED, class T> DEVICE void put_pair(T *to, float a, float b)
{
    pack<T, 2> both;
    put(&both.item[0], a);
    put(&both.item[1], b);
    if (ALIGNED)
        put_pack<2>(to, both);
    else
        to[0] = both.item[0], to[1] = both.item[1];
}

template <bool ALIGNED, class T> DEVICE void get_pair(const T *from, float (&to)[2])
{
    pack<T, 2> both;
    if (ALIGNED)
        both = get_pack<2>(from);
    else
        both.item[0] = from[0], both.item[1] = from[1];
    to[0] = (float)get(both.item[0]), to[1] = (float)get(both.item[1]);
}

// ---- gates: what is stored in half needs no more than 20 bits ----

DEVICE float sigmoid_as(float x, float) { return fn_sigmoid(x); }
DEVICE float tanh_as(float x, float) { return fn_tanh(x); }
template <class T> DEVICE float sigmoid_as(float x, T) { return __fdividef(1.0f, 1.0f + rough_exp2(x * -1.44269504f)); }
template <class T> DEVICE float tanh_as(float x, T)
{
    const float square = x * x;
    if (square < 0.01f) return x * (1.0f + square * (square * 0.133333333f - 0.333333333f));
    return 2.0f * __fdividef(1.0f, 1.0f + rough_exp2(x * -2.88539008f)) - 1.0f;
}

// ---- blocks wait for blocks ----

#ifdef HT_EMULATED
DEVICE void add_to_counter(uint32_t *counter) { atomicAdd(counter, 1u); }
DEVICE uint32_t read_counter(const uint32_t *counter)
{
    emulated_pause();
    return *(volatile const uint32_t *)counter;
}
#else
DEVICE void add_to_counter(uint32_t *counter)
{
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
DEVICE uint32_t read_counter(const uint32_t *counter)
{
    uint32_t count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(counter) : "memory");
    return count;
}
#endif

// All that the block's threads have written before is seen by whoever waits for the counter: the barrier puts it
// before the release of one thread.
DEVICE void arrive(uint32_t *counter)
{
    __syncthreads();
    if (threadIdx.x == 0) add_to_counter(counter);
}

DEVICE void wait_for(const uint32_t *counter, int64_t count)
{
    if (threadIdx.x == 0)
        while (read_counter(counter) < (uint32_t)count) {
        }
    __syncthreads();
}

template <int64_t COUNT> DEVICE void reset_counters(uint32_t *counters)
{
    for (int64_t i = threadIdx.x; i < COUNT; i += THREADS) counters[i * COUNTER_PITCH] = 0;
}

// ---- instructions ----

#ifdef HT_EMULATED
DEVICE void copy_16(void *to, const void *from, bool inside)
{
    if (inside)
        memcpy(to, from, 16);
    else
        memset(to, 0, 16);
}
DEVICE void commit_copies() {}
DEVICE void wait_copies(int) {}
DEVICE void fetch_ahead(const void *) {}

template <class T> DEVICE float half_at(uint32_t word, int i)
{
    T x;
    x.bits = (uint16_t)(word >> 16 * i);
    return get(x);
}
// c[16,8] += a[16,16] b[16,8], by the registers of a warp.
template <class T> DEVICE void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    const int lane = threadIdx.x % 32, row = lane & ~3, column = lane % 4 * 2;
    for (int from = 0; from < 4; from++) {
        uint32_t left[4];
        for (int i = 0; i < 4; i++) left[i] = __shfl_sync(0xffffffffu, a[i], row + from);
        for (int j = 0; j < 2; j++) {
            const uint32_t low = __shfl_sync(0xffffffffu, b0, (column + j) * 4 + from);
            const uint32_t high = __shfl_sync(0xffffffffu, b1, (column + j) * 4 + from);
            for (int i = 0; i < 2; i++)
                for (int below = 0; below < 2; below++)
                    c[2 * below + j] += half_at<T>(left[below], i) * half_at<T>(low, i) +
                                        half_at<T>(left[below + 2], i) * half_at<T>(high, i);
        }
    }
}
#else
DEVICE void copy_16(void *to, const void *from, bool inside)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"((uint32_t)__cvta_generic_to_shared(to)), "l"(from), "r"(inside ? 16 : 0)
                 : "memory");
}
DEVICE void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Until at most so many of the groups of copies are under way.
DEVICE void wait_copies(int groups)
{
    switch (groups) {
    case 0: asm volatile("cp.async.wait_group 0;" ::: "memory"); break;
    case 1: asm volatile("cp.async.wait_group 1;" ::: "memory"); break;
    case 2: asm volatile("cp.async.wait_group 2;" ::: "memory"); break;
    case 3: asm volatile("cp.async.wait_group 3;" ::: "memory"); break;
    case 4: asm volatile("cp.async.wait_group 4;" ::: "memory"); break;
    case 5: asm volatile("cp.async.wait_group 5;" ::: "memory"); break;
    case 6: asm volatile("cp.async.wait_group 6;" ::: "memory"); break;
    default: asm volatile("cp.async.wait_group 7;" ::: "memory"); break;
    }
}
DEVICE void fetch_ahead(const void *at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

template <class T> struct mma_type;
template <> struct mma_type<f16> {
    static DEVICE_MEMBER void run(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};
template <> struct mma_type<bf16> {
    static DEVICE_MEMBER void run(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
    {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
            "{%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
};
template <class T> DEVICE void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1)
{
    mma_type<T>::run(c, a, b0, b1);
}
#endif

// ---- products: 64 rows of w_hidden by the sequences of a tile ----

// Row 16 g + u: gate g of the block's unit u. `pick` finds out where an element lies, or -1: a zero stands there.
// N neighbours can be read at once, along k or along rows.
template <class T, int64_t HIDDEN, int N> struct gate_rows {
    const T *w;
    int64_t unit;
    static constexpr int64_t depth = HIDDEN;
    static constexpr int neighbours = N;
    static constexpr bool along_depth = true;
    DEVICE_MEMBER int64_t pick(int row, int64_t k) const
    {
        const int64_t of = unit + row % UNITS;
        return of < HIDDEN && k < HIDDEN ? (row / UNITS * HIDDEN + of) * HIDDEN + k : -1;
    }
};

// Row u: unit u of four blocks', k: the units of one gate.
template <class T, int64_t HIDDEN, int N> struct unit_columns {
    const T *w;
    int64_t unit, gate;
    static constexpr int64_t depth = HIDDEN;
    static constexpr int neighbours = N;
    static constexpr bool along_depth = false;
    DEVICE_MEMBER int64_t pick(int row, int64_t k) const
    {
        return unit + row < HIDDEN && k < HIDDEN ? (gate * HIDDEN + k) * HIDDEN + unit + row : -1;
    }
};

// Where the sum of a row and a sequence of a pass lies: neither what the tensor cores' registers hold nor what the
// cells read meets in a bank.
DEVICE int sum_place(int row, int sequence)
{
    return row * PASS + (sequence ^ ((row >> 3 & 1) << 2 | (row >> 1 & 1) << 3 | ((row ^ row >> 2) & 1) << 4));
}

// In half: a warp has a part of the depth, and holds its weights. What a thread reads of h it copies into shared
// memory itself, 16 bytes at a time, which are also what it multiplies: so k runs in another order, for the weights
// too.
template <class T, class SIDE> struct tile_product {
    static constexpr int steps = (int)((SIDE::depth + WARPS * 32 - 1) / (WARPS * 32)); // of 32 k
    static constexpr int slots = tile_size<T>::slots, part_bytes = ROWS * PASS * 4, bytes = WARPS * slots * part_bytes;
    uint32_t weight[4][steps][2][4];

    static DEVICE_MEMBER int64_t depth_of(int step)
    {
        return ((int64_t)(threadIdx.x / 32) * steps + step) * 32 + threadIdx.x % 4 * 8;
    }
    // All 64 rows to shared memory, [ROWS, all]; zeros beyond the depth.
    static DEVICE_MEMBER void copy_weights(T *to, const SIDE &side)
    {
        constexpr int n = SIDE::neighbours, all = WARPS * 32 * steps;
#pragma unroll 8
        for (int i = threadIdx.x; i < ROWS * all / n; i += THREADS) {
            const int row = SIDE::along_depth ? i / (all / n) : i % (ROWS / n) * n;
            const int k = SIDE::along_depth ? i % (all / n) * n : i / (ROWS / n);
            const int64_t at = side.pick(row, k);
            pack<T, n> values = {};
            if (at >= 0) values = get_pack<n>(side.w + at);
#pragma unroll
            for (int j = 0; j < n; j++)
                to[SIDE::along_depth ? row * all + k + j : (row + j) * all + k] = values.item[j];
        }
        __syncthreads();
    }
    DEVICE_MEMBER void load(char *area, const SIDE &side)
    {
        const int row = threadIdx.x % 32 / 4;
        copy_weights((T *)area, side);
#pragma unroll
        for (int tile = 0; tile < 4; tile++)
#pragma unroll
            for (int step = 0; step < steps; step++)
#pragma unroll
                for (int below = 0; below < 2; below++) {
                    const pack<uint32_t, 4> words = get_pack<4>(
                        (const uint32_t *)((const T *)area + (tile * 16 + row + below * 8) * WARPS * 32 * steps +
                                           depth_of(step)));
#pragma unroll
                    for (int i = 0; i < 4; i++) weight[tile][step][i / 2][i % 2 * 2 + below] = words.item[i];
                }
        __syncthreads();
    }
    static DEVICE_MEMBER char *own_part(char *area, int slot)
    {
        return area + (threadIdx.x / 32 * slots + slot) * part_bytes;
    }
    // `from` [count, PITCH]: the sequences. What comes from there is under way when it returns.
    template <int64_t PITCH> DEVICE_MEMBER void start(char *area, int slot, const T *from, int count) const
    {
        const int lane = threadIdx.x % 32;
        char *own = own_part(area, slot) + lane * 16;
        const T *first = from + lane / 4 * PITCH + depth_of(0);
#pragma unroll
        for (int step = 0; step < steps; step++) {
            const bool deep = SIDE::depth % (WARPS * 32) == 0 || depth_of(step) < SIDE::depth;
#pragma unroll
            for (int n = 0; n < 4 && count > 0; n++) // beyond the last tile nobody waits for what is copied
                copy_16(own + (step * 4 + n) * 512, first + n * 8 * PITCH + step * 32,
                        deep && n * 8 + lane / 4 < count);
            commit_copies();
        }
    }
    // Of every start since then `later` more. Threads meet before they ask for sums.
    template <int64_t PITCH> DEVICE_MEMBER void finish(char *area, int slot, int later, const T *, int) const
    {
        const int lane = threadIdx.x % 32;
        char *own = own_part(area, slot);
        float sum[4][4][4] = {};
#pragma unroll
        for (int step = 0; step < steps; step++) {
            wait_copies(later * steps + steps - 1 - step);
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const pack<uint32_t, 4> b = get_pack<4>((const uint32_t *)(own + lane * 16 + (step * 4 + n) * 512));
#pragma unroll
                for (int half = 0; half < 2; half++)
#pragma unroll
                    for (int tile = 0; tile < 4; tile++)
                        multiply_add<T>(sum[tile][n], weight[tile][step][half], b.item[2 * half], b.item[2 * half + 1]);
            }
        }
        __syncwarp();
#pragma unroll
        for (int tile = 0; tile < 4; tile++)
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int below = 0; below < 2; below++) {
                    pack<float, 2> both = {{sum[tile][n][2 * below], sum[tile][n][2 * below + 1]}};
                    put_pack<2>((float *)own + sum_place(tile * 16 + lane / 4 + below * 8, n * 8 + lane % 4 * 2), both);
                }
    }
    static DEVICE_MEMBER float sum(const char *area, int slot, int row, int sequence)
    {
        const float *from = (const float *)area + slot * ROWS * PASS + sum_place(row, sequence);
        float sum = 0;
#pragma unroll
        for (int warp = 0; warp < WARPS; warp++) sum += from[warp * slots * ROWS * PASS];
        return sum;
    }
};

// In f32, by FMA in the order of k: a thread has 4 rows by 4 sequences.
template <class SIDE> struct tile_product<float, SIDE> {
    static constexpr int STEP = 16, PLACE = 68, SEQUENCES = 64;
    static constexpr int bytes = (ROWS * SEQUENCES + 2 * STEP * PLACE) * 4;
    SIDE side;

    DEVICE_MEMBER void load(char *, const SIDE &from) { side = from; }
    static DEVICE_MEMBER int row_of(int i) { return SIDE::along_depth ? i / STEP : i % ROWS; }
    static DEVICE_MEMBER int depth_of(int i) { return SIDE::along_depth ? i % STEP : i / ROWS; }
    template <int64_t PITCH>
    DEVICE_MEMBER void fetch(float (&left)[4], float (&right)[4], const float *from, int count, int64_t k) const
    {
#pragma unroll
        for (int j = 0; j < 4; j++) {
            const int i = threadIdx.x + j * THREADS, sequence = i / STEP;
            const int64_t at = side.pick(row_of(i), k + depth_of(i));
            left[j] = at < 0 ? 0 : side.w[at];
            right[j] =
                sequence < count && k + i % STEP < SIDE::depth ? __ldcg(from + sequence * PITCH + k + i % STEP) : 0;
        }
    }
    template <int64_t PITCH> DEVICE_MEMBER void start(char *, int, const float *, int) const {}
    template <int64_t PITCH> DEVICE_MEMBER void finish(char *area, int, int, const float *from, int count) const
    {
        float *rows = (float *)area + ROWS * SEQUENCES, *columns = rows + STEP * PLACE;
        const int y = threadIdx.x / 16 * 4, x = threadIdx.x % 16 * 4;
        float sum[4][4] = {}, left[4], right[4];
        fetch<PITCH>(left, right, from, count, 0);
        for (int64_t k = 0; k < SIDE::depth; k += STEP) {
            __syncthreads();
#pragma unroll
            for (int j = 0; j < 4; j++) {
                const int i = threadIdx.x + j * THREADS;
                rows[depth_of(i) * PLACE + row_of(i)] = left[j];
                columns[i % STEP * PLACE + i / STEP] = right[j];
            }
            __syncthreads();
            fetch<PITCH>(left, right, from, count, k + STEP);
#pragma unroll
            for (int d = 0; d < STEP; d++) {
                const pack<float, 4> a = get_pack<4>(&rows[d * PLACE + y]), b = get_pack<4>(&columns[d * PLACE + x]);
#pragma unroll
                for (int i = 0; i < 4; i++)
#pragma unroll
                    for (int j = 0; j < 4; j++) sum[i][j] = fmaf(a.item[i], b.item[j], sum[i][j]);
            }
        }
#pragma unroll
        for (int i = 0; i < 4; i++)
#pragma unroll
            for (int j = 0; j < 4; j++) ((float *)area)[(y + i) * SEQUENCES + x + j] = sum[i][j];
    }
    static DEVICE_MEMBER float sum(const char *area, int, int row, int sequence)
    {
        return ((const float *)area)[row * SEQUENCES + sequence];
    }
};

// ---- cells: a thread has two units of a sequence of each pass ----

template <class SHAPE> struct cell_place {
    int64_t unit, first; // of two units; of the tile's sequences
    int count;
    DEVICE_MEMBER cell_place(int group, int tile)
    {
        unit = (int64_t)group * UNITS + threadIdx.x % 8 * 2;
        first = (int64_t)tile * SHAPE::sequences;
        count = (int)(SHAPE::batch - first < SHAPE::sequences ? SHAPE::batch - first : SHAPE::sequences);
        if (count < 0) count = 0; // beyond the last tile
    }
    static DEVICE_MEMBER int row(int gate) { return gate * UNITS + threadIdx.x % 8 * 2; }
    static DEVICE_MEMBER int sequence(int pass) { return pass * PASS + threadIdx.x / 8; }
    DEVICE_MEMBER bool has(int pass) const { return sequence(pass) < count && unit < SHAPE::hidden; }
};

// State of the block's cells, in shared memory: number i of this thread's, of tile `mine` of the block's.
template <class SHAPE> DEVICE float *own_state(char *states, int mine, int i)
{
    return (float *)states + (mine * SHAPE::values + i) * THREADS + threadIdx.x;
}
