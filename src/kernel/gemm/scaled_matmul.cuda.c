/* scaled_matmul by our own kernel: f8 with any strides, y any float, row-major. Numerics: `real` sums in the order of k, FMA,
 * both scales, one rounding. It serves what cublasLt does not take, and machines without that library. */
#include "kernel/cuda/cuda.h"
#include "kernel/gemm/product.h"

enum { TILE = 64 }; /* as in tile_product.cu */

static const char *can(const ht_call *call, const ht_target *target)
{
    (void)target;
    return ht_refuse_strided_results(call);
}

static void scaled_matmul(ht_cuda_emission *e, const ht_launch *launch)
{
    product p = product_as_called(launch->call, NULL, NULL);
    ht_text a = {0}, b = {0};
    int64_t tiles = ht_cuda_blocks(p.m, TILE) * ht_cuda_blocks(p.n, TILE);
    product_write_offset(&a, &p, &p.a);
    product_write_offset(&b, &p, &p.b);
    ht_cuda_include(e, "f8");
    ht_cuda_include(e, "tile_product");
    ht_cuda_include(e, "scaled_matmul");
    ht_cuda_add_grid(e, product_batches(&p) * tiles, HT_CUDA_THREADS, 0,
                     "const int64_t batch = blockIdx.x / %lld;\n"
                     "    scaled_matmul_tile<%lld, %lld, %lld, %lld, %lld, %lld, %lld>(in0 + %s, in1 + %s, in2, in3,\n"
                     "        out0 + batch * %lld, blockIdx.x %% %lld);",
                     (long long)tiles, (long long)p.m, (long long)p.n, (long long)p.k, (long long)p.a.down,
                     (long long)p.a.across, (long long)p.b.down, (long long)p.b.across, a.data, b.data,
                     (long long)p.m * p.n, (long long)tiles);
    e->text.failed |= a.failed || b.failed;
    ht_text_free(&a);
    ht_text_free(&b);
}

HT_CUDA_KERNEL(scaled_matmul, can, NULL, scaled_matmul)
