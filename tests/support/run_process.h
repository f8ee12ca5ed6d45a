/* Runs of the program as processes of their own, to be stopped, resumed and compared. */
#ifndef HT_TESTS_RUN_PROCESS_H
#define HT_TESTS_RUN_PROCESS_H

#include <sys/types.h>

#include "cli_case.h"

typedef struct run_process {
    pid_t process;
    FILE *lines; /* its standard output */
} run_process;

/* "sums.txt" and "job.json": a small transformer with dropout and a schedule, 60 steps of two micro-batches, a snapshot
 * every fourth step, records of every step, into "run". */
void run_write_job(data_case *c);
/* `halftone ARGUMENTS` in the case's folder, with that many threads; standard error is added to the file "notes". */
run_process run_begin(const data_case *c, int threads, const char *arguments);
/* Waits until the run says that it has made that many steps; false when it ended before. */
bool run_wait_for_step(run_process *p, int step);
/* Reads on to the end; the exit status, or minus the signal's number. */
int run_end(run_process *p);
/* Fails unless the folders "whole" and "run" have the same records, to the last digit of a loss, and the same last
 * snapshot. Times may differ, and so may the folder's name in the config that a manifest holds. */
void run_expect_the_same(const data_case *c);
/* A pause of up to `seconds`. */
void run_sleep(double seconds);

#endif
