/* What single layers cost as a step left them and as they were, with codes and with floats, without zeros and with them, on this
 * machine; and what their codes do to the quality. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compression.h"

/* ---- times ---- */

enum { FEWEST_ROUNDS = 7, MOST_ROUNDS = 25 };
static const double most_seconds = 20; /* from which on there are no rounds beyond the fewest */
static const double least_gain = 0.02; /* of the time with floats: less is no gain that another run would confirm */

/* A session of the evaluation of one item: of a plan with its first values, which do not change the time of codes, or of a run with
 * the weights as they are. */
typedef struct timed {
    ht_run *run; /* NULL: the plan is our own */
    ht_plan *plan;
    ht_session *session;
    ht_layer_times rounds[MOST_ROUNDS];
    int count;
} timed;

static ht_status open_session(ht_compression *c, const ht_config *config, bool weights, timed *out)
{
    ht_run_request request = {.config = config, .mode = HT_RUN_EVALUATE, .data_folder = c->data_folder};
    ht_session_opts opts = HT_SESSION_OPTS;
    if (weights) {
        request.folder = c->request->run;
        request.init_weights = c->initial;
        HT_TRY(ht_run_open(&out->run, c->ctx, &request));
        out->session = ht_run_session(out->run);
        return HT_OK;
    }
    HT_TRY(ht_run_plan(&out->plan, c->ctx, &request));
    return ht_session_create(&out->session, out->plan, &opts);
}

/* set: of the job, or NULL. */
static ht_status open_timed(ht_compression *c, const char *set, bool weights, timed *out)
{
    const char *sets[] = {"train.batch=1", "train.micro_batch=1", "train.accumulate=1", set};
    ht_config *config;
    HT_TRY(ht_compression_config(c, NULL, 0, &config));
    bool fixed = ht_model_find(ht_config_type(config, "model"), NULL)->make;
    ht_config_free(config);
    const char *const *first = sets + (fixed ? 3 : 0); /* a graph of the user's own has one batch */
    HT_TRY(ht_compression_config(c, first, (size_t)(sets + (set ? 4 : 3) - first), &config));
    ht_status status = open_session(c, config, weights, out);
    ht_config_free(config);
    return status;
}

static void close_timed(timed *t)
{
    if (t->run)
        ht_run_close(t->run);
    else
        ht_session_free(t->session);
    ht_plan_free(t->plan);
    for (int i = 0; i < t->count; i++) ht_layer_times_free(&t->rounds[i]);
}

/* Of one layer, over all rounds. */
typedef struct spread {
    double best, noise; /* noise: by how much the second best round took longer */
} spread;

static spread spread_of(const timed *t, size_t layer)
{
    double best = INFINITY, second = INFINITY;
    for (int i = 0; i < t->count; i++) {
        double now = t->rounds[i].items[layer].seconds;
        if (now < best)
            second = best, best = now;
        else if (now < second)
            second = now;
    }
    return (spread){best, second - best};
}

/* By how much the side that is faster has to be: its second best round would win as well. */
static double margin_of(spread faster, spread floats)
{
    return fmax(least_gain * floats.best, faster.noise);
}

/* The layer of the plan with floats that layer i of the other one replaces; count: none, it computes as before. */
static size_t find_replaced(const timed *codes, const timed *floats, size_t i)
{
    const ht_layer_times *now = &codes->rounds[0], *was = &floats->rounds[0];
    const ht_layer_time *found = ht_layer_times_find(was, now->items[i].weight);
    if (!found || strcmp(found->kernel, now->items[i].kernel) == 0) return was->count;
    return (size_t)(found - was->items);
}

/* Is there a layer of which the times do not tell yet which is faster? */
static bool is_open(const timed *codes, const timed *floats)
{
    for (size_t i = 0; i < codes->rounds[0].count; i++) {
        size_t k = find_replaced(codes, floats, i);
        if (k == floats->rounds[0].count) continue;
        spread now = spread_of(codes, i), was = spread_of(floats, k);
        bool faster = now.best + margin_of(now, was) <= was.best, slower = was.best + margin_of(was, was) <= now.best;
        if (!faster && !slower) return true;
    }
    return false;
}

static ht_status time_once(ht_compression *c, timed *t)
{
    return ht_layer_times_measure(&t->rounds[t->count++], c->ctx, t->session);
}

/* In turns, so that what else the machine does meets both. */
static ht_status time_both(ht_compression *c, const char *without, bool weights, timed *codes, timed *floats)
{
    HT_TRY(open_timed(c, NULL, weights, codes));
    HT_TRY(open_timed(c, without, weights, floats));
    double begin = ht_instr_clock();
    for (int i = 0; i < MOST_ROUNDS; i++) {
        bool late = ht_instr_clock() - begin > most_seconds;
        if (i >= FEWEST_ROUNDS && (late || !is_open(codes, floats))) break;
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

static ht_status note_layer(ht_compression *c, const timed *codes, size_t i, const timed *floats, size_t k, bool sparse)
{
    const ht_layer_time *now = &codes->rounds[0].items[i], *was = &floats->rounds[0].items[k];
    spread now_spread = spread_of(codes, i), was_spread = spread_of(floats, k);
    ht_compress_layer *layer = NULL;
    for (size_t n = 0; n < c->layer_count && !layer; n++)
        if (strcmp(c->layers[n].name, now->weight) == 0) layer = &c->layers[n];
    if (!layer) {
        if (!ht_grow((void **)&c->layers, &c->layer_capacity, c->layer_count + 1, sizeof *c->layers))
            HT_FAIL(c->ctx, HT_ENOMEM, "out of memory for figures of layers");
        layer = &c->layers[c->layer_count++];
        *layer = (ht_compress_layer){0};
        HT_TRY(keep_text(c, now->weight, &layer->name));
    }
    HT_TRY(keep_text(c, now->kernel, &layer->kernel));
    HT_TRY(keep_text(c, was->kernel, &layer->float_kernel));
    layer->sparse = sparse;
    layer->ms = 1e3 * now_spread.best;
    layer->float_ms = 1e3 * was_spread.best;
    layer->margin_ms = 1e3 * margin_of(now_spread, was_spread);
    layer->loss = NAN;
    layer->slower = layer->ms > layer->float_ms - layer->margin_ms;
    return HT_OK;
}

/* Layers of the step that the other plan computes otherwise. Those with codes that it has no like of are told. */
static ht_status note_layers(ht_compression *c, const timed *codes, const timed *floats, const char *expression,
                             bool sparse)
{
    size_t alone = 0;
    const char *first = NULL;
    for (size_t i = 0; i < codes->rounds[0].count; i++) {
        const ht_layer_time *layer = &codes->rounds[0].items[i];
        size_t k = find_replaced(codes, floats, i);
        if (!ht_compression_matches(expression, layer->weight)) continue;
        if (k < floats->rounds[0].count) {
            HT_TRY(note_layer(c, codes, i, floats, k, sparse));
        } else if (layer->codes) {
            if (!alone++) first = layer->weight;
        }
    }
    if (alone)
        ht_compression_note(c, "warning: %zu layers read codes and have no times with floats to compare, such as '%s'",
                            alone, first);
    return HT_OK;
}

static ht_status time_layers(ht_compression *c, const char *without, bool sparse, const char *expression)
{
    timed codes = {0}, floats = {0};
    ht_status status = time_both(c, without, sparse, &codes, &floats);
    if (status == HT_OK) status = note_layers(c, &codes, &floats, expression, sparse);
    close_timed(&codes);
    close_timed(&floats);
    return status;
}

ht_status ht_compression_time_layers(ht_compression *c, const char *expression)
{
    return time_layers(c, "train.quantize=null", false, expression);
}

ht_status ht_compression_time_sparse(ht_compression *c)
{
    HT_TRY(ht_weights_write(&c->weights, c->ctx, c->initial));
    return time_layers(c, "train.sparse=null", true, "");
}

/* ---- sensitivity ---- */

static ht_status evaluate(ht_compression *c, const char *set, double *loss)
{
    ht_config *config;
    ht_run *run;
    ht_eval_report report;
    HT_TRY(ht_compression_config(c, &set, set ? 1 : 0, &config));
    ht_run_request request = {.config = config,
                              .mode = HT_RUN_EVALUATE,
                              .folder = c->request->run,
                              .data_folder = c->data_folder,
                              .init_weights = c->initial};
    ht_text text = {0}; /* of what compress.json has of the codes: that of the result */
    ht_json_writer json = {.text = &text};
    ht_status status = ht_run_open(&run, c->ctx, &request);
    if (status == HT_OK) {
        status = ht_compression_choose_codes(c, ht_run_session(run), &json);
        if (status == HT_OK) status = ht_run_evaluate(run, &report);
        ht_run_close(run);
    }
    ht_text_free(&text);
    ht_config_free(config);
    *loss = status == HT_OK && report.count > 0 ? report.loss : NAN;
    return status;
}

ht_status ht_compression_evaluate(ht_compression *c, const char *set, double *loss)
{
    HT_TRY(ht_weights_write(&c->weights, c->ctx, c->initial));
    return evaluate(c, set, loss);
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

ht_status ht_compression_scan_layers(ht_compression *c, const char *expression)
{
    double floats;
    HT_TRY(ht_compression_evaluate(c, "train.quantize=null", &floats));
    const ht_compress_layer *worst = NULL;
    for (size_t i = 0; i < c->layer_count; i++) {
        ht_compress_layer *layer = &c->layers[i];
        if (layer->sparse || (layer->slower && !layer->stays) || !ht_compression_matches(expression, layer->name))
            continue;
        HT_TRY(scan_layer(c, layer, floats));
        if (!worst || layer->loss > worst->loss) worst = layer;
    }
    if (worst) ht_compression_note(c, "sensitivity: '%s' hurts most: loss %+.6f", worst->name, worst->loss);
    if (!worst) ht_compression_note(c, "sensitivity: there is no layer with codes to look at");
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
        ht_json_put_number(json, "margin_ms", layer->margin_ms);
        if (!isnan(layer->loss)) ht_json_put_number(json, "loss", layer->loss);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
}
