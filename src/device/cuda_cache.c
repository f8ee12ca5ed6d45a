/* Files in $XDG_CACHE_HOME/halftone: what took time to find and is the same in every process. A file is the data and then its
 * hash, and appears under its name at once, whole. One that is not right is as good as none; a cache that cannot be written
 * costs time, no more. */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/cuda_own.h"

enum { PATH_BYTES = CUDA_CACHE_PATH };

/* Makes the folder, too. false: there is no cache. */
static bool find_path(const char *name, char path[PATH_BYTES])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char folder[400];
    int wrote = cache && *cache ? snprintf(folder, sizeof folder, "%s/halftone", cache)
                : home && *home ? snprintf(folder, sizeof folder, "%s/.cache/halftone", home)
                                : -1;
    if (wrote < 0 || (size_t)wrote >= sizeof folder) return false;
    for (char *at = folder + 1; (at = strchr(at, '/')); at++) {
        *at = 0;
        (void)mkdir(folder, 0777);
        *at = '/';
    }
    if (mkdir(folder, 0777) != 0 && errno != EEXIST) return false;
    wrote = snprintf(path, PATH_BYTES, "%s/%s", folder, name);
    return wrote > 0 && wrote < PATH_BYTES;
}

void *ht_cuda_cache_read(const char *name, size_t *bytes)
{
    char path[PATH_BYTES];
    uint64_t hash;
    FILE *file = find_path(name, path) ? fopen(path, "rb") : NULL;
    if (!file) return NULL;
    long all = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    char *data = all > (long)sizeof hash ? malloc((size_t)all) : NULL;
    bool whole = data && fseek(file, 0, SEEK_SET) == 0 && fread(data, 1, (size_t)all, file) == (size_t)all;
    fclose(file);
    if (whole) {
        *bytes = (size_t)all - sizeof hash;
        hash = ht_hash_bytes(0, data, *bytes);
        whole = memcmp(&hash, data + *bytes, sizeof hash) == 0;
    }
    if (whole) return data;
    free(data);
    return NULL;
}

/* Under another name first, which no other process and no other thread has (ranks may be threads). */
static bool replace_file(const char *path, const void *data, size_t bytes, const uint64_t *hash)
{
    static atomic_uint writes;
    char before[PATH_BYTES + 32];
    snprintf(before, sizeof before, "%s.%ld.%u", path, (long)getpid(), atomic_fetch_add(&writes, 1));
    FILE *file = fopen(before, "wb");
    if (!file) return false;
    bool ok = fwrite(data, 1, bytes, file) == bytes;
    if (hash) ok &= fwrite(hash, 1, sizeof *hash, file) == sizeof *hash;
    ok &= fclose(file) == 0;
    ok = ok && rename(before, path) == 0;
    if (!ok) (void)unlink(before);
    return ok;
}

void ht_cuda_cache_write(const char *name, const void *data, size_t bytes)
{
    char path[PATH_BYTES];
    uint64_t hash = ht_hash_bytes(0, data, bytes);
    if (find_path(name, path)) (void)replace_file(path, data, bytes, &hash);
}

bool cuda_cache_keep_text(const char *name, const char *text, char path[CUDA_CACHE_PATH])
{
    return find_path(name, path) && replace_file(path, text, strlen(text), NULL);
}
