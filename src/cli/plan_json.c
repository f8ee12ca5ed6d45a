/* A plan as JSON. */
#include "cli/plan_view.h"

static void put_flops(ht_json_writer *json, const ht_step_flops *f)
{
    ht_json_begin_object(json, "flops");
    ht_json_put_number(json, "forward", f->forward);
    ht_json_put_number(json, "backward", f->backward);
    ht_json_put_number(json, "update", f->update);
    ht_json_put_number(json, "recomputed", f->recomputed);
    ht_json_put_number(json, "other", f->other);
    ht_json_put_number(json, "causal_masked", f->masked);
    ht_json_end_object(json);
}

/* What every plan has. */
static void put_figures(ht_json_writer *json, const cli_plan_row *r)
{
    ht_json_put_int(json, "ranks", r->ranks);
    ht_json_put_int(json, "params", r->parameters);
    ht_json_put_int(json, "plan_bytes", r->plan_bytes);
    ht_json_put_int(json, "main_bytes", r->main_bytes);
    ht_byte_table_json(json, "bytes", &r->bytes);
    ht_json_put_bool(json, "kernels", r->kernels);
    put_flops(json, &r->flops);
    ht_json_put_number(json, "samples", r->samples);
    ht_json_put_number(json, "tokens", r->tokens);
    ht_json_put_number(json, "step_ms", 1e3 * r->seconds);
    ht_json_put_number(json, "exchange_ms", 1e3 * r->exchange_seconds);
    ht_json_put_bool(json, "exchange_known", !r->exchange_unknown);
    ht_json_put_number(json, "measured_share", r->measured_share);
    ht_json_put_text(json, "ceilings", ht_ceilings_names[r->ceilings]);
    ht_json_put_number(json, "mfu", r->mfu);
    if (r->energy > 0)
        ht_json_put_number(json, "step_joules", r->energy);
    else
        ht_json_put_null(json, "step_joules");
    if (r->fits_unknown)
        ht_json_put_null(json, "fits");
    else
        ht_json_put_bool(json, "fits", r->fits);
}

static void put_rows(ht_json_writer *json, const char *key, const cli_plan_rows *rows)
{
    ht_json_line(json, 1);
    ht_json_begin_array(json, key);
    for (size_t i = 0; i < rows->count; i++) {
        const cli_plan_row *r = &rows->list[i];
        ht_json_line(json, 2);
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "change", r->kind);
        ht_json_put_text(json, "to", r->name);
        if (r->refused[0])
            ht_json_put_text(json, "refused", r->refused);
        else
            put_figures(json, r);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
}

static void put_most(ht_json_writer *json, const char *key, const cli_most *m)
{
    if (!m->key) {
        ht_json_put_null(json, key);
        return;
    }
    ht_json_begin_object(json, key);
    ht_json_put_text(json, "key", m->key);
    ht_json_put_int(json, "value", m->value);
    ht_json_put_int(json, "main_bytes", m->bytes);
    if (m->next_bytes)
        ht_json_put_int(json, "next_main_bytes", m->next_bytes);
    else
        ht_json_put_null(json, "next_main_bytes");
    ht_json_end_object(json);
}

static void put_instrs(ht_json_writer *json, const cli_plan_view *v)
{
    const ht_plan *plan = v->planned.plan;
    ht_json_line(json, 1);
    ht_json_begin_array(json, "instructions");
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; v->prediction.segments[s].instrs && i < plan->segments[s].instr_count; i++) {
            const ht_instr *instr = &plan->segments[s].instrs[i];
            const ht_instr_prediction *p = &v->prediction.segments[s].instrs[i];
            ht_text ops = {0};
            ht_instr_add_ops(&ops, instr);
            ht_json_line(json, 2);
            ht_json_begin_object(json, NULL);
            ht_json_put_text(json, "segment", plan->segments[s].name);
            ht_json_put_uint(json, "index", i);
            ht_json_put_text(json, "layer", ht_instr_layer(&plan->segments[s], i));
            ht_json_put_text(json, "op", ops.failed ? "" : ops.data);
            ht_json_put_number(json, "flops", ht_cost_flops(instr->cost));
            ht_json_put_number(json, "bytes", instr->cost.bytes);
            ht_json_put_number(json, "ms", 1e3 * p->seconds);
            ht_json_put_number(json, "memory_ms", 1e3 * p->memory_s);
            ht_json_put_text(json, "bound", ht_bound_names[ht_instr_roofline(&plan->target, instr).bound]);
            ht_json_put_bool(json, "measured", p->measured);
            ht_json_end_object(json);
            ht_text_free(&ops);
        }
    ht_json_end_array(json);
}

static void put_timeline(ht_json_writer *json, const cli_plan_view *v)
{
    const ht_memory_timeline *t = &v->timeline;
    ht_json_line(json, 1);
    ht_json_begin_object(json, "timeline");
    ht_json_begin_object(json, "lasting");
    for (int h = 0; h < HT_BYTES_COUNT; h++) ht_json_put_int(json, ht_byte_heading_names[h], t->lasting[h]);
    ht_json_end_object(json);
    ht_json_begin_array(json, "activations");
    for (size_t i = 0; i < t->count; i++) ht_json_put_int(json, NULL, t->moments[i].values);
    ht_json_end_array(json);
    ht_json_begin_array(json, "workspace");
    for (size_t i = 0; i < t->count; i++) ht_json_put_int(json, NULL, t->moments[i].workspace);
    ht_json_end_array(json);
    ht_json_put_uint(json, "peak", t->peak);
    ht_memory_timeline_alive_json(t, json, t->alive_count);
    ht_json_end_object(json);
}

void cli_plan_json(ht_text *text, const cli_plan_view *v)
{
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "job", v->request->path);
    ht_json_put_text(&json, "model", ht_config_type(v->config, "model"));
    ht_json_put_text(&json, "precision", v->planned.plan->precision);
    ht_json_put_text(&json, "target", v->target ? v->target_name : v->elsewhere ? "elsewhere" : "here");
    ht_json_put_int(&json, "steps", v->planned.steps);
    put_figures(&json, &v->row);
    ht_json_put_number(&json, "run_seconds", (double)v->planned.steps * v->row.seconds);
    if (v->limit)
        ht_json_put_int(&json, "limit_bytes", v->limit);
    else
        ht_json_put_null(&json, "limit_bytes");
    put_rows(&json, "what_if", &v->what_if);
    put_rows(&json, "budgets", &v->budgets);
    put_rows(&json, "targets", &v->targets);
    ht_json_line(&json, 1);
    put_most(&json, "largest_batch", &v->batch);
    put_most(&json, "most_layers", &v->layers);
    put_timeline(&json, v);
    put_instrs(&json, v);
    ht_json_line(&json, 0);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}
