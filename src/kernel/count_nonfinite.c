#include <string.h>

#include "kernel/kernel.h"

enum { GRAIN = 1 << 16, CHUNK = 1024 };

#define COUNT_BITS(type, infinity)                                                                                     \
    for (int64_t i = 0; i < n; i++) {                                                                                  \
        type bits;                                                                                                     \
        memcpy(&bits, (const char *)data + i * (int64_t)sizeof bits, sizeof bits);                                     \
        bits &= (type)((type)-1 >> 1); /* without its sign */                                                          \
        inf += bits == (infinity);                                                                                     \
        nan += bits > (infinity);                                                                                      \
    }

void ht_nonfinite_add(ht_nonfinite_count *count, ht_dtype dtype, const void *data, int64_t n)
{
    int64_t inf = 0, nan = 0;
    if (dtype == HT_F32)
        COUNT_BITS(uint32_t, 0x7f800000u)
    else if (dtype == HT_F64)
        COUNT_BITS(uint64_t, 0x7ff0000000000000u)
    else if (dtype == HT_F16)
        COUNT_BITS(uint16_t, 0x7c00)
    else if (dtype == HT_BF16)
        COUNT_BITS(uint16_t, 0x7f80)
    else if (dtype == HT_F8E5M2)
        COUNT_BITS(uint8_t, 0x7c)
    else if (dtype == HT_F8E4M3) /* has no infinities: what lies above its largest number is NaN */
        for (int64_t i = 0; i < n; i++) nan += (((const uint8_t *)data)[i] & 0x7f) == 0x7f;
    if (inf) atomic_fetch_add(&count->inf, inf);
    if (nan) atomic_fetch_add(&count->nan, nan);
}

/* Elements from the first to number `index` of a row-major order. */
static int64_t offset_of(const ht_type *type, int64_t index)
{
    int64_t offset = 0;
    for (int i = type->rank; i-- > 0;) {
        offset += index % type->dim[i] * type->stride[i];
        index /= type->dim[i];
    }
    return offset;
}

static void count_tile(void *arg, int64_t tile)
{
    const ht_launch *launch = arg;
    const ht_type *type = launch->call->out[0];
    const char *data = launch->out[0];
    size_t bytes = ht_dtype_bytes(type->dtype);
    int64_t first = tile * GRAIN, rest = ht_type_elems(type) - first, n = rest < GRAIN ? rest : GRAIN;
    bool contiguous = ht_type_contiguous(type);
    for (int64_t done = 0, part; done < n; done += part) {
        _Alignas(8) char chunk[CHUNK * sizeof(double)];
        part = contiguous ? n : n - done < CHUNK ? n - done : CHUNK;
        for (int64_t i = 0; i < part && !contiguous; i++)
            memcpy(chunk + (size_t)i * bytes, data + offset_of(type, first + done + i) * (int64_t)bytes, bytes);
        ht_nonfinite_add(&launch->nonfinite->operand[0], type->dtype,
                         contiguous ? data + first * (int64_t)bytes : chunk, part);
    }
}

ht_status ht_nonfinite_run(const ht_launch *launch)
{
    const ht_type *type = launch->call->out[0];
    if (ht_dtype_is_float(type->dtype))
        ht_parallel(launch->pool, (ht_type_elems(type) + GRAIN - 1) / GRAIN, count_tile, (void *)launch);
    return HT_OK;
}
