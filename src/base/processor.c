#include "base/processor.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The register states that the operating system saves on a switch. Without them the instructions fault, or worse, lose
 * what they hold. */
static uint64_t saved_states(void)
{
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return (uint64_t)high << 32 | low;
}

static ht_isa detect(void)
{
    const unsigned fma_osxsave_avx_f16c = 1u << 12 | 1u << 27 | 1u << 28 | 1u << 29;
    const unsigned avx2 = 1u << 5;
    const unsigned avx512_f_dq_bw_vl = 1u << 16 | 1u << 17 | 1u << 30 | 1u << 31;
    const uint64_t xmm_ymm = 0x06, opmask_zmm = 0xe0;
    unsigned a, b, c, d;

    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & fma_osxsave_avx_f16c) != fma_osxsave_avx_f16c) return HT_ISA_PORTABLE;
    uint64_t states = saved_states();
    if ((states & xmm_ymm) != xmm_ymm) return HT_ISA_PORTABLE;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (b & avx2) == 0) return HT_ISA_PORTABLE;
    if ((b & avx512_f_dq_bw_vl) != avx512_f_dq_bw_vl || (states & opmask_zmm) != opmask_zmm) return HT_ISA_AVX2;
    return HT_ISA_AVX512;
}

/* Linux only grants the room to save tiles to a process that asks (arch_prctl ARCH_REQ_XCOMP_PERM). Asking again is
 * harmless. */
static bool tiles_granted(void)
{
    const long request = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request, tile_data) == 0;
}

static unsigned detect_features(void)
{
    const unsigned avx512_bf16 = 1u << 5, amx_bf16_tile = 1u << 22 | 1u << 24;
    const uint64_t tile_states = 3u << 17;
    unsigned a, b, c, d, found = 0;

    if (detect() < HT_ISA_AVX512) return 0;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d) && a & avx512_bf16) found |= 1u << HT_FEATURE_AVX512_BF16;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & amx_bf16_tile) != amx_bf16_tile) return found;
    if ((saved_states() & tile_states) != tile_states || !tiles_granted()) return found;
    return found | 1u << HT_FEATURE_AMX_BF16;
}
#else
static ht_isa detect(void)
{
    return HT_ISA_PORTABLE;
}

static unsigned detect_features(void)
{
    return 0;
}
#endif

ht_isa ht_cpu_isa(void)
{
    return detect();
}

unsigned ht_cpu_features(void)
{
    return detect_features();
}

static const char *const isa_names[HT_ISA_COUNT] = {
    [HT_ISA_PORTABLE] = "portable",
    [HT_ISA_AVX2] = "avx2",
    [HT_ISA_AVX512] = "avx512",
};

const char *ht_isa_name(ht_isa isa)
{
    return (unsigned)isa < HT_ISA_COUNT ? isa_names[isa] : "?";
}

static int find_name(const char *const *names, int count, const char *name)
{
    for (int i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0) return i;
    return -1;
}

int ht_isa_from_name(const char *name)
{
    return find_name(isa_names, HT_ISA_COUNT, name);
}

static const char *const feature_names[HT_FEATURE_COUNT] = {
    [HT_FEATURE_AVX512_BF16] = "avx512_bf16",
    [HT_FEATURE_AMX_BF16] = "amx_bf16",
};

const char *ht_feature_name(ht_feature feature)
{
    return (unsigned)feature < HT_FEATURE_COUNT ? feature_names[feature] : "?";
}

int ht_feature_from_name(const char *name)
{
    return find_name(feature_names, HT_FEATURE_COUNT, name);
}
