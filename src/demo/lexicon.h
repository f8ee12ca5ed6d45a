/* Words of the demo's grammar. A second French entry is a synonym; NULL stands where there is none. */
#ifndef HT_DEMO_LEXICON_H
#define HT_DEMO_LEXICON_H

#include <stdbool.h>

enum { PRESENT, PAST, FUTURE, NEAR_FUTURE, TENSES };
enum { PERSONS = 6 }; /* je tu il nous vous ils */

enum { BEINGS = 1, THINGS = 2 }; /* bits: what a word goes with */

typedef struct ht_lexicon_noun {
    const char *english, *plural;
    struct {
        const char *singular, *plural;
        char gender; /* 'm', 'f' */
    } french[2];
} ht_lexicon_noun;

enum { MASCULINE, FEMININE, MASCULINE_PLURAL, FEMININE_PLURAL, BEFORE_VOWEL, ADJECTIVE_FORMS };
typedef struct ht_lexicon_adjective {
    const char *english;
    bool before; /* the noun */
    unsigned kinds;
    const char *french[2][ADJECTIVE_FORMS];
} ht_lexicon_adjective;

enum { INFINITIVE = PERSONS, FUTURE_STEM, PARTICIPLE, VERB_FORMS };
typedef struct ht_lexicon_verb {
    const char *english, *third, *past;
    unsigned kinds;                    /* of its object */
    const char *french[2][VERB_FORMS]; /* the present of six persons, then as above */
} ht_lexicon_verb;

typedef struct ht_lexicon_phrase {
    const char *english, *french[2];
    unsigned tenses; /* bits: where it may stand */
} ht_lexicon_phrase;

typedef struct ht_lexicon_determiner {
    const char *english, *plural;
    const char *french[4]; /* masculine, feminine, plural, masculine before a vowel */
} ht_lexicon_determiner;

enum {
    NOUN_COUNT = 24,
    BEING_COUNT = 12, /* nouns that can do something; they come first */
    ADJECTIVE_COUNT = 10,
    VERB_COUNT = 11,
    ADVERB_COUNT = 2,
    ENDING_COUNT = 10,
    DETERMINER_COUNT = 6,
    THE = 0,
    SOME = 1,
};

extern const ht_lexicon_noun ht_lexicon_nouns[NOUN_COUNT];
extern const ht_lexicon_adjective ht_lexicon_adjectives[ADJECTIVE_COUNT];
extern const ht_lexicon_verb ht_lexicon_verbs[VERB_COUNT];
extern const ht_lexicon_phrase ht_lexicon_adverbs[ADVERB_COUNT];
extern const ht_lexicon_phrase ht_lexicon_endings[ENDING_COUNT];
extern const ht_lexicon_determiner ht_lexicon_determiners[DETERMINER_COUNT];

#endif
