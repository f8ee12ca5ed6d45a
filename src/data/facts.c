/* What a data set learned from its training part, beside vocabularies: printed when a run begins, and taken back where
 * only the validation part is read. */
#include <string.h>

#include "data/dataset.h"

/* ---- printing ---- */

static void put_names(ht_json_writer *json, const ht_data *data)
{
    ht_json_begin_array(json, "class_names");
    for (int64_t i = 0; data->class_names && i < data->named_classes; i++)
        ht_json_put_text(json, NULL, ht_data_class_name(data, i));
    ht_json_end_array(json);
}

static void put_numbers(ht_json_writer *json, const char *key, const double *numbers, size_t count)
{
    ht_json_begin_array(json, key);
    for (size_t i = 0; i < count; i++) ht_json_put_number(json, NULL, numbers[i]);
    ht_json_end_array(json);
}

void ht_data_print_facts(const ht_data *data, ht_text *text)
{
    const ht_data_info *info = &data->info;
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    ht_json_put_int(&json, "vocabulary", info->vocabulary);
    ht_json_put_int(&json, "classes", info->classes);
    ht_json_begin_array(&json, "feature");
    for (int i = 0; i < info->feature_rank; i++) ht_json_put_int(&json, NULL, info->feature[i]);
    ht_json_end_array(&json);
    ht_json_begin_array(&json, "buckets");
    for (int i = 0; i < info->bucket_count; i++) {
        ht_json_begin_array(&json, NULL);
        ht_json_put_int(&json, NULL, info->buckets[i].length);
        ht_json_put_int(&json, NULL, info->buckets[i].source_length);
        ht_json_end_array(&json);
    }
    ht_json_end_array(&json);
    put_names(&json, data);
    ht_json_put_number(&json, "range", data->range);
    put_numbers(&json, "means", data->means, data->mean_count);
    put_numbers(&json, "deviations", data->deviations, data->mean_count);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}

/* ---- taking ---- */

static int64_t whole_number(const ht_json *value)
{
    int64_t number;
    return value && ht_json_as_int(value, &number) && number >= 0 ? number : 0;
}

static const ht_json *array_of(const ht_data *data, const char *key)
{
    const ht_json *value = ht_json_get(data->request.facts, key);
    return value && value->kind == HT_JSON_ARRAY && value->count > 0 ? value : NULL;
}

static ht_status take_names(ht_data *data, ht_context *ctx)
{
    const ht_json *names = array_of(data, "class_names");
    size_t count = 0;
    if (!names) return HT_OK;
    const char **list = HT_NEW(data->arena, const char *, names->count);
    if (!list) return ht_data_no_memory(ctx, "classes");
    for (const ht_json *name = names->child; name; name = name->next) {
        const char *text = name->kind == HT_JSON_STRING ? name->text : "";
        if (!(list[count++] = ht_arena_text(data->arena, text, strlen(text)))) return ht_data_no_memory(ctx, "classes");
    }
    data->class_names = list;
    data->named_classes = (int64_t)count;
    return HT_OK;
}

static double *take_numbers(ht_data *data, const char *key)
{
    const ht_json *numbers = array_of(data, key);
    if (!numbers || (data->mean_count > 0 && numbers->count != data->mean_count)) return NULL;
    double *list = HT_NEW(data->arena, double, numbers->count);
    size_t count = 0;
    for (const ht_json *number = numbers->child; list && number; number = number->next, count++)
        if (!ht_json_as_number(number, &list[count])) list[count] = 0;
    data->mean_count = count;
    return list;
}

static void take_shapes(ht_data *data)
{
    ht_data_info *info = &data->info;
    const ht_json *feature = array_of(data, "feature"), *buckets = array_of(data, "buckets");
    for (const ht_json *size = feature ? feature->child : NULL; size && info->feature_rank < HT_MAX_RANK - 1;
         size = size->next)
        info->feature[info->feature_rank++] = whole_number(size);
    for (const ht_json *bucket = buckets ? buckets->child : NULL;
         bucket && bucket->child && data->known_buckets < HT_DATA_MOST_BUCKETS; bucket = bucket->next)
        info->buckets[data->known_buckets++] =
            (ht_data_bucket){whole_number(bucket->child), whole_number(bucket->child->next)};
}

bool ht_data_validates_only(const ht_data *data, const ht_fields *fields)
{
    if (!data->request.facts || data->request.facts_only) return data->request.facts_only;
    return ht_fields_find(fields, "validation") && !ht_field_null(fields, "validation");
}

int64_t ht_facts_vocabulary(const ht_data *data)
{
    return whole_number(ht_json_get(data->request.facts, "vocabulary"));
}

ht_status ht_facts_take(ht_data *data, ht_context *ctx)
{
    if (!ht_data_validates_only(data, data->request.fields)) return HT_OK;
    HT_TRY(take_names(data, ctx));
    data->info.classes = whole_number(ht_json_get(data->request.facts, "classes"));
    const ht_json *range = ht_json_get(data->request.facts, "range");
    if (!range || !ht_json_as_number(range, &data->range)) data->range = 0;
    data->means = take_numbers(data, "means");
    data->deviations = take_numbers(data, "deviations");
    if (!data->means || !data->deviations) data->mean_count = 0;
    take_shapes(data);
    return HT_OK;
}
