#include "cli/format_experiments.h"

#include <math.h>

/* A sum, difference or product of two numbers of a type, computed in f64 and rounded once, is what arithmetic of that type
 * gives: f64 has more than twice the digits of f32, so the first rounding does not disturb the second. */

/* ---- a sum ---- */

static double relative(double value, double exact)
{
    return fabs(value - exact) / exact;
}

void cli_sum_try(cli_sum *out, ht_dtype dtype)
{
    const ht_stream stream = {.seed = 1, .site = ht_hash_text("halftone formats")};
    const double unit = 0x1p-41;
    uint64_t drawn = 0, rounded = 0;
    double sum = 0;
    float wide = 0;
    *out = (cli_sum){0};
    for (int64_t i = 0; i < CLI_SUM_TERMS; i += 4) {
        ht_philox words = ht_stream_block(&stream, (uint64_t)i / 4);
        for (int k = 0; k < 4; k++) {
            double term = ht_round_to(dtype, (double)words.word[k] * unit);
            double next = ht_round_to(dtype, sum + term);
            drawn += words.word[k];
            rounded += (uint64_t)(term / unit);
            if (next != sum) out->last_change = i + k + 1;
            sum = next;
            wide += (float)term;
        }
    }
    out->exact = (double)drawn * unit;
    out->terms_error = relative((double)rounded * unit, out->exact);
    out->sequential = sum;
    out->sequential_error = relative(sum, out->exact);
    out->accumulated = (double)wide;
    out->accumulated_error = relative(out->accumulated, out->exact);
}

/* ---- an oscillator ---- */

void cli_oscillator_try(cli_oscillator *out, ht_dtype dtype)
{
    const double step = 0x1p-4, half = step / 2, kept = 1 - step * step / 4, turn = 2 * asin(half),
                 circle = 2 * acos(-1.);
    double x = 1, v = 0, angle = 0;
    int64_t turns = 0; /* whole ones, so that the phase is not itself a long sum */
    *out = (cli_oscillator){.periods = CLI_OSCILLATOR_STEPS * turn / circle};
    for (int i = 0; i < CLI_OSCILLATOR_STEPS; i++) {
        v = ht_round_to(dtype, v - ht_round_to(dtype, half * x));
        x = ht_round_to(dtype, x + ht_round_to(dtype, step * v));
        v = ht_round_to(dtype, v - ht_round_to(dtype, half * x));
        double now = atan2(-v, x * sqrt(kept));
        turns += now < angle - circle / 2;
        turns -= now > angle + circle / 2;
        angle = now;
        out->energy_error = (v * v + kept * x * x) / kept - 1;
        out->worst_energy = fmax(out->worst_energy, fabs(out->energy_error));
    }
    out->energy_error = fabs(out->energy_error);
    out->phase_error = (double)turns * circle + angle - CLI_OSCILLATOR_STEPS * turn;
    out->amplitude = sqrt((v * v + kept * x * x) / kept);
}
