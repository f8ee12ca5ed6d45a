/* Appends the segment "update": the gradients' norm with its non-finite check, unscaling and clipping, the rate, the
 * optimiser, stores that keep the old state where the gradients were not finite, and the next loss scale. Parameters,
 * gradients and moments become flat groups in one order, so that an update is one call per group and a partition is a
 * slice: one group per number type and space, or two where matrices (rank 2 and more) are treated differently from the
 * rest, and the same again for each group that the options choose by name. Rules that look at whole tensors work on the tensors' places in the group. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/param_patterns.h"
#include "pass/scaler.h"
#include "pass/train_options.h"

enum { GROUP_ALIGN = 16 }; /* elements between neighbours' starts: 64 bytes of f32 */

typedef enum part { PART_ALL, PART_MATRICES, PART_REST } part;
enum { APART_CUT = 1, APART_COPIED = 2, APART_PRUNED = 4, APART_COUNT = 8 };

typedef struct group {
    const ht_optimizer *rule;
    ht_hyper hyper;
    ht_dtype dtype; /* of its parameters */
    ht_space space; /* of its state: its update is computed there */
    part part;
    bool cut;                                   /* its tensors are pieces of those that ranks share */
    bool copied;                                /* its tensors are copies of those that an earlier stage owns */
    bool pruned;                                /* its zeros stay zero */
    size_t chosen;                              /* which of the options' groups it is; their count: none of them */
    double lr_scale;                            /* of the update's rate */
    ht_val param, grad, moment[HT_MAX_MOMENTS]; /* flat states */
} group;

typedef struct builder {
    ht_graph *g;
    const ht_train_options *options;
    const ht_pass_options *all;
    const size_t *chosen; /* by state: ht_params_group */
    const bool *pruned;   /* by state: ht_params_pruned */
    group *groups;
    int group_count;
    ht_scaler scaler;
    ht_val rate, applied, factor, finite, apply; /* scalars of the update; factor: of the gradients, or none */
    ht_val own_finite;                           /* finite, of this rank alone; none: it is not asked for */
} builder;

/* ---- flat groups ---- */

/* The state of a parameter that is named "<param>.<what>": autodiff's gradient, a moment. */
static ht_val state_beside(ht_graph *g, ht_val param, const char *what)
{
    char name[512];
    snprintf(name, sizeof name, "%s.%s", ht_value_of(g, param)->name, what);
    ht_val state = ht_find(g, name);
    return ht_state_of(g, state) ? state : HT_NONE;
}

/* Does an earlier stage of the pipeline own it? */
static bool is_copied(const builder *b, const ht_state *s)
{
    return s->stages & ((UINT64_C(1) << b->all->parallel.pipeline.rank) - 1);
}

static bool is_member(const builder *b, const group *flat, size_t state)
{
    const ht_state *s = &b->g->states[state];
    const ht_type *type = ht_type_of(b->g, s->value);
    if (!s->trained || b->chosen[state] != flat->chosen || (s->cut.ranks > 0) != flat->cut) return false;
    if (is_copied(b, s) != flat->copied || b->pruned[state] != flat->pruned) return false;
    if (type->dtype != flat->dtype || type->space != flat->space) return false;
    return flat->part == PART_ALL || (type->rank >= 2) == (flat->part == PART_MATRICES);
}

static int64_t padded_elems(const ht_graph *g, ht_val param)
{
    return (ht_type_elems(ht_type_of(g, param)) + GROUP_ALIGN - 1) / GROUP_ALIGN * GROUP_ALIGN;
}

static ht_val add_flat(const builder *b, const group *flat, const char *what, ht_dtype dtype, int64_t elems,
                       ht_state state)
{
    static const char *const parts[] = {[PART_ALL] = "", [PART_MATRICES] = ".matrices", [PART_REST] = ".rest"};
    char name[96], chosen[32] = "";
    ht_type type = ht_type_make(dtype, 1, &elems);
    type.space = flat->space;
    bool main = flat->space == HT_SPACE_MAIN;
    if (flat->chosen < b->options->group_count) snprintf(chosen, sizeof chosen, ".group%zu", flat->chosen);
    snprintf(name, sizeof name, "flat.%s.%s%s%s%s%s%s%s%s", what, ht_dtype_name(flat->dtype), parts[flat->part], chosen,
             flat->cut ? ".cut" : "", flat->copied ? ".copied" : "", flat->pruned ? ".pruned" : "", main ? "" : ".",
             main ? "" : ht_space_name(flat->space));
    return ht_graph_add_state(b->g, name, &type, &state);
}

static void view_in_group(ht_graph *g, ht_val state, ht_val flat, int64_t offset)
{
    if (g->status == HT_OK) ht_value_view(g, state, flat, offset);
}

/* The moments of one tensor as states of their own: for rules that want them in its shape, and for snapshots, which are
 * not to depend on groups. */
static void add_moment_views(ht_graph *g, const group *flat, ht_val param, int64_t offset)
{
    const char *const *moments = flat->rule->moments(&flat->hyper);
    for (size_t m = 0; moments[m] && g->status == HT_OK; m++) {
        char name[512];
        ht_type type = *ht_type_of(g, param);
        const ht_state *like = ht_state_of(g, param);
        ht_state moment = {
            .heading = HT_HEADING_OPTIMIZER, .cut = like->cut, .whole = like->whole, .stages = like->stages};
        moment.whole.dtype = type.dtype = ht_type_of(g, flat->moment[m])->dtype;
        snprintf(name, sizeof name, "%s.%s", ht_value_of(g, param)->name, moments[m]);
        view_in_group(g, ht_graph_add_state(g, name, &type, &moment), flat->moment[m], offset);
    }
}

static ht_status count_members(const builder *b, const group *flat, int64_t *elems)
{
    ht_graph *g = b->g;
    *elems = 0;
    for (size_t i = 0; i < g->state_count; i++) {
        const ht_state *s = &g->states[i];
        if (!is_member(b, flat, i)) continue;
        const char *name = ht_value_of(g, s->value)->name;
        if (!state_beside(g, s->value, "grad").id)
            HT_FAIL(g->ctx, HT_EINVAL, "optimizer: %s has no gradient; run autodiff", name);
        if (ht_value_of(g, s->value)->base.id) HT_FAIL(g->ctx, HT_EINVAL, "optimizer: %s is in a group already", name);
        *elems += padded_elems(g, s->value);
    }
    return HT_OK;
}

/* The rule and the numbers of a group: those of all, as its part and the options' group change them. */
static group describe_group(const builder *b, size_t chosen, part which)
{
    const ht_train_options *o = b->options;
    group flat = {.rule = o->optimizer, .hyper = o->hyper, .part = which, .chosen = chosen, .lr_scale = 1};
    const ht_param_group *own = chosen < o->group_count ? &o->groups[chosen] : NULL;
    if (own) flat.lr_scale = own->lr_scale;
    if (own && !isnan(own->weight_decay)) flat.hyper.weight_decay = own->weight_decay;
    if (which == PART_REST && o->optimizer->rest) flat.rule = o->optimizer->rest;
    if (which == PART_REST && o->decay_matrices) flat.hyper.weight_decay = 0;
    return flat;
}

/* All trained parameters of one number type, space, choice and part, in the order in which they were declared. Those that
 * ranks share are apart: every rank has others of them. So are those that another stage owns: the norm has them once. */
static ht_status make_group(builder *b, ht_dtype dtype, ht_space space, size_t chosen, part which, unsigned apart)
{
    ht_graph *g = b->g;
    int64_t elems, offset = 0;
    group *flat = &b->groups[b->group_count];
    *flat = describe_group(b, chosen, which);
    flat->cut = apart & APART_CUT;
    flat->copied = apart & APART_COPIED;
    flat->pruned = apart & APART_PRUNED;
    flat->dtype = dtype;
    flat->space = space;
    HT_TRY(count_members(b, flat, &elems));
    if (elems == 0) return HT_OK;
    b->group_count++;
    /* As autodiff types gradients: half parameters have f32 ones, and f32 moments. */
    ht_dtype exact = dtype == HT_F64 ? HT_F64 : HT_F32;
    flat->param = add_flat(b, flat, "param", dtype, elems, (ht_state){.heading = HT_HEADING_PARAMETERS});
    flat->grad = add_flat(b, flat, "grad", exact, elems, (ht_state){.heading = HT_HEADING_GRADIENTS});
    const char *const *moments = flat->rule->moments(&flat->hyper);
    ht_state moment = {.heading = HT_HEADING_OPTIMIZER};
    if (flat->rule->accumulates && flat->hyper.initial_accumulator > 0)
        moment.init = HT_CONSTANT(flat->hyper.initial_accumulator);
    for (size_t m = 0; moments[m]; m++) flat->moment[m] = add_flat(b, flat, moments[m], exact, elems, moment);
    HT_TRY(g->status);
    for (size_t i = 0, states = g->state_count; i < states; i++) {
        ht_val param = g->states[i].value;
        if (!is_member(b, flat, i)) continue;
        view_in_group(g, param, flat->param, offset);
        view_in_group(g, state_beside(g, param, "grad"), flat->grad, offset);
        add_moment_views(g, flat, param, offset);
        offset += padded_elems(g, param);
    }
    return g->status;
}

/* Those that no group of the options has come first. */
static ht_status make_groups(builder *b)
{
    bool split = b->options->decay_matrices || b->options->optimizer->rest;
    size_t choices = b->options->group_count + 1, count = (size_t)HT_SPACE_COUNT * HT_DTYPE_COUNT * choices;
    b->groups = calloc(2 * APART_COUNT * count, sizeof *b->groups);
    if (!b->groups) HT_FAIL(b->g->ctx, HT_ENOMEM, "out of memory for the update's groups");
    for (size_t at = 0; at < count; at++) {
        ht_space space = (ht_space)(at / choices / HT_DTYPE_COUNT);
        ht_dtype dtype = (ht_dtype)(at / choices % HT_DTYPE_COUNT);
        size_t chosen = (at + choices - 1) % choices;
        if (!ht_dtype_is_float(dtype)) continue;
        for (unsigned apart = 0; apart < APART_COUNT; apart++) {
            if (!split) HT_TRY(make_group(b, dtype, space, chosen, PART_ALL, apart));
            if (split) HT_TRY(make_group(b, dtype, space, chosen, PART_MATRICES, apart));
            if (split) HT_TRY(make_group(b, dtype, space, chosen, PART_REST, apart));
        }
    }
    if (b->group_count == 0) HT_FAIL(b->g->ctx, HT_EINVAL, "optimizer: the graph has no trained state");
    return HT_OK;
}

/* ---- the update ---- */

/* Of pieces that ranks have: of all of them. */
static ht_val norm_over_ranks(const builder *b, const group *flat, ht_val norm, ht_val *finite)
{
    ht_graph *g = b->g;
    ht_group ranks = {"tensor", 1};
    for (size_t i = 0; i < g->state_count; i++)
        if (is_member(b, flat, i)) ranks.ranks = g->states[i].cut.ranks;
    *finite = ht_all_reduce(g, *finite, ranks, "min");
    return ht_sqrt(g, ht_all_reduce(g, ht_mul(g, norm, norm), ranks, "sum"));
}

/* Losses that are scaled overflow in some steps: which of the ranks that share a model is told; where ranks share a batch zero
 * does that. */
static bool names_rank(const builder *b)
{
    const ht_parallel_options *o = &b->all->parallel;
    return b->options->scaling.kind != HT_SCALING_NONE && b->all->zero.ranks == 1 &&
           o->pipeline.ranks * o->tensor.ranks > 1;
}

/* The norm of a group's gradients, made where they lie, and whether all are finite. */
static ht_val group_norm(builder *b, const group *flat, ht_val *finite)
{
    ht_graph *g = b->g;
    ht_val norm = ht_norm_finite(g, flat->grad, finite);
    *finite = ht_to_space(g, *finite, HT_SPACE_MAIN);
    if (names_rank(b)) b->own_finite = b->own_finite.id ? ht_and(g, b->own_finite, *finite) : *finite;
    norm = ht_to_space(g, norm, HT_SPACE_MAIN);
    return flat->cut ? norm_over_ranks(b, flat, norm, finite) : norm;
}

/* The norm of this rank's gradients as f64, and whether all are finite. What another stage owns has its norm there. */
static ht_val own_norm(builder *b)
{
    ht_graph *g = b->g;
    ht_val norm = HT_NONE, square = HT_NONE, finite;
    for (int i = 0; i < b->group_count; i++) {
        if (b->groups[i].copied) continue;
        if (norm.id && !square.id) square = ht_mul(g, norm, norm);
        ht_val next = group_norm(b, &b->groups[i], &finite);
        square = norm.id ? ht_add(g, square, ht_mul(g, next, next)) : HT_NONE;
        b->finite = norm.id ? ht_and(g, b->finite, finite) : finite;
        norm = next;
    }
    return square.id ? ht_sqrt(g, square) : norm;
}

/* The first rank whose gradients were not finite. */
static void name_rank(const builder *b)
{
    ht_graph *g = b->g;
    const ht_parallel_options *o = &b->all->parallel;
    const ht_group tensor = {"tensor", o->tensor.ranks}, stages = {"pipeline", o->pipeline.ranks};
    ht_val nobody = ht_fill(g, HT_F64, 0, NULL, (double)(stages.ranks * tensor.ranks));
    ht_val first = ht_fill(g, HT_F64, 0, NULL, (double)(o->pipeline.rank * tensor.ranks + o->tensor.rank));
    first = b->own_finite.id ? ht_select(g, b->own_finite, nobody, first) : nobody;
    if (tensor.ranks > 1) first = ht_all_reduce(g, first, tensor, "min");
    if (stages.ranks > 1) first = ht_all_reduce(g, first, stages, "min");
    ht_output(g, "step_bad_rank", first);
}

/* Over all stages. */
static ht_val global_norm(builder *b)
{
    ht_graph *g = b->g;
    const ht_group stages = {"pipeline", b->all->parallel.pipeline.ranks};
    ht_val norm = own_norm(b);
    if (names_rank(b)) name_rank(b);
    if (stages.ranks == 1) return norm;
    if (!norm.id) norm = ht_fill(g, HT_F64, 0, NULL, 0);
    if (!b->finite.id) b->finite = ht_fill(g, HT_BOOL, 0, NULL, 1);
    b->finite = ht_all_reduce(g, b->finite, stages, "min");
    return ht_sqrt(g, ht_all_reduce(g, ht_mul(g, norm, norm), stages, "sum"));
}

/* What gradients are multiplied by: one over the scale that their loss had, and what clipping says of the norm that they
 * have without it. Returns that norm. */
static ht_val choose_factor(builder *b)
{
    ht_graph *g = b->g;
    ht_val norm = global_norm(b);
    b->factor = ht_scaler_inverse(&b->scaler, g);
    if (b->factor.id) norm = ht_mul(g, norm, b->factor);
    if (b->options->clip == 0) return norm;
    /* Gradients are divided by max(1, (norm + 1e-6) / clip). */
    ht_val one = ht_fill_like(g, norm, 1);
    ht_val excess = ht_max(g, ht_scale(g, ht_add_scalar(g, norm, 1e-6), 1 / b->options->clip), one);
    ht_val clipping = ht_reciprocal(g, excess);
    b->factor = b->factor.id ? ht_mul(g, b->factor, clipping) : clipping;
    return norm;
}

/* Where gradients were not finite the old value stays: the rule sees to it, or a select does. */
static void store_if(const builder *b, const group *flat, ht_val old, ht_val next)
{
    ht_store(b->g, old, flat->rule->skips ? next : ht_select(b->g, b->apply, next, old));
}

/* A weight that was pruned stays zero, whatever rule, decay or moments from before say: no mask has to be kept beside it. */
static ht_val hold_zeros(const builder *b, const group *flat, ht_val old, ht_val next)
{
    ht_graph *g = b->g;
    if (!flat->pruned) return next;
    ht_val zero = ht_to_space(g, ht_fill(g, ht_type_of(g, old)->dtype, 0, NULL, 0), flat->space);
    return ht_select(g, ht_ne(g, old, zero), next, old);
}

/* One call of the rule: a flat group, or a tensor in its place there. */
static void update_one(const builder *b, const group *flat, ht_val param, ht_val grad, const ht_val *old)
{
    ht_graph *g = b->g;
    ht_val moments[HT_MAX_MOMENTS] = {HT_NONE};
    const char *const *names = flat->rule->moments(&flat->hyper);
    if (b->factor.id) grad = ht_mul(g, grad, ht_cast(g, b->factor, ht_type_of(g, grad)->dtype));
    ht_hyper hyper = flat->hyper;
    if (flat->rule->skips) hyper.apply = b->apply;
    ht_val next = flat->rule->step(g, &hyper, param, grad, old, b->rate, b->applied, moments);
    if (g->status != HT_OK) return;
    store_if(b, flat, param, hold_zeros(b, flat, param, next));
    for (size_t m = 0; names[m]; m++) store_if(b, flat, old[m], moments[m]);
}

/* The update of a group in another space than main reads copies of the step's scalars there. */
static void move_scalars(builder *b, group *flat)
{
    ht_val *scalars[] = {&b->rate, &b->applied, &b->factor, &b->apply, &flat->hyper.cycled};
    for (size_t i = 0; i < sizeof scalars / sizeof scalars[0]; i++)
        *scalars[i] = ht_to_space(b->g, *scalars[i], flat->space);
}

static void update_members(const builder *b, const group *flat)
{
    ht_graph *g = b->g;
    const char *const *names = flat->rule->moments(&flat->hyper);
    if (!flat->rule->per_tensor) {
        update_one(b, flat, flat->param, flat->grad, flat->moment);
        return;
    }
    for (size_t i = 0; i < g->state_count && g->status == HT_OK; i++) {
        ht_val param = g->states[i].value, old[HT_MAX_MOMENTS] = {HT_NONE};
        if (!is_member(b, flat, i) || !ht_type_elems(ht_type_of(g, param))) continue;
        for (size_t m = 0; names[m]; m++) old[m] = state_beside(g, param, names[m]);
        update_one(b, flat, param, state_beside(g, param, "grad"), old);
    }
}

static void update_group(const builder *b, const group *flat)
{
    builder there = *b;
    group moved = *flat;
    if (flat->lr_scale != 1) there.rate = ht_scale(b->g, b->rate, flat->lr_scale);
    move_scalars(&there, &moved);
    update_members(&there, &moved);
}

/* The rate of this update: what the schedule says, or the state "lr". */
static void choose_rate(builder *b)
{
    ht_graph *g = b->g;
    if (!b->options->schedule) return;
    b->rate = ht_schedule_rate(g, b->options->schedule, b->options->schedule_params, b->options->lr, b->applied);
    ht_val cycled = ht_schedule_momentum(g, b->options->schedule, b->options->schedule_params, b->applied);
    for (int i = 0; cycled.id && i < b->group_count; i++) {
        b->groups[i].hyper.cycled = cycled;
        b->groups[i].hyper.beta2 = HT_CYCLED_BETA2;
    }
}

static void count_step(ht_graph *g, ht_val applied, ht_val apply)
{
    ht_store(g, applied, ht_select(g, apply, ht_add_scalar(g, applied, 1), applied));
    /* A skipped step consumes its batch: random numbers move on. */
    ht_val step = ht_find(g, "rng.step");
    if (step.id) ht_store(g, step, ht_add_scalar(g, step, 1));
}

static ht_status add_update(builder *b)
{
    ht_graph *g = b->g;
    const ht_train_options *o = b->options;
    HT_TRY(make_groups(b));
    if (!o->schedule) b->rate = ht_state_add(g, "lr", HT_F32, 0, NULL, HT_CONSTANT(o->lr));
    b->applied = ht_state_add(g, "applied", HT_I64, 0, NULL, HT_ZERO);
    ht_scaler_add_state(&b->scaler, g);
    HT_TRY(ht_scaler_scale_loss_grads(&b->scaler, g));
    g->segment = ht_graph_add_segment(g, "update");
    HT_TRY(g->status);
    g->role = HT_ROLE_UPDATE;
    ht_val norm = choose_factor(b);
    b->apply = ht_scaler_allows(&b->scaler, g, b->finite);
    choose_rate(b);
    for (int i = 0; i < b->group_count; i++) update_group(b, &b->groups[i]);
    count_step(g, b->applied, b->apply);
    ht_output(g, "grad_norm", ht_cast(g, norm, HT_F32));
    ht_output(g, "applied_now", b->apply);
    if (o->schedule) ht_output(g, "lr", b->rate);
    ht_scaler_step(&b->scaler, g, b->finite); /* last: nothing reads the old state after it */
    g->role = HT_ROLE_FWD;
    ht_graph_add_program_call(g, "train", (ht_program_call){.segment = g->segment, .times = 1});
    return g->status;
}

static ht_status optimizer_run(ht_graph *g, const ht_pass_env *env)
{
    const ht_train_options *o = &env->options->train;
    builder b = {.g = g, .options = o, .all = env->options, .scaler = {.options = &o->scaling}};
    size_t *chosen;
    bool *pruned = NULL, some = env->options->parallel.pipeline.ranks > 1;
    HT_TRY(ht_optimizer_check(g->ctx, o));
    HT_TRY(ht_params_group(g, o, some, &chosen));
    ht_status status = ht_params_pruned(g, o, some, &pruned);
    b.chosen = chosen;
    b.pruned = pruned;
    if (status == HT_OK) status = add_update(&b);
    free(b.groups);
    free(chosen);
    free(pruned);
    return status;
}

const ht_pass ht_pass_optimizer = {
    .name = "optimizer",
    .help = "append the update: norm and check, clip, rate, optimiser, flat groups",
    .system = true,
    .run = optimizer_run,
    .settings = ht_optimizer_settings,
};
