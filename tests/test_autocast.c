/* Precision as a policy of planning, on whole models: every architecture in every mode, the same bits however it is
 * planned, copies that follow their masters, what the policy's settings do and refuse, and the bytes of a large model. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "graph_dice.h"
#include "model_world.h"
#include "plan/plan.h"
#include "small_models.h"

enum { MAX_SETTINGS = 4, STEPS = 3 };

typedef struct mode {
    const char *name, *precision, *loss_scale;
    double near; /* how far a loss may be from fp32's, as a part of it */
    ht_train_setting settings[MAX_SETTINGS];
} mode;

static const mode modes[] = {
    {"fp64", "fp64", "none", 1e-2, {{0}}},
    {"fp16, scale 1024", "fp16", "1024", 0.02, {{0}}},
    {"fp16, dynamic", "fp16", "dynamic", 0.02, {{0}}},
    {"bf16", "bf16", "none", 0.1, {{0}}},
    {"bf16, f32 residual", "bf16", "none", 0.1, {{"residual", "f32"}}},
    {"fp16, f32 products", "fp16", "1024", 0.02, {{"fp32_ops", "matmul,conv2d,lstm,attention"}}},
    {"bf16, f32 parameters", "bf16", "none", 0.1, {{"fp32_params", "weight|table|[0-9]$"}}},
    {"bf16, half gradients and moments", "bf16", "none", 0.1, {{"gradients", "half"}, {"moments", "half"}}},
    {"fp16, pure", "fp16", "1024", 0.03, {{"masters", "0"}}},
    {"bf16, pure, rounded by chance", "bf16", "none", 0.15, {{"masters", "0"}, {"rounding", "stochastic"}}},
    {"bf16, all half", "bf16", "none", 0.15, {{"masters", "0"}, {"gradients", "half"}, {"moments", "half"}}},
};
enum { MODES = sizeof modes / sizeof modes[0] };

/* Deep networks of images take long: a few modes must do. */
static bool is_tried(size_t model, size_t m)
{
    bool deep = strstr("resnet mobilenet_v2", small[model].type) != NULL;
    return !deep || m == 0 || m == 1 || m == 3 || m + 1 == MODES;
}

typedef struct how {
    const mode *mode; /* NULL: fp32 */
    int threads;
    bool no_fusion;
} how;

static void start(model_world *w, const small_model *model, how h)
{
    ht_train_opts opts = HT_TRAIN_OPTS;
    ht_plan_opts planning = HT_PLAN_OPTS;
    ht_train_setting scale = {"loss_scale", h.mode ? h.mode->loss_scale : "none"};
    opts.lr = model->lr / 4;
    opts.clip = 1;
    opts.settings = &scale;
    opts.setting_count = 1;
    planning.no_fusion = h.no_fusion;
    planning.canaries = true;
    if (h.mode) {
        planning.precision = h.mode->precision;
        planning.settings = h.mode->settings;
        while (planning.setting_count < MAX_SETTINGS && h.mode->settings[planning.setting_count].key)
            planning.setting_count++;
    }
    model_start_planned(w, model->type, model->json, model->request, &opts, &planning, h.threads);
    model_write_f32(w, "seed", 0.05f);
}

static double read_number(const model_world *w, const char *name)
{
    double value = 0;
    model_must(w, ht_session_read_f64(w->s, name, &value, 1));
    return value;
}

/* One training step; its loss per target. */
static double step(const model_world *w)
{
    model_must(w, ht_session_run(w->s, "train"));
    int64_t count = model_read_i64(w, "count");
    assert_true(count > 0);
    model_write_f32(w, "seed", 1 / (float)count);
    return read_number(w, "loss") / (double)count;
}

static void train__every_model_in_every_mode_follows_fp32(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++) {
        double plain[STEPS];
        /* Batch norms over four numbers, fifty deep: what fp32 and fp64 make of it parts after a step. */
        bool wild = strstr(small[i].json, "\"depth\": 50") != NULL;
        for (size_t m = 0; m <= MODES; m++) {
            model_world w;
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

static uint64_t hash_everything(const model_world *w)
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
        model_world w;
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

static ht_status plan_dice(ht_plan **plan, const ht_graph *g, const char *precision, bool no_fusion)
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

static void run_dice(ht_context *ctx, const ht_graph *g, const char *precision, uint64_t seed)
{
    ht_plan *plan[2];
    ht_session *s[2];
    for (int i = 0; i < 2; i++) {
        if (plan_dice(&plan[i], g, precision, i) != HT_OK || ht_session_create(&s[i], plan[i], NULL) != HT_OK)
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
    ht_context *ctx;
    size_t planned = 0;
    assert_int_equal(ht_context_create(&ctx, NULL), HT_OK);
    for (uint64_t seed = 0; seed < 200; seed++) {
        ht_graph *g = graph_dice_build(ctx, seed, 10 + seed % 90);
        ht_plan *plan;
        assert_non_null(g);
        /* The dice give inputs random first values, which only the interpreter knows. */
        for (size_t i = 0; i < g->input_init_room; i++) g->input_inits[i] = HT_ZERO;
        if (plan_dice(&plan, g, NULL, false) == HT_OK) {
            ht_plan_free(plan);
            planned++;
            for (size_t p = 0; p < 3; p++) run_dice(ctx, g, precisions[p], seed);
        }
        ht_graph_free(g);
    }
    assert_true(planned > 100);
    ht_context_free(ctx);
}

/* ---- copies ---- */

/* Returns how many copies there are. */
static size_t check_copies(const model_world *w, ht_dtype half)
{
    size_t count = 0;
    for (size_t i = 0; i < w->plan->slot_count; i++) {
        const ht_slot *copy = &w->plan->slots[i];
        size_t length = strlen(copy->name), n = (size_t)ht_type_elems(&copy->type);
        char name[256];
        if (!copy->derived || copy->type.rank < 2) continue;
        assert_string_equal(copy->name + length - 5, ".half");
        snprintf(name, sizeof name, "%.*s", (int)length - 5, copy->name);
        double *a = malloc((n + 1) * sizeof *a), *b = malloc((n + 1) * sizeof *b);
        assert_true(a && b);
        model_must(w, ht_session_read_f64(w->s, copy->name, a, n));
        model_must(w, ht_session_read_f64(w->s, name, b, n));
        for (size_t k = 0; k < n; k++)
            if (a[k] != ht_round_to(half, b[k]))
                fail_msg("%s[%zu] is %g, its master is %.9g", copy->name, k, a[k], b[k]);
        free(a);
        free(b);
        count++;
    }
    return count;
}

static void copies__follow_their_masters(void **state)
{
    (void)state;
    static const char *const rules[] = {"adamw", "sgd", "lamb", "muon", "lion"};
    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
        for (int m = 0; m < 2; m++) {
            model_world w;
            ht_train_opts opts = HT_TRAIN_OPTS;
            ht_plan_opts planning = HT_PLAN_OPTS;
            opts.optimizer = rules[r];
            planning.precision = m ? "bf16" : "fp16";
            model_start_planned(&w, "gpt2", "{\"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16}",
                                (ht_model_request){.task = LM, SEQUENCES}, &opts, &planning, 2);
            assert_int_equal(check_copies(&w, m ? HT_BF16 : HT_F16), 5);
            for (int s = 0; s < 3; s++) {
                step(&w);
                check_copies(&w, m ? HT_BF16 : HT_F16);
            }
            /* A step that is skipped leaves both. */
            model_write_f32(&w, "seed", INFINITY);
            model_must(&w, ht_session_run(w.s, "train"));
            assert_int_equal(model_read_i64(&w, "applied"), 3);
            check_copies(&w, m ? HT_BF16 : HT_F16);
            model_stop(&w);
        }
    }
}

/* Every rule with every type of state, on matrices, on windows of convolutions and on vectors. */
static void rules__take_state_of_any_type(void **state)
{
    (void)state;
    static const char *const rules[] = {"sgd", "adam", "adamw", "adagrad", "lion", "lamb", "muon"};
    for (size_t r = 0; r < sizeof rules / sizeof rules[0]; r++) {
        for (size_t m = 0; m < MODES; m++) {
            model_world w;
            ht_train_opts opts = HT_TRAIN_OPTS;
            ht_plan_opts planning = HT_PLAN_OPTS;
            opts.optimizer = rules[r];
            opts.momentum = strcmp(rules[r], "sgd") == 0 ? 0.9 : 0;
            planning.precision = modes[m].precision;
            planning.settings = modes[m].settings;
            while (planning.setting_count < MAX_SETTINGS && modes[m].settings[planning.setting_count].key)
                planning.setting_count++;
            model_start_planned(&w, "lenet", "{}", (ht_model_request){.task = CLASS, DIGITS}, &opts, &planning, 2);
            for (int s = 0; s < 3; s++)
                if (!isfinite(step(&w))) fail_msg("%s in %s: the loss is not finite", rules[r], modes[m].name);
            assert_int_equal(model_read_i64(&w, "applied"), 3);
            model_stop(&w);
        }
    }
}

/* Who writes a parameter through the session need not know of copies. */
static void copies__are_made_again_when_a_master_is_written(void **state)
{
    (void)state;
    double loss[2];
    for (int written = 0; written < 2; written++) {
        model_world w;
        start(&w, &small[0], (how){.mode = &modes[1], .threads = 2});
        const char *name = "layers.0.weight";
        for (size_t i = 0; i < w.plan->slot_count; i++)
            if (w.plan->slots[i].heading == HT_HEADING_MASTERS && w.plan->slots[i].type.rank == 2)
                name = w.plan->slots[i].name;
        size_t n = (size_t)ht_type_elems(&ht_plan_slot(w.plan, name)->type);
        double *data = malloc(n * sizeof *data);
        assert_non_null(data);
        for (size_t i = 0; i < n; i++) data[i] = model_number(name, (int64_t)i);
        if (written) model_must(&w, ht_session_write_f64(w.s, name, data, n));
        model_must(&w, ht_session_run(w.s, "eval"));
        loss[written] = read_number(&w, "loss");
        assert_true(check_copies(&w, HT_F16) > 0);
        free(data);
        model_stop(&w);
    }
    assert_true(loss[0] != loss[1]);
}

/* What has no dropout and no batch norm computes the same in training and in use, but for values that only backward
 * wants to see and that are therefore rounded there. */
static void eval__gives_the_loss_of_training(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++) {
        model_world w;
        if (strstr("resnet mobilenet_v2", small[i].type)) continue;
        if (strcmp(small[i].type, "lstm_lm") == 0) continue; /* its state moves from one to the other */
        start(&w, &small[i], (how){.mode = &modes[i % 2 ? 1 : 3], .threads = 2});
        step(&w);
        model_must(&w, ht_session_run(w.s, "eval"));
        double eval = read_number(&w, "loss");
        model_must(&w, ht_session_run(w.s, "micro_first"));
        double loss = read_number(&w, "loss");
        if (!(fabs(loss - eval) <= 0.01 * fabs(loss))) fail_msg("%s: loss %g, in use %g", small[i].type, loss, eval);
        model_stop(&w);
    }
}

/* ---- accumulation ---- */

/* Two micro-batches of the same rows are one of them twice, but for the rounding of the accumulator. */
static void accumulation__adds_in_the_type_that_was_asked_for(void **state)
{
    (void)state;
    enum { N = 13 * 16 };
    for (int half = 0; half < 2; half++) {
        model_world w;
        double once[N], twice[N];
        ht_train_opts opts = HT_TRAIN_OPTS;
        ht_plan_opts planning = HT_PLAN_OPTS;
        opts.accumulate = 2;
        planning.precision = "bf16";
        planning.settings = &(ht_train_setting){"gradients", "half"};
        planning.setting_count = (size_t)half;
        model_start_planned(&w, "gpt2", "{\"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16}",
                            (ht_model_request){.task = LM, SEQUENCES}, &opts, &planning, 2);
        model_must(&w, ht_session_run(w.s, "micro_first"));
        model_must(&w, ht_session_read_f64(w.s, "transformer.wte.weight.grad", once, N));
        model_must(&w, ht_session_run(w.s, "micro"));
        model_must(&w, ht_session_read_f64(w.s, "transformer.wte.weight.grad", twice, N));
        assert_int_equal(ht_plan_slot(w.plan, "flat.grad.f32")->type.dtype, half ? HT_BF16 : HT_F32);
        size_t fine = 0;
        for (int i = 0; i < N; i++) {
            double sum = once[i] + once[i];
            if (!(fabs(twice[i] - sum) <= (half ? 0x1p-7 : 0x1p-22) * fabs(sum) + 1e-12))
                fail_msg("element %d is %.9g after one micro-batch and %.9g after two", i, once[i], twice[i]);
            fine += once[i] != ht_round_to(HT_BF16, once[i]);
        }
        /* Gradients of weights keep digits that bf16 has not. */
        assert_true(half ? fine == 0 : fine > N / 2);
        model_stop(&w);
    }
}

/* ---- the policy ---- */

static const ht_call *find_call(const ht_plan *plan, const char *op)
{
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++)
            if (strcmp(plan->segments[s].instrs[i].call->op->name, op) == 0) return plan->segments[s].instrs[i].call;
    fail_msg("the plan has no %s", op);
    return NULL;
}

static void full_precision__keeps_an_op_and_its_gradient_in_f32(void **state)
{
    (void)state;
    ht_context *ctx;
    ht_graph *g;
    ht_plan *plan;
    ht_plan_opts planning = HT_PLAN_OPTS;
    planning.precision = "fp16";
    planning.no_fusion = true;
    assert_int_equal(ht_context_create(&ctx, NULL), HT_OK);
    for (int full = 0; full < 2; full++) {
        assert_int_equal(ht_graph_create(&g, ctx), HT_OK);
        ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){4, 8}),
               label = ht_input(g, "label", HT_I32, 1, (int64_t[]){4});
        ht_val w = ht_param(g, "w", HT_F32, 2, (int64_t[]){8, 6}, HT_NORMAL(0, 0.3)), z = ht_matmul(g, x, w, NULL);
        if (full) ht_full_precision(g, z);
        ht_output(g, "loss", ht_cross_entropy(g, ht_softmax(g, z, -1), label, NULL));
        assert_int_equal(ht_graph_train(g, NULL), HT_OK);
        assert_int_equal(ht_plan_create(&plan, g, &planning), HT_OK);
        const ht_call *product = find_call(plan, "matmul");
        assert_int_equal(product->in[0]->dtype, full ? HT_F32 : HT_F16);
        assert_int_equal(product->in[1]->dtype, full ? HT_F32 : HT_F16);
        assert_int_equal(product->out[0]->dtype, full ? HT_F32 : HT_F16);
        assert_true((ht_plan_slot(plan, "w.half") != NULL) == !full);
        ht_plan_free(plan);
        ht_graph_free(g);
    }
    assert_int_equal(ht_graph_create(&g, ctx), HT_OK);
    ht_full_precision(g, ht_input(g, "x", HT_F32, 0, NULL));
    assert_int_equal(ht_graph_status(g), HT_EINVAL);
    assert_non_null(strstr(ht_context_message(ctx), "not for state and inputs"));
    ht_graph_free(g);
    ht_context_free(ctx);
}

static void settings__that_are_wrong_are_refused_by_name(void **state)
{
    (void)state;
    static const struct {
        const char *precision, *key, *value, *message;
    } wrong[] = {
        {"half", NULL, NULL, "setting precision: there is no 'half'; known: fp64, fp32, fp16, bf16"},
        {"", NULL, NULL, "setting precision: there is no ''"},
        {"bf16", "master", "0", "setting master: planning has no such setting"},
        {"bf16", "masters", "no", "setting masters: there is no 'no'; known: 1, 0"},
        {"bf16", "gradients", "f16", "setting gradients: there is no 'f16'; known: half, f32"},
        {"bf16", "moments", "", "setting moments: there is no ''"},
        {"fp16", "residual", "f16", "setting residual: there is no 'f16'"},
        {"fp16", "fp32_ops", "matmul,sofmax", "setting fp32_ops: there is no op 'sofmax'"},
        {"fp16", "half_ops", "matmul,,softmax", "setting half_ops: there is no op ''"},
        {"fp16", "fp32_params", "(unclosed", "setting fp32_params: '(unclosed'"},
        {"bf16", "rounding", "up", "setting rounding: there is no 'up'; known: stochastic, nearest"},
        {"bf16", "rounding", "stochastic", "setting rounding: stochastic is for parameters that are half themselves"},
    };
    model_world w;
    ht_plan *plan;
    start(&w, &small[0], (how){.threads = 1});
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        ht_plan_opts opts = HT_PLAN_OPTS;
        opts.precision = wrong[i].precision;
        opts.settings = &(ht_train_setting){wrong[i].key, wrong[i].value};
        opts.setting_count = wrong[i].key ? 1 : 0;
        assert_int_equal(ht_plan_create(&plan, w.g, &opts), HT_EINVAL);
        if (!strstr(ht_context_message(w.ctx), wrong[i].message))
            fail_msg("'%s' is not in '%s'", wrong[i].message, ht_context_message(w.ctx));
    }
    model_stop(&w);
}

static void fp32_params__names_parameters_that_have_no_copy(void **state)
{
    (void)state;
    ht_plan_opts opts = HT_PLAN_OPTS;
    ht_train_setting keep = {"fp32_params", "^transformer\\.h\\.[0-9]+\\.attn\\."};
    model_world w;
    opts.precision = "fp16";
    opts.settings = &keep;
    opts.setting_count = 1;
    model_start_planned(&w, "gpt2", "{\"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16}",
                        (ht_model_request){.task = LM, SEQUENCES}, NULL, &opts, 1);
    assert_null(ht_plan_slot(w.plan, "transformer.h.0.attn.c_attn.weight.half"));
    assert_null(ht_plan_slot(w.plan, "transformer.h.1.attn.c_proj.weight.half"));
    assert_non_null(ht_plan_slot(w.plan, "transformer.h.1.mlp.c_fc.weight.half"));
    step(&w);
    assert_int_equal(check_copies(&w, HT_F16), 1 + 2 * 2);
    model_stop(&w);
}

static void residual__in_f32_is_a_wider_stream(void **state)
{
    (void)state;
    int64_t bytes[2];
    for (int wide = 0; wide < 2; wide++) {
        model_world w;
        start(&w, &small[12], (how){.mode = &modes[wide ? 4 : 3], .threads = 1});
        assert_string_equal(small[12].type, "gpt2");
        const ht_call *norm = find_call(w.plan, "layernorm");
        assert_int_equal(norm->in[0]->dtype, wide ? HT_F32 : HT_BF16);
        assert_int_equal(norm->out[0]->dtype, HT_BF16);
        bytes[wide] = w.plan->area_bytes[HT_AREA_TRANSIENT];
        model_stop(&w);
    }
    assert_true(bytes[1] > bytes[0]);
}

/* bf16 has f32's exponents: a power of two moves no digit of a gradient there. */
static void loss_scale__changes_no_bit_in_bf16(void **state)
{
    (void)state;
    static const mode scaled = {"bf16, scale 1024", "bf16", "1024", 0, {{0}}};
    enum { N = 13 * 16 };
    float table[2][N];
    for (int k = 0; k < 2; k++) {
        model_world w;
        start(&w, &small[12], (how){.mode = k ? &scaled : &modes[3], .threads = 2});
        for (int s = 0; s < 3; s++) step(&w);
        model_must(&w, ht_session_read(w.s, "transformer.wte.weight", table[k], sizeof table[k]));
        model_stop(&w);
    }
    assert_memory_equal(table[0], table[1], sizeof table[0]);
}

static void precision__fp32_is_what_no_precision_is(void **state)
{
    (void)state;
    uint64_t hash[2];
    static const mode plain = {"fp32", "fp32", "none", 0, {{0}}};
    for (int named = 0; named < 2; named++) {
        model_world w;
        start(&w, &small[12], (how){.mode = named ? &plain : NULL, .threads = 2});
        for (int s = 0; s < 2; s++) step(&w);
        hash[named] = hash_everything(&w);
        model_stop(&w);
    }
    assert_true(hash[0] == hash[1]);
}

/* ---- memory ---- */

/* gpt2 as it was published, sequences of 1024, eight at once: planned only. */
static void check_bytes(const model_world *w, double parameters, const char *target)
{
    static const char *const precisions[] = {"fp32", "fp16", "bf16"};
    double transient[3];
    for (int i = 0; i < 3; i++) {
        ht_plan *plan;
        ht_plan_opts planning = HT_PLAN_OPTS;
        planning.precision = precisions[i];
        planning.target = target;
        model_must(w, ht_plan_create(&plan, w->g, &planning));
        double bytes = 0, scalars = (double)plan->heading_bytes[HT_HEADING_SCALARS];
        for (int h = 0; h < HT_HEADING_COUNT; h++) bytes += (double)plan->heading_bytes[h];
        double state_bytes = (bytes - scalars) / parameters;
        transient[i] = (double)plan->area_bytes[HT_AREA_TRANSIENT];
        print_message("%s: %.3f bytes of state per parameter, %.0f MiB of transients, %.3f of fp32's\n", precisions[i],
                      state_bytes, transient[i] / 0x1p20, transient[i] / transient[0]);
        assert_true(scalars < 256);
        if (i) assert_true(state_bytes <= 18);
        if (i) assert_true(transient[i] <= 0.52 * transient[0]);
        ht_plan_free(plan);
    }
}

static void memory__of_gpt2_is_what_half_promises(void **state)
{
    (void)state;
    model_world w;
    ht_model_request request = {.task = LM, .batch = 8, .length = 1024, .vocabulary = 50257, .training = true};
    model_must(&w, model_graph(&w, "gpt2", "{}", request, 1));
    double parameters = (double)ht_model_parameters(w.g);
    model_must(&w, ht_graph_train(w.g, NULL));
    check_bytes(&w, parameters, NULL);
    check_bytes(&w, parameters, "{\"arch\": \"x86_64\", \"isa\": \"portable\", \"threads\": 2}");
    model_stop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(train__every_model_in_every_mode_follows_fp32),
        cmocka_unit_test(bits__do_not_depend_on_fusion_or_threads),
        cmocka_unit_test(bits__of_large_products_do_not_depend_on_them_either),
        cmocka_unit_test(any_graph__plans_in_every_precision),
        cmocka_unit_test(copies__follow_their_masters),
        cmocka_unit_test(rules__take_state_of_any_type),
        cmocka_unit_test(copies__are_made_again_when_a_master_is_written),
        cmocka_unit_test(eval__gives_the_loss_of_training),
        cmocka_unit_test(accumulation__adds_in_the_type_that_was_asked_for),
        cmocka_unit_test(full_precision__keeps_an_op_and_its_gradient_in_f32),
        cmocka_unit_test(settings__that_are_wrong_are_refused_by_name),
        cmocka_unit_test(fp32_params__names_parameters_that_have_no_copy),
        cmocka_unit_test(residual__in_f32_is_a_wider_stream),
        cmocka_unit_test(loss_scale__changes_no_bit_in_bf16),
        cmocka_unit_test(precision__fp32_is_what_no_precision_is),
        cmocka_unit_test(memory__of_gpt2_is_what_half_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
