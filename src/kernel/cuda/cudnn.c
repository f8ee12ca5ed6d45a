#include "kernel/cuda/cudnn.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Kinds of descriptors, their attributes and the types of those: the library's own numbers. */
enum {
    POINTWISE = 0,
    CONVOLUTION = 1,
    ENGINE = 2,
    ENGINE_CONFIG = 3,
    HEURISTIC = 4,
    EXECUTION_PLAN = 5,
    CONVOLUTION_FORWARD = 10,
    CONVOLUTION_GRAD_WEIGHT = 11,
    CONVOLUTION_GRAD_INPUT = 12,
    POINTWISE_OPERATION = 13,
    OPERATION_GRAPH = 15,
    VARIANT_PACK = 16,
    TENSOR = 17,
    MATMUL = 18,
    MATMUL_OPERATION = 19,
    REDUCTION = 21,
    REDUCTION_OPERATION = 22,
    RESHAPE_OPERATION = 31,
};
enum {
    TYPE_HANDLE = 0,
    TYPE_DATA_TYPE = 1,
    TYPE_BOOLEAN = 2,
    TYPE_INT64 = 3,
    TYPE_FLOAT = 4,
    TYPE_POINTER = 6,
    TYPE_CONVOLUTION_MODE = 7,
    TYPE_HEURISTIC_MODE = 8,
    TYPE_NUMERICAL_NOTE = 11,
    TYPE_POINTWISE_MODE = 14,
    TYPE_DESCRIPTOR = 15,
    TYPE_REDUCTION = 18,
};
enum {
    POINTWISE_MODE = 0,
    POINTWISE_COMPUTE = 1,
    POINTWISE_AXIS = 9,
    CONVOLUTION_COMPUTE = 100,
    CONVOLUTION_MODE = 101,
    CONVOLUTION_DILATION = 102,
    CONVOLUTION_STRIDE = 103,
    CONVOLUTION_PADDING_AFTER = 104,
    CONVOLUTION_PADDING_BEFORE = 105,
    CONVOLUTION_AXES = 106,
    HEURISTIC_MODE = 200,
    HEURISTIC_GRAPH = 201,
    HEURISTIC_RESULTS = 202,
    CONFIG_ENGINE = 300,
    PLAN_HANDLE = 400,
    PLAN_CONFIG = 401,
    PLAN_WORKSPACE = 402,
    POINTWISE_OPERATION_DESC = 750,
    POINTWISE_OPERATION_X = 751,
    POINTWISE_OPERATION_B = 752,
    POINTWISE_OPERATION_Y = 753,
    POINTWISE_OPERATION_T = 758,
    GRAPH_HANDLE = 800,
    GRAPH_OPERATIONS = 801,
    TENSOR_ALIGNMENT = 900,
    TENSOR_TYPE = 901,
    TENSOR_DIMENSIONS = 902,
    TENSOR_STRIDES = 903,
    TENSOR_ID = 906,
    TENSOR_IS_VIRTUAL = 907,
    TENSOR_IS_BY_VALUE = 908,
    ENGINE_NUMERICAL_NOTES = 1303,
    PACK_IDS = 1000,
    PACK_POINTERS = 1001,
    PACK_WORKSPACE = 1003,
    MATMUL_COMPUTE = 1500,
    MATMUL_OPERATION_A = 1520,
    MATMUL_OPERATION_B = 1521,
    MATMUL_OPERATION_Y = 1522,
    MATMUL_OPERATION_DESC = 1523,
    REDUCTION_MODE = 1600,
    REDUCTION_COMPUTE = 1601,
    REDUCTION_OPERATION_X = 1610,
    REDUCTION_OPERATION_Y = 1611,
    REDUCTION_OPERATION_DESC = 1612,
    RESHAPE_X = 2200,
    RESHAPE_Y = 2201,
};
enum { MODE_A = 3, CONFIGS = 64, NOTES = 16, FIRST_VIRTUAL_ID = 100, ALIGNMENT = 16, CROSS_CORRELATION = 1 };
/* What an engine says of its numerics. */
enum {
    NOTE_TENSOR_CORE = 0, /* with f32 operands: rounded to tf32 */
    NOTE_ROUNDS_INPUTS = 1,
    NOTE_ROUNDS_SUMS = 2,
    NOTE_FFT = 3,
    NOTE_NONDETERMINISTIC = 4,
    NOTE_WINOGRAD = 5,
};

typedef struct cudnn {
#define HT_CUDNN(name, parameters) int(*name) parameters;
#include "kernel/cuda/cudnn.def"
#undef HT_CUDNN
} cudnn;

static union {
    cudnn library;
    void (*functions[sizeof(cudnn) / sizeof(void (*)(void))])(void);
} table;
static const char *const files[] = {"libcudnn.so.9", "libcudnn.so", NULL};
static const char *const names[] = {
#define HT_CUDNN(name, parameters) #name,
#include "kernel/cuda/cudnn.def"
#undef HT_CUDNN
};
static ht_cuda_library cudnn_library = {files, names, sizeof names / sizeof names[0], table.functions, "", false};

/* With all that it was made of. */
struct ht_cudnn_plan {
    void *plan;
    int64_t workspace_bytes;
    void *descriptors[HT_CUDNN_DESCRIPTORS];
    int descriptor_count;
};

static void destroy(void *descriptor)
{
    if (descriptor) table.library.cudnnBackendDestroyDescriptor(descriptor);
}

/* ---- construction ---- */

static void keep_failure(ht_cudnn_graph *g, int status, const char *what)
{
    char message[160] = "";
    if (g->status || !status) return;
    table.library.cudnnGetLastErrorString(message, sizeof message);
    g->status = status;
    snprintf(g->reason, sizeof g->reason, "%s (%d) %s", what, status, message);
}

static void *make(ht_cudnn_graph *g, int kind)
{
    void *descriptor = NULL;
    if (g->status) return NULL;
    if (g->descriptor_count == HT_CUDNN_DESCRIPTORS) {
        g->status = -1;
        snprintf(g->reason, sizeof g->reason, "the graph is too large");
        return NULL;
    }
    char what[40];
    snprintf(what, sizeof what, "a descriptor of kind %d", kind);
    keep_failure(g, table.library.cudnnBackendCreateDescriptor(kind, &descriptor), what);
    return g->descriptors[g->descriptor_count++] = descriptor;
}

static void set(ht_cudnn_graph *g, void *descriptor, int attribute, int type, int64_t count, const void *values)
{
    char what[40];
    if (g->status) return;
    snprintf(what, sizeof what, "attribute %d", attribute);
    keep_failure(g, table.library.cudnnBackendSetAttribute(descriptor, attribute, type, count, values), what);
}

static void set_descriptor(ht_cudnn_graph *g, void *descriptor, int attribute, void *value)
{
    set(g, descriptor, attribute, TYPE_DESCRIPTOR, 1, &value);
}

static void finalize(ht_cudnn_graph *g, void *descriptor, const char *what)
{
    if (!g->status) keep_failure(g, table.library.cudnnBackendFinalize(descriptor), what);
}

static void add_operation(ht_cudnn_graph *g, void *operation, const char *what)
{
    finalize(g, operation, what);
    if (g->operation_count == HT_CUDNN_OPERATIONS) g->status = -1;
    if (!g->status) g->operations[g->operation_count++] = operation;
}

ht_status ht_cudnn_begin(ht_cudnn_graph *g, ht_context *ctx)
{
    const char *reason = ht_cuda_library_open(&cudnn_library);
    *g = (ht_cudnn_graph){.next_id = FIRST_VIRTUAL_ID};
    if (reason) HT_FAIL(ctx, HT_ENOTSUP, "cuDNN: %s", reason);
    return HT_OK;
}

typedef struct placement {
    int64_t id;
    bool is_virtual, is_by_value;
} placement;

static void *make_tensor(ht_cudnn_graph *g, placement where, int type, const int64_t *dim, const int64_t *stride)
{
    const int64_t alignment = ALIGNMENT;
    void *t = make(g, TENSOR);
    set(g, t, TENSOR_TYPE, TYPE_DATA_TYPE, 1, &type);
    set(g, t, TENSOR_DIMENSIONS, TYPE_INT64, HT_CUDNN_RANK, dim);
    set(g, t, TENSOR_STRIDES, TYPE_INT64, HT_CUDNN_RANK, stride);
    set(g, t, TENSOR_ID, TYPE_INT64, 1, &where.id);
    set(g, t, TENSOR_ALIGNMENT, TYPE_INT64, 1, &alignment);
    set(g, t, TENSOR_IS_VIRTUAL, TYPE_BOOLEAN, 1, &where.is_virtual);
    set(g, t, TENSOR_IS_BY_VALUE, TYPE_BOOLEAN, 1, &where.is_by_value);
    finalize(g, t, "a tensor");
    return t;
}

ht_cudnn_value ht_cudnn_tensor(ht_cudnn_graph *g, int64_t id, int type, const int64_t *dim, const int64_t *stride)
{
    return make_tensor(g, (placement){.id = id}, type, dim, stride);
}

ht_cudnn_value ht_cudnn_number(ht_cudnn_graph *g, int64_t id)
{
    static const int64_t ones[HT_CUDNN_RANK] = {1, 1, 1, 1};
    return make_tensor(g, (placement){.id = id, .is_by_value = true}, HT_CUDNN_F32, ones, ones);
}

ht_cudnn_value ht_cudnn_between(ht_cudnn_graph *g, int type, const int64_t *dim, const int64_t *stride)
{
    const int64_t row_major[HT_CUDNN_RANK] = {dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1};
    return make_tensor(g, (placement){.id = g->next_id++, .is_virtual = true}, type, dim, stride ? stride : row_major);
}

void ht_cudnn_pointwise(ht_cudnn_graph *g, int mode, int compute, const ht_cudnn_value operands[3], ht_cudnn_value y,
                        int64_t axis)
{
    static const int attributes[] = {POINTWISE_OPERATION_X, POINTWISE_OPERATION_B, POINTWISE_OPERATION_T};
    void *how = make(g, POINTWISE);
    set(g, how, POINTWISE_MODE, TYPE_POINTWISE_MODE, 1, &mode);
    set(g, how, POINTWISE_COMPUTE, TYPE_DATA_TYPE, 1, &compute);
    if (axis >= 0) set(g, how, POINTWISE_AXIS, TYPE_INT64, 1, &axis);
    finalize(g, how, "a point-wise mode");
    void *operation = make(g, POINTWISE_OPERATION);
    set_descriptor(g, operation, POINTWISE_OPERATION_DESC, how);
    for (int i = 0; i < 3; i++)
        if (operands[i]) set_descriptor(g, operation, attributes[i], operands[i]);
    set_descriptor(g, operation, POINTWISE_OPERATION_Y, y);
    add_operation(g, operation, "a point-wise operation");
}

void ht_cudnn_matmul(ht_cudnn_graph *g, ht_cudnn_value a, ht_cudnn_value b, ht_cudnn_value y)
{
    const int compute = HT_CUDNN_F32;
    void *how = make(g, MATMUL);
    set(g, how, MATMUL_COMPUTE, TYPE_DATA_TYPE, 1, &compute);
    finalize(g, how, "a product's type");
    void *operation = make(g, MATMUL_OPERATION);
    set_descriptor(g, operation, MATMUL_OPERATION_A, a);
    set_descriptor(g, operation, MATMUL_OPERATION_B, b);
    set_descriptor(g, operation, MATMUL_OPERATION_Y, y);
    set_descriptor(g, operation, MATMUL_OPERATION_DESC, how);
    add_operation(g, operation, "a product");
}

void ht_cudnn_reduce(ht_cudnn_graph *g, int mode, ht_cudnn_value x, ht_cudnn_value y)
{
    const int compute = HT_CUDNN_F32;
    void *how = make(g, REDUCTION);
    set(g, how, REDUCTION_COMPUTE, TYPE_DATA_TYPE, 1, &compute);
    set(g, how, REDUCTION_MODE, TYPE_REDUCTION, 1, &mode);
    finalize(g, how, "a reduction's mode");
    void *operation = make(g, REDUCTION_OPERATION);
    set_descriptor(g, operation, REDUCTION_OPERATION_DESC, how);
    set_descriptor(g, operation, REDUCTION_OPERATION_X, x);
    set_descriptor(g, operation, REDUCTION_OPERATION_Y, y);
    add_operation(g, operation, "a reduction");
}

void ht_cudnn_reshape(ht_cudnn_graph *g, ht_cudnn_value x, ht_cudnn_value y)
{
    void *operation = make(g, RESHAPE_OPERATION);
    set_descriptor(g, operation, RESHAPE_X, x);
    set_descriptor(g, operation, RESHAPE_Y, y);
    add_operation(g, operation, "a reshape");
}

/* The attributes of an operation begin in this order at another number for each. */
typedef struct convolution_numbers {
    int operation, alpha, beta, how, x, w, y;
} convolution_numbers;
static const convolution_numbers convolutions[HT_CUDNN_RESULTS] = {
    [HT_CUDNN_MAKES_Y] = {CONVOLUTION_FORWARD, 700, 701, 702, 704, 703, 705},
    [HT_CUDNN_MAKES_X] = {CONVOLUTION_GRAD_INPUT, 706, 707, 708, 710, 709, 711},
    [HT_CUDNN_MAKES_W] = {CONVOLUTION_GRAD_WEIGHT, 712, 713, 714, 716, 715, 717},
};

void ht_cudnn_convolve(ht_cudnn_graph *g, ht_cudnn_result result, const ht_cudnn_window *window, ht_cudnn_value x,
                       ht_cudnn_value w, ht_cudnn_value y)
{
    const int compute = HT_CUDNN_F32, mode = CROSS_CORRELATION;
    const int64_t axes = 2;
    const float one = 1, none = 0;
    const convolution_numbers *n = &convolutions[result];
    void *how = make(g, CONVOLUTION);
    set(g, how, CONVOLUTION_COMPUTE, TYPE_DATA_TYPE, 1, &compute);
    set(g, how, CONVOLUTION_MODE, TYPE_CONVOLUTION_MODE, 1, &mode);
    set(g, how, CONVOLUTION_AXES, TYPE_INT64, 1, &axes);
    set(g, how, CONVOLUTION_DILATION, TYPE_INT64, axes, window->dilation);
    set(g, how, CONVOLUTION_STRIDE, TYPE_INT64, axes, window->stride);
    set(g, how, CONVOLUTION_PADDING_BEFORE, TYPE_INT64, axes, window->padding);
    set(g, how, CONVOLUTION_PADDING_AFTER, TYPE_INT64, axes, window->padding);
    finalize(g, how, "a convolution's window");
    void *operation = make(g, n->operation);
    set_descriptor(g, operation, n->how, how);
    set_descriptor(g, operation, n->x, x);
    set_descriptor(g, operation, n->w, w);
    set_descriptor(g, operation, n->y, y);
    set(g, operation, n->alpha, TYPE_FLOAT, 1, &one);
    set(g, operation, n->beta, TYPE_FLOAT, 1, &none);
    add_operation(g, operation, "a convolution");
}

/* ---- plans ---- */

static void free_handle(void *handle)
{
    table.library.cudnnDestroy(handle);
}

static ht_status find_handle(ht_device *device, void **handle)
{
    *handle = ht_cuda_kept(device, "cudnn");
    if (*handle) return HT_OK;
    int status = table.library.cudnnCreate(handle);
    if (status) HT_FAIL(device->ctx, HT_EDEVICE, "cuDNN: it cannot be opened (%d)", status);
    return ht_cuda_keep(device, "cudnn", *handle, free_handle);
}

static void free_plan(void *arg)
{
    ht_cudnn_plan *p = arg;
    destroy(p->plan);
    for (int i = p->descriptor_count; i-- > 0;) destroy(p->descriptors[i]);
    free(p);
}

ht_cudnn_plan *ht_cudnn_find(ht_device *device, const char *name)
{
    return ht_cuda_kept(device, name);
}

int64_t ht_cudnn_workspace(const ht_cudnn_plan *plan)
{
    return plan->workspace_bytes;
}

/* The engines for the graph, best first. */
static int64_t list_configs(ht_cudnn_graph *g, void *handle, void **configs)
{
    const int mode = MODE_A;
    int64_t count = 0;
    void *graph = make(g, OPERATION_GRAPH);
    set(g, graph, GRAPH_OPERATIONS, TYPE_DESCRIPTOR, g->operation_count, g->operations);
    set(g, graph, GRAPH_HANDLE, TYPE_HANDLE, 1, &handle);
    finalize(g, graph, "the graph");
    void *heuristic = make(g, HEURISTIC);
    set_descriptor(g, heuristic, HEURISTIC_GRAPH, graph);
    set(g, heuristic, HEURISTIC_MODE, TYPE_HEURISTIC_MODE, 1, &mode);
    finalize(g, heuristic, "the choice of an engine");
    for (int i = 0; i < CONFIGS; i++) configs[i] = make(g, ENGINE_CONFIG);
    if (!g->status)
        keep_failure(g,
                     table.library.cudnnBackendGetAttribute(heuristic, HEURISTIC_RESULTS, TYPE_DESCRIPTOR, CONFIGS,
                                                            &count, configs),
                     "the list of engines");
    return g->status ? 0 : count < CONFIGS ? count : CONFIGS;
}

/* NULL: this engine does not take the graph after all. */
static void *make_plan(ht_cudnn_graph *g, void *handle, void *config, int64_t *workspace_bytes)
{
    void *plan = NULL;
    int64_t count = 0;
    g->status = 0;
    keep_failure(g, table.library.cudnnBackendCreateDescriptor(EXECUTION_PLAN, &plan), "a descriptor of a plan");
    set_descriptor(g, plan, PLAN_CONFIG, config);
    set(g, plan, PLAN_HANDLE, TYPE_HANDLE, 1, &handle);
    finalize(g, plan, "a plan");
    if (!g->status)
        keep_failure(
            g, table.library.cudnnBackendGetAttribute(plan, PLAN_WORKSPACE, TYPE_INT64, 1, &count, workspace_bytes),
            "a plan's workspace");
    if (!g->status) return plan;
    destroy(plan);
    return NULL;
}

/* Does the engine of a configuration do? What cannot be asked is no reason against it. */
static bool is_within(const ht_cudnn_limits *limits, void *config)
{
    int notes[NOTES];
    int64_t count = 0;
    void *engine = NULL;
    const cudnn *l = &table.library;
    bool known =
        l->cudnnBackendCreateDescriptor(ENGINE, &engine) == 0 &&
        l->cudnnBackendGetAttribute(config, CONFIG_ENGINE, TYPE_DESCRIPTOR, 1, &count, &engine) == 0 &&
        l->cudnnBackendGetAttribute(engine, ENGINE_NUMERICAL_NOTES, TYPE_NUMERICAL_NOTE, NOTES, &count, notes) == 0;
    bool within = true;
    for (int64_t i = 0; known && i < count; i++) {
        int note = notes[i];
        bool sums = note == NOTE_ROUNDS_SUMS || note == NOTE_FFT || note == NOTE_WINOGRAD;
        within &= !(limits->deterministic && note == NOTE_NONDETERMINISTIC) && !sums;
        within &= !(limits->ieee && (note == NOTE_TENSOR_CORE || note == NOTE_ROUNDS_INPUTS));
    }
    destroy(engine);
    return within;
}

/* The first configuration within limits (NULL: any) that makes a plan; p->plan is NULL where none does. */
static ht_status take_plan(ht_cudnn_graph *g, ht_device *device, const ht_cudnn_limits *limits, ht_cudnn_plan *p)
{
    void *handle, *configs[CONFIGS];
    HT_TRY(find_handle(device, &handle));
    int64_t count = list_configs(g, handle, configs), left_out = 0, smallest = INT64_MAX;
    for (int64_t i = 0; i < count && !p->plan; i++) {
        if (limits && !is_within(limits, configs[i])) {
            left_out++;
            continue;
        }
        p->plan = make_plan(g, handle, configs[i], &p->workspace_bytes);
        if (!p->plan || !limits || p->workspace_bytes <= limits->workspace_bytes) continue;
        if (p->workspace_bytes < smallest) smallest = p->workspace_bytes;
        destroy(p->plan);
        p->plan = NULL;
        snprintf(g->reason, sizeof g->reason, "the smallest workspace is %lld bytes, %lld are planned",
                 (long long)smallest, (long long)limits->workspace_bytes);
    }
    if (!p->plan && !g->reason[0])
        snprintf(g->reason, sizeof g->reason, "of %lld, %lld have other numerics", (long long)count,
                 (long long)left_out);
    return HT_OK;
}

ht_status ht_cudnn_plan_within(ht_cudnn_graph *g, ht_device *device, const char *name, const ht_cudnn_limits *limits,
                               ht_cudnn_plan **out)
{
    ht_cudnn_plan *p = *out = calloc(1, sizeof *p);
    if (!p) HT_FAIL(device->ctx, HT_ENOMEM, "out of memory for a plan of cuDNN");
    ht_status status = take_plan(g, device, limits, p);
    memcpy(p->descriptors, g->descriptors, sizeof p->descriptors);
    p->descriptor_count = g->descriptor_count;
    if (status == HT_OK && p->plan) return ht_cuda_keep(device, name, p, free_plan);
    free_plan(p);
    *out = NULL;
    return status;
}

ht_status ht_cudnn_plan_make(ht_cudnn_graph *g, ht_device *device, const char *name, ht_cudnn_plan **out)
{
    HT_TRY(ht_cudnn_plan_within(g, device, name, NULL, out));
    if (!*out) HT_FAIL(device->ctx, HT_EDEVICE, "cuDNN: no engine: %s", g->reason);
    return HT_OK;
}

/* ---- runs ---- */

ht_status ht_cudnn_bind(const ht_launch *launch, const ht_cudnn_binding *binding, void **pack)
{
    ht_cudnn_graph g = {0};
    *pack = make(&g, VARIANT_PACK);
    set(&g, *pack, PACK_IDS, TYPE_INT64, binding->count, binding->ids);
    set(&g, *pack, PACK_POINTERS, TYPE_POINTER, binding->count, binding->addresses);
    set(&g, *pack, PACK_WORKSPACE, TYPE_POINTER, 1, &binding->workspace);
    finalize(&g, *pack, "addresses");
    if (g.status) HT_FAIL(launch->ctx, HT_EDEVICE, "%s: cuDNN: %s", launch->kernel, g.reason);
    return HT_OK;
}

void ht_cudnn_unbind(void *pack)
{
    destroy(pack);
}

ht_status ht_cudnn_run(const ht_launch *launch, const ht_cudnn_plan *plan, void *pack)
{
    void *handle;
    HT_TRY(find_handle(launch->queue->device, &handle));
    int status = table.library.cudnnSetStream(handle, ht_cuda_stream(launch->queue));
    if (status == 0) status = table.library.cudnnBackendExecute(handle, plan->plan, pack);
    if (status) HT_FAIL(launch->ctx, HT_EDEVICE, "%s: cuDNN fails (%d)", launch->kernel, status);
    return HT_OK;
}
