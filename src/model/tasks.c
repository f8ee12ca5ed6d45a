/* Tasks: the inputs and outputs of a model's segments. */
#include <stdio.h>

#include "model/layers.h"

int64_t ht_task_width(const ht_model_request *r)
{
    return r->task == HT_TASK_CLASS || r->task == HT_TASK_REGRESSION ? r->classes : r->vocabulary;
}

/* ---- inputs ---- */

/* A name has one shape, so inputs with a length carry the bucket's suffix. */
static ht_val ints(ht_build *b, const char *name, int rank, int64_t rows, int64_t columns)
{
    char full[64];
    snprintf(full, sizeof full, rank > 1 && b->bucket ? "%s:%d" : "%s", name, b->bucket);
    return ht_input(b->g, full, HT_I32, rank, (int64_t[]){rows, columns});
}

static void sequence_inputs(ht_build *b)
{
    const ht_model_request *r = b->r;
    b->tokens = ints(b, "tokens", 2, r->batch, r->length);
    if (r->task != HT_TASK_LM) b->lengths = ints(b, "length", 1, r->batch, 0);
    if (!r->documents) return;
    b->positions = ints(b, "positions", 2, r->batch, r->length);
    b->documents = ints(b, "documents", 2, r->batch, r->length);
}

static void pair_inputs(ht_build *b)
{
    b->source = ints(b, "source", 2, b->r->batch, b->r->source_length);
    b->lengths = ints(b, "source_length", 1, b->r->batch, 0);
    b->target_in = ints(b, "target_in", 2, b->r->batch, b->r->length);
}

static void feature_inputs(ht_build *b)
{
    int64_t dims[HT_MAX_RANK] = {b->r->batch};
    for (int i = 0; i < b->r->feature_rank; i++) dims[i + 1] = b->r->feature[i];
    b->x = ht_input(b->g, "x", HT_F32, b->r->feature_rank + 1, dims);
}

void ht_task_inputs(ht_build *b)
{
    const ht_model_request *r = b->r;
    b->x = b->tokens = b->positions = b->documents = b->lengths = b->source = b->target_in = HT_NONE;
    b->time_major = false;
    if (r->task == HT_TASK_PAIRS)
        pair_inputs(b);
    else if (r->task == HT_TASK_LM || r->task == HT_TASK_MASKED_LM || r->feature_rank == 0)
        sequence_inputs(b);
    else
        feature_inputs(b);
}

/* ---- outputs ---- */

static ht_val total(ht_graph *g, ht_val flags)
{
    return ht_sum(g, ht_cast(g, flags, HT_I64), 0, NULL, false);
}

ht_val ht_task_targets(ht_build *b)
{
    const ht_model_request *r = b->r;
    if (r->task == HT_TASK_CLASS) return ints(b, "label", 1, r->batch, 0);
    if (r->task == HT_TASK_REGRESSION) return ht_input(b->g, "y", HT_F32, 2, (int64_t[]){r->batch, r->classes});
    return ints(b, "targets", 2, r->batch, r->length);
}

/* Targets as a model's rows stand: [B] or [B·T], or [T·B] where time comes first. */
static ht_val target_rows(ht_build *b)
{
    ht_val targets = ht_task_targets(b);
    if (b->r->task == HT_TASK_CLASS) return targets;
    return ht_layer_rows(b, b->time_major ? ht_layer_time_major(b, targets) : targets);
}

static void entropy_outputs(ht_build *b, ht_val logits)
{
    ht_graph *g = b->g;
    ht_val targets = target_rows(b);
    ht_cross_entropy_opts opts = HT_CROSS_ENTROPY_OPTS;
    opts.ignore_index = -1;
    opts.reduction = HT_REDUCE_SUM;
    ht_val plain = ht_cross_entropy(g, logits, targets, &opts), loss = plain;
    if (b->training && b->r->label_smoothing > 0) {
        opts.label_smoothing = b->r->label_smoothing;
        loss = ht_cross_entropy(g, logits, targets, &opts);
    }
    ht_output(g, "loss", loss);
    ht_output(g, "loss_sum", plain);
    if (!targets.id) return;
    ht_output(g, "count", total(g, ht_ne(g, targets, ht_fill_like(g, targets, -1))));
    if (b->training && b->r->task != HT_TASK_CLASS) return; /* costs as much as another pass over all logits */
    ht_val wanted = ht_cast(g, targets, HT_I64);
    ht_output(g, "correct", total(g, ht_eq(g, ht_argmax(g, logits, -1, false), wanted)));
}

static void regression_outputs(ht_build *b, ht_val prediction)
{
    ht_graph *g = b->g;
    ht_val y = ht_task_targets(b);
    if (!y.id || !prediction.id) return;
    ht_val known = ht_eq(g, y, y), zero = ht_fill_like(g, y, 0);
    ht_val error = ht_select(g, known, ht_sub(g, prediction, ht_select(g, known, y, zero)), zero);
    ht_val loss = ht_sum(g, ht_mul(g, error, error), 0, NULL, false);
    ht_output(g, "loss", loss);
    ht_output(g, "loss_sum", loss);
    ht_output(g, "count", total(g, known));
}

/* Rows back into the shape of the batch. */
static void logits_output(ht_build *b, ht_val logits)
{
    const ht_model_request *r = b->r;
    if (!logits.id) return;
    if (r->task != HT_TASK_CLASS && r->task != HT_TASK_REGRESSION) {
        int64_t outer = b->time_major ? r->length : r->batch, inner = b->time_major ? r->batch : r->length;
        logits = ht_reshape(b->g, logits, 3, (int64_t[]){outer, inner, ht_task_width(r)});
        if (b->time_major) logits = ht_transpose(b->g, logits, 0, 1);
    }
    ht_output(b->g, "logits", logits);
}

static bool fits(ht_build *b, ht_val logits)
{
    const ht_model_request *r = b->r;
    int64_t rows = r->task == HT_TASK_CLASS || r->task == HT_TASK_REGRESSION ? r->batch : r->batch * r->length;
    if (!logits.id) return false;
    ht_type_text have;
    const ht_type *type = ht_type_of(b->g, logits);
    if (type->rank == 2 && type->dim[0] == rows && type->dim[1] == ht_task_width(r)) return true;
    ht_model_fail(b, "gives %s where the data wants [%lld, %lld]", ht_type_str(type, &have), (long long)rows,
                  (long long)ht_task_width(r));
    return false;
}

void ht_task_outputs(ht_build *b, ht_val logits)
{
    if (!fits(b, logits)) return;
    if (b->bare)
        logits_output(b, logits);
    else if (b->r->task == HT_TASK_REGRESSION)
        regression_outputs(b, logits);
    else
        entropy_outputs(b, logits);
}
