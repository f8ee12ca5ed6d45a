/* A plan as rows, what choosing a kernel tells, and the observer of passes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "context_fixture.h"
#include "hashes.h"
#include "plan/plan.h"
#include "tiny_model.h"

typedef struct explained {
    ht_context *ctx;
    ht_plan *plan;
    ht_explanation table;
} explained;

static explained start(const char *precision, bool fusion, const ht_pass_observer *observer)
{
    explained w = {0};
    ht_graph *g;
    w.ctx = context_create(0, NULL);
    context_must(w.ctx, ht_graph_create(&g, w.ctx));
    tiny_build(g, 0.1);
    context_must(w.ctx, ht_graph_train(g, NULL));
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.no_fusion = !fusion;
    opts.precision = precision;
    context_must(w.ctx, ht_plan_create_observed(&w.plan, g, &opts, observer));
    ht_graph_free(g);
    context_must(w.ctx, ht_plan_explain(&w.table, w.plan));
    return w;
}

static void stop(explained *w)
{
    ht_explanation_free(&w->table);
    ht_plan_free(w->plan);
    ht_context_free(w->ctx);
}

static const ht_plan_segment *segment(const explained *w, const char *name)
{
    int index = ht_plan_segment_find(w->plan, name);
    assert_true(index >= 0);
    return &w->plan->segments[index];
}

static size_t count(const explained *w, ht_figure_block block)
{
    size_t rows = 0;
    for (size_t i = 0; i < w->table.count; i++) rows += w->table.rows[i].block == block;
    return rows;
}

/* ---- rows ---- */

static void explain__has_a_row_for_every_instruction_of_a_micro_batch(void **state)
{
    (void)state;
    for (int fusion = 0; fusion < 2; fusion++) {
        explained w = start("bf16", fusion, NULL);
        const ht_plan_segment *micro = segment(&w, "micro_first");
        double moved = 0, told = 0;
        size_t rows = count(&w, HT_FIGURE_FWD) + count(&w, HT_FIGURE_BWD_ACT) + count(&w, HT_FIGURE_BWD_WEIGHT);
        assert_int_equal(rows, micro->instr_count);
        for (size_t i = 0; i < micro->instr_count; i++) moved += micro->instrs[i].cost.bytes;
        for (size_t i = 0; i < w.table.count; i++) {
            const ht_explain_row *row = &w.table.rows[i];
            if (row->block != HT_FIGURE_FLOAT2HALF && row->block != HT_FIGURE_UPDATE) told += row->cost.bytes;
        }
        assert_true(told == moved);
        stop(&w);
    }
}

/* What is asked again, after planning, is what layout was told. */
static void explain__names_the_kernels_that_run(void **state)
{
    (void)state;
    explained w = start("fp16", false, NULL);
    const ht_plan_segment *micro = segment(&w, "micro_first");
    for (size_t i = 0; i < micro->instr_count; i++) {
        const ht_instr *instr = &micro->instrs[i];
        assert_ptr_equal(ht_kernel_choose(w.ctx, instr->call, &w.plan->target, NULL), instr->kernel);
    }
    stop(&w);
}

static void explain__gives_each_matrix_one_copy_and_each_parameter_one_update(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp32", "fp16", "bf16"};
    for (size_t p = 0; p < 3; p++) {
        explained w = start(precisions[p], true, NULL);
        size_t matrices = 0, parameters = 0, updates = 0;
        int64_t elements = 0, bytes = 0;
        for (size_t i = 0; i < w.plan->slot_count; i++) {
            const ht_slot *slot = &w.plan->slots[i];
            if (slot->kind != HT_SLOT_STATE || strncmp(slot->name, "flat.", 5) == 0) continue;
            bool half = strlen(slot->name) > 5 && strcmp(slot->name + strlen(slot->name) - 5, ".half") == 0;
            if (half) elements += ht_type_elems(&slot->type);
            matrices += half;
            parameters += strlen(slot->name) > 5 && strcmp(slot->name + strlen(slot->name) - 5, ".grad") == 0;
        }
        for (size_t i = 0; i < w.table.count; i++) {
            const ht_explain_row *row = &w.table.rows[i];
            if (row->block == HT_FIGURE_FLOAT2HALF) bytes += (int64_t)row->cost.bytes;
            updates += row->block == HT_FIGURE_UPDATE && strcmp(row->layer, "(update)") != 0;
        }
        assert_int_equal(count(&w, HT_FIGURE_FLOAT2HALF), matrices);
        assert_int_equal(bytes, 2 * elements);
        assert_int_equal(updates, parameters);
        assert_int_equal(matrices > 0, p > 0);
        assert_true(parameters > matrices);
        stop(&w);
    }
}

/* ---- refusals ---- */

static void kernels__tell_what_the_rows_before_the_chosen_one_said(void **state)
{
    (void)state;
    ht_context *ctx = context_create(0, NULL);
    ht_target target;
    ht_text why = {0};
    ht_target_here(ctx, &target);
    ht_type f64 = ht_type_make(HT_F64, 1, (int64_t[]){8});
    const ht_type *in[] = {&f64}, *out[] = {&f64};
    ht_call call = {ht_op_find(ctx, "exp", 3), 1, 1, 0, in, out, NULL};
    const ht_kernel *kernel = ht_kernel_choose(ctx, &call, &target, &why);
    assert_non_null(kernel);
    assert_non_null(strstr(kernel->name, "exp.f64."));
    assert_non_null(why.data);
    assert_non_null(strstr(why.data, "exp.f32."));
    assert_non_null(strstr(why.data, "f64"));
    assert_null(strstr(why.data, kernel->name)); /* it did not refuse */
    ht_text_free(&why);
    ht_context_free(ctx);
}

/* ---- passes ---- */

typedef struct pass_log {
    char names[256];
    uint64_t hash;
    int calls, fail_at;
} pass_log;

static ht_status log_pass(void *arg, const ht_pass *pass, const ht_graph *g)
{
    pass_log *h = arg;
    uint64_t hash = model_hash(g);
    if (h->calls == 0) h->hash = hash;
    assert_true(hash == h->hash);
    strcat(strcat(h->names, h->calls ? " " : ""), pass->name);
    if (++h->calls == h->fail_at) return ht_fail(g->ctx, HT_EINVAL, "enough at %s", pass->name);
    return HT_OK;
}

static void passes__are_told_in_their_order_with_the_same_model(void **state)
{
    (void)state;
    pass_log h = {.calls = 0};
    ht_pass_observer observer = {log_pass, &h};
    explained w = start("bf16", true, &observer);
    assert_string_equal(h.names, "init fold cse dce regions autocast cse dce regions");
    assert_true(h.hash == w.plan->model_hash);
    assert_string_equal(w.plan->precision, "bf16");
    stop(&w);
}

static void passes__end_where_the_listener_fails(void **state)
{
    (void)state;
    ht_context *ctx = context_create(0, NULL);
    ht_graph *g;
    ht_plan *plan;
    pass_log h = {.fail_at = 3};
    ht_pass_observer observer = {log_pass, &h};
    context_must(ctx, ht_graph_create(&g, ctx));
    tiny_build(g, 0);
    context_must(ctx, ht_graph_train(g, NULL));
    assert_int_equal(ht_plan_create_observed(&plan, g, NULL, &observer), HT_EINVAL);
    assert_null(plan);
    assert_string_equal(ht_context_message(ctx), "enough at cse");
    assert_int_equal(h.calls, 3);
    ht_graph_free(g);
    ht_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explain__has_a_row_for_every_instruction_of_a_micro_batch),
        cmocka_unit_test(explain__names_the_kernels_that_run),
        cmocka_unit_test(explain__gives_each_matrix_one_copy_and_each_parameter_one_update),
        cmocka_unit_test(kernels__tell_what_the_rows_before_the_chosen_one_said),
        cmocka_unit_test(passes__are_told_in_their_order_with_the_same_model),
        cmocka_unit_test(passes__end_where_the_listener_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
