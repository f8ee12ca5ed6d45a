/* A plan as rows for people: what a training step does to each layer, in the blocks of Figure 1 of "Mixed Precision
 * Training". */
#ifndef HT_PLAN_EXPLAIN_H
#define HT_PLAN_EXPLAIN_H

#include "graph/graph.h"

typedef enum ht_figure_block {
    HT_FIGURE_FLOAT2HALF, /* the half copy of a parameter */
    HT_FIGURE_FWD,
    HT_FIGURE_BWD_ACT,
    HT_FIGURE_BWD_WEIGHT,
    HT_FIGURE_UPDATE,
    HT_FIGURE_COUNT
} ht_figure_block;
extern const char *const ht_figure_names[HT_FIGURE_COUNT];

/* One instruction; of an instruction that updates many parameters at once, the share of one of them. */
typedef struct ht_explain_row {
    const char *layer; /* the model author's scope; "(none)", "(update)" where there is none */
    ht_figure_block block;
    const char *op;                   /* "matmul + add + gelu" */
    const char *in, *out;             /* number types, each once: "bf16", "f32 bf16" */
    const char *in_types, *out_types; /* with shapes, all of them */
    const char *prec_class;           /* what chose the types */
    ht_cost cost;
    const char *kernel;
    const char *refused; /* rows before it and why: "name: reason; name: reason", or "" */
    size_t layer_order, order;
} ht_explain_row;

typedef struct ht_explanation {
    ht_arena *arena;
    ht_explain_row *rows; /* layer by layer, in the order of forward; in a layer, block by block */
    size_t count, capacity;
} ht_explanation;

/* Of the first micro-batch and the update, or of a plan without them of "forward". */
ht_status ht_plan_explain(ht_explanation *out, const ht_plan *plan);
void ht_explanation_free(ht_explanation *explanation);

#endif
