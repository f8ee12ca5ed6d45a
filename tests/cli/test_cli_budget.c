/* halftone train with three times the state that its memory holds: optimiser, gradients and parameters on a disk, in an
 * address space that the same job without a disk does not fit into. */
#include "run_process.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { SANITIZED = 1 }; /* shadow memory takes more than any limit */
#else
enum { SANITIZED = 0 };
#endif

/* 25 million parameters: 450 MB of state, of which the plan may have a third in memory. */
#define JOB                                                                                                            \
    "train job.json --set train.output=run --set halftone.memory_limit=130MB --set train.precision=bf16 "              \
    "--set engine.gradient_clipping=1 "
#define DISK                                                                                                           \
    "--set halftone.disk_folder=. --set engine.zero_optimization.offload_optimizer.device=nvme "                       \
    "--set engine.zero_optimization.offload_param.device=nvme --set halftone.offload_gradients=disk "

static void write_job(data_case *c)
{
    data_case_text(c, "job.json",
                   "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 8, \"n_head\": 4, \"n_embd\": 512},"
                   " \"data\": {\"format\": \"text\", \"train\": \"text\", \"tokenizer\": \"byte\", \"length\": 64},"
                   " \"train\": {\"steps\": 2, \"batch\": 2, \"accumulate\": 2, \"lr\": 1e-3, \"eval_every\": 1,"
                   " \"eval_batches\": 1, \"snapshot_every\": 1, \"log_every\": 1}}");
    expect(c, "seq 1 9000 > text", 0, "");
}

static void state_of_three_budgets__trains_within_budget_and_reserve(void **state)
{
    data_case *c = *state;
    if (SANITIZED) skip();
    write_job(c);
    expect(c, "ulimit -v 450000; \"$H\" " JOB "--set halftone.memory_limit=2GB", 1,
           "could not be had; this takes less: halftone.recompute.policy=cheap (");
    expect(c, "ulimit -v 450000; \"$H\" " JOB "--set halftone.memory_limit=2GB", 1, "The peak is at instruction ");
    expect(c, "rm -rf run; ulimit -v 300000; \"$H\" " JOB DISK, 0, "the process held");
    expect(c,
           "tail -n 1 run/metrics.jsonl | tr -d '{}\" ' | tr , '\\n' | tr : ' ' | awk '{v[$1] = $2} END {"
           "held = v[\"process_peak_bytes\"]; on_disk = v[\"plan_bytes\"] - held; "
           "print (held <= 130e6 + v[\"reserve_bytes\"] && on_disk >= 3 * 130e6) ? \"within\" : \"beyond\", held}'",
           0, "within");
    expect(c, "ls -d run/snapshots/step-*2", 0, "step-00000002");
}

/* The same bits as with everything in memory. */
static void state_of_three_budgets__has_the_bits_of_a_run_in_memory(void **state)
{
    data_case *c = *state;
    write_job(c);
    expect(c, "\"$H\" " JOB DISK "&& mv run moved && \"$H\" " JOB "--set halftone.memory_limit=2GB", 0, "");
    expect(c,
           "for f in weights optimizer; do cmp moved/snapshots/step-00000002/$f.safetensors "
           "run/snapshots/step-00000002/$f.safetensors || exit 1; done; "
           "for d in moved run; do grep -o '\"\\(loss\\|grad_norm\\)\":[^,]*' $d/metrics.jsonl > $d.losses; done; "
           "cmp moved.losses run.losses && grep -c loss run.losses",
           0, "4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(state_of_three_budgets__trains_within_budget_and_reserve, data_case_begin,
                                        data_case_end),
        cmocka_unit_test_setup_teardown(state_of_three_budgets__has_the_bits_of_a_run_in_memory, data_case_begin,
                                        data_case_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
