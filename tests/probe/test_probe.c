/* The probe: every row has a figure, the target keeps them, and what cannot be measured says why. Figures themselves depend
 * on the machine: bench/bench_probe.c compares them. */
#include "probe/probe.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "context_fixture.h"
#include "probe/loops.h"

/* As little time as possible. */
static const double short_seconds = 0.05;

static ht_probe probe_with(const ht_probe_opts *opts)
{
    ht_probe probe;
    context_must(test_ctx, ht_probe_run(test_ctx, opts, &probe));
    return probe;
}

static size_t rows_of(const ht_probe *probe, const char *group, const char *name)
{
    size_t count = 0;
    for (size_t i = 0; i < probe->count; i++)
        count += strcmp(probe->rows[i].group, group) == 0 && strcmp(probe->rows[i].name, name) == 0;
    return count;
}

static void all__rows_of_the_catalogue_have_a_figure(void **state)
{
    (void)state;
    ht_probe probe =
        probe_with(&(ht_probe_opts){.parts = HT_PROBE_CEILINGS | HT_PROBE_CATALOGUE, .seconds = short_seconds});
    size_t times = ht_context_threads(test_ctx) > 1 ? 2 : 1;
    for (size_t i = 0; i < probe.count; i++) {
        const ht_probe_row *row = &probe.rows[i];
        if (!isfinite(row->value) || !(row->value > 0) || !row->what[0] || !row->unit[0])
            fail_msg("%s %s: %g", row->group, row->name, row->value);
    }
#define HT_LOOP(name, group, real, what)             assert_int_equal(rows_of(&probe, #group, #name), times);
#define HT_CALL(name, group, op, sample, cuda, what) assert_int_equal(rows_of(&probe, #group, #name), times);
#include "probe/catalogue.def"
    assert_true(rows_of(&probe, "scaling", "f32") >= times);
    ht_probe_free(&probe);
}

static void ceilings__are_figures_of_the_target_and_marked_as_measured(void **state)
{
    (void)state;
    ht_probe probe = probe_with(&(ht_probe_opts){.seconds = short_seconds});
    const ht_target *t = &probe.target;
    static const ht_dtype types[] = {HT_F64, HT_F32, HT_F16, HT_BF16, HT_I8};
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
        assert_true(t->flops[types[i]] > 0 && t->thread_flops[types[i]] > 0);
        assert_int_equal(t->source.flops[types[i]], HT_SOURCE_MEASURED);
    }
    assert_true(t->bandwidth[HT_SPACE_MAIN] > 0 && t->latency[HT_SPACE_MAIN] > 0);
    for (int i = 0; i < HT_CACHE_COUNT; i++) assert_true((t->cache_bytes[i] > 0) == (t->cache_latency[i] > 0));
    for (int f = 0; f < ht_family_count; f++)
        for (int s = 0; s < HT_FAMILY_SIZES && ht_family_sample(&ht_families[f], HT_DEVICE_CPU, s); s++) {
            assert_true(t->efficiency[f][s] > 0 && isfinite(t->efficiency[f][s]));
            assert_non_null(ht_probe_find(&probe, "family", ht_families[f].name, ht_family_size_names[s], t->threads));
        }
    assert_null(ht_probe_find(&probe, "logic", "and_bits", NULL, 1)); /* that is the catalogue's */
    assert_string_equal(probe.disk_note, "no folder was given");
    ht_probe_free(&probe);
}

/* ---- messages ---- */

static ht_status measure_messages(void *arg, ht_comm *world, ht_context *messages)
{
    ht_probe probe;
    ht_status status = ht_probe_messages(messages, world, short_seconds, &probe);
    if (ht_comm_rank(world) == 0)
        *(ht_probe *)arg = probe;
    else
        ht_probe_free(&probe);
    return status;
}

static void messages__are_rows_and_figures_of_the_probe(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 3; ranks++) {
        ht_probe messages = {0};
        const ht_thread_ranks_opts opts = {.ranks = ranks};
        context_must(test_ctx, ht_thread_ranks_run(test_ctx, &opts, measure_messages, &messages));
        ht_probe probe =
            probe_with(&(ht_probe_opts){.parts = HT_PROBE_ENERGY, .seconds = short_seconds, .messages = &messages});
        static const char *const names[] = {"node", "all_reduce", "all_gather", "reduce_scatter"};
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
            assert_int_equal(rows_of(&probe, "message", names[i]), i == 0 ? 5 : 2); /* node: three more sizes */
        assert_int_equal(rows_of(&probe, "message", "cluster"), 0);                 /* all of them are here */
        for (size_t i = 0; i < probe.count; i++) assert_true(probe.rows[i].value > 0 && isfinite(probe.rows[i].value));
        assert_true(probe.target.network[HT_NETWORK_NODE] > 0);
        assert_int_equal(probe.target.source.network[HT_NETWORK_NODE], HT_SOURCE_MEASURED);
        assert_true(probe.target.network[HT_NETWORK_CLUSTER] == 0);
        ht_probe_free(&messages);
        ht_probe_free(&probe);
    }
}

/* ---- the disk ---- */

static void disk__leaves_nothing_in_its_folder(void **state)
{
    (void)state;
    char folder[] = "/tmp/halftone-probe-test.XXXXXX";
    assert_non_null(mkdtemp(folder));
    const ht_probe_opts opts = {.parts = HT_PROBE_DISK, .seconds = short_seconds, .disk_folder = folder};
    ht_probe probe = probe_with(&opts);
    assert_true(probe.target.bandwidth[HT_SPACE_DISK] > 0 && probe.target.random_bandwidth[HT_SPACE_DISK] > 0);
    assert_int_equal(rows_of(&probe, "disk", "sequential"), 2);
    assert_int_equal(rows_of(&probe, "disk", "random"), 3);
    assert_int_equal(rmdir(folder), 0);
    ht_probe_free(&probe);
    assert_int_equal(ht_probe_run(test_ctx, &opts, &probe), HT_EIO);
    assert_non_null(strstr(ht_context_message(test_ctx), folder));
    ht_probe_free(&probe);
}

/* ---- energy ---- */

static void write_counter(const char *folder, const char *zone, const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, zone);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof path, "%s/%s/energy_uj", folder, zone);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static ht_probe probe_energy(const char *folder)
{
    return probe_with(&(ht_probe_opts){.parts = HT_PROBE_ENERGY, .seconds = short_seconds, .energy_folder = folder});
}

static void remove_folder(const char *folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    assert_int_equal(system(command), 0);
}

static void energy__says_why_there_is_none(void **state)
{
    (void)state;
    char folder[] = "/tmp/halftone-probe-test.XXXXXX";
    assert_non_null(mkdtemp(folder));
    ht_probe probe = probe_energy("/nowhere");
    assert_non_null(strstr(probe.energy_note, "/nowhere: No such file or directory"));
    ht_probe_free(&probe);
    probe = probe_energy(folder);
    assert_non_null(strstr(probe.energy_note, "no RAPL counters of packages"));
    ht_probe_free(&probe);
    write_counter(folder, "intel-rapl:0", "1000000\n");
    write_counter(folder, "intel-rapl:0:0", "not asked for\n");
    probe = probe_energy(folder);
    assert_non_null(strstr(probe.energy_note, "did not move"));
    assert_true(probe.target.flop_energy[HT_F32] == 0);
    ht_probe_free(&probe);
    remove_folder(folder);
}

/* A package that draws 100 W. */
typedef struct fake_package {
    char path[128];
    _Atomic bool ends;
} fake_package;

static void *draw_power(void *arg)
{
    fake_package *package = arg;
    int file = open(package->path, O_WRONLY);
    struct timespec now;
    while (!package->ends) {
        char line[32];
        clock_gettime(CLOCK_MONOTONIC, &now);
        long long microjoules = 100 * (1000000LL * now.tv_sec + now.tv_nsec / 1000);
        int length = snprintf(line, sizeof line, "%020lld\n", microjoules);
        if (pwrite(file, line, (size_t)length, 0) != length) break;
    }
    close(file);
    return NULL;
}

static void energy__is_that_of_the_packages(void **state)
{
    (void)state;
    char folder[] = "/tmp/halftone-probe-test.XXXXXX";
    fake_package package = {.ends = false};
    pthread_t thread;
    struct timespec now;
    char line[32];
    assert_non_null(mkdtemp(folder));
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(line, sizeof line, "%020lld\n", 100 * (1000000LL * now.tv_sec));
    write_counter(folder, "intel-rapl:0", line);
    snprintf(package.path, sizeof package.path, "%s/intel-rapl:0/energy_uj", folder);
    assert_int_equal(pthread_create(&thread, NULL, draw_power, &package), 0);
    ht_probe probe = probe_energy(folder);
    package.ends = true;
    pthread_join(thread, NULL);
    assert_string_equal(probe.energy_note, "");
    /* 100 W at between a megaflop and a petaflop per second. */
    assert_true(probe.target.flop_energy[HT_F32] > 1e-13 && probe.target.flop_energy[HT_F32] < 1e-4);
    assert_true(probe.target.byte_energy[HT_SPACE_MAIN] > 1e-13 && probe.target.byte_energy[HT_SPACE_MAIN] < 1e-3);
    assert_int_equal(probe.target.source.flop_energy[HT_F32], HT_SOURCE_MEASURED);
    assert_true(probe.target.power[HT_POWER_BOARD] > 1 && isfinite(probe.target.power[HT_POWER_BOARD]));
    ht_probe_free(&probe);
    remove_folder(folder);
}

/* ---- loops ---- */

static ht_loop_data loop_data(char *arrays, char *memory, size_t bytes)
{
    float *a = (float *)arrays;
    for (size_t i = 0; i < 3 * HT_LOOP_BYTES / sizeof *a; i++) a[i] = 1;
    return (ht_loop_data){.a = arrays,
                          .b = arrays + HT_LOOP_BYTES,
                          .c = arrays + 2 * HT_LOOP_BYTES,
                          .memory = memory,
                          .memory_bytes = bytes};
}

/* A loop that a compiler saw through would have no results, or count none. */
static void loops__do_as_much_as_they_say(void **state)
{
    (void)state;
    static _Alignas(64) char arrays[3 * HT_LOOP_BYTES];
    static _Alignas(64) char memory[3 * HT_LOOP_BYTES];
    ht_loop_data d = loop_data(arrays, memory, sizeof memory);
    for (int i = 0; i < HT_ISA_COUNT && ht_isa_runs(ht_cpu_isa(), (ht_isa)i); i++) {
        ht_isa isa = (ht_isa)i;
        double *x = (double *)memory;
        for (size_t k = 0; k < sizeof memory / sizeof *x; k++) x[k] = 2;
        assert_true(ht_loop_find(isa, HT_F64, HT_LOOP_triad)(&d, 1) == sizeof memory);
        assert_true(x[0] == 2 + 3 * 2 && x[HT_LOOP_BYTES / sizeof *x - 1] == 8 && x[HT_LOOP_BYTES / sizeof *x] == 2);
        memset(memory, 7, sizeof memory / 2);
        assert_true(ht_loop_find(isa, HT_F32, HT_LOOP_copy)(&d, 1) == sizeof memory);
        assert_memory_equal(memory, memory + sizeof memory / 2, sizeof memory / 2);
        assert_true(ht_loop_find(isa, HT_F32, HT_LOOP_write)(&d, 1) == sizeof memory);
        assert_int_equal(memory[sizeof memory - 1], 0);
        assert_true(ht_loop_find(isa, HT_F32, HT_LOOP_accumulate_i8)(&d, 3) == 2 * 3 * HT_LOOP_BYTES);
        assert_true(ht_loop_find(isa, HT_F32, HT_LOOP_reduce_f32)(&d, 2) == 2 * HT_LOOP_BYTES / 4);
        assert_true(d.sink == 2.0 * HT_LOOP_BYTES / (HT_ISA_PORTABLE_VECTOR_BYTES << i)); /* one lane of ones */
        d.sink = -1;
        double few = ht_loop_find(isa, HT_F32, HT_LOOP_peak)(&d, 1);
        assert_true(few > 0 && d.sink > 0 && ht_loop_find(isa, HT_F32, HT_LOOP_peak)(&d, 3) == 3 * few);
    }
}

static void families__stand_for_ops_that_there_are(void **state)
{
    (void)state;
    assert_int_equal(ht_family_of("conv2d_grad_weight", false), ht_family_find("conv_grad_weight"));
    assert_int_equal(ht_family_of("matmul", false), ht_family_find("matmul"));
    assert_int_equal(ht_family_of("tanh", true), ht_family_find("pointwise"));
    assert_int_equal(ht_family_of("reshape", false), HT_NO_FAMILY);
    assert_int_equal(ht_family_of("conv2d_grad", false), HT_NO_FAMILY);
    for (int f = 0; f < ht_family_count; f++) {
        char words[256], *at = words;
        snprintf(words, sizeof words, "%s", ht_families[f].ops);
        for (const char *word; (word = strsep(&at, " "));)
            if (*word && !ht_op_find(test_ctx, word, strlen(word)))
                fail_msg("%s: there is no op %s", ht_families[f].name, word);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all__rows_of_the_catalogue_have_a_figure),
        cmocka_unit_test(ceilings__are_figures_of_the_target_and_marked_as_measured),
        cmocka_unit_test(messages__are_rows_and_figures_of_the_probe),
        cmocka_unit_test(disk__leaves_nothing_in_its_folder),
        cmocka_unit_test(energy__says_why_there_is_none),
        cmocka_unit_test(energy__is_that_of_the_packages),
        cmocka_unit_test(loops__do_as_much_as_they_say),
        cmocka_unit_test(families__stand_for_ops_that_there_are),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
