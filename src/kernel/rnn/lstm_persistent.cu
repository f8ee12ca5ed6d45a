// The steps of lstm and lstm_grad, each as one grid whose blocks stay for all steps. A block makes the four gates of 16
// units for some tiles of sequences. In half it holds its part of w_hidden in registers; what blocks tell each other, h or
// d(gates) of a step, goes through memory that all processors share, and a counter for each tile says who has written.
// Tiles do not meet, so that a block works on one of them while the others' counters are on their way. Sums are f32, in a
// fixed order. Tensor cores read h and d(gates), rounded to the type of the weights.

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
template <class T> DEVICE float sigmoid_as(float x, T) { return __fdividef(1.0f, 1.0f + rough_exp(-x)); }
template <class T> DEVICE float tanh_as(float x, T)
{
    const float square = x * x;
    if (square < 0.01f) return x * (1.0f + square * (square * 0.133333333f - 0.333333333f));
    return 2.0f * __fdividef(1.0f, 1.0f + rough_exp(-2.0f * x)) - 1.0f;
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

// All that the block's threads have written before is seen by whoever waits for the counter: the barrier puts it before
// the release of one thread.
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

// Where the sum of a row and a sequence of a pass lies: neither what the tensor cores' registers hold nor what the cells
// read meets in a bank.
DEVICE int sum_place(int row, int sequence)
{
    return row * PASS + (sequence ^ ((row >> 3 & 1) << 2 | (row >> 1 & 1) << 3 | ((row ^ row >> 2) & 1) << 4));
}

// In half: a warp has a part of the depth, and holds its weights. What a thread reads of h it copies into shared memory
// itself, 16 bytes at a time, which are also what it multiplies: so k runs in another order, for the weights too.
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
            for (int j = 0; j < n; j++) to[SIDE::along_depth ? row * all + k + j : (row + j) * all + k] = values.item[j];
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
                    const pack<uint32_t, 4> words =
                        get_pack<4>((const uint32_t *)((const T *)area + (tile * 16 + row + below * 8) * WARPS * 32 * steps +
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
            for (int n = 0; n < 4; n++)
                copy_16(own + (step * 4 + n) * 512, first + n * 8 * PITCH + step * 32, deep && n * 8 + lane / 4 < count);
            commit_copies();
        }
    }
    // Of every start since then `later` more. Threads meet before they ask for sums.
    template <int64_t PITCH>
    DEVICE_MEMBER void finish(char *area, int slot, int later, const T *, int) const
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
            right[j] = sequence < count && k + i % STEP < SIDE::depth ? __ldcg(from + sequence * PITCH + k + i % STEP) : 0;
        }
    }
    template <int64_t PITCH> DEVICE_MEMBER void start(char *, int, const float *, int) const {}
    template <int64_t PITCH>
    DEVICE_MEMBER void finish(char *area, int, int, const float *from, int count) const
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

// ---- forward ----

struct cell_results {
    float out[2], kept[5][2]; // of two units
};

template <class SHAPE, class Y, class KEPT>
DEVICE void put_cells(const cell_results &r, int64_t row, int64_t unit, Y *y, KEPT *reserve)
{
    put_pair<SHAPE::aligned>(y + row * SHAPE::hidden + unit, r.out[0], r.out[1]);
#pragma unroll
    for (int g = 0; g < 5; g++)
        put_pair<SHAPE::aligned>(reserve + row * SHAPE::reserved + g * SHAPE::hidden + unit, r.kept[g][0], r.kept[g][1]);
}

// From the sums of a unit's gates to its c and h, which are those of the step before where the sequence has ended.
template <class T> DEVICE void make_cell(const float (&gate)[4], bool alive, float *c, float *h, cell_results &r, int j)
{
    for (int g = 0; g < 4; g++) r.kept[g][j] = g == 2 ? tanh_as(gate[g], T()) : sigmoid_as(gate[g], T());
    r.kept[4][j] = r.kept[1][j] * *c + r.kept[0][j] * r.kept[2][j];
    r.out[j] = r.kept[3][j] * tanh_as(r.kept[4][j], T());
    if (alive) {
        *c = r.kept[4][j];
        *h = r.out[j];
        return;
    }
    for (int g = 0; g < 5; g++) r.kept[g][j] = 0;
    r.out[j] = 0;
}

// `pre`: what x adds to the gates, [STEPS·BATCH,4 HIDDEN]. `hidden`: h before and after a step, [2][BATCH,HIDDEN].
template <class SHAPE, class H0, class C0, class W, class BIAS, class LENGTH, class Y, class H, class C, class KEPT>
DEVICE void run_forward(const H0 *h0, const C0 *c0, const W *w_hidden, const BIAS *bias, const LENGTH *lengths,
                        const float *pre, W *hidden, uint32_t *counters, Y *y, H *h_end, C *c_end, KEPT *reserve)
{
    typedef gate_rows<W, SHAPE::hidden, SHAPE::aligned ? 8 : 1> side;
    typedef tile_product<W, side> product_type;
    enum { C_OF, H_OF = 2 * SHAPE::passes };
    constexpr int64_t state_elements = SHAPE::batch * SHAPE::hidden;
    SHARED_BYTES(area);
    char *states = area + product_type::bytes;
    const int group = blockIdx.x % SHAPE::groups, part = blockIdx.x / SHAPE::groups;
    product_type product;
    product.load(area, side{w_hidden, (int64_t)group * UNITS});
    for (int mine = 0, tile = part; tile < SHAPE::tiles; mine++, tile += SHAPE::parts) {
        const cell_place<SHAPE> at(group, tile);
        for (int i = 0; i < 2 * SHAPE::passes; i++) {
            const int64_t of = (at.first + at.sequence(i / 2)) * SHAPE::hidden + at.unit + i % 2;
            if (!at.has(i / 2)) continue;
            const float h = (float)get(h0[of]);
            *own_state<SHAPE>(states, mine, C_OF + i) = (float)get(c0[of]);
            *own_state<SHAPE>(states, mine, H_OF + i) = h;
            put(&hidden[of], h);
        }
        arrive(counters + tile * COUNTER_PITCH);
    }
    for (int64_t step = 0; step < SHAPE::steps; step++)
        for (int mine = 0, base = part; base < SHAPE::tiles; mine += SHAPE::slots, base += SHAPE::slots * SHAPE::parts) {
            const W *before = hidden + step % 2 * state_elements;
            W *after = hidden + (step + 1) % 2 * state_elements;
#pragma unroll
            for (int slot = 0; slot < SHAPE::slots; slot++) {
                const int tile = base + slot * SHAPE::parts;
                const cell_place<SHAPE> at(group, tile);
                if ((int)threadIdx.x / 4 < at.count && (int64_t)group * UNITS < SHAPE::hidden)
                    fetch_ahead(pre + (step * SHAPE::batch + at.first + threadIdx.x / 4) * SHAPE::gates +
                                threadIdx.x % 4 * SHAPE::hidden + (int64_t)group * UNITS);
                if (tile < SHAPE::tiles) wait_for(counters + tile * COUNTER_PITCH, SHAPE::groups * (step + 1));
                product.template start<SHAPE::hidden>(area, slot, before + at.first * SHAPE::hidden, at.count);
            }
#pragma unroll
            for (int slot = 0; slot < SHAPE::slots; slot++) {
                const int tile = base + slot * SHAPE::parts;
                const cell_place<SHAPE> at(group, tile);
                const int64_t row = step * SHAPE::batch + at.first;
                if (tile >= SHAPE::tiles) continue;
                product.template finish<SHAPE::hidden>(area, slot, SHAPE::slots - 1 - slot,
                                                       before + at.first * SHAPE::hidden, at.count);
                float input[SHAPE::passes][4][2];
#pragma unroll
                for (int i = 0; i < 4 * SHAPE::passes; i++)
                    if (at.has(i / 4))
                        get_pair<true>(pre + (row + at.sequence(i / 4)) * SHAPE::gates + i % 4 * SHAPE::hidden + at.unit,
                                       input[i / 4][i % 4]);
                __syncthreads();
                cell_results results[SHAPE::passes];
#pragma unroll
                for (int pass = 0; pass < SHAPE::passes; pass++) {
                    const int sequence = at.sequence(pass);
                    float *c = own_state<SHAPE>(states, mine + slot, C_OF + 2 * pass);
                    float *h = own_state<SHAPE>(states, mine + slot, H_OF + 2 * pass);
                    if (!at.has(pass)) continue;
                    const bool alive = is_alive(lengths, step, at.first + sequence);
#pragma unroll
                    for (int j = 0; j < 2; j++) {
                        float gate[4];
#pragma unroll
                        for (int g = 0; g < 4; g++)
                            gate[g] = product_type::sum(area, slot, at.row(g) + j, sequence) +
                                      (input[pass][g][j] + get_or_zero(bias, g * SHAPE::hidden + at.unit + j));
                        make_cell<W>(gate, alive, c + j * THREADS, h + j * THREADS, results[pass], j);
                    }
                    put_pair<true>(after + (at.first + sequence) * SHAPE::hidden + at.unit, h[0], h[THREADS]);
                }
                arrive(counters + tile * COUNTER_PITCH);
#pragma unroll
                for (int pass = 0; pass < SHAPE::passes; pass++)
                    if (at.has(pass)) put_cells<SHAPE>(results[pass], row + at.sequence(pass), at.unit, y, reserve);
            }
        }
    for (int mine = 0, tile = part; tile < SHAPE::tiles; mine++, tile += SHAPE::parts) {
        const cell_place<SHAPE> at(group, tile);
        for (int i = 0; i < 2 * SHAPE::passes; i++) {
            const int64_t of = (at.first + at.sequence(i / 2)) * SHAPE::hidden + at.unit + i % 2;
            if (!at.has(i / 2)) continue;
            put(&h_end[of], *own_state<SHAPE>(states, mine, H_OF + i));
            put(&c_end[of], *own_state<SHAPE>(states, mine, C_OF + i));
        }
    }
}

// ---- backward ----

// What a step has kept of two units of a sequence that is alive.
struct kept_cells {
    float kept[5][2], before[2], dy[2]; // before: c of the step before
};

template <class SHAPE, class C0, class KEPT, class DY>
DEVICE void get_kept(kept_cells &k, int64_t step, int64_t sequence, int64_t unit, const C0 *c0, const KEPT *reserve,
                     const DY *dy)
{
    const int64_t row = step * SHAPE::batch + sequence, from = row * SHAPE::reserved + unit;
#pragma unroll
    for (int g = 0; g < 5; g++) get_pair<SHAPE::aligned>(reserve + from + g * SHAPE::hidden, k.kept[g]);
    if (step > 0)
        get_pair<SHAPE::aligned>(reserve + from - (SHAPE::batch * 5 - 4) * SHAPE::hidden, k.before);
    else
        get_pair<SHAPE::aligned>(c0 + sequence * SHAPE::hidden + unit, k.before);
    k.dy[0] = k.dy[1] = 0;
    if (dy) get_pair<SHAPE::aligned>(dy + row * SHAPE::hidden + unit, k.dy);
}

// d(gates) of unit j; dc becomes that of the step before. The result is h of this step.
template <class T> DEVICE float slope_cell(const kept_cells &k, int j, float dh, float *dc, float (&slope)[4][2])
{
    const float i = k.kept[0][j], f = k.kept[1][j], g = k.kept[2][j], o = k.kept[3][j];
    const float squashed = tanh_as(k.kept[4][j], T()), out = dh + k.dy[j];
    const float cell = *dc + out * o * (1 - squashed * squashed);
    slope[0][j] = cell * g * (i * (1 - i));
    slope[1][j] = cell * k.before[j] * (f * (1 - f));
    slope[2][j] = cell * i * (1 - g * g);
    slope[3][j] = out * squashed * (o * (1 - o));
    *dc = cell * f;
    return o * squashed;
}

template <class SHAPE, class KEPT, class DY>
DEVICE void fetch_step(int64_t step, const cell_place<SHAPE> &at, int64_t unit, const KEPT *reserve, const DY *dy)
{
    for (int i = threadIdx.x; i < at.count * 6; i += THREADS) {
        const int64_t row = step * SHAPE::batch + at.first + i / 6;
        if (i % 6 < 5)
            fetch_ahead(reserve + row * SHAPE::reserved + i % 6 * SHAPE::hidden + unit);
        else if (dy)
            fetch_ahead(dy + row * SHAPE::hidden + unit);
    }
}

// What four blocks have found out for the units of a quad, [4][ROWS, sequences] for each tile and quad.
template <class SHAPE> DEVICE float *exchange_of(float *exchange, int tile, int group)
{
    return exchange + ((int64_t)tile * (SHAPE::groups / QUAD) + group / QUAD) * (QUAD * ROWS * SHAPE::sequences);
}

template <class SHAPE> DEVICE float read_exchange(const float *exchange, int group, int row, int sequence)
{
    float sum = 0;
#pragma unroll
    for (int q = 0; q < QUAD; q++)
        sum += __ldcg(exchange + (q * ROWS + group % QUAD * UNITS + row) * SHAPE::sequences + sequence);
    return sum;
}

// Step by step, last first: d(gates) from dh and dc, then dh of the step before = d(gates) w_hidden. Four blocks make dh
// of their 64 units, each from one gate, and add up what they found. `counters`: of tiles, then of tiles and quads.
// d_gates [STEPS·BATCH,4 HIDDEN], h_before [STEPS·BATCH,HIDDEN]: zeros where a sequence has ended.
template <class SHAPE, class H0, class C0, class W, class KEPT, class LENGTH, class DY, class DH, class DC, class DH0,
          class DC0>
DEVICE void run_back(const H0 *h0, const C0 *c0, const W *w_hidden, const KEPT *reserve, const LENGTH *lengths,
                     const DY *dy, const DH *dh_end, const DC *dc_end, W *d_gates, W *h_before, float *exchange,
                     float *bias_parts, uint32_t *counters, DH0 *dh0, DC0 *dc0)
{
    typedef unit_columns<W, SHAPE::hidden, SHAPE::aligned ? 8 : 1> side;
    typedef tile_product<W, side> product_type;
    enum { DC_OF, DH_OF = 2 * SHAPE::passes };
    constexpr int quads = SHAPE::groups / QUAD, mine_most = (SHAPE::tiles + SHAPE::parts - 1) / SHAPE::parts;
    SHARED_BYTES(area);
    char *states = area + product_type::bytes;
    float *sums = (float *)states + mine_most * SHAPE::values * THREADS + threadIdx.x; // of d(bias), 8 for each thread
    const int group = blockIdx.x % SHAPE::groups, part = blockIdx.x / SHAPE::groups, quad = group / QUAD;
    uint32_t *quad_counters = counters + (SHAPE::tiles + quad) * COUNTER_PITCH;
    product_type product;
    product.load(area, side{w_hidden, (int64_t)quad * ROWS, group % QUAD});
    for (int i = 0; i < 8; i++) sums[i * THREADS] = 0;
    for (int mine = 0, tile = part; tile < SHAPE::tiles; mine++, tile += SHAPE::parts) {
        const cell_place<SHAPE> at(group, tile);
        for (int i = 0; i < 2 * SHAPE::passes; i++) {
            const int64_t sequence = at.first + at.sequence(i / 2), of = sequence * SHAPE::hidden + at.unit + i % 2;
            if (!at.has(i / 2)) continue;
            *own_state<SHAPE>(states, mine, DC_OF + i) = get_or_zero(dc_end, of);
            *own_state<SHAPE>(states, mine, DH_OF + i) = get_or_zero(dh_end, of);
            put(&h_before[of], is_alive(lengths, 0, sequence) ? (float)get(h0[of]) : 0.0f);
        }
    }
    for (int64_t step = SHAPE::steps - 1; step >= -1; step--) {
        for (int mine = 0, tile = part; tile < SHAPE::tiles; mine++, tile += SHAPE::parts) {
            const cell_place<SHAPE> at(group, tile);
            const float *found = exchange_of<SHAPE>(exchange, tile, group);
            kept_cells kept[SHAPE::passes];
            bool alive[SHAPE::passes];
#pragma unroll
            for (int pass = 0; pass < SHAPE::passes; pass++) {
                const int64_t sequence = at.first + at.sequence(pass);
                alive[pass] = at.has(pass) && step >= 0 && is_alive(lengths, step, sequence);
                if (alive[pass]) get_kept<SHAPE>(kept[pass], step, sequence, at.unit, c0, reserve, dy);
            }
            if (step + 1 < SHAPE::steps)
                wait_for(quad_counters + tile * quads * COUNTER_PITCH, QUAD * (SHAPE::steps - 1 - step));
#pragma unroll
            for (int pass = 0; pass < SHAPE::passes; pass++) {
                const int64_t sequence = at.first + at.sequence(pass), row = step * SHAPE::batch + sequence;
                float *dc = own_state<SHAPE>(states, mine, DC_OF + 2 * pass);
                float *dh = own_state<SHAPE>(states, mine, DH_OF + 2 * pass);
                float slope[4][2] = {}, h[2] = {0, 0};
                if (!at.has(pass)) continue;
                const bool after = step + 1 < SHAPE::steps && is_alive(lengths, step + 1, sequence);
#pragma unroll
                for (int j = 0; j < 2; j++) {
                    if (after)
                        dh[j * THREADS] = read_exchange<SHAPE>(found, group, threadIdx.x % 8 * 2 + j, at.sequence(pass));
                    if (alive[pass]) h[j] = slope_cell<W>(kept[pass], j, dh[j * THREADS], dc + j * THREADS, slope);
                }
                if (step < 0) continue;
#pragma unroll
                for (int g = 0; g < 4; g++) {
                    put_pair<true>(d_gates + row * SHAPE::gates + g * SHAPE::hidden + at.unit, slope[g][0], slope[g][1]);
                    for (int j = 0; j < 2; j++) sums[(2 * g + j) * THREADS] += slope[g][j];
                }
                if (step + 1 < SHAPE::steps)
                    put_pair<true>(h_before + (row + SHAPE::batch) * SHAPE::hidden + at.unit, after ? h[0] : 0.0f,
                                   after ? h[1] : 0.0f);
            }
            if (step >= 0) arrive(counters + tile * COUNTER_PITCH);
        }
        for (int base = part; step >= 0 && base < SHAPE::tiles; base += SHAPE::slots * SHAPE::parts) {
            const W *from = d_gates + step * SHAPE::batch * SHAPE::gates + group % QUAD * SHAPE::hidden;
#pragma unroll
            for (int slot = 0; slot < SHAPE::slots; slot++) {
                const int tile = base + slot * SHAPE::parts;
                const cell_place<SHAPE> at(group, tile);
                if (step > 0 && (int64_t)group * UNITS < SHAPE::hidden)
                    fetch_step<SHAPE>(step - 1, at, (int64_t)group * UNITS, reserve, dy);
                if (tile < SHAPE::tiles) wait_for(counters + tile * COUNTER_PITCH, SHAPE::groups * (SHAPE::steps - step));
                product.template start<SHAPE::gates>(area, slot, from + at.first * SHAPE::gates, at.count);
            }
#pragma unroll
            for (int slot = 0; slot < SHAPE::slots; slot++) {
                const int tile = base + slot * SHAPE::parts;
                const cell_place<SHAPE> at(group, tile);
                float *found = exchange_of<SHAPE>(exchange, tile, group) + group % QUAD * (ROWS * SHAPE::sequences);
                if (tile >= SHAPE::tiles) continue;
                product.template finish<SHAPE::gates>(area, slot, SHAPE::slots - 1 - slot, from + at.first * SHAPE::gates,
                                                      at.count);
                __syncthreads();
                for (int i = threadIdx.x; i < ROWS * SHAPE::sequences; i += THREADS)
                    __stcg(&found[i], product_type::sum(area, slot, i / SHAPE::sequences, i % SHAPE::sequences));
                arrive(quad_counters + tile * quads * COUNTER_PITCH);
            }
        }
    }
    for (int mine = 0, tile = part; tile < SHAPE::tiles; mine++, tile += SHAPE::parts) {
        const cell_place<SHAPE> at(group, tile);
        for (int i = 0; i < 2 * SHAPE::passes; i++) {
            const int64_t of = (at.first + at.sequence(i / 2)) * SHAPE::hidden + at.unit + i % 2;
            if (!at.has(i / 2)) continue;
            put(&dh0[of], *own_state<SHAPE>(states, mine, DH_OF + i));
            put(&dc0[of], *own_state<SHAPE>(states, mine, DC_OF + i));
        }
    }
    __syncthreads();
    if (threadIdx.x < ROWS) { // gate by gate, the sums of the threads that have the same unit
        const int gate = threadIdx.x / UNITS, of = threadIdx.x % UNITS;
        const int64_t unit = (int64_t)group * UNITS + of;
        const float *from = sums - threadIdx.x + (2 * gate + of % 2) * THREADS + of / 2;
        float sum = 0;
        for (int i = 0; i < THREADS / 8; i++) sum += from[i * 8];
        if (unit < SHAPE::hidden) bias_parts[part * SHAPE::gates + gate * SHAPE::hidden + unit] = sum;
    }
}

template <int64_t GATES, int PARTS, class DBIAS> DEVICE void add_bias_parts(const float *parts, DBIAS *dbias)
{
    const int64_t gate = thread_number();
    float sum = 0;
    if (gate >= GATES) return;
    for (int i = 0; i < PARTS; i++) sum += parts[i * GATES + gate];
    put(&dbias[gate], sum);
}

// x with zeros where a sequence has ended, whatever is there: N neighbours for a thread.
template <int64_t ROWS_OF_ALL, int64_t BATCH, int64_t INPUTS, int N, class T, class LENGTH>
DEVICE void copy_alive(const T *x, const LENGTH *lengths, T *to)
{
    const int64_t at = thread_number() * N, row = at / INPUTS;
    if (at >= ROWS_OF_ALL * INPUTS) return;
    pack<T, N> values = get_pack<N>(x + at);
    if (!is_alive(lengths, row / BATCH, row % BATCH))
        for (int i = 0; i < N; i++) put(&values.item[i], 0);
    put_pack<N>(to + at, values);
}
