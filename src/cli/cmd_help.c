/* halftone help: what there is, for people and for man. */
#include "cli/option_table.h"

typedef struct help_options {
    const char *command;
    bool man;
} help_options;

static int run_help(void *arg)
{
    const help_options *o = arg;
    const cli_command *about = o->command ? cli_find_command(o->command) : &cli_program_command;
    ht_text text = {0};
    if (!about) return cli_no_such_command(o->command);
    if (o->man)
        cli_add_man(&text, about);
    else
        cli_add_help(&text, about);
    return o->man ? cli_put(&text) : cli_show(&text);
}

static const cli_option options[] = {
    {"COMMAND", "command", CLI_ARGUMENT, offsetof(help_options, command), .help = "the command to tell about",
     .flags = CLI_OPTIONAL},
    {"--man", NULL, CLI_FLAG, offsetof(help_options, man), .help = "the man page instead, in the macros of man(7)"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone help train", "the same as halftone train --help"},
    {"halftone help --man train | man -l -", "the man page of a program that is not installed"},
    {0},
};

const cli_command cmd_help = {
    .name = "help",
    .summary = "list the commands; halftone help COMMAND is halftone COMMAND --help",
    .description = "Prints the commands, or what a command does, its options and examples.",
    .options = options,
    .size = sizeof(help_options),
    .run = run_help,
    .examples = examples,
};
