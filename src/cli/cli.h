/* cli: the program `halftone`, one file per command. The only room that prints and decides how the process ends. */
#ifndef HT_CLI_H
#define HT_CLI_H

#include "base/base.h"

/* How the program ends. */
enum { CLI_DONE = 0, CLI_FAILED = 1, CLI_WRONG = 2, CLI_STOPPED = 3, CLI_ENDS };

/* The program as it was started, for commands that a user can copy. */
extern const char *cli_program;

/* `before` and `after` as one word for the shell, in quotes where it needs them. */
void cli_add_word(ht_text *text, const char *before, const char *after);

/* Which rank of a launcher this process is, also where it is for itself; 0: the first, or there is none. What is wrong with
 * the launcher is told later. */
int cli_rank(void);
/* "halftone: message" to stderr; returns `end`. A later rank of a launcher gives its number. It waits before, since ranks
 * often fail alike: the first says so at once, and its end is theirs. */
int cli_fail(int end, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A line to stderr, folded at words where that is a terminal. */
void cli_tell(const char *before, const char *message);
/* Wrong input is the caller's fault, anything else is a failed run. */
int cli_end_of(ht_status status);
/* A context with what the environment says; on failure the message is out, and the result is CLI_FAILED or CLI_WRONG.
 */
int cli_context(ht_context **out);
/* One more beside it, for a rank that is a thread; a quiet one logs nothing. After a failure the reason is in the caller's. */
int cli_context_of_rank(ht_context **out, int threads, bool quiet, char *reason, size_t capacity);

/* Is there a file or folder of that name, or does it find something as a pattern? */
bool cli_is_there(const char *data);

/* Text for programs to stdout, freed; a full disk is a failed run. */
int cli_put(ht_text *text);
/* The same for people: lines that are too long for the terminal are folded at words. */
int cli_show(ht_text *text);
/* The same for text that stays with the caller. */
int cli_puts(const char *text);

/* A whole file, written beside its path and renamed, so that no reader sees half of it. False: errno says why. */
bool cli_write_file(const char *path, const ht_text *text);

/* ---- the terminal; a rank that a launcher has started has none ---- */

/* Does the file lead to a terminal that knows control sequences? */
bool cli_terminal(int file);
/* Of the terminal behind stdout, or what COLUMNS says; 0: there is none, lines may be as long as they are. */
int cli_columns(void);
/* Lines of that terminal, or what LINES says; 0: there is none. */
int cli_terminal_lines(void);
/* For paragraphs: these columns, but no more than one likes to read. */
size_t cli_prose_width(void);
/* Are colours welcome on stdout? */
bool cli_colours(void);
/* Lines that are longer than `width` are broken at words, with what follows further to the right; 0: none is. */
void cli_fold(ht_text *to, const char *text, size_t width);

#endif
