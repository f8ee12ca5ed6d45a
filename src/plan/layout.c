/* Layout: move ops become views where their input allows it, kernels are chosen, and where every row refuses a node what
 * is strided is copied first, or what is half is cast to f32 and back. This is a step of planning and not a pass, since it asks the kernel rows.
 *
 * Channels. Rows may want their operands channels-last (ht_kernel: channels). What they make then lies so, and so does what
 * rows that follow and element-wise rows make of it: a whole network, with copies where it begins and ends. */
#include <stdlib.h>
#include <string.h>

#include "plan/placement.h"

typedef struct layout {
    ht_graph *g;
    const ht_target *target;
    bool log;
    bool places; /* results of rows that write them anywhere: with gaps, too */
    ht_rewrite rw;
    ht_arena *arena;
    const ht_kernel **kernels;
    size_t kernel_capacity;
    ht_readers *readers;
    ht_val *last; /* by value id of what has no producer: its channels-last copy, once one was made */
    size_t last_capacity;
    uint32_t *last_read; /* by value id: position of the last read, through views of it too */
    uint32_t *stored_at; /* by value id of state that owns bytes: position of its first store; UINT32_MAX: none */
} layout;

bool ht_plan_is_view(const ht_graph *g, const ht_node *n)
{
    return n->op->view && ht_value_of(g, ht_node_out(n, 0))->base.id != 0;
}

/* A copy or a cast for a node: it is part of that one's work and in its region, since what the region's nodes wait for must
 * be seen there. */
static ht_val for_node(layout *l, ht_val v, uint32_t node)
{
    if (!v.id) return v;
    ht_node *made = &l->g->nodes[l->g->values[v.id].owner];
    const ht_node *wants = &l->g->nodes[node];
    made->region = wants->region;
    made->role = wants->role;
    made->site = wants->site;
    made->origin = wants->origin;
    return v;
}

static ht_val contiguous_copy(layout *l, ht_val x, uint32_t node)
{
    ht_type type = *ht_type_of(l->g, x);
    ht_type_row_major(&type);
    return for_node(l, ht_emit1(l->g, "copy", &type, HT_VALS(x), HT_NO_ATTRS), node);
}

static ht_val channels_last_copy(layout *l, ht_val x, uint32_t node)
{
    ht_type type = *ht_type_of(l->g, x);
    ht_type_channels_last(&type);
    ht_val copy = for_node(l, ht_emit1(l->g, "copy", &type, HT_VALS(x), HT_NO_ATTRS), node);
    if (copy.id) l->g->values[copy.id].type = type; /* the builder knows row-major results only */
    return copy;
}

static ht_val cast_for(layout *l, ht_val x, ht_dtype dtype, uint32_t node)
{
    return for_node(l, ht_cast(l->g, x, dtype), node);
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

static ht_status no_kernel(layout *l, const ht_node *n, const ht_call *call)
{
    ht_text why = {0};
    if (call) ht_kernel_choose(l->g->ctx, call, l->target, &why);
    ht_status status = ht_fail(l->g->ctx, HT_ENOTSUP, "%s%s%s: no kernel for it: %.800s", n->op->name,
                               n->site ? " at " : "", n->site ? n->site : "", why.data ? why.data : "none known");
    ht_text_free(&why);
    return status;
}

/* A copy or a cast that layout itself inserted. */
static ht_status choose_for_made(layout *l, ht_val made)
{
    ht_call_storage storage;
    const ht_node *n = ht_producer(l->g, made);
    const ht_call *call = ht_node_call(l->g, n, l->arena, &storage);
    const ht_kernel *kernel = call ? ht_kernel_choose(l->g->ctx, call, l->target, NULL) : NULL;
    if (!kernel) return no_kernel(l, n, call);
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
    HT_TRY(choose_for_made(l, copy));
    g->operands[g->nodes[id].in] = copy;
    if (!make_view(l, &g->nodes[id]))
        HT_FAIL(g->ctx, HT_ENOTSUP, "%s: no view of a contiguous value", g->nodes[id].op->name);
    ht_rewrite_keep(&l->rw, id);
    return g->status;
}

/* ---- what every row refuses as it is ---- */

/* What layout can do to a node for a kernel: copies of strided inputs, f32 instead of half with casts around it, all
 * channels last. */
typedef struct adaptation {
    bool contiguous, wide, channels_last;
} adaptation;

/* Images; those without elements have no order. */
static bool has_channels(const ht_type *type)
{
    return type && type->rank == 4 && ht_type_elems(type) > 0;
}

static bool is_half(const ht_type *type)
{
    return type && (type->dtype == HT_F16 || type->dtype == HT_BF16);
}

static bool is_cast(const ht_type *type, adaptation how)
{
    return how.wide && is_half(type);
}

static bool is_copied(const ht_type *type, adaptation how)
{
    return how.contiguous && !is_cast(type, how) && type && !ht_type_contiguous(type);
}

/* The node's call as it would be then; NULL when memory is out. */
static const ht_call *adapted_call(layout *l, const ht_node *n, adaptation how)
{
    ht_call_storage storage;
    const ht_call *call = ht_node_call(l->g, n, l->arena, &storage);
    ht_call *adapted = HT_NEW(l->arena, ht_call, 1);
    ht_type *types = HT_NEW(l->arena, ht_type, n->n_in + n->n_out);
    const ht_type **list = HT_NEW(l->arena, const ht_type *, n->n_in + n->n_out);
    if (!call || !adapted || !types || !list) return NULL;
    for (size_t i = 0; i < n->n_in + n->n_out; i++) {
        const ht_type *type = i < n->n_in ? call->in[i] : call->out[i - n->n_in];
        if (!type) continue;
        types[i] = *type;
        list[i] = &types[i];
        if (is_cast(type, how)) types[i].dtype = HT_F32;
        if (i < n->n_in && (is_cast(type, how) || is_copied(type, how))) ht_type_row_major(&types[i]);
        if (how.channels_last && has_channels(type)) ht_type_channels_last(&types[i]);
    }
    *adapted = *call;
    adapted->in = list;
    adapted->out = list + n->n_in;
    return adapted;
}

/* Has the op such results of such inputs? One that only moves numbers, or rounds them, may not. */
static bool is_valid(const layout *l, const ht_call *call)
{
    const ht_op *op = call->op;
    bool open = op->prec != HT_PREC_MOVE && op->prec != HT_PREC_EXACT;
    ht_type out[8];
    ht_call bare = *call;
    for (size_t i = 0; i < call->n_out; i++) out[i] = *call->out[i];
    bare.out = NULL;
    if (op->infer(l->g->ctx, &bare, out) != HT_OK) return false;
    for (size_t i = 0; i < call->n_out; i++) {
        if (!ht_type_same_shape(&out[i], call->out[i])) return false;
        if (!open && out[i].dtype != call->out[i]->dtype) return false;
    }
    return true;
}

static const ht_kernel *choose_adapted(layout *l, const ht_node *n, adaptation how)
{
    const ht_call *call = adapted_call(l, n, how);
    if (!call || (how.wide && !is_valid(l, call))) return NULL;
    return ht_kernel_choose(l->g->ctx, call, l->target, NULL);
}

static void note_casts(const layout *l, const ht_node *n)
{
    ht_text types = {0};
    ht_type_text text;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val x = ht_node_in(l->g, n, i);
        if (x.id) ht_text_add(&types, "%s%s", i ? ", " : "", ht_type_str(ht_type_of(l->g, x), &text));
    }
    ht_note(l->g->ctx, HT_LOG_WARN, "plan: %s%s%s: no kernel for (%s); computed in f32, with casts around it",
            n->op->name, n->site ? " at " : "", n->site ? n->site : "", types.data ? types.data : "");
    ht_text_free(&types);
}

static ht_status adapt_inputs(layout *l, uint32_t id, adaptation how)
{
    ht_graph *g = l->g;
    for (size_t i = 0; i < g->nodes[id].n_in; i++) {
        ht_val x = ht_node_in(g, &g->nodes[id], i);
        if (!x.id) continue;
        bool cast = is_cast(ht_type_of(g, x), how);
        if (!cast && !is_copied(ht_type_of(g, x), how)) continue;
        ht_val made = cast ? cast_for(l, x, HT_F32, id) : contiguous_copy(l, x, id);
        HT_TRY(g->status);
        HT_TRY(choose_for_made(l, made));
        g->operands[g->nodes[id].in + i] = made;
    }
    return HT_OK;
}

/* The node now makes f32; its readers read what is cast back. */
static ht_status cast_results(layout *l, uint32_t id)
{
    ht_graph *g = l->g;
    for (size_t i = 0; i < g->nodes[id].n_out; i++) {
        ht_val y = ht_node_out(&g->nodes[id], i);
        ht_dtype half = ht_type_of(g, y)->dtype;
        if (!is_half(ht_type_of(g, y))) continue;
        g->values[y.id].type.dtype = HT_F32;
        ht_val cast = cast_for(l, y, half, id);
        HT_TRY(g->status);
        HT_TRY(choose_for_made(l, cast));
        ht_rewrite_replace(&l->rw, y, cast);
    }
    return g->status;
}

/* Results of a row that writes them where they spare a copy. */
static void place_results(layout *l, uint32_t id, const ht_kernel *kernel)
{
    const ht_node *n = &l->g->nodes[id];
    ht_call_storage storage;
    if (!l->places || !kernel->strided_results) return;
    for (size_t i = 0; i < n->n_out; i++) {
        ht_type *type = &l->g->values[n->out + i].type, before = *type, placed;
        if (!ht_plan_place_result(l->readers, ht_node_out(n, i), &placed)) continue;
        *type = placed;
        const ht_call *call = ht_node_call(l->g, n, l->arena, &storage);
        if (!call || kernel->can(call, l->target)) *type = before;
    }
}

/* ---- channels last ---- */

static bool reads_channels_last(const layout *l, const ht_node *n)
{
    bool found = false;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val x = ht_node_in(l->g, n, i);
        found |= x.id && has_channels(ht_type_of(l->g, x)) && ht_type_is_channels_last(ht_type_of(l->g, x));
    }
    return found;
}

static bool makes_channels(const layout *l, const ht_node *n)
{
    return n->n_out && has_channels(ht_type_of(l->g, ht_node_out(n, 0)));
}

/* The row that runs the node with its channels last; NULL: none wants or follows. */
static const ht_kernel *choose_channels_last(layout *l, const ht_node *n)
{
    if (!makes_channels(l, n)) return NULL;
    const ht_call *call = adapted_call(l, n, (adaptation){.channels_last = true});
    const ht_kernel *kernel = call ? ht_kernel_choose(l->g->ctx, call, l->target, NULL) : NULL;
    if (!kernel || kernel->channels == HT_CHANNELS_AS_THEY_COME) return NULL;
    return kernel->channels == HT_CHANNELS_LAST || reads_channels_last(l, n) ? kernel : NULL;
}

/* Weights and what else has no producer are copied once for all readers, in no region: they wait for nothing. */
static ht_status copy_channels_last(layout *l, uint32_t id, size_t i)
{
    ht_graph *g = l->g;
    ht_val x = ht_node_in(g, &g->nodes[id], i);
    bool shared = !ht_producer(g, x);
    size_t before = l->last_capacity;
    if (shared && !ht_grow((void **)&l->last, &l->last_capacity, (size_t)x.id + 1, sizeof *l->last))
        HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for layout");
    if (l->last_capacity > before) memset(l->last + before, 0, (l->last_capacity - before) * sizeof *l->last);
    ht_val copy = shared ? l->last[x.id] : HT_NONE;
    if (!copy.id) {
        copy = channels_last_copy(l, x, id);
        HT_TRY(g->status);
        if (shared) g->nodes[g->values[copy.id].owner].region = 0;
        if (shared) l->last[x.id] = copy;
        HT_TRY(choose_for_made(l, copy));
    }
    g->operands[g->nodes[id].in + i] = copy;
    return HT_OK;
}

/* Others know how an output or what is stored lies. */
static bool must_be_row_major(const layout *l, ht_val y)
{
    return ht_plan_is_pinned(l->readers, y);
}

static ht_status lay_out_channels_last(layout *l, uint32_t id, const ht_kernel *kernel)
{
    ht_graph *g = l->g;
    for (size_t i = 0; i < g->nodes[id].n_in; i++) {
        ht_val x = ht_node_in(g, &g->nodes[id], i);
        ht_type last = *ht_type_of(g, x);
        if (!x.id || !has_channels(&last)) continue;
        ht_type_channels_last(&last);
        /* What is packed before it is read may lie in any order. */
        if (kernel->prepack && kernel->prepack->inputs >> i & 1) continue;
        if (!ht_type_same_strides(ht_type_of(g, x), &last)) HT_TRY(copy_channels_last(l, id, i));
    }
    HT_TRY(remember(l, id, kernel));
    ht_rewrite_keep(&l->rw, id);
    for (size_t i = 0; i < g->nodes[id].n_out; i++) {
        ht_val y = ht_node_out(&g->nodes[id], i);
        if (!has_channels(ht_type_of(g, y))) continue;
        ht_type_channels_last(&g->values[y.id].type);
        if (ht_type_contiguous(ht_type_of(g, y)) || !must_be_row_major(l, y)) continue;
        ht_val copy = contiguous_copy(l, y, id);
        HT_TRY(g->status);
        HT_TRY(choose_for_made(l, copy));
        ht_rewrite_replace(&l->rw, y, copy);
    }
    return g->status;
}

/* Does a reader of y want it channels-last? */
static bool is_wanted_channels_last(layout *l, ht_val y)
{
    const ht_node *reader;
    for (uint32_t at = 0; (reader = ht_plan_reader(l->readers, y, &at));) {
        const ht_kernel *kernel = choose_channels_last(l, reader);
        if (kernel && kernel->channels == HT_CHANNELS_LAST) return true;
    }
    return false;
}

/* Results of an element-wise row, whose elements may lie in any order: that of its inputs, or of its readers. */
static void order_results(layout *l, uint32_t id, const ht_kernel *kernel)
{
    const ht_node *n = &l->g->nodes[id];
    ht_call_storage storage;
    if (!kernel->elementwise || !makes_channels(l, n)) return;
    for (size_t i = 0; i < n->n_out; i++)
        if (must_be_row_major(l, ht_node_out(n, i))) return;
    if (!reads_channels_last(l, n) && !is_wanted_channels_last(l, ht_node_out(n, 0))) return;
    const ht_type before = *ht_type_of(l->g, ht_node_out(n, 0));
    for (size_t i = 0; i < n->n_out; i++)
        if (!ht_type_same_shape(ht_type_of(l->g, ht_node_out(n, i)), &before)) return;
    for (size_t i = 0; i < n->n_out; i++) ht_type_channels_last(&l->g->values[n->out + i].type);
    const ht_call *call = ht_node_call(l->g, n, l->arena, &storage);
    if (call && !kernel->can(call, l->target)) return;
    for (size_t i = 0; i < n->n_out; i++) ht_type_row_major(&l->g->values[n->out + i].type);
}

static ht_status lay_out_compute(layout *l, uint32_t id)
{
    static const adaptation ways[] = {{.contiguous = true}, {.wide = true}, {.contiguous = true, .wide = true}};
    ht_graph *g = l->g;
    ht_call_storage storage;
    adaptation how = {0};
    const ht_kernel *kernel = choose_channels_last(l, &g->nodes[id]);
    if (kernel) return lay_out_channels_last(l, id, kernel);
    const ht_call *call = ht_node_call(g, &g->nodes[id], l->arena, &storage);
    kernel = call ? ht_kernel_choose(g->ctx, call, l->target, NULL) : NULL;
    for (size_t i = 0; !kernel && i < sizeof ways / sizeof ways[0]; i++) {
        how = ways[i];
        kernel = choose_adapted(l, &g->nodes[id], how);
    }
    if (!kernel) return no_kernel(l, &g->nodes[id], adapted_call(l, &g->nodes[id], (adaptation){.contiguous = true}));
    if (how.wide && l->log) note_casts(l, &g->nodes[id]);
    HT_TRY(adapt_inputs(l, id, how));
    if (!how.wide) place_results(l, id, kernel);
    if (!how.wide) order_results(l, id, kernel);
    HT_TRY(remember(l, id, kernel));
    ht_rewrite_keep(&l->rw, id);
    return how.wide ? cast_results(l, id) : g->status;
}

/* What a node reads may have been cast. */
static void map_inputs(layout *l, const ht_node *n)
{
    for (size_t i = 0; i < n->n_in; i++) l->g->operands[n->in + i] = ht_rewrite_map(&l->rw, ht_node_in(l->g, n, i));
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
    l->readers = ht_plan_find_readers(g, &g->segments[segment], l->arena);
    if (!survey(l, &g->segments[segment]) || !l->readers) HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for layout");
    if (l->last) memset(l->last, 0, l->last_capacity * sizeof *l->last);
    if (ht_rewrite_begin(&l->rw, g, segment)) {
        for (size_t i = 0; i < l->rw.count && status == HT_OK; i++) {
            uint32_t id = l->rw.old[i];
            const ht_op *op = g->nodes[id].op;
            map_inputs(l, &g->nodes[id]);
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

ht_status ht_plan_layout(ht_graph *g, const ht_plan_request *request, bool log, const ht_kernel ***kernels)
{
    /* Without fusion every value is traced, and has no gaps. */
    layout l = {.g = g, .target = request->target, .log = log, .places = !request->no_fusion};
    l.arena = ht_arena_create();
    ht_status status = l.arena ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "out of memory for layout");
    if (status == HT_OK) status = remember(&l, (uint32_t)g->node_count, NULL);
    for (uint32_t s = 0; s < g->segment_count && status == HT_OK; s++) status = lay_out_segment(&l, s);
    if (status == HT_OK) status = remember(&l, (uint32_t)g->node_count, NULL);
    ht_arena_free(l.arena);
    free(l.last);
    free(l.last_read);
    free(l.stored_at);
    if (status != HT_OK) {
        free(l.kernels);
        l.kernels = NULL;
    }
    *kernels = l.kernels;
    return status;
}
