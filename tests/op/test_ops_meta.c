/* Every row of the op table says all that passes, planner, tests and reports ask of an op. */
#include "op_tests.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void check_name(const char *what, const char *name)
{
    if (!name || !islower((unsigned char)name[0])) fail_msg("%s name \"%s\": not a small letter first", what, name);
    for (const char *c = name; *c; c++)
        if (!islower((unsigned char)*c) && !isdigit((unsigned char)*c) && *c != '_')
            fail_msg("%s name \"%s\": small letters, digits and _ only", what, name);
}

static void check_attrs(const ht_op *op)
{
    for (const ht_attr_def *def = op->attrs; def && def->key; def++) {
        check_name("attribute", def->key);
        for (const ht_attr_def *other = op->attrs; other != def; other++)
            if (strcmp(other->key, def->key) == 0) fail_msg("%s: attribute %s is there twice", op->name, def->key);
        if (def->kind == HT_ATTR_TEXT && !def->required && !def->standard.text)
            fail_msg("%s: attribute %s has no default", op->name, def->key);
    }
}

static void op_is_complete(void **state)
{
    const ht_op *op = *state;
    check_name("op", op->name);
    assert_int_equal(op->size, sizeof(ht_op));
    if (op->min_in < 0 || op->min_in > op->max_in) fail_msg("takes %d to %d inputs", op->min_in, op->max_in);
    if (op->n_out < 1 || op->n_out > 8) fail_msg("has %d results", op->n_out);
    if (op->aux_out >> op->n_out) fail_msg("aux_out names a result that is not there");
    if (op->aux_out == (1u << op->n_out) - 1 && op->grad) fail_msg("it has a gradient, but every result is aux");
    if (!op->infer) fail_msg("no shape rule");
    if (!op->cost) fail_msg("no cost rule");
    if (!op->ref) fail_msg("no reference");
    if (!op->grad && !op->no_grad) fail_msg("neither a gradient nor a reason");
    if (op->grad && op->no_grad) fail_msg("a gradient and a reason for none: %s", op->no_grad);
    if (op->view && op->prec != HT_PREC_MOVE) fail_msg("a view, but it is no move");
    if (!op->samples || !op->samples[0]) fail_msg("no samples");
    check_attrs(op);
}

static void every_op_name_is_there_once(void **state)
{
    (void)state;
    const ht_context *ctx = context_shared();
    assert_true(ctx->op_count > 0);
    for (size_t i = 0; i < ctx->op_count; i++) {
        const char *name = ctx->ops[i]->name;
        for (size_t j = 0; j < i; j++)
            if (strcmp(name, ctx->ops[j]->name) == 0) fail_msg("two ops are called %s", name);
        assert_ptr_equal(ht_op_find(ctx, name, strlen(name)), ctx->ops[i]);
    }
}

static void every_kernel_row_has_its_op_and_a_name_of_its_own(void **state)
{
    (void)state;
    const ht_context *ctx = context_shared();
    for (size_t i = 0; i < ctx->kernel_count; i++) {
        const ht_kernel *k = ctx->kernels[i];
        assert_int_equal(k->size, sizeof(ht_kernel));
        if (!ht_op_find(ctx, k->op, strlen(k->op))) fail_msg("kernel %s: there is no op %s", k->name, k->op);
        if (!k->run) fail_msg("kernel %s does not run", k->name);
        for (size_t j = 0; j < i; j++)
            if (strcmp(k->name, ctx->kernels[j]->name) == 0) fail_msg("two kernels are called %s", k->name);
    }
}

/* ---- per sample ---- */

static void build(op_case *c, const ht_op *op, const char *line)
{
    op_case_parse(c, op, line);
    if (!op_case_build(c)) op_case_fail(c, "the builder refuses it: %s", ht_context_message(context_shared()));
}

static void check_text(op_case *c)
{
    ht_context *ctx = context_shared();
    char *text;
    ht_graph *back;
    if (ht_graph_verify(c->graph) != HT_OK) op_case_fail(c, "does not verify: %s", ht_context_message(ctx));
    if (ht_graph_print(&text, c->graph) != HT_OK) op_case_fail(c, "does not print: %s", ht_context_message(ctx));
    if (ht_graph_parse(&back, ctx, "sample", text, strlen(text)) != HT_OK)
        op_case_fail(c, "its text does not parse: %s\n%s", ht_context_message(ctx), text);
    if (!ht_graph_equal(c->graph, back)) op_case_fail(c, "its text reads as another graph\n%s", text);
    ht_graph_free(back);
    free(text);
}

static void check_cost(const op_case *c)
{
    ht_cost cost = ht_call_cost(c->call);
    double bytes = 0;
    for (size_t i = 0; i < c->call->n_in; i++) bytes += c->call->in[i] ? (double)ht_type_bytes(c->call->in[i]) : 0;
    for (size_t i = 0; i < c->call->n_out; i++) bytes += (double)ht_type_bytes(c->call->out[i]);
    double flops = ht_cost_flops(cost);
    if (!(cost.dot_flops >= 0) || !(cost.other_flops >= 0) || !isfinite(flops))
        op_case_fail(c, "costs %g FLOPs", flops);
    if (cost.recomputed_flops != 0) op_case_fail(c, "recomputes by itself");
    /* Products are what the class is for, and no other class has any. */
    if ((cost.dot_flops > 0) != (c->call->op->prec == HT_PREC_DOT && flops > 0))
        op_case_fail(c, "has %g FLOPs of products", cost.dot_flops);
    if (!(cost.bytes >= 0) || cost.bytes > 16 * bytes) op_case_fail(c, "moves %g bytes of %g", cost.bytes, bytes);
}

static void check_kernel(const op_case *c)
{
    ht_text why = {0};
    ht_target target = {.name = "test", .isa = HT_ISA_PORTABLE, .threads = 1};
    if (!ht_kernel_choose(context_shared(), c->call, &target, &why))
        op_case_fail(c, "no portable kernel: %s", why.data ? why.data : "there is none");
    ht_text_free(&why);
}

static void samples_build_print_cost_and_have_a_kernel(void **state)
{
    const ht_op *op = *state;
    for (size_t s = 0; op->samples[s]; s++) {
        op_case c;
        build(&c, op, op->samples[s]);
        check_text(&c);
        check_cost(&c);
        check_kernel(&c);
        op_case_free(&c);
    }
}

static void fill(op_arrays *a, const op_case *c, double with)
{
    for (size_t i = 0; i < c->call->n_out; i++)
        for (int64_t e = 0; e < ht_type_elems(c->call->out[i]); e++) a->out[i][e] = with;
}

static void check_same(const op_case *c, const op_arrays *a, const op_arrays *b, const char *what)
{
    for (size_t i = 0; i < c->call->n_out; i++)
        for (int64_t e = 0; e < ht_type_elems(c->call->out[i]); e++)
            if (a->out[i][e] != b->out[i][e] && !(isnan(a->out[i][e]) && isnan(b->out[i][e])))
                op_case_fail(c, "result %zu, element %" PRId64 ": %.17g and %.17g %s", i, e, a->out[i][e], b->out[i][e],
                             what);
}

static void references_write_every_element(void **state)
{
    const ht_op *op = *state;
    for (size_t s = 0; op->samples[s]; s++) {
        op_case c;
        build(&c, op, op->samples[s]);
        op_arrays once, again;
        op_arrays_make(&once, &c);
        op_arrays_make(&again, &c);
        fill(&once, &c, 12345);
        fill(&again, &c, -54321);
        op_arrays_reference(&once, &c);
        op_arrays_reference(&again, &c);
        check_same(&c, &once, &again, "depend on what was there before");
        op_case_free(&c);
    }
}

/* A view must show exactly what the reference copies. */
static void check_view(op_case *c)
{
    ht_type seen = *c->call->out[0];
    int64_t offset = 0;
    if (!c->op->view(c->call, &seen, &offset)) return;
    op_arrays a;
    op_arrays_make(&a, c);
    op_arrays_reference(&a, c);
    int64_t size = ht_type_elems(c->call->in[0]);
    for (int64_t e = 0; e < ht_type_elems(&seen); e++) {
        int64_t at = offset, rest = e;
        for (int axis = seen.rank - 1; axis >= 0; axis--) {
            at += rest % seen.dim[axis] * seen.stride[axis];
            rest /= seen.dim[axis];
        }
        if (at < 0 || at >= size) op_case_fail(c, "the view of element %" PRId64 " lies outside", e);
        if (a.in[0][at] != a.out[0][e]) op_case_fail(c, "the view shows another element %" PRId64, e);
    }
}

static void check_swap(op_case *c)
{
    op_arrays a, b;
    op_arrays_make(&a, c);
    op_arrays_make(&b, c);
    double *first = b.in[0];
    b.in[0] = b.in[1];
    b.in[1] = first;
    op_arrays_reference(&a, c);
    op_arrays_reference(&b, c);
    check_same(c, &a, &b, "after a swap of the inputs");
}

static bool has_view_or_swap(const ht_op *op)
{
    return op->view || op->flags & HT_OP_COMMUTATIVE;
}

static void views_and_swaps_hold(void **state)
{
    const ht_op *op = *state;
    for (size_t s = 0; op->samples[s]; s++) {
        op_case c;
        build(&c, op, op->samples[s]);
        if (op->view) check_view(&c);
        if (op->flags & HT_OP_COMMUTATIVE) check_swap(&c);
        op_case_free(&c);
    }
}

int main(void)
{
    const struct CMUnitTest whole[] = {
        cmocka_unit_test(every_op_name_is_there_once),
        cmocka_unit_test(every_kernel_row_has_its_op_and_a_name_of_its_own),
    };
    int failures = cmocka_run_group_tests_name("tables", whole, NULL, NULL);
    failures += op_tests_run("op is complete", op_is_complete, NULL);
    failures +=
        op_tests_run("samples build, print, cost and have a kernel", samples_build_print_cost_and_have_a_kernel, NULL);
    failures += op_tests_run("references write every element", references_write_every_element, NULL);
    failures += op_tests_run("views and swaps hold", views_and_swaps_hold, has_view_or_swap);
    return failures;
}
