/* Fused and unfused plans of one graph give the same bits where chains end in reductions, and where a reduction and
 * what uses it run together by blocks of rows. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec.h"
#include "fused_pair.h"
#include "random_graph.h"

/* ---- reductions ---- */

static size_t count_folds(const ht_plan *plan)
{
    size_t count = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++)
            count += plan->segments[s].instrs[i].fused && plan->segments[s].instrs[i].fused->fold;
    return count;
}

static ht_val any_reduction(ht_graph *g, random_graph *d, ht_val x, int n_axes, const int64_t *axes)
{
    bool keep = random_graph_next(d, 2);
    switch (random_graph_next(d, 4)) {
    case 0: return ht_sum(g, x, n_axes, axes, keep);
    case 1: return ht_mean(g, x, n_axes, axes, keep);
    case 2: return ht_reduce_max(g, x, n_axes, axes, keep);
    default: return ht_norm(g, x, n_axes, axes, keep);
    }
}

/* A chain, and reductions of what it makes: over rows, columns, everything, the middle; of one value or two; with the
 * value stored or not. */
static ht_graph *make_fold(ht_context *ctx, uint64_t seed)
{
    static const int64_t rows[] = {1, 3, 64, 65, 130, 17}, columns[] = {1, 7, 128, 300, 1025, 33};
    static const int64_t axes[][3] = {{0}, {1}, {2}, {0, 1}, {1, 2}, {0, 2}, {0, 1, 2}};
    static const int axis_counts[] = {1, 1, 1, 2, 2, 2, 3};
    random_graph d = random_graph_make(seed);
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, ctx), HT_OK);
    int64_t shape[3] = {1 + random_graph_next(&d, 2), rows[random_graph_next(&d, 6)],
                        columns[random_graph_next(&d, 6)]};
    ht_val v[16] = {ht_input(g, "line", HT_F32, 1, shape + 2),
                    ht_input(g, "number", HT_F32, 3, (int64_t[]){shape[0], shape[1], 1}),
                    ht_input(g, "half", HT_BF16, 3, shape), ht_input(g, "x", HT_F32, 3, shape)};
    int count = 4, length = 4 + (int)random_graph_next(&d, 6);
    for (; count < length; count++) {
        ht_val step = random_graph_step(g, &d, v[count - 1], v[random_graph_next(&d, (uint32_t)count)]);
        v[count] = ht_dtype_is_float(ht_type_of(g, step)->dtype) ? step : ht_cast(g, step, HT_F32);
    }
    for (int i = 0; i < 2; i++) {
        uint32_t which = random_graph_next(&d, 7);
        ht_val from = v[count - 1 - (i ? (int)random_graph_next(&d, 2) : 0)];
        ht_val y = any_reduction(g, &d, from, axis_counts[which], axes[which]);
        ht_output(g, i ? "second" : "first", random_graph_next(&d, 2) ? ht_tanh(g, y) : y);
        if (random_graph_next(&d, 2)) break;
    }
    if (random_graph_next(&d, 2)) ht_output(g, "y", v[count - 1]);
    assert_int_equal(ht_graph_status(g), HT_OK);
    return g;
}

enum { FOLD_SEEDS = 80 };

static void folds(const char *isa, int threads, uint64_t *digests)
{
    fused_pair w = {0};
    size_t found = 0;
    w.ctx = context_create(threads, isa);
    for (uint64_t seed = 0; seed < FOLD_SEEDS; seed++) {
        w.g = make_fold(w.ctx, seed);
        if (!fused_pair_plan(&w, seed)) fused_pair_fail(&w, "does not plan", seed);
        found += count_folds(w.plan[0]);
        assert_int_equal(count_folds(w.plan[1]), 0);
        fused_pair_run(&w, "forward", seed);
        digests[seed] = fused_pair_digest(&w);
        fused_pair_close(&w);
    }
    assert_true(found > FOLD_SEEDS / 3);
    ht_context_free(w.ctx);
}

static void fuse__reductions_give_the_same_bits_on_any_number_of_threads(void **state)
{
    (void)state;
    uint64_t one[FOLD_SEEDS], more[FOLD_SEEDS];
    folds(NULL, 1, one);
    for (int threads = 2; threads <= 3; threads++) {
        folds(NULL, threads, more);
        assert_memory_equal(one, more, sizeof one);
    }
}

static void fuse__reductions_give_the_same_bits_on_lesser_kernels(void **state)
{
    (void)state;
    uint64_t digests[FOLD_SEEDS];
    for (ht_isa isa = HT_ISA_PORTABLE; isa < ht_cpu_isa(); isa++) folds(ht_isa_name(isa), 2, digests);
}

/* Nobody but the reduction reads the chain: one instruction, and no memory of the chain's size. */
static void fuse__a_chain_that_is_only_summed_is_not_stored(void **state)
{
    (void)state;
    for (int64_t axis = 0; axis < 2; axis++) {
        fused_pair w = {0};
        w.ctx = context_create(2, NULL);
        assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
        ht_val x = ht_input(w.g, "x", HT_F32, 2, (int64_t[]){1000, 300});
        ht_output(w.g, "y", ht_sum(w.g, ht_mul(w.g, ht_tanh(w.g, x), x), 1, &axis, false));
        if (!fused_pair_plan(&w, 0)) fused_pair_fail(&w, "does not plan", 0);
        fused_pair_run(&w, "forward", 0);
        const ht_plan_segment *s = &w.plan[0]->segments[0];
        assert_int_equal(s->instr_count, 1);
        assert_int_equal(s->instrs[0].fused->step_count, 2);
        assert_true(s->transient_bytes[HT_SPACE_MAIN] < 100000);
        fused_pair_close(&w);
        ht_context_free(w.ctx);
    }
}

/* Around the largest number of operands: 24 inputs and what is made of them, and some more. */
static void fuse__as_many_operands_as_an_instruction_holds_are_summed(void **state)
{
    (void)state;
    for (int inputs = 22; inputs <= 27; inputs++) {
        int64_t axis = 1;
        char name[16];
        fused_pair w = {0};
        w.ctx = context_create(1, NULL);
        assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
        ht_val sum = HT_NONE;
        for (int i = 0; i < inputs; i++) {
            snprintf(name, sizeof name, "x%d", i);
            ht_val x = ht_input(w.g, name, HT_F32, 2, (int64_t[]){64, 256});
            sum = i ? ht_add(w.g, sum, x) : x;
        }
        ht_output(w.g, "y", ht_sum(w.g, sum, 1, &axis, false));
        if (!fused_pair_plan(&w, 0)) fused_pair_fail(&w, "does not plan", 0);
        fused_pair_run(&w, "forward", 0);
        fused_pair_close(&w);
        ht_context_free(w.ctx);
    }
}

/* The sum is stored into what the chain still reads. */
static void fuse__a_sum_that_replaces_an_operand_waits_for_all_elements(void **state)
{
    (void)state;
    for (int64_t axis = 0; axis < 2; axis++) {
        int64_t n = 400;
        fused_pair w = {0};
        w.ctx = context_create(3, NULL);
        assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
        ht_val x = ht_input(w.g, "x", HT_F32, 2, (int64_t[]){n, n});
        ht_val line = ht_state_add(w.g, "line", HT_F32, 1, &n, HT_UNIFORM(-1, 1));
        ht_store(w.g, line, ht_mean(w.g, ht_tanh(w.g, ht_add(w.g, x, line)), 1, &axis, false));
        assert_int_equal(ht_graph_status(w.g), HT_OK);
        if (!fused_pair_plan(&w, 0)) fused_pair_fail(&w, "does not plan", 0);
        assert_int_equal(count_folds(w.plan[0]), 1);
        fused_pair_run(&w, "forward", 0);
        fused_pair_close(&w);
        ht_context_free(w.ctx);
    }
}

/* ---- rows ---- */

static size_t count_row_blocks(const ht_plan *plan)
{
    size_t count = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++) count += plan->segments[s].instrs[i].row_block > 0;
    return count;
}

/* x less its mean, over its root mean square, softmax, layernorm: each from the ops that it is made of. */
static ht_val normalise(ht_graph *g, ht_val x, uint32_t form)
{
    int64_t last = -1;
    if (form == 1) return ht_div(g, x, ht_sqrt(g, ht_add_scalar(g, ht_mean(g, ht_mul(g, x, x), 1, &last, true), 0.01)));
    if (form == 2) {
        ht_val e = ht_exp(g, ht_sub(g, x, ht_reduce_max(g, x, 1, &last, true)));
        return ht_div(g, e, ht_sum(g, e, 1, &last, true));
    }
    ht_val centred = ht_sub(g, x, ht_mean(g, x, 1, &last, true));
    return form == 3 ? normalise(g, centred, 1) : centred;
}

static ht_graph *make_rows(ht_context *ctx, uint64_t seed)
{
    static const int64_t rows[] = {2, 3, 17, 65}, columns[] = {2, 7, 128, 300, 1025, 4097};
    random_graph d = random_graph_make(seed);
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, ctx), HT_OK);
    int64_t shape[3] = {1 + random_graph_next(&d, 2), rows[random_graph_next(&d, 4)],
                        columns[random_graph_next(&d, 6)]};
    ht_dtype dtype = random_graph_next(&d, 3) ? HT_F32 : HT_BF16;
    ht_val x = ht_cast(g, ht_input(g, "x", dtype, 3, shape), HT_F32);
    ht_val kept = ht_state_add(g, "kept", HT_F32, 3, shape, HT_UNIFORM(-1, 1));
    if (random_graph_next(&d, 2)) x = ht_add(g, x, kept);
    x = ht_mul(g, x, ht_param(g, "scale", HT_F32, 1, shape + 2, HT_UNIFORM(-1, 1)));
    ht_val y = normalise(g, x, random_graph_next(&d, 4));
    if (random_graph_next(&d, 2)) y = ht_add(g, y, ht_param(g, "shift", HT_F32, 1, shape + 2, HT_UNIFORM(-1, 1)));
    if (random_graph_next(&d, 2)) y = normalise(g, ht_tanh(g, y), random_graph_next(&d, 4));
    if (random_graph_next(&d, 2)) ht_store(g, kept, y);
    ht_output(g, "y", random_graph_next(&d, 2) ? y : ht_cast(g, y, HT_BF16));
    ht_output(g, "loss", ht_mean(g, ht_mul(g, y, y), 0, NULL, false));
    assert_int_equal(ht_graph_train(g, NULL), HT_OK);
    return g;
}

enum { ROW_SEEDS = 40 };

static void rows(const char *isa, int threads, uint64_t *digests)
{
    fused_pair w = {0};
    size_t found = 0;
    w.ctx = context_create(threads, isa);
    for (uint64_t seed = 0; seed < ROW_SEEDS; seed++) {
        w.g = make_rows(w.ctx, seed);
        if (!fused_pair_plan(&w, seed)) fused_pair_fail(&w, "does not plan", seed);
        found += count_row_blocks(w.plan[0]);
        assert_int_equal(count_row_blocks(w.plan[1]), 0);
        fused_pair_run(&w, "train", seed);
        digests[seed] = fused_pair_digest(&w);
        fused_pair_close(&w);
    }
    assert_true(found > ROW_SEEDS);
    ht_context_free(w.ctx);
}

static void fuse__rows_give_the_same_bits_on_any_number_of_threads(void **state)
{
    (void)state;
    uint64_t one[ROW_SEEDS], more[ROW_SEEDS];
    rows(NULL, 1, one);
    for (int threads = 2; threads <= 3; threads++) {
        rows(NULL, threads, more);
        assert_memory_equal(one, more, sizeof one);
    }
}

static void fuse__rows_give_the_same_bits_on_lesser_kernels(void **state)
{
    (void)state;
    uint64_t digests[ROW_SEEDS];
    for (ht_isa isa = HT_ISA_PORTABLE; isa < ht_cpu_isa(); isa++) rows(ht_isa_name(isa), 2, digests);
}

static void fuse__a_reduction_and_what_uses_it_by_rows_run_together(void **state)
{
    (void)state;
    static const size_t instructions[] = {2, 3, 3, 4};
    for (uint32_t form = 0; form < 4; form++) {
        fused_pair w = {0};
        w.ctx = context_create(2, NULL);
        assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
        ht_output(w.g, "y", normalise(w.g, ht_input(w.g, "x", HT_F32, 2, (int64_t[]){500, 300}), form));
        if (!fused_pair_plan(&w, 0)) fused_pair_fail(&w, "does not plan", 0);
        fused_pair_run(&w, "forward", 0);
        const ht_plan_segment *s = &w.plan[0]->segments[0];
        const ht_instr *first = &s->instrs[s->instr_count - instructions[form]]; /* behind the constants */
        assert_int_equal(first->row_block, instructions[form]);
        assert_int_equal(first->rows, 500);
        fused_pair_close(&w);
        ht_context_free(w.ctx);
    }
}

/* Rows that are columns to the next reader: it has to wait for all of them. */
static void fuse__a_transposed_reader_does_not_run_with_the_rows(void **state)
{
    (void)state;
    int64_t n = 300, last = -1;
    fused_pair w = {0};
    w.ctx = context_create(3, NULL);
    assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
    ht_val x = ht_input(w.g, "x", HT_F32, 2, (int64_t[]){n, n});
    ht_val mean = ht_mean(w.g, x, 1, &last, false); /* one per row, used as one per column */
    ht_output(w.g, "y", ht_sub(w.g, x, mean));
    if (!fused_pair_plan(&w, 0)) fused_pair_fail(&w, "does not plan", 0);
    assert_int_equal(count_row_blocks(w.plan[0]), 0);
    fused_pair_run(&w, "forward", 0);
    fused_pair_close(&w);
    ht_context_free(w.ctx);
}

/* Does a later instruction of the row block read what lies here? */
static bool is_read_again(const ht_instr *first, size_t from, ht_place place)
{
    for (size_t k = from; k < first->row_block; k++)
        for (size_t i = 0; i < first[k].call->n_in; i++)
            if (first[k].in[i].area == place.area && first[k].in[i].offset == place.offset) return true;
    return false;
}

/* Results of 16 MiB: what the row block reads again stays in the caches, what it does not goes past them. */
static void fuse__rows_that_are_read_again_stay_in_the_caches(void **state)
{
    (void)state;
    fused_pair w = {0};
    size_t read_again = 0, streamed = 0;
    w.ctx = context_create(2, NULL);
    assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
    ht_val x = ht_input(w.g, "x", HT_F32, 2, (int64_t[]){4096, 1024}), mean, variance;
    mean = ht_mean(w.g, x, 1, (int64_t[]){1}, true);
    ht_val centred = ht_sub(w.g, x, mean);
    variance = ht_mean(w.g, ht_mul(w.g, centred, centred), 1, (int64_t[]){1}, true);
    ht_output(w.g, "y", ht_mul(w.g, centred, ht_rsqrt(w.g, ht_add_scalar(w.g, variance, 1e-5))));
    if (!fused_pair_plan(&w, 0)) fused_pair_fail(&w, "does not plan", 0);
    const ht_plan_segment *s = &w.plan[0]->segments[0];
    for (size_t at = 0; at < s->instr_count; at++) {
        const ht_instr *first = &s->instrs[at];
        for (size_t k = 0; k < first->row_block; k++) {
            const ht_fused *f = first[k].fused;
            for (int i = 0; f && i < f->n_out; i++) {
                bool again = is_read_again(first, k + 1, first[k].out[i]);
                bool large = ht_type_bytes(f->operands[f->n_in + i].type) >= HT_NT_STORE_BYTES;
                bool past = f->operands[f->n_in + i].access == HT_ACCESS_STREAMED;
                assert_false(again && past);
                read_again += again && large;
                streamed += past;
            }
        }
    }
    assert_int_equal(read_again, 1);
    assert_int_equal(streamed, 1);
    fused_pair_run(&w, "forward", 0);
    fused_pair_close(&w);
    ht_context_free(w.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fuse__reductions_give_the_same_bits_on_any_number_of_threads),
        cmocka_unit_test(fuse__reductions_give_the_same_bits_on_lesser_kernels),
        cmocka_unit_test(fuse__a_chain_that_is_only_summed_is_not_stored),
        cmocka_unit_test(fuse__as_many_operands_as_an_instruction_holds_are_summed),
        cmocka_unit_test(fuse__a_sum_that_replaces_an_operand_waits_for_all_elements),
        cmocka_unit_test(fuse__rows_give_the_same_bits_on_any_number_of_threads),
        cmocka_unit_test(fuse__rows_give_the_same_bits_on_lesser_kernels),
        cmocka_unit_test(fuse__a_reduction_and_what_uses_it_by_rows_run_together),
        cmocka_unit_test(fuse__a_transposed_reader_does_not_run_with_the_rows),
        cmocka_unit_test(fuse__rows_that_are_read_again_stay_in_the_caches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
