#include "check_match.h"

#include <ctype.h>
#include <regex.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MAX_CAPTURES = 32, MAX_NAME = 32, MAX_TEXT = 256, MAX_PATTERN = 1024, MAX_NOT = 32 };

typedef struct capture {
    char name[MAX_NAME], text[MAX_TEXT];
} capture;

typedef struct captures {
    capture item[MAX_CAPTURES];
    size_t count;
} captures;

typedef enum check_kind { CHECK_SOME, CHECK_NEXT, CHECK_NOT } check_kind;

typedef struct check {
    check_kind kind;
    int line; /* of the script */
    char pattern[MAX_PATTERN];
} check;

typedef struct matcher {
    captures known;
    char *message;
    size_t capacity;
    bool broken; /* the script itself is wrong */
} matcher;

static bool complain(matcher *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool complain(matcher *m, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (m->capacity && !m->message[0]) vsnprintf(m->message, m->capacity, format, args);
    va_end(args);
    return false;
}

static const char *lookup(const captures *known, const char *name, size_t length)
{
    for (size_t i = known->count; i-- > 0;)
        if (strlen(known->item[i].name) == length && memcmp(known->item[i].name, name, length) == 0)
            return known->item[i].text;
    return NULL;
}

static bool remember(matcher *m, captures *known, const char *name, size_t name_length, const char *text, size_t length)
{
    if (known->count == MAX_CAPTURES || name_length >= MAX_NAME || length >= MAX_TEXT) {
        m->broken = true;
        return complain(m, "too many captures, or one that is too long: [[%.*s]]", (int)name_length, name);
    }
    capture *c = &known->item[known->count++];
    snprintf(c->name, sizeof c->name, "%.*s", (int)name_length, name);
    snprintf(c->text, sizeof c->text, "%.*s", (int)length, text);
    return true;
}

static bool whole_match(matcher *m, const char *expression, size_t length, const char *text, size_t text_length)
{
    char anchored[MAX_PATTERN], subject[MAX_PATTERN];
    regex_t regex;
    if (text_length >= sizeof subject) return false;
    snprintf(anchored, sizeof anchored, "^(%.*s)$", (int)length, expression);
    snprintf(subject, sizeof subject, "%.*s", (int)text_length, text);
    if (regcomp(&regex, anchored, REG_EXTENDED | REG_NOSUB) != 0) {
        m->broken = true;
        return complain(m, "no regular expression: %.*s", (int)length, expression);
    }
    bool matches = regexec(&regex, subject, 0, NULL, 0) == 0;
    regfree(&regex);
    return matches;
}

static bool match_here(matcher *m, const char *pattern, const char *text, captures *known);

/* [[NAME:regex]]: the longest text that lets the rest of the pattern match, too. */
static bool match_capture(matcher *m, const char *name, size_t name_length, const char *expression, size_t length,
                          const char *rest, const char *text, captures *known)
{
    for (size_t taken = strlen(text) + 1; taken-- > 0 && !m->broken;) {
        if (!whole_match(m, expression, length, text, taken)) continue;
        captures tried = *known;
        if (remember(m, &tried, name, name_length, text, taken) && match_here(m, rest, text + taken, &tried)) {
            *known = tried;
            return true;
        }
    }
    return false;
}

static bool match_brackets(matcher *m, const char *pattern, const char *text, captures *known)
{
    const char *name = pattern + 2, *close = strstr(name, "]]");
    size_t name_length = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");
    /* An expression may end with a bracket of its own. */
    while (close && close[2] == ']') close++;
    if (!close || name_length == 0 || (name[name_length] != ':' && name + name_length != close)) {
        m->broken = true;
        return complain(m, "[[NAME:regex]] or [[NAME]] expected: %.40s", pattern);
    }
    if (name[name_length] == ':') {
        const char *expression = name + name_length + 1;
        return match_capture(m, name, name_length, expression, (size_t)(close - expression), close + 2, text, known);
    }
    const char *value = lookup(known, name, name_length);
    if (!value) {
        m->broken = true;
        return complain(m, "[[%.*s]] is used before it is captured", (int)name_length, name);
    }
    return strncmp(text, value, strlen(value)) == 0 && match_here(m, close + 2, text + strlen(value), known);
}

/* Does the pattern match a start of the text? */
static bool match_here(matcher *m, const char *pattern, const char *text, captures *known)
{
    for (;;) {
        if (!*pattern) return true;
        if (pattern[0] == '[' && pattern[1] == '[') return match_brackets(m, pattern, text, known);
        if (isblank((unsigned char)*pattern)) {
            if (!isblank((unsigned char)*text)) return false;
            while (isblank((unsigned char)*pattern)) pattern++;
            while (isblank((unsigned char)*text)) text++;
            continue;
        }
        if (*pattern++ != *text++) return false;
    }
}

static bool match_line(matcher *m, const char *pattern, const char *line, captures *known)
{
    for (size_t at = 0; at <= strlen(line) && !m->broken; at++) {
        captures tried = *known;
        if (match_here(m, pattern, line + at, &tried)) {
            *known = tried;
            return true;
        }
    }
    return false;
}

/* ---- lines ---- */

/* The next line into `line`, without its end; where the one behind it starts, or NULL at the end of the text. */
static const char *take_line(const char *at, char line[MAX_PATTERN])
{
    if (!*at) return NULL;
    size_t length = strcspn(at, "\n");
    snprintf(line, MAX_PATTERN, "%.*s", (int)(length < MAX_PATTERN ? length : MAX_PATTERN - 1), at);
    return at + length + (at[length] == '\n');
}

/* The script's next check: 1 found, 0 none left, -1 no such kind. */
static int take_check(matcher *m, const char **script, int *line_number, check *out)
{
    static const char *const kinds[] = {"CHECK:", "CHECK-NEXT:", "CHECK-NOT:"};
    char line[MAX_PATTERN];
    for (const char *next; (next = take_line(*script, line)); *script = next) {
        ++*line_number;
        const char *at = line + strspn(line, " \t");
        if (*at != '#') continue;
        at += 1 + strspn(at + 1, " \t");
        if (strncmp(at, "CHECK", 5) != 0) continue;
        for (int kind = 0; kind < 3; kind++) {
            size_t length = strlen(kinds[kind]);
            if (strncmp(at, kinds[kind], length) != 0) continue;
            at += length + strspn(at + length, " \t");
            size_t end = strlen(at);
            while (end > 0 && isspace((unsigned char)at[end - 1])) end--;
            *out = (check){.kind = (check_kind)kind, .line = *line_number};
            snprintf(out->pattern, sizeof out->pattern, "%.*s", (int)end, at);
            *script = next;
            if (end) return 1;
            complain(m, "script line %d: an empty pattern", *line_number);
            return -1;
        }
        complain(m, "script line %d: CHECK:, CHECK-NEXT: or CHECK-NOT: expected: %.40s", *line_number, at);
        return -1;
    }
    return 0;
}

typedef struct forbidden {
    check item[MAX_NOT];
    size_t count;
} forbidden;

static bool is_clean(matcher *m, const forbidden *f, const char *line)
{
    for (size_t i = 0; i < f->count; i++) {
        captures known = m->known; /* what a CHECK-NOT captures is forgotten */
        if (match_line(m, f->item[i].pattern, line, &known))
            return complain(m, "script line %d: must not be there: %s\n  in: %s", f->item[i].line, f->item[i].pattern,
                            line);
    }
    return !m->broken;
}

/* Goes over lines until one matches; where the line behind it starts, or NULL. */
static const char *find_line(matcher *m, const check *c, const forbidden *f, const char *at)
{
    char line[MAX_PATTERN], first[MAX_PATTERN] = "";
    for (const char *next; (next = take_line(at, line)); at = next) {
        if (!first[0]) memcpy(first, line, sizeof first);
        if (match_line(m, c->pattern, line, &m->known)) return next;
        if (m->broken || c->kind == CHECK_NEXT) break;
        if (!is_clean(m, f, line)) return NULL;
    }
    complain(m, "script line %d: not found%s: %s\n  from: %s", c->line,
             c->kind == CHECK_NEXT ? " on the next line" : "", c->pattern, first);
    return NULL;
}

bool check_match(const char *script, const char *output, char *message, size_t message_capacity)
{
    matcher m = {.message = message, .capacity = message_capacity};
    forbidden not_before = {.count = 0};
    check c;
    int line = 0, more, wanted = 0;
    const char *at = output;
    if (message_capacity) message[0] = 0;
    while ((more = take_check(&m, &script, &line, &c)) > 0) {
        if (c.kind == CHECK_NOT) {
            if (not_before.count == MAX_NOT) return complain(&m, "script line %d: too many CHECK-NOT in a row", c.line);
            not_before.item[not_before.count++] = c;
            continue;
        }
        if (c.kind == CHECK_NEXT && (wanted == 0 || not_before.count))
            return complain(&m, "script line %d: CHECK-NEXT stands behind a CHECK or CHECK-NEXT", c.line);
        wanted++;
        at = find_line(&m, &c, &not_before, at);
        if (!at) return false;
        not_before.count = 0;
    }
    if (more < 0) return false;
    if (!wanted) return complain(&m, "the script has no CHECK");
    char rest[MAX_PATTERN];
    for (const char *next; (next = take_line(at, rest)); at = next)
        if (!is_clean(&m, &not_before, rest)) return false;
    return true;
}
