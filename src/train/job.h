/* A job as the loop sees it: data, and a session of the training step that fits it. */
#ifndef HT_TRAIN_JOB_H
#define HT_TRAIN_JOB_H

#include "train/train.h"

typedef struct ht_job {
    ht_context *ctx;
    const ht_config *config;
    const ht_train_config *train_config;
    ht_target target;        /* one for all passes and the plan */
    ht_pass_options options; /* of all passes */
    const ht_model *model;
    const ht_data_format *format;
    ht_task task;
    ht_vocabulary *vocabulary, *source_vocabulary; /* as an earlier start recorded them, or NULL */
    ht_data *data;
    bool borrows_data;            /* they are the request's */
    const char *data_folder;      /* where relative paths of the data begin; NULL: here */
    ht_inputs *inputs;            /* of a run that predicts, or NULL */
    int64_t batch;                /* rows */
    int64_t rank, ranks;          /* of the data axis: that share the batch of a step */
    int64_t world;                /* ranks of all axes */
    ht_parallel_options parallel; /* its other axes */
    ht_plan *plan;
    ht_session *session;
    ht_comm *comm;      /* the world; NULL: of one */
    int64_t steps;      /* of the whole run */
    int64_t parameters; /* trained elements */
    int64_t frozen;     /* elements of parameters that train.freeze leaves as they are */
    ht_reserve reserve; /* what the process may need beyond the plan */
    bool mean_loss;     /* a graph of the user's own whose loss is a mean already */
} ht_job;

/* A run that writes nothing and trains nothing. */
bool ht_mode_reads_only(ht_run_mode mode);

/* `recorded`: the folder of a run whose vocabularies and target are to be used, or NULL. After a failure, too, ht_job_close. */
ht_status ht_job_open(ht_job *job, ht_context *ctx, const ht_run_request *request, const char *recorded);
/* All of it but memory and session, whether it fits or not. */
ht_status ht_job_open_plan(ht_job *job, ht_context *ctx, const ht_run_request *request, const char *recorded);
void ht_job_close(ht_job *job);
/* A plan of the job's own graph once more, and a session of it: for those who want to look into a step. Without fusion
 * every value is made; the bits are the same. */
ht_status ht_job_plan(ht_job *job, const ht_run_request *request, bool fusion, ht_plan **out);
ht_status ht_job_session(const ht_job *job, const ht_plan *plan, ht_session **out);
/* The model hash, which depends on the rows of a micro-batch, with so many of them. */
ht_status ht_job_model_hash(ht_job *job, const ht_run_request *request, int64_t micro_batch, uint64_t *out);

/* ranks.c: how many ranks each axis has, and which of them a rank of the world is. */
void ht_axes_of_rank(const ht_train_config *config, int64_t rank, ht_axis *data, ht_axis *pipeline, ht_axis *tensor);

/* offload_job.c: the options that the config asks for; a line that tells what lies where, unless all is in main. */
ht_offload_options ht_job_offload(const ht_train_config *config);
void ht_job_tell_offload(const ht_job *job, const ht_run_request *request);

/* What a replay has to know of a run. */
typedef struct ht_run_view {
    ht_job *job;
    const ht_run_request *request;
    struct ht_batch_binding *binding;
    ht_loader *train; /* NULL in a run that evaluates */
    int64_t step;     /* steps made */
} ht_run_view;
ht_run_view ht_run_look(ht_run *run);

/* The names of a vocabulary's file in the run's folder. */
extern const char *const ht_vocabulary_files[2];
/* That of the target that it was planned for; that of what the data set learned from its training part. */
extern const char ht_target_file[], ht_facts_file[];
/* That of the copy of a model's own file, and the name of its checksum in the resolved config. */
extern const char ht_model_file[];

#endif
