/* A plugin as a user would write one: logistic regression. Options: {"refuse": true} makes its build fail. */
#include <string.h>

#include <halftone/plugin.h>

static ht_status build(ht_graph *g, const ht_plugin_request *r)
{
    if (strstr(r->options, "refuse")) return HT_EINVAL;
    int64_t features = r->feature[0];
    ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){r->batch, features});
    ht_val label = ht_input(g, "label", HT_I32, 1, &r->batch);
    ht_val w = ht_param(g, "w", HT_F32, 2, (int64_t[]){features, r->classes}, HT_NORMAL(0, 0.1));
    ht_val dropped = ht_dropout(g, x, 0.1, ht_rng_state(g), "x");
    ht_output(g, "loss", ht_cross_entropy(g, ht_matmul(g, dropped, w, NULL), label, NULL));
    return ht_graph_status(g);
}

const ht_plugin *halftone_plugin(void)
{
    static const ht_plugin plugin = {sizeof plugin, HT_PLUGIN_ABI, "linear", build};
    return &plugin;
}
