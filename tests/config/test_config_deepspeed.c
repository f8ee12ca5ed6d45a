/* Configs of public projects, each with its recorded outcome. The files are in $HALFTONE_DATA/deepspeed-configs, the
 * outcomes in tests/reference/deepspeed_outcomes.tsv, which tests/reference/record_deepspeed.sh writes. */
#include "config/config.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char folder[2048];

/* "accepted", or the first error without the file's name. */
static void outcome_of(const char *name, char *out, size_t capacity)
{
    ht_context ctx = {0};
    ht_config *config;
    char path[8192], *text;
    size_t length;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_int_equal(ht_read_file(&ctx, &text, &length, path), HT_OK);
    ht_config_request request = {.path = name, .text = text, .length = length};
    ht_status status = ht_config_read(&config, &ctx, &request);
    const char *line = "accepted";
    assert_non_null(config);
    const ht_problems *problems = ht_config_problems(config);
    for (size_t i = problems->count; status != HT_OK && i-- > 0;)
        if (problems->list[i].is_error) line = problems->list[i].text;
    if (strncmp(line, name, strlen(name)) == 0) line += strlen(name);
    snprintf(out, capacity, "%s", line);
    ht_config_free(config);
    free(text);
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

static void configs_of_public_projects__have_the_recorded_outcome(void **state)
{
    (void)state;
    char line[4096], found[1024];
    size_t rows = 0, accepted = 0;
    FILE *table = fopen(HT_TEST_DIR "/reference/deepspeed_outcomes.tsv", "r");
    assert_non_null(table);
    while (fgets(line, sizeof line, table) != NULL) {
        char *tab = strchr(line, '\t');
        line[strcspn(line, "\n")] = '\0';
        assert_non_null(tab);
        *tab = '\0';
        outcome_of(line, found, sizeof found);
        if (strcmp(found, tab + 1) != 0) fail_msg("%s:\n  found    %s\n  recorded %s", line, found, tab + 1);
        accepted += strcmp(found, "accepted") == 0;
        rows++;
    }
    fclose(table);
    assert_int_equal(rows, count_files());
    assert_true(accepted >= 123);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(configs_of_public_projects__have_the_recorded_outcome)};
    const char *data = getenv("HALFTONE_DATA");
    snprintf(folder, sizeof folder, "%s/deepspeed-configs", data != NULL ? data : "");
    if (count_files() == 0) {
        puts("skipped: HALFTONE_DATA has no deepspeed-configs");
        return 77;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
