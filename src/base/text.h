/* A string that grows, for printers; and looking at names. */
#ifndef HT_BASE_TEXT_H
#define HT_BASE_TEXT_H

#include <halftone/types.h>

typedef struct ht_text {
    char *data; /* zero-terminated once anything was written; heap memory, freed by ht_text_free */
    size_t length, capacity;
    bool failed; /* memory ran out: everything after is ignored */
} ht_text;

void ht_text_add(ht_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ht_text_free(ht_text *text);
/* The shortest of %.15g, %.16g, %.17g that reads back as x; "inf", "-inf", "nan" as they are. */
void ht_text_number(ht_text *text, double x);
/* The other way: a whole word as a decimal number, "inf", "-inf" or "nan", whatever the locale; false if it is none. */
bool ht_number_read(const char *word, double *out);

/* Reads a whole file; *out is heap memory, zero-terminated, to free(). The message names the path. */
ht_status ht_read_file(ht_context *ctx, char **out, size_t *length, const char *path);

/* How many edits apart two names are, for "did you mean"; long names are cut at 63 bytes. */
int ht_edit_distance(const char *a, const char *b);

#endif
