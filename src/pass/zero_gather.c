/* Stage 3: a tensor of which each rank holds a piece is gathered before the model reads it, in forward and again in backward,
 * and is gone after its last use there. The next ones are on their way meanwhile. */
#include <stdlib.h>

#include "pass/fetch_params.h"
#include "pass/zero.h"

typedef struct gatherer {
    const ht_zero *z;
    const ht_zero_group **group;   /* by value id of what is gathered; NULL: it is not */
    const ht_zero_member **member; /* likewise */
} gatherer;

static ht_val piece_of(const gatherer *f, ht_val from)
{
    const ht_zero_group *group = f->group[from.id];
    const ht_zero_member *m = f->member[from.id];
    return ht_zero_piece_of(f->z, group, from.id == m->copy.id ? group->half : group->param, m->bucket);
}

static ht_val start_gather(void *arg, ht_val from)
{
    const gatherer *f = arg;
    return ht_all_gather_begin(f->z->g, piece_of(f, from), f->z->ranks);
}

/* The tensor as the model knows it, which its hash says, too. */
static ht_val end_gather(void *arg, ht_val from, ht_val start)
{
    const gatherer *f = arg;
    ht_graph *g = f->z->g;
    const ht_state *state = ht_state_of(g, from);
    const ht_type whole = ht_cut_type(&state->cut, &state->whole);
    ht_val all = ht_collective_end(g, start, piece_of(f, from));
    ht_val tensor = ht_reshape(g, ht_slice_axis(g, all, 0, 0, f->member[from.id]->elems), whole.rank, whole.dim);
    if (g->status == HT_OK) g->nodes[ht_producer(g, tensor) - g->nodes].was = f->z->hashes[from.id];
    return tensor;
}

static void list_gathered(gatherer *f, bool *gathered)
{
    for (size_t i = 0; i < f->z->group_count; i++) {
        const ht_zero_group *group = &f->z->groups[i];
        for (size_t k = 0; k < group->member_count; k++) {
            const ht_zero_member *m = &group->members[k];
            if (m->class != HT_ZERO_HALF_GATHERED && m->class != HT_ZERO_PARAM_GATHERED) continue;
            uint32_t id = m->class == HT_ZERO_HALF_GATHERED ? m->copy.id : m->param.id;
            gathered[id] = true;
            f->group[id] = group;
            f->member[id] = m;
        }
    }
}

ht_status ht_zero_gather_params(ht_zero *z)
{
    ht_graph *g = z->g;
    bool *gathered = calloc(z->known, sizeof *gathered);
    gatherer f = {.z = z, .group = calloc(z->known, sizeof *f.group), .member = calloc(z->known, sizeof *f.member)};
    ht_status status = gathered && f.group && f.member ? HT_OK : ht_fail(g->ctx, HT_ENOMEM, "zero: out of memory");
    const ht_fetch_how by = {start_gather, end_gather, &f};
    bool ahead = z->options->overlap && z->options->prefetch > 0;
    int64_t most = z->options->prefetch < z->most ? z->options->prefetch : z->most;
    const ht_fetching how = {.fetched = gathered,
                             .count = z->known,
                             .to = HT_SPACE_MAIN,
                             .role = HT_ROLE_FWD,
                             .ahead = ahead,
                             .ahead_elems = ahead ? most : 0,
                             .by = &by};
    if (status == HT_OK) list_gathered(&f, gathered);
    for (uint32_t i = 0; i < g->segment_count && status == HT_OK; i++)
        if (ht_is_of_model(&g->segments[i])) status = ht_fetch_states(g, i, &how);
    free(gathered);
    free(f.group);
    free(f.member);
    return status;
}
