/* How ops compute on pieces of their operands: a rule for each, by which the pass tensor derives layouts. */
#ifndef HT_PASS_SHARDING_H
#define HT_PASS_SHARDING_H

#include "pass/pass.h"

typedef enum ht_layout_kind {
    HT_LAYOUT_WHOLE, /* every rank has all of it */
    HT_LAYOUT_CUT,   /* each has its piece along an axis, as in ht_cut */
    HT_LAYOUT_SUM    /* each has a term: the value is the sum over ranks */
} ht_layout_kind;

typedef struct ht_layout {
    ht_layout_kind kind;
    int axis;
    int64_t blocks;
} ht_layout;

static inline bool ht_layout_same(const ht_layout *a, const ht_layout *b)
{
    return a->kind == b->kind && (a->kind != HT_LAYOUT_CUT || (a->axis == b->axis && a->blocks == b->blocks));
}
/* Does every rank get a piece of the same size? */
static inline bool ht_layout_fits(const ht_layout *layout, const ht_type *type, int64_t ranks)
{
    const ht_cut cut = {.axis = layout->axis, .blocks = layout->blocks, .ranks = ranks};
    return layout->kind != HT_LAYOUT_CUT || ht_cut_fits(&cut, type);
}

enum { HT_SHARDING_MOST = 8 };

/* A node as its rule sees it: at least one of its inputs is cut. Types are those of the whole. The rule sets the layouts
 * of the results. It may ask for inputs that are whole to be cut. */
typedef struct ht_sharding_call {
    const ht_call *call;
    int64_t ranks;
    ht_layout in[HT_SHARDING_MOST], out[HT_SHARDING_MOST];
    int64_t blocks_wanted; /* beside a refusal: input 0 would have to be cut in so many; 0: that would not help */
} ht_sharding_call;

/* The ranks that share a value, for what replaces a node. */
typedef struct ht_sharding_ranks {
    ht_group group;
    int64_t rank;
    ht_layout cut; /* of the node's input 0 */
} ht_sharding_ranks;

typedef struct ht_sharding {
    const char *op;
    bool (*derive)(ht_sharding_call *call); /* false: it cannot compute on such pieces */
    /* What takes the place of a node that does not compute on pieces as it is: fills n_out values; NULL: it does. */
    void (*replace)(ht_graph *g, const ht_node *n, const ht_val *in, const ht_sharding_ranks *ranks, ht_val *out);
} ht_sharding;

/* NULL: there is no rule: it computes on whole operands alone. */
const ht_sharding *ht_sharding_find(const ht_op *op);

/* sharded_loss.c: cross_entropy and argmax of logits of which each rank has some of the classes. */
void ht_sharded_cross_entropy(ht_graph *g, const ht_node *n, const ht_val *in, const ht_sharding_ranks *ranks,
                              ht_val *out);
void ht_sharded_argmax(ht_graph *g, const ht_node *n, const ht_val *in, const ht_sharding_ranks *ranks, ht_val *out);

#endif
