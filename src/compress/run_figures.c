/* What a run is worth and what it costs: its loss on the validation part, its bytes, and the time of one evaluation. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "compress/compression.h"

/* What the folder recorded, with the request's settings and others. */
typedef struct recorded {
    ht_context *ctx;
    const ht_compress_request *request;
    char path[HT_COMPRESS_PATH];
    char *text, *data_folder;
} recorded;

static ht_status read_config(const recorded *r, const char *const *more, size_t count, ht_config **out)
{
    ht_block_keys blocks[HT_MOST_JOB_BLOCKS];
    const char **sets = calloc(r->request->set_count + count + 1, sizeof *sets);
    if (!sets) HT_FAIL(r->ctx, HT_ENOMEM, "%s: out of memory", r->path);
    for (size_t i = 0; i < count; i++) sets[i] = more[i];
    for (size_t i = 0; i < r->request->set_count; i++) sets[count + i] = r->request->sets[i];
    ht_config_request request = {.path = r->path,
                                 .text = r->text,
                                 .length = strlen(r->text),
                                 .sets = sets,
                                 .set_count = count + r->request->set_count,
                                 .blocks = blocks,
                                 .block_count = ht_job_blocks(blocks)};
    ht_status status = ht_config_read(out, r->ctx, &request);
    free(sets);
    if (status == HT_OK) return HT_OK;
    if (*out) status = ht_problems_status(ht_config_problems(*out), r->ctx);
    ht_config_free(*out);
    *out = NULL;
    return status;
}

static ht_status measure_quality(const recorded *r, const char *folder, const ht_config *config,
                                 ht_compress_figures *out)
{
    ht_run *run;
    ht_eval_report report;
    ht_run_request request = {
        .config = config, .mode = HT_RUN_EVALUATE, .folder = folder, .data_folder = r->data_folder};
    if (r->request->judge) request.beam = r->request->beam;
    HT_TRY(ht_run_open(&run, r->ctx, &request));
    ht_status status = ht_run_evaluate(run, &report);
    if (status == HT_OK && r->request->judge && report.count > 0)
        status = r->request->judge(r->request->arg, r->ctx, run, &out->bleu);
    ht_run_close(run);
    HT_TRY(status);
    bool judged = report.count > 0;
    out->loss = judged ? report.loss : NAN;
    out->perplexity = judged ? report.perplexity : NAN;
    out->accuracy = judged ? report.accuracy : NAN;
    return HT_OK;
}

static ht_status measure_time(const recorded *r, const char *folder, const ht_config *config, double *p50_s)
{
    ht_run *run;
    ht_infer_times times;
    ht_run_request request = {
        .config = config, .mode = HT_RUN_EVALUATE, .folder = folder, .data_folder = r->data_folder};
    HT_TRY(ht_run_open(&run, r->ctx, &request));
    ht_status status = ht_infer_times_measure(&times, r->ctx, ht_run_session(run), 0.25);
    ht_run_close(run);
    *p50_s = times.p50_s;
    return status;
}

/* Of batches as wide as the step from 1 to many: at the best one a caller computes the most items in a second. */
static void measure_throughput(const recorded *r, const char *folder, ht_compress_figures *out)
{
    static const int64_t batches[] = {4, 16, 64};
    out->best_batch = out->batch;
    out->items_per_s = 1e3 * (double)out->batch / out->p50_ms;
    for (size_t i = 0; i < sizeof batches / sizeof batches[0] && out->batch == 1; i++) {
        char lines[2][64];
        snprintf(lines[0], sizeof lines[0], "train.batch=%lld", (long long)batches[i]);
        snprintf(lines[1], sizeof lines[1], "train.micro_batch=%lld", (long long)batches[i]);
        const char *const sets[] = {lines[0], lines[1], "train.accumulate=1"};
        double p50_s = NAN;
        ht_config *config;
        /* A batch that does not fit this machine ends the search. */
        if (read_config(r, sets, sizeof sets / sizeof sets[0], &config) != HT_OK) return;
        ht_status status = measure_time(r, folder, config, &p50_s);
        ht_config_free(config);
        double rate = (double)batches[i] / p50_s;
        if (status != HT_OK || rate < 0.9 * out->items_per_s) return;
        if (rate > out->items_per_s) {
            out->items_per_s = rate;
            out->best_batch = batches[i];
        }
    }
}

static ht_status count_weights(ht_context *ctx, const char *folder, ht_compress_figures *out)
{
    ht_safetensors *file;
    char path[HT_RUN_PATH_BYTES];
    struct stat about;
    HT_TRY(ht_run_open_weights(&file, ctx, folder, path));
    ht_safetensors_free(file);
    out->disk_bytes = stat(path, &about) == 0 ? (int64_t)about.st_size : 0;
    ht_weights weights; /* codes as the weights that they stand for */
    ht_status status = ht_weights_read(&weights, ctx, folder);
    for (size_t i = 0; i < weights.count && status == HT_OK; i++) {
        if (ht_is_range(weights.items[i].name)) continue;
        out->parameters += weights.items[i].array.count;
        out->nonzero += weights.items[i].array.count - ht_weight_zeros(&weights.items[i]);
    }
    ht_weights_free(&weights);
    return status;
}

static ht_status open_recorded(recorded *r, const char *folder)
{
    int length = snprintf(r->path, sizeof r->path, "%s/config.resolved.json", folder);
    if (length < 0 || length >= HT_COMPRESS_PATH) HT_FAIL(r->ctx, HT_EINVAL, "%s: the path is too long", folder);
    return ht_job_recorded(r->ctx, r->path, &r->text, &r->data_folder);
}

static void close_recorded(recorded *r)
{
    free(r->text);
    free(r->data_folder);
}

/* A graph of the user's own has one batch; others are measured with a single item. */
static ht_status measure_worth(const recorded *r, const char *folder, ht_compress_figures *out)
{
    ht_config *config;
    HT_TRY(read_config(r, NULL, 0, &config));
    ht_status status = measure_quality(r, folder, config, out);
    bool fixed = ht_model_find(ht_config_type(config, "model"), NULL)->make;
    out->batch = fixed ? ht_config_train(config)->micro_batch : 1;
    ht_config_free(config);
    return status;
}

ht_status ht_compress_measure_worth(ht_compress_figures *out, ht_context *ctx, const ht_compress_request *request,
                                    const char *folder)
{
    recorded r = {.ctx = ctx, .request = request};
    *out = (ht_compress_figures){
        .loss = NAN, .perplexity = NAN, .accuracy = NAN, .p50_ms = NAN, .p99_ms = NAN, .items_per_s = NAN, .bleu = NAN};
    ht_status status = open_recorded(&r, folder);
    if (status == HT_OK) status = measure_worth(&r, folder, out);
    close_recorded(&r);
    return status == HT_OK ? count_weights(ctx, folder, out) : status;
}

/* ---- latency, of two runs in turns ---- */

enum { FEWEST_ROUNDS = 5, MOST_ROUNDS = 21 };
static const double turn_seconds = 0.1, most_seconds = 4; /* from which on there are no rounds beyond the fewest */

typedef struct timed_run {
    recorded recorded;
    ht_run *run;
    ht_infer_samples samples;
    double p50_s[MOST_ROUNDS];
} timed_run;

static ht_status open_timed(timed_run *t, const char *folder, int64_t batch)
{
    static const char *const one[] = {"train.batch=1", "train.micro_batch=1", "train.accumulate=1"};
    const recorded *r = &t->recorded;
    ht_config *config;
    HT_TRY(open_recorded(&t->recorded, folder));
    HT_TRY(read_config(r, one, batch == 1 ? sizeof one / sizeof one[0] : 0, &config));
    ht_run_request request = {
        .config = config, .mode = HT_RUN_EVALUATE, .folder = folder, .data_folder = r->data_folder};
    ht_status status = ht_run_open(&t->run, r->ctx, &request);
    ht_config_free(config);
    return status;
}

static void close_timed(timed_run *t)
{
    if (t->run) ht_run_close(t->run);
    ht_infer_samples_free(&t->samples);
    close_recorded(&t->recorded);
}

static ht_status time_turn(timed_run *t, int round)
{
    return ht_infer_turn(&t->samples, t->recorded.ctx, ht_run_session(t->run), turn_seconds, &t->p50_s[round]);
}

/* Each comes first in every other round. */
static ht_status time_rounds(timed_run runs[2], int *rounds)
{
    double begin = ht_instr_clock();
    for (*rounds = 0; *rounds < MOST_ROUNDS; ++*rounds) {
        if (*rounds >= FEWEST_ROUNDS && ht_instr_clock() - begin > most_seconds) break;
        HT_TRY(time_turn(&runs[*rounds % 2], *rounds));
        HT_TRY(time_turn(&runs[1 - *rounds % 2], *rounds));
    }
    return HT_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static void put_cost(timed_run *t, int rounds, ht_compress_figures *out)
{
    ht_infer_times times;
    ht_infer_cost(&times, ht_run_session(t->run));
    qsort(t->p50_s, (size_t)rounds, sizeof t->p50_s[0], by_value);
    out->memory_bytes = times.plan_bytes;
    out->flops = ht_cost_flops(times.cost);
    out->p50_ms = 1e3 * t->p50_s[rounds / 2];
    out->p99_ms = 1e3 * ht_infer_samples_quantile(&t->samples, 0.99);
}

static void find_ratio(const timed_run runs[2], int rounds, ht_compress_ratio *out)
{
    double ratios[MOST_ROUNDS];
    for (int i = 0; i < rounds; i++) ratios[i] = runs[1].p50_s[i] / runs[0].p50_s[i];
    qsort(ratios, (size_t)rounds, sizeof ratios[0], by_value);
    *out = (ht_compress_ratio){ratios[rounds / 4], ratios[rounds - 1 - rounds / 4], rounds};
}

ht_status ht_compress_compare_cost(ht_context *ctx, const ht_compress_request *request, const char *const folders[2],
                                   ht_compress_figures *const out[2], ht_compress_ratio *ratio)
{
    timed_run *runs = calloc(2, sizeof *runs);
    int rounds = 0;
    if (!runs) HT_FAIL(ctx, HT_ENOMEM, "out of memory for times");
    for (int i = 0; i < 2; i++) runs[i].recorded = (recorded){.ctx = ctx, .request = request};
    ht_status status = open_timed(&runs[0], folders[0], out[0]->batch);
    if (status == HT_OK) status = open_timed(&runs[1], folders[1], out[1]->batch);
    if (status == HT_OK) status = time_rounds(runs, &rounds);
    if (status == HT_OK) find_ratio(runs, rounds, ratio);
    for (int i = 0; i < 2; i++) {
        if (status == HT_OK) put_cost(&runs[i], rounds, out[i]);
        close_timed(&runs[i]);
    }
    free(runs);
    return status;
}

ht_status ht_compress_measure_throughput(ht_compress_figures *out, ht_context *ctx, const ht_compress_request *request,
                                         const char *folder)
{
    recorded r = {.ctx = ctx, .request = request};
    ht_status status = open_recorded(&r, folder);
    if (status == HT_OK) measure_throughput(&r, folder, out);
    close_recorded(&r);
    return status;
}

void ht_compress_put_worth(ht_json_writer *json, const ht_compress_figures *f)
{
    ht_json_begin_object(json, "quality");
    ht_json_put_number(json, "loss", f->loss);
    ht_json_put_number(json, "perplexity", f->perplexity);
    ht_json_put_number(json, "accuracy", f->accuracy);
    if (!isnan(f->bleu)) ht_json_put_number(json, "bleu", f->bleu);
    ht_json_end_object(json);
    ht_json_put_int(json, "parameters", f->parameters);
    ht_json_put_int(json, "nonzero", f->nonzero);
    ht_json_put_int(json, "disk_bytes", f->disk_bytes);
}

void ht_compress_put_figures(ht_json_writer *json, const char *key, const ht_compress_figures *f)
{
    ht_json_begin_object(json, key);
    ht_compress_put_worth(json, f);
    ht_json_put_int(json, "memory_bytes", f->memory_bytes);
    ht_json_put_int(json, "batch", f->batch);
    ht_json_put_number(json, "flops", f->flops);
    ht_json_put_number(json, "p50_ms", f->p50_ms);
    ht_json_put_number(json, "p99_ms", f->p99_ms);
    if (!isnan(f->items_per_s)) ht_json_put_number(json, "items_per_s", f->items_per_s);
    if (!isnan(f->items_per_s)) ht_json_put_int(json, "best_batch", f->best_batch);
    ht_json_end_object(json);
}
