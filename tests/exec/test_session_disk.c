/* Sessions with state in @disk: tiles that are read, computed and written while others are under way, on the CPU and
 * beside an accelerator, by either engine; what the host reads and writes there; what is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder_fixture.h"
#include "session_fixture.h"

static const char *const devices[] = {"cpu", "fake"};

/* ---- tiles ---- */

typedef struct tiling {
    int tiles, elems; /* elems of a tile */
    int ahead;        /* tiles that are read before the one that is computed */
    int behind;       /* writes that are under way while the next tile is computed */
} tiling;

static void add_read(ht_text *t, const tiling *w, int k)
{
    ht_text_add(t, "  %%r%d = copy_start f32[%d] (%%p%d)\n", k, w->elems, k);
}

static void add_written(ht_text *t, const tiling *w, int k)
{
    ht_text_add(t, "  %%v%d = copy_done f32[%d]@disk (%%w%d, %%y%d)\n", k, w->elems, k, k);
}

/* Doubles a flat state in @disk, tile by tile, and adds up the tiles' first elements. */
static char *tiled_text(const tiling *w)
{
    ht_text t = {0};
    ht_text_add(&t, "state %%flat f32[%d]@disk heading=optimizer\n", w->tiles * w->elems);
    for (int k = 0; k < w->tiles; k++)
        ht_text_add(&t, "state %%p%d f32[%d]@disk {%%flat, %d, [1]} heading=optimizer\n", k, w->elems, k * w->elems);
    ht_text_add(&t, "segment double (%%x f32[]) -> (y=%%s%d) {\n  %%s0 = neg f32[] (%%x)\n", w->tiles);
    for (int k = 0; k < w->ahead && k < w->tiles; k++) add_read(&t, w, k);
    for (int k = 0; k < w->tiles; k++) {
        if (k + w->ahead < w->tiles) add_read(&t, w, k + w->ahead);
        ht_text_add(&t, "  %%x%d = copy_done f32[%d] (%%r%d, %%p%d)\n", k, w->elems, k, k);
        ht_text_add(&t, "  %%y%d = add f32[%d] (%%x%d, %%x%d)\n", k, w->elems, k, k);
        ht_text_add(&t, "  %%w%d = copy_start f32[%d]@disk (%%y%d)\n", k, w->elems, k);
        ht_text_add(&t, "  %%f%d = slice f32[1] (%%y%d) start=[0]\n", k, k);
        ht_text_add(&t, "  %%g%d = reshape f32[] (%%f%d)\n  %%s%d = add f32[] (%%s%d, %%g%d)\n", k, k, k + 1, k, k);
        if (k >= w->behind) add_written(&t, w, k - w->behind);
    }
    for (int k = w->tiles - w->behind < 0 ? 0 : w->tiles - w->behind; k < w->tiles; k++) add_written(&t, w, k);
    for (int k = 0; k < w->tiles; k++) ht_text_add(&t, "  store %%p%d = %%v%d\n", k, k);
    ht_text_add(&t, "}\n");
    return t.data;
}

static session_fixture open_session(const char *text, const char *device, const ht_disk_opts *disk, bool canaries)
{
    session_fixture f = {.ctx = context_create(2, NULL)};
    ht_plan_opts planning = HT_PLAN_OPTS;
    ht_session_opts opts = HT_SESSION_OPTS;
    planning.device = device;
    planning.canaries = canaries;
    opts.disk_folder = test_folder;
    opts.disk = disk;
    must(&f, ht_graph_parse(&f.g, f.ctx, "text", text, strlen(text)));
    must(&f, ht_plan_create(&f.plan, f.g, &planning));
    must(&f, ht_session_create(&f.s, f.plan, &opts));
    return f;
}

static float number(int i)
{
    return (float)(i % 8191) - 4000;
}

static void double_tiles(const tiling *w, const char *device, const ht_disk_opts *disk, bool canaries)
{
    enum { STEPS = 3 };
    int count = w->tiles * w->elems;
    char *text = tiled_text(w);
    float *flat = malloc((size_t)count * sizeof *flat), zero = 0, sum;
    session_fixture f = open_session(text, device, disk, canaries);
    for (int i = 0; i < count; i++) flat[i] = number(i);
    must(&f, ht_session_write(f.s, "flat", flat, (size_t)count * sizeof *flat));
    must(&f, ht_session_write(f.s, "x", &zero, sizeof zero));
    for (int step = 0; step < STEPS; step++) must(&f, ht_session_run(f.s, "double"));
    must(&f, ht_session_read(f.s, "y", &sum, sizeof sum));
    must(&f, ht_session_read(f.s, "flat", flat, (size_t)count * sizeof *flat));
    float expected = 0;
    for (int k = 0; k < w->tiles; k++) expected += 8 * number(k * w->elems);
    assert_true(sum == expected);
    for (int i = 0; i < count; i++)
        if (flat[i] != 8 * number(i))
            fail_msg("%s, %d tiles of %d: element %d is %g, not %g", device, w->tiles, w->elems, i, (double)flat[i],
                     8 * (double)number(i));
    free(flat);
    free(text);
    session_end(&f);
}

static void tiles__are_read_computed_and_written(void **state)
{
    (void)state;
    static const tiling ways[] = {{1, 1, 0, 0}, {3, 1024, 1, 1}, {5, 1000, 2, 2}, {4, 70001, 1, 1}, {2, 600000, 1, 0}};
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++)
        for (int d = 0; d < 2; d++)
            for (int engine = 0; engine < 3; engine++) {
                ht_disk_opts disk = HT_DISK_OPTS;
                disk.threads = engine == 1;
                disk.buffered = engine == 2;
                disk.block_size = i % 2 ? 65536 : 1048576;
                double_tiles(&ways[i], devices[d], &disk, (i + (size_t)engine) % 2);
            }
}

/* Reads and writes under way at once, with delays of many kinds. */
static void tiles__of_random_sizes_wait_for_each_other(void **state)
{
    (void)state;
    int rounds = getenv("HALFTONE_LONG") ? 200 : 20;
    for (int round = 0; round < rounds; round++) {
        ht_stream stream = {77, (uint64_t)round, 0};
        char seed[16];
        tiling w = {1 + (int)(7 * ht_stream_uniform(&stream, 0)), 1 + (int)(9000 * ht_stream_uniform(&stream, 1)),
                    (int)(3 * ht_stream_uniform(&stream, 2)), (int)(3 * ht_stream_uniform(&stream, 3))};
        ht_disk_opts disk = HT_DISK_OPTS;
        disk.block_size = 4096;
        disk.queue_depth = 1 + round % 5;
        disk.overlap_events = round % 3 != 0;
        disk.single_submit = round % 4 == 0;
        disk.threads = round % 2;
        snprintf(seed, sizeof seed, "%d", round + 1);
        setenv("HALFTONE_DISK_SEED", seed, 1);
        setenv("HALFTONE_FAKE_SEED", seed, 1);
        double_tiles(&w, devices[round / 2 % 2], &disk, round % 3 == 0);
    }
    unsetenv("HALFTONE_DISK_SEED");
    unsetenv("HALFTONE_FAKE_SEED");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, test_folder_setup, test_folder_teardown)
    const struct CMUnitTest tests[] = {
        CASE(tiles__are_read_computed_and_written),
        CASE(tiles__of_random_sizes_wait_for_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
