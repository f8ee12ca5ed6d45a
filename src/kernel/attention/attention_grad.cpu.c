/* p = exp(s - lse), s = scale q k', hidden keys -inf; ds = p (dy v' - delta), delta = sum dy y;
 * dv = p' dy, dk = scale ds' q, dq = scale ds k.
 * q, y, dy [B,H,Tq,D or Dv], k, v [B,G,Tk,D or Dv]: any float, any strides but 1 along the last axis.
 *
 * Numerics: real inside, one rounding at the end; the order of every sum depends on sizes alone. FMA.
 * Threads: (sequence, group, part of the keys), where each part sums a dq of its own and the parts are added in order:
 * one part where there are enough groups. Work is dealt to a fixed number of slots, each with its buffers in the
 * workspace.
 * Traffic: q and dy once per tile of keys; scores are computed once.  Bound: compute. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/attention/attention_job.h"
#include "kernel/attention/attention_tile.h"
#include "kernel/lanes.h"

enum { ENOUGH = 16 }; /* pieces of work: with fewer groups than that, keys are cut into parts */

typedef struct backward_buffers {
    real *q, *dy, *k, *v, *keys_across, *values_across, *dk, *dv, *weight, *slope;
} backward_buffers;

static backward_buffers backward_layout(int64_t width, int64_t value_width, scratch *from)
{
    backward_buffers to;
    to.q = take_rows(from, QUERIES, width);
    to.dy = take_rows(from, QUERIES, value_width);
    to.k = take_rows(from, KEYS, width);
    to.v = take_rows(from, KEYS, value_width);
    to.keys_across = take(from, KEYS * whole_vectors(width));
    to.values_across = take(from, KEYS * whole_vectors(value_width));
    to.dk = take(from, KEYS * whole_vectors(width));
    to.dv = take(from, KEYS * whole_vectors(value_width));
    to.weight = take(from, (int64_t)QUERIES * KEYS);
    to.slope = take(from, (int64_t)QUERIES * KEYS);
    return to;
}

/* Into how many parts the keys of a group are cut, so that there is enough to share out. */
static int64_t parts_of(const ht_type *k)
{
    int64_t groups = k->dim[0] * k->dim[1], parts = groups < ENOUGH ? ENOUGH / (groups > 0 ? groups : 1) : 1;
    int64_t tiles = ht_tiles(k->dim[2], KEYS);
    return tiles < 1 ? 1 : ht_min_i64(parts, tiles);
}

/* Of one head in one part of dq. */
static int64_t head_reals(int64_t queries, int64_t width)
{
    return ht_tiles(queries, QUERIES) * QUERIES * whole_vectors(width);
}

static real *dq_of(const attention *job, int64_t part, int64_t batch, int64_t head)
{
    return job->dq + ((part * job->batch + batch) * job->heads + head) * head_reals(job->queries, job->width);
}

/* delta of one tile of queries. */
static void delta_tile(void *arg, int64_t tile)
{
    const attention *job = arg;
    spot at = query_spot(job, tile, QUERIES);
    real *delta = job->delta + query_row(job, &at), left[SLAB], right[SLAB];
    for (int64_t i = 0; i < at.queries; i++) {
        int64_t y_start = row_start(&job->y, at.batch, at.head, at.query + i);
        int64_t dy_start = row_start(&job->dy, at.batch, at.head, at.query + i);
        ht_lanes lanes = {{0}};
        for (int64_t d = 0; d < job->value_width; d += SLAB) {
            int64_t n = ht_min_i64(SLAB, job->value_width - d);
            const real *y = ht_view(left, job->y.data, job->y.dtype, y_start + d, n);
            const real *dy = ht_view(right, job->dy.data, job->dy.dtype, dy_start + d, n);
            ht_lanes_add_products(&lanes, 0, y, dy, 0, n);
        }
        delta[i] = ht_lanes_total(&lanes);
    }
}

/* sum[j, d] += sum over queries i of weight[i, j] x[i, d], where x lies in slabs of QUERIES rows. */
TILE_FUNCTION void sum_over_queries(real *sum, int64_t pitch, const real *weight, const real *x, int64_t width,
                                    const extent *e)
{
    int64_t first = 0;
    for (int64_t j = 0; j < e->keys; j += MR) {
        while (first < e->queries && e->end[first] <= j) first++;
        for (int64_t d = 0; d < width; d += SLAB)
            strip(sum + j * pitch + d, pitch, weight + first * KEYS + j, 1, KEYS, x + d * QUERIES + first * SLAB, SLAB,
                  e->queries - first, ht_min_i64(SLAB, width - d), true);
    }
}

/* Scores and dp become weights p and slopes ds. */
static void weigh(const attention *job, const backward_buffers *to, const spot *at, const sight *seen)
{
    int64_t row = query_row(job, at);
    real lse[QUERIES];
    ht_load(lse, job->lse, job->lse_dtype, row, at->queries);
    for (int64_t i = 0; i < at->queries; i++) {
        vec *p = (vec *)(to->weight + i * KEYS), *ds = (vec *)(to->slope + i * KEYS);
        real delta = job->delta[row + i], base = lse[i] * (real)LOG2_E;
        int64_t n = base != -(real)INFINITY ? hide(seen, i, to->weight + i * KEYS) / VL : 0;
        for (int64_t v = 0; v < n; v++) {
            p[v] = power_of_two(p[v] - base);
            ds[v] = p[v] * (ds[v] - delta);
        }
        for (int64_t v = n; v < KEYS / VL; v++) p[v] = ds[v] = (vec){0};
    }
}

/* What one tile of queries and the loaded tile of keys add to dq, dk and dv. */
static void backward_tile(const attention *job, const backward_buffers *to, const spot *at, real *dq)
{
    sight seen;
    if (!look(job, at, &seen)) return;
    int64_t pitch = whole_vectors(job->width), value_pitch = whole_vectors(job->value_width);
    load_queries(to->q, &job->q, at, job->width);
    load_queries(to->dy, &job->dy, at, job->value_width);
    score_product(to->weight, to->q, to->keys_across, job->width, &seen.e);
    score_product(to->slope, to->dy, to->values_across, job->value_width, &seen.e);
    weigh(job, to, at, &seen);
    sum_over_queries(to->dv, value_pitch, to->weight, to->dy, job->value_width, &seen.e);
    sum_over_queries(to->dk, pitch, to->slope, to->q, job->width, &seen.e);
    sum_over_keys(dq + at->query * pitch, pitch, to->slope, to->k, job->width, &seen.e);
}

/* Times `factor`. */
static void save_rows(const attention *job, size_t result, int64_t first_row, int64_t count, real *from, int64_t width,
                      real factor)
{
    const ht_launch *launch = job->launch;
    const ht_type *type = launch->call->out[result];
    int64_t pitch = whole_vectors(width);
    for (int64_t i = 0; i < count * pitch; i++) from[i] *= factor;
    for (int64_t i = 0; i < count; i++)
        ht_save(launch->out[result], type->dtype, result_start(type, first_row + i), from + i * pitch, width);
}

/* dk and dv of one tile of keys, over all heads of its group, and what it adds to their dq. */
static void backward_keys(const attention *job, const backward_buffers *to, spot at, int64_t part)
{
    int64_t share = job->heads / job->groups, count = ht_min_i64(KEYS, job->keys - at.key), seen = at.length - at.key;
    at.keys = seen < 0 ? 0 : ht_min_i64(count, seen);
    memset(to->dk, 0, (size_t)(KEYS * whole_vectors(job->width)) * sizeof *to->dk);
    memset(to->dv, 0, (size_t)(KEYS * whole_vectors(job->value_width)) * sizeof *to->dv);
    if (at.keys > 0) {
        load_keys(to->v, &job->v, &at, job->value_width);
        turn_keys(to->values_across, to->v, job->value_width, 1);
        load_keys(to->k, &job->k, &at, job->width);
        turn_keys(to->keys_across, to->k, job->width, job->factor);
        for (at.head = at.group * share; at.head < (at.group + 1) * share; at.head++)
            for (at.query = 0; at.query < job->queries; at.query += QUERIES) {
                at.queries = ht_min_i64(QUERIES, job->queries - at.query);
                backward_tile(job, to, &at, dq_of(job, part, at.batch, at.head));
            }
    }
    int64_t row = (at.batch * job->groups + at.group) * job->keys + at.key;
    save_rows(job, 1, row, count, to->dk, job->width, job->scale);
    save_rows(job, 2, row, count, to->dv, job->value_width, 1);
}

/* One part of the keys of one group: every so many tiles, since with causality early keys are seen by more queries. */
static void backward_part(const attention *job, const backward_buffers *to, int64_t piece)
{
    int64_t group = piece / job->parts, part = piece % job->parts, share = job->heads / job->groups;
    spot at = {.batch = group / job->groups, .group = group % job->groups};
    at.length = length_of(job, at.batch);
    memset(dq_of(job, part, at.batch, at.group * share), 0,
           (size_t)(share * head_reals(job->queries, job->width)) * sizeof(real));
    for (at.key = part * KEYS; at.key < job->keys; at.key += job->parts * KEYS) backward_keys(job, to, at, part);
}

static void backward_pass(void *arg, int64_t slot)
{
    const attention *job = arg;
    scratch from = scratch_of(job, slot);
    backward_buffers to = backward_layout(job->width, job->value_width, &from);
    EACH_PIECE(job, slot, piece) backward_part(job, &to, piece);
}

/* The parts of dq of one tile of queries, added in order. */
static void finish_tile(void *arg, int64_t tile)
{
    const attention *job = arg;
    spot at = query_spot(job, tile, QUERIES);
    int64_t pitch = whole_vectors(job->width);
    real *restrict sum = dq_of(job, 0, at.batch, at.head) + at.query * pitch;
    for (int64_t part = 1; part < job->parts; part++) {
        const real *restrict more = dq_of(job, part, at.batch, at.head) + at.query * pitch;
        for (int64_t i = 0; i < at.queries * pitch; i++) sum[i] += more[i];
    }
    save_rows(job, 0, query_row(job, &at), at.queries, sum, job->width, job->scale);
}

/* What the backward pass keeps beside the buffers of its slots. */
static void take_sums(const ht_call *call, scratch *from, real **delta, real **dq)
{
    const ht_type *q = call->in[0];
    *delta = take(from, ht_type_elems(call->in[4]));
    *dq = take(from, parts_of(call->in[1]) * q->dim[0] * q->dim[1] * head_reals(q->dim[2], q->dim[3]));
}

static ht_status attention_grad_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    attention job = job_of(launch, 6, 7);
    job.y = rows_of(launch, 3), job.dy = rows_of(launch, 5);
    job.lse = launch->in[4], job.lse_dtype = call->in[4]->dtype;
    job.parts = parts_of(call->in[1]);
    scratch from = {launch->workspace, 0}, slot = {NULL, 0};
    if (job.batch * job.groups == 0) return HT_OK;
    backward_layout(job.width, job.value_width, &slot);
    take_sums(call, &from, &job.delta, &job.dq);
    job.buffers = from.start + from.used, job.slot_reals = slot.used;
    ht_parallel(launch->pool, query_pieces(call->in[0], QUERIES), delta_tile, &job);
    run_slots(&job, job.batch * job.groups * job.parts, backward_pass);
    ht_parallel(launch->pool, query_pieces(call->in[0], QUERIES), finish_tile, &job);
    return HT_OK;
}

/* ---- row ---- */

static int64_t attention_grad_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    const ht_type *q = call->in[0], *k = call->in[1], *v = call->in[2];
    scratch sums = {NULL, 0}, slot = {NULL, 0};
    real *delta, *dq;
    take_sums(call, &sums, &delta, &dq);
    backward_layout(q->dim[3], v->dim[3], &slot);
    int64_t slots = ht_min_i64(SLOTS, k->dim[0] * k->dim[1] * parts_of(k));
    return (sums.used + slots * slot.used) * (int64_t)sizeof(real);
}

static const char *attention_grad_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = refuse_sides(call);
    if (reason) return reason;
    if (rows_have_gaps(call->in[3]) || rows_have_gaps(call->in[5])) return "the last axis of y or dy is strided";
    if (!ht_type_contiguous(call->in[4])) return "lse is strided";
    const ht_type *q = call->in[0];
    double rows_of_dq = (double)ENOUGH * (double)q->dim[0] * (double)q->dim[1] * (double)(q->dim[2] + QUERIES);
    if (rows_of_dq * (double)(q->dim[3] + VL) > 0x1p58) return "dq needs more than 2^58 elements";
    return NULL;
}

HT_CPU_ROW_DEFINE(attention_grad, attention_grad, .can = attention_grad_can, .workspace = attention_grad_workspace,
                  .run = HT_RUN(attention_grad_run), .strided_results = true)
