/* quantize: layers of a trained model read codes, in a graph that computes it. A weight `w` becomes integers of a few bits with a
 * scale for each output channel, or one for all; activations become 8 bits, with a scale and a zero point for each row that
 * are found while the model runs (dynamic), or with those that calibration found (static). Results are f32; what follows a
 * layer stays as it is, and is its epilogue. Which ops are layers: quantize_layers.def. Or weights alone become codes, by groups
 * of inputs: quantize_nbits.c.
 *
 * The codes of w are the states `w.int8` (by their format, code_formats.def) and `w.int8_scale`. `quantize_weights` says what they are:
 *     derived    "derive" makes them of w, which is still what is saved and loaded
 *     stored     they are parameters in its place, and w goes. Of a weight that something else reads, such as an embedding, w
 *                stays, and they are derived
 * Static activations have the states `w.in_scale` and `w.in_zero`, of the first weight that reads them.
 *
 * A graph that trains keeps its floats, and computes with the numbers that codes of them would stand for (quantize_fake.c); it
 * has states of static activations of its own. Layers in f8 compute with such numbers in every graph: there is no product of f8. */
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/quantize_layers.h"

/* A weight, and what stands for it. */
typedef struct layer_weight {
    ht_val weight, codes, scale;
    const ht_quantize_group *how;
    bool in_words; /* weights alone are codes: `words` instead */
    ht_nbits_states words;
    int axis;                       /* of its channels */
    size_t ranges;                  /* of static activations: the weight whose states they have */
    ht_val range_scale, range_zero; /* these states, of such a weight */
    ht_range_states trains;         /* in their place, in a graph that trains */
} layer_weight;

/* Activations, and what stands for them; of the segment at hand. */
typedef struct activation {
    ht_val x, codes[3]; /* codes, scales, zero points; or the numbers that they stand for */
    size_t ranges;      /* as in layer_weight; NO_RANGES: dynamic */
    bool symmetric, f8;
} activation;

#define NO_RANGES SIZE_MAX

/* Who reads a value: layers of two sorts by their weight, or anything else. */
enum { MULTIPLIED = 1, LOOKED_UP = 2, OTHERWISE = 4 };

typedef struct quantizer {
    ht_graph *g;
    const ht_quantize_options *options;
    bool training; /* numbers that codes stand for, not codes */
    bool observes; /* the segment at hand trains: static ranges follow what it reads */
    regex_t expressions[HT_MOST_PARAM_PATTERNS];
    size_t expression_count;
    bool matched[HT_MOST_PARAM_PATTERNS];    /* by group: a layer, be it one of an earlier group */
    size_t replaced[HT_MOST_PARAM_PATTERNS]; /* layers, by group */
    const char *refused[HT_MOST_PARAM_PATTERNS],
        *refused_weight[HT_MOST_PARAM_PATTERNS]; /* the first, with the reason; a table if there is nothing else */
    bool refused_table[HT_MOST_PARAM_PATTERNS];
    layer_weight *weights;
    size_t weight_count, weight_capacity;
    activation *activations;
    size_t activation_count, activation_capacity;
    unsigned char *readers; /* by value */
    ht_rewrite rw;
} quantizer;

#define HT_LAYER(id) extern const ht_layer_kind ht_layer_kind_##id;
#include "pass/quantize_layers.def"
#undef HT_LAYER

const ht_layer_kind *const ht_layer_kinds[] = {
#define HT_LAYER(id) &ht_layer_kind_##id,
#include "pass/quantize_layers.def"
#undef HT_LAYER
    NULL,
};

/* ---- which layers ---- */

static const ht_layer_kind *find_kind(const char *op)
{
    size_t i = 0;
    while (ht_layer_kinds[i] && strcmp(ht_layer_kinds[i]->operands.name, op) != 0) i++;
    return ht_layer_kinds[i];
}

const ht_layer_op *ht_layer_op_find(const char *name)
{
    const ht_layer_kind *kind = find_kind(name);
    return kind ? &kind->operands : NULL;
}

static bool is_float_parameter(const ht_graph *g, ht_val w)
{
    const ht_state *state = ht_state_of(g, w);
    return state && !state->derived && state->heading == HT_HEADING_PARAMETERS && ht_type_of(g, w)->dtype == HT_F32;
}

const ht_layer_kind *ht_layer_kind_of(const ht_graph *g, const ht_node *n)
{
    const ht_layer_kind *kind = find_kind(n->op->name);
    if (!kind || n->role != HT_ROLE_FWD) return NULL;
    const ht_layer_op *at = &kind->operands;
    bool floats = at->lookup || ht_type_of(g, ht_node_in(g, n, at->input))->dtype == HT_F32;
    floats = floats && ht_type_of(g, ht_node_out(n, 0))->dtype == HT_F32 &&
             is_float_parameter(g, ht_node_in(g, n, at->weight)) &&
             (!at->second || is_float_parameter(g, ht_node_in(g, n, at->second)));
    return floats ? kind : NULL;
}

/* Activations stay floats. */
static bool weights_alone(const ht_quantize_group *how)
{
    return how->activations.bits == 0;
}

/* Weights that are codes in words by groups; rows of a table never are. */
static bool in_words(const ht_layer_kind *kind, const ht_quantize_group *how)
{
    return weights_alone(how) && !kind->operands.lookup;
}

static ht_val weight_in(const ht_graph *g, const ht_node *n, const ht_layer_kind *kind)
{
    return ht_node_in(g, n, kind->operands.weight);
}

static bool is_f8(const ht_quantize_group *how)
{
    return how->weights.kind == HT_CODES_FP8;
}

static const char *refuse(const quantizer *q, const ht_node *n, const ht_layer_kind *kind, const ht_quantize_group *how)
{
    if (!weights_alone(how)) return kind->refuse(q->g, n, how);
    unsigned own = kind->operands.lookup ? LOOKED_UP : MULTIPLIED;
    if (!kind->nbits && !kind->operands.lookup)
        return "only products by a matrix and tables have codes of weights alone";
    if (q->readers[weight_in(q->g, n, kind).id] & ~own) return "something else reads its weight";
    return kind->operands.lookup ? kind->refuse(q->g, n, how) : ht_nbits_refuse(q->g, n, how);
}

static unsigned reader_of(const ht_layer_kind *kind, size_t operand)
{
    if (!kind || (operand != kind->operands.weight && (!kind->operands.second || operand != kind->operands.second)))
        return OTHERWISE;
    return kind->operands.lookup ? LOOKED_UP : MULTIPLIED;
}

static bool find_readers(quantizer *q)
{
    const ht_graph *g = q->g;
    q->readers = calloc(g->value_count + 1, sizeof *q->readers);
    for (size_t s = 0; s < g->segment_count && q->readers; s++)
        for (size_t i = 0; i < g->segments[s].node_count; i++) {
            const ht_node *n = &g->nodes[g->segments[s].nodes[i]];
            if (n->role != HT_ROLE_FWD) continue;
            const ht_layer_kind *kind = ht_layer_kind_of(g, n);
            for (size_t k = 0; k < n->n_in; k++) q->readers[ht_root(g, ht_node_in(g, n, k)).id] |= reader_of(kind, k);
        }
    return q->readers != NULL;
}

/* The first group whose expression matches; NULL: the layer stays as it is. */
static const ht_quantize_group *group_of(quantizer *q, const ht_node *n, const ht_layer_kind *kind)
{
    const char *name = ht_value_of(q->g, weight_in(q->g, n, kind))->name;
    const ht_quantize_group *first = NULL;
    for (size_t i = 0; i < q->expression_count; i++) {
        if (regexec(&q->expressions[i], name, 0, NULL, 0) != 0) continue;
        q->matched[i] = true;
        if (!first) first = &q->options->groups[i];
    }
    if (first && !first->weights.bits) return NULL;
    const char *reason = first ? refuse(q, n, kind, first) : NULL;
    if (!reason) return first;
    size_t i = (size_t)(first - q->options->groups);
    if (q->refused[i] && !(q->refused_table[i] && !kind->operands.lookup)) return NULL;
    q->refused_weight[i] = name;
    q->refused[i] = reason;
    q->refused_table[i] = kind->operands.lookup;
    return NULL;
}

/* ---- states ---- */

static ht_val add_state(quantizer *q, ht_val weight, const char *what, ht_type type, ht_heading heading)
{
    ht_graph *g = q->g;
    char name[512];
    snprintf(name, sizeof name, "%s.%s", ht_value_of(g, weight)->name, what);
    type.space = ht_type_of(g, weight)->space;
    return ht_graph_add_state(g, name, &type, &(ht_state){.heading = heading});
}

static void add_codes(quantizer *q, layer_weight *w)
{
    const ht_code_format *format = ht_code_format_of(w->how->weights.kind, w->how->weights.bits);
    const ht_type type = *ht_type_of(q->g, w->weight);
    int64_t dim[HT_MAX_RANK];
    char scale[32];
    for (int i = 0; i < type.rank; i++) dim[i] = i == w->axis ? type.dim[i] : 1;
    snprintf(scale, sizeof scale, "%s_scale", format->name);
    int rank = w->how->weights.granularity == HT_PER_TENSOR ? 0 : type.rank;
    ht_type codes = ht_type_make(format->dtype, type.rank, type.dim);
    w->codes = add_state(q, w->weight, format->name, codes, HT_HEADING_PARAMETERS);
    w->scale = add_state(q, w->weight, scale, ht_type_make(HT_F32, rank, dim), HT_HEADING_PARAMETERS);
}

static void add_ranges(quantizer *q, layer_weight *w)
{
    const ht_type number = ht_type_make(HT_F32, 0, NULL);
    w->range_scale = add_state(q, w->weight, "in_scale", number, HT_HEADING_STATISTICS);
    if (w->how->activations.symmetric) return;
    w->range_zero = add_state(q, w->weight, "in_zero", ht_type_make(HT_I32, 0, NULL), HT_HEADING_STATISTICS);
}

static void add_training_ranges(quantizer *q, layer_weight *w)
{
    const ht_type number = ht_type_make(HT_F32, 0, NULL);
    bool learned = w->how->activations.range == HT_RANGE_LEARNED;
    char name[512];
    w->trains.scale = add_state(q, w->weight, learned ? "in_start" : "in_scale", number, HT_HEADING_STATISTICS);
    if (!w->how->activations.symmetric)
        w->trains.low = add_state(q, w->weight, "in_low", number, HT_HEADING_STATISTICS);
    if (!learned) return;
    snprintf(name, sizeof name, "%s.in_gain", ht_value_of(q->g, w->weight)->name);
    w->trains.gain = ht_param(q->g, name, HT_F32, 0, NULL, HT_CONSTANT(1));
}

static const activation *find_activation(const quantizer *q, ht_val x, size_t ranges, const ht_quantize_group *how)
{
    for (size_t i = 0; i < q->activation_count; i++) {
        const activation *a = &q->activations[i];
        if (a->x.id == x.id && a->ranges == ranges && a->symmetric == how->activations.symmetric && a->f8 == is_f8(how))
            return a;
    }
    return NULL;
}

/* Whose ranges the input x of a weight that comes up for the first time has: those of a weight that read it before. */
static size_t ranges_of(const quantizer *q, const ht_quantize_group *how, ht_val x)
{
    if (how->activations.range == HT_RANGE_DYNAMIC) return NO_RANGES;
    for (size_t i = 0; i < q->activation_count; i++) {
        const activation *a = &q->activations[i];
        if (a->x.id != x.id || a->ranges == NO_RANGES || a->symmetric != how->activations.symmetric) continue;
        if (q->weights[a->ranges].how->activations.range == how->activations.range) return a->ranges;
    }
    return q->weight_count;
}

/* Ranges of the input x for a weight; there may be none. */
static void give_ranges(quantizer *q, size_t at, ht_val x)
{
    layer_weight *w = &q->weights[at];
    size_t ranges = ranges_of(q, w->how, x);
    w->ranges = ranges == q->weight_count ? at : ranges;
    if (w->ranges == at && q->training) add_training_ranges(q, w);
    if (w->ranges == at && !q->training) add_ranges(q, w);
}

/* A weight that is known: an index has looked it up before, and had no ranges. */
static size_t known_weight(quantizer *q, size_t at, int axis, ht_val x)
{
    if (q->weights[at].axis != axis) return SIZE_MAX;
    if (x.id && q->weights[at].ranges == NO_RANGES) give_ranges(q, at, x);
    return at;
}

/* An operand of a layer; x: its input, or none. SIZE_MAX: memory is out, or the weight is a layer's in two ways, which would need
 * codes for each. */
static size_t weight_of(quantizer *q, const ht_node *n, const ht_layer_kind *kind, const ht_quantize_group *how,
                        size_t operand, ht_val x)
{
    ht_graph *g = q->g;
    ht_val weight = ht_node_in(g, n, operand);
    int axis = kind->channel_axis(g, n);
    bool words = in_words(kind, how);
    for (size_t i = 0; i < q->weight_count; i++)
        if (q->weights[i].weight.id == weight.id) return known_weight(q, i, axis, x);
    if (!ht_grow((void **)&q->weights, &q->weight_capacity, q->weight_count + 1, sizeof *q->weights)) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for codes of weights");
        return SIZE_MAX;
    }
    layer_weight *made = &q->weights[q->weight_count];
    *made = (layer_weight){.weight = weight, .how = how, .in_words = words, .axis = axis, .ranges = NO_RANGES};
    if (!q->training && words) ht_nbits_add_states(g, n, how, &made->words);
    if (!q->training && !words) add_codes(q, made);
    if (x.id) give_ranges(q, q->weight_count, x);
    q->weight_count++;
    return g->status == HT_OK ? q->weight_count - 1 : SIZE_MAX;
}

/* ---- activations ---- */

/* Codes with a scale for each group of elements that differ along the shared axes alone. */
static void emit_dynamic(ht_graph *g, ht_val x, ht_dtype dtype, unsigned shared, ht_val out[3])
{
    const ht_type type = *ht_type_of(g, x);
    int64_t dim[HT_MAX_RANK], axes[HT_MAX_RANK];
    int rank = 0, count = 0;
    for (int i = 0; i < type.rank; i++) {
        if (shared >> i & 1)
            axes[count++] = i;
        else
            dim[rank++] = type.dim[i];
    }
    ht_type want[3] = {ht_type_make(dtype, type.rank, type.dim), ht_type_make(HT_F32, rank, dim),
                       ht_type_make(HT_I32, rank, dim)};
    for (int i = 0; i < 3; i++) want[i].space = type.space;
    ht_emit_n(g, "quantize_dynamic", want, HT_VALS(x), HT_ATTRS(HT_INTS("axes", count, axes)), out);
}

/* x as its codes stand for it, in codes[0]. */
static void emit_fake(quantizer *q, activation *to, const ht_quantize_group *how, unsigned shared)
{
    const ht_type type = *ht_type_of(q->g, to->x);
    bool fixed = to->ranges != NO_RANGES;
    ht_val found[3] = {HT_NONE, HT_NONE, HT_NONE}, range[2] = {HT_NONE, HT_NONE};
    if (fixed) shared = (1u << type.rank) - 1;
    if (fixed ? q->observes : !to->f8) emit_dynamic(q->g, to->x, to->symmetric ? HT_I8 : HT_U8, shared, found);
    if (fixed && q->training) {
        ht_range_states states = q->weights[to->ranges].trains;
        if (q->observes) states = ht_observe_range(q->g, &states, found + 1);
        ht_range_of(q->g, &states, range);
    } else if (fixed) {
        range[0] = q->weights[to->ranges].range_scale;
    } else {
        memcpy(range, found + 1, sizeof range);
    }
    to->codes[0] = to->f8 ? ht_fake_f8_activation(q->g, to->x, shared, range[0])
                          : ht_fake_activation(q->g, to->x, how, shared, range);
}

static void emit_static(quantizer *q, activation *to, ht_dtype dtype)
{
    const layer_weight *owner = &q->weights[to->ranges];
    ht_type want = *ht_type_of(q->g, to->x);
    want = ht_type_make(dtype, want.rank, want.dim);
    want.space = ht_type_of(q->g, to->x)->space;
    to->codes[1] = owner->range_scale;
    to->codes[2] = owner->range_zero;
    to->codes[0] =
        ht_emit1(q->g, "quantize_linear", &want, HT_VALS(to->x, owner->range_scale, owner->range_zero), HT_NO_ATTRS);
}

/* Once for all layers that read them. */
static const activation *activation_of(quantizer *q, ht_val x, const layer_weight *w, unsigned shared)
{
    bool symmetric = w->how->activations.symmetric;
    const activation *known = find_activation(q, x, w->ranges, w->how);
    if (known) return known;
    if (!ht_grow((void **)&q->activations, &q->activation_capacity, q->activation_count + 1, sizeof *q->activations)) {
        ht_graph_fail(q->g, HT_ENOMEM, "out of memory for codes of activations");
        return NULL;
    }
    activation *made = &q->activations[q->activation_count++];
    *made = (activation){.x = x, .ranges = w->ranges, .symmetric = symmetric, .f8 = is_f8(w->how)};
    ht_dtype dtype = symmetric ? HT_I8 : HT_U8;
    if (q->training || made->f8) {
        emit_fake(q, made, w->how, shared);
        return made;
    }
    if (w->ranges != NO_RANGES)
        emit_static(q, made, dtype);
    else
        emit_dynamic(q->g, x, dtype, shared, made->codes);
    if (symmetric) made->codes[2] = HT_NONE;
    return made;
}

/* ---- layers ---- */

/* The weight as the floats that its codes stand for. */
static ht_val decode_weight(quantizer *q, const layer_weight *w)
{
    if (q->training) return ht_fake_weight(q->g, w->weight, w->how, w->axis);
    return ht_mul(q->g, ht_cast(q->g, w->codes, HT_F32), w->scale);
}

/* The same call, of the numbers that codes stand for. a: NULL for a lookup. */
static void emit_fake_layer(quantizer *q, const ht_node *n, const ht_layer_op *at, const activation *a,
                            const layer_weight *w, const layer_weight *second, ht_val out[HT_LAYER_RESULTS])
{
    enum { MOST_INPUTS = 8 };
    ht_graph *g = q->g;
    ht_val in[MOST_INPUTS] = {HT_NONE};
    ht_type want[HT_LAYER_RESULTS];
    if (n->n_in > MOST_INPUTS || n->n_out > HT_LAYER_RESULTS) {
        ht_graph_fail(g, HT_ENOTSUP, "quantize: %s has more than %d inputs or %d results", n->op->name, MOST_INPUTS,
                      HT_LAYER_RESULTS);
        return;
    }
    for (size_t i = 0; i < n->n_out; i++) want[i] = *ht_type_of(g, ht_node_out(n, i));
    for (size_t i = 0; i < n->n_in; i++) in[i] = ht_rewrite_map(&q->rw, ht_node_in(g, n, i));
    if (a) in[at->input] = a->codes[0];
    in[at->weight] = decode_weight(q, w);
    if (second) in[at->second] = decode_weight(q, second);
    ht_emit(g, n->op, n->n_in, in, ht_op_attr_count(n->op), n->attr, want, out);
}

/* The layer with codes of its weights, and of its input unless weights alone have some. No results: it stays as it is. */
static void emit_layer(quantizer *q, const ht_node *n, const ht_layer_kind *kind, const ht_quantize_group *how,
                       ht_val out[HT_LAYER_RESULTS])
{
    ht_graph *g = q->g;
    const ht_layer_op *at = &kind->operands;
    const ht_type want = *ht_type_of(g, ht_node_out(n, 0));
    bool words = in_words(kind, how), lookup = at->lookup;
    unsigned shared = kind->shared_axes(g, n);
    ht_val x = ht_rewrite_map(&q->rw, ht_node_in(g, n, at->input));
    size_t first = weight_of(q, n, kind, how, at->weight, lookup ? HT_NONE : x);
    size_t next = first != SIZE_MAX && at->second ? weight_of(q, n, kind, how, at->second, HT_NONE) : first;
    if (first == SIZE_MAX || next == SIZE_MAX) return;
    const layer_weight w = q->weights[first], second = q->weights[next];
    if (w.in_words != words) return; /* a layer of another sort has its codes */
    const activation *a = words || lookup ? NULL : activation_of(q, x, &w, shared);
    if (!words && !lookup && !a) return;
    q->replaced[how - q->options->groups]++;
    if (q->training && weights_alone(how)) return; /* they stay floats */
    if (q->training || is_f8(how)) {
        emit_fake_layer(q, n, at, a, &w, at->second ? &second : NULL, out);
    } else if (words) {
        out[0] = ht_nbits_emit(g, n, x, how, &want, &w.words);
    } else {
        ht_layer_operands operands = {.x = x, .w = w.codes, .w_scale = w.scale};
        if (a) operands.x = a->codes[0], operands.x_scale = a->codes[1], operands.x_zero = a->codes[2];
        if (at->second) operands.second = second.codes, operands.second_scale = second.scale;
        kind->emit(g, &q->rw, n, &want, &operands, out);
    }
}

static bool replace(quantizer *q, uint32_t id)
{
    ht_graph *g = q->g;
    const ht_node n = g->nodes[id]; /* the builder may move the graph's */
    const ht_layer_kind *kind = ht_layer_kind_of(g, &n);
    const ht_quantize_group *how = kind ? group_of(q, &n, kind) : NULL;
    ht_val y[HT_LAYER_RESULTS] = {HT_NONE};
    if (how) emit_layer(q, &n, kind, how, y);
    if (!y[0].id || g->status != HT_OK) return false;
    for (size_t i = 0; i < n.n_out && i < HT_LAYER_RESULTS && y[i].id; i++) {
        ht_val old = ht_node_out(&n, i);
        g->values[y[i].id].name = g->values[old.id].name;
        ht_rewrite_replace(&q->rw, old, y[i]);
    }
    return true;
}

static ht_status quantize_segment(quantizer *q, uint32_t segment)
{
    ht_graph *g = q->g;
    q->activation_count = 0;
    q->observes = q->training && strncmp(g->segments[segment].name, "forward", strlen("forward")) == 0;
    if (ht_rewrite_begin(&q->rw, g, segment))
        for (size_t i = 0; i < q->rw.count && g->status == HT_OK; i++) {
            const char *site = g->nodes[q->rw.old[i]].site;
            size_t first = g->node_count;
            if (!replace(q, q->rw.old[i])) ht_rewrite_keep(&q->rw, q->rw.old[i]);
            for (size_t made = first; made < g->node_count; made++) g->nodes[made].site = site;
        }
    return ht_rewrite_end(&q->rw);
}

/* ---- weights that stay, and weights that go ---- */

static void derive(quantizer *q, const layer_weight *w)
{
    ht_graph *g = q->g;
    ht_val made[3] = {HT_NONE, HT_NONE, HT_NONE};
    const ht_type scale = *ht_type_of(g, w->scale);
    unsigned all = (1u << ht_type_of(g, w->weight)->rank) - 1;
    emit_dynamic(g, w->weight, HT_I8, scale.rank ? all & ~(1u << w->axis) : all, made);
    if (scale.rank) made[1] = ht_emit1(g, "reshape", &scale, HT_VALS(made[1]), HT_NO_ATTRS);
    ht_store(g, w->codes, made[0]);
    ht_store(g, w->scale, made[1]);
    ht_state *states[] = {ht_state_of(g, w->codes), ht_state_of(g, w->scale)};
    for (int i = 0; i < 2; i++) {
        states[i]->derived = true;
        states[i]->heading = HT_HEADING_WEIGHTS;
    }
}

/* By value: does something read it? */
static void find_read(const ht_graph *g, bool *read)
{
    for (size_t s = 0; s < g->segment_count; s++) {
        const ht_segment *segment = &g->segments[s];
        for (size_t i = 0; i < segment->node_count; i++)
            for (size_t k = 0; k < g->nodes[segment->nodes[i]].n_in; k++)
                read[ht_root(g, ht_node_in(g, &g->nodes[segment->nodes[i]], k)).id] = true;
        for (size_t i = 0; i < segment->output_count; i++) read[ht_root(g, segment->outputs[i].value).id] = true;
    }
}

/* Only codes as quantize_dynamic gives them can be derived. */
static ht_status derive_or_drop(quantizer *q, bool *read, bool *drop)
{
    enum { DERIVED_BITS = 8 };
    ht_graph *g = q->g;
    uint32_t resume = g->segment;
    int segment = ht_segment_find(g, "derive");
    find_read(g, read);
    for (size_t i = 0; i < q->weight_count && g->status == HT_OK; i++) {
        const layer_weight *w = &q->weights[i];
        const ht_value *weight = ht_value_of(g, w->weight);
        bool derived = q->options->weights == HT_QUANTIZE_DERIVED && !w->in_words;
        bool stays = derived || read[w->weight.id] || weight->base.id;
        if (!stays) drop[weight->owner] = true;
        if (!stays) continue;
        bool derivable = w->how->weights.kind == HT_CODES_INT && w->how->weights.bits == DERIVED_BITS;
        if (!derivable || w->in_words) continue; /* they are stored beside it */
        if (segment < 0) segment = (int)ht_graph_add_segment(g, "derive");
        g->segment = (uint32_t)segment;
        derive(q, w);
    }
    g->segment = resume;
    ht_graph_drop_states(g, drop);
    return g->status;
}

static ht_status place_weights(quantizer *q)
{
    ht_graph *g = q->g;
    bool *drop = calloc(g->state_count + 1, sizeof *drop), *read = calloc(g->value_count + 1, sizeof *read);
    ht_status status =
        drop && read ? derive_or_drop(q, read, drop) : ht_fail(g->ctx, HT_ENOMEM, "out of memory for codes of weights");
    free(drop);
    free(read);
    return status;
}

/* ---- the pass ---- */

/* What changes weights while the graph is in use, by the name of its segment; NULL: nothing. */
static const char *who_trains(const ht_graph *g)
{
    for (size_t s = 0; s < g->segment_count; s++)
        for (size_t i = 0; i < g->segments[s].node_count; i++)
            if (g->nodes[g->segments[s].nodes[i]].role != HT_ROLE_FWD) return g->segments[s].name;
    return NULL;
}

static ht_status compile_expressions(quantizer *q)
{
    for (size_t i = 0; i < q->options->group_count; i++) {
        const char *layers = q->options->groups[i].layers;
        int error = regcomp(&q->expressions[i], layers ? layers : "", REG_EXTENDED | REG_NOSUB);
        if (error) {
            char words[128];
            regerror(error, &q->expressions[i], words, sizeof words);
            HT_FAIL(q->g->ctx, HT_EINVAL, "quantize: \"%s\": %s", layers, words);
        }
        q->expression_count++;
    }
    return HT_OK;
}

/* The name of a layer's weight that could have matched, for those who do not know what names look like here. */
static const char *name_layer(const ht_graph *g)
{
    for (size_t s = 0; s < g->segment_count; s++)
        for (size_t i = 0; i < g->segments[s].node_count; i++) {
            const ht_node *n = &g->nodes[g->segments[s].nodes[i]];
            const ht_layer_kind *kind = ht_layer_kind_of(g, n);
            if (kind) return ht_value_of(g, weight_in(g, n, kind))->name;
        }
    return NULL;
}

static ht_status fail_unmatched(const quantizer *q, size_t group)
{
    const ht_graph *g = q->g;
    const char *layers = q->options->groups[group].layers, *name = name_layer(g);
    if (!layers) layers = "";
    if (q->refused[group])
        HT_FAIL(g->ctx, HT_EINVAL, "quantize: no layer that \"%s\" matches can read codes: '%s': %s", layers,
                q->refused_weight[group], q->refused[group]);
    HT_FAIL(g->ctx, HT_EINVAL, "quantize: \"%s\" matches no weight of a layer%s%s%s", layers, name ? ", such as '" : "",
            name ? name : "", name ? "'" : "");
}

static ht_status quantize_layers(quantizer *q)
{
    ht_graph *g = q->g;
    uint32_t count = (uint32_t)g->segment_count;
    if (!find_readers(q)) HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for codes of weights");
    HT_TRY(compile_expressions(q));
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(g->segments[i].name, "init") != 0 && strcmp(g->segments[i].name, "derive") != 0)
            HT_TRY(quantize_segment(q, i));
    for (size_t i = 0; i < q->options->group_count; i++)
        if (!q->replaced[i] && (q->refused[i] || !q->matched[i])) return fail_unmatched(q, i);
    return q->training ? g->status : place_weights(q);
}

static ht_status quantize_run(ht_graph *g, const ht_pass_env *env)
{
    const char *trains = who_trains(g);
    if (trains)
        HT_FAIL(g->ctx, HT_EINVAL, "setting quantize: segment '%s' trains; it is for models that were trained before",
                trains);
    quantizer *q = calloc(1, sizeof *q);
    if (!q) HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for codes of weights");
    q->g = g;
    q->options = &env->options->quantize;
    q->training = env->options->training;
    ht_status status = quantize_layers(q);
    for (size_t i = 0; i < q->expression_count; i++) regfree(&q->expressions[i]);
    free(q->weights);
    free(q->activations);
    free(q->readers);
    free(q);
    return status;
}

/* ---- settings by name: one group ---- */

static ht_status read_quantize(ht_context *ctx, void *settings, const char *name, const char *text)
{
    ht_quantize_options *options = settings;
    bool fixed = strcmp(text, "static") == 0, alone = strcmp(text, "int4") == 0, learned = strcmp(text, "learned") == 0;
    if (!fixed && !alone && !learned && strcmp(text, "off") != 0 && strcmp(text, "dynamic") != 0)
        HT_FAIL(ctx, HT_EINVAL, "setting %s: '%s' is none of off, dynamic, static, learned, int4", name, text);
    options->group_count = strcmp(text, "off") != 0;
    options->groups[0] = ht_quantize_group_standard();
    if (fixed) options->groups[0].activations.range = HT_RANGE_STATIC;
    if (learned) options->groups[0].activations.range = HT_RANGE_LEARNED;
    if (!alone) return HT_OK;
    options->groups[0].weights.bits = 4;
    options->groups[0].weights.granularity = HT_PER_GROUP;
    options->groups[0].activations.bits = 0;
    return HT_OK;
}

static ht_status read_layers(ht_context *ctx, void *settings, const char *name, const char *text)
{
    ht_quantize_options *options = settings;
    (void)ctx, (void)name;
    options->groups[0].layers = text;
    return HT_OK;
}

static const ht_setting_key keys[] = {{.name = "quantize",
                                       .kind = HT_SETTING_CUSTOM,
                                       .read = read_quantize,
                                       .first = true,
                                       .help = "off, or layers in 8 bits, with scales of activations that are dynamic, "
                                               "static or learned; int4: weights alone, by 64"},
                                      {.name = "quantize_weights",
                                       .kind = HT_SETTING_CHOICE,
                                       .at = offsetof(ht_quantize_options, weights),
                                       .words = "derived|stored", /* as ht_quantize_weights */
                                       .help = "codes of weights are made of the parameters, or are parameters"},
                                      {.name = "quantize_layers",
                                       .kind = HT_SETTING_CUSTOM,
                                       .read = read_layers,
                                       .help = "a regular expression: weights whose names match; all unless given"},
                                      {.name = NULL}};

static const ht_pass_settings settings[] = {{keys, offsetof(ht_pass_options, quantize)}, {NULL, 0}};

const ht_pass ht_pass_quantize = {
    .name = "quantize",
    .help = "layers of a trained model read codes of a few bits",
    .run = quantize_run,
    .settings = settings,
};
