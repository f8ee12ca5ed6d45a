/* The growing string, number printing, reading of files, edit distance. */
#include "base/text.h"

#include "base/arena.h"
#include "base/fail.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ht_text_add(ht_text *text, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    ht_text_addv(text, format, args);
    va_end(args);
}

void ht_text_addv(ht_text *text, const char *format, va_list args)
{
    if (text->failed) return;
    va_list again;
    va_copy(again, args);
    size_t free_bytes = text->capacity - text->length;
    int wrote = vsnprintf(text->data != NULL ? text->data + text->length : NULL, free_bytes, format, args);
    if (wrote < 0) {
        text->failed = true;
    } else if ((size_t)wrote >= free_bytes) {
        if (ht_grow((void **)&text->data, &text->capacity, text->length + (size_t)wrote + 1, 1))
            vsnprintf(text->data + text->length, text->capacity - text->length, format, again);
        else
            text->failed = true;
    }
    va_end(again);
    if (!text->failed)
        text->length += (size_t)wrote;
    else if (text->data != NULL)
        text->data[text->length] = '\0'; /* remove the truncated part */
}

void ht_text_free(ht_text *text)
{
    free(text->data);
    *text = (ht_text){0};
}

/* The decimal point is '.' even if the host program has set another locale. */
static void use_plain_point(char *number)
{
    char *point = number + strspn(number, "+-0123456789");
    size_t length = strcspn(point, "+-0123456789eE");
    if (length == 0) return;
    *point = '.';
    memmove(point + 1, point + length, strlen(point + length) + 1);
}

void ht_text_number(ht_text *text, double x)
{
    if (isnan(x)) {
        ht_text_add(text, "nan");
        return;
    }
    if (isinf(x)) {
        ht_text_add(text, x < 0 ? "-inf" : "inf");
        return;
    }
    char number[64];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(number, sizeof number, "%.*g", digits, x);
        if (strtod(number, NULL) == x) break;
    }
    use_plain_point(number);
    ht_text_add(text, "%s", number);
}

/* Reads to the end of the file with a growing buffer, so that pipes work too. */
static ht_status read_stream(ht_context *ctx, FILE *file, char **data, size_t *length, const char *path)
{
    size_t capacity = 0;
    for (;;) {
        if (!ht_grow((void **)data, &capacity, *length + (64u << 10) + 1, 1))
            HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory after %zu bytes", path, *length);
        size_t got = fread(*data + *length, 1, capacity - 1 - *length, file);
        *length += got;
        if (ferror(file)) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
        if (got == 0) break;
    }
    (*data)[*length] = '\0';
    return HT_OK;
}

ht_status ht_read_file(ht_context *ctx, char **out, size_t *length, const char *path)
{
    *out = NULL;
    *length = 0;
    FILE *file = fopen(path, "rbe");
    if (file == NULL) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
    ht_status status = read_stream(ctx, file, out, length, path);
    fclose(file);
    if (status != HT_OK) {
        free(*out);
        *out = NULL;
        *length = 0;
    }
    return status;
}

#define EDIT_CUT 63

static size_t cut_length(const char *name)
{
    size_t length = 0;
    while (length < EDIT_CUT && name[length] != '\0') length++;
    return length;
}

static int smallest(int a, int b, int c)
{
    int least = a < b ? a : b;
    return least < c ? least : c;
}

/* Damerau-Levenshtein distance: a transposition of two letters, the most common slip, counts as one edit. */
int ht_edit_distance(const char *a, const char *b)
{
    int cells[EDIT_CUT + 1][EDIT_CUT + 1];
    size_t a_length = cut_length(a), b_length = cut_length(b);
    for (size_t j = 0; j <= b_length; j++) cells[0][j] = (int)j;
    for (size_t i = 1; i <= a_length; i++) {
        cells[i][0] = (int)i;
        for (size_t j = 1; j <= b_length; j++) {
            int change = cells[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            int best = smallest(change, cells[i - 1][j] + 1, cells[i][j - 1] + 1);
            bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped && cells[i - 2][j - 2] + 1 < best) best = cells[i - 2][j - 2] + 1;
            cells[i][j] = best;
        }
    }
    return cells[a_length][b_length];
}
