/* Constant folding, and identities that hold bit for bit.
 *
 * A node whose inputs are all known is computed now, by its f64 reference, rounded to the types of its results. A
 * result of one number everywhere becomes a `fill`, another one of up to 64 elements a `constant`. A point-wise op on
 * fills is computed on one element, so the size does not matter.
 *
 * The model hash stays. A constant that replaces a part of the model carries the hash of what it replaces (`was`). An
 * identity leaves no node that could carry it: where the hash of x·1 is not that of x, the multiplication stays, unless
 * it is no part of the model: of another role than fwd, and not below an output that the model hash sees. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "pass/fold.h"
#include "pass/pass.h"

enum {
    CONSTANT_ELEMS = 64,
    WORK_ELEMS = 1 << 14, /* operands together that are computed element by element */
    WORK_FLOPS = 1 << 20,
};

/* From here on, neighbours of an i64 are the same f64. */
static const double exact_int = 0x1p53;

/* ---- what is known ---- */

static bool plain(const ht_graph *g, ht_val v)
{
    return !ht_value_of(g, v)->base.id && ht_type_of(g, v)->space == HT_SPACE_MAIN;
}

/* NaN is left to the run: which NaN it is depends on the machine. */
static bool faithful(ht_dtype dtype, double x)
{
    return !isnan(x) && (dtype != HT_I64 || fabs(x) < exact_int);
}

static bool all_faithful(const ht_type *type, const double *data, int64_t elems)
{
    for (int64_t i = 0; i < elems; i++)
        if (!faithful(type->dtype, data[i])) return false;
    return true;
}

static const double *values_of(ht_folder *f, const ht_node *n, size_t count)
{
    const ht_type *type = ht_type_of(f->g, ht_node_out(n, 0));
    double *data = HT_NEW(f->arena, double, count + 1);
    if (!data) {
        ht_graph_fail(f->g, HT_ENOMEM, "fold: out of memory");
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        data[i] = ht_round_to(type->dtype, n->op == f->fill ? n->attr[0].f : n->attr[0].floats[i]);
    return all_faithful(type, data, (int64_t)count) ? data : NULL;
}

/* A node that stays: is its result known? */
static void learn(ht_folder *f, const ht_node *n)
{
    if (!n->n_out || !plain(f->g, ht_node_out(n, 0))) return;
    ht_known *known = &f->known[n->out];
    if (n->op == f->expand) {
        const ht_known *shown = ht_fold_known(f, ht_node_in(f->g, n, 0));
        if (shown && shown->uniform) *known = *shown;
    } else if (n->op == f->fill) {
        *known = (ht_known){values_of(f, n, 1), true};
    } else if (n->op == f->constant) {
        size_t count = n->attr[0].count;
        const double *data = values_of(f, n, count);
        bool uniform = count > 0;
        for (size_t i = 1; data && i < count; i++) uniform &= memcmp(&data[i], &data[0], sizeof data[0]) == 0;
        *known = (ht_known){data, uniform};
    }
}

const ht_known *ht_fold_known(const ht_folder *f, ht_val v)
{
    v = ht_rewrite_map(&f->rw, v);
    return v.id < f->known_capacity && f->known[v.id].data ? &f->known[v.id] : NULL;
}

/* ---- computing ---- */

/* A result that was computed: `count` elements, or one that stands for all. */
typedef struct folded {
    double *data;
    int64_t count;
    bool uniform;
} folded;

static bool round_result(const ht_type *type, folded *r)
{
    r->uniform = r->count > 0;
    for (int64_t i = 0; i < r->count; i++) {
        r->data[i] = ht_round_to(type->dtype, r->data[i]);
        r->uniform &= memcmp(&r->data[i], &r->data[0], sizeof r->data[0]) == 0;
    }
    return all_faithful(type, r->data, r->count) && (r->uniform || r->count <= CONSTANT_ELEMS);
}

static bool all_uniform(const ht_folder *f, const ht_node *n)
{
    for (size_t i = 0; i < n->n_in; i++) {
        const ht_known *known = ht_fold_known(f, ht_node_in(f->g, n, i));
        if (!known || !known->uniform) return false;
    }
    return true;
}

/* Does element i of every result need only element i of every input? */
static bool by_element(const ht_call *call)
{
    if (call->op->fuse != HT_FUSE_POINT || call->op->prec != HT_PREC_POINT) return false;
    for (size_t i = 0; i < call->n_in; i++)
        if (!call->in[i] || !ht_type_same_shape(call->in[i], call->out[0])) return false;
    for (size_t i = 1; i < call->n_out; i++)
        if (!ht_type_same_shape(call->out[i], call->out[0])) return false;
    return true;
}

/* One element stands for all. */
static bool compute_one(ht_folder *f, const ht_node *n, const ht_call *call, folded *results)
{
    if (!all_uniform(f, n) || ht_type_elems(call->out[0]) == 0) return false;
    if (call->op->view) { /* moves elements and changes none */
        *results[0].data = ht_fold_known(f, ht_node_in(f->g, n, 0))->data[0];
        results[0].count = 1;
        return round_result(call->out[0], &results[0]);
    }
    if (!by_element(call)) return false;
    ht_type one[16];
    const ht_type *types[16];
    const double *in[8];
    double *out[8];
    if (call->n_in > 8) return false;
    for (size_t i = 0; i < call->n_in + call->n_out; i++) {
        one[i] = ht_type_make(i < call->n_in ? call->in[i]->dtype : call->out[i - call->n_in]->dtype, 0, NULL);
        types[i] = &one[i];
    }
    for (size_t i = 0; i < call->n_in; i++) in[i] = ht_fold_known(f, ht_node_in(f->g, n, i))->data;
    for (size_t i = 0; i < call->n_out; i++) out[i] = results[i].data;
    ht_call small = *call;
    small.in = types;
    small.out = types + call->n_in;
    call->op->ref(&small, in, out);
    bool good = true;
    for (size_t i = 0; i < call->n_out; i++) {
        results[i].count = 1;
        good &= round_result(small.out[i], &results[i]);
    }
    return good;
}

static bool small_enough(const ht_call *call)
{
    double elems = 0;
    for (size_t i = 0; i < call->n_in; i++) elems += call->in[i] ? (double)ht_type_elems(call->in[i]) : 0;
    for (size_t i = 0; i < call->n_out; i++) elems += (double)ht_type_elems(call->out[i]);
    return elems <= WORK_ELEMS && ht_cost_flops(ht_call_cost(call)) <= WORK_FLOPS;
}

static const double *all_elements(ht_arena *arena, const ht_known *known, const ht_type *type)
{
    if (!known->uniform) return known->data;
    int64_t elems = ht_type_elems(type);
    double *data = HT_NEW(arena, double, elems + 1);
    for (int64_t i = 0; data && i < elems; i++) data[i] = known->data[0];
    return data;
}

static bool compute_all(ht_folder *f, ht_arena *arena, const ht_node *n, const ht_call *call, folded *results)
{
    const double **in = HT_NEW(arena, const double *, call->n_in + 1);
    double *out[8];
    if (!in || !small_enough(call)) return false;
    for (size_t i = 0; i < call->n_in; i++) {
        ht_val v = ht_node_in(f->g, n, i);
        if (v.id && !(in[i] = all_elements(arena, ht_fold_known(f, v), call->in[i]))) return false;
    }
    for (size_t i = 0; i < call->n_out; i++) {
        results[i].count = ht_type_elems(call->out[i]);
        out[i] = results[i].data = HT_NEW(arena, double, results[i].count + 1);
        if (!out[i]) return false;
    }
    call->op->ref(call, in, out);
    bool good = true;
    for (size_t i = 0; i < call->n_out; i++) good &= round_result(call->out[i], &results[i]);
    return good;
}

/* ---- replacing ---- */

/* Already in the form that a uniform result would get. */
static bool is_shown_number(const ht_folder *f, const ht_node *n)
{
    if (n->op != f->expand) return false;
    ht_val number = ht_rewrite_map(&f->rw, ht_node_in(f->g, n, 0));
    return ht_type_of(f->g, number)->rank == 0 && ht_producer(f->g, number)->op == f->fill;
}

static bool is_candidate(const ht_folder *f, const ht_node *n)
{
    if (!n->n_in || !n->n_out || n->no_merge || !n->op->ref || (n->op->flags & (HT_OP_EFFECT | HT_OP_NO_FOLD)))
        return false;
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(f->g, n, i);
        if (v.id && !ht_fold_known(f, v)) return false;
    }
    for (size_t i = 0; i < n->n_out; i++)
        if (!plain(f->g, ht_node_out(n, i))) return false;
    return !is_shown_number(f, n);
}

/* The node made last, with what the old one was to a reader. */
static ht_node *like(ht_folder *f, const ht_node *old)
{
    ht_node *n = &f->g->nodes[f->g->node_count - 1];
    n->role = old->role;
    n->origin = old->origin;
    n->site = old->site;
    if (ht_fold_reserve(f)) learn(f, n);
    return n;
}

static void replace(ht_folder *f, const ht_node *old, size_t i, const folded *r)
{
    ht_graph *g = f->g;
    ht_val from = ht_node_out(old, i), to;
    ht_type type = *ht_type_of(g, from), scalar = ht_type_make(type.dtype, 0, NULL);
    if (!r->uniform) {
        ht_emit(g, f->constant, 0, NULL, HT_ATTRS(HT_FLOATS("data", r->count, r->data)), &type, &to);
    } else {
        ht_emit(g, f->fill, 0, NULL, HT_ATTRS(HT_FLOAT("value", r->data[0])), &scalar, &to);
        if (g->status == HT_OK && type.rank > 0) {
            like(f, old);
            ht_val number = to;
            ht_emit(g, f->expand, HT_VALS(number), HT_NO_ATTRS, &type, &to);
        }
    }
    if (g->status != HT_OK) return;
    ht_node *n = like(f, old);
    if (ht_fold_in_model(f, old)) n->was = f->hashes[from.id];
    g->values[to.id].name = g->values[from.id].name;
    ht_rewrite_replace(&f->rw, from, to);
}

static bool fold_node(ht_folder *f, uint32_t id)
{
    ht_graph *g = f->g;
    ht_node n = g->nodes[id];
    if (!is_candidate(f, &n)) return false;
    ht_arena *arena = ht_arena_create();
    ht_call_storage storage;
    double one[8];
    folded results[8];
    for (size_t i = 0; i < n.n_out; i++) results[i] = (folded){.data = &one[i]};
    const ht_call *call = arena ? ht_node_call(g, &n, arena, &storage) : NULL;
    bool done = call && (compute_one(f, &n, call, results) || compute_all(f, arena, &n, call, results));
    for (size_t i = 0; done && i < n.n_out; i++) replace(f, &n, i, &results[i]);
    ht_arena_free(arena);
    return done;
}

/* ---- the pass ---- */

bool ht_fold_reserve(ht_folder *f)
{
    size_t before = f->known_capacity;
    if (!ht_grow((void **)&f->known, &f->known_capacity, f->g->value_count, sizeof *f->known)) {
        ht_graph_fail(f->g, HT_ENOMEM, "fold: out of memory");
        return false;
    }
    memset(f->known + before, 0, (f->known_capacity - before) * sizeof *f->known);
    return true;
}

bool ht_fold_in_model(const ht_folder *f, const ht_node *n)
{
    if (n->role == HT_ROLE_FWD) return true;
    for (size_t i = 0; i < n->n_out; i++)
        if (f->seen[n->out + i]) return true;
    return false;
}

/* Values that the model hash depends on: those below an output of the model's segment, and all of "derive". */
static void see_model(ht_folder *f, uint32_t segment)
{
    ht_graph *g = f->g;
    const ht_segment *s = &g->segments[segment];
    bool derive = strcmp(s->name, "derive") == 0;
    int forward = ht_segment_find(g, "forward");
    int model = forward >= 0 ? forward : ht_segment_find(g, "micro_first");
    for (size_t i = 0; (int)segment == model && i < s->output_count; i++) f->seen[s->outputs[i].value.id] = true;
    for (size_t at = s->node_count; at-- > 0;) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        bool seen = derive;
        for (size_t i = 0; i < n->n_out; i++) seen |= f->seen[n->out + i];
        for (size_t i = 0; seen && i < n->n_in; i++) f->seen[ht_node_in(g, n, i).id] = true;
        for (size_t i = 0; seen && i < n->n_out; i++) f->seen[n->out + i] = true;
    }
}

static void see_stores(ht_folder *f, uint32_t segment)
{
    const ht_segment *s = &f->g->segments[segment];
    for (size_t i = 0; i < s->node_count; i++) {
        const ht_node *n = &f->g->nodes[s->nodes[i]];
        if (n->op == &ht_op_store) f->stored[ht_root(f->g, ht_node_in(f->g, n, 0)).id] = true;
    }
}

static const ht_op *op_named(const ht_graph *g, const char *name)
{
    return ht_op_find(g->ctx, name, strlen(name));
}

static ht_status fold_segment(ht_graph *g, uint32_t segment)
{
    ht_folder f = {.g = g, .fill = op_named(g, "fill"), .constant = op_named(g, "constant")};
    f.expand = op_named(g, "expand");
    if (!f.fill || !f.constant || !f.expand) HT_FAIL(g->ctx, HT_EINVAL, "fold: an op is missing from the context");
    f.arena = ht_arena_create();
    f.hashes = ht_value_hashes(g, segment);
    f.hash_count = g->value_count;
    f.seen = calloc(g->value_count, sizeof *f.seen);
    f.stored = calloc(g->value_count, sizeof *f.stored);
    ht_status status = HT_ENOMEM;
    if (f.arena && f.hashes && f.seen && f.stored && ht_fold_reserve(&f)) {
        see_model(&f, segment);
        see_stores(&f, segment);
        if (ht_rewrite_begin(&f.rw, g, segment))
            for (size_t i = 0; i < f.rw.count && g->status == HT_OK; i++) {
                uint32_t id = f.rw.old[i];
                if (fold_node(&f, id) || ht_fold_identity(&f, id)) continue;
                ht_rewrite_keep(&f.rw, id);
                learn(&f, &g->nodes[id]);
            }
        status = ht_rewrite_end(&f.rw);
    } else {
        ht_fail(g->ctx, HT_ENOMEM, "fold: out of memory");
    }
    ht_arena_free(f.arena);
    free(f.hashes);
    free(f.seen);
    free(f.stored);
    free(f.known);
    return status;
}

static ht_status fold_run(ht_graph *g, const ht_pass_env *env)
{
    (void)env;
    for (size_t i = 0; i < g->segment_count; i++) HT_TRY(fold_segment(g, (uint32_t)i));
    return HT_OK;
}

const ht_pass ht_pass_fold = {
    .name = "fold",
    .help = "compute what is known already, drop what changes nothing",
    .system = true,
    .run = fold_run,
};
