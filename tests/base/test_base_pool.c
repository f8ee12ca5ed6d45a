#include "base/pool.h"

#include "base/processor.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#define MOST_TILES 300

typedef struct counts {
    _Atomic int runs[MOST_TILES];
    int plain[MOST_TILES]; /* not atomic: a data race here is a bug that ThreadSanitizer reports */
} counts;

static void count_tile(void *arg, int64_t tile)
{
    counts *c = arg;
    atomic_fetch_add(&c->runs[tile], 1);
    c->plain[tile]++;
}

static void expect_each(counts *c, int64_t tiles, int want)
{
    for (int64_t i = 0; i < MOST_TILES; i++) {
        int expected = i < tiles ? want : 0;
        if (c->runs[i] != expected || c->plain[i] != expected)
            fail_msg("tile %d of %d ran %d times, not %d", (int)i, (int)tiles, c->runs[i], expected);
    }
}

static void repeat_with_threads(int threads, int repeats)
{
    ht_pool *pool = ht_pool_create(threads);
    assert_non_null(pool);
    assert_int_equal(ht_pool_threads(pool), threads);
    const int64_t sizes[] = {0, 1, 2, 3, 7, 64, MOST_TILES};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        counts *c = calloc(1, sizeof *c);
        for (int i = 0; i < repeats; i++) ht_parallel(pool, sizes[s], count_tile, c);
        expect_each(c, sizes[s], repeats);
        free(c);
    }
    ht_pool_free(pool);
}

static void pool__every_tile_runs_once_with_1_thread(void **state)
{
    (void)state;
    repeat_with_threads(1, 3000);
}

static void pool__every_tile_runs_once_with_2_threads(void **state)
{
    (void)state;
    repeat_with_threads(2, 3000);
}

static void pool__every_tile_runs_once_with_4_threads(void **state)
{
    (void)state;
    repeat_with_threads(4, 3000);
}

static void pool__every_tile_runs_once_with_more_threads_than_cores(void **state)
{
    (void)state;
    repeat_with_threads(19, 300);
}

static void pool__null_pool_runs_in_order(void **state)
{
    (void)state;
    counts c = {0};
    ht_parallel(NULL, 5, count_tile, &c);
    expect_each(&c, 5, 1);
    assert_int_equal(ht_pool_threads(NULL), 1);
    ht_pool_free(NULL);
}

/* Long enough for workers to fall asleep between calls: a lost wake-up would leave the sum short or hang. */
static void pool__sleeping_workers_wake_up(void **state)
{
    (void)state;
    ht_pool *pool = ht_pool_create(4);
    counts c = {0};
    for (int i = 0; i < 200; i++) {
        ht_parallel(pool, 64, count_tile, &c);
        struct timespec pause = {0, (i % 8) * 20000L}; /* 0 to 140 µs: on both sides of the spinning time */
        nanosleep(&pause, NULL);
    }
    expect_each(&c, 64, 200);
    ht_pool_free(pool);
}

typedef struct meeting {
    _Atomic int arrived;
    int expected;
} meeting;

static void meet(void *arg, int64_t tile)
{
    (void)tile;
    meeting *m = arg;
    atomic_fetch_add(&m->arrived, 1);
    while (atomic_load(&m->arrived) < m->expected) {
        struct timespec pause = {0, 10000};
        nanosleep(&pause, NULL);
    }
}

/* Tiles that wait for each other end only if every one of them has a thread. */
static void pool__tiles_really_run_at_the_same_time(void **state)
{
    (void)state;
    ht_pool *pool = ht_pool_create(4);
    for (int i = 0; i < 20; i++) {
        meeting m = {.expected = 4};
        ht_parallel(pool, 4, meet, &m);
        assert_int_equal(m.arrived, 4);
    }
    ht_pool_free(pool);
}

typedef struct nest {
    ht_pool *pool;
    _Atomic int out_of_order;
} nest;

typedef struct ordered {
    int64_t last;
    bool broken;
} ordered;

static void in_order(void *arg, int64_t tile)
{
    ordered *o = arg; /* one thread only, or ThreadSanitizer speaks up */
    if (tile != o->last + 1) o->broken = true;
    o->last = tile;
}

static void outer_tile(void *arg, int64_t tile)
{
    (void)tile;
    nest *n = arg;
    ordered o = {.last = -1};
    ht_parallel(n->pool, 50, in_order, &o);
    if (o.broken || o.last != 49) atomic_fetch_add(&n->out_of_order, 1);
}

static void pool__nested_call_runs_serially(void **state)
{
    (void)state;
    ht_pool *pool = ht_pool_create(4);
    nest n = {.pool = pool};
    for (int i = 0; i < 200; i++) ht_parallel(pool, 16, outer_tile, &n);
    assert_int_equal(n.out_of_order, 0);
    counts c = {0}; /* and the flag is gone afterwards */
    ht_parallel(pool, 64, count_tile, &c);
    expect_each(&c, 64, 1);
    ht_pool_free(pool);
}

static void write_square(void *arg, int64_t tile)
{
    ((int64_t *)arg)[tile] = tile * tile;
}

static void pool__results_are_visible_to_the_caller(void **state)
{
    (void)state;
    ht_pool *pool = ht_pool_create(3);
    for (int i = 0; i < 2000; i++) {
        int64_t squares[40] = {0}; /* on the stack of the caller, gone with the next round */
        ht_parallel(pool, 40, write_square, squares);
        for (int64_t j = 0; j < 40; j++) assert_true(squares[j] == j * j);
    }
    ht_pool_free(pool);
}

static void pool__create_and_free_at_any_moment(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        ht_pool *pool = ht_pool_create(1 + i % 5);
        assert_non_null(pool);
        counts c = {0};
        if (i % 2) ht_parallel(pool, 8, count_tile, &c);
        if (i % 3 == 0) {
            struct timespec pause = {0, 100000};
            nanosleep(&pause, NULL);
        }
        ht_pool_free(pool);
    }
}

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void make_folder(const char *parent, const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", parent, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static void remove_tree(const char *folder, const char *const *names)
{
    char path[256];
    for (; *names != NULL; names++) {
        snprintf(path, sizeof path, "%s/%s", folder, *names);
        remove(path);
    }
    rmdir(folder);
}

static void cpu__cgroup_quota_is_the_least_on_the_way_up(void **state)
{
    (void)state;
    char folder[] = "halftone-test-XXXXXX", groups[64];
    assert_non_null(mkdtemp(folder));
    snprintf(groups, sizeof groups, "%s/groups", folder);
    make_folder(folder, "job");
    make_folder(folder, "job/step");
    make_folder(folder, "cpu");
    assert_true(isinf(ht_cgroup_cpus(groups, folder)));

    write_file(folder, "groups", "0::/job/step\n");
    assert_true(isinf(ht_cgroup_cpus(groups, folder)));
    write_file(folder, "job/step/cpu.max", "max 100000\n");
    assert_true(isinf(ht_cgroup_cpus(groups, folder)));
    write_file(folder, "job/cpu.max", "250000 100000\n");
    assert_true(ht_cgroup_cpus(groups, folder) == 2.5);
    write_file(folder, "job/step/cpu.max", "50000 100000\n");
    assert_true(ht_cgroup_cpus(groups, folder) == 0.5);

    /* v1; the path is one that cannot be seen from inside a container. */
    write_file(folder, "groups", "7:pids:/\n3:cpuset:/\n2:cpu,cpuacct:/docker/abc\n");
    write_file(folder, "cpu/cpu.cfs_quota_us", "-1\n");
    write_file(folder, "cpu/cpu.cfs_period_us", "100000\n");
    assert_true(isinf(ht_cgroup_cpus(groups, folder)));
    write_file(folder, "cpu/cpu.cfs_quota_us", "300000\n");
    assert_true(ht_cgroup_cpus(groups, folder) == 3);

    const char *const names[] = {"job/step/cpu.max",
                                 "job/cpu.max",
                                 "groups",
                                 "cpu/cpu.cfs_quota_us",
                                 "cpu/cpu.cfs_period_us",
                                 "job/step",
                                 "job",
                                 "cpu",
                                 NULL};
    remove_tree(folder, names);
}

static void cpu__omp_num_threads_wins(void **state)
{
    (void)state;
    const char *why = NULL;
    setenv("OMP_NUM_THREADS", "3", 1);
    assert_int_equal(ht_cpu_threads(&why), 3);
    assert_string_equal(why, "OMP_NUM_THREADS");
    setenv("OMP_NUM_THREADS", "5,2", 1);
    assert_int_equal(ht_cpu_threads(&why), 5);
    const char *const useless[] = {"0", "-2", "many", "", "4x"};
    for (size_t i = 0; i < sizeof useless / sizeof useless[0]; i++) {
        setenv("OMP_NUM_THREADS", useless[i], 1);
        assert_true(ht_cpu_threads(&why) >= 1);
        assert_string_not_equal(why, "OMP_NUM_THREADS");
    }
    unsetenv("OMP_NUM_THREADS");
    int threads = ht_cpu_threads(&why);
    assert_true(threads >= 1 && threads <= ht_topology_cores());
    assert_true(ht_topology_cores() <= sysconf(_SC_NPROCESSORS_CONF));
}

static void cpu__isa_names_go_both_ways(void **state)
{
    (void)state;
    for (int isa = 0; isa < HT_ISA_COUNT; isa++) assert_int_equal(ht_isa_from_name(ht_isa_name((ht_isa)isa)), isa);
    assert_int_equal(ht_isa_from_name("sse9"), -1);
    assert_string_equal(ht_isa_name(HT_ISA_COUNT), "?");
    assert_in_range(ht_cpu_isa(), HT_ISA_PORTABLE, HT_ISA_COUNT - 1);
    for (int f = 0; f < HT_FEATURE_COUNT; f++)
        assert_int_equal(ht_feature_from_name(ht_feature_name((ht_feature)f)), f);
    assert_int_equal(ht_feature_from_name("bf8"), -1);
    assert_true(ht_cpu_features() == 0 || ht_cpu_isa() == HT_ISA_AVX512);
#if defined(__x86_64__)
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    assert_true((ht_cpu_isa() >= HT_ISA_AVX2) == avx2); /* no CPU has these and lacks F16C */
#endif
}

static void cpu__an_isa_runs_the_kernels_of_the_rows_before_it(void **state)
{
    (void)state;
    assert_true(ht_isa_runs(HT_ISA_AVX512, HT_ISA_AVX512));
    assert_true(ht_isa_runs(HT_ISA_AVX512, HT_ISA_AVX2));
    assert_true(ht_isa_runs(HT_ISA_AVX2, HT_ISA_PORTABLE));
    assert_false(ht_isa_runs(HT_ISA_AVX2, HT_ISA_AVX512));
    assert_true(ht_isa_on(HT_ISA_PORTABLE, "aarch64"));
    assert_false(ht_isa_on(HT_ISA_AVX2, "aarch64"));
    assert_true(ht_isa_built(HT_ISA_PORTABLE));
    assert_true(ht_isa_built(ht_cpu_isa()));
    assert_int_equal(ht_isa_features(HT_ISA_AVX2), 0);
    assert_int_equal(ht_isa_features(HT_ISA_AVX512), (1u << HT_FEATURE_COUNT) - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool__every_tile_runs_once_with_1_thread),
        cmocka_unit_test(pool__every_tile_runs_once_with_2_threads),
        cmocka_unit_test(pool__every_tile_runs_once_with_4_threads),
        cmocka_unit_test(pool__every_tile_runs_once_with_more_threads_than_cores),
        cmocka_unit_test(pool__null_pool_runs_in_order),
        cmocka_unit_test(pool__sleeping_workers_wake_up),
        cmocka_unit_test(pool__tiles_really_run_at_the_same_time),
        cmocka_unit_test(pool__nested_call_runs_serially),
        cmocka_unit_test(pool__results_are_visible_to_the_caller),
        cmocka_unit_test(pool__create_and_free_at_any_moment),
        cmocka_unit_test(cpu__cgroup_quota_is_the_least_on_the_way_up),
        cmocka_unit_test(cpu__omp_num_threads_wins),
        cmocka_unit_test(cpu__isa_names_go_both_ways),
        cmocka_unit_test(cpu__an_isa_runs_the_kernels_of_the_rows_before_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
