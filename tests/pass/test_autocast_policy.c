/* What a precision means for state: copies that follow their masters, accumulators, rules of the optimiser, what the
 * policy's settings do and refuse, and the bytes of a large model. */
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

/* ---- copies ---- */

/* Returns how many copies there are. */
static size_t check_copies(const model_fixture *w, ht_dtype half)
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
            model_fixture w;
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
            model_write_f32(&w, "loss_grad", INFINITY);
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
            model_fixture w;
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
        model_fixture w;
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
        model_fixture w;
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

/* ---- casts ---- */

/* Passes over memory that do nothing but cast. */
static size_t count_casts(const ht_plan *plan, const char *segment)
{
    size_t count = 0;
    const ht_plan_segment *s = &plan->segments[ht_plan_segment_find(plan, segment)];
    for (size_t i = 0; i < s->instr_count; i++)
        count += strcmp(s->instrs[i].call->op->name, "cast") == 0 && s->instrs[i].call->out[0]->rank > 0;
    return count;
}

/* Copies are written by the call that makes their masters; where no batch comes as floats, nothing is cast by itself. */
static void casts__ride_along(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++) {
        for (size_t m = 1; m <= 3; m += 2) {
            model_fixture w;
            start(&w, &small[i], (how){.mode = &modes[m], .threads = 1});
            size_t update = count_casts(w.plan, "update"), micro = count_casts(w.plan, "micro_first");
            bool tokens = strstr("gpt2 llama bert", small[i].type) != NULL;
            if (update || (tokens && micro))
                fail_msg("%s in %s: %zu casts by themselves in the update, %zu in a micro-batch", small[i].type,
                         modes[m].name, update, micro);
            model_stop(&w);
        }
    }
}

/* ---- accumulation ---- */

/* Two micro-batches of the same rows are one of them twice, but for the rounding of the accumulator. */
static void accumulation__adds_in_the_type_that_was_asked_for(void **state)
{
    (void)state;
    enum { N = 13 * 16 };
    for (int half = 0; half < 2; half++) {
        model_fixture w;
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

/* The gradients of one micro-batch, rounded where they are made, are those in f32, rounded. */
static void accumulation__in_half_rounds_the_gradients_once(void **state)
{
    (void)state;
    static const char *const names[] = {"transformer.h.0.mlp.c_fc.weight.grad",
                                        "transformer.h.0.attn.c_attn.weight.grad", "transformer.wte.weight.grad",
                                        "transformer.h.0.ln_1.weight.grad"};
    for (int fp16 = 0; fp16 < 2; fp16++) {
        model_fixture w[2];
        ht_dtype half = fp16 ? HT_F16 : HT_BF16;
        for (int k = 0; k < 2; k++) {
            ht_plan_opts planning = HT_PLAN_OPTS;
            planning.precision = fp16 ? "fp16" : "bf16";
            planning.settings = &(ht_train_setting){"gradients", "half"};
            planning.setting_count = (size_t)k;
            model_start_planned(&w[k], "gpt2", "{\"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16}",
                                (ht_model_request){.task = LM, SEQUENCES}, &(ht_train_opts)HT_TRAIN_OPTS, &planning, 2);
            model_must(&w[k], ht_session_run(w[k].s, "micro_first"));
        }
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            size_t n = (size_t)ht_type_elems(&ht_plan_slot(w[0].plan, names[i])->type);
            double wide[1024], narrow[1024];
            assert_true(n <= 1024);
            model_must(&w[0], ht_session_read_f64(w[0].s, names[i], wide, n));
            model_must(&w[1], ht_session_read_f64(w[1].s, names[i], narrow, n));
            for (size_t e = 0; e < n; e++) assert_true(narrow[e] == ht_round_to(half, wide[e]));
        }
        for (int k = 0; k < 2; k++) model_stop(&w[k]);
    }
}

/* A step with half accumulators has no gradient in f32 among its transients. */
static void accumulation__in_half_needs_no_f32_beside_it(void **state)
{
    (void)state;
    ht_context *ctx = context_create(1, NULL);
    int64_t transients[2];
    for (int half = 0; half < 2; half++) {
        ht_graph *g;
        ht_plan *plan;
        ht_plan_opts planning = HT_PLAN_OPTS;
        planning.precision = "fp16";
        planning.settings = &(ht_train_setting){"gradients", "half"};
        planning.setting_count = (size_t)half;
        assert_int_equal(ht_graph_create(&g, ctx), HT_OK);
        ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){2, 1000});
        ht_val w = ht_param(g, "w", HT_F32, 2, (int64_t[]){1000, 1000}, HT_NORMAL(0, 0.1));
        ht_output(g, "loss", ht_mean(g, ht_tanh(g, ht_matmul(g, x, w, NULL)), 0, NULL, false));
        assert_int_equal(ht_graph_train(g, NULL), HT_OK);
        assert_int_equal(ht_plan_create(&plan, g, &planning), HT_OK);
        transients[half] = plan->segments[ht_plan_segment_find(plan, "micro_first")].transient_bytes[HT_SPACE_MAIN];
        ht_plan_free(plan);
        ht_graph_free(g);
    }
    assert_true(transients[0] < 1000 * 1000 * 4);
    assert_true(transients[1] <= transients[0]);
    ht_context_free(ctx);
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
    ht_context *ctx = context_create(0, NULL);
    ht_graph *g;
    ht_plan *plan;
    ht_plan_opts planning = HT_PLAN_OPTS;
    planning.precision = "fp16";
    planning.no_fusion = true;
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
        {"fp16", "fp32_ops", "matmul,sofmax", "setting fp32_ops: there is no op 'sofmax'; did you mean 'softmax'?"},
        {"fp16", "half_ops", "matmul,,softmax", "setting half_ops: there is no op ''"},
        {"fp16", "fp32_params", "(unclosed", "setting fp32_params: '(unclosed'"},
        {"bf16", "rounding", "up", "setting rounding: there is no 'up'; known: stochastic, nearest"},
        {"bf16", "rounding", "stochastic", "setting rounding: stochastic is for parameters that are half themselves"},
    };
    model_fixture w;
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

typedef struct warning_log {
    int count;
    char last[256];
} warning_log;

static void keep_warning(void *arg, ht_log_level level, const char *line)
{
    warning_log *log = arg;
    if (level != HT_LOG_WARN) return;
    log->count++;
    snprintf(log->last, sizeof log->last, "%s", line);
}

static void settings__that_match_nothing_are_warnings(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *warning;
    } cases[] = {
        {"fp32_ops", "matmul,softmax", "setting fp32_ops: this model has no op 'softmax'"},
        {"half_ops", "lstm", "setting half_ops: this model has no op 'lstm'"},
        {"fp32_params", "^head", "setting fp32_params: '^head' matches no parameter of this model"},
        {"fp32_ops", "matmul,tanh", NULL},
        {"half_ops", "mean", NULL},
        {"fp32_params", "w", NULL},
    };
    warning_log log = {0};
    ht_context *ctx;
    ht_context_opts opts = HT_CONTEXT_OPTS;
    opts.log = keep_warning;
    opts.log_arg = &log;
    assert_int_equal(ht_context_create(&ctx, &opts), HT_OK);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        ht_graph *g;
        ht_plan *plan;
        ht_plan_opts planning = HT_PLAN_OPTS;
        planning.precision = "bf16";
        planning.settings = &(ht_train_setting){cases[i].key, cases[i].value};
        planning.setting_count = 1;
        assert_int_equal(ht_graph_create(&g, ctx), HT_OK);
        ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){2, 8});
        ht_val w = ht_param(g, "w", HT_F32, 2, (int64_t[]){8, 4}, HT_NORMAL(0, 0.1));
        ht_output(g, "loss", ht_mean(g, ht_tanh(g, ht_matmul(g, x, w, NULL)), 0, NULL, false));
        log = (warning_log){0};
        assert_int_equal(ht_plan_create(&plan, g, &planning), HT_OK);
        assert_int_equal(log.count, cases[i].warning != NULL);
        assert_string_equal(log.last, cases[i].warning ? cases[i].warning : "");
        ht_plan_free(plan);
        ht_graph_free(g);
    }
    ht_context_free(ctx);
}

static void fp32_params__names_parameters_that_have_no_copy(void **state)
{
    (void)state;
    ht_plan_opts opts = HT_PLAN_OPTS;
    ht_train_setting keep = {"fp32_params", "^transformer\\.h\\.[0-9]+\\.attn\\."};
    model_fixture w;
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
        model_fixture w;
        start(&w, &small[12], (how){.mode = &modes[wide ? 4 : 3], .threads = 1});
        assert_string_equal(small[12].type, "gpt2");
        const ht_call *norm = find_call(w.plan, "layernorm");
        assert_int_equal(norm->in[0]->dtype, wide ? HT_F32 : HT_BF16);
        assert_int_equal(norm->out[0]->dtype, HT_BF16);
        bytes[wide] = ht_plan_area_bytes(w.plan, HT_AREA_TRANSIENT);
        model_stop(&w);
    }
    assert_true(bytes[1] > bytes[0]);
}

/* ---- memory ---- */

/* gpt2 as it was published, sequences of 1024, eight at once: planned only. */
static void check_bytes(const model_fixture *w, double parameters, const char *target)
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
        transient[i] = (double)ht_plan_area_bytes(plan, HT_AREA_TRANSIENT);
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
    model_fixture w;
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
        cmocka_unit_test(copies__follow_their_masters),
        cmocka_unit_test(rules__take_state_of_any_type),
        cmocka_unit_test(copies__are_made_again_when_a_master_is_written),
        cmocka_unit_test(eval__gives_the_loss_of_training),
        cmocka_unit_test(casts__ride_along),
        cmocka_unit_test(accumulation__adds_in_the_type_that_was_asked_for),
        cmocka_unit_test(accumulation__in_half_rounds_the_gradients_once),
        cmocka_unit_test(accumulation__in_half_needs_no_f32_beside_it),
        cmocka_unit_test(full_precision__keeps_an_op_and_its_gradient_in_f32),
        cmocka_unit_test(settings__that_are_wrong_are_refused_by_name),
        cmocka_unit_test(settings__that_match_nothing_are_warnings),
        cmocka_unit_test(fp32_params__names_parameters_that_have_no_copy),
        cmocka_unit_test(residual__in_f32_is_a_wider_stream),
        cmocka_unit_test(memory__of_gpt2_is_what_half_promises),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
