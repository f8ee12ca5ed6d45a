/* Figures of targets in files: reading and printing, by the rows of graph/figures.def. */
#ifndef HT_GRAPH_FIGURES_H
#define HT_GRAPH_FIGURES_H

#include "graph/target.h"

typedef struct ht_figure_group {
    const char *key, *unit, *what;
    const char *kind;         /* of its items, for messages: "memory" */
    const char *const *names; /* of its items; NULL: no such item */
    size_t count;
    size_t offset, source_offset; /* in ht_target */
} ht_figure_group;

extern const ht_figure_group ht_figure_groups[];
extern const size_t ht_figure_group_count;
/* NULL: there is none of that name. */
const ht_figure_group *ht_figure_group_find(const char *key, size_t length);

/* The member whose key is that of the group. */
ht_status ht_figures_read(ht_context *ctx, const char *file, ht_target *target, const ht_figure_group *group,
                          const ht_json *member);
/* {"flops": "measured", "flops.f64": "data sheet"}: a group's word is that of all its figures, but for those that have a
 * word of their own. NULL: nothing is told. */
ht_status ht_figures_read_sources(ht_context *ctx, const char *file, ht_target *target, const ht_json *sources);
/* A line for each group that has any. */
void ht_figures_print(ht_json_writer *json, const ht_target *target);

/* "; did you mean \"x\"?" for the nearest of the names, or "" when none is near. */
typedef struct ht_hint {
    char text[96];
} ht_hint;
ht_hint ht_hint_for(const char *word, size_t count, const char *(*name_of)(size_t i));

#endif
