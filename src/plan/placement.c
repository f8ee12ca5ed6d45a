/* Where results lie: strides for what a row writes as it is asked to (ht_kernel: strided_results), such that its readers
 * need no copy. Two readers ask for it, behind moves that are views:
 *     - a reshape of a permuted result, which is a view if the result lies in the permuted order;
 *     - a concat, which then finds the result where it wants it (assembled.c).
 * From what is wanted at the end, the way back through the moves gives the strides of the result. */
#include "plan/placement.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_MOVES = 8 };

struct ht_readers {
    const ht_graph *g;
    ht_arena *arena;
    uint32_t *first, *next; /* by value id, by entry: 1 + an entry; 0: there is none */
    uint32_t *node;         /* by entry */
    bool *pinned;           /* by value id: an output, or stored: others know where and how it lies */
};

ht_readers *ht_plan_find_readers(const ht_graph *g, const ht_segment *s, ht_arena *arena)
{
    size_t reads = 1, entry = 0;
    for (size_t i = 0; i < s->node_count; i++) reads += g->nodes[s->nodes[i]].n_in;
    ht_readers *r = HT_NEW(arena, ht_readers, 1);
    if (!r) return NULL;
    *r = (ht_readers){.g = g,
                      .arena = arena,
                      .first = HT_NEW(arena, uint32_t, g->value_count),
                      .next = HT_NEW(arena, uint32_t, reads),
                      .node = HT_NEW(arena, uint32_t, reads),
                      .pinned = HT_NEW(arena, bool, g->value_count)};
    if (!r->first || !r->next || !r->node || !r->pinned) return NULL;
    for (size_t i = s->node_count; i-- > 0;) {
        const ht_node *n = &g->nodes[s->nodes[i]];
        for (size_t k = 0; k < n->n_in; k++, entry++) {
            uint32_t *first = &r->first[ht_node_in(g, n, k).id];
            r->pinned[ht_node_in(g, n, k).id] |= n->op == &ht_op_store;
            r->node[entry] = s->nodes[i];
            r->next[entry] = *first;
            *first = (uint32_t)entry + 1;
        }
    }
    for (size_t i = 0; i < s->output_count; i++) r->pinned[s->outputs[i].value.id] = true;
    return r;
}

bool ht_plan_is_pinned(const ht_readers *r, ht_val v)
{
    return r->pinned[v.id];
}

const ht_node *ht_plan_reader(const ht_readers *r, ht_val v, uint32_t *at)
{
    uint32_t entry = *at ? r->next[*at - 1] : r->first[v.id];
    if (*at && !entry) return NULL;
    *at = entry;
    return entry ? &r->g->nodes[r->node[entry - 1]] : NULL;
}

/* The only node that reads v; NULL: there are none or several, or v is pinned. */
static const ht_node *only_reader(const ht_readers *r, ht_val v)
{
    uint32_t entry = r->first[v.id];
    return entry && !r->next[entry - 1] && !r->pinned[v.id] ? &r->g->nodes[r->node[entry - 1]] : NULL;
}

static bool is_op(const ht_node *n, const char *name)
{
    return strcmp(n->op->name, name) == 0;
}

/* ---- moves ---- */

/* The moves from a result to where it is wanted. */
typedef struct way {
    const ht_node *moves[MOST_MOVES];
    int count;
} way;

/* Follows moves from `first` on, as long as each has one reader. */
static void follow(const ht_readers *r, const ht_node *first, way *w)
{
    w->count = 0;
    for (const ht_node *n = first; n && w->count < MOST_MOVES && (is_op(n, "permute") || is_op(n, "reshape"));
         n = only_reader(r, ht_node_out(n, 0)))
        w->moves[w->count++] = n;
}

/* Of `from` by the view of a move; the shape of *to is known. False: it is no view, or memory is out. */
static bool view_of(const ht_readers *r, const ht_node *move, const ht_type *from, ht_type *to)
{
    int64_t offset;
    ht_call_storage storage;
    const ht_call *call = ht_node_call(r->g, move, r->arena, &storage);
    if (!call) return false;
    ht_call other = *call;
    other.in = &from;
    return move->op->view(&other, to, &offset);
}

/* What the input of a move must be for its result to be `to`. */
static bool go_back(const ht_readers *r, const ht_node *move, const ht_type *to, ht_type *from)
{
    ht_call_storage storage;
    *from = *ht_type_of(r->g, ht_node_in(r->g, move, 0));
    if (is_op(move, "reshape")) return view_of(r, move, to, from);
    const ht_call *call = ht_node_call(r->g, move, r->arena, &storage);
    const ht_attr *order = call ? ht_call_attr(call, "order") : NULL;
    for (int i = 0; order && i < to->rank; i++) from->stride[order->ints[i]] = to->stride[i];
    return order != NULL;
}

/* Are all moves views of a result of this type? */
static bool all_views(const ht_readers *r, const way *w, ht_type type)
{
    bool views = true;
    for (int i = 0; i < w->count && views; i++) {
        const ht_type from = type;
        type = *ht_type_of(r->g, ht_node_out(w->moves[i], 0));
        views = view_of(r, w->moves[i], &from, &type);
    }
    return views;
}

/* The type of the result, given that at the end of the way. */
static bool back_to_start(const ht_readers *r, const way *w, ht_type end, ht_type *start)
{
    bool found = true;
    *start = end;
    for (int i = w->count; i-- > 0 && found;) {
        const ht_type to = *start;
        found = go_back(r, w->moves[i], &to, start);
    }
    return found && all_views(r, w, *start);
}

/* ---- wishes ---- */

static ht_val end_of(const way *w, ht_val y)
{
    return w->count ? ht_node_out(w->moves[w->count - 1], 0) : y;
}

/* Row-major at the end of the way. */
static bool wants_row_major(const ht_readers *r, const way *w, ht_val y, ht_type *type)
{
    ht_type end = *ht_type_of(r->g, end_of(w, y));
    ht_type_row_major(&end);
    return !all_views(r, w, *ht_type_of(r->g, y)) && back_to_start(r, w, end, type);
}

/* Its part of a concat's result. */
static bool wants_part(const ht_readers *r, const way *w, ht_val y, ht_type *type)
{
    const ht_node *concat = only_reader(r, end_of(w, y));
    if (!concat || !is_op(concat, "concat")) return false;
    ht_type part = *ht_type_of(r->g, end_of(w, y)), whole = *ht_type_of(r->g, ht_node_out(concat, 0));
    if (part.dtype != whole.dtype || part.space != whole.space) return false;
    ht_type_row_major(&whole);
    memcpy(part.stride, whole.stride, sizeof part.stride);
    return back_to_start(r, w, part, type);
}

bool ht_plan_place_result(const ht_readers *r, ht_val y, ht_type *type)
{
    way w;
    if (r->pinned[y.id] || ht_type_elems(ht_type_of(r->g, y)) == 0) return false;
    const ht_node *only = only_reader(r, y);
    if (only) {
        follow(r, only, &w);
        if (wants_part(r, &w, y, type)) return true;
    }
    for (uint32_t entry = r->first[y.id]; entry; entry = r->next[entry - 1]) {
        follow(r, &r->g->nodes[r->node[entry - 1]], &w);
        if (wants_row_major(r, &w, y, type)) return true;
    }
    return false;
}
