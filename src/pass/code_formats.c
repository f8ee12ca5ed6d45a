#include "pass/code_formats.h"

#include <string.h>

const ht_code_format ht_code_formats[] = {
#define HT_CODE_FORMAT(name, kind, bits, dtype, last) {#name, HT_CODES_##kind, bits, HT_##dtype, last},
#include "pass/code_formats.def"
#undef HT_CODE_FORMAT
    {0},
};

const ht_code_format *ht_code_format_of(ht_code_kind kind, int bits)
{
    const ht_code_format *f = ht_code_formats;
    while (f->name && (f->kind != kind || (kind == HT_CODES_INT && f->bits != bits))) f++;
    return f->name ? f : NULL;
}

const ht_code_format *ht_code_format_find(const char *name, size_t length)
{
    const ht_code_format *f = ht_code_formats;
    while (f->name && (strlen(f->name) != length || strncmp(f->name, name, length) != 0)) f++;
    return f->name ? f : NULL;
}
