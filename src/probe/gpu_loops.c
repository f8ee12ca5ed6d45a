/* Loops on a GPU: its ceilings without our kernels, its memories, and the catalogue's rows that are loops. */
#include <stdio.h>
#include <string.h>

#include "probe/gpu_own.h"

enum {
    THREADS = 256,
    HELD = 8,   /* blocks of that size that a processor holds at once */
    STEPS = 16, /* of the loops, as in gpu_loops.cu */
    VALUES = 8,
    L2_READS = 2 /* a level is measured with data that fill half of it */
};

/* What a round of a loop counts: for each thread, or for each byte of the memory that it goes through. */
typedef struct loop_row {
    const char *name, *group, *what; /* group NULL: no row of the catalogue */
    double each_thread, each_byte;
} loop_row;

static const loop_row rows[] = {
#define HT_LOOP(name, group, real, what) {#name, #group, what, 0, 0},
#include "probe/catalogue.def"
    {"peak_f32", NULL, "multiply-adds in registers", 2.0 * STEPS *VALUES, 0},
    {"peak_f64", NULL, "multiply-adds in registers", 2.0 * STEPS *VALUES, 0},
    {"read", NULL, "read", 0, 1},
    {"write", NULL, "write", 0, 1},
    {"copy", NULL, "copy", 0, 1},
    {"triad", NULL, "triad, as STREAM counts it", 0, 1},
    {"link_lines", NULL, "", 0, 1},
};
enum { ROWS = sizeof rows / sizeof rows[0] };

/* Of the catalogue's rows those that do not count one operation for each value and step. */
static const loop_row counts[] = {
    {"accumulate_f32", NULL, NULL, 2.0 * STEPS *VALUES, 0},
    {"accumulate_i8", NULL, NULL, 8.0 * STEPS *VALUES, 0},
    {"read_sequential", NULL, NULL, 0, 1.0 / 4},
    {"write_sequential", NULL, NULL, 0, 1.0 / 4},
    {"read_strided", NULL, NULL, 0, 1.0 / 256},
    {"read_random", NULL, NULL, STEPS, 0},
    {"chase", NULL, NULL, STEPS, 0},
};

static double operations(const gpu_prober *g, const loop_row *row, size_t bytes, bool one)
{
    if (row->each_thread > 0 || row->each_byte > 0)
        return row->each_thread * ht_gpu_threads(g, one) + row->each_byte * (double)bytes;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        if (strcmp(counts[i].name, row->name) == 0) return operations(g, &counts[i], bytes, one);
    return (double)STEPS * VALUES * ht_gpu_threads(g, one);
}

double ht_gpu_threads(const gpu_prober *g, bool one)
{
    return one ? 1 : (double)ht_cuda_device_limits(g->device).processors * HELD * THREADS;
}

/* ---- programs ---- */

void ht_gpu_loop_text(ht_text *text, const char *loop)
{
    for (size_t i = 0; i < ht_probe_text_count; i++) ht_text_add(text, "%s", ht_probe_texts[i].text);
    ht_text_add(text,
                "\nextern \"C\" __global__ void __launch_bounds__(%d) probe_%s_0(char *memory, loop_control *control)\n"
                "{\n    loop_arguments a = {memory, control->bytes, control->rounds, &control->sink, &control->line};\n"
                "    loop_%s(a);\n}\n",
                THREADS, loop, loop);
}

static ht_status find_program(const gpu_prober *g, const char *loop, ht_cuda_program **out)
{
    char name[64];
    ht_text text = {0};
    snprintf(name, sizeof name, "probe_%s", loop);
    ht_gpu_loop_text(&text, loop);
    ht_status status = text.failed ? ht_fail(g->p->ctx, HT_ENOMEM, "probe: out of memory for a kernel")
                                   : ht_cuda_program_get(g->device, name, text.data, 1, out);
    ht_text_free(&text);
    return status;
}

/* All of them, so that they are compiled at the same time. */
ht_status ht_gpu_loops_load(gpu_prober *g)
{
    for (size_t i = 0; i < ROWS; i++) {
        ht_cuda_program *program;
        if (rows[i].group && !(g->p->opts.parts & HT_PROBE_CATALOGUE)) continue;
        HT_TRY(find_program(g, rows[i].name, &program));
    }
    return g->device->class->load(g->device);
}

typedef struct loop_call {
    const gpu_prober *g;
    const ht_cuda_program *program;
    struct { /* as in gpu_loops.cu */
        uint64_t bytes;
        int64_t rounds;
    } control;
    bool one;
} loop_call;

/* Only where they change: repetitions have nothing but launches between their events. */
static ht_status set_rounds(loop_call *c, int64_t rounds)
{
    c->control.rounds = rounds;
    HT_TRY(ht_queue_copy(c->g->queue, c->g->control, &c->control, sizeof c->control, HT_COPY_TO_DEVICE));
    return ht_queue_sync(c->g->queue);
}

static ht_status run_loop(void *arg, int64_t rounds)
{
    loop_call *c = arg;
    const gpu_prober *g = c->g;
    const ht_cuda_shape shape = {.blocks = c->one ? 1 : (int64_t)ht_gpu_threads(g, false) / THREADS,
                                 .threads = c->one ? 1 : THREADS};
    char *memory = g->memory;
    void *control = g->control;
    if (rounds != c->control.rounds) HT_TRY(set_rounds(c, rounds));
    return ht_cuda_program_launch(g->queue, c->program, 0, &shape, (void *[]){&memory, &control});
}

ht_status ht_gpu_loop(const gpu_prober *g, const char *loop, size_t bytes, bool one, double *rounds)
{
    loop_call call = {.g = g, .control.bytes = bytes, .one = one};
    ht_cuda_program *program;
    double seconds;
    HT_TRY(find_program(g, loop, &program));
    HT_TRY(g->device->class->load(g->device));
    call.program = program;
    HT_TRY(ht_gpu_seconds(g, run_loop, &call, &seconds));
    *rounds = 1 / seconds;
    return HT_OK;
}

/* ---- memory ---- */

static ht_status bandwidth_of(gpu_prober *g, const char *group, const char *name, const char *loop, const char *what,
                              size_t bytes, double *to)
{
    double rounds;
    HT_TRY(ht_gpu_loop(g, loop, bytes, false, &rounds));
    if (rounds * (double)bytes > *to) *to = rounds * (double)bytes;
    return ht_gpu_add(g, group, name, what, "B/s", rounds * (double)bytes, 0) ? HT_OK : HT_ENOMEM;
}

static size_t power_of_two(size_t most)
{
    size_t bytes = 1;
    while (2 * bytes <= most) bytes *= 2;
    return bytes;
}

static ht_status latency_of(gpu_prober *g, const char *group, const char *name, size_t most, double *to)
{
    size_t bytes = power_of_two(most);
    double rounds;
    HT_TRY(ht_gpu_loop(g, "link_lines", bytes, false, &rounds));
    HT_TRY(ht_gpu_loop(g, "chase", bytes, true, &rounds));
    *to = 1 / (rounds * STEPS);
    return ht_gpu_add(g, group, name, "latency: a read that waits for the last one", "s", *to, 1) ? HT_OK : HT_ENOMEM;
}

ht_status ht_gpu_memory(gpu_prober *g)
{
    static const struct {
        const char *loop, *what;
    } ways[] = {{"read", "read"}, {"write", "write"}, {"copy", "copy"}, {"triad", "triad, as STREAM counts it"}};
    enum { TRIAD = 3, THREE = 3 * 256 };
    ht_target *t = g->target;
    size_t l2 = (size_t)t->cache_bytes[HT_CACHE_L2] / L2_READS, l1 = 64 << 10, all = g->memory_bytes / THREE * THREE;
    double unused = 0;
    ht_probe_tell(g->p, "memory of the GPU");
    HT_TRY(latency_of(g, "cache", "L1", l1, &t->cache_latency[HT_CACHE_L1]));
    if (l2) {
        HT_TRY(bandwidth_of(g, "cache", "L2", "read", "read", l2, &t->cache_bandwidth[HT_CACHE_L2]));
        HT_TRY(latency_of(g, "cache", "L2", l2, &t->cache_latency[HT_CACHE_L2]));
    }
    for (int i = 0; i <= TRIAD; i++)
        HT_TRY(bandwidth_of(g, "memory", "main", ways[i].loop, ways[i].what, all,
                            i == TRIAD ? &t->bandwidth[HT_SPACE_MAIN] : &unused));
    return latency_of(g, "memory", "main", all, &t->latency[HT_SPACE_MAIN]);
}

/* ---- the catalogue ---- */

/* What waits for the step before it is also measured for one thread: that is its latency. */
static bool waits(const loop_row *row)
{
    return strcmp(row->group, "scalar") == 0 || strcmp(row->name, "chase") == 0;
}

ht_status ht_gpu_catalogue(gpu_prober *g)
{
    const char *group = "";
    size_t bytes = power_of_two(g->memory_bytes);
    double rounds;
    for (size_t i = 0; i < ROWS; i++) {
        const loop_row *row = &rows[i];
        if (!row->group) continue;
        if (row->group != group) ht_probe_tell(g->p, group = row->group);
        if (strcmp(row->name, "chase") == 0) HT_TRY(ht_gpu_loop(g, "link_lines", bytes, false, &rounds));
        for (int one = 0; one <= waits(row); one++) {
            HT_TRY(ht_gpu_loop(g, row->name, bytes, one != 0, &rounds));
            if (!ht_gpu_add(g, row->group, row->name, row->what, "op/s", rounds * operations(g, row, bytes, one != 0),
                            one))
                return HT_ENOMEM;
        }
    }
    return HT_OK;
}
