/* XXH3 checksums of buffers and files. */
#include "format/checksum.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/base.h"

enum { BLOCK_BYTES = 1 << 18 };

uint64_t ht_checksum_bytes(const void *data, size_t length)
{
    return XXH3_64bits(data, length);
}

/* The file is read, not mapped: a bad sector is then an error instead of a signal. */
ht_status ht_checksum_file(uint64_t *out, int64_t *bytes, ht_context *ctx, const char *path)
{
    FILE *file = fopen(path, "rbe");
    if (!file) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    XXH3_state_t *hash = XXH3_createState();
    char *block = malloc(BLOCK_BYTES);
    ht_status status = HT_OK;
    int64_t total = 0;
    if (!hash || !block || XXH3_64bits_reset(hash) == XXH_ERROR)
        status = ht_fail(ctx, HT_ENOMEM, "%s: out of memory for its checksum", path);
    for (size_t got = 1; status == HT_OK && got > 0; total += (int64_t)got) {
        got = fread(block, 1, BLOCK_BYTES, file);
        XXH3_64bits_update(hash, block, got);
    }
    if (status == HT_OK && ferror(file)) status = ht_fail(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    if (status == HT_OK) *out = XXH3_64bits_digest(hash);
    if (status == HT_OK && bytes) *bytes = total;
    free(block);
    XXH3_freeState(hash);
    fclose(file);
    return status;
}
