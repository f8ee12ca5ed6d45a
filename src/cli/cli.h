/* cli: the program `halftone`, one file per command. The only room that prints and decides how the process ends. */
#ifndef HT_CLI_H
#define HT_CLI_H

#include "base/base.h"

/* How the program ends. */
enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_WRONG = 2 };

/* The program as it was started, for commands that a user can copy. */
extern const char *cli_program;

/* A command sees its own name in argv[0] and returns how the program ends. */
#define HT_COMMAND(name, help) int cmd_##name(int argc, char **argv);
#include "cli/commands.def"
#undef HT_COMMAND

/* "halftone: message" to stderr; returns `end`. */
int cli_fail(int end, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Wrong input is the caller's fault, anything else is a failed run. */
int cli_end_of(ht_status status);
/* A context with what the environment says; on failure the message is out, and the result is CLI_FAILED or CLI_WRONG.
 */
int cli_context(ht_context **out);

/* Text to stdout, freed; a full disk is a failed run. */
int cli_put(ht_text *text);
/* The same for text that stays: usages and the like. */
int cli_puts(const char *text);
/* A JSON string with its quotes. */
void cli_json_string(ht_text *text, const char *string);
/* A further member of an object: `, "name": value`. NULL and what is no finite number become null. */
void cli_json_text(ht_text *text, const char *name, const char *value);
void cli_json_number(ht_text *text, const char *name, double value);

/* Is argv[i] the flag? */
bool cli_flag(char **argv, int i, const char *flag);
/* Is argv[*i] `--key value` or `--key=value`? *i moves to its last word; *value is NULL when it has none.
 * The words of argv may be cut. */
bool cli_value(int argc, char **argv, int *i, const char *key, char **value);
/* For a word that no option knows. */
int cli_no_such_option(const char *command, const char *word);

#endif
