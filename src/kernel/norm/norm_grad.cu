// With h = (x-m) s and g = dy scale:  dx = s (g - mean(g) - h mean(g h)),  dscale = Σ_rows dy h,  dshift = Σ_rows dy.
// rmsnorm: m = 0, no mean(g), no dshift. What is given as plus is added to dx. A thread keeps its columns for all rows of the block, and their sums in
// registers; the sums of the blocks are joined by norm_grad_join, in order.

// Two sums over the block, the same in all its THREADS. `turn` is 0 and 1 in turns: between two calls with the same one
// lies a call with the other, so one barrier is enough.
template <int THREADS> DEVICE void block_sums(real *a, real *b, int turn)
{
    __shared__ real of_warp[2][THREADS / 32][2];
    *a = warp_fold<sum_of>(*a);
    *b = warp_fold<sum_of>(*b);
    if (threadIdx.x % 32 == 0) {
        of_warp[turn][threadIdx.x / 32][0] = *a;
        of_warp[turn][threadIdx.x / 32][1] = *b;
    }
    __syncthreads();
    *a = *b = 0;
#pragma unroll
    for (int w = 0; w < THREADS / 32; w++) {
        *a += of_warp[turn][w][0];
        *b += of_warp[turn][w][1];
    }
}

// A thread's part of a row as it lies in memory.
template <class D, class X, class P, int N, int PACKS> struct norm_grad_part {
    pack<D, N> dy[PACKS];
    pack<X, N> x[PACKS];
    pack<P, N> plus[PACKS];
};

template <int N, int THREADS> DEVICE int64_t column_of(int p) { return ((int64_t)p * THREADS + threadIdx.x) * N; }

template <int64_t SIZE, int THREADS, int N, int PACKS, class D, class X, class P>
DEVICE void load_part(norm_grad_part<D, X, P, N, PACKS> *part, const D *dy, const X *x, const P *plus)
{
    for (int p = 0; p < PACKS; p++) {
        const int64_t c = column_of<N, THREADS>(p);
        if (c >= SIZE) break;
        part->dy[p] = get_pack<N>(dy + c);
        part->x[p] = get_pack<N>(x + c);
        if (plus) part->plus[p] = get_pack<N>(plus + c);
    }
}

// Rows that are on their way to shared memory: a thread copies the packs that it will read. STAGES rows have a place there,
// in turns.
template <int64_t SIZE, int STAGES, int THREADS, int N, int PACKS, class D, class X, class P> struct norm_grad_ring {
    static constexpr int64_t PLACE = (int64_t)PACKS * THREADS * N;
    D *dy;
    X *x;
    P *plus;
    DEVICE_MEMBER explicit norm_grad_ring(char *shared)
    {
        dy = (D *)shared;
        x = (X *)(dy + STAGES * PLACE);
        plus = (P *)(x + STAGES * PLACE);
    }
    DEVICE_MEMBER void fetch(int64_t number, const D *from_dy, const X *from_x, const P *from_plus) const
    {
        const int64_t to = number % STAGES * PLACE;
        for (int p = 0; p < PACKS; p++) {
            const int64_t c = column_of<N, THREADS>(p);
            if (c >= SIZE) break;
            begin_copy<sizeof(D) * N>(dy + to + c, from_dy + c);
            begin_copy<sizeof(X) * N>(x + to + c, from_x + c);
            if (from_plus) begin_copy<sizeof(P) * N>(plus + to + c, from_plus + c);
        }
    }
    DEVICE_MEMBER void load(int64_t number, norm_grad_part<D, X, P, N, PACKS> *part, bool has_plus) const
    {
        const int64_t from = number % STAGES * PLACE;
        load_part<SIZE, THREADS>(part, dy + from, x + from, has_plus ? plus + from : nullptr);
    }
};

// Rows [PER_BLOCK b, PER_BLOCK (b+1)) for block b. Memory is busy only with many rows on their way: STAGES of each block, 1
// being the row at hand alone, for which no shared memory is needed.
// partials: [blocks, 2, SIZE], dscale and dshift.
template <int64_t ROWS, int64_t SIZE, int64_t PER_BLOCK, int STAGES, int N, int PACKS, int THREADS, bool CENTRED,
          bool PARAMS, class D, class X, class M, class R, class S, class P, class Y>
DEVICE void norm_grad_rows(const D *dy, const X *x, const M *mean, const R *rstd, const S *scale, const P *plus, Y *dx,
                           real *partials)
{
    SHARED_BYTES(shared);
    const norm_grad_ring<SIZE, STAGES, THREADS, N, PACKS, D, X, P> ring(shared);
    const int64_t first = blockIdx.x * PER_BLOCK, end = first + PER_BLOCK < ROWS ? first + PER_BLOCK : ROWS;
    real scales[PACKS][N], dscale[PACKS][N], dshift[PACKS][N];
    for (int p = 0; p < PACKS; p++) {
        const int64_t c = column_of<N, THREADS>(p);
        for (int k = 0; k < N; k++) {
            scales[p][k] = scale && c < SIZE ? (real)get(scale[c + k]) : 1;
            dscale[p][k] = dshift[p][k] = 0;
        }
    }
    const auto fetch = [&](int64_t row) {
        if (row < end) ring.fetch(row - first, dy + row * SIZE, x + row * SIZE, plus ? plus + row * SIZE : nullptr);
        end_of_stage();
    };
    for (int64_t row = first; row < first + STAGES - 1; row++) fetch(row);
    real next_mean = CENTRED ? (real)get(mean[first]) : 0, next_rstd = (real)get(rstd[first]);
    for (int64_t row = first; row < end; row++) {
        norm_grad_part<D, X, P, N, PACKS> part;
        const real row_mean = next_mean, row_rstd = next_rstd;
        real plain = 0, along = 0;
        if (STAGES > 1) {
            fetch(row + STAGES - 1);
            await_stage(STAGES - 1);
            ring.load(row - first, &part, plus != nullptr);
        } else {
            load_part<SIZE, THREADS>(&part, dy + row * SIZE, x + row * SIZE, plus ? plus + row * SIZE : nullptr);
        }
        if (row + 1 < end) {
            next_mean = CENTRED ? (real)get(mean[row + 1]) : 0;
            next_rstd = (real)get(rstd[row + 1]);
        }
        for (int p = 0; p < PACKS; p++) {
            if (column_of<N, THREADS>(p) >= SIZE) break;
            for (int k = 0; k < N; k++) {
                const real slope = (real)get(part.dy[p].item[k]), g = slope * scales[p][k];
                const real h = ((real)get(part.x[p].item[k]) - row_mean) * row_rstd;
                plain += g;
                along = fn_fma(g, h, along);
                if (PARAMS) dscale[p][k] = fn_fma(slope, h, dscale[p][k]);
                if (PARAMS) dshift[p][k] += slope;
            }
        }
        block_sums<THREADS>(&plain, &along, (int)((row - first) & 1));
        plain = CENTRED ? plain * (1 / (real)SIZE) : 0;
        along *= -1 / (real)SIZE;
        for (int p = 0; p < PACKS; p++) {
            const int64_t c = column_of<N, THREADS>(p);
            if (c >= SIZE) break;
            real result[N];
            for (int k = 0; k < N; k++) {
                const real g = (real)get(part.dy[p].item[k]) * scales[p][k];
                const real h = ((real)get(part.x[p].item[k]) - row_mean) * row_rstd;
                const real more = plus ? (real)get(part.plus[p].item[k]) : 0;
                result[k] = fn_fma(fn_fma(h, along, g - plain), row_rstd, more);
            }
            put_numbers(dx + row * SIZE + c, result);
        }
    }
    if (!PARAMS) return;
    partials += (int64_t)blockIdx.x * 2 * SIZE;
    for (int p = 0; p < PACKS; p++) {
        const int64_t c = column_of<N, THREADS>(p);
        if (c >= SIZE) break;
        for (int k = 0; k < N; k++) {
            partials[c + k] = dscale[p][k];
            partials[SIZE + c + k] = dshift[p][k];
        }
    }
}

// Joins the sums of PARTS blocks, COLUMNS columns in a block of THREADS. TOTAL: columns of dscale, and of dshift behind
// them where it is a result.
template <int64_t SIZE, int64_t TOTAL, int64_t PARTS, int COLUMNS, int THREADS, class S, class H>
DEVICE void norm_grad_join(const real *partials, S *dscale, H *dshift)
{
    const int64_t column = (int64_t)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    double sum = 0;
    if (column < TOTAL)
        for (int64_t i = threadIdx.x / COLUMNS; i < PARTS; i += THREADS / COLUMNS)
            sum += (double)partials[i * 2 * SIZE + column];
    sum = column_fold<sum_of, COLUMNS, THREADS>(sum);
    if (threadIdx.x >= COLUMNS || column >= TOTAL) return;
    if (column < SIZE)
        put(&dscale[column], (real)sum);
    else
        put(&dshift[column - SIZE], (real)sum);
}
