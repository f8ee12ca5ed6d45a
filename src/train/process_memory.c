#include "train/process_memory.h"

#include <sys/resource.h>

#include "format/format.h"
#include "train/step_record.h"

enum {
    PROGRAM_BYTES = 24 << 20, /* tables of the executor, files being written, pages that the allocator keeps, and at the
                                 end of each area of the plan a part of a huge page */
    THREAD_BYTES = 1 << 20,   /* what a thread uses of its stack, and its share of the allocator */
    LOADER_BATCHES = 10,      /* two loaders with four batches made ahead and one being made */
    DISK_BUFFER_BYTES = 32 << 20, /* the most of a queue of the disk, of which there are two */
    DISK_PIECE_BYTES = 64 << 20,  /* the most that is read of a state on the disk to save it or to look at it */
};

int64_t ht_process_peak_bytes(void)
{
    struct rusage usage;
    return getrusage(RUSAGE_SELF, &usage) == 0 ? (int64_t)usage.ru_maxrss * 1024 : 0;
}

int64_t ht_device_bytes(const ht_session *session)
{
    if (ht_executor_device(session->executor)->class->runs_host_code) return 0;
    return ht_plan_bytes_in(session->plan, HT_SPACE_MAIN);
}

/* Buffers of requests, and a piece of the largest state there. */
static int64_t disk_reserve(const ht_plan *plan, const ht_disk_opts *disk)
{
    int64_t block = (int64_t)disk->block_size, piece = 0;
    int64_t buffers = block * disk->queue_depth * disk->intra_op_parallelism;
    if (!ht_plan_bytes_in(plan, HT_SPACE_DISK)) return 0;
    if (buffers > DISK_BUFFER_BYTES) buffers = DISK_BUFFER_BYTES;
    for (size_t i = 0; i < plan->slot_count; i++) {
        int64_t bytes = ht_type_bytes(&plan->slots[i].type);
        if (plan->slots[i].place.space == HT_SPACE_DISK && bytes > piece) piece = bytes;
    }
    return 2 * (buffers + block) + (piece < DISK_PIECE_BYTES ? piece : DISK_PIECE_BYTES);
}

const char *const ht_reserve_line_names[HT_RESERVE_COUNT] = {
#define HT_RESERVE(id, name) name,
#include "train/reserve_lines.def"
#undef HT_RESERVE
};

int64_t ht_reserve_sum(const ht_reserve *reserve)
{
    int64_t sum = 0;
    for (int i = 0; i < HT_RESERVE_COUNT; i++) sum += reserve->bytes[i];
    return sum;
}

ht_reserve ht_reserve_of(const ht_plan *plan, const ht_disk_opts *disk, int64_t micros, int64_t held)
{
    return (ht_reserve){{
        [HT_RESERVE_HELD] = held,
        [HT_RESERVE_FILES] = ht_content_mapped_bytes(),
        [HT_RESERVE_LOADER] = LOADER_BATCHES * ht_plan_area_bytes(plan, HT_AREA_INPUT),
        [HT_RESERVE_STAGING] = disk_reserve(plan, disk),
        [HT_RESERVE_RECORDS] = ht_step_records_bytes(micros),
        [HT_RESERVE_THREADS] = THREAD_BYTES * ht_context_threads(plan->ctx),
        [HT_RESERVE_PROGRAM] = PROGRAM_BYTES,
    }};
}
