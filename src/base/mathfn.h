/* The functions of the point-wise rows, for float and double alike: fn_exp, fn_log, fn_tanh … (not ht_exp: that is the
 * graph builder). The double ones are libm's. The float ones are our own: free of branches, so that compilers vectorise
 * them, and the same bits on every ISA, as long as the compiler neither contracts nor reorders (-ffp-contract=off, no
 * -ffast-math).
 *
 * Largest error of the float ones, in units in the last place, found over one float in seven (test_base_math measures a
 * sample on each run, or all with HT_MATH_STRIDE=1):
 *     exp 0.95   log 0.83   log1p 1.44   tanh 1.33   sigmoid 1.96   softplus 1.95   erf 1.32   rsqrt 1.50
 *     sin, cos 1.58 for |x| up to 1.6e6; beyond, the absolute error grows as |x| 2^-53, and from 1e15 on only
 *     |result| ≤ 1 holds
 *     sqrt, pow 0.5 (pow goes through double); floor, abs, sign, min, max exact
 * Infinities, NaN and the sign of zero come out as C's libm says; subnormal results are not flushed. */
#ifndef HT_BASE_MATHFN_H
#define HT_BASE_MATHFN_H

#include "base/half.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#define FN_SIGN_BIT 0x80000000u

/* A loop that calls a function is not vectorised: never left to the compiler's budget. */
#define FN_INLINE static inline __attribute__((always_inline))

FN_INLINE float fn_pick_f32(int condition, float a, float b)
{
    return ht_f32_from_bits(ht_bits_pick(condition, ht_f32_bits(a), ht_f32_bits(b)));
}

FN_INLINE float fn_with_sign_f32(float magnitude, float sign)
{
    return ht_f32_from_bits((ht_f32_bits(magnitude) & ~FN_SIGN_BIT) | (ht_f32_bits(sign) & FN_SIGN_BIT));
}

/* x = n ln 2 + r with |r| ≤ ln 2 / 2, e^x = 2^n (1 + r + r² q(r)). */
FN_INLINE float fn_exp_f32(float x)
{
    const float shift = 0x1.8p23f; /* adding it rounds to an integer, which the low bits then hold */
    x = fn_pick_f32(x > 89.0f, 89.0f, x);
    x = fn_pick_f32(x < -105.0f, -105.0f, x);
    float shifted = x * 0x1.715476p0f + shift;
    float n = shifted - shift;
    float r = (x - n * 0x1.63p-1f) - n * -0x1.bd0106p-13f; /* ln 2 in two pieces; n times the first is exact */
    float q = 0x1.9e15e4p-13f;
    q = q * r + 0x1.6d5826p-10f;
    q = q * r + 0x1.11130ap-7f;
    q = q * r + 0x1.5554ep-5f;
    q = q * r + 0x1.555554p-3f;
    q = q * r + 0x1p-1f;
    float y = 1.0f + (r + r * r * q);
    /* 2^n as two factors, since n reaches beyond the exponents of normal numbers at either end. */
    uint32_t biased = ht_f32_bits(shifted) - 0x4b400000u + 256u;
    uint32_t half = biased >> 1;
    return y * ht_f32_from_bits((half - 1u) << 23) * ht_f32_from_bits((biased - half - 1u) << 23);
}

/* x = 2^k (1 + f) with 1 + f in [√½, √2), log(1 + f) = 2 atanh(s), s = f / (2 + f). */
FN_INLINE float fn_log_f32(float x)
{
    float scaled = fn_pick_f32(x < 0x1p-126f, x * 0x1p23f, x);
    uint32_t moved = ht_f32_bits(scaled) - 0x3f3504f3u + 0x3f800000u;
    float k = (float)((int32_t)(moved >> 23) - 127) - fn_pick_f32(x < 0x1p-126f, 23.0f, 0.0f);
    float f = ht_f32_from_bits((moved & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
    float s = f / (2.0f + f);
    float z = s * s;
    float p = 0x1.f13c1cp-3f;
    p = p * z + 0x1.23d3dep-2f;
    p = p * z + 0x1.999c26p-2f;
    p = p * z + 0x1.555554p-1f;
    float square = 0.5f * f * f;
    /* f²/2 leaves s f exactly where it matters: near 1 the result is f - (f²/2 - s (f²/2 + z p)). */
    float y = k * 0x1.62e3p-1f - ((square - (s * (square + z * p) + k * 0x1.2fefa2p-17f)) - f);
    y = fn_pick_f32(x == 0.0f, -INFINITY, y);
    y = fn_pick_f32(x < 0.0f, NAN, y);
    return fn_pick_f32(x < INFINITY, y, x);
}

/* log(u) + c/u, where u = 1 + x as rounded and c is what the rounding lost. */
FN_INLINE float fn_log1p_f32(float x)
{
    float u = 1.0f + x;
    float lost = fn_pick_f32(x < 1.0f, x - (u - 1.0f), 1.0f - (u - x));
    float usable = fn_pick_f32(u > 0.0f, u, 1.0f);
    float correction = fn_pick_f32(u < INFINITY, lost / usable, 0.0f);
    float y = fn_log_f32(u) + correction;
    return fn_pick_f32(x == 0.0f, x, y);
}

/* Near 0 an odd polynomial; else 1 - 2 / (e^2x + 1). */
FN_INLINE float fn_tanh_f32(float x)
{
    float a = fabsf(x);
    float z = a * a;
    float p = 0x1.18686ap-9f;
    p = p * z - 0x1.0bf224p-7f;
    p = p * z + 0x1.6392bp-6f;
    p = p * z - 0x1.b9f038p-5f;
    p = p * z + 0x1.111076p-3f;
    p = p * z - 0x1.555554p-2f;
    float near = a + a * (z * p);
    float far = 1.0f - 2.0f / (fn_exp_f32(2.0f * a) + 1.0f);
    return fn_with_sign_f32(fn_pick_f32(a < 0.625f, near, far), x);
}

/* 1 / (1 + e^-x), with e^-|x| so that small results keep their digits; what rounding 1 + e^-|x| lost is made good. */
FN_INLINE float fn_sigmoid_f32(float x)
{
    float e = fn_exp_f32(-fabsf(x));
    float sum = 1.0f + e;
    float lost = e - (sum - 1.0f);
    float y = fn_pick_f32(x < 0.0f, e, 1.0f) / sum;
    return y - y * lost;
}

/* x (1 + t)/2, t = tanh(u), u = k (x + c x³). */
FN_INLINE float fn_gelu_tanh_f32(float x)
{
    return 0.5f * x * (1 + fn_tanh_f32((float)0.79788456080286535588 * (x + (float)0.044715 * x * x * x)));
}

/* (1 + t)/2 + x/2 (1 - t²) u'. */
FN_INLINE float fn_gelu_tanh_slope_f32(float x)
{
    float square = x * x, t = fn_tanh_f32(x * (square * 0.035677408136300125f + 0.79788456080286535588f));
    float tail = x * ((1 - t * t) * (square * 0.10703222440890038f + 0.79788456080286535588f));
    return 0.5f * t + 0.5f + 0.5f * tail;
}

/* log(1 + e^x). */
FN_INLINE float fn_softplus_f32(float x)
{
    return fn_pick_f32(x > 0.0f, x, 0.0f) + fn_log1p_f32(fn_exp_f32(-fabsf(x)));
}

/* Near 0 an odd polynomial; else 1 - e^q(x), q a polynomial for log erfc. */
FN_INLINE float fn_erf_f32(float x)
{
    float a = fabsf(x);
    float z = a * a;
    float p = 0x1.4f3e14p-14f;
    p = p * z - 0x1.a60232p-11f;
    p = p * z + 0x1.5449a2p-8f;
    p = p * z - 0x1.b80116p-6f;
    p = p * z + 0x1.ce2d64p-4f;
    p = p * z - 0x1.81274p-2f;
    p = p * z + 0x1.06eba8p-3f;
    float near = a + a * p;
    float t = fn_pick_f32(a > 4.0f, 4.0f, a); /* from 3.9 on the result is 1 */
    float q = -0x1.5ed982p-16f;
    q = q * t + 0x1.c552dap-12f;
    q = q * t - 0x1.10aafap-8f;
    q = q * t + 0x1.9b19ap-6f;
    q = q * t - 0x1.bb5656p-4f;
    q = q * t - 0x1.444b42p-1f;
    q = q * t - 0x1.212698p0f;
    q = q * t + 0x1.65abe2p-13f;
    float far = 1.0f - fn_exp_f32(q);
    return fn_with_sign_f32(fn_pick_f32(a < 0.91f, near, far), x);
}

/* sin(a + quarter π/2) for a ≥ 0. The reduction is in double, where two pieces of π/2 do what would take five in float:
 * a = n π/2 + r. Beyond 2^20 π/2 n times the first piece is rounded and digits go; the clamp keeps even the largest a
 * within [-1, 1]. */
FN_INLINE float fn_quadrant_f32(float a, uint32_t quarter)
{
    const double shift = 0x1.8p52;
    double shifted = (double)a * 0x1.45f306dc9c883p-1 + shift;
    double n = shifted - shift;
    float r = (float)(((double)a - n * 0x1.921fb544p0) - n * 0x1.0b4611a626331p-34);
    r = fn_pick_f32(r > 0.7875f, 0.7875f, r);
    r = fn_pick_f32(r < -0.7875f, -0.7875f, r);
    uint64_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    quarter += (uint32_t)bits;
    float z = r * r;
    float s = r + r * (z * ((-0x1.9954a8p-13f * z + 0x1.11077ap-7f) * z - 0x1.555546p-3f));
    float c = (1.0f - 0.5f * z) + z * z * ((0x1.99e80cp-16f * z - 0x1.6c0c28p-10f) * z + 0x1.55554ap-5f);
    uint32_t y = ht_bits_pick((int)(quarter & 1u), ht_f32_bits(c), ht_f32_bits(s));
    return ht_f32_from_bits(y ^ (quarter & 2u) << 30);
}

FN_INLINE float fn_sin_f32(float x)
{
    uint32_t y = ht_f32_bits(fn_quadrant_f32(fabsf(x), 0u));
    return ht_f32_from_bits(y ^ (ht_f32_bits(x) & FN_SIGN_BIT));
}

FN_INLINE float fn_cos_f32(float x)
{
    return fn_quadrant_f32(fabsf(x), 1u);
}

/* Our own, because floorf is a call where the ISA has no rounding instruction. */
FN_INLINE float fn_floor_f32(float x)
{
    float a = fabsf(x);
    float nearest = fn_with_sign_f32((a + 0x1p23f) - 0x1p23f, x);
    float below = nearest - fn_pick_f32(nearest > x, 1.0f, 0.0f);
    return fn_pick_f32(a < 0x1p23f, below, x);
}

FN_INLINE float fn_rsqrt_f32(float x)
{
    return 1.0f / sqrtf(x);
}

FN_INLINE float fn_pow_f32(float x, float y)
{
    return (float)pow((double)x, (double)y);
}

/* -1, 1, or x itself where it is a zero or NaN. */
FN_INLINE float fn_sign_f32(float x)
{
    return fn_pick_f32((x < 0.0f) | (x > 0.0f), fn_with_sign_f32(1.0f, x), x);
}

/* NaN if either is, as in PyTorch (and unlike fminf). */
FN_INLINE float fn_min_f32(float a, float b)
{
    return fn_pick_f32((a < b) | (a != a), a, b);
}

FN_INLINE float fn_max_f32(float a, float b)
{
    return fn_pick_f32((a > b) | (a != a), a, b);
}

static inline double fn_rsqrt_f64(double x)
{
    return 1.0 / sqrt(x);
}

static inline double fn_sigmoid_f64(double x)
{
    double e = exp(-fabs(x));
    return (x < 0 ? e : 1.0) / (1.0 + e);
}

static inline double fn_gelu_tanh_f64(double x)
{
    return 0.5 * x * (1 + tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}

static inline double fn_gelu_tanh_slope_f64(double x)
{
    double square = x * x, t = tanh(x * (square * 0.035677408136300125 + 0.79788456080286535588));
    double tail = x * ((1 - t * t) * (square * 0.10703222440890038 + 0.79788456080286535588));
    return 0.5 * t + 0.5 + 0.5 * tail;
}

static inline double fn_softplus_f64(double x)
{
    return (x > 0 ? x : 0.0) + log1p(exp(-fabs(x)));
}

static inline double fn_sign_f64(double x)
{
    return x < 0 || x > 0 ? copysign(1.0, x) : x;
}

static inline double fn_min_f64(double a, double b)
{
    return a < b || a != a ? a : b;
}

static inline double fn_max_f64(double a, double b)
{
    return a > b || a != a ? a : b;
}

#define FN_OF(x, f32, f64) _Generic((x), float : f32, default : f64)

#define fn_exp(x)             FN_OF(x, fn_exp_f32, exp)(x)
#define fn_log(x)             FN_OF(x, fn_log_f32, log)(x)
#define fn_log1p(x)           FN_OF(x, fn_log1p_f32, log1p)(x)
#define fn_sqrt(x)            FN_OF(x, sqrtf, sqrt)(x)
#define fn_rsqrt(x)           FN_OF(x, fn_rsqrt_f32, fn_rsqrt_f64)(x)
#define fn_sin(x)             FN_OF(x, fn_sin_f32, sin)(x)
#define fn_cos(x)             FN_OF(x, fn_cos_f32, cos)(x)
#define fn_tanh(x)            FN_OF(x, fn_tanh_f32, tanh)(x)
#define fn_sigmoid(x)         FN_OF(x, fn_sigmoid_f32, fn_sigmoid_f64)(x)
#define fn_erf(x)             FN_OF(x, fn_erf_f32, erf)(x)
#define fn_softplus(x)        FN_OF(x, fn_softplus_f32, fn_softplus_f64)(x)
#define fn_gelu_tanh(x)       FN_OF(x, fn_gelu_tanh_f32, fn_gelu_tanh_f64)(x)
#define fn_gelu_tanh_slope(x) FN_OF(x, fn_gelu_tanh_slope_f32, fn_gelu_tanh_slope_f64)(x)
#define fn_abs(x)             FN_OF(x, fabsf, fabs)(x)
#define fn_floor(x)           FN_OF(x, fn_floor_f32, floor)(x)
#define fn_sign(x)            FN_OF(x, fn_sign_f32, fn_sign_f64)(x)
/* Two floats give a float; anything else is done in double. */
#define fn_pow(a, b) FN_OF((a) + (b), fn_pow_f32, pow)(a, b)
#define fn_min(a, b) FN_OF((a) + (b), fn_min_f32, fn_min_f64)(a, b)
#define fn_max(a, b) FN_OF((a) + (b), fn_max_f32, fn_max_f64)(a, b)

#endif
