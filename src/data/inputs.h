/* Internal: how formats add the items of a file to the inputs of a prediction. */
#ifndef HT_DATA_INPUTS_H
#define HT_DATA_INPUTS_H

#include "data/row_set.h"
#include "data/vocabulary.h"

typedef struct ht_input_item {
    char *name;
    int64_t first;  /* of its tokens */
    int64_t length; /* in tokens; of numbers 0 */
} ht_input_item;

struct ht_inputs {
    ht_data *data;
    ht_context *ctx;
    int64_t width; /* numbers of an item; 0: items are sentences */
    ht_input_item *items;
    size_t count, capacity;
    float *x;
    size_t x_capacity;
    ht_ids ids;
    int64_t longest;     /* tokens of an item, so far */
    ht_row_set channels; /* its scale and shift alone, once they are known */
};

/* An item of an array of raw numbers, preprocessed. Its name is that of the file and what `place` says. */
ht_status ht_inputs_add_item(ht_inputs *inputs, const ht_array *array, int64_t item, const char *file,
                             const char *place, ...) __attribute__((format(printf, 5, 6)));

/* Arrays (npy, IDX, safetensors), images or rows of CSV, whatever the bytes are. `range`: what pixels were divided by;
 * 0: the run knows no pixels, and numbers are taken as they are. */
ht_status ht_inputs_add_numbers(ht_inputs *inputs, const char *file, const ht_content *content, double range);
/* Rows of CSV, by the keys of the format `table` where the run has them. */
ht_status ht_inputs_add_table(ht_inputs *inputs, const char *file, const ht_content *content);

/* What of a line is the sentence. */
typedef struct ht_line_rule {
    const ht_vocabulary *vocabulary;
    bool second;  /* of a line with a tab the side behind it; else the one before */
    bool columns; /* a second tab ends that side */
    bool begins;  /* with bos */
    bool cut;     /* longer ones are cut; else they are refused */
    int64_t most; /* tokens, bos counted */
} ht_line_rule;

/* Each line is an item; an empty one, too, so that answers stay beside their questions. */
ht_status ht_inputs_add_lines(ht_inputs *inputs, const char *file, const ht_content *content, const ht_line_rule *rule);

#endif
