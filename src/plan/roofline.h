/* What bounds an instruction: its cost against the ceilings of the plan's target. Part of plan/plan.h. */
#ifndef HT_PLAN_ROOFLINE_H
#define HT_PLAN_ROOFLINE_H

#include "graph/graph.h"

typedef enum ht_bound {
    HT_BOUND_COMPUTE,       /* arithmetic takes longest at the ceilings */
    HT_BOUND_MEMORY,        /* moving its bytes does */
    HT_BOUND_LATENCY,       /* both are over before an instruction is started: less than HT_LAUNCH_SECONDS */
    HT_BOUND_COMMUNICATION, /* it exchanges with other ranks */
    HT_BOUND_COUNT
} ht_bound;
extern const char *const ht_bound_names[HT_BOUND_COUNT];

/* Of an instruction that has next to nothing to do: threads are woken, or a GPU is sent a launch. */
#define HT_LAUNCH_SECONDS 5e-6

/* What keeps hardware busy in different ways. */
typedef enum ht_work {
    HT_WORK_ARITHMETIC, /* products, sums, point-wise + - × /, the rules of optimisers */
    HT_WORK_MEMORY,     /* moves, casts and fills: no arithmetic at all */
    HT_WORK_LOGIC,      /* comparisons, choices, truth values and integers as results */
    HT_WORK_SPECIAL,    /* exp, tanh, softmax, norms, random numbers: several FLOPs for each element */
    HT_WORK_COUNT
} ht_work;
extern const char *const ht_work_names[HT_WORK_COUNT];

typedef struct ht_roofline {
    int format;                 /* that its products are computed in: an ht_dtype, or HT_FORMAT_TF32 */
    double product_flops;       /* FLOP/s that bound them */
    double compute_s, memory_s; /* seconds at the ceilings */
    double limit_s;             /* the longer of both: no kernel is faster, unless caches hold its operands */
    ht_bound bound;
} ht_roofline;

/* Of several instructions together: what bounds those that take the most of the time, given by bound. */
ht_bound ht_bound_of_most(const double seconds[HT_BOUND_COUNT]);
ht_roofline ht_instr_roofline(const ht_target *target, const ht_instr *instr);
/* The number type whose ceiling a product has whose first operand is of this one: i8 for codes of 8 bits, f32 for what is
 * no number of its own. */
ht_dtype ht_product_dtype(ht_dtype operand);
/* Of the call that it is there for. It follows from the op's own precision class, cost and types. */
ht_work ht_instr_work(const ht_instr *instr);

#endif
