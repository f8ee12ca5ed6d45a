/* Prepacking: forms of state that kernels compute with (ht_prepack), such as packed weights, last between runs. A segment may use
 * one if it only reads the state; what writes the state, in any segment, invalidates it. Judged by the finished instructions:
 * a result in the state area is a write. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

/* Making a form alone costs as much as three or four runs win by it: it must be used so often before it is invalidated. */
enum { FEWEST_USES = 4 };

typedef struct written {
    ht_state_span *spans; /* by place, apart from each other */
    size_t count;
    bool trains; /* the segment has a backward pass: an update follows, sooner or later */
} written;

typedef struct prepacking {
    ht_plan *plan;
    written *of_segment;
} prepacking;

static ht_status no_memory(const ht_plan *plan)
{
    return ht_fail(plan->ctx, HT_ENOMEM, "out of memory for prepacking");
}

/* ---- who writes what ---- */

static ht_state_span span_of(ht_place place, const ht_type *type)
{
    int64_t last = 0;
    for (int i = 0; i < type->rank; i++) last += (type->dim[i] - 1) * type->stride[i];
    int64_t elems = ht_type_elems(type) ? last + 1 : 0;
    return (ht_state_span){place.space, place.offset, place.offset + elems * (int64_t)ht_dtype_bytes(type->dtype)};
}

static int by_place(const void *a, const void *b)
{
    const ht_state_span *x = a, *y = b;
    if (x->space != y->space) return x->space < y->space ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

/* Sorted, neighbours and overlapping ones joined. */
static void tidy(written *w)
{
    size_t count = 0;
    if (w->count) qsort(w->spans, w->count, sizeof *w->spans, by_place);
    for (size_t i = 0; i < w->count; i++) {
        ht_state_span *last = count ? &w->spans[count - 1] : NULL;
        if (!last || w->spans[i].space != last->space || w->spans[i].first > last->end)
            w->spans[count++] = w->spans[i];
        else if (w->spans[i].end > last->end)
            last->end = w->spans[i].end;
    }
    w->count = count;
}

static bool list_written(const ht_plan_segment *s, written *w)
{
    size_t capacity = 0;
    for (size_t i = 0; i < s->instr_count; i++) {
        const ht_instr *instr = &s->instrs[i];
        w->trains |= instr->role != HT_ROLE_FWD;
        for (size_t o = 0; o < instr->call->n_out; o++) {
            if (instr->out[o].area != HT_AREA_STATE) continue;
            if (!ht_grow((void **)&w->spans, &capacity, w->count + 1, sizeof *w->spans)) return false;
            w->spans[w->count++] = span_of(instr->out[o], instr->call->out[o]);
        }
    }
    tidy(w);
    return true;
}

static bool touches(const written *w, ht_state_span span)
{
    size_t low = 0, high = w->count; /* the first that ends behind the beginning of the span */
    while (low < high) {
        size_t middle = (low + high) / 2;
        const ht_state_span *at = &w->spans[middle];
        if (at->space > span.space || (at->space == span.space && at->end > span.first))
            high = middle;
        else
            low = middle + 1;
    }
    return low < w->count && w->spans[low].space == span.space && w->spans[low].first < span.end;
}

static bool writes(const prepacking *c, size_t segment, const ht_prepacked *prepacked)
{
    for (int i = 0; i < HT_PREPACK_SOURCES; i++)
        if (touches(&c->of_segment[segment], prepacked->source[i])) return true;
    return false;
}

/* ---- what is worth keeping ---- */

/* How often a program runs this segment and its sisters that read the same, before it writes; -1: the program does not
 * run the segment, or writes nothing of it. */
static int64_t uses_in(const prepacking *c, const ht_plan_program *p, size_t segment, const ht_prepacked *prepacked)
{
    int64_t uses = 0;
    bool runs = false, invalidates = false;
    for (size_t i = 0; i < p->call_count; i++) {
        runs |= p->calls[i].segment == segment;
        if (writes(c, p->calls[i].segment, prepacked))
            invalidates = true;
        else
            uses += p->calls[i].times;
    }
    return runs && invalidates ? uses : -1;
}

static bool pays(const prepacking *c, size_t segment, const ht_prepacked *prepacked)
{
    int64_t least = -1;
    for (size_t i = 0; i < c->plan->program_count; i++) {
        int64_t uses = uses_in(c, &c->plan->programs[i], segment, prepacked);
        if (uses >= 0 && (least < 0 || uses < least)) least = uses;
    }
    return least < 0 ? !c->of_segment[segment].trains : least >= FEWEST_USES;
}

/* ---- instructions ---- */

/* The call that the kernel packs for, and the places of its inputs. */
static const ht_call *packing_call(const ht_instr *instr, const ht_place **in)
{
    bool behind = instr->fused && instr->fused->gemm;
    *in = instr->in + (behind ? instr->fused->n_in : 0);
    return behind ? instr->fused->gemm : instr->call;
}

/* Where the form comes from; false unless all of it is state. */
static bool find_sources(const ht_instr *instr, ht_prepacked *prepacked)
{
    const ht_place *in;
    const ht_call *call = packing_call(instr, &in);
    int count = 0;
    for (size_t i = 0; i < call->n_in; i++) {
        if (!(instr->kernel->prepack->inputs >> i & 1)) continue;
        if (in[i].area != HT_AREA_STATE || count == HT_PREPACK_SOURCES) return false;
        prepacked->source[count++] = span_of(in[i], call->in[i]);
    }
    return count > 0;
}

/* Do two instructions make the same of the same? */
static bool same_form(const ht_instr *a, const ht_instr *b)
{
    const ht_place *a_in, *b_in;
    const ht_call *x = packing_call(a, &a_in), *y = packing_call(b, &b_in);
    if (a->kernel->prepack != b->kernel->prepack || x->n_in != y->n_in || x->n_attr != y->n_attr) return false;
    for (size_t i = 0; i < x->n_in; i++)
        if (a->kernel->prepack->inputs >> i & 1)
            if (!ht_place_same(a_in[i], b_in[i]) || !ht_type_same(x->in[i], y->in[i]) ||
                memcmp(x->in[i]->stride, y->in[i]->stride, sizeof x->in[i]->stride[0] * (size_t)x->in[i]->rank) != 0)
                return false;
    for (size_t i = 0; i < x->n_attr; i++)
        if (!ht_attr_equal(&x->attr[i], &y->attr[i])) return false;
    return true;
}

static ht_status prepack_for(prepacking *c, size_t segment, ht_instr *instr)
{
    ht_plan *plan = c->plan;
    const ht_place *in;
    ht_prepacked prepacked = {.user = instr};
    if (!instr->kernel->prepack) return HT_OK;
    int64_t bytes = instr->kernel->prepack->bytes(packing_call(instr, &in), &plan->target);
    if (bytes == 0 || !find_sources(instr, &prepacked) || writes(c, segment, &prepacked) ||
        !pays(c, segment, &prepacked))
        return HT_OK;
    for (size_t i = 0; i < plan->prepacked_count && !instr->prepacked; i++)
        if (same_form(plan->prepacked[i].user, instr)) instr->prepacked = (uint32_t)i + 1;
    if (!instr->prepacked) {
        if (!ht_grow((void **)&plan->prepacked, &plan->prepacked_capacity, plan->prepacked_count + 1, sizeof prepacked))
            return no_memory(plan);
        prepacked.place = ht_plan_add_place(plan, prepacked.source[0].space, HT_AREA_PREPACKED, bytes);
        plan->prepacked[plan->prepacked_count++] = prepacked;
        instr->prepacked = (uint32_t)plan->prepacked_count;
    }
    plan->segments[segment].prepack_count++;
    return HT_OK;
}

/* The two lists of a segment, now that everything that is prepacked is known. */
static ht_status list_prepacked(const prepacking *c, size_t segment)
{
    ht_plan *plan = c->plan;
    ht_plan_segment *s = &plan->segments[segment];
    s->prepacks = HT_NEW(plan->arena, uint32_t, s->prepack_count);
    s->invalidates = HT_NEW(plan->arena, uint32_t, plan->prepacked_count);
    if (!s->prepacks || !s->invalidates) return no_memory(plan);
    s->prepack_count = 0;
    for (size_t i = 0; i < s->instr_count; i++)
        if (s->instrs[i].prepacked) s->prepacks[s->prepack_count++] = (uint32_t)i;
    for (size_t i = 0; i < plan->prepacked_count; i++)
        if (writes(c, segment, &plan->prepacked[i])) s->invalidates[s->invalidate_count++] = (uint32_t)i;
    return HT_OK;
}

ht_status ht_plan_prepack(ht_plan *plan)
{
    prepacking c = {plan, calloc(plan->segment_count + 1, sizeof *c.of_segment)};
    ht_status status = c.of_segment ? HT_OK : no_memory(plan);
    for (size_t s = 0; s < plan->segment_count && status == HT_OK; s++)
        if (!list_written(&plan->segments[s], &c.of_segment[s])) status = no_memory(plan);
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count && status == HT_OK; i++)
            status = prepack_for(&c, s, &plan->segments[s].instrs[i]);
    for (size_t s = 0; s < plan->segment_count && status == HT_OK; s++) status = list_prepacked(&c, s);
    for (size_t s = 0; s < plan->segment_count && c.of_segment; s++) free(c.of_segment[s].spans);
    free(c.of_segment);
    return status;
}
