/* Checks of one value by its row, shared by key.c and fields.c. */
#ifndef HT_BASE_KEY_ROWS_H
#define HT_BASE_KEY_ROWS_H

#include "base/key.h"

/* Right in kind and range. */
bool ht_key_fits(const ht_key *key, const ht_json *value);
/* Finds a word among the choices, whatever its case, as the table spells it (not zero-terminated). */
bool ht_key_choice(const ht_key *key, const char *word, const char **spelling, size_t *length);

#endif
