#include "compress/units.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- scores ---- */

static int by_score(const void *left, const void *right)
{
    const ht_score *a = left, *b = right;
    if (a->score != b->score) return a->score < b->score ? -1 : 1;
    if (a->tensor != b->tensor) return a->tensor < b->tensor ? -1 : 1;
    return a->index < b->index ? -1 : a->index > b->index;
}

void ht_scores_sort(ht_score *scores, size_t count)
{
    qsort(scores, count, sizeof *scores, by_score);
}

/* ---- the units of a compression ---- */

typedef struct units {
    ht_compression *c;
    ht_coupling coupling;
    ht_weight **weights; /* by tensor; NULL: the run has none of that name */
    double *squares;     /* by unit: the sum over its elements */
    int64_t *elements;   /* by unit */
} units;

ht_status ht_compression_coupling(ht_compression *c, ht_coupling *out)
{
    ht_config *config;
    ht_graph *graph = NULL;
    HT_TRY(ht_compression_config(c, NULL, 0, &config));
    ht_run_request request = {
        .config = config, .mode = HT_RUN_NEW, .folder = c->request->run, .data_folder = c->data_folder};
    ht_status status = ht_run_model(&graph, c->ctx, &request);
    if (status == HT_OK) status = ht_coupling_derive(out, c->ctx, c->arena, graph);
    ht_graph_free(graph);
    ht_config_free(config);
    return status;
}

/* A tensor as [outer, along, inner] around an axis. */
typedef struct view {
    int64_t outer, along, inner;
} view;

static view view_of(const ht_coupled_tensor *t, int axis)
{
    view v = {1, t->dim[axis], 1};
    for (int i = 0; i < t->rank; i++)
        if (i != axis) *(i < axis ? &v.outer : &v.inner) *= t->dim[i];
    return v;
}

static void add_squares(const units *u, size_t tensor, int axis)
{
    const ht_coupled_tensor *t = &u->coupling.tensors[tensor];
    view v = view_of(t, axis);
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t a = 0; a < v.along; a++) {
            int32_t unit = t->axes[axis].unit[a];
            u->elements[unit] += v.inner;
            for (int64_t i = 0; i < v.inner && unit; i++) {
                double x = ht_weight_get(u->weights[tensor], (o * v.along + a) * v.inner + i);
                u->squares[unit] += x * x;
            }
        }
}

/* Statistics, which are not trained, neither keep a unit alive nor become zero. */
static ht_status find_units(ht_compression *c, units *out)
{
    *out = (units){.c = c};
    HT_TRY(ht_compression_coupling(c, &out->coupling));
    out->weights = HT_NEW(c->arena, ht_weight *, out->coupling.count + 1);
    out->squares = HT_NEW(c->arena, double, out->coupling.units + 1);
    out->elements = HT_NEW(c->arena, int64_t, out->coupling.units + 1);
    if (!out->weights || !out->squares || !out->elements) HT_FAIL(c->ctx, HT_ENOMEM, "out of memory for units");
    for (size_t i = 0; i < out->coupling.count; i++) {
        const ht_coupled_tensor *t = &out->coupling.tensors[i];
        ht_weight *w = out->weights[i] = ht_weights_find(&c->weights, t->name);
        bool same = !w || w->array.rank == t->rank;
        for (int k = 0; w && same && k < t->rank; k++) same = w->array.shape[k] == t->dim[k];
        if (!same) HT_FAIL(c->ctx, HT_ESHAPE, "'%s' has not the shape that the model gives it", t->name);
        for (int k = 0; w && t->trained && k < t->rank; k++) add_squares(out, i, k);
    }
    return HT_OK;
}

/* ---- prune ---- */

/* By layer, which is named by its first unit: does a chosen tensor make its units? */
static int64_t choose_layers(const units *u, ht_unit_kind kind, const bool *chosen, bool *layers)
{
    const ht_coupling *k = &u->coupling;
    int64_t count = 0;
    for (size_t i = 0; i < k->count; i++) {
        if (!u->weights[i] || !chosen[u->weights[i] - u->c->weights.items]) continue;
        for (int axis = 0; axis < k->tensors[i].rank; axis++)
            for (int64_t p = 0; p < k->tensors[i].dim[axis] && !k->tensors[i].axes[axis].consumed; p++) {
                int32_t unit = k->tensors[i].axes[axis].unit[p];
                if (!unit || k->kind[unit] != kind || layers[k->layer[unit]]) continue;
                layers[k->layer[unit]] = true;
                count++;
            }
    }
    return count;
}

/* For messages: a tensor that makes such units. */
static const char *example(const units *u, ht_unit_kind kind)
{
    for (size_t i = 0; i < u->coupling.count; i++)
        for (int k = 0; k < u->coupling.tensors[i].rank; k++) {
            const ht_coupled_tensor *t = &u->coupling.tensors[i];
            int32_t unit = t->dim[k] && t->rank > 1 && !t->axes[k].consumed ? t->axes[k].unit[0] : 0;
            if (unit && u->coupling.kind[unit] == kind) return t->name;
        }
    return NULL;
}

static const char *name_layer(const units *u, int32_t layer)
{
    for (size_t i = 0; i < u->coupling.count; i++)
        for (int k = 0; k < u->coupling.tensors[i].rank; k++) {
            const ht_coupled_tensor *t = &u->coupling.tensors[i];
            int32_t unit = t->dim[k] && !t->axes[k].consumed ? t->axes[k].unit[0] : 0;
            if (unit && u->coupling.layer[unit] == layer) return t->name;
        }
    return "";
}

static void clear_places(const units *u, size_t tensor, int axis, const bool *cleared)
{
    const ht_coupled_tensor *t = &u->coupling.tensors[tensor];
    view v = view_of(t, axis);
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t a = 0; a < v.along; a++)
            for (int64_t i = 0; i < v.inner && cleared[t->axes[axis].unit[a]]; i++)
                ht_weight_clear(u->weights[tensor], (o * v.along + a) * v.inner + i);
}

/* The smallest of these, but one of each layer. */
static ht_status choose_smallest(const units *u, const ht_units_request *r, ht_score *scores, int64_t count,
                                 int64_t *left, bool *cleared)
{
    int64_t wanted = llround(r->ratio * (double)count), taken = 0;
    if (wanted == 0 || wanted >= count)
        HT_FAIL(u->c->ctx, HT_EINVAL, "prune: a share of %g of the %lld %s of '%s' is %s", r->ratio, (long long)count,
                ht_unit_names[r->kind], name_layer(u, u->coupling.layer[scores[0].index]),
                wanted ? "all of them" : "none of them");
    ht_scores_sort(scores, (size_t)count);
    for (int64_t i = 0; i < count && taken < wanted; i++) {
        int32_t layer = u->coupling.layer[scores[i].index];
        if (left[layer] == 1) continue;
        left[layer]--;
        cleared[scores[i].index] = true;
        taken++;
    }
    return HT_OK;
}

static ht_status choose_units(const units *u, const ht_units_request *r, const bool *layers, bool *cleared)
{
    const ht_coupling *k = &u->coupling;
    ht_score *scores = calloc((size_t)k->units + 1, sizeof *scores);
    int64_t *left = calloc((size_t)k->units + 1, sizeof *left), count = 0;
    ht_status status = scores && left ? HT_OK : ht_fail(u->c->ctx, HT_ENOMEM, "prune: out of memory");
    for (int32_t unit = 1; status == HT_OK && unit <= k->units; unit++) left[k->layer[unit]]++;
    for (int32_t layer = 1; status == HT_OK && layer <= k->units; layer++) {
        for (int32_t unit = layer; unit <= k->units && layers[layer]; unit++)
            if (k->layer[unit] == layer && k->kind[unit] == r->kind) {
                double score = u->squares[unit] / (r->global ? (double)u->elements[unit] : 1);
                scores[count++] = (ht_score){score, 0, unit};
            }
        if (r->global || count == 0) continue;
        status = choose_smallest(u, r, scores, count, left, cleared);
        count = 0;
    }
    if (status == HT_OK && r->global) status = choose_smallest(u, r, scores, count, left, cleared);
    free(scores);
    free(left);
    return status;
}

static void clear_units(const units *u, const bool *layers, const bool *cleared, bool *belong)
{
    for (size_t i = 0; i < u->coupling.count; i++) {
        const ht_coupled_tensor *t = &u->coupling.tensors[i];
        for (int k = 0; u->weights[i] && t->trained && k < t->rank; k++) {
            clear_places(u, i, k, cleared);
            for (int64_t p = 0; p < t->dim[k]; p++)
                if (layers[u->coupling.layer[t->axes[k].unit[p]]]) belong[u->weights[i] - u->c->weights.items] = true;
        }
    }
}

ht_status ht_units_prune(ht_compression *c, const ht_units_request *r, const bool *chosen, bool *belong)
{
    units u;
    HT_TRY(find_units(c, &u));
    bool *layers = HT_NEW(c->arena, bool, u.coupling.units + 1),
         *cleared = HT_NEW(c->arena, bool, u.coupling.units + 1);
    if (!layers || !cleared) HT_FAIL(c->ctx, HT_ENOMEM, "prune: out of memory");
    const char *where = example(&u, r->kind);
    if (!where)
        HT_FAIL(c->ctx, HT_EINVAL, "prune: the model, of type %s, has no %s that could be removed", c->model,
                ht_unit_names[r->kind]);
    if (choose_layers(&u, r->kind, chosen, layers) == 0)
        HT_FAIL(c->ctx, HT_EINVAL, "prune.layers: no tensor that matches makes %s, as '%s' does",
                ht_unit_names[r->kind], where);
    HT_TRY(choose_units(&u, r, layers, cleared));
    clear_units(&u, layers, cleared, belong);
    return HT_OK;
}

/* ---- shrink ---- */

/* Of a layer all of whose units are zero, one stays. */
static int64_t find_dead(const units *u, bool *dead)
{
    const ht_coupling *k = &u->coupling;
    int64_t count = 0, *alive = HT_NEW(u->c->arena, int64_t, k->units + 1);
    if (!alive) return -1;
    for (int32_t unit = 1; unit <= k->units; unit++) alive[k->layer[unit]] += u->squares[unit] > 0;
    for (int32_t unit = 1; unit <= k->units; unit++) {
        dead[unit] = u->squares[unit] == 0 && alive[k->layer[unit]]++ > 0;
        count += dead[unit];
    }
    return count;
}

static int64_t count_kept(const ht_coupled_tensor *t, int axis, const bool *dead)
{
    int64_t kept = 0;
    for (int64_t p = 0; p < t->dim[axis]; p++) kept += !dead[t->axes[axis].unit[p]];
    return kept;
}

/* Removes places along one axis; the tensor's own sizes change with it. */
static ht_status cut_axis(const units *u, size_t tensor, int axis, const bool *dead)
{
    ht_coupled_tensor *t = &u->coupling.tensors[tensor];
    ht_weight *w = u->weights[tensor];
    view v = view_of(t, axis);
    size_t inner = (size_t)v.inner * ht_element_bytes(w->array.element);
    ht_array array = w->array;
    array.shape[axis] = count_kept(t, axis, dead);
    if (array.shape[axis] == t->dim[axis]) return HT_OK;
    if (!ht_array_measure(&array)) HT_FAIL(u->c->ctx, HT_ESHAPE, "shrink: '%s' is too large", w->name);
    uint8_t *data = malloc(array.bytes + 1), *to = data;
    if (!data) HT_FAIL(u->c->ctx, HT_ENOMEM, "shrink: out of memory for '%s'", w->name);
    for (int64_t o = 0; o < v.outer; o++)
        for (int64_t a = 0; a < v.along; a++) {
            if (dead[t->axes[axis].unit[a]]) continue;
            memcpy(to, w->data + (size_t)(o * v.along + a) * inner, inner);
            to += inner;
        }
    free(w->data);
    array.data = w->data = data;
    w->array = array;
    t->dim[axis] = array.shape[axis];
    return HT_OK;
}

/* "h.0.mlp.c_fc" of the weight "h.0.mlp.c_fc.weight" that makes units, else NULL. */
static const char *layer_of(const units *u, size_t tensor, int axis, const bool *dead)
{
    static const char end[] = ".weight";
    const ht_coupled_tensor *t = &u->coupling.tensors[tensor];
    size_t length = strlen(t->name), tail = sizeof end - 1;
    if (t->rank < 2 || t->axes[axis].consumed || length <= tail || strcmp(t->name + length - tail, end) != 0)
        return NULL;
    if (count_kept(t, axis, dead) == t->dim[axis]) return NULL;
    return ht_arena_text(u->c->arena, t->name, length - tail);
}

/* Writes a line for each layer that is cut. */
static void put_cut_layers(const units *u, const bool *dead, ht_json_writer *widths, ht_json_writer *json)
{
    ht_json_begin_array(json, "layers");
    for (size_t i = 0; i < u->coupling.count; i++)
        for (int k = 0; k < u->coupling.tensors[i].rank; k++) {
            const char *name = layer_of(u, i, k, dead);
            if (!name) continue;
            int64_t kept = count_kept(&u->coupling.tensors[i], k, dead);
            ht_json_put_int(widths, name, kept);
            ht_json_line(json, 6);
            ht_json_begin_object(json, NULL);
            ht_json_put_text(json, "name", name);
            ht_json_put_int(json, "before", u->coupling.tensors[i].dim[k]);
            ht_json_put_int(json, "after", kept);
            ht_json_end_object(json);
        }
    ht_json_end_array(json);
}

static bool is_cut(const units *u, const bool *dead, const char *layer)
{
    for (size_t i = 0; i < u->coupling.count; i++)
        for (int k = 0; k < u->coupling.tensors[i].rank; k++) {
            const char *name = layer_of(u, i, k, dead);
            if (name && strcmp(name, layer) == 0) return true;
        }
    return false;
}

/* The widths that layers had already, and those of layers that are cut. */
static ht_status set_widths(const units *u, const bool *dead, ht_json_writer *json)
{
    ht_text text = {0};
    ht_json_writer widths = {.text = &text};
    ht_config *config;
    HT_TRY(ht_compression_config(u->c, NULL, 0, &config));
    const ht_json *old = ht_field_json(ht_config_block(config, "model"), "widths");
    ht_json_begin_object(&widths, NULL);
    for (const ht_json *width = old ? old->child : NULL; width; width = width->next) {
        int64_t value = 0;
        if (ht_json_as_int(width, &value) && !is_cut(u, dead, width->key)) ht_json_put_int(&widths, width->key, value);
    }
    put_cut_layers(u, dead, &widths, json);
    ht_json_end_object(&widths);
    ht_status status = ht_compression_set(u->c, "model.widths=%s", text.failed ? "null" : text.data);
    ht_text_free(&text);
    ht_config_free(config);
    return status;
}

ht_status ht_units_shrink(ht_compression *c, ht_json_writer *json, int64_t *removed)
{
    units u;
    if (ht_model_find(c->model, NULL)->make)
        HT_FAIL(c->ctx, HT_ENOTSUP, "shrink: the sizes of a model of type %s are in its own file", c->model);
    HT_TRY(find_units(c, &u));
    bool *dead = HT_NEW(c->arena, bool, u.coupling.units + 1);
    *removed = dead ? find_dead(&u, dead) : -1;
    if (*removed < 0) HT_FAIL(c->ctx, HT_ENOMEM, "shrink: out of memory");
    if (*removed == 0) return HT_OK;
    HT_TRY(set_widths(&u, dead, json));
    for (size_t i = 0; i < u.coupling.count; i++)
        for (int k = 0; u.weights[i] && k < u.coupling.tensors[i].rank; k++) HT_TRY(cut_axis(&u, i, k, dead));
    return HT_OK;
}
