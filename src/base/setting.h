/* Settings: fields of a struct that can be given by name, as text. A row says where the field lies, what it holds and
 * which values it takes; reading, checks and messages come from it. Once read, a setting is a typed value. */
#ifndef HT_BASE_SETTING_H
#define HT_BASE_SETTING_H

#include <halftone/context.h>

#include <stddef.h>

typedef enum ht_setting_kind {
    HT_SETTING_NUMBER,  /* double: low <= number < high */
    HT_SETTING_BOUNDED, /* double: low <= number <= high */
    HT_SETTING_WHOLE,   /* int64_t: likewise */
    HT_SETTING_SWITCH,  /* bool: 0 or 1 */
    HT_SETTING_EITHER,  /* bool: true for the first of two words, false for the second */
    HT_SETTING_CHOICE,  /* int: the place of the word in the list */
    HT_SETTING_TEXT,    /* const char *, borrowed */
    HT_SETTING_CUSTOM   /* as `read` reads it */
} ht_setting_kind;

typedef struct ht_setting_key {
    const char *name; /* one that ends with a dot stands for all names that begin with it */
    ht_setting_kind kind;
    size_t at;         /* where the field lies in its struct */
    double low, high;  /* of numbers; both 0: the code that uses the value checks it */
    const char *words; /* of a choice: "matrices|all" */
    const char *wants; /* what a message asks for instead of naming the range; or NULL */
    const char *help;  /* one line */
    /* `settings` is the struct; `name` the whole name that was given. */
    ht_status (*read)(ht_context *ctx, void *settings, const char *name, const char *text);
    bool first;   /* read before the others, which depend on it */
} ht_setting_key; /* tables end with a row without a name */

/* The row of this name; NULL when there is none. */
const ht_setting_key *ht_setting_find(const ht_setting_key *keys, const char *name);
/* Gives the row's field in `settings` the value that the text stands for. */
ht_status ht_setting_read(ht_context *ctx, const ht_setting_key *key, void *settings, const char *name,
                          const char *text);
/* Are all numbers of the table within their ranges? For structs that were filled without text. */
ht_status ht_settings_check(ht_context *ctx, const ht_setting_key *keys, const void *settings);

#endif
