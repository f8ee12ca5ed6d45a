/* halftone train under mpirun when something goes wrong: a rank that is killed, hangs, has another config or is killed in the
 * middle of a snapshot; and a stop that is asked for. Open MPI and MPICH, where they are installed. */
#include <time.h>

#include "rank_runs.h"
#include "tiny_data.h"

#if defined(__SANITIZE_THREAD__)
enum { SEES_THREADS = 1 }; /* it knows nothing of what MPI libraries do among their own threads */
#else
enum { SEES_THREADS = 0 };
#endif

#if defined(__SANITIZE_ADDRESS__)
enum { SOON_S = 30 }; /* seconds; checked memory makes every end slower */
#else
enum { SOON_S = 10 };
#endif

enum { RANKS = 3, KILLS = 2, LONG_KILLS = 20 };

/* The flavour is the case's state behind its folder. */
typedef struct mpi_case {
    data_case *folder;
    const char *flavour;
} mpi_case;

static const char *flavour_at_hand;

static mpi_case begin(void **state)
{
    mpi_case c = {*state, flavour_at_hand};
    if (SEES_THREADS || !rank_has_mpi(c.folder, c.flavour)) skip();
    tiny_text(c.folder);
    rank_write_job(c.folder, &rank_gpt2, 1000000);
    return c;
}

/* Ranks in the background, each with its process in "pid.RANK"; then, once they have written a snapshot or ended, the line
 * `what`; then the shell waits for them. "status" is that of mpirun, "seconds" how long it went on after that line, "all"
 * since mpirun was started. */
static void run_and(const mpi_case *c, const char *environment, const char *options, const char *what)
{
    char line[4096];
    snprintf(line, sizeof line,
             "export H TERM=dumb; rm -f pid.* log status; touch mark; sleep 0.1; begin=$(date +%%s); ( %s %s sh -c "
             "'echo $$ > "
             "pid.${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; exec \"$H\" train "
             "job.json %s' > log 2>&1 < /dev/null; echo $? > status ) & job=$!; "
             "for i in $(seq 600); do find run/snapshots -maxdepth 1 -newer mark 2>/dev/null | grep -q '[0-9]$' && "
             "break; test -f status && "
             "break; sleep 0.1; done; "
             "from=$(date +%%s); %s; wait $job; echo $(($(date +%%s) - from)) > seconds; "
             "echo $(($(date +%%s) - begin)) > all; "
             "echo \"status $(cat status) after $(cat seconds) s\"; tail -n 40 log",
             environment, rank_mpirun(c->flavour, RANKS), options, what);
    expect(c->folder, line, 0, "status ");
}

static int number_in(const mpi_case *c, const char *file)
{
    char line[64];
    int status;
    snprintf(line, sizeof line, "cat %s", file);
    return atoi(run(c->folder, line, &status));
}

static void expect_end_by(const mpi_case *c, const char *clock, int within_s, const char *named)
{
    char line[256];
    int status;
    if (number_in(c, "status") == 0) fail_msg("%s: status 0: %s", c->flavour, run(c->folder, "tail log", &status));
    if (number_in(c, clock) > within_s)
        fail_msg("%s: it ended after %d s, not %d: %s", c->flavour, number_in(c, clock), within_s,
                 run(c->folder, "tail log", &status));
    snprintf(line, sizeof line, "grep -a -i '%s' log || { tail -n 30 log; exit 1; }", named);
    expect(c->folder, line, 0, "");
}

static void expect_end(const mpi_case *c, int within_s, const char *named)
{
    expect_end_by(c, "seconds", within_s, named);
}

/* Ranks that never begin, the start of the launcher included. */
static void expect_no_start(const mpi_case *c, const char *named)
{
    expect_end_by(c, "all", SOON_S, named);
}

/* Whole seconds; where the machine has little time for three ranks, one of them may take long. */
static int slowest_step_s(const mpi_case *c)
{
    expect(c->folder,
           "sed -n 's/.*\"kind\": \"step\".*\"step_ms\": \\([0-9.e+-]*\\).*/\\1/p' run/metrics.jsonl | sort -g | tail "
           "-n 1 | "
           "awk '{ print int($1 / 1000 + 0.999) }' > slowest; test -s slowest",
           0, "");
    return number_in(c, "slowest");
}

static void expect_whole_snapshot(const mpi_case *c)
{
    expect(c->folder, "\"$H\" eval run", 0, "loss");
}

static void a_killed_rank_ends_the_others(void **state)
{
    mpi_case c = begin(state);
    run_and(&c, "", "--set train.snapshot_every=5", "kill -KILL $(cat pid.1)");
    /* The launcher names it, or its process, of which ranks.json has the rank. MPICH's transport may crash on the others
     * before, when it reads memory of a process that is gone. */
    expect_end(&c, SOON_S, strcmp(c.flavour, "openmpi") == 0 ? "rank 1 " : "signal 9\\|rank 1\\|backtrace\\|libmpich");
    expect(c.folder, "grep -c \"\\\"rank\\\": 1, .*\\\"process\\\": $(cat pid.1),\" run/ranks.json", 0, "1\n");
    expect_whole_snapshot(&c);
}

static void a_hanging_rank_ends_the_others_and_is_named(void **state)
{
    mpi_case c = begin(state);
    run_and(&c, "HALFTONE_COMM_TIMEOUT_S=5", "--set train.snapshot_every=5", "kill -STOP $(cat pid.1)");
    expect_end(&c, 5 + SOON_S, "timeout after 5 s in .*: no answer from rank 1");
    expect_whole_snapshot(&c);
}

static void a_rank_with_another_config_is_named(void **state)
{
    mpi_case c = begin(state);
    run_and(&c, "", "$(test ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 2 && echo --set train.lr=2e-3)", ":");
    expect_no_start(&c, "ranks differ in config: rank 2");
}

/* The ranks that it would have as neighbours, and what it would compute on, follow from the config. */
static void a_rank_with_other_axes_is_named(void **state)
{
    mpi_case c = begin(state);
    run_and(&c, "", "$(test ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 2 && echo --set halftone.parallel.pipeline=3)", ":");
    expect_no_start(&c, "ranks differ in config: rank 2 has .*halftone.parallel.pipeline 3, where rank 0 has 1");
    run_and(&c, "", "$(test ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 1 && echo --device cuda)", ":");
    expect_no_start(&c, "ranks differ in config: rank 1 has halftone.device \"cuda\", where rank 0 has \"");
}

static void a_rank_that_resumes_alone_is_named(void **state)
{
    mpi_case c = begin(state);
    run_and(&c, "", "$(test ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 1 && echo --resume)", ":");
    expect_no_start(&c, "ranks differ in start: rank 1 has --resume, where rank 0 has a new run");
}

static void a_rank_with_a_wrong_config_says_so(void **state)
{
    mpi_case c = begin(state);
    run_and(&c, "", "$(test ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 2 && echo --set train.lr=fast)", ":");
    expect_no_start(&c, "rank 2: .*train.lr");
    assert_int_equal(number_in(&c, "status"), 2);
    run_and(&c, "", "--set train.lr=fast", ":");
    expect_no_start(&c, "train.lr");
    expect(c.folder, "grep -c train.lr log", 0, "1\n");
}

static void what_all_ranks_fail_of_is_told_once(void **state)
{
    mpi_case c = begin(state);
    run_and(&c, "", "--set data.train=missing.txt", ":");
    expect_no_start(&c, "missing.txt");
    expect(c.folder, "grep -c missing.txt log", 0, "1\n");
    run_and(&c, "", "--log-ranks 7", ":");
    expect_no_start(&c, "halftone: train: --log-ranks 7: there is no rank 7 of 3");
}

static void ranks_that_never_come_are_not_waited_for(void **state)
{
    mpi_case c = begin(state);
    char line[1024], again[1200];
    snprintf(line, sizeof line,
             "export H; HALFTONE_COMM_TIMEOUT_S=3 %s sh -c 'test ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 1 && exec sleep "
             "120; exec "
             "\"$H\" train job.json' 2>&1 </dev/null; test $? != 0",
             rank_mpirun(c.flavour, RANKS));
    expect(c.folder, line, 0, "halftone: train: timeout after 3 s: rank 1 of 3 has not come\n");
    snprintf(again, sizeof again, "( %s ) > log; grep -c 'timeout after' log", line);
    expect(c.folder, again, 0, "1\n");
}

/* Rank 1 hangs before the first step: its data is a pipe into which nobody writes. */
static void a_stop_while_a_run_is_opened_does_not_wait_long(void **state)
{
    enum { WAIT_S = 20 + 3 };
    mpi_case c = begin(state);
    char line[2048];
    if (!getenv("HALFTONE_LONG")) skip();
    expect(c.folder, "mkdir other && cp job.json other && mkfifo other/text.txt", 0, "");
    snprintf(line, sizeof line,
             "export H TERM=dumb; ( %s sh -c 'R=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}; echo $$ > pid.$R; test $R = 1 && "
             "cd other; exec \"$H\" train job.json' > log 2>&1 < /dev/null; echo $? > status ) & job=$!; "
             "for i in $(seq 600); do test -d run && break; sleep 0.1; done; sleep 1; "
             "from=$(date +%%s); kill -TERM $(cat pid.0); wait $job; echo $(($(date +%%s) - from)) > seconds",
             rank_mpirun(c.flavour, RANKS));
    expect(c.folder, line, 0, "");
    expect_end(&c, WAIT_S + SOON_S, "asked to stop, .*no answer from rank 1");
}

static void a_stop_never_waits_for_a_peer_that_hangs(void **state)
{
    mpi_case c = begin(state);
    run_and(&c, "", "--set train.snapshot_every=5",
            "kill -STOP $(cat pid.1); sleep 1; kill -TERM $(cat pid.0) $(cat pid.2)");
    expect_end(&c, SOON_S + 2 + 2 * slowest_step_s(&c), "asked to stop, .*no answer from rank 1");
    expect_whole_snapshot(&c);
}

static void a_stop_of_one_rank_is_a_snapshot_of_all(void **state)
{
    mpi_case c = begin(state);
    run_and(&c, "", "--set train.snapshot_every=5", "kill -TERM $(cat pid.1)");
    expect_end(&c, SOON_S, "stopped .* with a snapshot");
    assert_int_equal(number_in(&c, "status"), 3);
    expect_whole_snapshot(&c);
}

/* A snapshot after every step, in which all ranks take part: most of the time is spent there. */
static void a_kill_in_mid_save_leaves_a_whole_snapshot(void **state)
{
    mpi_case c = begin(state);
    int kills = getenv("HALFTONE_LONG") ? LONG_KILLS : KILLS;
    for (int i = 0; i < kills; i++) {
        char what[128];
        snprintf(what, sizeof what, "sleep 0.%03d; kill -KILL $(cat pid.%d)", rand() % 700, rand() % RANKS);
        run_and(&c, "", "--resume --set train.snapshot_every=1 --set model.n_embd=128" RANK_STAGE(2), what);
        expect_end(&c, SOON_S, "");
        expect_whole_snapshot(&c);
    }
    expect(c.folder,
           "S=$(ls run/snapshots | grep -v partial | sed 's/step-0*//' | sort -n | tail -1); \"$H\" train job.json "
           "--ranks 2 "
           "--resume --set model.n_embd=128 --set train.steps=$((S + 3))",
           0, "goes on after step");
}

#define FLAVOUR(name)                                                                                                  \
    static void openmpi__##name(void **state)                                                                          \
    {                                                                                                                  \
        flavour_at_hand = "openmpi";                                                                                   \
        name(state);                                                                                                   \
    }                                                                                                                  \
    static void mpich__##name(void **state)                                                                            \
    {                                                                                                                  \
        flavour_at_hand = "mpich";                                                                                     \
        name(state);                                                                                                   \
    }

/* They share nothing, so that the first process makes them, once. */
static void commands_of_one_process_are_made_once(void **state)
{
    mpi_case c = begin(state);
    char line[1024];
    rank_write_job(c.folder, &rank_gpt2, 4);
    rank_train(c.folder, "run", 1, "");
    snprintf(line, sizeof line, "%s \"$H\" eval run | grep -c '^loss'", rank_mpirun(c.flavour, 2));
    expect(c.folder, line, 0, "1\n");
    snprintf(line, sizeof line,
             "for c in check explain plan; do %s \"$H\" $c job.json > log; \"$H\" $c job.json > alone; "
             "test $(wc -l < log) = $(wc -l < alone) || { echo $c; exit 1; }; done",
             rank_mpirun(c.flavour, 2));
    expect(c.folder, line, 0, "");
    snprintf(line, sizeof line, "%s \"$H\" compare job.json --precision fp32,bf16 | grep -c '^fp32'",
             rank_mpirun(c.flavour, 2));
    expect(c.folder, line, 0, "2\n"); /* losses, and memory */
    snprintf(line, sizeof line, "%s \"$H\" demo --single --steps 2 -o demo >log && test -f demo/report.html",
             rank_mpirun(c.flavour, 2));
    expect(c.folder, line, 0, "");
}

/* Under Open MPI a rank's output is a pseudo-terminal. */
static void a_log_has_lines(void **state)
{
    mpi_case c = begin(state);
    char line[1024];
    snprintf(line, sizeof line,
             "TERM=xterm %s \"$H\" train job.json --log-ranks all --set train.steps=3 >log 2>&1 </dev/null; "
             "grep -c '^step ' log; grep -c \"$(printf '\\033')\" log",
             rank_mpirun(c.flavour, 2));
    expect(c.folder, line, 1, "3\n0\n");
    expect(c.folder, "grep '^halftone: rank 1 of 2, started by ' log", 0, " core");
    expect(c.folder, "grep '^  mpirun -n 2 .*halftone train job.json --resume' log", 0, "train.steps=5");
}

FLAVOUR(a_log_has_lines)
FLAVOUR(what_all_ranks_fail_of_is_told_once)
FLAVOUR(commands_of_one_process_are_made_once)
FLAVOUR(a_killed_rank_ends_the_others)
FLAVOUR(a_hanging_rank_ends_the_others_and_is_named)
FLAVOUR(a_rank_with_another_config_is_named)
FLAVOUR(ranks_that_never_come_are_not_waited_for)
FLAVOUR(a_rank_with_other_axes_is_named)
FLAVOUR(a_rank_that_resumes_alone_is_named)
FLAVOUR(a_rank_with_a_wrong_config_says_so)
FLAVOUR(a_stop_while_a_run_is_opened_does_not_wait_long)
FLAVOUR(a_stop_never_waits_for_a_peer_that_hangs)
FLAVOUR(a_stop_of_one_rank_is_a_snapshot_of_all)
FLAVOUR(a_kill_in_mid_save_leaves_a_whole_snapshot)

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)
#define BOTH(name) CASE(openmpi__##name), CASE(mpich__##name)

int main(void)
{
    srand((unsigned)time(NULL));
    const struct CMUnitTest tests[] = {
        BOTH(a_log_has_lines),
        BOTH(what_all_ranks_fail_of_is_told_once),
        BOTH(commands_of_one_process_are_made_once),
        BOTH(a_killed_rank_ends_the_others),
        BOTH(a_hanging_rank_ends_the_others_and_is_named),
        BOTH(a_rank_with_another_config_is_named),
        BOTH(ranks_that_never_come_are_not_waited_for),
        BOTH(a_rank_with_other_axes_is_named),
        BOTH(a_rank_that_resumes_alone_is_named),
        BOTH(a_rank_with_a_wrong_config_says_so),
        BOTH(a_stop_while_a_run_is_opened_does_not_wait_long),
        BOTH(a_stop_never_waits_for_a_peer_that_hangs),
        BOTH(a_stop_of_one_rank_is_a_snapshot_of_all),
        BOTH(a_kill_in_mid_save_leaves_a_whole_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
