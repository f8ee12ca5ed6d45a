/* probe: what this machine can do, measured: FLOP/s by number type, bandwidth and latency of each level of memory, the disk,
 * energy, our own kernels against these ceilings, and a catalogue of the kinds of computation that hardware treats
 * differently. The result is a list of rows and a target. Rates are the best of several repetitions: other work on the
 * machine can only make them smaller. */
#ifndef HT_PROBE_H
#define HT_PROBE_H

#include "comm/comm.h"
#include "exec/exec.h"
#include "probe/topology.h"

/* What is measured. */
enum {
    HT_PROBE_ARITHMETIC = 1,
    HT_PROBE_MEMORY = 2,
    HT_PROBE_ENERGY = 4,
    HT_PROBE_DISK = 8,
    HT_PROBE_FAMILIES = 16,
    HT_PROBE_CATALOGUE = 32, /* with thread scaling */
    HT_PROBE_CEILINGS = 31,  /* all but the catalogue */
};

typedef struct ht_probe_opts {
    unsigned parts; /* 0: HT_PROBE_CEILINGS */
    double seconds; /* about how long it may take; 0: HT_PROBE_SECONDS, HT_PROBE_ALL_SECONDS with the catalogue */
    const char *disk_folder;         /* a file is written there, and gone afterwards; NULL: the disk is left out */
    const char *energy_folder;       /* NULL: /sys/class/powercap */
    const char *gpu;                 /* "cuda:1" is measured beside the processor; NULL: none */
    const struct ht_probe *messages; /* of ht_probe_messages: its rows and figures come first; NULL: none */
    void (*progress)(void *arg, const char *what); /* what comes next; NULL: nobody is told */
    void *arg;
} ht_probe_opts;

enum { HT_PROBE_SECONDS = 20, HT_PROBE_ALL_SECONDS = 100, HT_PROBE_MESSAGE_SECONDS = 3 };

/* One measurement. */
typedef struct ht_probe_row {
    const char *
        group; /* "flops", "product", "cache", "memory", "link", "disk", "message", "energy", "family", or a group of probe/catalogue.def */
    const char *name; /* within its group: "f32", "L2", "matmul" */
    const char *what; /* in words */
    const char *size; /* of a family: "small", "medium", "large"; else NULL */
    const char *unit; /* of the value */
    double value;
    ht_device_kind device;        /* that was measured */
    int threads;                  /* 0: they play no part; of a GPU 1: one of its threads, 0: all of it */
    double share;                 /* of a family: roofline time over measured time; else 0 */
    double flops, bytes, seconds; /* of a family: one call; else 0 */
} ht_probe_row;

typedef struct ht_probe {
    ht_target target; /* this machine, with what was measured */
    ht_target gpu;    /* with opts.gpu: its GPU, likewise */
    bool has_gpu;
    ht_topology topology;
    ht_probe_row *rows;
    size_t count, capacity;
    /* Why there is no such figure, or how it was measured; "": as it should be. gpu_note: the first family that could not
     * be measured there. */
    char disk_note[256], energy_note[256], gpu_energy_note[256], gpu_note[256];
    double seconds; /* that it took */
} ht_probe;

/* `out` is to be freed whatever the result. */
ht_status ht_probe_run(ht_context *ctx, const ht_probe_opts *opts, ht_probe *out);
/* Messages between the ranks of `world`, which make this call together: rows of the group "message", and the figures
 * "network" of the target. Rank 0's are those to keep. `seconds`: 0: HT_PROBE_MESSAGE_SECONDS. To be freed whatever the
 * result. */
ht_status ht_probe_messages(ht_context *ctx, ht_comm *world, double seconds, ht_probe *out);
void ht_probe_free(ht_probe *probe);
/* NULL: there is none. `size` may be NULL. */
const ht_probe_row *ht_probe_find(const ht_probe *probe, const char *group, const char *name, const char *size,
                                  int threads);

#endif
