/* The bytes of an executor's places: for the host, in the order of the runs, and as inputs beside them. */
#include <stdlib.h>

#include "exec/executor_own.h"

enum { MOST_STAGE_BYTES = 64 << 20 };

ht_place ht_executor_slot_place(const ht_executor *e, ht_place place, unsigned slot)
{
    if (place.area == HT_AREA_INPUT) place.offset += (int64_t)slot * e->plan->area_bytes[place.space][HT_AREA_INPUT];
    return place;
}

static void invalidate(ht_executor *e, ht_place place, size_t bytes)
{
    for (size_t i = 0; i < e->plan->prepacked_count && place.area == HT_AREA_STATE; i++) {
        const ht_state_span *source = e->plan->prepacked[i].source;
        for (int k = 0; k < HT_PREPACK_SOURCES; k++)
            if (source[k].space == place.space && source[k].first < place.offset + (int64_t)bytes &&
                place.offset < source[k].end)
                e->prepacked[i] = STALE;
    }
}

const void *ht_executor_host(const ht_executor *e, ht_place place)
{
    return ht_device_host_address(e->device[place.space], at(e, place));
}

void *ht_executor_host_open(ht_executor *e, ht_place place, size_t bytes)
{
    (void)ht_executor_settle(e, place, bytes, true); /* a failure is told by the next run */
    invalidate(e, place, bytes);
    return ht_device_host_address(e->device[place.space], at(e, place));
}

/* In the order of the runs, by the queue of the space. */
static ht_status copy_in_order(ht_executor *e, ht_space space, void *to, const void *from, size_t bytes,
                               ht_copy_kind kind)
{
    const ht_lane *runs = lane_of_runs(e);
    const ht_lane *lane = ht_executor_lane(e, space, HT_QUEUE_COMPUTE);
    HT_TRY(ht_executor_pass_over(runs, lane));
    HT_TRY(ht_queue_copy(lane->queue, to, from, bytes, kind));
    return ht_executor_pass_over(lane, runs);
}

ht_status ht_executor_fetch(ht_executor *e, ht_place place, void *data, size_t bytes)
{
    HT_TRY(ht_executor_settle(e, place, bytes, false));
    return copy_in_order(e, place.space, data, at(e, place), bytes, HT_COPY_FROM_DEVICE);
}

ht_status ht_executor_send(ht_executor *e, ht_place place, const void *data, size_t bytes)
{
    HT_TRY(ht_executor_settle(e, place, bytes, true));
    invalidate(e, place, bytes);
    return copy_in_order(e, place.space, at(e, place), data, bytes, HT_COPY_TO_DEVICE);
}

ht_status ht_executor_feed_begin(ht_executor *e, unsigned slot)
{
    return e->read ? ht_queue_wait(e->feeds, e->read[slot]) : HT_OK;
}

/* State is read by runs of every slot: it changes in their order. The disk has no queue for feeds. */
ht_status ht_executor_feed(ht_executor *e, unsigned slot, ht_place place, const void *data, size_t bytes)
{
    if (place.area != HT_AREA_INPUT || place.space == HT_SPACE_DISK)
        return ht_executor_send(e, ht_executor_slot_place(e, place, slot), data, bytes);
    return ht_queue_copy(e->feeds, at(e, ht_executor_slot_place(e, place, slot)), data, bytes, HT_COPY_TO_DEVICE);
}

ht_status ht_executor_feed_end(ht_executor *e, unsigned slot, ht_event *sent)
{
    HT_TRY(ht_queue_record(e->feeds, sent));
    if (!e->fed) return HT_OK;
    HT_TRY(ht_queue_record(e->feeds, e->fed[slot]));
    return ht_queue_wait(e->queue, e->fed[slot]);
}

ht_status ht_executor_read(ht_executor *e, ht_place place, void *data, size_t bytes)
{
    HT_TRY(ht_executor_fetch(e, place, data, bytes));
    return ht_executor_sync(e);
}

ht_status ht_executor_write(ht_executor *e, ht_place place, const void *data, size_t bytes)
{
    HT_TRY(ht_executor_send(e, place, data, bytes));
    return ht_executor_sync(e);
}

ht_status ht_executor_view(ht_executor *e, ht_place place, size_t bytes, ht_host_copy *stage, const void **out)
{
    HT_TRY(ht_executor_settle(e, place, bytes, false));
    *out = ht_executor_host(e, place);
    if (*out) return e->device[HT_SPACE_MAIN]->class->asynchronous ? ht_executor_sync(e) : HT_OK;
    if (!stage->data || bytes > stage->bytes) {
        void *more = realloc(stage->data, bytes + 1);
        if (!more) HT_FAIL(e->plan->ctx, HT_ENOMEM, "out of memory for %zu bytes of a device", bytes);
        *stage = (ht_host_copy){more, bytes};
    }
    *out = stage->data;
    return ht_executor_read(e, place, stage->data, bytes);
}

ht_status ht_executor_view_pieces(ht_executor *e, ht_place place, size_t bytes, ht_host_copy *stage, ht_piece_fn piece,
                                  void *arg)
{
    size_t most = ht_executor_host(e, place) ? bytes : MOST_STAGE_BYTES;
    for (size_t done = 0; done < bytes; done += most) {
        size_t part = bytes - done < most ? bytes - done : most;
        const void *data;
        HT_TRY(ht_executor_view(e, place, part, stage, &data));
        HT_TRY(piece(arg, done, data, part));
        place.offset += (int64_t)part;
    }
    return HT_OK;
}

ht_status ht_executor_copy(ht_executor *e, ht_place to, ht_place from, size_t bytes)
{
    HT_TRY(ht_executor_settle(e, to, bytes, true));
    HT_TRY(ht_executor_settle(e, from, bytes, false));
    invalidate(e, to, bytes);
    return copy_in_order(e, to.space, at(e, to), at(e, from), bytes, HT_COPY_WITHIN);
}

ht_status ht_executor_copy_in(ht_executor *e, ht_place to, const void *from, size_t bytes)
{
    HT_TRY(ht_executor_settle(e, to, bytes, true));
    invalidate(e, to, bytes);
    return ht_queue_copy(e->queue, at(e, to), from, bytes, HT_COPY_WITHIN);
}

ht_status ht_executor_copy_out(ht_executor *e, void *to, ht_place from, size_t bytes)
{
    HT_TRY(ht_executor_settle(e, from, bytes, false));
    return ht_queue_copy(e->queue, to, at(e, from), bytes, HT_COPY_WITHIN);
}

ht_status ht_executor_event(const ht_executor *e, ht_event **out)
{
    return e->queue->device->class->event_create(e->queue->device, out);
}

ht_status ht_executor_record(ht_executor *e, ht_event *event)
{
    return ht_queue_record(e->queue, event);
}

ht_status ht_executor_call(ht_executor *e, void (*fn)(void *arg), void *arg)
{
    return e->queue->device->class->call(e->queue, fn, arg);
}
