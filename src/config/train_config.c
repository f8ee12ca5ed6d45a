#include "config/internal.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int64_t int_or(const ht_fields *fields, const char *name, int64_t otherwise)
{
    return ht_field_null(fields, name) ? otherwise : ht_field_int(fields, name);
}

/* ---- the optimiser ---- */

/* Where a hyper-parameter is given: the train block, else DeepSpeed's params. NULL: nowhere, or null. */
static const ht_json *hyper_value(const ht_fields *train, const ht_fields *engine, const char *name)
{
    char param[80];
    bool start = strcmp(name, "initial_accumulator") == 0; /* DeepSpeed calls it a value */
    snprintf(param, sizeof param, "optimizer.params.%s%s", name, start ? "_value" : "");
    const ht_field *field = ht_fields_find(train, name);
    if (field == NULL) field = ht_fields_find(engine, param);
    return field != NULL && field->value->kind != HT_JSON_NULL ? field->value : NULL;
}

static void fill_optimizer(ht_train_config *t, const ht_fields *train, const ht_fields *engine)
{
    t->optimizer = ht_optimizer_find(ht_field_text(train, "optimizer"), NULL);
    t->hyper = ht_optimizer_standards(t->optimizer);
    t->lr = ht_field_number(train, "lr");
    t->decay_all = strcmp(ht_field_text(train, "decay"), "all") == 0;
    for (const ht_setting_key *key = ht_hyper_keys; key->name != NULL; key++) {
        const ht_json *value = hyper_value(train, engine, key->name);
        char *field = (char *)&t->hyper + key->at;
        if (value == NULL) continue;
        if (key->kind == HT_SETTING_SWITCH)
            *(bool *)field = value->boolean;
        else
            ht_json_as_number(value, (double *)field);
    }
    t->hyper.beta1 = ht_field_number_at(train, "betas", 0);
    t->hyper.beta2 = ht_field_number_at(train, "betas", 1);
}

/* ---- precision ---- */

/* What a text holds, in the config's memory; NULL and a note of it when there is none to be had. */
static const char *owned(ht_config *c, ht_text *text)
{
    const char *copy = text->failed || text->data == NULL ? NULL : ht_arena_text(c->arena, text->data, text->length);
    c->problems.failed |= copy == NULL;
    ht_text_free(text);
    return copy;
}

static const char *joined(ht_config *c, const ht_fields *fields, const char *name)
{
    ht_text text = {0};
    size_t count = ht_field_count(fields, name);
    if (count == 0) return NULL;
    for (size_t i = 0; i < count; i++) ht_text_add(&text, "%s%s", i ? "," : "", ht_field_text_at(fields, name, i));
    return owned(c, &text);
}

static const char *scale_text(ht_config *c, const ht_json *value)
{
    double number = 1;
    ht_text text = {0};
    if (value->kind == HT_JSON_STRING) return value->text;
    ht_json_as_number(value, &number);
    ht_text_number(&text, number);
    return owned(c, &text);
}

static bool is_half(const char *word)
{
    return word != NULL && (strcmp(word, "fp16") == 0 || strcmp(word, "bf16") == 0);
}

static void fill_precision(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE],
                    *halftone = c->blocks[BLOCK_HALFTONE];
    ht_train_config *r = &c->train_config;
    r->precision = ht_field_text(train, "precision");
    r->fixed_scale = 1;
    r->loss_scale = scale_text(c, ht_fields_find(train, "loss_scale")->value);
    ht_json_as_number(ht_fields_find(train, "loss_scale")->value, &r->fixed_scale);
    r->scale_power = ht_field_int(engine, "fp16.initial_scale_power");
    r->scale_window = ht_field_int(engine, "fp16.loss_scale_window");
    r->scale_hysteresis = ht_field_int(engine, "fp16.hysteresis");
    r->scale_consecutive = ht_field_bool(engine, "fp16.consecutive_hysteresis");
    r->scale_min = fmax(1, ht_field_number(engine, "fp16.min_loss_scale"));
    r->masters = ht_field_bool(train, "masters");
    bool fp16_alone =
        ht_field_bool(engine, "fp16.enabled") && ht_field_bool(engine, "fp16.fp16_master_weights_and_grads");
    bool bf16_alone =
        ht_field_bool(engine, "bf16.enabled") && ht_field_bool(engine, "bf16.bf16_master_weights_and_grads");
    const char *accumulators = ht_field_text(engine, "data_types.grad_accum_dtype");
    r->half_gradients = accumulators != NULL ? is_half(accumulators) : fp16_alone || bf16_alone;
    r->half_moments = ht_field_bool(engine, "bf16.enabled") && ht_field_bool(engine, "bf16.bf16_optimizer_states");
    r->device = ht_field_text(halftone, "device");
    r->cuda_graphs = ht_field_bool(halftone, "cuda_graphs");
    r->deterministic = ht_field_bool(halftone, "deterministic");
    r->tf32 = ht_field_bool(halftone, "tf32");
    r->tf32_parts = ht_field_bool(halftone, "tf32_parts");
    r->residual = ht_field_text(halftone, "residual");
    r->fp32_ops = joined(c, halftone, "fp32_ops");
    r->half_ops = joined(c, halftone, "half_ops");
    r->fp32_params = ht_field_text(halftone, "fp32_params");
    r->rounding = ht_field_text(halftone, "rounding");
    r->fp8_recipe = ht_field_text(halftone, "fp8.recipe");
    r->fp8_history = ht_field_int(halftone, "fp8.history");
}

/* ---- offload ---- */

static void fill_offload(ht_train_config *t, const ht_fields *engine)
{
    t->offload_optimizer = ht_field_text(engine, "zero_optimization.offload_optimizer.device");
    t->offload_param = ht_field_text(engine, "zero_optimization.offload_param.device");
    t->offload_persistent = ht_field_int(engine, "zero_optimization.stage3_param_persistence_threshold");
    t->offload_tile = ht_field_int(engine, "zero_optimization.sub_group_size");
    t->offload_buffers = ht_field_int(engine, "zero_optimization.offload_optimizer.buffer_count");
    t->offload_ratio = ht_field_number(engine, "zero_optimization.offload_optimizer.ratio");
}

/* ---- the disk ---- */

/* A session has one folder: our own key's, else that of the optimiser's state. */
const char *ht_disk_folder(const ht_config *c)
{
    const ht_fields *halftone = c->blocks[BLOCK_HALFTONE], *engine = c->blocks[BLOCK_ENGINE];
    const char *folder = ht_field_text(halftone, "disk_folder");
    if (folder == NULL) folder = ht_field_text(engine, "zero_optimization.offload_optimizer.nvme_path");
    return folder != NULL ? folder : ht_field_text(engine, "zero_optimization.offload_param.nvme_path");
}

static void fill_disk(ht_config *c)
{
    const ht_fields *halftone = c->blocks[BLOCK_HALFTONE], *engine = c->blocks[BLOCK_ENGINE];
    ht_train_config *r = &c->train_config;
    r->disk_folder = ht_disk_folder(c);
    r->disk = (ht_disk_opts)HT_DISK_OPTS;
    r->disk.block_size = (size_t)ht_field_int(engine, "aio.block_size");
    r->disk.queue_depth = (int)ht_field_int(engine, "aio.queue_depth");
    r->disk.intra_op_parallelism = (int)ht_field_int(engine, "aio.intra_op_parallelism");
    r->disk.single_submit = ht_field_bool(engine, "aio.single_submit");
    r->disk.overlap_events = ht_field_bool(engine, "aio.overlap_events");
    r->disk.threads = strcmp(ht_field_text(halftone, "disk_engine"), "threads") == 0;
    r->disk.keep_files = ht_field_bool(halftone, "disk_keep_files");
}

/* ---- the schedule ---- */

static const char *schedule_name(const ht_fields *train, const ht_fields *engine)
{
    const char *ours = ht_field_text(train, "schedule");
    if (strcmp(ours, "engine") == 0) return ht_field_text(engine, "scheduler.type");
    if (strcmp(ours, "constant") == 0) return int_or(train, "warmup", 0) > 0 ? "warmup" : "constant";
    return ours;
}

static double number_of(const ht_fields *fields, const char *name)
{
    const ht_field *field = ht_fields_find(fields, name);
    if (field == NULL || field->value->kind == HT_JSON_NULL) return NAN;
    if (field->value->kind == HT_JSON_BOOL) return field->value->boolean;
    return ht_field_count(fields, name) > 0 ? ht_field_number_at(fields, name, 0) : NAN;
}

/* A tenth of all steps, 100 at most. */
static double usual_warmup(int64_t steps)
{
    return (double)(steps / 10 < 100 ? steps / 10 : 100);
}

static double engine_number(const ht_fields *train, const ht_fields *engine, const char *name, int64_t steps)
{
    char whole[80];
    if (strcmp(name, "warmup_linear") == 0) {
        const ht_field *type = ht_fields_find(engine, "scheduler.params.warmup_type");
        return type != NULL ? strcmp(type->value->text, "linear") == 0 : NAN;
    }
    snprintf(whole, sizeof whole, "scheduler.params.%s", name);
    double number = number_of(engine, whole);
    /* "auto" in a job by epochs: its steps are known only now. */
    if (strcmp(name, "warmup_num_steps") == 0 && ht_field_null(train, "warmup")) return fmax(1, usual_warmup(steps));
    return isnan(number) && strcmp(name, "total_num_steps") == 0 ? (double)steps : number;
}

double ht_config_schedule_number(const ht_config *config, const char *name, int64_t steps)
{
    const ht_fields *train = config->blocks[BLOCK_TRAIN];
    const char *ours = ht_field_text(train, "schedule");
    if (strcmp(ours, "engine") == 0) return engine_number(train, config->blocks[BLOCK_ENGINE], name, steps);
    double warmup = number_of(train, "warmup");
    if (isnan(warmup)) warmup = usual_warmup(steps);
    const struct {
        const char *name;
        double value;
    } numbers[] = {
        {"warmup_steps", warmup},
        {"decay_steps", (double)steps},
        {"min_lr", number_of(train, "lr_min")},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++)
        if (strcmp(numbers[i].name, name) == 0) return numbers[i].value;
    return NAN;
}

/* ---- ranks ---- */

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static ht_zero_exchange_type exchange_type(const ht_fields *engine)
{
    const char *name = ht_field_text(engine, "communication_data_type");
    if (!name) return ht_field_bool(engine, "fp32_allreduce") ? HT_ZERO_AS_F32 : HT_ZERO_AS_ACCUMULATED;
    if (strcmp(name, "fp32") == 0) return HT_ZERO_AS_F32;
    return strcmp(name, "fp16") == 0 ? HT_ZERO_AS_F16 : HT_ZERO_AS_BF16;
}

static void fill_zero(ht_train_config *r, const ht_fields *engine, const ht_fields *own)
{
    r->zero = (ht_zero_options){
        .ranks = r->data_ranks,
        .stage = ht_field_int(engine, "zero_optimization.stage"),
        .reduce_bucket = ht_field_int(engine, "zero_optimization.reduce_bucket_size"),
        .gather_bucket = ht_field_int(engine, "zero_optimization.allgather_bucket_size"),
        .persistent = ht_field_int(engine, "zero_optimization.stage3_param_persistence_threshold"),
        .prefetch = least(ht_field_int(engine, "zero_optimization.stage3_prefetch_bucket_size"),
                          ht_field_int(engine, "zero_optimization.stage3_max_live_parameters")),
        .overlap = ht_field_null(engine, "zero_optimization.overlap_comm") ||
                   ht_field_bool(engine, "zero_optimization.overlap_comm"),
        .exchange_type = exchange_type(engine),
        .sync_batchnorm = ht_field_bool(own, "sync_batchnorm"),
    };
}

/* ---- the whole ---- */

void ht_train_config_fill(ht_config *c)
{
    const ht_fields *train = c->blocks[BLOCK_TRAIN], *engine = c->blocks[BLOCK_ENGINE];
    ht_train_config *r = &c->train_config;
    r->steps = int_or(train, "steps", 0);
    r->epochs = int_or(train, "epochs", 0);
    r->batch = ht_field_int(train, "batch");
    r->micro_batch = ht_field_int(train, "micro_batch");
    r->accumulate = ht_field_int(train, "accumulate");
    r->ranks = c->ranks;
    r->data_ranks = c->data_ranks;
    r->pipeline = c->pipeline;
    r->tensor = c->tensor;
    r->sequence = ht_field_bool(c->blocks[BLOCK_HALFTONE], "parallel.sequence");
    r->seed = (uint64_t)ht_field_int(train, "seed");
    r->eval_every = ht_field_int(train, "eval_every");
    r->eval_batches = int_or(train, "eval_batches", 0);
    r->snapshot_every = ht_field_int(train, "snapshot_every");
    r->keep = ht_field_int(train, "keep");
    r->log_every = ht_field_int(train, "log_every");
    r->output = ht_field_text(train, "output");
    r->clip = ht_field_number(train, "clip");
    fill_precision(c);
    fill_disk(c);
    fill_optimizer(r, train, engine);
    fill_offload(r, engine);
    fill_zero(r, engine, c->blocks[BLOCK_HALFTONE]);
    r->check_replicas = ht_field_int(c->blocks[BLOCK_HALFTONE], "check_replicas");
    r->task = ht_field_text(train, "task");
    r->label_smoothing = ht_field_number(train, "label_smoothing");
    r->schedule = schedule_name(train, engine);
    ht_fine_tuning_fill(c);
    ht_memory_fill(c);
}
