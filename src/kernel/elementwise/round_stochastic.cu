// x rounded to the neighbour below or above in size, above where the random word is less than what x is beyond the one
// below, in steps. Exact, in double. DIGITS: bits of a significand of the result; LOWEST: exponent of its smallest normal
// number.
template <int DIGITS, int LOWEST> DEVICE real round_stochastic(real from, double largest, uint32_t word)
{
    const double x = (double)from, size = fabs(x);
    if (!(size <= largest)) return from;
    int exponent = (int)(__double_as_longlong(size) >> 52) - 1023;
    if (exponent < LOWEST) exponent = LOWEST;
    const double steps = ldexp(size, DIGITS - 1 - exponent);
    double below = floor(steps);
    if (((double)word + 0.5) * 2.3283064365386962890625e-10 < steps - below) below += 1;
    return (real)copysign(ldexp(below, exponent - DIGITS + 1), x);
}
