/* Blocks of threads on the CPU: one block at a time, its threads as fibers that take turns in a pseudo-random order. Blocks
 * that run together take turns, too: another one runs when one waits for others. */
#ifndef HT_TESTS_EMULATED_BLOCKS_H
#define HT_TESTS_EMULATED_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "emulated_state.h"

enum { EMULATED_THREADS = 1024, EMULATED_JUNK = 0xff }; /* junk: NaN in every float type */

typedef struct emulated_grid {
    void (*entry)(void **arguments);
    void **arguments;
    unsigned blocks, threads;
    char *shared, *shared_end; /* static shared memory */
    char *shared_bytes;        /* dynamic */
    size_t shared_count;
    bool together;
} emulated_grid;

extern emulated_state emulated_driver_state;

/* Runs all blocks. NULL: done; else what went wrong, as a text that lasts until the next call. */
const char *emulated_run(const emulated_grid *grid);

/* For messages: says where an address lies, such as "8 bytes behind an allocation of 64 bytes". */
void emulated_describe(uintptr_t address, char *text, size_t size);

#endif
