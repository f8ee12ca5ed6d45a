/* What ranks hold, to the byte: the formulas of ZeRO's stages, and padding. */
#include <stdio.h>
#include <string.h>

#include "plan/plan.h"
#include "session_fixture.h"

/* Sizes that no number of ranks divides. */
enum { W1 = 13 * 7, B1 = 7, W2 = 7 * 5, B2 = 5, MATRICES = W1 + W2, VECTORS = B1 + B2, ALL = MATRICES + VECTORS };

static const char model[] = "state %w1 f32[13,7] heading=parameters init=normal(0,0.3) trained\n"
                            "state %b1 f32[7] heading=parameters trained\n"
                            "state %w2 f32[7,5] heading=parameters init=normal(0,0.3) trained\n"
                            "state %b2 f32[5] heading=parameters trained\n"
                            "segment forward (%x f32[6,13], %label i32[6]) -> (loss=%loss) {\n"
                            "  %z = matmul f32[6,7] (%x, %w1)\n"
                            "  %e = expand f32[6,7] (%b1)\n"
                            "  %a = add f32[6,7] (%z, %e)\n"
                            "  %t = tanh f32[6,7] (%a)\n"
                            "  %u = matmul f32[6,5] (%t, %w2)\n"
                            "  %f = expand f32[6,5] (%b2)\n"
                            "  %y = add f32[6,5] (%u, %f)\n"
                            "  %loss, %lse = cross_entropy f32[], f32[6] (%y, %label)\n"
                            "}\n";

typedef struct mode {
    const char *precision, *gradients;
    int64_t gradient_bytes;
    bool half;
} mode;

static const mode modes[] = {{"fp32", "f32", 4, false}, {"bf16", "f32", 4, true}, {"bf16", "half", 2, true}};

/* Of another optimiser, or with moments and masters in another space. */
static ht_plan *plan_other(const mode *m, int ranks, int rank, int stage, const char *bucket, const char *optimizer,
                           const char *space)
{
    char ranks_text[16], rank_text[16], stage_text[16];
    snprintf(ranks_text, sizeof ranks_text, "%d", ranks);
    snprintf(rank_text, sizeof rank_text, "%d", rank);
    snprintf(stage_text, sizeof stage_text, "%d", stage);
    const ht_train_setting training[] = {{"ranks", ranks_text}};
    const ht_train_setting settings[] = {
        {"ranks", ranks_text},     {"rank", rank_text},          {"zero_persistent", "0"},   {"zero_stage", stage_text},
        {"reduce_bucket", bucket}, {"offload_optimizer", space}, {"gradients", m->gradients}};
    ht_train_opts train = HT_TRAIN_OPTS;
    ht_plan_opts opts = HT_PLAN_OPTS;
    ht_graph *g;
    ht_plan *plan;
    train.settings = training;
    train.setting_count = 1;
    train.optimizer = optimizer;
    opts.precision = m->precision;
    opts.settings = settings;
    opts.setting_count = m->half ? 7 : 6;
    context_must(test_ctx, ht_graph_parse(&g, test_ctx, "text", model, strlen(model)));
    context_must(test_ctx, ht_graph_train(g, &train));
    context_must(test_ctx, ht_plan_create(&plan, g, &opts));
    ht_graph_free(g);
    return plan;
}

static ht_plan *plan_rank(const mode *m, int ranks, int rank, int stage, const char *bucket)
{
    return plan_other(m, ranks, rank, stage, bucket, "adamw", "none");
}

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

/* Every tensor is a bucket, and all are cut. */
static void expect_stage3(const ht_plan *plan, const mode *m, int ranks)
{
    int64_t to = 16 * ranks, matrices = round_up(W1, to) + round_up(W2, to), all = matrices;
    all += round_up(B1, to) + round_up(B2, to);
    const int64_t *bytes = plan->heading_bytes;
    assert_int_equal(bytes[m->half ? HT_HEADING_MASTERS : HT_HEADING_PARAMETERS], 4 * all / ranks);
    assert_int_equal(bytes[HT_HEADING_WEIGHTS], m->half ? 2 * matrices / ranks : 0);
    assert_int_equal(bytes[HT_HEADING_GRADIENTS], m->gradient_bytes * all / ranks);
    assert_int_equal(bytes[HT_HEADING_OPTIMIZER], 8 * all / ranks);
}

/* In one bucket for each class of tensors. */
static void expect_headings(const ht_plan *plan, const mode *m, int ranks, int stage)
{
    int64_t matrices = round_up(W1, 16) + round_up(W2, 16), vectors = round_up(B1, 16) + round_up(B2, 16);
    bool cut = ranks > 1 && stage > 0;
    int64_t moments = cut ? ranks : 1, gradients = cut && stage > 1 ? ranks : 1;
    const int64_t *bytes = plan->heading_bytes;
    if (cut && stage == 3) {
        expect_stage3(plan, m, ranks);
        return;
    }
    if (!m->half) {
        int64_t all = cut ? round_up(matrices + vectors, 16 * ranks) : matrices + vectors;
        assert_int_equal(bytes[HT_HEADING_PARAMETERS], 4 * all);
        assert_int_equal(bytes[HT_HEADING_GRADIENTS], 4 * all / gradients);
        assert_int_equal(bytes[HT_HEADING_OPTIMIZER], 8 * all / moments);
        return;
    }
    if (cut) matrices = round_up(matrices, 16 * ranks);
    if (cut) vectors = round_up(vectors, 16 * ranks);
    int64_t all = matrices + vectors;
    assert_int_equal(bytes[HT_HEADING_MASTERS], cut ? 4 * matrices / ranks : 4 * all);
    assert_int_equal(bytes[HT_HEADING_PARAMETERS], cut ? 4 * vectors : 0);
    assert_int_equal(bytes[HT_HEADING_WEIGHTS], 2 * (cut ? matrices : all));
    assert_int_equal(bytes[HT_HEADING_GRADIENTS], m->gradient_bytes * all / gradients);
    assert_int_equal(bytes[HT_HEADING_OPTIMIZER], 8 * all / moments);
}

/* Of all ranks together, without padding: what is whole counts once for each, what is cut once. */
static int64_t formula(const mode *m, int ranks, int stage)
{
    int64_t whole = 0, cut = 0, gradients = m->gradient_bytes * ALL, moments = 8 * ALL;
    *(stage > 2 ? &cut : &whole) += m->half ? 2 * MATRICES + 4 * VECTORS : 4 * ALL;
    if (m->half) *(stage > 0 ? &cut : &whole) += 4 * MATRICES;
    *(stage > 1 ? &cut : &whole) += gradients;
    *(stage > 0 ? &cut : &whole) += moments;
    return ranks * whole + cut;
}

static int64_t tensor_bytes(const ht_plan *plan)
{
    static const ht_heading headings[] = {HT_HEADING_PARAMETERS, HT_HEADING_MASTERS, HT_HEADING_WEIGHTS,
                                          HT_HEADING_GRADIENTS, HT_HEADING_OPTIMIZER};
    int64_t bytes = -ht_plan_padding_bytes(plan);
    for (size_t i = 0; i < sizeof headings / sizeof headings[0]; i++) bytes += plan->heading_bytes[headings[i]];
    return bytes;
}

static void zero__bytes_are_those_of_the_formulas_and_padding(void **state)
{
    static const int counts[] = {1, 2, 3, 4, 8};
    static const char *const buckets[] = {"500000000", "50"};
    (void)state;
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++)
        for (size_t n = 0; n < sizeof counts / sizeof counts[0]; n++)
            for (int stage = 0; stage <= 3; stage++)
                for (int b = 0; b < 2; b++) {
                    int64_t sum = 0, most = 0;
                    for (int rank = 0; rank < counts[n]; rank++) {
                        ht_plan *plan = plan_rank(&modes[m], counts[n], rank, stage, buckets[b]);
                        if (b == 0) expect_headings(plan, &modes[m], counts[n], stage);
                        sum += tensor_bytes(plan);
                        if (rank == 0) most = ht_plan_bytes(plan);
                        assert_int_equal(ht_plan_bytes(plan), most); /* all ranks hold the same */
                        ht_plan_free(plan);
                    }
                    if (sum != formula(&modes[m], counts[n], counts[n] == 1 ? 0 : stage))
                        fail_msg("%s, gradients %s, %d ranks, stage %d: %lld bytes, not %lld", modes[m].precision,
                                 modes[m].gradients, counts[n], stage, (long long)sum,
                                 (long long)formula(&modes[m], counts[n], counts[n] == 1 ? 0 : stage));
                }
}

/* A rule for whole tensors divides the same state, with a bucket and its padding for each. */
static void zero__bytes_of_lamb_are_those_of_the_formulas(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++)
        for (int ranks = 2; ranks <= 4; ranks++)
            for (int stage = 0; stage <= 3; stage++) {
                int64_t sum = 0;
                for (int rank = 0; rank < ranks; rank++) {
                    ht_plan *plan = plan_other(&modes[m], ranks, rank, stage, "500000000", "lamb", "none");
                    sum += tensor_bytes(plan);
                    ht_plan_free(plan);
                }
                assert_int_equal(sum, formula(&modes[m], ranks, stage));
            }
}

/* Moments and masters in a space. */
static int64_t moved_bytes(const ht_plan *plan, ht_space space)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        bool moves = slot->heading == HT_HEADING_OPTIMIZER || slot->heading == HT_HEADING_MASTERS;
        if (slot->kind == HT_SLOT_STATE && slot->owner == i && moves && slot->place.space == space)
            bytes += ht_type_bytes(&slot->type);
    }
    return bytes;
}

/* With an offload a rank has its pieces of moments and masters on the disk, and nothing else of them in memory. */
static void zero__offloads_the_pieces_of_a_rank(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++)
        for (int stage = 1; stage <= 3; stage++) {
            ht_plan *here = plan_rank(&modes[1], ranks, 1, stage, "500000000");
            ht_plan *there = plan_other(&modes[1], ranks, 1, stage, "500000000", "adamw", "disk");
            assert_int_equal(moved_bytes(there, HT_SPACE_DISK), moved_bytes(here, HT_SPACE_MAIN));
            assert_int_equal(moved_bytes(there, HT_SPACE_MAIN), 0);
            ht_plan_free(here);
            ht_plan_free(there);
        }
}

static int64_t transient_bytes(const ht_plan *plan, const char *segment)
{
    int index = ht_plan_segment_find(plan, segment);
    return index < 0 ? 0 : plan->segments[index].transient_bytes[HT_SPACE_MAIN];
}

/* A rank draws its part of each tensor alone, where it stays; besides a single number, where the part begins. Half copies
 * are made from parts, tensor by tensor. */
static void zero__first_values_take_no_more_than_a_rank_keeps(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof modes / sizeof modes[0]; m++)
        for (int stage = 1; stage <= 3; stage++) {
            ht_plan *plan = plan_rank(&modes[m], 4, 1, stage, "50");
            int64_t canaries = plan->canary ? 4 * HT_PLAN_ALIGN : 0;
            assert_in_range(transient_bytes(plan, "init"), 0, 64 + canaries);
            assert_in_range(transient_bytes(plan, "derive"), 0,
                            (stage == 3 ? 0 : 2 * round_up(W1, 64) + 64) + canaries);
            ht_plan_free(plan);
        }
}

/* Bytes of the messages of a step, by op. */
static int64_t exchanged(const ht_plan *plan, const char *op, int64_t *calls)
{
    ht_exchange_table table = ht_plan_exchange_table(plan);
    int64_t bytes = 0;
    *calls = 0;
    for (size_t i = 0; i < table.count; i++) {
        if (strcmp(table.rows[i].op, op) != 0 || table.rows[i].largest <= 8) continue;
        bytes += table.rows[i].bytes;
        *calls += table.rows[i].calls;
    }
    return bytes;
}

static void zero__messages_are_gradients_and_what_the_model_reads(void **state)
{
    (void)state;
    int64_t calls;
    ht_plan *plan = plan_rank(&modes[0], 2, 0, 0, "500000000");
    assert_int_equal(exchanged(plan, "all_reduce", &calls), 4 * 176);
    assert_int_equal(calls, 1);
    ht_plan_free(plan);
    for (int stage = 1; stage <= 2; stage++) {
        plan = plan_rank(&modes[1], 2, 0, stage, "500000000");
        assert_int_equal(exchanged(plan, "reduce_scatter", &calls), 4 * (160 + 32));
        assert_int_equal(calls, 2);
        assert_int_equal(exchanged(plan, "all_gather", &calls), 2 * 160 + 4 * 32);
        assert_int_equal(calls, 2);
        ht_plan_free(plan);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(zero__bytes_are_those_of_the_formulas_and_padding),
        cmocka_unit_test(zero__bytes_of_lamb_are_those_of_the_formulas),
        cmocka_unit_test(zero__first_values_take_no_more_than_a_rank_keeps),
        cmocka_unit_test(zero__offloads_the_pieces_of_a_rank),
        cmocka_unit_test(zero__messages_are_gradients_and_what_the_model_reads),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
