/* The tables of a profile. */
#include "cli/explain_view.h"
#include "cli/profile_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A share of the step, in percent. */
static double share(const ht_profile *p, double seconds)
{
    return 100 * seconds / p->mean_seconds;
}

/* NAN, for a "-", where there is nothing to divide by. */
static double ratio(double a, double b)
{
    return b > 0 ? a / b : NAN;
}

static void add_heads(ht_table *table, const char *const *heads)
{
    for (size_t i = 0; heads[i]; i++) {
        ht_table_head(table, heads[i]);
        table->right[i] = i > 0;
    }
}

/* Time, work and rates, as several tables have them. */
static void add_figures(ht_table *table, const ht_profile *p, const ht_phase_profile *f)
{
    ht_table_cell(table, "%.3f", 1e3 * f->seconds);
    ht_table_cell(table, "%.1f", share(p, f->seconds));
    ht_table_number(table, "%.3f", f->flops > 0 ? f->flops / 1e9 : NAN);
    ht_table_number(table, "%.2f", f->bytes > 0 ? f->bytes / 1e6 : NAN);
    ht_table_number(table, "%.1f", f->flops > 0 ? ratio(f->flops / 1e9, f->seconds) : NAN);
    ht_table_number(table, "%.2f", f->bytes > 0 ? ratio(f->bytes / 1e9, f->seconds) : NAN);
    ht_table_number(table, "%.0f", f->bytes > 0 ? ratio(100 * f->limit_seconds, f->seconds) : NAN);
}

/* What bounds most of it; nothing where there are no instructions. */
static void add_bound(ht_table *table, const double seconds[HT_BOUND_COUNT], double bytes)
{
    ht_table_cell(table, "%s", bytes > 0 ? ht_bound_names[ht_bound_of_most(seconds)] : "-");
}

/* The bound stands to the left, as the names of rows do. */
static void add_bound_head(ht_table *table)
{
    table->left[table->columns] = true;
    ht_table_head(table, "bound by");
}

static const char *const figure_heads[] = {"", "ms", "% of step", "GFLOP", "MB", "GFLOP/s", "GB/s", "% of limit", NULL};

void cli_profile_phase_table(ht_table *table, const ht_profile *p, double save_seconds)
{
    add_heads(table, figure_heads);
    add_bound_head(table);
    for (int phase = 0; phase < HT_PHASE_COUNT; phase++) {
        const ht_phase_profile *f = &p->phases[phase];
        bool beside = phase > HT_PHASE_REST;
        if (beside && f->seconds == 0) continue;
        ht_table_cell(table, "%s%s", ht_phase_names[phase], beside ? ", beside them" : "");
        add_figures(table, p, f);
        add_bound(table, f->bound_seconds, f->bytes);
    }
    if (save_seconds == 0) return;
    ht_table_cell(table, "save, once");
    add_figures(table, p, &(ht_phase_profile){.seconds = save_seconds});
    ht_table_cell(table, "-");
}

void cli_profile_work_table(ht_table *table, const ht_profile *p)
{
    ht_phase_profile sums[HT_WORK_COUNT] = {{0}};
    add_heads(table, figure_heads);
    add_bound_head(table);
    for (size_t i = 0; i < p->instr_count; i++) ht_phase_profile_add(&sums[p->instrs[i].work], &p->instrs[i]);
    for (int work = 0; work < HT_WORK_COUNT; work++) {
        ht_table_cell(table, "%s", ht_work_names[work]);
        add_figures(table, p, &sums[work]);
        add_bound(table, sums[work].bound_seconds, sums[work].bytes);
    }
}

void cli_profile_bound_table(ht_table *table, const ht_profile *p)
{
    ht_phase_profile sums[HT_BOUND_COUNT] = {{0}};
    add_heads(table, figure_heads);
    for (size_t i = 0; i < p->instr_count; i++) ht_phase_profile_add(&sums[p->instrs[i].limit.bound], &p->instrs[i]);
    for (int bound = 0; bound < HT_BOUND_COUNT; bound++) {
        if (sums[bound].seconds == 0) continue;
        ht_table_cell(table, "%s-bound", ht_bound_names[bound]);
        add_figures(table, p, &sums[bound]);
    }
}

/* ---- modules ---- */

static const char *last_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

void cli_profile_module_table(ht_table *table, const ht_profile *p, int64_t depth, bool whole_names)
{
    static const char *const heads[] = {"module",    "params",  "MACs", "forward FLOPs", "forward ms", "backward ms",
                                        "% of step", "GFLOP/s", "GB/s", "% of limit",    NULL};
    add_heads(table, heads);
    add_bound_head(table);
    table->rank[2] = 1; /* half of the column behind it */
    for (size_t i = 0; i < p->modules.count; i++) {
        const ht_module *m = &p->modules.list[i];
        double seconds = m->forward_seconds + m->backward_seconds;
        if (depth >= 0 && m->depth > depth) continue;
        const char *name = whole_names ? m->name : last_name(m->name);
        ht_table_cell(table, "%*s%s", whole_names ? 0 : 2 * m->depth, "", name[0] ? name : "model");
        ht_table_cell(table, "%" PRId64, m->params);
        ht_table_cell(table, "%.0f", m->forward_flops / 2);
        ht_table_cell(table, "%.0f", m->forward_flops);
        ht_table_cell(table, "%.3f", 1e3 * m->forward_seconds);
        ht_table_cell(table, "%.3f", 1e3 * m->backward_seconds);
        ht_table_cell(table, "%.1f", share(p, seconds));
        ht_table_number(table, "%.1f", ratio((m->forward_flops + m->backward_flops) / 1e9, seconds));
        ht_table_number(table, "%.2f", ratio(m->bytes / 1e9, seconds));
        ht_table_number(table, "%.0f", ratio(100 * m->limit_seconds, seconds));
        add_bound(table, m->bound_seconds, m->bytes);
    }
}

/* ---- instructions ---- */

/* Instructions that are alike. */
typedef struct alike {
    char *layer, *ops;
    const ht_instr_profile *first;
    size_t count;
    ht_phase_profile sum;
} alike;

static int by_seconds(const void *a, const void *b)
{
    const alike *x = a, *y = b;
    if (x->sum.seconds != y->sum.seconds) return x->sum.seconds > y->sum.seconds ? -1 : 1;
    return x->first < y->first ? -1 : 1;
}

static bool are_alike(const alike *a, const char *layer, const char *ops, const ht_instr_profile *i)
{
    return a->first->phase == i->phase && a->first->instr->kernel == i->instr->kernel && strcmp(a->ops, ops) == 0 &&
           strcmp(a->layer, layer) == 0;
}

/* False when memory is out. */
static bool add_alike(alike *list, size_t *count, const ht_instr_profile *i)
{
    ht_text ops = {0};
    ht_instr_add_ops(&ops, i->instr);
    char *layer = cli_layer_pattern(i->layer);
    size_t at = 0;
    bool ok = layer && !ops.failed;
    while (ok && at < *count && !are_alike(&list[at], layer, ops.data, i)) at++;
    if (ok && at == *count) {
        list[(*count)++] = (alike){.layer = layer, .ops = ops.data, .first = i};
    } else {
        free(layer);
        ht_text_free(&ops);
    }
    if (!ok) return false;
    list[at].count++;
    ht_phase_profile_add(&list[at].sum, i);
    return true;
}

static void add_instr_row(ht_table *table, const ht_profile *p, const alike *a)
{
    ht_table_cell(table, "%s", a->layer);
    ht_table_cell(table, "%s", ht_phase_names[a->first->phase]);
    ht_table_cell(table, "%s", a->ops);
    ht_table_cell(table, "%zu", a->count);
    add_figures(table, p, &a->sum);
    ht_table_cell(table, "%s", ht_bound_names[a->first->limit.bound]);
    ht_table_cell(table, "%s", a->first->instr->kernel->name);
}

void cli_profile_instr_table(ht_table *table, const ht_profile *p, size_t most)
{
    static const struct {
        const char *head;
        bool right;
        int rank;
    } columns[] = {{"layer", false, 0},  {"phase", false, 0},    {"ops", false, 0},       {"times", true, 2},
                   {"ms", true, 0},      {"% of step", true, 0}, {"GFLOP", true, 4},      {"MB", true, 3},
                   {"GFLOP/s", true, 0}, {"GB/s", true, 0},      {"% of limit", true, 0}, {"bound by", false, 0},
                   {"kernel", false, 5}};
    alike *list = calloc(p->instr_count + 1, sizeof *list);
    size_t count = 0;
    bool ok = list != NULL;
    for (size_t i = 0; i < sizeof columns / sizeof columns[0]; i++) {
        ht_table_head(table, columns[i].head);
        table->right[i] = columns[i].right;
        table->rank[i] = columns[i].rank;
    }
    for (size_t i = 0; ok && i < p->instr_count; i++) ok = add_alike(list, &count, &p->instrs[i]);
    if (ok && count) qsort(list, count, sizeof *list, by_seconds);
    for (size_t i = 0; ok && i < count && i < most; i++) add_instr_row(table, p, &list[i]);
    for (size_t i = 0; i < count; i++) {
        free(list[i].layer);
        free(list[i].ops);
    }
    free(list);
    table->failed |= !ok;
}

/* ---- inference ---- */

void cli_profile_infer_table(ht_table *table, const cli_profile_view *v)
{
    static const char *const heads[] = {"batch",       "p50 ms",  "p90 ms", "p99 ms",  "samples/s",
                                        "ms a sample", "GFLOP/s", "GB/s",   "plan MB", NULL};
    add_heads(table, heads);
    table->right[0] = true;
    for (size_t i = 0; i < v->infer_count; i++) {
        const cli_infer_row *r = &v->infer[i];
        ht_table_cell(table, "%" PRId64, r->batch);
        ht_table_cell(table, "%.3f", 1e3 * r->times.p50_s);
        ht_table_cell(table, "%.3f", 1e3 * r->times.p90_s);
        ht_table_cell(table, "%.3f", 1e3 * r->times.p99_s);
        ht_table_cell(table, "%.1f", (double)r->batch / r->times.p50_s);
        ht_table_cell(table, "%.3f", 1e3 * r->times.p50_s / (double)r->batch);
        ht_table_cell(table, "%.1f", ht_cost_flops(r->times.cost) / r->times.p50_s / 1e9);
        ht_table_cell(table, "%.2f", r->times.cost.bytes / r->times.p50_s / 1e9);
        ht_table_cell(table, "%.1f", (double)r->times.plan_bytes / 1e6);
    }
}

void cli_profile_sides_table(ht_table *table, const cli_profile_view *v)
{
    static const char *const heads[] = {"a sample", "training", "inference", NULL};
    const ht_profile *p = v->profile;
    const cli_infer_row *last = &v->infer[v->infer_count - 1];
    double trained = (p->flops.forward + p->flops.backward + p->flops.update) / p->samples;
    add_heads(table, heads);
    table->left[1] = table->left[2] = false;
    ht_table_cell(table, "passes");
    ht_table_cell(table, "forward, backward, update");
    ht_table_cell(table, "forward");
    ht_table_cell(table, "GFLOP of products");
    ht_table_cell(table, "%.4f", trained / 1e9);
    ht_table_cell(table, "%.4f", last->times.cost.dot_flops / (double)last->batch / 1e9);
    ht_table_cell(table, "ms, by the largest batch");
    ht_table_cell(table, "%.3f", 1e3 * p->mean_seconds / p->samples);
    ht_table_cell(table, "%.3f", 1e3 * last->times.p50_s / (double)last->batch);
    for (int heading = 0; heading < HT_BYTES_COUNT; heading++) {
        int64_t training = 0, inference = 0;
        for (int space = 0; space < HT_SPACE_COUNT; space++) {
            training += v->bytes.bytes[space][heading];
            inference += v->infer_bytes.bytes[space][heading];
        }
        if (!training && !inference) continue;
        ht_table_cell(table, "MB of %s", ht_byte_heading_names[heading]);
        ht_table_cell(table, "%.3f", (double)training / 1e6);
        ht_table_cell(table, "%.3f", (double)inference / 1e6);
    }
}
