/* What the pass recompute chooses: against the best choice there is, and against what the formula says. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_fixture.h"
#include "pass/recompute_model.h"
#include "plan/plan.h"

enum { GRAPHS = 20, LONG_GRAPHS = 200, MOST_CANDIDATES = 20 };

static uint32_t seed_word;

static uint32_t draw(uint32_t below)
{
    seed_word = seed_word * 1664525u + 1013904223u;
    return (seed_word >> 8) % below;
}

/* ---- models ---- */

/* A chain of random layers with shortcuts, and widths that differ. */
static void build_random(ht_graph *g)
{
    enum { ROWS = 64, LAYERS = 7 };
    int64_t width = 32 + 16 * (int64_t)draw(8);
    char name[16];
    ht_segment_begin(g, "forward");
    ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){ROWS, width}), shortcut = HT_NONE;
    for (int i = 0; i < LAYERS; i++) {
        int64_t out = 32 + 16 * (int64_t)draw(8);
        snprintf(name, sizeof name, "%d", i);
        ht_scope_push(g, name);
        switch (draw(4)) {
        case 0: x = ht_gelu(g, x); break;
        case 1: x = ht_mul(g, ht_sigmoid(g, x), x); break;
        case 2: x = ht_softmax(g, x, 1); break;
        default:
            snprintf(name, sizeof name, "w%d", i);
            x = ht_matmul(g, x, ht_param(g, name, HT_F32, 2, (int64_t[]){width, out}, HT_NORMAL(0, 0.1)), NULL);
            shortcut = HT_NONE;
            width = out;
        }
        if (shortcut.id && draw(2)) x = ht_add(g, x, shortcut);
        if (!shortcut.id || draw(3) == 0) shortcut = x;
        ht_scope_pop(g);
    }
    ht_val w = ht_param(g, "w", HT_F32, 2, (int64_t[]){width, 8}, HT_NORMAL(0, 0.1));
    ht_val y = ht_matmul(g, x, w, NULL);
    ht_output(g, "loss", ht_sum(g, ht_mul(g, y, y), 0, NULL, false));
}

/* The graph as the pass is given it, and its memory. */
typedef struct before {
    ht_plan_request request;
    ht_graph *g;
    ht_memory_profile profile;
} before;

static ht_status keep_graph(void *arg, const ht_pass *pass, const ht_graph *g)
{
    before *b = arg;
    if (strcmp(pass->name, "regions") != 0) return HT_OK;
    ht_graph_free(b->g);
    HT_TRY(ht_graph_clone(&b->g, g));
    ht_memory_profile_free(&b->profile);
    return ht_plan_measure(&b->request, NULL, g, &b->profile);
}

static void open_before(before *b, ht_context *ctx, ht_graph *model, const ht_target *target,
                        const ht_pass_options *options)
{
    ht_plan *plan;
    const ht_pass_observer observer = {keep_graph, b};
    *b = (before){.request = {.target = target, .options = options}};
    ht_plan_request request = {.target = target, .options = options, .observer = &observer};
    context_must(ctx, ht_plan_build(&plan, model, &request));
    ht_plan_free(plan);
}

static void close_before(before *b)
{
    ht_graph_free(b->g);
    ht_memory_profile_free(&b->profile);
}

/* ---- the best choice ---- */

typedef struct best {
    ht_recompute_model *m;
    int64_t limit;
    bool dropped[MOST_CANDIDATES];
    double seconds; /* the least so far */
} best;

/* Candidates from `at` on are still open. With those before decided, what is dropped later only adds time. */
static void branch(best *b, size_t at)
{
    ht_recompute_outcome now = ht_recompute_try(b->m, b->dropped, b->limit);
    if (now.seconds >= b->seconds) return;
    if (now.peak_bytes <= b->limit) {
        b->seconds = now.seconds;
        return;
    }
    if (at == b->m->candidate_count) return;
    b->dropped[at] = true;
    branch(b, at + 1);
    b->dropped[at] = false;
    branch(b, at + 1);
}

/* At a few limits between the peak that there is and the lowest one. Returns how many could be met. */
static int check_limits(ht_recompute_model *m)
{
    bool dropped[MOST_CANDIDATES] = {false};
    int met = 0;
    int64_t most = ht_recompute_try(m, dropped, 0).peak_bytes;
    ht_recompute_choose(m, 1, dropped);
    int64_t least = ht_recompute_try(m, dropped, 0).peak_bytes;
    for (int i = 1; i <= 4; i++) {
        best b = {.m = m, .limit = most - (most - least) * i / 4, .seconds = 1e9};
        memset(dropped, 0, sizeof dropped);
        bool fits = ht_recompute_choose(m, b.limit, dropped);
        ht_recompute_outcome found = ht_recompute_try(m, dropped, b.limit);
        branch(&b, 0);
        assert_int_equal(fits, b.seconds < 1e9);
        if (!fits) continue;
        assert_true(found.peak_bytes <= b.limit);
        assert_true(found.seconds <= b.seconds * 1.03 + 1e-15);
        met++;
    }
    return met;
}

/* One random graph; returns how many limits were met. */
static int check_graph(ht_context *ctx, uint32_t seed, size_t *most)
{
    ht_graph *g;
    ht_target target;
    ht_pass_options options = ht_pass_options_standard();
    before b;
    ht_recompute_model m;
    seed_word = seed;
    context_must(ctx, ht_graph_create(&g, ctx));
    build_random(g);
    context_must(ctx, ht_graph_train(g, NULL));
    ht_target_here(ctx, &target);
    open_before(&b, ctx, g, &target, &options);
    uint32_t segment = (uint32_t)ht_segment_find(b.g, "micro_first");
    context_must(ctx, ht_recompute_model_open(&m, b.g, segment, &target, &b.profile));
    if (m.candidate_count > *most) *most = m.candidate_count;
    int met = m.candidate_count && m.candidate_count <= MOST_CANDIDATES ? check_limits(&m) : 0;
    ht_recompute_model_close(&m);
    close_before(&b);
    ht_graph_free(g);
    return met;
}

static void chooser__is_within_three_percent_of_the_best_choice(void **state)
{
    (void)state;
    int met = 0, graphs = getenv("HALFTONE_LONG") ? LONG_GRAPHS : GRAPHS;
    size_t most = 0;
    for (int i = 0; i < graphs; i++) met += check_graph(test_ctx, (uint32_t)(1000 + i), &most);
    assert_true(met > graphs);
    assert_true(most > 10);
}

/* ---- whole layers ---- */

enum { LENGTH = 32, BATCH = 4, WIDTH = 32 };

/* A gpt2 of so many layers with a policy; the caller stops it. */
static void start(model_fixture *w, int layers, const char *policy)
{
    char json[128];
    const ht_train_setting setting = {"recompute", policy};
    ht_plan_opts planning = HT_PLAN_OPTS;
    planning.settings = &setting;
    planning.setting_count = 1;
    snprintf(json, sizeof json, "{\"n_layer\": %d, \"n_head\": 2, \"n_embd\": %d}", layers, WIDTH);
    model_start_planned(
        w, "gpt2", json,
        (ht_model_request){.task = HT_TASK_LM, .batch = BATCH, .length = LENGTH, .vocabulary = 16, .training = true},
        NULL, &planning, 1);
}

static const ht_plan_segment *step_of(const model_fixture *w)
{
    return &w->plan->segments[ht_plan_segment_find(w->plan, "micro_first")];
}

/* *guard: bytes behind each value, where the build has canaries. */
static int64_t peak(int layers, const char *policy, int64_t *guard)
{
    model_fixture w;
    start(&w, layers, policy);
    int64_t bytes = step_of(&w)->live_bytes[HT_SPACE_MAIN];
    *guard = w.plan->canary ? HT_CANARY_BYTES : 0;
    model_stop(&w);
    return bytes;
}

/* What a layer more costs is its checkpoint: the stream that goes into it. */
static void all_layers__keep_what_goes_into_each_and_no_more(void **state)
{
    (void)state;
    int64_t checkpoint = (int64_t)BATCH * LENGTH * WIDTH * 4, guard;
    int64_t nine = peak(9, "all", &guard), six = peak(6, "all", &guard);
    assert_int_equal(nine - six, 3 * (checkpoint + guard));
    assert_true(peak(9, "none", &guard) - peak(6, "none", &guard) > 3 * 10 * checkpoint);
}

/* Forward once more at most, and that is a third of the whole; counted apart. */
static void all_layers__compute_forward_again_at_most(void **state)
{
    (void)state;
    model_fixture none, all;
    start(&none, 6, "none");
    start(&all, 6, "all");
    ht_cost kept = ht_plan_segment_cost(step_of(&none)), again = ht_plan_segment_cost(step_of(&all));
    assert_true(kept.dot_flops == again.dot_flops && kept.other_flops == again.other_flops);
    assert_true(kept.recomputed_flops == 0);
    assert_true(again.recomputed_flops > 0.15 * (kept.dot_flops + kept.other_flops));
    assert_true(again.recomputed_flops < 0.33 * (kept.dot_flops + kept.other_flops));
    assert_int_equal(none.plan->model_hash, all.plan->model_hash);
    model_stop(&none);
    model_stop(&all);
}

/* ---- marks ---- */

static ht_plan *plan_marked(ht_context *ctx, bool marked)
{
    enum { ROWS = 64, UNITS = 32 };
    ht_graph *g;
    ht_plan *plan;
    char name[16];
    context_must(ctx, ht_graph_create(&g, ctx));
    ht_segment_begin(g, "forward");
    ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){ROWS, UNITS});
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "w%d", i);
        ht_val w = ht_param(g, name, HT_F32, 2, (int64_t[]){UNITS, UNITS}, HT_NORMAL(0, 0.1));
        ht_val y = ht_gelu(g, ht_gelu(g, ht_gelu(g, ht_matmul(g, x, w, NULL))));
        if (marked) ht_checkpoint(g, x, y);
        x = y;
    }
    ht_output(g, "loss", ht_sum(g, ht_mul(g, x, x), 0, NULL, false));
    context_must(ctx, ht_graph_train(g, NULL));
    context_must(ctx, ht_plan_create(&plan, g, NULL));
    ht_graph_free(g);
    return plan;
}

static void checkpoint__saves_what_lies_between_two_values(void **state)
{
    (void)state;
    ht_plan *plain = plan_marked(test_ctx, false), *marked = plan_marked(test_ctx, true);
    assert_true(ht_plan_area_bytes(marked, HT_AREA_TRANSIENT) < ht_plan_area_bytes(plain, HT_AREA_TRANSIENT) / 2);
    ht_plan_free(plain);
    ht_plan_free(marked);
}

static void checkpoint__needs_a_way_from_the_first_value_to_the_second(void **state)
{
    (void)state;
    ht_graph *g;
    context_must(test_ctx, ht_graph_create(&g, test_ctx));
    ht_segment_begin(g, "forward");
    ht_val x = ht_input(g, "x", HT_F32, 1, (int64_t[]){4}), y = ht_tanh(g, ht_input(g, "y", HT_F32, 1, (int64_t[]){4}));
    ht_checkpoint(g, x, y);
    assert_int_equal(ht_graph_status(g), HT_EINVAL);
    assert_non_null(strstr(ht_context_message(test_ctx), "nothing leads from the first value to the second"));
    ht_graph_free(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chooser__is_within_three_percent_of_the_best_choice),
        cmocka_unit_test(all_layers__keep_what_goes_into_each_and_no_more),
        cmocka_unit_test(all_layers__compute_forward_again_at_most),
        cmocka_unit_test(checkpoint__saves_what_lies_between_two_values),
        cmocka_unit_test(checkpoint__needs_a_way_from_the_first_value_to_the_second),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
