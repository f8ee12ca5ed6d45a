/* libFuzzer target: any bytes as an npy file. What is accepted can be read to its last byte. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "format/format.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_message(const ht_context *ctx)
{
    if (!strstr(ctx->message, "fuzz")) abort(); /* refused without a name */
}

/* Every element that the array promises is there to be read. */
static void read_all(const ht_array *array)
{
    for (int64_t i = 0; i < array->count; i++) {
        float number;
        int64_t whole;
        ht_array_floats(array, i, 1, &number);
        ht_array_integer(array, i, &whole);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ht_context ctx = {0};
    ht_array array;
    if (ht_npy_parse(&array, &ctx, "fuzz", data, size) == HT_OK)
        read_all(&array);
    else
        check_message(&ctx);
    return 0;
}
