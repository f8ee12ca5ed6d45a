#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

typedef struct command {
    const char *name;
    const char *help;
    int (*run)(int argc, char **argv);
} command;

static const command commands[] = {
#define HT_COMMAND(name, help) {#name, help, cmd_##name},
#include "cli/commands.def"
#undef HT_COMMAND
};
enum { COMMAND_COUNT = sizeof commands / sizeof commands[0] };

static const command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMAND_COUNT; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static int no_such_command(const char *name)
{
    const char *nearest = NULL;
    int best = 4;
    for (size_t i = 0; i < COMMAND_COUNT; i++) {
        int distance = ht_edit_distance(name, commands[i].name);
        if (distance < best) best = distance, nearest = commands[i].name;
    }
    if (nearest) return cli_fail(CLI_WRONG, "there is no command '%s'; did you mean '%s'?", name, nearest);
    return cli_fail(CLI_WRONG, "there is no command '%s'; see halftone help", name);
}

static void add_help(ht_text *text)
{
    ht_text_add(text, "usage: halftone COMMAND [ARGUMENTS]\n\n");
    for (size_t i = 0; i < COMMAND_COUNT; i++) ht_text_add(text, "    %-10s %s\n", commands[i].name, commands[i].help);
    ht_text_add(text, "    %-10s %s\n", "help", "this list; halftone help COMMAND is halftone COMMAND --help");
    ht_text_add(text,
                "\nhalftone --version prints the version. Exit status: 0 done, 1 the run failed, 2 the command or "
                "its input was wrong.\n");
}

static int help(int argc, char **argv)
{
    if (argc < 2) {
        ht_text text = {0};
        add_help(&text);
        return cli_put(&text);
    }
    const command *about = find_command(argv[1]);
    if (!about) return no_such_command(argv[1]);
    return about->run(2, (char *[]){argv[1], (char[]){"--help"}, NULL});
}

static int version(void)
{
    ht_text text = {0};
    ht_text_add(&text, "halftone %s\n", ht_version());
    return cli_put(&text);
}

int main(int argc, char **argv)
{
    if (argc > 0) cli_program = argv[0];
    if (argc < 2) {
        ht_text text = {0};
        add_help(&text);
        if (!text.failed) fputs(text.data, stderr);
        ht_text_free(&text);
        return CLI_WRONG;
    }
    if (cli_flag(argv, 1, "help") || cli_flag(argv, 1, "--help")) return help(argc - 1, argv + 1);
    if (cli_flag(argv, 1, "--version")) return version();
    const command *chosen = find_command(argv[1]);
    return chosen ? chosen->run(argc - 1, argv + 1) : no_such_command(argv[1]);
}
