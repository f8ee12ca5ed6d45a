/* The number types in which kernels are tested on the samples of an op, and how far off their results may be. */
#ifndef HT_TESTS_OP_VARIANTS_H
#define HT_TESTS_OP_VARIANTS_H

#include "op_tests.h"

typedef struct op_variant {
    const char *name;
    ht_dtype in_even, in_odd; /* what f32 inputs become, by position */
    ht_dtype out;             /* what float results become; COUNT: as inferred or written */
    bool as_written;
    bool special; /* zeros of both signs, infinities, NaN and subnormal numbers among the inputs */
} op_variant;
extern const op_variant op_variants[];
extern const size_t op_variant_count;

/* Is the op tested with it? Products with the zeros that stand for padding and hidden keys may make NaN of an infinity. */
bool op_variant_fits(const ht_op *op, const op_variant *v);
/* Turns the case into the variant and builds it; false where the op does not take it, or where it is one of the
 * others. */
bool op_variant_build(op_case *c, const op_variant *v);
/* Some elements of every float input become what arithmetic treats specially. */
void op_arrays_special(op_arrays *a, const op_case *c);

/* relative: the one rounding to the result's type. absolute: what `real` arithmetic of K operations per element may
 * lose; errors of a sum grow like √K, and are measured against the largest thing around. */
typedef struct op_bound {
    bool exact;
    double relative, absolute;
} op_bound;
/* `a` holds the reference. */
op_bound op_bound_of(const op_case *c, const op_arrays *a, size_t result);
bool op_close_enough(const op_bound *b, ht_dtype dtype, double got, double want);

#endif
