/* What a rank holds of flat groups from stage 1 on. A group is laid out by buckets of whole tensors, each padded to ranks × 16
 * elements, so that every rank has a piece of the same size of each: of moments, of masters whose half copies are all that
 * the model reads, and of gradients its pieces lie one behind the other. Tensors that the model reads as they are come in
 * buckets of their own, and are whole on every rank. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/zero.h"

enum { ALIGN = 16 }; /* elements: as in flat groups */

/* ---- finding groups ---- */

static bool is_read_by_model(const ht_graph *g, ht_val v)
{
    for (size_t i = 0; i < g->segment_count; i++) {
        const ht_segment *s = &g->segments[i];
        if (strcmp(s->name, "update") == 0 || strcmp(s->name, "init") == 0 || strcmp(s->name, "derive") == 0) continue;
        for (size_t at = 0; at < s->node_count; at++) {
            const ht_node *n = &g->nodes[s->nodes[at]];
            for (size_t k = 0; k < n->n_in; k++)
                if (ht_node_in(g, n, k).id == v.id) return true;
        }
        for (size_t k = 0; k < s->output_count; k++)
            if (s->outputs[k].value.id == v.id) return true;
    }
    return false;
}

static ht_val find_named(const ht_graph *g, const char *format, const char *name)
{
    char text[512];
    snprintf(text, sizeof text, format, name);
    ht_val v = ht_find(g, text);
    return ht_state_of(g, v) ? v : HT_NONE;
}

/* "flat.m.f32.rest" is a moment of the group "f32.rest". */
static bool is_moment_of(const ht_graph *g, const ht_state *s, const char *group)
{
    const char *name = ht_value_of(g, s->value)->name,
               *dot = strncmp(name, "flat.", 5) == 0 ? strchr(name + 5, '.') : NULL;
    return dot && s->heading == HT_HEADING_OPTIMIZER && !ht_value_of(g, s->value)->base.id &&
           strcmp(dot + 1, group) == 0;
}

static int by_class_and_place(const void *left, const void *right)
{
    const ht_zero_member *a = left, *b = right;
    if (!a->half.id != !b->half.id) return a->half.id ? -1 : 1;
    return a->was < b->was ? -1 : a->was > b->was;
}

static ht_status find_members(ht_zero *z, ht_zero_group *group)
{
    const ht_graph *g = z->g;
    group->members = calloc(g->state_count, sizeof *group->members);
    if (!group->members) HT_FAIL(g->ctx, HT_ENOMEM, "zero: out of memory");
    for (size_t i = 0; i < g->state_count; i++) {
        const ht_value *v = ht_value_of(g, g->states[i].value);
        if (v->base.id != group->param.id || g->states[i].derived) continue;
        ht_zero_member *m = &group->members[group->member_count++];
        *m = (ht_zero_member){.param = g->states[i].value, .was = v->offset, .elems = ht_type_elems(&v->type)};
        ht_val copy = group->half.id ? find_named(g, "%s.half", v->name) : HT_NONE;
        if (!is_read_by_model(g, m->param)) m->half = copy;
        group->copies_all |= copy.id && !m->half.id;
    }
    qsort(group->members, group->member_count, sizeof *group->members, by_class_and_place);
    return HT_OK;
}

static ht_status add_group(ht_zero *z, ht_val param)
{
    ht_graph *g = z->g;
    const char *name = ht_value_of(g, param)->name, *suffix = name + strlen("flat.param.");
    ht_zero_group *group = &z->groups[z->group_count++];
    *group = (ht_zero_group){.param = param, .old_elems = ht_type_elems(ht_type_of(g, param))};
    group->grad = find_named(g, "flat.grad.%s", suffix);
    group->half = find_named(g, "%s.half", name);
    if (!group->grad.id) HT_FAIL(g->ctx, HT_EINVAL, "zero: %s has no gradients", name);
    for (size_t i = 0; i < g->state_count; i++)
        if (is_moment_of(g, &g->states[i], suffix)) {
            if (group->moment_count == HT_ZERO_MOMENTS)
                HT_FAIL(g->ctx, HT_ENOTSUP, "zero: %s has too many moments", name);
            group->moments[group->moment_count++] = g->states[i].value;
        }
    return find_members(z, group);
}

ht_status ht_zero_find_groups(ht_zero *z)
{
    ht_graph *g = z->g;
    z->groups = calloc(g->state_count + 1, sizeof *z->groups);
    z->hashes = ht_value_hashes(g, 0);
    z->known = g->value_count;
    if (!z->groups || !z->hashes) HT_FAIL(g->ctx, HT_ENOMEM, "zero: out of memory");
    for (size_t i = 0, states = g->state_count; i < states; i++) {
        const ht_value *v = ht_value_of(g, g->states[i].value);
        if (!v->base.id && !g->states[i].derived && strncmp(v->name, "flat.param.", 11) == 0)
            HT_TRY(add_group(z, g->states[i].value));
    }
    return HT_OK;
}

void ht_zero_free(ht_zero *z)
{
    for (size_t i = 0; i < z->group_count; i++) {
        free(z->groups[i].members);
        free(z->groups[i].buckets);
    }
    free(z->groups);
    free(z->hashes);
}

/* ---- buckets ---- */

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

static void end_bucket(const ht_zero *z, ht_zero_group *group, int64_t *at)
{
    ht_zero_bucket *b = &group->buckets[group->bucket_count - 1];
    b->count = round_up(*at - b->first, z->options->ranks * ALIGN);
    *at = b->first + b->count;
    if (b->half) group->half_elems = *at;
}

/* Members in their order, until a bucket is full or the next one is of another class. */
static ht_status fill_buckets(const ht_zero *z, ht_zero_group *group)
{
    const ht_zero_options *o = z->options;
    int64_t most = o->reduce_bucket < o->gather_bucket ? o->reduce_bucket : o->gather_bucket, at = 0;
    group->buckets = calloc(group->member_count + 1, sizeof *group->buckets);
    if (!group->buckets) HT_FAIL(z->g->ctx, HT_ENOMEM, "zero: out of memory");
    for (size_t i = 0; i < group->member_count; i++) {
        ht_zero_member *m = &group->members[i];
        const ht_zero_bucket *last = group->bucket_count ? &group->buckets[group->bucket_count - 1] : NULL;
        int64_t elems = round_up(m->elems, ALIGN);
        if (!last || last->half != (m->half.id != 0) || at - last->first + elems > most) {
            if (last) end_bucket(z, group, &at);
            group->buckets[group->bucket_count++] = (ht_zero_bucket){.first = at, .half = m->half.id != 0};
        }
        m->bucket = group->bucket_count - 1;
        m->first = at;
        at += elems;
    }
    if (group->bucket_count) end_bucket(z, group, &at);
    group->elems = at;
    return HT_OK;
}

int64_t ht_zero_piece(const ht_zero *z, const ht_zero_bucket *bucket)
{
    return bucket->count / z->options->ranks;
}

int64_t ht_zero_own(const ht_zero *z, const ht_zero_bucket *bucket)
{
    return bucket->first + z->options->rank * ht_zero_piece(z, bucket);
}

/* ---- states ---- */

static bool is_in_pieces(const ht_zero *z, const ht_zero_group *group, ht_val state)
{
    if (state.id == group->grad.id) return z->options->stage >= 2;
    if (state.id == group->param.id) return group->half_elems > 0;
    return state.id != group->whole.id && state.id != group->half.id;
}

/* Where the layout begins in a state that holds a part of it whole. */
static int64_t whole_from(const ht_zero_group *group, ht_val state)
{
    return state.id == group->whole.id ? group->half_elems : 0;
}

ht_val ht_zero_piece_of(const ht_zero *z, const ht_zero_group *group, ht_val state, size_t bucket)
{
    const ht_zero_bucket *b = &group->buckets[bucket];
    int64_t first =
        is_in_pieces(z, group, state) ? b->first / z->options->ranks : ht_zero_own(z, b) - whole_from(group, state);
    return ht_zero_view(z->g, state, "piece", (int64_t)bucket, first, ht_zero_piece(z, b));
}

ht_val ht_zero_bucket_of(const ht_zero *z, const ht_zero_group *group, ht_val state, size_t bucket)
{
    const ht_zero_bucket *b = &group->buckets[bucket];
    return ht_zero_view(z->g, state, "bucket", (int64_t)bucket, b->first - whole_from(group, state), b->count);
}

static void resize(ht_graph *g, ht_val state, int64_t elems)
{
    ht_type *type = &g->values[state.id].type;
    type->dim[0] = elems;
    ht_type_row_major(type);
}

/* A tensor in a state that is whole. */
static void place_whole(const ht_graph *g, ht_val view, ht_val state, int64_t offset)
{
    g->values[view.id].base = state;
    g->values[view.id].offset = offset;
}

/* This rank's part of a tensor, in a state of pieces. */
static void place_part(const ht_zero *z, const ht_zero_group *group, const ht_zero_member *m, ht_val view)
{
    ht_graph *g = z->g;
    const ht_zero_bucket *b = &group->buckets[m->bucket];
    int64_t own = ht_zero_own(z, b), end = own + ht_zero_piece(z, b);
    int64_t first = m->first > own ? m->first : own, last = m->first + m->elems < end ? m->first + m->elems : end;
    int64_t count = last > first ? last - first : 0, before = count ? first - own : 0;
    /* An empty part begins where those of the ranks before it end. */
    int64_t in_tensor = first - m->first < m->elems ? first - m->first : m->elems;
    ht_state *s = ht_state_of(g, view);
    s->part = true;
    s->whole = *ht_type_of(g, view);
    ht_type_row_major(&s->whole);
    s->first = in_tensor;
    ht_type type = ht_type_make(s->whole.dtype, 1, &count);
    type.space = s->whole.space;
    g->values[view.id].type = type;
    g->values[view.id].offset = b->first / z->options->ranks + before;
}

/* The tensor that a view of a flat state of the group is, or is a moment or gradient of. */
static const ht_zero_member *member_of(const ht_graph *g, const ht_zero_group *group, ht_val view)
{
    int64_t elems = ht_type_elems(ht_type_of(g, view));
    for (size_t i = 0; i < group->member_count; i++) {
        const ht_zero_member *m = &group->members[i];
        if (m->was == ht_value_of(g, view)->offset && m->elems == elems) return m;
    }
    return NULL;
}

/* The views of a flat state, at their places in it now. */
static void place_views(const ht_zero *z, const ht_zero_group *group, ht_val state)
{
    ht_graph *g = z->g;
    for (size_t i = 0; i < g->state_count; i++) {
        ht_val view = g->states[i].value;
        const ht_zero_member *m = ht_value_of(g, view)->base.id == state.id ? member_of(g, group, view) : NULL;
        if (!m) continue;
        ht_val into = state.id == group->param.id && group->whole.id && !m->half.id ? group->whole : state;
        if (is_in_pieces(z, group, into))
            place_part(z, group, m, view);
        else
            place_whole(g, view, into, m->first - whole_from(group, into));
    }
}

/* Parameters that the model reads beside those that it reads half copies of. */
static void add_whole(const ht_zero *z, ht_zero_group *group)
{
    ht_graph *g = z->g;
    char name[512];
    int64_t elems = group->elems - group->half_elems;
    if (group->half_elems == 0 || elems == 0) return;
    ht_type type = ht_type_make(ht_type_of(g, group->param)->dtype, 1, &elems);
    type.space = ht_type_of(g, group->param)->space;
    snprintf(name, sizeof name, "%s.whole", ht_value_of(g, group->param)->name);
    group->whole = ht_graph_add_state(g, name, &type, &(ht_state){.heading = HT_HEADING_PARAMETERS});
}

static void set_headings(ht_graph *g, const ht_zero_group *group)
{
    for (size_t i = 0; i < group->member_count; i++) {
        const ht_zero_member *m = &group->members[i];
        if (group->half.id) ht_state_of(g, m->param)->heading = m->half.id ? HT_HEADING_MASTERS : HT_HEADING_PARAMETERS;
    }
}

ht_status ht_zero_lay_out(ht_zero *z)
{
    ht_graph *g = z->g;
    for (size_t i = 0; i < z->group_count && g->status == HT_OK; i++) {
        ht_zero_group *group = &z->groups[i];
        int64_t ranks = z->options->ranks;
        HT_TRY(fill_buckets(z, group));
        add_whole(z, group);
        HT_TRY(g->status);
        place_views(z, group, group->param);
        place_views(z, group, group->grad);
        for (size_t k = 0; k < group->moment_count; k++) place_views(z, group, group->moments[k]);
        if (group->half.id) place_views(z, group, group->half);
        set_headings(g, group);
        resize(g, group->param, group->half_elems ? group->half_elems / ranks : group->elems);
        resize(g, group->grad, z->options->stage >= 2 ? group->elems / ranks : group->elems);
        for (size_t k = 0; k < group->moment_count; k++) resize(g, group->moments[k], group->elems / ranks);
        if (group->half.id) resize(g, group->half, group->copies_all ? group->elems : group->half_elems);
    }
    return g->status;
}
