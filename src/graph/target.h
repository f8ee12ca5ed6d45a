/* The target: a machine as plain data, detected or read from a file, so that a plan can be made for another machine. */
#ifndef HT_GRAPH_TARGET_H
#define HT_GRAPH_TARGET_H

#include "graph/type.h"

/* What computes in the space "main"; FAKE stands in for a device with a memory of its own, in tests. */
typedef enum ht_device_kind { HT_DEVICE_CPU, HT_DEVICE_FAKE, HT_DEVICE_CUDA, HT_DEVICE_KIND_COUNT } ht_device_kind;
extern const char *const ht_device_kind_names[HT_DEVICE_KIND_COUNT];

/* Libraries beside the device that rows may call. */
typedef enum ht_library { HT_LIBRARY_CUBLASLT, HT_LIBRARY_CUDNN, HT_LIBRARY_COUNT } ht_library;
extern const char *const ht_library_names[HT_LIBRARY_COUNT];

/* What rows may do only where somebody asks for it, since it costs accuracy or the same bits on every run: products of
 * f32 with the 10 bits of tf32, or with the bits of two of them; sums in whichever order they come. */
typedef enum ht_liberty { HT_LIBERTY_TF32, HT_LIBERTY_ANY_ORDER, HT_LIBERTY_TF32_PARTS, HT_LIBERTY_COUNT } ht_liberty;
extern const char *const ht_liberty_names[HT_LIBERTY_COUNT];

typedef struct ht_target {
    char name[64];
    ht_device_kind device;
    int device_number;  /* which of its kind, 1 for "cuda:1"; of a start, so no file names it */
    char arch[16];      /* of the processor, whatever computes: "x86_64", "aarch64" */
    ht_isa isa;         /* the best ISA that kernels may use */
    unsigned features;  /* beyond the ISA: bits 1 << ht_feature */
    unsigned libraries; /* bits 1 << ht_library */
    unsigned liberties; /* bits 1 << ht_liberty */
    int threads;
    int64_t memory_bytes[HT_SPACE_COUNT]; /* 0: not known */
    /* Ceilings that were given or measured; 0: the shipped default. Read them with ht_target_flops and the others. */
    double flops[HT_DTYPE_COUNT];
    double bandwidth[HT_SPACE_COUNT];
    double link[HT_SPACE_COUNT][HT_SPACE_COUNT]; /* [from][to] */
} ht_target;

static inline bool ht_target_has(const ht_target *target, ht_feature feature)
{
    return target->features >> feature & 1u;
}

static inline bool ht_target_has_library(const ht_target *target, ht_library library)
{
    return target->libraries >> library & 1u;
}

static inline bool ht_target_allows(const ht_target *target, ht_liberty liberty)
{
    return target->liberties >> liberty & 1u;
}

/* Ceilings, above 0 for every target (docs/target.md says where the defaults come from): FLOP/s of products of a number
 * type; bytes/s that a memory is read or written with; bytes/s of copies from one memory to another. */
double ht_target_flops(const ht_target *target, ht_dtype dtype);
double ht_target_bandwidth(const ht_target *target, ht_space space);
double ht_target_link(const ht_target *target, ht_space from, ht_space to);

/* This machine, with the context's ISA and threads. */
void ht_target_here(ht_context *ctx, ht_target *out);
/* The name of a device: its kind, and behind a colon which of them; "cuda" is "cuda:0". Only GPUs are numbered. */
ht_status ht_device_name_read(ht_context *ctx, const char *name, ht_device_kind *kind, int *number);
/* Lets a device of this name compute. */
ht_status ht_target_bind(ht_context *ctx, ht_target *target, const char *device);
/* Can this machine run what is planned for the target? NULL: yes; else the reason, in the buffer. */
typedef struct ht_target_reason {
    char text[128];
} ht_target_reason;
const char *ht_target_refusal_here(const ht_target *target, ht_target_reason *buffer);
/* JSON: {"name": "…", "device": "cpu", "arch": "…", "isa": "avx2", "features": [], "libraries": [], "liberties": [], "threads": 2, "memory": {"main": 0},
 * "flops": {"f32": 1e12}, "bandwidth": {"main": 5e10}, "link": {"main-host": 5e10}}; unknown keys are refused. */
ht_status ht_target_parse(ht_context *ctx, ht_target *out, const char *name, const char *text, size_t length);
/* The same from a file. */
ht_status ht_target_read(ht_context *ctx, ht_target *out, const char *path);
void ht_target_print(ht_text *text, const ht_target *target);

#endif
