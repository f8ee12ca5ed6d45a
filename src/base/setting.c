#include "base/setting.h"

#include "base/base.h"

#include <math.h>
#include <string.h>

const ht_setting_key *ht_setting_find(const ht_setting_key *keys, const char *name)
{
    for (; keys->name; keys++) {
        size_t length = strlen(keys->name);
        bool family = keys->name[length - 1] == '.';
        if (family ? strncmp(keys->name, name, length) == 0 : strcmp(keys->name, name) == 0) return keys;
    }
    return NULL;
}

/* ---- numbers ---- */

static ht_status check_number(ht_context *ctx, const ht_setting_key *key, double number)
{
    bool open = key->kind == HT_SETTING_NUMBER, any = key->low == 0 && key->high == 0;
    bool within = number >= key->low && (open ? number < key->high && isfinite(number) : number <= key->high);
    bool whole = key->kind != HT_SETTING_WHOLE || number == floor(number);
    if ((any || within) && whole) return HT_OK;
    if (key->wants) HT_FAIL(ctx, HT_EINVAL, "setting %s: %s", key->name, key->wants);
    if (!any && !within)
        HT_FAIL(ctx, HT_EINVAL, "setting %s: %g is outside [%g, %g%c", key->name, number, key->low, key->high,
                open ? ')' : ']');
    HT_FAIL(ctx, HT_EINVAL, "setting %s: %g is no whole number", key->name, number);
}

static ht_status read_number(ht_context *ctx, const ht_setting_key *key, void *field, const char *text)
{
    double number;
    if (!ht_number_read(text, &number)) HT_FAIL(ctx, HT_EINVAL, "setting %s: '%s' is no number", key->name, text);
    if (key->kind == HT_SETTING_SWITCH) {
        if (number != 0 && number != 1) HT_FAIL(ctx, HT_EINVAL, "setting %s: %g is neither 0 nor 1", key->name, number);
        *(bool *)field = number != 0;
        return HT_OK;
    }
    HT_TRY(check_number(ctx, key, number));
    if (key->kind == HT_SETTING_WHOLE)
        *(int64_t *)field = (int64_t)number;
    else
        *(double *)field = number;
    return HT_OK;
}

ht_status ht_settings_check(ht_context *ctx, const ht_setting_key *keys, const void *settings)
{
    for (; keys->name; keys++) {
        const void *field = (const char *)settings + keys->at;
        if (keys->kind == HT_SETTING_NUMBER || keys->kind == HT_SETTING_BOUNDED)
            HT_TRY(check_number(ctx, keys, *(const double *)field));
        if (keys->kind == HT_SETTING_WHOLE) HT_TRY(check_number(ctx, keys, (double)*(const int64_t *)field));
    }
    return HT_OK;
}

/* ---- words ---- */

/* The word's place in a list "a|b|c"; -1 when it is none of them. */
static int place_of(const char *words, const char *word)
{
    size_t wanted = strlen(word), length;
    int place = 0;
    for (const char *at = words; *at; at += length + (at[length] == '|'), place++) {
        length = strcspn(at, "|");
        if (length == wanted && memcmp(at, word, length) == 0) return place;
    }
    return -1;
}

static ht_status read_word(ht_context *ctx, const ht_setting_key *key, void *field, const char *text)
{
    int place = place_of(key->words, text);
    if (place < 0) {
        ht_text known = {0};
        for (const char *at = key->words; *at; at++) ht_text_add(&known, *at == '|' ? ", " : "%c", *at);
        ht_fail(ctx, HT_EINVAL, "setting %s: there is no '%s'; known: %s", key->name, text,
                known.failed ? key->words : known.data);
        ht_text_free(&known);
        return HT_EINVAL;
    }
    if (key->kind == HT_SETTING_EITHER)
        *(bool *)field = place == 0;
    else
        *(int *)field = place;
    return HT_OK;
}

ht_status ht_setting_read(ht_context *ctx, const ht_setting_key *key, void *settings, const char *name,
                          const char *text)
{
    void *field = (char *)settings + key->at;
    switch (key->kind) {
    case HT_SETTING_NUMBER:
    case HT_SETTING_BOUNDED:
    case HT_SETTING_WHOLE:
    case HT_SETTING_SWITCH: return read_number(ctx, key, field, text);
    case HT_SETTING_EITHER:
    case HT_SETTING_CHOICE: return read_word(ctx, key, field, text);
    case HT_SETTING_TEXT: *(const char **)field = text; return HT_OK;
    case HT_SETTING_CUSTOM: break;
    }
    return key->read(ctx, settings, name, text);
}
