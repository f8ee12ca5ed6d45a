/* What the commands that take a job file have in common. */
#ifndef HT_CLI_JOB_OPTIONS_H
#define HT_CLI_JOB_OPTIONS_H

#include "cli/option_table.h"
#include "train/train.h"

enum { CLI_MOST_SETS = 256 };

/* A request for ht_config_read that knows all models and data formats. */
typedef struct cli_job {
    ht_config_request request;
    const char *sets[CLI_MOST_SETS];
    char device[64]; /* the setting that --device stands for */
    ht_block_keys blocks[HT_MOST_JOB_BLOCKS];
} cli_job;

/* Rows for a command with a cli_job in its struct: --device; also --set; also --deepspeed; also the file itself. */
extern const cli_option cli_device_rows[];
extern const cli_option cli_set_rows[];
extern const cli_option cli_override_rows[];
extern const cli_option cli_job_rows[];

/* Before the first reading, once options are stored. */
void cli_job_start(cli_job *job);
/* All problems to stderr, a line each. */
void cli_print_problems(const ht_problems *problems);
/* Reads the config and tells its problems; *out is NULL unless the result is CLI_DONE. */
int cli_job_read(const cli_job *job, ht_context *ctx, ht_config **out);

/* A run's folder as a job: what it recorded, with the settings of the command line. */
typedef struct cli_recorded {
    ht_config *config;
    char *data_folder; /* where the run was started; NULL: not known */
    char *text;        /* what the config was read from */
    char path[4096];
} cli_recorded;

/* For commands that read a run, by the name of one for messages. Call cli_recorded_close after a failure, too. */
int cli_recorded_open(cli_recorded *recorded, cli_job *job, ht_context *ctx, const char *command, const char *run);
void cli_recorded_close(cli_recorded *recorded);

#endif
