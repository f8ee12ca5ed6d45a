/* halftone/context.h: the context, the root object that owns threads, tables, log and message; see types.h for the
 * contract of the API. */
#ifndef HALFTONE_CONTEXT_H
#define HALFTONE_CONTEXT_H

#include <halftone/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum ht_log_level { HT_LOG_INFO, HT_LOG_WARN } ht_log_level;
typedef void (*ht_log_fn)(void *arg, ht_log_level level, const char *line);

typedef struct ht_context_opts {
    size_t size;     /* set by HT_CONTEXT_OPTS */
    int threads;     /* 0: OMP_NUM_THREADS, else the cores that this process may use */
    const char *isa; /* NULL: HALFTONE_ISA, else the best of this machine; "portable", "avx2", "avx512" */
    ht_log_fn log;   /* NULL: no log */
    void *log_arg;
    /* The caller's memory for the reason of a failed ht_context_create, when there is no context yet to hold it: up to
     * message_size bytes, the final 0 included; "" after success. NULL: not wanted. */
    char *message;
    size_t message_size;
} ht_context_opts;

/* Initialiser: all defaults. Change single fields after it. */
#define HT_CONTEXT_OPTS                                                                                                \
    {                                                                                                                  \
        .size = sizeof(ht_context_opts)                                                                                \
    }

/* opts may be NULL. On failure *out is NULL, and the reason is in opts->message and the last line of the log. */
HT_API ht_status ht_context_create(ht_context **out, const ht_context_opts *opts);
HT_API void ht_context_free(ht_context *ctx);

/* The message of the last failure, in one line; "" when there was none, and for NULL. */
HT_API const char *ht_context_message(const ht_context *ctx);
HT_API int ht_context_threads(const ht_context *ctx);     /* 0 for NULL */
HT_API const char *ht_context_isa(const ht_context *ctx); /* "" for NULL */

HT_API const char *ht_version(void);

#ifdef __cplusplus
}
#endif

#endif
