/* Sets of rows: batches of classification and regression data from arrays in memory. */
#include "data/row_set.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/order.h"

static int64_t feature_count(const ht_data *data)
{
    int64_t count = 1;
    for (int i = 0; i < data->info.feature_rank; i++) count *= data->info.feature[i];
    return count;
}

/* The item of a batch's row; -1 for a padding row. */
static int64_t item_at(const ht_data *data, ht_data_part part, uint64_t index, int64_t row)
{
    const ht_row_set *set = data->own;
    uint64_t count = (uint64_t)set->counts[part], batches = (uint64_t)data->info.parts[part].batches;
    uint64_t place = index % batches * (uint64_t)data->request.batch + (uint64_t)row;
    if (part == HT_DATA_TRAIN)
        place = ht_order_at(data->request.seed, index / batches, "rows", count, place % count);
    else if (place >= count)
        return -1;
    return set->items[part] ? set->items[part][place] : (int64_t)place;
}

/* One pass, with restrict pointers, so that the compiler vectorises it: its time shows in a step. */
static void scale_bytes(const uint8_t *restrict from, int64_t count, float scale, float shift, float *restrict out)
{
    for (int64_t i = 0; i < count; i++) out[i] = (float)from[i] * scale + shift;
}

void ht_rows_item(const ht_data *data, const ht_row_set *set, const ht_array *x, int64_t item, float *out)
{
    int64_t count = feature_count(data);
    int64_t channels = data->info.feature_rank > 0 ? data->info.feature[0] : 1, plane = count / channels;
    if (set->scale && x->element == HT_ELEMENT_U8) {
        for (int64_t c = 0; c < channels; c++)
            scale_bytes(x->data + item * count + c * plane, plane, set->scale[c], set->shift[c], out + c * plane);
        return;
    }
    ht_array_floats(x, item * count, count, out);
    if (!set->scale) return;
    for (int64_t c = 0; c < channels; c++)
        for (int64_t i = c * plane; i < (c + 1) * plane; i++) out[i] = out[i] * set->scale[c] + set->shift[c];
}

static void fill_x(const ht_data *data, ht_data_part part, int64_t item, float *out)
{
    const ht_row_set *set = data->own;
    if (item < 0)
        memset(out, 0, (size_t)feature_count(data) * sizeof *out);
    else
        ht_rows_item(data, set, &set->x[part], item, out);
}

/* Rows are scattered in memory: prefetch the next one while this one is converted. */
static void fetch_x(const ht_data *data, ht_data_part part, int64_t item)
{
    const ht_array *x = &((const ht_row_set *)data->own)->x[part];
    size_t bytes = (size_t)feature_count(data) * ht_element_bytes(x->element);
    if (item < 0 || bytes > 4096) return; /* the hardware prefetcher handles a long row by itself */
    for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(x->data + (size_t)item * bytes + at);
}

static ht_status fill(const ht_data *data, ht_context *ctx, ht_data_part part, uint64_t index, ht_batch *batch)
{
    (void)ctx;
    const ht_row_set *set = data->own;
    int64_t count = feature_count(data), width = data->info.classes, next = item_at(data, part, index, 0);
    for (int64_t row = 0; row < data->request.batch; row++) {
        int64_t item = next;
        if (row + 1 < data->request.batch) fetch_x(data, part, next = item_at(data, part, index, row + 1));
        fill_x(data, part, item, (float *)batch->arrays[0].data + row * count);
        batch->rows += item >= 0;
        if (data->request.task == HT_TASK_CLASS) {
            ((int32_t *)batch->arrays[1].data)[row] = item < 0 ? -1 : set->labels[part][item];
            batch->counted += item >= 0 && set->labels[part][item] >= 0;
            continue;
        }
        float *y = (float *)batch->arrays[1].data + row * width;
        for (int64_t i = 0; i < width; i++) {
            y[i] = item < 0 ? NAN : set->y[part][item * width + i];
            batch->counted += !isnan(y[i]);
        }
    }
    return HT_OK;
}

static int64_t counted(const ht_data *data, ht_data_part part, uint64_t index)
{
    const ht_row_set *set = data->own;
    int64_t sum = 0, width = data->info.classes, batch = data->request.batch;
    if (set->all_count[part]) {
        int64_t left = set->counts[part] - (int64_t)(index % (uint64_t)data->info.parts[part].batches) * batch;
        int64_t rows = part == HT_DATA_TRAIN || left > batch ? batch : left;
        return data->request.task == HT_TASK_CLASS ? rows : rows * width;
    }
    for (int64_t row = 0; row < batch; row++) {
        int64_t item = item_at(data, part, index, row);
        if (item < 0) continue;
        if (data->request.task == HT_TASK_CLASS) sum += set->labels[part][item] >= 0;
        for (int64_t i = 0; data->request.task != HT_TASK_CLASS && i < width; i++)
            sum += !isnan(set->y[part][item * width + i]);
    }
    return sum;
}

static void layout(const ht_data *data, int bucket, ht_batch *batch)
{
    (void)bucket;
    int64_t shape[HT_MAX_RANK] = {data->request.batch}, y[2] = {data->request.batch, data->info.classes};
    for (int i = 0; i < data->info.feature_rank; i++) shape[i + 1] = data->info.feature[i];
    ht_batch_add(batch, "x", HT_F32, data->info.feature_rank + 1, shape);
    if (data->request.task == HT_TASK_CLASS)
        ht_batch_add(batch, "label", HT_I32, 1, y);
    else
        ht_batch_add(batch, "y", HT_F32, 2, y);
}

static void show_numbers(const float *numbers, int64_t count, ht_text *text)
{
    for (int64_t i = 0; i < count && i < 8; i++) ht_text_add(text, "%s%.4g", i ? " " : "", (double)numbers[i]);
    if (count > 8) ht_text_add(text, " ... (%" PRId64 " numbers)", count);
}

static void show_row(const ht_data *data, const ht_batch *batch, int64_t row, ht_text *text)
{
    int64_t count = feature_count(data);
    show_numbers((const float *)batch->arrays[0].data + row * count, count, text);
    ht_text_add(text, " -> ");
    if (data->request.task != HT_TASK_CLASS) {
        show_numbers((const float *)batch->arrays[1].data + row * data->info.classes, data->info.classes, text);
        return;
    }
    int32_t label = ((const int32_t *)batch->arrays[1].data)[row];
    const char *name = ht_data_class_name(data, label);
    ht_text_add(text, "%" PRId32 "%s%s%s", label, name ? " (" : "", name ? name : "", name ? ")" : "");
}

static void close_set(ht_data *data)
{
    ht_row_set *set = data->own;
    for (int i = 0; i < set->content_count; i++) ht_content_close(&set->contents[i]);
    for (int i = 0; i < HT_DATA_PARTS; i++) ht_safetensors_free(set->files[i]);
    free(set->block);
    free(set);
}

static const ht_data_kind row_kind = {layout, fill, counted, NULL, show_row, close_set, NULL};

/* ---- making a set ---- */

ht_status ht_rows_create(ht_row_set **out, ht_data *data, ht_context *ctx)
{
    *out = calloc(1, sizeof **out);
    if (!*out) return ht_data_no_memory(ctx, "rows");
    data->own = *out;
    data->kind = &row_kind;
    return HT_OK;
}

static bool all_count(const ht_row_set *set, const ht_data *data, ht_data_part part)
{
    int64_t width = data->info.classes;
    for (int64_t i = 0; i < set->counts[part]; i++) {
        int64_t item = set->items[part] ? set->items[part][i] : i;
        if (data->request.task == HT_TASK_CLASS && set->labels[part][item] < 0) return false;
        for (int64_t k = 0; data->request.task != HT_TASK_CLASS && k < width; k++)
            if (isnan(set->y[part][item * width + k])) return false;
    }
    return true;
}

enum { MOST_MARKED = 1 << 24 };

/* Classes that no item of any part has; -1: it was not counted. */
static int64_t empty_classes(const ht_row_set *set, const ht_data *data)
{
    int64_t classes = data->info.classes, empty = classes;
    bool *seen = classes <= MOST_MARKED ? calloc((size_t)classes + 1, sizeof *seen) : NULL;
    if (!seen) return -1;
    for (int part = 0; part < HT_DATA_PARTS; part++)
        for (int64_t i = 0; i < set->counts[part]; i++) {
            int32_t label = set->labels[part][set->items[part] ? set->items[part][i] : i];
            if (label < 0 || seen[label]) continue;
            seen[label] = true;
            empty--;
        }
    free(seen);
    return empty;
}

/* Labels are numbers and data.classes is not given: a stray one makes as many classes as it says. */
static void tell_gaps(const ht_row_set *set, const ht_data *data, ht_context *ctx)
{
    if (data->request.task != HT_TASK_CLASS || data->class_names) return;
    if (!ht_field_null(data->request.fields, "classes")) return;
    int64_t empty = empty_classes(set, data);
    if (empty > 0)
        ht_note(ctx, HT_LOG_WARN,
                "data: the labels leave gaps: %" PRId64 " of %" PRId64
                " classes have no item; data.classes says how many there are",
                empty, data->info.classes);
}

ht_status ht_rows_finish(ht_row_set *set, ht_data *data, ht_context *ctx)
{
    int64_t batch = data->request.batch, bytes = (int64_t)sizeof(float);
    for (int i = 0; i < data->info.feature_rank; i++)
        if (__builtin_mul_overflow(bytes, data->info.feature[i], &bytes)) bytes = INT64_MAX;
    if (bytes > (INT64_C(1) << 40) / batch)
        HT_FAIL(ctx, HT_ESHAPE, "data: a batch of %" PRId64 " rows of %" PRId64 " bytes is too large", batch, bytes);
    for (int part = 0; part < HT_DATA_PARTS; part++) {
        ht_data_part_info *info = &data->info.parts[part];
        info->items = set->counts[part];
        set->all_count[part] = all_count(set, data, (ht_data_part)part);
        info->batches = ht_data_batches(data, (ht_data_part)part, info->items);
        if (part == HT_DATA_VALIDATION && info->batches)
            info->padding = 1 - (double)info->items / (double)(info->batches * batch);
    }
    if (set->counts[HT_DATA_TRAIN] == 0 && !ht_data_validates_only(data, data->request.fields))
        HT_FAIL(ctx, HT_EINVAL, "data: there is nothing to train on");
    tell_gaps(set, data, ctx);
    return HT_OK;
}

ht_status ht_rows_split(ht_row_set *set, ht_data *data, ht_context *ctx, double share)
{
    if (set->counts[HT_DATA_VALIDATION] > 0 || share <= 0) return HT_OK;
    ht_split split;
    HT_TRY(ht_split_items(&split, data, ctx, set->counts[HT_DATA_TRAIN], share));
    set->x[HT_DATA_VALIDATION] = set->x[HT_DATA_TRAIN];
    set->labels[HT_DATA_VALIDATION] = set->labels[HT_DATA_TRAIN];
    set->y[HT_DATA_VALIDATION] = set->y[HT_DATA_TRAIN];
    for (int part = 0; part < HT_DATA_PARTS; part++) {
        set->items[part] = split.items[part];
        set->counts[part] = split.counts[part];
    }
    return HT_OK;
}

ht_status ht_rows_labels(ht_row_set *set, ht_data *data, ht_context *ctx, ht_data_part part, const char *name,
                         const ht_array *array)
{
    int64_t items = set->x[part].shape[0];
    if (array->count != items || array->rank < 1 || array->shape[0] != items)
        HT_FAIL(ctx, HT_ESHAPE, "%s: %" PRId64 " labels for %" PRId64 " items", name, array->count, items);
    const ht_fields *fields = data->request.fields;
    int64_t most = ht_field_null(fields, "classes") ? 0 : ht_field_int(fields, "classes");
    if (most > data->info.classes) data->info.classes = most;
    set->labels[part] = HT_NEW(data->arena, int32_t, items);
    if (!set->labels[part]) return ht_data_no_memory(ctx, "labels");
    for (int64_t i = 0; i < items; i++) {
        int64_t label;
        if (!ht_array_integer(array, i, &label) || label < -1 || label >= INT32_MAX)
            HT_FAIL(ctx, HT_EINVAL,
                    "%s: the label of item %" PRId64 " is not a whole number from 0 (or -1: does not count)", name, i);
        if (most > 0 && label >= most)
            HT_FAIL(ctx, HT_EINVAL, "%s: the label of item %" PRId64 " is %" PRId64 ", but data.classes is %" PRId64,
                    name, i, label, most);
        set->labels[part][i] = (int32_t)label;
        if (label >= data->info.classes) data->info.classes = label + 1;
    }
    return HT_OK;
}

ht_status ht_rows_finite(const ht_data *data, ht_context *ctx, const char *name, const ht_array *array)
{
    enum { BLOCK = 1024 };
    float numbers[BLOCK];
    const ht_field *allow = ht_fields_find(data->request.fields, "allow_nan");
    ht_dtype dtype = ht_element_dtype(array->element);
    bool whole = dtype != HT_DTYPE_COUNT && !ht_dtype_is_float(dtype);
    if (whole || (allow && allow->value->boolean)) return HT_OK;
    int64_t each = array->rank > 0 && array->shape[0] > 0 ? array->count / array->shape[0] : 1;
    for (int64_t first = 0; first < array->count; first += BLOCK) {
        int64_t count = array->count - first < BLOCK ? array->count - first : BLOCK;
        ht_array_floats(array, first, count, numbers);
        for (int64_t i = 0; i < count; i++)
            if (!isfinite(numbers[i]))
                HT_FAIL(ctx, HT_EINVAL, "%s: number %" PRId64 " of item %" PRId64 " is %g%s", name, (first + i) % each,
                        (first + i) / each, (double)numbers[i], allow ? "; data.allow_nan takes it as it is" : "");
    }
    return HT_OK;
}

ht_status ht_rows_values(ht_row_set *set, ht_data *data, ht_context *ctx, ht_data_part part, const char *name,
                         const ht_array *array)
{
    int64_t items = set->x[part].shape[0];
    if (array->rank < 1 || array->shape[0] != items || items < 1 || array->count < items)
        HT_FAIL(ctx, HT_ESHAPE, "%s: its first size is not the number of items, %" PRId64, name, items);
    int64_t width = array->count / items;
    if (data->info.classes && data->info.classes != width)
        HT_FAIL(ctx, HT_ESHAPE, "%s: %" PRId64 " numbers per item, %" PRId64 " before", name, width,
                data->info.classes);
    data->info.classes = width;
    HT_TRY(ht_rows_finite(data, ctx, name, array));
    set->y[part] = HT_NEW(data->arena, float, array->count);
    if (!set->y[part]) return ht_data_no_memory(ctx, "values");
    ht_array_floats(array, 0, array->count, set->y[part]);
    return HT_OK;
}

ht_status ht_rows_feature(ht_data *data, ht_context *ctx, const char *name, const ht_array *array)
{
    if (array->rank < 1) HT_FAIL(ctx, HT_ESHAPE, "%s: a single number, not items", name);
    int rank = array->rank - 1;
    for (int i = 1; i <= rank; i++)
        if (array->shape[i] < 1) HT_FAIL(ctx, HT_ESHAPE, "%s: its items are empty", name);
    bool first = data->info.feature_rank == 0 && data->info.feature[0] == 0;
    bool same = rank == data->info.feature_rank;
    for (int i = 0; same && i < rank; i++) same = data->info.feature[i] == array->shape[i + 1];
    if (!first && !same) HT_FAIL(ctx, HT_ESHAPE, "%s: its items have another shape than those to train on", name);
    data->info.feature_rank = rank;
    for (int i = 0; i < rank; i++) data->info.feature[i] = array->shape[i + 1];
    return HT_OK;
}

ht_status ht_rows_normalize(ht_row_set *set, ht_data *data, ht_context *ctx, double range)
{
    const ht_fields *fields = data->request.fields;
    int64_t channels = data->info.feature_rank > 0 ? data->info.feature[0] : 1;
    size_t means = ht_field_count(fields, "mean"), deviations = ht_field_count(fields, "std");
    if ((means != 1 && means != (size_t)channels) || (deviations != 1 && deviations != (size_t)channels))
        HT_FAIL(ctx, HT_EINVAL, "data.mean, data.std: %zu and %zu numbers for %" PRId64 " channels", means, deviations,
                channels);
    set->scale = HT_NEW(data->arena, float, channels);
    set->shift = HT_NEW(data->arena, float, channels);
    if (!set->scale || !set->shift) return ht_data_no_memory(ctx, "channels");
    for (int64_t c = 0; c < channels; c++) {
        double mean = ht_field_number_at(fields, "mean", means == 1 ? 0 : (size_t)c);
        double deviation = ht_field_number_at(fields, "std", deviations == 1 ? 0 : (size_t)c);
        set->scale[c] = (float)(1 / (range * deviation));
        set->shift[c] = (float)(-mean / deviation);
    }
    return HT_OK;
}
