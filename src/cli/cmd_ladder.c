/* halftone ladder: one job, one technique more in each row. */
#include "cli/sweep.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FOLDER = 3000, MOST_STEPS = 1000 };

/* A rung: what it adds to the one before. */
typedef struct rung {
    const char *name;
    bool half;       /* from here on in half precision */
    const char *set; /* a key and its value; NULL: none. Of one key the last counts. */
    bool disk;       /* the optimiser's state lies on a disk, in the ladder's folder */
    int stage;       /* of ZeRO, from 1 on: one more than the stage, on several ranks; 0: on one */
} rung;

static const rung rungs[] = {
    {.name = "baseline"}, /* fp32, each node a kernel of its own */
    {.name = "+ fusion"},
    {.name = "+ half", .half = true},
    {.name = "+ recompute cheap", .half = true, .set = "halftone.recompute.policy=cheap"},
    {.name = "+ recompute selective", .half = true, .set = "halftone.recompute.policy=selective"},
    {.name = "+ recompute all", .half = true, .set = "halftone.recompute.policy=all"},
    {.name = "+ optimiser on disk", .half = true, .disk = true},
    {.name = "ranks, ZeRO 0", .half = true, .stage = 1},
    {.name = "ranks, ZeRO 1", .half = true, .stage = 2},
    {.name = "ranks, ZeRO 2", .half = true, .stage = 3},
    {.name = "ranks, ZeRO 3", .half = true, .stage = 4},
};
enum { RUNGS = sizeof rungs / sizeof rungs[0] };

typedef struct ladder {
    cli_job job_options;
    int64_t steps, ranks;
    const char *output;
    bool json;
    /* while it runs */
    cli_sweep sweep;
    ht_config *base;
    ht_cost cost[RUNGS];          /* of a step */
    int64_t moved_bytes[RUNGS];   /* of a step, between memories */
    int64_t machine_bytes[RUNGS]; /* of the plan, in main */
    ht_series timeline[RUNGS];    /* of the first micro-batch: megabytes alive, by share of its instructions */
} ladder;

/* ---- runs ---- */

/* The job's own half precision, or bf16. */
static const char *half_of(const ladder *l)
{
    const char *own = ht_config_train(l->base)->precision;
    return strcmp(own, "fp16") == 0 ? "fp16" : "bf16";
}

static bool fill_entry(const ladder *l, cli_sweep_entry *t, size_t at)
{
    static const char *const fixed[] = {"train.eval_every=0", "train.eval_batches=1", "train.snapshot_every=0",
                                        "train.log_every=1"};
    bool ok = cli_sweep_entry_precision(t, l->base, rungs[at].half ? half_of(l) : "fp32", NULL);
    ok = ok && cli_sweep_entry_set(t, "train.steps=%" PRId64, l->steps) && cli_sweep_entry_set(t, "train.epochs=null");
    for (size_t i = 0; i < sizeof fixed / sizeof fixed[0]; i++) ok = ok && cli_sweep_entry_set(t, "%s", fixed[i]);
    ok = ok && cli_sweep_entry_set(t, "halftone.recompute.policy=none");
    for (size_t i = 0; i <= at && ok; i++)
        if (rungs[i].set) ok = cli_sweep_entry_set(t, "%s", rungs[i].set);
    /* The engine's config would clip by default. */
    ok = ok && cli_sweep_entry_set(t, "train.clip=%.17g", ht_config_train(l->base)->clip);
    if (ok && rungs[at].disk)
        ok = cli_sweep_entry_set(t, "engine.zero_optimization.offload_optimizer.device=nvme") &&
             cli_sweep_entry_set(t, "halftone.disk_folder=%s", l->output);
    if (ok && rungs[at].stage)
        ok = cli_sweep_entry_set(t, "engine.zero_optimization.stage=%d", rungs[at].stage - 1) &&
             cli_sweep_entry_set(t, "engine.zero_optimization.stage3_param_persistence_threshold=0");
    t->no_fusion = at == 0;
    t->ranks = rungs[at].stage ? l->ranks : 0;
    return ok;
}

/* Can the ranks share the job's batch? Else their rows are left out. */
static bool can_share(const ladder *l)
{
    ht_config_request request = l->job_options.request;
    ht_config *config;
    request.ranks = l->ranks;
    bool can = l->ranks > 1 && ht_config_read(&config, l->sweep.ctx, &request) == HT_OK;
    if (l->ranks > 1) ht_config_free(config);
    if (l->ranks > 1 && !can)
        fprintf(stderr, "halftone: %" PRId64 " ranks cannot share the batch of this job: without them\n", l->ranks);
    return can;
}

static int add_entries(ladder *l)
{
    bool shares = can_share(l);
    for (size_t at = 0; at < RUNGS && (shares || !rungs[at].stage); at++) {
        char folder[MOST_FOLDER + 32], name[64];
        snprintf(folder, sizeof folder, "%s/%zu", l->output, at);
        if (rungs[at].stage)
            snprintf(name, sizeof name, "%" PRId64 " %s", l->ranks, rungs[at].name);
        else
            snprintf(name, sizeof name, "%s", rungs[at].name);
        cli_sweep_entry *t = cli_sweep_add(&l->sweep, name, folder, name);
        if (!t || !fill_entry(l, t, at)) return cli_fail(CLI_FAILED, "ladder: out of memory");
    }
    return CLI_DONE;
}

static bool keep_timeline(ladder *l, size_t at, const ht_plan *plan)
{
    int found = ht_plan_segment_find(plan, "micro_first");
    const ht_plan_segment *s = &plan->segments[found < 0 ? 0 : found];
    double *x = malloc((s->instr_count + 1) * sizeof *x), *y = malloc((s->instr_count + 1) * sizeof *y);
    l->timeline[at] = (ht_series){.name = l->sweep.list[at].name, .count = s->instr_count, .x = x, .y = y};
    for (size_t i = 0; x && y && i < s->instr_count; i++) {
        x[i] = 100 * (double)i / (double)s->instr_count;
        y[i] = (double)s->timeline[i] / 1e6;
    }
    return x && y;
}

/* What a step costs, from its plan. */
static int look_at_plans(ladder *l)
{
    for (size_t at = 0; at < l->sweep.count; at++) {
        const cli_sweep_entry *t = &l->sweep.list[at];
        ht_run_request request = {.config = t->config, .folder = t->folder, .no_fusion = t->no_fusion};
        ht_plan *plan;
        ht_status status = ht_run_plan(&plan, l->sweep.ctx, &request);
        if (status != HT_OK)
            return cli_fail(cli_end_of(status), "ladder: %s: %s", t->name, ht_context_message(l->sweep.ctx));
        const ht_plan_program *program = &plan->programs[ht_plan_program_find(plan, "train")];
        l->cost[at] = ht_plan_program_cost(plan, program);
        l->moved_bytes[at] = ht_plan_program_moved(plan, program);
        l->machine_bytes[at] = ht_plan_bytes_in(plan, HT_SPACE_MAIN);
        bool ok = keep_timeline(l, at, plan);
        ht_plan_free(plan);
        if (!ok) return cli_fail(CLI_FAILED, "ladder: out of memory");
    }
    return CLI_DONE;
}

static ht_status on_end(void *arg, cli_sweep_entry *t, ht_run *run)
{
    const ladder *l = arg;
    (void)run;
    fprintf(stderr, "halftone: %zu of %zu, %s: %zu steps in %.1f seconds\n", (size_t)(t - l->sweep.list) + 1,
            l->sweep.count, t->name, t->made, t->seconds);
    return HT_OK;
}

/* ---- results ---- */

static void fill_table(ht_table *table, const ladder *l)
{
    static const char *const heads[] = {"", "MB in main", "MB in all", "step_ms", "MB moved", "GFLOP again", "loss"};
    for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
        ht_table_head(table, heads[i]);
        table->right[i] = i > 0;
    }
    for (size_t at = 0; at < l->sweep.count; at++) {
        const cli_sweep_entry *t = &l->sweep.list[at];
        ht_table_cell(table, "%s", t->name);
        ht_table_cell(table, "%.1f", (double)l->machine_bytes[at] / 1e6);
        ht_table_cell(table, "%.1f", (double)t->plan_bytes / 1e6);
        ht_table_cell(table, "%.1f", t->median_ms);
        ht_table_cell(table, "%.1f", (double)l->moved_bytes[at] / 1e6);
        ht_table_cell(table, "%.3g", l->cost[at].recomputed_flops / 1e9);
        ht_table_cell(table, "%.6f", t->made ? t->loss[t->made - 1] : 0);
    }
}

static ht_status write_page(const ladder *l, const char *path)
{
    ht_report *report;
    ht_table table = {.count = 0};
    const ht_chart chart = {.title = "Memory over a step",
                            .x_label = "instructions of forward and backward, percent",
                            .y_label = "MB of activations and workspaces alive",
                            .series = l->timeline,
                            .series_count = l->sweep.count};
    HT_TRY(ht_report_create(&report, l->sweep.ctx, "The ladder: one technique more in each row"));
    fill_table(&table, l);
    ht_table_report(report, &table, "What each technique did");
    ht_report_chart(report, &chart);
    ht_status status =
        table.failed ? ht_fail(l->sweep.ctx, HT_ENOMEM, "out of memory for a page") : ht_report_write(report, path);
    ht_table_free(&table);
    ht_report_free(report);
    return status;
}

static int print_table(const ladder *l, const char *page)
{
    ht_text text = {0};
    ht_table table = {.count = 0};
    fill_table(&table, l);
    ht_table_print(&text, &table, cli_columns());
    ht_text_add(&text, "\nMemory over a step as a page: %s\n", page);
    ht_table_free(&table);
    return cli_show(&text);
}

static int print_json(const ladder *l, const char *page)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "job", l->job_options.request.path);
    ht_json_put_text(&json, "page", page);
    ht_json_line(&json, 1);
    ht_json_begin_array(&json, "rows");
    for (size_t at = 0; at < l->sweep.count; at++) {
        const cli_sweep_entry *t = &l->sweep.list[at];
        ht_json_line(&json, 2);
        ht_json_begin_object(&json, NULL);
        ht_json_put_text(&json, "name", t->name);
        ht_json_put_int(&json, "plan_bytes", t->plan_bytes);
        ht_json_put_int(&json, "main_bytes", l->machine_bytes[at]);
        ht_json_put_number(&json, "step_ms", t->median_ms);
        ht_json_put_int(&json, "bytes_moved", l->moved_bytes[at]);
        ht_json_put_number(&json, "recomputed_flops", l->cost[at].recomputed_flops);
        ht_json_put_number(&json, "loss", t->made ? t->loss[t->made - 1] : 0);
        ht_json_end_object(&json);
    }
    ht_json_end_array(&json);
    ht_json_end_object(&json);
    ht_text_add(&text, "\n");
    return cli_put(&text);
}

/* ---- the command ---- */

static int climb(ladder *l)
{
    char page[MOST_FOLDER + 16];
    l->sweep.command = "ladder";
    l->sweep.job = &l->job_options;
    l->sweep.arg = l;
    l->sweep.on_end = on_end;
    l->job_options.request.training = true;
    ht_status status = ht_config_read(&l->base, l->sweep.ctx, &l->job_options.request);
    if (!l->base) return cli_fail(CLI_FAILED, "ladder: %s", ht_context_message(l->sweep.ctx));
    if (status != HT_OK) {
        cli_print_problems(ht_config_problems(l->base));
        return CLI_WRONG;
    }
    int end = add_entries(l);
    if (end == CLI_DONE) end = cli_sweep_read(&l->sweep);
    if (end == CLI_DONE) end = look_at_plans(l);
    if (end == CLI_DONE) end = cli_sweep_run(&l->sweep);
    if (end != CLI_DONE) return end;
    snprintf(page, sizeof page, "%s/ladder.html", l->output);
    if (write_page(l, page) != HT_OK) return cli_fail(CLI_FAILED, "ladder: %s", ht_context_message(l->sweep.ctx));
    return l->json ? print_json(l, page) : print_table(l, page);
}

static int run_ladder(void *arg)
{
    ladder *l = arg;
    cli_job_start(&l->job_options);
    int end = cli_context(&l->sweep.ctx);
    if (end != CLI_DONE) return end;
    end = climb(l);
    cli_sweep_free(&l->sweep);
    for (size_t at = 0; at < RUNGS; at++) {
        free((void *)l->timeline[at].x);
        free((void *)l->timeline[at].y);
    }
    ht_config_free(l->base);
    ht_context_free(l->sweep.ctx);
    return end;
}

static const cli_option options[] = {
    {.kind = CLI_GROUP, .offset = offsetof(ladder, job_options), .group = cli_job_rows},
    {"--steps", "N", CLI_WHOLE, offsetof(ladder, steps), .help = "of each run", .least = 1, .most = MOST_STEPS,
     .standard = "5"},
    {"--output", "FOLDER", CLI_TEXT, offsetof(ladder, output), .help = "folder of the runs, which are replaced",
     .flags = CLI_FILLED, .letter = 'o', .takes = "a folder", .most = MOST_FOLDER, .standard = "ladder"},
    {"--ranks", "N", CLI_WHOLE, offsetof(ladder, ranks),
     .help = "of the rows that share the batch among ranks, as threads of this process, in each of ZeRO's stages; 1: "
             "without them",
     .least = 1, .most = 64, .standard = "2"},
    {"--json", NULL, CLI_FLAG, offsetof(ladder, json),
     .help =
         "one object: {\"job\", \"rows\": [{\"name\", \"plan_bytes\", \"main_bytes\", \"step_ms\", \"bytes_moved\", "
         "\"recomputed_flops\", \"loss\"}]}; bytes moved between memories and FLOPs are those of a step"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone ladder job.json", "what each technique does to memory and time"},
    {"halftone ladder job.json --steps 20 --json", "longer, for a program"},
    {0},
};

const cli_command cmd_ladder = {
    .name = "ladder",
    .summary = "a job with one technique more in each row: memory, time, bytes moved, loss",
    .description =
        "Trains a few steps of a job again and again, with one technique of the system more each time, and prints what "
        "it did to the memory of the plan, the time of a step (the median), the bytes that a step moves between "
        "memories, the arithmetic that is done again, and the loss: first in fp32 with a kernel for every node, then "
        "with fusion, in half precision (the job's, or bf16), with recomputation by policy (cheap, selective, all: "
        "docs/memory.md), and with the optimiser's state on a disk, in the output folder (docs/offload.md). Last come "
        "rows of several ranks (docs/parallel.md), with all of this but the disk, in ZeRO's stages: memory is that of "
        "each "
        "rank, which cuts every tensor in stage 3. Rows of one rank below fusion that share a number type have the "
        "same "
        "loss, bit for bit: these techniques trade time and memory, not results; ranks sum in another order.",
    .options = options,
    .size = sizeof(ladder),
    .run = run_ladder,
    .alone = true,
    .examples = examples,
    .see_also = "compare explain train",
};
