/* The machine as this process may use it. One file per way of asking: with hwloc and without. */
#ifndef HT_PROBE_TOPOLOGY_H
#define HT_PROBE_TOPOLOGY_H

#include "base/base.h"

enum { HT_TOPOLOGY_CACHES = 3 };

/* 0: not known. */
typedef struct ht_topology {
    char processor[96]; /* its name; "": not known */
    int packages, cores, hardware_threads, numa_nodes;
    int64_t cache_bytes[HT_TOPOLOGY_CACHES]; /* of one data or unified cache, by level */
    int caches[HT_TOPOLOGY_CACHES];          /* how many there are */
} ht_topology;

void ht_topology_describe(ht_topology *out);
/* The name of the processor by /proc/cpuinfo; part of the above. */
void ht_topology_name(ht_topology *out);

#endif
