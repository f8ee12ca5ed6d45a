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

/* ---- the host ---- */

/* The same in three memories: random and constant initial values, a statistic that every step reads and writes, state
 * that is copied as it is, an output there, and a copy that crosses from host memory. */
static const char network[] = "state %%w f32[6,6] heading=parameters init=normal(0,0.5) trained\n"
                              "state %%seen f32[6,6]%s heading=statistics init=normal(0,1)\n"
                              "state %%ones f32[37]%s heading=statistics init=constant(1)\n"
                              "state %%last f32[37]%s heading=statistics\n"
                              "state %%half bf16[5]@host heading=statistics init=constant(0.5)\n"
                              "segment forward (%%x f32[4,6], %%label i32[4]) -> (loss=%%loss, y=%%far) {\n"
                              "  %%near = copy f32[6,6] (%%seen)\n"
                              "  %%m = add f32[6,6] (%%w, %%near)\n"
                              "  %%h = matmul f32[4,6] (%%x, %%m)\n"
                              "  %%loss, %%lse = cross_entropy f32[], f32[4] (%%h, %%label)\n"
                              "  %%n = add f32[6,6] (%%near, %%near)\n"
                              "  %%f = copy f32[6,6]%s (%%n)\n"
                              "  %%far = copy bf16[5]%s (%%half)\n"
                              "  store %%seen = %%f\n"
                              "  store %%last = %%ones\n"
                              "}\n";

typedef struct outcome {
    double loss[3], w[36], seen[36], last[37], far[5];
} outcome;

static ht_status same_batch(void *arg, ht_session *session, int64_t index)
{
    (void)arg;
    (void)session;
    (void)index;
    return HT_OK;
}

static void train_network(const char *space, const char *device, outcome *out)
{
    char text[2048];
    session_fixture f = {.ctx = context_create(2, NULL)};
    ht_train_opts training = HT_TRAIN_OPTS;
    ht_plan_opts planning = HT_PLAN_OPTS;
    ht_session_opts opts = HT_SESSION_OPTS;
    double x[24], label[4] = {0, 1, 2, 3};
    memset(out, 0, sizeof *out);
    snprintf(text, sizeof text, network, space, space, space, space, space);
    planning.device = device;
    opts.disk_folder = test_folder;
    opts.seed = 3;
    must(&f, ht_graph_parse(&f.g, f.ctx, "text", text, strlen(text)));
    must(&f, ht_graph_train(f.g, &training));
    must(&f, ht_plan_create(&f.plan, f.g, &planning));
    must(&f, ht_session_create(&f.s, f.plan, &opts));
    for (int i = 0; i < 24; i++) x[i] = 0.25 * (i % 7) - 1;
    must(&f, ht_session_write_f64(f.s, "x", x, 24));
    must(&f, ht_session_write_f64(f.s, "label", label, 4));
    for (int step = 0; step < 3; step++) {
        must(&f, ht_session_run_batches(f.s, "train", same_batch, NULL));
        must(&f, ht_session_read_f64(f.s, "loss", &out->loss[step], 1));
    }
    must(&f, ht_session_read_f64(f.s, "w", out->w, 36));
    must(&f, ht_session_read_f64(f.s, "seen", out->seen, 36));
    must(&f, ht_session_read_f64(f.s, "last", out->last, 37));
    must(&f, ht_session_read_f64(f.s, "y", out->far, 5));
    session_end(&f);
}

static void state__on_the_disk_has_the_bits_of_main(void **state)
{
    (void)state;
    outcome main, disk;
    train_network("", "cpu", &main);
    assert_true(main.seen[0] != 0 && main.last[36] == 1 && main.far[4] == 0.5 && main.loss[0] != main.loss[2]);
    for (int d = 0; d < 2; d++) {
        train_network("@disk", devices[d], &disk);
        assert_memory_equal(&main, &disk, sizeof main);
    }
}

static void places__of_the_disk_are_copied_there(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        session_fixture f = open_session("state %a f32[3000]@disk\nstate %b f32[3000]@disk\n"
                                         "segment forward (%x f32[4]@disk) -> (y=%y) {\n  %y = copy f32[4] (%x)\n}\n",
                                         devices[d], NULL, false);
        float bytes[3000], back[3000], x[4] = {1, 2, 3, 4}, y[4];
        for (int i = 0; i < 3000; i++) bytes[i] = number(i);
        must(&f, ht_session_write(f.s, "a", bytes, sizeof bytes));
        must(&f, ht_executor_copy(f.s->executor, ht_plan_slot(f.plan, "b")->place, ht_plan_slot(f.plan, "a")->place,
                                  sizeof bytes));
        must(&f, ht_session_read(f.s, "b", back, sizeof back));
        assert_memory_equal(bytes, back, sizeof bytes);
        must(&f, ht_session_write(f.s, "x", x, sizeof x));
        must(&f, ht_session_run(f.s, "forward"));
        must(&f, ht_session_read(f.s, "y", y, sizeof y));
        assert_memory_equal(x, y, sizeof x);
        session_end(&f);
    }
}

typedef struct pieces {
    size_t count, next;
    bool right;
} pieces;

static ht_status see_piece(void *arg, size_t offset, const void *data, size_t bytes)
{
    pieces *p = arg;
    p->right &= offset == p->next;
    for (size_t i = 0; i < bytes / sizeof(float); i++)
        p->right &= ((const float *)data)[i] == number((int)(offset / sizeof(float) + i));
    p->next += bytes;
    p->count++;
    return HT_OK;
}

/* As snapshots see it: they would need the memory again that the disk saves. */
static void large_state__is_seen_in_pieces_of_bounded_memory(void **state)
{
    (void)state;
    enum { ELEMS = 40000001, MOST_BYTES = 64 << 20 };
    session_fixture f =
        open_session("state %a f32[40000001]@disk\nsegment forward () -> () {\n}\n", "cpu", NULL, false);
    float *values = malloc(ELEMS * sizeof *values);
    ht_host_copy stage = {0};
    pieces p = {.right = true};
    for (int i = 0; i < ELEMS; i++) values[i] = number(i);
    must(&f, ht_session_write(f.s, "a", values, ELEMS * sizeof *values));
    must(&f, ht_executor_view_pieces(f.s->executor, ht_plan_slot(f.plan, "a")->place, ELEMS * sizeof *values, &stage,
                                     see_piece, &p));
    assert_true(p.right && p.count == 3 && p.next == ELEMS * sizeof *values && stage.bytes <= MOST_BYTES);
    free(stage.data);
    free(values);
    session_end(&f);
}

/* ---- looking ---- */

static bool count_result(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data)
{
    double *sum = arg;
    (void)instr;
    (void)result;
    for (int64_t i = 0; i < ht_type_elems(type); i++) *sum += ht_load_f64(data, type->dtype, i);
    return true;
}

/* copy_start, copy_done, add, copy_start, copy_done of a tile, then the sums of single numbers. */
static void every_result__can_be_looked_at(void **state)
{
    (void)state;
    tiling w = {2, 100, 1, 1};
    char *text = tiled_text(&w);
    for (int d = 0; d < 2; d++) {
        session_fixture f = {.ctx = context_create(2, NULL)};
        ht_plan_opts planning = HT_PLAN_OPTS;
        ht_session_opts opts = HT_SESSION_OPTS;
        ht_bad_value bad;
        float flat[200], zero = 0;
        double sum = 0;
        planning.device = devices[d];
        planning.no_fusion = true;
        opts.disk_folder = test_folder;
        must(&f, ht_graph_parse(&f.g, f.ctx, "text", text, strlen(text)));
        must(&f, ht_plan_create(&f.plan, f.g, &planning));
        must(&f, ht_session_create(&f.s, f.plan, &opts));
        for (int i = 0; i < 200; i++) flat[i] = 1;
        must(&f, ht_session_write(f.s, "flat", flat, sizeof flat));
        must(&f, ht_session_write(f.s, "x", &zero, sizeof zero));
        must(&f, ht_executor_trace(f.s->executor, 0, 0, count_result, &sum));
        assert_true(sum == 100 * (1 + 1 + 2 + 2 + 2) * 2 + 2 + 4);
        must(&f, ht_executor_find_nonfinite(f.s->executor, f.plan, 0, 0, NULL, &bad));
        assert_null(bad.instr);
        flat[150] = (float)1e30 * (float)1e30;
        must(&f, ht_session_write(f.s, "flat", flat, sizeof flat));
        must(&f, ht_executor_find_nonfinite(f.s->executor, f.plan, 0, 0, NULL, &bad));
        assert_non_null(bad.instr);
        assert_true(bad.inf == 1 && bad.nan == 0);
        session_end(&f);
    }
    free(text);
}

/* ---- faults ---- */

/* The first status that is not HT_OK, from creating the session to reading the result. */
static ht_status try_doubling(session_fixture *f, const ht_session_opts *opts, int count)
{
    float *flat = calloc((size_t)count, sizeof *flat);
    ht_status status = ht_session_create(&f->s, f->plan, opts);
    if (status == HT_OK) status = ht_session_write(f->s, "flat", flat, (size_t)count * sizeof *flat);
    for (int step = 0; step < 2 && status == HT_OK; step++) status = ht_session_run(f->s, "double");
    if (status == HT_OK) status = ht_session_read(f->s, "flat", flat, (size_t)count * sizeof *flat);
    free(flat);
    return status;
}

static void a_fault__fails_the_step_and_names_the_state(void **state)
{
    (void)state;
    tiling w = {4, 5000, 1, 1};
    char *text = tiled_text(&w), fault[32];
    for (int d = 0; d < 2; d++) {
        int failures = 0;
        for (int at = 1; at < 60; at += 1 + at / 8) {
            for (int write = 0; write < 2; write++) {
                session_fixture f = {.ctx = context_create(2, NULL)};
                ht_plan_opts planning = HT_PLAN_OPTS;
                ht_session_opts opts = HT_SESSION_OPTS;
                ht_disk_opts disk = HT_DISK_OPTS;
                disk.block_size = 8192;
                disk.threads = at % 2;
                opts.disk_folder = test_folder;
                opts.disk = &disk;
                planning.device = devices[d];
                snprintf(fault, sizeof fault, "%s:%d", write ? "write" : "read", at);
                setenv("HALFTONE_DISK_FAIL", fault, 1);
                must(&f, ht_graph_parse(&f.g, f.ctx, "text", text, strlen(text)));
                must(&f, ht_plan_create(&f.plan, f.g, &planning));
                ht_status status = try_doubling(&f, &opts, w.tiles * w.elems);
                assert_true(status == HT_OK || status == HT_EDEVICE);
                /* A part of a block is read before it is written. */
                if (status == HT_EDEVICE) message_has(&f, write ? "writing 'flat' failed: " : "ing 'flat' failed: ");
                failures += status != HT_OK;
                session_end(&f);
                assert_int_equal(folder_count(test_folder), 0);
            }
        }
        assert_true(failures > 20);
    }
    unsetenv("HALFTONE_DISK_FAIL");
    free(text);
}

/* What fails beside the disk, while a copy is staged, is told as well. */
static void a_fault_of_the_accelerator__ends_staged_copies(void **state)
{
    (void)state;
    tiling w = {4, 5000, 1, 1};
    char *text = tiled_text(&w), fault[32];
    int failures = 0;
    for (int at = 1; at < 30; at++) {
        session_fixture f = {.ctx = context_create(2, NULL)};
        ht_plan_opts planning = HT_PLAN_OPTS;
        ht_session_opts opts = HT_SESSION_OPTS;
        opts.disk_folder = test_folder;
        planning.device = "fake";
        snprintf(fault, sizeof fault, "copy:%d", at);
        setenv("HALFTONE_FAKE_FAIL", fault, 1);
        must(&f, ht_graph_parse(&f.g, f.ctx, "text", text, strlen(text)));
        must(&f, ht_plan_create(&f.plan, f.g, &planning));
        ht_status status = try_doubling(&f, &opts, w.tiles * w.elems);
        assert_true(status == HT_OK || status == HT_EDEVICE);
        if (status == HT_EDEVICE) message_has(&f, "as HALFTONE_FAKE_FAIL says");
        failures += status != HT_OK;
        session_end(&f);
    }
    assert_true(failures > 10);
    unsetenv("HALFTONE_FAKE_FAIL");
    free(text);
}

static void a_plan_with_disk__needs_a_folder(void **state)
{
    (void)state;
    static const char text[] = "state %w f32[4]@disk\nsegment forward () -> () {\n}\n";
    session_fixture f = {.ctx = context_create(1, NULL)};
    ht_session_opts opts = HT_SESSION_OPTS;
    must(&f, ht_graph_parse(&f.g, f.ctx, "text", text, strlen(text)));
    must(&f, ht_plan_create(&f.plan, f.g, NULL));
    assert_int_equal(ht_session_create(&f.s, f.plan, NULL), HT_EINVAL);
    message_has(&f, "the plan has values in @disk, and no folder is given for them");
    opts.disk_folder = "/nowhere";
    assert_int_equal(ht_session_create(&f.s, f.plan, &opts), HT_EIO);
    message_has(&f, "disk: /nowhere cannot hold files: No such file or directory");
    session_end(&f);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, test_folder_setup, test_folder_teardown)
    const struct CMUnitTest tests[] = {
        CASE(tiles__are_read_computed_and_written),
        CASE(tiles__of_random_sizes_wait_for_each_other),
        CASE(state__on_the_disk_has_the_bits_of_main),
        CASE(places__of_the_disk_are_copied_there),
        CASE(large_state__is_seen_in_pieces_of_bounded_memory),
        CASE(every_result__can_be_looked_at),
        CASE(a_fault__fails_the_step_and_names_the_state),
        CASE(a_fault_of_the_accelerator__ends_staged_copies),
        CASE(a_plan_with_disk__needs_a_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
