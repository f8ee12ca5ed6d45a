/* Man pages in the macros of man(7), from the rows of a command. */
#include "cli/option_table.h"

#include <ctype.h>
#include <string.h>

enum { WIDTH = 100 };

/* Text as troff reads it: a hyphen is a minus sign that can be copied, and no line begins a request. */
static void add_plain(ht_text *text, const char *plain, bool line_start)
{
    for (const char *c = plain; *c; c++) {
        if (line_start && (*c == '.' || *c == '\'')) ht_text_add(text, "\\&");
        if (*c == '\\' || *c == '-')
            ht_text_add(text, *c == '-' ? "\\-" : "\\e");
        else
            ht_text_add(text, "%c", *c);
        line_start = *c == '\n';
    }
}

static void add_upper(ht_text *text, const char *word)
{
    for (; *word; word++) ht_text_add(text, "%c", toupper((unsigned char)*word));
}

static void add_filled(ht_text *text, const char *words)
{
    ht_text lines = {0};
    cli_add_wrapped(&lines, words, WIDTH, 0, 0);
    add_plain(text, lines.data ? lines.data : "", true);
    ht_text_free(&lines);
}

static void add_paragraphs(ht_text *text, const char *paragraphs)
{
    for (const char *at = paragraphs; at;) {
        const char *end = strstr(at, "\n\n");
        ht_text one = {0};
        ht_text_add(&one, "%.*s", end ? (int)(end - at) : (int)strlen(at), at);
        if (at != paragraphs) ht_text_add(text, ".PP\n");
        add_filled(text, one.data ? one.data : "");
        ht_text_free(&one);
        at = end ? end + 2 : NULL;
    }
}

static void add_synopsis(ht_text *text, const cli_command *command, const cli_rows *rows)
{
    cli_usage usage;
    ht_text_add(text, ".SH SYNOPSIS\n");
    for (int form = 1; form <= cli_usage_forms(rows); form++) {
        cli_usage_of(&usage, command, rows, form);
        if (form > 1) ht_text_add(text, ".br\n");
        ht_text_add(text, ".B %s\n", usage.items[0]);
        for (size_t i = 1; i < usage.count; i++) {
            add_plain(text, usage.items[i], true);
            ht_text_add(text, "\n");
        }
    }
}

static void add_label(ht_text *text, const cli_option *row)
{
    ht_text_add(text, ".TP\n");
    if (row->kind == CLI_ARGUMENT) {
        ht_text_add(text, "\\fI");
        add_plain(text, row->name, false);
        ht_text_add(text, "\\fR\n");
        return;
    }
    if (row->letter) ht_text_add(text, "\\fB\\-%c\\fR, ", row->letter);
    ht_text_add(text, "\\fB");
    add_plain(text, row->name, false);
    ht_text_add(text, "\\fR");
    if (row->value) {
        ht_text_add(text, row->bare ? "[=\\fI" : " \\fI");
        add_plain(text, row->value, false);
        ht_text_add(text, row->bare ? "\\fR]" : "\\fR");
    }
    ht_text_add(text, "\n");
}

static void add_options(ht_text *text, const cli_rows *rows)
{
    ht_text_add(text, ".SH OPTIONS\n");
    for (size_t i = 0; i < rows->count; i++) {
        const cli_option *row = &rows->list[i];
        ht_text help = {0};
        ht_text_add(&help, "%s", row->help);
        if (row->standard) ht_text_add(&help, " (default %s)", row->standard);
        add_label(text, row);
        add_filled(text, help.data ? help.data : "");
        ht_text_free(&help);
    }
}

static void add_entries(ht_text *text, const char *title, const cli_entry *entries)
{
    if (!entries) return;
    ht_text_add(text, ".SH %s\n", title);
    for (; entries->name; entries++) {
        ht_text_add(text, ".TP\n.B ");
        add_plain(text, entries->name, false);
        ht_text_add(text, "\n");
        add_filled(text, entries->text);
    }
}

static void add_commands(ht_text *text)
{
    ht_text_add(text, ".SH COMMANDS\n");
    for (size_t i = 0; i < cli_command_count; i++) {
        ht_text_add(text, ".TP\n.BR halftone\\-%s (1)\n", cli_commands[i]->name);
        add_filled(text, cli_commands[i]->summary);
    }
}

static void add_exits(ht_text *text, const cli_command *command)
{
    ht_text_add(text, ".SH EXIT STATUS\n");
    for (size_t i = 0; i < CLI_ENDS; i++)
        if (cli_exits[i].status != CLI_STOPPED || command->stops)
            ht_text_add(text, ".TP\n.B %d\n%s\n", cli_exits[i].status, cli_exits[i].meaning);
}

static void add_appendix(ht_text *text, const cli_command *command)
{
    ht_text lines = {0};
    if (!command->appendix) return;
    command->appendix(&lines);
    ht_text_add(text, ".SH ");
    add_upper(text, command->appendix_title);
    ht_text_add(text, "\n.nf\n");
    add_plain(text, lines.data ? lines.data : "", true);
    ht_text_add(text, ".fi\n");
    ht_text_free(&lines);
}

static void add_see_also(ht_text *text, const cli_command *command)
{
    const char *at = command->see_also;
    ht_text_add(text, ".SH SEE ALSO\n");
    if (command == &cli_program_command) {
        ht_text_add(text, "docs/tutorial.md, docs/config.md\n");
        return;
    }
    ht_text_add(text, ".BR halftone (1)");
    while (at && *at) {
        size_t length = strcspn(at, " ");
        ht_text_add(text, ",\n.BR halftone\\-%.*s (1)", (int)length, at);
        at += length + (at[length] != '\0');
    }
    ht_text_add(text, "\n");
}

void cli_add_man(ht_text *text, const cli_command *command)
{
    cli_rows rows;
    bool whole = command == &cli_program_command;
    cli_rows_of(&rows, command);
    ht_text_add(text, ".\\\" Written by tools/make\\-man: do not edit.\n.TH HALFTONE%s", whole ? "" : "\\-");
    add_upper(text, command->name);
    ht_text_add(text, " 1 \"\" \"halftone %s\" \"Halftone\"\n.SH NAME\nhalftone%s%s \\- ", ht_version(),
                whole ? "" : "\\-", command->name);
    add_plain(text, command->summary, false);
    ht_text_add(text, "\n");
    add_synopsis(text, command, &rows);
    ht_text_add(text, ".SH DESCRIPTION\n");
    add_paragraphs(text, command->description);
    if (whole) add_commands(text);
    add_options(text, &rows);
    add_exits(text, command);
    add_entries(text, "ENVIRONMENT", command->environment);
    add_entries(text, "FILES", command->files);
    add_entries(text, "EXAMPLES", command->examples);
    add_appendix(text, command);
    add_see_also(text, command);
}
