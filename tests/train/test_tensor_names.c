/* Names of tensors from elsewhere become those of the model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "train/tensor_names.h"

static ht_context ctx;

/* Fails unless the map, as JSON, makes `to` of `from`; NULL: it leaves the tensor out. */
static void maps(const char *map, const char *from, const char *to)
{
    ht_arena *arena = ht_arena_create();
    const ht_json *json = NULL;
    ht_tensor_names *names;
    const char *is;
    if (map) assert_int_equal(ht_json_parse(&ctx, arena, "map", map, strlen(map), &json), HT_OK);
    assert_int_equal(ht_tensor_names_create(&names, &ctx, json), HT_OK);
    assert_int_equal(ht_tensor_names_map(names, from, &is), HT_OK);
    if (to)
        assert_string_equal(is, to);
    else
        assert_null(is);
    ht_tensor_names_free(names);
    ht_arena_free(arena);
}

static void names__stay_without_a_map(void **state)
{
    (void)state;
    maps(NULL, "a.weight", "a.weight");
    maps("[]", "a.weight", "a.weight");
    maps("{}", "a.weight", "a.weight");
}

static void names__of_a_table_are_whole_names(void **state)
{
    (void)state;
    maps("{\"a\": \"b\", \"c\": null}", "a", "b");
    maps("{\"a\": \"b\", \"c\": null}", "a.weight", "a.weight");
    maps("{\"a\": \"b\", \"c\": null}", "c", NULL);
}

static void names__are_replaced_where_an_expression_matches(void **state)
{
    (void)state;
    maps("[{\"match\": \"^net[.]\", \"replace\": \"\"}]", "net.net.w", "net.w");
    maps("[{\"match\": \"([a-z]+)([0-9]+)\", \"replace\": \"\\\\2\\\\1\\\\0\\\\\\\\\"}]", "x.ab12.w", "x.12abab12\\.w");
    maps("[{\"match\": \"(a)|(b)\", \"replace\": \"<\\\\1\\\\2>\"}]", "b", "<b>"); /* a part that did not take part */
    maps("[{\"match\": \"[.]\", \"replace\": \"/\"}]", "a.b.c", "a/b.c");
}

static void names__go_through_all_expressions_in_order(void **state)
{
    (void)state;
    static const char rules[] = "[{\"match\": \"a\", \"replace\": \"b\"}, {\"match\": \"b$\", \"replace\": \"c\"},"
                                " {\"match\": \"^x\", \"replace\": null}, {\"match\": \"c\", \"replace\": \"d\"}]";
    maps(rules, "a", "d");
    maps(rules, "xa", NULL);
    maps(rules, "ab", "bd");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names__stay_without_a_map),
        cmocka_unit_test(names__of_a_table_are_whole_names),
        cmocka_unit_test(names__are_replaced_where_an_expression_matches),
        cmocka_unit_test(names__go_through_all_expressions_in_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
