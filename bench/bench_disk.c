/* The disk device against fio, with the same blocks, depth and O_DIRECT on the same file system: bytes from a file to
 * memory, from memory to a file, and both at once. The two take turns, so that what else the disk does meets both.
 * HALFTONE_BENCH_DISK is the folder (else TMPDIR, /tmp), HALFTONE_BENCH_ROUNDS how often (15). */
#include <stdint.h>
#include <unistd.h>

#include <halftone/session.h>

#include "bench_common.h"
#include "device/device.h"
#include "fio.h"

enum { TILE_BYTES = 64 << 20, TILES = 4, MOST_ROUNDS = 99, ROUNDS = 15 };

static const char *const directions[FIO_DIRECTIONS] = {"read", "write", "read_and_write"};

/* ---- ours ---- */

typedef struct side {
    ht_queue *queue;
    char *file, *memory; /* of two tiles, which are filled in turn */
} side;

typedef struct ours {
    ht_context *ctx;
    ht_device *disk;
    side in, out;
} ours;

static void must(const ours *o, ht_status status)
{
    if (status == HT_OK) return;
    fprintf(stderr, "bench_disk: %s\n", ht_context_message(o->ctx));
    exit(1);
}

static void open_side(ours *o, side *s)
{
    void *file;
    must(o, o->disk->class->queue_create(o->disk, &s->queue));
    must(o, ht_device_alloc(o->disk, (size_t)TILE_BYTES * TILES, &file));
    s->file = file;
    s->memory = aligned_alloc(4096, 2 * (size_t)TILE_BYTES);
    if (!s->memory) exit(1);
    uint32_t random = 1; /* some disks compress */
    for (size_t i = 0; i < 2 * (size_t)TILE_BYTES; i += 4) {
        random = random * 1664525 + 1013904223;
        memcpy(s->memory + i, &random, 4);
    }
}

static void close_side(const ours *o, side *s)
{
    ht_queue_free(s->queue);
    ht_device_free(o->disk, s->file);
    free(s->memory);
}

/* Bytes per second. */
static double run_ours(const ours *o, fio_direction way)
{
    double start = bench_now();
    for (int i = 0; i < TILES; i++) {
        size_t at = (size_t)i * TILE_BYTES, half = (size_t)(i % 2) * TILE_BYTES;
        if (way != FIO_OUT)
            must(o, ht_queue_copy(o->in.queue, o->in.memory + half, o->in.file + at, TILE_BYTES, HT_COPY_FROM_DEVICE));
        if (way != FIO_IN)
            must(o, ht_queue_copy(o->out.queue, o->out.file + at, o->out.memory + half, TILE_BYTES, HT_COPY_TO_DEVICE));
    }
    must(o, ht_queue_sync(o->in.queue));
    must(o, ht_queue_sync(o->out.queue));
    return (double)TILE_BYTES * TILES * (way == FIO_BOTH ? 2 : 1) / (bench_now() - start);
}

/* Blocks that were never written are read without the disk, and written with more than their bytes. */
static void fill_files(const ours *o)
{
    for (int i = 0; i < TILES; i++)
        must(o, ht_queue_copy(o->in.queue, o->in.file + (size_t)i * TILE_BYTES, o->in.memory, TILE_BYTES,
                              HT_COPY_TO_DEVICE));
    must(o, ht_queue_sync(o->in.queue));
    (void)run_ours(o, FIO_OUT);
}

static void measure(ht_context *ctx, const char *folder, const ht_disk_opts *opts, int rounds)
{
    ours o = {.ctx = ctx};
    double mine[MOST_ROUNDS], theirs[MOST_ROUNDS];
    must(&o, ht_disk_open(&o.disk, ctx, folder, opts, NULL));
    open_side(&o, &o.in);
    open_side(&o, &o.out);
    fill_files(&o);
    (void)fio_rate(folder, FIO_BOTH, opts, (int64_t)TILE_BYTES * TILES); /* its files */
    for (int way = 0; way < FIO_DIRECTIONS; way++) {
        char name[64];
        for (int i = 0; i < rounds; i++) {
            if (i % 2) mine[i] = run_ours(&o, (fio_direction)way) / 1e9;
            theirs[i] = fio_rate(folder, (fio_direction)way, opts, (int64_t)TILE_BYTES * TILES) / 1e9;
            if (i % 2 == 0) mine[i] = run_ours(&o, (fio_direction)way) / 1e9;
        }
        snprintf(name, sizeof name, "disk_%s%s_%zuk_depth%d", directions[way], opts->threads ? "_threads" : "",
                 opts->block_size / 1024, opts->queue_depth);
        bench_line(name, bench_median(mine, rounds), bench_median(theirs, rounds), "fio", "GB/s");
    }
    close_side(&o, &o.in);
    close_side(&o, &o.out);
    o.disk->class->close(o.disk);
}

int main(void)
{
    const char *base = getenv("HALFTONE_BENCH_DISK"), *count = getenv("HALFTONE_BENCH_ROUNDS");
    char folder[512], command[600];
    int rounds = count ? atoi(count) : ROUNDS;
    if (!base) base = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    if (rounds < 1 || rounds > MOST_ROUNDS) rounds = ROUNDS;
    snprintf(folder, sizeof folder, "%s/bench_disk.XXXXXX", base);
    if (!mkdtemp(folder)) {
        fprintf(stderr, "bench_disk: no folder in %s\n", base);
        return 1;
    }
    ht_context *ctx;
    if (ht_context_create(&ctx, NULL) != HT_OK) return 1;
    for (int threads = 0; threads < 2; threads++) {
        ht_disk_opts opts = HT_DISK_OPTS;
        opts.threads = threads;
        measure(ctx, folder, &opts, rounds);
    }
    ht_context_free(ctx);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : 1;
}
