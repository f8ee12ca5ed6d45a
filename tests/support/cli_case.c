#include "cli_case.h"

#include <sys/wait.h>

const char *run(const data_case *c, const char *line, int *status)
{
    static char text[1 << 18];
    char command[8192];
    int length = snprintf(command, sizeof command, "unset COLUMNS; H='%s'; cd '%s' && (%s) 2>&1", HT_PROGRAM,
                          c ? c->folder : ".", line);
    assert_in_range(length, 1, sizeof command - 1);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    text[fread(text, 1, sizeof text - 1, pipe)] = '\0';
    while (fgetc(pipe) != EOF) continue;
    int end = pclose(pipe);
    assert_true(WIFEXITED(end));
    *status = WEXITSTATUS(end);
    return text;
}

void expect(const data_case *c, const char *line, int status, const char *text)
{
    int got;
    const char *said = run(c, line, &got);
    if (got != status || !strstr(said, text))
        fail_msg("%s: exit status %d, not %d, or '%s' is not in:\n%.3000s", line, got, status, text, said);
}
