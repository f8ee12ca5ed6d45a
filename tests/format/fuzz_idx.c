/* libFuzzer target: any bytes as an IDX file. What is accepted can be read to its last byte. */
#include "fuzz_array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_array(ht_idx_parse, data, size);
}
