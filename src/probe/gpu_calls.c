/* Ops on a GPU by our kernels: the instruction of an op is launched over and over, recorded as the steps of a run are, so
 * that what is measured is what it takes there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe/gpu_own.h"

enum { FEWEST = 2, MOST = 256 };
static const double long_enough = 1e-3; /* of a recording */

typedef struct measurement {
    const gpu_prober *g;
    const ht_op *op;
    double seconds;
    bool found;
} measurement;

/* ---- one instruction ---- */

typedef struct instr_call {
    ht_queue *queue;
    ht_run_fn run;
    const ht_launch *launch;
    ht_recording *recording; /* NULL: it cannot be recorded */
} instr_call;

static ht_status launch_times(void *arg, int64_t times)
{
    const instr_call *c = arg;
    const ht_device_class *class = c->queue->device->class;
    for (int64_t i = 0; i < times; i++)
        HT_TRY(c->recording ? class->replay(c->queue, c->recording) : class->launch(c->queue, c->run, c->launch));
    return HT_OK;
}

/* So many launches as one command; NULL where that cannot be. */
static ht_recording *record(const instr_call *c, int64_t times)
{
    const ht_device_class *class = c->queue->device->class;
    ht_recording *recording = NULL;
    if (!class->record_begin || class->record_begin(c->queue) != HT_OK) return NULL;
    ht_status status = launch_times((void *)c, times), end = class->record_end(c->queue, &recording);
    if (status == HT_OK && end == HT_OK) return recording;
    if (recording) class->recording_free(recording);
    return NULL;
}

static ht_status time_events(const gpu_prober *g, ht_queue *queue, ht_gpu_call call, void *arg, int64_t times,
                             double *seconds)
{
    HT_TRY(ht_queue_record(queue, g->from));
    HT_TRY(call(arg, times));
    HT_TRY(ht_queue_record(queue, g->to));
    HT_TRY(ht_event_sync(g->to));
    return g->device->class->event_seconds(g->from, g->to, seconds);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of repetitions, three at least, until the slice is over. */
static ht_status median_of(const gpu_prober *g, ht_queue *queue, ht_gpu_call call, void *arg, int64_t times,
                           double *seconds)
{
    enum { REPEATS = 512, LEAST = 3 };
    double before = g->meter ? g->meter->read(g->meter->arg) : 0, all[REPEATS], start = ht_probe_now();
    int count = 0;
    while (count < LEAST || (count < REPEATS && ht_probe_now() - start < g->slice))
        HT_TRY(time_events(g, queue, call, arg, times, &all[count++]));
    if (g->meter) {
        g->meter->counted = g->meter->read(g->meter->arg) - before;
        g->meter->runs = (double)count * (double)times;
    }
    qsort(all, (size_t)count, sizeof *all, by_value);
    *seconds = all[count / 2] / (double)times;
    return HT_OK;
}

ht_status ht_gpu_seconds(const gpu_prober *g, ht_gpu_call call, void *arg, double *seconds)
{
    int64_t times = 1;
    HT_TRY(time_events(g, g->queue, call, arg, times, seconds)); /* the first one also loads */
    for (;; times *= *seconds < long_enough / 4 ? 4 : 2) {
        HT_TRY(time_events(g, g->queue, call, arg, times, seconds));
        if (*seconds >= long_enough || times > INT64_MAX / 8) break;
    }
    return median_of(g, g->queue, call, arg, times, seconds);
}

static ht_status measure_instr(measurement *m, const ht_instr *instr, const ht_launch *launch)
{
    const gpu_prober *g = m->g;
    instr_call call = {.queue = launch->queue, .run = instr->kernel->run, .launch = launch};
    double once;
    HT_TRY(launch_times(&call, 1)); /* kernels that choose among ways do so at the first one */
    HT_TRY(time_events(g, call.queue, launch_times, &call, FEWEST, &once));
    double wanted = once > 0 ? FEWEST * long_enough / once : MOST;
    int64_t times = wanted < FEWEST ? FEWEST : wanted > MOST ? MOST : (int64_t)wanted;
    call.recording = record(&call, times);
    if (!call.recording) g->p->ctx->status = HT_OK; /* so it is launched one by one */
    ht_status status = median_of(g, call.queue, launch_times, &call, call.recording ? 1 : times, &m->seconds);
    if (call.recording) {
        m->seconds /= (double)times;
        if (g->meter) g->meter->runs *= (double)times;
        call.queue->device->class->recording_free(call.recording);
    }
    return status;
}

static ht_status visit(void *arg, const ht_instr *instr, const ht_launch *launch, bool *enough)
{
    measurement *m = arg;
    if (ht_instr_call(instr)->op != m->op)
        return launch->queue->device->class->launch(launch->queue, instr->kernel->run, launch);
    *enough = m->found = true;
    return measure_instr(m, instr, launch);
}

/* ---- a sample ---- */

/* The device's own target, with liberties. */
static ht_status open_plan(const gpu_prober *g, const ht_graph *graph, unsigned liberties, ht_plan **out)
{
    ht_plan_opts opts = HT_PLAN_OPTS;
    ht_text text = {0};
    ht_target target = *g->target;
    opts.device = g->name;
    if (liberties) {
        target.liberties |= liberties;
        ht_target_print(&text, &target);
        opts.target = text.data;
    }
    ht_status status = text.failed ? HT_ENOMEM : ht_plan_create(out, graph, &opts);
    ht_text_free(&text);
    return status;
}

static ht_status measure_plan(const gpu_prober *g, const ht_op *op, const ht_probe_session *s, ht_gpu_measured *out)
{
    measurement m = {.g = g, .op = op};
    int segment = ht_plan_segment_find(s->plan, "forward");
    HT_TRY(ht_executor_walk(s->session->executor, (size_t)segment, 0, visit, &m));
    HT_TRY(ht_executor_sync(s->session->executor));
    out->seconds = m.found ? m.seconds : 0;
    return HT_OK;
}

static ht_status cost_of(const gpu_prober *g, const ht_probe_session *s, const ht_op *op, ht_gpu_measured *out)
{
    for (size_t i = 0; i < s->graph->node_count; i++) {
        ht_call_storage storage;
        if (s->graph->nodes[i].op != op) continue;
        const ht_call *call = ht_node_call(s->graph, &s->graph->nodes[i], s->arena, &storage);
        if (!call) HT_FAIL(g->p->ctx, HT_ENOMEM, "probe: out of memory");
        *out = (ht_gpu_measured){.cost = ht_call_cost(call), .format = HT_F32};
        out->elems = (double)ht_type_elems(call->out[0]);
        if (call->n_in && call->in[0]) out->format = (int)ht_product_dtype(call->in[0]->dtype);
    }
    return HT_OK;
}

ht_status ht_gpu_op(const gpu_prober *g, const char *name, const char *text, unsigned liberties, ht_gpu_measured *out)
{
    ht_context *ctx = g->p->ctx;
    const ht_op *op = ht_op_find(ctx, name, strlen(name));
    ht_probe_session s = {.arena = ht_arena_create()};
    ht_sample sample;
    *out = (ht_gpu_measured){.seconds = 0};
    ht_status status = s.arena && op ? ht_sample_parse(ctx, s.arena, op, text, &sample) : HT_ENOMEM;
    if (status == HT_OK) status = ht_sample_graph(ctx, &sample, &s.graph);
    if (status == HT_OK) status = cost_of(g, &s, op, out);
    if (status == HT_OK) status = open_plan(g, s.graph, liberties, &s.plan);
    if (status == HT_OK) status = ht_session_create(&s.session, s.plan, NULL);
    for (size_t i = 0; i < sample.n_in && status == HT_OK; i++)
        if (sample.given[i]) status = ht_probe_fill(ctx, &s, &sample, i);
    if (status == HT_OK) status = measure_plan(g, op, &s, out);
    ht_probe_close(&s);
    return status;
}

/* ---- rows ---- */

/* ---- bytes: the product of the library alone, into i32 ---- */

typedef struct int8_call {
    const gpu_prober *g;
    ht_int8_product *product;
    size_t bytes; /* of an operand */
} int8_call;

static ht_status multiply_bytes(void *arg, int64_t times)
{
    const int8_call *c = arg;
    char *memory = c->g->memory;
    for (int64_t i = 0; i < times; i++)
        HT_TRY(ht_int8_product_run(c->product, c->g->queue, memory, memory + c->bytes, memory + 2 * c->bytes));
    return HT_OK;
}

static ht_status measure_bytes(gpu_prober *g)
{
    const int64_t size = g->small ? 64 : 8192;
    int8_call call = {.g = g, .bytes = (size_t)(size * size)};
    double seconds, *to = &g->target->flops[HT_I8];
    if (!ht_target_has_library(g->target, HT_LIBRARY_CUBLASLT) || 6 * call.bytes > g->memory_bytes) return HT_OK;
    ht_status status = ht_int8_product_create(g->p->ctx, size, &call.product);
    if (status == HT_OK) status = ht_gpu_seconds(g, multiply_bytes, &call, &seconds);
    ht_int8_product_free(call.product);
    if (status != HT_OK) return status == HT_ENOTSUP ? HT_OK : status; /* then there is no figure */
    *to = 2.0 * (double)size * (double)size * (double)size / seconds;
    return ht_gpu_add(g, "product", "i8", "matrix product by cublasLt", "op/s", *to, 0) ? HT_OK : HT_ENOMEM;
}

/* Large enough that the rounding of its tiles plays no part; with little time, or on an emulator, small. */
ht_status ht_gpu_products(gpu_prober *g)
{
    static const struct {
        const char *name, *op, *type, *more;
        int format; /* of the ceiling */
        int size;
    } rows[] = {
        {"f64", "matmul", "f64", "", HT_F64, 4096},
        {"f32", "matmul", "f32", "", HT_F32, 4096},
        {"tf32", "matmul", "f32", "", HT_FORMAT_TF32, 8192},
        {"f16", "matmul", "f16", "", HT_F16, 8192},
        {"bf16", "matmul", "bf16", "", HT_BF16, 8192},
        {"f8e4m3", "scaled_matmul", "f8e4m3", ", f32[] 1..1, f32[] 1..1", HT_F8E4M3, 8192},
    };
    ht_probe_tell(g->p, "FLOP/s of the GPU");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int size = g->small ? 64 : rows[i].size;
        bool f8 = rows[i].more[0] != '\0', tf32 = rows[i].format == HT_FORMAT_TF32;
        char sample[160];
        ht_gpu_measured m;
        if (tf32 && !ht_target_has_library(g->target, HT_LIBRARY_CUBLASLT)) continue; /* ours has f32 alone */
        snprintf(sample, sizeof sample, "(%s[%d,%d], %s[%d,%d]%s)%s", rows[i].type, size, size, rows[i].type, size,
                 size, rows[i].more, f8 ? " tb=1" : "");
        HT_TRY(ht_gpu_op(g, rows[i].op, sample, tf32 ? 1u << HT_LIBERTY_TF32 : 0, &m));
        if (!(m.seconds > 0)) continue;
        double rate = m.cost.dot_flops / m.seconds;
        if (!ht_gpu_add(g, "product", rows[i].name, "matrix product by our kernel", "FLOP/s", rate, 0))
            return HT_ENOMEM;
        if (rate > g->target->flops[rows[i].format]) g->target->flops[rows[i].format] = rate;
        if (f8) g->target->flops[HT_F8E5M2] = g->target->flops[HT_F8E4M3];
    }
    return measure_bytes(g);
}

/* What does not fit, or has no kernel on this GPU: a prediction takes its bound. */
static ht_status leave_out(const gpu_prober *g, const char *family, int size)
{
    ht_probe *out = g->p->out;
    if (!out->gpu_note[0])
        snprintf(out->gpu_note, sizeof out->gpu_note, "%s, %s: %.180s", family, ht_family_size_names[size],
                 ht_context_message(g->p->ctx));
    return HT_OK;
}

static ht_status measure_family(gpu_prober *g, int family, int size)
{
    const ht_family_row *f = &ht_families[family];
    const char *sample = ht_family_sample(f, HT_DEVICE_CUDA, size);
    unsigned liberties = ht_family_liberties(f);
    ht_gpu_measured m;
    if (!sample || (liberties && !ht_target_has_library(g->target, HT_LIBRARY_CUBLASLT))) return HT_OK;
    ht_status status = ht_gpu_op(g, f->op, sample, liberties, &m);
    if (status != HT_OK && status != HT_EDEVICE) return leave_out(g, f->name, size);
    if (status != HT_OK || !(m.seconds > 0)) return status;
    if (liberties) m.format = HT_FORMAT_TF32;
    bool product = m.cost.dot_flops > 0;
    double flops = ht_cost_flops(m.cost);
    ht_probe_row *row = ht_gpu_add(g, "family", f->name, f->op, product ? "FLOP/s" : "B/s",
                                   (product ? flops : m.cost.bytes) / m.seconds, 0);
    if (!row) return HT_ENOMEM;
    row->size = ht_family_size_names[size];
    row->flops = flops, row->bytes = m.cost.bytes, row->seconds = m.seconds;
    row->share = ht_sample_limit(g->target, m.format, m.cost) / m.seconds;
    g->target->efficiency[family][size] = row->share;
    return HT_OK;
}

ht_status ht_gpu_families(gpu_prober *g)
{
    ht_probe_tell(g->p, "kernels of the GPU");
    for (int family = 0; family < ht_family_count; family++)
        for (int size = 0; size < HT_FAMILY_SIZES; size++) HT_TRY(measure_family(g, family, size));
    return HT_OK;
}

ht_status ht_gpu_calls(gpu_prober *g)
{
    static const struct {
        const char *name, *group, *op, *sample, *what;
    } calls[] = {
#define HT_CALL(name, group, op, sample, cuda_sample, what) {#name, #group, #op, cuda_sample, what},
#include "probe/catalogue.def"
    };
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        ht_gpu_measured m;
        HT_TRY(ht_gpu_op(g, calls[i].op, calls[i].sample, 0, &m));
        bool product = m.cost.dot_flops > 0;
        if (m.seconds > 0 &&
            !ht_gpu_add(g, calls[i].group, calls[i].name, calls[i].what, product ? "FLOP/s" : "element/s",
                        (product ? m.cost.dot_flops : m.elems) / m.seconds, 0))
            return HT_ENOMEM;
    }
    return HT_OK;
}
