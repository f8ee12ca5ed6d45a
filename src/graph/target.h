/* A machine as plain data: probed here or read from a file, so that a plan can be made for another machine. */
#ifndef HT_GRAPH_TARGET_H
#define HT_GRAPH_TARGET_H

#include "graph/type.h"

typedef struct ht_target {
    char name[64];
    char arch[16]; /* "x86_64", "aarch64" */
    ht_isa isa;    /* the best kernels that may be chosen */
    int threads;
    int64_t memory_bytes[HT_SPACE_COUNT]; /* 0: not known */
} ht_target;

/* This machine, with the context's ISA and threads. */
void ht_target_here(ht_context *ctx, ht_target *out);
/* JSON: {"name": "…", "arch": "…", "isa": "avx2", "threads": 2, "memory": {"main": 0}}; unknown keys are refused. */
ht_status ht_target_parse(ht_context *ctx, ht_target *out, const char *name, const char *text, size_t length);
void ht_target_print(ht_text *text, const ht_target *target);

#endif
