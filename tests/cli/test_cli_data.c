/* halftone data from outside. */
#include "cli_case.h"

static void data__guesses_the_format_and_shows_batches(void **state)
{
    data_case *c = *state;
    data_case_text(c, "a.txt", "to be or not to be\nthat is the question\n");
    data_case_text(c, "p.tsv", "Go.\tVa !\nGo on.\tContinue.\n");
    data_case_text(c, "t.csv", "x,y,kind\n1,2,red\n3,4,blue\n");
    expect(c, "\"$H\" data --help", 0, "usage: halftone data");
    expect(c, "\"$H\" data a.txt --length 8 --set order=sequential --batch 2", 0, "    to be or\n     not to \n");
    expect(c, "\"$H\" data a.txt --length 8 --set order=sequential", 0, "tokens i32[4, 8], targets i32[4, 8]");
    expect(c, "\"$H\" data a.txt --length 8 --task masked_lm", 0, "vocabulary  257 tokens");
    expect(c, "\"$H\" data p.tsv --set minimum_count=1 --set validation_share=0 --batch 2", 0, "Go. -> Va !");
    expect(c, "\"$H\" data p.tsv --set minimum_count=1 --set validation_share=0", 0, "% padding");
    expect(c, "\"$H\" data t.csv --set validation_share=0 --batch 1", 0, "(red)");
    expect(c,
           "printf '\\0\\0\\10\\3\\0\\0\\0\\2\\0\\0\\0\\1\\0\\0\\0\\1\\1\\2' > images-idx3-ubyte; "
           "printf '\\0\\0\\10\\1\\0\\0\\0\\2\\0\\377' > labels-idx1-ubyte; "
           "\"$H\" data images-idx3-ubyte --set validation_share=0 --batch 1 2>&1",
           0, "the labels leave gaps: 254 of 256 classes have no item; data.classes says how many there are");
    expect(c, "\"$H\" data images-idx3-ubyte --set validation_share=0 --set classes=10", 2,
           "labels-idx1-ubyte: the label of item 1 is 255, but data.classes is 10");
    expect(c, "\"$H\" data t.csv --set validation_share=0 --task regression --set label=x --set features='[\"y\"]'", 0,
           "y f32[4, 1]");
    expect(c, "\"$H\" data a.txt --length 8 --validation", 0, "validation");
}

static void data__json_is_json(void **state)
{
    data_case *c = *state;
    data_case_file(c, "a.txt", "a \"quote\" and \\ \xff\0 bytes", 25);
    int status;
    const char *text = run(c, "\"$H\" data a.txt --length 20 --json --set validation_share=0", &status);
    assert_int_equal(status, 0);
    ht_arena *arena = ht_arena_create();
    const ht_json *root;
    if (ht_json_parse(&c->ctx, arena, "out", text, strlen(text), &root) != HT_OK)
        fail_msg("%s\n%s", c->ctx.message, text);
    assert_string_equal(ht_json_get(root, "format")->text, "text");
    assert_int_equal(ht_json_get(root, "vocabulary")->integer, 256);
    assert_int_equal(ht_json_get(root, "batches")->count, 2);
    const ht_json *batch = ht_json_get(root, "batches")->child;
    assert_int_equal(ht_json_get(batch, "arrays")->count, 2);
    assert_int_equal(ht_json_get(batch, "shown")->count, 4);
    assert_int_equal(ht_json_get(ht_json_get(ht_json_get(root, "parts"), "train"), "tokens")->integer, 25);
    ht_arena_free(arena);
}

static void data__takes_the_block_of_a_job(void **state)
{
    data_case *c = *state;
    data_case_text(c, "a.txt", "to be or not to be\n");
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"gpt2\"}, // a comment\n\"data\": {\"format\": \"text\", \"train\": "
                   "\"a.txt\", \"length\": 4}, \"train\": {\"batch\": 3, \"seed\": 5}}");
    expect(c, "\"$H\" data job.json", 0, "tokens i32[3, 4]");
    data_case_text(c, "job.json", "{\"data\": {\"format\": \"text\", \"train\": \"a.txt\", \"lenght\": 4}}");
    expect(c, "\"$H\" data job.json", 2, "length");
    data_case_text(c, "job.json", "{}");
    expect(c, "\"$H\" data job.json", 2, "the job has no \"data\" block");
}

static void data__wrong_words_end_with_2(void **state)
{
    data_case *c = *state;
    data_case_text(c, "a.txt", "to be or not to be\n");
    data_case_text(c, "mystery", "x");
    expect(c, "\"$H\" data", 2, "which file?");
    expect(c, "\"$H\" data mystery", 2, "say --format");
    expect(c, "\"$H\" data mystery --format tex", 2, "no format \"tex\"");
    expect(c, "\"$H\" data nothing.txt", 2, "nothing.txt: there is no such file or folder");
    expect(c, "\"$H\" data a.txt --batch 0", 2, "--batch takes a whole number from 1");
    expect(c, "\"$H\" data a.txt --batch", 2, "--batch takes");
    expect(c, "\"$H\" data a.txt --set nonsense", 2, "not KEY=VALUE");
    expect(c, "\"$H\" data a.txt --set tokenizer=words", 2, "tokenizer");
    expect(c, "\"$H\" data a.txt --task dance", 2, "--task dance");
    expect(c, "\"$H\" data a.txt --what", 2, "'--what' is not understood");
    expect(c, "\"$H\" data a.txt --length 4 --set validation_share=0 --validation", 2, "there is no validation part");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(data__guesses_the_format_and_shows_batches),
        IN_FOLDER(data__json_is_json),
        IN_FOLDER(data__takes_the_block_of_a_job),
        IN_FOLDER(data__wrong_words_end_with_2),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
