// scaled_matmul: (sum over k of a[m,k] b[k,n]) scale_a scale_b, in the order of k, with `real` sums and one rounding. The row
// for every shape; cublasLt takes what it can.

template <class T, int64_t PITCH> struct scaled_store {
    T *data;
    real scale_a, scale_b;
    DEVICE_MEMBER void operator()(int64_t row, int64_t column, real x) const
    {
        put(&data[row * PITCH + column], x * scale_a * scale_b);
    }
};

template <int64_t M, int64_t N, int64_t K, int64_t A_DOWN, int64_t A_ACROSS, int64_t B_DOWN, int64_t B_ACROSS, class A,
          class B, class Y>
DEVICE void scaled_matmul_tile(const A *a, const B *b, const float *scale_a, const float *scale_b, Y *y, int64_t tile)
{
    const matrix_side<A, A_DOWN, A_ACROSS> left = {a};
    const matrix_side<B, B_ACROSS, B_DOWN> right = {b};
    const scaled_store<Y, N> store = {y, (real)*scale_a, (real)*scale_b};
    multiply_tile<M, N>(tile, 0, K, left, right, store);
}
