/* A trace in the format of Chrome, which Perfetto reads: https://ui.perfetto.dev opens it. A process is a rank; its tracks
 * are the steps, their phases, the queues of instructions, and the threads that run pieces of row blocks; memory is a
 * counter. What the host does while a GPU computes is a track of its own. */
#include "cli/profile_view.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    TRACK_STEPS,
    TRACK_PHASES,
    TRACK_HOST,
    TRACK_QUEUES,
    TRACK_THREADS = TRACK_QUEUES + HT_SPACE_COUNT * HT_QUEUE_COUNT,
    MOST_THREADS = 1024
};

static int track_of(const ht_instr_event *e)
{
    if (e->end_row) return TRACK_THREADS + e->thread % MOST_THREADS;
    return TRACK_QUEUES + (int)e->instr->space * HT_QUEUE_COUNT + e->instr->queue;
}

static void begin(ht_json_writer *json, const char *name, const char *kind, int rank, int track)
{
    ht_json_line(json, 0);
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "name", name);
    ht_json_put_text(json, "ph", kind);
    ht_json_put_int(json, "pid", rank);
    ht_json_put_int(json, "tid", track);
}

static void put_span(ht_json_writer *json, double from, double to)
{
    ht_json_put_number(json, "ts", 1e6 * from); /* of one clock for all ranks of a process */
    ht_json_put_number(json, "dur", 1e6 * (to - from));
}

static void put_name(ht_json_writer *json, const char *what, int rank, int track, const char *name)
{
    begin(json, what, "M", rank, track);
    ht_json_begin_object(json, "args");
    ht_json_put_text(json, "name", name);
    ht_json_end_object(json);
    ht_json_end_object(json);
}

static void name_track(ht_json_writer *json, int rank, int track)
{
    char name[64];
    int queue = track - TRACK_QUEUES;
    if (track >= TRACK_THREADS)
        snprintf(name, sizeof name, "row blocks, thread %d", track - TRACK_THREADS);
    else
        snprintf(name, sizeof name, "%s, queue %s", ht_space_name((ht_space)(queue / HT_QUEUE_COUNT)),
                 ht_queue_names[queue % HT_QUEUE_COUNT]);
    put_name(json, "thread_name", rank, track, name);
}

static void put_names(ht_json_writer *json, const ht_instr_event *events, size_t count, bool gpu, int rank)
{
    bool used[TRACK_THREADS + MOST_THREADS] = {false};
    char name[32];
    snprintf(name, sizeof name, "rank %d", rank);
    put_name(json, "process_name", rank, 0, name);
    put_name(json, "thread_name", rank, TRACK_STEPS, "steps");
    put_name(json, "thread_name", rank, TRACK_PHASES, "phases");
    if (gpu) put_name(json, "thread_name", rank, TRACK_HOST, "phases of the host");
    for (size_t i = 0; i < count; i++) used[track_of(&events[i])] = true;
    for (int track = 0; track < TRACK_THREADS + MOST_THREADS; track++)
        if (used[track]) name_track(json, rank, track);
}

static const char *category(const ht_instr *instr)
{
    if (instr->call->op->flags & HT_OP_COLLECTIVE) return "communication";
    return instr->role == HT_ROLE_FWD ? "forward" : instr->role == HT_ROLE_UPDATE ? "update" : "backward";
}

static void put_instr(ht_json_writer *json, const ht_instr_event *e, int rank)
{
    begin(json, e->row_block ? "row block" : ht_instr_op(e->instr), "X", rank, track_of(e));
    ht_json_put_text(json, "cat", category(e->instr));
    put_span(json, e->begin, e->end);
    ht_json_begin_object(json, "args");
    ht_json_put_text(json, "layer", ht_instr_layer(e->segment, (size_t)(e->instr - e->segment->instrs)));
    ht_json_put_text(json, "kernel", e->instr->kernel->name);
    if (!e->row_block && !e->end_row) ht_json_put_number(json, "flops", ht_cost_flops(e->instr->cost));
    if (!e->row_block && !e->end_row) ht_json_put_number(json, "bytes", e->instr->cost.bytes);
    if (e->end_row) ht_json_put_int(json, "rows", e->end_row - e->first_row);
    ht_json_end_object(json);
    ht_json_end_object(json);
}

/* Transient memory that is alive while it runs. */
static void put_memory(ht_json_writer *json, const ht_instr_event *e, int rank)
{
    size_t index = (size_t)(e->instr - e->segment->instrs);
    if (e->end_row || !e->segment->timeline) return;
    begin(json, "transient memory", "C", rank, 0);
    ht_json_put_number(json, "ts", 1e6 * e->begin);
    ht_json_begin_object(json, "args");
    ht_json_put_int(json, "bytes", e->segment->timeline[index]);
    ht_json_end_object(json);
    ht_json_end_object(json);
}

/* ---- phases ---- */

typedef struct phase_span {
    const char *name;
    int track;
    double begin, end;
} phase_span;

static int by_begin(const void *a, const void *b)
{
    const phase_span *x = a, *y = b;
    return x->begin < y->begin ? -1 : x->begin > y->begin;
}

/* What runs on the queues of the computation; other queues go on beside it. */
static size_t collect_phases(const cli_profile_view *v, const ht_instr_event *events, size_t count, int host,
                             phase_span *to)
{
    const ht_profile *p = v->profile;
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        const ht_instr_event *e = &events[i];
        if (e->instr->queue != HT_QUEUE_COMPUTE || e->end_row) continue;
        to[found++] = (phase_span){ht_phase_names[ht_instr_phase(e->instr)], TRACK_PHASES, e->begin, e->end};
    }
    for (size_t i = 0; i < p->span_count; i++)
        to[found++] = (phase_span){ht_phase_names[p->spans[i].phase], host, p->spans[i].begin, p->spans[i].end};
    if (v->save_seconds > 0) to[found++] = (phase_span){"save", host, v->save_begin, v->save_begin + v->save_seconds};
    qsort(to, found, sizeof *to, by_begin);
    return found;
}

static void put_phase(ht_json_writer *json, const phase_span *s, int rank)
{
    if (!s->name) return;
    begin(json, s->name, "X", rank, s->track);
    put_span(json, s->begin, s->end);
    ht_json_end_object(json);
}

/* Neighbouring instructions of one phase are one span, and no span of a track begins before the one ahead of it has ended. */
static void put_phases(ht_json_writer *json, const cli_profile_view *v, const ht_instr_event *events, size_t count,
                       bool gpu, int rank)
{
    phase_span *spans = calloc(count + v->profile->span_count + 1, sizeof *spans), last[2] = {{.name = NULL}};
    size_t found = spans ? collect_phases(v, events, count, gpu ? TRACK_HOST : TRACK_PHASES, spans) : 0;
    json->text->failed |= !spans;
    for (size_t i = 0; i < found; i++) {
        phase_span *open = &last[spans[i].track == TRACK_HOST];
        if (open->name && spans[i].begin < open->end) spans[i].begin = open->end;
        if (spans[i].end < spans[i].begin) continue;
        if (spans[i].track == TRACK_PHASES && open->name == spans[i].name) {
            open->end = spans[i].end;
            continue;
        }
        put_phase(json, open, rank);
        *open = spans[i];
    }
    for (int i = 0; i < 2; i++) put_phase(json, &last[i], rank);
    free(spans);
}

void cli_profile_trace(ht_text *text, const cli_profile_view *v, int rank)
{
    const ht_profile *p = v->profile;
    bool gpu = p->plan->target.device == HT_DEVICE_CUDA;
    size_t count, dropped;
    const ht_instr_event *events = ht_instr_times_events(p->times, &count, &dropped);
    ht_json_writer json = {.text = text};
    ht_json_begin_array(&json, NULL);
    put_names(&json, events, count, gpu, rank);
    for (size_t i = 0; i < p->steps; i++) {
        begin(&json, "step", "X", rank, TRACK_STEPS);
        put_span(&json, p->step_begin[i], p->step_begin[i] + p->step_seconds[i]);
        ht_json_end_object(&json);
    }
    put_phases(&json, v, events, count, gpu, rank);
    for (size_t i = 0; i < count; i++) {
        put_instr(&json, &events[i], rank);
        put_memory(&json, &events[i], rank);
    }
    ht_json_end_array(&json);
}
