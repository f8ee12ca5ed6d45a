/* Every rule of the IR, broken once: a graph that holds is changed behind the builder's back, and verify says which
 * rule it breaks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <string.h>

#include "context_fixture.h"
#include "op/op.h"

/* Enough of everything to break. Values by name are in `at`. */
static const char whole[] = "state %flat f32[24] heading=parameters\n"
                            "state %w f32[2,3]{%flat, 0, [3,1]} heading=parameters trained\n"
                            "state %v f32[2,3]{%flat, 6, [3,1]} heading=parameters\n"
                            "state %alone f32[2,3] heading=statistics\n"
                            "segment forward (%x f32[4,2]) -> (y=%y, t=%t) {\n"
                            "  %h = matmul f32[4,3] (%x, %w)\n"
                            "  %t = tanh f32[4,3] (%h)\n"
                            "  %y = sum f32[] (%t)\n"
                            "}\n"
                            "segment update (%g f32[2,3]) -> () {\n"
                            "  %n = neg f32[2,3] (%g)\n"
                            "  %m = add f32[2,3] (%n, %alone)\n"
                            "  store %alone = %m\n"
                            "  store %w = %n\n"
                            "  store %v = %n\n"
                            "}\n"
                            "segment away (%m1 f32[4], %m2 f32[4]) -> (m4=%m4) {\n"
                            "  %s = copy_start f32[4]@host (%m1)\n"
                            "  %m3 = neg f32[4] (%m2)\n"
                            "  %e = copy_done f32[4]@host (%s, %m1)\n"
                            "  %m4 = neg f32[4]@host (%e)\n"
                            "}\n"
                            "program train { forward update }\n";

static ht_val value(const ht_graph *g, const char *name)
{
    for (uint32_t i = 1; i < g->value_count; i++)
        if (g->values[i].name && strcmp(g->values[i].name, name) == 0) return (ht_val){i};
    fail_msg("no value %s", name);
    return HT_NONE;
}

static ht_node *maker(ht_graph *g, const char *name)
{
    return &g->nodes[g->values[value(g, name).id].owner];
}

/* ---- what can be broken ---- */

static void strides_without_view(ht_graph *g)
{
    g->values[value(g, "t").id].type.stride[0] = 1; /* two elements at one place; gaps are the planner's right */
}

static void state_strides_without_view(ht_graph *g)
{
    g->values[value(g, "alone").id].type.stride[0] = 4;
}

static void view_of_a_view(ht_graph *g)
{
    ht_value_view(g, value(g, "v"), value(g, "w"), 0);
}

static void view_of_itself(ht_graph *g)
{
    ht_value_view(g, value(g, "alone"), value(g, "alone"), 0);
}

static void view_of_another_dtype(ht_graph *g)
{
    g->values[value(g, "flat").id].type.dtype = HT_BF16;
}

static void view_of_another_memory(ht_graph *g)
{
    g->values[value(g, "flat").id].type.space = HT_SPACE_HOST;
}

static void state_as_view_of_a_result(ht_graph *g)
{
    ht_value_view(g, value(g, "alone"), value(g, "t"), 0);
}

static void view_starts_before_its_base(ht_graph *g)
{
    ht_value_view(g, value(g, "v"), value(g, "flat"), -1);
}

static void view_ends_behind_its_base(ht_graph *g)
{
    ht_value_view(g, value(g, "v"), value(g, "flat"), 19);
}

static void view_with_a_negative_stride(ht_graph *g)
{
    g->values[value(g, "v").id].type.stride[1] = -1;
}

static void view_that_overflows(ht_graph *g)
{
    g->values[value(g, "v").id].type.stride[0] = INT64_MAX;
}

static void two_states_of_one_name(ht_graph *g)
{
    g->values[value(g, "v").id].name = "w";
}

static void input_named_as_a_state(ht_graph *g)
{
    g->values[value(g, "x").id].name = "w";
}

static void two_results_of_one_name(ht_graph *g)
{
    g->values[value(g, "t").id].name = "h";
}

static void node_that_is_not_there(ht_graph *g)
{
    g->segments[0].nodes[1] = 1000;
}

static void too_few_inputs(ht_graph *g)
{
    maker(g, "h")->n_in = 1;
}

static void input_that_is_no_value(ht_graph *g)
{
    g->operands[maker(g, "t")->in] = (ht_val){1000};
}

static void use_before_definition(ht_graph *g)
{
    uint32_t *nodes = g->segments[0].nodes, first = nodes[0];
    nodes[0] = nodes[1];
    nodes[1] = first;
}

static void use_of_another_segment(ht_graph *g)
{
    g->operands[maker(g, "m")->in] = value(g, "x");
}

static void output_of_an_earlier_segment(ht_graph *g)
{
    g->segment = 1;
    ht_output(g, "far", value(g, "y"));
}

static void node_of_two_segments(ht_graph *g)
{
    g->segments[1].nodes[0] = g->segments[0].nodes[0];
    g->operands[maker(g, "h")->in] = value(g, "w");
    g->operands[maker(g, "h")->in + 1] = value(g, "w");
    ht_type *w = &g->values[value(g, "w").id].type, *h = &g->values[value(g, "h").id].type;
    w->dim[0] = 3;
    h->dim[0] = 3;
    g->values[value(g, "t").id].type.dim[0] = 3;
}

static void node_that_stands_twice(ht_graph *g)
{
    g->segments[0].nodes[2] = g->segments[0].nodes[1];
}

static void input_of_another_type(ht_graph *g)
{
    ht_type *x = &g->values[value(g, "x").id].type;
    x->dim[1] = 5;
    ht_type_row_major(x);
}

static void result_of_another_shape(ht_graph *g)
{
    ht_type *t = &g->values[value(g, "t").id].type;
    t->dim[0] = 5;
    ht_type_row_major(t);
}

static void result_of_another_dtype(ht_graph *g)
{
    g->values[value(g, "t").id].type.dtype = HT_I32;
}

static void output_of_another_segment(ht_graph *g)
{
    g->segments[0].outputs[0].value = value(g, "m");
}

static void result_as_a_view_of_what_comes_later(ht_graph *g)
{
    g->values[value(g, "h").id].base = value(g, "t");
}

static void store_into_a_result(ht_graph *g)
{
    g->operands[g->nodes[g->segments[1].nodes[2]].in] = value(g, "n");
}

static void two_stores(ht_graph *g)
{
    g->operands[g->nodes[g->segments[1].nodes[4]].in] = value(g, "w");
}

static void stores_that_overlap(ht_graph *g)
{
    ht_value_view(g, value(g, "v"), value(g, "flat"), 5);
}

static void read_behind_the_store(ht_graph *g)
{
    uint32_t *nodes = g->segments[1].nodes, add = nodes[1];
    g->operands[g->nodes[nodes[2]].in + 1] = value(g, "n"); /* store %alone = %n */
    nodes[1] = nodes[2];
    nodes[2] = add;
}

static void read_of_the_base_behind_the_store(ht_graph *g)
{
    g->segment = 1;
    ht_neg(g, value(g, "flat"));
}

static void output_behind_the_store(ht_graph *g)
{
    g->segment = 1;
    ht_output(g, "late", value(g, "alone"));
}

static void input_of_another_space(ht_graph *g)
{
    g->values[value(g, "x").id].type.space = HT_SPACE_HOST;
}

static void result_of_another_space(ht_graph *g)
{
    g->values[value(g, "m4").id].type.space = HT_SPACE_MAIN;
}

static void stored_value_of_another_space(ht_graph *g)
{
    g->values[value(g, "alone").id].type.space = g->values[value(g, "n").id].type.space = HT_SPACE_HOST;
    g->values[value(g, "g").id].type.space = g->values[value(g, "m").id].type.space = HT_SPACE_HOST;
}

static void done_of_no_start(ht_graph *g)
{
    g->operands[maker(g, "e")->in] = value(g, "m2");
}

static void start_without_a_done(ht_graph *g)
{
    uint32_t *nodes = g->segments[2].nodes;
    g->operands[maker(g, "m4")->in] = value(g, "m3");
    g->values[value(g, "m4").id].type.space = HT_SPACE_MAIN;
    nodes[2] = nodes[3];
    g->segments[2].node_count = 3;
}

static void done_of_another_source(ht_graph *g)
{
    g->operands[maker(g, "e")->in + 1] = value(g, "m2");
}

static void done_in_another_space(ht_graph *g)
{
    g->values[value(g, "e").id].type.space = g->values[value(g, "m4").id].type.space = HT_SPACE_MAIN;
}

static void start_that_is_read(ht_graph *g)
{
    g->operands[maker(g, "m4")->in] = value(g, "s");
}

static void start_that_is_an_output(ht_graph *g)
{
    g->segments[2].outputs[0].value = value(g, "s");
}

static void call_of_no_segment(ht_graph *g)
{
    g->programs[0].calls[1].segment = 3;
}

typedef struct rule {
    const char *name;
    void (*break_it)(ht_graph *g);
    const char *message;
} rule;

#define RULE(function, message)                                                                                        \
    {                                                                                                                  \
#function, function, message                                                                                   \
    }
static const rule rules[] = {
    RULE(strides_without_view, "%t has strides but is no view"),
    RULE(state_strides_without_view, "%alone has strides but is no view"),
    RULE(view_of_a_view, "%v: a view's base owns its bytes and is no view"),
    RULE(view_of_itself, "%alone: a view's base owns its bytes and is no view"),
    RULE(view_of_another_dtype, "%w: a view has its base's number type and memory"),
    RULE(view_of_another_memory, "%w: a view has its base's number type and memory"),
    RULE(state_as_view_of_a_result, "%alone: state can only be a view of state"),
    RULE(view_starts_before_its_base, "%v: the view leaves its base of 24 elements"),
    RULE(view_ends_behind_its_base, "%v: the view leaves its base of 24 elements"),
    RULE(view_with_a_negative_stride, "%v: the view leaves its base of 24 elements"),
    RULE(view_that_overflows, "%v: the view leaves its base of 24 elements"),
    RULE(two_states_of_one_name, "%w is defined twice"),
    RULE(input_named_as_a_state, "segment forward: %w is defined twice"),
    RULE(two_results_of_one_name, "segment forward: %h is defined twice"),
    RULE(node_that_is_not_there, "segment forward: no such node"),
    RULE(too_few_inputs, "segment forward: matmul has 1 inputs and 1 results"),
    RULE(input_that_is_no_value, "tanh: input is no value of the graph"),
    RULE(use_before_definition, "segment forward: tanh uses %h before it is defined there"),
    RULE(use_of_another_segment, "segment update: add uses %x before it is defined there"),
    RULE(output_of_an_earlier_segment, "segment update: output far is not defined there"),
    RULE(node_of_two_segments, "segment update: matmul stands there twice"),
    RULE(node_that_stands_twice, "segment forward: tanh stands there twice"),
    RULE(input_of_another_type, "segment forward: matmul: "),
    RULE(result_of_another_shape, "segment forward: tanh: result 0 is f32[5,3], the rule says f32[4,3]"),
    RULE(result_of_another_dtype, "segment forward: tanh: result 0 is i32[4,3], the rule says f32[4,3]"),
    RULE(output_of_another_segment, "segment forward: output y is not defined there"),
    RULE(result_as_a_view_of_what_comes_later, "segment forward: matmul uses %t before it is defined there"),
    RULE(store_into_a_result, "segment update: store into no state"),
    RULE(two_stores, "segment update: %flat is stored twice"),
    RULE(stores_that_overlap, "segment update: %flat is stored twice"),
    RULE(read_behind_the_store, "segment update: %alone is read after its store"),
    RULE(read_of_the_base_behind_the_store, "segment update: %flat is read after its store"),
    RULE(output_behind_the_store, "segment update: %alone is read after its store"),
    RULE(input_of_another_space, "segment forward: matmul computes in one space, but %x is @host and %w is @main"),
    RULE(result_of_another_space, "segment away: neg computes in one space, but %e is @host and %m4 is @main"),
    RULE(stored_value_of_another_space, "segment update: store: state is f32[2,3], value is f32[2,3]@host"),
    RULE(done_of_no_start, "segment away: copy_done: %m2 is no result of copy_start"),
    RULE(start_without_a_done, "segment away: copy_start: %s has no copy_done"),
    RULE(done_of_another_source, "segment away: copy_start reads %m1, its copy_done names %m2"),
    RULE(done_in_another_space, "segment away: copy_done: %s is f32[4]@host, the result is f32[4]"),
    RULE(start_that_is_read, "segment away: %s of copy_start is read by neg; only copy_done may"),
    RULE(start_that_is_an_output, "segment away: %s of copy_start is read by an output; only copy_done may"),
    RULE(call_of_no_segment, "program train calls a segment that is not there"),
};

static ht_graph *whole_graph(void)
{
    ht_graph *g;
    if (ht_graph_parse(&g, test_ctx, "whole", whole, strlen(whole)) != HT_OK)
        fail_msg("%s", ht_context_message(test_ctx));
    return g;
}

static void every_rule__is_checked(void **state)
{
    const rule *r = *state;
    ht_graph *g = whole_graph();
    r->break_it(g);
    assert_int_equal(ht_graph_status(g), HT_OK);
    assert_int_equal(ht_graph_verify(g), HT_EVERIFY);
    if (!strstr(ht_context_message(test_ctx), r->message))
        fail_msg("says '%s', not '%s'", ht_context_message(test_ctx), r->message);
    ht_graph_free(g);
}

/* ---- what looks broken and is not ---- */

static void a_float_result__may_round_to_any_float_type(void **state)
{
    (void)state;
    ht_graph *g = whole_graph();
    g->values[value(g, "t").id].type.dtype = HT_F8E4M3;
    assert_int_equal(ht_graph_verify(g), HT_OK);
    ht_graph_free(g);
}

static void an_empty_view__fits_at_the_end_of_its_base(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "state %a f32[4]\nstate %b f32[0]{%a, 4, [1]}\nsegment s (%x f32[0]) {\nstore %a = %a\nstore %b = %x\n}\n",
        "state %a f32[0]\nstate %b f32[0]{%a, 0, [1]}\n",
        "state %a f32[0,5]\nstate %b f32[7,0]{%a, 0, [9,9]}\n",
        "state %a f32[4]\nstate %b f32[0,0]{%a, 0, [9223372036854775807,9223372036854775807]}\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        ht_graph *g;
        if (ht_graph_parse(&g, test_ctx, "empty", texts[i], strlen(texts[i])) != HT_OK)
            fail_msg("%s\n%s", ht_context_message(test_ctx), texts[i]);
        ht_val a = value(g, "a"), b = value(g, "b");
        assert_false(ht_overlap(g, a, b));
        assert_int_equal(ht_root(g, b).id, a.id);
        ht_graph_free(g);
    }
}

static void stores_into_disjoint_views__hold(void **state)
{
    (void)state;
    ht_graph *g = whole_graph();
    assert_false(ht_overlap(g, value(g, "w"), value(g, "v")));
    assert_true(ht_overlap(g, value(g, "w"), value(g, "flat")));
    assert_false(ht_overlap(g, value(g, "w"), value(g, "alone")));
    assert_int_equal(ht_graph_verify(g), HT_OK);
    ht_graph_free(g);
}

static void the_builders_first_failure__is_the_graphs_status(void **state)
{
    (void)state;
    ht_graph *g = whole_graph();
    g->segment = 0;
    ht_scope_push(g, "h.3");
    ht_scope_push(g, "mlp");
    ht_val bad = ht_matmul(g, value(g, "x"), value(g, "x"), NULL);
    assert_int_equal(bad.id, 0);
    assert_non_null(strstr(ht_context_message(test_ctx), ", at h.3.mlp"));
    ht_tanh(g, bad);
    ht_output(g, "no", bad);
    ht_store(g, value(g, "x"), bad);
    assert_int_equal(ht_graph_status(g), HT_ESHAPE);
    assert_int_equal(ht_graph_verify(g), HT_ESHAPE);
    assert_non_null(strstr(ht_context_message(test_ctx), "matmul"));
    ht_graph_free(g);
}

int main(void)
{
    enum { RULES = sizeof rules / sizeof rules[0] };
    const struct CMUnitTest more[] = {
        cmocka_unit_test(a_float_result__may_round_to_any_float_type),
        cmocka_unit_test(an_empty_view__fits_at_the_end_of_its_base),
        cmocka_unit_test(stores_into_disjoint_views__hold),
        cmocka_unit_test(the_builders_first_failure__is_the_graphs_status),
    };
    struct CMUnitTest tests[RULES] = {{0}};
    for (size_t i = 0; i < RULES; i++)
        tests[i] = (struct CMUnitTest){
            .name = rules[i].name, .test_func = every_rule__is_checked, .initial_state = (void *)&rules[i]};
    int failures = cmocka_run_group_tests_name("rules", tests, context_setup, context_teardown);
    return failures + cmocka_run_group_tests_name("no rules", more, context_setup, context_teardown);
}
