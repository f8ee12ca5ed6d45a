#include <stdlib.h>
#include <string.h>

#include "exec/executor_own.h"

enum { CANARY = 0xC5 };

/* ---- create ---- */

static ht_queue *queue_of(ht_executor *e, const ht_instr *instr)
{
    return ht_executor_lane(e, instr->space, instr->queue)->queue;
}

/* The ranks that a call exchanges with; NULL: none. */
static ht_comm *group_of(const ht_executor *e, const ht_call *call)
{
    bool collective = (call->op->flags & HT_OP_COLLECTIVE) && e->comm;
    return collective ? ht_comm_find_group(e->comm, ht_call_text(call, "group")) : NULL;
}

/* The session has the ranks that the plan was made for. */
static ht_status check_group(const ht_executor *e, const ht_call *call)
{
    if (!(call->op->flags & HT_OP_COLLECTIVE)) return HT_OK;
    const char *name = ht_call_text(call, "group");
    int64_t ranks = ht_call_int(call, "ranks");
    const ht_comm *group = group_of(e, call);
    if (e->comm && !group) HT_FAIL(e->plan->ctx, HT_EINVAL, "%s: the session has no group '%s'", call->op->name, name);
    int there = group ? ht_comm_size(group) : 1;
    if (there == ranks) return HT_OK;
    HT_FAIL(e->plan->ctx, HT_EINVAL, "%s: the plan has %lld ranks in the group '%s', the session %d", call->op->name,
            (long long)ranks, name, there);
}

static ht_status check_groups(const ht_executor *e)
{
    for (size_t s = 0; s < e->plan->segment_count; s++)
        for (size_t i = 0; i < e->plan->segments[s].instr_count; i++)
            HT_TRY(check_group(e, e->plan->segments[s].instrs[i].call));
    return HT_OK;
}

static bool resolve(ht_executor *e, const ht_instr *instr, unsigned slot, ht_launch *launch)
{
    const ht_call *call = instr->call;
    void **pointers = HT_NEW(e->arena, void *, call->n_in + call->n_out);
    ht_row_block *block = instr->row_block ? HT_NEW(e->arena, ht_row_block, 1) : NULL;
    if (!pointers || (instr->row_block && !block)) return false;
    for (size_t i = 0; i < call->n_in; i++) pointers[i] = at(e, ht_executor_slot_place(e, instr->in[i], slot));
    for (size_t i = 0; i < call->n_out; i++)
        pointers[call->n_in + i] = at(e, ht_executor_slot_place(e, instr->out[i], slot));
    for (size_t i = 0; i < instr->row_block; i++) block->kernels[i] = instr[i].kernel;
    if (block) {
        block->count = instr->row_block;
        block->rows = instr->rows;
    }
    *launch = (ht_launch){
        .call = call,
        .in = (const void *const *)pointers,
        .out = pointers + call->n_in,
        .workspace = at(e, instr->workspace),
        .threads = e->plan->target.threads,
        .fused = instr->fused,
        .block = block,
        .guarded = instr->guarded,
        .row = instr->kernel,
        .kernel = instr->kernel->name,
        .site = instr->site,
        .queue = queue_of(e, instr),
        .comm = group_of(e, call),
    };
    return true;
}

/* Instructions from this one on that are launched together. */
static size_t launched(const ht_instr *instr)
{
    return instr->row_block ? instr->row_block : 1;
}

static ht_run_fn run_of(const ht_instr *instr)
{
    return instr->row_block ? ht_row_block_run : instr->kernel->run;
}

static ht_status find_runs(ht_executor *e, const ht_plan_segment *s, ht_run_fn **out)
{
    ht_run_fn *runs = *out = HT_NEW(e->arena, ht_run_fn, s->instr_count);
    if (!runs) HT_FAIL(e->plan->ctx, HT_ENOMEM, "out of memory for the launches of segment %s", s->name);
    for (size_t i = 0; i < s->instr_count; i += launched(&s->instrs[i])) runs[i] = run_of(&s->instrs[i]);
    return HT_OK;
}

static ht_status resolve_segment(ht_executor *e, const ht_plan_segment *s, unsigned slot, ht_launch **out)
{
    ht_launch *launches = *out = HT_NEW(e->arena, ht_launch, s->instr_count);
    bool ok = launches != NULL;
    for (size_t i = 0; i < s->instr_count && ok; i++) ok = resolve(e, &s->instrs[i], slot, &launches[i]);
    if (!ok) HT_FAIL(e->plan->ctx, HT_ENOMEM, "out of memory for the launches of segment %s", s->name);
    for (size_t i = 0; i < s->instr_count; i += launched(&s->instrs[i])) {
        ht_device *device = launches[i].queue->device;
        HT_TRY(device->class->prepare(device, &launches[i], launched(&s->instrs[i])));
        if (s->instrs[i].kernel->prepare) HT_TRY(s->instrs[i].kernel->prepare(&launches[i]));
    }
    return HT_OK;
}

static ht_status load_code(ht_executor *e)
{
    for (int space = 0; space < HT_SPACE_COUNT; space++) {
        ht_device *device = e->device[space];
        if (device && device->class->load) HT_TRY(device->class->load(device));
    }
    return HT_OK;
}

static ht_status resolve_all(ht_executor *e)
{
    const ht_plan *plan = e->plan;
    e->prepacked = HT_NEW(e->arena, uint8_t, plan->prepacked_count);
    e->launches = HT_NEW(e->arena, ht_launch *, plan->input_slots * plan->segment_count);
    e->runs = HT_NEW(e->arena, ht_run_fn *, plan->segment_count);
    if (!e->prepacked || !e->launches || !e->runs) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a session");
    for (size_t s = 0; s < plan->segment_count; s++) HT_TRY(find_runs(e, &plan->segments[s], &e->runs[s]));
    for (unsigned slot = 0; slot < plan->input_slots; slot++)
        for (size_t s = 0; s < plan->segment_count; s++)
            HT_TRY(resolve_segment(e, &plan->segments[s], slot, &e->launches[slot * plan->segment_count + s]));
    return load_code(e);
}

/* The tensor at an address of the disk. */
static const char *name_on_disk(void *arg, const void *address)
{
    const ht_executor *e = arg;
    const char *state = e->area[HT_SPACE_DISK][HT_AREA_STATE];
    if (!state || (const char *)address < state) return NULL;
    ht_place place = {HT_SPACE_DISK, HT_AREA_STATE, (const char *)address - state};
    if (place.offset >= ht_plan_space_bytes(e->plan, HT_SPACE_DISK, HT_AREA_STATE)) return NULL;
    const ht_slot *slot = ht_plan_state_at(e->plan, place);
    return slot ? slot->name : NULL;
}

/* The device that holds a space beside main. */
static ht_status open_space(ht_executor *e, ht_space space, const ht_session_opts *opts)
{
    ht_device *main = e->device[HT_SPACE_MAIN];
    if (space != HT_SPACE_DISK)
        return ht_device_get(&e->device[space], e->plan->ctx, main->class->asynchronous ? "host" : "cpu");
    if (!opts || !opts->disk_folder)
        HT_FAIL(e->plan->ctx, HT_EINVAL, "the plan has values in @disk, and no folder is given for them");
    return ht_disk_open(&e->device[space], e->plan->ctx, opts->disk_folder, opts->disk,
                        &(ht_disk_user){main, name_on_disk, e});
}

/* Host memory that a device copies from and to by itself is page-locked: the device's own kind. */
static bool locked_memory(const ht_executor *e, ht_space space)
{
    const ht_device *main = e->device[HT_SPACE_MAIN];
    return space == HT_SPACE_HOST && main && main->class->host_alloc;
}

/* Main always has all areas; other spaces have what the plan puts there. */
static ht_status allocate(ht_executor *e, ht_space space, const ht_session_opts *opts)
{
    for (int area = HT_AREA_STATE; area < HT_AREA_COUNT; area++) {
        int64_t bytes = ht_plan_space_bytes(e->plan, space, (ht_area)area);
        if (space != HT_SPACE_MAIN && !bytes) continue;
        /* Space for a canary behind the last buffer, and never nothing: an empty area still has an address. */
        size_t size = ((size_t)bytes + HT_CANARY_BYTES + HT_PLAN_ALIGN - 1) / HT_PLAN_ALIGN * HT_PLAN_ALIGN;
        void *address;
        if (!e->device[space]) HT_TRY(open_space(e, space, opts));
        HT_TRY(locked_memory(e, space) ? ht_device_host_alloc(e->device[HT_SPACE_MAIN], size, &address)
                                       : ht_device_alloc(e->device[space], size, &address));
        e->area[space][area] = address;
    }
    return HT_OK;
}

static bool reads_input(const ht_plan_segment *s)
{
    for (size_t i = 0; i < s->instr_count; i++)
        for (size_t k = 0; k < s->instrs[i].call->n_in; k++)
            if (s->instrs[i].in[k].area == HT_AREA_INPUT) return true;
    return false;
}

static ht_status set_up_queues(ht_executor *e, ht_device *device)
{
    HT_TRY(device->class->queue_create(device, &lane_of_runs(e)->queue));
    e->feeds = e->queue = lane_of_runs(e)->queue;
    if (!device->class->asynchronous) return HT_OK;
    HT_TRY(device->class->queue_create(device, &e->feeds));
    e->reads_input = HT_NEW(e->arena, bool, e->plan->segment_count);
    e->fed = HT_NEW(e->arena, ht_event *, e->plan->input_slots);
    e->read = HT_NEW(e->arena, ht_event *, e->plan->input_slots);
    if (!e->reads_input || !e->fed || !e->read) HT_FAIL(e->plan->ctx, HT_ENOMEM, "out of memory for a session");
    for (size_t i = 0; i < e->plan->segment_count; i++) e->reads_input[i] = reads_input(&e->plan->segments[i]);
    for (unsigned slot = 0; slot < e->plan->input_slots; slot++) {
        HT_TRY(device->class->event_create(device, &e->fed[slot]));
        HT_TRY(device->class->event_create(device, &e->read[slot]));
    }
    return HT_OK;
}

static ht_status set_up(ht_executor *e, const ht_session_opts *opts)
{
    ht_context *ctx = e->plan->ctx;
    ht_device **device = &e->device[HT_SPACE_MAIN];
    e->arena = ht_arena_create();
    if (!e->arena) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a session");
    e->comm = opts ? opts->comm : NULL;
    HT_TRY(check_groups(e));
    HT_TRY(ht_device_get(device, ctx, e->plan->device));
    HT_TRY(set_up_queues(e, *device));
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        if (allocate(e, (ht_space)space, opts) != HT_OK) {
            char reason[512];
            memcpy(reason, ctx->message, sizeof reason);
            reason[sizeof reason - 1] = 0;
            HT_FAIL(ctx, ctx->status, "the plan's %lld bytes could not be had: %s", (long long)ht_plan_bytes(e->plan),
                    reason);
        }
    HT_TRY(ht_executor_set_up_lanes(e));
    HT_TRY(ht_executor_set_up_tails(e));
    HT_TRY(ht_executor_set_up_leads(e));
    return resolve_all(e);
}

ht_status ht_executor_create(ht_executor **out, const ht_plan *plan, const ht_session_opts *opts)
{
    *out = NULL;
    ht_target_reason reason;
    const char *refusal = ht_target_refusal_here(&plan->target, &reason);
    if (refusal)
        HT_FAIL(plan->ctx, HT_ENOTSUP, "a plan for the target '%s' does not run here: %s", plan->target.name, refusal);
    ht_executor *e = calloc(1, sizeof *e);
    if (!e) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a session");
    e->plan = plan;
    ht_status status = set_up(e, opts);
    if (status == HT_OK)
        *out = e;
    else
        ht_executor_free(e);
    return status;
}

enum { QUEUES = 1 + HT_SPACE_COUNT * HT_QUEUE_COUNT };

/* The queue of the runs, then those beside it; NULL where there is none. */
static void list_queues(const ht_executor *e, ht_queue *queues[QUEUES])
{
    int count = 0;
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        for (int kind = 0; kind < HT_QUEUE_COUNT; kind++) queues[count++] = e->lanes[space][kind].queue;
    queues[count] = e->feeds == e->queue ? NULL : e->feeds;
}

/* Where one queue has failed, others may still be at work: all of them are waited for. */
static void drain_queues(const ht_executor *e)
{
    ht_queue *queues[QUEUES];
    list_queues(e, queues);
    for (int i = 0; i < QUEUES; i++)
        if (queues[i]) (void)queues[i]->device->class->sync(queues[i]);
}

static void release(ht_launch *launches)
{
    if (!launches->queue) return;
    if (launches->row->release) launches->row->release(launches);
    launches->queue->device->class->release(launches->queue->device, launches);
}

void ht_executor_free(ht_executor *e)
{
    if (!e) return;
    const ht_plan *plan = e->plan;
    drain_queues(e);
    ht_executor_free_recordings(e);
    ht_executor_free_times(e);
    for (size_t i = 0; e->launches && i < plan->input_slots * plan->segment_count; i++) {
        const ht_plan_segment *s = &plan->segments[i % plan->segment_count];
        for (size_t k = 0; e->launches[i] && k < s->instr_count; k += launched(&s->instrs[k]))
            release(&e->launches[i][k]);
    }
    ht_executor_free_stream(e);
    if (e->feeds != e->queue) ht_queue_free(e->feeds);
    ht_executor_free_lanes(e);
    for (unsigned slot = 0; slot < plan->input_slots; slot++) {
        if (e->fed) ht_event_free(e->fed[slot]);
        if (e->read) ht_event_free(e->read[slot]);
    }
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        for (int area = 0; area < HT_AREA_COUNT; area++) {
            if (locked_memory(e, (ht_space)space))
                ht_device_host_free(e->device[HT_SPACE_MAIN], e->area[space][area]);
            else
                ht_device_free(e->device[space], e->area[space][area]);
        }
    if (e->device[HT_SPACE_DISK]) e->device[HT_SPACE_DISK]->class->close(e->device[HT_SPACE_DISK]);
    ht_arena_free(e->arena);
    free(e->stage.data);
    free(e);
}

ht_device *ht_executor_device(const ht_executor *e)
{
    return e->device[HT_SPACE_MAIN];
}

/* ---- run ---- */

/* Behind result i of a launch, or NULL where there is no canary. */
static unsigned char *canary_behind(const ht_launch *launch, size_t i)
{
    return launch->guarded[i] ? (unsigned char *)launch->out[i] + ht_type_bytes(launch->call->out[i]) : NULL;
}

/* The two run on the device, as kernels do. */
static ht_status set_canaries(const ht_launch *launch)
{
    size_t count = launch->block ? launch->block->count : 1;
    for (size_t k = 0; k < count; k++) {
        for (size_t i = 0; i < launch[k].call->n_out; i++) {
            unsigned char *canary = canary_behind(&launch[k], i);
            if (canary) memset(canary, CANARY, HT_CANARY_BYTES);
        }
    }
    return HT_OK;
}

static ht_status check_canaries(const ht_launch *launch)
{
    size_t count = launch->block ? launch->block->count : 1;
    for (size_t k = 0; k < count; k++) {
        for (size_t i = 0; i < launch[k].call->n_out; i++) {
            const unsigned char *canary = canary_behind(&launch[k], i);
            for (int b = 0; canary && b < HT_CANARY_BYTES; b++)
                if (canary[b] != CANARY)
                    HT_FAIL(launch->ctx, HT_EVERIFY, "kernel %s wrote past the end of result %zu%s%s", launch[k].kernel,
                            i, launch[k].site ? ", at " : "", launch[k].site ? launch[k].site : "");
        }
    }
    return HT_OK;
}

static void tell_before(void *arg)
{
    const watched *w = arg;
    if (w->executor->observer->before) w->executor->observer->before(w->executor->observer->arg, &w->at);
}

static void tell_after(void *arg)
{
    const watched *w = arg;
    if (w->executor->observer->after) w->executor->observer->after(w->executor->observer->arg, &w->at);
}

/* Before and after instruction `index` of a segment that uses several lanes; *order: that of the last instruction on
 * HT_QUEUE_COMPUTE. */
static ht_status wait_before(ht_executor *e, const ht_instr *instr, ht_event **waited, ht_lane **order)
{
    ht_lane *lane = ht_executor_lane(e, instr->space, instr->queue);
    HT_TRY(ht_executor_pass_over(*order, lane));
    if (instr->queue == HT_QUEUE_COMPUTE) *order = lane;
    if (!instr->wait) return HT_OK;
    ht_event *event = waited[instr->wait - 1];
    return instr->call->op->start && (instr->call->op->start->flags & HT_OP_COLLECTIVE)
               ? ht_executor_wait_exchange(e, lane, event)
               : ht_queue_wait(lane->queue, event);
}

static ht_status tell_waiting(ht_executor *e, const ht_instr *instr, ht_event **waited, size_t index)
{
    return waited && waited[index] ? ht_queue_record(queue_of(e, instr), waited[index]) : HT_OK;
}

/* With canaries, and before the eyes of an observer. */
static ht_status launch_with_care(ht_executor *e, size_t segment, size_t index, const ht_launch *launch)
{
    const ht_instr *instr = &e->plan->segments[segment].instrs[index];
    watched *w = e->observer ? &e->watched[segment][index] : NULL; /* parts of a row block are told where they run */
    const ht_device_class *class = launch->queue->device->class;
    bool timed = w && ht_executor_uses_clock(e, launch->queue);
    if (launch->guarded) HT_TRY(class->launch(launch->queue, set_canaries, launch));
    if (w && !timed) HT_TRY(class->call(launch->queue, tell_before, w));
    HT_TRY(timed ? ht_executor_launch_timed(w, run_of(instr), launch)
                 : class->launch(launch->queue, run_of(instr), launch));
    if (w && !timed) HT_TRY(class->call(launch->queue, tell_after, w));
    return launch->guarded ? class->launch(launch->queue, check_canaries, launch) : HT_OK;
}

/* What a segment uses is not written by it, so all of it can be made before. */
static ht_status make_prepacked(ht_executor *e, const ht_plan_segment *s, ht_launch *launches)
{
    for (size_t i = 0; i < s->invalidate_count; i++) e->prepacked[s->invalidates[i]] = STALE;
    for (size_t i = 0; i < s->prepack_count; i++) {
        const ht_instr *instr = &s->instrs[s->prepacks[i]];
        ht_launch *launch = &launches[s->prepacks[i]];
        uint8_t *state = &e->prepacked[instr->prepacked - 1];
        launch->prepacked = *state == STALE ? NULL : at(e, e->plan->prepacked[instr->prepacked - 1].place);
        if (*state == READ) HT_TRY(ht_queue_launch(launch->queue, instr->kernel->prepack->make, launch));
        if (*state < MADE) ++*state;
    }
    return HT_OK;
}

/* The launches of a long segment are in no near cache when their turn comes: what they point to is asked for before,
 * one level after the other. */
enum { AHEAD = 3 };
static inline void look_ahead(const ht_launch *launches, size_t i, size_t count)
{
    if (i + 2 * AHEAD >= count) return;
    const ht_launch *far = &launches[i + 2 * AHEAD], *near = &launches[i + AHEAD];
    __builtin_prefetch(far->call);
    __builtin_prefetch(far->in);
    __builtin_prefetch(far->fused);
    __builtin_prefetch(near->call->in);
    __builtin_prefetch(near->call->out);
}

ht_status ht_executor_run_instr(ht_executor *e, size_t segment, unsigned slot, size_t index, ht_lane **order)
{
    const ht_instr *instr = &e->plan->segments[segment].instrs[index];
    ht_launch *launch = &e->launches[slot * e->plan->segment_count + segment][index];
    ht_run_fn run = e->runs[segment][index];
    if (!run) return HT_OK;
    if (e->beside) HT_TRY(wait_before(e, instr, e->waited[segment], order));
    ht_status status = e->plan->canary || e->observer ? launch_with_care(e, segment, index, launch)
                                                      : ht_queue_launch(launch->queue, run, launch);
    if (status != HT_OK) return ht_executor_name_instr(e, segment, index, status);
    return e->beside ? tell_waiting(e, instr, e->waited[segment], index) : HT_OK;
}

ht_status ht_executor_submit(ht_executor *e, size_t segment, unsigned slot, int next)
{
    const ht_plan_segment *s = &e->plan->segments[segment];
    ht_launch *launches = e->launches[slot * e->plan->segment_count + segment];
    ht_lane *order = lane_of_runs(e), *host = &e->lanes[HT_SPACE_HOST][HT_QUEUE_COMPUTE];
    size_t head = ht_executor_head(e, segment);
    /* What is prepacked there was stored by then. */
    if (host->queue && s->prepack_count) HT_TRY(ht_executor_pass_over(order, host));
    HT_TRY(make_prepacked(e, s, launches));
    for (size_t i = ht_executor_take_lead(e, segment); i < head; i++) {
        look_ahead(launches, i, s->instr_count);
        if (ht_executor_has_tail(e)) HT_TRY(ht_executor_run_tail_before(e, segment, i, &order));
        HT_TRY(ht_executor_run_instr(e, segment, slot, i, &order));
        if (next != HT_NO_LEAD) HT_TRY(ht_executor_run_lead_after(e, segment, i, next, &order));
    }
    if (ht_executor_has_tail(e)) HT_TRY(ht_executor_run_tail_before(e, segment, s->instr_count, &order));
    ht_executor_leave_tail(e, segment, slot);
    return e->beside ? ht_executor_pass_over(order, lane_of_runs(e)) : HT_OK;
}

ht_status ht_executor_run(ht_executor *e, size_t segment, unsigned slot)
{
    double begin = e->observer ? ht_instr_clock() : 0;
    e->newest = segment;
    HT_TRY(ht_executor_can_replay(e, segment) ? ht_executor_replay(e, segment, slot)
                                              : ht_executor_submit(e, segment, slot, HT_NO_LEAD));
    if (e->observer) HT_TRY(ht_executor_tell_times(e, segment, begin));
    return e->read && e->reads_input[segment] ? ht_queue_record(e->queue, e->read[slot]) : HT_OK;
}

ht_status ht_executor_run_before(ht_executor *e, size_t segment, unsigned slot, size_t next)
{
    if (e->observer || !e->ready[segment]) return ht_executor_run(e, segment, slot);
    e->newest = segment;
    HT_TRY(ht_executor_submit(e, segment, slot, (int)next));
    return e->read && e->reads_input[segment] ? ht_queue_record(e->queue, e->read[slot]) : HT_OK;
}

/* What a run needs was fed before it, so the runs' queue is the last, unless one has failed. */
ht_status ht_executor_sync(ht_executor *e)
{
    ht_status tail = ht_executor_finish_tail(e);
    (void)ht_queue_sync(e->queue);
    drain_queues(e);
    HT_TRY(ht_executor_status(e));
    return tail;
}

/* A run goes on when a queue beside it has failed, on bytes that never came. */
void ht_executor_drain(ht_executor *e)
{
    (void)e->queue->device->class->sync(e->queue);
}

ht_status ht_executor_status(const ht_executor *e)
{
    ht_queue *queues[QUEUES];
    list_queues(e, queues);
    for (int i = 0; i < QUEUES; i++)
        if (queues[i]) HT_TRY(ht_executor_name_newest(e, queues[i]->device->class->status(queues[i])));
    return HT_OK;
}

/* ---- looking ---- */

/* A piece of a part of a row block, in the thread that runs it. */
static void tell_piece(void *arg, size_t part, bool before, int64_t first, int64_t end)
{
    const watched *w = (const watched *)arg + part;
    ht_observation piece = w->at;
    const ht_observer *observer = w->executor->observer;
    void (*fn)(void *, const ht_observation *) = before ? observer->before : observer->after;
    piece.first_row = first;
    piece.end_row = end;
    piece.row_block = 0;
    if (fn) fn(observer->arg, &piece);
}

static bool make_watched(ht_executor *e)
{
    const ht_plan *plan = e->plan;
    e->watched = HT_NEW(e->arena, watched *, plan->segment_count);
    for (size_t s = 0; s < plan->segment_count && e->watched; s++) {
        const ht_plan_segment *segment = &plan->segments[s];
        e->watched[s] = HT_NEW(e->arena, watched, segment->instr_count);
        if (!e->watched[s]) return false;
        for (size_t i = 0; i < segment->instr_count; i++)
            e->watched[s][i] = (watched){
                .executor = e,
                .at = {.segment = segment, .instr = &segment->instrs[i], .row_block = segment->instrs[i].row_block}};
    }
    return e->watched != NULL;
}

ht_status ht_executor_observe(ht_executor *e, const ht_observer *observer)
{
    const ht_plan *plan = e->plan;
    ht_status done = ht_executor_sync(e); /* an observer leaves, whatever happened before */
    if (observer) HT_TRY(done);
    if (!e->watched && !make_watched(e)) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for an observer");
    e->observer = observer;
    for (size_t i = 0; i < plan->input_slots * plan->segment_count; i++) {
        size_t segment = i % plan->segment_count;
        for (size_t k = 0; k < plan->segments[segment].instr_count; k++) {
            ht_row_block *block = (ht_row_block *)e->launches[i][k].block; /* the executor's own */
            if (!block) continue;
            block->tell = observer ? tell_piece : NULL;
            block->tell_arg = &e->watched[segment][k];
        }
    }
    return done;
}

/* NULL, or an instruction that makes the values of several nodes. */
static const ht_instr *find_fused(const ht_plan_segment *s)
{
    for (size_t i = 0; i < s->instr_count; i++) {
        const ht_fused *f = s->instrs[i].fused;
        if (f && (f->step_count > 1 || f->gemm || f->fold)) return &s->instrs[i];
    }
    return NULL;
}

ht_status ht_executor_walk(ht_executor *e, size_t segment, unsigned slot, ht_visit_fn visit, void *arg)
{
    const ht_plan_segment *s = &e->plan->segments[segment];
    ht_launch *launches = e->launches[slot * e->plan->segment_count + segment];
    ht_lane *order = lane_of_runs(e);
    bool enough = false;
    HT_TRY(ht_executor_finish_tail(e));
    HT_TRY(make_prepacked(e, s, launches));
    for (size_t i = 0; i < s->instr_count && !enough; i++) {
        if (e->beside) HT_TRY(wait_before(e, &s->instrs[i], e->waited[segment], &order));
        HT_TRY(visit(arg, &s->instrs[i], &launches[i], &enough));
        if (e->beside) HT_TRY(tell_waiting(e, &s->instrs[i], e->waited[segment], i));
    }
    return HT_OK;
}

typedef struct tracing {
    ht_executor *executor;
    size_t segment;
    ht_trace_fn trace;
    void *arg;
} tracing;

/* The elements of a value without gaps, row-major. */
static void put_in_order(const ht_type *type, const char *from, char *to)
{
    size_t bytes = ht_dtype_bytes(type->dtype);
    for (int64_t i = 0, elems = ht_type_elems(type); i < elems; i++) {
        int64_t rest = i, at = 0;
        for (int axis = type->rank - 1; axis >= 0; rest /= type->dim[axis--])
            at += rest % type->dim[axis] * type->stride[axis];
        memcpy(to + (size_t)i * bytes, from + (size_t)at * bytes, bytes);
    }
}

static ht_status trace_result(const tracing *t, const ht_instr *instr, size_t k, bool *enough)
{
    ht_executor *e = t->executor;
    const ht_type *type = instr->call->out[k];
    const void *data;
    HT_TRY(ht_executor_view(e, instr->out[k], (size_t)ht_type_bytes(type), &e->stage, &data));
    if (ht_type_contiguous(type)) {
        *enough = !t->trace(t->arg, instr, k, type, data);
        return HT_OK;
    }
    ht_type row_major = *type;
    char *ordered = malloc((size_t)ht_type_bytes(type));
    if (!ordered) HT_FAIL(e->plan->ctx, HT_ENOMEM, "out of memory to trace a value");
    ht_type_row_major(&row_major);
    put_in_order(type, data, ordered);
    *enough = !t->trace(t->arg, instr, k, &row_major, ordered);
    free(ordered);
    return HT_OK;
}

static ht_status trace_instr(void *arg, const ht_instr *instr, const ht_launch *launch, bool *enough)
{
    const tracing *t = arg;
    ht_executor *e = t->executor;
    HT_TRY(launch_with_care(e, t->segment, (size_t)(instr - e->plan->segments[t->segment].instrs), launch));
    HT_TRY(ht_queue_sync(launch->queue));
    for (size_t k = 0; k < instr->call->n_out && !*enough; k++) HT_TRY(trace_result(t, instr, k, enough));
    return HT_OK;
}

ht_status ht_executor_trace(ht_executor *e, size_t segment, unsigned slot, ht_trace_fn trace, void *arg)
{
    const ht_plan_segment *s = &e->plan->segments[segment];
    const ht_instr *fused = find_fused(s);
    if (fused)
        HT_FAIL(e->plan->ctx, HT_EINVAL, "segment %s: %s does several ops at once; tracing wants a plan without fusion",
                s->name, fused->kernel->name);
    return ht_executor_walk(e, segment, slot, trace_instr, &(tracing){e, segment, trace, arg});
}

typedef struct counting {
    ht_dtype dtype;
    ht_nonfinite_count count;
} counting;

static ht_status count_piece(void *arg, size_t offset, const void *data, size_t bytes)
{
    counting *c = arg;
    (void)offset;
    ht_nonfinite_add(&c->count, c->dtype, data, (int64_t)(bytes / ht_dtype_bytes(c->dtype)));
    return HT_OK;
}

/* Of a device whose memory the host cannot count in: in copies. */
static ht_status count_on_host(ht_executor *e, ht_place place, const ht_type *type, int64_t *inf, int64_t *nan)
{
    counting c = {.dtype = type->dtype};
    HT_TRY(ht_executor_view_pieces(e, place, (size_t)ht_type_bytes(type), &e->stage, count_piece, &c));
    *inf = c.count.inf;
    *nan = c.count.nan;
    return HT_OK;
}

/* The results of a launch that is an address alone. */
ht_status ht_executor_count_nonfinite(ht_executor *e, ht_place place, const ht_type *type, int64_t *inf, int64_t *nan)
{
    ht_nonfinite counts = {0};
    void *address = at(e, place);
    ht_queue *host = e->lanes[HT_SPACE_HOST][HT_QUEUE_COMPUTE].queue;
    ht_queue *queue = place.space == HT_SPACE_HOST && host ? host : e->queue;
    if (place.space == HT_SPACE_DISK || !queue->device->class->runs_host_code)
        return count_on_host(e, place, type, inf, nan);
    ht_launch launch = {.call = &(ht_call){.n_out = 1, .out = &type},
                        .out = &address,
                        .threads = e->plan->target.threads,
                        .queue = queue,
                        .nonfinite = &counts};
    HT_TRY(ht_queue_launch_now(queue, ht_nonfinite_run, &launch));
    *inf = counts.operand[0].inf;
    *nan = counts.operand[0].nan;
    return HT_OK;
}
