/* halftone/graph.h: the graph builder. A graph holds state (values that persist from step to step) and segments (static
 * graphs over it). The builder latches its first error: chain calls freely and check ht_graph_status once. */
#ifndef HALFTONE_GRAPH_H
#define HALFTONE_GRAPH_H

#include <halftone/types.h>

#ifdef __cplusplus
extern "C" {
#endif

HT_API ht_status ht_graph_create(ht_graph **out, ht_context *ctx);
HT_API void ht_graph_free(ht_graph *graph);
/* HT_OK, or the first error of the builder; the context holds the message. HT_EINVAL for NULL. */
HT_API ht_status ht_graph_status(const ht_graph *graph);

/* Parses the text form (docs/ir.md). `name`, usually the file's name, appears in messages. */
HT_API ht_status ht_graph_parse(ht_graph **out, ht_context *ctx, const char *name, const char *text, size_t length);
/* The text form; *out is heap memory for free(). */
HT_API ht_status ht_graph_print(char **out, const ht_graph *graph);
/* Checks every rule of the IR. */
HT_API ht_status ht_graph_verify(ht_graph *graph);

/* The initial value of a state or an input slot. */
typedef enum ht_init_kind { HT_INIT_ZERO, HT_INIT_CONSTANT, HT_INIT_NORMAL, HT_INIT_UNIFORM } ht_init_kind;
typedef struct ht_init {
    ht_init_kind kind;
    double a, b; /* constant: a; normal: mean a, standard deviation b; uniform: from a to b */
} ht_init;

#define HT_ZERO                    ((ht_init){HT_INIT_ZERO, 0, 0})
#define HT_CONSTANT(value)         ((ht_init){HT_INIT_CONSTANT, (value), 0})
#define HT_NORMAL(mean, deviation) ((ht_init){HT_INIT_NORMAL, (mean), (deviation)})
#define HT_UNIFORM(low, high)      ((ht_init){HT_INIT_UNIFORM, (low), (high)})

/* A model starts in the segment "forward"; these functions append to the current segment. Names consist of letters,
 * digits and _ . - / : and must not be a plain number. */
HT_API void ht_segment_begin(ht_graph *graph, const char *name);
HT_API ht_val ht_input(ht_graph *graph, const char *name, ht_dtype dtype, int rank, const int64_t *dims);
/* A trained parameter. Statistics, counters and other state without a gradient: ht_state_add. */
HT_API ht_val ht_param(ht_graph *graph, const char *name, ht_dtype dtype, int rank, const int64_t *dims, ht_init init);
HT_API ht_val ht_state_add(ht_graph *graph, const char *name, ht_dtype dtype, int rank, const int64_t *dims,
                           ht_init init);
/* Stores a new value into a state: at most once per segment, after all reads of the old value. */
HT_API void ht_store(ht_graph *graph, ht_val state, ht_val value);
/* A result that the caller can read after a run. */
HT_API void ht_output(ht_graph *graph, const char *name, ht_val value);
/* A state or an input of the current segment by name; HT_NONE when it does not exist. */
HT_API ht_val ht_find(const ht_graph *graph, const char *name);

/* Scopes name the nodes that are built next ("h.3", then "mlp" inside it), for messages and reports. */
HT_API void ht_scope_push(ht_graph *graph, const char *name);
HT_API void ht_scope_pop(ht_graph *graph);

/* Full precision under autocast: the op that computes this value, and its gradient, get no half casts and return f32;
 * operands that other ops stored in half are read as they are. */
HT_API void ht_full_precision(ht_graph *graph, ht_val value);

/* Activation checkpointing by hand: what leads from `from` to `to` is not kept for backward but computed there again,
 * from `from`. Costs time, saves memory, changes no bit. The key halftone.recompute asks for it without marks. */
HT_API void ht_checkpoint(ht_graph *graph, ht_val from, ht_val to);

/* Of HT_NONE, and of no graph: the type of a scalar, with no sizes. */
HT_API ht_dtype ht_val_dtype(const ht_graph *graph, ht_val value);
HT_API int ht_val_rank(const ht_graph *graph, ht_val value);
/* Sizes; borrowed, `rank` of them. */
HT_API const int64_t *ht_val_dims(const ht_graph *graph, ht_val value);

/* Gradients of the scalar `loss` with respect to n values, as graph, so that they can be differentiated again. The
 * gradient is zero for a value that the loss does not depend on. */
HT_API ht_status ht_gradients(ht_graph *graph, ht_val loss, size_t n, const ht_val *wrt, ht_val *grads);

#ifdef __cplusplus
}
#endif

#endif
