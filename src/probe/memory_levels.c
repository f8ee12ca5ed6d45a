/* Bandwidth and latency of each level of memory. A level is measured with data that fill half of one of its caches, or, of
 * a level that threads share, half of their part of it, and at most 16 times the level before: a virtual machine has less of
 * a large cache than it shows; memory with data many times as large as the last level, which keeps some of what comes again
 * in the same order even where all of it is several times its size. */
#include <stdlib.h>
#include <string.h>

#include "probe/probe_own.h"

enum { LINE_BYTES = 64, UNIT = 3 * HT_LOOP_BYTES, MOST_TIMES = 16 };
static const size_t longest_cycle = (size_t)1 << 30; /* a shuffle of more takes seconds */

static size_t rounded(size_t bytes)
{
    return bytes < UNIT ? UNIT : bytes / UNIT * UNIT;
}

void ht_probe_share_memory(prober *p, int threads, size_t bytes)
{
    size_t most = rounded(p->memory_bytes / (size_t)threads), part = rounded(bytes < most ? bytes : most);
    for (int i = 0; i < threads; i++) {
        p->data[i].memory = p->memory + (size_t)i * most;
        p->data[i].memory_bytes = part;
    }
}

/* Sattolo's shuffle of the lines: one cycle through all of them. A cycle has no beginning: threads start at different places
 * of one. */
ht_status ht_probe_thread_cycle(prober *p, size_t bytes)
{
    size_t most = p->memory_bytes < longest_cycle ? p->memory_bytes : longest_cycle;
    size_t lines = (bytes < most ? bytes : most) / LINE_BYTES;
    uint32_t *order = malloc(lines * sizeof *order);
    if (!order) HT_FAIL(p->ctx, HT_ENOMEM, "probe: out of memory for %zu lines", lines);
    uint64_t state = 88172645463325252u;
    for (size_t i = 0; i < lines; i++) order[i] = (uint32_t)i;
    for (size_t i = lines - 1; i > 0; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        size_t other = (size_t)((state >> 32) * i >> 32);
        uint32_t kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    for (size_t i = 0; i < lines; i++)
        *(void **)(p->memory + (size_t)order[i] * LINE_BYTES) =
            p->memory + (size_t)order[i + 1 < lines ? i + 1 : 0] * LINE_BYTES;
    for (int i = 0; i < p->threads; i++)
        p->data[i].start = p->memory + (size_t)order[lines * (size_t)i / (size_t)p->threads] * LINE_BYTES;
    free(order);
    return HT_OK;
}

static ht_status measure_latency(prober *p, const char *group, const char *name, size_t bytes, double *to)
{
    HT_TRY(ht_probe_thread_cycle(p, bytes));
    double rate = ht_probe_loop(p, HT_F32, HT_LOOP_chase, 1);
    ht_probe_row *row = ht_probe_add(p, group, name, "s", 1 / rate, 1);
    if (!row) return HT_ENOMEM;
    row->what = "latency: a read that waits for the last one";
    *to = 1 / rate;
    return HT_OK;
}

static const struct {
    ht_loop loop;
    ht_dtype real;
    const char *what;
} ways[] = {
    {HT_LOOP_read, HT_F32, "read"},
    {HT_LOOP_write, HT_F32, "write"},
    {HT_LOOP_copy, HT_F32, "copy"},
    {HT_LOOP_triad, HT_F64, "triad, as STREAM counts it"},
};
enum { READ, WRITE, COPY, TRIAD, WAYS };

static ht_status add_rate(prober *p, const char *group, const char *name, int way, int threads, double rate)
{
    ht_probe_row *row = ht_probe_add(p, group, name, "B/s", rate, threads);
    if (!row) return HT_ENOMEM;
    row->what = ways[way].what;
    return HT_OK;
}

static ht_status measure_cache(prober *p, ht_cache level)
{
    const ht_topology *t = &p->out->topology;
    const char *name = ht_cache_names[level];
    ht_target *target = &p->out->target;
    size_t whole = (size_t)t->cache_bytes[level], part = whole / 2;
    if (level > 0 && t->cache_bytes[level - 1] > 0 && part > MOST_TIMES * (size_t)t->cache_bytes[level - 1])
        part = MOST_TIMES * (size_t)t->cache_bytes[level - 1];
    if (whole == 0 || part > p->memory_bytes) return HT_OK;
    int caches = t->caches[level] > 0 ? t->caches[level] : 1, sharers = (p->threads + caches - 1) / caches;
    target->cache_bytes[level] = (double)whole;
    for (int all = 0; all <= (p->threads > 1); all++) {
        int threads = all ? p->threads : 1;
        ht_probe_share_memory(p, threads, all ? part / (size_t)sharers : part);
        double rate = ht_probe_loop(p, ways[READ].real, ways[READ].loop, threads);
        HT_TRY(add_rate(p, "cache", name, READ, threads, rate));
        if (rate > target->cache_bandwidth[level]) target->cache_bandwidth[level] = rate;
    }
    return measure_latency(p, "cache", name, part, &target->cache_latency[level]);
}

ht_status ht_probe_memory(prober *p)
{
    ht_target *target = &p->out->target;
    ht_probe_tell(p, "caches");
    for (int level = 0; level < HT_CACHE_COUNT; level++) HT_TRY(measure_cache(p, (ht_cache)level));
    ht_probe_tell(p, "memory");
    for (int way = 0; way < WAYS; way++)
        for (int all = 0; all <= (p->threads > 1); all++) {
            int threads = all ? p->threads : 1;
            double rate = ht_probe_stream(p, ways[way].real, ways[way].loop, threads);
            HT_TRY(add_rate(p, "memory", "main", way, threads, rate));
            if (way == TRIAD && rate > target->bandwidth[HT_SPACE_MAIN]) target->bandwidth[HT_SPACE_MAIN] = rate;
        }
    return measure_latency(p, "memory", "main", p->memory_bytes, &target->latency[HT_SPACE_MAIN]);
}
