/* The machine without hwloc. */
#include <unistd.h>

#include "probe/topology.h"

/* Each hardware thread is taken to have its first two levels to itself, and all to share the last. */
void ht_topology_describe(ht_topology *out)
{
    static const int names[HT_TOPOLOGY_CACHES] = {_SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE};
    *out = (ht_topology){.cores = ht_topology_cores()};
    ht_topology_name(out);
    out->hardware_threads = out->cores;
    for (int i = 0; i < HT_TOPOLOGY_CACHES; i++) {
        long bytes = sysconf(names[i]);
        if (bytes <= 0) continue;
        out->cache_bytes[i] = bytes;
        out->caches[i] = i + 1 < HT_TOPOLOGY_CACHES ? out->cores : 1;
    }
}
