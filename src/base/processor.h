/* What this processor can do, and what we may use of it. */
#ifndef HT_BASE_PROCESSOR_H
#define HT_BASE_PROCESSOR_H

#include <stdbool.h>

#include "base/text.h"

/* HT_ON_<architecture>(code): the code where we are compiled for that architecture of isas.def, else nothing. */
#define HT_ON_any(...) __VA_ARGS__
#if defined(__x86_64__)
#define HT_ON_x86_64(...) __VA_ARGS__
#else
#define HT_ON_x86_64(...)
#endif
#if defined(__aarch64__)
#define HT_ON_aarch64(...) __VA_ARGS__
#else
#define HT_ON_aarch64(...)
#endif

/* HT_RUN(function): the function in the table of a kernel row. Kernels are compiled for the instruction sets of other
 * architectures, too, so that a plan can be made for any machine. Such a build (HT_PLAN_ONLY, from the build) names a
 * function instead that is never called, and the compiler leaves out all code that runs. */
#if defined(HT_PLAN_ONLY)
#define HT_RUN(function) ((__typeof__(&*(function)))ht_run_elsewhere)
#else
#define HT_RUN(function) function
#endif
void ht_run_elsewhere(void);

/* The rows of isas.def, in their order: HT_ISA_PORTABLE, HT_ISA_AVX2, .. */
#define HT_ISA(id, ...) HT_ISA_##id,
typedef enum ht_isa {
#include "base/isas.def"
    HT_ISA_COUNT
} ht_isa;

/* HT_ISA_AVX2_VECTOR_BYTES and so on: what kernels are cut for at compile time. */
#define HT_ISA(id, name, architecture, vector_bytes, vector_registers, fma, ...)                                       \
    HT_ISA_##id##_VECTOR_BYTES = (vector_bytes), HT_ISA_##id##_VECTOR_REGISTERS = (vector_registers),                  \
    HT_ISA_##id##_FMA = (fma),
enum {
#include "base/isas.def"
};

/* The best that this machine runs: the instructions that its row needs, enabled by the operating system. */
ht_isa ht_cpu_isa(void);
const char *ht_isa_name(ht_isa isa);
/* -1 for a name that is none. */
int ht_isa_from_name(const char *name);
/* All names: "portable, avx2 or avx512" with " or " as `last`, the word between the last two. */
void ht_isa_list(ht_text *text, const char *last);
/* Does a processor of instruction set `cpu` run a kernel that was compiled for `kernel`? */
bool ht_isa_runs(ht_isa cpu, ht_isa kernel);
/* Has the architecture ("x86_64", "aarch64") this instruction set? */
bool ht_isa_on(ht_isa isa, const char *architecture);
/* Was code compiled that runs kernels of it? Without, they can be planned with. */
bool ht_isa_built(ht_isa isa);

/* Instructions that some processors of an ISA have and others lack (isas.def): HT_FEATURE_AVX512_BF16, ..; a set is an
 * unsigned of bits 1 << feature. */
#define HT_FEATURE(id, ...) HT_FEATURE_##id,
typedef enum ht_feature {
#include "base/isas.def"
    HT_FEATURE_COUNT
} ht_feature;

/* Those that this machine runs. The operating system is asked to let it use AMX, since it hands out the
 * space for tiles on request only; without its leave the machine has no AMX. */
unsigned ht_cpu_features(void);
/* Those that processors of the ISA may have. */
unsigned ht_isa_features(ht_isa isa);
ht_isa ht_feature_isa(ht_feature feature);
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
