/* kernel: how an op runs on a device. Rows, best first; each may refuse a call with its reason. A kernel sees an
 * ht_call and pointers, never a graph. */
#ifndef HT_KERNEL_H
#define HT_KERNEL_H

#include "device/device.h"

/* Elements [first, first + n) of an element-wise call, in the order in which its results lie. */
typedef struct ht_span_args {
    const ht_call *call;
    int64_t first, n;
    /* Arrays that start at element `first`, whatever the strides of the call's types say; an input that has not the
     * shape of the results (a single number) is given as it is. A result may lie exactly over an input of its type. */
    const void *const *in;
    void *const *out;
    const void *constants; /* what `begin` left; NULL where there is none */
} ht_span_args;

enum { HT_SPAN_CONSTANTS = 128 }; /* bytes for `begin`, at a multiple of 64 */

/* How an element-wise row works: element i of the results needs only element i of the inputs and single numbers, so the
 * planner may run neighbours together (kernel/elementwise/fused.h). */
struct ht_cuda_step;
typedef struct ht_elementwise {
    /* Once per launch, before any element; may read the single numbers. NULL: nothing to do. */
    void (*begin)(const ht_span_args *whole, void *constants);
    void (*span)(const ht_span_args *span);
    const struct ht_chain_row *chain;         /* the same in registers; NULL: only by spans */
    void (*write)(struct ht_cuda_step *step); /* instead of all that: as CUDA text (kernel/cuda/cuda.h) */
} ht_elementwise;

/* Inputs in the form that a row computes with (weights packed for products), for rows that would make it again in every
 * run. Where these inputs are state the planner gives the form memory that lasts (plan/prepack.c), and it is made again only
 * when the state was written. It follows from these inputs, their types and the call's attributes alone; a run has the same
 * bits with and without it. */
typedef struct ht_prepack {
    uint32_t inputs;                                                /* bit i: input i */
    int64_t (*bytes)(const ht_call *call, const ht_target *target); /* 0: this call wins nothing by it */
    ht_run_fn make;                                                 /* launch->prepacked from launch->in */
} ht_prepack;

/* Element-wise calls of one shape that the planner would run with a call, in one instruction. Behind it, as the epilogue
 * of a product: they take its result block by block (launch->fused: gemm). Or before it: it folds what they make piece
 * by piece (launch->fused: fold). */
typedef struct ht_fusion {
    bool before;
    size_t count;
    const ht_call *const *calls; /* in the order in which they run */
    /* Which value is which, by number: for each call its inputs, then its results, one call after the other. */
    const uint32_t *values;
    const bool *read_outside; /* beside them: a result that other instructions read, too */
    uint32_t handed;          /* the value between: the product's result, or what is folded */
} ht_fusion;

/* How a reduction runs in a row block. */
typedef struct ht_reduce_rows {
    /* How many results there are, if each is that of a row of neighbours and made by itself; else 0. */
    int64_t (*rows)(const ht_call *call);
    void (*run_rows)(const ht_launch *launch, int64_t from, int64_t to); /* some of these, in the calling thread */
} ht_reduce_rows;

struct ht_cuda_emission;

/* How the operands with channels (four axes: N, C, H, W) of a row lie, beside what its `can` takes as it comes. */
typedef enum ht_channel_order {
    HT_CHANNELS_AS_THEY_COME,
    HT_CHANNELS_FOLLOW, /* all last where an input has them last */
    HT_CHANNELS_LAST,   /* all last, for the price of copies */
} ht_channel_order;

typedef struct ht_kernel {
    size_t size; /* sizeof(ht_kernel) */
    const char *op;
    const char *name;      /* "softmax.f32.avx512" */
    ht_device_kind device; /* that it is for; the rows of the CPU serve the fake device, too */
    ht_isa isa;            /* of a row of the CPU */
    const char *(*can)(const ht_call *call, const ht_target *target);   /* NULL: yes; else the reason */
    int64_t (*workspace)(const ht_call *call, const ht_target *target); /* bytes; NULL: none */
    ht_run_fn run;
    /* Once for every launch, before the first run: what `run` needs besides the launch goes to launch->prepared. NULL:
     * nothing. */
    ht_status (*prepare)(ht_launch *launch);
    void (*release)(ht_launch *launch); /* what it holds besides the memory of launch->prepared; NULL: nothing */
    void (*emit)(struct ht_cuda_emission *e, const ht_launch *launch); /* of a row that is text: kernel/cuda/cuda.h */
    /* Does the row run these calls with its own? NULL: yes; else the reason. A row without it takes none. */
    const char *(*takes)(const ht_call *call, const ht_fusion *fusion, const ht_target *target);
    /* Some values between inputs and results are rounded to the half type of the inputs, as what tensor cores read is. */
    bool rounds_inside;
    /* Instead of each product of f32 tensor cores make so many of this format (ht_format, or a number type); 0: none. */
    struct {
        int count, format;
    } parts;
    bool
        strided_results; /* takes results whose strides are not those of a row-major value, for the planner to choose */
    ht_channel_order channels;         /* for the planner, where `can` agrees */
    const ht_elementwise *elementwise; /* NULL: not element-wise */
    const ht_reduce_rows *reduce_rows; /* NULL: no reduction that can be part of a row block */
    const ht_prepack *prepack;         /* NULL: nothing */
} ht_kernel;

#include "kernel/elementwise/fused.h"

#include "kernel/count_nonfinite.h"

enum { HT_ROW_BLOCK_PARTS = 16 };
/* Launches one after the other (launches->block says which), over a few of `rows` rows at a time, so that one finds in
 * the cache what another has made. Each is element-wise or a reduction by rows, and needs of the others' results only the
 * row at hand. */
typedef struct ht_row_block {
    const ht_kernel *kernels[HT_ROW_BLOCK_PARTS];
    size_t count;
    int64_t rows;
    /* Before and after each piece of a part, in the thread that runs it; NULL: nobody looks. */
    void (*tell)(void *arg, size_t part, bool before, int64_t first_row, int64_t end_row);
    void *tell_arg;
} ht_row_block;
ht_status ht_row_block_run(const ht_launch *launches);

/* The point-wise rows of the CUDA device (kernel/elementwise/pointwise.cuda.c). */
extern const ht_kernel ht_cuda_pointwise[];
extern const size_t ht_cuda_pointwise_count;

/* All rows of this library, into the context. */
ht_status ht_kernels_add_all(ht_context *ctx);
ht_status ht_kernel_add(ht_context *ctx, const ht_kernel *kernel);
/* The first row that takes the call, or NULL. `why` (may be NULL) tells what the rows before it say. */
const ht_kernel *ht_kernel_choose(ht_context *ctx, const ht_call *call, const ht_target *target, ht_text *why);

/* ---- refusals that many rows share ---- */
/* Of a row that takes a liberty which the target does not allow. */
extern const char ht_not_asked[];
/* Every operand row-major without gaps. */
const char *ht_refuse_strided(const ht_call *call);
/* Results row-major without gaps. */
const char *ht_refuse_strided_results(const ht_call *call);

/* A square product of i8 into i32 by cublasLt (kernel/gemm/cublaslt_int8.c), whose second matrix is turned: what matmul_q
 * begins with there, for a probe to measure alone. HT_ENOTSUP: the library is not there, or has none. Operands are memory of the queue's device. */
typedef struct ht_int8_product ht_int8_product;
ht_status ht_int8_product_create(ht_context *ctx, int64_t size, ht_int8_product **out);
ht_status ht_int8_product_run(const ht_int8_product *product, const ht_queue *queue, const void *a, const void *b,
                              void *y);
void ht_int8_product_free(ht_int8_product *product); /* takes NULL */

#endif
