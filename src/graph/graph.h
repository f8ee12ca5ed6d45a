/* graph: the IR. Values, nodes, state, segments and programs; the builder, printer, parser, verifier, hashes and
 * rewriting; the target as plain data; the definition of an op (struct ht_op), but no op. docs/ir.md is the grammar. */
#ifndef HT_GRAPH_H
#define HT_GRAPH_H

#include <halftone/graph.h>

#include "base/base.h"
#include "graph/families.h"
#include "graph/opdef.h"
#include "graph/sample.h"
#include "graph/target.h"
#include "graph/type.h"

typedef enum ht_value_kind { HT_VALUE_NONE, HT_VALUE_STATE, HT_VALUE_INPUT, HT_VALUE_RESULT } ht_value_kind;

typedef struct ht_value {
    ht_value_kind kind;
    ht_type type;
    const char *name; /* NULL: printed as a number */
    uint32_t owner;   /* STATE: index into states; INPUT: its segment; RESULT: its node */
    uint32_t result;  /* RESULT: which one */
    ht_val base;      /* a view of this value, or none */
    int64_t offset;   /* elements from the base's first */
} ht_value;

/* The purpose of a state; the memory report counts bytes by heading. */
typedef enum ht_heading {
#define HT_HEADING(id, text) HT_HEADING_##id,
#include "graph/headings.def"
#undef HT_HEADING
    HT_HEADING_COUNT
} ht_heading;

typedef struct ht_state {
    ht_val value;
    ht_heading heading;
    ht_init init;
    bool trained;
    bool derived; /* computed from other state by the segment `derive`; never saved */
    /* What a rank holds of the tensor `whole`, if it is cut, a part, or both. A cut: the piece of one of the ranks that
     * share it along an axis. A part: row-major elements from `first` on, of that piece, or else of the tensor; the parts
     * of the ranks that divide it so, in their order, are all of it; one may be empty. */
    ht_cut cut;
    bool part;
    ht_type whole;
    int64_t first;
    /* There is one for each slot that program calls have: what a call stores is what a later call of its slot reads. */
    bool per_call;
    /* Stages of a pipeline that hold it, where several do: bit s for stage s. The first of them owns it. */
    uint64_t stages;
} ht_state;

enum { HT_MOST_STAGES = 64 }; /* of a pipeline */

typedef enum ht_role { HT_ROLE_FWD, HT_ROLE_BWD_ACT, HT_ROLE_BWD_WEIGHT, HT_ROLE_UPDATE, HT_ROLE_COUNT } ht_role;

typedef struct ht_node {
    const ht_op *op;
    uint32_t in, n_in;   /* slice of graph->operands */
    uint32_t out, n_out; /* consecutive value ids */
    const ht_attr *attr; /* complete, in the order of op->attrs */
    ht_role role;
    uint32_t region;     /* 0: none */
    bool no_merge;       /* an intended duplicate: cse never merges it */
    bool recomputed;     /* computes again what forward computed before: its FLOPs count apart */
    bool full;           /* full precision for this node and its gradient, at the request of the model's author */
    uint32_t checkpoint; /* a block that backward computes again, by its author's wish: its number; 0: none */
    uint32_t origin;     /* the node whose gradient rule made this one; 0: none */
    const char *site;    /* scope of the model's author, or NULL */
    uint64_t was;        /* a folded constant: the model hash of what it replaces; 0: none */
} ht_node;

typedef struct ht_named {
    const char *name;
    ht_val value;
} ht_named;

typedef struct ht_segment {
    const char *name;
    ht_val *inputs;
    ht_named *outputs;
    uint32_t *nodes; /* in execution order */
    size_t input_count, output_count, node_count;
    size_t input_capacity, output_capacity, node_capacity;
} ht_segment;

typedef struct ht_program_call {
    uint32_t segment;
    uint32_t times;
    uint32_t
        slot; /* which copy of the inputs and of per_call state it has, so that several can be in flight; 0 is the first */
} ht_program_call;

enum { HT_MAX_PROGRAM_SLOTS = 1024 };

typedef struct ht_program {
    const char *name;
    ht_program_call *calls;
    size_t call_count, call_capacity;
} ht_program;

struct ht_graph {
    ht_context *ctx;
    ht_arena *arena; /* names, attributes */
    ht_status status;
    ht_value *values; /* [0] is none */
    ht_node *nodes;   /* [0] is none */
    ht_val *operands;
    ht_state *states;
    ht_segment *segments;
    ht_program *programs;
    size_t value_count, node_count, operand_count, state_count, segment_count, program_count;
    size_t value_capacity, node_capacity, operand_capacity, state_capacity, segment_capacity, program_capacity;
    ht_init *input_inits; /* by value id; only inputs use it */
    size_t input_init_capacity;
    uint32_t segment; /* the builder's insertion point; UINT32_MAX: none */
    /* Attributes of every node that the builder creates. */
    ht_role role;
    uint32_t origin;
    char scope[256];
    uint16_t scope_mark[32];
    size_t scope_depth;
    /* Names of states, for uniqueness and lookup. */
    uint32_t *state_index;
    size_t state_index_capacity;
};

/* The op of `store STATE = VALUE`: inputs state and value, no result. It is built into the IR and absent from the
 * table. */
extern const ht_op ht_op_store;

/* ---- looking ---- */
static inline const ht_value *ht_value_of(const ht_graph *g, ht_val v)
{
    return &g->values[v.id];
}
static inline const ht_type *ht_type_of(const ht_graph *g, ht_val v)
{
    return &g->values[v.id].type;
}
static inline ht_val ht_node_in(const ht_graph *g, const ht_node *n, size_t i)
{
    return g->operands[n->in + i];
}
static inline ht_val ht_node_out(const ht_node *n, size_t i)
{
    return (ht_val){n->out + (uint32_t)i};
}
/* The node that makes v, or NULL for state and inputs. */
const ht_node *ht_producer(const ht_graph *g, ht_val v);
/* The start whose end a done waits for, or NULL for other nodes. */
const ht_node *ht_start_of(const ht_graph *g, const ht_node *n);
/* The value that owns the bytes of v, at the end of its chain of views. */
ht_val ht_root(const ht_graph *g, ht_val v);
ht_state *ht_state_of(const ht_graph *g, ht_val v); /* NULL unless v is a state */
/* -1 when there is none. */
int ht_segment_find(const ht_graph *g, const char *name);
int ht_program_find(const ht_graph *g, const char *name);
/* Do two values of one root overlap? Compared by extent: a strided view counts from its first to its last byte. */
bool ht_overlap(const ht_graph *g, ht_val a, ht_val b);
extern const char *const ht_role_names[HT_ROLE_COUNT];
extern const char *const ht_heading_names[HT_HEADING_COUNT];

/* A node as its rules see it. Storage for up to 8 operands without an allocation; more come from the arena. */
typedef struct ht_call_storage {
    ht_call call;
    const ht_type *in[8], *out[8];
} ht_call_storage;
/* Valid until the graph's values move (the builder adds one). NULL when memory is out. */
const ht_call *ht_node_call(const ht_graph *g, const ht_node *n, ht_arena *arena, ht_call_storage *storage);

/* ---- building ---- */
/* Latches a failure on the graph; the message gets the scope appended. */
void ht_graph_fail(ht_graph *g, ht_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* For builders that look at their arguments themselves. False: the graph is NULL or has failed, or the argument is NULL,
 * which is latched as "input: dims is NULL". */
bool ht_graph_need(ht_graph *g, const void *pointer, const char *function, const char *argument);
/* The same for `rank` sizes: NULL is fine where there are none. */
bool ht_graph_need_dims(ht_graph *g, const char *function, int rank, const int64_t *dims);
/* May a builder look at v? False for none, and for one of another graph, which is latched; also as above. */
bool ht_graph_has(ht_graph *g, ht_val v);

#define HT_VALS(...)                                                                                                   \
    sizeof((ht_val[]){__VA_ARGS__}) / sizeof(ht_val), (const ht_val[])                                                 \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define HT_ATTRS(...)                                                                                                  \
    sizeof((ht_attr[]){__VA_ARGS__}) / sizeof(ht_attr), (const ht_attr[])                                              \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }
#define HT_NO_ATTRS 0, NULL
#define HT_INT(name, value)                                                                                            \
    {                                                                                                                  \
        .key = (name), .kind = HT_ATTR_INT, .i = (value)                                                               \
    }
#define HT_FLOAT(name, value)                                                                                          \
    {                                                                                                                  \
        .key = (name), .kind = HT_ATTR_FLOAT, .f = (value)                                                             \
    }
#define HT_TEXT(name, value)                                                                                           \
    {                                                                                                                  \
        .key = (name), .kind = HT_ATTR_TEXT, .text = (value)                                                           \
    }
#define HT_INTS(name, n, values)                                                                                       \
    {                                                                                                                  \
        .key = (name), .kind = HT_ATTR_INTS, .count = (size_t)(n), .ints = (values)                                    \
    }
#define HT_FLOATS(name, n, values)                                                                                     \
    {                                                                                                                  \
        .key = (name), .kind = HT_ATTR_FLOATS, .count = (size_t)(n), .floats = (values)                                \
    }

/* Creates a node, the only way to do so: checks arity and attributes, runs shape inference, appends to the current
 * segment. `want` is NULL or n_out types: required for HT_OP_TYPED, otherwise their shapes must be the inferred ones
 * and their float dtypes replace the inferred ones where the precision class allows. Without it results lie in the
 * space of the first input. `out` receives n_out values (none
 * on failure). A none among required inputs is a failure that was latched before. */
void ht_emit(ht_graph *g, const ht_op *op, size_t n_in, const ht_val *in, size_t n_attr, const ht_attr *attr,
             const ht_type *want, ht_val *out);
/* By name; for an op of one result, which is returned. */
ht_val ht_emit1(ht_graph *g, const char *op, const ht_type *want, size_t n_in, const ht_val *in, size_t n_attr,
                const ht_attr *attr);
/* By name; for an op of several results. */
void ht_emit_n(ht_graph *g, const char *op, const ht_type *want, size_t n_in, const ht_val *in, size_t n_attr,
               const ht_attr *attr, ht_val *out);

ht_val ht_graph_add_state(ht_graph *g, const char *name, const ht_type *type, const ht_state *like);
/* Removes states, by index, that no segment names any more and no other state is a view of. */
void ht_graph_drop_states(ht_graph *g, const bool *drop);
ht_val ht_graph_add_input(ht_graph *g, const char *name, const ht_type *type, ht_init init);
uint32_t ht_graph_add_segment(ht_graph *g, const char *name);
void ht_graph_add_program_call(ht_graph *g, const char *program, ht_program_call call);
/* An integer attribute of a node that is there already; the key is in its op's table. */
void ht_node_set_int(ht_graph *g, uint32_t node, const char *key, int64_t value);
void ht_value_name(ht_graph *g, ht_val v, const char *name);
/* Makes v a view of base: same dtype and space, within its bytes, strides as in v's type. */
void ht_value_view(ht_graph *g, ht_val v, ht_val base, int64_t offset);
ht_init ht_input_init(const ht_graph *g, ht_val input);

/* ---- whole graphs ---- */
ht_status ht_graph_clone(ht_graph **out, const ht_graph *g);
/* Equal up to the names of unnamed values. */
bool ht_graph_equal(const ht_graph *a, const ht_graph *b);
/* Of the structure with types, attributes and names. */
ht_status ht_graph_hash(uint64_t *out, const ht_graph *g);
/* The model hash: of what the model computes, see docs/ir.md; 0 for a graph without "forward" and "micro_first". Equal
 * before and after every system-level pass. Snapshots record it. */
ht_status ht_model_hash(uint64_t *out, const ht_graph *g);
/* What a graph computes before it is changed: the hash of each segment (its outputs and what it stores), and of what programs call. `check` fails with
 * HT_EVERIFY where the graph computes something else since; segments that were added are not compared. `who` begins its
 * message. Afterwards the hashes are those of the graph as it is now. */
typedef struct ht_step_hashes {
    uint64_t programs;
    uint64_t *segments; /* by segment; NULL: nothing was taken */
    size_t segment_count;
} ht_step_hashes;
ht_status ht_step_hashes_take(ht_step_hashes *out, const ht_graph *g);
ht_status ht_step_hashes_check(ht_step_hashes *hashes, const ht_graph *g, const char *who);
void ht_step_hashes_free(ht_step_hashes *hashes); /* also after a failed take */
/* Model hash of every value of one segment, by value id; heap memory for free(), NULL when memory is out. */
uint64_t *ht_value_hashes(const ht_graph *g, uint32_t segment);

/* Liveness. For every value id: the position of its last use in the segment's order, views and outputs included
 * (outputs live to the end: node_count); UINT32_MAX where it has none. Heap memory for free(); NULL when memory is out.
 */
uint32_t *ht_liveness(const ht_graph *g, uint32_t segment);

/* ---- rewriting ---- */
/* Rewriting a segment: a pass visits the old nodes and for each keeps it or replaces its results. Nodes that the
 * builder emits in between are inserted at that place.
 *      ht_rewrite rw;
 *      if (ht_rewrite_begin(&rw, g, segment))
 *          for (size_t i = 0; i < rw.count; i++) ht_rewrite_keep(&rw, rw.old[i]);
 *      return ht_rewrite_end(&rw); */
typedef struct ht_rewrite {
    ht_graph *g;
    uint32_t segment, resume;
    uint32_t *old;
    size_t count;
    ht_val *map; /* by value id; none: itself */
    size_t map_capacity;
} ht_rewrite;
/* Gives a done what its start reads now, after a pass has changed the start's inputs. */
void ht_rewrite_done(ht_graph *g, const ht_node *done);
bool ht_rewrite_begin(ht_rewrite *rw, ht_graph *g, uint32_t segment);
ht_val ht_rewrite_map(const ht_rewrite *rw, ht_val v);
void ht_rewrite_keep(ht_rewrite *rw, uint32_t node);
void ht_rewrite_replace(ht_rewrite *rw, ht_val old, ht_val with);
/* Maps outputs, frees; returns the graph's status. */
ht_status ht_rewrite_end(ht_rewrite *rw);

/* Appends a copy of a segment under a new name; map (by old value id, heap memory for free()) may be NULL. */
uint32_t ht_segment_copy(ht_graph *g, uint32_t from, const char *name, ht_val **map);

#endif
