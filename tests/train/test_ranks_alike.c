/* What ranks hold alike stays alike: batchnorm over all of them, and replicas that are compared. */
#include "train/job.h" /* before run() of the tests, which its parameters would hide */

#include <math.h>

#include "rank_runs.h"
#include "tiny_data.h"

enum { STAGES = RANK_STAGES };

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

static void sync_batchnorm__goes_over_processes(void **state)
{
    data_case *c = *state;
    int steps = rank_wanted_steps();
    double alone[RANK_MOST_STEPS];
    tiny_images(c);
    rank_write_job(c, &resnet, steps);
    rank_train_alone(c, steps, "", alone);
    for (int ranks = 2; ranks <= 4; ranks += 2) rank_expect_processes(c, ranks, SYNC, alone, steps);
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

/* ---- replicas ---- */

static void replicas__that_are_alike_are_left_in_peace(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, 4);
    for (int stage = 0; stage <= STAGES; stage++) {
        char options[256];
        snprintf(options, sizeof options,
                 "--force --set halftone.check_replicas=2 --set train.precision=bf16 --set "
                 "engine.zero_optimization.stage=%d",
                 stage);
        rank_train(c, "run", 3, options);
    }
    rank_train(c, "run", 4, "--force --set halftone.check_replicas=1 --set halftone.parallel.tensor=2");
}

typedef struct fault {
    const char *folder, *tensor;
    const char *sets[4];
    size_t set_count;
    int rank, ranks;
    int64_t step; /* after which a bit of the tensor is turned */
} fault;

typedef struct faulty_rank {
    const fault *fault;
    ht_run *run;
    int rank;
} faulty_rank;

static void turn_bit(void *arg, const ht_step_report *report)
{
    const faulty_rank *r = arg;
    char bytes[1 << 16];
    const ht_slot *slot = ht_plan_slot(ht_run_session(r->run)->plan, r->fault->tensor);
    size_t size = slot ? (size_t)ht_type_bytes(&slot->type) : 0;
    if (r->rank != r->fault->rank || report->step != r->fault->step || !size || size > sizeof bytes) return;
    if (ht_session_read(ht_run_session(r->run), slot->name, bytes, size) != HT_OK) return;
    bytes[size / 2 + 2] ^= 0x40; /* of an f32: a fourth of its value or more */
    (void)ht_session_write(ht_run_session(r->run), slot->name, bytes, size);
}

static ht_status train_rank(void *arg, ht_comm *world, ht_context *messages)
{
    const fault *f = arg;
    faulty_rank own = {.fault = f, .rank = ht_comm_rank(world)};
    ht_block_keys blocks[HT_MOST_JOB_BLOCKS];
    ht_context_opts opts = HT_CONTEXT_OPTS;
    ht_context *ctx;
    ht_config *config = NULL;
    bool stopped;
    opts.threads = 1;
    if (ht_context_create(&ctx, &opts) != HT_OK) HT_FAIL(messages, HT_ENOMEM, "no context");
    char path[512];
    snprintf(path, sizeof path, "%s/job.json", f->folder);
    ht_config_request request = {.path = path,
                                 .blocks = blocks,
                                 .block_count = ht_job_blocks(blocks),
                                 .training = true,
                                 .ranks = f->ranks,
                                 .sets = f->sets,
                                 .set_count = f->set_count};
    ht_status status = ht_config_read(&config, ctx, &request);
    ht_run_request wanted = {.config = config,
                             .mode = HT_RUN_FORCE,
                             .data_folder = f->folder,
                             .comm = world,
                             .local_ranks = f->ranks,
                             .arg = &own,
                             .on_step = turn_bit};
    if (status == HT_OK) status = ht_run_open(&own.run, ctx, &wanted);
    if (status == HT_OK) status = ht_run_train(own.run, &stopped);
    if (status != HT_OK) ht_fail(messages, status, "%s", ht_context_message(ctx));
    if (own.run) (void)ht_run_close(own.run);
    ht_config_free(config);
    ht_context_free(ctx);
    return status;
}

static void expect_named(const data_case *c, fault f, const char *message)
{
    ht_context messages = {0};
    char output[600];
    f.folder = c->folder;
    snprintf(output, sizeof output, "train.output=%s/run", c->folder);
    f.sets[f.set_count++] = output;
    ht_status status = ht_thread_ranks_run(&messages, &(ht_thread_ranks_opts){.ranks = f.ranks}, train_rank, &f);
    assert_int_not_equal(status, HT_OK);
    if (!strstr(messages.message, message)) fail_msg("'%s', not '%s'", messages.message, message);
}

static void replicas__that_diverge_are_named(void **state)
{
    data_case *c = *state;
    tiny_text(c);
    rank_write_job(c, &rank_gpt2, 8);
    for (int stage = 0; stage < 3; stage++) { /* from stage 1 on the next update would gather it anew */
        char stage_set[64];
        snprintf(stage_set, sizeof stage_set, "engine.zero_optimization.stage=%d", stage);
        expect_named(c,
                     (fault){.tensor = "transformer.h.1.ln_1.weight",
                             .sets = {"halftone.check_replicas=3", stage_set},
                             .set_count = 2,
                             .rank = 1,
                             .ranks = 3,
                             .step = 3},
                     "after step 3 'transformer.h.1.ln_1.weight' of rank 1 is not that of rank 0: replicas have "
                     "diverged");
    }
    /* Along the tensor axis a norm is whole on both ranks. */
    expect_named(c,
                 (fault){.tensor = "transformer.ln_f.bias",
                         .sets = {"halftone.check_replicas=1", "halftone.parallel.tensor=2"},
                         .set_count = 2,
                         .rank = 1,
                         .ranks = 2,
                         .step = 2},
                 "'transformer.ln_f.bias' of rank 1 is not that of rank 0: replicas have diverged");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(sync_batchnorm__makes_the_steps_of_one_process),
        CASE(sync_batchnorm__goes_over_processes),
        CASE(sync_batchnorm__knows_micro_batches),
        CASE(sync_batchnorm__leaves_the_statistics_of_one_process),
        CASE(batchnorm__is_local_by_default),
        CASE(replicas__that_are_alike_are_left_in_peace),
        CASE(replicas__that_diverge_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
