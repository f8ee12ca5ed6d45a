// With h = (x-m) s and g = dy scale:  dx = s (g - mean(g) - h mean(g h)),  dscale = Σ_rows dy h,  dshift = Σ_rows dy.
// rmsnorm: m = 0, no mean(g), no dshift. What is given as plus is added to dx. layernorm_grad_sum: Σ_rows dx as well, of dx
// as it is stored. A thread keeps its columns for all rows of the block, and their sums in registers; the sums of the blocks
// are joined by norm_grad_join, in order.

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
    DEVICE_MEMBER void fetch(int number, const D *from_dy, const X *from_x, const P *from_plus) const
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
    DEVICE_MEMBER void load(int number, norm_grad_part<D, X, P, N, PACKS> *part, bool has_plus) const
    {
        const int64_t from = number % STAGES * PLACE;
        load_part<SIZE, THREADS>(part, dy + from, x + from, has_plus ? plus + from : nullptr);
    }
};

// Rows [PER_BLOCK b, PER_BLOCK (b+1)) for block b. Memory is busy only with many rows on their way: STAGES of each block, 1
// being the row at hand alone, for which no shared memory is needed.
// KEEP: g and h stay in registers for dx, else they are made twice. The kernel waits for its instructions as much as for
// memory. partials: [blocks, 2 or 3, SIZE], dscale, dshift and with TOTAL the sums of dx.
template <int64_t ROWS, int64_t SIZE, int64_t PER_BLOCK, int STAGES, int N, int PACKS, int THREADS, bool CENTRED,
          bool PARAMS, bool TOTAL, bool PLUS, bool KEEP, class D, class X, class M, class R, class S, class P, class Y>
DEVICE void norm_grad_rows(const D *dy, const X *x, const M *mean, const R *rstd, const S *scale, const P *plus, Y *dx,
                           real *partials)
{
    SHARED_BYTES(shared);
    const norm_grad_ring<SIZE, STAGES, THREADS, N, PACKS, D, X, P> ring(shared);
    const int64_t first = blockIdx.x * PER_BLOCK, end = first + PER_BLOCK < ROWS ? first + PER_BLOCK : ROWS;
    real scales[PACKS][N], dscale[PACKS][N], dshift[PACKS][N], total[PACKS][N];
    for (int p = 0; p < PACKS; p++) {
        const int64_t c = column_of<N, THREADS>(p);
        for (int k = 0; k < N; k++) {
            scales[p][k] = scale && c < SIZE ? (real)get(scale[c + k]) : 1;
            dscale[p][k] = dshift[p][k] = total[p][k] = 0;
        }
    }
    dy += first * SIZE, x += first * SIZE, dx += first * SIZE, rstd += first;
    if (PLUS) plus += first * SIZE;
    if (CENTRED) mean += first;
    const int rows = (int)(end - first);
    const auto fetch = [&](int row) {
        const int64_t at = row * SIZE;
        if (row < rows) ring.fetch(row, dy + at, x + at, PLUS ? plus + at : nullptr);
        end_of_stage();
    };
    for (int row = 0; row < STAGES - 1; row++) fetch(row);
    real next_mean = CENTRED ? (real)get(mean[0]) : 0, next_rstd = (real)get(rstd[0]);
    for (int row = 0; row < rows; row++) {
        norm_grad_part<D, X, P, N, PACKS> part;
        real kept_g[PACKS][N], kept_h[PACKS][N];
        const real row_mean = next_mean, row_rstd = next_rstd;
        const int64_t at = row * SIZE;
        real plain = 0, along = 0;
        if (STAGES > 1) {
            fetch(row + STAGES - 1);
            await_stage(STAGES - 1);
            ring.load(row, &part, PLUS);
        } else {
            load_part<SIZE, THREADS>(&part, dy + at, x + at, PLUS ? plus + at : nullptr);
        }
        if (row + 1 < rows) {
            next_mean = CENTRED ? (real)get(mean[row + 1]) : 0;
            next_rstd = (real)get(rstd[row + 1]);
        }
        const auto g_of = [&](int p, int k) { return (real)get(part.dy[p].item[k]) * scales[p][k]; };
        const auto h_of = [&](int p, int k) { return ((real)get(part.x[p].item[k]) - row_mean) * row_rstd; };
        for (int p = 0; p < PACKS; p++) {
            if (column_of<N, THREADS>(p) >= SIZE) break;
            for (int k = 0; k < N; k++) {
                const real slope = (real)get(part.dy[p].item[k]), g = g_of(p, k), h = h_of(p, k);
                kept_g[p][k] = g;
                kept_h[p][k] = h;
                plain += g;
                along = fn_fma(g, h, along);
                if (PARAMS) dscale[p][k] = fn_fma(slope, h, dscale[p][k]);
                if (PARAMS) dshift[p][k] += slope;
            }
        }
        block_sums<THREADS>(&plain, &along, row & 1);
        plain = CENTRED ? plain * (1 / (real)SIZE) : 0;
        along *= -1 / (real)SIZE;
        for (int p = 0; p < PACKS; p++) {
            const int64_t c = column_of<N, THREADS>(p);
            if (c >= SIZE) break;
            real result[N];
            for (int k = 0; k < N; k++) {
                const real more = PLUS ? (real)get(part.plus[p].item[k]) : 0;
                const real g = KEEP ? kept_g[p][k] : g_of(p, k), h = KEEP ? kept_h[p][k] : h_of(p, k);
                result[k] = fn_fma(fn_fma(h, along, g - plain), row_rstd, more);
            }
            const pack<Y, N> stored = rounded_pack<Y>(result);
            put_pack(dx + at + c, stored);
            if (TOTAL)
                for (int k = 0; k < N; k++) total[p][k] += (real)get(stored.item[k]);
        }
    }
    if (!PARAMS && !TOTAL) return;
    partials += (int64_t)blockIdx.x * (TOTAL ? 3 : 2) * SIZE;
    for (int p = 0; p < PACKS; p++) {
        const int64_t c = column_of<N, THREADS>(p);
        if (c >= SIZE) break;
        for (int k = 0; k < N; k++) {
            partials[c + k] = dscale[p][k];
            partials[SIZE + c + k] = dshift[p][k];
            if (TOTAL) partials[2 * SIZE + c + k] = total[p][k];
        }
    }
}

// Joins the sums of PARTS blocks, COLUMNS columns in a block of THREADS: columns FIRST to LAST of the SUMS results that
// stand side by side in partials.
template <int64_t SIZE, int SUMS, int64_t FIRST, int64_t LAST, int64_t PARTS, int COLUMNS, int THREADS, class S, class H,
          class T>
DEVICE void norm_grad_join(const real *partials, S *dscale, H *dshift, T *total)
{
    const int64_t column = FIRST + (int64_t)blockIdx.x * COLUMNS + threadIdx.x % COLUMNS;
    double sum = 0;
    if (column < LAST)
        for (int64_t i = threadIdx.x / COLUMNS; i < PARTS; i += THREADS / COLUMNS)
            sum += (double)partials[i * SUMS * SIZE + column];
    sum = column_fold<sum_of, COLUMNS, THREADS>(sum);
    if (threadIdx.x >= COLUMNS || column >= LAST) return;
    if (column < SIZE)
        put(&dscale[column], (real)sum);
    else if (column < 2 * SIZE)
        put(&dshift[column - SIZE], (real)sum);
    else
        put(&total[column - 2 * SIZE], (real)sum);
}
