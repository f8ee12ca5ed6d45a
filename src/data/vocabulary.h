/* Building of vocabularies, for the formats; data.h has the public part. */
#ifndef HT_DATA_VOCABULARY_H
#define HT_DATA_VOCABULARY_H

#include "data/data.h"

/* Making one: count texts, then finish. `specials`: pad, bos, eos and unk come first. Bytes need no counting. */
ht_status ht_vocabulary_create(ht_vocabulary **out, ht_context *ctx, ht_vocabulary_kind kind, bool specials);
/* `lowercase` folds ASCII letters, of words only; it belongs to the vocabulary. */
void ht_vocabulary_fold(ht_vocabulary *vocabulary, bool lowercase);
/* Text that is not UTF-8 is refused; `name` precedes the message. */
ht_status ht_vocabulary_count(ht_vocabulary *vocabulary, ht_context *ctx, const char *name, const char *text,
                              size_t length);
/* Keeps tokens that were counted at least `least` times, the most frequent `most` of them (0: all). Characters are in
 * the order of code points, words from frequent to rare. */
ht_status ht_vocabulary_finish(ht_vocabulary *vocabulary, ht_context *ctx, int64_t least, int64_t most);

/* Appends to a growing list of ids. */
typedef struct ht_ids {
    int32_t *list;
    size_t count, capacity;
} ht_ids;
ht_status ht_vocabulary_append(const ht_vocabulary *vocabulary, ht_context *ctx, const char *name, const char *text,
                               size_t length, ht_ids *ids);

/* The tokenizer: the next word of a text; *at moves past it; false at the end. Words are split at white space;
 * punctuation is a token of its own; an apostrophe ends its word and stays with it ("l'" "ami"). */
bool ht_word_next(const char **at, const char *end, const char **word, size_t *length);

#endif
