#include "cli/sweep.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/train_ranks.h"

/* ---- the list ---- */

cli_sweep_entry *cli_sweep_add(cli_sweep *sweep, const char *name, const char *folder, const char *group)
{
    if (!ht_grow((void **)&sweep->list, &sweep->capacity, sweep->count + 1, sizeof *sweep->list)) return NULL;
    cli_sweep_entry *t = &sweep->list[sweep->count];
    *t = (cli_sweep_entry){.name = strdup(name), .folder = strdup(folder), .group = strdup(group)};
    sweep->count++;
    return t->name && t->folder && t->group ? t : NULL;
}

bool cli_sweep_entry_set(cli_sweep_entry *entry, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    int length = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (entry->set_count == CLI_SWEEP_SETS || length < 0 || length >= (int)sizeof text) return false;
    char *copy = strdup(text);
    if (copy) entry->sets[entry->set_count++] = copy;
    return copy != NULL;
}

static bool is_given(const ht_config *config, const char *key)
{
    const ht_field *field = ht_fields_find(ht_config_block(config, "engine"), key);
    return field &&
           (field->origin.source == HT_SOURCE_FILE || field->origin.source == HT_SOURCE_COMMAND || field->is_auto);
}

/* An engine config that asks for a precision would contradict train.precision: it is told the same. */
bool cli_sweep_entry_precision(cli_sweep_entry *entry, const ht_config *base, const char *precision,
                               const char *loss_scale)
{
    static const char *const ways[][2] = {
        {"fp16.enabled", "fp16"}, {"bf16.enabled", "bf16"}, {"amp.enabled", ""}, {"torch_autocast.enabled", ""}};
    bool ok = cli_sweep_entry_set(entry, "train.precision=%s", precision);
    for (size_t i = 0; i < sizeof ways / sizeof ways[0] && ok && ht_config_has_engine(base); i++)
        if (is_given(base, ways[i][0]))
            ok = cli_sweep_entry_set(entry, "engine.%s=%s", ways[i][0],
                                     strcmp(ways[i][1], precision) == 0 ? "true" : "false");
    if (!ok || !loss_scale) return ok;
    if (ht_config_has_engine(base) && is_given(base, "fp16.loss_scale"))
        ok = cli_sweep_entry_set(entry, "engine.fp16.loss_scale=%s",
                                 strcmp(loss_scale, "dynamic") == 0 ? "0"
                                 : strcmp(loss_scale, "none") == 0  ? "1"
                                                                    : loss_scale);
    return ok && cli_sweep_entry_set(entry, "train.loss_scale=%s", loss_scale);
}

void cli_sweep_free(cli_sweep *sweep)
{
    for (size_t i = 0; i < sweep->count; i++) {
        cli_sweep_entry *t = &sweep->list[i];
        double *arrays[] = {t->loss, t->scale, t->step_ms, t->rate, t->eval_step, t->eval_loss};
        for (size_t k = 0; k < sizeof arrays / sizeof arrays[0]; k++) free(arrays[k]);
        for (size_t k = 0; k < t->set_count; k++) free(t->sets[k]);
        ht_config_free(t->config);
        free(t->name);
        free(t->folder);
        free(t->group);
    }
    free(sweep->list);
    sweep->list = NULL;
    sweep->count = sweep->capacity = 0;
}

/* ---- numbers ---- */

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts the values. */
static double median(double *values, size_t count)
{
    if (count == 0) return NAN;
    qsort(values, count, sizeof *values, by_size);
    return (values[(count - 1) / 2] + values[count / 2]) / 2;
}

static void sum_up(cli_sweep_entry *t)
{
    size_t tail = t->made < 10 ? t->made > 0 : t->made / 10;
    t->mean_loss = ht_sample_mean(t->loss, t->made);
    t->final_loss = ht_sample_mean(t->loss + t->made - tail, tail);
    bool tokens = t->task != HT_TASK_CLASS && t->task != HT_TASK_REGRESSION;
    t->perplexity = NAN;
    if (tokens && t->last_eval.count > 0) t->perplexity = t->last_eval.perplexity;
    if (tokens && t->last_eval.count == 0 && !t->error[0]) t->perplexity = exp(t->final_loss);
    t->median_ms = median(t->step_ms, t->made);
    t->median_rate = median(t->rate, t->made);
}

/* ---- reading ---- */

static int read_one(cli_sweep *sweep, cli_sweep_entry *t, bool first)
{
    const cli_job *job = sweep->job;
    const char *sets[CLI_MOST_SETS + CLI_SWEEP_SETS];
    ht_config_request request = job->request;
    memcpy(sets, job->sets, job->request.set_count * sizeof *sets);
    for (size_t i = 0; i < t->set_count; i++) sets[request.set_count++] = t->sets[i];
    request.sets = sets;
    request.training = true;
    if (t->ranks > 1) request.ranks = t->ranks;
    ht_status status = ht_config_read(&t->config, sweep->ctx, &request);
    if (!t->config) return cli_fail(CLI_FAILED, "%s: %s", sweep->command, ht_context_message(sweep->ctx));
    if (first || status != HT_OK) cli_print_problems(ht_config_problems(t->config));
    if (status != HT_OK) return CLI_WRONG;
    if (!ht_config_has_job(t->config))
        return cli_fail(CLI_WRONG, "%s: %s is DeepSpeed's config alone: training needs a job file with model and data",
                        sweep->command, job->request.path);
    t->train_config = ht_config_train(t->config);
    return CLI_DONE;
}

int cli_sweep_read(cli_sweep *sweep)
{
    int end = CLI_DONE;
    for (size_t i = 0; i < sweep->count && end == CLI_DONE; i++) end = read_one(sweep, &sweep->list[i], i == 0);
    return end;
}

/* ---- running ---- */

typedef struct execute_run {
    cli_sweep *sweep;
    cli_sweep_entry *entry;
    bool failed; /* memory ran out */
} execute_run;

static void on_step(void *arg, const ht_step_report *r)
{
    execute_run *run = arg;
    cli_sweep_entry *t = run->entry;
    if (t->made < t->capacity) {
        t->loss[t->made] = r->loss;
        t->scale[t->made] = r->loss_scale;
        t->step_ms[t->made] = r->step_ms;
        t->rate[t->made++] = r->tokens_per_second;
    }
    t->skipped = r->skips;
    if (run->sweep->on_step) run->sweep->on_step(run->sweep->arg, t, r);
}

static void on_eval(void *arg, const ht_eval_report *r)
{
    execute_run *run = arg;
    cli_sweep_entry *t = run->entry;
    t->last_eval = *r;
    if (!ht_grow((void **)&t->eval_step, &t->eval_capacity[0], t->evals + 1, sizeof *t->eval_step) ||
        !ht_grow((void **)&t->eval_loss, &t->eval_capacity[1], t->evals + 1, sizeof *t->eval_loss)) {
        run->failed = true;
        return;
    }
    t->eval_step[t->evals] = (double)r->step;
    t->eval_loss[t->evals++] = r->loss;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static bool take_info(cli_sweep_entry *t, const ht_run_info *info)
{
    double **const arrays[] = {&t->loss, &t->scale, &t->step_ms, &t->rate};
    t->task = info->task;
    t->parameters = info->parameters;
    t->plan_bytes = info->plan_bytes;
    t->bytes = info->bytes;
    t->capacity = (size_t)info->steps;
    bool ok = true;
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        ok = (*arrays[i] = calloc(t->capacity + 1, sizeof **arrays[i])) != NULL && ok;
    return ok;
}

/* Gradients that stay no numbers are what an experiment may show. */
static ht_status train(execute_run *r, ht_context *ctx, ht_run *run)
{
    bool stopped;
    double start = now();
    ht_status status = ht_run_train(run, &stopped);
    r->entry->seconds = now() - start;
    if (status == HT_ENOTSUP && r->entry->made > 0) {
        snprintf(r->entry->error, sizeof r->entry->error, "%s", ht_context_message(ctx));
        status = HT_OK;
    }
    if (status == HT_OK && r->failed) status = ht_fail(ctx, HT_ENOMEM, "out of memory for a run");
    return status;
}

/* The run as the first rank, or the only one, sees it. */
static ht_status lead(execute_run *r, ht_context *ctx, ht_run *run)
{
    cli_sweep *sweep = r->sweep;
    ht_run_info info = ht_run_info_of(run);
    if (!take_info(r->entry, &info)) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a run");
    if (sweep->on_start) sweep->on_start(sweep->arg, r->entry, run);
    HT_TRY(train(r, ctx, run));
    sum_up(r->entry);
    return sweep->on_end ? sweep->on_end(sweep->arg, r->entry, run) : HT_OK;
}

/* A rank of the run. */
static void execute(void *arg, ht_context *ctx, ht_comm *world, int local, cli_rank_end *out)
{
    execute_run *r = arg;
    bool output_failed = false, leads = !world || ht_comm_rank(world) == 0, stopped;
    ht_run *run;
    ht_run_request request = {.config = r->entry->config,
                              .output_failed = &output_failed,
                              .mode = HT_RUN_FORCE,
                              .folder = r->entry->folder,
                              .numerics = r->entry->numerics,
                              .no_fusion = r->entry->no_fusion,
                              .comm = world,
                              .local_ranks = local,
                              .arg = r,
                              .on_step = leads ? on_step : NULL,
                              .on_eval = leads ? on_eval : NULL};
    ht_status status = ht_run_open(&run, ctx, &request);
    /* As in halftone train: before the first step a file that cannot be read is wrong input. */
    out->end = status == HT_EIO && !output_failed ? CLI_WRONG : cli_end_of(status);
    if (status == HT_OK) {
        status = leads ? lead(r, ctx, run) : ht_run_train(run, &stopped);
        ht_status closed = ht_run_close(run);
        if (status == HT_OK) status = closed;
        out->end = cli_end_of(status);
    }
    out->by_others = status == HT_ERANK;
    if (status != HT_OK)
        snprintf(out->reason, sizeof out->reason, "%s: %.900s", r->entry->name, ht_context_message(ctx));
}

static int run_one(cli_sweep *sweep, cli_sweep_entry *t)
{
    execute_run r = {.sweep = sweep, .entry = t};
    return cli_ranks_run(sweep->ctx, sweep->command, &(ht_launcher){.size = 1}, t->ranks > 1 ? t->ranks : 1, CLI_DONE,
                         execute, &r);
}

int cli_sweep_run(cli_sweep *sweep)
{
    int end = CLI_DONE;
    for (size_t i = 0; i < sweep->count && end == CLI_DONE; i++) end = run_one(sweep, &sweep->list[i]);
    return end;
}
