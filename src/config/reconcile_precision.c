/* Number types and the loss scale: which of DeepSpeed's four modes that ask for half precision is on, and what it means for
 * train.precision, train.loss_scale and train.masters. */
#include "config/internal.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool enabled(const ht_config *c, const char *name)
{
    return ht_field_bool(c->blocks[BLOCK_ENGINE], name);
}

/* ---- precision ---- */

enum { FP16, BF16, AMP, AUTOCAST, MODES };
static const char *const modes[MODES] = {"fp16.enabled", "bf16.enabled", "amp.enabled", "torch_autocast.enabled"};

/* apex's level; its own default is O1. */
static const char *amp_level(const ht_config *c)
{
    const char *level = ht_field_text(c->blocks[BLOCK_ENGINE], "amp.opt_level");
    return level != NULL ? level : "O1";
}

static const char *precision_of(const ht_config *c, int mode)
{
    const char *dtype = ht_field_text(c->blocks[BLOCK_ENGINE], "torch_autocast.dtype");
    if (mode == AMP) return strcmp(amp_level(c), "O0") == 0 ? "fp32" : "fp16";
    if (mode == AUTOCAST) return dtype == NULL || strstr(dtype, "bf") != NULL ? "bf16" : "fp16";
    return mode == FP16 ? "fp16" : "bf16";
}

static void tell_two(ht_config *c, int one, int other)
{
    const ht_fields *engine = c->blocks[BLOCK_ENGINE];
    ht_text text = {0};
    ht_name_field(&text, c, BLOCK_ENGINE, ht_fields_find(engine, modes[one]));
    ht_text_add(&text, " and ");
    ht_name_field(&text, c, BLOCK_ENGINE, ht_fields_find(engine, modes[other]));
    if (!text.failed) ht_problems_error(&c->problems, NULL, "%.400s are both true: one of them at a time", text.data);
    c->problems.failed |= text.failed;
    ht_text_free(&text);
}

/* Lenient: the modes of the engine config that mean another precision than the job's are off. */
static ht_status drop_modes(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    if (!ht_is_given(train, "precision")) return HT_OK;
    for (int i = 0; i < MODES; i++) {
        if (!enabled(c, modes[i]) || strcmp(precision_of(c, i), ht_field_text(train, "precision")) == 0) continue;
        ht_clash(c, ht_fields_find(train, "precision"), ht_fields_find(engine, modes[i]));
        HT_TRY(
            ht_derive(c, BLOCK_ENGINE, modes[i], "false", "train.precision is %s", ht_field_text(train, "precision")));
    }
    return HT_OK;
}

/* The first mode that is on; MODES when none is. A second one must mean the same precision. */
static int chosen_mode(ht_config *c, bool *clash)
{
    int chosen = MODES;
    *clash = false;
    for (int i = 0; i < MODES && !*clash; i++) {
        if (!enabled(c, modes[i])) continue;
        *clash = chosen != MODES && strcmp(precision_of(c, i), precision_of(c, chosen)) != 0;
        if (*clash) tell_two(c, chosen, i);
        if (chosen == MODES) chosen = i;
    }
    return chosen;
}

/* A value of the train block that follows from a field of the engine config. */
static ht_status follow(ht_config *c, const char *name, const char *json, const char *from)
{
    ht_text why = {0};
    ht_name_field(&why, c, BLOCK_ENGINE, ht_fields_find(c->blocks[BLOCK_ENGINE], from));
    ht_status status = why.failed ? HT_ENOMEM : ht_derive(c, BLOCK_TRAIN, name, json, "%s", why.data);
    ht_text_free(&why);
    return status;
}

/* One of fp16 and bf16 against train.precision. */
static ht_status reconcile_half(ht_config *c, const char *precision, const char *key)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    const ht_field *t = ht_fields_find(train, "precision"), *e = ht_fields_find(engine, key);
    bool wanted = strcmp(ht_field_text(train, "precision"), precision) == 0;
    if (!ht_is_given(engine, key)) return wanted ? ht_derive(c, BLOCK_ENGINE, key, "true", "train.precision") : HT_OK;
    if (!ht_is_given(train, "precision") || t->origin.source == HT_SOURCE_DERIVED || enabled(c, key) == wanted)
        return HT_OK;
    if (e->origin.source != HT_SOURCE_DERIVED) ht_clash(c, t, e);
    return c->lenient ? ht_derive(c, BLOCK_ENGINE, key, wanted ? "true" : "false", "train.precision") : HT_OK;
}

static ht_status reconcile_precision(ht_config *c, int mode)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN];
    if (mode == AMP || mode == AUTOCAST) {
        const char *precision = precision_of(c, mode);
        bool agrees = strcmp(ht_field_text(train, "precision"), precision) == 0;
        char json[16];
        snprintf(json, sizeof json, "\"%s\"", precision);
        if (!ht_is_given(train, "precision")) return follow(c, "precision", json, modes[mode]);
        if (!agrees)
            ht_clash(c, ht_fields_find(train, "precision"), ht_fields_find(c->blocks[BLOCK_ENGINE], modes[mode]));
        return HT_OK;
    }
    if (mode != MODES && !ht_is_given(train, "precision"))
        HT_TRY(follow(c, "precision", mode == FP16 ? "\"fp16\"" : "\"bf16\"", modes[mode]));
    HT_TRY(reconcile_half(c, "fp16", "fp16.enabled"));
    return reconcile_half(c, "bf16", "bf16.enabled");
}

/* ---- the loss scale ---- */

static bool is_scale(const ht_json *value)
{
    double number;
    if (value->kind == HT_JSON_STRING) return strcmp(value->text, "dynamic") == 0 || strcmp(value->text, "none") == 0;
    return ht_json_as_number(value, &number) && number >= FLT_MIN && number <= FLT_MAX;
}

static bool check_scale(ht_config *c, block_id block, const char *name)
{
    const ht_field *field = ht_fields_find(c->blocks[block], name);
    if (field->value->kind == HT_JSON_NULL || is_scale(field->value)) return true;
    ht_text found = {0};
    ht_json_print(&found, field->value);
    c->problems.failed |= found.failed;
    if (!found.failed)
        ht_problems_error(&c->problems, &field->origin,
                          "%s%s: expected \"dynamic\", \"none\" or a number above 0, found %.60s",
                          block == BLOCK_TRAIN ? "train." : "", name, found.data);
    ht_text_free(&found);
    return false;
}

/* As fp16.loss_scale says it: 0 is dynamic; none is a scale of 1. */
static double engine_scale(const ht_json *value)
{
    double number = 1;
    if (value->kind == HT_JSON_STRING) return strcmp(value->text, "dynamic") == 0 ? 0 : 1;
    ht_json_as_number(value, &number);
    return number;
}

/* The fp16 block has a scale of its own. */
static ht_status reconcile_fp16_scale(ht_config *c)
{
    static const char key[] = "fp16.loss_scale";
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    const ht_field *t = ht_fields_find(train, "loss_scale"), *e = ht_fields_find(engine, key);
    double number = ht_field_number(engine, key);
    ht_text json = {0};
    if (number > 0 && !(number >= FLT_MIN && number <= FLT_MAX)) {
        ht_problems_error(&c->problems, &e->origin, "%s: %g is outside what fp32 can hold", key, number);
        return HT_OK;
    }
    if (ht_field_null(train, "loss_scale")) {
        if (number > 0) ht_text_number(&json, number);
        ht_status status =
            json.failed ? HT_ENOMEM : follow(c, "loss_scale", number > 0 ? json.data : "\"dynamic\"", key);
        ht_text_free(&json);
        return status;
    }
    if (ht_is_given(engine, key)) {
        if (engine_scale(t->value) != number) ht_clash(c, t, e);
        return HT_OK;
    }
    ht_text_number(&json, engine_scale(t->value));
    ht_status status = json.failed ? HT_ENOMEM : ht_derive(c, BLOCK_ENGINE, key, json.data, "train.loss_scale");
    ht_text_free(&json);
    return status;
}

/* apex's own, of which O3 has none. */
static ht_status reconcile_amp_scale(ht_config *c)
{
    const ht_field *given = ht_fields_find(c->blocks[BLOCK_ENGINE], "amp.loss_scale");
    ht_text json = {0};
    if (!ht_field_null(c->blocks[BLOCK_TRAIN], "loss_scale")) return HT_OK;
    if (!check_scale(c, BLOCK_ENGINE, "amp.loss_scale")) return HT_OK;
    if (given->value->kind == HT_JSON_NULL && strcmp(amp_level(c), "O3") == 0)
        return follow(c, "loss_scale", "\"none\"", "amp.opt_level");
    if (given->value->kind == HT_JSON_NULL) return HT_OK;
    ht_json_print(&json, given->value);
    ht_status status = json.failed ? HT_ENOMEM : follow(c, "loss_scale", json.data, "amp.loss_scale");
    ht_text_free(&json);
    return status;
}

static ht_status reconcile_scale(ht_config *c, int mode)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN];
    if (!check_scale(c, BLOCK_TRAIN, "loss_scale")) return HT_OK;
    if (c->has_engine && mode == AMP) HT_TRY(reconcile_amp_scale(c));
    if (c->has_engine && enabled(c, "fp16.enabled")) HT_TRY(reconcile_fp16_scale(c));
    if (!ht_field_null(train, "loss_scale")) return HT_OK;
    const char *precision = ht_field_text(train, "precision");
    return ht_derive(c, BLOCK_TRAIN, "loss_scale", strcmp(precision, "fp16") == 0 ? "\"dynamic\"" : "\"none\"",
                     "train.precision is %s", precision);
}

/* A scale that begins below its minimum could only be an error. */
static void check_minimum(ht_config *c)
{
    const ht_fields *engine = c->blocks[BLOCK_ENGINE];
    const ht_json *scale = ht_fields_find(c->blocks[BLOCK_TRAIN], "loss_scale")->value;
    int64_t power = ht_field_int(engine, "fp16.initial_scale_power"), min = ht_field_int(engine, "fp16.min_loss_scale");
    if (scale->kind != HT_JSON_STRING || strcmp(scale->text, "dynamic") != 0) return;
    if (min == 0)
        ht_problems_warn(&c->problems, &ht_fields_find(engine, "fp16.min_loss_scale")->origin,
                         "fp16.min_loss_scale: 0 would let the scale fall to 0, where every gradient is 0: taken as 1");
    if ((double)min > ldexp(1, (int)power))
        ht_problems_error(&c->problems, &ht_fields_find(engine, "fp16.min_loss_scale")->origin,
                          "fp16.min_loss_scale: %" PRId64
                          " is above the first scale, two to the power of fp16.initial_scale_power, %" PRId64,
                          min, power);
}

/* ---- masters and accumulators ---- */

static ht_status reconcile_masters(ht_config *c, int mode)
{
    static const char *const keys[] = {"fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads"};
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    const char *without = NULL;
    for (int i = 0; i < 2; i++)
        if (enabled(c, modes[i]) && enabled(c, keys[i])) without = keys[i];
    if (mode == AMP && strcmp(amp_level(c), "O3") == 0) without = "amp.opt_level";
    if (without == NULL) return HT_OK;
    if (!ht_is_given(train, "masters")) return follow(c, "masters", "false", without);
    if (!ht_field_bool(train, "masters")) return HT_OK;
    ht_clash(c, ht_fields_find(train, "masters"), ht_fields_find(engine, without));
    bool key = strcmp(without, "amp.opt_level") != 0;
    return c->lenient && key ? ht_derive(c, BLOCK_ENGINE, without, "false", "train.masters") : HT_OK;
}

/* Gradients are added up in fp32 or in the type of the arithmetic; there is no third one. */
static ht_status check_accumulators(ht_config *c)
{
    const ht_field *field = ht_fields_find(c->blocks[BLOCK_ENGINE], "data_types.grad_accum_dtype");
    const char *precision = ht_field_text(c->blocks[BLOCK_TRAIN], "precision");
    if (field->value->kind == HT_JSON_NULL) return HT_OK;
    const char *wanted = field->value->text;
    bool fits = strcmp(wanted, "fp32") == 0 || strcmp(wanted, precision) == 0;
    if (!fits && c->lenient) {
        ht_problems_warn(&c->problems, &field->origin,
                         "left out: data_types.grad_accum_dtype is \"%s\", but the precision is %s", wanted, precision);
        return ht_derive(c, BLOCK_ENGINE, field->name, "null", "the precision is %s", precision);
    }
    if (!fits)
        ht_problems_error(&c->problems, &field->origin,
                          "data_types.grad_accum_dtype: \"%s\", but the precision is %s: fp32 or the same", wanted,
                          precision);
    return HT_OK;
}

static void tell_overflow_check(ht_config *c)
{
    static const char key[] = "bf16.check_grad_overflow";
    if (!enabled(c, "bf16.enabled") || enabled(c, key)) return;
    ht_problems_warn(&c->problems, &ht_fields_find(c->blocks[BLOCK_ENGINE], key)->origin,
                     "%s: false, but a step with inf or NaN in its gradients is skipped all the same: making it would "
                     "end the model",
                     key);
}

/* Masters are f32: then there is nothing to round by chance. */
static void check_rounding(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN];
    const ht_field *field = ht_fields_find(c->blocks[BLOCK_HALFTONE], "rounding");
    const char *precision = ht_field_text(train, "precision");
    bool half = strcmp(precision, "fp16") == 0 || strcmp(precision, "bf16") == 0;
    if (strcmp(field->value->text, "stochastic") != 0 || (half && !ht_field_bool(train, "masters"))) return;
    ht_problems_error(
        &c->problems, &field->origin,
        "halftone.rounding: \"stochastic\" is for fp16 and bf16 with train.masters false; the precision is "
        "%s, and its parameters are not half",
        precision);
}

static void check_fp8(ht_config *c)
{
    const ht_fields *halftone = c->blocks[BLOCK_HALFTONE];
    const ht_field *recipe = ht_fields_find(halftone, "fp8.recipe"), *history = ht_fields_find(halftone, "fp8.history");
    const char *precision = ht_field_text(c->blocks[BLOCK_TRAIN], "precision");
    bool half = strcmp(precision, "fp16") == 0 || strcmp(precision, "bf16") == 0,
         asked = !ht_field_null(halftone, "fp8.recipe");
    if (asked && !half)
        ht_problems_error(
            &c->problems, &recipe->origin,
            "halftone.fp8.recipe: \"%s\" goes with the precisions bf16 and fp16, for all that is not in f8; "
            "train.precision is \"%s\"",
            recipe->value->text, precision);
    if (!asked && !ht_field_is_default_value(history)) /* a recorded config gives every key */
        ht_problems_warn(&c->problems, &history->origin,
                         "halftone.fp8.history: without halftone.fp8.recipe nothing is in f8");
}

/* What would only show when the step is planned. */
static void check_kept_parameters(ht_config *c)
{
    const ht_field *field = ht_fields_find(c->blocks[BLOCK_HALFTONE], "fp32_params");
    if (field->value->kind == HT_JSON_NULL) return;
    if (!ht_check_expression(c, field, "halftone.fp32_params", field->value->text, NULL)) return;
    if (!ht_field_bool(c->blocks[BLOCK_TRAIN], "masters"))
        ht_problems_error(&c->problems, &field->origin,
                          "halftone.fp32_params: without masters all parameters are of one type");
}

/* Only a context that has ops can tell. */
static void check_op_names(ht_config *c, const char *key)
{
    const ht_fields *halftone = c->blocks[BLOCK_HALFTONE];
    for (size_t i = 0; c->ctx->op_count > 0 && i < ht_field_count(halftone, key); i++) {
        const char *name = ht_field_text_at(halftone, key, i);
        if (ht_op_find(c->ctx, name, strlen(name))) continue;
        const char *near = ht_op_nearest(c->ctx, name, strlen(name));
        ht_problems_error(&c->problems, &ht_fields_find(halftone, key)->origin,
                          "halftone.%s: there is no op \"%.100s\"%s%s%s", key, name, near ? "; did you mean \"" : "",
                          near ? near : "", near ? "\"?" : "");
    }
}

ht_status ht_precision_rules(ht_config *c)
{
    bool clash = false;
    if (c->has_engine && c->lenient) HT_TRY(drop_modes(c));
    int mode = c->has_engine ? chosen_mode(c, &clash) : MODES;
    if (clash) return HT_OK;
    if (c->has_engine) HT_TRY(reconcile_precision(c, mode));
    HT_TRY(reconcile_scale(c, mode));
    if (c->has_engine) HT_TRY(reconcile_masters(c, mode));
    check_rounding(c);
    check_fp8(c);
    check_kept_parameters(c);
    check_op_names(c, "fp32_ops");
    check_op_names(c, "half_ops");
    if (!c->has_engine) return HT_OK;
    check_minimum(c);
    HT_TRY(check_accumulators(c));
    tell_overflow_check(c);
    return HT_OK;
}
