/* The step `tune`: trains what the steps before left, with the run's own data, as an ordinary run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "compress/compression.h"

static const ht_key tune_keys[] = {
    {"steps", HT_KEY_INT, NULL, 1, INFINITY, NULL, "updates"},
    {"lr", HT_KEY_NUMBER, "null", 0, INFINITY, NULL, "learning rate; the run's unless given"},
    {"train", HT_KEY_JSON, "null", 0, 0, NULL, "an object: further keys of the job's train block"},
    {0},
};

static ht_status tune_check(ht_context *ctx, const ht_fields *fields)
{
    const ht_json *train = ht_field_json(fields, "train");
    if (train && train->kind != HT_JSON_OBJECT)
        HT_FAIL(ctx, HT_EINVAL, "tune.train: expected an object, found %s", ht_json_kind_name(train->kind));
    return HT_OK;
}

/* ---- the config ---- */

static void put_pruned(const ht_compression *c, ht_text *text)
{
    ht_json_writer json = {.text = text};
    ht_text_add(text, "train.pruned=");
    ht_json_begin_array(&json, NULL);
    for (size_t i = 0; i < c->pruned_count; i++) ht_json_put_text(&json, NULL, c->pruned[i].expression);
    ht_json_end_array(&json);
}

/* Those of the caller come last: they win. */
static size_t collect_sets(const ht_compression *c, const char *pruned, const char *const *more, size_t count,
                           const char **sets)
{
    size_t at = 0;
    for (size_t i = 0; i < c->set_count; i++) sets[at++] = c->sets[i];
    if (pruned) sets[at++] = pruned;
    for (size_t i = 0; i < count; i++) sets[at++] = more[i];
    for (size_t i = 0; i < c->request->set_count; i++) sets[at++] = c->request->sets[i];
    return at;
}

ht_status ht_compression_config(ht_compression *c, const char *const *more, size_t count, ht_config **out)
{
    ht_block_keys blocks[HT_MOST_JOB_BLOCKS];
    ht_text pruned = {0};
    const char **sets = HT_NEW(c->arena, const char *, c->set_count + count + c->request->set_count + 1);
    if (!sets) HT_FAIL(c->ctx, HT_ENOMEM, "out of memory for a job");
    if (c->pruned_count) put_pruned(c, &pruned);
    ht_config_request request = {.path = c->request->run,
                                 .text = c->job,
                                 .length = strlen(c->job),
                                 .sets = sets,
                                 .set_count = collect_sets(c, pruned.data, more, count, sets),
                                 .blocks = blocks,
                                 .block_count = ht_job_blocks(blocks),
                                 .training = true};
    ht_status status = ht_config_read(out, c->ctx, &request);
    ht_text_free(&pruned);
    if (status == HT_OK) return HT_OK;
    if (*out) status = ht_problems_status(ht_config_problems(*out), c->ctx);
    ht_config_free(*out);
    *out = NULL;
    return status;
}

/* ---- the run ---- */

typedef struct losses {
    const ht_compression *c;
    double first, last; /* NAN: there was no step */
} losses;

static void on_step(void *arg, const ht_step_report *report)
{
    losses *seen = arg;
    if (isnan(seen->first)) seen->first = report->loss;
    seen->last = report->loss;
    if (seen->c->request->on_step) seen->c->request->on_step(seen->c->request->arg, report);
}

/* Of a model that is not the run's: which of its tensors begin anew. */
static void on_note(void *arg, const char *line)
{
    const losses *seen = arg;
    if (seen->c->teacher) ht_compression_note(seen->c, "%s", line);
}

static ht_status train(const ht_compression *c, ht_run *run, bool trains)
{
    bool stopped = false;
    if (!trains) return ht_run_snapshot(run);
    if (c->movement) return ht_movement_train(c->movement, c->ctx, run, c->request->stop);
    return ht_run_train(run, &stopped);
}

static ht_status run_job(ht_compression *c, const ht_config *config, const char *folder, bool trains, losses *seen)
{
    ht_run *run;
    ht_run_request request = {.config = config,
                              .mode = HT_RUN_NEW,
                              .folder = folder,
                              .data_folder = c->data_folder,
                              .init_weights = c->initial,
                              .distillation = c->teacher,
                              .stop = c->request->stop,
                              .arg = seen,
                              .on_step = on_step,
                              .on_note = on_note};
    HT_TRY(ht_weights_write(&c->weights, c->ctx, c->initial));
    HT_TRY(ht_run_open(&run, c->ctx, &request));
    ht_status status = train(c, run, trains), closed = ht_run_close(run);
    HT_TRY(status == HT_OK ? closed : status);
    if (c->request->stop && *c->request->stop) HT_FAIL(c->ctx, HT_EINVAL, "stopped before it was done");
    return HT_OK;
}

ht_status ht_compression_snapshot(ht_compression *c, const ht_config *config, const char *folder)
{
    losses seen = {c, NAN, NAN};
    return run_job(c, config, folder, false, &seen);
}

ht_status ht_compression_train(ht_compression *c, const ht_config *config, const char *folder, ht_json_writer *json)
{
    losses seen = {c, NAN, NAN};
    HT_TRY(run_job(c, config, folder, true, &seen));
    if (json) ht_json_put_number(json, "first_loss", seen.first);
    if (json) ht_json_put_number(json, "last_loss", seen.last);
    ht_weights_free(&c->weights);
    return ht_weights_read(&c->weights, c->ctx, folder);
}

/* ---- the step ---- */

enum { MOST_SETTINGS = 64 };

static ht_status add_setting(ht_compression *c, const char **more, size_t *count, const char *key, const ht_json *value)
{
    ht_text text = {0};
    if (*count == MOST_SETTINGS) HT_FAIL(c->ctx, HT_EINVAL, "tune.train: more than %d keys", MOST_SETTINGS);
    ht_text_add(&text, "train.%s=", key);
    ht_json_print(&text, value);
    more[*count] = text.failed ? NULL : ht_arena_text(c->arena, text.data, text.length);
    ht_text_free(&text);
    if (!more[(*count)++]) HT_FAIL(c->ctx, HT_ENOMEM, "tune: out of memory");
    return HT_OK;
}

ht_status ht_compression_tune(ht_compression *c, int64_t steps, double lr, const ht_json *train_keys,
                              ht_json_writer *json)
{
    const char *more[MOST_SETTINGS + 8];
    char lines[2][64], folder[HT_COMPRESS_PATH + 16];
    size_t count = 0;
    ht_config *config;
    snprintf(lines[0], sizeof lines[0], "train.steps=%lld", (long long)steps);
    snprintf(lines[1], sizeof lines[1], "train.lr=%.17g", lr);
    for (const ht_json *key = train_keys ? train_keys->child : NULL; key; key = key->next)
        HT_TRY(add_setting(c, more, &count, key->key, key));
    more[count++] = lines[0];
    more[count++] = "train.epochs=null";
    more[count++] = "train.snapshot_every=0";
    if (!isnan(lr)) more[count++] = lines[1];
    HT_TRY(ht_compression_config(c, more, count, &config));
    bool last = c->last && !c->teacher;
    snprintf(folder, sizeof folder, "%s", c->result);
    if (!last) snprintf(folder, sizeof folder, "%s/tune", c->work);
    ht_status status = ht_compression_train(c, config, folder, json);
    ht_config_free(config);
    HT_TRY(status);
    c->written = last;
    return last ? HT_OK : ht_folder_remove(c->ctx, folder);
}

static ht_status tune_apply(ht_compression *c, const ht_fields *fields, ht_json_writer *json)
{
    double lr = ht_field_null(fields, "lr") ? NAN : ht_field_number(fields, "lr");
    ht_json_put_int(json, "steps", ht_field_int(fields, "steps"));
    return ht_compression_tune(c, ht_field_int(fields, "steps"), lr, ht_field_json(fields, "train"), json);
}

const ht_step_kind ht_step_tune = {
    .name = "tune",
    .keys = tune_keys,
    .check = tune_check,
    .apply = tune_apply,
};
