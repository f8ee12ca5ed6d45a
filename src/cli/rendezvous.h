/* Where the ranks of a launcher meet. */
#ifndef HT_CLI_RENDEZVOUS_H
#define HT_CLI_RENDEZVOUS_H

#include "cli/cli.h"
#include "comm/comm.h"

/* The world that the launcher has made. MPI waits without limit for a rank that never comes: after HALFTONE_COMM_TIMEOUT_S
 * the processes end, and one of each node says who is not there. */
ht_status cli_rendezvous(ht_comm **out, ht_context *ctx, const char *command, const ht_launcher *launcher);

#endif
