/* exec: walk a plan. An executor binds the plan's spaces to devices, owns the memory there, and resolves places to
 * addresses once; running is a loop over instructions that allocates nothing and waits for nothing. */
#ifndef HT_EXEC_H
#define HT_EXEC_H

#include "comm/comm.h"
#include "device/device.h"
#include "plan/plan.h"

typedef struct ht_executor ht_executor;

/* Allocates all areas, zeroed and touched. The plan is borrowed; its device is opened in its context. Of the options, which
 * may be NULL, those of the disk and the ranks are used. */
ht_status ht_executor_create(ht_executor **out, const ht_plan *plan, const ht_session_opts *opts);
void ht_executor_free(ht_executor *executor);
/* From now on segments may become one command of the device, where it has such: at their second run, since what the first
 * one opens could not be opened while a recording is made. */
void ht_executor_allow_recordings(ht_executor *executor);
ht_device *ht_executor_device(const ht_executor *executor);

/* One segment by index, with the inputs of a slot. What a device does later fails later: at the latest in
 * ht_executor_sync. */
ht_status ht_executor_run(ht_executor *executor, size_t segment, unsigned slot);
/* The same for a segment behind which `next` will be run at once: what of that one need not wait begins meanwhile. */
ht_status ht_executor_run_before(ht_executor *executor, size_t segment, unsigned slot, size_t next);
/* The host waits until everything that was run is done. */
ht_status ht_executor_sync(ht_executor *executor);
/* The same before memory that commands may still use is given back; whether they failed was or will be told elsewhere. */
void ht_executor_drain(ht_executor *executor);
/* What has failed so far, without waiting. */
ht_status ht_executor_status(const ht_executor *executor);

/* ---- bytes. An input's place is that of slot 0; further slots lie behind it (ht_executor_slot_place). ---- */

ht_place ht_executor_slot_place(const ht_executor *executor, ht_place place, unsigned slot);
/* For the CPU's own memory: the bytes themselves. NULL elsewhere. */
const void *ht_executor_host(const ht_executor *executor, ht_place place);
/* The same for writing, `bytes` from there on, before the next run: what was prepacked from that state is made again. */
void *ht_executor_host_open(ht_executor *executor, ht_place place, size_t bytes);
/* Bytes where the host can read them: the CPU's own, or else a copy in the stage, until it is used again. */
typedef struct ht_host_copy {
    void *data; /* heap memory for free() */
    size_t bytes;
} ht_host_copy;
ht_status ht_executor_view(ht_executor *executor, ht_place place, size_t bytes, ht_host_copy *stage, const void **out);
/* The same for what may be large: one piece after the other, each until the next, in a stage of bounded size; the CPU's own
 * in one piece. */
typedef ht_status (*ht_piece_fn)(void *arg, size_t offset, const void *data, size_t bytes);
ht_status ht_executor_view_pieces(ht_executor *executor, ht_place place, size_t bytes, ht_host_copy *stage,
                                  ht_piece_fn piece, void *arg);
/* Both wait: `data` is the caller's again when they return. */
ht_status ht_executor_read(ht_executor *executor, ht_place place, void *data, size_t bytes);
ht_status ht_executor_write(ht_executor *executor, ht_place place, const void *data, size_t bytes);
/* In the order of the runs, without waiting: `data` is ready after an event that is recorded later, or a sync. */
ht_status ht_executor_fetch(ht_executor *executor, ht_place place, void *data, size_t bytes);
ht_status ht_executor_send(ht_executor *executor, ht_place place, const void *data, size_t bytes);
/* Inputs of a slot, beside the runs of other slots: `begin` waits, on the device, for the last run that read the slot;
 * runs of the slot wait for `end`. The data of a feed must stay until `sent` has come to pass. */
ht_status ht_executor_feed_begin(ht_executor *executor, unsigned slot);
ht_status ht_executor_feed(ht_executor *executor, unsigned slot, ht_place place, const void *data, size_t bytes);
ht_status ht_executor_feed_end(ht_executor *executor, unsigned slot, ht_event *sent);
/* Between two places of one space, in the order of the runs. */
ht_status ht_executor_copy(ht_executor *executor, ht_place to, ht_place from, size_t bytes);
/* The same between a place in main and memory of its device that is not the executor's. */
ht_status ht_executor_copy_in(ht_executor *executor, ht_place to, const void *from, size_t bytes);
ht_status ht_executor_copy_out(ht_executor *executor, void *to, ht_place from, size_t bytes);

/* ---- a stream of the program around us, such as CUDA's: borrowed; NULL: none ---- */

ht_status ht_executor_set_stream(ht_executor *executor, void *stream);
bool ht_executor_has_stream(const ht_executor *executor);
/* What is run from now on waits for all that is in the stream. */
ht_status ht_executor_follow_stream(ht_executor *executor);
/* What comes into the stream from now on waits for all that was run. */
ht_status ht_executor_lead_stream(ht_executor *executor);

/* An event of the main device, and its place in the order of the runs. */
ht_status ht_executor_event(const ht_executor *executor, ht_event **out);
ht_status ht_executor_record(ht_executor *executor, ht_event *event);
/* A function of the host, in the order of the runs. */
ht_status ht_executor_call(ht_executor *executor, void (*fn)(void *arg), void *arg);

/* Seconds so far in which exchanges with other ranks were waited for, with nothing else to do; where the main device runs
 * commands later, nobody counts them. */
double ht_executor_waited(const ht_executor *executor);

/* ---- looking ---- */

/* Called around every instruction, where and when it runs: in the thread of its device. A row block is told as a whole,
 * and between that around each piece of each of its parts, in several threads at once. */
typedef struct ht_observation {
    const ht_plan_segment *segment;
    const ht_instr *instr;
    int64_t first_row, end_row; /* of a part of a row block: the rows of this piece; 0, 0: the whole instruction */
    size_t row_block;           /* the row block that begins with `instr`, as a whole: its parts; 0: none */
} ht_observation;
typedef struct ht_observer {
    void *arg;
    void (*before)(void *arg, const ht_observation *at); /* all may be NULL */
    void (*after)(void *arg, const ht_observation *at);
    /* Instead of both, of a device with a clock of its own: when its segment is done, seconds of ht_instr_clock. */
    void (*took)(void *arg, const ht_observation *at, double begin, double end);
} ht_observer;
/* From the next run on; NULL: nobody looks. The observer is borrowed. */
ht_status ht_executor_observe(ht_executor *executor, const ht_observer *observer);

/* One result of an instruction, right after it ran; false: enough. Later instructions may take its bytes. */
typedef bool (*ht_trace_fn)(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data);
/* ht_executor_run, with every result shown as soon as it is made, until `trace` has seen enough: then the segment is left
 * half done. For plans made with no_fusion: elsewhere some values never exist, and it is refused. Waits at every
 * instruction. */
ht_status ht_executor_trace(ht_executor *executor, size_t segment, unsigned slot, ht_trace_fn trace, void *arg);

/* ht_executor_run, one instruction after the other, those of a row block too; `visit` runs each, or has seen enough: then
 * the segment is left half done. The launch is that of the instruction. Waits at every instruction. */
typedef ht_status (*ht_visit_fn)(void *arg, const ht_instr *instr, const ht_launch *launch, bool *enough);
ht_status ht_executor_walk(ht_executor *executor, size_t segment, unsigned slot, ht_visit_fn visit, void *arg);

/* A value that is not finite: the result of one op, which may be part of a fused instruction. */
typedef struct ht_bad_value {
    const ht_instr *instr; /* NULL: there is none */
    ht_instr op; /* call, places and provenance of that op alone; a place that it does not have in memory: NONE */
    size_t result;
    int64_t inf, nan;
    ht_place in[HT_STEP_OPERANDS], out[HT_STEP_OPERANDS]; /* op's, of a fused one */
} ht_bad_value;
/* Runs a segment up to the first value that is not finite, or up to just before the first instruction that `until` (may be
 * NULL) is true of. The plan is the executor's. Values inside fused instructions are counted where they are made: it needs no memory. */
typedef bool (*ht_until_fn)(const ht_plan *plan, const ht_instr *instr);
ht_status ht_executor_find_nonfinite(ht_executor *executor, const ht_plan *plan, size_t segment, unsigned slot,
                                     ht_until_fn until, ht_bad_value *out);
/* How many elements at a place are not finite. */
ht_status ht_executor_count_nonfinite(ht_executor *executor, ht_place place, const ht_type *type, int64_t *inf,
                                      int64_t *nan);

/* A session of the public API. */
struct ht_session {
    const ht_plan *plan;
    ht_executor *executor;
    bool stale;   /* a parameter was written: "derive" runs before anything else does */
    bool updated; /* an update was started that nobody has waited for */
};

/* ht_session_start of one segment, with the inputs of a slot. */
ht_status ht_session_start_segment(ht_session *session, size_t segment, unsigned slot);
/* As ht_executor_run_before. */
ht_status ht_session_start_before(ht_session *session, size_t segment, unsigned slot, size_t next);

#include "exec/instr_times.h"
#include "exec/perf_counters.h"

#endif
