/* The processor as a device, in two ways. "cpu" runs every command at once, in its caller's thread and the context's
 * pool. "host" is the same memory beside an accelerator: its commands wait in a queue for those of the accelerator. */
#include <stdlib.h>
#include <string.h>

#include "device/thread_queue.h"

static ht_status open_class(ht_device **out, ht_context *ctx, const ht_device_class *class)
{
    ht_device *device = calloc(1, sizeof *device);
    *out = device;
    if (!device) HT_FAIL(ctx, HT_ENOMEM, "out of memory for the device %s", class->name);
    device->class = class;
    device->ctx = ctx;
    return HT_OK;
}

static void cpu_close(ht_device *device)
{
    free(device);
}

static ht_status cpu_alloc(ht_device *device, size_t bytes, void **out)
{
    *out = ht_pages_alloc(bytes, device->ctx->pool);
    if (!*out) HT_FAIL(device->ctx, HT_ENOMEM, "%zu bytes of memory could not be had", bytes);
    return HT_OK;
}

static void cpu_free(ht_device *device, void *address)
{
    (void)device;
    free(address);
}

static bool cpu_host_address(const ht_device *device)
{
    (void)device;
    return true;
}

/* ---- cpu ---- */

static ht_status cpu_open(ht_device **out, ht_context *ctx, int number)
{
    (void)number;
    return open_class(out, ctx, &ht_device_cpu);
}

static ht_status cpu_queue_create(ht_device *device, ht_queue **out)
{
    *out = calloc(1, sizeof **out);
    if (!*out) HT_FAIL(device->ctx, HT_ENOMEM, "out of memory for a queue");
    (*out)->device = device;
    return HT_OK;
}

static void cpu_queue_free(ht_queue *queue)
{
    free(queue);
}

static ht_status cpu_prepare(ht_device *device, ht_launch *launches, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        launches[i].pool = device->ctx->pool;
        launches[i].ctx = device->ctx;
    }
    return HT_OK;
}

static void cpu_release(ht_device *device, ht_launch *launches)
{
    (void)device;
    (void)launches;
}

static ht_status cpu_launch(ht_queue *queue, ht_run_fn run, const ht_launch *launch)
{
    (void)queue;
    return run(launch);
}

static ht_status cpu_copy(ht_queue *queue, void *to, const void *from, size_t bytes, ht_copy_kind kind)
{
    (void)queue;
    (void)kind;
    memcpy(to, from, bytes);
    return HT_OK;
}

static ht_status cpu_record(ht_queue *queue, ht_event *event)
{
    (void)queue;
    ht_thread_event_set(event);
    return HT_OK;
}

static ht_status cpu_wait(ht_queue *queue, ht_event *event)
{
    (void)queue;
    return event->device->class->event_sync(event);
}

static ht_status cpu_call(ht_queue *queue, void (*fn)(void *arg), void *arg)
{
    (void)queue;
    fn(arg);
    return HT_OK;
}

static ht_status cpu_sync(ht_queue *queue)
{
    (void)queue;
    return HT_OK;
}

const ht_device_class ht_device_cpu = {
    .name = "cpu",
    .runs_host_code = true,
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .host_address = cpu_host_address,
    .queue_create = cpu_queue_create,
    .queue_free = cpu_queue_free,
    .event_create = ht_thread_event_create,
    .event_free = ht_thread_event_free,
    .prepare = cpu_prepare,
    .release = cpu_release,
    .launch = cpu_launch,
    .copy = cpu_copy,
    .record = cpu_record,
    .wait = cpu_wait,
    .call = cpu_call,
    .status = cpu_sync,
    .sync = cpu_sync,
    .event_sync = ht_thread_event_sync,
    .event_done = ht_thread_event_done,
};

/* ---- host ---- */

static ht_status host_open(ht_device **out, ht_context *ctx, int number)
{
    (void)number;
    return open_class(out, ctx, &ht_device_host);
}

static ht_status host_queue_create(ht_device *device, ht_queue **out)
{
    return ht_thread_queue_create(device, &(ht_thread_queue_hooks){0}, out);
}

static ht_status host_prepare(ht_device *device, ht_launch *launches, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        launches[i].pool = ht_thread_queue_pool(launches[i].queue);
        launches[i].ctx = ht_thread_queue_messages(launches[i].queue);
        if (!launches[i].pool) HT_FAIL(device->ctx, HT_ENOMEM, "no threads can be had for a queue of the host");
    }
    return HT_OK;
}

static ht_status host_copy(ht_queue *queue, void *to, const void *from, size_t bytes, ht_copy_kind kind)
{
    (void)kind;
    return ht_thread_queue_copy(queue, to, from, bytes);
}

const ht_device_class ht_device_host = {
    .name = "host",
    .runs_host_code = true,
    .asynchronous = true,
    .open = host_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .host_address = cpu_host_address,
    .queue_create = host_queue_create,
    .queue_free = ht_thread_queue_free,
    .event_create = ht_thread_event_create,
    .event_free = ht_thread_event_free,
    .prepare = host_prepare,
    .release = cpu_release,
    .launch = ht_thread_queue_launch,
    .copy = host_copy,
    .record = ht_thread_queue_record,
    .wait = ht_thread_queue_wait,
    .call = ht_thread_queue_call,
    .status = ht_thread_queue_status,
    .sync = ht_thread_queue_sync,
    .event_sync = ht_thread_event_sync,
    .event_done = ht_thread_event_done,
};
