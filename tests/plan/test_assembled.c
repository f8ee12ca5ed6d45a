/* Assembled transients: concats whose operands are made in their buffer. Plans without fusion have none of them, so every
 * graph is compared with itself. */
#include <stdio.h>
#include <string.h>

#include "fused_pair.h"
#include "random_graph.h"

static const ht_plan_segment *forward(const fused_pair *w, int plan)
{
    return &w->plan[plan]->segments[ht_plan_segment_find(w->plan[plan], "forward")];
}

static size_t count(const fused_pair *w, int plan, const char *op)
{
    const ht_plan_segment *s = forward(w, plan);
    size_t found = 0;
    for (size_t i = 0; i < s->instr_count; i++) found += strcmp(s->instrs[i].call->op->name, op) == 0;
    return found;
}

/* Plans and runs a text graph; the caller closes. */
static fused_pair run(const char *text)
{
    fused_pair w = {.ctx = test_ctx};
    context_must(test_ctx, ht_graph_parse(&w.g, test_ctx, "test", text, strlen(text)));
    assert_true(fused_pair_plan(&w, 1));
    fused_pair_run(&w, "forward", 1);
    return w;
}

static void concat__of_results_is_no_instruction(void **state)
{
    (void)state;
    fused_pair w = run("segment forward (%x f32[300]) -> (y=%4) {\n"
                       "  %0 = softmax f32[300] (%x)\n"
                       "  %1 = softmax f32[300] (%0)\n"
                       "  %2 = softmax f32[300] (%1)\n"
                       "  %3 = concat f32[900] (%0, %1, %2)\n"
                       "  %4 = softmax f32[900] (%3)\n"
                       "}\n");
    const ht_plan_segment *s = forward(&w, 0);
    assert_int_equal(count(&w, 1, "concat"), 1);
    assert_int_equal(s->instr_count, 4);
    /* One buffer for all; without it the concat and its operands are alive at once. */
    assert_int_equal(s->live_bytes[HT_SPACE_MAIN], (3600 + HT_CANARY_BYTES + 63) / 64 * 64);
    assert_true(forward(&w, 1)->live_bytes[HT_SPACE_MAIN] > 7200);
    for (int i = 0; i < 3; i++)
        assert_int_equal(s->instrs[i].out[0].offset, s->instrs[3].in[0].offset + (int64_t)(1200 * i));
    assert_false(s->instrs[0].guarded[0] || s->instrs[1].guarded[0]);
    assert_true(s->instrs[2].guarded[0]);
    fused_pair_close(&w);
}

static void concat__operands_that_must_be_elsewhere_are_copied(void **state)
{
    (void)state;
    /* An input, a result, a view of one, the same result again, an output. */
    fused_pair w = run("segment forward (%x f32[4,4]) -> (y=%5, z=%3) {\n"
                       "  %0 = softmax f32[4,4] (%x)\n"
                       "  %1 = softmax f32[4,4] (%0)\n"
                       "  %2 = permute f32[4,4] (%1) order=[1,0]\n"
                       "  %3 = softmax f32[4,4] (%1)\n"
                       "  %4 = concat f32[24,4] (%x, %0, %2, %0, %3, %1)\n"
                       "  %5 = softmax f32[24,4] (%4)\n"
                       "}\n");
    assert_int_equal(count(&w, 0, "concat"), 0);
    assert_int_equal(count(&w, 0, "copy"), 4);
    fused_pair_close(&w);
}

static void concat__that_interleaves_stays_an_instruction(void **state)
{
    (void)state;
    fused_pair w = run("segment forward (%x f32[4,5]) -> (y=%3) {\n"
                       "  %0 = softmax f32[4,5] (%x)\n"
                       "  %1 = softmax f32[4,5] (%0)\n"
                       "  %2 = concat f32[4,10] (%0, %1) axis=1\n"
                       "  %3 = softmax f32[4,10] (%2)\n"
                       "}\n");
    assert_int_equal(count(&w, 0, "concat"), 1);
    fused_pair_close(&w);
    /* An axis of one before it changes nothing. */
    w = run("segment forward (%x f32[1,4,5]) -> (y=%3) {\n"
            "  %0 = softmax f32[1,4,5] (%x)\n"
            "  %1 = softmax f32[1,4,5] (%0)\n"
            "  %2 = concat f32[1,8,5] (%0, %1) axis=1\n"
            "  %3 = softmax f32[1,8,5] (%2)\n"
            "}\n");
    assert_int_equal(count(&w, 0, "concat"), 0);
    fused_pair_close(&w);
}

static void concat__of_concats_is_one_buffer(void **state)
{
    (void)state;
    fused_pair w = run("segment forward (%x f32[33]) -> (y=%6, z=%7) {\n"
                       "  %0 = softmax f32[33] (%x)\n"
                       "  %1 = softmax f32[33] (%0)\n"
                       "  %2 = concat f32[66] (%0, %1)\n"
                       "  %3 = softmax f32[66] (%2)\n"
                       "  %4 = concat f32[165] (%x, %3, %2)\n"
                       "  %6 = softmax f32[165] (%4)\n"
                       "  %7 = softmax f32[33] (%1)\n"
                       "}\n");
    assert_int_equal(count(&w, 0, "concat"), 0);
    assert_int_equal(count(&w, 0, "copy"), 1);
    assert_int_equal(forward(&w, 0)->live_bytes[HT_SPACE_MAIN], (165 * 4 + HT_CANARY_BYTES + 63) / 64 * 64);
    fused_pair_close(&w);
}

static void concat__is_overwritten_only_when_nothing_reads_its_operands(void **state)
{
    (void)state;
    /* tanh may take the bytes of the concat; the sum reads an operand at the same time, or later. */
    fused_pair w = run("segment forward (%x f32[40]) -> (y=%4) {\n"
                       "  %0 = softmax f32[40] (%x)\n"
                       "  %1 = concat f32[80] (%0, %x)\n"
                       "  %2 = tanh f32[80] (%1)\n"
                       "  %3 = softmax f32[80] (%2)\n"
                       "  %4 = neg f32[80] (%3)\n"
                       "}\n");
    const ht_plan_segment *s = forward(&w, 0);
    assert_int_equal(count(&w, 0, "concat"), 0);
    assert_int_equal(s->instrs[2].out[0].offset, s->instrs[2].in[0].offset);
    fused_pair_close(&w);
    w = run("segment forward (%x f32[40]) -> (y=%4, z=%5) {\n"
            "  %0 = softmax f32[40] (%x)\n"
            "  %1 = concat f32[80] (%0, %x)\n"
            "  %2 = tanh f32[80] (%1)\n"
            "  %3 = softmax f32[80] (%2)\n"
            "  %4 = neg f32[80] (%3)\n"
            "  %5 = softmax f32[40] (%0)\n"
            "}\n");
    fused_pair_close(&w);
}

static void concat__never_takes_more_memory_than_a_copy(void **state)
{
    (void)state;
    /* %0 is small and early, the rest of the concat large and late, with a peak between them. */
    fused_pair w = run("segment forward (%x f32[8], %z f32[2000]) -> (y=%6) {\n"
                       "  %0 = softmax f32[8] (%x)\n"
                       "  %1 = softmax f32[2000] (%z)\n"
                       "  %2 = softmax f32[2000] (%1)\n"
                       "  %3 = add f32[2000] (%1, %2)\n"
                       "  %4 = concat f32[2008] (%0, %z)\n"
                       "  %5 = softmax f32[2008] (%4)\n"
                       "  %c = concat f32[4008] (%3, %5)\n"
                       "  %6 = softmax f32[4008] (%c)\n"
                       "}\n");
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        assert_true(forward(&w, 0)->transient_bytes[space] <= forward(&w, 1)->transient_bytes[space]);
    fused_pair_close(&w);
}

/* ---- random graphs ---- */

enum { VALUES = 64 };

static ht_graph *random_concats(uint64_t seed)
{
    static const ht_dtype dtypes[] = {HT_F32, HT_BF16};
    random_graph d = random_graph_make(seed);
    ht_graph *g;
    context_must(test_ctx, ht_graph_create(&g, test_ctx));
    ht_dtype dtype = dtypes[random_graph_next(&d, 2)];
    int64_t columns = 1 + random_graph_next(&d, 40);
    ht_val v[VALUES];
    size_t n = 2;
    v[0] = ht_input(g, "x", dtype, 2, (int64_t[]){3, columns});
    v[1] = ht_state_add(g, "w", dtype, 2, (int64_t[]){1 + random_graph_next(&d, 5), columns}, HT_UNIFORM(-1, 1));
    while (n < VALUES - 8) {
        ht_val a = v[random_graph_next(&d, (uint32_t)n)], list[4];
        uint32_t parts = 1 + random_graph_next(&d, 4);
        for (uint32_t i = 0; i < parts; i++) list[i] = v[n - 1 - random_graph_next(&d, (uint32_t)(n < 5 ? n : 5))];
        if (ht_val_dims(g, a)[0] > 200) a = v[0];
        switch (random_graph_next(&d, 6)) {
        case 0: v[n++] = ht_softmax(g, a, -1); break;
        case 1: v[n++] = ht_tanh(g, a); break;
        case 2: v[n++] = ht_mul(g, ht_neg(g, a), ht_softmax(g, a, -1)); break;
        case 3: v[n++] = ht_slice_axis(g, a, 0, 0, 1); break;
        default: v[n++] = ht_concat(g, parts, list, 0); break;
        }
        if (ht_val_dims(g, v[n - 1])[0] > 400) n--;
    }
    for (uint32_t i = 0; i < 4; i++) {
        char name[8];
        snprintf(name, sizeof name, "y%u", i);
        ht_val y = v[n - 1 - random_graph_next(&d, 20)];
        if (!ht_state_of(g, y)) ht_output(g, name, y);
    }
    return g;
}

static void concat__random_graphs_give_the_same_bits(void **state)
{
    (void)state;
    size_t concats[2] = {0};
    for (uint64_t seed = 0; seed < 200; seed++) {
        fused_pair w = {.ctx = test_ctx, .g = random_concats(seed)};
        if (!fused_pair_plan(&w, seed)) fused_pair_fail(&w, "does not plan", seed);
        fused_pair_run(&w, "forward", seed);
        for (int i = 0; i < 2; i++) concats[i] += count(&w, i, "concat");
        fused_pair_close(&w);
    }
    assert_true(concats[0] < concats[1] / 2);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, context_setup, context_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(concat__of_results_is_no_instruction),
        CASE(concat__operands_that_must_be_elsewhere_are_copied),
        CASE(concat__that_interleaves_stays_an_instruction),
        CASE(concat__of_concats_is_one_buffer),
        CASE(concat__is_overwritten_only_when_nothing_reads_its_operands),
        CASE(concat__never_takes_more_memory_than_a_copy),
        CASE(concat__random_graphs_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
