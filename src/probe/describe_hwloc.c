/* The machine by hwloc. */
#include <hwloc.h>
#include <unistd.h>

#include "probe/topology.h"

static int count_of(hwloc_topology_t topology, hwloc_obj_type_t type)
{
    int count = hwloc_get_nbobjs_by_type(topology, type);
    return count > 0 ? count : 0;
}

void ht_topology_describe(ht_topology *out)
{
    static const hwloc_obj_type_t levels[HT_TOPOLOGY_CACHES] = {HWLOC_OBJ_L1CACHE, HWLOC_OBJ_L2CACHE,
                                                                HWLOC_OBJ_L3CACHE};
    hwloc_topology_t topology;
    *out = (ht_topology){.cores = ht_topology_cores()};
    ht_topology_name(out);
    if (access("/sys/devices/system/cpu", R_OK) != 0 || hwloc_topology_init(&topology) != 0) return;
    if (hwloc_topology_load(topology) == 0) {
        out->packages = count_of(topology, HWLOC_OBJ_PACKAGE);
        out->hardware_threads = count_of(topology, HWLOC_OBJ_PU);
        out->numa_nodes = count_of(topology, HWLOC_OBJ_NUMANODE);
        for (int i = 0; i < HT_TOPOLOGY_CACHES; i++) {
            hwloc_obj_t cache = hwloc_get_obj_by_type(topology, levels[i], 0);
            out->caches[i] = count_of(topology, levels[i]);
            if (cache && cache->attr) out->cache_bytes[i] = (int64_t)cache->attr->cache.size;
        }
    }
    hwloc_topology_destroy(topology);
}
