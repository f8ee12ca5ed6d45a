/* What the files of the pass zero share. */
#ifndef HT_PASS_ZERO_H
#define HT_PASS_ZERO_H

#include "op/collective.h"
#include "pass/pass.h"

typedef struct ht_zero {
    ht_graph *g;
    const ht_zero_options *options;
    ht_group ranks; /* that share a batch */
} ht_zero;

/* "micro_first", "micro", and those of further shapes, "micro:2". */
bool ht_is_micro(const ht_segment *s);
bool ht_is_micro_first(const ht_segment *s);

/* A view of elements of a flat state, made once: "flat.grad.f32.bucket3". It is never saved. */
ht_val ht_zero_view(ht_graph *g, ht_val flat, const char *what, int64_t index, int64_t first, int64_t count);

#endif
