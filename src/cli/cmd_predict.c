/* halftone predict: what a run's newest snapshot says of new inputs. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "cli/answers.h"
#include "cli/job_options.h"

typedef struct predict_job {
    cli_job job_options;
    const char *run;
    const char **inputs;
    size_t input_count, input_capacity;
    int64_t batch, beam;
    bool json, logits;
} predict_job;

/* What is printed, a batch at a time. */
typedef struct printing {
    const predict_job *job;
    ht_context *ctx;
    ht_run *run;
    ht_text text;
} printing;

static void put_outputs(ht_json_writer *json, const char *key, const cli_answer *answer)
{
    ht_json_begin_array(json, key);
    for (int64_t i = 0; i < answer->count; i++) ht_json_put_number(json, NULL, answer->outputs[i]);
    ht_json_end_array(json);
}

static void put_class(ht_json_writer *json, const ht_data *data, const cli_answer *answer)
{
    const char *name = ht_data_class_name(data, answer->class);
    if (!answer->asked)
        ht_json_put_null(json, "class");
    else if (name)
        ht_json_put_text(json, "class", name);
    else
        ht_json_put_int(json, "class", answer->class);
}

static void put_value(ht_json_writer *json, const cli_answer *answer)
{
    if (answer->count == 1)
        ht_json_put_number(json, "value", answer->outputs[0]);
    else
        put_outputs(json, "value", answer);
}

static void add_json(printing *p, const cli_answer *answer)
{
    ht_json_writer json = {.text = &p->text};
    ht_task task = ht_run_info_of(p->run).task;
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "input", answer->input);
    if (task == HT_TASK_PAIRS)
        ht_json_put_text(&json, "text", answer->asked ? answer->text : "");
    else if (task == HT_TASK_CLASS)
        put_class(&json, ht_run_data(p->run), answer);
    else
        put_value(&json, answer);
    ht_json_put_number(&json, "probability", answer->asked ? answer->probability : NAN);
    if (p->job->logits && answer->asked) put_outputs(&json, "logits", answer);
    ht_json_end_object(&json);
    ht_text_add(&p->text, "\n");
}

static void add_line(printing *p, const cli_answer *answer)
{
    ht_task task = ht_run_info_of(p->run).task;
    const char *name = ht_data_class_name(ht_run_data(p->run), answer->class);
    ht_text_add(&p->text, "%s\t", answer->input);
    if (answer->asked && task == HT_TASK_PAIRS) ht_text_add(&p->text, "%s", answer->text);
    if (answer->asked && task == HT_TASK_CLASS && name) ht_text_add(&p->text, "%s", name);
    if (answer->asked && task == HT_TASK_CLASS && !name) ht_text_add(&p->text, "%" PRId64, answer->class);
    for (int64_t i = 0; task == HT_TASK_REGRESSION && i < answer->count; i++)
        ht_text_add(&p->text, "%s%.6g", i ? " " : "", answer->outputs[i]);
    if (answer->asked && !isnan(answer->probability)) ht_text_add(&p->text, "\t%.4g", answer->probability);
    ht_text_add(&p->text, "\n");
}

static ht_status on_answer(void *arg, const cli_answer *answer)
{
    enum { FLUSH_BYTES = 1 << 14 };
    printing *p = arg;
    if (p->job->json)
        add_json(p, answer);
    else
        add_line(p, answer);
    if (p->text.length < FLUSH_BYTES) return HT_OK;
    if (cli_put(&p->text) != CLI_DONE) return HT_EIO; /* which was told */
    p->text = (ht_text){0};
    return HT_OK;
}

static int fail(ht_context *ctx, ht_status status)
{
    return cli_fail(status == HT_ENOTSUP ? CLI_WRONG : cli_end_of(status), "predict: %s", ht_context_message(ctx));
}

static int predict(const predict_job *job, ht_context *ctx, const cli_recorded *recorded)
{
    ht_run *run;
    ht_run_request request = {.config = recorded->config,
                              .mode = HT_RUN_PREDICT,
                              .folder = job->run,
                              .data_folder = recorded->data_folder,
                              .inputs = job->inputs,
                              .input_count = job->input_count,
                              .batch = job->batch,
                              .beam = job->beam};
    ht_status status = ht_run_open(&run, ctx, &request);
    if (status == HT_OK && job->logits && ht_run_info_of(run).task == HT_TASK_PAIRS)
        status = ht_fail(ctx, HT_EINVAL, "--logits: a translation has no logits of its own, only its tokens have");
    if (status != HT_OK) {
        ht_run_close(run);
        return fail(ctx, status);
    }
    printing p = {.job = job, .ctx = ctx, .run = run};
    status = cli_answer_all(ctx, run, job->beam, on_answer, &p);
    int end = cli_put(&p.text);
    if (status != HT_OK) end = fail(ctx, status);
    ht_run_close(run);
    return end;
}

static int run_predict(void *arg)
{
    predict_job *job = arg;
    ht_context *ctx;
    cli_recorded recorded = {0};
    int end = CLI_DONE;
    if (job->logits && !job->json) end = cli_fail(CLI_WRONG, "predict: --logits comes with --json");
    if (end == CLI_DONE && (end = cli_context(&ctx)) == CLI_DONE) {
        cli_job_start(&job->job_options);
        end = cli_recorded_open(&recorded, &job->job_options, ctx, "predict", job->run);
        if (end == CLI_DONE) end = predict(job, ctx, &recorded);
        cli_recorded_close(&recorded);
        ht_context_free(ctx);
    }
    return end;
}

static void release(void *arg)
{
    free(((predict_job *)arg)->inputs);
}

static int take_input(const cli_given *given, char *value)
{
    predict_job *job = given->at;
    struct stat about;
    bool is_file = strcmp(value, "-") != 0;
    if (is_file && stat(value, &about) != 0) return cli_fail(CLI_WRONG, "predict: %s: %s", value, strerror(errno));
    if (is_file && S_ISDIR(about.st_mode)) return cli_fail(CLI_WRONG, "predict: %s: a folder, not a file", value);
    if (!ht_grow((void **)&job->inputs, &job->input_capacity, job->input_count + 1, sizeof *job->inputs))
        return cli_fail(CLI_FAILED, "predict: out of memory");
    job->inputs[job->input_count++] = value;
    return CLI_DONE;
}

static const cli_option options[] = {
    {"RUN", "run", CLI_ARGUMENT, offsetof(predict_job, run), .help = "the folder of a run"},
    {"INPUT", "input", CLI_ARGUMENT, 0,
     .help = "files to predict on; - is standard input. Lines of text for translators and text classifiers (of a line "
             "with tabs the column that was trained on); for others CSV, npy, IDX or safetensors with one item or "
             "many, and PNG, JPEG, PGM or PPM where images were trained on; gzip is undone",
     .flags = CLI_REPEATED | CLI_STDIN, .take = take_input},
    {"--json", NULL, CLI_FLAG, offsetof(predict_job, json),
     .help =
         "one object on each line: {\"input\", \"class\" or \"value\" or \"text\", \"probability\"}; what there is not "
         "is null"},
    {"--logits", NULL, CLI_FLAG, offsetof(predict_job, logits),
     .help = "with --json: also \"logits\", the outputs of the model, a number for each class"},
    {"--batch", "N", CLI_WHOLE, offsetof(predict_job, batch),
     .help =
         "inputs that are computed together, which may change the last digits; without it as many as a micro-batch of "
         "the training had, but no more than 32",
     .least = 1, .most = 1 << 24},
    {"--beam", "K", CLI_WHOLE, offsetof(predict_job, beam), .help = "of translators: hypotheses per sentence",
     .least = 1, .most = 64, .standard = "1"},
    {.kind = CLI_GROUP, .offset = offsetof(predict_job, job_options), .group = cli_set_rows},
    {0},
};

static const cli_entry examples[] = {
    {"halftone predict run new.csv", "a class or value for each row"},
    {"halftone predict run digit.png other.pgm", "single images"},
    {"halftone predict runs/demo - --beam 4 < english.txt", "translations of lines"},
    {"halftone predict run new.npy --json --logits", "objects with the model's outputs"},
    {0},
};

const cli_command cmd_predict = {
    .name = "predict",
    .summary = "classes, values or translations for new inputs",
    .description =
        "Reads the newest complete snapshot of the run in the folder RUN, which may still be training, and prints a "
        "line "
        "for each input: the input (a sentence itself; the file of an image; else file:line or file[index]), a tab, "
        "its "
        "class, value or translation, and for classes and translations a tab and the probability that the model gives "
        "it. Only the run's folder is needed. Inputs are preprocessed as what was trained on, by the same "
        "vocabularies, "
        "columns, means and sizes; numbers are those that the training files had, before that. Labels that stand "
        "beside are ignored, an empty line gets an empty answer.\n\n"
        "An input that cannot be read is told with its file and line before anything is computed. Language models "
        "have nothing to predict yet: they do not generate text.",
    .options = options,
    .size = sizeof(predict_job),
    .run = run_predict,
    .alone = true,
    .release = release,
    .examples = examples,
    .see_also = "eval train",
};
