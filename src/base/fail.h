/* The context as the rooms see it, and how a call fails. */
#ifndef HT_BASE_FAIL_H
#define HT_BASE_FAIL_H

#include <halftone/context.h>

struct ht_op;
struct ht_kernel;
struct ht_pool;
struct ht_arena;

struct ht_context {
    ht_status status; /* of the last failure */
    char message[1024];
    ht_log_fn log;
    void *log_arg;
    struct ht_arena *arena; /* lives as long as the context */
    struct ht_pool *pool;
    int isa; /* ht_isa: the best that kernels may use */
    /* Tables, best first; the rooms graph/ and kernel/ own what they point to. */
    const struct ht_op **ops;
    size_t op_count, op_capacity;
    uint32_t *op_index; /* open-addressed hash of names, op_index_room slots, 0 is empty, else position + 1 */
    size_t op_index_capacity;
    const struct ht_kernel **kernels;
    size_t kernel_count, kernel_capacity;
};

/* Records the message and returns `status`. */
ht_status ht_fail(ht_context *ctx, ht_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* A line for the log, if somebody listens. */
void ht_note(ht_context *ctx, ht_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A build that checks more: canaries in every plan. */
bool ht_debug_build(void);

#define HT_FAIL(ctx, status, ...) return ht_fail((ctx), (status), __VA_ARGS__)
/* Passes a failure on. */
#define HT_TRY(call)                                                                                                   \
    do {                                                                                                               \
        ht_status try_status_ = (call);                                                                                \
        if (try_status_ != HT_OK) return try_status_;                                                                  \
    } while (0)

#endif
