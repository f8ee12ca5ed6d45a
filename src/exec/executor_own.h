/* The executor's own: shared by the files of this folder that walk its plan, and that move its bytes. */
#ifndef HT_EXEC_EXECUTOR_OWN_H
#define HT_EXEC_EXECUTOR_OWN_H

#include "exec/exec.h"

/* An instruction as an observer's functions get it. */
typedef struct watched {
    ht_executor *executor;
    ht_observation at;
    ht_event *from, *to; /* of a device with a clock; NULL until it is timed */
    bool timed;          /* they were recorded, and nobody was told yet */
} watched;

/* A queue, and the mark that others wait for when the order of the runs leaves it. */
typedef struct ht_lane {
    ht_queue *queue; /* NULL: no instruction needs it */
    ht_event *here;
} ht_lane;

/* Instructions next .. end - 1 of a segment that was run are still to run: see tails.c. */
typedef struct ht_tail {
    size_t segment, next, end;
    unsigned slot;
} ht_tail;

/* Instructions of a segment's lead that were run within the one before it: see leads.c. */
typedef struct ht_lead {
    size_t segment, count;
} ht_lead;

struct ht_executor {
    const ht_plan *plan;
    ht_arena *arena;
    ht_device *device[HT_SPACE_COUNT]; /* NULL in spaces that the plan does not use; the disk's is our own */
    ht_queue *queue;                   /* that of lanes[main][compute]; the order of the runs */
    /* By the space and queue of instructions. Where the device of main runs commands at once, it has one queue for all of
     * main and host. */
    ht_lane lanes[HT_SPACE_COUNT][HT_QUEUE_COUNT];
    ht_lane caller;         /* the stream of the program around us; none: a queue that is NULL */
    bool beside;            /* is there a lane beside that of the runs? */
    ht_queue *feeds;        /* copies of inputs: a queue of its own, or that of the runs */
    bool *reads_input;      /* by segment */
    size_t newest;          /* the segment that was run last */
    ht_event **fed, **read; /* by slot: its inputs are there; the last run that reads them is done */
    ht_event ***waited;     /* by segment, then instruction: what others wait for; NULL where all is one queue */
    uint32_t **needed;      /* by segment with a tail, then the next one: ht_plan_tail_needed; NULL: no tail is left */
    ht_tail tail;           /* that was left last */
    uint32_t **ready;       /* by micro-batch's segment: ht_plan_lead_ready of "exchange"; NULL: there is no lead */
    ht_lead lead;           /* that was run last */
    char *area[HT_SPACE_COUNT][HT_AREA_COUNT];
    ht_launch **launches;      /* by slot and segment, then instruction */
    ht_run_fn **runs;          /* by segment, then instruction; NULL for one that a row block before it runs */
    uint8_t *prepacked;        /* by entry of the plan's prepacked: is it up to date? See below */
    struct recorded *recorded; /* by slot and segment; NULL: nothing is recorded */
    const ht_observer *observer;
    watched **watched;     /* by segment, then instruction; NULL until someone looks */
    ht_host_copy stage;    /* of ht_executor_trace */
    ht_comm *comm;         /* the session's ranks; NULL: a world of one */
    double waited_seconds; /* that the host stood still for exchanges of other ranks */
};

/* STALE: the state was written since. READ: it was then read once; who reads it once more has it made, so that state which
 * is written between any two runs costs nothing. MADE: ready to use. */
enum { STALE, READ, MADE };

static inline void *at(const ht_executor *e, ht_place place)
{
    return place.area == HT_AREA_NONE ? NULL : e->area[place.space][place.area] + place.offset;
}

static inline ht_lane *lane_of_runs(ht_executor *e)
{
    return &e->lanes[HT_SPACE_MAIN][HT_QUEUE_COMPUTE];
}
/* From one order of commands to another: what comes in `to` waits for what is in `from`. */
ht_status ht_executor_pass_over(const ht_lane *from, const ht_lane *to);

/* ---- lanes.c ---- */

/* The lane of an instruction. */
ht_lane *ht_executor_lane(ht_executor *e, ht_space space, ht_queue_kind kind);
/* Queues and events for what the plan runs beside the lane of the runs, once all areas are there. */
ht_status ht_executor_set_up_lanes(ht_executor *e);
void ht_executor_free_lanes(ht_executor *e);

/* Launches a segment, instruction by instruction, and within it the lead of segment `next`, or HT_NO_LEAD. */
ht_status ht_executor_submit(ht_executor *e, size_t segment, unsigned slot, int next);

/* The instruction, after what it waits for; *order: the lane of the last instruction on HT_QUEUE_COMPUTE. */
ht_status ht_executor_run_instr(ht_executor *e, size_t segment, unsigned slot, size_t index, ht_lane **order);

/* ---- name_failure.c ----
 *
 * They put the place of a device's failure before its message; every other status is returned as it is. */
ht_status ht_executor_name_place(const ht_executor *e, ht_status status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
ht_status ht_executor_name_instr(const ht_executor *e, size_t segment, size_t index, ht_status status);
/* What a device tells by itself may be of any command so far. */
ht_status ht_executor_name_newest(const ht_executor *e, ht_status status);

/* ---- tails.c ---- */

ht_status ht_executor_set_up_tails(ht_executor *e);
/* How many instructions of a segment run when it is run; the others are left as its tail. */
size_t ht_executor_head(const ht_executor *e, size_t segment);
void ht_executor_leave_tail(ht_executor *e, size_t segment, unsigned slot);
static inline bool ht_executor_has_tail(const ht_executor *e)
{
    return e->tail.next < e->tail.end;
}
/* What of the tail must run before an instruction of a segment, or can; before the end of the segment all. */
ht_status ht_executor_run_tail_before(ht_executor *e, size_t segment, size_t index, ht_lane **order);
/* All of the tail. */
ht_status ht_executor_finish_tail(ht_executor *e);
/* The same, if bytes that are to be read, or written, are the tail's. */
ht_status ht_executor_settle(ht_executor *e, ht_place place, size_t bytes, bool written);

/* ---- leads.c ---- */

ht_status ht_executor_set_up_leads(ht_executor *e);
/* Runs what of the lead of segment `next` can follow instruction `index` of a segment; HT_NO_LEAD: nothing is asked for. */
enum { HT_NO_LEAD = -1 };
ht_status ht_executor_run_lead_after(ht_executor *e, size_t segment, size_t index, int next, ht_lane **order);
/* How many instructions of a segment were run already, which is asked once. */
size_t ht_executor_take_lead(ht_executor *e, size_t segment);
/* The lane waits for an exchange; what a processor waits is counted. */
/* An observer's `took`: is what runs there timed by events? Then it is launched by the second, and told when its segment
 * is done, which is waited for; `begin`: the host's clock when the segment began. */
bool ht_executor_uses_clock(const ht_executor *e, const ht_queue *queue);
ht_status ht_executor_launch_timed(watched *w, ht_run_fn run, const ht_launch *launch);
ht_status ht_executor_tell_times(ht_executor *e, size_t segment, double begin);
void ht_executor_free_times(ht_executor *e);

ht_status ht_executor_wait_exchange(ht_executor *e, const ht_lane *lane, ht_event *event);

/* ---- caller_stream.c ---- */

void ht_executor_free_stream(ht_executor *e);

/* ---- recordings.c: a segment as one command ---- */

bool ht_executor_can_replay(const ht_executor *e, size_t segment);
ht_status ht_executor_replay(ht_executor *e, size_t segment, unsigned slot);
void ht_executor_free_recordings(ht_executor *e);

#endif
