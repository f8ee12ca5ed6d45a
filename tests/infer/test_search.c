/* Decoding with a translator: what the segments encode and decode_step give, and the search over them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "infer/infer.h"
#include "model_fixture.h"

enum { B = 3, S = 6, T = 5, V = 8, START = 1, END = 2 };

static const char json[] = "{\"hidden\": 16, \"layers\": 2}";

static ht_model_request request_of(int64_t beam)
{
    return (ht_model_request){.task = HT_TASK_PAIRS,
                              .batch = B,
                              .length = T,
                              .source_length = S,
                              .vocabulary = V,
                              .source_vocabulary = 9,
                              .logits = true,
                              .beam = beam};
}

/* The log probability of outputs by teacher forcing: the logits segment, all steps at once. */
static void log_probability(const model_fixture *w, const int32_t *tokens, const int64_t *lengths, double *sum)
{
    int32_t in[B][T] = {{0}};
    float logits[B][T][V];
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) in[b][t] = t == 0 ? START : t <= lengths[b] ? tokens[b * T + t - 1] : 0;
    model_must(w, ht_session_write(w->s, "target_in", in, sizeof in));
    model_must(w, ht_session_run(w->s, "logits"));
    model_must(w, ht_session_read(w->s, "logits", logits, sizeof logits));
    for (int b = 0; b < B; b++) {
        sum[b] = 0;
        for (int t = 0; t <= lengths[b] && t < T; t++) {
            double all = 0;
            for (int v = 0; v < V; v++) all += exp((double)logits[b][t][v]);
            sum[b] += (double)logits[b][t][t < lengths[b] ? tokens[b * T + t] : END] - log(all);
        }
    }
}

static ht_search_opts opts_of(int64_t beam)
{
    ht_search_opts opts = HT_SEARCH_OPTS;
    opts.batch = B;
    opts.beam = beam;
    opts.length = T;
    opts.start = START;
    opts.end = END;
    return opts;
}

/* Step by step with caches is the same model as all steps at once, for a greedy search and for beams that swap their
 * hypotheses; and a wider beam finds nothing worse. */
static void search__scores_are_those_of_teacher_forcing(void **state)
{
    (void)state;
    double narrow[B];
    for (int64_t beam = 1; beam <= V; beam += beam < 3 ? 1 : 5) {
        model_fixture w;
        int32_t tokens[B * T];
        int64_t lengths[B];
        double scores[B], forced[B];
        model_start_plain(&w, "seq2seq", json, request_of(beam));
        model_set_parameters(&w);
        ht_search_opts opts = opts_of(beam);
        model_must(&w, ht_search(w.s, w.ctx, &opts, tokens, lengths, scores));
        log_probability(&w, tokens, lengths, forced);
        for (int b = 0; b < B; b++) {
            assert_float_equal(scores[b], forced[b], 1e-4);
            if (beam == 1) narrow[b] = scores[b];
            assert_true(beam < V || scores[b] >= narrow[b] - 1e-6);
        }
        model_stop(&w);
    }
}

/* The beam is as wide as the vocabulary and outputs have up to two tokens, so the search must find the best of all. */
static void search__a_full_beam_finds_the_best_of_all_outputs(void **state)
{
    (void)state;
    model_fixture w;
    int32_t tokens[B * 2];
    int64_t lengths[B];
    double scores[B], best[B];
    model_start_plain(&w, "seq2seq", json, request_of(V));
    model_set_parameters(&w);
    ht_search_opts opts = opts_of(V);
    opts.length = 2;
    model_must(&w, ht_search(w.s, w.ctx, &opts, tokens, lengths, scores));
    for (int b = 0; b < B; b++) best[b] = -INFINITY;
    /* Outputs that end within two steps: none, or one token. */
    for (int32_t v = -1; v < V; v++) {
        int32_t all[B * T] = {0};
        int64_t length[B];
        double sum[B];
        if (v == END) continue;
        for (int b = 0; b < B; b++) {
            length[b] = v >= 0;
            all[b * T] = v >= 0 ? v : 0;
        }
        log_probability(&w, all, length, sum);
        for (int b = 0; b < B; b++) best[b] = fmax(best[b], sum[b]);
    }
    for (int b = 0; b < B; b++) assert_float_equal(scores[b], best[b], 1e-4);
    model_stop(&w);
}

static void search__a_trained_translator_gives_back_its_sentences(void **state)
{
    (void)state;
    model_fixture w;
    ht_train_opts train = HT_TRAIN_OPTS;
    train.lr = 1e-2;
    model_start(&w, "seq2seq", json, request_of(2), &train);
    /* Targets 3 4 5, 6 and 7 7 3 4 with their ends. */
    static const int32_t targets[B][T] = {{3, 4, 5, END, -1}, {6, END, -1, -1, -1}, {7, 7, 3, 4, END}};
    int32_t in[B][T];
    for (int b = 0; b < B; b++)
        for (int t = 0; t < T; t++) in[b][t] = t == 0 ? START : targets[b][t - 1] < 0 ? 0 : targets[b][t - 1];
    model_must(&w, ht_session_write(w.s, "targets", targets, sizeof targets));
    model_must(&w, ht_session_write(w.s, "target_in", in, sizeof in));
    model_write_f32(&w, "loss_grad", 1.0f / 11);
    for (int i = 0; i < 150; i++) model_must(&w, ht_session_run(w.s, "train"));
    static const int64_t want[B] = {3, 1, 4};
    int32_t tokens[B * T];
    int64_t lengths[B];
    ht_search_opts opts = opts_of(2);
    model_must(&w, ht_search(w.s, w.ctx, &opts, tokens, lengths, NULL));
    for (int b = 0; b < B; b++) {
        assert_int_equal(lengths[b], want[b]);
        for (int t = 0; t < lengths[b]; t++) assert_int_equal(tokens[b * T + t], targets[b][t]);
    }
    model_stop(&w);
}

static void search__sizes_out_of_range_are_refused(void **state)
{
    (void)state;
    model_fixture w;
    int32_t tokens[B * T];
    int64_t lengths[B];
    model_start_plain(&w, "seq2seq", json, request_of(1));
    ht_search_opts opts = opts_of(1);
    opts.length = INT64_MAX;
    assert_int_equal(ht_search(w.s, w.ctx, &opts, tokens, lengths, NULL), HT_EINVAL);
    opts = opts_of(2);
    assert_int_not_equal(ht_search(w.s, w.ctx, &opts, tokens, lengths, NULL), HT_OK);
    model_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(search__scores_are_those_of_teacher_forcing),
        cmocka_unit_test(search__a_full_beam_finds_the_best_of_all_outputs),
        cmocka_unit_test(search__a_trained_translator_gives_back_its_sentences),
        cmocka_unit_test(search__sizes_out_of_range_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
