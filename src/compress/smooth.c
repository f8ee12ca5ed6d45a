/* SmoothQuant (Xiao et al. 2023): outliers of activations move into weights. Where layers alone read the result of a norm, its
 * channel j is divided by s[j] = max|x[j]|^a / max|w[j]|^(1-a) in the norm's parameters, and row j of the weights is multiplied by
 * it. The model stays the same in floats, and both sides are easier to round. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compression.h"

/* The largest magnitudes of a layer's input channels. */
typedef struct channels {
    char *weight;
    float *most;
    int64_t count;
} channels;

typedef struct smoothing {
    ht_compression *c;
    double strength;
    channels *layers;
    size_t count, capacity;
    size_t norms; /* that were changed */
} smoothing;

/* ---- what layers read ---- */

static channels *channels_of(smoothing *s, const char *weight)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->layers[i].weight, weight) == 0) return &s->layers[i];
    return NULL;
}

static ht_status observe(void *arg, const ht_layer_input *input)
{
    smoothing *s = arg;
    const ht_type *x = input->call->in[0];
    int64_t width = x->rank ? x->dim[x->rank - 1] : 0;
    channels *to = channels_of(s, input->weight);
    if (!to) {
        if (!ht_grow((void **)&s->layers, &s->capacity, s->count + 1, sizeof *s->layers))
            HT_FAIL(s->c->ctx, HT_ENOMEM, "smooth: out of memory");
        to = &s->layers[s->count++];
        *to = (channels){strdup(input->weight), calloc((size_t)width + 1, sizeof(float)), width};
        if (!to->weight || !to->most) HT_FAIL(s->c->ctx, HT_ENOMEM, "smooth: out of memory");
    }
    for (int64_t i = 0; i < input->count && to->count == width; i++) {
        float size = fabsf(input->x[i]), *most = &to->most[i % width];
        if (!isfinite(size)) HT_FAIL(s->c->ctx, HT_EINVAL, "smooth: what '%s' reads is not finite", input->weight);
        if (size > *most) *most = size;
    }
    return HT_OK;
}

/* ---- moving factors ---- */

static double weight_most(const ht_weight *w, int axis, int64_t channel)
{
    int64_t columns = w->array.shape[1], rows = w->array.shape[0];
    double most = 0;
    for (int64_t i = 0; i < (axis ? rows : columns); i++)
        most = fmax(most, fabs(ht_weight_get(w, axis ? i * columns + channel : channel * columns + i)));
    return most;
}

static void multiply(ht_weight *w, int64_t index, double factor)
{
    ht_store_f64(w->data, ht_element_dtype(w->array.element), index, ht_weight_get(w, index) * factor);
}

static void multiply_channel(ht_weight *w, int axis, int64_t channel, double factor)
{
    int64_t columns = w->array.shape[1], rows = w->array.shape[0];
    for (int64_t i = 0; i < (axis ? rows : columns); i++)
        multiply(w, axis ? i * columns + channel : channel * columns + i, factor);
}

/* Zeros on either side say nothing: the channel stays. */
static double factor_of(const smoothing *s, const ht_norm_layers *norm, const channels *x, int64_t channel)
{
    double weights = 0;
    for (size_t i = 0; i < norm->count; i++)
        weights =
            fmax(weights, weight_most(ht_weights_find(&s->c->weights, norm->weights[i]), norm->input_axes[i], channel));
    double size = (double)x->most[channel];
    if (size == 0 || weights == 0) return 1;
    return fmin(fmax(pow(size, s->strength) / pow(weights, 1 - s->strength), 1e-4), 1e4);
}

static ht_status smooth_norm(void *arg, const ht_norm_layers *norm)
{
    smoothing *s = arg;
    const ht_weights *weights = &s->c->weights;
    ht_weight *scale = ht_weights_find(weights, norm->scale);
    ht_weight *shift = norm->shift ? ht_weights_find(weights, norm->shift) : NULL;
    const channels *x = channels_of(s, norm->weights[0]);
    if (!scale || (norm->shift && !shift) || !x || x->count != scale->array.count) return HT_OK;
    for (size_t i = 0; i < norm->count; i++) {
        const ht_weight *w = ht_weights_find(weights, norm->weights[i]);
        if (!w || w->array.rank != 2 || w->array.shape[norm->input_axes[i]] != x->count) return HT_OK;
    }
    for (int64_t channel = 0; channel < x->count; channel++) {
        double factor = factor_of(s, norm, x, channel);
        multiply(scale, channel, 1 / factor);
        if (shift) multiply(shift, channel, 1 / factor);
        for (size_t i = 0; i < norm->count; i++)
            multiply_channel(ht_weights_find(weights, norm->weights[i]), norm->input_axes[i], channel, factor);
    }
    s->norms++;
    return HT_OK;
}

static ht_status smooth_model(smoothing *s)
{
    ht_compression *c = s->c;
    ht_config *config;
    ht_graph *graph = NULL;
    HT_TRY(ht_compression_config(c, NULL, 0, &config));
    ht_run_request request = {
        .config = config, .mode = HT_RUN_NEW, .folder = c->request->run, .data_folder = c->data_folder};
    ht_status status = ht_run_model(&graph, c->ctx, &request);
    if (status == HT_OK) status = ht_norm_layers_visit(graph, smooth_norm, s);
    ht_graph_free(graph);
    ht_config_free(config);
    return status;
}

ht_status ht_compression_smooth(ht_compression *c, double strength, const ht_calibration *how, ht_json_writer *json)
{
    smoothing s = {.c = c, .strength = strength};
    ht_status status = ht_compression_run_batches(c, how->batches, how->data, observe, &s);
    if (status == HT_OK) status = smooth_model(&s);
    for (size_t i = 0; i < s.count; i++) {
        free(s.layers[i].weight);
        free(s.layers[i].most);
    }
    free(s.layers);
    HT_TRY(status);
    ht_json_put_number(json, "smooth", strength);
    ht_json_put_int(json, "smoothed_norms", (int64_t)s.norms);
    ht_compression_note(c, "smooth: factors of %zu norms moved into weights", s.norms);
    if (!s.norms) HT_FAIL(c->ctx, HT_EINVAL, "quantize.smooth: the model has no norm whose result layers alone read");
    return HT_OK;
}
