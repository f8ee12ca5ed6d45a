/* Small jobs of three families in three precisions, trained as whole runs, and runs that must be the same bit for bit. */
#ifndef HT_TESTS_RUN_CASE_H
#define HT_TESTS_RUN_CASE_H

#include "cli_case.h"

typedef struct run_job {
    const char *name, *model, *data;
    int scale_power; /* of a first loss scale that fp16 cannot bear */
} run_job;

enum { RUN_JOBS = 3, RUN_MODES = 3, RUN_STEPS = 5, RUN_LONG_STEPS = 50 };
extern const run_job run_jobs[RUN_JOBS];
/* Options: fp32, fp16 with a dynamic scale that skips steps, bf16. */
extern const char *const run_modes[RUN_MODES];

/* make test-long */
bool run_is_long(void);
/* job.json and dynamic.json, with their data. */
void run_case_write(data_case *c, const run_job *job);
/* Two run folders, but for times, counts of synchronisations, and bytes. */
void run_expect_same(const data_case *c, const char *a, const char *b);
/* A run of job.json; `environment` and `options` may be "". */
void run_train(const data_case *c, const char *folder, const char *environment, const char *options);

#endif
