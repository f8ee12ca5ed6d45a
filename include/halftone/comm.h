/* halftone/comm.h: the ranks that work on a job together, in a program that uses MPI itself (examples/ranks/own_mpi.c,
 * docs/parallel.md). Each rank builds the same graph for its share of a batch, gives ht_graph_train and ht_plan_create the
 * settings "ranks" and "rank" (and "zero_stage", 0 to 3), and its session the world (ht_session_opts.comm). */
#ifndef HALFTONE_COMM_H
#define HALFTONE_COMM_H

#include <halftone/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ht_comm ht_comm;

/* The ranks of an MPI communicator, as one data axis. `mpi_comm` is the address of the caller's MPI_Comm, of Open MPI or
 * MPICH, whichever the process has loaded; it stays the caller's, and our messages are in duplicates of it. All its ranks
 * call this. NULL: MPI_COMM_WORLD. MPI is initialised if nobody has done so; a caller who has asked for
 * MPI_THREAD_SERIALIZED at least, and for MPI_THREAD_MULTIPLE if threads of his call MPI while a session runs.
 * HALFTONE_COMM_TIMEOUT_S (1800) is how many seconds a rank waits for another; then its call fails with HT_ERANK. */
HT_API ht_status ht_comm_open_mpi(ht_comm **out, ht_context *ctx, const void *mpi_comm);
/* After the sessions that borrow it, and before MPI_Finalize; by all ranks. */
HT_API void ht_comm_free(ht_comm *comm);
HT_API int ht_comm_rank(const ht_comm *comm); /* 0 for NULL */
HT_API int ht_comm_size(const ht_comm *comm); /* 1 for NULL */

#ifdef __cplusplus
}
#endif

#endif
