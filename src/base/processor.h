/* What this processor can do, and what we may use of it. */
#ifndef HT_BASE_PROCESSOR_H
#define HT_BASE_PROCESSOR_H

/* Ordered: a CPU of one row runs the kernels of every row before it. */
typedef enum ht_isa { HT_ISA_PORTABLE, HT_ISA_AVX2, HT_ISA_AVX512, HT_ISA_COUNT } ht_isa;

/* The best that this machine runs: AVX2 means AVX2 + FMA + F16C, AVX-512 means F + BW + VL + DQ, both enabled by the
 * operating system. Anything that is not x86-64 is portable. */
ht_isa ht_cpu_isa(void);
const char *ht_isa_name(ht_isa isa);
/* -1 for a name that is none. */
int ht_isa_from_name(const char *name);

/* Instructions that some processors of the best ISA have and others lack; a set is an unsigned of bits 1 << feature. */
typedef enum ht_feature {
    HT_FEATURE_AVX512_BF16, /* dot products of bf16 pairs */
    HT_FEATURE_AMX_BF16,    /* the same on tiles */
    HT_FEATURE_COUNT
} ht_feature;

/* Those that this machine runs. The operating system is asked to let it use AMX, since it hands out the
 * room for tiles on request only; without its leave the machine has no AMX. */
unsigned ht_cpu_features(void);
const char *ht_feature_name(ht_feature feature);
/* -1 for a name that is none. */
int ht_feature_from_name(const char *name);

/* The number of threads that this process should use: OMP_NUM_THREADS when set to a positive number (the first of a
 * list), else the cores of the CPU set it is bound to (hwloc where the build has it), no more than the cgroup's quota
 * rounded up; at least 1. `why` receives a word for the log: "OMP_NUM_THREADS", "binding", "cgroup". */
int ht_cpu_threads(const char **why);

/* CPUs that the cgroups of this process may spend, INFINITY where nothing limits it. The arguments are
 * /proc/self/cgroup and /sys/fs/cgroup, but for tests. */
double ht_cgroup_cpus(const char *groups_file, const char *mount);

/* Cores in this process's CPU set; physical cores where topology is known. One file per way of asking. */
int ht_topology_cores(void);

#endif
