/* The options of autodiff and optimizer: their names as settings, and what must hold between them. */
#include "pass/train_options.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- the optimiser and the schedule ---- */

ht_status ht_train_options_choose(ht_context *ctx, ht_train_options *options, const char *optimizer)
{
    const char *names;
    const ht_optimizer *rule = ht_optimizer_find(optimizer, &names);
    if (!rule) HT_FAIL(ctx, HT_EINVAL, "setting optimizer: there is no '%s'; known: %s", optimizer, names);
    options->optimizer = rule;
    options->hyper = ht_optimizer_standards(rule);
    return HT_OK;
}

ht_status ht_train_options_schedule(ht_context *ctx, ht_train_options *options, const char *schedule)
{
    const char *names;
    options->schedule = NULL;
    if (strcmp(schedule, "constant") == 0) return HT_OK;
    options->schedule = ht_schedule_find(schedule, &names);
    if (!options->schedule)
        HT_FAIL(ctx, HT_EINVAL, "setting schedule: there is no '%s'; known: constant, %s", schedule, names);
    ht_schedule_standards(options->schedule, options->schedule_params);
    return HT_OK;
}

/* ---- settings that are not one field ---- */

/* The optimiser that is chosen already keeps the hyper-parameters that it has by now. */
static ht_status read_optimizer(ht_context *ctx, void *settings, const char *name, const char *text)
{
    ht_train_options *options = settings;
    (void)name;
    if (strcmp(options->optimizer->name, text) == 0) return HT_OK;
    return ht_train_options_choose(ctx, options, text);
}

static ht_status read_schedule(ht_context *ctx, void *settings, const char *name, const char *text)
{
    (void)name;
    return ht_train_options_schedule(ctx, settings, text);
}

static ht_status unknown_number(ht_context *ctx, const ht_schedule *schedule, const char *name)
{
    char known[512] = "none";
    size_t at = 0;
    for (size_t i = 0; schedule && schedule->params[i].name && at < sizeof known; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i ? ", " : "", schedule->params[i].name);
    HT_FAIL(ctx, HT_EINVAL, "setting %s: the schedule %s has no such number; known: %s", name,
            schedule ? schedule->name : "constant", known);
}

/* "schedule.warmup_num_steps": a number of the schedule. */
static ht_status read_schedule_number(ht_context *ctx, void *settings, const char *name, const char *text)
{
    ht_train_options *options = settings;
    const char *wanted = strchr(name, '.') + 1;
    for (size_t i = 0; options->schedule && options->schedule->params[i].name; i++) {
        if (strcmp(options->schedule->params[i].name, wanted) != 0) continue;
        if (ht_number_read(text, &options->schedule_params[i])) return HT_OK;
        HT_FAIL(ctx, HT_EINVAL, "setting %s: '%s' is no number", name, text);
    }
    return unknown_number(ctx, options->schedule, name);
}

static ht_status read_freeze(ht_context *ctx, void *settings, const char *name, const char *text)
{
    ht_train_options *options = settings;
    (void)ctx, (void)name;
    options->freeze[0] = text;
    options->freeze_count = 1;
    return HT_OK;
}

static ht_status read_pruned(ht_context *ctx, void *settings, const char *name, const char *text)
{
    ht_train_options *options = settings;
    (void)ctx, (void)name;
    options->pruned[0] = text;
    options->pruned_count = 1;
    return HT_OK;
}

/* The group of this expression, which may be a new one; NULL: there are too many. */
static ht_param_group *group_of(ht_train_options *options, const char *match)
{
    for (size_t i = 0; i < options->group_count; i++)
        if (strcmp(options->groups[i].match, match) == 0) return &options->groups[i];
    if (options->group_count == HT_MOST_PARAM_PATTERNS) return NULL;
    ht_param_group *group = &options->groups[options->group_count++];
    *group = (ht_param_group){.match = match, .lr_scale = 1, .weight_decay = NAN};
    return group;
}

/* "lr_scale.^embed": a number of the parameters whose name matches. */
static ht_status read_group(ht_context *ctx, void *settings, const char *name, const char *text)
{
    ht_param_group *group = group_of(settings, strchr(name, '.') + 1);
    if (!group) HT_FAIL(ctx, HT_EINVAL, "setting %s: there are more than %d groups", name, HT_MOST_PARAM_PATTERNS);
    if (ht_number_read(text, name[0] == 'l' ? &group->lr_scale : &group->weight_decay)) return HT_OK;
    HT_FAIL(ctx, HT_EINVAL, "setting %s: '%s' is no number", name, text);
}

static bool is_scale(double scale)
{
    return scale >= FLT_MIN && scale <= FLT_MAX;
}

static ht_status read_loss_scale(ht_context *ctx, void *settings, const char *name, const char *text)
{
    ht_scaling_options *scaling = settings;
    scaling->kind = HT_SCALING_NONE;
    if (strcmp(text, "none") == 0) return HT_OK;
    scaling->kind = HT_SCALING_DYNAMIC;
    if (strcmp(text, "dynamic") == 0) return HT_OK;
    scaling->kind = HT_SCALING_STATIC;
    if (ht_number_read(text, &scaling->fixed) && is_scale(scaling->fixed)) return HT_OK;
    HT_FAIL(ctx, HT_EINVAL, "setting %s: '%s' is neither none, dynamic nor a number above 0", name, text);
}

/* ---- the keys ---- */

#define TRAIN(field) .at = offsetof(ht_train_options, field)
static const ht_setting_key autodiff_keys[] = {{.name = "accumulate",
                                                .kind = HT_SETTING_WHOLE,
                                                TRAIN(accumulate),
                                                .low = 1,
                                                .high = 1e6,
                                                .wants = "a whole number from 1 to 1000000",
                                                .help = "micro-batches per update"},
                                               {.name = "freeze",
                                                .kind = HT_SETTING_CUSTOM,
                                                .read = read_freeze,
                                                .help = "parameters that stay: a regular expression"},
                                               {.name = NULL}};

static const ht_setting_key update_keys[] = {
    {.name = "optimizer", .kind = HT_SETTING_CUSTOM, .read = read_optimizer, .first = true, .help = "the update rule"},
    {.name = "schedule", .kind = HT_SETTING_CUSTOM, .read = read_schedule, .first = true, .help = "of the rate"},
    {.name = "schedule.", .kind = HT_SETTING_CUSTOM, .read = read_schedule_number, .help = "a number of the schedule"},
    {.name = "lr", .kind = HT_SETTING_BOUNDED, TRAIN(lr), .help = "learning rate"},
    {.name = "clip",
     .kind = HT_SETTING_BOUNDED,
     TRAIN(clip),
     .high = INFINITY,
     .wants = "a norm, or 0 for none",
     .help = "bound of the gradients' norm; 0: none"},
    {.name = "decay",
     .kind = HT_SETTING_EITHER,
     TRAIN(decay_matrices),
     .words = "matrices|all",
     .help = "which tensors decay"},
    {.name = "lr_scale.",
     .kind = HT_SETTING_CUSTOM,
     .read = read_group,
     .help = "of the rate, for parameters whose name matches what follows the dot"},
    {.name = "weight_decay.", .kind = HT_SETTING_CUSTOM, .read = read_group, .help = "likewise"},
    {.name = "pruned",
     .kind = HT_SETTING_CUSTOM,
     .read = read_pruned,
     .help = "parameters whose zeros stay zero: a regular expression"},
    {.name = NULL}};
#undef TRAIN

/* Counts end where f64 no longer has every whole number. */
#define COUNT(id, field, least, most, text)                                                                            \
    {                                                                                                                  \
        .name = id, .kind = HT_SETTING_WHOLE, .at = offsetof(ht_scaling_options, field), .low = least, .high = most,   \
        .help = text                                                                                                   \
    }
static const ht_setting_key scaling_keys[] = {
    {.name = "loss_scale", .kind = HT_SETTING_CUSTOM, .read = read_loss_scale, .help = "none, dynamic or a number"},
    COUNT("scale_power", power, 0, 126, "dynamic begins with two to this power"),
    COUNT("scale_window", window, 1, 0x1p53, "clean steps before the scale doubles"),
    COUNT("scale_hysteresis", hysteresis, 1, 0x1p53, "overflows before it halves"),
    COUNT("scale_consecutive", consecutive, 0, 1, "1: every clean step makes that count full again"),
    {.name = "scale_min",
     .kind = HT_SETTING_BOUNDED,
     .at = offsetof(ht_scaling_options, min),
     .high = FLT_MAX,
     .help = "it never falls below"},
    COUNT("most_skips", most_skips, 0, 0x1p53, "skipped steps in a row that are fatal; 0: any number"),
    {.name = NULL}};
#undef COUNT

const ht_pass_settings ht_autodiff_settings[] = {{autodiff_keys, offsetof(ht_pass_options, train)}, {NULL, 0}};
const ht_pass_settings ht_micro_batches_settings[] = {
    {autodiff_keys, offsetof(ht_pass_options, train)}, {ht_zero_keys, offsetof(ht_pass_options, zero)}, {NULL, 0}};
const ht_pass_settings ht_optimizer_settings[] = {
    {update_keys, offsetof(ht_pass_options, train)},
    {ht_hyper_keys, offsetof(ht_pass_options, train.hyper)},
    {scaling_keys, offsetof(ht_pass_options, train.scaling)},
    {NULL, 0},
};

/* ---- what must hold ---- */

ht_status ht_autodiff_check(ht_context *ctx, const ht_train_options *options)
{
    return ht_settings_check(ctx, autodiff_keys, options);
}

double ht_first_loss_scale(const ht_scaling_options *scaling)
{
    if (scaling->kind == HT_SCALING_NONE) return 1;
    if (scaling->kind == HT_SCALING_DYNAMIC) return ldexp(1, (int)scaling->power);
    return (double)(float)scaling->fixed; /* so that it is the same number in a model in f64 */
}

static ht_status check_scaling(ht_context *ctx, const ht_scaling_options *scaling)
{
    HT_TRY(ht_settings_check(ctx, scaling_keys, scaling));
    if (scaling->kind == HT_SCALING_STATIC && !is_scale(scaling->fixed))
        HT_FAIL(ctx, HT_EINVAL, "setting loss_scale: '%g' is neither none, dynamic nor a number above 0",
                scaling->fixed);
    double first = ht_first_loss_scale(scaling);
    if (scaling->kind == HT_SCALING_DYNAMIC && !(scaling->min >= FLT_MIN))
        HT_FAIL(ctx, HT_EINVAL, "setting scale_min: %g would let the scale fall to 0, where every gradient is 0",
                scaling->min);
    if (scaling->kind == HT_SCALING_DYNAMIC && scaling->min > first)
        HT_FAIL(ctx, HT_EINVAL, "setting scale_min: %g is above %g, the scale that scale_power=%g begins with",
                scaling->min, first, (double)scaling->power);
    return HT_OK;
}

static ht_status check_groups(ht_context *ctx, const ht_train_options *options)
{
    for (size_t i = 0; i < options->group_count; i++) {
        const ht_param_group *group = &options->groups[i];
        if (!(group->lr_scale >= 0 && isfinite(group->lr_scale)))
            HT_FAIL(ctx, HT_EINVAL, "groups: lr_scale %g of '%s' is negative or no number", group->lr_scale,
                    group->match);
        if (!isnan(group->weight_decay) && !(group->weight_decay >= 0 && isfinite(group->weight_decay)))
            HT_FAIL(ctx, HT_EINVAL, "groups: weight_decay %g of '%s' is negative or no number", group->weight_decay,
                    group->match);
    }
    return HT_OK;
}

ht_status ht_optimizer_check(ht_context *ctx, const ht_train_options *options)
{
    const ht_hyper *hyper = &options->hyper;
    if (!(options->lr >= 0 && isfinite(options->lr))) HT_FAIL(ctx, HT_EINVAL, "setting lr: %g is no rate", options->lr);
    HT_TRY(ht_settings_check(ctx, update_keys, options));
    HT_TRY(ht_settings_check(ctx, ht_hyper_keys, hyper));
    if (hyper->min_coeff > hyper->max_coeff)
        HT_FAIL(ctx, HT_EINVAL, "setting min_coeff: %g is above max_coeff, %g", hyper->min_coeff, hyper->max_coeff);
    HT_TRY(check_scaling(ctx, &options->scaling));
    HT_TRY(check_groups(ctx, options));
    return options->schedule ? ht_schedule_check(ctx, options->schedule, options->schedule_params) : HT_OK;
}
