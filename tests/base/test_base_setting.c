/* Settings by name become typed fields of a struct. */
#include "base/base.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

typedef struct options {
    double rate, share;
    int64_t count;
    bool on, matrices;
    int colour;
    const char *name;
    char own[8];
} options;

static ht_status read_own(ht_context *ctx, void *settings, const char *name, const char *text)
{
    options *o = settings;
    (void)ctx;
    strncat(strncat(o->own, name, 4), text, 3);
    return HT_OK;
}

#define FIELD(field) .at = offsetof(options, field)
static const ht_setting_key keys[] = {
    {.name = "rate", .kind = HT_SETTING_NUMBER, FIELD(rate), .low = 0, .high = 1},
    {.name = "share", .kind = HT_SETTING_BOUNDED, FIELD(share), .low = 0, .high = 1},
    {.name = "count", .kind = HT_SETTING_WHOLE, FIELD(count), .low = 1, .high = 9, .wants = "one digit"},
    {.name = "on", .kind = HT_SETTING_SWITCH, FIELD(on)},
    {.name = "decay", .kind = HT_SETTING_EITHER, FIELD(matrices), .words = "matrices|all"},
    {.name = "colour", .kind = HT_SETTING_CHOICE, FIELD(colour), .words = "red|green|blue"},
    {.name = "name", .kind = HT_SETTING_TEXT, FIELD(name)},
    {.name = "own.", .kind = HT_SETTING_CUSTOM, .read = read_own},
    {.name = NULL}};

static ht_context ctx;

static ht_status give(options *o, const char *name, const char *text)
{
    const ht_setting_key *key = ht_setting_find(keys, name);
    assert_non_null(key);
    return ht_setting_read(&ctx, key, o, name, text);
}

static void setting__becomes_a_value_of_its_kind(void **state)
{
    (void)state;
    options o = {.matrices = true};
    const char *const given[][2] = {{"rate", "0.1"},  {"share", "1"},     {"count", "9"},  {"on", "1"},
                                    {"decay", "all"}, {"colour", "blue"}, {"name", "any"}, {"own.x", "y"}};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++)
        assert_int_equal(give(&o, given[i][0], given[i][1]), HT_OK);
    assert_true(o.rate == 0.1 && o.share == 1 && o.count == 9 && o.on && !o.matrices && o.colour == 2);
    assert_string_equal(o.name, "any");
    assert_string_equal(o.own, "own.y");
    assert_null(ht_setting_find(keys, "own"));
    assert_null(ht_setting_find(keys, "rates"));
}

static void setting__that_does_not_fit_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        {"rate", "1", "setting rate: 1 is outside [0, 1)"},
        {"rate", "nan", "setting rate: nan is outside [0, 1)"},
        {"rate", "much", "setting rate: 'much' is no number"},
        {"share", "1.5", "setting share: 1.5 is outside [0, 1]"},
        {"count", "1.5", "setting count: one digit"},
        {"count", "10", "setting count: one digit"},
        {"on", "2", "setting on: 2 is neither 0 nor 1"},
        {"decay", "biases", "setting decay: there is no 'biases'; known: matrices, all"},
        {"colour", "gree", "setting colour: there is no 'gree'; known: red, green, blue"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        options o = {0};
        assert_int_equal(give(&o, cases[i][0], cases[i][1]), HT_EINVAL);
        assert_string_equal(ctx.message, cases[i][2]);
    }
}

static void settings__of_a_struct_are_checked_without_text(void **state)
{
    (void)state;
    options o = {.rate = 0.5, .share = 1, .count = 3};
    assert_int_equal(ht_settings_check(&ctx, keys, &o), HT_OK);
    o.count = 0;
    assert_int_equal(ht_settings_check(&ctx, keys, &o), HT_EINVAL);
    assert_string_equal(ctx.message, "setting count: one digit");
    o = (options){.rate = INFINITY, .count = 1};
    assert_int_equal(ht_settings_check(&ctx, keys, &o), HT_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting__becomes_a_value_of_its_kind),
        cmocka_unit_test(setting__that_does_not_fit_is_refused_by_name),
        cmocka_unit_test(settings__of_a_struct_are_checked_without_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
