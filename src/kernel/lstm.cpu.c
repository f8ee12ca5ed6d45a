/* Forward   pre = x w_input' + bias for all steps at once; then step by step pre += h w_hidden', the gates, c and h.
 * Backward  step by step, last first: d(gates) from dh and dc, dh = d(gates) w_hidden; then dx, dw and dbias at once.
 * Every operand: any float, row-major.
 *
 * Numerics: real inside; h and c go from step to step unrounded, results are rounded once where they are stored. Weight
 * gradients sum over steps and sequences in ascending order. h of the step before is made from the reserve: o tanh(c).
 * Threads: tiles of rows and columns; one ht_parallel per step forward, two backward.
 * Traffic: w_hidden once per step and tile of sequences.  Bound: compute for long batches, else w_hidden's bandwidth.
 */
#include "kernel/cpu.h"
#include "kernel/panel.h"
#include "op/op.h"

enum { ROWS = 16, UNITS = 64, COLUMNS = 128, DEPTH = 64, WEIGHT_ROWS = 32 };
enum { GATE_I, GATE_F, GATE_G, GATE_O, CELL, KEPT };

/* An operand or a result; data is NULL where an input is left out. */
typedef struct side {
    void *data;
    ht_dtype dtype;
} side;

typedef struct lstm {
    const ht_launch *launch;
    int64_t steps, batch, inputs, hidden, gates; /* gates: 4 hidden */
    side x, h0, c0, w_input, w_hidden, lengths, reserve;
    /* Workspace. Forward the weights lie transposed: [I,4H] and [H,4H]; backward as they are. */
    panel real_w_input, real_w_hidden;
    panel pre;     /* [T,B,4H]: forward before and after the gates, backward their gradients */
    panel h[2], c; /* [B,H]: of this step and the next, or their gradients */
    int64_t step;
    int now; /* which h holds the step before */
    /* Forward */
    side bias, y, h_end, c_end;
    /* Backward */
    panel h_before; /* [T,B,H] */
    side dy, dh, dc, dx, dh0, dc0, dw_input, dw_hidden, dbias;
} lstm;

static side input_side(const ht_launch *launch, size_t input)
{
    if (input >= launch->call->n_in || !launch->call->in[input]) return (side){NULL, HT_F32};
    return (side){(void *)(uintptr_t)launch->in[input], launch->call->in[input]->dtype};
}

static side result_side(const ht_launch *launch, size_t result)
{
    return (side){launch->out[result], launch->call->out[result]->dtype};
}

static lstm sizes_of(const ht_call *call)
{
    const ht_type *x = call->in[0], *h0 = call->in[1];
    return (lstm){
        .steps = x->dim[0], .batch = x->dim[1], .inputs = x->dim[2], .hidden = h0->dim[1], .gates = 4 * h0->dim[1]};
}

static lstm job_of(const ht_launch *launch, size_t lengths)
{
    lstm job = sizes_of(launch->call);
    job.launch = launch;
    job.x = input_side(launch, 0), job.h0 = input_side(launch, 1), job.c0 = input_side(launch, 2);
    job.w_input = input_side(launch, 3), job.w_hidden = input_side(launch, 4);
    job.lengths = input_side(launch, lengths);
    return job;
}

static bool alive(const lstm *job, int64_t step, int64_t sequence)
{
    return !job->lengths.data || step < ht_load_int(job->lengths.data, job->lengths.dtype, sequence);
}

/* n values from element `start`, or zeros where the input is left out. */
static void load_or_zero(real *to, side from, int64_t start, int64_t n)
{
    if (from.data)
        ht_load(to, from.data, from.dtype, start, n);
    else
        memset(to, 0, (size_t)n * sizeof *to);
}

/* A tile of a matrix: rows and columns counted by `tile` with columns running fastest. */
typedef struct spot {
    int64_t row, rows, column, columns;
} spot;

static spot spot_of(int64_t tile, int64_t row_count, int64_t row_grain, int64_t column_count, int64_t column_grain)
{
    int64_t across = ht_tiles(column_count, column_grain);
    spot at = {.row = tile / across * row_grain, .column = tile % across * column_grain};
    at.rows = ht_min_i64(row_grain, row_count - at.row);
    at.columns = ht_min_i64(column_grain, column_count - at.column);
    return at;
}

static void parallel_spots(const lstm *job, int64_t row_count, int64_t row_grain, int64_t column_count,
                           int64_t column_grain, ht_tile_fn fn)
{
    ht_parallel(job->launch->pool, ht_tiles(row_count, row_grain) * ht_tiles(column_count, column_grain), fn,
                (void *)(uintptr_t)job);
}

static panel part(panel whole, int64_t row, int64_t column)
{
    return (panel){whole.data + row * whole.row + column, whole.row};
}

static void save_part(side to, int64_t to_row, spot at, panel from)
{
    for (int64_t i = 0; i < at.rows; i++)
        ht_save(to.data, to.dtype, (at.row + i) * to_row + at.column, from.data + i * from.row, at.columns);
}

/* ---- forward ---- */

static void forward_layout(lstm *job, panel_room *room)
{
    job->real_w_input = panel_take(room, job->inputs, job->gates);
    job->real_w_hidden = panel_take(room, job->hidden, job->gates);
    job->pre = panel_take(room, job->steps * job->batch, job->gates);
    job->h[0] = panel_take(room, job->batch, job->hidden);
    job->h[1] = panel_take(room, job->batch, job->hidden);
    job->c = panel_take(room, job->batch, job->hidden);
}

/* Columns `at` of w [4H, depth], transposed. */
static void weights_across(side w, int64_t depth, panel to, spot at)
{
    real row[DEPTH];
    for (int64_t n = at.row; n < at.row + at.rows; n++) {
        ht_load(row, w.data, w.dtype, n * depth + at.column, at.columns);
        for (int64_t k = 0; k < at.columns; k++) to.data[(at.column + k) * to.row + n] = row[k];
    }
}

static void w_input_across(void *arg, int64_t tile)
{
    const lstm *job = arg;
    spot at = spot_of(tile, job->gates, ROWS, job->inputs, DEPTH);
    weights_across(job->w_input, job->inputs, job->real_w_input, at);
}

static void w_hidden_across(void *arg, int64_t tile)
{
    const lstm *job = arg;
    spot at = spot_of(tile, job->gates, ROWS, job->hidden, DEPTH);
    weights_across(job->w_hidden, job->hidden, job->real_w_hidden, at);
}

static void project_input(void *arg, int64_t tile)
{
    const lstm *job = arg;
    spot at = spot_of(tile, job->steps * job->batch, ROWS, job->gates, COLUMNS);
    real x[ROWS * DEPTH];
    panel to = part(job->pre, at.row, at.column);
    for (int64_t i = 0; i < at.rows; i++) load_or_zero(to.data + i * to.row, job->bias, at.column, at.columns);
    for (int64_t k = 0; k < job->inputs; k += DEPTH) {
        int64_t depth = ht_min_i64(DEPTH, job->inputs - k);
        for (int64_t i = 0; i < at.rows; i++)
            ht_load(x + i * DEPTH, job->x.data, job->x.dtype, (at.row + i) * job->inputs + k, depth);
        panel_product(to, x, DEPTH, 1, part(job->real_w_input, k, at.column), at.rows, depth, at.columns);
    }
}

/* Gates, cell and h of n units of one sequence; `pre` is at the first unit of the first gate and gets the gates. */
static void cells(real *pre, int64_t hidden, real *restrict c, real *restrict h, int64_t n)
{
    real *restrict i = pre + GATE_I * hidden, *restrict f = pre + GATE_F * hidden;
    real *restrict g = pre + GATE_G * hidden, *restrict o = pre + GATE_O * hidden;
    for (int64_t j = 0; j < n; j++) {
        i[j] = fn_sigmoid(i[j]);
        f[j] = fn_sigmoid(f[j]);
        g[j] = fn_tanh(g[j]);
        o[j] = fn_sigmoid(o[j]);
        c[j] = f[j] * c[j] + i[j] * g[j];
        h[j] = o[j] * fn_tanh(c[j]);
    }
}

static void save_step(const lstm *job, int64_t row, int64_t unit, int64_t n, const real *pre, const real *c,
                      const real *y)
{
    int64_t kept = row * KEPT * job->hidden + unit;
    for (int gate = GATE_I; gate <= GATE_O; gate++)
        ht_save(job->reserve.data, job->reserve.dtype, kept + gate * job->hidden, pre + gate * job->hidden, n);
    ht_save(job->reserve.data, job->reserve.dtype, kept + CELL * job->hidden, c, n);
    ht_save(job->y.data, job->y.dtype, row * job->hidden + unit, y, n);
}

static void clear_step(const lstm *job, int64_t row, int64_t unit, int64_t n)
{
    real zero[UNITS] = {0};
    for (int part_of = GATE_I; part_of < KEPT; part_of++)
        ht_save(job->reserve.data, job->reserve.dtype, (row * KEPT + part_of) * job->hidden + unit, zero, n);
    ht_save(job->y.data, job->y.dtype, row * job->hidden + unit, zero, n);
}

/* One step of a tile of sequences and units. */
static void forward_step(void *arg, int64_t tile)
{
    const lstm *job = arg;
    spot at = spot_of(tile, job->batch, ROWS, job->hidden, UNITS);
    int64_t first = job->step * job->batch + at.row;
    panel before = part(job->h[job->now], at.row, 0);
    for (int gate = GATE_I; gate <= GATE_O; gate++) {
        int64_t column = gate * job->hidden + at.column;
        panel_product(part(job->pre, first, column), before.data, before.row, 1, part(job->real_w_hidden, 0, column),
                      at.rows, job->hidden, at.columns);
    }
    for (int64_t i = 0; i < at.rows; i++) {
        real *pre = part(job->pre, first + i, at.column).data, *c = part(job->c, at.row + i, at.column).data;
        real *h = part(job->h[!job->now], at.row + i, at.column).data;
        if (alive(job, job->step, at.row + i)) {
            cells(pre, job->hidden, c, h, at.columns);
            save_step(job, first + i, at.column, at.columns, pre, c, h);
        } else {
            memcpy(h, before.data + i * before.row + at.column, (size_t)at.columns * sizeof *h);
            clear_step(job, first + i, at.column, at.columns);
        }
    }
}

static void lstm_run(const ht_launch *launch)
{
    lstm job = job_of(launch, 6);
    job.bias = input_side(launch, 5);
    job.y = result_side(launch, 0), job.h_end = result_side(launch, 1), job.c_end = result_side(launch, 2);
    job.reserve = result_side(launch, 3);
    if (job.hidden == 0) return;
    forward_layout(&job, &(panel_room){launch->workspace, 0});
    int64_t states = job.batch * job.hidden;
    parallel_spots(&job, job.gates, ROWS, job.inputs, DEPTH, w_input_across);
    parallel_spots(&job, job.gates, ROWS, job.hidden, DEPTH, w_hidden_across);
    parallel_spots(&job, job.steps * job.batch, ROWS, job.gates, COLUMNS, project_input);
    ht_load(job.h[0].data, job.h0.data, job.h0.dtype, 0, states);
    ht_load(job.c.data, job.c0.data, job.c0.dtype, 0, states);
    for (job.step = 0; job.step < job.steps; job.step++, job.now = !job.now)
        parallel_spots(&job, job.batch, ROWS, job.hidden, UNITS, forward_step);
    ht_save(job.h_end.data, job.h_end.dtype, 0, job.h[job.now].data, states);
    ht_save(job.c_end.data, job.c_end.dtype, 0, job.c.data, states);
}

/* ---- backward ---- */

static void backward_layout(lstm *job, panel_room *room)
{
    job->real_w_input = panel_take(room, job->gates, job->inputs);
    job->real_w_hidden = panel_take(room, job->gates, job->hidden);
    job->pre = panel_take(room, job->steps * job->batch, job->gates);
    job->h_before = panel_take(room, job->steps * job->batch, job->hidden);
    job->h[0] = panel_take(room, job->batch, job->hidden);
    job->h[1] = panel_take(room, job->batch, job->hidden);
    job->c = panel_take(room, job->batch, job->hidden);
}

static void load_weights(void *arg, int64_t tile)
{
    const lstm *job = arg;
    spot at = spot_of(tile, job->gates, ROWS, 1, 1);
    ht_load(part(job->real_w_input, at.row, 0).data, job->w_input.data, job->w_input.dtype, at.row * job->inputs,
            at.rows * job->inputs);
    ht_load(part(job->real_w_hidden, at.row, 0).data, job->w_hidden.data, job->w_hidden.dtype, at.row * job->hidden,
            at.rows * job->hidden);
}

/* h before every step, zeros beyond the length. */
static void remember(void *arg, int64_t tile)
{
    const lstm *job = arg;
    spot at = spot_of(tile, job->steps * job->batch, ROWS, job->hidden, UNITS);
    real cell[UNITS];
    for (int64_t row = at.row; row < at.row + at.rows; row++) {
        int64_t sequence = row % job->batch, step = row / job->batch;
        int64_t kept = (row - job->batch) * KEPT * job->hidden + at.column;
        real *h = part(job->h_before, row, at.column).data;
        if (!alive(job, step, sequence)) {
            memset(h, 0, (size_t)at.columns * sizeof *h);
        } else if (step == 0) {
            ht_load(h, job->h0.data, job->h0.dtype, sequence * job->hidden + at.column, at.columns);
        } else {
            ht_load(h, job->reserve.data, job->reserve.dtype, kept + GATE_O * job->hidden, at.columns);
            ht_load(cell, job->reserve.data, job->reserve.dtype, kept + CELL * job->hidden, at.columns);
            for (int64_t j = 0; j < at.columns; j++) h[j] *= fn_tanh(cell[j]);
        }
    }
}

/* d(gates) of n units of one sequence and step, into `to`; dc becomes that of the step before. */
static void cells_grad(real kept[KEPT][UNITS], const real *c_before, const real *restrict dh, const real *restrict dy,
                       real *restrict dc, real *to, int64_t hidden, int64_t n)
{
    real *restrict di = to + GATE_I * hidden, *restrict df = to + GATE_F * hidden;
    real *restrict dg = to + GATE_G * hidden, *restrict d_o = to + GATE_O * hidden;
    for (int64_t j = 0; j < n; j++) {
        real i = kept[GATE_I][j], f = kept[GATE_F][j], g = kept[GATE_G][j], o = kept[GATE_O][j];
        real squashed = fn_tanh(kept[CELL][j]), out = dh[j] + dy[j];
        real cell = dc[j] + out * o * (1 - squashed * squashed);
        di[j] = cell * g * (i * (1 - i));
        df[j] = cell * c_before[j] * (f * (1 - f));
        dg[j] = cell * i * (1 - g * g);
        d_o[j] = out * squashed * (o * (1 - o));
        dc[j] = cell * f;
    }
}

static void backward_gates(void *arg, int64_t tile)
{
    const lstm *job = arg;
    spot at = spot_of(tile, job->batch, ROWS, job->hidden, UNITS);
    real kept[KEPT][UNITS], c_before[UNITS], dy[UNITS];
    for (int64_t b = at.row; b < at.row + at.rows; b++) {
        int64_t row = job->step * job->batch + b, from = row * KEPT * job->hidden + at.column;
        real *to = part(job->pre, row, at.column).data;
        if (!alive(job, job->step, b)) {
            panel_zero((panel){to, job->hidden}, 4, at.columns);
            continue;
        }
        for (int p = GATE_I; p < KEPT; p++)
            ht_load(kept[p], job->reserve.data, job->reserve.dtype, from + p * job->hidden, at.columns);
        if (job->step == 0)
            ht_load(c_before, job->c0.data, job->c0.dtype, b * job->hidden + at.column, at.columns);
        else
            ht_load(c_before, job->reserve.data, job->reserve.dtype, from - (job->batch * KEPT - CELL) * job->hidden,
                    at.columns);
        load_or_zero(dy, job->dy, row * job->hidden + at.column, at.columns);
        cells_grad(kept, c_before, part(job->h[job->now], b, at.column).data, dy, part(job->c, b, at.column).data, to,
                   job->hidden, at.columns);
    }
}

/* dh of the step before; a sequence that has ended hands it on. */
static void backward_hidden(void *arg, int64_t tile)
{
    const lstm *job = arg;
    spot at = spot_of(tile, job->batch, ROWS, job->hidden, UNITS);
    panel to = part(job->h[!job->now], at.row, at.column);
    panel_zero(to, at.rows, at.columns);
    panel_product(to, part(job->pre, job->step * job->batch + at.row, 0).data, job->gates, 1,
                  part(job->real_w_hidden, 0, at.column), at.rows, job->gates, at.columns);
    for (int64_t i = 0; i < at.rows; i++)
        if (!alive(job, job->step, at.row + i))
            memcpy(to.data + i * to.row, part(job->h[job->now], at.row + i, at.column).data,
                   (size_t)at.columns * sizeof(real));
}

static void input_grad(void *arg, int64_t tile)
{
    const lstm *job = arg;
    spot at = spot_of(tile, job->steps * job->batch, ROWS, job->inputs, COLUMNS);
    real sum[ROWS * COLUMNS] = {0};
    panel_product((panel){sum, COLUMNS}, part(job->pre, at.row, 0).data, job->gates, 1,
                  part(job->real_w_input, 0, at.column), at.rows, job->gates, at.columns);
    save_part(job->dx, job->inputs, at, (panel){sum, COLUMNS});
}

/* Rows `at.row` and on of d(gates)' times `from` [T,B,width]. What padding holds beyond a length does not matter. */
static void weight_grad(const lstm *job, side from, int64_t width, side to, spot at)
{
    real sum[WEIGHT_ROWS * DEPTH] = {0}, side_rows[ROWS * DEPTH];
    int64_t count = job->steps * job->batch;
    for (int64_t row = 0; row < count; row += ROWS) {
        int64_t rows = ht_min_i64(ROWS, count - row);
        for (int64_t r = 0; r < rows; r++) {
            real *into = side_rows + r * DEPTH;
            if (alive(job, (row + r) / job->batch, (row + r) % job->batch))
                ht_load(into, from.data, from.dtype, (row + r) * width + at.column, at.columns);
            else
                memset(into, 0, (size_t)at.columns * sizeof *into);
        }
        panel_product((panel){sum, DEPTH}, part(job->pre, row, at.row).data, 1, job->gates, (panel){side_rows, DEPTH},
                      at.rows, rows, at.columns);
    }
    save_part(to, width, at, (panel){sum, DEPTH});
}

static void w_input_grad(void *arg, int64_t tile)
{
    const lstm *job = arg;
    weight_grad(job, job->x, job->inputs, job->dw_input, spot_of(tile, job->gates, WEIGHT_ROWS, job->inputs, DEPTH));
}

static void w_hidden_grad(void *arg, int64_t tile)
{
    const lstm *job = arg;
    side h = {job->h_before.data, sizeof(real) == sizeof(float) ? HT_F32 : HT_F64};
    weight_grad(job, h, job->hidden, job->dw_hidden, spot_of(tile, job->gates, WEIGHT_ROWS, job->hidden, DEPTH));
}

static void bias_grad(void *arg, int64_t tile)
{
    const lstm *job = arg;
    spot at = spot_of(tile, 1, 1, job->gates, COLUMNS);
    real sum[COLUMNS] = {0};
    for (int64_t row = 0; row < job->steps * job->batch; row++) {
        const real *from = part(job->pre, row, at.column).data;
        for (int64_t j = 0; j < at.columns; j++) sum[j] += from[j];
    }
    ht_save(job->dbias.data, job->dbias.dtype, at.column, sum, at.columns);
}

static void lstm_grad_run(const ht_launch *launch)
{
    lstm job = job_of(launch, 6);
    job.reserve = input_side(launch, 5);
    job.dy = input_side(launch, 7), job.dh = input_side(launch, 8), job.dc = input_side(launch, 9);
    job.dx = result_side(launch, 0), job.dh0 = result_side(launch, 1), job.dc0 = result_side(launch, 2);
    job.dw_input = result_side(launch, 3), job.dw_hidden = result_side(launch, 4), job.dbias = result_side(launch, 5);
    if (job.hidden == 0) {
        int64_t bytes = ht_type_bytes(launch->call->out[0]);
        if (bytes > 0) memset(job.dx.data, 0, (size_t)bytes);
        return;
    }
    backward_layout(&job, &(panel_room){launch->workspace, 0});
    int64_t states = job.batch * job.hidden, rows = job.steps * job.batch;
    parallel_spots(&job, job.gates, ROWS, 1, 1, load_weights);
    parallel_spots(&job, rows, ROWS, job.hidden, UNITS, remember);
    load_or_zero(job.h[0].data, job.dh, 0, states);
    load_or_zero(job.c.data, job.dc, 0, states);
    for (job.step = job.steps - 1; job.step >= 0; job.step--, job.now = !job.now) {
        parallel_spots(&job, job.batch, ROWS, job.hidden, UNITS, backward_gates);
        parallel_spots(&job, job.batch, ROWS, job.hidden, UNITS, backward_hidden);
    }
    ht_save(job.dh0.data, job.dh0.dtype, 0, job.h[job.now].data, states);
    ht_save(job.dc0.data, job.dc0.dtype, 0, job.c.data, states);
    parallel_spots(&job, rows, ROWS, job.inputs, COLUMNS, input_grad);
    parallel_spots(&job, job.gates, WEIGHT_ROWS, job.inputs, DEPTH, w_input_grad);
    parallel_spots(&job, job.gates, WEIGHT_ROWS, job.hidden, DEPTH, w_hidden_grad);
    parallel_spots(&job, 1, 1, job.gates, COLUMNS, bias_grad);
}

/* ---- rows ---- */

static int64_t lstm_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    lstm job = sizes_of(call);
    panel_room room = {NULL, 0};
    if (job.hidden > 0) forward_layout(&job, &room);
    return room.used * (int64_t)sizeof(real);
}

static int64_t lstm_grad_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    lstm job = sizes_of(call);
    panel_room room = {NULL, 0};
    if (job.hidden > 0) backward_layout(&job, &room);
    return room.used * (int64_t)sizeof(real);
}

static const char *lstm_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = ht_refuse_real(call);
    if (!reason) reason = ht_refuse_strided(call);
    if (reason) return reason;
    lstm job = sizes_of(call);
    double rows = (double)job.steps * (double)job.batch, states = (double)job.batch * (double)job.hidden;
    double reals = (double)job.gates * (double)(job.inputs + job.hidden) + 5 * rows * (double)job.hidden + 3 * states;
    return reals < 0x1p50 ? NULL : "the workspace would pass 2^50 numbers";
}

HT_CPU_KERNEL(lstm, lstm_can, lstm_workspace, lstm_run)
HT_CPU_KERNEL(lstm_grad, lstm_can, lstm_grad_workspace, lstm_grad_run)
