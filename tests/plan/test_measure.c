/* measure: what passes are told about the memory of the plan that a graph would get. */
#include <string.h>

#include "half_modes.h"
#include "hashes.h"

static void must_ok(ht_context *ctx, ht_status status)
{
    if (status != HT_OK) fail_msg("%s", ht_context_message(ctx));
}

/* ---- against plans ---- */

/* Measures after every pass; the last one is what planning starts from. */
typedef struct watcher {
    ht_plan_request request;
    ht_pass_observer observer;
    ht_graph *last;
    ht_memory_profile profile;
} watcher;

static ht_status measure_after(void *arg, const ht_pass *pass, const ht_graph *g)
{
    watcher *w = arg;
    const ht_pass_env env = ht_plan_pass_env(&w->request);
    (void)pass;
    ht_memory_profile_free(&w->profile);
    ht_graph_free(w->last);
    HT_TRY(ht_graph_clone(&w->last, g));
    return env.measure(env.measure_arg, NULL, g, &w->profile);
}

static int64_t sum_of_lives(const watcher *w, const ht_segment *s, int space, size_t time)
{
    int64_t bytes = 0;
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &w->last->nodes[s->nodes[at]];
        for (uint32_t v = n->out; v < n->out + n->n_out; v++) {
            const ht_value_life *life = &w->profile.lives[v];
            if (life->bytes && (int)life->space == space && life->first <= time && time <= life->last)
                bytes += life->bytes;
        }
    }
    return bytes;
}

static int64_t workspace_bytes(const ht_plan *plan, const ht_instr *instr)
{
    const ht_call *call = instr->call;
    if (instr->fused && instr->fused->gemm) call = instr->fused->gemm;
    if (instr->fused && instr->fused->fold) call = instr->fused->fold;
    int64_t bytes = instr->kernel->workspace ? instr->kernel->workspace(call, &plan->target) : 0;
    if (bytes && plan->canary) bytes += HT_CANARY_BYTES;
    return (bytes + HT_PLAN_ALIGN - 1) / HT_PLAN_ALIGN * HT_PLAN_ALIGN;
}

/* What is alive beside the values of the measured graph: workspaces, and copies that layout put in. */
static void check_times(const watcher *w, const ht_plan *plan, size_t segment)
{
    const ht_segment_memory *memory = &w->profile.segments[segment];
    const ht_plan_segment *planned = &plan->segments[segment];
    for (int space = 0; space < HT_SPACE_COUNT; space++) {
        int64_t most = 0;
        for (size_t t = 0; t < memory->time_count; t++) {
            int64_t live = memory->live_bytes[space][t];
            int64_t own = sum_of_lives(w, &w->last->segments[segment], space, t);
            if (live > most) most = live;
            assert_true(own <= live);
            if (space == HT_SPACE_MAIN) assert_true(own + workspace_bytes(plan, &planned->instrs[t]) <= live);
        }
        assert_int_equal(most, memory->peak_bytes[space]);
    }
}

/* An instruction is that of the node that measure names. */
static void check_nodes(const watcher *w, const ht_plan *plan, size_t segment)
{
    const ht_segment *s = &w->last->segments[segment];
    for (size_t at = 0; at < s->node_count; at++) {
        uint32_t time = w->profile.time[s->nodes[at]];
        if (time == HT_NO_INSTRUCTION) continue;
        assert_true(time < plan->segments[segment].instr_count);
        const ht_op *op = w->last->nodes[s->nodes[at]].op;
        const char *want = op == &ht_op_store ? "copy" : op->name;
        assert_string_equal(plan->segments[segment].instrs[time].call->op->name, want);
    }
}

static void compare(const watcher *w, const ht_plan *plan)
{
    assert_int_equal(w->profile.segment_count, plan->segment_count);
    for (int space = 0; space < HT_SPACE_COUNT; space++) {
        assert_int_equal(w->profile.state_bytes[space], plan->area_bytes[space][HT_AREA_STATE]);
        assert_int_equal(w->profile.slot_bytes[space], ht_plan_space_bytes(plan, (ht_space)space, HT_AREA_INPUT) +
                                                           ht_plan_space_bytes(plan, (ht_space)space, HT_AREA_OUTPUT));
    }
    for (size_t s = 0; s < plan->segment_count; s++) {
        const ht_segment_memory *memory = &w->profile.segments[s];
        assert_int_equal(memory->time_count, plan->segments[s].instr_count);
        for (int space = 0; space < HT_SPACE_COUNT; space++) {
            assert_int_equal(memory->peak_bytes[space], plan->segments[s].live_bytes[space]);
            assert_int_equal(memory->transient_bytes[space], plan->segments[s].transient_bytes[space]);
        }
        check_times(w, plan, s);
        if (w->request.no_fusion) check_nodes(w, plan, s);
    }
}

/* Plans a graph and compares what was measured before with what came out. */
static void plan_and_compare(ht_context *ctx, const ht_graph *g, const ht_pass_options *options, bool no_fusion)
{
    ht_target target;
    ht_plan *plan;
    watcher w = {.request = {.target = &target, .options = options, .no_fusion = no_fusion}};
    w.observer = (ht_pass_observer){measure_after, &w};
    ht_target_here(ctx, &target);
    ht_plan_request observed = w.request;
    observed.observer = &w.observer;
    must_ok(ctx, ht_plan_build(&plan, g, &observed));
    compare(&w, plan);
    ht_plan_free(plan);
    ht_graph_free(w.last);
    ht_memory_profile_free(&w.profile);
}

static void measure__agrees_with_the_plans_of_all_models_in_all_precisions(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++) {
        model_fixture model;
        ht_model_request request = small[i].request;
        request.training = true;
        assert_int_equal(model_graph(&model, small[i].type, small[i].json, request, 2), HT_OK);
        must_ok(model.ctx, ht_graph_train(model.g, NULL));
        ht_pass_options options = ht_pass_options_standard();
        plan_and_compare(model.ctx, model.g, &options, false);
        plan_and_compare(model.ctx, model.g, &options, true);
        for (size_t m = 0; m < MODES; m++) {
            const ht_train_setting precision = {"precision", modes[m].precision};
            size_t count = 0;
            if (!is_tried(i, m)) continue;
            while (count < MAX_SETTINGS && modes[m].settings[count].key) count++;
            options = ht_pass_options_standard();
            must_ok(model.ctx, ht_pass_options_read(model.ctx, &options, HT_STAGE_PLAN, 1, &precision));
            must_ok(model.ctx, ht_pass_options_read(model.ctx, &options, HT_STAGE_PLAN, count, modes[m].settings));
            plan_and_compare(model.ctx, model.g, &options, false);
        }
        model_stop(&model);
    }
}

/* ---- by hand ---- */

static ht_graph *parse(const char *text)
{
    ht_graph *g = NULL;
    must_ok(test_ctx, ht_graph_parse(&g, test_ctx, "test", text, strlen(text)));
    return g;
}

typedef struct seen {
    ht_memory_profile profile;
} seen;

static seen *seeing; /* a pass has no argument of its own */

static ht_status look_run(ht_graph *g, const ht_pass_env *env)
{
    assert_non_null(env->measure);
    return env->measure(env->measure_arg, NULL, g, &seeing->profile);
}

static const ht_pass look = {.name = "look", .help = "", .system = true, .run = look_run};

/* Measures as a pass does, without canaries' help: those of a debug build are taken off. */
static void look_at(ht_graph *g, seen *s)
{
    ht_target target;
    ht_pass_options options = ht_pass_options_standard();
    const ht_plan_request request = {.target = &target, .options = &options};
    const ht_pass_env env = ht_plan_pass_env(&request);
    ht_target_here(test_ctx, &target);
    seeing = s;
    must_ok(test_ctx, ht_pass_run(g, &look, &env));
}

static int64_t plain(int64_t bytes, int64_t buffers)
{
    return ht_debug_build() ? bytes + buffers * HT_CANARY_BYTES : bytes;
}

static void measure__tells_a_pass_what_is_alive_when(void **state)
{
    (void)state;
    /* a lives until its second reader; c is made over b; the output is in its slot. */
    ht_graph *g = parse("state %w f32[64] heading=parameters\n"
                        "segment forward (%x f32[64]) -> (y=%5) {\n"
                        "  %a = softmax f32[64] (%x)\n"
                        "  %b = softmax f32[64] (%a)\n"
                        "  %c = tanh f32[64] (%b)\n"
                        "  %4 = mul f32[64] (%c, %a)\n"
                        "  %5 = add f32[64] (%4, %w)\n"
                        "}\n");
    seen s;
    look_at(g, &s);
    const ht_segment_memory *memory = &s.profile.segments[0];
    const int64_t one = plain(256, 1);
    const int64_t want[] = {one, 2 * one, 2 * one, 2 * one, one};
    assert_int_equal(memory->time_count, 5);
    for (size_t t = 0; t < 5; t++) assert_int_equal(memory->live_bytes[HT_SPACE_MAIN][t], want[t]);
    assert_int_equal(memory->peak_bytes[HT_SPACE_MAIN], 2 * one);
    const ht_segment *segment = &g->segments[0];
    static const struct {
        uint32_t first, last;
    } lives[] = {{0, 3}, {1, 1}, {2, 2}, {3, 4}};
    for (size_t at = 0; at < 4; at++) {
        const ht_value_life *life = &s.profile.lives[g->nodes[segment->nodes[at]].out];
        assert_int_equal(life->bytes, one);
        assert_int_equal(life->first, lives[at].first);
        assert_int_equal(life->last, lives[at].last);
        assert_int_equal(s.profile.time[segment->nodes[at]], at);
    }
    assert_int_equal(s.profile.lives[g->nodes[segment->nodes[4]].out].bytes, 0);
    assert_int_equal(s.profile.state_bytes[HT_SPACE_MAIN], plain(256, 1));
    assert_int_equal(s.profile.slot_bytes[HT_SPACE_MAIN], plain(512, 2));
    ht_memory_profile_free(&s.profile);
    ht_graph_free(g);
}

static void measure__leaves_its_graph_as_it_is(void **state)
{
    (void)state;
    ht_graph *g = parse("segment forward (%x f32[4,8]) -> (y=%2) {\n"
                        "  %0 = permute f32[8,4] (%x) order=[1,0]\n"
                        "  %1 = reshape f32[32] (%0)\n"
                        "  %2 = tanh f32[32] (%1)\n"
                        "}\n");
    seen s;
    uint64_t hash = graph_hash(g);
    size_t values = g->value_count;
    look_at(g, &s);
    assert_int_equal(graph_hash(g), hash);
    assert_int_equal(g->value_count, values);
    assert_int_equal(s.profile.time[g->segments[0].nodes[1]], HT_NO_INSTRUCTION);
    ht_memory_profile_free(&s.profile);
    ht_graph_free(g);
}

static void measure__of_a_graph_without_a_plan_fails(void **state)
{
    (void)state;
    ht_graph *g = parse("segment forward (%x f32[4]) -> (y=%0) {\n  %0 = neg f32[4] (%x)\n}\n"
                        "segment other (%x f32[5]) -> (y=%0) {\n  %0 = neg f32[5] (%x)\n}\n");
    ht_target target;
    ht_pass_options options = ht_pass_options_standard();
    const ht_plan_request request = {.target = &target, .options = &options};
    ht_memory_profile profile;
    ht_target_here(test_ctx, &target);
    assert_int_equal(ht_plan_measure(&request, NULL, g, &profile), HT_EINVAL);
    assert_null(profile.arena);
    ht_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(measure__agrees_with_the_plans_of_all_models_in_all_precisions),
        cmocka_unit_test_setup_teardown(measure__tells_a_pass_what_is_alive_when, context_setup, context_teardown),
        cmocka_unit_test_setup_teardown(measure__leaves_its_graph_as_it_is, context_setup, context_teardown),
        cmocka_unit_test_setup_teardown(measure__of_a_graph_without_a_plan_fails, context_setup, context_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
