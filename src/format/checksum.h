/* Checksums of stored files: 64-bit XXH3. They detect damage, not forgery. */
#ifndef HT_FORMAT_CHECKSUM_H
#define HT_FORMAT_CHECKSUM_H

#include <halftone/context.h>

uint64_t ht_checksum_bytes(const void *data, size_t length);
/* Of a whole file; *bytes (may be NULL) is its length. */
ht_status ht_checksum_file(uint64_t *out, int64_t *bytes, ht_context *ctx, const char *path);

#endif
