#define _GNU_SOURCE
#include "cli/temporary_folder.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int cli_temporary_folder_make(cli_temporary_folder *folder, const char *command)
{
    const char *parent = getenv("TMPDIR");
    int length = snprintf(folder->path, sizeof folder->path, "%s/halftone-%s-XXXXXX",
                          parent && parent[0] ? parent : "/tmp", command);
    if (length > 0 && (size_t)length < sizeof folder->path && mkdtemp(folder->path)) return CLI_DONE;
    int end =
        cli_fail(CLI_FAILED, "%s: no temporary folder in %s: %s", command, parent ? parent : "/tmp", strerror(errno));
    folder->path[0] = '\0';
    return end;
}

static int remove_entry(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about;
    (void)kind;
    (void)place;
    (void)remove(path); /* what stays, stays in a folder for such things */
    return 0;
}

void cli_temporary_folder_remove(cli_temporary_folder *folder)
{
    enum { OPEN_FOLDERS = 16 };
    if (folder->path[0]) (void)nftw(folder->path, remove_entry, OPEN_FOLDERS, FTW_DEPTH | FTW_PHYS);
    folder->path[0] = '\0';
}
