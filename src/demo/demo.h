/* demo: a synthetic translation task, the material of halftone demo. English sentences with their French translations,
 * made up by a small grammar. Articles, gender and number, the place of adjectives, elision, negation and four tenses are
 * those of the language; what is said is not meant to make sense. Some English words have two French ones, chosen with
 * equal chances, so that even a perfect translator is unsure: the log probability of a translation is known exactly, and
 * with it the lowest perplexity. */
#ifndef HT_DEMO_H
#define HT_DEMO_H

#include <stdbool.h>
#include <stdint.h>

enum { HT_SENTENCE_BYTES = 256 }; /* bytes of any sentence, the end included */

typedef struct ht_grammar_pair {
    char english[HT_SENTENCE_BYTES], french[HT_SENTENCE_BYTES];
    double log_probability; /* of this French sentence given the English one; log(1/k) for k equally likely ones */
} ht_grammar_pair;

/* Pair number `index` of a seed: a pure function of the two. */
void ht_grammar_make(uint64_t seed, uint64_t index, ht_grammar_pair *pair);

/* Is the French sentence one of the translations? False also for English that the grammar does not make. */
bool ht_grammar_check(const char *english, const char *french);

/* How many translations an English sentence has; 0 when the grammar does not make it. With `meanings` also in how many
 * ways it can be read. */
int ht_grammar_translations(const char *english, int *meanings);

#endif
