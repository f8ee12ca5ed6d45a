/* Sealed text: a JSON object whose last member is the checksum of all bytes before it. It detects damage, not forgery. */
#ifndef HT_TRAIN_SEAL_H
#define HT_TRAIN_SEAL_H

#include "base/base.h"

/* The member's name in the files of a run's folder. */
#define HT_SEAL_KEY "xxh3"

/* Adds the member to an object that is complete. */
void ht_seal_add(ht_text *text, const char *key);
/* *sealed: does the text end with such a member? HT_EPARSE, with `name`, where the checksum is another. */
ht_status ht_seal_check(ht_context *ctx, const char *name, const char *key, const char *text, size_t length,
                        bool *sealed);

#endif
