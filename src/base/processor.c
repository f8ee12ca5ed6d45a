#include "base/processor.h"

#include <assert.h>
#include <string.h>

/* What rows of isas.def can need. */
enum {
    CPU_FMA = 1 << 0,
    CPU_OSXSAVE = 1 << 1,
    CPU_AVX = 1 << 2,
    CPU_F16C = 1 << 3,
    CPU_AVX2 = 1 << 4,
    CPU_AVX512F = 1 << 5,
    CPU_AVX512DQ = 1 << 6,
    CPU_AVX512BW = 1 << 7,
    CPU_AVX512VL = 1 << 8,
    CPU_AMX_BF16 = 1 << 9,
    CPU_AMX_TILE = 1 << 10,
    CPU_AVX512_BF16 = 1 << 11,
    /* Registers that the operating system saves on a switch. Without that the instructions fault, or worse, lose what
     * they hold. */
    CPU_YMM_STATE = 1 << 12,
    CPU_ZMM_STATE = 1 << 13,
    CPU_TILE_STATE = 1 << 14,
    CPU_AVX512_VNNI = 1 << 15,
    CPU_AMX_INT8 = 1 << 16,
};

typedef struct isa_row {
    const char *name, *architecture;
    unsigned needs;
    bool built;
} isa_row;

static const isa_row isas[HT_ISA_COUNT] = {
#define HT_ISA(id, name, architecture, vector_bytes, vector_registers, fma, needs, flags)                              \
    [HT_ISA_##id] = {#name, #architecture, needs, HT_ON_##architecture(true ||) false},
#include "base/isas.def"
};

typedef struct feature_row {
    const char *name;
    ht_isa isa;
    unsigned needs;
} feature_row;

static const feature_row features[HT_FEATURE_COUNT] = {
#define HT_FEATURE(id, name, isa, needs, flags) [HT_FEATURE_##id] = {#name, HT_ISA_##isa, needs},
#include "base/isas.def"
};

/* ---- this machine ---- */

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { EAX, EBX, ECX, EDX, WORDS };

/* Where CPUID says what: sorted by leaf and subleaf, so that each is asked for once. */
static const struct {
    unsigned has, leaf, subleaf, word, bit;
} cpuid_bits[] = {
    {CPU_FMA, 1, 0, ECX, 12},         {CPU_OSXSAVE, 1, 0, ECX, 27},    {CPU_AVX, 1, 0, ECX, 28},
    {CPU_F16C, 1, 0, ECX, 29},        {CPU_AVX2, 7, 0, EBX, 5},        {CPU_AVX512F, 7, 0, EBX, 16},
    {CPU_AVX512DQ, 7, 0, EBX, 17},    {CPU_AVX512BW, 7, 0, EBX, 30},   {CPU_AVX512VL, 7, 0, EBX, 31},
    {CPU_AVX512_VNNI, 7, 0, ECX, 11}, {CPU_AMX_BF16, 7, 0, EDX, 22},   {CPU_AMX_TILE, 7, 0, EDX, 24},
    {CPU_AMX_INT8, 7, 0, EDX, 25},    {CPU_AVX512_BF16, 7, 1, EAX, 5},
};

/* The register states that XCR0 stands for. */
static unsigned saved_states(void)
{
    const uint64_t xmm_ymm = 0x06, opmask_zmm = 0xe0, tiles = 3u << 17;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    uint64_t states = (uint64_t)high << 32 | low;
    unsigned has = 0;
    if ((states & xmm_ymm) == xmm_ymm) has |= CPU_YMM_STATE;
    if ((states & opmask_zmm) == opmask_zmm) has |= CPU_ZMM_STATE;
    if ((states & tiles) == tiles) has |= CPU_TILE_STATE;
    return has;
}

static unsigned cpu_has(void)
{
    unsigned has = 0, leaf = 0, subleaf = 0, words[WORDS] = {0};
    for (size_t i = 0; i < sizeof cpuid_bits / sizeof cpuid_bits[0]; i++) {
        if (cpuid_bits[i].leaf != leaf || cpuid_bits[i].subleaf != subleaf) {
            leaf = cpuid_bits[i].leaf, subleaf = cpuid_bits[i].subleaf;
            if (!__get_cpuid_count(leaf, subleaf, &words[EAX], &words[EBX], &words[ECX], &words[EDX]))
                memset(words, 0, sizeof words);
        }
        if (words[cpuid_bits[i].word] >> cpuid_bits[i].bit & 1) has |= cpuid_bits[i].has;
    }
    return has & CPU_OSXSAVE ? has | saved_states() : has;
}

/* Linux only grants the space to save tiles to a process that asks (arch_prctl ARCH_REQ_XCOMP_PERM). Asking again is
 * harmless. */
static bool tiles_granted(void)
{
    const long request = 0x1023, tile_data = 18;
    return syscall(SYS_arch_prctl, request, tile_data) == 0;
}
#else
static unsigned cpu_has(void)
{
    return 0;
}

static bool tiles_granted(void)
{
    return false;
}
#endif

static ht_isa best_isa(unsigned has)
{
    ht_isa best = HT_ISA_PORTABLE;
    for (int i = 0; i < HT_ISA_COUNT; i++) {
        if (!isas[i].built) continue;
        if (isas[i].needs & ~has) break;
        best = (ht_isa)i;
    }
    return best;
}

ht_isa ht_cpu_isa(void)
{
    return best_isa(cpu_has());
}

unsigned ht_cpu_features(void)
{
    unsigned has = cpu_has(), found = ht_isa_features(best_isa(has));
    for (int i = 0; i < HT_FEATURE_COUNT; i++)
        if (features[i].needs & ~has) found &= ~(1u << i);
    for (int i = 0; i < HT_FEATURE_COUNT; i++)
        if (found >> i & 1 && features[i].needs & CPU_TILE_STATE && !tiles_granted()) found &= ~(1u << i);
    return found;
}

/* ---- the rows ---- */

const char *ht_isa_name(ht_isa isa)
{
    return (unsigned)isa < HT_ISA_COUNT ? isas[isa].name : "?";
}

int ht_isa_from_name(const char *name)
{
    for (int i = 0; i < HT_ISA_COUNT; i++)
        if (strcmp(name, isas[i].name) == 0) return i;
    return -1;
}

void ht_isa_list(ht_text *text, const char *last)
{
    for (int i = 0; i < HT_ISA_COUNT; i++)
        ht_text_add(text, "%s%s", i == 0 ? "" : i + 1 < HT_ISA_COUNT ? ", " : last, isas[i].name);
}

bool ht_isa_on(ht_isa isa, const char *architecture)
{
    return strcmp(isas[isa].architecture, "any") == 0 || strcmp(isas[isa].architecture, architecture) == 0;
}

bool ht_isa_runs(ht_isa cpu, ht_isa kernel)
{
    return kernel <= cpu && ht_isa_on(kernel, isas[cpu].architecture);
}

bool ht_isa_built(ht_isa isa)
{
    return isas[isa].built;
}

void ht_run_elsewhere(void)
{
    assert(!"a kernel for another architecture was called");
}

unsigned ht_isa_features(ht_isa isa)
{
    unsigned set = 0;
    for (int i = 0; i < HT_FEATURE_COUNT; i++)
        if (ht_isa_runs(isa, features[i].isa)) set |= 1u << i;
    return set;
}

ht_isa ht_feature_isa(ht_feature feature)
{
    return features[feature].isa;
}

const char *ht_feature_name(ht_feature feature)
{
    return (unsigned)feature < HT_FEATURE_COUNT ? features[feature].name : "?";
}

int ht_feature_from_name(const char *name)
{
    for (int i = 0; i < HT_FEATURE_COUNT; i++)
        if (strcmp(name, features[i].name) == 0) return i;
    return -1;
}
