/* What ranks hold alike stays alike: batchnorm over all of them, and replicas that are compared. */
#include <math.h>

#include "rank_runs.h"
#include "tiny_data.h"

static const rank_case resnet = {
    "resnet", "\"type\": \"resnet\", \"width\": 4, \"stem\": \"cifar\"",
    "\"format\": \"idx\", \"train\": \"train-images-idx3-ubyte\", \"validation_share\": 0.2", ""};
#define SYNC "--force --set halftone.sync_batchnorm=true "

/* ---- batchnorm ---- */

static void sync_batchnorm__makes_the_steps_of_one_process(void **state)
{
    data_case *c = *state;
    int steps = rank_wanted_steps();
    double alone[RANK_MOST_STEPS];
    tiny_images(c);
    rank_write_job(c, &resnet, steps);
    rank_train(c, "alone", 1, "--force");
    rank_read_numbers(c, "alone", "loss", steps, alone);
    for (int ranks = 2; ranks <= 4; ranks++) {
        char options[256];
        snprintf(options, sizeof options, SYNC "--set engine.zero_optimization.stage=%d", ranks - 2);
        rank_train(c, "several", ranks, options);
        rank_expect_same_steps(c, "resnet", "several", ranks, alone, steps);
    }
}

/* The micro-batches that ranks have at the same time are one of a process alone. */
static void sync_batchnorm__knows_micro_batches(void **state)
{
    data_case *c = *state;
    int steps = rank_wanted_steps();
    double alone[RANK_MOST_STEPS];
    tiny_images(c);
    rank_write_job(c, &resnet, steps);
    rank_train(c, "alone", 1, "--force --set train.accumulate=2");
    rank_read_numbers(c, "alone", "loss", steps, alone);
    rank_train(c, "several", 3, SYNC "--set train.accumulate=2");
    rank_expect_same_steps(c, "resnet", "several", 3, alone, steps);
}

/* Running statistics, too: what one process goes on with, and evaluates by. */
static void sync_batchnorm__leaves_the_statistics_of_one_process(void **state)
{
    data_case *c = *state;
    int status;
    tiny_images(c);
    rank_write_job(c, &resnet, 4);
    rank_train(c, "alone", 1, "--force");
    rank_train(c, "several", 2, SYNC);
    double loss[2];
    loss[0] = rank_number_after(run(c, "\"$H\" eval alone", &status), "loss ");
    loss[1] = rank_number_after(run(c, "\"$H\" eval several", &status), "loss ");
    rank_expect_near("eval", 2, 4, loss[1], loss[0], 1e-4);
    rank_train(c, "several", 1, "--resume --set train.steps=6");
}

/* Without it the statistics are those of each micro-batch: another training. */
static void batchnorm__is_local_by_default(void **state)
{
    data_case *c = *state;
    double alone, several;
    tiny_images(c);
    rank_write_job(c, &resnet, 1);
    rank_train(c, "alone", 1, "--force");
    rank_train(c, "several", 2, "--force");
    rank_read_numbers(c, "alone", "loss", 1, &alone);
    rank_read_numbers(c, "several", "loss", 1, &several);
    assert_true(fabs(alone - several) > 1e-6);
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(sync_batchnorm__makes_the_steps_of_one_process),       CASE(sync_batchnorm__knows_micro_batches),
        CASE(sync_batchnorm__leaves_the_statistics_of_one_process), CASE(batchnorm__is_local_by_default),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
