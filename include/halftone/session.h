/* halftone/session.h: plans and sessions. A plan fixes kernels and every byte; a session owns the memory and runs it.
 */
#ifndef HALFTONE_SESSION_H
#define HALFTONE_SESSION_H

#include <halftone/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A setting by name, with its value as text: numbers as in C, switches as 0 and 1. */
typedef struct ht_train_setting {
    const char *key, *value;
} ht_train_setting;

/* Options of the training step. A field that is zero takes the optimizer's own default, but for `lr`: 0 is a rate of 0. */
typedef struct ht_train_opts {
    size_t size;
    const char *optimizer; /* "sgd", "adam", "adamw", "adamw_hf", "adagrad", "lion", "lamb", "muon" */
    double lr;
    double beta1, beta2, eps;
    double weight_decay;
    double momentum, dampening;
    bool nesterov;
    double clip;    /* global gradient norm; 0: off */
    int accumulate; /* micro-batches per update; above 1 run "train" with ht_session_run_batches */
    /* Settings without a field, and settings whose value is zero; a key here overrides its field (docs/update.md lists
     * all). */
    size_t setting_count;
    const ht_train_setting *settings;
} ht_train_opts;

#define HT_TRAIN_OPTS                                                                                                  \
    {                                                                                                                  \
        .size = sizeof(ht_train_opts), .optimizer = "adamw", .lr = 1e-3, .accumulate = 1                               \
    }

/* Turns the segment "forward" with its output "loss" into the program "train": forward and backward ("micro_first", and
 * "micro" when gradients accumulate), then "update". Adds the states "applied" (number of updates) and "loss_scale"
 * with its counters, the input "loss_grad" (the start of the backward pass: the weight of the loss; "seed" is its
 * deprecated name) and, where random numbers or carried state ask which micro-batch it is, "micro.index", the outputs "grad_norm" and "applied_now". "lr" is the learning rate: a writable state, or with the
 * setting "schedule" an output, the rate of the last update. */
HT_API ht_status ht_graph_train(ht_graph *graph, const ht_train_opts *opts);

typedef struct ht_plan_opts {
    size_t size;
    const char *target; /* text of a target file (docs/target.md); NULL: this machine */
    bool canaries;      /* guard bytes behind every buffer, checked after each run; always on in debug builds */
    bool no_fusion;     /* every op is an instruction of its own; the same bits, slower */
    union {
        bool no_prepack; /* weights are packed anew in every run: less memory, the same bits */
        bool no_keep;    /* deprecated: the former name of no_prepack */
    };
    /* "fp32" (NULL is that), "fp64", or "fp16" and "bf16": products in half, masters, sums and losses in f32
     * (docs/precision.md). Further settings of the policy: masters, gradients, moments, residual, fp32_ops, half_ops,
     * fp32_params, rounding, fp8, fp8_history. */
    const char *precision;
    size_t setting_count;
    const ht_train_setting *settings;
    const char
        *device; /* where the model computes: "cpu" (NULL is that); "cuda", or "cuda:1" for the second GPU that the
                         * driver sees; "fake", an accelerator for tests */
} ht_plan_opts;

#define HT_PLAN_OPTS                                                                                                   \
    {                                                                                                                  \
        .size = sizeof(ht_plan_opts)                                                                                   \
    }

/* The graph is read only, and may be freed afterwards. opts may be NULL. */
HT_API ht_status ht_plan_create(ht_plan **out, const ht_graph *graph, const ht_plan_opts *opts);
HT_API void ht_plan_free(ht_plan *plan);
/* All bytes that a session of this plan allocates for state, slots, transients and packed weights; 0 for NULL. */
HT_API int64_t ht_plan_bytes(const ht_plan *plan);
/* The memory report and the instructions of every segment, as text; *out is heap memory for free(). */
HT_API ht_status ht_plan_print(char **out, const ht_plan *plan);

/* How state in @disk is read and written. The first five are those of DeepSpeed's block "aio". */
typedef struct ht_disk_opts {
    size_t size;
    size_t block_size;        /* bytes of a request; rounded up to whole pages */
    int queue_depth;          /* requests under way at once, times intra_op_parallelism */
    int intra_op_parallelism; /* see there */
    bool single_submit;       /* each request is submitted by itself, not with the others that are ready */
    bool overlap_events;      /* a request that is done makes way for the next; false: for all of them to be done */
    bool threads;             /* threads with pread and pwrite, also where io_uring is to be had */
    bool buffered;            /* through the page cache, also where direct requests are possible */
    bool keep_files;          /* the files have names until the session ends; false: they never have */
} ht_disk_opts;

#define HT_DISK_OPTS                                                                                                   \
    {                                                                                                                  \
        .size = sizeof(ht_disk_opts), .block_size = 1048576, .queue_depth = 8, .intra_op_parallelism = 1,              \
        .overlap_events = true                                                                                         \
    }

typedef struct ht_session_opts {
    size_t size;
    uint64_t seed;      /* of all random numbers */
    bool no_recordings; /* a GPU gets every instruction by itself, not a step as one command; the same bits, slower */
    const char
        *disk_folder; /* where the files of @disk lie, while the session lives; a plan without @disk needs none */
    const ht_disk_opts *disk; /* NULL: as HT_DISK_OPTS */
    struct ht_comm *comm;     /* the ranks that work on this job (halftone/comm.h), borrowed; NULL: a world of one */
} ht_session_opts;

#define HT_SESSION_OPTS                                                                                                \
    {                                                                                                                  \
        .size = sizeof(ht_session_opts)                                                                                \
    }

/* Allocates, touches every page, runs the segments "init" and "derive". The plan is borrowed. opts may be NULL. */
HT_API ht_status ht_session_create(ht_session **out, const ht_plan *plan, const ht_session_opts *opts);
HT_API void ht_session_free(ht_session *session);
/* Runs a program or one segment by name, to its end. Allocates nothing. A program that takes several batches ("train"
 * with `accumulate` above 1) is refused: it would take the same one each time.
 * HT_ENONFINITE after an update that gave up, since gradients stay inf or NaN, and after every one that follows: the
 * parameters are those of the last good update. */
HT_API ht_status ht_session_run(ht_session *session, const char *name);

/* Writes the inputs of batch `index`, 0 and up, with ht_session_write; a status other than HT_OK ends the run. */
typedef ht_status (*ht_batch_fn)(void *arg, ht_session *session, int64_t index);
/* Runs a program and calls `fill` before each of its micro-batches; "train" calls it `accumulate` times. Together they
 * are the batch of the step: the step is the same however the rows of that batch are cut into micro-batches. (Whoever
 * runs "micro_first" and "micro" one by one writes the input "micro.index" too, where there is one.) */
HT_API ht_status ht_session_run_batches(ht_session *session, const char *program, ht_batch_fn fill, void *arg);

/* A program, or a state, input or output, by handle: looked up once, used in every step. */
typedef struct ht_handle {
    uint32_t id; /* 0: none */
} ht_handle;
HT_API ht_status ht_session_program(const ht_session *session, const char *name, ht_handle *out);
HT_API ht_status ht_session_slot(const ht_session *session, const char *name, ht_handle *out);
/* Starts a program; a device other than the CPU runs it while the caller goes on. What is read or written afterwards waits
 * for it. A failure of the device may be told by a later call, at the latest by ht_session_wait, and so is an update
 * that gave up (HT_ENONFINITE, as ht_session_run). */
HT_API ht_status ht_session_start(ht_session *session, ht_handle program);
HT_API ht_status ht_session_wait(ht_session *session);

/* A state, input or output by name, whole, row-major, in its own number type; `bytes` must be its size. */
HT_API ht_status ht_session_write(ht_session *session, const char *name, const void *data, size_t bytes);
HT_API ht_status ht_session_read(const ht_session *session, const char *name, void *data, size_t bytes);
HT_API ht_status ht_session_write_slot(ht_session *session, ht_handle slot, const void *data, size_t bytes);
HT_API ht_status ht_session_read_slot(const ht_session *session, ht_handle slot, void *data, size_t bytes);
/* The same with conversion from and to double; `count` is the number of elements. */
HT_API ht_status ht_session_write_f64(ht_session *session, const char *name, const double *data, size_t count);
HT_API ht_status ht_session_read_f64(const ht_session *session, const char *name, double *data, size_t count);

/* ---- for programs that use the same GPU ---- */

/* A CUDA stream of the caller's (a CUstream or cudaStream_t; the default streams by their handles 1 and 2), borrowed until
 * another one is set or the session is freed; NULL: none again. From then on the session's work is in order with it: what
 * ht_session_start and the two below start waits for all that is in the stream, and what comes into the stream afterwards
 * waits for them; the host waits for nothing. The stream is of the session's GPU and its primary context, which is what
 * CUDA's runtime uses; calls leave that context as the thread's current one. HT_EINVAL where the session has another
 * device. */
HT_API ht_status ht_session_set_stream(ht_session *session, void *stream);
/* As ht_session_write_slot and ht_session_read_slot, but `data` is memory of the session's GPU: copied there, in order with
 * the stream. Without a stream `data` must be ready before the call, and is done with after it. What the plan keeps outside
 * the GPU (offload) is refused. On the CPU these are the functions above. */
HT_API ht_status ht_session_write_device(ht_session *session, ht_handle slot, const void *data, size_t bytes);
HT_API ht_status ht_session_read_device(const ht_session *session, ht_handle slot, void *data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
