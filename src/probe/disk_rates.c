/* The disk: one after the other by the device @disk (blocks of 1 MiB, eight under way), as offload uses it; in random order
 * blocks of 4 KiB, one at a time, past the page cache where the file system lets it. Rates are means over the time, not the
 * best: a disk has moments of its own. */
#define _GNU_SOURCE /* O_DIRECT, O_TMPFILE */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "device/device.h"
#include "probe/probe_own.h"

enum { BLOCK = 4096, PIECE = 8 << 20, SHORT_FILE = 16 << 20, LONG_FILE = 256 << 20 };

typedef struct disk_probe {
    prober *p;
    size_t file_bytes;
    char *buffer; /* two pieces, aligned to pages */
    double seconds;
} disk_probe;

static ht_status add_row(disk_probe *d, const char *name, const char *what, const char *unit, double value)
{
    ht_probe_row *row = ht_probe_add(d->p, "disk", name, unit, value, 0);
    if (!row) return HT_ENOMEM;
    row->what = what;
    return HT_OK;
}

/* ---- one after the other ---- */

/* Bytes per second of whole passes over the file, until the time is up: always the same two pieces of memory, in turns, so
 * that the disk is measured and not memory, and a copy can begin before the one ahead of it has ended. */
static ht_status stream(const disk_probe *d, ht_queue *queue, char *file, bool write, double time, double *rate)
{
    double start = ht_probe_now(), seconds = 0, bytes = 0;
    do {
        for (size_t at = 0; at < d->file_bytes; at += PIECE) {
            char *piece = d->buffer + at % (2 * PIECE);
            if (write)
                HT_TRY(ht_queue_copy(queue, file + at, piece, PIECE, HT_COPY_TO_DEVICE));
            else
                HT_TRY(ht_queue_copy(queue, piece, file + at, PIECE, HT_COPY_FROM_DEVICE));
        }
        HT_TRY(ht_queue_sync(queue));
        bytes += (double)d->file_bytes;
        seconds = ht_probe_now() - start;
    } while (seconds < time);
    *rate = bytes / seconds;
    return HT_OK;
}

static ht_status stream_both(disk_probe *d, ht_queue *queue, char *file)
{
    ht_target *target = &d->p->out->target;
    double writes, reads;
    /* Blocks that were never written are written with more than their bytes: a pass ahead. */
    HT_TRY(stream(d, queue, file, true, 0, &writes));
    HT_TRY(stream(d, queue, file, true, d->seconds, &writes));
    HT_TRY(stream(d, queue, file, false, d->seconds, &reads));
    HT_TRY(add_row(d, "sequential", "read", "B/s", reads));
    HT_TRY(add_row(d, "sequential", "write", "B/s", writes));
    target->bandwidth[HT_SPACE_DISK] = reads < writes ? reads : writes;
    target->link[HT_SPACE_DISK][HT_SPACE_MAIN] = reads;
    target->link[HT_SPACE_MAIN][HT_SPACE_DISK] = writes;
    return HT_OK;
}

static ht_status measure_sequential(disk_probe *d)
{
    ht_device *disk;
    ht_queue *queue = NULL;
    void *file = NULL;
    HT_TRY(ht_disk_open(&disk, d->p->ctx, d->p->opts.disk_folder, NULL, NULL));
    ht_status status = disk->class->queue_create(disk, &queue);
    if (status == HT_OK) status = ht_device_alloc(disk, d->file_bytes, &file);
    if (status == HT_OK) status = stream_both(d, queue, file);
    if (queue) ht_queue_free(queue);
    if (file) ht_device_free(disk, file);
    disk->class->close(disk);
    return status;
}

/* ---- in random order ---- */

/* A file without a name, so that nothing is left of it; -1: errno. */
static int open_unnamed(const char *folder, int flags)
{
    char path[1024];
    int file = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC | flags, 0600);
    if (file >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != ENOENT)) return file;
    if (snprintf(path, sizeof path, "%s/halftone-probe.XXXXXX", folder) >= (int)sizeof path) return -1;
    file = mkostemp(path, O_CLOEXEC | flags);
    if (file >= 0) unlink(path);
    return file;
}

static bool write_all(const disk_probe *d, int file)
{
    for (size_t at = 0; at < d->file_bytes; at += PIECE)
        if (pwrite(file, d->buffer, PIECE, (off_t)at) != PIECE) return false;
    return fdatasync(file) == 0;
}

/* Blocks per second; below 0: errno. */
static double random_rate(const disk_probe *d, int file, bool write)
{
    uint64_t state = 88172645463325252u, blocks = d->file_bytes / BLOCK;
    double start = ht_probe_now(), seconds = 0;
    int64_t done = 0;
    do {
        state = state * 6364136223846793005u + 1442695040888963407u;
        off_t at = (off_t)((state >> 32) * blocks >> 32) * BLOCK;
        ssize_t moved = write ? pwrite(file, d->buffer, BLOCK, at) : pread(file, d->buffer, BLOCK, at);
        if (moved != BLOCK) return -1;
        done++;
        seconds = ht_probe_now() - start;
    } while (seconds < d->seconds);
    return (double)done / seconds;
}

static ht_status measure_random(disk_probe *d)
{
    ht_target *target = &d->p->out->target;
    const char *folder = d->p->opts.disk_folder;
    int file = open_unnamed(folder, O_DIRECT);
    if (file < 0 && errno == EINVAL) {
        snprintf(d->p->out->disk_note, sizeof d->p->out->disk_note,
                 "%.120s has no O_DIRECT: these are figures of the page cache", folder);
        file = open_unnamed(folder, 0);
    }
    double reads = -1, writes = -1;
    if (file >= 0 && write_all(d, file)) reads = random_rate(d, file, false);
    if (reads > 0) writes = random_rate(d, file, true);
    int error = errno;
    if (file >= 0) close(file);
    if (!(writes > 0)) HT_FAIL(d->p->ctx, HT_EIO, "probe: a file in %s: %s", folder, strerror(error));
    HT_TRY(add_row(d, "random", "read of 4 KiB, one at a time", "B/s", BLOCK * reads));
    HT_TRY(add_row(d, "random", "write of 4 KiB, one at a time", "B/s", BLOCK * writes));
    HT_TRY(add_row(d, "random", "latency of a read of 4 KiB", "s", 1 / reads));
    target->random_bandwidth[HT_SPACE_DISK] = BLOCK * reads;
    target->latency[HT_SPACE_DISK] = 1 / reads;
    return HT_OK;
}

ht_status ht_probe_disk(prober *p)
{
    disk_probe d = {.p = p, .file_bytes = p->slice < 0.05 ? SHORT_FILE : LONG_FILE, .seconds = 2 * p->slice};
    if (!p->opts.disk_folder) {
        snprintf(p->out->disk_note, sizeof p->out->disk_note, "no folder was given");
        return HT_OK;
    }
    ht_probe_tell(p, "disk");
    d.buffer = aligned_alloc(BLOCK, 2 * PIECE);
    if (!d.buffer) HT_FAIL(p->ctx, HT_ENOMEM, "probe: out of memory for what the disk is to hold");
    uint32_t random = 1; /* some disks compress */
    for (size_t i = 0; i < 2 * PIECE; i += sizeof random) {
        random = random * 1664525u + 1013904223u;
        memcpy(d.buffer + i, &random, sizeof random);
    }
    ht_status status = measure_sequential(&d);
    if (status == HT_OK) status = measure_random(&d);
    free(d.buffer);
    return status;
}
