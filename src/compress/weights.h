/* The weights of a run in memory, to be changed. */
#ifndef HT_COMPRESS_WEIGHTS_H
#define HT_COMPRESS_WEIGHTS_H

#include "format/format.h"

typedef struct ht_weight {
    char *name;
    ht_array array; /* array.data is `data` */
    uint8_t *data;
} ht_weight;

typedef struct ht_weights {
    ht_weight *items;
    size_t count;
} ht_weights;

/* Of the newest complete snapshot of a run; a number that is not finite is refused. ht_weights_free after a failure, too. */
ht_status ht_weights_read(ht_weights *out, ht_context *ctx, const char *run);
ht_status ht_weights_write(const ht_weights *weights, ht_context *ctx, const char *path);
void ht_weights_free(ht_weights *weights);
void ht_weight_free(ht_weight *weight);

/* A single number, which replaces one of that name. */
ht_status ht_weights_put_number(ht_weights *weights, ht_context *ctx, const char *name, ht_element element,
                                double number);
/* NULL: there is none of that name. */
ht_weight *ht_weights_find(const ht_weights *weights, const char *name);
/* By tensor: does its name match, and has it at least `rank` axes? None at all is a failure, which `key` begins. */
ht_status ht_weights_match(const ht_weights *weights, ht_context *ctx, const char *key, const char *expression,
                           int rank, bool *matches);

double ht_weight_get(const ht_weight *weight, int64_t index);
void ht_weight_clear(ht_weight *weight, int64_t index);
int64_t ht_weight_zeros(const ht_weight *weight);

/* A tensor as a matrix: its first axis, and all others. */
int64_t ht_weight_rows(const ht_weight *weight);
int64_t ht_weight_columns(const ht_weight *weight);

#endif
