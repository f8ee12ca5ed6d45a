/* What the files that measure a GPU share. */
#ifndef HT_PROBE_GPU_OWN_H
#define HT_PROBE_GPU_OWN_H

#include "probe/probe_own.h"

/* A counter, read before and after what is timed. */
typedef struct gpu_meter {
    double (*read)(void *arg);
    void *arg;
    double counted; /* between the two */
    double runs;    /* of the call or the loop that were timed */
} gpu_meter;

typedef struct gpu_prober {
    prober *p;
    const char *name; /* "cuda:1" */
    ht_device *device;
    ht_queue *queue;
    ht_event *from, *to;
    ht_target *target; /* the GPU's, which is filled */
    char *memory;      /* beyond its caches */
    size_t memory_bytes;
    uint64_t *control; /* four words: what loops are told, and where they are */
    double slice;      /* seconds for one measurement */
    gpu_meter *meter;  /* NULL: none */
    bool small;        /* little time: little data, too */
} gpu_prober;

/* With the device and memory; `p`, `name` and `target` are given. Closed whatever the result. */
ht_status ht_gpu_open(gpu_prober *g);
void ht_gpu_close(gpu_prober *g);

/* The texts of gpu_loops.cu, as the build embeds them. */
typedef struct ht_probe_text {
    const char *name, *text;
} ht_probe_text;
extern const ht_probe_text ht_probe_texts[];
extern const size_t ht_probe_text_count;

/* One more row, of the device; threads 1 where one of its threads is meant, else 0. NULL: memory is out. */
ht_probe_row *ht_gpu_add(const gpu_prober *g, const char *group, const char *name, const char *what, const char *unit,
                         double value, int threads);

/* Seconds of what `call` enqueues, so many times: the median of several within a slice. */
typedef ht_status (*ht_gpu_call)(void *arg, int64_t times);
ht_status ht_gpu_seconds(const gpu_prober *g, ht_gpu_call call, void *arg, double *seconds);

/* Loops of gpu_loops.cu: the catalogue's by their names, and others. */
void ht_gpu_loop_text(ht_text *text, const char *loop);
ht_status ht_gpu_loops_load(gpu_prober *g);
/* Rounds per second over the first so many bytes of memory; by all threads that the device holds, or by one. */
ht_status ht_gpu_loop(const gpu_prober *g, const char *loop, size_t bytes, bool one, double *rounds);
/* Threads that run. */
double ht_gpu_threads(const gpu_prober *g, bool one);
ht_status ht_gpu_catalogue(gpu_prober *g);
ht_status ht_gpu_memory(gpu_prober *g);

/* One call of an op on the device, alone: what it costs, and its seconds. */
typedef struct ht_gpu_measured {
    ht_cost cost;
    int format;     /* of the first operand that is a float */
    double elems;   /* of the first result */
    double seconds; /* 0: there is no kernel for it */
} ht_gpu_measured;
ht_status ht_gpu_op(const gpu_prober *g, const char *op, const char *sample, unsigned liberties, ht_gpu_measured *out);
ht_status ht_gpu_products(gpu_prober *g);
ht_status ht_gpu_families(gpu_prober *g);
ht_status ht_gpu_calls(gpu_prober *g); /* of the catalogue */

/* Joules by NVML, or the reason why there are none. */
ht_status ht_gpu_energy(gpu_prober *g);

/* All of it; `gpu` is the target to fill. */
ht_status ht_gpu_probe(prober *p, const char *name, ht_target *gpu);

#endif
