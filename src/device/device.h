/* device: the machines that compute. A device is memory, queues of commands, events between queues, and a way to launch
 * kernels. Graphs name roles (@main, @host, @disk); a job binds them to devices by name: "cpu", "cuda:1". The rooms above
 * reach the bytes of a device only through it. No kernel lives here: a launch carries the function that runs it. */
#ifndef HT_DEVICE_H
#define HT_DEVICE_H

#include "graph/graph.h"

typedef struct ht_device ht_device;
typedef struct ht_queue ht_queue;
typedef struct ht_event ht_event;
typedef struct ht_recording ht_recording;
struct ht_fused;
struct ht_row_block;
struct ht_nonfinite;
struct ht_kernel;
struct ht_comm;

/* All that a kernel gets. Pointers are those of the first element; strides are in the call's types. A kernel allocates
 * nothing: what it needs beyond small stack arrays it asks for with `workspace`. */
typedef struct ht_launch {
    const ht_call *call;
    const void *const *in; /* NULL where an optional input is left out */
    void *const *out;
    void *workspace; /* starts at a multiple of 64 bytes */
    void *prepacked; /* what the row's `prepack` made of inputs, at a multiple of 64 bytes; NULL: the run sees to it */
    ht_pool *pool;
    int threads; /* of the target that the workspace was planned for */
    const struct ht_fused
        *fused; /* the element-wise calls of an instruction, compiled when it was planned; else NULL */
    const struct ht_row_block *block; /* this launch and its successors run together, rows by rows; else NULL */
    const bool *guarded;              /* by result: canary bytes lie behind it; NULL: none do */
    struct ht_nonfinite *nonfinite;   /* counts of what is not finite (kernel/count_nonfinite.h); NULL: nobody asks */
    const struct ht_kernel *row;      /* that runs it; NULL: a function that is no row */
    struct ht_comm *comm;             /* of a collective: the ranks of its group (comm/comm.h); else NULL */
    ht_queue *queue;                  /* that it runs on */
    const char *kernel, *site;        /* for messages; the site may be NULL */
    ht_context *ctx;                  /* for messages; of the thread that runs it */
    void *prepared;                   /* the device's own */
} ht_launch;

/* A failure says why with ht_fail(launch->ctx, …). */
typedef ht_status (*ht_run_fn)(const ht_launch *launch);

typedef enum ht_copy_kind { HT_COPY_TO_DEVICE, HT_COPY_FROM_DEVICE, HT_COPY_WITHIN } ht_copy_kind;

/* A kind of device. Commands of one queue run in order, those of different queues in any order but for events. A command
 * that fails is told by a later call on its device, at the latest by `sync`; the commands after it do nothing.
 * Addresses of a device's memory are numbers to everyone else, unless `host_address` says that they can be used. */
typedef struct ht_device_class {
    const char *name;
    bool asynchronous; /* commands run later, in threads or processors of the device */
    /* Launches may be functions of the host on its memory, such as the CPU's kernels. */
    bool runs_host_code;
    /* The number is 0 but for kinds that are numbered. HT_ENOTSUP: there is no such device here; HT_EDEVICE: there is one,
     * and it cannot be used. */
    ht_status (*open)(ht_device **out, ht_context *ctx, int number);
    void (*close)(ht_device *device);
    void (*describe)(ht_device *device, ht_target *target); /* what a plan for it must know; NULL: the target knows */

    /* Zeroed, all pages touched, at a multiple of 64 bytes. */
    ht_status (*alloc)(ht_device *device, size_t bytes, void **out);
    void (*free)(ht_device *device, void *address);
    bool (*host_address)(const ht_device *device); /* may the host use the memory's addresses? */

    /* Memory of the host, zeroed, at a multiple of 64 bytes, that copies from and to the device need not wait for. NULL:
     * any is. */
    ht_status (*host_alloc)(ht_device *device, size_t bytes, void **out);
    void (*host_free)(ht_device *device, void *address);

    ht_status (*queue_create)(ht_device *device, ht_queue **out);
    void (*queue_free)(ht_queue *queue); /* waits for what is in it */
    /* A queue of the program around us, such as a CUDA stream: commands go there among those of others. It is borrowed:
     * `queue_free` waits for nothing, and leaves it alone. NULL: others have no queues of such devices. */
    ht_status (*queue_borrow)(ht_device *device, void *handle, ht_queue **out);
    ht_status (*event_create)(ht_device *device, ht_event **out);
    void (*event_free)(ht_event *event);

    /* Before the first launch of `count` launches in a row: addresses become the device's own, code is loaded. */
    ht_status (*prepare)(ht_device *device, ht_launch *launches, size_t count);
    void (*release)(ht_device *device, ht_launch *launches);
    ht_status (*load)(ht_device *device); /* the code of all that was prepared; NULL: there is nothing to load */

    /* Commands. Memory of the host that a copy names must stay as it is until the copy is done. */
    ht_status (*launch)(ht_queue *queue, ht_run_fn run, const ht_launch *launch);
    ht_status (*copy)(ht_queue *queue, void *to, const void *from, size_t bytes, ht_copy_kind kind);
    ht_status (*record)(ht_queue *queue, ht_event *event);
    ht_status (*wait)(ht_queue *queue, ht_event *event); /* for the last `record` so far, of any device */
    ht_status (*call)(ht_queue *queue, void (*fn)(void *arg), void *arg); /* a function of the host, in order */

    /* Launches and copies within the device, remembered instead of run, and later run as one command. What cannot be
     * remembered fails between the two, and the queue is as it was before. NULL: there are no recordings. */
    ht_status (*record_begin)(ht_queue *queue);
    ht_status (*record_end)(ht_queue *queue, ht_recording **out);
    ht_status (*replay)(ht_queue *queue, ht_recording *recording);
    void (*recording_free)(ht_recording *recording);

    ht_status (*status)(ht_queue *queue); /* of what has run so far */

    /* The host waits; `event_done` only asks. */
    ht_status (*sync)(ht_queue *queue);
    ht_status (*event_sync)(ht_event *event);
    bool (*event_done)(ht_event *event);
    /* Between two events that have come to pass; NULL: the device has no clock. */
    ht_status (*event_seconds)(ht_event *from, ht_event *to, double *seconds);
} ht_device_class;

/* What every device, queue and event begins with. */
struct ht_device {
    const ht_device_class *class;
    ht_context *ctx;
    struct ht_device *next; /* of the context's list */
    int number;             /* which of its class */
    int64_t syncs;          /* how often the host waited for it */
};
struct ht_queue {
    ht_device *device;
};
struct ht_event {
    ht_device *device;
};

/* The class of a device by its name, as in ht_device_get; fails if there is none. */
ht_status ht_device_class_find(const ht_device_class **out, ht_context *ctx, const char *name);
/* The context's device of this name ("cpu", "fake", "cuda:1"; "host" beside an accelerator), opened when it is first asked
 * for; it lives as long as the context. */
ht_status ht_device_get(ht_device **out, ht_context *ctx, const char *name);
/* Completes a target that its device computes for, if the device can be opened here. */
void ht_device_describe(ht_context *ctx, ht_target *target);
/* All that the context has opened. */
void ht_devices_close(ht_context *ctx);

/* ---- what the executor and those above it call ---- */

static inline ht_status ht_device_alloc(ht_device *device, size_t bytes, void **out)
{
    return device->class->alloc(device, bytes, out);
}
void ht_device_free(ht_device *device, void *address); /* takes NULL */
/* NULL unless the host may use the device's addresses: then the address itself. */
static inline void *ht_device_host_address(const ht_device *device, void *address)
{
    return device->class->host_address(device) ? address : NULL;
}
ht_status ht_device_host_alloc(ht_device *device, size_t bytes, void **out);
void ht_device_host_free(ht_device *device, void *address); /* takes NULL */
static inline ht_status ht_queue_launch(ht_queue *queue, ht_run_fn run, const ht_launch *launch)
{
    return queue->device->class->launch(queue, run, launch);
}
static inline ht_status ht_queue_copy(ht_queue *queue, void *to, const void *from, size_t bytes, ht_copy_kind kind)
{
    return bytes ? queue->device->class->copy(queue, to, from, bytes, kind) : HT_OK;
}
static inline ht_status ht_queue_record(ht_queue *queue, ht_event *event)
{
    return queue->device->class->record(queue, event);
}
static inline ht_status ht_queue_wait(ht_queue *queue, ht_event *event)
{
    return queue->device->class->wait(queue, event);
}
/* A launch that was not prepared: it is done when this returns. */
ht_status ht_queue_launch_now(ht_queue *queue, ht_run_fn run, ht_launch *launch);
/* The two that make the host wait are counted. */
ht_status ht_queue_sync(ht_queue *queue);
ht_status ht_event_sync(ht_event *event);
static inline bool ht_event_done(ht_event *event)
{
    return event->device->class->event_done(event);
}
void ht_queue_free(ht_queue *queue); /* takes NULL */
void ht_event_free(ht_event *event); /* takes NULL */

#include "device/cuda_device.h"
#include "device/disk_device.h"

#define HT_DEVICE(name) extern const ht_device_class ht_device_##name;
#include "device/devices.def"
#undef HT_DEVICE
extern const ht_device_class ht_device_host; /* the processor beside an accelerator; no job names it */

#endif
