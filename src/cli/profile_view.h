/* What `halftone profile`, and `train` where DeepSpeed's flops_profiler asks for it, show of a profile. */
#ifndef HT_CLI_PROFILE_VIEW_H
#define HT_CLI_PROFILE_VIEW_H

#include "report/report.h"
#include "train/train.h"

/* One batch size of inference. */
typedef struct cli_infer_row {
    int64_t batch;
    ht_infer_times times;
} cli_infer_row;

enum { CLI_MOST_BATCHES = 16 };

typedef struct cli_profile_view {
    const char *job, *model;
    const ht_profile *profile;
    int threads;
    int64_t ranks, params, warm_up;
    double save_begin, save_seconds; /* of one snapshot; 0: none was written. Begin: of ht_instr_clock */
    int64_t depth;                   /* of modules that are shown; -1: all */
    ht_byte_table bytes;
    cli_infer_row infer[CLI_MOST_BATCHES];
    size_t infer_count;
    ht_byte_table infer_bytes; /* of the first of them */
} cli_profile_view;

/* Everything, for the terminal. */
void cli_profile_text(ht_text *text, const cli_profile_view *view);
/* The modules alone, as a tree; top > 0: first the largest so many of each depth; detailed: with the tree. */
void cli_profile_modules(ht_text *text, const ht_profile *profile, int64_t depth, int64_t top, bool detailed);
/* Phases, kinds of work and bounds. */
void cli_profile_phases(ht_text *text, const ht_profile *profile, double save_seconds);
void cli_profile_json(ht_text *text, const cli_profile_view *view);
ht_status cli_profile_page(ht_context *ctx, const cli_profile_view *view, const char *path);

/* A module for a chart; the first is the model, and a parent stands before its children. */
typedef struct cli_module_time {
    const char *name;
    size_t parent;
    double forward_ms, backward_ms;
} cli_module_time;
void cli_profile_module_chart(ht_report *report, const char *title, const cli_module_time *modules, size_t count);

/* ---- tables, which the terminal and the page share ---- */

void cli_profile_phase_table(ht_table *table, const ht_profile *profile, double save_seconds);
void cli_profile_work_table(ht_table *table, const ht_profile *profile);
void cli_profile_bound_table(ht_table *table, const ht_profile *profile);
/* whole_names: instead of the last part of each, behind spaces. */
void cli_profile_module_table(ht_table *table, const ht_profile *profile, int64_t depth, bool whole_names);
/* Those that are alike but for the number of their layer are one row, and the slowest come first. */
void cli_profile_instr_table(ht_table *table, const ht_profile *profile, size_t most);
void cli_profile_infer_table(ht_table *table, const cli_profile_view *view);
/* Training against inference. */
void cli_profile_sides_table(ht_table *table, const cli_profile_view *view);
/* Lines of text: the step, FLOPs, MFU, throughput. */
void cli_profile_summary(ht_text *text, const cli_profile_view *view);
/* The weights against the caches of this processor. */
void cli_profile_caches(ht_text *text, const cli_profile_view *view);

/* ---- traces ---- */

/* Events of a rank in the format of Chrome and Perfetto, an array. */
void cli_profile_trace(ht_text *text, const cli_profile_view *view, int rank);

#endif
