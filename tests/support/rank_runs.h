/* Small runs on several ranks, and their losses. */
#ifndef HT_TESTS_RANK_RUNS_H
#define HT_TESTS_RANK_RUNS_H

#include "cli_case.h"

typedef struct rank_case {
    const char *name, *model, *data, *train;
} rank_case;

/* ThreadSanitizer looks for races, which every step has alike, and makes a run ten times as long: then there are fewer
 * steps, and of several numbers of ranks and stages some tests take one. */
#if defined(__SANITIZE_THREAD__)
enum { RANK_RACES = 1, RANK_STEPS = 4 };
#else
enum { RANK_RACES = 0, RANK_STEPS = 12 };
#endif
enum { RANK_LONG_STEPS = 100, RANK_MOST_STEPS = RANK_LONG_STEPS, RANK_STAGES = 3 };

#define RANK_GPT2 "\"type\": \"gpt2\", \"n_layer\": 2, \"n_head\": 2, \"n_embd\": 16, \"dropout\": 0.1"
#define RANK_TEXT "\"format\": \"text\", \"train\": \"text.txt\", \"tokenizer\": \"char\", \"length\": 8"
/* In stage 3 also small tensors. */
#define RANK_ALL_CUT  "--set engine.zero_optimization.stage3_param_persistence_threshold=0"
#define RANK_STAGE(n) " --set engine.zero_optimization.stage=" #n

extern const rank_case rank_gpt2;

/* RANK_STEPS, or RANK_LONG_STEPS in long tests. */
int rank_wanted_steps(void);
/* job.json: a batch of 12, so many steps, into "run". */
void rank_write_job(data_case *c, const rank_case *t, int steps);
/* "t.csv", of columns a, b and y; with `huge` some rows overflow in f16. */
void rank_write_table(data_case *c, bool huge);
/* A number of each step of a run. */
void rank_read_numbers(const data_case *c, const char *folder, const char *key, int steps, double *out);
/* A run of job.json into `folder`. */
void rank_train(const data_case *c, const char *folder, int ranks, const char *options);
/* The loss of a step, within `bound` of that of one process. */
void rank_expect_near(const char *what, int ranks, int step, double got, double want, double bound);
/* The first step within 1e-6, the last one within 1e-4. */
void rank_expect_same_steps(const data_case *c, const char *what, const char *folder, int ranks, const double *alone,
                            int steps);

/* What must hold for ranks of any axis, which `options` ask for. The first function trains job.json in one process, into
 * "alone", and reads its losses; the others but for the skips and the bits look at that run. */
void rank_train_alone(const data_case *c, int steps, const char *options, double *loss);
/* In f16 the same steps are skipped as by one process, some and not all, with the same loss scales; the run on ranks
 * says `told`. */
void rank_expect_same_skips(const data_case *c, int ranks, const char *options, const char *told);
void rank_expect_same_norms(const data_case *c, int ranks, const char *options);
/* Of a job of 6 steps: random delays of messages change no bit. */
void rank_expect_same_bits(const data_case *c, int ranks, const char *options);
/* Runs that start from its weights. */
void rank_expect_same_start(const data_case *c, int ranks, const char *options);
/* The last evaluation of a run on ranks, and that of one process which opens it. */
void rank_expect_same_evaluation(const data_case *c, int ranks, const char *options);
/* "moved", which went from world to world, has its losses within 1e-5. */
void rank_expect_moved(const data_case *c, int steps, const double *alone);

/* Is mpirun of this flavour there, "openmpi" or "mpich", and the shim for it? */
bool rank_has_mpi(const data_case *c, const char *flavour);
/* What a line begins with that starts so many processes as ranks. */
const char *rank_mpirun(const char *flavour, int ranks);
/* Runs of job.json by so many processes, under each flavour that is there, have the losses of one. Skips where there is
 * none, and under ThreadSanitizer, which knows nothing of what MPI libraries do among their own threads. */
void rank_expect_processes(const data_case *c, int ranks, const char *options, const double *alone, int steps);
/* The number behind a key of a text. */
double rank_number_after(const char *text, const char *key);

#endif
