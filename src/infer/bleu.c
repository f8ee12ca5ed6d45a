/* Corpus BLEU (Papineni et al. 2002) as sacreBLEU computes it: clipped matches and totals of n-grams, n from 1 to 4,
 * are summed over all sentences, then
 *      BLEU = brevity · exp(mean of log precisions),  brevity = min(1, exp(1 - reference length / length)). */
#include "infer/infer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- tokens ---- */

static bool starts(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool point_or_comma(char c)
{
    return c == '.' || c == ',';
}

/* Symbols that are always tokens of their own: all of ASCII's but the apostrophe, comma, hyphen and point. */
static bool symbol(char c)
{
    return (c >= '{' && c <= '~') || (c >= '[' && c <= '`') || (c >= ' ' && c <= '&') || (c >= '(' && c <= '+') ||
           (c >= ':' && c <= '@') || c == '/';
}

/* Marks of skipped segments, line breaks and SGML's names for characters, each replacement over the whole text before
 * the next, so that "&amp;lt;" ends as "<". */
static void replace_all(char *text, const char *what, const char *with)
{
    size_t length = strlen(what), shorter = strlen(with);
    char *to = text;
    for (const char *from = text; *from;)
        if (strncmp(from, what, length) == 0) {
            memmove(to, with, shorter);
            to += shorter;
            from += length;
        } else {
            *to++ = *from++;
        }
    *to = '\0';
}

typedef enum rule { SYMBOLS, AFTER_NO_DIGIT, BEFORE_NO_DIGIT, HYPHEN } rule;

/* One of the rewrite rules of 13a at one position: the bytes it consumes, and their replacement. Positions are bytes;
 * no byte of a multi-byte character is a digit. */
static int apply(rule r, const char *at, char *out)
{
    char a = at[0], b = at[1];
    switch (r) {
    case SYMBOLS:
        if (!symbol(a)) return 0;
        memcpy(out, (char[]){' ', a, ' ', '\0'}, 4);
        return 1;
    case AFTER_NO_DIGIT:
        if (digit(a) || !point_or_comma(b)) return 0;
        memcpy(out, (char[]){a, ' ', b, ' ', '\0'}, 5);
        return 2;
    case BEFORE_NO_DIGIT:
        if (!point_or_comma(a) || b == '\0' || digit(b)) return 0;
        memcpy(out, (char[]){' ', a, ' ', b, '\0'}, 5);
        return 2;
    case HYPHEN:
        if (!digit(a) || b != '-') return 0;
        memcpy(out, (char[]){a, ' ', b, ' ', '\0'}, 5);
        return 2;
    }
    return 0;
}

/* `to` holds three times the text. */
static void apply_all(rule r, const char *text, char *to)
{
    while (*text) {
        char made[8];
        int taken = apply(r, text, made);
        if (taken == 0) {
            *to++ = *text++;
            continue;
        }
        size_t length = strlen(made);
        memcpy(to, made, length);
        to += length;
        text += taken;
    }
    *to = '\0';
}

/* The text with a space between tokens, in heap memory; NULL when memory is out. */
static char *tokenize(ht_bleu_tokenizer tokenizer, const char *text)
{
    size_t length = strlen(text);
    if (length > SIZE_MAX / 128) return NULL;
    if (tokenizer == HT_BLEU_NONE) return strdup(text);
    /* The first rule makes three bytes of one, each of the others four of two. */
    size_t capacity = (length + 4) * 3 * 2 * 2 * 2;
    char *one = malloc(capacity), *two = malloc(capacity);
    if (!one || !two) {
        free(one);
        free(two);
        return NULL;
    }
    static const char *const names[][2] = {{"<skipped>", ""}, {"-\n", ""},   {"\n", " "},  {"&quot;", "\""},
                                           {"&amp;", "&"},    {"&lt;", "<"}, {"&gt;", ">"}};
    one[0] = ' ';
    memcpy(one + 1, text, length + 1);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) replace_all(one + 1, names[i][0], names[i][1]);
    strcat(one, " ");
    apply_all(SYMBOLS, one, two);
    apply_all(AFTER_NO_DIGIT, two, one);
    apply_all(BEFORE_NO_DIGIT, one, two);
    apply_all(HYPHEN, two, one);
    free(two);
    return one;
}

/* The number of bytes of white space here, 0 for other characters: Unicode's white space, and the four ASCII
 * separators. */
static size_t white(const char *at)
{
    const unsigned char *c = (const unsigned char *)at;
    if (c[0] == ' ' || (c[0] >= 9 && c[0] <= 13) || (c[0] >= 0x1c && c[0] <= 0x1f)) return 1;
    if (c[0] == 0xc2 && (c[1] == 0x85 || c[1] == 0xa0)) return 2;
    if (starts(at, "\xe1\x9a\x80") || starts(at, "\xe3\x80\x80") || starts(at, "\xe2\x81\x9f")) return 3;
    if (c[0] == 0xe2 && c[1] == 0x80 &&
        ((c[2] >= 0x80 && c[2] <= 0x8a) || c[2] == 0xa8 || c[2] == 0xa9 || c[2] == 0xaf))
        return 3;
    return 0;
}

typedef struct token {
    const char *text;
    size_t length;
    int32_t *number; /* where its number goes: equal tokens have equal numbers */
} token;

/* Appends the tokens of a text to the list, which may be NULL; returns their number. */
static size_t split(const char *text, token *list)
{
    size_t count = 0;
    while (*text) {
        size_t skip = white(text);
        if (skip) {
            text += skip;
            continue;
        }
        const char *start = text;
        while (*text && !white(text)) text++;
        if (list) list[count] = (token){.text = start, .length = (size_t)(text - start)};
        count++;
    }
    return count;
}

static int by_bytes(const void *a, const void *b)
{
    const token *x = a, *y = b;
    int order = memcmp(x->text, y->text, x->length < y->length ? x->length : y->length);
    return order ? order : (x->length > y->length) - (x->length < y->length);
}

/* ---- counting ---- */

typedef struct run {
    int32_t token[HT_BLEU_ORDERS];
} run;

static int by_tokens(const void *a, const void *b)
{
    const run *x = a, *y = b;
    for (int i = 0; i < HT_BLEU_ORDERS; i++)
        if (x->token[i] != y->token[i]) return x->token[i] < y->token[i] ? -1 : 1;
    return 0;
}

/* All n-grams of `order` tokens, sorted; returns their number. */
static size_t runs_of(const int32_t *numbers, size_t count, size_t order, run *runs)
{
    size_t made = count >= order ? count - order + 1 : 0;
    for (size_t i = 0; i < made; i++) {
        runs[i] = (run){{0}};
        memcpy(runs[i].token, numbers + i, order * sizeof *numbers);
    }
    qsort(runs, made, sizeof *runs, by_tokens);
    return made;
}

/* Clipped matches: the size of the multiset intersection of both sorted lists of n-grams. */
static int64_t common(const run *a, size_t a_count, const run *b, size_t b_count)
{
    int64_t found = 0;
    for (size_t i = 0, j = 0; i < a_count && j < b_count;) {
        int order = by_tokens(&a[i], &b[j]);
        found += order == 0;
        i += order <= 0;
        j += order >= 0;
    }
    return found;
}

static void count_runs(ht_bleu *bleu, const int32_t *numbers, const size_t counts[2], run *runs)
{
    for (size_t order = 1; order <= HT_BLEU_ORDERS; order++) {
        size_t ours = runs_of(numbers, counts[0], order, runs);
        size_t theirs = runs_of(numbers + counts[0], counts[1], order, runs + ours);
        bleu->totals[order - 1] += (int64_t)ours;
        bleu->matches[order - 1] += common(runs, ours, runs + ours, theirs);
    }
}

static bool add_tokens(ht_bleu *bleu, const char *const texts[2])
{
    size_t counts[2] = {split(texts[0], NULL), split(texts[1], NULL)}, all = counts[0] + counts[1];
    token *tokens = calloc(all + 1, sizeof *tokens);
    int32_t *numbers = calloc(all + 1, sizeof *numbers);
    run *runs = calloc(all + 1, sizeof *runs);
    bool enough = tokens && numbers && runs && all < INT32_MAX;
    if (enough) {
        split(texts[0], tokens);
        split(texts[1], tokens + counts[0]);
        for (size_t i = 0; i < all; i++) tokens[i].number = &numbers[i];
        qsort(tokens, all, sizeof *tokens, by_bytes);
        int32_t number = 0;
        for (size_t i = 0; i < all; i++) {
            if (i > 0 && by_bytes(&tokens[i - 1], &tokens[i]) != 0) number++;
            *tokens[i].number = number;
        }
        count_runs(bleu, numbers, counts, runs);
        bleu->length += (int64_t)counts[0];
        bleu->reference_length += (int64_t)counts[1];
    }
    free(tokens);
    free(numbers);
    free(runs);
    return enough;
}

ht_status ht_bleu_add(ht_bleu *bleu, ht_context *ctx, const char *sentence, const char *reference)
{
    char *ours = tokenize(bleu->tokenizer, sentence), *theirs = tokenize(bleu->tokenizer, reference);
    bool done = ours && theirs && add_tokens(bleu, (const char *const[]){ours, theirs});
    free(ours);
    free(theirs);
    if (!done) HT_FAIL(ctx, HT_ENOMEM, "bleu: out of memory for a sentence of %zu bytes", strlen(sentence));
    return HT_OK;
}

/* ---- the score ---- */

double ht_bleu_brevity(const ht_bleu *bleu)
{
    if (bleu->length >= bleu->reference_length) return 1;
    return bleu->length > 0 ? exp(1 - (double)bleu->reference_length / (double)bleu->length) : 0;
}

double ht_bleu_score(const ht_bleu *bleu)
{
    double sum = 0, smooth = 1;
    bool any = false;
    for (int i = 0; i < HT_BLEU_ORDERS; i++) any |= bleu->matches[i] > 0;
    if (!any) return 0;
    for (int i = 0; i < HT_BLEU_ORDERS; i++) {
        if (bleu->totals[i] == 0) return 0; /* no sentence is that long */
        double matches = (double)bleu->matches[i];
        if (bleu->matches[i] == 0) matches = 1 / (smooth *= 2);
        sum += log(100 * matches / (double)bleu->totals[i]);
    }
    return ht_bleu_brevity(bleu) * exp(sum / HT_BLEU_ORDERS);
}

bool ht_bleu_tokenizer_find(const char *name, ht_bleu_tokenizer *out)
{
    if (strcmp(name, "13a") != 0 && strcmp(name, "none") != 0) return false;
    *out = strcmp(name, "13a") == 0 ? HT_BLEU_13A : HT_BLEU_NONE;
    return true;
}
