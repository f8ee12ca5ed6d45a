/* FLOPs of whole training steps, as exact integers: against formulas that are derived by hand, and against what PyTorch's
 * FlopCounterMode counts (tests/reference/make_flops.py). A multiply-add counts two. */
#include "model_fixture.h"

#include "plan/plan.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* By hand, as int64_t: every size here fits. */
typedef struct counted {
    int64_t forward, backward, masked;
} counted;

/* A linear layer of `rows` rows: y = x w forward; dx = dy wᵀ and dw = xᵀ dy backward. */
static void add_linear(counted *c, int64_t rows, int64_t in, int64_t out)
{
    c->forward += 2 * rows * in * out;
    c->backward += 4 * rows * in * out;
}

/* Forward the products q kᵀ and p v; backward the scores again, dp = dy vᵀ, dv = pᵀ dy, dq = ds k, dk = dsᵀ q: for each
 * pair of query and key, in all heads together `width` multiply-adds. The causal mask leaves T (T + 1) / 2 pairs. */
static void add_attention(counted *c, int64_t batch, int64_t queries, int64_t keys, int64_t width, bool causal)
{
    int64_t whole = batch * queries * keys, pairs = causal ? batch * queries * (queries + 1) / 2 : whole;
    c->forward += 2 * 2 * width * pairs;
    c->backward += 5 * 2 * width * pairs;
    c->masked += 7 * 2 * width * (whole - pairs);
}

/* ---- the models ---- */

typedef struct sizes {
    int64_t batch, length;
} sizes;

/* Each block: 3d, d, 4d and back to d; at the end the token table as head. */
static counted gpt2_by_hand(sizes s)
{
    const int64_t layers = 12, width = 768, vocabulary = 50257, rows = s.batch * s.length;
    counted c = {0};
    for (int64_t i = 0; i < layers; i++) {
        add_linear(&c, rows, width, 3 * width);
        add_attention(&c, s.batch, s.length, s.length, width, true);
        add_linear(&c, rows, width, width);
        add_linear(&c, rows, width, 4 * width);
        add_linear(&c, rows, 4 * width, width);
    }
    add_linear(&c, rows, width, vocabulary);
    return c;
}

/* Grouped-query attention: two of six heads have keys and values; three matrices in the feed-forward part. */
static counted llama_by_hand(sizes s)
{
    const int64_t layers = 6, width = 288, groups = 2, head = 48, inner = 768, vocabulary = 1000;
    const int64_t rows = s.batch * s.length;
    counted c = {0};
    for (int64_t i = 0; i < layers; i++) {
        add_linear(&c, rows, width, width);
        add_linear(&c, rows, width, groups * head);
        add_linear(&c, rows, width, groups * head);
        add_attention(&c, s.batch, s.length, s.length, width, true);
        add_linear(&c, rows, width, width);
        add_linear(&c, rows, width, inner);
        add_linear(&c, rows, width, inner);
        add_linear(&c, rows, inner, width);
    }
    add_linear(&c, rows, width, vocabulary);
    return c;
}

/* A convolution to `size` × `size` pixels: as a linear layer of so many rows, from kernel² · in to out. */
static void add_conv(counted *c, int64_t batch, int64_t size, int64_t in, int64_t out, int64_t kernel)
{
    add_linear(c, batch * size * size, kernel * kernel * in, out);
}

/* 224 pixels: 112 behind the stem, 56 behind its pool, then 56, 28, 14, 7 in the four stages. */
static counted resnet_by_hand(sizes s)
{
    static const struct {
        int64_t width, blocks, size;
    } stages[] = {{64, 3, 56}, {128, 4, 28}, {256, 6, 14}, {512, 3, 7}};
    counted c = {0};
    add_conv(&c, s.batch, 112, 3, 64, 7);
    c.backward /= 2; /* nobody asks for the gradient of the image */
    for (int64_t stage = 0, in = 64; stage < 4; stage++) {
        int64_t width = stages[stage].width, size = stages[stage].size;
        for (int64_t i = 0; i < stages[stage].blocks; i++, in = 4 * width) {
            bool first = i == 0;
            int64_t before = first && stage > 0 ? 2 * size : size; /* the stride is on the 3×3 convolution */
            add_conv(&c, s.batch, before, in, width, 1);
            add_conv(&c, s.batch, size, width, width, 3);
            add_conv(&c, s.batch, size, width, 4 * width, 1);
            if (first) add_conv(&c, s.batch, size, in, 4 * width, 1);
        }
    }
    add_linear(&c, s.batch, 2048, 1000);
    return c;
}

/* A layer of LSTM: four gates of each step read input and state. */
static void add_lstm(counted *c, int64_t batch, int64_t steps, int64_t in, int64_t hidden)
{
    add_linear(c, batch * steps, in + hidden, 4 * hidden);
}

/* Encoder, decoder, a learned matrix for the scores, attention over the source, both halves combined, the head. */
static counted seq2seq_by_hand(sizes s)
{
    const int64_t layers = 2, hidden = 64, vocabulary = 200, source = 11, rows = s.batch * s.length;
    counted c = {0};
    for (int64_t i = 0; i < layers; i++) {
        add_lstm(&c, s.batch, source, hidden, hidden);
        add_lstm(&c, s.batch, s.length, hidden, hidden);
    }
    add_linear(&c, rows, hidden, hidden);
    add_attention(&c, s.batch, s.length, source, hidden, false);
    add_linear(&c, rows, 2 * hidden, hidden);
    add_linear(&c, rows, hidden, vocabulary);
    return c;
}

static const struct {
    const char *type, *keys;
    ht_model_request request;
    counted (*by_hand)(sizes s);
    sizes like_torch, other; /* of make_flops.py; a batch of everyday size */
} models[] = {
    {"gpt2", "{}", {.task = HT_TASK_LM, .vocabulary = 50257}, gpt2_by_hand, {1, 128}, {8, 1024}},
    {"llama",
     "{\"num_key_value_heads\": 2}",
     {.task = HT_TASK_LM, .vocabulary = 1000},
     llama_by_hand,
     {2, 128},
     {3, 257}},
    {"resnet",
     "{\"depth\": 50}",
     {.task = HT_TASK_CLASS, .classes = 1000, .feature_rank = 3, .feature = {3, 224, 224}},
     resnet_by_hand,
     {1, 0},
     {32, 0}},
    {"seq2seq",
     "{\"hidden\": 64}",
     {.task = HT_TASK_PAIRS, .vocabulary = 200, .source_vocabulary = 300, .source_length = 11},
     seq2seq_by_hand,
     {4, 13},
     {5, 40}},
};
enum { MODELS = sizeof models / sizeof models[0] };

/* Plans a training step; no memory is taken for it. */
static ht_step_flops planned_flops(size_t at, sizes s, const char *precision, int64_t accumulate)
{
    model_fixture w;
    ht_model_request request = models[at].request;
    ht_train_opts train = HT_TRAIN_OPTS;
    ht_plan_opts opts = HT_PLAN_OPTS;
    request.batch = s.batch;
    request.length = s.length;
    request.training = true;
    opts.precision = precision;
    train.accumulate = accumulate;
    model_must(&w, model_graph(&w, models[at].type, models[at].keys, request, 1));
    model_must(&w, ht_graph_train(w.g, &train));
    model_must(&w, ht_plan_create(&w.plan, w.g, &opts));
    int program = ht_plan_program_find(w.plan, "train");
    assert_true(program >= 0);
    ht_step_flops flops = ht_plan_program_flops(w.plan, &w.plan->programs[program]);
    model_stop(&w);
    return flops;
}

static void check_count(const char *model, const char *what, double found, int64_t wanted)
{
    if ((int64_t)found != wanted || found != (double)wanted)
        fail_msg("%s: %s: %.1f FLOPs, not %" PRId64, model, what, found, wanted);
}

static void flops__of_a_step_are_those_of_the_formulas(void **state)
{
    (void)state;
    for (size_t at = 0; at < MODELS; at++) {
        counted wanted = models[at].by_hand(models[at].other);
        for (int half = 0; half < 2; half++) {
            int64_t times = 1 + half;
            ht_step_flops found = planned_flops(at, models[at].other, half ? "bf16" : "fp32", times);
            check_count(models[at].type, "forward", found.forward, times * wanted.forward);
            check_count(models[at].type, "backward", found.backward, times * wanted.backward);
            check_count(models[at].type, "masked", found.masked, times * wanted.masked);
            check_count(models[at].type, "update", found.update, 0);
            check_count(models[at].type, "recomputed", found.recomputed, 0);
            assert_true(found.other > 0 && found.other < found.forward);
        }
    }
}

static void flops__of_a_step_are_those_that_pytorch_counts(void **state)
{
    (void)state;
    char line[256], name[32];
    int64_t forward, backward;
    size_t compared = 0;
    FILE *file = fopen(HT_TEST_DIR "/reference/flops.tsv", "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%31s %" SCNd64 " %" SCNd64, name, &forward, &backward) != 3) continue;
        for (size_t at = 0; at < MODELS; at++) {
            if (strcmp(models[at].type, name) != 0) continue;
            ht_step_flops found = planned_flops(at, models[at].like_torch, "fp32", 1);
            /* It counts causal attention whole: of its seven products two are forward. */
            check_count(name, "forward", found.forward + found.masked * 2 / 7, forward);
            check_count(name, "backward", found.backward + found.masked * 5 / 7, backward);
            compared++;
        }
    }
    fclose(file);
    assert_int_equal(compared, MODELS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flops__of_a_step_are_those_of_the_formulas),
        cmocka_unit_test(flops__of_a_step_are_those_that_pytorch_counts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
