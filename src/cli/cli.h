/* cli: the program `halftone`, one file per command. The only room that prints and decides how the process ends. */
#ifndef HT_CLI_H
#define HT_CLI_H

#include "base/base.h"

/* How the program ends. */
enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_WRONG = 2, CLI_STOPPED = 3, CLI_ENDS };

/* The program as it was started, for commands that a user can copy. */
extern const char *cli_program;

/* "halftone: message" to stderr; returns `end`. */
int cli_fail(int end, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Wrong input is the caller's fault, anything else is a failed run. */
int cli_end_of(ht_status status);
/* A context with what the environment says; on failure the message is out, and the result is CLI_FAILED or CLI_WRONG.
 */
int cli_context(ht_context **out);

/* May control sequences be written to this file descriptor: is it a terminal, and not a dumb one? */
bool cli_terminal(int file);
/* Is there a file or folder of that name, or does it find something as a pattern? */
bool cli_is_there(const char *data);

/* Text to stdout, freed; a full disk is a failed run. */
int cli_put(ht_text *text);
/* The same for text that stays with the caller. */
int cli_puts(const char *text);

#endif
