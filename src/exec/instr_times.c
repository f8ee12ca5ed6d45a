/* Instructions of one queue run one after the other, and pieces of a row block in several threads, so all sums are atomic.
 * A row block begins and ends in one thread, and its pieces lie between: their times are complete when it ends. */
#include "exec/instr_times.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

typedef struct sum {
    _Atomic int64_t nanoseconds, pieces, runs; /* pieces: of all threads together, in the row block that is running */
} sum;

struct ht_instr_times {
    const ht_plan *plan;
    ht_observer observer;
    sum **sums; /* by segment, then instruction */
    ht_instr_event *events;
    size_t most_events;
    _Atomic size_t event_count; /* that there were: more than most_events if some were dropped */
    _Atomic int threads;
};

double ht_instr_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* A thread's own: when its instruction began, and its row block; who gave it a number. */
static _Thread_local double started, block_started;
static _Thread_local const ht_instr_times *numbered_by;
static _Thread_local int number;

static int thread_number(ht_instr_times *t)
{
    if (numbered_by != t) number = atomic_fetch_add(&t->threads, 1);
    numbered_by = t;
    return number;
}

static void keep_event(ht_instr_times *t, const ht_observation *at, double begin, double end)
{
    if (!t->most_events) return;
    size_t place = atomic_fetch_add(&t->event_count, 1);
    if (place >= t->most_events) return;
    t->events[place] = (ht_instr_event){at->segment,   at->instr,   begin,         end,
                                        at->first_row, at->end_row, at->row_block, thread_number(t)};
}

static void before(void *arg, const ht_observation *at)
{
    (void)arg;
    *(at->row_block ? &block_started : &started) = ht_instr_clock();
}

/* Shares the time of a row block among its parts. */
static void share_block(sum *parts, size_t count, double seconds)
{
    double all = 0;
    for (size_t i = 0; i < count; i++) all += (double)parts[i].pieces;
    for (size_t i = 0; i < count; i++) {
        double share = all > 0 ? (double)parts[i].pieces / all : 1 / (double)count;
        atomic_fetch_add(&parts[i].nanoseconds, (int64_t)(1e9 * seconds * share));
        atomic_fetch_add(&parts[i].runs, 1);
        parts[i].pieces = 0;
    }
}

/* Of a device with a clock: a row block is one launch there. */
static void took(void *arg, const ht_observation *at, double begin, double end)
{
    ht_instr_times *t = arg;
    sum *of = &t->sums[at->segment - t->plan->segments][at->instr - at->segment->instrs];
    atomic_fetch_add(&of->nanoseconds, (int64_t)(1e9 * (end - begin)));
    atomic_fetch_add(&of->runs, 1);
    keep_event(t, at, begin, end);
}

static void after(void *arg, const ht_observation *at)
{
    ht_instr_times *t = arg;
    double end = ht_instr_clock(), begin = at->row_block ? block_started : started;
    sum *of = &t->sums[at->segment - t->plan->segments][at->instr - at->segment->instrs];
    if (at->row_block) {
        share_block(of, at->row_block, end - begin);
    } else if (at->end_row) {
        atomic_fetch_add(&of->pieces, (int64_t)(1e9 * (end - begin)));
    } else {
        atomic_fetch_add(&of->nanoseconds, (int64_t)(1e9 * (end - begin)));
        atomic_fetch_add(&of->runs, 1);
    }
    keep_event(t, at, begin, end);
}

ht_status ht_instr_times_create(ht_instr_times **out, const ht_plan *plan, size_t most_events)
{
    ht_instr_times *t = *out = calloc(1, sizeof *t);
    bool ok = t != NULL;
    if (ok) {
        *t = (ht_instr_times){.plan = plan, .observer = {t, before, after, took}, .most_events = most_events};
        t->sums = calloc(plan->segment_count + 1, sizeof *t->sums);
        t->events = calloc(most_events + 1, sizeof *t->events);
        ok = t->sums && t->events;
    }
    for (size_t s = 0; ok && s < plan->segment_count; s++)
        ok = (t->sums[s] = calloc(plan->segments[s].instr_count + 1, sizeof **t->sums)) != NULL;
    if (ok) return HT_OK;
    ht_instr_times_free(t);
    *out = NULL;
    HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for the times of instructions");
}

void ht_instr_times_free(ht_instr_times *t)
{
    if (!t) return;
    for (size_t s = 0; t->sums && s < t->plan->segment_count; s++) free(t->sums[s]);
    free(t->sums);
    free(t->events);
    free(t);
}

const ht_observer *ht_instr_times_observer(const ht_instr_times *t)
{
    return &t->observer;
}

void ht_instr_times_reset(ht_instr_times *t)
{
    for (size_t s = 0; s < t->plan->segment_count; s++)
        for (size_t i = 0; i < t->plan->segments[s].instr_count; i++) {
            t->sums[s][i].nanoseconds = 0;
            t->sums[s][i].runs = 0;
        }
}

double ht_instr_times_seconds(const ht_instr_times *t, size_t segment, size_t instr)
{
    return 1e-9 * (double)t->sums[segment][instr].nanoseconds;
}

int64_t ht_instr_times_runs(const ht_instr_times *t, size_t segment, size_t instr)
{
    return t->sums[segment][instr].runs;
}

const ht_instr_event *ht_instr_times_events(const ht_instr_times *t, size_t *count, size_t *dropped)
{
    size_t seen = t->event_count;
    *count = seen < t->most_events ? seen : t->most_events;
    *dropped = seen - *count;
    return t->events;
}
