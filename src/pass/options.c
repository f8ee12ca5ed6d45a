#include "pass/pass.h"

#include <assert.h>
#include <string.h>

static const char *const precision_names[] = {[HT_PRECISION_FP64] = "fp64",
                                              [HT_PRECISION_FP32] = "fp32",
                                              [HT_PRECISION_FP16] = "fp16",
                                              [HT_PRECISION_BF16] = "bf16"};

const char *ht_precision_name(ht_precision precision)
{
    return precision_names[precision];
}

ht_precision ht_precision_find(const char *name)
{
    int precision = HT_PRECISION_BF16;
    while (precision >= 0 && strcmp(precision_names[precision], name) != 0) precision--;
    assert(precision >= 0);
    return (ht_precision)precision;
}

ht_recompute_policy ht_recompute_policy_find(const char *name)
{
    static const char *const names[] = {
        [HT_RECOMPUTE_NONE] = "none",           [HT_RECOMPUTE_MARKED] = "marked", [HT_RECOMPUTE_CHEAP] = "cheap",
        [HT_RECOMPUTE_SELECTIVE] = "selective", [HT_RECOMPUTE_ALL] = "all",       [HT_RECOMPUTE_SQRT] = "sqrt",
        [HT_RECOMPUTE_BUDGET] = "budget"};
    int policy = HT_RECOMPUTE_BUDGET;
    while (policy >= 0 && strcmp(names[policy], name) != 0) policy--;
    assert(policy >= 0);
    return (ht_recompute_policy)policy;
}

ht_quantize_group ht_quantize_group_standard(void)
{
    return (ht_quantize_group){.weights = {.bits = 8, .granularity = HT_PER_CHANNEL, .group = 64, .symmetric = true},
                               .activations = {.bits = 8, .range = HT_RANGE_DYNAMIC}};
}

ht_pass_options ht_pass_options_standard(void)
{
    const ht_optimizer *adamw = ht_optimizer_find("adamw", NULL);
    return (ht_pass_options){
        .train = {.accumulate = 1,
                  .optimizer = adamw,
                  .hyper = ht_optimizer_standards(adamw),
                  .lr = 1e-3,
                  .scaling = {.fixed = 1, .power = 16, .window = 1000, .hysteresis = 2, .min = 1, .most_skips = 20}},
        .precision = {.precision = HT_PRECISION_FP32, .masters = true, .fp8_history = 16},
        .distill = {.temperature = 2, .alpha = 0.5, .hidden_weight = 1, .attention_weight = 1},
        .recompute = {.policy = HT_RECOMPUTE_MARKED},
        .head = {.chunks = 1},
        .offload = {.activation_bytes = 65536, .persistent = 100000, .ahead = 1, .ratio = 1},
        .zero = {.ranks = 1,
                 .reduce_bucket = 500000000,
                 .gather_bucket = 500000000,
                 .persistent = 100000,
                 .prefetch = 50000000,
                 .overlap = true},
        .parallel = {.pipeline = {.ranks = 1}, .tensor = {.ranks = 1}},
    };
}

/* ---- settings by name ---- */

/* The key of this name among those of the stage's passes, and where its struct lies. */
static const ht_setting_key *find_key(ht_stage stage, const char *name, size_t *at)
{
    if (strcmp(name, "other_rate") == 0) name = "rest_lr_scale"; /* its deprecated name */
    for (const ht_pipeline_row *row = ht_pipeline; row->pass; row++) {
        const ht_pass_settings *table = row->pass->settings;
        for (; table && table->keys && (stage == HT_STAGE_ANY || row->stage == stage); table++) {
            const ht_setting_key *key = ht_setting_find(table->keys, name);
            *at = table->at;
            if (key) return key;
        }
    }
    return NULL;
}

static bool is_given_again(size_t count, const ht_train_setting *settings, size_t index)
{
    for (size_t i = index + 1; i < count; i++)
        if (strcmp(settings[i].key, settings[index].key) == 0) return true;
    return false;
}

ht_status ht_pass_options_read(ht_context *ctx, ht_pass_options *options, ht_stage stage, size_t count,
                               const ht_train_setting *settings)
{
    size_t at;
    for (size_t i = 0; i < count; i++) {
        if (!settings[i].key || !settings[i].value) HT_FAIL(ctx, HT_EINVAL, "setting %zu has no key or no value", i);
        if (stage != HT_STAGE_ANY && !find_key(stage, settings[i].key, &at))
            HT_FAIL(ctx, HT_EINVAL, "setting %s: %s has no such setting", settings[i].key,
                    stage == HT_STAGE_TRAIN ? "training" : "planning");
    }
    for (int first = 1; first >= 0; first--) {
        for (size_t i = 0; i < count; i++) {
            const ht_setting_key *key = find_key(stage, settings[i].key, &at);
            if (!key || key->first != first || is_given_again(count, settings, i)) continue;
            HT_TRY(ht_setting_read(ctx, key, (char *)options + at, settings[i].key, settings[i].value));
        }
    }
    return HT_OK;
}
