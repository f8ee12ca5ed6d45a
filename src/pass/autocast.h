/* What the files of the pass autocast share: the policy, and half copies of parameters. */
#ifndef HT_PASS_AUTOCAST_H
#define HT_PASS_AUTOCAST_H

#include <regex.h>

#include "pass/pass.h"

typedef struct ht_policy {
    ht_dtype half;          /* f16 or bf16 */
    bool masters;           /* parameters stay f32 and have a half copy; else they are half themselves */
    ht_dtype gradients;     /* of the accumulators */
    ht_dtype moments;       /* of the optimiser's state */
    bool stochastic;        /* the update rounds half parameters by chance instead of to the nearest */
    bool residual_f32;      /* tables are looked up in f32, so that what is added to their rows stays f32 */
    bool half_biases;       /* biases of products have a half copy, too */
    bool half_products;     /* what products make is half before any point-wise node but an addition */
    bool half_convolutions; /* what convolutions make is half, whoever reads it */
    const char *f32_ops;    /* names between commas: read and made in f32 */
    const char *half_ops;   /* names between commas: their results are half whatever their class says */
    regex_t f32_params;     /* these have no half copy */
    bool has_f32_params;
} ht_policy;

/* The half copies that a graph has got so far. */
typedef struct ht_half_copies {
    ht_graph *g;
    const ht_policy *policy;
    ht_val *copy; /* by value id of a state: its half copy, or none */
    size_t capacity;
} ht_half_copies;

/* The graph in fp64 (autocast_f64.c). */
ht_status ht_autocast_f64(ht_graph *g);

/* Another value as input i of a node. */
void ht_autocast_set_operand(ht_graph *g, const ht_node *n, size_t i, ht_val v);
/* The types of a node's results, by its op's rule from the inputs that it has now. */
void ht_autocast_infer(ht_graph *g, const ht_node *n);

/* Types of state as the policy wants them, where it differs from what the optimizer pass made. */
void ht_policy_types_state(ht_graph *g, const ht_policy *policy);

/* The half copy of a parameter: made when it is asked for the first time, as a view of its group's copy where it lies in
 * a group. None for a state that has none: not a parameter, fewer than two axes (one with half_biases), f32 by name. */
ht_val ht_half_copy(ht_half_copies *copies, ht_val state);
/* Emits the stores into copies of `state`, which is about to become `value`. */
void ht_half_copy_store(ht_half_copies *copies, ht_val state, ht_val value);
/* The segment "derive" makes all copies from their masters. */
ht_status ht_half_copies_derive(ht_half_copies *copies);

#endif
