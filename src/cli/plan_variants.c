/* Plans of a job and of changed jobs: each of them a real one, on the data set of the first. */
#include "cli/plan_view.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/sweep.h"

/* ---- one plan in numbers ---- */

/* What is told for each FLOP and byte, or else watts for as long as it takes; of one device. Joules were measured with idle
 * power in both, so they can add up to more than the board takes. */
static double energy_of(const ht_target *target, const ht_step_prediction *step)
{
    double most = target->power[HT_POWER_BOARD] * step->seconds;
    if (step->unknown_joules) return most;
    return most > 0 && step->joules > most ? most : step->joules;
}

static void add_step(cli_plan_row *row, const ht_plan *plan, const ht_step_prediction *step, double share)
{
    double devices = (double)row->ranks, instrs = step->forward + step->backward + step->update;
    row->seconds += share * step->seconds;
    row->exchange_seconds += share * step->waits;
    row->measured_share += instrs > 0 ? share * step->measured_s / instrs : 0;
    row->mfu += share * step->product_s; /* of the seconds, once all are there */
    row->energy += share * devices * energy_of(&plan->target, step);
}

static ht_status fill_row(cli_plan_row *row, const cli_plan_view *view, const ht_planned *planned,
                          const ht_prediction *prediction)
{
    const ht_plan *plan = planned->plan;
    int train = ht_plan_program_find(plan, "train"), shapes = planned->bucket_count;
    row->parameters = planned->parameters;
    row->plan_bytes = ht_plan_bytes(plan);
    row->main_bytes = ht_plan_bytes_in(plan, HT_SPACE_MAIN);
    row->bytes = ht_plan_byte_table(plan);
    if (train >= 0) row->flops = ht_plan_program_flops(plan, &plan->programs[train]);
    row->samples = planned->samples;
    row->tokens = view->planned.tokens / view->planned.samples * row->samples;
    row->kernels = !plan->target.no_kernels;
    row->ceilings = ht_target_ceilings(&plan->target);
    row->exchange_unknown = prediction->no_network;
    int64_t own = ht_config_train(view->config)->memory_limit[HT_SPACE_MAIN];
    int64_t limit = own ? own : plan->target.memory_bytes[HT_SPACE_MAIN];
    row->fits = !limit || row->main_bytes <= limit;
    row->fits_unknown = !limit;
    row->bandwidth_unknown = isinf(ht_target_bandwidth(&plan->target, HT_SPACE_MAIN));
    for (int shape = 0; shape < shapes; shape++) {
        ht_step_prediction step = ht_prediction_step(prediction, "train", shape == shapes - 1 ? 0 : shape + 1);
        add_step(row, plan, &step, view->planned.bucket_share[shape]);
    }
    row->mfu /= row->seconds > 0 ? row->seconds : 1;
    /* Batches are made on this machine, which the target is where kernels were measured; a GPU computes meanwhile. */
    double host = view->planned.host_seconds * row->samples / view->planned.samples;
    bool beside = plan->target.device == HT_DEVICE_CUDA;
    if (row->measured_share > 0 && !beside) row->seconds += host;
    if (row->measured_share > 0 && beside && host > row->seconds) row->seconds = host;
    return HT_OK;
}

static ht_status plan_request(const cli_plan_view *view, const ht_config *config, const ht_target *target,
                              ht_planned *planned, ht_prediction *prediction)
{
    ht_run_request wanted = {.config = config, .mode = HT_RUN_NEW, .target = target, .data = view->planned.data};
    HT_TRY(ht_run_planned(planned, view->ctx, &wanted));
    return ht_plan_predict(prediction, planned->plan, "train");
}

ht_status cli_plan_job(cli_plan_view *view)
{
    view->row.ranks = ht_config_train(view->config)->ranks;
    HT_TRY(plan_request(view, view->config, view->target, &view->planned, &view->prediction));
    HT_TRY(ht_plan_memory_timeline(&view->timeline, view->planned.plan, "train"));
    ht_device *gpu;
    bool cuda = !view->target && view->planned.plan->target.device == HT_DEVICE_CUDA;
    view->elsewhere = cuda && ht_device_get(&gpu, view->ctx, view->planned.plan->device) != HT_OK;
    int64_t own = ht_config_train(view->config)->memory_limit[HT_SPACE_MAIN];
    int64_t machine = view->planned.plan->target.memory_bytes[HT_SPACE_MAIN];
    view->limit = own ? own : machine;
    view->limit_name = own ? "halftone.memory_limit" : "the memory of the target";
    return fill_row(&view->row, view, &view->planned, &view->prediction);
}

void cli_plan_view_free(cli_plan_view *view)
{
    ht_prediction_free(&view->prediction);
    ht_memory_timeline_free(&view->timeline);
    ht_planned_free(&view->planned);
}

/* ---- changed jobs ---- */

/* A change: settings behind those of the job, ranks (0: the job's), a target (NULL: the job's). */
typedef struct variant {
    cli_sweep_entry sets;
    int64_t ranks;
    const ht_target *target;
} variant;

static void free_variant(variant *v)
{
    for (size_t i = 0; i < v->sets.set_count; i++) free(v->sets.sets[i]);
    *v = (variant){.ranks = 0};
}

/* The first problem of a config that was refused. */
static void copy_problem(char *to, size_t size, const ht_config *config)
{
    const ht_problems *problems = ht_config_problems(config);
    for (size_t i = 0; i < problems->count; i++)
        if (problems->list[i].is_error) {
            snprintf(to, size, "%s", problems->list[i].text);
            return;
        }
}

/* Plans it; what goes wrong is told in the row. */
static void plan_variant(const cli_plan_view *view, const variant *v, cli_plan_row *row)
{
    const char *sets[CLI_MOST_SETS + CLI_SWEEP_SETS];
    ht_config_request request = *view->request;
    ht_config *config = NULL;
    ht_planned planned = {0};
    ht_prediction prediction = {0};
    const ht_log_fn log = view->ctx->log;
    memcpy(sets, request.sets, request.set_count * sizeof *sets);
    for (size_t i = 0; i < v->sets.set_count; i++) sets[request.set_count++] = v->sets.sets[i];
    request.sets = sets;
    if (v->ranks > 0) request.ranks = v->ranks;
    row->ranks = request.ranks > 0 ? request.ranks : 1;
    view->ctx->log = NULL; /* nobody asked for this plan */
    if (ht_config_read(&config, view->ctx, &request) != HT_OK) {
        if (config) copy_problem(row->refused, sizeof row->refused, config);
        if (!row->refused[0]) snprintf(row->refused, sizeof row->refused, "%s", ht_context_message(view->ctx));
    } else if (plan_request(view, config, v->target ? v->target : view->target, &planned, &prediction) != HT_OK ||
               fill_row(row, view, &planned, &prediction) != HT_OK) {
        snprintf(row->refused, sizeof row->refused, "%s", ht_context_message(view->ctx));
    }
    view->ctx->log = log;
    ht_prediction_free(&prediction);
    ht_planned_free(&planned);
    ht_config_free(config);
}

static cli_plan_row *add_row(cli_plan_rows *rows, const char *kind)
{
    if (rows->count == CLI_MOST_PLAN_ROWS) return NULL;
    cli_plan_row *row = &rows->list[rows->count++];
    *row = (cli_plan_row){.ranks = 1};
    snprintf(row->kind, sizeof row->kind, "%s", kind);
    return row;
}

/* A row of one setting, named by its value. */
static void try_set(cli_plan_view *view, cli_plan_rows *rows, const char *kind, const char *name, const char *set)
{
    variant v = {.ranks = 0};
    cli_plan_row *row = add_row(rows, kind);
    if (!row) return;
    snprintf(row->name, sizeof row->name, "%s", name);
    if (cli_sweep_entry_set(&v.sets, "%s", set))
        plan_variant(view, &v, row);
    else
        snprintf(row->refused, sizeof row->refused, "out of memory");
    free_variant(&v);
}

static void try_precisions(cli_plan_view *view)
{
    static const char *const names[] = {"fp32", "bf16", "fp16"};
    const char *own = ht_config_train(view->config)->precision;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        variant v = {.ranks = 0};
        cli_plan_row *row = strcmp(own, names[i]) == 0 ? NULL : add_row(&view->what_if, "precision");
        if (!row) continue;
        snprintf(row->name, sizeof row->name, "%s", names[i]);
        if (cli_sweep_entry_precision(&v.sets, view->config, names[i], NULL)) plan_variant(view, &v, row);
        free_variant(&v);
    }
}

/* Products of f8 beside bf16, where the device has them. */
static void try_fp8(cli_plan_view *view)
{
    variant v = {.ranks = 0};
    const ht_target *target = &view->planned.plan->target;
    bool has =
        target->device == HT_DEVICE_CUDA && ht_target_flops(target, HT_F8E4M3) > ht_target_flops(target, HT_BF16);
    cli_plan_row *row = has ? add_row(&view->what_if, "precision") : NULL;
    if (!row) return;
    snprintf(row->name, sizeof row->name, "bf16, fp8");
    if (cli_sweep_entry_precision(&v.sets, view->config, "bf16", NULL) &&
        cli_sweep_entry_set(&v.sets, "halftone.fp8.recipe=delayed"))
        plan_variant(view, &v, row);
    free_variant(&v);
}

/* The batch of a step, against whatever an engine config says of it; micro-batches follow. */
static bool set_batch(variant *v, const cli_plan_view *view, int64_t batch)
{
    if (!cli_sweep_entry_set(&v->sets, "train.batch=%" PRId64, batch)) return false;
    if (!ht_config_has_engine(view->config)) return true;
    return cli_sweep_entry_set(&v->sets, "engine.train_batch_size=%" PRId64, batch);
}

static void try_batch(cli_plan_view *view, cli_plan_rows *rows, int64_t batch, cli_plan_row *row)
{
    variant v = {.ranks = 0};
    if (!row) row = add_row(rows, "batch");
    if (!row || batch < 1) return;
    snprintf(row->name, sizeof row->name, "%" PRId64, batch);
    if (set_batch(&v, view, batch)) plan_variant(view, &v, row);
    free_variant(&v);
}

static void try_recompute(cli_plan_view *view)
{
    static const char *const names[] = {"none", "cheap", "selective", "all"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char set[64];
        snprintf(set, sizeof set, "halftone.recompute.policy=%s", names[i]);
        try_set(view, &view->what_if, "recompute", names[i], set);
    }
}

/* An engine config would clip by default. */
static bool keep_clip(variant *v, const cli_plan_view *view)
{
    return cli_sweep_entry_set(&v->sets, "train.clip=%.17g", ht_config_train(view->config)->clip);
}

static void try_offload(cli_plan_view *view)
{
    static const struct {
        const char *name, *set;
        bool engine, disk;
    } ways[] = {
        {"optimizer to cpu", "engine.zero_optimization.offload_optimizer.device=cpu", true, false},
        {"optimizer to nvme", "engine.zero_optimization.offload_optimizer.device=nvme", true, true},
        {"params to cpu", "engine.zero_optimization.offload_param.device=cpu", true, false},
        {"gradients to cpu", "halftone.offload_gradients=host", false, false},
    };
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        variant v = {.ranks = 0};
        cli_plan_row *row = add_row(&view->what_if, "offload");
        if (!row) return;
        snprintf(row->name, sizeof row->name, "%s", ways[i].name);
        if ((!ways[i].engine || keep_clip(&v, view)) && cli_sweep_entry_set(&v.sets, "%s", ways[i].set) &&
            (!ways[i].disk || cli_sweep_entry_set(&v.sets, "halftone.disk_folder=.")))
            plan_variant(view, &v, row);
        free_variant(&v);
    }
}

/* The batch of the step stays. */
static void try_ranks(cli_plan_view *view, int64_t ranks, int stage)
{
    variant v = {.ranks = ranks};
    cli_plan_row *row = add_row(&view->what_if, "ranks");
    if (!row) return;
    snprintf(row->name, sizeof row->name, "%" PRId64 ", ZeRO %d", ranks, stage);
    if (keep_clip(&v, view) && cli_sweep_entry_set(&v.sets, "engine.zero_optimization.stage=%d", stage))
        plan_variant(view, &v, row);
    free_variant(&v);
}

void cli_plan_what_if(cli_plan_view *view)
{
    int64_t batch = ht_config_train(view->config)->batch, ranks = view->row.ranks > 1 ? view->row.ranks : 2;
    try_precisions(view);
    try_fp8(view);
    if (batch > 1) try_batch(view, &view->what_if, batch / 2, NULL);
    try_batch(view, &view->what_if, 2 * batch, NULL);
    try_batch(view, &view->what_if, 4 * batch, NULL);
    try_recompute(view);
    try_offload(view);
    for (int stage = 0; stage < 4; stage++) try_ranks(view, ranks, stage);
    try_ranks(view, 2 * ranks, 1);
    try_ranks(view, 4 * ranks, 1);
}

/* Memory against time: less and less of what forward makes is kept. */
void cli_plan_budgets(cli_plan_view *view)
{
    static const char *const shares[] = {"80%", "60%", "40%", "20%"};
    try_set(view, &view->budgets, "budget", "all", "halftone.recompute.policy=none");
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        char set[64];
        snprintf(set, sizeof set, "halftone.recompute.budget=\"%s\"", shares[i]);
        try_set(view, &view->budgets, "budget", shares[i], set);
    }
}

void cli_plan_compare(cli_plan_view *view, const ht_target *targets, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const ht_target *t = &targets[i];
        int64_t devices = (t->devices > 1 ? t->devices : 1) * (t->nodes > 1 ? t->nodes : 1);
        variant v = {.target = t, .ranks = devices};
        cli_plan_row *row = add_row(&view->targets, "target");
        if (!row) return;
        snprintf(row->name, sizeof row->name, "%s", names[i]);
        /* Each device has the job's batch. */
        if (devices == 1 || set_batch(&v, view, devices * ht_config_train(view->config)->batch))
            plan_variant(view, &v, row);
        free_variant(&v);
    }
}

/* ---- the most that fits ---- */

typedef struct search {
    cli_plan_view *view;
    const char *key; /* "train.batch", "model.n_layer" */
    int64_t unit, most;
} search;

/* Bytes in main with so much of it; INT64_MAX: it cannot be planned. */
static int64_t bytes_at(const search *s, int64_t value)
{
    variant v = {.ranks = 0};
    cli_plan_row row = {.ranks = 1};
    bool ok = strcmp(s->key, "train.batch") == 0 ? set_batch(&v, s->view, value)
                                                 : cli_sweep_entry_set(&v.sets, "%s=%" PRId64, s->key, value);
    if (ok) plan_variant(s->view, &v, &row);
    free_variant(&v);
    return ok && !row.refused[0] ? row.main_bytes : INT64_MAX;
}

static int64_t rounded(const search *s, double value)
{
    int64_t most = s->most / s->unit;
    double units = floor(value / (double)s->unit);
    if (units < 1) units = 1;
    return (units > (double)most ? most : (int64_t)units) * s->unit;
}

/* Bytes are nearly a straight line, so a guess by the last two plans is soon right; plans that are refused have none, and
 * where they begin is found by halves. */
static void find_most(const search *s, int64_t value, int64_t bytes, cli_most *out)
{
    enum { MOST_PLANS = 24 };
    int64_t limit = s->view->limit, fits = 0, fit_bytes = 0, breaks = 0, break_bytes = 0;
    int64_t other = value, other_bytes = bytes;
    *out = (cli_most){.key = s->key};
    for (int i = 0; i < MOST_PLANS; i++) {
        if (bytes <= limit)
            fits = value, fit_bytes = bytes;
        else
            breaks = value, break_bytes = bytes;
        if ((breaks && breaks - fits <= s->unit) || fits >= s->most / s->unit * s->unit) break;
        double slope = other != value ? (double)(bytes - other_bytes) / (double)(value - other) : 0;
        double guess = slope > 0 && bytes < INT64_MAX ? (double)value + (double)(limit - bytes) / slope
                       : breaks                       ? (double)(fits + breaks) / 2
                                                      : 2.0 * (double)value;
        int64_t next = rounded(s, guess);
        if (breaks && next >= breaks)
            next = break_bytes < INT64_MAX ? breaks - s->unit : rounded(s, (double)(fits + breaks) / 2);
        if (next <= fits) next = fits + s->unit;
        if (bytes < INT64_MAX) other = value, other_bytes = bytes;
        value = next;
        bytes = bytes_at(s, value);
    }
    out->value = fits;
    out->bytes = fit_bytes;
    out->next_refused = breaks && breaks - fits <= s->unit && break_bytes == INT64_MAX;
    out->next_bytes = breaks && breaks - fits <= s->unit && break_bytes < INT64_MAX ? break_bytes : 0;
}

/* The model's key for the number of its layers; NULL: it has none. */
static const char *layer_key(const ht_config *config)
{
    static const char *const keys[][2] = {
        {"n_layer", "model.n_layer"}, {"num_hidden_layers", "model.num_hidden_layers"}, {"layers", "model.layers"}};
    const ht_fields *model = ht_config_block(config, "model");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        const ht_field *field = ht_fields_find(model, keys[i][0]);
        if (field && field->key->kind == HT_KEY_INT) return keys[i][1];
    }
    return NULL;
}

void cli_plan_most(cli_plan_view *view)
{
    enum { MOST_BATCH = 1 << 20, MOST_LAYERS = 96 }; /* planning takes the longer the more layers there are */
    const ht_train_config *c = ht_config_train(view->config);
    if (view->limit <= 0) return;
    search batch = {view, "train.batch", c->accumulate * c->data_ranks, MOST_BATCH};
    find_most(&batch, c->batch, view->row.main_bytes, &view->batch);
    const char *key = layer_key(view->config);
    const ht_field *field = key ? ht_fields_find(ht_config_block(view->config, "model"), strchr(key, '.') + 1) : NULL;
    if (!field) return;
    search layers = {view, key, 1, field->key->high < MOST_LAYERS ? (int64_t)field->key->high : MOST_LAYERS};
    find_most(&layers, ht_field_int(ht_config_block(view->config, "model"), field->name), view->row.main_bytes,
              &view->layers);
}
