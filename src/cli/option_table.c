#include "cli/option_table.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

typedef struct common_options {
    bool help;
} common_options;

static const cli_option common_rows[] = {
    {"--help", NULL, CLI_FLAG, offsetof(common_options, help), .help = "print this text", .letter = 'h'},
    {0},
};

static void add_rows(cli_rows *rows, const cli_option *group, size_t base, int form)
{
    for (; group && (group->name || group->kind == CLI_GROUP); group++) {
        if (group->kind == CLI_GROUP) {
            add_rows(rows, group->group, base + group->offset, group->form ? group->form : form);
            continue;
        }
        assert(rows->count < CLI_MOST_OPTIONS);
        cli_option *row = &rows->list[rows->count++];
        *row = *group;
        row->offset += base;
        if (!row->form) row->form = form;
    }
}

/* The struct of the common rows lies behind the command's own. */
static size_t common_offset(const cli_command *command)
{
    return (command->size + sizeof(max_align_t) - 1) / sizeof(max_align_t) * sizeof(max_align_t);
}

void cli_rows_of(cli_rows *rows, const cli_command *command)
{
    rows->count = 0;
    add_rows(rows, command->options, 0, 0);
    add_rows(rows, common_rows, common_offset(command), 0);
}

/* ---- values ---- */

/* "a file", "a whole number from 1 to 64", "13a or none", else the name of the value */
static void describe_value(ht_text *text, const cli_option *option)
{
    if (option->takes) {
        ht_text_add(text, "%s", option->takes);
    } else if (option->kind == CLI_CHOICE) {
        for (const char *const *c = option->choices; *c; c++)
            ht_text_add(text, "%s%s", c == option->choices ? "" : c[1] ? ", " : " or ", *c);
    } else if (option->kind != CLI_WHOLE && option->kind != CLI_NUMBER) {
        ht_text_add(text, "%s", option->value);
    } else {
        bool open = isinf(option->most);
        ht_text_add(text, "a %snumber %s ", option->kind == CLI_WHOLE ? "whole " : "", open ? "of at least" : "from");
        ht_text_number(text, option->least);
        if (!open) {
            ht_text_add(text, " to ");
            ht_text_number(text, option->most);
        }
    }
}

int cli_bad_value(const cli_given *given, const char *value)
{
    ht_text takes = {0};
    describe_value(&takes, given->option);
    int end = cli_fail(CLI_WRONG, "%s: %s takes %s%s%s%s", given->command->name, given->option->name,
                       takes.data ? takes.data : "something else", value ? ", not '" : "", value ? value : "",
                       value ? "'" : "");
    ht_text_free(&takes);
    return end;
}

static bool read_number(const cli_option *option, const char *value, double *number)
{
    return ht_number_read(value, number) && *number >= option->least && *number <= option->most;
}

static bool is_choice(const cli_option *option, const char *value)
{
    for (const char *const *c = option->choices; *c; c++)
        if (strcmp(*c, value) == 0) return true;
    return false;
}

static bool fits(const cli_option *option, const char *value)
{
    if ((option->flags & CLI_FILLED) && !*value) return false;
    return !(option->most > 0) || (double)strlen(value) <= option->most;
}

static int store(const cli_given *given, char *value)
{
    const cli_option *option = given->option;
    double number;
    switch (option->kind) {
    case CLI_FLAG: *(bool *)given->at = true; return CLI_DONE;
    case CLI_TAKEN: return option->take(given, value);
    case CLI_WHOLE:
        if (!read_number(option, value, &number) || number != floor(number)) return cli_bad_value(given, value);
        *(int64_t *)given->at = (int64_t)number;
        return CLI_DONE;
    case CLI_NUMBER:
        if (!read_number(option, value, &number)) return cli_bad_value(given, value);
        *(double *)given->at = number;
        return CLI_DONE;
    case CLI_CHOICE:
        if (!is_choice(option, value)) return cli_bad_value(given, value);
        break;
    case CLI_TEXT:
        if (!fits(option, value)) return cli_bad_value(given, value);
        break;
    case CLI_ARGUMENT:
        if (option->take) return option->take(given, value);
        break;
    case CLI_GROUP: assert(!"groups are taken apart before");
    }
    *(const char **)given->at = value;
    return CLI_DONE;
}

/* ---- arguments ---- */

typedef struct parsing {
    const cli_command *command;
    cli_rows rows;
    bool seen[CLI_MOST_OPTIONS];
    void *options;
} parsing;

static cli_given given_of(const parsing *p, size_t row)
{
    return (cli_given){p->command, &p->rows.list[row], (char *)p->options + p->rows.list[row].offset};
}

/* Defaults are part of the program, so they are right. Functions cut what they take, so their rows have none. */
static void store_defaults(parsing *p)
{
    for (size_t i = 0; i < p->rows.count; i++) {
        cli_given given = given_of(p, i);
        if (!given.option->standard) continue;
        int end = store(&given, (char *)given.option->standard);
        assert(end == CLI_DONE);
        (void)end;
    }
}

static int no_such_option(const char *command, const char *word)
{
    return cli_fail(CLI_WRONG, "%s: '%s' is not understood; see halftone %s --help", command, word, command);
}

/* Is the word this option? *value: what stands behind its "=", or NULL. */
static bool is_option(const cli_option *option, char *word, char **value)
{
    size_t length = strlen(option->name);
    *value = NULL;
    if (option->kind == CLI_ARGUMENT) return false;
    if (option->letter && word[0] == '-' && word[1] == option->letter && word[2] == '\0') return true;
    if (strncmp(word, option->name, length) != 0) return false;
    if (option->value && word[length] == '=') *value = word + length + 1;
    return *value || word[length] == '\0';
}

static int take_option(parsing *p, size_t row, char *value, int argc, char **argv, int *i)
{
    cli_given given = given_of(p, row);
    p->seen[row] = true;
    if (!value && given.option->bare) {
        value = (char *)given.option->bare;
    } else if (!value && given.option->value) {
        if (*i + 1 >= argc) return cli_bad_value(&given, NULL);
        value = argv[++*i];
    }
    return store(&given, value);
}

/* An argument for the next row that has none. */
static int take_argument(parsing *p, char *word)
{
    size_t last = p->rows.count, alike = 0;
    for (size_t i = 0; i < p->rows.count; i++) {
        if (p->rows.list[i].kind != CLI_ARGUMENT || p->rows.list[i].form > 1) continue;
        cli_given given = given_of(p, i);
        if (!p->seen[i] || (given.option->flags & CLI_REPEATED)) {
            p->seen[i] = true;
            return store(&given, word);
        }
        alike = last < p->rows.count && strcmp(p->rows.list[last].value, given.option->value) == 0 ? alike + 1 : 1;
        last = i;
    }
    if (last == p->rows.count) return no_such_option(p->command->name, word);
    const char *what = p->rows.list[last].value, *before = *(const char **)given_of(p, last).at;
    if (alike == 1)
        return cli_fail(CLI_WRONG, "%s: one %s at a time: '%s' and '%s'", p->command->name, what, before, word);
    return cli_fail(CLI_WRONG, "%s: %zu %ss at a time: '%s' is one more", p->command->name, alike, what, word);
}

static bool takes_dash(const parsing *p)
{
    for (size_t i = 0; i < p->rows.count; i++)
        if (p->rows.list[i].flags & CLI_STDIN) return true;
    return false;
}

static int take_word(parsing *p, int argc, char **argv, int *i)
{
    char *word = argv[*i], *value;
    for (size_t row = 0; row < p->rows.count; row++)
        if (is_option(&p->rows.list[row], word, &value)) return take_option(p, row, value, argc, argv, i);
    bool dash = word[0] == '-' && !(word[1] == '\0' && takes_dash(p));
    return dash ? no_such_option(p->command->name, word) : take_argument(p, word);
}

/* ---- all of them together ---- */

/* At most one option of each choice. */
static int check_choices(const parsing *p)
{
    for (size_t i = 0; i < p->rows.count; i++) {
        int choice = p->rows.list[i].choice;
        size_t given = 0, members = 0, listed = 0;
        for (size_t k = 0; choice && k < p->rows.count; k++) {
            if (p->rows.list[k].choice != choice) continue;
            members++;
            given += p->seen[k];
        }
        if (given < 2) continue;
        ht_text names = {0};
        for (size_t k = 0; k < p->rows.count; k++)
            if (p->rows.list[k].choice == choice) {
                listed++;
                ht_text_add(&names, "%s%s", listed == 1 ? "" : listed == members ? " or " : ", ", p->rows.list[k].name);
            }
        int end = cli_fail(CLI_WRONG, "%s: %s: one of them", p->command->name, names.data ? names.data : "");
        ht_text_free(&names);
        return end;
    }
    return CLI_DONE;
}

static int check_arguments(const parsing *p)
{
    for (size_t i = 0; i < p->rows.count; i++)
        if (p->seen[i] && (p->rows.list[i].flags & CLI_INSTEAD)) return CLI_DONE;
    for (size_t i = 0; i < p->rows.count; i++) {
        const cli_option *row = &p->rows.list[i];
        if (row->kind != CLI_ARGUMENT || (row->flags & (CLI_OPTIONAL | CLI_NEEDED)) || row->form > 1 || p->seen[i])
            continue;
        return cli_fail(CLI_WRONG, "%s: which %s?%s see halftone %s --help", p->command->name, row->value,
                        row->flags & CLI_STDIN ? " - reads standard input;" : "", p->command->name);
    }
    return CLI_DONE;
}

static int print_help(const cli_command *command)
{
    ht_text text = {0};
    cli_add_help(&text, command);
    return cli_show(&text);
}

int cli_run_command(const cli_command *command, int argc, char **argv)
{
    if (command->alone && cli_rank() > 0) return CLI_DONE;
    size_t common = common_offset(command);
    parsing *p = calloc(1, sizeof *p);
    char *options = calloc(1, common + sizeof(common_options));
    int end = p && options ? CLI_DONE : cli_fail(CLI_FAILED, "%s: out of memory", command->name);
    if (end == CLI_DONE) {
        p->command = command;
        p->options = options;
        cli_rows_of(&p->rows, command);
        store_defaults(p);
    }
    for (int i = 1; i < argc && end == CLI_DONE; i++) end = take_word(p, argc, argv, &i);
    bool help = end == CLI_DONE && ((common_options *)(void *)(options + common))->help;
    if (end == CLI_DONE && !help) end = check_choices(p);
    if (end == CLI_DONE && !help) end = check_arguments(p);
    free(p);
    if (end == CLI_DONE) end = help ? print_help(command) : command->run(options);
    if (options && command->release) command->release(options);
    free(options);
    return end;
}
