/* halftone/types.h: the types that every other header uses: status, number types, values and handles.
 *
 * Contract of the whole API: a call that can fail returns ht_status and writes its result to the first argument; the
 * message is on the context (ht_context_message). A pointer that is NULL where none may be is HT_EINVAL, and the message
 * names the argument; the functions that build a graph latch it there and return HT_NONE, and look at a graph that is
 * NULL as at one that has failed. Handles are opaque; `free` functions take NULL; returned pointers are borrowed and
 * live as long as the handle they came from. A context and everything made from it belong to one thread at
 * a time. The library never prints and never exits. */
#ifndef HALFTONE_TYPES_H
#define HALFTONE_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define HT_API __attribute__((visibility("default")))
#else
#define HT_API
#endif

typedef enum ht_status {
    HT_OK = 0,
    HT_ENOMEM,     /* allocation failed */
    HT_EINVAL,     /* an argument, name or attribute is wrong */
    HT_ESHAPE,     /* shapes do not fit together, or a size overflows */
    HT_EDTYPE,     /* a number type that the op does not take */
    HT_EPARSE,     /* text that is not a graph, a target or JSON */
    HT_EIO,        /* a file could not be read or written */
    HT_ENOTSUP,    /* known, but not supported: no gradient, no kernel */
    HT_EVERIFY,    /* a graph that breaks a rule of the IR */
    HT_EDEVICE,    /* a device failed: a launch, a copy, its memory */
    HT_ENONFINITE, /* gradients stay inf or NaN: no further update is made */
    HT_ERANK       /* another rank failed, is absent, or does something else */
} ht_status;

/* The rows are in halftone/dtypes.def: id, name in text, bytes per element, is it floating point. */
typedef enum ht_dtype {
#define HT_DTYPE(id, text, bytes, is_float) HT_##id,
#include <halftone/dtypes.def>
#undef HT_DTYPE
    HT_DTYPE_COUNT
} ht_dtype;

#define HT_MAX_RANK 8

/* A value of a graph. Valid in the graph that made it; id 0 is "none" (an optional input left out). */
typedef struct ht_val {
    uint32_t id;
} ht_val;

#define HT_NONE ((ht_val){0})

typedef struct ht_context ht_context; /* op and kernel tables, thread pool, log, last message */
typedef struct ht_graph ht_graph;     /* state, segments and programs, before planning */
typedef struct ht_plan ht_plan;       /* instructions and byte offsets */
typedef struct ht_session ht_session; /* a plan with memory: state that steps change */

/* "f32", or "?" for a number that is not a dtype. */
HT_API const char *ht_dtype_name(ht_dtype dtype);
HT_API size_t ht_dtype_bytes(ht_dtype dtype);
HT_API bool ht_dtype_is_float(ht_dtype dtype);
/* "HT_ESHAPE" and the like, for logs and tests. */
HT_API const char *ht_status_name(ht_status status);

#ifdef __cplusplus
}
#endif

#endif
