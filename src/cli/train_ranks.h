/* The ranks of a command: those of a launcher, or threads of this process. */
#ifndef HT_CLI_TRAIN_RANKS_H
#define HT_CLI_TRAIN_RANKS_H

#include "cli/cli.h"
#include "comm/comm.h"

/* How one rank ends: CLI_DONE and its kind, and where it failed the reason. */
typedef struct cli_rank_end {
    int end;
    bool by_others; /* it failed since another rank is gone */
    char reason[1024];
} cli_rank_end;

/* One rank's work. `world`: NULL: a world of one. `local`: ranks on this machine. */
typedef void (*cli_rank_fn)(void *arg, ht_context *ctx, ht_comm *world, int local, cli_rank_end *end);

/* Whose ranks these are: *size, and *rank of this process. `asked`: by --ranks, 0: not at all, refused under a launcher. */
int cli_ranks_find(ht_context *ctx, const char *command, int64_t asked, ht_launcher *launcher, int64_t *size);
/* Where a rank runs, and on what: a line. The first one has told its own before the work begins. */
void cli_rank_tell_place(const ht_launcher *launcher);
/* By all ranks of a launcher: which process of which node each is, so that one of which the launcher gives only the process
 * can be found, into FOLDER/ranks.json. */
ht_status cli_ranks_record(ht_comm *world, ht_context *ctx, const ht_launcher *launcher, const char *folder);
/* The work on all ranks of this process; the first failure is told. `prepared`: CLI_DONE, or how this process failed before:
 * then no rank begins, and where others than the first failed one of them tells the context's message. */
int cli_ranks_run(ht_context *ctx, const char *command, const ht_launcher *launcher, int64_t size, int prepared,
                  cli_rank_fn work, void *arg);

#endif
