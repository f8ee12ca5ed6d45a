#include "pass/param_patterns.h"

#include <regex.h>
#include <stdlib.h>
#include <string.h>

static ht_status compile(ht_context *ctx, const char *setting, const char *pattern, regex_t *out)
{
    int wrong = regcomp(out, pattern, REG_EXTENDED | REG_NOSUB);
    if (!wrong) return HT_OK;
    char why[128];
    regerror(wrong, out, why, sizeof why);
    HT_FAIL(ctx, HT_EINVAL, "%s: '%s' is no regular expression: %s", setting, pattern, why);
}

/* By state: is it a trained parameter whose name matches? *count of them. */
static ht_status find_matches(ht_graph *g, const char *setting, const char *pattern, bool *matches, size_t *count)
{
    regex_t expression;
    HT_TRY(compile(g->ctx, setting, pattern, &expression));
    *count = 0;
    for (size_t i = 0; i < g->state_count; i++) {
        const char *name = ht_value_of(g, g->states[i].value)->name;
        matches[i] = g->states[i].trained && regexec(&expression, name, 0, NULL, 0) == 0;
        *count += matches[i];
    }
    regfree(&expression);
    return HT_OK;
}

/* With the name of a parameter that could have matched, for those who do not know what names look like here. */
static ht_status fail_unmatched(ht_graph *g, const char *setting, const char *pattern)
{
    size_t i = 0;
    while (i < g->state_count && !g->states[i].trained) i++;
    const char *name = i < g->state_count ? ht_value_of(g, g->states[i].value)->name : NULL;
    HT_FAIL(g->ctx, HT_EINVAL, "%s: '%s' matches no parameter that is trained%s%s%s", setting, pattern,
            name ? ", such as '" : "", name ? name : "", name ? "'" : "");
}

static ht_status no_memory(ht_graph *g)
{
    return ht_fail(g->ctx, HT_ENOMEM, "out of memory for the choice of parameters");
}

/* ---- freezing ---- */

static ht_status find_frozen(ht_graph *g, const ht_train_options *options, bool *matches, bool *frozen)
{
    for (size_t k = 0; k < options->freeze_count; k++) {
        size_t count;
        HT_TRY(find_matches(g, "freeze", options->freeze[k], matches, &count));
        if (count == 0) return fail_unmatched(g, "freeze", options->freeze[k]);
        for (size_t i = 0; i < g->state_count; i++) frozen[i] |= matches[i];
    }
    for (size_t i = 0; i < g->state_count; i++)
        if (g->states[i].trained && !frozen[i]) return HT_OK;
    HT_FAIL(g->ctx, HT_EINVAL, "freeze: every parameter matches, and none is left to train");
}

ht_status ht_params_freeze(ht_graph *g, const ht_train_options *options)
{
    if (options->freeze_count == 0) return HT_OK;
    bool *matches = calloc(g->state_count + 1, sizeof *matches), *frozen = calloc(g->state_count + 1, sizeof *frozen);
    ht_status status = matches && frozen ? find_frozen(g, options, matches, frozen) : no_memory(g);
    for (size_t i = 0; i < g->state_count && status == HT_OK; i++)
        if (frozen[i]) g->states[i].trained = false;
    free(matches);
    free(frozen);
    return status;
}

/* ---- groups ---- */

static ht_status choose_groups(ht_graph *g, const ht_train_options *options, bool some, bool *matches, size_t *group_of)
{
    size_t none = options->group_count;
    for (size_t i = 0; i < g->state_count; i++) group_of[i] = none;
    for (size_t k = 0; k < none; k++) {
        const char *pattern = options->groups[k].match;
        size_t count, taken = 0;
        HT_TRY(find_matches(g, "groups", pattern, matches, &count));
        if (count == 0 && !some) return fail_unmatched(g, "groups", pattern);
        for (size_t i = 0; i < g->state_count; i++) {
            if (!matches[i] || group_of[i] != none) continue;
            group_of[i] = k;
            taken++;
        }
        if (taken == 0 && !some)
            HT_FAIL(g->ctx, HT_EINVAL, "groups: every parameter that '%s' matches is in a group before it", pattern);
    }
    return HT_OK;
}

ht_status ht_params_group(ht_graph *g, const ht_train_options *options, bool some, size_t **out)
{
    bool *matches = calloc(g->state_count + 1, sizeof *matches);
    *out = calloc(g->state_count + 1, sizeof **out);
    ht_status status = matches && *out ? choose_groups(g, options, some, matches, *out) : no_memory(g);
    free(matches);
    if (status == HT_OK) return HT_OK;
    free(*out);
    *out = NULL;
    return status;
}

/* ---- pruned parameters ---- */

static ht_status find_pruned(ht_graph *g, const ht_train_options *options, bool some, bool *matches, bool *pruned)
{
    for (size_t k = 0; k < options->pruned_count; k++) {
        size_t count;
        HT_TRY(find_matches(g, "pruned", options->pruned[k], matches, &count));
        if (count == 0 && !some) return fail_unmatched(g, "pruned", options->pruned[k]);
        for (size_t i = 0; i < g->state_count; i++) pruned[i] |= matches[i];
    }
    return HT_OK;
}

ht_status ht_params_pruned(ht_graph *g, const ht_train_options *options, bool some, bool **out)
{
    bool *matches = calloc(g->state_count + 1, sizeof *matches);
    *out = calloc(g->state_count + 1, sizeof **out);
    ht_status status = matches && *out ? find_pruned(g, options, some, matches, *out) : no_memory(g);
    free(matches);
    if (status == HT_OK) return HT_OK;
    free(*out);
    *out = NULL;
    return status;
}

/* ---- values ---- */

ht_status ht_params_match(ht_graph *g, const char *setting, const char *pattern, const bool *candidates, bool *chosen,
                          size_t *count)
{
    regex_t expression;
    HT_TRY(compile(g->ctx, setting, pattern, &expression));
    *count = 0;
    for (uint32_t i = 0; i < g->value_count; i++) {
        if (!candidates[i] || regexec(&expression, ht_value_of(g, (ht_val){i})->name, 0, NULL, 0) != 0) continue;
        chosen[i] = true;
        ++*count;
    }
    regfree(&expression);
    return HT_OK;
}
