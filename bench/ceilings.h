/* What this machine can do at most: the yardstick of rows that are shares of a ceiling. */
#ifndef BENCH_CEILINGS_H
#define BENCH_CEILINGS_H

#include <stddef.h>

/* Memory ceilings work on two arrays far beyond any cache; bytes count as the program moves them: a copy of n bytes is
 * 2n, whatever the caches fetch besides. */
typedef enum ceiling_kind {
    CEILING_FMA_AVX2, /* f32 fused multiply-adds in registers */
    CEILING_FMA_AVX512,
    CEILING_READ,
    CEILING_COPY,
    CEILING_COPY_STREAM /* with non-temporal stores, of 64 bytes where the machine has them */
} ceiling_kind;

typedef struct ceiling {
    ceiling_kind kind;
    int threads;
} ceiling;

/* A contest_turn; arg is a ceiling. Negative where the machine lacks the instructions, or memory. */
double ceiling_turn(void *arg, int calls);
/* FLOP or bytes of one call. */
double ceiling_work(const ceiling *c);
const char *ceiling_name(const ceiling *c);
/* The kind for the widest instruction set of this machine. */
ceiling_kind ceiling_best_fma(void);
/* Gives the arrays back. */
void ceiling_end(void);

#endif
