#include "cli/answers.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cli/translate.h"

/* The memory of one batch, and who asked. */
typedef struct answering {
    ht_context *ctx;
    ht_run *run;
    ht_session *session;
    const ht_inputs *inputs;
    int64_t rows, length; /* of the batch; tokens of a row, 0: rows are numbers */
    size_t row_elems;     /* of an input row: tokens or numbers */
    void *items;          /* int32_t or float */
    int32_t *lengths;
    cli_answer_fn on_answer;
    void *arg;
} answering;

static ht_status no_memory(ht_context *ctx)
{
    HT_FAIL(ctx, HT_ENOMEM, "out of memory for a batch");
}

/* The names of a task's inputs: items, and how long they are. */
static const char *const *input_names(const answering *a)
{
    static const char *const names[][2] = {{"x", NULL}, {"tokens", "length"}, {"source", "source_length"}};
    if (ht_run_info_of(a->run).task == HT_TASK_PAIRS) return names[2];
    return names[ht_data_info_of(ht_run_data(a->run))->feature_rank == 0];
}

static ht_status open_batch(answering *a)
{
    const char *const *names = input_names(a);
    const ht_slot *slot = ht_plan_slot(a->session->plan, names[0]);
    if (!slot) HT_FAIL(a->ctx, HT_ENOTSUP, "the model has no input '%s'", names[0]);
    a->rows = ht_run_batch(a->run);
    a->row_elems = (size_t)(ht_type_elems(&slot->type) / a->rows);
    if (names[1]) a->length = (int64_t)a->row_elems;
    a->items = calloc(a->row_elems * (size_t)a->rows + 1, sizeof(float));
    a->lengths = calloc((size_t)a->rows, sizeof *a->lengths);
    return a->items && a->lengths ? HT_OK : no_memory(a->ctx);
}

static ht_status write_batch(answering *a, int64_t first)
{
    const char *const *names = input_names(a);
    if (names[1])
        ht_inputs_fill_tokens(a->inputs, first, a->rows, a->length, a->items, a->lengths);
    else
        ht_inputs_fill_numbers(a->inputs, first, a->rows, a->items);
    HT_TRY(ht_session_write(a->session, names[0], a->items, a->row_elems * (size_t)a->rows * sizeof(float)));
    /* A model may do without lengths. */
    if (!names[1] || !ht_plan_slot(a->session->plan, names[1])) return HT_OK;
    return ht_session_write(a->session, names[1], a->lengths, (size_t)a->rows * sizeof *a->lengths);
}

static int64_t rows_asked(const answering *a, int64_t first)
{
    int64_t left = ht_inputs_count(a->inputs) - first;
    return left < a->rows ? left : a->rows;
}

static ht_status give(const answering *a, int64_t item, cli_answer answer)
{
    answer.input = ht_inputs_name(a->inputs, item);
    answer.asked = ht_inputs_asks(a->inputs, item);
    return a->on_answer(a->arg, &answer);
}

/* ---- classes and values ---- */

/* The softmax of the largest, which is the class. */
static void classify(cli_answer *answer)
{
    double sum = 0;
    for (int64_t i = 1; i < answer->count; i++)
        if (answer->outputs[i] > answer->outputs[answer->class]) answer->class = i;
    for (int64_t i = 0; i < answer->count; i++) sum += exp(answer->outputs[i] - answer->outputs[answer->class]);
    answer->probability = 1 / sum;
}

static ht_status answer_outputs(answering *a, double *outputs, int64_t width)
{
    bool classes = ht_run_info_of(a->run).task == HT_TASK_CLASS;
    for (int64_t first = 0; first < ht_inputs_count(a->inputs); first += a->rows) {
        HT_TRY(write_batch(a, first));
        HT_TRY(ht_session_run(a->session, "logits"));
        HT_TRY(ht_session_read_f64(a->session, "logits", outputs, (size_t)(a->rows * width)));
        for (int64_t row = 0; row < rows_asked(a, first); row++) {
            cli_answer answer = {.outputs = outputs + row * width, .count = width, .probability = NAN};
            if (classes) classify(&answer);
            HT_TRY(give(a, first + row, answer));
        }
    }
    return HT_OK;
}

static ht_status answer_items(answering *a)
{
    int64_t width = ht_data_info_of(ht_run_data(a->run))->classes;
    double *outputs = calloc((size_t)(a->rows * width), sizeof *outputs);
    ht_status status = outputs ? answer_outputs(a, outputs, width) : no_memory(a->ctx);
    free(outputs);
    return status;
}

/* ---- translations ---- */

typedef struct translations {
    ht_search_opts opts;
    int32_t *tokens;
    int64_t *lengths;
    double *scores;
} translations;

static ht_status give_translation(const answering *a, const translations *t, int64_t item, int64_t row)
{
    ht_text text = {0};
    int32_t *tokens = t->tokens + row * t->opts.length;
    ht_text_add(&text, "%s", "");
    ht_vocabulary_decode(ht_data_vocabulary(ht_run_data(a->run)), tokens, cli_drop_unknown(tokens, t->lengths[row]),
                         &text);
    cli_answer answer = {.text = text.data, .probability = exp(t->scores[row])};
    ht_status status = text.failed ? no_memory(a->ctx) : give(a, item, answer);
    ht_text_free(&text);
    return status;
}

static ht_status translate_all(answering *a, translations *t)
{
    for (int64_t first = 0; first < ht_inputs_count(a->inputs); first += a->rows) {
        HT_TRY(write_batch(a, first));
        t->opts.rows = rows_asked(a, first);
        HT_TRY(ht_search(a->session, a->ctx, &t->opts, t->tokens, t->lengths, t->scores));
        for (int64_t row = 0; row < rows_asked(a, first); row++) HT_TRY(give_translation(a, t, first + row, row));
    }
    return HT_OK;
}

static ht_status answer_sentences(answering *a, int64_t beam)
{
    const ht_data_info *info = ht_data_info_of(ht_run_data(a->run));
    translations t = {.opts = cli_search_opts(a->rows, beam, info->buckets[info->bucket_count - 1].length)};
    if (ht_plan_segment_find(a->session->plan, "decode_step") < 0)
        HT_FAIL(a->ctx, HT_ENOTSUP, "model %s has no decoder to translate with", ht_run_info_of(a->run).model);
    t.tokens = calloc((size_t)(a->rows * t.opts.length), sizeof *t.tokens);
    t.lengths = calloc((size_t)a->rows, sizeof *t.lengths);
    t.scores = calloc((size_t)a->rows, sizeof *t.scores);
    ht_status status = t.tokens && t.lengths && t.scores ? translate_all(a, &t) : no_memory(a->ctx);
    free(t.tokens);
    free(t.lengths);
    free(t.scores);
    return status;
}

/* ---- all ---- */

ht_status cli_answer_all(ht_context *ctx, ht_run *run, int64_t beam, cli_answer_fn on_answer, void *arg)
{
    answering a = {.ctx = ctx, .run = run, .session = ht_run_session(run), .inputs = ht_run_inputs(run)};
    a.on_answer = on_answer;
    a.arg = arg;
    ht_status status = open_batch(&a);
    if (status == HT_OK)
        status = ht_run_info_of(run).task == HT_TASK_PAIRS ? answer_sentences(&a, beam) : answer_items(&a);
    free(a.items);
    free(a.lengths);
    return status;
}
