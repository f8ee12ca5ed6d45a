/* The same functions (base/mathfn.h) in the loop that one would write, compiled for each instruction set by attribute.
 */
#include "handwritten.h"

#include "base/mathfn.h"
#include "bench_common.h"

enum { TILE_ROWS = 16 };

static inline __attribute__((always_inline)) void gelu_rows(const gelu_job *job, int64_t tile)
{
    int64_t first = tile * TILE_ROWS, last = first + TILE_ROWS < job->rows ? first + TILE_ROWS : job->rows;
    for (int64_t r = first; r < last; r++) {
        const float *restrict x = job->x + r * job->columns, *restrict residual = job->residual + r * job->columns;
        const float *restrict bias = job->bias;
        float *restrict y = job->y + r * job->columns;
        for (int64_t c = 0; c < job->columns; c++) {
            float h = x[c] + bias[c];
            y[c] = residual[c] + 0.5f * h * (1 + fn_erf(0.70710678118654752440f * h));
        }
    }
}

static void gelu_plain(void *arg, int64_t tile)
{
    gelu_rows(arg, tile);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static void gelu_avx2(void *arg, int64_t tile)
{
    gelu_rows(arg, tile);
}

__attribute__((target("avx2,fma,avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512"))) static void
gelu_avx512(void *arg, int64_t tile)
{
    gelu_rows(arg, tile);
}

static ht_tile_fn widest(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq")) return gelu_avx512;
    return __builtin_cpu_supports("avx2") ? gelu_avx2 : gelu_plain;
}
#else
static ht_tile_fn widest(void)
{
    return gelu_plain;
}
#endif

double gelu_turn(void *arg, int calls)
{
    gelu_job *job = arg;
    ht_tile_fn fn = widest();
    double start = bench_now();
    for (int i = 0; i < calls; i++) ht_parallel(job->pool, (job->rows + TILE_ROWS - 1) / TILE_ROWS, fn, job);
    return (bench_now() - start) / calls;
}
