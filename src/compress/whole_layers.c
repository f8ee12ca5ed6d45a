/* Pruning of whole layers, for the steps prune and shrink: a layer whose results are zero passes on the stream that it reads, so its
 * removal changes no answer. Which ones go is chosen by what the model loses without each. */
#include "compress/whole_layers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/stack.h"
#include "compress/units.h"

static ht_status find_stack(ht_compression *c, const char *step, ht_stack_choice *out)
{
    *out = (ht_stack_choice){.stack = ht_stack_of(c)};
    if (!out->stack)
        HT_FAIL(c->ctx, HT_ENOTSUP, "%s: model.type %s has no list of equal layers; gpt2 and llama have", step,
                c->model);
    if (!out->stack->writers[0])
        HT_FAIL(c->ctx, HT_ENOTSUP,
                "%s: a layer of %s ends with a norm of the stream, so none passes it on; distill with student.layers "
                "makes a model of fewer",
                step, c->model);
    HT_TRY(ht_stack_count(c, out->stack, &out->of));
    if (out->of > HT_STACK_MOST_LAYERS)
        HT_FAIL(c->ctx, HT_ENOTSUP, "%s: more than %d layers", step, HT_STACK_MOST_LAYERS);
    return HT_OK;
}

/* Is it a weight or a bias by which the layer adds to the stream? */
static bool writes(const ht_stack *stack, const ht_weight *w, int64_t layer)
{
    const char *rest;
    if (ht_stack_layer(stack, w->name, &rest) != layer) return false;
    for (int i = 0; i < HT_STACK_WRITERS; i++) {
        size_t length = strlen(stack->writers[i]);
        if (strncmp(rest + 1, stack->writers[i], length) == 0 && rest[1 + length] == '.') return true;
    }
    return false;
}

static bool is_zero(const ht_compression *c, const ht_stack *stack, int64_t layer)
{
    for (size_t i = 0; i < c->weights.count; i++) {
        const ht_weight *w = &c->weights.items[i];
        if (writes(stack, w, layer) && ht_weight_zeros(w) != w->array.count) return false;
    }
    return true;
}

static void clear(ht_compression *c, const ht_stack *stack, int64_t layer, bool *belong)
{
    for (size_t i = 0; i < c->weights.count; i++) {
        ht_weight *w = &c->weights.items[i];
        if (!writes(stack, w, layer)) continue;
        memset(w->data, 0, w->array.bytes);
        belong[i] = true;
    }
}

/* ---- which ones ---- */

/* The loss without one layer, with the weights as they are otherwise. */
static ht_status loss_without(ht_compression *c, const ht_stack *stack, int64_t layer, double *loss)
{
    uint8_t **saved = calloc(c->weights.count + 1, sizeof *saved);
    ht_status status = saved ? HT_OK : ht_fail(c->ctx, HT_ENOMEM, "prune: out of memory");
    for (size_t i = 0; i < c->weights.count && status == HT_OK; i++) {
        ht_weight *w = &c->weights.items[i];
        if (!writes(stack, w, layer)) continue;
        saved[i] = malloc(w->array.bytes + 1);
        if (!saved[i]) status = ht_fail(c->ctx, HT_ENOMEM, "prune: out of memory");
        if (!saved[i]) break;
        memcpy(saved[i], w->data, w->array.bytes);
        memset(w->data, 0, w->array.bytes);
    }
    if (status == HT_OK) status = ht_compression_evaluate(c, NULL, loss);
    for (size_t i = 0; saved && i < c->weights.count; i++) {
        if (saved[i]) memcpy(c->weights.items[i].data, saved[i], c->weights.items[i].array.bytes);
        free(saved[i]);
    }
    free(saved);
    return status;
}

/* Of layers that a chosen tensor is one of; those that are gone already come first. */
static ht_status score_layers(ht_compression *c, const ht_stack_choice *all, const bool *chosen, ht_score *scores,
                              size_t *count)
{
    *count = 0;
    for (int64_t layer = 0; layer < all->of; layer++) {
        bool wanted = false;
        double loss = -INFINITY;
        for (size_t i = 0; i < c->weights.count; i++) {
            const char *rest;
            wanted |= chosen[i] && ht_stack_layer(all->stack, c->weights.items[i].name, &rest) == layer;
        }
        if (!wanted) continue;
        if (!is_zero(c, all->stack, layer)) HT_TRY(loss_without(c, all->stack, layer, &loss));
        scores[(*count)++] = (ht_score){loss, 0, layer};
    }
    ht_scores_sort(scores, *count);
    return HT_OK;
}

ht_status ht_layers_prune(ht_compression *c, double ratio, const bool *chosen, bool *belong)
{
    ht_stack_choice all;
    size_t count;
    HT_TRY(find_stack(c, "prune", &all));
    ht_score *scores = HT_NEW(c->arena, ht_score, (size_t)all.of + 1);
    if (!scores) HT_FAIL(c->ctx, HT_ENOMEM, "prune: out of memory");
    HT_TRY(score_layers(c, &all, chosen, scores, &count));
    if (count == 0)
        HT_FAIL(c->ctx, HT_EINVAL, "prune.layers: no tensor that matches is one of \"%s0\" and on", all.stack->prefix);
    int64_t wanted = llround(ratio * (double)count);
    if (wanted == all.of) wanted--; /* one stays */
    if (wanted == 0) HT_FAIL(c->ctx, HT_EINVAL, "prune: %g of %zu layers is none: a larger ratio", ratio, count);
    for (int64_t i = 0; i < wanted; i++) {
        clear(c, all.stack, scores[i].index, belong);
        if (isfinite(scores[i].score))
            ht_compression_note(c, "prune: layer %lld goes; without it alone the loss is %.6g",
                                (long long)scores[i].index, scores[i].score);
    }
    return HT_OK;
}

/* ---- shrink ---- */

/* Zeros that are held, and layers with codes, are named by numbers that would change. */
static ht_status need_no_names(const ht_compression *c)
{
    if (c->quantize_count)
        HT_FAIL(c->ctx, HT_ENOTSUP, "shrink: layers have codes, by their numbers: quantize behind it");
    for (size_t i = 0; i < c->pruned_count; i++)
        if (!c->pruned[i].units)
            HT_FAIL(c->ctx, HT_ENOTSUP,
                    "shrink: single weights are held zero, by the numbers of layers: prune them behind it");
    return HT_OK;
}

ht_status ht_layers_shrink(ht_compression *c, ht_json_writer *json, int64_t *removed)
{
    ht_stack_choice kept = {.stack = ht_stack_of(c)};
    *removed = 0;
    if (!kept.stack || !kept.stack->writers[0]) return HT_OK;
    HT_TRY(find_stack(c, "shrink", &kept));
    for (int64_t layer = 0; layer < kept.of; layer++)
        if (!is_zero(c, kept.stack, layer)) kept.layers[kept.count++] = layer;
    if (kept.count == 0) kept.layers[kept.count++] = 0;
    *removed = kept.of - kept.count;
    if (*removed == 0) return HT_OK;
    HT_TRY(need_no_names(c));
    ht_json_begin_array(json, "kept");
    for (int64_t i = 0; i < kept.count; i++) ht_json_put_int(json, NULL, kept.layers[i]);
    ht_json_end_array(json);
    return ht_stack_cut(c, &kept);
}
