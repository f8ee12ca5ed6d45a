/* halftone/graph.h: building a model. A graph holds state (what lasts from step to step) and segments (static graphs
 * over it). Building latches its first error: chain calls freely and ask ht_graph_status once. */
#ifndef HALFTONE_GRAPH_H
#define HALFTONE_GRAPH_H

#include <halftone/types.h>

#ifdef __cplusplus
extern "C" {
#endif

HT_API ht_status ht_graph_create(ht_graph **out, ht_context *ctx);
HT_API void ht_graph_free(ht_graph *graph);
/* HT_OK, or the first thing that went wrong while building; the context holds the message. */
HT_API ht_status ht_graph_status(const ht_graph *graph);

/* Reads the text form (docs/ir.md). `name` stands in messages, usually the file's name. */
HT_API ht_status ht_graph_parse(ht_graph **out, ht_context *ctx, const char *name, const char *text, size_t length);
/* The text form; *out is heap memory for free(). */
HT_API ht_status ht_graph_print(char **out, const ht_graph *graph);
/* Checks every rule of the IR. */
HT_API ht_status ht_graph_verify(ht_graph *graph);

/* How a state or an input slot starts. */
typedef enum ht_init_kind { HT_INIT_ZERO, HT_INIT_CONSTANT, HT_INIT_NORMAL, HT_INIT_UNIFORM } ht_init_kind;
typedef struct ht_init {
    ht_init_kind kind;
    double a, b; /* constant: a; normal: mean a, deviation b; uniform: from a to b */
} ht_init;

#define HT_ZERO                    ((ht_init){HT_INIT_ZERO, 0, 0})
#define HT_CONSTANT(value)         ((ht_init){HT_INIT_CONSTANT, (value), 0})
#define HT_NORMAL(mean, deviation) ((ht_init){HT_INIT_NORMAL, (mean), (deviation)})
#define HT_UNIFORM(low, high)      ((ht_init){HT_INIT_UNIFORM, (low), (high)})

/* A model starts in the segment "forward"; these append to the current segment. Names are letters, digits and _ . - / :
 * and must not be a plain number. */
HT_API void ht_segment_begin(ht_graph *graph, const char *name);
HT_API ht_val ht_input(ht_graph *graph, const char *name, ht_dtype dtype, int rank, const int64_t *dims);
/* Trained by default; statistics and counters are made with ht_state. */
HT_API ht_val ht_param(ht_graph *graph, const char *name, ht_dtype dtype, int rank, const int64_t *dims, ht_init init);
HT_API ht_val ht_state_add(ht_graph *graph, const char *name, ht_dtype dtype, int rank, const int64_t *dims,
                           ht_init init);
/* The state's new value: once per segment, and the old one is not read after it. */
HT_API void ht_store(ht_graph *graph, ht_val state, ht_val value);
/* A result that the caller can read after a run. */
HT_API void ht_output(ht_graph *graph, const char *name, ht_val value);
/* A state or an input of the current segment by name; none when there is no such. */
HT_API ht_val ht_find(const ht_graph *graph, const char *name);

/* Names for what is built next ("h.3", then "mlp" inside it): they stand in messages and reports. */
HT_API void ht_scope_push(ht_graph *graph, const char *name);
HT_API void ht_scope_pop(ht_graph *graph);

/* With mixed precision, nothing is made half for the op that makes this value and for its gradient, and they write f32;
 * what other ops have made half they read as it is. */
HT_API void ht_full_precision(ht_graph *graph, ht_val value);

HT_API ht_dtype ht_val_dtype(const ht_graph *graph, ht_val value);
HT_API int ht_val_rank(const ht_graph *graph, ht_val value);
/* Sizes; borrowed, `rank` of them. */
HT_API const int64_t *ht_val_dims(const ht_graph *graph, ht_val value);

/* Gradients of the scalar `loss` with respect to n values, as graph: they can be differentiated again. A value that the
 * loss does not depend on gets zeros. */
HT_API ht_status ht_gradients(ht_graph *graph, ht_val loss, size_t n, const ht_val *wrt, ht_val *grads);

#ifdef __cplusplus
}
#endif

#endif
