/* train.init_from, train.freeze and train.groups: what they read as, and what is refused. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "config/config.h"

static ht_context ctx;
static ht_config *config;

static int tear_down(void **state)
{
    (void)state;
    ht_config_free(config);
    config = NULL;
    return 0;
}

static ht_status read_train(const char *members)
{
    static char text[4096];
    ht_config_free(config);
    int length = snprintf(text, sizeof text,
                          "{\"model\": {\"type\": \"x\"}, \"data\": {\"format\": \"y\"}, \"train\": {%s}}", members);
    ht_config_request request = {.path = "job.json", .text = text, .length = (size_t)length};
    return ht_config_read(&config, &ctx, &request);
}

static const ht_train_config *reads(const char *members)
{
    if (read_train(members) != HT_OK) fail_msg("%s: %s", members, ctx.message);
    return ht_config_train(config);
}

static void refused(const char *members, const char *message)
{
    assert_int_equal(read_train(members), HT_EINVAL);
    const ht_problems *problems = ht_config_problems(config);
    for (size_t i = 0; i < problems->count; i++)
        if (problems->list[i].is_error && strstr(problems->list[i].text, message)) return;
    fail_msg("%s: not refused with '%s'", members, message);
}

static void init_from__is_a_path_or_an_object(void **state)
{
    (void)state;
    assert_null(reads("")->init_path);
    const ht_train_config *c = reads("\"init_from\": \"runs/a\"");
    assert_string_equal(c->init_path, "runs/a");
    assert_true(c->init_strict && !c->init_map);
    c = reads("\"init_from\": {\"path\": \"b\", \"strict\": false, \"map\": {\"x\": \"y\", \"z\": null}}");
    assert_string_equal(c->init_path, "b");
    assert_false(c->init_strict);
    assert_string_equal(ht_json_get(c->init_map, "x")->text, "y");
    c = reads("\"init_from\": {\"path\": \"b\", \"map\": null}");
    assert_true(c->init_strict && !c->init_map);
}

static void init_from__is_refused_with_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *value, *message;
    } rows[] = {
        {"7", "train.init_from: expected a path, or an object with a \"path\", found an integer"},
        {"\"\"", "train.init_from: expected a path"},
        {"{}", "found nothing"},
        {"{\"path\": \"a\", \"mop\": 1}", "train.init_from: there is no key \"mop\""},
        {"{\"path\": \"a\", \"strict\": 1}", "true or false for \"strict\""},
        {"{\"path\": \"a\", \"map\": 1}", "train.init_from.map: expected an object of names"},
        {"{\"path\": \"a\", \"map\": {\"x\": 1}}", "train.init_from.map: expected names as text"},
        {"{\"path\": \"a\", \"map\": [{\"match\": \"x\"}]}", "{\"match\": expression, \"replace\": text or null}"},
        {"{\"path\": \"a\", \"map\": [\"x\"]}", "found a string"},
        {"{\"path\": \"a\", \"map\": [{\"match\": \"(\", \"replace\": \"\"}]}", "\"(\" is no regular expression"},
        {"{\"path\": \"a\", \"map\": [{\"match\": \"(x)\", \"replace\": \"\\\\2\"}]}", "which has 1"},
        {"{\"path\": \"a\", \"map\": [{\"match\": \"(x)\", \"replace\": \"\\\\\"}]}", "a backslash stands before"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char members[256];
        snprintf(members, sizeof members, "\"init_from\": %s", rows[i].value);
        refused(members, rows[i].message);
    }
}

static void freeze__is_one_expression_or_a_list(void **state)
{
    (void)state;
    assert_int_equal(reads("")->freeze_count, 0);
    const ht_train_config *c = reads("\"freeze\": \"^a\"");
    assert_int_equal(c->freeze_count, 1);
    c = reads("\"freeze\": [\"^a\", \"b$\"]");
    assert_int_equal(c->freeze_count, 2);
    assert_string_equal(c->freeze[1], "b$");
    refused("\"freeze\": [\"a\", \"[\"]", "train.freeze: \"[\" is no regular expression");
    refused("\"freeze\": 3", "train.freeze");
}

static void pruned__is_one_expression_or_a_list(void **state)
{
    (void)state;
    assert_int_equal(reads("")->pruned_count, 0);
    const ht_train_config *c = reads("\"pruned\": [\"^a\", \"b$\"]");
    assert_int_equal(c->pruned_count, 2);
    assert_string_equal(c->pruned[1], "b$");
    refused("\"pruned\": \"(\"", "train.pruned: \"(\" is no regular expression");
}

static void groups__have_an_expression_and_numbers(void **state)
{
    (void)state;
    const ht_train_config *c =
        reads("\"groups\": [{\"match\": \"a\", \"lr_scale\": 0.5}, "
              "{\"match\": \"b\", \"weight_decay\": 0}, {\"match\": \"c\", \"weight_decay\": null}]");
    assert_int_equal(c->group_count, 3);
    assert_true(c->groups[0].lr_scale == 0.5 && isnan(c->groups[0].weight_decay));
    assert_true(c->groups[1].lr_scale == 1 && c->groups[1].weight_decay == 0);
    assert_true(isnan(c->groups[2].weight_decay));
    refused("\"groups\": {\"match\": \"a\"}", "train.groups: expected a list of groups, found an object");
    refused("\"groups\": [{\"lr_scale\": 1}]", "train.groups: expected {\"match\": expression");
    refused("\"groups\": [{\"match\": \"a\", \"lr\": 1}]", "train.groups: there is no key \"lr\"");
    refused("\"groups\": [{\"match\": \"a\", \"lr_scale\": -1}]", "of \"a\" are numbers that are not negative");
    refused("\"groups\": [{\"match\": \"a\", \"weight_decay\": \"x\"}]", "of \"a\" are numbers that are not negative");
    refused("\"groups\": [{\"match\": \"a{\"}]", "is no regular expression");
}

static void groups__are_at_most_64(void **state)
{
    (void)state;
    ht_text text = {0};
    ht_text_add(&text, "\"groups\": [");
    for (int i = 0; i < 65; i++) ht_text_add(&text, "%s{\"match\": \"a%d\"}", i ? ", " : "", i);
    ht_text_add(&text, "]");
    refused(text.data, "train.groups: more than 64");
    ht_text_free(&text);
}

#define CASE(name) cmocka_unit_test_teardown(name, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(init_from__is_a_path_or_an_object),      CASE(init_from__is_refused_with_what_is_wrong),
        CASE(freeze__is_one_expression_or_a_list),    CASE(pruned__is_one_expression_or_a_list),
        CASE(groups__have_an_expression_and_numbers), CASE(groups__are_at_most_64),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
