/* A profile: steps of a run, measured instruction by instruction. */
#ifndef HT_TRAIN_PROFILE_H
#define HT_TRAIN_PROFILE_H

#include "exec/exec.h"

struct ht_run;

/* Where the time of a step goes. All but the last two are its wall time, cut in pieces. */
typedef enum ht_phase {
    HT_PHASE_DATA,    /* batches are made */
    HT_PHASE_FORWARD, /* instructions, by their role */
    HT_PHASE_BACKWARD,
    HT_PHASE_UPDATE,
    HT_PHASE_RECORDS, /* losses and rates are read back and written to the metrics */
    HT_PHASE_REST,    /* gaps between instructions, and waits */
    /* On queues of their own, beside the others: what these wait for is in the rest. */
    HT_PHASE_COMMUNICATION,
    HT_PHASE_COPIES, /* between memories */
    HT_PHASE_COUNT
} ht_phase;
extern const char *const ht_phase_names[HT_PHASE_COUNT];

/* An instruction; of all steps the mean. */
typedef struct ht_instr_profile {
    const ht_plan_segment *segment;
    size_t index; /* in it */
    const ht_instr *instr;
    const char *layer;
    ht_phase phase;
    double seconds, runs; /* of a step */
    ht_work work;
    ht_roofline limit; /* of one run */
} ht_instr_profile;

/* A part of a step that no instruction tells: data, records. Seconds of ht_instr_clock. */
typedef struct ht_phase_span {
    ht_phase phase;
    double begin, end;
} ht_phase_span;

/* Sums over a step. */
typedef struct ht_phase_profile {
    double seconds, flops, bytes;
    double limit_seconds;                 /* that its instructions would take at the ceilings */
    double bound_seconds[HT_BOUND_COUNT]; /* of its instructions, by what bounds them */
} ht_phase_profile;

/* Adds an instruction, which is of one of the kinds that the sum is about. */
void ht_phase_profile_add(ht_phase_profile *sum, const ht_instr_profile *instr);

typedef struct ht_profile {
    const ht_plan *plan;
    size_t steps, capacity;
    double *step_begin, *step_seconds; /* by step; begin: of ht_instr_clock */
    double mean_seconds;
    double samples, tokens; /* of a step; tokens: 0 where there are none */
    ht_phase_profile phases[HT_PHASE_COUNT];
    ht_instr_profile *instrs; /* that ran, in the order of the plan */
    size_t instr_count;
    ht_step_flops flops;
    double product_seconds; /* that the products of forward and backward take at the ceilings, without recomputation */
    double product_seconds_default; /* the same at the shipped ceilings (docs/target.md) */
    bool measured_ceilings;         /* the target has ceilings of its own */
    ht_module_tree modules;
    double counters[HT_COUNTER_COUNT]; /* hardware counters of the process, of a step... */
    char no_counters[128];             /* ...or why there are none; "": there are */
    ht_phase_span *spans; /* of all steps, where events are kept for a trace; as many as there is memory for */
    size_t span_count, span_capacity;
    /* while it is made */
    struct ht_run *run;
    ht_instr_times *times;
    double data_seconds, record_seconds; /* of all steps */
    ht_perf_counters *hardware;          /* NULL: none */
    bool observes;
} ht_profile;

/* Observes the run's session from now on. `most_steps` can be made; `most_events` are kept for a trace. */
ht_status ht_profile_open(ht_profile **out, struct ht_run *run, size_t most_steps, size_t most_events);
/* ht_run_step, measured. *dropped as there: then nothing was. */
ht_status ht_profile_step(ht_profile *profile, bool *dropped);
/* Of the step that is being made: who makes it tells how long a part took. Takes NULL. */
void ht_profile_span(ht_profile *profile, ht_phase phase, double begin, double end);
/* Observes no longer, and sums up. It is valid as long as the run. */
ht_status ht_profile_finish(ht_profile *profile);
void ht_profile_free(ht_profile *profile); /* takes NULL */

/* The phase that an instruction belongs to. */
ht_phase ht_instr_phase(const ht_instr *instr);
/* The p-th percentile of the steps, in seconds. */
double ht_profile_percentile(const ht_profile *profile, double p);
/* Share of the ceilings for products that forward and backward reach, recomputation left out (MFU). */
double ht_profile_mfu(const ht_profile *profile, bool measured);

#endif
