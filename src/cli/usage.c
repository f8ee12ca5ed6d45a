/* What --help prints: usage, description, options, examples, from the rows of a command. */
#include "cli/option_table.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LABEL_MOST = 22 };

const cli_exit cli_exits[CLI_ENDS] = {
    {CLI_DONE, "done"},
    {CLI_FAILED, "the run failed"},
    {CLI_WRONG, "the command or its input was wrong"},
    {CLI_STOPPED, "a training was stopped before its end, with a snapshot"},
};

void cli_add_wrapped(ht_text *text, const char *words, size_t width, size_t column, size_t indent)
{
    bool first = true;
    while (*words) {
        size_t length = strcspn(words, " \n");
        if (length > 0) {
            if (!first && column + 1 + length > width) {
                ht_text_add(text, "\n%*s", (int)indent, "");
                column = indent;
            } else if (!first) {
                ht_text_add(text, " ");
                column++;
            }
            ht_text_add(text, "%.*s", (int)length, words);
            column += length;
            first = false;
        }
        words += length + (words[length] != '\0');
    }
    ht_text_add(text, "\n");
}

/* ---- usage ---- */

int cli_usage_forms(const cli_rows *rows)
{
    int forms = 1;
    for (size_t i = 0; i < rows->count; i++)
        if (rows->list[i].form > forms) forms = rows->list[i].form;
    return forms;
}

__attribute__((format(printf, 2, 3))) static void add_item(cli_usage *usage, const char *format, ...)
{
    va_list args;
    assert(usage->count < CLI_MOST_ITEMS);
    va_start(args, format);
    int length = vsnprintf(usage->items[usage->count++], CLI_ITEM_LENGTH, format, args);
    va_end(args);
    assert(length < CLI_ITEM_LENGTH);
    (void)length;
}

/* "--set KEY=VALUE", "--numerics[=N]" */
static int print_option(char *item, size_t size, const cli_option *row)
{
    return snprintf(item, size, "%s%s%s%s", row->name,
                    !row->value ? ""
                    : row->bare ? "[="
                                : " ",
                    row->value ? row->value : "", row->value && row->bare ? "]" : "");
}

static bool is_in_form(const cli_option *row, int form)
{
    return row->form == 0 || row->form == form;
}

/* The options of a choice are one item: "[--resume | --force]". */
static void add_option(cli_usage *usage, const cli_rows *rows, size_t at, int form)
{
    const cli_option *row = &rows->list[at];
    char item[CLI_ITEM_LENGTH];
    size_t length = 0;
    for (size_t i = at; i < rows->count; i++) {
        const cli_option *other = &rows->list[i];
        if (i != at && (!row->choice || other->choice != row->choice || !is_in_form(other, form))) continue;
        if (length > 0) length += (size_t)snprintf(item + length, sizeof item - length, " | ");
        length += (size_t)print_option(item + length, sizeof item - length, other);
        assert(length < sizeof item);
    }
    add_item(usage, row->flags & CLI_NEEDED ? "%s%s" : "[%s]%s", item, row->flags & CLI_REPEATED ? "..." : "");
}

static bool begins_choice(const cli_rows *rows, size_t at, int form)
{
    for (size_t i = 0; i < at && rows->list[at].choice; i++)
        if (rows->list[i].choice == rows->list[at].choice && is_in_form(&rows->list[i], form)) return false;
    return true;
}

void cli_usage_of(cli_usage *usage, const cli_command *command, const cli_rows *rows, int form)
{
    usage->count = 0;
    add_item(usage, "halftone%s%s", command->name[0] ? " " : "", command->name);
    for (size_t i = 0; i < rows->count; i++) {
        const cli_option *row = &rows->list[i];
        if (row->kind == CLI_ARGUMENT && is_in_form(row, form))
            add_item(usage, row->flags & CLI_OPTIONAL ? "[%s]%s" : "%s%s", row->name,
                     row->flags & CLI_REPEATED ? "..." : "");
    }
    for (size_t i = 0; i < rows->count; i++) {
        const cli_option *row = &rows->list[i];
        bool shown = row->kind != CLI_ARGUMENT && is_in_form(row, form) && strcmp(row->name, "--help") != 0;
        if (shown && begins_choice(rows, i, form)) add_option(usage, rows, i, form);
    }
}

static void add_usage(ht_text *text, const cli_command *command, const cli_rows *rows)
{
    cli_usage usage;
    for (int form = 1; form <= cli_usage_forms(rows); form++) {
        cli_usage_of(&usage, command, rows, form);
        ht_text_add(text, "%s%s", form == 1 ? "usage: " : "       ", usage.items[0]);
        size_t indent = strlen("usage: ") + strlen(usage.items[0]), column = indent;
        for (size_t i = 1; i < usage.count; i++) {
            size_t length = strlen(usage.items[i]);
            if (column + 1 + length > cli_prose_width()) {
                ht_text_add(text, "\n%*s", (int)indent, "");
                column = indent;
            }
            ht_text_add(text, " %s", usage.items[i]);
            column += 1 + length;
        }
        ht_text_add(text, "\n");
    }
}

/* ---- the rest ---- */

static void add_paragraphs(ht_text *text, const char *paragraphs)
{
    while (paragraphs) {
        const char *end = strstr(paragraphs, "\n\n");
        char one[4096];
        int length =
            snprintf(one, sizeof one, "%.*s", end ? (int)(end - paragraphs) : (int)strlen(paragraphs), paragraphs);
        assert(length < (int)sizeof one);
        (void)length;
        ht_text_add(text, "\n");
        cli_add_wrapped(text, one, cli_prose_width(), 0, 0);
        paragraphs = end ? end + 2 : NULL;
    }
}

static int print_label(char *label, size_t size, const cli_option *row)
{
    char short_name[8] = "", option[CLI_ITEM_LENGTH];
    if (row->kind == CLI_ARGUMENT) return snprintf(label, size, "%s", row->name);
    if (row->letter) snprintf(short_name, sizeof short_name, "-%c, ", row->letter);
    print_option(option, sizeof option, row);
    return snprintf(label, size, "%s%s", short_name, option);
}

static void add_options(ht_text *text, const cli_rows *rows)
{
    char label[CLI_ITEM_LENGTH];
    int width = 0;
    for (size_t i = 0; i < rows->count; i++) {
        int length = print_label(label, sizeof label, &rows->list[i]);
        if (length > width && length <= LABEL_MOST) width = length;
    }
    ht_text_add(text, "\n");
    for (size_t i = 0; i < rows->count; i++) {
        const cli_option *row = &rows->list[i];
        int length = print_label(label, sizeof label, row);
        size_t column = 4 + (size_t)width + 2;
        ht_text help = {0};
        ht_text_add(&help, "%s", row->help);
        if (row->standard) ht_text_add(&help, " (default %s)", row->standard);
        ht_text_add(text, "    %-*s  ", width, label);
        if (length > width) ht_text_add(text, "\n%*s", (int)column, "");
        cli_add_wrapped(text, help.data ? help.data : "", cli_prose_width(), column, column);
        ht_text_free(&help);
    }
}

static void add_entries(ht_text *text, const char *title, const cli_entry *entries)
{
    if (!entries) return;
    ht_text_add(text, "\n%s:\n", title);
    for (; entries->name; entries++) {
        ht_text_add(text, "    %s\n        ", entries->name);
        cli_add_wrapped(text, entries->text, cli_prose_width(), 8, 8);
    }
}

/* What stands under halftone's own usage: the commands, and how they end. */
static void add_commands(ht_text *text)
{
    ht_text_add(text, "\n");
    for (size_t i = 0; i < cli_command_count; i++)
        ht_text_add(text, "    %-10s %s\n", cli_commands[i]->name, cli_commands[i]->summary);
    ht_text_add(text, "\nhalftone --version prints the version. Exit status:");
    for (size_t i = 0; i < CLI_ENDS; i++)
        ht_text_add(text, "%s %d %s", i ? ";" : "", cli_exits[i].status, cli_exits[i].meaning);
    ht_text_add(text, ".\n");
}

void cli_add_help(ht_text *text, const cli_command *command)
{
    cli_rows rows;
    cli_rows_of(&rows, command);
    add_usage(text, command, &rows);
    if (command == &cli_program_command) {
        add_commands(text);
        return;
    }
    add_paragraphs(text, command->description);
    add_options(text, &rows);
    add_entries(text, "Files", command->files);
    add_entries(text, "Environment", command->environment);
    add_entries(text, "Examples", command->examples);
    if (command->appendix) {
        ht_text_add(text, "\n%s:\n", command->appendix_title);
        command->appendix(text);
    }
}
