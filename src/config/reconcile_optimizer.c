/* The optimiser and its hyper-parameters, between the train block, DeepSpeed's config and the rows of optim/. */
#include "config/internal.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* ---- which one ---- */

/* Our name for an optimiser of the engine config. */
static const char *our_optimizer(const ht_config *c, const ht_engine_type *type)
{
    const ht_field *mode = ht_fields_find(c->blocks[BLOCK_ENGINE], "optimizer.params.adam_w_mode");
    bool l2 = strcmp(type->type, "Adam") == 0 && mode != NULL && !mode->value->boolean;
    return l2 ? "adam" : type->ours;
}

/* The engine config has no optimizer: the job's. */
static ht_status fill_optimizer(ht_config *c)
{
    const ht_field *t = ht_fields_find(c->blocks[BLOCK_TRAIN], "optimizer");
    for (size_t i = 0; i < ht_engine_type_count(); i++) {
        ht_engine_type type = ht_engine_type_at(i);
        bool ours = type.support == HT_SUPPORT_USED && strcmp(type.ours, t->value->text) == 0;
        bool named = strcasecmp(type.type, t->value->text) == 0; /* Adam is adamw, but not by name */
        if (strcmp(type.block, "optimizer") != 0 || !ours || !named) continue;
        char json[64];
        snprintf(json, sizeof json, "\"%s\"", type.type);
        return ht_derive(c, BLOCK_ENGINE, "optimizer.type", json, "left out; train.optimizer");
    }
    return HT_OK;
}

/* *applies: the engine's optimiser is the one that trains, with its numbers. */
static ht_status reconcile_optimizer_type(ht_config *c, const ht_field *e, bool *applies)
{
    const ht_field *t = ht_fields_find(c->blocks[BLOCK_TRAIN], "optimizer");
    ht_engine_type type;
    char json[64];
    *applies = true;
    if (!ht_engine_type_find("optimizer", e->value->text, &type)) return HT_OK;
    const char *ours = our_optimizer(c, &type);
    if (ht_is_given(c->blocks[BLOCK_TRAIN], "optimizer")) {
        *applies = strcmp(ours, t->value->text) == 0;
        if (!*applies) ht_clash(c, t, e);
        return HT_OK;
    }
    ht_text why = {0};
    ht_name_field(&why, c, BLOCK_ENGINE, e);
    if (type.support == HT_SUPPORT_LATER) ht_text_add(&why, "; stands in for %s, which is not there yet", type.type);
    if (strcasecmp(e->value->text, "Adam") == 0)
        ht_text_add(&why, strcmp(ours, "adam") == 0 ? "; adam_w_mode is false" : "; Adam means AdamW, as in DeepSpeed");
    snprintf(json, sizeof json, "\"%s\"", ours);
    ht_status status = why.failed ? HT_ENOMEM : ht_derive(c, BLOCK_TRAIN, "optimizer", json, "%s", why.data);
    ht_text_free(&why);
    return status;
}

static void check_betas(ht_config *c, block_id block, const char *name)
{
    const ht_field *field = ht_fields_find(c->blocks[block], name);
    if (field == NULL || field->value->kind == HT_JSON_NULL || ht_field_count(c->blocks[block], name) == 2) return;
    const char *prefix = block == BLOCK_ENGINE ? "" : "train.";
    ht_problems_error(&c->problems, &field->origin, "%s%s: expected two numbers, found %zu", prefix, name,
                      ht_field_count(c->blocks[block], name));
}

/* ---- hyper-parameters ---- */

static ht_status reconcile_param(ht_config *c, const char *name)
{
    char param[64];
    snprintf(param, sizeof param, "optimizer.params.%s", name);
    return ht_reconcile_pair(c, name, param, PAIR_AGREE);
}

/* Left to PyTorch, AdamW decays by PyTorch's default. */
static ht_status fill_torch_decay(ht_config *c)
{
    static const char key[] = "optimizer.params.weight_decay";
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    const ht_field *torch = ht_fields_find(engine, "optimizer.params.torch_adam"), *decay = ht_fields_find(engine, key);
    if (torch == NULL || !torch->value->boolean || decay->is_auto || ht_is_given(engine, key)) return HT_OK;
    if (ht_is_given(train, "weight_decay") || strcmp(ht_field_text(train, "optimizer"), "adamw") != 0) return HT_OK;
    return ht_derive(c, BLOCK_ENGINE, key, "0.01", "torch_adam: the default of PyTorch's AdamW");
}

static ht_status reconcile_params(ht_config *c)
{
    HT_TRY(fill_torch_decay(c));
    HT_TRY(reconcile_param(c, "lr"));
    HT_TRY(reconcile_param(c, "betas"));
    for (const ht_setting_key *key = ht_hyper_keys; key->name != NULL; key++)
        if (ht_fields_find(c->blocks[BLOCK_TRAIN], key->name) != NULL) HT_TRY(reconcile_param(c, key->name));
    return HT_OK;
}

static bool is_default(const ht_config *c, const char *name)
{
    const ht_field *field = ht_fields_find(c->blocks[BLOCK_TRAIN], name);
    return field != NULL && field->origin.source == HT_SOURCE_DEFAULT;
}

static ht_status derive_number(ht_config *c, const char *name, double value, const char *why)
{
    ht_text json = {0};
    ht_text_number(&json, value);
    ht_status status = json.failed ? HT_ENOMEM : ht_derive(c, BLOCK_TRAIN, name, json.data, "%s", why);
    ht_text_free(&json);
    return status;
}

static ht_status default_betas(ht_config *c, const ht_optimizer *rule, const char *why)
{
    const ht_hyper hyper = ht_optimizer_standards(rule);
    ht_text json = {0};
    ht_text_add(&json, "[");
    ht_text_number(&json, hyper.beta1);
    ht_text_add(&json, ", ");
    ht_text_number(&json, hyper.beta2);
    ht_text_add(&json, "]");
    ht_status status = json.failed ? HT_ENOMEM : ht_derive(c, BLOCK_TRAIN, "betas", json.data, "%s", why);
    ht_text_free(&json);
    return status;
}

/* An optimiser with a rate of its own replaces the train block's defaults by those of its row. */
static ht_status take_own_defaults(ht_config *c)
{
    const ht_optimizer *rule = ht_optimizer_find(ht_field_text(c->blocks[BLOCK_TRAIN], "optimizer"), NULL);
    char why[64];
    if (rule->lr == 0) return HT_OK;
    snprintf(why, sizeof why, "default of %s", rule->name);
    if (is_default(c, "lr")) HT_TRY(derive_number(c, "lr", rule->lr, why));
    if (is_default(c, "betas") && ht_optimizer_param(rule, "beta1") != NULL) HT_TRY(default_betas(c, rule, why));
    for (const ht_hyper_param *param = rule->params; param->name != NULL; param++)
        if (is_default(c, param->name) && ht_setting_find(ht_hyper_keys, param->name)->kind == HT_SETTING_NUMBER)
            HT_TRY(derive_number(c, param->name, param->standard, why));
    return HT_OK;
}

/* ---- Muon: DeepSpeed has two rates, the train block has one and a ratio ---- */

/* A number of the engine config; `otherwise` when it is null. */
static double engine_number(const ht_config *c, const char *name, double otherwise)
{
    const ht_fields *engine = c->blocks[BLOCK_ENGINE];
    return ht_field_null(engine, name) ? otherwise : ht_field_number(engine, name);
}

/* train.lr is the rate of matrices. */
static ht_status reconcile_muon_rate(ht_config *c)
{
    const ht_field *matrices = ht_fields_find(c->blocks[BLOCK_ENGINE], "optimizer.params.muon_lr");
    const ht_field *ours = ht_fields_find(c->blocks[BLOCK_TRAIN], "lr");
    if (matrices->value->kind == HT_JSON_NULL) return HT_OK;
    bool given = ours->origin.source == HT_SOURCE_FILE || ours->origin.source == HT_SOURCE_COMMAND;
    if (!given) return ht_derive_from(c, BLOCK_TRAIN, "lr", BLOCK_ENGINE, matrices);
    if (ht_field_number(c->blocks[BLOCK_TRAIN], "lr") != engine_number(c, matrices->name, 0))
        ht_clash(c, ours, matrices);
    return HT_OK;
}

static ht_status reconcile_muon(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    const ht_field *adam = ht_fields_find(engine, "optimizer.params.adam_lr");
    const ht_field *method = ht_fields_find(engine, "optimizer.params.ns_method");
    if (adam == NULL || ht_fields_find(train, "rest_lr_scale") == NULL) return HT_OK; /* another optimiser */
    HT_TRY(reconcile_muon_rate(c));
    if (method->origin.source != HT_SOURCE_DEFAULT && strcmp(method->value->text, "standard") != 0)
        ht_problems_warn(&c->problems, &method->origin,
                         "optimizer.params.ns_method: \"%s\" runs as \"standard\": both approximate the nearest "
                         "orthogonal matrix by Newton-Schulz iterations",
                         method->value->text);
    if (ht_is_given(train, "rest_lr_scale")) {
        if (adam->value->kind != HT_JSON_NULL && c->lenient)
            ht_problems_warn(&c->problems, &adam->origin,
                             "left out: optimizer.params.adam_lr: train.rest_lr_scale holds");
        else if (adam->value->kind != HT_JSON_NULL)
            ht_problems_error(&c->problems, &adam->origin,
                              "optimizer.params.adam_lr: train.rest_lr_scale is given too: leave out one of them");
        return HT_OK;
    }
    double lr = engine_number(c, "optimizer.params.lr", 0);
    double matrices = engine_number(c, "optimizer.params.muon_lr", lr), rest = engine_number(c, adam->name, lr);
    if (matrices == 0 && rest != 0) {
        ht_problems_error(&c->problems, &adam->origin,
                          "optimizer.params.adam_lr: here it is a part of the rate of matrices, and that is 0");
        return HT_OK;
    }
    return derive_number(c, "rest_lr_scale", matrices == 0 ? 1 : rest / matrices,
                         adam->value->kind == HT_JSON_NULL ? "DeepSpeed's Muon has one rate unless adam_lr is given"
                                                           : "optimizer.params.adam_lr as a part of train.lr");
}

/* ---- the whole ---- */

/* With an optimizer in the engine config. */
static ht_status reconcile_engine_optimizer(ht_config *c, const ht_field *type)
{
    bool applies;
    HT_TRY(reconcile_optimizer_type(c, type, &applies));
    if (!applies) return HT_OK;
    HT_TRY(reconcile_params(c));
    HT_TRY(reconcile_muon(c));
    const ht_field *norm = ht_fields_find(c->blocks[BLOCK_ENGINE], "optimizer.params.max_grad_norm");
    if (norm != NULL && norm->value->kind != HT_JSON_NULL)
        ht_problems_error(
            &c->problems, &norm->origin,
            "optimizer.params.max_grad_norm: DeepSpeed refuses it here; write gradient_clipping at the top");
    /* DeepSpeed decays whatever it is given, which is everything. */
    if (!c->bare && !ht_is_given(c->blocks[BLOCK_TRAIN], "decay"))
        return ht_derive(c, BLOCK_TRAIN, "decay", "\"all\"",
                         "the engine config has an optimizer, and DeepSpeed's decay all");
    return HT_OK;
}

ht_status ht_optimizer_rules(ht_config *c)
{
    const ht_field *type = ht_fields_find(c->blocks[BLOCK_ENGINE], "optimizer.type");
    check_betas(c, BLOCK_TRAIN, "betas");
    check_betas(c, BLOCK_ENGINE, "optimizer.params.betas");
    if (c->has_engine && type->value->kind == HT_JSON_NULL) HT_TRY(fill_optimizer(c));
    if (c->has_engine && type->value->kind != HT_JSON_NULL && type->origin.source != HT_SOURCE_DERIVED)
        HT_TRY(reconcile_engine_optimizer(c, type));
    return take_own_defaults(c);
}
