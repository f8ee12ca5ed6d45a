#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"

enum { CANARY = 0xC5 };

struct ht_executor {
    const ht_plan *plan;
    ht_arena *arena;
    char *area[HT_SPACE_COUNT][HT_AREA_COUNT]; /* NULL in spaces that the plan does not use */
    ht_launch **launches;                      /* by segment, then instruction */
    uint8_t *prepacked;                        /* by entry of the plan's prepacked: is it up to date? See below */
};

/* STALE: the state was written since. READ: it was then read once; who reads it once more has it made, so that state which
 * is written between any two runs costs nothing. MADE: ready to use. */
enum { STALE, READ, MADE };

static void *at(const ht_executor *e, ht_place place)
{
    return place.area == HT_AREA_NONE ? NULL : e->area[place.space][place.area] + place.offset;
}

const void *ht_executor_at(const ht_executor *e, ht_place place)
{
    return at(e, place);
}

void *ht_executor_open(ht_executor *e, ht_place place, int64_t bytes)
{
    for (size_t i = 0; i < e->plan->prepacked_count && place.area == HT_AREA_STATE; i++) {
        const ht_state_span *source = e->plan->prepacked[i].source;
        for (int k = 0; k < HT_PREPACK_SOURCES; k++)
            if (source[k].space == place.space && source[k].first < place.offset + bytes &&
                place.offset < source[k].end)
                e->prepacked[i] = STALE;
    }
    return at(e, place);
}

static bool resolve(ht_executor *e, const ht_instr *instr, ht_launch *launch, ht_pool *pool)
{
    const ht_call *call = instr->call;
    void **pointers = HT_NEW(e->arena, void *, call->n_in + call->n_out);
    if (!pointers) return false;
    for (size_t i = 0; i < call->n_in; i++) pointers[i] = at(e, instr->in[i]);
    for (size_t i = 0; i < call->n_out; i++) pointers[call->n_in + i] = at(e, instr->out[i]);
    *launch = (ht_launch){
        .call = call,
        .in = (const void *const *)pointers,
        .out = pointers + call->n_in,
        .workspace = at(e, instr->workspace),
        .pool = pool,
        .threads = e->plan->target.threads,
        .fused = instr->fused,
    };
    return true;
}

static bool resolve_all(ht_executor *e, ht_pool *pool)
{
    e->launches = HT_NEW(e->arena, ht_launch *, e->plan->segment_count);
    if (!e->launches) return false;
    for (size_t s = 0; s < e->plan->segment_count; s++) {
        const ht_plan_segment *segment = &e->plan->segments[s];
        e->launches[s] = HT_NEW(e->arena, ht_launch, segment->instr_count);
        if (!e->launches[s]) return false;
        for (size_t i = 0; i < segment->instr_count; i++)
            if (!resolve(e, &segment->instrs[i], &e->launches[s][i], pool)) return false;
    }
    return true;
}

/* Space for a canary behind the last buffer, and never nothing: an empty area still has an address. */
static char *allocate(int64_t bytes)
{
    size_t size = ((size_t)bytes + HT_CANARY_BYTES + HT_PLAN_ALIGN - 1) / HT_PLAN_ALIGN * HT_PLAN_ALIGN;
    return ht_pages_alloc(size);
}

/* Main always has all areas; other spaces have what the plan puts there. */
static bool allocate_space(ht_executor *e, ht_space space)
{
    for (int area = HT_AREA_STATE; area < HT_AREA_COUNT; area++) {
        if (space != HT_SPACE_MAIN && !e->plan->area_bytes[space][area]) continue;
        e->area[space][area] = allocate(e->plan->area_bytes[space][area]);
        if (!e->area[space][area]) return false;
    }
    return true;
}

ht_status ht_executor_create(ht_executor **out, const ht_plan *plan, ht_pool *pool)
{
    *out = NULL;
    ht_executor *e = calloc(1, sizeof *e);
    if (!e) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a session");
    e->plan = plan;
    e->arena = ht_arena_create();
    e->prepacked = e->arena ? HT_NEW(e->arena, uint8_t, plan->prepacked_count) : NULL;
    bool ok = e->prepacked != NULL;
    for (int space = 0; space < HT_SPACE_COUNT && ok; space++) ok = allocate_space(e, (ht_space)space);
    if (!ok || !resolve_all(e, pool)) {
        ht_executor_free(e);
        HT_FAIL(plan->ctx, HT_ENOMEM, "the plan's %lld bytes could not be had", (long long)ht_plan_bytes(plan));
    }
    *out = e;
    return HT_OK;
}

void ht_executor_free(ht_executor *e)
{
    if (!e) return;
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        for (int area = 0; area < HT_AREA_COUNT; area++) free(e->area[space][area]);
    ht_arena_free(e->arena);
    free(e);
}

/* Behind result i of an instruction, or NULL where there are no canaries. */
static unsigned char *canary_behind(const ht_instr *instr, const ht_launch *launch, size_t i)
{
    return instr->guarded[i] ? (unsigned char *)launch->out[i] + ht_type_bytes(instr->call->out[i]) : NULL;
}

static void run(const ht_instr *instr, const ht_launch *launch)
{
    const ht_kernel *kernels[HT_ROW_BLOCK_PARTS];
    if (!instr->row_block) {
        instr->kernel->run(launch);
        return;
    }
    for (size_t i = 0; i < instr->row_block; i++) kernels[i] = instr[i].kernel;
    ht_row_block_run(kernels, launch, instr->row_block, instr->rows);
}

static ht_status check_canaries(const ht_executor *e, const ht_instr *instr, const ht_launch *launch)
{
    for (size_t i = 0; i < instr->call->n_out; i++) {
        const unsigned char *canary = canary_behind(instr, launch, i);
        for (int b = 0; canary && b < HT_CANARY_BYTES; b++)
            if (canary[b] != CANARY)
                HT_FAIL(e->plan->ctx, HT_EVERIFY, "kernel %s wrote past the end of result %zu%s%s", instr->kernel->name,
                        i, instr->site ? ", at " : "", instr->site ? instr->site : "");
    }
    return HT_OK;
}

/* What a segment uses is not written by it, so all of it can be made before. */
static void make_prepacked(ht_executor *e, const ht_plan_segment *s, ht_launch *launches)
{
    for (size_t i = 0; i < s->invalidate_count; i++) e->prepacked[s->invalidates[i]] = STALE;
    for (size_t i = 0; i < s->prepack_count; i++) {
        const ht_instr *instr = &s->instrs[s->prepacks[i]];
        ht_launch *launch = &launches[s->prepacks[i]];
        uint8_t *state = &e->prepacked[instr->prepacked - 1];
        launch->prepacked = *state == STALE ? NULL : at(e, e->plan->prepacked[instr->prepacked - 1].place);
        if (*state == READ) instr->kernel->prepack->make(launch);
        if (*state < MADE) ++*state;
    }
}

static ht_status run_guarded(const ht_executor *e, const ht_instr *instr, const ht_launch *launch)
{
    size_t count = instr->row_block ? instr->row_block : 1;
    for (size_t k = 0; k < count; k++) {
        for (size_t i = 0; i < instr[k].call->n_out; i++) {
            unsigned char *canary = canary_behind(&instr[k], &launch[k], i);
            if (canary) memset(canary, CANARY, HT_CANARY_BYTES);
        }
    }
    run(instr, launch);
    for (size_t k = 0; k < count; k++) HT_TRY(check_canaries(e, &instr[k], &launch[k]));
    return HT_OK;
}

ht_status ht_executor_run(ht_executor *e, size_t segment)
{
    const ht_plan_segment *s = &e->plan->segments[segment];
    ht_launch *launches = e->launches[segment];
    make_prepacked(e, s, launches);
    for (size_t i = 0, count; i < s->instr_count; i += count) {
        const ht_instr *instr = &s->instrs[i];
        count = instr->row_block ? instr->row_block : 1;
        if (e->plan->canary)
            HT_TRY(run_guarded(e, instr, &launches[i]));
        else
            run(instr, &launches[i]);
    }
    return HT_OK;
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

ht_status ht_executor_trace(ht_executor *e, size_t segment, ht_trace_fn trace, void *arg)
{
    const ht_plan_segment *s = &e->plan->segments[segment];
    ht_launch *launches = e->launches[segment];
    const ht_instr *fused = find_fused(s);
    if (fused)
        HT_FAIL(e->plan->ctx, HT_EINVAL, "segment %s: %s does several ops at once; tracing wants a plan without fusion",
                s->name, fused->kernel->name);
    make_prepacked(e, s, launches);
    for (size_t i = 0; i < s->instr_count; i++) {
        const ht_instr *instr = &s->instrs[i];
        if (e->plan->canary)
            HT_TRY(run_guarded(e, instr, &launches[i]));
        else
            instr->kernel->run(&launches[i]);
        for (size_t k = 0; k < instr->call->n_out; k++)
            if (!trace(arg, instr, k, instr->call->out[k], launches[i].out[k])) return HT_OK;
    }
    return HT_OK;
}
