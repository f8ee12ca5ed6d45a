/* A profile on the terminal. */
#include "cli/cli.h"
#include "cli/profile_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "probe/probe.h"

enum { SHOWN_INSTRS = 15 };

/* ---- sentences ---- */

static void add_flops(ht_text *text, const ht_step_flops *f)
{
    ht_text_add(text,
                "FLOPs of a step: products forward %.0f, backward %.0f, update %.0f; computed again %.0f; everything "
                "else %.0f.\n",
                f->forward, f->backward, f->update, f->recomputed, f->other);
    if (f->masked > 0)
        ht_text_add(text,
                    "Causal attention is counted as it is computed, without what its mask leaves out: %.0f. Counted "
                    "whole, as PyTorch does, the products of a step are %.0f.\n",
                    f->masked, f->forward + f->backward + f->update + f->masked);
}

static void add_mfu(ht_text *text, const ht_profile *p)
{
    bool gpu = p->plan->target.device == HT_DEVICE_CUDA;
    ht_text_add(text, "MFU: %.1f %% of the %s", 100 * ht_profile_mfu(p, false),
                gpu ? "data sheet of the H200" : "assumed ceiling");
    if (p->measured_ceilings)
        ht_text_add(text, ", %.1f %% of the target's ceiling", 100 * ht_profile_mfu(p, true));
    else
        ht_text_add(text, " (the target has none of its own; --target FILE)");
    ht_text_add(text, ": products of forward and backward, recomputation left out.\n");
}

static void add_counters(ht_text *text, const ht_profile *p)
{
    if (p->no_counters[0]) {
        ht_text_add(text, "No hardware counters: %s.\n", p->no_counters);
        return;
    }
    ht_text_add(text, "Hardware counters of a step: %.3g instructions, %.2f in a cycle; %.3g cache misses.\n",
                p->counters[HT_COUNTER_INSTRUCTIONS],
                p->counters[HT_COUNTER_INSTRUCTIONS] / p->counters[HT_COUNTER_CYCLES],
                p->counters[HT_COUNTER_CACHE_MISSES]);
}

void cli_profile_summary(ht_text *text, const cli_profile_view *v)
{
    const ht_profile *p = v->profile;
    double instrs = 0;
    for (int phase = HT_PHASE_FORWARD; phase <= HT_PHASE_UPDATE; phase++) instrs += p->phases[phase].seconds;
    ht_text_add(text,
                "%s, %" PRId64 " parameters, %s, %s %s, %d thread%s, %" PRId64 " rank%s: %zu steps after %" PRId64
                " to warm up.\n",
                v->model, v->params, p->plan->precision, p->plan->device, ht_isa_name(p->plan->target.isa), v->threads,
                v->threads == 1 ? "" : "s", v->ranks, v->ranks == 1 ? "" : "s", p->steps, v->warm_up);
    ht_text_add(text, "Step: p50 %.3f ms, p90 %.3f ms, p99 %.3f ms, mean %.3f ms; %.1f samples/s",
                1e3 * ht_profile_percentile(p, 50), 1e3 * ht_profile_percentile(p, 90),
                1e3 * ht_profile_percentile(p, 99), 1e3 * p->mean_seconds, p->samples / p->mean_seconds);
    if (p->tokens > 0) ht_text_add(text, ", %.0f tokens/s", p->tokens / p->mean_seconds);
    ht_text_add(text, ".\n");
    add_flops(text, &p->flops);
    add_mfu(text, p);
    ht_text_add(
        text, "The times of instructions add up to %.1f %% of the step; data, records, gaps and waits are the rest.\n",
        100 * instrs / p->mean_seconds);
    add_counters(text, p);
    if (strncmp(p->plan->device, "cuda", 4) == 0)
        ht_text_add(text, "A GPU is profiled without its recorded graphs: launch by launch, each timed by events, "
                          "which is slower.\n");
}

static void add_cache(ht_text *text, const char *name, double bytes, double weights)
{
    if (bytes <= 0) return;
    ht_text_add(text, "; %s %.2f MB, %s", name, bytes / 1e6,
                weights <= bytes ? "which holds them" : "too small for them");
}

/* As the target tells it, else as hwloc does: what the C library asks the processor is wrong in virtual machines. */
static double cache_bytes(const ht_target *target, ht_cache level)
{
    ht_topology topology;
    if (target->cache_bytes[level] > 0) return target->cache_bytes[level];
    ht_topology_describe(&topology);
    return (double)topology.cache_bytes[level];
}

void cli_profile_caches(ht_text *text, const cli_profile_view *v)
{
    double weights = (double)v->infer[0].times.weight_bytes;
    const ht_plan *plan = v->profile->plan;
    ht_device *gpu;
    ht_text_add(text, "The weights that it reads are %.2f MB", weights / 1e6);
    if (plan->target.device != HT_DEVICE_CUDA) {
        add_cache(text, "L2", cache_bytes(&plan->target, HT_CACHE_L2), weights);
        add_cache(text, "L3", cache_bytes(&plan->target, HT_CACHE_L3), weights);
    } else if (ht_device_get(&gpu, plan->ctx, plan->device) == HT_OK) {
        add_cache(text, "L2 of the GPU", (double)ht_cuda_device_limits(gpu).l2_bytes, weights);
    }
    ht_text_add(text,
                ". Weights that no cache holds are read from memory for every batch: a larger one shares that.\n");
}

/* ---- the largest modules ---- */

static double measure(const ht_module *m, int what)
{
    return what == 0 ? (double)m->params : what == 1 ? m->forward_flops / 2 : 1e3 * m->forward_seconds;
}

/* The next one in falling order; SIZE_MAX: there is none. */
static size_t next_module(const ht_module_tree *t, int depth, int what, size_t before)
{
    size_t best = SIZE_MAX;
    for (size_t i = 0; i < t->count; i++) {
        double value = measure(&t->list[i], what);
        if (t->list[i].depth != depth) continue;
        if (before != SIZE_MAX) {
            double last = measure(&t->list[before], what);
            if (value > last || (value == last && i <= before)) continue;
        }
        if (best == SIZE_MAX || value > measure(&t->list[best], what)) best = i;
    }
    return best;
}

static void add_top(ht_text *text, const ht_module_tree *t, int depth, int64_t top)
{
    static const char *const whats[] = {"params", "MACs", "forward ms"};
    ht_text_add(text, "depth %d:\n", depth);
    for (int what = 0; what < 3; what++) {
        ht_text_add(text, "  %s:", whats[what]);
        size_t at = next_module(t, depth, what, SIZE_MAX);
        for (int64_t i = 0; i < top && at != SIZE_MAX; i++, at = next_module(t, depth, what, at)) {
            const char *name = t->list[at].name;
            ht_text_add(text, what == 2 ? "%s %s %.3f" : "%s %s %.0f", i ? "," : "", name[0] ? name : "model",
                        measure(&t->list[at], what));
        }
        ht_text_add(text, "\n");
    }
}

/* ---- tables ---- */

static void print_table(ht_text *text, ht_table *table, const char *title)
{
    ht_text_add(text, "\n%s\n", title);
    ht_table_print(text, table, cli_columns());
    text->failed |= table->failed;
    ht_table_free(table);
}

void cli_profile_modules(ht_text *text, const ht_profile *p, int64_t depth, int64_t top, bool detailed)
{
    ht_table table = {.count = 0};
    int deepest = 0;
    for (size_t i = 0; i < p->modules.count; i++)
        if (p->modules.list[i].depth > deepest) deepest = p->modules.list[i].depth;
    if (depth >= 0 && deepest > depth) deepest = (int)depth;
    if (top > 0) ht_text_add(text, "\nThe largest modules\n");
    for (int d = 0; top > 0 && d <= deepest; d++) add_top(text, &p->modules, d, top);
    if (!detailed) return;
    cli_profile_module_table(&table, p, depth, false);
    print_table(text, &table, "Modules");
}

void cli_profile_phases(ht_text *text, const ht_profile *p, double save_seconds)
{
    ht_table phases = {.count = 0}, works = {.count = 0}, bounds = {.count = 0};
    cli_profile_phase_table(&phases, p, save_seconds);
    cli_profile_work_table(&works, p);
    cli_profile_bound_table(&bounds, p);
    print_table(text, &phases, "Phases of a step");
    print_table(text, &works, "Kinds of work");
    print_table(text, &bounds, "What bounds it");
}

/* Throughput over latency, as bars: a curve that a terminal can draw. */
static void add_curve(ht_text *text, const cli_profile_view *v)
{
    enum { WIDTH = 40 };
    double most = 0;
    for (size_t i = 0; i < v->infer_count; i++)
        if ((double)v->infer[i].batch / v->infer[i].times.p50_s > most)
            most = (double)v->infer[i].batch / v->infer[i].times.p50_s;
    ht_text_add(text, "\nThroughput against latency\n");
    for (size_t i = 0; i < v->infer_count; i++) {
        const cli_infer_row *r = &v->infer[i];
        double rate = (double)r->batch / r->times.p50_s;
        ht_text_add(text, "  %10.3f ms  ", 1e3 * r->times.p50_s);
        for (int at = 0; at < (int)(WIDTH * rate / most + 0.5); at++) ht_text_add(text, "=");
        ht_text_add(text, " %.1f/s, batch %" PRId64 "\n", rate, r->batch);
    }
}

static void add_infer(ht_text *text, const cli_profile_view *v)
{
    ht_table batches = {.count = 0}, sides = {.count = 0};
    cli_profile_infer_table(&batches, v);
    cli_profile_sides_table(&sides, v);
    print_table(text, &batches, "Inference: the forward pass of evaluation, by batch");
    add_curve(text, v);
    ht_text_add(text, "\n");
    cli_profile_caches(text, v);
    print_table(text, &sides, "Training against inference");
}

void cli_profile_text(ht_text *text, const cli_profile_view *v)
{
    ht_table instrs = {.count = 0};
    cli_profile_summary(text, v);
    cli_profile_phases(text, v->profile, v->save_seconds);
    cli_profile_modules(text, v->profile, v->depth, 0, true);
    cli_profile_instr_table(&instrs, v->profile, SHOWN_INSTRS);
    print_table(text, &instrs, "The slowest instructions; * stands for a number");
    if (v->infer_count) add_infer(text, v);
}
