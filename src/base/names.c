/* Names and properties of statuses, number types and tasks. */
#include "base/task.h"

#include <halftone/types.h>

typedef struct dtype_row {
    const char *name;
    size_t bytes;
    bool is_float;
} dtype_row;

static const dtype_row dtype_rows[HT_DTYPE_COUNT] = {
#define HT_DTYPE(id, text, bytes, is_float) {text, bytes, is_float},
#include <halftone/dtypes.def>
#undef HT_DTYPE
};

static const dtype_row *row_of(ht_dtype dtype)
{
    static const dtype_row none = {"?", 0, false};
    return (unsigned)dtype < HT_DTYPE_COUNT ? &dtype_rows[dtype] : &none;
}

const char *ht_dtype_name(ht_dtype dtype)
{
    return row_of(dtype)->name;
}

size_t ht_dtype_bytes(ht_dtype dtype)
{
    return row_of(dtype)->bytes;
}

bool ht_dtype_is_float(ht_dtype dtype)
{
    return row_of(dtype)->is_float;
}

const char *ht_status_name(ht_status status)
{
    static const char *const names[] = {
        [HT_OK] = "HT_OK",           [HT_ENOMEM] = "HT_ENOMEM",
        [HT_EINVAL] = "HT_EINVAL",   [HT_ESHAPE] = "HT_ESHAPE",
        [HT_EDTYPE] = "HT_EDTYPE",   [HT_EPARSE] = "HT_EPARSE",
        [HT_EIO] = "HT_EIO",         [HT_ENOTSUP] = "HT_ENOTSUP",
        [HT_EVERIFY] = "HT_EVERIFY", [HT_ENONFINITE] = "HT_ENONFINITE",
        [HT_ERANK] = "HT_ERANK",     [HT_EDEVICE] = "HT_EDEVICE",
    };
    return (size_t)status < sizeof names / sizeof names[0] ? names[status] : "?";
}

const char *const ht_task_names[HT_TASK_COUNT] = {
#define HT_TASK(id, name) name,
#include "base/tasks.def"
#undef HT_TASK
};
