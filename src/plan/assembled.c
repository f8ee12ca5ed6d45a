/* Assembled transients: a concat whose operands are made at their offsets in its own buffer, so that it is there, in one
 * piece, when the last of them is made, without a copy. Operands that must be elsewhere (views, state, inputs, outputs,
 * one that is there twice) are copied to their offsets, each by an instruction of its own. Kernels take results at the
 * address of any element: a store into a view of state puts them there, too.
 *
 * Where the operands would not lie in one piece (a concat along an inner axis), it is all of them or none: each the whole
 * of a result that its row writes with the strides of the concat (placement.c). */
#include "plan/planning.h"

#include <string.h>

#include "op/op.h"

typedef struct finder {
    const planning *p;
    const ht_segment *s;
    ht_arena *arena;
    ht_buffer_assignment *r;
} finder;

static bool can_be_within(const finder *f, ht_val x, ht_val y)
{
    const ht_value *value = ht_value_of(f->p->g, x);
    return value->kind == HT_VALUE_RESULT && !value->base.id && f->r->value[x.id].area == HT_AREA_NONE &&
           !f->r->within[x.id] && ht_type_contiguous(&value->type) && ht_type_elems(&value->type) > 0 &&
           value->type.space == ht_type_of(f->p->g, y)->space;
}

/* Elements before operand i of a concat that does not lie in one piece. */
static int64_t strided_part(const ht_call *call, size_t i)
{
    int axis = ht_call_axis(call, "axis", call->out[0]->rank);
    int64_t start = 0;
    for (size_t before = 0; before < i; before++) start += call->in[before]->dim[axis];
    return start * call->out[0]->stride[axis];
}

static int64_t part_of(const ht_call *call, size_t i)
{
    int64_t part = call->op->part(call, i);
    return part >= 0 ? part : strided_part(call, i);
}

/* Is x all of a result that can lie within y, with the strides of y? */
static bool is_placed(const finder *f, ht_val x, ht_val y)
{
    const ht_graph *g = f->p->g;
    const ht_value *value = ht_value_of(g, x), *root = ht_value_of(g, ht_root(g, x));
    uint32_t id = ht_root(g, x).id;
    if (root->kind != HT_VALUE_RESULT || root->base.id || f->r->value[id].area != HT_AREA_NONE || f->r->within[id])
        return false;
    if (value->offset != 0 || ht_type_elems(&value->type) != ht_type_elems(&root->type)) return false;
    if (root->type.space != ht_type_of(g, y)->space || ht_type_elems(&value->type) == 0) return false;
    for (int axis = 0; axis < value->type.rank; axis++)
        if (value->type.dim[axis] > 1 && value->type.stride[axis] != ht_type_of(g, y)->stride[axis]) return false;
    return true;
}

static void assemble_strided(finder *f, const ht_node *n, const ht_call *call)
{
    const ht_graph *g = f->p->g;
    ht_val y = ht_node_out(n, 0);
    bool placed = true;
    for (size_t i = 0; i < n->n_in && placed; i++) {
        placed = is_placed(f, ht_node_in(g, n, i), y);
        for (size_t k = 0; k < i && placed; k++)
            placed = ht_root(g, ht_node_in(g, n, k)).id != ht_root(g, ht_node_in(g, n, i)).id;
    }
    for (size_t i = 0; i < n->n_in && placed; i++) {
        uint32_t id = ht_root(g, ht_node_in(g, n, i)).id;
        f->r->within[id] = y.id;
        f->r->part[id] = strided_part(call, i) * (int64_t)ht_dtype_bytes(ht_type_of(g, y)->dtype);
        f->r->assembled[y.id] = true;
    }
}

/* False when memory is out. */
static bool assemble(finder *f, const ht_node *n)
{
    const ht_graph *g = f->p->g;
    ht_val y = ht_node_out(n, 0);
    const ht_value *value = ht_value_of(g, y);
    if (value->base.id || f->r->value[y.id].area != HT_AREA_NONE || !ht_type_contiguous(&value->type)) return true;
    ht_call_storage storage;
    const ht_call *call = ht_node_call(g, n, f->arena, &storage);
    if (!call) return false;
    if (n->n_in && n->op->part(call, 0) < 0) {
        assemble_strided(f, n, call);
        return true;
    }
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val x = ht_node_in(g, n, i);
        int64_t offset = n->op->part(call, i);
        if (!can_be_within(f, x, y)) continue;
        f->r->within[x.id] = y.id;
        f->r->part[x.id] = offset * (int64_t)ht_dtype_bytes(value->type.dtype);
        f->r->assembled[y.id] = true;
    }
    return true;
}

bool ht_plan_assemble(const planning *p, const ht_segment *s, const bool *allowed, ht_arena *arena,
                      ht_buffer_assignment *r)
{
    finder f = {p, s, arena, r};
    memset(r->within, 0, p->g->value_count * sizeof *r->within);
    memset(r->assembled, 0, p->g->value_count * sizeof *r->assembled);
    for (size_t at = 0; at < s->node_count; at++)
        if (allowed[at] && !assemble(&f, &p->g->nodes[s->nodes[at]])) return false;
    return true;
}

ht_val ht_plan_assembled_in(const ht_buffer_assignment *r, ht_val v, int64_t *offset)
{
    *offset = 0;
    for (; r->within[v.id]; v.id = r->within[v.id]) *offset += r->part[v.id];
    return v;
}

bool ht_plan_part_missing(const planning *p, const ht_buffer_assignment *r, const ht_call *call, const ht_node *n,
                          size_t i, ht_place *place)
{
    const ht_type *type = call->in[i];
    *place = r->value[n->out];
    place->offset += part_of(call, i) * (int64_t)ht_dtype_bytes(type->dtype);
    return ht_type_elems(type) > 0 && !ht_place_same(r->value[ht_node_in(p->g, n, i).id], *place);
}
