/* Graphs of cuDNN (its backend API), for rows of several families: a row describes values and operations, the library
 * finds an engine that runs them as one, and the row runs that with addresses. The numbers of modes are the library's
 * own. */
#ifndef HT_KERNEL_CUDNN_H
#define HT_KERNEL_CUDNN_H

#include "kernel/cuda/cuda.h"

enum { HT_CUDNN_F32 = 0, HT_CUDNN_F16 = 2, HT_CUDNN_I32 = 4, HT_CUDNN_BF16 = 9, HT_CUDNN_BOOL = 11 };
enum {
    HT_CUDNN_ADD = 0,
    HT_CUDNN_MUL = 1,
    HT_CUDNN_DIV = 6,
    HT_CUDNN_SUB = 9,
    HT_CUDNN_EXP = 13,
    HT_CUDNN_LOG = 15,
    HT_CUDNN_IDENTITY = 21,
    HT_CUDNN_COMPARE_GE = 303,
    HT_CUDNN_INDEX = 501,
    HT_CUDNN_SELECT = 601,
};
enum { HT_CUDNN_SUM = 0, HT_CUDNN_MAX = 3 };
enum { HT_CUDNN_RANK = 4, HT_CUDNN_OPERATIONS = 48, HT_CUDNN_DESCRIPTORS = 256, HT_CUDNN_BOUND = 16 };

typedef void *ht_cudnn_value;
typedef struct ht_cudnn_plan ht_cudnn_plan;

/* A graph under construction. The first failure is kept and later calls do nothing, so it is enough to look once: in
 * ht_cudnn_plan_make. */
typedef struct ht_cudnn_graph {
    void *operations[HT_CUDNN_OPERATIONS], *descriptors[HT_CUDNN_DESCRIPTORS];
    int operation_count, descriptor_count;
    int64_t next_id; /* of values that are nowhere in memory */
    int status;
    char reason[240];
} ht_cudnn_graph;

/* The plan that a device keeps by this name, or NULL; what begins a graph is ht_cudnn_begin. */
ht_cudnn_plan *ht_cudnn_find(ht_device *device, const char *name);
ht_status ht_cudnn_begin(ht_cudnn_graph *g, ht_context *ctx);
/* In memory: bound by its id, 1 to 99, to an address at a multiple of 16 bytes, of four axes. */
ht_cudnn_value ht_cudnn_tensor(ht_cudnn_graph *g, int64_t id, int type, const int64_t *dim, const int64_t *stride);
/* One f32, bound to an address of the host. */
ht_cudnn_value ht_cudnn_number(ht_cudnn_graph *g, int64_t id);
/* Between operations; strides NULL: row-major. */
ht_cudnn_value ht_cudnn_between(ht_cudnn_graph *g, int type, const int64_t *dim, const int64_t *stride);
/* y from x, and b and t where the mode has more operands; `axis` of an index, else -1. */
void ht_cudnn_pointwise(ht_cudnn_graph *g, int mode, int compute, const ht_cudnn_value operands[3], ht_cudnn_value y,
                        int64_t axis);
void ht_cudnn_matmul(ht_cudnn_graph *g, ht_cudnn_value a, ht_cudnn_value b, ht_cudnn_value y);
void ht_cudnn_reduce(ht_cudnn_graph *g, int mode, ht_cudnn_value x, ht_cudnn_value y);
void ht_cudnn_reshape(ht_cudnn_graph *g, ht_cudnn_value x, ht_cudnn_value y);

/* A convolution of [N,C,H,W] by [K,C/groups,R,S]; which of its three values is the result, and pairs along height and
 * width. Sums in f32. */
typedef enum ht_cudnn_result { HT_CUDNN_MAKES_Y, HT_CUDNN_MAKES_X, HT_CUDNN_MAKES_W, HT_CUDNN_RESULTS } ht_cudnn_result;
typedef struct ht_cudnn_window {
    int64_t stride[2], padding[2], dilation[2];
} ht_cudnn_window;
void ht_cudnn_convolve(ht_cudnn_graph *g, ht_cudnn_result result, const ht_cudnn_window *window, ht_cudnn_value x,
                       ht_cudnn_value w, ht_cudnn_value y);

/* Which engines will do; none that sums in another way than by adding products in f32. */
typedef struct ht_cudnn_limits {
    int64_t workspace_bytes;
    bool deterministic; /* none that says that its bits may differ */
    bool ieee;          /* none that rounds f32 operands */
} ht_cudnn_limits;

/* The first engine that takes the graph; the device keeps the plan by its name. The graph is used up in any case. */
ht_status ht_cudnn_plan_make(ht_cudnn_graph *g, ht_device *device, const char *name, ht_cudnn_plan **out);
/* The first within limits. *out is NULL where there is none: g->reason says why. */
ht_status ht_cudnn_plan_within(ht_cudnn_graph *g, ht_device *device, const char *name, const ht_cudnn_limits *limits,
                               ht_cudnn_plan **out);
int64_t ht_cudnn_workspace(const ht_cudnn_plan *plan);

/* Addresses for a plan; for ht_cudnn_unbind. */
typedef struct ht_cudnn_binding {
    int64_t ids[HT_CUDNN_BOUND];
    void *addresses[HT_CUDNN_BOUND];
    int count;
    void *workspace;
} ht_cudnn_binding;
ht_status ht_cudnn_bind(const ht_launch *launch, const ht_cudnn_binding *binding, void **pack);
void ht_cudnn_unbind(void *pack); /* takes NULL */
ht_status ht_cudnn_run(const ht_launch *launch, const ht_cudnn_plan *plan, void *pack);

#endif
