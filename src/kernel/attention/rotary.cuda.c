/* rotary for the CUDA device.
 * x, y [.., T, D]: any float but f8, any strides but 1 along the last axis; position [T] or [B,T].
 * Numerics: angle, sine and cosine in double, then real and one rounding. The table of sines and cosines [P,D] is
 * made once for all heads, and read once for several. Traffic: 1 read, 1 write, a part of the table from the cache.
 * Bound: bandwidth. */
#include <math.h>

#include "kernel/cuda/cuda.h"
#include "op/op.h"

static void write_frequencies(ht_text *text, double base, int64_t half)
{
    ht_text_add(text, "DEVICE_TABLE double frequencies[] = {\n");
    for (int64_t j = 0; j < half; j++) ht_text_add(text, "    %a,\n", pow(base, -2.0 * (double)j / (double)(2 * half)));
    ht_text_add(text, "};\n");
}

enum { MOST_ROWS = 8, WORD_BYTES = 16 };

/* Pairs of a thread: as many as it can read at once on each side. */
static int pairs_at_once(const ht_launch *launch, int64_t half, bool interleaved)
{
    const ht_type *ends[] = {launch->call->in[0], launch->call->out[0]};
    int most = WORD_BYTES / (int)ht_dtype_bytes(ends[0]->dtype);
    int pairs = ht_cuda_pack(launch, half, interleaved ? most / 2 : most);
    for (int end = 0; end < 2; end++)
        for (int i = 0; i + 1 < ends[end]->rank; i++)
            while (ends[end]->dim[i] > 1 && ends[end]->stride[i] % (interleaved && pairs > 1 ? 2 * pairs : pairs) != 0)
                pairs /= 2;
    return pairs;
}

/* Rows of a thread: a divisor of those that share positions. */
static int rows_at_once(int64_t sharing)
{
    int rows = MOST_ROWS;
    while (sharing % rows != 0) rows--;
    return rows;
}

static void rotary(ht_cuda_emission *e, const ht_launch *launch)
{
    const ht_call *call = launch->call;
    const ht_type *x = call->in[0], *position = call->in[1], *y = call->out[0];
    if (ht_type_elems(x) == 0) return;
    bool interleaved = ht_call_int(call, "interleaved");
    int64_t steps = x->dim[x->rank - 2], half = x->dim[x->rank - 1] / 2, rows = ht_type_elems(x) / (2 * half);
    int64_t shared = position->rank == 2 ? rows / x->dim[0] : rows, positions = ht_type_elems(position);
    int pairs = pairs_at_once(launch, half, interleaved), each = rows_at_once(shared / steps);
    ht_text axes = {0};
    for (int i = x->rank - 2; i >= 0; i--)
        ht_text_add(&axes, ", axis<%lld, %lld, %lld>", (long long)x->dim[i], (long long)y->stride[i],
                    (long long)x->stride[i]);
    ht_cuda_include(e, "strided");
    ht_cuda_include(e, "rotary");
    write_frequencies(&e->text, ht_call_float(call, "base"), half);
    ht_cuda_add_grid(e, ht_cuda_blocks(positions * half, HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "fill_rotations<%lld, %lld>(in1, frequencies, (real)%d, (real *)workspace);", (long long)positions,
                     (long long)half, ht_call_int(call, "inverse") ? -1 : 1);
    ht_cuda_add_grid(e, ht_cuda_blocks(rows / each * (half / pairs), HT_CUDA_THREADS), HT_CUDA_THREADS, 0,
                     "rotate<%s, %lld, %lld, %lld, %lld, %d, %d, %s%s>(in0, (const real *)workspace, out0);",
                     ht_type_elems(x) < INT32_MAX ? "uint32_t" : "uint64_t", (long long)rows, (long long)half,
                     (long long)steps, (long long)shared, each, pairs, interleaved ? "true" : "false",
                     axes.data ? axes.data : "");
    e->text.failed |= axes.failed;
    ht_text_free(&axes);
}

static int64_t rotary_workspace(const ht_call *call, const ht_target *target)
{
    (void)target;
    const ht_type *x = call->in[0];
    return ht_type_elems(call->in[1]) * x->dim[x->rank - 1] * (ht_cuda_has_f64(call) ? 8 : 4);
}

static const char *rotary_can(const ht_call *call, const ht_target *target)
{
    const ht_type *ends[] = {call->in[0], call->out[0]};
    (void)target;
    const char *reason = ht_cuda_refuse_types(call);
    if (reason) return reason;
    for (int i = 0; i < 2; i++)
        if (ends[i]->dim[ends[i]->rank - 1] > 1 && ends[i]->stride[ends[i]->rank - 1] != 1)
            return "the last axis is strided";
    return ht_type_contiguous(call->in[1]) ? NULL : "positions are strided";
}

const ht_kernel ht_kernel_cuda_rotary = {HT_CUDA_FIELDS(rotary, rotary_can, rotary_workspace, rotary),
                                         .strided_results = true};
