/* Passes and the text form, tested as text: every tests/golden/NAME.ht is run as its first line says,
 *     # RUN: halftone opt --pass NAME [--set key=value] %s
 * and what the program prints is held against the CHECK lines of the file (check_match.h). `# RUN: not halftone ...`
 * expects the program to refuse, and checks what it says about it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check_match.h"

enum { MAX_WORDS = 32, MAX_FILES = 512 };

/* ---- the matcher itself ---- */

typedef struct match_case {
    bool good;
    const char *script, *output;
} match_case;

static const match_case match_cases[] = {
    {true, "# CHECK: b", "a\nb\nc\n"},
    {true, "  #CHECK:b  ", "xbx"},
    {false, "# CHECK: d", "a\nb\nc\n"},
    {true, "# CHECK: a\n# CHECK: c", "a\nb\nc\n"},
    {false, "# CHECK: c\n# CHECK: a", "a\nb\nc\n"},
    {false, "# CHECK: a\n# CHECK: a", "a\nb\nc\n"}, /* each match uses up its line */
    {true, "# CHECK: a\n# CHECK-NEXT: b\n# CHECK-NEXT: c", "a\nb\nc\n"},
    {false, "# CHECK: a\n# CHECK-NEXT: c", "a\nb\nc\n"},
    {false, "# CHECK: c\n# CHECK-NEXT: d", "a\nb\nc\n"},
    {false, "# CHECK-NEXT: a", "a\n"},
    {true, "# CHECK-NOT: x\n# CHECK: b", "a\nb\nx\n"},
    {false, "# CHECK-NOT: a\n# CHECK: b", "a\nb\nx\n"},
    {true, "# CHECK: a\n# CHECK-NOT: x\n# CHECK: c", "x\na\nb\nc\nx\n"},
    {false, "# CHECK: a\n# CHECK-NOT: b\n# CHECK: c", "a\nb\nc\n"},
    {true, "# CHECK: b\n# CHECK-NOT: a", "a\nb\nc\n"},
    {false, "# CHECK: a\n# CHECK-NOT: c", "a\nb\nc\n"},
    {false, "# CHECK: a\n# CHECK-NOT: z\n# CHECK-NOT: c", "a\nb\nc\n"},
    {true, "# CHECK: a  b", "a    b\n"},
    {false, "# CHECK: a b", "ab\n"},
    {true, "# CHECK: %[[X:.*]] = neg (%[[Y:[a-z]+]])\n# CHECK: (%[[X]], %[[Y]])", "%12 = neg (%q)\n(%12, %q)\n"},
    {false, "# CHECK: %[[X:.*]] = neg (%[[Y:[a-z]+]])\n# CHECK: (%[[X]], %[[Y]])", "%12 = neg (%q)\n(%13, %q)\n"},
    {true, "# CHECK: [[X:[0-9]+]]-[[X]]", "12-34\n34-34\n"},
    {false, "# CHECK: <[[X:[0-9]+]]-[[X]]>", "<12-34>\n<12-1>\n"},
    {true, "# CHECK: [[X:a+]]a[[Y:b|c]]", "aaac\n"}, /* gives back what the rest needs */
    {true, "# CHECK: [[X:[0-9]]]]", "[7]\n"},
    {false, "# CHECK: [[X:[0-9]+]]\n# CHECK: =[[X]]=", "=7\n=8=\n"},
    {true, "# CHECK: [[X:a]]\n# CHECK: [[X:b]]\n# CHECK: c[[X]]", "a\nb\ncb\n"}, /* the last one counts */
    {false, "# CHECK: [[X]]", "a\n"},
    {false, "# CHECK: [[:a]]", "a\n"},
    {false, "# CHECK: [[X:(]]", "a\n"},
    {false, "# CHECK: [[X:a", "a\n"},
    {false, "# CHECK:", "a\n"},
    {false, "# CHECK-SOON: a", "a\n"},
    {false, "nothing to check", "a\n"},
    {false, "# CHECK-NOT: z", "a\n"}, /* could pass on an empty output */
    {false, "# CHECK: a", ""},
    {true, "# CHECK: a.b*c", "a.b*c\n"}, /* outside brackets everything is itself */
    {false, "# CHECK: a.b", "axb\n"},
};

static void the_matcher__accepts_and_refuses(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof match_cases / sizeof match_cases[0]; i++) {
        char message[512];
        const match_case *c = &match_cases[i];
        bool good = check_match(c->script, c->output, message, sizeof message);
        if (good != c->good) fail_msg("%s\nagainst\n%s\nis %d: %s", c->script, c->output, good, message);
        if (!good && !message[0]) fail_msg("refused without a message: %s", c->script);
    }
}

/* ---- files ---- */

static char *read_stream(FILE *file)
{
    size_t length = 0, capacity = 1 << 16;
    char *text = malloc(capacity);
    assert_non_null(text);
    for (size_t got; (got = fread(text + length, 1, capacity - 1 - length, file)) > 0;) {
        length += got;
        if (length + 1 == capacity) text = realloc(text, capacity *= 2);
        assert_non_null(text);
    }
    text[length] = 0;
    return text;
}

typedef struct command {
    char line[1024];
    char *words[MAX_WORDS];
    bool refuses;
} command;

static void read_command(command *c, const char *script, const char *path)
{
    static const char head[] = "# RUN: ";
    if (strncmp(script, head, strlen(head)) != 0) fail_msg("the first line is no '# RUN: halftone ...'");
    snprintf(c->line, sizeof c->line, "%.*s", (int)strcspn(script, "\n") - (int)strlen(head), script + strlen(head));
    size_t count = 0;
    char *rest = NULL;
    for (char *word = strtok_r(c->line, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        assert_true(count + 1 < MAX_WORDS);
        if (count == 0 && !c->refuses && strcmp(word, "not") == 0)
            c->refuses = true;
        else
            c->words[count++] = strcmp(word, "%s") == 0 ? (char *)path : word;
    }
    if (!count || strcmp(c->words[0], "halftone") != 0) fail_msg("only halftone can be run");
    c->words[count] = NULL;
}

/* Standard output; with standard error where the program is to refuse. */
static char *run(const command *c, int *status)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        if (c->refuses) dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        execv(HT_PROGRAM, c->words);
        _exit(127);
    }
    close(ends[1]);
    FILE *file = fdopen(ends[0], "r");
    assert_non_null(file);
    char *output = read_stream(file);
    fclose(file);
    assert_int_equal(waitpid(child, status, 0), child);
    return output;
}

static void golden(void **state)
{
    char message[2048];
    FILE *file = fopen(*state, "r");
    assert_non_null(file);
    char *script = read_stream(file);
    fclose(file);
    command c = {.refuses = false};
    read_command(&c, script, *state);
    int status;
    char *output = run(&c, &status);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    bool ended_well = c.refuses ? code == 1 || code == 2 : code == 0;
    if (strstr(output, "Sanitizer")) ended_well = false;
    if (!ended_well) fail_msg("exit status %d\n%s", code, output);
    if (!check_match(script, output, message, sizeof message)) fail_msg("%s\n---- output:\n%s", message, output);
    free(output);
    free(script);
}

/* ---- all of them ---- */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct CMUnitTest *)a)->name, ((const struct CMUnitTest *)b)->name);
}

static size_t find_goldens(struct CMUnitTest *tests)
{
    size_t count = 0;
    DIR *folder = opendir(HT_GOLDEN_DIR);
    if (!folder) return 0;
    for (struct dirent *entry; (entry = readdir(folder)) && count < MAX_FILES;) {
        const char *dot = strrchr(entry->d_name, '.');
        if (!dot || strcmp(dot, ".ht") != 0) continue;
        size_t capacity = strlen(HT_GOLDEN_DIR) + strlen(entry->d_name) + 2;
        char *path = malloc(capacity);
        if (!path) abort();
        snprintf(path, capacity, "%s/%s", HT_GOLDEN_DIR, entry->d_name);
        tests[count++] =
            (struct CMUnitTest){.name = strrchr(path, '/') + 1, .test_func = golden, .initial_state = path};
    }
    closedir(folder);
    qsort(tests, count, sizeof *tests, by_name);
    return count;
}

int main(void)
{
    static struct CMUnitTest tests[MAX_FILES];
    const struct CMUnitTest matcher[] = {cmocka_unit_test(the_matcher__accepts_and_refuses)};
    int failures = cmocka_run_group_tests_name("matcher", matcher, NULL, NULL);
    size_t count = find_goldens(tests);
    if (count == 0) {
        fprintf(stderr, "no goldens in %s\n", HT_GOLDEN_DIR);
        return 1;
    }
    failures += _cmocka_run_group_tests("golden", tests, count, NULL, NULL);
    for (size_t i = 0; i < count; i++) free(tests[i].initial_state);
    return failures;
}
