#include <string.h>

#include "data/vocabulary.h"
#include "format/format.h"

static bool is_space(uint32_t code)
{
    return code == ' ' || (code >= 9 && code <= 13) || code == 0xa0 || code == 0x3000 || code == 0x202f ||
           (code >= 0x2000 && code <= 0x200a) || code == 0xfeff;
}

static bool is_apostrophe(uint32_t code)
{
    return code == '\'' || code == 0x2019;
}

static bool is_punctuation(uint32_t code)
{
    if (code < 0x80) return code > ' ' && strchr("!\"#$%&()*+,-./:;<=>?@[\\]^`{|}~", (int)code) != NULL;
    return code == 0xab || code == 0xbb || code == 0xbf || code == 0xa1 ||
           (code >= 0x2010 && code <= 0x2027 && code != 0x2019) || (code >= 0x3001 && code <= 0x3003) ||
           (code >= 0x3008 && code <= 0x3011);
}

/* The text is UTF-8: it was checked when it was counted; a stray byte counts as a letter. */
static int code_at(const char *at, const char *end, uint32_t *code)
{
    int length = ht_utf8_next(at, end, code);
    if (length > 0) return length;
    *code = 'x';
    return 1;
}

bool ht_word_next(const char **at, const char *end, const char **word, size_t *length)
{
    uint32_t code;
    int step;
    for (; *at < end; *at += step) {
        step = code_at(*at, end, &code);
        if (!is_space(code)) break;
    }
    if (*at >= end) return false;
    *word = *at;
    bool first = true;
    for (; *at < end; *at += step, first = false) {
        step = code_at(*at, end, &code);
        if (is_space(code) || (is_punctuation(code) && !first)) break;
        if (is_punctuation(code) || is_apostrophe(code)) {
            *at += step;
            break;
        }
    }
    *length = (size_t)(*at - *word);
    return true;
}
