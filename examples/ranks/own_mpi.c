/* A program with an MPI of its own: its ranks share every step of a small network that learns y = sin(3 x0) · x1, and each
 * keeps its part of the moments and masters (ZeRO stage 1). Any number of ranks makes the same steps, up to the order of
 * sums.
 *      mpicc -Iinclude examples/ranks/own_mpi.c -Lbuild -lhalftone -lm -o own_mpi
 *      LD_LIBRARY_PATH=build mpirun -n 2 ./own_mpi */
#include <math.h>
#include <mpi.h>
#include <stdio.h>

#include <halftone/halftone.h>

enum { POINTS = 240, WIDTH = 32, STEPS = 200 };

typedef struct job {
    ht_context *ctx;
    ht_comm *comm;
    ht_graph *g;
    ht_plan *plan;
    ht_session *s;
    int rank, ranks, rows; /* rows of a rank */
} job;

/* Every rank builds the same graph, for its share of the batch. */
static ht_status build(const job *j, const ht_train_opts *opts)
{
    ht_graph *g = j->g;
    ht_val x = ht_input(g, "x", HT_F32, 2, (int64_t[]){j->rows, 2});
    ht_val y = ht_input(g, "y", HT_F32, 2, (int64_t[]){j->rows, 1});
    ht_val w1 = ht_param(g, "w1", HT_F32, 2, (int64_t[]){2, WIDTH}, HT_NORMAL(0, 1));
    ht_val b1 = ht_param(g, "b1", HT_F32, 1, (int64_t[]){WIDTH}, HT_ZERO);
    ht_val w2 = ht_param(g, "w2", HT_F32, 2, (int64_t[]){WIDTH, 1}, HT_NORMAL(0, 0.1));
    ht_val hidden = ht_tanh(g, ht_add(g, ht_matmul(g, x, w1, NULL), b1));
    ht_val error = ht_sub(g, ht_matmul(g, hidden, w2, NULL), y);
    ht_output(g, "loss", ht_mean(g, ht_mul(g, error, error), 0, NULL, false));
    return ht_graph_train(g, opts);
}

/* How many ranks there are, and which one this is: for the training step and for the plan. */
static ht_status open_session(job *j)
{
    char ranks[16], rank[16];
    ht_train_opts training = HT_TRAIN_OPTS;
    ht_plan_opts planning = HT_PLAN_OPTS;
    ht_session_opts opts = HT_SESSION_OPTS;
    snprintf(ranks, sizeof ranks, "%d", j->ranks);
    snprintf(rank, sizeof rank, "%d", j->rank);
    const ht_train_setting settings[] = {{"ranks", ranks}, {"rank", rank}, {"zero_stage", "1"}};
    training.lr = 1e-2;
    training.settings = planning.settings = settings;
    training.setting_count = planning.setting_count = sizeof settings / sizeof settings[0];
    opts.comm = j->comm;
    ht_status status = ht_graph_create(&j->g, j->ctx);
    if (status == HT_OK) status = build(j, &training);
    if (status == HT_OK) status = ht_plan_create(&j->plan, j->g, &planning);
    return status == HT_OK ? ht_session_create(&j->s, j->plan, &opts) : status;
}

/* Rank r of N has points r, N + r, 2N + r, … */
static ht_status write_points(const job *j)
{
    static float x[POINTS][2], y[POINTS];
    for (int row = 0; row < j->rows; row++) {
        int i = row * j->ranks + j->rank;
        x[row][0] = (float)(i % 16) / 8 - 1;
        x[row][1] = (float)(i / 16) / 7 - 1;
        y[row] = sinf(3 * x[row][0]) * x[row][1];
    }
    ht_status status = ht_session_write(j->s, "x", x, (size_t)j->rows * sizeof x[0]);
    return status == HT_OK ? ht_session_write(j->s, "y", y, (size_t)j->rows * sizeof y[0]) : status;
}

/* This program's messages and those of the session do not meet: each has communicators of its own. */
static ht_status train(const job *j, MPI_Comm mine)
{
    ht_status status = write_points(j);
    for (int step = 1; step <= STEPS && status == HT_OK; step++) {
        float loss, sum;
        status = ht_session_run(j->s, "train");
        if (status == HT_OK) status = ht_session_read(j->s, "loss", &loss, sizeof loss);
        if (status != HT_OK || (step > 1 && step % 50)) continue;
        MPI_Allreduce(&loss, &sum, 1, MPI_FLOAT, MPI_SUM, mine);
        if (j->rank == 0) printf("step %d loss %.5f\n", step, sum / (float)j->ranks);
    }
    return status;
}

static ht_status run(job *j, MPI_Comm mine)
{
    ht_status status = ht_comm_open_mpi(&j->comm, j->ctx, &mine);
    if (status != HT_OK) return status;
    j->rank = ht_comm_rank(j->comm);
    j->ranks = ht_comm_size(j->comm);
    j->rows = POINTS / j->ranks;
    status = open_session(j);
    if (status == HT_OK && j->rank == 0)
        printf("%d ranks, %lld bytes each\n", j->ranks, (long long)ht_plan_bytes(j->plan));
    return status == HT_OK ? train(j, mine) : status;
}

int main(int argc, char **argv)
{
    job j = {0};
    MPI_Comm mine;
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_dup(MPI_COMM_WORLD, &mine);
    if (ht_context_create(&j.ctx, NULL) != HT_OK) MPI_Abort(MPI_COMM_WORLD, 1);
    if (run(&j, mine) != HT_OK) {
        fprintf(stderr, "rank %d: %s\n", j.rank, ht_context_message(j.ctx));
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    ht_session_free(j.s);
    ht_plan_free(j.plan);
    ht_graph_free(j.g);
    ht_comm_free(j.comm);
    ht_context_free(j.ctx);
    MPI_Comm_free(&mine);
    MPI_Finalize();
    return 0;
}
