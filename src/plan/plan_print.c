/* A plan for people: the memory ledger, then the instructions. */
#include <stdio.h>
#include <stdlib.h>

#include "plan/plan.h"

static void print_bytes(ht_text *t, const char *what, int64_t bytes)
{
    ht_text_add(t, "  %-14s %16lld\n", what, (long long)bytes);
}

static void print_place(ht_text *t, ht_place place)
{
    static const char *const names[HT_AREA_COUNT] = {"_", "state", "input", "output", "transient", "prepacked"};
    ht_text_add(t, "%s", names[place.area]);
    if (place.area == HT_AREA_NONE) return;
    ht_text_add(t, "+%lld", (long long)place.offset);
    if (place.space != HT_SPACE_MAIN) ht_text_add(t, "@%s", ht_space_name(place.space));
}

static void print_instr(ht_text *t, const ht_plan *plan, const ht_instr *instr)
{
    ht_text_add(t, "  %-28s", instr->kernel->name);
    for (size_t i = 0; i < instr->call->n_out; i++) {
        ht_text_add(t, " ");
        ht_type_print(t, instr->call->out[i]);
        ht_text_add(t, " ");
        print_place(t, instr->out[i]);
    }
    ht_text_add(t, " <-");
    for (size_t i = 0; i < instr->call->n_in; i++) {
        ht_text_add(t, " ");
        print_place(t, instr->in[i]);
    }
    const ht_fused *f = instr->fused;
    int first = f && (f->gemm || f->fold) ? 0 : 1; /* the kernel's name stands for the first */
    for (int i = first; f && i < f->step_count; i++)
        ht_text_add(t, "%s%s", i == first ? "  with " : ", ", f->steps[i].call->op->name);
    if (instr->prepacked) {
        ht_text_add(t, "  packed ");
        print_place(t, plan->prepacked[instr->prepacked - 1].place);
    }
    if (instr->space != HT_SPACE_MAIN) ht_text_add(t, "  on %s", ht_space_name(instr->space));
    if (instr->queue == HT_QUEUE_COPY) ht_text_add(t, "  queue copy");
    if (instr->wait) ht_text_add(t, "  waits for %u", instr->wait - 1);
    if (instr->row_block) ht_text_add(t, "  together with the next %zu", instr->row_block - 1);
    if (instr->unfused) ht_text_add(t, "  not fused: %s", instr->unfused);
    if (instr->role != HT_ROLE_FWD) ht_text_add(t, "  role=%s", ht_role_names[instr->role]);
    if (instr->site) ht_text_add(t, "  at=%s", instr->site);
    ht_text_add(t, "\n");
}

/* The areas of a space; of spaces other than main only what there is, with the space's name. */
static void print_space(ht_text *t, const ht_plan *plan, ht_space space)
{
    static const struct {
        ht_area area;
        const char *name;
        bool always;
    } rows[] = {
        {HT_AREA_STATE, "state", true},          {HT_AREA_INPUT, "inputs", true},
        {HT_AREA_OUTPUT, "outputs", true},       {HT_AREA_TRANSIENT, "transients", true},
        {HT_AREA_PREPACKED, "prepacked", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t bytes = ht_plan_space_bytes(plan, space, rows[i].area);
        char name[32];
        if (plan->no_kernels && rows[i].area == HT_AREA_TRANSIENT) {
            if (space == HT_SPACE_MAIN) ht_text_add(t, "  %-14s %16s\n", rows[i].name, "unknown");
            continue;
        }
        if (!bytes && (space != HT_SPACE_MAIN || !rows[i].always)) continue;
        snprintf(name, sizeof name, "%s%s%s", rows[i].name, space == HT_SPACE_MAIN ? "" : "@",
                 space == HT_SPACE_MAIN ? "" : ht_space_name(space));
        print_bytes(t, name, bytes);
    }
}

ht_status ht_plan_print(char **out, const ht_plan *plan)
{
    ht_text t = {0};
    ht_text_add(&t, "plan for %s, %s, %d threads\nmodel %016llx\nbytes\n", plan->target.name,
                ht_isa_name(plan->target.isa), plan->target.threads, (unsigned long long)plan->model_hash);
    for (int h = 0; h < HT_HEADING_COUNT; h++)
        if (plan->heading_bytes[h]) print_bytes(&t, ht_heading_names[h], plan->heading_bytes[h]);
    for (int space = 0; space < HT_SPACE_COUNT; space++) print_space(&t, plan, (ht_space)space);
    print_bytes(&t, plan->no_kernels ? "known" : "total", ht_plan_bytes(plan));
    for (size_t i = 0; i < plan->segment_count && !plan->no_kernels; i++) {
        const ht_plan_segment *s = &plan->segments[i];
        ht_text_add(&t, "\nsegment %s: %zu instructions", s->name, s->instr_count);
        for (int space = 0; space < HT_SPACE_COUNT; space++)
            if (space == HT_SPACE_MAIN || s->transient_bytes[space])
                ht_text_add(&t, ", %lld transient bytes%s%s (%lld alive at once)", (long long)s->transient_bytes[space],
                            space == HT_SPACE_MAIN ? "" : "@",
                            space == HT_SPACE_MAIN ? "" : ht_space_name((ht_space)space),
                            (long long)s->live_bytes[space]);
        ht_text_add(&t, "\n");
        for (size_t k = 0; k < s->instr_count; k++) print_instr(&t, plan, &s->instrs[k]);
    }
    *out = t.data;
    if (!t.failed) return HT_OK;
    *out = NULL;
    ht_text_free(&t);
    HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for the text of a plan");
}
