/* Layout: move ops become views where their input allows it, kernels are chosen, and what a kernel cannot read strided
 * is copied first. This is a step of planning and not a pass, since it asks the kernel rows. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

typedef struct layout {
    ht_graph *g;
    const ht_target *target;
    ht_rewrite rw;
    ht_arena *arena;
    const ht_kernel **kernels;
    size_t kernel_capacity;
    uint32_t *last_read; /* by value id: position of the last read, through views of it too */
    uint32_t *stored_at; /* by value id of state that owns bytes: position of its first store; UINT32_MAX: none */
} layout;

bool ht_plan_is_view(const ht_graph *g, const ht_node *n)
{
    return n->op->view && ht_value_of(g, ht_node_out(n, 0))->base.id != 0;
}

/* For a node, whose work the copy then is part of, and in whose region it is: what the region's nodes wait for must be seen
 * there. */
static ht_val contiguous_copy(layout *l, ht_val x, uint32_t node)
{
    ht_val copy = ht_emit1(l->g, "copy", NULL, HT_VALS(x), HT_NO_ATTRS);
    if (!copy.id) return copy;
    ht_node *made = &l->g->nodes[l->g->values[copy.id].owner];
    const ht_node *wants = &l->g->nodes[node];
    made->region = wants->region;
    made->role = wants->role;
    made->site = wants->site;
    made->origin = wants->origin;
    return copy;
}

static ht_status remember(layout *l, uint32_t node, const ht_kernel *kernel)
{
    size_t before = l->kernel_capacity;
    if (!ht_grow((void **)&l->kernels, &l->kernel_capacity, (size_t)node + 1, sizeof *l->kernels))
        HT_FAIL(l->g->ctx, HT_ENOMEM, "out of memory while choosing kernels");
    memset(l->kernels + before, 0, (l->kernel_capacity - before) * sizeof *l->kernels);
    l->kernels[node] = kernel;
    return HT_OK;
}

/* A copy that layout itself inserted. */
static ht_status choose_for_copy(layout *l, ht_val copy)
{
    ht_call_storage storage;
    const ht_node *n = ht_producer(l->g, copy);
    const ht_call *call = ht_node_call(l->g, n, l->arena, &storage);
    const ht_kernel *kernel = call ? ht_kernel_choose(l->g->ctx, call, l->target, NULL) : NULL;
    if (!kernel) HT_FAIL(l->g->ctx, HT_ENOTSUP, "no kernel copies a strided value");
    return remember(l, (uint32_t)(n - l->g->nodes), kernel);
}

/* Positions of reads and stores before anything is a view. */
static bool survey(layout *l, const ht_segment *s)
{
    const ht_graph *g = l->g;
    free(l->last_read);
    free(l->stored_at);
    l->last_read = calloc(g->value_count, sizeof *l->last_read);
    l->stored_at = malloc(g->value_count * sizeof *l->stored_at);
    if (!l->last_read || !l->stored_at) return false;
    memset(l->stored_at, 0xff, g->value_count * sizeof *l->stored_at);
    for (size_t i = 0; i < s->output_count; i++) l->last_read[s->outputs[i].value.id] = (uint32_t)s->node_count;
    for (uint32_t at = (uint32_t)s->node_count; at-- > 0;) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        if (n->op == &ht_op_store) l->stored_at[ht_root(g, ht_node_in(g, n, 0)).id] = at;
        for (size_t i = n->op == &ht_op_store; i < n->n_in; i++) {
            uint32_t *last = &l->last_read[ht_node_in(g, n, i).id];
            uint32_t read = n->op->view ? l->last_read[ht_node_out(n, 0).id] : at;
            if (read > *last) *last = read;
        }
    }
    return true;
}

/* The result is a value of its own: it must not change when the state that it would be a view of is stored. */
static bool outlives(const layout *l, ht_val y, ht_val root)
{
    return ht_state_of(l->g, root) && l->last_read[y.id] > l->stored_at[root.id];
}

static bool make_view(layout *l, const ht_node *n)
{
    ht_graph *g = l->g;
    ht_call_storage storage;
    const ht_call *call = ht_node_call(g, n, l->arena, &storage);
    ht_val x = ht_node_in(g, n, 0), y = ht_node_out(n, 0);
    ht_type type = *ht_type_of(g, y);
    int64_t offset = 0;
    if (!call || type.space != ht_type_of(g, x)->space || outlives(l, y, ht_root(g, x))) return false;
    if (!n->op->view(call, &type, &offset)) return false;
    const ht_value *input = ht_value_of(g, x);
    g->values[y.id].type = type;
    ht_value_view(g, y, input->base.id ? input->base : x, offset + (input->base.id ? input->offset : 0));
    return true;
}

static ht_status lay_out_move(layout *l, uint32_t id)
{
    ht_graph *g = l->g;
    if (make_view(l, &g->nodes[id])) {
        ht_rewrite_keep(&l->rw, id);
        return g->status;
    }
    ht_val copy = contiguous_copy(l, ht_node_in(g, &g->nodes[id], 0), id);
    HT_TRY(g->status);
    HT_TRY(choose_for_copy(l, copy));
    g->operands[g->nodes[id].in] = copy;
    if (!make_view(l, &g->nodes[id]))
        HT_FAIL(g->ctx, HT_ENOTSUP, "%s: no view of a contiguous value", g->nodes[id].op->name);
    ht_rewrite_keep(&l->rw, id);
    return g->status;
}

static ht_status no_kernel(layout *l, const ht_node *n, ht_text *why)
{
    ht_status status = ht_fail(l->g->ctx, HT_ENOTSUP, "%s%s%s: no kernel for it: %.800s", n->op->name,
                               n->site ? " at " : "", n->site ? n->site : "", why->data ? why->data : "none known");
    ht_text_free(why);
    return status;
}

static ht_status lay_out_compute(layout *l, uint32_t id)
{
    ht_graph *g = l->g;
    ht_call_storage storage;
    const ht_call *call = ht_node_call(g, &g->nodes[id], l->arena, &storage);
    const ht_kernel *kernel = call ? ht_kernel_choose(g->ctx, call, l->target, NULL) : NULL;
    for (size_t i = 0; !kernel && i < g->nodes[id].n_in; i++) {
        ht_val x = ht_node_in(g, &g->nodes[id], i);
        if (!x.id || ht_type_contiguous(ht_type_of(g, x))) continue;
        ht_val copy = contiguous_copy(l, x, id);
        HT_TRY(g->status);
        HT_TRY(choose_for_copy(l, copy));
        g->operands[g->nodes[id].in + i] = copy;
    }
    if (!kernel) {
        ht_text why = {0};
        call = ht_node_call(g, &g->nodes[id], l->arena, &storage);
        kernel = call ? ht_kernel_choose(g->ctx, call, l->target, &why) : NULL;
        if (!kernel) return no_kernel(l, &g->nodes[id], &why);
        ht_text_free(&why);
    }
    HT_TRY(remember(l, id, kernel));
    ht_rewrite_keep(&l->rw, id);
    return g->status;
}

/* What a done waits for is its result: an instruction, but no bytes of its own. */
static ht_status lay_out_done(layout *l, uint32_t id)
{
    ht_graph *g = l->g;
    ht_rewrite_done(g, &g->nodes[id]);
    HT_TRY(lay_out_compute(l, id));
    ht_value_view(g, ht_node_out(&g->nodes[id], 0), ht_node_in(g, &g->nodes[id], 0), 0);
    return g->status;
}

static ht_status lay_out_segment(layout *l, uint32_t segment)
{
    ht_graph *g = l->g;
    ht_status status = HT_OK;
    if (!survey(l, &g->segments[segment])) HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for layout");
    if (ht_rewrite_begin(&l->rw, g, segment)) {
        for (size_t i = 0; i < l->rw.count && status == HT_OK; i++) {
            uint32_t id = l->rw.old[i];
            const ht_op *op = g->nodes[id].op;
            if (op == &ht_op_store)
                ht_rewrite_keep(&l->rw, id);
            else if (op->start)
                status = lay_out_done(l, id);
            else
                status = op->view ? lay_out_move(l, id) : lay_out_compute(l, id);
        }
    }
    ht_status end = ht_rewrite_end(&l->rw);
    return status != HT_OK ? status : end;
}

ht_status ht_plan_layout(ht_graph *g, const ht_target *target, const ht_kernel ***kernels)
{
    layout l = {.g = g, .target = target, .arena = ht_arena_create()};
    ht_status status = l.arena ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "out of memory for layout");
    if (status == HT_OK) status = remember(&l, (uint32_t)g->node_count, NULL);
    for (uint32_t s = 0; s < g->segment_count && status == HT_OK; s++) status = lay_out_segment(&l, s);
    if (status == HT_OK) status = remember(&l, (uint32_t)g->node_count, NULL);
    ht_arena_free(l.arena);
    free(l.last_read);
    free(l.stored_at);
    if (status != HT_OK) {
        free(l.kernels);
        l.kernels = NULL;
    }
    *kernels = l.kernels;
    return status;
}
