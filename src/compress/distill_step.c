/* The step `distill`: the model learns from its data and from the run that is compressed, the teacher, whose answers the pass of
 * this name joins into its training step. It may be a smaller model, which begins with layers of the run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compression.h"

static const ht_key distill_keys[] = {
    {"steps", HT_KEY_INT, NULL, 1, INFINITY, NULL, "updates"},
    {"lr", HT_KEY_NUMBER, "null", 0, INFINITY, NULL, "learning rate; the run's unless given"},
    {"temperature", HT_KEY_NUMBER, "2", 0.01, 1000, NULL, "by which the logits of both are divided"},
    {"alpha", HT_KEY_NUMBER, "0.5", 0, 1, NULL, "the share of the teacher's answers in the loss"},
    {"student", HT_KEY_JSON, "null", 0, 0, NULL, "an object: \"layers\" of the run that it begins with, keys of model"},
    {"hidden", HT_KEY_JSON, "null", 0, 0, NULL, "a list of pairs: modules whose results shall be alike"},
    {"hidden_weight", HT_KEY_NUMBER, "1", 0, INFINITY, NULL, "of their squared differences"},
    {"attention", HT_KEY_JSON, "null", 0, 0, NULL, "a list of pairs: modules whose attention weights shall be alike"},
    {"attention_weight", HT_KEY_NUMBER, "1", 0, INFINITY, NULL, "of their divergence"},
    {"train", HT_KEY_JSON, "null", 0, 0, NULL, "an object: further keys of the job's train block"},
    {0},
};

static ht_status need_kind(ht_context *ctx, const ht_fields *fields, const char *key, ht_json_kind kind)
{
    const ht_json *value = ht_field_json(fields, key);
    if (value && value->kind != kind)
        HT_FAIL(ctx, HT_EINVAL, "distill.%s: expected %s, found %s", key, ht_json_kind_name(kind),
                ht_json_kind_name(value->kind));
    return HT_OK;
}

static ht_status need_pairs(ht_context *ctx, const ht_fields *fields, const char *key)
{
    const ht_json *list = ht_field_json(fields, key);
    HT_TRY(need_kind(ctx, fields, key, HT_JSON_ARRAY));
    if (list && list->count > HT_MOST_MODULE_PAIRS)
        HT_FAIL(ctx, HT_EINVAL, "distill.%s: more than %d pairs", key, HT_MOST_MODULE_PAIRS);
    for (const ht_json *pair = list ? list->child : NULL; pair; pair = pair->next)
        if (pair->kind != HT_JSON_ARRAY || pair->count != 2)
            HT_FAIL(ctx, HT_EINVAL, "distill.%s: expected pairs [layer of the teacher, layer of the student]", key);
    return HT_OK;
}

static ht_status distill_check(ht_context *ctx, const ht_fields *fields)
{
    HT_TRY(need_kind(ctx, fields, "student", HT_JSON_OBJECT));
    HT_TRY(need_kind(ctx, fields, "train", HT_JSON_OBJECT));
    HT_TRY(need_pairs(ctx, fields, "hidden"));
    return need_pairs(ctx, fields, "attention");
}

/* ---- weights of both ---- */

/* A file of the student's and the teacher's tensors. */
static ht_status add_teacher(ht_compression *c)
{
    ht_weights teacher = {0}, *all = &c->weights;
    ht_status status = ht_weights_read(&teacher, c->ctx, c->request->run);
    ht_weight *items =
        status == HT_OK ? realloc(all->items, (all->count + teacher.count + 1) * sizeof *all->items) : NULL;
    if (items) {
        all->items = items;
        for (size_t i = 0; i < teacher.count; i++) {
            ht_weight *w = &items[all->count];
            char name[512];
            *w = teacher.items[i];
            teacher.items[i] = (ht_weight){0};
            snprintf(name, sizeof name, HT_TEACHER_PREFIX "%s", w->name);
            free(w->name);
            w->name = strdup(name);
            all->count++;
            if (!w->name) status = ht_fail(c->ctx, HT_ENOMEM, "distill: out of memory");
        }
    } else if (status == HT_OK) {
        status = ht_fail(c->ctx, HT_ENOMEM, "distill: out of memory");
    }
    ht_weights_free(&teacher);
    return status;
}

static void drop_teacher(ht_weights *weights)
{
    size_t kept = 0;
    for (size_t i = 0; i < weights->count; i++) {
        ht_weight *w = &weights->items[i];
        if (strncmp(w->name, HT_TEACHER_PREFIX, strlen(HT_TEACHER_PREFIX)) == 0 ||
            strncmp(w->name, HT_DISTILL_PREFIX, strlen(HT_DISTILL_PREFIX)) == 0)
            ht_weight_free(w);
        else
            weights->items[kept++] = *w;
    }
    weights->count = kept;
}

/* ---- the step ---- */

static ht_status read_pairs(ht_compression *c, const ht_fields *fields, const char *key, ht_module_pair *pairs,
                            size_t *count)
{
    const ht_json *list = ht_field_json(fields, key);
    for (const ht_json *pair = list ? list->child : NULL; pair; pair = pair->next, (*count)++) {
        HT_TRY(ht_student_module(c, key, pair->child, &pairs[*count].teacher));
        HT_TRY(ht_student_module(c, key, pair->child->next, &pairs[*count].student));
    }
    return HT_OK;
}

static ht_status read_options(ht_compression *c, const ht_fields *fields, ht_distill_options *out)
{
    *out = (ht_distill_options){
        .temperature = ht_field_number(fields, "temperature"),
        .alpha = ht_field_number(fields, "alpha"),
        .hidden_weight = ht_field_number(fields, "hidden_weight"),
        .attention_weight = ht_field_number(fields, "attention_weight"),
    };
    HT_TRY(read_pairs(c, fields, "hidden", out->hidden, &out->hidden_count));
    return read_pairs(c, fields, "attention", out->attention, &out->attention_count);
}

/* Tensors that the file does not have begin as in a new model. */
static ht_status loosen(ht_compression *c)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "path", c->request->run);
    ht_json_put_bool(&json, "strict", false);
    ht_json_end_object(&json);
    ht_status status = text.failed ? ht_fail(c->ctx, HT_ENOMEM, "distill: out of memory")
                                   : ht_compression_set(c, "train.init_from=%s", text.data);
    ht_text_free(&text);
    return status;
}

static ht_status distill_apply(ht_compression *c, const ht_fields *fields, ht_json_writer *json)
{
    ht_distillation teacher = {.teacher = c->config};
    double lr = ht_field_null(fields, "lr") ? NAN : ht_field_number(fields, "lr");
    int64_t steps = ht_field_int(fields, "steps");
    bool fits;
    ht_json_put_int(json, "steps", steps);
    ht_json_put_number(json, "temperature", ht_field_number(fields, "temperature"));
    ht_json_put_number(json, "alpha", ht_field_number(fields, "alpha"));
    HT_TRY(ht_student_make(c, ht_field_json(fields, "student"), json, &fits));
    HT_TRY(read_options(c, fields, &teacher.options));
    HT_TRY(add_teacher(c));
    size_t sets = c->set_count;
    if (!fits || teacher.options.hidden_count) HT_TRY(loosen(c));
    c->teacher = &teacher;
    ht_status status = ht_compression_tune(c, steps, lr, ht_field_json(fields, "train"), json);
    c->teacher = NULL;
    c->set_count = sets; /* the result has all of its tensors */
    drop_teacher(&c->weights);
    return status;
}

const ht_step_kind ht_step_distill = {
    .name = "distill",
    .keys = distill_keys,
    .check = distill_check,
    .apply = distill_apply,
};
