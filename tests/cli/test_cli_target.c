/* Plans for other machines from outside, and the target that a run keeps. */
#include "cli_case.h"
#include "train/seal.h"

static void write_job(data_case *c)
{
    static char text[12000];
    size_t length = 0;
    for (int i = 0; length + 64 < sizeof text; i++)
        length += (size_t)sprintf(text + length, "%d times %d makes %d.\n", i % 13, i % 7, (i % 13) * (i % 7));
    data_case_text(c, "sums.txt", text);
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 64, \"dropout\": 0.1},\n"
        " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"char\", \"length\": 32},\n"
        " \"train\": {\"steps\": 4, \"batch\": 8, \"lr\": 3e-3, \"schedule\": \"constant\", \"precision\": \"bf16\", "
        "\"output\": \"run\"}}\n");
}

/* Four steps with portable kernels and one thread, in a fresh folder. */
static void write_run(data_case *c)
{
    write_job(c);
    expect(c, "rm -rf run; HALFTONE_ISA=portable OMP_NUM_THREADS=1 \"$H\" train job.json", 0, "step 4 ");
}

/* ---- explain --target ---- */

static void explain__plans_for_any_target(void **state)
{
    data_case *c = *state;
    write_job(c);
    data_case_text(c, "arm.json", "{\"arch\": \"aarch64\", \"isa\": \"portable\", \"threads\": 8}");
    data_case_text(c, "x86.json",
                   "{\"name\": \"node\", \"arch\": \"x86_64\", \"isa\": \"avx512\", \"features\": [\"amx_bf16\"], "
                   "\"threads\": 16}");
    expect(c, "\"$H\" explain job.json --target arm.json > e.txt && head -n 1 e.txt", 0,
           "bf16; kernels for portable, 8 threads\n");
    expect(c, "\"$H\" explain job.json --target x86.json > e.txt && head -n 1 e.txt", 0,
           "bf16; kernels for avx512, 16 threads\n");
    expect(
        c,
        "\"$H\" explain job.json --target x86.json --json > e.json; grep -c 'matmul_bf16_dot.bf16.amx\", \"ref' e.json"
        " | awk '{print ($1 > 2)}'; head -c 60 e.json",
        0, "1\n{\"precision\": \"bf16\", \"device\": \"cpu\", \"isa\": \"avx512\"");
}

static void explain__plans_the_same_for_this_machine_and_its_file(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c,
           "\"$H\" probe --describe > here.json && \"$H\" explain job.json --json > a && \"$H\" explain job.json "
           "--json --target "
           "here.json | cmp - a && echo same",
           0, "same\n");
}

static void explain__plans_for_a_cuda_device(void **state)
{
    data_case *c = *state;
    write_job(c);
    data_case_text(c, "gpu.json",
                   "{\"device\": \"cuda\", \"arch\": \"x86_64\", \"isa\": \"avx512\", \"threads\": 16, "
                   "\"memory\": {\"main\": 150e9, \"host\": 128e9}}");
    expect(c, "\"$H\" explain job.json --target gpu.json > gpu.txt && head -n 1 gpu.txt", 0,
           "bf16; kernels for device cuda\n");
    expect(c, "grep -c ' matmul_cublaslt.cuda' gpu.txt | sed 's/[1-9][0-9]*/some/'", 0, "some\n");
    /* The library adds; gelu is no epilogue, its gradient goes with the sum for the bias; joined losses; results where they
     * are wanted. */
    expect(c,
           "for p in bf16 fp16 fp32; do \"$H\" explain job.json --target gpu.json --set train.precision=$p > $p.txt; "
           "grep -c 'matmul + add ' $p.txt | sed 's/[1-9][0-9]*/some/'; grep -c 'FWD *gelu_tanh ' $p.txt; grep -c "
           "'gelu_tanh_grad + sum ' $p.txt; done",
           0, "some\n1\n1\nsome\n1\n1\nsome\n1\n1\n");
    expect(c,
           "\"$H\" explain job.json --target gpu.json --set data.length=64 > long.txt; grep -c 'attention_grad_cudnn' "
           "long.txt; grep -c 'cross_entropy_both' long.txt; grep -c 'BWD-Actv *\\(copy\\|concat\\) ' long.txt",
           1, "1\n1\n0\n");
    expect(c,
           "\"$H\" explain job.json > cpu.txt; for f in cpu gpu; do grep "
           "'^\\(gradients\\|optimizer\\) *[0-9]*$' $f.txt > $f; done; wc -l < cpu; cmp cpu gpu && echo same",
           0, "2\nsame\n");
    /* The sums for both biases before a norm are made with the norm's gradient. */
    expect(c,
           "for p in bf16 fp32; do \"$H\" explain job.json --target gpu.json --set train.precision=$p --set "
           "model.dropout=0 > $p.txt; grep -c ' layernorm_grad_sum.cuda' $p.txt; grep -c ' sum.cuda' $p.txt; done",
           0, "2\n4\n2\n4\n");
    /* cublasLt adds biases in half: they have copies, too. */
    expect(c, "for f in cpu gpu; do awk '$1 == \"weights\" {print $2}' $f.txt; done | sort -nc && echo more", 0,
           "more\n");
}

/* What costs accuracy or the same bits is taken where the job asks for it, and mentioned nowhere else. */
static void explain__plans_with_the_liberties_of_the_job(void **state)
{
    data_case *c = *state;
    write_job(c);
    data_case_text(c, "gpu.json", "{\"device\": \"cuda\", \"arch\": \"x86_64\", \"isa\": \"avx512\", \"threads\": 16}");
    expect(c,
           "for f in false true; do \"$H\" explain job.json --target gpu.json --set train.precision=fp32 --set "
           "halftone.tf32=$f | grep -c tf32; done",
           0, "0\n");
    expect(c,
           "\"$H\" explain job.json --target gpu.json --set train.precision=fp32 --set halftone.tf32=true | grep -c "
           "' matmul_cublaslt.cuda'",
           1, "0\n");
    expect(c,
           "for f in false true; do \"$H\" explain job.json --target gpu.json --set train.precision=fp32 --set "
           "model.n_embd=1024 --set train.batch=64 --set data.length=64 --set halftone.tf32_parts=$f | grep -c "
           "matmul_parts; done",
           0, "0\n");
    expect(c,
           "for f in true false; do \"$H\" explain job.json --target gpu.json --set data.length=64 --set "
           "halftone.deterministic=$f | grep -c any_order; done",
           0, "0\n1\n");
    data_case_text(c, "bad.json",
                   "{\"device\": \"cuda\", \"arch\": \"x86_64\", \"isa\": \"avx512\", \"threads\": 16, "
                   "\"liberties\": [\"tf33\"]}");
    expect(c, "\"$H\" explain job.json --target bad.json", 2, "there is no liberty \"tf33\"; did you mean \"tf32\"?");
}

static void explain__refuses_files_that_are_no_target(void **state)
{
    data_case *c = *state;
    write_job(c);
    data_case_text(c, "bad.json", "{\"arch\": \"aarch64\", \"isa\": \"avx2\", \"threads\": 8}");
    expect(c, "\"$H\" explain job.json --target bad.json", 2, "bad.json:1:28: aarch64 has no avx2");
    expect(c, "\"$H\" explain job.json --target nowhere.json", 2, "nowhere.json");
    expect(c, "\"$H\" explain job.json --target", 2, "--target takes a file");
}

/* ---- run/target.json ---- */

/* Replaces a text of a sealed file, and seals it again. */
static void edit_sealed(const data_case *c, const char *name, const char *key, const char *from, const char *to)
{
    size_t length;
    ht_text text = {0};
    char *file = file_read(data_case_path(c, name), &length), *at = strstr(file, from), *seal = strstr(file, key);
    assert_true(at && seal && at < seal);
    while (*seal != ',') seal--;
    ht_text_add(&text, "%.*s%s%.*s}", (int)(at - file), file, to, (int)(seal - at - (ptrdiff_t)strlen(from)),
                at + strlen(from));
    ht_seal_add(&text, key);
    file_write(data_case_path(c, name), text.data, text.length);
    ht_text_free(&text);
    free(file);
}

/* The run's target is this machine's. */
static void expect_this_machine(const data_case *c)
{
    expect(c,
           "\"$H\" probe --describe | sed 's/,$//' > here; sed '/xxh3/d; s/,$//' run/target.json | cmp - here && echo "
           "same",
           0, "same\n");
}

static void resume__keeps_the_target_and_its_bits(void **state)
{
    data_case *c = *state;
    write_run(c);
    expect(c, "grep -c '\"isa\": \"portable\"\\|\"threads\": 1' run/target.json", 0, "2\n");
    expect(c, "rm -rf whole; HALFTONE_ISA=portable \"$H\" train job.json --set train.output=whole --set train.steps=8",
           0, "step 8 ");
    /* The best kernels of this machine and other threads: the run stays with its own kernels. */
    expect(c, "OMP_NUM_THREADS=3 \"$H\" train job.json --resume --set train.steps=8", 0, "step 8 ");
    expect(c, "grep -c '\"isa\": \"portable\"\\|\"threads\": 3' run/target.json", 0, "2\n");
    expect(c,
           "for f in weights optimizer; do cmp run/snapshots/step-*8/$f.safetensors "
           "whole/snapshots/step-*8/$f.safetensors || exit; done; echo same",
           0, "same\n");
    /* The fake device has the same kernels. */
    expect(c, "\"$H\" train job.json --resume --set train.steps=9 --device fake 2>&1 | grep -c 'another machine'", 1,
           "0\n");
    expect(c, "grep -c '\"isa\": \"portable\"\\|\"device\": \"fake\"' run/target.json", 0, "2\n");
}

static void resume__plans_for_this_machine_where_the_target_does_not_run(void **state)
{
    data_case *c = *state;
    write_run(c);
    edit_sealed(c, "run/target.json", HT_SEAL_KEY, "\"device\": \"cpu\"", "\"device\": \"cuda\"");
    expect(c, "cp run/target.json foreign.json; \"$H\" eval run", 0,
           "run/target.json: the run was planned for another machine: it computes on a cuda device");
    expect(c, "cmp run/target.json foreign.json && echo same", 0, "same\n"); /* eval only reads */
    expect(c, "\"$H\" train job.json --resume --set train.steps=6", 0, "results may differ");
    expect_this_machine(c);
    expect(c, "\"$H\" train job.json --resume --set train.steps=8 2>&1 | grep -c 'another machine'", 1, "0\n");
}

static void resume__obeys_a_limit_of_instruction_sets(void **state)
{
    data_case *c = *state;
    int status;
    write_job(c);
    if (strstr(run(c, "\"$H\" probe --describe", &status), "\"isa\": \"portable\""))
        skip(); /* there is nothing to limit */
    expect(c, "rm -rf run; \"$H\" train job.json", 0, "step 4 ");
    expect(c, "HALFTONE_ISA=portable \"$H\" train job.json --resume --set train.steps=6", 0,
           ", and this start is limited to portable");
    expect(c, "grep '\"isa\"' run/target.json", 0, "portable");
}

/* Older versions had no such file, and their snapshots list none. */
static void resume__writes_the_target_of_a_run_without_one(void **state)
{
    data_case *c = *state;
    write_run(c);
    edit_sealed(c, "run/snapshots/step-00000004/manifest.json", "manifest_xxh3", "\"target.json\", ", "");
    expect(c, "rm run/target.json; \"$H\" eval run > /dev/null; if [ -e run/target.json ]; then exit 3; fi", 0, "");
    expect(c, "\"$H\" train job.json --resume --set train.steps=6", 0, "step 6 ");
    expect_this_machine(c);
}

static void resume__refuses_a_target_file_that_is_damaged(void **state)
{
    data_case *c = *state;
    write_run(c);
    expect(c, "echo '{\"isa\": 3}' > run/target.json; \"$H\" train job.json --resume --set train.steps=6", 2,
           "run/target.json: it does not end with its checksum");
    expect(c, "rm run/target.json; \"$H\" train job.json --resume --set train.steps=6", 1,
           "run/target.json: No such file");
    expect(c, "\"$H\" train job.json --force > /dev/null", 0, "");
    expect_this_machine(c);
    edit_sealed(c, "run/target.json", HT_SEAL_KEY, "\"isa\": ", "\"isa\": 3, \"was\": ");
    expect(c, "\"$H\" eval run", 2, "isa is an integer, not a string");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(explain__plans_for_any_target),
        cmocka_unit_test(explain__plans_the_same_for_this_machine_and_its_file),
        cmocka_unit_test(explain__plans_for_a_cuda_device),
        cmocka_unit_test(explain__plans_with_the_liberties_of_the_job),
        cmocka_unit_test(explain__refuses_files_that_are_no_target),
        cmocka_unit_test(resume__keeps_the_target_and_its_bits),
        cmocka_unit_test(resume__plans_for_this_machine_where_the_target_does_not_run),
        cmocka_unit_test(resume__obeys_a_limit_of_instruction_sets),
        cmocka_unit_test(resume__writes_the_target_of_a_run_without_one),
        cmocka_unit_test(resume__refuses_a_target_file_that_is_damaged),
    };
    return cmocka_run_group_tests(tests, data_case_begin, data_case_end);
}
