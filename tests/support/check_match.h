/* A small matcher for tests that are text. A script holds, in comments,
 *     # CHECK: pattern        some line from here on contains it
 *     # CHECK-NEXT: pattern   the line behind the one matched last contains it
 *     # CHECK-NOT: pattern    no line between the matches before and behind it contains it
 * Blanks around a pattern do not count, and a run of blanks in it matches any run. [[NAME:regex]] matches a POSIX
 * extended regular expression and remembers what it matched, [[NAME]] matches that again, on the same line, too. */
#ifndef HT_TESTS_CHECK_MATCH_H
#define HT_TESTS_CHECK_MATCH_H

#include <stdbool.h>
#include <stddef.h>

/* Does the output fulfil the script? If not, or if the script is no script, `message` says what and where. A script
 * without a single CHECK or CHECK-NEXT is an error: it could not fail. */
bool check_match(const char *script, const char *output, char *message, size_t message_capacity);

#endif
