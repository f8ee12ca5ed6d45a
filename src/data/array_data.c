/* The format `arrays`: npy files, or tensors of safetensors files. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/inputs.h"

static const ht_key array_keys[] = {
    HT_DATA_PATH_KEYS("false"),
    {"train_labels", HT_KEY_TEXTS, "null", 0, 0, NULL, "npy: labels or values of the items"},
    {"validation_labels", HT_KEY_TEXTS, "null", 0, 0, NULL, "likewise"},
    {"x", HT_KEY_TEXT, "\"x\"", 0, 0, NULL, "safetensors: the tensor of the items"},
    {"y", HT_KEY_TEXT, "\"y\"", 0, 0, NULL, "safetensors: the tensor of the labels or values"},
    {"validation_share", HT_KEY_NUMBER, "0.1", 0, 0.9, NULL, "items that are held out when there are no others"},
    HT_DATA_CLASSES_KEY,
    HT_DATA_NAN_KEY,
    {.name = NULL},
};

static bool is_safetensors(const char *path)
{
    size_t length = strlen(path), end = strlen(".safetensors");
    return length >= end && strcmp(path + length - end, ".safetensors") == 0;
}

static ht_status find_tensor(const ht_safetensors *file, ht_context *ctx, const char *path, const char *name,
                             ht_array *out)
{
    const ht_named_array *found = ht_safetensors_find(file, name);
    if (!found) HT_FAIL(ctx, HT_EINVAL, "%s: there is no tensor \"%s\"", path, name);
    *out = found->array;
    return HT_OK;
}

static ht_status read_npy(ht_row_set *set, ht_context *ctx, const char *path, ht_array *out)
{
    ht_content *content = &set->contents[set->content_count];
    HT_TRY(ht_content_open(content, ctx, path));
    set->content_count++;
    return ht_npy_parse(out, ctx, path, content->data, content->length);
}

enum { NAME_BYTES = 4200 };

/* Items and labels, and the names of both for messages: a file, or a tensor in it. */
typedef struct array_names {
    char x[NAME_BYTES], y[NAME_BYTES];
} array_names;

static ht_status read_pair(ht_row_set *set, ht_data *data, ht_context *ctx, ht_data_part part, const char *path,
                           const char *labels_key, ht_array *y, array_names *names)
{
    const ht_fields *fields = data->request.fields;
    snprintf(names->x, sizeof names->x, "%s", path);
    if (is_safetensors(path)) {
        snprintf(names->x, sizeof names->x, "%s: tensor \"%.60s\"", path, ht_field_text(fields, "x"));
        snprintf(names->y, sizeof names->y, "%s: tensor \"%.60s\"", path, ht_field_text(fields, "y"));
        HT_TRY(ht_safetensors_open(&set->files[part], ctx, path));
        HT_TRY(find_tensor(set->files[part], ctx, path, ht_field_text(fields, "x"), &set->x[part]));
        return find_tensor(set->files[part], ctx, path, ht_field_text(fields, "y"), y);
    }
    char labels[4096];
    HT_TRY(ht_path_find(data, ctx, labels_key, labels, sizeof labels));
    if (!labels[0]) HT_FAIL(ctx, HT_EINVAL, "data.%s: must be given", labels_key);
    snprintf(names->y, sizeof names->y, "%s", labels);
    HT_TRY(read_npy(set, ctx, path, &set->x[part]));
    return read_npy(set, ctx, labels, y);
}

static ht_status open_part(ht_row_set *set, ht_data *data, ht_context *ctx, ht_data_part part)
{
    static const char *const keys[HT_DATA_PARTS][2] = {{"train", "train_labels"}, {"validation", "validation_labels"}};
    char path[4096];
    array_names names;
    ht_array y;
    HT_TRY(ht_path_find(data, ctx, keys[part][0], path, sizeof path));
    if (!path[0]) return HT_OK;
    HT_TRY(read_pair(set, data, ctx, part, path, keys[part][1], &y, &names));
    HT_TRY(ht_rows_feature(data, ctx, names.x, &set->x[part]));
    HT_TRY(ht_rows_finite(data, ctx, names.x, &set->x[part]));
    set->counts[part] = set->x[part].shape[0];
    if (data->request.task == HT_TASK_CLASS) return ht_rows_labels(set, data, ctx, part, names.y, &y);
    return ht_rows_values(set, data, ctx, part, names.y, &y);
}

static ht_status open_arrays(ht_data *data, ht_context *ctx)
{
    ht_row_set *set;
    HT_TRY(ht_rows_create(&set, data, ctx));
    for (int part = 0; part < HT_DATA_PARTS; part++) HT_TRY(open_part(set, data, ctx, (ht_data_part)part));
    HT_TRY(ht_rows_split(set, data, ctx, ht_field_number(data->request.fields, "validation_share")));
    return ht_rows_finish(set, data, ctx);
}

static ht_status read_inputs(ht_inputs *inputs, const char *file, const ht_content *content)
{
    return ht_inputs_add_numbers(inputs, file, content, 0);
}

const ht_data_format ht_data_format_arrays = {
    "arrays",    "items and labels as npy files or tensors of safetensors files",
    array_keys,  1u << HT_TASK_CLASS | 1u << HT_TASK_REGRESSION,
    open_arrays, read_inputs};
