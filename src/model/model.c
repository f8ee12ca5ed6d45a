/* Models: the table of architectures, checks of a request, building of all segments. */
#include "model/layers.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define HT_MODEL(id) extern const ht_model ht_model_##id;
#include "model/models.def"
#undef HT_MODEL

const ht_model *const ht_models[] = {
#define HT_MODEL(id) &ht_model_##id,
#include "model/models.def"
#undef HT_MODEL
    NULL,
};

const ht_model *ht_model_find(const char *name, const char **names)
{
    if (names) {
#define HT_MODEL(id) ", " #id
        static const char list[] =
#include "model/models.def"
            ;
#undef HT_MODEL
        *names = list + 2;
    }
    for (size_t i = 0; ht_models[i]; i++)
        if (strcmp(ht_models[i]->name, name) == 0) return ht_models[i];
    return NULL;
}

const ht_key ht_model_common_keys[] = {
    {"widths", HT_KEY_JSON, "null", 0, 0, NULL,
     "an object, layer to width: linear layers and convolutions that are not as wide as the model's own; what "
     "`compress` writes when it shrinks a model"},
    {0},
};

enum { MAX_BUCKETS = 64 };

/* ---- is the request one that the model can serve? ---- */

static ht_status need(ht_context *ctx, const ht_model_request *r, const char *what, int64_t size)
{
    if (size > 0) return HT_OK;
    HT_FAIL(ctx, HT_EINVAL, "model %s: task %s: the data says nothing of %s (%" PRId64 ")", r->model->name,
            ht_task_names[r->task], what, size);
}

static ht_status check_sequence(ht_context *ctx, const ht_model_request *r)
{
    HT_TRY(need(ctx, r, "the length of a sequence", r->length));
    HT_TRY(need(ctx, r, "the size of the vocabulary", r->vocabulary));
    if (r->vocabulary > INT32_MAX || r->length > INT32_MAX || r->batch > INT32_MAX / r->length)
        HT_FAIL(ctx, HT_ESHAPE, "model %s: a batch of %" PRId64 " × %" PRId64 " tokens is too large", r->model->name,
                r->batch, r->length);
    if (r->documents && !r->model->packs)
        HT_FAIL(ctx, HT_ENOTSUP, "model %s cannot keep packed documents apart: it has no attention to hide them",
                r->model->name);
    return HT_OK;
}

static ht_status check_pairs(ht_context *ctx, const ht_model_request *r)
{
    HT_TRY(need(ctx, r, "the length of the source", r->source_length));
    HT_TRY(need(ctx, r, "the source's vocabulary", r->source_vocabulary));
    if (r->source_vocabulary > INT32_MAX || r->source_length > INT32_MAX / r->batch)
        HT_FAIL(ctx, HT_ESHAPE, "model %s: a batch of %" PRId64 " × %" PRId64 " source tokens is too large",
                r->model->name, r->batch, r->source_length);
    if (r->beam < 0 || r->beam > r->vocabulary || r->beam > 1024)
        HT_FAIL(ctx, HT_EINVAL, "model %s: a beam of %" PRId64 " is not 1 to 1024 and within the vocabulary",
                r->model->name, r->beam);
    return HT_OK;
}

static ht_status check_buckets(ht_context *ctx, const ht_model_request *r)
{
    if (r->bucket_count < 0 || r->bucket_count > MAX_BUCKETS)
        HT_FAIL(ctx, HT_EINVAL, "model %s: %d buckets of lengths; there may be %d", r->model->name, r->bucket_count,
                MAX_BUCKETS);
    if (r->bucket_count > 0 && r->model->make)
        HT_FAIL(ctx, HT_ENOTSUP, "model %s has one shape: its data cannot come in buckets of lengths", r->model->name);
    for (int i = 0; i < r->bucket_count; i++) {
        ht_model_bucket k = r->buckets[i];
        bool pairs = r->task == HT_TASK_PAIRS;
        if (k.length < 1 || k.length > r->length ||
            (pairs && (k.source_length < 1 || k.source_length > r->source_length)))
            HT_FAIL(ctx, HT_ESHAPE,
                    "model %s: a bucket of lengths %" PRId64 " and %" PRId64 " is not within %" PRId64 " and %" PRId64,
                    r->model->name, k.length, k.source_length, r->length, r->source_length);
    }
    return HT_OK;
}

static ht_status check_widths(ht_context *ctx, const ht_model_request *r)
{
    if (!r->widths) return HT_OK;
    if (r->widths->kind != HT_JSON_OBJECT)
        HT_FAIL(ctx, HT_EINVAL, "model.widths: expected an object, found %s", ht_json_kind_name(r->widths->kind));
    if (r->model->make)
        HT_FAIL(ctx, HT_EINVAL, "model.widths: the sizes of a model of type %s are in its own file", r->model->name);
    for (const ht_json *width = r->widths->child; width; width = width->next) {
        int64_t wanted;
        if (!ht_json_as_int(width, &wanted) || wanted < 1 || wanted > 1 << 24)
            HT_FAIL(ctx, HT_EINVAL, "model.widths: the width of '%s' is not a number from 1 to 16777216", width->key);
    }
    return HT_OK;
}

/* Every layer that has a width of its own is there, and has it. */
static ht_status check_widths_used(const ht_graph *g, const ht_model_request *r)
{
    for (const ht_json *width = r->widths ? r->widths->child : NULL; width; width = width->next) {
        char name[512];
        snprintf(name, sizeof name, "%s.weight", width->key);
        ht_val weight = ht_find(g, name);
        const ht_type *type = weight.id ? ht_type_of(g, weight) : NULL;
        int64_t wanted = 0;
        ht_json_as_int(width, &wanted);
        if (!type || type->rank < 2 || (type->dim[0] != wanted && type->dim[1] != wanted))
            HT_FAIL(g->ctx, HT_EINVAL, "model.widths: the model has no linear layer or convolution '%s'", width->key);
    }
    return HT_OK;
}

static ht_status check(ht_context *ctx, const ht_model_request *r)
{
    if (!(r->model->tasks >> r->task & 1)) {
        ht_text served = {0};
        for (int t = 0; t < HT_TASK_COUNT; t++)
            if (r->model->tasks >> t & 1) ht_text_add(&served, "%s%s", served.length ? ", " : "", ht_task_names[t]);
        ht_fail(ctx, HT_EINVAL, "model %s does not serve task %s; it serves %s", r->model->name, ht_task_names[r->task],
                served.data ? served.data : "none");
        ht_text_free(&served);
        return HT_EINVAL;
    }
    HT_TRY(need(ctx, r, "the batch", r->batch));
    bool items = r->task == HT_TASK_CLASS || r->task == HT_TASK_REGRESSION;
    if (items) HT_TRY(need(ctx, r, "classes or numbers to predict", r->classes));
    if (r->feature_rank < 0 || r->feature_rank >= HT_MAX_RANK)
        HT_FAIL(ctx, HT_ESHAPE, "model %s: items of rank %d", r->model->name, r->feature_rank);
    if (!items || r->feature_rank == 0) HT_TRY(check_sequence(ctx, r));
    if (r->task == HT_TASK_PAIRS) HT_TRY(check_pairs(ctx, r));
    HT_TRY(check_buckets(ctx, r));
    HT_TRY(check_widths(ctx, r));
    if (!(r->label_smoothing >= 0 && r->label_smoothing < 1))
        HT_FAIL(ctx, HT_EINVAL, "label smoothing is from 0 to below 1, not %g", r->label_smoothing);
    return HT_OK;
}

/* ---- building ---- */

static void build_segment(ht_graph *g, const ht_model_request *r, const char *segment, bool training, bool bare)
{
    for (int k = 0; k <= (bare ? 0 : r->bucket_count); k++) {
        ht_model_request sizes = *r;
        char name[32];
        if (k > 0) {
            sizes.length = r->buckets[k - 1].length;
            sizes.source_length = r->buckets[k - 1].source_length;
        }
        ht_build b = {.g = g, .r = &sizes, .f = r->fields, .segment = segment, .bucket = k, .longest = r->length};
        b.training = training;
        b.bare = bare;
        snprintf(name, sizeof name, k ? "%s:%d" : "%s", segment, k);
        ht_segment_begin(g, name);
        ht_task_inputs(&b);
        ht_task_outputs(&b, r->model->logits(&b));
    }
}

static ht_status build(ht_graph *g, const ht_model_request *r)
{
    if (r->training) build_segment(g, r, "forward", true, false);
    build_segment(g, r, "eval", false, false);
    if (r->logits) build_segment(g, r, "logits", false, true);
    if (r->beam > 0 && r->model->decoder) {
        ht_build b = {.g = g, .r = r, .f = r->fields, .segment = "decode_step", .longest = r->length};
        r->model->decoder(&b);
    }
    return ht_graph_status(g);
}

ht_status ht_model_create(ht_graph **out, ht_context *ctx, const ht_model_request *r)
{
    *out = NULL;
    HT_TRY(check(ctx, r));
    if (r->model->make) return r->model->make(out, ctx, r);
    ht_graph *g;
    HT_TRY(ht_graph_create(&g, ctx));
    ht_status status = build(g, r);
    if (status == HT_OK) status = check_widths_used(g, r);
    if (status == HT_OK) status = ht_graph_verify(g);
    if (status != HT_OK) {
        ht_graph_free(g);
        return status;
    }
    *out = g;
    return HT_OK;
}

int64_t ht_model_parameters(const ht_graph *g)
{
    int64_t elems = 0;
    for (size_t i = 0; i < g->state_count; i++)
        if (g->states[i].trained)
            elems += ht_type_elems(g->states[i].cut.ranks ? &g->states[i].whole : ht_type_of(g, g->states[i].value));
    return elems;
}
