// batchnorm: y = (x-m[c]) scale[c]/√(v[c]+eps) + shift[c], m and v of each channel c of x [N,C,S] (v divided by N S).
// batchnorm_grad: with h = (x-m)/√(v+eps) and n = N S:  dshift = Σ dy,  dscale = Σ dy h,
// dx = scale/√(v+eps) (dy - dshift/n - h dscale/n); with a relu behind the norm, dy is 0 where the norm's result is not
// above 0.
// Three grids: parts of channels, which stay in registers; channels; parts again, to write. Fixed order, one rounding.
// Where channels lie last the parts are rows of all channels.

// COUNT elements of a channel in PARTS parts of PART; a block takes one, block b part b % PARTS of channel b / PARTS. Runs
// of SPACE elements lie together, of which a thread takes N at a time. INDEX counts the elements of a channel.
template <int64_t CHANNELS, int64_t SPACE, int64_t COUNT, int64_t PARTS, int PART, int N, int THREADS, class INDEX>
struct channels {
    static constexpr int PACKS = PART / (N * THREADS);
    static DEVICE_MEMBER int64_t channel() { return blockIdx.x / PARTS; }
    static DEVICE_MEMBER int64_t part() { return blockIdx.x % PARTS; }
    // Elements in a part.
    static DEVICE_MEMBER int64_t size(int64_t part) { return COUNT - part * PART < PART ? COUNT - part * PART : PART; }
    // Number of the first element in pack p of this thread, among those of the channel; COUNT or more: there is none.
    static DEVICE_MEMBER INDEX number(int p) { return (INDEX)(part() * PART) + (INDEX)((p * THREADS + threadIdx.x) * N); }
    // Its place in the tensor.
    static DEVICE_MEMBER int64_t place(INDEX number)
    {
        return ((int64_t)(number / (INDEX)SPACE) * CHANNELS + channel()) * SPACE + number % (INDEX)SPACE;
    }
    static constexpr INDEX END = (INDEX)COUNT;
};

// A part's mean, and its squares about this mean.
struct batchnorm_part {
    real mean, squares;
};
// What a channel's elements are computed with.
struct batchnorm_channel {
    real mean, factor, shift, along; // factor: scale/deviation; shift and along: see those who write them
};

template <class C, int N, class X> DEVICE void batchnorm_measure(const X *x, batchnorm_part *parts)
{
    const real count = (real)C::size(C::part());
    real value[C::PACKS][N], sum = 0, squares = 0;
#pragma unroll
    for (int p = 0; p < C::PACKS; p++) {
        if (C::number(p) >= C::END) break;
        const pack<X, N> these = get_pack<N>(x + C::place(C::number(p)));
        for (int k = 0; k < N; k++) {
            value[p][k] = (real)get(these.item[k]);
            sum += value[p][k];
        }
    }
    const real mean = block_sum(sum) / count;
#pragma unroll
    for (int p = 0; p < C::PACKS; p++) {
        if (C::number(p) >= C::END) break;
        for (int k = 0; k < N; k++) squares += (value[p][k] - mean) * (value[p][k] - mean);
    }
    squares = block_sum(squares);
    if (threadIdx.x == 0) parts[blockIdx.x] = batchnorm_part{mean, squares};
}

// A block for each channel: its parts become one. Squares about the part's mean become squares about the channel's.
template <class C, int64_t COUNT, int64_t PARTS, class S, class H, class M, class V, class F>
DEVICE void batchnorm_join(const batchnorm_part *parts, batchnorm_channel *channels, const S *scale, const H *shift, M *mean_out,
                           V *variance_out, F *factor_out, real eps)
{
    const int64_t c = blockIdx.x;
    real sum = 0, squares = 0;
    parts += c * PARTS;
    for (int64_t i = threadIdx.x; i < PARTS; i += blockDim.x) sum += parts[i].mean * (real)C::size(i);
    const real mean = block_sum(sum) / (real)COUNT;
    for (int64_t i = threadIdx.x; i < PARTS; i += blockDim.x) {
        const real off = parts[i].mean - mean;
        squares += parts[i].squares + off * off * (real)C::size(i);
    }
    const real variance = block_sum(squares) / (real)COUNT;
    if (threadIdx.x != 0) return;
    const real factor = (scale ? (real)get(scale[c]) : 1) / fn_sqrt(variance + eps);
    channels[c] = batchnorm_channel{mean, factor, shift ? (real)get(shift[c]) : 0, 0};
    put(&mean_out[c], mean);
    put(&variance_out[c], variance);
    if (factor_out) put(&factor_out[c], factor);
}

template <class C, int N, class X, class Y> DEVICE void batchnorm_write(const X *x, Y *y, const batchnorm_channel *channels)
{
    const batchnorm_channel c = channels[C::channel()];
#pragma unroll
    for (int p = 0; p < C::PACKS; p++) {
        if (C::number(p) >= C::END) break;
        const int64_t place = C::place(C::number(p));
        const pack<X, N> these = get_pack<N>(x + place);
        pack<Y, N> result;
        for (int k = 0; k < N; k++) put(&result.item[k], ((real)get(these.item[k]) - c.mean) * c.factor + c.shift);
        put_pack(y + place, result);
    }
}

// Σ dy and Σ dy (x-m) of a part.
struct batchnorm_grad_part {
    real plain, along;
};

// dy of a norm without a relu behind it.
struct all_slopes {};
// With one: the norm's result is rounded to Y, as it was stored, before it is compared.
template <class Y, class V, class S, class H> struct relu_slopes {
    const V *variance;
    const S *scale;
    const H *shift;
    real eps;
};

// What a relu lets through in channel c.
template <class SLOPES> struct relu_gate {
    DEVICE_MEMBER relu_gate(const SLOPES &, int64_t) {}
    DEVICE_MEMBER relu_gate() {}
    DEVICE_MEMBER real through(real slope, real) const { return slope; }
};
template <class Y, class V, class S, class H> struct relu_gate<relu_slopes<Y, V, S, H>> {
    real factor, shift;
    DEVICE_MEMBER relu_gate() {}
    DEVICE_MEMBER relu_gate(const relu_slopes<Y, V, S, H> &s, int64_t c)
        : factor((s.scale ? (real)get(s.scale[c]) : 1) / fn_sqrt((real)get(s.variance[c]) + s.eps)),
          shift((real)get(s.shift[c]))
    {
    }
    DEVICE_MEMBER real through(real slope, real off) const
    {
        Y result;
        put(&result, off * factor + shift);
        return (real)get(result) <= 0 ? (real)0 : slope;
    }
};

template <class C, int N, class D, class X, class M, class SLOPES>
DEVICE void batchnorm_grad_measure(const D *dy, const X *x, const M *mean_in, batchnorm_grad_part *parts, SLOPES how)
{
    const real mean = (real)get(mean_in[C::channel()]);
    const relu_gate<SLOPES> gate(how, C::channel());
    real plain = 0, along = 0;
#pragma unroll
    for (int p = 0; p < C::PACKS; p++) {
        if (C::number(p) >= C::END) break;
        const int64_t place = C::place(C::number(p));
        const pack<D, N> slopes = get_pack<N>(dy + place);
        const pack<X, N> these = get_pack<N>(x + place);
        for (int k = 0; k < N; k++) {
            const real off = (real)get(these.item[k]) - mean, slope = gate.through((real)get(slopes.item[k]), off);
            plain += slope;
            along += slope * off;
        }
    }
    plain = block_sum(plain);
    along = block_sum(along);
    if (threadIdx.x == 0) parts[blockIdx.x] = batchnorm_grad_part{plain, along};
}

// A block for each channel. shift becomes dshift/n, along dscale/(n deviation).
template <int64_t COUNT, int64_t PARTS, class M, class V, class S, class P, class Q>
DEVICE void batchnorm_grad_join(const batchnorm_grad_part *parts, batchnorm_channel *channels, const M *mean, const V *variance,
                                const S *scale, P *dscale_out, Q *dshift_out, real eps)
{
    const int64_t c = blockIdx.x;
    real plain = 0, along = 0;
    parts += c * PARTS;
    for (int64_t i = threadIdx.x; i < PARTS; i += blockDim.x) {
        plain += parts[i].plain;
        along += parts[i].along;
    }
    plain = block_sum(plain);
    along = block_sum(along);
    if (threadIdx.x != 0) return;
    const real rstd = 1 / fn_sqrt((real)get(variance[c]) + eps), dscale = along * rstd;
    put(&dscale_out[c], dscale);
    put(&dshift_out[c], plain);
    channels[c] = batchnorm_channel{(real)get(mean[c]), (scale ? (real)get(scale[c]) : 1) * rstd, plain / (real)COUNT,
                                    dscale * rstd / (real)COUNT};
}

template <class C, int N, class D, class X, class Y, class SLOPES>
DEVICE void batchnorm_grad_write(const D *dy, const X *x, Y *dx, const batchnorm_channel *channels, SLOPES how)
{
    const batchnorm_channel c = channels[C::channel()];
    const relu_gate<SLOPES> gate(how, C::channel());
#pragma unroll
    for (int p = 0; p < C::PACKS; p++) {
        if (C::number(p) >= C::END) break;
        const int64_t place = C::place(C::number(p));
        const pack<D, N> slopes = get_pack<N>(dy + place);
        const pack<X, N> these = get_pack<N>(x + place);
        pack<Y, N> result;
        for (int k = 0; k < N; k++) {
            const real off = (real)get(these.item[k]) - c.mean, slope = gate.through((real)get(slopes.item[k]), off);
            put(&result.item[k], c.factor * (slope - c.shift - off * c.along));
        }
        put_pack(dx + place, result);
    }
}

// ---- channels last: a matrix of COUNT rows of CHANNELS ----

// A block takes a part of PART rows and COLUMNS · N channels: a thread N neighbours of them, in every SLICES-th row.
template <int64_t CHANNELS, int64_t COUNT, int64_t PARTS, int64_t PART, int COLUMNS, int N, int THREADS> struct channel_rows {
    static constexpr int SLICES = THREADS / COLUMNS, WIDTH = COLUMNS * N;
    static constexpr int64_t TILES = (CHANNELS + WIDTH - 1) / WIDTH, CHANNEL_COUNT = CHANNELS, PART_COUNT = PARTS;
    static DEVICE_MEMBER int64_t part() { return blockIdx.x / TILES; }
    static DEVICE_MEMBER int64_t size(int64_t part) { return COUNT - part * PART < PART ? COUNT - part * PART : PART; }
    static DEVICE_MEMBER int64_t tile() { return blockIdx.x % TILES * WIDTH; }
    static DEVICE_MEMBER int64_t channel() { return tile() + threadIdx.x % COLUMNS * N; }
    static DEVICE_MEMBER int slice() { return threadIdx.x / COLUMNS; }
    // Rows of the part; and where the thread's channels of one of them lie.
    static DEVICE_MEMBER int64_t row(int64_t number) { return (part() * PART + number) * CHANNELS + channel(); }
    static DEVICE_MEMBER int64_t end() { return channel() < CHANNELS ? size(part()) : 0; }
};

// The sums of a block's threads, slice by slice: channel `threadIdx.x` of the tile in the threads of its width.
template <class R, int N> DEVICE real sum_slices(const real (&own)[N])
{
    __shared__ real all[R::SLICES][R::WIDTH];
    for (int k = 0; k < N; k++) all[R::slice()][threadIdx.x % (R::WIDTH / N) * N + k] = own[k];
    __syncthreads();
    real sum = 0;
    if (threadIdx.x < R::WIDTH)
        for (int slice = 0; slice < R::SLICES; slice++) sum += all[slice][threadIdx.x];
    __syncthreads();
    return sum;
}

// Squares are taken about the part's first row, which lies near its mean. An infinite one is no place to look from.
template <class R, int N, class X> DEVICE void batchnorm_measure_rows(const X *x, batchnorm_part *parts)
{
    real sum[N] = {}, squares[N] = {}, from[N] = {};
    if (R::end() > 0) {
        const pack<X, N> first = get_pack<N>(x + R::row(0));
        for (int k = 0; k < N; k++) {
            const real value = (real)get(first.item[k]);
            from[k] = value - value == 0 ? value : 0;
        }
    }
#pragma unroll 4
    for (int64_t row = R::slice(); row < R::end(); row += R::SLICES) {
        const pack<X, N> these = get_pack<N>(x + R::row(row));
        for (int k = 0; k < N; k++) {
            const real off = (real)get(these.item[k]) - from[k];
            sum[k] += off;
            squares[k] += off * off;
        }
    }
    const real total = sum_slices<R, N>(sum), all = sum_slices<R, N>(squares);
    const int64_t channel = R::tile() + threadIdx.x;
    if (threadIdx.x >= R::WIDTH || channel >= R::CHANNEL_COUNT) return;
    const real count = (real)R::size(R::part()), off = total / count;
    const real start = (real)get(x[R::row(0) - R::channel() + channel]);
    const real rest = all - total * off;
    parts[channel * R::PART_COUNT + R::part()] =
        batchnorm_part{(start - start == 0 ? start : 0) + off, rest < 0 ? 0 : rest};
}

template <class R, int N, class X, class Y>
DEVICE void batchnorm_write_rows(const X *x, Y *y, const batchnorm_channel *channels)
{
    real mean[N], factor[N], shift[N];
    for (int k = 0; k < N && R::end() > 0; k++) {
        const batchnorm_channel c = channels[R::channel() + k];
        mean[k] = c.mean, factor[k] = c.factor, shift[k] = c.shift;
    }
#pragma unroll 4
    for (int64_t row = R::slice(); row < R::end(); row += R::SLICES) {
        const pack<X, N> these = get_pack<N>(x + R::row(row));
        pack<Y, N> result;
        for (int k = 0; k < N; k++) put(&result.item[k], ((real)get(these.item[k]) - mean[k]) * factor[k] + shift[k]);
        put_pack(y + R::row(row), result);
    }
}

template <class R, int N, class D, class X, class M, class SLOPES>
DEVICE void batchnorm_grad_measure_rows(const D *dy, const X *x, const M *mean_in, batchnorm_grad_part *parts, SLOPES how)
{
    real plain[N] = {}, along[N] = {}, mean[N] = {};
    relu_gate<SLOPES> gate[N];
    for (int k = 0; k < N && R::end() > 0; k++) {
        mean[k] = (real)get(mean_in[R::channel() + k]);
        gate[k] = relu_gate<SLOPES>(how, R::channel() + k);
    }
#pragma unroll 4
    for (int64_t row = R::slice(); row < R::end(); row += R::SLICES) {
        const pack<D, N> slopes = get_pack<N>(dy + R::row(row));
        const pack<X, N> these = get_pack<N>(x + R::row(row));
        for (int k = 0; k < N; k++) {
            const real off = (real)get(these.item[k]) - mean[k];
            const real slope = gate[k].through((real)get(slopes.item[k]), off);
            plain[k] += slope;
            along[k] += slope * off;
        }
    }
    const real all_plain = sum_slices<R, N>(plain), all_along = sum_slices<R, N>(along);
    const int64_t channel = R::tile() + threadIdx.x;
    if (threadIdx.x < R::WIDTH && channel < R::CHANNEL_COUNT)
        parts[channel * R::PART_COUNT + R::part()] = batchnorm_grad_part{all_plain, all_along};
}

template <class R, int N, class D, class X, class Y, class SLOPES>
DEVICE void batchnorm_grad_write_rows(const D *dy, const X *x, Y *dx, const batchnorm_channel *channels, SLOPES how)
{
    real mean[N], factor[N], shift[N], along[N];
    relu_gate<SLOPES> gate[N];
    for (int k = 0; k < N && R::end() > 0; k++) {
        const batchnorm_channel c = channels[R::channel() + k];
        gate[k] = relu_gate<SLOPES>(how, R::channel() + k);
        mean[k] = c.mean, factor[k] = c.factor, shift[k] = c.shift, along[k] = c.along;
    }
#pragma unroll 4
    for (int64_t row = R::slice(); row < R::end(); row += R::SLICES) {
        const pack<D, N> slopes = get_pack<N>(dy + R::row(row));
        const pack<X, N> these = get_pack<N>(x + R::row(row));
        pack<Y, N> result;
        for (int k = 0; k < N; k++) {
            const real off = (real)get(these.item[k]) - mean[k];
            const real slope = gate[k].through((real)get(slopes.item[k]), off);
            put(&result.item[k], factor[k] * (slope - shift[k] - off * along[k]));
        }
        put_pack(dx + R::row(row), result);
    }
}
