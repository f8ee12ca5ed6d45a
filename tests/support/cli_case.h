/* The program from outside, in the folder of a case. For test_cli_*.c, whose targets define HT_PROGRAM. */
#ifndef HT_TESTS_CLI_CASE_H
#define HT_TESTS_CLI_CASE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

#include "data_case.h"

/* Runs a shell line in the case's folder, $H is the program; the text of both streams. */
static const char *run(const data_case *c, const char *line, int *status)
{
    static char text[1 << 18];
    char command[8192];
    snprintf(command, sizeof command, "H='%s'; cd '%s' && (%s) 2>&1", HT_PROGRAM, c->folder, line);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    size_t length = fread(text, 1, sizeof text - 1, pipe);
    text[length] = '\0';
    *status = pclose(pipe);
    assert_true(WIFEXITED(*status));
    *status = WEXITSTATUS(*status);
    return text;
}

static void expect(const data_case *c, const char *line, int wanted, const char *text)
{
    int status;
    const char *got = run(c, line, &status);
    if (status != wanted || !strstr(got, text))
        fail_msg("%s: exit status %d, not %d, or '%s' is not in:\n%.3000s", line, status, wanted, text, got);
}

#endif
