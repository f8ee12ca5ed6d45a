/* A teacher in the training step: the loss and its gradients against the formula, every model that has logits, and what has
 * none is refused by name. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model_fixture.h"
#include "small_models.h"

/* ---- a small network against the formula ---- */

enum { ROWS = 5, IN = 3, OWN = 4, TAUGHT = 6, KINDS = 4, IGNORED = 2 };

typedef struct network {
    int64_t width;
    double first[IN * TAUGHT], second[TAUGHT * KINDS]; /* [IN, width], [width, KINDS] */
} network;

static const char *const names[] = {"first.weight", "second.weight"};

static void fill_network(network *n, int64_t width, const char *salt)
{
    n->width = width;
    for (int64_t i = 0; i < IN * width; i++) n->first[i] = 2 * model_number(salt, i);
    for (int64_t i = 0; i < width * KINDS; i++) n->second[i] = 2 * model_number(salt, 100 + i);
}

static ht_graph *make_network(ht_context *ctx, int64_t width, const char *segment)
{
    ht_graph *g;
    ht_cross_entropy_opts opts = HT_CROSS_ENTROPY_OPTS;
    context_must(ctx, ht_graph_create(&g, ctx));
    ht_segment_begin(g, segment);
    ht_val x = ht_input(g, "x", HT_F32, 2, (const int64_t[]){ROWS, IN});
    ht_val label = ht_input(g, "label", HT_I32, 1, (const int64_t[]){ROWS});
    ht_val first = ht_param(g, names[0], HT_F32, 2, (const int64_t[]){IN, width}, HT_ZERO);
    ht_val second = ht_param(g, names[1], HT_F32, 2, (const int64_t[]){width, KINDS}, HT_ZERO);
    ht_scope_push(g, "hidden");
    ht_val h = ht_tanh(g, ht_matmul(g, x, first, NULL));
    ht_scope_pop(g);
    opts.ignore_index = -1;
    opts.reduction = HT_REDUCE_SUM;
    ht_val loss = ht_cross_entropy(g, ht_matmul(g, h, second, NULL), label, &opts);
    ht_output(g, "loss", loss);
    ht_output(g, "loss_sum", loss);
    context_must(ctx, ht_graph_status(g));
    return g;
}

static double x_at(int64_t i)
{
    return 2 * model_number("x", i);
}

static int label_at(int64_t row)
{
    return row == IGNORED ? -1 : (int)(row % KINDS);
}

static void run_network(const network *n, int64_t row, double *hidden, double *logits)
{
    for (int64_t j = 0; j < n->width; j++) {
        hidden[j] = 0;
        for (int64_t i = 0; i < IN; i++) hidden[j] += x_at(row * IN + i) * n->first[i * n->width + j];
        hidden[j] = tanh(hidden[j]);
    }
    for (int64_t k = 0; k < KINDS; k++) {
        logits[k] = 0;
        for (int64_t j = 0; j < n->width; j++) logits[k] += hidden[j] * n->second[j * KINDS + k];
    }
}

static void soften(const double *logits, double temperature, double *log_p)
{
    double sum = 0;
    for (int k = 0; k < KINDS; k++) sum += exp(logits[k] / temperature);
    for (int k = 0; k < KINDS; k++) log_p[k] = logits[k] / temperature - log(sum);
}

/* projection: [OWN, TAUGHT], or NULL where hidden states do not count. */
static double loss_of(const network *own, const network *teacher, const ht_distill_options *o, const double *projection)
{
    double loss = 0, squares = 0;
    int counted = 0;
    for (int64_t row = 0; row < ROWS; row++) {
        double h[TAUGHT], t[TAUGHT], logits[2][KINDS], log_p[KINDS], log_q[KINDS];
        run_network(own, row, h, logits[0]);
        run_network(teacher, row, t, logits[1]);
        for (int64_t j = 0; j < TAUGHT; j++) {
            double projected = 0;
            for (int64_t i = 0; projection && i < OWN; i++) projected += h[i] * projection[i * TAUGHT + j];
            squares += (projected - t[j]) * (projected - t[j]);
        }
        if (label_at(row) < 0) continue;
        counted++;
        soften(logits[0], 1, log_p);
        loss -= (1 - o->alpha) * log_p[label_at(row)];
        soften(logits[1], o->temperature, log_p);
        soften(logits[0], o->temperature, log_q);
        for (int k = 0; k < KINDS; k++)
            loss += o->alpha * o->temperature * o->temperature * exp(log_p[k]) * (log_p[k] - log_q[k]);
    }
    return projection ? loss + o->hidden_weight * counted * squares / (ROWS * TAUGHT) : loss;
}

typedef struct lesson {
    ht_graph *g;
    ht_plan *plan;
    ht_session *s;
} lesson;

static void write_state(lesson *l, const char *prefix, const char *name, const double *data, int64_t count)
{
    char full[64];
    snprintf(full, sizeof full, "%s%s", prefix, name);
    context_must(test_ctx, ht_session_write_f64(l->s, full, data, (size_t)count));
}

static void start_lesson(lesson *l, const network *own, const network *teacher, ht_distill_options distill)
{
    ht_pass_options options = ht_pass_options_standard();
    ht_train_opts training = HT_TRAIN_OPTS;
    double x[ROWS * IN], label[ROWS];
    ht_graph *other = make_network(test_ctx, teacher->width, "eval");
    l->g = make_network(test_ctx, own->width, "forward");
    distill.teacher = other;
    options.distill = distill;
    context_must(test_ctx, ht_pass_run(l->g, ht_pass_find("distill"), &(ht_pass_env){.options = &options}));
    ht_graph_free(other);
    training.optimizer = "sgd";
    training.lr = 1;
    context_must(test_ctx, ht_graph_train(l->g, &training));
    context_must(test_ctx, ht_plan_create(&l->plan, l->g, NULL));
    context_must(test_ctx, ht_session_create(&l->s, l->plan, NULL));
    for (int64_t i = 0; i < ROWS * IN; i++) x[i] = x_at(i);
    for (int64_t i = 0; i < ROWS; i++) label[i] = label_at(i);
    write_state(l, "", "x", x, ROWS * IN);
    write_state(l, "", "label", label, ROWS);
    write_state(l, "", names[0], own->first, IN * own->width);
    write_state(l, "", names[1], own->second, own->width * KINDS);
    write_state(l, "teacher.", names[0], teacher->first, IN * teacher->width);
    write_state(l, "teacher.", names[1], teacher->second, teacher->width * KINDS);
}

static void end_lesson(lesson *l)
{
    ht_session_free(l->s);
    ht_plan_free(l->plan);
    ht_graph_free(l->g);
}

static double read_number(const lesson *l, const char *name)
{
    double value;
    context_must(test_ctx, ht_session_read_f64(l->s, name, &value, 1));
    return value;
}

/* One step of gradient descent at a rate of 1 moves a weight by its gradient. */
static void expect_step(const lesson *l, network *own, const network *teacher, const ht_distill_options *o,
                        const double *projection)
{
    double now[IN * TAUGHT + TAUGHT * KINDS], *weights[] = {own->first, own->second};
    int64_t counts[] = {IN * own->width, own->width * KINDS};
    for (int part = 0; part < 2; part++) {
        context_must(test_ctx, ht_session_read_f64(l->s, names[part], now, (size_t)counts[part]));
        for (int64_t i = 0; i < counts[part]; i++) {
            double was = weights[part][i], delta = 1e-5;
            weights[part][i] = was + delta;
            double above = loss_of(own, teacher, o, projection);
            weights[part][i] = was - delta;
            double below = loss_of(own, teacher, o, projection);
            weights[part][i] = was;
            assert_float_equal(was - now[i], (above - below) / (2 * delta), 2e-4);
        }
    }
}

static void loss__is_the_mixture_and_so_are_gradients(void **state)
{
    (void)state;
    const ht_distill_options cases[] = {
        {.temperature = 2, .alpha = 0.3}, {.temperature = 1, .alpha = 1}, {.temperature = 4, .alpha = 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        network own, teacher;
        lesson l;
        fill_network(&own, OWN, "own");
        fill_network(&teacher, TAUGHT, "teacher");
        start_lesson(&l, &own, &teacher, cases[i]);
        context_must(test_ctx, ht_session_run(l.s, "train"));
        assert_float_equal(read_number(&l, "loss"), loss_of(&own, &teacher, &cases[i], NULL), 1e-4);
        /* What people are shown is the student's own. */
        const ht_distill_options alone = {.temperature = 1, .alpha = 0};
        assert_float_equal(read_number(&l, "loss_sum"), loss_of(&own, &teacher, &alone, NULL), 1e-4);
        expect_step(&l, &own, &teacher, &cases[i], NULL);
        end_lesson(&l);
    }
}

static void hidden__are_projected_to_the_teachers_width(void **state)
{
    (void)state;
    network own, teacher;
    lesson l;
    double projection[OWN * TAUGHT];
    ht_distill_options o = {.temperature = 2, .alpha = 0.5, .hidden_weight = 0.7, .hidden_count = 1};
    o.hidden[0] = (ht_module_pair){"hidden", "hidden"};
    fill_network(&own, OWN, "own");
    fill_network(&teacher, TAUGHT, "teacher");
    for (int64_t i = 0; i < OWN * TAUGHT; i++) projection[i] = model_number("projection", i);
    start_lesson(&l, &own, &teacher, o);
    write_state(&l, "", "distill.projection.0.weight", projection, OWN * TAUGHT);
    context_must(test_ctx, ht_session_run(l.s, "train"));
    assert_float_equal(read_number(&l, "loss"), loss_of(&own, &teacher, &o, projection), 1e-4);
    expect_step(&l, &own, &teacher, &o, projection);
    double moved[OWN * TAUGHT];
    context_must(test_ctx, ht_session_read_f64(l.s, "distill.projection.0.weight", moved, OWN * TAUGHT));
    assert_true(fabs(moved[0] - projection[0]) > 1e-6);
    end_lesson(&l);
}

static void teacher__is_never_trained(void **state)
{
    (void)state;
    network own, teacher;
    lesson l;
    fill_network(&own, TAUGHT, "own");
    fill_network(&teacher, TAUGHT, "teacher");
    start_lesson(&l, &own, &teacher, (ht_distill_options){.temperature = 2, .alpha = 0.5});
    double now[IN * TAUGHT];
    for (int step = 0; step < 3; step++) context_must(test_ctx, ht_session_run(l.s, "train"));
    context_must(test_ctx, ht_session_read_f64(l.s, "teacher.first.weight", now, IN * TAUGHT));
    for (int i = 0; i < IN * TAUGHT; i++) assert_float_equal(now[i], (float)teacher.first[i], 0);
    for (size_t i = 0; i < l.plan->slot_count; i++) {
        const ht_slot *slot = &l.plan->slots[i];
        bool gradient = slot->kind == HT_SLOT_STATE && slot->heading == HT_HEADING_GRADIENTS;
        assert_false(gradient && strncmp(slot->name, "teacher.", 8) == 0);
    }
    end_lesson(&l);
}

/* ---- all models ---- */

/* NULL, or the message of what is refused. */
static const char *join(model_fixture *own, model_fixture *teacher, const small_model *m, ht_distill_options distill)
{
    ht_pass_options options = ht_pass_options_standard();
    ht_model_request training = m->request;
    training.training = true;
    model_must(own, model_graph(own, m->type, m->json, training, 2));
    model_must(teacher, model_graph(teacher, m->type, m->json, m->request, 2));
    distill.teacher = teacher->g;
    options.distill = distill;
    ht_status status = ht_pass_run(own->g, ht_pass_find("distill"), &(ht_pass_env){.options = &options});
    return status == HT_OK ? NULL : ht_context_message(own->ctx);
}

static const ht_distill_options plain = {.temperature = 2, .alpha = 1, .hidden_weight = 1, .attention_weight = 1};

/* A student that is its teacher has nothing to learn from it. */
static void models__agree_with_themselves(void **state)
{
    (void)state;
    for (size_t i = 0; i < SMALL; i++) {
        model_fixture own, teacher;
        ht_train_opts opts = HT_TRAIN_OPTS;
        bool carries = strcmp(small[i].type, "lstm_lm") == 0 && !strstr(small[i].json, "carry");
        bool batch_statistics = strcmp(small[i].type, "resnet") == 0 || strcmp(small[i].type, "mobilenet_v2") == 0;
        const char *refusal = join(&own, &teacher, &small[i], plain);
        if (small[i].request.task == REGRESSION) {
            assert_non_null(refusal);
            assert_non_null(strstr(refusal, "no cross_entropy of logits"));
        } else if (carries) {
            assert_non_null(refusal);
            assert_non_null(strstr(refusal, "carry.eval"));
        } else {
            if (refusal) fail_msg("%s: %s", small[i].type, refusal);
            model_must(&own, ht_graph_train(own.g, &opts));
            model_must(&own, ht_plan_create(&own.plan, own.g, NULL));
            model_must(&own, ht_session_create(&own.s, own.plan, NULL));
            model_write_inputs(&own, "eval");
            model_set_parameters(&own);
            for (size_t k = 0; k < own.g->state_count; k++) {
                const ht_value *v = ht_value_of(own.g, own.g->states[k].value);
                if (strncmp(v->name, "teacher.", 8) != 0) continue;
                size_t count = (size_t)ht_type_elems(&v->type);
                double *data = calloc(count + 1, sizeof *data);
                assert_non_null(data);
                model_must(&own, ht_session_read_f64(own.s, v->name + 8, data, count));
                model_must(&own, ht_session_write_f64(own.s, v->name, data, count));
                free(data);
            }
            model_must(&own, ht_session_run(own.s, "micro_first"));
            float loss = model_read_f32(&own, "loss");
            if (!(batch_statistics ? isfinite(loss) : fabsf(loss) < 1e-3f)) fail_msg("%s: %g", small[i].type, loss);
        }
        model_stop(&own);
        model_stop(&teacher);
    }
}

static void attention__of_equal_models_is_alike(void **state)
{
    (void)state;
    static const struct {
        const char *type, *module;
    } cases[] = {{"gpt2", "transformer.h.1"}, {"llama", "model.layers.0"}, {"bert", "bert.encoder.layer.0"}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++)
        for (size_t i = 0; i < SMALL; i++) {
            model_fixture own, teacher;
            ht_train_opts opts = HT_TRAIN_OPTS;
            ht_distill_options distill = plain;
            if (strcmp(small[i].type, cases[c].type) != 0) continue;
            distill.attention[0] = distill.hidden[0] = (ht_module_pair){cases[c].module, cases[c].module};
            distill.attention_count = distill.hidden_count = 1;
            const char *refusal = join(&own, &teacher, &small[i], distill);
            if (small[i].request.documents) {
                assert_non_null(refusal);
                assert_non_null(strstr(refusal, "packed documents"));
            } else {
                if (refusal) fail_msg("%s: %s", small[i].type, refusal);
                model_must(&own, ht_graph_train(own.g, &opts));
                model_must(&own, ht_plan_create(&own.plan, own.g, NULL));
                model_must(&own, ht_session_create(&own.s, own.plan, NULL));
                model_write_inputs(&own, "eval");
                model_must(&own, ht_session_run(own.s, "micro_first"));
                assert_true(isfinite(model_read_f32(&own, "loss")) && model_read_f32(&own, "loss") > 0);
            }
            model_stop(&own);
            model_stop(&teacher);
        }
}

static void modules__that_are_not_there_are_named(void **state)
{
    (void)state;
    const small_model *gpt2 = &small[12];
    ht_distill_options hidden = plain, attention = plain;
    model_fixture own, teacher;
    hidden.hidden[0] = (ht_module_pair){"transformer.h.1", "transformer.h.7"};
    hidden.hidden_count = 1;
    assert_non_null(strstr(join(&own, &teacher, gpt2, hidden), "the student has no module 'transformer.h.7'"));
    model_stop(&own);
    model_stop(&teacher);
    attention.attention[0] = (ht_module_pair){"transformer.ln_f", "transformer.h.0"};
    attention.attention_count = 1;
    assert_non_null(strstr(join(&own, &teacher, gpt2, attention), "no module 'transformer.ln_f' with attention"));
    model_stop(&own);
    model_stop(&teacher);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loss__is_the_mixture_and_so_are_gradients),
        cmocka_unit_test(hidden__are_projected_to_the_teachers_width),
        cmocka_unit_test(teacher__is_never_trained),
        cmocka_unit_test(models__agree_with_themselves),
        cmocka_unit_test(attention__of_equal_models_is_alike),
        cmocka_unit_test(modules__that_are_not_there_are_named),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
