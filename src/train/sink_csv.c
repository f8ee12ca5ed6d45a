/* The sink for the csv files of DeepSpeed's csv_monitor, by its names; on where the engine config says so. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "train/folder.h"
#include "train/metrics.h"

enum { CSV_LOSS, CSV_SCALE, CSV_LR, CSV_FILES };
static const char csv_prefix[] = "Train_Samples_"; /* of file names; a header goes without it */
static const char *const csv_names[CSV_FILES] = {"Train_Samples_train_loss", "Train_Samples_loss_scale",
                                                 "Train_Samples_lr"};

typedef struct csv {
    ht_context *ctx;
    FILE *files[CSV_FILES]; /* that of the scale is NULL where losses have none */
    int64_t batch;
} csv;

/* The first field of a line: samples so far. The header counts as 0 and stays. */
static int64_t samples_of_line(const char *line)
{
    char *end;
    int64_t samples = strtoll(line, &end, 10);
    return *end == ',' ? samples : 0;
}

static ht_status open_file(csv *s, const char *folder, int which, int64_t step)
{
    char *path, name[64];
    snprintf(name, sizeof name, "%s.csv", csv_names[which]);
    HT_TRY(ht_folder_path(s->ctx, &path, folder, name));
    ht_status status = HT_OK;
    if (step > 0) status = ht_sink_cut(s->ctx, path, step * s->batch, samples_of_line, &(ht_sink_kept){0});
    if (status == HT_OK && !(s->files[which] = fopen(path, step > 0 ? "abe" : "wbe")))
        status = ht_fail(s->ctx, HT_EIO, "%s: %s", path, strerror(errno));
    if (status == HT_OK && fseek(s->files[which], 0, SEEK_END) == 0 && ftell(s->files[which]) == 0)
        fprintf(s->files[which], "step,%s\n", csv_names[which] + strlen(csv_prefix));
    free(path);
    return status;
}

static ht_status csv_open(void **state, const ht_sink_request *request)
{
    const ht_fields *engine = ht_config_block(request->config, "engine");
    const ht_train_config *train = ht_config_train(request->config);
    bool scaled = strcmp(train->loss_scale, "none") != 0;
    char *folder = NULL;
    if (!ht_config_has_engine(request->config) || !ht_field_bool(engine, "csv_monitor.enabled")) return HT_OK;
    csv *s = *state = calloc(1, sizeof *s);
    if (!s) HT_FAIL(request->ctx, HT_ENOMEM, "out of memory for metrics");
    s->ctx = request->ctx;
    s->batch = train->batch;
    ht_status status = ht_sink_monitor_folder(request, "csv_monitor", &folder);
    for (int i = 0; i < CSV_FILES && status == HT_OK; i++)
        if (i != CSV_SCALE || scaled) status = open_file(s, folder, i, request->step);
    free(folder);
    return status;
}

static ht_status put(csv *s, int which, int64_t step, double value)
{
    ht_text number = {0};
    if (!s->files[which]) return HT_OK;
    ht_text_number(&number, value);
    bool wrote = number.data && fprintf(s->files[which], "%" PRId64 ",%s\n", step * s->batch, number.data) > 0 &&
                 fflush(s->files[which]) == 0;
    ht_text_free(&number);
    if (!wrote) HT_FAIL(s->ctx, HT_EIO, "%s.csv: %s", csv_names[which], strerror(errno));
    return HT_OK;
}

static ht_status csv_step(void *state, const ht_step_report *r)
{
    HT_TRY(put(state, CSV_LOSS, r->step, r->loss));
    HT_TRY(put(state, CSV_SCALE, r->step, r->loss_scale));
    return put(state, CSV_LR, r->step, r->lr);
}

static ht_status csv_close(void *state)
{
    csv *s = state;
    ht_status status = HT_OK;
    for (int i = 0; i < CSV_FILES; i++)
        if (s->files[i] && fclose(s->files[i]) != 0)
            status = ht_fail(s->ctx, HT_EIO, "%s.csv: %s", csv_names[i], strerror(errno));
    free(s);
    return status;
}

const ht_sink ht_sink_csv = {csv_open, csv_step, NULL, NULL, NULL, csv_close, NULL};
