/* What attention and attention_grad share: operands, who sees whom, how work is dealt to slots. */
#ifndef HT_KERNEL_ATTENTION_JOB_H
#define HT_KERNEL_ATTENTION_JOB_H

#include "kernel/attention/attention_tile.h"
#include "op/op.h"

#include <string.h>

static const double LOG2_E = 1.44269504088896340736;

enum {
    SLOTS = 64,
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

static inline rows rows_of(const ht_launch *launch, size_t input)
{
    const ht_type *type = launch->call->in[input];
    return (rows){launch->in[input], type->dtype, {type->stride[0], type->stride[1], type->stride[2]}};
}

static inline attention job_of(const ht_launch *launch, size_t lengths, size_t document)
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
static inline int64_t row_start(const rows *x, int64_t batch, int64_t head, int64_t row)
{
    return batch * x->stride[0] + head * x->stride[1] + row * x->stride[2];
}

/* Into slabs of `capacity` rows. */
TILE_FUNCTION void load_rows(real *to, int64_t capacity, const rows *x, int64_t start, int64_t count, int64_t width)
{
    bool plain = x->dtype == HT_REAL_DTYPE;
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
static inline void load_queries(real *to, const rows *x, const spot *at, int64_t width)
{
    load_rows(to, QUERIES, x, row_start(x, at->batch, at->head, at->query), at->queries, width);
}

/* A tile of k or v; the keys that it lacks are zero. */
static inline void load_keys(real *to, const rows *x, const spot *at, int64_t width)
{
    load_rows(to, KEYS, x, row_start(x, at->batch, at->group, at->key), at->keys, width);
    for (int64_t d = 0; d < width && at->keys < KEYS; d += SLAB)
        memset(to + d * KEYS + at->keys * SLAB, 0, (size_t)((KEYS - at->keys) * SLAB) * sizeof *to);
}

/* ---- who sees whom ---- */

static inline int64_t length_of(const attention *job, int64_t batch)
{
    if (!job->lengths) return job->keys;
    int64_t length = ht_load_int(job->length_data, job->lengths->dtype, batch * job->lengths->stride[0]);
    return length < 0 ? 0 : ht_min_i64(length, job->keys);
}

/* A query sees no key at or beyond this; may be negative. */
static inline int64_t key_end(const attention *job, const spot *at, int64_t query)
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

static inline range load_documents(const attention *job, int64_t batch, int64_t first, int64_t count, int64_t *to)
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
TILE_FUNCTION bool look(const attention *job, const spot *at, sight *s)
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
static inline int64_t hide(const sight *s, int64_t query, real *score)
{
    int64_t end = s->e.end[query], whole = whole_vectors(end);
    for (int64_t j = end; j < whole; j++) score[j] = -(real)INFINITY;
    for (int64_t j = 0; s->mixed && j < end; j++)
        if (s->query_document[query] != s->key_document[j]) score[j] = -(real)INFINITY;
    return whole;
}

/* ---- slots ---- */

/* Pieces of one slot, in order; the slot's buffers belong to the thread that runs it. */
#define EACH_PIECE(job, slot, piece) for (int64_t piece = (slot); piece < (job)->pieces; piece += (job)->slots)

static inline scratch scratch_of(const attention *job, int64_t slot)
{
    return (scratch){job->buffers + slot * job->slot_reals, 0};
}

/* Runs a pass whose work is cut in `pieces`. */
static inline void run_slots(attention *job, int64_t pieces, ht_tile_fn fn)
{
    job->pieces = pieces;
    job->slots = ht_min_i64(pieces, SLOTS);
    ht_parallel(job->launch->pool, job->slots, fn, job);
}

/* Piece `piece` of all queries in pieces of `count`. */
static inline spot query_spot(const attention *job, int64_t piece, int64_t count)
{
    int64_t per_head = ht_tiles(job->queries, count), head = piece / per_head;
    spot at = {.batch = head / job->heads, .head = head % job->heads, .query = piece % per_head * count};
    at.group = at.head / (job->heads / job->groups);
    at.queries = ht_min_i64(count, job->queries - at.query);
    at.length = length_of(job, at.batch);
    return at;
}

static inline int64_t query_pieces(const ht_type *q, int64_t count)
{
    return q->dim[0] * q->dim[1] * ht_tiles(q->dim[2], count);
}

/* Row of y, dy, dq and lse where the spot begins. */
static inline int64_t query_row(const attention *job, const spot *at)
{
    return (at->batch * job->heads + at->head) * job->queries + at->query;
}

/* Where row `row` of a result [B,H,T,D] begins, counted over all of them. */
static inline int64_t result_start(const ht_type *type, int64_t row)
{
    int64_t head = row / type->dim[2];
    return head / type->dim[1] * type->stride[0] + head % type->dim[1] * type->stride[1] +
           row % type->dim[2] * type->stride[2];
}

/* ---- refusals ---- */

static inline bool rows_have_gaps(const ht_type *type)
{
    return type->dim[3] > 1 && type->stride[3] != 1;
}

static inline const char *refuse_sides(const ht_call *call)
{
    const char *reason = ht_refuse_real(call);
    if (reason) return reason;
    for (size_t i = 0; i < 3; i++)
        if (rows_have_gaps(call->in[i])) return "the last axis of q, k or v is strided";
    for (size_t i = 0; i < call->n_out; i++)
        if (call->out[i]->rank == 4 ? rows_have_gaps(call->out[i]) : !ht_type_contiguous(call->out[i]))
            return "a row of a result is strided";
    if (call->in[0]->dim[3] > MOST_WIDTH || call->in[2]->dim[3] > MOST_WIDTH) return "a head is wider than 2^20";
    return NULL;
}

#endif
