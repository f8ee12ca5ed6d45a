/* OpenBLAS as a peer: sgemm. Only its OpenMP build: the pthread build is several times slower beside other threads and
 * would make an easy opponent. */
#include <cblas.h>

#include "peer_serve.h"

enum { OPENBLAS_PARALLEL_OPENMP = 2 }; /* what openblas_get_parallel says: 0 sequential, 1 pthread, 2 OpenMP */

static struct {
    CBLAS_TRANSPOSE ta, tb;
    int m, n, k;
    float *a, *b, *c;
} job;

static const char *prepare(const serve_request *r)
{
    if (strcmp(r->op, "gemm") != 0 || strcmp(r->dtype, "f32") != 0 || r->size_count != 3) return "knows gemm f32 only";
    free(job.a);
    free(job.b);
    free(job.c);
    job.ta = r->layout[0] == 'T' ? CblasTrans : CblasNoTrans;
    job.tb = r->layout[1] == 'T' ? CblasTrans : CblasNoTrans;
    job.m = (int)r->size[0];
    job.n = (int)r->size[1];
    job.k = (int)r->size[2];
    size_t m = (size_t)job.m, n = (size_t)job.n, k = (size_t)job.k;
    job.a = serve_alloc(m * k * sizeof(float));
    job.b = serve_alloc(k * n * sizeof(float));
    job.c = serve_alloc(m * n * sizeof(float));
    if (!job.a || !job.b || !job.c) return "out of memory";
    serve_fill(job.a, m * k);
    serve_fill(job.b, k * n);
    return NULL;
}

static void call(void)
{
    cblas_sgemm(CblasRowMajor, job.ta, job.tb, job.m, job.n, job.k, 1, job.a, job.ta == CblasTrans ? job.m : job.k,
                job.b, job.tb == CblasTrans ? job.k : job.n, 0, job.c, job.n);
}

int main(void)
{
    if (openblas_get_parallel() != OPENBLAS_PARALLEL_OPENMP) {
        serve_refuse("OpenBLAS's pthread build must not be the peer; this needs the OpenMP build");
        return 1;
    }
    printf("ready: %s, %s\n", openblas_get_config(), openblas_get_corename());
    fflush(stdout);
    return serve(&(serve_peer){prepare, call});
}
