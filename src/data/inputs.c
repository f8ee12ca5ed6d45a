/* Inputs of predictions: files, standard input and images, read and preprocessed as the data that was trained on. */
#include "data/inputs.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

ht_status ht_inputs_create(ht_inputs **out, ht_data *data, ht_context *ctx)
{
    *out = NULL;
    if (!data->request.format->inputs)
        HT_FAIL(ctx, HT_ENOTSUP,
                "the run models language (data.format %s), and text generation is not there yet; halftone eval gives "
                "the loss and the perplexity of a text (--set data.validation=FILE)",
                data->request.format->name);
    ht_inputs *inputs = calloc(1, sizeof *inputs);
    if (!inputs) return ht_data_no_memory(ctx, "inputs");
    inputs->data = data;
    inputs->ctx = ctx;
    inputs->width = data->info.feature_rank > 0;
    for (int i = 0; i < data->info.feature_rank; i++) inputs->width *= data->info.feature[i];
    if (data->means && data->mean_count != (size_t)inputs->width) {
        ht_inputs_free(inputs);
        HT_FAIL(ctx, HT_ESHAPE, "data: the run knows the means of %zu columns, and its items have another number",
                data->mean_count);
    }
    *out = inputs;
    return HT_OK;
}

void ht_inputs_free(ht_inputs *inputs)
{
    if (!inputs) return;
    for (size_t i = 0; i < inputs->count; i++) free(inputs->items[i].name);
    free(inputs->items);
    free(inputs->x);
    free(inputs->ids.list);
    free(inputs);
}

/* ---- files ---- */

static ht_status read_stdin(ht_content *out, ht_context *ctx)
{
    void *bytes = NULL;
    size_t length = 0, capacity = 0;
    for (;;) {
        if (!ht_grow(&bytes, &capacity, length + (64u << 10), 1)) break;
        ssize_t got = read(STDIN_FILENO, (char *)bytes + length, capacity - length);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) {
            free(bytes);
            HT_FAIL(ctx, HT_EIO, "standard input: %s", strerror(errno));
        }
        length += (size_t)got;
        if (got > 0) continue;
        *out = (ht_content){.data = bytes, .length = length, .inflated = bytes};
        return HT_OK;
    }
    free(bytes);
    return ht_data_no_memory(ctx, "standard input");
}

ht_status ht_inputs_read(ht_inputs *inputs, const char *path)
{
    bool is_stdin = strcmp(path, "-") == 0;
    ht_content content;
    HT_TRY(is_stdin ? read_stdin(&content, inputs->ctx) : ht_content_open(&content, inputs->ctx, path));
    ht_status status = inputs->data->request.format->inputs(inputs, is_stdin ? "stdin" : path, &content);
    ht_content_close(&content);
    return status;
}

/* ---- items ---- */

static ht_input_item *add_item(ht_inputs *inputs)
{
    if (!ht_grow((void **)&inputs->items, &inputs->capacity, inputs->count + 1, sizeof *inputs->items)) return NULL;
    ht_input_item *item = &inputs->items[inputs->count];
    *item = (ht_input_item){0};
    return item;
}

/* Channels by the scale of pixels, columns of a table by the means of the one that was trained on. */
static void preprocess(const ht_inputs *inputs, const ht_array *array, int64_t item, float *row)
{
    const ht_data *data = inputs->data;
    ht_rows_item(data, &inputs->channels, array, item, row);
    for (size_t i = 0; data->means && i < data->mean_count; i++)
        row[i] = ht_rows_normalized(row[i], data->means[i], data->deviations[i]);
}

ht_status ht_inputs_add_item(ht_inputs *inputs, const ht_array *array, int64_t index, const char *file,
                             const char *place, ...)
{
    char where[64];
    ht_text name = {0};
    va_list args;
    va_start(args, place);
    vsnprintf(where, sizeof where, place, args);
    va_end(args);
    ht_text_add(&name, "%s%s", file, where);
    size_t width = (size_t)inputs->width;
    ht_input_item *item = add_item(inputs);
    if (!item || name.failed || inputs->count + 1 > SIZE_MAX / sizeof(float) / width ||
        !ht_grow((void **)&inputs->x, &inputs->x_capacity, (inputs->count + 1) * width, sizeof *inputs->x)) {
        ht_text_free(&name);
        return ht_data_no_memory(inputs->ctx, "inputs");
    }
    item->name = name.data;
    preprocess(inputs, array, index, inputs->x + inputs->count++ * width);
    return HT_OK;
}

/* ---- arrays ---- */

/* Are the sizes from `first` on those of an item? Axes of one element do not count: images may lack their channel. */
static bool is_item(const ht_data *data, const ht_array *array, int first)
{
    int feature = 0;
    for (int i = first; i <= array->rank; i++) {
        while (feature < data->info.feature_rank && data->info.feature[feature] == 1) feature++;
        while (i < array->rank && array->shape[i] == 1) i++;
        if (i == array->rank) break;
        if (feature == data->info.feature_rank || array->shape[i] != data->info.feature[feature++]) return false;
    }
    return feature == data->info.feature_rank;
}

static ht_status refuse_shape(const ht_inputs *inputs, const char *file, const ht_array *array)
{
    const ht_data_info *info = &inputs->data->info;
    ht_text has = {0}, wanted = {0};
    for (int i = 0; i < array->rank; i++) ht_text_add(&has, "%s%" PRId64, i ? ", " : "", array->shape[i]);
    for (int i = 0; i < info->feature_rank; i++) ht_text_add(&wanted, "%s%" PRId64, i ? ", " : "", info->feature[i]);
    ht_fail(inputs->ctx, HT_ESHAPE, "%s: an array [%s]; items of this run are [%s], one or a list of them", file,
            has.data ? has.data : "", wanted.data ? wanted.data : "");
    ht_text_free(&has);
    ht_text_free(&wanted);
    return HT_ESHAPE;
}

static ht_status add_array(ht_inputs *inputs, const char *file, const ht_array *array)
{
    const ht_data *data = inputs->data;
    bool one = is_item(data, array, 0), flat = array->rank == 2 && array->shape[1] == inputs->width;
    if (!one && (array->rank < 1 || !(flat || is_item(data, array, 1)))) return refuse_shape(inputs, file, array);
    HT_TRY(ht_rows_finite(data, inputs->ctx, file, array));
    if (one) return ht_inputs_add_item(inputs, array, 0, file, "%s", "");
    for (int64_t i = 0; i < array->shape[0]; i++)
        HT_TRY(ht_inputs_add_item(inputs, array, i, file, "[%" PRId64 "]", i));
    return HT_OK;
}

static ht_status add_safetensors(ht_inputs *inputs, const char *file, const ht_content *content)
{
    const ht_field *key = ht_fields_find(inputs->data->request.fields, "x");
    const char *name = key && key->value->kind == HT_JSON_STRING ? key->value->text : "x";
    ht_safetensors *tensors;
    HT_TRY(ht_safetensors_parse(&tensors, inputs->ctx, file, content->data, content->length));
    const ht_named_array *found = ht_safetensors_find(tensors, name);
    ht_status status = found ? add_array(inputs, file, &found->array)
                             : ht_fail(inputs->ctx, HT_EINVAL, "%s: there is no tensor \"%s\"", file, name);
    ht_safetensors_free(tensors);
    return status;
}

/* ---- images ---- */

static ht_status fit_image(const ht_inputs *inputs, const char *file, ht_image *image)
{
    const int64_t *feature = inputs->data->info.feature;
    const ht_field *size = ht_fields_find(inputs->data->request.fields, "size");
    if (image->height == feature[1] && image->width == feature[2]) return HT_OK;
    if (!size || size->value->kind == HT_JSON_NULL)
        HT_FAIL(inputs->ctx, HT_ESHAPE,
                "%s: %" PRId64 " by %" PRId64 " pixels, the run was trained on images of %" PRId64 " by %" PRId64, file,
                image->width, image->height, feature[2], feature[1]);
    ht_image fitted;
    HT_TRY(ht_image_resize(&fitted, inputs->ctx, image, feature[1], feature[2]));
    ht_image_free(image);
    *image = fitted;
    return HT_OK;
}

static ht_status keep_image(ht_inputs *inputs, const char *file, const ht_image *image)
{
    ht_array pixels = {.element = HT_ELEMENT_U8, .rank = 3, .shape = {image->channels, image->height, image->width}};
    ht_array_measure(&pixels);
    uint8_t *planes = malloc(pixels.bytes);
    if (!planes) return ht_data_no_memory(inputs->ctx, "an image");
    ht_image_planes(image, planes);
    pixels.data = planes;
    ht_status status = add_array(inputs, file, &pixels);
    free(planes);
    return status;
}

static ht_status add_image(ht_inputs *inputs, const char *file, const ht_content *content, double range)
{
    const ht_data_info *info = &inputs->data->info;
    ht_image image;
    if (range != 255)
        HT_FAIL(inputs->ctx, HT_EINVAL,
                "%s: an image, but the run was trained on numbers (data.format %s) whose scale is not that of pixels; "
                "give them as npy, IDX or CSV",
                file, inputs->data->request.format->name);
    if (info->feature_rank != 3 || (info->feature[0] != 1 && info->feature[0] != 3))
        HT_FAIL(inputs->ctx, HT_ESHAPE, "%s: an image, but items of the run have %" PRId64 " channels", file,
                info->feature[0]);
    HT_TRY(ht_image_decode(&image, inputs->ctx, file, content->data, content->length, (int)info->feature[0]));
    ht_status status = fit_image(inputs, file, &image);
    if (status == HT_OK) status = keep_image(inputs, file, &image);
    ht_image_free(&image);
    return status;
}

/* ---- which of them ---- */

static bool begins_with(const ht_content *content, const char *bytes, size_t length)
{
    return content->length >= length && memcmp(content->data, bytes, length) == 0;
}

/* Eight bytes of length, of which the upper ones are 0, and an object. */
static bool is_safetensors(const ht_content *content)
{
    return content->length > 8 && memcmp(content->data + 5, "\0\0\0", 3) == 0 && content->data[8] == '{';
}

ht_status ht_inputs_add_numbers(ht_inputs *inputs, const char *file, const ht_content *content, double range)
{
    ht_array array;
    bool is_pnm = ht_image_is_pnm(content->data, content->length);
    if (range > 0 && !inputs->channels.scale)
        HT_TRY(ht_rows_normalize(&inputs->channels, inputs->data, inputs->ctx, range));
    if (ht_image_is_known(content->data, content->length) && (range > 0 || !is_pnm))
        return add_image(inputs, file, content, range);
    if (is_safetensors(content)) return add_safetensors(inputs, file, content);
    if (begins_with(content, "\x93NUMPY", 6))
        HT_TRY(ht_npy_parse(&array, inputs->ctx, file, content->data, content->length));
    else if (begins_with(content, "\0\0", 2))
        HT_TRY(ht_idx_parse(&array, inputs->ctx, file, content->data, content->length));
    else
        return ht_inputs_add_table(inputs, file, content);
    return add_array(inputs, file, &array);
}

/* ---- sentences ---- */

/* The sentence of a line, and its text as the item's name. */
static void find_side(const ht_line_rule *rule, const char **line, size_t *length)
{
    const char *end = *line + *length, *tab = memchr(*line, '\t', *length);
    if (!tab) return;
    if (!rule->second) end = tab;
    if (rule->second) *line = tab + 1;
    tab = rule->columns ? memchr(*line, '\t', (size_t)(end - *line)) : NULL;
    *length = (size_t)((tab ? tab : end) - *line);
}

static ht_status encode_line(ht_inputs *inputs, const char *place, const char *text, size_t length,
                             const ht_line_rule *rule, ht_input_item *item)
{
    ht_ids *ids = &inputs->ids;
    item->first = (int64_t)ids->count;
    if (!ht_grow((void **)&ids->list, &ids->capacity, ids->count + 1, sizeof *ids->list))
        return ht_data_no_memory(inputs->ctx, "inputs");
    if (rule->begins) ids->list[ids->count++] = HT_TOKEN_BOS;
    HT_TRY(ht_vocabulary_append(rule->vocabulary, inputs->ctx, place, text, length, ids));
    item->length = (int64_t)ids->count - item->first;
    if (item->length > rule->most && !rule->cut)
        HT_FAIL(inputs->ctx, HT_EINVAL, "%s: %" PRId64 " tokens, more than data.max_length, %" PRId64, place,
                item->length, rule->most);
    if (item->length > rule->most) item->length = rule->most;
    if (item->length <= rule->begins) item->length = 0; /* nothing is asked */
    ids->count = (size_t)(item->first + item->length);
    if (item->length > inputs->longest) inputs->longest = item->length;
    return HT_OK;
}

static ht_status add_line(ht_inputs *inputs, const char *file, int64_t number, const char *text, size_t length,
                          const ht_line_rule *rule)
{
    ht_text place = {0}, name = {0};
    ht_input_item *item = add_item(inputs);
    find_side(rule, &text, &length);
    if (length > INT_MAX) HT_FAIL(inputs->ctx, HT_EPARSE, "%s:%" PRId64 ": a line of %zu bytes", file, number, length);
    ht_text_add(&place, "%s:%" PRId64, file, number);
    ht_text_add(&name, "%.*s", (int)length, text);
    ht_status status = item && !place.failed && !name.failed ? encode_line(inputs, place.data, text, length, rule, item)
                                                             : ht_data_no_memory(inputs->ctx, "inputs");
    ht_text_free(&place);
    if (status != HT_OK) {
        ht_text_free(&name);
        return status;
    }
    item->name = name.data;
    inputs->count++;
    return HT_OK;
}

ht_status ht_inputs_add_lines(ht_inputs *inputs, const char *file, const ht_content *content, const ht_line_rule *rule)
{
    const char *text = (const char *)content->data, *line;
    ht_lines lines = {.at = text, .end = text + content->length};
    size_t length;
    while (ht_line_next(&lines, &line, &length)) HT_TRY(add_line(inputs, file, lines.number, line, length, rule));
    return HT_OK;
}

/* ---- batches ---- */

int64_t ht_inputs_count(const ht_inputs *inputs)
{
    return (int64_t)inputs->count;
}

int64_t ht_inputs_longest(const ht_inputs *inputs)
{
    return inputs->longest;
}

const char *ht_inputs_name(const ht_inputs *inputs, int64_t item)
{
    return inputs->items[item].name;
}

bool ht_inputs_asks(const ht_inputs *inputs, int64_t item)
{
    return inputs->width > 0 || inputs->items[item].length > 0;
}

void ht_inputs_fill_numbers(const ht_inputs *inputs, int64_t first, int64_t rows, float *x)
{
    size_t width = (size_t)inputs->width;
    for (int64_t row = 0; row < rows; row++) {
        float *out = x + (size_t)row * width;
        if (first + row < (int64_t)inputs->count)
            memcpy(out, inputs->x + (size_t)(first + row) * width, width * sizeof *out);
        else
            memset(out, 0, width * sizeof *out);
    }
}

/* A row that asks nothing has one token of padding, to avoid a division by a length of zero. */
void ht_inputs_fill_tokens(const ht_inputs *inputs, int64_t first, int64_t rows, int64_t length, int32_t *tokens,
                           int32_t *lengths)
{
    for (int64_t row = 0; row < rows; row++) {
        const ht_input_item *item = first + row < (int64_t)inputs->count ? &inputs->items[first + row] : NULL;
        int64_t count = item ? item->length : 0;
        for (int64_t i = 0; i < length; i++)
            tokens[row * length + i] = i < count ? inputs->ids.list[item->first + i] : HT_TOKEN_PAD;
        lengths[row] = (int32_t)(count > 0 ? count : 1);
    }
}
