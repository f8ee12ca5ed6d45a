/* Checks of single config values by their row: choices, ranges, kinds, and the nearest known name. */
#include "base/key.h"

#include "base/key_rows.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <strings.h>

/* ---- choices: words between bars ---- */

static const char *next_word(const char *at, size_t *length)
{
    *length = strcspn(at, "|");
    return at;
}

static bool is_numbered(const char *choice, size_t length)
{
    return length >= 2 && memcmp(choice + length - 2, ":N", 2) == 0;
}

/* "cuda:3" for "cuda:N". */
static bool fits_numbered(const char *choice, size_t length, const char *word)
{
    enum { MOST_DIGITS = 3 };
    if (strncmp(choice, word, length - 1) != 0) return false;
    size_t digits = strspn(word + length - 1, "0123456789");
    return digits > 0 && digits <= MOST_DIGITS && word[length - 1 + digits] == '\0';
}

bool ht_key_choice(const ht_key *key, const char *word, const char **spelling, size_t *length)
{
    for (const char *at = key->choices; *at != '\0'; at += *length + (at[*length] == '|')) {
        *spelling = next_word(at, length);
        if (is_numbered(*spelling, *length)) {
            if (!fits_numbered(*spelling, *length, word)) continue;
            *spelling = word;
            *length = strlen(word);
            return true;
        }
        if (strlen(word) == *length && strncasecmp(word, *spelling, *length) == 0) return true;
    }
    return false;
}

static void list_choices(ht_text *text, const char *choices)
{
    size_t length;
    for (const char *at = choices; *at != '\0'; at += length + (at[length] == '|')) {
        at = next_word(at, &length);
        ht_text_add(text, "%s%.*s", at == choices ? "" : ", ", (int)length, at);
    }
}

/* ---- ranges ---- */

static bool has_range(const ht_key *key)
{
    return key->low != 0 || key->high != 0;
}

static void print_bound(ht_text *text, double bound)
{
    if (fabs(bound) < 0x1p53 && floor(bound) == bound && fabs(bound) < 1e7)
        ht_text_add(text, "%" PRId64, (int64_t)bound);
    else
        ht_text_number(text, bound);
}

static void describe_range(ht_text *text, const ht_key *key)
{
    if (!has_range(key)) return;
    if (isinf(key->high) && isinf(key->low)) return;
    if (isinf(key->high)) {
        ht_text_add(text, " from ");
        print_bound(text, key->low);
        ht_text_add(text, " up");
    } else if (isinf(key->low)) {
        ht_text_add(text, " up to ");
        print_bound(text, key->high);
    } else {
        ht_text_add(text, " from ");
        print_bound(text, key->low);
        ht_text_add(text, " to ");
        print_bound(text, key->high);
    }
}

void ht_key_describe(ht_text *text, const ht_key *key)
{
    static const char *const names[] = {
        [HT_KEY_BOOL] = "true or false",
        [HT_KEY_INT] = "an integer",
        [HT_KEY_NUMBER] = "a number",
        [HT_KEY_TEXT] = "a string",
        [HT_KEY_CHOICE] = "one of ",
        [HT_KEY_INTS] = "a list of integers",
        [HT_KEY_NUMBERS] = "a list of numbers",
        [HT_KEY_TEXTS] = "a list of strings",
        [HT_KEY_JSON] = "any value",
    };
    ht_text_add(text, "%s", names[key->kind]);
    if (key->kind == HT_KEY_CHOICE)
        list_choices(text, key->choices);
    else
        describe_range(text, key);
}

/* ---- values ---- */

static bool in_range(const ht_key *key, double x)
{
    return !has_range(key) || (x >= key->low && x <= key->high);
}

static bool fits_one(const ht_key *key, ht_key_kind kind, const ht_json *value)
{
    int64_t integer;
    double number;
    switch (kind) {
    case HT_KEY_BOOL: return value->kind == HT_JSON_BOOL;
    case HT_KEY_INT: return ht_json_as_int(value, &integer) && in_range(key, (double)integer);
    case HT_KEY_NUMBER: return ht_json_as_number(value, &number) && in_range(key, number);
    case HT_KEY_TEXT: return value->kind == HT_JSON_STRING && strlen(value->text) == value->length;
    default: return false;
    }
}

static bool fits_list(const ht_key *key, ht_key_kind kind, const ht_json *value)
{
    if (value->kind != HT_JSON_ARRAY) return fits_one(key, kind, value);
    for (const ht_json *element = value->child; element != NULL; element = element->next)
        if (!fits_one(key, kind, element)) return false;
    return true;
}

bool ht_key_fits(const ht_key *key, const ht_json *value)
{
    const char *spelling;
    size_t length;
    if (value->kind == HT_JSON_NULL && key->standard != NULL && strcmp(key->standard, "null") == 0) return true;
    switch (key->kind) {
    case HT_KEY_CHOICE:
        return value->kind == HT_JSON_STRING && strlen(value->text) == value->length &&
               ht_key_choice(key, value->text, &spelling, &length);
    case HT_KEY_INTS: return fits_list(key, HT_KEY_INT, value);
    case HT_KEY_NUMBERS: return fits_list(key, HT_KEY_NUMBER, value);
    case HT_KEY_TEXTS: return fits_list(key, HT_KEY_TEXT, value);
    case HT_KEY_JSON: return true;
    default: return fits_one(key, key->kind, value);
    }
}

bool ht_key_is_comment(const char *name)
{
    return strncmp(name, "_comment", 8) == 0 || strncmp(name, "//", 2) == 0;
}

/* ---- "did you mean" ---- */

const char *ht_key_nearest(const ht_key *keys, const char *name)
{
    const char *best = NULL;
    int length = (int)(strlen(name) < 63 ? strlen(name) : 63);
    int least = length / 3 + 2; /* more edits than this make it another word */
    for (; keys->name != NULL; keys++) {
        int edits = ht_edit_distance(keys->name, name);
        if (edits >= least) continue;
        least = edits;
        best = keys->name;
    }
    return best;
}
