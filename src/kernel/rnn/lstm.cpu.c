/* pre = x w_input' for all steps in one product; then step by step pre += h w_hidden' + bias, the gates, c and h.
 * Every operand: any float, row-major.
 *
 * Numerics: real inside; h and c go from step to step unrounded, results are rounded once where they are stored. FMA.
 * Threads: tiles of sequences and units, one ht_parallel per step; a tile makes all four gates of its units, so the cell
 * follows the product while its sums are in L1.
 * Traffic: w_hidden is packed once per call unless it is prepacked, and read once per step and group of sequences, from L2 where it fits;
 * pre lies in the reserve.  Bound: FLOPs. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/rnn/lstm.h"

typedef struct lstm {
    layer l;
    side bias, y, h_end, c_end;
    /* Workspace */
    panel pre;    /* [T,B,4H]; the reserve itself where that is of type real */
    real *packed; /* w_hidden by vector of units, then gates i f and gates g o: slivers of H steps */
    real *real_bias;
    panel h[2], c; /* [B,H]: of the step before and this one */
    void *gemm;
    int64_t step;
    int now; /* which h holds the step before */
} lstm;

static void layout(lstm *job, panel_scratch *scratch)
{
    const layer *l = &job->l;
    job->gemm = scratch->start;
    int64_t gemm =
        gemm_workspace(at_least_one(l->steps * l->batch), l->gates, at_least_one(l->inputs), l->threads, false);
    panel_take(scratch, 1, ht_tiles(gemm, sizeof(real)));
    int64_t rows = job->l.reserve.dtype == HT_REAL_DTYPE ? 0 : l->steps * l->batch;
    job->pre = panel_take(scratch, rows, l->gates);
    job->packed = panel_take(scratch, 4 * l->hidden, round_up(l->hidden, VL)).data;
    job->real_bias = panel_take(scratch, 1, l->gates).data;
    /* An odd number of lines between rows: they do not meet in one cache set. */
    int64_t pitch = round_up(l->hidden, 16) + 16;
    for (int i = 0; i < 2; i++) job->h[i] = panel_take(scratch, l->batch, pitch);
    job->c = panel_take(scratch, l->batch, l->hidden);
}

/* ---- w_hidden ---- */

/* What is prepacked is w_input as gemm_prepack packs it, so many elements, then w_hidden. */
static int64_t prepacked_input(const layer *l)
{
    return round_up(ht_tiles(gemm_prepacked_bytes(l->gates, l->inputs), sizeof(real)), 16);
}

static gemm_side input_weights(const layer *l)
{
    return (gemm_side){.data = l->w_input.data, .dtype = l->w_input.dtype, .down = 1, .across = l->inputs};
}

static real *sliver(const lstm *job, int64_t vector, int pair)
{
    return job->packed + (vector * 2 + pair) * job->l.hidden * PACKED_WIDTH;
}

/* One vector of units: rows of w become columns. Units beyond the last are zero. */
static void pack_units(void *arg, int64_t vector)
{
    const lstm *job = arg;
    int64_t hidden = job->l.hidden, first = vector * VL, units = ht_min_i64(VL, hidden - first);
    real row[VL][UNITS];
    for (int gate = GATE_I; gate <= GATE_O; gate++) {
        real *to = sliver(job, vector, gate / 2) + gate % 2 * VL;
        for (int64_t k = 0; k < hidden; k += UNITS) {
            int64_t n = ht_min_i64(UNITS, hidden - k);
            memset(row, 0, sizeof row);
            for (int64_t u = 0; u < units; u++)
                ht_load(row[u], job->l.w_hidden.data, job->l.w_hidden.dtype, (gate * hidden + first + u) * hidden + k,
                        n);
            for (int64_t i = 0; i < n; i++)
                for (int u = 0; u < VL; u++) to[(k + i) * PACKED_WIDTH + u] = row[u][i];
        }
    }
}

/* ---- a step ---- */

/* What the hidden state adds to the gates of a few sequences, [gate][unit] each. */
typedef struct block {
    _Alignas(64) real sum[PACKED_ROWS][4][UNITS];
} block;

static void multiply_hidden(const lstm *job, block *b, int64_t row, int64_t rows, spot at)
{
    panel h = part(job->h[job->now], row, 0);
    for (int64_t u = 0; u < at.units; u += VL)
        for (int pair = 0; pair < 2; pair++)
            packed_product(&b->sum[0][2 * pair][u], &b->sum[0][2 * pair + 1][u], 4 * UNITS, h.data, h.row,
                           sliver(job, (at.unit + u) / VL, pair), job->l.hidden, rows);
}

/* Gates, cell and h of n units of one sequence; `gate` holds what the hidden state adds and gets the gates. */
static void cells(real gate[4][UNITS], const real *pre, const real *bias, int64_t hidden, real *restrict c,
                  real *restrict h, int64_t n)
{
    real *restrict i = gate[GATE_I], *restrict f = gate[GATE_F], *restrict g = gate[GATE_G], *restrict o = gate[GATE_O];
    for (int64_t j = 0; j < n; j++) {
        i[j] = fn_sigmoid(i[j] + (pre[j] + bias[j]));
        f[j] = fn_sigmoid(f[j] + (pre[j + hidden] + bias[j + hidden]));
        g[j] = fn_tanh(g[j] + (pre[j + 2 * hidden] + bias[j + 2 * hidden]));
        o[j] = fn_sigmoid(o[j] + (pre[j + 3 * hidden] + bias[j + 3 * hidden]));
        c[j] = f[j] * c[j] + i[j] * g[j];
        h[j] = o[j] * fn_tanh(c[j]);
    }
}

static void save_step(const lstm *job, int64_t row, int64_t unit, int64_t n, real gate[4][UNITS], const real *c,
                      const real *y)
{
    side reserve = job->l.reserve;
    int64_t hidden = job->l.hidden, at_reserve = row * RESERVED * hidden + unit;
    for (int p = GATE_I; p <= GATE_O; p++) ht_save(reserve.data, reserve.dtype, at_reserve + p * hidden, gate[p], n);
    ht_save(reserve.data, reserve.dtype, at_reserve + CELL * hidden, c, n);
    ht_save(job->y.data, job->y.dtype, row * hidden + unit, y, n);
}

static void step_tile(void *arg, int64_t tile)
{
    const lstm *job = arg;
    const layer *l = &job->l;
    spot at = spot_of(l, tile);
    block sums;
    for (int64_t first = at.row; first < at.row + at.rows; first += PACKED_ROWS) {
        int64_t rows = ht_min_i64(PACKED_ROWS, at.row + at.rows - first);
        multiply_hidden(job, &sums, first, rows, at);
        for (int64_t r = 0; r < rows; r++) {
            int64_t sequence = first + r, row = job->step * l->batch + sequence;
            real *c = part(job->c, sequence, at.unit).data, *h = part(job->h[!job->now], sequence, at.unit).data;
            if (alive(l, job->step, sequence)) {
                cells(sums.sum[r], part(job->pre, row, at.unit).data, job->real_bias + at.unit, l->hidden, c, h,
                      at.units);
                save_step(job, row, at.unit, at.units, sums.sum[r], c, h);
            } else {
                real zero[4][UNITS] = {{0}};
                memcpy(h, part(job->h[job->now], sequence, at.unit).data, (size_t)at.units * sizeof *h);
                save_step(job, row, at.unit, at.units, zero, zero[0], zero[0]);
            }
        }
    }
}

/* ---- rows ---- */

static void load_state(const lstm *job, panel to, side from)
{
    for (int64_t b = 0; b < job->l.batch; b++)
        ht_load(part(to, b, 0).data, from.data, from.dtype, b * job->l.hidden, job->l.hidden);
}

static void save_state(const lstm *job, side to, panel from)
{
    for (int64_t b = 0; b < job->l.batch; b++)
        ht_save(to.data, to.dtype, b * job->l.hidden, part(from, b, 0).data, job->l.hidden);
}

static ht_status lstm_run(const ht_launch *launch)
{
    lstm job = {.l = layer_of(launch, 6), .bias = input_side(launch, 5)};
    layer *l = &job.l;
    l->reserve = result_side(launch, 3);
    job.y = result_side(launch, 0), job.h_end = result_side(launch, 1), job.c_end = result_side(launch, 2);
    if (l->hidden == 0) return HT_OK;
    layout(&job, &(panel_scratch){launch->workspace, 0});
    if (l->reserve.dtype == HT_REAL_DTYPE) job.pre = (panel){l->reserve.data, RESERVED * l->hidden};
    if (launch->prepacked)
        job.packed = (real *)launch->prepacked + prepacked_input(l);
    else
        ht_parallel(launch->pool, ht_tiles(l->hidden, VL), pack_units, &job);
    gemm_run(&(gemm_job){.a = {.data = l->x.data, .dtype = l->x.dtype, .down = l->inputs, .across = 1},
                         .b = input_weights(l),
                         .m = l->steps * l->batch,
                         .n = l->gates,
                         .k = l->inputs,
                         .y = job.pre.data,
                         .dtype = HT_REAL_DTYPE,
                         .y_down = job.pre.row,
                         .workspace = job.gemm,
                         .threads = l->threads,
                         .prepacked = launch->prepacked},
             launch->pool);
    load_or_zero(job.real_bias, job.bias, 0, l->gates);
    load_state(&job, job.h[0], l->h0);
    load_state(&job, job.c, l->c0);
    for (job.step = 0; job.step < l->steps; job.step++, job.now = !job.now)
        ht_parallel(launch->pool, spots(l), step_tile, &job);
    save_state(&job, job.h_end, job.h[job.now]);
    save_state(&job, job.c_end, job.c);
    return HT_OK;
}

static int64_t lstm_workspace(const ht_call *call, const ht_target *target)
{
    lstm job = {.l = layer_sizes(call)};
    job.l.threads = target->threads;
    job.l.reserve.dtype = call->out[3]->dtype;
    panel_scratch scratch = {NULL, 0};
    if (job.l.hidden > 0) layout(&job, &scratch);
    return scratch.used * (int64_t)sizeof(real);
}

static int64_t lstm_prepack_bytes(const ht_call *call, const ht_target *target)
{
    (void)target;
    layer l = layer_sizes(call);
    if (l.hidden == 0 || l.steps * l.batch > GEMM_PREPACK_ROWS) return 0;
    return (prepacked_input(&l) + 4 * l.hidden * round_up(l.hidden, VL)) * (int64_t)sizeof(real);
}

static ht_status lstm_prepack_make(const ht_launch *launch)
{
    lstm job = {.l = layer_of(launch, 6)};
    gemm_side w_input = input_weights(&job.l);
    gemm_prepack(&w_input, job.l.gates, job.l.inputs, launch->prepacked, launch->pool);
    job.packed = (real *)launch->prepacked + prepacked_input(&job.l);
    ht_parallel(launch->pool, ht_tiles(job.l.hidden, VL), pack_units, &job);
    return HT_OK;
}

static const ht_prepack lstm_prepack = {1u << 3 | 1u << 4, lstm_prepack_bytes, HT_RUN(lstm_prepack_make)};

static const char *lstm_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return lstm_refuse(call);
}

HT_CPU_PREPACK_KERNEL(lstm, lstm, lstm_can, lstm_workspace, lstm_run, &lstm_prepack)
