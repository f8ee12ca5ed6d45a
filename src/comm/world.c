/* Finding the world: what launchers say in the environment, and the transport that follows from it. */
#include "comm/comm_own.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct launcher_row {
    const char *name, *mpi;
    const char *rank, *size; /* both must be there */
    const char *local_rank, *local_size;
} launcher_row;

/* Inner ones first: an mpirun in a Slurm job sets its own beside Slurm's. Slurm names the tasks of a step only for
 * those that srun starts: a batch script has SLURM_PROCID and SLURM_NTASKS, too, and is no rank. */
static const launcher_row rows[] = {
    {"Open MPI", "openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH", "mpich", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"Slurm", NULL, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE"},
    {"torchrun", NULL, "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
};

/* A number from 0 on. A list such as Slurm's "2(x3)" is read up to its first number. */
static bool read_number(const char *variable, bool list, int *out)
{
    const char *text = getenv(variable);
    char *end;
    if (!text || !text[0]) return false;
    long value = strtol(text, &end, 10);
    if (end == text || (*end && !list) || value < 0 || value > 1 << 24) return false;
    *out = (int)value;
    return true;
}

static ht_status read_row(ht_launcher *out, ht_context *ctx, const launcher_row *row)
{
    if (!read_number(row->rank, false, &out->rank))
        HT_FAIL(ctx, HT_EINVAL, "%s, set by %s, is '%s', which is no rank", row->rank, row->name, getenv(row->rank));
    if (!read_number(row->size, false, &out->size))
        HT_FAIL(ctx, HT_EINVAL, "%s, set by %s, is '%s', which is no number of ranks", row->size, row->name,
                getenv(row->size));
    if (out->rank >= out->size)
        HT_FAIL(ctx, HT_EINVAL, "%s set %s=%d, beyond %s=%d", row->name, row->rank, out->rank, row->size, out->size);
    if (!read_number(row->local_rank, false, &out->local_rank)) out->local_rank = -1;
    if (!read_number(row->local_size, true, &out->local_size)) out->local_size = -1;
    out->name = row->name;
    out->mpi = row->mpi;
    return HT_OK;
}

/* Slurm's own word for how it starts MPI programs. */
static const char *slurm_flavour(void)
{
    const char *type = getenv("SLURM_MPI_TYPE");
    if (type && strncmp(type, "pmix", 4) == 0) return "openmpi";
    return type && strncmp(type, "pmi2", 4) == 0 ? "mpich" : NULL;
}

ht_status ht_launcher_find(ht_launcher *out, ht_context *ctx)
{
    *out = (ht_launcher){.size = 1, .local_rank = -1, .local_size = -1};
    if (gethostname(out->node, sizeof out->node - 1) != 0) snprintf(out->node, sizeof out->node, "?");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        if (!getenv(rows[i].rank) || !getenv(rows[i].size)) continue;
        HT_TRY(read_row(out, ctx, &rows[i]));
        if (strcmp(rows[i].name, "Slurm") == 0) out->mpi = slurm_flavour();
        return HT_OK;
    }
    return HT_OK;
}

void ht_launcher_describe(const ht_launcher *l, char *text, size_t capacity)
{
    if (!l->name) {
        snprintf(text, capacity, "one rank, on %s", l->node);
        return;
    }
    char local[64] = "";
    if (l->local_rank >= 0 && l->local_size > 0)
        snprintf(local, sizeof local, " (%d of %d there)", l->local_rank, l->local_size);
    snprintf(text, capacity, "rank %d of %d, started by %s, on %s%s", l->rank, l->size, l->name, l->node, local);
}

ht_status ht_comm_timeout(ht_context *ctx, double *seconds)
{
    const char *text = getenv("HALFTONE_COMM_TIMEOUT_S");
    *seconds = 1800;
    if (!text || !text[0]) return HT_OK;
    if (!ht_number_read(text, seconds) || !(*seconds > 0 && *seconds <= 1e7))
        HT_FAIL(ctx, HT_EINVAL, "HALFTONE_COMM_TIMEOUT_S is '%s', and no number of seconds above 0", text);
    return HT_OK;
}

ht_status ht_comm_open(ht_comm **out, ht_context *ctx, const ht_launcher *launcher)
{
    *out = NULL;
    if (launcher->size == 1) return ht_comm_open_self(out, ctx);
    if (strcmp(launcher->name, "torchrun") == 0)
        HT_FAIL(ctx, HT_ENOTSUP,
                "the variables of torchrun (RANK, WORLD_SIZE) say %d ranks, which reach each other by MPI alone: start "
                "them with mpirun or srun",
                launcher->size);
    ht_status status = ht_comm_open_flavour(out, ctx, launcher->mpi, NULL);
    if (status != HT_OK)
        HT_FAIL(ctx, status, "%s started %d ranks, which reach each other by MPI alone: %s", launcher->name,
                launcher->size, ctx->message);
    if (ht_comm_size(*out) == launcher->size) return HT_OK;
    int found = ht_comm_size(*out);
    ht_comm_free(*out);
    *out = NULL;
    HT_FAIL(ctx, HT_ERANK, "%s started %d ranks, and MPI knows %d: %s", launcher->name, launcher->size, found,
            "they were started by the launcher of another MPI (mpirun, srun --mpi=...)");
}

/* A graph's collectives are over the group "data". */
static ht_status add_data_axis(ht_comm *world, ht_context *ctx)
{
    ht_comm *group;
    int size = ht_comm_size(world);
    int *ranks = malloc((size_t)size * sizeof *ranks);
    if (!ranks) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a world of ranks");
    for (int i = 0; i < size; i++) ranks[i] = i;
    ht_status status = ht_comm_add_group(&group, world, ctx, "data", ranks, size);
    free(ranks);
    return status;
}

ht_status ht_comm_open_mpi(ht_comm **out, ht_context *ctx, const void *mpi_comm)
{
    ht_launcher launcher;
    HT_NEED(ctx, out, "out");
    *out = NULL;
    HT_NEED(NULL, ctx, "ctx");
    HT_TRY(ht_launcher_find(&launcher, ctx));
    HT_TRY(ht_comm_open_flavour(out, ctx, mpi_comm ? NULL : launcher.mpi, mpi_comm));
    ht_status status = add_data_axis(*out, ctx);
    if (status == HT_OK) return HT_OK;
    ht_comm_free(*out);
    *out = NULL;
    return status;
}
