/* halftone compare from outside. */
#include <math.h>

#include "cli_case.h"

/* Rows with a straight answer: regression without tokens. */
static void write_table(data_case *c)
{
    static char text[6000];
    size_t length = (size_t)sprintf(text, "a,b,y\n");
    for (int i = 0; i < 90; i++)
        length += (size_t)sprintf(text + length, "%d,%d,%d\n", i % 13 - 6, i % 7 - 3, (i % 13 - 6) * (i % 7) - 4);
    data_case_text(c, "t.csv", text);
    data_case_text(c, "table.json",
                   "{\"model\": {\"type\": \"mlp\"},\n"
                   " \"data\": {\"format\": \"table\", \"train\": \"t.csv\"},\n"
                   " \"train\": {\"task\": \"regression\", \"steps\": 6, \"batch\": 8, \"eval_every\": 3}}\n");
}

static void write_text(data_case *c)
{
    static char text[6000];
    size_t length = 0;
    for (int i = 0; length + 64 < sizeof text; i++)
        length += (size_t)sprintf(text + length, "%d times %d makes %d.\n", i % 13, i % 7, (i % 13) * (i % 7));
    data_case_text(c, "sums.txt", text);
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16},\n"
        " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"char\", \"length\": 16},\n"
        " \"train\": {\"steps\": 5, \"batch\": 4, \"lr\": 3e-3, \"eval_every\": 2}}\n");
}

/* What stands behind a name in the run of that name. */
static double value_of(const data_case *c, const char *file, const char *name, const char *key)
{
    char line[512];
    int status;
    snprintf(line, sizeof line, "sed -n 's/.*\"name\": \"%s\", .*\"%s\": \\([^,}]*\\).*/\\1/p' %s | head -n 1", name,
             key, file);
    const char *got = run(c, line, &status);
    if (status != 0 || !*got) fail_msg("no %s of %s in %s", key, name, file);
    return atof(got);
}

static void compare__trains_every_setting_and_shows_them(void **state)
{
    data_case *c = *state;
    write_text(c);
    expect(c, "\"$H\" compare job.json --precision fp64,fp32,fp16,bf16 --loss-scale 1,1024,dynamic > said 2> progress",
           0, "");
    expect(c, "grep -E '^(run|fp64|fp32|fp16 scale 1|fp16 scale 1024|fp16 scale dynamic|bf16) ' said | wc -l", 0,
           "14\n");
    expect(c, "head -n 1 said", 0,
           "run                 bits     loss  held out  perplexity  accuracy  skipped  step ms  tokens/s");
    expect(c, "grep '^fp64 ' said | head -n 1 | awk '{print NF, $2}'", 0, "9 64\n");
    expect(c, "grep '^fp16 scale 1024 ' said | head -n 1 | awk '{print $4}'", 0, "16\n");
    expect(c, "cat said", 0, "There is no arithmetic in fp16");
    expect(c, "cat said", 0, "The curves as a page: compare/compare.html\n");
    expect(c, "cat said", 0, "Memory in ");
    expect(c, "grep -c ' steps in ' progress", 0, "6\n");
    expect(c, "ls compare", 0, "bf16\ncompare.html\nfp16-scale-1\nfp16-scale-1024\nfp16-scale-dynamic\nfp32\nfp64\n");
    expect(c, "ls compare/fp16-scale-1/snapshots", 0, "step-00000005\n");
    /* Training, its end, held out, loss scales, memory. */
    expect(c, "grep -c '<svg class=.wide' compare/compare.html", 0, "5\n");
    expect(c, "cat compare/compare.html", 0, "The last fifth of it");
    /* The fp32 run is the job as halftone train runs it. */
    expect(c,
           "\"$H\" train job.json > /dev/null && cmp run/snapshots/step-00000005/weights.safetensors "
           "compare/fp32/snapshots/step-00000005/weights.safetensors && echo same",
           0, "same\n");
}

static void compare__tells_programs(void **state)
{
    data_case *c = *state;
    write_text(c);
    expect(c, "\"$H\" compare job.json --loss-scale 1024 --output out --json > r.json 2> /dev/null", 0, "");
    expect(c, "head -n 1 r.json", 0, "{\"job\": \"job.json\", \"page\": \"out/compare.html\",\n");
    expect(c, "grep -c '\"precision\": ' r.json", 0, "3\n");
    expect(c, "grep '\"name\": \"fp16 scale 1024\", ' r.json", 0,
           "\"precision\": \"fp16\", \"loss_scale\": 1024, \"seed\": 1, \"bits\": 16, \"steps\": 5, \"final_loss\": ");
    expect(c, "grep '\"name\": \"bf16\", ' r.json", 0, "\"loss_scale\": \"none\", ");
    expect(c, "grep '\"name\": \"bf16\", ' r.json", 0, ", \"skipped\": 0, \"step_ms\": ");
    expect(c, "grep '\"name\": \"bf16\", ' r.json", 0, "\"folder\": \"out/bf16\", \"error\": null}");
    /* Activations are smaller, and there is a copy of the weights. */
    assert_true(value_of(c, "r.json", "fp16 scale 1024", "activations") < value_of(c, "r.json", "fp32", "activations"));
    assert_true(value_of(c, "r.json", "bf16", "weights") > 0);
    assert_true(value_of(c, "r.json", "bf16", "plan_bytes") > value_of(c, "r.json", "bf16", "activations"));
    /* One mean, one perplexity. */
    double loss = value_of(c, "r.json", "fp32", "eval_loss");
    assert_float_equal(value_of(c, "r.json", "fp32", "perplexity"), exp(loss), 1e-9);
    assert_float_equal(value_of(c, "r.json", "bf16", "final_loss"), value_of(c, "r.json", "fp32", "final_loss"), 0.1);
}

static void compare__goes_along_axes_and_seeds(void **state)
{
    data_case *c = *state;
    write_table(c);
    expect(c,
           "\"$H\" compare table.json --axis train.lr=0.01,0.02 --axis model.activation=relu,tanh --seeds 2 > said 2> "
           "/dev/null && ls compare | wc -l",
           0, "9\n");
    expect(c, "head -n 1 said | awk '{print $1, $2, $3, $4, $5, $6}'", 0, "run bits loss held out skipped\n");
    expect(c, "grep -c '^train.lr=0.02 model.activation=tanh seed 2 ' said", 0, "1\n");
    expect(c, "grep -c '^train.lr=0.02 model.activation=tanh ' said", 0, "4\n");
    expect(c, "grep '^over seeds ' said", 0, "seeds  held-out loss  deviation  to the first  its error\n");
    /* The first is compared with nobody, the others by pairs. */
    expect(c, "grep '^train.lr=0.01 model.activation=relu  *2 ' said | awk '{print NF, $6, $7}'", 0, "7 - -\n");
    expect(c, "grep '^train.lr=0.02 model.activation=tanh  *2 ' said | awk '{print NF, ($7 > 0)}'", 0, "7 1\n");
    expect(c, "ls -d compare/train.lr=0.02-model.activation=relu-seed-2", 0, "seed-2\n");
    expect(c,
           "cmp compare/train.lr=0.01*relu-seed-1/config.resolved.json "
           "compare/train.lr=0.01*relu-seed-2/config.resolved.json "
           "> /dev/null; echo $?",
           0, "1\n");
    /* Again, with fewer: what is there is replaced, and the rest stays. */
    expect(c, "\"$H\" compare table.json --axis train.lr=0.01 2> /dev/null && ls compare | wc -l", 0, "10\n");
}

/* An engine config that says fp16 does not stand in the way of others. */
static void compare__overrides_the_engine_config(void **state)
{
    data_case *c = *state;
    write_table(c);
    data_case_text(c, "ds.json", "{\"fp16\": {\"enabled\": true, \"loss_scale\": 128}}\n");
    expect(c,
           "\"$H\" compare table.json --deepspeed ds.json --precision fp32,fp16,bf16 --loss-scale 64,dynamic --json > "
           "r.json 2> /dev/null; sed -n 's/.*\"name\": \"\\([^\"]*\\)\", .*\"loss_scale\": \\([^,]*\\),.*/\\1: \\2/p' "
           "r.json",
           0, "fp32: \"none\"\nfp16 scale 64: 64\nfp16 scale dynamic: \"dynamic\"\nbf16: \"none\"\n");
    expect(c,
           "\"$H\" compare table.json --deepspeed ds.json --precision fp16 --json 2> /dev/null | grep '\"name\": "
           "\"fp16\"'",
           0, "\"loss_scale\": 128");
}

/* Squares that no f16 holds, and a scale that cannot fall: a result like others. */
static void compare__keeps_a_run_that_cannot_go_on(void **state)
{
    data_case *c = *state;
    write_table(c);
    data_case_text(c, "t.csv", "a,y\n1e30,1e30\n2e30,3e30\n");
    expect(
        c,
        "\"$H\" compare table.json --axis train.lr=0.1 --set data.normalize=false --set data.validation_share=0 --set "
        "train.steps=30 --set train.batch=2 > said 2> /dev/null; cat said",
        0, "train.lr=0.1 ended after 20 steps: the gradients of 20 steps in a row");
    expect(c, "grep '^train.lr=0.1 ' said | head -n 1 | awk '{print $2, $4, $5}'", 0, "32 - 20\n");
}

static void compare__refuses_what_is_wrong(void **state)
{
    data_case *c = *state;
    write_table(c);
    expect(c, "\"$H\" compare --help", 0, "usage: halftone compare JOB.json");
    expect(c, "\"$H\" compare", 2, "which job?");
    expect(c, "\"$H\" compare nowhere.json", 2, "nowhere.json");
    expect(c, "\"$H\" compare table.json table.json", 2, "one job at a time");
    expect(c, "\"$H\" compare table.json --precision", 2, "--precision takes types that differ");
    expect(c, "\"$H\" compare table.json --precision fp32,,fp16", 2, "--precision takes types that differ");
    expect(c, "\"$H\" compare table.json --precision fp32,fp32", 2, "--precision takes types that differ");
    /* Found before the first run. */
    expect(c, "\"$H\" compare table.json --precision fp32,fp33", 2, "train.precision");
    expect(c, "\"$H\" compare table.json --precision fp32,fp16 --loss-scale 1,many", 2, "train.loss_scale");
    expect(c, "\"$H\" compare table.json --axis train.lt=1,2", 2, "did you mean");
    expect(c, "if [ -e compare ]; then exit 3; fi", 0, "");
    expect(c, "\"$H\" compare table.json --precision fp32 --loss-scale 1", 2, "--loss-scale is for runs in fp16");
    expect(c, "\"$H\" compare table.json --axis train.lr", 2, "--axis takes KEY=A,B");
    expect(c, "\"$H\" compare table.json --axis train.lr=1,1", 2, "values that differ");
    expect(c, "\"$H\" compare table.json --axis train.lr=1 --axis train.lr=2", 2, "an axis already");
    expect(c, "\"$H\" compare table.json --axis train.seed=1,2", 2, "an option of its own, --seeds");
    expect(c, "\"$H\" compare table.json --axis train.loss_scale=1,2", 2, "an option of its own, --loss-scale");
    /* A list is one value. */
    expect(c, "\"$H\" compare table.json --precision bf16 --axis 'halftone.fp32_ops=[\"add\",\"ad\"],[\"add\"]'", 2,
           "there is no op \"ad\"");
    expect(c, "\"$H\" compare table.json --seeds 0", 2, "--seeds takes");
    expect(c, "\"$H\" compare table.json --output ''", 2, "--output takes a folder");
    expect(c, "\"$H\" compare table.json --precisions fp32", 2, "'--precisions' is not understood");
    expect(c, "echo > file; \"$H\" compare table.json --axis train.lr=1 --output file/below; test $? -ne 0", 0, "file");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(compare__trains_every_setting_and_shows_them, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(compare__tells_programs, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(compare__goes_along_axes_and_seeds, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(compare__overrides_the_engine_config, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(compare__keeps_a_run_that_cannot_go_on, data_case_begin, data_case_end),
        cmocka_unit_test_setup_teardown(compare__refuses_what_is_wrong, data_case_begin, data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
