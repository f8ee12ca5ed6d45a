/* The list of commands, and halftone itself as its help and its man page see it. */
#include "cli/option_table.h"

#include <string.h>

#define HT_COMMAND(name) extern const cli_command cmd_##name;
#include "cli/commands.def"
#undef HT_COMMAND

const cli_command *const cli_commands[] = {
#define HT_COMMAND(name) &cmd_##name,
#include "cli/commands.def"
#undef HT_COMMAND
};
const size_t cli_command_count = sizeof cli_commands / sizeof cli_commands[0];

static const cli_option options[] = {
    {"COMMAND", "command", CLI_ARGUMENT, 0, .help = "one of the commands above", .form = 1},
    {"ARGUMENTS", "argument", CLI_ARGUMENT, 0, .help = "what the command takes", .form = 1, .flags = CLI_OPTIONAL},
    {"--version", NULL, CLI_FLAG, 0, .help = "print the version", .form = 2, .flags = CLI_NEEDED},
    {0},
};

static const cli_entry environment[] = {
    {"OMP_NUM_THREADS", "how many threads compute; without it, the cores that the process may use"},
    {"HALFTONE_ISA", "the instruction set of the kernels, such as portable; halftone probe --describe names this "
                     "machine's, the default"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone demo --quick", "a first look: a small translator in several precisions"},
    {"halftone init text.txt && halftone check job.json && halftone train job.json", "from a file to a trained model"},
    {0},
};

const cli_command cli_program_command = {
    .name = "",
    .summary = "train neural networks as job files say, in full and mixed precision",
    .description =
        "Halftone is a deep-learning training engine. A job file names a model, data and how to train; halftone train "
        "runs it, and the other commands prepare it, look inside it, and compare what comes out.",
    .options = options,
    .stops = true,
    .environment = environment,
    .examples = examples,
};

const cli_command *cli_find_command(const char *name)
{
    for (size_t i = 0; i < cli_command_count; i++)
        if (strcmp(cli_commands[i]->name, name) == 0) return cli_commands[i];
    return NULL;
}

int cli_no_such_command(const char *name)
{
    const char *nearest = NULL;
    int best = 4;
    for (size_t i = 0; i < cli_command_count; i++) {
        int distance = ht_edit_distance(name, cli_commands[i]->name);
        if (distance < best) best = distance, nearest = cli_commands[i]->name;
    }
    if (nearest) return cli_fail(CLI_WRONG, "there is no command '%s'; did you mean '%s'?", name, nearest);
    return cli_fail(CLI_WRONG, "there is no command '%s'; see halftone help", name);
}
