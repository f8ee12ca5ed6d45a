/* Which instructions run together, rows by rows. A row block starts with a reduction by rows and goes on, in the order of the
 * segment, with what uses its results at once: element-wise instructions and reductions of as many rows, each of which
 * needs of the values that the row block makes only the row at hand. They stay instructions of their own with results in
 * memory; one just finds there, still in the cache, what another has read or made a few rows ago. A node without inputs
 * (a constant) that stands among them goes before them, a start behind them. */
#include <string.h>

#include "plan/plan.h"

typedef struct block_finder {
    const ht_graph *g;
    const ht_segment *s;
    const ht_kernel *const *kernels;
    ht_groups *groups;
    ht_arena *arena;
    uint32_t *producer; /* by value id: number of the row block that makes it */
    uint32_t number;    /* of the row block at hand */
    int64_t rows;
    ht_space space; /* all of a row block compute in one */
    bool linked;    /* the instruction at hand uses the row block's values */
} block_finder;

static const ht_node *node_at(const block_finder *b, size_t at)
{
    return &b->g->nodes[b->s->nodes[at]];
}

/* Behind the last node of the instruction that starts at a position. */
static size_t unit_end(const block_finder *b, size_t at)
{
    uint32_t group = b->groups->of_node[b->s->nodes[at++]];
    while (group && at < b->s->node_count && b->groups->of_node[b->s->nodes[at]] == group) at++;
    return at;
}

/* How many of its first axes count the rows; -1: none do. */
static int row_axes(const ht_type *type, int64_t rows)
{
    int64_t product = 1;
    for (int k = 0; k <= type->rank; k++) {
        if (product == rows) return k;
        if (k < type->rank) product *= type->dim[k];
    }
    return -1;
}

/* Does row r of v lie in row r of `root`, which is a row-major array? */
static bool same_rows(const block_finder *b, ht_val v, ht_val root)
{
    const ht_value *value = ht_value_of(b->g, v);
    const ht_type *type = &value->type;
    int64_t row = ht_type_elems(ht_type_of(b->g, root)) / b->rows, end = value->base.id ? value->offset : 0;
    int axes = row_axes(type, b->rows);
    int64_t step = row;
    for (int d = axes - 1; d >= 0; step *= type->dim[d--])
        if (type->dim[d] > 1 && type->stride[d] != step) return false;
    for (int d = axes; d < type->rank; d++) {
        if (type->stride[d] < 0) return false;
        end += (type->dim[d] - 1) * type->stride[d];
    }
    return axes >= 0 && end < row;
}

/* May a node that goes over `shape` read v? */
static bool can_read(block_finder *b, ht_val v, const ht_type *shape)
{
    if (!v.id) return true;
    ht_val root = ht_root(b->g, v);
    if (b->producer[root.id] != b->number) return true;
    b->linked = true;
    return ht_type_same_shape(ht_type_of(b->g, v), shape) && same_rows(b, v, root);
}

/* The rows of a reduction; 0: it is none, or not by rows; -1: out of memory. */
static int64_t rows_of(const block_finder *b, size_t at)
{
    const ht_kernel *kernel = b->kernels[b->s->nodes[at]];
    if (!kernel || !kernel->reduce_rows) return 0;
    ht_call_storage storage;
    const ht_call *call = ht_node_call(b->g, node_at(b, at), b->arena, &storage);
    return call ? kernel->reduce_rows->rows(call) : -1;
}

static bool node_joins(block_finder *b, size_t at)
{
    const ht_node *n = node_at(b, at);
    const ht_kernel *kernel = b->kernels[b->s->nodes[at]];
    if (!kernel || kernel->emit || (!kernel->elementwise && rows_of(b, at) != b->rows)) return false;
    const ht_type *shape = ht_type_of(b->g, kernel->elementwise ? ht_node_out(n, 0) : ht_node_in(b->g, n, 0));
    if (shape->space != b->space || row_axes(shape, b->rows) < 0) return false;
    for (size_t i = 0; i < n->n_in; i++)
        if (!can_read(b, ht_node_in(b->g, n, i), shape)) return false;
    for (size_t i = 0; i < n->n_out; i++) b->producer[ht_node_out(n, i).id] = b->number;
    return true;
}

static bool unit_joins(block_finder *b, size_t at, size_t end)
{
    b->linked = false;
    for (size_t p = at; p < end; p++)
        if (!node_joins(b, p)) return false;
    return true;
}

/* Puts the node at position `from` before that at `to`. */
static void move_up(const block_finder *b, size_t from, size_t to)
{
    uint32_t node = b->s->nodes[from];
    memmove(b->s->nodes + to + 1, b->s->nodes + to, (from - to) * sizeof node);
    b->s->nodes[to] = node;
}

/* The first position from `at` on that is no start: nothing between a start and its done needs it. */
static size_t behind_starts(const block_finder *b, size_t at)
{
    while (at < b->s->node_count && node_at(b, at)->op->done) at++;
    return at;
}

/* Marks what the instruction of a node reads of the results of others in the row block. */
static void mark_reread(const block_finder *b, size_t at)
{
    const ht_node *n = node_at(b, at);
    if (ht_plan_is_view(b->g, n)) return; /* reads nothing itself */
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val root = ht_root(b->g, ht_node_in(b->g, n, i));
        if (!root.id || !ht_producer(b->g, root)) continue;
        uint32_t node = ht_value_of(b->g, root)->owner, group = b->groups->of_node[node];
        bool same = group && group == b->groups->of_node[b->s->nodes[at]];
        if (b->groups->row_block[node] == b->number && !same) b->groups->reread[root.id] = true;
    }
}

/* The row block that starts with the instruction [at, end); returns where the search goes on. */
static size_t add_row_block(block_finder *b, size_t at, size_t end)
{
    size_t parts = 1, last = end;
    b->number = (uint32_t)(b->s->node_count + 1 + at);
    b->space = ht_type_of(b->g, ht_node_out(node_at(b, end - 1), 0))->space;
    if (!unit_joins(b, at, end)) return end;
    for (size_t p = end, next; p < b->s->node_count && parts < HT_ROW_BLOCK_PARTS; p = next) {
        size_t unit = behind_starts(b, p);
        if (unit == b->s->node_count) break;
        next = unit_end(b, unit);
        bool view = ht_plan_is_view(b->g, node_at(b, unit)), constant = node_at(b, unit)->n_in == 0;
        if (!view && !constant && (!unit_joins(b, unit, next) || !b->linked)) break;
        for (size_t k = unit; k < next; k++) move_up(b, k, p + k - unit);
        next = p + next - unit;
        if (view) continue;
        if (constant) {
            move_up(b, p, at++);
            last++;
            continue;
        }
        parts++;
        last = next;
    }
    for (size_t p = at; p < last && parts > 1; p++) {
        b->groups->row_block[b->s->nodes[p]] = b->number;
        b->groups->rows[b->s->nodes[p]] = b->rows;
    }
    for (size_t p = at; p < last && parts > 1; p++) mark_reread(b, p);
    return last;
}

static bool find_row_blocks(block_finder *b)
{
    for (size_t at = 0, end; at < b->s->node_count; at = end) {
        end = unit_end(b, at);
        b->rows = rows_of(b, end - 1);
        if (b->rows < 0) return false;
        if (b->rows > 1) end = add_row_block(b, at, end);
    }
    return true;
}

ht_status ht_plan_find_row_blocks(ht_graph *g, const ht_kernel *const *kernels, ht_groups *groups)
{
    block_finder b = {.g = g, .kernels = kernels, .groups = groups, .arena = ht_arena_create()};
    b.producer = b.arena ? HT_NEW(b.arena, uint32_t, g->value_count) : NULL;
    bool ok = b.producer != NULL;
    for (size_t i = 0; i < g->segment_count && ok; i++) {
        b.s = &g->segments[i];
        ok = find_row_blocks(&b);
    }
    ht_arena_free(b.arena);
    return ok ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "out of memory while fusing");
}
