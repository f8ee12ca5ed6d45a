#include "config/inside.h"

#include <string.h>

static int64_t int_or(const ht_fields *fields, const char *name, int64_t otherwise)
{
    return ht_field_null(fields, name) ? otherwise : ht_field_int(fields, name);
}

static double number_or(const ht_fields *fields, const char *name, double otherwise)
{
    const ht_field *field = ht_fields_find(fields, name);
    double number = otherwise;
    if (field != NULL) ht_json_as_number(field->value, &number);
    return number;
}

static bool bool_or(const ht_fields *fields, const char *name, bool otherwise)
{
    const ht_field *field = ht_fields_find(fields, name);
    return field != NULL && field->value->kind == HT_JSON_BOOL ? field->value->boolean : otherwise;
}

static void fill_optimizer(ht_recipe *r, const ht_fields *train, const ht_fields *engine)
{
    r->optimizer = ht_field_text(train, "optimizer");
    r->lr = ht_field_number(train, "lr");
    r->beta1 = ht_field_number_at(train, "betas", 0);
    r->beta2 = ht_field_number_at(train, "betas", 1);
    r->eps = ht_field_number(train, "eps");
    r->weight_decay = ht_field_number(train, "weight_decay");
    r->momentum = ht_field_number(train, "momentum");
    r->nesterov = ht_field_bool(train, "nesterov");
    r->decay_all = strcmp(ht_field_text(train, "decay"), "all") == 0;
    r->dampening = number_or(engine, "optimizer.params.dampening", 0);
    r->lr_decay = number_or(engine, "optimizer.params.lr_decay", 0);
    r->initial_accumulator = number_or(engine, "optimizer.params.initial_accumulator_value", 0);
    r->min_coeff = number_or(engine, "optimizer.params.min_coeff", 0.01);
    r->max_coeff = number_or(engine, "optimizer.params.max_coeff", 10);
    r->eps_inside_sqrt = bool_or(engine, "optimizer.params.eps_inside_sqrt", false);
}

void ht_recipe_fill(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    ht_recipe *r = &c->recipe;
    r->steps = int_or(train, "steps", 0);
    r->epochs = int_or(train, "epochs", 0);
    r->batch = ht_field_int(train, "batch");
    r->micro_batch = ht_field_int(train, "micro_batch");
    r->accumulate = ht_field_int(train, "accumulate");
    r->ranks = c->ranks;
    r->seed = (uint64_t)ht_field_int(train, "seed");
    r->eval_every = ht_field_int(train, "eval_every");
    r->eval_batches = int_or(train, "eval_batches", 0);
    r->snapshot_every = ht_field_int(train, "snapshot_every");
    r->keep = ht_field_int(train, "keep");
    r->log_every = ht_field_int(train, "log_every");
    r->output = ht_field_text(train, "output");
    r->precision = ht_field_text(train, "precision");
    r->clip = ht_field_number(train, "clip");
    fill_optimizer(r, train, engine);
    r->schedule = ht_field_text(train, "schedule");
    if (strcmp(r->schedule, "engine") == 0) r->schedule = ht_field_text(engine, "scheduler.type");
    r->warmup = int_or(train, "warmup", -1);
    r->lr_min = number_or(train, "lr_min", 0);
}
