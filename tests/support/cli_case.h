/* The program from outside. */
#ifndef HT_TESTS_CLI_CASE_H
#define HT_TESTS_CLI_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data_case.h"

/* Runs a shell line in the case's folder (NULL: where the test runs), with $H as the program. Returns what both streams
 * said, in order, up to 256 KiB, in static memory. */
const char *run(const data_case *c, const char *line, int *status);
/* Fails unless the line ends with that exit status and its text contains `text`. */
void expect(const data_case *c, const char *line, int status, const char *text);

#endif
