/* Models that are a stack of equal layers, of which some can go: those that stay move up, with their names in weights and in the
 * job. */
#ifndef HT_COMPRESS_STACK_H
#define HT_COMPRESS_STACK_H

#include "compress/compression.h"

enum { HT_STACK_MOST_LAYERS = 1000, HT_STACK_WRITERS = 2 };

typedef struct ht_stack {
    const char *model, *key; /* the key of the model's block for their number */
    const char *prefix;      /* what stands before the number in names of tensors and modules */
    /* Modules of a layer whose results are added to the stream beside it. Where they are zero, it passes on what it reads. NULL: a
     * norm behind the sum, so no layer does that. */
    const char *writers[HT_STACK_WRITERS];
} ht_stack;

/* Of the run's model; NULL: it is none. */
const ht_stack *ht_stack_of(const ht_compression *c);

typedef struct ht_stack_choice {
    const ht_stack *stack;
    int64_t layers[HT_STACK_MOST_LAYERS]; /* by layer that stays: which one of the model it was; ascending */
    int64_t count, of;
} ht_stack_choice;

/* How many layers the model has now. */
ht_status ht_stack_count(ht_compression *c, const ht_stack *stack, int64_t *count);
/* The layer that a tensor or a module is one of, and what its name has behind the number; -1: none. */
int64_t ht_stack_layer(const ht_stack *stack, const char *name, const char **rest);
/* The model has these layers alone: its key, model.widths and the weights. */
ht_status ht_stack_cut(ht_compression *c, const ht_stack_choice *chosen);

#endif
