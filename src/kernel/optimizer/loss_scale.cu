// scale_step: the next loss scale and its counters, by the rule of op/scale_step.c.

struct scale_rule {
    bool dynamic, consecutive;
    int64_t window, hysteresis, most_skips;
    float min;
};
struct scale_state {
    float scale;
    int64_t hysteresis, iteration, last, skips;
    bool fatal;
};

DEVICE int64_t one_more(int64_t count) { return count < 9223372036854775807ll ? count + 1 : count; }

DEVICE void scale_overflow(const scale_rule &rule, scale_state *s)
{
    s->last = s->iteration;
    s->skips = one_more(s->skips);
    if (!rule.dynamic)
        s->fatal = rule.most_skips > 0 && s->skips >= rule.most_skips;
    else if (rule.hysteresis > 1 && s->hysteresis > 1)
        s->hysteresis--;
    else if (s->scale <= rule.min)
        s->fatal = true;
    else
        s->scale = s->scale / 2 > rule.min ? s->scale / 2 : rule.min;
}

DEVICE void scale_clean(const scale_rule &rule, scale_state *s)
{
    const float largest_half = 0x1.fffffep+126f; // of the largest f32
    // Both may be anything that a file held: their distance is taken where it cannot overflow.
    const uint64_t since = s->iteration > s->last ? (uint64_t)s->iteration - (uint64_t)s->last - 1 : 0;
    s->skips = 0;
    if (!rule.dynamic) return;
    if (rule.consecutive) s->hysteresis = rule.hysteresis;
    if (since == 0 || since % (uint64_t)rule.window != 0) return;
    if (s->scale <= largest_half) s->scale *= 2;
    s->hysteresis = rule.hysteresis;
}

// One thread. Everything is read before anything is written: the results may lie over the inputs.
template <class S>
DEVICE void scale_step(const scale_rule &rule, const boolean *finite_in, const S *scale_in, const int64_t *hysteresis_in,
                       const int64_t *iteration_in, const int64_t *last_in, const int64_t *skips_in, const boolean *fatal_in,
                       S *scale, int64_t *hysteresis, int64_t *iteration, int64_t *last, int64_t *skips, boolean *fatal)
{
    scale_state s = {(float)get(*scale_in), *hysteresis_in, *iteration_in, *last_in, *skips_in, fatal_in->byte != 0};
    const bool finite = finite_in->byte != 0;
    if (!s.fatal) {
        if (finite)
            scale_clean(rule, &s);
        else
            scale_overflow(rule, &s);
        s.iteration = one_more(s.iteration);
    }
    put(scale, (real)s.scale);
    *hysteresis = s.hysteresis;
    *iteration = s.iteration;
    *last = s.last;
    *skips = s.skips;
    put(fatal, s.fatal);
}
