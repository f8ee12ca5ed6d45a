/* A plan for people: the memory ledger, then the instructions. */
#include <stdlib.h>

#include "plan/plan.h"

static void print_bytes(ht_text *t, const char *what, int64_t bytes)
{
    ht_text_add(t, "  %-14s %16lld\n", what, (long long)bytes);
}

static void print_place(ht_text *t, ht_place place)
{
    static const char *const names[HT_AREA_COUNT] = {"_", "state", "slot", "transient", "prepacked"};
    ht_text_add(t, "%s", names[place.area]);
    if (place.area != HT_AREA_NONE) ht_text_add(t, "+%lld", (long long)place.offset);
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
    if (instr->row_block) ht_text_add(t, "  together with the next %zu", instr->row_block - 1);
    if (instr->role != HT_ROLE_FWD) ht_text_add(t, "  role=%s", ht_role_names[instr->role]);
    if (instr->site) ht_text_add(t, "  at=%s", instr->site);
    ht_text_add(t, "\n");
}

ht_status ht_plan_print(char **out, const ht_plan *plan)
{
    ht_text t = {0};
    ht_text_add(&t, "plan for %s, %s, %d threads\nmodel %016llx\nbytes\n", plan->target.name,
                ht_isa_name(plan->target.isa), plan->target.threads, (unsigned long long)plan->model_hash);
    for (int h = 0; h < HT_HEADING_COUNT; h++)
        if (plan->heading_bytes[h]) print_bytes(&t, ht_heading_names[h], plan->heading_bytes[h]);
    print_bytes(&t, "state", plan->area_bytes[HT_AREA_STATE]);
    print_bytes(&t, "slots", plan->area_bytes[HT_AREA_SLOT]);
    print_bytes(&t, "transients", plan->area_bytes[HT_AREA_TRANSIENT]);
    if (plan->area_bytes[HT_AREA_PREPACKED]) print_bytes(&t, "prepacked", plan->area_bytes[HT_AREA_PREPACKED]);
    print_bytes(&t, "total", ht_plan_bytes(plan));
    for (size_t i = 0; i < plan->segment_count; i++) {
        const ht_plan_segment *s = &plan->segments[i];
        ht_text_add(&t, "\nsegment %s: %zu instructions, %lld transient bytes (%lld alive at once)\n", s->name,
                    s->instr_count, (long long)s->transient_bytes, (long long)s->live_bytes);
        for (size_t k = 0; k < s->instr_count; k++) print_instr(&t, plan, &s->instrs[k]);
    }
    *out = t.data;
    if (!t.failed) return HT_OK;
    *out = NULL;
    ht_text_free(&t);
    HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for the text of a plan");
}
