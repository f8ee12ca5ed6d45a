#include "train/snapshot_tensors.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static ht_status no_memory(ht_context *ctx)
{
    return ht_fail(ctx, HT_ENOMEM, "out of memory for the list of a snapshot's tensors");
}

static int file_of(ht_heading heading)
{
    bool weight = heading == HT_HEADING_PARAMETERS || heading == HT_HEADING_MASTERS || heading == HT_HEADING_STATISTICS;
    return weight ? HT_SNAPSHOT_WEIGHTS : HT_SNAPSHOT_OPTIMIZER;
}

static ht_status add(ht_snapshot_tensor_list *list, ht_context *ctx, const ht_snapshot_tensor *tensor)
{
    if (!ht_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items)) return no_memory(ctx);
    list->items[list->count++] = *tensor;
    return HT_OK;
}

/* State of the loss scale, which the first programs that wrote snapshots did not have; and scales of tensors in f8, which
 * are found anew where a run goes on in f8. */
static bool is_optional(const ht_slot *slot)
{
    static const char *const names[] = {"loss_scale",      "loss_scale.hysteresis", "loss_scale.iteration",
                                        "loss_scale.last", "skips_in_a_row",        "fatal"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], slot->name) == 0) return true;
    return slot->heading == HT_HEADING_SCALES;
}

static ht_status add_slot(ht_snapshot_tensor_list *list, const ht_plan *plan, const ht_slot *slot)
{
    ht_snapshot_tensor tensor = {.name = slot->name, .file = file_of(slot->heading), .optional = is_optional(slot)};
    bool part = slot->part || slot->cut.ranks;
    const ht_type *whole = part ? &slot->whole : &slot->type;
    tensor.array.element = ht_element_of_dtype(whole->dtype);
    tensor.array.rank = whole->rank;
    memcpy(tensor.array.shape, whole->dim, sizeof whole->dim);
    tensor.place = slot->place;
    tensor.part = part;
    tensor.cut = slot->cut;
    tensor.whole = *whole;
    tensor.divided = slot->part;
    tensor.part_first = (size_t)slot->first * ht_dtype_bytes(whole->dtype);
    tensor.part_bytes = (size_t)ht_type_bytes(&slot->type);
    if (tensor.array.element == HT_ELEMENT_COUNT || !ht_array_measure(&tensor.array))
        HT_FAIL(plan->ctx, HT_ENOTSUP, "snapshot: state '%s' has a type that no file holds", slot->name);
    return add(list, plan->ctx, &tensor);
}

/* Elements begin .. end - 1 of a state, which no view has. */
static ht_status add_padding(ht_snapshot_tensor_list *list, const ht_plan *plan, const ht_slot *owner, int64_t begin,
                             int64_t end)
{
    if (begin >= end) return HT_OK;
    ht_snapshot_tensor tensor = {.file = HT_SNAPSHOT_OPTIMIZER, .padding = true};
    ht_text name = {0};
    ht_text_add(&name, "%s[%" PRId64 ":%" PRId64 "]", owner->name, begin, end);
    if (!name.failed) tensor.name = ht_arena_text(list->names, name.data, name.length);
    ht_text_free(&name);
    if (!tensor.name) return no_memory(plan->ctx);
    tensor.array = (ht_array){.element = ht_element_of_dtype(owner->type.dtype), .rank = 1, .shape = {end - begin}};
    ht_array_measure(&tensor.array);
    tensor.place = owner->place;
    tensor.place.offset += begin * (int64_t)ht_dtype_bytes(owner->type.dtype);
    return add(list, plan->ctx, &tensor);
}

/* By owner, then by place; of two that begin together the longer first. */
static int by_place(const void *left, const void *right)
{
    const ht_slot *a = *(const ht_slot *const *)left, *b = *(const ht_slot *const *)right;
    if (a->owner != b->owner) return a->owner < b->owner ? -1 : 1;
    if (a->place.offset != b->place.offset) return a->place.offset < b->place.offset ? -1 : 1;
    int64_t x = ht_type_elems(&a->type), y = ht_type_elems(&b->type);
    if (x != y) return x > y ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* The views of one state, in order: each that begins behind the last one's end, and what lies between them. A view
 * that overlaps another or is strided adds no bytes of its own. */
static ht_status add_views(ht_snapshot_tensor_list *list, const ht_plan *plan, const ht_slot *const *views,
                           size_t count)
{
    const ht_slot *owner = &plan->slots[views[0]->owner];
    int64_t bytes = (int64_t)ht_dtype_bytes(owner->type.dtype), end = 0;
    bool parts = false;
    for (size_t i = 0; i < count; i++) {
        int64_t begin = (views[i]->place.offset - owner->place.offset) / bytes, elems = ht_type_elems(&views[i]->type);
        bool fits = begin >= end && !views[i]->derived && ht_type_contiguous(&views[i]->type);
        if (elems > 0 && !fits) continue;
        HT_TRY(add_slot(list, plan, views[i]));
        parts |=
            views[i]->part || views[i]->cut.ranks; /* what lies between them is of this rank alone, and holds nothing */
        if (elems == 0 || parts) continue;
        HT_TRY(add_padding(list, plan, owner, end, begin));
        end = begin + elems;
    }
    return parts ? HT_OK : add_padding(list, plan, owner, end, ht_type_elems(&owner->type));
}

static bool is_saved(const ht_slot *slot)
{
    return slot->kind == HT_SLOT_STATE && !slot->derived && slot->heading != HT_HEADING_GRADIENTS;
}

static ht_status collect(ht_snapshot_tensor_list *list, const ht_plan *plan, const ht_slot **views, bool *viewed)
{
    size_t count = 0;
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        if (slot->kind != HT_SLOT_STATE || slot->owner == i || !is_saved(&plan->slots[slot->owner])) continue;
        views[count++] = slot;
        viewed[slot->owner] = true;
    }
    if (count) qsort(views, count, sizeof *views, by_place);
    for (size_t i = 0; i < plan->slot_count; i++)
        if (is_saved(&plan->slots[i]) && plan->slots[i].owner == i && !viewed[i])
            HT_TRY(add_slot(list, plan, &plan->slots[i]));
    for (size_t i = 0, end; i < count; i = end) {
        for (end = i + 1; end < count && views[end]->owner == views[i]->owner;) end++;
        HT_TRY(add_views(list, plan, views + i, end - i));
    }
    return HT_OK;
}

static int wide_first(const void *left, const void *right)
{
    const ht_snapshot_tensor *a = left, *b = right;
    size_t x = ht_element_bytes(a->array.element), y = ht_element_bytes(b->array.element);
    if (x != y) return x > y ? -1 : 1;
    return strcmp(a->name, b->name);
}

void ht_snapshot_tensor_sort(ht_snapshot_tensor_list *list)
{
    if (list->count) qsort(list->items, list->count, sizeof *list->items, wide_first);
}

ht_status ht_snapshot_tensor_find(ht_snapshot_tensor_list *out, const ht_plan *plan)
{
    *out = (ht_snapshot_tensor_list){.names = ht_arena_create()};
    const ht_slot **views = calloc(plan->slot_count + 1, sizeof *views);
    bool *viewed = calloc(plan->slot_count + 1, sizeof *viewed);
    bool ok = out->names && views && viewed;
    ht_status status = ok ? collect(out, plan, views, viewed) : no_memory(plan->ctx);
    if (status == HT_OK) ht_snapshot_tensor_sort(out);
    if (status != HT_OK) ht_snapshot_tensor_free(out);
    free(views);
    free(viewed);
    return status;
}

void ht_snapshot_tensor_free(ht_snapshot_tensor_list *list)
{
    free(list->items);
    ht_arena_free(list->names);
    *list = (ht_snapshot_tensor_list){0};
}

static ht_status look_for_bytes(void *arg, size_t offset, const void *data, size_t bytes)
{
    bool *found = arg;
    (void)offset;
    for (size_t i = 0; i < bytes && !*found; i++) *found = ((const char *)data)[i] != 0;
    return HT_OK;
}

ht_status ht_snapshot_tensor_present(const ht_session *session, const ht_snapshot_tensor *tensor, ht_host_copy *stage,
                                     bool *present)
{
    *present = !tensor->padding;
    if (*present) return HT_OK;
    return ht_executor_view_pieces(session->executor, tensor->place, tensor->array.bytes, stage, look_for_bytes,
                                   present);
}
