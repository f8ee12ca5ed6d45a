#include "compress/weights.h"

#include <inttypes.h>
#include <math.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "train/train.h"

/* ---- from a snapshot, and to a file ---- */

typedef struct source {
    ht_context *ctx;
    ht_safetensors *file;
    char path[HT_RUN_PATH_BYTES];
} source;

static ht_status need_finite(const source *s, const ht_weight *weight)
{
    ht_dtype dtype = ht_element_dtype(weight->array.element);
    if (dtype == HT_DTYPE_COUNT || !ht_dtype_is_float(dtype)) return HT_OK;
    for (int64_t i = 0; i < weight->array.count; i++)
        if (!isfinite(ht_weight_get(weight, i)))
            HT_FAIL(s->ctx, HT_EINVAL, "%s: element %" PRId64 " of '%s' is %g", s->path, i, weight->name,
                    ht_weight_get(weight, i));
    return HT_OK;
}

static ht_status copy_tensor(ht_weight *to, const source *s, const ht_named_array *from)
{
    *to = (ht_weight){.name = strdup(from->name), .array = from->array, .data = malloc(from->array.bytes + 1)};
    to->array.data = to->data;
    if (!to->name || !to->data) HT_FAIL(s->ctx, HT_ENOMEM, "%s: out of memory", s->path);
    memcpy(to->data, from->array.data, from->array.bytes);
    return need_finite(s, to);
}

/* The floats that codes stand for, under the name of their weight. */
static ht_status copy_codes(ht_weight *to, const source *s, const ht_named_array *from, const char *name)
{
    ht_named_array shaped = *from;
    HT_TRY(ht_tensor_decoded_shape(s->ctx, s->file, s->path, &shaped));
    *to = (ht_weight){.name = strdup(name), .array = shaped.array};
    to->array.element = HT_ELEMENT_F32;
    if (!to->name || !ht_array_measure(&to->array) || !(to->data = malloc(to->array.bytes + 1)))
        HT_FAIL(s->ctx, HT_ENOMEM, "%s: out of memory", s->path);
    to->array.data = to->data;
    HT_TRY(ht_tensor_decode(s->ctx, s->file, s->path, from->name, (float *)to->data));
    return need_finite(s, to);
}

static ht_status copy_all(ht_weights *out, const source *s)
{
    size_t count = ht_safetensors_count(s->file);
    out->items = calloc(count + 1, sizeof *out->items);
    if (!out->items) HT_FAIL(s->ctx, HT_ENOMEM, "%s: out of memory", s->path);
    for (size_t i = 0; i < count; i++) {
        const ht_named_array *from = ht_safetensors_at(s->file, i);
        char base[HT_TENSOR_NAME_BYTES];
        ht_tensor_form form = ht_tensor_form_of(from->name, base);
        bool beside = form != HT_TENSOR_PLAIN && ht_safetensors_find(s->file, base);
        if (form == HT_TENSOR_SCALES || beside) continue;
        ht_weight *to = &out->items[out->count++];
        HT_TRY(form == HT_TENSOR_CODES ? copy_codes(to, s, from, base) : copy_tensor(to, s, from));
    }
    return HT_OK;
}

ht_status ht_weights_read(ht_weights *out, ht_context *ctx, const char *run)
{
    source s = {.ctx = ctx};
    *out = (ht_weights){0};
    HT_TRY(ht_run_open_weights(&s.file, ctx, run, s.path));
    ht_status status = copy_all(out, &s);
    ht_safetensors_free(s.file);
    return status;
}

static ht_status write_arrays(const ht_weights *weights, ht_context *ctx, const char *path, ht_named_array *arrays)
{
    ht_safetensors_writer *writer;
    for (size_t i = 0; i < weights->count; i++)
        arrays[i] = (ht_named_array){weights->items[i].name, weights->items[i].array};
    HT_TRY(ht_safetensors_create(&writer, ctx, path, arrays, weights->count, NULL));
    for (size_t i = 0; i < weights->count; i++) {
        ht_status status = ht_safetensors_append(writer, weights->items[i].data, weights->items[i].array.bytes);
        if (status == HT_OK) continue;
        ht_safetensors_abandon(writer);
        return status;
    }
    return ht_safetensors_finish(writer, NULL, NULL);
}

ht_status ht_weights_write(const ht_weights *weights, ht_context *ctx, const char *path)
{
    ht_named_array *arrays = calloc(weights->count + 1, sizeof *arrays);
    if (!arrays) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory", path);
    ht_status status = write_arrays(weights, ctx, path, arrays);
    free(arrays);
    return status;
}

void ht_weight_free(ht_weight *weight)
{
    free(weight->name);
    free(weight->data);
    *weight = (ht_weight){0};
}

void ht_weights_free(ht_weights *weights)
{
    for (size_t i = 0; i < weights->count; i++) ht_weight_free(&weights->items[i]);
    free(weights->items);
    *weights = (ht_weights){0};
}

ht_status ht_weights_put_number(ht_weights *weights, ht_context *ctx, const char *name, ht_element element,
                                double number)
{
    ht_weight *to = ht_weights_find(weights, name);
    if (!to) {
        ht_weight *items = realloc(weights->items, (weights->count + 1) * sizeof *items);
        if (!items) HT_FAIL(ctx, HT_ENOMEM, "out of memory for '%s'", name);
        weights->items = items;
        to = &items[weights->count++];
        *to =
            (ht_weight){.name = strdup(name), .array = {.element = element}, .data = malloc(ht_element_bytes(element))};
        if (!to->name || !to->data || !ht_array_measure(&to->array))
            HT_FAIL(ctx, HT_ENOMEM, "out of memory for '%s'", name);
        to->array.data = to->data;
    }
    ht_store_f64(to->data, ht_element_dtype(to->array.element), 0, number);
    return HT_OK;
}

/* ---- names ---- */

ht_weight *ht_weights_find(const ht_weights *weights, const char *name)
{
    for (size_t i = 0; i < weights->count; i++)
        if (strcmp(weights->items[i].name, name) == 0) return &weights->items[i];
    return NULL;
}

static ht_status fail_unmatched(const ht_weights *weights, ht_context *ctx, const char *key, const char *expression,
                                int rank)
{
    size_t i = 0;
    while (i < weights->count && weights->items[i].array.rank < rank) i++;
    const char *name = i < weights->count ? weights->items[i].name : NULL;
    HT_FAIL(ctx, HT_EINVAL, "%s: '%s' matches no tensor of at least %d axes%s%s%s", key, expression, rank,
            name ? ", such as '" : "", name ? name : "", name ? "'" : "");
}

ht_status ht_weights_match(const ht_weights *weights, ht_context *ctx, const char *key, const char *expression,
                           int rank, bool *matches)
{
    regex_t compiled;
    size_t count = 0;
    int wrong = regcomp(&compiled, expression, REG_EXTENDED | REG_NOSUB);
    if (wrong) {
        char why[128];
        regerror(wrong, &compiled, why, sizeof why);
        HT_FAIL(ctx, HT_EINVAL, "%s: '%s' is no regular expression: %s", key, expression, why);
    }
    for (size_t i = 0; i < weights->count; i++) {
        const ht_weight *w = &weights->items[i];
        matches[i] = w->array.rank >= rank && regexec(&compiled, w->name, 0, NULL, 0) == 0;
        count += matches[i];
    }
    regfree(&compiled);
    return count ? HT_OK : fail_unmatched(weights, ctx, key, expression, rank);
}

/* ---- elements ---- */

double ht_weight_get(const ht_weight *weight, int64_t index)
{
    return ht_array_number(&weight->array, index);
}

void ht_weight_clear(ht_weight *weight, int64_t index)
{
    size_t bytes = ht_element_bytes(weight->array.element);
    memset(weight->data + (size_t)index * bytes, 0, bytes);
}

int64_t ht_weight_zeros(const ht_weight *weight)
{
    int64_t zeros = 0;
    for (int64_t i = 0; i < weight->array.count; i++) zeros += ht_weight_get(weight, i) == 0;
    return zeros;
}

int64_t ht_weight_rows(const ht_weight *weight)
{
    return weight->array.rank ? weight->array.shape[0] : 1;
}

int64_t ht_weight_columns(const ht_weight *weight)
{
    int64_t rows = ht_weight_rows(weight);
    return rows ? weight->array.count / rows : 0;
}
