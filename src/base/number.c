/* Parsing of a decimal number, independent of the locale. */
#include <ctype.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

bool ht_number_read(const char *word, double *out)
{
    const char *digits = word + (*word == '-' || *word == '+');
    if (strcmp(digits, "inf") == 0 || strcmp(digits, "nan") == 0) {
        *out = *digits == 'n' ? (double)NAN : *word == '-' ? -INFINITY : INFINITY;
        return true;
    }
    if (!isdigit((unsigned char)*digits) && *digits != '.') return false;
    if (strspn(word, "+-.0123456789eE") != strlen(word) || strlen(word) >= 128) return false;
    /* strtod wants the decimal point of the locale that the host program chose. */
    char local[160], *rest;
    const char *point = strchr(word, '.');
    if (point)
        snprintf(local, sizeof local, "%.*s%.16s%s", (int)(point - word), word, localeconv()->decimal_point, point + 1);
    else
        snprintf(local, sizeof local, "%s", word);
    *out = strtod(local, &rest);
    return rest != local && *rest == 0;
}
