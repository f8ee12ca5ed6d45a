/* halftone eval --bleu: translations against their references as the data has them, and files against files. */
#include "cli_case.h"

/* A translator that learns three sentences by heart. The vocabulary has no spaces, so "Levez-vous" is three tokens. */
static void write_job(data_case *c)
{
    char pairs[4096] = "";
    static const char sentences[] = "please get up now my friend\tLevez-vous donc, mon cher ami.\n"
                                    "my cat does not sleep here\tMon chat n'y dort pas.\n"
                                    "the dog is very very old\tLe chien est tres vieux.\n";
    for (int i = 0; i < 8; i++) strcat(pairs, sentences);
    data_case_text(c, "pairs.tsv", pairs);
    data_case_text(c, "seen.tsv", sentences);
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"seq2seq\", \"hidden\": 24, \"layers\": 1},\n"
                   " \"data\": {\"format\": \"pairs\", \"train\": \"pairs.tsv\", \"validation\": \"seen.tsv\",\n"
                   "  \"max_length\": 12, \"buckets\": 1},\n"
                   " \"train\": {\"steps\": 80, \"batch\": 12, \"lr\": 0.02, \"eval_every\": 0}}\n");
    expect(c, "\"$H\" train job.json", 0, "");
}

static void bleu__is_against_the_line_of_the_file(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" eval run --bleu 13a", 0, "bleu        100.0000\nunknown     0 of 22 words of the references\n");
    data_case_text(c, "other.tsv",
                   "please get up now my friend\tLevez-vous donc, mon cher zorglub.\n"
                   "the dog\t\n"
                   "the dog is very old\tLe chien est a b c d e f g h i j k l.\n");
    expect(c, "\"$H\" eval run --bleu 13a --set data.validation=other.tsv", 0,
           "unknown     1 of 9 words of the references\nleft out    2 of 3 pairs, empty or longer than "
           "data.max_length\n");
    expect(c, "\"$H\" eval run --bleu 13a --set data.validation=other.tsv --json", 0,
           "\"unknown\": 1, \"left_out\": 2,");
    data_case_text(c, "long.tsv", "the dog\ta b c d e f g h i j k l m n\n");
    expect(c, "\"$H\" eval run --bleu 13a --set data.validation=long.tsv", 2,
           "eval: all 1 pairs of the validation part are left out: empty, or longer than data.max_length");
}

/* In the table of what compression cost, too. */
static void bleu__before_and_after_compression(void **state)
{
    data_case *c = *state;
    write_job(c);
    data_case_text(c, "recipe.json", "{\"steps\": [{\"prune\": {\"layers\": \".\", \"ratio\": 0.9}}]}");
    expect(c, "\"$H\" compress run recipe.json -o out --bleu 13a", 0, "BLEU                          100.0000");
    expect(c, "grep -o '\"bleu\": [0-9.]*' out/compress.json | wc -l", 0, "3\n"); /* before, after the step, after */
    expect(c,
           "\"$H\" eval out --bleu 13a --json | grep -o '\"bleu\": [0-9.]*' > told; "
           "grep after out/compress.json | grep -c \"$(cat told)\"",
           0, "1\n");
    expect(c, "\"$H\" compress run recipe.json -o no --bleu 14a", 2, "--bleu takes 13a or none");
}

static void bleu__of_two_files(void **state)
{
    data_case *c = *state;
    data_case_text(c, "out",
                   "The cat sat on the mat.\nA dog, two birds and a horse!\nNobody came to the house at "
                   "night.\n");
    data_case_text(c, "ref",
                   "The cat is sitting on the mat.\nA dog, two birds, and a horse!\nNobody came to the house "
                   "that night.\n");
    expect(c, "\"$H\" eval --hypotheses out --references ref", 0,
           "bleu        57.7476\nbrevity     0.9200\nprecisions ");
    expect(c, "\"$H\" eval --hypotheses out --references ref --bleu none --json", 0, "{\"bleu\": 43.2803814328458");
    data_case_text(c, "short", "The cat.\n");
    expect(c, "\"$H\" eval --hypotheses out --references short", 2, "eval: out has more lines than short, which has 1");
    expect(c, "\"$H\" eval --hypotheses out", 2, "--hypotheses and --references come together");
    expect(c, "\"$H\" eval run --hypotheses out --references ref", 2, "needs no run");
    expect(c, "\"$H\" eval --hypotheses none --references ref", 2, "none: No such file");
    expect(c, "printf '\\n\\n' > e; \"$H\" eval --hypotheses e --references e", 0, "bleu        0.0000");
    expect(c, "printf 'a\\0b\\n' > n; \"$H\" eval --hypotheses n --references n", 2, "n:1: a NUL character");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(bleu__is_against_the_line_of_the_file, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(bleu__before_and_after_compression, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(bleu__of_two_files, data_case_begin, data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
