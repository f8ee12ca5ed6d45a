/* Nodes of one graph in another: those that a few of its values need. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/distill.h"

typedef struct joining {
    ht_graph *g;
    const ht_graph *teacher;
    uint32_t to;
    ht_val *map;  /* by value of the teacher: the same in g, or none */
    bool *needed; /* by value of the teacher */
} joining;

static void mark_needed(joining *j, const ht_segment *s)
{
    for (size_t i = s->node_count; i-- > 0;) {
        const ht_node *n = &j->teacher->nodes[s->nodes[i]];
        bool needed = false;
        for (size_t k = 0; k < n->n_out; k++) needed |= j->needed[n->out + k];
        for (size_t k = 0; needed && k < n->n_in; k++) j->needed[ht_node_in(j->teacher, n, k).id] = true;
        for (size_t k = 0; needed && k < n->n_out; k++) j->needed[n->out + k] = true;
    }
}

static ht_val take_state(joining *j, ht_val v)
{
    const ht_value *value = ht_value_of(j->teacher, v);
    const ht_state *state = ht_state_of(j->teacher, v);
    char name[512];
    if (state->heading == HT_HEADING_CACHES || value->base.id) {
        ht_graph_fail(j->g, HT_ENOTSUP, "distill: the teacher's state '%s' goes from batch to batch", value->name);
        return HT_NONE;
    }
    snprintf(name, sizeof name, HT_TEACHER_PREFIX "%s", value->name);
    ht_val found = ht_find(j->g, name);
    if (found.id) return found;
    return ht_graph_add_state(j->g, name, &value->type, &(ht_state){.heading = state->heading, .init = state->init});
}

static ht_val take_input(joining *j, ht_val v)
{
    const ht_value *value = ht_value_of(j->teacher, v);
    const ht_segment *s = &j->g->segments[j->to];
    ht_type_text want, have;
    for (size_t i = 0; i < s->input_count; i++) {
        const ht_value *input = ht_value_of(j->g, s->inputs[i]);
        if (strcmp(input->name, value->name) != 0) continue;
        if (input->type.dtype == value->type.dtype && ht_type_same_shape(&input->type, &value->type))
            return s->inputs[i];
        ht_graph_fail(j->g, HT_ESHAPE, "distill: the teacher reads input '%s' as %s, the student as %s", value->name,
                      ht_type_str(&value->type, &want), ht_type_str(&input->type, &have));
        return HT_NONE;
    }
    ht_graph_fail(j->g, HT_EINVAL, "distill: the teacher reads input '%s', which the student does not have",
                  value->name);
    return HT_NONE;
}

static ht_val take(joining *j, ht_val v)
{
    if (!v.id || j->map[v.id].id) return j->map[v.id];
    ht_value_kind kind = ht_value_of(j->teacher, v)->kind;
    return j->map[v.id] = kind == HT_VALUE_STATE ? take_state(j, v) : take_input(j, v);
}

static void name_site(ht_graph *g, ht_node *copy, const char *site)
{
    char name[512];
    int length = snprintf(name, sizeof name, "teacher%s%s", site ? "." : "", site ? site : "");
    copy->site = ht_arena_text(g->arena, name, length < (int)sizeof name ? (size_t)length : sizeof name - 1);
    if (!copy->site) ht_graph_fail(g, HT_ENOMEM, "out of memory for a teacher");
}

static void copy_node(joining *j, const ht_node *n)
{
    ht_graph *g = j->g;
    enum { FEW = 8 };
    ht_val few[FEW], *in = n->n_in <= FEW ? few : HT_NEW(g->arena, ht_val, n->n_in), out[FEW];
    ht_type want[FEW];
    if (!in) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for a teacher");
        return;
    }
    for (size_t i = 0; i < n->n_in; i++) in[i] = take(j, ht_node_in(j->teacher, n, i));
    for (size_t i = 0; i < n->n_out; i++) want[i] = *ht_type_of(j->teacher, ht_node_out(n, i));
    ht_emit(g, n->op, n->n_in, in, ht_op_attr_count(n->op), n->attr, want, out);
    if (g->status != HT_OK) return;
    ht_node *copy = &g->nodes[g->node_count - 1];
    copy->no_merge = n->no_merge;
    copy->full = n->full;
    name_site(g, copy, n->site);
    for (size_t i = 0; i < n->n_out; i++) {
        const ht_value *from = ht_value_of(j->teacher, ht_node_out(n, i));
        if (from->base.id) {
            g->values[out[i].id].type = from->type;
            ht_value_view(g, out[i], take(j, from->base), from->offset);
        }
        j->map[n->out + i] = out[i];
    }
}

ht_status ht_teacher_join(ht_graph *g, uint32_t to, const ht_graph *teacher, uint32_t from, size_t count,
                          const ht_val *wanted, ht_val *out)
{
    const ht_segment *s = &teacher->segments[from];
    joining j = {.g = g, .teacher = teacher, .to = to};
    j.map = calloc(teacher->value_count, sizeof *j.map);
    j.needed = calloc(teacher->value_count, sizeof *j.needed);
    if (j.map && j.needed) {
        for (size_t i = 0; i < count; i++) j.needed[wanted[i].id] = true;
        mark_needed(&j, s);
        for (size_t i = 0; i < s->node_count && g->status == HT_OK; i++) {
            const ht_node *n = &teacher->nodes[s->nodes[i]];
            if (n->n_out && j.needed[n->out]) copy_node(&j, n);
        }
        for (size_t i = 0; i < count; i++) out[i] = j.map[wanted[i].id];
    } else {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for a teacher");
    }
    free(j.map);
    free(j.needed);
    return g->status;
}
