/* halftone profile: where the time of a training step goes. */
#include "cli/job_options.h"
#include "cli/profile_infer.h"
#include "cli/profile_view.h"
#include "cli/temporary_folder.h"
#include "cli/train_ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Two steps: the second finds memory touched and prepacked weights made. */
enum { WARM_UP = 2, MOST_STEPS = 10000, MOST_RANKS = 64, MOST_EVENTS = 100000 };

typedef struct profile_job {
    cli_job job_options;
    int64_t steps, depth, ranks;
    const char *trace, *page, *target; /* files; NULL: not asked for */
    bool json, infer, save;
    int64_t batches[CLI_MOST_BATCHES];
    size_t batch_count;
    /* while it runs */
    bool launched;               /* ranks are processes, and only the first has made the folder */
    cli_temporary_folder folder; /* of all ranks */
    ht_config *config;
    ht_target machine;
    ht_text traces[MOST_RANKS]; /* by rank */
    size_t dropped;             /* events of the first rank */
} profile_job;

/* ---- results ---- */

static ht_status write_text(ht_context *ctx, const char *path, const ht_text *text)
{
    FILE *file = text->failed ? NULL : fopen(path, "wbe");
    bool written = file && fwrite(text->data, 1, text->length, file) == text->length;
    if (file && fclose(file) != 0) written = false;
    if (text->failed) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a trace");
    if (!written) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    return HT_OK;
}

/* Each rank's is an array: without its brackets it is a part of one. */
static ht_status write_trace(const profile_job *job, ht_context *ctx, int64_t ranks)
{
    ht_text all = {0};
    ht_text_add(&all, "{\"displayTimeUnit\": \"ms\", \"traceEvents\": [");
    for (int64_t i = 0; i < ranks; i++) {
        const ht_text *part = &job->traces[i];
        all.failed |= part->failed;
        if (!part->failed && part->length > 2)
            ht_text_add(&all, "%s%.*s", i ? "," : "", (int)part->length - 2, part->data + 1);
    }
    ht_text_add(&all, "]}\n");
    ht_status status = write_text(ctx, job->trace, &all);
    ht_text_free(&all);
    return status;
}

static ht_status show(profile_job *job, ht_context *ctx, cli_profile_view *view)
{
    ht_text text = {0};
    if (job->infer)
        HT_TRY(cli_profile_infer(ctx, &job->job_options, job->folder.path, job->batches, job->batch_count, view));
    if (job->page) HT_TRY(cli_profile_page(ctx, view, job->page));
    if (job->json)
        cli_profile_json(&text, view);
    else
        cli_profile_text(&text, view);
    int end = job->json ? cli_put(&text) : cli_show(&text);
    return end == CLI_DONE ? HT_OK : ht_fail(ctx, HT_EIO, "the profile could not be printed");
}

/* ---- a rank ---- */

static ht_status make_steps(ht_run *run, ht_profile *profile, int64_t steps)
{
    bool dropped;
    for (int64_t i = 0; i < steps; i++)
        HT_TRY(profile ? ht_profile_step(profile, &dropped) : ht_run_step(run, NULL, &dropped));
    return HT_OK;
}

static ht_status measure(const profile_job *job, ht_run *run, ht_profile **out)
{
    HT_TRY(make_steps(run, NULL, WARM_UP));
    HT_TRY(ht_profile_open(out, run, (size_t)job->steps, job->trace ? MOST_EVENTS : 0));
    HT_TRY(make_steps(run, *out, job->steps));
    return ht_profile_finish(*out);
}

static ht_status save(const profile_job *job, ht_run *run, cli_profile_view *view)
{
    if (!job->save && !job->infer) return HT_OK;
    view->save_begin = ht_instr_clock();
    HT_TRY(ht_run_snapshot(run));
    if (job->save) view->save_seconds = ht_instr_clock() - view->save_begin;
    return HT_OK;
}

static ht_status profile_run(profile_job *job, ht_context *ctx, ht_run *run, int rank, ht_profile **profile)
{
    ht_run_info info = ht_run_info_of(run);
    HT_TRY(measure(job, run, profile));
    cli_profile_view view = {.job = job->job_options.request.path,
                             .model = info.model,
                             .profile = *profile,
                             .threads = ht_context_threads(ctx),
                             .ranks = job->ranks,
                             .params = info.parameters,
                             .warm_up = WARM_UP,
                             .depth = job->depth,
                             .bytes = info.bytes};
    HT_TRY(save(job, run, &view));
    if (job->trace) cli_profile_trace(&job->traces[rank], &view, rank);
    if (rank > 0) return HT_OK;
    size_t kept;
    (void)ht_instr_times_events((*profile)->times, &kept, &job->dropped);
    return show(job, ctx, &view);
}

/* Ranks that are processes: all of them train in the first one's folder... */
static ht_status share_folder(profile_job *job, ht_context *ctx, ht_comm *world)
{
    char *path = job->folder.path;
    ht_comm_call call = {.kind = HT_COMM_BROADCAST, .dtype = HT_U8, .in = path, .out = path};
    call.elems = sizeof job->folder.path;
    return job->launched ? ht_comm_run(world, ctx, &call) : HT_OK;
}

static ht_status move_bytes(ht_context *ctx, ht_comm *world, bool sends, int peer, void *bytes, int64_t count)
{
    ht_comm_call call = {.kind = sends ? HT_COMM_SEND : HT_COMM_RECV, .dtype = HT_U8, .elems = count, .peer = peer};
    call.in = call.out = bytes;
    return ht_comm_run(world, ctx, &call);
}

/* ...and it gets their traces. */
static ht_status gather_traces(profile_job *job, ht_context *ctx, ht_comm *world)
{
    int rank = ht_comm_rank(world);
    for (int from = 1; from < ht_comm_size(world); from++) {
        ht_text *trace = &job->traces[from];
        uint64_t length = trace->failed ? 0 : trace->length;
        if (rank != 0 && rank != from) continue;
        HT_TRY(move_bytes(ctx, world, rank > 0, rank > 0 ? 0 : from, &length, sizeof length));
        if (rank == 0) {
            *trace = (ht_text){.data = calloc(length + 1, 1), .length = length};
            if (!trace->data) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a trace");
        }
        if (length) HT_TRY(move_bytes(ctx, world, rank > 0, rank > 0 ? 0 : from, trace->data, (int64_t)length));
    }
    return HT_OK;
}

static void profile_rank(void *arg, ht_context *ctx, ht_comm *world, int local, cli_rank_end *out)
{
    profile_job *job = arg;
    ht_run *run = NULL;
    ht_profile *profile = NULL;
    int rank = world ? ht_comm_rank(world) : 0;
    ht_run_request request = {.config = job->config,
                              .mode = HT_RUN_FORCE,
                              .folder = job->folder.path,
                              .target = job->target ? &job->machine : NULL,
                              .comm = world,
                              .local_ranks = local};
    ht_status status = share_folder(job, ctx, world);
    if (status == HT_OK) status = ht_run_open(&run, ctx, &request);
    if (status == HT_OK) status = profile_run(job, ctx, run, rank, &profile);
    ht_profile_free(profile);
    ht_status closed = ht_run_close(run);
    if (status == HT_OK) status = closed;
    if (status == HT_OK && job->launched && job->trace) status = gather_traces(job, ctx, world);
    out->end = cli_end_of(status);
    out->by_others = status == HT_ERANK;
    if (status != HT_OK) snprintf(out->reason, sizeof out->reason, "%s", ht_context_message(ctx));
}

/* ---- the command ---- */

/* The last two: DeepSpeed's monitors would write outside the run's folder. */
static int read_config(profile_job *job, ht_context *ctx)
{
    static const char *const fixed[] = {"train.epochs=null", "train.eval_every=0", "train.snapshot_every=0",
                                        "engine.csv_monitor.enabled=false", "engine.tensorboard.enabled=false"};
    enum { FIXED = sizeof fixed / sizeof fixed[0] };
    static char steps[48];
    cli_job *options = &job->job_options;
    snprintf(steps, sizeof steps, "train.steps=%" PRId64, job->steps + WARM_UP);
    if (options->request.set_count + FIXED + 1 > CLI_MOST_SETS)
        return cli_fail(CLI_WRONG, "profile: more than %d settings", CLI_MOST_SETS);
    options->sets[options->request.set_count++] = steps;
    for (size_t i = 0; i < FIXED; i++) options->sets[options->request.set_count++] = fixed[i];
    int end = cli_job_read(options, ctx, &job->config);
    if (end == CLI_DONE && !ht_config_has_job(job->config))
        return cli_fail(CLI_WRONG,
                        "profile: %s is DeepSpeed's config alone: training needs a job file with model and data",
                        options->request.path);
    return end;
}

static int profile(profile_job *job, ht_context *ctx)
{
    ht_launcher launcher;
    int64_t size;
    int end = cli_ranks_find(ctx, "profile", job->ranks, &launcher, &size);
    if (end == CLI_DONE && job->infer && size > 1)
        end = cli_fail(CLI_WRONG, "profile: --infer is measured on one rank");
    if (end == CLI_DONE && job->trace && size > MOST_RANKS)
        end = cli_fail(CLI_WRONG, "profile: --trace takes at most %d ranks", MOST_RANKS);
    bool leads = end != CLI_DONE || !launcher.name || launcher.rank == 0;
    if (end == CLI_DONE && job->target && ht_target_read(ctx, &job->machine, job->target) != HT_OK)
        end = cli_fail(CLI_WRONG, "profile: %s", ht_context_message(ctx));
    job->job_options.request.ranks = job->ranks = size;
    job->launched = end == CLI_DONE && launcher.name && size > 1;
    if (end == CLI_DONE) {
        end = read_config(job, ctx);
        if (end == CLI_DONE && leads) end = cli_temporary_folder_make(&job->folder, "profile");
        end = cli_ranks_run(ctx, "profile", &launcher, size, end, profile_rank, job);
    }
    if (end == CLI_DONE && leads && job->trace && write_trace(job, ctx, size) != HT_OK)
        end = cli_fail(CLI_FAILED, "profile: %s", ht_context_message(ctx));
    if (end == CLI_DONE && leads && job->dropped)
        fprintf(stderr, "halftone: the trace has the first %d events of each rank; %zu more are left out\n",
                MOST_EVENTS, job->dropped);
    if (leads) cli_temporary_folder_remove(&job->folder);
    ht_config_free(job->config);
    return end;
}

static int run_profile(void *arg)
{
    profile_job *job = arg;
    ht_context *ctx;
    if (job->batch_count && !job->infer) return cli_fail(CLI_WRONG, "profile: --batch comes with --infer");
    static const int64_t standard[] = {1, 2, 4, 8};
    if (!job->batch_count) {
        memcpy(job->batches, standard, sizeof standard);
        job->batch_count = sizeof standard / sizeof standard[0];
    }
    cli_job_start(&job->job_options);
    job->job_options.request.training = true;
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    end = profile(job, ctx);
    ht_context_free(ctx);
    return end;
}

static int take_batches(const cli_given *given, char *value)
{
    profile_job *job = given->at;
    job->batch_count = 0;
    for (char *at = value, *end; *at; at = *end ? end + 1 : end) {
        long long batch = strtoll(at, &end, 10);
        bool last = *end == '\0';
        if (end == at || batch < 1 || batch > 1 << 20 || (!last && *end != ',') || job->batch_count == CLI_MOST_BATCHES)
            return cli_bad_value(given, value);
        job->batches[job->batch_count++] = batch;
    }
    return job->batch_count ? CLI_DONE : cli_bad_value(given, value);
}

static void release(void *arg)
{
    profile_job *job = arg;
    for (size_t i = 0; i < MOST_RANKS; i++) ht_text_free(&job->traces[i]);
}

static const cli_option options[] = {
    {.kind = CLI_GROUP, .offset = offsetof(profile_job, job_options), .group = cli_job_rows},
    {"--steps", "N", CLI_WHOLE, offsetof(profile_job, steps), .help = "to measure, after two to warm up", .least = 1,
     .most = MOST_STEPS, .standard = "10"},
    {"--depth", "D", CLI_WHOLE, offsetof(profile_job, depth),
     .help = "levels of modules to show; 0: the model alone, -1: all", .least = -1, .most = 64, .standard = "3"},
    {"--ranks", "N", CLI_WHOLE, offsetof(profile_job, ranks),
     .help = "N ranks share the batch, as threads of this process (docs/parallel.md); the figures are the first's, a "
             "trace has all of them. The ranks of a launcher (mpirun, srun) are profiled without being asked for, and "
             "the option is refused",
     .least = 1, .most = MOST_RANKS},
    {"--target", "FILE", CLI_TEXT, offsetof(profile_job, target),
     .help = "a target file of this machine, for its ceilings (docs/target.md); without it, "
             "assumed ones, which are those of no machine in particular (of a GPU: the data sheet of the H200)",
     .flags = CLI_FILLED, .takes = "a file"},
    {"--save", NULL, CLI_FLAG, offsetof(profile_job, save),
     .help = "also write a snapshot, into the temporary folder, and time it"},
    {"--infer", NULL, CLI_FLAG, offsetof(profile_job, infer),
     .help = "also measure inference: the forward pass of evaluation, in batches of several sizes"},
    {"--batch", "LIST", CLI_TAKEN, 0, .help = "with --infer: these batches, with commas between them (1,2,4,8)",
     .takes = "up to 16 whole numbers above 0 with commas between them", .take = take_batches},
    {"--trace", "FILE", CLI_TEXT, offsetof(profile_job, trace),
     .help = "also write the steps as a trace for Perfetto (ui.perfetto.dev) or chrome://tracing, of up to 100000 "
             "events for each rank",
     .flags = CLI_FILLED, .takes = "a file"},
    {"--page", "FILE", CLI_TEXT, offsetof(profile_job, page), .help = "also write a page with charts",
     .flags = CLI_FILLED, .takes = "a file"},
    {"--json", NULL, CLI_FLAG, offsetof(profile_job, json),
     .help = "one object: {\"job\", \"model\", \"precision\", \"device\", \"isa\", \"threads\", \"ranks\", \"params\", "
             "\"steps\", \"step_ms\": {\"mean\", \"p50\", \"p90\", \"p99\"}, \"samples_per_second\", "
             "\"tokens_per_second\", \"mfu\": {\"default\", \"target\"}, \"flops\": {\"forward\", \"backward\", "
             "\"update\", \"recomputed\", \"other\", \"causal_masked\"}, \"counters\": null or {\"instructions\", "
             "\"cycles\", \"cache_misses\"}, \"ceilings\": {\"bandwidth\", \"flops\": {type: FLOP/s}}, \"plan_bytes\", "
             "\"bytes\": {space: {heading: "
             "bytes}}, \"phases\": [{\"name\", \"ms\", \"flops\", \"bytes\", \"limit_ms\", \"bound\"}], \"save_ms\", "
             "\"modules\": "
             "[{\"name\", \"depth\", \"params\", \"macs\", \"forward_flops\", \"backward_flops\", \"forward_ms\", "
             "\"backward_ms\", \"bytes\", \"limit_ms\", \"bound\"}], \"instructions\": [{\"segment\", \"index\", "
             "\"layer\", \"op\", \"kernel\", \"phase\", "
             "\"work\", \"bound\", \"dtype\", \"runs\", \"ms\", \"dot_flops\", \"other_flops\", \"recomputed_flops\", "
             "\"bytes\", "
             "\"limit_ms\"}]}; with --infer also \"infer\": [{\"batch\", \"p50_ms\", \"p90_ms\", \"p99_ms\", "
             "\"samples_per_second\", \"dot_flops\", \"other_flops\", \"bytes\", \"plan_bytes\", \"weight_bytes\"}]. "
             "Times are those of a "
             "step; FLOPs and bytes of an instruction and its limit are those of one run, a multiply-add counts two"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone profile job.json", "where the time of a step goes"},
    {"halftone profile job.json --depth -1 --page step.html", "every module, and charts"},
    {"halftone profile job.json --steps 3 --trace step.trace.json", "three steps to look at in Perfetto"},
    {"halftone profile job.json --json > run/profile.json", "time per layer and roofline for halftone report run"},
    {"halftone profile job.json --infer --batch 1,8,32", "latency and throughput of the trained model"},
    {0},
};

const cli_command cmd_profile = {
    .name = "profile",
    .summary = "train a few steps and measure each instruction, module and phase",
    .description =
        "Trains a few steps of a job and measures them: the phases of a step (data, forward, backward, update, and "
        "what is left: gaps and waits), the modules of the model as a tree (parameters, multiply-adds, FLOPs, time), "
        "and every instruction of the plan, with the FLOP/s and bytes/s that it reached. FLOPs and bytes come from the "
        "plan; bytes are those of distinct elements. A limit is the time that an instruction would take at the "
        "ceilings of the machine, for arithmetic or for memory, whichever is longer; what its operands find in caches "
        "can be faster. That also gives the verdict: compute-bound or memory-bound, latency-bound where both are over "
        "in 5 microseconds, communication-bound where ranks exchange.\n\n"
        "The run lies in a temporary folder (TMPDIR) and is removed: train.output is not touched. A GPU is profiled "
        "launch by launch, without recorded graphs. docs/profiling.md goes through an example.",
    .options = options,
    .size = sizeof(profile_job),
    .run = run_profile,
    .release = release,
    .examples = examples,
    .see_also = "explain train probe ladder report",
};
