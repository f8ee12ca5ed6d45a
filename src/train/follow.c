#include "train/follow.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "train/folder.h"
#include "train/run_lock.h"

enum {
    PIECE = 1 << 16,
    MOST_LINE = 1 << 20,  /* a longer line is none of ours */
    MARK = 1024,          /* bytes before the place that was read last: they tell whether it is still the same file */
    MOST_LOSSES = 2048,   /* then neighbours are joined */
    RECENT = 50,          /* steps that the pace is a mean of */
    LINES_PER_ARENA = 256 /* memory of parsed lines goes now and then */
};

const char *const ht_run_state_names[HT_RUN_STATE_COUNT] = {"waiting", "training", "done", "stopped", "died"};

struct ht_follower {
    ht_context *ctx;
    char *folder, *metrics, *config;
    off_t offset; /* behind the last whole line that was read */
    char mark[MARK];
    size_t mark_length;
    char *buffer; /* what was read behind it */
    size_t buffer_capacity;
    ht_arena *arena;
    int lines;
    bool any, ended, described; /* records; the last of them is an end; the config was read */
    ht_run_status status;
    double losses[MOST_LOSSES], loss_sum;
    int64_t loss_used; /* steps in loss_sum */
    double recent_ms[RECENT], recent_rate[RECENT];
    size_t recent;
};

ht_status ht_follower_open(ht_follower **out, ht_context *ctx, const char *folder)
{
    ht_follower *f = *out = calloc(1, sizeof *f);
    if (!f) HT_FAIL(ctx, HT_ENOMEM, "out of memory to follow a run");
    f->ctx = ctx;
    f->folder = strdup(folder);
    f->status.loss_steps = 1;
    ht_status status = f->folder ? HT_OK : ht_fail(ctx, HT_ENOMEM, "out of memory to follow a run");
    if (status == HT_OK) status = ht_folder_path(ctx, &f->metrics, folder, "metrics.jsonl");
    if (status == HT_OK) status = ht_folder_path(ctx, &f->config, folder, "config.resolved.json");
    if (status == HT_OK) return HT_OK;
    ht_follower_free(f);
    *out = NULL;
    return status;
}

void ht_follower_free(ht_follower *f)
{
    if (!f) return;
    ht_arena_free(f->arena);
    free(f->folder);
    free(f->metrics);
    free(f->config);
    free(f->buffer);
    free(f);
}

static void start_over(ht_follower *f)
{
    f->offset = 0;
    f->mark_length = 0;
    f->any = f->ended = f->described = false;
    f->status = (ht_run_status){.loss_steps = 1};
    f->loss_sum = 0;
    f->loss_used = 0;
    f->recent = 0;
}

/* ---- records ---- */

static double number(const ht_json *record, const char *key)
{
    double value;
    return ht_json_as_number(ht_json_get(record, key), &value) ? value : NAN;
}

static int64_t integer(const ht_json *record, const char *key)
{
    int64_t value;
    const ht_json *member = ht_json_get(record, key);
    return member && ht_json_as_int(member, &value) ? value : 0;
}

static bool truth(const ht_json *record, const char *key)
{
    const ht_json *member = ht_json_get(record, key);
    return member && member->kind == HT_JSON_BOOL && member->boolean;
}

static ht_exchange_report exchange_of(const ht_json *record)
{
    return (ht_exchange_report){
        .known = ht_json_get(record, "exchange_ms") != NULL,
        .ms = number(record, "exchange_ms"),
        .bytes = integer(record, "exchange_bytes"),
        .hidden_share = number(record, "hidden_share"),
    };
}

/* A curve of any length in the same memory: where it is full, two neighbours become one. */
static void add_loss(ht_follower *f, double loss)
{
    ht_run_status *s = &f->status;
    f->loss_sum += loss;
    if (++f->loss_used < s->loss_steps) return;
    f->losses[s->loss_count++] = f->loss_sum / (double)f->loss_used;
    f->loss_sum = 0;
    f->loss_used = 0;
    if (s->loss_count < MOST_LOSSES) return;
    s->loss_count /= 2;
    s->loss_steps *= 2;
    for (size_t i = 0; i < s->loss_count; i++) f->losses[i] = (f->losses[2 * i] + f->losses[2 * i + 1]) / 2;
}

static void take_step(ht_follower *f, const ht_json *record)
{
    ht_step_report *r = &f->status.step;
    int64_t steps = integer(record, "steps");
    *r = (ht_step_report){
        .step = integer(record, "step"),
        .steps = steps ? steps : r->steps,
        .epoch = number(record, "epoch"),
        .loss = number(record, "loss"),
        .lr = number(record, "lr"),
        .grad_norm = number(record, "grad_norm"),
        .loss_scale = number(record, "loss_scale"),
        .tokens_per_second = number(record, "tokens_per_second"),
        .step_ms = number(record, "step_ms"),
        .micro_ms = number(record, "micro_ms"),
        .update_ms = number(record, "update_ms"),
        .plan_bytes = integer(record, "plan_bytes"),
        .process_peak_bytes = integer(record, "process_peak_bytes"),
        .syncs = integer(record, "syncs"),
        .skipped = truth(record, "skipped"),
        .skips = integer(record, "skips"),
        .exchange = exchange_of(record),
    };
    add_loss(f, r->loss);
    f->recent_ms[f->recent % RECENT] = r->step_ms;
    f->recent_rate[f->recent % RECENT] = r->tokens_per_second;
    f->recent++;
}

static void take_eval(ht_follower *f, const ht_json *record)
{
    f->status.eval = (ht_eval_report){
        .step = integer(record, "step"),
        .count = integer(record, "count"),
        .loss = number(record, "loss"),
        .perplexity = number(record, "perplexity"),
        .accuracy = number(record, "accuracy"),
        .seconds = number(record, "seconds"),
    };
}

static void take_end(ht_follower *f, const ht_json *record)
{
    f->ended = true;
    f->status.end = (ht_end_report){
        .step = integer(record, "step"),
        .seconds = number(record, "seconds"),
        .plan_bytes = integer(record, "plan_bytes"),
        .process_peak_bytes = integer(record, "process_peak_bytes"),
        .exchange = exchange_of(record),
    };
}

/* The kinds of record, and who takes them; others may come with a later version. */
static const struct {
    const char *kind;
    void (*take)(ht_follower *f, const ht_json *record);
} kinds[] = {{"step", take_step}, {"eval", take_eval}, {"end", take_end}};

static ht_status take_line(ht_follower *f, const char *line, size_t length)
{
    const ht_json *record;
    if (!f->arena || ++f->lines % LINES_PER_ARENA == 0) {
        ht_arena_free(f->arena);
        f->arena = ht_arena_create();
        if (!f->arena) HT_FAIL(f->ctx, HT_ENOMEM, "%s: out of memory", f->metrics);
    }
    ht_status status = ht_json_parse(f->ctx, f->arena, f->metrics, line, length, &record);
    if (status == HT_ENOMEM) return status;
    const ht_json *kind = status == HT_OK ? ht_json_get(record, "kind") : NULL;
    if (!kind || kind->kind != HT_JSON_STRING) {
        f->status.damaged++;
        return HT_OK;
    }
    f->any = true;
    f->ended = false;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++)
        if (strcmp(kind->text, kinds[i].kind) == 0) kinds[i].take(f, record);
    return HT_OK;
}

/* ---- the file ---- */

/* Is what was read last still there? A run that goes on cuts the file and writes the same steps again. */
static bool is_same_file(const ht_follower *f, int file)
{
    char now[MARK];
    return pread(file, now, f->mark_length, f->offset - (off_t)f->mark_length) == (ssize_t)f->mark_length &&
           memcmp(now, f->mark, f->mark_length) == 0;
}

/* The whole lines of what is in the buffer; how many bytes they are. */
static ht_status take_lines(ht_follower *f, size_t length, size_t *used)
{
    *used = 0;
    for (char *end; (end = memchr(f->buffer + *used, '\n', length - *used)); *used = (size_t)(end - f->buffer) + 1)
        HT_TRY(take_line(f, f->buffer + *used, (size_t)(end - f->buffer) - *used));
    if (*used == 0) return HT_OK;
    f->mark_length = *used < MARK ? *used : MARK;
    memcpy(f->mark, f->buffer + *used - f->mark_length, f->mark_length);
    f->offset += (off_t)*used;
    return HT_OK;
}

static ht_status read_on(ht_follower *f, int file)
{
    size_t length = 0, want = PIECE;
    for (;;) {
        if (!ht_grow((void **)&f->buffer, &f->buffer_capacity, want, 1))
            HT_FAIL(f->ctx, HT_ENOMEM, "%s: out of memory", f->metrics);
        ssize_t got = pread(file, f->buffer, want, f->offset);
        if (got < 0) HT_FAIL(f->ctx, HT_EIO, "%s: %s", f->metrics, strerror(errno));
        HT_TRY(take_lines(f, (size_t)got, &length));
        bool all = (size_t)got < want;
        if (length == 0 && !all && want >= MOST_LINE)
            HT_FAIL(f->ctx, HT_EPARSE, "%s: a line of more than %d bytes", f->metrics, MOST_LINE);
        if (all) return HT_OK;
        if (length == 0) want *= 2;
    }
}

static ht_status read_metrics(ht_follower *f)
{
    struct stat has;
    int file = open(f->metrics, O_RDONLY | O_CLOEXEC);
    if (file < 0 && errno != ENOENT && errno != ENOTDIR) HT_FAIL(f->ctx, HT_EIO, "%s: %s", f->metrics, strerror(errno));
    if (file < 0 || !is_same_file(f, file)) start_over(f);
    f->status.record_age = NAN;
    if (file < 0) return HT_OK;
    if (fstat(file, &has) == 0) f->status.record_age = fmax(0, difftime(time(NULL), has.st_mtim.tv_sec));
    ht_status status = read_on(f, file);
    close(file);
    return status;
}

/* ---- what the run is ---- */

static void copy_value(const ht_json *values, const char *key, char *out, size_t capacity)
{
    const ht_json *value = ht_json_get(ht_json_get(values, key), "value");
    snprintf(out, capacity, "%s", value && value->kind == HT_JSON_STRING ? value->text : "");
}

/* A config that is not there yet, or is damaged, only leaves out names. */
static void describe(ht_follower *f)
{
    char *text = NULL;
    size_t length;
    const ht_json *root = NULL;
    if (f->described || access(f->config, R_OK) != 0) return;
    if (ht_read_file(f->ctx, &text, &length, f->config) != HT_OK) return;
    ht_arena *arena = ht_arena_create();
    if (arena && ht_json_parse(f->ctx, arena, f->config, text, length, &root) == HT_OK) {
        const ht_json *values = ht_json_get(root, "values");
        copy_value(values, "model.type", f->status.model, sizeof f->status.model);
        copy_value(values, "train.precision", f->status.precision, sizeof f->status.precision);
        if (!f->status.step.steps) f->status.step.steps = integer(ht_json_get(values, "train.steps"), "value");
    }
    ht_arena_free(arena);
    free(text);
    f->described = true;
}

/* Of the numbers that the records have; NAN: none has. */
static double mean_of(const double *list, size_t count)
{
    double sum = 0;
    size_t there = 0;
    for (size_t i = 0; i < count; i++)
        if (!isnan(list[i])) sum += list[i], there++;
    return there ? sum / (double)there : NAN;
}

static void find_pace(ht_follower *f)
{
    ht_run_status *s = &f->status;
    size_t count = f->recent < RECENT ? f->recent : RECENT;
    s->step_ms = mean_of(f->recent_ms, count);
    s->tokens_per_second = mean_of(f->recent_rate, count);
    s->seconds_left = s->step.steps >= s->step.step ? s->step_ms / 1e3 * (double)(s->step.steps - s->step.step) : NAN;
}

ht_status ht_follower_look(ht_follower *f, ht_run_status *out)
{
    char holder[sizeof f->status.holder];
    /* First: a run that has let go of its folder has written its last record. */
    bool held = ht_run_lock_is_held(f->ctx, f->folder, holder, sizeof holder);
    HT_TRY(read_metrics(f));
    describe(f);
    find_pace(f);
    ht_run_status *s = &f->status;
    memcpy(s->holder, holder, sizeof holder);
    s->losses = f->losses;
    s->state = held                          ? HT_RUN_STATE_TRAINING
               : !f->any && !f->described    ? HT_RUN_STATE_WAITING
               : !f->ended                   ? HT_RUN_STATE_DIED
               : s->end.step < s->step.steps ? HT_RUN_STATE_STOPPED
                                             : HT_RUN_STATE_DONE;
    *out = *s;
    return HT_OK;
}
