/* Every file of a run, damaged in every way, one at a time. Then `eval` gives the loss of some snapshot or fails, and
 * `train --resume` comes to the same end as an undisturbed run or fails; who fails names the file. Nothing begins again
 * without being told to. */
#include <signal.h>
#include <unistd.h>

#include "run_process.h"

typedef struct damage {
    const char *name, *command; /* of the shell, with $f as the file */
} damage;

#define FLIP(place)                                                                                                    \
    "n=$(stat -c %s $f); p=" place "; b=$(dd if=$f bs=1 skip=$p count=1 2>/dev/null | od -An -tu1); "                  \
    "printf \"\\\\$(printf %o $((b ^ 1)))\" | dd of=$f bs=1 seek=$p conv=notrunc 2>/dev/null"

static const damage damages[] = {
    {"cut to a half", "truncate -s $(($(stat -c %s $f) / 2)) $f"},
    {"without its last byte", "truncate -s -1 $f"},
    {"emptied", ": > $f"},
    {"removed", "rm $f"},
    {"with a byte more", "printf x >> $f"},
    {"with a bit flipped at its beginning", FLIP("0")},
    {"with a bit flipped in the middle", FLIP("$((n / 2))")},
    {"with a bit flipped at three quarters", FLIP("$((n * 3 / 4))")},
    {"with a bit flipped near its end", FLIP("$((n - 5))")},
    {"not to be read", "chmod 000 $f"},
};
enum { STOPPED = 3 };
enum { DAMAGES = sizeof damages / sizeof damages[0], MOST_FILES = 32, MOST_PATH = 200, MOST_STEPS = 4 };

typedef struct fixture {
    data_case *c;
    char files[MOST_FILES][MOST_PATH]; /* in the folder of a run */
    int count;
    const char *as_user; /* what makes the program a user to whom permissions apply; NULL: there is no such user */
    char losses[MOST_STEPS][64]; /* what eval says of each snapshot, `"step": 40, "loss": ...,` */
    int loss_count;
    int went_on, refused; /* resumes and evaluations */
} fixture;

/* ---- the run ---- */

/* "template": stopped behind step 42, with two snapshots. "whole": what it would have come to. */
static void write_runs(fixture *f)
{
    data_case *c = f->c;
    run_write_job(c);
    expect(c, "\"$H\" train job.json --set train.output=whole", 0, "step 60 of 60");
    /* Where many share the machine the signal may come too late. */
    for (int status = 0; status != STOPPED;) {
        expect(c, "rm -rf run", 0, "");
        run_process p = run_begin(c, 1, "train job.json --set train.keep=2");
        assert_true(run_wait_for_step(&p, 42));
        kill(p.process, SIGTERM);
        status = run_end(&p);
        assert_true(status == 0 || status == STOPPED);
    }
    expect(c, "mv run template; chmod 755 .", 0, "");
    expect(c, "ls template/snapshots | wc -l", 0, "2\n");
}

static void list_files(fixture *f)
{
    int status;
    char *text = strdup(run(f->c, "cd template && find . -type f | sed 's,^./,,' | LC_ALL=C sort", &status)),
         *rest = text;
    for (char *line; (line = strtok_r(rest, "\n", &rest)) && f->count < MOST_FILES;)
        snprintf(f->files[f->count++], MOST_PATH, "%s", line);
    free(text);
    assert_true(f->count >= 10);
}

/* The loss of each snapshot, when it is the newest. */
static void list_losses(fixture *f)
{
    expect(f->c, "rm -rf run; cp -r template run", 0, "");
    for (int status = 0; f->loss_count < MOST_STEPS; f->loss_count++) {
        const char *said = run(f->c, "\"$H\" eval run --json", &status), *at = strstr(said, "\"step\": ");
        if (status != 0 || !at) break;
        snprintf(f->losses[f->loss_count], sizeof f->losses[0], "%s", at);
        char *perplexity = strstr(f->losses[f->loss_count], ", \"perp");
        assert_non_null(perplexity);
        *perplexity = '\0';
        expect(f->c, "rm -r $(ls -d run/snapshots/* | tail -n 1)", 0, "");
    }
    assert_int_equal(f->loss_count, 2);
}

/* To the superuser everything can be read. */
static void find_user(fixture *f)
{
    static char as_user[128];
    int status;
    f->as_user = "";
    if (geteuid() != 0) return;
    snprintf(as_user, sizeof as_user, "setpriv --reuid=65534 --regid=65534 --clear-groups ");
    char line[512];
    snprintf(line, sizeof line, "%s \"$H\" --version", as_user);
    run(f->c, line, &status);
    f->as_user = status == 0 ? as_user : NULL;
}

/* ---- one damage ---- */

static bool names_file(const char *said, const char *file)
{
    char folder[MOST_PATH];
    snprintf(folder, sizeof folder, "%s", file);
    char *slash = strrchr(folder, '/');
    if (slash) *slash = '\0';
    return strstr(said, file) || (slash && strstr(said, folder));
}

static void expect_evaluation(fixture *f, const char *file, const char *how)
{
    int status;
    char line[512];
    snprintf(line, sizeof line, "%s\"$H\" eval run --json", f->as_user ? f->as_user : "");
    const char *said = run(f->c, line, &status);
    bool known = false;
    *(status == 0 ? &f->went_on : &f->refused) += 1;
    for (int i = 0; i < f->loss_count; i++) known |= strstr(said, f->losses[i]) != NULL;
    if (status == 0 ? !known : !names_file(said, file))
        fail_msg("%s %s: eval ended with %d:\n%.2000s", file, how, status, said);
}

static void expect_resume(fixture *f, const char *file, const char *how)
{
    int status;
    char line[512];
    snprintf(line, sizeof line, "%s\"$H\" train job.json --resume 2>&1", f->as_user ? f->as_user : "");
    const char *said = run(f->c, line, &status);
    *(status == 0 ? &f->went_on : &f->refused) += 1;
    if (status != 0) {
        if (!names_file(said, file)) fail_msg("%s %s: resume ended with %d:\n%.2000s", file, how, status, said);
        return;
    }
    const char *goes_on = strstr(said, "goes on after step ");
    int step = goes_on ? atoi(goes_on + strlen("goes on after step ")) : 0;
    if (step < 1) fail_msg("%s %s: the run began again:\n%.2000s", file, how, said);
    expect(f->c,
           "for f in weights optimizer; do cmp whole/snapshots/step-00000060/$f.safetensors "
           "run/snapshots/step-00000060/$f.safetensors || exit; done; echo same",
           0, "same\n");
}

static void try_damage(fixture *f, const char *file, const damage *d)
{
    char line[1024];
    bool permissions = strstr(d->command, "chmod") != NULL;
    if (permissions && !f->as_user) return;
    const char *owner = f->as_user && *f->as_user ? "chown -R 65534:65534 run sums.txt job.json . ; " : "";
    for (int turn = 0; turn < 2; turn++) {
        snprintf(line, sizeof line, "chmod -Rf u+rw run; rm -rf run; cp -r template run; f=run/%s; %s; %s true", file,
                 d->command, owner);
        expect(f->c, line, 0, "");
        if (turn == 0)
            expect_evaluation(f, file, d->name);
        else
            expect_resume(f, file, d->name);
    }
}

static void damage__ends_in_the_same_bits_or_names_the_file(void **state)
{
    static fixture f;
    f = (fixture){.c = *state};
    write_runs(&f);
    list_files(&f);
    list_losses(&f);
    find_user(&f);
    bool all = getenv("HALFTONE_LONG") != NULL;
    int first = (int)(getpid() % DAMAGES);
    for (int i = 0; i < f.count; i++)
        for (int k = 0; k < (all ? DAMAGES : 1); k++)
            try_damage(&f, f.files[i], &damages[(first + i * 3 + k) % DAMAGES]);
    print_message("%d files; %d times it went on, %d times it refused\n", f.count, f.went_on, f.refused);
    assert_true(f.went_on > 0 && (f.refused > 0 || !all));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(damage__ends_in_the_same_bits_or_names_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
