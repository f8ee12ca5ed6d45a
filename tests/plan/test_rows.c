/* What kernel rows can decide about a plan: which calls they take into their instruction, and which types they take at
 * all. With ops and rows of the test's own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fused_pair.h"

static ht_status same_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    (void)ctx;
    out[0] = *call->in[0];
    return HT_OK;
}

/* ---- a product of a library that has one epilogue ---- */

static const ht_op doubled_op = {.size = sizeof(ht_op),
                                 .name = "doubled",
                                 .prec = HT_PREC_DOT,
                                 .fuse = HT_FUSE_DOT,
                                 .min_in = 1,
                                 .max_in = 1,
                                 .n_out = 1,
                                 .infer = same_infer,
                                 .no_grad = "a test"};

enum { COLUMNS = 200, MOST_ROWS = 8 };

static const char *doubled_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return call->in[0]->dtype == HT_F32 ? ht_refuse_strided(call) : "x is not f32";
}

static const char *doubled_takes(const ht_call *call, const ht_fusion *fusion, const ht_target *target)
{
    assert_string_equal(call->op->name, "doubled");
    assert_non_null(target);
    if (fusion->before) return "there are no prologues";
    if (fusion->count > 1) return "one epilogue at most";
    const ht_call *only = fusion->calls[0];
    if (only->out[0]->dtype != HT_F32) return "the epilogue stores f32";
    return strcmp(only->op->name, "tanh") == 0 ? NULL : "the epilogue is tanh";
}

static ht_status doubled_run(const ht_launch *launch)
{
    const ht_fused *fused = launch->fused;
    const float *x = launch->in[fused ? fused->n_in : 0];
    int64_t n = ht_type_elems(fused ? fused->gemm->out[0] : launch->call->out[0]);
    float block[MOST_ROWS * COLUMNS], *y = fused ? block : launch->out[0];
    ht_epilogue epilogue;
    for (int64_t i = 0; i < n; i++) y[i] = 2 * x[i];
    if (!fused) return HT_OK;
    ht_epilogue_begin(&epilogue, fused, launch);
    ht_epilogue_block(&epilogue, 0, COLUMNS, n / COLUMNS, COLUMNS, (char *)block, COLUMNS * sizeof *block);
    return HT_OK;
}

static const ht_kernel doubled_row = {.size = sizeof(ht_kernel),
                                      .op = "doubled",
                                      .name = "doubled.test",
                                      .can = doubled_can,
                                      .run = doubled_run,
                                      .takes = doubled_takes};

/* The plan of some lines that follow %0 = doubled(x). */
static fused_pair plan_doubled(const char *result, const char *lines)
{
    char text[1024];
    fused_pair w = {.ctx = test_ctx};
    snprintf(text, sizeof text, "segment forward (%%x f32[4,200]) -> (y=%s) {\n  %%0 = doubled f32[4,200] (%%x)\n%s}\n",
             result, lines);
    context_must(test_ctx, ht_graph_parse(&w.g, test_ctx, "test", text, strlen(text)));
    if (!fused_pair_plan(&w, 1)) fail_msg("%s", ht_context_message(test_ctx));
    fused_pair_run(&w, "forward", 1);
    return w;
}

static void refuses(const char *result, const char *lines, const char *reason)
{
    fused_pair w = plan_doubled(result, lines);
    const ht_plan_segment *s = &w.plan[0]->segments[0];
    char *text;
    assert_int_equal(s->instr_count, 2);
    assert_string_equal(s->instrs[0].kernel->name, "doubled.test");
    assert_null(s->instrs[0].fused);
    assert_string_equal(s->instrs[0].unfused, reason);
    assert_null(s->instrs[1].unfused);
    context_must(test_ctx, ht_plan_print(&text, w.plan[0]));
    assert_non_null(strstr(text, reason));
    free(text);
    fused_pair_close(&w);
}

static void takes__a_row_decides_what_is_fused_with_it(void **state)
{
    (void)state;
    context_must(test_ctx, ht_op_add(test_ctx, &doubled_op));
    context_must(test_ctx, ht_kernel_add(test_ctx, &doubled_row));
    fused_pair w = plan_doubled("%1", "  %1 = tanh f32[4,200] (%0)\n");
    const ht_plan_segment *s = &w.plan[0]->segments[0];
    assert_int_equal(s->instr_count, 1);
    assert_non_null(s->instrs[0].fused->gemm);
    assert_null(s->instrs[0].unfused);
    fused_pair_close(&w);
    refuses("%1", "  %1 = neg f32[4,200] (%0)\n", "the epilogue is tanh");
    refuses("%2", "  %1 = neg f32[4,200] (%0)\n  %2 = tanh f32[4,200] (%1)\n", "one epilogue at most");
    refuses("%1", "  %1 = tanh f16[4,200] (%0)\n", "the epilogue stores f32");
}

static void takes__our_products_take_any_chain_of_long_rows(void **state)
{
    (void)state;
    static const struct {
        int64_t columns;
        const char *unfused;
    } cases[] = {{256, NULL}, {96, "rows are too short for an epilogue"}};
    for (size_t i = 0; i < 2; i++) {
        fused_pair w = {.ctx = test_ctx};
        context_must(test_ctx, ht_graph_create(&w.g, test_ctx));
        ht_val x = ht_input(w.g, "x", HT_F32, 2, (int64_t[]){64, 128});
        ht_val b = ht_input(w.g, "b", HT_F32, 2, (int64_t[]){128, cases[i].columns});
        ht_output(w.g, "y", ht_exp(w.g, ht_tanh(w.g, ht_matmul(w.g, x, b, NULL))));
        assert_true(fused_pair_plan(&w, 1));
        const ht_instr *instr = &w.plan[0]->segments[0].instrs[0];
        assert_int_equal(instr->fused != NULL, !cases[i].unfused);
        if (cases[i].unfused) assert_string_equal(instr->unfused, cases[i].unfused);
        fused_pair_run(&w, "forward", 1);
        fused_pair_close(&w);
    }
}

/* ---- an op that runs in f32 only ---- */

static const char *f32_can(const ht_call *call, const ht_target *target)
{
    (void)target;
    if (call->in[0]->dtype != HT_F32 || call->out[0]->dtype != HT_F32) return "an operand is not f32";
    return ht_refuse_strided(call);
}

static ht_status affine_run(const ht_launch *launch)
{
    const float *x = launch->in[0];
    float *y = launch->out[0];
    for (int64_t i = 0; i < ht_type_elems(launch->call->out[0]); i++) y[i] = x[i] * 3 + 1;
    return HT_OK;
}

static ht_op affine_op(ht_prec prec, const char *name)
{
    return (ht_op){.size = sizeof(ht_op),
                   .name = name,
                   .prec = prec,
                   .min_in = 1,
                   .max_in = 1,
                   .n_out = 1,
                   .infer = same_infer,
                   .no_grad = "a test"};
}

static ht_kernel affine_row(const char *op)
{
    return (ht_kernel){.size = sizeof(ht_kernel), .op = op, .name = "affine.test", .can = f32_can, .run = affine_run};
}

typedef struct heard {
    int warnings;
    char last[512];
} heard;

static void hear(void *arg, ht_log_level level, const char *line)
{
    heard *h = arg;
    if (level != HT_LOG_WARN) return;
    h->warnings++;
    snprintf(h->last, sizeof h->last, "%s", line);
}

static ht_context *open_context(heard *h)
{
    ht_context *ctx;
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.log = hear;
    opts.log_arg = h;
    assert_int_equal(ht_context_create(&ctx, &opts), HT_OK);
    return ctx;
}

static void check_results(const fused_pair *w, ht_dtype dtype, const char *name)
{
    double x[12], y[12];
    context_must(w->ctx, ht_session_read_f64(w->s[0], "x", x, 12));
    context_must(w->ctx, ht_session_read_f64(w->s[0], name, y, 12));
    for (int i = 0; i < 12; i++) {
        uint64_t rounded = 0;
        float exact = (float)x[i % 4 * 3 + i / 4] * 3 + 1; /* of the transpose */
        ht_store_f64(&rounded, dtype, 0, exact);
        assert_true(y[i] == -ht_load_f64(&rounded, dtype, 0));
    }
}

static void layout__casts_where_no_row_takes_half(void **state)
{
    (void)state;
    static const ht_prec classes[] = {HT_PREC_POINT, HT_PREC_MOVE, HT_PREC_DOT};
    static const ht_dtype halves[] = {HT_F16, HT_BF16};
    for (size_t i = 0; i < 6; i++) {
        ht_op op = affine_op(classes[i / 2], "affine");
        ht_kernel row = affine_row("affine");
        heard h = {0};
        fused_pair w = {.ctx = open_context(&h)};
        context_must(w.ctx, ht_op_add(w.ctx, &op));
        context_must(w.ctx, ht_kernel_add(w.ctx, &row));
        context_must(w.ctx, ht_graph_create(&w.g, w.ctx));
        ht_scope_push(w.g, "deep.inside");
        ht_val x = ht_input(w.g, "x", halves[i % 2], 2, (int64_t[]){4, 3});
        ht_val turned = ht_transpose(w.g, x, 0, 1);
        ht_val y = ht_emit1(w.g, "affine", NULL, HT_VALS(turned), HT_NO_ATTRS);
        ht_output(w.g, "y", ht_neg(w.g, y));
        ht_output(w.g, "whole", y); /* a reader of the result that is no node */
        if (!fused_pair_plan(&w, 1)) fail_msg("%s", ht_context_message(w.ctx));
        assert_int_equal(h.warnings, 2); /* of two plans */
        assert_non_null(strstr(h.last, "affine at deep.inside"));
        assert_non_null(strstr(h.last, i % 2 ? "bf16[3,4]" : "f16[3,4]"));
        fused_pair_run(&w, "forward", 1);
        check_results(&w, halves[i % 2], "y");
        assert_int_equal(ht_plan_slot(w.plan[0], "whole")->type.dtype, halves[i % 2]);
        fused_pair_close(&w);
        ht_context_free(w.ctx);
    }
}

static ht_status half_infer(ht_context *ctx, const ht_call *call, ht_type *out)
{
    (void)ctx;
    out[0] = *call->in[0];
    out[0].dtype = HT_F16;
    return HT_OK;
}

static void layout__casts_nothing_that_the_op_would_not_be(void **state)
{
    (void)state;
    /* Its result is f16 whatever it reads: no row takes that. */
    ht_op op = affine_op(HT_PREC_EXACT, "rounding");
    ht_kernel row = affine_row("rounding");
    op.infer = half_infer;
    heard h = {0};
    ht_context *ctx = open_context(&h);
    ht_graph *g;
    ht_plan *plan;
    context_must(ctx, ht_op_add(ctx, &op));
    context_must(ctx, ht_kernel_add(ctx, &row));
    context_must(ctx, ht_graph_create(&g, ctx));
    ht_val x = ht_input(g, "x", HT_F16, 1, (int64_t[]){4});
    ht_output(g, "y", ht_emit1(g, "rounding", NULL, HT_VALS(x), HT_NO_ATTRS));
    assert_int_equal(ht_plan_create(&plan, g, NULL), HT_ENOTSUP);
    assert_non_null(strstr(ht_context_message(ctx), "rounding: no kernel for it: affine.test: an operand is not f32"));
    assert_int_equal(h.warnings, 0);
    ht_graph_free(g);
    ht_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(takes__a_row_decides_what_is_fused_with_it, context_setup, context_teardown),
        cmocka_unit_test_setup_teardown(takes__our_products_take_any_chain_of_long_rows, context_setup,
                                        context_teardown),
        cmocka_unit_test(layout__casts_where_no_row_takes_half),
        cmocka_unit_test(layout__casts_nothing_that_the_op_would_not_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
