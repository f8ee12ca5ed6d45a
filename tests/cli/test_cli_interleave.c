/* Processes that train, resume, remove, evaluate and are killed at random in one folder: no record is lost or comes
 * twice, and no live run is removed. */
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "run_process.h"

enum { TURNS = 20, LONG_TURNS = 200, PROCESSES = 4, STOPPED = 3 };

typedef struct random_draws {
    ht_stream rng;
    uint64_t drawn;
} random_draws;

static double uniform(random_draws *d)
{
    return ht_stream_uniform(&d->rng, d->drawn++);
}

static int below(random_draws *d, int count)
{
    return (int)(uniform(d) * count) % count;
}

/* ---- what may be said of a folder at any time when nobody is in it ---- */

/* Steps from 1 on, one after the other; a line that a kill cut short may stand at the end. */
static void expect_whole_records(const data_case *c)
{
    char line[4096];
    int expected = 1, number = 0;
    FILE *file = fopen(data_case_path(c, "run/metrics.jsonl"), "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        number++;
        size_t length = strlen(line);
        bool last = length == 0 || line[length - 1] != '\n';
        int step;
        if (last && fgetc(file) == EOF && feof(file)) break;
        if (last || line[0] != '{' || line[length - 2] != '}') fail_msg("line %d of metrics.jsonl: %s", number, line);
        if (sscanf(line, "{\"kind\": \"step\", \"step\": %d,", &step) != 1) continue;
        if (step != expected) fail_msg("line %d of metrics.jsonl: step %d, not %d", number, step, expected);
        expected++;
    }
    fclose(file);
}

/* ---- what happens there ---- */

typedef struct command {
    const char *arguments;
    bool trains;
} command;

static const command commands[] = {
    {"train job.json", true},
    {"train job.json --resume", true},
    {"train job.json --resume", true},
    {"train job.json --force", true},
    {"eval run", false},
};

/* Processes begin one after the other; some are killed. What ends by itself has made all steps, was stopped, or was
 * refused: exit status 1 would be that of a run whose folder went. */
static void interleave(const data_case *c, random_draws *d, double seconds)
{
    run_process list[PROCESSES];
    const command *which[PROCESSES];
    int killed[PROCESSES] = {0};
    for (int i = 0; i < PROCESSES; i++) {
        which[i] = &commands[below(d, (int)(sizeof commands / sizeof commands[0]))];
        list[i] = run_begin(c, 1, which[i]->arguments);
        run_sleep(uniform(d) * seconds / 2);
        int other = below(d, i + 1), kind = below(d, 6);
        if (kind > 1 || killed[other]) continue;
        killed[other] = kind == 0 ? SIGKILL : SIGTERM;
        kill(list[other].process, killed[other]);
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status = run_end(&list[i]);
        bool fine = status == 0 || status == 2 || (killed[i] && status == -killed[i]) ||
                    (killed[i] == SIGTERM && status == STOPPED) || (!which[i]->trains && status == 1);
        if (fine) continue;
        int ignored;
        fprintf(stderr, "%s\n", run(c, "tail -n 20 notes", &ignored)); /* longer than a message may be */
        fail_msg("%s ended with %d", which[i]->arguments, status);
    }
    expect_whole_records(c);
}

static void interleave__loses_and_doubles_nothing(void **state)
{
    data_case *c = *state;
    int turns = getenv("HALFTONE_LONG") ? LONG_TURNS : TURNS;
    random_draws d = {.rng = {.seed = (uint64_t)getpid(), .step = (uint64_t)time(NULL)}};
    struct timespec start, now;
    print_message("random numbers of %d, %lld\n", (int)getpid(), (long long)d.rng.step);
    run_write_job(c);
    clock_gettime(CLOCK_MONOTONIC, &start);
    expect(c, "\"$H\" train job.json --set train.output=whole", 0, "step 60 of 60");
    clock_gettime(CLOCK_MONOTONIC, &now);
    double seconds = (double)(now.tv_sec - start.tv_sec) + 1e-9 * (double)(now.tv_nsec - start.tv_nsec);
    for (int turn = 0; turn < turns; turn++) {
        interleave(c, &d, seconds);
        if (below(&d, 4) != 0) continue;
        /* Whatever happened before, the run comes to the same end. */
        expect(c, "\"$H\" train job.json --resume", 0, "");
        run_expect_the_same(c);
        expect(c, "ls run", 0, "snapshots");
        if (below(&d, 2) == 0) expect(c, "rm -rf run notes", 0, "");
    }
    expect(c, "\"$H\" train job.json --resume", 0, "");
    run_expect_the_same(c);
    expect(c, "test ! -e run/lock", 0, "");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(interleave__loses_and_doubles_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
