/* What examples/ranks/ shows works: the job on ranks, the table of scaling, the scripts for Slurm with a Slurm of two lines. */
#include "cli_case.h"

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

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(example__trains_on_two_ranks),
        CASE(example__has_a_table_of_scaling),
        CASE(example__puts_a_stopped_job_into_the_queue_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
