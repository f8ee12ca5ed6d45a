/* The ceilings of targets that give none: what each default is made of stands in docs/target.md. */
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

static double cpu_flops(const ht_target *target, ht_dtype dtype)
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

static const double cuda_flops[HT_DTYPE_COUNT] = {
    [HT_F64] = 67e12,      [HT_F32] = 51e12,      [HT_F16] = 697e12, [HT_BF16] = 730e12,
    [HT_F8E4M3] = 1288e12, [HT_F8E5M2] = 1288e12, [HT_I8] = 1307e12,
};

/* Of a machine without kernels of ours, whose file does not give that type: no type is faster than its fastest. */
static double fastest_flops(const ht_target *target)
{
    double most = 0;
    for (int dtype = 0; dtype < HT_DTYPE_COUNT; dtype++)
        if (target->flops[dtype] > most) most = target->flops[dtype];
    return most;
}

double ht_target_flops(const ht_target *target, ht_dtype dtype)
{
    if (target->flops[dtype] > 0) return target->flops[dtype];
    if (target->no_kernels && fastest_flops(target) > 0) return fastest_flops(target);
    if (target->device != HT_DEVICE_CUDA) return cpu_flops(target, dtype);
    return cuda_flops[dtype] > 0 ? cuda_flops[dtype] : cuda_flops[HT_F32];
}

static const double processor_memory = 50e9, disk = 2e9, cuda_memory = 3.88e12, cuda_host_link = 50e9;

double ht_target_bandwidth(const ht_target *target, ht_space space)
{
    if (target->bandwidth[space] > 0) return target->bandwidth[space];
    if (space == HT_SPACE_DISK) return disk;
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
