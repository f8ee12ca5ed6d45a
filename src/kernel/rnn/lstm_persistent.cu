// lstm, by tiles and blocks that wait for each other (lstm_tiles.cu).

struct cell_results {
    float out[2], kept[5][2]; // of two units
};

template <class SHAPE, class Y, class KEPT>
DEVICE void put_cells(const cell_results &r, int64_t row, int64_t unit, Y *y, KEPT *reserve)
{
    put_pair<SHAPE::aligned>(y + row * SHAPE::hidden + unit, r.out[0], r.out[1]);
#pragma unroll
    for (int g = 0; g < 5; g++)
        put_pair<SHAPE::aligned>(reserve + row * SHAPE::reserved + g * SHAPE::hidden + unit, r.kept[g][0],
                                 r.kept[g][1]);
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
template <class SHAPE, class H0, class C0, class BIAS, class LENGTH, class Y, class H, class C, class KEPT>
struct forward_steps {
    typedef typename SHAPE::type T;
    typedef gate_rows<T, SHAPE::hidden, SHAPE::aligned ? 8 : 1> side;
    typedef tile_product<T, side> product_type;
    typedef cell_place<SHAPE> place;
    enum { C_OF, H_OF = 2 * SHAPE::passes };
    const H0 *h0;
    const C0 *c0;
    const BIAS *bias;
    const LENGTH *lengths;
    const float *pre;
    T *hidden;
    uint32_t *counters;
    Y *y;
    H *h_end;
    C *c_end;
    KEPT *reserve;
    char *area, *states;
    int group, part;

    DEVICE_MEMBER T *hidden_at(int64_t step, const place &at) const
    {
        return hidden + (step % 2 * SHAPE::batch + at.first) * SHAPE::hidden;
    }
    DEVICE_MEMBER void begin() const
    {
        for (int mine = 0, tile = part; tile < SHAPE::tiles; mine++, tile += SHAPE::parts) {
            const place at(group, tile);
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
    }
    DEVICE_MEMBER void fetch_inputs(int64_t step, const place &at) const
    {
        const int64_t unit = (int64_t)group * UNITS;
        if ((int)threadIdx.x / 4 < at.count && unit < SHAPE::hidden)
            fetch_ahead(pre + (step * SHAPE::batch + at.first + threadIdx.x / 4) * SHAPE::gates +
                        threadIdx.x % 4 * SHAPE::hidden + unit);
    }
    // Two units of one sequence, from the sums of a slot.
    DEVICE_MEMBER void make_cells(int64_t step, const place &at, int pass, int slot, int mine,
                                  const float (&input)[4][2], cell_results &r) const
    {
        const int sequence = at.sequence(pass);
        float *c = own_state<SHAPE>(states, mine, C_OF + 2 * pass);
        float *h = own_state<SHAPE>(states, mine, H_OF + 2 * pass);
        const bool alive = is_alive(lengths, step, at.first + sequence);
#pragma unroll
        for (int j = 0; j < 2; j++) {
            float gate[4];
#pragma unroll
            for (int g = 0; g < 4; g++)
                gate[g] = product_type::sum(area, slot, at.row(g) + j, sequence) +
                          (input[g][j] + get_or_zero(bias, g * SHAPE::hidden + at.unit + j));
            make_cell<T>(gate, alive, c + j * THREADS, h + j * THREADS, r, j);
        }
        put_pair<true>(hidden_at(step + 1, at) + sequence * SHAPE::hidden + at.unit, h[0], h[THREADS]);
    }
    // What the others wait for comes first.
    DEVICE_MEMBER void finish_tile(int64_t step, int tile, int slot, int mine, const product_type &product) const
    {
        const place at(group, tile);
        const int64_t row = step * SHAPE::batch + at.first;
        float input[SHAPE::passes][4][2];
        cell_results results[SHAPE::passes];
        product.template finish<SHAPE::hidden>(area, slot, SHAPE::slots - 1 - slot, hidden_at(step, at), at.count);
#pragma unroll
        for (int i = 0; i < 4 * SHAPE::passes; i++)
            if (at.has(i / 4))
                get_pair<true>(pre + (row + at.sequence(i / 4)) * SHAPE::gates + i % 4 * SHAPE::hidden + at.unit,
                               input[i / 4][i % 4]);
        __syncthreads();
#pragma unroll
        for (int pass = 0; pass < SHAPE::passes; pass++)
            if (at.has(pass)) make_cells(step, at, pass, slot, mine, input[pass], results[pass]);
        arrive(counters + tile * COUNTER_PITCH);
#pragma unroll
        for (int pass = 0; pass < SHAPE::passes; pass++)
            if (at.has(pass)) put_cells<SHAPE>(results[pass], row + at.sequence(pass), at.unit, y, reserve);
    }
    // Tiles `base` and, with two slots, the block's next one.
    DEVICE_MEMBER void run_tiles(int64_t step, int base, int mine, const product_type &product) const
    {
#pragma unroll
        for (int slot = 0; slot < SHAPE::slots; slot++) {
            const int tile = base + slot * SHAPE::parts;
            const place at(group, tile);
            fetch_inputs(step, at);
            if (tile < SHAPE::tiles) wait_for(counters + tile * COUNTER_PITCH, SHAPE::groups * (step + 1));
            product.template start<SHAPE::hidden>(area, slot, hidden_at(step, at), at.count);
        }
#pragma unroll
        for (int slot = 0; slot < SHAPE::slots; slot++)
            if (base + slot * SHAPE::parts < SHAPE::tiles)
                finish_tile(step, base + slot * SHAPE::parts, slot, mine + slot, product);
    }
    DEVICE_MEMBER void end() const
    {
        for (int mine = 0, tile = part; tile < SHAPE::tiles; mine++, tile += SHAPE::parts) {
            const place at(group, tile);
            for (int i = 0; i < 2 * SHAPE::passes; i++) {
                const int64_t of = (at.first + at.sequence(i / 2)) * SHAPE::hidden + at.unit + i % 2;
                if (!at.has(i / 2)) continue;
                put(&h_end[of], *own_state<SHAPE>(states, mine, H_OF + i));
                put(&c_end[of], *own_state<SHAPE>(states, mine, C_OF + i));
            }
        }
    }
};

template <class SHAPE, class H0, class C0, class W, class BIAS, class LENGTH, class Y, class H, class C, class KEPT>
DEVICE void run_forward(const H0 *h0, const C0 *c0, const W *w_hidden, const BIAS *bias, const LENGTH *lengths,
                        const float *pre, W *hidden, uint32_t *counters, Y *y, H *h_end, C *c_end, KEPT *reserve)
{
    typedef forward_steps<SHAPE, H0, C0, BIAS, LENGTH, Y, H, C, KEPT> steps_type;
    typedef typename steps_type::product_type product_type;
    SHARED_BYTES(area);
    const int group = blockIdx.x % SHAPE::groups, part = blockIdx.x / SHAPE::groups;
    const steps_type steps = {
        h0,    c0,  bias, lengths, pre, hidden, counters, y, h_end, c_end, reserve, area, area + product_type::bytes,
        group, part};
    product_type product;
    product.load(area, {w_hidden, (int64_t)group * UNITS});
    steps.begin();
    for (int64_t step = 0; step < SHAPE::steps; step++)
        for (int mine = 0, base = part; base < SHAPE::tiles; mine += SHAPE::slots, base += SHAPE::slots * SHAPE::parts)
            steps.run_tiles(step, base, mine, product);
    steps.end();
}
