/* Models whose layers are in 8 bits: losses near f32's, the same bits however it is planned and run, codes that stand alone, and
 * devices without such kernels. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model_fixture.h"
#include "small_models.h"

/* Sizes beside tiles, and rows long enough for epilogues. */
static const small_model models[] = {
    {"mlp", "{\"hidden\": [150, 140]}", {.task = CLASS, DIGITS}, 0},
    {"gpt2",
     "{\"n_layer\": 2, \"n_head\": 2, \"n_embd\": 144}",
     {.task = LM, .batch = 2, .length = 40, .vocabulary = 210},
     0},
    {"llama",
     "{\"hidden_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, \"num_key_value_heads\": 2}",
     {.task = LM, SEQUENCES},
     0},
    {"bert",
     "{\"hidden_size\": 32, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"hidden_dropout_prob\": 0}",
     {.task = HT_TASK_MASKED_LM, SEQUENCES},
     0},
};
enum { MODELS = sizeof models / sizeof models[0] };
static const ht_train_setting dynamic[] = {{"quantize", "dynamic"}, {"quantize_weights", "stored"}};

static const ht_train_setting fixed[] = {{"quantize", "static"}};

typedef struct planning {
    bool quantize, stored, no_fusion;
    int threads;
    bool fixed; /* static activations */
} planning;

/* Graph, plan, session and inputs. */
static void start(model_fixture *w, const small_model *m, planning p)
{
    ht_plan_opts opts = HT_PLAN_OPTS;
    ht_session_opts session = HT_SESSION_OPTS;
    ht_model_request request = m->request;
    request.logits = true;
    session.seed = 7;
    opts.no_fusion = p.no_fusion;
    opts.settings = p.fixed ? fixed : dynamic;
    opts.setting_count = p.quantize ? (p.stored ? 2 : 1) : 0;
    model_must(w, model_graph(w, m->type, m->json, request, p.threads));
    model_must(w, ht_plan_create(&w->plan, w->g, &opts));
    model_must(w, ht_session_create(&w->s, w->plan, &session));
    model_write_inputs(w, "eval");
}

static float loss(model_fixture *w)
{
    model_must(w, ht_session_run(w->s, "eval"));
    return model_read_f32(w, "loss");
}

static size_t count_kernels(const model_fixture *w, const char *segment, const char *part)
{
    const ht_plan_segment *s = &w->plan->segments[ht_plan_segment_find(w->plan, segment)];
    size_t count = 0;
    for (size_t i = 0; i < s->instr_count; i++) count += s->instrs[i].kernel && strstr(s->instrs[i].kernel->name, part);
    return count;
}

static void losses__are_near_those_of_f32(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        model_fixture f32, i8;
        start(&f32, &models[i], (planning){.threads = 2});
        start(&i8, &models[i], (planning){.quantize = true, .threads = 2});
        float want = loss(&f32), got = loss(&i8);
        assert_true(count_kernels(&i8, "eval", "matmul_q") > 0);
        if (!(fabsf(got - want) < 0.003f * fabsf(want))) fail_msg("%s: %g, in f32 %g", models[i].type, got, want);
        model_stop(&f32);
        model_stop(&i8);
    }
}

/* Weights are prepacked from the second run on. */
static void bits__are_the_same_however_it_runs(void **state)
{
    (void)state;
    static const planning ways[] = {{.quantize = true, .no_fusion = true, .threads = 1},
                                    {.quantize = true, .threads = 1},
                                    {.quantize = true, .threads = 3}};
    for (size_t i = 0; i < MODELS; i++) {
        float first = 0;
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            model_fixture w;
            start(&w, &models[i], ways[k]);
            float once = loss(&w), again = loss(&w), third = loss(&w);
            if (k == 0) first = once;
            assert_true(once == first && again == first && third == first);
            model_stop(&w);
        }
    }
}

/* Every state of `to` is one of `from`, by name. */
static void copy_state(const model_fixture *from, const model_fixture *to)
{
    for (size_t i = 0; i < to->plan->slot_count; i++) {
        const ht_slot *slot = &to->plan->slots[i];
        if (slot->kind != HT_SLOT_STATE) continue;
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        void *data = malloc(bytes + 1);
        assert_non_null(data);
        model_must(from, ht_session_read(from->s, slot->name, data, bytes));
        model_must(to, ht_session_write(to->s, slot->name, data, bytes));
        free(data);
    }
}

static int64_t state_bytes(const model_fixture *w)
{
    int64_t bytes = 0;
    for (size_t i = 0; i < w->plan->slot_count; i++)
        if (w->plan->slots[i].kind == HT_SLOT_STATE) bytes += ht_type_bytes(&w->plan->slots[i].type);
    return bytes;
}

static void codes__are_a_model_of_their_own(void **state)
{
    (void)state;
    for (size_t i = 0; i < MODELS; i++) {
        model_fixture f32, derived, stored;
        start(&f32, &models[i], (planning){.threads = 2});
        start(&derived, &models[i], (planning){.quantize = true, .threads = 2});
        start(&stored, &models[i], (planning){.quantize = true, .stored = true, .threads = 2});
        copy_state(&derived, &stored);
        assert_true(loss(&stored) == loss(&derived));
        assert_true(state_bytes(&stored) < state_bytes(&f32));
        model_stop(&f32);
        model_stop(&derived);
        model_stop(&stored);
    }
}

/* Codes follow the weights that they are made of. */
static void codes__are_made_again_when_a_weight_is_written(void **state)
{
    (void)state;
    model_fixture w;
    start(&w, &models[0], (planning){.quantize = true, .threads = 1});
    float before = loss(&w);
    const ht_slot *slot = NULL;
    for (size_t i = 0; i < w.plan->slot_count && !slot; i++)
        if (w.plan->slots[i].kind == HT_SLOT_STATE && w.plan->slots[i].type.rank == 2 && !w.plan->slots[i].derived)
            slot = &w.plan->slots[i];
    assert_non_null(slot);
    size_t n = (size_t)ht_type_elems(&slot->type);
    float *weight = malloc(n * sizeof *weight);
    assert_non_null(weight);
    model_must(&w, ht_session_read(w.s, slot->name, weight, n * sizeof *weight));
    for (size_t i = 0; i < n; i++) weight[i] *= -3;
    model_must(&w, ht_session_write(w.s, slot->name, weight, n * sizeof *weight));
    assert_true(loss(&w) != before);
    for (size_t i = 0; i < n; i++) weight[i] /= -3;
    model_must(&w, ht_session_write(w.s, slot->name, weight, n * sizeof *weight));
    assert_true(loss(&w) == before);
    free(weight);
    model_stop(&w);
}

/* Ranges as calibration could have found them. */
static void write_ranges(model_fixture *w)
{
    for (size_t i = 0; i < w->plan->slot_count; i++) {
        const char *name = w->plan->slots[i].name;
        const float scale = 0.03f;
        const int32_t zero = 100;
        if (strstr(name, ".in_scale")) model_must(w, ht_session_write(w->s, name, &scale, sizeof scale));
        if (strstr(name, ".in_zero")) model_must(w, ht_session_write(w->s, name, &zero, sizeof zero));
    }
}

static void static_bits__are_the_same_however_it_runs(void **state)
{
    (void)state;
    static const planning ways[] = {
        {true, false, true, 1, true}, {true, false, false, 1, true}, {true, false, false, 3, true}};
    for (size_t i = 0; i < MODELS; i++) {
        float first = 0;
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            model_fixture w;
            start(&w, &models[i], ways[k]);
            write_ranges(&w);
            float once = loss(&w);
            if (k == 0) first = once;
            assert_true(once == first && loss(&w) == first && isfinite(first));
            model_stop(&w);
        }
    }
}

/* Bias, activation and the next layer's codes are the epilogue of a product: only the model's input is made codes of by itself. */
static void static_codes__flow_between_layers(void **state)
{
    (void)state;
    model_fixture w;
    size_t codes = 0, products = 0;
    start(&w, &models[0], (planning){.quantize = true, .threads = 1, .fixed = true});
    const ht_plan_segment *s = &w.plan->segments[ht_plan_segment_find(w.plan, "eval")];
    for (size_t i = 0; i < s->instr_count; i++) {
        if (strcmp(ht_instr_op(&s->instrs[i]), "matmul_q") != 0) continue;
        products++;
        codes += s->instrs[i].call->out[0]->dtype == HT_U8;
    }
    assert_int_equal(products, 3);
    assert_int_equal(codes, 2);
    assert_int_equal(count_kernels(&w, "eval", "quantize_linear"), 1);
    model_stop(&w);
}

/* A NaN among the activations of a row is not lost. */
static void nan__reaches_the_loss(void **state)
{
    (void)state;
    model_fixture w;
    start(&w, &models[0], (planning){.quantize = true, .threads = 1});
    double x[6 * 28 * 28];
    for (size_t i = 0; i < 6 * 28 * 28; i++) x[i] = i == 28 * 28 + 5 ? NAN : 0.5;
    model_must(&w, ht_session_write_f64(w.s, "x", x, 6 * 28 * 28));
    assert_true(isnan(loss(&w)));
    model_stop(&w);
}

static void gpus__are_refused_by_the_name_of_the_op(void **state)
{
    (void)state;
    model_fixture w;
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.settings = dynamic;
    opts.setting_count = 1;
    opts.target = "{\"arch\": \"x86_64\", \"isa\": \"avx512\", \"device\": \"cuda\", \"threads\": 2}";
    model_must(&w, model_graph(&w, "lenet", "{}", (ht_model_request){.task = CLASS, DIGITS}, 1));
    assert_int_equal(ht_plan_create(&w.plan, w.g, &opts), HT_ENOTSUP);
    assert_non_null(strstr(ht_context_message(w.ctx), "conv_q"));
    assert_non_null(strstr(ht_context_message(w.ctx), "no kernel for it"));
    model_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses__are_near_those_of_f32),
        cmocka_unit_test(bits__are_the_same_however_it_runs),
        cmocka_unit_test(codes__are_a_model_of_their_own),
        cmocka_unit_test(codes__are_made_again_when_a_weight_is_written),
        cmocka_unit_test(static_bits__are_the_same_however_it_runs),
        cmocka_unit_test(static_codes__flow_between_layers),
        cmocka_unit_test(nan__reaches_the_loss),
        cmocka_unit_test(gpus__are_refused_by_the_name_of_the_op),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
