/* The same over MPI, Open MPI and MPICH, each with its own mpirun and shim: this program starts itself as its ranks.
 * What is not installed is skipped. */
#include <dlfcn.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "context_fixture.h"
#include "rank_cases.h"

#if defined(__SANITIZE_THREAD__)
enum { SEES_THREADS = 1 }; /* it knows nothing of what MPI libraries do among their own threads */
#else
enum { SEES_THREADS = 0 };
#endif

/* ---- a rank ---- */

static ht_status run_collectives(ht_comm *world, ht_context *messages)
{
    HT_TRY(rank_case_collectives(world, messages, true));
    HT_TRY(rank_case_groups(world, messages, 2));
    return ht_comm_barrier(world, messages);
}

static ht_status sum_forever(ht_comm *world, ht_context *messages)
{
    float x[1000] = {0};
    for (;;) {
        ht_comm_call call = {.kind = HT_COMM_ALL_REDUCE, .dtype = HT_F32, .in = x, .out = x, .elems = 1000};
        HT_TRY(ht_comm_run(world, messages, &call));
    }
}

/* Rank 1 hangs, or is killed, behind the third call. */
static ht_status signal_rank_1(ht_comm *world, ht_context *messages, int number)
{
    for (int i = 0; i < 3; i++) HT_TRY(ht_comm_barrier(world, messages));
    if (ht_comm_rank(world) == 1) raise(number);
    return sum_forever(world, messages);
}

static ht_status fail_on_rank_1(ht_comm *world, ht_context *messages)
{
    HT_TRY(ht_comm_barrier(world, messages));
    if (ht_comm_rank(world) == 1) HT_FAIL(messages, HT_EIO, "the disk is full");
    return sum_forever(world, messages);
}

static ht_status differ(ht_comm *world, ht_context *messages)
{
    ht_comm_fact facts[] = {{"version", 1, NULL}, {"config", ht_comm_rank(world) == 1 ? 2 : 3, NULL}};
    return ht_comm_agree(world, messages, facts, 2);
}

static ht_status do_something_else(ht_comm *world, ht_context *messages)
{
    char in[64] = {0}, out[256];
    ht_comm_call call = {.kind = HT_COMM_ALL_GATHER, .dtype = HT_U8, .in = in, .out = out};
    call.elems = ht_comm_rank(world) == 1 ? 32 : 64;
    return ht_comm_run(world, messages, &call);
}

/* The library that a rank of this flavour has, as a caller that uses MPI himself would. */
static void *open_library(const char *flavour)
{
    const char *name = strcmp(flavour, "openmpi") == 0 ? "libmpi.so.40" : "libmpich.so.12";
    return dlopen(name, RTLD_NOW | RTLD_GLOBAL);
}

static int initialise(const char *flavour, int level)
{
    int (*init)(int *, char ***, int, int *);
    int provided;
    *(void **)&init = dlsym(RTLD_DEFAULT, "MPI_Init_thread");
    if (!open_library(flavour)) return 1;
    if (!init) *(void **)&init = dlsym(RTLD_DEFAULT, "MPI_Init_thread");
    return init(NULL, NULL, level, &provided);
}

static void finalise(void)
{
    int (*end)(void);
    *(void **)&end = dlsym(RTLD_DEFAULT, "MPI_Finalize");
    end();
}

/* The caller's own communicator: MPI_COMM_WORLD, as each flavour has it. */
static ht_status open_with_handle(ht_comm **world, ht_context *ctx, const char *flavour)
{
    void *pointer = dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world");
    int number = 0x44000000;
    return ht_comm_open_mpi(world, ctx, strcmp(flavour, "openmpi") == 0 ? (void *)&pointer : (void *)&number);
}

static ht_status run_rank(const char *name, ht_comm *world, ht_context *ctx)
{
    if (strcmp(name, "hang") == 0) return signal_rank_1(world, ctx, SIGSTOP);
    if (strcmp(name, "die") == 0) return signal_rank_1(world, ctx, SIGKILL);
    if (strcmp(name, "fail") == 0) return fail_on_rank_1(world, ctx);
    if (strcmp(name, "differ") == 0) return differ(world, ctx);
    if (strcmp(name, "other_size") == 0) return do_something_else(world, ctx);
    return run_collectives(world, ctx);
}

enum { MPI_LEVEL_SINGLE = 0, MPI_LEVEL_SERIALIZED = 2 }; /* of both flavours */

/* As `halftone train` would: what is wrong is told, and ends the job. */
static int be_rank(const char *name)
{
    ht_context *ctx = context_create(1, NULL);
    ht_launcher launcher;
    ht_comm *world = NULL;
    ht_status status = ht_launcher_find(&launcher, ctx);
    bool caller = strcmp(name, "serialized") == 0;
    if (caller) initialise(launcher.mpi, MPI_LEVEL_SERIALIZED);
    if (strcmp(name, "single") == 0) initialise(launcher.mpi, MPI_LEVEL_SINGLE);
    if (status == HT_OK)
        status = caller ? open_with_handle(&world, ctx, launcher.mpi) : ht_comm_open(&world, ctx, &launcher);
    if (status == HT_OK) status = run_rank(name, world, ctx);
    if (status != HT_OK) fprintf(stderr, "[rank %d] %s\n", launcher.rank, ht_context_message(ctx));
    if (status != HT_OK && world) ht_comm_abort(world, ht_context_message(ctx));
    if (status == HT_OK) printf("[rank %d of %d by %s]\n", ht_comm_rank(world), ht_comm_size(world), launcher.name);
    ht_comm_free(world);
    if (caller) finalise();
    ht_context_free(ctx);
    return status == HT_OK ? 0 : 1;
}

/* ---- the test ---- */

static char self[4096], said[65536];
static int ended;

static bool has_shim(const char *flavour)
{
    char path[8192];
    char *slash;
    snprintf(path, sizeof path, "%s", self);
    slash = strrchr(path, '/');
    snprintf(slash, sizeof path - (size_t)(slash - path), "/../libhalftone_mpi_%s.so", flavour);
    return access(path, R_OK) == 0;
}

static void need(const char *flavour)
{
    char command[128];
    snprintf(command, sizeof command, "command -v mpirun.%s >/dev/null", flavour);
    if (SEES_THREADS || !has_shim(flavour) || system(command) != 0) skip();
}

#define OPENMPI_OPTIONS "--allow-run-as-root --oversubscribe --bind-to none"

static void start(const char *command)
{
    FILE *out = popen(command, "r");
    assert_non_null(out);
    size_t length = fread(said, 1, sizeof said - 1, out);
    said[length] = 0;
    ended = pclose(out);
}

/* MPI libraries leave memory behind, which is not ours to tell. */
static void start_ranks(const char *flavour, int ranks, const char *name)
{
    char command[8192];
    const char *options = strcmp(flavour, "openmpi") == 0 ? OPENMPI_OPTIONS : "";
    snprintf(command, sizeof command, "ASAN_OPTIONS=detect_leaks=0 mpirun.%s %s -n %d '%s' '%s' 2>&1", flavour, options,
             ranks, self, name);
    start(command);
}

static void must_say(const char *text)
{
    if (!strstr(said, text)) fail_msg("'%s' is not in: %s", text, said);
}

static void check_collectives(const char *flavour, const char *name)
{
    need(flavour);
    for (int ranks = 2; ranks <= 4; ranks += 2) {
        char text[64];
        start_ranks(flavour, ranks, name);
        if (ended != 0) fail_msg("%d ranks: %s", ranks, said);
        for (int rank = 0; rank < ranks; rank++) {
            snprintf(text, sizeof text, "[rank %d of %d by ", rank, ranks);
            must_say(text);
        }
    }
}

/* examples/ranks/own_mpi.c: every number of ranks makes the steps of one. */
static void mpi__a_program_with_its_own_mpi_trains(void **state)
{
    const char *flavour = *state, *options = strcmp(flavour, "openmpi") == 0 ? OPENMPI_OPTIONS : "";
    char folder[4096], command[16384];
    need(flavour);
    snprintf(folder, sizeof folder, "%s", self);
    strrchr(folder, '/')[0] = 0;
    snprintf(command, sizeof command, "%s/../examples/own_mpi_%s", folder, flavour);
    if (access(command, X_OK) != 0) skip();
    double alone = 0;
    for (int ranks = 1; ranks <= 4; ranks++) {
        snprintf(command, sizeof command, "mpirun.%s %s -n %d '%s/../examples/own_mpi_%s' 2>&1", flavour, options,
                 ranks, folder, flavour);
        start(command);
        const char *last = strstr(said, "step 200 loss ");
        if (ended != 0 || !last) fail_msg("%d ranks: %s", ranks, said);
        double loss = strtod(last + strlen("step 200 loss "), NULL);
        if (ranks == 1) alone = loss;
        if (!(fabs(loss - alone) < 1e-4 && loss < 0.02)) fail_msg("%d ranks: %s, and alone %.5f", ranks, said, alone);
    }
}

static void must_end(const char *flavour, const char *name, const char *text)
{
    need(flavour);
    time_t from = time(NULL);
    start_ranks(flavour, 3, name);
    assert_int_not_equal(ended, 0);
    must_say(text);
    assert_true(time(NULL) - from < 120); /* by itself, and not by the timeout of half an hour */
}

/* `flavour` by the case's state. */
static void mpi__every_collective_is_exact(void **state)
{
    check_collectives(*state, "collectives");
}

static void mpi__a_caller_may_hand_in_his_communicator_for_one_thread_at_a_time(void **state)
{
    check_collectives(*state, "serialized");
}

static void mpi__a_library_for_one_thread_alone_is_refused(void **state)
{
    must_end(*state, "single", "MPI was initialised for one thread");
}

static void mpi__a_killed_rank_ends_the_job(void **state)
{
    must_end(*state, "die", "");
}

static void mpi__a_rank_that_fails_ends_the_job_with_its_reason(void **state)
{
    must_end(*state, "fail", "[rank 1] the disk is full");
}

static void mpi__a_hanging_rank_is_named_with_the_last_calls_of_the_others(void **state)
{
    setenv("HALFTONE_COMM_TIMEOUT_S", "2", 1);
    must_end(*state, "hang",
             "timeout after 2 s in all_reduce 4 of world: no answer from rank 1; last calls: rank 0 all_reduce 4");
    must_say("rank 2 all_reduce 4 of world");
    unsetenv("HALFTONE_COMM_TIMEOUT_S");
}

static void mpi__what_differs_is_named(void **state)
{
    must_end(*state, "differ",
             "ranks differ in config: rank 1 has 0000000000000002, where rank 0 has 0000000000000003");
}

static void mpi__ranks_that_do_different_things_are_told_so(void **state)
{
    must_end(*state, "other_size", "all_gather 1 of world");
}

int main(int argc, char **argv)
{
    if (argc > 1) return be_rank(argv[1]);
    ssize_t length = readlink("/proc/self/exe", self, sizeof self - 1);
    self[length > 0 ? length : 0] = 0;
    static char openmpi[] = "openmpi", mpich[] = "mpich";
#define BOTH(name) cmocka_unit_test_prestate(name, openmpi), cmocka_unit_test_prestate(name, mpich)
    const struct CMUnitTest tests[] = {
        BOTH(mpi__every_collective_is_exact),
        BOTH(mpi__a_caller_may_hand_in_his_communicator_for_one_thread_at_a_time),
        BOTH(mpi__a_program_with_its_own_mpi_trains),
        BOTH(mpi__a_library_for_one_thread_alone_is_refused),
        BOTH(mpi__a_killed_rank_ends_the_job),
        BOTH(mpi__a_rank_that_fails_ends_the_job_with_its_reason),
        BOTH(mpi__a_hanging_rank_is_named_with_the_last_calls_of_the_others),
        BOTH(mpi__what_differs_is_named),
        BOTH(mpi__ranks_that_do_different_things_are_told_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
