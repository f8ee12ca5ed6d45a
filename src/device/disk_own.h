/* The disk's own: shared by the files that open it, move bytes, and stage copies. */
#ifndef HT_DEVICE_DISK_OWN_H
#define HT_DEVICE_DISK_OWN_H

#include <pthread.h>
#include <stdatomic.h>

#include <halftone/session.h>

#include "device/thread_queue.h"

/* ---- engines: how requests reach the kernel ---- */

typedef struct disk_request {
    int file;
    bool write;
    char *data;
    size_t bytes;
    int64_t offset;
    int buffer;     /* that `data` lies in, of those that the engine was told of; -1: it is other memory */
    int64_t result; /* bytes, or -errno */
    /* The transfer's own: what it is part of, where the bytes of a buffer belong, how many are done. */
    struct disk_stream *stream;
    char *memory;
    size_t done;
} disk_request;

typedef struct disk_engine disk_engine;

/* `depth` requests at most are under way at once. */
typedef struct disk_engine_class {
    const char *name;
    /* 0, or an errno that says why there is no such engine here. */
    int (*open)(disk_engine **out, int depth);
    void (*close)(disk_engine *engine);
    /* Memory of `count` times `bytes` that many requests will use. False: it is memory like any other. */
    bool (*add_buffers)(disk_engine *engine, char *memory, int count, size_t bytes);
    /* A request begins at once, or at the latest when one is reaped. */
    void (*submit)(disk_engine *engine, disk_request *request, bool at_once);
    /* Waits for one that is done. NULL: the engine is broken. */
    disk_request *(*reap)(disk_engine *engine);
} disk_engine_class;

struct disk_engine {
    const disk_engine_class *class;
};

extern const disk_engine_class ht_disk_uring, ht_disk_threads;

/* ---- the device ---- */

/* Faults on demand, for tests: HALFTONE_DISK_FAIL=read:3 (EIO), write:2 (EIO), full:4 (a write, ENOSPC), short:5 (a
 * request moves half of its bytes), uring:1 and direct:1 (are refused); several with commas. */
typedef enum disk_fault {
    DISK_FAULT_READ,
    DISK_FAULT_WRITE,
    DISK_FAULT_FULL,
    DISK_FAULT_SHORT,
    DISK_FAULT_URING,
    DISK_FAULT_DIRECT,
    DISK_FAULT_COUNT
} disk_fault;

typedef struct disk_faults {
    int64_t at[DISK_FAULT_COUNT]; /* 0: never */
    _Atomic int64_t seen[DISK_FAULT_COUNT];
} disk_faults;

ht_status ht_disk_faults_read(disk_faults *faults, ht_context *ctx);
/* Is it this one's turn? */
bool ht_disk_fault_due(disk_faults *faults, disk_fault fault);
/* The result of a request as the faults have it; `align`: of what may be left of a short one. */
int64_t ht_disk_fault_result(disk_faults *faults, bool write, int64_t result, size_t align);

/* One allocation. */
typedef struct disk_file {
    int file;
    char *start; /* its first address */
    size_t bytes;
    char *path;
    bool named; /* it still has its name in the folder */
} disk_file;

enum { DISK_FILES = 8 };

typedef struct disk_device {
    ht_device base;
    char *folder;
    ht_disk_opts opts;
    ht_disk_user user;
    const disk_engine_class *engine;
    int engine_refused; /* errno of io_uring where threads stand in for it; 0: it was not refused */
    int depth;          /* requests under way at once, of one queue */
    size_t block_bytes;
    bool direct;                 /* past the page cache */
    size_t align, memory_align;  /* of a direct request's offset and size, and of its memory; else 1 */
    pthread_mutex_t edges;       /* held while a part of a block is written */
    disk_file files[DISK_FILES]; /* without a path: none */
    char *next_address;
    bool told; /* the log has what was taken */
    disk_faults faults;
    uint64_t seed; /* of random delays; 0: there are none */
    _Atomic uint64_t draws;
} disk_device;

/* The file at an address; NULL: it is an address of memory. */
const disk_file *ht_disk_find(const disk_device *d, const void *address);

/* ---- disk_transfer.c: the bytes of a copy, in the thread of a queue ---- */

typedef struct disk_lane disk_lane;
ht_status ht_disk_lane_create(disk_lane **out, disk_device *d);
void ht_disk_lane_free(disk_lane *lane);
bool ht_disk_lane_registered(const disk_lane *lane); /* does the engine know its buffers? */
/* Of the copy that `queue` runs, which has the lane. What comes behind it there may begin meanwhile. */
ht_status ht_disk_transfer(disk_lane *lane, ht_queue *queue, ht_context *messages, void *to, const void *from,
                           size_t bytes);

/* ---- disk_staged.c: copies between the disk and memory that the host cannot address ---- */

typedef struct disk_stage disk_stage;
ht_status ht_disk_stage_create(disk_stage **out, disk_device *d);
void ht_disk_stage_free(disk_stage *stage); /* takes NULL */
ht_status ht_disk_stage_copy(disk_stage *stage, ht_queue *queue, void *to, const void *from, size_t bytes);
ht_queue *ht_disk_stage_peer(const disk_stage *stage);

#endif
