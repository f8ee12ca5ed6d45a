/* The target: a machine as plain data, detected or read from a file, so that a plan can be made for another machine. */
#ifndef HT_GRAPH_TARGET_H
#define HT_GRAPH_TARGET_H

#include "graph/type.h"

/* What computes in the space "main"; FAKE stands in for a device with a memory of its own, in tests. */
typedef enum ht_device_kind { HT_DEVICE_CPU, HT_DEVICE_FAKE, HT_DEVICE_CUDA, HT_DEVICE_KIND_COUNT } ht_device_kind;
extern const char *const ht_device_kind_names[HT_DEVICE_KIND_COUNT];

/* Libraries beside the device that rows may call. */
typedef enum ht_library { HT_LIBRARY_CUBLASLT, HT_LIBRARY_CUDNN, HT_LIBRARY_COUNT } ht_library;
extern const char *const ht_library_names[HT_LIBRARY_COUNT];

/* What a GPU's results depend on beside its model: the driver, the compiler of kernels, the libraries. */
typedef enum ht_versioned {
    HT_VERSION_DRIVER,
    HT_VERSION_NVRTC,
    HT_VERSION_CUBLASLT,
    HT_VERSION_CUDNN,
    HT_VERSION_COUNT
} ht_versioned;
extern const char *const ht_version_names[HT_VERSION_COUNT];

/* What rows may do only where somebody asks for it, since it costs accuracy or the same bits on every run: products of
 * f32 with the 10 bits of tf32, or with the bits of two of them; sums in whichever order they come. */
typedef enum ht_liberty { HT_LIBERTY_TF32, HT_LIBERTY_ANY_ORDER, HT_LIBERTY_TF32_PARTS, HT_LIBERTY_COUNT } ht_liberty;
extern const char *const ht_liberty_names[HT_LIBERTY_COUNT];

/* What products are computed in: a number type, or tf32, f32 of which a product reads 10 bits. An ht_dtype is a format. */
typedef enum ht_format { HT_FORMAT_TF32 = HT_DTYPE_COUNT, HT_FORMAT_COUNT } ht_format;
const char *ht_format_name(int format);

/* Caches by level, networks by reach, families of kernels by name and size, powers: the items of figures. */
typedef enum ht_cache { HT_CACHE_L1, HT_CACHE_L2, HT_CACHE_L3, HT_CACHE_COUNT } ht_cache;
extern const char *const ht_cache_names[HT_CACHE_COUNT];
typedef enum ht_network { HT_NETWORK_NODE, HT_NETWORK_CLUSTER, HT_NETWORK_COUNT } ht_network;
typedef enum ht_power { HT_POWER_BOARD, HT_POWER_COUNT } ht_power;
/* Families of kernels by their number in graph/families.h, each at three sizes. */
enum { HT_MOST_FAMILIES = 64 };
enum { HT_FAMILY_SMALL, HT_FAMILY_MEDIUM, HT_FAMILY_LARGE, HT_FAMILY_SIZES };

/* Where a figure comes from. */
typedef enum ht_figure_source {
    HT_SOURCE_GIVEN,
    HT_SOURCE_MEASURED,
    HT_SOURCE_DATA_SHEET,
    HT_SOURCE_FROM_DATA_SHEET, /* derived: by its clock, units and widths */
    HT_SOURCE_COUNT
} ht_figure_source;
extern const char *const ht_figure_source_names[HT_SOURCE_COUNT];

typedef struct ht_target {
    char name[64];
    ht_device_kind device;
    int device_number;  /* which of its kind, 1 for "cuda:1"; of a start, so no file names it */
    char arch[16];      /* of the processor, whatever computes: "x86_64", "aarch64" */
    ht_isa isa;         /* the best ISA that kernels may use */
    unsigned features;  /* beyond the ISA: bits 1 << ht_feature */
    unsigned libraries; /* bits 1 << ht_library */
    unsigned liberties; /* bits 1 << ht_liberty */
    /* As each tells it, 13000 or 91900; 0: not there, or not known. */
    int versions[HT_VERSION_COUNT];
    int threads;
    int64_t memory_bytes[HT_SPACE_COUNT]; /* 0: not known */
    int devices, nodes; /* devices like this in a node, nodes like this in a cluster; 0: not told, which is 1 */
    bool
        no_kernels; /* there are no kernel rows for it: the rows of `isa` stand in, which tell nothing of its workspace */
    /* Figures, group by group, that were given, measured, read in a data sheet or derived from one; 0: not known. Ceilings have shipped
     * defaults: read them with ht_target_flops and the others. link is [from][to]. */
#define HT_FIGURES(group, dims, item, unit, what) double group dims;
#include "graph/figures.def"
    struct {
#define HT_FIGURES(group, dims, item, unit, what) uint8_t group dims; /* ht_figure_source */
#include "graph/figures.def"
    } source;
} ht_target;

/* One figure of a target, for whoever goes through all of them. */
typedef struct ht_figure {
    const char *group, *name, *unit;
    double value; /* 0: not known */
    ht_figure_source source;
} ht_figure;
/* Number `index`, 0 and up, of all figures that a target can have; false: there are no more. */
bool ht_target_figure(const ht_target *target, size_t index, ht_figure *out);
/* Every figure that is known and has no source has this one from now on. */
void ht_target_mark(ht_target *target, ht_figure_source source);

static inline bool ht_target_has(const ht_target *target, ht_feature feature)
{
    return target->features >> feature & 1u;
}

static inline bool ht_target_has_library(const ht_target *target, ht_library library)
{
    return target->libraries >> library & 1u;
}

static inline bool ht_target_allows(const ht_target *target, ht_liberty liberty)
{
    return target->liberties >> liberty & 1u;
}

/* Ceilings, above 0 for every target (docs/target.md says where the defaults come from): FLOP/s of products in a format;
 * bytes/s that a memory is read or written with, INFINITY for the memory of a machine without kernels of ours whose file
 * does not tell; bytes/s of copies from one memory to another. */
double ht_target_flops(const ht_target *target, int format);
double ht_target_bandwidth(const ht_target *target, ht_space space);
double ht_target_link(const ht_target *target, ht_space from, ht_space to);

/* Whose the ceilings for computing are: FLOP/s, and the bandwidth of main. */
typedef enum ht_ceilings {
    HT_CEILINGS_GIVEN,      /* the target's own */
    HT_CEILINGS_DATA_SHEET, /* of a GPU that gives none: in part those of NVIDIA's data sheet of the H200 */
    HT_CEILINGS_ASSUMED,    /* of a processor that gives none: in part of no machine in particular, and so no bounds */
    HT_CEILINGS_COUNT
} ht_ceilings;
extern const char *const ht_ceilings_names[HT_CEILINGS_COUNT];
ht_ceilings ht_target_ceilings(const ht_target *target);

/* This machine, with the context's ISA and threads. */
void ht_target_here(ht_context *ctx, ht_target *out);
/* The name of a device: its kind, and behind a colon which of them; "cuda" is "cuda:0". Only GPUs are numbered. */
ht_status ht_device_name_read(ht_context *ctx, const char *name, ht_device_kind *kind, int *number);
/* Lets a device of this name compute. */
ht_status ht_target_bind(ht_context *ctx, ht_target *target, const char *device);
/* Can this machine run what is planned for the target? NULL: yes; else the reason, in the buffer. */
typedef struct ht_target_reason {
    char text[128];
} ht_target_reason;
const char *ht_target_refusal_here(const ht_target *target, ht_target_reason *buffer);
/* JSON: {"name": "…", "device": "cpu", "arch": "…", "isa": "avx2", "features": [], "libraries": [], "versions": {"driver": 13000}, "liberties": [], "threads": 2, "memory": {"main": 0},
 * "flops": {"f32": 1e12}, "bandwidth": {"main": 5e10}, "link": {"main-host": 5e10}, "source": {"flops": "measured", "link.main-host": "data sheet"}} and
 * the other groups of figures.def; unknown keys are refused. */
ht_status ht_target_parse(ht_context *ctx, ht_target *out, const char *name, const char *text, size_t length);
/* The same from a file, or from the shipped target of that name where there is no such file. */
ht_status ht_target_read(ht_context *ctx, ht_target *out, const char *path);

/* Targets that are part of the library: the files of targets/, by their names without .json. */
typedef struct ht_shipped_target {
    const char *name, *text;
} ht_shipped_target;
extern const ht_shipped_target ht_shipped_targets[];
extern const size_t ht_shipped_target_count;
void ht_target_print(ht_text *text, const ht_target *target);

#endif
