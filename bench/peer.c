#include "peer.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench_common.h"

enum { PATIENCE_MS = 120 * 1000 };

struct peer {
    const char *name;
    pid_t child;
    int to, from;
    char refusal[512];
    char line[512]; /* the answer read last */
    char rest[512]; /* bytes that came after it */
    size_t rest_count;
};

static const char *what_to_install(const char *name)
{
    if (strcmp(name, "openblas") == 0) return "install libopenblas-openmp-dev";
    if (strcmp(name, "onednn") == 0) return "install libdnnl-dev (version 2)";
    if (strcmp(name, "onnxruntime") == 0) return "pip install onnxruntime onnx";
    return "pip install torch";
}

static void refuse(peer *p, const char *reason)
{
    snprintf(p->refusal, sizeof p->refusal, "%s: %s (%s)", p->name, reason, what_to_install(p->name));
    fprintf(stderr, "%s\n", p->refusal);
}

/* ---- the child ---- */

static bool is_script(const char *name)
{
    return strcmp(name, "torch") == 0 || strcmp(name, "onnxruntime") == 0;
}

/* The compiled peers lie beside this program; scripts lie in the sources. */
static bool find_program(const char *name, char *path, size_t size)
{
    char self[PATH_MAX];
    if (is_script(name)) return snprintf(path, size, "%s/peer_%s.py", BENCH_SOURCE_DIR, name) < (int)size;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return false;
    self[n] = 0;
    char *slash = strrchr(self, '/');
    if (slash) *slash = 0;
    return snprintf(path, size, "%s/peer_%s", self, name) < (int)size && access(path, X_OK) == 0;
}

/* request NULL: it listens. */
static void become(const char *name, const char *path, const char *request, const char *calls)
{
    char threads[16];
    snprintf(threads, sizeof threads, "%d", bench_threads());
    setenv("OMP_NUM_THREADS", threads, 1);
    setenv("OPENBLAS_NUM_THREADS", threads, 1);
    setenv("MKL_NUM_THREADS", threads, 1);
    setenv("OMP_WAIT_POLICY", "passive", 1); /* or its idle threads would spin in our turns */
    if (is_script(name))
        execlp("python3", "python3", path, request, calls, (char *)NULL);
    else
        execl(path, path, request, calls, (char *)NULL);
    _exit(127);
}

static bool spawn(peer *p, const char *path)
{
    int request[2], answer[2];
    if (pipe(request) != 0) return false;
    if (pipe(answer) != 0) {
        close(request[0]);
        close(request[1]);
        return false;
    }
    p->child = fork();
    if (p->child == 0) {
        /* Other peers' pipes must not stay open here, or they would not see us close them. */
        dup2(request[0], 0);
        dup2(answer[1], 1);
        for (int fd = 3; fd < 64; fd++) close(fd);
        become(p->name, path, NULL, NULL);
    }
    close(request[0]);
    close(answer[1]);
    p->to = request[1];
    p->from = answer[0];
    return p->child > 0;
}

/* ---- talking ---- */

static bool take_line(peer *p)
{
    char *end = memchr(p->rest, '\n', p->rest_count);
    if (!end && p->rest_count < sizeof p->rest - 1) return false;
    size_t n = end ? (size_t)(end - p->rest) : p->rest_count, used = end ? n + 1 : n;
    memcpy(p->line, p->rest, n);
    p->line[n] = 0;
    p->rest_count -= used;
    memmove(p->rest, p->rest + used, p->rest_count);
    return true;
}

static bool starts(const char *line, const char *word)
{
    return strncmp(line, word, strlen(word)) == 0;
}

/* The next line that is an answer; libraries may print others. */
static bool read_answer(peer *p)
{
    for (;;) {
        while (take_line(p))
            if (starts(p->line, "seconds=") || starts(p->line, "ready:") || starts(p->line, "refused:")) return true;
        struct pollfd wait = {.fd = p->from, .events = POLLIN};
        int ready = poll(&wait, 1, PATIENCE_MS);
        if (ready < 0 && errno == EINTR) continue;
        if (ready <= 0) return false;
        ssize_t n = read(p->from, p->rest + p->rest_count, sizeof p->rest - 1 - p->rest_count);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) return false;
        p->rest_count += (size_t)n;
    }
}

static bool send_line(const peer *p, const char *text)
{
    size_t length = strlen(text), sent = 0;
    while (sent < length) {
        ssize_t n = write(p->to, text + sent, length - sent);
        if (n < 0 && errno != EINTR) return false;
        if (n > 0) sent += (size_t)n;
    }
    return true;
}

peer *peer_start(const char *name)
{
    char path[PATH_MAX];
    peer *p = calloc(1, sizeof *p);
    if (!p) abort();
    p->name = name;
    p->to = p->from = -1;
    signal(SIGPIPE, SIG_IGN); /* a child that died shows as a failed write */
    fflush(stdout);
    if (!find_program(name, path, sizeof path))
        refuse(p, "was not built");
    else if (!spawn(p, path))
        refuse(p, "no process");
    else if (!read_answer(p))
        refuse(p, "did not start");
    else if (starts(p->line, "refused:"))
        refuse(p, p->line + strlen("refused: "));
    else
        printf("  peer %s: %s\n", name, p->line + strlen("ready: "));
    return p;
}

const char *peer_name(const peer *p)
{
    return p->name;
}

const char *peer_refusal(const peer *p)
{
    return p->refusal[0] ? p->refusal : NULL;
}

double peer_time(peer *p, const char *request, int calls)
{
    char text[160];
    double seconds;
    if (p->refusal[0]) return -1;
    snprintf(text, sizeof text, "%d %s\n", calls, request);
    if (!send_line(p, text) || !read_answer(p)) {
        refuse(p, "died or hung");
        return -1;
    }
    if (sscanf(p->line, "seconds=%lf", &seconds) == 1) return seconds;
    fprintf(stderr, "%s: %s: %s\n", p->name, request, p->line);
    return -1;
}

double peer_turn(void *arg, int calls)
{
    const peer_request *r = arg;
    return peer_time(r->peer, r->text, calls);
}

/* The child ends when its input does; one that hangs is killed. */
void peer_stop(peer *p)
{
    if (!p) return;
    if (p->to >= 0) close(p->to);
    if (p->from >= 0) close(p->from);
    if (p->child > 0) {
        bool gone = false;
        for (int i = 0; i < 200 && !gone; i++) {
            gone = waitpid(p->child, NULL, WNOHANG) != 0;
            if (!gone) nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
        }
        if (!gone) {
            kill(p->child, SIGKILL);
            waitpid(p->child, NULL, 0);
        }
    }
    free(p);
}

double peer_process(const char *name, const char *request, int calls, double *kilobytes)
{
    char path[PATH_MAX], count[16], text[256] = "";
    int answer[2], status = 1;
    if (!find_program(name, path, sizeof path) || pipe(answer) != 0) return -1;
    snprintf(count, sizeof count, "%d", calls);
    fflush(stdout);
    double start = bench_now();
    pid_t child = fork();
    if (child == 0) {
        dup2(answer[1], 1);
        for (int fd = 3; fd < 64; fd++) close(fd);
        become(name, path, request, count);
    }
    close(answer[1]);
    ssize_t n = child > 0 ? read(answer[0], text, sizeof text - 1) : 0;
    close(answer[0]);
    if (child > 0) waitpid(child, &status, 0);
    double seconds = bench_now() - start;
    if (status == 0 && n > 0 && sscanf(text, "kilobytes=%lf", kilobytes) == 1) return seconds;
    fprintf(stderr, "%s: %s: %s\n", name, request, n > 0 ? text : "no answer");
    return -1;
}
