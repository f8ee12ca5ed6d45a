/* Step by step, last first: dh = d(gates of the step after) w_hidden, then d(gates) from dh and dc; at the end dx, dw and
 * dbias from the gates' gradients of all steps, one product each.
 * Every operand: any float, row-major.
 *
 * Numerics: real inside; dh and dc go from step to step unrounded, results are rounded once. h of the step before is made
 * from the reserve: o tanh(c). FMA.
 * Threads: tiles of sequences and units, one ht_parallel per step: d(gates) of a unit needs dh of that unit alone.
 * Traffic: w_hidden is packed once per call, and read once per step and group of sequences, from L2 where it fits.
 * Bound: FLOPs. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/rnn/lstm.h"

typedef struct lstm_grad {
    layer l;
    side dy, dh, dc, dx, dh0, dc0, dw_input, dw_hidden, dbias;
    /* Workspace */
    panel pre;      /* [T,B,4H]: gradients of the gates before sigmoid and tanh; zeros where a sequence has ended */
    panel h_before; /* [T,B,H]; zeros where a sequence has ended */
    real *packed;   /* w_hidden as slivers of 4H steps */
    panel h, c;     /* [B,H]: dh and dc */
    void *gemm;
    int64_t step;
} lstm_grad;

static int64_t gemm_bytes(const layer *l)
{
    int64_t rows = at_least_one(l->steps * l->batch), inputs = at_least_one(l->inputs);
    int64_t dx = gemm_workspace(rows, inputs, l->gates, l->threads, false);
    int64_t dw_input = gemm_workspace(l->gates, inputs, rows, l->threads, true);
    int64_t dw_hidden = gemm_workspace(l->gates, l->hidden, rows, l->threads, true);
    int64_t most = dx > dw_input ? dx : dw_input;
    return most > dw_hidden ? most : dw_hidden;
}

static void layout(lstm_grad *job, panel_scratch *scratch)
{
    const layer *l = &job->l;
    job->gemm = scratch->start;
    panel_take(scratch, 1, ht_tiles(gemm_bytes(l), sizeof(real)));
    /* An odd number of lines between rows: they do not meet in one cache set. */
    job->pre = panel_take(scratch, l->steps * l->batch, round_up(l->gates, 32) + 16);
    job->h_before = panel_take(scratch, l->steps * l->batch, l->hidden);
    job->packed = panel_take(scratch, l->gates, round_up(l->hidden, PACKED_WIDTH)).data;
    job->h = panel_take(scratch, l->batch, l->hidden);
    job->c = panel_take(scratch, l->batch, l->hidden);
}

static real *sliver(const lstm_grad *job, int64_t unit)
{
    return job->packed + unit * job->l.gates;
}

static void pack_sliver(void *arg, int64_t tile)
{
    const lstm_grad *job = arg;
    const layer *l = &job->l;
    int64_t unit = tile * PACKED_WIDTH, n = ht_min_i64(PACKED_WIDTH, l->hidden - unit);
    real *to = sliver(job, unit);
    if (n < PACKED_WIDTH) memset(to, 0, (size_t)(l->gates * PACKED_WIDTH) * sizeof *to);
    for (int64_t k = 0; k < l->gates; k++)
        ht_load(to + k * PACKED_WIDTH, l->w_hidden.data, l->w_hidden.dtype, k * l->hidden + unit, n);
}

/* ---- a step ---- */

/* What the reserve keeps of n units of one step and sequence. */
typedef struct memory {
    real reserved[RESERVED][UNITS], c_before[UNITS];
} memory;

static void recall(const lstm_grad *job, memory *m, int64_t sequence, int64_t unit, int64_t n)
{
    const layer *l = &job->l;
    int64_t from = (job->step * l->batch + sequence) * RESERVED * l->hidden + unit;
    for (int p = GATE_I; p < RESERVED; p++)
        ht_load(m->reserved[p], l->reserve.data, l->reserve.dtype, from + p * l->hidden, n);
    if (job->step == 0)
        ht_load(m->c_before, l->c0.data, l->c0.dtype, sequence * l->hidden + unit, n);
    else
        ht_load(m->c_before, l->reserve.data, l->reserve.dtype, from - (l->batch * RESERVED - CELL) * l->hidden, n);
}

/* d(gates) into `to`; dc becomes that of the step before; h is this step's. */
static void cells_grad(const memory *m, const real *restrict dh, const real *restrict dy, real *restrict dc, real *to,
                       int64_t hidden, real *restrict h, int64_t n)
{
    real *restrict di = to + GATE_I * hidden, *restrict df = to + GATE_F * hidden;
    real *restrict dg = to + GATE_G * hidden, *restrict d_o = to + GATE_O * hidden;
    for (int64_t j = 0; j < n; j++) {
        real i = m->reserved[GATE_I][j], f = m->reserved[GATE_F][j], g = m->reserved[GATE_G][j],
             o = m->reserved[GATE_O][j];
        real squashed = fn_tanh(m->reserved[CELL][j]), out = dh[j] + dy[j];
        real cell = dc[j] + out * o * (1 - squashed * squashed);
        di[j] = cell * g * (i * (1 - i));
        df[j] = cell * m->c_before[j] * (f * (1 - f));
        dg[j] = cell * i * (1 - g * g);
        d_o[j] = out * squashed * (o * (1 - o));
        dc[j] = cell * f;
        h[j] = o * squashed;
    }
}

static void gates_grad(const lstm_grad *job, int64_t sequence, int64_t unit, int64_t n)
{
    const layer *l = &job->l;
    int64_t row = job->step * l->batch + sequence;
    real *to = part(job->pre, row, unit).data, *after = part(job->h_before, row + l->batch, unit).data;
    real dy[UNITS], h[UNITS];
    if (alive(l, job->step, sequence)) {
        memory m;
        recall(job, &m, sequence, unit, n);
        load_or_zero(dy, job->dy, row * l->hidden + unit, n);
        cells_grad(&m, part(job->h, sequence, unit).data, dy, part(job->c, sequence, unit).data, to, l->hidden, h, n);
    } else {
        panel_zero((panel){to, l->hidden}, 4, n);
    }
    if (job->step + 1 == l->steps) return;
    if (!alive(l, job->step + 1, sequence)) memset(h, 0, sizeof h);
    memcpy(after, h, (size_t)n * sizeof *h);
}

/* dh of the step before; a sequence that has ended keeps it. */
static void hidden_grad(const lstm_grad *job, int64_t first, int64_t rows, int64_t unit, int64_t units)
{
    const layer *l = &job->l;
    _Alignas(64) real sum[PACKED_ROWS][UNITS];
    panel from = part(job->pre, (job->step + 1) * l->batch + first, 0);
    for (int64_t u = 0; u < units; u += PACKED_WIDTH)
        packed_product(&sum[0][u], &sum[0][u + VL], UNITS, from.data, from.row, sliver(job, unit + u), l->gates, rows);
    for (int64_t r = 0; r < rows; r++)
        if (alive(l, job->step + 1, first + r))
            memcpy(part(job->h, first + r, unit).data, sum[r], (size_t)units * sizeof(real));
}

/* Step -1 is what comes before the first: dh alone. */
static void step_tile(void *arg, int64_t tile)
{
    const lstm_grad *job = arg;
    spot at = spot_of(&job->l, tile);
    for (int64_t first = at.row; first < at.row + at.rows; first += PACKED_ROWS) {
        int64_t rows = ht_min_i64(PACKED_ROWS, at.row + at.rows - first);
        if (job->step + 1 < job->l.steps) hidden_grad(job, first, rows, at.unit, at.units);
        for (int64_t r = 0; job->step >= 0 && r < rows; r++) gates_grad(job, first + r, at.unit, at.units);
    }
}

/* ---- after the last step ---- */

/* Rows of x [T·B,I]; what padding holds beyond a length does not matter. */
static void load_alive(const gemm_side *from, real *to, int64_t pitch, int64_t row, int64_t rows, int64_t column,
                       int64_t columns)
{
    const layer *l = from->more;
    for (int64_t r = row; r < row + rows; r++, to += pitch) {
        if (alive(l, r / l->batch, r % l->batch))
            ht_load(to, l->x.data, l->x.dtype, r * l->inputs + column, columns);
        else
            memset(to, 0, (size_t)columns * sizeof *to);
    }
}

static void bias_grad(void *arg, int64_t tile)
{
    const lstm_grad *job = arg;
    int64_t column = tile * COLUMNS, n = ht_min_i64(COLUMNS, job->l.gates - column);
    real sum[COLUMNS] = {0};
    for (int64_t row = 0; row < job->l.steps * job->l.batch; row++) {
        const real *from = part(job->pre, row, column).data;
        for (int64_t j = 0; j < n; j++) sum[j] += from[j];
    }
    ht_save(job->dbias.data, job->dbias.dtype, column, sum, n);
}

static void products(const lstm_grad *job)
{
    const layer *l = &job->l;
    ht_pool *pool = l->launch->pool;
    int64_t rows = l->steps * l->batch;
    gemm_job dx = {.a = real_matrix(job->pre, job->pre.row, 1), .workspace = job->gemm, .threads = l->threads};
    dx.b = (gemm_side){.data = l->w_input.data, .dtype = l->w_input.dtype, .down = l->inputs, .across = 1};
    dx.m = rows, dx.n = l->inputs, dx.k = l->gates;
    dx.y = job->dx.data, dx.dtype = job->dx.dtype, dx.y_down = l->inputs;
    gemm_run(&dx, pool);
    gemm_job dw = {.a = real_matrix(job->pre, 1, job->pre.row), .workspace = job->gemm, .threads = l->threads};
    dw.m = l->gates, dw.k = rows;
    dw.b = (gemm_side){.data = l->x.data, .dtype = l->x.dtype, .down = l->inputs, .across = 1};
    if (l->lengths.data) dw.b.load = load_alive, dw.b.more = l;
    dw.n = l->inputs, dw.y = job->dw_input.data, dw.dtype = job->dw_input.dtype, dw.y_down = l->inputs;
    gemm_run(&dw, pool);
    dw.b = real_matrix(job->h_before, l->hidden, 1);
    dw.n = l->hidden, dw.y = job->dw_hidden.data, dw.dtype = job->dw_hidden.dtype, dw.y_down = l->hidden;
    gemm_run(&dw, pool);
    ht_parallel(pool, ht_tiles(l->gates, COLUMNS), bias_grad, (void *)(uintptr_t)job);
}

/* ---- rows ---- */

static ht_status lstm_grad_run(const ht_launch *launch)
{
    lstm_grad job = {.l = layer_of(launch, 6)};
    layer *l = &job.l;
    l->reserve = input_side(launch, 5);
    job.dy = input_side(launch, 7), job.dh = input_side(launch, 8), job.dc = input_side(launch, 9);
    job.dx = result_side(launch, 0), job.dh0 = result_side(launch, 1), job.dc0 = result_side(launch, 2);
    job.dw_input = result_side(launch, 3), job.dw_hidden = result_side(launch, 4), job.dbias = result_side(launch, 5);
    if (l->hidden == 0) {
        int64_t bytes = ht_type_bytes(launch->call->out[0]);
        if (bytes > 0) memset(job.dx.data, 0, (size_t)bytes);
        return HT_OK;
    }
    layout(&job, &(panel_scratch){launch->workspace, 0});
    ht_parallel(launch->pool, ht_tiles(l->hidden, PACKED_WIDTH), pack_sliver, &job);
    int64_t states = l->batch * l->hidden;
    load_or_zero(job.h.data, job.dh, 0, states);
    load_or_zero(job.c.data, job.dc, 0, states);
    for (int64_t b = 0; l->steps > 0 && b < l->batch; b++)
        load_or_zero(part(job.h_before, b, 0).data, alive(l, 0, b) ? l->h0 : (side){NULL, HT_F32}, b * l->hidden,
                     l->hidden);
    for (job.step = l->steps - 1; job.step >= -1; job.step--) ht_parallel(launch->pool, spots(l), step_tile, &job);
    ht_save(job.dh0.data, job.dh0.dtype, 0, job.h.data, states);
    ht_save(job.dc0.data, job.dc0.dtype, 0, job.c.data, states);
    products(&job);
    return HT_OK;
}

static int64_t lstm_grad_workspace(const ht_call *call, const ht_target *target)
{
    lstm_grad job = {.l = layer_sizes(call)};
    job.l.threads = target->threads;
    panel_scratch scratch = {NULL, 0};
    if (job.l.hidden > 0) layout(&job, &scratch);
    return scratch.used * (int64_t)sizeof(real);
}

static const char *lstm_grad_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return lstm_refuse(call);
}

HT_CPU_KERNEL(lstm_grad, lstm_grad_can, lstm_grad_workspace, lstm_grad_run)
