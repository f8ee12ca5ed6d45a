#include "compress/compress.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compression.h"

/* ---- what steps share ---- */

ht_status ht_compression_set(ht_compression *c, const char *format, ...)
{
    ht_text text = {0};
    va_list args;
    if (c->set_count == HT_COMPRESS_MOST_SETS) HT_FAIL(c->ctx, HT_EINVAL, "too many steps change the model");
    va_start(args, format);
    ht_text_addv(&text, format, args);
    va_end(args);
    const char *set = text.failed ? NULL : ht_arena_text(c->arena, text.data, text.length);
    ht_text_free(&text);
    if (!set) HT_FAIL(c->ctx, HT_ENOMEM, "out of memory for a setting");
    c->sets[c->set_count++] = set;
    return HT_OK;
}

void ht_compression_note(const ht_compression *c, const char *format, ...)
{
    char line[1024];
    va_list args;
    if (!c->request->on_note) return;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    c->request->on_note(c->request->arg, line);
}

static ht_status add_pruned(ht_compression *c, const char *expression, const char *units)
{
    const char *copy = ht_arena_text(c->arena, expression, strlen(expression));
    if (!copy) HT_FAIL(c->ctx, HT_ENOMEM, "out of memory for names");
    if (c->pruned_count == HT_MOST_PARAM_PATTERNS)
        HT_FAIL(c->ctx, HT_EINVAL, "more than %d steps prune", HT_MOST_PARAM_PATTERNS);
    c->pruned[c->pruned_count++] = (ht_pruned_set){copy, units};
    return HT_OK;
}

void ht_compression_add_name(ht_text *text, const char *name)
{
    for (; *name; name++) ht_text_add(text, "%s%c", strchr(".[]{}()*+?|^$\\", *name) ? "\\" : "", *name);
}

/* An expression that matches these names and no others: "^(a\.weight|b\.weight)$". */
ht_status ht_compression_hold_zeros(ht_compression *c, const bool *tensors, const char *units)
{
    ht_text text = {0};
    for (size_t i = 0; i < c->weights.count; i++) {
        if (!tensors[i]) continue;
        ht_text_add(&text, "%s", text.length ? "|" : "^(");
        ht_compression_add_name(&text, c->weights.items[i].name);
    }
    ht_text_add(&text, ")$");
    ht_status status =
        text.failed ? ht_fail(c->ctx, HT_ENOMEM, "out of memory for names") : add_pruned(c, text.data, units);
    ht_text_free(&text);
    return status;
}

void ht_compression_drop_units(ht_compression *c)
{
    size_t kept = 0;
    for (size_t i = 0; i < c->pruned_count; i++)
        if (!c->pruned[i].units) c->pruned[kept++] = c->pruned[i];
    c->pruned_count = kept;
}

/* ---- the run that is compressed ---- */

static ht_status add_quantized(ht_compression *c, const ht_json *group)
{
    ht_text text = {0};
    ht_json_print(&text, group);
    const char *copy = text.failed ? NULL : ht_arena_text(c->arena, text.data, text.length);
    ht_text_free(&text);
    if (!copy) HT_FAIL(c->ctx, HT_ENOMEM, "out of memory for a job");
    c->quantize[c->quantize_count++] = copy;
    return HT_OK;
}

/* Names that a result keeps from the run: what it held zero before, its type of model. */
static ht_status take_config(ht_compression *c)
{
    HT_TRY(ht_compression_config(c, NULL, 0, &c->config));
    const ht_train_config *train = ht_config_train(c->config);
    const char *type = ht_config_type(c->config, "model");
    c->steps = train->steps;
    c->model = type ? ht_arena_text(c->arena, type, strlen(type)) : NULL;
    ht_status status = c->model ? HT_OK : ht_fail(c->ctx, HT_EINVAL, "%s: it has no model", c->request->run);
    for (size_t i = 0; i < train->pruned_count && status == HT_OK; i++) status = add_pruned(c, train->pruned[i], NULL);
    const ht_json *groups = ht_field_json(ht_config_block(c->config, "train"), "quantize");
    for (const ht_json *group = groups ? groups->child : NULL; group && status == HT_OK; group = group->next)
        status = add_quantized(c, group);
    return status;
}

static bool are_weights(const char *path)
{
    static const char end[] = ".safetensors";
    size_t length = strlen(path), tail = sizeof end - 1;
    return length > tail && strcmp(path + length - tail, end) == 0;
}

/* A run of the job, which stands before its first step with these weights. */
static ht_status start_run(ht_compression *c, const char *folder)
{
    const ht_compress_request *r = c->request;
    ht_block_keys blocks[HT_MOST_JOB_BLOCKS];
    ht_config *config = NULL;
    ht_run *run;
    ht_config_request job = {.path = r->job,
                             .sets = r->sets,
                             .set_count = r->set_count,
                             .blocks = blocks,
                             .block_count = ht_job_blocks(blocks),
                             .training = true};
    ht_status status = ht_config_read(&config, c->ctx, &job);
    if (status != HT_OK && config) status = ht_problems_status(ht_config_problems(config), c->ctx);
    ht_run_request request = {.config = config, .mode = HT_RUN_NEW, .folder = folder, .init_weights = r->run};
    if (status == HT_OK) status = ht_run_open(&run, c->ctx, &request);
    if (status == HT_OK) {
        status = ht_run_snapshot(run);
        ht_status closed = ht_run_close(run);
        if (status == HT_OK) status = closed;
    }
    ht_config_free(config);
    return status;
}

/* Weights with a job become a run in the folder of this compression. */
static ht_status find_run(ht_compression *c, ht_compress_request *own)
{
    const ht_compress_request *r = c->request;
    if (!r->job && are_weights(r->run))
        HT_FAIL(c->ctx, HT_EINVAL, "%s: --job names the job whose model the weights are", r->run);
    if (!r->job) return HT_OK;
    if (!are_weights(r->run)) HT_FAIL(c->ctx, HT_EINVAL, "%s is no .safetensors file: --job is for weights", r->run);
    char *folder = HT_NEW(c->arena, char, HT_COMPRESS_PATH + 8);
    if (!folder) HT_FAIL(c->ctx, HT_ENOMEM, "out of memory");
    snprintf(folder, HT_COMPRESS_PATH + 8, "%s/start", c->work);
    HT_TRY(start_run(c, folder));
    *own = *r;
    own->run = folder;
    c->request = own;
    return HT_OK;
}

static ht_status open_run(ht_compression *c)
{
    const ht_compress_request *r = c->request;
    char path[HT_COMPRESS_PATH];
    int length = snprintf(path, sizeof path, "%s/config.resolved.json", r->run);
    if (length < 0 || length >= HT_COMPRESS_PATH) HT_FAIL(c->ctx, HT_EINVAL, "%s: the path is too long", r->run);
    if (ht_job_recorded_training(c->ctx, path, &c->job, &c->data_folder) != HT_OK) {
        char why[1024];
        snprintf(why, sizeof why, "%s", ht_context_message(c->ctx));
        HT_FAIL(c->ctx, HT_EINVAL, "%s holds no run: %s", r->run, why);
    }
    HT_TRY(take_config(c));
    HT_TRY(ht_weights_read(&c->weights, c->ctx, r->run));
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_json_put_text(&json, NULL, c->origin);
    ht_status status = ht_compression_set(c, "train.init_from=%s", text.failed ? "null" : text.data);
    text.length = 0;
    json = (ht_json_writer){.text = &text};
    ht_json_put_text(&json, NULL, r->name ? r->name : r->output);
    if (status == HT_OK) status = ht_compression_set(c, "train.output=%s", text.failed ? "null" : text.data);
    ht_text_free(&text);
    return status;
}

/* ---- the steps ---- */

static ht_status write_snapshot(ht_compression *c, const char *folder)
{
    ht_config *config;
    HT_TRY(ht_compression_config(c, NULL, 0, &config));
    ht_status status = ht_compression_snapshot(c, config, folder);
    ht_config_free(config);
    return status;
}

/* As the result will be. */
static ht_status write_and_measure(ht_compression *c, const char *folder, ht_compress_figures *out)
{
    ht_compress_request request = *c->request;
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    request.judge = NULL;
    HT_TRY(write_snapshot(c, folder));
    ht_weights own = c->weights;
    ht_status status = ht_weights_read(&c->weights, c->ctx, folder);
    if (status == HT_OK) status = ht_compression_store_codes(c, folder, &json);
    ht_weights_free(&c->weights);
    c->weights = own;
    ht_text_free(&text);
    if (status == HT_OK) status = ht_run_store_sparse(c->ctx, folder);
    return status == HT_OK ? ht_compress_measure_worth(out, c->ctx, &request, folder) : status;
}

/* What the steps so far are worth. */
static ht_status measure_step(ht_compression *c, ht_compress_figures *out)
{
    char folder[HT_COMPRESS_PATH + 16];
    snprintf(folder, sizeof folder, "%s/step", c->work);
    HT_TRY(write_and_measure(c, folder, out));
    return ht_folder_remove(c->ctx, folder);
}

static ht_status prepare_steps(ht_compression *c, const ht_compress_recipe *recipe)
{
    for (size_t i = 0; i < recipe->count; i++) {
        const ht_compress_recipe_step *step = &recipe->steps[i];
        if (step->kind->prepare) HT_TRY(step->kind->prepare(c, step->fields));
    }
    return HT_OK;
}

/* Trials of a search are measured as a whole. */
static void put_step(const ht_compression *c, ht_json_writer *json, const ht_compress_step *step)
{
    ht_json_line(json, 6);
    if (!c->request->trial) ht_compress_put_worth(json, &step->after);
    ht_json_end_object(json);
}

/* The object of the last step stays open, for what the result is worth. */
static ht_status apply_steps(ht_compression *c, const ht_compress_recipe *recipe, ht_compress_report *report,
                             ht_json_writer *json)
{
    report->steps = HT_NEW(c->arena, ht_compress_step, recipe->count + 1);
    if (!report->steps) HT_FAIL(c->ctx, HT_ENOMEM, "out of memory for a recipe");
    ht_json_begin_array(json, NULL);
    for (size_t i = 0; i < recipe->count; i++) {
        const ht_compress_recipe_step *step = &recipe->steps[i];
        ht_compress_step *done = &report->steps[i];
        ht_compression_note(c, "step %zu of %zu: %s", i + 1, recipe->count, step->kind->name);
        c->last = i + 1 == recipe->count;
        done->name = step->kind->name;
        ht_json_line(json, 4);
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "step", step->kind->name);
        HT_TRY(step->kind->apply(c, step->fields, json));
        if (c->last) break;
        if (!c->request->trial) HT_TRY(measure_step(c, &done->after));
        put_step(c, json, done);
    }
    return HT_OK;
}

static void end_steps(const ht_compression *c, const ht_compress_recipe *recipe, ht_compress_report *report,
                      ht_json_writer *json)
{
    ht_compress_step *last = &report->steps[recipe->count - 1];
    last->after = report->after;
    put_step(c, json, last);
    ht_json_end_array(json);
    if (!c->request->trial) report->step_count = recipe->count;
}

/* Where the last step was no training, the result is a run that stands before its first step. */
static ht_status write_run(ht_compression *c)
{
    if (c->written) return HT_OK;
    HT_TRY(write_snapshot(c, c->result));
    ht_weights_free(&c->weights);
    return ht_weights_read(&c->weights, c->ctx, c->result);
}

/* A job with other weights to start from. */
static ht_status print_job(ht_compression *c, const char *job, const char *from, ht_text *text)
{
    ht_json_writer json = {.text = text};
    const ht_json *root;
    HT_TRY(ht_json_parse(c->ctx, c->arena, "job.json", job, strlen(job), &root));
    ht_json_begin_object(&json, NULL);
    for (const ht_json *block = root->child; block; block = block->next) {
        if (block != root->child) ht_json_line(&json, 0);
        ht_json_begin_object(&json, block->key);
        for (const ht_json *key = block->child; key; key = key->next)
            if (strcmp(block->key, "train") == 0 && strcmp(key->key, "init_from") == 0)
                ht_json_put_text(&json, key->key, from);
            else
                ht_json_put_value(&json, key->key, key);
        ht_json_end_object(&json);
    }
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
    return HT_OK;
}

/* The job of the result, to go on training it, or to start anew from its weights. */
static ht_status write_job(ht_compression *c)
{
    char path[HT_COMPRESS_PATH + 32], *job, *folder;
    ht_text text = {0};
    snprintf(path, sizeof path, "%s/config.resolved.json", c->result);
    HT_TRY(ht_job_recorded_training(c->ctx, path, &job, &folder));
    ht_status status = print_job(c, job, c->request->name ? c->request->name : c->request->output, &text);
    if (status == HT_OK) status = ht_compression_write_text(c, "job.json", &text);
    ht_text_free(&text);
    free(job);
    free(folder);
    return status;
}

/* Steps can leave a model that is worth nothing, such as one that tuning made diverge. */
static void warn_of_loss(const ht_compression *c, const ht_compress_report *report)
{
    const double most = 2;
    double was = report->before.loss, is = report->after.loss;
    if (!isfinite(was) || is <= most * was) return;
    ht_compression_note(c, "warning: the loss of the result is %g, and %g before: %s", is, was,
                        isfinite(is) ? "more than twice as much" : "it is no number to go by");
}

/* In turns, so that what else the machine does meets both. */
static ht_status compare_cost(ht_compression *c, ht_compress_report *report)
{
    const double agree = 1.1; /* the upper quartile by the lower one */
    const char *const folders[] = {c->request->run, c->result};
    ht_compress_figures *const out[] = {&report->before, &report->after};
    ht_compress_ratio ratio;
    HT_TRY(ht_compress_compare_cost(c->ctx, c->request, folders, out, &ratio));
    if (ratio.high > agree * ratio.low)
        ht_compression_note(c,
                            "warning: latency after by before scatters: half of %d rounds are from %.2f to %.2f; other "
                            "work on this machine?",
                            ratio.rounds, ratio.low, ratio.high);
    if (c->request->trial) return HT_OK;
    HT_TRY(ht_compress_measure_throughput(&report->before, c->ctx, c->request, c->request->run));
    return ht_compress_measure_throughput(&report->after, c->ctx, c->request, c->result);
}

static ht_status measure_before(const ht_compression *c, ht_compress_figures *out)
{
    if (!c->request->before) return ht_compress_measure_worth(out, c->ctx, c->request, c->request->run);
    *out = *c->request->before;
    out->p50_ms = out->p99_ms = NAN; /* in turns with the result's */
    return HT_OK;
}

static ht_status put_report(const ht_compression *c, const ht_compress_report *report, const ht_text *steps,
                            ht_json_writer *json)
{
    if (steps->failed) HT_FAIL(c->ctx, HT_ENOMEM, "out of memory for compress.json");
    ht_json_line(json, 2);
    ht_json_put_json(json, "steps", steps->data);
    ht_json_line(json, 2);
    ht_compress_put_figures(json, "before", &report->before);
    ht_json_line(json, 2);
    ht_compress_put_figures(json, "after", &report->after);
    if (c->layer_count) ht_json_line(json, 2);
    if (c->layer_count) ht_compress_put_layers(json, "layers", c->layers, c->layer_count);
    ht_json_line(json, 0);
    ht_json_end_object(json);
    ht_text_add(json->text, "\n");
    return HT_OK;
}

static ht_status work(ht_compression *c, ht_compress_recipe *recipe, ht_compress_report *report, ht_text *text,
                      ht_text *steps_text)
{
    ht_json_writer json = {.text = text}, steps = {.text = steps_text};
    ht_compress_request own;
    HT_TRY(ht_compression_open_folders(c));
    HT_TRY(find_run(c, &own));
    HT_TRY(open_run(c));
    HT_TRY(ht_compress_recipe_read(recipe, c));
    HT_TRY(prepare_steps(c, recipe));
    HT_TRY(measure_before(c, &report->before));
    ht_json_begin_object(&json, NULL);
    ht_json_line(&json, 2);
    ht_json_put_text(&json, "run", c->origin);
    HT_TRY(apply_steps(c, recipe, report, &steps));
    HT_TRY(write_run(c));
    HT_TRY(ht_compression_store_codes(c, c->result, &json));
    HT_TRY(ht_run_store_sparse(c->ctx, c->result));
    HT_TRY(write_job(c));
    HT_TRY(ht_compression_write_model(c));
    HT_TRY(ht_compress_measure_worth(&report->after, c->ctx, c->request, c->result));
    warn_of_loss(c, report);
    HT_TRY(compare_cost(c, report));
    end_steps(c, recipe, report, &steps);
    HT_TRY(put_report(c, report, steps_text, &json));
    HT_TRY(ht_compression_write_text(c, "compress.json", text));
    return ht_compression_publish(c);
}

ht_status ht_compress(ht_compress_report *report, ht_context *ctx, const ht_compress_request *request)
{
    ht_compression c = {.ctx = ctx, .request = request, .origin = request->run, .arena = ht_arena_create()};
    ht_compress_recipe recipe = {.count = 0};
    ht_text text = {0}, steps = {0};
    *report = (ht_compress_report){.steps = NULL};
    ht_status status =
        c.arena ? work(&c, &recipe, report, &text, &steps) : ht_fail(ctx, HT_ENOMEM, "out of memory for a recipe");
    ht_compression_remove_folders(&c);
    ht_compress_recipe_free(&recipe);
    ht_weights_free(&c.weights);
    ht_config_free(c.config);
    ht_text_free(&text);
    ht_text_free(&steps);
    report->pruned = c.pruned_count > 0;
    report->layers = c.layers;
    report->layer_count = c.layer_count;
    report->arena = c.arena;
    if (status != HT_OK) ht_compress_report_free(report);
    free(c.job);
    free(c.data_folder);
    return status;
}

void ht_compress_report_free(ht_compress_report *report)
{
    free(report->layers);
    ht_arena_free(report->arena);
    report->layers = NULL;
    report->layer_count = 0;
    report->arena = NULL;
}
