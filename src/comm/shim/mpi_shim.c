/* The table of comm/mpi_shim.h over one MPI library, whose mpicc compiles this file. */
#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/mpi_shim.h"

struct ht_mpi_world {
    MPI_Comm data, notes; /* duplicates: our messages meet nobody else's */
    int rank, size, channels;
    bool initialised; /* by us */
    char (*note)[HT_MPI_NOTE];
    MPI_Request *note_requests; /* by rank: the note that is under way to it */
};

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request fits a handle");

static uint64_t to_handle(MPI_Request request)
{
    uint64_t handle = 0;
    memcpy(&handle, &request, sizeof request);
    return handle;
}

static MPI_Request from_handle(uint64_t handle)
{
    MPI_Request request;
    memcpy(&request, &handle, sizeof request);
    return request;
}

static void shim_explain(int error, char *text, size_t capacity)
{
    char message[MPI_MAX_ERROR_STRING];
    int length = 0;
    if (MPI_Error_string(error, message, &length) != MPI_SUCCESS) length = 0;
    snprintf(text, capacity, "%.*s", length, message);
}

/* ---- opening ---- */

static const char *initialise(ht_mpi_world *w, bool *serialized, char *reason, size_t capacity)
{
    int there = 0, over = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&there);
    MPI_Finalized(&over);
    if (over) return "MPI was finalised before";
    w->initialised = !there;
    int error = there ? MPI_Query_thread(&level) : MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
    if (error != MPI_SUCCESS) {
        shim_explain(error, reason, capacity);
        return reason;
    }
    /* MPICH asks the handler of the whole world about requests. A caller who initialised MPI has set his own. */
    if (w->initialised) MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (w->initialised) MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    *serialized = level == MPI_THREAD_SERIALIZED;
    if (level >= MPI_THREAD_SERIALIZED) return NULL;
    return there ? "MPI was initialised for one thread: use MPI_Init_thread with MPI_THREAD_SERIALIZED or more"
                 : "the MPI library gives less than MPI_THREAD_SERIALIZED";
}

static int duplicate(ht_mpi_world *w, MPI_Comm comm)
{
    int *bound = NULL, found = 0, error = MPI_Comm_dup(comm, &w->data);
    if (error == MPI_SUCCESS) error = MPI_Comm_dup(comm, &w->notes);
    if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(w->data, MPI_ERRORS_RETURN);
    if (error == MPI_SUCCESS) error = MPI_Comm_set_errhandler(w->notes, MPI_ERRORS_RETURN);
    if (error == MPI_SUCCESS) error = MPI_Comm_rank(w->data, &w->rank);
    if (error == MPI_SUCCESS) error = MPI_Comm_size(w->data, &w->size);
    if (error == MPI_SUCCESS) error = MPI_Comm_get_attr(w->data, MPI_TAG_UB, &bound, &found);
    w->channels = found ? *bound : 32767;
    return error;
}

/* After a failure other ranks do not answer: what is left ends with the process. */
static void shim_close(ht_mpi_world *w, bool failed)
{
    if (!failed) {
        MPI_Comm_free(&w->data);
        MPI_Comm_free(&w->notes);
        if (w->initialised) MPI_Finalize();
    }
    free(w->note);
    free(w->note_requests);
    free(w);
}

static const char *shim_open(ht_mpi_world **out, const void *mpi_comm, bool *serialized, char *reason, size_t capacity)
{
    ht_mpi_world *w = calloc(1, sizeof *w);
    MPI_Comm comm = MPI_COMM_WORLD;
    if (!w) return "out of memory";
    const char *refusal = initialise(w, serialized, reason, capacity);
    if (mpi_comm) memcpy(&comm, mpi_comm, sizeof comm);
    int error = refusal ? MPI_SUCCESS : duplicate(w, comm);
    if (error != MPI_SUCCESS) {
        shim_explain(error, reason, capacity);
        refusal = reason;
    }
    if (!refusal) {
        w->note = calloc((size_t)w->size, sizeof *w->note);
        w->note_requests = calloc((size_t)w->size, sizeof *w->note_requests);
        if (!w->note || !w->note_requests) refusal = "out of memory";
    }
    if (refusal) {
        shim_close(w, true);
        return refusal;
    }
    for (int i = 0; i < w->size; i++) w->note_requests[i] = MPI_REQUEST_NULL;
    *out = w;
    return NULL;
}

static int shim_rank(const ht_mpi_world *w)
{
    return w->rank;
}

static int shim_size(const ht_mpi_world *w)
{
    return w->size;
}

static int shim_channels(const ht_mpi_world *w)
{
    return w->channels;
}

/* ---- messages ---- */

static int shim_send(ht_mpi_world *w, const void *data, size_t bytes, int to, int channel, uint64_t *handle)
{
    MPI_Request request;
    int error = MPI_Isend(data, (int)bytes, MPI_BYTE, to, channel, w->data, &request);
    if (error == MPI_SUCCESS) *handle = to_handle(request);
    return error;
}

static int shim_receive(ht_mpi_world *w, void *data, size_t bytes, int from, int channel, uint64_t *handle)
{
    MPI_Request request;
    int error = MPI_Irecv(data, (int)bytes, MPI_BYTE, from, channel, w->data, &request);
    if (error == MPI_SUCCESS) *handle = to_handle(request);
    return error;
}

static int shim_test(uint64_t *handle, bool *done, size_t *bytes)
{
    MPI_Request request = from_handle(*handle);
    MPI_Status status;
    int flag = 0, count = 0;
    int error = MPI_Test(&request, &flag, &status);
    *handle = to_handle(request);
    if (error != MPI_SUCCESS) return error;
    if (flag) MPI_Get_count(&status, MPI_BYTE, &count);
    *done = flag;
    *bytes = count > 0 ? (size_t)count : 0;
    return MPI_SUCCESS;
}

static void shim_cancel(uint64_t *handle)
{
    MPI_Request request = from_handle(*handle);
    if (request == MPI_REQUEST_NULL) return;
    MPI_Cancel(&request);
    MPI_Request_free(&request);
}

/* ---- notes ---- */

static void shim_send_note(ht_mpi_world *w, int to, const char *note)
{
    int done = 1;
    if (w->note_requests[to] != MPI_REQUEST_NULL) MPI_Test(&w->note_requests[to], &done, MPI_STATUS_IGNORE);
    if (!done) return;
    memcpy(w->note[to], note, HT_MPI_NOTE);
    MPI_Isend(w->note[to], HT_MPI_NOTE, MPI_BYTE, to, 0, w->notes, &w->note_requests[to]);
}

static bool shim_take_note(ht_mpi_world *w, char *note, int *from)
{
    MPI_Status status;
    int there = 0;
    if (MPI_Iprobe(MPI_ANY_SOURCE, 0, w->notes, &there, &status) != MPI_SUCCESS || !there) return false;
    *from = status.MPI_SOURCE;
    return MPI_Recv(note, HT_MPI_NOTE, MPI_BYTE, *from, 0, w->notes, MPI_STATUS_IGNORE) == MPI_SUCCESS;
}

/* Of a duplicate MPICH's MPI_Abort would wait until the other ranks come to it. Its launcher drops what ranks have said and
 * it has not passed on yet, such as the reason of this. */
static void shim_end_all(ht_mpi_world *w)
{
    (void)w;
    sleep(1);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

__attribute__((visibility("default"))) const ht_mpi_shim ht_mpi_shim_table;
const ht_mpi_shim ht_mpi_shim_table = {
    .version = HT_MPI_SHIM_VERSION,
    .open = shim_open,
    .rank = shim_rank,
    .size = shim_size,
    .channels = shim_channels,
    .send = shim_send,
    .receive = shim_receive,
    .test = shim_test,
    .cancel = shim_cancel,
    .send_note = shim_send_note,
    .take_note = shim_take_note,
    .explain = shim_explain,
    .end_all = shim_end_all,
    .close = shim_close,
};
