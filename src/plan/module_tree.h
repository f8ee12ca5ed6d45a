/* The modules of a model as a tree, by the scopes of its author: "h.3.attn" is a child of "h.3". Part of plan/plan.h. */
#ifndef HT_PLAN_MODULE_TREE_H
#define HT_PLAN_MODULE_TREE_H

#include "plan/roofline.h"

/* With all that is below it. */
typedef struct ht_module {
    const char *name;                         /* the whole path; "" of the model */
    size_t parent;                            /* of the model: itself */
    int depth;                                /* 0 of the model */
    int64_t params;                           /* elements that are trained */
    double forward_flops, backward_flops;     /* of products */
    double forward_seconds, backward_seconds; /* backward: with what is computed again */
    double bytes, limit_seconds;              /* of both; the limit: at the ceilings of the plan's target */
    double bound_seconds[HT_BOUND_COUNT];     /* of both: by what bounds the instructions */
} ht_module;

typedef struct ht_module_tree {
    ht_arena *arena;
    ht_module *list; /* a parent before its children, in the order of forward */
    size_t count, capacity;
} ht_module_tree;

/* One with the model alone; after a failure, too, free. */
ht_status ht_module_tree_create(ht_module_tree *tree, const ht_plan *plan);
/* `times` runs that took `seconds` together. Those of the update belong to no module. */
ht_status ht_module_tree_add(ht_module_tree *tree, const ht_plan *plan, const ht_plan_segment *segment, size_t instr,
                             double times, double seconds);
/* Once all instructions are there: adds the parameters, and puts the list in order. */
ht_status ht_module_tree_sort(ht_module_tree *tree, const ht_plan *plan);
void ht_module_tree_free(ht_module_tree *tree);

#endif
