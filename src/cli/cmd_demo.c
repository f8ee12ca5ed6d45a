/* halftone demo: a small translator, trained before one's eyes. */
#include "cli/demo_command.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "demo/demo.h"
#include "device/device.h"

enum {
    DEMO_SEED = 1,
    DEMO_PAIRS = 40000,
    DEMO_STEPS = 1600,
    QUICK_STEPS = 500,
    REAL_STEPS = 3000,
    FULL_SEEDS = 3,
    MOST_TRANSLATED = 2000,
    BEAM = 1,
    MOST_PATH = 4000,
};

/* ---- files ---- */

static ht_status make_folder(ht_context *ctx, const char *folder)
{
    char path[MOST_PATH + 1];
    snprintf(path, sizeof path, "%s", folder);
    for (size_t i = 1, length = strlen(path); i <= length; i++) {
        char keep = path[i];
        if (keep != '/' && keep != '\0') continue;
        path[i] = '\0';
        if (mkdir(path, 0777) != 0 && errno != EEXIST) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(errno));
        path[i] = keep;
    }
    return HT_OK;
}

/* Frees the text. */
static ht_status write_file(ht_context *ctx, const char *path, ht_text *text)
{
    FILE *file = text->failed ? NULL : fopen(path, "wb");
    bool written = file && fwrite(text->data, 1, text->length, file) == text->length;
    int why = text->failed ? ENOMEM : errno;
    if (file && fclose(file) != 0 && written) written = false, why = errno;
    ht_text_free(text);
    if (!written) HT_FAIL(ctx, HT_EIO, "%s: %s", path, strerror(why));
    return HT_OK;
}

static ht_status write_pairs(ht_context *ctx, const char *path)
{
    ht_text text = {0};
    for (uint64_t i = 0; i < DEMO_PAIRS; i++) {
        ht_grammar_pair pair;
        ht_grammar_make(DEMO_SEED, i, &pair);
        ht_text_add(&text, "%s\t%s\n", pair.english, pair.french);
    }
    return write_file(ctx, path, &text);
}

/* The grammar's sentences are few and short. Real pairs want more, and a GPU has the time for the paper's own size, with
 * the rates of docs/learning.md. */
static const demo_size grammar_size = {.hidden = 128,
                                       .layers = 1,
                                       .least_count = 1,
                                       .buckets = 3,
                                       .held_out = 0.01,
                                       .batch = 32,
                                       .warmup_share = 8,
                                       .lr = 0.01,
                                       .lr_min = 0.0002,
                                       .optimizer = "adam"};
static const demo_size pairs_size = {.hidden = 256,
                                     .layers = 1,
                                     .least_count = 2,
                                     .vocabulary = 8000,
                                     .max_length = 16,
                                     .buckets = 4,
                                     .held_out = 0.01,
                                     .batch = 32,
                                     .warmup_share = 8,
                                     .lr = 0.003,
                                     .lr_min = 0.0002,
                                     .optimizer = "adam"};
static const demo_size paper_size = {.hidden = 1024,
                                     .layers = 3,
                                     .dropout = 0.2,
                                     .least_count = 2,
                                     .vocabulary = 16000,
                                     .max_length = 32,
                                     .buckets = 4,
                                     .held_out = 0.02,
                                     .batch = 128,
                                     .warmup_share = 15,
                                     .lr = 0.0005,
                                     .lr_min = 0.00005,
                                     .optimizer = "adamw",
                                     .weight_decay = 0.01};

/* Will it run on a GPU: one that is named, or the one that "auto" finds? */
static bool runs_on_gpu(const demo *d)
{
    const char *setting = d->job_options.device, *name = strchr(setting, '=');
    ht_device *device;
    name = name ? name + 1 : "auto";
    if (strcmp(name, "auto") != 0) return strncmp(name, "cuda", 4) == 0;
    return ht_device_get(&device, d->ctx, "cuda") == HT_OK;
}

static void put_model(ht_json_writer *json, const demo_size *size)
{
    ht_json_begin_object(json, "model");
    ht_json_put_text(json, "type", "seq2seq");
    ht_json_put_int(json, "hidden", size->hidden);
    ht_json_put_int(json, "layers", size->layers);
    ht_json_put_text(json, "attention", "dot");
    if (size->dropout > 0) ht_json_put_number(json, "dropout", size->dropout);
    ht_json_end_object(json);
}

static void put_data(ht_json_writer *json, const demo_size *size, const char *pairs)
{
    ht_json_begin_object(json, "data");
    ht_json_put_text(json, "format", "pairs");
    ht_json_put_text(json, "train", pairs);
    ht_json_put_int(json, "minimum_count", size->least_count);
    if (size->vocabulary) ht_json_put_int(json, "vocabulary_size", size->vocabulary);
    if (size->max_length) ht_json_put_int(json, "max_length", size->max_length);
    ht_json_put_int(json, "buckets", size->buckets);
    ht_json_put_number(json, "validation_share", size->held_out);
    ht_json_end_object(json);
}

static void put_train(ht_json_writer *json, const demo *d)
{
    ht_json_begin_object(json, "train");
    ht_json_put_int(json, "steps", d->steps);
    ht_json_put_int(json, "batch", d->size->batch);
    ht_json_put_number(json, "lr", d->size->lr);
    ht_json_put_int(json, "warmup", d->steps / d->size->warmup_share);
    ht_json_put_text(json, "schedule", "cosine");
    ht_json_put_number(json, "lr_min", d->size->lr_min);
    ht_json_line(json, 12);
    ht_json_put_text(json, "optimizer", d->size->optimizer);
    ht_json_put_number(json, "weight_decay", d->size->weight_decay);
    ht_json_put_int(json, "clip", 1);
    ht_json_put_int(json, "seed", DEMO_SEED);
    ht_json_put_int(json, "eval_every", d->steps / 10 > 0 ? d->steps / 10 : 1);
    ht_json_line(json, 12);
    ht_json_put_int(json, "snapshot_every", 0);
    ht_json_put_text(json, "output", d->output);
    ht_json_end_object(json);
}

/* The run is a job like any other; this is its file. */
static ht_status write_job(demo *d, const char *path, const char *pairs)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    ht_text_add(&text, "// halftone demo wrote this: halftone train %s --force does the same.\n", path);
    ht_json_begin_object(&json, NULL);
    ht_json_line(&json, 2);
    put_model(&json, d->size);
    ht_json_line(&json, 2);
    put_data(&json, d->size, pairs);
    ht_json_line(&json, 2);
    put_train(&json, d);
    ht_json_line(&json, 0);
    ht_json_end_object(&json);
    ht_text_add(&text, "\n");
    return write_file(d->ctx, path, &text);
}

/* ---- training ---- */

static void print_start(const demo *d, ht_run *run)
{
    const ht_data_info *info = ht_data_info_of(ht_run_data(run));
    ht_run_info about = ht_run_info_of(run);
    int threads = ht_context_threads(d->ctx);
    ht_text text = {0};
    if (d->data)
        ht_text_add(&text, "A translator of %d × %d learns from %s.\n", d->size->layers, d->size->hidden, d->data);
    else
        ht_text_add(&text, "A small translator learns French. Its sentences are synthetic: a grammar inside this "
                           "program makes them up.\nhalftone demo --data pairs.tsv takes real ones.\n");
    ht_text_add(&text,
                "%" PRId64 " pairs to learn from, %" PRId64 " held out; %" PRId64 " and %" PRId64
                " words; an LSTM with attention, %" PRId64 " parameters, ",
                info->parts[HT_DATA_TRAIN].items, info->parts[HT_DATA_VALIDATION].items, info->source_vocabulary,
                info->vocabulary, about.parameters);
    if (runs_on_gpu(d))
        ht_text_add(&text, "on a GPU\n\n");
    else
        ht_text_add(&text, "%d thread%s\n\n", threads, threads == 1 ? "" : "s");
    if (d->sweep.count > 1)
        ht_text_add(&text, "It does so %zu times, %" PRId64 " steps each:\n", d->sweep.count, about.steps);
    cli_show(&text);
}

static void on_start(void *arg, const cli_sweep_entry *t, ht_run *run)
{
    demo *d = arg;
    const ht_data_info *info = ht_data_info_of(ht_run_data(run));
    if (t != d->sweep.list) return;
    d->train_pairs = info->parts[HT_DATA_TRAIN].items;
    d->held_out = info->parts[HT_DATA_VALIDATION].items;
    if (!d->json) print_start(d, run);
}

static void on_step(void *arg, const cli_sweep_entry *t, const ht_step_report *r)
{
    demo *d = arg;
    if (d->json) return;
    int64_t tenth = r->steps / 10 > 0 ? r->steps / 10 : 1;
    d->total_ms += r->step_ms;
    if (d->terminal && (d->total_ms - d->shown_ms >= 50 || r->step == r->steps)) {
        d->shown_ms = d->total_ms;
        printf("\r%s: step %" PRId64 " of %" PRId64 "  loss %.4f  %.0f words a second\033[K", t->name, r->step,
               r->steps, r->loss, r->tokens_per_second);
    } else if (!d->terminal && t == d->sweep.list && (r->step % tenth == 0 || r->step == 1)) {
        printf("%s: step %" PRId64 " of %" PRId64 "  loss %.4f\n", t->name, r->step, r->steps, r->loss);
    }
    fflush(stdout);
}

/* ---- what it has learnt ---- */

static ht_status judge(demo *d, ht_run *run)
{
    cli_translations *t = &d->translations;
    HT_TRY(cli_translate(t, d->ctx, run, BEAM, MOST_TRANSLATED));
    HT_TRY(cli_translations_bleu(t, d->ctx, "13a", &d->bleu));
    d->right = calloc(t->count + 1, sizeof *d->right);
    if (!d->right) HT_FAIL(d->ctx, HT_ENOMEM, "out of memory for translations");
    double surprise = 0;
    for (size_t i = 0; i < t->count; i++) {
        const cli_translation *one = &t->list[i];
        d->right[i] =
            d->data ? strcmp(one->translation, one->reference) == 0 : ht_grammar_check(one->source, one->translation);
        d->right_count += d->right[i];
        if (!d->data) surprise += log(ht_grammar_translations(one->source, NULL));
    }
    if (!d->data && t->tokens > 0) d->floor_loss = surprise / (double)t->tokens;
    return HT_OK;
}

/* The first run once more, to translate: a decoder would have taken memory while it trained. */
static ht_status translate(demo *d)
{
    ht_run *run;
    ht_run_request request = {
        .config = d->sweep.list[0].config, .mode = HT_RUN_EVALUATE, .folder = d->output, .beam = BEAM};
    HT_TRY(ht_run_open(&run, d->ctx, &request));
    ht_status status = judge(d, run), closed = ht_run_close(run);
    return status == HT_OK ? closed : status;
}

static ht_status on_end(void *arg, cli_sweep_entry *t, ht_run *run)
{
    demo *d = arg;
    (void)run;
    if (t == d->sweep.list && t->last_eval.count == 0)
        HT_FAIL(d->ctx, HT_EINVAL, "%s: too few pairs to hold any out", d->data ? d->data : "the grammar");
    if (!d->json) {
        ht_text line = {0};
        ht_text_add(&line, "%s: %zu steps in %.1f seconds, loss %.4f", t->name, t->made, t->seconds, t->final_loss);
        if (t->last_eval.count > 0) ht_text_add(&line, ", held-out perplexity %.4f", t->last_eval.perplexity);
        ht_text_add(&line, "%s\n", t->skipped > 0 ? "; some steps were skipped" : "");
        if (d->terminal) fputs("\r\033[K", stdout);
        cli_show(&line);
    }
    return HT_OK;
}

/* ---- the command ---- */

static int fail_with(const demo *d, ht_status status)
{
    return cli_fail(cli_end_of(status), "demo: %s", ht_context_message(d->ctx));
}

/* The first run is the folder's own, the others lie inside it. `more`: another setting; NULL: none. */
static bool add_entry(demo *d, demo_role role, const char *name, const char *precision, const char *more, int seed)
{
    /* As in the paper's Figure 4: grey, solid, dashed. */
    static const ht_line lines[] = {HT_LINE_REFERENCE, HT_LINE_COLOUR, HT_LINE_DASHED, HT_LINE_DASHED, HT_LINE_DASHED};
    char folder[MOST_PATH + 64];
    if (d->sweep.count == 0)
        snprintf(folder, sizeof folder, "%s", d->output);
    else
        snprintf(folder, sizeof folder, "%s/%s", d->output, name);
    for (char *c = folder + strlen(d->output); *c; c++)
        if (*c == ' ' || *c == '^') *c = *c == ' ' ? '-' : '_';
    assert(d->sweep.count < DEMO_MOST_RUNS);
    d->roles[d->sweep.count] = role;
    cli_sweep_entry *t = cli_sweep_add(&d->sweep, name, folder, role == DEMO_FULL ? "fp32" : name);
    if (t) t->line = lines[role];
    return t && cli_sweep_entry_set(t, "train.precision=%s", precision) &&
           cli_sweep_entry_set(t, "train.seed=%d", seed) && (!more || cli_sweep_entry_set(t, "%s", more));
}

/* Gradients of the run that was added last are looked at. Returns which one it is. */
static size_t trace_last(demo *d)
{
    size_t last = d->sweep.count - 1;
    d->sweep.list[last].numerics = d->steps / 4 > 0 ? d->steps / 4 : 1;
    return last;
}

static bool add_entries(demo *d)
{
    bool ok = add_entry(d, DEMO_FULL, "fp32", "fp32", NULL, DEMO_SEED);
    if (d->single || !ok) return ok;
    for (int seed = DEMO_SEED + 1; seed < DEMO_SEED + FULL_SEEDS && ok; seed++) {
        char name[32];
        snprintf(name, sizeof name, "fp32 seed %d", seed);
        ok = add_entry(d, DEMO_FULL, name, "fp32", NULL, seed);
    }
    ok = ok && add_entry(d, DEMO_MIXED, "fp16 scale 1024", "fp16", "train.loss_scale=1024", DEMO_SEED);
    if (ok) d->traced_run = trace_last(d);
    if (!d->quick) ok = ok && add_entry(d, DEMO_MIXED, "fp16 dynamic", "fp16", "train.loss_scale=dynamic", DEMO_SEED);
    ok = ok && add_entry(d, DEMO_MIXED, "bf16", "bf16", NULL, DEMO_SEED);
    if (!d->quick) ok = ok && add_entry(d, DEMO_UNSCALED, "fp16 scale 1", "fp16", "train.loss_scale=1", DEMO_SEED);
    ok = ok && add_entry(d, DEMO_VANISHING, "fp16 scale 2^-10", "fp16", "train.loss_scale=0.0009765625", DEMO_SEED);
    if (ok) d->vanishing_run = trace_last(d);
    if (!d->quick)
        ok = ok && add_entry(d, DEMO_NO_MASTERS, "bf16 no masters", "bf16", "train.masters=false", DEMO_SEED);
    return ok;
}

static int run_demo(demo *d)
{
    char job[MOST_PATH + 16], pairs[MOST_PATH + 16];
    snprintf(job, sizeof job, "%s/job.json", d->output);
    snprintf(pairs, sizeof pairs, "%s/pairs.tsv", d->output);
    snprintf(d->page, sizeof d->page, "%s/report.html", d->output);
    d->size = !d->data ? &grammar_size : runs_on_gpu(d) ? &paper_size : &pairs_size;
    ht_status status = make_folder(d->ctx, d->output);
    if (status == HT_OK && !d->data) status = write_pairs(d->ctx, pairs);
    if (status == HT_OK) status = write_job(d, job, d->data ? d->data : pairs);
    if (status != HT_OK) return fail_with(d, status);
    cli_job_start(&d->job_options);
    d->job_options.request.path = job;
    d->sweep = (cli_sweep){.ctx = d->ctx,
                           .command = "demo",
                           .title = "Training perplexity, as the paper's Figure 4 draws it: fp32 grey, mixed precision "
                                    "solid, without its ingredients dashed",
                           .job = &d->job_options,
                           .arg = d,
                           .on_start = on_start,
                           .on_step = on_step,
                           .on_end = on_end};
    if (!add_entries(d)) return cli_fail(CLI_FAILED, "demo: out of memory");
    int end = cli_sweep_read(&d->sweep);
    if (end == CLI_DONE) end = cli_sweep_run(&d->sweep);
    if (end != CLI_DONE) return end;
    if (!d->single) status = demo_judge_claims(d);
    if (status == HT_OK) status = translate(d);
    if (status == HT_OK) status = demo_write_page(d);
    return status == HT_OK ? demo_print_result(d) : fail_with(d, status);
}

static int run_command(void *arg)
{
    demo *d = arg;
    if (d->steps == 0) d->steps = d->quick ? QUICK_STEPS : d->data ? REAL_STEPS : DEMO_STEPS;
    int end = cli_context(&d->ctx);
    d->terminal = cli_terminal(STDOUT_FILENO);
    if (end == CLI_DONE) end = run_demo(d);
    cli_sweep_free(&d->sweep);
    cli_translations_free(&d->translations);
    free(d->right);
    ht_text_free(&d->gradients);
    ht_text_free(&d->figure);
    for (int i = 0; i < DEMO_CLAIMS; i++) ht_text_free(&d->claims[i].numbers);
    if (d->ctx) ht_context_free(d->ctx);
    return end;
}

static const cli_option options[] = {
    {"--quick", NULL, CLI_FLAG, offsetof(demo, quick),
     .help = "in about 30 seconds: fewer steps, and only what so few can decide", .choice = 1},
    {"--single", NULL, CLI_FLAG, offsetof(demo, single), .help = "only the first run, in fp32", .choice = 1},
    {"--data", "FILE", CLI_TEXT, offsetof(demo, data),
     .help = "real pairs instead: a source, a tab and its translation per line, gzip too; this takes longer. On a GPU "
             "the translator has the size of the paper's: three layers of 1024",
     .takes = "a file"},
    {"--output", "FOLDER", CLI_TEXT, offsetof(demo, output),
     .help = "folder of the first run and, inside it, of the others; runs that it holds are replaced",
     .flags = CLI_FILLED, .letter = 'o', .takes = "a folder", .most = MOST_PATH, .standard = "runs/demo"},
    {.kind = CLI_GROUP, .offset = offsetof(demo, job_options), .group = cli_device_rows},
    {"--steps", "N", CLI_WHOLE, offsetof(demo, steps), .help = "optimiser steps of each run", .least = 1, .most = 1e8},
    {"--json", NULL, CLI_FLAG, offsetof(demo, json),
     .help =
         "one object: {\"synthetic\", \"run\", \"page\", \"parameters\", \"train_pairs\", \"held_out\", \"steps\", "
         "\"seconds\", \"loss\", \"perplexity\", \"lowest_perplexity\", \"exact\", \"translated\", \"bleu\", \"try\", "
         "\"translations\": [{\"source\", \"translation\", \"reference\", \"right\"}], \"claims\": [{\"claim\", "
         "\"verdict\", \"numbers\"}], \"runs\", \"groups\"}; lowest_perplexity is null with --data; runs and groups "
         "are those of halftone compare --json"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone demo --quick", "a first look in half a minute"},
    {"halftone demo --data pairs.tsv --output runs/pairs", "the same with real sentences"},
    {"halftone demo --data pairs.tsv --device cuda", "the same with a network of the paper's size"},
    {0},
};

const cli_command cmd_demo = {
    .name = "demo",
    .summary = "train a small translator in fp32, fp16 and bf16, and compare them",
    .description =
        "The experiment of the paper on mixed precision, in small: trains an LSTM with attention to translate English "
        "into French in fp32 with three seeds, in fp16 with a loss scale of 1024 and a dynamic one, and in bf16; then "
        "without what makes that work: in fp16 with a scale of 1 and with one by which gradients vanish, and in bf16 "
        "without f32 master weights. About 15 seconds each on two cores. Shows losses, times and memory side by side, "
        "how large gradients are, and what all that says about five claims; translates sentences that the first run "
        "has not seen, and writes a page with the curves. The sentences are synthetic: a grammar inside the program "
        "makes them up, always the "
        "same ones, and the same bits come out every time.",
    .options = options,
    .size = sizeof(demo),
    .run = run_command,
    .alone = true,
    .examples = examples,
    .see_also = "compare eval train",
};
