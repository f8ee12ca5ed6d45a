/* Collectives by exchanges of messages, for every transport.
 *
 *      all_reduce      pieces to the ranks that sum them, sums to all: 2(N-1)/N of the bytes a rank; small ones at once
 *      reduce_scatter  its first half; a bounded part of each piece at a time, so that the workspace is small
 *      all_gather      its second half
 *      broadcast       pieces of the root's to all, which gather them; small ones and two ranks: straight
 *      barrier         dissemination: in round k a word to the rank 2^k further on
 *
 * What is sent, how it is cut and the order of sums follow from sizes and ranks alone. */
#include "comm/comm_own.h"

#include <stdlib.h>

enum { ALIGN = 16 };                    /* elements: pieces begin at multiples of it */
static const size_t SMALL = 32 << 10;   /* bytes of all ranks together that are sent straight */
static const size_t PART = 4 << 20;     /* bytes that a rank receives in one round of a reduction */
static const size_t LONGEST = 1u << 30; /* bytes of one message */

typedef struct run {
    ht_comm *c;
    const ht_comm_call *call;
    const char *text;
    size_t bytes; /* of an element */
    ht_exchange exchange;
    char *workspace;
} run;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* ---- exchanges ---- */

/* Nothing is sent where there is nothing: the peer knows the size, too. */
static void add(run *r, int peer, bool receive, const void *data, size_t bytes)
{
    if (!bytes) return;
    r->exchange.messages[r->exchange.count++] = (ht_message){
        .peer = r->c->ranks[peer],
        .receive = receive,
        .data = (void *)(uintptr_t)data,
        .bytes = bytes,
    };
}

static ht_status exchange(run *r)
{
    ht_transport *transport = r->c->transport;
    for (size_t i = 0; i < r->exchange.count; i++)
        if (!r->exchange.messages[i].receive) r->c->sent += (int64_t)r->exchange.messages[i].bytes;
    ht_status status = r->exchange.count ? transport->class->exchange(transport, &r->exchange) : HT_OK;
    r->exchange.count = 0;
    return status;
}

/* Bytes [from, from + most) of what is `bytes` long. */
static size_t part_of(size_t bytes, size_t from, size_t most)
{
    size_t left = bytes > from ? bytes - from : 0;
    return left < most ? left : most;
}

/* ---- pieces ---- */

/* Of n elements, for each rank: equal ones but for the last. */
static int64_t piece_elems(int64_t n, int ranks)
{
    int64_t each = (n + ranks - 1) / ranks;
    return (each + ALIGN - 1) / ALIGN * ALIGN;
}

static void cut_pieces(int64_t *counts, int64_t n, int ranks)
{
    int64_t each = piece_elems(n, ranks), left = n;
    for (int i = 0; i < ranks; i++) {
        counts[i] = least(each, left);
        left -= counts[i];
    }
}

static void set_counts(run *r)
{
    for (int i = 0; i < r->c->size; i++) r->c->counts[i] = r->call->counts ? r->call->counts[i] : r->call->elems;
}

static int64_t elems_before(const run *r, int rank)
{
    int64_t sum = 0;
    for (int i = 0; i < rank; i++) sum += r->c->counts[i];
    return sum;
}

static size_t offset_of(const run *r, int rank)
{
    return (size_t)elems_before(r, rank) * r->bytes;
}

static size_t bytes_of(const run *r, int rank)
{
    return (size_t)r->c->counts[rank] * r->bytes;
}

static int64_t most_of(const run *r)
{
    int64_t most = 0;
    for (int i = 0; i < r->c->size; i++) most = r->c->counts[i] > most ? r->c->counts[i] : most;
    return most;
}

/* ---- reductions ---- */

/* Elements of every piece that one round sums: the same on all ranks. */
static int64_t round_elems(int64_t piece, size_t bytes, int ranks)
{
    int64_t most = (int64_t)(PART / bytes) / (ranks > 1 ? ranks - 1 : 1) / ALIGN * ALIGN;
    return least(piece, most > ALIGN ? most : ALIGN);
}

static bool is_small(int64_t elems, size_t bytes, int ranks)
{
    return (size_t)elems * bytes * (size_t)ranks <= SMALL;
}

static int64_t workspace_elems(ht_comm_kind kind, int64_t elems, size_t bytes, int ranks)
{
    if (kind == HT_COMM_ALL_REDUCE && is_small(elems, bytes, ranks)) return elems;
    if (kind == HT_COMM_ALL_REDUCE) return round_elems(least(piece_elems(elems, ranks), elems), bytes, ranks);
    return round_elems(elems, bytes, ranks);
}

int64_t ht_comm_workspace(ht_comm_kind kind, ht_dtype dtype, int64_t elems, int ranks)
{
    size_t bytes = ht_dtype_bytes(dtype);
    if (kind != HT_COMM_ALL_REDUCE && kind != HT_COMM_REDUCE_SCATTER) return 0;
    return workspace_elems(kind, elems, bytes, ranks) * (int64_t)bytes * (ranks - 1) +
           (int64_t)((size_t)ranks * sizeof(void *)); /* addresses of what is summed */
}

/* What rank i has sent, in the workspace behind the addresses. */
static char *received(const run *r, int rank, int64_t elems)
{
    size_t place = (size_t)(rank < r->c->rank ? rank : rank - 1);
    return r->workspace + (size_t)r->c->size * sizeof(void *) + place * (size_t)elems * r->bytes;
}

static void reduce(const run *r, void *out, const void *own, int64_t stride, int64_t n)
{
    const void **in = (const void **)(void *)r->workspace;
    for (int i = 0; i < r->c->size; i++) in[i] = i == r->c->rank ? own : received(r, i, stride);
    ht_reduce_ranks(r->call->dtype, r->call->reduction, out, in, r->c->size, n);
}

/* One piece of what all ranks have in `in` to each rank, which sums it. */
static ht_status reduce_pieces(run *r, const char *in, char *out)
{
    const ht_comm *c = r->c;
    int64_t step = round_elems(most_of(r), r->bytes, c->size), most = most_of(r);
    const char *own = in + offset_of(r, c->rank);
    for (int64_t from = 0; from < most; from += step) {
        size_t skip = (size_t)from * r->bytes, part = (size_t)step * r->bytes;
        for (int k = 1; k < c->size; k++) {
            int to = (c->rank + k) % c->size, source = (c->rank + c->size - k) % c->size;
            add(r, source, true, received(r, source, step), part_of(bytes_of(r, c->rank), skip, part));
            add(r, to, false, in + offset_of(r, to) + skip, part_of(bytes_of(r, to), skip, part));
        }
        HT_TRY(exchange(r));
        int64_t n = least(step, c->counts[c->rank] - from);
        if (n > 0) reduce(r, out + skip, own + skip, step, n);
    }
    return HT_OK;
}

/* The pieces of all ranks to all ranks; each has its own at its place. */
static ht_status gather_pieces(run *r, char *out)
{
    const ht_comm *c = r->c;
    size_t most = (size_t)most_of(r) * r->bytes;
    for (size_t skip = 0; skip < most; skip += LONGEST) {
        for (int k = 1; k < c->size; k++) {
            int to = (c->rank + k) % c->size, source = (c->rank + c->size - k) % c->size;
            add(r, source, true, out + offset_of(r, source) + skip, part_of(bytes_of(r, source), skip, LONGEST));
            add(r, to, false, out + offset_of(r, c->rank) + skip, part_of(bytes_of(r, c->rank), skip, LONGEST));
        }
        HT_TRY(exchange(r));
    }
    return HT_OK;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes && to != from) memcpy(to, from, bytes);
}

static ht_status all_reduce_small(run *r)
{
    const ht_comm *c = r->c;
    int64_t n = r->call->elems;
    for (int k = 1; k < c->size; k++) {
        int to = (c->rank + k) % c->size, source = (c->rank + c->size - k) % c->size;
        add(r, source, true, received(r, source, n), (size_t)n * r->bytes);
        add(r, to, false, r->call->in, (size_t)n * r->bytes);
    }
    HT_TRY(exchange(r));
    reduce(r, r->call->out, r->call->in, n, n);
    return HT_OK;
}

static ht_status all_reduce(run *r)
{
    if (is_small(r->call->elems, r->bytes, r->c->size)) return all_reduce_small(r);
    char *out = r->call->out;
    cut_pieces(r->c->counts, r->call->elems, r->c->size);
    HT_TRY(reduce_pieces(r, r->call->in, out + offset_of(r, r->c->rank)));
    return gather_pieces(r, out);
}

static ht_status reduce_scatter(run *r)
{
    set_counts(r);
    return reduce_pieces(r, r->call->in, r->call->out);
}

/* ---- the others ---- */

static ht_status all_gather(run *r)
{
    set_counts(r);
    char *out = r->call->out;
    copy(out + offset_of(r, r->c->rank), r->call->in, bytes_of(r, r->c->rank));
    return gather_pieces(r, out);
}

static ht_status all_to_all(run *r)
{
    const ht_comm *c = r->c;
    size_t piece = (size_t)r->call->elems * r->bytes;
    const char *in = r->call->in;
    char *out = r->call->out;
    copy(out + (size_t)c->rank * piece, in + (size_t)c->rank * piece, piece);
    for (size_t skip = 0; skip < piece; skip += LONGEST) {
        for (int k = 1; k < c->size; k++) {
            int to = (c->rank + k) % c->size, source = (c->rank + c->size - k) % c->size;
            add(r, source, true, out + (size_t)source * piece + skip, part_of(piece, skip, LONGEST));
            add(r, to, false, in + (size_t)to * piece + skip, part_of(piece, skip, LONGEST));
        }
        HT_TRY(exchange(r));
    }
    return HT_OK;
}

/* One message, or as many as it takes. */
static ht_status pass_on(run *r, bool receive, const char *data)
{
    size_t bytes = (size_t)r->call->elems * r->bytes;
    for (size_t skip = 0; skip < bytes; skip += LONGEST) {
        add(r, r->call->peer, receive, data + skip, part_of(bytes, skip, LONGEST));
        HT_TRY(exchange(r));
    }
    return HT_OK;
}

/* From the root to each rank its piece (`whole`: all) of `out`, where the root has everything. */
static ht_status spread(run *r, char *out, bool whole)
{
    const ht_comm *c = r->c;
    int root = r->call->peer;
    size_t all = (size_t)r->call->elems * r->bytes;
    for (size_t skip = 0; skip < all; skip += LONGEST) {
        for (int i = 0; i < c->size; i++) {
            size_t bytes = part_of(whole ? all : bytes_of(r, i), skip, LONGEST);
            char *data = out + (whole ? 0 : offset_of(r, i)) + skip;
            if (i == root || (c->rank != root && c->rank != i)) continue;
            add(r, c->rank == root ? i : root, c->rank != root, data, bytes);
        }
        HT_TRY(exchange(r));
    }
    return HT_OK;
}

static ht_status broadcast(run *r)
{
    char *out = r->call->out;
    bool whole = r->c->size <= 2 || is_small(r->call->elems, r->bytes, r->c->size);
    if (r->c->rank == r->call->peer) copy(out, r->call->in, (size_t)r->call->elems * r->bytes);
    if (!whole) cut_pieces(r->c->counts, r->call->elems, r->c->size);
    HT_TRY(spread(r, out, whole));
    return whole ? HT_OK : gather_pieces(r, out);
}

static ht_status barrier(run *r)
{
    const ht_comm *c = r->c;
    char word = 0, other;
    for (int k = 1; k < c->size; k *= 2) {
        add(r, (c->rank + c->size - k % c->size) % c->size, true, &other, 1);
        add(r, (c->rank + k) % c->size, false, &word, 1);
        HT_TRY(exchange(r));
    }
    return HT_OK;
}

/* ---- what is sent ---- */

static int64_t parts(int64_t n, int64_t most)
{
    return (n + most - 1) / most;
}

/* `bytes` to each of so many ranks. */
static ht_comm_sent send_to(int64_t ranks, int64_t bytes)
{
    return (ht_comm_sent){ranks * bytes, ranks * parts(bytes, (int64_t)LONGEST)};
}

static ht_comm_sent both(ht_comm_sent a, ht_comm_sent b)
{
    return (ht_comm_sent){a.bytes + b.bytes, a.messages + b.messages};
}

/* The first rank's part of reduce_pieces: to others their pieces, all of `each` elements but for the last. */
static ht_comm_sent send_pieces(int64_t n, int64_t each, int64_t step, int64_t bytes)
{
    int64_t rest = n - least(each, n);
    return (ht_comm_sent){rest * bytes, rest / each * parts(each, step) + parts(rest % each, step)};
}

ht_comm_sent ht_comm_call_sent(ht_comm_kind kind, ht_dtype dtype, int64_t elems, int ranks)
{
    int64_t bytes = (int64_t)ht_dtype_bytes(dtype), all = elems * bytes, others = ranks - 1;
    int64_t each = piece_elems(elems, ranks), own = least(each, elems);
    bool small = is_small(elems, (size_t)bytes, ranks);
    if (ranks == 1 || elems == 0 || kind == HT_COMM_RECV) return (ht_comm_sent){0};
    switch (kind) {
    case HT_COMM_SEND: return send_to(1, all);
    case HT_COMM_REDUCE_SCATTER:
        return send_pieces(elems * ranks, elems, round_elems(elems, (size_t)bytes, ranks), bytes);
    case HT_COMM_ALL_REDUCE:
        if (small) return send_to(others, all);
        return both(send_pieces(elems, each, round_elems(own, (size_t)bytes, ranks), bytes),
                    send_to(others, own * bytes));
    case HT_COMM_BROADCAST:
        if (small || ranks == 2) return send_to(others, all);
        return both(send_pieces(elems, each, (int64_t)LONGEST / bytes, bytes), send_to(others, own * bytes));
    default: return send_to(others, all); /* all_gather, all_to_all */
    }
}

/* ---- all of them ---- */

static ht_status find_workspace(run *r)
{
    ht_comm *c = r->c;
    int64_t elems = r->call->elems;
    for (int i = 0; r->call->counts && i < c->size; i++)
        if (r->call->counts[i] > elems) elems = r->call->counts[i];
    int64_t bytes = ht_comm_workspace(r->call->kind, r->call->dtype, elems, c->size);
    r->workspace = r->call->workspace;
    if (r->workspace) return HT_OK;
    if (bytes > c->scratch_bytes) {
        free(c->scratch);
        c->scratch = aligned_alloc(64, ((size_t)bytes + 63) / 64 * 64);
        c->scratch_bytes = c->scratch ? bytes : 0;
        if (!c->scratch) HT_FAIL(&c->reason, HT_ENOMEM, "%s: out of memory for %lld bytes", r->text, (long long)bytes);
    }
    r->workspace = c->scratch;
    return HT_OK;
}

ht_status ht_collective_run(ht_comm *c, const ht_comm_call *call, const char *text)
{
    run r = {
        .c = c,
        .call = call,
        .text = text,
        .bytes = ht_dtype_bytes(call->dtype),
        .exchange = {.channel = c->channel, .messages = c->messages, .call = text, .reason = &c->reason},
    };
    if (call->kind != HT_COMM_BARRIER && !call->elems && !call->counts) return HT_OK;
    if (c->size == 1) {
        copy(call->out, call->in, (size_t)(call->counts ? call->counts[0] : call->elems) * r.bytes);
        return HT_OK;
    }
    HT_TRY(find_workspace(&r));
    switch (call->kind) {
    case HT_COMM_BARRIER: return barrier(&r);
    case HT_COMM_BROADCAST: return broadcast(&r);
    case HT_COMM_ALL_REDUCE: return all_reduce(&r);
    case HT_COMM_ALL_GATHER: return all_gather(&r);
    case HT_COMM_REDUCE_SCATTER: return reduce_scatter(&r);
    case HT_COMM_ALL_TO_ALL: return all_to_all(&r);
    case HT_COMM_SEND: return pass_on(&r, false, call->in);
    default: return pass_on(&r, true, call->out);
    }
}
