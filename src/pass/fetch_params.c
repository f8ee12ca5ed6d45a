#include "pass/fetch_params.h"

#include <stdlib.h>

/* A copy serves uses until so many others were begun: a weight is read by a product and by its gradient in turn, but an
 * embedding at both ends of the model comes twice. */
enum { WINDOW = 4 };

/* One copy, and the uses that it serves. */
typedef struct fetch {
    ht_val from, start;
    size_t first; /* position of its first use */
} fetch;

typedef struct fetcher {
    ht_graph *g;
    const ht_fetching *how;
    ht_rewrite rw;
    fetch *list;
    size_t fetches, capacity;
    size_t *newest; /* by value id: 1 + its last fetch */
    ht_val *here;   /* by value id: the copy that serves it now */
} fetcher;

static bool is_fetched(const fetcher *f, ht_val v)
{
    return v.id < f->how->count && f->how->fetched[v.id];
}

static bool add_use(fetcher *f, ht_val v, size_t at)
{
    size_t *newest = &f->newest[v.id];
    if (*newest && f->fetches - *newest < WINDOW) return true;
    if (!ht_grow((void **)&f->list, &f->capacity, f->fetches + 1, sizeof *f->list)) return false;
    f->list[f->fetches++] = (fetch){.from = v, .first = at};
    *newest = f->fetches;
    return true;
}

static bool list_fetches(fetcher *f, const ht_segment *s)
{
    const ht_graph *g = f->g;
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        if (n->op->start) continue; /* it names what its start has read */
        for (size_t i = n->op == &ht_op_store; i < n->n_in; i++) {
            ht_val v = ht_node_in(g, n, i);
            if (is_fetched(f, v) && !add_use(f, v, at)) return false;
        }
    }
    return true;
}

static void start_fetch(fetcher *f, size_t index)
{
    if (index >= f->fetches || f->g->status != HT_OK) return;
    fetch *t = &f->list[index];
    const ht_fetch_how *by = f->how->by;
    if (by) {
        t->start = by->start(by->arg, t->from);
        return;
    }
    ht_type want = *ht_type_of(f->g, t->from);
    want.space = f->how->to;
    ht_type_row_major(&want);
    t->start = ht_emit1(f->g, "copy_start", &want, HT_VALS(t->from), HT_NO_ATTRS);
}

static void end_fetch(fetcher *f, size_t index)
{
    const fetch *t = &f->list[index];
    const ht_fetch_how *by = f->how->by;
    if (f->g->status != HT_OK) return;
    if (by) {
        f->here[t->from.id] = by->end(by->arg, t->from, t->start);
        return;
    }
    ht_type want = *ht_type_of(f->g, t->start);
    f->here[t->from.id] = ht_emit1(f->g, "copy_done", &want, HT_VALS(t->start, t->from), HT_NO_ATTRS);
}

static void read_here(fetcher *f, uint32_t id)
{
    const ht_node n = f->g->nodes[id];
    if (n.op->start) ht_rewrite_done(f->g, &n);
    for (size_t i = n.op == &ht_op_store; i < n.n_in && !n.op->start; i++) {
        ht_val *v = &f->g->operands[n.in + i];
        if (is_fetched(f, *v)) *v = f->here[v->id];
    }
    ht_rewrite_keep(&f->rw, id);
}

/* Of the whole, where each rank has a part: all ranks fetch alike. */
static int64_t whole_elems(const ht_graph *g, ht_val v)
{
    const ht_state *s = ht_state_of(g, v);
    const ht_type whole = s && s->part ? ht_cut_type(&s->cut, &s->whole) : *ht_type_of(g, v);
    return ht_type_elems(&whole);
}

/* Begins those from fetch `next` on that may be under way: all before `least`, and what has few elements. */
static void start_ahead(fetcher *f, size_t next, size_t least, size_t *started)
{
    int64_t elems = 0;
    for (size_t i = next; i < f->fetches; i++) {
        elems += i == next ? 0 : whole_elems(f->g, f->list[i].from);
        if (i >= least && elems > f->how->ahead_elems) return;
        if (i < *started) continue;
        start_fetch(f, i);
        *started = i + 1;
    }
}

static ht_status fetch_all(fetcher *f, uint32_t segment)
{
    ht_graph *g = f->g;
    ht_role role = g->role;
    size_t next = 0, started = 0;
    g->role = f->how->role;
    if (ht_rewrite_begin(&f->rw, g, segment)) {
        for (size_t at = 0; at < f->rw.count && g->status == HT_OK; at++) {
            if (at == f->how->from && f->how->ahead) start_ahead(f, 0, f->how->ahead, &started);
            for (; next < f->fetches && f->list[next].first == at; next++) {
                start_ahead(f, next, next + f->how->ahead + 1, &started);
                end_fetch(f, next);
            }
            if (g->status == HT_OK) read_here(f, f->rw.old[at]);
        }
    }
    g->role = role;
    return ht_rewrite_end(&f->rw);
}

ht_status ht_fetch_states(ht_graph *g, uint32_t segment, const ht_fetching *how)
{
    fetcher f = {
        .g = g, .how = how, .newest = calloc(how->count, sizeof *f.newest), .here = calloc(how->count, sizeof *f.here)};
    bool ok = f.newest && f.here && list_fetches(&f, &g->segments[segment]);
    ht_status status = ok ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "out of memory for what is fetched");
    if (status == HT_OK && f.fetches) status = fetch_all(&f, segment);
    free(f.newest);
    free(f.here);
    free(f.list);
    return status;
}
