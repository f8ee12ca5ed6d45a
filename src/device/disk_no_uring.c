/* In place of disk_uring.c in builds without liburing: io_uring is refused, and threads stand in for it. */
#include <errno.h>

#include "device/disk_own.h"

static int no_open(disk_engine **out, int depth)
{
    (void)depth;
    *out = NULL;
    return ENOSYS;
}

const disk_engine_class ht_disk_uring = {.name = "io_uring", .open = no_open};
