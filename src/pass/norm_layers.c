#include "pass/norm_layers.h"

#include <stdlib.h>
#include <string.h>

#include "pass/quantize_layers.h"

/* By value id. */
typedef struct value_fact {
    uint32_t norm;  /* of a norm's result, and of a weight that reads one: the norm's scale; 0: none */
    uint32_t shift; /* of a scale: the norm's shift; 0: none */
    int input_axis; /* of a weight */
    bool mixed;     /* of a scale or a weight: something reads it, or what it makes, that is no such layer */
    bool is_scale, is_weight;
} value_fact;

typedef struct finder {
    const ht_graph *g;
    value_fact *facts;
} finder;

static bool is_norm(const ht_graph *g, const ht_node *n)
{
    bool named = strcmp(n->op->name, "layernorm") == 0 || strcmp(n->op->name, "rmsnorm") == 0;
    return named && n->n_in > 1 && ht_state_of(g, ht_node_in(g, n, 1));
}

static void note_norm(finder *f, const ht_node *n)
{
    uint32_t scale = ht_node_in(f->g, n, 1).id, shift = n->n_in > 2 ? ht_node_in(f->g, n, 2).id : 0;
    value_fact *fact = &f->facts[scale];
    if (fact->is_scale && fact->shift != shift) fact->mixed = true;
    fact->is_scale = true;
    fact->shift = shift;
    f->facts[n->out].norm = scale;
}

static void note_layer(finder *f, const ht_node *n, const ht_layer_kind *kind)
{
    uint32_t scale = f->facts[ht_node_in(f->g, n, 0).id].norm;
    value_fact *weight = &f->facts[ht_node_in(f->g, n, 1).id];
    int axis = 1 - kind->channel_axis(f->g, n);
    bool matrix = ht_type_of(f->g, ht_node_in(f->g, n, 1))->rank == 2;
    if (!scale || !matrix || (weight->is_weight && (weight->norm != scale || weight->input_axis != axis)))
        weight->mixed = true;
    if (weight->mixed && scale) f->facts[scale].mixed = true;
    if (!weight->is_weight) weight->norm = scale;
    weight->is_weight = true;
    weight->input_axis = axis;
}

/* Whatever else reads a norm's result, a weight or a norm's parameters. */
static void note_other(finder *f, ht_val v)
{
    f->facts[v.id].mixed = true;
    if (f->facts[v.id].norm) f->facts[f->facts[v.id].norm].mixed = true;
}

static void look(finder *f, const ht_node *n)
{
    const ht_layer_kind *kind = ht_layer_kind_of(f->g, n);
    if (kind && (kind->operands.lookup || kind->operands.second))
        kind = NULL; /* no products of the norm's channels alone */
    bool norm = is_norm(f->g, n);
    if (norm) note_norm(f, n);
    if (kind) note_layer(f, n, kind);
    for (size_t k = 0; k < n->n_in; k++) {
        ht_val v = ht_node_in(f->g, n, k);
        if (v.id && !(norm && k > 0) && !(kind && k < 2)) note_other(f, ht_root(f->g, v));
    }
}

/* A weight that is read otherwise binds the norm that it reads. */
static void settle(finder *f)
{
    for (size_t i = 1; i < f->g->value_count; i++)
        if (f->facts[i].is_weight && f->facts[i].mixed && f->facts[i].norm) f->facts[f->facts[i].norm].mixed = true;
}

static ht_status show(const finder *f, uint32_t scale, const char **names, int *axes,
                      ht_status (*visit)(void *arg, const ht_norm_layers *norm), void *arg)
{
    const value_fact *fact = &f->facts[scale];
    ht_norm_layers norm = {.scale = f->g->values[scale].name,
                           .shift = fact->shift ? f->g->values[fact->shift].name : NULL,
                           .weights = names,
                           .input_axes = axes};
    for (size_t i = 1; i < f->g->value_count; i++) {
        if (!f->facts[i].is_weight || f->facts[i].norm != scale) continue;
        names[norm.count] = f->g->values[i].name;
        axes[norm.count++] = f->facts[i].input_axis;
    }
    return norm.count ? visit(arg, &norm) : HT_OK;
}

static ht_status find(finder *f, const char **names, int *axes,
                      ht_status (*visit)(void *arg, const ht_norm_layers *norm), void *arg)
{
    const ht_graph *g = f->g;
    for (size_t s = 0; s < g->segment_count; s++) {
        const ht_segment *segment = &g->segments[s];
        if (strcmp(segment->name, "init") == 0) continue;
        for (size_t i = 0; i < segment->node_count; i++) look(f, &g->nodes[segment->nodes[i]]);
        for (size_t i = 0; i < segment->output_count; i++) note_other(f, ht_root(g, segment->outputs[i].value));
    }
    settle(f);
    for (uint32_t i = 1; i < g->value_count; i++) {
        uint32_t shift = f->facts[i].shift;
        if (f->facts[i].is_scale && !f->facts[i].mixed && !(shift && f->facts[shift].mixed))
            HT_TRY(show(f, i, names, axes, visit, arg));
    }
    return HT_OK;
}

ht_status ht_norm_layers_visit(const ht_graph *g, ht_status (*visit)(void *arg, const ht_norm_layers *norm), void *arg)
{
    finder f = {.g = g, .facts = calloc(g->value_count + 1, sizeof *f.facts)};
    const char **names = calloc(g->value_count + 1, sizeof *names);
    int *axes = calloc(g->value_count + 1, sizeof *axes);
    ht_status status = f.facts && names && axes ? find(&f, names, axes, visit, arg)
                                                : ht_fail(g->ctx, HT_ENOMEM, "out of memory for norms");
    free(axes);
    free(names);
    free(f.facts);
    return status;
}
