/* GPUs that fail, or lack something: what is said, what goes on, and what of a run is left. On the emulator, which fails as it
 * is told (tests/emulator/emulated_driver.c). */
#include "device/device.h"

#include "cli_case.h"
#include "context_fixture.h"

enum { SKIPPED = 77, ECC_UNCORRECTABLE = 214, LAUNCH_FAILED = 719 };

static void write_job(data_case *c)
{
    ht_text text = {0};
    for (int i = 0; i < 400; i++) ht_text_add(&text, "the %d of %d; ", i * 7 % 31, i % 13);
    data_case_text(c, "text.txt", text.data);
    ht_text_free(&text);
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16},\n"
        " \"data\": {\"format\": \"text\", \"train\": \"text.txt\", \"tokenizer\": \"byte\", \"length\": 12},\n"
        " \"train\": {\"steps\": 12, \"batch\": 2, \"lr\": 0.01, \"snapshot_every\": 2, \"eval_every\": 0, "
        "\"output\": \"run\"}}");
}

/* A run that fails behind its first snapshot, however many grids that takes; `said` has what it said. */
#define UNTIL_SNAPSHOT                                                                                                 \
    "failing() { for n in 100 200 400 800 1600; do rm -rf run; "                                                       \
    "HALFTONE_EMULATED_FAILURE=$1@$n \"$H\" train job.json --device cuda $2 > said 2>&1 && return 1; "                 \
    "ls run/snapshots/step-* > there 2>&1 && return; done; return 1; }; "

static void fail_and_resume(data_case *c, int error, const char *environment, const char *options, const char *message)
{
    char line[2048];
    write_job(c);
    snprintf(line, sizeof line,
             UNTIL_SNAPSHOT "set -e; \"$H\" train job.json --device cuda --set train.output=whole > log 2>&1; "
                            "%s failing %d '%s' || { echo no failure; cat said; exit 1; }; "
                            "grep -E '%s' said; exit 9",
             environment, error, options, message);
    expect(c, line, 9, "the newest snapshot is that of step ");
    expect(c,
           "set -e; \"$H\" train job.json --device cuda --resume > log 2>&1; "
           "for f in weights optimizer; do cmp run/snapshots/step-*12/$f.safetensors "
           "whole/snapshots/step-*12/$f.safetensors; done; echo same",
           0, "same\n");
}

/* As a driver says it: late. What the graph of a segment was, and the step. */
static void cuda__a_failure_in_a_graph_names_segment_and_step(void **state)
{
    fail_and_resume(*state, ECC_UNCORRECTABLE, "", "",
                    "step [0-9]+: segment [a-z_]+, replayed as one graph: .*\\(error 214\\).*CUDA_LAUNCH_BLOCKING=1");
}

static void cuda__a_failure_names_instruction_layer_and_step(void **state)
{
    fail_and_resume(*state, LAUNCH_FAILED, "export CUDA_LAUNCH_BLOCKING=1;", "--set halftone.cuda_graphs=false",
                    "step [0-9]+: segment [a-z_]+, instruction [0-9]+ \\([a-z0-9_.]+, (at|a gradient of) "
                    "[a-z0-9_.]+\\): device cuda: "
                    "launching kernel [a-z_]+: .*\\(error 719\\);");
}

static void cuda__an_old_driver_is_told(void **state)
{
    static const char reason[] = "the driver serves CUDA 11.8; 12.0 is the oldest that works";
    data_case *c = *state;
    write_job(c);
    expect(c, "HALFTONE_EMULATED_DRIVER=11080 \"$H\" train job.json --device cuda", 2, reason);
    expect(c, "HALFTONE_EMULATED_DRIVER=11080 \"$H\" check job.json --device cuda", 0, reason);
    expect(c,
           "HALFTONE_EMULATED_DRIVER=11080 \"$H\" train job.json --set train.steps=1 > said 2>&1; cat said; "
           "grep -c 'serves CUDA 11.8' said",
           0, "\n1\n");
    expect(c, "grep 'the processor computes' said", 0, reason);
    expect(c, "cat said", 0, "on the CPU, ");
    expect(c, "HALFTONE_EMULATED_DRIVER=11080 \"$H\" eval run", 0, reason);
}

/* No GPU is no failure: the first line says where the run is. */
static void cuda__without_a_gpu_the_processor_computes_and_says_so(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "HALFTONE_EMULATED_GPUS=0 \"$H\" train job.json --set train.steps=1", 0, "on the CPU, ");
    expect(c, "HALFTONE_EMULATED_GPUS=0 \"$H\" train job.json --force --set train.steps=1 2>&1 | grep -c GPU", 1,
           "0\n");
    expect(c, "\"$H\" train job.json --force --set train.steps=1", 0, "on cuda (emulated GPU), ");
}

static void cuda__a_missing_compiler_is_told(void **state)
{
    static const char reason[] = "no kernel can be compiled without NVRTC: libnvrtc.so.13 ";
    data_case *c = *state;
    write_job(c);
    expect(c,
           "mkdir lib; E=${LD_LIBRARY_PATH##*:}; ln -s $E/libcuda.so.1 lib; ln -s $E/libcudnn.so.9 lib/libnvrtc.so.13; "
           "LD_LIBRARY_PATH=$PWD/lib \"$H\" train job.json --device cuda",
           2, reason);
    expect(c, "LD_LIBRARY_PATH=$PWD/lib \"$H\" check job.json --device cuda", 0, reason);
    expect(c, "LD_LIBRARY_PATH=$PWD/lib \"$H\" train job.json --set train.steps=1", 0, reason);
}

#define PRODUCTS "LD_LIBRARY_PATH=$LD_LIBRARY_PATH/products:$LD_LIBRARY_PATH "

static void cuda__missing_libraries_are_told_with_what_works(void **state)
{
    static const char both[] = "halftone: cublaslt is missing: products run on kernels of our own, which are slower; "
                               "cudnn is missing: attention and convolutions run on kernels of our own, which are "
                               "slower\n";
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" check job.json --device cuda", 0, both);
    expect(c, "\"$H\" train job.json --device cuda --set train.steps=1", 0, both);
    expect(c, PRODUCTS "\"$H\" check job.json --device cuda", 0, "halftone: cudnn is missing: attention and");
    expect(c, "\"$H\" check job.json --device cpu 2>&1 | grep -c missing", 1, "0\n");
}

/* Rows of a library cannot run where it is not: the run is planned again. */
static void cuda__a_resume_without_a_library_is_planned_again(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, PRODUCTS "\"$H\" train job.json --device cuda --set train.steps=2", 0, "2 steps");
    expect(c, "cat run/target.json", 0, "\"libraries\": [\"cublaslt\"]");
    expect(c, "\"$H\" train job.json --device cuda --resume --set train.steps=4", 0,
           "target.json: the run was planned for another machine: it calls cublaslt, which is missing here");
    expect(c, "cat run/target.json", 0, "\"libraries\": []");
    /* And stays as it is where the library is there again. */
    expect(c, PRODUCTS "\"$H\" train job.json --device cuda --resume --set train.steps=6 2>&1 | grep -c 'cublaslt'", 1,
           "0\n");
    expect(c, "cat run/target.json", 0, "\"libraries\": []");
}

static void cuda__a_resume_under_other_versions_is_told(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, PRODUCTS "\"$H\" train job.json --device cuda --set train.steps=2", 0, "2 steps");
    expect(c, "cat run/target.json", 0, "\"versions\": {\"driver\": 13000, \"nvrtc\": ");
    expect(c, "cat run/target.json", 0, "\"cublaslt\": 1}");
    expect(c,
           "export HALFTONE_EMULATED_DRIVER=13010; " PRODUCTS
           "\"$H\" train job.json --device cuda --resume --set train.steps=4 2>&1; cat run/target.json",
           0, "driver 13000, now 13010: results may differ in their last digits\n");
    expect(c, "cat run/target.json", 0, "\"driver\": 13010");
    expect(c,
           "export HALFTONE_EMULATED_DRIVER=13010; " PRODUCTS
           "\"$H\" train job.json --device cuda --resume --set train.steps=6 2>&1 | grep -c 'may differ'",
           1, "0\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(cuda__a_failure_in_a_graph_names_segment_and_step),
        CASE(cuda__a_failure_names_instruction_layer_and_step),
        CASE(cuda__an_old_driver_is_told),
        CASE(cuda__without_a_gpu_the_processor_computes_and_says_so),
        CASE(cuda__a_missing_compiler_is_told),
        CASE(cuda__missing_libraries_are_told_with_what_works),
        CASE(cuda__a_resume_without_a_library_is_planned_again),
        CASE(cuda__a_resume_under_other_versions_is_told),
    };
    if (!getenv("HALFTONE_EMULATED")) {
        puts("skipped: the emulator was not asked for");
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
