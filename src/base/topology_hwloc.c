/* CPU topology by hwloc: physical cores. Two threads on one core slow each other down in a kernel that keeps the vector
 * units busy. */
#include "base/processor.h"

#include <hwloc.h>
#include <stdbool.h>
#include <unistd.h>

/* Cores that share at least one hardware thread with the set. */
static int cores_within(hwloc_topology_t topology, hwloc_const_cpuset_t set)
{
    int cores = 0, all = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE);
    for (int i = 0; i < all; i++) {
        hwloc_obj_t core = hwloc_get_obj_by_type(topology, HWLOC_OBJ_CORE, (unsigned)i);
        cores += hwloc_bitmap_intersects(core->cpuset, set);
    }
    /* Some virtual machines show no cores: count hardware threads. */
    return cores > 0 ? cores : hwloc_bitmap_weight(set);
}

int ht_topology_cores(void)
{
    hwloc_topology_t topology;
    /* Where the kernel's description of the machine is not mounted, hwloc complains on the caller's terminal. */
    if (access("/sys/devices/system/cpu", R_OK) != 0) {
        long online = sysconf(_SC_NPROCESSORS_ONLN);
        return online > 0 ? (int)online : 1;
    }
    if (hwloc_topology_init(&topology) != 0) return 1;
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int cores = 1;
    if (set != NULL && hwloc_topology_load(topology) == 0) {
        bool bound = hwloc_get_cpubind(topology, set, HWLOC_CPUBIND_PROCESS) == 0 && !hwloc_bitmap_iszero(set);
        hwloc_const_cpuset_t allowed = hwloc_topology_get_allowed_cpuset(topology);
        if (bound)
            hwloc_bitmap_and(set, set, allowed);
        else
            hwloc_bitmap_copy(set, allowed);
        cores = cores_within(topology, set);
    }
    hwloc_bitmap_free(set);
    hwloc_topology_destroy(topology);
    return cores > 0 ? cores : 1;
}
