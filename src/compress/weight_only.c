/* Codes of weights alone: those that a method chooses take the place of those that reading the floats has made, which are
 * rounded to nearest. A few layers at a time, so that what is kept of their inputs has a limit: the data is read again for the
 * next ones. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compression.h"

enum { MOST_MOMENT_BYTES = 1 << 29 }; /* of layers that are looked at together, but for a single one */

typedef struct layer {
    ht_nbits_name name;
    ht_nbits_format format;
    int64_t k, n;
    const ht_weight_only *how;
    ht_input_moments moments;
} layer;

typedef struct chooser {
    ht_compression *c;
    ht_session *session;
    ht_json_writer *json;
    layer *layers;
    size_t count, first, end; /* of which [first, end) are looked at */
} chooser;

/* ---- which layers ---- */

static const ht_slot *find_state(const ht_plan *plan, const char *codes, const char *part)
{
    char name[HT_TENSOR_NAME_BYTES + 16];
    snprintf(name, sizeof name, "%s%s", codes, part);
    for (size_t i = 0; i < plan->slot_count; i++)
        if (plan->slots[i].kind == HT_SLOT_STATE && strcmp(plan->slots[i].name, name) == 0) return &plan->slots[i];
    return NULL;
}

/* The last step whose expression matches. */
static const ht_weight_only *method_of(const ht_compression *c, const char *weight)
{
    for (size_t i = c->weight_only_count; i-- > 0;)
        if (ht_compression_matches(c->weight_only[i].layers, weight)) return &c->weight_only[i];
    return NULL;
}

static ht_status find_layers(chooser *h)
{
    const ht_plan *plan = h->session->plan;
    h->layers = calloc(plan->slot_count + 1, sizeof *h->layers);
    if (!h->layers) HT_FAIL(h->c->ctx, HT_ENOMEM, "out of memory for layers");
    for (size_t i = 0; i < plan->slot_count; i++) {
        layer l = {.name = ht_nbits_name_of(plan->slots[i].name)};
        if (plan->slots[i].kind != HT_SLOT_STATE || !l.name.bits || l.name.part != HT_NBITS_CODES) continue;
        const ht_slot *scale = find_state(plan, l.name.codes, "_scale"),
                      *a = find_state(plan, l.name.codes, "_a_scale");
        l.how = method_of(h->c, l.name.base);
        if (!scale || !a || !l.how || !l.how->batches) continue;
        l.k = a->type.dim[0];
        l.n = scale->type.dim[1];
        l.format = (ht_nbits_format){.bits = l.name.bits,
                                     .group = l.k / scale->type.dim[0],
                                     .symmetric = !find_state(plan, l.name.codes, "_zero")};
        h->layers[h->count++] = l;
    }
    return HT_OK;
}

/* ---- what they read ---- */

static ht_status observe(void *arg, const ht_layer_input *input)
{
    const chooser *h = arg;
    if (h->c->request->stop && *h->c->request->stop) HT_FAIL(h->c->ctx, HT_EINVAL, "stopped before it was done");
    for (size_t i = h->first; i < h->end; i++) {
        layer *l = &h->layers[i];
        if (strcmp(l->name.base, input->weight) != 0) continue;
        ht_status status = ht_input_moments_add(&l->moments, h->c->ctx, input->x, input->count / l->k);
        if (status == HT_OK) return HT_OK;
        char why[256];
        snprintf(why, sizeof why, "%s", ht_context_message(h->c->ctx));
        return ht_fail(h->c->ctx, status, "calibration: what '%s' reads: %s", input->weight, why);
    }
    return HT_OK;
}

/* As many of the next layers as may be looked at together; they want the same batches. */
static ht_status take_layers(chooser *h)
{
    int64_t bytes = 0;
    for (h->end = h->first; h->end < h->count; h->end++) {
        layer *l = &h->layers[h->end];
        bytes += l->k * l->k * (int64_t)sizeof(double);
        if (h->end > h->first && (bytes > MOST_MOMENT_BYTES || l->how != h->layers[h->first].how)) break;
        HT_TRY(ht_input_moments_create(&l->moments, h->c->ctx, l->k));
    }
    return HT_OK;
}

/* ---- codes ---- */

/* The weight as [k, n]. */
static ht_status take_weight(const chooser *h, const layer *l, float **out)
{
    const ht_weight *weight = ht_weights_find(&h->c->weights, l->name.base);
    *out = malloc((size_t)(l->k * l->n) * sizeof **out + 1);
    if (!*out) HT_FAIL(h->c->ctx, HT_ENOMEM, "out of memory for '%s'", l->name.base);
    if (!weight || weight->array.count != l->k * l->n)
        HT_FAIL(h->c->ctx, HT_EINVAL, "there is no weight '%s' of %" PRId64 " x %" PRId64, l->name.base, l->k, l->n);
    for (int64_t i = 0; i < l->k * l->n; i++)
        (*out)[l->name.transposed ? i % l->k * l->n + i / l->k : i] = (float)ht_weight_get(weight, i);
    return HT_OK;
}

static ht_status write_part(const chooser *h, const layer *l, const char *part, const void *data, size_t bytes)
{
    char name[HT_TENSOR_NAME_BYTES + 16];
    snprintf(name, sizeof name, "%s%s", l->name.codes, part);
    return ht_session_write(h->session, name, data, bytes);
}

static ht_status write_codes(const chooser *h, const layer *l, const ht_nbits_codes *codes)
{
    ht_type type = ht_nbits_type(l->format.bits, l->k, l->n);
    size_t bytes = (size_t)ht_type_bytes(&type), grid = (size_t)(codes->groups * codes->n);
    int32_t *words = malloc(bytes + 1);
    if (!words) HT_FAIL(h->c->ctx, HT_ENOMEM, "out of memory for '%s'", l->name.codes);
    ht_nbits_pack(codes, words);
    ht_status status = write_part(h, l, "", words, bytes);
    free(words);
    HT_TRY(status);
    HT_TRY(write_part(h, l, "_scale", codes->scale, grid * sizeof *codes->scale));
    if (!l->format.symmetric) HT_TRY(write_part(h, l, "_zero", codes->zero, grid));
    return write_part(h, l, "_a_scale", codes->a_scale, (size_t)l->k * sizeof *codes->a_scale);
}

static ht_status quantize(const chooser *h, const layer *l, const float *w)
{
    static const char *const methods[] = {"rtn", "gptq", "awq"}; /* as ht_code_method */
    ht_context *ctx = h->c->ctx;
    ht_nbits_codes nearest = {.k = 0}, chosen = {.k = 0};
    double error = 0, nearest_error = 0;
    ht_status status = ht_group_codes_make(&nearest, ctx, HT_CODES_RTN, l->format, w, l->k, l->n, NULL);
    if (status == HT_OK)
        status = ht_group_codes_make(&chosen, ctx, l->how->method, l->format, w, l->k, l->n, &l->moments);
    if (status == HT_OK) status = ht_group_codes_error(&nearest_error, ctx, &nearest, w, &l->moments);
    if (status == HT_OK) status = ht_group_codes_error(&error, ctx, &chosen, w, &l->moments);
    if (status == HT_OK) status = write_codes(h, l, &chosen);
    ht_group_codes_free(&nearest);
    ht_group_codes_free(&chosen);
    HT_TRY(status);
    ht_json_line(h->json, 4);
    ht_json_begin_object(h->json, NULL);
    ht_json_put_text(h->json, "name", l->name.base);
    ht_json_put_text(h->json, "method", methods[l->how->method]);
    ht_json_put_int(h->json, "bits", l->format.bits);
    ht_json_put_int(h->json, "group", l->format.group);
    ht_json_put_number(h->json, "rtn_error", nearest_error);
    ht_json_put_number(h->json, "error", error);
    ht_json_end_object(h->json);
    return HT_OK;
}

static ht_status quantize_layer(const chooser *h, const layer *l)
{
    float *w = NULL;
    if (!l->moments.rows) HT_FAIL(h->c->ctx, HT_EINVAL, "calibration: no batch reached '%s'", l->name.base);
    ht_status status = take_weight(h, l, &w);
    if (status == HT_OK) status = quantize(h, l, w);
    free(w);
    return status;
}

static ht_status quantize_all(chooser *h)
{
    HT_TRY(find_layers(h));
    for (h->first = 0; h->first < h->count; h->first = h->end) {
        HT_TRY(take_layers(h));
        const ht_weight_only *how = h->layers[h->first].how;
        ht_compression_note(h->c, "calibration: %" PRId64 " batches, %zu of %zu layers", how->batches,
                            h->end - h->first, h->count);
        HT_TRY(ht_compression_run_batches(h->c, how->batches, how->data, observe, h));
        for (size_t i = h->first; i < h->end; i++) {
            HT_TRY(quantize_layer(h, &h->layers[i]));
            ht_input_moments_free(&h->layers[i].moments);
        }
    }
    return HT_OK;
}

ht_status ht_compression_choose_codes(ht_compression *c, ht_session *session, ht_json_writer *json)
{
    chooser h = {.c = c, .session = session, .json = json};
    if (!c->weight_only_count) return HT_OK;
    ht_json_line(json, 2);
    ht_json_begin_array(json, "weight_only");
    ht_status status = quantize_all(&h);
    ht_json_end_array(json);
    for (size_t i = 0; i < h.count; i++) ht_input_moments_free(&h.layers[i].moments);
    free(h.layers);
    return status;
}
