/* How rates are taken: rounds are doubled until a call takes long enough for the clock, then calls are repeated until the
 * time is up, three at least, two of those that take longer than that. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "probe/probe_own.h"

double ht_probe_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void ht_probe_tell(const prober *p, const char *what)
{
    if (p->opts.progress) p->opts.progress(p->opts.arg, what);
}

ht_probe_row *ht_probe_add(prober *p, const char *group, const char *name, const char *unit, double value, int threads)
{
    ht_probe *out = p->out;
    if (!ht_grow((void **)&out->rows, &out->capacity, out->count + 1, sizeof *out->rows)) {
        ht_fail(p->ctx, HT_ENOMEM, "probe: out of memory for its rows");
        return NULL;
    }
    out->rows[out->count] =
        (ht_probe_row){.group = group, .name = name, .what = name, .unit = unit, .value = value, .threads = threads};
    return &out->rows[out->count++];
}

/* For the clock; longer calls would be interrupted more often, and the best of many short ones is that of a free machine. */
static const double long_enough = 2e-3;

double ht_probe_best(double seconds, ht_probe_call call, void *arg)
{
    const double shortest = seconds / 8 < long_enough ? seconds / 8 : long_enough;
    double start = ht_probe_now(), best = 0, took = 0;
    int64_t rounds = 1;
    for (int repeats = 0; repeats < (took > seconds ? 2 : 3) || ht_probe_now() - start < seconds; repeats++) {
        double from = ht_probe_now(), operations = call(arg, rounds);
        if (operations < 0) return operations;
        took = ht_probe_now() - from;
        if (took < shortest && rounds < INT64_MAX / 4) {
            rounds *= took < shortest / 4 ? 4 : 2;
            repeats = -1;
        } else if (operations / took > best) {
            best = operations / took;
        }
    }
    return best;
}

typedef struct loop_call {
    ht_pool *pool;
    ht_loop_data *data;
    ht_loop_fn fn;
    int threads;
    int64_t rounds;
    size_t window,
        windows; /* of memory: which part of it comes next, how many there are; 0: all of it in every round */
} loop_call;

static void run_tile(void *arg, int64_t tile)
{
    const loop_call *call = arg;
    call->data[tile].operations = call->fn(&call->data[tile], call->rounds);
}

static double call_loop(void *arg, int64_t rounds)
{
    loop_call *call = arg;
    double operations = 0;
    call->rounds = rounds;
    ht_parallel(call->threads > 1 ? call->pool : NULL, call->threads, run_tile, call);
    for (int i = 0; i < call->threads; i++) operations += call->data[i].operations;
    return operations;
}

/* Each round has the next part of memory, so that what it reads has left the caches since it came last. */
static double call_windows(void *arg, int64_t rounds)
{
    loop_call *call = arg;
    double operations = 0;
    for (int64_t r = 0; r < rounds; r++) {
        size_t next = (call->window + 1) % call->windows, bytes = call->data[0].memory_bytes;
        for (int i = 0; i < call->threads; i++)
            call->data[i].memory =
                next ? call->data[i].memory + bytes : call->data[i].memory - bytes * (call->windows - 1);
        call->window = next;
        operations += call_loop(call, 1);
    }
    return operations;
}

double ht_probe_stream(prober *p, ht_dtype real, ht_loop loop, int threads)
{
    const size_t window = 4096 * (size_t)(3 * HT_LOOP_BYTES);
    loop_call call = {.pool = p->ctx->pool, .data = p->data, .threads = threads};
    call.fn = ht_loop_find((ht_isa)p->ctx->isa, real, loop);
    ht_probe_share_memory(p, threads, p->memory_bytes);
    call.windows = p->data[0].memory_bytes / window;
    if (call.windows < 2) return ht_probe_best(p->slice, call_loop, &call);
    for (int i = 0; i < threads; i++) p->data[i].memory_bytes = window;
    return ht_probe_best(p->slice, call_windows, &call);
}

double ht_probe_operations(prober *p, ht_dtype real, ht_loop loop, int threads)
{
    loop_call call = {.pool = p->ctx->pool, .data = p->data, .threads = threads};
    double start = ht_probe_now(), sum = 0, now = start;
    call.fn = ht_loop_find((ht_isa)p->ctx->isa, real, loop);
    for (int64_t rounds = 1; sum == 0 || now - start < p->slice;) {
        double from = now;
        sum += call_loop(&call, rounds);
        now = ht_probe_now();
        if (now - from < long_enough) rounds *= 2;
    }
    return sum;
}

double ht_probe_loop(prober *p, ht_dtype real, ht_loop loop, int threads)
{
    loop_call call = {.pool = p->ctx->pool, .data = p->data, .threads = threads};
    call.fn = ht_loop_find((ht_isa)p->ctx->isa, real, loop);
    return ht_probe_best(p->slice, call_loop, &call);
}
