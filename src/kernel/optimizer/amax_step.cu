// amax_step: the next histories and scales of tensors in f8, by the rule of op/amax_step.c. A thread for each tensor.

template <int64_t TENSORS, int HISTORY, int TOP, int MARGIN>
DEVICE void amax_step(const float *amaxes, const float *histories, const float *scales, float *next_histories,
                      float *next_scales)
{
    const int64_t tensor = thread_number();
    if (tensor >= TENSORS) return;
    const float *history = histories + tensor * HISTORY;
    float *next = next_histories + tensor * HISTORY;
    const float amax = amaxes[tensor];
    const bool tells = amax > 0 && is_finite(amax);
    float largest = 0;
    for (int i = 0; i < HISTORY; i++) {
        const float entry = !tells ? history[i] : i == 0 ? amax : history[i - 1];
        next[i] = entry;
        if (entry > largest && is_finite(entry)) largest = entry;
    }
    const uint32_t bits = __float_as_uint(largest);
    int exponent = (int)(bits >> 23) - 127 + ((bits & 0x7fffffu) > 0x600000u) - TOP;
    exponent = (exponent < -126 ? -126 : exponent) + MARGIN;
    next_scales[tensor] = tells ? __uint_as_float((uint32_t)((exponent > 126 ? 126 : exponent) + 127) << 23) : scales[tensor];
}
