#include "cli/train_ranks.h"
#include "device/device.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

int cli_ranks_find(ht_context *ctx, const char *command, int64_t asked, ht_launcher *launcher, int64_t *size)
{
    *size = 1;
    if (ht_launcher_find(launcher, ctx) != HT_OK)
        return cli_fail(CLI_WRONG, "%s: %s", command, ht_context_message(ctx));
    if (launcher->name && asked > 0)
        return cli_fail(CLI_WRONG,
                        "%s: --ranks %" PRId64 ": this process is one of %d ranks that %s has started already", command,
                        asked, launcher->size, launcher->name);
    *size = launcher->name ? launcher->size : asked > 0 ? asked : 1;
    return CLI_DONE;
}

static int tell(const char *command, const cli_rank_end *end)
{
    if (end->end == CLI_DONE || end->end == CLI_STOPPED) return end->end;
    return cli_fail(end->end, "%s: %s", command, end->reason);
}

/* ---- ranks that a launcher has started ---- */

/* Where it runs, and on what: once, before anything else. */
static void tell_place(const ht_launcher *launcher)
{
    ht_text line = {0};
    char place[256];
    int cores = ht_topology_cores(), gpus = ht_cuda_device_count();
    ht_launcher_describe(launcher, place, sizeof place);
    ht_text_add(&line, "%s, with %d core%s", place, cores, cores == 1 ? "" : "s");
    if (gpus) ht_text_add(&line, " and %d GPU%s", gpus, gpus == 1 ? "" : "s");
    if (!line.failed) cli_tell("halftone: ", line.data);
    ht_text_free(&line);
}

/* MPI waits without limit for a rank that never comes. Who waits cannot know which one: those that are there say so. */
typedef struct rendezvous {
    const ht_launcher *launcher;
    const char *command;
    double timeout_s;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over;
} rendezvous;

static void *watch_rendezvous(void *arg)
{
    enum { GRACE_S = 3 }; /* until the launcher ends the others, which have something to say, too */
    rendezvous *r = arg;
    struct timespec until;
    int timeout = 0;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += (time_t)r->timeout_s + 1;
    pthread_mutex_lock(&r->lock);
    while (!r->over && timeout == 0) timeout = pthread_cond_timedwait(&r->changed, &r->lock, &until);
    if (!r->over) {
        cli_fail(CLI_FAILED, "%s: timeout after %g s: rank %d of %d is here; ranks that do not say so have not come",
                 r->command, r->timeout_s, r->launcher->rank, r->launcher->size);
        sleep(GRACE_S);
        _exit(CLI_FAILED);
    }
    pthread_mutex_unlock(&r->lock);
    return NULL;
}

static ht_status open_comm(ht_comm **out, ht_context *ctx, const char *command, const ht_launcher *launcher)
{
    rendezvous r = {.launcher = launcher, .command = command};
    pthread_condattr_t clock;
    pthread_t thread;
    HT_TRY(ht_comm_timeout(ctx, &r.timeout_s));
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_mutex_init(&r.lock, NULL);
    pthread_cond_init(&r.changed, &clock);
    bool watched = pthread_create(&thread, NULL, watch_rendezvous, &r) == 0;
    ht_status status = ht_comm_open(out, ctx, launcher);
    pthread_mutex_lock(&r.lock);
    r.over = true;
    pthread_cond_signal(&r.changed);
    pthread_mutex_unlock(&r.lock);
    if (watched) pthread_join(thread, NULL);
    pthread_cond_destroy(&r.changed);
    pthread_mutex_destroy(&r.lock);
    pthread_condattr_destroy(&clock);
    return status;
}

/* MPI_Abort may wait for a rank that hangs: then the process ends by a signal, and its launcher ends the others. */
static void end_all(ht_comm *world, const char *reason)
{
    enum { MOST_S = 5 };
    alarm(MOST_S);
    ht_comm_abort(world, reason);
}

/* Where a rank cannot begin, none does. The first of those says why; rank 0 has said so already. */
static int begin_together(ht_comm *world, ht_context *ctx, const char *command, int prepared, const char *reason)
{
    int rank = ht_comm_rank(world);
    int64_t first = prepared == CLI_DONE ? ht_comm_size(world) : rank;
    ht_comm_call call = {.kind = HT_COMM_ALL_REDUCE,
                         .dtype = HT_I64,
                         .reduction = HT_COMM_MIN,
                         .in = &first,
                         .out = &first,
                         .elems = 1,
                         .site = "the start"};
    if (ht_comm_run(world, ctx, &call) != HT_OK) {
        cli_fail(CLI_FAILED, "%s: %s", command, ht_context_message(ctx));
        end_all(world, ht_context_message(ctx));
        return CLI_FAILED;
    }
    if (first == ht_comm_size(world)) return CLI_DONE;
    if (first == rank && rank > 0) cli_fail(prepared, "%s: %s", command, reason);
    (void)ht_comm_barrier(world, ctx); /* a launcher ends all once one has left */
    return prepared == CLI_DONE ? CLI_WRONG : prepared;
}

static int run_launched(ht_context *ctx, const char *command, const ht_launcher *launcher, int prepared,
                        cli_rank_fn work, void *arg)
{
    ht_comm *world;
    cli_rank_end end = {.end = CLI_FAILED};
    snprintf(end.reason, sizeof end.reason, "%s", ht_context_message(ctx));
    if (open_comm(&world, ctx, command, launcher) != HT_OK)
        return cli_fail(CLI_FAILED, "%s: %s", command, ht_context_message(ctx));
    int begun = begin_together(world, ctx, command, prepared, end.reason);
    if (begun != CLI_DONE) {
        ht_comm_free(world);
        return begun;
    }
    if (launcher->rank == 0) tell_place(launcher);
    work(arg, ctx, world, launcher->local_size > 0 ? launcher->local_size : 1, &end);
    int code = tell(command, &end);
    if (code != CLI_DONE && code != CLI_STOPPED) end_all(world, end.reason);
    ht_comm_free(world);
    return code;
}

/* ---- ranks that are threads ---- */

typedef struct thread_ranks {
    cli_rank_fn work;
    void *arg;
    int size, threads; /* threads of each */
    pthread_mutex_t lock;
    cli_rank_end told; /* how all ended, or the failure to tell */
    int rank;          /* that it is of; -1: nobody has ended yet */
} thread_ranks;

static bool is_failure(const cli_rank_end *end)
{
    return end->end != CLI_DONE && end->end != CLI_STOPPED;
}

/* Failures come first, those of a rank's own before those that followed from them; and then the lowest rank, so that a
 * mistake that all of them find is told the same way every time. */
static void note_end(thread_ranks *t, const cli_rank_end *end, int rank)
{
    pthread_mutex_lock(&t->lock);
    int was = t->rank < 0 ? -1 : is_failure(&t->told) ? 2 - t->told.by_others : 0;
    int is = is_failure(end) ? 2 - end->by_others : 0;
    if (is > was || (is == was && is == 2 && rank < t->rank)) {
        t->told = *end;
        t->rank = rank;
    }
    pthread_mutex_unlock(&t->lock);
}

static ht_status run_rank(void *arg, ht_comm *world, ht_context *messages)
{
    thread_ranks *t = arg;
    cli_rank_end end = {.end = CLI_FAILED};
    ht_context *ctx;
    int status = cli_context_of_rank(&ctx, t->threads, ht_comm_rank(world) > 0, end.reason, sizeof end.reason);
    if (status == CLI_DONE) t->work(t->arg, ctx, world, t->size, &end);
    ht_context_free(ctx);
    note_end(t, &end, ht_comm_rank(world));
    if (!is_failure(&end)) return HT_OK;
    HT_FAIL(messages, HT_ERANK, "%s", end.reason);
}

static int run_threads(ht_context *ctx, const char *command, int64_t size, cli_rank_fn work, void *arg)
{
    int all = ht_context_threads(ctx), each = all / (int)size;
    thread_ranks t = {.work = work, .arg = arg, .size = (int)size, .threads = each > 0 ? each : 1, .rank = -1};
    ht_thread_ranks_opts opts = {.ranks = (int)size};
    pthread_mutex_init(&t.lock, NULL);
    ht_status status = ht_thread_ranks_run(ctx, &opts, run_rank, &t);
    pthread_mutex_destroy(&t.lock);
    if (t.rank < 0 || (status != HT_OK && !is_failure(&t.told)))
        return cli_fail(CLI_FAILED, "%s: %s", command, ht_context_message(ctx));
    if (is_failure(&t.told) && t.rank > 0)
        return cli_fail(t.told.end, "%s: rank %d: %s", command, t.rank, t.told.reason);
    return tell(command, &t.told);
}

int cli_ranks_run(ht_context *ctx, const char *command, const ht_launcher *launcher, int64_t size, int prepared,
                  cli_rank_fn work, void *arg)
{
    if (launcher->name && size > 1) return run_launched(ctx, command, launcher, prepared, work, arg);
    if (prepared != CLI_DONE) return prepared;
    if (size > 1) return run_threads(ctx, command, size, work, arg);
    cli_rank_end end = {.end = CLI_FAILED};
    work(arg, ctx, NULL, 1, &end);
    return tell(command, &end);
}
