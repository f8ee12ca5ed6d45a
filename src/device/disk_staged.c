/* Copies between the disk and a device whose memory the host cannot address: in pieces, through two stages in memory of
 * the host. While the disk works on one, a queue of the other device works on the other. All commands are submitted at
 * once; events keep their order. */
#include <stdlib.h>

#include "device/disk_own.h"

enum { STAGES = 2 };

struct disk_stage {
    ht_device *device; /* the other one */
    ht_queue *peer;    /* its queue */
    size_t bytes;      /* of a stage */
    void *memory[STAGES];
    ht_event *disk_did[STAGES], *peer_did[STAGES]; /* its part of the piece in that stage */
    ht_event *begin, *end;                         /* of a copy: of the disk's queue, of the peer's */
};

ht_status ht_disk_stage_create(disk_stage **out, disk_device *d)
{
    disk_stage *s = *out = calloc(1, sizeof *s);
    if (!s) HT_FAIL(d->base.ctx, HT_ENOMEM, "out of memory for a queue of the disk");
    s->device = d->user.main;
    s->bytes = d->block_bytes * (size_t)((d->depth + 1) / 2);
    HT_TRY(s->device->class->queue_create(s->device, &s->peer));
    HT_TRY(d->base.class->event_create(&d->base, &s->begin));
    HT_TRY(s->device->class->event_create(s->device, &s->end));
    for (int i = 0; i < STAGES; i++) {
        HT_TRY(ht_device_host_alloc(s->device, s->bytes, &s->memory[i]));
        HT_TRY(d->base.class->event_create(&d->base, &s->disk_did[i]));
        HT_TRY(s->device->class->event_create(s->device, &s->peer_did[i]));
    }
    return HT_OK;
}

void ht_disk_stage_free(disk_stage *s)
{
    if (!s) return;
    ht_queue_free(s->peer);
    ht_event_free(s->begin);
    ht_event_free(s->end);
    for (int i = 0; i < STAGES; i++) {
        ht_event_free(s->disk_did[i]);
        ht_event_free(s->peer_did[i]);
        ht_device_host_free(s->device, s->memory[i]);
    }
    free(s);
}

ht_queue *ht_disk_stage_peer(const disk_stage *s)
{
    return s->peer;
}

/* One side's part of a piece. */
typedef struct side {
    ht_queue *queue;
    ht_event **did;
    ht_copy_kind kind;
} side;

/* `first` fills the stage, `second` empties it; the stage is free again once it was emptied. */
static ht_status copy_piece(disk_stage *s, const side *first, const side *second, size_t piece, void *to,
                            const void *from, size_t bytes)
{
    size_t i = piece % STAGES;
    if (piece >= STAGES) HT_TRY(ht_queue_wait(first->queue, second->did[i]));
    HT_TRY(ht_queue_copy(first->queue, s->memory[i], from, bytes, first->kind));
    HT_TRY(ht_queue_record(first->queue, first->did[i]));
    HT_TRY(ht_queue_wait(second->queue, first->did[i]));
    HT_TRY(ht_queue_copy(second->queue, to, s->memory[i], bytes, second->kind));
    return ht_queue_record(second->queue, second->did[i]);
}

ht_status ht_disk_stage_copy(disk_stage *s, ht_queue *queue, void *to, const void *from, size_t bytes)
{
    bool writes = ht_disk_find((const disk_device *)queue->device, to) != NULL;
    side disk = {queue, s->disk_did, writes ? HT_COPY_TO_DEVICE : HT_COPY_FROM_DEVICE};
    side peer = {s->peer, s->peer_did, writes ? HT_COPY_FROM_DEVICE : HT_COPY_TO_DEVICE};
    HT_TRY(ht_queue_record(queue, s->begin));
    HT_TRY(ht_queue_wait(s->peer, s->begin));
    for (size_t done = 0, piece = 0; done < bytes; done += s->bytes, piece++) {
        size_t part = bytes - done < s->bytes ? bytes - done : s->bytes;
        HT_TRY(copy_piece(s, writes ? &peer : &disk, writes ? &disk : &peer, piece, (char *)to + done,
                          (const char *)from + done, part));
    }
    HT_TRY(ht_queue_record(s->peer, s->end));
    return ht_queue_wait(queue, s->end);
}
