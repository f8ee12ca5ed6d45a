#include "base/json.h"

#include <inttypes.h>

void ht_json_print_string(ht_text *text, const char *bytes, size_t length)
{
    ht_text_add(text, "\"");
    size_t plain = 0; /* bytes that need no escape, up to here */
    for (size_t i = 0; i <= length; i++) {
        unsigned char c = i < length ? (unsigned char)bytes[i] : 0;
        if (i < length && c >= 0x20 && c != '"' && c != '\\') continue;
        ht_text_add(text, "%.*s", (int)(i - plain), bytes + plain);
        plain = i + 1;
        if (i == length) break;
        if (c == '"' || c == '\\')
            ht_text_add(text, "\\%c", c);
        else if (c == '\n')
            ht_text_add(text, "\\n");
        else if (c == '\t')
            ht_text_add(text, "\\t");
        else
            ht_text_add(text, "\\u%04x", c);
    }
    ht_text_add(text, "\"");
}

static void print_elements(ht_text *text, const ht_json *value)
{
    bool is_object = value->kind == HT_JSON_OBJECT;
    ht_text_add(text, is_object ? "{" : "[");
    for (const ht_json *element = value->child; element != NULL; element = element->next) {
        if (element != value->child) ht_text_add(text, ", ");
        if (is_object) {
            ht_json_print_string(text, element->key, element->key_length);
            ht_text_add(text, ": ");
        }
        ht_json_print(text, element);
    }
    ht_text_add(text, is_object ? "}" : "]");
}

void ht_json_print(ht_text *text, const ht_json *value)
{
    switch (value->kind) {
    case HT_JSON_NULL: ht_text_add(text, "null"); break;
    case HT_JSON_BOOL: ht_text_add(text, value->boolean ? "true" : "false"); break;
    case HT_JSON_INT: ht_text_add(text, "%" PRId64, value->integer); break;
    case HT_JSON_NUMBER: ht_text_number(text, value->number); break;
    case HT_JSON_STRING: ht_json_print_string(text, value->text, value->length); break;
    case HT_JSON_ARRAY:
    case HT_JSON_OBJECT: print_elements(text, value); break;
    }
}
