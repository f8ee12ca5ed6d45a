/* conv2d and its gradients by cuDNN's engines.
 * x, w, y: f16 or bf16, of one type, channels-last, a result also f32; or all of them f32, row-major. Any window, any
 * groups: what no engine takes within the planned workspace runs on our own kernel (conv.cuda.c), and the log says why.
 *
 * Numerics: sums in f32 in an order of the engine's own, one rounding; f32 operands are not rounded to tf32. Engines that
 * say of themselves that their bits may differ from run to run are left out.
 *
 * Half operands with an f32 result are a case of the engines that are compiled at run time: the graph is the convolution
 * and behind it an identity, whose result is f32. They want channels in eights. A weight gradient for fewer (the colours
 * of a picture) is computed with x widened by zeros in the workspace, and the first channels of it are the result. */
#include <stdio.h>
#include <stdlib.h>

#include "kernel/conv/conv_operands.h"
#include "kernel/cuda/cudnn.h"
#include "kernel/cuda/inner_launch.h"

extern const ht_kernel ht_kernel_cuda_conv2d, ht_kernel_cuda_conv2d_grad_input, ht_kernel_cuda_conv2d_grad_weight;
extern const ht_kernel ht_kernel_cuda_pad, ht_kernel_cuda_copy;
static const ht_kernel *const own_rows[] = {
    [CONV_MAKES_Y] = &ht_kernel_cuda_conv2d,
    [CONV_MAKES_X] = &ht_kernel_cuda_conv2d_grad_input,
    [CONV_MAKES_W] = &ht_kernel_cuda_conv2d_grad_weight,
};

enum {
    CHANNELS = 8, /* in which engines count */
    ALIGN = 256,  /* of parts of the workspace */
    EACH = 16,    /* bytes at a multiple of which operands begin */
};
static const int64_t engine_bytes = INT64_C(64) << 20; /* for what engines need besides copies of operands */

/* ---- what it takes ---- */

static bool is_half(ht_dtype dtype)
{
    return dtype == HT_F16 || dtype == HT_BF16;
}

static bool is_row_major(const ht_call *call, conv_result result)
{
    bool row_major = true;
    for (int i = 0; i < CONV_OPERANDS; i++) row_major &= ht_type_contiguous(conv_type(call, result, (conv_operand)i));
    return row_major;
}

static const char *refuse(const ht_call *call, const ht_target *target, conv_result result)
{
    ht_dtype dtype = call->in[0]->dtype, made = call->out[0]->dtype;
    if (!ht_target_has_library(target, HT_LIBRARY_CUDNN)) return "the target lacks cuDNN";
    if (call->in[1]->dtype != dtype || (!is_half(dtype) && dtype != HT_F32)) return "the inputs are of other types";
    if (made != dtype && made != HT_F32) return "the result is of another type";
    if (conv_is_empty(call, result)) return "there is nothing to compute";
    if (is_half(dtype)) return conv_channels_last(call, result) ? NULL : "channels do not lie last";
    return is_row_major(call, result) ? NULL : "f32 does not lie row-major";
}

/* ---- workspace ---- */

static int64_t aligned(int64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static int64_t in_eights(int64_t channels)
{
    return (channels + CHANNELS - 1) / CHANNELS * CHANNELS;
}

/* An operand with as many channels as engines want. */
static ht_type widened(const ht_type *type)
{
    ht_type wide = *type;
    wide.dim[1] = in_eights(type->dim[1]);
    ht_type_channels_last(&wide);
    return wide;
}

/* Is x widened, so that an engine can sum in f32? */
static bool is_widened(const ht_call *call, conv_result result)
{
    const ht_type *w = conv_type(call, result, CONV_W);
    return result == CONV_MAKES_W && is_half(call->in[0]->dtype) && w->dtype == HT_F32 && w->dim[1] % CHANNELS != 0 &&
           conv_sizes(call, result).groups == 1;
}

/* Engines copy what has odd channels, and what is in groups. */
static int64_t copied_bytes(const ht_call *call, conv_result result)
{
    int64_t bytes = 0, groups = conv_sizes(call, result).groups;
    for (int i = 0; i < CONV_OPERANDS; i++) {
        const ht_type *type = conv_type(call, result, (conv_operand)i);
        ht_type wide = widened(type);
        if (!is_half(call->in[0]->dtype)) continue;
        if (type->dim[1] % CHANNELS != 0) bytes += aligned(ht_type_bytes(&wide));
        if (groups > 1) bytes += aligned(3 * ht_type_bytes(type));
    }
    return bytes;
}

/* Before what an engine gets: x, then w, both widened. */
static int64_t widened_bytes(const ht_call *call, conv_result result, conv_operand operand)
{
    ht_type wide = widened(conv_type(call, result, operand));
    return is_widened(call, result) ? aligned(ht_type_bytes(&wide)) : 0;
}

static int64_t engine_limit(const ht_call *call, conv_result result)
{
    return engine_bytes + (is_widened(call, result) ? 0 : copied_bytes(call, result));
}

static int64_t workspace_of(const ht_call *call, const ht_target *target, conv_result result)
{
    const ht_kernel *own = own_rows[result];
    int64_t bytes =
        ALIGN + widened_bytes(call, result, CONV_X) + widened_bytes(call, result, CONV_W) + engine_limit(call, result);
    int64_t fallback = own->workspace ? own->workspace(call, target) : 0;
    return bytes > fallback ? bytes : fallback;
}

/* ---- graphs ---- */

/* A convolution as an engine sees it: of its own types where x is widened. */
typedef struct problem {
    conv_result result;
    ht_type types[CONV_OPERANDS];
    void *addresses[CONV_OPERANDS];
    ht_cudnn_window window;
    int64_t limit;
} problem;

static int type_number(ht_dtype dtype)
{
    return dtype == HT_F16 ? HT_CUDNN_F16 : dtype == HT_BF16 ? HT_CUDNN_BF16 : HT_CUDNN_F32;
}

static conv_operand made_by(conv_result result)
{
    static const conv_operand made[] = {[CONV_MAKES_Y] = CONV_Y, [CONV_MAKES_X] = CONV_X, [CONV_MAKES_W] = CONV_W};
    return made[result];
}

static void build(ht_cudnn_graph *g, const problem *p)
{
    static const ht_cudnn_result results[] = {
        [CONV_MAKES_Y] = HT_CUDNN_MAKES_Y, [CONV_MAKES_X] = HT_CUDNN_MAKES_X, [CONV_MAKES_W] = HT_CUDNN_MAKES_W};
    ht_cudnn_value values[CONV_OPERANDS], result = NULL;
    conv_operand made = made_by(p->result);
    bool wider = p->types[made].dtype == HT_F32 && is_half(p->types[made == CONV_X ? CONV_Y : CONV_X].dtype);
    for (int i = 0; i < CONV_OPERANDS; i++) {
        const ht_type *type = &p->types[i];
        values[i] = ht_cudnn_tensor(g, i + 1, type_number(type->dtype), type->dim, type->stride);
    }
    if (wider) {
        result = values[made];
        values[made] = ht_cudnn_between(g, HT_CUDNN_F32, p->types[made].dim, p->types[made].stride);
    }
    ht_cudnn_convolve(g, results[p->result], &p->window, values[CONV_X], values[CONV_W], values[CONV_Y]);
    if (wider)
        ht_cudnn_pointwise(g, HT_CUDNN_IDENTITY, HT_CUDNN_F32, (ht_cudnn_value[]){values[made], NULL, NULL}, result,
                           -1);
}

/* All that a plan follows from. */
static void name_plan(const problem *p, ht_text *name)
{
    ht_text_add(name, "cudnn convolution %d", (int)p->result);
    for (int i = 0; i < CONV_OPERANDS; i++) {
        ht_text_add(name, " %d", (int)p->types[i].dtype);
        for (int axis = 0; axis < HT_CUDNN_RANK; axis++)
            ht_text_add(name, " %lld:%lld", (long long)p->types[i].dim[axis], (long long)p->types[i].stride[axis]);
    }
    for (int i = 0; i < 2; i++)
        ht_text_add(name, " %lld %lld %lld", (long long)p->window.stride[i], (long long)p->window.padding[i],
                    (long long)p->window.dilation[i]);
}

/* *out is NULL where there is no engine: `why` says more. */
static ht_status find_plan(const ht_launch *launch, const problem *p, ht_cudnn_plan **out, char *why, size_t capacity)
{
    const ht_cudnn_limits limits = {
        .workspace_bytes = p->limit, .deterministic = true, .ieee = !is_half(launch->call->in[0]->dtype)};
    ht_device *device = launch->queue->device;
    ht_cudnn_graph g;
    ht_text name = {0};
    name_plan(p, &name);
    if (name.failed) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a plan of cuDNN");
    *out = ht_cudnn_find(device, name.data);
    ht_status status = *out ? HT_OK : ht_cudnn_begin(&g, launch->ctx);
    if (!*out && status == HT_OK) {
        build(&g, p);
        status = ht_cudnn_plan_within(&g, device, name.data, &limits, out);
        snprintf(why, capacity, "%s", g.reason);
    }
    ht_text_free(&name);
    return status;
}

/* ---- launches ---- */

typedef struct prepared {
    const ht_cudnn_plan *plan; /* NULL: our own kernel runs it */
    void *pack;
    ht_inner_launch widen, narrow; /* of x before, of the result behind; none have no row */
    ht_launch own;
} prepared;

static char *first_aligned(void *address)
{
    return (char *)(((uintptr_t)address + ALIGN - 1) / ALIGN * ALIGN);
}

static problem problem_of(const ht_launch *launch, conv_result result)
{
    ht_conv c = conv_sizes(launch->call, result);
    problem p = {.result = result, .limit = engine_limit(launch->call, result)};
    for (int i = 0; i < CONV_OPERANDS; i++) {
        p.types[i] = *conv_type(launch->call, result, (conv_operand)i);
        /* Engines look at the strides of sizes of 1, too. */
        if (is_half(launch->call->in[0]->dtype))
            ht_type_channels_last(&p.types[i]);
        else
            ht_type_row_major(&p.types[i]);
        p.addresses[i] = conv_address(launch, result, (conv_operand)i);
    }
    for (int i = 0; i < 2; i++) {
        p.window.stride[i] = c.window.stride[i];
        p.window.padding[i] = c.window.padding[i];
        p.window.dilation[i] = c.window.dilation[i];
    }
    return p;
}

/* x with zeros for the channels that it lacks, and the channels of the result that there are. */
static ht_status widen_operands(const ht_launch *launch, problem *p, prepared *x)
{
    static const int64_t none[HT_CUDNN_RANK];
    char *workspace = first_aligned(launch->workspace);
    ht_type from = p->types[CONV_X], to = p->types[CONV_W];
    p->types[CONV_X] = widened(&from);
    p->types[CONV_W] = widened(&to);
    x->widen = (ht_inner_launch){.row = &ht_kernel_cuda_pad,
                                 .types = {from, p->types[CONV_X]},
                                 .addresses = {p->addresses[CONV_X], workspace},
                                 .n_in = 1,
                                 .attrs = {{.key = "before", .kind = HT_ATTR_INTS, .count = 4, .ints = none},
                                           {.key = "value", .kind = HT_ATTR_FLOAT, .f = 0}},
                                 .n_attr = 2};
    ht_type some = to;
    for (int axis = 0; axis < HT_CUDNN_RANK; axis++) some.stride[axis] = p->types[CONV_W].stride[axis];
    char *wide = workspace + aligned(ht_type_bytes(&p->types[CONV_X]));
    x->narrow = (ht_inner_launch){
        .row = &ht_kernel_cuda_copy, .types = {some, to}, .addresses = {wide, p->addresses[CONV_W]}, .n_in = 1};
    p->addresses[CONV_X] = workspace;
    p->addresses[CONV_W] = wide;
    HT_TRY(ht_inner_prepare(&x->widen, launch));
    return ht_inner_prepare(&x->narrow, launch);
}

static ht_status bind(const ht_launch *launch, const problem *p, prepared *x)
{
    char *workspace = first_aligned(launch->workspace) + widened_bytes(launch->call, p->result, CONV_X) +
                      widened_bytes(launch->call, p->result, CONV_W);
    ht_cudnn_binding binding = {.workspace = workspace, .count = CONV_OPERANDS};
    for (int i = 0; i < CONV_OPERANDS; i++) {
        binding.ids[i] = i + 1;
        binding.addresses[i] = p->addresses[i];
    }
    return ht_cudnn_bind(launch, &binding, &x->pack);
}

static bool begin_well(const problem *p)
{
    bool well = true;
    for (int i = 0; i < CONV_OPERANDS; i++) well &= (uintptr_t)p->addresses[i] % EACH == 0;
    return well;
}

static ht_status fall_back(const ht_launch *launch, prepared *x, conv_result result, const char *why)
{
    ht_note(launch->ctx, HT_LOG_WARN, "%s%s%s: cuDNN has no engine: %s; our own kernel runs it, which is slow",
            launch->kernel, launch->site ? " at " : "", launch->site ? launch->site : "", why);
    x->own = *launch;
    x->own.row = own_rows[result];
    x->own.prepared = NULL;
    return x->own.row->prepare(&x->own);
}

static ht_status prepare_convolution(ht_launch *launch, conv_result result)
{
    char why[240] = "an operand begins at no multiple of 16 bytes";
    ht_cudnn_plan *plan = NULL;
    problem p = problem_of(launch, result);
    prepared *x = launch->prepared = calloc(1, sizeof *x);
    if (!x) HT_FAIL(launch->ctx, HT_ENOMEM, "out of memory for a launch");
    if (is_widened(launch->call, result)) HT_TRY(widen_operands(launch, &p, x));
    if (begin_well(&p)) HT_TRY(find_plan(launch, &p, &plan, why, sizeof why));
    x->plan = plan;
    return plan ? bind(launch, &p, x) : fall_back(launch, x, result, why);
}

static void release(ht_launch *launch)
{
    prepared *x = launch->prepared;
    if (!x) return;
    if (x->pack) ht_cudnn_unbind(x->pack);
    ht_inner_release(&x->widen);
    ht_inner_release(&x->narrow);
    free(x->own.prepared);
}

static ht_status run(const ht_launch *launch)
{
    const prepared *x = launch->prepared;
    if (!x->plan) return x->own.row->run(&x->own);
    if (x->widen.row) HT_TRY(ht_inner_run(&x->widen));
    HT_TRY(ht_cudnn_run(launch, x->plan, x->pack));
    return x->narrow.row ? ht_inner_run(&x->narrow) : HT_OK;
}

/* ---- rows ---- */

CONV_ROWS(cudnn)
