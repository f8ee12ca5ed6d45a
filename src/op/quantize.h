/* How tensors are scaled for f8: shared by the ops quantize and amax_step and their kernels. */
#ifndef HT_OP_QUANTIZE_H
#define HT_OP_QUANTIZE_H

#include "graph/graph.h"

bool ht_dtype_is_f8(ht_dtype dtype);
/* What a tensor whose largest magnitude is amax is divided by: the smallest power of two that brings amax into the
 * range of the f8 type. 0 where amax tells nothing: for 0, inf and NaN. */
float ht_scale_of_amax(ht_dtype f8, float amax);
/* Is it a scale that was found before? A power of two has an exact inverse in this range. */
bool ht_scale_is_known(float scale);
/* The code of x * inverse: to nearest even, the largest number of the type for finite values beyond it. What is not
 * finite becomes NaN, so that an overflow reaches the update's check. */
uint8_t ht_quantize_one(ht_dtype f8, float x, float inverse);
/* The larger magnitude, or NaN if either is. */
float ht_amax_of(float amax, float x);

/* The rule of a call of amax_step. */
typedef struct ht_amax_rule {
    ht_dtype f8;
    int margin;      /* the scale is so many powers of two above what the history asks for */
    int64_t history; /* steps */
} ht_amax_rule;
ht_amax_rule ht_amax_rule_of(const ht_call *call);
/* A tensor's next history and scale, given the largest magnitude of the step at hand: it enters the history as the first,
 * the others move on and the last is dropped; the scale is that of the largest, with the margin. Where it tells nothing
 * both stay. `next` may not overlap `history`. */
float ht_amax_next(const ht_amax_rule *rule, const float *history, float scale, float amax, float *next);

#endif
