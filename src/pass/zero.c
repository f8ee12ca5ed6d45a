/* Data parallel training. Ranks have the same model, and each its share of a step's batch; what they exchange are sums.
 * From stage 1 on each holds a part of the state only (zero_layout.c, zero_update.c, zero_gradients.c, zero_gather.c).
 *
 * The segment "exchange" is called between the last micro-batch and the update. It sums
 *      gradients, in buckets of flat groups, where they lie;
 *      the losses and counts of the step's micro-batches, for its record (step_loss_sum, step_count);
 *      with a loss scale, who overflowed (step_bad_rank);
 *      running statistics of the micro-batches, which become their mean.
 * The largest magnitudes of tensors in f8 become those over all ranks, and of state that goes from batch to batch each rank
 * receives the rows of the others, so that scales agree and a snapshot of one rank is that of all.
 * All ranks receive the same bits, so that the update, which is as that of one rank, finds the same norm, clips and skips
 * alike, and leaves the same parameters everywhere. */
#include "pass/zero.h"

#include <stdio.h>
#include <string.h>

#include "pass/train_options.h"
#include "pass/update_units.h"

bool ht_is_micro_first(const ht_segment *s)
{
    return strncmp(s->name, "micro_first", 11) == 0;
}

bool ht_is_micro(const ht_segment *s)
{
    return ht_is_micro_first(s) || strcmp(s->name, "micro") == 0 || strncmp(s->name, "micro:", 6) == 0;
}

bool ht_is_of_model(const ht_segment *s)
{
    static const char *const others[] = {"update", "init", "derive", "exchange", "gather"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(s->name, others[i]) == 0) return false;
    return true;
}

ht_val ht_zero_view(ht_graph *g, ht_val flat, const char *what, int64_t index, int64_t first, int64_t count)
{
    char name[512];
    ht_type type = ht_type_make(ht_type_of(g, flat)->dtype, 1, &count);
    type.space = ht_type_of(g, flat)->space;
    snprintf(name, sizeof name, "%s.%s%lld", ht_value_of(g, flat)->name, what, (long long)index);
    ht_val known = ht_find(g, name);
    if (known.id) return known;
    ht_heading heading = ht_state_of(g, flat)->heading;
    ht_val view = ht_graph_add_state(g, name, &type, &(ht_state){.heading = heading, .derived = true});
    if (g->status == HT_OK) ht_value_view(g, view, flat, first);
    return view;
}

static int64_t find_most(const ht_zero *z)
{
    int64_t all = 0, most;
    for (size_t i = 0; i < z->g->state_count; i++) {
        const ht_value *v = ht_value_of(z->g, z->g->states[i].value);
        bool flat = z->g->states[i].heading == HT_HEADING_GRADIENTS && !v->base.id;
        if (flat) all += ht_type_elems(&v->type);
    }
    most = all / HT_ZERO_BUCKETS > HT_ZERO_LEAST_BUCKET ? all / HT_ZERO_BUCKETS : HT_ZERO_LEAST_BUCKET;
    return z->late && most > HT_ZERO_LATE_BUCKET ? HT_ZERO_LATE_BUCKET : most;
}

/* ---- losses ---- */

static const char *const loss_names[] = {"loss_sum", "count"}, *const step_names[] = {"step_loss_sum", "step_count"};
enum { LOSSES = sizeof loss_names / sizeof loss_names[0] };

static ht_val find_output(const ht_segment *s, const char *name)
{
    for (size_t i = 0; i < s->output_count; i++)
        if (strcmp(s->outputs[i].name, name) == 0) return s->outputs[i].value;
    return HT_NONE;
}

/* Do all micro-batches tell it? A graph of the caller's own may not. */
static bool is_told(const ht_graph *g, const char *name)
{
    for (size_t i = 0; i < g->segment_count; i++)
        if (ht_is_micro(&g->segments[i]) && !find_output(&g->segments[i], name).id) return false;
    return true;
}

/* Sums over the micro-batches of this rank, in f64 as the host would make them. */
static void accumulate_loss(ht_graph *g, ht_val sum, const char *name)
{
    for (uint32_t i = 0; i < g->segment_count && g->status == HT_OK; i++) {
        if (!ht_is_micro(&g->segments[i])) continue;
        g->segment = i;
        ht_val value = ht_cast(g, find_output(&g->segments[i], name), HT_F64);
        ht_store(g, sum, ht_is_micro_first(&g->segments[i]) ? value : ht_add(g, sum, value));
    }
}

/* The losses and counts of all micro-batches, in one exchange; none: no segment tells them. */
typedef struct losses {
    ht_val own, start;
    const char *names[LOSSES];
    int64_t count;
} losses;

static losses begin_losses(ht_graph *g, uint32_t exchange, ht_group ranks)
{
    losses l = {.count = 0};
    ht_val sums[LOSSES];
    ht_type scalar = ht_type_make(HT_F64, 0, NULL);
    for (int i = 0; i < LOSSES && g->status == HT_OK; i++) {
        char name[64];
        if (!is_told(g, loss_names[i])) continue;
        snprintf(name, sizeof name, "step.%s", loss_names[i]);
        ht_val sum = ht_graph_add_state(g, name, &scalar, &(ht_state){.heading = HT_HEADING_SCALARS, .derived = true});
        if (g->status == HT_OK) accumulate_loss(g, sum, loss_names[i]);
        g->segment = exchange;
        sums[l.count] = ht_reshape(g, sum, 1, (int64_t[]){1});
        l.names[l.count++] = step_names[i];
    }
    if (!l.count) return l;
    l.own = l.count == 1 ? sums[0] : ht_concat(g, (size_t)l.count, sums, 0);
    l.start = ht_all_reduce_begin(g, l.own, ranks, "sum");
    return l;
}

static void end_losses(ht_graph *g, const losses *l)
{
    ht_val all = l->count ? ht_collective_end(g, l->start, l->own) : HT_NONE;
    for (int64_t i = 0; i < l->count && g->status == HT_OK; i++)
        ht_output(g, l->names[i], ht_reshape(g, ht_slice_axis(g, all, 0, i, 1), 0, NULL));
}

void ht_sum_losses(ht_graph *g, uint32_t exchange, ht_group ranks)
{
    losses sums = begin_losses(g, exchange, ranks);
    end_losses(g, &sums);
}

/* ---- who overflowed ---- */

/* Losses that are scaled overflow in some steps, which are then skipped: the record of a step tells on which rank. Sums
 * would not. */
static void add_finite(ht_zero *z, const ht_pass_options *options)
{
    ht_type flag = ht_type_make(HT_BOOL, 0, NULL);
    if (options->train.scaling.kind == HT_SCALING_NONE) return;
    z->finite =
        ht_graph_add_state(z->g, "step.finite", &flag, &(ht_state){.heading = HT_HEADING_SCALARS, .derived = true});
}

/* The first rank of the world whose gradients are not finite; the number of ranks: there is none. */
static void name_rank(const ht_zero *z, ht_val finite, const ht_parallel_options *o)
{
    ht_graph *g = z->g;
    int64_t stages = o->pipeline.ranks, layers = o->tensor.ranks;
    int64_t rank = (z->options->rank * stages + o->pipeline.rank) * layers + o->tensor.rank;
    ht_val nobody = ht_fill(g, HT_F64, 0, NULL, (double)(z->options->ranks * stages * layers));
    ht_val own = ht_fill(g, HT_F64, 0, NULL, (double)rank);
    ht_val first = ht_all_reduce(g, ht_select(g, finite, nobody, own), z->ranks, "min");
    if (layers > 1) first = ht_all_reduce(g, first, (ht_group){"tensor", layers}, "min");
    ht_output(g, "step_bad_rank", first);
}

/* ---- running statistics ---- */

static bool is_stored_by_micro(const ht_graph *g, ht_val state)
{
    for (size_t i = 0; i < g->segment_count; i++) {
        const ht_segment *s = &g->segments[i];
        for (size_t k = 0; ht_is_micro(s) && k < s->node_count; k++) {
            const ht_node *n = &g->nodes[s->nodes[k]];
            if (n->op == &ht_op_store && ht_node_in(g, n, 0).id == state.id) return true;
        }
    }
    return false;
}

static void average_statistics(ht_zero *z)
{
    ht_graph *g = z->g;
    if (z->options->sync_batchnorm) return; /* they are the same everywhere */
    for (size_t i = 0, states = g->state_count; i < states && g->status == HT_OK; i++) {
        ht_val state = g->states[i].value;
        bool floats = ht_dtype_is_float(ht_type_of(g, state)->dtype);
        if (g->states[i].heading != HT_HEADING_STATISTICS || !floats || !is_stored_by_micro(g, state)) continue;
        ht_zero_begin_mean(z, state);
    }
}

/* ---- state of the micro-batches ---- */

/* Magnitudes of tensors in f8, of which the scales of the next step follow. */
static void share_magnitudes(const ht_zero *z)
{
    ht_graph *g = z->g;
    for (size_t i = 0, states = g->state_count; i < states && g->status == HT_OK; i++) {
        ht_val state = g->states[i].value;
        const char *name = ht_value_of(g, state)->name, *last = strrchr(name, '.');
        bool flat = g->states[i].heading == HT_HEADING_SCALES && !ht_value_of(g, state)->base.id;
        if (!flat || !last || strcmp(last, ".amax") != 0) continue;
        ht_store(g, state, ht_all_reduce(g, state, z->ranks, "max"));
    }
}

/* Micro-batches go to ranks in turn, so the rows of rank r are every ranks-th part from the r-th on. */
static void share_rows(const ht_zero *z, int64_t accumulate)
{
    ht_graph *g = z->g;
    int64_t ranks = z->options->ranks;
    for (size_t i = 0, states = g->state_count; i < states && g->status == HT_OK; i++) {
        ht_val state = g->states[i].value;
        const ht_type type = *ht_type_of(g, state);
        bool carried = strncmp(ht_value_of(g, state)->name, "carry.", 6) == 0 && type.rank > 0;
        if (!carried || !is_stored_by_micro(g, state) || ht_type_elems(&type) == 0) continue;
        int64_t part = ht_type_elems(&type) / (accumulate * ranks);
        ht_val all = ht_reshape(g, state, 3, (int64_t[]){accumulate, ranks, part});
        ht_val own = ht_slice_axis(g, all, 1, z->options->rank, 1);
        own = ht_reshape(g, own, 1, (int64_t[]){accumulate * part});
        all = ht_reshape(g, ht_all_gather(g, own, z->ranks), 3, (int64_t[]){ranks, accumulate, part});
        all = ht_permute(g, all, 3, (int64_t[]){1, 0, 2});
        ht_store(g, state, ht_reshape(g, all, type.rank, type.dim));
    }
}

/* ---- the pass ---- */

void ht_call_beside_update(ht_graph *g, uint32_t segment, bool behind)
{
    int update = ht_segment_find(g, "update");
    for (size_t i = 0; i < g->program_count && g->status == HT_OK; i++) {
        size_t count = g->programs[i].call_count, at = 0;
        while (at < count && (int)g->programs[i].calls[at].segment != update) at++;
        if (at == count) continue;
        at += behind;
        ht_graph_add_program_call(g, g->programs[i].name, (ht_program_call){.segment = segment, .times = 1});
        if (g->status != HT_OK) return;
        ht_program_call *calls = g->programs[i].calls, added = calls[count];
        memmove(calls + at + 1, calls + at, (count - at) * sizeof *calls);
        calls[at] = added;
    }
}

/* Is state of the update in another place than main? */
static bool is_offloading(const ht_pass_env *env)
{
    const ht_offload_options *o = &env->options->offload;
    return ht_offload_space(env, o->optimizer) != HT_SPACE_MAIN || ht_offload_space(env, o->params) != HT_SPACE_MAIN ||
           ht_offload_space(env, o->gradients) != HT_SPACE_MAIN;
}

static ht_status check(const ht_graph *g, const ht_pass_env *env)
{
    const ht_pass_options *options = env->options;
    const ht_zero_options *o = &options->zero;
    const ht_offload_options *offload = &options->offload;
    if (o->rank >= o->ranks)
        HT_FAIL(g->ctx, HT_EINVAL, "rank %lld: there are %lld", (long long)o->rank, (long long)o->ranks);
    if (o->ranks > 1 && o->stage > 0 && options->precision.fp8 != HT_FP8_OFF && is_offloading(env))
        HT_FAIL(g->ctx, HT_ENOTSUP, "zero: stage %lld with fp8 and an offload is not there yet; with one of them it is",
                (long long)o->stage);
    if (o->ranks > 1 && o->stage > 0 && offload->optimizer != HT_SPACE_MAIN && offload->ratio < 1)
        HT_FAIL(g->ctx, HT_ENOTSUP,
                "zero: stage %lld with offload_optimizer.ratio %g is not there yet: with a ratio of 1 it is",
                (long long)o->stage, offload->ratio);
    return HT_OK;
}

/* Each rank holds its part of the state. */
static ht_status partition(ht_zero *z)
{
    HT_TRY(ht_zero_find_groups(z));
    HT_TRY(ht_zero_lay_out(z));
    HT_TRY(ht_zero_cut_update(z));
    HT_TRY(ht_zero_cut_init(z));
    HT_TRY(ht_zero_cut_derive(z));
    if (z->options->stage >= 2) HT_TRY(ht_zero_scatter_in_backward(z));
    return z->options->stage >= 3 ? ht_zero_gather_params(z) : HT_OK;
}

static ht_status exchange(ht_zero *z, const ht_pass_options *options)
{
    ht_graph *g = z->g;
    int64_t stage = z->options->stage;
    add_finite(z, options);
    if (stage > 0) HT_TRY(partition(z));
    uint32_t segment = g->segment = ht_graph_add_segment(g, "exchange");
    HT_TRY(g->status);
    average_statistics(z);
    ht_val finite = stage < 2 ? ht_zero_begin_gradients(z) : z->finite;
    losses sums = begin_losses(g, segment, z->ranks);
    ht_zero_end_sums(z);
    end_losses(g, &sums);
    if (z->finite.id) name_rank(z, finite, &options->parallel);
    share_magnitudes(z);
    share_rows(z, options->train.accumulate);
    ht_call_beside_update(g, segment, false);
    if (stage == 0 || !z->late) return g->status;
    uint32_t gather = g->segment = ht_graph_add_segment(g, "gather");
    HT_TRY(g->status);
    HT_TRY(ht_zero_gather_late(z));
    ht_call_beside_update(g, gather, true);
    return g->status;
}

static ht_status zero_run(ht_graph *g, const ht_pass_env *env)
{
    const ht_zero_options *o = &env->options->zero;
    ht_zero z = {.g = g, .options = o, .ranks = {"data", o->ranks}, .late = is_offloading(env)};
    z.alone = env->options->precision.fp8 != HT_FP8_OFF;
    z.most = find_most(&z);
    HT_TRY(check(g, env));
    if (o->ranks == 1 || ht_segment_find(g, "update") < 0) return HT_OK;
    uint32_t resume = g->segment;
    ht_role role = g->role;
    g->role = HT_ROLE_UPDATE;
    ht_status status = exchange(&z, env->options);
    ht_zero_free(&z);
    g->segment = resume;
    g->role = role;
    return status;
}

const ht_setting_key ht_zero_keys[] = {
    {.name = "ranks",
     .kind = HT_SETTING_WHOLE,
     .at = offsetof(ht_zero_options, ranks),
     .low = 1,
     .high = 1 << 20,
     .help = "that share the batch of a step"},
    {.name = "rank",
     .kind = HT_SETTING_WHOLE,
     .at = offsetof(ht_zero_options, rank),
     .low = 0,
     .high = 1 << 20,
     .help = "the one whose graph this is"},
    {.name = "zero_stage",
     .kind = HT_SETTING_WHOLE,
     .at = offsetof(ht_zero_options, stage),
     .low = 0,
     .high = 0,
     .help = "0: every rank holds everything"},
    {.name = "reduce_bucket",
     .kind = HT_SETTING_WHOLE,
     .at = offsetof(ht_zero_options, reduce_bucket),
     .low = 1,
     .high = 0x1p53,
     .help = "the most elements of an exchange of gradients, but for a larger tensor"},
    {.name = "gather_bucket",
     .kind = HT_SETTING_WHOLE,
     .at = offsetof(ht_zero_options, gather_bucket),
     .low = 1,
     .high = 0x1p53,
     .help = "likewise of parameters"},
    {.name = "exchange_type",
     .kind = HT_SETTING_CHOICE,
     .at = offsetof(ht_zero_options, exchange_type),
     .words = "accumulated|fp32|fp16|bf16", /* as ht_zero_exchange_type */
     .help = "number type in which gradients cross from rank to rank"},
    {.name = "overlap",
     .kind = HT_SETTING_SWITCH,
     .at = offsetof(ht_zero_options, overlap),
     .help = "0: exchanges are waited for at once"},
    {.name = "zero_persistent",
     .kind = HT_SETTING_WHOLE,
     .at = offsetof(ht_zero_options, persistent),
     .low = 0,
     .high = 0x1p53,
     .help = "stage 3: parameters of fewer elements stay whole"},
    {.name = "zero_prefetch",
     .kind = HT_SETTING_WHOLE,
     .at = offsetof(ht_zero_options, prefetch),
     .low = 0,
     .high = 0x1p53,
     .help = "stage 3: elements that are gathered before they are needed; 0: none"},
    {.name = NULL}};

static const ht_pass_settings zero_settings[] = {{ht_zero_keys, offsetof(ht_pass_options, zero)}, {NULL, 0}};

const ht_pass ht_pass_zero = {
    .name = "zero",
    .help = "exchange what the ranks of a step computed; partition what they hold",
    .system = true,
    .run = zero_run,
    .settings = zero_settings,
};
