/* Training on a CUDA device, the emulator's where there is no GPU: the losses of the CPU within a tolerance, the same bits
 * on a rerun and after a resume, and runs that change devices. */
#include "device/device.h"

#include "cli_case.h"
#include "context_fixture.h"

enum { SKIPPED = 77 };

static void write_job(data_case *c)
{
    ht_text text = {0};
    for (int i = 0; i < 400; i++) ht_text_add(&text, "the %d of %d; ", i * 7 % 31, i % 13);
    data_case_text(c, "text.txt", text.data);
    ht_text_free(&text);
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16, \"dropout\": 0.1},\n"
        " \"data\": {\"format\": \"text\", \"train\": \"text.txt\", \"tokenizer\": \"byte\", \"length\": 12},\n"
        " \"train\": {\"steps\": 6, \"batch\": 2, \"accumulate\": 2, \"lr\": 0.01, \"schedule\": \"constant\", "
        "\"snapshot_every\": 3,\n"
        "  \"output\": \"run\"}}");
}

/* The losses of two runs, side by side, and how many differ by more than a thousandth of themselves. */
#define COMPARE                                                                                                        \
    "losses() { grep '\"kind\": \"step\"' $1/metrics.jsonl | grep -o '\"loss\": [0-9.]*'; }; "                         \
    "losses cpu > a; losses gpu > b; paste a b | awk '{ d = $2 - $4; if (d < 0) d = -d; if (d > 0.001 * $2) bad++; "   \
    "n++ } "                                                                                                           \
    "END { print n, bad + 0 }'"

static void cuda__losses_are_those_of_the_cpu(void **state)
{
    static const char *const precisions[] = {
        "fp32",
        "fp64",
        "fp16",
        "bf16",
        "bf16 --set halftone.head_chunks=3",
        "bf16 --set halftone.fp8.recipe=delayed --set data.length=16",
        "bf16 --set halftone.fp8.recipe=current --set data.length=16",
    };
    data_case *c = *state;
    write_job(c);
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        char line[1024];
        snprintf(
            line, sizeof line,
            "set -e; rm -rf cpu gpu; \"$H\" train job.json --set train.precision=%s --set train.output=cpu > log 2>&1; "
            "\"$H\" train job.json --set train.precision=%s --set train.output=gpu --device cuda >> log 2>&1; " COMPARE,
            precisions[i], precisions[i]);
        expect(c, line, 0, "6 0\n");
    }
}

static void cuda__a_profile_times_instructions_by_events(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(
        c,
        "\"$H\" profile job.json --device cuda --steps 2 --trace t.json > text && "
        "grep -c 'launch by launch, each timed by events' text && grep -c '\"ph\"' t.json | awk '{ print ($1 > 20) }'",
        0, "1\n1\n");
    /* Every instruction has a time. */
    expect(
        c,
        "\"$H\" profile job.json --device cuda --steps 2 --json | grep -o '\"runs\": [0-9.e-]*, \"ms\": [0-9.e-]*' | "
        "awk '{ n++; if ($4 > 0) timed++ } END { print (n > 20), n == timed }'",
        0, "1 1\n");
}

static void cuda__a_rerun_and_a_resume_have_the_same_bits(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c,
           "set -e; rm -rf a b; \"$H\" train job.json --device cuda --set train.output=a > log 2>&1; "
           "\"$H\" train job.json --device cuda --set train.output=b --set train.steps=3 >> log 2>&1; "
           "\"$H\" train job.json --device cuda --set train.output=b --resume >> log 2>&1; "
           "for f in weights optimizer; do cmp a/snapshots/step-*6/$f.safetensors b/snapshots/step-*6/$f.safetensors; "
           "done; echo same",
           0, "same\n");
}

/* Recorded from the second step on, or launched one by one. */
static void cuda__graphs_have_the_bits_of_single_launches(void **state)
{
    static const char *const precisions[] = {"fp32", "bf16", "fp16 --set train.loss_scale=dynamic"};
    data_case *c = *state;
    write_job(c);
    for (size_t i = 0; i < sizeof precisions / sizeof precisions[0]; i++) {
        char line[1024];
        snprintf(
            line, sizeof line,
            "set -e; rm -rf run-true run-false; for graphs in true false; do \"$H\" train job.json --device cuda "
            "--set train.precision=%s --set halftone.cuda_graphs=$graphs --set train.output=run-$graphs > log 2>&1; "
            "done; for f in weights optimizer; do cmp run-true/snapshots/step-*6/$f.safetensors "
            "run-false/snapshots/step-*6/$f.safetensors; done; echo same",
            precisions[i]);
        expect(c, line, 0, "same\n");
    }
}

/* Every value of the first step. */
static void cuda__values_differ_little_from_those_of_the_cpu(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" diff job.json --axis halftone.device=cpu,cuda --tolerance 1e-4 --json", 0,
           "\"first_beyond\": null");
}

/* Ranks with a GPU each, in every ZeRO stage and along every axis: the losses of one processor. */
static void cuda__ranks_have_the_losses_of_one_processor(void **state)
{
    data_case *c = *state;
    if (!getenv("HALFTONE_EMULATED") && ht_cuda_device_count() < 2) skip();
    write_job(c);
    expect(c, "\"$H\" train job.json --set train.batch=4 --device cpu --set train.output=cpu", 0, "step 6 of 6");
    for (int stage = 0; stage < 4; stage++) {
        char line[1024];
        snprintf(line, sizeof line,
                 "set -e; export HALFTONE_EMULATED_GPUS=2; rm -rf gpu; "
                 "\"$H\" train job.json --set train.batch=4 --device cuda --ranks 2 --set "
                 "train.output=gpu --set engine.zero_optimization.stage=%d > log 2>&1; " COMPARE,
                 stage);
        expect(c, line, 0, "6 0\n");
    }
    /* Ranks that share layers, and those that are stages, of every rank's graph. */
    static const char *const axes[] = {
        "--ranks 2 --set halftone.parallel.tensor=2 --set halftone.parallel.sequence=true",
        "--ranks 4 --set halftone.parallel.tensor=2 --set engine.zero_optimization.stage=3",
        "--ranks 2 --set halftone.parallel.pipeline=2 --set train.accumulate=4",
        "--ranks 4 --set halftone.parallel.pipeline=2 --set halftone.parallel.tensor=2",
    };
    expect(
        c,
        "\"$H\" train job.json --force --set model.n_layer=2 --set train.batch=4 --device cpu --set train.output=cpu",
        0, "step 6 of 6");
    for (size_t i = 0; i < sizeof axes / sizeof axes[0]; i++) {
        char line[1024];
        snprintf(line, sizeof line,
                 "set -e; export HALFTONE_EMULATED_GPUS=4; rm -rf gpu; "
                 "\"$H\" train job.json --set model.n_layer=2 --set train.batch=4 --device cuda --set "
                 "train.output=gpu %s > log 2>&1; " COMPARE,
                 axes[i]);
        if (getenv("HALFTONE_EMULATED") || ht_cuda_device_count() >= 4) expect(c, line, 0, "6 0\n");
    }
    expect(
        c,
        "\"$H\" train job.json --force --set train.batch=180 --set train.micro_batch=1 --device cuda --ranks 90 --set "
        "train.output=gpu",
        2, "every rank needs a GPU of its own: 90 ranks are here, and");
}

/* The memory of a machine is shared by its ranks, that of a GPU is one rank's. */
static void cuda__a_rank_has_the_memory_of_its_gpu(void **state)
{
    data_case *c = *state;
    if (!getenv("HALFTONE_EMULATED")) skip();
    write_job(c);
    expect(c,
           "export HALFTONE_EMULATED_GPUS=2; train() { \"$H\" train job.json --set train.batch=4 --set train.steps=1 "
           "--device cuda --ranks 2 2>&1; }; "
           "export HALFTONE_EMULATED_BYTES=1; bytes=$(train | grep -o 'the plan takes [0-9]*' | tr -dc '0-9\\n' | head "
           "-n 1); "
           "export HALFTONE_EMULATED_BYTES=$((bytes * 3 / 2)); echo $bytes bytes; train",
           0, "step 1 of 1");
}

/* What forward keeps is copied to the host and back; on streams of its own, and the same bits. */
static void cuda__activations_in_host_memory_have_the_same_bits(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c,
           "set -e; rm -rf a b; \"$H\" train job.json --device cuda --set model.n_layer=3 --set train.output=a > log "
           "2>&1; "
           "\"$H\" train job.json --device cuda --set model.n_layer=3 --set train.output=b --set "
           "halftone.offload_activations=host --set halftone.offload_activation_bytes=64 >> log 2>&1; "
           "grep -q 'not recorded as graphs.*: micro_first' log; "
           "cmp a/snapshots/step-00000006/weights.safetensors b/snapshots/step-00000006/weights.safetensors; echo same",
           0, "same\n");
}

/* Moments, masters and gradients in host memory: the update and the norm are computed by the processor. A part of the
 * moments stays. */
static void cuda__state_in_host_memory_has_the_losses_of_the_processor(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c,
           "set -e; O='--set train.batch=4 --set train.accumulate=2 --set train.precision=bf16'; "
           "\"$H\" train job.json $O --set train.output=cpu > log 2>&1; "
           "\"$H\" train job.json $O --device cuda --set train.output=gpu "
           "--set engine.zero_optimization.offload_optimizer.device=cpu "
           "--set engine.zero_optimization.offload_optimizer.ratio=0.5 "
           "--set engine.zero_optimization.sub_group_size=512 --set halftone.offload_gradients=host >> log 2>&1; "
           "grep -q 'gradients lie in host memory; ' log; " COMPARE,
           0, "6 0\n");
}

static void cuda__runs_change_devices_between_starts(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c,
           "set -e; \"$H\" train job.json --set train.output=cpu > log 2>&1; "
           "\"$H\" train job.json --device cuda --set train.output=gpu --set train.steps=3 >> log 2>&1; "
           "\"$H\" train job.json --set train.output=gpu --resume >> log 2>&1; " COMPARE,
           0, "6 0\n");
    expect(c,
           "set -e; rm -rf gpu; train() { \"$H\" train job.json --device $1 --set train.output=gpu --set "
           "train.steps=$2 $3 >> log 2>&1; }; train cuda 2; train cpu 4 --resume; train cuda 6 --resume; " COMPARE,
           0, "6 0\n");
    expect(c, "\"$H\" eval gpu --device cuda --json | grep -c '\"loss\": '", 0, "1\n");
}

/* GPUs by number, as CUDA_VISIBLE_DEVICES leaves them; only the emulator has as many as a test wants. */
static void cuda__gpus_have_numbers(void **state)
{
    data_case *c = *state;
    if (!getenv("HALFTONE_EMULATED")) skip();
    write_job(c);
    expect(c,
           "set -e; export HALFTONE_EMULATED_GPUS=3; rm -rf a b; "
           "\"$H\" train job.json --device cuda --set train.output=a > log 2>&1; "
           "\"$H\" train job.json --device cuda:1 --set train.output=b --set train.steps=3 >> log 2>&1; "
           "CUDA_VISIBLE_DEVICES=2 \"$H\" train job.json --set train.output=b --resume >> log 2>&1; "
           "cmp a/snapshots/step-*6/weights.safetensors b/snapshots/step-*6/weights.safetensors; echo same",
           0, "same\n");
    expect(c, "HALFTONE_EMULATED_GPUS=3 \"$H\" probe --describe --device cuda:2 | head -3", 0,
           "\"name\": \"emulated GPU 2\",\n  \"device\": \"cuda\"");
    expect(c, "HALFTONE_EMULATED_GPUS=3 CUDA_VISIBLE_DEVICES=2,0 \"$H\" probe --describe --device cuda:1 | head -2", 0,
           "\"name\": \"emulated GPU\"");
    expect(c, "HALFTONE_EMULATED_GPUS=3 \"$H\" explain job.json --device cuda:2 | head -1", 0,
           "kernels for device cuda:2\n");
    expect(c, "HALFTONE_EMULATED_GPUS=3 \"$H\" check job.json --device cuda:2 | grep device", 0, "cuda:2");
}

static void cuda__a_number_that_is_not_there_ends_with_status_2(void **state)
{
    static const char *const commands[] = {"train job.json", "check job.json", "explain job.json", "probe --describe"};
    data_case *c = *state;
    char line[512];
    if (!getenv("HALFTONE_EMULATED")) skip();
    write_job(c);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        snprintf(line, sizeof line, "HALFTONE_EMULATED_GPUS=2 \"$H\" %s --device cuda:2", commands[i]);
        expect(c, line, 2, "there is no GPU 2: the driver sees 2\n");
        snprintf(line, sizeof line, "HALFTONE_EMULATED_GPUS=2 CUDA_VISIBLE_DEVICES=1 \"$H\" %s --device cuda:1",
                 commands[i]);
        expect(c, line, 2, "there is no GPU 1: the driver sees 1; CUDA_VISIBLE_DEVICES is \"1\"\n");
    }
    expect(c, "CUDA_VISIBLE_DEVICES= \"$H\" train job.json --device cuda", 2, "there is no GPU 0: the driver sees 0");
    expect(c, "CUDA_VISIBLE_DEVICES= \"$H\" train job.json --set train.steps=1", 0, "step 1 ");
    expect(c, "\"$H\" train job.json --device cuda:x", 2,
           "--device takes auto, cpu, cuda, cuda:N or fake, not 'cuda:x'");
    expect(c, "\"$H\" train job.json --set halftone.device=cpu:1", 2, "one of auto, cpu, fake, cuda, cuda:N");
}

/* With an LSTM and a decoder; what it has learnt in a step is nothing. */
static void cuda__the_demo_runs_there(void **state)
{
    data_case *c = *state;
    expect(c, "LC_ALL=C \"$H\" demo --single --steps 1 --device cuda > said && cat said", 0, "parameters, on a GPU\n");
    expect(c, "cat said", 0, " of 396 sentences are exactly right");
}

/* From a file of PyTorch's, with frozen layers and groups: the first of the losses that PyTorch had. */
static void cuda__fine_tuning_has_the_curve_of_pytorch(void **state)
{
    data_case *c = *state;
    expect(c,
           "set -e; cp -r '" HT_TEST_DIR "/reference/fine_tuning/.' .; "
           "\"$H\" train from_torch.json --device cuda --set train.steps=12 > log 2>&1; mv tuned gpu; "
           "losses() { grep '\"kind\": \"step\"' gpu/metrics.jsonl | grep -o '\"loss\": [0-9.]*'; }; "
           "losses | paste - from_torch.txt | awk 'NF == 3 { d = $2 - $3; if (d < 0) d = -d; if (d > 0.01 * $3) bad++; "
           "n++ } "
           "END { print n, bad + 0 }'",
           0, "12 0\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(cuda__losses_are_those_of_the_cpu),
        CASE(cuda__a_profile_times_instructions_by_events),
        CASE(cuda__a_rerun_and_a_resume_have_the_same_bits),
        CASE(cuda__graphs_have_the_bits_of_single_launches),
        CASE(cuda__values_differ_little_from_those_of_the_cpu),
        CASE(cuda__ranks_have_the_losses_of_one_processor),
        CASE(cuda__a_rank_has_the_memory_of_its_gpu),
        CASE(cuda__activations_in_host_memory_have_the_same_bits),
        CASE(cuda__state_in_host_memory_has_the_losses_of_the_processor),
        CASE(cuda__runs_change_devices_between_starts),
        CASE(cuda__gpus_have_numbers),
        CASE(cuda__a_number_that_is_not_there_ends_with_status_2),
        CASE(cuda__the_demo_runs_there),
        CASE(cuda__fine_tuning_has_the_curve_of_pytorch),
    };
    ht_device *device;
    if (ht_device_get(&device, context_shared(), "cuda") != HT_OK) {
        printf("skipped: %s\n", ht_context_message(context_shared()));
        return SKIPPED;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
