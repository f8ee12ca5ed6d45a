/* Weights become codes of 4 or 8 bits, and codes numbers: one group of a column at a time. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "op/op.h"

uint8_t ht_nbits_code(const ht_nbits_codes *codes, int64_t group, int64_t column, float x, float *value)
{
    int64_t at = group * codes->n + column;
    float scale = codes->scale[at], zero = codes->zero[at], last = (float)((1 << codes->format.bits) - 1);
    float code = rintf(x / scale) + zero;
    code = code < 0 ? 0 : code > last ? last : code;
    *value = (code - zero) * scale;
    return (uint8_t)code;
}

/* For weights between low and high. */
static void set_range(ht_nbits_codes *codes, int64_t at, float low, float high)
{
    int bits = codes->format.bits, middle = ht_nbits_middle(bits), last = (1 << bits) - 1;
    float most = high > -low ? high : -low;
    float scale = codes->format.symmetric ? most / (float)(middle - 1) : high / (float)last - low / (float)last;
    codes->scale[at] = scale > FLT_MIN ? scale : FLT_MIN;
    codes->zero[at] = (uint8_t)(codes->format.symmetric ? (float)middle : rintf(-low / codes->scale[at]));
}

static double group_error(const ht_nbits_codes *codes, const float *w, int64_t group, int64_t column,
                          const double *importance)
{
    int64_t first = group * codes->format.group, end = first + codes->format.group;
    double sum = 0;
    for (int64_t i = first; i < end && i < codes->k; i++) {
        float x = w[i * codes->n + column], value;
        ht_nbits_code(codes, group, column, x, &value);
        sum += importance[i] * (double)(value - x) * (double)(value - x);
    }
    return sum;
}

void ht_nbits_fit(ht_nbits_codes *codes, const float *w, int64_t group, int64_t column, const double *importance)
{
    enum { PARTS = 20, NARROWEST = 10 }; /* ranges from the whole one to 10 of 20 parts of it */
    int64_t first = group * codes->format.group, end = first + codes->format.group;
    int64_t at = group * codes->n + column;
    float low = 0, high = 0;
    for (int64_t i = first; i < end && i < codes->k; i++) {
        low = fminf(low, w[i * codes->n + column]);
        high = fmaxf(high, w[i * codes->n + column]);
    }
    set_range(codes, at, low, high);
    if (!importance) return;
    double least = group_error(codes, w, group, column, importance);
    int best = PARTS;
    for (int parts = PARTS - 1; parts >= NARROWEST; parts--) {
        set_range(codes, at, low * (float)parts / PARTS, high * (float)parts / PARTS);
        double error = group_error(codes, w, group, column, importance);
        if (error >= least) continue;
        least = error;
        best = parts;
    }
    set_range(codes, at, low * (float)best / PARTS, high * (float)best / PARTS);
}

void ht_nbits_round(ht_nbits_codes *codes, const float *w, const double *importance, int64_t first, int64_t end)
{
    float value;
    for (int64_t group = 0; group < codes->groups; group++)
        for (int64_t j = first; j < end; j++) ht_nbits_fit(codes, w, group, j, importance);
    for (int64_t i = 0; i < codes->k; i++)
        for (int64_t j = first; j < end; j++)
            codes->codes[i * codes->n + j] =
                ht_nbits_code(codes, i / codes->format.group, j, w[i * codes->n + j], &value);
}

float ht_nbits_value(const ht_nbits_codes *codes, int64_t row, int64_t column)
{
    int64_t at = row / codes->format.group * codes->n + column;
    float steps = (float)codes->codes[row * codes->n + column] - (float)codes->zero[at];
    return steps * codes->scale[at] * codes->a_scale[row];
}

void ht_nbits_pack(const ht_nbits_codes *codes, int32_t *to)
{
    int bits = codes->format.bits, shift;
    ht_type type = ht_nbits_type(bits, codes->k, codes->n);
    memset(to, 0, (size_t)ht_type_bytes(&type));
    for (int64_t i = 0; i < codes->k; i++)
        for (int64_t j = 0; j < codes->n; j++) {
            int64_t at = ht_nbits_at(bits, codes->n, i, j, &shift);
            to[at] = (int32_t)((uint32_t)to[at] | (uint32_t)codes->codes[i * codes->n + j] << shift);
        }
}

void ht_nbits_unpack(ht_nbits_codes *codes, const int32_t *from)
{
    int bits = codes->format.bits, shift;
    for (int64_t i = 0; i < codes->k; i++)
        for (int64_t j = 0; j < codes->n; j++) {
            int64_t at = ht_nbits_at(bits, codes->n, i, j, &shift);
            codes->codes[i * codes->n + j] = (uint8_t)((uint32_t)from[at] >> shift & ((1u << bits) - 1));
        }
}
