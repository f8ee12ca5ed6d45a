#include "train/batch_binding.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "exec/exec.h"

/* Where the batches of an array are made: in the input's own memory, so that nothing is copied. */
static ht_status place_array(const ht_batch_binding *b, const ht_job *job, ht_batch_array *array, const char *input,
                             void **unread)
{
    const ht_slot *slot = ht_plan_slot(b->session->plan, input);
    if (slot && (size_t)ht_type_bytes(&slot->type) != array->bytes)
        HT_FAIL(job->ctx, HT_ESHAPE, "input '%s' of the model has %" PRId64 " bytes, a batch of this data %zu", input,
                ht_type_bytes(&slot->type), array->bytes);
    if (slot)
        array->data = ht_executor_open(b->session->executor, slot->place, ht_type_bytes(&slot->type));
    else if (!(array->data = *unread = calloc(1, array->bytes + 1)))
        HT_FAIL(job->ctx, HT_ENOMEM, "out of memory for batches");
    return HT_OK;
}

/* The largest bucket is the model's own, the others are its further lengths, counted from 1. */
static ht_status open_shape(ht_batch_binding *b, const ht_job *job, int bucket)
{
    ht_shape *s = &b->shapes[bucket];
    char ending[16] = "";
    if (bucket < b->shape_count - 1) snprintf(ending, sizeof ending, ":%d", bucket + 1);
    snprintf(s->first, sizeof s->first, "micro_first%s", ending);
    snprintf(s->micro, sizeof s->micro, "micro%s", ending);
    snprintf(s->eval, sizeof s->eval, "eval%s", ending);
    ht_data_layout(job->data, bucket, &s->batch);
    for (int i = 0; i < s->batch.array_count; i++) {
        ht_batch_array *array = &s->batch.arrays[i];
        char name[64];
        snprintf(name, sizeof name, "%s%s", array->name, array->rank > 1 ? ending : "");
        HT_TRY(place_array(b, job, array, name, &s->unread[i]));
    }
    return HT_OK;
}

ht_status ht_batch_binding_open(ht_batch_binding *b, const ht_job *job, ht_session *session)
{
    const ht_data_info *info = ht_data_info_of(job->data);
    int64_t length = info->buckets[info->bucket_count - 1].length;
    *b = (ht_batch_binding){.session = session, .shape_count = info->bucket_count};
    b->shapes = calloc((size_t)b->shape_count, sizeof *b->shapes);
    if (!b->shapes) HT_FAIL(job->ctx, HT_ENOMEM, "out of memory for batches");
    b->rows_of_micro = job->train_config->micro_batch * (length > 0 ? length : 1);
    b->has_sample = ht_plan_slot(session->plan, "rng.sample") != NULL;
    for (int i = 0; i < b->shape_count; i++) HT_TRY(open_shape(b, job, i));
    return HT_OK;
}

void ht_batch_binding_close(ht_batch_binding *b)
{
    for (int i = 0; i < b->shape_count && b->shapes; i++)
        for (int k = 0; k < HT_BATCH_MOST_ARRAYS; k++) free(b->shapes[i].unread[k]);
    free(b->shapes);
}

ht_status ht_batch_binding_next(ht_batch_binding *b, ht_loader *loader, ht_shape **shape)
{
    *shape = &b->shapes[ht_loader_bucket(loader)];
    return ht_loader_next(loader, &(*shape)->batch);
}

ht_status ht_batch_binding_micro(ht_batch_binding *b, ht_loader *loader, int64_t index, ht_shape **shape)
{
    HT_TRY(ht_batch_binding_next(b, loader, shape));
    int64_t sample = index * b->rows_of_micro;
    return b->has_sample ? ht_session_write(b->session, "rng.sample", &sample, sizeof sample) : HT_OK;
}

ht_status ht_batch_binding_loss_grad(const ht_job *job, ht_session *session, int64_t counted)
{
    double micros = (double)job->train_config->accumulate;
    double loss_grad = job->mean_loss ? 1 / micros : counted > 0 ? 1 / (double)counted : 0;
    return ht_session_write_f64(session, "loss_grad", &loss_grad, 1);
}
