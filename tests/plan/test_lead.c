/* When exchanges begin, from the order of a plan's instructions: sums of gradients before the backward pass has ended, and
 * what the update has gathered is waited for in the next step. */
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"
#include "session_fixture.h"

static const char model[] = "state %w1 f32[16,32] heading=parameters init=normal(0,0.3) trained\n"
                            "state %w2 f32[32,32] heading=parameters init=normal(0,0.3) trained\n"
                            "state %w3 f32[32,32] heading=parameters init=normal(0,0.3) trained\n"
                            "state %w4 f32[32,5] heading=parameters init=normal(0,0.3) trained\n"
                            "segment forward (%x f32[6,16], %label i32[6]) -> (loss=%loss) {\n"
                            "  %a = matmul f32[6,32] (%x, %w1)\n"
                            "  %b = tanh f32[6,32] (%a)\n"
                            "  %c = matmul f32[6,32] (%b, %w2)\n"
                            "  %d = tanh f32[6,32] (%c)\n"
                            "  %e = matmul f32[6,32] (%d, %w3)\n"
                            "  %f = tanh f32[6,32] (%e)\n"
                            "  %y = matmul f32[6,5] (%f, %w4)\n"
                            "  %loss, %lse = cross_entropy f32[], f32[6] (%y, %label)\n"
                            "}\n";

static ht_plan *plan_stage(int stage, int accumulate, const char *overlap)
{
    char stage_text[16], accumulate_text[16];
    snprintf(stage_text, sizeof stage_text, "%d", stage);
    snprintf(accumulate_text, sizeof accumulate_text, "%d", accumulate);
    const ht_train_setting training[] = {{"ranks", "2"}, {"accumulate", accumulate_text}};
    const ht_train_setting settings[] = {{"ranks", "2"},
                                         {"zero_persistent", "0"},
                                         {"zero_stage", stage_text},
                                         {"reduce_bucket", "900"},
                                         {"overlap", overlap}};
    ht_train_opts train = HT_TRAIN_OPTS;
    ht_plan_opts opts = HT_PLAN_OPTS;
    ht_graph *g;
    ht_plan *plan;
    train.settings = training;
    train.setting_count = 2;
    opts.settings = settings;
    opts.setting_count = sizeof settings / sizeof settings[0];
    context_must(test_ctx, ht_graph_parse(&g, test_ctx, "text", model, strlen(model)));
    context_must(test_ctx, ht_graph_train(g, &train));
    context_must(test_ctx, ht_plan_create(&plan, g, &opts));
    ht_graph_free(g);
    return plan;
}

static const ht_plan_segment *segment(const ht_plan *plan, const char *name)
{
    int index = ht_plan_segment_find(plan, name);
    if (index < 0) fail_msg("no segment %s", name);
    return &plan->segments[index];
}

static size_t count_exchanges(const ht_plan_segment *s, size_t end)
{
    size_t count = 0;
    for (size_t i = 0; i < end; i++) count += s->instrs[i].queue == HT_QUEUE_COMM;
    return count;
}

/* How many exchanges of the lead begin before a micro-batch has ended; the order in which they begin is that of the plan. */
static size_t count_early(const ht_plan *plan, const char *micro)
{
    const ht_plan_segment *exchange = segment(plan, "exchange"), *before = segment(plan, micro);
    uint32_t ready[64];
    size_t early = 0;
    assert_in_range(exchange->lead, 1, 64);
    ht_plan_lead_ready(exchange, before, ready);
    for (size_t i = 0; i < exchange->lead; i++) {
        assert_true(i == 0 || ready[i] >= ready[i - 1]);
        for (size_t k = ready[i]; k < before->instr_count; k++)
            assert_false(ht_plan_instrs_conflict(&exchange->instrs[i], &before->instrs[k]));
        early += exchange->instrs[i].queue == HT_QUEUE_COMM && ready[i] < before->instr_count;
    }
    return early;
}

/* Four buckets, of which the one that backward makes last can only follow it. */
static void lead__begins_before_the_backward_pass_has_ended(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 1; stage++)
        for (int accumulate = 1; accumulate <= 3; accumulate += 2) {
            ht_plan *plan = plan_stage(stage, accumulate, "1");
            const ht_plan_segment *exchange = segment(plan, "exchange");
            assert_true(count_exchanges(exchange, exchange->lead) >= 4);
            assert_true(count_early(plan, "micro_first") >= 2);
            if (accumulate > 1) assert_true(count_early(plan, "micro") >= 2);
            ht_plan_free(plan);
        }
}

/* Bytes that the lead works with are nobody else's while it is under way. */
static void lead__has_transients_of_its_own(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 1; stage++) {
        ht_plan *plan = plan_stage(stage, 1, "1");
        const ht_plan_segment *exchange = segment(plan, "exchange"), *micro = segment(plan, "micro_first");
        assert_true(exchange->buffer_count[HT_SPACE_MAIN] > 0);
        for (size_t i = 0; i < exchange->buffer_count[HT_SPACE_MAIN]; i++)
            assert_true(exchange->buffers[HT_SPACE_MAIN][i].offset >= micro->transient_bytes[HT_SPACE_MAIN]);
        ht_plan_free(plan);
    }
}

static void overlap_off__begins_nothing_early(void **state)
{
    (void)state;
    for (int stage = 0; stage <= 3; stage++) {
        ht_plan *plan = plan_stage(stage, 1, "0");
        assert_int_equal(segment(plan, "exchange")->lead, 0);
        for (size_t s = 0; s < plan->segment_count; s++) {
            const ht_plan_segment *at = &plan->segments[s];
            for (size_t i = 0; i < at->instr_count; i++) {
                if (at->instrs[i].queue != HT_QUEUE_COMM) continue;
                assert_true(i + 1 < at->instr_count);
                assert_int_equal(at->instrs[i + 1].wait, i + 1); /* it is waited for at once */
            }
        }
        ht_plan_free(plan);
    }
}

/* What the update has gathered is the next step's to wait for. */
static void update__leaves_its_gathers_as_a_tail(void **state)
{
    (void)state;
    for (int stage = 1; stage <= 2; stage++) {
        ht_plan *plan = plan_stage(stage, 1, "1");
        const ht_plan_segment *update = segment(plan, "update");
        size_t waits = 0;
        assert_true(update->tail < update->instr_count);
        for (size_t i = update->tail; i < update->instr_count; i++) {
            assert_int_not_equal(update->instrs[i].queue, HT_QUEUE_COMM);
            waits += update->instrs[i].wait && update->instrs[update->instrs[i].wait - 1].queue == HT_QUEUE_COMM;
        }
        assert_int_equal(waits, 4);
        assert_int_equal(update->instr_count - update->tail, waits); /* numbers of the step's record come before */
        const ht_plan_segment *micro = segment(plan, "micro_first");
        uint32_t needed[64];
        assert_in_range(micro->instr_count, 1, 64);
        ht_plan_tail_needed(update, micro, needed);
        assert_int_equal(needed[0], update->tail + 1); /* the first product needs its own weights alone */
        ht_plan_free(plan);
    }
}

/* From stage 2 on sums are exchanged in the micro-batch; in stage 3 parameters are gathered before they are needed, too. */
static void stages_2_and_3__exchange_beside_the_micro_batch(void **state)
{
    (void)state;
    for (int stage = 2; stage <= 3; stage++) {
        ht_plan *plan = plan_stage(stage, 1, "1");
        const ht_plan_segment *micro = segment(plan, "micro_first");
        size_t apart = 0, exchanges = count_exchanges(micro, micro->instr_count);
        for (size_t i = 0; i < micro->instr_count; i++) {
            uint32_t wait = micro->instrs[i].wait;
            apart += wait && micro->instrs[wait - 1].queue == HT_QUEUE_COMM && i > wait; /* something comes between */
        }
        assert_true(exchanges >= 4);
        assert_true(2 * apart > exchanges);
        ht_plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lead__begins_before_the_backward_pass_has_ended),
        cmocka_unit_test(lead__has_transients_of_its_own),
        cmocka_unit_test(overlap_off__begins_nothing_early),
        cmocka_unit_test(update__leaves_its_gathers_as_a_tail),
        cmocka_unit_test(stages_2_and_3__exchange_beside_the_micro_batch),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
