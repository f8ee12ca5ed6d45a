#include "rank_cases.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, REQUESTS = 12 };

typedef struct rank_call {
    ht_comm *comm;
    ht_context *messages;
    ht_comm_call call;
    bool in_place;
    int64_t counts[64];
    int64_t in_elems, out_elems;
    char *in, *out, *expected;
} rank_call;

/* Element i of what rank `rank` gives; few enough bits that it is exact in every type, but sums are not. */
static double element(ht_dtype dtype, int rank, int64_t i)
{
    uint64_t draw = ((uint64_t)i * 64 + (uint64_t)rank + 1) * 0x9E3779B97F4A7C15u;
    draw = (draw ^ draw >> 29) * 0xBF58476D1CE4E5B9u;
    if (dtype == HT_BOOL) return (double)(draw & 1);
    if (dtype == HT_U8) return (double)(draw & 255);
    if (!ht_dtype_is_float(dtype)) return (double)(int32_t)(uint32_t)draw;
    double x = ((double)(draw & 255) - 127.5) / 128;
    return dtype == HT_F16 || dtype == HT_BF16 ? ht_round_to(dtype, x) : x * (1 + (double)(draw >> 60));
}

static double join(ht_dtype dtype, ht_comm_reduction reduction, double a, double b)
{
    if (reduction == HT_COMM_MAX) return a > b ? a : b;
    if (reduction == HT_COMM_MIN) return a < b ? a : b;
    if (dtype == HT_F64) return a + b;
    if (dtype == HT_I32) return (double)(int32_t)((uint32_t)(int32_t)a + (uint32_t)(int32_t)b);
    if (dtype == HT_I64) return (double)((int64_t)a + (int64_t)b);
    return (double)((float)a + (float)b);
}

static double reduced(const rank_call *r, int64_t i)
{
    double sum = element(r->call.dtype, 0, i);
    for (int k = 1; k < ht_comm_size(r->comm); k++)
        sum = join(r->call.dtype, r->call.reduction, sum, element(r->call.dtype, k, i));
    return sum;
}

static int64_t before(const rank_call *r, int rank)
{
    int64_t sum = 0;
    for (int i = 0; i < rank; i++) sum += r->call.counts ? r->call.counts[i] : r->call.elems;
    return sum;
}

static int64_t count_of(const rank_call *r, int rank)
{
    return r->call.counts ? r->call.counts[rank] : r->call.elems;
}

/* Element i of the result on this rank. */
static double expected(const rank_call *r, int64_t i)
{
    ht_dtype dtype = r->call.dtype;
    int rank = ht_comm_rank(r->comm), source = 0;
    switch (r->call.kind) {
    case HT_COMM_ALL_REDUCE: return reduced(r, i);
    case HT_COMM_REDUCE_SCATTER: return reduced(r, before(r, rank) + i);
    case HT_COMM_BROADCAST: return element(dtype, r->call.peer, i);
    case HT_COMM_ALL_TO_ALL:
        source = (int)(i / r->call.elems);
        return element(dtype, source, rank * r->call.elems + i % r->call.elems);
    default: /* all_gather */
        while (i >= before(r, source) + count_of(r, source)) source++;
        return element(dtype, source, i - before(r, source));
    }
}

static void set_sizes(rank_call *r)
{
    int size = ht_comm_size(r->comm), rank = ht_comm_rank(r->comm);
    r->in_elems = r->out_elems = r->call.elems;
    if (r->call.kind == HT_COMM_ALL_GATHER) {
        r->in_elems = count_of(r, rank);
        r->out_elems = before(r, size);
    } else if (r->call.kind == HT_COMM_REDUCE_SCATTER) {
        r->in_elems = before(r, size);
        r->out_elems = count_of(r, rank);
    } else if (r->call.kind == HT_COMM_ALL_TO_ALL)
        r->in_elems = r->out_elems = r->call.elems * size;
}

static bool prepare(rank_call *r)
{
    size_t bytes = ht_dtype_bytes(r->call.dtype);
    int rank = ht_comm_rank(r->comm);
    set_sizes(r);
    size_t in = (size_t)r->in_elems * bytes, out = (size_t)r->out_elems * bytes;
    size_t most = in > out ? in : out;
    r->in = malloc(most + GUARD);
    r->out = malloc(out + GUARD);
    r->expected = malloc(out + GUARD);
    if (!r->in || !r->out || !r->expected) return false;
    memset(r->in, 0x5A, most + GUARD);
    memset(r->out, 0x5A, out + GUARD);
    memset(r->expected, 0x5A, out + GUARD);
    for (int64_t i = 0; i < r->out_elems; i++) ht_store_f64(r->expected, r->call.dtype, i, expected(r, i));
    int64_t at = r->call.kind == HT_COMM_ALL_GATHER && r->in_place ? before(r, rank) : 0;
    for (int64_t i = 0; i < r->in_elems; i++)
        ht_store_f64(r->in, r->call.dtype, at + i, element(r->call.dtype, rank, i));
    r->call.in = r->in + (size_t)at * bytes;
    r->call.out = r->out;
    if (r->in_place) r->call.out = r->in;
    if (r->in_place && r->call.kind == HT_COMM_REDUCE_SCATTER) r->call.out = r->in + (size_t)before(r, rank) * bytes;
    return true;
}

static ht_status compare(const rank_call *r)
{
    size_t bytes = ht_dtype_bytes(r->call.dtype), out = (size_t)r->out_elems * bytes;
    bool guarded = !r->in_place || r->call.kind != HT_COMM_REDUCE_SCATTER;
    const char *got = r->call.out;
    if (memcmp(got, r->expected, out + (guarded ? GUARD : 0)) == 0) return HT_OK;
    size_t at = 0;
    while (got[at] == r->expected[at]) at++;
    HT_FAIL(r->messages, HT_EVERIFY,
            "%s %s of %s, %" PRId64 " elements%s, rank %d of %d in %s: wrong at byte %zu of %zu",
            ht_comm_kind_names[r->call.kind], ht_comm_reduction_names[r->call.reduction], ht_dtype_name(r->call.dtype),
            r->call.elems, r->in_place ? " in place" : "", ht_comm_rank(r->comm), ht_comm_size(r->comm),
            ht_comm_name(r->comm), at, out);
}

static void release(rank_call *r)
{
    free(r->in);
    free(r->out);
    free(r->expected);
}

/* ---- one call ---- */

static ht_status check(rank_call r)
{
    ht_status status = prepare(&r) ? HT_OK : ht_fail(r.messages, HT_ENOMEM, "out of memory");
    if (status == HT_OK) status = ht_comm_run(r.comm, r.messages, &r.call);
    if (status == HT_OK) status = compare(&r);
    release(&r);
    return status;
}

static ht_status check_both(rank_call r)
{
    HT_TRY(check(r));
    r.in_place = true;
    return r.call.kind == HT_COMM_ALL_TO_ALL ? HT_OK : check(r);
}

static ht_status check_reductions(rank_call r)
{
    for (int reduction = 0; reduction < HT_COMM_REDUCTION_COUNT; reduction++) {
        r.call.reduction = (ht_comm_reduction)reduction;
        if (ht_comm_reduction_refusal(r.call.reduction, r.call.dtype)) continue;
        r.call.kind = HT_COMM_ALL_REDUCE;
        HT_TRY(check_both(r));
        r.call.kind = HT_COMM_REDUCE_SCATTER;
        HT_TRY(check_both(r));
    }
    return HT_OK;
}

static ht_status check_moves(rank_call r)
{
    static const ht_comm_kind kinds[] = {HT_COMM_BROADCAST, HT_COMM_ALL_GATHER, HT_COMM_ALL_TO_ALL};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        r.call.kind = kinds[k];
        r.call.peer = (int)(r.call.elems % ht_comm_size(r.comm));
        HT_TRY(check_both(r));
    }
    return HT_OK;
}

/* Pieces of every length, some empty. */
static ht_status check_uneven(rank_call r)
{
    for (int i = 0; i < ht_comm_size(r.comm); i++) r.counts[i] = i % 3 == 1 ? 0 : 37 * i + 1;
    r.call.counts = r.counts;
    r.call.elems = 0;
    r.call.kind = HT_COMM_ALL_GATHER;
    HT_TRY(check_both(r));
    r.call.kind = HT_COMM_REDUCE_SCATTER;
    return check_both(r);
}

ht_status rank_case_collectives(ht_comm *comm, ht_context *messages, bool longest)
{
    static const ht_dtype dtypes[] = {HT_F32, HT_F16, HT_BF16, HT_F64, HT_I32, HT_I64, HT_U8, HT_BOOL};
    static const int64_t sizes[] = {0, 1, 2, 3, 15, 16, 17, 100, 1001, 20011};
    rank_call r = {.comm = comm, .messages = messages};
    for (size_t d = 0; d < sizeof dtypes / sizeof dtypes[0]; d++)
        for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
            if (sizes[s] > 2000 && d > 2) continue;
            r.call = (ht_comm_call){.dtype = dtypes[d], .elems = sizes[s]};
            HT_TRY(check_reductions(r));
            HT_TRY(check_moves(r));
        }
    r.call = (ht_comm_call){.dtype = HT_BF16};
    HT_TRY(check_uneven(r));
    r.call = (ht_comm_call){
        .kind = HT_COMM_ALL_REDUCE, .dtype = HT_F32, .elems = ht_comm_size(comm) > 3 ? 1300003 : 2500003};
    if (longest) HT_TRY(check_both(r));
    return ht_comm_barrier(comm, messages);
}

/* ---- many ---- */

static ht_status pass_around(ht_comm *comm, ht_context *messages)
{
    int size = ht_comm_size(comm), rank = ht_comm_rank(comm);
    if (size == 1) return HT_OK;
    int64_t sent[5], got[5] = {0};
    int next = (rank + 1) % size, last = (rank + size - 1) % size;
    ht_comm_call send = {.kind = HT_COMM_SEND, .dtype = HT_I64, .in = sent, .elems = 5, .peer = next};
    ht_comm_call receive = {.kind = HT_COMM_RECV, .dtype = HT_I64, .out = got, .elems = 5, .peer = last};
    for (int i = 0; i < 5; i++) sent[i] = rank * 100 + i;
    /* Rank 0 begins: a rank that sends waits for the one that receives. */
    HT_TRY(ht_comm_run(comm, messages, rank ? &receive : &send));
    HT_TRY(ht_comm_run(comm, messages, rank ? &send : &receive));
    for (int i = 0; i < 5; i++)
        if (got[i] != last * 100 + i) HT_FAIL(messages, HT_EVERIFY, "rank %d got %lld", rank, (long long)got[i]);
    return HT_OK;
}

ht_status rank_case_requests(ht_comm *world, ht_context *messages)
{
    rank_call calls[REQUESTS];
    ht_comm_request requests[REQUESTS];
    memset(requests, 0, sizeof requests);
    ht_comm *group = ht_comm_find_group(world, "row");
    ht_status status = HT_OK;
    int started = 0;
    memset(calls, 0, sizeof calls);
    for (; started < REQUESTS && status == HT_OK; started++) {
        rank_call *r = &calls[started];
        *r = (rank_call){.comm = group && started % 2 ? group : world, .messages = messages};
        r->call = (ht_comm_call){.kind = started % 3 ? HT_COMM_ALL_REDUCE : HT_COMM_ALL_GATHER,
                                 .dtype = started % 4 < 2 ? HT_F32 : HT_BF16,
                                 .elems = 1 + 700 * started};
        if (!prepare(r)) status = ht_fail(messages, HT_ENOMEM, "out of memory");
        if (status == HT_OK) status = ht_comm_start(r->comm, messages, &r->call, &requests[started]);
    }
    for (int i = started; i-- > 0;) {
        ht_status waited = requests[i].comm ? ht_comm_wait(&requests[i], messages) : HT_OK;
        if (waited == HT_OK && !ht_comm_test(&requests[i])) waited = ht_fail(messages, HT_EVERIFY, "not done");
        if (waited == HT_OK) waited = compare(&calls[i]);
        if (status == HT_OK) status = waited;
    }
    for (int i = 0; i < REQUESTS; i++) release(&calls[i]);
    if (status == HT_OK) status = pass_around(world, messages);
    return status;
}

ht_status rank_case_groups(ht_comm *world, ht_context *messages, int columns)
{
    int rank = ht_comm_rank(world), rows = ht_comm_size(world) / columns, ranks[64];
    ht_comm *row, *column;
    for (int i = 0; i < columns; i++) ranks[i] = rank / columns * columns + i;
    HT_TRY(ht_comm_add_group(&row, world, messages, "row", ranks, columns));
    /* From the last to the first: the order of a group is its own. */
    for (int i = 0; i < rows; i++) ranks[i] = rank % columns + (rows - 1 - i) * columns;
    HT_TRY(ht_comm_add_group(&column, world, messages, "column", ranks, rows));
    if (ht_comm_find_group(world, "row") != row || ht_comm_world_rank(column, ht_comm_rank(column)) != rank)
        HT_FAIL(messages, HT_EVERIFY, "the groups of rank %d are not found", rank);
    HT_TRY(rank_case_collectives(row, messages, false));
    HT_TRY(rank_case_collectives(column, messages, false));
    return rank_case_requests(world, messages);
}
