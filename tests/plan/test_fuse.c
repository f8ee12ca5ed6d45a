/* Fused and unfused plans of one graph give the same bits: on random graphs, on bodies with every number type and
 * broadcast, and on whole training steps. test_fuse_reduce has reductions. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "fused_pair.h"
#include "random_graph.h"

static size_t count_fused(const ht_plan *plan)
{
    size_t count = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++)
            count += plan->segments[s].instrs[i].fused && plan->segments[s].instrs[i].fused->step_count > 1;
    return count;
}

static void fuse__random_graphs_give_the_same_bits(void **state)
{
    (void)state;
    fused_pair w = {0};
    size_t planned = 0, fused = 0;
    w.ctx = context_create(2, NULL);
    for (uint64_t seed = 0; seed < 400; seed++) {
        w.g = random_graph_build(w.ctx, seed, 10 + seed % 90);
        assert_non_null(w.g);
        /* Random graphs give inputs random first values, which only the interpreter knows. */
        for (size_t i = 0; i < w.g->input_init_capacity; i++) w.g->input_inits[i] = HT_ZERO;
        if (fused_pair_plan(&w, seed)) {
            planned++;
            fused += count_fused(w.plan[0]);
            assert_int_equal(count_fused(w.plan[1]), 0);
            assert_true(w.plan[0]->model_hash == w.plan[1]->model_hash);
            fused_pair_run(&w, "train", seed);
        }
        fused_pair_close(&w);
    }
    assert_true(planned > 200);
    assert_true(fused > 200);
    ht_context_free(w.ctx);
}

static void chains(const char *isa, int threads)
{
    fused_pair w = {0};
    size_t fused = 0;
    w.ctx = context_create(threads, isa);
    for (uint64_t seed = 0; seed < 150; seed++) {
        w.g = random_graph_chain(w.ctx, seed);
        if (!fused_pair_plan(&w, seed)) fused_pair_fail(&w, "does not plan", seed);
        fused += count_fused(w.plan[0]);
        fused_pair_run(&w, "forward", seed);
        fused_pair_close(&w);
    }
    assert_true(fused > 150);
    ht_context_free(w.ctx);
}

static void fuse__chains_give_the_same_bits(void **state)
{
    (void)state;
    chains(NULL, 2);
}

static void fuse__chains_give_the_same_bits_on_portable_kernels(void **state)
{
    (void)state;
    chains("portable", 1);
}

/* ---- products ---- */

/* bias, activation, residual, a second result, several matrices, rows that end inside a block. */
static ht_graph *make_product(ht_context *ctx, uint64_t seed)
{
    static const int64_t rows[] = {40, 7, 129, 64}, columns[] = {128, 300, 96, 513}, inner[] = {64, 200, 33};
    random_graph d = random_graph_make(seed);
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, ctx), HT_OK);
    int64_t batch = random_graph_next(&d, 3) ? 1 : 3, m = rows[random_graph_next(&d, 4)],
            n = columns[random_graph_next(&d, 4)];
    int64_t k = inner[random_graph_next(&d, 3)], result[3] = {batch, m, n};
    ht_dtype dtype = random_graph_next(&d, 3) ? HT_F32 : HT_BF16;
    ht_val a = ht_input(g, "a", dtype, 3, (int64_t[]){batch, m, k});
    ht_val b = ht_param(g, "b", HT_F32, 3, (int64_t[]){batch, k, n}, HT_UNIFORM(-1, 1));
    ht_val y = ht_matmul(g, ht_cast(g, a, HT_F32), b, NULL);
    y = ht_add(g, y, ht_input(g, "bias", HT_F32, 1, &n));
    if (random_graph_next(&d, 2)) y = ht_gelu(g, y);
    if (random_graph_next(&d, 2)) ht_output(g, "middle", y);
    if (random_graph_next(&d, 2)) y = ht_add(g, y, ht_input(g, "residual", HT_F32, 3, result));
    if (random_graph_next(&d, 2)) y = ht_clip(g, y, -0.5, 0.75);
    ht_output(g, "y", random_graph_next(&d, 2) ? ht_cast(g, y, HT_BF16) : y);
    ht_output(g, "loss", ht_mean(g, y, 0, NULL, false));
    assert_int_equal(ht_graph_train(g, NULL), HT_OK);
    return g;
}

static size_t count_epilogues(const ht_plan *plan)
{
    size_t count = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++)
            count += plan->segments[s].instrs[i].fused && plan->segments[s].instrs[i].fused->gemm;
    return count;
}

static void fuse__products_with_epilogues_give_the_same_bits(void **state)
{
    (void)state;
    fused_pair w = {0};
    size_t epilogues = 0;
    w.ctx = context_create(2, NULL);
    for (uint64_t seed = 0; seed < 60; seed++) {
        w.g = make_product(w.ctx, seed);
        if (!fused_pair_plan(&w, seed)) fused_pair_fail(&w, "does not plan", seed);
        epilogues += count_epilogues(w.plan[0]);
        assert_int_equal(count_epilogues(w.plan[1]), 0);
        fused_pair_run(&w, "train", seed);
        fused_pair_close(&w);
    }
    assert_true(epilogues > 20);
    ht_context_free(w.ctx);
}

/* ---- the optimiser ---- */

static void fuse__an_update_is_one_instruction_over_the_flat_group(void **state)
{
    (void)state;
    fused_pair w = {0};
    w.ctx = context_create(2, NULL);
    assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
    ht_val a = ht_param(w.g, "a", HT_F32, 2, (int64_t[]){40, 30}, HT_NORMAL(0, 1));
    ht_val b = ht_param(w.g, "b", HT_F32, 1, (int64_t[]){30}, HT_NORMAL(0, 1));
    ht_output(w.g, "loss", ht_mean(w.g, ht_tanh(w.g, ht_mul(w.g, ht_add(w.g, a, b), a)), 0, NULL, false));
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.clip = 0.5;
    opts.weight_decay = 0.01;
    assert_int_equal(ht_graph_train(w.g, &opts), HT_OK);
    if (!fused_pair_plan(&w, 0)) fused_pair_fail(&w, "does not plan", 0);
    fused_pair_run(&w, "train", 0);
    const ht_plan_segment *s = &w.plan[0]->segments[ht_plan_segment_find(w.plan[0], "update")];
    size_t large = 0;
    for (size_t i = 0; i < s->instr_count; i++) {
        const ht_instr *instr = &s->instrs[i];
        bool flat = instr->call->n_out && ht_type_elems(instr->call->out[0]) > 1000;
        large += flat;
        if (!flat) continue;
        assert_string_not_equal(instr->call->op->name, "copy");
        assert_non_null(instr->fused);
        assert_int_equal(instr->call->n_out, 3);
        for (int o = 0; o < 3; o++) assert_int_equal(instr->out[o].area, HT_AREA_STATE);
    }
    assert_int_equal(large, 1);
    assert_true(s->transient_bytes[HT_SPACE_MAIN] < 4096);
    fused_pair_close(&w);
    ht_context_free(w.ctx);
}

/* Regions that no pass makes: the first and the last node are one group, which waits for the node between them. */
static void fuse__refuses_groups_that_wait_for_each_other_in_a_circle(void **state)
{
    (void)state;
    static const char text[] = "segment forward (%x f32[4,8]) -> (y=%c) {\n"
                               "  %a = exp f32[4,8] (%x) region=1\n"
                               "  %b = tanh f32[4,8] (%a) region=2\n"
                               "  %c = neg f32[4,8] (%b) region=1\n}\n";
    ht_context *ctx = context_create(1, NULL);
    ht_graph *g;
    const ht_kernel **kernels = NULL;
    const ht_target target = {.isa = HT_ISA_PORTABLE, .threads = 1};
    assert_int_equal(ht_graph_parse(&g, ctx, "test", text, strlen(text)), HT_OK);
    assert_int_equal(ht_plan_layout(g, &(ht_plan_request){.target = &target}, false, &kernels), HT_OK);
    ht_groups groups = {.of_node = calloc(g->node_count, sizeof *groups.of_node),
                        .inside = calloc(g->value_count, sizeof *groups.inside),
                        .refused = calloc(g->node_count, sizeof *groups.refused)};
    assert_int_equal(ht_plan_fuse(g, &target, kernels, &groups), HT_EVERIFY);
    assert_string_equal(ht_context_message(ctx),
                        "fusion: regions of segment 'forward' wait for each other in a circle");
    free(groups.of_node);
    free(groups.inside);
    free(groups.refused);
    free(kernels);
    ht_graph_free(g);
    ht_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fuse__random_graphs_give_the_same_bits),
        cmocka_unit_test(fuse__chains_give_the_same_bits),
        cmocka_unit_test(fuse__chains_give_the_same_bits_on_portable_kernels),
        cmocka_unit_test(fuse__products_with_epilogues_give_the_same_bits),
        cmocka_unit_test(fuse__an_update_is_one_instruction_over_the_flat_group),
        cmocka_unit_test(fuse__refuses_groups_that_wait_for_each_other_in_a_circle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
