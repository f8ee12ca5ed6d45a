/* How a call fails, and how it logs. */
#ifndef HT_BASE_FAIL_H
#define HT_BASE_FAIL_H

#include "base/context.h"

/* Records the message and returns `status`. */
ht_status ht_fail(ht_context *ctx, ht_status status, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* HT_EINVAL for an argument that is NULL; ctx may be NULL, too: then the status is all there is. */
ht_status ht_fail_null(ht_context *ctx, const char *function, const char *argument);
/* Writes a line to the log, if the context has one. */
void ht_note(ht_context *ctx, ht_log_level level, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* A build that checks more: canaries in every plan. */
bool ht_debug_build(void);

/* At the start of a public function: `pointer` may not be NULL; `argument` is its name in the header. */
#define HT_NEED(ctx, pointer, argument)                                                                                \
    do {                                                                                                               \
        if (!(pointer)) return ht_fail_null((ctx), __func__, (argument));                                              \
    } while (0)

#define HT_FAIL(ctx, status, ...) return ht_fail((ctx), (status), __VA_ARGS__)
/* Passes a failure on. */
#define HT_TRY(call)                                                                                                   \
    do {                                                                                                               \
        ht_status try_status_ = (call);                                                                                \
        if (try_status_ != HT_OK) return try_status_;                                                                  \
    } while (0)

#endif
