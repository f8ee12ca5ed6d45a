/* Matmul where samples do not reach: number types of gradients, how a shared weight is differentiated, refusals. */
#include "op_call.h"

#include <stdlib.h>
#include <string.h>

static size_t count_nodes(const ht_graph *g, const char *op)
{
    size_t count = 0;
    for (size_t i = 1; i < g->node_count; i++) count += strcmp(g->nodes[i].op->name, op) == 0;
    return count;
}

static void gradient__of_a_shared_weight_is_one_product(void **state)
{
    (void)state;
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, context_shared()), HT_OK);
    ht_val x = ht_input(g, "x", HT_F32, HT_DIMS(4, 5, 3)), w = ht_input(g, "w", HT_F32, HT_DIMS(3, 2)), dw;
    ht_val loss = ht_sum(g, ht_matmul(g, x, w, NULL), 0, NULL, false);
    assert_int_equal(ht_gradients(g, loss, 1, &w, &dw), HT_OK);
    assert_int_equal(count_nodes(g, "matmul"), 2);
    assert_int_equal(count_nodes(g, "sum"), 1); /* the loss itself */
    ht_graph_free(g);
}

static void gradient__has_the_number_type_of_its_input(void **state)
{
    (void)state;
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, context_shared()), HT_OK);
    ht_val in[] = {ht_input(g, "a", HT_BF16, HT_DIMS(2, 4, 3)), ht_input(g, "b", HT_F32, HT_DIMS(1, 3, 5))}, grads[2];
    ht_val y = ht_matmul(g, in[0], in[1], NULL);
    assert_int_equal(ht_val_dtype(g, y), HT_F32);
    assert_int_equal(ht_gradients(g, ht_sum(g, y, 0, NULL, false), 2, in, grads), HT_OK);
    assert_int_equal(ht_val_dtype(g, grads[0]), HT_BF16);
    assert_int_equal(ht_val_dtype(g, grads[1]), HT_F32);
    assert_int_equal(ht_graph_verify(g), HT_OK);
    ht_graph_free(g);
}

/* 257 needs nine bits: a bf16 result would be 256. */
static void half_operands__accumulate_in_f32(void **state)
{
    (void)state;
    op_call c;
    op_call_open(&c, "matmul", "(bf16[2,257], bf16[257,3]) -> f32[2,3]");
    for (size_t i = 0; i < 2; i++)
        for (int64_t k = 0; k < op_call_elems_in(&c, i); k++) c.a.in[i][k] = 1;
    op_call_kernel(&c);
    op_call_all("y", c.a.out[0], 6, 257);
    op_call_close(&c);
}

/* Odd K, K beyond a block, ends of tiles and slivers, every order of memory: whatever row takes bf16 pairs. */
static void half_operands__of_any_shape_match_the_reference(void **state)
{
    (void)state;
    static const char *const lines[] = {
        "(bf16[35,301], bf16[301,37]) -> f32[35,37]",
        "(bf16[301,35], bf16[301,70]) -> f32[35,70] ta=1",
        "(bf16[35,333], bf16[49,333]) -> f32[35,49] tb=1",
        "(bf16[1029,33], bf16[47,1029]) -> f32[33,47] ta=1 tb=1",
        "(bf16[9,2051], bf16[2051,33])",
        "(bf16[2,131,65], bf16[2,65,290])",
        "(bf16[2,40,163], bf16[2,48,163]) tb=1",
    };
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        op_call c;
        op_call_open(&c, "matmul", "%s", lines[i]);
        int64_t n = op_call_elems_out(&c, 0);
        double *expected = malloc((size_t)n * sizeof *expected);
        assert_non_null(expected);
        op_call_reference(&c);
        memcpy(expected, c.a.out[0], (size_t)n * sizeof *expected);
        op_call_kernel(&c);
        op_call_near(lines[i], c.a.out[0], expected, n, c.c.call->out[0]->dtype == HT_F32 ? 1e-4 : 1e-2);
        op_call_close(&c);
        free(expected);
    }
}

static const char *chosen(const op_call *c, unsigned features)
{
    ht_target target = {.isa = HT_ISA_AVX512, .features = features, .threads = 1};
    const ht_kernel *kernel = ht_kernel_choose(context_shared(), c->c.call, &target, NULL);
    return kernel ? kernel->name : "none";
}

static void half_operands__take_the_best_instructions_of_the_target(void **state)
{
    (void)state;
    op_call c;
    op_call_open(&c, "matmul", "(bf16[64,64], bf16[64,64])");
    assert_string_equal(chosen(&c, 0), "matmul_gemm.f32.avx512");
    assert_string_equal(chosen(&c, 1u << HT_FEATURE_AVX512_BF16), "matmul_bf16_dot.bf16.avx512");
    assert_string_equal(chosen(&c, 1u << HT_FEATURE_AVX512_BF16 | 1u << HT_FEATURE_AMX_BF16),
                        "matmul_bf16_dot.bf16.amx");
    op_call_close(&c);
    op_call_open(&c, "matmul", "(f16[64,64], bf16[64,64])");
    assert_string_equal(chosen(&c, ~0u), "matmul_gemm.f32.avx512");
    op_call_close(&c);
}

/* Batches that share b become rows of one product; here they may not, for the rows of a lie the other way. */
static void batches__join_only_where_memory_allows(void **state)
{
    (void)state;
    static const int orders[][3] = {{0, 1, 2}, {1, 0, 2}, {2, 1, 0}, {0, 2, 1}};
    for (size_t i = 0; i < 4; i++) {
        op_call c;
        op_call_open(&c, "matmul", "(f32[3,4,5], f32[5,6])");
        op_call_reference(&c);
        double expected[72];
        memcpy(expected, c.a.out[0], sizeof expected);
        op_call_kernel_permuted(&c, 0, orders[i]);
        op_call_near("y", c.a.out[0], expected, 72, 1e-6);
        op_call_close(&c);
    }
}

static void shape_rules__refuse_hostile_calls(void **state)
{
    (void)state;
    op_call_refused("matmul", "(f32[2,768], f32[512,3])", "inner sizes differ: 768 vs 512");
    op_call_refused("matmul", "(f32[768,2], f32[3,512]) ta=1 tb=1", "inner sizes differ: 768 vs 512");
    op_call_refused("matmul", "(f32[3], f32[3,2])", "input 0 is f32[3], not a matrix");
    op_call_refused("matmul", "(f32[2,3], f32[])", "input 1 is f32[], not a matrix");
    op_call_refused("matmul", "(f32[2,2,3], f32[4,3,2])", "leading sizes do not broadcast: 2 vs 4");
    op_call_refused("matmul", "(f32[2,3], i32[3,2])", "input 1 is i32");
    op_call_refused("matmul", "(f32[2,3], f32[3,2]) ta=-1", "ta is 0 or 1, not -1");
    op_call_refused("matmul", "(f32[1099511627776,0], f32[0,1099511627776])", "larger than any memory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradient__of_a_shared_weight_is_one_product),
        cmocka_unit_test(gradient__has_the_number_type_of_its_input),
        cmocka_unit_test(half_operands__accumulate_in_f32),
        cmocka_unit_test(half_operands__of_any_shape_match_the_reference),
        cmocka_unit_test(half_operands__take_the_best_instructions_of_the_target),
        cmocka_unit_test(batches__join_only_where_memory_allows),
        cmocka_unit_test(shape_rules__refuse_hostile_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
