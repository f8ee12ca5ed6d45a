#include "compress/movement.h"

#include <stdio.h>
#include <stdlib.h>

ht_status ht_movement_open(ht_movement *out, ht_context *ctx, const ht_weights *weights, const bool *chosen)
{
    size_t largest = 1;
    *out = (ht_movement){.weights = weights, .chosen = chosen, .count = weights->count};
    out->scores = calloc(weights->count + 1, sizeof *out->scores);
    for (size_t i = 0; i < weights->count && out->scores; i++) {
        size_t elements = (size_t)weights->items[i].array.count;
        if (!chosen[i]) continue;
        if (elements > largest) largest = elements;
        out->scores[i] = calloc(elements + 1, sizeof **out->scores);
        if (!out->scores[i]) HT_FAIL(ctx, HT_ENOMEM, "prune: out of memory for scores of '%s'", weights->items[i].name);
    }
    out->grad = calloc(largest, sizeof *out->grad);
    if (!out->scores || !out->grad) HT_FAIL(ctx, HT_ENOMEM, "prune: out of memory for scores");
    return HT_OK;
}

void ht_movement_close(ht_movement *m)
{
    for (size_t i = 0; i < m->count && m->scores; i++) free(m->scores[i]);
    free(m->scores);
    free(m->grad);
    *m = (ht_movement){0};
}

/* The gradients of the step that was made, and the weights before it, which the tensors still are: both are read, and then
 * the weights behind the step. */
static ht_status add_step(ht_movement *m, ht_session *session, const ht_step_report *report)
{
    for (size_t i = 0; i < m->count; i++) {
        ht_weight *w = &m->weights->items[i];
        size_t elements = (size_t)w->array.count;
        char name[512];
        if (!m->chosen[i]) continue;
        snprintf(name, sizeof name, "%s.grad", w->name);
        HT_TRY(ht_session_read_f64(session, name, m->grad, elements));
        for (size_t k = 0; k < elements && !report->skipped; k++)
            m->scores[i][k] -= ht_weight_get(w, (int64_t)k) * m->grad[k] / report->loss_scale;
        HT_TRY(ht_session_read(session, w->name, w->data, w->array.bytes));
    }
    return HT_OK;
}

ht_status ht_movement_train(ht_movement *m, ht_run *run, const atomic_int *stop)
{
    ht_run_info info = ht_run_info_of(run);
    for (int64_t step = info.first_step; step < info.steps && !(stop && *stop); step++) {
        ht_step_report report;
        bool dropped;
        HT_TRY(ht_run_step(run, &report, &dropped));
        if (dropped) break;
        HT_TRY(add_step(m, ht_run_session(run), &report));
    }
    return ht_run_snapshot(run);
}
