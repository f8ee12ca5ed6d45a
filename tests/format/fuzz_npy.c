/* libFuzzer target: any bytes as an npy file. What is accepted can be read to its last byte. */
#include "fuzz_array.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_array(ht_npy_parse, data, size);
}
