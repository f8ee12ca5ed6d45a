#include "train/batches.h"

#include <stdio.h>
#include <stdlib.h>

/* The largest bucket is the model's own, the others are its further lengths, counted from 1. */
static ht_status open_shape(ht_batches *b, const ht_job *job, const ht_plan *plan, int bucket)
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
        array->data = calloc(1, array->bytes + 1);
        if (!array->data) HT_FAIL(job->ctx, HT_ENOMEM, "out of memory for batches");
        snprintf(s->inputs[i], sizeof s->inputs[i], "%s%s", array->name, array->rank > 1 ? ending : "");
        if (!ht_plan_slot(plan, s->inputs[i])) s->inputs[i][0] = '\0';
    }
    return HT_OK;
}

ht_status ht_batches_open(ht_batches *b, const ht_job *job, const ht_plan *plan)
{
    const ht_data_info *info = ht_data_info_of(job->data);
    int64_t length = info->buckets[info->bucket_count - 1].length;
    *b = (ht_batches){.shape_count = info->bucket_count};
    b->shapes = calloc((size_t)b->shape_count, sizeof *b->shapes);
    if (!b->shapes) HT_FAIL(job->ctx, HT_ENOMEM, "out of memory for batches");
    b->rows_of_micro = job->recipe->micro_batch * (length > 0 ? length : 1);
    b->has_sample = ht_plan_slot(plan, "rng.sample") != NULL;
    for (int i = 0; i < b->shape_count; i++) HT_TRY(open_shape(b, job, plan, i));
    return HT_OK;
}

void ht_batches_close(ht_batches *b)
{
    for (int i = 0; i < b->shape_count && b->shapes; i++)
        for (int k = 0; k < b->shapes[i].batch.array_count; k++) free(b->shapes[i].batch.arrays[k].data);
    free(b->shapes);
}

ht_status ht_batches_next(ht_batches *b, ht_feed *feed, ht_session *session, ht_shape **shape)
{
    ht_shape *s = &b->shapes[ht_feed_bucket(feed)];
    HT_TRY(ht_feed_next(feed, &s->batch));
    for (int i = 0; i < s->batch.array_count; i++)
        if (s->inputs[i][0])
            HT_TRY(ht_session_write(session, s->inputs[i], s->batch.arrays[i].data, s->batch.arrays[i].bytes));
    *shape = s;
    return HT_OK;
}

ht_status ht_batches_micro(ht_batches *b, ht_feed *feed, int64_t index, ht_session *session, ht_shape **shape)
{
    HT_TRY(ht_batches_next(b, feed, session, shape));
    int64_t sample = index * b->rows_of_micro;
    return b->has_sample ? ht_session_write(session, "rng.sample", &sample, sizeof sample) : HT_OK;
}

ht_status ht_batches_seed(const ht_job *job, ht_session *session, int64_t counted)
{
    double micros = (double)job->recipe->accumulate;
    double seed = job->mean_loss ? 1 / micros : counted > 0 ? 1 / (double)counted : 0;
    return ht_session_write_f64(session, "seed", &seed, 1);
}
