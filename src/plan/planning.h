/* A plan in the making, shared by the files of this folder: what analysis (analyse.c) finds out about a clone of the
 * graph, before there is an instruction. */
#ifndef HT_PLAN_PLANNING_H
#define HT_PLAN_PLANNING_H

#include "plan/plan.h"

typedef struct planning {
    ht_graph *g; /* our own clone: ids below its source's counts are those of the source */
    ht_plan *plan;
    const ht_plan_request *request;
    bool quiet;                /* tells nothing to the log */
    const ht_kernel **kernels; /* by node id */
    ht_groups groups;
    ht_place *lasting; /* by value id: state and inputs */
    bool *loss_scaled; /* by value id: follows from the input "loss_grad" */
    uint32_t *started; /* by node id, of a start: 1 + index of its instruction in its segment; 0: there is none */
} planning;

/* The clone, and a plan without anything. Whatever the outcome, ht_planning_close frees all but the plan. */
ht_status ht_planning_open(planning *p, const ht_graph *graph, const ht_plan_request *request);
void ht_planning_close(planning *p);
/* The places of state, inputs and outputs: all that follows from the graph alone. */
ht_status ht_planning_place_lasting(planning *p);
/* Layout, schedule and groups of all segments; the places of state and inputs. */
ht_status ht_planning_analyse(planning *p);

/* Where every value of a segment lives while it runs. Its time is counted in positions of nodes; nodes that run together
 * run at that of the last one, and what comes behind all nodes (copies to outputs) at the number of nodes. */
typedef struct ht_buffer_assignment {
    ht_place *value;     /* by value id */
    ht_interval *life;   /* by value id: its own transient bytes; see ht_value_life */
    bool *guarded;       /* by value id: owns its bytes up to a canary */
    ht_place *workspace; /* by position */
    uint32_t *time;      /* by position: when the node runs */
    bool *stored;        /* by position: this store happens where the value is made */
    bool *output;        /* by output: the value is made in its slot */
    ht_place *slot;      /* by output: where it must end up */
    struct {
        ht_interval *items;
        size_t count, capacity;
    } buffers[HT_SPACE_COUNT];
    int64_t bytes[HT_SPACE_COUNT], live_bytes[HT_SPACE_COUNT];
} ht_buffer_assignment;
/* Slots for the outputs of a segment, and buffers for its values; to be freed when it succeeds. */
ht_status ht_planning_assign(planning *p, uint32_t segment, ht_buffer_assignment *r);
void ht_buffer_assignment_free(ht_buffer_assignment *r);
/* Of *r: state, inputs and slots have their places already, all else comes zeroed. */
ht_status ht_plan_assign_buffers(const planning *p, uint32_t segment, ht_buffer_assignment *r);

/* Nodes from position `at` on that are one instruction. */
size_t ht_plan_unit_length(const planning *p, const ht_segment *s, size_t at);
/* How many instructions these `count` nodes are in the end: none for a view, for a store in place, where there is nothing
 * to compute. */
size_t ht_plan_unit_instrs(const planning *p, const ht_buffer_assignment *r, const ht_segment *s, size_t at,
                           size_t count);

/* The instruction of a group: all but role and site. False when memory is out. */
bool ht_plan_group(ht_plan *plan, const ht_graph *g, const ht_groups *groups, const uint32_t *nodes, size_t count,
                   const ht_kernel *const *kernels, const ht_buffer_assignment *r, ht_instr *instr);

#endif
