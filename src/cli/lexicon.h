/* Words of the demo's grammar. A second French entry is a synonym; NULL stands where there is none. */
#ifndef HT_CLI_LEXICON_H
#define HT_CLI_LEXICON_H

#include <stdbool.h>

enum { PRESENT, PAST, FUTURE, NEAR_FUTURE, TENSES };
enum { PERSONS = 6 }; /* je tu il nous vous ils */

enum { BEINGS = 1, THINGS = 2 }; /* bits: what a word goes with */

typedef struct lexicon_noun {
    const char *english, *plural;
    struct {
        const char *singular, *plural;
        char gender; /* 'm', 'f' */
    } french[2];
} lexicon_noun;

enum { MASCULINE, FEMININE, MASCULINE_PLURAL, FEMININE_PLURAL, BEFORE_VOWEL, ADJECTIVE_FORMS };
typedef struct lexicon_adjective {
    const char *english;
    bool before; /* the noun */
    unsigned kinds;
    const char *french[2][ADJECTIVE_FORMS];
} lexicon_adjective;

enum { INFINITIVE = PERSONS, FUTURE_STEM, PARTICIPLE, VERB_FORMS };
typedef struct lexicon_verb {
    const char *english, *third, *past;
    unsigned kinds;                    /* of its object */
    const char *french[2][VERB_FORMS]; /* the present of six persons, then as above */
} lexicon_verb;

typedef struct lexicon_phrase {
    const char *english, *french[2];
    unsigned tenses; /* bits: where it may stand */
} lexicon_phrase;

typedef struct lexicon_determiner {
    const char *english, *plural;
    const char *french[4]; /* masculine, feminine, plural, masculine before a vowel */
} lexicon_determiner;

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

extern const lexicon_noun lexicon_nouns[NOUN_COUNT];
extern const lexicon_adjective lexicon_adjectives[ADJECTIVE_COUNT];
extern const lexicon_verb lexicon_verbs[VERB_COUNT];
extern const lexicon_phrase lexicon_adverbs[ADVERB_COUNT];
extern const lexicon_phrase lexicon_endings[ENDING_COUNT];
extern const lexicon_determiner lexicon_determiners[DETERMINER_COUNT];

#endif
