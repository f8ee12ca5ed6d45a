#include "emulated_graphs.h"

#include <stdlib.h>

#define HT_CUDA_DRIVER(name, parameters) __attribute__((visibility("default"))) int name parameters;
#include "device/cuda_driver.def"

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2 };

typedef struct graph {
    emulated_command *commands;
    size_t count, capacity;
    bool failed;
} graph;

/* One stream at a time. */
static void *captured;
static graph *capture;

bool emulated_is_captured(void *stream)
{
    return captured && stream == captured;
}

bool emulated_capture(void *stream, const emulated_command *command)
{
    if (!emulated_is_captured(stream)) return false;
    if (capture->count == capture->capacity) {
        size_t capacity = capture->capacity ? 2 * capture->capacity : 64;
        emulated_command *commands = realloc(capture->commands, capacity * sizeof *commands);
        capture->failed |= !commands;
        if (!commands) return true;
        capture->commands = commands;
        capture->capacity = capacity;
    }
    capture->commands[capture->count++] = *command;
    return true;
}

void emulated_call(void *stream, void (*call)(const void *arg), void *arg)
{
    if (emulated_capture(stream, &(emulated_command){.call = call, .arg = arg})) return;
    call(arg);
    free(arg);
}

int cuStreamBeginCapture_v2(void *stream, int mode)
{
    (void)mode;
    if (captured) return INVALID_VALUE;
    capture = calloc(1, sizeof *capture);
    if (!capture) return OUT_OF_MEMORY;
    captured = stream;
    return 0;
}

int cuStreamEndCapture(void *stream, void **out)
{
    if (!emulated_is_captured(stream)) return INVALID_VALUE;
    captured = NULL;
    *out = capture;
    return capture->failed ? OUT_OF_MEMORY : 0;
}

/* The commands go over to it; the graph keeps none. */
int cuGraphInstantiateWithFlags(void **executable, void *from, unsigned long long flags)
{
    graph *g = calloc(1, sizeof *g);
    (void)flags;
    if (!g) return OUT_OF_MEMORY;
    *g = *(graph *)from;
    *(graph *)from = (graph){0};
    *executable = g;
    return 0;
}

static int run(emulated_command *c, void *stream)
{
    void *arguments[EMULATED_PARAMETERS];
    if (c->call) {
        c->call(c->arg);
        return 0;
    }
    if (!c->function) return cuMemcpyDtoDAsync_v2(c->to, c->from, c->bytes, stream);
    for (int i = 0; i < c->parameters; i++) arguments[i] = &c->values[i];
    if (c->together)
        return cuLaunchCooperativeKernel(c->function, c->blocks, 1, 1, c->threads, 1, 1, c->shared_bytes, stream,
                                         arguments);
    return cuLaunchKernel(c->function, c->blocks, 1, 1, c->threads, 1, 1, c->shared_bytes, stream, arguments, NULL);
}

int cuGraphLaunch(void *executable, void *stream)
{
    graph *g = executable;
    int result = 0;
    for (size_t i = 0; i < g->count && result == 0; i++) result = run(&g->commands[i], stream);
    return result;
}

int cuGraphExecDestroy(void *executable)
{
    graph *g = executable;
    for (size_t i = 0; i < g->count; i++) free(g->commands[i].arg);
    free(g->commands);
    free(g);
    return 0;
}

int cuGraphDestroy(void *from)
{
    return cuGraphExecDestroy(from);
}
