/* Conversions between number types, in integer arithmetic, so that the bits are the same on every machine. One routine
 * rounds a double to any of the formats; a float becomes a double exactly, so it serves both. */
#include "base/half.h"

#include <math.h>

typedef struct format {
    int mantissa_bits;
    int bias;
    uint32_t max;      /* code of the largest finite value */
    uint32_t overflow; /* code of values beyond it: infinity, or max again where the format saturates */
    uint32_t nan;
    int sign_shift;
} format;

static const format f16_format = {10, 15, 0x7bff, 0x7c00, 0x7e00, 15};
static const format bf16_format = {7, 127, 0x7f7f, 0x7f80, 0x7fc0, 15};
static const format f8e4m3_format = {3, 7, 0x7e, 0x7e, 0x7f, 7};
static const format f8e5m2_format = {2, 15, 0x7b, 0x7b, 0x7e, 7};

#define F64_FRACTION ((UINT64_C(1) << 52) - 1)
#define F64_INFINITY (UINT64_C(0x7ff) << 52)

/* frac / 2^shift to nearest, ties to even. */
static uint64_t shift_nearest_even(uint64_t frac, int shift)
{
    uint64_t quotient = frac >> shift;
    uint64_t rest = frac & ((UINT64_C(1) << shift) - 1);
    uint64_t tie = UINT64_C(1) << (shift - 1);
    return quotient + (rest > tie || (rest == tie && (quotient & 1)));
}

/* The code of a finite magnitude, before overflow is looked at. A carry out of the fraction moves into the exponent,
 * which is what rounding up to the next power of two (or from subnormal to normal) means. */
static uint64_t encode_magnitude(const format *f, uint64_t magnitude)
{
    int exponent = (int)(magnitude >> 52) - 1023;
    int min_exponent = 1 - f->bias;
    int below = exponent < min_exponent ? min_exponent - exponent : 0;
    int shift = 52 - f->mantissa_bits + below;
    /* Under half of the smallest subnormal; every f64 subnormal is there too. */
    if (shift > 53) return 0;
    uint64_t rounded = shift_nearest_even((magnitude & F64_FRACTION) | (UINT64_C(1) << 52), shift);
    if (below > 0) return rounded;
    return ((uint64_t)(exponent - min_exponent) << f->mantissa_bits) + rounded;
}

static uint32_t encode(const format *f, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    uint32_t sign = (uint32_t)(bits >> 63) << f->sign_shift;
    uint64_t magnitude = bits & ~(UINT64_C(1) << 63);
    if (magnitude > F64_INFINITY) return sign | f->nan;
    if (magnitude == F64_INFINITY) return sign | f->overflow;
    uint64_t code = encode_magnitude(f, magnitude);
    return sign | (code > f->max ? f->overflow : (uint32_t)code);
}

ht_f16 ht_f16_from_f64(double x)
{
    return (ht_f16){(uint16_t)encode(&f16_format, x)};
}

ht_bf16 ht_bf16_from_f64(double x)
{
    return (ht_bf16){(uint16_t)encode(&bf16_format, x)};
}

ht_f8e4m3 ht_f8e4m3_from_f64(double x)
{
    return (ht_f8e4m3){(uint8_t)encode(&f8e4m3_format, x)};
}

ht_f8e5m2 ht_f8e5m2_from_f64(double x)
{
    return (ht_f8e5m2){(uint8_t)encode(&f8e5m2_format, x)};
}

ht_f8e4m3 ht_f8e4m3_from_f32(float x)
{
    return ht_f8e4m3_from_f64((double)x);
}

ht_f8e5m2 ht_f8e5m2_from_f32(float x)
{
    return ht_f8e5m2_from_f64((double)x);
}

float ht_f8e4m3_to_f32(ht_f8e4m3 x)
{
    uint32_t sign = (uint32_t)(x.bits & 0x80u) << 24;
    uint32_t exponent = x.bits >> 3 & 0xfu, fraction = x.bits & 0x7u;
    uint32_t magnitude = (exponent + 127u - 7u) << 23 | fraction << 20;
    if (exponent == 0) magnitude = ht_f32_bits((float)fraction * 0x1p-9f);
    if (exponent == 15 && fraction == 7) magnitude = 0x7fc00000u;
    return ht_f32_from_bits(sign | magnitude);
}

float ht_f8e5m2_to_f32(ht_f8e5m2 x)
{
    /* e5m2 is the upper byte of an f16. */
    return ht_f16_to_f32((ht_f16){(uint16_t)(x.bits << 8)});
}

/* Toward zero, clamped to [low, high], NaN to 0. `beyond` is the first double above the range: for i64 the largest
 * value is itself no double. */
static int64_t to_integer(double x, int64_t low, int64_t high, double beyond)
{
    if (isnan(x)) return 0;
    if (x >= beyond) return high;
    if (x <= (double)low) return low;
    return (int64_t)x;
}

static int64_t round_to_integer(ht_dtype dtype, double x)
{
    switch (dtype) {
    case HT_I8: return to_integer(x, INT8_MIN, INT8_MAX, 0x1p7);
    case HT_U8: return to_integer(x, 0, UINT8_MAX, 0x1p8);
    case HT_I32: return to_integer(x, INT32_MIN, INT32_MAX, 0x1p31);
    case HT_I64: return to_integer(x, INT64_MIN, INT64_MAX, 0x1p63);
    default: return x != 0; /* bool */
    }
}

double ht_round_to(ht_dtype dtype, double x)
{
    switch (dtype) {
    case HT_F64: return x;
    case HT_F32: return (double)(float)x;
    case HT_F16: return (double)ht_f16_to_f32(ht_f16_from_f64(x));
    case HT_BF16: return (double)ht_bf16_to_f32(ht_bf16_from_f64(x));
    case HT_F8E4M3: return (double)ht_f8e4m3_to_f32(ht_f8e4m3_from_f64(x));
    case HT_F8E5M2: return (double)ht_f8e5m2_to_f32(ht_f8e5m2_from_f64(x));
    default: return (double)round_to_integer(dtype, x);
    }
}

double ht_load_f64(const void *array, ht_dtype dtype, int64_t index)
{
    switch (dtype) {
    case HT_F64: return ((const double *)array)[index];
    case HT_F32: return (double)((const float *)array)[index];
    case HT_F16: return (double)ht_f16_to_f32(((const ht_f16 *)array)[index]);
    case HT_BF16: return (double)ht_bf16_to_f32(((const ht_bf16 *)array)[index]);
    case HT_F8E4M3: return (double)ht_f8e4m3_to_f32(((const ht_f8e4m3 *)array)[index]);
    case HT_F8E5M2: return (double)ht_f8e5m2_to_f32(((const ht_f8e5m2 *)array)[index]);
    case HT_I8: return ((const int8_t *)array)[index];
    case HT_U8: return ((const uint8_t *)array)[index];
    case HT_I32: return ((const int32_t *)array)[index];
    case HT_I64: return (double)((const int64_t *)array)[index];
    default: return ((const uint8_t *)array)[index] != 0; /* bool */
    }
}

void ht_store_f64(void *array, ht_dtype dtype, int64_t index, double x)
{
    switch (dtype) {
    case HT_F64: ((double *)array)[index] = x; break;
    case HT_F32: ((float *)array)[index] = (float)x; break;
    case HT_F16: ((ht_f16 *)array)[index] = ht_f16_from_f64(x); break;
    case HT_BF16: ((ht_bf16 *)array)[index] = ht_bf16_from_f64(x); break;
    case HT_F8E4M3: ((ht_f8e4m3 *)array)[index] = ht_f8e4m3_from_f64(x); break;
    case HT_F8E5M2: ((ht_f8e5m2 *)array)[index] = ht_f8e5m2_from_f64(x); break;
    case HT_I32: ((int32_t *)array)[index] = (int32_t)round_to_integer(dtype, x); break;
    case HT_I64: ((int64_t *)array)[index] = round_to_integer(dtype, x); break;
    case HT_I8: ((int8_t *)array)[index] = (int8_t)round_to_integer(dtype, x); break;
    default: ((uint8_t *)array)[index] = (uint8_t)round_to_integer(dtype, x); break; /* u8, bool */
    }
}
