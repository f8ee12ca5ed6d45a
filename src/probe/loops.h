/* The loops that a probe times, compiled for each real type and instruction set like kernels. */
#ifndef HT_PROBE_LOOPS_H
#define HT_PROBE_LOOPS_H

#include "base/base.h"

enum { HT_LOOP_BYTES = 4096, HT_LOOP_STRIDE = 256 };

/* What the loops of one thread work on. */
typedef struct ht_loop_data {
    char *a, *b, *c;      /* HT_LOOP_BYTES each: they lie in the first level of the caches */
    char *memory;         /* of a size that the caller chooses */
    size_t memory_bytes;  /* a multiple of HT_LOOP_BYTES */
    void *start;          /* of a chase: each address holds the next one */
    double operations;    /* of the last call */
    volatile double sink; /* results end here, so that no compiler leaves out the loop that made them */
} ht_loop_data;

/* Runs so many rounds and returns the operations that it did: FLOPs, bytes, or what the catalogue's row counts. */
typedef double (*ht_loop_fn)(ht_loop_data *data, int64_t rounds);

#define HT_LOOP(name, ...) HT_LOOP_##name,
typedef enum ht_loop {
#include "probe/catalogue.def"
    HT_LOOP_peak,  /* FLOPs: independent chains of multiply-adds in registers */
    HT_LOOP_read,  /* bytes of `memory` that are read */
    HT_LOOP_write, /* that are written */
    HT_LOOP_copy,  /* its first half into the second; both count */
    HT_LOOP_triad, /* a third = another third + number * the last third; all count, as STREAM does */
    HT_LOOP_COUNT
} ht_loop;

/* For an instruction set and f32 or f64. */
ht_loop_fn ht_loop_find(ht_isa isa, ht_dtype real, ht_loop loop);

#endif
