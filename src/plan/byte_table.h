/* The memory report: a plan's bytes by space and heading. Its sum over a space is what the plan allocates there. */
#ifndef HT_PLAN_BYTE_TABLE_H
#define HT_PLAN_BYTE_TABLE_H

#include "graph/graph.h"

typedef enum ht_byte_heading {
#define HT_BYTES(id, name) HT_BYTES_##id,
#include "plan/byte_headings.def"
#undef HT_BYTES
    HT_BYTES_COUNT
} ht_byte_heading;

typedef struct ht_byte_table {
    int64_t bytes[HT_SPACE_COUNT][HT_BYTES_COUNT];
    bool workspace_unknown; /* there are no kernels for the target: that of the rows that stand in is here */
} ht_byte_table;

extern const char *const ht_byte_heading_names[HT_BYTES_COUNT];
/* For tables of all spaces: "activations" in main, "activations@host" elsewhere. */
extern const char *const ht_byte_line_names[HT_SPACE_COUNT][HT_BYTES_COUNT];

ht_byte_table ht_plan_byte_table(const ht_plan *plan);
/* Has the plan memory there? It always has in main. */
bool ht_byte_table_has(const ht_byte_table *table, ht_space space);
/* {space: {heading: bytes}}, every heading of every space that the plan has memory in; null: unknown. */
void ht_byte_table_json(ht_json_writer *json, const char *key, const ht_byte_table *table);
/* A line for each heading that has bytes. */
void ht_byte_table_print(ht_text *text, const ht_byte_table *table, const char *indent);

#endif
