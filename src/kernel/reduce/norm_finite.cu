// norm_finite: y = √Σx² as f64, and: is no x infinite or NaN? Squares are summed in double (`real` is, since y is f64), in
// a fixed order. Squares of narrower types do not overflow there: their sum is finite exactly if every x is.
// sum_squares_finite: s + Σx² of parts that come one after the other; their sums are added in this order, which is another
// one than that of the whole.
// all_finite: the second alone.

template <class X> struct may_overflow {
    static constexpr bool value = false;
};
template <> struct may_overflow<double> {
    static constexpr bool value = true;
};

// What a block found: Σx², and how many x are not finite, where the sum does not tell.
struct norm_part {
    double squares, strange;
};

// ELEMS in parts of PART, of which a block takes one; N divides both.
template <int64_t ELEMS, int64_t PART, int N, class X> DEVICE void norm_finite_part(const X *x, norm_part *parts)
{
    const int64_t first = blockIdx.x * PART, end = first + PART < ELEMS ? first + PART : ELEMS;
    real squares = 0, strange = 0;
#pragma unroll 8
    for (int64_t i = first + (int64_t)threadIdx.x * N; i < end; i += (int64_t)blockDim.x * N) {
        const pack<X, N> these = get_pack<N>(x + i);
        for (int k = 0; k < N; k++) {
            const real value = (real)get(these.item[k]);
            squares += value * value;
            if (may_overflow<X>::value) strange += !is_finite(value);
        }
    }
    squares = block_sum(squares);
    if (may_overflow<X>::value) strange = block_sum(strange);
    if (threadIdx.x == 0) parts[blockIdx.x] = norm_part{squares, strange};
}

// One block. Thread 0 has the result.
template <int64_t PARTS> DEVICE norm_part join_parts(const norm_part *parts)
{
    real squares = 0, strange = 0;
    for (int64_t i = threadIdx.x; i < PARTS; i += blockDim.x) {
        squares += parts[i].squares;
        strange += parts[i].strange;
    }
    squares = block_sum(squares);
    strange = block_sum(strange);
    return norm_part{squares, strange};
}

template <class X> DEVICE bool part_is_finite(const norm_part &p)
{
    return may_overflow<X>::value ? p.strange == 0 : is_finite(p.squares);
}

template <int64_t PARTS, class X> DEVICE void norm_finite_join(const X *, const norm_part *parts, double *norm, boolean *finite)
{
    const norm_part all = join_parts<PARTS>(parts);
    if (threadIdx.x != 0) return;
    *norm = sqrt(all.squares);
    put(finite, part_is_finite<X>(all));
}

template <int64_t PARTS, class X>
DEVICE void sum_squares_join(const X *, const norm_part *parts, const double *before, const boolean *before_finite, double *sum, boolean *finite)
{
    const norm_part all = join_parts<PARTS>(parts);
    if (threadIdx.x != 0) return;
    *sum = before ? *before + all.squares : all.squares;
    put(finite, (!before_finite || before_finite->byte != 0) && part_is_finite<X>(all));
}

template <int64_t ELEMS, int64_t PART, int N, class X> DEVICE void all_finite_part(const X *x, boolean *parts)
{
    const int64_t first = blockIdx.x * PART, end = first + PART < ELEMS ? first + PART : ELEMS;
    bool finite = true;
#pragma unroll 8
    for (int64_t i = first + (int64_t)threadIdx.x * N; i < end; i += (int64_t)blockDim.x * N) {
        const pack<X, N> these = get_pack<N>(x + i);
        for (int k = 0; k < N; k++) finite &= is_finite((real)get(these.item[k]));
    }
    finite = block_max(finite ? 0 : 1) == 0;
    if (threadIdx.x == 0) put(&parts[blockIdx.x], finite);
}

// One block.
template <int64_t PARTS> DEVICE void all_finite_join(const boolean *parts, boolean *y)
{
    bool finite = true;
    for (int64_t i = threadIdx.x; i < PARTS; i += blockDim.x) finite &= parts[i].byte != 0;
    finite = block_max(finite ? 0 : 1) == 0;
    if (threadIdx.x == 0) put(y, finite);
}
