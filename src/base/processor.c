#include "base/processor.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>

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
#else
static ht_isa detect(void)
{
    return HT_ISA_PORTABLE;
}
#endif

ht_isa ht_cpu_isa(void)
{
    return detect();
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

int ht_isa_from_name(const char *name)
{
    for (int isa = 0; isa < HT_ISA_COUNT; isa++)
        if (strcmp(name, isa_names[isa]) == 0) return isa;
    return -1;
}
