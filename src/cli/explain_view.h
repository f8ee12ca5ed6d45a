/* What `halftone explain` and the demo's page show of a job: the passes on the way to its plan, and the plan layer by
 * layer. */
#ifndef HT_CLI_EXPLAIN_VIEW_H
#define HT_CLI_EXPLAIN_VIEW_H

#include "cli/stage_table.h"
#include "report/report.h"
#include "train/train.h"

typedef struct cli_pass_note {
    const ht_pass *pass;
    uint64_t model_hash; /* of what it left */
    size_t nodes, casts;
} cli_pass_note;

enum { CLI_MOST_PASSES = 32 };

typedef struct cli_explained {
    ht_context *ctx;
    /* Wishes. */
    bool keep_text;        /* the graph's text after each pass */
    const char *only_pass; /* after this pass alone; NULL: every one */
    /* Answers. */
    ht_plan *plan;
    ht_explanation table;
    cli_pass_note passes[CLI_MOST_PASSES];
    size_t pass_count;
    ht_text graphs;
    ht_graph *last;    /* as the last pass left it */
    cli_stages stages; /* of a job on several ranks */
} cli_explained;

/* Plans the job, without fusion where `request` says so; wishes come filled in. After a failure, too, free. */
ht_status cli_explain(cli_explained *explained, ht_context *ctx, const ht_run_request *request);
void cli_explained_free(cli_explained *explained);

/* A layer with parameters: of each block the row that it is there for; NULL: it has none. */
typedef struct cli_layer_blocks {
    const char *layer;
    const ht_explain_row *block[HT_FIGURE_COUNT];
} cli_layer_blocks;

/* The layer of that name, or with NULL the one with the largest products; it is valid as long as what was explained. */
ht_status cli_explain_layer(cli_layer_blocks *out, const cli_explained *explained, const char *layer);
/* The floating-point types that a block reads or makes: "f16", "f16/f32"; "" without a row. */
void cli_block_types(char *text, size_t size, const ht_explain_row *row, bool out);

/* Figure 1 of the paper for that layer, with a word on where we differ: on a page, or as a file by itself. */
ht_status cli_figure1_report(ht_report *report, const cli_explained *explained, const char *layer);
ht_status cli_figure1_svg(ht_text *text, const cli_explained *explained, const char *layer);

/* A line per layer with parameters: what the product of each block reads and makes. */
void cli_explain_figure(ht_text *text, const cli_explained *explained);
/* `all`: layers that are alike but for their number stay apart. */
void cli_explain_table(ht_text *text, const cli_explained *explained, bool all);
/* Of the job in this file: its compress.json, where one lies beside it. */
void cli_explain_layers(ht_text *text, const char *job);
/* Of its text: what is kept from forward to backward, and what is computed again. */
void cli_explain_memory(ht_text *text, const cli_explained *explained, bool all);
/* The arrays "kept", "moved" and "recomputed". */
void cli_explain_memory_json(ht_json_writer *json, const cli_explained *explained);
void cli_explain_json(ht_text *text, const cli_explained *explained);
/* A drawing for Graphviz: a box for each block of a layer, arrows with the number types that flow. */
ht_status cli_explain_dot(ht_text *text, const cli_explained *explained);
/* The table on a page. */
ht_status cli_explain_report(ht_report *report, const cli_explained *explained);
/* All of it for a job: the table on a page, and the lines of cli_explain_figure, for which `figure` may be NULL. */
ht_status cli_explain_on_page(ht_report *report, ht_text *figure, ht_context *ctx, const ht_run_request *request);

/* The layer's name with numbers that stand alone as *: "h.3.mlp" and "h.*.mlp". Heap memory; NULL when memory is out. */
char *cli_layer_pattern(const char *layer);

#endif
