#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/gpu_own.h"

enum { PAGE = 4096 };
static const size_t least_memory = (size_t)64 << 20, usual_memory = (size_t)512 << 20, most_memory = (size_t)4 << 30;

ht_loop_fn ht_loop_find(ht_isa isa, ht_dtype real, ht_loop loop)
{
    switch (isa) {
#define HT_ISA(id, name, ...)                                                                                          \
    case HT_ISA_##id: {                                                                                                \
        extern const ht_loop_fn ht_probe_loops_f32_##name[HT_LOOP_COUNT], ht_probe_loops_f64_##name[HT_LOOP_COUNT];    \
        return real == HT_F64 ? ht_probe_loops_f64_##name[loop] : ht_probe_loops_f32_##name[loop];                     \
    }
#include "base/isas.def"
    default: return NULL;
    }
}

void ht_topology_name(ht_topology *out)
{
    FILE *file = fopen("/proc/cpuinfo", "re");
    char line[256];
    while (file && !out->processor[0] && fgets(line, sizeof line, file)) {
        const char *name = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;
        line[strcspn(line, "\n")] = '\0';
        if (name) snprintf(out->processor, sizeof out->processor, "%.90s", name + 1 + strspn(name + 1, " "));
    }
    if (file) fclose(file);
}

/* Sixteen times the last cache, within bounds; with little time the smallest. STREAM asks for four times: of
 * data three and seven times its size a cache was seen to keep enough to make a triad 32 and 9 % faster. */
static size_t memory_wanted(const prober *p)
{
    const ht_topology *t = &p->out->topology;
    size_t last =
        (size_t)t->cache_bytes[HT_CACHE_L3] * (size_t)(t->caches[HT_CACHE_L3] > 0 ? t->caches[HT_CACHE_L3] : 1);
    size_t wanted = 16 * last, whole = (size_t)p->out->target.memory_bytes[HT_SPACE_MAIN];
    if (p->slice < 0.05) return least_memory;
    if (wanted < usual_memory) wanted = usual_memory;
    if (wanted > most_memory) wanted = most_memory;
    return whole && wanted > whole / 8 ? (whole / 8 > least_memory ? whole / 8 : least_memory) : wanted;
}

/* a: ones, so that chains neither overflow nor die away; b: a little less. */
static void fill_small(char *arrays)
{
    float *a = (float *)arrays, *b = (float *)(arrays + HT_LOOP_BYTES);
    for (size_t i = 0; i < HT_LOOP_BYTES / sizeof *a; i++) a[i] = 1, b[i] = 0.875f;
}

static ht_status make_arrays(prober *p)
{
    enum { SMALL = 3 * HT_LOOP_BYTES };
    p->memory_bytes = memory_wanted(p) / (3 * PAGE) * (3 * PAGE);
    p->data = calloc((size_t)p->threads, sizeof *p->data);
    p->small = aligned_alloc(PAGE, (size_t)p->threads * SMALL);
    p->memory = ht_pages_alloc(p->memory_bytes, p->ctx->pool);
    if (!p->data || !p->small || !p->memory)
        HT_FAIL(p->ctx, HT_ENOMEM, "probe: out of memory for %zu bytes", p->memory_bytes);
    for (int i = 0; i < p->threads; i++) {
        char *arrays = p->small + (size_t)i * SMALL;
        fill_small(arrays);
        memset(arrays + 2 * HT_LOOP_BYTES, 0, HT_LOOP_BYTES);
        p->data[i] = (ht_loop_data){.a = arrays, .b = arrays + HT_LOOP_BYTES, .c = arrays + 2 * HT_LOOP_BYTES};
    }
    ht_probe_share_memory(p, p->threads, p->memory_bytes);
    return HT_OK;
}

static ht_status make_one(prober *p)
{
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.threads = 1;
    opts.isa = ht_isa_name((ht_isa)p->ctx->isa);
    opts.message = p->ctx->message;
    opts.message_size = sizeof p->ctx->message;
    return ht_context_create(&p->one, &opts);
}

/* In this order: families are compared with the ceilings before them. */
static const struct {
    unsigned part;
    ht_status (*measure)(prober *p);
    int slices; /* of time, about */
} parts[] = {
    {HT_PROBE_ARITHMETIC, ht_probe_arithmetic, 16}, {HT_PROBE_MEMORY, ht_probe_memory, 18},
    {HT_PROBE_ENERGY, ht_probe_energy, 2},          {HT_PROBE_DISK, ht_probe_disk, 8},
    {HT_PROBE_FAMILIES, ht_probe_families, 114}, /* three for each */
    {HT_PROBE_CATALOGUE, ht_probe_catalogue, 152},
};

static double slice_of(const ht_probe_opts *opts)
{
    int slices = 0;
    double seconds = opts->parts & HT_PROBE_CATALOGUE ? HT_PROBE_ALL_SECONDS : HT_PROBE_SECONDS;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (opts->parts & parts[i].part) slices += parts[i].slices;
    if (opts->gpu) seconds /= 2; /* the other half is the GPU's */
    return (opts->seconds > 0 ? opts->seconds : seconds) / slices;
}

static ht_status measure(prober *p)
{
    HT_TRY(make_arrays(p));
    HT_TRY(make_one(p));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (p->opts.parts & parts[i].part) HT_TRY(parts[i].measure(p));
    if (!p->opts.gpu) return HT_OK;
    p->out->has_gpu = true;
    return ht_gpu_probe(p, p->opts.gpu, &p->out->gpu);
}

static ht_status take_messages(prober *p)
{
    const ht_probe *messages = p->opts.messages;
    for (size_t i = 0; messages && i < messages->count; i++) {
        ht_probe_row *row = ht_probe_add(p, "", "", "", 0, 0);
        if (!row) return HT_ENOMEM;
        *row = messages->rows[i];
    }
    if (messages) memcpy(p->out->target.network, messages->target.network, sizeof p->out->target.network);
    return HT_OK;
}

ht_status ht_probe_run(ht_context *ctx, const ht_probe_opts *opts, ht_probe *out)
{
    prober p = {.ctx = ctx, .opts = *opts, .out = out, .threads = ht_context_threads(ctx)};
    double start = ht_probe_now();
    *out = (ht_probe){0};
    ht_target_here(ctx, &out->target);
    ht_topology_describe(&out->topology);
    if (!p.opts.parts) p.opts.parts = HT_PROBE_CEILINGS;
    p.slice = slice_of(&p.opts);
    ht_status status = take_messages(&p);
    if (status == HT_OK) status = measure(&p);
    ht_target_mark(&out->target, HT_SOURCE_MEASURED);
    ht_context_free(p.one);
    free(p.memory);
    free(p.small);
    free(p.data);
    out->seconds = ht_probe_now() - start;
    return status;
}

void ht_probe_free(ht_probe *probe)
{
    free(probe->rows);
    *probe = (ht_probe){0};
}

static bool same(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

const ht_probe_row *ht_probe_find(const ht_probe *probe, const char *group, const char *name, const char *size,
                                  int threads)
{
    for (size_t i = 0; i < probe->count; i++) {
        const ht_probe_row *row = &probe->rows[i];
        if (row->device == HT_DEVICE_CPU && same(row->group, group) && same(row->name, name) && same(row->size, size) &&
            row->threads == threads)
            return row;
    }
    return NULL;
}
