/* The tail of a segment: what of an update can run within the segment that comes after it. An update that waits for a disk,
 * tile by tile, or for what other ranks have updated, bucket by bucket, lets forward go on with layers whose parameters are
 * up to date. */
#include <string.h>

#include "plan/plan.h"

/* Bytes of an area that an instruction reads or writes. Transients are judged by the segment's buffers: these include
 * workspaces, and last as long as copies that are under way. */
typedef struct range {
    ht_space space;
    ht_area area;
    int64_t first, end;
    bool written;
} range;

static range range_of(ht_place place, const ht_type *type, bool written)
{
    int64_t bytes = ht_type_extent(type) * (int64_t)ht_dtype_bytes(type->dtype);
    return (range){place.space, place.area, place.offset, place.offset + bytes, written};
}

static bool conflicts(const range *a, const range *b)
{
    return (a->written || b->written) && a->space == b->space && a->area == b->area && a->first < b->end &&
           b->first < a->end;
}

static size_t operand_count(const ht_instr *instr)
{
    return instr->call->n_in + instr->call->n_out;
}

/* Operand i, then results; false: it is left out, or a transient. */
static bool range_at(const ht_instr *instr, size_t i, range *out)
{
    size_t inputs = instr->call->n_in;
    ht_place place = i < inputs ? instr->in[i] : instr->out[i - inputs];
    if (place.area == HT_AREA_NONE || place.area == HT_AREA_TRANSIENT) return false;
    *out = range_of(place, i < inputs ? instr->call->in[i] : instr->call->out[i - inputs], i >= inputs);
    return true;
}

static bool instr_touches(const ht_instr *instr, const range *r)
{
    range own;
    for (size_t i = 0; i < operand_count(instr); i++)
        if (range_at(instr, i, &own) && conflicts(&own, r)) return true;
    return false;
}

bool ht_plan_instrs_conflict(const ht_instr *a, const ht_instr *b)
{
    range r;
    for (size_t k = 0; k < operand_count(a); k++)
        if (range_at(a, k, &r) && instr_touches(b, &r)) return true;
    return false;
}

bool ht_plan_tail_touches(const ht_plan_segment *s, size_t from, ht_place place, size_t bytes, bool written)
{
    range r = {place.space, place.area, place.offset, place.offset + (int64_t)bytes, written};
    for (size_t i = from; i < s->instr_count; i++)
        if (instr_touches(&s->instrs[i], &r)) return true;
    return false;
}

/* ---- what the next segment needs ---- */

/* One more than the last instruction of the tail that conflicts with this one; 0: none does. */
static uint32_t needed_by(const ht_plan_segment *s, const ht_instr *instr)
{
    range r;
    uint32_t needed = 0;
    for (size_t k = 0; k < operand_count(instr); k++) {
        if (!range_at(instr, k, &r)) continue;
        for (size_t i = s->instr_count; i-- > s->tail && i >= needed;)
            if (instr_touches(&s->instrs[i], &r)) needed = (uint32_t)i + 1;
    }
    return needed;
}

/* A buffer of the next segment takes bytes of buffers that the tail uses. */
static void need_buffers(const ht_plan_segment *s, const ht_plan_segment *next, int space, uint32_t *needed)
{
    for (size_t i = 0; i < next->buffer_count[space]; i++) {
        const ht_interval *theirs = &next->buffers[space][i];
        uint32_t *need = &needed[theirs->first];
        for (size_t k = 0; k < s->buffer_count[space]; k++) {
            const ht_interval *ours = &s->buffers[space][k];
            bool overlap = ours->offset < theirs->offset + theirs->bytes && theirs->offset < ours->offset + ours->bytes;
            if (overlap && ours->last + 1 > *need) *need = ours->last + 1;
        }
    }
}

void ht_plan_tail_needed(const ht_plan_segment *s, const ht_plan_segment *next, uint32_t *needed)
{
    for (size_t i = 0; i < next->instr_count; i++) needed[i] = needed_by(s, &next->instrs[i]);
    for (int space = 0; space < HT_SPACE_COUNT; space++) need_buffers(s, next, space, needed);
    for (size_t i = 0; i < next->instr_count; i++) { /* the parts of a row block run with its first one */
        for (size_t k = 1; k < next->instrs[i].row_block; k++)
            if (needed[i + k] > needed[i]) needed[i] = needed[i + k];
        if (i > 0 && needed[i - 1] > needed[i]) needed[i] = needed[i - 1];
    }
}

/* ---- which segments have one ---- */

static bool writes_disk(const ht_instr *instr)
{
    return instr->queue == HT_QUEUE_COPY_OUT && instr->space == HT_SPACE_DISK;
}

static bool reads_input(const ht_instr *instr)
{
    for (size_t i = 0; i < instr->call->n_in; i++)
        if (instr->in[i].area == HT_AREA_INPUT) return true;
    return false;
}

static bool writes_output(const ht_instr *instr)
{
    for (size_t i = 0; i < instr->call->n_out; i++)
        if (instr->out[i].area == HT_AREA_OUTPUT) return true;
    return false;
}

/* Does it wait for another rank? */
static bool waits_for_ranks(const ht_plan_segment *s, const ht_instr *instr)
{
    return instr->wait && s->instrs[instr->wait - 1].queue == HT_QUEUE_COMM;
}

/* Those of the update: what comes next needs other results of exchanges at once. */
static bool leaves_gathers(const ht_plan_segment *s)
{
    return strcmp(s->name, "update") == 0;
}

/* From the first wait for a disk on, or for what was gathered of other ranks, that comes behind the outputs (a norm of
 * gradients on the disk is one, and is asked for) and behind the starts of collectives, whose order must not follow from
 * anybody's pace. Inputs may change once the segment was run, and what waits for a disk is worth it if the segment writes
 * there, too. */
static size_t find_tail(const ht_plan_segment *s)
{
    size_t tail = s->instr_count;
    bool worth = false, stays = false;
    for (size_t i = s->instr_count; i-- > 0;) {
        const ht_instr *instr = &s->instrs[i];
        bool ranks = waits_for_ranks(s, instr), leaves = ranks && leaves_gathers(s);
        if (reads_input(instr)) return s->instr_count;
        worth |= writes_disk(instr) || leaves;
        stays |= writes_output(instr) || instr->queue == HT_QUEUE_COMM || (ranks && !leaves);
        bool disk = instr->wait && s->instrs[instr->wait - 1].space == HT_SPACE_DISK;
        if (!stays && (disk || leaves)) tail = i;
    }
    return worth ? tail : s->instr_count;
}

static void move_up(ht_place *place, int64_t by)
{
    if (place->space == HT_SPACE_MAIN && place->area == HT_AREA_TRANSIENT) place->offset += by;
}

/* Transients of main to the end of their area, which forward comes to last. */
void ht_plan_raise_segment(ht_plan_segment *s, int64_t by)
{
    for (size_t i = 0; i < s->instr_count; i++) {
        ht_place *places = (ht_place *)s->instrs[i].in; /* the plan's own: operands, then results */
        for (size_t k = 0; k < operand_count(&s->instrs[i]); k++) move_up(&places[k], by);
        move_up(&s->instrs[i].workspace, by);
    }
    for (size_t i = 0; i < s->buffer_count[HT_SPACE_MAIN]; i++) s->buffers[HT_SPACE_MAIN][i].offset += by;
}

static bool has_gathers(const ht_plan_segment *s)
{
    for (size_t i = s->tail; i < s->instr_count; i++)
        if (waits_for_ranks(s, &s->instrs[i])) return true;
    return false;
}

/* What is gathered is under way while the next segment fills the area, from whichever end: it lies behind all of it. */
static void raise_gathers(ht_plan *plan, ht_plan_segment *s)
{
    int64_t others = 0, *area = &plan->area_bytes[HT_SPACE_MAIN][HT_AREA_TRANSIENT];
    for (size_t i = 0; i < plan->segment_count; i++) {
        int64_t bytes = plan->segments[i].transient_bytes[HT_SPACE_MAIN];
        if (&plan->segments[i] != s && bytes > others) others = bytes;
    }
    others = (others + HT_PLAN_DISK_ALIGN - 1) / HT_PLAN_DISK_ALIGN * HT_PLAN_DISK_ALIGN;
    ht_plan_raise_segment(s, others);
    if (others + s->transient_bytes[HT_SPACE_MAIN] > *area) *area = others + s->transient_bytes[HT_SPACE_MAIN];
}

void ht_plan_find_tails(ht_plan *plan)
{
    int64_t area = plan->area_bytes[HT_SPACE_MAIN][HT_AREA_TRANSIENT];
    for (size_t i = 0; i < plan->segment_count; i++) {
        ht_plan_segment *s = &plan->segments[i];
        int64_t by = (area - s->transient_bytes[HT_SPACE_MAIN]) / HT_PLAN_DISK_ALIGN * HT_PLAN_DISK_ALIGN;
        s->tail = find_tail(s);
        if (s->tail == s->instr_count) continue;
        if (has_gathers(s))
            raise_gathers(plan, s);
        else if (by > 0)
            ht_plan_raise_segment(s, by);
    }
}
