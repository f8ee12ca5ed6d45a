/* Which element-wise nodes of a region become one instruction, and the order of a segment in which such nodes stand
 * together. A step of planning and not a pass, since it asks the kernel rows; the graph keeps its nodes.
 *
 * A node takes part if its kernel is element-wise (kernel/elementwise/fused.h). Its depth counts, along the longest
 * way to it inside the region, the steps between nodes that cannot go together: of different shapes or spaces, or one
 * of them taking no part. Nodes of one shape, space and depth are a group: an edge between two groups, or a group and
 * a node that is in none, leads to a greater depth, so groups never wait for each other in a circle, and regions do
 * not either. A group that is too large for one instruction is halved in the order of the segment. On a GPU, where a launch
 * and a value in memory cost more than they do on a processor, nodes then go as deep as their readers let them.
 *
 * A product whose only reader is in a group becomes the group's first node: it hands its result over block by block. A
 * reduction of what a group makes becomes its last node: it reads no other result, and its readers are of a greater depth
 * than the group, so there is no cycle. Both are asked whether they take the group's calls (ht_kernel: takes).
 *
 * Effects keep one order. Stores go to the end, in theirs: readers of a state then come before its store, wherever its
 * group stands. One that copies a part of a value, into a state that its segment does not read, stays where it is, so that
 * the rest does not live on: first values of which a rank keeps a part. Every other effect waits for the one before it;
 * the regions pass counts that as reading it, so that no group waits for itself. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

typedef struct fuser {
    ht_graph *g;
    const ht_segment *s;
    const ht_target *target;
    const ht_kernel *const *kernels;
    ht_groups *groups;
    bool failed;      /* memory is out */
    ht_arena *arena;  /* of all that follows */
    uint32_t *place;  /* by value id: place of its node + 1; 0: none */
    uint32_t *uses;   /* by value id: reads and outputs */
    uint32_t *seen;   /* by value id: reads by the nodes in question */
    uint32_t *fold;   /* by value id: place + 1 of the last reduction of it; 0: none */
    uint32_t *other;  /* by place of a reduction: place + 1 of another one of the same value; 0: none */
    uint32_t *reads;  /* by value id, of state that owns bytes: 1 + the last segment that reads it */
    uint32_t *effect; /* by place: of an effect that is no store, place + 1 of the one before it; 0: none */
    uint32_t *depth;  /* by place */
    bool *takes_part; /* by place */
    uint32_t *sorted; /* places of those that take part, group by group */
    size_t sorted_count;
    uint32_t group_count;
    uint32_t *last; /* by group: place of its last node */
    uint32_t *next; /* by place: that of the node before it in its group + 1; 0: none */
    bool *open;     /* by place: waits for what it needs */
    bool *done;     /* by place: has its place in the new order */
} fuser;

static const ht_node *node_at(const fuser *f, uint32_t at)
{
    return &f->g->nodes[f->s->nodes[at]];
}

static const ht_type *shape_at(const fuser *f, uint32_t at)
{
    return ht_type_of(f->g, ht_node_out(node_at(f, at), 0));
}

static uint32_t *group_at(const fuser *f, uint32_t at)
{
    return &f->groups->of_node[f->s->nodes[at]];
}

/* ---- who takes part ---- */

static bool can_take_part(const fuser *f, uint32_t at)
{
    const ht_node *n = node_at(f, at);
    const ht_kernel *kernel = f->kernels[f->s->nodes[at]];
    if (!n->region || !kernel || !kernel->elementwise || n->n_in + n->n_out > HT_STEP_OPERANDS) return false;
    /* The single numbers of an optimiser's step are read before the first element. */
    return n->op->prec != HT_PREC_EXACT || shape_at(f, at)->rank > 0;
}

/* One loop in one memory, over elements in one order. */
static bool same_loop(const ht_type *a, const ht_type *b)
{
    return a->space == b->space && ht_type_same_shape(a, b) && ht_type_same_strides(a, b);
}

static bool go_together(const fuser *f, uint32_t a, uint32_t b)
{
    return f->takes_part[a] && f->takes_part[b] && same_loop(shape_at(f, a), shape_at(f, b));
}

static void set_depth(fuser *f, uint32_t at)
{
    const ht_node *n = node_at(f, at);
    for (size_t i = 0; i < n->n_in && n->region; i++) {
        uint32_t from = f->place[ht_node_in(f->g, n, i).id];
        if (!from-- || node_at(f, from)->region != n->region) continue;
        uint32_t depth = f->depth[from] + !go_together(f, at, from);
        if (depth > f->depth[at]) f->depth[at] = depth;
    }
}

/* The greatest depth that the readers of a node leave it, if they are all of its region; else its own. */
static uint32_t latest_depth(const fuser *f, uint32_t at, const uint32_t *left, const uint32_t *seen)
{
    const ht_node *n = node_at(f, at);
    for (uint32_t v = n->out; v < n->out + n->n_out; v++)
        if (!seen[v] || seen[v] != f->uses[v]) return f->depth[at];
    uint32_t latest = UINT32_MAX;
    for (uint32_t v = n->out; v < n->out + n->n_out; v++)
        if (left[v] < latest) latest = left[v];
    return latest > f->depth[at] ? latest : f->depth[at];
}

/* A node that waits for nothing in its region may stand with those that read it, which wait for a product: the mask of
 * a relu beside the gradient that it hides. Depths still grow along edges between groups. */
static bool sink_nodes(fuser *f)
{
    uint32_t *left = HT_NEW(f->arena, uint32_t, f->g->value_count); /* by value id: the depth that its readers leave */
    uint32_t *seen = HT_NEW(f->arena, uint32_t, f->g->value_count); /* reads by nodes of its region */
    if (!left || !seen) return false;
    memset(left, 0xff, f->g->value_count * sizeof *left);
    for (uint32_t at = (uint32_t)f->s->node_count; at-- > 0;) {
        const ht_node *n = node_at(f, at);
        if (f->takes_part[at]) f->depth[at] = latest_depth(f, at, left, seen);
        for (size_t i = 0; i < n->n_in && n->region; i++) {
            uint32_t v = ht_node_in(f->g, n, i).id, from = f->place[v];
            if (!from-- || node_at(f, from)->region != n->region) continue;
            uint32_t depth = f->depth[at] - !go_together(f, at, from);
            seen[v]++;
            if (depth < left[v]) left[v] = depth;
        }
    }
    return true;
}

/* ---- groups ---- */

/* A node with all that decides its group. */
typedef struct member {
    uint32_t region, depth, place;
    const ht_type *shape;
} member;

static int by_shape(const ht_type *a, const ht_type *b)
{
    if (a->space != b->space) return a->space < b->space ? -1 : 1;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return a->dim[i] < b->dim[i] ? -1 : 1;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != 1 && a->stride[i] != b->stride[i]) return a->stride[i] < b->stride[i] ? -1 : 1;
    return 0;
}

static int by_group(const void *left, const void *right)
{
    const member *a = left, *b = right;
    if (a->region != b->region) return a->region < b->region ? -1 : 1;
    if (a->depth != b->depth) return a->depth < b->depth ? -1 : 1;
    int shapes = by_shape(a->shape, b->shape);
    return shapes ? shapes : a->place < b->place ? -1 : a->place > b->place;
}

static bool sort_members(fuser *f)
{
    member *list = HT_NEW(f->arena, member, f->sorted_count + 1);
    if (!list) return false;
    for (size_t i = 0; i < f->sorted_count; i++) {
        uint32_t at = f->sorted[i];
        list[i] = (member){node_at(f, at)->region, f->depth[at], at, shape_at(f, at)};
    }
    qsort(list, f->sorted_count, sizeof *list, by_group);
    for (size_t i = 0; i < f->sorted_count; i++) f->sorted[i] = list[i].place;
    return true;
}

static bool same_group(const fuser *f, uint32_t a, uint32_t b)
{
    return node_at(f, a)->region == node_at(f, b)->region && f->depth[a] == f->depth[b] &&
           same_loop(shape_at(f, a), shape_at(f, b));
}

/* Operands of an instruction of these nodes; *results: those that other nodes read. */
static size_t count_operands(fuser *f, const uint32_t *places, size_t count, size_t *results)
{
    size_t operands = 0;
    *results = 0;
    for (size_t k = 0; k < count; k++) {
        const ht_node *n = node_at(f, places[k]);
        for (size_t i = 0; i < n->n_in; i++) operands += f->seen[ht_node_in(f->g, n, i).id]++ == 0;
        operands += n->n_out;
    }
    for (size_t k = 0; k < count; k++) {
        const ht_node *n = node_at(f, places[k]);
        for (size_t i = 0; i < n->n_out; i++) {
            operands -= f->seen[n->out + i] > 0; /* counted as input, too */
            *results += f->uses[n->out + i] > f->seen[n->out + i];
        }
    }
    return operands;
}

static void forget_reads(fuser *f, const uint32_t *places, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        const ht_node *n = node_at(f, places[k]);
        for (size_t i = 0; i < n->n_in; i++) f->seen[ht_node_in(f->g, n, i).id] = 0;
    }
}

/* The calls of these nodes as a row is told of them; `folded`: the value that the row itself reads, 0 for a product. */
static bool describe(fuser *f, const uint32_t *places, size_t count, uint32_t folded, ht_fusion *fusion)
{
    size_t operands = 0, at = 0;
    for (size_t k = 0; k < count; k++) operands += node_at(f, places[k])->n_in + node_at(f, places[k])->n_out;
    ht_call_storage *storage = HT_NEW(f->arena, ht_call_storage, count);
    const ht_call **calls = HT_NEW(f->arena, const ht_call *, count);
    uint32_t *values = HT_NEW(f->arena, uint32_t, operands);
    bool *outside = HT_NEW(f->arena, bool, operands);
    if (!storage || !calls || !values || !outside) return false;
    for (size_t k = 0; k < count; k++) {
        const ht_node *n = node_at(f, places[k]);
        calls[k] = ht_node_call(f->g, n, f->arena, &storage[k]);
        if (!calls[k]) return false;
        for (size_t i = 0; i < n->n_in; i++) f->seen[values[at++] = ht_node_in(f->g, n, i).id]++;
        for (size_t i = 0; i < n->n_out; i++) values[at++] = n->out + (uint32_t)i;
    }
    at = 0;
    for (size_t k = 0; k < count; k++) {
        const ht_node *n = node_at(f, places[k]);
        at += n->n_in;
        for (size_t i = 0; i < n->n_out; i++, at++)
            outside[at] = f->uses[values[at]] > f->seen[values[at]] + (values[at] == folded);
    }
    forget_reads(f, places, count);
    *fusion = (ht_fusion){.count = count, .calls = calls, .values = values, .read_outside = outside};
    return true;
}

/* Does the row of the node at `at` take the calls of these nodes? A refusal is noted. */
static bool takes(fuser *f, uint32_t at, const uint32_t *places, size_t count, bool before)
{
    uint32_t id = f->s->nodes[at];
    const ht_node *n = node_at(f, at);
    ht_fusion fusion;
    ht_call_storage own;
    const ht_call *call = ht_node_call(f->g, n, f->arena, &own);
    uint32_t read = before ? ht_node_in(f->g, n, 0).id : 0;
    f->failed |= !call || !describe(f, places, count, read, &fusion);
    if (f->failed) return false;
    fusion.before = before;
    fusion.handed = before ? read : n->out;
    f->groups->refused[id] = f->kernels[id]->takes(call, &fusion, f->target);
    return !f->groups->refused[id];
}

/* A product or a reduction, by its fuse class, whose row can be asked. */
static bool can_be_asked(const fuser *f, uint32_t at, ht_fuse fuse)
{
    const ht_kernel *kernel = f->kernels[f->s->nodes[at]];
    return kernel && kernel->takes && node_at(f, at)->op->fuse == fuse;
}

/* The place + 1 of a product for these nodes; 0: none. */
static uint32_t find_product(fuser *f, const uint32_t *places, size_t count)
{
    for (size_t k = 0; k < count; k++) {
        const ht_node *n = node_at(f, places[k]);
        const ht_type *shape = shape_at(f, places[k]);
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val v = ht_node_in(f->g, n, i);
            uint32_t from = f->place[v.id];
            if (!from || f->uses[v.id] != 1 || !same_loop(ht_type_of(f->g, v), shape)) continue;
            if (!can_be_asked(f, from - 1, HT_FUSE_DOT) || node_at(f, from - 1)->region != n->region) continue;
            if (takes(f, from - 1, places, count, false)) return from;
        }
    }
    return 0;
}

/* The place + 1 of a reduction of what one of these nodes makes; 0: none. */
static uint32_t find_fold(fuser *f, const uint32_t *places, size_t count)
{
    for (size_t k = count; k-- > 0;) {
        const ht_node *n = node_at(f, places[k]);
        for (uint32_t v = n->out; v < n->out + n->n_out; v++)
            for (uint32_t at = f->fold[v]; at; at = f->other[at - 1])
                if (node_at(f, at - 1)->region == n->region && takes(f, at - 1, places, count, true)) return at;
    }
    return 0;
}

static void make_group(fuser *f, const uint32_t *places, size_t count, uint32_t product, uint32_t fold)
{
    uint32_t number = ++f->group_count;
    if (product) {
        *group_at(f, product - 1) = number;
        f->groups->inside[node_at(f, product - 1)->out] = true;
    }
    for (size_t k = 0; k < count; k++) {
        const ht_node *n = node_at(f, places[k]);
        *group_at(f, places[k]) = number;
        f->next[places[k]] = k ? places[k - 1] + 1 : product;
        for (size_t i = 0; i < n->n_out; i++)
            f->groups->inside[n->out + i] = f->uses[n->out + i] <= f->seen[n->out + i];
    }
    f->last[number] = places[count - 1];
    if (!fold) return;
    *group_at(f, fold - 1) = number;
    f->next[fold - 1] = places[count - 1] + 1;
    f->last[number] = fold - 1;
}

/* One group, or two halves of it. A node alone is no group, nor are nodes without a reader. */
static void add_group(fuser *f, const uint32_t *places, size_t count)
{
    uint32_t product = find_product(f, places, count), fold = product ? 0 : find_fold(f, places, count);
    if (count + (product || fold) < 2) return;
    if (fold) f->seen[ht_node_in(f->g, node_at(f, fold - 1), 0).id]++;
    /* The fold's own reading makes the count one too low. */
    size_t results, operands = count_operands(f, places, count, &results) + (fold != 0);
    bool fits = count <= HT_FUSED_STEPS && operands <= HT_FUSED_OPERANDS;
    if (fits && (results || fold)) make_group(f, places, count, product, fold);
    forget_reads(f, places, count);
    if (fold) f->seen[ht_node_in(f->g, node_at(f, fold - 1), 0).id] = 0;
    if (fits) return;
    add_group(f, places, count / 2);
    add_group(f, places + count / 2, count - count / 2);
}

/* Remembers a reduction by what it reads. */
static void note_fold(fuser *f, uint32_t at)
{
    const ht_node *n = node_at(f, at);
    if (!n->region || !can_be_asked(f, at, HT_FUSE_REDUCE) || !ht_plan_reads_one_result(f->g, n) || !f->uses[n->out])
        return;
    uint32_t *last = &f->fold[ht_node_in(f->g, n, 0).id];
    f->other[at] = *last;
    *last = at + 1;
}

static void chain_effects(fuser *f)
{
    uint32_t last = 0;
    for (uint32_t at = 0; at < f->s->node_count; at++) {
        const ht_op *op = node_at(f, at)->op;
        if (!(op->flags & HT_OP_EFFECT) || op == &ht_op_store) continue;
        f->effect[at] = last;
        last = at + 1;
    }
}

static void note_reads(fuser *f, uint32_t segment)
{
    for (uint32_t at = 0; at < f->s->node_count; at++) {
        const ht_node *n = node_at(f, at);
        for (size_t i = n->op == &ht_op_store; i < n->n_in; i++) {
            ht_val v = ht_node_in(f->g, n, i);
            if (v.id) f->reads[ht_root(f->g, v).id] = segment + 1;
        }
    }
}

static bool find_groups(fuser *f)
{
    for (uint32_t at = 0; at < f->s->node_count; at++) {
        const ht_node *n = node_at(f, at);
        for (size_t i = 0; i < n->n_in; i++) f->uses[ht_node_in(f->g, n, i).id]++;
        for (size_t i = 0; i < n->n_out; i++) f->place[n->out + i] = at + 1;
    }
    for (size_t i = 0; i < f->s->output_count; i++) f->uses[f->s->outputs[i].value.id]++;
    for (uint32_t at = 0; at < f->s->node_count; at++) {
        f->takes_part[at] = can_take_part(f, at);
        if (f->takes_part[at]) f->sorted[f->sorted_count++] = at;
        set_depth(f, at);
        note_fold(f, at);
    }
    if (f->target->device == HT_DEVICE_CUDA && !sink_nodes(f)) return false;
    if (!sort_members(f)) return false;
    for (size_t first = 0, end; first < f->sorted_count; first = end) {
        for (end = first + 1; end < f->sorted_count && same_group(f, f->sorted[first], f->sorted[end]);) end++;
        add_group(f, f->sorted + first, end - first);
    }
    return !f->failed;
}

/* ---- the new order: a group comes where its last node was, or as soon as another node needs it ---- */

/* The place that stands for a node: its own, or that of the last node of its group. */
static uint32_t unit_of(const fuser *f, uint32_t at)
{
    uint32_t group = *group_at(f, at);
    return group ? f->last[group] : at;
}

/* The nodes to be put into the new order, each above those that wait for it. */
typedef struct pending {
    uint32_t *units;
    size_t count;
    bool circle; /* a unit waits for itself */
} pending;

/* Puts what a node needs and is not there yet on the stack. */
static void push_needs(const fuser *f, uint32_t at, pending *stack)
{
    const ht_node *n = node_at(f, at);
    for (size_t i = 0; i < n->n_in; i++) {
        uint32_t from = f->place[ht_node_in(f->g, n, i).id];
        if (!from) continue;
        uint32_t needed = unit_of(f, from - 1);
        if (needed == unit_of(f, at) || f->done[needed]) continue;
        stack->circle |= f->open[needed];
        stack->units[stack->count++] = needed;
    }
    uint32_t effect = f->effect[at];
    if (!effect || f->done[effect - 1]) return;
    stack->circle |= f->open[effect - 1];
    stack->units[stack->count++] = effect - 1;
}

/* Every unit pushes its needs once, so the stack has space for them; false: there is a circle. */
static bool put_unit(fuser *f, uint32_t place, pending *stack, uint32_t *order, size_t *count)
{
    stack->units[stack->count++] = place;
    while (stack->count > 0) {
        uint32_t unit = stack->units[stack->count - 1];
        size_t before = stack->count, members = 0;
        for (uint32_t at = unit + 1; at && !f->done[unit]; at = f->next[at - 1], members++)
            push_needs(f, at - 1, stack);
        f->open[unit] = true;
        if (stack->circle) return false;
        if (stack->count > before) continue;
        stack->count--;
        if (f->done[unit]) continue;
        f->done[unit] = true;
        *count += members;
        size_t back = *count;
        for (uint32_t at = unit + 1; at; at = f->next[at - 1]) order[--back] = f->s->nodes[at - 1];
    }
    return true;
}

static ht_status no_memory(const fuser *f)
{
    return ht_fail(f->g->ctx, HT_ENOMEM, "out of memory while fusing");
}

/* Is it a store of a part of a value, which is copied anyway, where nobody reads what was there? */
static bool stays(const fuser *f, const ht_node *n)
{
    uint32_t segment = (uint32_t)(f->s - f->g->segments);
    bool part = ht_value_of(f->g, ht_node_in(f->g, n, 1))->base.id != 0;
    return part && f->reads[ht_root(f->g, ht_node_in(f->g, n, 0)).id] != segment + 1;
}

/* Does it come last: a store, or the update's wait for what only the store behind it reads? Waits can then be left to the next
 * step (tail.c). One that stands behind its start is to wait at once. */
static bool comes_last(const fuser *f, uint32_t at)
{
    const ht_node *n = node_at(f, at), *start = n->op->start ? ht_start_of(f->g, n) : NULL;
    if (n->op == &ht_op_store) return !stays(f, n);
    if (!start || !(start->op->flags & HT_OP_COLLECTIVE) || strcmp(f->s->name, "update") != 0) return false;
    bool stored = at + 1 < f->s->node_count && node_at(f, at + 1)->op == &ht_op_store &&
                  ht_node_in(f->g, node_at(f, at + 1), 1).id == n->out;
    return stored && at > 0 && node_at(f, at - 1) != start;
}

static ht_status reorder(fuser *f)
{
    size_t nodes = f->s->node_count, capacity = 2 * nodes + 1, count = 0;
    for (uint32_t at = 0; at < nodes; at++) capacity += node_at(f, at)->n_in;
    uint32_t *order = HT_NEW(f->arena, uint32_t, nodes + 1);
    pending stack = {.units = HT_NEW(f->arena, uint32_t, capacity)};
    if (!order || !stack.units) return no_memory(f);
    for (int last = 0; last < 2; last++)
        for (uint32_t at = 0; at < nodes; at++)
            if (comes_last(f, at) == last && unit_of(f, at) == at && !f->done[at] &&
                !put_unit(f, at, &stack, order, &count))
                HT_FAIL(f->g->ctx, HT_EVERIFY, "fusion: regions of segment '%s' wait for each other in a circle",
                        f->s->name);
    if (nodes) memcpy(f->s->nodes, order, nodes * sizeof *order);
    return HT_OK;
}

static ht_status fuse_segment(fuser *f, uint32_t segment)
{
    f->s = &f->g->segments[segment];
    f->sorted_count = 0;
    f->group_count = 0;
    size_t capacity = f->s->node_count + 1;
    f->effect = HT_NEW(f->arena, uint32_t, capacity);
    f->depth = HT_NEW(f->arena, uint32_t, capacity);
    f->takes_part = HT_NEW(f->arena, bool, capacity);
    f->sorted = HT_NEW(f->arena, uint32_t, capacity);
    f->last = HT_NEW(f->arena, uint32_t, capacity);
    f->next = HT_NEW(f->arena, uint32_t, capacity);
    f->open = HT_NEW(f->arena, bool, capacity);
    f->done = HT_NEW(f->arena, bool, capacity);
    f->other = HT_NEW(f->arena, uint32_t, capacity);
    if (!f->effect || !f->depth || !f->takes_part || !f->sorted || !f->last || !f->next || !f->open || !f->done ||
        !f->other)
        return no_memory(f);
    chain_effects(f);
    note_reads(f, segment);
    return find_groups(f) ? reorder(f) : no_memory(f);
}

static ht_status fuse_segments(fuser *f)
{
    size_t values = f->g->value_count;
    f->arena = ht_arena_create();
    if (!f->arena) return no_memory(f);
    f->place = HT_NEW(f->arena, uint32_t, values);
    f->uses = HT_NEW(f->arena, uint32_t, values);
    f->seen = HT_NEW(f->arena, uint32_t, values);
    f->fold = HT_NEW(f->arena, uint32_t, values);
    f->reads = HT_NEW(f->arena, uint32_t, values);
    if (!f->place || !f->uses || !f->seen || !f->fold || !f->reads) return no_memory(f);
    for (uint32_t i = 0; i < f->g->segment_count; i++) HT_TRY(fuse_segment(f, i));
    return HT_OK;
}

ht_status ht_plan_fuse(ht_graph *g, const ht_target *target, const ht_kernel *const *kernels, ht_groups *groups)
{
    fuser f = {.g = g, .target = target, .kernels = kernels, .groups = groups};
    ht_status status = fuse_segments(&f);
    ht_arena_free(f.arena);
    return status;
}
