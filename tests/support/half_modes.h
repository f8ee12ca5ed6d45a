/* Ways to train a model: the precisions and policies that tests of them walk. */
#ifndef TESTS_HALF_MODES_H
#define TESTS_HALF_MODES_H

#include "model_fixture.h"
#include "plan/plan.h"
#include "small_models.h"

enum { MAX_SETTINGS = 4 };

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
static inline bool is_tried(size_t model, size_t m)
{
    bool deep = strstr("resnet mobilenet_v2", small[model].type) != NULL;
    return !deep || m == 0 || m == 1 || m == 3 || m + 1 == MODES;
}

typedef struct how {
    const mode *mode; /* NULL: fp32 */
    int threads;
    bool no_fusion;
} how;

static inline void start(model_fixture *w, const small_model *model, how h)
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
    model_write_f32(w, "loss_grad", 0.05f);
}

static inline double read_number(const model_fixture *w, const char *name)
{
    double value = 0;
    model_must(w, ht_session_read_f64(w->s, name, &value, 1));
    return value;
}

/* One training step; its loss per target. */
static inline double step(const model_fixture *w)
{
    model_must(w, ht_session_run(w->s, "train"));
    int64_t count = model_read_i64(w, "count");
    assert_true(count > 0);
    model_write_f32(w, "loss_grad", 1 / (float)count);
    return read_number(w, "loss") / (double)count;
}

#endif
