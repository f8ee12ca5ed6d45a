/* Training with products in f8: scales and histories over steps against a rule written here, skipped steps, micro-batches,
 * losses near bf16's, the same bits however it is planned, and what stays half. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "half_modes.h"
#include "session_fixture.h"

static const mode fp8_modes[] = {
    {"bf16, delayed", "bf16", "none", 0.02, {{"fp8", "delayed"}, {"fp8_history", "4"}}},
    {"bf16, current", "bf16", "none", 0.02, {{"fp8", "current"}}},
    {"fp16, delayed", "fp16", "1024", 0.02, {{"fp8", "delayed"}, {"fp8_history", "2"}}},
    {"bf16, pure, delayed", "bf16", "none", 0.15, {{"fp8", "delayed"}, {"masters", "0"}}},
};
enum { FP8_MODES = sizeof fp8_modes / sizeof fp8_modes[0] };

/* Rows, widths and inner sizes are multiples of 16. */
#define LINES .batch = 4, .length = 8, .vocabulary = 13
static const small_model models[] = {
    {"mlp",
     "{\"hidden\": [48, 32]}",
     {.task = CLASS, .batch = 16, .classes = 5, .feature_rank = 1, .feature = {64}},
     1e-2},
    {"gpt2", "{\"n_layer\": 2, \"n_head\": 2, \"n_embd\": 32}", {.task = LM, LINES}, 1e-2},
    {"llama",
     "{\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
     "\"intermediate_size\": 64}",
     {.task = LM, LINES},
     1e-2},
    {"bert",
     "{\"hidden_size\": 32, \"num_hidden_layers\": 1, \"num_attention_heads\": 2, \"hidden_dropout_prob\": 0}",
     {.task = HT_TASK_MASKED_LM, LINES},
     1e-2},
    {"gpt2",
     "{\"n_layer\": 1, \"n_head\": 2, \"n_embd\": 160}", /* rows long enough for epilogues */
     {.task = LM, .batch = 2, .length = 32, .vocabulary = 64},
     1e-2},
};
enum { MODELS = sizeof models / sizeof models[0] };

/* ---- one layer whose input the test knows ---- */

enum { ROWS = 16, INNER = 32, OUTER = 16, HISTORY = 3 };

static const char layer_text[] = "state %w f32[32,16] heading=parameters init=normal(0,0.3) trained\n"
                                 "state %head f32[16,4] heading=parameters init=normal(0,0.3) trained\n"
                                 "segment forward (%x f32[16,32], %label i32[16]) -> (loss=%loss) {\n"
                                 "  %a = matmul f32[16,16] (%x, %w)\n"
                                 "  %t = tanh f32[16,16] (%a)\n"
                                 "  %y = matmul f32[16,4] (%t, %head)\n"
                                 "  %loss, %lse = cross_entropy f32[], f32[16] (%y, %label)\n"
                                 "}\n";

static session_fixture layer_start(const char *accumulate)
{
    session_fixture f = session_begin(2);
    const ht_train_setting training[] = {{"accumulate", accumulate}},
                           planning[] = {{"fp8", "delayed"}, {"fp8_history", "3"}};
    ht_train_opts opts = HT_TRAIN_OPTS;
    ht_plan_opts plan = HT_PLAN_OPTS;
    opts.optimizer = "sgd";
    opts.lr = 0.05;
    opts.settings = training;
    opts.setting_count = 1;
    plan.precision = "bf16";
    plan.settings = planning;
    plan.setting_count = 2;
    ht_graph_free(f.g);
    must(&f, ht_graph_parse(&f.g, f.ctx, "layer", layer_text, strlen(layer_text)));
    must(&f, ht_graph_train(f.g, &opts));
    session_plan(&f, &plan, 7);
    return f;
}

/* A batch whose largest magnitude is `amax`. */
static void write_batch(const session_fixture *f, double amax)
{
    double x[ROWS * INNER], labels[ROWS];
    for (int i = 0; i < ROWS * INNER; i++) x[i] = i == 77 ? -amax : isfinite(amax) ? amax * 0.9 * sin(0.7 * i) : 0.5;
    for (int i = 0; i < ROWS; i++) labels[i] = i % 4;
    must(f, ht_session_write_f64(f->s, "x", x, ROWS * INNER));
    must(f, ht_session_write_f64(f->s, "label", labels, ROWS));
}

static double number(const session_fixture *f, const char *name)
{
    double value;
    must(f, ht_session_read_f64(f->s, name, &value, 1));
    return value;
}

/* The rule once more: the smallest power of two by which the largest of the last steps fits. */
typedef struct expected {
    double history[HISTORY], scale;
} expected;

static void expect_next(expected *e, double amax, double largest_number)
{
    double largest = 0, scale = 0x1p-126;
    if (!(amax > 0) || !isfinite(amax)) return;
    for (int i = HISTORY - 1; i > 0; i--) e->history[i] = e->history[i - 1];
    e->history[0] = (double)(float)amax;
    for (int i = 0; i < HISTORY; i++) largest = fmax(largest, e->history[i]);
    while (largest / scale > largest_number) scale *= 2;
    e->scale = scale;
}

static void check_tensor(const session_fixture *f, const char *tensor, const expected *e, double margin)
{
    char name[64];
    double history[HISTORY];
    snprintf(name, sizeof name, "%s.history", tensor);
    must(f, ht_session_read_f64(f->s, name, history, HISTORY));
    for (int i = 0; i < HISTORY; i++) assert_float_equal(history[i], e->history[i], 0);
    snprintf(name, sizeof name, "%s.scale", tensor);
    assert_float_equal(number(f, name), e->scale * margin, 0);
}

static void scales__follow_the_magnitudes_of_the_last_steps(void **state)
{
    (void)state;
    static const double magnitudes[] = {3, 100, 0.25, 1e-3, 0, 7e-3, 448, 449, INFINITY, 1, NAN, 1.75, 1.76, 1e4};
    session_fixture f = layer_start("1");
    expected x = {0}, dy = {0};
    for (size_t i = 0; i < sizeof magnitudes / sizeof magnitudes[0]; i++) {
        float amax = (float)magnitudes[i];
        double applied = number(&f, "applied"), before[INNER * OUTER], after[INNER * OUTER];
        must(&f, ht_session_read_f64(f.s, "w", before, INNER * OUTER));
        write_batch(&f, (double)amax);
        must(&f, ht_session_run(f.s, "train"));
        double found = number(&f, "w.x.amax");
        assert_true(found == (double)amax || (isnan(found) && isnan(amax)));
        expect_next(&x, (double)amax, 448);
        expect_next(&dy, number(&f, "w.dy.amax"), 57344);
        check_tensor(&f, "w.x", &x, 1);
        check_tensor(&f, "w.dy", &dy, 16);
        /* What is not finite reaches the check through f8: the step is skipped. */
        assert_true(number(&f, "applied") == applied + isfinite(amax));
        must(&f, ht_session_read_f64(f.s, "w", after, INNER * OUTER));
        if (!isfinite(amax)) assert_memory_equal(before, after, sizeof before);
    }
    session_end(&f);
}

static void scales__a_step_takes_the_largest_of_its_micro_batches(void **state)
{
    (void)state;
    static const double magnitudes[][3] = {{1, 5, 2}, {0.5, 0.25, 0.125}, {0, 9, 0}};
    session_fixture f = layer_start("3");
    expected x = {0};
    for (size_t i = 0; i < 3; i++) {
        double largest = 0;
        for (size_t micro = 0; micro < 3; micro++) {
            write_batch(&f, magnitudes[i][micro]);
            must(&f, ht_session_run(f.s, micro ? "micro" : "micro_first"));
            largest = fmax(largest, magnitudes[i][micro]);
            assert_float_equal(number(&f, "w.x.amax"), largest, 0);
        }
        check_tensor(&f, "w.x", &x, 1); /* one step, one entry */
        must(&f, ht_session_run(f.s, "update"));
        expect_next(&x, largest, 448);
        check_tensor(&f, "w.x", &x, 1);
    }
    session_end(&f);
}

/* Weights are scaled by their own magnitude, in the update that writes them. */
static void weights__have_copies_of_what_they_are(void **state)
{
    (void)state;
    session_fixture f = layer_start("1");
    for (int s = 0; s < 4; s++) {
        double w[INNER * OUTER], codes[INNER * OUTER], amax = 0, wanted = 0x1p-126;
        must(&f, ht_session_read_f64(f.s, "w", w, INNER * OUTER));
        must(&f, ht_session_read_f64(f.s, "w.f8", codes, INNER * OUTER));
        double scale = number(&f, "w.f8.scale");
        for (int i = 0; i < INNER * OUTER; i++) amax = fmax(amax, fabs(w[i]));
        while (amax / wanted > 448) wanted *= 2;
        assert_float_equal(scale, wanted, 0);
        for (int i = 0; i < INNER * OUTER; i++) assert_true(codes[i] == ht_round_to(HT_F8E4M3, w[i] / scale));
        write_batch(&f, 2);
        must(&f, ht_session_run(f.s, "train"));
    }
    session_end(&f);
}

/* ---- whole models ---- */

static void losses__stay_near_those_of_bf16(void **state)
{
    (void)state;
    enum { STEPS = 12 };
    const mode plain = {"bf16", "bf16", "none", 0, {{0}}};
    for (size_t i = 0; i < MODELS; i++) {
        double loss[STEPS];
        for (size_t m = 0; m <= FP8_MODES; m++) {
            const mode *in = m ? &fp8_modes[m - 1] : &plain;
            model_fixture w;
            start(&w, &models[i], (how){.mode = in, .threads = 2});
            for (int s = 0; s < STEPS; s++) {
                double now = step(&w);
                if (!m) loss[s] = now;
                if (!(fabs(now - loss[s]) <= in->near * loss[s]))
                    fail_msg("%s in %s, step %d: loss %g, in bf16 %g", models[i].type, in->name, s, now, loss[s]);
            }
            assert_int_equal(model_read_i64(&w, "applied"), STEPS);
            model_stop(&w);
        }
        assert_true(loss[STEPS - 1] < loss[0]);
    }
}

static uint64_t hash_everything(const model_fixture *w)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < w->plan->slot_count; i++) {
        const ht_slot *slot = &w->plan->slots[i];
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        unsigned char *data = malloc(bytes + 1);
        assert_non_null(data);
        model_must(w, ht_session_read(w->s, slot->name, data, bytes));
        hash = ht_hash_bytes(hash, data, bytes);
        free(data);
    }
    return hash;
}

static void bits__do_not_depend_on_fusion_or_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++)
        for (size_t m = 0; m < FP8_MODES; m++) {
            const how ways[] = {{&fp8_modes[m], 1, false}, {&fp8_modes[m], 2, true}, {&fp8_modes[m], 3, false}};
            uint64_t first = 0;
            for (size_t k = 0; k < 3; k++) {
                model_fixture w;
                start(&w, &models[i], ways[k]);
                for (int s = 0; s < 3; s++) step(&w);
                uint64_t hash = hash_everything(&w);
                if (k == 0) first = hash;
                if (hash != first) fail_msg("%s in %s: other bits in way %zu", models[i].type, fp8_modes[m].name, k);
                model_stop(&w);
            }
        }
}

/* ---- the graph ---- */

static size_t count_op(const ht_graph *g, const char *segment, const char *op)
{
    int at = ht_segment_find(g, segment);
    size_t count = 0;
    assert_true(at >= 0);
    for (size_t i = 0; i < g->segments[at].node_count; i++)
        count += strcmp(g->nodes[g->segments[at].nodes[i]].op->name, op) == 0;
    return count;
}

/* A training step of gpt2 after all passes, for a target. */
static void make_step(model_fixture *w, const ht_target *target)
{
    ht_train_opts opts = HT_TRAIN_OPTS;
    ht_pass_options options = ht_pass_options_standard();
    ht_model_request request = models[1].request;
    request.training = true;
    model_must(w, model_graph(w, "gpt2", models[1].json, request, 1));
    model_must(w, ht_graph_train(w->g, &opts));
    options.training = true;
    options.precision.precision = HT_PRECISION_BF16;
    options.precision.fp8 = HT_FP8_DELAYED;
    const ht_pass_env env = {.target = target, .options = &options};
    model_must(w, ht_pipeline_run(w->g, HT_STAGE_PLAN, &env, NULL));
}

static void graph__only_the_products_of_layers_are_in_f8(void **state)
{
    (void)state;
    model_fixture w;
    ht_target target = {.name = "cpu", .threads = 1};
    make_step(&w, &target);
    assert_int_equal(count_op(w.g, "micro_first", "scaled_matmul"), 2 * 4 * 3);
    assert_int_equal(count_op(w.g, "micro_first", "quantize"), 2 * 4 * 2);
    assert_int_equal(count_op(w.g, "micro_first", "matmul"), 3); /* the head */
    assert_int_equal(count_op(w.g, "eval", "scaled_matmul"), 0);
    assert_int_equal(count_op(w.g, "update", "quantize"), 2 * 4);
    assert_int_equal(count_op(w.g, "update", "amax_step"), 2);
    model_stop(&w);
}

/* A library that reads along the inner axis gets codes in both orders, and only such operands. */
static void graph__products_of_a_gpu_read_along_the_inner_axis(void **state)
{
    (void)state;
    model_fixture w;
    ht_target target = {.name = "gpu", .device = HT_DEVICE_CUDA, .libraries = 1u << HT_LIBRARY_CUBLASLT, .threads = 1};
    make_step(&w, &target);
    const ht_graph *g = w.g;
    int micro = ht_segment_find(g, "micro_first");
    assert_int_equal(count_op(g, "micro_first", "quantize_both"), 2 * 4 * 2);
    assert_int_equal(count_op(g, "micro_first", "quantize"), 0);
    for (size_t i = 0; i < g->segments[micro].node_count; i++) {
        const ht_node *n = &g->nodes[g->segments[micro].nodes[i]];
        for (size_t k = 0; strcmp(n->op->name, "scaled_matmul") == 0 && k < 2; k++) {
            const ht_node *view = ht_producer(g, ht_node_in(g, n, k));
            while (view && strcmp(view->op->name, "reshape") == 0) view = ht_producer(g, ht_node_in(g, view, 0));
            bool turned = view && strcmp(view->op->name, "permute") == 0, inner_last = k ? n->attr[1].i : !n->attr[0].i;
            assert_true(turned == !inner_last);
        }
    }
    model_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scales__follow_the_magnitudes_of_the_last_steps),
        cmocka_unit_test(scales__a_step_takes_the_largest_of_its_micro_batches),
        cmocka_unit_test(weights__have_copies_of_what_they_are),
        cmocka_unit_test(losses__stay_near_those_of_bf16),
        cmocka_unit_test(bits__do_not_depend_on_fusion_or_threads),
        cmocka_unit_test(graph__only_the_products_of_layers_are_in_f8),
        cmocka_unit_test(graph__products_of_a_gpu_read_along_the_inner_axis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
