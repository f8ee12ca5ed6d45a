/* halftone demo: a small translator, trained before one's eyes. */
#include "cli/demo.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli/grammar.h"

static const char usage[] =
    "usage: halftone demo [--data FILE] [--output FOLDER] [--steps N] [--json]\n"
    "\n"
    "Trains a small LSTM with attention to translate English into French, shows its loss, translates sentences that "
    "it\n"
    "has not seen and writes a page with the curves. The sentences are synthetic: a grammar inside the program makes\n"
    "them up, always the same ones, and the same bits come out on every run. It takes about 20 seconds on two cores.\n"
    "    --data        real pairs instead: a source, a tab and its translation per line, gzip too; this takes longer\n"
    "    --output      folder of the run, runs/demo when it is left out; a run that it holds is replaced\n"
    "    --steps       optimiser steps\n"
    "    --json        one object: {\"synthetic\", \"run\", \"page\", \"parameters\", \"train_pairs\", \"held_out\", "
    "\"steps\",\n"
    "                  \"seconds\", \"loss\", \"perplexity\", \"lowest_perplexity\", \"exact\", \"translated\", "
    "\"bleu\", "
    "\"try\",\n"
    "                  \"translations\": [{\"source\", \"translation\", \"reference\", \"right\"}]}; lowest_perplexity "
    "is null "
    "with --data\n";

enum {
    DEMO_SEED = 1,
    DEMO_PAIRS = 40000,
    DEMO_STEPS = 2000,
    REAL_STEPS = 3000,
    MOST_TRANSLATED = 2000,
    BEAM = 1,
    MOST_PATH = 4000,
};

/* ---- words ---- */

static int read_words(demo *d, int argc, char **argv)
{
    d->output = "runs/demo";
    for (int i = 1; i < argc; i++) {
        char *value;
        double number;
        if (cli_flag(argv, i, "--help")) {
            d->help = true;
        } else if (cli_flag(argv, i, "--json")) {
            d->json = true;
        } else if (cli_value(argc, argv, &i, "--data", &value)) {
            if (!(d->data = value)) return cli_fail(CLI_WRONG, "demo: --data wants a file");
        } else if (cli_value(argc, argv, &i, "--output", &value)) {
            if (!value || !*value || strlen(value) > MOST_PATH)
                return cli_fail(CLI_WRONG, "demo: --output wants a folder");
            d->output = value;
        } else if (cli_value(argc, argv, &i, "--steps", &value)) {
            if (!value || !ht_number_read(value, &number) || !(number >= 1 && number <= 1e8) || number != floor(number))
                return cli_fail(CLI_WRONG, "demo: --steps wants a whole number from 1");
            d->steps = (int64_t)number;
        } else {
            return cli_no_such_option("demo", argv[i]);
        }
    }
    if (d->steps == 0) d->steps = d->data ? REAL_STEPS : DEMO_STEPS;
    return CLI_DONE;
}

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
        grammar_pair pair;
        grammar_make(DEMO_SEED, i, &pair);
        ht_text_add(&text, "%s\t%s\n", pair.english, pair.french);
    }
    return write_file(ctx, path, &text);
}

/* The run is a job like any other; this is its file. */
static ht_status write_job(demo *d, const char *path, const char *pairs)
{
    ht_text text = {0};
    ht_text_add(&text, "// halftone demo wrote this: halftone train %s --force does the same.\n{\n", path);
    ht_text_add(&text, "  \"model\": {\"type\": \"seq2seq\", \"hidden\": %d, \"layers\": 1, \"attention\": \"dot\"},\n",
                d->data ? 256 : 128);
    ht_text_add(&text, "  \"data\": {\"format\": \"pairs\", \"train\": ");
    cli_json_string(&text, pairs);
    ht_text_add(&text, "%s},\n",
                d->data ? ", \"minimum_count\": 2, \"vocabulary_size\": 8000, \"max_length\": 16, \"buckets\": 4, "
                          "\"validation_share\": 0.01"
                        : ", \"minimum_count\": 1, \"buckets\": 3, \"validation_share\": 0.01");
    ht_text_add(&text, "  \"train\": {\"steps\": %" PRId64 ", \"batch\": 32, \"lr\": %s, \"warmup\": %" PRId64,
                d->steps, d->data ? "0.003" : "0.01", d->steps < 100 ? d->steps / 10 : 50);
    ht_text_add(
        &text,
        ", \"schedule\": \"cosine\", \"lr_min\": 0.0002,\n            \"optimizer\": \"adam\", \"weight_decay\": 0, "
        "\"clip\": 1, \"seed\": %d, \"eval_every\": %" PRId64 ",\n            \"snapshot_every\": 0, \"output\": ",
        DEMO_SEED, d->steps / 10 > 0 ? d->steps / 10 : 1);
    cli_json_string(&text, d->output);
    ht_text_add(&text, "}\n}\n");
    return write_file(d->ctx, path, &text);
}

/* ---- training ---- */

static void on_step(void *arg, const ht_step_report *r)
{
    demo *d = arg;
    if (d->made < d->room) {
        d->losses[d->made] = r->loss;
        d->step_ms[d->made++] = r->step_ms;
    }
    if (d->json) return;
    int64_t tenth = r->steps / 10 > 0 ? r->steps / 10 : 1;
    if (d->terminal && (r->step % 10 == 0 || r->step == r->steps))
        printf("\rstep %" PRId64 " of %" PRId64 "  loss %.4f  %.0f words a second\033[K", r->step, r->steps, r->loss,
               r->tokens_per_second);
    else if (!d->terminal && (r->step % tenth == 0 || r->step == 1))
        printf("step %" PRId64 " of %" PRId64 "  loss %.4f\n", r->step, r->steps, r->loss);
    fflush(stdout);
}

static void on_eval(void *arg, const ht_eval_report *r)
{
    demo *d = arg;
    d->last_eval = *r;
    if (d->evals == DEMO_MOST_EVALS) return;
    d->eval_x[d->evals] = (double)r->step;
    d->eval_y[d->evals++] = r->loss;
}

static void on_note(void *arg, const char *line)
{
    (void)arg;
    fprintf(stderr, "halftone: %s\n", line);
}

static void print_start(const demo *d)
{
    const ht_data_info *info = ht_data_info_of(ht_run_data(d->run));
    ht_run_info run = ht_run_info_of(d->run);
    if (d->json) return;
    if (d->data)
        printf("A small translator learns from %s.\n", d->data);
    else
        printf(
            "A small translator learns French. Its sentences are synthetic: a grammar inside this program makes them "
            "up.\nhalftone demo --data pairs.tsv takes real ones.\n");
    printf("%" PRId64 " pairs to learn from, %" PRId64 " held out; %" PRId64 " and %" PRId64
           " words; an LSTM with attention, %" PRId64 " parameters, %.1f MiB, %d threads\n\n",
           info->parts[HT_DATA_TRAIN].items, info->parts[HT_DATA_VALIDATION].items, info->source_vocabulary,
           info->vocabulary, run.parameters, (double)run.bytes / 0x1p20, ht_context_threads(d->ctx));
    fflush(stdout);
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static ht_status train(demo *d)
{
    bool stopped;
    ht_run_request request = {.config = d->config,
                              .mode = HT_RUN_FORCE,
                              .beam = BEAM,
                              .arg = d,
                              .on_step = on_step,
                              .on_eval = on_eval,
                              .on_note = on_note};
    d->room = (size_t)d->steps;
    d->losses = calloc(d->room, sizeof *d->losses);
    d->step_ms = calloc(d->room, sizeof *d->step_ms);
    if (!d->losses || !d->step_ms) HT_FAIL(d->ctx, HT_ENOMEM, "out of memory for %" PRId64 " losses", d->steps);
    HT_TRY(ht_run_open(&d->run, d->ctx, &request));
    print_start(d);
    double start = now();
    HT_TRY(ht_run_train(d->run, &stopped));
    d->seconds = now() - start;
    if (d->terminal && !d->json) fputs("\r\033[K", stdout);
    return HT_OK;
}

/* ---- what it has learnt ---- */

static ht_status judge(demo *d)
{
    cli_translations *t = &d->translations;
    if (ht_data_info_of(ht_run_data(d->run))->parts[HT_DATA_VALIDATION].batches < 1)
        HT_FAIL(d->ctx, HT_EINVAL, "%s: too few pairs to hold any out", d->data ? d->data : "the grammar");
    HT_TRY(cli_translate(t, d->ctx, d->run, BEAM, MOST_TRANSLATED));
    HT_TRY(cli_translations_bleu(t, d->ctx, "13a", &d->bleu));
    d->right = calloc(t->count + 1, sizeof *d->right);
    if (!d->right) HT_FAIL(d->ctx, HT_ENOMEM, "out of memory for translations");
    double surprise = 0;
    for (size_t i = 0; i < t->count; i++) {
        const cli_translation *one = &t->list[i];
        d->right[i] =
            d->data ? strcmp(one->translation, one->reference) == 0 : grammar_check(one->source, one->translation);
        d->right_count += d->right[i];
        if (!d->data) surprise += log(grammar_translations(one->source, NULL));
    }
    if (!d->data && t->tokens > 0) d->floor_loss = surprise / (double)t->tokens;
    return HT_OK;
}

/* ---- the command ---- */

static int fail_with(const demo *d, ht_status status)
{
    return cli_fail(cli_end_of(status), "demo: %s", ht_context_message(d->ctx));
}

static int run_demo(demo *d)
{
    char job[MOST_PATH + 16], pairs[MOST_PATH + 16];
    cli_job words;
    snprintf(job, sizeof job, "%s/job.json", d->output);
    snprintf(pairs, sizeof pairs, "%s/pairs.tsv", d->output);
    snprintf(d->page, sizeof d->page, "%s/report.html", d->output);
    ht_status status = make_folder(d->ctx, d->output);
    if (status == HT_OK && !d->data) status = write_pairs(d->ctx, pairs);
    if (status == HT_OK) status = write_job(d, job, d->data ? d->data : pairs);
    if (status != HT_OK) return fail_with(d, status);
    cli_job_start(&words);
    words.request.path = job;
    words.request.training = true;
    int end = cli_job_read(&words, d->ctx, &d->config);
    if (end != CLI_DONE) return end;
    status = train(d);
    if (status == HT_OK) status = judge(d);
    if (status == HT_OK) status = demo_write_page(d);
    return status == HT_OK ? demo_print_result(d) : fail_with(d, status);
}

int cmd_demo(int argc, char **argv)
{
    demo d = {0};
    int end = read_words(&d, argc, argv);
    if (end != CLI_DONE) return end;
    if (d.help) return cli_puts(usage);
    end = cli_context(&d.ctx);
    if (end != CLI_DONE) return end;
    d.terminal = isatty(STDOUT_FILENO) == 1;
    end = run_demo(&d);
    ht_status status = ht_run_close(d.run);
    if (end == CLI_DONE && status != HT_OK) end = fail_with(&d, status);
    cli_translations_free(&d.translations);
    free(d.right);
    free(d.losses);
    free(d.step_ms);
    ht_config_free(d.config);
    ht_context_free(d.ctx);
    return end;
}
