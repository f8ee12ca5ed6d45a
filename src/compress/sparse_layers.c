/* Which layers compute without their runs of zeros: the key train.sparse of the result. Of weights that were pruned those whose zeros
 * come in runs are tried, and kept where this machine is faster so. */
#include <string.h>

#include "compress/compression.h"

enum { TA, TB };                       /* attributes of matmul */
enum { RUN = 16 };                     /* outputs beside each other: a vector of the widest instruction set */
static const double least_share = 0.2; /* of such runs that are zero: fewer gain nothing anywhere */

/* The share of runs of RUN elements along the axis that are zero; the last one of a line may be shorter. */
static double share_of_runs(const ht_weight *weight, int axis)
{
    int64_t rows = ht_weight_rows(weight), columns = ht_weight_columns(weight), zero = 0;
    int64_t along = axis ? columns : rows, lines = axis ? rows : columns, runs = lines * ((along + RUN - 1) / RUN);
    for (int64_t line = 0; line < lines; line++)
        for (int64_t first = 0; first < along; first += RUN) {
            int64_t i = first, end = along - first < RUN ? along : first + RUN;
            while (i < end && ht_weight_get(weight, axis ? line * columns + i : i * columns + line) == 0) i++;
            zero += i == end;
        }
    return runs > 0 ? (double)zero / (double)runs : 0;
}

/* The axis of outputs of a weight by which the model multiplies; -1: there is no such product. */
static int output_axis(const ht_graph *g, const char *name)
{
    for (size_t s = 0; s < g->segment_count; s++)
        for (size_t i = 0; i < g->segments[s].node_count; i++) {
            const ht_node *n = &g->nodes[g->segments[s].nodes[i]];
            if (n->role != HT_ROLE_FWD || strcmp(n->op->name, "matmul") != 0) continue;
            ht_val w = ht_node_in(g, n, 1);
            if (ht_state_of(g, w) && strcmp(ht_value_of(g, w)->name, name) == 0) return n->attr[TB].i ? 0 : 1;
        }
    return -1;
}

static ht_status open_model(ht_compression *c, ht_graph **out)
{
    ht_config *config;
    HT_TRY(ht_compression_config(c, NULL, 0, &config));
    ht_run_request request = {
        .config = config, .mode = HT_RUN_NEW, .folder = c->request->run, .data_folder = c->data_folder};
    ht_status status = ht_run_model(out, c->ctx, &request);
    ht_config_free(config);
    return status;
}

static bool is_candidate(const ht_graph *g, const ht_weight *weight)
{
    int axis = weight->array.rank == 2 ? output_axis(g, weight->name) : -1;
    return axis >= 0 && share_of_runs(weight, axis) >= least_share;
}

static size_t add_candidate(ht_text *names, size_t count, const char *name)
{
    ht_text_add(names, "%s", count ? "|" : "^(");
    ht_compression_add_name(names, name);
    return count + 1;
}

/* The key with the weights whose names the expression matches; without any it is none. */
static ht_status set_key(ht_compression *c, size_t count, ht_text *names)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    if (count) ht_text_add(names, ")$");
    ht_json_begin_array(&json, NULL);
    if (count) ht_json_put_text(&json, NULL, names->failed ? "" : names->data);
    ht_json_end_array(&json);
    ht_status status = names->failed || text.failed
                           ? ht_fail(c->ctx, HT_ENOMEM, "out of memory for names")
                           : ht_compression_set(c, "train.sparse=%s", count ? text.data : "null");
    ht_text_free(&text);
    return status;
}

/* Candidates are all tensors that have zeros by now, those of steps and runs before, too. */
static ht_status try_all(ht_compression *c, const ht_graph *g, size_t *count)
{
    ht_text names = {0};
    *count = 0;
    for (size_t i = 0; i < c->weights.count; i++)
        if (is_candidate(g, &c->weights.items[i])) *count = add_candidate(&names, *count, c->weights.items[i].name);
    ht_status status = set_key(c, *count, &names);
    ht_text_free(&names);
    return status;
}

static ht_status keep_faster(ht_compression *c, size_t candidates)
{
    ht_text names = {0};
    size_t kept = 0, tried = 0;
    for (size_t i = 0; i < c->layer_count; i++) {
        if (!c->layers[i].sparse) continue;
        tried++;
        if (!c->layers[i].slower) kept = add_candidate(&names, kept, c->layers[i].name);
    }
    ht_status status = set_key(c, kept, &names);
    if (tried)
        ht_compression_note(c, "prune: %zu of %zu layers with runs of zeros are faster without them here", kept, tried);
    else
        ht_compression_note(c, "prune: %zu layers have runs of zeros, and none is computed without them in %s",
                            candidates, ht_config_train(c->config)->precision);
    ht_text_free(&names);
    return status;
}

ht_status ht_compression_choose_sparse(ht_compression *c)
{
    ht_graph *g = NULL;
    size_t count = 0;
    HT_TRY(open_model(c, &g));
    ht_status status = try_all(c, g, &count);
    ht_graph_free(g);
    if (status != HT_OK || !count) return status;
    HT_TRY(ht_compression_time_sparse(c));
    return keep_faster(c, count);
}
