/* What the CUDA rows of attention and attention_grad share: the sizes of a call, and its words in a text. */
#ifndef HT_KERNEL_ATTENTION_CUDA_H
#define HT_KERNEL_ATTENTION_CUDA_H

#include "kernel/cuda/cuda.h"

typedef struct ht_cuda_attention {
    int64_t batch, heads, groups, queries, keys, width, value_width;
    int64_t real_bytes;
    const char *lengths, *document; /* in the text */
    char shape[256];                /* attention_shape */
    ht_cuda_number scale;
} ht_cuda_attention;

/* rows_at of an operand. */
typedef struct ht_cuda_rows {
    char text[96];
} ht_cuda_rows;

/* Sizes alone. */
ht_cuda_attention ht_cuda_attention_sizes(const ht_call *call);
/* With the words, for tiles of so many rows. */
ht_cuda_attention ht_cuda_attention_of(const ht_call *call, bool backward, int tile);
ht_cuda_rows ht_cuda_rows_of(const ht_type *type);
/* The first grid of a gradient: delta, which goes where `to` points. */
void ht_cuda_attention_delta(ht_cuda_emission *e, const ht_launch *launch, const ht_cuda_attention *a, const char *to);
/* Bytes of delta. */
int64_t ht_cuda_attention_grad_workspace(const ht_call *call, const ht_target *target);
/* Why no row here takes a call; NULL: some do. */
const char *ht_cuda_attention_refuse(const ht_call *call, bool backward);

#endif
