/* halftone demo from outside. */
#include "cli_case.h"

/* The number behind a name in the JSON object that a line prints. */
static double number_in(const char *text, const char *name)
{
    char key[64];
    snprintf(key, sizeof key, "\"%s\": ", name);
    const char *at = strstr(text, key);
    if (!at) fail_msg("no %s in %.300s", key, text);
    return at ? atof(at + strlen(key)) : 0;
}

static void demo__shows_what_it_did_and_commands_that_work(void **state)
{
    data_case *c = *state;
    expect(c, "\"$H\" demo --help", 0, "usage: halftone demo");
    expect(c, "LC_ALL=C \"$H\" demo --single --steps 4 > said && cat said", 0, "sentences are synthetic");
    expect(c, "cat said", 0, "fp32: step 4 of 4  loss ");
    expect(c, "cat said", 0, "Loss of 4 steps");
    expect(c, "cat said", 0, "the lowest possible is 1.05");
    expect(c, "cat said", 0, " of 396 sentences are exactly right");
    expect(c, "cat said", 0, "The curves as a page: runs/demo/report.html\n");
    expect(c, "cat runs/demo/report.html", 0, "<title>A small translator</title>");
    expect(c, "grep -c '<svg class=.wide' runs/demo/report.html", 0, "2\n");
    /* The last three lines are commands. */
    expect(c, "tail -n 3 said | sed -n 1p > one && sh -e one", 0, "bleu        ");
    expect(c, "tail -n 3 said | sed -n 2p > two && sh -e two", 0, "goes on after step 4");
    expect(c, "tail -n 3 said | sed -n 3p > three && sh -e three", 0, "396 items");
}

/* The experiment, with hardly any steps: everything is there, and nothing can be claimed. */
static void demo__compares_precisions(void **state)
{
    data_case *c = *state;
    expect(c, "LC_ALL=C \"$H\" demo --steps 2 --output d > said && ls d", 0,
           "bf16\nbf16-no-masters\nconfig.resolved.json\n");
    expect(c, "ls -d d/f*", 0,
           "d/fp16-dynamic\nd/fp16-scale-1\nd/fp16-scale-1024\nd/fp16-scale-2_-10\nd/fp32-seed-2\nd/fp32-seed-3\n");
    expect(c, "ls -d d/bf16*", 0, "d/bf16\nd/bf16-no-masters\n");
    expect(c, "grep -c 'steps in .* seconds, loss .*, held-out perplexity ' said", 0, "9\n");
    expect(c, "sed -n '/^All runs/,/^$/p' said | awk 'END {print NR}'", 0, "12\n");
    expect(c, "cat said", 0, "Memory in ");
    expect(c, "cat said", 0, "There is no arithmetic in fp16");
    expect(c, "cat said", 0, "Gradients as f16 would hold them, over 2 steps looked at\n");
    expect(c, "cat said", 0, "  times the loss scale");
    expect(c, "grep '^generator  ' said | sed 's/   */|/g'", 0, "generator|f32 -> f16|f16 -> ");
    expect(c, "cat said", 0, "What the paper on mixed precision claims, and what happened here\n");
    expect(
        c,
        "grep -c -E '^  (Mixed|It ends|fp16 without|A loss scale|Without f32).*: (. true|- false|. not distinguishable "
        "here)$' said",
        0, "5\n");
    expect(c, "cat said", 0, " % are zero, with fp16 scale 1024 ");
    expect(c, "cat said", 0, "How this is judged: ");
    expect(c, "cat d/report.html", 0, "Magnitude of gradients of weights, times the loss scale");
    expect(c, "cat d/report.html", 0, "Memory by what it is for");
    /* Figure 4's language: seeds of fp32 grey, mixed precision solid, what lacks an ingredient dashed. */
    expect(c,
           "sed -n '/Figure 4 draws it/,/figcaption>$/p' d/report.html | sed -n '/<figcaption>/,$p' | grep -o '<i "
           "class=.[^>]*' | "
           "tr -d '\"' | sed 's/.*=//' | tr '\\n' ','",
           0, "reference,reference,reference,c0,c1,c2,c3 dashed,c4 dashed,c5 dashed,");
    expect(c, "grep -c '<svg class=.diagram' d/report.html", 0, "1\n");
    /* The figure of docs/precision.md is this model's. */
    expect(
        c,
        "\"$H\" explain d/job.json --set train.precision=fp16 --layer generator --svg f.svg && cmp f.svg " HT_TEST_DIR
        "/../docs/figure1.svg && echo same",
        0, "same\n");
    expect(c, "cat d/report.html", 0, "What a training step does to each layer, in fp16");
    expect(c, "grep -c '<td>encoder.rnn</td><td>float2half</td>' d/report.html", 0, "1\n");
    expect(c, "grep -c '<svg class=.wide' d/report.html", 0, "13\n");
    expect(c, "tail -n 3 said | sed -n 1p > one && sh -e one", 0, "bleu        ");
    /* Fewer runs and fewer claims: those that few steps decide; for programs. */
    expect(c, "\"$H\" demo --quick --steps 2 --json --output q > q.json && grep -c '\"precision\": ' q.json", 0, "6\n");
    expect(c, "grep -c '\"verdict\": ' q.json", 0, "2\n");
    expect(c, "grep '\"verdict\": ' q.json", 0,
           "\"claim\": \"A loss scale by which gradients vanish (2^-10) ruins the run\"");
    expect(c, "grep -A1 '\"groups\": ' q.json", 0, "{\"name\": \"fp32\", \"seeds\": 3, \"measure\": \"perplexity\"");
}

static void demo__is_the_same_on_every_run(void **state)
{
    data_case *c = *state;
    expect(c,
           "\"$H\" demo --single --json --steps 3 --output a > a.json && OMP_NUM_THREADS=1 \"$H\" demo --single --json "
           "--steps 3 --output "
           "'a b' > b.json",
           0, "");
    expect(c,
           "cmp a/snapshots/step-00000003/weights.safetensors a?b/snapshots/step-00000003/weights.safetensors && "
           "cmp a/pairs.tsv a?b/pairs.tsv && echo same",
           0, "same");
    /* All but the names and the time. */
    expect(c,
           "for f in a b; do sed '1s/\"run.*\"parameters/\"parameters/; 1s/\"seconds\": [^,]*, //; 1s/\"try\".*//; /^ "
           "\"claims\"/,$d' "
           "$f.json "
           "> $f.cut; done; cmp a.cut b.cut && wc -l < a.cut",
           0, "398\n");
    expect(c, "sed -n 's/.*\"try\": \\[\"\\([^\"]*\\)\".*/\\1/p' b.json > one && sh -e one", 0, "perplexity  ");
}

static void demo__replaces_a_run_and_leaves_other_files(void **state)
{
    data_case *c = *state;
    expect(c,
           "mkdir -p x && echo mine > x/notes && \"$H\" demo --single --json --steps 2 --output x > /dev/null && "
           "\"$H\" demo --single "
           "--json --steps 1 --output x > /dev/null && ls x/snapshots x/notes",
           0, "step-00000001");
    expect(c, "test ! -e x/snapshots/step-00000002 && cat x/notes", 0, "mine");
}

static void demo__takes_real_pairs(void **state)
{
    data_case *c = *state;
    static char text[1 << 15];
    size_t length = 0;
    for (int i = 0; i < 400; i++)
        length += (size_t)sprintf(text + length, "word %d is %d\tle mot %d est %d\n", i, i % 7, i, i % 7);
    data_case_text(c, "mine.tsv", text);
    expect(c, "LC_ALL=C \"$H\" demo --single --data mine.tsv --steps 2 > said && cat said", 0, "learns from mine.tsv");
    expect(c, "cat said", 0, "are exactly the reference");
    expect(c, "grep -c synthetic said; grep -c lowest said; true", 0, "0\n0\n");
    expect(c, "\"$H\" demo --single --data mine.tsv --steps 1 --json", 0, "\"synthetic\": false");
    expect(c, "\"$H\" demo --single --data mine.tsv --steps 1 --json", 0, "\"lowest_perplexity\": null");
}

/* No GPU is to be seen: the job is written, and cannot run. */
static void demo__has_the_size_of_the_paper_on_a_gpu(void **state)
{
    data_case *c = *state;
    char text[4096] = "";
    for (int i = 0; i < 60; i++)
        snprintf(text + strlen(text), sizeof text - strlen(text), "the %d cat\tle %d chat\n", i % 7, i % 5);
    data_case_text(c, "mine.tsv", text);
    data_case_text(c, "gpu.json",
                   "{\"device\": \"cuda\", \"arch\": \"x86_64\", \"isa\": \"portable\", \"threads\": 1}");
    expect(c, "CUDA_VISIBLE_DEVICES= \"$H\" demo --data mine.tsv --device cuda --single -o gpu", 2,
           "halftone.device: ");
    expect(c, "grep '\"model\"' gpu/job.json", 0,
           "{\"type\": \"seq2seq\", \"hidden\": 1024, \"layers\": 3, \"attention\": \"dot\", \"dropout\": 0.2}");
    expect(c, "grep -c '\"batch\": 128, \"lr\": 0.0005, \"warmup\": 200,' gpu/job.json", 0, "1\n");
    for (int i = 0; i < 2; i++) {
        char line[256];
        snprintf(line, sizeof line,
                 "\"$H\" explain gpu/job.json --target gpu.json --set train.precision=%s | grep -c 'lstm.*[.]cuda'",
                 i ? "fp16" : "fp32");
        expect(c, line, 0, "");
    }
    expect(c, "\"$H\" demo --data mine.tsv --device cpu --single --steps 1 -o cpu > log 2>&1; grep model cpu/job.json",
           0, "\"hidden\": 256, \"layers\": 1,");
}

static void demo__refuses_what_is_wrong(void **state)
{
    data_case *c = *state;
    data_case_text(c, "few.tsv", "a\tb\n");
    data_case_text(c, "bad.tsv", "no tab\n");
    data_case_text(c, "file", "");
    expect(c, "\"$H\" demo --quick --single", 2, "one of them");
    expect(c, "\"$H\" demo --steps 0", 2, "--steps takes a whole number from 1");
    expect(c, "\"$H\" demo --steps 1.5", 2, "--steps takes");
    expect(c, "\"$H\" demo --steps", 2, "--steps takes");
    expect(c, "\"$H\" demo --data", 2, "--data takes a file");
    expect(c, "\"$H\" demo --output ''", 2, "--output takes a folder");
    expect(c, "\"$H\" demo fast", 2, "'fast' is not understood");
    expect(c, "\"$H\" demo --single --data bad.tsv --steps 1", 2, "bad.tsv:1: no tab");
    expect(c, "\"$H\" demo --data none.tsv --single --steps 1; test $? -ne 0", 0, "none.tsv");
    expect(c, "\"$H\" demo --data few.tsv --steps 1; test $? -ne 0", 0, "halftone: demo: ");
    expect(c, "\"$H\" demo --steps 1 --output file/below", 1, "file");
    expect(c, "\"$H\" eval runs/demo --bleu 14", 2, "13a or none");
    expect(c, "\"$H\" eval runs/demo --beam 0", 2, "--beam takes");
}

/* The whole of it, where time is plenty. */
static void demo__learns_to_translate_and_decides_every_claim(void **state)
{
    data_case *c = *state;
    int status;
    if (!getenv("HALFTONE_LONG")) skip();
    expect(c, "\"$H\" demo --quick --json --output q | grep -c '\"verdict\": \"true\"'", 0, "2\n");
    expect(c, "\"$H\" demo --json > all.json; grep -c '\"verdict\": \"not distinguishable' all.json", 1, "0\n");
    expect(c, "grep -c '\"verdict\": \"\\(true\\|false\\)\"' all.json", 0, "5\n");
    const char *text = run(c, "cat all.json", &status);
    assert_true(number_in(text, "exact") >= 0.9 * number_in(text, "translated"));
    double lowest = number_in(text, "lowest_perplexity"), reached = number_in(text, "perplexity");
    assert_true(reached > lowest && reached < 1.1 * lowest);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(demo__shows_what_it_did_and_commands_that_work, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(demo__compares_precisions, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(demo__is_the_same_on_every_run, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(demo__replaces_a_run_and_leaves_other_files, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(demo__takes_real_pairs, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(demo__has_the_size_of_the_paper_on_a_gpu, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(demo__refuses_what_is_wrong, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(demo__learns_to_translate_and_decides_every_claim, data_case_begin,
                                        data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
