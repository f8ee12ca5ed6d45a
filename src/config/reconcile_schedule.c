/* The length of training and the learning-rate schedule. */
#include "config/internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static bool from_command(const ht_fields *fields, const char *name)
{
    return ht_fields_find(fields, name)->origin.source == HT_SOURCE_COMMAND;
}

/* One of steps and epochs; that of the command line replaces the other of the file. */
static ht_status reconcile_length(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN];
    bool steps = !ht_field_null(train, "steps"), epochs = !ht_field_null(train, "epochs");
    if (steps && epochs && from_command(train, "steps") != from_command(train, "epochs")) {
        const char *given = from_command(train, "steps") ? "steps" : "epochs";
        return ht_derive(c, BLOCK_TRAIN, from_command(train, "steps") ? "epochs" : "steps", "null",
                         "train.%s is given by --set", given);
    }
    if (steps && epochs) {
        ht_problems_error(&c->problems, &ht_fields_find(train, "epochs")->origin,
                          "train.epochs: train.steps is given too; one of them says how long to train");
        return HT_OK;
    }
    if (steps || epochs) return HT_OK;
    return ht_derive(c, BLOCK_TRAIN, "steps", "1000", "neither steps nor epochs is given");
}

static ht_status derive_number(ht_config *c, block_id block, const char *name, double value, const char *why)
{
    ht_text json = {0};
    ht_text_number(&json, value);
    ht_status status = json.failed ? HT_ENOMEM : ht_derive(c, block, name, json.data, "%s", why);
    ht_text_free(&json);
    return status;
}

/* x / 10 as a person would write it: twelve digits, without the last bits of the division. */
static double tenth_of(double x)
{
    double scale = x > 0 ? pow(10, 13 - floor(log10(x))) : 0;
    return scale > 0 && isfinite(scale) && isfinite(x * scale) ? round(x / 10 * scale) / scale : x / 10;
}

/* The steps of the warm-up, where the job gives neither them nor epochs, whose steps are not counted yet. */
static ht_status fill_warmup(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN];
    char json[32];
    if (!ht_field_null(train, "warmup") || ht_field_null(train, "steps")) return HT_OK;
    int64_t tenth = ht_field_int(train, "steps") / 10;
    snprintf(json, sizeof json, "%" PRId64, tenth < 100 ? tenth : 100);
    return ht_derive(c, BLOCK_TRAIN, "warmup", json, "a tenth of train.steps, 100 at most");
}

/* A job's own schedule: warm-up and last rate where they are not given. */
static ht_status reconcile_shape(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN];
    bool constant = strcmp(ht_field_text(train, "schedule"), "constant") == 0;
    if (constant && ht_field_null(train, "warmup"))
        HT_TRY(ht_derive(c, BLOCK_TRAIN, "warmup", "0", "train.schedule is constant"));
    HT_TRY(fill_warmup(c));
    if (ht_field_null(train, "lr_min") && !constant)
        return derive_number(c, BLOCK_TRAIN, "lr_min", tenth_of(ht_field_number(train, "lr")), "a tenth of train.lr");
    return HT_OK;
}

static void must_be_given(ht_config *c, const char *name)
{
    const ht_fields *engine = c->blocks[BLOCK_ENGINE];
    const ht_field *field = ht_fields_find(engine, name);
    if (field == NULL || !ht_field_null(engine, name)) return;
    ht_problems_error(&c->problems, &ht_fields_find(engine, "scheduler.type")->origin, "%s: must be given for %s", name,
                      ht_field_text(engine, "scheduler.type"));
}

/* DeepSpeed takes a number per group of parameters. */
static void check_groups(ht_config *c)
{
    static const char *const names[] = {"warmup_min_lr", "warmup_max_lr", "cycle_min_lr",        "cycle_max_lr",
                                        "cycle_min_mom", "cycle_max_mom", "lr_range_test_min_lr"};
    const ht_fields *engine = c->blocks[BLOCK_ENGINE];
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char name[64];
        snprintf(name, sizeof name, "scheduler.params.%s", names[i]);
        const ht_field *field = ht_fields_find(engine, name);
        if (field == NULL || field->value->kind != HT_JSON_ARRAY || field->value->count == 1) continue;
        ht_problems_error(&c->problems, &field->origin,
                          "%s: expected one number, for the one group of parameters, found %zu", name,
                          field->value->count);
    }
}

/* "auto" for the rate after the warm-up, or none for WarmupLR: the optimiser's. */
static ht_status fill_rate(ht_config *c)
{
    const ht_fields *engine = c->blocks[BLOCK_ENGINE];
    const ht_field *most = ht_fields_find(engine, "scheduler.params.warmup_max_lr");
    if (most == NULL || ht_is_given(engine, most->name) || (!most->is_auto && most->value->kind != HT_JSON_NULL))
        return HT_OK;
    return derive_number(c, BLOCK_ENGINE, most->name, ht_field_number(c->blocks[BLOCK_TRAIN], "lr"), "train.lr");
}

/* The warm-up of the engine's scheduler and train.warmup. DeepSpeed has none of 0 steps. */
static ht_status reconcile_warmup(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    const ht_field *field = ht_fields_find(engine, "scheduler.params.warmup_num_steps");
    if (field == NULL) return HT_OK;
    if (field->is_auto) HT_TRY(fill_warmup(c));
    if (field->is_auto && ht_field_null(train, "warmup"))
        return ht_derive(c, BLOCK_ENGINE, field->name, "100", "\"auto\": at most; a tenth of all steps");
    bool none = !ht_field_null(train, "warmup") && ht_field_int(train, "warmup") == 0;
    if (none && (c->lenient || !ht_is_given(engine, field->name)))
        return ht_derive(c, BLOCK_ENGINE, field->name, "1", "train.warmup is 0; 1 is the least of a scheduler");
    return ht_reconcile_pair(c, "warmup", field->name, PAIR_AGREE);
}

static ht_status reconcile_engine_schedule(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    const ht_field *type = ht_fields_find(engine, "scheduler.type");
    const char *ours = ht_field_text(train, "schedule");
    if (ht_is_given(train, "schedule") && strcmp(ours, "engine") != 0 && c->lenient) {
        ht_clash(c, ht_fields_find(train, "schedule"), type);
        return reconcile_shape(c);
    }
    if (ht_is_given(train, "schedule") && strcmp(ours, "engine") != 0) {
        ht_text place = {0};
        ht_name_field(&place, c, BLOCK_ENGINE, type);
        if (!place.failed)
            ht_problems_error(&c->problems, &ht_fields_find(train, "schedule")->origin,
                              "train.schedule is \"%s\", but %s is \"%s\": leave out one of them", ours, place.data,
                              type->value->text);
        ht_text_free(&place);
        return HT_OK;
    }
    check_groups(c);
    must_be_given(c, "scheduler.params.cycle_min_lr");
    must_be_given(c, "scheduler.params.cycle_max_lr");
    HT_TRY(fill_rate(c));
    HT_TRY(reconcile_warmup(c));
    return ht_derive(c, BLOCK_TRAIN, "schedule", "\"engine\"", "scheduler.type is %s", type->value->text);
}

ht_status ht_schedule_rules(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    HT_TRY(reconcile_length(c));
    if (!ht_field_null(engine, "scheduler.type")) return reconcile_engine_schedule(c);
    if (strcmp(ht_field_text(train, "schedule"), "engine") == 0) {
        ht_problems_error(&c->problems, &ht_fields_find(train, "schedule")->origin,
                          "train.schedule: \"engine\", but there is no engine config with a scheduler");
        return HT_OK;
    }
    bool optimizer = ht_is_given(engine, "optimizer.type") &&
                     ht_fields_find(engine, "optimizer.type")->origin.source != HT_SOURCE_DERIVED;
    if (optimizer && !c->bare && !ht_is_given(train, "schedule"))
        HT_TRY(ht_derive(c, BLOCK_TRAIN, "schedule", "\"constant\"",
                         "the engine config has an optimizer and no scheduler"));
    return reconcile_shape(c);
}
