/* Precision on whole models: every architecture in every mode, random graphs, and the same bits however it is planned. */
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
#include "random_graph.h"

enum { STEPS = 3 };

static void train__every_model_in_every_mode_follows_fp32(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++) {
        double plain[STEPS];
        /* Batch norms over four numbers, fifty deep: what fp32 and fp64 make of it parts after a step. */
        bool wild = strstr(small[i].json, "\"depth\": 50") != NULL;
        for (size_t m = 0; m <= MODES; m++) {
            model_fixture w;
            if (m && !is_tried(i, m - 1)) continue;
            const mode *in = m ? &modes[m - 1] : NULL;
            start(&w, &small[i], (how){.mode = in, .threads = 2});
            for (int s = 0; s < STEPS; s++) {
                double loss = step(&w), far = in ? fabs(loss - plain[s]) : 0;
                if (!in) plain[s] = loss;
                if (!isfinite(loss) || (in && !wild && far > in->near * fabs(plain[s])))
                    fail_msg("%s %s in %s, step %d: loss %g, in fp32 %g", small[i].type, small[i].json,
                             in ? in->name : "fp32", s, loss, plain[s]);
            }
            bool moves = in && strcmp(in->loss_scale, "dynamic") == 0; /* and begins where some gradients overflow */
            if (!wild) assert_true(model_read_i64(&w, "applied") >= (moves ? 1 : STEPS));
            model_stop(&w);
        }
    }
}

/* ---- the same bits ---- */

static uint64_t hash_everything(const model_fixture *w)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < w->plan->slot_count; i++) {
        const ht_slot *slot = &w->plan->slots[i];
        size_t bytes = (size_t)ht_type_bytes(&slot->type);
        unsigned char *data = malloc(bytes + 1);
        assert_non_null(data);
        model_must(w, ht_session_read(w->s, slot->name, data, bytes));
        for (size_t k = 0; k < bytes; k++) hash = (hash ^ data[k]) * 0x100000001b3u;
        free(data);
    }
    return hash;
}

static void same_bits(const small_model *model, const mode *in)
{
    const how ways[] = {{in, 1, false}, {in, 2, true}, {in, 3, false}};
    uint64_t first = 0;
    for (size_t k = 0; k < sizeof ways / sizeof ways[0]; k++) {
        model_fixture w;
        start(&w, model, ways[k]);
        for (int s = 0; s < 2; s++) step(&w);
        uint64_t hash = hash_everything(&w);
        if (k == 0) first = hash;
        if (hash != first)
            fail_msg("%s %s in %s: %s fusion and %d threads give other bits", model->type, model->json, in->name,
                     ways[k].no_fusion ? "no" : "with", ways[k].threads);
        model_stop(&w);
    }
}

static void bits__do_not_depend_on_fusion_or_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++)
        for (size_t m = 1; m < MODES; m++)
            if (is_tried(i, m)) same_bits(&small[i], &modes[m]);
}

/* Products of a size for which kernels pack their operands and hand tiles to what follows. */
static void bits__of_large_products_do_not_depend_on_them_either(void **state)
{
    (void)state;
    static const small_model large[] = {
        {"gpt2",
         "{\"n_layer\": 1, \"n_head\": 2, \"n_embd\": 96}",
         {.task = LM, .batch = 5, .length = 33, .vocabulary = 131},
         1e-2},
        {"seq2seq",
         "{\"hidden\": 72, \"layers\": 1}",
         {.task = HT_TASK_PAIRS,
          .batch = 17,
          .length = 6,
          .source_length = 7,
          .vocabulary = 111,
          .source_vocabulary = 90},
         1e-2},
    };
    for (size_t i = 0; i < 2; i++)
        for (size_t m = 1; m < MODES; m++) same_bits(&large[i], &modes[m]);
}

/* ---- any graph ---- */

static ht_status plan_random(ht_plan **plan, const ht_graph *g, const char *precision, bool no_fusion)
{
    ht_plan_opts opts = HT_PLAN_OPTS;
    opts.precision = precision;
    opts.no_fusion = no_fusion;
    opts.canaries = true;
    return ht_plan_create(plan, g, &opts);
}

static void fill_inputs(ht_session *s, const ht_plan *plan)
{
    for (size_t k = 0; k < plan->slot_count; k++) {
        const ht_slot *slot = &plan->slots[k];
        int64_t n = ht_type_elems(&slot->type);
        if (slot->kind != HT_SLOT_INPUT) continue;
        double *data = malloc((size_t)(n + 1) * sizeof *data);
        assert_non_null(data);
        for (int64_t i = 0; i < n; i++) data[i] = 3 * sin(1.7 * (double)i + (double)k);
        assert_int_equal(ht_session_write_f64(s, slot->name, data, (size_t)n), HT_OK);
        free(data);
    }
}

/* NaN is NaN, whichever. */
static bool same_slot(const ht_slot *slot, const ht_session *const *s)
{
    size_t bytes = (size_t)ht_type_bytes(&slot->type);
    ht_dtype dtype = slot->type.dtype;
    char *a = malloc(bytes + 1), *b = malloc(bytes + 1);
    bool same = true;
    assert_true(a && b);
    assert_int_equal(ht_session_read(s[0], slot->name, a, bytes), HT_OK);
    assert_int_equal(ht_session_read(s[1], slot->name, b, bytes), HT_OK);
    for (int64_t i = 0; memcmp(a, b, bytes) != 0 && i < ht_type_elems(&slot->type); i++) {
        int64_t at = i * (int64_t)ht_dtype_bytes(dtype);
        same &= memcmp(a + at, b + at, ht_dtype_bytes(dtype)) == 0 ||
                (isnan(ht_load_f64(a, dtype, i)) && isnan(ht_load_f64(b, dtype, i)));
    }
    free(a);
    free(b);
    return same;
}

static void run_random(ht_context *ctx, const ht_graph *g, const char *precision, uint64_t seed)
{
    ht_plan *plan[2];
    ht_session *s[2];
    for (int i = 0; i < 2; i++) {
        if (plan_random(&plan[i], g, precision, i) != HT_OK || ht_session_create(&s[i], plan[i], NULL) != HT_OK)
            fail_msg("graph %llu in %s: %s", (unsigned long long)seed, precision, ht_context_message(ctx));
        fill_inputs(s[i], plan[i]);
        for (int step = 0; step < 2; step++) assert_int_equal(ht_session_run(s[i], "train"), HT_OK);
    }
    for (size_t k = 0; k < plan[0]->slot_count; k++)
        if (!same_slot(&plan[0]->slots[k], (const ht_session *const *)s))
            fail_msg("graph %llu in %s: %s differs without fusion", (unsigned long long)seed, precision,
                     plan[0]->slots[k].name);
    for (int i = 0; i < 2; i++) {
        ht_session_free(s[i]);
        ht_plan_free(plan[i]);
    }
}

/* What plans in fp32 plans in every precision, and gives the same bits with fusion and without. */
static void any_graph__plans_in_every_precision(void **state)
{
    (void)state;
    static const char *const precisions[] = {"fp16", "bf16", "fp64"};
    ht_context *ctx = context_create(0, NULL);
    size_t planned = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        ht_graph *g = random_graph_build(ctx, seed, 10 + seed % 90);
        ht_plan *plan;
        assert_non_null(g);
        /* Random graphs give inputs random first values, which only the interpreter knows. */
        for (size_t i = 0; i < g->input_init_capacity; i++) g->input_inits[i] = HT_ZERO;
        if (plan_random(&plan, g, NULL, false) == HT_OK) {
            ht_plan_free(plan);
            planned++;
            for (size_t p = 0; p < 3; p++) run_random(ctx, g, precisions[p], seed);
        }
        ht_graph_free(g);
    }
    assert_true(planned > 100);
    ht_context_free(ctx);
}

/* ---- single precisions ---- */

/* bf16 has f32's exponents: a power of two moves no digit of a gradient there. */
static void loss_scale__changes_no_bit_in_bf16(void **state)
{
    (void)state;
    static const mode scaled = {"bf16, scale 1024", "bf16", "1024", 0, {{0}}};
    enum { N = 13 * 16 };
    float table[2][N];
    for (int k = 0; k < 2; k++) {
        model_fixture w;
        start(&w, &small[12], (how){.mode = k ? &scaled : &modes[3], .threads = 2});
        for (int s = 0; s < 3; s++) step(&w);
        model_must(&w, ht_session_read(w.s, "transformer.wte.weight", table[k], sizeof table[k]));
        model_stop(&w);
    }
    assert_memory_equal(table[0], table[1], sizeof table[0]);
}

static double loss_with(const model_fixture *w, const char *name, double *data, size_t n, size_t at, double value)
{
    double before = data[at];
    data[at] = value;
    model_must(w, ht_session_write_f64(w->s, name, data, n));
    data[at] = before;
    model_must(w, ht_session_run(w->s, "micro_first"));
    return read_number(w, "loss");
}

/* Differences of losses that any f32 on the way would drown. */
static void precision__fp64_is_f64_throughout(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        {"gpt2", "transformer.h.0.attn.c_attn.weight"}, {"gpt2", "transformer.wte.weight"},
        {"gpt2", "transformer.h.1.ln_2.bias"},          {"llama", "model.layers.1.mlp.down_proj.weight"},
        {"seq2seq", "encoder.rnn.weight_hh_l0"},        {"lenet", "conv1.weight"}};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        model_fixture w;
        size_t model = 0;
        char grad[128];
        while (strcmp(small[model].type, names[k][0]) != 0) model++;
        start(&w, &small[model], (how){.mode = &modes[0], .threads = 2});
        model_write_f32(&w, "loss_grad", 1);
        const ht_slot *slot = ht_plan_slot(w.plan, names[k][1]);
        if (!slot) fail_msg("%s has no %s", names[k][0], names[k][1]);
        size_t n = (size_t)ht_type_elems(&slot->type), at = n / 3;
        double *data = malloc(n * sizeof *data), *slope = malloc(n * sizeof *slope);
        assert_true(data && slope);
        snprintf(grad, sizeof grad, "%s.grad", names[k][1]);
        model_must(&w, ht_session_read_f64(w.s, names[k][1], data, n));
        model_must(&w, ht_session_run(w.s, "micro_first"));
        model_must(&w, ht_session_read_f64(w.s, grad, slope, n));
        double up = loss_with(&w, names[k][1], data, n, at, data[at] + 1e-5);
        double measured = (up - loss_with(&w, names[k][1], data, n, at, data[at] - 1e-5)) / 2e-5;
        if (!(fabs(measured - slope[at]) <= 1e-7 * (fabs(slope[at]) + 0.1)))
            fail_msg("%s: the slope is %.12g, the gradient says %.12g", names[k][1], measured, slope[at]);
        free(data);
        free(slope);
        model_stop(&w);
    }
}

static void precision__fp32_is_what_no_precision_is(void **state)
{
    (void)state;
    uint64_t hash[2];
    static const mode plain = {"fp32", "fp32", "none", 0, {{0}}};
    for (int named = 0; named < 2; named++) {
        model_fixture w;
        start(&w, &small[12], (how){.mode = named ? &plain : NULL, .threads = 2});
        for (int s = 0; s < 2; s++) step(&w);
        hash[named] = hash_everything(&w);
        model_stop(&w);
    }
    assert_true(hash[0] == hash[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train__every_model_in_every_mode_follows_fp32),
        cmocka_unit_test(bits__do_not_depend_on_fusion_or_threads),
        cmocka_unit_test(bits__of_large_products_do_not_depend_on_them_either),
        cmocka_unit_test(any_graph__plans_in_every_precision),
        cmocka_unit_test(loss_scale__changes_no_bit_in_bf16),
        cmocka_unit_test(precision__fp64_is_f64_throughout),
        cmocka_unit_test(precision__fp32_is_what_no_precision_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
