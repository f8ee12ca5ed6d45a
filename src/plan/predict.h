/* How long a plan takes, before it runs: costs of its instructions, the figures of its target, and where the caches are
 * while they run (docs/planning.md). Part of plan/plan.h. */
#ifndef HT_PLAN_PREDICT_H
#define HT_PLAN_PREDICT_H

#include "plan/roofline.h"

/* Of one run of an instruction. */
typedef struct ht_instr_prediction {
    double seconds;
    double memory_s; /* that its bytes take from where they are; within seconds */
    bool measured;   /* by efficiencies of the target; false: the bound of the roofline */
} ht_instr_prediction;

/* Of one run of a segment. */
typedef struct ht_segment_prediction {
    ht_instr_prediction *instrs; /* NULL: the program does not run it */
    double seconds;
    double waits; /* of them: for copies and exchanges that take longer than what runs beside them */
} ht_segment_prediction;

typedef struct ht_prediction {
    ht_arena *arena;
    const ht_plan *plan;
    ht_segment_prediction *segments; /* as the plan's */
    bool no_network;                 /* ranks exchange, and the target does not say how fast: exchanges count nothing */
} ht_prediction;

/* Of a program, "train", and of its further shapes of batches ("micro_first:1"). To be freed whatever the result. */
ht_status ht_plan_predict(ht_prediction *out, const ht_plan *plan, const char *program);
void ht_prediction_free(ht_prediction *prediction);

/* A step: the calls of the program, with batches of a shape, 0 for the plan's own and 1, 2 ... for "micro:1" and so on. */
typedef struct ht_step_prediction {
    double seconds, forward, backward, update, waits; /* forward to update: of instructions */
    double product_s;                                 /* that products take at the ceilings, without recomputation */
    double measured_s;                                /* of the instructions: by efficiencies of the target */
    double flops, bytes;                              /* of everything that runs, bytes of main */
    double joules;                                    /* of these, by the target's figures; without unknown_joules */
    bool unknown_joules;                              /* the target has no figure for some of them */
} ht_step_prediction;
ht_step_prediction ht_prediction_step(const ht_prediction *prediction, const char *program, int shape);

/* ---- its parts ---- */

/* Three measured points of a family: work per second against the size of the call. */
typedef struct ht_family_curve {
    bool known;
    bool product;                 /* work: dot FLOPs; else elements, and of a GPU bytes */
    bool falls;                   /* a call that is smaller than the smallest is slower by as much */
    double x[HT_FAMILY_SIZES];    /* ht_call_size */
    double rate[HT_FAMILY_SIZES]; /* work per second */
    double flop_rate;             /* FLOP/s of the smallest, which its caches hold */
} ht_family_curve;

/* A graph of one of the samples of a family: the segment "forward" has inputs and the op. */
ht_status ht_family_graph(ht_context *ctx, ht_arena *arena, const ht_family_row *family, ht_device_kind device,
                          int size, ht_graph **out);
/* Of all families; false: out of memory. */
bool ht_family_curves(ht_context *ctx, const ht_target *target, ht_family_curve curves[HT_MOST_FAMILIES]);
/* Straight lines between the points, on logarithmic axes, which go on as they end. */
double ht_family_rate(const ht_family_curve *curve, double x);
/* What a sample of a family takes at the ceilings: efficiency is this over the measured time. */
double ht_sample_limit(const ht_target *target, int format, ht_cost cost);

/* The family of a call that an instruction runs: products of f32 in another format have families of their own. */
int ht_instr_family(const ht_target *target, const ht_instr *instr, const ht_call *call);
/* Elements that a call reads and writes, each once, as its cost counts them: of a table only the rows that are looked up. */
double ht_call_elements(const ht_call *call);
/* What the efficiency of a call depends on. Of a product the FLOPs for each of its elements (of a convolution, and for each
 * place of its window, which leaves the channels; of one with few places their number in all
 * images); of a batchnorm and of a convolution in groups the elements of a plane, that is of an image's channel; else all
 * its elements. */
double ht_call_size(const ht_call *call);
/* The same on a GPU: of a product its FLOPs, which fill the device; of a convolution as above, of attention the FLOPs for
 * each element, of an LSTM those of a step; else the bytes. */
double ht_cuda_call_size(const ht_call *call);

/* Where bytes were left: a least-recently-used model of the caches, by pages of the plan's areas. */
typedef struct ht_cache_model ht_cache_model;
typedef struct ht_traffic {
    double bytes[HT_CACHE_COUNT + 1]; /* by cache, last from memory and back to it: all that its bus has to carry */
} ht_traffic;
ht_cache_model *ht_cache_model_create(const ht_plan *plan); /* NULL: out of memory */
void ht_cache_model_free(ht_cache_model *model);
/* What runs rows by rows with what follows: until the end, values that are touched are in the second cache. */
void ht_cache_model_block(ht_cache_model *model, bool begin);
/* An instruction runs; its bytes by where they come from. */
ht_traffic ht_cache_model_run(ht_cache_model *model, const ht_instr *instr);

#endif
