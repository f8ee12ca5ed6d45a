/* The bytes of a copy from or to a file: in blocks, several requests at once. A request is direct from or to the copy's
 * memory where that is aligned as the file wants it, else through a buffer of the lane's own. Where a copy begins or
 * ends within a block, that block is read, and for a write patched and written back. When all blocks of a copy are asked
 * for, those of the next one in the queue follow, so that the disk has as much to do between two copies as within one. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/disk_own.h"

enum { PAGE_BYTES = 4096, MOST_BUFFER_BYTES = 32 << 20 };

/* A part of a copy that lies in one file. */
typedef struct transfer {
    disk_lane *lane;
    const disk_file *file;
    ht_context *messages;
    bool write;
    char *memory;       /* of the first byte */
    int64_t first, end; /* in the file */
} transfer;

/* The whole blocks of a transfer. */
typedef struct disk_stream {
    transfer t;
    int64_t next, end; /* what is not asked for yet */
    int under_way;     /* requests */
    ht_status status;
} disk_stream;

struct disk_lane {
    disk_device *device;
    ht_queue *queue;        /* that runs the copy at hand */
    disk_stream streams[2]; /* of the copy at hand, and of the next one */
    int current;            /* index of the first of the two */
    bool ahead;             /* the next one has begun */
    disk_engine *engine;
    char *memory; /* buffers of block_bytes each, then the edge and the block between two files */
    int buffer_count;
    bool registered;
    char *edge, *between;
    disk_request *requests; /* `depth` of them */
    disk_request **spare;   /* those that are not under way */
    int *spare_buffers;
    int spare_count, spare_buffer_count;
};

/* ---- lanes ---- */

static int count_buffers(const disk_device *d)
{
    size_t most = MOST_BUFFER_BYTES / d->block_bytes;
    if (most < 2) most = 2;
    return (size_t)d->depth < most ? d->depth : (int)most;
}

/* Without memory or threads for all of them it is none. */
static int open_lane(disk_lane *lane)
{
    const disk_device *d = lane->device;
    size_t blocks = (size_t)lane->buffer_count * d->block_bytes, edge = d->align > PAGE_BYTES ? d->align : PAGE_BYTES;
    int error = d->engine->open(&lane->engine, d->depth);
    if (error) return error;
    lane->memory = aligned_alloc(edge, blocks + edge + d->block_bytes);
    lane->requests = calloc((size_t)d->depth, sizeof *lane->requests);
    lane->spare = calloc((size_t)d->depth, sizeof(disk_request *));
    lane->spare_buffers = calloc((size_t)lane->buffer_count, sizeof *lane->spare_buffers);
    if (!lane->memory || !lane->requests || !lane->spare || !lane->spare_buffers) return ENOMEM;
    lane->edge = lane->memory + blocks;
    lane->between = lane->edge + edge;
    lane->registered = d->engine->add_buffers(lane->engine, lane->memory, lane->buffer_count, d->block_bytes);
    for (int i = 0; i < d->depth; i++) lane->spare[lane->spare_count++] = &lane->requests[i];
    for (int i = 0; i < lane->buffer_count; i++) lane->spare_buffers[lane->spare_buffer_count++] = i;
    return 0;
}

ht_status ht_disk_lane_create(disk_lane **out, disk_device *d)
{
    disk_lane *lane = *out = calloc(1, sizeof *lane);
    if (!lane) HT_FAIL(d->base.ctx, HT_ENOMEM, "out of memory for a queue of the disk");
    lane->device = d;
    lane->buffer_count = count_buffers(d);
    int error = open_lane(lane);
    if (!error) return HT_OK;
    ht_disk_lane_free(lane);
    *out = NULL;
    HT_FAIL(d->base.ctx, error == ENOMEM ? HT_ENOMEM : HT_EDEVICE, "disk %s: no queue with %s could be had: %s",
            d->folder, d->engine->name, strerror(error));
}

void ht_disk_lane_free(disk_lane *lane)
{
    if (!lane) return;
    if (lane->engine) lane->engine->class->close(lane->engine);
    free(lane->memory);
    free(lane->requests);
    free(lane->spare);
    free(lane->spare_buffers);
    free(lane);
}

bool ht_disk_lane_registered(const disk_lane *lane)
{
    return lane->registered;
}

/* ---- failures ---- */

static ht_status fail_at(const transfer *t, int64_t offset, const char *reason)
{
    const ht_disk_user *user = &t->lane->device->user;
    const char *name = user->name ? user->name(user->arg, t->file->start + t->first) : NULL;
    HT_FAIL(t->messages, HT_EDEVICE, "%s %s%s%s failed: %s, at byte %lld: %s", t->write ? "writing" : "reading",
            name ? "'" : "", name ? name : "values in @disk", name ? "'" : "", t->file->path, (long long)offset,
            reason);
}

/* One of the two is a file. A write only reads its memory. */
static transfer transfer_of(disk_lane *lane, ht_context *messages, const ht_next_copy *copy, const disk_file *source,
                            const disk_file *goal)
{
    const disk_file *file = source ? source : goal;
    const char *address = source ? copy->from : copy->to;
    int64_t first = address - file->start;
    char *memory = source ? copy->to : (char *)copy->from;
    return (transfer){lane, file, messages, !source, memory, first, first + (int64_t)copy->bytes};
}

static bool is_whole(const transfer *t)
{
    struct stat s;
    return fstat(t->file->file, &s) == 0 && (uint64_t)s.st_size >= t->file->bytes;
}

/* Bytes that somebody cut off would be read as zeros once the file has grown again. */
static ht_status check_size(const transfer *t)
{
    struct stat s;
    char reason[128];
    if (fstat(t->file->file, &s) != 0) return fail_at(t, t->first, strerror(errno));
    if ((uint64_t)s.st_size >= t->file->bytes) return HT_OK;
    snprintf(reason, sizeof reason, "the file was truncated to %lld of its %zu bytes", (long long)s.st_size,
             t->file->bytes);
    return fail_at(t, t->first, reason);
}

static int64_t judge(const transfer *t, bool write, int64_t result)
{
    return ht_disk_fault_result(&t->lane->device->faults, write, result, t->lane->device->align);
}

/* ---- edges ---- */

/* A whole block, from or to the lane's edge. */
static ht_status move_edge(const transfer *t, int64_t offset, bool write)
{
    size_t bytes = t->lane->device->align, done = 0;
    while (done < bytes) {
        char *at = t->lane->edge + done;
        ssize_t moved = write ? pwrite(t->file->file, at, bytes - done, offset + (int64_t)done)
                              : pread(t->file->file, at, bytes - done, offset + (int64_t)done);
        if (moved < 0 && errno == EINTR) continue;
        int64_t result = judge(t, write, moved < 0 ? -errno : moved);
        if (result < 0) return fail_at(t, offset, strerror((int)-result));
        if (result == 0) return fail_at(t, offset, "the file ends there");
        done += (size_t)result;
    }
    return HT_OK;
}

/* Bytes [first, end) of one block. Two tiles may share a block: who writes a part of one does it alone. */
static ht_status transfer_edge(const transfer *t, int64_t first, int64_t end)
{
    disk_device *d = t->lane->device;
    int64_t block = first / (int64_t)d->align * (int64_t)d->align;
    char *edge = t->lane->edge + (first - block), *memory = t->memory + (first - t->first);
    if (!t->write) {
        HT_TRY(move_edge(t, block, false));
        memcpy(memory, edge, (size_t)(end - first));
        return HT_OK;
    }
    pthread_mutex_lock(&d->edges);
    ht_status status = move_edge(t, block, false);
    if (status == HT_OK) {
        memcpy(edge, memory, (size_t)(end - first));
        status = move_edge(t, block, true);
    }
    pthread_mutex_unlock(&d->edges);
    return status;
}

/* ---- blocks ---- */

static void submit(disk_lane *lane, disk_request *r)
{
    const disk_device *d = lane->device;
    r->data = (r->buffer < 0 ? r->memory : lane->memory + (size_t)r->buffer * d->block_bytes) + r->done;
    lane->engine->class->submit(lane->engine, r, d->opts.single_submit);
}

/* The next block, if there is a request for it, and a buffer where it needs one. */
static bool issue(disk_lane *lane, disk_stream *s)
{
    const disk_device *d = lane->device;
    if (s->status != HT_OK || s->next == s->end || !lane->spare_count) return false;
    char *memory = s->t.memory + (s->next - s->t.first);
    bool direct = (uintptr_t)memory % d->memory_align == 0;
    if (!direct && !lane->spare_buffer_count) return false;
    int64_t bytes = s->end - s->next;
    if (bytes > (int64_t)d->block_bytes) bytes = (int64_t)d->block_bytes;
    disk_request *r = lane->spare[--lane->spare_count];
    *r = (disk_request){.file = s->t.file->file,
                        .write = s->t.write,
                        .bytes = (size_t)bytes,
                        .offset = s->next,
                        .buffer = direct ? -1 : lane->spare_buffers[--lane->spare_buffer_count],
                        .stream = s,
                        .memory = memory};
    if (!direct && r->write) memcpy(lane->memory + (size_t)r->buffer * d->block_bytes, memory, r->bytes);
    s->next += bytes;
    s->under_way++;
    submit(lane, r);
    return true;
}

/* Takes what a request moved. True: it has to go on. A direct one goes on from a multiple of the alignment. */
static bool advance(disk_request *r)
{
    disk_stream *s = r->stream;
    size_t align = s->t.lane->device->align;
    if (r->result == -EINTR || r->result == -EAGAIN) return s->status == HT_OK;
    int64_t result = judge(&s->t, r->write, r->result);
    if (s->status != HT_OK) return false;
    if (result < 0) {
        s->status = fail_at(&s->t, r->offset, strerror((int)-result));
        return false;
    }
    if ((size_t)result == r->bytes) {
        r->done += r->bytes;
        return false;
    }
    size_t moved = (size_t)result / align * align;
    if (!moved) s->status = fail_at(&s->t, r->offset, r->write ? "nothing was written" : "the file ends there");
    r->done += moved;
    r->offset += (int64_t)moved;
    r->bytes -= moved;
    return moved != 0;
}

static void finish(disk_lane *lane, disk_request *r)
{
    if (r->buffer >= 0) {
        const char *buffer = lane->memory + (size_t)r->buffer * lane->device->block_bytes;
        if (!r->write && r->stream->status == HT_OK) memcpy(r->memory, buffer, r->done);
        lane->spare_buffers[lane->spare_buffer_count++] = r->buffer;
    }
    r->stream->under_way--;
    lane->spare[lane->spare_count++] = r;
}

/* One request that is done; false: the engine is broken. */
static bool reap(disk_lane *lane)
{
    disk_request *r = lane->engine->class->reap(lane->engine);
    if (!r) return false;
    if (advance(r))
        submit(lane, r);
    else
        finish(lane, r);
    return true;
}

static disk_stream stream_of(const transfer *t)
{
    int64_t align = (int64_t)t->lane->device->align;
    int64_t body = (t->first + align - 1) / align * align, tail = t->end / align * align;
    return (disk_stream){.t = *t, .next = body, .end = tail > body ? tail : body};
}

/* ---- the next copy ---- */

/* Does one of the two write what the other reads or writes? */
static bool conflict(const transfer *a, const transfer *b)
{
    int64_t align = (int64_t)a->lane->device->align; /* they may share a block */
    bool memory = a->memory < b->memory + (b->end - b->first) && b->memory < a->memory + (a->end - a->first);
    bool file =
        a->file == b->file && a->first / align <= (b->end - 1) / align && b->first / align <= (a->end - 1) / align;
    return (memory && !(a->write && b->write)) || (file && (a->write || b->write));
}

/* Begins the copy behind the one at hand, if neither needs anything of the other. */
static void look_ahead(disk_lane *lane)
{
    const disk_device *d = lane->device;
    disk_stream *s = &lane->streams[lane->current], *next = &lane->streams[1 - lane->current];
    ht_next_copy copy;
    if (!lane->queue || s->status != HT_OK || s->next != s->end || !d->opts.overlap_events) return;
    if (!lane->ahead && ht_thread_queue_next_copy(lane->queue, &copy)) {
        const disk_file *source = ht_disk_find(d, copy.from), *goal = ht_disk_find(d, copy.to);
        if ((source != NULL) == (goal != NULL)) return;
        transfer t = transfer_of(lane, s->t.messages, &copy, source, goal);
        if (conflict(&s->t, &t) || !is_whole(&t)) return;
        *next = stream_of(&t);
        lane->ahead = true;
    }
    while (lane->ahead && issue(lane, next)) {
    }
}

/* Also after a failure everything that is under way is waited for: the memory is not ours. */
static ht_status transfer_blocks(disk_lane *lane)
{
    const disk_device *d = lane->device;
    disk_stream *s = &lane->streams[lane->current], *next = &lane->streams[1 - lane->current];
    bool works = true;
    while (issue(lane, s)) {
    }
    while (works && s->under_way) {
        look_ahead(lane);
        works = reap(lane);
        if (d->opts.overlap_events || !s->under_way)
            while (issue(lane, s)) {
            }
    }
    while (works && s->status != HT_OK && next->under_way) works = reap(lane);
    return works ? s->status : fail_at(&s->t, s->next, "io_uring took no more requests");
}

/* ---- copies ---- */

/* The blocks may have begun during the copy before. */
static ht_status transfer_file(const transfer *t)
{
    disk_lane *lane = t->lane;
    int64_t align = (int64_t)lane->device->align;
    int64_t body = (t->first + align - 1) / align * align, tail = t->end / align * align;
    if (lane->ahead)
        lane->current = 1 - lane->current;
    else
        lane->streams[lane->current] = stream_of(t);
    lane->ahead = false;
    ht_status status = check_size(t);
    if (status == HT_OK && body > t->first) status = transfer_edge(t, t->first, body < t->end ? body : t->end);
    if (status == HT_OK && tail >= body && tail < t->end) status = transfer_edge(t, tail, t->end);
    if (status != HT_OK) lane->streams[lane->current].status = status;
    return transfer_blocks(lane);
}

/* From file to file, block by block. */
static ht_status copy_within(disk_lane *lane, ht_context *messages, char *to, const char *from, size_t bytes)
{
    const disk_device *d = lane->device;
    for (size_t done = 0; done < bytes; done += d->block_bytes) {
        size_t part = bytes - done < d->block_bytes ? bytes - done : d->block_bytes;
        ht_next_copy read = {lane->between, from + done, part}, write = {to + done, lane->between, part};
        transfer in = transfer_of(lane, messages, &read, ht_disk_find(d, from), NULL);
        transfer out = transfer_of(lane, messages, &write, NULL, ht_disk_find(d, to));
        HT_TRY(transfer_file(&in));
        HT_TRY(transfer_file(&out));
    }
    return HT_OK;
}

ht_status ht_disk_transfer(disk_lane *lane, ht_queue *queue, ht_context *messages, void *to, const void *from,
                           size_t bytes)
{
    const disk_file *source = ht_disk_find(lane->device, from), *goal = ht_disk_find(lane->device, to);
    if (source && goal) {
        lane->queue = NULL; /* of several transfers: none looks ahead */
        return copy_within(lane, messages, to, from, bytes);
    }
    lane->queue = queue;
    transfer t = transfer_of(lane, messages, &(ht_next_copy){to, from, bytes}, source, goal);
    return transfer_file(&t);
}
