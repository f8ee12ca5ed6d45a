/* The interpreter: executes a segment on the ops' f64 references. Slow and simple; it is the oracle for kernels, passes
 * and plans, and computes folded constants. */
#ifndef HT_OP_REFERENCE_H
#define HT_OP_REFERENCE_H

#include "graph/graph.h"

typedef struct ht_reference ht_reference;

/* `round`: values take the rounding of their dtype, as in a run; else everything stays f64. State and inputs start as
 * their init says (random inits draw as the init segment does, with `seed`, which the state rng.seed also starts as).
 * The graph is borrowed. */
ht_status ht_reference_create(ht_reference **out, ht_graph *g, bool round, uint64_t seed);
void ht_reference_free(ht_reference *ref);
/* The elements of a state or input (writable), or of a result of the segment run last; row-major f64. NULL when there
 * is no such value. */
double *ht_reference_value(ht_reference *ref, ht_val v);
/* Runs one segment; stores take effect. */
ht_status ht_reference_run(ht_reference *ref, uint32_t segment);
/* Runs a program by name. */
ht_status ht_reference_run_program(ht_reference *ref, const char *name);
/* Output of the segment run last, by name; NULL when there is none. */
double *ht_reference_output(ht_reference *ref, const char *name);

#endif
