/* The graph as a container: states, inputs, segments, programs, names. Nodes are made in emit.c. */
#include "graph/graph.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const ht_role_names[HT_ROLE_COUNT] = {"fwd", "bwd_act", "bwd_weight", "update"};

const char *const ht_heading_names[HT_HEADING_COUNT] = {
#define HT_HEADING(id, text) text,
#include "graph/headings.def"
#undef HT_HEADING
};

ht_status ht_graph_create(ht_graph **out, ht_context *ctx)
{
    HT_NEED(ctx, out, "out");
    *out = NULL;
    HT_NEED(NULL, ctx, "ctx");
    ht_graph *g = calloc(1, sizeof *g);
    if (!g) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a graph");
    g->ctx = ctx;
    g->segment = UINT32_MAX;
    g->arena = ht_arena_create();
    if (!g->arena || !ht_grow((void **)&g->values, &g->value_capacity, 64, sizeof *g->values) ||
        !ht_grow((void **)&g->nodes, &g->node_capacity, 64, sizeof *g->nodes)) {
        ht_graph_free(g);
        HT_FAIL(ctx, HT_ENOMEM, "out of memory for a graph");
    }
    memset(&g->values[0], 0, sizeof g->values[0]);
    memset(&g->nodes[0], 0, sizeof g->nodes[0]);
    g->value_count = g->node_count = 1;
    *out = g;
    return HT_OK;
}

void ht_graph_free(ht_graph *g)
{
    if (!g) return;
    for (size_t i = 0; i < g->segment_count; i++) {
        free(g->segments[i].inputs);
        free(g->segments[i].outputs);
        free(g->segments[i].nodes);
    }
    for (size_t i = 0; i < g->program_count; i++) free(g->programs[i].calls);
    free(g->values);
    free(g->nodes);
    free(g->operands);
    free(g->states);
    free(g->segments);
    free(g->programs);
    free(g->input_inits);
    free(g->state_index);
    ht_arena_free(g->arena);
    free(g);
}

ht_status ht_graph_status(const ht_graph *g)
{
    return g ? g->status : HT_EINVAL;
}

bool ht_graph_need(ht_graph *g, const void *pointer, const char *function, const char *argument)
{
    if (!pointer) ht_graph_fail(g, HT_EINVAL, "%s: %s is NULL", function, argument);
    return ht_graph_status(g) == HT_OK;
}

bool ht_graph_need_dims(ht_graph *g, const char *function, int rank, const int64_t *dims)
{
    static const int64_t none;
    return ht_graph_need(g, rank > 0 ? dims : &none, function, "dims");
}

bool ht_graph_has(ht_graph *g, ht_val v)
{
    if (ht_graph_status(g) != HT_OK || !v.id) return false;
    if (v.id >= g->value_count) ht_graph_fail(g, HT_EINVAL, "value %u is none of this graph", v.id);
    return v.id < g->value_count;
}

void ht_graph_fail(ht_graph *g, ht_status status, const char *format, ...)
{
    if (ht_graph_status(g) != HT_OK) return;
    char message[sizeof g->ctx->message];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    g->status = ht_fail(g->ctx, status, "%s%s%s", message, g->scope[0] ? ", at " : "", g->scope);
}

static bool reserve(ht_graph *g, void **array, size_t *capacity, size_t need, size_t elem_bytes)
{
    if (need < UINT32_MAX && ht_grow(array, capacity, need, elem_bytes)) return true;
    ht_graph_fail(g, HT_ENOMEM, "out of memory for the graph");
    return false;
}

/* ---- names ---- */

static const char *intern(ht_graph *g, const char *name)
{
    const char *copy = ht_arena_text(g->arena, name, strlen(name));
    if (!copy) ht_graph_fail(g, HT_ENOMEM, "out of memory for a name");
    return copy;
}

static bool good_name(const char *name)
{
    bool all_digits = true;
    for (const char *c = name; *c; c++) {
        if (!isalnum((unsigned char)*c) && !strchr("_.-/:", *c)) return false;
        all_digits &= isdigit((unsigned char)*c) != 0;
    }
    return name[0] && !all_digits;
}

static bool check_name(ht_graph *g, const char *what, const char *name)
{
    if (name && good_name(name)) return true;
    ht_graph_fail(g, HT_EINVAL, "%s name '%s': letters, digits and _ . - / : only, and not a number", what,
                  name ? name : "");
    return false;
}

static int state_find(const ht_graph *g, const char *name)
{
    if (!g->state_index_capacity) return -1;
    size_t slot = ht_hash_text(name) & (g->state_index_capacity - 1);
    for (; g->state_index[slot]; slot = (slot + 1) & (g->state_index_capacity - 1)) {
        uint32_t i = g->state_index[slot] - 1;
        if (strcmp(ht_value_of(g, g->states[i].value)->name, name) == 0) return (int)i;
    }
    return -1;
}

static void state_index_put(ht_graph *g, uint32_t i)
{
    size_t slot = ht_hash_text(ht_value_of(g, g->states[i].value)->name) & (g->state_index_capacity - 1);
    while (g->state_index[slot]) slot = (slot + 1) & (g->state_index_capacity - 1);
    g->state_index[slot] = i + 1;
}

static bool state_index_add(ht_graph *g)
{
    uint32_t count = (uint32_t)g->state_count;
    if (g->state_index_capacity >= 2 * (size_t)count) {
        state_index_put(g, count - 1);
        return true;
    }
    size_t capacity = g->state_index_capacity ? g->state_index_capacity * 2 : 64;
    uint32_t *index = calloc(capacity, sizeof *index);
    if (!index) {
        ht_graph_fail(g, HT_ENOMEM, "out of memory for names");
        return false;
    }
    free(g->state_index);
    g->state_index = index;
    g->state_index_capacity = capacity;
    for (uint32_t i = 0; i < count; i++) state_index_put(g, i);
    return true;
}

ht_val ht_find(const ht_graph *g, const char *name)
{
    if (!g || !name) return HT_NONE;
    int state = state_find(g, name);
    if (state >= 0) return g->states[state].value;
    if (g->segment < g->segment_count) {
        const ht_segment *s = &g->segments[g->segment];
        for (size_t i = 0; i < s->input_count; i++)
            if (strcmp(ht_value_of(g, s->inputs[i])->name, name) == 0) return s->inputs[i];
    }
    return HT_NONE;
}

/* ---- states, inputs, outputs ---- */

static ht_val add_value(ht_graph *g, ht_value_kind kind, const ht_type *type, uint32_t owner, const char *name)
{
    if (!reserve(g, (void **)&g->values, &g->value_capacity, g->value_count + 1, sizeof *g->values)) return HT_NONE;
    ht_val v = {(uint32_t)g->value_count++};
    g->values[v.id] = (ht_value){.kind = kind, .type = *type, .name = name, .owner = owner};
    ht_type_row_major(&g->values[v.id].type);
    return v;
}

ht_val ht_graph_add_state(ht_graph *g, const char *name, const ht_type *type, const ht_state *like)
{
    if (g->status != HT_OK || !check_name(g, "state", name)) return HT_NONE;
    if (state_find(g, name) >= 0) {
        ht_graph_fail(g, HT_EINVAL, "state '%s' exists already", name);
        return HT_NONE;
    }
    if (ht_type_check(g->ctx, type, name) != HT_OK) {
        g->status = g->ctx->status;
        return HT_NONE;
    }
    if (!reserve(g, (void **)&g->states, &g->state_capacity, g->state_count + 1, sizeof *g->states)) return HT_NONE;
    const char *copy = intern(g, name);
    if (!copy) return HT_NONE;
    ht_val v = add_value(g, HT_VALUE_STATE, type, (uint32_t)g->state_count, copy);
    if (!v.id) return HT_NONE;
    g->states[g->state_count] = *like;
    g->states[g->state_count++].value = v;
    return state_index_add(g) ? v : HT_NONE;
}

void ht_graph_drop_states(ht_graph *g, const bool *drop)
{
    size_t count = 0;
    for (size_t i = 0; i < g->state_count; i++) {
        ht_value *value = &g->values[g->states[i].value.id];
        if (drop[i]) {
            value->kind = HT_VALUE_NONE;
            continue;
        }
        value->owner = (uint32_t)count;
        g->states[count++] = g->states[i];
    }
    g->state_count = count;
    if (g->state_index) memset(g->state_index, 0, g->state_index_capacity * sizeof *g->state_index);
    for (uint32_t i = 0; i < count; i++) state_index_put(g, i);
}

ht_val ht_param(ht_graph *g, const char *name, ht_dtype dtype, int rank, const int64_t *dims, ht_init init)
{
    if (!ht_graph_need_dims(g, "param", rank, dims)) return HT_NONE;
    ht_type type = ht_type_make(dtype, rank, dims);
    return ht_graph_add_state(g, name, &type,
                              &(ht_state){.heading = HT_HEADING_PARAMETERS, .init = init, .trained = true});
}

ht_val ht_state_add(ht_graph *g, const char *name, ht_dtype dtype, int rank, const int64_t *dims, ht_init init)
{
    if (!ht_graph_need_dims(g, "state_add", rank, dims)) return HT_NONE;
    ht_type type = ht_type_make(dtype, rank, dims);
    ht_heading heading = rank == 0 ? HT_HEADING_SCALARS : HT_HEADING_STATISTICS;
    return ht_graph_add_state(g, name, &type, &(ht_state){.heading = heading, .init = init});
}

/* The segment that the builder appends to; a model starts in "forward". */
static ht_segment *current(ht_graph *g)
{
    if (g->segment == UINT32_MAX) ht_segment_begin(g, "forward");
    return g->status == HT_OK ? &g->segments[g->segment] : NULL;
}

ht_val ht_graph_add_input(ht_graph *g, const char *name, const ht_type *type, ht_init init)
{
    ht_segment *s = g->status == HT_OK ? current(g) : NULL;
    if (!s || !check_name(g, "input", name)) return HT_NONE;
    if (ht_find(g, name).id) {
        ht_graph_fail(g, HT_EINVAL, "input '%s': the name is taken", name);
        return HT_NONE;
    }
    if (ht_type_check(g->ctx, type, name) != HT_OK) {
        g->status = g->ctx->status;
        return HT_NONE;
    }
    const char *copy = intern(g, name);
    if (!copy || !reserve(g, (void **)&s->inputs, &s->input_capacity, s->input_count + 1, sizeof *s->inputs))
        return HT_NONE;
    ht_val v = add_value(g, HT_VALUE_INPUT, type, g->segment, copy);
    size_t before = g->input_init_capacity;
    if (!v.id || !reserve(g, (void **)&g->input_inits, &g->input_init_capacity, v.id + 1, sizeof *g->input_inits))
        return HT_NONE;
    memset(g->input_inits + before, 0, (g->input_init_capacity - before) * sizeof *g->input_inits);
    g->input_inits[v.id] = init;
    s->inputs[s->input_count++] = v;
    return v;
}

ht_val ht_input(ht_graph *g, const char *name, ht_dtype dtype, int rank, const int64_t *dims)
{
    if (!ht_graph_need_dims(g, "input", rank, dims)) return HT_NONE;
    ht_type type = ht_type_make(dtype, rank, dims);
    return ht_graph_add_input(g, name, &type, HT_ZERO);
}

ht_init ht_input_init(const ht_graph *g, ht_val input)
{
    return input.id < g->input_init_capacity ? g->input_inits[input.id] : HT_ZERO;
}

void ht_output(ht_graph *g, const char *name, ht_val value)
{
    ht_segment *s = ht_graph_status(g) == HT_OK ? current(g) : NULL;
    if (!s || !check_name(g, "output", name)) return;
    if (!value.id || value.id >= g->value_count) {
        ht_graph_fail(g, HT_EINVAL, "output '%s': there is no such value", name);
        return;
    }
    for (size_t i = 0; i < s->output_count; i++) {
        if (strcmp(s->outputs[i].name, name) == 0) {
            ht_graph_fail(g, HT_EINVAL, "output '%s' exists already in segment %s", name, s->name);
            return;
        }
    }
    const char *copy = intern(g, name);
    if (!copy || !reserve(g, (void **)&s->outputs, &s->output_capacity, s->output_count + 1, sizeof *s->outputs))
        return;
    s->outputs[s->output_count++] = (ht_named){copy, value};
}

void ht_value_name(ht_graph *g, ht_val v, const char *name)
{
    if (g->status == HT_OK && check_name(g, "value", name)) g->values[v.id].name = intern(g, name);
}

void ht_value_view(ht_graph *g, ht_val v, ht_val base, int64_t offset)
{
    g->values[v.id].base = base;
    g->values[v.id].offset = offset;
}

/* ---- segments and programs ---- */

uint32_t ht_graph_add_segment(ht_graph *g, const char *name)
{
    if (g->status != HT_OK || !check_name(g, "segment", name)) return UINT32_MAX;
    if (ht_segment_find(g, name) >= 0) {
        ht_graph_fail(g, HT_EINVAL, "segment '%s' exists already", name);
        return UINT32_MAX;
    }
    const char *copy = intern(g, name);
    if (!copy || !reserve(g, (void **)&g->segments, &g->segment_capacity, g->segment_count + 1, sizeof *g->segments))
        return UINT32_MAX;
    g->segments[g->segment_count] = (ht_segment){.name = copy};
    return (uint32_t)g->segment_count++;
}

void ht_segment_begin(ht_graph *g, const char *name)
{
    if (!ht_graph_need(g, name, "segment_begin", "name")) return;
    int found = ht_segment_find(g, name);
    uint32_t segment = found >= 0 ? (uint32_t)found : ht_graph_add_segment(g, name);
    if (g->status == HT_OK) g->segment = segment;
}

int ht_segment_find(const ht_graph *g, const char *name)
{
    for (size_t i = 0; i < g->segment_count; i++)
        if (strcmp(g->segments[i].name, name) == 0) return (int)i;
    return -1;
}

int ht_program_find(const ht_graph *g, const char *name)
{
    for (size_t i = 0; i < g->program_count; i++)
        if (strcmp(g->programs[i].name, name) == 0) return (int)i;
    return -1;
}

void ht_graph_add_program_call(ht_graph *g, const char *program, ht_program_call call)
{
    if (g->status != HT_OK || !check_name(g, "program", program)) return;
    int found = ht_program_find(g, program);
    if (found < 0) {
        const char *copy = intern(g, program);
        if (!copy ||
            !reserve(g, (void **)&g->programs, &g->program_capacity, g->program_count + 1, sizeof *g->programs))
            return;
        found = (int)g->program_count++;
        g->programs[found] = (ht_program){.name = copy};
    }
    ht_program *p = &g->programs[found];
    if (reserve(g, (void **)&p->calls, &p->call_capacity, p->call_count + 1, sizeof *p->calls))
        p->calls[p->call_count++] = call;
}

/* ---- scopes ---- */

void ht_full_precision(ht_graph *g, ht_val v)
{
    if (ht_graph_status(g) != HT_OK) return;
    if (v.id < g->value_count && ht_producer(g, v))
        g->nodes[ht_value_of(g, v)->owner].full = true;
    else
        ht_graph_fail(g, HT_EINVAL, "full precision is for results of ops, not for state and inputs");
}

/* By node id, of the segment at hand: does it follow from `from`? */
static void mark_following(const ht_graph *g, const ht_segment *s, ht_val from, bool *follows)
{
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val v = ht_node_in(g, n, i);
            bool made = v.id && ht_producer(g, v) && follows[ht_value_of(g, v)->owner];
            follows[s->nodes[at]] |= v.id && (v.id == from.id || made);
        }
    }
}

/* Of those, the ones that `to` needs become a block; false: there are none. */
static bool mark_block(ht_graph *g, const ht_segment *s, ht_val to, const bool *follows, bool *needed)
{
    uint32_t block = 1;
    bool any = false;
    for (size_t i = 1; i < g->node_count; i++)
        if (g->nodes[i].checkpoint >= block) block = g->nodes[i].checkpoint + 1;
    needed[ht_value_of(g, to)->owner] = true;
    for (size_t at = s->node_count; at-- > 0;) {
        ht_node *n = &g->nodes[s->nodes[at]];
        if (!needed[s->nodes[at]] || !follows[s->nodes[at]]) continue;
        n->checkpoint = block;
        any = true;
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val v = ht_node_in(g, n, i);
            if (v.id && ht_producer(g, v)) needed[ht_value_of(g, v)->owner] = true;
        }
    }
    return any;
}

void ht_checkpoint(ht_graph *g, ht_val from, ht_val to)
{
    if (!ht_graph_has(g, from) || !ht_graph_has(g, to)) return;
    bool *follows = calloc(g->node_count, sizeof *follows), *needed = calloc(g->node_count, sizeof *needed);
    if (!follows || !needed) {
        ht_graph_fail(g, HT_ENOMEM, "checkpoint: out of memory");
    } else {
        const ht_segment *s = g->segment < g->segment_count ? &g->segments[g->segment] : NULL;
        if (s) mark_following(g, s, from, follows);
        if (!s || !ht_producer(g, to) || !mark_block(g, s, to, follows, needed))
            ht_graph_fail(g, HT_EINVAL, "checkpoint: nothing leads from the first value to the second");
    }
    free(follows);
    free(needed);
}

void ht_scope_push(ht_graph *g, const char *name)
{
    if (!g) return;
    if (!name) {
        ht_graph_fail(g, HT_EINVAL, "scope_push: name is NULL");
        name = ""; /* so that the pop that belongs to it finds its push */
    }
    size_t length = strlen(g->scope), depth_limit = sizeof g->scope_mark / sizeof g->scope_mark[0];
    if (g->scope_depth == depth_limit || length + strlen(name) + 2 > sizeof g->scope) {
        ht_graph_fail(g, HT_EINVAL, "scope '%s' is nested too deep", name);
        return;
    }
    g->scope_mark[g->scope_depth++] = (uint16_t)length;
    snprintf(g->scope + length, sizeof g->scope - length, "%s%s", length ? "." : "", name);
}

void ht_scope_pop(ht_graph *g)
{
    if (!g) return;
    if (g->scope_depth == 0)
        ht_graph_fail(g, HT_EINVAL, "a scope was left that was never entered");
    else
        g->scope[g->scope_mark[--g->scope_depth]] = 0;
}
