#include <inttypes.h>

#include "plan/plan.h"

const char *const ht_byte_heading_names[HT_BYTES_COUNT] = {
#define HT_BYTES(id, name) name,
#include "plan/byte_headings.def"
#undef HT_BYTES
};

const char *const ht_byte_line_names[HT_SPACE_COUNT][HT_BYTES_COUNT] = {
    [HT_SPACE_MAIN] =
        {
#define HT_BYTES(id, name) name,
#include "plan/byte_headings.def"
#undef HT_BYTES
        },
    [HT_SPACE_HOST] =
        {
#define HT_BYTES(id, name) name "@host",
#include "plan/byte_headings.def"
#undef HT_BYTES
        },
    [HT_SPACE_DISK] =
        {
#define HT_BYTES(id, name) name "@disk",
#include "plan/byte_headings.def"
#undef HT_BYTES
        },
};

static const ht_byte_heading heading_of_state[HT_HEADING_COUNT] = {
    [HT_HEADING_PARAMETERS] = HT_BYTES_PARAMETERS, [HT_HEADING_MASTERS] = HT_BYTES_MASTERS,
    [HT_HEADING_WEIGHTS] = HT_BYTES_WEIGHTS,       [HT_HEADING_GRADIENTS] = HT_BYTES_GRADIENTS,
    [HT_HEADING_OPTIMIZER] = HT_BYTES_OPTIMIZER,   [HT_HEADING_STATISTICS] = HT_BYTES_OTHER,
    [HT_HEADING_CACHES] = HT_BYTES_OTHER,          [HT_HEADING_SCALARS] = HT_BYTES_OTHER,
    [HT_HEADING_SCALES] = HT_BYTES_OTHER,          [HT_HEADING_ACTIVATIONS] = HT_BYTES_ACTIVATIONS,
};

/* Transient memory is that of the segment that needs most: what is alive there at its fullest time. */
static void add_transients(const ht_plan *plan, ht_space space, int64_t *bytes)
{
    const ht_plan_segment *largest = NULL;
    for (size_t i = 0; i < plan->segment_count; i++) {
        const ht_plan_segment *s = &plan->segments[i];
        if (!largest || s->transient_bytes[space] > largest->transient_bytes[space]) largest = s;
    }
    if (!largest) return;
    bytes[HT_BYTES_WORKSPACE] += largest->workspace_bytes[space];
    bytes[HT_BYTES_ACTIVATIONS] += largest->live_bytes[space] - largest->workspace_bytes[space];
}

static void add_state(const ht_plan *plan, ht_space space, int64_t *bytes)
{
    for (size_t i = 0; i < plan->slot_count; i++) {
        const ht_slot *slot = &plan->slots[i];
        if (slot->kind != HT_SLOT_STATE || slot->owner != i || slot->place.space != space) continue;
        bool per_call = slot->place.area == HT_AREA_INPUT; /* once for each slot, as the inputs that it lies beside */
        int64_t held = ht_type_bytes(&slot->type) * (per_call ? (int64_t)plan->input_slots : 1);
        bytes[heading_of_state[slot->heading]] += held;
        if (per_call) bytes[HT_BYTES_SLOTS] -= held;
    }
}

/* The one place that knows which of a plan's numbers is which heading of which space. */
static void fill_space(const ht_plan *plan, ht_space space, int64_t *bytes)
{
    int64_t all = 0, known = 0;
    add_state(plan, space, bytes);
    add_transients(plan, space, bytes);
    bytes[HT_BYTES_WEIGHTS] += ht_plan_space_bytes(plan, space, HT_AREA_PREPACKED);
    bytes[HT_BYTES_SLOTS] += ht_plan_space_bytes(plan, space, HT_AREA_INPUT);
    bytes[HT_BYTES_SLOTS] += ht_plan_space_bytes(plan, space, HT_AREA_OUTPUT);
    bytes[HT_BYTES_REPLAY] += ht_plan_space_bytes(plan, space, HT_AREA_REPLAY);
    for (int area = 0; area < HT_AREA_COUNT; area++) all += ht_plan_space_bytes(plan, space, (ht_area)area);
    for (int h = 0; h < HT_BYTES_COUNT; h++) known += bytes[h];
    bytes[HT_BYTES_OTHER] += all - known;
}

ht_byte_table ht_plan_byte_table(const ht_plan *plan)
{
    ht_byte_table table = {.workspace_unknown = plan->target.no_kernels};
    for (int space = 0; space < HT_SPACE_COUNT; space++) fill_space(plan, (ht_space)space, table.bytes[space]);
    return table;
}

bool ht_byte_table_has(const ht_byte_table *table, ht_space space)
{
    bool any = space == HT_SPACE_MAIN;
    for (int h = 0; h < HT_BYTES_COUNT; h++) any = any || table->bytes[space][h] != 0;
    return any;
}

void ht_byte_table_json(ht_json_writer *json, const char *key, const ht_byte_table *table)
{
    ht_json_begin_object(json, key);
    for (int space = 0; space < HT_SPACE_COUNT; space++) {
        if (!ht_byte_table_has(table, (ht_space)space)) continue;
        ht_json_begin_object(json, ht_space_name((ht_space)space));
        for (int h = 0; h < HT_BYTES_COUNT; h++) {
            if (h == HT_BYTES_WORKSPACE && table->workspace_unknown)
                ht_json_put_null(json, ht_byte_heading_names[h]);
            else
                ht_json_put_int(json, ht_byte_heading_names[h], table->bytes[space][h]);
        }
        ht_json_end_object(json);
    }
    ht_json_end_object(json);
}

void ht_byte_table_print(ht_text *text, const ht_byte_table *table, const char *indent)
{
    for (int space = 0; space < HT_SPACE_COUNT; space++)
        for (int h = 0; h < HT_BYTES_COUNT; h++)
            if (table->bytes[space][h])
                ht_text_add(text, "%s%-18s %16" PRId64 "\n", indent, ht_byte_line_names[space][h],
                            table->bytes[space][h]);
}
