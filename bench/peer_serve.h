/* The child's end of peer.h, for peers in C: a loop over requests. */
#ifndef BENCH_PEER_SERVE_H
#define BENCH_PEER_SERVE_H

#include <stdbool.h>
#include <string.h>

#include "bench_common.h"

enum { SERVE_SIZES = 8 };

typedef struct serve_request {
    int calls;
    char op[32], dtype[8], layout[4]; /* layout only for products */
    long size[SERVE_SIZES];
    int size_count;
} serve_request;

/* What a peer can do. prepare: allocates for a request after freeing what was before it; NULL, or why not. */
typedef struct serve_peer {
    const char *(*prepare)(const serve_request *r);
    void (*call)(void);
} serve_peer;

static inline void serve_refuse(const char *reason)
{
    printf("refused: %s\n", reason);
    fflush(stdout);
}

static inline bool serve_parse(const char *line, serve_request *r)
{
    int used = 0;
    *r = (serve_request){0};
    if (sscanf(line, "%d %31s %7s%n", &r->calls, r->op, r->dtype, &used) != 3 || r->calls < 1) return false;
    line += used;
    if (strstr(r->op, "gemm") || strstr(r->op, "matmul")) {
        if (sscanf(line, " %3s%n", r->layout, &used) != 1) return false;
        line += used;
    }
    while (r->size_count < SERVE_SIZES && sscanf(line, "%ld%n", &r->size[r->size_count], &used) == 1) {
        if (r->size[r->size_count++] < 0) return false;
        line += used;
    }
    return true;
}

/* Small numbers that are neither equal nor subnormal. */
static inline void serve_fill(float *to, size_t n)
{
    unsigned state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        to[i] = (float)(state >> 8) * 0x1p-24f - 0.5f;
    }
}

static inline void *serve_alloc(size_t bytes)
{
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static inline int serve(const serve_peer *peer)
{
    char line[256], last[256] = "";
    while (fgets(line, sizeof line, stdin)) {
        serve_request r;
        if (!serve_parse(line, &r)) {
            serve_refuse("not a request");
            continue;
        }
        const char *what = strchr(line, ' '), *reason;
        if (strcmp(what, last) != 0) {
            last[0] = 0;
            reason = peer->prepare(&r);
            if (reason) {
                serve_refuse(reason);
                continue;
            }
            peer->call();
            snprintf(last, sizeof last, "%s", what);
        }
        double start = bench_now();
        for (int i = 0; i < r.calls; i++) peer->call();
        printf("seconds=%.9g\n", (bench_now() - start) / r.calls);
        fflush(stdout);
    }
    return 0;
}

#endif
