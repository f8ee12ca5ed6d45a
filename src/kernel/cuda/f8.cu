// f8e4m3 and f8e5m2: rounded to nearest even, the largest number for values beyond it, NaN for NaN. The bits of
// base/half.c, except that a NaN may have others.

struct f8e4m3 {
    uint8_t bits;
    enum { TOP = 8 }; // exponent of the largest number, which is 1.75 times that power of two
};
struct f8e5m2 {
    uint8_t bits;
    enum { TOP = 15 };
};

DEVICE float get(f8e4m3 x)
{
    const uint32_t sign = (uint32_t)(x.bits & 0x80u) << 24, magnitude = x.bits & 0x7fu;
    const uint32_t normal = (magnitude << 20) + ((127u - 7u) << 23);
    const uint32_t tiny = __float_as_uint((float)magnitude * 0.001953125f); // 2^-9
    return __uint_as_float(sign | (magnitude == 0x7fu ? 0x7fc00000u : magnitude < 8u ? tiny : normal));
}
// The upper byte of an f16.
DEVICE float get(f8e5m2 x) { return get(f16{(uint16_t)(x.bits << 8)}); }

#if defined(HT_EMULATED) || __CUDA_ARCH__ < 890
// FRACTION bits of it, exponents biased by BIAS, the largest code and that of NaN. A sum with MAGIC, whose neighbours lie
// as far apart as the type's smallest numbers, rounds to these.
template <int FRACTION, int BIAS, int MOST, int NAN_CODE> DEVICE uint32_t f8_code(float x, float magic)
{
    const uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu, sign = bits >> 24 & 0x80u;
    const int shift = 23 - FRACTION;
    const uint32_t half = (1u << (shift - 1)) - 1 + (magnitude >> shift & 1u);
    uint32_t code = ((magnitude + half) >> shift) - ((127u - BIAS) << FRACTION);
    if (magnitude < (uint32_t)(128 - BIAS) << 23)
        code = __float_as_uint(__uint_as_float(magnitude) + magic) - __float_as_uint(magic);
    else if (magnitude >= 0x7f800000u || code > (uint32_t)MOST)
        code = MOST;
    return sign | (magnitude > 0x7f800000u ? (uint32_t)NAN_CODE : code);
}
DEVICE uint32_t f8_pair(f8e4m3, float low, float high)
{
    return f8_code<3, 7, 0x7e, 0x7f>(low, 16384.f) | f8_code<3, 7, 0x7e, 0x7f>(high, 16384.f) << 8;
}
DEVICE uint32_t f8_pair(f8e5m2, float low, float high)
{
    return f8_code<2, 15, 0x7b, 0x7e>(low, 128.f) | f8_code<2, 15, 0x7b, 0x7e>(high, 128.f) << 8;
}
#else
DEVICE uint32_t f8_pair(f8e4m3, float low, float high)
{
    uint16_t codes;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
}
DEVICE uint32_t f8_pair(f8e5m2, float low, float high)
{
    uint16_t codes;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(codes) : "f"(high), "f"(low));
    return codes;
}
#endif
