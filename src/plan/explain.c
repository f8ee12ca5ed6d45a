/* Reads a plan that is done: nothing here knows the graph. A row is an instruction. Parameters lie in flat groups that one
 * instruction updates, so for them it is the other way round: each looks for the instruction that writes its bytes. */
#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

const char *const ht_figure_names[HT_FIGURE_COUNT] = {"float2half", "FWD", "BWD-Actv", "BWD-Weight", "weight update"};

enum { SHOWN_STEPS = 3 }; /* ops of an instruction that are named before the last */

typedef struct explainer {
    const ht_plan *plan;
    ht_explanation *to;
    const char **layers; /* in the order in which forward meets them */
    size_t layer_count, layer_capacity;
    bool *told; /* by instruction of the update: parameters stand for it */
    bool failed;
} explainer;

/* ---- text ---- */

static const char *own(explainer *e, ht_text *text)
{
    const char *copy = text->failed ? NULL : ht_arena_text(e->to->arena, text->data ? text->data : "", text->length);
    ht_text_free(text);
    if (!copy) e->failed = true;
    return copy ? copy : "";
}

/* Number types of operands, each once. Single numbers count only where there is nothing else. */
static void add_dtypes(ht_text *text, size_t count, const ht_type *const *types)
{
    bool seen[HT_DTYPE_COUNT] = {false}, any = false;
    for (int scalars = 0; scalars < 2 && !any; scalars++)
        for (size_t i = 0; i < count; i++) {
            if (!types[i] || (ht_type_elems(types[i]) == 1) != scalars || seen[types[i]->dtype]) continue;
            seen[types[i]->dtype] = true;
            ht_text_add(text, "%s%s", any ? " " : "", ht_dtype_name(types[i]->dtype));
            any = true;
        }
}

static void add_types(ht_text *text, size_t count, const ht_type *const *types)
{
    for (size_t i = 0; i < count; i++) {
        ht_type_text shape;
        if (types[i]) ht_text_add(text, "%s%s", text->length ? ", " : "", ht_type_str(types[i], &shape));
    }
}

/* The ops of an instruction in their order: a product, element-wise steps, a reduction. NULL: there are no more. */
static const char *op_at(const ht_instr *instr, int at)
{
    const ht_fused *f = instr->fused;
    if (!f) return at == 0 ? instr->call->op->name : NULL;
    if (f->gemm && at-- == 0) return f->gemm->op->name;
    if (at < f->step_count) return f->steps[at].call->op->name;
    return f->fold && at == f->step_count ? f->fold->op->name : NULL;
}

/* Repeats in a row are named once; of many, the first ones and the last. */
void ht_instr_add_ops(ht_text *text, const ht_instr *instr)
{
    const char *last = NULL, *name, *next;
    for (int at = 0, shown = 0; (name = op_at(instr, at)) != NULL; at++) {
        next = op_at(instr, at + 1);
        if (last && strcmp(last, name) == 0) continue;
        last = name;
        if (shown == SHOWN_STEPS && next)
            ht_text_add(text, " + ...");
        else if (shown < SHOWN_STEPS || !next)
            ht_text_add(text, "%s%s", shown ? " + " : "", name);
        shown++;
    }
    if (instr->recomputed) ht_text_add(text, " (again)");
}

/* ---- what an instruction is ---- */

const ht_call *ht_instr_call(const ht_instr *instr)
{
    const ht_fused *f = instr->fused;
    if (!f) return instr->call;
    if (f->gemm || f->fold) return f->gemm ? f->gemm : f->fold;
    for (int i = 0; i < f->step_count; i++)
        if (f->steps[i].call->op->prec == HT_PREC_EXACT) return f->steps[i].call;
    return f->steps[0].call;
}

const char *ht_instr_op(const ht_instr *instr)
{
    return ht_instr_call(instr)->op->name;
}

static bool is_half(const ht_plan *plan)
{
    return strcmp(plan->precision, "fp16") == 0 || strcmp(plan->precision, "bf16") == 0;
}

/* A product that reads f32 where it could read half was told to. */
static bool is_kept(const ht_plan *plan, const ht_call *call)
{
    if (!is_half(plan) || call->op->prec != HT_PREC_DOT) return false;
    for (size_t i = 0; i < call->n_in; i++)
        if (call->in[i] && (call->op->half_in >> i & 1) && call->in[i]->dtype == HT_F32) return true;
    return false;
}

static const char *layer_of(const ht_instr *instr)
{
    if (instr->role == HT_ROLE_UPDATE) return "(update)";
    const char *site = instr->site ? instr->site : instr->origin_site;
    return site && site[0] ? site : "(none)";
}

static bool has_layer(const explainer *e, const char *layer, size_t length)
{
    for (size_t i = 0; i < e->layer_count; i++)
        if (strncmp(e->layers[i], layer, length) == 0 && e->layers[i][length] == '\0') return true;
    return false;
}

/* A copy that planning put before an instruction belongs to that one. */
static const ht_instr *stands_for(const ht_plan_segment *s, size_t at)
{
    const ht_instr *instr = &s->instrs[at];
    if (instr->site || instr->origin_site || strcmp(instr->call->op->name, "copy") != 0) return instr;
    for (size_t k = at + 1; k < s->instr_count; k++)
        for (size_t i = 0; i < s->instrs[k].call->n_in; i++)
            if (ht_place_same(s->instrs[k].in[i], instr->out[0])) return &s->instrs[k];
    return instr;
}

const char *ht_instr_layer(const ht_plan_segment *s, size_t at)
{
    return layer_of(stands_for(s, at));
}

static size_t layer_order(explainer *e, const char *layer)
{
    for (size_t i = 0; i < e->layer_count; i++)
        if (strcmp(e->layers[i], layer) == 0) return i;
    if (!ht_grow((void **)&e->layers, &e->layer_capacity, e->layer_count + 1, sizeof *e->layers)) {
        e->failed = true;
        return 0;
    }
    e->layers[e->layer_count] = layer;
    return e->layer_count++;
}

/* ---- rows ---- */

/* NULL when memory is out. */
static ht_explain_row *add_row(explainer *e, const char *layer, ht_figure_block block, const ht_instr *instr)
{
    ht_explanation *to = e->to;
    layer = ht_arena_text(to->arena, layer, strlen(layer));
    if (!layer || !ht_grow((void **)&to->rows, &to->capacity, to->count + 1, sizeof *to->rows)) {
        e->failed = true;
        return NULL;
    }
    const ht_call *call = ht_instr_call(instr);
    ht_text refused = {0};
    /* As layout chose it: the call has not changed since. */
    const ht_kernel *kernel = ht_kernel_choose(e->plan->ctx, call, &e->plan->target, &refused);
    ht_explain_row *row = &to->rows[to->count];
    *row = (ht_explain_row){.layer = layer,
                            .block = block,
                            .prec_class = ht_prec_name(call->op->prec),
                            .kernel = kernel ? kernel->name : instr->kernel->name,
                            .refused = own(e, &refused),
                            .layer_order = layer_order(e, layer),
                            .order = to->count};
    if (is_kept(e->plan, call)) row->prec_class = "dot, kept f32";
    to->count++;
    return row;
}

static void add_instr(explainer *e, const ht_plan_segment *segment, size_t at)
{
    static const ht_figure_block blocks[HT_ROLE_COUNT] = {HT_FIGURE_FWD, HT_FIGURE_BWD_ACT, HT_FIGURE_BWD_WEIGHT,
                                                          HT_FIGURE_UPDATE};
    const ht_instr *instr = &segment->instrs[at], *place = stands_for(segment, at);
    const ht_call *call = ht_instr_call(instr), *whole = instr->call;
    ht_text op = {0}, in = {0}, out = {0}, in_types = {0}, out_types = {0};
    ht_explain_row *row = add_row(e, layer_of(place), blocks[place->role], instr);
    if (!row) return;
    bool product = instr->fused && instr->fused->gemm;
    ht_instr_add_ops(&op, instr);
    add_dtypes(&in, product ? call->n_in : whole->n_in, product ? call->in : whole->in);
    add_dtypes(&out, whole->n_out, whole->out);
    if (product) add_types(&in_types, call->n_in, call->in);
    add_types(&in_types, whole->n_in - (product ? call->n_in : 0), whole->in);
    add_types(&out_types, whole->n_out, whole->out);
    row->cost = instr->cost;
    row->op = own(e, &op);
    row->in = own(e, &in);
    row->out = own(e, &out);
    row->in_types = own(e, &in_types);
    row->out_types = own(e, &out_types);
}

/* ---- parameters ---- */

static bool touches(ht_place place, const ht_slot *slot)
{
    return place.space == slot->place.space && place.area == slot->place.area && place.offset >= slot->place.offset &&
           place.offset < slot->place.offset + ht_type_bytes(&slot->type);
}

static bool reads(const ht_instr *instr, const ht_slot *slot)
{
    for (size_t i = 0; i < instr->call->n_in; i++)
        if (touches(instr->in[i], slot)) return true;
    return false;
}

static const ht_slot *slot_beside(const ht_plan *plan, const ht_slot *slot, const char *what)
{
    ht_text name = {0};
    ht_text_add(&name, "%s.%s", slot->name, what);
    const ht_slot *found = name.failed ? NULL : ht_plan_slot(plan, name.data);
    ht_text_free(&name);
    return found && found->kind == HT_SLOT_STATE ? found : NULL;
}

/* A parameter belongs to the layer that its name begins with, or else to the one that reads it first, itself or its
 * copy. NULL when memory is out. */
static const char *layer_of_parameter(explainer *e, const ht_plan_segment *micro, const ht_slot *slot,
                                      const ht_slot *half)
{
    const char *dot = strrchr(slot->name, '.');
    size_t length = dot ? (size_t)(dot - slot->name) : 0;
    if (dot && has_layer(e, slot->name, length)) return ht_arena_text(e->to->arena, slot->name, length);
    for (size_t i = 0; i < micro->instr_count; i++)
        if (reads(&micro->instrs[i], slot) || (half && reads(&micro->instrs[i], half)))
            return layer_of(&micro->instrs[i]);
    return "(none)";
}

/* The instruction of the update that writes a state, and which of its results is that. */
static const ht_instr *writer_of(const ht_plan_segment *update, const ht_slot *slot, size_t *result)
{
    for (size_t k = 0; k < update->instr_count; k++) {
        const ht_instr *instr = &update->instrs[k];
        for (*result = 0; *result < instr->call->n_out; ++*result) {
            ht_place place = instr->out[*result];
            int64_t bytes = ht_type_bytes(instr->call->out[*result]);
            if (place.space == slot->place.space && place.area == slot->place.area &&
                slot->place.offset >= place.offset && slot->place.offset < place.offset + bytes)
                return instr;
        }
    }
    return NULL;
}

static void add_parameter_row(explainer *e, const char *layer, ht_figure_block block, const ht_instr *writer,
                              const ht_slot *from, const ht_slot *to, ht_cost cost)
{
    ht_explain_row *row = add_row(e, layer, block, writer);
    if (!row) return;
    const ht_slot *gradient = slot_beside(e->plan, to, "grad");
    const ht_type *types[2] = {&from->type, gradient ? &gradient->type : NULL};
    ht_text op = {0}, in = {0}, out = {0}, in_types = {0}, out_types = {0};
    ht_type_text a, b;
    if (block == HT_FIGURE_FLOAT2HALF) {
        ht_text_add(&op, "cast");
        row->prec_class = "masters";
    } else {
        ht_instr_add_ops(&op, writer);
    }
    add_dtypes(&in, 2, types);
    ht_text_add(&out, "%s", ht_dtype_name(to->type.dtype));
    ht_text_add(&in_types, "%s %s", from->name, ht_type_str(&from->type, &a));
    if (gradient) ht_text_add(&in_types, ", %s %s", gradient->name, ht_type_str(&gradient->type, &b));
    ht_text_add(&out_types, "%s %s", to->name, ht_type_str(&to->type, &a));
    row->cost = cost;
    row->op = own(e, &op);
    row->in = own(e, &in);
    row->out = own(e, &out);
    row->in_types = own(e, &in_types);
    row->out_types = own(e, &out_types);
}

static void add_parameter(explainer *e, const ht_plan_segment *micro, const ht_plan_segment *update,
                          const ht_slot *slot)
{
    const ht_slot *half = slot_beside(e->plan, slot, "half");
    size_t result;
    const ht_instr *writer = writer_of(update, slot, &result);
    const char *layer = layer_of_parameter(e, micro, slot, half);
    if (!layer) e->failed = true;
    if (!writer || !layer) return;
    double share = (double)ht_type_elems(&slot->type) / (double)ht_type_elems(writer->call->out[result]);
    ht_cost cost = {0};
    ht_cost_add(&cost, writer->cost, share);
    e->told[writer - update->instrs] = true;
    const ht_instr *caster = half ? writer_of(update, half, &result) : NULL;
    if (caster) {
        /* A cast that rides on the update costs what it writes. By itself it reads its master, too. */
        ht_cost copied = {.bytes = (double)ht_type_bytes(&half->type)};
        if (caster == writer) cost.bytes -= copied.bytes;
        if (caster != writer) copied.bytes += (double)ht_type_bytes(&slot->type);
        e->told[caster - update->instrs] = true;
        add_parameter_row(e, layer, HT_FIGURE_FLOAT2HALF, caster, slot, half, copied);
    }
    add_parameter_row(e, layer, HT_FIGURE_UPDATE, writer, slot, slot, cost);
}

bool ht_plan_is_parameter(const ht_plan *plan, const ht_slot *slot)
{
    bool holds = slot->heading == HT_HEADING_PARAMETERS || slot->heading == HT_HEADING_MASTERS;
    return slot->kind == HT_SLOT_STATE && holds && ht_type_elems(&slot->type) > 0 && slot_beside(plan, slot, "grad");
}

/* ---- the whole ---- */

static int by_layer(const void *left, const void *right)
{
    const ht_explain_row *a = left, *b = right;
    bool a_last = a->layer[0] == '(', b_last = b->layer[0] == '(';
    if (a_last != b_last) return a_last ? 1 : -1;
    if (a->layer_order != b->layer_order) return a->layer_order < b->layer_order ? -1 : 1;
    if (a->block != b->block) return a->block < b->block ? -1 : 1;
    return a->order < b->order ? -1 : a->order > b->order;
}

static void explain_update(explainer *e, const ht_plan_segment *micro, const ht_plan_segment *update)
{
    for (size_t i = 0; i < e->plan->slot_count && !e->failed; i++)
        if (ht_plan_is_parameter(e->plan, &e->plan->slots[i])) add_parameter(e, micro, update, &e->plan->slots[i]);
    for (size_t i = 0; i < update->instr_count && !e->failed; i++)
        if (!e->told[i]) add_instr(e, update, i);
}

ht_status ht_plan_explain(ht_explanation *out, const ht_plan *plan)
{
    *out = (ht_explanation){.arena = ht_arena_create()};
    explainer e = {.plan = plan, .to = out, .failed = !out->arena};
    int micro = ht_plan_segment_find(plan, "micro_first"), update = ht_plan_segment_find(plan, "update"), more = -1;
    if (micro < 0) micro = ht_plan_segment_find(plan, "forward");
    if (micro < 0) { /* a stage of a pipeline */
        micro = ht_plan_segment_find(plan, "fwd");
        more = ht_plan_segment_find(plan, "bwd_first");
    }
    const ht_plan_segment *first = micro >= 0 ? &plan->segments[micro] : NULL;
    const ht_plan_segment *second = more >= 0 ? &plan->segments[more] : NULL;
    for (size_t i = 0; first && i < first->instr_count && !e.failed; i++) add_instr(&e, first, i);
    for (size_t i = 0; second && i < second->instr_count && !e.failed; i++) add_instr(&e, second, i);
    if (first && update >= 0 && !e.failed) {
        e.told = calloc(plan->segments[update].instr_count + 1, sizeof *e.told);
        e.failed = !e.told;
        if (e.told) explain_update(&e, first, &plan->segments[update]);
    }
    free(e.layers);
    free(e.told);
    if (!e.failed) {
        if (out->count) qsort(out->rows, out->count, sizeof *out->rows, by_layer);
        return HT_OK;
    }
    ht_explanation_free(out);
    HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory while explaining a plan");
}

void ht_explanation_free(ht_explanation *explanation)
{
    ht_arena_free(explanation->arena);
    free(explanation->rows);
    *explanation = (ht_explanation){0};
}
