#include <string.h>

#include "pass/pass.h"

#define HT_PASS(id) extern const ht_pass ht_pass_##id;
#include "pass/passes.def"
#undef HT_PASS

const ht_pass *const ht_passes[] = {
#define HT_PASS(id) &ht_pass_##id,
#include "pass/passes.def"
#undef HT_PASS
    NULL,
};

const ht_pass *ht_pass_find(const char *name)
{
    for (size_t i = 0; ht_passes[i]; i++)
        if (strcmp(ht_passes[i]->name, name) == 0) return ht_passes[i];
    return NULL;
}

const char *ht_setting_text(const ht_settings *settings, const char *key, const char *standard)
{
    for (size_t i = settings ? settings->count : 0; i-- > 0;)
        if (strcmp(settings->pairs[i].key, key) == 0) return settings->pairs[i].value;
    return standard;
}

ht_status ht_setting_number(ht_context *ctx, const ht_settings *settings, const char *key, double standard, double *out)
{
    const char *text = ht_setting_text(settings, key, NULL);
    *out = standard;
    if (text && !ht_number_read(text, out)) HT_FAIL(ctx, HT_EINVAL, "setting %s: '%s' is no number", key, text);
    return HT_OK;
}

ht_status ht_pass_run(ht_graph *g, const ht_pass *pass, const ht_target *target, const ht_settings *settings)
{
    uint64_t before = pass->system ? ht_model_hash(g) : 0;
    HT_TRY(pass->run(g, target, settings));
    ht_status status = ht_graph_verify(g);
    if (status != HT_OK) {
        char message[sizeof g->ctx->message];
        memcpy(message, g->ctx->message, sizeof message);
        HT_FAIL(g->ctx, status, "after pass %s: %s", pass->name, message);
    }
    if (pass->system && ht_model_hash(g) != before)
        HT_FAIL(g->ctx, HT_EVERIFY, "pass %s changed the model", pass->name);
    return HT_OK;
}

ht_status ht_pass_run_observed(ht_graph *g, const ht_pass *pass, const ht_target *target, const ht_settings *settings,
                               const ht_pass_observer *observer)
{
    HT_TRY(ht_pass_run(g, pass, target, settings));
    return observer ? observer->after(observer->arg, pass, g) : HT_OK;
}

const char *ht_prec_name(ht_prec prec)
{
    static const char *const names[] = {
        [HT_PREC_DOT] = "dot",   [HT_PREC_REDUCE] = "reduce", [HT_PREC_POINT] = "point",
        [HT_PREC_MOVE] = "move", [HT_PREC_EXACT] = "exact",
    };
    return names[prec];
}
