/* The format `table`: a row is an item, one column its label, the others its features. Names of classes, and mean and
 * standard deviation of each feature, come from the training rows. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "data/inputs.h"
#include "data/order.h"

static const ht_key table_keys[] = {
    HT_DATA_PATH_KEYS("false"),
    {"header", HT_KEY_CHOICE, "\"auto\"", 0, 0, "auto|yes|no",
     "does the first row hold names? auto: if it has no number"},
    {"delimiter", HT_KEY_TEXT, "null", 0, 0, NULL, "between cells; comma, semicolon or tab is found unless given"},
    {"label", HT_KEY_JSON, "null", 0, 0, NULL, "name or number (from 0) of the label's column; the last unless given"},
    {"features", HT_KEY_JSON, "null", 0, 0, NULL, "list of names or numbers of columns; all others unless given"},
    {"normalize", HT_KEY_BOOL, "true", 0, 0, NULL, "features to mean 0 and deviation 1 over the rows to train on"},
    {"shape", HT_KEY_INTS, "null", 1, 1 << 24, NULL, "of the features, such as [1, 8, 8]; a flat row unless given"},
    {"validation_share", HT_KEY_NUMBER, "0.1", 0, 0.9, NULL, "rows that are held out when there are no others"},
    HT_DATA_CLASSES_KEY,
    HT_DATA_NAN_KEY,
    {.name = NULL},
};

typedef struct table {
    ht_data *data;
    ht_context *ctx;
    const char *name; /* of the file at hand */
    size_t columns, label;
    size_t *features;
    size_t feature_count;
    char delimiter;
    bool allow_nan, predicts;
    float *x; /* of all rows, both parts one behind the other */
    size_t x_count, x_capacity;
    struct table_label {
        const char *text, *path; /* as it stands there, and where */
        int64_t line;
    } * labels;
    size_t rows, label_capacity;
    int64_t first[HT_DATA_PARTS + 1];
} table;

/* ---- columns ---- */

static ht_status find_column(const table *t, const ht_csv *csv, bool header, const ht_json *wanted, const char *key,
                             size_t *out)
{
    int64_t number;
    if (ht_json_as_int(wanted, &number)) {
        if (number < 0) number += (int64_t)csv->columns;
        if (number < 0 || (size_t)number >= csv->columns)
            HT_FAIL(t->ctx, HT_EINVAL, "data.%s: there is no column %" PRId64 " in %s, it has %zu", key, number,
                    t->name, csv->columns);
        *out = (size_t)number;
        return HT_OK;
    }
    if (wanted->kind != HT_JSON_STRING)
        HT_FAIL(t->ctx, HT_EINVAL, "data.%s: a column is a name or a number, not %s", key,
                ht_json_kind_name(wanted->kind));
    if (!header)
        HT_FAIL(t->ctx, HT_EINVAL, "data.%s: %s has no names of columns for \"%s\"", key, t->name, wanted->text);
    for (*out = 0; *out < csv->columns; ++*out)
        if (strcmp(csv->cells[*out], wanted->text) == 0) return HT_OK;
    HT_FAIL(t->ctx, HT_EINVAL, "data.%s: %s has no column \"%s\"", key, t->name, wanted->text);
}

/* From the first row of the first file. */
static ht_status choose_columns(table *t, const ht_csv *csv, bool header)
{
    const ht_fields *fields = t->data->request.fields;
    const ht_json *label = ht_field_json(fields, "label"), *features = ht_field_json(fields, "features");
    t->columns = csv->columns;
    t->label = csv->columns - 1;
    if (label) HT_TRY(find_column(t, csv, header, label, "label", &t->label));
    t->features = HT_NEW(t->data->arena, size_t, csv->columns + (features ? features->count : 0));
    if (!t->features) return ht_data_no_memory(t->ctx, "columns");
    if (features && features->kind != HT_JSON_ARRAY)
        HT_FAIL(t->ctx, HT_EINVAL, "data.features: must be a list of columns");
    for (const ht_json *column = features ? features->child : NULL; column; column = column->next)
        HT_TRY(find_column(t, csv, header, column, "features", &t->features[t->feature_count++]));
    for (size_t i = 0; !features && i < csv->columns; i++)
        if (i != t->label) t->features[t->feature_count++] = i;
    for (size_t i = 0; i < t->feature_count; i++)
        if (t->features[i] == t->label) HT_FAIL(t->ctx, HT_EINVAL, "data.features: the label's column is among them");
    if (t->feature_count == 0) HT_FAIL(t->ctx, HT_EINVAL, "%s: no column is left for features", t->name);
    return HT_OK;
}

/* ---- rows ---- */

static ht_status read_features(const table *t, const ht_csv *csv, float *out)
{
    for (size_t i = 0; i < t->feature_count; i++) {
        const char *cell = csv->cells[t->features[i]];
        double number;
        if (!ht_number_read(cell, &number) || (isfinite(number) ? fabs(number) > 1e38 : !t->allow_nan))
            HT_FAIL(t->ctx, HT_EPARSE, "%s:%" PRId64 ": column %zu holds '%.40s', not a number%s", t->name, csv->line,
                    t->features[i], cell, t->predicts ? "" : "; leave it out of \"features\"");
        out[i] = (float)number;
    }
    return HT_OK;
}

static ht_status take_row(table *t, const ht_csv *csv)
{
    if (csv->columns != t->columns)
        HT_FAIL(t->ctx, HT_EPARSE, "%s: %zu columns, the first file has %zu", t->name, csv->columns, t->columns);
    if (!ht_grow((void **)&t->x, &t->x_capacity, t->x_count + t->feature_count, sizeof *t->x) ||
        !ht_grow((void **)&t->labels, &t->label_capacity, t->rows + 1, sizeof *t->labels))
        return ht_data_no_memory(t->ctx, "the table");
    HT_TRY(read_features(t, csv, t->x + t->x_count));
    t->x_count += t->feature_count;
    const char *label = csv->cells[t->label];
    const char *text = ht_arena_text(t->data->arena, label, strlen(label));
    if (!text) return ht_data_no_memory(t->ctx, "labels");
    t->labels[t->rows++] = (struct table_label){text, t->name, csv->line};
    return HT_OK;
}

static ht_status has_header(const table *t, const ht_content *content, bool *out)
{
    const ht_field *said = ht_fields_find(t->data->request.fields, "header"); /* other formats have no such key */
    *out = said && strcmp(said->value->text, "yes") == 0;
    if (said && strcmp(said->value->text, "auto") != 0) return HT_OK;
    return ht_csv_has_header(out, t->ctx, t->name, (const char *)content->data, content->length, t->delimiter);
}

static ht_status read_rows(table *t, ht_csv *csv, bool header)
{
    for (bool first = true, more = true;; first = false) {
        HT_TRY(ht_csv_next(csv, &more));
        if (!more) return HT_OK;
        if (first && !t->features) HT_TRY(choose_columns(t, csv, header));
        if (!first || !header) HT_TRY(take_row(t, csv));
    }
}

static ht_status read_file(table *t, const char *path)
{
    ht_content content;
    bool header;
    t->name = ht_arena_text(t->data->arena, path, strlen(path)); /* labels keep it */
    if (!t->name) return ht_data_no_memory(t->ctx, "files");
    HT_TRY(ht_data_content(&content, t->data, t->ctx, path));
    ht_status status = has_header(t, &content, &header);
    if (status == HT_OK) {
        ht_csv csv;
        ht_csv_open(&csv, t->ctx, path, (const char *)content.data, content.length, t->delimiter);
        status = read_rows(t, &csv, header);
        ht_csv_close(&csv);
    }
    ht_content_close(&content);
    return status;
}

static ht_status read_part(table *t, ht_data_part part)
{
    static const char *const keys[HT_DATA_PARTS] = {"train", "validation"};
    ht_paths paths;
    HT_TRY(ht_paths_find(&paths, t->data, t->ctx, t->data->request.fields, keys[part]));
    ht_status status = HT_OK;
    for (size_t i = 0; i < paths.count && status == HT_OK; i++) status = read_file(t, paths.list[i]);
    ht_paths_free(&paths);
    t->first[part + 1] = (int64_t)t->rows;
    return status;
}

/* ---- labels ---- */

/* Numbers by size and before other texts, those by bytes. */
static int by_label(const void *left, const void *right)
{
    const char *a = *(const char *const *)left, *b = *(const char *const *)right;
    double x, y;
    bool number = ht_number_read(a, &x) && !isnan(x), other = ht_number_read(b, &y) && !isnan(y);
    if (number != other) return number ? -1 : 1;
    if (number && x != y) return x < y ? -1 : 1;
    return strcmp(a, b);
}

static ht_status name_classes(const table *t, const ht_row_set *set)
{
    int64_t count = set->counts[HT_DATA_TRAIN], classes = 0;
    if (t->data->class_names) return HT_OK; /* as facts have them */
    const char **names = HT_NEW(t->data->arena, const char *, count);
    if (!names) return ht_data_no_memory(t->ctx, "classes");
    for (int64_t i = 0; i < count; i++)
        names[i] = t->labels[set->items[HT_DATA_TRAIN] ? set->items[HT_DATA_TRAIN][i] : i].text;
    qsort(names, (size_t)count, sizeof *names, by_label);
    for (int64_t i = 0; i < count; i++)
        if (i == 0 || strcmp(names[i], names[classes - 1]) != 0) names[classes++] = names[i];
    return ht_data_name_classes(t->data, t->ctx, names, classes);
}

static ht_status number_labels(const table *t, ht_row_set *set)
{
    HT_TRY(name_classes(t, set));
    int32_t *labels = HT_NEW(t->data->arena, int32_t, t->rows);
    if (!labels) return ht_data_no_memory(t->ctx, "labels");
    for (size_t i = 0; i < t->rows; i++) {
        const char *const *found =
            bsearch(&t->labels[i].text, t->data->class_names, (size_t)t->data->named_classes, sizeof *found, by_label);
        if (!found)
            HT_FAIL(t->ctx, HT_EINVAL, "%s:%" PRId64 ": class '%.60s' does not occur among the rows to train on",
                    t->labels[i].path, t->labels[i].line, t->labels[i].text);
        labels[i] = (int32_t)(found - t->data->class_names);
    }
    for (int part = 0; part < HT_DATA_PARTS; part++) set->labels[part] = labels;
    return HT_OK;
}

static ht_status number_values(const table *t, ht_row_set *set)
{
    float *y = HT_NEW(t->data->arena, float, t->rows);
    if (!y) return ht_data_no_memory(t->ctx, "values");
    for (size_t i = 0; i < t->rows; i++) {
        double number;
        if (!ht_number_read(t->labels[i].text, &number) || (!isfinite(number) && !t->allow_nan))
            HT_FAIL(t->ctx, HT_EINVAL, "%s:%" PRId64 ": the label '%.60s' is not a number", t->labels[i].path,
                    t->labels[i].line, t->labels[i].text);
        y[i] = (float)number;
    }
    t->data->info.classes = 1;
    for (int part = 0; part < HT_DATA_PARTS; part++) set->y[part] = y;
    return HT_OK;
}

/* ---- features ---- */

/* Over the rows to train on; numbers that are not finite (data.allow_nan) count nowhere. */
static void measure_column(const table *t, const ht_row_set *set, int64_t column)
{
    int64_t count = set->counts[HT_DATA_TRAIN], width = (int64_t)t->feature_count, known = 0;
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t item = set->items[HT_DATA_TRAIN] ? set->items[HT_DATA_TRAIN][i] : i;
        float x = t->x[item * width + column];
        if (!isfinite(x)) continue;
        sum += x;
        known++;
    }
    double mean = known > 0 ? sum / (double)known : 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t item = set->items[HT_DATA_TRAIN] ? set->items[HT_DATA_TRAIN][i] : i;
        double away = t->x[item * width + column] - mean;
        if (isfinite(away)) squares += away * away;
    }
    t->data->means[column] = mean;
    t->data->deviations[column] = known > 0 ? sqrt(squares / (double)known) : 0;
}

/* By the rows to train on, or by what facts say of them. */
static ht_status normalize(const table *t, const ht_row_set *set)
{
    ht_data *data = t->data;
    int64_t width = (int64_t)t->feature_count;
    bool known = data->means != NULL;
    if (known && data->mean_count != t->feature_count)
        HT_FAIL(t->ctx, HT_ESHAPE, "data: the table has %zu features, the one that was trained on had %zu",
                t->feature_count, data->mean_count);
    if (!known) {
        data->means = HT_NEW(data->arena, double, t->feature_count);
        data->deviations = HT_NEW(data->arena, double, t->feature_count);
        data->mean_count = t->feature_count;
        if (!data->means || !data->deviations) return ht_data_no_memory(t->ctx, "columns");
    }
    for (int64_t column = 0; column < width; column++) {
        if (!known) measure_column(t, set, column);
        double mean = data->means[column], deviation = data->deviations[column];
        for (size_t i = 0; i < t->rows; i++) {
            float *x = &t->x[(int64_t)i * width + column];
            *x = ht_rows_normalized(*x, mean, deviation);
        }
    }
    return HT_OK;
}

static ht_status shape_features(const table *t)
{
    ht_data_info *info = &t->data->info;
    const ht_fields *fields = t->data->request.fields;
    size_t rank = ht_field_count(fields, "shape");
    if (rank > HT_MAX_RANK - 1) HT_FAIL(t->ctx, HT_ESHAPE, "data.shape: more than %d sizes", HT_MAX_RANK - 1);
    info->feature_rank = rank ? (int)rank : 1;
    info->feature[0] = (int64_t)t->feature_count;
    int64_t product = 1;
    for (size_t i = 0; i < rank; i++) {
        info->feature[i] = ht_field_int_at(fields, "shape", i);
        if (__builtin_mul_overflow(product, info->feature[i], &product)) product = INT64_MAX;
    }
    if (rank && product != (int64_t)t->feature_count)
        HT_FAIL(t->ctx, HT_ESHAPE, "data.shape: %" PRId64 " numbers, the table has %zu features", product,
                t->feature_count);
    return HT_OK;
}

/* Rows of files for validation lie behind those to train on: the part's items are then their numbers. */
static ht_status split_rows(const table *t, ht_row_set *set)
{
    set->counts[HT_DATA_TRAIN] = t->first[1];
    set->counts[HT_DATA_VALIDATION] = t->first[2] - t->first[1];
    if (set->counts[HT_DATA_VALIDATION] == 0)
        return ht_rows_split(set, t->data, t->ctx, ht_field_number(t->data->request.fields, "validation_share"));
    set->items[HT_DATA_VALIDATION] = HT_NEW(t->data->arena, int64_t, set->counts[HT_DATA_VALIDATION]);
    if (!set->items[HT_DATA_VALIDATION]) return ht_data_no_memory(t->ctx, "the split");
    for (int64_t i = 0; i < set->counts[HT_DATA_VALIDATION]; i++) set->items[HT_DATA_VALIDATION][i] = t->first[1] + i;
    return HT_OK;
}

static ht_status fill_set(table *t, ht_row_set *set)
{
    bool trains = !ht_data_validates_only(t->data, t->data->request.fields);
    if (t->first[1] == 0 && trains) HT_FAIL(t->ctx, HT_EINVAL, "data: the table has no rows to train on");
    HT_TRY(shape_features(t));
    HT_TRY(split_rows(t, set));
    if (set->counts[HT_DATA_TRAIN] == 0 && trains)
        HT_FAIL(t->ctx, HT_EINVAL, "data: the table has no rows to train on");
    if (t->data->request.task == HT_TASK_CLASS)
        HT_TRY(number_labels(t, set));
    else
        HT_TRY(number_values(t, set));
    if (ht_field_bool(t->data->request.fields, "normalize")) HT_TRY(normalize(t, set));
    ht_array x = {.element = HT_ELEMENT_F32, .rank = 2, .shape = {(int64_t)t->rows, (int64_t)t->feature_count}};
    ht_array_measure(&x);
    x.data = (const uint8_t *)t->x;
    for (int part = 0; part < HT_DATA_PARTS; part++) set->x[part] = x;
    return ht_rows_finish(set, t->data, t->ctx);
}

/* Formats other than tables have no such key. */
static const ht_json *json_key(const table *t, const char *key)
{
    const ht_field *field = ht_fields_find(t->data->request.fields, key);
    return field && field->value->kind != HT_JSON_NULL ? field->value : NULL;
}

static ht_status find_delimiter(table *t)
{
    const ht_json *given = json_key(t, "delimiter");
    if (given && (given->length != 1 || strchr("\"\r\n", given->text[0])))
        HT_FAIL(t->ctx, HT_EINVAL, "data.delimiter: must be one character");
    t->delimiter = given ? given->text[0] : '\0';
    return HT_OK;
}

static ht_status open_table(ht_data *data, ht_context *ctx)
{
    ht_row_set *set;
    HT_TRY(ht_rows_create(&set, data, ctx));
    table t = {.data = data, .ctx = ctx};
    HT_TRY(find_delimiter(&t));
    t.allow_nan = ht_field_bool(data->request.fields, "allow_nan");
    ht_status status = read_part(&t, HT_DATA_TRAIN);
    if (status == HT_OK) status = read_part(&t, HT_DATA_VALIDATION);
    set->block = t.x;
    if (status == HT_OK) status = fill_set(&t, set);
    free(t.labels);
    return status;
}

/* ---- rows to predict on ---- */

/* Columns that data.features names; else all, the label's left out where there is one more than was trained on. */
static ht_status choose_input_columns(table *t, const ht_csv *csv, bool header, size_t width)
{
    const ht_json *label = json_key(t, "label"), *features = json_key(t, "features");
    size_t left_out = csv->columns;
    t->columns = csv->columns;
    if (!features && csv->columns != width && csv->columns != width + 1)
        HT_FAIL(t->ctx, HT_ESHAPE,
                "%s: %zu columns; the run was trained on %zu numbers, and a label may stand beside them", t->name,
                csv->columns, width);
    if (csv->columns == width + 1) left_out = width;
    if (!features && csv->columns == width + 1 && label) HT_TRY(find_column(t, csv, header, label, "label", &left_out));
    if (features && (features->kind != HT_JSON_ARRAY || features->count != width))
        HT_FAIL(t->ctx, HT_EINVAL, "data.features: must be a list of the %zu columns that were trained on", width);
    for (const ht_json *column = features ? features->child : NULL; column; column = column->next)
        HT_TRY(find_column(t, csv, header, column, "features", &t->features[t->feature_count++]));
    for (size_t i = 0; !features && i < csv->columns; i++)
        if (i != left_out) t->features[t->feature_count++] = i;
    return HT_OK;
}

static ht_status read_input_rows(table *t, ht_csv *csv, bool header, ht_inputs *inputs)
{
    ht_array row = {.element = HT_ELEMENT_F32, .rank = 1, .shape = {inputs->width}, .data = (const uint8_t *)t->x};
    ht_array_measure(&row);
    for (bool first = true, more = true;; first = false) {
        HT_TRY(ht_csv_next(csv, &more));
        if (!more) return HT_OK;
        if (first) HT_TRY(choose_input_columns(t, csv, header, (size_t)inputs->width));
        if (first && header) continue;
        HT_TRY(read_features(t, csv, t->x));
        HT_TRY(ht_inputs_add_item(inputs, &row, 0, t->name, ":%" PRId64, csv->line));
    }
}

ht_status ht_inputs_add_table(ht_inputs *inputs, const char *file, const ht_content *content)
{
    table t = {.data = inputs->data, .ctx = inputs->ctx, .name = file, .predicts = true};
    const ht_json *allow_nan = json_key(&t, "allow_nan");
    bool header;
    HT_TRY(find_delimiter(&t));
    t.allow_nan = allow_nan && allow_nan->boolean;
    t.features = HT_NEW(t.data->arena, size_t, inputs->width + 1);
    t.x = HT_NEW(t.data->arena, float, inputs->width);
    if (!t.features || !t.x) return ht_data_no_memory(t.ctx, "columns");
    HT_TRY(has_header(&t, content, &header));
    ht_csv csv;
    ht_csv_open(&csv, t.ctx, file, (const char *)content->data, content->length, t.delimiter);
    ht_status status = read_input_rows(&t, &csv, header, inputs);
    ht_csv_close(&csv);
    return status;
}

static ht_status read_inputs(ht_inputs *inputs, const char *file, const ht_content *content)
{
    return ht_inputs_add_numbers(inputs, file, content, 0);
}

const ht_data_format ht_data_format_table = {"table",    "CSV: a row is an item, columns are its label and features",
                                             table_keys, 1u << HT_TASK_CLASS | 1u << HT_TASK_REGRESSION,
                                             open_table, read_inputs};
