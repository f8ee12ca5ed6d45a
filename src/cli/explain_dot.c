/* Figure 1 as a drawing: for each layer a box for every block of a step, and arrows for what flows between them, with its
 * number type. Drawn from the graph as the last pass left it; what views and element-wise ops do inside a block is not
 * shown. */
#include "cli/explain_view.h"

#include <stdlib.h>
#include <string.h>

enum { BATCH = -1 }; /* instead of a layer: what the batch brings */

typedef struct arrow {
    int from, to; /* layers */
    ht_figure_block from_block, to_block;
    ht_dtype dtype;
} arrow;

typedef struct drawing {
    const ht_graph *g;
    const char **layers;
    bool (*boxes)[HT_FIGURE_COUNT]; /* by layer: which of them are there */
    size_t layer_count, layer_capacity, box_capacity;
    arrow *arrows;
    size_t arrow_count, arrow_capacity;
    int *owner; /* by value id of a state: the layer that reads it first, plus 1 */
    bool failed;
} drawing;

static const char *layer_of(const ht_graph *g, const ht_node *n)
{
    const char *site = n->site;
    if (!site && n->origin) site = g->nodes[n->origin].site;
    return site && site[0] ? site : "(none)";
}

static int find_layer(drawing *d, const char *layer)
{
    for (size_t i = d->layer_count; i-- > 0;)
        if (strcmp(d->layers[i], layer) == 0) return (int)i;
    size_t need = d->layer_count + 1;
    if (!ht_grow((void **)&d->layers, &d->layer_capacity, need, sizeof *d->layers) ||
        !ht_grow((void **)&d->boxes, &d->box_capacity, need, sizeof *d->boxes)) {
        d->failed = true;
        return 0;
    }
    d->layers[d->layer_count] = layer;
    memset(d->boxes[d->layer_count], 0, sizeof *d->boxes);
    return (int)d->layer_count++;
}

static void add_arrow(drawing *d, int from, ht_figure_block from_block, int to, ht_figure_block to_block,
                      ht_dtype dtype)
{
    if (d->failed || (from == to && from_block == to_block)) return;
    for (size_t i = d->arrow_count; i-- > 0;) {
        const arrow *a = &d->arrows[i];
        if (a->from == from && a->to == to && a->from_block == from_block && a->to_block == to_block &&
            a->dtype == dtype)
            return;
    }
    if (!ht_grow((void **)&d->arrows, &d->arrow_capacity, d->arrow_count + 1, sizeof *d->arrows)) {
        d->failed = true;
        return;
    }
    d->arrows[d->arrow_count++] = (arrow){from, to, from_block, to_block, dtype};
    if (from >= 0) d->boxes[from][from_block] = true;
    d->boxes[to][to_block] = true;
}

static ht_figure_block block_of(const ht_node *n)
{
    static const ht_figure_block blocks[HT_ROLE_COUNT] = {HT_FIGURE_FWD, HT_FIGURE_BWD_ACT, HT_FIGURE_BWD_WEIGHT,
                                                          HT_FIGURE_UPDATE};
    return blocks[n->role];
}

/* Parameters come out of their layer's update, or of the copy that it writes. */
static void add_state(drawing *d, ht_val v, int layer, ht_figure_block block)
{
    const ht_state *state = ht_state_of(d->g, v);
    bool copy = state->heading == HT_HEADING_WEIGHTS;
    if (!copy && !state->trained) return;
    if (!d->owner[v.id]) d->owner[v.id] = layer + 1;
    int owner = d->owner[v.id] - 1;
    ht_figure_block from = copy ? HT_FIGURE_FLOAT2HALF : HT_FIGURE_UPDATE;
    add_arrow(d, owner, from, layer, block, ht_type_of(d->g, v)->dtype);
    if (copy) add_arrow(d, owner, HT_FIGURE_UPDATE, owner, HT_FIGURE_FLOAT2HALF, HT_F32);
}

/* A gradient goes to the update of the layer whose parameter it belongs to. */
static void add_store(drawing *d, const ht_node *store)
{
    const ht_value *state = ht_value_of(d->g, ht_node_in(d->g, store, 0));
    const ht_node *producer = ht_producer(d->g, ht_node_in(d->g, store, 1));
    size_t length = strlen(state->name);
    if (!producer || length < 5 || strcmp(state->name + length - 5, ".grad") != 0) return;
    int from = find_layer(d, layer_of(d->g, producer)), to = from;
    for (size_t i = 0; i < d->g->state_count; i++) {
        ht_val v = d->g->states[i].value;
        const char *name = ht_value_of(d->g, v)->name;
        bool own = strncmp(name, state->name, length - 5) == 0 &&
                   (name[length - 5] == '\0' || strcmp(name + length - 5, ".half") == 0);
        if (own && d->owner[v.id]) to = d->owner[v.id] - 1;
    }
    add_arrow(d, from, block_of(producer), to, HT_FIGURE_UPDATE, state->type.dtype);
}

static void add_node(drawing *d, const ht_node *n)
{
    if (n->op == &ht_op_store) {
        add_store(d, n);
        return;
    }
    int layer = find_layer(d, layer_of(d->g, n));
    if (d->failed) return;
    d->boxes[layer][block_of(n)] = true;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(d->g, n, i);
        const ht_node *producer = ht_producer(d->g, v);
        ht_dtype dtype = ht_type_of(d->g, v)->dtype;
        if (producer)
            add_arrow(d, find_layer(d, layer_of(d->g, producer)), block_of(producer), layer, block_of(n), dtype);
        else if (v.id && ht_state_of(d->g, v))
            add_state(d, v, layer, block_of(n));
        else if (v.id)
            add_arrow(d, BATCH, HT_FIGURE_FWD, layer, block_of(n), dtype);
    }
}

static void print_boxes(ht_text *text, const drawing *d)
{
    static const char *const colours[HT_FIGURE_COUNT] = {"#f4d9a8", "#cfe2f3", "#d9ead3", "#d9d2e9", "#eeeeee"};
    for (size_t i = 0; i < d->layer_count; i++) {
        ht_text_add(text, "  subgraph cluster_%zu {\n    label=", i);
        ht_json_put_text(&(ht_json_writer){.text = text}, NULL, d->layers[i]);
        ht_text_add(text, ";\n");
        for (int b = 0; b < HT_FIGURE_COUNT; b++)
            if (d->boxes[i][b])
                ht_text_add(text, "    l%zu_%d [label=\"%s\", fillcolor=\"%s\"];\n", i, b, ht_figure_names[b],
                            colours[b]);
        ht_text_add(text, "  }\n");
    }
}

static void print_arrows(ht_text *text, const drawing *d)
{
    for (size_t i = 0; i < d->arrow_count; i++) {
        const arrow *a = &d->arrows[i];
        bool half = a->dtype == HT_F16 || a->dtype == HT_BF16;
        if (a->from == BATCH)
            ht_text_add(text, "  batch");
        else
            ht_text_add(text, "  l%d_%d", a->from, (int)a->from_block);
        ht_text_add(text, " -> l%d_%d [label=\"%s\"%s];\n", a->to, (int)a->to_block, ht_dtype_name(a->dtype),
                    half ? ", color=\"#c00000\", fontcolor=\"#c00000\"" : "");
    }
}

ht_status cli_explain_dot(ht_text *text, const cli_explained *e)
{
    drawing d = {.g = e->last};
    static const char *const segments[] = {"micro_first", "fwd", "bwd_first"}; /* the latter of a pipeline's stage */
    d.owner = calloc(d.g->value_count + 1, sizeof *d.owner);
    d.failed = !d.owner;
    for (size_t s = 0; s < sizeof segments / sizeof segments[0]; s++) {
        int segment = ht_segment_find(d.g, segments[s]);
        for (size_t i = 0; segment >= 0 && i < d.g->segments[segment].node_count && !d.failed; i++)
            add_node(&d, &d.g->nodes[d.g->segments[segment].nodes[i]]);
    }
    if (!d.failed) {
        ht_text_add(text, "digraph step {\n  rankdir=LR;\n  newrank=true;\n  node [shape=box, style=filled, "
                          "fontname=\"sans-serif\"];\n"
                          "  edge [fontname=\"sans-serif\", fontsize=10];\n"
                          "  batch [shape=ellipse, fillcolor=\"white\"];\n");
        print_boxes(text, &d);
        print_arrows(text, &d);
        ht_text_add(text, "}\n");
    }
    free(d.layers);
    free(d.boxes);
    free(d.arrows);
    free(d.owner);
    if (d.failed) HT_FAIL(e->ctx, HT_ENOMEM, "out of memory for a drawing");
    return HT_OK;
}
