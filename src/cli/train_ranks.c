#include "cli/train_ranks.h"
#include "cli/rendezvous.h"
#include "device/device.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

void cli_rank_tell_place(const ht_launcher *launcher)
{
    ht_text line = {0};
    char place[256];
    int cores = ht_topology_cores(), gpus = ht_cuda_device_count();
    ht_launcher_describe(launcher, place, sizeof place);
    ht_text_add(&line, "%s, process %ld, with %d core%s", place, (long)getpid(), cores, cores == 1 ? "" : "s");
    if (gpus) ht_text_add(&line, " and %d GPU%s", gpus, gpus == 1 ? "" : "s");
    if (!line.failed) cli_tell("halftone: ", line.data);
    ht_text_free(&line);
}

typedef struct rank_place {
    char node[64];
    int64_t process, cores, gpus;
} rank_place;

static void put_places(ht_text *text, const ht_launcher *launcher, const rank_place *all)
{
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "launcher", launcher->name);
    ht_json_begin_array(&json, "ranks");
    for (int i = 0; i < launcher->size; i++) {
        ht_json_line(&json, 2);
        ht_json_begin_object(&json, NULL);
        ht_json_put_int(&json, "rank", i);
        ht_json_put_text(&json, "node", all[i].node);
        ht_json_put_int(&json, "process", all[i].process);
        ht_json_put_int(&json, "cores", all[i].cores);
        ht_json_put_int(&json, "gpus", all[i].gpus);
        ht_json_end_object(&json);
    }
    ht_json_end_array(&json);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}

ht_status cli_ranks_record(ht_comm *world, ht_context *ctx, const ht_launcher *launcher, const char *folder)
{
    rank_place own = {.process = getpid(), .cores = ht_topology_cores(), .gpus = ht_cuda_device_count()};
    ht_text text = {0}, path = {0};
    if (!world || !launcher->name) return HT_OK;
    snprintf(own.node, sizeof own.node, "%s", launcher->node);
    rank_place *all = calloc((size_t)launcher->size, sizeof *all);
    if (!all) HT_FAIL(ctx, HT_ENOMEM, "out of memory for ranks");
    ht_comm_call call = {
        .kind = HT_COMM_ALL_GATHER, .dtype = HT_U8, .in = &own, .out = all, .elems = sizeof own, .site = "the start"};
    ht_status status = ht_comm_run(world, ctx, &call);
    if (status == HT_OK && launcher->rank == 0) {
        put_places(&text, launcher, all);
        ht_text_add(&path, "%s/ranks.json", folder);
        if (path.failed || !cli_write_file(path.data, &text))
            status = ht_fail(ctx, HT_EIO, "%s/ranks.json: %s", folder, path.failed ? "out of memory" : strerror(errno));
    }
    ht_text_free(&text);
    ht_text_free(&path);
    free(all);
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
    if (cli_rendezvous(&world, ctx, command, launcher) != HT_OK)
        return cli_fail(CLI_FAILED, "%s: %s", command, ht_context_message(ctx));
    int begun = begin_together(world, ctx, command, prepared, end.reason);
    if (begun != CLI_DONE) {
        ht_comm_free(world);
        return begun;
    }
    if (launcher->rank == 0) cli_rank_tell_place(launcher);
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
