/* State of the pass fp8.
 *     weights      copies in f8 with their scales: derived state like half copies, written by whatever writes the weight,
 *                  made by "derive" before step 0 and after a resume, never saved. The scale is that of the new weight.
 *     tensors      activations and gradients, with delayed scaling: the magnitudes of the last steps and the scale that
 *                  follows from them. It is saved, so a resumed run goes on with the same bits.
 * The tensors' state lies in flat groups, one for each type, so that one call of the update serves all of them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/fp8.h"

/* A gradient's magnitude may grow tenfold in a step, and f8e5m2 has thirty powers of two to spare some of. */
enum { GRADIENT_MARGIN = 4 };

void ht_f8_state_begin(ht_f8_state *s, ht_graph *g, const ht_precision_options *options, bool both)
{
    *s = (ht_f8_state){.g = g, .options = options, .both = both};
    s->groups[HT_F8_FORWARD] = (ht_f8_group){.dtype = HT_F8E4M3, .top = 8};
    s->groups[HT_F8_BACKWARD] = (ht_f8_group){.dtype = HT_F8E5M2, .top = 15, .margin = GRADIENT_MARGIN};
}

void ht_f8_state_free(ht_f8_state *s)
{
    for (size_t i = 0; i < HT_F8_GROUPS; i++) {
        free(s->groups[i].amax);
        free(s->groups[i].history);
        free(s->groups[i].scale);
    }
    free(s->weights);
}

/* The type with its last axis first. */
static ht_type turned_type(const ht_type *type)
{
    ht_type turned = *type;
    for (int axis = 1; axis < type->rank; axis++) turned.dim[axis] = type->dim[axis - 1];
    turned.dim[0] = type->dim[type->rank - 1];
    ht_type_row_major(&turned);
    return turned;
}

ht_f8_value ht_f8_quantize(ht_f8_state *s, ht_val x, ht_dtype dtype, ht_val scale, ht_val *amax)
{
    ht_graph *g = s->g;
    if (g->status != HT_OK) return (ht_f8_value){HT_NONE, HT_NONE, HT_NONE};
    ht_type codes = *ht_type_of(g, x), number = ht_type_make(HT_F32, 0, NULL);
    ht_val out[4] = {HT_NONE, HT_NONE, HT_NONE, HT_NONE};
    codes.dtype = dtype;
    ht_type_row_major(&codes);
    number.space = codes.space;
    const ht_type alone[] = {codes, number, number}, both[] = {codes, turned_type(&codes), number, number};
    ht_emit_n(g, s->both ? "quantize_both" : "quantize", s->both ? both : alone, HT_VALS(x, scale), HT_NO_ATTRS, out);
    if (amax) *amax = out[s->both ? 3 : 2];
    return (ht_f8_value){out[0], s->both ? out[1] : HT_NONE, out[s->both ? 2 : 1]};
}

/* ---- weights ---- */

/* The state that a derived one is a cast of, by the segment that derives it. */
static ht_val source_of_copy(const ht_graph *g, ht_val copy)
{
    int derive = ht_segment_find(g, "derive");
    for (size_t i = 0; derive >= 0 && i < g->segments[derive].node_count; i++) {
        const ht_node *n = &g->nodes[g->segments[derive].nodes[i]];
        if (n->op != &ht_op_store || ht_node_in(g, n, 0).id != copy.id) continue;
        const ht_node *cast = ht_producer(g, ht_node_in(g, n, 1));
        return cast && strcmp(cast->op->name, "cast") == 0 ? ht_node_in(g, cast, 0) : HT_NONE;
    }
    return HT_NONE;
}

static ht_val parameter_of(const ht_graph *g, ht_val read)
{
    const ht_state *state = ht_state_of(g, read);
    if (state && state->derived) state = ht_state_of(g, source_of_copy(g, read));
    bool parameter = state && (state->heading == HT_HEADING_PARAMETERS || state->heading == HT_HEADING_MASTERS);
    return parameter ? state->value : HT_NONE;
}

static ht_val add_copy(ht_graph *g, ht_val master, const char *what, const ht_type *type)
{
    char name[512];
    snprintf(name, sizeof name, "%s.%s", ht_value_of(g, master)->name, what);
    return ht_graph_add_state(g, name, type, &(ht_state){.heading = HT_HEADING_WEIGHTS, .derived = true});
}

const ht_f8_weight *ht_f8_weight_of(ht_f8_state *s, ht_val read)
{
    ht_graph *g = s->g;
    for (size_t i = 0; i < s->weight_count; i++)
        if (s->weights[i].read.id == read.id) return &s->weights[i];
    ht_val master = parameter_of(g, read);
    if (!master.id) return NULL;
    if (!ht_grow((void **)&s->weights, &s->weight_capacity, s->weight_count + 1, sizeof *s->weights)) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for copies in f8");
        return NULL;
    }
    ht_type codes = *ht_type_of(g, read), number = ht_type_make(HT_F32, 0, NULL);
    codes.dtype = HT_F8E4M3;
    ht_type_row_major(&codes); /* the half copy may be a view of its group's */
    number.space = codes.space;
    ht_type turned = turned_type(&codes);
    ht_f8_weight w = {.master = master, .read = read};
    w.copy.codes = add_copy(g, master, "f8", &codes);
    if (s->both) w.copy.turned = add_copy(g, master, "f8t", &turned);
    w.copy.scale = add_copy(g, master, "f8.scale", &number);
    s->weights[s->weight_count++] = w;
    return &s->weights[s->weight_count - 1];
}

static void store_weight(ht_f8_state *s, const ht_f8_weight *w, ht_val value)
{
    ht_graph *g = s->g;
    ht_val x = ht_to_space(g, value, ht_type_of(g, w->read)->space);
    ht_f8_value made = ht_f8_quantize(s, x, HT_F8E4M3, HT_NONE, NULL);
    ht_store(g, w->copy.codes, made.codes);
    if (s->both) ht_store(g, w->copy.turned, made.turned);
    ht_store(g, w->copy.scale, made.scale);
}

/* What a weight becomes when `state` becomes `value`: that, or its place in the group; none: it is not written. */
static ht_val value_of_weight(ht_graph *g, const ht_f8_weight *w, ht_val state, ht_val value)
{
    ht_val base = ht_value_of(g, w->master)->base;
    if (w->master.id == state.id) return value;
    if (base.id != state.id || ht_type_of(g, state)->rank != 1) return HT_NONE;
    ht_type type = *ht_type_of(g, w->master);
    ht_val part = ht_slice_axis(g, value, 0, ht_value_of(g, w->master)->offset, ht_type_elems(&type));
    return ht_reshape(g, part, type.rank, type.dim);
}

/* Whatever writes a weight writes its copies. */
static ht_status store_weights(ht_f8_state *s, uint32_t segment)
{
    ht_graph *g = s->g;
    ht_rewrite rw;
    if (!ht_rewrite_begin(&rw, g, segment)) return g->status;
    for (size_t i = 0; i < rw.count && g->status == HT_OK; i++) {
        const ht_node n = g->nodes[rw.old[i]]; /* the builder may move the graph's */
        size_t first = g->node_count;
        ht_rewrite_keep(&rw, rw.old[i]);
        for (size_t k = 0; n.op == &ht_op_store && k < s->weight_count; k++) {
            ht_val value = value_of_weight(g, &s->weights[k], ht_node_in(g, &n, 0), ht_node_in(g, &n, 1));
            if (value.id) store_weight(s, &s->weights[k], value);
        }
        for (size_t made = first; made < g->node_count; made++) g->nodes[made].role = n.role;
    }
    return ht_rewrite_end(&rw);
}

static void derive_weights(ht_f8_state *s)
{
    ht_graph *g = s->g;
    uint32_t resume = g->segment;
    if (!s->weight_count) return;
    int derive = ht_segment_find(g, "derive");
    g->segment = derive >= 0 ? (uint32_t)derive : ht_graph_add_segment(g, "derive");
    for (size_t i = 0; i < s->weight_count; i++) store_weight(s, &s->weights[i], s->weights[i].master);
    g->segment = resume;
}

/* ---- tensors ---- */

static ht_val add_number(ht_f8_state *s, const char *tensor, const char *what, int rank)
{
    char name[512];
    int64_t n = s->options->fp8_history;
    ht_type type = ht_type_make(HT_F32, rank, &n);
    snprintf(name, sizeof name, "%s.%s", tensor, what);
    ht_val known = ht_find(s->g, name);
    return known.id ? known : ht_graph_add_state(s->g, name, &type, &(ht_state){.heading = HT_HEADING_SCALES});
}

/* The place of a tensor in its group; the same in every segment. */
static bool place_of_tensor(ht_f8_state *s, ht_f8_group *group, const char *name, size_t *place)
{
    ht_val amax = add_number(s, name, "amax", 0);
    for (*place = 0; *place < group->count; ++*place)
        if (group->amax[*place].id == amax.id) return true;
    size_t capacity = group->capacity, same = group->capacity;
    if (!ht_grow((void **)&group->amax, &group->capacity, group->count + 1, sizeof *group->amax) ||
        !ht_grow((void **)&group->history, &capacity, group->count + 1, sizeof *group->history) ||
        !ht_grow((void **)&group->scale, &same, group->count + 1, sizeof *group->scale)) {
        ht_graph_fail(s->g, HT_ENOMEM, "out of memory for tensors in f8");
        return false;
    }
    group->amax[group->count] = amax;
    group->history[group->count] = add_number(s, name, "history", 1);
    group->scale[group->count++] = add_number(s, name, "scale", 0);
    return true;
}

ht_f8_value ht_f8_tensor(ht_f8_state *s, size_t which, const char *name, ht_val x, bool more)
{
    ht_graph *g = s->g;
    ht_f8_group *group = &s->groups[which];
    ht_val amax = HT_NONE;
    size_t place;
    if (s->options->fp8 == HT_FP8_CURRENT) return ht_f8_quantize(s, x, group->dtype, HT_NONE, NULL);
    if (!place_of_tensor(s, group, name, &place)) return (ht_f8_value){HT_NONE, HT_NONE, HT_NONE};
    ht_val known = group->amax[place];
    ht_f8_value made = ht_f8_quantize(s, x, group->dtype, group->scale[place], &amax);
    ht_store(g, known, more ? ht_max(g, known, amax) : amax);
    return made;
}

static ht_val add_flat(ht_graph *g, const ht_f8_group *group, const char *what, int64_t width, const ht_val *parts)
{
    char name[64];
    ht_type type = ht_type_make(HT_F32, width ? 2 : 1, (const int64_t[]){(int64_t)group->count, width});
    snprintf(name, sizeof name, "fp8.%s.%s", ht_dtype_name(group->dtype), what);
    ht_val flat = ht_graph_add_state(g, name, &type, &(ht_state){.heading = HT_HEADING_SCALES});
    for (size_t i = 0; i < group->count && g->status == HT_OK; i++)
        ht_value_view(g, parts[i], flat, (int64_t)i * (width ? width : 1));
    return flat;
}

/* Once per step, whether it is applied or skipped. */
static void step_group(ht_f8_state *s, const ht_f8_group *group)
{
    ht_graph *g = s->g;
    int update = ht_segment_find(g, "update");
    ht_val next[2] = {HT_NONE, HT_NONE};
    if (!group->count) return;
    ht_val amax = add_flat(g, group, "amax", 0, group->amax);
    ht_val history = add_flat(g, group, "history", s->options->fp8_history, group->history);
    ht_val scale = add_flat(g, group, "scale", 0, group->scale);
    if (update < 0 || g->status != HT_OK) return;
    uint32_t resume = g->segment;
    g->segment = (uint32_t)update;
    g->role = HT_ROLE_UPDATE;
    ht_emit_n(g, "amax_step", NULL, HT_VALS(amax, history, scale),
              HT_ATTRS(HT_INT("top", group->top), HT_INT("margin", group->margin)), next);
    ht_store(g, history, next[0]);
    ht_store(g, scale, next[1]);
    g->role = HT_ROLE_FWD;
    g->segment = resume;
}

ht_status ht_f8_state_finish(ht_f8_state *s)
{
    uint32_t count = (uint32_t)s->g->segment_count;
    int derive = ht_segment_find(s->g, "derive");
    for (uint32_t i = 0; i < count && s->weight_count; i++)
        if ((int)i != derive) HT_TRY(store_weights(s, i));
    derive_weights(s);
    for (size_t i = 0; i < HT_F8_GROUPS; i++) step_group(s, &s->groups[i]);
    return s->g->status;
}
