/* Building a plan: passes on a clone of the graph, analysis (analyse.c), then the instructions of one segment after
 * another. */
#include "plan/planning.h"

#include <stdlib.h>
#include <string.h>

static ht_status no_memory(ht_context *ctx)
{
    return ht_fail(ctx, HT_ENOMEM, "out of memory for the plan");
}

static const char *own_text(ht_plan *plan, const char *text)
{
    return text ? ht_arena_text(plan->arena, text, strlen(text)) : NULL;
}

/* ---- instructions ---- */

static bool types_equal(const ht_type *a, const ht_type *b)
{
    size_t bytes = (size_t)a->rank * sizeof a->dim[0];
    return ht_type_same(a, b) && memcmp(a->stride, b->stride, bytes) == 0;
}

const ht_type *ht_plan_own_type(ht_plan *plan, const ht_type *from)
{
    uint64_t hash = (uint64_t)from->dtype * 31 + (uint64_t)from->space;
    for (int i = 0; i < from->rank; i++)
        hash = (hash ^ (uint64_t)from->dim[i] ^ (uint64_t)from->stride[i] << 20) * UINT64_C(0x9e3779b97f4a7c15);
    const ht_type **own = &plan->types[hash >> 32 & (HT_PLAN_TYPES - 1)];
    if (*own && types_equal(*own, from)) return *own;
    ht_type *copy = HT_NEW(plan->arena, ht_type, 1);
    if (!copy) return NULL;
    *copy = *from;
    return *own = copy;
}

const ht_call *ht_plan_own_call(ht_plan *plan, const ht_call *from)
{
    ht_call *to = HT_NEW(plan->arena, ht_call, 1);
    const ht_type **types = HT_NEW(plan->arena, const ht_type *, from->n_in + from->n_out);
    ht_attr *attrs = HT_NEW(plan->arena, ht_attr, from->n_attr);
    if (!to || !types || !attrs) return NULL;
    *to = *from;
    for (size_t i = 0; i < from->n_in + from->n_out; i++) {
        const ht_type *type = i < from->n_in ? from->in[i] : from->out[i - from->n_in];
        types[i] = type ? ht_plan_own_type(plan, type) : NULL;
        if (type && !types[i]) return NULL;
    }
    for (size_t i = 0; i < from->n_attr; i++)
        if (!ht_attr_copy(plan->arena, &attrs[i], &from->attr[i])) return NULL;
    to->in = types;
    to->out = types + from->n_in;
    to->attr = attrs;
    return to;
}

/* A value without a name of its own has that of the state or output that it is made in. */
static const char *name_of(const ht_plan *plan, const ht_type *type, ht_place place)
{
    if (place.area == HT_AREA_TRANSIENT || place.area == HT_AREA_NONE) return NULL;
    const ht_slot *slot = ht_plan_slot_at(plan, place, type);
    return slot ? slot->name : NULL;
}

static bool reads_loss_scaled(const planning *p, const ht_node *n)
{
    for (size_t i = 0; i < n->n_in; i++)
        if (p->loss_scaled[ht_node_in(p->g, n, i).id]) return true;
    return false;
}

/* Gradients follow from what backward starts with; what their rules compute of the model's own values does not. */
static void mark_loss_scaled(planning *p)
{
    for (size_t s = 0; s < p->g->segment_count; s++) {
        const ht_segment *segment = &p->g->segments[s];
        for (size_t i = 0; i < segment->input_count; i++)
            p->loss_scaled[segment->inputs[i].id] =
                strcmp(ht_value_of(p->g, segment->inputs[i])->name, "loss_grad") == 0;
        for (size_t at = 0; at < segment->node_count; at++) {
            const ht_node *n = &p->g->nodes[segment->nodes[at]];
            bool loss_scaled = reads_loss_scaled(p, n);
            for (size_t i = 0; i < n->n_out; i++) p->loss_scaled[n->out + i] = loss_scaled;
        }
    }
}

/* What reports say of an instruction: what it makes, and the node that it is there for. False when memory is out. */
static bool describe(planning *p, ht_instr *instr, const ht_node *last, const ht_node *node)
{
    ht_plan *plan = p->plan;
    const ht_node *origin = node->origin ? &p->g->nodes[node->origin] : NULL;
    const char *name = last->n_out ? ht_value_of(p->g, ht_node_out(last, 0))->name : NULL;
    instr->role = node->role;
    instr->unfused = p->groups.refused[node - p->g->nodes];
    instr->recomputed = node->recomputed;
    instr->loss_scaled = reads_loss_scaled(p, last);
    instr->site = own_text(plan, node->site);
    instr->origin = origin ? origin->op->name : NULL;
    instr->origin_site = origin ? own_text(plan, origin->site) : NULL;
    instr->value = own_text(plan, name);
    if ((node->site && !instr->site) || (origin && origin->site && !instr->origin_site) || (name && !instr->value))
        return false;
    if (!name) instr->value = name_of(plan, instr->call->out[0], instr->out[0]);
    return true;
}

/* What an instruction touches: places of its operands, and which results end at a canary. */
typedef struct operands {
    const ht_place *in, *out;
    const bool *guarded;
    ht_place workspace;
} operands;

static ht_status add_instr(planning *p, ht_plan_segment *segment, const ht_kernel *kernel, const ht_call *call,
                           const operands *at, const ht_node *node)
{
    ht_plan *plan = p->plan;
    ht_instr *instr = &segment->instrs[segment->instr_count++];
    ht_place *places = HT_NEW(plan->arena, ht_place, call->n_in + call->n_out);
    bool *guarded = HT_NEW(plan->arena, bool, call->n_out);
    *instr = (ht_instr){.kernel = kernel, .call = ht_plan_own_call(plan, call), .workspace = at->workspace};
    if (!places || !guarded || !instr->call) return no_memory(plan->ctx);
    for (size_t i = 0; i < call->n_in; i++) places[i] = at->in[i];
    for (size_t i = 0; i < call->n_out; i++) {
        places[call->n_in + i] = at->out[i];
        guarded[i] = at->guarded[i];
    }
    instr->in = places;
    instr->out = places + call->n_in;
    if (kernel->elementwise) {
        instr->fused = ht_plan_step(plan, instr->call, kernel, node ? p->groups.reread + node->out : NULL);
        if (!instr->fused) return no_memory(plan->ctx);
    }
    if (plan->canary) instr->guarded = guarded;
    instr->cost = ht_plan_node_cost(call, node);
    ht_plan_read_once(instr);
    if (node) return describe(p, instr, node, node) ? HT_OK : no_memory(plan->ctx);
    instr->value = name_of(plan, call->out[0], at->out[0]);
    return HT_OK;
}

static ht_status add_copy(planning *p, ht_plan_segment *segment, const ht_type *from, ht_place source,
                          const ht_type *to, ht_place goal, bool guarded, const ht_node *node)
{
    const ht_type *in[1] = {from}, *out[1] = {to};
    ht_call call = {ht_op_find(p->g->ctx, "copy", 4), 1, 1, 0, in, out, NULL};
    if (!call.op) HT_FAIL(p->g->ctx, HT_ENOTSUP, "there is no op 'copy'");
    const ht_kernel *kernel = ht_kernel_choose(p->g->ctx, &call, &p->plan->target, NULL);
    if (!kernel) HT_FAIL(p->g->ctx, HT_ENOTSUP, "no kernel copies a value of segment %s", segment->name);
    return add_instr(p, segment, kernel, &call, &(operands){&source, &goal, &guarded, {0}}, node);
}

/* What an assembled concat still lacks. */
static ht_status add_missing_parts(planning *p, ht_plan_segment *segment, const ht_buffer_assignment *r,
                                   const ht_node *n)
{
    ht_call_storage storage;
    const ht_call *call = ht_node_call(p->g, n, p->plan->arena, &storage);
    if (!call) return no_memory(p->g->ctx);
    int64_t end = r->value[n->out].offset + ht_type_bytes(call->out[0]);
    for (size_t i = 0; i < n->n_in; i++) {
        ht_place place;
        if (!ht_plan_part_missing(p, r, call, n, i, &place)) continue;
        ht_type plain = *call->in[i];
        ht_type_row_major(&plain);
        bool guarded = r->guarded[n->out] && place.offset + ht_type_bytes(&plain) == end;
        HT_TRY(add_copy(p, segment, call->in[i], r->value[ht_node_in(p->g, n, i).id], &plain, place, guarded, n));
    }
    return HT_OK;
}

static ht_status add_node(planning *p, ht_plan_segment *segment, const ht_buffer_assignment *r, uint32_t id, size_t at)
{
    ht_graph *g = p->g;
    const ht_node *n = &g->nodes[id];
    if (n->op == &ht_op_store) {
        ht_val state = ht_node_in(g, n, 0), v = ht_node_in(g, n, 1);
        return add_copy(p, segment, ht_type_of(g, v), r->value[v.id], ht_type_of(g, state), r->value[state.id],
                        r->guarded[state.id], n);
    }
    if (n->n_out && r->assembled[n->out]) return add_missing_parts(p, segment, r, n);
    ht_call_storage storage;
    const ht_call *call = ht_node_call(g, n, p->plan->arena, &storage);
    ht_place few[8], out[8], *in = n->n_in <= 8 ? few : HT_NEW(p->plan->arena, ht_place, n->n_in);
    if (!call || !in) return no_memory(g->ctx);
    for (size_t i = 0; i < n->n_in; i++) {
        ht_val v = ht_node_in(g, n, i);
        in[i] = v.id ? r->value[v.id] : (ht_place){0};
    }
    for (size_t i = 0; i < n->n_out; i++) out[i] = r->value[n->out + i];
    HT_TRY(add_instr(p, segment, p->kernels[id], call, &(operands){in, out, &r->guarded[n->out], r->workspace[at]}, n));
    if (n->op->done) p->started[id] = (uint32_t)segment->instr_count;
    if (n->op->start) segment->instrs[segment->instr_count - 1].wait = p->started[ht_start_of(g, n) - g->nodes];
    return HT_OK;
}

/* Whose device runs a call: see ht_instr. Spaces count from main on. */
static ht_space space_of(const ht_call *call)
{
    ht_space nearest = call->out[0]->space, farthest = nearest;
    if (!(call->op->flags & HT_OP_CROSSES)) return nearest;
    for (size_t i = 0; i < call->n_in; i++) {
        if (call->in[i]->space < nearest) nearest = call->in[i]->space;
        if (call->in[i]->space > farthest) farthest = call->in[i]->space;
    }
    return farthest == HT_SPACE_DISK && !call->op->start ? HT_SPACE_DISK : nearest;
}

static ht_queue_kind queue_of(const ht_call *call)
{
    if (!call->op->done) return HT_QUEUE_COMPUTE;
    if (call->op->flags & HT_OP_COLLECTIVE) return HT_QUEUE_COMM;
    return call->out[0]->space > call->in[0]->space ? HT_QUEUE_COPY_OUT : HT_QUEUE_COPY_IN;
}

/* Canaries are set and checked by functions of the host, which the disk does not run. */
static void set_queues(ht_plan_segment *segment)
{
    for (size_t i = 0; i < segment->instr_count; i++) {
        ht_instr *instr = &segment->instrs[i];
        instr->space = space_of(instr->call);
        instr->queue = (uint8_t)queue_of(instr->call);
        if (instr->space == HT_SPACE_DISK || instr->call->out[0]->space == HT_SPACE_DISK) instr->guarded = NULL;
    }
}

/* Segments whose steps a run may have to look into. */
static bool is_replayed(const ht_plan_segment *segment)
{
    return strncmp(segment->name, "micro", 5) == 0 || strcmp(segment->name, "update") == 0;
}

/* What describe() says, for each node of a group. */
static bool describe_parts(planning *p, const ht_buffer_assignment *r, ht_instr *instr, const uint32_t *nodes,
                           size_t count)
{
    ht_provenance *parts = HT_NEW(p->plan->arena, ht_provenance, count);
    instr->parts = parts;
    for (size_t i = 0; parts && i < count; i++) {
        const ht_node *n = &p->g->nodes[nodes[i]];
        ht_val first = ht_node_out(n, 0);
        const ht_type *type = ht_type_of(p->g, first);
        ht_instr part = {.call = &(ht_call){.out = &type}, .out = &r->value[first.id]};
        if (!describe(p, &part, n, n)) return false;
        parts[i] = (ht_provenance){part.value, part.site, part.origin, part.origin_site, part.role};
    }
    return parts != NULL;
}

static ht_status add_group(planning *p, ht_plan_segment *segment, const ht_buffer_assignment *r, const uint32_t *nodes,
                           size_t count, size_t at)
{
    ht_graph *g = p->g;
    const ht_node *last = &g->nodes[nodes[count - 1]], *first = &g->nodes[nodes[0]];
    ht_instr *instr = &segment->instrs[segment->instr_count++];
    if (!ht_plan_group(p->plan, g, &p->groups, nodes, count, p->kernels, r, instr)) return no_memory(g->ctx);
    instr->workspace = r->workspace[instr->fused->fold ? at + count - 1 : at];
    if (is_replayed(segment) && !describe_parts(p, r, instr, nodes, count)) return no_memory(g->ctx);
    return describe(p, instr, last, instr->fused->gemm ? first : last) ? HT_OK : no_memory(g->ctx);
}

/* The instruction from position `at`, if there is one, also as part of its row block. */
static ht_status add_unit(planning *p, ht_plan_segment *segment, const ht_buffer_assignment *r, const ht_segment *s,
                          size_t at, size_t count)
{
    uint32_t row_block = p->groups.row_block[s->nodes[at]];
    size_t place = segment->instr_count;
    if (!r->instrs[at]) return HT_OK;
    HT_TRY(count > 1 ? add_group(p, segment, r, s->nodes + at, count, at) : add_node(p, segment, r, s->nodes[at], at));
    if (!row_block) return HT_OK;
    if (at == 0 || p->groups.row_block[s->nodes[at - 1]] != row_block)
        segment->instrs[place].rows = p->groups.rows[s->nodes[at]];
    while (!segment->instrs[place].rows) place--;
    segment->instrs[place].row_block++;
    return HT_OK;
}

static ht_status add_instrs(planning *p, uint32_t index, const ht_buffer_assignment *r)
{
    ht_graph *g = p->g;
    const ht_segment *s = &g->segments[index];
    ht_plan_segment *segment = &p->plan->segments[index];
    segment->name = own_text(p->plan, s->name);
    segment->instrs = HT_NEW(p->plan->arena, ht_instr, r->instr_count);
    if (!segment->name || !segment->instrs) return no_memory(g->ctx);
    for (size_t at = 0, count; at < s->node_count; at += count) {
        count = ht_plan_unit_length(p, s, at);
        HT_TRY(add_unit(p, segment, r, s, at, count));
    }
    for (size_t i = 0; i < s->output_count; i++) {
        ht_val v = s->outputs[i].value;
        ht_type plain = *ht_type_of(g, v);
        ht_type_row_major(&plain);
        if (r->output[i]) continue;
        HT_TRY(add_copy(p, segment, ht_type_of(g, v), r->value[v.id], &plain, r->slot[i], true, NULL));
    }
    set_queues(segment);
    return HT_OK;
}

static ht_status plan_segment(planning *p, uint32_t index)
{
    ht_plan_segment *segment = &p->plan->segments[index];
    ht_buffer_assignment r;
    HT_TRY(ht_planning_assign(p, index, &r));
    ht_status status = ht_plan_index_slots(p->plan);
    if (status == HT_OK) status = add_instrs(p, index, &r);
    if (status == HT_OK) status = ht_plan_keep_timeline(p, index, &r);
    if (status == HT_OK && p->observe) status = p->observe(p->observe_arg, index, &r);
    for (int space = 0; space < HT_SPACE_COUNT; space++) {
        int64_t *most = &p->plan->area_bytes[space][HT_AREA_TRANSIENT];
        segment->transient_bytes[space] = r.bytes[space];
        segment->live_bytes[space] = r.live_bytes[space];
        segment->workspace_bytes[space] = r.workspace_bytes[space];
        if (r.bytes[space] > *most) *most = r.bytes[space];
    }
    ht_buffer_assignment_free(&r);
    return status;
}

static ht_status copy_programs(planning *p)
{
    ht_graph *g = p->g;
    ht_plan *plan = p->plan;
    plan->programs = HT_NEW(plan->arena, ht_plan_program, g->program_count);
    if (!plan->programs) return no_memory(g->ctx);
    for (size_t i = 0; i < g->program_count; i++) {
        const ht_program *from = &g->programs[i];
        ht_program_call *calls = HT_NEW(plan->arena, ht_program_call, from->call_count);
        const char *name = own_text(plan, from->name);
        if (!calls || !name) return no_memory(g->ctx);
        if (from->call_count) memcpy(calls, from->calls, from->call_count * sizeof *calls);
        plan->programs[plan->program_count++] = (ht_plan_program){name, calls, from->call_count};
    }
    return HT_OK;
}

/* One line for the log: how many instructions run kernels of each ISA, or of the device. */
static void log_kernels(const ht_plan *plan)
{
    size_t counts[HT_ISA_COUNT] = {0}, others = 0;
    for (size_t s = 0; s < plan->segment_count; s++)
        for (size_t i = 0; i < plan->segments[s].instr_count; i++) {
            const ht_kernel *kernel = plan->segments[s].instrs[i].kernel;
            if (kernel->device == HT_DEVICE_CPU)
                counts[kernel->isa]++;
            else
                others++;
        }
    ht_text line = {0};
    if (others) ht_text_add(&line, "%zu %s", others, plan->device);
    for (int isa = HT_ISA_COUNT; isa-- > 0;)
        if (!others && ht_isa_runs(plan->target.isa, (ht_isa)isa))
            ht_text_add(&line, "%s%zu %s", line.length ? ", " : "", counts[isa], ht_isa_name((ht_isa)isa));
    ht_note(plan->ctx, HT_LOG_INFO, "plan: %lld bytes; kernels: %s", (long long)ht_plan_bytes(plan),
            line.data ? line.data : "");
    ht_text_free(&line);
}

/* Planning keeps what the graph computes when its passes are done and nodes are joined. */
static ht_status analyse(planning *p)
{
    ht_step_hashes before = {0};
    if (!p->request->no_fusion) HT_TRY(ht_plan_join(p->g, &p->plan->target));
    if (!p->request->no_fusion) HT_TRY(ht_plan_cut_regions(p->g, &p->plan->target));
    ht_status status = ht_step_hashes_take(&before, p->g);
    if (status == HT_OK) status = ht_planning_analyse(p);
    if (status == HT_OK) status = ht_step_hashes_check(&before, p->g, "planning");
    ht_step_hashes_free(&before);
    return status;
}

ht_status ht_planning_emit(planning *p)
{
    ht_graph *g = p->g;
    ht_plan *plan = p->plan;
    HT_TRY(analyse(p));
    plan->segments = HT_NEW(plan->arena, ht_plan_segment, g->segment_count);
    p->loss_scaled = calloc(g->value_count, sizeof *p->loss_scaled);
    p->started = calloc(g->node_count, sizeof *p->started);
    if (!p->loss_scaled || !p->started || !plan->segments) return no_memory(g->ctx);
    mark_loss_scaled(p);
    plan->effects_hash = ht_plan_hash_effects(g);
    for (uint32_t i = 0; i < g->segment_count; i++, plan->segment_count++) HT_TRY(plan_segment(p, i));
    HT_TRY(copy_programs(p));
    ht_plan_find_tails(plan);
    if (p->request->options->zero.overlap) ht_plan_find_leads(plan);
    HT_TRY(ht_plan_reserve_replay(plan));
    return p->request->no_prepack ? HT_OK : ht_plan_prepack(plan);
}

static ht_status build(planning *p)
{
    const ht_pass_env env = ht_plan_pass_env(p->request);
    HT_TRY(ht_graph_verify(p->g));
    HT_TRY(ht_pipeline_run(p->g, HT_STAGE_PLAN, &env, p->request->observer));
    HT_TRY(ht_model_hash(&p->plan->model_hash, p->g));
    return ht_planning_emit(p);
}

ht_status ht_plan_build(ht_plan **out, const ht_graph *graph, const ht_plan_request *request)
{
    *out = NULL;
    planning p;
    ht_status status = ht_planning_open(&p, graph, request);
    if (status == HT_OK) status = build(&p);
    ht_planning_close(&p);
    if (status != HT_OK) {
        ht_plan_free(p.plan);
        return status;
    }
    log_kernels(p.plan);
    *out = p.plan;
    return HT_OK;
}

/* Texts become values here, once. */
ht_status ht_plan_create_observed(ht_plan **out, const ht_graph *graph, const ht_plan_opts *opts,
                                  const ht_pass_observer *observer)
{
    HT_NEED(graph ? graph->ctx : NULL, out, "out");
    *out = NULL;
    HT_NEED(NULL, graph, "graph");
    ht_context *ctx = graph->ctx;
    ht_plan_opts o = HT_PLAN_OPTS;
    if (opts) memcpy(&o, opts, opts->size < sizeof o ? opts->size : sizeof o);
    ht_target target = {0};
    ht_pass_options options = ht_pass_options_standard();
    const ht_train_setting precision = {"precision", o.precision};
    HT_NEED(ctx, o.settings || o.setting_count == 0, "opts->settings");
    if (o.precision) HT_TRY(ht_pass_options_read(ctx, &options, HT_STAGE_PLAN, 1, &precision));
    HT_TRY(ht_pass_options_read(ctx, &options, HT_STAGE_PLAN, o.setting_count, o.settings));
    if (o.target)
        HT_TRY(ht_target_parse(ctx, &target, "target", o.target, strlen(o.target)));
    else
        ht_target_here(ctx, &target);
    if (o.device) HT_TRY(ht_target_bind(ctx, &target, o.device));
    if (!o.target) ht_device_describe(ctx, &target);
    ht_plan_request request = {.target = &target,
                               .options = &options,
                               .observer = observer,
                               .no_fusion = o.no_fusion,
                               .no_prepack = o.no_prepack,
                               .canaries = o.canaries};
    return ht_plan_build(out, graph, &request);
}

ht_status ht_plan_create(ht_plan **out, const ht_graph *graph, const ht_plan_opts *opts)
{
    return ht_plan_create_observed(out, graph, opts, NULL);
}

void ht_plan_free(ht_plan *plan)
{
    if (!plan) return;
    free(plan->slots);
    free(plan->prepacked);
    ht_arena_free(plan->arena);
    free(plan);
}

int64_t ht_plan_bytes(const ht_plan *plan)
{
    int64_t bytes = 0;
    for (int area = 0; plan && area < HT_AREA_COUNT; area++) bytes += ht_plan_area_bytes(plan, (ht_area)area);
    return bytes;
}

int64_t ht_plan_space_bytes(const ht_plan *plan, ht_space space, ht_area area)
{
    return plan->area_bytes[space][area] * (area == HT_AREA_INPUT ? (int64_t)plan->input_slots : 1);
}

int64_t ht_plan_bytes_in(const ht_plan *plan, ht_space space)
{
    int64_t bytes = 0;
    for (int area = 0; area < HT_AREA_COUNT; area++) bytes += ht_plan_space_bytes(plan, space, (ht_area)area);
    return bytes;
}

int64_t ht_plan_area_bytes(const ht_plan *plan, ht_area area)
{
    int64_t bytes = 0;
    for (int space = 0; space < HT_SPACE_COUNT; space++) bytes += ht_plan_space_bytes(plan, (ht_space)space, area);
    return bytes;
}

int ht_plan_segment_find(const ht_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->segment_count; i++)
        if (strcmp(plan->segments[i].name, name) == 0) return (int)i;
    return -1;
}

int ht_plan_program_find(const ht_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->program_count; i++)
        if (strcmp(plan->programs[i].name, name) == 0) return (int)i;
    return -1;
}

bool ht_plan_is_stage(const ht_plan *plan)
{
    return ht_plan_segment_find(plan, ht_pipeline_part_names[HT_PIPELINE_FORWARD]) >= 0;
}

const ht_slot *ht_plan_slot(const ht_plan *plan, const char *name)
{
    for (size_t i = 0; i < plan->slot_count; i++)
        if (strcmp(plan->slots[i].name, name) == 0) return &plan->slots[i];
    return NULL;
}
