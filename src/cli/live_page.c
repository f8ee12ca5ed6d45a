/* The server is a process of its own, forked before the first thread and with the lowest priority. It reads the folder of the
 * run like anybody else, so that a training neither waits for it, nor shares memory or locks with it, nor falls with it. */
#include "cli/live_page.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "cli/report/run_page.h"
#include "serve/serve.h"

enum { LOWEST_PRIORITY = 19, MOST_TOKEN = 1024, REFRESH_SECONDS = 5, STOP_TRIES = 100 };

/* ---- what is served ---- */

typedef struct live_run {
    ht_context ctx; /* for messages */
    const char *folder;
    ht_follower *follower;
} live_run;

/* The page of halftone report; while there is no run, one that says so. */
static ht_status make_page(void *arg, ht_text *out)
{
    live_run *run = arg;
    ht_run_status status;
    ht_report *report = NULL;
    HT_TRY(ht_follower_look(run->follower, &status));
    if (status.step.step > 0) {
        HT_TRY(cli_run_page(&report, &run->ctx, &run->folder, 1, REFRESH_SECONDS));
    } else {
        HT_TRY(ht_report_create(&report, &run->ctx, run->folder));
        ht_report_paragraph(report, "There is no step yet.");
        ht_report_refresh(report, REFRESH_SECONDS);
    }
    const char *page = ht_report_page(report);
    if (page) ht_text_add(out, "%s", page);
    out->failed = out->failed || !page;
    ht_report_free(report);
    return HT_OK;
}

static ht_status make_metrics(void *arg, ht_text *out)
{
    live_run *run = arg;
    ht_run_status status;
    HT_TRY(ht_follower_look(run->follower, &status));
    ht_prometheus_add(out, &status, run->folder);
    return HT_OK;
}

static void put_eval(ht_json_writer *json, const ht_eval_report *r)
{
    ht_json_begin_object(json, "eval");
    ht_json_put_int(json, "step", r->step);
    ht_json_put_number(json, "loss", r->loss);
    if (!isnan(r->perplexity)) ht_json_put_number(json, "perplexity", r->perplexity);
    if (!isnan(r->accuracy)) ht_json_put_number(json, "accuracy", r->accuracy);
    ht_json_end_object(json);
}

static ht_status make_status(void *arg, ht_text *out)
{
    live_run *run = arg;
    ht_run_status s;
    ht_json_writer json = {.text = out};
    HT_TRY(ht_follower_look(run->follower, &s));
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "run", run->folder);
    ht_json_put_text(&json, "state", ht_run_state_names[s.state]);
    ht_json_put_text(&json, "model", s.model);
    ht_json_put_text(&json, "precision", s.precision);
    ht_json_put_int(&json, "step", s.step.step);
    ht_json_put_int(&json, "steps", s.step.steps);
    if (s.step.step > 0) {
        ht_json_put_number(&json, "loss", s.step.loss);
        ht_json_put_number(&json, "lr", s.step.lr);
        ht_json_put_number(&json, "tokens_per_second", s.tokens_per_second);
        ht_json_put_number(&json, "step_ms", s.step_ms);
        ht_json_put_number(&json, "seconds_left", s.seconds_left);
    }
    if (s.eval.count > 0) put_eval(&json, &s.eval);
    ht_json_end_object(&json);
    ht_text_add(out, "\n");
    return HT_OK;
}

static const ht_http_content contents[] = {
    {"/", "text/html; charset=utf-8", make_page},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", make_metrics},
    {"/status.json", "application/json", make_status},
};
enum { CONTENTS = sizeof contents / sizeof contents[0] };

/* ---- the options ---- */

static const char token_variable[] = "HALFTONE_HTTP_TOKEN";

const cli_option cli_live_rows[] = {
    {"--http", "ADDRESS", CLI_TEXT, offsetof(cli_live, address),
     .help = "serve the run: / is its page, /metrics is for Prometheus, /status.json for programs (docs/watch.md); "
             "127.0.0.1:8080, [::1]:8080, or 8080 on this machine alone; port 0 takes one that is free, and it is "
             "printed; an address that other machines can reach needs a token",
     .flags = CLI_FILLED, .takes = "an address and a port, such as 127.0.0.1:8080"},
    {"--http-token-file", "FILE", CLI_TEXT, offsetof(cli_live, token_file),
     .help = "its first line is the token, of at least 16 characters, that requests must have: as Authorization: "
             "Bearer TOKEN, or as ?token=TOKEN",
     .flags = CLI_FILLED, .takes = "a file"},
    {0},
};

/* *token is "" where there is none. */
static ht_status read_token(const cli_live *live, ht_context *ctx, char token[MOST_TOKEN])
{
    const char *variable = getenv(token_variable);
    token[0] = '\0';
    if (!live->token_file) {
        if (variable && snprintf(token, MOST_TOKEN, "%s", variable) >= MOST_TOKEN)
            HT_FAIL(ctx, HT_EINVAL, "%s: the token is too long", token_variable);
        return HT_OK;
    }
    FILE *file = fopen(live->token_file, "rbe");
    if (!file) HT_FAIL(ctx, HT_EINVAL, "--http-token-file %s: %s", live->token_file, strerror(errno));
    bool any = fgets(token, MOST_TOKEN, file) != NULL;
    fclose(file);
    token[strcspn(token, "\r\n")] = '\0';
    if (!any || !token[0]) HT_FAIL(ctx, HT_EINVAL, "--http-token-file %s: its first line is empty", live->token_file);
    return HT_OK;
}

static ht_status open_server(ht_http_server **out, const cli_live *live, live_run *run)
{
    char token[MOST_TOKEN];
    HT_TRY(read_token(live, &run->ctx, token));
    ht_http_opts opts = {.address = live->address,
                         .token = token[0] ? token : NULL,
                         .contents = contents,
                         .content_count = CONTENTS,
                         .arg = run};
    return ht_http_open(out, &run->ctx, &opts);
}

static ht_status serve(ht_http_server *server, live_run *run, const char *folder, int until)
{
    run->folder = folder;
    HT_TRY(ht_follower_open(&run->follower, &run->ctx, folder));
    return ht_http_run(server, until);
}

int cli_live_serve(const cli_live *live, const char *folder, int until)
{
    live_run run = {.folder = folder};
    ht_http_server *server;
    ht_status status = open_server(&server, live, &run);
    if (status == HT_OK) cli_tell("halftone: serving at ", ht_http_url(server));
    if (status == HT_OK) status = serve(server, &run, folder, until);
    ht_http_close(server);
    ht_follower_free(run.follower);
    return status == HT_OK ? CLI_DONE : cli_fail(cli_end_of(status), "watch: --http %s", run.ctx.message);
}

/* ---- the process beside a training ---- */

/* What the process says when it is ready, or why it is not; and what it is told when the job's config is read. */
typedef struct greeting {
    int end; /* CLI_DONE, or how the program ends */
    char text[1024];
} greeting;
typedef struct assignment {
    char folder[4096];
} assignment;

/* Whatever ends a training by a signal is for the training; this process ends when the socket says so. */
static void detach(void)
{
    static const int ignored[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE};
    for (size_t i = 0; i < sizeof ignored / sizeof ignored[0]; i++) signal(ignored[i], SIG_IGN);
    setpriority(PRIO_PROCESS, 0, LOWEST_PRIORITY);
    prctl(PR_SET_NAME, "halftone-http");
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int file = 0; null >= 0 && file <= STDERR_FILENO; file++) dup2(null, file);
}

static void run_process(const cli_live *live, int socket)
{
    assignment work;
    live_run run = {.folder = ""};
    ht_http_server *server;
    greeting hello = {CLI_DONE, ""};
    ht_status status = open_server(&server, live, &run);
    hello.end = cli_end_of(status);
    snprintf(hello.text, sizeof hello.text, "%s", status == HT_OK ? ht_http_url(server) : run.ctx.message);
    detach();
    bool told = write(socket, &hello, sizeof hello) == (ssize_t)sizeof hello;
    if (told && status == HT_OK && recv(socket, &work, sizeof work, MSG_WAITALL) == (ssize_t)sizeof work)
        (void)serve(server, &run, work.folder, socket); /* nobody is left to hear of a failure */
    _exit(0);
}

int cli_live_start(cli_live *live, const char *command)
{
    int ends[2];
    greeting hello;
    if (!live->address && live->token_file)
        return cli_fail(CLI_WRONG, "%s: --http-token-file comes with --http", command);
    if (!live->address) return CLI_DONE;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        return cli_fail(CLI_FAILED, "%s: --http %s: %s", command, live->address, strerror(errno));
    fflush(NULL);
    live->process = fork();
    if (live->process == 0) {
        close(ends[0]);
        run_process(live, ends[1]);
    }
    close(ends[1]);
    live->socket = ends[0];
    if (live->process < 0)
        snprintf(hello.text, sizeof hello.text, "%s: %s", live->address, strerror(errno));
    else if (recv(live->socket, &hello, sizeof hello, MSG_WAITALL) != (ssize_t)sizeof hello)
        snprintf(hello.text, sizeof hello.text, "%s: its process ended early", live->address), hello.end = CLI_FAILED;
    else if (hello.end == CLI_DONE) {
        snprintf(live->url, sizeof live->url, "%.*s", (int)sizeof live->url - 1, hello.text);
        return CLI_DONE;
    }
    int end = live->process < 0 ? CLI_FAILED : hello.end;
    cli_live_stop(live);
    return cli_fail(end, "%s: --http %s", command, hello.text);
}

void cli_live_show(cli_live *live, const char *folder)
{
    if (live->process <= 0) return;
    assignment work = {""};
    snprintf(work.folder, sizeof work.folder, "%s", folder);
    /* Without a signal: a server that has died is no reason to stop. */
    bool sent = send(live->socket, &work, sizeof work, MSG_NOSIGNAL) == (ssize_t)sizeof work;
    cli_tell("halftone: ", sent ? live->url : "the server of --http has died; the training goes on");
}

void cli_live_stop(cli_live *live)
{
    if (live->process == 0) return;
    close(live->socket);
    for (int i = 0; live->process > 0; i++) {
        pid_t ended = waitpid(live->process, NULL, i < STOP_TRIES ? WNOHANG : 0);
        if (ended == live->process || (ended < 0 && errno != EINTR)) break;
        /* It may be in the middle of a page. */
        if (i == STOP_TRIES - 1) kill(live->process, SIGKILL);
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    }
    live->process = 0;
}
