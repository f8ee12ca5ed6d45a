/* Training steps of GPT-2 in half precision against the same step in fp32: fp16, bf16, and bf16 on a processor that had
 * no instructions for it; PyTorch in fp32 and under its bf16 autocast beside them. */
#include "contest.h"
#include "peer.h"
#include "trainee.h"

static const char request[] = "f32 6 6 384 256 8192 4";
static const char plain_processor[] = "{\"arch\": \"x86_64\", \"isa\": \"avx512\", \"threads\": 2}";

typedef struct entry {
    const char *name, *precision, *target;
} entry;

static const entry entries[] = {
    {"fp32", "fp32", NULL},
    {"fp16", "fp16", NULL},
    {"bf16", "bf16", NULL},
    {"bf16_by_f32_arithmetic", "bf16", plain_processor},
};
enum { ENTRIES = sizeof entries / sizeof entries[0] };

int main(void)
{
    ht_context *ctx = ours_context();
    peer *torch = peer_start("torch");
    peer_request full = {.peer = torch}, half = {.peer = torch};
    trainee trainees[ENTRIES];
    int side[ENTRIES];
    char name[96];
    contest c = {.name = "precision", .unit = "ms", .seconds = 30};
    snprintf(full.text, sizeof full.text, "train_gpt2 %s", request);
    snprintf(half.text, sizeof half.text, "autocast_train_gpt2 %s", request);
    for (int i = 0; i < ENTRIES; i++) {
        trainees[i] = (trainee){.name = entries[i].name,
                                .type = "gpt2",
                                .json = "{\"n_layer\": 6, \"n_head\": 6, \"n_embd\": 384}",
                                .optimizer = "adamw",
                                .precision = entries[i].precision,
                                .target = entries[i].target,
                                .request = {.task = HT_TASK_LM, .batch = 4, .length = 256, .vocabulary = 8192}};
        trainee_start(&trainees[i], ctx);
        side[i] = contest_add(&c, entries[i].name, ours_turn, &trainees[i].ours, 0);
    }
    int torch_full = contest_add(&c, "torch_fp32", peer_turn, &full, 0);
    int torch_half = contest_add(&c, "torch_autocast_bf16", peer_turn, &half, 0);
    contest_run(&c);
    for (int i = 1; i < ENTRIES; i++) {
        snprintf(name, sizeof name, "train_gpt2_%s", entries[i].name);
        contest_row(&c, name, side[i], side[0], "halftone_fp32");
    }
    contest_row(&c, "torch_autocast_bf16", torch_half, torch_full, NULL);
    for (int i = 0; i < ENTRIES; i++) trainee_stop(&trainees[i]);
    peer_stop(torch);
    ht_context_free(ctx);
    return 0;
}
