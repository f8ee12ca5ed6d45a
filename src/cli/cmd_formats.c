/* halftone formats: the number types, asked rather than told: every number in the tables is found by rounding with the
 * functions that the kernels use. */
#include "cli/cli.h"
#include "cli/format_experiments.h"

#include <inttypes.h>
#include <math.h>

static const char usage[] =
    "usage: halftone formats [--json]\n"
    "\n"
    "Prints the number types: bits of sign, exponent and mantissa, bytes, largest value, smallest normal and "
    "subnormal\n"
    "value, the distance from 1 to the next number (epsilon), decimal digits. Then two small computations in f64, "
    "f32,\n"
    "f16 and bf16 with their errors: ten million numbers added one after the other, in the type itself and in f32, "
    "and\n"
    "10,000 steps of an oscillator. Everything is measured while the command runs.\n"
    "    --json        one object: {\"types\": [{\"name\", \"bytes\", \"sign\", \"exponent\", \"mantissa\", \"max\", "
    "\"min_normal\",\n"
    "                  \"min_subnormal\", \"epsilon\", \"digits\"}], \"sum\": {\"terms\", \"exact\", \"types\": "
    "[{\"name\",\n"
    "                  \"terms_error\", \"sequential\", \"sequential_error\", \"last_change\", \"f32\", "
    "\"f32_error\"}]},\n"
    "                  \"oscillator\": {\"steps\", \"periods\", \"types\": [{\"name\", \"energy_error\", "
    "\"worst_energy_error\",\n"
    "                  \"phase_error\", \"amplitude\"}]}}; what a type does not have is null\n";

static const ht_dtype shown[] = {HT_F64, HT_F32, HT_F16, HT_BF16, HT_F8E4M3, HT_F8E5M2, HT_I8};
static const ht_dtype tried[] = {HT_F64, HT_F32, HT_F16, HT_BF16};
enum { SHOWN = sizeof shown / sizeof shown[0], TRIED = sizeof tried / sizeof tried[0] };

/* ---- what a type is like ---- */

typedef struct format_facts {
    int sign, exponent, mantissa;                   /* bits */
    double max, normal, subnormal, epsilon, digits; /* NAN: there is none */
} format_facts;

static bool holds(ht_dtype dtype, double x)
{
    return isfinite(x) && ht_round_to(dtype, x) == x;
}

/* The largest number: the largest power of two, and below it every bit that fits. */
static double find_max(ht_dtype dtype, int mantissa)
{
    double power = 1;
    while (holds(dtype, power * 2)) power *= 2;
    double max = power;
    for (int bit = 1; bit <= mantissa; bit++) {
        double more = max + ldexp(power, -bit);
        if (holds(dtype, more)) max = more;
    }
    return max;
}

static format_facts find_float(ht_dtype dtype)
{
    format_facts f = {.sign = holds(dtype, -1)};
    while (1 + ldexp(1, -f.mantissa - 1) != 1 && holds(dtype, 1 + ldexp(1, -f.mantissa - 1))) f.mantissa++;
    f.exponent = 8 * (int)ht_dtype_bytes(dtype) - f.sign - f.mantissa;
    f.epsilon = ldexp(1, -f.mantissa);
    f.digits = (f.mantissa + 1) * log10(2);
    f.max = find_max(dtype, f.mantissa);
    f.normal = f.subnormal = 1;
    while (f.subnormal / 2 > 0 && holds(dtype, f.subnormal / 2)) f.subnormal /= 2;
    /* A normal number has a neighbour at the relative distance epsilon. */
    for (double half = 0.5; half + half * f.epsilon > half && holds(dtype, half + half * f.epsilon); half /= 2)
        f.normal = half;
    return f;
}

static format_facts find_integer(ht_dtype dtype)
{
    format_facts f = {.sign = holds(dtype, -1), .normal = NAN, .subnormal = NAN, .epsilon = NAN};
    f.mantissa = 8 * (int)ht_dtype_bytes(dtype) - f.sign;
    f.max = ht_round_to(dtype, HUGE_VAL);
    f.digits = f.mantissa * log10(2);
    return f;
}

static format_facts find_facts(ht_dtype dtype)
{
    return ht_dtype_is_float(dtype) ? find_float(dtype) : find_integer(dtype);
}

/* ---- for people ---- */

static void add_cell(ht_text *text, int width, double value)
{
    if (isnan(value))
        ht_text_add(text, "  %*s", width, "-");
    else
        ht_text_add(text, "  %*.*g", width, width > 10 ? 6 : 3, value);
}

static void add_types(ht_text *text)
{
    ht_text_add(text, "%-7s  %-7s  %5s  %12s  %12s  %13s  %12s  %6s\n", "type", "s/e/m", "bytes", "max", "min normal",
                "min subnormal", "epsilon", "digits");
    for (size_t i = 0; i < SHOWN; i++) {
        format_facts f = find_facts(shown[i]);
        ht_text bits = {0};
        ht_text_add(&bits, "%d/%d/%d", f.sign, f.exponent, f.mantissa);
        ht_text_add(text, "%-7s  %-7s  %5zu", ht_dtype_name(shown[i]), bits.data ? bits.data : "",
                    ht_dtype_bytes(shown[i]));
        ht_text_free(&bits);
        add_cell(text, 12, f.max);
        add_cell(text, 12, f.normal);
        add_cell(text, 13, f.subnormal);
        add_cell(text, 12, f.epsilon);
        ht_text_add(text, "  %6.1f\n", f.digits);
    }
}

static void add_sums(ht_text *text, const cli_sum *sums)
{
    ht_text_add(text,
                "\nA sum of %d random terms between 0 and 2^-9, each rounded to the type; exactly %.6f.\n"
                "In order, rounded to the type after every addition; then the same terms added up in f32.\n",
                CLI_SUM_TERMS, sums[0].exact);
    ht_text_add(text, "%-7s  %11s  %12s  %8s  %11s  %12s  %8s\n", "type", "terms alone", "in the type", "error",
                "last change", "in f32", "error");
    for (size_t i = 0; i < TRIED; i++) {
        const cli_sum *s = &sums[i];
        ht_text_add(text, "%-7s  %11.1e  %12.6f  %8.1e  %11" PRId64, ht_dtype_name(tried[i]), s->terms_error,
                    s->sequential, s->sequential_error, s->last_change);
        if (tried[i] == HT_F64)
            ht_text_add(text, "  %12s  %8s\n", "-", "-");
        else
            ht_text_add(text, "  %12.6f  %8.1e\n", s->accumulated, s->accumulated_error);
    }
}

static void add_oscillators(ht_text *text, const cli_oscillator *o)
{
    ht_text_add(text,
                "\nAn oscillator, x'' = -x from x = 1: %d leapfrog steps of 1/16, %.1f periods. Errors are those of "
                "rounding alone.\n",
                CLI_OSCILLATOR_STEPS, o[0].periods);
    ht_text_add(text, "%-7s  %12s  %12s  %14s  %9s\n", "type", "energy error", "worst", "phase error", "amplitude");
    for (size_t i = 0; i < TRIED; i++)
        ht_text_add(text, "%-7s  %12.1e  %12.1e  %10.1e rad  %9.6f\n", ht_dtype_name(tried[i]), o[i].energy_error,
                    o[i].worst_energy, o[i].phase_error, o[i].amplitude);
}

/* ---- for programs ---- */

static void add_json_types(ht_text *text)
{
    ht_text_add(text, "{\n  \"types\": [\n");
    for (size_t i = 0; i < SHOWN; i++) {
        format_facts f = find_facts(shown[i]);
        ht_text_add(text, "    {\"name\": \"%s\", \"bytes\": %zu, \"sign\": %d, \"exponent\": %d, \"mantissa\": %d",
                    ht_dtype_name(shown[i]), ht_dtype_bytes(shown[i]), f.sign, f.exponent, f.mantissa);
        cli_json_number(text, "max", f.max);
        cli_json_number(text, "min_normal", f.normal);
        cli_json_number(text, "min_subnormal", f.subnormal);
        cli_json_number(text, "epsilon", f.epsilon);
        cli_json_number(text, "digits", f.digits);
        ht_text_add(text, "}%s\n", i + 1 < SHOWN ? "," : "");
    }
}

static void add_json_entries(ht_text *text, const cli_sum *sums, const cli_oscillator *o)
{
    ht_text_add(text, "  ],\n  \"sum\": {\"terms\": %d", CLI_SUM_TERMS);
    cli_json_number(text, "exact", sums[0].exact);
    ht_text_add(text, ", \"types\": [\n");
    for (size_t i = 0; i < TRIED; i++) {
        bool wider = tried[i] == HT_F64;
        ht_text_add(text, "    {\"name\": \"%s\"", ht_dtype_name(tried[i]));
        cli_json_number(text, "terms_error", sums[i].terms_error);
        cli_json_number(text, "sequential", sums[i].sequential);
        cli_json_number(text, "sequential_error", sums[i].sequential_error);
        ht_text_add(text, ", \"last_change\": %" PRId64, sums[i].last_change);
        cli_json_number(text, "f32", wider ? NAN : sums[i].accumulated);
        cli_json_number(text, "f32_error", wider ? NAN : sums[i].accumulated_error);
        ht_text_add(text, "}%s\n", i + 1 < TRIED ? "," : "");
    }
    ht_text_add(text, "  ]},\n  \"oscillator\": {\"steps\": %d", CLI_OSCILLATOR_STEPS);
    cli_json_number(text, "periods", o[0].periods);
    ht_text_add(text, ", \"types\": [\n");
    for (size_t i = 0; i < TRIED; i++) {
        ht_text_add(text, "    {\"name\": \"%s\"", ht_dtype_name(tried[i]));
        cli_json_number(text, "energy_error", o[i].energy_error);
        cli_json_number(text, "worst_energy_error", o[i].worst_energy);
        cli_json_number(text, "phase_error", o[i].phase_error);
        cli_json_number(text, "amplitude", o[i].amplitude);
        ht_text_add(text, "}%s\n", i + 1 < TRIED ? "," : "");
    }
    ht_text_add(text, "  ]}\n}\n");
}

int cmd_formats(int argc, char **argv)
{
    bool json = false;
    for (int i = 1; i < argc; i++) {
        if (cli_flag(argv, i, "--help")) return cli_puts(usage);
        if (!cli_flag(argv, i, "--json")) return cli_no_such_option("formats", argv[i]);
        json = true;
    }
    cli_sum sums[TRIED];
    cli_oscillator oscillators[TRIED];
    for (size_t i = 0; i < TRIED; i++) {
        cli_sum_try(&sums[i], tried[i]);
        cli_oscillator_try(&oscillators[i], tried[i]);
    }
    ht_text text = {0};
    if (json) {
        add_json_types(&text);
        add_json_entries(&text, sums, oscillators);
    } else {
        add_types(&text);
        add_sums(&text, sums);
        add_oscillators(&text, oscillators);
    }
    return cli_put(&text);
}
