/* Quantisation-aware training: a model that trains computes what its codes will, ranges that are observed follow what layers
 * read, and gradients reach every weight. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_fixture.h"
#include "small_models.h"

static const small_model models[] = {
    {"mlp", "{\"hidden\": [50, 40]}", {.task = CLASS, DIGITS}, 1e-2},
    {"gpt2", "{\"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16}", {.task = LM, SEQUENCES}, 1e-2},
    {"llama",
     "{\"hidden_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2}",
     {.task = LM, SEQUENCES},
     1e-2},
    {"bert",
     "{\"hidden_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"hidden_dropout_prob\": 0}",
     {.task = HT_TASK_MASKED_LM, SEQUENCES},
     1e-2},
};
enum { MODELS = sizeof models / sizeof models[0] };

static const ht_train_setting dynamic = {"quantize", "dynamic"}, fixed = {"quantize", "static"},
                              learned = {"quantize", "learned"};

static bool has_end(const char *name, const char *end)
{
    const char *dot = name ? strrchr(name, '.') : NULL;
    return dot && strcmp(dot, end) == 0;
}

static void start_training(model_fixture *w, const small_model *m, const ht_train_setting *how)
{
    ht_train_opts opts = HT_TRAIN_OPTS;
    opts.optimizer = "sgd";
    opts.lr = m->lr;
    opts.settings = how;
    opts.setting_count = how ? 1 : 0;
    model_start(w, m->type, m->json, m->request, &opts);
    model_set_parameters(w);
    for (size_t k = 0; k < w->g->state_count; k++) {
        const char *name = ht_value_of(w->g, w->g->states[k].value)->name;
        if (has_end(name, ".in_gain")) model_write_f32(w, name, 1);
    }
}

/* The loss of a trained model that computes with codes. */
static float loss_of_codes(const small_model *m)
{
    model_fixture w;
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.settings = &dynamic;
    opts.setting_count = 1;
    model_must(&w, model_graph(&w, m->type, m->json, m->request, 2));
    model_must(&w, ht_plan_create(&w.plan, w.g, &opts));
    model_must(&w, ht_session_create(&w.s, w.plan, NULL));
    model_write_inputs(&w, "eval");
    model_set_parameters(&w);
    model_must(&w, ht_session_run(w.s, "derive"));
    model_must(&w, ht_session_run(w.s, "eval"));
    float loss = model_read_f32(&w, "loss");
    model_stop(&w);
    return loss;
}

static void evaluation__is_that_of_codes(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        model_fixture rounded, plain;
        start_training(&rounded, &models[i], &dynamic);
        start_training(&plain, &models[i], NULL);
        model_must(&rounded, ht_session_run(rounded.s, "eval"));
        model_must(&plain, ht_session_run(plain.s, "eval"));
        float codes = loss_of_codes(&models[i]), with = model_read_f32(&rounded, "loss");
        float without = model_read_f32(&plain, "loss");
        /* Sums are exact in one and rounded in the other: a code at a boundary may flip. */
        if (!(fabsf(with - codes) < 2e-4f * fabsf(codes))) fail_msg("%s: %.8g, %.8g", models[i].type, with, codes);
        if (!(fabsf(without - codes) > fabsf(with - codes))) fail_msg("%s: f32 is as near", models[i].type);
        model_stop(&rounded);
        model_stop(&plain);
    }
}

static void ranges__are_observed_while_it_trains(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        model_fixture w;
        size_t ranges = 0;
        start_training(&w, &models[i], &fixed);
        model_must(&w, ht_session_run(w.s, "train"));
        for (size_t k = 0; k < w.g->state_count; k++) {
            const char *name = ht_value_of(w.g, w.g->states[k].value)->name;
            char other[256];
            if (!has_end(name, ".in_scale")) continue;
            ranges++;
            /* What ranks average, src/pass/zero.c: statistics that are floats. */
            snprintf(other, sizeof other, "%.*slow", (int)(strlen(name) - strlen("scale")), name);
            const ht_state *low_state = ht_state_of(w.g, ht_find(w.g, other));
            assert_true(low_state && low_state->heading == HT_HEADING_STATISTICS);
            assert_int_equal(ht_type_of(w.g, low_state->value)->dtype, HT_F32);
            float scale = model_read_f32(&w, name);
            float low = model_read_f32(&w, other), zero = -low / scale;
            if (!(scale > 0 && isfinite(scale) && zero >= 0 && zero <= 255)) fail_msg("%s: %g, %g", name, scale, low);
            /* A range ten times as wide narrows by a hundredth of the way to what is read. */
            model_write_f32(&w, name, 10 * scale);
            model_must(&w, ht_session_run(w.s, "micro_first"));
            assert_float_equal(model_read_f32(&w, name), scale * (10 - 0.09), 0.05 * scale);
            model_write_f32(&w, name, scale);
            model_write_f32(&w, other, low);
        }
        assert_true(ranges > 1);
        model_must(&w, ht_session_run(w.s, "eval"));
        assert_true(isfinite(model_read_f32(&w, "loss")));
        model_stop(&w);
    }
}

/* The first batch begins a range. From then on what begins it stays, and its gain is a parameter. */
static void ranges__are_learned_by_their_gains(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        model_fixture w;
        size_t ranges = 0, moved = 0;
        start_training(&w, &models[i], &learned);
        model_must(&w, ht_session_run(w.s, "train"));
        for (size_t k = 0; k < w.g->state_count; k++) {
            const char *name = ht_value_of(w.g, w.g->states[k].value)->name;
            char start[256];
            if (!has_end(name, ".in_gain")) continue;
            snprintf(start, sizeof start, "%.*sstart", (int)(strlen(name) - strlen("gain")), name);
            float began = model_read_f32(&w, start), gain = model_read_f32(&w, name);
            assert_true(w.g->states[k].trained && began > 0 && isfinite(gain));
            moved += gain != 1;
            ranges++;
            /* A start that is known is not observed. */
            model_write_f32(&w, start, 2 * began);
            model_must(&w, ht_session_run(w.s, "micro_first"));
            assert_float_equal(model_read_f32(&w, start), 2 * began, 0);
            model_write_f32(&w, start, began);
        }
        if (ranges < 2 || moved == 0) fail_msg("%s: %zu ranges, %zu moved", models[i].type, ranges, moved);
        model_stop(&w);
    }
}

static void steps__lower_the_loss(void **state)
{
    (void)state;
    static const ht_train_setting *const ways[] = {&dynamic, &learned};
    for (size_t i = 0; i < 2 * MODELS; i++) {
        model_fixture w;
        start_training(&w, &models[i / 2], ways[i % 2]);
        model_must(&w, ht_session_run(w.s, "train"));
        float first = model_read_f32(&w, "loss");
        for (int step = 0; step < 20; step++) model_must(&w, ht_session_run(w.s, "train"));
        float last = model_read_f32(&w, "loss");
        if (!(last < first)) fail_msg("%s: %g after %g", models[i / 2].type, last, first);
        model_stop(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evaluation__is_that_of_codes),
        cmocka_unit_test(ranges__are_observed_while_it_trains),
        cmocka_unit_test(ranges__are_learned_by_their_gains),
        cmocka_unit_test(steps__lower_the_loss),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
