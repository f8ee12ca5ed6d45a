/* A fake accelerator: the processor with memory that only this file can reach, and queues that run late. It proves
 * without a GPU that the rooms above go through the device, wait where they must, and survive failures.
 *
 * Memory is one memfd mapped twice. The address that everyone else holds has no access rights, so a stray access of the
 * host faults; kernels get the alias. Before each command a queue's thread sleeps for a random time (HALFTONE_FAKE_SEED).
 * HALFTONE_FAKE_FAIL=alloc:3, launch:7 or copy:2 (several with commas) makes that command of a device fail. */
#define _GNU_SOURCE /* memfd_create */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "device/thread_queue.h"

enum { MOST_ALLOCATIONS = 64, LONGEST_DELAY_NS = 200000 };

typedef enum failing { FAIL_ALLOC, FAIL_LAUNCH, FAIL_COPY, FAIL_COUNT } failing;
static const char *const failing_names[FAIL_COUNT] = {"alloc", "launch", "copy"};

typedef struct allocation {
    char *address, *alias;
    size_t bytes;
} allocation;

typedef struct fake_device {
    ht_device base;
    allocation allocations[MOST_ALLOCATIONS];
    uint64_t seed;
    _Atomic uint64_t draws;
    int64_t fail_at[FAIL_COUNT]; /* 0: never */
    _Atomic int64_t seen[FAIL_COUNT];
} fake_device;

/* ---- open ---- */

static ht_status read_failures(fake_device *d, const char *text)
{
    for (const char *at = text; at && *at; at += strcspn(at, ",|"), at += *at != 0) {
        bool known = false;
        for (int i = 0; i < FAIL_COUNT; i++) {
            size_t length = strlen(failing_names[i]);
            char *end;
            if (strncmp(at, failing_names[i], length) != 0 || at[length] != ':') continue;
            d->fail_at[i] = strtoll(at + length + 1, &end, 10);
            known = d->fail_at[i] > 0 && (*end == 0 || *end == ',' || *end == '|');
        }
        if (!known)
            HT_FAIL(d->base.ctx, HT_EINVAL, "HALFTONE_FAKE_FAIL=%s: it takes alloc:N, launch:N and copy:N, N from 1",
                    text);
    }
    return HT_OK;
}

static ht_status fake_open(ht_device **out, ht_context *ctx, int number)
{
    (void)number;
    const char *seed = getenv("HALFTONE_FAKE_SEED");
    fake_device *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) HT_FAIL(ctx, HT_ENOMEM, "out of memory for the device fake");
    d->base.class = &ht_device_fake;
    d->base.ctx = ctx;
    d->seed = seed ? strtoull(seed, NULL, 10) : 0;
    ht_status status = read_failures(d, getenv("HALFTONE_FAKE_FAIL"));
    if (status == HT_OK)
        *out = &d->base;
    else
        free(d);
    return status;
}

static void fake_close(ht_device *device)
{
    free(device);
}

/* ---- failures and delays ---- */

static ht_status maybe_fail(fake_device *d, ht_context *messages, failing what)
{
    int64_t number = atomic_fetch_add(&d->seen[what], 1) + 1;
    if (number != d->fail_at[what]) return HT_OK;
    HT_FAIL(messages, HT_EDEVICE, "device fake: %s %lld fails, as HALFTONE_FAKE_FAIL says", failing_names[what],
            (long long)number);
}

static ht_status hook(ht_device *device, ht_context *messages, ht_command_kind kind)
{
    fake_device *d = (fake_device *)device;
    ht_stream stream = {d->seed, atomic_fetch_add(&d->draws, 1), 0};
    double draw = ht_stream_uniform(&stream, 0);
    /* Most commands run at once, some much later. */
    struct timespec delay = {0, draw < 0.9 ? 0 : (long)((draw - 0.9) * 10 * LONGEST_DELAY_NS)};
    if (delay.tv_nsec) nanosleep(&delay, NULL);
    if (kind == HT_COMMAND_LAUNCH) return maybe_fail(d, messages, FAIL_LAUNCH);
    return kind == HT_COMMAND_COPY ? maybe_fail(d, messages, FAIL_COPY) : HT_OK;
}

/* ---- memory ---- */

static ht_status map(fake_device *d, size_t bytes, allocation *a)
{
    int file = memfd_create("halftone-fake", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, (off_t)bytes) != 0) {
        if (file >= 0) close(file);
        HT_FAIL(d->base.ctx, HT_ENOMEM, "device fake: %zu bytes could not be had: %s", bytes, strerror(errno));
    }
    char *address = mmap(NULL, bytes, PROT_NONE, MAP_SHARED, file, 0);
    char *alias = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (address == MAP_FAILED || alias == MAP_FAILED) {
        if (address != MAP_FAILED) munmap(address, bytes);
        if (alias != MAP_FAILED) munmap(alias, bytes);
        HT_FAIL(d->base.ctx, HT_ENOMEM, "device fake: %zu bytes could not be mapped", bytes);
    }
    memset(alias, 0, bytes);
    *a = (allocation){address, alias, bytes};
    return HT_OK;
}

static ht_status fake_alloc(ht_device *device, size_t bytes, void **out)
{
    fake_device *d = (fake_device *)device;
    allocation *a = d->allocations;
    *out = NULL;
    HT_TRY(maybe_fail(d, d->base.ctx, FAIL_ALLOC));
    while (a < d->allocations + MOST_ALLOCATIONS && a->address) a++;
    if (a == d->allocations + MOST_ALLOCATIONS)
        HT_FAIL(d->base.ctx, HT_ENOMEM, "device fake: more than %d allocations", MOST_ALLOCATIONS);
    HT_TRY(map(d, bytes ? bytes : 1, a));
    *out = a->address;
    return HT_OK;
}

static allocation *find(fake_device *d, const void *address)
{
    const char *at = address;
    for (allocation *a = d->allocations; a < d->allocations + MOST_ALLOCATIONS; a++)
        if (a->address && at >= a->address && at < a->address + a->bytes) return a;
    return NULL;
}

static void fake_free(ht_device *device, void *address)
{
    allocation *a = find((fake_device *)device, address);
    munmap(a->address, a->bytes);
    munmap(a->alias, a->bytes);
    *a = (allocation){0};
}

static bool fake_host_address(const ht_device *device)
{
    (void)device;
    return false;
}

/* The address that works, of one that does not. An address of no allocation is the host's own. */
static void *alias_of(ht_device *device, const void *address)
{
    const allocation *a = address ? find((fake_device *)device, address) : NULL;
    return a ? a->alias + ((const char *)address - a->address) : (void *)address;
}

/* ---- queues ---- */

static ht_status fake_queue_create(ht_device *device, ht_queue **out)
{
    return ht_thread_queue_create(device, &(ht_thread_queue_hooks){.before = hook}, out);
}

/* A copy of `count` launches with addresses that work, in one piece of memory. */
static ht_status fake_prepare(ht_device *device, ht_launch *launches, size_t count)
{
    size_t pointers = 0;
    for (size_t i = 0; i < count; i++) pointers += launches[i].call->n_in + launches[i].call->n_out;
    ht_launch *own = malloc(count * sizeof *own + pointers * sizeof(void *));
    launches->prepared = own;
    if (!own) HT_FAIL(device->ctx, HT_ENOMEM, "out of memory for launches");
    void **at = (void **)(own + count);
    for (size_t i = 0; i < count; i++) {
        const ht_launch *from = &launches[i];
        own[i] = *from;
        own[i].in = (const void *const *)at;
        for (size_t k = 0; k < from->call->n_in; k++) *at++ = alias_of(device, from->in[k]);
        own[i].out = at;
        for (size_t k = 0; k < from->call->n_out; k++) *at++ = alias_of(device, from->out[k]);
        own[i].workspace = alias_of(device, from->workspace);
        own[i].pool = ht_thread_queue_pool(from->queue);
        own[i].ctx = ht_thread_queue_messages(from->queue);
        if (!own[i].pool) HT_FAIL(device->ctx, HT_ENOMEM, "no threads can be had for a queue of the device fake");
    }
    return HT_OK;
}

static void fake_release(ht_device *device, ht_launch *launches)
{
    (void)device;
    free(launches->prepared);
}

static ht_status fake_launch(ht_queue *queue, ht_run_fn run, const ht_launch *launch)
{
    const ht_launch *prepared = launch->prepared;
    if (prepared->block) return ht_thread_queue_launch(queue, run, prepared);
    ht_launch own = *prepared;
    own.prepacked = alias_of(queue->device, launch->prepacked);
    return ht_thread_queue_launch(queue, run, &own);
}

static ht_status fake_copy(ht_queue *queue, void *to, const void *from, size_t bytes, ht_copy_kind kind)
{
    if (kind != HT_COPY_FROM_DEVICE) to = alias_of(queue->device, to);
    if (kind != HT_COPY_TO_DEVICE) from = alias_of(queue->device, from);
    return ht_thread_queue_copy(queue, to, from, bytes);
}

const ht_device_class ht_device_fake = {
    .name = "fake",
    .runs_host_code = true,
    .asynchronous = true,
    .open = fake_open,
    .close = fake_close,
    .alloc = fake_alloc,
    .free = fake_free,
    .host_address = fake_host_address,
    .queue_create = fake_queue_create,
    .queue_free = ht_thread_queue_free,
    .event_create = ht_thread_event_create,
    .event_free = ht_thread_event_free,
    .prepare = fake_prepare,
    .release = fake_release,
    .launch = fake_launch,
    .copy = fake_copy,
    .record = ht_thread_queue_record,
    .wait = ht_thread_queue_wait,
    .call = ht_thread_queue_call,
    .status = ht_thread_queue_status,
    .sync = ht_thread_queue_sync,
    .event_sync = ht_thread_event_sync,
    .event_done = ht_thread_event_done,
};
