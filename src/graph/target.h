/* The target: a machine as plain data, detected or read from a file, so that a plan can be made for another machine. */
#ifndef HT_GRAPH_TARGET_H
#define HT_GRAPH_TARGET_H

#include "graph/type.h"

typedef struct ht_target {
    char name[64];
    char arch[16];     /* "x86_64", "aarch64" */
    ht_isa isa;        /* the best ISA that kernels may use */
    unsigned features; /* beyond the ISA: bits 1 << ht_feature */
    int threads;
    int64_t memory_bytes[HT_SPACE_COUNT]; /* 0: not known */
} ht_target;

static inline bool ht_target_has(const ht_target *target, ht_feature feature)
{
    return target->features >> feature & 1u;
}

/* This machine, with the context's ISA and threads. */
void ht_target_here(ht_context *ctx, ht_target *out);
/* JSON: {"name": "…", "arch": "…", "isa": "avx2", "features": [], "threads": 2,
 * "memory": {"main": 0}}; unknown keys are refused. */
ht_status ht_target_parse(ht_context *ctx, ht_target *out, const char *name, const char *text, size_t length);
void ht_target_print(ht_text *text, const ht_target *target);

#endif
