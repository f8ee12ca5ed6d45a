// An f32 as the sum of two numbers of tf32: `high`, rounded to it, and what is left, `low`, of which tensor cores drop
// no more than 2^-22 of x. Where x is not finite, or rounds to infinity, high alone has it.
DEVICE float high_part(float x)
{
    const uint32_t bits = __float_as_uint(x), rest = 0x1fffu;
    const uint32_t rounded = (bits + 0x0fffu + (bits >> 13 & 1)) & ~rest;
    const bool stays = (rounded & 0x7f800000u) != 0x7f800000u && (bits & 0x7f800000u) != 0x7f800000u;
    return __uint_as_float(stays ? rounded : (bits & 0x7f800000u) == 0x7f800000u ? bits : bits & ~rest);
}
DEVICE float low_part(float x, float high) { return (__float_as_uint(x) & 0x7f800000u) == 0x7f800000u ? 0.0f : x - high; }

// A matrix of ROWS x COLUMNS, rows PITCH apart, becomes three: part LOW of low parts, the others of high ones. They lie
// side by side where DOWN is false, each STEP columns wide, and below each other where it is true, each STEP rows high;
// zeros fill what the matrix does not.
template <bool DOWN, int64_t ROWS, int64_t COLUMNS, int64_t PITCH, int64_t STEP, int LOW>
DEVICE void split_parts(const float *from, float *to)
{
    constexpr int64_t rows = DOWN ? STEP : ROWS, columns = DOWN ? COLUMNS : STEP, quads = columns / 4;
    const int64_t i = thread_number(), row = i / quads, column = i % quads * 4;
    if (i >= rows * quads) return;
    pack<float, 4> x{}, high, low;
    if (row < ROWS && column < COLUMNS) x = get_pack<4>(from + row * PITCH + column);
#pragma unroll
    for (int e = 0; e < 4; e++) {
        high.item[e] = high_part(x.item[e]);
        low.item[e] = low_part(x.item[e], high.item[e]);
    }
#pragma unroll
    for (int part = 0; part < 3; part++)
        put_pack(to + (DOWN ? (part * STEP + row) * columns + column : (row * 3 + part) * STEP + column),
                 part == LOW ? low : high);
}
