/* What recomputation costs and saves: GPT-2 in bf16 with policies and a budget against itself without, and the price of a
 * checkpoint per layer beside PyTorch's.
 *
 *     bench_recompute [policies | checkpoints | choice]
 *
 * BENCH lines: recompute_choice_* is the time to choose what 48 layers compute again (the peer is the target, a second);
 * *_transients in MB (the peer is the plan without recomputation), *_time in ms; and overhead: the time of a
 * step with recomputation over that without it, ours and PyTorch's. */
#include <string.h>

#include "contest.h"
#include "peer.h"
#include "trainee.h"

enum { MOST_SETTINGS = 2 };

typedef struct variant {
    const char *name;
    ht_train_setting settings[MOST_SETTINGS];
    size_t setting_count;
    trainee trainee;
} variant;

static double transients(const variant *v)
{
    return (double)ht_plan_space_bytes(v->trainee.ours.plan, HT_SPACE_MAIN, HT_AREA_TRANSIENT) / 1e6;
}

static void start(variant *v, ht_context *ctx, const trainee *like)
{
    v->trainee = *like;
    v->trainee.settings = v->settings;
    v->trainee.setting_count = v->setting_count;
    trainee_start(&v->trainee, ctx);
}

/* ---- against itself ---- */

static void measure_policies(ht_context *ctx)
{
    static const trainee gpt2 = {.type = "gpt2",
                                 .json = "{\"n_layer\": 12, \"n_head\": 12, \"n_embd\": 768}",
                                 .optimizer = "adamw",
                                 .precision = "bf16",
                                 .request = {.task = HT_TASK_LM, .batch = 8, .length = 1024, .vocabulary = 8192}};
    static variant variants[] = {
        {.name = "none", .settings = {{"recompute", "none"}}, .setting_count = 1},
        {.name = "cheap", .settings = {{"recompute", "cheap"}}, .setting_count = 1},
        {.name = "half", .settings = {{"recompute", "budget"}, {"recompute_share", "0.5"}}, .setting_count = 2},
    };
    enum { VARIANTS = sizeof variants / sizeof variants[0] };
    contest c = {.name = "gpt2_12x768_t1024_b8_bf16", .unit = "ms", .seconds = 240};
    for (int i = 0; i < VARIANTS; i++) {
        start(&variants[i], ctx, &gpt2);
        contest_add(&c, variants[i].name, ours_turn, &variants[i].trainee.ours, 0);
    }
    contest_run(&c);
    for (int i = 1; i < VARIANTS; i++) {
        char name[64];
        snprintf(name, sizeof name, "recompute_%s_transients", variants[i].name);
        bench_line(name, transients(&variants[i]), transients(&variants[0]), "none", "MB");
        snprintf(name, sizeof name, "recompute_%s_time", variants[i].name);
        contest_row(&c, name, i, 0, "none");
    }
    for (int i = 0; i < VARIANTS; i++) trainee_stop(&variants[i].trainee);
}

/* ---- beside PyTorch's checkpoints ---- */

/* A checkpoint per layer, as PyTorch's users write it, and the same bytes as a budget: what is not alive at the peak need
 * not be computed again. */
static void measure_checkpoints(ht_context *ctx, peer *torch)
{
    static const trainee gpt2 = {.type = "gpt2",
                                 .json = "{\"n_layer\": 6, \"n_head\": 6, \"n_embd\": 384}",
                                 .optimizer = "adamw",
                                 .request = {.task = HT_TASK_LM, .batch = 4, .length = 256, .vocabulary = 8192}};
    static char bytes[32];
    static variant none = {.settings = {{"recompute", "none"}}, .setting_count = 1};
    static variant all = {.settings = {{"recompute", "all"}}, .setting_count = 1};
    static variant budget = {.settings = {{"recompute", "budget"}, {"recompute_bytes", bytes}}, .setting_count = 2};
    peer_request plain = {.peer = torch, .text = "train_gpt2 f32 6 6 384 256 8192 4"};
    peer_request again = {.peer = torch, .text = "checkpointed_train_gpt2 f32 6 6 384 256 8192 4"};
    contest c = {.name = "gpt2_6x384_t256_b4_f32", .unit = "ms", .seconds = 90};
    start(&none, ctx, &gpt2);
    start(&all, ctx, &gpt2);
    snprintf(bytes, sizeof bytes, "%lld", (long long)ht_plan_bytes(all.trainee.ours.plan));
    start(&budget, ctx, &gpt2);
    int kept = contest_add(&c, "none", ours_turn, &none.trainee.ours, 0);
    int layers = contest_add(&c, "all", ours_turn, &all.trainee.ours, 0);
    int chosen = contest_add(&c, "budget", ours_turn, &budget.trainee.ours, 0);
    int torch_kept = contest_add(&c, "torch", peer_turn, &plain, 0);
    int torch_layers = contest_add(&c, "torch_checkpoint", peer_turn, &again, 0);
    contest_run(&c);
    double theirs =
        contest_value(&c, torch_kept) > 0 ? contest_value(&c, torch_layers) / contest_value(&c, torch_kept) : 0;
    bench_line("checkpoint_per_layer_transients", transients(&all), transients(&none), "none", "MB");
    bench_line("checkpoint_per_layer_overhead", contest_value(&c, layers) / contest_value(&c, kept), theirs, "torch",
               "times");
    bench_line("budget_of_the_same_bytes_overhead", contest_value(&c, chosen) / contest_value(&c, kept), theirs,
               "torch", "times");
    contest_row(&c, "budget_of_the_same_bytes_time", chosen, torch_layers, "torch");
    trainee_stop(&none.trainee);
    trainee_stop(&all.trainee);
    trainee_stop(&budget.trainee);
}

/* ---- the choice ---- */

/* Seconds to plan 48 layers of 1600 in half of their transients, less those to plan them as they are. */
static double choose_once(ht_context *ctx)
{
    static const ht_train_setting settings[] = {{"recompute", "budget"}, {"recompute_share", "0.5"}};
    double seconds[2];
    for (size_t with = 0; with < 2; with++) {
        trainee t = {.type = "gpt2",
                     .json = "{\"n_layer\": 48, \"n_head\": 25, \"n_embd\": 1600}",
                     .optimizer = "adamw",
                     .precision = "bf16",
                     .settings = settings,
                     .setting_count = 2 * with,
                     .request = {.task = HT_TASK_LM, .batch = 8, .length = 1024, .vocabulary = 50257}};
        double start = bench_now();
        trainee_plan(&t, ctx);
        seconds[with] = bench_now() - start;
        trainee_stop(&t);
    }
    return seconds[1] - seconds[0];
}

static void measure_choice(ht_context *ctx)
{
    enum { ROUNDS = 7 };
    double seconds[ROUNDS];
    for (int i = 0; i < ROUNDS; i++) seconds[i] = choose_once(ctx);
    bench_line("recompute_choice_48_layers", bench_median(seconds, ROUNDS) * 1e3, 1000, "target", "ms");
}

int main(int argc, char **argv)
{
    ht_context *ctx = ours_context();
    peer *torch = peer_start("torch");
    bool all = argc < 2;
    if (all || strcmp(argv[1], "policies") == 0) measure_policies(ctx);
    if (all || strcmp(argv[1], "checkpoints") == 0) measure_checkpoints(ctx, torch);
    if (all || strcmp(argv[1], "choice") == 0) measure_choice(ctx);
    peer_stop(torch);
    ht_context_free(ctx);
    return 0;
}
