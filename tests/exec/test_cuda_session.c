/* Sessions on the CUDA device, a GPU or the emulator: element-wise calls that run together have the bits of those calls
 * alone, and the values of the CPU; state in host memory and on a disk; the search for the fastest way. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "folder_fixture.h"
#include "fused_pair.h"
#include "kernel/cuda/way_search.h"
#include "kernel/kernel.h"
#include "random_graph.h"
#include "session_fixture.h"

enum { SKIPPED = 77, CHAINS = 12, LONG_CHAINS = 150 };

static size_t most_steps(const ht_plan *plan)
{
    size_t most = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++) {
            const ht_fused *fused = plan->segments[s].instrs[i].fused;
            if (fused && (size_t)fused->step_count > most) most = (size_t)fused->step_count;
        }
    return most;
}

static void cuda__fused_calls_have_the_bits_of_single_ones(void **state)
{
    (void)state;
    fused_pair w = {.device = "cuda"};
    size_t most = 0, planned = 0, chains = getenv("HALFTONE_LONG") ? LONG_CHAINS : CHAINS;
    w.ctx = context_create(2, NULL);
    for (uint64_t seed = 0; seed < chains; seed++) {
        w.g = random_graph_chain(w.ctx, seed);
        assert_non_null(w.g);
        if (fused_pair_plan(&w, seed)) {
            planned++;
            if (most_steps(w.plan[0]) > most) most = most_steps(w.plan[0]);
            assert_true(most_steps(w.plan[1]) <= 1);
            fused_pair_run(&w, "forward", seed);
        } else if (!strstr(ht_context_message(w.ctx), "an operand is f8")) {
            fused_pair_fail(&w, "does not plan", seed);
        }
        fused_pair_close(&w);
    }
    assert_true(planned > chains / 2);
    assert_true(most > 4);
    ht_context_free(w.ctx);
}

/* Two sums of columns and an f8 form, each of what point-wise calls make; others read one of these values, too. */
static const char reductions[] =
    "segment forward (%x bf16[96,80], %dy bf16[96,80], %h f32[33,7]) -> (s=%s, d=%d, y=%y, turned=%turned, t=%t) {\n"
    "  %g = gelu_tanh bf16[96,80] (%x)\n"
    "  %y, %turned, %scale, %amax = quantize_both f8e4m3[96,80], f8e4m3[80,96], f32[], f32[] (%g)\n"
    "  %d = gelu_tanh_grad bf16[96,80] (%dy, %x)\n"
    "  %s = sum f32[80] (%d) axes=[0]\n"
    "  %a = tanh f32[33,7] (%h)\n"
    "  %b = mul f32[33,7] (%a, %h)\n"
    "  %t = sum f32[7] (%b) axes=[0]\n"
    "}\n";

static size_t count_folds(const ht_plan *plan)
{
    size_t folds = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++) {
            const ht_fused *fused = plan->segments[s].instrs[i].fused;
            folds += fused && fused->fold;
        }
    return folds;
}

static void cuda__reductions_of_calls_before_them_have_the_bits_of_single_ones(void **state)
{
    (void)state;
    fused_pair w = {.device = "cuda"};
    w.ctx = context_create(2, NULL);
    assert_int_equal(ht_graph_parse(&w.g, w.ctx, "reductions", reductions, strlen(reductions)), HT_OK);
    assert_true(fused_pair_plan(&w, 1));
    assert_int_equal(count_folds(w.plan[0]), 3);
    assert_int_equal(count_folds(w.plan[1]), 0);
    fused_pair_run(&w, "forward", 1);
    fused_pair_close(&w);
    ht_context_free(w.ctx);
}

/* ---- the fastest of several ways ---- */

typedef struct ways {
    ht_queue *queue;
    size_t bytes;
} ways;

/* Way 0 copies the first operand forty times, way 1 the second, way 2 the first, way 3 fails. */
static ht_status copy_in_a_way(void *arg, size_t way, void *const *operands, void *result)
{
    const ways *w = arg;
    if (way == 3) return HT_EDEVICE;
    for (int i = 0; i < (way == 0 ? 40 : 1); i++)
        HT_TRY(ht_queue_copy(w->queue, result, operands[way == 1], w->bytes, HT_COPY_WITHIN));
    return HT_OK;
}

static void search__takes_the_fastest_way_to_the_same_bits(void **state)
{
    (void)state;
    ht_context *ctx = context_create(1, NULL);
    ht_device *device;
    ways w = {.bytes = 8 << 20};
    assert_int_equal(ht_device_get(&device, ctx, "cuda"), HT_OK);
    assert_int_equal(device->class->queue_create(device, &w.queue), HT_OK);
    const int64_t elems = (int64_t)w.bytes / 4;
    ht_search s = {.queue = w.queue,
                   .ways = 4,
                   .operands = {{HT_F32, elems}, {HT_BF16, 2 * elems}},
                   .result = {HT_F32, elems},
                   .run = copy_in_a_way,
                   .arg = &w};
    ht_search_result r = ht_search_ways(&s);
    assert_int_equal(r.best, 2);
    assert_true(r.fastest < r.first);
    ht_queue_free(w.queue);
    ht_context_free(ctx);
}

/* ---- against the CPU ---- */

static const char smooth[] = "segment forward (%x f32[37,70], %half bf16[37,70], %row f32[70], %column f32[37,1], "
                             "%number f32[]) -> (y=%y, z=%z, mask=%mask) {\n"
                             "  %rows = expand f32[37,70] (%row)\n"
                             "  %columns = expand f32[37,70] (%column)\n"
                             "  %numbers = expand f32[37,70] (%number)\n"
                             "  %a = mul f32[37,70] (%x, %rows)\n"
                             "  %b = add f32[37,70] (%a, %columns)\n"
                             "  %c = gelu f32[37,70] (%b)\n"
                             "  %d = cast f32[37,70] (%half)\n"
                             "  %e = sigmoid f32[37,70] (%d)\n"
                             "  %f = mul f32[37,70] (%c, %e)\n"
                             "  %y = add f32[37,70] (%f, %numbers)\n"
                             "  %t = tanh f32[37,70] (%y)\n"
                             "  %z = cast bf16[37,70] (%t)\n"
                             "  %mask = gt bool[37,70] (%x, %rows)\n"
                             "}\n";
enum { ELEMENTS = 37 * 70 };

typedef struct results {
    double y[ELEMENTS], z[ELEMENTS], mask[ELEMENTS];
} results;

static void write_numbers(const session_fixture *f, const char *name)
{
    const ht_slot *slot = ht_plan_slot(f->plan, name);
    double data[ELEMENTS];
    size_t count = (size_t)ht_type_elems(&slot->type);
    for (size_t i = 0; i < count; i++) data[i] = 2 * sin(1.3 * (double)i + (double)name[0]);
    must(f, ht_session_write_f64(f->s, name, data, count));
}

static void read_numbers(const session_fixture *f, const char *name, double *numbers)
{
    static double bytes[ELEMENTS];
    const ht_slot *slot = ht_plan_slot(f->plan, name);
    must(f, ht_session_read(f->s, name, bytes, (size_t)ht_type_bytes(&slot->type)));
    for (int64_t i = 0; i < ELEMENTS; i++) numbers[i] = ht_load_f64(bytes, slot->type.dtype, i);
}

static size_t run_smooth(const char *device, results *r)
{
    session_fixture f = {.ctx = context_create(2, NULL)};
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.device = device;
    must(&f, ht_graph_parse(&f.g, f.ctx, "smooth", smooth, strlen(smooth)));
    session_plan(&f, &opts, 1);
    const char *const inputs[] = {"x", "half", "row", "column", "number"};
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) write_numbers(&f, inputs[i]);
    must(&f, ht_session_run(f.s, "forward"));
    read_numbers(&f, "y", r->y);
    read_numbers(&f, "z", r->z);
    read_numbers(&f, "mask", r->mask);
    size_t steps = most_steps(f.plan);
    session_end(&f);
    return steps;
}

static void cuda__fused_calls_have_the_values_of_the_cpu(void **state)
{
    (void)state;
    static results cpu, cuda;
    run_smooth("cpu", &cpu);
    assert_true(run_smooth("cuda", &cuda) > 4);
    for (int i = 0; i < ELEMENTS; i++) {
        assert_true(fabs(cpu.y[i] - cuda.y[i]) <= 4e-6 * (1 + fabs(cpu.y[i])));
        assert_true(fabs(cpu.z[i] - cuda.z[i]) <= 0x1p-7 * fabs(cpu.z[i]) + 4e-6); /* a step of bf16 */
        assert_true(cpu.mask[i] == cuda.mask[i]);
    }
}

/* ---- state in host memory ---- */

static const char network[] = "state %w f32[6,40] heading=parameters init=normal(0,0.5) trained\n"
                              "state %b f32[40] heading=parameters init=constant(0.1) trained\n"
                              "state %v f32[40,3] heading=parameters init=uniform(-1,1) trained\n"
                              "segment forward (%x f32[4,6], %label i32[4]) -> (loss=%loss) {\n"
                              "  %h = matmul f32[4,40] (%x, %w)\n"
                              "  %bb = expand f32[4,40] (%b)\n"
                              "  %p = add f32[4,40] (%h, %bb)\n"
                              "  %a = tanh f32[4,40] (%p)\n"
                              "  %y = matmul f32[4,3] (%a, %v)\n"
                              "  %loss, %lse = cross_entropy f32[], f32[4] (%y, %label)\n"
                              "}\n";
enum { WEIGHTS = 6 * 40 };

typedef struct learned {
    double loss, w[WEIGHTS], m[WEIGHTS];
} learned;

/* Each: "none", "host" or "disk". */
static learned learn(const char *optimizer, const char *params, const char *precision)
{
    session_fixture f = {.ctx = context_create(2, NULL)};
    const ht_train_setting settings[] = {{"offload_optimizer", optimizer},
                                         {"offload_param", params},
                                         {"offload_persistent", "50"},
                                         {"offload_tile", "96"}};
    ht_train_opts training = HT_TRAIN_OPTS;
    ht_plan_opts planning = HT_PLAN_OPTS;
    ht_session_opts opts = HT_SESSION_OPTS;
    learned l;
    training.clip = 0.5;
    planning.device = "cuda";
    planning.precision = precision;
    planning.settings = settings;
    planning.setting_count = sizeof settings / sizeof settings[0];
    opts.disk_folder = test_folder;
    must(&f, ht_graph_parse(&f.g, f.ctx, "network", network, strlen(network)));
    must(&f, ht_graph_train(f.g, &training));
    must(&f, ht_plan_create(&f.plan, f.g, &planning));
    must(&f, ht_session_create(&f.s, f.plan, &opts));
    for (int step = 0; step < 8; step++) {
        double x[24], label[4];
        for (int i = 0; i < 24; i++) x[i] = 0.25 * ((i * 7 + step * 3) % 11) - 1;
        for (int i = 0; i < 4; i++) label[i] = (i + step) % 3;
        must(&f, ht_session_write_f64(f.s, "x", x, 24));
        must(&f, ht_session_write_f64(f.s, "label", label, 4));
        must(&f, ht_session_run(f.s, "train"));
    }
    must(&f, ht_session_read_f64(f.s, "loss", &l.loss, 1));
    must(&f, ht_session_read_f64(f.s, "w", l.w, WEIGHTS));
    must(&f, ht_session_read_f64(f.s, "w.m", l.m, WEIGHTS));
    session_end(&f);
    return l;
}

/* The processor's update may round otherwise than the device's. */
static void cuda__state_elsewhere_is_updated_by_the_processor(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp32", "bf16"};
    static const char *const places[][2] = {{"host", "none"}, {"disk", "none"}, {"host", "host"}, {"disk", "disk"}};
    for (int i = 0; i < 2; i++) {
        double step = i ? 2e-3 : 2e-5; /* in bf16 a last digit of a weight may tip */
        learned kept = learn("none", "none", precisions[i]);
        for (int p = 0; p < 4; p++) {
            learned moved = learn(places[p][0], places[p][1], precisions[i]);
            assert_true(fabs(kept.loss - moved.loss) <= step * (1 + fabs(kept.loss)));
            for (int k = 0; k < WEIGHTS; k++) {
                assert_true(fabs(kept.w[k] - moved.w[k]) <= step);
                assert_true(fabs(kept.m[k] - moved.m[k]) <= step);
            }
        }
        /* What is only fetched keeps its bits. */
        learned fetched = learn("none", "host", precisions[i]);
        assert_memory_equal(&kept, &fetched, sizeof kept);
    }
}

/* ---- beside a disk ---- */

/* Two tiles, of which one is read while the other is computed and written. */
static const char tiles[] = "state %w f32[5000]@disk heading=optimizer init=constant(3)\n"
                            "state %a f32[2500]@disk {%w, 0, [1]} heading=optimizer\n"
                            "state %b f32[2500]@disk {%w, 2500, [1]} heading=optimizer\n"
                            "segment double () -> () {\n"
                            "  %a.s = copy_start f32[2500] (%a)\n"
                            "  %b.s = copy_start f32[2500] (%b)\n"
                            "  %a.m = copy_done f32[2500] (%a.s, %a)\n"
                            "  %c = add f32[2500] (%a.m, %a.m)\n"
                            "  %c.s = copy_start f32[2500]@disk (%c)\n"
                            "  %b.m = copy_done f32[2500] (%b.s, %b)\n"
                            "  %d = add f32[2500] (%b.m, %b.m)\n"
                            "  %e = copy f32[2500]@disk (%d)\n"
                            "  %c.d = copy_done f32[2500]@disk (%c.s, %c)\n"
                            "  store %a = %c.d\n"
                            "  store %b = %e\n"
                            "}\n";

static void cuda__tiles_come_from_a_disk_and_go_there(void **state)
{
    (void)state;
    session_fixture f = {.ctx = context_create(2, NULL)};
    ht_plan_opts planning = HT_PLAN_OPTS;
    ht_session_opts opts = HT_SESSION_OPTS;
    ht_disk_opts disk = HT_DISK_OPTS;
    float w[5000];
    planning.device = "cuda";
    disk.block_size = 4096; /* several pieces */
    disk.queue_depth = 1;
    opts.disk_folder = test_folder;
    opts.disk = &disk;
    for (int i = 0; i < 5000; i++) w[i] = (float)i;
    must(&f, ht_graph_parse(&f.g, f.ctx, "tiles", tiles, strlen(tiles)));
    must(&f, ht_plan_create(&f.plan, f.g, &planning));
    must(&f, ht_session_create(&f.s, f.plan, &opts));
    must(&f, ht_session_write(f.s, "w", w, sizeof w));
    for (int step = 0; step < 4; step++) must(&f, ht_session_run(f.s, "double"));
    must(&f, ht_session_read(f.s, "w", w, sizeof w));
    for (int i = 0; i < 5000; i++) assert_true(w[i] == 16 * (float)i);
    session_end(&f);
}

static const char *refusal(void)
{
    static char text[512];
    ht_context *ctx = context_shared();
    ht_device *device;
    if (ht_device_get(&device, ctx, "cuda") == HT_OK) return NULL;
    snprintf(text, sizeof text, "%s", ht_context_message(ctx));
    return text;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuda__fused_calls_have_the_bits_of_single_ones),
        cmocka_unit_test(cuda__reductions_of_calls_before_them_have_the_bits_of_single_ones),
        cmocka_unit_test(search__takes_the_fastest_way_to_the_same_bits),
        cmocka_unit_test(cuda__fused_calls_have_the_values_of_the_cpu),
        cmocka_unit_test_setup_teardown(cuda__state_elsewhere_is_updated_by_the_processor, test_folder_setup,
                                        test_folder_teardown),
        cmocka_unit_test_setup_teardown(cuda__tiles_come_from_a_disk_and_go_there, test_folder_setup,
                                        test_folder_teardown),
    };
    if (refusal()) {
        printf("skipped: %s\n", refusal());
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
