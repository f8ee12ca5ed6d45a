/* libFuzzer target: any bytes as a PGM or PPM image. What is accepted has all its pixels, in each form. */
#include "fuzz_image.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return fuzz_image(ht_pnm_decode, data, size);
}
