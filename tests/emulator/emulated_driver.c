/* libcuda.so.1 for machines without a GPU: the functions of cuda_driver.def on the CPU. Commands run at once. Memory lies
 * between pages that nobody may touch and begins as junk; what lies behind its last byte is looked at when it is freed. The
 * message of a failure is what cuGetErrorString gives for its number. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "emulated_blocks.h"
#include "emulated_graphs.h"

#define HT_CUDA_DRIVER(name, parameters) __attribute__((visibility("default"))) int name parameters;
#include "device/cuda_driver.def"

enum {
    INVALID_VALUE = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    INVALID_IMAGE = 200,
    INVALID_CONTEXT = 201,
    NOT_FOUND = 500,
    LAUNCH_FAILED = 719,
    TOO_LARGE = 720,
    PROCESSORS = 20,
    L2_BYTES = 1 << 20,
    NOT_CAPTURED = 900,
    EMULATED_GPUS = 8,
    PAGE = 4096,
    ALIGNMENT = 64, /* of memory; what a device promises */
    SHARED_WITHOUT_ASKING = 48 << 10,
    SHARED_MOST = 227 << 10,
};
/* Of each GPU: HALFTONE_EMULATED_BYTES, else 8 GiB. */
static size_t memory_bytes(void)
{
    const char *wanted = getenv("HALFTONE_EMULATED_BYTES");
    return wanted ? (size_t)strtoull(wanted, NULL, 10) : (size_t)8 << 30;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- failures ---- */

static char message[768];
static int broken; /* the number of a failure after which a GPU does nothing any more */

__attribute__((format(printf, 2, 3))) static int fail(int result, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return result;
}

int cuGetErrorString(int result, const char **text)
{
    (void)result;
    *text = message[0] ? message : "no error";
    return 0;
}

/* ---- the machine ---- */

/* HALFTONE_EMULATED_GPUS of them, else one; and of those the ones that CUDA_VISIBLE_DEVICES lists, in its order. */
typedef struct gpu {
    int retained; /* a context is the address of its GPU */
} gpu;
static gpu gpus[EMULATED_GPUS];
static int visible[EMULATED_GPUS], visible_count;
static _Thread_local gpu *current;

static void find_gpus(void)
{
    const char *wanted = getenv("HALFTONE_EMULATED_GPUS"), *list = getenv("CUDA_VISIBLE_DEVICES");
    int count = wanted ? atoi(wanted) : 1;
    if (count < 0 || count > EMULATED_GPUS) count = EMULATED_GPUS;
    visible_count = 0;
    if (!list)
        for (int i = 0; i < count; i++) visible[visible_count++] = i;
    for (char *end; list && *list && visible_count < count; list = *end == ',' ? end + 1 : end) {
        long number = strtol(list, &end, 10);
        if (end == list || number < 0 || number >= count) return; /* as the driver: what follows is not seen either */
        visible[visible_count++] = (int)number;
    }
}

int cuInit(unsigned flags)
{
    (void)flags;
    find_gpus();
    if (!visible_count) return fail(NO_DEVICE, "no CUDA-capable device is detected");
    /* Kernels call the functions of mathematics; they are linked with nothing. */
    return dlopen("libm.so.6", RTLD_NOW | RTLD_GLOBAL) ? 0 : fail(INVALID_VALUE, "%s", dlerror());
}

/* HALFTONE_EMULATED_DRIVER, else 13.0. */
int cuDriverGetVersion(int *version)
{
    const char *wanted = getenv("HALFTONE_EMULATED_DRIVER");
    *version = wanted ? atoi(wanted) : 13000;
    return 0;
}

int cuDeviceGetCount(int *count)
{
    *count = visible_count;
    return 0;
}

int cuDeviceGet(int *device, int number)
{
    if (number < 0 || number >= visible_count) return fail(INVALID_VALUE, "there are %d emulated GPUs", visible_count);
    *device = visible[number];
    return 0;
}

int cuDeviceGetName(char *name, int length, int device)
{
    if (device)
        snprintf(name, (size_t)length, "emulated GPU %d", device);
    else
        snprintf(name, (size_t)length, "emulated GPU");
    return 0;
}

int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    switch (attribute) {
    case 16: *value = PROCESSORS; return 0; /* multiprocessors */
    case 38: *value = L2_BYTES; return 0;
    case 75: *value = 9; return 0; /* architecture 9.0 */
    case 76: *value = 0; return 0;
    case 97: *value = SHARED_MOST; return 0; /* shared bytes of a block that asks */
    default: return fail(INVALID_VALUE, "the emulated GPU does not know attribute %d", attribute);
    }
}

int cuDeviceGetPCIBusId(char *bus, int length, int device)
{
    snprintf(bus, (size_t)length, "0000:%02X:00.0", device);
    return 0;
}

int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    (void)device;
    *bytes = memory_bytes();
    return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
    gpus[device].retained++;
    *context = &gpus[device];
    return 0;
}

int cuCtxSetCurrent(void *context)
{
    current = context;
    return 0;
}

int cuCtxGetCurrent(void **context)
{
    *context = current;
    return 0;
}

/* ---- streams: all that was asked for is done, but nobody may count on it where no event says so ---- */

/* What comes next in a stream comes behind the first after[k] commands of stream k. */
enum { MOST_STREAMS = 256 };
typedef struct ordered_stream {
    gpu *of;
    int number;
    unsigned commands, after[MOST_STREAMS];
} ordered_stream;
static ordered_stream streams[MOST_STREAMS]; /* number 0 is none */

int cuStreamCreate(void **out, unsigned flags)
{
    int i = 1;
    (void)flags;
    if (!current) return fail(INVALID_CONTEXT, "the thread has no context");
    pthread_mutex_lock(&lock);
    while (i < MOST_STREAMS && streams[i].of) i++;
    if (i < MOST_STREAMS) streams[i] = (ordered_stream){.of = current, .number = i};
    pthread_mutex_unlock(&lock);
    *out = i < MOST_STREAMS ? &streams[i] : NULL;
    return *out ? 0 : fail(OUT_OF_MEMORY, "the emulated GPU has %d streams", MOST_STREAMS);
}

/* Who waited for it has not waited for the next stream of that number. */
int cuStreamDestroy_v2(void *handle)
{
    ordered_stream *s = handle;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MOST_STREAMS; i++) streams[i].after[s->number] = 0;
    s->of = NULL;
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuStreamGetCtx(void *handle, void **context)
{
    *context = ((ordered_stream *)handle)->of;
    return 0;
}

/* One more command. */
static int enter_stream(ordered_stream *s)
{
    if (!s) return 0;
    s->commands++;
    return s->of == current ? 0 : fail(INVALID_CONTEXT, "the stream is of another GPU than the thread's");
}

/* For tests: does what comes next in a stream wait for all that is in all others; does another one wait for all of it? */
__attribute__((visibility("default"))) int emulated_follows_all(const void *handle);
int emulated_follows_all(const void *handle)
{
    const ordered_stream *s = handle;
    for (int i = 1; i < MOST_STREAMS; i++)
        if (i != s->number && streams[i].of && s->after[i] < streams[i].commands) return 0;
    return 1;
}

__attribute__((visibility("default"))) int emulated_is_followed(const void *handle);
int emulated_is_followed(const void *handle)
{
    const ordered_stream *s = handle;
    for (int i = 1; i < MOST_STREAMS; i++)
        if (i != s->number && streams[i].of && streams[i].after[s->number] >= s->commands) return 1;
    return 0;
}

/* ---- memory ---- */

typedef struct allocation {
    struct allocation *next;
    char *pages, *data;
    size_t page_bytes, bytes;
    const gpu *of;
} allocation;

static allocation *allocations;

static allocation *find_allocation(uintptr_t address)
{
    allocation *a = allocations;
    while (a && (address < (uintptr_t)a->data || address > (uintptr_t)a->data + a->bytes)) a = a->next;
    return a;
}

void emulated_describe(uintptr_t address, char *text, size_t size)
{
    snprintf(text, size, "no memory of the GPU is near");
    for (allocation *a = allocations; a; a = a->next) {
        uintptr_t first = (uintptr_t)a->pages, data = (uintptr_t)a->data;
        if (address < first || address >= first + a->page_bytes) continue;
        if (address < data)
            snprintf(text, size, "%zu bytes before memory of %zu bytes", (size_t)(data - address), a->bytes);
        else
            snprintf(text, size, "byte %zu of memory of %zu bytes", (size_t)(address - data), a->bytes);
    }
}

static allocation *allocate(size_t bytes)
{
    size_t padded = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT, inner = (padded + PAGE - 1) / PAGE * PAGE;
    allocation *a = malloc(sizeof *a);
    if (!a) return NULL;
    *a = (allocation){.page_bytes = inner + 2 * PAGE, .bytes = bytes};
    a->pages = mmap(NULL, a->page_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (a->pages == MAP_FAILED || (inner && mprotect(a->pages + PAGE, inner, PROT_READ | PROT_WRITE) != 0)) {
        free(a);
        return NULL;
    }
    a->data = a->pages + PAGE + inner - padded;
    memset(a->pages + PAGE, EMULATED_JUNK, inner);
    return a;
}

/* Has somebody written beside it? */
static int check_edges(const allocation *a)
{
    for (const char *at = a->pages + PAGE; at < a->data; at++)
        if (*at != (char)EMULATED_JUNK)
            return fail(LAUNCH_FAILED, "a kernel wrote %zu bytes before memory of %zu bytes", (size_t)(a->data - at),
                        a->bytes);
    for (const char *at = a->data + a->bytes; at < a->pages + a->page_bytes - PAGE; at++)
        if (*at != (char)EMULATED_JUNK)
            return fail(LAUNCH_FAILED, "a kernel wrote byte %zu of memory of %zu bytes", (size_t)(at - a->data),
                        a->bytes);
    return 0;
}

/* Of the thread's GPU; the caller holds the lock. */
static size_t bytes_left(void)
{
    size_t taken = 0;
    for (const allocation *a = allocations; a; a = a->next)
        if (a->of == current) taken += a->bytes;
    return taken < memory_bytes() ? memory_bytes() - taken : 0;
}

int cuMemGetInfo_v2(size_t *free_bytes, size_t *total_bytes)
{
    pthread_mutex_lock(&lock);
    *free_bytes = bytes_left();
    *total_bytes = memory_bytes();
    pthread_mutex_unlock(&lock);
    return 0;
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    pthread_mutex_lock(&lock);
    int result = broken;
    allocation *a = NULL;
    if (!result && !current) result = fail(INVALID_CONTEXT, "the thread has no context");
    if (!result && bytes == 0) result = fail(INVALID_VALUE, "0 bytes of memory are asked for");
    if (!result && bytes > bytes_left()) result = fail(OUT_OF_MEMORY, "out of memory");
    if (!result && !(a = allocate(bytes))) result = fail(OUT_OF_MEMORY, "the host has no memory for the GPU's");
    if (!result) {
        a->of = current;
        a->next = allocations;
        allocations = a;
        *address = (uintptr_t)a->data;
    }
    pthread_mutex_unlock(&lock);
    return result;
}

int cuMemFree_v2(uint64_t address)
{
    pthread_mutex_lock(&lock);
    allocation **at = &allocations;
    while (*at && (uintptr_t)(*at)->data != address) at = &(*at)->next;
    allocation *a = *at;
    int result = a || !address ? broken : fail(INVALID_VALUE, "what is freed is no memory of the GPU");
    if (a) {
        *at = a->next;
        if (!broken) result = broken = check_edges(a);
        munmap(a->pages, a->page_bytes);
        free(a);
    }
    pthread_mutex_unlock(&lock);
    return result;
}

/* With the last user goes what was left, a failure too. */
int cuDevicePrimaryCtxRelease_v2(int device)
{
    allocation *a;
    if (--gpus[device].retained > 0) return 0;
    do {
        for (a = allocations; a && a->of != &gpus[device];) a = a->next;
        if (a) cuMemFree_v2((uintptr_t)a->data);
    } while (a);
    broken = 0;
    return 0;
}

static int check_range(uint64_t address, size_t bytes)
{
    const allocation *a = find_allocation(address);
    if (a && bytes <= (uintptr_t)a->data + a->bytes - address) return broken;
    return fail(INVALID_VALUE, "%zu bytes at %p are not memory of the GPU", bytes, (void *)(uintptr_t)address);
}

int cuMemHostAlloc(void **address, size_t bytes, unsigned flags)
{
    (void)flags;
    *address = aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    return *address ? 0 : OUT_OF_MEMORY;
}

int cuMemFreeHost(void *address)
{
    free(address);
    return 0;
}

int cuMemsetD8_v2(uint64_t address, unsigned char value, size_t count)
{
    pthread_mutex_lock(&lock);
    int result = check_range(address, count);
    if (!result) memset((void *)(uintptr_t)address, value, count);
    pthread_mutex_unlock(&lock);
    return result;
}

int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream)
{
    if (emulated_is_captured(stream)) return fail(NOT_CAPTURED, "a copy of the host's in a graph");
    pthread_mutex_lock(&lock);
    int result = check_range(to, bytes);
    if (!result) result = enter_stream(stream);
    if (!result) memcpy((void *)(uintptr_t)to, from, bytes);
    pthread_mutex_unlock(&lock);
    return result;
}

int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream)
{
    if (emulated_is_captured(stream)) return fail(NOT_CAPTURED, "a copy of the host's in a graph");
    pthread_mutex_lock(&lock);
    int result = check_range(from, bytes);
    if (!result) result = enter_stream(stream);
    if (!result) memcpy(to, (const void *)(uintptr_t)from, bytes);
    pthread_mutex_unlock(&lock);
    return result;
}

int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream)
{
    if (emulated_capture(stream, &(emulated_command){.to = to, .from = from, .bytes = bytes})) return 0;
    pthread_mutex_lock(&lock);
    int result = check_range(from, bytes);
    if (!result) result = enter_stream(stream);
    if (!result) result = check_range(to, bytes);
    if (!result) memmove((void *)(uintptr_t)to, (const void *)(uintptr_t)from, bytes);
    pthread_mutex_unlock(&lock);
    return result;
}

/* ---- waiting, and events ---- */

/* For tests: while it is held, streams look as if their commands waited for another GPU, and nothing wakes who waits for
 * one without a look. */
enum { NOT_READY = 600 }; /* CUDA_ERROR_NOT_READY */
static atomic_int held;
__attribute__((visibility("default"))) void emulated_hold(int hold);
void emulated_hold(int hold)
{
    held = hold;
}

static int wait_while_held(void)
{
    while (held) nanosleep(&(struct timespec){0, 1000000}, NULL);
    return broken;
}

int cuStreamSynchronize(void *stream)
{
    (void)stream;
    return wait_while_held();
}

int cuStreamQuery(void *stream)
{
    (void)stream;
    return held ? NOT_READY : broken;
}

int cuLaunchHostFunc(void *stream, void (*fn)(void *arg), void *arg)
{
    int result = enter_stream(stream);
    if (!broken && !result) fn(arg);
    return broken ? broken : result;
}

/* When it was recorded, and behind which commands. */
typedef struct timed_event {
    struct timespec at;
    unsigned after[MOST_STREAMS];
} timed_event;

int cuStreamWaitEvent(void *handle, void *event, unsigned flags)
{
    ordered_stream *s = handle;
    const timed_event *e = event;
    (void)flags;
    for (int i = 0; s && i < MOST_STREAMS; i++)
        if (s->after[i] < e->after[i]) s->after[i] = e->after[i];
    return broken;
}

int cuEventCreate(void **event, unsigned flags)
{
    (void)flags;
    *event = calloc(1, sizeof(timed_event));
    return *event ? 0 : fail(OUT_OF_MEMORY, "out of memory");
}

int cuEventDestroy_v2(void *event)
{
    free(event);
    return 0;
}

int cuEventRecord(void *handle, void *from)
{
    timed_event *event = handle;
    const ordered_stream *s = from;
    clock_gettime(CLOCK_MONOTONIC, &event->at);
    if (s) memcpy(event->after, s->after, sizeof event->after);
    if (s) event->after[s->number] = s->commands;
    return broken;
}

int cuEventElapsedTime(float *milliseconds, void *from, void *to)
{
    const struct timespec *a = &((timed_event *)from)->at, *b = &((timed_event *)to)->at;
    *milliseconds = (float)(1e3 * (double)(b->tv_sec - a->tv_sec) + 1e-6 * (double)(b->tv_nsec - a->tv_nsec));
    return broken;
}

int cuEventSynchronize(void *event)
{
    (void)event;
    return wait_while_held();
}

int cuEventQuery(void *event)
{
    (void)event;
    return held ? NOT_READY : broken;
}

/* ---- modules: shared objects that the emulated NVRTC made ---- */

typedef struct function {
    struct function *next;
    void (*entry)(void **arguments);
    int parameters, shared_most;
    char *const *shared; /* from, to */
} function;

typedef struct module {
    void *handle;
    function *functions;
} module;

/* An image has no length; an ELF file ends with its section headers. */
static size_t image_bytes(const unsigned char *image)
{
    uint64_t sections;
    uint16_t bytes, count;
    if (memcmp(image, "\177ELF", 4) != 0) return 0;
    memcpy(&sections, image + 0x28, sizeof sections);
    memcpy(&bytes, image + 0x3a, sizeof bytes);
    memcpy(&count, image + 0x3c, sizeof count);
    return sections + (size_t)bytes * count;
}

static void *open_image(const void *image, size_t bytes)
{
    const char *folder = getenv("TMPDIR");
    char name[512];
    snprintf(name, sizeof name, "%s/halftone-emulated-XXXXXX", folder && *folder ? folder : "/tmp");
    int file = mkstemp(name);
    if (file < 0) return NULL;
    void *handle = write(file, image, bytes) == (ssize_t)bytes ? dlopen(name, RTLD_NOW | RTLD_LOCAL) : NULL;
    close(file);
    unlink(name);
    return handle;
}

int cuModuleLoadData(void **out, const void *image)
{
    size_t bytes = image_bytes(image);
    module *m = calloc(1, sizeof *m);
    if (!m || !bytes || !(m->handle = open_image(image, bytes))) {
        free(m);
        const char *reason = dlerror();
        return fail(INVALID_IMAGE, "the emulated GPU cannot load a kernel: %s", reason ? reason : "no shared object");
    }
    emulated_state **here = dlsym(m->handle, "emulated_here");
    *here = &emulated_driver_state;
    *out = m;
    return 0;
}

int cuModuleUnload(void *handle)
{
    module *m = handle;
    while (m->functions) {
        function *f = m->functions;
        m->functions = f->next;
        free(f);
    }
    dlclose(m->handle);
    free(m);
    return 0;
}

/* Shared memory that the text of a kernel declares; what a launch asks for comes on top of it. */
static int declared_bytes(const function *f)
{
    return (int)(f->shared[1] - f->shared[0]);
}

int cuModuleGetFunction(void **out, void *handle, const char *name)
{
    module *m = handle;
    char text[64];
    snprintf(text, sizeof text, "%s_emulated", name);
    void *entry = dlsym(m->handle, text);
    snprintf(text, sizeof text, "%s_parameters", name);
    const int *parameters = dlsym(m->handle, text);
    char *const *shared = dlsym(m->handle, "emulated_shared");
    function *f = malloc(sizeof *f);
    if (!f || !entry || !parameters || !shared) {
        free(f);
        return fail(NOT_FOUND, "a kernel has no entry %s", name);
    }
    *f = (function){.next = m->functions, .parameters = *parameters, .shared = shared};
    *(void **)&f->entry = entry;
    f->shared_most = SHARED_WITHOUT_ASKING - declared_bytes(f);
    m->functions = f;
    *out = f;
    return 0;
}

int cuFuncSetAttribute(void *handle, int attribute, int value)
{
    if (attribute != 8) return fail(INVALID_VALUE, "the emulated GPU does not know attribute %d", attribute);
    function *f = handle;
    int all = declared_bytes(f) + value;
    if (all > SHARED_MOST)
        return fail(INVALID_VALUE, "a block wants %d bytes of shared memory; there are %d", all, SHARED_MOST);
    f->shared_most = value;
    return 0;
}

/* ---- launch ---- */

/* All parameters are pointers: into memory of the GPU, or NULL. */
static int check_arguments(const function *f, void **arguments)
{
    for (int i = 0; i < f->parameters; i++) {
        uintptr_t address = *(uintptr_t *)arguments[i];
        const allocation *a = address ? find_allocation(address) : NULL;
        if (address && (!a || a->of != current))
            return fail(INVALID_VALUE, "argument %d, %p, is not memory of the GPU", i, (void *)address);
    }
    return 0;
}

/* HALFTONE_EMULATED_FAILURE=214@40: the 40th grid fails with this number. As on a GPU the launch itself succeeds, and what is
 * asked next fails, unless CUDA_LAUNCH_BLOCKING is set. */
static bool injected_failure(int *result)
{
    static long grids;
    const char *wanted = getenv("HALFTONE_EMULATED_FAILURE"), *at = wanted ? strchr(wanted, '@') : NULL;
    if (!at || ++grids != atol(at + 1)) return false;
    broken = fail(atoi(wanted), "the grid was told to fail");
    *result = getenv("CUDA_LAUNCH_BLOCKING") ? broken : 0;
    return true;
}

static int run_grid(const function *f, const emulated_command *c, void **arguments)
{
    allocation *shared = allocate(c->shared_bytes);
    if (!shared) return fail(OUT_OF_MEMORY, "the host has no memory for shared memory");
    const char *failure = emulated_run(&(emulated_grid){.entry = f->entry,
                                                        .arguments = arguments,
                                                        .blocks = c->blocks,
                                                        .threads = c->threads,
                                                        .shared = f->shared[0],
                                                        .shared_end = f->shared[1],
                                                        .shared_bytes = shared->data,
                                                        .shared_count = c->shared_bytes,
                                                        .together = c->together});
    int result = failure ? fail(LAUNCH_FAILED, "%s", failure) : check_edges(shared);
    munmap(shared->pages, shared->page_bytes);
    free(shared);
    broken = result;
    return result;
}

static int launch(emulated_command *c, void *stream, void **arguments)
{
    const function *f = c->function;
    if (c->blocks == 0 || c->blocks > 0x7fffffffu || c->threads == 0 || c->threads > EMULATED_THREADS)
        return fail(INVALID_VALUE, "a grid of %u blocks of %u threads", c->blocks, c->threads);
    if (c->shared_bytes > (unsigned)f->shared_most)
        return fail(INVALID_VALUE, "%u bytes of shared memory, and the function may have %d", c->shared_bytes,
                    f->shared_most);
    for (int i = 0; i < f->parameters; i++) c->values[i] = *(uintptr_t *)arguments[i];
    if (emulated_capture(stream, c)) return 0;
    pthread_mutex_lock(&lock);
    int result = broken ? broken : check_arguments(f, arguments);
    if (!result) result = enter_stream(stream);
    if (!result && !injected_failure(&result)) result = run_grid(f, c, arguments);
    pthread_mutex_unlock(&lock);
    return result;
}

int cuLaunchKernel(void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x, unsigned block_y,
                   unsigned block_z, unsigned shared_bytes, void *stream, void **arguments, void **extra)
{
    const function *f = handle;
    if (extra || grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1)
        return fail(INVALID_VALUE, "the emulated GPU has one axis of blocks and one of threads");
    emulated_command command = {handle, grid_x, block_x, shared_bytes, false, f->parameters, {0}, 0, 0, 0, NULL, NULL};
    return launch(&command, stream, arguments);
}

/* A processor holds one block. */
int cuLaunchCooperativeKernel(void *handle, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                              unsigned block_y, unsigned block_z, unsigned shared_bytes, void *stream, void **arguments)
{
    const function *f = handle;
    if (grid_y != 1 || grid_z != 1 || block_y != 1 || block_z != 1)
        return fail(INVALID_VALUE, "the emulated GPU has one axis of blocks and one of threads");
    if (grid_x > PROCESSORS) return fail(TOO_LARGE, "%u blocks together, and %d processors", grid_x, PROCESSORS);
    emulated_command command = {handle, grid_x, block_x, shared_bytes, true, f->parameters, {0}, 0, 0, 0, NULL, NULL};
    return launch(&command, stream, arguments);
}
