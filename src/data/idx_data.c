/* The format `idx`: images and labels in IDX files, plain or gzip. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/inputs.h"

static const ht_key idx_keys[] = {
    HT_DATA_PATH_KEYS("false"),
    {"train_labels", HT_KEY_TEXTS, "null", 0, 0, NULL, "labels of the images; found by name unless given"},
    {"validation_labels", HT_KEY_TEXTS, "null", 0, 0, NULL, "likewise"},
    {"validation_share", HT_KEY_NUMBER, "0.1", 0, 0.9, NULL, "images that are held out when there are no others"},
    HT_DATA_CLASSES_KEY,
    HT_CHANNEL_KEYS,
    {.name = NULL},
};

/* train-images-idx3-ubyte.gz has its labels in train-labels-idx1-ubyte.gz. */
static bool labels_beside(const char *images, char *out, size_t capacity)
{
    const char *word = NULL;
    for (const char *at = strstr(images, "images"); at; at = strstr(at + 1, "images")) word = at;
    if (!word) return false;
    int length = snprintf(out, capacity, "%.*slabels%s", (int)(word - images), images, word + strlen("images"));
    if (length < 0 || (size_t)length >= capacity) return false;
    char *rank = strstr(out + (word - images), "idx");
    if (rank && rank[3] >= '2' && rank[3] <= '9') rank[3] = '1';
    return true;
}

static ht_status read_idx(ht_row_set *set, ht_context *ctx, const char *path, ht_array *out)
{
    ht_content *content = &set->contents[set->content_count];
    HT_TRY(ht_content_open(content, ctx, path));
    set->content_count++;
    return ht_idx_parse(out, ctx, path, content->data, content->length);
}

/* Images without channels get one. */
static ht_status add_channel(ht_context *ctx, const char *path, ht_array *x)
{
    if (x->rank != 3 && x->rank != 4)
        HT_FAIL(ctx, HT_ESHAPE, "%s: rank %d is not that of images (3, or 4 with channels)", path, x->rank);
    if (x->rank == 4) return HT_OK;
    x->shape[3] = x->shape[2];
    x->shape[2] = x->shape[1];
    x->shape[1] = 1;
    x->rank = 4;
    return HT_OK;
}

static ht_status open_part(ht_row_set *set, ht_data *data, ht_context *ctx, ht_data_part part)
{
    static const char *const keys[HT_DATA_PARTS][2] = {{"train", "train_labels"}, {"validation", "validation_labels"}};
    char images[4096], labels[4096];
    HT_TRY(ht_path_find(data, ctx, keys[part][0], images, sizeof images));
    if (!images[0]) return HT_OK;
    HT_TRY(ht_path_find(data, ctx, keys[part][1], labels, sizeof labels));
    if (!labels[0] && !labels_beside(images, labels, sizeof labels))
        HT_FAIL(ctx, HT_EINVAL, "data.%s: must be given, for %s does not tell where its labels are", keys[part][1],
                images);
    ht_fingerprint_file(data, part, labels);
    ht_array label_array;
    HT_TRY(read_idx(set, ctx, images, &set->x[part]));
    HT_TRY(add_channel(ctx, images, &set->x[part]));
    HT_TRY(ht_rows_feature(data, ctx, images, &set->x[part]));
    HT_TRY(ht_rows_finite(data, ctx, images, &set->x[part]));
    HT_TRY(read_idx(set, ctx, labels, &label_array));
    HT_TRY(ht_rows_labels(set, data, ctx, part, labels, &label_array));
    set->counts[part] = set->x[part].shape[0];
    return HT_OK;
}

static ht_status open_idx(ht_data *data, ht_context *ctx)
{
    ht_row_set *set;
    HT_TRY(ht_rows_create(&set, data, ctx));
    for (int part = 0; part < HT_DATA_PARTS; part++) HT_TRY(open_part(set, data, ctx, (ht_data_part)part));
    HT_TRY(ht_rows_split(set, data, ctx, ht_field_number(data->request.fields, "validation_share")));
    /* Images to train on decide for all. */
    if (data->range == 0) data->range = set->x[HT_DATA_TRAIN].element == HT_ELEMENT_U8 ? 255 : 1;
    HT_TRY(ht_rows_normalize(set, data, ctx, data->range));
    return ht_rows_finish(set, data, ctx);
}

static ht_status read_inputs(ht_inputs *inputs, const char *file, const ht_content *content)
{
    return ht_inputs_add_numbers(inputs, file, content, inputs->data->range);
}

const ht_data_format ht_data_format_idx = {
    "idx", "images and labels as the MNIST family has them", idx_keys, 1u << HT_TASK_CLASS, open_idx, read_inputs};
