/* From config to session: data, model, training step, plan. */
#include "train/job.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/folder.h"
#include "train/init_from.h"
#include "train/memory_limit.h"
#include "train/process_memory.h"
#include "train/ranks.h"

enum { DEVICE_NAME = 32 };

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

/* ---- data ---- */

/* What the job says; else the first task that both serve, the format's own before others. */
static ht_status choose_task(ht_job *job)
{
    const char *asked = job->train_config->task;
    unsigned both = job->format->tasks & job->model->tasks;
    int task = 0;
    if (asked)
        while (task < HT_TASK_COUNT && strcmp(ht_task_names[task], asked) != 0) task++;
    else
        while (task < HT_TASK_COUNT && !(both >> task & 1)) task++;
    if (!asked && both >> ht_data_standard_task(job->format) & 1) task = (int)ht_data_standard_task(job->format);
    if (task == HT_TASK_COUNT)
        HT_FAIL(job->ctx, HT_EINVAL, "model.type %s learns nothing that data.format %s could teach", job->model->name,
                job->format->name);
    if (!(job->model->tasks >> task & 1))
        HT_FAIL(job->ctx, HT_EINVAL, "model.type %s cannot learn the task %s", job->model->name, ht_task_names[task]);
    if (!(job->format->tasks >> task & 1))
        HT_FAIL(job->ctx, HT_EINVAL, "data.format %s does not serve the task %s", job->format->name,
                ht_task_names[task]);
    job->task = (ht_task)task;
    return HT_OK;
}

static ht_status read_vocabulary(ht_job *job, const char *folder, int which, ht_vocabulary **out)
{
    char *path;
    bool there;
    HT_TRY(ht_folder_check(job->ctx, folder, ht_vocabulary_files[which], &there));
    if (!there) return HT_OK;
    HT_TRY(ht_folder_path(job->ctx, &path, folder, ht_vocabulary_files[which]));
    ht_status status = ht_vocabulary_read(out, job->ctx, path);
    free(path);
    return status;
}

/* Older versions recorded none: *out stays NULL. */
static ht_status read_facts(ht_job *job, const char *folder, ht_arena *arena, const ht_json **out)
{
    char *path, *text = NULL;
    size_t length;
    bool there;
    HT_TRY(ht_folder_check(job->ctx, folder, ht_facts_file, &there));
    if (!there) return HT_OK;
    HT_TRY(ht_folder_path(job->ctx, &path, folder, ht_facts_file));
    ht_status status = ht_read_file(job->ctx, &text, &length, path);
    if (status == HT_OK) status = ht_json_parse(job->ctx, arena, path, text, length, out);
    free(text);
    free(path);
    return status;
}

/* Of a run that an older version recorded: the data says them again. */
static ht_status find_facts(ht_job *job, const ht_data_request *wanted, ht_arena *arena, const ht_json **out)
{
    ht_data *data;
    ht_text text = {0};
    HT_TRY(ht_data_open(&data, job->ctx, wanted));
    ht_data_print_facts(data, &text);
    ht_data_free(data);
    ht_status status = text.failed ? ht_fail(job->ctx, HT_ENOMEM, "out of memory for the data")
                                   : ht_json_parse(job->ctx, arena, "data", text.data, text.length, out);
    ht_text_free(&text);
    return status;
}

/* A run that evaluates reads files to validate on alone, where there are some; one that predicts reads none. */
static ht_status open_with_facts(ht_job *job, ht_data_request *wanted, const char *folder, bool predicts)
{
    ht_arena *arena = ht_arena_create();
    if (!arena) HT_FAIL(job->ctx, HT_ENOMEM, "out of memory for the data");
    ht_status status = read_facts(job, folder, arena, &wanted->facts);
    if (status == HT_OK && predicts && !wanted->facts) status = find_facts(job, wanted, arena, &wanted->facts);
    wanted->facts_only = predicts;
    if (status == HT_OK) status = ht_data_open(&job->data, job->ctx, wanted);
    ht_arena_free(arena);
    return status;
}

static ht_status open_data(ht_job *job, const ht_run_request *request, const char *vocabularies)
{
    const char *type = ht_config_type(job->config, "model"), *format = ht_config_type(job->config, "data");
    job->model = type ? ht_model_find(type, NULL) : NULL;
    job->format = format ? ht_data_format_find(format) : NULL;
    if (!job->model || !job->format)
        HT_FAIL(job->ctx, HT_EINVAL, "there is no \"%s\" block: training needs a job file with model and data",
                job->model ? "data" : "model");
    HT_TRY(choose_task(job));
    if (request->data) {
        job->data = request->data;
        job->borrows_data = true;
        return HT_OK;
    }
    /* The embeddings of a run are those of its words. */
    if (!vocabularies) vocabularies = ht_init_from_run(job->train_config);
    if (vocabularies) {
        HT_TRY(read_vocabulary(job, vocabularies, 0, &job->vocabulary));
        HT_TRY(read_vocabulary(job, vocabularies, 1, &job->source_vocabulary));
    }
    ht_data_request wanted = {
        .format = job->format,
        .fields = ht_config_block(job->config, "data"),
        .task = job->task,
        .batch = job->train_config->micro_batch,
        .slices = job->train_config->accumulate * job->train_config->data_ranks,
        .seed = job->train_config->seed,
        .folder = request->data_folder,
        .memory = request->memory,
        .memory_length = request->memory_length,
        .vocabulary = job->vocabulary,
        .source_vocabulary = job->source_vocabulary,
    };
    if (ht_mode_reads_only(request->mode) && request->mode != HT_RUN_CALIBRATE && vocabularies)
        return open_with_facts(job, &wanted, vocabularies, request->mode == HT_RUN_PREDICT);
    return ht_data_open(&job->data, job->ctx, &wanted);
}

enum { PREDICTED_ROWS = 32 };

/* A micro-batch fitted into memory when the run was trained, and a graph from elsewhere may know that size only. It does
 * not depend on the number of inputs: kernels for fewer rows round differently, and an answer shall not change with what
 * else is asked. */
static int64_t choose_batch(const ht_job *job, const ht_run_request *request)
{
    int64_t batch = job->train_config->micro_batch;
    if (request->mode != HT_RUN_PREDICT) return batch;
    if (request->batch > 0) return request->batch;
    return batch > PREDICTED_ROWS && !job->model->make ? PREDICTED_ROWS : batch;
}

static ht_status open_inputs(ht_job *job, const ht_run_request *request)
{
    job->batch = choose_batch(job, request);
    if (request->input_count == 0) return HT_OK;
    HT_TRY(ht_inputs_create(&job->inputs, job->data, job->ctx));
    for (size_t i = 0; i < request->input_count; i++) HT_TRY(ht_inputs_read(job->inputs, request->inputs[i]));
    return HT_OK;
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

/* Why this start cannot use the target that the run was planned for; NULL: it can. */
static const char *refuse_recorded(const ht_job *job, const ht_target *recorded, ht_target_reason *reason)
{
    if ((recorded->device == HT_DEVICE_CUDA) != (job->target.device == HT_DEVICE_CUDA)) { /* others share kernels */
        snprintf(reason->text, sizeof reason->text, "it computes on a %s device, and this start on %s",
                 ht_device_kind_names[recorded->device], ht_device_kind_names[job->target.device]);
        return reason->text;
    }
    const char *refusal = ht_target_refusal_here(recorded, reason);
    if (refusal || ht_isa_runs((ht_isa)job->ctx->isa, recorded->isa)) return refusal;
    snprintf(reason->text, sizeof reason->text, "it needs %s, and this start is limited to %s",
             ht_isa_name(recorded->isa), ht_isa_name((ht_isa)job->ctx->isa));
    return reason->text;
}

static void say_other_target(const ht_job *job, const ht_run_request *request, const char *path, const char *refusal)
{
    ht_text line = {0};
    ht_text_add(&line,
                "%s: the run was planned for another machine: %s; it is planned for this one, whose results may differ "
                "from that one's in their last digits",
                path, refusal);
    if (request->on_note && !line.failed)
        request->on_note(request->arg, line.data);
    else
        ht_note(job->ctx, HT_LOG_WARN, "%s", line.failed ? refusal : line.data);
    ht_text_free(&line);
}

/* One for each rank of the machine. */
static ht_status name_gpu(const ht_job *job, char name[DEVICE_NAME])
{
    int local, ranks, count = ht_cuda_device_count();
    HT_TRY(ht_ranks_local(job->comm, job->ctx, &local, &ranks));
    snprintf(name, DEVICE_NAME, "cuda:%d", local);
    if (count == 0 || ranks <= count) return HT_OK;
    HT_FAIL(job->ctx, HT_EINVAL, "halftone.device: every rank needs a GPU of its own: %d ranks are here, and %d GPU%s",
            ranks, count, count == 1 ? "" : "s");
}

/* For "auto": a GPU that can be opened, or else the processor. One that is there and cannot be used is told. */
static void choose_by_itself(const ht_job *job, char name[DEVICE_NAME])
{
    ht_device *device;
    ht_status status = job->world > 1 ? name_gpu(job, name) : HT_OK;
    if (status == HT_OK) status = ht_device_get(&device, job->ctx, name);
    if (status == HT_OK) return;
    ht_note(job->ctx, HT_LOG_INFO, "no GPU: %s", ht_context_message(job->ctx));
    snprintf(name, DEVICE_NAME, "cpu");
}

static ht_status choose_device(const ht_job *job, char name[DEVICE_NAME])
{
    const char *wanted = job->train_config->device;
    bool any = strcmp(wanted, "cuda") == 0, automatic = strcmp(wanted, "auto") == 0;
    snprintf(name, DEVICE_NAME, "%s", automatic ? "cuda" : wanted);
    if (automatic) choose_by_itself(job, name);
    return any && job->world > 1 ? name_gpu(job, name) : HT_OK;
}

/* A GPU that is not among those of this machine is a mistake in the job; a job for a machine with GPUs can be planned where
 * there are none at all. */
static ht_status bind_device(ht_job *job, const ht_run_request *request)
{
    ht_device *device;
    char name[DEVICE_NAME];
    HT_TRY(choose_device(job, name));
    HT_TRY(ht_target_bind(job->ctx, &job->target, name));
    ht_device_describe(job->ctx, &job->target);
    if (request->target || ht_device_get(&device, job->ctx, name) != HT_EINVAL) return HT_OK;
    char reason[512];
    snprintf(reason, sizeof reason, "%s", ht_context_message(job->ctx));
    HT_FAIL(job->ctx, HT_EINVAL, "halftone.device: %s", reason);
}

/* A run that goes on keeps the target that it was planned for: the same instructions, so the same bits. Only the number
 * of threads, and which of the devices with these kernels, are those of this start: bits do not depend on them. */
static ht_status choose_machine(ht_job *job, const ht_run_request *request, const char *recorded)
{
    char path[4096];
    bool there;
    ht_target before;
    ht_target_reason reason;
    ht_target_here(job->ctx, &job->target);
    HT_TRY(bind_device(job, request));
    if (request->target) job->target = *request->target;
    if (request->target || !recorded) return HT_OK;
    if (snprintf(path, sizeof path, "%s/%s", recorded, ht_target_file) >= (int)sizeof path)
        HT_FAIL(job->ctx, HT_EINVAL, "%s: the path is too long", recorded);
    HT_TRY(ht_folder_check(job->ctx, recorded, ht_target_file, &there));
    if (!there) return HT_OK; /* of an older version */
    HT_TRY(ht_target_read(job->ctx, &before, path));
    const char *refusal = refuse_recorded(job, &before, &reason);
    if (refusal) {
        say_other_target(job, request, path, refusal);
        return HT_OK;
    }
    before.threads = job->target.threads;
    before.device = job->target.device;
    before.device_number = job->target.device_number;
    job->target = before;
    return HT_OK;
}

static ht_status choose_target(ht_job *job, const ht_run_request *request, const char *recorded)
{
    HT_TRY(choose_machine(job, request, recorded));
    HT_TRY(ht_ranks_common_target(job->comm, job->ctx, request, &job->target));
    job->target.liberties = 0;
    if (job->train_config->tf32) job->target.liberties |= 1u << HT_LIBERTY_TF32;
    if (job->train_config->tf32_parts) job->target.liberties |= 1u << HT_LIBERTY_TF32_PARTS;
    if (!job->train_config->deterministic) job->target.liberties |= 1u << HT_LIBERTY_ANY_ORDER;
    return HT_OK;
}

/* Keys for GPUs that change nothing on a processor, where they were given. */
static void tell_idle_keys(const ht_job *job, const ht_run_request *request)
{
    static const char *const keys[] = {"tf32", "tf32_parts", "deterministic"};
    const ht_fields *ours = ht_config_block(job->config, "halftone");
    if (!request->on_note || !job->options.training || job->target.device == HT_DEVICE_CUDA) return;
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        char line[160];
        bool asked = ht_field_given(ours, keys[i]) && ht_field_bool(ours, keys[i]) != (i == 2);
        snprintf(line, sizeof line, "halftone.%s: this is for GPUs: on a processor it changes nothing", keys[i]);
        if (asked) request->on_note(request->arg, line);
    }
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
    HT_TRY(open_data(job, request, recorded));
    HT_TRY(open_inputs(job, request));
    HT_TRY(count_steps(job));
    HT_TRY(fill_options(job, request, !ht_mode_reads_only(request->mode)));
    HT_TRY(choose_target(job, request, recorded));
    ht_job_tell_offload(job, request);
    tell_idle_keys(job, request);
    bool traced = request->no_fusion || request->mode == HT_RUN_CALIBRATE;
    return ht_job_plan(job, request, !traced, &job->plan);
}

ht_status ht_job_open(ht_job *job, ht_context *ctx, const ht_run_request *request, const char *recorded)
{
    HT_TRY(ht_job_open_plan(job, ctx, request, recorded));
    HT_TRY(ht_job_check_memory(job, request));
    job->reserve =
        ht_reserve_of(job->plan, &job->train_config->disk, job->train_config->accumulate, ht_process_peak_bytes());
    return ht_job_session(job, job->plan, &job->session);
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
    ht_status status = open_data(&job, request, request->folder);
    if (status == HT_OK) status = open_inputs(&job, request);
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
    ht_status status = open_data(&job, request, NULL);
    if (status == HT_OK) status = open_inputs(&job, request);
    if (status == HT_OK) status = count_steps(&job);
    if (status == HT_OK) status = fill_options(&job, request, true);
    if (status == HT_OK) status = choose_target(&job, request, NULL);
    if (status == HT_OK) tell_absent_device(&job, request);
    if (status == HT_OK) ht_job_tell_offload(&job, request);
    if (status == HT_OK) tell_idle_keys(&job, request);
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
