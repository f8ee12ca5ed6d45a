/* The fingerprint of a data set: names, sizes and samples of the content of its files, in their order. */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/dataset.h"

/* A small file is read whole; of a larger one the beginning, the end, and blocks between them. */
enum { BLOCK_BYTES = 16384, BLOCKS = 64 };

typedef struct file_print {
    uint64_t before; /* of the files so far */
    uint64_t name, content;
    int64_t bytes;
} file_print;

/* Folders do not count, so that data may move as a whole. */
static uint64_t hash_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return ht_hash_text(slash ? slash + 1 : path);
}

static int64_t block_start(int64_t bytes, int block)
{
    return bytes <= (int64_t)BLOCK_BYTES * BLOCKS ? (int64_t)BLOCK_BYTES * block
                                                  : (bytes - BLOCK_BYTES) * block / (BLOCKS - 1);
}

static void add(ht_data_fingerprint *print, ht_data_part part, const char *path, int64_t bytes, uint64_t content)
{
    file_print all = {print->hashes[part], hash_name(path), content, bytes};
    print->hashes[part] = ht_checksum_bytes(&all, sizeof all);
    print->files[part]++;
}

void ht_fingerprint_bytes(const ht_data *data, ht_data_part part, const char *path, const void *bytes, size_t length)
{
    uint64_t sums[BLOCKS + 1] = {0};
    for (int i = 0; i < BLOCKS; i++) {
        int64_t start = block_start((int64_t)length, i), left = (int64_t)length - start;
        if (left <= 0) break;
        sums[i] = ht_checksum_bytes((const char *)bytes + start, (size_t)(left < BLOCK_BYTES ? left : BLOCK_BYTES));
    }
    add(data->fingerprint, part, path, (int64_t)length, ht_checksum_bytes(sums, sizeof sums));
}

void ht_fingerprint_file(const ht_data *data, ht_data_part part, const char *path)
{
    uint64_t sums[BLOCKS + 1] = {0};
    char block[BLOCK_BYTES];
    struct stat about = {0};
    int file = open(path, O_RDONLY | O_CLOEXEC);
    /* What cannot be read is said by whoever wants to read all of it. */
    if (file < 0 || fstat(file, &about) != 0) about.st_size = 0;
    for (int i = 0; i < BLOCKS && file >= 0; i++) {
        int64_t start = block_start((int64_t)about.st_size, i);
        ssize_t got = start < (int64_t)about.st_size ? pread(file, block, sizeof block, (off_t)start) : 0;
        if (got > 0) sums[i] = ht_checksum_bytes(block, (size_t)got);
    }
    if (file >= 0) close(file);
    add(data->fingerprint, part, path, (int64_t)about.st_size, ht_checksum_bytes(sums, sizeof sums));
}

const ht_data_fingerprint *ht_data_fingerprint_of(const ht_data *data)
{
    return data->fingerprint;
}
