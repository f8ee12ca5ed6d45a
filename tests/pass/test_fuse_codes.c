/* Networks of convolutions in 8 bits with ranges from a run in f32: losses near f32's, codes from the first convolution to the last,
 * and the same bits however it is planned and run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_fixture.h"
#include "small_models.h"

/* Pools, residuals with and without convolutions of their own, depthwise convolutions, clips. */
static const small_model models[] = {
    {"lenet", "{\"activation\": \"relu\"}", {.task = CLASS, DIGITS}, 0},
    {"resnet", "{\"width\": 16}", {.task = CLASS, IMAGES}, 0},
    {"resnet", "{\"width\": 8, \"depth\": 50, \"stem\": \"cifar\"}", {.task = CLASS, IMAGES}, 0},
    {"mobilenet_v2", "{\"width_mult\": 0.5, \"stem\": \"cifar\", \"dropout\": 0}", {.task = CLASS, IMAGES}, 0},
};
enum { MODELS = sizeof models / sizeof models[0], MOST_LAYERS = 64 };

/* What a layer read in f32. */
typedef struct range {
    char weight[128];
    float scale;
    int32_t zero;
} range;

typedef struct ranges {
    range layer[MOST_LAYERS];
    size_t count, convolutions;
} ranges;

typedef struct planning {
    const char *quantize; /* NULL: f32 */
    bool no_fusion;
    int threads;
} planning;

static const ht_node *layer_at(const model_fixture *w, uint32_t segment, size_t i)
{
    const ht_node *n = &w->g->nodes[w->g->segments[segment].nodes[i]];
    bool layer = strcmp(n->op->name, "conv2d") == 0 || strcmp(n->op->name, "matmul") == 0;
    return layer && ht_state_of(w->g, ht_node_in(w->g, n, 1)) ? n : NULL;
}

static const char *weight_of(const model_fixture *w, const ht_node *n)
{
    return ht_value_of(w->g, ht_node_in(w->g, n, 1))->name;
}

/* What layers read leaves the graph as outputs. */
static void show_inputs(model_fixture *w)
{
    uint32_t segment = (uint32_t)ht_segment_find(w->g, "eval"), resume = w->g->segment;
    w->g->segment = segment;
    for (size_t i = 0; i < w->g->segments[segment].node_count; i++) {
        char name[160];
        const ht_node *n = layer_at(w, segment, i);
        if (!n || ht_value_of(w->g, ht_node_in(w->g, n, 0))->kind != HT_VALUE_RESULT) continue;
        snprintf(name, sizeof name, "in:%s", weight_of(w, n));
        ht_output(w->g, name, ht_node_in(w->g, n, 0));
    }
    w->g->segment = resume;
}

static void start(model_fixture *w, const small_model *m, planning p, bool shows)
{
    ht_plan_opts opts = HT_PLAN_OPTS;
    ht_session_opts session = HT_SESSION_OPTS;
    ht_train_setting setting = {"quantize", p.quantize};
    session.seed = 7;
    opts.no_fusion = p.no_fusion;
    opts.settings = &setting;
    opts.setting_count = p.quantize != NULL;
    model_must(w, model_graph(w, m->type, m->json, m->request, p.threads));
    if (shows) show_inputs(w);
    model_must(w, ht_plan_create(&w->plan, w->g, &opts));
    model_must(w, ht_session_create(&w->s, w->plan, &session));
    model_write_inputs(w, "eval");
}

static float loss(model_fixture *w)
{
    model_must(w, ht_session_run(w->s, "eval"));
    return model_read_f32(w, "loss");
}

static size_t count_kernels(const model_fixture *w, const char *part)
{
    const ht_plan_segment *s = &w->plan->segments[ht_plan_segment_find(w->plan, "eval")];
    size_t count = 0;
    for (size_t i = 0; i < s->instr_count; i++) count += s->instrs[i].kernel && strstr(s->instrs[i].kernel->name, part);
    return count;
}

/* u8 from the least to the largest number, 0 included. */
static range range_of(const model_fixture *w, const ht_node *n)
{
    range r = {.zero = 128, .scale = 1.0f / 127}; /* of the model's input, which lies within ±1 */
    char name[160];
    snprintf(r.weight, sizeof r.weight, "%s", weight_of(w, n));
    if (ht_value_of(w->g, ht_node_in(w->g, n, 0))->kind != HT_VALUE_RESULT) return r;
    int64_t elems = ht_type_elems(ht_type_of(w->g, ht_node_in(w->g, n, 0)));
    float *x = malloc((size_t)elems * sizeof *x), low = 0, high = 0;
    assert_non_null(x);
    snprintf(name, sizeof name, "in:%s", r.weight);
    model_must(w, ht_session_read(w->s, name, x, (size_t)elems * sizeof *x));
    for (int64_t i = 0; i < elems; i++) {
        low = x[i] < low ? x[i] : low;
        high = x[i] > high ? x[i] : high;
    }
    r.scale = (high - low) / 255;
    r.zero = (int32_t)lrintf(-low / r.scale);
    free(x);
    return r;
}

/* The loss in f32 and what layers read there. */
static float calibrate(const small_model *m, ranges *to)
{
    model_fixture w;
    start(&w, m, (planning){.threads = 2}, true);
    float value = loss(&w);
    uint32_t segment = (uint32_t)ht_segment_find(w.g, "eval");
    *to = (ranges){0};
    for (size_t i = 0; i < w.g->segments[segment].node_count; i++) {
        const ht_node *n = layer_at(&w, segment, i);
        if (!n) continue;
        assert_true(to->count < MOST_LAYERS);
        to->convolutions += strcmp(n->op->name, "conv2d") == 0;
        to->layer[to->count++] = range_of(&w, n);
    }
    model_stop(&w);
    return value;
}

/* Layers that read what another one reads have its range. */
static void write_ranges(const model_fixture *w, const ranges *from)
{
    const ht_plan *plan = w->plan;
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        const char *end = slot->name ? strstr(slot->name, ".in_scale") : NULL;
        char zero[200];
        range r = {.scale = 0};
        if (slot->kind != HT_SLOT_STATE || !end) continue;
        for (size_t k = 0; k < from->count; k++)
            if (strncmp(from->layer[k].weight, slot->name, (size_t)(end - slot->name)) == 0 &&
                strlen(from->layer[k].weight) == (size_t)(end - slot->name))
                r = from->layer[k];
        assert_true(r.scale > 0);
        snprintf(zero, sizeof zero, "%.*s.in_zero", (int)(end - slot->name), slot->name);
        model_must(w, ht_session_write(w->s, slot->name, &r.scale, sizeof r.scale));
        model_must(w, ht_session_write(w->s, zero, &r.zero, sizeof r.zero));
    }
}

static void losses__are_near_those_of_f32(void **state)
{
    (void)state;
    static const char *const kinds[] = {"static", "dynamic"};
    for (size_t i = 0; i < MODELS; i++) {
        ranges r;
        float want = calibrate(&models[i], &r);
        for (size_t k = 0; k < 2; k++) {
            model_fixture w;
            start(&w, &models[i], (planning){.quantize = kinds[k], .threads = 2}, false);
            if (k == 0) write_ranges(&w, &r);
            float got = loss(&w);
            if (!(fabsf(got - want) < 0.02f * fabsf(want)))
                fail_msg("%s, %s: %g, in f32 %g", models[i].type, kinds[k], got, want);
            assert_true(count_kernels(&w, "conv_q") == r.convolutions);
            model_stop(&w);
        }
    }
}

/* One quantize_linear for the pictures, and one for the linear layer at the end. */
static void codes__flow_from_the_first_convolution_to_the_last(void **state)
{
    (void)state;
    for (size_t i = 1; i < MODELS; i++) {
        model_fixture w;
        start(&w, &models[i], (planning){.quantize = "static", .threads = 2}, false);
        assert_true(count_kernels(&w, "quantize_linear") == 2);
        assert_true(count_kernels(&w, "dequantize_linear") == 0);
        model_stop(&w);
    }
}

/* Weights are prepacked from the second run on. */
static void bits__are_the_same_however_it_runs(void **state)
{
    (void)state;
    static const planning ways[] = {{"static", true, 1}, {"static", false, 1}, {"static", false, 3}};
    for (size_t i = 0; i < MODELS; i++) {
        ranges r;
        float first = 0;
        calibrate(&models[i], &r);
        for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
            model_fixture w;
            start(&w, &models[i], ways[k], false);
            write_ranges(&w, &r);
            float once = loss(&w), again = loss(&w), third = loss(&w);
            if (k == 0) first = once;
            assert_true(once == first && again == first && third == first);
            model_stop(&w);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(losses__are_near_those_of_f32),
        cmocka_unit_test(codes__flow_from_the_first_convolution_to_the_last),
        cmocka_unit_test(bits__are_the_same_however_it_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
