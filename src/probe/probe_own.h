/* What the files of this room share. */
#ifndef HT_PROBE_OWN_H
#define HT_PROBE_OWN_H

#include "probe/loops.h"
#include "probe/probe.h"

typedef struct prober {
    ht_context *ctx;
    ht_context *one; /* the same with one thread */
    ht_probe_opts opts;
    ht_probe *out;
    double slice; /* seconds for one measurement */
    int threads;
    ht_loop_data *data; /* one for each thread */
    char *small;        /* their arrays */
    char *memory;       /* beyond all caches, for all threads */
    size_t memory_bytes;
} prober;

double ht_probe_now(void);
/* Tells what comes next. */
void ht_probe_tell(const prober *p, const char *what);
/* Adds a row; NULL: memory is out, with the message. */
ht_probe_row *ht_probe_add(prober *p, const char *group, const char *name, const char *unit, double value, int threads);

/* The best rate of several calls within a slice of time. `call` runs so many rounds and returns operations, below 0: it
 * failed, which is the result then. */
typedef double (*ht_probe_call)(void *arg, int64_t rounds);
double ht_probe_best(double seconds, ht_probe_call call, void *arg);
/* Operations per second of a loop on the first so many threads; each has its own ht_loop_data. */
double ht_probe_loop(prober *p, ht_dtype real, ht_loop loop, int threads);
/* All operations of a loop that runs for a slice of time. */
double ht_probe_operations(prober *p, ht_dtype real, ht_loop loop, int threads);
/* Of a loop that goes through all memory, in parts that are timed one by one: a part takes milliseconds, and the best one is
 * that of a free machine. */
double ht_probe_stream(prober *p, ht_dtype real, ht_loop loop, int threads);

/* Each fills rows and target. */
ht_status ht_probe_arithmetic(prober *p);
ht_status ht_probe_memory(prober *p);
ht_status ht_probe_disk(prober *p);
ht_status ht_probe_energy(prober *p);
ht_status ht_probe_families(prober *p);
ht_status ht_probe_catalogue(prober *p);

/* One call of an op by our kernels, over and over. */
typedef struct ht_probe_session {
    ht_arena *arena;
    ht_graph *graph;
    ht_plan *plan;
    ht_session *session;
    ht_cost cost;
    double elems;   /* of the first result */
    ht_dtype dtype; /* of the first operand */
} ht_probe_session;
/* To be closed whatever the result. */
ht_status ht_probe_open(ht_context *ctx, const char *op, const char *sample, ht_probe_session *out);
void ht_probe_close(ht_probe_session *s);
/* Writes an operand of the sample. */
ht_status ht_probe_fill(ht_context *ctx, const ht_probe_session *s, const ht_sample *sample, size_t input);
/* Calls per second; below 0: it failed. */
double ht_probe_calls(const ht_probe_session *s, double seconds);

/* Arrays for the loops of the first so many threads, which share the memory: each takes `bytes` of it, or its share if that
 * is less, a multiple of 3 * HT_LOOP_BYTES. */
void ht_probe_share_memory(prober *p, int threads, size_t bytes);
/* A random cycle through all lines of the first so many bytes of memory, 1 GiB at most, for chases. */
ht_status ht_probe_thread_cycle(prober *p, size_t bytes);

#endif
