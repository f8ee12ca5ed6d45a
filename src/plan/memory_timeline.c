#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

static bool is_workspace(const ht_plan_segment *s, const ht_interval *buffer)
{
    const ht_instr *instr = &s->instrs[buffer->first];
    const ht_place *place = &instr->workspace;
    return buffer->first == buffer->last && place->area == HT_AREA_TRANSIENT && place->space == HT_SPACE_MAIN &&
           place->offset == buffer->offset;
}

static void add_moments(ht_memory_timeline *t, const ht_plan_segment *s)
{
    ht_memory_moment *at = &t->moments[t->count];
    t->count += s->instr_count;
    for (size_t i = 0; i < s->instr_count; i++)
        at[i] = (ht_memory_moment){.segment = s, .instr = i, .values = s->timeline[i]};
    for (size_t b = 0; b < s->buffer_count[HT_SPACE_MAIN]; b++) {
        const ht_interval *buffer = &s->buffers[HT_SPACE_MAIN][b];
        if (!is_workspace(s, buffer)) continue;
        at[buffer->first].workspace += buffer->bytes;
        at[buffer->first].values -= buffer->bytes;
    }
}

/* The operand whose memory the buffer is; NULL: none of the instruction's results begins there. */
static const ht_type *result_at(const ht_instr *instr, int64_t offset)
{
    for (size_t i = 0; i < instr->call->n_out; i++) {
        const ht_place *place = &instr->out[i];
        if (place->area == HT_AREA_TRANSIENT && place->space == HT_SPACE_MAIN && place->offset == offset)
            return instr->call->out[i];
    }
    return NULL;
}

static int by_bytes(const void *a, const void *b)
{
    const ht_alive *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

static ht_status list_alive(ht_memory_timeline *t, const ht_plan *plan)
{
    const ht_memory_moment *peak = &t->moments[t->peak];
    const ht_plan_segment *s = peak->segment;
    t->alive = HT_NEW(t->arena, ht_alive, s->buffer_count[HT_SPACE_MAIN] + 1);
    for (size_t b = 0; t->alive && b < s->buffer_count[HT_SPACE_MAIN]; b++) {
        const ht_interval *buffer = &s->buffers[HT_SPACE_MAIN][b];
        if (buffer->first > peak->instr || buffer->last < peak->instr) continue;
        const ht_type *type = result_at(&s->instrs[buffer->first], buffer->offset);
        ht_type_text text;
        const char *shown = is_workspace(s, buffer) ? "workspace" : type ? ht_type_str(type, &text) : "";
        shown = ht_arena_text(t->arena, shown, strlen(shown));
        if (!shown) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a timeline");
        t->alive[t->alive_count++] = (ht_alive){ht_instr_op(&s->instrs[buffer->first]),
                                                ht_instr_layer(s, buffer->first),
                                                shown,
                                                buffer->bytes,
                                                buffer->first,
                                                buffer->last};
    }
    if (!t->alive) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a timeline");
    qsort(t->alive, t->alive_count, sizeof *t->alive, by_bytes);
    return HT_OK;
}

static bool came_before(const ht_plan_program *program, size_t call)
{
    for (size_t i = 0; i < call; i++)
        if (program->calls[i].segment == program->calls[call].segment) return true;
    return false;
}

ht_status ht_plan_memory_timeline(ht_memory_timeline *out, const ht_plan *plan, const char *name)
{
    int found = ht_plan_program_find(plan, name);
    const ht_plan_program *program = found < 0 ? NULL : &plan->programs[found];
    ht_byte_table bytes = ht_plan_byte_table(plan);
    size_t count = 0;
    *out = (ht_memory_timeline){.arena = ht_arena_create()};
    memcpy(out->lasting, bytes.bytes[HT_SPACE_MAIN], sizeof out->lasting);
    out->lasting[HT_BYTES_ACTIVATIONS] = out->lasting[HT_BYTES_WORKSPACE] = 0;
    for (size_t i = 0; program && i < program->call_count; i++)
        if (!came_before(program, i)) count += plan->segments[program->calls[i].segment].instr_count;
    out->moments = out->arena ? HT_NEW(out->arena, ht_memory_moment, count + 1) : NULL;
    if (!out->moments) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for a timeline");
    for (size_t i = 0; program && i < program->call_count; i++)
        if (!came_before(program, i)) add_moments(out, &plan->segments[program->calls[i].segment]);
    for (size_t i = 0; i < out->count; i++) {
        const ht_memory_moment *at = &out->moments[i], *peak = &out->moments[out->peak];
        if (at->values + at->workspace > peak->values + peak->workspace) out->peak = i;
    }
    return out->count ? list_alive(out, plan) : HT_OK;
}

const ht_memory_moment *ht_memory_timeline_fullest(const ht_memory_timeline *t, size_t part, size_t parts)
{
    size_t first = t->count * part / parts, end = t->count * (part + 1) / parts;
    const ht_memory_moment *best = &t->moments[first];
    for (size_t i = first; i < end; i++)
        if (t->moments[i].values + t->moments[i].workspace > best->values + best->workspace) best = &t->moments[i];
    return best;
}

void ht_memory_timeline_alive_json(const ht_memory_timeline *t, ht_json_writer *json, size_t most)
{
    ht_json_line(json, 1);
    ht_json_begin_array(json, "alive");
    for (size_t i = 0; i < t->alive_count && i < most; i++) {
        const ht_alive *a = &t->alive[i];
        ht_json_line(json, 2);
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "layer", a->layer);
        ht_json_put_text(json, "op", a->op);
        ht_json_put_text(json, "type", a->type);
        ht_json_put_int(json, "bytes", a->bytes);
        ht_json_put_int(json, "first", a->first);
        ht_json_put_int(json, "last", a->last);
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
}

void ht_memory_timeline_free(ht_memory_timeline *timeline)
{
    ht_arena_free(timeline->arena);
    *timeline = (ht_memory_timeline){0};
}
