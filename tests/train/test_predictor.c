/* A run's folder as a session, by the C API: the logits that halftone predict prints. */
#include <math.h>

#include <halftone/halftone.h>

#include "cli_case.h"

enum { ROWS = 10, CLASSES = 3 };

static void train(data_case *c, const char *model, const char *data, int batch)
{
    char job[1024];
    snprintf(job, sizeof job,
             "{\"model\": {%s}, \"data\": {%s}, \"train\": {\"batch\": %d, \"steps\": 20, \"eval_every\": 0, "
             "\"output\": \"run\"}}\n",
             model, data, batch);
    data_case_text(c, "job.json", job);
    expect(c, "set -e; rm -rf run; \"$H\" train job.json", 0, "");
}

/* A table that is used as it is. */
static void train_rows(data_case *c)
{
    expect(c,
           "set -e; awk 'BEGIN { for (i = 0; i < 60; i++) print i % 7 - 3 \",\" i % 5 - 2 \",\" substr(\"abc\", i % 3 "
           "+ 1, 1) }' > t.csv",
           0, "");
    train(c, "\"type\": \"mlp\", \"hidden\": [4]", "\"format\": \"table\", \"normalize\": false, \"train\": \"t.csv\"",
          ROWS);
}

static ht_predictor *open_run(const data_case *c, ht_context *ctx, const ht_predictor_opts *opts)
{
    ht_predictor *p;
    if (ht_predictor_open(&p, ctx, data_case_path(c, "run"), opts) != HT_OK) fail_msg("%s", ht_context_message(ctx));
    return p;
}

static void predictor__gives_the_logits_that_predict_prints(void **state)
{
    data_case *c = *state;
    ht_context *ctx;
    float x[ROWS][2];
    double logits[ROWS][CLASSES];
    int status;
    train_rows(c);
    const char *said =
        run(c, "set -e; head -n 10 t.csv > some.csv; \"$H\" predict run some.csv --json --logits", &status);
    assert_int_equal(status, 0);
    assert_int_equal(ht_context_create(&ctx, NULL), HT_OK);
    ht_predictor *p = open_run(c, ctx, NULL);
    assert_int_equal(ht_predictor_batch(p), ROWS);
    assert_int_equal(ht_predictor_width(p), CLASSES);
    assert_string_equal(ht_predictor_class_name(p, 2), "c");
    assert_null(ht_predictor_class_name(p, 3));
    for (int i = 0; i < ROWS; i++) x[i][0] = (float)(i % 7 - 3), x[i][1] = (float)(i % 5 - 2);
    ht_session *s = ht_predictor_session(p);
    assert_int_equal(ht_session_write(s, "x", x, sizeof x), HT_OK);
    assert_int_equal(ht_session_run(s, "logits"), HT_OK);
    assert_int_equal(ht_session_read_f64(s, "logits", logits[0], (size_t)ROWS * CLASSES), HT_OK);
    for (int i = 0; i < ROWS; i++) {
        assert_non_null(said = strstr(said, "\"logits\": ["));
        said += strlen("\"logits\": [");
        for (int k = 0; k < CLASSES; k++, said++) assert_true(strtod(said, (char **)&said) == logits[i][k]);
    }
    ht_predictor_free(p);
    ht_context_free(ctx);
}

static void predictor__takes_another_batch_and_device(void **state)
{
    data_case *c = *state;
    ht_context *ctx;
    ht_predictor_opts opts = HT_PREDICTOR_OPTS;
    float x[3][2] = {{1, 2}, {-1, 0}, {3, -2}};
    double logits[2][3][CLASSES];
    train_rows(c);
    assert_int_equal(ht_context_create(&ctx, NULL), HT_OK);
    opts.batch = 3;
    for (int i = 0; i < 2; i++) {
        opts.device = i ? "fake" : NULL;
        ht_predictor *p = open_run(c, ctx, &opts);
        ht_session *s = ht_predictor_session(p);
        assert_int_equal(ht_session_write(s, "x", x, sizeof x), HT_OK);
        assert_int_equal(ht_session_run(s, "logits"), HT_OK);
        assert_int_equal(ht_session_read_f64(s, "logits", logits[i][0], sizeof logits[i] / sizeof(double)), HT_OK);
        ht_predictor_free(p);
    }
    assert_memory_equal(logits[0], logits[1], sizeof logits[0]);
    ht_context_free(ctx);
}

/* Language models have logits, too, though nothing generates text from them yet. */
static void predictor__gives_the_logits_of_language_models(void **state)
{
    data_case *c = *state;
    ht_context *ctx;
    static int32_t tokens[32][8];
    static float logits[32][8][256];
    static const char *const models[] = {"\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16",
                                         "\"type\": \"lstm_lm\", \"hidden\": 8, \"layers\": 1"};
    expect(c, "set -e; yes 'three times four' | head -n 600 > t.txt", 0, "");
    assert_int_equal(ht_context_create(&ctx, NULL), HT_OK);
    for (int i = 0; i < 2; i++) {
        train(c, models[i], "\"format\": \"text\", \"length\": 8, \"order\": \"stream\", \"train\": \"t.txt\"", 40);
        ht_predictor *p = open_run(c, ctx, NULL);
        ht_session *s = ht_predictor_session(p);
        assert_int_equal(ht_predictor_width(p), 256);
        assert_int_equal(ht_predictor_batch(p), 32);
        assert_int_equal(ht_session_write(s, "tokens", tokens, sizeof tokens), HT_OK);
        assert_int_equal(ht_session_run(s, "logits"), HT_OK);
        assert_int_equal(ht_session_read(s, "logits", logits, sizeof logits), HT_OK);
        assert_true(isfinite(logits[31][7][255]) && logits[0][0][0] != logits[0][0][1]);
        ht_predictor_free(p);
    }
    ht_context_free(ctx);
}

static void predictor__refuses_what_is_no_run(void **state)
{
    data_case *c = *state;
    ht_context *ctx;
    ht_predictor *p;
    ht_predictor_opts opts = HT_PREDICTOR_OPTS;
    train_rows(c);
    assert_int_equal(ht_context_create(&ctx, NULL), HT_OK);
    assert_int_equal(ht_predictor_open(&p, ctx, "/nowhere", NULL), HT_EIO);
    assert_non_null(strstr(ht_context_message(ctx), "/nowhere/config.resolved.json"));
    assert_null(p);
    opts.batch = -1;
    assert_int_equal(ht_predictor_open(&p, ctx, data_case_path(c, "run"), &opts), HT_EINVAL);
    assert_non_null(strstr(ht_context_message(ctx), "a batch of -1 rows"));
    opts.batch = 0;
    opts.device = "abacus";
    assert_int_not_equal(ht_predictor_open(&p, ctx, data_case_path(c, "run"), &opts), HT_OK);
    assert_non_null(strstr(ht_context_message(ctx), "abacus"));
    ht_context_free(ctx);
}

/* A training step has no such output: it would be kept alive to the end of the step. */
static void a_training_step__has_no_logits(void **state)
{
    data_case *c = *state;
    int status;
    train_rows(c);
    const char *graph = run(c, "\"$H\" explain job.json --graph", &status);
    assert_int_equal(status, 0);
    assert_non_null(strstr(graph, "segment micro_first"));
    assert_null(strstr(graph, "logits="));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(predictor__gives_the_logits_that_predict_prints),
        CASE(predictor__takes_another_batch_and_device),
        CASE(predictor__gives_the_logits_of_language_models),
        CASE(predictor__refuses_what_is_no_run),
        CASE(a_training_step__has_no_logits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
