/* A feed counts batches; with prefetch a thread makes the next few into slots of its own. The thread makes exactly the
 * batches whose numbers the feed will ask for, and each is a pure function of its number. */
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "data/dataset.h"

enum { SLOTS = 4 };

typedef struct slot {
    bool ready;
    uint64_t index;
    ht_batch batch; /* its arrays lie in `memory` */
    char *memory;
    ht_status status;
    char message[sizeof((ht_context *)0)->message];
} slot;

struct ht_feed {
    ht_data *data;
    ht_data_part part;
    uint64_t next; /* the batch to give next */
    bool prefetch;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t made, wanted;
    /* Under the lock: */
    bool stop;
    uint64_t making; /* the batch to make next */
    uint64_t turn;   /* counts seeks: a batch made for an older turn is thrown away */
    slot slots[SLOTS];
};

/* One batch, with what the kinds do not fill in. */
static ht_status make_batch(const ht_feed *feed, ht_context *ctx, uint64_t index, ht_batch *batch)
{
    uint64_t batches = (uint64_t)feed->data->info.parts[feed->part].batches;
    batch->rows = batch->counted = 0;
    batch->epoch = index / batches;
    batch->last = index % batches == batches - 1;
    return feed->data->kind->fill(feed->data, ctx, feed->part, index, batch);
}

static int bucket_at(const ht_feed *feed, uint64_t index)
{
    const ht_data_kind *kind = feed->data->kind;
    return kind->bucket ? kind->bucket(feed->data, feed->part, index) : 0;
}

static void lay_out_slot(const ht_feed *feed, slot *s, uint64_t index)
{
    ht_data_layout(feed->data, bucket_at(feed, index), &s->batch);
    char *at = s->memory;
    for (int i = 0; i < s->batch.array_count; i++) {
        s->batch.arrays[i].data = at;
        at += (s->batch.arrays[i].bytes + 63) / 64 * 64;
    }
}

static void *make_ahead(void *arg)
{
    ht_feed *feed = arg;
    pthread_mutex_lock(&feed->lock);
    while (!feed->stop) {
        slot *s = &feed->slots[feed->making % SLOTS];
        if (s->ready) {
            pthread_cond_wait(&feed->wanted, &feed->lock);
            continue;
        }
        uint64_t index = feed->making, turn = feed->turn;
        pthread_mutex_unlock(&feed->lock);
        ht_context messages = {0}; /* the context belongs to the caller's thread */
        lay_out_slot(feed, s, index);
        ht_status status = make_batch(feed, &messages, index, &s->batch);
        pthread_mutex_lock(&feed->lock);
        if (turn != feed->turn) continue;
        s->status = status;
        memcpy(s->message, messages.message, sizeof s->message);
        s->index = index;
        s->ready = true;
        feed->making++;
        pthread_cond_signal(&feed->made);
    }
    pthread_mutex_unlock(&feed->lock);
    return NULL;
}

static size_t memory_of(const ht_data *data)
{
    size_t most = 0;
    for (int bucket = 0; bucket < data->info.bucket_count; bucket++) {
        ht_batch batch;
        size_t bytes = 0;
        ht_data_layout(data, bucket, &batch);
        for (int i = 0; i < batch.array_count; i++) bytes += (batch.arrays[i].bytes + 63) / 64 * 64;
        if (bytes > most) most = bytes;
    }
    return most;
}

static ht_status start_thread(ht_feed *feed)
{
    size_t bytes = memory_of(feed->data);
    for (int i = 0; i < SLOTS; i++)
        if (!(feed->slots[i].memory = aligned_alloc(64, bytes + 64 - bytes % 64)))
            return ht_data_no_memory(feed->data->ctx, "batches made ahead");
    pthread_mutex_init(&feed->lock, NULL);
    pthread_cond_init(&feed->made, NULL);
    pthread_cond_init(&feed->wanted, NULL);
    if (pthread_create(&feed->thread, NULL, make_ahead, feed) != 0) {
        /* No thread is no error: the batches are the same without. */
        ht_note(feed->data->ctx, HT_LOG_WARN, "data: no thread can be had; batches are not made ahead");
        return HT_OK;
    }
    feed->prefetch = true;
    return HT_OK;
}

ht_status ht_feed_open(ht_feed **out, ht_data *data, ht_data_part part, bool prefetch)
{
    *out = NULL;
    if (data->info.parts[part].batches < 1)
        HT_FAIL(data->ctx, HT_EINVAL, "data: there is no %s part", part == HT_DATA_TRAIN ? "training" : "validation");
    ht_feed *feed = calloc(1, sizeof *feed);
    if (!feed) return ht_data_no_memory(data->ctx, "the feed");
    feed->data = data;
    feed->part = part;
    ht_status status = prefetch ? start_thread(feed) : HT_OK;
    if (status == HT_OK)
        *out = feed;
    else
        ht_feed_free(feed);
    return status;
}

void ht_feed_free(ht_feed *feed)
{
    if (!feed) return;
    if (feed->prefetch) {
        pthread_mutex_lock(&feed->lock);
        feed->stop = true;
        pthread_cond_signal(&feed->wanted);
        pthread_mutex_unlock(&feed->lock);
        pthread_join(feed->thread, NULL);
        pthread_cond_destroy(&feed->wanted);
        pthread_cond_destroy(&feed->made);
        pthread_mutex_destroy(&feed->lock);
    }
    for (int i = 0; i < SLOTS; i++) free(feed->slots[i].memory);
    free(feed);
}

int ht_feed_bucket(const ht_feed *feed)
{
    return bucket_at(feed, feed->next);
}

int64_t ht_feed_counted(const ht_feed *feed, int64_t batches)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < batches; i++)
        counted += feed->data->kind->counted(feed->data, feed->part, feed->next + (uint64_t)i);
    return counted;
}

static ht_status take_ready(ht_feed *feed, ht_batch *batch)
{
    slot *s = &feed->slots[feed->next % SLOTS];
    pthread_mutex_lock(&feed->lock);
    while (!s->ready || s->index != feed->next) pthread_cond_wait(&feed->made, &feed->lock);
    pthread_mutex_unlock(&feed->lock);
    /* The thread leaves a ready slot alone, so its bytes are copied without the lock. */
    ht_status status = s->status;
    if (status != HT_OK) status = ht_fail(feed->data->ctx, status, "%s", s->message);
    for (int i = 0; status == HT_OK && i < batch->array_count; i++)
        memcpy(batch->arrays[i].data, s->batch.arrays[i].data, batch->arrays[i].bytes);
    batch->rows = s->batch.rows;
    batch->counted = s->batch.counted;
    batch->epoch = s->batch.epoch;
    batch->last = s->batch.last;
    if (status != HT_OK) return status; /* stays, so that asking again says the same */
    pthread_mutex_lock(&feed->lock);
    s->ready = false;
    pthread_cond_signal(&feed->wanted);
    pthread_mutex_unlock(&feed->lock);
    return HT_OK;
}

ht_status ht_feed_next(ht_feed *feed, ht_batch *batch)
{
    int bucket = ht_feed_bucket(feed);
    if (batch->bucket != bucket)
        HT_FAIL(feed->data->ctx, HT_EINVAL, "data: the next batch is of bucket %d, the caller prepared %d", bucket,
                batch->bucket);
    ht_status status = feed->prefetch ? take_ready(feed, batch) : make_batch(feed, feed->data->ctx, feed->next, batch);
    if (status == HT_OK) feed->next++;
    return status;
}

uint64_t ht_feed_position(const ht_feed *feed)
{
    return feed->next;
}

void ht_feed_seek(ht_feed *feed, uint64_t position)
{
    feed->next = position;
    if (!feed->prefetch) return;
    pthread_mutex_lock(&feed->lock);
    feed->turn++;
    feed->making = position;
    for (int i = 0; i < SLOTS; i++) feed->slots[i].ready = false;
    pthread_cond_signal(&feed->wanted);
    pthread_mutex_unlock(&feed->lock);
}
