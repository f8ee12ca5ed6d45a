/* matmul by our own kernel: any float but f8, any strides, y row-major. Numerics: `real` sums in the order of k, FMA, one
 * rounding. It serves what cublasLt does not take, and machines without that library. */
#include "kernel/cuda/cuda.h"
#include "kernel/gemm/product.h"

enum { TILE = 64 }; /* as in matmul.cu */

static void matmul(ht_cuda_emission *e, const ht_launch *launch)
{
    product p = product_as_called(launch->call, NULL, NULL);
    ht_text a = {0}, b = {0};
    int64_t batches = product_batches(&p), down = ht_cuda_blocks(p.m, TILE), across = ht_cuda_blocks(p.n, TILE);
    const int64_t tiles = down * across, size = p.m * p.n;
    product_write_offset(&a, &p, &p.a);
    product_write_offset(&b, &p, &p.b);
    ht_cuda_include(e, "matmul");
    ht_cuda_add_grid(
        e, batches * tiles, 256, 0,
        "const int64_t tile = blockIdx.x %% %lld, batch = blockIdx.x / %lld;\n"
        "    matmul_tile<%lld, %lld, %lld, %lld, %lld, %lld, %lld>(in0 + %s, in1 + %s, out0 + batch * %lld,\n"
        "        tile / %lld * %d, tile %% %lld * %d);",
        (long long)tiles, (long long)tiles, (long long)p.m, (long long)p.n, (long long)p.k, (long long)p.a.down,
        (long long)p.a.across, (long long)p.b.down, (long long)p.b.across, a.data, b.data, (long long)size,
        (long long)across, TILE, (long long)across, TILE);
    e->text.failed |= a.failed || b.failed;
    ht_text_free(&a);
    ht_text_free(&b);
}

HT_CUDA_KERNEL(matmul, ht_cuda_elementwise_can, NULL, matmul)
