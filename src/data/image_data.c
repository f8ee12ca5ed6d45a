/* The format `images`: a folder of images for each class. Pixels are decoded once and kept as bytes, channels first. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "data/inputs.h"

#define MOST_BYTES (INT64_C(1) << 34)

static const ht_key image_keys[] = {
    {"train", HT_KEY_TEXT, NULL, 0, 0, NULL, "folder with one folder of PNG or JPEG files per class"},
    {"validation", HT_KEY_TEXT, "null", 0, 0, NULL, "folder to validate on; without it a share is held out"},
    HT_DATA_PREFETCH_KEY("false"),
    {"size", HT_KEY_INTS, "null", 1, 8192, NULL, "height and width that images are resized to; else all must be equal"},
    {"channels", HT_KEY_INT, "3", 1, 3, NULL, "1 grey, 3 colour"},
    {"validation_share", HT_KEY_NUMBER, "0.1", 0, 0.9, NULL, "images that are held out when there are no others"},
    HT_DATA_CLASSES_KEY,
    HT_CHANNEL_KEYS,
    {.name = NULL},
};

typedef struct names {
    char **list;
    size_t count, capacity;
} names;

static void free_names(names *n)
{
    for (size_t i = 0; i < n->count; i++) free(n->list[i]);
    free(n->list);
    *n = (names){0};
}

static int by_bytes(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

/* The folders (or the images) in a folder, sorted. */
static ht_status list_folder(names *out, ht_context *ctx, const char *path, bool folders)
{
    DIR *folder = opendir(path);
    if (!folder) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    ht_status status = HT_OK;
    for (struct dirent *entry; status == HT_OK && (entry = readdir(folder));) {
        if (entry->d_name[0] == '.') continue;
        struct stat about;
        char inside[4096];
        int length = snprintf(inside, sizeof inside, "%s/%s", path, entry->d_name);
        if (length < 0 || (size_t)length >= sizeof inside || stat(inside, &about) != 0) continue;
        if (folders ? !S_ISDIR(about.st_mode) : !(S_ISREG(about.st_mode) && ht_image_is_named(inside))) continue;
        if (!ht_grow((void **)&out->list, &out->capacity, out->count + 1, sizeof *out->list) ||
            !(out->list[out->count] = strdup(folders ? entry->d_name : inside)))
            status = ht_data_no_memory(ctx, "names of images");
        else
            out->count++;
    }
    closedir(folder);
    if (status == HT_OK && out->count) qsort(out->list, out->count, sizeof *out->list, by_bytes);
    return status;
}

typedef struct image_reading {
    ht_data *data;
    ht_context *ctx;
    ht_row_set *set;
    uint8_t *pixels; /* of all images */
    size_t bytes, capacity;
    int32_t *labels;
    size_t count, label_capacity;
    char first[4096]; /* the image that set the size */
} image_reading;

/* Resizes to the requested size, or checks against the size of the first image. */
static ht_status fit_image(image_reading *r, const char *path, ht_image *image)
{
    ht_data_info *info = &r->data->info;
    const ht_fields *fields = r->data->request.fields;
    bool resize = !ht_field_null(fields, "size");
    if (info->feature_rank == 0) {
        size_t sizes = ht_field_count(fields, "size");
        info->feature_rank = 3;
        info->feature[0] = image->channels;
        info->feature[1] = resize ? ht_field_int_at(fields, "size", 0) : image->height;
        info->feature[2] = resize ? ht_field_int_at(fields, "size", sizes > 1 ? 1 : 0) : image->width;
        snprintf(r->first, sizeof r->first, "%s", path);
    }
    if (image->height == info->feature[1] && image->width == info->feature[2]) return HT_OK;
    if (!resize)
        HT_FAIL(r->ctx, HT_ESHAPE,
                "%s: %" PRId64 " by %" PRId64 " pixels, %s has %" PRId64 " by %" PRId64 "; \"size\" resizes them", path,
                image->width, image->height, r->first, info->feature[2], info->feature[1]);
    ht_image fitted;
    HT_TRY(ht_image_resize(&fitted, r->ctx, image, info->feature[1], info->feature[2]));
    ht_image_free(image);
    *image = fitted;
    return HT_OK;
}

static ht_status keep_image(image_reading *r, const ht_image *image, int32_t label)
{
    size_t bytes = (size_t)(image->height * image->width) * (size_t)image->channels;
    if (r->bytes + bytes > MOST_BYTES)
        HT_FAIL(r->ctx, HT_ENOMEM,
                "data: the images have more than %" PRId64 " bytes of pixels; give a smaller \"size\"", MOST_BYTES);
    if (!ht_grow((void **)&r->pixels, &r->capacity, r->bytes + bytes, 1) ||
        !ht_grow((void **)&r->labels, &r->label_capacity, r->count + 1, sizeof *r->labels))
        return ht_data_no_memory(r->ctx, "images");
    ht_image_planes(image, r->pixels + r->bytes);
    r->bytes += bytes;
    r->labels[r->count++] = label;
    return HT_OK;
}

static ht_status read_image(image_reading *r, const char *path, int32_t label)
{
    ht_content content;
    ht_image image;
    int channels = (int)ht_field_int(r->data->request.fields, "channels");
    if (channels == 2) HT_FAIL(r->ctx, HT_EINVAL, "data.channels: 1 or 3, not 2");
    HT_TRY(ht_content_map(&content, r->ctx, path));
    ht_data_part part = r->set->counts[HT_DATA_TRAIN] == 0 ? HT_DATA_TRAIN : HT_DATA_VALIDATION;
    ht_fingerprint_bytes(r->data, part, path, content.data, content.length);
    ht_status status = ht_image_decode(&image, r->ctx, path, content.data, content.length, channels);
    ht_content_close(&content);
    HT_TRY(status);
    status = fit_image(r, path, &image);
    if (status == HT_OK) status = keep_image(r, &image, label);
    ht_image_free(&image);
    return status;
}

static ht_status read_class(image_reading *r, const char *folder, const char *name, int32_t label)
{
    char path[4096];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path) HT_FAIL(r->ctx, HT_EINVAL, "%s: the path is too long", folder);
    names images = {0};
    ht_status status = list_folder(&images, r->ctx, path, false);
    for (size_t i = 0; i < images.count && status == HT_OK; i++) status = read_image(r, images.list[i], label);
    free_names(&images);
    return status;
}

/* The classes are those of the first folder; the others may lack some but have no new ones. */
static ht_status name_classes(image_reading *r, const char *folder, const names *classes)
{
    ht_data *data = r->data;
    if (data->class_names) {
        for (size_t i = 0; i < classes->count; i++) {
            bool known = false;
            for (int64_t k = 0; k < data->named_classes; k++)
                known |= strcmp(data->class_names[k], classes->list[i]) == 0;
            if (!known)
                HT_FAIL(r->ctx, HT_EINVAL, "%s/%s: there is no such class to train on", folder, classes->list[i]);
        }
        return HT_OK;
    }
    if (classes->count == 0) HT_FAIL(r->ctx, HT_EINVAL, "%s: no folders in it, one for each class is wanted", folder);
    const char **list = HT_NEW(data->arena, const char *, classes->count);
    if (!list) return ht_data_no_memory(r->ctx, "classes");
    for (size_t i = 0; i < classes->count; i++)
        if (!(list[i] = ht_arena_text(data->arena, classes->list[i], strlen(classes->list[i]))))
            return ht_data_no_memory(r->ctx, "classes");
    return ht_data_name_classes(data, r->ctx, list, (int64_t)classes->count);
}

static ht_status read_folder(image_reading *r, const char *folder)
{
    names classes = {0};
    ht_status status = list_folder(&classes, r->ctx, folder, true);
    if (status == HT_OK) status = name_classes(r, folder, &classes);
    for (size_t i = 0; i < classes.count && status == HT_OK; i++) {
        int32_t label = 0;
        while (strcmp(r->data->class_names[label], classes.list[i]) != 0) label++;
        status = read_class(r, folder, classes.list[i], label);
    }
    free_names(&classes);
    return status;
}

static ht_status folder_of(const image_reading *r, const char *key, char *out, size_t capacity)
{
    const ht_fields *fields = r->data->request.fields;
    return ht_data_path(r->data, r->ctx, fields, key, ht_field_text(fields, key), out, capacity);
}

/* Images of both parts lie in one block, those to train on first. */
static ht_status read_parts(image_reading *r)
{
    char folder[4096];
    if (!ht_data_validates_only(r->data, r->data->request.fields)) {
        HT_TRY(folder_of(r, "train", folder, sizeof folder));
        HT_TRY(read_folder(r, folder));
    }
    r->set->counts[HT_DATA_TRAIN] = (int64_t)r->count;
    if (ht_field_null(r->data->request.fields, "validation")) return HT_OK;
    HT_TRY(folder_of(r, "validation", folder, sizeof folder));
    HT_TRY(read_folder(r, folder));
    r->set->counts[HT_DATA_VALIDATION] = (int64_t)r->count - r->set->counts[HT_DATA_TRAIN];
    return HT_OK;
}

static ht_status fill_set(image_reading *r)
{
    ht_row_set *set = r->set;
    ht_data *data = r->data;
    if (r->count == 0 || (set->counts[HT_DATA_TRAIN] == 0 && !ht_data_validates_only(data, data->request.fields)))
        HT_FAIL(r->ctx, HT_EINVAL, "data: there are no PNG or JPEG files to train on");
    int32_t *labels = HT_NEW(data->arena, int32_t, r->count);
    if (!labels) return ht_data_no_memory(r->ctx, "labels");
    memcpy(labels, r->labels, r->count * sizeof *labels);
    size_t each = r->bytes / r->count;
    for (int part = 0; part < HT_DATA_PARTS; part++) {
        int64_t first = part == HT_DATA_TRAIN ? 0 : set->counts[HT_DATA_TRAIN];
        ht_array x = {.element = HT_ELEMENT_U8, .rank = 4, .shape = {set->counts[part]}};
        for (int i = 0; i < 3; i++) x.shape[i + 1] = data->info.feature[i];
        ht_array_measure(&x);
        x.data = r->pixels + (size_t)first * each;
        set->x[part] = x;
        set->labels[part] = labels + first;
    }
    HT_TRY(ht_rows_split(set, data, r->ctx, ht_field_number(data->request.fields, "validation_share")));
    HT_TRY(ht_rows_normalize(set, data, r->ctx, 255));
    return ht_rows_finish(set, data, r->ctx);
}

static ht_status open_images(ht_data *data, ht_context *ctx)
{
    image_reading r = {.data = data, .ctx = ctx};
    HT_TRY(ht_rows_create(&r.set, data, ctx));
    ht_status status = read_parts(&r);
    r.set->block = r.pixels;
    if (status == HT_OK) status = fill_set(&r);
    free(r.labels);
    return status;
}

static ht_status read_inputs(ht_inputs *inputs, const char *file, const ht_content *content)
{
    return ht_inputs_add_numbers(inputs, file, content, 255);
}

const ht_data_format ht_data_format_images = {"images",    "PNG and JPEG files in a folder for each class",
                                              image_keys,  1u << HT_TASK_CLASS,
                                              open_images, read_inputs};
