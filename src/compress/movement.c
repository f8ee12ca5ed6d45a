#include "compress/movement.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

ht_status ht_movement_open(ht_movement *out, ht_context *ctx, const ht_weights *weights, const bool *chosen)
{
    size_t largest = 1;
    *out = (ht_movement){.weights = weights};
    out->tensors = calloc(weights->count + 1, sizeof *out->tensors);
    for (size_t i = 0; i < weights->count && out->tensors; i++) {
        size_t elements = (size_t)weights->items[i].array.count;
        if (!chosen[i]) continue;
        if (elements > largest) largest = elements;
        ht_movement_tensor *to = &out->tensors[out->count++];
        *to = (ht_movement_tensor){strdup(weights->items[i].name), calloc(elements + 1, sizeof *to->scores)};
        if (!to->name || !to->scores)
            HT_FAIL(ctx, HT_ENOMEM, "prune: out of memory for scores of '%s'", weights->items[i].name);
    }
    out->grad = calloc(largest, sizeof *out->grad);
    if (!out->tensors || !out->grad) HT_FAIL(ctx, HT_ENOMEM, "prune: out of memory for scores");
    return HT_OK;
}

void ht_movement_close(ht_movement *m)
{
    for (size_t i = 0; i < m->count; i++) {
        free(m->tensors[i].name);
        free(m->tensors[i].scores);
    }
    free(m->tensors);
    free(m->grad);
    *m = (ht_movement){0};
}

const double *ht_movement_scores(const ht_movement *m, const char *name)
{
    for (size_t i = 0; m && i < m->count; i++)
        if (strcmp(m->tensors[i].name, name) == 0) return m->tensors[i].scores;
    return NULL;
}

/* The gradients of the step that was made, and the weights before it, which the tensors still are: both are read, and then
 * the weights behind the step. */
static ht_status add_step(ht_movement *m, ht_context *ctx, ht_session *session, const ht_step_report *report)
{
    for (size_t i = 0; i < m->count; i++) {
        const ht_movement_tensor *to = &m->tensors[i];
        ht_weight *w = ht_weights_find(m->weights, to->name);
        char name[512];
        if (!w) HT_FAIL(ctx, HT_EINVAL, "prune: training left no tensor '%s'", to->name);
        size_t elements = (size_t)w->array.count;
        snprintf(name, sizeof name, "%s.grad", to->name);
        HT_TRY(ht_session_read_f64(session, name, m->grad, elements));
        for (size_t k = 0; k < elements && !report->skipped; k++)
            to->scores[k] -= ht_weight_get(w, (int64_t)k) * m->grad[k] / report->loss_scale;
        HT_TRY(ht_session_read(session, w->name, w->data, w->array.bytes));
    }
    return HT_OK;
}

ht_status ht_movement_train(ht_movement *m, ht_context *ctx, ht_run *run, const atomic_int *stop)
{
    ht_run_info info = ht_run_info_of(run);
    for (int64_t step = info.first_step; step < info.steps && !(stop && *stop); step++) {
        ht_step_report report;
        bool dropped;
        HT_TRY(ht_run_step(run, &report, &dropped));
        if (dropped) break;
        HT_TRY(add_step(m, ctx, ht_run_session(run), &report));
    }
    return ht_run_snapshot(run);
}
