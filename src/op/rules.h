/* Shape checks, axes, promotion and costs shared by several ops. */
#ifndef HT_OP_RULES_H
#define HT_OP_RULES_H

#include "graph/graph.h"

/* result 0 is like input 0 */
ht_status ht_infer_like_0(ht_context *ctx, const ht_call *call, ht_type *out);

/* Checks for shape rules; each message names what was wrong. */
ht_status ht_need_float(ht_context *ctx, const ht_call *call, size_t input);
ht_status ht_need_int(ht_context *ctx, const ht_call *call, size_t input);
ht_status ht_need_rank(ht_context *ctx, const ht_call *call, size_t input, int rank);
/* Resolves an axis attribute (negative counts from the end) to 0..rank-1. */
ht_status ht_need_axis(ht_context *ctx, const ht_call *call, const char *key, int rank, int *axis);
/* The same for a call that was checked before. */
int ht_call_axis(const ht_call *call, const char *key, int rank);

/* An attribute that is 0 or 1. */
ht_status ht_need_flag(ht_context *ctx, const ht_call *call, const char *key);
/* A list of axes of input 0, each once. */
ht_status ht_need_axes(ht_context *ctx, const ht_call *call, const char *key);
/* A list of axes as a mask, for a call that was checked before; an empty list means all of them. */
unsigned ht_call_axes(const ht_call *call, const char *key, int rank);

/* The float type that holds both: the wider, and f32 for two different ones of one width (f16 and bf16). */
ht_dtype ht_wider(ht_dtype a, ht_dtype b);

/* x as [outer, size, inner] around one axis. */
typedef struct ht_around {
    int64_t outer, size, inner;
} ht_around;
ht_around ht_around_axis(const ht_type *type, int axis);

/* Which numbers of its stream a random op draws: for element i number first + i, and `skip` more for each whole block
 * before it, since rows of other micro-batches lie between the blocks. */
typedef struct ht_random_index {
    uint64_t first, block, skip;
} ht_random_index;
/* For a call whose rows begin at row `sample` of the global batch. */
ht_random_index ht_random_indices(const ht_call *call, int64_t sample);
static inline uint64_t ht_random_number(const ht_random_index *index, uint64_t i)
{
    return index->first + i + (index->skip ? i / index->block * index->skip : 0);
}

/* The row of input 0 at which the part of a dynamic_slice or dynamic_update_slice begins. */
int64_t ht_dynamic_first_row(const ht_call *call, int64_t first);

/* FLOPs: one per element of result 0, times `per`. */
#define HT_COST_PER_OUT(name, per)                                                                                     \
    static void name(const ht_call *call, ht_cost *cost)                                                               \
    {                                                                                                                  \
        cost->other_flops = (per) * (double)ht_type_elems(call->out[0]);                                               \
    }
/* Bytes of the distinct elements of so many different rows, and of no more than there are: what a lookup reads. */
double ht_cost_rows(const ht_type *type, int64_t rows);
/* Cost of data movement: no FLOPs. */
void ht_cost_none(const ht_call *call, ht_cost *cost);

/* x in a space: itself if it lies there, else a copy. */
ht_val ht_to_space(ht_graph *g, ht_val x, ht_space space);

/* A scalar or any-shape constant like x (dtype, space and shape), for gradient rules. */
ht_val ht_fill_like(ht_graph *g, ht_val x, double value);

#endif
