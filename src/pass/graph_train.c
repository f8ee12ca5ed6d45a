/* ht_graph_train: the passes autodiff and optimizer on a graph of the caller's. */
#include <halftone/session.h>
#include <stdlib.h>
#include <string.h>

#include "pass/pass.h"

enum { TRAIN_NUMBERS = 10 };

/* The fields of ht_train_opts as settings, and what was given as settings behind them: there the last one counts. */
typedef struct train_settings {
    ht_text texts[TRAIN_NUMBERS];
    ht_settings list;
    ht_setting *pairs;
} train_settings;

static ht_status add_given(ht_context *ctx, train_settings *t, const ht_train_opts *o)
{
    for (size_t i = 0; i < o->setting_count; i++) {
        const ht_train_setting *given = &o->settings[i];
        if (!given->key || !given->value) HT_FAIL(ctx, HT_EINVAL, "setting %zu has no key or no value", i);
        if (strcmp(given->key, "accumulate") != 0 && !ht_optimizer_reads(given->key))
            HT_FAIL(ctx, HT_EINVAL, "setting %s: training has no such setting", given->key);
        t->pairs[t->list.count++] = (ht_setting){given->key, given->value};
    }
    return HT_OK;
}

static ht_status fill_settings(ht_context *ctx, train_settings *t, const ht_train_opts *o)
{
    const struct {
        const char *key;
        double value;
    } numbers[TRAIN_NUMBERS] = {
        {"lr", o->lr},
        {"beta1", o->beta1},
        {"beta2", o->beta2},
        {"eps", o->eps},
        {"weight_decay", o->weight_decay},
        {"momentum", o->momentum},
        {"dampening", o->dampening},
        {"nesterov", o->nesterov},
        {"clip", o->clip},
        {"accumulate", o->accumulate},
    };
    memset(t, 0, sizeof *t);
    t->pairs = calloc(1 + TRAIN_NUMBERS + o->setting_count, sizeof *t->pairs);
    if (!t->pairs) HT_FAIL(ctx, HT_ENOMEM, "out of memory for settings");
    t->list.pairs = t->pairs;
    t->pairs[t->list.count++] = (ht_setting){"optimizer", o->optimizer ? o->optimizer : "adamw"};
    for (size_t i = 0; i < TRAIN_NUMBERS; i++) {
        if (numbers[i].value == 0) continue;
        ht_text_number(&t->texts[i], numbers[i].value);
        if (!t->texts[i].data) HT_FAIL(ctx, HT_ENOMEM, "out of memory for settings");
        t->pairs[t->list.count++] = (ht_setting){numbers[i].key, t->texts[i].data};
    }
    return add_given(ctx, t, o);
}

ht_status ht_graph_train(ht_graph *g, const ht_train_opts *opts)
{
    ht_train_opts o = HT_TRAIN_OPTS;
    if (opts) memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    train_settings settings;
    ht_target target;
    ht_target_here(g->ctx, &target);
    ht_status status = ht_graph_status(g);
    if (status != HT_OK) return status;
    status = fill_settings(g->ctx, &settings, &o);
    if (status == HT_OK) status = ht_pass_run(g, ht_pass_find("autodiff"), &target, &settings.list);
    if (status == HT_OK) status = ht_pass_run(g, ht_pass_find("optimizer"), &target, &settings.list);
    for (size_t i = 0; i < TRAIN_NUMBERS; i++) ht_text_free(&settings.texts[i]);
    free(settings.pairs);
    return status;
}
