/* Static activations: their ranges, from what the layers of the run read in some batches of its data. */
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compression.h"

/* The states of a range, behind the name of the weight. */
static const char range_end[] = ".in_scale", zero_end[] = ".in_zero";

/* A weight whose inputs are observed. */
typedef struct observed {
    char *weight;
    ht_histogram histogram;
} observed;

typedef struct observer {
    ht_compression *c;
    observed *layers;
    size_t count;
} observer;

/* ---- which weights ---- */

static bool has_end(const char *name, const char *end)
{
    size_t length = strlen(name);
    return length > strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

static ht_status add_layer(observer *o, const char *state, const regex_t *expression)
{
    char *weight = strndup(state, strlen(state) - strlen(range_end));
    if (!weight) HT_FAIL(o->c->ctx, HT_ENOMEM, "calibration: out of memory");
    if (regexec(expression, weight, 0, NULL, 0) == 0)
        o->layers[o->count++].weight = weight;
    else
        free(weight);
    return HT_OK;
}

/* The pass has compiled the expression before. */
static ht_status find_layers(observer *o, const ht_plan *plan, const char *layers)
{
    regex_t expression;
    ht_status status = HT_OK;
    o->layers = calloc(plan->slot_count + 1, sizeof *o->layers);
    if (!o->layers || regcomp(&expression, layers, REG_EXTENDED | REG_NOSUB) != 0)
        HT_FAIL(o->c->ctx, HT_ENOMEM, "calibration: out of memory");
    for (size_t i = 0; i < plan->slot_count && status == HT_OK; i++)
        if (plan->slots[i].kind == HT_SLOT_STATE && has_end(plan->slots[i].name, range_end))
            status = add_layer(o, plan->slots[i].name, &expression);
    regfree(&expression);
    return status;
}

static void free_layers(observer *o)
{
    for (size_t i = 0; i < o->count; i++) free(o->layers[i].weight);
    free(o->layers);
}

/* ---- what they read ---- */

static ht_status observe(void *arg, const ht_layer_input *input)
{
    observer *o = arg;
    size_t i = 0;
    if (o->c->request->stop && *o->c->request->stop) HT_FAIL(o->c->ctx, HT_EINVAL, "stopped before it was done");
    while (i < o->count && strcmp(o->layers[i].weight, input->weight) != 0) i++;
    if (i == o->count || ht_histogram_add(&o->layers[i].histogram, input->x, input->count)) return HT_OK;
    HT_FAIL(o->c->ctx, HT_EINVAL, "calibration: what '%s' reads is not finite", input->weight);
}

/* Files of another language hold few words that the run knows. */
static ht_status need_known(ht_compression *c, ht_run *run)
{
    const ht_data_part_info *part = &ht_data_info_of(ht_run_data(run))->parts[HT_DATA_TRAIN];
    if (part->unknown > part->tokens / 2)
        HT_FAIL(c->ctx, HT_EINVAL, "%lld of %lld tokens are not in the run's vocabulary", (long long)part->unknown,
                (long long)part->tokens);
    return HT_OK;
}

/* With the weights as the steps so far left them, in f32. */
static ht_status run_batches(ht_compression *c, int64_t batches, const char *files, ht_layer_input_fn on_input,
                             void *arg)
{
    const char *sets[3] = {"train.quantize=null", "train.precision=fp32"};
    ht_text data = {0};
    ht_json_writer json = {.text = &data};
    ht_config *config;
    ht_run *run;
    ht_text_add(&data, "data.train=");
    if (files) ht_json_put_text(&json, NULL, files);
    sets[2] = data.failed ? NULL : data.data;
    ht_status status = ht_compression_config(c, sets, files ? 3 : 2, &config);
    ht_text_free(&data);
    HT_TRY(status);
    ht_run_request request = {.config = config,
                              .mode = HT_RUN_CALIBRATE,
                              .folder = c->request->run,
                              .data_folder = c->data_folder,
                              .init_weights = c->initial};
    status = ht_weights_write(&c->weights, c->ctx, c->initial);
    if (status == HT_OK) status = ht_run_open(&run, c->ctx, &request);
    if (status == HT_OK) {
        status = files ? need_known(c, run) : HT_OK;
        if (status == HT_OK && batches) status = ht_run_calibrate(run, batches, on_input, arg);
        ht_run_close(run);
    }
    ht_config_free(config);
    return status;
}

/* A text of bytes can be read of any file, pictures included: one that holds a zero is no text. */
static ht_status need_text(ht_compression *c, const char *files)
{
    char path[HT_COMPRESS_PATH], start[4096];
    const char *format = ht_config_type(c->config, "data");
    bool absolute = files[0] == '/' || !c->data_folder;
    if (!format || strcmp(format, "text") != 0) return HT_OK;
    int length = snprintf(path, sizeof path, "%s%s%s", absolute ? "" : c->data_folder, absolute ? "" : "/", files);
    FILE *file = length > 0 && length < (int)sizeof path ? fopen(path, "rb") : NULL;
    if (!file) return HT_OK; /* a pattern, or one that the reader will miss */
    size_t count = fread(start, 1, sizeof start, file);
    fclose(file);
    const char *zero = memchr(start, 0, count);
    if (zero) HT_FAIL(c->ctx, HT_EPARSE, "byte %zu is 0: it is no text", (size_t)(zero - start));
    return HT_OK;
}

ht_status ht_compression_run_batches(ht_compression *c, int64_t batches, const char *files, ht_layer_input_fn on_input,
                                     void *arg)
{
    char why[1024];
    ht_status status = files ? need_text(c, files) : HT_OK;
    if (status == HT_OK) status = run_batches(c, batches, files, on_input, arg);
    if (status == HT_OK || !files) return status;
    snprintf(why, sizeof why, "%s", ht_context_message(c->ctx));
    return ht_fail(c->ctx, status, "quantize.calibration.data \"%s\": %s", files, why);
}

ht_status ht_compression_check_files(ht_compression *c, const char *files)
{
    return ht_compression_run_batches(c, 0, files, NULL, NULL);
}

/* ---- ranges ---- */

static ht_status put_range(ht_compression *c, const observed *layer, const ht_calibration *how, ht_json_writer *json)
{
    char name[1024];
    int32_t zero;
    if (layer->histogram.count == 0) HT_FAIL(c->ctx, HT_EINVAL, "calibration: no batch reached '%s'", layer->weight);
    ht_code_span span = ht_range_choose(&layer->histogram, how->method, how->symmetric, how->percentile);
    ht_code_range range = {.low = span.low, .high = span.high};
    float scale = ht_dynamic_scale(how->symmetric ? HT_I8 : HT_U8, &range, &zero);
    snprintf(name, sizeof name, "%s%s", layer->weight, range_end);
    HT_TRY(ht_weights_put_number(&c->weights, c->ctx, name, HT_ELEMENT_F32, (double)scale));
    snprintf(name, sizeof name, "%s%s", layer->weight, zero_end);
    if (!how->symmetric) HT_TRY(ht_weights_put_number(&c->weights, c->ctx, name, HT_ELEMENT_I32, (double)zero));
    ht_json_line(json, 6);
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "name", layer->weight);
    ht_json_put_number(json, "low", (double)layer->histogram.low);
    ht_json_put_number(json, "high", (double)layer->histogram.high);
    ht_json_put_number(json, "scale", (double)scale);
    ht_json_put_int(json, "zero", zero);
    ht_json_end_object(json);
    return HT_OK;
}

ht_status ht_compression_calibrate(ht_compression *c, const ht_plan *plan, const ht_calibration *how,
                                   ht_json_writer *json)
{
    observer o = {.c = c};
    ht_compression_note(c, "calibration: %lld batches", (long long)how->batches);
    ht_status status = find_layers(&o, plan, how->layers);
    if (status == HT_OK) status = ht_compression_run_batches(c, how->batches, how->data, observe, &o);
    ht_json_begin_array(json, "ranges");
    for (size_t i = 0; i < o.count && status == HT_OK; i++) status = put_range(c, &o.layers[i], how, json);
    ht_json_end_array(json);
    free_layers(&o);
    return status;
}
