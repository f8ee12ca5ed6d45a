/* A job from what a run recorded of it, for evaluation or to train on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/format.h"
#include "train/folder.h"

/* Of the train block: what says which batches there are and what is counted. How a batch was accumulated and shared among
 * ranks follows, on the one rank that evaluates, from its sizes. */
static bool is_needed(const char *key)
{
    static const char *const keys[] = {"train.task",      "train.batch",    "train.micro_batch",
                                       "train.precision", "train.masters",  "train.seed",
                                       "train.output",    "train.quantize", "train.sparse"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (strcmp(key, keys[i]) == 0) return true;
    if (strncmp(key, "halftone.parallel.", 18) == 0) return false;
    return strncmp(key, "model.", 6) == 0 || strncmp(key, "data.", 5) == 0 || strncmp(key, "halftone.", 9) == 0;
}

/* What a run recorded, while it is read. */
typedef struct recorded {
    ht_context *ctx;
    const char *path; /* of the resolved config */
    const ht_json *root;
    bool training;    /* all that was chosen, not only what evaluation needs */
    char model[4096]; /* the copy of the model's file; "": the run has none */
} recorded;

/* On one rank: how a batch was shared among several follows from its sizes. */
static bool is_chosen(const ht_json *value)
{
    const ht_json *origin = ht_json_get(value, "origin");
    bool standard = origin && origin->kind == HT_JSON_STRING && strcmp(origin->text, "default") == 0;
    return !standard && strcmp(value->key, "train.accumulate") != 0 &&
           strncmp(value->key, "halftone.parallel.", 18) != 0;
}

/* The copy that the run has of its model's file. */
static ht_status find_model(recorded *r)
{
    const ht_json *says = ht_json_get(r->root, ht_model_file);
    const char *slash = strrchr(r->path, '/');
    uint64_t checksum;
    char has[24];
    if (!says || says->kind != HT_JSON_STRING) return HT_OK;
    int length =
        snprintf(r->model, sizeof r->model, "%.*s%s", slash ? (int)(slash - r->path + 1) : 0, r->path, ht_model_file);
    if (length < 0 || length >= (int)sizeof r->model) HT_FAIL(r->ctx, HT_EINVAL, "%s: the path is too long", r->path);
    HT_TRY(ht_checksum_file(&checksum, NULL, r->ctx, r->model));
    snprintf(has, sizeof has, "%016" PRIx64, checksum);
    if (strcmp(has, says->text) != 0)
        HT_FAIL(r->ctx, HT_EPARSE, "%s: checksum %s, not %s: damaged or edited", r->model, has, says->text);
    return HT_OK;
}

/* The object of a block whose fields are being written: "fp8" of "fp8.recipe". Its rows are neighbours. */
typedef struct open_object {
    char name[64]; /* "": none */
} open_object;

/* Closes it, or opens another, as the field wants; returns the field's name there. */
static const char *enter_object(ht_json_writer *json, open_object *open, const char *field)
{
    const char *dot = strchr(field, '.');
    open_object wanted = {""};
    if (dot) snprintf(wanted.name, sizeof wanted.name, "%.*s", (int)(dot - field), field);
    if (strcmp(wanted.name, open->name) != 0) {
        if (open->name[0]) ht_json_end_object(json);
        if (wanted.name[0]) ht_json_begin_object(json, wanted.name);
        *open = wanted;
    }
    return dot ? dot + 1 : field;
}

static void put_block(ht_json_writer *json, const recorded *r, const ht_json *values, const char *block)
{
    size_t length = strlen(block);
    open_object open = {""};
    ht_json_begin_object(json, block);
    for (const ht_json *value = values->child; value; value = value->next) {
        const ht_json *is = ht_json_get(value, "value");
        if (!is || is->kind == HT_JSON_NULL) continue;
        if (!is_needed(value->key) && !(r->training && is_chosen(value))) continue;
        if (strncmp(value->key, block, length) != 0 || value->key[length] != '.') continue;
        const char *name = enter_object(json, &open, value->key + length + 1);
        if (r->model[0] && strcmp(value->key, "model.file") == 0)
            ht_json_put_text(json, name, r->model);
        else
            ht_json_put_value(json, name, is);
    }
    if (open.name[0]) ht_json_end_object(json);
    ht_json_end_object(json);
}

/* As a job file. */
static ht_status print_job(const recorded *r, const ht_json *values, ht_text *text)
{
    static const char *const blocks[] = {"model", "data", "train", "halftone"};
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        if (i > 0) ht_json_line(&json, 0);
        put_block(&json, r, values, blocks[i]);
    }
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
    if (text->failed) HT_FAIL(r->ctx, HT_ENOMEM, "%s: out of memory", r->path);
    return HT_OK;
}

static ht_status take_job(recorded *r, ht_text *text, char **folder)
{
    const ht_json *values = ht_json_get(r->root, "values"), *start = ht_json_get(r->root, "folder");
    if (!values || values->kind != HT_JSON_OBJECT)
        HT_FAIL(r->ctx, HT_EPARSE, "%s: it has no \"values\": it is not what a run records", r->path);
    HT_TRY(find_model(r));
    HT_TRY(print_job(r, values, text));
    if (start && start->kind == HT_JSON_STRING && !(*folder = strdup(start->text)))
        HT_FAIL(r->ctx, HT_ENOMEM, "%s: out of memory", r->path);
    return HT_OK;
}

static ht_status read_job(recorded *r, char **out, char **folder)
{
    ht_context *ctx = r->ctx;
    const char *path = r->path;
    char *file = NULL;
    size_t length;
    bool sealed;
    ht_text text = {0};
    *out = *folder = NULL;
    HT_TRY(ht_folder_read_sealed(ctx, path, &file, &length, &sealed));
    ht_arena *arena = ht_arena_create();
    ht_status status = arena ? ht_json_parse(ctx, arena, path, file, length, &r->root)
                             : ht_fail(ctx, HT_ENOMEM, "%s: out of memory", path);
    if (status == HT_OK) status = take_job(r, &text, folder);
    ht_arena_free(arena);
    free(file);
    if (status == HT_OK)
        *out = text.data;
    else
        ht_text_free(&text);
    return status;
}

ht_status ht_job_recorded(ht_context *ctx, const char *path, char **out, char **folder)
{
    recorded r = {.ctx = ctx, .path = path};
    return read_job(&r, out, folder);
}

ht_status ht_job_recorded_training(ht_context *ctx, const char *path, char **out, char **folder)
{
    recorded r = {.ctx = ctx, .path = path, .training = true};
    return read_job(&r, out, folder);
}
