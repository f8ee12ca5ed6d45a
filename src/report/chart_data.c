/* The numbers behind a chart, for the page's script. */
#include <math.h>
#include <string.h>

#include "report/page.h"

/* Whole numbers as they are; of others more digits than anybody reads off a chart, and few enough for many points. */
static double rounded(double value)
{
    enum { DIGITS = 6 };
    if (!isfinite(value) || value == round(value)) return value;
    double unit = pow(10, DIGITS - 1 - (int)floor(log10(fabs(value))));
    return isfinite(value * unit) && unit > 0 ? round(value * unit) / unit : value;
}

static void put_numbers(ht_json_writer *json, const char *key, const double *numbers, size_t count)
{
    ht_json_begin_array(json, key);
    for (size_t i = 0; i < count; i++) ht_json_put_number(json, NULL, rounded(numbers[i]));
    ht_json_end_array(json);
}

void ht_chart_data_open(ht_chart_data *data, const char *x_label, const char *y_label)
{
    *data = (ht_chart_data){.json.compact = true};
    data->json.text = &data->text;
    ht_json_begin_object(&data->json, NULL);
    ht_json_put_text(&data->json, "x", x_label ? x_label : "x");
    ht_json_put_text(&data->json, "y", y_label ? y_label : "y");
    ht_json_begin_array(&data->json, "series");
}

void ht_chart_data_series(ht_chart_data *data, const char *name, const char *class, const ht_buckets *b)
{
    ht_json_writer *json = &data->json;
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "name", name);
    ht_json_put_text(json, "class", class);
    put_numbers(json, "x", b->x, b->count);
    put_numbers(json, "y", b->middle, b->count);
    if (b->some) put_numbers(json, "low", b->low, b->count);
    if (b->some) put_numbers(json, "high", b->high, b->count);
    ht_json_end_object(json);
}

void ht_chart_data_marks(ht_chart_data *data, const char *name, const char *class, const ht_roofline_point *points,
                         size_t count)
{
    ht_json_writer *json = &data->json;
    ht_json_begin_object(json, NULL);
    ht_json_put_text(json, "name", name);
    ht_json_put_text(json, "class", class);
    ht_json_begin_array(json, "x");
    for (size_t i = 0; i < count; i++) ht_json_put_number(json, NULL, rounded(points[i].intensity));
    ht_json_end_array(json);
    ht_json_begin_array(json, "y");
    for (size_t i = 0; i < count; i++) ht_json_put_number(json, NULL, rounded(points[i].flops));
    ht_json_end_array(json);
    ht_json_begin_array(json, "marks");
    for (size_t i = 0; i < count; i++) ht_json_put_text(json, NULL, points[i].detail ? points[i].detail : "");
    ht_json_end_array(json);
    ht_json_end_object(json);
}

/* Text of a script ends at "</": JSON has another way to write the first of them. */
static void add_without_markup(ht_text *page, const char *text)
{
    for (size_t length; *text; text += length) {
        length = strcspn(text, "<");
        ht_text_add(page, "%.*s", (int)length, text);
        if (text[length] == '<') ht_text_add(page, "\\u003c"), length++;
    }
}

void ht_chart_data_close(ht_chart_data *data, ht_report *report, double level)
{
    ht_json_end_array(&data->json);
    if (isfinite(level)) ht_json_put_number(&data->json, "level", level);
    ht_json_end_object(&data->json);
    report->scripted = true;
    report->page.failed |= data->text.failed;
    if (!data->text.failed) {
        ht_text_add(&report->page, "<script type=\"application/json\">");
        add_without_markup(&report->page, data->text.data);
        ht_text_add(&report->page, "</script>\n");
    }
    ht_text_free(&data->text);
}
