/* A plan in the making, shared by the files of this folder: what analysis (analyse.c) finds out about a clone of the
 * graph, before there is an instruction. */
#ifndef HT_PLAN_PLANNING_H
#define HT_PLAN_PLANNING_H

#include "plan/plan.h"

struct ht_buffer_assignment;

typedef struct planning {
    ht_graph *g; /* our own clone: ids below its source's counts are those of the source */
    ht_plan *plan;
    const ht_plan_request *request;
    bool quiet;                /* tells nothing to the log */
    const ht_kernel **kernels; /* by node id */
    ht_groups groups;
    ht_place *lasting; /* by value id: state and inputs */
    bool *loss_scaled; /* by value id: follows from the input "loss_grad" */
    /* Is told where the values of each segment lie; or NULL. */
    ht_status (*observe)(void *arg, uint32_t segment, const struct ht_buffer_assignment *r);
    void *observe_arg;
    uint32_t *started; /* by node id, of a start: 1 + index of its instruction in its segment; 0: there is none */
} planning;

/* The clone, and a plan without anything. Whatever the outcome, ht_planning_close frees all but the plan. */
ht_status ht_planning_open(planning *p, const ht_graph *graph, const ht_plan_request *request);
void ht_planning_close(planning *p);
/* Layout, schedule and groups of all segments; the places of state and inputs. */
ht_status ht_planning_analyse(planning *p);
/* The whole plan of the graph as it is. */
ht_status ht_planning_emit(planning *p);

/* Where every value of a segment lives while it runs. Its time is counted in positions of nodes; nodes that run together
 * run at that of the last one, and what comes behind all nodes (copies to outputs) at the number of nodes. */
typedef struct ht_buffer_assignment {
    ht_place *value;     /* by value id */
    ht_interval *life;   /* by value id: its own transient bytes; see ht_value_life */
    bool *guarded;       /* by value id: owns its bytes up to a canary */
    ht_place *workspace; /* by position */
    uint32_t *time;      /* by position: when the node runs */
    /* By position of the first node of a unit: how many instructions it is in the end. None for a view, for a store in
     * place, where there is nothing to compute; for an assembled concat one per copy. */
    uint32_t *instrs;
    bool *stored;     /* by position: this store happens where the value is made */
    bool *output;     /* by output: the value is made in its slot */
    ht_place *slot;   /* by output: where it must end up */
    uint32_t *within; /* by value id: the concat in whose bytes it is made; 0: none */
    int64_t *part;    /* by value id: how many bytes from the beginning of that concat */
    bool *assembled;  /* by value id: a concat that is made where its operands are made */
    struct {
        ht_interval *items;
        size_t count, capacity;
    } buffers[HT_SPACE_COUNT];
    int64_t align[HT_SPACE_COUNT];                                                              /* of buffers */
    int64_t bytes[HT_SPACE_COUNT], live_bytes[HT_SPACE_COUNT], workspace_bytes[HT_SPACE_COUNT]; /* as in a segment */
    size_t instr_count; /* copies to outputs included */
} ht_buffer_assignment;
/* Slots for the outputs of a segment, and buffers for its values; to be freed when it succeeds. */
ht_status ht_planning_assign(planning *p, uint32_t segment, ht_buffer_assignment *r);
void ht_buffer_assignment_free(ht_buffer_assignment *r);
/* Of *r: state, inputs and slots have their places already, all else comes zeroed. */
ht_status ht_plan_assign_buffers(const planning *p, uint32_t segment, ht_buffer_assignment *r);

/* Fills within, part and assembled for the concats that are allowed, by position, once stores and outputs have their
 * places. False when memory is out. */
bool ht_plan_assemble(const planning *p, const ht_segment *s, const bool *allowed, ht_arena *arena,
                      ht_buffer_assignment *r);
/* The outermost concat in whose buffer v is made, or v itself, and where in it. */
ht_val ht_plan_assembled_in(const ht_buffer_assignment *r, ht_val v, int64_t *offset);
/* Of an assembled concat: is input i made elsewhere and to be copied to its place? */
bool ht_plan_part_missing(const planning *p, const ht_buffer_assignment *r, const ht_call *call, const ht_node *n,
                          size_t i, ht_place *place);

/* Time as instructions. `end`, by time of buffer assignment: instructions up to and including that time; it comes
 * zeroed. time: by node id below node_count, its instruction; NULL: not asked for. */
void ht_plan_number_instrs(const planning *p, const ht_segment *s, const ht_buffer_assignment *r, uint32_t *end,
                           uint32_t *time, size_t node_count);
/* A life in it. False where it has no instructions. */
bool ht_plan_in_instrs(const uint32_t *end, const ht_interval *life, uint32_t *first, uint32_t *last);
/* Adds the buffers of a space to bytes by instruction. */
void ht_plan_add_live_bytes(const ht_buffer_assignment *r, int space, const uint32_t *end, int64_t *live, size_t times);
int64_t ht_plan_rounded(int64_t bytes, int64_t align);
/* Fills in timeline and held of a segment that has its instructions. */
ht_status ht_plan_keep_timeline(const planning *p, uint32_t segment, const ht_buffer_assignment *r);

/* Nothing to compute, however long the other axes are. */
bool ht_plan_makes_nothing(const ht_graph *g, const ht_node *n);
/* Nodes from position `at` on that are one instruction. */
size_t ht_plan_unit_length(const planning *p, const ht_segment *s, size_t at);

/* The instruction of a group: all but role and site. False when memory is out. */
bool ht_plan_group(ht_plan *plan, const ht_graph *g, const ht_groups *groups, const uint32_t *nodes, size_t count,
                   const ht_kernel *const *kernels, const ht_buffer_assignment *r, ht_instr *instr);

#endif
