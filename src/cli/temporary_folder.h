/* A folder for as long as a command runs. */
#ifndef HT_CLI_TEMPORARY_FOLDER_H
#define HT_CLI_TEMPORARY_FOLDER_H

#include "cli/cli.h"

typedef struct cli_temporary_folder {
    char path[4096]; /* "": there is none */
} cli_temporary_folder;

/* Where TMPDIR says, or in /tmp. A failure is told; `command` is the name of the command for that. */
int cli_temporary_folder_make(cli_temporary_folder *folder, const char *command);
/* With everything in it. */
void cli_temporary_folder_remove(cli_temporary_folder *folder);

#endif
