/* halftone train: a run, with its progress on the terminal or as lines for programs. */
#include "cli/job_options.h"
#include "cli/live_page.h"
#include "cli/numerics_page.h"
#include "cli/profile_view.h"
#include "cli/progress.h"
#include "cli/timeline_view.h"
#include "cli/train_ranks.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct train_job {
    cli_job job_options;
    bool resume, force, allow_data_change;
    int64_t numerics;      /* 0: not asked for */
    int64_t ranks;         /* that are threads of this process; 0: not asked for */
    const char *log_ranks; /* "all", or those beside the first that speak, "1,3"; NULL: none */
    cli_live live;
    /* while it runs */
    const ht_config *config;
    bool quiet;      /* others speak */
    char prefix[32]; /* of lines: "rank 2: " of one that is not the first */
    const ht_launcher *launcher;
    bool terminal, bar_shown, breakdown;
    int64_t log_every, first_step;
    double eval_loss;
    double total_ms, shown_ms; /* of all steps; of those when the bar was drawn last */
} train_job;

/* ---- signals ---- */

static atomic_int stop_asked; /* ranks that are threads ask it, too */
static volatile sig_atomic_t pipe_closed;

static void ask_to_stop(int number)
{
    if (number == SIGPIPE) pipe_closed = 1;
    stop_asked = 1;
}

static void install_signal_handlers(void)
{
    static const int numbers[] = {SIGTERM, SIGUSR1, SIGINT, SIGHUP, SIGPIPE};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        /* The second SIGINT finds no handler any more. */
        struct sigaction before, action = {.sa_handler = ask_to_stop, .sa_flags = SA_RESTART};
        if (numbers[i] == SIGINT) action.sa_flags |= (int)SA_RESETHAND;
        /* nohup has the terminal's end ignored. */
        if (numbers[i] == SIGHUP && sigaction(SIGHUP, NULL, &before) == 0 && before.sa_handler == SIG_IGN) continue;
        sigaction(numbers[i], &action, NULL);
    }
    /* A limit on the size of files is then an error with a name, and not the end of the program. */
    sigaction(SIGXFSZ, &(struct sigaction){.sa_handler = SIG_IGN}, NULL);
}

/* ---- progress ---- */

static void clear_bar(train_job *job)
{
    if (job->bar_shown) fputs("\r\033[K", stdout);
    job->bar_shown = false;
}

static void show_bar(train_job *job, const ht_step_report *r)
{
    ht_text line = {0};
    double seconds = job->total_ms / 1e3 / (double)(r->step - job->first_step) * (double)(r->steps - r->step);
    job->shown_ms = job->total_ms;
    cli_progress_bar(&line, r, job->eval_loss, seconds, cli_columns());
    if (!line.failed) printf("\r%s\033[K", line.data);
    ht_text_free(&line);
    fflush(stdout);
    job->bar_shown = true;
}

static void on_step(void *arg, const ht_step_report *r)
{
    train_job *job = arg;
    job->total_ms += r->step_ms;
    if (job->terminal) {
        /* Steps may be faster than a person reads, and faster than a terminal. */
        if (job->total_ms - job->shown_ms >= 50 || r->step == r->steps || !job->bar_shown) show_bar(job, r);
        return;
    }
    if (r->step % job->log_every != 0 && r->step != job->first_step + 1 && r->step != r->steps && !r->skipped) return;
    ht_text line = {0};
    cli_progress_line(&line, r, job->breakdown);
    if (!line.failed) printf("%s%s\n", job->prefix, line.data);
    ht_text_free(&line);
    fflush(stdout);
}

static void on_eval(void *arg, const ht_eval_report *r)
{
    train_job *job = arg;
    job->eval_loss = r->loss;
    clear_bar(job);
    ht_text line = {0};
    ht_text_add(&line, "%s", job->prefix);
    cli_progress_eval(&line, r);
    ht_text_add(&line, "\n");
    cli_show(&line);
}

static void tell(const train_job *job, const char *line)
{
    char before[64];
    snprintf(before, sizeof before, "halftone: %s", job->prefix);
    cli_tell(before, line);
}

static void on_note(void *arg, const char *line)
{
    clear_bar(arg);
    fflush(stdout);
    tell(arg, line);
}

/* ---- DeepSpeed's flops_profiler and memory_breakdown ---- */

static bool engine_asks(const ht_config *config, const char *key)
{
    return ht_config_has_engine(config) && ht_field_bool(ht_config_block(config, "engine"), key);
}

/* What takes the memory that is not there. */
static void on_too_large(void *arg, const ht_plan *plan)
{
    ht_memory_timeline timeline;
    ht_text text = {0};
    (void)arg;
    fflush(stdout);
    if (ht_plan_memory_timeline(&timeline, plan, "train") == HT_OK) cli_timeline_text(&text, &timeline);
    if (!text.failed && text.length) fprintf(stderr, "%s\n", text.data);
    ht_text_free(&text);
    ht_memory_timeline_free(&timeline);
}

/* To the file that the config names, else to the terminal. */
static void put_profile(const char *path, ht_text *text)
{
    if (!path) {
        cli_show(text);
        return;
    }
    FILE *file = text->failed ? NULL : fopen(path, "wbe");
    bool written = file && fwrite(text->data, 1, text->length, file) == text->length;
    if (file && fclose(file) != 0) written = false;
    if (!written)
        fprintf(stderr, "halftone: flops_profiler.output_file: %s: %s\n", path,
                text->failed ? "out of memory" : strerror(errno));
    ht_text_free(text);
}

/* For halftone report; the training goes on without it. */
static void keep_profile(const train_job *job, const ht_profile *profile)
{
    const char *folder = ht_config_train(job->config)->output;
    const ht_field *model = ht_fields_find(ht_config_block(job->config, "model"), "type");
    cli_profile_view view = {.job = job->job_options.request.path,
                             .model = model && model->value->kind == HT_JSON_STRING ? model->value->text : NULL,
                             .profile = profile,
                             .threads = ht_context_threads(profile->plan->ctx),
                             .ranks = ht_config_train(job->config)->ranks,
                             .params = profile->modules.list[0].params,
                             .bytes = ht_plan_byte_table(profile->plan)};
    ht_text text = {0}, path = {0};
    cli_profile_json(&text, &view);
    ht_text_add(&path, "%s/profile.json", folder);
    text.failed |= path.failed;
    if (!cli_write_file(path.failed ? "profile.json" : path.data, &text))
        fprintf(stderr, "halftone: %s/profile.json: %s\n", folder, strerror(errno));
    ht_text_free(&text);
    ht_text_free(&path);
}

static void on_profile(void *arg, const ht_profile *profile)
{
    train_job *job = arg;
    keep_profile(job, profile);
    const ht_fields *engine = ht_config_block(job->config, "engine");
    ht_text text = {0};
    clear_bar(job);
    ht_text_add(&text, "profile of the step after %" PRId64 ": %.3f ms; halftone profile measures more of them\n",
                ht_field_int(engine, "flops_profiler.profile_step"), 1e3 * profile->mean_seconds);
    cli_profile_phases(&text, profile, 0);
    cli_profile_modules(&text, profile, ht_field_int(engine, "flops_profiler.module_depth"),
                        ht_field_int(engine, "flops_profiler.top_modules"),
                        ht_field_bool(engine, "flops_profiler.detailed"));
    put_profile(ht_field_text(engine, "flops_profiler.output_file"), &text);
}

static void tell_bytes(const ht_config *config, const ht_run_info *info)
{
    ht_text text = {0};
    if (!engine_asks(config, "memory_breakdown")) return;
    ht_text_add(&text, "memory of the plan, %" PRId64 " bytes:\n", info->plan_bytes);
    ht_byte_table_print(&text, &info->bytes, "  ");
    cli_show(&text);
}

/* ---- the command ---- */

static void fail_with(cli_rank_end *out, const ht_context *ctx, int end)
{
    out->end = end;
    snprintf(out->reason, sizeof out->reason, "%s", ht_context_message(ctx));
}

static void show_numerics(cli_rank_end *out, ht_context *ctx, const char *folder)
{
    ht_text text = {0};
    if (cli_numerics_page(&text, ctx, folder) == HT_OK) {
        int shown = cli_show(&text);
        if (out->end == CLI_DONE) out->end = shown;
        return;
    }
    ht_text_free(&text);
    if (out->end == CLI_DONE) fail_with(out, ctx, CLI_FAILED);
}

/* What the process took, against what was planned and stated. */
static void tell_memory(const train_job *job, const ht_run *run)
{
    ht_end_report r = ht_run_end(run);
    bool threads = job->ranks > 1; /* all ranks are in this process */
    int64_t inside = threads ? r.ranks_memory_bytes : r.plan_bytes - r.device_bytes - r.disk_bytes;
    int64_t beyond = r.process_peak_bytes - inside,
            reserve = threads ? r.ranks_reserve_bytes : ht_reserve_sum(&r.reserve);
    char line[256];
    if (r.device_bytes) {
        snprintf(line, sizeof line, "the device held %.1f MiB of the plan", (double)r.device_bytes / 0x1p20);
        cli_tell("halftone: ", line);
    }
    if (r.disk_bytes) {
        snprintf(line, sizeof line, "the disk held %.1f MiB of the plan", (double)r.disk_bytes / 0x1p20);
        cli_tell("halftone: ", line);
    }
    snprintf(
        line, sizeof line,
        "the process held %.1f MiB at most: %.1f MiB of the plan%s, and %.1f MiB beyond it of a reserve of %.1f MiB",
        (double)r.process_peak_bytes / 0x1p20, (double)inside / 0x1p20, threads ? "s of its ranks" : "",
        (double)beyond / 0x1p20, (double)reserve / 0x1p20);
    cli_tell("halftone: ", line);
}

/* How much of a step was exchanges, and how much of these it waited for. */
static void tell_exchange(const train_job *job, const ht_run *run)
{
    ht_end_report r = ht_run_end(run);
    char line[256];
    if (!r.exchange.known || !r.steps) return;
    snprintf(line, sizeof line, "ranks exchanged for %.2f ms a step, of which %.0f %% were hidden, and sent %.2f MiB",
             r.exchange.ms / (double)r.steps, 100 * r.exchange.hidden_share,
             (double)r.exchange.bytes / 0x1p20 / (double)r.steps);
    tell(job, line);
}

/* The job as it was given, for a command that goes on with it, or with steps > 0 up to another one. */
static void add_resume(ht_text *text, const train_job *job, int64_t steps)
{
    static const char steps_key[] = "train.steps=";
    const cli_job *given = &job->job_options;
    const ht_launcher *launcher = job->launcher;
    ht_text_add(text, "  ");
    if (launcher->name && launcher->size > 1)
        ht_text_add(text, "%s -n %d ", strcmp(launcher->name, "Slurm") == 0 ? "srun" : "mpirun", launcher->size);
    cli_add_word(text, cli_program, " train ");
    cli_add_word(text, given->request.path, "");
    ht_text_add(text, " --resume");
    for (size_t i = 0; i < given->request.set_count; i++) {
        if (steps > 0 && strncmp(given->sets[i], steps_key, strlen(steps_key)) == 0) continue;
        ht_text_add(text, " --set ");
        cli_add_word(text, given->sets[i], "");
    }
    if (given->request.engine_path) {
        ht_text_add(text, " --deepspeed ");
        cli_add_word(text, given->request.engine_path, "");
    }
    if (job->ranks > 1) ht_text_add(text, " --ranks %" PRId64, job->ranks);
    if (steps > 0) ht_text_add(text, " --set %s%" PRId64, steps_key, steps);
    ht_text_add(text, "\n");
}

/* What a reader will want to do with the run. */
static void tell_next(const train_job *job, const ht_run_info *info, bool stopped)
{
    ht_text text = {0};
    ht_text_add(&text, "halftone: next, %s:\n", stopped ? "to go on" : "to evaluate it, or to train it further");
    if (!stopped) {
        ht_text_add(&text, "  ");
        cli_add_word(&text, cli_program, " eval ");
        cli_add_word(&text, info->folder, "");
        ht_text_add(&text, !info->validates ? " --set data.validation=FILE\n" : "\n");
    }
    add_resume(&text, job, stopped ? 0 : info->steps + (info->steps + 1) / 2);
    if (!text.failed) fputs(text.data, stderr); /* not folded: commands are copied */
    ht_text_free(&text);
}

static void tell_start(const train_job *job, const ht_context *ctx, const ht_run_info *info)
{
    int threads = ht_context_threads(ctx);
    ht_text line = {0};
    ht_text_add(&line, "%s, task %s, %" PRId64 " parameters, ", info->model, ht_task_names[info->task],
                info->parameters + info->frozen);
    if (info->frozen) ht_text_add(&line, "%" PRId64 " of them frozen, ", info->frozen);
    ht_text_add(&line, "%.1f MiB planned, %" PRId64 " steps, ", (double)info->plan_bytes / 0x1p20, info->steps);
    ht_text_add(&line, "on %s", strcmp(info->device, "cpu") == 0 ? "the CPU" : info->device);
    if (strncmp(info->device, "cuda", 4) == 0) ht_text_add(&line, " (%s)", info->device_model);
    ht_text_add(&line, ", %d thread%s, into %s", threads, threads == 1 ? "" : "s", info->folder);
    if (!line.failed) tell(job, line.data);
    ht_text_free(&line);
}

/* How long the stages of a pipeline wait for each other, if all take as long. */
static void tell_bubble(const ht_config *config)
{
    const ht_train_config *c = ht_config_train(config);
    char line[160];
    if (c->pipeline == 1) return;
    snprintf(line, sizeof line,
             "%" PRId64 " stages, %" PRId64 " micro-batches: each stage waits for others in %.1f %% of a step (bubble)",
             c->pipeline, c->accumulate, 100 * ht_pipeline_bubble(c->pipeline, c->accumulate));
    cli_tell("halftone: ", line);
}

/* Of a run that goes on the step may have been made before. */
static void tell_unprofiled(const train_job *job, const ht_run_info *info)
{
    char line[160];
    int64_t after = ht_field_int(ht_config_block(job->config, "engine"), "flops_profiler.profile_step");
    if (!engine_asks(job->config, "flops_profiler.enabled") || after < info->steps) return;
    snprintf(line, sizeof line,
             "warning: flops_profiler.profile_step is %" PRId64 ", and there are %" PRId64
             " steps: no step will be profiled",
             after, info->steps);
    cli_tell("halftone: ", line);
}

static void run_to_end(train_job *job, ht_context *ctx, ht_run *run, cli_rank_end *out)
{
    ht_run_info info = ht_run_info_of(run);
    bool stopped;
    job->first_step = info.first_step;
    if (!job->quiet) tell_start(job, ctx, &info);
    if (!job->prefix[0]) tell_bytes(job->config, &info);
    if (!job->prefix[0]) tell_bubble(job->config);
    if (!job->prefix[0]) tell_unprofiled(job, &info);
    ht_status status = ht_run_train(run, &stopped);
    clear_bar(job);
    out->end = stopped ? CLI_STOPPED : CLI_DONE;
    out->by_others = status == HT_ERANK;
    if (status != HT_OK) fail_with(out, ctx, CLI_FAILED);
    if (job->quiet) return;
    if (status == HT_OK) tell_exchange(job, run);
    if (job->prefix[0]) return; /* the rest is the first rank's */
    if (status == HT_OK) tell_memory(job, run);
    /* A reader that left before the last line has what it wanted. */
    if (pipe_closed) clearerr(stdout);
    if (job->numerics && !pipe_closed) show_numerics(out, ctx, info.folder);
    if (status == HT_OK && !pipe_closed) tell_next(job, &info, stopped);
}

static int dump_state(const ht_config *config)
{
    ht_text text = {0};
    if (!engine_asks(config, "dump_state")) return CLI_DONE;
    ht_config_print(&text, config, true);
    return cli_put(&text);
}

/* Does a rank print its lines? The first one always does. */
static bool speaks(const train_job *job, int rank)
{
    if (rank == 0 || (job->log_ranks && strcmp(job->log_ranks, "all") == 0)) return true;
    for (const char *at = job->log_ranks; at && *at; at += strcspn(at, ","), at += *at == ',')
        if (strtol(at, NULL, 10) == rank) return true;
    return false;
}

/* "all", or numbers of ranks between commas. */
static int check_log_ranks(const train_job *job, int64_t size)
{
    const char *at = job->log_ranks;
    if (!at || strcmp(at, "all") == 0) return CLI_DONE;
    for (;;) {
        char *end;
        long rank = strtol(at, &end, 10);
        if (end == at || *at < '0' || *at > '9' || (*end && *end != ','))
            return cli_fail(CLI_WRONG, "train: --log-ranks %s: neither all nor numbers of ranks, as in 1,3",
                            job->log_ranks);
        if (rank >= size)
            return cli_fail(CLI_WRONG, "train: --log-ranks %s: there is no rank %ld of %" PRId64, job->log_ranks, rank,
                            size);
        if (!*end) return CLI_DONE;
        at = end + 1;
    }
}

/* The first rank speaks, and those that were asked for. */
static ht_run_request request_of(train_job *job, ht_comm *world, int local)
{
    bool quiet = job->quiet, profiled = engine_asks(job->config, "flops_profiler.enabled");
    return (ht_run_request){
        .config = job->config,
        .mode = job->resume  ? HT_RUN_RESUME
                : job->force ? HT_RUN_FORCE
                             : HT_RUN_NEW,
        .allow_data_change = job->allow_data_change,
        .numerics = job->numerics,
        .comm = world,
        .local_ranks = local,
        .stop = &stop_asked,
        .arg = job,
        .on_step = quiet ? NULL : on_step,
        .on_eval = quiet ? NULL : on_eval,
        .on_note = quiet ? NULL : on_note,
        .profile_step =
            profiled ? ht_field_int(ht_config_block(job->config, "engine"), "flops_profiler.profile_step") + 1 : 0,
        .on_profile = job->prefix[0] ? NULL : on_profile,
        .on_too_large = job->prefix[0] ? NULL : on_too_large,
    };
}

static void train(void *arg, ht_context *ctx, ht_comm *world, int local, cli_rank_end *out)
{
    train_job own = *(const train_job *)arg, *job = &own;
    ht_run *run;
    bool output_failed = false;
    int rank = world ? ht_comm_rank(world) : 0;
    job->quiet = !speaks(job, rank);
    if (rank > 0) snprintf(job->prefix, sizeof job->prefix, "rank %d: ", rank);
    if (rank > 0 && job->launcher->name && !job->quiet) cli_rank_tell_place(job->launcher);
    ht_run_request request = request_of(job, world, local);
    request.output_failed = &output_failed;
    job->log_every = ht_config_train(job->config)->log_every;
    job->terminal = cli_terminal(STDOUT_FILENO) && !job->log_ranks; /* a bar is for one */
    job->eval_loss = NAN;
    job->breakdown = engine_asks(job->config, "wall_clock_breakdown");
    if (rank == 0 && (out->end = dump_state(job->config)) != CLI_DONE) return;
    ht_status status = ht_run_open(&run, ctx, &request);
    /* Before the first step, a file that the job names and that cannot be read is wrong input like a wrong key. */
    out->by_others = status == HT_ERANK;
    if (status != HT_OK) {
        fail_with(out, ctx, status == HT_EIO && !output_failed ? CLI_WRONG : cli_end_of(status));
        return;
    }
    status = cli_ranks_record(world, ctx, job->launcher, ht_config_train(job->config)->output);
    out->by_others = status == HT_ERANK;
    if (status == HT_OK)
        run_to_end(job, ctx, run, out);
    else
        fail_with(out, ctx, CLI_FAILED);
    status = ht_run_close(run);
    if (out->end != CLI_FAILED && status != HT_OK) fail_with(out, ctx, CLI_FAILED);
}

/* Of ranks in several processes the first tells what is wrong with the job; others leave it in the context. */
static int read_config(train_job *job, ht_context *ctx, bool quiet, ht_config **out)
{
    if (!quiet) return cli_job_read(&job->job_options, ctx, out);
    if (ht_config_read(out, ctx, &job->job_options.request) == HT_OK) return CLI_DONE;
    ht_config_free(*out);
    *out = NULL;
    return CLI_WRONG;
}

static int train_on_ranks(train_job *job, ht_context *ctx)
{
    ht_launcher launcher;
    ht_config *config;
    int64_t size;
    int end = cli_ranks_find(ctx, "train", job->ranks, &launcher, &size);
    if (end != CLI_DONE) return end;
    if ((end = check_log_ranks(job, size)) != CLI_DONE) return end;
    job->job_options.request.ranks = size;
    end = read_config(job, ctx, launcher.name && launcher.rank > 0, &config);
    job->config = config;
    job->launcher = &launcher;
    if (end == CLI_DONE) cli_live_show(&job->live, ht_config_train(config)->output);
    end = cli_ranks_run(ctx, "train", &launcher, size, end, train, job);
    ht_config_free(config);
    return end;
}

static int run_train(void *arg)
{
    train_job *job = arg;
    ht_context *ctx;
    /* The server is a process of its own, which is made while there is one thread. */
    int end = cli_rank() == 0 ? cli_live_start(&job->live, "train") : CLI_DONE;
    if (end != CLI_DONE) return end;
    install_signal_handlers();
    cli_job_start(&job->job_options);
    job->job_options.request.training = true;
    end = cli_context(&ctx);
    if (end == CLI_DONE) {
        end = train_on_ranks(job, ctx);
        ht_context_free(ctx);
    }
    cli_live_stop(&job->live);
    return end;
}

static const cli_option options[] = {
    {.kind = CLI_GROUP, .offset = offsetof(train_job, job_options), .group = cli_job_rows},
    {"--resume", NULL, CLI_FLAG, offsetof(train_job, resume),
     .help = "go on from the newest complete snapshot, bit for bit as if the run had never stopped; without a "
             "snapshot, begin; keys and data that changed since are printed",
     .choice = 1},
    {"--force", NULL, CLI_FLAG, offsetof(train_job, force), .help = "remove a run that the folder holds already",
     .choice = 1},
    {"--allow-data-change", NULL, CLI_FLAG, offsetof(train_job, allow_data_change),
     .help = "resume although the validation part has changed, and may hold what the run was trained on"},
    {"--ranks", "N", CLI_WHOLE, offsetof(train_job, ranks),
     .help = "N ranks share the batch of every step, as threads of this process (docs/parallel.md); under a launcher, "
             "such as mpirun, each process is a rank and this is refused",
     .least = 1, .most = 1024},
    {"--log-ranks", "LIST", CLI_TEXT, offsetof(train_job, log_ranks),
     .help = "other ranks than the first print their lines, too, each after its number: all, or a list such as 1,3",
     .flags = CLI_FILLED, .takes = "all, or numbers of ranks as in 1,3"},
    {"--numerics", "N", CLI_WHOLE, offsetof(train_job, numerics),
     .help =
         "every N steps (100), and in the first and the last, how large gradients are and what f16 would make of them: "
         "numerics.jsonl and numerics.html in the folder, a table at the end; the training is the same bit for bit, "
         "and takes about twice the memory; of several ranks, the gradients of the first",
     .bare = "100", .least = 1, .most = 1e9},
    {.kind = CLI_GROUP, .offset = offsetof(train_job, live), .group = cli_live_rows},
    {0},
};

static const cli_entry files[] = {
    {"config.resolved.json", "every value of the job and where it came from"},
    {"metrics.jsonl", "a line per step and per evaluation, and one at the end (docs/memory.md has its byte fields)"},
    {"memory.json", "the plan's bytes by heading, and those that are alive by instruction (halftone report)"},
    {"profile.json", "what DeepSpeed's flops_profiler measured (halftone report)"},
    {"snapshots/step-*", "what a run goes on from"},
    {"ranks.json", "of several processes under a launcher: node and process of each rank"},
    {"lock", "process, host and start time of the training that is going on here"},
    {0},
};

static const cli_entry environment[] = {
    CLI_LIVE_ENVIRONMENT,
    {"HALFTONE_COMM_TIMEOUT_S",
     "how many seconds a rank waits for another one, to begin as well, before it ends (1800)"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone train job.json", "a new run"},
    {"halftone train job.json --resume --set train.steps=4000", "the same run, further"},
    {"halftone train job.json --set train.precision=fp16 --numerics", "in fp16, with a look at the gradients"},
    {"halftone train job.json --http 8080", "with a page to look at while it goes"},
    {0},
};

const cli_command cmd_train = {
    .name = "train",
    .summary = "train as a job file says; resume",
    .description =
        "Trains as the job file says; halftone init writes one to start from, halftone check prints what it comes to, "
        "and docs/config.md lists the keys. A plan that does not fit into memory is refused before the first step, "
        "with what takes it and what would fit. The folder train.output receives config.resolved.json, metrics.jsonl, "
        "TensorBoard events, the vocabularies and snapshots.\n\n"
        "On a terminal a bar shows the progress. Elsewhere every train.log_every steps print one line of at most "
        "120 characters, names and values beginning with step, and every evaluation one beginning with eval; "
        "metrics.jsonl has all values of all steps. Notes go to standard error, at the end with the next commands. "
        "SIGTERM, SIGUSR1, SIGHUP, SIGINT and a pipe whose reader has gone (| head) make it write a snapshot of the "
        "last whole step and stop with exit status 3; a second SIGINT ends the program at once. The folder is locked "
        "while the process lives (the file lock says who it is): other trainings there are refused, halftone eval is "
        "not.",
    .options = options,
    .stops = true,
    .size = sizeof(train_job),
    .run = run_train,
    .files = files,
    .environment = environment,
    .examples = examples,
    .see_also = "init check eval compare watch",
};
