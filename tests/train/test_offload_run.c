/* Whole runs with offload: the same losses, snapshots and evaluations as without it; dropout, batchnorm, micro-batches
 * and skipped steps included. */
#include "run_case.h"

#define CUT                "--set train.batch=9 --set train.accumulate=3 "
#define ZERO               "--set engine.zero_optimization."
#define SMALL              ZERO "sub_group_size=512 " ZERO "stage3_param_persistence_threshold=64 "
#define OPTIMIZER(device)  ZERO "offload_optimizer.device=" device " "
#define PARAMS(device)     ZERO "offload_param.device=" device " "
#define ACTIVATIONS(space) "--set halftone.offload_activations=" space " --set halftone.offload_activation_bytes=64 "
#define GRADIENTS(space)   "--set halftone.offload_gradients=" space " "
#define FOLDER             "--set halftone.disk_folder=. "

/* Where things lie, how copies get there, and delays of these. */
static const char *const ways[][2] = {
    {"HALFTONE_DISK_SEED=1", FOLDER OPTIMIZER("nvme")},
    {"HALFTONE_DISK_SEED=2", FOLDER OPTIMIZER("nvme") PARAMS("nvme") ACTIVATIONS("disk")},
    {"HALFTONE_DISK_SEED=3", FOLDER OPTIMIZER("nvme") "--set engine.aio.overlap_events=false "},
    {"HALFTONE_DISK_SEED=4", FOLDER OPTIMIZER("nvme") PARAMS("nvme") "--set halftone.disk_engine=threads "},
    {"HALFTONE_FAKE_SEED=5", "--device fake " OPTIMIZER("cpu")},
    {"HALFTONE_FAKE_SEED=6", "--device fake " OPTIMIZER("cpu") PARAMS("cpu") ACTIVATIONS("host")},
    {"HALFTONE_FAKE_SEED=7 HALFTONE_DISK_SEED=7", "--device fake " FOLDER OPTIMIZER("nvme") PARAMS("nvme")},
    {"HALFTONE_DISK_SEED=8", FOLDER OPTIMIZER("nvme") ACTIVATIONS("disk") "--set halftone.recompute.policy=all " ZERO
                                                                          "offload_optimizer.buffer_count=7 "},
    {"HALFTONE_DISK_SEED=9", FOLDER GRADIENTS("disk")},
    {"HALFTONE_DISK_SEED=10", FOLDER OPTIMIZER("nvme") PARAMS("nvme") GRADIENTS("disk") ACTIVATIONS("disk")},
    {"HALFTONE_FAKE_SEED=11", "--device fake " OPTIMIZER("cpu") GRADIENTS("host")},
    {"HALFTONE_FAKE_SEED=12 HALFTONE_DISK_SEED=12", "--device fake " FOLDER OPTIMIZER("cpu") GRADIENTS("disk")},
};
enum { WAYS = sizeof ways / sizeof ways[0] };

static void offload__changes_no_bit_of_a_run(void **state)
{
    data_case *c = *state;
    char options[1024];
    for (int j = 0; j < RUN_JOBS; j++) {
        run_case_write(c, &run_jobs[j]);
        for (int m = run_is_long() ? 0 : j; m < (run_is_long() ? RUN_MODES : j + 1); m++) {
            snprintf(options, sizeof options, CUT "%s", run_modes[m]);
            run_train(c, "kept", "", options);
            for (int i = 0; i < WAYS; i++) {
                snprintf(options, sizeof options, CUT SMALL "%s %s", run_modes[m], ways[i][1]);
                run_train(c, "moved", ways[i][0], options);
                run_expect_same(c, "kept", "moved");
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(offload__changes_no_bit_of_a_run, data_case_begin, data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
