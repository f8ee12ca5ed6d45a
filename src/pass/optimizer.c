/* Appends the segment "update": non-finite check, clipping, the optimiser, and stores that keep the old state where the
 * gradients were not finite. Parameters, gradients and moments become flat groups in one order, one per number type, so
 * that the whole update is one call and a partition is a slice. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optim/optim.h"
#include "pass/pass.h"

enum { GROUP_ALIGN = 16 }; /* elements between neighbours' starts: 64 bytes of f32 */

typedef struct group {
    ht_val param, grad, moment[HT_MAX_MOMENTS]; /* flat states */
} group;

typedef struct builder {
    ht_graph *g;
    const ht_optimizer *rule;
    ht_hyper hyper;
    double lr, clip;
    group groups[HT_DTYPE_COUNT];
    int group_count;
} builder;

static ht_status read_settings(builder *b, const ht_settings *settings)
{
    ht_context *ctx = b->g->ctx;
    const char *names, *name = ht_setting_text(settings, "optimizer", "adamw");
    b->rule = ht_optimizer_find(name, &names);
    if (!b->rule) HT_FAIL(ctx, HT_EINVAL, "setting optimizer: there is no '%s'; known: %s", name, names);
    b->hyper = b->rule->standard;
    ht_hyper *h = &b->hyper;
    double nesterov;
    HT_TRY(ht_setting_number(ctx, settings, "lr", 1e-3, &b->lr));
    HT_TRY(ht_setting_number(ctx, settings, "clip", 0, &b->clip));
    HT_TRY(ht_setting_number(ctx, settings, "beta1", h->beta1, &h->beta1));
    HT_TRY(ht_setting_number(ctx, settings, "beta2", h->beta2, &h->beta2));
    HT_TRY(ht_setting_number(ctx, settings, "eps", h->eps, &h->eps));
    HT_TRY(ht_setting_number(ctx, settings, "weight_decay", h->weight_decay, &h->weight_decay));
    HT_TRY(ht_setting_number(ctx, settings, "momentum", h->momentum, &h->momentum));
    HT_TRY(ht_setting_number(ctx, settings, "dampening", h->dampening, &h->dampening));
    HT_TRY(ht_setting_number(ctx, settings, "nesterov", h->nesterov, &nesterov));
    h->nesterov = nesterov != 0;
    if (!(b->clip >= 0)) HT_FAIL(ctx, HT_EINVAL, "setting clip: a norm, or 0 for none");
    return HT_OK;
}

/* ---- flat groups ---- */

/* The gradient state of a parameter: autodiff names it "<param>.grad". */
static ht_val grad_of(ht_graph *g, ht_val param)
{
    char name[512];
    snprintf(name, sizeof name, "%s.grad", ht_value_of(g, param)->name);
    ht_val grad = ht_find(g, name);
    return ht_state_of(g, grad) ? grad : HT_NONE;
}

/* A flat state of the group of parameters of type `of`. */
static ht_val add_flat(ht_graph *g, const char *what, ht_dtype of, ht_dtype dtype, int64_t elems, ht_heading heading)
{
    char name[64];
    ht_type type = ht_type_make(dtype, 1, &elems);
    snprintf(name, sizeof name, "flat.%s.%s", what, ht_dtype_name(of));
    return ht_graph_add_state(g, name, &type, &(ht_state){.heading = heading});
}

static void place(ht_graph *g, ht_val state, ht_val flat, int64_t offset)
{
    if (g->status == HT_OK) ht_value_view(g, state, flat, offset);
}

/* All trained parameters of one number type, in the order in which they were declared. */
static ht_status make_group(builder *b, ht_dtype dtype)
{
    ht_graph *g = b->g;
    int64_t elems = 0;
    size_t states = g->state_count;
    for (size_t i = 0; i < states; i++) {
        const ht_state *s = &g->states[i];
        if (!s->trained || ht_type_of(g, s->value)->dtype != dtype) continue;
        const char *name = ht_value_of(g, s->value)->name;
        if (!grad_of(g, s->value).id) HT_FAIL(g->ctx, HT_EINVAL, "optimizer: %s has no gradient; run autodiff", name);
        if (ht_value_of(g, s->value)->base.id) HT_FAIL(g->ctx, HT_EINVAL, "optimizer: %s is in a group already", name);
        elems += (ht_type_elems(ht_type_of(g, s->value)) + GROUP_ALIGN - 1) / GROUP_ALIGN * GROUP_ALIGN;
    }
    if (elems == 0) return HT_OK;
    group *flat = &b->groups[b->group_count++];
    /* As autodiff types gradients: half parameters have f32 ones, and f32 moments. */
    ht_dtype exact = dtype == HT_F64 ? HT_F64 : HT_F32;
    flat->param = add_flat(g, "param", dtype, dtype, elems, HT_HEADING_PARAMETERS);
    flat->grad = add_flat(g, "grad", dtype, exact, elems, HT_HEADING_GRADIENTS);
    const char *const *moments = b->rule->moments(&b->hyper);
    for (size_t m = 0; moments[m]; m++)
        flat->moment[m] = add_flat(g, moments[m], dtype, exact, elems, HT_HEADING_OPTIMIZER);
    HT_TRY(g->status);
    int64_t offset = 0;
    for (size_t i = 0; i < states; i++) {
        ht_val param = g->states[i].value;
        if (!g->states[i].trained || ht_type_of(g, param)->dtype != dtype) continue;
        place(g, param, flat->param, offset);
        place(g, grad_of(g, param), flat->grad, offset);
        offset += (ht_type_elems(ht_type_of(g, param)) + GROUP_ALIGN - 1) / GROUP_ALIGN * GROUP_ALIGN;
    }
    return HT_OK;
}

/* ---- the update ---- */

static ht_val all_groups_finite(builder *b)
{
    ht_val finite = HT_NONE;
    for (int i = 0; i < b->group_count; i++) {
        ht_val one = ht_all_finite(b->g, b->groups[i].grad);
        finite = finite.id ? ht_and(b->g, finite, one) : one;
    }
    return finite;
}

static ht_val global_norm(builder *b)
{
    ht_val square = HT_NONE;
    for (int i = 0; i < b->group_count; i++) {
        ht_val norm = ht_norm(b->g, b->groups[i].grad, 0, NULL, false), one = ht_mul(b->g, norm, norm);
        if (i == 0 && b->group_count == 1) return norm;
        square = square.id ? ht_add(b->g, square, one) : one;
    }
    return ht_sqrt(b->g, square);
}

static void update_group(builder *b, const group *flat, ht_val factor, ht_val finite, ht_val lr, ht_val applied)
{
    ht_graph *g = b->g;
    ht_val moments[HT_MAX_MOMENTS] = {HT_NONE};
    const char *const *names = b->rule->moments(&b->hyper);
    ht_val grad = factor.id ? ht_mul(g, flat->grad, ht_cast(g, factor, ht_type_of(g, flat->grad)->dtype)) : flat->grad;
    ht_val param = b->rule->step(g, &b->hyper, flat->param, grad, flat->moment, lr, applied, moments);
    if (g->status != HT_OK) return;
    ht_store(g, flat->param, ht_select(g, finite, param, flat->param));
    for (size_t m = 0; names[m]; m++) ht_store(g, flat->moment[m], ht_select(g, finite, moments[m], flat->moment[m]));
}

static void count_step(ht_graph *g, ht_val applied, ht_val finite)
{
    ht_store(g, applied, ht_select(g, finite, ht_add_scalar(g, applied, 1), applied));
    /* A skipped step consumes its batch: random numbers move on. */
    ht_val step = ht_find(g, "rng.step");
    if (step.id) ht_store(g, step, ht_add_scalar(g, step, 1));
}

static ht_status optimizer_run(ht_graph *g, const ht_target *target, const ht_settings *settings)
{
    (void)target;
    builder b = {.g = g};
    HT_TRY(read_settings(&b, settings));
    for (int d = 0; d < HT_DTYPE_COUNT; d++)
        if (ht_dtype_is_float((ht_dtype)d)) HT_TRY(make_group(&b, (ht_dtype)d));
    if (b.group_count == 0) HT_FAIL(g->ctx, HT_EINVAL, "optimizer: the graph has no trained state");
    ht_val lr = ht_state_add(g, "lr", HT_F32, 0, NULL, HT_CONSTANT(b.lr));
    ht_val applied = ht_state_add(g, "applied", HT_I64, 0, NULL, HT_ZERO);
    g->segment = ht_graph_add_segment(g, "update");
    HT_TRY(g->status);
    g->role = HT_ROLE_UPDATE;
    ht_val finite = all_groups_finite(&b), norm = global_norm(&b), factor = HT_NONE;
    /* Gradients are divided by max(1, (norm + 1e-6) / clip). */
    if (b.clip > 0)
        factor = ht_reciprocal(
            g, ht_max(g, ht_scale(g, ht_add_scalar(g, norm, 1e-6), 1 / b.clip), ht_fill_like(g, norm, 1)));
    for (int i = 0; i < b.group_count; i++) update_group(&b, &b.groups[i], factor, finite, lr, applied);
    count_step(g, applied, finite);
    ht_output(g, "grad_norm", norm);
    ht_output(g, "applied_now", finite);
    g->role = HT_ROLE_FWD;
    ht_graph_add_program_call(g, "train", g->segment, 1);
    return g->status;
}

const ht_pass ht_pass_optimizer = {"optimizer", "append the update: finite check, clip, optimiser, flat groups", true,
                                   optimizer_run};
