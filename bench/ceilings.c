/* Arithmetic: independent chains of FMA in registers, enough to hide the latency on two ports. Memory: each thread
 * walks its own part of the arrays. Threads are made per call, which lasts tens of milliseconds. */
#define _GNU_SOURCE
#include "ceilings.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench_common.h"

enum { FMA_LOOPS = 2 * 1000 * 1000, CHAINS = 12, MOST_THREADS = 64 };
static const size_t array_bytes = (size_t)256 << 20;
static char *source, *target;
static volatile float sink;

typedef void (*part_fn)(const char *from, char *to, size_t bytes);

/* ---- instructions of x86 ---- */

#if defined(__x86_64__)
#include <immintrin.h>

/* Assembly, since a compiler would see through the loop. */
#define STEP(i) __asm__ volatile("vfmadd231ps %1, %2, %0" : "+v"(s##i) : "v"(x), "v"(y));
#define EACH(X) X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11)

__attribute__((target("avx2,fma"))) static void fma_avx2(const char *from, char *to, size_t bytes)
{
    (void)from, (void)to, (void)bytes;
    __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f), all = y;
#define START(i) __m256 s##i = _mm256_set1_ps(0.1f * i);
#define ADD(i)   all = _mm256_add_ps(all, s##i);
    EACH(START)
    for (int k = 0; k < FMA_LOOPS; k++) {
        EACH(STEP)
    }
    EACH(ADD)
    sink = _mm256_cvtss_f32(all);
#undef START
#undef ADD
}

__attribute__((target("avx512f"))) static void fma_avx512(const char *from, char *to, size_t bytes)
{
    (void)from, (void)to, (void)bytes;
    __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f), all = y;
#define START(i) __m512 s##i = _mm512_set1_ps(0.1f * i);
#define ADD(i)   all = _mm512_add_ps(all, s##i);
    EACH(START)
    for (int k = 0; k < FMA_LOOPS; k++) {
        EACH(STEP)
    }
    EACH(ADD)
    sink = _mm512_cvtss_f32(all);
#undef START
#undef ADD
}

__attribute__((target("avx2"))) static void copy_stream_32(const char *from, char *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 32)
        _mm256_stream_si256((__m256i *)(to + i), _mm256_load_si256((const __m256i *)(from + i)));
    _mm_sfence();
}

__attribute__((target("avx512f"))) static void copy_stream_64(const char *from, char *to, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 64) _mm512_stream_si512((void *)(to + i), _mm512_load_si512(from + i));
    _mm_sfence();
}

/* NULL: the machine lacks it. */
static part_fn special_part(ceiling_kind kind)
{
    bool wide = __builtin_cpu_supports("avx512f"),
         avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (kind == CEILING_FMA_AVX512) return wide ? fma_avx512 : NULL;
    if (kind == CEILING_FMA_AVX2) return avx2 ? fma_avx2 : NULL;
    return wide ? copy_stream_64 : avx2 ? copy_stream_32 : NULL;
}
#else
static part_fn special_part(ceiling_kind kind)
{
    (void)kind;
    return NULL;
}
#endif

/* ---- memory ---- */

typedef float lanes __attribute__((vector_size(32))); /* wider ones would be split through the stack */

static inline __attribute__((always_inline)) void read_part(const char *from, char *to, size_t bytes)
{
    (void)to;
    const lanes *v = (const lanes *)from;
    lanes a = {0}, b = {0}, c = {0}, d = {0};
    for (size_t i = 0; i < bytes / sizeof(lanes); i += 4) {
        a += v[i];
        b += v[i + 1];
        c += v[i + 2];
        d += v[i + 3];
    }
    a += b + c + d;
    sink = a[0];
}

static inline __attribute__((always_inline)) void copy_part(const char *from, char *to, size_t bytes)
{
    const lanes *v = (const lanes *)from;
    lanes *w = (lanes *)to;
    for (size_t i = 0; i < bytes / sizeof(lanes); i++) {
        w[i] = v[i];
        __asm__ volatile("" ::: "memory"); /* stays this loop, and no memcpy of its own mind */
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void read_wide(const char *from, char *to, size_t bytes)
{
    read_part(from, to, bytes);
}
__attribute__((target("avx2"))) static void copy_wide(const char *from, char *to, size_t bytes)
{
    copy_part(from, to, bytes);
}
static part_fn plain_part(ceiling_kind kind)
{
    return !__builtin_cpu_supports("avx2") ? NULL : kind == CEILING_READ ? read_wide : copy_wide;
}
#else
static void read_plain(const char *from, char *to, size_t bytes)
{
    read_part(from, to, bytes);
}
static void copy_plain(const char *from, char *to, size_t bytes)
{
    copy_part(from, to, bytes);
}
static part_fn plain_part(ceiling_kind kind)
{
    return kind == CEILING_READ ? read_plain : copy_plain;
}
#endif

static char *make_array(int value)
{
    char *array = aligned_alloc((size_t)2 << 20, array_bytes);
    if (!array) return NULL;
    madvise(array, array_bytes, MADV_HUGEPAGE);
    memset(array, value, array_bytes);
    return array;
}

void ceiling_end(void)
{
    free(source);
    free(target);
    source = target = NULL;
}

/* ---- turns ---- */

typedef struct part {
    part_fn fn;
    const char *from;
    char *to;
    size_t bytes;
} part;

static void *run_part(void *arg)
{
    const part *p = arg;
    p->fn(p->from, p->to, p->bytes);
    return NULL;
}

/* The caller is the first thread. */
static void run_all(part_fn fn, int threads)
{
    pthread_t thread[MOST_THREADS];
    part parts[MOST_THREADS];
    bool made[MOST_THREADS] = {false};
    size_t bytes = array_bytes / (size_t)threads / 4096 * 4096;
    for (int i = threads; i-- > 0;) {
        size_t at = source ? bytes * (size_t)i : 0;
        parts[i] = (part){fn, source ? source + at : NULL, target ? target + at : NULL, bytes};
        if (i > 0) made[i] = pthread_create(&thread[i], NULL, run_part, &parts[i]) == 0;
        if (!made[i]) run_part(&parts[i]);
    }
    for (int i = 1; i < threads; i++)
        if (made[i]) pthread_join(thread[i], NULL);
}

double ceiling_turn(void *arg, int calls)
{
    const ceiling *c = arg;
    bool memory = c->kind >= CEILING_READ;
    part_fn fn = c->kind == CEILING_READ || c->kind == CEILING_COPY ? plain_part(c->kind) : special_part(c->kind);
    if (!fn || c->threads > MOST_THREADS) return -1;
    if (memory && !source) source = make_array(1);
    if (memory && !target) target = make_array(2);
    if (memory && (!source || !target)) return -1;
    double start = bench_now();
    for (int i = 0; i < calls; i++) run_all(fn, c->threads);
    return (bench_now() - start) / calls;
}

double ceiling_work(const ceiling *c)
{
    double bytes = (double)(array_bytes / (size_t)c->threads / 4096 * 4096) * c->threads;
    switch (c->kind) {
    case CEILING_FMA_AVX2: return 2.0 * 8 * CHAINS * FMA_LOOPS * c->threads;
    case CEILING_FMA_AVX512: return 2.0 * 16 * CHAINS * FMA_LOOPS * c->threads;
    case CEILING_READ: return bytes;
    default: return 2 * bytes;
    }
}

const char *ceiling_name(const ceiling *c)
{
    static const char *const names[] = {"fma_avx2", "fma_avx512", "read", "copy", "copy_stream"};
    return names[c->kind];
}

ceiling_kind ceiling_best_fma(void)
{
    return special_part(CEILING_FMA_AVX512) ? CEILING_FMA_AVX512 : CEILING_FMA_AVX2;
}
