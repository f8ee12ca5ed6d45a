#include "train/batch_binding.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 64 };

/* A stage begins with the two numbers of a micro-batch. */
typedef struct numbers {
    int64_t index;
    char loss_grad[8];
} numbers;

static size_t padded(size_t bytes)
{
    return (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
}

/* ---- open ---- */

static ht_status find_input(const ht_batch_binding *b, const ht_job *job, const ht_batch_array *array,
                            const char *input, const ht_slot **out)
{
    const ht_slot *slot = *out = ht_plan_slot(b->session->plan, input);
    if (slot && (size_t)ht_type_bytes(&slot->type) != array->bytes)
        HT_FAIL(job->ctx, HT_ESHAPE, "input '%s' of the model has %" PRId64 " bytes, a batch of this data %zu", input,
                ht_type_bytes(&slot->type), array->bytes);
    return HT_OK;
}

static int find_segment(const ht_plan *plan, const char *what, const char *ending)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", what, ending);
    return ht_plan_segment_find(plan, name);
}

/* The largest bucket is the model's own, the others are its further lengths, counted from 1. */
static ht_status open_shape(ht_batch_binding *b, const ht_job *job, int bucket, size_t *bytes)
{
    ht_shape *s = &b->shapes[bucket];
    const ht_plan *plan = b->session->plan;
    char ending[16] = "", name[64];
    *bytes = padded(sizeof(numbers));
    if (bucket < b->shape_count - 1) snprintf(ending, sizeof ending, ":%d", bucket + 1);
    bool stage = ht_plan_is_stage(plan);
    s->first = find_segment(plan, stage ? "bwd_first" : "micro_first", ending);
    s->micro = find_segment(plan, stage ? "bwd" : "micro", ending);
    s->forward = find_segment(plan, ht_pipeline_part_names[HT_PIPELINE_FORWARD], ending);
    s->receive = find_segment(plan, ht_pipeline_part_names[HT_PIPELINE_RECEIVE], ending);
    s->send = find_segment(plan, ht_pipeline_part_names[HT_PIPELINE_SEND], ending);
    s->eval = find_segment(plan, "eval", ending);
    ht_data_layout(job->data, bucket, &s->batch);
    for (int i = 0; i < s->batch.array_count; i++) {
        const ht_batch_array *array = &s->batch.arrays[i];
        snprintf(name, sizeof name, "%s%s", array->name, array->rank > 1 ? ending : "");
        HT_TRY(find_input(b, job, array, name, &s->inputs[i]));
        *bytes += padded(array->bytes);
    }
    return HT_OK;
}

/* Two steps of batches: those of the step before last have left when a step begins, so that nobody waits for them. */
static ht_status open_stages(ht_batch_binding *b, const ht_job *job, size_t bytes)
{
    ht_device *device = ht_executor_device(b->session->executor);
    b->stage_count = device->class->asynchronous ? 2 * job->train_config->accumulate : 1;
    b->stages = calloc((size_t)b->stage_count, sizeof *b->stages);
    if (!b->stages) HT_FAIL(job->ctx, HT_ENOMEM, "out of memory for batches");
    for (int64_t i = 0; i < b->stage_count; i++) {
        void *memory;
        HT_TRY(ht_device_host_alloc(device, bytes, &memory));
        b->stages[i].memory = memory;
        HT_TRY(ht_executor_event(b->session->executor, &b->stages[i].sent));
    }
    return HT_OK;
}

ht_status ht_batch_binding_open(ht_batch_binding *b, const ht_job *job, ht_session *session)
{
    const ht_data_info *info = ht_data_info_of(job->data);
    size_t most = 0, bytes;
    *b = (ht_batch_binding){
        .session = session, .shape_count = info->bucket_count, .rank = job->rank, .ranks = job->ranks};
    b->shapes = calloc((size_t)b->shape_count, sizeof *b->shapes);
    if (!b->shapes) HT_FAIL(job->ctx, HT_ENOMEM, "out of memory for batches");
    b->index = ht_plan_slot(session->plan, "micro.index");
    b->loss_grad = ht_plan_slot(session->plan, "loss_grad");
    for (int i = 0; i < b->shape_count; i++) {
        HT_TRY(open_shape(b, job, i, &bytes));
        if (bytes > most) most = bytes;
    }
    return open_stages(b, job, most);
}

void ht_batch_binding_close(ht_batch_binding *b)
{
    /* Batches that are on their way are read until they have left; a failure of the device was told before. */
    if (b->session) (void)ht_executor_sync(b->session->executor);
    for (int64_t i = 0; i < b->stage_count && b->stages; i++) {
        ht_event_free(b->stages[i].sent);
        ht_device_host_free(ht_executor_device(b->session->executor), b->stages[i].memory);
    }
    free(b->stages);
    free(b->shapes);
    *b = (ht_batch_binding){0};
}

/* ---- batches ---- */

/* Where an array is made: in its input, if the host can write there. */
static void place_arrays(ht_batch_binding *b, ht_shape *shape, char *stage, unsigned slot)
{
    ht_executor *executor = b->session->executor;
    char *at = stage + padded(sizeof(numbers));
    for (int i = 0; i < shape->batch.array_count; i++) {
        ht_batch_array *array = &shape->batch.arrays[i];
        const ht_slot *input = shape->inputs[i];
        array->data = at;
        if (input && !ht_executor_device(executor)->class->asynchronous)
            array->data =
                ht_executor_host_open(executor, ht_executor_slot_place(executor, input->place, slot), array->bytes);
        at += padded(array->bytes);
    }
}

static ht_status feed_arrays(ht_batch_binding *b, const ht_shape *shape, unsigned slot)
{
    ht_executor *executor = b->session->executor;
    for (int i = 0; i < shape->batch.array_count; i++) {
        const ht_batch_array *array = &shape->batch.arrays[i];
        if (shape->inputs[i] && ht_executor_device(executor)->class->asynchronous)
            HT_TRY(ht_executor_feed(executor, slot, shape->inputs[i]->place, array->data, array->bytes));
    }
    return HT_OK;
}

static ht_status feed_numbers(ht_batch_binding *b, numbers *n, int64_t index, unsigned slot)
{
    ht_executor *executor = b->session->executor;
    n->index = index * b->ranks + b->rank;
    if (b->index) HT_TRY(ht_executor_feed(executor, slot, b->index->place, &n->index, sizeof n->index));
    if (!b->loss_grad) return HT_OK;
    ht_store_f64(n->loss_grad, b->loss_grad->type.dtype, 0, b->step_loss_grad);
    return ht_executor_feed(executor, slot, b->loss_grad->place, n->loss_grad,
                            (size_t)ht_type_bytes(&b->loss_grad->type));
}

ht_status ht_batch_binding_in_slot(ht_batch_binding *b, ht_loader *loader, int64_t index, unsigned slot,
                                   ht_bound_batch *out)
{
    ht_batch_stage *stage = &b->stages[b->turn % (uint64_t)b->stage_count];
    ht_shape *shape = &b->shapes[ht_loader_bucket(loader)];
    *out = (ht_bound_batch){shape, slot};
    if (!ht_event_done(stage->sent)) HT_TRY(ht_event_sync(stage->sent));
    place_arrays(b, shape, stage->memory, slot);
    HT_TRY(ht_loader_next(loader, &shape->batch));
    HT_TRY(ht_executor_feed_begin(b->session->executor, slot));
    HT_TRY(feed_arrays(b, shape, slot));
    HT_TRY(feed_numbers(b, (numbers *)stage->memory, index, slot));
    b->turn++;
    return ht_executor_feed_end(b->session->executor, slot, stage->sent);
}

ht_status ht_batch_binding_micro(ht_batch_binding *b, ht_loader *loader, int64_t index, ht_bound_batch *out)
{
    return ht_batch_binding_in_slot(b, loader, index, (unsigned)(b->turn % b->session->plan->input_slots), out);
}

ht_status ht_batch_binding_next(ht_batch_binding *b, ht_loader *loader, ht_bound_batch *out)
{
    return ht_batch_binding_micro(b, loader, 0, out);
}

void ht_batch_binding_step(ht_batch_binding *b, const ht_job *job, int64_t counted)
{
    double micros = (double)(job->train_config->accumulate * job->ranks);
    b->step_loss_grad = job->mean_loss ? 1 / micros : counted > 0 ? 1 / (double)counted : 0;
}
