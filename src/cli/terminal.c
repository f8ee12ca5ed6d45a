/* What the program knows of the terminal that it speaks to. */
#include "cli/cli.h"
#include "comm/comm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { NARROWEST = 20, PROSE = 110, HANGING = 4 };

/* Open MPI gives each rank a pseudo-terminal, whose lines it gathers: nobody looks at it. A single task of Slurm may be a
 * person's shell (srun --pty). */
static bool is_terminal(int file)
{
    ht_context aside = {0};
    ht_launcher l;
    if (isatty(file) != 1) return false;
    return ht_launcher_find(&l, &aside) != HT_OK || !l.name || (l.size == 1 && strcmp(l.name, "Slurm") == 0);
}

bool cli_terminal(int file)
{
    const char *kind = getenv("TERM");
    return is_terminal(file) && !(kind && strcmp(kind, "dumb") == 0);
}

static int columns_of(int file)
{
    struct winsize window;
    if (!is_terminal(file)) return 0;
    return ioctl(file, TIOCGWINSZ, &window) == 0 && window.ws_col >= NARROWEST ? window.ws_col : 80;
}

int cli_columns(void)
{
    const char *asked = getenv("COLUMNS");
    int columns = asked ? atoi(asked) : 0;
    return columns >= NARROWEST ? columns : columns_of(STDOUT_FILENO);
}

int cli_terminal_lines(void)
{
    const char *asked = getenv("LINES");
    struct winsize window;
    int lines = asked ? atoi(asked) : 0;
    if (lines > 0) return lines;
    if (!is_terminal(STDOUT_FILENO)) return 0;
    return ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_row > 0 ? window.ws_row : 24;
}

size_t cli_prose_width(void)
{
    int columns = cli_columns();
    return columns == 0 || columns > PROSE ? PROSE : (size_t)columns;
}

bool cli_colours(void)
{
    const char *declined = getenv("NO_COLOR");
    return cli_terminal(STDOUT_FILENO) && !(declined && *declined);
}

/* Characters, not bytes, of the line's first `length` bytes. */
static size_t characters(const char *line, size_t length)
{
    size_t count = 0;
    for (size_t i = 0; i < length; i++) count += ((unsigned char)line[i] & 0xc0) != 0x80;
    return count;
}

/* Bytes of the line that fit: up to a space, or where there is none all of the word. */
static size_t bytes_that_fit(const char *line, size_t length, size_t indent, size_t width)
{
    size_t best = 0, shown = 0;
    for (size_t i = 0; i < length; i++) {
        shown += ((unsigned char)line[i] & 0xc0) != 0x80;
        bool ends = line[i] == ' ' && i > indent && line[i - 1] != ' ';
        if (ends && (shown <= width + 1 || best == 0)) best = i;
        if (shown > width && best > 0) return best;
    }
    return length;
}

void cli_fold(ht_text *to, const char *text, size_t width)
{
    for (const char *line = text; *line;) {
        size_t length = strcspn(line, "\n"), indent = strspn(line, " ");
        size_t hanging = indent + HANGING, room = width;
        bool first = true;
        const char *at = line;
        for (size_t left = length; width > 0 && characters(at, left) > room;) {
            size_t fits = bytes_that_fit(at, left, first ? indent : 0, room);
            if (fits == left) break;
            ht_text_add(to, "%.*s\n%*s", (int)fits, at, (int)hanging, "");
            while (fits < left && at[fits] == ' ') fits++;
            at += fits;
            left -= fits;
            room = width > hanging + NARROWEST ? width - hanging : width;
            first = false;
        }
        ht_text_add(to, "%.*s", (int)(length - (size_t)(at - line)), at);
        if (line[length] == '\n') ht_text_add(to, "\n");
        line += length + (line[length] == '\n');
    }
}

int cli_show(ht_text *text)
{
    ht_text folded = {.failed = text->failed};
    if (!text->failed && text->data) cli_fold(&folded, text->data, (size_t)cli_columns());
    ht_text_free(text);
    return cli_put(&folded);
}

void cli_tell(const char *before, const char *message)
{
    ht_text line = {0}, folded = {0};
    ht_text_add(&line, "%s%s\n", before, message);
    if (!line.failed) cli_fold(&folded, line.data, (size_t)columns_of(STDERR_FILENO));
    fputs(line.failed || folded.failed ? message : folded.data, stderr);
    ht_text_free(&line);
    ht_text_free(&folded);
}

void cli_add_word(ht_text *text, const char *before, const char *after)
{
    size_t plain = strspn(before, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/+@%=:,");
    if (before[plain] == '\0') {
        ht_text_add(text, "%s%s", before, after);
        return;
    }
    ht_text_add(text, "'");
    for (const char *c = before; *c; c++) ht_text_add(text, *c == '\'' ? "'\\''" : "%c", *c);
    ht_text_add(text, "%s'", after);
}
