// Numbers as codes of 8 bits and back, as op/quantize_linear.h has them: f32, one rounding for each operation. Codes of u8 are moved
// down by 128 where tensor cores multiply them, and their zero points with them.

// Half to even, for what is small.
DEVICE int32_t rounded(float steps) { return (int32_t)((steps + 12582912.f) - 12582912.f); }

// The ends of a type's codes.
DEVICE int32_t lowest_code(const int8_t *) { return -128; }
DEVICE int32_t lowest_code(const uint8_t *) { return 0; }

// x as a code. NaN becomes the lowest one; a zero point beyond the codes counts as the nearest.
template <class CODE> DEVICE CODE code_of(float x, float scale, int32_t zero)
{
    const int32_t lowest = lowest_code((const CODE *)nullptr), highest = lowest + 255;
    const int32_t within = zero < lowest ? lowest : zero > highest ? highest : zero;
    const float low = (float)(lowest - within), high = (float)(highest - within);
    float steps = x * (1.f / scale);
    steps = steps > low ? steps : low;
    steps = steps < high ? steps : high;
    return (CODE)(rounded(steps) + within);
}
