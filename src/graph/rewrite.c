/* Rewriting of segments, and copies of segments and graphs. */
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

bool ht_rewrite_begin(ht_rewrite *rw, ht_graph *g, uint32_t segment)
{
    *rw = (ht_rewrite){.g = g, .segment = segment, .resume = g->segment};
    if (g->status != HT_OK) return false;
    ht_segment *s = &g->segments[segment];
    rw->old = malloc((s->node_count + 1) * sizeof *rw->old);
    if (!rw->old) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory while rewriting segment %s", s->name);
        return false;
    }
    if (s->node_count) memcpy(rw->old, s->nodes, s->node_count * sizeof *rw->old);
    rw->count = s->node_count;
    s->node_count = 0;
    g->segment = segment;
    return true;
}

ht_val ht_rewrite_map(const ht_rewrite *rw, ht_val v)
{
    /* A replacement can itself have been replaced before it was known here. */
    while (v.id && v.id < rw->map_capacity && rw->map[v.id].id) v = rw->map[v.id];
    return v;
}

void ht_rewrite_replace(ht_rewrite *rw, ht_val old, ht_val with)
{
    size_t before = rw->map_capacity;
    with = ht_rewrite_map(rw, with);
    if (!with.id || old.id == with.id) return;
    if (!ht_grow((void **)&rw->map, &rw->map_capacity, old.id + 1, sizeof *rw->map)) {
        ht_graph_fail(rw->g, HT_ENOMEM, "out of memory while rewriting");
        return;
    }
    memset(rw->map + before, 0, (rw->map_capacity - before) * sizeof *rw->map);
    rw->map[old.id] = with;
}

void ht_rewrite_keep(ht_rewrite *rw, uint32_t node)
{
    ht_graph *g = rw->g;
    ht_segment *s = &g->segments[rw->segment];
    const ht_node *n = &g->nodes[node];
    for (size_t i = 0; i < n->n_in; i++) g->operands[n->in + i] = ht_rewrite_map(rw, g->operands[n->in + i]);
    for (size_t i = 0; i < n->n_out; i++) {
        ht_value *v = &g->values[n->out + i];
        v->base = ht_rewrite_map(rw, v->base);
    }
    if (ht_grow((void **)&s->nodes, &s->node_capacity, s->node_count + 1, sizeof *s->nodes))
        s->nodes[s->node_count++] = node;
    else
        ht_graph_fail(g, HT_ENOMEM, "out of memory while rewriting");
}

ht_status ht_rewrite_end(ht_rewrite *rw)
{
    ht_graph *g = rw->g;
    if (rw->old) {
        ht_segment *s = &g->segments[rw->segment];
        for (size_t i = 0; i < s->output_count; i++) s->outputs[i].value = ht_rewrite_map(rw, s->outputs[i].value);
        g->segment = rw->resume;
    }
    free(rw->old);
    free(rw->map);
    return g->status;
}

void ht_rewrite_done(ht_graph *g, const ht_node *done)
{
    const ht_node *start = ht_start_of(g, done);
    for (size_t i = 0; start && i < start->n_in; i++) g->operands[done->in + 1 + i] = ht_node_in(g, start, i);
}

/* ---- copies ---- */

static ht_val mapped(const ht_val *map, ht_val v)
{
    return map[v.id].id ? map[v.id] : v;
}

/* One node into the current segment, inputs and origin mapped; its results enter the map. */
static void copy_node(ht_graph *g, uint32_t node, ht_val *map, uint32_t *node_map)
{
    ht_node n = g->nodes[node];
    ht_val in_few[8], *in = n.n_in <= 8 ? in_few : HT_NEW(g->arena, ht_val, n.n_in), out[8];
    ht_type want[8];
    if (!in) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory while copying a segment");
        return;
    }
    for (size_t i = 0; i < n.n_in; i++) in[i] = mapped(map, g->operands[n.in + i]);
    for (size_t i = 0; i < n.n_out; i++) want[i] = g->values[n.out + i].type;
    size_t n_attr = ht_op_attr_count(n.op);
    ht_emit(g, n.op, n.n_in, in, n_attr, n.attr, n.n_out ? want : NULL, out);
    if (g->status != HT_OK) return;
    ht_node *copy = &g->nodes[g->node_count - 1];
    copy->role = n.role;
    copy->region = n.region;
    copy->no_merge = n.no_merge;
    copy->recomputed = n.recomputed;
    copy->full = n.full;
    copy->checkpoint = n.checkpoint;
    copy->origin = node_map[n.origin];
    copy->site = n.site;
    copy->was = n.was;
    node_map[node] = (uint32_t)g->node_count - 1;
    for (size_t i = 0; i < n.n_out; i++) {
        const ht_value *from = &g->values[n.out + i];
        ht_value *to = &g->values[out[i].id];
        to->name = from->name;
        if (from->base.id) {
            to->type = from->type;
            to->base = mapped(map, from->base);
            to->offset = from->offset;
        }
        map[n.out + i] = out[i];
    }
}

uint32_t ht_segment_copy(ht_graph *g, uint32_t from, const char *name, ht_val **map_out)
{
    if (map_out) *map_out = NULL;
    ht_val *map = calloc(g->value_count, sizeof *map);
    uint32_t *node_map = calloc(g->node_count, sizeof *node_map);
    uint32_t resume = g->segment, to = ht_graph_add_segment(g, name);
    if (!map || !node_map) ht_graph_fail(g, HT_ENOMEM, "out of memory while copying a segment");
    if (g->status == HT_OK) {
        char scope[sizeof g->scope];
        memcpy(scope, g->scope, sizeof scope);
        g->scope[0] = 0;
        g->segment = to;
        for (size_t i = 0; i < g->segments[from].input_count; i++) {
            ht_val v = g->segments[from].inputs[i];
            ht_value old = g->values[v.id];
            map[v.id] = ht_graph_add_input(g, old.name, &old.type, ht_input_init(g, v));
        }
        for (size_t i = 0; i < g->segments[from].node_count && g->status == HT_OK; i++)
            copy_node(g, g->segments[from].nodes[i], map, node_map);
        for (size_t i = 0; i < g->segments[from].output_count; i++) {
            ht_named output = g->segments[from].outputs[i];
            ht_output(g, output.name, mapped(map, output.value));
        }
        memcpy(g->scope, scope, sizeof scope);
        g->segment = resume;
    }
    free(node_map);
    if (map_out && g->status == HT_OK)
        *map_out = map;
    else
        free(map);
    return to;
}

static void *copy_array(const void *from, size_t count, size_t elem_bytes)
{
    void *to = malloc((count ? count : 1) * elem_bytes);
    if (to && count) memcpy(to, from, count * elem_bytes);
    return to;
}

/* Names and attributes of the clone move to its own arena; one copy per pointer run is enough for attributes, since
 * nodes never share them. */
static bool own_strings(ht_graph *g)
{
#define OWN(field)                                                                                                     \
    do {                                                                                                               \
        if ((field) && !((field) = ht_arena_text(g->arena, (field), strlen(field)))) return false;                     \
    } while (0)
    for (size_t i = 1; i < g->value_count; i++) OWN(g->values[i].name);
    const char *last_from = NULL, *last_to = NULL;
    for (size_t i = 1; i < g->node_count; i++) {
        ht_node *n = &g->nodes[i];
        if (n->site && n->site == last_from) {
            n->site = last_to;
        } else if (n->site) {
            last_from = n->site;
            OWN(n->site);
            last_to = n->site;
        }
        size_t n_attr = ht_op_attr_count(n->op);
        ht_attr *attr = HT_NEW(g->arena, ht_attr, n_attr);
        if (!attr) return false;
        for (size_t a = 0; a < n_attr; a++)
            if (!ht_attr_copy(g->arena, &attr[a], &n->attr[a])) return false;
        n->attr = attr;
    }
    for (size_t i = 0; i < g->segment_count; i++) {
        OWN(g->segments[i].name);
        for (size_t o = 0; o < g->segments[i].output_count; o++) OWN(g->segments[i].outputs[o].name);
    }
    for (size_t i = 0; i < g->program_count; i++) OWN(g->programs[i].name);
#undef OWN
    return true;
}

static bool clone_lists(ht_graph *to, const ht_graph *from)
{
    bool ok = true;
    for (size_t i = 0; i < from->segment_count; i++) {
        const ht_segment *s = &from->segments[i];
        ht_segment *t = &to->segments[i];
        *t = *s;
        t->inputs = copy_array(s->inputs, s->input_count, sizeof *s->inputs);
        t->outputs = copy_array(s->outputs, s->output_count, sizeof *s->outputs);
        t->nodes = copy_array(s->nodes, s->node_count, sizeof *s->nodes);
        t->input_capacity = s->input_count;
        t->output_capacity = s->output_count;
        t->node_capacity = s->node_count;
        ok &= t->inputs && t->outputs && t->nodes;
    }
    for (size_t i = 0; i < from->program_count; i++) {
        const ht_program *p = &from->programs[i];
        to->programs[i] = *p;
        to->programs[i].calls = copy_array(p->calls, p->call_count, sizeof *p->calls);
        to->programs[i].call_capacity = p->call_count;
        ok &= to->programs[i].calls != NULL;
    }
    return ok;
}

ht_status ht_graph_clone(ht_graph **out, const ht_graph *from)
{
    *out = NULL;
    if (from->status != HT_OK) return from->status;
    ht_graph *g = malloc(sizeof *g);
    if (!g) HT_FAIL(from->ctx, HT_ENOMEM, "out of memory for a graph");
    *g = *from;
#define COPY(array, count, capacity)                                                                                   \
    g->array = copy_array(from->array, from->count, sizeof *g->array), g->capacity = from->count
    COPY(values, value_count, value_capacity);
    COPY(nodes, node_count, node_capacity);
    COPY(operands, operand_count, operand_capacity);
    COPY(states, state_count, state_capacity);
    COPY(input_inits, input_init_capacity, input_init_capacity);
    COPY(state_index, state_index_capacity, state_index_capacity);
#undef COPY
    g->segments = calloc(from->segment_count + 1, sizeof *g->segments);
    g->programs = calloc(from->program_count + 1, sizeof *g->programs);
    g->segment_capacity = from->segment_count;
    g->program_capacity = from->program_count;
    g->arena = ht_arena_create();
    if (!g->segments) g->segment_count = 0;
    if (!g->programs) g->program_count = 0;
    bool ok = g->values && g->nodes && g->operands && g->states && g->input_inits && g->state_index && g->segments &&
              g->programs && g->arena && clone_lists(g, from) && own_strings(g);
    if (!ok) {
        ht_graph_free(g);
        HT_FAIL(from->ctx, HT_ENOMEM, "out of memory for a graph");
    }
    *out = g;
    return HT_OK;
}
