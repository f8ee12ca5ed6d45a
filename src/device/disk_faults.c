/* Faults of a disk that come when they are asked for. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "device/disk_own.h"

static const char *const names[DISK_FAULT_COUNT] = {"read", "write", "full", "short", "uring", "direct"};

ht_status ht_disk_faults_read(disk_faults *faults, ht_context *ctx)
{
    const char *text = getenv("HALFTONE_DISK_FAIL");
    for (const char *at = text; at && *at; at += strcspn(at, ",|"), at += *at != 0) {
        bool known = false;
        for (int i = 0; i < DISK_FAULT_COUNT; i++) {
            size_t length = strlen(names[i]);
            char *end;
            if (strncmp(at, names[i], length) != 0 || at[length] != ':') continue;
            faults->at[i] = strtoll(at + length + 1, &end, 10);
            known = faults->at[i] > 0 && (*end == 0 || *end == ',' || *end == '|');
        }
        if (!known)
            HT_FAIL(ctx, HT_EINVAL,
                    "HALFTONE_DISK_FAIL=%s: it takes read:N, write:N, full:N, short:N, uring:1 and direct:1, N from 1",
                    text);
    }
    return HT_OK;
}

bool ht_disk_fault_due(disk_faults *faults, disk_fault fault)
{
    return atomic_fetch_add(&faults->seen[fault], 1) + 1 == faults->at[fault];
}

int64_t ht_disk_fault_result(disk_faults *faults, bool write, int64_t result, size_t align)
{
    bool fails = ht_disk_fault_due(faults, write ? DISK_FAULT_WRITE : DISK_FAULT_READ);
    bool full = write && ht_disk_fault_due(faults, DISK_FAULT_FULL);
    bool cut = ht_disk_fault_due(faults, DISK_FAULT_SHORT);
    if (fails) return -EIO;
    if (full) return -ENOSPC;
    int64_t half = result / 2 / (int64_t)align * (int64_t)align;
    return cut && half > 0 ? half : result;
}
