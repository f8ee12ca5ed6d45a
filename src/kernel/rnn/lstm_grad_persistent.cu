// lstm_grad, by tiles and blocks that wait for each other (lstm_tiles.cu).

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
    const int kind = threadIdx.x % 8;
#pragma unroll
    for (int pass = 0; pass < SHAPE::passes; pass++) {
        const int64_t row = step * SHAPE::batch + at.first + at.sequence(pass);
        if (at.sequence(pass) >= at.count) continue;
        if (kind < 5)
            fetch_ahead(reserve + row * SHAPE::reserved + kind * SHAPE::hidden + unit);
        else if (kind == 5 && dy)
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

// Step by step, last first: d(gates) from dh and dc, then dh of the step before = d(gates) w_hidden. Four blocks make
// dh of their 64 units, each from one gate, and add up what they found. `counters`: of tiles, then of tiles and quads.
// d_gates [STEPS·BATCH,4 HIDDEN], h_before [STEPS·BATCH,HIDDEN]: zeros where a sequence has ended.
template <class SHAPE, class H0, class C0, class KEPT, class LENGTH, class DY, class DH, class DC, class DH0, class DC0>
struct back_steps {
    typedef typename SHAPE::type T;
    typedef unit_columns<T, SHAPE::hidden, SHAPE::aligned ? 8 : 1> side;
    typedef tile_product<T, side> product_type;
    typedef cell_place<SHAPE> place;
    enum { DC_OF, DH_OF = 2 * SHAPE::passes };
    static constexpr int quads = SHAPE::groups / QUAD, mine_most = (SHAPE::tiles + SHAPE::parts - 1) / SHAPE::parts;
    const H0 *h0;
    const C0 *c0;
    const KEPT *reserve;
    const LENGTH *lengths;
    const DY *dy;
    const DH *dh_end;
    const DC *dc_end;
    T *d_gates, *h_before;
    float *exchange, *bias_parts;
    uint32_t *counters;
    DH0 *dh0;
    DC0 *dc0;
    char *area, *states;
    int group, part;

    // Of d(bias): 8 for each thread.
    DEVICE_MEMBER float *bias_sums() const { return (float *)states + mine_most * SHAPE::values * THREADS; }
    DEVICE_MEMBER uint32_t *quad_counter(int tile) const
    {
        return counters + (SHAPE::tiles + tile * quads + group / QUAD) * COUNTER_PITCH;
    }
    DEVICE_MEMBER void begin() const
    {
        for (int i = 0; i < 8; i++) bias_sums()[i * THREADS + threadIdx.x] = 0;
        for (int mine = 0, tile = part; tile < SHAPE::tiles; mine++, tile += SHAPE::parts) {
            const place at(group, tile);
            for (int i = 0; i < 2 * SHAPE::passes; i++) {
                const int64_t sequence = at.first + at.sequence(i / 2), of = sequence * SHAPE::hidden + at.unit + i % 2;
                if (!at.has(i / 2)) continue;
                *own_state<SHAPE>(states, mine, DC_OF + i) = get_or_zero(dc_end, of);
                *own_state<SHAPE>(states, mine, DH_OF + i) = get_or_zero(dh_end, of);
                put(&h_before[of], is_alive(lengths, 0, sequence) ? (float)get(h0[of]) : 0.0f);
            }
        }
    }
    // dh of two units of a sequence, then their d(gates). Step -1 is what comes before the first: dh alone.
    DEVICE_MEMBER void make_cells(int64_t step, const place &at, int tile, int pass, int mine, bool alive,
                                  const kept_cells &kept) const
    {
        const int64_t sequence = at.first + at.sequence(pass), row = step * SHAPE::batch + sequence;
        const float *found = exchange_of<SHAPE>(exchange, tile, group);
        const bool after = step + 1 < SHAPE::steps && is_alive(lengths, step + 1, sequence);
        float *dc = own_state<SHAPE>(states, mine, DC_OF + 2 * pass);
        float *dh = own_state<SHAPE>(states, mine, DH_OF + 2 * pass);
        float slope[4][2] = {}, h[2] = {0, 0};
#pragma unroll
        for (int j = 0; j < 2; j++) {
            if (after) dh[j * THREADS] = read_exchange<SHAPE>(found, group, threadIdx.x % 8 * 2 + j, at.sequence(pass));
            if (alive) h[j] = slope_cell<T>(kept, j, dh[j * THREADS], dc + j * THREADS, slope);
        }
        if (step < 0) return;
#pragma unroll
        for (int g = 0; g < 4; g++) {
            put_pair<true>(d_gates + row * SHAPE::gates + g * SHAPE::hidden + at.unit, slope[g][0], slope[g][1]);
            for (int j = 0; j < 2; j++) bias_sums()[(2 * g + j) * THREADS + threadIdx.x] += slope[g][j];
        }
        if (step + 1 < SHAPE::steps)
            put_pair<true>(h_before + (row + SHAPE::batch) * SHAPE::hidden + at.unit, after ? h[0] : 0.0f,
                           after ? h[1] : 0.0f);
    }
    DEVICE_MEMBER void run_cells(int64_t step, int tile, int mine) const
    {
        const place at(group, tile);
        kept_cells kept[SHAPE::passes];
        bool alive[SHAPE::passes];
#pragma unroll
        for (int pass = 0; pass < SHAPE::passes; pass++) {
            const int64_t sequence = at.first + at.sequence(pass);
            alive[pass] = at.has(pass) && step >= 0 && is_alive(lengths, step, sequence);
            if (alive[pass]) get_kept<SHAPE>(kept[pass], step, sequence, at.unit, c0, reserve, dy);
        }
        if (step + 1 < SHAPE::steps) wait_for(quad_counter(tile), QUAD * (SHAPE::steps - 1 - step));
#pragma unroll
        for (int pass = 0; pass < SHAPE::passes; pass++)
            if (at.has(pass)) make_cells(step, at, tile, pass, mine, alive[pass], kept[pass]);
        if (step >= 0) arrive(counters + tile * COUNTER_PITCH);
    }
    // Tiles `base` and, with two slots, the block's next one.
    DEVICE_MEMBER void run_products(int64_t step, int base, const product_type &product) const
    {
        const T *from = d_gates + step * SHAPE::batch * SHAPE::gates + group % QUAD * SHAPE::hidden;
#pragma unroll
        for (int slot = 0; slot < SHAPE::slots; slot++) {
            const int tile = base + slot * SHAPE::parts;
            const place at(group, tile);
            if (step > 0 && (int64_t)group * UNITS < SHAPE::hidden)
                fetch_step<SHAPE>(step - 1, at, (int64_t)group * UNITS, reserve, dy);
            if (tile < SHAPE::tiles) wait_for(counters + tile * COUNTER_PITCH, SHAPE::groups * (SHAPE::steps - step));
            product.template start<SHAPE::gates>(area, slot, from + at.first * SHAPE::gates, at.count);
        }
#pragma unroll
        for (int slot = 0; slot < SHAPE::slots; slot++) {
            const int tile = base + slot * SHAPE::parts;
            const place at(group, tile);
            float *found = exchange_of<SHAPE>(exchange, tile, group) + group % QUAD * (ROWS * SHAPE::sequences);
            if (tile >= SHAPE::tiles) continue;
            product.template finish<SHAPE::gates>(area, slot, SHAPE::slots - 1 - slot, from + at.first * SHAPE::gates,
                                                  at.count);
            __syncthreads();
#pragma unroll 2
            for (int i = threadIdx.x; i < ROWS * SHAPE::sequences; i += THREADS)
                __stcg(&found[i], product_type::sum(area, slot, i / SHAPE::sequences, i % SHAPE::sequences));
            arrive(quad_counter(tile));
        }
    }
    DEVICE_MEMBER void end() const
    {
        for (int mine = 0, tile = part; tile < SHAPE::tiles; mine++, tile += SHAPE::parts) {
            const place at(group, tile);
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
            const float *from = bias_sums() + (2 * gate + of % 2) * THREADS + of / 2;
            float sum = 0;
            for (int i = 0; i < THREADS / 8; i++) sum += from[i * 8];
            if (unit < SHAPE::hidden) bias_parts[part * SHAPE::gates + gate * SHAPE::hidden + unit] = sum;
        }
    }
};

template <class SHAPE, class H0, class C0, class W, class KEPT, class LENGTH, class DY, class DH, class DC, class DH0,
          class DC0>
DEVICE void run_back(const H0 *h0, const C0 *c0, const W *w_hidden, const KEPT *reserve, const LENGTH *lengths,
                     const DY *dy, const DH *dh_end, const DC *dc_end, W *d_gates, W *h_before, float *exchange,
                     float *bias_parts, uint32_t *counters, DH0 *dh0, DC0 *dc0)
{
    typedef back_steps<SHAPE, H0, C0, KEPT, LENGTH, DY, DH, DC, DH0, DC0> steps_type;
    typedef typename steps_type::product_type product_type;
    SHARED_BYTES(area);
    const int group = blockIdx.x % SHAPE::groups, part = blockIdx.x / SHAPE::groups;
    const steps_type steps = {h0,       c0,       reserve,    lengths,  dy,  dh_end, dc_end, d_gates,
                              h_before, exchange, bias_parts, counters, dh0, dc0,    area,   area + product_type::bytes,
                              group,    part};
    product_type product;
    product.load(area, {w_hidden, (int64_t)(group / QUAD) * ROWS, group % QUAD});
    steps.begin();
    for (int64_t step = SHAPE::steps - 1; step >= -1; step--) {
        for (int mine = 0, tile = part; tile < SHAPE::tiles; mine++, tile += SHAPE::parts)
            steps.run_cells(step, tile, mine);
        for (int base = part; step >= 0 && base < SHAPE::tiles; base += SHAPE::slots * SHAPE::parts)
            steps.run_products(step, base, product);
    }
    steps.end();
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
