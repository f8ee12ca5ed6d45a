/* What instructions cost: bytes of distinct elements, FLOPs by kind. */
#include "model_fixture.h"
#include "session_fixture.h"

#include <string.h>

/* A text graph, planned. */
static session_fixture planned(const char *text, bool fusion)
{
    session_fixture f = session_begin(1);
    ht_graph_free(f.g);
    f.g = NULL;
    must(&f, ht_graph_parse(&f.g, f.ctx, "test", text, strlen(text)));
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.no_fusion = !fusion;
    must(&f, ht_plan_create(&f.plan, f.g, &opts));
    return f;
}

/* The only instruction of the segment forward. */
static const ht_instr *only_instr(const session_fixture *f)
{
    const ht_plan_segment *forward = &f->plan->segments[ht_plan_segment_find(f->plan, "forward")];
    assert_int_equal(forward->instr_count, 1);
    return &forward->instrs[0];
}

static ht_cost cost_of(const char *text, bool fusion)
{
    session_fixture f = planned(text, fusion);
    ht_cost cost = only_instr(&f)->cost;
    session_end(&f);
    return cost;
}

/* ---- bytes ---- */

static void cost__of_an_expanded_bias_counts_the_elements_that_it_has(void **state)
{
    (void)state;
    ht_cost cost = cost_of("segment forward (%x f32[64,3072], %b f32[3072]) -> (y=%y) {\n"
                           "  %e = expand f32[64,3072] (%b)\n  %y = add f32[64,3072] (%x, %e)\n}\n",
                           false);
    assert_true(cost.bytes == 4.0 * (2 * 64 * 3072 + 3072));
    assert_true(cost.other_flops == 64 * 3072 && cost.dot_flops == 0);
}

static void cost__of_a_fused_instruction_counts_what_it_reads_and_writes(void **state)
{
    (void)state;
    enum { M = 32, K = 48, N = 320 };
    ht_cost cost = cost_of("segment forward (%x f32[32,48], %w f32[48,320], %b f32[320], %r f32[32,320]) -> (y=%y) {\n"
                           "  %p = matmul f32[32,320] (%x, %w) region=1\n  %e = expand f32[32,320] (%b) region=1\n"
                           "  %a = add f32[32,320] (%p, %e) region=1\n  %h = relu f32[32,320] (%a) region=1\n"
                           "  %y = add f32[32,320] (%h, %r) region=1\n}\n",
                           true);
    assert_true(cost.bytes == 4.0 * (M * K + K * N + N + M * N + M * N));
    assert_true(cost.dot_flops == 2.0 * M * K * N);
    assert_true(cost.other_flops == 3.0 * M * N);
}

static void cost__counts_an_operand_that_is_read_twice_once(void **state)
{
    (void)state;
    const char text[] = "segment forward (%x f32[40,8]) -> (y=%y) {\n  %y = mul f32[40,8] (%x, %x)\n}\n";
    for (int fusion = 0; fusion < 2; fusion++) assert_true(cost_of(text, fusion).bytes == 4.0 * 2 * 40 * 8);
    /* A transposed view has the same elements, in other places. */
    assert_true(cost_of("segment forward (%x f32[8,8]) -> (y=%y) {\n  %t = permute f32[8,8] (%x) order=[1,0]\n"
                        "  %y = mul f32[8,8] (%x, %t)\n}\n",
                        false)
                    .bytes == 4.0 * 2 * 8 * 8);
    /* Rows 0 to 5 and rows 2 to 7 have four in common. */
    assert_true(cost_of("segment forward (%x f32[8,8]) -> (y=%y) {\n"
                        "  %a = slice f32[6,8] (%x) start=[0,0]\n"
                        "  %b = slice f32[6,8] (%x) start=[2,0]\n"
                        "  %y = mul f32[6,8] (%a, %b)\n}\n",
                        false)
                    .bytes == 4.0 * (8 * 8 + 6 * 8));
}

static void cost__of_a_lookup_counts_the_rows_that_are_looked_up(void **state)
{
    (void)state;
    assert_true(cost_of("segment forward (%t f32[5000,16], %i i32[6]) -> (y=%y) {\n"
                        "  %y = embedding f32[6,16] (%t, %i)\n}\n",
                        true)
                    .bytes == 4.0 * (6 + 2 * 6 * 16));
    /* Never more than the table has. */
    assert_true(cost_of("segment forward (%t f32[3,16], %i i32[600]) -> (y=%y) {\n"
                        "  %y = embedding f32[600,16] (%t, %i)\n}\n",
                        true)
                    .bytes == 4.0 * (600 + 3 * 16 + 600 * 16));
    assert_true(cost_of("segment forward (%x f32[4,900], %i i32[4,3]) -> (y=%y) {\n"
                        "  %y = gather f32[4,3] (%x, %i) axis=1\n}\n",
                        true)
                    .bytes == 4.0 * (3 * 4 * 3));
}

static void cost__of_a_strided_convolution_counts_what_its_windows_see(void **state)
{
    (void)state;
    ht_cost cost = cost_of("segment forward (%x f32[1,8,16,16], %w f32[4,8,1,1]) -> (y=%y) {\n"
                           "  %y = conv2d f32[1,4,8,8] (%x, %w) stride=[2,2]\n}\n",
                           true);
    assert_true(cost.bytes == 4.0 * (8 * 8 * 8 + 4 * 8 + 4 * 8 * 8));
    assert_true(cost.dot_flops == 2.0 * 4 * 8 * 8 * 8 && cost.other_flops == 0);
    cost = cost_of("segment forward (%x f32[1,8,16,16], %w f32[4,8,3,3]) -> (y=%y) {\n"
                   "  %y = conv2d f32[1,4,7,7] (%x, %w) stride=[2,2]\n}\n",
                   true);
    /* The last row and column are behind the last window. */
    assert_true(cost.bytes == 4.0 * (8 * 15 * 15 + 4 * 8 * 9 + 4 * 7 * 7));
}

/* ---- FLOPs ---- */

/* Every linear layer thrice: y = x w, dx = dy wᵀ, dw = xᵀ dy; of attention two products forward and five backward, for
 * the pairs that the causal mask leaves. */
static double gpt2_dot_flops(double layers, double width, double vocabulary, double batch, double length)
{
    double weights = layers * 12 * width * width + vocabulary * width;
    double pairs = batch * length * (length + 1) / 2;
    return 6 * weights * batch * length + layers * 2 * 7 * width * pairs;
}

static void cost__of_a_gpt2_step_has_the_dot_flops_of_the_formula(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp32", "bf16"};
    for (int at = 0; at < 4; at++) {
        model_fixture w;
        ht_model_request request = {.task = HT_TASK_LM, .batch = 3, .length = 8, .vocabulary = 13};
        ht_train_opts train = HT_TRAIN_OPTS;
        ht_plan_opts opts = HT_PLAN_OPTS;
        opts.precision = precisions[at % 2];
        opts.no_fusion = at < 2;
        train.accumulate = 1 + at;
        model_start_planned(&w, "gpt2", "{\"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16}", request, &train, &opts, 1);
        int program = ht_plan_program_find(w.plan, "train");
        assert_true(program >= 0);
        ht_cost step = ht_plan_program_cost(w.plan, &w.plan->programs[program]);
        assert_true(step.dot_flops == (1 + at) * gpt2_dot_flops(2, 16, 13, 3, 8));
        assert_true(step.other_flops > 0 && step.other_flops < step.dot_flops);
        assert_true(step.recomputed_flops == 0);
        assert_true(ht_cost_flops(step) == step.dot_flops + step.other_flops);
        model_stop(&w);
    }
}

static void cost__of_recomputed_nodes_counts_apart(void **state)
{
    (void)state;
    const char text[] = "segment forward (%x f32[32,48], %w f32[48,320], %r f32[32,320]) -> (y=%y) {\n"
                        "  %p = matmul f32[32,320] (%x, %w) region=1 no_merge recomputed\n"
                        "  %h = relu f32[32,320] (%p) region=1 no_merge recomputed\n"
                        "  %y = mul f32[32,320] (%h, %r) role=bwd_act region=1\n}\n";
    for (int fusion = 0; fusion < 2; fusion++) {
        session_fixture f = planned(text, fusion);
        const ht_plan_segment *forward = &f.plan->segments[ht_plan_segment_find(f.plan, "forward")];
        ht_cost sum = ht_plan_segment_cost(forward);
        assert_int_equal(forward->instr_count, fusion ? 1 : 3);
        assert_true(sum.dot_flops == 0 && sum.other_flops == 32 * 320);
        assert_true(sum.recomputed_flops == 2.0 * 32 * 48 * 320 + 32 * 320);
        /* By the node that an instruction is there for. */
        assert_true(forward->instrs[0].recomputed);
        if (!fusion) assert_false(forward->instrs[2].recomputed);
        session_end(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cost__of_an_expanded_bias_counts_the_elements_that_it_has),
        cmocka_unit_test(cost__of_a_fused_instruction_counts_what_it_reads_and_writes),
        cmocka_unit_test(cost__counts_an_operand_that_is_read_twice_once),
        cmocka_unit_test(cost__of_a_lookup_counts_the_rows_that_are_looked_up),
        cmocka_unit_test(cost__of_a_strided_convolution_counts_what_its_windows_see),
        cmocka_unit_test(cost__of_a_gpt2_step_has_the_dot_flops_of_the_formula),
        cmocka_unit_test(cost__of_recomputed_nodes_counts_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
