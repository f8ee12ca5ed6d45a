/* Models of one's own: lists of layers, text graphs, plugins. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "model_fixture.h"

#define SEQUENCES .batch = 3, .length = 8, .vocabulary = 13
#define IMAGES    .batch = 4, .classes = 5, .feature_rank = 3, .feature = {3, 16, 16}
#define ROWS      .batch = 5, .classes = 3, .feature_rank = 1, .feature = {4}

static const ht_model_request lm = {.task = HT_TASK_LM, SEQUENCES}, image = {.task = HT_TASK_CLASS, IMAGES},
                              rows = {.task = HT_TASK_CLASS, ROWS}, numbers = {.task = HT_TASK_REGRESSION, ROWS};

static float train_20(model_fixture *w, float *first)
{
    float last = 0;
    for (int step = 0; step < 20; step++) {
        model_must(w, ht_session_run(w->s, "train"));
        int64_t count = model_read_i64(w, "count");
        last = model_read_f32(w, "loss") / (float)count;
        assert_true(isfinite(last));
        if (step == 0) *first = last;
        model_write_f32(w, "loss_grad", 1 / (float)count);
    }
    return last;
}

static void assert_trains(const char *type, const char *json, ht_model_request request)
{
    model_fixture w;
    float first = 0;
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.lr = 1e-2;
    opts.clip = 1;
    model_start(&w, type, json, request, &opts);
    float last = train_20(&w, &first);
    if (!(last < 0.97f * first)) print_error("%s: %g to %g\n", json, first, last);
    assert_true(last < 0.97f * first);
    model_must(&w, ht_session_run(w.s, "eval"));
    assert_true(isfinite(model_read_f32(&w, "loss")));
    model_stop(&w);
}

/* ---- sequential ---- */

static void sequential__every_layer_trains(void **state)
{
    (void)state;
    assert_trains(
        "sequential",
        "{\"layers\": [{\"type\": \"linear\", \"out\": 8}, \"relu\", {\"type\": \"dropout\", \"p\": 0.1},"
        " {\"type\": \"layernorm\"}, {\"type\": \"residual\", \"layers\": [{\"type\": \"linear\", \"out\": 8},"
        " \"gelu\", \"rmsnorm\"]}, \"linear\"]}",
        numbers);
    assert_trains("sequential",
                  "{\"layers\": [{\"type\": \"conv2d\", \"out\": 6, \"padding\": 1, \"bias\": false}, \"batchnorm\","
                  " \"silu\", \"max_pool\", {\"type\": \"conv2d\", \"out\": 6, \"groups\": 2}, \"tanh\","
                  " {\"type\": \"avg_pool\", \"window\": 3, \"stride\": 1, \"padding\": 1}, \"flatten\", \"sigmoid\","
                  " \"linear\"]}",
                  image);
    assert_trains("sequential",
                  "{\"layers\": [{\"type\": \"conv2d\", \"out\": 6}, \"gelu_tanh\", \"global_avg_pool\", \"linear\"]}",
                  image);
    assert_trains(
        "sequential",
        "{\"layers\": [{\"type\": \"embedding\", \"out\": 8}, {\"type\": \"lstm\", \"hidden\": 12, \"layers\":"
        " 2}, \"linear\"]}",
        lm);
    assert_trains("sequential",
                  "{\"layers\": [{\"type\": \"embedding\", \"out\": 8, \"std\": 0.1}, \"positions\","
                  " {\"type\": \"residual\", \"layers\": [\"layernorm\", {\"type\": \"attention\", \"heads\": 2}]},"
                  " \"layernorm\", \"linear\"]}",
                  lm);
    ht_model_request sentence = lm;
    sentence.task = HT_TASK_CLASS;
    sentence.classes = 3;
    assert_trains("sequential",
                  "{\"layers\": [{\"type\": \"embedding\", \"out\": 8}, {\"type\": \"lstm\", \"hidden\": 8}, \"last\","
                  " \"linear\"]}",
                  sentence);
    assert_trains("sequential", "{\"layers\": [{\"type\": \"embedding\", \"out\": 8}, \"mean\", \"linear\"]}",
                  sentence);
    assert_trains(
        "sequential",
        "{\"layers\": [{\"type\": \"embedding\", \"out\": 8}, {\"type\": \"lstm\", \"hidden\": 8, \"layers\": 2,"
        " \"dropout\": 0.1, \"bidirectional\": true}, \"reverse\", \"last\", \"linear\"]}",
        sentence);
}

static float loss_with_tokens(const model_fixture *w, const int32_t *tokens, size_t bytes)
{
    model_must(w, ht_session_write(w->s, "tokens", tokens, bytes));
    model_must(w, ht_session_run(w->s, "eval"));
    return model_read_f32(w, "loss");
}

/* The tokens of one place anew: they count before the end of a sentence, and not behind it. */
static void assert_reads_no_padding(const char *json)
{
    enum { BATCH = 3, LENGTH = 8 };
    static const int32_t lengths[BATCH] = {1, 5, LENGTH};
    ht_model_request sentence = lm;
    model_fixture w;
    int32_t tokens[BATCH * LENGTH] = {0};
    sentence.task = HT_TASK_CLASS;
    sentence.classes = 3;
    model_start_plain(&w, "sequential", json, sentence);
    model_must(&w, ht_session_write(w.s, "length", lengths, sizeof lengths));
    for (int i = 0; i < BATCH * LENGTH; i++) tokens[i] = i * 5 % 13;
    float before = loss_with_tokens(&w, tokens, sizeof tokens);
    for (int row = 0; row < BATCH; row++)
        for (int i = lengths[row]; i < LENGTH; i++) tokens[row * LENGTH + i] = 12 - i;
    assert_true(loss_with_tokens(&w, tokens, sizeof tokens) == before);
    for (int row = 0; row < BATCH; row++) {
        int32_t *end = &tokens[row * LENGTH + lengths[row] - 1], old = *end;
        *end = (old + 1) % 13;
        assert_true(loss_with_tokens(&w, tokens, sizeof tokens) != before);
        *end = old;
    }
    model_stop(&w);
}

static void sequential__classifiers_read_no_padding(void **state)
{
    (void)state;
    assert_reads_no_padding("{\"layers\": [{\"type\": \"embedding\", \"out\": 8}, \"last\", \"linear\"]}");
    assert_reads_no_padding("{\"layers\": [{\"type\": \"embedding\", \"out\": 8}, \"mean\", \"linear\"]}");
    assert_reads_no_padding("{\"layers\": [{\"type\": \"embedding\", \"out\": 8}, {\"type\": \"lstm\", \"hidden\": 8,"
                            " \"layers\": 2}, \"last\", \"linear\"]}");
    assert_reads_no_padding("{\"layers\": [{\"type\": \"embedding\", \"out\": 8}, {\"type\": \"lstm\", \"hidden\": 8},"
                            " \"mean\", \"linear\"]}");
    assert_reads_no_padding("{\"layers\": [{\"type\": \"embedding\", \"out\": 8}, {\"type\": \"attention\", \"causal\":"
                            " false}, \"mean\", \"linear\"]}");
}

/* The loss of an LSTM classifier with the last layer's weights as they are told: [3, 2·H]. */
static float both_ways_loss(const model_fixture *w, const int32_t *tokens, size_t bytes, const float *last,
                            size_t count)
{
    model_must(w, ht_session_write(w->s, "3.weight", last, count * sizeof *last));
    return loss_with_tokens(w, tokens, bytes);
}

/* With the same weights in both directions, a sentence that reads the same both ways gives the same mean over both: they
 * cancel where the last layer subtracts one from the other. */
static void sequential__a_bidirectional_lstm_reads_from_both_ends(void **state)
{
    (void)state;
    enum { BATCH = 3, LENGTH = 8, HIDDEN = 4, CLASSES = 3, WIDTH = 6 };
    static const int32_t lengths[BATCH] = {1, 5, LENGTH};
    static const char *const names[] = {"weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"};
    float last[CLASSES * 2 * HIDDEN], zero[CLASSES * 2 * HIDDEN] = {0}, copy[4 * HIDDEN * WIDTH];
    int32_t tokens[BATCH * LENGTH];
    ht_model_request sentence = lm;
    model_fixture w;
    sentence.task = HT_TASK_CLASS;
    sentence.classes = CLASSES;
    model_start_plain(&w, "sequential",
                      "{\"layers\": [{\"type\": \"embedding\", \"out\": 6}, {\"type\": \"lstm\", \"hidden\": 4,"
                      " \"bidirectional\": true}, \"mean\", \"linear\"]}",
                      sentence);
    for (int i = 0; i < 4; i++) {
        char from[32], to[48];
        snprintf(from, sizeof from, "1.%s", names[i]);
        snprintf(to, sizeof to, "1.%s_reverse", names[i]);
        size_t bytes = (size_t)ht_type_bytes(ht_type_of(w.g, ht_find(w.g, from)));
        model_must(&w, ht_session_read(w.s, from, copy, bytes));
        model_must(&w, ht_session_write(w.s, to, copy, bytes));
    }
    for (int i = 0; i < CLASSES * 2 * HIDDEN; i++)
        last[i] = (i % (2 * HIDDEN) < HIDDEN ? 1.f : -1.f) * (float)(1 + i % HIDDEN + i / (2 * HIDDEN));
    model_must(&w, ht_session_write(w.s, "length", lengths, sizeof lengths));
    for (int row = 0; row < BATCH; row++)
        for (int i = 0; i < LENGTH; i++) {
            int mirror = i < lengths[row] - 1 - i ? i : lengths[row] - 1 - i;
            tokens[row * LENGTH + i] = i < lengths[row] ? mirror + row : 11;
        }
    float nothing = both_ways_loss(&w, tokens, sizeof tokens, zero, sizeof zero / sizeof *zero);
    assert_float_equal(both_ways_loss(&w, tokens, sizeof tokens, last, sizeof last / sizeof *last), nothing, 1e-5);
    tokens[LENGTH] = 9; /* the first of the second sentence */
    assert_true(fabsf(loss_with_tokens(&w, tokens, sizeof tokens) - nothing) > 1e-3f);
    model_stop(&w);
}

/* What is reversed in the graph, and what is written in reverse. */
static void sequential__reverse_keeps_the_padding_behind(void **state)
{
    (void)state;
    enum { BATCH = 3, LENGTH = 8 };
    static const int32_t lengths[BATCH] = {1, 5, LENGTH};
    int32_t tokens[BATCH * LENGTH], turned[BATCH * LENGTH];
    ht_model_request sentence = lm;
    model_fixture plain, reversed;
    sentence.task = HT_TASK_CLASS;
    sentence.classes = 3;
    model_start_plain(
        &reversed, "sequential",
        "{\"layers\": [{\"type\": \"embedding\", \"out\": 6}, \"reverse\", {\"type\": \"lstm\", \"hidden\": 4},"
        " \"last\", \"linear\"]}",
        sentence);
    model_start_plain(
        &plain, "sequential",
        "{\"layers\": [{\"type\": \"embedding\", \"out\": 6}, {\"type\": \"dropout\"}, {\"type\": \"lstm\","
        " \"hidden\": 4}, \"last\", \"linear\"]}",
        sentence);
    for (int row = 0; row < BATCH; row++)
        for (int i = 0; i < LENGTH; i++) tokens[row * LENGTH + i] = i < lengths[row] ? (row + i * 3) % 11 : 12;
    for (int row = 0; row < BATCH; row++)
        for (int i = 0; i < LENGTH; i++)
            turned[row * LENGTH + i] = tokens[row * LENGTH + (i < lengths[row] ? lengths[row] - 1 - i : i)];
    model_must(&plain, ht_session_write(plain.s, "length", lengths, sizeof lengths));
    model_must(&reversed, ht_session_write(reversed.s, "length", lengths, sizeof lengths));
    float wanted = loss_with_tokens(&plain, turned, sizeof turned);
    assert_true(loss_with_tokens(&reversed, tokens, sizeof tokens) == wanted);
    assert_true(loss_with_tokens(&reversed, turned, sizeof turned) != wanted);
    model_stop(&plain);
    model_stop(&reversed);
}

/* A table of V × V logits is the bigram model. */
static void sequential__one_embedding_is_a_bigram_model(void **state)
{
    (void)state;
    model_fixture w;
    model_start_plain(&w, "sequential", "{\"layers\": [\"embedding\"]}", lm);
    assert_int_equal(ht_model_parameters(w.g), 13 * 13);
    assert_true(ht_find(w.g, "0.weight").id != 0);
    model_stop(&w);
}

static void sequential__the_same_layers_are_the_mlp(void **state)
{
    (void)state;
    model_fixture a, b;
    ht_model_request request = rows;
    model_start_plain(&a, "mlp", "{\"hidden\": [8]}", request);
    model_start_plain(&b, "sequential",
                      "{\"layers\": [{\"type\": \"linear\", \"out\": 8}, \"relu\", {\"type\": \"linear\"}]}", request);
    const char *names[][2] = {{"layers.0.weight", "0.weight"},
                              {"layers.0.bias", "0.bias"},
                              {"layers.1.weight", "2.weight"},
                              {"layers.1.bias", "2.bias"}};
    for (size_t i = 0; i < 4; i++) {
        float data[64];
        size_t bytes = (size_t)ht_type_bytes(ht_type_of(a.g, ht_find(a.g, names[i][0])));
        model_must(&a, ht_session_read(a.s, names[i][0], data, bytes));
        model_must(&b, ht_session_write(b.s, names[i][1], data, bytes));
    }
    model_must(&a, ht_session_run(a.s, "eval"));
    model_must(&b, ht_session_run(b.s, "eval"));
    assert_true(model_read_f32(&a, "loss") == model_read_f32(&b, "loss"));
    model_stop(&a);
    model_stop(&b);
}

static void sequential__what_cannot_be_is_refused_with_its_reason(void **state)
{
    (void)state;
    model_refused("sequential", "{\"layers\": [\"linear\", \"while\"]}", rows, "static");
    model_refused("sequential", "{\"layers\": [{\"type\": \"if\", \"then\": []}]}", rows, "static");
    model_refused("sequential", "{\"layers\": [\"linaer\"]}", rows, "did you mean 'linear'");
    model_refused("sequential", "{\"layers\": [{\"type\": \"linear\", \"outs\": 4}]}", rows, "layers.0.outs");
    model_refused("sequential", "{\"layers\": [{\"type\": \"conv2d\", \"out\": 4}]}", rows, "conv2d");
    model_refused("sequential", "{\"layers\": [{\"out\": 4}]}", rows, "layers.0: a layer is a name");
    model_refused("sequential", "{\"layers\": 7}", rows, "a list");
    model_refused("sequential", "{\"layers\": [{\"type\": \"linear\", \"out\": 4}]}", rows,
                  "where the data wants [5, 3]");
    model_refused("sequential", "{\"layers\": [\"linear\"]}", lm, "embedding first");
    model_refused("sequential", "{\"layers\": [{\"type\": \"embedding\", \"out\": 8}, \"reverse\", \"linear\"]}", lm,
                  "would show the next token");
    model_refused("sequential",
                  "{\"layers\": [{\"type\": \"embedding\", \"out\": 8}, {\"type\": \"lstm\", \"hidden\": 4,"
                  " \"bidirectional\": true}, \"linear\"]}",
                  lm, "would show the next token");
    model_refused("sequential",
                  "{\"layers\": [{\"type\": \"residual\", \"layers\": [{\"type\": \"linear\", \"out\": 9}]}]}", rows,
                  "goes in and");
    model_refused("sequential",
                  "{\"layers\": [{\"type\": \"embedding\", \"out\": 6}, {\"type\": \"attention\","
                  " \"heads\": 4}]}",
                  lm, "no multiple of 4 heads");
    model_refused("sequential", "{\"layers\": []}", lm, "where the data wants");
    /* Nested beyond what names can hold. */
    char deep[2048] = "{\"layers\": [";
    for (int i = 0; i < 20; i++) strcat(deep, "{\"type\": \"residual\", \"layers\": [");
    strcat(deep, "\"relu\"");
    for (int i = 0; i < 20; i++) strcat(deep, "]}");
    strcat(deep, "]}");
    model_refused("sequential", deep, rows, "nested too deeply");
}

/* ---- text ---- */

static const char *write_text(const char *text)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/halftone-test-XXXXXX");
    int file = mkstemp(path);
    assert_true(file >= 0);
    assert_int_equal(write(file, text, strlen(text)), (ssize_t)strlen(text));
    close(file);
    return path;
}

static char *graph_json(const char *text)
{
    static char json[128];
    snprintf(json, sizeof json, "{\"file\": \"%s\"}", write_text(text));
    return json;
}

static void remove_text(const char *json)
{
    char path[64];
    assert_int_equal(sscanf(json, "{\"file\": \"%63[^\"]", path), 1);
    unlink(path);
}

static const char good[] = "state %w f32[4,3] init=normal(0,0.3) trained\n"
                           "state %rng.seed i64[] heading=scalars\n"
                           "state %rng.step i64[] heading=scalars\n"
                           "state %rng.sample i64[] heading=scalars\n"
                           "state %seen f32[] heading=scalars\n"
                           "segment forward (%x f32[5,4], %label i32[5]) -> (loss=%loss) {\n"
                           "  %d = dropout f32[5,4] (%x, %rng.seed, %rng.step, %rng.sample) p=0.1 site=\"x\"\n"
                           "  %y = matmul f32[5,3] (%d, %w)\n"
                           "  %loss, %lse = cross_entropy f32[], f32[5] (%y, %label)\n"
                           "  store %seen = %loss\n"
                           "}\n";

static void graph__a_text_model_trains_and_is_evaluated_without_dropout(void **state)
{
    (void)state;
    const char *json = graph_json(good);
    assert_trains("graph", json, rows);
    model_fixture w;
    model_start_plain(&w, "graph", json, rows);
    int eval = ht_segment_find(w.g, "eval");
    assert_true(eval >= 0);
    for (size_t i = 0; i < w.g->segments[eval].node_count; i++) {
        const ht_op *op = w.g->nodes[w.g->segments[eval].nodes[i]].op;
        assert_true(op != &ht_op_store && strcmp(op->name, "dropout") != 0);
    }
    model_must(&w, ht_session_run(w.s, "eval"));
    assert_int_equal(model_read_i64(&w, "count"), 1);
    assert_true(model_read_f32(&w, "loss_sum") == model_read_f32(&w, "loss"));
    model_stop(&w);
    remove_text(json);
}

static void assert_text_refused(const char *text, const char *word)
{
    const char *json = graph_json(text);
    model_refused("graph", json, rows, word);
    remove_text(json);
}

static void graph__what_does_not_fit_the_data_is_refused(void **state)
{
    (void)state;
    assert_text_refused("segment forward (%x f32[5,7], %label i32[5]) -> (loss=%l) { %l = sum f32[] (%x) }",
                        "input 'x' is f32[5,7]; the data delivers f32[5,4]");
    assert_text_refused("segment forward (%pixels f32[5,4]) -> (loss=%l) { %l = sum f32[] (%pixels) }",
                        "nobody delivers the input 'pixels'");
    assert_text_refused("segment forward (%x f32[5,4]) -> (%l) { %l = sum f32[] (%x) }", "no output 'loss'");
    assert_text_refused("segment other (%x f32[5,4]) -> (loss=%l) { %l = sum f32[] (%x) }", "no segment 'forward'");
    assert_text_refused("segment micro_first (%x f32[5,4]) -> (loss=%l) { %l = sum f32[] (%x) }", "forward pass alone");
    assert_text_refused("segment forward (%x f32[5,4]) -> (loss=%l) { %l = while f32[] (%x) }", "while");
    model_refused("graph", "{\"file\": \"/nonexistent/model.ht\"}", rows, "/nonexistent/model.ht");
    model_refused("graph", "{}", rows, "file");
}

/* ---- plugins ---- */

static const char *plugin_json(const char *name, const char *more)
{
    static char json[512];
    snprintf(json, sizeof json, "{\"file\": \"%s/%s.so\"%s}", HT_PLUGIN_DIR, name, more);
    return json;
}

static void plugin__a_shared_object_is_a_model(void **state)
{
    (void)state;
    assert_trains("plugin", plugin_json("plugin_linear", ""), rows);
}

static void plugin__what_is_none_is_refused_with_its_reason(void **state)
{
    (void)state;
    model_refused("plugin", plugin_json("plugin_linear", ", \"options\": {\"refuse\": true}"), rows, "HT_EINVAL");
    model_refused("plugin", plugin_json("plugin_old", ""), rows, "version 999");
    model_refused("plugin", plugin_json("plugin_empty", ""), rows, "no function halftone_plugin");
    model_refused("plugin", plugin_json("plugin_missing", ""), rows, "plugin_missing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sequential__every_layer_trains),
        cmocka_unit_test(sequential__classifiers_read_no_padding),
        cmocka_unit_test(sequential__a_bidirectional_lstm_reads_from_both_ends),
        cmocka_unit_test(sequential__reverse_keeps_the_padding_behind),
        cmocka_unit_test(sequential__one_embedding_is_a_bigram_model),
        cmocka_unit_test(sequential__the_same_layers_are_the_mlp),
        cmocka_unit_test(sequential__what_cannot_be_is_refused_with_its_reason),
        cmocka_unit_test(graph__a_text_model_trains_and_is_evaluated_without_dropout),
        cmocka_unit_test(graph__what_does_not_fit_the_data_is_refused),
        cmocka_unit_test(plugin__a_shared_object_is_a_model),
        cmocka_unit_test(plugin__what_is_none_is_refused_with_its_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
