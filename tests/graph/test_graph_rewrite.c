/* Looking at a graph and changing it: liveness, rewriting, copies, clones, hashes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "context_fixture.h"
#include "hashes.h"
#include "random_graph.h"

static ht_graph *parse(const char *text)
{
    ht_graph *g;
    if (ht_graph_parse(&g, test_ctx, "test", text, strlen(text)) != HT_OK)
        fail_msg("%s\n%s", ht_context_message(test_ctx), text);
    return g;
}

static void assert_prints(const ht_graph *g, const char *expected)
{
    char *text;
    assert_int_equal(ht_graph_print(&text, g), HT_OK);
    assert_string_equal(text, expected);
    free(text);
}

static ht_val value(const ht_graph *g, const char *name)
{
    for (uint32_t i = 1; i < g->value_count; i++)
        if (g->values[i].name && strcmp(g->values[i].name, name) == 0) return (ht_val){i};
    fail_msg("no value %s", name);
    return HT_NONE;
}

/* ---- liveness ---- */

static void liveness__is_the_last_use_through_views_and_outputs(void **state)
{
    (void)state;
    ht_graph *g = parse("state %w f32[4] heading=parameters\n"
                        "segment s (%x f32[4], %unused f32[4]) -> (out=%out) {\n"
                        "  %a = neg f32[4] (%x)\n"
                        "  %view = slice f32[2]{%a, 1, [1]} (%a) start=[1]\n"
                        "  %out = sum f32[] (%x)\n"
                        "  %dead = neg f32[] (%out)\n"
                        "  %b = neg f32[2] (%view)\n"
                        "  %c = add f32[4] (%w, %x)\n"
                        "  store %w = %c\n"
                        "}\n");
    uint32_t *last = ht_liveness(g, 0);
    assert_non_null(last);
    assert_int_equal(last[value(g, "a").id], 4); /* %b reads its bytes */
    assert_int_equal(last[value(g, "view").id], 4);
    assert_int_equal(last[value(g, "x").id], 5);
    assert_int_equal(last[value(g, "out").id], 7); /* the end */
    assert_int_equal(last[value(g, "c").id], 6);
    assert_int_equal(last[value(g, "w").id], 6);
    assert_int_equal(last[value(g, "dead").id], UINT32_MAX);
    assert_int_equal(last[value(g, "unused").id], UINT32_MAX);
    free(last);
    ht_graph_free(g);
}

/* ---- rewriting ---- */

static void rewrite__replaces_in_nodes_views_and_outputs(void **state)
{
    (void)state;
    ht_graph *g = parse("segment s (%x f32[4]) -> (y=%y, t=%t) {\n"
                        "  %t = tanh f32[4] (%x)\n"
                        "  %v = slice f32[2]{%t, 0, [1]} (%t)\n"
                        "  %y = neg f32[4] (%t)\n"
                        "}\n");
    ht_rewrite rw;
    uint32_t before = g->segment;
    assert_true(ht_rewrite_begin(&rw, g, 0));
    for (size_t i = 0; i < rw.count; i++) {
        const ht_node *n = &g->nodes[rw.old[i]];
        if (strcmp(n->op->name, "tanh") == 0) {
            ht_val x = ht_node_in(g, n, 0), t = ht_node_out(n, 0);
            ht_rewrite_replace(&rw, t, ht_neg(g, ht_sin(g, x)));
        } else {
            ht_rewrite_keep(&rw, rw.old[i]);
        }
    }
    assert_int_equal(ht_rewrite_end(&rw), HT_OK);
    assert_int_equal(g->segment, before);
    assert_int_equal(ht_graph_verify(g), HT_OK);
    assert_prints(g, "\nsegment s (%x f32[4]) -> (y=%y, t=%1) {\n"
                     "  %0 = sin f32[4] (%x)\n"
                     "  %1 = neg f32[4] (%0)\n"
                     "  %v = slice f32[2]{%1, 0, [1]} (%1)\n"
                     "  %y = neg f32[4] (%1)\n"
                     "}\n");
    ht_graph_free(g);
}

static void rewrite__follows_a_replacement_that_was_replaced(void **state)
{
    (void)state;
    ht_graph *g = parse("segment s (%x f32[4]) -> (y=%c) {\n"
                        "  %a = neg f32[4] (%x)\n"
                        "  %b = neg f32[4] (%a)\n"
                        "  %c = neg f32[4] (%b)\n"
                        "}\n");
    ht_rewrite rw;
    assert_true(ht_rewrite_begin(&rw, g, 0));
    ht_rewrite_replace(&rw, value(g, "b"), value(g, "a"));
    ht_rewrite_replace(&rw, value(g, "a"), value(g, "x"));
    ht_rewrite_replace(&rw, value(g, "x"), value(g, "b")); /* a circle: ignored */
    ht_rewrite_replace(&rw, value(g, "c"), HT_NONE);       /* nothing to put there */
    ht_rewrite_keep(&rw, rw.old[2]);
    assert_int_equal(ht_rewrite_map(&rw, value(g, "b")).id, value(g, "x").id);
    assert_int_equal(ht_rewrite_end(&rw), HT_OK);
    assert_prints(g, "\nsegment s (%x f32[4]) -> (y=%c) {\n  %c = neg f32[4] (%x)\n}\n");
    ht_graph_free(g);
}

static void rewrite__of_a_failed_graph_changes_nothing(void **state)
{
    (void)state;
    ht_graph *g = parse("segment s (%x f32[4]) -> () {\n  %a = neg f32[4] (%x)\n}\n");
    ht_rewrite rw;
    ht_graph_fail(g, HT_EINVAL, "broken on purpose");
    assert_false(ht_rewrite_begin(&rw, g, 0));
    assert_int_equal(ht_rewrite_end(&rw), HT_EINVAL);
    assert_int_equal(g->segments[0].node_count, 1);
    ht_graph_free(g);
}

/* ---- copies ---- */

static const char original[] = "state %w f32[4] heading=parameters trained\n"
                               "state %k i64[] heading=scalars\n"
                               "\nsegment s (%x f32[4] init=normal(0,1)) -> (y=%y, k=%k, x=%x) {\n"
                               "  %t = tanh f32[4] (%x) region=1 at=\"h.0\"\n"
                               "  %v = slice f32[2]{%t, 2, [1]} (%t) start=[2]\n"
                               "  %0 = random_normal bf16[4] (%k, %k, %k) site=\"a\" role=update no_merge\n"
                               "  %y = add bf16[4] (%t, %0) role=bwd_act region=1 from=%t was=0x0000000000000001\n"
                               "  store %w = %t role=update\n"
                               "}\n";

static void segment_copy__is_the_segment_under_another_name(void **state)
{
    (void)state;
    char *copy, *at;
    ht_graph *g = parse(original);
    ht_val *map;
    /* What the builder stands in must not leak into the copy. */
    ht_scope_push(g, "elsewhere");
    g->role = HT_ROLE_UPDATE;
    g->segment = 0;
    uint32_t to = ht_segment_copy(g, 0, "twin", &map);
    ht_scope_pop(g);
    assert_int_equal(ht_graph_verify(g), HT_OK);
    assert_int_equal(to, 1);
    assert_int_equal(g->segment, 0);
    assert_string_equal(ht_value_of(g, map[value(g, "t").id])->name, "t");
    assert_int_equal(map[value(g, "w").id].id, 0); /* state is shared */
    assert_int_equal(ht_graph_print(&copy, g), HT_OK);
    at = strstr(copy, "\nsegment twin ");
    assert_non_null(at);
    const char *expected = strstr(original, "\nsegment s ");
    assert_string_equal(at + strlen("\nsegment twin "), expected + strlen("\nsegment s "));
    free(copy);
    free(map);
    ht_graph_free(g);
}

static void a_clone__shares_nothing_with_its_original(void **state)
{
    (void)state;
    ht_graph *g = parse(original), *clone;
    assert_int_equal(ht_graph_clone(&clone, g), HT_OK);
    uint64_t hash = graph_hash(g);
    assert_true(hash == graph_hash(clone));
    clone->segment = 0;
    ht_output(clone, "more", ht_neg(clone, value(clone, "t")));
    ht_state_add(clone, "another", HT_F32, 0, NULL, HT_ZERO);
    ht_segment_begin(clone, "extra");
    ht_input(clone, "x", HT_F32, 0, NULL);
    ht_graph_add_program_call(clone, "p", (ht_program_call){.segment = 0, .times = 1});
    assert_int_equal(ht_graph_verify(clone), HT_OK);
    assert_true(hash == graph_hash(g));
    assert_false(ht_graph_equal(g, clone));
    ht_graph_free(g); /* the clone owns its strings */
    char *after;
    assert_int_equal(ht_graph_print(&after, clone), HT_OK);
    assert_non_null(strstr(after, "at=\"h.0\""));
    assert_non_null(strstr(after, "site=\"a\""));
    free(after);
    ht_graph_free(clone);
}

static void random_graphs__clone_and_copy(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        ht_graph *g = random_graph_build(test_ctx, seed, 30), *clone;
        assert_non_null(g);
        assert_int_equal(ht_graph_clone(&clone, g), HT_OK);
        assert_true(ht_graph_equal(g, clone));
        uint32_t to = ht_segment_copy(clone, 0, "twin", NULL);
        assert_int_equal(ht_graph_verify(clone), HT_OK);
        assert_int_equal(clone->segments[to].node_count, g->segments[0].node_count);
        assert_true(model_hash(g) == model_hash(clone));
        ht_graph_free(g);
        ht_graph_free(clone);
    }
}

/* ---- the model hash ---- */

static uint64_t hash_of_text(const char *text)
{
    ht_graph *g = parse(text);
    uint64_t hash = model_hash(g);
    ht_graph_free(g);
    return hash;
}

#define MODEL(state_type, body)                                                                                        \
    "state %w " state_type " heading=parameters\nsegment forward (%x f32[4], %i i64[4]) -> (y=%y) {\n" body "\n}\n"

static const char model[] = MODEL("f32[4]", "%0 = mul f32[4] (%x, %w)\n%y = sub f32[4] (%0, %x)");

/* The same model, as the system may write it. */
static const char *const same_models[] = {
    MODEL("bf16[4]", "%0 = mul f32[4] (%x, %w)\n%y = sub f32[4] (%0, %x)"),
    MODEL("f32[4]", "%h = mul bf16[4] (%x, %w) role=bwd_act region=2 no_merge at=\"a\"\n%y = sub f32[4] (%h, %x)"),
    MODEL("f32[4]", "%0 = mul f32[4] (%w, %x)\n%y = sub f32[4] (%0, %x)"),
    MODEL("f32[4]",
          "%c = cast bf16[4] (%w)\n%0 = mul f32[4] (%x, %c)\n%1 = cast f16[4] (%0)\n%y = sub f32[4] (%1, %x)"),
    MODEL("f32[4]", "%c = copy f32[4] (%x)\n%0 = mul f32[4] (%c, %w)\n%y = sub f32[4] (%0, %c)"),
    MODEL("f32[4]", "%d = exp f32[4] (%x)\n%0 = mul f32[4] (%x, %w)\n%1 = mul f32[4] (%x, %w) no_merge\n"
                    "%y = sub f32[4] (%1, %x)"),
    "state %w f32[4] heading=masters\nstate %w.half bf16[4] heading=weights derived\n"
    "segment derive () -> () {\n%0 = cast bf16[4] (%w)\nstore %w.half = %0\n}\n"
    "segment micro_first (%x f32[4], %i i64[4]) -> (y=%y) {\n"
    "%0 = mul bf16[4] (%x, %w.half)\n%y = sub f32[4] (%0, %x)\n}\n",
};

/* Another model. */
static const char *const other_models[] = {
    MODEL("f32[4]", "%0 = mul f32[4] (%x, %w)\n%y = sub f32[4] (%x, %0)"),
    MODEL("f32[4]", "%0 = add f32[4] (%x, %w)\n%y = sub f32[4] (%0, %x)"),
    MODEL("f32[4]", "%0 = mul f32[4] (%x, %x)\n%y = sub f32[4] (%0, %x)"),
    MODEL("f32[4]", "%0 = mul f32[4] (%x, %w)\n%1 = clip f32[4] (%0) high=1\n%y = sub f32[4] (%1, %x)"),
    MODEL("f32[4]", "%0 = mul f32[4] (%x, %w)\n%1 = clip f32[4] (%0) high=2\n%y = sub f32[4] (%1, %x)"),
    MODEL("f32[4]", "%0 = mul f32[4] (%x, %w)\n%1 = cast i32[4] (%0)\n%2 = cast f32[4] (%1)\n%y = sub f32[4] (%2, %x)"),
    MODEL("f32[4]", "%0 = mul f32[4] (%x, %w)\n%1 = cast u8[4] (%0)\n%2 = cast f32[4] (%1)\n%y = sub f32[4] (%2, %x)"),
    "state %u f32[4] heading=parameters\nsegment forward (%x f32[4], %i i64[4]) -> (y=%y) {\n"
    "%0 = mul f32[4] (%x, %u)\n%y = sub f32[4] (%0, %x)\n}\n",
    "state %w f32[4] heading=parameters\nsegment forward (%x f32[4], %i i64[4]) -> (z=%y) {\n"
    "%0 = mul f32[4] (%x, %w)\n%y = sub f32[4] (%0, %x)\n}\n",
    "state %w f32[5] heading=parameters\nsegment forward (%x f32[5], %i i64[4]) -> (y=%y) {\n"
    "%0 = mul f32[5] (%x, %w)\n%y = sub f32[5] (%0, %x)\n}\n",
};

static void model_hash__does_not_see_the_system(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof same_models / sizeof same_models[0]; i++)
        if (hash_of_text(model) != hash_of_text(same_models[i])) fail_msg("another hash:\n%s", same_models[i]);
}

static void model_hash__sees_the_model(void **state)
{
    (void)state;
    enum { COUNT = sizeof other_models / sizeof other_models[0] };
    for (size_t i = 0; i < COUNT; i++) {
        if (hash_of_text(model) == hash_of_text(other_models[i])) fail_msg("the same hash:\n%s", other_models[i]);
        for (size_t k = i + 1; k < COUNT; k++)
            if (hash_of_text(other_models[i]) == hash_of_text(other_models[k]))
                fail_msg("the same hash:\n%s\n%s", other_models[i], other_models[k]);
    }
}

static void model_hash__ignores_the_order_of_outputs_and_unused_parts(void **state)
{
    (void)state;
    assert_true(
        hash_of_text("segment forward (%x f32[2]) -> (a=%a, b=%b) {\n%a = neg (%x)\n%b = exp (%x)\n}") ==
        hash_of_text("segment forward (%x f32[2], %z f32[9]) -> (b=%b, a=%a) {\n%b = exp (%x)\n%a = neg (%x)\n}"));
    assert_true(hash_of_text("segment forward (%x f32[2]) -> (a=%a, b=%b) {\n%a = neg (%x)\n%b = exp (%x)\n}") !=
                hash_of_text("segment forward (%x f32[2]) -> (a=%b, b=%a) {\n%a = neg (%x)\n%b = exp (%x)\n}"));
    assert_true(hash_of_text("segment other () -> () {}") == 0);
}

/* ---- segment hashes ---- */

#define STEP(stored, update)                                                                                           \
    "state %w f32[4] heading=masters\nstate %g f32[4] heading=gradients\n"                                             \
    "state %w.half bf16[4] heading=weights derived\n"                                                                  \
    "segment micro_first (%x f32[4]) -> (loss=%y) {\n%y = mul f32[4] (%x, %w)\n" stored "\n}\n"                        \
    "segment update () -> () {\n" update "\n}\nprogram train { micro_first update }\n"

static const char step[] = STEP("store %g = %x", "%0 = sub f32[4] (%w, %g)\nstore %w = %0");

/* One line each: is the step that was hashed still what this text computes? */
static ht_status check_step(const char *text)
{
    ht_graph *before = parse(step), *after = parse(text);
    ht_step_hashes hashes;
    assert_int_equal(ht_step_hashes_take(&hashes, before), HT_OK);
    ht_status status = ht_step_hashes_check(&hashes, after, "a test");
    ht_step_hashes_free(&hashes);
    ht_graph_free(before);
    ht_graph_free(after);
    return status;
}

static void step_hashes__do_not_see_the_system(void **state)
{
    (void)state;
    assert_int_equal(check_step(step), HT_OK);
    assert_int_equal(check_step(STEP("%c = cast bf16[4] (%x)\n%d = cast f32[4] (%c)\nstore %g = %d",
                                     "%0 = sub f32[4] (%w, %g)\nstore %w = %0")),
                     HT_OK);
    assert_int_equal(check_step(STEP("store %g = %x", "%0 = sub f32[4] (%w, %g) region=1\n%1 = cast bf16[4] (%0)\n"
                                                      "store %w = %0\nstore %w.half = %1")),
                     HT_OK);
    assert_int_equal(
        check_step(STEP("%d = exp f32[4] (%x)\nstore %g = %x", "%0 = sub f32[4] (%w, %g) no_merge\nstore %w = %0")),
        HT_OK);
    assert_int_equal(
        check_step(STEP("store %g = %x", "%0 = sub f32[4] (%w, %g)\nstore %w = %0") "segment more () -> () "
                                                                                    "{\n}\n"),
        HT_OK);
}

static void step_hashes__see_what_is_stored_and_called(void **state)
{
    (void)state;
    assert_int_equal(check_step(STEP("store %g = %y", "%0 = sub f32[4] (%w, %g)\nstore %w = %0")), HT_EVERIFY);
    assert_string_equal(ht_context_message(test_ctx), "a test changed what segment 'micro_first' computes");
    assert_int_equal(check_step(STEP("", "%0 = sub f32[4] (%w, %g)\nstore %w = %0")), HT_EVERIFY);
    assert_int_equal(check_step(STEP("store %g = %x", "%0 = add f32[4] (%w, %g)\nstore %w = %0")), HT_EVERIFY);
    assert_string_equal(ht_context_message(test_ctx), "a test changed what segment 'update' computes");
    assert_int_equal(check_step(STEP("store %g = %x", "%0 = sub f32[4] (%w, %g)\nstore %g = %0")), HT_EVERIFY);
    assert_int_equal(
        check_step(STEP("store %g = %x", "%0 = sub f32[4] (%w, %g)\nstore %w = %0") "program other { update "
                                                                                    "}\n"),
        HT_EVERIFY);
    assert_string_equal(ht_context_message(test_ctx), "a test changed what programs call");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(liveness__is_the_last_use_through_views_and_outputs),
        cmocka_unit_test(rewrite__replaces_in_nodes_views_and_outputs),
        cmocka_unit_test(rewrite__follows_a_replacement_that_was_replaced),
        cmocka_unit_test(rewrite__of_a_failed_graph_changes_nothing),
        cmocka_unit_test(segment_copy__is_the_segment_under_another_name),
        cmocka_unit_test(a_clone__shares_nothing_with_its_original),
        cmocka_unit_test(random_graphs__clone_and_copy),
        cmocka_unit_test(model_hash__does_not_see_the_system),
        cmocka_unit_test(model_hash__sees_the_model),
        cmocka_unit_test(model_hash__ignores_the_order_of_outputs_and_unused_parts),
        cmocka_unit_test(step_hashes__do_not_see_the_system),
        cmocka_unit_test(step_hashes__see_what_is_stored_and_called),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
