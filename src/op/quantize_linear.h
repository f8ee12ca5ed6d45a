/* How numbers become codes of 8 bits and back: shared by the ops quantize_linear, dequantize_linear, quantize_dynamic,
 * matmul_q and conv_q and their kernels. A code stands for (code - zero) · scale. Everything is f32 with one rounding for each
 * operation, so every instruction set has the same bits. */
#ifndef HT_OP_QUANTIZE_LINEAR_H
#define HT_OP_QUANTIZE_LINEAR_H

#include <float.h>
#include <math.h>

#include "graph/graph.h"

/* i8 or u8. */
bool ht_dtype_is_code(ht_dtype dtype);

/* The codes of a type, and how x becomes one: rounded to nearest, half to even, the last code for what lies beyond. */
typedef struct ht_coding {
    float inverse;   /* of the scale */
    float low, high; /* codes, counted from the zero point */
    int32_t zero;
} ht_coding;

/* A zero point beyond the codes counts as the nearest code. */
static inline int32_t ht_zero_within(ht_dtype codes, int32_t zero)
{
    int32_t lowest = codes == HT_I8 ? -128 : 0, highest = codes == HT_I8 ? 127 : 255;
    return zero < lowest ? lowest : zero > highest ? highest : zero;
}

static inline ht_coding ht_coding_of(ht_dtype codes, float scale, int32_t zero)
{
    int32_t lowest = codes == HT_I8 ? -128 : 0, highest = codes == HT_I8 ? 127 : 255;
    int32_t within = ht_zero_within(codes, zero);
    return (ht_coding){1 / scale, (float)(lowest - within), (float)(highest - within), within};
}

/* The same behind a clip of x to [low, high]: multiplying and rounding keep the order, so the ends are clipped instead. */
static inline ht_coding ht_coding_clip(ht_coding coding, float low, float high)
{
    if (low * coding.inverse > coding.low) coding.low = low * coding.inverse;
    if (high * coding.inverse < coding.high) coding.high = high * coding.inverse;
    if (coding.low > coding.high) coding.low = coding.high;
    return coding;
}

/* Free of branches, for loops. Adding 1.5 · 2^23 rounds what is small to an integer, half to even. NaN becomes the lowest
 * code. */
static inline int32_t ht_code_of(const ht_coding *coding, float x)
{
    float steps = x * coding->inverse;
    steps = steps > coding->low ? steps : coding->low;
    steps = steps < coding->high ? steps : coding->high;
    return (int32_t)((steps + 0x1.8p23f) - 0x1.8p23f) + coding->zero;
}

/* What a group of numbers spans, 0 included; `finite` is 0, or NaN where one of them is not finite. */
typedef struct ht_code_range {
    float low, high, finite;
} ht_code_range;

/* The scale and the zero point that such a group needs. u8: its span over 255 steps. i8: the largest magnitude over 127
 * steps, and the zero point is 0. Where a number is not finite, the scale is NaN: so is what the codes stand for. */
static inline float ht_dynamic_scale(ht_dtype codes, const ht_code_range *range, int32_t *zero)
{
    float most = range->high > -range->low ? range->high : -range->low;
    float scale = codes == HT_I8 ? most / 127 : range->high / 255 - range->low / 255;
    *zero = 0;
    if (range->finite != 0) return NAN;
    if (scale < FLT_MIN) scale = FLT_MIN;
    if (codes == HT_U8) {
        ht_coding from_zero = ht_coding_of(HT_U8, scale, 0);
        *zero = ht_code_of(&from_zero, -range->low);
    }
    return scale;
}

/* Which scale serves element i of x: all elements that differ along the shared axes alone have the same. */
typedef struct ht_code_groups {
    int rank;
    int64_t dim[HT_MAX_RANK], stride[HT_MAX_RANK]; /* of x; in scales, 0 along a shared axis */
} ht_code_groups;
/* `axes` as the attribute has them, for a call that was checked before. */
ht_code_groups ht_code_groups_of(const ht_call *call);
int64_t ht_code_group(const ht_code_groups *groups, int64_t i);

/* K of a product of codes, at most: 255 · 128 · K is below 2^31, so sums of i32 are exact. */
enum { HT_MOST_CODE_PRODUCTS = 65536 };

#endif
