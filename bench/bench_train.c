/* Whole training steps against PyTorch: GPT-2, a translator, ResNet-18; then what a first step costs a new process, in
 * time and memory.
 *
 *     bench_train                       all rows
 *     bench_train NAME [compiled]       the row of one model, against eager PyTorch or torch.compile
 *     bench_train processes             the first step of a process: time, memory
 *     bench_train profile NAME          where the time of a step goes, by kernel
 *     bench_train plan NAME             the plan as text
 *     bench_train step NAME [STEPS]     only trains; prints the peak of this process's memory */
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "contest.h"
#include "peer.h"
#include "trainee.h"

typedef struct entry {
    trainee trainee;
    const char *request; /* of the peer */
} entry;

static entry entries[] = {
    {{.name = "gpt2_6x384_t256_v8192_b4",
      .type = "gpt2",
      .json = "{\"n_layer\": 6, \"n_head\": 6, \"n_embd\": 384}",
      .optimizer = "adamw",
      .request = {.task = HT_TASK_LM, .batch = 4, .length = 256, .vocabulary = 8192}},
     "train_gpt2 f32 6 6 384 256 8192 4"},
    {{.name = "seq2seq_2x256_b32_t32_v8000",
      .type = "seq2seq",
      .json = "{\"hidden\": 256, \"layers\": 2}",
      .optimizer = "adam",
      .request = {.task = HT_TASK_PAIRS,
                  .batch = 32,
                  .length = 32,
                  .source_length = 32,
                  .vocabulary = 8000,
                  .source_vocabulary = 8000}},
     "train_seq2seq f32 2 256 32 32 8000"},
    {{.name = "resnet18_cifar_b32",
      .type = "resnet",
      .json = "{\"depth\": 18, \"stem\": \"cifar\"}",
      .optimizer = "sgd",
      .request = {.task = HT_TASK_CLASS, .batch = 32, .classes = 10, .feature_rank = 3, .feature = {3, 32, 32}}},
     "train_resnet18 f32 32"},
    /* For the cold start: nanoGPT's small recipe. */
    {{.name = "gpt2_4x128_t64_v65_b12",
      .type = "gpt2",
      .json = "{\"n_layer\": 4, \"n_head\": 4, \"n_embd\": 128}",
      .optimizer = "adamw",
      .request = {.task = HT_TASK_LM, .batch = 12, .length = 64, .vocabulary = 65}},
     "train_gpt2 f32 4 4 128 64 65 12"},
};
enum { ENTRIES = sizeof entries / sizeof entries[0], COLD = ENTRIES - 1 };

static entry *find_entry(const char *name)
{
    for (int i = 0; i < ENTRIES; i++)
        if (strstr(entries[i].trainee.name, name)) return &entries[i];
    fprintf(stderr, "there is no model '%s'\n", name);
    exit(2);
}

/* ---- a process of its own ---- */

static int step(trainee *t, int steps)
{
    struct rusage usage;
    ht_context *ctx = ours_context();
    trainee_start(t, ctx);
    for (int i = 0; i < steps; i++)
        if (ht_session_run(t->ours.session, "train") != HT_OK) return 1;
    getrusage(RUSAGE_SELF, &usage);
    printf("peak_kb=%ld\n", usage.ru_maxrss);
    trainee_stop(t);
    ht_context_free(ctx);
    return 0;
}

/* This program again, with the arguments; its wall time, and the kilobytes that it says. Negative: it failed. */
static double own_process(const char *name, const char *steps, double *kilobytes)
{
    int answer[2], status = 1;
    char text[64] = "";
    if (pipe(answer) != 0) return -1;
    fflush(stdout);
    double start = bench_now();
    pid_t child = fork();
    if (child == 0) {
        dup2(answer[1], 1);
        close(answer[0]);
        execl("/proc/self/exe", "bench_train", "step", name, steps, (char *)NULL);
        _exit(127);
    }
    close(answer[1]);
    ssize_t n = child > 0 ? read(answer[0], text, sizeof text - 1) : 0;
    close(answer[0]);
    if (child > 0) waitpid(child, &status, 0);
    double seconds = bench_now() - start;
    return status == 0 && n > 0 && sscanf(text, "peak_kb=%lf", kilobytes) == 1 ? seconds : -1;
}

static void measure_processes(void)
{
    enum { TIMES = 5 };
    double cold[TIMES], cold_peer[TIMES], kilobytes, peer_kilobytes = 0;
    int peers = 0, ours_count = 0;
    for (int i = 0; i < TIMES; i++) {
        double mine = own_process(entries[COLD].trainee.name, "1", &kilobytes);
        double theirs = i < 3 ? peer_process("torch", entries[COLD].request, 1, &peer_kilobytes) : -1;
        if (mine > 0) cold[ours_count++] = mine;
        if (theirs > 0) cold_peer[peers++] = theirs;
    }
    if (ours_count)
        bench_line("train_cold_start", bench_median(cold, ours_count) * 1e3,
                   peers ? bench_median(cold_peer, peers) * 1e3 : 0, "torch_import_and_step", "ms");
    if (own_process(entries[0].trainee.name, "5", &kilobytes) < 0) return;
    double seconds = peer_process("torch", entries[0].request, 5, &peer_kilobytes);
    bench_line("train_memory_gpt2", kilobytes / 1e3, seconds > 0 ? peer_kilobytes / 1e3 : 0, "torch_without_import",
               "MB");
}

/* ---- rows ---- */

static void measure_steps(entry *e, ht_context *ctx, peer *torch, bool compiled)
{
    char name[96];
    peer_request eager = {.peer = torch}, fast = {.peer = torch};
    snprintf(eager.text, sizeof eager.text, "%s", e->request);
    snprintf(fast.text, sizeof fast.text, "compiled_%s", e->request);
    snprintf(name, sizeof name, "train_%s", e->trainee.name);
    trainee_start(&e->trainee, ctx);
    contest c = {.name = name, .unit = "ms", .seconds = 10};
    peer_request *r = compiled ? &fast : &eager;
    int mine = contest_add(&c, "halftone", ours_turn, &e->trainee.ours, 0);
    int theirs = contest_add(&c, compiled ? "torch_compile" : "torch", peer_turn, r, 0);
    contest_run(&c);
    contest_row(&c, NULL, mine, theirs, NULL);
    trainee_stop(&e->trainee);
}

static int inspect(const char *what, entry *e)
{
    char *text;
    ht_context *ctx = ours_context();
    trainee_start(&e->trainee, ctx);
    if (strcmp(what, "plan") == 0 && ht_plan_print(&text, e->trainee.ours.plan) == HT_OK) {
        fputs(text, stdout);
        free(text);
    }
    if (strcmp(what, "profile") == 0) trainee_profile(&e->trainee, ctx, 11);
    trainee_stop(&e->trainee);
    ht_context_free(ctx);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[1], "step") == 0)
        return step(&find_entry(argv[2])->trainee, argc > 3 ? (int)strtol(argv[3], NULL, 10) : 1);
    if (argc > 2 && (strcmp(argv[1], "profile") == 0 || strcmp(argv[1], "plan") == 0))
        return inspect(argv[1], find_entry(argv[2]));
    const char *only = argc > 1 ? argv[1] : "";
    bool compiled = argc > 2 && strcmp(argv[2], "compiled") == 0, processes = strcmp(only, "processes") == 0;
    if (processes || argc < 2) measure_processes();
    if (processes) return 0;
    ht_context *ctx = ours_context();
    peer *torch = peer_start("torch");
    for (int i = 0; i < 2 * COLD; i++) {
        entry *e = &entries[i % COLD];
        if (strstr(e->trainee.name, only) && (argc < 2 || compiled == i / COLD)) measure_steps(e, ctx, torch, i / COLD);
    }
    peer_stop(torch);
    ht_context_free(ctx);
    return 0;
}
