/* Beam search. Each sentence has K hypotheses; a step proposes the K best next tokens of each, of these K·K the K best
 * survive, and those that end compete for the sentence's best finished one. Ties go to the lower hypothesis, then to
 * the likelier token, so the result is a function of the numbers alone. */
#include "infer/infer.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct candidate {
    double total;
    int32_t token;
    int32_t parent;
} candidate;

typedef struct search {
    const ht_search_opts *o;
    int64_t rows;          /* B·K */
    double *total;         /* [B, K] log probability so far; -inf: not in use */
    int32_t *token;        /* [length + 1, B, K] */
    int32_t *parent;       /* likewise: the hypothesis of the step before */
    double *top_value;     /* [B, K, K] */
    int64_t *top_token;    /* likewise */
    candidate *candidates; /* [K·K] */
    double *best;          /* [B] score of the best finished one; -inf: none */
    double *best_total;    /* [B] its log probability */
    int64_t *best_step;    /* [B] where it ends */
    int32_t *best_parent;  /* [B] which hypothesis it is */
} search;

static void search_free(search *s)
{
    void *all[] = {s->total, s->token,      s->parent,     s->top_value, s->top_token,
                   s->best,  s->candidates, s->best_total, s->best_step, s->best_parent};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) free(all[i]);
}

static bool search_allocate(search *s)
{
    size_t rows = (size_t)s->rows, batch = (size_t)s->o->batch, beam = (size_t)s->o->beam;
    size_t steps = (size_t)s->o->length + 1;
    s->total = calloc(rows, sizeof *s->total);
    s->token = calloc(rows * steps, sizeof *s->token);
    s->parent = calloc(rows * steps, sizeof *s->parent);
    s->top_value = calloc(rows * beam, sizeof *s->top_value);
    s->top_token = calloc(rows * beam, sizeof *s->top_token);
    s->candidates = calloc(beam * beam, sizeof *s->candidates);
    s->best = calloc(batch, sizeof *s->best);
    s->best_total = calloc(batch, sizeof *s->best_total);
    s->best_step = calloc(batch, sizeof *s->best_step);
    s->best_parent = calloc(batch, sizeof *s->best_parent);
    return s->total && s->token && s->parent && s->top_value && s->top_token && s->candidates && s->best &&
           s->best_total && s->best_step && s->best_parent;
}

static double score_of(const search *s, double total, int64_t tokens)
{
    return total / pow((double)tokens, s->o->length_penalty);
}

static int by_total(const void *a, const void *b)
{
    const candidate *x = a, *y = b;
    if (x->total != y->total) return x->total > y->total ? -1 : 1;
    if (x->parent != y->parent) return x->parent < y->parent ? -1 : 1;
    return (x->token > y->token) - (x->token < y->token);
}

/* A hypothesis of `tokens` tokens, its end counted, whose last step is `step`. */
static void finish(search *s, int64_t b, const candidate *c, int64_t step, int64_t tokens)
{
    double score = score_of(s, c->total, tokens);
    if (!(score > s->best[b])) return;
    s->best[b] = score;
    s->best_total[b] = c->total;
    s->best_step[b] = step;
    s->best_parent[b] = c->parent;
}

/* Chooses the hypotheses that step + 1 starts from; false when the sentence is done. */
static bool advance(search *s, int64_t b, int64_t step)
{
    int64_t beam = s->o->beam, alive = 0;
    double *total = s->total + b * beam;
    size_t count = 0;
    for (int64_t k = 0; k < beam; k++)
        for (int64_t i = 0; total[k] > -INFINITY && i < beam; i++) {
            int64_t at = (b * beam + k) * beam + i;
            s->candidates[count++] = (candidate){total[k] + s->top_value[at], (int32_t)s->top_token[at], (int32_t)k};
        }
    qsort(s->candidates, count, sizeof *s->candidates, by_total);
    int32_t *token = s->token + (step + 1) * s->rows + b * beam, *parent = s->parent + (step + 1) * s->rows + b * beam;
    for (size_t i = 0; i < count && alive < beam; i++) {
        const candidate *c = &s->candidates[i];
        if (c->token == s->o->end) {
            finish(s, b, c, step, step + 1);
            continue;
        }
        token[alive] = c->token;
        parent[alive] = c->parent;
        total[alive++] = c->total;
    }
    for (int64_t k = alive; k < beam; k++) {
        total[k] = -INFINITY;
        token[k] = s->o->end;
        parent[k] = 0;
    }
    if (alive == 0) return false;
    /* Log probabilities only fall; without a length penalty no live hypothesis can still win. */
    return s->o->length_penalty > 0 || !(s->best[b] >= total[0]);
}

static ht_status one_step(search *s, ht_session *session, int64_t step)
{
    size_t row_bytes = (size_t)s->rows * sizeof(int32_t), top = (size_t)(s->rows * s->o->beam);
    HT_TRY(ht_session_write(session, "token", s->token + step * s->rows, row_bytes));
    HT_TRY(ht_session_write(session, "parent", s->parent + step * s->rows, row_bytes));
    HT_TRY(ht_session_run(session, "decode_step"));
    HT_TRY(ht_session_read_f64(session, "top_log_probability", s->top_value, top));
    return ht_session_read(session, "top_token", s->top_token, top * sizeof *s->top_token);
}

static void start(search *s)
{
    for (int64_t b = 0; b < s->o->batch; b++) {
        s->best[b] = -INFINITY;
        for (int64_t k = 0; k < s->o->beam; k++) {
            /* All hypotheses are equal before the first token: only one is active. */
            s->total[b * s->o->beam + k] = k == 0 ? 0 : -INFINITY;
            s->token[b * s->o->beam + k] = s->o->start;
        }
    }
}

static void write_out(search *s, int64_t b, int32_t *tokens, int64_t *lengths, double *scores)
{
    int64_t beam = s->o->beam;
    /* Live hypotheses were truncated at the maximum length. */
    if (s->best[b] == -INFINITY)
        finish(s, b, &(candidate){.total = s->total[b * beam], .parent = 0}, s->o->length, s->o->length + 1);
    int64_t length = s->best_step[b];
    int32_t k = s->best_parent[b];
    for (int64_t step = length; step > 0; step--) {
        int64_t at = step * s->rows + b * beam + k;
        tokens[b * s->o->length + step - 1] = s->token[at];
        k = s->parent[at];
    }
    lengths[b] = length;
    if (scores) scores[b] = s->best_total[b];
}

static ht_status run(search *s, ht_session *session)
{
    bool alive = true;
    start(s);
    HT_TRY(ht_session_run(session, "encode"));
    for (int64_t step = 0; step < s->o->length && alive; step++) {
        HT_TRY(one_step(s, session, step));
        alive = false;
        for (int64_t b = 0; b < s->o->rows; b++) alive |= advance(s, b, step);
    }
    return HT_OK;
}

ht_status ht_search(ht_session *session, ht_context *ctx, const ht_search_opts *opts, int32_t *tokens, int64_t *lengths,
                    double *scores)
{
    ht_search_opts o = HT_SEARCH_OPTS;
    memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    if (o.batch < 1 || o.beam < 1 || o.length < 1 || o.batch > INT32_MAX || o.beam > 1024 || o.length > INT32_MAX ||
        o.batch * o.beam > INT32_MAX / o.beam || o.length >= INT32_MAX / (o.batch * o.beam))
        HT_FAIL(ctx, HT_EINVAL,
                "search: %" PRId64 " sentences, a beam of %" PRId64 ", %" PRId64 " tokens: out of range", o.batch,
                o.beam, o.length);
    if (o.rows < 1 || o.rows > o.batch) o.rows = o.batch;
    search s = {.o = &o, .rows = o.batch * o.beam};
    ht_status status = search_allocate(&s) ? run(&s, session) : ht_fail(ctx, HT_ENOMEM, "out of memory for search");
    for (int64_t b = 0; status == HT_OK && b < o.rows; b++) write_out(&s, b, tokens, lengths, scores);
    search_free(&s);
    return status;
}
