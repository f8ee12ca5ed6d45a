/* The slots of a plan by where they lie. */
#include <stdlib.h>

#include "plan/plan.h"

static int compare_places(ht_place a, ht_place b)
{
    if (a.space != b.space) return a.space < b.space ? -1 : 1;
    if (a.area != b.area) return a.area < b.area ? -1 : 1;
    return (a.offset > b.offset) - (a.offset < b.offset);
}

/* Slots at the same place stay in their order. */
static int compare_slots(const void *a, const void *b)
{
    const ht_slot *x = *(const ht_slot *const *)a, *y = *(const ht_slot *const *)b;
    int order = compare_places(x->place, y->place);
    return order ? order : (x > y) - (x < y);
}

ht_status ht_plan_index_slots(ht_plan *plan)
{
    plan->by_place = HT_NEW(plan->arena, const ht_slot *, plan->slot_count);
    if (!plan->by_place) HT_FAIL(plan->ctx, HT_ENOMEM, "out of memory for the plan");
    for (size_t i = 0; i < plan->slot_count; i++) plan->by_place[i] = &plan->slots[i];
    qsort(plan->by_place, plan->slot_count, sizeof *plan->by_place, compare_slots);
    return HT_OK;
}

/* How many slots begin before a place. */
static size_t count_before(const ht_plan *plan, ht_place place)
{
    size_t first = 0, end = plan->slot_count;
    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (compare_places(plan->by_place[middle]->place, place) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

const ht_slot *ht_plan_slot_at(const ht_plan *plan, ht_place place, const ht_type *type)
{
    for (size_t i = count_before(plan, place); i < plan->slot_count; i++) {
        const ht_slot *slot = plan->by_place[i];
        if (!ht_place_same(slot->place, place)) return NULL;
        if (ht_type_same(&slot->type, type)) return slot;
    }
    return NULL;
}

const ht_slot *ht_plan_state_at(const ht_plan *plan, ht_place place)
{
    if (place.area != HT_AREA_STATE) return NULL;
    place.offset++;
    size_t before = count_before(plan, place);
    return before ? &plan->slots[plan->by_place[before - 1]->owner] : NULL;
}
