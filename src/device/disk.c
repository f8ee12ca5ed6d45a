/* The disk as a device. Memory is files, one for each allocation, in a folder of a session's choice: preallocated, so
 * that a full disk is told before anything runs, and without a name, so that a process that dies leaves nothing. Copies
 * go past the page cache where the file system lets them. Queues are threads; what they move, and how, is
 * disk_transfer.c. */
#define _GNU_SOURCE /* O_DIRECT, O_TMPFILE, statx */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "device/disk_own.h"

enum { PAGE_BYTES = 4096, LONGEST_DELAY_NS = 400000, MOST_IN_FLIGHT = 1024, MOST_PARALLEL = 64 };

/* No address of memory is as high, on any machine that we run on. */
static const uintptr_t first_address = (uintptr_t)1 << 54;

/* ---- open and close ---- */

static ht_status check_range(ht_context *ctx, const char *name, int64_t value, int64_t least, int64_t most)
{
    if (value < least || value > most)
        HT_FAIL(ctx, HT_EINVAL, "disk: %s is %lld; it is from %lld to %lld", name, (long long)value, (long long)least,
                (long long)most);
    return HT_OK;
}

static ht_status take_options(disk_device *d, const ht_disk_opts *opts)
{
    ht_disk_opts o = HT_DISK_OPTS;
    ht_context *ctx = d->base.ctx;
    if (opts) memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    HT_TRY(check_range(ctx, "block_size", (int64_t)o.block_size, 1, 1 << 30));
    HT_TRY(check_range(ctx, "queue_depth", o.queue_depth, 1, MOST_IN_FLIGHT));
    HT_TRY(check_range(ctx, "intra_op_parallelism", o.intra_op_parallelism, 1, MOST_PARALLEL));
    d->opts = o;
    d->block_bytes = (o.block_size + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    d->depth = o.queue_depth * o.intra_op_parallelism;
    if (d->depth > MOST_IN_FLIGHT) d->depth = MOST_IN_FLIGHT;
    return HT_OK;
}

static ht_status check_folder(const disk_device *d)
{
    struct stat s;
    const char *reason = NULL;
    bool there = stat(d->folder, &s) == 0;
    if (there && !S_ISDIR(s.st_mode))
        reason = "it is not a folder";
    else if (!there || access(d->folder, W_OK | X_OK) != 0)
        reason = strerror(errno);
    if (reason) HT_FAIL(d->base.ctx, HT_EIO, "disk: %s cannot hold files: %s", d->folder, reason);
    return HT_OK;
}

/* io_uring where it is allowed, tried with a ring that is closed again. */
static void choose_engine(disk_device *d)
{
    disk_engine *engine = NULL;
    d->engine = &ht_disk_threads;
    if (d->opts.threads) return;
    d->engine_refused = ht_disk_fault_due(&d->faults, DISK_FAULT_URING) ? EPERM : ht_disk_uring.open(&engine, d->depth);
    if (d->engine_refused) return;
    engine->class->close(engine);
    d->engine = &ht_disk_uring;
}

static ht_status set_up(disk_device *d, const char *folder, const ht_disk_opts *opts)
{
    const char *seed = getenv("HALFTONE_DISK_SEED");
    d->folder = strdup(folder);
    if (!d->folder) HT_FAIL(d->base.ctx, HT_ENOMEM, "out of memory for the disk");
    d->next_address = (char *)first_address;
    d->align = d->memory_align = 1;
    d->direct = true;
    d->seed = seed ? strtoull(seed, NULL, 10) : 0;
    HT_TRY(take_options(d, opts));
    HT_TRY(ht_disk_faults_read(&d->faults, d->base.ctx));
    HT_TRY(check_folder(d));
    choose_engine(d);
    return HT_OK;
}

static void disk_close(ht_device *device)
{
    disk_device *d = (disk_device *)device;
    pthread_mutex_destroy(&d->edges);
    free(d->folder);
    free(d);
}

ht_status ht_disk_open(ht_device **out, ht_context *ctx, const char *folder, const ht_disk_opts *opts,
                       const ht_disk_user *user)
{
    disk_device *d = calloc(1, sizeof *d);
    *out = NULL;
    if (!d) HT_FAIL(ctx, HT_ENOMEM, "out of memory for the disk");
    d->base.class = &ht_device_disk;
    d->base.ctx = ctx;
    if (user) d->user = *user;
    pthread_mutex_init(&d->edges, NULL);
    ht_status status = set_up(d, folder, opts);
    if (status == HT_OK)
        *out = &d->base;
    else
        disk_close(&d->base);
    return status;
}

/* ---- files ---- */

/* -1: see errno. A file without a name from the start, or where that cannot be, one that loses it at once. */
static int open_file(const disk_device *d, disk_file *f, int flags)
{
    int file = d->opts.keep_files ? -1 : open(d->folder, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (file >= 0) return file;
    if (!d->opts.keep_files && errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL && errno != ENOENT) return -1;
    file = open(f->path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | flags, 0600);
    if (file < 0) return -1;
    f->named = d->opts.keep_files;
    if (!f->named) unlink(f->path);
    return file;
}

/* What direct requests must be multiples of; false: the file system has none. */
static bool find_alignment(disk_device *d, int file)
{
    struct statx s;
    d->align = d->memory_align = PAGE_BYTES;
    if (statx(file, "", AT_EMPTY_PATH, STATX_DIOALIGN, &s) != 0 || !(s.stx_mask & STATX_DIOALIGN)) return true;
    d->align = s.stx_dio_offset_align;
    d->memory_align = s.stx_dio_mem_align;
    return d->align && d->memory_align && d->align <= d->block_bytes && d->block_bytes % d->align == 0;
}

/* Some file systems take the flag and then refuse every request. */
static bool reads_direct(const disk_device *d, int file)
{
    void *block =
        aligned_alloc(d->align > PAGE_BYTES ? d->align : PAGE_BYTES, d->align > PAGE_BYTES ? d->align : PAGE_BYTES);
    bool reads = block && pread(file, block, d->align, 0) == (ssize_t)d->align;
    free(block);
    return reads;
}

static void be_buffered(disk_device *d)
{
    d->direct = false;
    d->align = d->memory_align = 1;
}

static ht_status open_either(disk_device *d, disk_file *f)
{
    if (d->direct && (d->opts.buffered || ht_disk_fault_due(&d->faults, DISK_FAULT_DIRECT))) be_buffered(d);
    f->file = open_file(d, f, d->direct ? O_DIRECT : 0);
    if (f->file < 0 && d->direct && errno == EINVAL) {
        be_buffered(d);
        f->file = open_file(d, f, 0);
    }
    if (f->file < 0) HT_FAIL(d->base.ctx, HT_EIO, "disk: %s could not be opened: %s", f->path, strerror(errno));
    return HT_OK;
}

static ht_status preallocate(const disk_device *d, const disk_file *f)
{
    struct statvfs s;
    int error = posix_fallocate(f->file, 0, (off_t)f->bytes);
    if (!error) return HT_OK;
    bool known = statvfs(d->folder, &s) == 0;
    unsigned long long available = known ? (unsigned long long)s.f_bavail * s.f_frsize : 0;
    if (error == ENOSPC && known)
        HT_FAIL(d->base.ctx, HT_EIO, "disk: %s has too little space: %zu bytes are needed, %llu are free", d->folder,
                f->bytes, available);
    HT_FAIL(d->base.ctx, HT_EIO, "disk: %zu bytes in %s could not be had: %s", f->bytes, d->folder, strerror(error));
}

static ht_status make_file(disk_device *d, disk_file *f, size_t bytes)
{
    static _Atomic unsigned number;
    bool first = d->next_address == (char *)first_address;
    size_t length = strlen(d->folder) + 64;
    f->path = malloc(length);
    if (!f->path) HT_FAIL(d->base.ctx, HT_ENOMEM, "out of memory for a file of the disk");
    snprintf(f->path, length, "%s/halftone-%ld-%u", d->folder, (long)getpid(), atomic_fetch_add(&number, 1));
    f->bytes = (bytes + PAGE_BYTES) / PAGE_BYTES * PAGE_BYTES;
    HT_TRY(open_either(d, f));
    HT_TRY(preallocate(d, f));
    if (first && d->direct && (!find_alignment(d, f->file) || !reads_direct(d, f->file))) be_buffered(d);
    if (!d->direct) fcntl(f->file, F_SETFL, fcntl(f->file, F_GETFL) & ~O_DIRECT);
    f->start = d->next_address;
    d->next_address += f->bytes + PAGE_BYTES;
    return HT_OK;
}

static void drop_file(disk_file *f)
{
    if (f->named) unlink(f->path);
    if (f->file >= 0) close(f->file);
    free(f->path);
    *f = (disk_file){0};
}

static ht_status disk_alloc(ht_device *device, size_t bytes, void **out)
{
    disk_device *d = (disk_device *)device;
    disk_file *f = d->files;
    *out = NULL;
    while (f < d->files + DISK_FILES && f->path) f++;
    if (f == d->files + DISK_FILES) HT_FAIL(device->ctx, HT_ENOMEM, "disk: more than %d allocations", DISK_FILES);
    f->file = -1;
    ht_status status = make_file(d, f, bytes);
    if (status == HT_OK)
        *out = f->start;
    else
        drop_file(f);
    return status;
}

const disk_file *ht_disk_find(const disk_device *d, const void *address)
{
    const char *at = address;
    for (const disk_file *f = d->files; f < d->files + DISK_FILES; f++)
        if (f->path && at >= f->start && at < f->start + f->bytes) return f;
    return NULL;
}

static void disk_free(ht_device *device, void *address)
{
    drop_file((disk_file *)ht_disk_find((const disk_device *)device, address));
}

static bool disk_host_address(const ht_device *device)
{
    (void)device;
    return false;
}

/* ---- queues ---- */

/* What a queue has besides its thread. */
typedef struct disk_queue {
    ht_queue *queue;
    disk_lane *lane;
    disk_stage *stage; /* NULL: the host can address all memory that is copied */
} disk_queue;

static disk_queue *own(const ht_queue *queue)
{
    return ht_thread_queue_copy_arg(queue);
}

static void free_own(disk_queue *q)
{
    ht_disk_stage_free(q->stage);
    ht_disk_lane_free(q->lane);
    free(q);
}

/* What was taken, once for a device, when it is known. */
static void tell(disk_device *d, const disk_lane *lane)
{
    if (d->told) return;
    d->told = true;
    ht_note(d->base.ctx, HT_LOG_INFO, "disk %s: %s%s%s%s%s, %s, %d requests of %zu bytes at once", d->folder,
            d->engine->name, ht_disk_lane_registered(lane) ? " with registered buffers" : "",
            d->engine_refused ? " (io_uring: " : "", d->engine_refused ? strerror(d->engine_refused) : "",
            d->engine_refused ? ")" : "", d->direct ? "O_DIRECT" : "through the page cache", d->depth, d->block_bytes);
}

/* Random delays, for tests that a missing wait shows in. */
static ht_status delay(ht_device *device, ht_context *messages, ht_command_kind kind)
{
    disk_device *d = (disk_device *)device;
    (void)messages;
    if (!d->seed || kind != HT_COMMAND_COPY) return HT_OK;
    ht_stream stream = {d->seed, atomic_fetch_add(&d->draws, 1), 0};
    double draw = ht_stream_uniform(&stream, 0);
    struct timespec time = {0, draw < 0.5 ? 0 : (long)((draw - 0.5) * 2 * LONGEST_DELAY_NS)};
    if (time.tv_nsec) nanosleep(&time, NULL);
    return HT_OK;
}

static ht_status transfer(void *arg, ht_context *messages, void *to, const void *from, size_t bytes)
{
    const disk_queue *q = arg;
    return ht_disk_transfer(q->lane, q->queue, messages, to, from, bytes);
}

static ht_status disk_queue_create(ht_device *device, ht_queue **out)
{
    disk_device *d = (disk_device *)device;
    bool staged = d->user.main && !d->user.main->class->host_address(d->user.main);
    disk_queue *q = calloc(1, sizeof *q);
    *out = NULL;
    if (!q) HT_FAIL(device->ctx, HT_ENOMEM, "out of memory for a queue of the disk");
    ht_status status = ht_disk_lane_create(&q->lane, d);
    if (status == HT_OK && staged) status = ht_disk_stage_create(&q->stage, d);
    if (status == HT_OK) status = ht_thread_queue_create(device, &(ht_thread_queue_hooks){delay, transfer, q}, out);
    q->queue = *out;
    if (status == HT_OK)
        tell(d, q->lane);
    else
        free_own(q);
    return status;
}

static ht_status disk_sync(ht_queue *queue)
{
    const disk_queue *q = own(queue);
    ht_status status = ht_thread_queue_sync(queue);
    if (!q->stage) return status;
    ht_queue *peer = ht_disk_stage_peer(q->stage);
    ht_status other = peer->device->class->sync(peer);
    return status != HT_OK ? status : other;
}

static ht_status disk_status(ht_queue *queue)
{
    const disk_queue *q = own(queue);
    HT_TRY(ht_thread_queue_status(queue));
    if (!q->stage) return HT_OK;
    ht_queue *peer = ht_disk_stage_peer(q->stage);
    return peer->device->class->status(peer);
}

static void disk_queue_free(ht_queue *queue)
{
    disk_queue *q = own(queue);
    (void)disk_sync(queue);
    ht_thread_queue_free(queue);
    free_own(q);
}

static ht_status disk_prepare(ht_device *device, ht_launch *launches, size_t count)
{
    for (size_t i = 0; i < count; i++) launches[i].ctx = device->ctx;
    return HT_OK;
}

static void disk_release(ht_device *device, ht_launch *launches)
{
    (void)device;
    (void)launches;
}

static bool in_main(const ht_call *call)
{
    return call->in[0]->space == HT_SPACE_MAIN || call->out[0]->space == HT_SPACE_MAIN;
}

/* Every launch is a copy of values without gaps: the planner sees to it. */
static ht_status disk_launch(ht_queue *queue, ht_run_fn run, const ht_launch *launch)
{
    const disk_queue *q = own(queue);
    size_t bytes = (size_t)ht_type_bytes(launch->call->out[0]);
    (void)run;
    if (!bytes) return HT_OK;
    if (q->stage && in_main(launch->call))
        return ht_disk_stage_copy(q->stage, queue, launch->out[0], launch->in[0], bytes);
    return ht_thread_queue_copy(queue, launch->out[0], launch->in[0], bytes);
}

static ht_status disk_copy(ht_queue *queue, void *to, const void *from, size_t bytes, ht_copy_kind kind)
{
    (void)kind;
    return ht_thread_queue_copy(queue, to, from, bytes);
}

const ht_device_class ht_device_disk = {
    .name = "disk",
    .asynchronous = true,
    .close = disk_close,
    .alloc = disk_alloc,
    .free = disk_free,
    .host_address = disk_host_address,
    .queue_create = disk_queue_create,
    .queue_free = disk_queue_free,
    .event_create = ht_thread_event_create,
    .event_free = ht_thread_event_free,
    .prepare = disk_prepare,
    .release = disk_release,
    .launch = disk_launch,
    .copy = disk_copy,
    .record = ht_thread_queue_record,
    .wait = ht_thread_queue_wait,
    .call = ht_thread_queue_call,
    .status = disk_status,
    .sync = disk_sync,
    .event_sync = ht_thread_event_sync,
    .event_done = ht_thread_event_done,
};
