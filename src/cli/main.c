#include "cli/option_table.h"

#include <stdio.h>
#include <string.h>

static int version(void)
{
    ht_text text = {0};
    ht_text_add(&text, "halftone %s\n", ht_version());
    return cli_show(&text);
}

/* Without a command, help is what was missing, and no output. */
static int no_command(void)
{
    ht_text text = {0};
    cli_add_help(&text, &cli_program_command);
    if (!text.failed) fputs(text.data, stderr);
    ht_text_free(&text);
    return CLI_WRONG;
}

int main(int argc, char **argv)
{
    if (argc > 0) cli_program = argv[0];
    if (argc < 2) return no_command();
    if (strcmp(argv[1], "--version") == 0) return version();
    bool help = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0;
    const char *name = help ? "help" : argv[1];
    const cli_command *command = cli_find_command(name);
    int end = command ? cli_run_command(command, argc - 1, argv + 1) : cli_no_such_command(name);
    /* Lines of progress that could not be written do not end a run, but are no success either. */
    if (end == CLI_DONE && ferror(stdout)) return cli_fail(CLI_FAILED, "standard output: could not be written");
    return end;
}
