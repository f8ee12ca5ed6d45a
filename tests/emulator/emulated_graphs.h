/* Graphs of the emulated GPU: what a stream that is being captured was asked to do. */
#ifndef HT_TESTS_EMULATED_GRAPHS_H
#define HT_TESTS_EMULATED_GRAPHS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EMULATED_PARAMETERS = 64 };

typedef struct emulated_command {
    void *function; /* NULL: a copy */
    unsigned blocks, threads, shared_bytes;
    bool together;
    int parameters;
    uintptr_t values[EMULATED_PARAMETERS];
    uint64_t to, from;
    size_t bytes;
} emulated_command;

/* Of the stream that is captured: it takes the command. False: the stream runs what it is asked to. */
bool emulated_capture(void *stream, const emulated_command *command);
/* Is it captured? Then only launches and copies within the GPU can be remembered. */
bool emulated_is_captured(void *stream);

#endif
