/* halftone formats, diff and train --numerics from outside. */
#include "cli_case.h"

/* ---- formats ---- */

static void formats__says_what_the_types_hold(void **state)
{
    data_case *c = *state;
    expect(c, "\"$H\" formats > f.txt && cat f.txt", 0, "f64      1/11/52      8  1.79769e+308  2.22507e-308");
    expect(c, "cat f.txt", 0, "f32      1/8/23       4   3.40282e+38   1.17549e-38     1.4013e-45");
    expect(c, "cat f.txt", 0, "f16      1/5/10       2         65504   6.10352e-05    5.96046e-08   0.000976562");
    expect(c, "cat f.txt", 0, "bf16     1/8/7        2   3.38953e+38   1.17549e-38    9.18355e-41     0.0078125");
    expect(c, "cat f.txt", 0, "f8e4m3   1/4/3        1           448      0.015625     0.00195312         0.125");
    expect(c, "cat f.txt", 0, "f8e5m2   1/5/2        1         57344   6.10352e-05    1.52588e-05          0.25");
    expect(c, "cat f.txt", 0, "i8       1/0/7        1           127             -              -             -");
}

static void formats__measures_sums_and_oscillators(void **state)
{
    data_case *c = *state;
    expect(c, "\"$H\" formats --json > f.json && grep -c '\"name\": \"f16\"' f.json", 0, "3\n");
    /* Additions of floats by the processor, and additions rounded by our own function: the same number. */
    expect(c,
           "grep '\"name\": \"f32\", \"terms_error\"' f.json | "
           "sed 's/.*\"sequential\": \\([^,]*\\),.*\"f32\": \\([^,]*\\),.*/\\1 \\2/' | "
           "awk '{print ($1 == $2 && $1 > 9700 && $1 < 9800) ? \"same\" : \"other\"}'",
           0, "same\n");
    /* A sum stays where half the distance to the next number is more than the largest term. */
    expect(c, "grep '\"name\": \"f16\", \"terms_error\"' f.json", 0, "\"sequential\": 4, ");
    expect(c, "grep '\"name\": \"bf16\", \"terms_error\"' f.json", 0, "\"sequential\": 0.5, ");
    expect(c, "grep '\"name\": \"f64\", \"terms_error\"' f.json", 0, "\"last_change\": 10000000, \"f32\": null");
    /* Fewer bits, larger errors. */
    expect(c,
           "sed -n 's/.*\"worst_energy_error\": \\([^,]*\\),.*/\\1/p' f.json | "
           "awk 'NR > 1 && $1 < 5 * last {bad = 1} {last = $1} END {print NR, bad ? \"bad\" : \"good\"}'",
           0, "4 good\n");
    expect(c, "\"$H\" formats --jsn", 2, "'--jsn' is not understood");
    expect(c, "\"$H\" formats > /dev/full", 1, "standard output: ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formats__says_what_the_types_hold),
        cmocka_unit_test(formats__measures_sums_and_oscillators),
    };
    return cmocka_run_group_tests(tests, data_case_begin, data_case_end);
}
