#include "plan/memory.h"

#include <stdlib.h>

/* Free blocks form a treap ordered by offset; every node knows the largest block below it, so that the lowest block
 * that fits is found in log n. Nodes are indices; 0 is none. */
typedef struct block {
    int64_t offset, bytes, largest;
    uint32_t left, right, rank;
} block;

typedef struct space {
    block *blocks;
    uint32_t count, spare; /* spare: list of unused nodes through .left */
    uint32_t root;
    int64_t end; /* of everything handed out so far */
} space;

static void refresh(space *s, uint32_t at)
{
    block *b = &s->blocks[at];
    b->largest = b->bytes;
    if (s->blocks[b->left].largest > b->largest) b->largest = s->blocks[b->left].largest;
    if (s->blocks[b->right].largest > b->largest) b->largest = s->blocks[b->right].largest;
}

/* Everything in `a` lies before everything in `b`. */
static uint32_t join(space *s, uint32_t a, uint32_t b)
{
    if (!a || !b) return a ? a : b;
    if (s->blocks[a].rank > s->blocks[b].rank) {
        s->blocks[a].right = join(s, s->blocks[a].right, b);
        refresh(s, a);
        return a;
    }
    s->blocks[b].left = join(s, a, s->blocks[b].left);
    refresh(s, b);
    return b;
}

/* Splits into blocks before `offset` and the rest. */
static void split(space *s, uint32_t at, int64_t offset, uint32_t *before, uint32_t *after)
{
    if (!at) {
        *before = *after = 0;
    } else if (s->blocks[at].offset < offset) {
        uint32_t rest;
        split(s, s->blocks[at].right, offset, &rest, after);
        s->blocks[at].right = rest;
        refresh(s, at);
        *before = at;
    } else {
        uint32_t rest;
        split(s, s->blocks[at].left, offset, before, &rest);
        s->blocks[at].left = rest;
        refresh(s, at);
        *after = at;
    }
}

static uint32_t new_block(space *s, int64_t offset, int64_t bytes)
{
    uint32_t at = s->spare;
    if (at)
        s->spare = s->blocks[at].left;
    else
        at = ++s->count;
    /* Any fixed scramble of the index balances the treap. */
    s->blocks[at] = (block){offset, bytes, bytes, 0, 0, at * 2654435761u};
    return at;
}

static void drop_block(space *s, uint32_t at)
{
    s->blocks[at].left = s->spare;
    s->spare = at;
}

static uint32_t rightmost(const space *s, uint32_t at)
{
    while (at && s->blocks[at].right) at = s->blocks[at].right;
    return at;
}

static uint32_t leftmost(const space *s, uint32_t at)
{
    while (at && s->blocks[at].left) at = s->blocks[at].left;
    return at;
}

static void give_back(space *s, int64_t offset, int64_t bytes)
{
    uint32_t before, after, lone;
    split(s, s->root, offset, &before, &after);
    uint32_t low = rightmost(s, before), high = leftmost(s, after);
    if (low && s->blocks[low].offset + s->blocks[low].bytes == offset) {
        offset = s->blocks[low].offset;
        bytes += s->blocks[low].bytes;
        split(s, before, offset, &before, &lone);
        drop_block(s, low);
    }
    if (high && s->blocks[high].offset == offset + bytes) {
        bytes += s->blocks[high].bytes;
        split(s, after, s->blocks[high].offset + 1, &lone, &after);
        drop_block(s, high);
    }
    s->root = join(s, join(s, before, new_block(s, offset, bytes)), after);
}

static uint32_t lowest_fit(const space *s, int64_t bytes)
{
    uint32_t at = s->root;
    if (s->blocks[at].largest < bytes) return 0;
    for (;;) {
        if (s->blocks[s->blocks[at].left].largest >= bytes)
            at = s->blocks[at].left;
        else if (s->blocks[at].bytes >= bytes)
            return at;
        else
            at = s->blocks[at].right;
    }
}

static int64_t take(space *s, int64_t bytes)
{
    uint32_t at = lowest_fit(s, bytes), before, after, lone;
    /* Nothing fits: a free block at the very end grows, else new space is added. */
    if (!at) {
        uint32_t last = rightmost(s, s->root);
        if (last && s->blocks[last].offset + s->blocks[last].bytes == s->end) at = last;
    }
    if (!at) {
        s->end += bytes;
        return s->end - bytes;
    }
    int64_t offset = s->blocks[at].offset, rest = s->blocks[at].bytes - bytes;
    split(s, s->root, offset, &before, &after);
    split(s, after, offset + 1, &lone, &after);
    drop_block(s, at);
    if (rest > 0) after = join(s, new_block(s, offset + bytes, rest), after);
    if (rest < 0) s->end -= rest;
    s->root = join(s, before, after);
    return offset;
}

typedef struct event {
    uint32_t time;
    uint32_t buffer;
} event;

static int by_time(const void *a, const void *b)
{
    const event *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    return x->buffer < y->buffer ? -1 : x->buffer > y->buffer;
}

/* What both sweeps work with. */
typedef struct scratch {
    space space;
    event *births, *deaths;
    int64_t *offsets;
} scratch;

/* First fit in order of birth; or, with time running backward, of death. Returns the end of the highest buffer. */
static int64_t sweep(scratch *w, ht_interval *buffers, size_t n, int64_t align, bool backward, int64_t *live)
{
    space *s = &w->space;
    int64_t now = 0;
    *s = (space){.blocks = s->blocks};
    for (size_t i = 0; i < n; i++) {
        w->births[i] = (event){backward ? UINT32_MAX - buffers[i].last : buffers[i].first, (uint32_t)i};
        w->deaths[i] = (event){backward ? UINT32_MAX - buffers[i].first : buffers[i].last, (uint32_t)i};
    }
    qsort(w->births, n, sizeof *w->births, by_time);
    qsort(w->deaths, n, sizeof *w->deaths, by_time);
    for (size_t b = 0, d = 0; b < n; b++) {
        for (; d < n && w->deaths[d].time < w->births[b].time; d++) {
            const ht_interval *dead = &buffers[w->deaths[d].buffer];
            int64_t bytes = (dead->bytes + align - 1) / align * align;
            if (bytes) give_back(s, dead->offset, bytes);
            now -= bytes;
        }
        ht_interval *born = &buffers[w->births[b].buffer];
        int64_t bytes = (born->bytes + align - 1) / align * align;
        born->offset = bytes ? take(s, bytes) : 0;
        now += bytes;
        if (now > *live) *live = now;
    }
    return s->end;
}

/* Activations live from forward to backward and leave holes behind when they are laid out as they are born: laid out as
 * they die they pack better. Which of the two wins is the graph's business. */
static int64_t better_sweep(scratch *w, ht_interval *buffers, size_t n, int64_t align, int64_t *live)
{
    int64_t forward = sweep(w, buffers, n, align, false, live);
    if (forward == *live) return forward;
    for (size_t i = 0; i < n; i++) w->offsets[i] = buffers[i].offset;
    int64_t backward = sweep(w, buffers, n, align, true, live);
    if (backward < forward) return backward;
    for (size_t i = 0; i < n; i++) buffers[i].offset = w->offsets[i];
    return forward;
}

ht_status ht_memory_assign(ht_context *ctx, ht_interval *buffers, size_t n, int64_t align, int64_t *total,
                           int64_t *live)
{
    scratch w = {
        .space = {.blocks = calloc(2 * n + 2, sizeof *w.space.blocks)},
        .births = malloc((n + 1) * sizeof *w.births),
        .deaths = malloc((n + 1) * sizeof *w.deaths),
        .offsets = malloc((n + 1) * sizeof *w.offsets),
    };
    bool ok = w.space.blocks && w.births && w.deaths && w.offsets;
    *total = *live = 0;
    if (ok) *total = better_sweep(&w, buffers, n, align, live);
    free(w.space.blocks);
    free(w.births);
    free(w.deaths);
    free(w.offsets);
    if (!ok) HT_FAIL(ctx, HT_ENOMEM, "out of memory while laying out memory");
    return HT_OK;
}
