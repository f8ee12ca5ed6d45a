/* What to compute again for a limit on memory, in the least time. A few candidates are searched exhaustively; of many,
 * a greedy choice drops whatever takes most bytes above the limit away for its time, and then takes back what turned
 * out to be needless, the dearest first. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pass/recompute_model.h"

enum { FEW = 18 };

/* ---- many candidates ---- */

typedef struct greedy {
    ht_recompute_model *m;
    int64_t limit;
    bool *dropped;
    double *gain; /* by candidate: the last known bytes above the limit, times time, that go for a second */
    ht_recompute_outcome now;
} greedy;

static double gain_of(greedy *c, size_t i)
{
    c->dropped[i] = true;
    ht_recompute_outcome then = ht_recompute_try(c->m, c->dropped, c->limit);
    c->dropped[i] = false;
    double less = c->now.excess - then.excess, seconds = then.seconds - c->now.seconds;
    return less <= 0 ? 0 : less / fmax(seconds, 1e-12);
}

/* The best of the gains as they were last known; candidate_count: none is left. */
static size_t best_known(const greedy *c)
{
    size_t best = c->m->candidate_count;
    for (size_t i = 0; i < c->m->candidate_count; i++)
        if (!c->dropped[i] && c->gain[i] > 0 && (best == c->m->candidate_count || c->gain[i] > c->gain[best])) best = i;
    return best;
}

/* Gains shrink as others are dropped, mostly: a candidate that is still the best when it is looked at again is taken. */
static void drop_greedily(greedy *c)
{
    size_t none = c->m->candidate_count;
    bool any = true; /* something was dropped since all gains were unknown */
    for (size_t i = 0; i < none; i++) c->gain[i] = INFINITY;
    while (c->now.excess > 0) {
        size_t best = best_known(c);
        if (best == none && !any) return;
        if (best == none) { /* what gained nothing before may gain now */
            for (size_t i = 0; i < none; i++) c->gain[i] = INFINITY;
            any = false;
            continue;
        }
        c->gain[best] = gain_of(c, best);
        if (c->gain[best] <= 0 || best_known(c) != best) continue;
        c->dropped[best] = true;
        c->now = ht_recompute_try(c->m, c->dropped, c->limit);
        any = true;
    }
}

typedef struct saving {
    size_t candidate;
    double seconds;
} saving;

static int dearest_first(const void *a, const void *b)
{
    const saving *x = a, *y = b;
    if (x->seconds != y->seconds) return x->seconds > y->seconds ? -1 : 1;
    return x->candidate < y->candidate ? -1 : x->candidate > y->candidate;
}

/* The outcome without one of those that are dropped. */
static ht_recompute_outcome try_without(const greedy *c, size_t i)
{
    c->dropped[i] = false;
    ht_recompute_outcome then = ht_recompute_try(c->m, c->dropped, c->limit);
    c->dropped[i] = true;
    return then;
}

/* Takes back what is not needed, the dearest first, until nothing more can be. */
static void take_back(greedy *c, saving *savings)
{
    for (bool again = true; again;) {
        size_t count = 0;
        again = false;
        for (size_t i = 0; i < c->m->candidate_count; i++)
            if (c->dropped[i]) savings[count++] = (saving){i, c->now.seconds - try_without(c, i).seconds};
        qsort(savings, count, sizeof *savings, dearest_first);
        for (size_t k = 0; k < count; k++) {
            ht_recompute_outcome then = try_without(c, savings[k].candidate);
            if (then.excess > c->now.excess) continue;
            c->dropped[savings[k].candidate] = false;
            c->now = then;
            again = true;
        }
    }
}

static bool is_better(const ht_recompute_outcome *a, const ht_recompute_outcome *b)
{
    if (a->excess <= 0 && b->excess <= 0) return a->seconds < b->seconds;
    return a->excess <= 0 || (b->excess > 0 && a->peak_bytes < b->peak_bytes);
}

/* The arrays of a choice among many. */
typedef struct scratch {
    double *gain;
    bool *other;
    saving *savings;
} scratch;

/* *other: another choice to begin with, and to take things back from. */
static bool choose_of_many(ht_recompute_model *m, int64_t limit, bool *dropped, const scratch *at)
{
    size_t bytes = m->candidate_count * sizeof *dropped;
    greedy up = {.m = m, .limit = limit, .dropped = dropped, .gain = at->gain}, down = up;
    memset(dropped, 0, bytes);
    up.now = ht_recompute_try(m, dropped, limit);
    drop_greedily(&up);
    take_back(&up, at->savings);
    down.dropped = at->other;
    down.now = ht_recompute_try(m, at->other, limit);
    if (up.now.excess <= 0 && down.now.excess > 0) return true;
    take_back(&down, at->savings);
    if (is_better(&down.now, &up.now)) {
        memcpy(dropped, at->other, bytes);
        up.now = down.now;
    }
    return up.now.excess <= 0;
}

/* ---- few ---- */

typedef struct search {
    ht_recompute_model *m;
    int64_t limit;
    bool *dropped, *best;
    ht_recompute_outcome best_outcome;
} search;

/* Candidates before `at` are decided. Dropping more never takes less time. */
static void descend(search *c, size_t at)
{
    bool last = at == c->m->candidate_count;
    ht_recompute_outcome then = ht_recompute_try(c->m, c->dropped, c->limit);
    if (c->best_outcome.excess <= 0 && then.seconds >= c->best_outcome.seconds) return;
    if (is_better(&then, &c->best_outcome)) {
        c->best_outcome = then;
        memcpy(c->best, c->dropped, c->m->candidate_count * sizeof *c->best);
    }
    if (last || then.excess <= 0) return;
    for (size_t i = at; i < c->m->candidate_count; i++) {
        c->dropped[i] = true;
        descend(c, i + 1);
        c->dropped[i] = false;
    }
}

static bool choose_of_few(ht_recompute_model *m, int64_t limit, bool *dropped, const scratch *at)
{
    search c = {.m = m, .limit = limit, .dropped = at->other, .best = dropped};
    c.best_outcome = ht_recompute_try(m, dropped, limit);
    memset(at->other, 0, m->candidate_count * sizeof *at->other);
    descend(&c, 0);
    return c.best_outcome.excess <= 0;
}

bool ht_recompute_choose(ht_recompute_model *m, int64_t limit, bool *dropped)
{
    size_t count = m->candidate_count + 1;
    scratch at = {malloc(count * sizeof *at.gain), calloc(count, sizeof *at.other), malloc(count * sizeof *at.savings)};
    bool fits = at.gain && at.other && at.savings;
    if (fits) {
        memcpy(at.other, dropped, m->candidate_count * sizeof *dropped);
        fits = choose_of_many(m, limit, dropped, &at);
        if (m->candidate_count <= FEW) fits = choose_of_few(m, limit, dropped, &at);
    }
    free(at.gain);
    free(at.other);
    free(at.savings);
    return fits;
}
