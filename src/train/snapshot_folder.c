#include "train/snapshot_folder.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "format/format.h"

static const char *const suffixes[] = {
    [HT_SNAPSHOT_WHOLE] = "", [HT_SNAPSHOT_REPLACED] = ".replaced", [HT_SNAPSHOT_PARTIAL] = ".partial"};
enum { KINDS = sizeof suffixes / sizeof suffixes[0] };

/* A manifest is a few kilobytes and a config; what is longer is something else. */
#define MOST_MANIFEST_BYTES ((size_t)64 << 20)

typedef struct entry_name {
    char text[64];
} entry_name;

static entry_name name_of(ht_snapshot_entry entry)
{
    entry_name name;
    snprintf(name.text, sizeof name.text, "step-%08" PRId64 "%s", entry.step, suffixes[entry.kind]);
    return name;
}

/* Only names that we would give ourselves: step-1 and step-00000001x are not ours. */
static bool read_name(const char *text, ht_snapshot_entry *out)
{
    static const char prefix[] = "step-";
    if (strncmp(text, prefix, sizeof prefix - 1) != 0) return false;
    out->step = 0;
    for (const char *c = text + sizeof prefix - 1; *c >= '0' && *c <= '9'; c++) {
        if (out->step > (INT64_MAX - 9) / 10) return false;
        out->step = out->step * 10 + (*c - '0');
    }
    for (int kind = 0; kind < KINDS; kind++) {
        out->kind = (ht_snapshot_kind)kind;
        if (strcmp(name_of(*out).text, text) == 0) return true;
    }
    return false;
}

static int newest_first(const void *left, const void *right)
{
    const ht_snapshot_entry *a = left, *b = right;
    if (a->step != b->step) return a->step > b->step ? -1 : 1;
    return (int)a->kind - (int)b->kind;
}

ht_status ht_snapshot_list(ht_context *ctx, const char *folder, ht_snapshot_entry **out, size_t *count)
{
    void *entries = NULL;
    size_t capacity = 0;
    *out = NULL;
    *count = 0;
    DIR *open_folder = opendir(folder);
    if (!open_folder) HT_FAIL(ctx, HT_EIO, "%s: %s", folder, strerror(errno));
    ht_status status = HT_OK;
    for (;;) {
        errno = 0;
        const struct dirent *found = readdir(open_folder);
        ht_snapshot_entry entry;
        if (!found && errno) status = ht_fail(ctx, HT_EIO, "%s: %s", folder, strerror(errno));
        if (!found || status != HT_OK) break;
        if (!read_name(found->d_name, &entry)) continue;
        if (!ht_grow(&entries, &capacity, *count + 1, sizeof entry)) {
            status = ht_fail(ctx, HT_ENOMEM, "%s: out of memory", folder);
            break;
        }
        ((ht_snapshot_entry *)entries)[(*count)++] = entry;
    }
    closedir(open_folder);
    if (*count) qsort(entries, *count, sizeof(ht_snapshot_entry), newest_first);
    if (status != HT_OK) {
        free(entries);
        *count = 0;
        return status;
    }
    *out = entries;
    return HT_OK;
}

ht_status ht_snapshot_path(char path[HT_PATH_BYTES], ht_context *ctx, const char *folder, ht_snapshot_entry entry,
                           const char *file)
{
    int length =
        snprintf(path, HT_PATH_BYTES, "%s/%s%s%s", folder, name_of(entry).text, file ? "/" : "", file ? file : "");
    if (length < 0 || length >= HT_PATH_BYTES) HT_FAIL(ctx, HT_EINVAL, "%s: the path is too long", folder);
    return HT_OK;
}

/* ---- reading what is there ---- */

static bool file_path(char path[HT_PATH_BYTES], const char *folder, const char *file)
{
    int length = snprintf(path, HT_PATH_BYTES, "%s/%s", folder, file);
    return length >= 0 && length < HT_PATH_BYTES;
}

ht_status ht_snapshot_manifest(ht_manifest *out, ht_context *ctx, ht_arena *arena, const char *path)
{
    char file[HT_PATH_BYTES];
    ht_content content;
    if (!file_path(file, path, HT_MANIFEST_NAME)) HT_FAIL(ctx, HT_EINVAL, "%s: the path is too long", path);
    HT_TRY(ht_content_map(&content, ctx, file));
    ht_status status = HT_OK;
    if (content.length > MOST_MANIFEST_BYTES)
        status = ht_fail(ctx, HT_EPARSE, "%s: %zu bytes are too many for a manifest", file, content.length);
    if (status == HT_OK) status = ht_manifest_parse(out, ctx, arena, file, (const char *)content.data, content.length);
    if (status == HT_OK) status = ht_manifest_check(ctx, file, (const char *)content.data, content.length);
    ht_content_close(&content);
    return status;
}

static ht_status check_size(ht_context *ctx, const char *path, int which, int64_t bytes)
{
    char file[HT_PATH_BYTES];
    struct stat about;
    if (!file_path(file, path, ht_snapshot_file_names[which]))
        HT_FAIL(ctx, HT_EINVAL, "%s: the path is too long", path);
    if (stat(file, &about) != 0) HT_FAIL(ctx, HT_EIO, "%s: %s", file, strerror(errno));
    if (!S_ISREG(about.st_mode)) HT_FAIL(ctx, HT_EIO, "%s: not a file", file);
    if ((int64_t)about.st_size != bytes)
        HT_FAIL(ctx, HT_EPARSE, "%s: %" PRId64 " bytes, the manifest says %" PRId64, file, (int64_t)about.st_size,
                bytes);
    return HT_OK;
}

ht_status ht_snapshot_complete(ht_context *ctx, const char *path)
{
    ht_manifest manifest;
    ht_arena *arena = ht_arena_create();
    ht_status status = arena ? HT_OK : ht_fail(ctx, HT_ENOMEM, "%s: out of memory", path);
    if (status == HT_OK) status = ht_snapshot_manifest(&manifest, ctx, arena, path);
    for (int i = 0; i < HT_SNAPSHOT_FILES && status == HT_OK; i++)
        status = check_size(ctx, path, i, manifest.files[i].bytes);
    ht_arena_free(arena);
    return status;
}

ht_status ht_snapshot_find(ht_context *ctx, const char *folder, char **path)
{
    ht_snapshot_entry *entries;
    size_t count;
    struct stat about;
    *path = NULL;
    if (stat(folder, &about) != 0 && errno == ENOENT) return HT_OK;
    HT_TRY(ht_snapshot_list(ctx, folder, &entries, &count));
    ht_status status = HT_OK;
    for (size_t i = 0; i < count && !*path && status == HT_OK; i++) {
        char candidate[HT_PATH_BYTES];
        ht_context aside = {0}; /* what is wrong with a candidate is no failure of ours */
        status = ht_snapshot_path(candidate, ctx, folder, entries[i], NULL);
        if (status != HT_OK || entries[i].kind == HT_SNAPSHOT_PARTIAL) continue;
        if (ht_snapshot_complete(&aside, candidate) != HT_OK) {
            ht_note(ctx, HT_LOG_WARN, "%s is passed over: %s", candidate, aside.message);
            continue;
        }
        *path = strdup(candidate);
        if (!*path) status = ht_fail(ctx, HT_ENOMEM, "%s: out of memory", folder);
    }
    free(entries);
    return status;
}

/* ---- taking away ---- */

int ht_snapshot_unlink(const char *path)
{
    const char *const files[] = {HT_MANIFEST_NAME, ht_snapshot_file_names[0], ht_snapshot_file_names[1]};
    int first = 0;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        char file[HT_PATH_BYTES];
        if (!file_path(file, path, files[i])) return ENAMETOOLONG;
        if (unlink(file) != 0 && errno != ENOENT && !first) first = errno;
    }
    if (rmdir(path) != 0 && errno != ENOENT && !first) first = errno;
    return first;
}

int ht_snapshot_remove(const char *folder, ht_snapshot_entry entry)
{
    ht_context aside = {0};
    char from[HT_PATH_BYTES], to[HT_PATH_BYTES];
    ht_snapshot_entry partial = {entry.step, HT_SNAPSHOT_PARTIAL};
    if (ht_snapshot_path(from, &aside, folder, entry, NULL) != HT_OK) return ENAMETOOLONG;
    if (ht_snapshot_path(to, &aside, folder, partial, NULL) != HT_OK) return ENAMETOOLONG;
    if (entry.kind == HT_SNAPSHOT_PARTIAL || rename(from, to) != 0) return ht_snapshot_unlink(from);
    return ht_snapshot_unlink(to);
}
