// matmul: y[m,n] = sum over k of a[m,k] b[k,n], in the order of k, with `real` sums and one rounding. The row for every
// shape and type; cublasLt takes what it can.

enum { MATMUL_TILE = 64, MATMUL_DEPTH = 16, MATMUL_PART = 4, MATMUL_THREADS = 256 };

// One block makes a tile of y, each thread 4 x 4 elements of it. Strides of a and b are those of rows and columns.
template <int64_t M, int64_t N, int64_t K, int64_t A_DOWN, int64_t A_ACROSS, int64_t B_DOWN, int64_t B_ACROSS, class A,
          class B, class Y>
DEVICE void matmul_tile(const A *a, const B *b, Y *y, int64_t first_row, int64_t first_column)
{
    __shared__ real of_a[MATMUL_DEPTH][MATMUL_TILE + 1], of_b[MATMUL_DEPTH][MATMUL_TILE + 1];
    const int row = threadIdx.x / 16 * MATMUL_PART, column = threadIdx.x % 16 * MATMUL_PART;
    real sum[MATMUL_PART][MATMUL_PART] = {};
    for (int64_t k = 0; k < K; k += MATMUL_DEPTH) {
        // Neighbouring threads read neighbouring elements, whichever way the matrix lies.
        for (int i = threadIdx.x; i < MATMUL_TILE * MATMUL_DEPTH; i += MATMUL_THREADS) {
            const int depth = A_ACROSS == 1 ? i % MATMUL_DEPTH : i / MATMUL_TILE;
            const int line = A_ACROSS == 1 ? i / MATMUL_DEPTH : i % MATMUL_TILE;
            const int64_t m = first_row + line, at = k + depth;
            of_a[depth][line] = m < M && at < K ? (real)get(a[m * A_DOWN + at * A_ACROSS]) : (real)0;
        }
        for (int i = threadIdx.x; i < MATMUL_TILE * MATMUL_DEPTH; i += MATMUL_THREADS) {
            const int depth = B_DOWN == 1 ? i % MATMUL_DEPTH : i / MATMUL_TILE;
            const int line = B_DOWN == 1 ? i / MATMUL_DEPTH : i % MATMUL_TILE;
            const int64_t n = first_column + line, at = k + depth;
            of_b[depth][line] = n < N && at < K ? (real)get(b[at * B_DOWN + n * B_ACROSS]) : (real)0;
        }
        __syncthreads();
        for (int depth = 0; depth < MATMUL_DEPTH; depth++)
            for (int r = 0; r < MATMUL_PART; r++)
                for (int c = 0; c < MATMUL_PART; c++)
                    sum[r][c] = fn_fma(of_a[depth][row + r], of_b[depth][column + c], sum[r][c]);
        __syncthreads();
    }
    for (int r = 0; r < MATMUL_PART; r++)
        for (int c = 0; c < MATMUL_PART; c++) {
            const int64_t m = first_row + row + r, n = first_column + column + c;
            if (m < M && n < N) put(&y[m * N + n], sum[r][c]);
        }
}
