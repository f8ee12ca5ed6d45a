#include "train/process_memory.h"

#include <sys/resource.h>

#include "format/format.h"

enum {
    PROGRAM_BYTES = 24 << 20, /* tables of the executor, files being written, pages that the allocator keeps, and at the
                                 end of each area of the plan a part of a huge page */
    THREAD_BYTES = 1 << 20,   /* what a thread uses of its stack, and its share of the allocator */
    LOADER_BATCHES = 10,      /* two loaders with four batches made ahead and one being made */
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

int64_t ht_reserve_bytes(const ht_plan *plan, int64_t held)
{
    int64_t threads = ht_context_threads(plan->ctx);
    return held + ht_content_mapped_bytes() + PROGRAM_BYTES + threads * THREAD_BYTES +
           LOADER_BATCHES * ht_plan_area_bytes(plan, HT_AREA_INPUT);
}
