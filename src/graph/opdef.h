/* The definition of an op. Its rules see an ht_call: one use of an op with its types and attributes, without the graph,
 * so that the same rules serve the builder, the planner and a kernel that outlives the graph. */
#ifndef HT_GRAPH_OPDEF_H
#define HT_GRAPH_OPDEF_H

#include "graph/type.h"

typedef enum ht_attr_kind { HT_ATTR_INT, HT_ATTR_FLOAT, HT_ATTR_TEXT, HT_ATTR_INTS, HT_ATTR_FLOATS } ht_attr_kind;

typedef struct ht_attr {
    const char *key;
    ht_attr_kind kind;
    int64_t i;
    double f;
    const char *text;
    size_t count; /* of a list */
    const int64_t *ints;
    const double *floats;
} ht_attr;

/* A row of an op's attribute table: name, kind and default. */
typedef struct ht_attr_def {
    const char *key;
    ht_attr_kind kind;
    bool required;
    bool unhashed; /* how the system cuts the batch, not what the model is: the model hash ignores it */
    ht_attr standard;
} ht_attr_def;

#define HT_DEF_INT(name, value)                                                                                        \
    {                                                                                                                  \
        .key = (name), .kind = HT_ATTR_INT, .standard = {.i = (value) }                                                \
    }
#define HT_DEF_UNHASHED_INT(name, value)                                                                               \
    {                                                                                                                  \
        .key = (name), .kind = HT_ATTR_INT, .unhashed = true, .standard = {.i = (value) }                              \
    }
#define HT_DEF_FLOAT(name, value)                                                                                      \
    {                                                                                                                  \
        .key = (name), .kind = HT_ATTR_FLOAT, .standard = {.f = (value) }                                              \
    }
#define HT_DEF_TEXT(name, value)                                                                                       \
    {                                                                                                                  \
        .key = (name), .kind = HT_ATTR_TEXT, .standard = {.text = (value) }                                            \
    }
#define HT_DEF_INTS(name)                                                                                              \
    {                                                                                                                  \
        .key = (name), .kind = HT_ATTR_INTS                                                                            \
    }
#define HT_DEF_FLOATS(name)                                                                                            \
    {                                                                                                                  \
        .key = (name), .kind = HT_ATTR_FLOATS                                                                          \
    }
#define HT_DEF_REQUIRED(name, kind_)                                                                                   \
    {                                                                                                                  \
        .key = (name), .kind = (kind_), .required = true                                                               \
    }
#define HT_DEF_END                                                                                                     \
    {                                                                                                                  \
        .key = NULL                                                                                                    \
    }

/* Precision classes, after Mixed Precision Training (docs/precision.md). A result of dot, reduce or point may have any
 * float type: the type is the rounding. A result of move or exact has the type of the shape rule. */
typedef enum ht_prec { HT_PREC_DOT, HT_PREC_REDUCE, HT_PREC_POINT, HT_PREC_MOVE, HT_PREC_EXACT } ht_prec;

/* Fuse class: how the regions pass may group it. */
typedef enum ht_fuse { HT_FUSE_NONE, HT_FUSE_POINT, HT_FUSE_REDUCE, HT_FUSE_DOT, HT_FUSE_MOVE } ht_fuse;

enum {
    HT_OP_TYPED = 1 << 0,   /* the caller gives the result types; the rule checks them */
    HT_OP_INPLACE = 1 << 1, /* result i may be written over an input of the same type: element i needs only element i */
    HT_OP_COMMUTATIVE = 1 << 2, /* inputs 0 and 1 may be swapped */
    HT_OP_EFFECT = 1 << 3,      /* never removed, merged or folded */
    HT_OP_NO_FOLD = 1 << 4,     /* large or random: constants do not fold through it */
    HT_OP_ERASED = 1 << 5,      /* a cast or copy: the model hash ignores it */
    HT_OP_CROSSES = 1 << 6,     /* its operands may lie in different spaces; all other ops compute in one */
    HT_OP_COLLECTIVE = 1 << 7,  /* exchanges with other ranks: its attributes `group` and `ranks` say with which */
};

/* One use of an op. A missing optional input is NULL. Attributes are complete: defaults are filled in. */
typedef struct ht_call {
    const struct ht_op *op;
    size_t n_in, n_out, n_attr;
    const ht_type *const *in;
    const ht_type *const *out; /* NULL while the shape rule runs */
    const ht_attr *attr;
} ht_call;

typedef struct ht_cost {
    /* A multiply-add counts two. FLOPs of a node that is computed again count as recomputed and as nothing else. */
    double dot_flops;   /* of products: what ops of the class HT_PREC_DOT are there for */
    double other_flops; /* everything else */
    double recomputed_flops;
    double bytes; /* read and written: the distinct elements of each operand once, unless the rule says otherwise */
} ht_cost;

/* The arguments of a gradient rule: values of the graph to use, and the gradients to fill in. */
typedef struct ht_grad {
    const ht_call *call;
    const ht_val *x;  /* inputs */
    const ht_val *y;  /* results */
    const ht_val *dy; /* gradients of the results; none: zero */
    const bool *need; /* which inputs need a gradient */
    ht_val *dx;       /* to fill; none means zero */
} ht_grad;

typedef struct ht_op {
    size_t size; /* sizeof(ht_op) */
    const char *name;
    ht_prec prec;
    ht_fuse fuse;
    unsigned flags;
    int min_in, max_in, n_out; /* inputs from min_in on are optional and may be left out anywhere; n_out <= 8 */
    unsigned aux_out;          /* bit i: result i is saved for backward; no gradient flows into it */
    unsigned of_stored;        /* bit i: result i is made of result 0 as it is stored: of what its type leaves of it */
    unsigned half_in;          /* with mixed precision, bit i: input i is read in half */
    unsigned f32_in;           /* with mixed precision, bit i: input i is read in f32: what is beside codes */
    unsigned f32_out;          /* with mixed precision, bit i: result i stays f32: sums, statistics, cells, losses */
    const ht_attr_def *attrs;  /* ends with HT_DEF_END; NULL: none */
    /* Checks the inputs and writes n_out types; for HT_OP_TYPED they come filled and are checked. Strides are not
     * its business. Messages say what, not where: the builder adds the op's name and the place. */
    ht_status (*infer)(ht_context *ctx, const ht_call *call, ht_type *out);
    void (*cost)(const ht_call *call, ht_cost *cost); /* sets dot and other FLOPs; bytes come filled in */
    ht_status (*grad)(ht_graph *graph, const ht_grad *grad);
    const char *no_grad; /* the reason, where grad is NULL */
    /* The definition of the op, in f64 on row-major arrays; integers and bool are numbers too. */
    void (*ref)(const ht_call *call, const double *const *in, double *const *out);
    /* Move ops: the result as a view of input 0. Fills out->stride and *offset (elements from input 0's first); false
     * when only a copy will do. */
    bool (*view)(const ht_call *call, ht_type *out, int64_t *offset);
    /* Ops that only put their inputs together: where input i lies in the result, in elements from its first; -1: not in
     * one piece. */
    int64_t (*part)(const ht_call *call, size_t i);
    const char *const *samples; /* lines as in graph/sample.h; ends with NULL */
    /* A pair: `start` begins something that may go on beside the nodes behind it, `done` waits for it and has the
     * result. Inputs of a done are the start's result, which nothing else reads, and all that the start reads; its
     * result lies in the bytes of the start's. Neither is merged or folded. docs/ir.md has the rules. */
    const struct ht_op *done;  /* of a start; else NULL */
    const struct ht_op *start; /* of a done; else NULL */
} ht_op;

/* Attributes of a call; the key must be in the op's table. */
const ht_attr *ht_call_attr(const ht_call *call, const char *key);
int64_t ht_call_int(const ht_call *call, const char *key);
double ht_call_float(const ht_call *call, const char *key);
const char *ht_call_text(const ht_call *call, const char *key);

size_t ht_op_attr_count(const ht_op *op);
/* Is the key in the op's table? */
bool ht_op_has_attr(const ht_op *op, const char *key);
/* A deep copy; false when memory is out. */
bool ht_attr_copy(ht_arena *arena, ht_attr *to, const ht_attr *from);
/* Bit for bit: 0 and -0 differ, NaN equals itself. Keys are not compared. */
bool ht_attr_equal(const ht_attr *a, const ht_attr *b);
uint64_t ht_attr_hash(uint64_t hash, const ht_attr *attr);

/* Adds an op to the context's table; the row is borrowed. A name that is taken is refused. */
ht_status ht_op_add(ht_context *ctx, const ht_op *op);
/* NULL when there is none. */
const ht_op *ht_op_find(const ht_context *ctx, const char *name, size_t length);
/* The name that is nearest to a misspelt one, for "did you mean"; NULL: none is near. */
const char *ht_op_nearest(const ht_context *ctx, const char *name, size_t length);

/* The op's own cost rule on top of the bytes of its operands. */
ht_cost ht_call_cost(const ht_call *call);
/* FLOPs of all kinds. */
double ht_cost_flops(ht_cost cost);
void ht_cost_add(ht_cost *sum, ht_cost cost, double times);
/* The same work, done once more to save memory. */
ht_cost ht_cost_recomputed(ht_cost cost);

#endif
