/* From config to session: data, model, training step, plan. */
#include "train/job_own.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "train/init_from.h"
#include "train/memory_limit.h"
#include "train/process_memory.h"

const char *const ht_vocabulary_files[2] = {"vocabulary.json", "source_vocabulary.json"};

const char ht_target_file[] = "target.json", ht_facts_file[] = "data.json", ht_model_file[] = "model.file";

bool ht_mode_reads_only(ht_run_mode mode)
{
    return mode == HT_RUN_EVALUATE || mode == HT_RUN_PREDICT || mode == HT_RUN_CALIBRATE;
}

size_t ht_job_blocks(ht_block_keys *list)
{
    size_t count = 0;
    list[count++] = (ht_block_keys){"model", NULL, NULL, ht_model_common_keys};
    for (size_t i = 0; ht_models[i] && count < HT_MOST_JOB_BLOCKS; i++)
        list[count++] = (ht_block_keys){"model", ht_models[i]->name, ht_models[i]->help, ht_models[i]->keys};
    for (size_t i = 0; ht_data_formats[i] && count < HT_MOST_JOB_BLOCKS; i++)
        list[count++] =
            (ht_block_keys){"data", ht_data_formats[i]->name, ht_data_formats[i]->help, ht_data_formats[i]->keys};
    return count;
}

/* ---- how long ---- */

static ht_status count_steps(ht_job *job)
{
    const ht_train_config *r = job->train_config;
    int64_t batches = ht_data_info_of(job->data)->parts[HT_DATA_TRAIN].batches;
    job->steps = r->steps;
    if (r->steps > 0) return HT_OK;
    if (batches > 0 && r->epochs > INT64_MAX / 2 / batches)
        HT_FAIL(job->ctx, HT_EINVAL, "train.epochs: %" PRId64 " epochs of %" PRId64 " batches are too many", r->epochs,
                batches);
    if (batches == 0) batches = 1; /* a run that evaluates may have none */
    /* An epoch that ends inside a step is finished with the beginning of the next one. */
    int64_t micros = r->accumulate * r->data_ranks;
    job->steps = (r->epochs * batches + micros - 1) / micros;
    return HT_OK;
}

/* ---- the training step ---- */

static ht_scaling_options scaling_of(const ht_train_config *c)
{
    ht_scaling_options scaling = ht_pass_options_standard().train.scaling;
    scaling.kind = HT_SCALING_STATIC;
    if (strcmp(c->loss_scale, "none") == 0) scaling.kind = HT_SCALING_NONE;
    if (strcmp(c->loss_scale, "dynamic") == 0) scaling.kind = HT_SCALING_DYNAMIC;
    scaling.fixed = c->fixed_scale;
    scaling.power = c->scale_power;
    scaling.window = c->scale_window;
    scaling.hysteresis = c->scale_hysteresis;
    scaling.consecutive = c->scale_consecutive;
    scaling.min = c->scale_min;
    return scaling;
}

static ht_status fill_schedule(const ht_job *job, ht_train_options *train)
{
    HT_TRY(ht_train_options_schedule(job->ctx, train, job->train_config->schedule));
    for (size_t i = 0; train->schedule && train->schedule->params[i].name; i++) {
        double value = ht_config_schedule_number(job->config, train->schedule->params[i].name, job->steps);
        if (!isnan(value)) train->schedule_params[i] = value;
    }
    return HT_OK;
}

static ht_fp8 fp8_of(const ht_train_config *c)
{
    if (!c->fp8_recipe) return HT_FP8_OFF;
    return strcmp(c->fp8_recipe, "delayed") == 0 ? HT_FP8_DELAYED : HT_FP8_CURRENT;
}

/* The job's options of all passes. */
static ht_status fill_options(ht_job *job, const ht_run_request *request, bool training)
{
    const ht_train_config *c = job->train_config;
    ht_pass_options *options = &job->options;
    *options = ht_pass_options_standard();
    options->training = training;
    options->train.accumulate = c->accumulate;
    options->train.optimizer = c->optimizer;
    options->train.hyper = c->hyper;
    options->train.lr = c->lr;
    options->train.clip = c->clip;
    options->train.decay_matrices = !c->decay_all;
    options->train.scaling = scaling_of(c);
    memcpy(options->train.freeze, c->freeze, sizeof c->freeze);
    options->train.freeze_count = c->freeze_count;
    memcpy(options->train.groups, c->groups, sizeof c->groups);
    options->train.group_count = c->group_count;
    memcpy(options->train.pruned, c->pruned, sizeof c->pruned);
    options->train.pruned_count = c->pruned_count;
    options->quantize = c->quantize;
    options->sparse = c->sparse;
    options->precision = (ht_precision_options){
        .precision = ht_precision_find(c->precision),
        .masters = c->masters,
        .half_gradients = c->half_gradients,
        .half_moments = c->half_moments,
        .residual_f32 = strcmp(c->residual, "f32") == 0,
        .stochastic = strcmp(c->rounding, "stochastic") == 0,
        .fp32_ops = c->fp32_ops,
        .half_ops = c->half_ops,
        .fp32_params = c->fp32_params,
        .fp8 = fp8_of(c),
        .fp8_history = c->fp8_history,
    };
    if (training) options->offload = ht_job_offload(c);
    if (training) options->zero = c->zero;
    if (request->try_stage > 0) options->zero.stage = request->try_stage - 1;
    options->zero.ranks = job->ranks;
    options->zero.rank = job->rank;
    options->parallel = job->parallel;
    options->recompute = c->recompute;
    options->head.chunks = c->head_chunks;
    return fill_schedule(job, &options->train);
}

/* A model from elsewhere without a count of its own has one that is always 1. */
static bool counts_one(const ht_graph *g)
{
    int forward = ht_segment_find(g, "forward");
    const ht_segment *s = forward >= 0 ? &g->segments[forward] : NULL;
    for (size_t i = 0; s && i < s->output_count; i++) {
        const ht_node *producer = strcmp(s->outputs[i].name, "count") == 0 ? ht_producer(g, s->outputs[i].value) : NULL;
        if (producer && strcmp(producer->op->name, "fill") == 0) return true;
    }
    return false;
}

static ht_status make_model(ht_job *job, const ht_run_request *request, bool predicts, ht_graph **out)
{
    const ht_data_info *info = ht_data_info_of(job->data);
    bool bucketed = request->mode != HT_RUN_PREDICT;
    int last = info->bucket_count - 1; /* the largest is the model's own, the others are further lengths */
    int64_t source_length = info->buckets[last].source_length;
    if (job->task == HT_TASK_PAIRS && job->inputs && ht_inputs_longest(job->inputs) > source_length)
        source_length = ht_inputs_longest(job->inputs);
    ht_model_bucket further[HT_DATA_MOST_BUCKETS];
    for (int i = 0; i < last; i++)
        further[i] = (ht_model_bucket){info->buckets[i].length, info->buckets[i].source_length};
    ht_model_request wanted = {
        .model = job->model,
        .fields = ht_config_block(job->config, "model"),
        .task = job->task,
        .batch = job->batch,
        .length = info->buckets[last].length,
        .source_length = source_length,
        .vocabulary = info->vocabulary,
        .source_vocabulary = info->source_vocabulary,
        .classes = info->classes,
        .feature_rank = info->feature_rank,
        .documents = info->documents,
        .training = job->options.training,
        .logits = predicts,
        .buckets = further,
        .bucket_count = bucketed ? last : 0,
        .beam = request->beam,
        .label_smoothing = job->train_config->label_smoothing,
        .widths = ht_field_json(ht_config_block(job->config, "model"), "widths"),
    };
    memcpy(wanted.feature, info->feature, sizeof wanted.feature);
    return ht_model_create(out, job->ctx, &wanted);
}

/* NULL: the job has none. */
static ht_status make_teacher(const ht_job *job, const ht_run_request *request, ht_graph **out)
{
    *out = NULL;
    if (!request->distillation || !job->options.training) return HT_OK;
    ht_job teacher = *job;
    teacher.config = request->distillation->teacher;
    teacher.model = ht_model_find(ht_config_type(teacher.config, "model"), NULL);
    teacher.options.training = false;
    return make_model(&teacher, request, false, out);
}

static ht_status run_passes(const ht_job *job, const ht_run_request *request, ht_graph *g, const ht_graph *teacher)
{
    ht_pass_options options = job->options;
    const ht_plan_request planning = {.target = &job->target, .options = &options};
    const ht_pass_env env = ht_plan_pass_env(&planning);
    if (request->distillation) options.distill = request->distillation->options;
    options.distill.teacher = teacher;
    return ht_pipeline_run(g, HT_STAGE_TRAIN, &env, request->observer);
}

static ht_status make_graph(ht_job *job, const ht_run_request *request, ht_graph **out)
{
    ht_graph *teacher;
    HT_TRY(make_model(job, request, request->mode == HT_RUN_PREDICT, out));
    job->mean_loss = job->model->make && counts_one(*out);
    int64_t declared = ht_model_parameters(*out);
    HT_TRY(make_teacher(job, request, &teacher));
    ht_status status = run_passes(job, request, *out, teacher);
    ht_graph_free(teacher);
    HT_TRY(status);
    bool some = job->parallel.pipeline.ranks > 1; /* the graph has those of a stage */
    job->parameters = some ? declared : ht_model_parameters(*out);
    job->frozen = job->options.training && job->train_config->freeze_count ? declared - job->parameters : 0;
    return HT_OK;
}

ht_status ht_job_model_hash(ht_job *job, const ht_run_request *request, int64_t micro_batch, uint64_t *out)
{
    ht_graph *graph = NULL;
    ht_job other = *job;
    other.batch = micro_batch;
    ht_status status = make_graph(&other, request, &graph);
    if (status == HT_OK) status = ht_model_hash(out, graph);
    ht_graph_free(graph);
    return status;
}

/* ---- the plan ---- */

ht_status ht_job_plan(ht_job *job, const ht_run_request *request, bool fusion, ht_plan **out)
{
    ht_graph *graph = NULL;
    ht_plan_request wanted = {
        .target = &job->target, .options = &job->options, .observer = request->observer, .no_fusion = !fusion};
    ht_status status = make_graph(job, request, &graph);
    if (status == HT_OK) status = ht_plan_build(out, graph, &wanted);
    ht_graph_free(graph);
    return status;
}

ht_status ht_job_session(const ht_job *job, const ht_plan *plan, ht_session **out)
{
    ht_session_opts opts = HT_SESSION_OPTS;
    ht_device *device;
    opts.seed = job->train_config->seed;
    opts.no_recordings = !job->train_config->cuda_graphs;
    opts.disk_folder = job->train_config->disk_folder;
    opts.disk = &job->train_config->disk;
    opts.comm = job->comm;
    /* A device that is not there is a mistake in the job. */
    if (ht_device_get(&device, job->ctx, plan->device) != HT_OK) {
        char reason[512];
        snprintf(reason, sizeof reason, "%s", ht_context_message(job->ctx));
        HT_FAIL(job->ctx, HT_EINVAL, "halftone.device: %s", reason);
    }
    return ht_session_create(out, plan, &opts);
}

/* A run that trains has the ranks of the config; others are alone. */
static void choose_axes(ht_job *job, const ht_run_request *request, bool training)
{
    const ht_train_config *config = job->train_config;
    ht_axis data;
    job->world = job->ranks = 1;
    job->parallel = ht_pass_options_standard().parallel;
    if (!training) return;
    ht_axes_of_rank(config, job->comm ? ht_comm_rank(job->comm) : 0, &data, &job->parallel.pipeline,
                    &job->parallel.tensor);
    if (request->try_pipeline > 0) job->parallel.pipeline.rank = request->try_pipeline - 1;
    job->parallel.sequence = config->sequence;
    job->world = config->ranks;
    job->ranks = data.ranks;
    job->rank = data.rank;
}

ht_status ht_job_open_plan(ht_job *job, ht_context *ctx, const ht_run_request *request, const char *recorded)
{
    *job = (ht_job){.ctx = ctx, .config = request->config, .data_folder = request->data_folder};
    if (!ht_config_has_job(request->config))
        HT_FAIL(ctx, HT_EINVAL, "this is DeepSpeed's config alone: training needs a job file with model and data");
    job->train_config = ht_config_train(request->config);
    job->comm = request->comm;
    choose_axes(job, request, !ht_mode_reads_only(request->mode));
    HT_TRY(ht_job_open_data(job, request, recorded));
    HT_TRY(ht_job_open_inputs(job, request));
    HT_TRY(count_steps(job));
    HT_TRY(fill_options(job, request, !ht_mode_reads_only(request->mode)));
    HT_TRY(ht_job_choose_target(job, request, recorded));
    ht_job_tell_libraries(job, request);
    ht_job_tell_offload(job, request);
    ht_job_tell_idle_keys(job, request);
    bool traced = request->no_fusion || request->mode == HT_RUN_CALIBRATE;
    return ht_job_plan(job, request, !traced, &job->plan);
}

ht_status ht_job_open(ht_job *job, ht_context *ctx, const ht_run_request *request, const char *recorded)
{
    HT_TRY(ht_job_open_plan(job, ctx, request, recorded));
    HT_TRY(ht_job_check_memory(job, request));
    job->reserve =
        ht_reserve_of(job->plan, &job->train_config->disk, job->train_config->accumulate, ht_process_peak_bytes());
    ht_status status = ht_job_session(job, job->plan, &job->session);
    return status == HT_ENOMEM ? ht_job_lacks_memory(job, request) : status;
}

ht_status ht_run_plan(ht_plan **out, ht_context *ctx, const ht_run_request *request)
{
    ht_job job;
    ht_status status = ht_job_open_plan(&job, ctx, request, NULL);
    *out = job.plan;
    job.plan = NULL;
    ht_job_close(&job);
    return status;
}

ht_status ht_run_model(ht_graph **out, ht_context *ctx, const ht_run_request *request)
{
    ht_job job = {.ctx = ctx, .config = request->config, .train_config = ht_config_train(request->config)};
    *out = NULL;
    choose_axes(&job, request, true);
    ht_status status = ht_job_open_data(&job, request, request->folder);
    if (status == HT_OK) status = ht_job_open_inputs(&job, request);
    if (status == HT_OK) status = count_steps(&job);
    if (status == HT_OK) status = fill_options(&job, request, true);
    if (status == HT_OK) status = make_model(&job, request, true, out);
    ht_job_close(&job);
    return status;
}

/* The model with its training step; weights to start from are compared with the tensors that it has once it is planned. */
static ht_status check_model(ht_job *job, const ht_run_request *request)
{
    ht_graph *graph = NULL;
    if (job->train_config->init_path) {
        HT_TRY(ht_job_plan(job, request, true, &job->plan));
        return ht_init_from_check(job, job->plan, request);
    }
    ht_status status = make_graph(job, request, &graph);
    ht_graph_free(graph);
    return status;
}

/* A job may be for another machine than the one that checks it. */
static void tell_absent_device(const ht_job *job, const ht_run_request *request)
{
    const char *name = job->train_config->device;
    ht_device *device;
    char line[640];
    if (!request->on_note || strcmp(name, "auto") == 0 || ht_device_get(&device, job->ctx, name) == HT_OK) return;
    snprintf(line, sizeof line, "halftone.device: %.500s; the job is checked all the same, and cannot run here",
             ht_context_message(job->ctx));
    request->on_note(request->arg, line);
}

ht_status ht_run_check(ht_context *ctx, const ht_run_request *request)
{
    ht_job job = {.ctx = ctx, .config = request->config, .train_config = ht_config_train(request->config)};
    choose_axes(&job, request, true);
    ht_status status = ht_job_open_data(&job, request, NULL);
    if (status == HT_OK) status = ht_job_open_inputs(&job, request);
    if (status == HT_OK) status = count_steps(&job);
    if (status == HT_OK) status = fill_options(&job, request, true);
    if (status == HT_OK) status = ht_job_choose_target(&job, request, NULL);
    if (status == HT_OK) tell_absent_device(&job, request);
    if (status == HT_OK) ht_job_tell_libraries(&job, request);
    if (status == HT_OK) ht_job_tell_offload(&job, request);
    if (status == HT_OK) ht_job_tell_idle_keys(&job, request);
    if (status == HT_OK) status = check_model(&job, request);
    ht_job_close(&job);
    return status;
}

void ht_job_close(ht_job *job)
{
    ht_session_free(job->session);
    ht_plan_free(job->plan);
    ht_inputs_free(job->inputs);
    if (!job->borrows_data) ht_data_free(job->data);
    ht_vocabulary_free(job->vocabulary);
    ht_vocabulary_free(job->source_vocabulary);
}
