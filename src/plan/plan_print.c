/* A plan for people: bytes by heading, then the instructions. */
#include <stdlib.h>

#include "plan/plan.h"

const char *const ht_queue_names[HT_QUEUE_COUNT] = {
    [HT_QUEUE_COMPUTE] = "compute",
    [HT_QUEUE_COPY_IN] = "copy in",
    [HT_QUEUE_COPY_OUT] = "copy out",
    [HT_QUEUE_COMM] = "comm",
};

static void print_place(ht_text *t, ht_place place)
{
    static const char *const names[HT_AREA_COUNT] = {"_",         "state",     "input", "output",
                                                     "transient", "prepacked", "replay"};
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
    if (instr->queue != HT_QUEUE_COMPUTE) ht_text_add(t, "  queue %s", ht_queue_names[instr->queue]);
    if (instr->wait) ht_text_add(t, "  waits for %u", instr->wait - 1);
    if (instr->row_block) ht_text_add(t, "  together with the next %zu", instr->row_block - 1);
    if (instr->unfused) ht_text_add(t, "  not fused: %s", instr->unfused);
    if (instr->role != HT_ROLE_FWD) ht_text_add(t, "  role=%s", ht_role_names[instr->role]);
    if (instr->site) ht_text_add(t, "  at=%s", instr->site);
    ht_text_add(t, "\n");
}

ht_status ht_plan_print(char **out, const ht_plan *plan)
{
    HT_NEED(plan ? plan->ctx : NULL, out, "out");
    *out = NULL;
    HT_NEED(NULL, plan, "plan");
    ht_text t = {0};
    ht_text_add(&t, "plan for %s, %s, %d thread%s\nmodel %016llx\nbytes\n", plan->target.name,
                ht_isa_name(plan->target.isa), plan->target.threads, plan->target.threads == 1 ? "" : "s",
                (unsigned long long)plan->model_hash);
    ht_byte_table table = ht_plan_byte_table(plan);
    ht_byte_table_print(&t, &table, "  ");
    ht_text_add(&t, "  %-18s %16lld\n", "plan_bytes", (long long)ht_plan_bytes(plan));
    for (size_t i = 0; i < plan->segment_count; i++) {
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
