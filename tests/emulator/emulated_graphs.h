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
    void (*call)(const void *arg); /* a library's work; NULL: it is none */
    void *arg;                     /* of malloc, the command's own */
} emulated_command;

/* Of the stream that is captured: it takes the command. False: the stream runs what it is asked to. */
bool emulated_capture(void *stream, const emulated_command *command);
/* Is it captured? Then only launches and copies within the GPU can be remembered. */
bool emulated_is_captured(void *stream);

/* For libraries beside the driver, which find it there: runs the call at once, or with the graph that is captured. */
typedef void emulated_call_function(void *stream, void (*call)(const void *arg), void *arg);
__attribute__((visibility("default"))) emulated_call_function emulated_call;

#endif
