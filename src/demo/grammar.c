/* How a sentence comes about: choices (a subject, a tense, ...) are made one after the other while the English text is
 * spoken; what they mean is kept, and the French text follows from it and from a choice for each word that has a
 * synonym.
 *
 * Choices come from a random stream, or from a list. The reader of English goes through all lists in order and gives one up as soon
 * as its text and the sentence part, so that the generator is its own parser. */
#include "demo/demo.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/base.h"
#include "demo/lexicon.h"

enum { MOST_CHOICES = 32, MOST_WORDS = 32, NOBODY = -1 };

/* ---- choices ---- */

typedef struct chooser {
    const ht_stream *stream; /* NULL: the list decides, and grows by zeros */
    int list[MOST_CHOICES], ways[MOST_CHOICES];
    int count, planned;
    bool wrong; /* the text has left the sentence that is read: nothing counts any more */
} chooser;

/* One of `ways`; the first has the chances of 1 + `more`. */
static int choose_mostly_first(chooser *c, int ways, int more)
{
    if (c->wrong || ways < 2) return 0;
    int at = c->count++;
    c->ways[at] = ways;
    if (c->stream) {
        int faces = ways + more,
            fallen = (int)(((uint64_t)ht_stream_word(c->stream, (uint64_t)at) * (uint64_t)faces) >> 32);
        c->list[at] = fallen > more ? fallen - more : 0;
    } else if (at >= c->planned) {
        c->list[at] = 0;
    }
    return c->list[at];
}

static int choose(chooser *c, int ways)
{
    return choose_mostly_first(c, ways, 0);
}

/* The next list in order; false when this was the last. */
static bool next_list(chooser *c)
{
    int last = c->count - 1;
    while (last >= 0 && c->list[last] + 1 >= c->ways[last]) last--;
    if (last < 0) return false;
    c->list[last]++;
    c->planned = last + 1;
    c->count = 0;
    c->wrong = false;
    return true;
}

/* ---- what a sentence says ---- */

typedef struct thing {
    int person;                      /* of a pronoun; NOBODY: a noun */
    bool she;                        /* "she" among the third persons */
    int determiner, noun, adjective; /* adjective: -1 for none */
    bool plural;
} thing;

enum { PLAIN, NOT, NEVER };

typedef struct meaning {
    thing subject, object;
    int tense, negation;
    int adverb, ending; /* -1: none */
    int verb;           /* -1: "is", with the adjective `quality` */
    int quality;
} meaning;

/* ---- English ---- */

typedef struct speaker {
    chooser *c;
    char *text;         /* HT_SENTENCE_BYTES bytes */
    const char *wanted; /* NULL: anything */
    size_t length;
} speaker;

static bool begins_with_vowel(const char *word)
{
    unsigned char first = (unsigned char)word[0], second = first ? (unsigned char)word[1] : 0;
    if (first == 0xc3) return second != 0xa7;             /* é, è, ê, â ...; ç is none */
    return first != 0 && strchr("aeiouh", first) != NULL; /* no word here has an h that is heard */
}

static void add_bytes(speaker *s, const char *bytes, size_t count)
{
    if (s->c->wrong) return;
    if (s->length + count >= HT_SENTENCE_BYTES || (s->wanted && strncmp(s->wanted + s->length, bytes, count) != 0)) {
        s->c->wrong = true;
        return;
    }
    memcpy(s->text + s->length, bytes, count);
    s->length += count;
    s->text[s->length] = '\0';
}

static void say(speaker *s, const char *words)
{
    if (s->length > 0) {
        add_bytes(s, " ", 1);
        add_bytes(s, words, strlen(words));
        return;
    }
    char first = words[0] >= 'a' && words[0] <= 'z' ? (char)(words[0] - 'a' + 'A') : words[0];
    add_bytes(s, &first, 1);
    add_bytes(s, words + 1, strlen(words + 1));
}

/* Adjectives that go with `kind`, in the order of the lexicon. */
static int adjectives_of(unsigned kind, int list[ADJECTIVE_COUNT])
{
    int count = 0;
    for (int i = 0; i < ADJECTIVE_COUNT; i++)
        if (ht_lexicon_adjectives[i].kinds & kind) list[count++] = i;
    return count;
}

/* A noun with what belongs to it. */
static void say_noun(speaker *s, thing *t, unsigned kind)
{
    chooser *c = s->c;
    int fitting[ADJECTIVE_COUNT], adjectives = adjectives_of(kind, fitting);
    t->person = NOBODY;
    t->determiner = choose(c, DETERMINER_COUNT);
    t->plural = choose_mostly_first(c, 2, 1);
    const ht_lexicon_determiner *d = &ht_lexicon_determiners[t->determiner];
    say(s, t->plural ? d->plural : d->english);
    int adjective_number = choose_mostly_first(c, adjectives + 1, adjectives - 1);
    t->adjective = adjective_number ? fitting[adjective_number - 1] : -1;
    t->noun = kind == BEINGS ? choose(c, BEING_COUNT) : BEING_COUNT + choose(c, NOUN_COUNT - BEING_COUNT);
    const ht_lexicon_noun *n = &ht_lexicon_nouns[t->noun];
    const char *adjective = t->adjective >= 0 ? ht_lexicon_adjectives[t->adjective].english : NULL;
    const char *next = adjective ? adjective : n->english;
    if (t->determiner == SOME && !t->plural && next[0] != 'h' && begins_with_vowel(next)) add_bytes(s, "n", 1);
    if (adjective) say(s, adjective);
    say(s, t->plural ? n->plural : n->english);
}

static void say_subject(speaker *s, thing *t)
{
    static const struct {
        const char *english;
        int person;
    } pronouns[] = {{"I", 0}, {"you", 1}, {"he", 2}, {"she", 2}, {"we", 3}, {"they", 5}};
    if (!choose(s->c, 2)) {
        say_noun(s, t, BEINGS);
        return;
    }
    int which = choose(s->c, (int)(sizeof pronouns / sizeof pronouns[0]));
    *t = (thing){.person = pronouns[which].person, .she = which == 3, .adjective = -1};
    t->plural = t->person > 2;
    say(s, pronouns[which].english);
}

static int person_of(const thing *t)
{
    return t->person != NOBODY ? t->person : t->plural ? 5 : 2;
}

static const char *to_be(int person)
{
    return person == 0 ? "am" : person == 2 ? "is" : "are";
}

static void say_adverb(speaker *s, const meaning *m)
{
    if (m->negation == NOT) say(s, "not");
    if (m->negation == NEVER) say(s, "never");
    if (m->adverb >= 0) say(s, ht_lexicon_adverbs[m->adverb].english);
}

/* "sees", "does not often see", "will never see", "was not", ... */
static void say_verb(speaker *s, const meaning *m)
{
    int person = person_of(&m->subject);
    const ht_lexicon_verb *v = m->verb >= 0 ? &ht_lexicon_verbs[m->verb] : NULL;
    if (m->tense == NEAR_FUTURE || m->tense == FUTURE) {
        say(s, m->tense == FUTURE ? "will" : to_be(person));
        say_adverb(s, m);
        if (m->tense == NEAR_FUTURE) say(s, "going to");
        say(s, v ? v->english : "be");
    } else if (!v) {
        say(s, m->tense == PRESENT ? to_be(person) : person == 0 || person == 2 ? "was" : "were");
        say_adverb(s, m);
    } else if (m->negation == NOT) {
        say(s, m->tense == PAST ? "did" : person == 2 ? "does" : "do");
        say_adverb(s, m);
        say(s, v->english);
    } else {
        say_adverb(s, m);
        say(s, m->tense == PAST ? v->past : person == 2 ? v->third : v->english);
    }
}

static int choose_ending(chooser *c, int tense)
{
    int fitting[ENDING_COUNT], count = 0;
    for (int i = 0; i < ENDING_COUNT; i++)
        if (ht_lexicon_endings[i].tenses & 1u << tense) fitting[count++] = i;
    int chosen = choose_mostly_first(c, count + 1, count - 1);
    return chosen ? fitting[chosen - 1] : -1;
}

/* Chooses a meaning and says it. */
static void say_sentence(speaker *s, meaning *m)
{
    chooser *c = s->c;
    say_subject(s, &m->subject);
    m->verb = choose_mostly_first(c, VERB_COUNT + 1, 2) - 1;
    m->tense = choose(c, TENSES);
    m->negation = choose_mostly_first(c, 3, 1);
    bool adverb = m->negation != NEVER && m->tense != NEAR_FUTURE;
    m->adverb = adverb ? choose_mostly_first(c, ADVERB_COUNT + 1, ADVERB_COUNT - 1) - 1 : -1;
    say_verb(s, m);
    if (m->verb >= 0) {
        bool any = ht_lexicon_verbs[m->verb].kinds & BEINGS;
        say_noun(s, &m->object, any && choose(c, 2) ? BEINGS : THINGS);
    } else {
        int fitting[ADJECTIVE_COUNT], count = adjectives_of(BEINGS, fitting);
        m->quality = fitting[choose(c, count)];
        say(s, ht_lexicon_adjectives[m->quality].english);
    }
    m->ending = choose_ending(c, m->tense);
    if (m->ending >= 0) say(s, ht_lexicon_endings[m->ending].english);
    add_bytes(s, ".", 1);
}

/* ---- French ---- */

typedef struct writer {
    chooser *c;
    const char *words[MOST_WORDS];
    int count;
    char future[HT_SENTENCE_BYTES];
} writer;

static void put(writer *w, const char *word)
{
    w->words[w->count++] = word;
}

/* 1 for the synonym, where there is one. */
static int pick(writer *w, const char *synonym)
{
    return synonym ? choose(w->c, 2) : 0;
}

static const char *adjective_form(writer *w, int which, bool feminine, bool plural, const char *next)
{
    const char *const(*forms)[ADJECTIVE_FORMS] = ht_lexicon_adjectives[which].french;
    const char *const *f = forms[pick(w, forms[1][0])];
    if (plural) return f[feminine ? FEMININE_PLURAL : MASCULINE_PLURAL];
    if (feminine) return f[FEMININE];
    return next && begins_with_vowel(next) ? f[BEFORE_VOWEL] : f[MASCULINE];
}

/* `denied`: after a negation "un", "une" and "des" become "de"; "des" does so before an adjective, too. "ma" and "sa" are
 * "mon" and "son" before a vowel. */
static const char *determiner_form(const thing *t, bool feminine, bool adjective_first, bool denied, const char *next)
{
    const ht_lexicon_determiner *d = &ht_lexicon_determiners[t->determiner];
    if (t->determiner == SOME && (denied || (t->plural && adjective_first))) return "de";
    if (t->plural) return d->french[2];
    bool vowel = begins_with_vowel(next);
    bool possessive = d->french[1][1] == 'a' && d->french[1][2] == '\0' && t->determiner != THE;
    if (feminine) return vowel && possessive ? d->french[3] : d->french[1];
    return vowel ? d->french[3] : d->french[0];
}

static bool put_noun(writer *w, const thing *t, bool denied)
{
    const ht_lexicon_noun *n = &ht_lexicon_nouns[t->noun];
    int which = pick(w, n->french[1].singular);
    bool feminine = n->french[which].gender == 'f';
    const char *word = t->plural ? n->french[which].plural : n->french[which].singular;
    bool before = t->adjective >= 0 && ht_lexicon_adjectives[t->adjective].before;
    const char *adjective =
        t->adjective >= 0 ? adjective_form(w, t->adjective, feminine, t->plural, before ? word : NULL) : NULL;
    put(w, determiner_form(t, feminine, before, denied, before ? adjective : word));
    if (before) put(w, adjective);
    put(w, word);
    if (adjective && !before) put(w, adjective);
    return feminine;
}

/* The grammatical person; *feminine for what agrees with the subject. */
static int put_subject(writer *w, const thing *t, bool *feminine)
{
    static const char *const pronouns[PERSONS] = {"je", "tu", "il", "nous", "vous", "ils"};
    *feminine = t->she;
    if (t->person == NOBODY) {
        *feminine = put_noun(w, t, false);
        return t->plural ? 5 : 2;
    }
    int person = t->person;
    if (person == 1 && choose(w->c, 2)) person = 4; /* tu and vous are both right */
    put(w, t->she ? "elle" : pronouns[person]);
    return person;
}

static const char *future_of(writer *w, const char *stem, int person)
{
    static const char *const ends[PERSONS] = {"ai", "as", "a", "ons", "ez", "ont"};
    snprintf(w->future, sizeof w->future, "%s%s", stem, ends[person]);
    return w->future;
}

/* What carries the person, and in *rest what follows the negation: an infinitive, a participle or nothing. */
static const char *verb_form(writer *w, const meaning *m, int person, const char **rest)
{
    static const char *const have[PERSONS] = {"ai", "as", "a", "avons", "avez", "ont"};
    static const char *const go[PERSONS] = {"vais", "vas", "va", "allons", "allez", "vont"};
    static const char *const is[PERSONS] = {"suis", "es", "est", "sommes", "êtes", "sont"};
    static const char *const was[PERSONS] = {"étais", "étais", "était", "étions", "étiez", "étaient"};
    const char *const *f = NULL;
    *rest = NULL;
    if (m->verb >= 0) {
        const char *const(*forms)[VERB_FORMS] = ht_lexicon_verbs[m->verb].french;
        f = forms[pick(w, forms[1][0])];
    }
    switch (m->tense) {
    case PRESENT: return f ? f[person] : is[person];
    case PAST:
        if (!f) return was[person];
        *rest = f[PARTICIPLE];
        return have[person];
    case FUTURE: return future_of(w, f ? f[FUTURE_STEM] : "ser", person);
    default: *rest = f ? f[INFINITIVE] : "être"; return go[person];
    }
}

/* Words to text: le, la, je, ne and de lose their vowel before another one. */
static void join(const writer *w, char *text)
{
    static const char *const elided[][2] = {{"le", "l'"}, {"la", "l'"}, {"je", "j'"}, {"ne", "n'"}, {"de", "d'"}};
    size_t length = 0;
    bool close = true;
    for (int i = 0; i < w->count; i++) {
        const char *word = w->words[i];
        bool glue = false;
        for (size_t e = 0; i + 1 < w->count && e < sizeof elided / sizeof elided[0]; e++)
            if (strcmp(word, elided[e][0]) == 0 && begins_with_vowel(w->words[i + 1])) {
                word = elided[e][1];
                glue = true;
                break;
            }
        length += (size_t)snprintf(text + length, HT_SENTENCE_BYTES - length, "%s%s", close ? "" : " ", word);
        close = glue;
    }
    snprintf(text + length, HT_SENTENCE_BYTES - length, ".");
    if (text[0] >= 'a' && text[0] <= 'z') text[0] = (char)(text[0] - 'a' + 'A');
}

static void write_sentence(chooser *c, const meaning *m, char *text)
{
    writer w = {.c = c};
    bool feminine;
    int person = put_subject(&w, &m->subject, &feminine);
    const char *rest, *form = verb_form(&w, m, person, &rest);
    if (m->negation != PLAIN) put(&w, "ne");
    put(&w, form);
    if (m->negation != PLAIN) put(&w, m->negation == NOT ? "pas" : "jamais");
    if (m->adverb >= 0) {
        const ht_lexicon_phrase *adverb = &ht_lexicon_adverbs[m->adverb];
        put(&w, adverb->french[pick(&w, adverb->french[1])]);
    }
    if (rest) put(&w, rest);
    if (m->verb >= 0)
        put_noun(&w, &m->object, m->negation != PLAIN);
    else /* "vous" for one person */
        put(&w, adjective_form(&w, m->quality, feminine, m->subject.plural, NULL));
    if (m->ending >= 0) {
        const ht_lexicon_phrase *ending = &ht_lexicon_endings[m->ending];
        put(&w, ending->french[pick(&w, ending->french[1])]);
    }
    join(&w, text);
}

/* ---- from outside ---- */

void ht_grammar_make(uint64_t seed, uint64_t index, ht_grammar_pair *pair)
{
    ht_stream stream = {.seed = seed, .step = index, .site = ht_hash_text("demo.meaning")};
    chooser c = {.stream = &stream};
    speaker s = {.c = &c, .text = pair->english};
    meaning m = {0};
    say_sentence(&s, &m);
    ht_stream words = {.seed = seed, .step = index, .site = ht_hash_text("demo.synonyms")};
    chooser synonyms = {.stream = &words};
    write_sentence(&synonyms, &m, pair->french);
    pair->log_probability = 0;
    for (int i = 0; i < synonyms.count; i++) pair->log_probability -= log(synonyms.ways[i]);
}

/* All translations of a meaning; counts them, and those that are `french`. */
static int translate(const meaning *m, const char *french, int *hits)
{
    chooser c = {0};
    int count = 0;
    do {
        char text[HT_SENTENCE_BYTES];
        write_sentence(&c, m, text);
        if (french) *hits += strcmp(text, french) == 0;
        count++;
    } while (next_list(&c));
    return count;
}

static int read_english(const char *english, const char *french, int *hits, int *meanings)
{
    chooser c = {0};
    int translations = 0;
    *meanings = 0;
    do {
        char text[HT_SENTENCE_BYTES] = "";
        speaker s = {.c = &c, .text = text, .wanted = english};
        meaning m = {0};
        say_sentence(&s, &m);
        if (c.wrong || english[s.length] != '\0') continue;
        ++*meanings;
        translations += translate(&m, french, hits);
    } while (next_list(&c));
    return translations;
}

bool ht_grammar_check(const char *english, const char *french)
{
    int hits = 0, meanings;
    read_english(english, french, &hits, &meanings);
    return hits > 0;
}

int ht_grammar_translations(const char *english, int *meanings)
{
    int hits = 0, ways;
    return read_english(english, NULL, &hits, meanings ? meanings : &ways);
}
