#include <stdlib.h>
#include <string.h>

#include "run/run.h"

enum { CANARY = 0xC5 };

struct ht_machine {
    const ht_plan *plan;
    ht_arena *arena;
    char *area[HT_AREA_COUNT];
    ht_launch **launches; /* by segment, then instruction */
    uint8_t *prepacked;   /* by entry of the plan's prepacked: is it up to date? See below */
};

/* STALE: the state was written since. READ: it was then read once; who reads it once more has it made, so that state which
 * is written between any two runs costs nothing. MADE: ready to use. */
enum { STALE, READ, MADE };

static void *at(const ht_machine *m, ht_place place)
{
    return place.area == HT_AREA_NONE ? NULL : m->area[place.area] + place.offset;
}

const void *ht_machine_at(const ht_machine *m, ht_place place)
{
    return at(m, place);
}

void *ht_machine_open(ht_machine *m, ht_place place, int64_t bytes)
{
    for (size_t i = 0; i < m->plan->prepacked_count && place.area == HT_AREA_STATE; i++) {
        const ht_state_span *source = m->plan->prepacked[i].source;
        for (int k = 0; k < HT_PREPACK_SOURCES; k++)
            if (source[k].first < place.offset + bytes && place.offset < source[k].end) m->prepacked[i] = STALE;
    }
    return at(m, place);
}

static bool resolve(ht_machine *m, const ht_instr *instr, ht_launch *launch, ht_pool *pool)
{
    const ht_call *call = instr->call;
    void **pointers = HT_NEW(m->arena, void *, call->n_in + call->n_out);
    if (!pointers) return false;
    for (size_t i = 0; i < call->n_in; i++) pointers[i] = at(m, instr->in[i]);
    for (size_t i = 0; i < call->n_out; i++) pointers[call->n_in + i] = at(m, instr->out[i]);
    *launch = (ht_launch){
        .call = call,
        .in = (const void *const *)pointers,
        .out = pointers + call->n_in,
        .workspace = at(m, instr->workspace),
        .pool = pool,
        .fused = instr->fused,
    };
    return true;
}

static bool resolve_all(ht_machine *m, ht_pool *pool)
{
    m->launches = HT_NEW(m->arena, ht_launch *, m->plan->segment_count);
    if (!m->launches) return false;
    for (size_t s = 0; s < m->plan->segment_count; s++) {
        const ht_plan_segment *segment = &m->plan->segments[s];
        m->launches[s] = HT_NEW(m->arena, ht_launch, segment->instr_count);
        if (!m->launches[s]) return false;
        for (size_t i = 0; i < segment->instr_count; i++)
            if (!resolve(m, &segment->instrs[i], &m->launches[s][i], pool)) return false;
    }
    return true;
}

/* Room for a canary behind the last buffer, and never nothing: an empty area still has an address. */
static char *allocate(int64_t bytes)
{
    size_t size = ((size_t)bytes + HT_CANARY_BYTES + HT_PLAN_ALIGN - 1) / HT_PLAN_ALIGN * HT_PLAN_ALIGN;
    return ht_pages_alloc(size);
}

ht_status ht_machine_create(ht_machine **out, const ht_plan *plan, ht_pool *pool)
{
    *out = NULL;
    ht_machine *m = calloc(1, sizeof *m);
    if (!m) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a session");
    m->plan = plan;
    m->arena = ht_arena_create();
    m->prepacked = m->arena ? HT_NEW(m->arena, uint8_t, plan->prepacked_count) : NULL;
    bool ok = m->prepacked != NULL;
    for (int a = HT_AREA_STATE; a < HT_AREA_COUNT && ok; a++) {
        m->area[a] = allocate(plan->area_bytes[a]);
        ok = m->area[a] != NULL;
    }
    if (!ok || !resolve_all(m, pool)) {
        ht_machine_free(m);
        HT_FAIL(plan->ctx, HT_ENOMEM, "the plan's %lld bytes could not be had", (long long)ht_plan_bytes(plan));
    }
    *out = m;
    return HT_OK;
}

void ht_machine_free(ht_machine *m)
{
    if (!m) return;
    for (int a = 0; a < HT_AREA_COUNT; a++) free(m->area[a]);
    ht_arena_free(m->arena);
    free(m);
}

/* Behind result i of an instruction, or NULL where nobody guards. */
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

static ht_status check_canaries(const ht_machine *m, const ht_instr *instr, const ht_launch *launch)
{
    for (size_t i = 0; i < instr->call->n_out; i++) {
        const unsigned char *canary = canary_behind(instr, launch, i);
        for (int b = 0; canary && b < HT_CANARY_BYTES; b++)
            if (canary[b] != CANARY)
                HT_FAIL(m->plan->ctx, HT_EVERIFY, "kernel %s wrote past the end of result %zu%s%s", instr->kernel->name,
                        i, instr->site ? ", at " : "", instr->site ? instr->site : "");
    }
    return HT_OK;
}

/* What a segment uses is not written by it, so all of it can be made before. */
static void make_prepacked(ht_machine *m, const ht_plan_segment *s, ht_launch *launches)
{
    for (size_t i = 0; i < s->invalidate_count; i++) m->prepacked[s->invalidates[i]] = STALE;
    for (size_t i = 0; i < s->prepack_count; i++) {
        const ht_instr *instr = &s->instrs[s->prepacks[i]];
        ht_launch *launch = &launches[s->prepacks[i]];
        uint8_t *state = &m->prepacked[instr->prepacked - 1];
        launch->prepacked = *state == STALE ? NULL : at(m, m->plan->prepacked[instr->prepacked - 1].place);
        if (*state == READ) instr->kernel->prepack->make(launch);
        if (*state < MADE) ++*state;
    }
}

static ht_status run_guarded(const ht_machine *m, const ht_instr *instr, const ht_launch *launch)
{
    size_t count = instr->row_block ? instr->row_block : 1;
    for (size_t k = 0; k < count; k++) {
        for (size_t i = 0; i < instr[k].call->n_out; i++) {
            unsigned char *canary = canary_behind(&instr[k], &launch[k], i);
            if (canary) memset(canary, CANARY, HT_CANARY_BYTES);
        }
    }
    run(instr, launch);
    for (size_t k = 0; k < count; k++) HT_TRY(check_canaries(m, &instr[k], &launch[k]));
    return HT_OK;
}

ht_status ht_machine_run(ht_machine *m, size_t segment)
{
    const ht_plan_segment *s = &m->plan->segments[segment];
    ht_launch *launches = m->launches[segment];
    make_prepacked(m, s, launches);
    for (size_t i = 0, count; i < s->instr_count; i += count) {
        const ht_instr *instr = &s->instrs[i];
        count = instr->row_block ? instr->row_block : 1;
        if (m->plan->canary)
            HT_TRY(run_guarded(m, instr, &launches[i]));
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

ht_status ht_machine_watch(ht_machine *m, size_t segment, ht_watch_fn watch, void *arg)
{
    const ht_plan_segment *s = &m->plan->segments[segment];
    ht_launch *launches = m->launches[segment];
    const ht_instr *fused = find_fused(s);
    if (fused)
        HT_FAIL(m->plan->ctx, HT_EINVAL,
                "segment %s: %s does several ops at once; watching wants a plan without fusion", s->name,
                fused->kernel->name);
    make_prepacked(m, s, launches);
    for (size_t i = 0; i < s->instr_count; i++) {
        const ht_instr *instr = &s->instrs[i];
        if (m->plan->canary)
            HT_TRY(run_guarded(m, instr, &launches[i]));
        else
            instr->kernel->run(&launches[i]);
        for (size_t k = 0; k < instr->call->n_out; k++)
            if (!watch(arg, instr, k, instr->call->out[k], launches[i].out[k])) return HT_OK;
    }
    return HT_OK;
}
