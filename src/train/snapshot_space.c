/* Is there space for the snapshots of a run? Asked before the first step where state lies on a disk, which may be full
 * of it. */
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/statvfs.h>

#include "train/snapshot_folder.h"
#include "train/snapshot_tensors.h"

enum { HEADER_BYTES = 256, OTHER_BYTES = 1 << 16 }; /* of a tensor in its file; manifest and whatever else */

static ht_status snapshot_bytes(const ht_plan *plan, int64_t *bytes)
{
    ht_snapshot_tensor_list list;
    HT_TRY(ht_snapshot_tensor_find(&list, plan));
    *bytes = OTHER_BYTES;
    for (size_t i = 0; i < list.count; i++)
        *bytes += HEADER_BYTES + (list.items[i].padding ? 0 : (int64_t)list.items[i].array.bytes);
    ht_snapshot_tensor_free(&list);
    return HT_OK;
}

static ht_status count_whole(ht_context *ctx, const char *snapshots, int64_t *whole)
{
    struct stat about;
    ht_snapshot_entry *entries;
    size_t count;
    *whole = 0;
    if (stat(snapshots, &about) != 0) return HT_OK;
    HT_TRY(ht_snapshot_list(ctx, snapshots, &entries, &count));
    for (size_t i = 0; i < count; i++) *whole += entries[i].kind == HT_SNAPSHOT_WHOLE;
    free(entries);
    return HT_OK;
}

ht_status ht_snapshot_check_space(const ht_plan *plan, const char *folder, const char *snapshots, int64_t at_once)
{
    struct statvfs s;
    int64_t bytes, whole;
    HT_TRY(snapshot_bytes(plan, &bytes));
    HT_TRY(count_whole(plan->ctx, snapshots, &whole));
    int64_t more = whole < at_once ? at_once - whole : 1;
    if (statvfs(folder, &s) != 0) return HT_OK; /* whoever writes there will be told why */
    double available = (double)s.f_bavail * (double)s.f_frsize;
    if ((double)bytes * (double)more <= available) return HT_OK;
    HT_FAIL(plan->ctx, HT_EIO,
            "%s has too little space: %lld bytes are needed for %lld snapshot%s beside what lies on the disk, %.0f are "
            "free",
            folder, (long long)(bytes * more), (long long)more, more > 1 ? "s" : "", available);
}
