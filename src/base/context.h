/* The context: its message and log, the thread pool, and the tables of ops and kernels. */
#ifndef HT_BASE_CONTEXT_H
#define HT_BASE_CONTEXT_H

#include <halftone/context.h>

struct ht_op;
struct ht_kernel;
struct ht_pool;
struct ht_arena;
struct ht_device;

struct ht_context {
    ht_status status; /* of the last failure */
    char message[1024];
    ht_log_fn log;
    void *log_arg;
    struct ht_arena *arena; /* lives as long as the context */
    struct ht_pool *pool;
    int isa; /* ht_isa: the best that kernels may use */
    /* Tables in order of preference; graph/ and kernel/ own the rows. */
    const struct ht_op **ops;
    size_t op_count, op_capacity;
    uint32_t *op_index; /* open-addressed hash of names, op_index_room slots, 0 is empty, else position + 1 */
    size_t op_index_capacity;
    const struct ht_kernel **kernels;
    size_t kernel_count, kernel_capacity;
    struct ht_device *devices; /* that were opened, the newest first; device/ owns them */
};

#endif
