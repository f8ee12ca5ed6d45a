#include <stdlib.h>
#include <string.h>

#include "plan/plan.h"

static ht_status out_of_memory(const ht_plan *plan)
{
    HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for the modules of a model");
}

/* The module whose name is the first `length` bytes, made where there is none. */
static ht_status find(ht_module_tree *t, const ht_plan *plan, const char *name, size_t length, size_t *out)
{
    size_t parent = 0;
    for (size_t i = 0; i < t->count; i++) {
        const char *known = t->list[i].name;
        if (strncmp(known, name, length) != 0 || known[length] != '\0') continue;
        *out = i;
        return HT_OK;
    }
    size_t up = length;
    while (up > 0 && name[up - 1] != '.') up--;
    if (up > 0) HT_TRY(find(t, plan, name, up - 1, &parent));
    const char *copy = ht_arena_text(t->arena, name, length);
    if (!copy || !ht_grow((void **)&t->list, &t->capacity, t->count + 1, sizeof *t->list)) return out_of_memory(plan);
    t->list[t->count] = (ht_module){.name = copy, .parent = parent, .depth = length ? t->list[parent].depth + 1 : 0};
    *out = t->count++;
    return HT_OK;
}

static void add(ht_module_tree *t, size_t at, const ht_module *what)
{
    for (;; at = t->list[at].parent) {
        ht_module *m = &t->list[at];
        m->params += what->params;
        m->forward_flops += what->forward_flops;
        m->backward_flops += what->backward_flops;
        m->forward_seconds += what->forward_seconds;
        m->backward_seconds += what->backward_seconds;
        m->bytes += what->bytes;
        m->limit_seconds += what->limit_seconds;
        for (int bound = 0; bound < HT_BOUND_COUNT; bound++) m->bound_seconds[bound] += what->bound_seconds[bound];
        if (at == 0) return;
    }
}

ht_status ht_module_tree_create(ht_module_tree *t, const ht_plan *plan)
{
    size_t root;
    *t = (ht_module_tree){.arena = ht_arena_create()};
    if (!t->arena) return out_of_memory(plan);
    return find(t, plan, "", 0, &root);
}

ht_status ht_module_tree_add(ht_module_tree *t, const ht_plan *plan, const ht_plan_segment *segment, size_t instr,
                             double times, double seconds)
{
    const ht_instr *i = &segment->instrs[instr];
    const char *layer = ht_instr_layer(segment, instr);
    ht_module what = {0};
    size_t at;
    if (i->role == HT_ROLE_UPDATE) return HT_OK;
    bool forward = i->role == HT_ROLE_FWD && !i->recomputed;
    *(forward ? &what.forward_flops : &what.backward_flops) = times * i->cost.dot_flops;
    *(forward ? &what.forward_seconds : &what.backward_seconds) = seconds;
    ht_roofline limit = ht_instr_roofline(&plan->target, i);
    what.bytes = times * i->cost.bytes;
    what.limit_seconds = times * limit.limit_s;
    what.bound_seconds[limit.bound] = seconds;
    HT_TRY(find(t, plan, layer, strlen(layer), &at));
    add(t, at, &what);
    return HT_OK;
}

/* A parameter belongs to the module that its name begins with. */
static ht_status add_parameters(ht_module_tree *t, const ht_plan *plan)
{
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        const char *dot = strrchr(slot->name, '.');
        size_t at;
        if (!ht_plan_is_parameter(plan, slot)) continue;
        HT_TRY(find(t, plan, slot->name, dot ? (size_t)(dot - slot->name) : 0, &at));
        add(t, at, &(ht_module){.params = ht_type_elems(&slot->type)});
    }
    return HT_OK;
}

static void put_in_order(const ht_module_tree *t, size_t at, size_t parent, ht_module *to, size_t *count)
{
    size_t own = *count;
    to[own] = t->list[at];
    to[own].parent = parent;
    ++*count;
    for (size_t i = 1; i < t->count; i++)
        if (t->list[i].parent == at) put_in_order(t, i, own, to, count);
}

ht_status ht_module_tree_sort(ht_module_tree *t, const ht_plan *plan)
{
    size_t count = 0;
    HT_TRY(add_parameters(t, plan));
    ht_module *sorted = calloc(t->count, sizeof *sorted);
    if (!sorted) return out_of_memory(plan);
    put_in_order(t, 0, 0, sorted, &count);
    free(t->list);
    t->list = sorted;
    t->capacity = t->count;
    return HT_OK;
}

void ht_module_tree_free(ht_module_tree *t)
{
    ht_arena_free(t->arena);
    free(t->list);
    *t = (ht_module_tree){0};
}
