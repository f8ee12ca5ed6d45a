/* The devices of a context. */
#include "device/device.h"

#include <stdlib.h>
#include <string.h>

static const ht_device_class *const classes[] = {
#define HT_DEVICE(name) &ht_device_##name,
#include "device/devices.def"
#undef HT_DEVICE
    &ht_device_host};
enum { CLASSES = sizeof classes / sizeof classes[0] };

static const ht_device_class *find_class(const char *name)
{
    for (int i = 0; i < CLASSES; i++)
        if (strcmp(classes[i]->name, name) == 0) return classes[i];
    return NULL;
}

/* The class and the number of a device's name. */
static ht_status read_name(ht_context *ctx, const char *name, const ht_device_class **class, int *number)
{
    ht_device_kind kind;
    *number = 0;
    *class = strcmp(name, ht_device_host.name) == 0 ? &ht_device_host : NULL; /* no target computes there */
    if (*class) return HT_OK;
    HT_TRY(ht_device_name_read(ctx, name, &kind, number));
    *class = find_class(ht_device_kind_names[kind]);
    return HT_OK;
}

ht_status ht_device_class_find(const ht_device_class **out, ht_context *ctx, const char *name)
{
    int number;
    *out = NULL;
    return read_name(ctx, name, out, &number);
}

static ht_status get(ht_device **out, ht_context *ctx, const ht_device_class *class, int number)
{
    *out = ctx->devices;
    while (*out && ((*out)->class != class || (*out)->number != number)) *out = (*out)->next;
    if (*out) return HT_OK;
    HT_TRY(class->open(out, ctx, number));
    (*out)->number = number;
    (*out)->next = ctx->devices;
    ctx->devices = *out;
    return HT_OK;
}

ht_status ht_device_get(ht_device **out, ht_context *ctx, const char *name)
{
    const ht_device_class *class;
    int number;
    *out = NULL;
    HT_TRY(read_name(ctx, name, &class, &number));
    return get(out, ctx, class, number);
}

void ht_device_describe(ht_context *ctx, ht_target *target)
{
    const ht_device_class *class = find_class(ht_device_kind_names[target->device]);
    ht_device *device;
    if (class->describe && get(&device, ctx, class, target->device_number) == HT_OK) class->describe(device, target);
}

void ht_devices_close(ht_context *ctx)
{
    while (ctx->devices) {
        ht_device *device = ctx->devices;
        ctx->devices = device->next;
        device->class->close(device);
    }
}

void ht_device_free(ht_device *device, void *address)
{
    if (address) device->class->free(device, address);
}

ht_status ht_device_host_alloc(ht_device *device, size_t bytes, void **out)
{
    enum { LINE_BYTES = 64 };
    if (device->class->host_alloc) return device->class->host_alloc(device, bytes, out);
    bytes = (bytes + LINE_BYTES - 1) / LINE_BYTES * LINE_BYTES;
    *out = aligned_alloc(LINE_BYTES, bytes);
    if (!*out) HT_FAIL(device->ctx, HT_ENOMEM, "%zu bytes of memory could not be had", bytes);
    memset(*out, 0, bytes);
    return HT_OK;
}

void ht_device_host_free(ht_device *device, void *address)
{
    if (!address) return;
    if (device->class->host_free)
        device->class->host_free(device, address);
    else
        free(address);
}

ht_status ht_queue_sync(ht_queue *queue)
{
    queue->device->syncs++;
    return queue->device->class->sync(queue);
}

ht_status ht_queue_launch_now(ht_queue *queue, ht_run_fn run, ht_launch *launch)
{
    const ht_device_class *class = queue->device->class;
    launch->prepared = NULL;
    ht_status status = class->prepare(queue->device, launch, 1);
    if (status == HT_OK) status = class->launch(queue, run, launch);
    ht_status end = ht_queue_sync(queue); /* also after a failure: what was launched reads the launch */
    class->release(queue->device, launch);
    return status != HT_OK ? status : end;
}

ht_status ht_event_sync(ht_event *event)
{
    event->device->syncs++;
    return event->device->class->event_sync(event);
}

void ht_queue_free(ht_queue *queue)
{
    if (queue) queue->device->class->queue_free(queue);
}

void ht_event_free(ht_event *event)
{
    if (event) event->device->class->event_free(event);
}
