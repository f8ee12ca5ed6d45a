/* Two small computations that show what a number type does to arithmetic: a long sum and an oscillator. */
#ifndef HT_CLI_FORMAT_EXPERIMENTS_H
#define HT_CLI_FORMAT_EXPERIMENTS_H

#include "base/base.h"

enum { CLI_SUM_TERMS = 10 * 1000 * 1000, CLI_OSCILLATOR_STEPS = 10 * 1000 };

/* Terms u·2^-41 with u a random integer below 2^32: 2^-10 on average, each rounded to the type, added one after the other.
 * Every term is a whole number of 2^-41, rounded or not, so the exact sums are sums of integers. */
typedef struct cli_sum {
    double exact;            /* of the terms as they were drawn */
    double terms_error;      /* relative: what rounding the terms alone changed */
    double sequential;       /* the sum, rounded to the type after each addition */
    double sequential_error; /* relative to exact, as the others */
    int64_t last_change;     /* the last term that changed this sum, from 1 */
    double accumulated;      /* the rounded terms added up in f32 */
    double accumulated_error;
} cli_sum;
void cli_sum_try(cli_sum *out, ht_dtype dtype);

/* x'' = -x from x = 1 by the leapfrog method with a step of 2^-4, which every float type holds. Method and rounding are
 * kept apart: without rounding, the method keeps v² + (1 - h²/4)x², and turns by 2 asin(h/2) in each step. */
typedef struct cli_oscillator {
    double periods;      /* that pass */
    double energy_error; /* at the end, relative */
    double worst_energy; /* on the way */
    double phase_error;  /* at the end, in radians; above zero: too fast */
    double amplitude;    /* at the end; began as 1 */
} cli_oscillator;
void cli_oscillator_try(cli_oscillator *out, ht_dtype dtype);

#endif
