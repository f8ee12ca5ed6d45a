/* The analysis of a plan: layout, kernels, schedule, groups, the places of state and slots, and the buffers of each
 * segment. Emission (plan.c) makes instructions of it; measure.c only looks at it. */
#include "plan/planning.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static ht_status no_memory(ht_context *ctx)
{
    return ht_fail(ctx, HT_ENOMEM, "out of memory for the plan");
}

/* ---- state and slots ---- */

ht_place ht_plan_add_place(ht_plan *plan, ht_space space, ht_area area, int64_t bytes)
{
    int64_t *end = &plan->area_bytes[space][area];
    ht_place place = {space, area, *end};
    int64_t align = space == HT_SPACE_DISK ? HT_PLAN_DISK_ALIGN : HT_PLAN_ALIGN;
    if (plan->canary) bytes += HT_CANARY_BYTES;
    *end += (bytes + align - 1) / align * align;
    return place;
}

static ht_status add_slot(ht_plan *plan, const char *name, ht_slot_kind kind, const ht_type *type, ht_place place,
                          ht_init init)
{
    if (!ht_grow((void **)&plan->slots, &plan->slot_capacity, plan->slot_count + 1, sizeof *plan->slots))
        return no_memory(plan->ctx);
    ht_slot *slot = &plan->slots[plan->slot_count++];
    *slot = (ht_slot){
        ht_arena_text(plan->arena, name, strlen(name)), kind, *type, place, init, .owner = plan->slot_count - 1};
    return slot->name ? HT_OK : no_memory(plan->ctx);
}

/* The disk copies, and views there are only other names of bytes. */
static ht_status check_spaces(const ht_graph *g)
{
    for (uint32_t v = 1; v < g->value_count; v++) {
        const ht_value *value = &g->values[v];
        const ht_node *n = ht_producer(g, (ht_val){v});
        if (value->type.space != HT_SPACE_DISK || !n || n->op->view || n->op->flags & HT_OP_CROSSES) continue;
        HT_FAIL(g->ctx, HT_ENOTSUP, "%s%s: %s in @disk: nothing is computed there; copy crosses spaces",
                value->name ? "%" : "",
                value->name ? value->name
                : n->site   ? n->site
                            : "a value",
                n->op->name);
    }
    return HT_OK;
}

/* Views come after what they view: the states that own bytes first. */
static ht_status place_state(planning *p)
{
    ht_graph *g = p->g;
    for (int views = 0; views < 2; views++) {
        for (size_t i = 0; i < g->state_count; i++) {
            ht_val v = g->states[i].value;
            const ht_value *value = ht_value_of(g, v);
            if ((value->base.id != 0) != views) continue;
            if (views) {
                p->lasting[v.id] = p->lasting[value->base.id];
                p->lasting[v.id].offset += value->offset * (int64_t)ht_dtype_bytes(value->type.dtype);
            } else {
                ht_area area = g->states[i].per_call ? HT_AREA_INPUT : HT_AREA_STATE;
                p->lasting[v.id] = ht_plan_add_place(p->plan, value->type.space, area, ht_type_bytes(&value->type));
                p->plan->heading_bytes[g->states[i].heading] += ht_type_bytes(&value->type);
            }
            HT_TRY(add_slot(p->plan, value->name, HT_SLOT_STATE, &value->type, p->lasting[v.id], HT_ZERO));
            ht_slot *slot = &p->plan->slots[p->plan->slot_count - 1];
            slot->heading = g->states[i].heading;
            slot->derived = g->states[i].derived;
            slot->cut = g->states[i].cut;
            slot->part = g->states[i].part;
            slot->whole = g->states[i].whole;
            slot->first = g->states[i].first;
            if (views)
                slot->owner = (size_t)(ht_plan_slot(p->plan, ht_value_of(g, value->base)->name) - p->plan->slots);
        }
    }
    return HT_OK;
}

/* Inputs and outputs of the same name and type share a slot over all segments. */
static ht_status place_named(planning *p, const char *name, ht_slot_kind kind, const ht_type *type, ht_init init,
                             ht_place *place)
{
    const ht_slot *slot = ht_plan_slot(p->plan, name);
    ht_type plain = *type;
    ht_type_row_major(&plain);
    if (slot && (slot->kind != kind || !ht_type_same(&slot->type, &plain))) {
        ht_type_text a, b;
        HT_FAIL(p->g->ctx, HT_EINVAL, "the name '%s' stands for %s and for %s", name, ht_type_str(&slot->type, &a),
                ht_type_str(&plain, &b));
    }
    if (slot) {
        *place = slot->place;
        return HT_OK;
    }
    ht_area area = kind == HT_SLOT_INPUT ? HT_AREA_INPUT : HT_AREA_OUTPUT;
    *place = ht_plan_add_place(p->plan, plain.space, area, ht_type_bytes(&plain));
    return add_slot(p->plan, name, kind, &plain, *place, init);
}

static ht_status place_inputs(planning *p)
{
    ht_graph *g = p->g;
    for (size_t s = 0; s < g->segment_count; s++) {
        for (size_t i = 0; i < g->segments[s].input_count; i++) {
            ht_val v = g->segments[s].inputs[i];
            HT_TRY(place_named(p, ht_value_of(g, v)->name, HT_SLOT_INPUT, ht_type_of(g, v), ht_input_init(g, v),
                               &p->lasting[v.id]));
        }
    }
    return HT_OK;
}

static ht_status place_outputs(planning *p, const ht_segment *s, ht_place *slots)
{
    for (size_t i = 0; i < s->output_count; i++)
        HT_TRY(place_named(p, s->outputs[i].name, HT_SLOT_OUTPUT, ht_type_of(p->g, s->outputs[i].value), HT_ZERO,
                           &slots[i]));
    return HT_OK;
}

/* ---- groups ---- */

static ht_status find_groups(planning *p)
{
    ht_graph *g = p->g;
    p->groups.of_node = calloc(g->node_count, sizeof *p->groups.of_node);
    p->groups.inside = calloc(g->value_count, sizeof *p->groups.inside);
    p->groups.row_block = calloc(g->node_count, sizeof *p->groups.row_block);
    p->groups.rows = calloc(g->node_count, sizeof *p->groups.rows);
    p->groups.reread = calloc(g->value_count, sizeof *p->groups.reread);
    p->groups.refused = calloc(g->node_count, sizeof *p->groups.refused);
    if (!p->groups.of_node || !p->groups.inside || !p->groups.row_block || !p->groups.rows || !p->groups.refused ||
        !p->groups.reread)
        return no_memory(g->ctx);
    if (p->request->no_fusion) return HT_OK;
    HT_TRY(ht_plan_fuse(g, &p->plan->target, p->kernels, &p->groups));
    return ht_plan_find_row_blocks(g, p->kernels, &p->groups);
}

size_t ht_plan_unit_length(const planning *p, const ht_segment *s, size_t at)
{
    uint32_t group = p->groups.of_node[s->nodes[at]];
    size_t count = 1;
    while (group && at + count < s->node_count && p->groups.of_node[s->nodes[at + count]] == group) count++;
    return count;
}

bool ht_plan_makes_nothing(const ht_graph *g, const ht_node *n)
{
    for (size_t i = 0; i < n->n_out; i++)
        if (ht_type_elems(ht_type_of(g, ht_node_out(n, i)))) return false;
    return true;
}

/* ---- the whole ---- */

/* At least `least`, and those that programs name. */
static unsigned count_input_slots(const ht_graph *g, unsigned least)
{
    for (size_t i = 0; i < g->program_count; i++)
        for (size_t k = 0; k < g->programs[i].call_count; k++)
            if (g->programs[i].calls[k].slot >= least) least = g->programs[i].calls[k].slot + 1;
    return least;
}

/* As ht_device_get takes it. */
static const char *name_device(ht_arena *arena, const char *kind, int number)
{
    char name[32];
    int length = number ? snprintf(name, sizeof name, "%s:%d", kind, number) : snprintf(name, sizeof name, "%s", kind);
    return ht_arena_text(arena, name, (size_t)length);
}

ht_status ht_planning_open(planning *p, const ht_graph *graph, const ht_plan_request *request)
{
    const ht_device_class *class;
    const char *device = ht_device_kind_names[request->target->device];
    int number = request->target->device_number;
    *p = (planning){.request = request};
    HT_TRY(ht_device_class_find(&class, graph->ctx, device));
    p->plan = calloc(1, sizeof *p->plan);
    if (!p->plan) return no_memory(graph->ctx);
    p->plan->ctx = graph->ctx;
    p->plan->arena = ht_arena_create();
    p->plan->target = *request->target;
    p->plan->precision = ht_precision_name(request->options->precision.precision);
    p->plan->canary = class->runs_host_code && (ht_debug_build() || request->canaries);
    p->plan->input_slots = class->asynchronous ? 2 : 1;
    if (!p->plan->arena || !(p->plan->device = name_device(p->plan->arena, device, number)))
        return no_memory(graph->ctx);
    return ht_graph_clone(&p->g, graph);
}

static ht_status place_state_and_inputs(planning *p)
{
    p->lasting = calloc(p->g->value_count, sizeof *p->lasting);
    if (!p->lasting) return no_memory(p->g->ctx);
    HT_TRY(place_state(p));
    return place_inputs(p);
}

ht_status ht_planning_analyse(planning *p)
{
    ht_graph *g = p->g;
    p->plan->input_slots = count_input_slots(g, p->plan->input_slots); /* passes may have listed more calls */
    HT_TRY(check_spaces(g));
    HT_TRY(ht_plan_layout(g, p->request, !p->quiet, &p->kernels));
    for (uint32_t i = 0; i < g->segment_count; i++) HT_TRY(ht_plan_schedule(g, i));
    HT_TRY(find_groups(p));
    HT_TRY(ht_graph_verify(g));
    return place_state_and_inputs(p);
}

void ht_planning_close(planning *p)
{
    ht_graph_free(p->g);
    free(p->kernels);
    free(p->groups.of_node);
    free(p->groups.inside);
    free(p->groups.row_block);
    free(p->groups.rows);
    free(p->groups.reread);
    free(p->groups.refused);
    free(p->lasting);
    free(p->loss_scaled);
    free(p->started);
}

/* ---- one segment ---- */

static ht_status count_copies(const planning *p, const ht_buffer_assignment *r, const ht_node *n, uint32_t *copies)
{
    ht_call_storage storage;
    const ht_call *call = ht_node_call(p->g, n, p->plan->arena, &storage);
    ht_place place;
    if (!call) return no_memory(p->g->ctx);
    for (size_t i = 0; i < n->n_in; i++) *copies += ht_plan_part_missing(p, r, call, n, i, &place);
    return HT_OK;
}

static ht_status count_instrs(const planning *p, const ht_segment *s, ht_buffer_assignment *r)
{
    for (size_t at = 0, count; at < s->node_count; at += count) {
        count = ht_plan_unit_length(p, s, at);
        const ht_node *last = &p->g->nodes[s->nodes[at + count - 1]];
        if (last->op == &ht_op_store)
            r->instrs[at] = !r->stored[at];
        else if (last->n_out && r->assembled[last->out])
            HT_TRY(count_copies(p, r, last, &r->instrs[at]));
        else
            r->instrs[at] = !ht_plan_is_view(p->g, last) && !ht_plan_makes_nothing(p->g, last);
        r->instr_count += r->instrs[at];
    }
    for (size_t i = 0; i < s->output_count; i++) r->instr_count += !r->output[i];
    return HT_OK;
}

/* Does a segment copy from or to the disk? */
static bool touches_disk(const ht_graph *g, const ht_segment *s)
{
    for (size_t at = 0; at < s->node_count; at++) {
        const ht_node *n = &g->nodes[s->nodes[at]];
        for (size_t i = 0; i < n->n_in; i++) {
            ht_val x = ht_node_in(g, n, i);
            if (x.id && ht_type_of(g, x)->space == HT_SPACE_DISK) return true;
        }
        if (n->n_out && ht_type_of(g, ht_node_out(n, 0))->space == HT_SPACE_DISK) return true;
    }
    return false;
}

static ht_status assign(planning *p, uint32_t index, ht_buffer_assignment *r)
{
    ht_graph *g = p->g;
    const ht_segment *s = &g->segments[index];
    *r = (ht_buffer_assignment){
        .value = malloc(g->value_count * sizeof *r->value),
        .life = calloc(g->value_count, sizeof *r->life),
        .guarded = calloc(g->value_count, sizeof *r->guarded),
        .workspace = calloc(s->node_count + 1, sizeof *r->workspace),
        .time = calloc(s->node_count + 1, sizeof *r->time),
        .instrs = calloc(s->node_count + 1, sizeof *r->instrs),
        .stored = calloc(s->node_count + 1, sizeof *r->stored),
        .output = calloc(s->output_count + 1, sizeof *r->output),
        .slot = calloc(s->output_count + 1, sizeof *r->slot),
        .within = calloc(g->value_count, sizeof *r->within),
        .part = calloc(g->value_count, sizeof *r->part),
        .assembled = calloc(g->value_count, sizeof *r->assembled),
    };
    bool ok = r->value && r->life && r->guarded && r->workspace && r->time && r->instrs && r->stored && r->output &&
              r->slot && r->within && r->part && r->assembled;
    if (!ok) return no_memory(g->ctx);
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        r->align[space] = touches_disk(g, s) ? HT_PLAN_DISK_ALIGN : HT_PLAN_ALIGN;
    HT_TRY(place_outputs(p, s, r->slot));
    memcpy(r->value, p->lasting, g->value_count * sizeof *r->value);
    HT_TRY(ht_plan_assign_buffers(p, index, r));
    return count_instrs(p, s, r);
}

ht_status ht_planning_assign(planning *p, uint32_t segment, ht_buffer_assignment *r)
{
    ht_status status = assign(p, segment, r);
    if (status != HT_OK) ht_buffer_assignment_free(r);
    return status;
}

void ht_buffer_assignment_free(ht_buffer_assignment *r)
{
    free(r->value);
    free(r->life);
    free(r->guarded);
    free(r->workspace);
    free(r->time);
    free(r->instrs);
    free(r->stored);
    free(r->output);
    free(r->slot);
    free(r->within);
    free(r->part);
    free(r->assembled);
    for (int space = 0; space < HT_SPACE_COUNT; space++) free(r->buffers[space].items);
    *r = (ht_buffer_assignment){0};
}
