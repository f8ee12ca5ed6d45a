/* What an offload moves, and the part of the segment "update" that computes on it. */
#ifndef HT_PASS_UPDATE_UNITS_H
#define HT_PASS_UPDATE_UNITS_H

#include "pass/pass.h"

/* A unit is a connected part of the update: the update of a flat group, of a tile of one, or of a tensor. Nodes outside
 * of units read nothing that units make, so the order of the segment can be: all but stores, the units one after the other,
 * other stores. */
typedef struct ht_update_units {
    uint32_t segment;
    ht_space *goes;    /* by value id: where a state goes, and views of it; MAIN: it stays where it is */
    size_t count;      /* 0: nothing is updated that moves */
    uint32_t *of_node; /* by node id: 1 + its unit; 0: none */
    uint32_t *nodes;   /* by unit, then in the segment's order */
    size_t *first;     /* by unit: where its nodes begin; [count] is their end */
} ht_update_units;

/* State in main as the options say, but not what is kept there (by value id of the state that owns the bytes; NULL:
 * nothing). */
ht_status ht_update_units_find(ht_update_units *out, const ht_graph *g, const ht_pass_env *env, const bool *kept);
void ht_update_units_free(ht_update_units *units); /* also after a failure */

static inline bool ht_is_scalar(const ht_graph *g, ht_val v)
{
    return ht_type_of(g, v)->rank == 0;
}
/* A constant or a repeated scalar: it costs nothing to have one more. */
bool ht_is_repeatable(const ht_graph *g, const ht_node *n);
/* One more of such a node, of `count` elements, in the segment that is being rewritten. */
ht_val ht_repeat(ht_rewrite *rw, const ht_node *n, int64_t count);
/* Does a node of the update compute, or store, each element by itself, wherever it lies? So a part of its arrays can be
 * computed alone. */
bool ht_is_elementwise(const ht_graph *g, const ht_node *n);
/* offload_share.c: how many elements of a flat state move, if at least this share of them shall: up to where a tensor begins. */
int64_t ht_offload_share(const ht_graph *g, ht_val flat, double ratio);
/* Flat states whose tiles and tensors end where the share does are split there; of others all moves. *kept: by value id,
 * heap memory for free(), also after a failure. */
ht_status ht_offload_keep_rest(ht_graph *g, double ratio, bool **kept);
/* Where a space of the options is for this target: on a processor host memory is where everything is already. */
ht_space ht_offload_space(const ht_pass_env *env, ht_space space);
/* Where the update of moved state is computed: beside an accelerator by the processor, if the optimiser's state is there. */
ht_space ht_offload_computes_in(const ht_pass_env *env);

/* Where the norm of gradients that move is computed: where the host's processors reach them. */
ht_space ht_offload_norm_in(const ht_pass_env *env);

extern const ht_pass_settings ht_offload_settings[];

#endif
