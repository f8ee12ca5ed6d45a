/* halftone explain from outside. */
#include "cli_case.h"

static void write_job(data_case *c)
{
    static char text[12000];
    size_t length = 0;
    for (int i = 0; length + 64 < sizeof text; i++)
        length += (size_t)sprintf(text + length, "%d times %d makes %d.\n", i % 13, i % 7, (i % 13) * (i % 7));
    data_case_text(c, "sums.txt", text);
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 64, \"dropout\": 0.1},\n"
        " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"char\", \"length\": 16},\n"
        " \"train\": {\"steps\": 12, \"batch\": 8, \"lr\": 3e-3, \"precision\": \"bf16\"}}\n");
}

/* Rows of a layer as lines "block|op|in|out|class|bytes|kernel|refused". */
#define ROWS(layer)                                                                                                    \
    "sed -n 's/.*{\"layer\": \"" layer "\", \"block\": \"\\([^\"]*\\)\", \"op\": \"\\([^\"]*\\)\", \"in\": "           \
    "\"\\([^\"]*\\)\", \"out\": \"\\([^\"]*\\)\", .*\"class\": \"\\([^\"]*\\)\", \"bytes\": \\([0-9]*\\), "            \
    "\"kernel\": \"\\([^\"]*\\)\", \"refused\": \"\\([^\"]*\\)\"}.*/\\1|\\2|\\3|\\4|\\5|\\6|\\7|\\8/p' e.json"

static void explain__shows_the_five_blocks_of_a_layer(void **state)
{
    data_case *c = *state;
    write_job(c);
    /* Portable kernels, so that every machine fuses the same. */
    expect(c,
           "HALFTONE_ISA=portable \"$H\" explain job.json --json > e.json && " ROWS(
               "transformer.h.0.mlp.c_fc") " > rows && cat rows",
           0, "float2half|cast|f32|bf16|masters|32768|");
    expect(c, "grep '^FWD|matmul' rows", 0, "FWD|matmul + add + gelu_tanh|bf16|bf16|dot|");
    expect(c, "grep '^BWD-Actv|matmul' rows", 0, "|bf16|bf16|dot|");
    expect(c, "grep '^BWD-Weight|matmul' rows", 0, "|bf16|f32|dot|");
    expect(c, "grep '^weight update|' rows | grep -c 'adam.*|f32|f32|exact|'", 0, "2\n"); /* weight and bias */
    /* Its bias has no copy: one parameter of two has. */
    expect(c, "grep -c '^float2half|' rows", 0, "1\n");
    expect(c, "grep -c '\"block\": \"float2half\", .*\"out_types\": \"transformer.wte.weight.half bf16\\[' e.json", 0,
           "1\n");
    expect(c, "if [ -e run ]; then exit 3; fi; ls", 0, "job.json\n"); /* nothing is written */
}

static void explain__tells_bytes_by_space_and_heading_and_flops_by_kind(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" explain job.json --json > e.json; grep -c '^ \"plan_bytes\": [1-9][0-9]*, \"bytes\": ' e.json", 0,
           "1\n");
    expect(
        c,
        "sed -n 's/^ .*\"main\": {\\(.*\\)}}.*/\\1/p' e.json | tr ',' '\\n' | sed 's/^ *//; s/: .*//' | tr -d '\"' | "
        "tr '\\n' ' '",
        0, "parameters masters weights gradients optimizer activations workspace slots replay other ");
    expect(c,
           "sed -n 's/^ \"plan_bytes\": \\([0-9]*\\), .*\"main\": {\\(.*\\)}}.*/\\1,\\2/p' e.json | tr -d '\"a-z: ' | "
           "awk -F, '{for (i = 2; i <= NF; i++) sum += $i; print sum == $1 ? \"whole\" : \"not\"}'",
           0, "whole\n");
    expect(c, "grep -c '^ \"dot_flops\": [1-9][0-9]*, \"other_flops\": [1-9][0-9]*, \"recomputed_flops\": 0,' e.json",
           0, "1\n");
    expect(c, "\"$H\" explain job.json", 0, "\nplan_bytes ");
}

static void explain__follows_the_precision(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" explain job.json --json --set train.precision=fp32 > e.json; grep -c float2half e.json", 1,
           "0\n");
    expect(c, "grep -c '\"\\(in\\|out\\)\": \"[^\"]*f16' e.json", 1, "0\n");
    expect(c, "\"$H\" explain job.json --json --set train.precision=fp64 > e.json; " ROWS("transformer.h.0.mlp.c_fc"),
           0, "|f64|f64|dot|");
    expect(c, "\"$H\" explain job.json --json --set train.precision=fp16 > e.json; " ROWS("transformer.h.0.mlp.c_fc"),
           0, "float2half|cast|f32|f16|masters|32768|");
    /* Without masters the update itself makes half. */
    expect(c,
           "\"$H\" explain job.json --json --set train.masters=false > e.json; " ROWS(
               "transformer.h.0.mlp.c_fc") " > rows; "
                                           "grep -c float2half rows; grep '^weight update' rows",
           0, "0\nweight update|");
    expect(c, "grep '^weight update' rows", 0, "|bf16 f32|bf16|exact|");
    /* Ops that are kept in f32 say so. */
    expect(c,
           "\"$H\" explain job.json --json --set 'halftone.fp32_ops=[\"matmul\"]' > e.json; " ROWS(
               "transformer.h.0.mlp.c_fc") " | grep '^FWD|matmul'",
           0, "|bf16 f32|f32|dot, kept f32|");
}

static void explain__labels_every_pass_with_the_hash_of_the_model(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" explain job.json > e.txt && grep -A 12 '^pass ' e.txt | awk '{print $1, $2}' | tr '\\n' ' '", 0,
           "pass level autodiff system optimizer system init system fold system cse system dce system regions system "
           "autocast system cse system dce system regions system A pass ");
    expect(c, "grep '  system  ' e.txt | awk '{print $3}' | sort -u | wc -l", 0, "1\n");
    /* The same model in another precision, and another one with another activation. */
    expect(c,
           "grep '  system  ' e.txt | awk '{print $3}' | sort -u > bf16; \"$H\" explain job.json --set "
           "train.precision=fp32 | grep '  system  ' | awk '{print $3}' | sort -u | cmp - bf16 && echo same",
           0, "same\n");
    expect(
        c,
        "\"$H\" explain job.json --set model.activation=relu | grep '  system  ' | awk '{print $3}' | sort -u | cmp -s "
        "- bf16 || echo another",
        0, "another\n");
    expect(c, "\"$H\" explain job.json --set train.precision=fp32 | grep -c '^autocast'", 1, "0\n");
}

static void explain__takes_layers_that_are_alike_as_one(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" explain job.json > e.txt && grep -A 1 '^transformer.h.\\*.mlp.c_fc .*float2half' e.txt", 0,
           "float2half     cast  ");
    expect(c, "grep '^transformer.h.\\*.mlp.c_fc .*float2half' e.txt | awk '{print $4, $8}'", 0, "2 65536\n");
    expect(c, "grep -c '^transformer.h.1.mlp.c_fc ' e.txt", 1, "0\n");
    expect(c, "\"$H\" explain job.json --all > a.txt && grep -c '^transformer.h.[01].mlp.c_fc .*float2half' a.txt", 0,
           "2\n");
    expect(c, "grep '^plan_bytes ' e.txt > one && grep '^plan_bytes ' a.txt | cmp - one && echo same", 0, "same\n");
}

static void explain__begins_with_a_line_per_layer(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(
        c,
        "HALFTONE_ISA=portable \"$H\" explain job.json > e.txt && sed -n '/^layer .*BWD-Weight/,/^$/p' e.txt > figure; "
        "grep '^transformer.h.\\*.mlp.c_fc ' figure | sed 's/   */|/g'",
        0, "transformer.h.*.mlp.c_fc|f32 -> bf16|bf16 -> bf16|bf16 -> bf16|bf16 -> f32|f32 -> f32\n");
    /* Layers that differ in a type stay apart; those without parameters are left out. */
    expect(c, "grep -c '^transformer.h.[*01].mlp ' figure", 1, "0\n");
    expect(c, "grep '^transformer.h.\\*.ln_2 ' figure | sed 's/   */|/g'", 0,
           "transformer.h.*.ln_2|-|bf16 f32 -> bf16 f32|bf16 f32 -> bf16 f32|-|f32 -> f32\n");
    expect(c, "grep -c 'i32' figure", 1, "0\n");
}

static void explain__tells_which_kernels_refused_and_why(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c,
           "HALFTONE_ISA=portable \"$H\" explain job.json --json > e.json && grep -c '\"kernel\": \"[^\"]*avx' e.json",
           1, "0\n");
    expect(c, ROWS("transformer.h.0.mlp.c_fc") " | grep '^FWD|matmul'", 0, "portable|");
    expect(c, "HALFTONE_ISA=portable \"$H\" explain job.json > e.txt && grep '^\\[1\\] ' e.txt", 0, ": ");
    expect(c, "grep '^    matmul_gemm.f64.portable: ' e.txt", 0, "no operand is f64");
    /* Each note is referred to, and only those that are there. */
    expect(
        c,
        "grep -o '\\[[0-9]*\\]$' e.txt | sort -u > used; grep -o '^\\[[0-9]*\\]' e.txt | sort -u | cmp - used && echo "
        "same",
        0, "same\n");
}

static void explain__prints_graphs_that_parse_again(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" explain job.json --graph=autocast > g.ht && head -n 1 g.ht", 0,
           "# after pass 8, autocast: system; model ");
    expect(c, "\"$H\" opt g.ht > again.ht && tail -n +2 g.ht | sed '$d' | cmp - again.ht && echo same", 0, "same\n");
    expect(c, "\"$H\" explain job.json --graph | grep -c '^# after pass '", 0, "11\n");
    expect(c, "\"$H\" explain job.json --graph=autocast --set train.precision=fp32", 2,
           "the pass autocast does not run for this job; these do: autodiff optimizer");
    expect(c, "\"$H\" explain job.json --graph=nothing", 2, "the pass nothing does not run");
}

static void explain__shows_the_chunks_of_a_head(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c,
           "\"$H\" explain job.json --set halftone.head_chunks=2 > e.txt 2>&1; grep -c '^head_chunks  *system' e.txt; "
           "grep -c 'stays whole' e.txt",
           1, "1\n0\n");
    expect(c, "\"$H\" explain job.json --set halftone.head_chunks=2 --graph=head_chunks | grep -c 'matmul.*\\[64,'", 0,
           "");
    expect(c, "\"$H\" check job.json --set halftone.head_chunks=0", 2,
           "halftone.head_chunks: expected an integer from 1 to 64, or \"auto\"");
    expect(c, "\"$H\" check job.json --set halftone.head_chunks=many", 2, "halftone.head_chunks: expected an integer");
    expect(c, "\"$H\" check job.json --set halftone.head_chunks=auto | grep head_chunks", 0, "auto");
}

static void explain__draws_the_step(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" explain job.json --dot > d.dot && head -n 1 d.dot", 0, "digraph step {\n");
    /* As many braces open as close, and arrows only between boxes that are there. */
    expect(c, "awk '{o += gsub(/{/, \"\"); k += gsub(/}/, \"\")} END {print o == k ? \"even\" : \"odd\"}' d.dot", 0,
           "even\n");
    expect(c,
           "sed -n 's/^    \\(l[0-9_]*\\) \\[label.*/\\1/p' d.dot | sort -u > boxes; sed -n 's/^  \\(.*\\) -> "
           "\\(l[0-9_]*\\) "
           ".*/\\1\\n\\2/p' d.dot | grep -v batch | sort -u | comm -23 - boxes | wc -l",
           0, "0\n");
    expect(c, "sed -n '/label=\"transformer.h.0.mlp.c_fc\"/,/}/p' d.dot | grep -c fillcolor", 0, "5\n");
    expect(c, "grep -c 'label=\"bf16\"' d.dot | awk '{print ($1 > 10)}'", 0, "1\n");
    expect(c, "\"$H\" explain job.json --dot --set train.precision=fp32 | grep -c bf16", 1, "0\n");
}

static void explain__writes_a_page(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" explain job.json --html page.html && grep -c '<table' page.html", 0, "2\n");
    expect(c, "grep -c '<td[^>]*>transformer.h.\\*.mlp.c_fc</td>' page.html", 0, "1\n");
    expect(c, "grep -o 'What a training step does to each layer, in bf16' page.html", 0, "bf16");
    expect(c, "\"$H\" explain job.json --html nowhere/page.html", 1, "nowhere/page.html");
    expect(c, "\"$H\" explain job.json --html", 2, "--html takes a file");
}

/* A row per arrow with its type, in the order in which they are drawn. */
#define ARROWS(file)                                                                                                   \
    "grep -o 'text-anchor=\"middle\">\\(dw: \\)*b*f[0-9/f]*</text>' " file " | sed 's/.*\">//; s/<.*//' | tr '\\n' ' " \
    "'"

static void explain__draws_figure_1_for_a_layer_of_the_model(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" explain job.json --html page.html && grep -c '<svg class=.diagram' page.html", 0, "1\n");
    expect(c, "cat page.html", 0, "Where this differs from the paper: there weight gradients (dw) are f16");
    for (int i = 0; i < 5; i++) {
        static const char *const blocks[] = {"float2half", "FWD", "BWD-Actv", "BWD-Weight", "weight update"};
        char line[128];
        snprintf(line, sizeof line, "grep -c '>%s</text>' page.html", blocks[i]);
        expect(c, line, 0, "1\n");
    }
    /* The copy, FWD's and BWD-Actv's weights; x, y, dy, dx; x, dy, dw; the update. */
    expect(c, "\"$H\" explain job.json --svg f.svg --layer transformer.h.0.mlp.c_fc && " ARROWS("f.svg"), 0,
           "f32 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 dw: f32 f32 ");
    expect(c, "grep -c '>transformer.h.0.mlp.c_fc, bf16</text>' f.svg", 0, "1\n");
    /* Without masters the weights themselves are half; in fp32 there is no copy. */
    expect(c,
           "\"$H\" explain job.json --set train.masters=false --svg f.svg --layer transformer.h.0.mlp.c_fc && " ARROWS(
               "f.svg"),
           0, "bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 bf16 dw: f32 bf16 ");
    expect(c, "\"$H\" explain job.json --set train.precision=fp32 --svg f.svg && grep -c '>no half copy</text>' f.svg",
           0, "1\n");
    expect(c, "\"$H\" explain job.json --svg f.svg --layer nothing", 2,
           "there is no layer nothing with parameters; these are: transformer.wte, ");
    expect(c, "\"$H\" explain job.json --layer lm_head", 2, "with --html or --svg");
    expect(c, "\"$H\" explain job.json --svg nowhere/f.svg", 1, "nowhere/f.svg");
}

static void explain__refuses_what_it_cannot_plan(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" explain", 2, "which job?");
    expect(c, "\"$H\" explain nowhere.json", 2, "nowhere.json");
    expect(c, "\"$H\" explain job.json job.json", 2, "one job at a time");
    expect(c, "\"$H\" explain job.json --dot --json", 2, "one of them");
    expect(c, "\"$H\" explain job.json --al", 2, "'--al' is not understood");
    expect(c, "\"$H\" explain job.json --set train.precison=bf16", 2, "did you mean");
    expect(c, "\"$H\" explain job.json --set data.train=nowhere.txt", 2, "nowhere.txt");
    expect(c, "\"$H\" explain job.json --set 'halftone.fp32_ops=[\"matmull\"]'", 2, "there is no op \"matmull\"");
    expect(c, "\"$H\" explain job.json > /dev/full", 1, "standard output: ");
    expect(c, "\"$H\" explain --help", 0, "usage: halftone explain JOB.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explain__shows_the_five_blocks_of_a_layer),
        cmocka_unit_test(explain__tells_bytes_by_space_and_heading_and_flops_by_kind),
        cmocka_unit_test(explain__follows_the_precision),
        cmocka_unit_test(explain__labels_every_pass_with_the_hash_of_the_model),
        cmocka_unit_test(explain__takes_layers_that_are_alike_as_one),
        cmocka_unit_test(explain__begins_with_a_line_per_layer),
        cmocka_unit_test(explain__tells_which_kernels_refused_and_why),
        cmocka_unit_test(explain__prints_graphs_that_parse_again),
        cmocka_unit_test(explain__shows_the_chunks_of_a_head),
        cmocka_unit_test(explain__draws_the_step),
        cmocka_unit_test(explain__writes_a_page),
        cmocka_unit_test(explain__draws_figure_1_for_a_layer_of_the_model),
        cmocka_unit_test(explain__refuses_what_it_cannot_plan),
    };
    return cmocka_run_group_tests(tests, data_case_begin, data_case_end);
}
