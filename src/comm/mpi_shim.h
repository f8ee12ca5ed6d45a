/* The one table of functions between Halftone and an MPI library. MPI has no common ABI: MPI_Comm is a pointer in Open
 * MPI and a number in MPICH. So one small shared library per flavour (shim/mpi_shim.c, compiled with its mpicc) wears
 * this table, and is opened at run time. */
#ifndef HT_COMM_MPI_SHIM_H
#define HT_COMM_MPI_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { HT_MPI_SHIM_VERSION = 1, HT_MPI_NOTE = 128 };

typedef struct ht_mpi_world ht_mpi_world;

/* Functions that can fail return 0, or a number for `explain`. */
typedef struct ht_mpi_shim {
    int version;
    /* NULL, or the reason in `reason`. *serialized: its threads may not be in MPI at once. */
    const char *(*open)(ht_mpi_world **out, const void *mpi_comm, bool *serialized, char *reason, size_t capacity);
    int (*rank)(const ht_mpi_world *world);
    int (*size)(const ht_mpi_world *world);
    int (*channels)(const ht_mpi_world *world); /* numbers below it */
    int (*send)(ht_mpi_world *world, const void *data, size_t bytes, int to, int channel, uint64_t *handle);
    int (*receive)(ht_mpi_world *world, void *data, size_t bytes, int from, int channel, uint64_t *handle);
    int (*test)(uint64_t *handle, bool *done, size_t *bytes); /* bytes: of a receive that is done */
    void (*cancel)(uint64_t *handle);
    /* Notes of HT_MPI_NOTE bytes beside all other messages; one that has not been taken yet is lost. */
    void (*send_note)(ht_mpi_world *world, int to, const char *note);
    bool (*take_note)(ht_mpi_world *world, char *note, int *from);
    void (*explain)(int error, char *text, size_t capacity);
    void (*end_all)(ht_mpi_world *world);            /* MPI_Abort */
    void (*close)(ht_mpi_world *world, bool failed); /* finalises MPI where `open` initialised it */
} ht_mpi_shim;

#define HT_MPI_SHIM_SYMBOL "ht_mpi_shim_table"

#endif
