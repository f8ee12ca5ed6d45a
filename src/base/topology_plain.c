/* CPU topology without hwloc: hardware threads of this process's affinity mask. */
#define _GNU_SOURCE
#include "base/processor.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

/* The mask must have space for every CPU the kernel may name, a number that it does not tell: double until it fits. */
static int cpus_in_mask(void)
{
    for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)cpus);
        if (set == NULL) return 0;
        size_t bytes = CPU_ALLOC_SIZE((size_t)cpus);
        int count = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (count > 0) return count;
    }
    return 0;
}

int ht_topology_cores(void)
{
    int cpus = cpus_in_mask();
    if (cpus > 0) return cpus;
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}
