/* What the tests that walk the op table share: one cmocka case per op, samples as calls. */
#ifndef HT_TESTS_OP_TESTS_H
#define HT_TESTS_OP_TESTS_H

#include "context_fixture.h"
#include "kernel/kernel.h"
#include "op/op.h"

/* One case "GROUP: OP" per op of the context's table that is wanted (NULL: all); *state is the const ht_op *. Returns
 * the number of failures. HALFTONE_TEST_OP=name leaves only that op. */
int op_tests_run(const char *group, CMUnitTestFunction test, bool (*wanted)(const ht_op *op));

/* A sample as one call, with the graph that holds it. */
typedef struct op_case {
    const ht_op *op;
    const char *line;
    const char *variant; /* for messages */
    ht_arena *arena;
    ht_sample sample;
    ht_graph *graph;
    /* The call with types of its own: those of the graph move when it grows. */
    ht_call made;
    ht_type in_type[HT_SAMPLE_MAX], out_type[8];
    const ht_type *in[HT_SAMPLE_MAX], *out[8];
    const ht_call *call;
} op_case;

/* Parses a line; a line that does not parse fails the test. */
void op_case_parse(op_case *c, const ht_op *op, const char *line);
/* Every float operand and result becomes dtype. */
void op_case_floats(op_case *c, ht_dtype dtype);
/* Builds graph and call; false when the builder refuses (the context holds the message). */
bool op_case_build(op_case *c);
void op_case_free(op_case *c);

/* Fails with the op, the line and the variant in front. */
_Noreturn void op_case_fail(const op_case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The op's node in the graph of a built case; the pointer is good until the graph grows. */
const ht_node *op_case_node(const op_case *c);

/* Σ weight·y over n values. The weights become inputs PREFIX0, PREFIX1 … of the values' types: `weights` receives them,
 * and op_weight(name, index) is what they should hold. */
ht_val op_weighted_sum(ht_graph *g, size_t n, const ht_val *y, const char *prefix, ht_val *weights);
/* The float results of the call that gradients flow into; returns how many. */
size_t op_case_results(const op_case *c, ht_val results[8]);

/* f64 arrays of the call: inputs hold the sample's values, rounded to their types. */
typedef struct op_arrays {
    double *in[HT_SAMPLE_MAX]; /* NULL where an input is left out */
    double *out[8];
} op_arrays;
void op_arrays_make(op_arrays *a, op_case *c);
void op_arrays_reference(op_arrays *a, const op_case *c);

/* Runs a kernel on the arrays: every operand in memory of exactly its size, row-major. */
void op_kernel_run(const ht_kernel *kernel, const ht_target *target, const ht_call *call, op_arrays *a);

/* Uniform in -1..1, but no closer than 0.1 to 0: a pure function of its arguments. */
double op_weight(const char *site, int64_t index);
double op_largest(const double *values, int64_t n);
/* Half the distance from 1 to the next number of the type. */
double op_unit_roundoff(ht_dtype dtype);

#endif
