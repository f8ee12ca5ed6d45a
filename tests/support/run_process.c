#define _GNU_SOURCE /* pipe2 */
#include "run_process.h"
#include "tiny_data.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

void run_write_job(data_case *c)
{
    tiny_sums(c, 9000);
    data_case_text(
        c, "job.json",
        "{\"model\": {\"type\": \"gpt2\", \"n_layer\": 1, \"n_head\": 2, \"n_embd\": 16, \"dropout\": 0.1},\n"
        " \"data\": {\"format\": \"text\", \"train\": \"sums.txt\", \"tokenizer\": \"char\", \"length\": 16},\n"
        " \"train\": {\"steps\": 60, \"batch\": 8, \"accumulate\": 2, \"lr\": 3e-3, \"schedule\": \"cosine\", "
        "\"clip\": 1.0,\n"
        "            \"eval_every\": 7, \"log_every\": 1, \"snapshot_every\": 4}}\n");
}

run_process run_begin(const data_case *c, int threads, const char *arguments)
{
    int ends[2];
    char number[16], line[1024];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fflush(NULL);
    pid_t process = fork();
    assert_true(process >= 0);
    if (process == 0) {
        snprintf(number, sizeof number, "%d", threads);
        if (chdir(c->folder) != 0 || dup2(ends[1], STDOUT_FILENO) < 0 || !freopen("notes", "a", stderr)) _exit(99);
        setenv("OMP_NUM_THREADS", number, 1);
        snprintf(line, sizeof line, "exec '%s' %s", HT_PROGRAM, arguments);
        execl("/bin/sh", "sh", "-c", line, (char *)NULL);
        _exit(98);
    }
    close(ends[1]);
    return (run_process){process, fdopen(ends[0], "r")};
}

bool run_wait_for_step(run_process *p, int step)
{
    char line[1024];
    int has = 0;
    while (has < step)
        if (!fgets(line, sizeof line, p->lines))
            return false;
        else if (sscanf(line, "step %d ", &has) != 1)
            has = 0;
    return true;
}

int run_end(run_process *p)
{
    char line[1024];
    int status;
    while (p->lines && fgets(line, sizeof line, p->lines)) continue;
    if (p->lines) fclose(p->lines);
    assert_int_equal(waitpid(p->process, &status, 0), p->process);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

void run_expect_the_same(const data_case *c)
{
    expect(c,
           "for r in whole run; do sed 's/, \"tokens_per_second.*skipped/, \"skipped/; s/, \"seconds.*//' "
           "$r/metrics.jsonl > $r.txt; done; cmp whole.txt run.txt && "
           "a=$(ls -d whole/snapshots/step-* | tail -n 1); b=run/${a#whole/}; "
           "for f in weights optimizer; do cmp $a/$f.safetensors $b/$f.safetensors || exit; done; echo same",
           0, "same\n");
}

void run_sleep(double seconds)
{
    nanosleep(&(struct timespec){(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))}, NULL);
}
