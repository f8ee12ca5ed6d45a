/* The engine by io_uring: requests and results in rings that are shared with the kernel, and buffers that it has pinned
 * once. The build takes disk_no_uring.c where there is no liburing. */
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <sys/uio.h>

#include "device/disk_own.h"

typedef struct uring_engine {
    disk_engine base;
    struct io_uring ring;
    bool registered;
} uring_engine;

static int uring_open(disk_engine **out, int depth)
{
    uring_engine *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e) return ENOMEM;
    e->base.class = &ht_disk_uring;
    int error = -io_uring_queue_init((unsigned)depth, &e->ring, 0);
    if (error) {
        free(e);
        return error;
    }
    *out = &e->base;
    return 0;
}

static void uring_close(disk_engine *engine)
{
    uring_engine *e = (uring_engine *)engine;
    io_uring_queue_exit(&e->ring);
    free(e);
}

/* The limit on locked memory may refuse it. */
static bool uring_add_buffers(disk_engine *engine, char *memory, int count, size_t bytes)
{
    uring_engine *e = (uring_engine *)engine;
    struct iovec *list = calloc((size_t)count, sizeof *list);
    if (!list) return false;
    for (int i = 0; i < count; i++) list[i] = (struct iovec){memory + (size_t)i * bytes, bytes};
    e->registered = io_uring_register_buffers(&e->ring, list, (unsigned)count) == 0;
    free(list);
    return e->registered;
}

static int flush(uring_engine *e)
{
    int submitted;
    do submitted = io_uring_submit(&e->ring);
    while (submitted == -EINTR || submitted == -EAGAIN || submitted == -EBUSY);
    return submitted;
}

/* The ring has an entry for every request that can be under way. */
static void uring_submit(disk_engine *engine, disk_request *r, bool at_once)
{
    uring_engine *e = (uring_engine *)engine;
    struct io_uring_sqe *entry = io_uring_get_sqe(&e->ring);
    bool fixed = e->registered && r->buffer >= 0;
    unsigned bytes = (unsigned)r->bytes;
    uint64_t offset = (uint64_t)r->offset;
    if (r->write && fixed)
        io_uring_prep_write_fixed(entry, r->file, r->data, bytes, offset, r->buffer);
    else if (r->write)
        io_uring_prep_write(entry, r->file, r->data, bytes, offset);
    else if (fixed)
        io_uring_prep_read_fixed(entry, r->file, r->data, bytes, offset, r->buffer);
    else
        io_uring_prep_read(entry, r->file, r->data, bytes, offset);
    io_uring_sqe_set_data(entry, r);
    if (at_once) (void)flush(e); /* what could not be submitted is with the next one, and told when it is reaped */
}

static disk_request *uring_reap(disk_engine *engine)
{
    uring_engine *e = (uring_engine *)engine;
    struct io_uring_cqe *completion;
    if (flush(e) < 0) return NULL;
    int error;
    do error = io_uring_wait_cqe(&e->ring, &completion);
    while (error == -EINTR);
    if (error) return NULL;
    disk_request *request = io_uring_cqe_get_data(completion);
    request->result = completion->res;
    io_uring_cqe_seen(&e->ring, completion);
    return request;
}

const disk_engine_class ht_disk_uring = {
    .name = "io_uring",
    .open = uring_open,
    .close = uring_close,
    .add_buffers = uring_add_buffers,
    .submit = uring_submit,
    .reap = uring_reap,
};
