/* The word tokenizer. */
#include <string.h>

#include "data/vocabulary.h"
#include "format/format.h"

typedef enum char_class { LETTER, SPACE, APOSTROPHE, PUNCTUATION } char_class;

/* Character classes; unlisted characters are letters. */
static const uint8_t ascii_classes[128] = {
    [9] = SPACE,         [10] = SPACE,        [11] = SPACE,        [12] = SPACE,        [13] = SPACE,
    [' '] = SPACE,       ['\''] = APOSTROPHE, ['!'] = PUNCTUATION, ['"'] = PUNCTUATION, ['#'] = PUNCTUATION,
    ['$'] = PUNCTUATION, ['%'] = PUNCTUATION, ['&'] = PUNCTUATION, ['('] = PUNCTUATION, [')'] = PUNCTUATION,
    ['*'] = PUNCTUATION, ['+'] = PUNCTUATION, [','] = PUNCTUATION, ['-'] = PUNCTUATION, ['.'] = PUNCTUATION,
    ['/'] = PUNCTUATION, [':'] = PUNCTUATION, [';'] = PUNCTUATION, ['<'] = PUNCTUATION, ['='] = PUNCTUATION,
    ['>'] = PUNCTUATION, ['?'] = PUNCTUATION, ['@'] = PUNCTUATION, ['['] = PUNCTUATION, ['\\'] = PUNCTUATION,
    [']'] = PUNCTUATION, ['^'] = PUNCTUATION, ['`'] = PUNCTUATION, ['{'] = PUNCTUATION, ['|'] = PUNCTUATION,
    ['}'] = PUNCTUATION, ['~'] = PUNCTUATION,
};

static char_class class_of(uint32_t code)
{
    if (code == 0xa0 || code == 0x3000 || code == 0x202f || (code >= 0x2000 && code <= 0x200a) || code == 0xfeff)
        return SPACE;
    if (code == 0x2019) return APOSTROPHE;
    if (code == 0xab || code == 0xbb || code == 0xbf || code == 0xa1 || (code >= 0x2010 && code <= 0x2027) ||
        (code >= 0x3001 && code <= 0x3003) || (code >= 0x3008 && code <= 0x3011))
        return PUNCTUATION;
    return LETTER;
}

/* The text is UTF-8: it is checked before; a stray byte counts as a letter. */
static char_class class_at(const char *at, const char *end, int *step)
{
    unsigned char first = (unsigned char)*at;
    *step = 1;
    if (first < 128) return (char_class)ascii_classes[first];
    uint32_t code;
    int length = ht_utf8_next(at, end, &code);
    if (length == 0) return LETTER;
    *step = length;
    return class_of(code);
}

bool ht_word_next(const char **at, const char *end, const char **word, size_t *length)
{
    const char *here = *at;
    int step = 0;
    while (here < end && class_at(here, end, &step) == SPACE) here += step;
    *word = here;
    while (here < end) {
        char_class kind = class_at(here, end, &step);
        if (kind == SPACE || (kind == PUNCTUATION && here > *word)) break;
        here += step;
        if (kind != LETTER) break;
    }
    *at = here;
    *length = (size_t)(here - *word);
    return *length > 0;
}
