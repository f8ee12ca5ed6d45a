#include "train/seal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "format/format.h"

enum { HEX_DIGITS = 16 };
static const char seal_end[] = "\"\n}\n";

static void cut_lines(ht_text *text)
{
    while (text->length > 0 && text->data[text->length - 1] == '\n') text->length--;
}

void ht_seal_add(ht_text *text, const char *key)
{
    cut_lines(text);
    if (text->length > 0) text->length--; /* the bracket that closes the object */
    cut_lines(text);
    ht_text_add(text, ",\n");
    if (text->failed) return;
    uint64_t checksum = ht_checksum_bytes(text->data, text->length);
    ht_text_add(text, "  \"%s\": \"%016" PRIx64 "%s", key, checksum, seal_end);
}

static bool read_hex(const char *text, uint64_t *out)
{
    static const char digits[] = "0123456789abcdef";
    *out = 0;
    for (size_t i = 0; i < HEX_DIGITS; i++) {
        const char *digit = text[i] ? strchr(digits, text[i]) : NULL;
        if (!digit) return false;
        *out = *out << 4 | (uint64_t)(digit - digits);
    }
    return true;
}

ht_status ht_seal_check(ht_context *ctx, const char *name, const char *key, const char *text, size_t length,
                        bool *sealed)
{
    char begin[64];
    uint64_t says;
    size_t open = (size_t)snprintf(begin, sizeof begin, "  \"%s\": \"", key), close = sizeof seal_end - 1;
    size_t seal = open + HEX_DIGITS + close, body = length < seal ? 0 : length - seal;
    *sealed = length >= seal && memcmp(text + body, begin, open) == 0 && read_hex(text + body + open, &says) &&
              memcmp(text + length - close, seal_end, close) == 0;
    if (!*sealed) return HT_OK;
    uint64_t has = ht_checksum_bytes(text, body);
    if (has != says)
        HT_FAIL(ctx, HT_EPARSE, "%s: checksum %016" PRIx64 ", not %016" PRIx64 ": damaged or edited", name, has, says);
    return HT_OK;
}
