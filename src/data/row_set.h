/* Sets of rows: classification and regression over arrays in memory. */
#ifndef HT_DATA_ROW_SET_H
#define HT_DATA_ROW_SET_H

#include "data/dataset.h"

typedef struct ht_row_set {
    ht_array x[HT_DATA_PARTS];      /* [items, feature..] */
    int32_t *labels[HT_DATA_PARTS]; /* of CLASS, by item */
    float *y[HT_DATA_PARTS];        /* of REGRESSION, info.classes each */
    int64_t *items[HT_DATA_PARTS];  /* the items of the part; NULL: all in order */
    int64_t counts[HT_DATA_PARTS];
    bool all_count[HT_DATA_PARTS]; /* no label of the part is -1, no value NaN */
    float *scale, *shift;          /* NULL, or by channel (the first size of the feature): x * scale + shift */
    ht_content contents[4];
    int content_count;
    ht_safetensors *files[HT_DATA_PARTS];
    void *block; /* freed with the set */
} ht_row_set;

ht_status ht_rows_create(ht_row_set **out, ht_data *data, ht_context *ctx);
/* Finishes the set, after arrays, labels, items, counts, info.classes and info.feature are filled in. */
ht_status ht_rows_finish(ht_row_set *set, ht_data *data, ht_context *ctx);

/* An item of an array as floats, by the scale and shift of the set. */
void ht_rows_item(const ht_data *data, const ht_row_set *set, const ht_array *x, int64_t item, float *out);
/* A number of a column with this mean and deviation; of a constant column 0. */
static inline float ht_rows_normalized(float x, double mean, double deviation)
{
    return (float)((x - mean) / (deviation > 0 ? deviation : 1));
}
/* Holds out a share of the training items where validation has none of its own. */
ht_status ht_rows_split(ht_row_set *set, ht_data *data, ht_context *ctx, double share);
/* Refuses NaN and inf in an array of floats, unless data.allow_nan says otherwise. */
ht_status ht_rows_finite(const ht_data *data, ht_context *ctx, const char *name, const ht_array *array);
/* Integers from an array of one number per item. Classes are as many as data.classes says, which no label may reach;
 * without it they are raised to the largest label plus 1. */
ht_status ht_rows_labels(ht_row_set *set, ht_data *data, ht_context *ctx, ht_data_part part, const char *name,
                         const ht_array *array);
/* Floats from an array; all parts have the same number per item. */
ht_status ht_rows_values(ht_row_set *set, ht_data *data, ht_context *ctx, ht_data_part part, const char *name,
                         const ht_array *array);
/* The feature shape from the array's sizes behind the first; both parts have to agree. */
ht_status ht_rows_feature(ht_data *data, ht_context *ctx, const char *name, const ht_array *array);
/* A channel's numbers become (x / range - mean) / deviation; `mean` and `std` are keys of the block, of one number or one
 * per channel. */
ht_status ht_rows_normalize(ht_row_set *set, ht_data *data, ht_context *ctx, double range);

#define HT_CHANNEL_KEYS                                                                                                \
    {"mean", HT_KEY_NUMBERS, "0", 0, 0, NULL, "taken off each channel, once values are between 0 and 1"},              \
    {                                                                                                                  \
        "std", HT_KEY_NUMBERS, "1", 1e-9, 1e9, NULL, "what each channel is then divided by"                            \
    }

#endif
