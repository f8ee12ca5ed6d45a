/* Forward   s = scale q k', hidden keys -inf; y = softmax(s) v; lse = log sum exp s.
 * Backward  p = exp(s - lse); ds = p (dy v' - delta), delta = sum dy y; dv = p' dy, dk = scale ds' q, dq = scale ds k.
 * q, y, dy [B,H,Tq,D or Dv], k, v [B,G,Tk,D or Dv]: any float, any strides but 1 along the last axis.
 *
 * Numerics: real inside, one rounding at the end; keys in ascending tiles with a running maximum (online softmax), so
 * that a score exists only inside its tile; the order of every sum depends on sizes alone. The weight of a key that is
 * hidden inside a tile is zero; keys beyond a sequence's length are never read. FMA.
 * Threads: forward by (sequence, head, a few tiles of queries); backward by (sequence, group, part of the keys), where
 * each part sums a dq of its own and the parts are added in order: one part where there are enough groups. Work is dealt
 * to a fixed number of slots, each with its buffers in the workspace.
 * Traffic: forward reads k and v once per few tiles of queries, backward q and dy once per tile of keys; scores are
 * computed once each way.  Bound: compute. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/attention/attention_tile.h"
#include "kernel/lanes.h"
#include "op/op.h"

static const double LOG2_E = 1.44269504088896340736, LN_2 = 0.693147180559945309417;

enum {
    CHUNK = 4, /* tiles of queries that a packed tile of keys serves forward */
    SLOTS = 64,
    ENOUGH = 16, /* pieces of work backward: with fewer groups than that, keys are cut into parts */
    MOST_WIDTH = 1 << 20,
};

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
    real scale, factor; /* factor = scale log2 e: scores are kept as logarithms to base 2 */
    real *buffers;      /* of slot 0; the others follow */
    int64_t slot_reals, pieces, slots;
    /* Backward */
    rows y, dy;
    const void *lse;
    ht_dtype lse_dtype;
    int64_t parts;
    real *delta; /* [B,H,Tq] */
    real *dq;    /* [parts,B,H, whole tiles of Tq, whole vectors of D] */
} attention;

/* Where a tile lies. `head` is a head of q; its keys are those of head / (heads / groups). */
typedef struct spot {
    int64_t batch, head, group, query, queries, key, keys;
    int64_t length; /* of the sequence */
} spot;

static rows rows_of(const ht_launch *launch, size_t input)
{
    const ht_type *type = launch->call->in[input];
    return (rows){launch->in[input], type->dtype, {type->stride[0], type->stride[1], type->stride[2]}};
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
    job.scale = (real)scale, job.factor = (real)(scale * LOG2_E);
    return job;
}

/* Where the row of head `head` (of q or of k, as x is) begins. */
static int64_t row_start(const rows *x, int64_t batch, int64_t head, int64_t row)
{
    return batch * x->stride[0] + head * x->stride[1] + row * x->stride[2];
}

/* Into slabs of `capacity` rows. */
static void load_rows(real *to, int64_t capacity, const rows *x, int64_t start, int64_t count, int64_t width)
{
    bool plain = x->dtype == (sizeof(real) == sizeof(double) ? HT_F64 : HT_F32);
    for (int64_t d = 0; d < width; d += SLAB) {
        int64_t n = ht_min_i64(SLAB, width - d);
        for (int64_t i = 0; i < count; i++) {
            int64_t from = start + i * x->stride[2] + d;
            vec *row = (vec *)(to + d * capacity + i * SLAB);
            if (plain && n == SLAB)
                for (int v = 0; v < SLAB / VL; v++) row[v] = ((const vec_unaligned *)((const real *)x->data + from))[v];
            else
                ht_load((real *)row, x->data, x->dtype, from, n);
        }
    }
}

/* A tile of q or dy. */
static void load_queries(real *to, const rows *x, const spot *at, int64_t width)
{
    load_rows(to, QUERIES, x, row_start(x, at->batch, at->head, at->query), at->queries, width);
}

/* A tile of k or v; the keys that it lacks are zero. */
static void load_keys(real *to, const rows *x, const spot *at, int64_t width)
{
    load_rows(to, KEYS, x, row_start(x, at->batch, at->group, at->key), at->keys, width);
    for (int64_t d = 0; d < width && at->keys < KEYS; d += SLAB)
        memset(to + d * KEYS + at->keys * SLAB, 0, (size_t)((KEYS - at->keys) * SLAB) * sizeof *to);
}

/* ---- who sees whom ---- */

static int64_t length_of(const attention *job, int64_t batch)
{
    if (!job->lengths) return job->keys;
    int64_t length = ht_load_int(job->length_data, job->lengths->dtype, batch * job->lengths->stride[0]);
    return length < 0 ? 0 : ht_min_i64(length, job->keys);
}

/* A query sees no key at or beyond this; may be negative. */
static int64_t key_end(const attention *job, const spot *at, int64_t query)
{
    return job->causal ? ht_min_i64(at->length, query + job->keys - job->queries + 1) : at->length;
}

typedef struct sight {
    extent e;
    bool mixed; /* documents hide some pairs of the extent */
    int64_t query_document[QUERIES], key_document[KEYS];
} sight;

typedef struct range {
    int64_t low, high;
} range;

static range load_documents(const attention *job, int64_t batch, int64_t first, int64_t count, int64_t *to)
{
    const ht_type *type = job->document;
    range r = {INT64_MAX, INT64_MIN};
    for (int64_t i = 0; i < count; i++) {
        to[i] = ht_load_int(job->document_data, type->dtype, batch * type->stride[0] + (first + i) * type->stride[1]);
        if (to[i] < r.low) r.low = to[i];
        if (to[i] > r.high) r.high = to[i];
    }
    return r;
}

/* Looks at a tile; false: it is hidden as a whole. */
static bool look(const attention *job, const spot *at, sight *s)
{
    if (key_end(job, at, at->query + at->queries - 1) <= at->key) return false;
    s->e.queries = at->queries, s->e.keys = at->keys;
    for (int64_t i = 0; i < at->queries; i++) {
        int64_t end = ht_min_i64(at->keys, key_end(job, at, at->query + i) - at->key);
        s->e.end[i] = end < 0 ? 0 : end;
    }
    s->mixed = false;
    if (!job->document) return true;
    range q = load_documents(job, at->batch, at->query, at->queries, s->query_document);
    range k = load_documents(job, at->batch, at->key, at->keys, s->key_document);
    s->mixed = q.low != q.high || k.low != k.high || q.low != k.low;
    return q.low <= k.high && k.low <= q.high;
}

/* Scores of hidden keys become -inf, up to a whole number of vectors; returns how many keys that is. */
static int64_t hide(const sight *s, int64_t query, real *score)
{
    int64_t end = s->e.end[query], whole = whole_vectors(end);
    for (int64_t j = end; j < whole; j++) score[j] = -(real)INFINITY;
    for (int64_t j = 0; s->mixed && j < end; j++)
        if (s->query_document[query] != s->key_document[j]) score[j] = -(real)INFINITY;
    return whole;
}

/* ---- slots ---- */

/* Pieces of one slot, in order; the slot's buffers belong to whoever runs it. */
#define EACH_PIECE(job, slot, piece) for (int64_t piece = (slot); piece < (job)->pieces; piece += (job)->slots)

static scratch scratch_of(const attention *job, int64_t slot)
{
    return (scratch){job->buffers + slot * job->slot_reals, 0};
}

/* Runs a pass whose work is cut in `pieces`. */
static void run_slots(attention *job, int64_t pieces, ht_tile_fn fn)
{
    job->pieces = pieces;
    job->slots = ht_min_i64(pieces, SLOTS);
    ht_parallel(job->launch->pool, job->slots, fn, job);
}

/* Piece `piece` of all queries in pieces of `count`. */
static spot query_spot(const attention *job, int64_t piece, int64_t count)
{
    int64_t per_head = ht_tiles(job->queries, count), head = piece / per_head;
    spot at = {.batch = head / job->heads, .head = head % job->heads, .query = piece % per_head * count};
    at.group = at.head / (job->heads / job->groups);
    at.queries = ht_min_i64(count, job->queries - at.query);
    at.length = length_of(job, at.batch);
    return at;
}

static int64_t query_pieces(const ht_type *q, int64_t count)
{
    return q->dim[0] * q->dim[1] * ht_tiles(q->dim[2], count);
}

/* Row of y, dy, dq and lse where the spot begins. */
static int64_t query_row(const attention *job, const spot *at)
{
    return (at->batch * job->heads + at->head) * job->queries + at->query;
}

/* ---- forward ---- */

typedef struct forward_buffers {
    real *q, *sum; /* of CHUNK tiles */
    real *k, *v, *keys_across, *score;
} forward_buffers;

static forward_buffers forward_layout(int64_t width, int64_t value_width, scratch *from)
{
    forward_buffers to;
    to.q = take_rows(from, (int64_t)CHUNK * QUERIES, width);
    to.sum = take(from, CHUNK * QUERIES * whole_vectors(value_width));
    to.k = take_rows(from, KEYS, width);
    to.v = take_rows(from, KEYS, value_width);
    to.keys_across = take(from, KEYS * whole_vectors(width));
    to.score = take(from, (int64_t)QUERIES * KEYS);
    return to;
}

/* A tile of queries on its way through the keys. */
typedef struct walker {
    spot at;
    real *q, *sum;
    real max[QUERIES];
    vec total[QUERIES]; /* of the weights so far, lane by lane */
} walker;

static void walker_start(const attention *job, walker *w)
{
    load_queries(w->q, &job->q, &w->at, job->width);
    memset(w->sum, 0, (size_t)(QUERIES * whole_vectors(job->value_width)) * sizeof *w->sum);
    for (int i = 0; i < QUERIES; i++) w->max[i] = -(real)INFINITY, w->total[i] = (vec){0};
}

/* The largest of the maximum so far and n vectors of scores; NaN if that is -inf and a score is NaN. */
static inline real new_maximum(real max, const vec *score, int64_t n)
{
    vec tops = (vec){0} + max;
    for (int64_t v = 0; v < n; v++) tops = larger(tops, score[v]);
    max = largest_lane(tops);
    if (max != -(real)INFINITY) return max;
    for (int64_t v = 0; v < n; v++) max += sum_of_lanes(score[v]);
    return max;
}

/* Scores become weights relative to the row's new maximum; what was summed before is scaled to it. */
static void fold(walker *w, const sight *seen, real *score, int64_t pitch)
{
    for (int64_t i = 0; i < seen->e.queries; i++) {
        vec *s = (vec *)(score + i * KEYS);
        int64_t n = hide(seen, i, score + i * KEYS) / VL;
        real top = new_maximum(w->max[i], s, n);
        if (top == -(real)INFINITY) n = 0;
        if (n > 0 && top != w->max[i]) {
            real keep = power_of_two((vec){0} + (w->max[i] - top))[0];
            for (int64_t d = 0; d < pitch; d++) w->sum[i * pitch + d] *= keep;
            w->total[i] *= keep;
            w->max[i] = top;
        }
        vec total = w->total[i];
        for (int64_t v = 0; v < n; v++) total += s[v] = power_of_two(s[v] - top);
        w->total[i] = total;
        for (int64_t v = n; v < KEYS / VL; v++) s[v] = (vec){0};
    }
}

static void walker_finish(const attention *job, const walker *w)
{
    const ht_launch *launch = job->launch;
    const ht_type *y = launch->call->out[0], *lse = launch->call->out[1];
    int64_t row = query_row(job, &w->at), pitch = whole_vectors(job->value_width);
    for (int64_t i = 0; i < w->at.queries; i++) {
        bool seen = w->max[i] != -(real)INFINITY;
        real total = sum_of_lanes(w->total[i]), factor = seen ? 1 / total : 0, *sum = w->sum + i * pitch;
        for (int64_t d = 0; d < pitch; d++) sum[d] *= factor;
        ht_save(launch->out[0], y->dtype, (row + i) * job->value_width, sum, job->value_width);
        ht_save1(launch->out[1], lse->dtype, row + i, seen ? w->max[i] * (real)LN_2 + fn_log(total) : w->max[i]);
    }
}

static void forward_chunk(const attention *job, const forward_buffers *to, spot chunk)
{
    walker walkers[CHUNK];
    int64_t count = ht_tiles(chunk.queries, QUERIES), pitch = whole_vectors(job->value_width);
    for (int64_t t = 0; t < count; t++) {
        walker *w = &walkers[t];
        w->at = chunk;
        w->at.query += t * QUERIES;
        w->at.queries = ht_min_i64(QUERIES, chunk.queries - t * QUERIES);
        w->q = to->q + t * QUERIES * ht_tiles(job->width, SLAB) * SLAB;
        w->sum = to->sum + t * QUERIES * pitch;
        walker_start(job, w);
    }
    int64_t end = key_end(job, &chunk, chunk.query + chunk.queries - 1);
    for (chunk.key = 0; chunk.key < end; chunk.key += KEYS) {
        bool loaded = false;
        chunk.keys = ht_min_i64(KEYS, end - chunk.key);
        for (int64_t t = 0; t < count; t++) {
            walker *w = &walkers[t];
            sight seen;
            w->at.key = chunk.key, w->at.keys = chunk.keys;
            if (!look(job, &w->at, &seen)) continue;
            if (!loaded) {
                load_keys(to->k, &job->k, &chunk, job->width);
                load_keys(to->v, &job->v, &chunk, job->value_width);
                turn_keys(to->keys_across, to->k, job->width, job->factor);
                loaded = true;
            }
            score_product(to->score, w->q, to->keys_across, job->width, &seen.e);
            fold(w, &seen, to->score, pitch);
            sum_over_keys(w->sum, pitch, to->score, to->v, job->value_width, &seen.e);
        }
    }
    for (int64_t t = 0; t < count; t++) walker_finish(job, &walkers[t]);
}

static void forward_pass(void *arg, int64_t slot)
{
    const attention *job = arg;
    scratch from = scratch_of(job, slot);
    forward_buffers to = forward_layout(job->width, job->value_width, &from);
    EACH_PIECE(job, slot, piece) forward_chunk(job, &to, query_spot(job, piece, (int64_t)CHUNK * QUERIES));
}

static void attention_run(const ht_launch *launch)
{
    attention job = job_of(launch, 3, 4);
    scratch slot = {NULL, 0};
    forward_layout(job.width, job.value_width, &slot);
    job.buffers = launch->workspace, job.slot_reals = slot.used;
    run_slots(&job, query_pieces(launch->call->in[0], (int64_t)CHUNK * QUERIES), forward_pass);
}

/* ---- backward ---- */

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
            const real *y = ht_as_real(left, job->y.data, job->y.dtype, y_start + d, n);
            const real *dy = ht_as_real(right, job->dy.data, job->dy.dtype, dy_start + d, n);
            ht_lanes_add_products(&lanes, 0, y, dy, 0, n);
        }
        delta[i] = ht_lanes_total(&lanes);
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
    int64_t pitch = whole_vectors(width);
    for (int64_t i = 0; i < count * pitch; i++) from[i] *= factor;
    for (int64_t i = 0; i < count; i++)
        ht_save(launch->out[result], launch->call->out[result]->dtype, (first_row + i) * width, from + i * pitch,
                width);
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

static void attention_grad_run(const ht_launch *launch)
{
    const ht_call *call = launch->call;
    attention job = job_of(launch, 6, 7);
    job.y = rows_of(launch, 3), job.dy = rows_of(launch, 5);
    job.lse = launch->in[4], job.lse_dtype = call->in[4]->dtype;
    job.parts = parts_of(call->in[1]);
    scratch from = {launch->workspace, 0}, slot = {NULL, 0};
    if (job.batch * job.groups == 0) return;
    backward_layout(job.width, job.value_width, &slot);
    take_sums(call, &from, &job.delta, &job.dq);
    job.buffers = from.start + from.used, job.slot_reals = slot.used;
    ht_parallel(launch->pool, query_pieces(call->in[0], QUERIES), delta_tile, &job);
    run_slots(&job, job.batch * job.groups * job.parts, backward_pass);
    ht_parallel(launch->pool, query_pieces(call->in[0], QUERIES), finish_tile, &job);
}

/* ---- rows ---- */

static int64_t attention_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    const ht_type *q = call->in[0], *v = call->in[2];
    scratch slot = {NULL, 0};
    forward_layout(q->dim[3], v->dim[3], &slot);
    return ht_min_i64(SLOTS, query_pieces(q, (int64_t)CHUNK * QUERIES)) * slot.used * (int64_t)sizeof(real);
}

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
    const ht_type *q = call->in[0];
    double rows_of_dq = (double)ENOUGH * (double)q->dim[0] * (double)q->dim[1] * (double)(q->dim[2] + QUERIES);
    if (rows_of_dq * (double)(q->dim[3] + VL) > 0x1p58) return "dq needs more than 2^58 elements";
    return NULL;
}

HT_CPU_KERNEL(attention, attention_can, attention_workspace, attention_run)
HT_CPU_KERNEL(attention_grad, attention_grad_can, attention_grad_workspace, attention_grad_run)
