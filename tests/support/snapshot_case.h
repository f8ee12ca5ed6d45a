/* A folder for each case of a test of snapshots. */
#ifndef HT_TESTS_SNAPSHOT_CASE_H
#define HT_TESTS_SNAPSHOT_CASE_H

#include "snapshot_fixture.h"

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    snapshot_folder_make(folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    snapshot_folder_remove(folder);
    return 0;
}

#endif
