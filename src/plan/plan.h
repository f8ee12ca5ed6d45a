/* plan: graph to instructions and byte offsets. Views and copies (layout), kernels, lifetimes, in-place, offsets; then
 * the graph is no longer needed. The plan is the allocation: every byte is known here. */
#ifndef HT_PLAN_H
#define HT_PLAN_H

#include <halftone/session.h>

#include "kernel/kernel.h"
#include "pass/pass.h"
#include "plan/memory.h"

/* Areas of memory: state lasts, inputs and what calls keep for each other are there once for each slot of the plan, outputs once, transients live inside one
 * segment call, prepacked is state in the form that kernels compute with (kernel/kernel.h: ht_prepack), and replay holds a
 * copy of what a step changes while the step is replayed, or until it can no longer be given up. */
typedef enum ht_area {
    HT_AREA_NONE,
    HT_AREA_STATE,
    HT_AREA_INPUT,
    HT_AREA_OUTPUT,
    HT_AREA_TRANSIENT,
    HT_AREA_PREPACKED,
    HT_AREA_REPLAY,
    HT_AREA_COUNT
} ht_area;

/* An address before there is memory: bytes from the beginning of an area of a space. */
typedef struct ht_place {
    ht_space space;
    ht_area area; /* NONE: an optional operand left out */
    int64_t offset;
} ht_place;

static inline bool ht_place_same(ht_place a, ht_place b)
{
    return a.space == b.space && a.area == b.area && a.offset == b.offset;
}

/* Queues. Instructions on COMPUTE run one after the other, in the order of their segment, also where their spaces, and
 * with them their devices, differ. A copy in two parts is on COPY_OUT where it leads away from main (main, host, disk:
 * in this order), else on COPY_IN. It begins when everything before it on COMPUTE is done, and then runs beside COMPUTE
 * and beside other copies until an instruction on COMPUTE waits for it (ht_instr.wait). Until then no instruction of any
 * queue writes what it reads, or touches what it writes; so copies need no order among each other, but those of one
 * space and queue have one. Collectives are on COMM, under the same rules, and in the order of their segment. At the end of
 * a segment nothing is under way; but its tail may run later. */
typedef enum ht_queue_kind {
    HT_QUEUE_COMPUTE,
    HT_QUEUE_COPY_IN,
    HT_QUEUE_COPY_OUT,
    HT_QUEUE_COMM,
    HT_QUEUE_COUNT
} ht_queue_kind;
extern const char *const ht_queue_names[HT_QUEUE_COUNT];

/* For reports: what an op makes, and the node that it is there for. */
typedef struct ht_provenance {
    const char
        *value; /* name of the first result, or NULL: the graph's, or that of the state or output it is made in */
    const char *site;
    const char *origin, *origin_site; /* op and site of the node whose gradient rule made this one, or NULL */
    ht_role role;
} ht_provenance;

typedef struct ht_instr {
    const ht_kernel *kernel;
    /* Whose device runs it: that of the results; of what crosses spaces the disk's if it copies from or to the disk, else
     * main's if it does from or to main. A done is run by the device nearest to main. */
    ht_space space;
    uint8_t queue; /* ht_queue_kind */
    uint32_t
        wait; /* 1 + index of the instruction of this segment, on another queue, that must be done before; 0: none */
    const ht_call *call;   /* own copy: the graph is gone */
    const ht_fused *fused; /* the steps of an element-wise instruction; else NULL */
    size_t row_block;      /* instructions from this one on that run together, rows by rows; 0: it runs by itself */
    int64_t rows;          /* of a row block */
    const ht_place *in, *out;
    ht_place workspace;
    uint32_t prepacked;  /* 1 + index into the plan's prepacked; 0: nothing */
    const bool *guarded; /* by result: canary bytes lie behind it; NULL in a plan without canaries */
    /* For reports. */
    const char
        *value; /* name of the first result, or NULL: the graph's, or that of the state or output it is made in */
    const char *site;
    const char *origin, *origin_site; /* op and site of the node whose gradient rule made this one, or NULL */
    ht_role role;
    const char *unfused; /* why the row has not taken the element-wise calls beside it into this instruction, or NULL */
    bool loss_scaled;    /* follows from the input "loss_grad": a gradient, as large as the loss is scaled */
    bool recomputed;     /* of the node that it is there for; a fused one may have others */
    const ht_provenance *parts; /* of a fused instruction of a training step: product, steps, reduction; else NULL */
    ht_cost cost;               /* with the FLOPs of recomputed nodes apart */
} ht_instr;

/* A value that forward makes in main and backward still reads: its memory is taken all the while. */
typedef struct ht_held_value {
    const char *op, *site; /* that make it; site: "" where there is none */
    int64_t bytes;
} ht_held_value;

typedef struct ht_plan_segment {
    const char *name;
    ht_instr *instrs;
    size_t instr_count;
    int64_t transient_bytes[HT_SPACE_COUNT];
    int64_t live_bytes[HT_SPACE_COUNT];      /* the most that is alive at once: no plan can be smaller */
    int64_t workspace_bytes[HT_SPACE_COUNT]; /* of them: workspaces of kernels; the others are values */
    uint32_t *prepacks;                      /* instructions that use something prepacked */
    uint32_t *
        invalidates; /* indices of what is prepacked from state that this segment writes; it uses none of them itself */
    size_t prepack_count, invalidate_count;
    int64_t *timeline;                    /* by instruction: bytes in main that are alive, workspaces included */
    ht_interval *buffers[HT_SPACE_COUNT]; /* transients, workspaces included: in use by instructions first .. last */
    size_t buffer_count[HT_SPACE_COUNT];
    size_t tail;         /* instructions from here on may run within the next segment; instr_count: none may */
    size_t lead;         /* instructions before this one may run within the micro-batch before the segment */
    ht_held_value *held; /* from forward to backward, in the order in which they are made */
    size_t held_count;
} ht_plan_segment;

/* Bytes [first, end) of the state area of a space. */
typedef struct ht_state_span {
    ht_space space;
    int64_t first, end;
} ht_state_span;

enum { HT_PREPACK_SOURCES = 2 };

/* One form of one or two states, for all instructions that can share it. */
typedef struct ht_prepacked {
    ht_place place;
    ht_state_span source[HT_PREPACK_SOURCES]; /* empty where there are fewer */
    const ht_instr *user;                     /* the first */
} ht_prepacked;

/* A state that a training step changes, and the place of its copy. */
typedef struct ht_replay_copy {
    size_t slot;
    ht_place copy;
} ht_replay_copy;

typedef enum ht_slot_kind { HT_SLOT_STATE, HT_SLOT_INPUT, HT_SLOT_OUTPUT } ht_slot_kind;

/* Something that a caller can read or write by name. */
typedef struct ht_slot {
    const char *name;
    ht_slot_kind kind;
    ht_type type;
    ht_place place;
    ht_init init; /* of an input */
    /* Of a state. */
    ht_heading heading;
    bool derived;
    size_t owner; /* the slot whose bytes these are: itself, or what it is a view of */
    /* As in ht_state. */
    ht_cut cut;
    bool part;
    ht_type whole;
    int64_t first;
} ht_slot;

typedef struct ht_plan_program {
    const char *name;
    const ht_program_call *calls;
    size_t call_count;
} ht_plan_program;

enum { HT_PLAN_TYPES = 256 };

struct ht_plan {
    ht_context *ctx;
    ht_arena *arena;
    ht_target target;
    uint64_t model_hash;
    const char *precision; /* "fp32", "fp64", "fp16", "bf16" */
    bool canary;
    const char *device; /* that @main is bound to, as the target says: a name for ht_device_get */
    unsigned
        input_slots; /* 1; 2 where a batch can come while another is computed; as many as programs have in flight */
    ht_plan_segment *segments;
    ht_plan_program *programs;
    ht_slot *slots;
    const ht_slot **by_place;            /* all of them, by where they lie */
    const ht_type *types[HT_PLAN_TYPES]; /* that calls share, by hash */
    ht_prepacked *prepacked;
    ht_replay_copy *replay_copies; /* in the order of their slots */
    size_t replay_copy_count;
    size_t segment_count, program_count, slot_count, slot_capacity, prepacked_count, prepacked_capacity;
    int64_t area_bytes[HT_SPACE_COUNT][HT_AREA_COUNT]; /* of the inputs: of one slot */
    uint64_t effects_hash;
    int64_t heading_bytes[HT_HEADING_COUNT];
};

/* Places begin at multiples of ALIGN bytes, those in @disk and transients that are copied from or to it at DISK_ALIGN:
 * so requests can go past the page cache, straight from and to them. */
enum { HT_PLAN_ALIGN = 64, HT_PLAN_DISK_ALIGN = 4096, HT_CANARY_BYTES = 64 };

/* ht_plan_create with an observer, which is called after each pass and may be NULL. */
ht_status ht_plan_create_observed(ht_plan **out, const ht_graph *graph, const ht_plan_opts *opts,
                                  const ht_pass_observer *observer);

/* A plan as the other rooms ask for it: values instead of texts. */
typedef struct ht_plan_request {
    const ht_target *target;
    const ht_pass_options *options;       /* of the passes of HT_STAGE_PLAN */
    const ht_pass_observer *observer;     /* is called after each pass; may be NULL */
    bool no_fusion, no_prepack, canaries; /* as in ht_plan_opts */
} ht_plan_request;
ht_status ht_plan_build(ht_plan **out, const ht_graph *graph, const ht_plan_request *request);

/* What passes are given while such a plan is made, or before; the request is borrowed. */
ht_pass_env ht_plan_pass_env(const ht_plan_request *request);
/* Its `measure`; arg: an ht_plan_request. */
ht_status ht_plan_measure(const void *arg, const ht_pass *behind, const ht_graph *g, ht_memory_profile *profile);

/* Of a space, all areas together. */
int64_t ht_plan_bytes_in(const ht_plan *plan, ht_space space);
/* Of an area of a space, all slots together; of an area in all spaces. */
int64_t ht_plan_space_bytes(const ht_plan *plan, ht_space space, ht_area area);
int64_t ht_plan_area_bytes(const ht_plan *plan, ht_area area);
/* Sums over all instructions: of a segment, of a program's calls. */
ht_cost ht_plan_segment_cost(const ht_plan_segment *segment);
ht_cost ht_plan_program_cost(const ht_plan *plan, const ht_plan_program *program);

/* FLOPs of a training step, exact as long as they are less than 2^53. */
typedef struct ht_step_flops {
    double forward, backward, update; /* of products */
    double recomputed;                /* of all kinds, done again to save memory */
    double other;                     /* everything else */
    double masked; /* of products: what a causal mask leaves out of attention; forward and backward do not have it */
} ht_step_flops;
void ht_step_flops_add(ht_step_flops *sum, const ht_instr *instr, double times);
ht_step_flops ht_plan_program_flops(const ht_plan *plan, const ht_plan_program *program);

/* Bytes that one run of a program copies from one memory to another. */
int64_t ht_plan_program_moved(const ht_plan *plan, const ht_plan_program *program);

/* Of the effects (ht_op: HT_OP_EFFECT) of every segment in the order in which they happen: a store's state, another
 * effect's op, attributes and types. Ranks that work together have the same. */
uint64_t ht_plan_effects_hash(const ht_plan *plan);

/* -1 when there is none. */
int ht_plan_segment_find(const ht_plan *plan, const char *name);
int ht_plan_program_find(const ht_plan *plan, const char *name);
/* Is it of one stage of a pipeline, which has some of the model's layers? */
bool ht_plan_is_stage(const ht_plan *plan);
const ht_slot *ht_plan_slot(const ht_plan *plan, const char *name);

#include "plan/byte_table.h"
#include "plan/exchange_table.h"
#include "plan/explain.h"
#include "plan/memory_timeline.h"
#include "plan/module_tree.h"
#include "plan/predict.h"
#include "plan/roofline.h"

/* ---- steps of planning, in their own files ---- */

/* Nodes that the target does as one become one. */
ht_status ht_plan_join(ht_graph *g, const ht_target *target);
/* Regions of products lose what the target does not do with them. */
ht_status ht_plan_cut_regions(ht_graph *g, const ht_target *target);
/* Is its first input all that a node waits for? */
bool ht_plan_reads_one_result(const ht_graph *g, const ht_node *n);
/* Move ops become views; a kernel is chosen for every other node, after copies of strided inputs and casts of half ones
 * where every row refuses them; casts are told to the log. kernels: by node id, heap memory for free(). */
ht_status ht_plan_layout(ht_graph *g, const ht_plan_request *request, bool log, const ht_kernel ***kernels);
/* Is the node's result a view that needs no instruction? */
bool ht_plan_is_view(const ht_graph *g, const ht_node *n);

/* Puts a segment's nodes into the order in which they run. */
ht_status ht_plan_schedule(ht_graph *g, uint32_t segment);

/* Element-wise nodes that become one instruction, perhaps with a product before or a reduction behind them; they stand together in their segment. */
typedef struct ht_groups {
    uint32_t *of_node; /* by node id: a number within its segment; 0: alone */
    bool *inside;      /* by value id: nothing outside its group reads it, so it needs no memory */
    /* Instructions that run together, rows by rows. */
    uint32_t *row_block;  /* by node id: a number within its segment, none of a group's; 0: none */
    int64_t *rows;        /* by node id: of its row block */
    const char **refused; /* by node id: why its row takes no calls; NULL: it does, or was not asked */
    bool *reread; /* by value id: another instruction of its row block reads it, so it must not go past the caches */
} ht_groups;
/* All arrays come zeroed. */
ht_status ht_plan_fuse(ht_graph *g, const ht_target *target, const ht_kernel *const *kernels, ht_groups *groups);
/* After it: which instructions run together; constants may move up. */
ht_status ht_plan_find_row_blocks(ht_graph *g, const ht_kernel *const *kernels, ht_groups *groups);

/* Of the effects of a graph whose nodes are in the order in which they run; see ht_plan_effects_hash. */
uint64_t ht_plan_hash_effects(const ht_graph *g);

/* The cost of a node, whose call this is; NULL: of a call that stands for none. */
ht_cost ht_plan_node_cost(const ht_call *call, const ht_node *node);
/* Takes from the bytes of an instruction what it would read a second time: operands that are the same. */
void ht_plan_read_once(ht_instr *instr);
/* Slots by place: after the last slot was added, before any question. */
ht_status ht_plan_index_slots(ht_plan *plan);
/* The first slot at a place that has this type; NULL: there is none. */
const ht_slot *ht_plan_slot_at(const ht_plan *plan, ht_place place, const ht_type *type);
/* The state that owns the byte at a place; NULL in other areas. */
const ht_slot *ht_plan_state_at(const ht_plan *plan, ht_place place);

/* A state that is trained: it has a gradient. */
bool ht_plan_is_parameter(const ht_plan *plan, const ht_slot *slot);
/* The call that an instruction is there for: the product of a fused one, its reduction, the optimiser's rule, or else the
 * first of its steps; and its op. */
const ht_call *ht_instr_call(const ht_instr *instr);
const char *ht_instr_op(const ht_instr *instr);
/* Its ops in their order, for people: "matmul + add + gelu"; of many, the first ones and the last. */
void ht_instr_add_ops(ht_text *text, const ht_instr *instr);
/* The layer that it belongs to, by its own site or that of the node whose gradient it computes; "(none)", "(update)". */
const char *ht_instr_layer(const ht_plan_segment *segment, size_t instr);

/* The plan's own copies; calls share types. NULL when memory is out. */
const ht_type *ht_plan_own_type(ht_plan *plan, const ht_type *from);
const ht_call *ht_plan_own_call(ht_plan *plan, const ht_call *from);
/* The step of an element-wise call that the plan owns; `reread` is NULL, or by result as in ht_groups. NULL when memory
 * is out. */
const ht_fused *ht_plan_step(ht_plan *plan, const ht_call *call, const ht_kernel *kernel, const bool *reread);

/* Prepacking, once all instructions are there: which of them read prepacked state, and which segments invalidate it. */
ht_status ht_plan_prepack(ht_plan *plan);
/* After it: what a replay of a training step needs, in HT_AREA_REPLAY. */
ht_status ht_plan_reserve_replay(ht_plan *plan);
/* Once all transients are laid out: the tails of segments, and transients of main to where they meet the next segment's
 * late. */
void ht_plan_find_tails(ht_plan *plan);
/* By instruction of `next`: how many instructions of s, counted from its first, must be done before that one. */
void ht_plan_tail_needed(const ht_plan_segment *s, const ht_plan_segment *next, uint32_t *needed);
/* Do instructions of s from `from` on use bytes of a place that are read, or written, outside of it? */
bool ht_plan_tail_touches(const ht_plan_segment *s, size_t from, ht_place place, size_t bytes, bool written);
/* Do two instructions use the same bytes that last beyond a segment, one of them to write? */
bool ht_plan_instrs_conflict(const ht_instr *a, const ht_instr *b);
/* Moves the transients in main of a segment. */
void ht_plan_raise_segment(ht_plan_segment *s, int64_t by);
/* "micro_first", "micro", "micro:2", …: does the segment make gradients of a micro-batch? */
bool ht_plan_is_micro(const ht_plan_segment *s);
/* After the tails: the lead of the segment "exchange". */
void ht_plan_find_leads(ht_plan *plan);
/* By instruction of the lead of s: how many instructions of the micro-batch before it must have run; no lower than that of
 * the one before. */
void ht_plan_lead_ready(const ht_plan_segment *s, const ht_plan_segment *before, uint32_t *ready);
/* Does an instruction write to state that is neither saved nor a gradient, which every step begins anew? */
bool ht_plan_writes_for_good(const ht_plan *plan, const ht_instr *instr);
/* A new place at the end of an area. */
ht_place ht_plan_add_place(ht_plan *plan, ht_space space, ht_area area, int64_t bytes);

#endif
