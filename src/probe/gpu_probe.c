/* A GPU beside the processor: opened, measured part by part, and described as a target. */
#include <stdio.h>
#include <string.h>

#include "probe/gpu_own.h"

ht_probe_row *ht_gpu_add(const gpu_prober *g, const char *group, const char *name, const char *what, const char *unit,
                         double value, int threads)
{
    ht_probe_row *row = ht_probe_add(g->p, group, name, unit, value, threads);
    if (!row) return NULL;
    row->what = what;
    row->device = HT_DEVICE_CUDA;
    return row;
}

/* ---- links ---- */

typedef struct copy_call {
    const gpu_prober *g;
    void *host;
    size_t bytes;
    bool to_device;
} copy_call;

static ht_status copy(void *arg, int64_t times)
{
    const copy_call *c = arg;
    for (int64_t i = 0; i < times; i++)
        HT_TRY(c->to_device ? ht_queue_copy(c->g->queue, c->g->memory, c->host, c->bytes, HT_COPY_TO_DEVICE)
                            : ht_queue_copy(c->g->queue, c->host, c->g->memory, c->bytes, HT_COPY_FROM_DEVICE));
    return HT_OK;
}

static ht_status measure_link(gpu_prober *g, void *host, bool to_device)
{
    enum { SMALL = 8 };
    static const char *const names[] = {"main-host", "host-main"};
    ht_target *t = g->target;
    double *to = to_device ? &t->link[HT_SPACE_HOST][HT_SPACE_MAIN] : &t->link[HT_SPACE_MAIN][HT_SPACE_HOST];
    copy_call call = {.g = g, .host = host, .bytes = (size_t)64 << 20, .to_device = to_device};
    double seconds;
    if (call.bytes > g->memory_bytes) call.bytes = g->memory_bytes;
    HT_TRY(ht_gpu_seconds(g, copy, &call, &seconds));
    *to = (double)call.bytes / seconds;
    if (!ht_gpu_add(g, "link", names[to_device], "copy of 64 MiB, locked pages", "B/s", *to, 0)) return HT_ENOMEM;
    call.bytes = SMALL;
    HT_TRY(ht_gpu_seconds(g, copy, &call, &seconds));
    return ht_gpu_add(g, "link", names[to_device], "a copy of 8 bytes", "s", seconds, 0) ? HT_OK : HT_ENOMEM;
}

static ht_status measure_links(gpu_prober *g)
{
    void *host;
    ht_probe_tell(g->p, "link of the GPU");
    HT_TRY(ht_device_host_alloc(g->device, (size_t)64 << 20, &host));
    ht_status status = measure_link(g, host, true);
    if (status == HT_OK) status = measure_link(g, host, false);
    ht_device_host_free(g->device, host);
    return status;
}

/* ---- ceilings of loops ---- */

static ht_status measure_peaks(gpu_prober *g)
{
    static const struct {
        const char *name, *loop;
        ht_dtype dtype;
        double each; /* operations of a thread in a round */
    } rows[] = {{"f64", "peak_f64", HT_F64, 256}, {"f32", "peak_f32", HT_F32, 256}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        double rounds;
        HT_TRY(ht_gpu_loop(g, rows[i].loop, 0, false, &rounds));
        double rate = rounds * rows[i].each * ht_gpu_threads(g, false);
        if (!ht_gpu_add(g, "flops", rows[i].name, "multiply-adds in registers", "FLOP/s", rate, 0)) return HT_ENOMEM;
        if (rate > g->target->flops[rows[i].dtype]) g->target->flops[rows[i].dtype] = rate;
    }
    return HT_OK;
}

/* ---- all of it ---- */

/* What the machine beside it can do: main is the GPU's now. */
static void take_host(const prober *p, ht_target *gpu)
{
    const ht_target *here = &p->out->target;
    gpu->bandwidth[HT_SPACE_HOST] = here->bandwidth[HT_SPACE_MAIN];
    gpu->latency[HT_SPACE_HOST] = here->latency[HT_SPACE_MAIN];
    gpu->bandwidth[HT_SPACE_DISK] = here->bandwidth[HT_SPACE_DISK];
    gpu->random_bandwidth[HT_SPACE_DISK] = here->random_bandwidth[HT_SPACE_DISK];
    gpu->latency[HT_SPACE_DISK] = here->latency[HT_SPACE_DISK];
    gpu->link[HT_SPACE_HOST][HT_SPACE_DISK] = here->link[HT_SPACE_MAIN][HT_SPACE_DISK];
    gpu->link[HT_SPACE_DISK][HT_SPACE_HOST] = here->link[HT_SPACE_DISK][HT_SPACE_MAIN];
    memcpy(gpu->network, here->network, sizeof gpu->network);
}

ht_status ht_gpu_open(gpu_prober *g)
{
    ht_context *ctx = g->p->ctx;
    const ht_device_class *class;
    HT_TRY(ht_target_bind(ctx, g->target, g->name));
    HT_TRY(ht_device_get(&g->device, ctx, g->name));
    class = g->device->class;
    ht_device_describe(ctx, g->target);
    g->target->cache_bytes[HT_CACHE_L2] = ht_cuda_device_limits(g->device).l2_bytes;
    HT_TRY(class->queue_create(g->device, &g->queue));
    HT_TRY(class->event_create(g->device, &g->from));
    HT_TRY(class->event_create(g->device, &g->to));
    g->memory_bytes = g->small ? (size_t)4 << 20 : (size_t)1 << 30;
    if (g->memory_bytes > (size_t)g->target->memory_bytes[HT_SPACE_MAIN] / 4)
        g->memory_bytes = (size_t)g->target->memory_bytes[HT_SPACE_MAIN] / 4;
    HT_TRY(ht_device_alloc(g->device, g->memory_bytes, (void **)&g->memory));
    static uint64_t nothing[4];
    HT_TRY(ht_device_alloc(g->device, sizeof nothing, (void **)&g->control));
    HT_TRY(ht_queue_copy(g->queue, g->control, nothing, sizeof nothing, HT_COPY_TO_DEVICE));
    return ht_queue_sync(g->queue);
}

void ht_gpu_close(gpu_prober *g)
{
    if (!g->device) return;
    ht_device_free(g->device, g->control);
    ht_device_free(g->device, g->memory);
    ht_event_free(g->to);
    ht_event_free(g->from);
    ht_queue_free(g->queue);
}

static ht_status measure(gpu_prober *g)
{
    static const struct {
        unsigned part;
        ht_status (*measure)(gpu_prober *g);
    } parts[] = {
        {HT_PROBE_ARITHMETIC, measure_peaks},   {HT_PROBE_ARITHMETIC, ht_gpu_products},
        {HT_PROBE_MEMORY, ht_gpu_memory},       {HT_PROBE_MEMORY, measure_links},
        {HT_PROBE_ENERGY, ht_gpu_energy},       {HT_PROBE_FAMILIES, ht_gpu_families},
        {HT_PROBE_CATALOGUE, ht_gpu_catalogue}, {HT_PROBE_CATALOGUE, ht_gpu_calls},
    };
    HT_TRY(ht_gpu_open(g));
    HT_TRY(ht_gpu_loops_load(g));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (g->p->opts.parts & parts[i].part) HT_TRY(parts[i].measure(g));
    return HT_OK;
}

ht_status ht_gpu_probe(prober *p, const char *name, ht_target *gpu)
{
    /* Its clock is finer, and nothing else runs there: a quarter of the time is enough. */
    gpu_prober g = {.p = p, .name = name, .target = gpu, .slice = p->slice / 4, .small = p->slice < 2e-3};
    ht_target_here(p->ctx, gpu);
    ht_status status = measure(&g);
    ht_gpu_close(&g);
    take_host(p, gpu);
    ht_target_mark(gpu, HT_SOURCE_MEASURED);
    return status;
}
