/* Jobs in fp8 from the command line: what explain and check show, the loss that eval finds, changes between starts. */
#include "cli_case.h"
#include "tiny_data.h"

static void write_job(data_case *c)
{
    tiny_sums(c, 6000);
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 32},\n"
        " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"length\": 16},\n"
        " \"train\": {\"steps\": 30, \"batch\": 4, \"lr\": 3e-3, \"precision\": \"bf16\", \"output\": \"run\",\n"
        "            \"schedule\": \"constant\", \"log_every\": 10},\n"
        " \"halftone\": {\"fp8\": {\"recipe\": \"delayed\", \"history\": 4}}}\n");
    data_case_text(c, "gpu.json",
                   "{\"name\": \"gpu\", \"device\": \"cuda\", \"arch\": \"x86_64\", \"isa\": \"avx2\", \"libraries\": "
                   "[\"cublaslt\"], \"threads\": 1}\n");
}

static void train__learns_and_eval_finds_its_loss(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" train job.json --set train.output=plain --set halftone.fp8.recipe=null", 0, "step 30 of 30");
    expect(c, "\"$H\" train job.json", 0, "step 30 of 30");
    /* Within two in a hundred of bf16. */
    expect(c,
           "last() { grep '\"kind\": \"eval\"' $1/metrics.jsonl | tail -1 | grep -o '\"loss\": [0-9.]*' | cut -d' ' "
           "-f2; }; "
           "echo $(last plain) $(last run) | awk '{ d = $1 - $2; if (d < 0) d = -d; print $1 < 4 && d < 0.02 * $1 }'",
           0, "1\n");
    expect(c,
           "a=$(grep '\"kind\": \"eval\"' run/metrics.jsonl | tail -1 | grep -o '\"loss\": [0-9.]*'); "
           "b=$(\"$H\" eval run --json | grep -o '\"loss\": [0-9.]*'); test \"$a\" = \"$b\" && echo the same",
           0, "the same\n");
}

static void check__shows_the_keys_and_refuses_what_does_not_go_with_them(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" check job.json | tr -s ' '", 0, "fp8.recipe \"delayed\"");
    expect(c, "\"$H\" check job.json --set train.precision=fp32", 2,
           "halftone.fp8.recipe: \"delayed\" goes with the precisions bf16 and fp16");
    expect(c, "\"$H\" check job.json --set halftone.fp8.recipe=sometimes", 2, "expected one of delayed, current");
    expect(c, "\"$H\" check job.json --set halftone.fp8.history=0", 2, "fp8.history");
    expect(c, "\"$H\" check job.json --set halftone.fp8.recipe=null", 0, "nothing is in f8");
    expect(c, "\"$H\" train job.json --set model.n_embd=24 --set train.steps=1", 0,
           "no product of this model is in f8");
}

static void explain__shows_f8_in_the_blocks_of_a_layer(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" explain job.json | grep 'mlp.c_fc.* -> ' | head -1", 0,
           "f8e4m3 -> bf16        f8e5m2 f8e4m3 -> bf16  f8e4m3 f8e5m2 -> f32");
    /* On a GPU all of them run by the library, with the epilogues that it has. */
    expect(c, "\"$H\" explain job.json --target gpu.json > gpu.txt; grep 'scaled_matmul' gpu.txt | grep -vc cublaslt",
           1, "0\n");
    expect(c, "grep -c 'scaled_matmul + add .*scaled_matmul_cublaslt.cuda' gpu.txt", 0, "4\n");
    /* gelu and its gradient reach memory in f8 alone, with the sum for the bias. */
    expect(c, "grep -c 'gelu_tanh + quantize_both .*quantize_both.cuda' gpu.txt", 0, "1\n");
    expect(c, "grep -c 'gelu_tanh_grad + quantize_sum .*quantize_sum.cuda' gpu.txt", 0, "1\n");
    expect(c, "\"$H\" diff job.json --axis halftone.fp8.recipe=delayed,null", 0,
           "first difference: bf16[64,96], add at transformer.h.0.attn.c_attn (fwd)");
}

static void resume__says_what_it_cannot_change(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" train job.json --set train.steps=4", 0, "step 4 of 4");
    expect(c, "\"$H\" train job.json --resume --set train.steps=6 --set halftone.fp8.history=8", 2,
           "halftone.fp8.history: 4 -> 8");
    expect(c, "\"$H\" train job.json --resume --set train.steps=6 --set halftone.fp8.recipe=current", 2,
           "halftone.fp8.recipe: \"delayed\" -> \"current\"");
    expect(c, "\"$H\" train job.json --resume --set train.steps=6", 0, "step 6 of 6");
    /* A run in bf16 can go on in fp8: its scales are found anew. */
    expect(c,
           "\"$H\" train job.json --set train.output=half --set train.steps=4 --set halftone.fp8.recipe=null && "
           "\"$H\" train job.json --set train.output=half --set train.steps=6 --resume",
           0, "step 6 of 6");
}

#define CASE(test) cmocka_unit_test_setup_teardown(test, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(train__learns_and_eval_finds_its_loss),
        CASE(check__shows_the_keys_and_refuses_what_does_not_go_with_them),
        CASE(explain__shows_f8_in_the_blocks_of_a_layer),
        CASE(resume__says_what_it_cannot_change),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
