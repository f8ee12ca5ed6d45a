/* The text form: what is printed reads back as the same graph, and what is no graph is refused with its place. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "context_fixture.h"
#include "hashes.h"
#include "random_graph.h"

static ht_graph *parse(const char *text)
{
    ht_graph *g;
    if (ht_graph_parse(&g, test_ctx, "test.ht", text, strlen(text)) != HT_OK)
        fail_msg("%s\n%s", ht_context_message(test_ctx), text);
    return g;
}

static char *print(const ht_graph *g)
{
    char *text;
    assert_int_equal(ht_graph_print(&text, g), HT_OK);
    return text;
}

/* ---- there and back ---- */

static void check_round_trip(const ht_graph *g)
{
    char *text = print(g);
    ht_graph *back = parse(text), *clone;
    char *again = print(back);
    assert_string_equal(text, again);
    assert_true(ht_graph_equal(g, back));
    assert_true(graph_hash(g) == graph_hash(back));
    assert_true(model_hash(g) == model_hash(back));
    assert_int_equal(ht_graph_clone(&clone, g), HT_OK);
    assert_true(ht_graph_equal(g, clone));
    assert_true(graph_hash(g) == graph_hash(clone));
    assert_int_equal(ht_graph_verify(clone), HT_OK);
    ht_graph_free(clone);
    ht_graph_free(back);
    free(again);
    free(text);
}

static void every_sample_of_every_op__reads_back(void **state)
{
    (void)state;
    size_t count = 0;
    for (size_t o = 0; o < test_ctx->op_count; o++) {
        const ht_op *op = test_ctx->ops[o];
        for (size_t i = 0; op->samples && op->samples[i]; i++) {
            ht_sample sample;
            ht_graph *g;
            ht_arena *arena = ht_arena_create();
            assert_non_null(arena);
            if (ht_sample_parse(test_ctx, arena, op, op->samples[i], &sample) != HT_OK ||
                ht_sample_graph(test_ctx, &sample, &g) != HT_OK)
                fail_msg("%s %s: %s", op->name, op->samples[i], ht_context_message(test_ctx));
            ht_arena_free(arena); /* the graph owns what it needs */
            check_round_trip(g);
            ht_graph_free(g);
            count++;
        }
    }
    assert_true(count > 500);
}

static void random_graphs__read_back(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        ht_graph *g = random_graph_build(test_ctx, seed, 5 + seed % 60);
        if (!g) fail_msg("seed %llu: %s", (unsigned long long)seed, ht_context_message(test_ctx));
        check_round_trip(g);
        ht_graph_free(g);
    }
}

/* Already as the printer writes them. */
static const char *const canonical[] = {
    /* Nothing, and nearly nothing. */
    "",
    "\nsegment forward () -> () {\n}\n",
    /* States, inits, views behind their bases, programs. */
    "state %flat f32[24] heading=parameters\n"
    "state %n f32[] heading=scalars init=constant(-0)\n"
    "state %u bf16[3]@host heading=statistics init=uniform(-1,1e-300)\n"
    "state %a.w f32[2,6]{%flat, 0, [6,1]} heading=parameters init=normal(0,0.02) trained\n"
    "state %a.half f32[3,4]{%flat, 12, [1,3]} heading=weights derived\n"
    "\nsegment update () -> (n=%n) {\n}\n"
    "\nsegment other () -> () {\n}\n"
    "\nprogram train { update other*3 update }\n"
    "\nprogram empty-not:this/1 { other }\n",
    /* Names, numbers, optional operands, several results, lists, strings. */
    "\nsegment forward (%x f32[4,6] init=normal(0,1), %i i64[4], %s i64[], %b f32[6]) -> (loss=%0, again=%0, in=%x) {\n"
    "  %0, %lse = cross_entropy f32[], f32[4] (%x, %i) label_smoothing=0.1 at=\"head \\\"q\\\" \\\\ \\x01\"\n"
    "  %1, %2, %3 = layernorm bf16[4,6], f32[4], f32[4] (%x, _, %b) role=bwd_act from=%0\n"
    "  %r.x = random_uniform f32[2] (%s, %s, %s) low=-1e+300 site=\"a b\" no_merge\n"
    "  %4 = constant f64[2,2]@host () data=[0,-0,0.1,1e+300]\n"
    "  %5 = sum f32[4] (%x) axes=[1] role=bwd_weight region=12 no_merge recomputed\n"
    "}\n",
};

static void canonical_text__prints_as_it_was(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof canonical / sizeof canonical[0]; i++) {
        ht_graph *g = parse(canonical[i]);
        char *text = print(g);
        assert_string_equal(text, canonical[i]);
        check_round_trip(g);
        free(text);
        ht_graph_free(g);
    }
}

static void free_text__becomes_canonical(void **state)
{
    (void)state;
    ht_graph *g = parse("# a comment\n"
                        "state %w f32[2]@main init=normal(0.50,1e2)trained heading=masters#tail\n"
                        "segment s(%x f32[2],%y f32[ 2 ])->(%z,other=%x){%z=add(%x,%y)\n"
                        "%q = sum f32[] ( %z ) keep=0 keep role = fwd region=7 at=\"\"\n"
                        "%5 = expand f32[2] (%q) store %w=%5 role=update}program p{s * 2 s}");
    char *text = print(g);
    assert_string_equal(text, "state %w f32[2] heading=masters init=normal(0.5,100) trained\n"
                              "\nsegment s (%x f32[2], %y f32[2]) -> (z=%z, other=%x) {\n"
                              "  %z = add f32[2] (%x, %y)\n"
                              "  %q = sum f32[] (%z) region=7 no_merge at=\"\"\n"
                              "  %0 = expand f32[2] (%q)\n"
                              "  store %w = %0 role=update\n"
                              "}\n"
                              "\nprogram p { s*2 s }\n");
    free(text);
    ht_graph_free(g);
}

static void attributes_of_every_node__survive(void **state)
{
    (void)state;
    ht_graph *g =
        parse("segment forward (%x f32[4,6], %i i64[4]) -> (loss=%0) {\n"
              "  %0, %lse = cross_entropy f32[], f32[4] (%x, %i) region=3 at=\"a \\\"q\\\" \\\\ \\x01\"\n"
              "  %h = neg bf16[4,6] (%x) role=bwd_act region=1 no_merge recomputed from=%0 was=0x00000000000000ff\n"
              "}\n");
    const ht_node *a = &g->nodes[g->segments[0].nodes[0]], *b = &g->nodes[g->segments[0].nodes[1]];
    assert_string_equal(a->site, "a \"q\" \\ \x01");
    assert_int_equal(a->region, 3);
    assert_int_equal(b->origin, g->segments[0].nodes[0]);
    assert_true(b->no_merge && b->recomputed && b->region == 1 && b->role == HT_ROLE_BWD_ACT && b->was == 255);
    check_round_trip(g);
    ht_graph_free(g);
}

static void numbers__read_back_to_the_bit(void **state)
{
    (void)state;
    static const double numbers[] = {0,
                                     -0.0,
                                     1,
                                     0.1,
                                     1.0 / 3,
                                     5e-324,
                                     2.2250738585072014e-308,
                                     1.7976931348623157e308,
                                     1e21,
                                     123456789012345678.0,
                                     -1e-7,
                                     4.9406564584124654e-324};
    size_t count = sizeof numbers / sizeof numbers[0];
    ht_graph *g;
    assert_int_equal(ht_graph_create(&g, test_ctx), HT_OK);
    ht_output(g, "y", ht_constant(g, HT_F64, 1, (int64_t[]){(int64_t)count}, numbers));
    assert_int_equal(ht_graph_status(g), HT_OK);
    char *text = print(g);
    ht_graph *back = parse(text);
    const ht_attr *data = &back->nodes[back->segments[0].nodes[0]].attr[0];
    assert_int_equal(data->count, count);
    assert_memory_equal(data->floats, numbers, sizeof numbers);
    ht_graph_free(back);
    ht_graph_free(g);
    free(text);
}

/* ---- what is no graph ---- */

typedef struct hostile_text {
    const char *text;
    const char *place;   /* "line:column", or "" where only the file can be named */
    const char *message; /* a part of it */
} hostile_text;

#define IN_SEGMENT(body) "segment s (%x f32[4,6], %i i64[4]) -> () {\n" body "\n}\n"

static const hostile_text hostile[] = {
    {"nonsense", "1:1", "'state', 'segment' or 'program' expected, found 'nonsense'"},
    {"\n\n  $", "3:3", "expected, found '$'"},
    {"\x01", "1:1", "found \\x01"},
    {"state", "1:6", "'%' expected, found the end"},
    {"state %", "1:8", "a value's name expected"},
    {"state %7 f32[]", "1:7", "state name '7'"},
    {"state %a f33[]", "1:10", "'f33' is no number type"},
    {"state %a f32", "1:13", "'[' expected"},
    {"state %a f32[", "1:14", "is no integer"},
    {"state %a f32[-1]", "1:10", "is negative"},
    {"state %a f32[1,]", "1:16", "is no integer"},
    {"state %a f32[1 2]", "1:16", "',' expected"},
    {"state %a f32[9223372036854775807]", "1:10", "larger than any memory"},
    {"state %a f32[9223372036854775808]", "1:14", "is no integer"},
    {"state %a f32[4611686018427387904,0,4]", "1:10", "larger than any memory"},
    {"state %a f32[1,1,1,1,1,1,1,1,1]", "1:29", "more than 8 axes"},
    {"state %a f32[]@moon", "1:16", "'moon' is no memory"},
    {"state %a f32[] heading=feet", "1:24", "no heading 'feet'"},
    {"state %a f32[] heading feet", "1:24", "'=' expected"},
    {"state %a f32[] init=poisson(1,2)", "1:21", "no init 'poisson'"},
    {"state %a f32[] init=constant(x)", "1:30", "'x' is no number"},
    {"state %a f32[] init=constant(1", "1:31", "')' expected"},
    {"state %a f32[] init=normal(1)", "1:29", "',' expected"},
    {"state %a f32[] blue", "1:16", "expected, found 'blue'"},
    {"state %a f32[]\nstate %a f32[]", "2:7", "state 'a' exists already"},
    {"state %a f32[4]\nstate %b f32[2]{%c, 0, [1]}", "2:18", "%c is not defined"},
    {"state %a f32[4]\nstate %b f32[2]{%a, 3, [1]}", "", "the view leaves its base"},
    {"state %a f32[4]\nstate %b f32[2]{%a, 0, [9223372036854775807]}", "", "the view leaves its base"},
    {"state %a f32[4]\nstate %b f32[2]{%a, 0, [-1]}", "", "the view leaves its base"},
    {"state %a f32[4]\nstate %b f32[2]{%a, 0, [1,1]}", "2:26", "']' expected"},
    {"state %a f32[4]\nstate %b f32[2,1]{%a, 0, [1]}", "2:28", "',' expected"},
    {"state %a f32[4]\nstate %b f16[2]{%a, 0, [1]}", "", "a view has its base's number type"},
    {"state %a f32[4]\nstate %b f32[4]{%a, 0, [1]}\nstate %c f32[2]{%b, 0, [1]}", "", "is no view"},
    {"state %a f32[4]{%a, 0, [1]}", "1:18", "%a is not defined"},
    {"segment", "1:8", "a segment's name expected"},
    {"segment 12 ()", "1:9", "segment name '12'"},
    {"segment s", "1:10", "'(' expected"},
    {"segment s (", "1:12", "'%' expected"},
    {"segment s (%x)", "1:14", "'' is no number type"},
    {"segment s (%x f32[] init=zero", "1:26", "no init 'zero'"},
    {"segment s (%x f32[] role=fwd)", "1:21", "an input has no 'role'"},
    {"segment s (%x f32[], %x f32[])", "1:22", "the name is taken"},
    {"state %x f32[] segment s (%x f32[])", "1:27", "the name is taken"},
    {"segment s () - () {}", "1:16", "'>' expected"},
    {"segment s () -> (%y) {}", "1:18", "output %y is not defined"},
    {"segment s () -> (y) {}", "1:19", "'=' expected"},
    {"segment s (%x f32[]) -> (%x, %x) {}", "1:30", "output 'x' exists already"},
    {"segment s () {", "1:15", "a value, 'store' or '}' expected, found the end"},
    {"segment s () { steal %x }", "1:16", "found 'steal'"},
    {"segment s () {}\nsegment s () {}", "2:9", "segment 's' exists already"},
    {IN_SEGMENT("%y"), "3:1", "'=' expected"},
    {IN_SEGMENT("%y = "), "3:1", "an op expected"},
    {IN_SEGMENT("%y = no_such_op (%x)"), "2:6", "there is no op 'no_such_op'"},
    {IN_SEGMENT("%y = neg"), "3:1", "'' is no number type"},
    {IN_SEGMENT("%y = neg (%x"), "3:1", "',' expected"},
    {IN_SEGMENT("%y = neg (%q)"), "2:12", "%q is not defined here"},
    {IN_SEGMENT("%y = neg (%y)"), "2:12", "%y is not defined here"},
    {IN_SEGMENT("%y = neg (_)"), "2:1", "neg: input 0 is no value"},
    {IN_SEGMENT("%y = neg (%x, %x)"), "2:1", "neg: 2 inputs given"},
    {IN_SEGMENT("%y, %z = neg (%x)"), "2:10", "neg has 1 results, 2 are named"},
    {IN_SEGMENT("%y = neg f32[4,5] (%x)"), "2:1", "neg: result 0 is f32[4,6], not f32[4,5]"},
    {IN_SEGMENT("%y = neg i32[4,6] (%x)"), "2:1", "neg: result 0 is f32[4,6], not i32[4,6]"},
    {IN_SEGMENT("%y = neg (%x) %y = neg (%x)"), "2:15", "%y is defined twice"},
    {IN_SEGMENT("%x = neg (%x)"), "2:1", "%x is defined twice"},
    {IN_SEGMENT("%1 = neg (%x)\n%1 = neg (%x)"), "3:1", "%1 is defined twice"},
    {IN_SEGMENT("%y = reshape (%x)"), "2:1", "the result's type must be given"},
    {IN_SEGMENT("%y = reshape f32[5,5] (%x)"), "2:1", "cannot be read as"},
    {IN_SEGMENT("%y = sum (%x) axes=[2]"), "2:1", "axis 2 is outside"},
    {IN_SEGMENT("%y = sum (%x) axes=[0,0]"), "2:1", "axis 0 is there twice"},
    {IN_SEGMENT("%y = sum (%x) axes=[0"), "3:1", "',' expected"},
    {IN_SEGMENT("%y = sum (%x) axes=0"), "2:20", "'[' expected"},
    {IN_SEGMENT("%y = sum (%x) axis=[0]"), "2:15", "sum has no attribute 'axis'"},
    {IN_SEGMENT("%y = sum (%x) keep=0 keep=1"), "2:22", "'keep' is given twice"},
    {IN_SEGMENT("%y = sum (%x) keep=2"), "2:1", "keep is 0 or 1, not 2"},
    {IN_SEGMENT("%y = sum (%x) keep=1.5"), "2:20", "'1.5' is no integer"},
    {IN_SEGMENT("%y = sum (%x) role=boss"), "2:20", "no role 'boss'"},
    {IN_SEGMENT("%y = sum (%x) region=0"), "2:22", "a region is a positive number"},
    {IN_SEGMENT("%y = sum (%x) region=4294967296"), "2:22", "a region is a positive number"},
    {IN_SEGMENT("%y = sum (%x) from=%x"), "2:21", "from= names a node's result"},
    {IN_SEGMENT("%y = sum (%x) was=12"), "2:19", "was= takes a hash"},
    {IN_SEGMENT("%y = sum (%x) was=0x123456789abcdef01"), "2:19", "was= takes a hash"},
    {IN_SEGMENT("%y = sum (%x) at=\"open"), "2:19", "the string does not end on its line"},
    {IN_SEGMENT("%y = sum (%x) at=\"\\n\""), "2:20", "unknown escape"},
    {IN_SEGMENT("%y = sum (%x) at=\"\\x00\""), "2:22", "cannot hold a zero byte"},
    {IN_SEGMENT("%y = fill f32[] () value=1e"), "2:26", "'1e' is no number"},
    {IN_SEGMENT("%y = fill f32[] () value=0x10"), "2:26", "'0x10' is no number"},
    {IN_SEGMENT("%y = fill f32[] ()"), "2:1", "attribute 'value' is missing"},
    {IN_SEGMENT("%y = permute (%x) order=[0,9223372036854775807]"), "2:1", "order[1]"},
    {IN_SEGMENT("%b = fill f32[6] () value=1\n%y = add (%x, %b)"), "3:1",
     "add: shapes differ: f32[4,6] and f32[6]; nodes do not broadcast: use expand f32[4,6] on input 1"},
    {IN_SEGMENT("%b = fill f16[4,1] () value=1\n%y = div f32[4,6] (%b, %x)"), "3:1",
     "div: shapes differ: f16[4,1] and f32[4,6]; nodes do not broadcast: use expand f16[4,6] on input 0"},
    {IN_SEGMENT("%c = fill bool[4,6] () value=1\n%b = fill f32[] () value=1\n%y = select (%c, %x, %b)"), "4:1",
     "select: shapes differ: bool[4,6] and f32[]; nodes do not broadcast: use expand f32[4,6] on input 2"},
    {IN_SEGMENT("%b = fill f32[4] () value=1\n%y = mul (%x, %b)"), "3:1", "mul: shapes differ: f32[4,6] and f32[4]"},
    {IN_SEGMENT("store %x = %x"), "2:1", "store: the target is no state"},
    {IN_SEGMENT("store %x %x"), "2:10", "'=' expected"},
    {"state %w f32[2]\nsegment s (%x f32[3]) {\nstore %w = %x\n}", "3:1", "state is f32[2], value is f32[3]"},
    {"state %w f32[2]\nsegment s (%x f32[2]) {\nstore %w = %x\nstore %w = %x\n}", "", "%w is stored twice"},
    {"state %w f32[2]\nsegment s (%x f32[2]) {\nstore %w = %x\n%y = neg (%w)\n}", "", "%w is read after its store"},
    {"state %w f32[2]\nsegment s (%x f32[2]) -> (%w) {\nstore %w = %x\n}", "", "%w is read after its store"},
    {"program p", "1:10", "'{' expected"},
    {"program p { s }", "1:13", "there is no segment 's'"},
    {"segment s () {}\nprogram p { s*0 }", "2:15", "called 1 to 1000000 times"},
    {"segment s () {}\nprogram p { s*1000001 }", "2:15", "called 1 to 1000000 times"},
    {"segment s () {}\nprogram p { s * x }", "2:17", "'x' is no integer"},
    {"segment s () {}\nprogram 3 { s }", "2:9", "program name '3'"},
    {"segment s () {}\nprogram p { s }\nprogram p { s }", "3:9", "program 'p' exists already"},
};

static bool refused_well(const hostile_text *h)
{
    ht_graph *g;
    char place[64];
    ht_status status = ht_graph_parse(&g, test_ctx, "bad.ht", h->text, strlen(h->text));
    const char *message = ht_context_message(test_ctx);
    snprintf(place, sizeof place, h->place[0] ? "bad.ht:%s: " : "bad.ht: ", h->place);
    bool good = status != HT_OK && !g && strstr(message, h->message) && strncmp(message, place, strlen(place)) == 0;
    if (!good) print_error("%s\n    says: %s\n    not:  %s...%s\n", h->text, message, place, h->message);
    ht_graph_free(g);
    return good;
}

static void hostile_text__is_refused_with_its_place(void **state)
{
    (void)state;
    size_t bad = 0;
    for (size_t i = 0; i < sizeof hostile / sizeof hostile[0]; i++) bad += !refused_well(&hostile[i]);
    assert_int_equal(bad, 0);
}

static void text_cut_anywhere__is_refused_or_a_graph(void **state)
{
    (void)state;
    ht_graph *g = random_graph_build(test_ctx, 10, 60), *part;
    assert_non_null(g);
    char *text = print(g);
    for (size_t length = 0; length < strlen(text); length++) {
        /* A copy of exactly that size, so that a sanitizer sees a step too far. */
        char *cut = malloc(length ? length : 1);
        assert_non_null(cut);
        memcpy(cut, text, length);
        if (ht_graph_parse(&part, test_ctx, "cut", cut, length) == HT_OK)
            ht_graph_free(part);
        else
            assert_non_null(strstr(ht_context_message(test_ctx), "cut:"));
        free(cut);
    }
    free(text);
    ht_graph_free(g);
}

static void long_names__are_cut_in_messages_not_overrun(void **state)
{
    (void)state;
    enum { LENGTH = 5000 };
    static const char *const frames[][2] = {
        {"", ""},
        {"state %", ""},
        {"state %x ", ""},
        {"state %x f32[", "]"},
        {"segment ", ""},
        {"segment s (%", ""},
        {"segment s () {%y = ", "}"},
        {"segment s () {%y = fill f32[] () value=", "}"},
        {"segment s () {%y = fill f32[] () ", "=1}"},
        {"program ", ""},
        {"state %x f32[]@", ""},
        {"state %x f32[] heading=", ""},
        {"segment s () -> (%", ") {}"},
        {"program p {", "}"},
        {"state %x f32[] init=", "(1,2)"},
    };
    char name[LENGTH + 1], text[LENGTH + 128];
    memset(name, 'a', LENGTH);
    name[LENGTH] = 0;
    for (size_t i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        ht_graph *g;
        snprintf(text, sizeof text, "%s%s%s", frames[i][0], name, frames[i][1]);
        if (ht_graph_parse(&g, test_ctx, "long", text, strlen(text)) == HT_OK)
            ht_graph_free(g);
        else
            assert_true(strlen(ht_context_message(test_ctx)) < sizeof test_ctx->message);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_sample_of_every_op__reads_back),
        cmocka_unit_test(random_graphs__read_back),
        cmocka_unit_test(canonical_text__prints_as_it_was),
        cmocka_unit_test(free_text__becomes_canonical),
        cmocka_unit_test(attributes_of_every_node__survive),
        cmocka_unit_test(numbers__read_back_to_the_bit),
        cmocka_unit_test(hostile_text__is_refused_with_its_place),
        cmocka_unit_test(text_cut_anywhere__is_refused_or_a_graph),
        cmocka_unit_test(long_names__are_cut_in_messages_not_overrun),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
