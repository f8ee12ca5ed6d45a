/* Forward   s = scale q k', hidden keys -inf; y = softmax(s) v; lse = log sum exp s.
 * Backward  p = exp(s - lse); ds = p (dy v' - delta), delta = sum dy y; dv = p' dy, dk = scale ds' q, dq = scale ds k.
 * q, y, dy [B,H,Tq,D or Dv], k, v [B,G,Tk,D or Dv]: any float, any strides but 1 along the last axis.
 *
 * Numerics: real inside, one rounding at the end; keys in ascending tiles with a running maximum (online softmax), so
 * that a score exists only inside its tile; the order of every sum depends on sizes alone. The weight of a key that is
 * hidden inside a tile is zero; keys beyond a sequence's length are never read.
 * Threads: forward and dq by (sequence, head, tile of queries), dk and dv by (sequence, group, tile of keys), dealt to
 * a fixed number of slots, each with its buffers in the workspace. Scores are computed once forward, twice backward.
 * Traffic: k and v are read once per tile of queries.  Bound: compute. */
#include "kernel/cpu.h"
#include "kernel/panel.h"
#include "op/op.h"

enum { QUERIES = 32, KEYS = 32, SLOTS = 64, MOST_WIDTH = 1 << 20 };

/* A tensor whose rows along the last axis lie without gaps. */
typedef struct rows {
    const void *data;
    ht_dtype dtype;
    int64_t stride[3];
} rows;

typedef struct attention {
    const ht_launch *launch;
    int64_t batch, heads, groups, queries, keys, width, value_width;
    rows q, k, v;
    const ht_type *lengths, *document; /* NULL: hides nothing */
    const void *length_data, *document_data;
    bool causal;
    real scale;
    /* Backward */
    rows y, dy;
    const void *lse;
    ht_dtype lse_dtype;
    real *delta;   /* [B,H,Tq] */
    real *buffers; /* of slot 0; the others follow */
    int64_t slot_reals, tiles, slots;
} attention;

/* Where a tile lies. `head` is a head of q; its keys are those of head / (heads / groups). */
typedef struct spot {
    int64_t batch, head, group, query, queries, key, keys;
} spot;

static rows rows_of(const ht_launch *launch, size_t input)
{
    const ht_type *type = launch->call->in[input];
    return (rows){launch->in[input], type->dtype, {type->stride[0], type->stride[1], type->stride[2]}};
}

static void load_rows(panel to, const rows *x, int64_t batch, int64_t head, int64_t first, int64_t count, int64_t width)
{
    int64_t at = batch * x->stride[0] + head * x->stride[1] + first * x->stride[2];
    for (int64_t i = 0; i < count; i++) ht_load(to.data + i * to.row, x->data, x->dtype, at + i * x->stride[2], width);
}

/* q times the scale, which then rides along in scores and in dk. */
static void load_queries(const attention *job, panel to, const spot *at)
{
    load_rows(to, &job->q, at->batch, at->head, at->query, at->queries, job->width);
    for (int64_t i = 0; i < at->queries * job->width; i++) to.data[i] *= job->scale;
}

static attention job_of(const ht_launch *launch, size_t lengths, size_t document)
{
    const ht_call *call = launch->call;
    const ht_type *q = call->in[0], *v = call->in[2];
    attention job = {.launch = launch, .causal = ht_call_int(call, "causal") != 0};
    job.batch = q->dim[0], job.heads = q->dim[1], job.groups = v->dim[1];
    job.queries = q->dim[2], job.keys = v->dim[2], job.width = q->dim[3], job.value_width = v->dim[3];
    job.q = rows_of(launch, 0), job.k = rows_of(launch, 1), job.v = rows_of(launch, 2);
    if (lengths < call->n_in) job.lengths = call->in[lengths], job.length_data = launch->in[lengths];
    if (document < call->n_in) job.document = call->in[document], job.document_data = launch->in[document];
    double scale = ht_call_float(call, "scale");
    if (scale == 0) scale = job.width > 0 ? 1 / sqrt((double)job.width) : 1;
    job.scale = (real)scale;
    return job;
}

/* ---- who sees whom ---- */

static int64_t length_of(const attention *job, int64_t batch)
{
    if (!job->lengths) return job->keys;
    int64_t length = ht_load_int(job->length_data, job->lengths->dtype, batch * job->lengths->stride[0]);
    return length < 0 ? 0 : ht_min_i64(length, job->keys);
}

/* A query sees no key at or beyond this. */
static int64_t key_end(const attention *job, int64_t batch, int64_t query)
{
    int64_t end = length_of(job, batch);
    if (job->causal) end = ht_min_i64(end, query + job->keys - job->queries + 1);
    return end < 0 ? 0 : end;
}

static void load_documents(const attention *job, int64_t batch, int64_t first, int64_t count, int64_t *to)
{
    const ht_type *type = job->document;
    for (int64_t i = 0; i < count; i++)
        to[i] = ht_load_int(job->document_data, type->dtype, batch * type->stride[0] + (first + i) * type->stride[1]);
}

/* Is there a pair in the tile where the query sees the key? */
static bool anything_seen(const attention *job, const spot *at)
{
    if (key_end(job, at->batch, at->query + at->queries - 1) <= at->key) return false;
    if (!job->document) return true;
    int64_t query_document[QUERIES], key_document[KEYS];
    load_documents(job, at->batch, at->query, at->queries, query_document);
    load_documents(job, at->batch, at->key, at->keys, key_document);
    for (int64_t i = 0; i < at->queries; i++) {
        int64_t end = ht_min_i64(at->keys, key_end(job, at->batch, at->query + i) - at->key);
        for (int64_t j = 0; j < end; j++)
            if (query_document[i] == key_document[j]) return true;
    }
    return false;
}

/* Scores of hidden keys become -inf. */
static void hide(const attention *job, const spot *at, real *scores)
{
    if (!job->document && at->keys == KEYS && key_end(job, at->batch, at->query) >= at->key + KEYS) return;
    int64_t query_document[QUERIES], key_document[KEYS];
    if (job->document) {
        load_documents(job, at->batch, at->query, at->queries, query_document);
        load_documents(job, at->batch, at->key, at->keys, key_document);
    }
    for (int64_t i = 0; i < at->queries; i++) {
        real *row = scores + i * KEYS;
        int64_t end = ht_min_i64(at->keys, key_end(job, at->batch, at->query + i) - at->key);
        for (int64_t j = 0; job->document && j < end; j++)
            if (query_document[i] != key_document[j]) row[j] = -(real)INFINITY;
        for (int64_t j = end < 0 ? 0 : end; j < KEYS; j++) row[j] = -(real)INFINITY;
    }
}

/* ---- sums over a row of one tile, by halves: a fixed order that vectorises ---- */

static real row_sum(const real *x)
{
    real part[KEYS];
    memcpy(part, x, sizeof part);
    for (int width = KEYS / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) part[j] += part[j + width];
    return part[0];
}

static real row_max(const real *x)
{
    real part[KEYS];
    memcpy(part, x, sizeof part);
    for (int width = KEYS / 2; width > 0; width /= 2)
        for (int j = 0; j < width; j++) part[j] = fn_max(part[j], part[j + width]);
    return part[0];
}

/* ---- slots ---- */

/* Tiles of one slot, in order; the slot's buffers belong to whoever runs it. */
#define EACH_TILE(job, slot, tile) for (int64_t tile = (slot); tile < (job)->tiles; tile += (job)->slots)

/* Runs a pass whose work is cut in `tiles`. */
static void run_slots(attention *job, int64_t tiles, ht_tile_fn fn)
{
    job->tiles = tiles;
    job->slots = ht_min_i64(tiles, SLOTS);
    ht_parallel(job->launch->pool, job->slots, fn, job);
}

static int64_t query_tiles(const ht_type *q)
{
    return q->dim[0] * q->dim[1] * ht_tiles(q->dim[2], QUERIES);
}

static int64_t key_tiles(const ht_type *k)
{
    return k->dim[0] * k->dim[1] * ht_tiles(k->dim[2], KEYS);
}

static spot query_spot(const attention *job, int64_t tile)
{
    int64_t per_head = ht_tiles(job->queries, QUERIES), head = tile / per_head;
    spot at = {.batch = head / job->heads, .head = head % job->heads, .query = tile % per_head * QUERIES};
    at.group = at.head / (job->heads / job->groups);
    at.queries = ht_min_i64(QUERIES, job->queries - at.query);
    return at;
}

/* ---- forward ---- */

typedef struct forward_buffers {
    panel q, side, keys_across, sum, score;
} forward_buffers;

static forward_buffers forward_layout(int64_t width, int64_t value_width, panel_room *room)
{
    forward_buffers at;
    at.q = panel_take(room, QUERIES, width);
    at.side = panel_take(room, KEYS, width > value_width ? width : value_width);
    at.keys_across = panel_take(room, width, KEYS);
    at.sum = panel_take(room, QUERIES, value_width);
    at.score = panel_take(room, QUERIES, KEYS);
    return at;
}

/* Scores become weights relative to the row's new maximum; what was summed before is scaled to it. */
static void fold(panel score, panel sum, int64_t queries, int64_t value_width, real *max, real *total)
{
    for (int64_t i = 0; i < queries; i++) {
        real *s = score.data + i * KEYS, *y = sum.data + i * sum.row;
        real top = fn_max(max[i], row_max(s));
        if (top == -(real)INFINITY) {
            memset(s, 0, KEYS * sizeof *s);
            continue;
        }
        real keep = fn_exp(max[i] - top);
        for (int64_t j = 0; j < KEYS; j++) s[j] = fn_exp(s[j] - top);
        for (int64_t d = 0; d < value_width; d++) y[d] *= keep;
        total[i] = total[i] * keep + row_sum(s);
        max[i] = top;
    }
}

static void save_queries(const attention *job, const spot *at, panel sum, const real *max, const real *total)
{
    const ht_launch *launch = job->launch;
    const ht_type *y = launch->call->out[0], *lse = launch->call->out[1];
    int64_t row = (at->batch * job->heads + at->head) * job->queries + at->query;
    for (int64_t i = 0; i < at->queries; i++) {
        bool seen = max[i] != -(real)INFINITY;
        real factor = seen ? 1 / total[i] : 0;
        for (int64_t d = 0; d < job->value_width; d++) sum.data[i * sum.row + d] *= factor;
        ht_save(launch->out[0], y->dtype, (row + i) * job->value_width, sum.data + i * sum.row, job->value_width);
        ht_save1(launch->out[1], lse->dtype, row + i, seen ? max[i] + fn_log(total[i]) : max[i]);
    }
}

static void forward_tile(const attention *job, const forward_buffers *to, spot at)
{
    real max[QUERIES], total[QUERIES];
    for (int i = 0; i < QUERIES; i++) max[i] = -(real)INFINITY, total[i] = 0;
    load_queries(job, to->q, &at);
    panel_zero(to->sum, at.queries, job->value_width);
    panel keys = {to->side.data, job->width}, values = {to->side.data, job->value_width};
    int64_t end = key_end(job, at.batch, at.query + at.queries - 1);
    for (at.key = 0; at.key < end; at.key += KEYS) {
        at.keys = ht_min_i64(KEYS, end - at.key);
        if (!anything_seen(job, &at)) continue;
        load_rows(keys, &job->k, at.batch, at.group, at.key, at.keys, job->width);
        panel_transpose(to->keys_across, keys, at.keys, job->width);
        panel_zero(to->score, at.queries, KEYS);
        panel_product(to->score, to->q.data, to->q.row, 1, to->keys_across, at.queries, job->width, KEYS);
        hide(job, &at, to->score.data);
        fold(to->score, to->sum, at.queries, job->value_width, max, total);
        load_rows(values, &job->v, at.batch, at.group, at.key, at.keys, job->value_width);
        panel_product(to->sum, to->score.data, KEYS, 1, values, at.queries, at.keys, job->value_width);
    }
    save_queries(job, &at, to->sum, max, total);
}

static void forward_pass(void *arg, int64_t slot)
{
    const attention *job = arg;
    panel_room room = {job->buffers + slot * job->slot_reals, 0};
    forward_buffers to = forward_layout(job->width, job->value_width, &room);
    EACH_TILE(job, slot, tile) forward_tile(job, &to, query_spot(job, tile));
}

static void attention_run(const ht_launch *launch)
{
    attention job = job_of(launch, 3, 4);
    panel_room slot = {NULL, 0};
    forward_layout(job.width, job.value_width, &slot);
    job.buffers = launch->workspace, job.slot_reals = slot.used;
    run_slots(&job, query_tiles(launch->call->in[0]), forward_pass);
}

/* ---- backward ---- */

typedef struct backward_buffers {
    panel q, dy, k, v, keys_across, values_across, sum, value_sum, weight, slope;
} backward_buffers;

static backward_buffers backward_layout(int64_t width, int64_t value_width, panel_room *room)
{
    _Static_assert((int)QUERIES <= (int)KEYS, "the sum of dk also serves dq");
    backward_buffers at;
    at.q = panel_take(room, QUERIES, width);
    at.dy = panel_take(room, QUERIES, value_width);
    at.k = panel_take(room, KEYS, width);
    at.v = panel_take(room, KEYS, value_width);
    at.keys_across = panel_take(room, width, KEYS);
    at.values_across = panel_take(room, value_width, KEYS);
    at.sum = panel_take(room, KEYS, width);
    at.value_sum = panel_take(room, KEYS, value_width);
    at.weight = panel_take(room, QUERIES, KEYS);
    at.slope = panel_take(room, QUERIES, KEYS);
    return at;
}

/* delta of one tile of queries. */
static void delta_tile(void *arg, int64_t tile)
{
    const attention *job = arg;
    spot at = query_spot(job, tile);
    real *delta = job->delta + (at.batch * job->heads + at.head) * job->queries + at.query;
    for (int64_t i = 0; i < at.queries; i++) {
        real lane[KEYS] = {0}, y[KEYS], dy[KEYS];
        for (int64_t d = 0; d < job->value_width; d += KEYS) {
            int64_t n = ht_min_i64(KEYS, job->value_width - d);
            const rows *a = &job->y, *b = &job->dy;
            int64_t row = at.query + i;
            ht_load(y, a->data, a->dtype, at.batch * a->stride[0] + at.head * a->stride[1] + row * a->stride[2] + d, n);
            ht_load(dy, b->data, b->dtype, at.batch * b->stride[0] + at.head * b->stride[1] + row * b->stride[2] + d,
                    n);
            for (int64_t j = 0; j < n; j++) lane[j] += y[j] * dy[j];
        }
        delta[i] = row_sum(lane);
    }
}

static void load_query_side(const attention *job, const backward_buffers *to, const spot *at)
{
    load_queries(job, to->q, at);
    load_rows(to->dy, &job->dy, at->batch, at->head, at->query, at->queries, job->value_width);
}

static void load_key_side(const attention *job, const backward_buffers *to, const spot *at)
{
    load_rows(to->k, &job->k, at->batch, at->group, at->key, at->keys, job->width);
    load_rows(to->v, &job->v, at->batch, at->group, at->key, at->keys, job->value_width);
    panel_transpose(to->keys_across, to->k, at->keys, job->width);
    panel_transpose(to->values_across, to->v, at->keys, job->value_width);
}

/* The tile's weights p and slopes ds, from both loaded sides. */
static void weigh(const attention *job, const backward_buffers *to, const spot *at)
{
    int64_t row = (at->batch * job->heads + at->head) * job->queries + at->query;
    real lse[QUERIES];
    ht_load(lse, job->lse, job->lse_dtype, row, at->queries);
    panel_zero(to->weight, at->queries, KEYS);
    panel_zero(to->slope, at->queries, KEYS);
    panel_product(to->weight, to->q.data, to->q.row, 1, to->keys_across, at->queries, job->width, KEYS);
    panel_product(to->slope, to->dy.data, to->dy.row, 1, to->values_across, at->queries, job->value_width, KEYS);
    hide(job, at, to->weight.data);
    for (int64_t i = 0; i < at->queries; i++) {
        real *restrict p = to->weight.data + i * KEYS, *restrict ds = to->slope.data + i * KEYS;
        real delta = job->delta[row + i];
        bool seen = lse[i] != -(real)INFINITY;
        for (int64_t j = 0; j < KEYS; j++) {
            p[j] = seen ? fn_exp(p[j] - lse[i]) : 0;
            ds[j] = p[j] * (ds[j] - delta);
        }
    }
}

static void save_rows(const attention *job, size_t result, int64_t first_row, int64_t count, panel from, int64_t width)
{
    const ht_launch *launch = job->launch;
    ht_save(launch->out[result], launch->call->out[result]->dtype, first_row * width, from.data, count * width);
}

/* dk and dv of one tile of keys, over all heads of its group. */
static void keys_tile(const attention *job, const backward_buffers *to, int64_t tile)
{
    int64_t per_group = ht_tiles(job->keys, KEYS), group = tile / per_group, share = job->heads / job->groups;
    spot at = {.batch = group / job->groups, .group = group % job->groups, .key = tile % per_group * KEYS};
    int64_t all = ht_min_i64(KEYS, job->keys - at.key), seen = length_of(job, at.batch) - at.key;
    at.keys = seen < 0 ? 0 : ht_min_i64(all, seen);
    load_key_side(job, to, &at);
    panel_zero(to->sum, all, job->width);
    panel_zero(to->value_sum, all, job->value_width);
    int64_t first = job->causal ? at.key - (job->keys - job->queries) : 0;
    if (first < 0) first = 0;
    for (at.head = at.group * share; at.keys > 0 && at.head < (at.group + 1) * share; at.head++)
        for (at.query = first; at.query < job->queries; at.query += QUERIES) {
            at.queries = ht_min_i64(QUERIES, job->queries - at.query);
            if (!anything_seen(job, &at)) continue;
            load_query_side(job, to, &at);
            weigh(job, to, &at);
            panel_product(to->value_sum, to->weight.data, 1, KEYS, to->dy, at.keys, at.queries, job->value_width);
            panel_product(to->sum, to->slope.data, 1, KEYS, to->q, at.keys, at.queries, job->width);
        }
    save_rows(job, 1, group * job->keys + at.key, all, to->sum, job->width);
    save_rows(job, 2, group * job->keys + at.key, all, to->value_sum, job->value_width);
}

static void keys_pass(void *arg, int64_t slot)
{
    const attention *job = arg;
    panel_room room = {job->buffers + slot * job->slot_reals, 0};
    backward_buffers to = backward_layout(job->width, job->value_width, &room);
    EACH_TILE(job, slot, tile) keys_tile(job, &to, tile);
}

/* dq of one tile of queries. */
static void queries_tile(const attention *job, const backward_buffers *to, spot at)
{
    load_query_side(job, to, &at);
    panel_zero(to->sum, at.queries, job->width);
    int64_t end = key_end(job, at.batch, at.query + at.queries - 1);
    for (at.key = 0; at.key < end; at.key += KEYS) {
        at.keys = ht_min_i64(KEYS, end - at.key);
        if (!anything_seen(job, &at)) continue;
        load_key_side(job, to, &at);
        weigh(job, to, &at);
        panel_product(to->sum, to->slope.data, KEYS, 1, to->k, at.queries, at.keys, job->width);
    }
    for (int64_t i = 0; i < at.queries * job->width; i++) to->sum.data[i] *= job->scale;
    save_rows(job, 0, (at.batch * job->heads + at.head) * job->queries + at.query, at.queries, to->sum, job->width);
}

static void queries_pass(void *arg, int64_t slot)
{
    const attention *job = arg;
    panel_room room = {job->buffers + slot * job->slot_reals, 0};
    backward_buffers to = backward_layout(job->width, job->value_width, &room);
    EACH_TILE(job, slot, tile) queries_tile(job, &to, query_spot(job, tile));
}

static void attention_grad_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    attention job = job_of(launch, 6, 7);
    job.y = rows_of(launch, 3), job.dy = rows_of(launch, 5);
    job.lse = launch->in[4], job.lse_dtype = call->in[4]->dtype;
    int64_t queries = query_tiles(call->in[0]), keys = key_tiles(call->in[1]);
    if (queries == 0 && keys == 0) return;
    panel_room room = {launch->workspace, 0}, slot = {NULL, 0};
    backward_layout(job.width, job.value_width, &slot);
    job.delta = panel_take(&room, 1, ht_type_elems(call->in[4])).data;
    job.buffers = room.start + room.used, job.slot_reals = slot.used;
    ht_parallel(launch->pool, queries, delta_tile, &job);
    run_slots(&job, keys, keys_pass);
    run_slots(&job, queries, queries_pass);
}

/* ---- rows ---- */

static int64_t attention_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    const ht_type *q = call->in[0], *v = call->in[2];
    panel_room slot = {NULL, 0};
    forward_layout(q->dim[3], v->dim[3], &slot);
    return ht_min_i64(SLOTS, query_tiles(q)) * slot.used * (int64_t)sizeof(real);
}

static int64_t attention_grad_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    const ht_type *q = call->in[0], *v = call->in[2];
    int64_t queries = query_tiles(q), keys = key_tiles(v);
    int64_t slots = ht_min_i64(SLOTS, queries > keys ? queries : keys);
    panel_room delta = {NULL, 0}, slot = {NULL, 0};
    panel_take(&delta, 1, ht_type_elems(call->in[4]));
    backward_layout(q->dim[3], v->dim[3], &slot);
    return (delta.used + slots * slot.used) * (int64_t)sizeof(real);
}

static bool rows_have_gaps(const ht_type *type)
{
    return type->dim[3] > 1 && type->stride[3] != 1;
}

static const char *refuse_sides(const ht_call *call)
{
    const char *reason = ht_refuse_real(call);
    if (reason) return reason;
    for (size_t i = 0; i < 3; i++)
        if (rows_have_gaps(call->in[i])) return "the last axis of q, k or v is strided";
    for (size_t i = 0; i < call->n_out; i++)
        if (!ht_type_contiguous(call->out[i])) return "a result is strided";
    if (call->in[0]->dim[3] > MOST_WIDTH || call->in[2]->dim[3] > MOST_WIDTH) return "a head is wider than 2^20";
    return NULL;
}

static const char *attention_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return refuse_sides(call);
}

static const char *attention_grad_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    const char *reason = refuse_sides(call);
    if (reason) return reason;
    if (rows_have_gaps(call->in[3]) || rows_have_gaps(call->in[5])) return "the last axis of y or dy is strided";
    if (!ht_type_contiguous(call->in[4])) return "lse is strided";
    if (ht_type_elems(call->in[4]) > (int64_t)1 << 50) return "more than 2^50 queries";
    return NULL;
}

HT_CPU_KERNEL(attention, attention_can, attention_workspace, attention_run)
HT_CPU_KERNEL(attention_grad, attention_grad_can, attention_grad_workspace, attention_grad_run)
