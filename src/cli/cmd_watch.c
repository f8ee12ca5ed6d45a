/* halftone watch: a run of another process, as it goes. */
#include "cli/live_page.h"
#include "cli/progress.h"
#include "cli/watch_view.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#include "report/report.h"

typedef struct watch_job {
    const char *run;
    bool once;
    double interval;
    cli_live live;
    /* while it runs */
    bool terminal;
    int drawn; /* lines of the last frame, which the next one replaces */
    int64_t told_step, told_eval;
    ht_run_state told_state;
    bool told_any;
} watch_job;

/* ---- signals ---- */

static volatile sig_atomic_t left, resized;

static void on_signal(int number)
{
    if (number == SIGWINCH)
        resized = 1;
    else
        left = 1;
}

static void install_signal_handlers(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE, SIGWINCH};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        sigaction(numbers[i], &(struct sigaction){.sa_handler = on_signal}, NULL); /* no SA_RESTART: a pause ends */
}

/* ---- showing ---- */

static cli_frame frame_of(const watch_job *job)
{
    return (cli_frame){job->run, cli_columns(), job->once ? 0 : cli_terminal_lines(), ht_terminal_unicode()};
}

/* In place of the last frame. A terminal of another size has broken its lines anew: then the screen is cleared. No mode of
 * the terminal is changed, so that there is none to restore. */
static void draw(watch_job *job, const ht_run_status *s)
{
    ht_text text = {0};
    cli_frame frame = frame_of(job);
    cli_watch_frame(&text, s, &frame);
    if (text.failed) {
        ht_text_free(&text);
        return;
    }
    if (resized)
        fputs("\033[H\033[2J", stdout);
    else if (job->drawn > 0)
        printf("\033[%dA\r", job->drawn);
    resized = 0;
    job->drawn = 0;
    for (const char *line = text.data; *line; job->drawn++) {
        size_t length = strcspn(line, "\n");
        printf("%.*s\033[K\n", (int)length, line);
        line += length + (line[length] == '\n');
    }
    fputs("\033[J", stdout);
    fflush(stdout);
    ht_text_free(&text);
}

static void put_line(ht_text *line)
{
    ht_text_add(line, "\n");
    if (!line->failed) fputs(line->data, stdout);
    ht_text_free(line);
}

/* Lines as `halftone train` prints them, for what is new. */
static void tell(watch_job *job, const ht_run_status *s)
{
    ht_text line = {0};
    bool again = s->step.step < job->told_step; /* it went on from a snapshot, or began anew */
    if (!job->told_any || s->state != job->told_state) cli_watch_state(&line, s, job->run), put_line(&line);
    if (again) job->told_step = job->told_eval = 0;
    if (s->step.step > job->told_step) cli_progress_line(&line, &s->step, false), put_line(&line);
    if (s->eval.count > 0 && s->eval.step > job->told_eval) cli_progress_eval(&line, &s->eval), put_line(&line);
    job->told_step = s->step.step;
    if (s->eval.count > 0) job->told_eval = s->eval.step;
    job->told_state = s->state;
    job->told_any = true;
    fflush(stdout);
}

static int end_of(const ht_run_status *s)
{
    return s->state == HT_RUN_STATE_STOPPED ? CLI_STOPPED : s->state == HT_RUN_STATE_DIED ? CLI_FAILED : CLI_DONE;
}

static bool is_over(const ht_run_status *s)
{
    return s->state == HT_RUN_STATE_DONE || s->state == HT_RUN_STATE_STOPPED || s->state == HT_RUN_STATE_DIED;
}

static void pause_for(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    if (!left) nanosleep(&time, NULL);
}

/* ---- the command ---- */

static int show_once(const watch_job *job, const ht_run_status *s)
{
    ht_text text = {0};
    cli_frame frame = frame_of(job);
    if (s->state == HT_RUN_STATE_WAITING) return cli_fail(CLI_FAILED, "watch: %s: there is no run yet", job->run);
    cli_watch_frame(&text, s, &frame);
    int end = cli_put(&text);
    return end != CLI_DONE ? end : end_of(s);
}

static int watch(watch_job *job, ht_context *ctx, ht_follower *follower)
{
    ht_run_status status;
    job->terminal = cli_terminal(STDOUT_FILENO);
    install_signal_handlers();
    while (!left) {
        if (ht_follower_look(follower, &status) != HT_OK)
            return cli_fail(CLI_FAILED, "watch: %s", ht_context_message(ctx));
        if (job->once) return show_once(job, &status);
        if (job->terminal)
            draw(job, &status);
        else
            tell(job, &status);
        if (is_over(&status)) return end_of(&status);
        pause_for(job->interval);
    }
    /* Who left, left: the run goes on. A pipe without a reader is no failure of ours. */
    clearerr(stdout);
    return CLI_DONE;
}

/* Until a signal. */
static int serve(const watch_job *job)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    int until = signalfd(-1, &signals, SFD_CLOEXEC);
    if (until < 0) return cli_fail(CLI_FAILED, "watch: %s", strerror(errno));
    int end = cli_live_serve(&job->live, job->run, until);
    close(until);
    return end;
}

static int run_watch(void *arg)
{
    watch_job *job = arg;
    ht_context ctx = {0}; /* for messages: nothing is computed */
    ht_follower *follower;
    if (job->live.address && job->once) return cli_fail(CLI_WRONG, "watch: --once and --http do not go together");
    if (!job->live.address && job->live.token_file)
        return cli_fail(CLI_WRONG, "watch: --http-token-file comes with --http");
    if (job->live.address) return serve(job);
    if (ht_follower_open(&follower, &ctx, job->run) != HT_OK)
        return cli_fail(CLI_FAILED, "watch: %s", ht_context_message(&ctx));
    int end = watch(job, &ctx, follower);
    ht_follower_free(follower);
    return end;
}

static const cli_option options[] = {
    {"RUN", "run", CLI_ARGUMENT, offsetof(watch_job, run), .help = "the folder of a run, as train.output names it"},
    {"--once", NULL, CLI_FLAG, offsetof(watch_job, once), .help = "one picture of how it stands, and no more",
     .choice = 1},
    {"--interval", "SECONDS", CLI_NUMBER, offsetof(watch_job, interval), .help = "between two looks", .least = 0.1,
     .most = 3600, .standard = "1"},
    {.kind = CLI_GROUP, .offset = offsetof(watch_job, live), .group = cli_live_rows},
    {0},
};

static const cli_entry environment[] = {
    CLI_LIVE_ENVIRONMENT,
    {0},
};

static const cli_entry examples[] = {
    {"halftone watch run", "beside a training in another terminal"},
    {"halftone watch run --once", "how it stands"},
    {"halftone watch run --http 8080", "as a page for the browser"},
    {0},
};

const cli_command cmd_watch = {
    .name = "watch",
    .summary = "look at a run while it trains in another terminal",
    .description =
        "Follows a run by its folder: the curve of its loss, the newest step and evaluation, throughput, the time that "
        "is left, loss scale, memory, and what ranks exchange. It reads metrics.jsonl as it grows, and neither writes "
        "nor locks anything: the training does not notice. A run that has not begun is waited for; one that is resumed "
        "or begun anew is followed.\n\n"
        "On a terminal a picture is redrawn in place. Elsewhere there are lines as halftone train prints them, for the "
        "newest step of each look. It ends when the run does: with status 0 when that made its last step, 3 when it "
        "was stopped, 1 when its process ended without a last record. Ctrl-C leaves the run alone.\n\n"
        "With --http nothing is drawn: the run is served to browsers and Prometheus, as halftone train --http does it, "
        "until a signal ends it. docs/watch.md says more.",
    .options = options,
    .size = sizeof(watch_job),
    .run = run_watch,
    .stops = true,
    .environment = environment,
    .examples = examples,
    .see_also = "train compare",
};
