/* What a rank holds of flat groups from stage 1 on. A group is laid out by buckets of whole tensors, each padded to ranks × 16
 * elements, so that every rank has a piece of the same size of each; where a state is in pieces they lie one behind the
 * other. Moments always are, gradients from stage 2 on, and masters of which the model reads only half copies. In stage 3
 * large tensors, or their half copies, are in pieces, too, each in a bucket of its own. Tensors that are read in different
 * ways are in different buckets, in the order of ht_zero_class. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/zero.h"

/* ---- finding groups ---- */

/* Is it an operand of the model, or an output? */
static void find_reads(const ht_graph *g, ht_val v, bool *read, bool *output)
{
    *read = *output = false;
    for (size_t i = 0; i < g->segment_count; i++) {
        const ht_segment *s = &g->segments[i];
        if (!ht_is_of_model(s)) continue;
        for (size_t at = 0; at < s->node_count && !*read; at++) {
            const ht_node *n = &g->nodes[s->nodes[at]];
            for (size_t k = 0; k < n->n_in; k++) *read |= ht_node_in(g, n, k).id == v.id;
        }
        for (size_t k = 0; k < s->output_count; k++) *output |= s->outputs[k].value.id == v.id;
    }
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
    if (a->class != b->class) return a->class < b->class ? -1 : 1;
    return a->was < b->was ? -1 : a->was > b->was;
}

/* Small tensors, and what is handed out, stay whole. */
static void classify(const ht_zero *z, ht_zero_group *group, ht_zero_member *m)
{
    const ht_graph *g = z->g;
    bool read, output, copy_read, copy_output = false;
    find_reads(g, m->param, &read, &output);
    if (m->copy.id) find_reads(g, m->copy, &copy_read, &copy_output);
    bool half = m->copy.id && !read && !output;
    bool large = z->options->stage >= 3 && m->elems >= z->options->persistent && m->elems > 0;
    bool gathered = large && !output && !copy_output && (half || !m->copy.id);
    m->class = half       ? gathered ? HT_ZERO_HALF_GATHERED : HT_ZERO_HALF
               : gathered ? HT_ZERO_PARAM_GATHERED
                          : HT_ZERO_PARAM;
    group->copies_params |= m->copy.id && !half;
}

/* Does the update read tensors of the group by themselves? Then its rule looks at each as a whole. */
static bool is_by_tensor(const ht_graph *g, const ht_zero_group *group)
{
    const ht_segment *s = &g->segments[ht_segment_find(g, "update")];
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        for (size_t i = 0; i < n->n_in; i++)
            if (ht_node_in(g, n, i).id && ht_value_of(g, ht_node_in(g, n, i))->base.id == group->param.id) return true;
    }
    return false;
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
        m->copy = group->half.id ? find_named(g, "%s.half", v->name) : HT_NONE;
        classify(z, group, m);
    }
    qsort(group->members, group->member_count, sizeof *group->members, by_class_and_place);
    return HT_OK;
}

static ht_status add_group(ht_zero *z, ht_val param)
{
    ht_graph *g = z->g;
    const char *name = ht_value_of(g, param)->name, *suffix = name + strlen("flat.param.");
    ht_zero_group *group = &z->groups[z->group_count++];
    *group = (ht_zero_group){.param = param};
    group->grad = find_named(g, "flat.grad.%s", suffix);
    group->half = find_named(g, "%s.half", name);
    group->by_tensor = is_by_tensor(g, group);
    if (!group->grad.id) HT_FAIL(g->ctx, HT_EINVAL, "zero: %s has no gradients", name);
    for (size_t i = 0; i < g->state_count; i++)
        if (is_moment_of(g, &g->states[i], suffix)) {
            if (group->moment_count == HT_ZERO_MOMENTS)
                HT_FAIL(g->ctx, HT_ENOTSUP, "zero: %s has too many moments", name);
            group->moments[group->moment_count++] = g->states[i].value;
        }
    HT_TRY(find_members(z, group));
    for (size_t i = 0; i < group->member_count && group->by_tensor; i++)
        if (ht_type_of(g, group->members[i].param)->rank == 0)
            HT_FAIL(g->ctx, HT_ENOTSUP,
                    "zero: the optimiser updates %s, a single number, as a tensor: stage 0 does, too",
                    ht_value_of(g, group->members[i].param)->name);
    return HT_OK;
}

ht_status ht_zero_find_groups(ht_zero *z)
{
    ht_graph *g = z->g;
    z->groups = calloc(g->state_count + 1, sizeof *z->groups);
    z->hashes = ht_value_hashes(g, 0);
    z->known = g->value_count;
    z->places = calloc(z->known, sizeof *z->places);
    if (!z->groups || !z->hashes || !z->places) HT_FAIL(g->ctx, HT_ENOMEM, "zero: out of memory");
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
    free(z->places);
    free(z->sums);
}

/* ---- buckets ---- */

static int64_t round_up(int64_t x, int64_t to)
{
    return (x + to - 1) / to * to;
}

static void end_bucket(const ht_zero *z, ht_zero_group *group, int64_t *at)
{
    ht_zero_bucket *b = &group->buckets[group->bucket_count - 1];
    b->count = round_up(*at - b->first, z->options->ranks * HT_ZERO_ALIGN);
    *at = b->first + b->count;
    for (int class = b->class; class < HT_ZERO_CLASSES; class ++) group->end[class] = *at;
}

static bool is_gathered(ht_zero_class class)
{
    return class == HT_ZERO_HALF_GATHERED || class == HT_ZERO_PARAM_GATHERED;
}

/* Members in their order, until a bucket is full or the next one is of another class. */
static ht_status fill_buckets(const ht_zero *z, ht_zero_group *group)
{
    const ht_zero_options *o = z->options;
    int64_t most = o->reduce_bucket < o->gather_bucket ? o->reduce_bucket : o->gather_bucket, at = 0;
    if (most > z->most) most = z->most;
    group->buckets = calloc(group->member_count + 1, sizeof *group->buckets);
    if (!group->buckets) HT_FAIL(z->g->ctx, HT_ENOMEM, "zero: out of memory");
    for (size_t i = 0; i < group->member_count; i++) {
        ht_zero_member *m = &group->members[i];
        const ht_zero_bucket *last = group->bucket_count ? &group->buckets[group->bucket_count - 1] : NULL;
        int64_t elems = round_up(m->elems, HT_ZERO_ALIGN);
        bool alone = (group->by_tensor || z->alone) && last && at > last->first;
        bool full = last && (alone || is_gathered(m->class) || at - last->first + elems > most);
        if (!last || last->class != m->class || full) {
            if (last) end_bucket(z, group, &at);
            group->buckets[group->bucket_count++] = (ht_zero_bucket){.first = at, .class = m->class};
        }
        m->bucket = group->bucket_count - 1;
        m->first = at;
        at += elems;
    }
    if (group->bucket_count) end_bucket(z, group, &at);
    return HT_OK;
}

int64_t ht_zero_piece(const ht_zero *z, const ht_zero_bucket *bucket)
{
    return bucket->count / z->options->ranks;
}

/* Where this rank's piece begins in the layout. */
static int64_t own_first(const ht_zero *z, const ht_zero_bucket *bucket)
{
    return bucket->first + z->options->rank * ht_zero_piece(z, bucket);
}

/* ---- states ---- */

/* Where a state of the group has the elements of a class: in which state now, whether in pieces, and where the layout
 * begins in it. */
typedef struct home {
    ht_val state;
    bool pieces;
    int64_t from;
} home;

static home home_of(const ht_zero *z, const ht_zero_group *group, ht_val state, ht_zero_class class)
{
    const int64_t *end = group->end;
    if (state.id == group->grad.id) return (home){state, z->options->stage >= 2, 0};
    if (state.id == group->param.id && class != HT_ZERO_PARAM) return (home){state, true, 0};
    if (state.id == group->param.id)
        return group->whole.id ? (home){group->whole, false, end[HT_ZERO_PARAM_GATHERED]} : (home){state, false, 0};
    if (state.id == group->half.id && class == HT_ZERO_HALF_GATHERED) return (home){group->half_parts, true, 0};
    if (state.id == group->half.id) return (home){state, false, end[HT_ZERO_HALF_GATHERED]};
    return (home){state, true, 0};
}

bool ht_zero_in_pieces(const ht_zero *z, const ht_zero_group *group, ht_val state, size_t bucket)
{
    return home_of(z, group, state, group->buckets[bucket].class).pieces;
}

ht_val ht_zero_piece_of(const ht_zero *z, const ht_zero_group *group, ht_val state, size_t bucket)
{
    const ht_zero_bucket *b = &group->buckets[bucket];
    home h = home_of(z, group, state, b->class);
    int64_t first = h.pieces ? b->first / z->options->ranks : own_first(z, b) - h.from;
    return ht_zero_view(z->g, h.state, "piece", (int64_t)bucket, first, ht_zero_piece(z, b));
}

ht_val ht_zero_bucket_of(const ht_zero *z, const ht_zero_group *group, ht_val state, size_t bucket)
{
    const ht_zero_bucket *b = &group->buckets[bucket];
    home h = home_of(z, group, state, b->class);
    return ht_zero_view(z->g, h.state, "bucket", (int64_t)bucket, b->first - h.from, b->count);
}

/* This rank's part of a tensor, in a state of pieces. */
static void place_part(const ht_zero *z, const ht_zero_group *group, const ht_zero_member *m, ht_val view)
{
    ht_graph *g = z->g;
    const ht_zero_bucket *b = &group->buckets[m->bucket];
    int64_t own = own_first(z, b), end = own + ht_zero_piece(z, b);
    int64_t first = m->first > own ? m->first : own, last = m->first + m->elems < end ? m->first + m->elems : end;
    int64_t count = last > first ? last - first : 0, before = count ? first - own : 0;
    ht_state *s = ht_state_of(g, view);
    s->part = true;
    if (!s->cut.ranks) s->whole = *ht_type_of(g, view); /* of a piece that ranks share, that is known */
    ht_type_row_major(&s->whole);
    /* An empty part begins where those of the ranks before it end. */
    s->first = first - m->first < m->elems ? first - m->first : m->elems;
    ht_type type = ht_type_make(s->whole.dtype, 1, &count);
    type.space = s->whole.space;
    g->values[view.id].type = type;
    g->values[view.id].offset = b->first / z->options->ranks + before;
}

/* The tensor that a view of a flat state of the group is, or is a moment, a gradient or a copy of. */
static const ht_zero_member *member_of(const ht_graph *g, const ht_zero_group *group, ht_val view)
{
    int64_t elems = ht_type_elems(ht_type_of(g, view));
    for (size_t i = 0; i < group->member_count; i++) {
        const ht_zero_member *m = &group->members[i];
        if (m->was == ht_value_of(g, view)->offset && m->elems == elems) return m;
    }
    return NULL;
}

/* The views of a flat state, at their places now. */
static void place_views(const ht_zero *z, const ht_zero_group *group, ht_val state)
{
    ht_graph *g = z->g;
    for (size_t i = 0; i < g->state_count; i++) {
        ht_val view = g->states[i].value;
        const ht_zero_member *m = ht_value_of(g, view)->base.id == state.id ? member_of(g, group, view) : NULL;
        if (!m) continue;
        home h = home_of(z, group, state, m->class);
        if (view.id < z->known) z->places[view.id] = (ht_zero_place){state, m->bucket};
        g->values[view.id].base = h.state;
        if (h.pieces)
            place_part(z, group, m, view);
        else
            g->values[view.id].offset = m->first - h.from;
    }
}

static ht_val add_beside(ht_graph *g, ht_val state, const char *what, int64_t elems, ht_state like)
{
    char name[512];
    ht_type type = ht_type_make(ht_type_of(g, state)->dtype, 1, &elems);
    type.space = ht_type_of(g, state)->space;
    snprintf(name, sizeof name, "%s.%s", ht_value_of(g, state)->name, what);
    return ht_graph_add_state(g, name, &type, &like);
}

/* Parameters that are whole beside those in pieces; and copies in pieces. */
static void add_states(const ht_zero *z, ht_zero_group *group)
{
    const int64_t *end = group->end;
    int64_t pieces = end[HT_ZERO_PARAM_GATHERED], whole = end[HT_ZERO_PARAM] - pieces,
            parts = end[HT_ZERO_HALF_GATHERED];
    if (pieces && whole)
        group->whole = add_beside(z->g, group->param, "whole", whole, (ht_state){.heading = HT_HEADING_PARAMETERS});
    if (parts)
        group->half_parts = add_beside(z->g, group->half, "parts", parts / z->options->ranks,
                                       (ht_state){.heading = HT_HEADING_WEIGHTS, .derived = true});
}

static void resize(ht_graph *g, ht_val state, int64_t elems)
{
    ht_type *type = &g->values[state.id].type;
    type->dim[0] = elems;
    ht_type_row_major(type);
}

static void resize_states(const ht_zero *z, const ht_zero_group *group)
{
    ht_graph *g = z->g;
    const int64_t *end = group->end, ranks = z->options->ranks, all = end[HT_ZERO_PARAM];
    int64_t pieces = end[HT_ZERO_PARAM_GATHERED], copied = group->copies_params ? all : end[HT_ZERO_HALF];
    resize(g, group->param, pieces ? pieces / ranks : all);
    resize(g, group->grad, z->options->stage >= 2 ? all / ranks : all);
    for (size_t k = 0; k < group->moment_count; k++) resize(g, group->moments[k], all / ranks);
    if (group->half.id) resize(g, group->half, copied - end[HT_ZERO_HALF_GATHERED]);
}

static void set_headings(ht_graph *g, const ht_zero_group *group)
{
    bool masters = group->end[HT_ZERO_HALF] > 0;
    for (size_t i = 0; i < group->member_count && group->half.id; i++) {
        const ht_zero_member *m = &group->members[i];
        ht_state_of(g, m->param)->heading = m->class <= HT_ZERO_HALF ? HT_HEADING_MASTERS : HT_HEADING_PARAMETERS;
    }
    if (!masters && group->half.id) ht_state_of(g, group->param)->heading = HT_HEADING_PARAMETERS;
}

ht_status ht_zero_lay_out(ht_zero *z)
{
    ht_graph *g = z->g;
    for (size_t i = 0; i < z->group_count && g->status == HT_OK; i++) {
        ht_zero_group *group = &z->groups[i];
        HT_TRY(fill_buckets(z, group));
        add_states(z, group);
        HT_TRY(g->status);
        place_views(z, group, group->param);
        place_views(z, group, group->grad);
        for (size_t k = 0; k < group->moment_count; k++) place_views(z, group, group->moments[k]);
        if (group->half.id) place_views(z, group, group->half);
        set_headings(g, group);
        resize_states(z, group);
    }
    return g->status;
}
