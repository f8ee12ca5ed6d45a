// With h = (x-m) s and g = dy scale:  dx = s (g - mean(g) - h mean(g h)),  dscale = Σ_rows dy h,  dshift = Σ_rows dy.
// rmsnorm: m = 0, no mean(g), no dshift. What is given as plus is added to dx. A thread keeps its columns for all rows of the block, and their sums in
// registers; the sums of the blocks are joined by norm_grad_join, in order.

// Two sums over the block, the same in all threads. `turn` is 0 and 1 in turns: between two calls with the same one lies
// a call with the other, so one barrier is enough.
DEVICE void block_sums(real *a, real *b, int turn)
{
    __shared__ real of_warp[2][2][32];
    const int warps = (int)blockDim.x / 32, warp = (int)threadIdx.x / 32;
    *a = warp_fold<sum_of>(*a);
    *b = warp_fold<sum_of>(*b);
    if (threadIdx.x % 32 == 0) {
        of_warp[turn][0][warp] = *a;
        of_warp[turn][1][warp] = *b;
    }
    __syncthreads();
    *a = *b = 0;
    for (int i = 0; i < warps; i++) {
        *a += of_warp[turn][0][i];
        *b += of_warp[turn][1][i];
    }
}

// A thread's part of a row as it lies in memory, and what is one for the row.
template <class D, class X, class P, int N, int PACKS> struct norm_grad_part {
    pack<D, N> dy[PACKS];
    pack<X, N> x[PACKS];
    pack<P, N> plus[PACKS];
    real mean, rstd;
};

template <int64_t SIZE, int N, int PACKS, int THREADS, bool CENTRED, class D, class X, class P, class M, class R>
DEVICE void load_part(norm_grad_part<D, X, P, N, PACKS> *part, int64_t row, const D *dy, const X *x, const P *plus,
                      const M *mean, const R *rstd)
{
    part->mean = CENTRED ? (real)get(mean[row]) : 0;
    part->rstd = (real)get(rstd[row]);
    for (int p = 0; p < PACKS; p++) {
        const int64_t c = ((int64_t)p * THREADS + threadIdx.x) * N;
        if (c >= SIZE) break;
        part->dy[p] = get_pack<N>(dy + row * SIZE + c);
        part->x[p] = get_pack<N>(x + row * SIZE + c);
        if (plus) part->plus[p] = get_pack<N>(plus + row * SIZE + c);
    }
}

// Rows [PER_BLOCK b, PER_BLOCK (b+1)) for block b; the next row is on its way while one is computed. Instructions are as
// scarce here as bandwidth: what both passes over a row need stays in registers, and products are added in one step.
// partials: [blocks, 2, SIZE], dscale and dshift.
template <int64_t ROWS, int64_t SIZE, int64_t PER_BLOCK, int N, int PACKS, int THREADS, bool CENTRED, bool PARAMS, class D,
          class X, class M, class R, class S, class P, class Y>
DEVICE void norm_grad_rows(const D *dy, const X *x, const M *mean, const R *rstd, const S *scale, const P *plus, Y *dx,
                           real *partials)
{
    const int64_t first = blockIdx.x * PER_BLOCK, end = first + PER_BLOCK < ROWS ? first + PER_BLOCK : ROWS;
    const real one_of = 1 / (real)SIZE;
    real scales[PACKS][N], dscale[PACKS][N], dshift[PACKS][N], g[PACKS][N], h[PACKS][N];
    norm_grad_part<D, X, P, N, PACKS> next, part;
    for (int p = 0; p < PACKS; p++) {
        const int64_t c = ((int64_t)p * THREADS + threadIdx.x) * N;
        for (int k = 0; k < N; k++) {
            scales[p][k] = scale && c < SIZE ? (real)get(scale[c + k]) : 1;
            dscale[p][k] = dshift[p][k] = 0;
        }
    }
    load_part<SIZE, N, PACKS, THREADS, CENTRED>(&next, first, dy, x, plus, mean, rstd);
    for (int64_t row = first; row < end; row++) {
        real plain = 0, along = 0;
        part = next;
        if (row + 1 < end) load_part<SIZE, N, PACKS, THREADS, CENTRED>(&next, row + 1, dy, x, plus, mean, rstd);
        for (int p = 0; p < PACKS; p++) {
            if (((int64_t)p * THREADS + threadIdx.x) * N >= SIZE) break;
            for (int k = 0; k < N; k++) {
                const real slope = (real)get(part.dy[p].item[k]);
                h[p][k] = ((real)get(part.x[p].item[k]) - part.mean) * part.rstd;
                g[p][k] = slope * scales[p][k];
                plain += g[p][k];
                along = fn_fma(g[p][k], h[p][k], along);
                if (PARAMS) dscale[p][k] = fn_fma(slope, h[p][k], dscale[p][k]);
                if (PARAMS) dshift[p][k] += slope;
            }
        }
        block_sums(&plain, &along, (int)((row - first) & 1));
        plain = CENTRED ? plain * one_of : 0;
        along *= -one_of;
        for (int p = 0; p < PACKS; p++) {
            const int64_t c = ((int64_t)p * THREADS + threadIdx.x) * N;
            if (c >= SIZE) break;
            pack<Y, N> result;
            for (int k = 0; k < N; k++) {
                const real more = plus ? (real)get(part.plus[p].item[k]) : 0;
                put(&result.item[k], fn_fma(fn_fma(h[p][k], along, g[p][k] - plain), part.rstd, more));
            }
            put_pack(dx + row * SIZE + c, result);
        }
    }
    if (!PARAMS) return;
    partials += (int64_t)blockIdx.x * 2 * SIZE;
    for (int p = 0; p < PACKS; p++) {
        const int64_t c = ((int64_t)p * THREADS + threadIdx.x) * N;
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
