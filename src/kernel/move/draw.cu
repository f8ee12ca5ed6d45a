// random_uniform, random_normal: element i is number first + i of a Philox stream, and SKIP more for each whole BLOCK
// before it. In double, one rounding.

struct uniform_of {
    static DEVICE_MEMBER double draw(uint64_t seed, uint64_t step, uint64_t site, uint64_t index)
    {
        return random_uniform(seed, step, site, index);
    }
};

// By Box-Muller, from a pair of words of the blocks from 2^63 on.
struct normal_of {
    static DEVICE_MEMBER double draw(uint64_t seed, uint64_t step, uint64_t site, uint64_t index)
    {
        const double two_pi = 6.283185307179586476925286766559, unit = 2.3283064365386962890625e-10;
        const random_words w = random_block(seed, step, site, 1ull << 63 | index / 2);
        const double a = ((double)w.word[index % 2 * 2] + 0.5) * unit,
                     b = ((double)w.word[index % 2 * 2 + 1] + 0.5) * unit;
        return sqrt(-2.0 * log(a)) * cos(two_pi * b);
    }
};

template <class OF, uint64_t COUNT, uint64_t INNER, uint64_t BLOCK, uint64_t SKIP, class Y>
DEVICE void draw(const int64_t *seed, const int64_t *step, const int64_t *sample, uint64_t site, double shift,
                 double scale, Y *y)
{
    const uint64_t i = thread_number();
    if (i >= COUNT) return;
    const uint64_t number = (uint64_t)*sample * INNER + i + (SKIP ? i / BLOCK * SKIP : 0);
    put_double(&y[i], shift + scale * OF::draw(*seed, *step, site, number));
}
