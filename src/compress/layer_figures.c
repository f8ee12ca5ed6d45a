/* What single layers cost with codes and with floats, on this machine, and what their codes do to the quality. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compression.h"

/* ---- times ---- */

/* A session of the evaluation of one item, with the first values of its plan: they do not change the time. */
typedef struct timed {
    ht_plan *plan;
    ht_session *session;
    ht_layer_times best;
} timed;

static ht_status open_timed(ht_compression *c, const char *quantize, timed *out)
{
    const char *sets[] = {"train.batch=1", "train.micro_batch=1", "train.accumulate=1", quantize};
    ht_config *config;
    HT_TRY(ht_compression_config(c, NULL, 0, &config));
    bool fixed = ht_model_find(ht_config_type(config, "model"), NULL)->make;
    ht_config_free(config);
    const char *const *first = sets + (fixed ? 3 : 0); /* a graph of the user's own has one batch */
    HT_TRY(ht_compression_config(c, first, (size_t)(sets + (quantize ? 4 : 3) - first), &config));
    ht_run_request request = {.config = config, .mode = HT_RUN_EVALUATE, .data_folder = c->data_folder};
    ht_session_opts opts = HT_SESSION_OPTS;
    ht_status status = ht_run_plan(&out->plan, c->ctx, &request);
    if (status == HT_OK) status = ht_session_create(&out->session, out->plan, &opts);
    ht_config_free(config);
    return status;
}

static void close_timed(timed *t)
{
    ht_session_free(t->session);
    ht_plan_free(t->plan);
    ht_layer_times_free(&t->best);
}

/* The fastest of all rounds stays, layer by layer. */
static ht_status time_once(ht_compression *c, timed *t)
{
    ht_layer_times now;
    ht_status status = ht_layer_times_measure(&now, c->ctx, t->session);
    for (size_t i = 0; i < now.count && status == HT_OK && t->best.count == now.count; i++)
        if (t->best.items[i].seconds < now.items[i].seconds) now.items[i].seconds = t->best.items[i].seconds;
    ht_layer_times_free(&t->best);
    t->best = now;
    return status;
}

/* In turns, so that what else the machine does meets both. */
static ht_status time_both(ht_compression *c, timed *codes, timed *floats)
{
    enum { ROUNDS = 3 };
    HT_TRY(open_timed(c, NULL, codes));
    HT_TRY(open_timed(c, "train.quantize=null", floats));
    for (int i = 0; i < ROUNDS; i++) {
        HT_TRY(time_once(c, codes));
        HT_TRY(time_once(c, floats));
    }
    return HT_OK;
}

static ht_status keep_text(ht_compression *c, const char *text, const char **out)
{
    *out = ht_arena_text(c->arena, text, strlen(text));
    if (!*out) HT_FAIL(c->ctx, HT_ENOMEM, "out of memory for figures of layers");
    return HT_OK;
}

static ht_status note_layer(ht_compression *c, const ht_layer_time *codes, const ht_layer_time *floats)
{
    ht_compress_layer *layer = NULL;
    for (size_t i = 0; i < c->layer_count && !layer; i++)
        if (strcmp(c->layers[i].name, codes->weight) == 0) layer = &c->layers[i];
    if (!layer) {
        if (!ht_grow((void **)&c->layers, &c->layer_capacity, c->layer_count + 1, sizeof *c->layers))
            HT_FAIL(c->ctx, HT_ENOMEM, "out of memory for figures of layers");
        layer = &c->layers[c->layer_count++];
        *layer = (ht_compress_layer){0};
        HT_TRY(keep_text(c, codes->weight, &layer->name));
    }
    HT_TRY(keep_text(c, codes->kernel, &layer->kernel));
    HT_TRY(keep_text(c, floats->kernel, &layer->float_kernel));
    layer->ms = 1e3 * codes->seconds;
    layer->float_ms = 1e3 * floats->seconds;
    layer->loss = NAN;
    layer->slower = layer->ms > layer->float_ms;
    return HT_OK;
}

/* Layers that the plan without codes computes otherwise. */
static ht_status note_layers(ht_compression *c, const timed *codes, const timed *floats)
{
    for (size_t i = 0; i < codes->best.count; i++) {
        const ht_layer_time *now = &codes->best.items[i], *was = ht_layer_times_find(&floats->best, now->weight);
        if (was && strcmp(was->kernel, now->kernel) != 0) HT_TRY(note_layer(c, now, was));
    }
    return HT_OK;
}

ht_status ht_compression_time_layers(ht_compression *c)
{
    timed codes = {0}, floats = {0};
    ht_status status = time_both(c, &codes, &floats);
    if (status == HT_OK) status = note_layers(c, &codes, &floats);
    close_timed(&codes);
    close_timed(&floats);
    return status;
}

/* ---- sensitivity ---- */

static ht_status evaluate(ht_compression *c, const char *quantize, double *loss)
{
    ht_config *config;
    ht_run *run;
    ht_eval_report report;
    HT_TRY(ht_compression_config(c, &quantize, 1, &config));
    ht_run_request request = {.config = config,
                              .mode = HT_RUN_EVALUATE,
                              .folder = c->request->run,
                              .data_folder = c->data_folder,
                              .init_weights = c->initial};
    ht_status status = ht_run_open(&run, c->ctx, &request);
    if (status == HT_OK) {
        status = ht_run_evaluate(run, &report);
        ht_run_close(run);
    }
    ht_config_free(config);
    *loss = status == HT_OK && report.count > 0 ? report.loss : NAN;
    return status;
}

/* All others with floats. */
static ht_status scan_layer(ht_compression *c, ht_compress_layer *layer, double floats)
{
    ht_text set = {0};
    double loss = NAN;
    ht_text_add(&set, "train.quantize=");
    ht_status status = ht_compression_put_only(c, layer->name, &set);
    if (status == HT_OK) status = evaluate(c, set.data, &loss);
    layer->loss = loss - floats;
    ht_text_free(&set);
    return status;
}

ht_status ht_compression_scan_layers(ht_compression *c)
{
    double floats;
    HT_TRY(ht_weights_write(&c->weights, c->ctx, c->initial));
    HT_TRY(evaluate(c, "train.quantize=null", &floats));
    const ht_compress_layer *worst = NULL;
    for (size_t i = 0; i < c->layer_count; i++) {
        if (c->layers[i].slower && !c->layers[i].stays) continue;
        HT_TRY(scan_layer(c, &c->layers[i], floats));
        if (!worst || c->layers[i].loss > worst->loss) worst = &c->layers[i];
    }
    if (worst) ht_compression_note(c, "sensitivity: '%s' hurts most: loss %+.6f", worst->name, worst->loss);
    return HT_OK;
}

/* ---- for people and programs ---- */

void ht_compress_put_layers(ht_json_writer *json, const char *key, const ht_compress_layer *layers, size_t count)
{
    ht_json_begin_array(json, key);
    for (size_t i = 0; i < count; i++) {
        const ht_compress_layer *layer = &layers[i];
        bool floats = layer->slower && !layer->stays;
        ht_json_line(json, 4);
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "name", layer->name);
        ht_json_put_text(json, "kernel", floats ? layer->float_kernel : layer->kernel);
        ht_json_put_number(json, "ms", floats ? layer->float_ms : layer->ms);
        if (floats)
            ht_json_put_number(json, "refused_ms", layer->ms);
        else
            ht_json_put_number(json, "replaced_ms", layer->float_ms);
        if (!isnan(layer->loss)) ht_json_put_number(json, "loss", layer->loss);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
}
