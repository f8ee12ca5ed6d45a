#include "pass/scaler.h"

#include <string.h>

#include "pass/train_options.h"

void ht_scaler_add_state(ht_scaler *s, ht_graph *g)
{
    const ht_scaling_options *o = s->options;
    s->scale = ht_state_add(g, "loss_scale", HT_F32, 0, NULL, HT_CONSTANT(ht_first_loss_scale(s->options)));
    s->left = ht_state_add(g, "loss_scale.hysteresis", HT_I64, 0, NULL, HT_CONSTANT((double)o->hysteresis));
    s->iteration = ht_state_add(g, "loss_scale.iteration", HT_I64, 0, NULL, HT_ZERO);
    s->last = ht_state_add(g, "loss_scale.last", HT_I64, 0, NULL, HT_CONSTANT(-1));
    s->skips = ht_state_add(g, "skips_in_a_row", HT_I64, 0, NULL, HT_ZERO);
    s->fatal = ht_state_add(g, "fatal", HT_BOOL, 0, NULL, HT_ZERO);
}

static bool reads(const ht_graph *g, const ht_node *n, ht_val v)
{
    for (size_t i = 0; i < n->n_in; i++)
        if (ht_node_in(g, n, i).id == v.id) return true;
    return false;
}

/* In the type of loss_grad, f32 or f64, whatever the loss has. */
static ht_status scale_loss_grad(const ht_scaler *s, ht_graph *g, uint32_t segment, ht_val loss_grad)
{
    ht_rewrite rw;
    bool scaled = false;
    if (!ht_rewrite_begin(&rw, g, segment)) return g->status;
    for (size_t i = 0; i < rw.count; i++) {
        if (!scaled && reads(g, &g->nodes[rw.old[i]], loss_grad)) {
            g->role = HT_ROLE_BWD_ACT;
            ht_rewrite_replace(&rw, loss_grad,
                               ht_mul(g, loss_grad, ht_cast(g, s->scale, ht_type_of(g, loss_grad)->dtype)));
            g->role = HT_ROLE_FWD;
            scaled = true;
        }
        ht_rewrite_keep(&rw, rw.old[i]);
    }
    return ht_rewrite_end(&rw);
}

ht_status ht_scaler_scale_loss_grads(const ht_scaler *s, ht_graph *g)
{
    HT_TRY(g->status);
    if (s->options->kind == HT_SCALING_NONE) return HT_OK;
    for (uint32_t i = 0; i < g->segment_count; i++) {
        if (strncmp(g->segments[i].name, "micro", 5) != 0) continue;
        for (size_t k = 0; k < g->segments[i].input_count; k++) {
            ht_val input = g->segments[i].inputs[k];
            if (strcmp(ht_value_of(g, input)->name, "loss_grad") == 0) HT_TRY(scale_loss_grad(s, g, i, input));
        }
    }
    return HT_OK;
}

ht_val ht_scaler_inverse(const ht_scaler *s, ht_graph *g)
{
    return s->options->kind == HT_SCALING_NONE ? HT_NONE : ht_reciprocal(g, ht_cast(g, s->scale, HT_F64));
}

ht_val ht_scaler_allows(const ht_scaler *s, ht_graph *g, ht_val finite)
{
    return ht_and(g, finite, ht_not(g, s->fatal));
}

void ht_scaler_step(const ht_scaler *s, ht_graph *g, ht_val finite)
{
    const ht_scaling_options *o = s->options;
    const ht_val old[] = {s->scale, s->left, s->iteration, s->last, s->skips, s->fatal};
    ht_val next[sizeof old / sizeof old[0]] = {HT_NONE};
    ht_emit_n(g, "scale_step", NULL, HT_VALS(finite, s->scale, s->left, s->iteration, s->last, s->skips, s->fatal),
              HT_ATTRS(HT_INT("dynamic", o->kind == HT_SCALING_DYNAMIC), HT_INT("window", o->window),
                       HT_INT("hysteresis", o->hysteresis), HT_INT("consecutive", o->consecutive),
                       HT_FLOAT("min", o->min), HT_INT("most_skips", o->most_skips)),
              next);
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++) ht_store(g, old[i], next[i]);
}
