#include "rank_runs.h"

#include <math.h>

const rank_case rank_gpt2 = {"gpt2", RANK_GPT2, RANK_TEXT, ""};

int rank_wanted_steps(void)
{
    return getenv("HALFTONE_LONG") ? RANK_LONG_STEPS : RANK_STEPS;
}

void rank_write_job(data_case *c, const rank_case *t, int steps)
{
    char job[2048];
    snprintf(job, sizeof job,
             "{\"model\": {%s}, \"data\": {%s}, \"train\": {\"batch\": 12, \"steps\": %d, \"lr\": 1e-3, \"clip\": 1.0, "
             "\"schedule\": \"constant\", \"log_every\": 1%s}}",
             t->model, t->data, steps, t->train);
    data_case_text(c, "job.json", job);
}

void rank_write_table(data_case *c, bool huge)
{
    static char text[8000];
    size_t length = (size_t)sprintf(text, "a,b,y\n");
    for (int i = 0; i < 100; i++) {
        double y = huge && i % 31 == 7 ? 3e7 : sin(i) + 0.5 * cos(i * i);
        length += (size_t)sprintf(text + length, "%g,%g,%g\n", sin(i), cos(i * i), y);
    }
    data_case_text(c, "t.csv", text);
}

void rank_read_numbers(const data_case *c, const char *folder, const char *key, int steps, double *out)
{
    char line[512], step[64], name[64];
    int status;
    snprintf(line, sizeof line, "cat %s/metrics.jsonl", folder);
    const char *at = run(c, line, &status);
    snprintf(name, sizeof name, "\"%s\": ", key);
    for (int i = 0; i < steps; i++) {
        snprintf(step, sizeof step, "\"kind\": \"step\", \"step\": %d,", i + 1);
        const char *found = strstr(at, step), *value = found ? strstr(found, name) : NULL;
        if (!value) fail_msg("%s: no %s of step %d in: %.2000s", folder, key, i + 1, at);
        value += strlen(name);
        out[i] = strncmp(value, "true", 4) == 0 ? 1 : strtod(value, NULL);
    }
}

void rank_train(const data_case *c, const char *folder, int ranks, const char *options)
{
    char line[2048];
    snprintf(line, sizeof line, "\"$H\" train job.json --set train.output=%s --ranks %d %s", folder, ranks, options);
    expect(c, line, 0, "");
}

void rank_expect_near(const char *what, int ranks, int step, double got, double want, double bound)
{
    double apart = fabs(got - want) / fmax(1, fabs(want));
    if (!(apart <= bound))
        fail_msg("%s: the loss of step %d is %.9g on %d ranks and %.9g on one: %.2g apart, not %.2g", what, step, got,
                 ranks, want, apart, bound);
}

void rank_expect_same_steps(const data_case *c, const char *what, const char *folder, int ranks, const double *alone,
                            int steps)
{
    double loss[RANK_MOST_STEPS];
    rank_read_numbers(c, folder, "loss", steps, loss);
    rank_expect_near(what, ranks, 1, loss[0], alone[0], 1e-6);
    rank_expect_near(what, ranks, steps, loss[steps - 1], alone[steps - 1], 1e-4);
}

bool rank_has_mpi(const data_case *c, const char *flavour)
{
    char line[256];
    int status;
    snprintf(line, sizeof line, "command -v mpirun.%s && test -f \"$(dirname \"$H\")/libhalftone_mpi_%s.so\"", flavour,
             flavour);
    run(c, line, &status);
    return status == 0;
}

const char *rank_mpirun(const char *flavour, int ranks)
{
    static char text[256];
    bool open = strcmp(flavour, "openmpi") == 0;
    snprintf(text, sizeof text, "ASAN_OPTIONS=detect_leaks=0 mpirun.%s %s -n %d", flavour,
             open ? "--allow-run-as-root --oversubscribe --bind-to none" : "", ranks);
    return text;
}

double rank_number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    if (!at) fail_msg("no %s in: %.2000s", key, text);
    return strtod(at + strlen(key), NULL);
}

static void train_processes(const data_case *c, const char *flavour, const char *folder, int ranks, const char *options)
{
    char line[512];
    snprintf(line, sizeof line, "%s \"$H\" train job.json --force --set train.output=%s %s",
             rank_mpirun(flavour, ranks), folder, options);
    expect(c, line, 0, " steps, ");
}

void rank_expect_processes(const data_case *c, int ranks, const char *options, const double *alone, int steps)
{
    static const char *const flavours[] = {"openmpi", "mpich"};
    int there = 0;
    for (int i = 0; i < 2; i++) {
        if (RANK_RACES || !rank_has_mpi(c, flavours[i])) continue;
        there++;
        train_processes(c, flavours[i], flavours[i], ranks, options);
        rank_expect_same_steps(c, flavours[i], flavours[i], ranks, alone, steps);
    }
    if (!there) skip();
}

/* ---- ranks of any axis ---- */

void rank_train_alone(const data_case *c, int steps, const char *options, double *loss)
{
    char line[512];
    snprintf(line, sizeof line, "--force %s", options);
    rank_train(c, "alone", 1, line);
    rank_read_numbers(c, "alone", "loss", steps, loss);
}

void rank_expect_same_skips(const data_case *c, int ranks, const char *options, const char *told)
{
    static const char *const keys[] = {"skipped", "loss_scale"};
    double one[RANK_STEPS], several[RANK_STEPS];
    char line[512];
    int skipped = 0;
    rank_train(c, "alone", 1, "--force --set train.precision=fp16");
    snprintf(line, sizeof line,
             "\"$H\" train job.json --force --set train.output=several --set train.precision=fp16 --ranks %d %s", ranks,
             options);
    expect(c, line, 0, told);
    for (int k = 0; k < 2; k++) {
        rank_read_numbers(c, "alone", keys[k], RANK_STEPS, one);
        rank_read_numbers(c, "several", keys[k], RANK_STEPS, several);
        for (int i = 0; i < RANK_STEPS; i++) {
            if (one[i] != several[i])
                fail_msg("%s of step %d: %g on %d ranks, %g on one", keys[k], i + 1, several[i], ranks, one[i]);
            skipped += k == 0 && one[i] != 0;
        }
    }
    assert_in_range(skipped, 1, RANK_STEPS - 1);
}

void rank_expect_same_norms(const data_case *c, int ranks, const char *options)
{
    double one[RANK_STEPS], several[RANK_STEPS];
    rank_train(c, "several", ranks, options);
    rank_read_numbers(c, "alone", "grad_norm", RANK_STEPS, one);
    rank_read_numbers(c, "several", "grad_norm", RANK_STEPS, several);
    for (int i = 0; i < RANK_STEPS; i++) rank_expect_near("norm", ranks, i + 1, several[i], one[i], 1e-4);
}

void rank_expect_same_bits(const data_case *c, int ranks, const char *options)
{
    char line[512];
    snprintf(line, sizeof line, "--force %s", options);
    rank_train(c, "a", ranks, line);
    snprintf(line, sizeof line,
             "HALFTONE_COMM_DELAY_US=0..300 \"$H\" train job.json --force --set train.output=b --ranks %d %s", ranks,
             options);
    expect(c, line, 0, "step 6 of 6");
    expect(c,
           "cmp a/snapshots/step-*6/weights.safetensors b/snapshots/step-*6/weights.safetensors && "
           "cmp a/snapshots/step-*6/optimizer.safetensors b/snapshots/step-*6/optimizer.safetensors",
           0, "");
}

void rank_expect_same_start(const data_case *c, int ranks, const char *options)
{
    enum { FEW = 3 };
    double one[FEW], several[FEW];
    char line[512];
    snprintf(line, sizeof line, "--set train.init_from=alone %s", options);
    rank_train(c, "a", 1, "--set train.init_from=alone");
    rank_train(c, "b", ranks, line);
    rank_read_numbers(c, "a", "loss", FEW, one);
    rank_read_numbers(c, "b", "loss", FEW, several);
    for (int i = 0; i < FEW; i++) rank_expect_near("init_from", ranks, i + 1, several[i], one[i], 1e-6);
}

void rank_expect_same_evaluation(const data_case *c, int ranks, const char *options)
{
    int status;
    rank_train(c, "run", ranks, options);
    const char *text = run(c, "grep '\"kind\": \"eval\"' run/metrics.jsonl", &status);
    double loss = rank_number_after(text, "\"loss\": "), accuracy = rank_number_after(text, "\"accuracy\": ");
    text = run(c, "\"$H\" eval run --json", &status);
    rank_expect_near("evaluation", ranks, 0, loss, rank_number_after(text, "\"loss\": "), 1e-6);
    assert_true(accuracy == rank_number_after(text, "\"accuracy\": "));
}

void rank_expect_moved(const data_case *c, int steps, const double *alone)
{
    double moved[RANK_MOST_STEPS];
    rank_read_numbers(c, "moved", "loss", steps, moved);
    for (int i = 0; i < steps; i++) rank_expect_near("moved", 0, i + 1, moved[i], alone[i], 1e-5);
    expect(c, "\"$H\" eval moved", 0, "loss");
}
