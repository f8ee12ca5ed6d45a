#include "train/ranks.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "train/config_changes.h"

static uint64_t mix(uint64_t hash, uint64_t more)
{
    return (hash ^ more) * 0x9e3779b97f4a7c15u + (hash >> 29);
}

/* ---- axes ---- */

void ht_axes_of_rank(const ht_train_config *config, int64_t rank, ht_axis *data, ht_axis *pipeline, ht_axis *tensor)
{
    int64_t layers = config->tensor, stages = config->pipeline;
    *tensor = (ht_axis){layers, rank % layers};
    *pipeline = (ht_axis){stages, rank / layers % stages};
    *data = (ht_axis){config->data_ranks, rank / layers / stages};
}

/* The ranks that differ from this one along an axis alone, `step` apart. */
static ht_status add_axis(const ht_ranks *ranks, ht_context *ctx, ht_comm *world, const char *name, const ht_axis *axis,
                          int64_t step, int *members)
{
    ht_comm *group;
    if (axis->ranks == 1 || ht_comm_find_group(world, name)) return HT_OK;
    int64_t first = ranks->rank - axis->rank * step;
    for (int64_t i = 0; i < axis->ranks; i++) members[i] = (int)(first + i * step);
    return ht_comm_add_group(&group, world, ctx, name, members, (int)axis->ranks);
}

static ht_status add_axes(const ht_ranks *ranks, ht_context *ctx, ht_comm *world, int *members)
{
    int64_t layers = ranks->tensor.ranks, stages = ranks->pipeline.ranks;
    HT_TRY(add_axis(ranks, ctx, world, "data", &ranks->data, layers * stages, members));
    HT_TRY(add_axis(ranks, ctx, world, "pipeline", &ranks->pipeline, layers, members));
    return add_axis(ranks, ctx, world, "tensor", &ranks->tensor, 1, members);
}

/* A group of those with the same layers, for the host. */
static ht_status add_stage(ht_ranks *ranks, ht_context *ctx, ht_comm *world, int *members)
{
    int count = 0;
    if (ranks->pipeline.ranks == 1 || ranks->pipeline.ranks == ranks->size) return HT_OK;
    for (int64_t i = 0; i < ranks->size; i++)
        if (i / ranks->tensor.ranks % ranks->pipeline.ranks == ranks->pipeline.rank) members[count++] = (int)i;
    ranks->stage = ht_comm_find_group(world, "stage");
    return ranks->stage ? HT_OK : ht_comm_add_group(&ranks->stage, world, ctx, "stage", members, count);
}

/* A group of all for the host, beside the session's. */
static ht_status add_host(ht_ranks *ranks, ht_context *ctx, ht_comm *world, int *members)
{
    for (int i = 0; i < (int)ranks->size; i++) members[i] = i;
    ranks->host = ht_comm_find_group(world, "host");
    return ranks->host ? HT_OK : ht_comm_add_group(&ranks->host, world, ctx, "host", members, (int)ranks->size);
}

/* ---- agreement on the job ---- */

/* "rank 2 has train.lr 0.002, where rank 0 has 0.001": the first keys of this rank that differ; "": none does. */
static void describe_changes(const ht_ranks *ranks, const ht_config_changes *changes, char *line, size_t capacity)
{
    enum { MOST = 3 };
    ht_text text = {0};
    for (size_t i = 0; i < changes->count && i < MOST; i++) {
        const ht_config_change *c = &changes->list[i];
        if (i == 0) ht_text_add(&text, "rank %" PRId64 " has ", ranks->rank);
        ht_text_add(&text, "%s%s %s, where rank 0 has %s", i ? "; " : "", c->key, c->after, c->before);
    }
    snprintf(line, capacity, "%s", text.failed || !text.data ? "" : text.data);
    ht_text_free(&text);
}

/* The job of the first rank, as ht_config_print_json writes it; for free(). */
static ht_status send_first_job(const ht_ranks *ranks, ht_context *ctx, const ht_text *own, char **out)
{
    int64_t bytes = (int64_t)own->length + 1;
    ht_comm_call call = {
        .kind = HT_COMM_BROADCAST, .dtype = HT_I64, .in = &bytes, .out = &bytes, .elems = 1, .site = "config"};
    *out = NULL;
    HT_TRY(ht_comm_run(ranks->host, ctx, &call));
    if (!(*out = malloc((size_t)bytes))) HT_FAIL(ctx, HT_ENOMEM, "out of memory for ranks");
    call.dtype = HT_U8;
    call.in = own->data;
    call.out = *out;
    call.elems = bytes;
    return ht_comm_run(ranks->host, ctx, &call);
}

/* After ranks were found to have different jobs: which keys. */
static ht_status name_keys(const ht_ranks *ranks, ht_context *ctx, const ht_text *own, const ht_config *config)
{
    char differ[512], line[512] = "", *first;
    ht_config_changes changes = {0};
    snprintf(differ, sizeof differ, "%s", ht_context_message(ctx));
    ht_status status = send_first_job(ranks, ctx, own, &first);
    if (status == HT_OK) status = ht_config_changes_find(&changes, ctx, first, config);
    if (status == HT_OK) describe_changes(ranks, &changes, line, sizeof line);
    ht_config_changes_free(&changes);
    free(first);
    bool named = line[0] != 0;
    HT_TRY(status);
    HT_TRY(ht_ranks_text(ranks, ctx, line, sizeof line, &named));
    if (named) HT_FAIL(ctx, HT_ERANK, "ranks differ in config: %s", line);
    HT_FAIL(ctx, HT_ERANK, "%s", differ);
}

/* Axes, device and plan follow from the job, and with them who sends what to whom. So it is compared before anything that
 * depends on it. */
static ht_status agree_on_job(const ht_ranks *ranks, ht_context *ctx, const ht_run_request *request)
{
    static const char *const modes[] = {
        [HT_RUN_NEW] = "a new run", [HT_RUN_FORCE] = "--force", [HT_RUN_RESUME] = "--resume"};
    ht_text config = {0};
    ht_config_print_json(&config, request->config);
    const ht_comm_fact facts[] = {
        {"version", ht_hash_text(ht_version()), ht_version()},
        {"start", (uint64_t)request->mode, modes[request->mode]},
        {"numerics", (uint64_t)request->numerics, NULL},
    };
    const ht_comm_fact job = {"config", config.failed ? 0 : ht_hash_text(config.data), NULL};
    ht_status status = config.failed ? ht_fail(ctx, HT_ENOMEM, "out of memory for ranks")
                                     : ht_comm_agree(ranks->host, ctx, facts, sizeof facts / sizeof facts[0]);
    if (status == HT_OK) {
        status = ht_comm_agree(ranks->host, ctx, &job, 1);
        if (status == HT_ERANK) status = name_keys(ranks, ctx, &config, request->config);
    }
    ht_text_free(&config);
    return status;
}

ht_status ht_ranks_open(ht_ranks *ranks, ht_context *ctx, const ht_run_request *request)
{
    const ht_axis alone = {.ranks = 1};
    *ranks = (ht_ranks){.size = 1, .data = alone, .pipeline = alone, .tensor = alone};
    int64_t wanted = ht_mode_reads_only(request->mode) ? 1 : ht_config_train(request->config)->ranks;
    int there = request->comm ? ht_comm_size(request->comm) : 1;
    if (there != wanted)
        HT_FAIL(ctx, HT_EINVAL, "the job is for %" PRId64 " ranks, and %d were started", wanted, there);
    if (there == 1) return HT_OK;
    int *members = calloc((size_t)there, sizeof *members);
    if (!members) HT_FAIL(ctx, HT_ENOMEM, "out of memory for ranks");
    ranks->rank = ht_comm_rank(request->comm);
    ranks->size = there;
    ht_axes_of_rank(ht_config_train(request->config), ranks->rank, &ranks->data, &ranks->pipeline, &ranks->tensor);
    ht_status status = add_host(ranks, ctx, request->comm, members);
    if (status == HT_OK) status = agree_on_job(ranks, ctx, request);
    if (status == HT_OK) status = add_axes(ranks, ctx, request->comm, members);
    if (status == HT_OK) status = add_stage(ranks, ctx, request->comm, members);
    free(members);
    return status;
}

/* The machine, and what its GPUs are narrowed to. */
static uint64_t hash_place(void)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char node[256] = "";
    (void)gethostname(node, sizeof node - 1); /* where it has no name, neither have the others */
    return mix(ht_hash_text(node), visible ? ht_hash_text(visible) : 0);
}

ht_status ht_ranks_local(ht_comm *world, ht_context *ctx, int *rank, int *count)
{
    ht_comm *host = world ? ht_comm_find_group(world, "host") : NULL;
    *rank = 0;
    *count = 1;
    if (!host) return HT_OK;
    int size = ht_comm_size(host);
    uint64_t own = hash_place(), *all = calloc((size_t)size, sizeof *all);
    if (!all) HT_FAIL(ctx, HT_ENOMEM, "out of memory for ranks");
    ht_status status = ht_comm_run(host, ctx,
                                   &(ht_comm_call){.kind = HT_COMM_ALL_GATHER,
                                                   .dtype = HT_I64,
                                                   .in = &own,
                                                   .out = all,
                                                   .elems = 1,
                                                   .site = "names of machines"});
    *count = 0;
    for (int i = 0; i < size; i++) {
        if (all[i] != own) continue;
        *rank += i < ht_comm_rank(host);
        ++*count;
    }
    free(all);
    return status;
}

ht_status ht_ranks_meet(const ht_ranks *ranks, ht_context *ctx)
{
    return ranks->host ? ht_comm_barrier(ranks->host, ctx) : HT_OK;
}

static ht_status reduce(const ht_ranks *ranks, ht_context *ctx, ht_dtype dtype, ht_comm_reduction reduction,
                        void *values, size_t count)
{
    if (!ranks->host) return HT_OK;
    return ht_comm_run(ranks->host, ctx,
                       &(ht_comm_call){.kind = HT_COMM_ALL_REDUCE,
                                       .dtype = dtype,
                                       .reduction = reduction,
                                       .in = values,
                                       .out = values,
                                       .elems = (int64_t)count,
                                       .site = "train"});
}

ht_status ht_ranks_any(const ht_ranks *ranks, ht_context *ctx, bool *flag)
{
    return reduce(ranks, ctx, HT_BOOL, HT_COMM_MAX, flag, 1);
}

ht_status ht_ranks_sum(const ht_ranks *ranks, ht_context *ctx, double *values, size_t count)
{
    return reduce(ranks, ctx, HT_F64, HT_COMM_SUM, values, count);
}

ht_status ht_ranks_text(const ht_ranks *ranks, ht_context *ctx, char *text, size_t capacity, bool *has)
{
    int64_t first = *has ? ranks->rank : ranks->size;
    if (!ranks->host) return HT_OK;
    HT_TRY(reduce(ranks, ctx, HT_I64, HT_COMM_MIN, &first, 1));
    *has = first < ranks->size;
    if (!*has) return HT_OK;
    return ht_comm_run(ranks->host, ctx,
                       &(ht_comm_call){.kind = HT_COMM_BROADCAST,
                                       .dtype = HT_U8,
                                       .in = text,
                                       .out = text,
                                       .elems = (int64_t)capacity,
                                       .peer = (int)first,
                                       .site = "train"});
}

/* ---- what is exchanged ---- */

ht_exchange_totals ht_ranks_exchanged(const ht_ranks *ranks, const ht_session *session, ht_comm *world)
{
    static const char *const axes[] = {"data", "pipeline", "tensor"};
    ht_exchange_totals totals = {.waited = ht_executor_waited(session->executor)};
    for (size_t i = 0; i < sizeof axes / sizeof axes[0] && ranks->size > 1; i++) {
        ht_comm *group = ht_comm_find_group(world, axes[i]);
        ht_comm_traffic traffic = group ? ht_comm_traffic_of(group) : (ht_comm_traffic){0};
        totals.seconds += traffic.seconds;
        totals.bytes += traffic.bytes;
    }
    return totals;
}

ht_exchange_report ht_ranks_report(const ht_ranks *ranks, const ht_session *session, const ht_exchange_totals *totals)
{
    if (ranks->size == 1 || ht_executor_device(session->executor)->class->asynchronous)
        return (ht_exchange_report){.known = false};
    double hidden = totals->seconds > totals->waited ? totals->seconds - totals->waited : 0;
    return (ht_exchange_report){.known = true,
                                .ms = 1e3 * totals->seconds,
                                .bytes = totals->bytes,
                                .hidden_share = totals->seconds > 0 ? hidden / totals->seconds : 1};
}

/* ---- agreement ---- */

/* Which collectives every segment has, in which order, and how much each exchanges. */
static uint64_t hash_collectives(const ht_plan *plan)
{
    uint64_t hash = 0;
    for (size_t s = 0; s < plan->segment_count; s++) {
        hash = mix(hash, ht_hash_text(plan->segments[s].name));
        for (size_t i = 0; i < plan->segments[s].instr_count; i++) {
            const ht_call *call = plan->segments[s].instrs[i].call;
            if (!(call->op->flags & HT_OP_COLLECTIVE)) continue;
            hash = mix(hash, ht_hash_text(call->op->name));
            for (size_t k = 0; k < ht_op_attr_count(call->op); k++) hash = ht_attr_hash(hash, &call->attr[k]);
            const ht_type *type = call->n_in ? call->in[0] : call->out[0];
            hash = mix(mix(hash, (uint64_t)type->dtype), (uint64_t)ht_type_elems(type));
        }
    }
    return hash;
}

ht_status ht_ranks_agree(const ht_ranks *ranks, const ht_job *job)
{
    if (!ranks->host) return HT_OK;
    const ht_data_fingerprint *data = ht_data_fingerprint_of(job->data);
    const ht_comm_fact facts[] = {
        {"data", mix(data->hashes[HT_DATA_TRAIN], data->hashes[HT_DATA_VALIDATION]), job->format->name},
        {"model", job->plan->model_hash, job->model->name},
        {"device", (uint64_t)job->plan->target.device, ht_device_kind_names[job->plan->target.device]},
        {"instruction set", (uint64_t)job->plan->target.isa, ht_isa_name(job->plan->target.isa)},
    };
    const ht_comm_fact collectives = {"collectives", hash_collectives(job->plan), NULL};
    ht_comm *alike = ranks->pipeline.ranks == 1 ? ranks->host : ranks->stage; /* stages differ in them */
    ht_status status = ht_comm_agree(ranks->host, job->ctx, facts, sizeof facts / sizeof facts[0]);
    if (status == HT_OK && alike) status = ht_comm_agree(alike, job->ctx, &collectives, 1);
    return status;
}
