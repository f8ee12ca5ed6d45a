/* sparse_weights: products by weights of which whole runs are zero are marked (matmul's attribute `sparse`), for kernels that leave
 * zeros out. In graphs that compute a trained model: training changes weights in every step, and nothing is prepacked there. */
#include <stdlib.h>
#include <string.h>

#include "pass/param_patterns.h"

static const ht_state *weight_of(const ht_graph *g, const ht_node *n, ht_val *w)
{
    if (strcmp(n->op->name, "matmul") != 0 || n->role != HT_ROLE_FWD) return NULL;
    *w = ht_node_in(g, n, 1);
    const ht_state *state = ht_state_of(g, *w);
    return state && state->heading == HT_HEADING_PARAMETERS ? state : NULL;
}

/* By value: is it the weight of a product? `name` receives that of one. */
static void find_weights(const ht_graph *g, bool *weights, const char **name)
{
    for (size_t s = 0; s < g->segment_count; s++)
        for (size_t i = 0; i < g->segments[s].node_count; i++) {
            ht_val w;
            if (!weight_of(g, &g->nodes[g->segments[s].nodes[i]], &w)) continue;
            weights[w.id] = true;
            *name = ht_value_of(g, w)->name;
        }
}

static void mark_products(ht_graph *g, const bool *sparse)
{
    for (size_t s = 0; s < g->segment_count; s++)
        for (size_t i = 0; i < g->segments[s].node_count; i++) {
            ht_val w;
            uint32_t id = g->segments[s].nodes[i];
            if (weight_of(g, &g->nodes[id], &w) && sparse[w.id]) ht_node_set_int(g, id, "sparse", 1);
        }
}

static ht_status sparse_weights_run(ht_graph *g, const ht_pass_env *env)
{
    const ht_sparse_options *o = &env->options->sparse;
    bool *weights = calloc(2 * (g->value_count + 1), sizeof *weights), *sparse = weights + g->value_count + 1;
    const char *name = NULL;
    if (!weights) HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for the choice of parameters");
    find_weights(g, weights, &name);
    ht_status status = HT_OK;
    for (size_t i = 0; i < o->count && status == HT_OK; i++) {
        size_t found;
        status = ht_params_match(g, "sparse", o->weights[i], weights, sparse, &found);
        if (status == HT_OK && found == 0)
            status = ht_fail(g->ctx, HT_EINVAL, "sparse: '%s' matches no weight of a product%s%s%s", o->weights[i],
                             name ? ", such as '" : "", name ? name : "", name ? "'" : "");
    }
    if (status == HT_OK) mark_products(g, sparse);
    free(weights);
    return status == HT_OK ? g->status : status;
}

/* ---- settings by name: one expression ---- */

static ht_status read_sparse(ht_context *ctx, void *settings, const char *name, const char *text)
{
    ht_sparse_options *options = settings;
    (void)ctx, (void)name;
    options->weights[0] = text;
    options->count = 1;
    return HT_OK;
}

static const ht_setting_key keys[] = {{.name = "sparse",
                                       .kind = HT_SETTING_CUSTOM,
                                       .read = read_sparse,
                                       .help = "weights whose zeros products leave out: a regular expression"},
                                      {.name = NULL}};

static const ht_pass_settings settings[] = {{keys, offsetof(ht_pass_options, sparse)}, {NULL, 0}};

const ht_pass ht_pass_sparse_weights = {
    .name = "sparse_weights",
    .help = "products by weights with many zeros leave them out",
    .run = sparse_weights_run,
    .settings = settings,
};
