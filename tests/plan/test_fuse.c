/* Fused and unfused plans of one graph give the same bits: on random graphs, on bodies with every number type and
 * broadcast, and on whole training steps. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "context_fixture.h"
#include "exec/exec.h"
#include "random_graph.h"
#include "train/train.h"

typedef struct fixture {
    ht_context *ctx;
    ht_graph *g;
    ht_plan *plan[2]; /* fused, not fused */
    ht_session *s[2];
} fixture;

static void say(const fixture *w, const char *what, uint64_t seed)
{
    print_error("graph %llu: %s: %s\n", (unsigned long long)seed, what, ht_context_message(w->ctx));
    fail();
}

/* False where the graph cannot be planned even without fusion. */
static bool make_plans(fixture *w, uint64_t seed)
{
    for (int i = 1; i >= 0; i--) {
        ht_plan_opts opts = HT_PLAN_OPTS;
        opts.canaries = true;
        opts.no_fusion = i == 1;
        if (ht_plan_create(&w->plan[i], w->g, &opts) != HT_OK) {
            if (i == 1) return false;
            say(w, "does not plan when fused", seed);
        }
        ht_session_opts session = HT_SESSION_OPTS;
        session.seed = seed;
        if (ht_session_create(&w->s[i], w->plan[i], &session) != HT_OK) say(w, "no session", seed);
    }
    return true;
}

static void close_plans(fixture *w)
{
    for (int i = 0; i < 2; i++) {
        ht_session_free(w->s[i]);
        ht_plan_free(w->plan[i]);
        w->s[i] = NULL;
        w->plan[i] = NULL;
    }
    ht_graph_free(w->g);
    w->g = NULL;
}

static size_t count_fused(const ht_plan *plan)
{
    size_t count = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++)
            count += plan->segments[s].instrs[i].fused && plan->segments[s].instrs[i].fused->step_count > 1;
    return count;
}

static void fill_inputs(fixture *w)
{
    for (size_t k = 0; k < w->plan[0]->slot_count; k++) {
        const ht_slot *slot = &w->plan[0]->slots[k];
        int64_t n = ht_type_elems(&slot->type);
        if (slot->kind != HT_SLOT_INPUT) continue;
        double *data = malloc((size_t)(n + 1) * sizeof *data);
        for (int64_t i = 0; i < n; i++) data[i] = 3 * sin(1.7 * (double)i + (double)k);
        for (int i = 0; i < 2; i++) assert_int_equal(ht_session_write_f64(w->s[i], slot->name, data, (size_t)n), HT_OK);
        free(data);
    }
}

/* NaN is NaN: which of two NaN an operation passes on is the processor's business. */
static bool same_number(const void *a, const void *b, ht_dtype dtype, int64_t i)
{
    size_t bytes = ht_dtype_bytes(dtype);
    if (memcmp((const char *)a + i * (int64_t)bytes, (const char *)b + i * (int64_t)bytes, bytes) == 0) return true;
    return isnan(ht_load_f64(a, dtype, i)) && isnan(ht_load_f64(b, dtype, i));
}

static void compare(const fixture *w, uint64_t seed)
{
    for (size_t k = 0; k < w->plan[0]->slot_count; k++) {
        const ht_slot *slot = &w->plan[0]->slots[k];
        int64_t n = ht_type_elems(&slot->type);
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        void *a = malloc(bytes + 1), *b = malloc(bytes + 1);
        assert_int_equal(ht_session_read(w->s[0], slot->name, a, bytes), HT_OK);
        assert_int_equal(ht_session_read(w->s[1], slot->name, b, bytes), HT_OK);
        for (int64_t i = 0; i < n; i++)
            if (!same_number(a, b, slot->type.dtype, i)) {
                print_error("graph %llu: %s[%lld] is %.17g fused, %.17g not fused\n", (unsigned long long)seed,
                            slot->name, (long long)i, ht_load_f64(a, slot->type.dtype, i),
                            ht_load_f64(b, slot->type.dtype, i));
                fail();
            }
        free(a);
        free(b);
    }
}

static void run_both(fixture *w, const char *program, uint64_t seed)
{
    fill_inputs(w);
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 2; i++)
            if (ht_session_run(w->s[i], program) != HT_OK) say(w, "does not run", seed);
        compare(w, seed);
    }
}

static void fuse__random_graphs_give_the_same_bits(void **state)
{
    (void)state;
    fixture w = {0};
    size_t planned = 0, fused = 0;
    w.ctx = context_create(2, NULL);
    for (uint64_t seed = 0; seed < 400; seed++) {
        w.g = random_graph_build(w.ctx, seed, 10 + seed % 90);
        assert_non_null(w.g);
        /* The dice give inputs random first values, which only the interpreter knows. */
        for (size_t i = 0; i < w.g->input_init_capacity; i++) w.g->input_inits[i] = HT_ZERO;
        if (make_plans(&w, seed)) {
            planned++;
            fused += count_fused(w.plan[0]);
            assert_int_equal(count_fused(w.plan[1]), 0);
            assert_true(w.plan[0]->model_hash == w.plan[1]->model_hash);
            run_both(&w, "train", seed);
        }
        close_plans(&w);
    }
    assert_true(planned > 200);
    assert_true(fused > 200);
    ht_context_free(w.ctx);
}

/* A chain of random point-wise ops over a few shapes of inputs that broadcast, with values that are read long after
 * they were made, and results in the middle. */
static ht_val any_step(ht_graph *g, random_graph *d, ht_val a, ht_val b)
{
    static const ht_dtype types[] = {HT_F32, HT_BF16, HT_F16, HT_F32, HT_F8E4M3, HT_F64};
    switch (random_graph_next(d, 16)) {
    case 0: return ht_add(g, a, b);
    case 1: return ht_mul(g, a, b);
    case 2: return ht_sub(g, a, b);
    case 3: return ht_max(g, a, b);
    case 4: return ht_tanh(g, a);
    case 5: return ht_gelu(g, a);
    case 6: return ht_clip(g, a, -0.5, 0.75);
    case 7: return ht_scale(g, a, 1.25);
    case 8: return ht_add_scalar(g, a, -0.5);
    case 9: return ht_select(g, ht_lt(g, a, b), a, ht_neg(g, b));
    case 10: return ht_cast(g, a, types[random_graph_next(d, 6)]);
    case 11: return ht_cast(g, ht_cast(g, ht_scale(g, a, 9), random_graph_next(d, 2) ? HT_I32 : HT_I8), HT_F32);
    case 12: return ht_cast(g, ht_not(g, ht_gt(g, a, b)), HT_F32);
    case 13: return ht_relu(g, a);
    case 14: return ht_div(g, a, ht_add_scalar(g, ht_abs(g, b), 1));
    default: return ht_sqrt(g, ht_abs(g, a));
    }
}

static ht_graph *make_chain(ht_context *ctx, uint64_t seed)
{
    static const int64_t rows[] = {3, 1, 70, 5, 33}, columns[] = {7, 300, 1, 2500, 128};
    random_graph d = random_graph_make(seed);
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, ctx), HT_OK);
    int64_t shape[2] = {rows[random_graph_next(&d, 5)], columns[random_graph_next(&d, 5)]}, one[2] = {shape[0], 1};
    ht_val v[64] = {ht_input(g, "x", HT_F32, 2, shape), ht_input(g, "half", HT_BF16, 2, shape),
                    ht_input(g, "row", HT_F32, 1, shape + 1), ht_input(g, "column", HT_F32, 2, one),
                    ht_input(g, "number", HT_F32, 0, NULL)};
    int count = 5, length = 3 + (int)random_graph_next(&d, 50);
    ht_val kept = ht_state_add(g, "kept", HT_F32, 2, shape, HT_UNIFORM(-1, 1));
    v[count++] = kept;
    for (int i = 0; i < length && count < 60; i++) {
        int back = 1 + (int)random_graph_next(&d, random_graph_next(&d, 2) ? 3 : (uint32_t)count);
        ht_val a = v[count - 1 - (int)random_graph_next(&d, 2)], b = v[count - back];
        v[count++] = any_step(g, &d, a, b);
    }
    char name[16];
    for (int i = 6; i < count; i++) {
        snprintf(name, sizeof name, "y%d", i);
        if (!ht_state_of(g, v[i]) && (i == count - 1 || !random_graph_next(&d, 8))) ht_output(g, name, v[i]);
    }
    for (int i = count - 1; i >= 6; i--)
        if (!ht_state_of(g, v[i]) && ht_type_same(ht_type_of(g, v[i]), ht_type_of(g, kept))) {
            ht_store(g, kept, v[i]);
            break;
        }
    assert_int_equal(ht_graph_status(g), HT_OK);
    return g;
}

static void chains(const char *isa, int threads)
{
    fixture w = {0};
    size_t fused = 0;
    w.ctx = context_create(threads, isa);
    for (uint64_t seed = 0; seed < 150; seed++) {
        w.g = make_chain(w.ctx, seed);
        if (!make_plans(&w, seed)) say(&w, "does not plan", seed);
        fused += count_fused(w.plan[0]);
        run_both(&w, "forward", seed);
        close_plans(&w);
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
    fixture w = {0};
    size_t epilogues = 0;
    w.ctx = context_create(2, NULL);
    for (uint64_t seed = 0; seed < 60; seed++) {
        w.g = make_product(w.ctx, seed);
        if (!make_plans(&w, seed)) say(&w, "does not plan", seed);
        epilogues += count_epilogues(w.plan[0]);
        assert_int_equal(count_epilogues(w.plan[1]), 0);
        run_both(&w, "train", seed);
        close_plans(&w);
    }
    assert_true(epilogues > 20);
    ht_context_free(w.ctx);
}

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
        ht_val step = any_step(g, &d, v[count - 1], v[random_graph_next(&d, (uint32_t)count)]);
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

static uint64_t digest(const fixture *w)
{
    uint64_t sum = 14695981039346656037u;
    for (size_t k = 0; k < w->plan[0]->slot_count; k++) {
        const ht_slot *slot = &w->plan[0]->slots[k];
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        unsigned char *data = malloc(bytes + 1);
        assert_int_equal(ht_session_read(w->s[0], slot->name, data, bytes), HT_OK);
        for (size_t i = 0; i < bytes; i++) sum = (sum ^ data[i]) * 1099511628211u;
        free(data);
    }
    return sum;
}

enum { FOLD_SEEDS = 80 };

static void folds(const char *isa, int threads, uint64_t *digests)
{
    fixture w = {0};
    size_t found = 0;
    w.ctx = context_create(threads, isa);
    for (uint64_t seed = 0; seed < FOLD_SEEDS; seed++) {
        w.g = make_fold(w.ctx, seed);
        if (!make_plans(&w, seed)) say(&w, "does not plan", seed);
        found += count_folds(w.plan[0]);
        assert_int_equal(count_folds(w.plan[1]), 0);
        run_both(&w, "forward", seed);
        digests[seed] = digest(&w);
        close_plans(&w);
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
        fixture w = {0};
        w.ctx = context_create(2, NULL);
        assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
        ht_val x = ht_input(w.g, "x", HT_F32, 2, (int64_t[]){1000, 300});
        ht_output(w.g, "y", ht_sum(w.g, ht_mul(w.g, ht_tanh(w.g, x), x), 1, &axis, false));
        if (!make_plans(&w, 0)) say(&w, "does not plan", 0);
        run_both(&w, "forward", 0);
        const ht_plan_segment *s = &w.plan[0]->segments[0];
        assert_int_equal(s->instr_count, 1);
        assert_int_equal(s->instrs[0].fused->step_count, 2);
        assert_true(s->transient_bytes < 100000);
        close_plans(&w);
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
        fixture w = {0};
        w.ctx = context_create(1, NULL);
        assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
        ht_val sum = HT_NONE;
        for (int i = 0; i < inputs; i++) {
            snprintf(name, sizeof name, "x%d", i);
            ht_val x = ht_input(w.g, name, HT_F32, 2, (int64_t[]){64, 256});
            sum = i ? ht_add(w.g, sum, x) : x;
        }
        ht_output(w.g, "y", ht_sum(w.g, sum, 1, &axis, false));
        if (!make_plans(&w, 0)) say(&w, "does not plan", 0);
        run_both(&w, "forward", 0);
        close_plans(&w);
        ht_context_free(w.ctx);
    }
}

/* The sum is stored into what the chain still reads. */
static void fuse__a_sum_that_replaces_an_operand_waits_for_all_elements(void **state)
{
    (void)state;
    for (int64_t axis = 0; axis < 2; axis++) {
        int64_t n = 400;
        fixture w = {0};
        w.ctx = context_create(3, NULL);
        assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
        ht_val x = ht_input(w.g, "x", HT_F32, 2, (int64_t[]){n, n});
        ht_val line = ht_state_add(w.g, "line", HT_F32, 1, &n, HT_UNIFORM(-1, 1));
        ht_store(w.g, line, ht_mean(w.g, ht_tanh(w.g, ht_add(w.g, x, line)), 1, &axis, false));
        assert_int_equal(ht_graph_status(w.g), HT_OK);
        if (!make_plans(&w, 0)) say(&w, "does not plan", 0);
        assert_int_equal(count_folds(w.plan[0]), 1);
        run_both(&w, "forward", 0);
        close_plans(&w);
        ht_context_free(w.ctx);
    }
}

/* ---- rows ---- */

static size_t count_bands(const ht_plan *plan)
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
    fixture w = {0};
    size_t found = 0;
    w.ctx = context_create(threads, isa);
    for (uint64_t seed = 0; seed < ROW_SEEDS; seed++) {
        w.g = make_rows(w.ctx, seed);
        if (!make_plans(&w, seed)) say(&w, "does not plan", seed);
        found += count_bands(w.plan[0]);
        assert_int_equal(count_bands(w.plan[1]), 0);
        run_both(&w, "train", seed);
        digests[seed] = digest(&w);
        close_plans(&w);
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
        fixture w = {0};
        w.ctx = context_create(2, NULL);
        assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
        ht_output(w.g, "y", normalise(w.g, ht_input(w.g, "x", HT_F32, 2, (int64_t[]){500, 300}), form));
        if (!make_plans(&w, 0)) say(&w, "does not plan", 0);
        run_both(&w, "forward", 0);
        const ht_plan_segment *s = &w.plan[0]->segments[0];
        const ht_instr *first = &s->instrs[s->instr_count - instructions[form]]; /* behind the constants */
        assert_int_equal(first->row_block, instructions[form]);
        assert_int_equal(first->rows, 500);
        close_plans(&w);
        ht_context_free(w.ctx);
    }
}

/* Rows that are columns to the next reader: it has to wait for all of them. */
static void fuse__a_transposed_reader_does_not_run_with_the_rows(void **state)
{
    (void)state;
    int64_t n = 300, last = -1;
    fixture w = {0};
    w.ctx = context_create(3, NULL);
    assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
    ht_val x = ht_input(w.g, "x", HT_F32, 2, (int64_t[]){n, n});
    ht_val mean = ht_mean(w.g, x, 1, &last, false); /* one per row, used as one per column */
    ht_output(w.g, "y", ht_sub(w.g, x, mean));
    if (!make_plans(&w, 0)) say(&w, "does not plan", 0);
    assert_int_equal(count_bands(w.plan[0]), 0);
    run_both(&w, "forward", 0);
    close_plans(&w);
    ht_context_free(w.ctx);
}

/* ---- the optimiser ---- */

static void fuse__an_update_is_one_instruction_over_the_flat_group(void **state)
{
    (void)state;
    fixture w = {0};
    w.ctx = context_create(2, NULL);
    assert_int_equal(ht_graph_create(&w.g, w.ctx), HT_OK);
    ht_val a = ht_param(w.g, "a", HT_F32, 2, (int64_t[]){40, 30}, HT_NORMAL(0, 1));
    ht_val b = ht_param(w.g, "b", HT_F32, 1, (int64_t[]){30}, HT_NORMAL(0, 1));
    ht_output(w.g, "loss", ht_mean(w.g, ht_tanh(w.g, ht_mul(w.g, ht_add(w.g, a, b), a)), 0, NULL, false));
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.clip = 0.5;
    opts.weight_decay = 0.01;
    assert_int_equal(ht_graph_train(w.g, &opts), HT_OK);
    if (!make_plans(&w, 0)) say(&w, "does not plan", 0);
    run_both(&w, "train", 0);
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
    assert_true(s->transient_bytes < 4096);
    close_plans(&w);
    ht_context_free(w.ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fuse__random_graphs_give_the_same_bits),
        cmocka_unit_test(fuse__chains_give_the_same_bits),
        cmocka_unit_test(fuse__chains_give_the_same_bits_on_portable_kernels),
        cmocka_unit_test(fuse__products_with_epilogues_give_the_same_bits),
        cmocka_unit_test(fuse__reductions_give_the_same_bits_on_any_number_of_threads),
        cmocka_unit_test(fuse__reductions_give_the_same_bits_on_lesser_kernels),
        cmocka_unit_test(fuse__a_chain_that_is_only_summed_is_not_stored),
        cmocka_unit_test(fuse__as_many_operands_as_an_instruction_holds_are_summed),
        cmocka_unit_test(fuse__a_sum_that_replaces_an_operand_waits_for_all_elements),
        cmocka_unit_test(fuse__rows_give_the_same_bits_on_any_number_of_threads),
        cmocka_unit_test(fuse__rows_give_the_same_bits_on_lesser_kernels),
        cmocka_unit_test(fuse__a_reduction_and_what_uses_it_by_rows_run_together),
        cmocka_unit_test(fuse__a_transposed_reader_does_not_run_with_the_rows),
        cmocka_unit_test(fuse__an_update_is_one_instruction_over_the_flat_group),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
