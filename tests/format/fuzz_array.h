/* What the fuzz targets of array files share. */
#ifndef HT_TESTS_FUZZ_ARRAY_H
#define HT_TESTS_FUZZ_ARRAY_H

#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/format.h"

typedef ht_status (*array_parser)(ht_array *array, ht_context *ctx, const char *name, const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every element that an accepted array promises is there to be read; a refusal names the file. */
static inline int fuzz_array(array_parser parse, const uint8_t *data, size_t size)
{
    ht_context ctx = {0};
    ht_array array;
    if (parse(&array, &ctx, "fuzz", data, size) != HT_OK) {
        if (!strstr(ctx.message, "fuzz")) abort();
        return 0;
    }
    for (int64_t i = 0; i < array.count; i++) {
        float number;
        int64_t whole;
        ht_array_floats(&array, i, 1, &number);
        ht_array_integer(&array, i, &whole);
    }
    return 0;
}

#endif
