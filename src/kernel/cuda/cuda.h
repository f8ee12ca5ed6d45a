/* For *.cuda.c files: rows of the CUDA device whose code is text. The templates of a family stand in a .cu file beside
 * its rows (softmax.cu, softmax.cuda.c), which is part of the library as text. A row instantiates them for a call, with
 * one line for each grid of threads; all that is known of the call (types, sizes, attributes) is in that line. What the
 * templates can rely on is in prelude.cu. */
#ifndef HT_KERNEL_CUDA_H
#define HT_KERNEL_CUDA_H

#include "kernel/kernel.h"

enum {
    HT_CUDA_GRIDS = 8,     /* of one call at most */
    HT_CUDA_THREADS = 256, /* of a block, where a row has no reason for another number */
};

/* The code of a call. Grid i runs the entry "<name>_<i>". */
typedef struct ht_cuda_emission {
    char name[48]; /* of the row, up to its point */
    ht_text text;
    const ht_launch *launch;
    bool wide;    /* `real` is double */
    int resident; /* blocks of the next grids that shall fit a processor at once: what registers they may use; 0: any */
    ht_cuda_shape
        grids[HT_CUDA_GRIDS]; /* they run one after the other; shared_bytes are beyond what the text declares */
    int grid_count;
    ht_text grids_text;       /* the entries, behind all templates */
    const char *included[16]; /* files that are in the text */
    int included_count;
} ht_cuda_emission;

/* What a row's `emit` calls.
 *
 * The templates of a file, once: ht_cuda_include(e, "softmax"). */
void ht_cuda_include(ht_cuda_emission *e, const char *file);
/* One more grid. The body is C++: a statement in which in0, in1, … and out0, out1, … are pointers to the operands' types
 * (const for inputs; nullptr for an input that is left out) and `workspace` is a char pointer. A grid without blocks is
 * left out. */
void ht_cuda_add_grid(ht_cuda_emission *e, int64_t blocks, int threads, int shared_bytes, const char *body, ...)
    __attribute__((format(printf, 5, 6)));
/* The blocks of the last grid wait for each other: they must all run at the same time. */
void ht_cuda_run_together(ht_cuda_emission *e);
/* Of the launch's device; of an H200 where a launch has none. */
ht_cuda_limits ht_cuda_launch_limits(const ht_launch *launch);
/* So many blocks that each of n items has a thread. */
int64_t ht_cuda_blocks(int64_t n, int threads);
/* Threads of a block that works on a row of n elements: warps, no more than the row fills. */
int ht_cuda_row_threads(int64_t n);
/* How many neighbours a thread can take at once: a power of two up to `most` by which `run`, the elements that lie
 * together, can be divided; 1 where the address of an operand of more than one element is no multiple of 16 bytes. */
int ht_cuda_pack(const ht_launch *launch, int64_t run, int most);
/* An input that may be left out, as it stands in a body: its name, or a null pointer. */
const char *ht_cuda_optional(const ht_call *call, size_t input);
/* Why a row that takes row-major operands of any type but f8 refuses a call; NULL: it does not. */
const char *ht_cuda_refuse(const ht_call *call);
/* The same for a row whose operands with channels may also lie channels-last, all of them together. */
const char *ht_cuda_refuse_channels(const ht_call *call);
/* Do they, where that makes a difference? */
bool ht_cuda_channels_last(const ht_call *call);
/* The same for a row that takes any strides. */
const char *ht_cuda_refuse_types(const ht_call *call);
/* Is `real` double? */
bool ht_cuda_has_f64(const ht_call *call);
/* The name of a type in the text: "float", "bf16". Those of f8 are declared in f8.cu. */
const char *ht_cuda_type(ht_dtype dtype);

/* ---- element-wise rows: one element of one call, in a text that runs neighbours together ---- */

/* Variables are named; those of float types are `real`, all others int64_t, a bool being 0 or 1. Results are rounded to
 * their types behind the step. That `real` is the one of the whole text, double where any call of a group has an f64; in
 * `each` it is what the call alone would compute in. */
typedef struct ht_cuda_step {
    ht_cuda_emission *emission;
    const ht_call *call;
    int number; /* of the step: what it names itself ends with it */
    const char *in[HT_STEP_OPERANDS], *out[HT_STEP_OPERANDS];
    ht_text *shared; /* declarations: variables in shared memory */
    ht_text *once;   /* statements of the first thread of each block; may read the inputs that are single numbers */
    ht_text *each;   /* statements for element `i`: declares or assigns nothing but the results */
} ht_cuda_step;

/* `emit` of all of them. */
void ht_cuda_emit_elementwise(ht_cuda_emission *e, const ht_launch *launch);
/* Their `can`: any type but f8, results row-major. */
const char *ht_cuda_elementwise_can(const ht_call *call, const ht_target *target);
/* The same for rows whose elements know nothing of their number: results in any order of the axes, without gaps. */
const char *ht_cuda_pointwise_can(const ht_call *call, const ht_target *target);
/* A reduction as its row sees it, alone or behind element-wise calls that make what it reads (launch->fused). */
typedef struct ht_cuda_fold {
    const ht_call *call; /* its own */
    int in, out;         /* numbers of its second input and of its first result among the launch's operands */
    ht_text source;      /* what it reads, as it stands in a body: an object with at<width>(i) */
} ht_cuda_fold;
/* Puts those calls into the text; `source` gives neighbours `width` at a time then, of which ht_cuda_pack has approved.
 * Every at runs the calls and writes their results. ht_cuda_fold_free in any case. */
ht_cuda_fold ht_cuda_fold_begin(ht_cuda_emission *e, const ht_launch *launch, int width);
void ht_cuda_fold_free(ht_cuda_emission *e, ht_cuda_fold *fold);
/* The call alone. */
const ht_call *ht_cuda_fold_call(const ht_launch *launch);
/* The part of `takes` that all such rows share. */
const char *ht_cuda_refuse_before(const ht_call *call, const ht_fusion *fusion);

/* A number as it stands in a text. */
typedef struct ht_cuda_number {
    char text[40];
} ht_cuda_number;
const char *ht_cuda_real(double x, ht_cuda_number *buffer);

/* HT_CUDA_ELEMENTWISE_KERNEL(dropout, write) */
#define HT_CUDA_ELEMENTWISE_FIELDS(op_, can_, elementwise_)                                                            \
    .size = sizeof(ht_kernel), .op = #op_, .name = #op_ ".cuda", .device = HT_DEVICE_CUDA, .can = can_,                \
    .emit = ht_cuda_emit_elementwise, .prepare = ht_cuda_prepare, .run = ht_cuda_run, .elementwise = elementwise_
#define HT_CUDA_ELEMENTWISE_KERNEL(op_, write_)                                                                        \
    static const ht_elementwise op_##_elementwise = {.write = write_};                                                 \
    const ht_kernel ht_kernel_cuda_##op_ = {                                                                           \
        HT_CUDA_ELEMENTWISE_FIELDS(op_, ht_cuda_elementwise_can, &op_##_elementwise)};

/* The whole text of a launch whose row has `emit`; ht_cuda_emission_free in any case. */
ht_status ht_cuda_emit(ht_cuda_emission *e, ht_context *ctx, const ht_launch *launch);
void ht_cuda_emission_free(ht_cuda_emission *e);

/* `prepare` and `run` of such rows. */
ht_status ht_cuda_prepare(ht_launch *launch);
ht_status ht_cuda_run(const ht_launch *launch);

/* A row: HT_CUDA_KERNEL(softmax, can, workspace or NULL, emit) defines ht_kernel_cuda_softmax, which kernels.def lists. */
#define HT_CUDA_FIELDS(op_, can_, workspace_, emit_)                                                                   \
    .size = sizeof(ht_kernel), .op = #op_, .name = #op_ ".cuda", .device = HT_DEVICE_CUDA, .can = can_,                \
    .workspace = workspace_, .emit = emit_, .prepare = ht_cuda_prepare, .run = ht_cuda_run
#define HT_CUDA_KERNEL(op_, can_, workspace_, emit_)                                                                   \
    const ht_kernel ht_kernel_cuda_##op_ = {HT_CUDA_FIELDS(op_, can_, workspace_, emit_)};
/* One that follows where channels lie last. */
#define HT_CUDA_CHANNELS_KERNEL(op_, can_, workspace_, emit_)                                                          \
    const ht_kernel ht_kernel_cuda_##op_ = {HT_CUDA_FIELDS(op_, can_, workspace_, emit_),                              \
                                            .channels = HT_CHANNELS_FOLLOW};

#endif
