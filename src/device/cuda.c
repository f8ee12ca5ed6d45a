/* An NVIDIA GPU by the driver API. Queues are streams; a launch enqueues at once, in the caller's thread. */
#include "device/cuda_own.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PROCESSORS = 16,          /* CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT */
    L2_BYTES = 38,            /* CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE */
    SHARED_BYTES = 97,        /* CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN */
    MAJOR = 75,               /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR */
    MINOR = 76,               /* CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR */
    OLDEST_ARCHITECTURE = 80, /* the first with bf16 */
    OLDEST_DRIVER = 12000,    /* 1000 major + 10 minor of the CUDA version that it serves */
    STREAM_NON_BLOCKING = 1,  /* does not wait for the default stream */
    CAPTURE_RELAXED = 2,      /* other threads may do what they like meanwhile */
    OUT_OF_MEMORY = 2,        /* errors of CUDA, from here on */
    ECC_UNCORRECTABLE = 214,
    ILLEGAL_ADDRESS = 700,
    OUT_OF_RESOURCES = 701,
    LAUNCH_FAILED = 719,
};

/* Asked for before every command: the program around us may set another one, and setting it costs more. */
void cuda_enter(const cuda_device *d)
{
    void *current = NULL;
    if (d->driver->cuCtxGetCurrent(&current) == 0 && current == d->context) return;
    d->driver->cuCtxSetCurrent(d->context);
}

/* A kernel that fails while it runs is told by whatever the driver is asked next. */
static const char *hint_for(int result)
{
    bool ran = result >= ILLEGAL_ADDRESS && result <= LAUNCH_FAILED && result != OUT_OF_RESOURCES;
    if ((!ran && result != ECC_UNCORRECTABLE) || getenv("CUDA_LAUNCH_BLOCKING")) return "";
    return "; an earlier command may be the one that failed: CUDA_LAUNCH_BLOCKING=1 and halftone.cuda_graphs=false "
           "tell which";
}

ht_status cuda_check(const cuda_device *d, int result, const char *what)
{
    const char *text = NULL;
    if (result == 0) return HT_OK;
    d->driver->cuGetErrorString(result, &text);
    HT_FAIL(d->base.ctx, result == OUT_OF_MEMORY ? HT_ENOMEM : HT_EDEVICE, "device %s: %s: %s (error %d)%s", d->name,
            what, text ? text : "unknown", result, hint_for(result));
}

/* ---- open ---- */

static ht_status check_driver(cuda_device *d)
{
    int version = 0;
    HT_TRY(cuda_check(d, d->driver->cuDriverGetVersion(&version), "asking for the driver's version"));
    d->driver_version = version;
    if (version < OLDEST_DRIVER)
        HT_FAIL(d->base.ctx, HT_EDEVICE, "device %s: the driver serves CUDA %d.%d; %d.%d is the oldest that works",
                d->name, version / 1000, version % 1000 / 10, OLDEST_DRIVER / 1000, OLDEST_DRIVER % 1000 / 10);
    return HT_OK;
}

/* Without it there are no kernels. */
static ht_status check_compiler(cuda_device *d)
{
    const char *reason;
    int major = 0, minor = 0;
    const cuda_compiler *nvrtc = cuda_compiler_open(&reason);
    if (!nvrtc)
        HT_FAIL(d->base.ctx, HT_EDEVICE, "device %s: no kernel can be compiled without NVRTC: %s", d->name, reason);
    nvrtc->nvrtcVersion(&major, &minor);
    d->compiler_version = 100 * major + minor;
    return HT_OK;
}

static ht_status check_machine(cuda_device *d)
{
    const cuda_driver *driver = d->driver;
    int major = 0, minor = 0;
    HT_TRY(cuda_check(d, driver->cuDeviceGetAttribute(&major, MAJOR, d->handle), "asking for the architecture"));
    HT_TRY(cuda_check(d, driver->cuDeviceGetAttribute(&minor, MINOR, d->handle), "asking for the architecture"));
    HT_TRY(cuda_check(d, driver->cuDeviceGetAttribute(&d->limits.processors, PROCESSORS, d->handle),
                      "counting processors"));
    HT_TRY(cuda_check(d, driver->cuDeviceGetAttribute(&d->limits.shared_bytes, SHARED_BYTES, d->handle),
                      "asking for shared memory"));
    HT_TRY(
        cuda_check(d, driver->cuDeviceGetAttribute(&d->limits.l2_bytes, L2_BYTES, d->handle), "asking for the cache"));
    HT_TRY(cuda_check(d, driver->cuDeviceGetName(d->model, sizeof d->model, d->handle), "asking for the name"));
    d->architecture = major * 10 + minor;
    d->hash = ht_hash_bytes(ht_hash_text(d->model), &d->driver_version, sizeof d->driver_version);
    if (d->architecture < OLDEST_ARCHITECTURE)
        HT_FAIL(d->base.ctx, HT_EDEVICE, "device %s: %s is of architecture %d; %d is the oldest that works", d->name,
                d->model, d->architecture, OLDEST_ARCHITECTURE);
    ht_note(d->base.ctx, HT_LOG_INFO, "device %s: %s, sm_%d", d->name, d->model, d->architecture);
    return HT_OK;
}

/* The driver counts what CUDA_VISIBLE_DEVICES leaves. */
static ht_status no_such_gpu(const cuda_device *d, int number, int count)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    char why[160] = "";
    if (visible) snprintf(why, sizeof why, "; CUDA_VISIBLE_DEVICES is \"%.100s\"", visible);
    HT_FAIL(d->base.ctx, count ? HT_EINVAL : HT_ENOTSUP, "there is no GPU %d: the driver sees %d%s", number, count,
            why);
}

static ht_status find_machine(cuda_device *d, int number)
{
    enum { NO_DEVICE = 100 }; /* CUDA_ERROR_NO_DEVICE */
    int count = 0, started = d->driver->cuInit(0);
    if (started != NO_DEVICE) {
        HT_TRY(cuda_check(d, started, "starting the driver"));
        HT_TRY(cuda_check(d, d->driver->cuDeviceGetCount(&count), "counting GPUs"));
    }
    if (number >= count) return no_such_gpu(d, number, count);
    HT_TRY(cuda_check(d, d->driver->cuDeviceGet(&d->handle, number), "finding the GPU"));
    HT_TRY(check_driver(d));
    HT_TRY(check_machine(d));
    HT_TRY(check_compiler(d));
    return cuda_check(d, d->driver->cuDevicePrimaryCtxRetain(&d->context, d->handle), "opening the GPU");
}

int ht_cuda_device_count(void)
{
    const char *reason;
    const cuda_driver *driver = cuda_driver_open(&reason);
    int count = 0;
    return driver && driver->cuInit(0) == 0 && driver->cuDeviceGetCount(&count) == 0 ? count : 0;
}

static ht_status cuda_open(ht_device **out, ht_context *ctx, int number)
{
    const char *reason;
    const cuda_driver *driver = cuda_driver_open(&reason);
    *out = NULL;
    if (!driver) HT_FAIL(ctx, cuda_driver_is_there() ? HT_EDEVICE : HT_ENOTSUP, "device cuda: %s", reason);
    cuda_device *d = calloc(1, sizeof *d);
    if (!d) HT_FAIL(ctx, HT_ENOMEM, "out of memory for the device cuda");
    *d = (cuda_device){.base = {.class = &ht_device_cuda, .ctx = ctx}, .driver = driver};
    if (number)
        snprintf(d->name, sizeof d->name, "cuda:%d", number);
    else
        snprintf(d->name, sizeof d->name, "cuda");
    ht_status status = find_machine(d, number);
    if (status == HT_OK)
        *out = &d->base;
    else
        free(d);
    return status;
}

ht_cuda_limits ht_cuda_device_limits(const ht_device *device)
{
    return ((const cuda_device *)device)->limits;
}

ht_status ht_cuda_device_bus(const ht_device *device, char *bus, size_t size)
{
    const cuda_device *d = (const cuda_device *)device;
    return cuda_check(d, d->driver->cuDeviceGetPCIBusId(bus, (int)size, d->handle), "asking for the bus");
}

uint64_t ht_cuda_device_hash(const ht_device *device)
{
    return ((const cuda_device *)device)->hash;
}

/* ---- what rows share ---- */

struct cuda_kept {
    cuda_kept *next;
    char *name;
    void *object;
    void (*free_object)(void *object);
};

ht_status ht_cuda_keep(ht_device *device, const char *name, void *object, void (*free_object)(void *object))
{
    cuda_device *d = (cuda_device *)device;
    cuda_kept *kept = calloc(1, sizeof *kept);
    char *own = strdup(name);
    if (!kept || !own) {
        free_object(object);
        free(kept);
        free(own);
        HT_FAIL(device->ctx, HT_ENOMEM, "out of memory for the device cuda");
    }
    *kept = (cuda_kept){d->kept, own, object, free_object};
    d->kept = kept;
    return HT_OK;
}

void *ht_cuda_kept(const ht_device *device, const char *name)
{
    for (const cuda_kept *k = ((const cuda_device *)device)->kept; k; k = k->next)
        if (strcmp(k->name, name) == 0) return k->object;
    return NULL;
}

static void free_kept(cuda_device *d)
{
    while (d->kept) {
        cuda_kept *kept = d->kept;
        d->kept = kept->next;
        kept->free_object(kept->object);
        free(kept->name);
        free(kept);
    }
}

static void cuda_close(ht_device *device)
{
    cuda_device *d = (cuda_device *)device;
    cuda_enter(d);
    free_kept(d);
    cuda_programs_free(d);
    d->driver->cuCtxSetCurrent(NULL); /* no thread goes on with a context that may be gone */
    d->driver->cuDevicePrimaryCtxRelease_v2(d->handle);
    free(d);
}

/* A library that rows may call, and how it tells its version. */
typedef struct library {
    const char *files[4], *function, *version;
    ht_versioned versioned;
} library;

static const library libraries[HT_LIBRARY_COUNT] = {
    [HT_LIBRARY_CUBLASLT] = {{"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
                             "cublasLtCreate",
                             "cublasLtGetVersion",
                             HT_VERSION_CUBLASLT},
    [HT_LIBRARY_CUDNN] = {{"libcudnn.so.9", "libcudnn.so"}, "cudnnCreate", "cudnnGetVersion", HT_VERSION_CUDNN},
};

/* It stays open: rows will want it. */
static bool find_library(const library *l, int *version)
{
    void *opened = NULL;
    size_t (*get_version)(void);
    for (const char *const *file = l->files; !opened && *file; file++) opened = dlopen(*file, RTLD_LAZY);
    if (!opened || !dlsym(opened, l->function)) return false;
    *(void **)&get_version = dlsym(opened, l->version);
    *version = get_version ? (int)get_version() : 0;
    return true;
}

static void cuda_describe(ht_device *device, ht_target *target)
{
    const cuda_device *d = (const cuda_device *)device;
    size_t bytes = 0;
    if (d->driver->cuDeviceTotalMem_v2(&bytes, d->handle) == 0) target->memory_bytes[HT_SPACE_MAIN] = (int64_t)bytes;
    snprintf(target->name, sizeof target->name, "%.*s", (int)sizeof target->name - 1, d->model);
    target->libraries = 0;
    target->versions[HT_VERSION_DRIVER] = d->driver_version;
    target->versions[HT_VERSION_NVRTC] = d->compiler_version;
    for (int i = 0; i < HT_LIBRARY_COUNT; i++)
        if (find_library(&libraries[i], &target->versions[libraries[i].versioned])) target->libraries |= 1u << i;
}

/* ---- memory ---- */

static ht_status cuda_alloc(ht_device *device, size_t bytes, void **out)
{
    const cuda_device *d = (const cuda_device *)device;
    uint64_t address = 0;
    size_t free_bytes = 0, total = 0;
    *out = NULL;
    cuda_enter(d);
    HT_TRY(cuda_check(d, d->driver->cuMemGetInfo_v2(&free_bytes, &total), "asking for free memory"));
    if (bytes > free_bytes)
        HT_FAIL(device->ctx, HT_ENOMEM, "device %s: %zu bytes are wanted, %zu of %zu are free: %zu too few", d->name,
                bytes, free_bytes, total, bytes - free_bytes);
    HT_TRY(cuda_check(d, d->driver->cuMemAlloc_v2(&address, bytes), "taking memory"));
    *out = (void *)(uintptr_t)address;
    return cuda_check(d, d->driver->cuMemsetD8_v2(address, 0, bytes), "clearing memory");
}

static void cuda_free(ht_device *device, void *address)
{
    const cuda_device *d = (const cuda_device *)device;
    cuda_enter(d);
    d->driver->cuMemFree_v2((uintptr_t)address);
}

static ht_status cuda_host_alloc(ht_device *device, size_t bytes, void **out)
{
    const cuda_device *d = (const cuda_device *)device;
    *out = NULL;
    cuda_enter(d);
    HT_TRY(cuda_check(d, d->driver->cuMemHostAlloc(out, bytes, 0), "taking memory of the host"));
    memset(*out, 0, bytes);
    return HT_OK;
}

static void cuda_host_free(ht_device *device, void *address)
{
    const cuda_device *d = (const cuda_device *)device;
    cuda_enter(d);
    d->driver->cuMemFreeHost(address);
}

static bool cuda_host_address(const ht_device *device)
{
    (void)device;
    return false;
}

/* ---- queues and events ---- */

typedef struct cuda_event {
    ht_event base;
    void *event;
} cuda_event;

static const cuda_device *device_of(const ht_queue *queue)
{
    const cuda_device *d = (const cuda_device *)queue->device;
    cuda_enter(d);
    return d;
}

void *ht_cuda_stream(const ht_queue *queue)
{
    return ((const cuda_queue *)queue)->stream;
}

static ht_status cuda_queue_create(ht_device *device, ht_queue **out)
{
    const cuda_device *d = (const cuda_device *)device;
    cuda_queue *q = calloc(1, sizeof *q);
    *out = NULL;
    if (!q) HT_FAIL(device->ctx, HT_ENOMEM, "out of memory for a queue");
    q->base.device = device;
    cuda_enter(d);
    ht_status status = cuda_check(d, d->driver->cuStreamCreate(&q->stream, STREAM_NON_BLOCKING), "making a stream");
    if (status == HT_OK)
        *out = &q->base;
    else
        free(q);
    return status;
}

static ht_status cuda_sync(ht_queue *queue)
{
    const cuda_device *d = device_of(queue);
    return cuda_wait_for((cuda_device *)queue->device, d->driver->cuStreamQuery, d->driver->cuStreamSynchronize,
                         ht_cuda_stream(queue));
}

static void cuda_queue_free(ht_queue *queue)
{
    const cuda_device *d = device_of(queue);
    if (!((cuda_queue *)queue)->borrowed) {
        (void)cuda_sync(queue);
        d->driver->cuStreamDestroy_v2(ht_cuda_stream(queue));
    }
    cuda_forget_waits((cuda_queue *)queue);
    free(queue);
}

static ht_status cuda_queue_borrow(ht_device *device, void *stream, ht_queue **out)
{
    const cuda_device *d = (const cuda_device *)device;
    void *context = NULL;
    *out = NULL;
    cuda_enter(d);
    HT_TRY(cuda_check(d, d->driver->cuStreamGetCtx(stream, &context), "asking for a stream's context"));
    if (context != d->context)
        HT_FAIL(device->ctx, HT_EINVAL, "the stream belongs to another GPU or context than the primary one of %s",
                d->name);
    cuda_queue *q = calloc(1, sizeof *q);
    if (!q) HT_FAIL(device->ctx, HT_ENOMEM, "out of memory for a queue");
    *q = (cuda_queue){.base = {.device = device}, .stream = stream, .borrowed = true};
    *out = &q->base;
    return HT_OK;
}

static ht_status cuda_event_create(ht_device *device, ht_event **out)
{
    const cuda_device *d = (const cuda_device *)device;
    cuda_event *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) HT_FAIL(device->ctx, HT_ENOMEM, "out of memory for an event");
    e->base.device = device;
    cuda_enter(d);
    ht_status status = cuda_check(d, d->driver->cuEventCreate(&e->event, 0), "making an event");
    if (status == HT_OK)
        *out = &e->base;
    else
        free(e);
    return status;
}

static void cuda_event_free(ht_event *event)
{
    const cuda_device *d = (const cuda_device *)event->device;
    cuda_enter(d);
    d->driver->cuEventDestroy_v2(((cuda_event *)event)->event);
    free(event);
}

/* ---- commands ---- */

static ht_status cuda_prepare(ht_device *device, ht_launch *launches, size_t count)
{
    for (size_t i = 0; i < count; i++) launches[i].ctx = device->ctx;
    return HT_OK;
}

static void cuda_release(ht_device *device, ht_launch *launches)
{
    (void)device;
    free(launches->prepared);
    launches->prepared = NULL;
}

static ht_status cuda_launch(ht_queue *queue, ht_run_fn run, const ht_launch *launch)
{
    (void)device_of(queue);
    return run(launch);
}

static ht_status cuda_copy(ht_queue *queue, void *to, const void *from, size_t bytes, ht_copy_kind kind)
{
    const cuda_device *d = device_of(queue);
    void *stream = ht_cuda_stream(queue);
    int result = kind == HT_COPY_TO_DEVICE ? d->driver->cuMemcpyHtoDAsync_v2((uintptr_t)to, from, bytes, stream)
                 : kind == HT_COPY_FROM_DEVICE
                     ? d->driver->cuMemcpyDtoHAsync_v2(to, (uintptr_t)from, bytes, stream)
                     : d->driver->cuMemcpyDtoDAsync_v2((uintptr_t)to, (uintptr_t)from, bytes, stream);
    return cuda_check(d, result, "copying");
}

static ht_status cuda_record(ht_queue *queue, ht_event *event)
{
    const cuda_device *d = device_of(queue);
    return cuda_check(d, d->driver->cuEventRecord(((cuda_event *)event)->event, ht_cuda_stream(queue)), "recording");
}

/* Of another class of device: the host waits. */
static ht_status cuda_wait(ht_queue *queue, ht_event *event)
{
    const cuda_device *d = device_of(queue);
    if (event->device->class != &ht_device_cuda) return event->device->class->event_sync(event);
    return cuda_check(d, d->driver->cuStreamWaitEvent(ht_cuda_stream(queue), ((cuda_event *)event)->event, 0),
                      "waiting");
}

static ht_status cuda_call(ht_queue *queue, void (*fn)(void *arg), void *arg)
{
    const cuda_device *d = device_of(queue);
    return cuda_check(d, d->driver->cuLaunchHostFunc(ht_cuda_stream(queue), fn, arg), "calling the host");
}

/* ---- recordings: graphs of CUDA ---- */

struct ht_recording {
    const cuda_device *device;
    void *executable;
};

static ht_status cuda_record_begin(ht_queue *queue)
{
    const cuda_device *d = device_of(queue);
    return cuda_check(d, d->driver->cuStreamBeginCapture_v2(ht_cuda_stream(queue), CAPTURE_RELAXED), "recording");
}

static ht_status cuda_record_end(ht_queue *queue, ht_recording **out)
{
    const cuda_device *d = device_of(queue);
    void *graph = NULL;
    *out = NULL;
    HT_TRY(cuda_check(d, d->driver->cuStreamEndCapture(ht_cuda_stream(queue), &graph), "recording"));
    ht_recording *r = calloc(1, sizeof *r);
    int result = r ? d->driver->cuGraphInstantiateWithFlags(&r->executable, graph, 0) : 0;
    d->driver->cuGraphDestroy(graph);
    if (r && result == 0) {
        r->device = d;
        *out = r;
        return HT_OK;
    }
    free(r);
    if (!r) HT_FAIL(d->base.ctx, HT_ENOMEM, "out of memory for a recording");
    return cuda_check(d, result, "making a graph");
}

static ht_status cuda_replay(ht_queue *queue, ht_recording *recording)
{
    const cuda_device *d = device_of(queue);
    return cuda_check(d, d->driver->cuGraphLaunch(recording->executable, ht_cuda_stream(queue)), "launching a graph");
}

static void cuda_recording_free(ht_recording *recording)
{
    cuda_enter(recording->device);
    recording->device->driver->cuGraphExecDestroy(recording->executable);
    free(recording);
}

static ht_status cuda_status(ht_queue *queue)
{
    const cuda_device *d = device_of(queue);
    HT_TRY(cuda_failure(d));
    int result = d->driver->cuStreamQuery(ht_cuda_stream(queue));
    return result == CUDA_NOT_READY ? HT_OK : cuda_check(d, result, "a command");
}

static ht_status cuda_event_sync(ht_event *event)
{
    cuda_device *d = (cuda_device *)event->device;
    cuda_enter(d);
    return cuda_wait_for(d, d->driver->cuEventQuery, d->driver->cuEventSynchronize, ((cuda_event *)event)->event);
}

/* Also where a command has failed: `event_sync` says so. */
static bool cuda_event_done(ht_event *event)
{
    const cuda_device *d = (const cuda_device *)event->device;
    cuda_enter(d);
    return d->driver->cuEventQuery(((cuda_event *)event)->event) != CUDA_NOT_READY;
}

static ht_status cuda_event_seconds(ht_event *from, ht_event *to, double *seconds)
{
    const cuda_device *d = (const cuda_device *)to->device;
    float milliseconds = 0;
    cuda_enter(d);
    int result = d->driver->cuEventElapsedTime(&milliseconds, ((cuda_event *)from)->event, ((cuda_event *)to)->event);
    *seconds = 1e-3 * (double)milliseconds;
    return cuda_check(d, result, "asking for a time");
}

const ht_device_class ht_device_cuda = {
    .name = "cuda",
    .asynchronous = true,
    .open = cuda_open,
    .close = cuda_close,
    .describe = cuda_describe,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .host_address = cuda_host_address,
    .host_alloc = cuda_host_alloc,
    .host_free = cuda_host_free,
    .queue_create = cuda_queue_create,
    .queue_free = cuda_queue_free,
    .queue_borrow = cuda_queue_borrow,
    .event_create = cuda_event_create,
    .event_free = cuda_event_free,
    .prepare = cuda_prepare,
    .load = cuda_programs_load,
    .release = cuda_release,
    .launch = cuda_launch,
    .copy = cuda_copy,
    .record = cuda_record,
    .wait = cuda_wait,
    .call = cuda_call,
    .record_begin = cuda_record_begin,
    .record_end = cuda_record_end,
    .replay = cuda_replay,
    .recording_free = cuda_recording_free,
    .status = cuda_status,
    .sync = cuda_sync,
    .event_sync = cuda_event_sync,
    .event_done = cuda_event_done,
    .event_seconds = cuda_event_seconds,
};
