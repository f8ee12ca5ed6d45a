/* ht_graph_train: the passes autodiff and optimizer on a graph of the caller's. */
#include <halftone/session.h>
#include <string.h>

#include "pass/pass.h"

/* The optimiser that counts: a setting goes before its field. */
static const char *chosen_optimizer(const ht_train_opts *o)
{
    const char *name = o->optimizer ? o->optimizer : "adamw";
    for (size_t i = 0; i < o->setting_count; i++) {
        const ht_train_setting *given = &o->settings[i];
        if (given->key && given->value && strcmp(given->key, "optimizer") == 0) name = given->value;
    }
    return name;
}

static void take_number(double *to, double value)
{
    if (value != 0) *to = value;
}

static ht_status read_train_opts(ht_context *ctx, const ht_train_opts *o, ht_pass_options *options)
{
    ht_train_options *train = &options->train;
    *options = ht_pass_options_standard();
    options->training = true;
    HT_TRY(ht_train_options_choose(ctx, train, chosen_optimizer(o)));
    train->lr = o->lr;
    take_number(&train->clip, o->clip);
    take_number(&train->hyper.beta1, o->beta1);
    take_number(&train->hyper.beta2, o->beta2);
    take_number(&train->hyper.eps, o->eps);
    take_number(&train->hyper.weight_decay, o->weight_decay);
    take_number(&train->hyper.momentum, o->momentum);
    take_number(&train->hyper.dampening, o->dampening);
    train->hyper.nesterov |= o->nesterov;
    if (o->accumulate) train->accumulate = o->accumulate;
    return ht_pass_options_read(ctx, options, HT_STAGE_TRAIN, o->setting_count, o->settings);
}

ht_status ht_graph_train(ht_graph *g, const ht_train_opts *opts)
{
    ht_train_opts o = HT_TRAIN_OPTS;
    if (opts) memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    ht_pass_options options;
    ht_target target;
    HT_TRY(ht_graph_status(g));
    HT_NEED(g->ctx, o.settings || o.setting_count == 0, "opts->settings");
    HT_TRY(read_train_opts(g->ctx, &o, &options));
    ht_target_here(g->ctx, &target);
    return ht_pipeline_run(g, HT_STAGE_TRAIN, &(ht_pass_env){.target = &target, .options = &options}, NULL);
}
