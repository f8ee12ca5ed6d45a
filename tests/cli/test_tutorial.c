/* docs/tutorial.md: every command in it is run, in its order, in an empty folder. */
#include "cli_case.h"

/* The lines between ```sh and ``` as one script that stops at the first failure. */
static size_t collect(char *page, char *script)
{
    size_t length = (size_t)sprintf(script, "set -e\nhalftone() { '%s' \"$@\"; }\n", HT_PROGRAM);
    bool inside = false;
    for (char *line = page, *end; line && *line; line = end) {
        end = strchr(line, '\n');
        if (end) *end++ = '\0';
        if (strcmp(line, "```sh") == 0)
            inside = true;
        else if (strcmp(line, "```") == 0)
            inside = false;
        else if (inside)
            length += (size_t)sprintf(script + length, "%s\n", line);
    }
    assert_false(inside);
    return length;
}

static void expect_in(const char *text, const char *part)
{
    if (!strstr(text, part)) fail_msg("'%s' is not in the output of the tutorial", part);
}

static void tutorial__every_command_works(void **state)
{
    data_case *c = *state;
    char *page;
    size_t length;
    int status;
    assert_int_equal(ht_read_file(&c->ctx, &page, &length, HT_TEST_DIR "/../docs/tutorial.md"), HT_OK);
    char *script = malloc(2 * length + 4096);
    assert_non_null(script);
    data_case_file(c, "tutorial.sh", script, collect(page, script));
    const char *text = run(c, "sh tutorial.sh", &status);
    if (status != 0)
        fail_msg("the tutorial ends with %d:\n%s", status, strlen(text) > 900 ? text + strlen(text) - 900 : text);
    expect_in(text, "job.json is written");
    expect_in(text, "step 60 of 60");
    expect_in(text, "goes on after step 60");
    expect_in(text, "step 80 of 80");
    expect_in(text, "perplexity  ");
    expect_in(text, "accuracy    ");
    expect_in(text, "The curves as a page: compare/compare.html");
    free(script);
    free(page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(tutorial__every_command_works, data_case_begin, data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
