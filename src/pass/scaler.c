#include "pass/scaler.h"

#include <float.h>
#include <math.h>
#include <string.h>

/* ---- settings ---- */

typedef struct number_key {
    const char *name;
    size_t at; /* a double in ht_scaler */
    double standard, low, high;
    bool whole;
} number_key;

/* Counts end where f64 no longer has every whole number. */
static const number_key number_keys[] = {
    {"scale_power", offsetof(ht_scaler, power), 16, 0, 126, true},
    {"scale_window", offsetof(ht_scaler, window), 1000, 1, 0x1p53, true},
    {"scale_hysteresis", offsetof(ht_scaler, hysteresis), 2, 1, 0x1p53, true},
    {"scale_consecutive", offsetof(ht_scaler, consecutive), 0, 0, 1, true},
    {"scale_min", offsetof(ht_scaler, min), 1, 0, FLT_MAX, false},
    {"most_skips", offsetof(ht_scaler, most_skips), 20, 0, 0x1p53, true},
};
enum { NUMBER_KEYS = sizeof number_keys / sizeof number_keys[0] };

bool ht_scaler_reads(const char *key)
{
    for (size_t i = 0; i < NUMBER_KEYS; i++)
        if (strcmp(number_keys[i].name, key) == 0) return true;
    return strcmp(key, "loss_scale") == 0;
}

static ht_status read_kind(ht_scaler *s, ht_context *ctx, const ht_settings *settings)
{
    const char *text = ht_setting_text(settings, "loss_scale", "none");
    s->first = 1;
    s->kind = HT_SCALING_NONE;
    if (strcmp(text, "none") == 0) return HT_OK;
    s->kind = HT_SCALING_DYNAMIC;
    s->first = ldexp(1, (int)s->power);
    if (strcmp(text, "dynamic") == 0) return HT_OK;
    s->kind = HT_SCALING_STATIC;
    if (!ht_number_read(text, &s->first) || !(s->first >= FLT_MIN && s->first <= FLT_MAX))
        HT_FAIL(ctx, HT_EINVAL, "setting loss_scale: '%s' is neither none, dynamic nor a number above 0", text);
    s->first = (double)(float)s->first; /* so that it is the same number in a model in f64 */
    return HT_OK;
}

ht_status ht_scaler_read(ht_scaler *s, ht_context *ctx, const ht_settings *settings)
{
    for (size_t i = 0; i < NUMBER_KEYS; i++) {
        const number_key *key = &number_keys[i];
        double number;
        HT_TRY(ht_setting_number(ctx, settings, key->name, key->standard, &number));
        if (!(number >= key->low && number <= key->high))
            HT_FAIL(ctx, HT_EINVAL, "setting %s: %g is outside [%g, %g]", key->name, number, key->low, key->high);
        if (key->whole && number != floor(number))
            HT_FAIL(ctx, HT_EINVAL, "setting %s: %g is no whole number", key->name, number);
        *(double *)((char *)s + key->at) = number;
    }
    HT_TRY(read_kind(s, ctx, settings));
    if (s->kind == HT_SCALING_DYNAMIC && s->min > s->first)
        HT_FAIL(ctx, HT_EINVAL, "setting scale_min: %g is above %g, the scale that scale_power=%g begins with", s->min,
                s->first, s->power);
    return HT_OK;
}

/* ---- the graph ---- */

void ht_scaler_add_state(ht_scaler *s, ht_graph *g)
{
    s->scale = ht_state_add(g, "loss_scale", HT_F32, 0, NULL, HT_CONSTANT(s->first));
    s->left = ht_state_add(g, "loss_scale.hysteresis", HT_I64, 0, NULL, HT_CONSTANT(s->hysteresis));
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
    if (s->kind == HT_SCALING_NONE) return HT_OK;
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
    return s->kind == HT_SCALING_NONE ? HT_NONE : ht_reciprocal(g, ht_cast(g, s->scale, HT_F64));
}

ht_val ht_scaler_allows(const ht_scaler *s, ht_graph *g, ht_val finite)
{
    return ht_and(g, finite, ht_not(g, s->fatal));
}

void ht_scaler_step(const ht_scaler *s, ht_graph *g, ht_val finite)
{
    const ht_val old[] = {s->scale, s->left, s->iteration, s->last, s->skips, s->fatal};
    ht_val next[sizeof old / sizeof old[0]] = {HT_NONE};
    ht_emit_n(g, "scale_step", NULL, HT_VALS(finite, s->scale, s->left, s->iteration, s->last, s->skips, s->fatal),
              HT_ATTRS(HT_INT("dynamic", s->kind == HT_SCALING_DYNAMIC), HT_INT("window", (int64_t)s->window),
                       HT_INT("hysteresis", (int64_t)s->hysteresis), HT_INT("consecutive", (int64_t)s->consecutive),
                       HT_FLOAT("min", s->min), HT_INT("most_skips", (int64_t)s->most_skips)),
              next);
    for (size_t i = 0; i < sizeof old / sizeof old[0]; i++) ht_store(g, old[i], next[i]);
}
