/* The sink for TensorBoard: an events file in the run's folder, by steps. Where the engine config's tensorboard block is
 * on: in the folder that it says, under DeepSpeed's tags, by samples. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "format/format.h"
#include "train/folder.h"
#include "train/metrics.h"

static const char file_prefix[] = "events.out.tfevents.";

typedef struct tensorboard {
    ht_events *events;
    bool scaled;  /* losses have a scale that is worth a curve */
    bool theirs;  /* DeepSpeed's tags */
    int64_t unit; /* what a step counts for on the axis: 1, or its samples */
} tensorboard;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static ht_status tensorboard_open(void **state, const ht_sink_request *request)
{
    const ht_fields *engine = ht_config_block(request->config, "engine");
    char *folder = NULL, *path = NULL, name[96];
    ht_status status = HT_OK;
    tensorboard *s = *state = calloc(1, sizeof *s);
    if (!s) HT_FAIL(request->ctx, HT_ENOMEM, "out of memory for metrics");
    const ht_train_config *train = ht_config_train(request->config);
    s->scaled = strcmp(train->loss_scale, "none") != 0;
    s->theirs = ht_config_has_engine(request->config) && ht_field_bool(engine, "tensorboard.enabled");
    s->unit = s->theirs ? train->batch : 1;
    if (s->theirs) status = ht_sink_monitor_folder(request, "tensorboard", &folder);
    snprintf(name, sizeof name, "%s%lld.%ld.halftone", file_prefix, (long long)now(), (long)getpid());
    if (status == HT_OK) status = ht_folder_path(request->ctx, &path, folder ? folder : request->folder, name);
    if (status == HT_OK) status = ht_events_open(&s->events, request->ctx, path, now());
    if (status == HT_OK) status = ht_events_start(s->events, now(), request->step * s->unit + 1);
    free(folder);
    free(path);
    return status;
}

/* A curve's tag, and DeepSpeed's. */
typedef struct curve {
    const char *ours, *theirs;
} curve;

static ht_status put_scalars(tensorboard *s, int64_t step, size_t count, const curve *curves, const double *values)
{
    double wall = now();
    for (size_t i = 0; i < count; i++) {
        const char *tag = s->theirs ? curves[i].theirs : curves[i].ours;
        if (!isnan(values[i])) HT_TRY(ht_events_scalar(s->events, wall, step * s->unit, tag, (float)values[i]));
    }
    return HT_OK;
}

static ht_status tensorboard_step(void *state, const ht_step_report *r)
{
    tensorboard *s = state;
    static const curve curves[] = {
        {"train/loss", "Train/Samples/train_loss"},     {"train/lr", "Train/Samples/lr"},
        {"train/grad_norm", "Train/Samples/grad_norm"}, {"train/tokens_per_second", "Train/Samples/tokens_per_second"},
        {"train/step_ms", "Train/Samples/step_ms"},     {"train/loss_scale", "Train/Samples/loss_scale"},
    };
    const double values[] = {
        r->loss, r->lr, r->grad_norm, r->tokens_per_second, r->step_ms, s->scaled ? r->loss_scale : NAN};
    return put_scalars(s, r->step, sizeof curves / sizeof curves[0], curves, values);
}

static ht_status tensorboard_eval(void *state, const ht_eval_report *r)
{
    static const curve curves[] = {
        {"eval/loss", "Eval/Samples/eval_loss"},
        {"eval/perplexity", "Eval/Samples/perplexity"},
        {"eval/accuracy", "Eval/Samples/accuracy"},
    };
    const double values[] = {r->loss, r->perplexity, r->accuracy};
    return put_scalars(state, r->step, sizeof curves / sizeof curves[0], curves, values);
}

static ht_status tensorboard_flush(void *state)
{
    return ht_events_flush(((tensorboard *)state)->events);
}

static ht_status tensorboard_close(void *state)
{
    tensorboard *s = state;
    ht_status status = ht_events_close(s->events);
    free(s);
    return status;
}

static bool tensorboard_owns(const char *name)
{
    return strncmp(name, file_prefix, sizeof file_prefix - 1) == 0;
}

const ht_sink ht_sink_tensorboard = {tensorboard_open,  tensorboard_step,  tensorboard_eval, NULL,
                                     tensorboard_flush, tensorboard_close, tensorboard_owns};
