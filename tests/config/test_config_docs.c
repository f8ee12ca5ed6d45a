/* The tables themselves, and the page that is written from them. */
#include "config/config.h"
#include "config/tables.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const ht_key *row(const ht_key *keys, const char *name)
{
    for (; keys->name != NULL; keys++)
        if (strcmp(keys->name, name) == 0) return keys;
    fail_msg("no row %s", name);
    return NULL;
}

/* Every row of a table is sound in itself: reading nothing finishes, so each default fits its own row. */
static void check_table(const ht_key *keys, const char *name)
{
    for (const ht_key *key = keys; key->name != NULL; key++) {
        assert_non_null(key->standard);
        assert_non_null(key->help);
        if ((key->kind == HT_KEY_CHOICE) != (key->choices != NULL)) fail_msg("%s: choices", key->name);
        for (const ht_key *other = keys; other != key; other++)
            if (strcmp(other->name, key->name) == 0) fail_msg("%s is there twice", key->name);
        ht_fields *fields;
        ht_origin origin = {.source = HT_SOURCE_DERIVED};
        const ht_key one[] = {*key, {0}};
        if (strchr(key->name, '*') != NULL || strchr(key->name, '[') != NULL) continue;
        assert_int_equal(ht_fields_create(&fields, name), HT_OK);
        assert_int_equal(ht_fields_declare(fields, one), HT_OK);
        assert_int_equal(ht_fields_set(fields, key->name, key->standard, &origin), HT_OK); /* asserts that it fits */
        ht_fields_free(fields);
    }
}

static void tables__every_default_fits_its_row(void **state)
{
    (void)state;
    check_table(ht_train_keys, "train");
    check_table(ht_halftone_keys, "halftone");
    check_table(ht_engine_keys, "engine");
    for (size_t i = 0; i < ht_engine_type_count(); i++) check_table(ht_engine_type_at(i).keys, "params");
}

static void tables__other_names_lead_to_a_row(void **state)
{
    (void)state;
    size_t count = 0;
    for (const ht_key *key = ht_engine_keys; key->name != NULL; key++) {
        const char *other = ht_other_name_of(key);
        assert_true((ht_support_of(key) == HT_SUPPORT_OTHER) == (other != NULL));
        if (other == NULL) continue;
        count++;
        const ht_key *target = row(ht_engine_keys, other);
        assert_true(ht_support_of(target) != HT_SUPPORT_OTHER);
        assert_true(target->kind == key->kind || (target->kind == HT_KEY_CHOICE && key->kind == HT_KEY_BOOL));
    }
    assert_true(count > 10);
}

/* A value goes from one table to the other without a check of its own. */
static void tables__keys_that_mean_the_same_take_the_same(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"batch", "train_batch_size"},
        {"micro_batch", "train_micro_batch_size_per_gpu"},
        {"clip", "gradient_clipping"},
        {"accumulate", "gradient_accumulation_steps"},
        {"log_every", "steps_per_print"},
        {"lr", "optimizer.params.lr"},
        {"betas", "optimizer.params.betas"},
        {"eps", "optimizer.params.eps"},
        {"nesterov", "optimizer.params.nesterov"},
        {"weight_decay", "optimizer.params.weight_decay"},
        {"momentum", "optimizer.params.momentum"},
        {"steps", "scheduler.params.total_num_steps"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const ht_key *ours = row(ht_train_keys, pairs[i][0]);
        size_t met = 0;
        for (size_t t = 0; t <= ht_engine_type_count(); t++) {
            const ht_key *keys = t == 0 ? ht_engine_keys : ht_engine_type_at(t - 1).keys;
            for (; keys->name != NULL; keys++) {
                if (strcmp(keys->name, pairs[i][1]) != 0) continue;
                met++;
                if (keys->kind != ours->kind || keys->low != ours->low || keys->high != ours->high)
                    fail_msg("%s and %s differ", ours->name, keys->name);
            }
        }
        assert_true(met > 0);
    }
}

static void tables__every_type_has_its_choice(void **state)
{
    (void)state;
    for (size_t i = 0; i < ht_engine_type_count(); i++) {
        ht_engine_type type = ht_engine_type_at(i);
        char name[40];
        snprintf(name, sizeof name, "%s.type", type.block);
        const char *at = strstr(row(ht_engine_keys, name)->choices, type.type);
        assert_non_null(at);
        size_t length = strlen(type.block);
        assert_memory_equal(type.keys->name, type.block, length);
        assert_memory_equal(type.keys->name + length, ".params.", 8);
    }
}

/* The file in docs/ is what the command writes now. */
static void is_fresh(const char *file, const char *command)
{
    ht_context ctx = {0};
    char *page, path[4096], *now;
    size_t length;
    snprintf(path, sizeof path, "%s/../docs/%s", HT_TEST_DIR, file);
    assert_int_equal(ht_read_file(&ctx, &page, &length, path), HT_OK);
    FILE *pipe = popen(command, "r");
    assert_non_null(pipe);
    now = malloc(length + 2);
    size_t got = fread(now, 1, length + 2, pipe);
    while (fgetc(pipe) != EOF) {
    }
    assert_int_equal(pclose(pipe), 0);
    if (got != length || memcmp(now, page, length) != 0) fail_msg("docs/%s is old; it is written by %s", file, command);
    free(now);
    free(page);
}

static void docs__config_md_is_what_the_program_writes(void **state)
{
    (void)state;
    is_fresh("config.md", "'" HT_PROGRAM "' check --keys");
}

static void docs__the_man_pages_are_what_the_tables_of_commands_give(void **state)
{
    (void)state;
    static const char line[] = "folder=$(mktemp -d) && '" HT_TEST_DIR "/../tools/make-man' '" HT_PROGRAM
                               "' \"$folder\" && diff -r '" HT_TEST_DIR
                               "/../docs/man' \"$folder\"; status=$?; rm -rf \"$folder\"; exit $status";
    assert_int_equal(system(line), 0); /* tools/make-man build/halftone writes them anew */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables__every_default_fits_its_row),
        cmocka_unit_test(tables__other_names_lead_to_a_row),
        cmocka_unit_test(tables__keys_that_mean_the_same_take_the_same),
        cmocka_unit_test(tables__every_type_has_its_choice),
        cmocka_unit_test(docs__config_md_is_what_the_program_writes),
        cmocka_unit_test(docs__the_man_pages_are_what_the_tables_of_commands_give),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
