/* Predictions: curves of families, the model of the caches, queues, and the memory timeline. */
#include "model_fixture.h"
#include "session_fixture.h"

#include "plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static session_fixture fixture_of(const char *text)
{
    session_fixture f = session_begin(1);
    ht_graph_free(f.g);
    f.g = NULL;
    must(&f, ht_graph_parse(&f.g, f.ctx, "test", text, strlen(text)));
    must(&f, ht_plan_create(&f.plan, f.g, NULL));
    return f;
}

/* A target on which every family reaches the same share of the roofline. */
static void fill_target(ht_target *t, double share)
{
    t->flops[HT_F32] = 1e11;
    t->bandwidth[HT_SPACE_MAIN] = 3e10;
    for (int i = 0; i < HT_CACHE_COUNT; i++) {
        t->cache_bytes[i] = 32768 << (5 * i);
        t->cache_bandwidth[i] = 2e11 / (1 << i);
    }
    for (int family = 0; family < ht_family_count; family++)
        for (int size = 0; size < HT_FAMILY_SIZES; size++) t->efficiency[family][size] = share;
}

static void curves__go_through_their_points_and_on(void **state)
{
    (void)state;
    ht_family_curve c = {.known = true, .product = true, .falls = true, .x = {10, 100, 1000}, .rate = {1e9, 4e9, 8e9}};
    assert_true(fabs(ht_family_rate(&c, 10) - 1e9) < 1 && fabs(ht_family_rate(&c, 100) - 4e9) < 1);
    assert_true(fabs(ht_family_rate(&c, 1000) - 8e9) < 1 && ht_family_rate(&c, 1e6) == 8e9);
    /* Halfway on a logarithmic axis: the geometric mean. */
    assert_true(fabs(ht_family_rate(&c, sqrt(1000)) - 2e9) < 1);
    /* Less for each element: slower by as much. */
    assert_true(fabs(ht_family_rate(&c, 5) - 5e8) < 1);
    c.falls = false;
    assert_true(ht_family_rate(&c, 5) == 1e9);
}

static void curves__are_those_of_the_targets_efficiencies(void **state)
{
    (void)state;
    session_fixture f = session_begin(1);
    ht_target t = {.threads = 1};
    static ht_family_curve curves[HT_MOST_FAMILIES];
    fill_target(&t, 0.5);
    t.efficiency[ht_family_find("move")][HT_FAMILY_LARGE] = 0;
    assert_true(ht_family_curves(f.ctx, &t, curves));
    /* 2·256³ FLOPs at half of 1e11 FLOP/s; 2·256³ over 3·256² elements. */
    const ht_family_curve *matmul = &curves[ht_family_find("matmul")];
    assert_true(matmul->known && matmul->product && fabs(matmul->rate[HT_FAMILY_MEDIUM] / 5e10 - 1) < 1e-9);
    assert_true(fabs(matmul->x[HT_FAMILY_MEDIUM] - 2.0 * 256 / 3) < 1e-9);
    assert_false(curves[ht_family_find("move")].known);
    for (int i = 0; i < ht_family_count; i++)
        if (i != ht_family_find("move") && ht_family_sample(&ht_families[i], HT_DEVICE_CPU, 0) && !curves[i].known)
            fail_msg("%s", ht_families[i].name);
    /* A GPU has samples of its own: 2·8192·768·768 FLOPs fill it, bytes are what others move. */
    t.device = HT_DEVICE_CUDA;
    assert_true(ht_family_curves(f.ctx, &t, curves));
    matmul = &curves[ht_family_find("matmul_bf16")];
    assert_true(matmul->known && fabs(matmul->x[HT_FAMILY_MEDIUM] - 2.0 * 8192 * 768 * 768) < 1);
    const ht_family_curve *pointwise = &curves[ht_family_find("pointwise")];
    assert_true(pointwise->known && !pointwise->product && fabs(pointwise->x[HT_FAMILY_SMALL] - 2.0 * 4 * 4096) < 1);
    session_end(&f);
}

static void families__are_chosen_by_number_type_and_form(void **state)
{
    (void)state;
    static const struct {
        const char *family, *text;
    } cases[] = {
        {"matmul", "(%x f32[8,8], %w f32[8,8]) -> (y=%y) {\n  %y = matmul f32[8,8] (%x, %w)\n}\n"},
        {"matmul_bf16", "(%x bf16[8,8], %w bf16[8,8]) -> (y=%y) {\n  %y = matmul bf16[8,8] (%x, %w)\n}\n"},
        {"matmul_f16", "(%x f16[8,8], %w f16[8,8]) -> (y=%y) {\n  %y = matmul f16[8,8] (%x, %w)\n}\n"},
        {"matmul_i8", "(%x u8[8,8], %w i8[8,8], %s f32[], %t f32[]) -> (y=%y) {\n"
                      "  %y = matmul_q f32[8,8] (%x, %w, %s, %t)\n}\n"},
        {"matmul_batched", "(%x f32[4,8,8], %w f32[4,8,8]) -> (y=%y) {\n  %y = matmul f32[4,8,8] (%x, %w)\n}\n"},
        {"conv", "(%x f32[1,4,8,8], %w f32[4,4,1,1]) -> (y=%y) {\n  %y = conv2d f32[1,4,8,8] (%x, %w)\n}\n"},
        {"conv_few", "(%x f32[1,4,4,4], %w f32[4,4,1,1]) -> (y=%y) {\n  %y = conv2d f32[1,4,4,4] (%x, %w)\n}\n"},
        {"conv_grouped",
         "(%x f32[1,4,8,8], %w f32[4,1,1,1]) -> (y=%y) {\n  %y = conv2d f32[1,4,8,8] (%x, %w) groups=4\n}\n"},
        {"pointwise", "(%x f32[8]) -> (y=%y) {\n  %y = tanh f32[8] (%x)\n}\n"},
        {"logic", "(%x f32[8], %w f32[8]) -> (y=%y) {\n  %y = lt bool[8] (%x, %w)\n}\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "segment forward %s", cases[i].text);
        session_fixture f = fixture_of(text);
        const ht_plan_segment *s = &f.plan->segments[ht_plan_segment_find(f.plan, "forward")];
        int family = ht_family_of_call(ht_instr_call(&s->instrs[s->instr_count - 1]), HT_DEVICE_CPU);
        assert_true(family != HT_NO_FAMILY);
        assert_string_equal(ht_families[family].name, cases[i].family);
        session_end(&f);
    }
}

static double step_seconds(const ht_plan *plan)
{
    ht_prediction p;
    assert_int_equal(ht_plan_predict(&p, plan, "train"), HT_OK);
    ht_step_prediction step = ht_prediction_step(&p, "train", 0);
    assert_true(fabs(step.seconds - step.forward - step.backward - step.update - step.waits) < 1e-9 * step.seconds);
    ht_prediction_free(&p);
    return step.seconds;
}

/* The elements that the cost says it touches, whatever lies beside them. */
static void calls__are_as_large_as_what_they_touch(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double size;
    } cases[] = {
        {"(%t f32[50000,64], %i i32[16]) -> (y=%y) {\n  %y = embedding f32[16,64] (%t, %i)\n}\n", 16 + 2 * 16 * 64},
        {"(%t bf16[50000,64], %i i64[16]) -> (y=%y) {\n  %y = embedding bf16[16,64] (%t, %i)\n}\n", 16 + 2 * 16 * 64},
        {"(%x f32[5000,8], %i i32[4,8]) -> (y=%y) {\n  %y = gather f32[4,8] (%x, %i)\n}\n", 3 * 4 * 8},
        {"(%x f32[5000,8], %i i64[]) -> (y=%y) {\n  %y = dynamic_slice f32[4,8] (%x, %i) rows=4\n}\n", 1 + 2 * 4 * 8},
        /* The gradient of a table is written whole, with zeros between its rows. */
        {"(%i i32[16], %d f32[16,64]) -> (y=%y) {\n  %y = embedding_grad f32[500,64] (%i, %d) rows=500\n}\n",
         16 + 16 * 64 + 500 * 64},
        /* Every second place of both axes. */
        {"(%x f32[1,4,16,16], %w f32[4,4,1,1]) -> (y=%y) {\n"
         "  %y = conv2d f32[1,4,8,8] (%x, %w) stride=[2,2]\n}\n",
         2.0 * 4 * 4 * 64 / (4 * 64 + 4 * 4 + 4 * 64)},
        {"(%x f32[100], %z f32[100]) -> (y=%y) {\n  %y = max f32[100] (%x, %z)\n}\n", 300},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[256];
        snprintf(text, sizeof text, "segment forward %s", cases[i].text);
        session_fixture f = fixture_of(text);
        const ht_plan_segment *s = &f.plan->segments[ht_plan_segment_find(f.plan, "forward")];
        const ht_call *call = ht_instr_call(&s->instrs[s->instr_count - 1]);
        if (fabs(ht_call_size(call) - cases[i].size) > 1e-9)
            fail_msg("%s: %g, not %g", call->op->name, ht_call_size(call), cases[i].size);
        session_end(&f);
    }
}

/* A lookup takes as long as its rows, not as long as its table. */
static void times__of_a_lookup_are_those_of_its_rows(void **state)
{
    (void)state;
    double seconds[2];
    for (int large = 0; large < 2; large++) {
        char text[256];
        snprintf(text, sizeof text,
                 "segment forward (%%t f32[%d,64], %%i i32[1024]) -> (y=%%y) {\n"
                 "  %%y = embedding f32[1024,64] (%%t, %%i)\n}\nprogram train { forward }\n",
                 large ? 65536 : 2048);
        session_fixture f = fixture_of(text);
        fill_target(&f.plan->target, 0.5);
        seconds[large] = step_seconds(f.plan);
        session_end(&f);
    }
    assert_true(seconds[0] > 0 && seconds[1] < 1.5 * seconds[0]);
}

/* ---- caches ---- */

static void caches__have_what_was_touched_last(void **state)
{
    (void)state;
    session_fixture f = fixture_of("segment forward (%x f32[1024], %z f32[1048576]) -> (y=%y, w=%w) {\n"
                                   "  %y = relu f32[1024] (%x)\n  %w = relu f32[1048576] (%z)\n}\n");
    fill_target(&f.plan->target, 1);
    f.plan->target.cache_bytes[HT_CACHE_L2] = 1 << 16;
    f.plan->target.cache_bytes[HT_CACHE_L3] = 1 << 22;
    const ht_plan_segment *s = &f.plan->segments[ht_plan_segment_find(f.plan, "forward")];
    assert_int_equal(s->instr_count, 2);
    const ht_instr *small = &s->instrs[s->instrs[0].cost.bytes < s->instrs[1].cost.bytes ? 0 : 1];
    const ht_instr *large = &s->instrs[small == &s->instrs[0] ? 1 : 0];
    ht_cache_model *m = ht_cache_model_create(f.plan);
    assert_non_null(m);
    /* At first everything comes from memory, and what is written goes back there. */
    ht_traffic t = ht_cache_model_run(m, small);
    assert_true(t.bytes[HT_CACHE_COUNT] == 3 * 4096 && t.bytes[HT_CACHE_L2] == 0);
    t = ht_cache_model_run(m, small);
    assert_true(t.bytes[HT_CACHE_L2] == 2 * 4096 && t.bytes[HT_CACHE_COUNT] == 0);
    /* 8 MiB later it is in no cache but for a share. */
    ht_cache_model_run(m, large);
    t = ht_cache_model_run(m, small);
    assert_true(t.bytes[HT_CACHE_COUNT] > 4096 && t.bytes[HT_CACHE_L3] > 0 && t.bytes[HT_CACHE_L2] == 0);
    ht_cache_model_free(m);
    session_end(&f);
}

/* ---- steps ---- */

static const char *const program = "state %w f32[256,256] heading=parameters\n"
                                   "segment forward (%x f32[256,256]) -> (y=%y) {\n"
                                   "  %y = matmul f32[256,256] (%x, %w)\n}\n"
                                   "program train { forward }\n";

static void steps__are_bounds_without_measured_kernels_and_longer_with_them(void **state)
{
    (void)state;
    session_fixture f = fixture_of(program);
    ht_prediction p;
    fill_target(&f.plan->target, 0);
    must(&f, ht_plan_predict(&p, f.plan, "train"));
    ht_step_prediction step = ht_prediction_step(&p, "train", 0);
    assert_true(step.measured_s == 0 && step.seconds == 2.0 * 256 * 256 * 256 / 1e11);
    assert_true(step.product_s == step.seconds && step.flops == 2.0 * 256 * 256 * 256);
    ht_prediction_free(&p);
    fill_target(&f.plan->target, 0.5);
    double half = step_seconds(f.plan);
    fill_target(&f.plan->target, 0.25);
    double quarter = step_seconds(f.plan);
    assert_true(half > 2 * step.seconds && half < 2.5 * step.seconds);
    assert_true(quarter > 1.8 * half && quarter < 2.1 * half);
    /* A program that is not there takes no time. */
    must(&f, ht_plan_predict(&p, f.plan, "nothing"));
    assert_true(ht_prediction_step(&p, "nothing", 0).seconds == 0);
    ht_prediction_free(&p);
    session_end(&f);
}

static void steps__have_the_joules_of_their_flops_and_bytes(void **state)
{
    (void)state;
    session_fixture f = fixture_of(program);
    ht_prediction p;
    fill_target(&f.plan->target, 0);
    f.plan->target.byte_energy[HT_SPACE_MAIN] = 1e-11;
    must(&f, ht_plan_predict(&p, f.plan, "train"));
    assert_true(ht_prediction_step(&p, "train", 0).unknown_joules); /* there is no figure for FLOPs */
    f.plan->target.flop_energy[HT_F32] = 2e-12;
    ht_prediction_free(&p);
    must(&f, ht_plan_predict(&p, f.plan, "train"));
    ht_step_prediction step = ht_prediction_step(&p, "train", 0);
    assert_false(step.unknown_joules);
    assert_true(fabs(step.joules - 2e-12 * step.flops - 1e-11 * step.bytes) < 1e-9 * step.joules);
    ht_prediction_free(&p);
    session_end(&f);
}

/* ---- the timeline ---- */

static void timeline__stacks_to_what_the_plan_says(void **state)
{
    (void)state;
    session_fixture f = fixture_of("segment forward (%x f32[64,64], %w f32[64,64]) -> (y=%y) {\n"
                                   "  %a = matmul f32[64,64] (%x, %w)\n  %b = matmul f32[64,64] (%a, %x)\n"
                                   "  %c = matmul f32[64,64] (%b, %a)\n  %y = matmul f32[64,64] (%c, %w)\n}\n"
                                   "program train { forward }\n");
    ht_memory_timeline t;
    const ht_plan_segment *s = &f.plan->segments[ht_plan_segment_find(f.plan, "forward")];
    must(&f, ht_plan_memory_timeline(&t, f.plan, "train"));
    assert_int_equal(t.count, s->instr_count);
    int64_t most = 0, alive = 0;
    for (size_t i = 0; i < t.count; i++) {
        assert_true(t.moments[i].values + t.moments[i].workspace == s->timeline[i]);
        if (s->timeline[i] > most) most = s->timeline[i];
    }
    assert_true(t.moments[t.peak].values + t.moments[t.peak].workspace == most);
    for (size_t i = 0; i < t.alive_count; i++) {
        alive += t.alive[i].bytes;
        assert_true(i == 0 || t.alive[i].bytes <= t.alive[i - 1].bytes);
        assert_true(t.alive[i].first <= t.moments[t.peak].instr && t.alive[i].last >= t.moments[t.peak].instr);
    }
    assert_true(alive > 0 && alive <= most);
    ht_memory_timeline_free(&t);
    must(&f, ht_plan_memory_timeline(&t, f.plan, "nothing"));
    assert_true(t.count == 0 && t.alive_count == 0);
    ht_memory_timeline_free(&t);
    session_end(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(curves__go_through_their_points_and_on),
        cmocka_unit_test(curves__are_those_of_the_targets_efficiencies),
        cmocka_unit_test(families__are_chosen_by_number_type_and_form),
        cmocka_unit_test(calls__are_as_large_as_what_they_touch),
        cmocka_unit_test(times__of_a_lookup_are_those_of_its_rows),
        cmocka_unit_test(caches__have_what_was_touched_last),
        cmocka_unit_test(steps__have_the_joules_of_their_flops_and_bytes),
        cmocka_unit_test(steps__are_bounds_without_measured_kernels_and_longer_with_them),
        cmocka_unit_test(timeline__stacks_to_what_the_plan_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
