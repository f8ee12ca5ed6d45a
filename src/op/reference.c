/* The interpreter. Every computed value keeps its f64 array until the reference is freed, so a second run allocates
 * nothing new and any value of the last segment can be inspected. */
#include "op/reference.h"

#include "op/op.h"

#include <stdlib.h>

typedef struct slot {
    double *data;   /* row-major; of a view of state: a copy, fresh when it was last read */
    uint32_t stamp; /* the run that computed it */
    bool started;   /* state and inputs: has its first value */
} slot;

struct ht_reference {
    ht_graph *g;
    bool round;
    uint64_t seed;
    slot *slots; /* by value id */
    size_t slot_capacity;
    uint32_t runs;
    uint32_t segment; /* run last; UINT32_MAX: none */
};

static ht_status slot_fill(ht_reference *ref, ht_val v)
{
    slot *s = &ref->slots[v.id];
    const ht_type *type = ht_type_of(ref->g, v);
    if (s->data) return HT_OK;
    /* One element too many, so that an empty tensor has an address. */
    s->data = calloc((size_t)ht_type_elems(type) + 1, sizeof(double));
    ht_type_text text;
    if (!s->data) HT_FAIL(ref->g->ctx, HT_ENOMEM, "reference: no memory for %s", ht_type_str(type, &text));
    return HT_OK;
}

/* ---- views of state ---- */

static bool is_view(const ht_graph *g, ht_val v)
{
    return ht_value_of(g, v)->kind != HT_VALUE_RESULT && ht_value_of(g, v)->base.id != 0;
}

static int64_t root_offset(const ht_graph *g, ht_val v)
{
    int64_t offset = 0;
    for (; ht_value_of(g, v)->base.id; v = ht_value_of(g, v)->base) offset += ht_value_of(g, v)->offset;
    return offset;
}

/* The index in the root's array of element `index` of v, counted row-major. */
static int64_t root_index(const ht_type *type, int64_t offset, int64_t index)
{
    for (int axis = type->rank - 1; axis >= 0; axis--) {
        offset += index % type->dim[axis] * type->stride[axis];
        index /= type->dim[axis];
    }
    return offset;
}

/* The state's or input's elements, row-major. */
static double *held_read(ht_reference *ref, ht_val v)
{
    double *own = ref->slots[v.id].data;
    if (!is_view(ref->g, v)) return own;
    const ht_type *type = ht_type_of(ref->g, v);
    double *root = ref->slots[ht_root(ref->g, v).id].data;
    int64_t offset = root_offset(ref->g, v), elems = ht_type_elems(type);
    if (ht_type_contiguous(type)) return root + offset;
    for (int64_t i = 0; i < elems; i++) own[i] = root[root_index(type, offset, i)];
    return own;
}

static void held_write(ht_reference *ref, ht_val v, const double *from)
{
    const ht_type *type = ht_type_of(ref->g, v);
    int64_t elems = ht_type_elems(type);
    if (!is_view(ref->g, v)) {
        memmove(ref->slots[v.id].data, from, (size_t)elems * sizeof *from);
        return;
    }
    double *root = ref->slots[ht_root(ref->g, v).id].data;
    int64_t offset = root_offset(ref->g, v);
    for (int64_t i = 0; i < elems; i++) root[root_index(type, offset, i)] = from[i];
}

/* ---- first values ---- */

/* Initial values: as random_normal and random_uniform draw them with the name as site, at step 0, for sample 0. */
static double first_value(const ht_init *init, const ht_stream *stream, int64_t index)
{
    if (init->kind == HT_INIT_CONSTANT) return init->a;
    if (init->kind == HT_INIT_NORMAL) return init->a + init->b * ht_stream_normal(stream, (uint64_t)index);
    if (init->kind == HT_INIT_UNIFORM)
        return init->a + (init->b - init->a) * ht_stream_uniform(stream, (uint64_t)index);
    return 0;
}

static void round_all(const ht_reference *ref, ht_dtype dtype, double *data, int64_t elems)
{
    /* Integers and bool are what they are even when floats stay f64. */
    if (!ref->round && ht_dtype_is_float(dtype)) return;
    for (int64_t i = 0; i < elems; i++) data[i] = ht_round_to(dtype, data[i]);
}

static ht_status held_start(ht_reference *ref, ht_val v, ht_init init)
{
    if (ref->slots[v.id].started) return HT_OK;
    HT_TRY(slot_fill(ref, v));
    const ht_value *value = ht_value_of(ref->g, v);
    ht_stream stream = {.seed = ref->seed, .step = 0, .site = ht_hash_text(value->name ? value->name : "")};
    double *own = ref->slots[v.id].data;
    int64_t elems = ht_type_elems(&value->type);
    for (int64_t i = 0; i < elems; i++) own[i] = first_value(&init, &stream, i);
    if (value->name && strcmp(value->name, "rng.seed") == 0) own[0] = (double)ref->seed;
    round_all(ref, value->type.dtype, own, elems);
    if (is_view(ref->g, v)) held_write(ref, v, own);
    ref->slots[v.id].started = true;
    return HT_OK;
}

/* Allocates values that are new since the last run, since a graph may have grown. */
static ht_status start_all(ht_reference *ref)
{
    const ht_graph *g = ref->g;
    size_t had = ref->slot_capacity;
    if (!ht_grow((void **)&ref->slots, &ref->slot_capacity, g->value_count, sizeof(slot)))
        HT_FAIL(g->ctx, HT_ENOMEM, "reference: no memory for %zu values", g->value_count);
    if (ref->slot_capacity > had) memset(ref->slots + had, 0, (ref->slot_capacity - had) * sizeof(slot));
    for (size_t i = 0; i < g->state_count; i++)
        if (!ht_value_of(g, g->states[i].value)->base.id)
            HT_TRY(held_start(ref, g->states[i].value, g->states[i].init));
    for (size_t i = 0; i < g->state_count; i++) HT_TRY(held_start(ref, g->states[i].value, g->states[i].init));
    for (size_t s = 0; s < g->segment_count; s++)
        for (size_t i = 0; i < g->segments[s].input_count; i++) {
            ht_val v = g->segments[s].inputs[i];
            HT_TRY(held_start(ref, v, ht_input_init(g, v)));
        }
    return HT_OK;
}

/* ---- running ---- */

static ht_status operands_read(ht_reference *ref, const ht_node *n, const double **in)
{
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(ref->g, n, i);
        in[i] = ht_reference_value(ref, v);
        if (v.id && !in[i])
            HT_FAIL(ref->g->ctx, HT_EVERIFY, "%s: input %zu is read before it is computed", n->op->name, i);
    }
    return HT_OK;
}

static ht_status node_run(ht_reference *ref, const ht_node *n, ht_arena *arena)
{
    ht_graph *g = ref->g;
    ht_call_storage storage;
    const ht_call *call = ht_node_call(g, n, arena, &storage);
    const double **in = HT_NEW(arena, const double *, n->n_in);
    double **out = HT_NEW(arena, double *, n->n_out);
    if (!call || !in || !out) HT_FAIL(g->ctx, HT_ENOMEM, "reference: no memory for a node with %u inputs", n->n_in);
    HT_TRY(operands_read(ref, n, in));
    bool empty = true;
    for (size_t i = 0; i < n->n_out; i++) {
        HT_TRY(slot_fill(ref, ht_node_out(n, i)));
        out[i] = ref->slots[ht_node_out(n, i).id].data;
        ref->slots[ht_node_out(n, i).id].stamp = ref->runs;
        empty &= ht_type_elems(call->out[i]) == 0;
    }
    if (n->op == &ht_op_store) {
        held_write(ref, ht_node_in(g, n, 0), in[1]);
        return HT_OK;
    }
    /* An empty tensor may have axes too long to walk for nothing. */
    if (empty) return HT_OK;
    n->op->ref(call, in, out);
    for (size_t i = 0; i < n->n_out; i++) round_all(ref, call->out[i]->dtype, out[i], ht_type_elems(call->out[i]));
    return HT_OK;
}

ht_status ht_reference_run(ht_reference *ref, uint32_t segment)
{
    HT_TRY(start_all(ref));
    ht_arena *arena = ht_arena_create();
    if (!arena) HT_FAIL(ref->g->ctx, HT_ENOMEM, "reference: no memory for a run");
    ref->runs++;
    ref->segment = segment;
    ht_status status = HT_OK;
    const ht_segment *s = &ref->g->segments[segment];
    for (size_t i = 0; i < s->node_count && status == HT_OK; i++)
        status = node_run(ref, &ref->g->nodes[s->nodes[i]], arena);
    ht_arena_free(arena);
    return status;
}

ht_status ht_reference_run_program(ht_reference *ref, const char *name)
{
    int at = ht_program_find(ref->g, name);
    if (at < 0) HT_FAIL(ref->g->ctx, HT_EINVAL, "there is no program \"%s\"", name);
    const ht_program *program = &ref->g->programs[at];
    for (size_t i = 0; i < program->call_count; i++)
        for (uint32_t t = 0; t < program->calls[i].times; t++) HT_TRY(ht_reference_run(ref, program->calls[i].segment));
    return HT_OK;
}

/* ---- looking ---- */

double *ht_reference_value(ht_reference *ref, ht_val v)
{
    if (!v.id || v.id >= ref->slot_capacity || v.id >= ref->g->value_count) return NULL;
    const slot *s = &ref->slots[v.id];
    if (ht_value_of(ref->g, v)->kind != HT_VALUE_RESULT) return s->started ? held_read(ref, v) : NULL;
    return s->data && s->stamp == ref->runs ? s->data : NULL;
}

double *ht_reference_output(ht_reference *ref, const char *name)
{
    if (ref->segment == UINT32_MAX) return NULL;
    const ht_segment *s = &ref->g->segments[ref->segment];
    for (size_t i = 0; i < s->output_count; i++)
        if (!strcmp(s->outputs[i].name, name)) return ht_reference_value(ref, s->outputs[i].value);
    return NULL;
}

ht_status ht_reference_create(ht_reference **out, ht_graph *g, bool round, uint64_t seed)
{
    *out = NULL;
    ht_reference *ref = calloc(1, sizeof *ref);
    if (!ref) HT_FAIL(g->ctx, HT_ENOMEM, "reference: no memory");
    *ref = (ht_reference){.g = g, .round = round, .seed = seed, .segment = UINT32_MAX};
    ht_status status = start_all(ref);
    if (status != HT_OK) {
        ht_reference_free(ref);
        return status;
    }
    *out = ref;
    return HT_OK;
}

void ht_reference_free(ht_reference *ref)
{
    if (!ref) return;
    for (size_t i = 0; i < ref->slot_capacity; i++) free(ref->slots[i].data);
    free(ref->slots);
    free(ref);
}
