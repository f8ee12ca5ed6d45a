/* Properties of the passes that clean a graph up, on random graphs: they keep values, the rules of the IR and the model
 * hash, a second run changes nothing, and regions can run as one kernel each. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context_fixture.h"
#include "pass/pass.h"
#include "random_graph.h"

enum { GRAPHS = 300 };

static size_t size_of(uint64_t seed)
{
    return seed % 10 == 0 ? 200 : 5 + seed % 40;
}

static ht_graph *make_graph(uint64_t seed)
{
    ht_graph *g = random_graph_build(test_ctx, seed, size_of(seed));
    if (!g) fail_msg("seed %llu: %s", (unsigned long long)seed, ht_context_message(test_ctx));
    return g;
}

static void run_pass(ht_graph *g, const char *name, uint64_t seed)
{
    const ht_pass *pass = ht_pass_find(name);
    assert_non_null(pass);
    if (ht_pass_run(g, pass, NULL) != HT_OK)
        fail_msg("seed %llu: %s", (unsigned long long)seed, ht_context_message(test_ctx));
}

static ht_graph *parse(const char *text)
{
    ht_graph *g;
    if (ht_graph_parse(&g, test_ctx, "test", text, strlen(text)) != HT_OK)
        fail_msg("%s\n%s", ht_context_message(test_ctx), text);
    return g;
}

/* ---- values ---- */

static int64_t elems_of(const ht_graph *g, ht_val v)
{
    return ht_type_elems(ht_type_of(g, v));
}

static void compare_arrays(const double *a, const double *b, int64_t n, const char *what, uint64_t seed)
{
    for (int64_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof a[i]) != 0 && !(a[i] != a[i] && b[i] != b[i]))
            fail_msg("seed %llu: %s[%lld] is %.17g, was %.17g", (unsigned long long)seed, what, (long long)i, b[i],
                     a[i]);
}

/* Every output and every state after one run of every segment, bit for bit. */
static void compare_runs(ht_graph *a, ht_graph *b, uint64_t seed)
{
    ht_reference *ra, *rb;
    assert_int_equal(ht_reference_create(&ra, a, true, 7), HT_OK);
    assert_int_equal(ht_reference_create(&rb, b, true, 7), HT_OK);
    for (uint32_t s = 0; s < a->segment_count; s++) {
        assert_int_equal(ht_reference_run(ra, s), HT_OK);
        assert_int_equal(ht_reference_run(rb, s), HT_OK);
        for (size_t i = 0; i < a->segments[s].output_count; i++) {
            const ht_named *out = &a->segments[s].outputs[i];
            assert_string_equal(out->name, b->segments[s].outputs[i].name);
            compare_arrays(ht_reference_output(ra, out->name), ht_reference_output(rb, out->name),
                           elems_of(a, out->value), out->name, seed);
        }
        for (size_t i = 0; i < a->state_count; i++)
            compare_arrays(ht_reference_value(ra, a->states[i].value), ht_reference_value(rb, b->states[i].value),
                           elems_of(a, a->states[i].value), ht_value_of(a, a->states[i].value)->name, seed);
    }
    ht_reference_free(ra);
    ht_reference_free(rb);
}

static void check_values_stay(const char *const *passes)
{
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        ht_graph *g = make_graph(seed), *before;
        assert_int_equal(ht_graph_clone(&before, g), HT_OK);
        for (size_t i = 0; passes[i]; i++) run_pass(g, passes[i], seed);
        compare_runs(before, g, seed);
        ht_graph_free(before);
        ht_graph_free(g);
    }
}

static void dce__keeps_values(void **state)
{
    (void)state;
    check_values_stay((const char *const[]){"dce", NULL});
}

static void cse__keeps_values(void **state)
{
    (void)state;
    check_values_stay((const char *const[]){"cse", NULL});
}

static void fold__keeps_values(void **state)
{
    (void)state;
    check_values_stay((const char *const[]){"fold", NULL});
}

static void all__keep_values_together(void **state)
{
    (void)state;
    check_values_stay((const char *const[]){"fold", "cse", "dce", "regions", "cse", "fold", "dce", NULL});
}

/* ---- twice is once ---- */

static void check_idempotent(const char *name)
{
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        ht_graph *g = make_graph(seed), *once;
        run_pass(g, name, seed);
        assert_int_equal(ht_graph_clone(&once, g), HT_OK);
        run_pass(g, name, seed);
        if (!ht_graph_equal(once, g))
            fail_msg("seed %llu: a second %s changes the graph", (unsigned long long)seed, name);
        ht_graph_free(once);
        ht_graph_free(g);
    }
}

static void a_second_run__changes_nothing(void **state)
{
    (void)state;
    check_idempotent("dce");
    check_idempotent("cse");
    check_idempotent("fold");
    check_idempotent("regions");
}

/* ---- dce ---- */

static void dce__leaves_only_what_is_used(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < GRAPHS; seed++) {
        ht_graph *g = make_graph(seed);
        run_pass(g, "dce", seed);
        for (uint32_t s = 0; s < g->segment_count; s++) {
            uint32_t *last = ht_liveness(g, s);
            assert_non_null(last);
            for (size_t i = 0; i < g->segments[s].node_count; i++) {
                const ht_node *n = &g->nodes[g->segments[s].nodes[i]];
                bool used = n->op->flags & HT_OP_EFFECT;
                for (size_t o = 0; o < n->n_out; o++) used |= last[n->out + o] != UINT32_MAX;
                assert_true(used);
            }
            free(last);
        }
        ht_graph_free(g);
    }
}

/* ---- cse ---- */

static size_t count_op(const ht_graph *g, const char *op)
{
    size_t count = 0;
    for (size_t s = 0; s < g->segment_count; s++)
        for (size_t i = 0; i < g->segments[s].node_count; i++)
            count += strcmp(g->nodes[g->segments[s].nodes[i]].op->name, op) == 0;
    return count;
}

static void cse__takes_linear_time_on_equal_and_on_different_nodes(void **state)
{
    (void)state;
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, test_ctx), HT_OK);
    ht_val x = ht_input(g, "x", HT_F32, 1, (int64_t[]){4}), chain = x;
    for (int i = 0; i < 20000; i++) {
        ht_tanh(g, x);
        chain = ht_neg(g, chain);
    }
    ht_output(g, "y", chain);
    run_pass(g, "cse", 0);
    assert_int_equal(count_op(g, "tanh"), 1);
    assert_int_equal(count_op(g, "neg"), 20000);
    ht_graph_free(g);
}

/* ---- fold ---- */

static void fold__of_a_large_fill_computes_one_element(void **state)
{
    (void)state;
    ht_graph *g = parse("segment forward () -> (y=%4) {\n"
                        "  %0 = fill f32[100000,10000] () value=2\n"
                        "  %1 = exp f32[100000,10000] (%0)\n"
                        "  %2 = reshape f32[1000000000] (%1)\n"
                        "  %3 = mul f32[1000000000] (%2, %2)\n"
                        "  %4 = cast bf16[1000000000] (%3)\n"
                        "}\n");
    run_pass(g, "fold", 0);
    run_pass(g, "dce", 0);
    assert_int_equal(g->segments[0].node_count, 2);
    const ht_node *n = &g->nodes[g->segments[0].nodes[0]];
    assert_string_equal(n->op->name, "fill");
    assert_int_equal(ht_type_elems(ht_type_of(g, ht_node_out(n, 0))), 1);
    assert_string_equal(g->nodes[g->segments[0].nodes[1]].op->name, "expand");
    double e2 = ht_round_to(HT_F32, fn_exp(2.0));
    assert_true(n->attr[0].f == ht_round_to(HT_BF16, ht_round_to(HT_F32, e2 * e2)));
    ht_graph_free(g);
}

static void fold__leaves_nan_and_large_integers_to_the_run(void **state)
{
    (void)state;
    ht_graph *g = parse("segment forward () -> (a=%2, b=%4) {\n"
                        "  %0 = fill f32[] () value=-1\n"
                        "  %1 = fill i64[] () value=9007199254740992\n"
                        "  %2 = sqrt f32[] (%0)\n"
                        "  %3 = fill i64[] () value=1\n"
                        "  %4 = add i64[] (%1, %3)\n"
                        "}\n");
    run_pass(g, "fold", 0);
    assert_int_equal(count_op(g, "sqrt"), 1);
    assert_int_equal(count_op(g, "add"), 1);
    ht_graph_free(g);
}

static void fold__never_reads_a_state_behind_its_store(void **state)
{
    (void)state;
    ht_graph *g = parse("state %w f32[4] heading=parameters\n"
                        "state %old f32[4] heading=parameters\n"
                        "segment update (%x f32[4]) -> () {\n"
                        "  %0 = cast f32[4] (%w) role=update\n"
                        "  store %w = %x role=update\n"
                        "  store %old = %0 role=update\n"
                        "}\n");
    run_pass(g, "fold", 0);
    assert_int_equal(count_op(g, "cast"), 1);
    ht_graph_free(g);
}

/* ---- regions ---- */

/* Regions and lone nodes as points, edges between them; can they be put in order? */
static bool has_order(const ht_graph *g, const ht_segment *s)
{
    size_t n = s->node_count;
    uint32_t *point = calloc(n + 1, sizeof *point), *place = calloc(g->value_count, sizeof *place);
    uint32_t *first = calloc(g->node_count + 1, sizeof *first); /* by region number: a place + 1 */
    uint8_t *edge = calloc(n * n + 1, 1);
    bool *gone = calloc(n + 1, sizeof *gone);
    assert_true(point && place && first && edge && gone);
    for (uint32_t i = 0; i < n; i++) {
        const ht_node *node = &g->nodes[s->nodes[i]];
        point[i] = i;
        if (node->region) {
            assert_true(node->region <= g->node_count);
            if (!first[node->region]) first[node->region] = i + 1;
            point[i] = first[node->region] - 1;
        }
        for (size_t o = 0; o < node->n_out; o++) place[node->out + o] = i + 1;
        for (size_t k = 0; k < node->n_in; k++) {
            uint32_t from = place[ht_node_in(g, node, k).id];
            if (from && point[from - 1] != point[i]) edge[point[from - 1] * n + point[i]] = 1;
        }
    }
    size_t left = 0;
    for (uint32_t i = 0; i < n; i++) left += point[i] == i;
    for (bool moved = true; moved && left;) {
        moved = false;
        for (uint32_t i = 0; i < n; i++) {
            if (point[i] != i || gone[i]) continue;
            bool waits = false;
            for (uint32_t k = 0; k < n && !waits; k++) waits = edge[k * n + i] && !gone[k];
            if (waits) continue;
            gone[i] = moved = true;
            left--;
        }
    }
    free(point);
    free(place);
    free(first);
    free(edge);
    free(gone);
    return left == 0;
}

/* One memory, one side of the model, one dot, at least two nodes. */
static void check_members(const ht_graph *g, const ht_segment *s, uint64_t seed)
{
    for (size_t i = 0; i < s->node_count; i++) {
        const ht_node *a = &g->nodes[s->nodes[i]];
        size_t dots = 0, members = 0;
        if (!a->region) continue;
        for (size_t k = 0; k < s->node_count; k++) {
            const ht_node *b = &g->nodes[s->nodes[k]];
            if (b->region != a->region) continue;
            members++;
            dots += b->op->fuse == HT_FUSE_DOT;
            bool same = ht_type_of(g, ht_node_out(a, 0))->space == ht_type_of(g, ht_node_out(b, 0))->space &&
                        ht_node_is_forward(a) == ht_node_is_forward(b);
            if (!same) fail_msg("seed %llu: region %u mixes memories or roles", (unsigned long long)seed, a->region);
        }
        assert_true(dots <= 1 && members >= 2);
    }
}

static void regions__never_wait_for_each_other_in_a_circle(void **state)
{
    (void)state;
    size_t marked = 0, all = 0;
    for (uint64_t seed = 0; seed < 3 * GRAPHS; seed++) {
        ht_graph *g = make_graph(seed);
        if (seed % 2) run_pass(g, "cse", seed);
        run_pass(g, "regions", seed);
        for (size_t s = 0; s < g->segment_count; s++) {
            if (!has_order(g, &g->segments[s]))
                fail_msg("seed %llu: regions wait in a circle", (unsigned long long)seed);
            check_members(g, &g->segments[s], seed);
            all += g->segments[s].node_count;
            for (size_t i = 0; i < g->segments[s].node_count; i++)
                marked += g->nodes[g->segments[s].nodes[i]].region != 0;
        }
        /* Cleaning up behind it must not break what it promised. */
        run_pass(g, "fold", seed);
        run_pass(g, "cse", seed);
        run_pass(g, "dce", seed);
        for (size_t s = 0; s < g->segment_count; s++)
            if (!has_order(g, &g->segments[s])) fail_msg("seed %llu: a circle after cse", (unsigned long long)seed);
        ht_graph_free(g);
    }
    assert_true(marked * 3 > all); /* and it is not that there are none */
}

static void regions__a_crossed_pair_stays_apart(void **state)
{
    (void)state;
    /* a feeds b through an op that cannot be fused, c feeds d: {a, d} and {b, c} would wait for each other. */
    ht_graph *g = parse("segment forward (%x f32[4,6], %z f32[4,6], %i i64[4,6]) -> (y=%5, u=%4) {\n"
                        "  %0 = tanh f32[4,6] (%x)\n"
                        "  %1 = gather f32[4,6] (%0, %i) axis=0\n"
                        "  %2 = tanh f32[4,6] (%z)\n"
                        "  %3 = gather f32[4,6] (%2, %i) axis=0\n"
                        "  %4 = add f32[4,6] (%1, %2)\n"
                        "  %5 = add f32[4,6] (%3, %0)\n"
                        "}\n");
    run_pass(g, "regions", 0);
    assert_true(has_order(g, &g->segments[0]));
    ht_graph_free(g);
}

/* ---- all passes, all at once ---- */

static void every_pass__has_a_name_a_line_of_help_and_is_found(void **state)
{
    (void)state;
    for (const ht_pipeline_row *row = ht_pipeline; row->pass; row++) {
        const ht_pass *pass = row->pass;
        assert_true(pass->name[0] && pass->help[0] && pass->run);
        assert_ptr_equal(ht_pass_find(pass->name), pass);
        assert_null(strchr(pass->help, '\n'));
        for (const ht_pass_settings *table = pass->settings; table && table->keys; table++)
            for (const ht_setting_key *key = table->keys; key->name; key++)
                assert_true(key->help[0] && !strchr(key->help, '\n') && !key->read == (key->kind != HT_SETTING_CUSTOM));
    }
    assert_null(ht_pass_find("no_such_pass"));
}

static ht_status broken_run(ht_graph *g, const ht_pass_env *env)
{
    (void)env;
    g->segments[0].node_count = 0; /* outputs lose their makers */
    return HT_OK;
}

static ht_status changing_run(ht_graph *g, const ht_pass_env *env)
{
    (void)env;
    ht_val y = g->segments[0].outputs[0].value;
    g->segment = 0;
    g->segments[0].outputs[0].value = ht_tanh(g, y);
    return g->status;
}

static void the_pipeline__refuses_a_pass_that_breaks_or_changes_the_model(void **state)
{
    (void)state;
    static const char text[] = "segment forward (%x f32[4]) -> (y=%0) {\n  %0 = neg f32[4] (%x)\n}\n";
    ht_pass broken = {.name = "broken", .help = "", .system = true, .run = broken_run};
    ht_pass changing = {.name = "changing", .help = "", .system = true, .run = changing_run};
    ht_graph *g = parse(text);
    assert_int_equal(ht_pass_run(g, &broken, NULL), HT_EVERIFY);
    assert_non_null(strstr(ht_context_message(test_ctx), "after pass broken"));
    ht_graph_free(g);
    g = parse(text);
    assert_int_equal(ht_pass_run(g, &changing, NULL), HT_EVERIFY);
    assert_non_null(strstr(ht_context_message(test_ctx), "pass changing changed the model"));
    changing.system = false;
    assert_int_equal(ht_pass_run(g, &changing, NULL), HT_OK);
    ht_graph_free(g);
}

/* Negates what the last segment stores. */
static ht_status negating_run(ht_graph *g, const ht_pass_env *env)
{
    (void)env;
    ht_rewrite rw;
    if (ht_rewrite_begin(&rw, g, (uint32_t)g->segment_count - 1)) {
        for (size_t i = 0; i < rw.count; i++) {
            const ht_node n = g->nodes[rw.old[i]];
            if (n.op == &ht_op_store) g->operands[n.in + 1] = ht_neg(g, ht_rewrite_map(&rw, ht_node_in(g, &n, 1)));
            ht_rewrite_keep(&rw, rw.old[i]);
        }
    }
    return ht_rewrite_end(&rw);
}

/* forward stays, and with it the model hash: only the hash of the other segment tells. */
static void the_pipeline__refuses_a_system_pass_that_changes_another_segment(void **state)
{
    (void)state;
    static const char *const names[] = {"micro", "update", "eval"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char text[256], want[128];
        snprintf(text, sizeof text,
                 "state %%w f32[4]\nsegment forward (%%x f32[4]) -> (y=%%0) {\n  %%0 = neg f32[4] (%%x)\n}\n"
                 "segment %s () -> () {\n  %%1 = exp f32[4] (%%w)\n  store %%w = %%1\n}\n",
                 names[i]);
        snprintf(want, sizeof want, "pass negating changed what segment '%s' computes", names[i]);
        ht_pass negating = {.name = "negating", .help = "", .system = true, .keeps_step = true, .run = negating_run};
        ht_graph *g = parse(text);
        assert_int_equal(ht_pass_run(g, &negating, NULL), HT_EVERIFY);
        assert_string_equal(ht_context_message(test_ctx), want);
        negating.keeps_step = false;
        assert_int_equal(ht_pass_run(g, &negating, NULL), HT_OK);
        ht_graph_free(g);
    }
}

static ht_status note_name(void *arg, const ht_pass *pass, const ht_graph *g)
{
    (void)g;
    strcat(strcat(arg, " "), pass->name);
    return HT_OK;
}

static void runs(ht_stage stage, const ht_pass_options *options, const char *want)
{
    static const char text[] = "state %w f32[4] heading=parameters trained\n"
                               "segment forward (%x f32[4]) -> (loss=%1) {\n"
                               "  %0 = mul f32[4] (%x, %w)\n  %1 = sum f32[] (%0)\n}\n";
    char names[256] = "";
    ht_pass_observer observer = {note_name, names};
    ht_graph *g = parse(text);
    assert_int_equal(ht_pipeline_run(g, stage, &(ht_pass_env){.options = options}, &observer), HT_OK);
    assert_string_equal(names, want);
    ht_graph_free(g);
}

static void the_pipeline__runs_the_rows_of_a_stage_whose_condition_holds(void **state)
{
    (void)state;
    ht_pass_options options = ht_pass_options_standard();
    runs(HT_STAGE_TRAIN, &options, "");
    runs(HT_STAGE_PLAN, &options, " init fold cse dce regions");
    options.training = true;
    options.precision.precision = HT_PRECISION_BF16;
    runs(HT_STAGE_TRAIN, &options, " autodiff optimizer");
    options.train.accumulate = 2;
    runs(HT_STAGE_TRAIN, &options, " micro_batches autodiff optimizer");
    runs(HT_STAGE_PLAN, &options, " init fold cse dce regions autocast cse dce regions");
}

static void settings__become_values_of_the_stage_that_knows_them(void **state)
{
    (void)state;
    ht_pass_options options = ht_pass_options_standard();
    const ht_train_setting given[] = {{"beta2", "0.5"},  {"optimizer", "lamb"}, {"precision", "fp16"},
                                      {"beta2", "0.25"}, {"masters", "0"},      {"scale_window", "7"},
                                      {"nobody", "1"},   {"other_rate", "0.5"}};
    assert_int_equal(ht_pass_options_read(test_ctx, &options, HT_STAGE_ANY, sizeof given / sizeof given[0], given),
                     HT_OK);
    assert_string_equal(options.train.optimizer->name, "lamb");
    assert_true(options.train.hyper.beta2 == 0.25 && options.train.hyper.max_coeff == 10);
    assert_true(options.train.scaling.window == 7 && options.precision.precision == HT_PRECISION_FP16);
    assert_false(options.precision.masters);
    assert_true(options.train.hyper.rest_lr_scale == 0.5); /* by its deprecated name */
    assert_int_equal(ht_pass_options_read(test_ctx, &options, HT_STAGE_PLAN, 1, given), HT_EINVAL);
    assert_string_equal(ht_context_message(test_ctx), "setting beta2: planning has no such setting");
    assert_int_equal(ht_pass_options_read(test_ctx, &options, HT_STAGE_TRAIN, 1, &given[2]), HT_EINVAL);
    assert_string_equal(ht_context_message(test_ctx), "setting precision: training has no such setting");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dce__keeps_values),
        cmocka_unit_test(cse__keeps_values),
        cmocka_unit_test(fold__keeps_values),
        cmocka_unit_test(all__keep_values_together),
        cmocka_unit_test(a_second_run__changes_nothing),
        cmocka_unit_test(dce__leaves_only_what_is_used),
        cmocka_unit_test(cse__takes_linear_time_on_equal_and_on_different_nodes),
        cmocka_unit_test(fold__of_a_large_fill_computes_one_element),
        cmocka_unit_test(fold__leaves_nan_and_large_integers_to_the_run),
        cmocka_unit_test(fold__never_reads_a_state_behind_its_store),
        cmocka_unit_test(regions__never_wait_for_each_other_in_a_circle),
        cmocka_unit_test(regions__a_crossed_pair_stays_apart),
        cmocka_unit_test(every_pass__has_a_name_a_line_of_help_and_is_found),
        cmocka_unit_test(the_pipeline__refuses_a_pass_that_breaks_or_changes_the_model),
        cmocka_unit_test(the_pipeline__refuses_a_system_pass_that_changes_another_segment),
        cmocka_unit_test(the_pipeline__runs_the_rows_of_a_stage_whose_condition_holds),
        cmocka_unit_test(settings__become_values_of_the_stage_that_knows_them),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
