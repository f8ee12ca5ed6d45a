/* pre = finish(x · w_input) for all steps in one product; then step by step gates = finish(codes of h · w_hidden) + pre, cells, and
 * the codes of the next h.
 * Numerics: sums of codes are exact, all else is f32 in the order of op/lstm_q.c.
 * Threads: the tiles of a product, then sequences.  Traffic: w_hidden once per step, from L2 where it fits; pre is written and read
 * once.  Bound: integer products; with few sequences the bandwidth of what holds w_hidden. */
#include "kernel/rnn/lstm_steps.h"

#include <string.h>

enum { GATES = 4, LINE = 64, INPUT_COUNT = LSTM_Q_INPUTS };

typedef struct extent {
    int64_t steps, batch, inputs, hidden;
} extent;

typedef struct lstm_q {
    const ht_launch *launch;
    const lstm_q_kernel *kernel;
    extent s;
    const void *in[INPUT_COUNT]; /* NULL for what is left out */
    int8_product input, hidden;
    void *packed[2];                    /* of input and hidden */
    float *pre, *gates, *h, *c, *scale; /* [T·B,4H], [B,4H], [B,H] twice, [B] */
    uint8_t *codes;                     /* [B, code_pitch] */
    int64_t code_pitch;
    int64_t step;
} lstm_q;

static int64_t round_up(int64_t n, int64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

static extent extent_of(const ht_call *call)
{
    const ht_type *x = call->in[LSTM_Q_X], *h0 = call->in[LSTM_Q_H0];
    return (extent){x->dim[0], x->dim[1], x->dim[2], h0->dim[1]};
}

static bool has(const ht_call *call, size_t input)
{
    return input < call->n_in && call->in[input];
}

/* ---- products ---- */

static int8_product product_of(const int8_kernel *kernel, int64_t m, int64_t n, int64_t k, const void *w)
{
    return (int8_product){.kernel = kernel,
                          .m = m,
                          .n = n,
                          .k = k,
                          .w = {.data = w, .across = k, .down = 1, .channels = k ? k : 1, .columns = 1},
                          .y_pitch = n,
                          .dtype = HT_F32};
}

static void set_products(lstm_q *job, const ht_call *call, const int8_kernel *kernel)
{
    const extent s = job->s;
    int64_t gates = GATES * s.hidden;
    job->input = product_of(kernel, s.steps * s.batch, gates, s.inputs, job->in[LSTM_Q_W_INPUT]);
    job->hidden = product_of(kernel, s.batch, gates, s.hidden, job->in[LSTM_Q_W_HIDDEN]);
    job->input.is_signed = call->in[LSTM_Q_X]->dtype == HT_I8;
    job->input.row_scales = call->in[LSTM_Q_X_SCALE]->rank > 0;
    job->input.row_zeros = has(call, LSTM_Q_X_ZERO) && call->in[LSTM_Q_X_ZERO]->rank > 0;
    job->input.column_scales = call->in[LSTM_Q_W_INPUT_SCALE]->rank > 0;
    job->hidden.row_scales = true;
    job->hidden.column_scales = call->in[LSTM_Q_W_HIDDEN_SCALE]->rank > 0;
}

/* Before they multiply: what they read and write. */
static void bind_products(lstm_q *job)
{
    static const int32_t shift = INT8_CODE_SHIFT;
    job->input.a = job->in[LSTM_Q_X];
    job->input.a_pitch = job->s.inputs;
    job->input.a_scale = job->in[LSTM_Q_X_SCALE];
    job->input.a_zero = job->in[LSTM_Q_X_ZERO];
    job->input.w_scale = job->in[LSTM_Q_W_INPUT_SCALE];
    job->input.bias = job->in[LSTM_Q_BIAS];
    job->input.y = (char *)job->pre;
    job->hidden.a = job->codes;
    job->hidden.a_pitch = job->code_pitch;
    job->hidden.a_scale = job->scale;
    job->hidden.a_zero = &shift;
    job->hidden.w_scale = job->in[LSTM_Q_W_HIDDEN_SCALE];
    job->hidden.residual_dtype = HT_F32;
    job->hidden.y = (char *)job->gates;
    ht_int8_set_columns(&job->input, job->packed[0], 0, job->input.n);
    ht_int8_set_columns(&job->hidden, job->packed[1], 0, job->hidden.n);
}

/* ---- memory ---- */

/* Bytes, each part a multiple of a cache line; with no start it only counts. */
static void *take(char *start, int64_t *used, int64_t bytes)
{
    void *at = start ? start + *used : NULL;
    *used += round_up(bytes, LINE);
    return at;
}

static int64_t pack_at(lstm_q *job, char *start, int64_t used)
{
    job->packed[0] = take(start, &used, ht_int8_packed_bytes(job->input.kernel, job->input.n, job->input.k));
    job->packed[1] = take(start, &used, ht_int8_packed_bytes(job->hidden.kernel, job->hidden.n, job->hidden.k));
    return used;
}

static int64_t lay_out(lstm_q *job, char *start)
{
    const extent s = job->s;
    int64_t used = 0, row = GATES * s.hidden * (int64_t)sizeof(float),
            states = s.batch * s.hidden * (int64_t)sizeof(float);
    /* Rows of codes do not meet in one cache set. */
    job->code_pitch = round_up(s.hidden, LINE) + LINE;
    job->pre = take(start, &used, s.steps * s.batch * row);
    job->gates = take(start, &used, s.batch * row);
    job->h = take(start, &used, states);
    job->c = take(start, &used, states);
    job->scale = take(start, &used, s.batch * (int64_t)sizeof(float));
    job->codes = take(start, &used, s.batch * job->code_pitch);
    return used;
}

static lstm_q job_of(const ht_call *call, const int8_kernel *kernel, const ht_launch *launch)
{
    lstm_q job = {.launch = launch, .s = extent_of(call)};
    for (size_t i = 0; i < INPUT_COUNT; i++) job.in[i] = launch && has(call, i) ? launch->in[i] : NULL;
    set_products(&job, call, kernel);
    return job;
}

int64_t ht_lstm_q_workspace(const ht_call *call, const int8_kernel *kernel)
{
    lstm_q job = job_of(call, kernel, NULL);
    return pack_at(&job, NULL, lay_out(&job, NULL));
}

int64_t ht_lstm_q_prepack_bytes(const ht_call *call, const int8_kernel *kernel)
{
    lstm_q job = job_of(call, kernel, NULL);
    return pack_at(&job, NULL, 0);
}

static void pack(lstm_q *job, ht_pool *pool)
{
    ht_int8_set_columns(&job->input, job->packed[0], 0, job->input.n);
    ht_int8_set_columns(&job->hidden, job->packed[1], 0, job->hidden.n);
    ht_int8_pack(&job->input, pool);
    ht_int8_pack(&job->hidden, pool);
}

void ht_lstm_q_prepack(const ht_launch *launch, const int8_kernel *kernel)
{
    lstm_q job = job_of(launch->call, kernel, launch);
    pack_at(&job, launch->prepacked, 0);
    pack(&job, launch->pool);
}

/* ---- steps ---- */

static lstm_q_row row_of(const lstm_q *job, int64_t sequence)
{
    int64_t hidden = job->s.hidden;
    return (lstm_q_row){.hidden = hidden,
                        .gates = job->gates + sequence * GATES * hidden,
                        .h = job->h + sequence * hidden,
                        .c = job->c + sequence * hidden,
                        .codes = job->codes + sequence * job->code_pitch,
                        .scale = job->scale + sequence};
}

static bool alive(const lstm_q *job, int64_t sequence)
{
    const void *lengths = job->in[LSTM_Q_LENGTHS];
    if (!lengths) return true;
    return (double)job->step < ht_load_f64(lengths, job->launch->call->in[LSTM_Q_LENGTHS]->dtype, sequence);
}

/* n numbers from element `first` of a result on, rounded once where it is no f32; from NULL: zeros. */
static void store(const lstm_q *job, size_t result, int64_t first, const float *from, int64_t n)
{
    ht_dtype dtype = job->launch->call->out[result]->dtype;
    if (dtype == HT_F32 && from)
        memcpy((float *)job->launch->out[result] + first, from, (size_t)n * sizeof *from);
    else
        for (int64_t j = 0; j < n; j++)
            ht_store_f64(job->launch->out[result], dtype, first + j, from ? (double)from[j] : 0);
}

static void code_first(void *arg, int64_t sequence)
{
    const lstm_q *job = arg;
    lstm_q_row row = row_of(job, sequence);
    job->kernel->code(&row);
}

static void finish_sequence(void *arg, int64_t sequence)
{
    const lstm_q *job = arg;
    int64_t first = (job->step * job->s.batch + sequence) * job->s.hidden;
    lstm_q_row row = row_of(job, sequence);
    bool steps = alive(job, sequence);
    if (steps) job->kernel->cells(&row);
    store(job, 0, first, steps ? row.h : NULL, job->s.hidden);
}

static void run_steps(lstm_q *job, ht_pool *pool, int threads)
{
    int64_t batch = job->s.batch, gates = GATES * job->s.hidden;
    ht_int8_multiply(&job->input, pool, threads);
    ht_parallel(pool, batch, code_first, job);
    for (job->step = 0; job->step < job->s.steps; job->step++) {
        job->hidden.residual = (const char *)(job->pre + job->step * batch * gates);
        ht_int8_multiply(&job->hidden, pool, threads);
        ht_parallel(pool, batch, finish_sequence, job);
    }
}

/* ---- rows ---- */

void ht_lstm_q_run(const ht_launch *launch, const lstm_q_kernel *kernel)
{
    lstm_q job = job_of(launch->call, kernel->gemm, launch);
    size_t states = (size_t)(job.s.batch * job.s.hidden) * sizeof(float);
    if (states == 0) return;
    job.kernel = kernel;
    int64_t used = lay_out(&job, launch->workspace);
    if (launch->prepacked)
        pack_at(&job, launch->prepacked, 0);
    else
        pack_at(&job, launch->workspace, used);
    if (!launch->prepacked) pack(&job, launch->pool);
    bind_products(&job);
    memcpy(job.h, job.in[LSTM_Q_H0], states);
    memcpy(job.c, job.in[LSTM_Q_C0], states);
    if (job.s.steps > 0) run_steps(&job, launch->pool, launch->threads);
    store(&job, 1, 0, job.h, job.s.batch * job.s.hidden);
    store(&job, 2, 0, job.c, job.s.batch * job.s.hidden);
}

const char *ht_lstm_q_can(const ht_call *call)
{
    const double most = 0x1p50; /* bytes */
    const char *reason = ht_refuse_strided(call);
    extent s = extent_of(call);
    double rows = ((double)s.steps + 2) * ((double)s.batch + 1), hidden = (double)s.hidden + LINE;
    if (!reason && 64 * (rows + hidden + (double)s.inputs) * hidden >= most)
        reason = "the workspace would pass 2^50 bytes";
    return reason;
}
