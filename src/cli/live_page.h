/* A run's live page: `halftone watch --http` serves it, and `halftone train --http` starts a process that does. */
#ifndef HT_CLI_LIVE_PAGE_H
#define HT_CLI_LIVE_PAGE_H

#include <sys/types.h>

#include "cli/option_table.h"

typedef struct cli_live {
    const char *address;    /* NULL: not asked for */
    const char *token_file; /* NULL: the environment may have a token */
    /* while it is served by another process: */
    pid_t process; /* 0: it is not */
    int socket;    /* to it; it ends when this is closed, in whatever way */
    char url[128];
} cli_live;

/* --http and --http-token-file, and the variable that has a token, too. */
extern const cli_option cli_live_rows[];
#define CLI_LIVE_ENVIRONMENT                                                                                           \
    {                                                                                                                  \
        "HALFTONE_HTTP_TOKEN", "the token of --http, where there is no --http-token-file"                              \
    }

/* Starts the process, unless nothing is asked for; call it while there is no other thread. What is wrong with the address
 * is told. */
int cli_live_start(cli_live *live, const char *command);
/* Of the run in that folder, from now on; says where. */
void cli_live_show(cli_live *live, const char *folder);
void cli_live_stop(cli_live *live);

/* Serves here, until the file can be read. */
int cli_live_serve(const cli_live *live, const char *folder, int until);

#endif
