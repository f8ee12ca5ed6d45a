/* What examples/ranks/ shows works: the job on ranks, the table of scaling, the scripts for Slurm with a Slurm of two
 * lines. What the processes of all example jobs hold. And the recipes of examples/compress. */
#include "cli_case.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* shadow memory takes more than any limit */
#else
enum { SANITIZED = 0 };
#endif

#define EXAMPLE HT_TEST_DIR "/../examples/ranks/"
#define THERE   "here=$PWD; cd " EXAMPLE " && "

static void example__trains_on_two_ranks(void **state)
{
    data_case *c = *state;
    expect(c,
           THERE
           "\"$H\" train job.json --ranks 2 --set train.steps=2 --set train.eval_batches=1 --set model.n_layer=1 --set "
           "train.output=$here/run",
           0, "2 steps");
}

static void example__has_a_table_of_scaling(void **state)
{
    data_case *c = *state;
    expect(c,
           THERE "HALFTONE=\"$H\" ./scaling -n '1 2' -s 5 job.json --set model.n_layer=1 --set train.eval_batches=1 | "
                 "grep -c '^| [12] | 16 | [0-9.]* | [0-9.]* | [0-9]* % | "
                 "\\(16\\|32\\) | [0-9.]* | [0-9]* % |$'",
           0, "2\n");
    expect(c, THERE "HALFTONE=\"$H\" ./scaling missing.json", 1, "missing.json");
}

/* `srun` ends as $ENDS says, `scontrol` tells what it was asked for. */
static void slurm(const data_case *c, const char *script, int ends, int status, const char *text)
{
    char line[1024];
    snprintf(line, sizeof line,
             "mkdir -p bin; printf '#!/bin/sh\\necho \"srun $*\"\\nexit %d\\n' > bin/srun; "
             "printf '#!/bin/sh\\necho \"scontrol $*\"\\n' > bin/scontrol; chmod +x bin/*; "
             "PATH=$PWD/bin:$PATH SLURM_JOB_ID=77 bash " EXAMPLE "%s job.json --set train.lr=1e-3",
             ends, script);
    expect(c, line, status, text);
}

static void example__puts_a_stopped_job_into_the_queue_again(void **state)
{
    data_case *c = *state;
    static const char *const scripts[] = {"train.slurm", "train-gpus.slurm"};
    for (int i = 0; i < 2; i++) {
        slurm(c, scripts[i], 3, 0, "scontrol requeue 77");
        slurm(c, scripts[i], 0, 0, "halftone train job.json --resume --set train.lr=1e-3");
        slurm(c, scripts[i], 1, 1, "srun");
    }
    slurm(c, scripts[1], 0, 0, "--set halftone.device=cuda");
    expect(c, "bash " EXAMPLE "train.slurm", 1, "usage: sbatch train.slurm JOB");
}

/* A copy of examples/ with small files in place of the data of its jobs. */
#define SMALL_FILES                                                                                                    \
    "cp -r " HT_TEST_DIR "/../examples .; mkdir docs; "                                                                \
    "for i in $(seq 3000); do echo \"the $((i % 97)) of $((i % 89))\"; done > docs/page.md; cd examples; "             \
    "cp ../docs/page.md compress/tinyshakespeare.txt; "                                                                \
    "awk '{ print $0 \"\\tle \" $2 \" de \" $4 }' ../docs/page.md | gzip > lstm-en-fr/pairs.tsv.gz; "                  \
    "cp lstm-en-fr/pairs.tsv.gz compress/tatoeba-2017.tsv.gz; for part in train t10k; do "                             \
    "{ printf '\\000\\000\\010\\003\\000\\000\\001\\000\\000\\000\\000\\034\\000\\000\\000\\034'; "                    \
    "head -c 200704 /dev/zero; } | gzip > compress/$part-images-idx3-ubyte.gz; "                                       \
    "{ printf '\\000\\000\\010\\001\\000\\000\\001\\000'; "                                                            \
    "for i in $(seq 26); do printf '\\000\\001\\002\\003\\004\\005\\006\\007\\010\\011'; done | head -c 256; } | "     \
    "gzip > compress/$part-labels-idx1-ubyte.gz; done; "

/* A job of that copy, as its README runs it, but for two steps. What the process held at most, without what its plan
 * and the lines for loader, staging and records have in its memory, is at most 64 MiB. Mapped files are not taken off. The
 * plan is as large as `halftone plan` says before. */
static void expect_small(const data_case *c, const char *job, const char *options)
{
    char line[3072];
    snprintf(
        line, sizeof line,
        "here=$PWD; rm -rf run; job=%s; echo $job >> tried; cd examples/${job%%/*}; "
        "set -- ${job#*/} --set train.steps=2 --set train.eval_batches=1 --set train.output=$here/run %s; "
        "planned=$(\"$H\" plan \"$@\" --quick --json | grep -o '\"plan_bytes\": [0-9]*' | head -n 1 | tr -dc 0-9); "
        "\"$H\" train \"$@\" > $here/said 2>&1 || { cat $here/said; exit 1; }; "
        "cd $here; tail -n 1 run/metrics.jsonl | tr -d '{}\" ' | sed 's/reserve://' | tr , '\\n' | tr : ' ' | "
        "awk -v planned=\"$planned\" '"
        "{v[$1] = $2} END {beyond = v[\"process_peak_bytes\"] - v[\"memory_bytes\"] - v[\"loader\"] - "
        "v[\"staging\"] - v[\"records\"]; print (v[\"memory_bytes\"] > 0 && v[\"reserve_bytes\"] > 0 && v[\"loader\"] "
        "> 0 && v[\"process_peak_bytes\"] > v[\"memory_bytes\"] && v[\"plan_bytes\"] == planned && "
        "beyond <= 64 * 1048576) ? \"small\" : \"large\", beyond / 1048576, \"MiB beyond\", planned, \"planned\"}'",
        job, options);
    expect(c, line, 0, "small");
}

#define DISK                                                                                                           \
    "--set halftone.disk_folder=$here --set train.precision=bf16 --set halftone.recompute.policy=all "                 \
    "--set engine.zero_optimization.offload_optimizer.device=nvme "

static void example__holds_little_beyond_its_plan(void **state)
{
    data_case *c = *state;
    if (SANITIZED) skip();
    expect(c, SMALL_FILES "true", 0, "");
    expect_small(c, "ranks/job.json", "");
    expect_small(c, "memory/job.json", "--set halftone.recompute.policy=all");
    expect_small(c, "memory/job.json", "--set halftone.recompute.budget=200MB");
    expect_small(c, "memory/job.json", "--set halftone.memory_limit=280MB --set train.precision=bf16");
    expect_small(c, "memory/job.json", "--set halftone.memory_limit=80MB " DISK);
    expect_small(c, "memory/job.json", "--set halftone.memory_limit=55MB --set halftone.offload_gradients=disk " DISK);
    expect_small(c, "compress/job.json", "");
    expect_small(c, "compress/lenet.json", "");
    expect_small(c, "compress/cnn.json", "--set train.init_from=null");
    expect_small(c, "compress/translator.json", "");
    /* Its layers are smaller here: what a process holds beyond its plan does not grow with them. */
    expect_small(c, "lstm-en-fr/job.json", "--set model.hidden=128");
    expect(c, "(cd examples; grep -l '\"model\"' */*.json) > jobs; sort -u tried | diff jobs - && echo all", 0,
           "all\n");
}

/* The recipes of examples/compress on a run of its job with a smaller model. */
static void example__recipes_make_runs(void **state)
{
    data_case *c = *state;
    static const char *const recipes[] = {"quantize", "ternary", "int4", "magnitude", "shrink", "distill"};
    expect(c, "for i in $(seq 2000); do echo \"the $((i % 97)) of $((i % 89))\"; done > tinyshakespeare.txt", 0, "");
    expect(c,
           "\"$H\" train " HT_TEST_DIR "/../examples/compress/job.json --set train.steps=5 --set model.n_embd=64 "
           "--set train.eval_every=0 --set data.length=16 --set train.batch=4",
           0, "");
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        char line[512];
        snprintf(line, sizeof line,
                 "rm -rf out && \"$H\" compress base " HT_TEST_DIR "/../examples/compress/%s.json -o out", recipes[i]);
        expect(c, line, 0, "parameters");
        expect(c, "\"$H\" eval out", 0, "loss");
    }
    /* No other file there is one: jobs have a model. */
    expect(c, "grep -L '\"model\"' " HT_TEST_DIR "/../examples/compress/*.json | wc -l", 0, "6\n");
}

/* Every job there is planned for a GPU; all kernels are rows of its device. */
static void example__every_job_has_a_plan_for_a_gpu(void **state)
{
    data_case *c = *state;
    expect(
        c,
        "set -e; " SMALL_FILES "for job in $(grep -l '\"model\"' */*.json); do cd ${job%/*}; "
        "\"$H\" explain ${job#*/} --target h200 --json > ../explained; cd ..; grep -q '\"device\": \"cuda\"' "
        "explained; "
        "grep -o '\"kernel\": \"[^\"]*\"' explained > kernels; if grep -v '[.]cuda\"' kernels; then echo $job; exit 1; "
        "fi; test $(wc -l < kernels) -gt 10; echo $job >> planned; done; wc -l < planned",
        0, "7\n");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(example__trains_on_two_ranks),
        CASE(example__has_a_table_of_scaling),
        CASE(example__puts_a_stopped_job_into_the_queue_again),
        CASE(example__holds_little_beyond_its_plan),
        CASE(example__recipes_make_runs),
        CASE(example__every_job_has_a_plan_for_a_gpu),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
