/* Configs of public projects, each with its recorded outcomes: of check, and of training with --lenient. The files are in
 * $HALFTONE_DATA/deepspeed-configs, the outcomes in tests/reference/deepspeed_outcomes.tsv, which
 * tests/reference/record_deepspeed.sh writes. test_cli_deepspeed trains them. */
#include "config/config.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[2048];

static ht_config *read_config(const char *name, bool training, bool lenient)
{
    static const char *const sets[] = {"halftone.lenient=true"};
    ht_context ctx = {0};
    ht_config *config;
    char path[8192], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(ht_read_file(&ctx, &text, &length, path), HT_OK);
    ht_config_request request = {.path = name, .text = text, .length = length, .training = training};
    request.sets = sets;
    request.set_count = lenient;
    ht_config_read(&config, &ctx, &request);
    free(text);
    assert_non_null(config);
    return config;
}

/* `good`, or the first error without the file's name. */
static void outcome_of(const char *name, bool lenient, const char *good, char *out, size_t capacity)
{
    ht_config *config = read_config(name, lenient, lenient);
    const char *line = good;
    const ht_problems *problems = ht_config_problems(config);
    for (size_t i = problems->count; i-- > 0;)
        if (problems->list[i].is_error) line = problems->list[i].text;
    if (strncmp(line, name, strlen(name)) == 0) line += strlen(name);
    snprintf(out, capacity, "%s", line);
    ht_config_free(config);
}

static size_t count_files(void)
{
    size_t count = 0;
    DIR *dir = opendir(folder);
    if (dir == NULL) return 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) count += strstr(entry->d_name, ".json") != NULL;
    closedir(dir);
    return count;
}

/* Name, outcome of check, outcome of lenient training; false behind the last. */
static bool next_row(FILE *table, char *line, size_t capacity, char *columns[3])
{
    if (fgets(line, (int)capacity, table) == NULL) return false;
    line[strcspn(line, "\n")] = '\0';
    for (int i = 0; i < 3; i++) {
        columns[i] = line;
        line = strchr(line, '\t');
        assert_true((line != NULL) == (i < 2));
        if (line != NULL) *line++ = '\0';
    }
    return true;
}

static void compare(const char *name, const char *found, const char *recorded)
{
    if (strcmp(found, recorded) != 0) fail_msg("%s:\n  found    %s\n  recorded %s", name, found, recorded);
}

static void configs_of_public_projects__have_the_recorded_outcome(void **state)
{
    (void)state;
    char line[4096], found[1024], *columns[3];
    size_t rows = 0, accepted = 0, training = 0;
    FILE *table = fopen(HT_TEST_DIR "/reference/deepspeed_outcomes.tsv", "r");
    assert_non_null(table);
    while (next_row(table, line, sizeof line, columns)) {
        outcome_of(columns[0], false, "accepted", found, sizeof found);
        compare(columns[0], found, columns[1]);
        accepted += strcmp(found, "accepted") == 0;
        outcome_of(columns[0], true, "trains", found, sizeof found);
        compare(columns[0], found, columns[2]);
        training += strcmp(found, "trains") == 0;
        rows++;
    }
    fclose(table);
    assert_int_equal(rows, count_files());
    assert_true(accepted >= 123);
    assert_true(training >= 124); /* all but the six templates, which are no JSON */
}

/* Does an error of strict training name this? */
static bool is_named(const ht_problems *problems, const char *text, size_t length)
{
    for (size_t i = 0; i < problems->count; i++)
        for (const char *at = problems->list[i].text; problems->list[i].is_error && *at != '\0'; at++)
            if (strncmp(at, text, length) == 0) return true;
    return false;
}

/* Without --lenient, a refusal names all that --lenient would leave out: nobody meets one missing feature after the
 * other. */
static void configs_of_public_projects__are_refused_with_every_reason_at_once(void **state)
{
    (void)state;
    char line[4096], *columns[3];
    size_t named = 0;
    FILE *table = fopen(HT_TEST_DIR "/reference/deepspeed_outcomes.tsv", "r");
    assert_non_null(table);
    while (next_row(table, line, sizeof line, columns)) {
        ht_config *strict = read_config(columns[0], true, false), *lenient = read_config(columns[0], true, true);
        const ht_problems *told = ht_config_problems(lenient);
        for (size_t i = 0; i < told->count; i++) {
            const char *what = strstr(told->list[i].text, ": left out");
            if (what == NULL) continue;
            what = strstr(what + 2, ": ") + 2;
            const char *unknown = strstr(what, " is unknown");
            size_t length = unknown != NULL ? (size_t)(unknown - what) : strcspn(what, ":");
            if (!is_named(ht_config_problems(strict), what, length))
                fail_msg("%s: no error names %.*s", columns[0], (int)length, what);
            named++;
        }
        ht_config_free(strict);
        ht_config_free(lenient);
    }
    fclose(table);
    assert_true(named > 30);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(configs_of_public_projects__have_the_recorded_outcome),
        cmocka_unit_test(configs_of_public_projects__are_refused_with_every_reason_at_once),
    };
    const char *data = getenv("HALFTONE_DATA");
    snprintf(folder, sizeof folder, "%s/deepspeed-configs", data != NULL ? data : "");
    if (count_files() == 0) {
        puts("skipped: HALFTONE_DATA has no deepspeed-configs");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
