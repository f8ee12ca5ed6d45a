/* Where to cut a model into stages: contiguous ones, of which the slowest is as fast as it can be. The time of a stage is
 * that of its nodes and of what it sends and receives. The numbers do not depend on the machine, since all ranks must cut
 * alike. */
#include "pass/pipeline_balance.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const double BYTE_SENT = 64; /* as long as so many FLOPs */

typedef struct balance {
    const ht_pipeline_places *places;
    size_t *at; /* candidates: positions, with the first and the end */
    size_t count;
    double *cost;    /* by candidate: of all nodes before it */
    size_t *weights; /* by candidate: nodes before it that read weights */
    double *best;    /* by candidate: the slowest stage before it, with as many stages as were laid out */
    double *next;
    size_t *from; /* [stages][candidates]: where the last of the stages begins */
} balance;

/* Where fewer bytes are sent than anywhere near: at the end of a layer. */
static bool is_candidate(const ht_pipeline_places *p, size_t at)
{
    if (at == 0 || at == p->count) return true;
    return !p->refused[at] && p->bytes[at] <= p->bytes[at - 1] && p->bytes[at] <= p->bytes[at + 1];
}

static void find_candidates(balance *b)
{
    const ht_pipeline_places *p = b->places;
    double cost = 0;
    size_t weights = 0;
    for (size_t at = 0; at <= p->count; at++) {
        if (is_candidate(p, at)) {
            b->at[b->count] = at;
            b->cost[b->count] = cost;
            b->weights[b->count++] = weights;
        }
        if (at == p->count) break;
        cost += p->cost[at];
        weights += p->has_weight[at];
    }
}

/* Of a stage from one candidate to another; one without weights is none. */
static double stage_cost(const balance *b, size_t first, size_t end)
{
    if (b->weights[first] == b->weights[end]) return INFINITY;
    double sent = first > 0 ? b->places->bytes[b->at[first]] : 0;
    if (end + 1 < b->count) sent += b->places->bytes[b->at[end]];
    return b->cost[end] - b->cost[first] + BYTE_SENT * sent;
}

/* One stage more, for every end that it can have; of equal ones the first. */
static void add_stage(balance *b, size_t *from)
{
    for (size_t end = 0; end < b->count; end++) {
        b->next[end] = INFINITY;
        from[end] = 0;
        for (size_t first = 0; first < end; first++) {
            double cost = stage_cost(b, first, end), slowest = cost > b->best[first] ? cost : b->best[first];
            if (slowest >= b->next[end]) continue;
            b->next[end] = slowest;
            from[end] = first;
        }
    }
    memcpy(b->best, b->next, b->count * sizeof *b->best);
}

static bool lay_out(balance *b, int64_t stages, size_t *cuts)
{
    find_candidates(b);
    for (size_t i = 0; i < b->count; i++) b->best[i] = i == 0 ? 0 : INFINITY;
    for (int64_t s = 0; s < stages; s++) add_stage(b, b->from + (size_t)s * (b->places->count + 1));
    size_t end = b->count - 1;
    if (isinf(b->best[end])) return false;
    for (int64_t s = stages; s-- > 1;) {
        end = b->from[(size_t)s * (b->places->count + 1) + end];
        cuts[s - 1] = b->at[end];
    }
    return true;
}

ht_status ht_pipeline_balance(ht_context *ctx, const ht_pipeline_places *places, int64_t stages, size_t *cuts,
                              bool *found)
{
    size_t most = places->count + 1;
    balance b = {.places = places,
                 .at = calloc(most, sizeof *b.at),
                 .cost = calloc(most, sizeof *b.cost),
                 .weights = calloc(most, sizeof *b.weights),
                 .best = calloc(most, sizeof *b.best),
                 .next = calloc(most, sizeof *b.next),
                 .from = calloc(most * (size_t)stages, sizeof *b.from)};
    bool ok = b.at && b.cost && b.weights && b.best && b.next && b.from;
    if (ok) *found = lay_out(&b, stages, cuts);
    free(b.at);
    free(b.cost);
    free(b.weights);
    free(b.best);
    free(b.next);
    free(b.from);
    return ok ? HT_OK : ht_fail(ctx, HT_ENOMEM, "pipeline: out of memory");
}
