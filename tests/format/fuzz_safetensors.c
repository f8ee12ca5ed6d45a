/* libFuzzer target: any bytes as a safetensors file. What is accepted can be read to its last byte, and tiles the data, but for
 * tensors that are stored sparse: a byte of a mask stands for eight elements of at most eight bytes. */
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
    ht_safetensors *file;
    if (ht_safetensors_parse(&file, &ctx, "fuzz", data, size) != HT_OK) {
        if (file) abort();
        check_message(&ctx);
        return 0;
    }
    size_t bytes = 0;
    for (size_t i = 0; i < ht_safetensors_count(file); i++) {
        const ht_named_array *entry = ht_safetensors_at(file, i);
        if (ht_safetensors_find(file, entry->name) != entry) abort();
        read_all(&entry->array);
        bytes += entry->array.bytes;
    }
    if (bytes > 64 * size) abort();
    ht_safetensors_free(file);
    return 0;
}
