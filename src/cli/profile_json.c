/* A profile for programs, and as a trace. */
#include "cli/profile_view.h"

#include <math.h>
#include <string.h>

/* FLOPs and bytes are whole numbers. */
static void put_count(ht_json_writer *json, const char *key, double count)
{
    ht_json_put_int(json, key, llround(count));
}

static void put_flops(ht_json_writer *json, const ht_step_flops *f)
{
    ht_json_begin_object(json, "flops");
    put_count(json, "forward", f->forward);
    put_count(json, "backward", f->backward);
    put_count(json, "update", f->update);
    put_count(json, "recomputed", f->recomputed);
    put_count(json, "other", f->other);
    put_count(json, "causal_masked", f->masked);
    ht_json_end_object(json);
}

static void put_times(ht_json_writer *json, const ht_profile *p)
{
    ht_json_begin_object(json, "step_ms");
    ht_json_put_number(json, "mean", 1e3 * p->mean_seconds);
    ht_json_put_number(json, "p50", 1e3 * ht_profile_percentile(p, 50));
    ht_json_put_number(json, "p90", 1e3 * ht_profile_percentile(p, 90));
    ht_json_put_number(json, "p99", 1e3 * ht_profile_percentile(p, 99));
    ht_json_end_object(json);
    ht_json_put_number(json, "samples_per_second", p->samples / p->mean_seconds);
    ht_json_put_number(json, "tokens_per_second", p->tokens > 0 ? p->tokens / p->mean_seconds : NAN);
    ht_json_begin_object(json, "mfu");
    ht_json_put_number(json, "default", ht_profile_mfu(p, false));
    ht_json_put_number(json, "target", p->measured_ceilings ? ht_profile_mfu(p, true) : NAN);
    ht_json_end_object(json);
}

static void put_counters(ht_json_writer *json, const ht_profile *p)
{
    if (p->no_counters[0]) {
        ht_json_put_null(json, "counters");
        return;
    }
    ht_json_begin_object(json, "counters");
    for (int i = 0; i < HT_COUNTER_COUNT; i++) ht_json_put_number(json, ht_counter_names[i], p->counters[i]);
    ht_json_end_object(json);
}

static void put_phases(ht_json_writer *json, const cli_profile_view *v)
{
    ht_json_begin_array(json, "phases");
    for (int phase = 0; phase < HT_PHASE_COUNT; phase++) {
        const ht_phase_profile *f = &v->profile->phases[phase];
        ht_json_line(json, 2);
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "name", ht_phase_names[phase]);
        ht_json_put_number(json, "ms", 1e3 * f->seconds);
        put_count(json, "flops", f->flops);
        put_count(json, "bytes", f->bytes);
        ht_json_put_number(json, "limit_ms", 1e3 * f->limit_seconds);
        ht_json_put_text(json, "bound", f->bytes > 0 ? ht_bound_names[ht_bound_of_most(f->bound_seconds)] : NULL);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
    ht_json_put_number(json, "save_ms", v->save_seconds > 0 ? 1e3 * v->save_seconds : NAN);
}

static void put_modules(ht_json_writer *json, const ht_profile *p)
{
    ht_json_begin_array(json, "modules");
    for (size_t i = 0; i < p->modules.count; i++) {
        const ht_module *m = &p->modules.list[i];
        ht_json_line(json, 2);
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "name", m->name);
        ht_json_put_int(json, "depth", m->depth);
        ht_json_put_int(json, "params", m->params);
        put_count(json, "macs", m->forward_flops / 2);
        put_count(json, "forward_flops", m->forward_flops);
        put_count(json, "backward_flops", m->backward_flops);
        ht_json_put_number(json, "forward_ms", 1e3 * m->forward_seconds);
        ht_json_put_number(json, "backward_ms", 1e3 * m->backward_seconds);
        put_count(json, "bytes", m->bytes);
        ht_json_put_number(json, "limit_ms", 1e3 * m->limit_seconds);
        ht_json_put_text(json, "bound", m->bytes > 0 ? ht_bound_names[ht_bound_of_most(m->bound_seconds)] : NULL);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
}

static void put_instr(ht_json_writer *json, const ht_instr_profile *i)
{
    ht_text ops = {0};
    ht_instr_add_ops(&ops, i->instr);
    ht_json_line(json, 2);
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "segment", i->segment->name);
    ht_json_put_int(json, "index", (int64_t)i->index);
    ht_json_put_text(json, "layer", i->layer);
    ht_json_put_text(json, "op", ops.failed ? NULL : ops.data);
    ht_json_put_text(json, "kernel", i->instr->kernel->name);
    ht_json_put_text(json, "phase", ht_phase_names[i->phase]);
    ht_json_put_text(json, "work", ht_work_names[i->work]);
    ht_json_put_text(json, "bound", ht_bound_names[i->limit.bound]);
    ht_json_put_text(json, "dtype", ht_format_name(i->limit.format));
    ht_json_put_number(json, "runs", i->runs);
    ht_json_put_number(json, "ms", 1e3 * i->seconds);
    put_count(json, "dot_flops", i->instr->cost.dot_flops);
    put_count(json, "other_flops", i->instr->cost.other_flops);
    put_count(json, "recomputed_flops", i->instr->cost.recomputed_flops);
    put_count(json, "bytes", i->instr->cost.bytes);
    ht_json_put_number(json, "limit_ms", 1e3 * i->limit.limit_s);
    ht_json_end_object(json);
    ht_text_free(&ops);
}

/* Of the target, for the number types that instructions compute in. */
static void put_ceilings(ht_json_writer *json, const ht_profile *p)
{
    bool computes[HT_FORMAT_COUNT] = {false};
    for (size_t i = 0; i < p->instr_count; i++) computes[p->instrs[i].limit.format] = true;
    ht_json_begin_object(json, "ceilings");
    ht_json_put_number(json, "bandwidth", ht_target_bandwidth(&p->plan->target, HT_SPACE_MAIN));
    ht_json_begin_object(json, "flops");
    for (int i = 0; i < HT_FORMAT_COUNT; i++)
        if (computes[i]) ht_json_put_number(json, ht_format_name(i), ht_target_flops(&p->plan->target, i));
    ht_json_end_object(json);
    ht_json_end_object(json);
}

static void put_infer(ht_json_writer *json, const cli_profile_view *v)
{
    ht_json_begin_array(json, "infer");
    for (size_t i = 0; i < v->infer_count; i++) {
        const cli_infer_row *r = &v->infer[i];
        ht_json_line(json, 2);
        ht_json_begin_object(json, NULL);
        ht_json_put_int(json, "batch", r->batch);
        ht_json_put_number(json, "p50_ms", 1e3 * r->times.p50_s);
        ht_json_put_number(json, "p90_ms", 1e3 * r->times.p90_s);
        ht_json_put_number(json, "p99_ms", 1e3 * r->times.p99_s);
        ht_json_put_number(json, "samples_per_second", (double)r->batch / r->times.p50_s);
        put_count(json, "dot_flops", r->times.cost.dot_flops);
        put_count(json, "other_flops", r->times.cost.other_flops);
        put_count(json, "bytes", r->times.cost.bytes);
        ht_json_put_int(json, "plan_bytes", r->times.plan_bytes);
        ht_json_put_int(json, "weight_bytes", r->times.weight_bytes);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
}

void cli_profile_json(ht_text *text, const cli_profile_view *v)
{
    const ht_profile *p = v->profile;
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "job", v->job);
    ht_json_put_text(&json, "model", v->model);
    ht_json_put_text(&json, "precision", p->plan->precision);
    ht_json_put_text(&json, "device", p->plan->device);
    ht_json_put_text(&json, "isa", ht_isa_name(p->plan->target.isa));
    ht_json_put_int(&json, "threads", v->threads);
    ht_json_put_int(&json, "ranks", v->ranks);
    ht_json_put_int(&json, "params", v->params);
    ht_json_put_int(&json, "steps", (int64_t)p->steps);
    ht_json_line(&json, 1);
    put_times(&json, p);
    ht_json_line(&json, 1);
    put_flops(&json, &p->flops);
    put_counters(&json, p);
    put_ceilings(&json, p);
    ht_json_put_int(&json, "plan_bytes", ht_plan_bytes(p->plan));
    ht_byte_table_json(&json, "bytes", &v->bytes);
    ht_json_line(&json, 1);
    put_phases(&json, v);
    ht_json_line(&json, 1);
    put_modules(&json, p);
    ht_json_line(&json, 1);
    ht_json_begin_array(&json, "instructions");
    for (size_t i = 0; i < p->instr_count; i++) put_instr(&json, &p->instrs[i]);
    ht_json_end_array(&json);
    ht_json_line(&json, 1);
    if (v->infer_count) put_infer(&json, v);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}
