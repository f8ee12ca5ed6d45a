/* s = scale q k', hidden keys -inf; y = softmax(s) v; lse = log sum exp s.
 * q, y [B,H,Tq,D or Dv], k, v [B,G,Tk,D or Dv]: any float, any strides but 1 along the last axis.
 *
 * Numerics: real inside, one rounding at the end; keys in ascending tiles with a running maximum (online softmax), so
 * that a score exists only inside its tile; the order of every sum depends on sizes alone. The weight of a key that is
 * hidden inside a tile is zero; keys beyond a sequence's length are never read. FMA.
 * Threads: (sequence, head, a few tiles of queries), dealt to a fixed number of slots, each with its buffers in the
 * workspace.
 * Traffic: k and v once per few tiles of queries; scores are computed once.  Bound: compute. */
/* HT_COMPILE: -ffp-contract=fast */
#include "kernel/attention/attention_job.h"
#include "kernel/attention/attention_tile.h"

static const double LN_2 = 0.693147180559945309417;

enum { CHUNK = 4 }; /* tiles of queries that a packed tile of keys serves */

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
        ht_save(launch->out[0], y->dtype, result_start(y, row + i), sum, job->value_width);
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

static ht_status attention_run(const ht_launch *launch)
{
    attention job = job_of(launch, 3, 4);
    scratch slot = {NULL, 0};
    forward_layout(job.width, job.value_width, &slot);
    job.buffers = launch->workspace, job.slot_reals = slot.used;
    run_slots(&job, query_pieces(launch->call->in[0], (int64_t)CHUNK * QUERIES), forward_pass);
    return HT_OK;
}

/* ---- row ---- */

static int64_t attention_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    const ht_type *q = call->in[0], *v = call->in[2];
    scratch slot = {NULL, 0};
    forward_layout(q->dim[3], v->dim[3], &slot);
    return ht_min_i64(SLOTS, query_pieces(q, (int64_t)CHUNK * QUERIES)) * slot.used * (int64_t)sizeof(real);
}

static const char *attention_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return refuse_sides(call);
}

HT_CPU_ROW_DEFINE(attention, attention, .can = attention_can, .workspace = attention_workspace,
                  .run = HT_RUN(attention_run), .strided_results = true)
