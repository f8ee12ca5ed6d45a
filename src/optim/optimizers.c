#include "optim/optim.h"

#include <assert.h>
#include <math.h>
#include <stddef.h>
#include <string.h>

/* ---- hyper-parameters ---- */

const ht_setting_key ht_hyper_keys[] = {
#define HT_HYPER(id, k, type, l, h, place, text)                                                                       \
    {.name = #id, .kind = HT_SETTING_##k, .at = offsetof(ht_hyper, id), .low = l, .high = h, .help = text},
#include "optim/hyper.def"
#undef HT_HYPER
    {.name = NULL}};

typedef enum hyper_place { OWN_KEY, ELSEWHERE } hyper_place;

static const hyper_place places[] = {
#define HT_HYPER(id, k, type, l, h, place, text) place,
#include "optim/hyper.def"
#undef HT_HYPER
};

bool ht_hyper_has_own_key(const ht_setting_key *key)
{
    return places[key - ht_hyper_keys] == OWN_KEY;
}

/* ---- optimisers ---- */

#define HT_OPTIMIZER(id) extern const ht_optimizer ht_optimizer_##id;
#include "optim/optimizers.def"
#undef HT_OPTIMIZER

const ht_optimizer *const ht_optimizers[] = {
#define HT_OPTIMIZER(id) &ht_optimizer_##id,
#include "optim/optimizers.def"
#undef HT_OPTIMIZER
    NULL};

static const char listed[] =
#define HT_OPTIMIZER(id) ", " #id
#include "optim/optimizers.def"
#undef HT_OPTIMIZER
    ;

const ht_optimizer *ht_optimizer_find(const char *name, const char **names)
{
    if (names) *names = listed + strlen(", ");
    for (size_t i = 0; ht_optimizers[i]; i++)
        if (strcmp(ht_optimizers[i]->name, name) == 0) return ht_optimizers[i];
    return NULL;
}

ht_hyper ht_optimizer_standards(const ht_optimizer *optimizer)
{
    ht_hyper hyper = {0};
    for (const ht_hyper_param *param = optimizer->params; param->name; param++) {
        const ht_setting_key *key = ht_setting_find(ht_hyper_keys, param->name);
        assert(key);
        if (key->kind == HT_SETTING_SWITCH)
            *(bool *)((char *)&hyper + key->at) = param->standard != 0;
        else
            *(double *)((char *)&hyper + key->at) = param->standard;
    }
    return hyper;
}

const ht_hyper_param *ht_optimizer_param(const ht_optimizer *optimizer, const char *name)
{
    for (const ht_hyper_param *param = optimizer->params; param->name; param++)
        if (strcmp(param->name, name) == 0) return param;
    return NULL;
}
