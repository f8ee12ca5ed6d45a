/* The loader: counts batches, and with prefetch has a thread make the next few into slots of its own. The thread makes
 * exactly the batches that will be requested, and each is a pure function of its index. */
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

struct ht_loader {
    ht_data *data;
    ht_data_part part;
    uint64_t next; /* the round of batches, one for each share, whose own is to be given next: its first */
    uint64_t share, shares;
    bool prefetch;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t made, wanted;
    /* Under the lock: */
    bool stop;
    uint64_t making; /* the round whose batch is to be made next */
    uint64_t turn;   /* counts seeks: a batch made for an older turn is thrown away */
    slot slots[SLOTS];
};

/* Its own batch of a round. */
static uint64_t own_of(const ht_loader *loader, uint64_t round)
{
    return round + loader->share;
}

static slot *slot_of(ht_loader *loader, uint64_t round)
{
    return &loader->slots[round / loader->shares % SLOTS];
}

/* Makes one batch, with the fields that all kinds share. */
static ht_status make_batch(const ht_loader *loader, ht_context *ctx, uint64_t index, ht_batch *batch)
{
    uint64_t batches = (uint64_t)loader->data->info.parts[loader->part].batches;
    batch->rows = batch->counted = 0;
    batch->epoch = index / batches;
    batch->last = index % batches == batches - 1;
    return loader->data->kind->fill(loader->data, ctx, loader->part, index, batch);
}

static int bucket_at(const ht_loader *loader, uint64_t index)
{
    const ht_data_kind *kind = loader->data->kind;
    return kind->bucket ? kind->bucket(loader->data, loader->part, index) : 0;
}

static void lay_out_slot(const ht_loader *loader, slot *s, uint64_t index)
{
    ht_data_layout(loader->data, bucket_at(loader, index), &s->batch);
    char *at = s->memory;
    for (int i = 0; i < s->batch.array_count; i++) {
        s->batch.arrays[i].data = at;
        at += (s->batch.arrays[i].bytes + 63) / 64 * 64;
    }
}

static void *make_ahead(void *arg)
{
    ht_loader *loader = arg;
    pthread_mutex_lock(&loader->lock);
    while (!loader->stop) {
        slot *s = slot_of(loader, loader->making);
        if (s->ready) {
            pthread_cond_wait(&loader->wanted, &loader->lock);
            continue;
        }
        uint64_t index = own_of(loader, loader->making), turn = loader->turn;
        pthread_mutex_unlock(&loader->lock);
        ht_context messages = {0}; /* the context belongs to the caller's thread */
        lay_out_slot(loader, s, index);
        ht_status status = make_batch(loader, &messages, index, &s->batch);
        pthread_mutex_lock(&loader->lock);
        if (turn != loader->turn) continue;
        s->status = status;
        memcpy(s->message, messages.message, sizeof s->message);
        s->index = index;
        s->ready = true;
        loader->making += loader->shares;
        pthread_cond_signal(&loader->made);
    }
    pthread_mutex_unlock(&loader->lock);
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

static ht_status start_thread(ht_loader *loader)
{
    size_t bytes = memory_of(loader->data);
    for (int i = 0; i < SLOTS; i++)
        if (!(loader->slots[i].memory = aligned_alloc(64, bytes + 64 - bytes % 64)))
            return ht_data_no_memory(loader->data->ctx, "batches made ahead");
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->made, NULL);
    pthread_cond_init(&loader->wanted, NULL);
    if (pthread_create(&loader->thread, NULL, make_ahead, loader) != 0) {
        /* A failure to start the thread is ignored: the batches are the same without it. */
        ht_note(loader->data->ctx, HT_LOG_WARN, "data: no thread can be had; batches are not made ahead");
        return HT_OK;
    }
    loader->prefetch = true;
    return HT_OK;
}

ht_status ht_loader_open(ht_loader **out, ht_data *data, ht_data_part part, bool prefetch)
{
    return ht_loader_open_share(out, data, part, prefetch, 0, 1);
}

ht_status ht_loader_open_share(ht_loader **out, ht_data *data, ht_data_part part, bool prefetch, int64_t share,
                               int64_t shares)
{
    *out = NULL;
    if (data->info.parts[part].batches < 1)
        HT_FAIL(data->ctx, HT_EINVAL, "data: there is no %s part", part == HT_DATA_TRAIN ? "training" : "validation");
    ht_loader *loader = calloc(1, sizeof *loader);
    if (!loader) return ht_data_no_memory(data->ctx, "the loader");
    loader->data = data;
    loader->part = part;
    loader->share = (uint64_t)share;
    loader->shares = (uint64_t)shares;
    ht_status status = prefetch ? start_thread(loader) : HT_OK;
    if (status == HT_OK)
        *out = loader;
    else
        ht_loader_free(loader);
    return status;
}

void ht_loader_free(ht_loader *loader)
{
    if (!loader) return;
    if (loader->prefetch) {
        pthread_mutex_lock(&loader->lock);
        loader->stop = true;
        pthread_cond_signal(&loader->wanted);
        pthread_mutex_unlock(&loader->lock);
        pthread_join(loader->thread, NULL);
        pthread_cond_destroy(&loader->wanted);
        pthread_cond_destroy(&loader->made);
        pthread_mutex_destroy(&loader->lock);
    }
    for (int i = 0; i < SLOTS; i++) free(loader->slots[i].memory);
    free(loader);
}

int ht_loader_bucket(const ht_loader *loader)
{
    return bucket_at(loader, own_of(loader, loader->next));
}

int64_t ht_loader_counted(const ht_loader *loader, int64_t batches)
{
    int64_t counted = 0;
    for (int64_t i = 0; i < batches * (int64_t)loader->shares; i++)
        counted += loader->data->kind->counted(loader->data, loader->part, loader->next + (uint64_t)i);
    return counted;
}

static ht_status take_ready(ht_loader *loader, ht_batch *batch)
{
    slot *s = slot_of(loader, loader->next);
    pthread_mutex_lock(&loader->lock);
    while (!s->ready || s->index != own_of(loader, loader->next)) pthread_cond_wait(&loader->made, &loader->lock);
    pthread_mutex_unlock(&loader->lock);
    /* The thread leaves a ready slot alone, so its bytes are copied without the lock. */
    ht_status status = s->status;
    if (status != HT_OK) status = ht_fail(loader->data->ctx, status, "%s", s->message);
    for (int i = 0; status == HT_OK && i < batch->array_count; i++)
        memcpy(batch->arrays[i].data, s->batch.arrays[i].data, batch->arrays[i].bytes);
    batch->rows = s->batch.rows;
    batch->counted = s->batch.counted;
    batch->epoch = s->batch.epoch;
    batch->last = s->batch.last;
    if (status != HT_OK) return status; /* stays, so that asking again says the same */
    pthread_mutex_lock(&loader->lock);
    s->ready = false;
    pthread_cond_signal(&loader->wanted);
    pthread_mutex_unlock(&loader->lock);
    return HT_OK;
}

ht_status ht_loader_next(ht_loader *loader, ht_batch *batch)
{
    int bucket = ht_loader_bucket(loader);
    if (batch->bucket != bucket)
        HT_FAIL(loader->data->ctx, HT_EINVAL, "data: the next batch is of bucket %d, the caller prepared %d", bucket,
                batch->bucket);
    ht_status status = loader->prefetch ? take_ready(loader, batch)
                                        : make_batch(loader, loader->data->ctx, own_of(loader, loader->next), batch);
    if (status == HT_OK) loader->next += loader->shares;
    return status;
}

uint64_t ht_loader_position(const ht_loader *loader)
{
    return loader->next;
}

void ht_loader_seek(ht_loader *loader, uint64_t position)
{
    loader->next = position;
    if (!loader->prefetch) return;
    pthread_mutex_lock(&loader->lock);
    loader->turn++;
    loader->making = position;
    for (int i = 0; i < SLOTS; i++) loader->slots[i].ready = false;
    pthread_cond_signal(&loader->wanted);
    pthread_mutex_unlock(&loader->lock);
}
