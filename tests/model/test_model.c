/* Every architecture: it builds, trains, and has as many parameters as the world says. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "model_fixture.h"
#include "small_models.h"

static void model__twenty_steps_on_a_batch_lower_its_loss(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++) {
        model_fixture w;
        ht_train_opts opts = HT_TRAIN_OPTS;
        opts.lr = small[i].lr;
        opts.clip = 1;
        model_start(&w, small[i].type, small[i].json, small[i].request, &opts);
        float first = 0, last = 0;
        for (int step = 0; step < 20; step++) {
            model_must(&w, ht_session_run(w.s, "train"));
            int64_t count = model_read_i64(&w, "count");
            assert_true(count > 0);
            last = model_read_f32(&w, "loss") / (float)count;
            assert_true(isfinite(last));
            if (step == 0) first = last;
            model_write_f32(&w, "loss_grad", 1 / (float)count);
        }
        if (!(last < 0.95f * first)) print_error("%s %s: %g to %g\n", small[i].type, small[i].json, first, last);
        assert_true(last < 0.95f * first);
        model_stop(&w);
    }
}

/* What has no dropout and no batch norm computes the same in training and in use. */
static void model__eval_gives_the_loss_of_forward(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++) {
        model_fixture w;
        ht_model_request request = small[i].request;
        bool batchnorm = strstr("resnet mobilenet_v2", small[i].type) != NULL;
        if (batchnorm) continue;
        request.training = true;
        model_start_plain(&w, small[i].type, small[i].json, request);
        model_must(&w, ht_session_run(w.s, "forward"));
        float forward = model_read_f32(&w, "loss");
        model_must(&w, ht_session_run(w.s, "eval"));
        float eval = model_read_f32(&w, "loss"), sum = model_read_f32(&w, "loss_sum");
        assert_true(forward == eval && eval == sum);
        assert_true(request.task == REGRESSION || model_read_i64(&w, "correct") <= model_read_i64(&w, "count"));
        model_stop(&w);
    }
}

static void model__same_bits_for_any_number_of_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++) {
        float first[3];
        for (int threads = 1; threads <= 4; threads *= 2) {
            model_fixture w;
            float loss[3];
            model_start_threads(&w, small[i].type, small[i].json, small[i].request, NULL, threads);
            for (int step = 0; step < 3; step++) {
                model_must(&w, ht_session_run(w.s, "train"));
                loss[step] = model_read_f32(&w, "loss");
            }
            if (threads == 1) memcpy(first, loss, sizeof loss);
            assert_memory_equal(loss, first, sizeof loss);
            model_stop(&w);
        }
    }
}

/* Two micro-batches, the seed one over the tokens of both: as one batch of twice the size. */
static void model__accumulated_micro_batches_are_one_large_batch(void **state)
{
    (void)state;
    enum { T = 8, V = 13, C = 8 };
    static const char json[] = "{\"n_layer\": 1, \"n_head\": 2, \"n_embd\": 8}";
    float one[V * C], two[V * C];
    ht_train_opts opts = HT_TRAIN_OPTS;
    for (int parts = 1; parts <= 2; parts++) {
        model_fixture w;
        opts.accumulate = parts;
        ht_model_request request = {.task = LM, .batch = 4 / parts, .length = T, .vocabulary = V};
        model_start(&w, "gpt2", json, request, &opts);
        model_set_parameters(&w);
        /* The second half has fewer targets that count. */
        int32_t tokens[4][T], targets[4][T];
        for (int i = 0; i < 4 * T; i++) {
            tokens[i / T][i % T] = i * 5 % V;
            targets[i / T][i % T] = i >= 2 * T && i % 3 ? -1 : i * 7 % V;
        }
        int64_t count = 0;
        for (int i = 0; i < 4 * T; i++) count += targets[i / T][i % T] >= 0;
        model_write_f32(&w, "loss_grad", 1 / (float)count);
        for (int k = 0; k < parts; k++) {
            size_t rows = (size_t)(4 / parts);
            model_must(&w, ht_session_write(w.s, "tokens", tokens[k * 2], rows * sizeof tokens[0]));
            model_must(&w, ht_session_write(w.s, "targets", targets[k * 2], rows * sizeof targets[0]));
            model_must(&w, ht_session_run(w.s, k ? "micro" : "micro_first"));
        }
        model_must(&w, ht_session_read(w.s, "transformer.wte.weight.grad", parts == 1 ? one : two, sizeof one));
        model_stop(&w);
    }
    for (int i = 0; i < V * C; i++) assert_float_equal(one[i], two[i], 1e-6f);
}

/* A batch of short sequences: in its own bucket, and padded in the longest one, it has one loss and one gradient. */
static void bucket_case(const char *type, const char *json, ht_model_request request, const char *probe)
{
    enum { S = 4, T = 5 };
    static const ht_model_bucket buckets[] = {{3, 2}, {T, S}};
    model_fixture w;
    double grad[2][64];
    float loss[2], eval[2];
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.accumulate = 2;
    request.buckets = buckets;
    request.bucket_count = 2;
    model_start(&w, type, json, request, &opts);
    model_set_parameters(&w);
    model_write_f32(&w, "loss_grad", 1);
    static const char *const names[] = {"tokens", "source", "target_in", "targets"};
    int32_t lengths[3] = {S, 2, 3};
    if (request.source_length) model_must(&w, ht_session_write(w.s, "source_length", lengths, sizeof lengths));
    for (int k = 0; k < 2; k++) {
        for (size_t i = 0; i < 4; i++) {
            int32_t data[64];
            char name[32];
            bool source = i == 1, has = request.source_length ? i > 0 : i == 0 || i == 3;
            int64_t width = k ? (source ? S : T) : (source ? request.source_length : request.length);
            for (int64_t j = 0; j < request.batch * width; j++) {
                int64_t at = j % width, row = j / width;
                bool inside = at < (source ? S : T);
                data[j] = inside ? (int32_t)((row * 3 + at * 5 + (int64_t)i) % 9) : i == 3 ? -1 : 0;
            }
            snprintf(name, sizeof name, k ? "%s:2" : "%s", names[i]);
            if (has) model_must(&w, ht_session_write(w.s, name, data, (size_t)(request.batch * width) * sizeof *data));
        }
        model_must(&w, ht_session_run(w.s, k ? "eval:2" : "eval"));
        eval[k] = model_read_f32(&w, "loss");
        model_must(&w, ht_session_run(w.s, k ? "micro_first:2" : "micro_first"));
        loss[k] = model_read_f32(&w, "loss");
        model_must(&w, ht_session_run(w.s, k ? "micro:2" : "micro"));
        model_must(&w, ht_session_read_f64(w.s, probe, grad[k], 48));
    }
    assert_float_equal(loss[0], loss[1], 1e-4f);
    assert_float_equal(eval[0], eval[1], 1e-4f);
    for (int i = 0; i < 48; i++) assert_float_equal(grad[0][i], grad[1][i], 1e-4f);
    model_must(&w, ht_session_run(w.s, "update"));
    model_stop(&w);
}

static void model__buckets_of_lengths_share_parameters_and_gradients(void **state)
{
    (void)state;
    bucket_case("seq2seq", "{\"hidden\": 4, \"layers\": 1, \"embedding\": 3}", (ht_model_request){PAIRS},
                "encoder.rnn.weight_ih_l0.grad");
    bucket_case("gpt2", "{\"n_layer\": 1, \"n_head\": 1, \"n_embd\": 6}",
                (ht_model_request){.task = LM, .batch = 3, .length = 8, .vocabulary = 13},
                "transformer.wpe.weight.grad");
    bucket_case("sequential",
                "{\"layers\": [{\"type\": \"embedding\", \"out\": 6}, \"positions\", \"attention\", \"linear\"]}",
                (ht_model_request){.task = LM, .batch = 3, .length = 8, .vocabulary = 13}, "1.weight.grad");
}

static void model__targets_that_do_not_count_are_not_counted(void **state)
{
    (void)state;
    model_fixture w;
    model_start_plain(&w, "gpt2", "{\"n_layer\": 1, \"n_head\": 1, \"n_embd\": 8}",
                      (ht_model_request){.task = LM, SEQUENCES});
    int32_t targets[24];
    for (int i = 0; i < 24; i++) targets[i] = i < 20 ? -1 : i % 13;
    model_must(&w, ht_session_write(w.s, "targets", targets, sizeof targets));
    model_must(&w, ht_session_run(w.s, "eval"));
    assert_int_equal(model_read_i64(&w, "count"), 4);
    model_stop(&w);
}

/* ---- counts ---- */

static void assert_parameters(const char *type, const char *json, ht_model_request request, int64_t count)
{
    model_fixture w;
    model_must(&w, model_graph(&w, type, json, request, 1));
    if (ht_model_parameters(w.g) != count)
        print_error("%s %s: %lld\n", type, json, (long long)ht_model_parameters(w.g));
    assert_int_equal(ht_model_parameters(w.g), count);
    model_stop(&w);
}

static void model__parameter_counts_are_the_published_ones(void **state)
{
    (void)state;
    ht_model_request image = {.task = CLASS, .batch = 1, .classes = 1000, .feature_rank = 3, .feature = {3, 224, 224}};
    ht_model_request digit = {.task = CLASS, .batch = 1, .classes = 10, .feature_rank = 2, .feature = {28, 28}};
    ht_model_request gpt = {.task = LM, .batch = 1, .length = 1024, .vocabulary = 50257};
    ht_model_request chars = {.task = LM, .batch = 12, .length = 64, .vocabulary = 65};
    ht_model_request words = {.task = HT_TASK_MASKED_LM, .batch = 1, .length = 16, .vocabulary = 30522};
    ht_model_request sentence = words;
    sentence.task = CLASS;
    sentence.classes = 2;
    ht_model_request story = {.task = LM, .batch = 1, .length = 64, .vocabulary = 512};
    ht_model_request llama2 = {.task = LM, .batch = 1, .length = 8, .vocabulary = 32000};
    assert_parameters("lenet", "{}", digit, 61706);
    assert_parameters("mlp", "{\"hidden\": [500]}", digit, 397510);
    assert_parameters("resnet", "{\"depth\": 18}", image, 11689512);
    assert_parameters("resnet", "{\"depth\": 34}", image, 21797672);
    assert_parameters("resnet", "{\"depth\": 50}", image, 25557032);
    assert_parameters("mobilenet_v2", "{}", image, 3504872);
    assert_parameters("gpt2", "{}", gpt, 124439808);
    /* nanoGPT's two recipes for characters; its own count leaves out the positions, these do not. */
    assert_parameters("gpt2", "{\"n_layer\": 4, \"n_head\": 4, \"n_embd\": 128, \"bias\": false}", chars, 804096);
    chars.length = 256;
    assert_parameters("gpt2", "{\"n_layer\": 6, \"n_head\": 6, \"n_embd\": 384, \"bias\": false}", chars, 10745088);
    assert_parameters("bert", "{}", words, 109514298);
    assert_parameters("bert", "{}", sentence, 109483778);
    /* stories260K of llama2.c: 64 wide, 5 layers, 8 heads, 4 key heads, 172 inside, tied. */
    assert_parameters("llama",
                      "{\"hidden_size\": 64, \"num_hidden_layers\": 5, \"num_attention_heads\": 8,"
                      " \"num_key_value_heads\": 4, \"intermediate_size\": 172, \"tie_word_embeddings\": true}",
                      story, 260032);
    assert_parameters("llama",
                      "{\"hidden_size\": 4096, \"num_hidden_layers\": 32, \"num_attention_heads\": 32,"
                      " \"intermediate_size\": 11008}",
                      llama2, 6738415616);
}

/* ---- LSTM state over batches ---- */

/* Two batches of T are one of 2T: the second starts where the first ended. */
static void model__lstm_carries_its_state_to_the_next_batch(void **state)
{
    (void)state;
    enum { B = 2, T = 4, V = 13 };
    static const char json[] = "{\"hidden\": 6, \"layers\": 2}";
    model_fixture parts, whole;
    model_start_plain(&parts, "lstm_lm", json,
                      (ht_model_request){.task = LM, .batch = B, .length = T, .vocabulary = V});
    model_start_plain(&whole, "lstm_lm", json,
                      (ht_model_request){.task = LM, .batch = B, .length = 2 * T, .vocabulary = V});
    model_set_parameters(&parts);
    model_set_parameters(&whole);
    int32_t all[2][B][2 * T], part[B][T];
    const char *names[2] = {"tokens", "targets"};
    float sum = 0;
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i < B * 2 * T; i++) all[k][i / (2 * T)][i % (2 * T)] = (i * 5 + k * 3) % V;
        model_must(&whole, ht_session_write(whole.s, names[k], all[k], sizeof all[k]));
    }
    for (int half = 0; half < 2; half++) {
        for (int k = 0; k < 2; k++) {
            for (int i = 0; i < B * T; i++) part[i / T][i % T] = all[k][i / T][half * T + i % T];
            model_must(&parts, ht_session_write(parts.s, names[k], part, sizeof part));
        }
        model_must(&parts, ht_session_run(parts.s, "eval"));
        sum += model_read_f32(&parts, "loss");
    }
    model_must(&whole, ht_session_run(whole.s, "eval"));
    assert_float_equal(sum, model_read_f32(&whole, "loss"), 1e-4f);
    /* A third run of the first half differs from the first: the state has moved on. */
    model_must(&parts, ht_session_run(parts.s, "eval"));
    float before = model_read_f32(&parts, "loss");
    model_must(&parts, ht_session_run(parts.s, "eval"));
    assert_true(before != model_read_f32(&parts, "loss"));
    model_stop(&parts);
    model_stop(&whole);
}

static void model__an_evaluation_leaves_the_training_state_alone(void **state)
{
    (void)state;
    model_fixture w;
    float before[3 * 6], after[3 * 6];
    model_start(&w, "lstm_lm", "{\"hidden\": 6, \"layers\": 1}", (ht_model_request){.task = LM, SEQUENCES}, NULL);
    model_must(&w, ht_session_run(w.s, "train"));
    model_must(&w, ht_session_read(w.s, "carry.forward.h_l0", before, sizeof before));
    model_must(&w, ht_session_run(w.s, "eval"));
    model_must(&w, ht_session_read(w.s, "carry.forward.h_l0", after, sizeof after));
    assert_memory_equal(before, after, sizeof before);
    bool moved = false;
    for (size_t i = 0; i < 18; i++) moved |= before[i] != 0;
    assert_true(moved);
    model_stop(&w);
}

static void model__batchnorm_statistics_move_in_training_alone(void **state)
{
    (void)state;
    model_fixture w;
    float start[8], trained[8], after[8];
    ht_model_request request = {.task = CLASS, IMAGES};
    model_start(&w, "resnet", "{\"width\": 8, \"stem\": \"cifar\"}", request, NULL);
    model_must(&w, ht_session_read(w.s, "bn1.running_mean", start, sizeof start));
    model_must(&w, ht_session_run(w.s, "train"));
    model_must(&w, ht_session_read(w.s, "bn1.running_mean", trained, sizeof trained));
    model_must(&w, ht_session_run(w.s, "eval"));
    model_must(&w, ht_session_read(w.s, "bn1.running_mean", after, sizeof after));
    assert_memory_not_equal(start, trained, sizeof start);
    assert_memory_equal(trained, after, sizeof trained);
    model_stop(&w);
}

static void model__dropout_is_on_in_training_alone(void **state)
{
    (void)state;
    model_fixture w;
    ht_model_request request = {.task = LM, SEQUENCES, .training = true};
    model_start_plain(&w, "gpt2", "{\"n_layer\": 1, \"n_head\": 1, \"n_embd\": 8, \"dropout\": 0.5}", request);
    model_must(&w, ht_session_run(w.s, "eval"));
    float eval = model_read_f32(&w, "loss");
    model_must(&w, ht_session_run(w.s, "forward"));
    assert_true(fabsf(eval - model_read_f32(&w, "loss")) > 1e-5f);
    model_must(&w, ht_session_run(w.s, "eval"));
    assert_true(eval == model_read_f32(&w, "loss"));
    model_stop(&w);
}

/* ---- refusals ---- */

static void model__what_cannot_be_is_refused_with_its_reason(void **state)
{
    (void)state;
    ht_model_request lm = {.task = LM, SEQUENCES}, image = {.task = CLASS, IMAGES}, pairs = {PAIRS};
    model_refused("gpt2", "{\"n_head\": 5, \"n_embd\": 16}", lm, "n_embd 16 is no multiple of n_head 5");
    model_refused("gpt2", "{\"n_positions\": 4}", lm, "n_positions 4");
    model_refused("gpt2", "{\"n_heads\": 4}", lm, "n_head");
    model_refused("gpt2", "{}", image, "does not serve task class; it serves lm");
    model_refused("llama", "{\"num_attention_heads\": 4, \"num_key_value_heads\": 3}", lm, "num_key_value_heads 3");
    model_refused("llama", "{\"hidden_size\": 6, \"num_attention_heads\": 2}", lm, "head_dim 3 is odd");
    model_refused("resnet", "{\"depth\": 20}", image, "18, 34 or 50");
    model_refused("bert", "{}", image, "sequences of tokens");
    image.feature_rank = 1;
    model_refused("lenet", "{}", image, "rank 1");
    lm.documents = true;
    model_refused("lstm_lm", "{}", lm, "packed documents");
    lm.vocabulary = 0;
    model_refused("gpt2", "{}", lm, "vocabulary");
    pairs.buckets = &(ht_model_bucket){9, 2};
    pairs.bucket_count = 1;
    model_refused("seq2seq", "{}", pairs, "a bucket of lengths 9 and 2 is not within 6 and 7");
    pairs.bucket_count = 0;
    pairs.beam = 100;
    model_refused("seq2seq", "{}", pairs, "beam of 100");
}

static void model__sizes_that_overflow_are_refused(void **state)
{
    (void)state;
    ht_model_request lm = {.task = LM, .batch = INT64_MAX / 2, .length = 8, .vocabulary = 13};
    model_refused("gpt2", "{}", lm, "too large");
    lm = (ht_model_request){.task = LM, .batch = 1, .length = 8, .vocabulary = (int64_t)1 << 40};
    model_refused("gpt2", "{}", lm, "too large");
    ht_model_request wide = {.task = CLASS, .batch = 2, .classes = INT64_MAX / 4, .feature_rank = 1, .feature = {64}};
    model_refused("mlp", "{}", wide, "layers");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(model__twenty_steps_on_a_batch_lower_its_loss),
        cmocka_unit_test(model__eval_gives_the_loss_of_forward),
        cmocka_unit_test(model__same_bits_for_any_number_of_threads),
        cmocka_unit_test(model__accumulated_micro_batches_are_one_large_batch),
        cmocka_unit_test(model__buckets_of_lengths_share_parameters_and_gradients),
        cmocka_unit_test(model__targets_that_do_not_count_are_not_counted),
        cmocka_unit_test(model__parameter_counts_are_the_published_ones),
        cmocka_unit_test(model__lstm_carries_its_state_to_the_next_batch),
        cmocka_unit_test(model__an_evaluation_leaves_the_training_state_alone),
        cmocka_unit_test(model__batchnorm_statistics_move_in_training_alone),
        cmocka_unit_test(model__dropout_is_on_in_training_alone),
        cmocka_unit_test(model__what_cannot_be_is_refused_with_its_reason),
        cmocka_unit_test(model__sizes_that_overflow_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
