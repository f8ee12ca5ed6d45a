/* The ceilings of targets that give none: what each default is made of stands in docs/target.md. */
#include <math.h>

#include "graph/target.h"

/* Of one thread. Two pipes for products, at the clock that the FMA peak of docs/performance.md shows. */
static const double clock_hz = 1.8e9;
enum { PIPES = 2 };

static const struct {
    int vector_bytes, fma;
} registers[HT_ISA_COUNT] = {
#define HT_ISA(id, name, architecture, vector_bytes, vector_registers, fma, needs, flags)                              \
    [HT_ISA_##id] = {vector_bytes, fma},
#include "base/isas.def"
};

static double cpu_flops(const ht_target *target, int dtype)
{
    int bytes = dtype == HT_F64 ? 8 : 4; /* narrower numbers are converted to f32 */
    double factor = registers[target->isa].fma ? 2 : 1;
    if (dtype == HT_BF16 && ht_target_has(target, HT_FEATURE_AVX512_BF16)) factor *= 2;
    if (dtype == HT_BF16 && ht_target_has(target, HT_FEATURE_AMX_BF16)) factor = 16;
    if (dtype == HT_I8 && ht_target_has(target, HT_FEATURE_AVX512_VNNI)) factor *= 4;
    if (dtype == HT_I8 && ht_target_has(target, HT_FEATURE_AMX_INT8)) factor = 32;
    int threads = target->threads > 0 ? target->threads : 1;
    return threads * clock_hz * PIPES * factor * registers[target->isa].vector_bytes / bytes;
}

/* NVIDIA's data sheet of the H200 SXM, without sparsity. */
static const double cuda_flops[HT_FORMAT_COUNT] = {
    [HT_F64] = 67e12,     [HT_F32] = 67e12,        [HT_FORMAT_TF32] = 494.7e12, [HT_F16] = 989.4e12,
    [HT_BF16] = 989.4e12, [HT_F8E4M3] = 1978.9e12, [HT_F8E5M2] = 1978.9e12,     [HT_I8] = 1978.9e12,
};

/* Of the floats that a target gives; where it gives none, of everything. 0: nothing is given. */
static double fastest_flops(const ht_target *target)
{
    double most = target->flops[HT_FORMAT_TF32], any = 0;
    for (ht_dtype dtype = 0; dtype < HT_DTYPE_COUNT; dtype++) {
        if (ht_dtype_is_float(dtype) && target->flops[dtype] > most) most = target->flops[dtype];
        if (target->flops[dtype] > any) any = target->flops[dtype];
    }
    return most > 0 ? most : any;
}

/* Memory of which nothing was told takes no time where there are no kernels, so no bandwidth is made up there. */
ht_ceilings ht_target_ceilings(const ht_target *target)
{
    bool told = target->bandwidth[HT_SPACE_MAIN] > 0 || target->no_kernels;
    if (fastest_flops(target) > 0 && told) return HT_CEILINGS_GIVEN;
    return target->device == HT_DEVICE_CUDA ? HT_CEILINGS_DATA_SHEET : HT_CEILINGS_ASSUMED;
}

const char *const ht_ceilings_names[HT_CEILINGS_COUNT] = {"given", "data sheet", "assumed"};

/* What a file does not give is converted to what it gives: no number type is faster than the fastest of these. On a
 * processor a type has the share of f32 that its instructions allow. */
double ht_target_flops(const ht_target *target, int format)
{
    double f32 = target->flops[HT_F32], fastest = fastest_flops(target);
    if (target->flops[format] > 0) return target->flops[format];
    if (target->no_kernels && fastest > 0) return fastest;
    if (target->device != HT_DEVICE_CUDA)
        return cpu_flops(target, format) * (f32 > 0 ? f32 / cpu_flops(target, HT_F32) : 1);
    if (fastest > 0) return fastest;
    return cuda_flops[format] > 0 ? cuda_flops[format] : cuda_flops[HT_F32];
}

static const double processor_memory = 50e9, disk = 2e9, cuda_memory = 4.8e12, cuda_host_link = 50e9;

double ht_target_bandwidth(const ht_target *target, ht_space space)
{
    if (target->bandwidth[space] > 0) return target->bandwidth[space];
    if (space == HT_SPACE_DISK) return disk;
    if (space == HT_SPACE_MAIN && target->no_kernels) return INFINITY;
    return space == HT_SPACE_MAIN && target->device == HT_DEVICE_CUDA ? cuda_memory : processor_memory;
}

/* A link is as fast as the slower of its ends, and no faster than what lies between them. */
double ht_target_link(const ht_target *target, ht_space from, ht_space to)
{
    if (target->link[from][to] > 0) return target->link[from][to];
    double a = ht_target_bandwidth(target, from), b = ht_target_bandwidth(target, to), slower = a < b ? a : b;
    bool crosses = from != to && (from == HT_SPACE_MAIN || to == HT_SPACE_MAIN) && target->device == HT_DEVICE_CUDA;
    return crosses && slower > cuda_host_link ? cuda_host_link : slower;
}
