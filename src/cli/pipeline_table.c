#include "cli/pipeline_table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/report.h"

static const double BYTE_MOVED = 4; /* in memory: as long as so many FLOPs; as the stages were balanced */

/* ---- one stage ---- */

static double cost_of(const ht_plan *plan, const char *segment)
{
    int found = ht_plan_segment_find(plan, segment);
    if (found < 0) return 0;
    ht_cost cost = ht_plan_segment_cost(&plan->segments[found]);
    return ht_cost_flops(cost) + cost.recomputed_flops + BYTE_MOVED * cost.bytes;
}

static void find_layers(cli_pipeline_stage *out, const ht_plan *plan)
{
    const ht_plan_segment *s = &plan->segments[ht_plan_segment_find(plan, "fwd")];
    for (size_t i = 0; i < s->instr_count; i++) {
        const char *site = s->instrs[i].site;
        if (!site) continue;
        if (!out->first[0]) snprintf(out->first, sizeof out->first, "%s", site);
        snprintf(out->last, sizeof out->last, "%s", site);
    }
}

static void count_state(cli_pipeline_stage *out, const ht_plan *plan)
{
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        if (slot->kind != HT_SLOT_STATE) continue;
        bool flat = strncmp(slot->name, "flat.grad.", strlen("flat.grad.")) == 0;
        if (slot->heading == HT_HEADING_GRADIENTS && slot->owner != i && !slot->derived && !flat)
            out->parameters += ht_type_elems(&slot->type);
        if (slot->heading == HT_HEADING_ACTIVATIONS && slot->place.area == HT_AREA_INPUT)
            out->activation_bytes += ht_type_bytes(&slot->type) * (int64_t)plan->input_slots;
    }
}

static void plan_stage(cli_pipeline_stage *out, ht_context *ctx, const ht_run_request *request, int64_t stage)
{
    ht_run_request wanted = *request;
    ht_plan *plan = NULL;
    wanted.try_pipeline = 1 + (int)stage;
    wanted.observer = NULL;
    wanted.on_note = NULL;
    *out = (cli_pipeline_stage){.slots = 0};
    if (ht_run_plan(&plan, ctx, &wanted) != HT_OK) {
        snprintf(out->refused, sizeof out->refused, "%s", ht_context_message(ctx));
        return;
    }
    find_layers(out, plan);
    count_state(out, plan);
    out->plan_bytes = ht_plan_bytes(plan);
    out->slots = plan->input_slots;
    out->forward = cost_of(plan, "fwd");
    out->backward = cost_of(plan, "bwd_first");
    ht_exchange_table exchanges = ht_plan_exchange_table(plan);
    for (size_t i = 0; i < exchanges.count; i++) {
        const ht_exchange_row *row = &exchanges.rows[i];
        if (strcmp(row->op, "send") != 0 || strcmp(row->group, "pipeline") != 0) continue;
        out->sends += row->calls;
        out->sent_bytes += row->sent;
    }
    ht_plan_free(plan);
}

void cli_pipeline_plan(cli_pipeline *p, ht_context *ctx, const ht_run_request *request)
{
    const ht_train_config *config = ht_config_train(request->config);
    p->stages = config->pipeline;
    p->micros = config->accumulate;
    for (int64_t i = 0; p->stages > 1 && i < p->stages; i++) plan_stage(&p->list[i], ctx, request, i);
}

/* ---- waiting ---- */

/* When the parts of micro-batches end, by stage and micro-batch; 0: not yet. */
typedef struct timetable {
    const cli_pipeline *p;
    double *forward, *backward; /* [stages][micros] */
    double now[HT_MOST_STAGES];
    size_t next[HT_MOST_STAGES], count[HT_MOST_STAGES];
    ht_pipeline_call *calls[HT_MOST_STAGES];
} timetable;

/* Runs a stage's next call if what it waits for is there. */
static bool run_next(timetable *t, int64_t s)
{
    const cli_pipeline *p = t->p;
    if (t->next[s] == t->count[s]) return false;
    const ht_pipeline_call *call = &t->calls[s][t->next[s]];
    bool forward = call->part == HT_PIPELINE_FORWARD, computes = forward || call->part == HT_PIPELINE_BACKWARD;
    int64_t from = forward ? s - 1 : s + 1;
    double *ends = forward ? t->forward : t->backward, ready = 0;
    if (computes && from >= 0 && from < p->stages) {
        ready = ends[from * p->micros + call->micro];
        if (ready == 0) return false;
    }
    t->next[s]++;
    if (!computes) return true;
    if (ready > t->now[s]) t->now[s] = ready;
    t->now[s] += forward ? p->list[s].forward : p->list[s].backward;
    ends[s * p->micros + call->micro] = t->now[s];
    return true;
}

static double run_all(timetable *t)
{
    const cli_pipeline *p = t->p;
    double busy = 0, end = 0;
    for (int64_t s = 0; s < p->stages; s++) t->count[s] = ht_pipeline_calls(p->stages, s, p->micros, t->calls[s]);
    for (bool moved = true; moved;) {
        moved = false;
        for (int64_t s = 0; s < p->stages; s++)
            while (run_next(t, s)) moved = true;
    }
    for (int64_t s = 0; s < p->stages; s++) {
        busy += (double)p->micros * (p->list[s].forward + p->list[s].backward);
        if (t->now[s] > end) end = t->now[s];
    }
    return end > 0 ? 1 - busy / (end * (double)p->stages) : 0;
}

/* The share of a step in which stages wait, by what their instructions cost; -1: not known. */
static double bubble_by_cost(const cli_pipeline *p)
{
    size_t cells = (size_t)(p->stages * p->micros), most = (size_t)p->micros * HT_PIPELINE_PARTS;
    timetable t = {.p = p, .forward = calloc(cells, sizeof *t.forward), .backward = calloc(cells, sizeof *t.backward)};
    ht_pipeline_call *calls = calloc(most * (size_t)p->stages, sizeof *calls);
    double share = -1;
    for (int64_t s = 0; s < p->stages; s++) t.calls[s] = calls + (size_t)s * most;
    if (t.forward && t.backward && calls) share = run_all(&t);
    free(t.forward);
    free(t.backward);
    free(calls);
    return share;
}

/* ---- the terminal ---- */

static void add_row(ht_table *table, const cli_pipeline_stage *s, int64_t stage, double all)
{
    ht_table_cell(table, "%" PRId64, stage);
    ht_table_cell(table, "%s", s->first);
    ht_table_cell(table, "%s", s->last);
    ht_table_cell(table, "%" PRId64, s->parameters);
    ht_table_cell(table, "%.1f %%", all > 0 ? 100 * (s->forward + s->backward) / all : 0);
    ht_table_cell(table, "%" PRId64, s->slots);
    ht_table_cell(table, "%" PRId64, s->activation_bytes);
    ht_table_cell(table, "%" PRId64, s->plan_bytes);
    ht_table_cell(table, "%" PRId64, s->sends);
    ht_table_cell(table, "%" PRId64, s->sent_bytes);
}

void cli_pipeline_print(ht_text *text, const cli_pipeline *p)
{
    static const char *const heads[] = {"pipeline",  "from",        "to",        "parameters", "cost",
                                        "in flight", "activations", "all bytes", "sends",      "sent bytes"};
    enum { HEADS = sizeof heads / sizeof heads[0] };
    ht_table table = {.count = 0};
    double all = 0;
    if (p->stages < 2) return;
    for (int i = 0; i < HEADS; i++) ht_table_head(&table, heads[i]);
    for (int i = 3; i < HEADS; i++) table.right[i] = true;
    for (int64_t i = 0; i < p->stages; i++) all += p->list[i].forward + p->list[i].backward;
    for (int64_t i = 0; i < p->stages; i++)
        if (!p->list[i].refused[0]) add_row(&table, &p->list[i], i, all);
    ht_text_add(text, "\n");
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
    for (int64_t i = 0; i < p->stages; i++)
        if (p->list[i].refused[0]) ht_text_add(text, "pipeline %" PRId64 ": %s\n", i, p->list[i].refused);
    ht_text_add(text,
                "bubble: of %" PRId64 " stages with %" PRId64
                " micro-batches each waits for others in %.1f %% of a step "
                "if all take as long, and in %.1f %% by cost\n",
                p->stages, p->micros, 100 * ht_pipeline_bubble(p->stages, p->micros), 100 * bubble_by_cost(p));
}

/* ---- JSON ---- */

void cli_pipeline_json(ht_json_writer *json, const cli_pipeline *p)
{
    if (p->stages < 2) return;
    ht_json_begin_object(json, "pipeline");
    ht_json_put_int(json, "micro_batches", p->micros);
    ht_json_put_number(json, "bubble", ht_pipeline_bubble(p->stages, p->micros));
    ht_json_put_number(json, "bubble_by_cost", bubble_by_cost(p));
    ht_json_begin_array(json, "stages");
    for (int64_t i = 0; i < p->stages; i++) {
        const cli_pipeline_stage *s = &p->list[i];
        ht_json_line(json, 2);
        ht_json_begin_object(json, NULL);
        ht_json_put_int(json, "stage", i);
        if (s->refused[0]) {
            ht_json_put_text(json, "refused", s->refused);
        } else {
            ht_json_put_text(json, "first", s->first);
            ht_json_put_text(json, "last", s->last);
            ht_json_put_int(json, "parameters", s->parameters);
            ht_json_put_int(json, "plan_bytes", s->plan_bytes);
            ht_json_put_int(json, "activation_bytes", s->activation_bytes);
            ht_json_put_int(json, "in_flight", s->slots);
            ht_json_put_number(json, "cost", s->forward + s->backward);
            ht_json_put_int(json, "sends", s->sends);
            ht_json_put_int(json, "sent_bytes", s->sent_bytes);
        }
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
    ht_json_end_object(json);
}
