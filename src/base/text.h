/* The growing string for printers; number parsing, reading of files, edit distance of names. */
#ifndef HT_BASE_TEXT_H
#define HT_BASE_TEXT_H

#include <halftone/types.h>

#include <stdarg.h>

typedef struct ht_text {
    char *data; /* zero-terminated once anything was written; heap memory, freed by ht_text_free */
    size_t length, capacity;
    bool failed; /* memory ran out: everything after is ignored */
} ht_text;

void ht_text_add(ht_text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void ht_text_addv(ht_text *text, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
void ht_text_free(ht_text *text);
/* The shortest of %.15g, %.16g, %.17g that reads back as x; "inf", "-inf", "nan" as they are. */
void ht_text_number(ht_text *text, double x);
/* The inverse: parses a whole word as a decimal number, "inf", "-inf" or "nan", in any locale; false if it is not one.
 */
bool ht_number_read(const char *word, double *out);

/* Reads a whole file; *out is heap memory, zero-terminated, to free(). The message names the path. */
ht_status ht_read_file(ht_context *ctx, char **out, size_t *length, const char *path);

/* Edit distance of two names, for "did you mean"; names are truncated to 63 bytes. */
int ht_edit_distance(const char *a, const char *b);

#endif
