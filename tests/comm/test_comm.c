/* Ranks that are threads: every collective, groups, requests, and how a world ends when one rank dies, hangs, leaves
 * or does something else than the others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "context_fixture.h"
#include "rank_cases.h"

static ht_status run(ht_thread_ranks_opts opts, ht_rank_fn fn, void *arg)
{
    return ht_thread_ranks_run(test_ctx, &opts, fn, arg);
}

static void must_run(ht_thread_ranks_opts opts, ht_rank_fn fn, void *arg)
{
    context_must(test_ctx, run(opts, fn, arg));
}

static void must_fail(ht_thread_ranks_opts opts, ht_rank_fn fn, void *arg, const char *first, const char *second)
{
    assert_int_equal(run(opts, fn, arg), HT_ERANK);
    const char *message = ht_context_message(test_ctx);
    if (!strstr(message, first) || !strstr(message, second))
        fail_msg("'%s' lacks '%s' or '%s'", message, first, second);
}

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + 1e-9 * (double)at.tv_nsec;
}

/* ---- collectives ---- */

static ht_status collectives(void *arg, ht_comm *world, ht_context *messages)
{
    return rank_case_collectives(world, messages, *(bool *)arg);
}

static void comm__every_collective_is_exact_for_one_to_eight_ranks(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 8; ranks++) {
        bool longest = ranks == 2 || ranks == 3 || ranks == 8;
        must_run((ht_thread_ranks_opts){.ranks = ranks}, collectives, &longest);
    }
}

/* Calls of every kind, in one message and in parts; the first rank is the root, too. */
static ht_status count_sent(void *arg, ht_comm *world, ht_context *messages)
{
    static const int64_t sizes[] = {1, 100, 8192, 8193, 300007, 3000000};
    int ranks = ht_comm_size(world);
    (void)arg;
    float *in = calloc((size_t)(3000000 * ranks), sizeof *in), *out = calloc((size_t)(3000000 * ranks), sizeof *out);
    ht_status status = in && out ? HT_OK : ht_fail(messages, HT_ENOMEM, "out of memory");
    for (int kind = HT_COMM_BROADCAST; kind < HT_COMM_SEND && status == HT_OK; kind++)
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0] && status == HT_OK; i++) {
            int64_t before = ht_comm_traffic_of(world).bytes;
            ht_comm_sent sent = ht_comm_call_sent((ht_comm_kind)kind, HT_F32, sizes[i], ranks);
            status = ht_comm_run(
                world, messages,
                &(ht_comm_call){.kind = (ht_comm_kind)kind, .dtype = HT_F32, .in = in, .out = out, .elems = sizes[i]});
            int64_t bytes = ht_comm_traffic_of(world).bytes - before;
            if (status == HT_OK && ht_comm_rank(world) == 0 && bytes != sent.bytes)
                status = ht_fail(messages, HT_EINVAL, "%s of %lld by %d ranks sent %lld bytes, not %lld",
                                 ht_comm_kind_names[kind], (long long)sizes[i], ranks, (long long)bytes,
                                 (long long)sent.bytes);
        }
    free(in);
    free(out);
    return status;
}

static void comm__calls_send_what_is_foretold(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks++) must_run((ht_thread_ranks_opts){.ranks = ranks}, count_sent, NULL);
    ht_comm_sent sent = ht_comm_call_sent(HT_COMM_ALL_REDUCE, HT_F32, 3000000, 4);
    assert_int_equal(sent.bytes, 2 * 3 * 3000000);
    /* A piece of 750000 elements is sent in rounds of 4 MiB by all three, and comes back as it is. */
    assert_int_equal(sent.messages, 3 * 3 + 3);
    assert_int_equal(ht_comm_call_sent(HT_COMM_SEND, HT_F32, 100, 4).bytes, 400);
    assert_int_equal(ht_comm_call_sent(HT_COMM_RECV, HT_F32, 100, 4).messages, 0);
}

static void comm__a_world_of_one_copies(void **state)
{
    (void)state;
    ht_comm *self;
    context_must(test_ctx, ht_comm_open_self(&self, test_ctx));
    assert_int_equal(ht_comm_size(self), 1);
    assert_string_equal(ht_comm_transport(self), "self");
    context_must(test_ctx, rank_case_collectives(self, test_ctx, true));
    context_must(test_ctx, rank_case_requests(self, test_ctx));
    /* A copy, bit for bit: not even a signalling NaN becomes quiet. */
    uint16_t odd = 0x7C01, got = 0;
    context_must(
        test_ctx,
        ht_comm_run(self, test_ctx,
                    &(ht_comm_call){.kind = HT_COMM_ALL_REDUCE, .dtype = HT_F16, .in = &odd, .out = &got, .elems = 1}));
    assert_int_equal(got, odd);
    ht_comm_free(self);
}

typedef struct grid {
    int columns;
} grid;

static ht_status groups(void *arg, ht_comm *world, ht_context *messages)
{
    return rank_case_groups(world, messages, ((grid *)arg)->columns);
}

static void comm__groups_are_worlds_of_their_own(void **state)
{
    (void)state;
    must_run((ht_thread_ranks_opts){.ranks = 4}, groups, &(grid){2});
    must_run((ht_thread_ranks_opts){.ranks = 6}, groups, &(grid){3});
    must_run((ht_thread_ranks_opts){.ranks = 8}, groups, &(grid){2});
}

static ht_status requests(void *arg, ht_comm *world, ht_context *messages)
{
    (void)arg;
    for (int i = 0; i < 3; i++) HT_TRY(rank_case_requests(world, messages));
    return HT_OK;
}

static void comm__random_delays_change_no_bit(void **state)
{
    (void)state;
    int seeds = getenv("HALFTONE_LONG") ? 50 : 5;
    for (int seed = 0; seed < seeds; seed++) {
        ht_thread_ranks_opts opts = {.ranks = 2 + seed % 4, .most_delay_us = 300, .seed = (uint64_t)seed};
        must_run(opts, requests, NULL);
        opts.ranks = 4;
        opts.most_delay_us = 30;
        must_run(opts, groups, &(grid){2});
    }
}

/* A NaN of one rank is seen by all, by sums and by extremes. */
static ht_status nan_stays(void *arg, ht_comm *world, ht_context *messages)
{
    (void)arg;
    for (int reduction = 0; reduction < HT_COMM_REDUCTION_COUNT; reduction++)
        for (int from = 0; from < ht_comm_size(world); from++) {
            float x = ht_comm_rank(world) == from ? (float)NAN : 1;
            ht_comm_call call = {
                .kind = HT_COMM_ALL_REDUCE, .dtype = HT_F32, .reduction = (ht_comm_reduction)reduction};
            call.in = call.out = &x;
            call.elems = 1;
            HT_TRY(ht_comm_run(world, messages, &call));
            if (x == x) HT_FAIL(messages, HT_EVERIFY, "the NaN of rank %d is lost", from);
        }
    return HT_OK;
}

static void comm__a_nan_reaches_all_ranks(void **state)
{
    (void)state;
    must_run((ht_thread_ranks_opts){.ranks = 3}, nan_stays, NULL);
}

static ht_status wrong_calls(void *arg, ht_comm *world, ht_context *messages)
{
    (void)arg;
    static const ht_comm_call wrong[] = {
        {.kind = HT_COMM_KIND_COUNT},
        {.kind = HT_COMM_ALL_REDUCE, .dtype = HT_F32, .elems = -1},
        {.kind = HT_COMM_BROADCAST, .dtype = HT_F32, .peer = 9},
        {.kind = HT_COMM_ALL_REDUCE, .dtype = HT_BOOL, .reduction = HT_COMM_SUM},
        {.kind = HT_COMM_REDUCE_SCATTER, .dtype = HT_F8E4M3},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (ht_comm_run(world, messages, &wrong[i]) == HT_OK) HT_FAIL(messages, HT_EVERIFY, "call %zu passed", i);
    ht_comm_call own = {.kind = HT_COMM_SEND, .dtype = HT_F32, .peer = ht_comm_rank(world)};
    if (ht_comm_run(world, messages, &own) != HT_EINVAL) HT_FAIL(messages, HT_EVERIFY, "a rank may send to itself");
    ht_comm *group;
    int twice[] = {0, 1, 0}, missing[] = {(ht_comm_rank(world) + 1) % 2}, beyond[] = {0, 1, 2};
    if (ht_comm_add_group(&group, world, messages, "g", twice, 3) != HT_EINVAL ||
        ht_comm_add_group(&group, world, messages, "g", missing, 1) != HT_EINVAL ||
        ht_comm_add_group(&group, world, messages, "g", beyond, 3) != HT_EINVAL ||
        ht_comm_add_group(&group, world, messages, "world", beyond, 2) != HT_EINVAL)
        HT_FAIL(messages, HT_EVERIFY, "a wrong group passed");
    return ht_comm_barrier(world, messages); /* nothing of this is held against the world */
}

static void comm__wrong_calls_are_refused_and_the_world_goes_on(void **state)
{
    (void)state;
    must_run((ht_thread_ranks_opts){.ranks = 2}, wrong_calls, NULL);
    assert_int_equal(run((ht_thread_ranks_opts){.ranks = 0}, wrong_calls, NULL), HT_EINVAL);
}

/* ---- ends ---- */

static ht_status sum_often(void *arg, ht_comm *world, ht_context *messages)
{
    float x[3000];
    for (int i = 0; i < *(int *)arg; i++) {
        for (int k = 0; k < 3000; k++) x[k] = 1;
        ht_comm_call call = {.kind = HT_COMM_ALL_REDUCE, .dtype = HT_F32, .in = x, .out = x, .elems = 3000};
        call.site = "the test";
        HT_TRY(ht_comm_run(world, messages, &call));
    }
    return HT_OK;
}

static void comm__a_dead_rank_ends_the_others_and_is_named(void **state)
{
    (void)state;
    double from = now();
    for (int rank = 0; rank < 4; rank++)
        for (int at = 1; at < 6; at++) {
            char name[32];
            snprintf(name, sizeof name, "rank %d", rank);
            must_fail(
                (ht_thread_ranks_opts){
                    .ranks = 4, .most_delay_us = 100, .seed = (uint64_t)at, .death_rank = rank, .death_at = at},
                sum_often, &(int){100}, name, "told to die");
        }
    assert_true(now() - from < 300); /* by themselves, and not by the timeout of half an hour */
}

/* What the survivors say. */
static ht_status survive(void *arg, ht_comm *world, ht_context *messages)
{
    (void)arg;
    int rank = ht_comm_rank(world);
    if (rank == 1) {
        HT_TRY(ht_comm_barrier(world, messages));
        HT_FAIL(messages, HT_EIO, "the disk is full");
    }
    ht_status status = sum_often(&(int){1}, world, messages);
    if (status == HT_OK) HT_FAIL(messages, HT_EVERIFY, "rank %d does not know that rank 1 failed", rank);
    if (status == HT_ERANK && (!strstr(messages->message, "rank 1") || !strstr(messages->message, "the disk is full")))
        HT_FAIL(messages, HT_EVERIFY, "rank %d says %s", rank, messages->message);
    return status;
}

static ht_status survive_after_barrier(void *arg, ht_comm *world, ht_context *messages)
{
    if (ht_comm_rank(world) != 1) HT_TRY(ht_comm_barrier(world, messages));
    return survive(arg, world, messages);
}

static void comm__a_failure_of_its_own_is_the_reason_that_all_ranks_give(void **state)
{
    (void)state;
    assert_int_equal(run((ht_thread_ranks_opts){.ranks = 3}, survive_after_barrier, NULL), HT_EIO);
    assert_string_equal(ht_context_message(test_ctx), "rank 1: the disk is full");
}

static ht_status hang(void *arg, ht_comm *world, ht_context *messages)
{
    HT_TRY(sum_often(&(int){2}, world, messages));
    if (ht_comm_rank(world) == 2) usleep(700000);
    return sum_often(arg, world, messages);
}

static void comm__a_timeout_names_absent_ranks_and_last_calls(void **state)
{
    (void)state;
    must_fail((ht_thread_ranks_opts){.ranks = 4, .timeout_s = 0.2}, hang, &(int){1},
              "timeout after 0.2 s in all_reduce 3 of world at the test: no word from rank 2;",
              "rank 2 all_reduce 2 of world at the test (done)");
}

static ht_status leave(void *arg, ht_comm *world, ht_context *messages)
{
    return ht_comm_rank(world) == 1 ? HT_OK : sum_often(arg, world, messages);
}

static void comm__a_rank_that_leaves_early_is_named(void **state)
{
    (void)state;
    must_fail((ht_thread_ranks_opts){.ranks = 3}, leave, &(int){1}, "rank 1 has left already", "all_reduce 1");
}

static ht_status do_something_else(void *arg, ht_comm *world, ht_context *messages)
{
    char in[64] = {0}, out[256];
    (void)arg;
    ht_comm_call call = {.kind = HT_COMM_ALL_GATHER, .dtype = HT_U8, .in = in, .out = out};
    call.elems = ht_comm_rank(world) == 1 ? 32 : 64;
    return ht_comm_run(world, messages, &call);
}

static void comm__ranks_that_do_different_things_are_told_so(void **state)
{
    (void)state;
    must_fail((ht_thread_ranks_opts){.ranks = 2}, do_something_else, NULL, "bytes of rank", "all_gather 1 of world");
}

/* A failed request is told by its wait, and by all calls behind it. */
static ht_status fail_later(void *arg, ht_comm *world, ht_context *messages)
{
    float x[2] = {1, 1}, y[2] = {1, 1};
    ht_comm_call call = {.kind = HT_COMM_ALL_REDUCE, .dtype = HT_F32, .in = x, .out = x, .elems = 2};
    ht_comm_request first, second;
    (void)arg;
    HT_TRY(ht_comm_start(world, messages, &call, &first));
    call.in = call.out = y;
    HT_TRY(ht_comm_start(world, messages, &call, &second));
    ht_status status = ht_comm_wait(&second, messages);
    if (status != HT_ERANK || ht_comm_wait(&first, messages) != HT_ERANK ||
        ht_comm_barrier(world, messages) != HT_ERANK)
        HT_FAIL(messages, HT_EVERIFY, "a call behind a failure passed");
    return status;
}

static void comm__a_failure_is_told_by_every_later_call(void **state)
{
    (void)state;
    must_fail((ht_thread_ranks_opts){.ranks = 3, .death_rank = 0, .death_at = 1}, fail_later, NULL, "rank 0",
              "told to die");
}

/* ---- the environment ---- */

static void comm__delays_deaths_and_timeouts_come_from_the_environment(void **state)
{
    (void)state;
    setenv("HALFTONE_COMM_DEATH", "1:2", 1);
    must_fail((ht_thread_ranks_opts){.ranks = 2}, sum_often, &(int){3}, "rank 1", "told to die");
    setenv("HALFTONE_COMM_DEATH", "1", 1);
    assert_int_equal(run((ht_thread_ranks_opts){.ranks = 2}, sum_often, &(int){3}), HT_EINVAL);
    unsetenv("HALFTONE_COMM_DEATH");
    setenv("HALFTONE_COMM_DELAY_US", "20000", 1);
    double from = now();
    must_run((ht_thread_ranks_opts){.ranks = 2}, sum_often, &(int){5});
    assert_true(now() - from >= 0.1);
    setenv("HALFTONE_COMM_DELAY_US", "0..10", 1);
    must_run((ht_thread_ranks_opts){.ranks = 2}, sum_often, &(int){5});
    setenv("HALFTONE_COMM_DELAY_US", "10..0", 1);
    assert_int_equal(run((ht_thread_ranks_opts){.ranks = 2}, sum_often, &(int){1}), HT_EINVAL);
    unsetenv("HALFTONE_COMM_DELAY_US");
    setenv("HALFTONE_COMM_TIMEOUT_S", "0.1", 1);
    must_fail((ht_thread_ranks_opts){.ranks = 3}, hang, &(int){1}, "timeout after 0.1 s", "rank 2");
    setenv("HALFTONE_COMM_TIMEOUT_S", "soon", 1);
    assert_int_equal(run((ht_thread_ranks_opts){.ranks = 2}, sum_often, &(int){1}), HT_EINVAL);
    assert_non_null(strstr(ht_context_message(test_ctx), "HALFTONE_COMM_TIMEOUT_S is 'soon'"));
    unsetenv("HALFTONE_COMM_TIMEOUT_S");
}

/* ---- agreement ---- */

static ht_status agree(void *arg, ht_comm *world, ht_context *messages)
{
    int other = *(int *)arg, rank = ht_comm_rank(world);
    ht_comm_fact facts[] = {
        {"version", 1, "0.1.0"},
        {"config", rank == other ? 8 : 7, NULL},
        {"plan", 3, NULL},
        {"precision", rank == other ? 2 : 1, rank == other ? "fp16" : "bf16"},
    };
    return ht_comm_agree(world, messages, facts, sizeof facts / sizeof facts[0]);
}

static ht_status agree_on_fewer(void *arg, ht_comm *world, ht_context *messages)
{
    ht_comm_fact facts[] = {{"version", 1, NULL}, {"config", 2, NULL}};
    (void)arg;
    return ht_comm_agree(world, messages, facts, ht_comm_rank(world) == 1 ? 1 : 2);
}

static void comm__what_differs_is_named_with_its_rank(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 4; ranks++) must_run((ht_thread_ranks_opts){.ranks = ranks}, agree, &(int){99});
    must_fail((ht_thread_ranks_opts){.ranks = 4}, agree, &(int){2},
              "config: rank 2 has 0000000000000008, where rank 0 has 0000000000000007",
              "precision: rank 2 has fp16, where rank 0 has bf16");
    assert_null(strstr(ht_context_message(test_ctx), "version"));
    assert_null(strstr(ht_context_message(test_ctx), "plan"));
    must_fail((ht_thread_ranks_opts){.ranks = 3}, agree_on_fewer, NULL, "rank 1 compares 1 facts", "rank 0 2");
}

/* ---- the launcher ---- */

static void unset_launchers(void)
{
    static const char *const names[] = {
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMI_RANK",
        "PMI_SIZE",
        "MPI_LOCALRANKID",
        "MPI_LOCALNRANKS",
        "SLURM_PROCID",
        "SLURM_NTASKS",
        "SLURM_STEP_NUM_TASKS",
        "SLURM_LOCALID",
        "SLURM_STEP_TASKS_PER_NODE",
        "SLURM_MPI_TYPE",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
}

static void set_launcher(const char *const *pairs)
{
    unset_launchers();
    for (; pairs[0]; pairs += 2) setenv(pairs[0], pairs[1], 1);
}

static void expect_launcher(const char *const *pairs, const char *name, const char *mpi, int rank, int size, int local)
{
    ht_launcher l;
    char line[256];
    set_launcher(pairs);
    context_must(test_ctx, ht_launcher_find(&l, test_ctx));
    if (name)
        assert_string_equal(l.name, name);
    else
        assert_null(l.name);
    if (mpi)
        assert_string_equal(l.mpi, mpi);
    else
        assert_null(l.mpi);
    assert_int_equal(l.rank, rank);
    assert_int_equal(l.size, size);
    assert_int_equal(l.local_rank, local);
    ht_launcher_describe(&l, line, sizeof line);
    assert_non_null(strstr(line, l.node));
    if (name) assert_non_null(strstr(line, name));
}

#define VARIABLES(...) ((const char *const[]){__VA_ARGS__, NULL})

static void world__every_launcher_is_recognised(void **state)
{
    (void)state;
    expect_launcher(VARIABLES(NULL), NULL, NULL, 0, 1, -1);
    expect_launcher(VARIABLES("OMPI_COMM_WORLD_RANK", "3", "OMPI_COMM_WORLD_SIZE", "4", "OMPI_COMM_WORLD_LOCAL_RANK",
                              "1", "OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
                    "Open MPI", "openmpi", 3, 4, 1);
    expect_launcher(VARIABLES("PMI_RANK", "0", "PMI_SIZE", "2"), "MPICH", "mpich", 0, 2, -1);
    expect_launcher(VARIABLES("SLURM_PROCID", "5", "SLURM_STEP_NUM_TASKS", "8", "SLURM_LOCALID", "1",
                              "SLURM_STEP_TASKS_PER_NODE", "2(x4)", "SLURM_MPI_TYPE", "pmix_v4"),
                    "Slurm", "openmpi", 5, 8, 1);
    expect_launcher(VARIABLES("RANK", "1", "WORLD_SIZE", "2", "LOCAL_RANK", "1"), "torchrun", NULL, 1, 2, 1);
    /* A batch script is no rank; mpirun in a Slurm job is the launcher; one half of a pair says nothing. */
    expect_launcher(VARIABLES("SLURM_PROCID", "0", "SLURM_NTASKS", "8"), NULL, NULL, 0, 1, -1);
    expect_launcher(VARIABLES("SLURM_PROCID", "0", "SLURM_STEP_NUM_TASKS", "1", "OMPI_COMM_WORLD_RANK", "2",
                              "OMPI_COMM_WORLD_SIZE", "4"),
                    "Open MPI", "openmpi", 2, 4, -1);
    expect_launcher(VARIABLES("RANK", "7"), NULL, NULL, 0, 1, -1);
    unset_launchers();
}

static void world__variables_that_contradict_themselves_are_refused(void **state)
{
    (void)state;
    ht_launcher l;
    set_launcher(VARIABLES("RANK", "4", "WORLD_SIZE", "4"));
    assert_int_equal(ht_launcher_find(&l, test_ctx), HT_EINVAL);
    assert_string_equal(ht_context_message(test_ctx), "torchrun set RANK=4, beyond WORLD_SIZE=4");
    set_launcher(VARIABLES("OMPI_COMM_WORLD_RANK", "one", "OMPI_COMM_WORLD_SIZE", "4"));
    assert_int_equal(ht_launcher_find(&l, test_ctx), HT_EINVAL);
    assert_non_null(strstr(ht_context_message(test_ctx), "OMPI_COMM_WORLD_RANK"));
    set_launcher(VARIABLES("PMI_RANK", "0", "PMI_SIZE", "-2"));
    assert_int_equal(ht_launcher_find(&l, test_ctx), HT_EINVAL);
    unset_launchers();
}

static void world__torchrun_opens_a_world_of_one_alone(void **state)
{
    (void)state;
    ht_launcher l;
    ht_comm *world;
    set_launcher(VARIABLES("RANK", "0", "WORLD_SIZE", "1"));
    context_must(test_ctx, ht_launcher_find(&l, test_ctx));
    context_must(test_ctx, ht_comm_open(&world, test_ctx, &l));
    assert_string_equal(ht_comm_transport(world), "self");
    ht_comm_free(world);
    set_launcher(VARIABLES("RANK", "0", "WORLD_SIZE", "2"));
    context_must(test_ctx, ht_launcher_find(&l, test_ctx));
    assert_int_equal(ht_comm_open(&world, test_ctx, &l), HT_ENOTSUP);
    assert_null(world);
    assert_non_null(strstr(ht_context_message(test_ctx), "mpirun or srun"));
    unset_launchers();
}

static void world__an_mpi_that_is_not_there_is_named(void **state)
{
    (void)state;
    ht_comm *world;
    setenv("HALFTONE_MPI", "lam", 1);
    assert_int_equal(ht_comm_open_flavour(&world, test_ctx, NULL, NULL), HT_ENOTSUP);
    assert_non_null(strstr(ht_context_message(test_ctx), "neither openmpi nor mpich"));
    unsetenv("HALFTONE_MPI");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comm__every_collective_is_exact_for_one_to_eight_ranks),
        cmocka_unit_test(comm__calls_send_what_is_foretold),
        cmocka_unit_test(comm__a_world_of_one_copies),
        cmocka_unit_test(comm__groups_are_worlds_of_their_own),
        cmocka_unit_test(comm__random_delays_change_no_bit),
        cmocka_unit_test(comm__a_nan_reaches_all_ranks),
        cmocka_unit_test(comm__wrong_calls_are_refused_and_the_world_goes_on),
        cmocka_unit_test(comm__a_dead_rank_ends_the_others_and_is_named),
        cmocka_unit_test(comm__a_failure_of_its_own_is_the_reason_that_all_ranks_give),
        cmocka_unit_test(comm__a_timeout_names_absent_ranks_and_last_calls),
        cmocka_unit_test(comm__a_rank_that_leaves_early_is_named),
        cmocka_unit_test(comm__ranks_that_do_different_things_are_told_so),
        cmocka_unit_test(comm__a_failure_is_told_by_every_later_call),
        cmocka_unit_test(comm__delays_deaths_and_timeouts_come_from_the_environment),
        cmocka_unit_test(comm__what_differs_is_named_with_its_rank),
        cmocka_unit_test(world__every_launcher_is_recognised),
        cmocka_unit_test(world__variables_that_contradict_themselves_are_refused),
        cmocka_unit_test(world__torchrun_opens_a_world_of_one_alone),
        cmocka_unit_test(world__an_mpi_that_is_not_there_is_named),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
