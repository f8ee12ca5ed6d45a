#include "cli/timeline_view.h"

#include <inttypes.h>

#include "cli/cli.h"

enum { SHOWN_ALIVE = 12, COLUMNS = 64, ROWS = 12, BARS = 60 };

static const char heading_letters[HT_BYTES_COUNT] = {'p', 'm', 'w', 'g', 'o', 'A', 'K', 's', 'r', 'x'};

/* What is at a height: headings lie on each other, transients on top. */
static char letter_at(const ht_memory_timeline *t, const ht_memory_moment *at, double height)
{
    static const int order[] = {HT_BYTES_PARAMETERS, HT_BYTES_MASTERS, HT_BYTES_WEIGHTS, HT_BYTES_GRADIENTS,
                                HT_BYTES_OPTIMIZER,  HT_BYTES_SLOTS,   HT_BYTES_REPLAY,  HT_BYTES_OTHER};
    double below = 0;
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        if (height < (below += (double)t->lasting[order[i]])) return heading_letters[order[i]];
    if (height < (below += (double)at->values)) return heading_letters[HT_BYTES_ACTIVATIONS];
    return height < below + (double)at->workspace ? heading_letters[HT_BYTES_WORKSPACE] : ' ';
}

static void add_drawing(ht_text *text, const ht_memory_timeline *t)
{
    size_t columns = t->count < COLUMNS ? t->count : COLUMNS;
    const ht_memory_moment *peak = &t->moments[t->peak];
    double top = (double)(peak->values + peak->workspace);
    for (int h = 0; h < HT_BYTES_COUNT; h++) top += (double)t->lasting[h];
    for (int row = ROWS - 1; row >= 0; row--) {
        char line[COLUMNS + 1];
        for (size_t c = 0; c < columns; c++)
            line[c] = letter_at(t, ht_memory_timeline_fullest(t, c, columns), top * (row + 0.5) / ROWS);
        line[columns] = '\0';
        ht_text_add(text, "%10.2f MB |%s\n", top * (row + 1) / ROWS / 1e6, line);
    }
    ht_text_add(text, "              ");
    for (int h = 0; h < HT_BYTES_COUNT; h++)
        if (t->lasting[h] || h == HT_BYTES_ACTIVATIONS || h == HT_BYTES_WORKSPACE)
            ht_text_add(text, "%c %s  ", heading_letters[h], ht_byte_heading_names[h]);
    ht_text_add(text, "\n");
}

void cli_timeline_bars(ht_report *report, const ht_memory_timeline *t)
{
    size_t bars = t->count < BARS ? t->count : BARS;
    const char *const labels[BARS] = {NULL};
    double heights[HT_BYTES_COUNT * BARS] = {0};
    for (size_t bar = 0; bar < bars; bar++) {
        const ht_memory_moment *at = ht_memory_timeline_fullest(t, bar, bars);
        for (int h = 0; h < HT_BYTES_COUNT; h++) heights[(size_t)h * bars + bar] = (double)t->lasting[h] / 1e6;
        heights[(size_t)HT_BYTES_ACTIVATIONS * bars + bar] = (double)at->values / 1e6;
        heights[(size_t)HT_BYTES_WORKSPACE * bars + bar] = (double)at->workspace / 1e6;
    }
    if (bars)
        ht_report_bars(report, &(ht_bars){.title = "Memory over a step, by heading",
                                          .x_label = "instructions of a step, from the first to the last",
                                          .y_label = "MB in main",
                                          .count = bars,
                                          .labels = labels,
                                          .part_count = HT_BYTES_COUNT,
                                          .part_names = ht_byte_heading_names,
                                          .heights = heights});
}

void cli_timeline_peak(ht_text *text, const ht_memory_timeline *t)
{
    if (!t->count) return;
    const ht_memory_moment *peak = &t->moments[t->peak];
    ht_text_add(text,
                "The peak is at instruction %zu of %s (%s of %s): %" PRId64 " bytes of values and %" PRId64
                " of workspace are alive.\n",
                peak->instr, peak->segment->name, ht_instr_op(&peak->segment->instrs[peak->instr]),
                ht_instr_layer(peak->segment, peak->instr), peak->values, peak->workspace);
}

void cli_timeline_alive(ht_table *table, const ht_memory_timeline *t, size_t most)
{
    static const char *const heads[] = {"alive at the peak", "made by", "type", "bytes", "from", "to", NULL};
    for (size_t i = 0; heads[i]; i++) {
        ht_table_head(table, heads[i]);
        table->right[i] = i >= 3;
    }
    for (size_t i = 0; i < t->alive_count && i < most; i++) {
        const ht_alive *a = &t->alive[i];
        ht_table_cell(table, "%s", a->layer);
        ht_table_cell(table, "%s", a->op);
        ht_table_cell(table, "%s", a->type[0] ? a->type : "-");
        ht_table_cell(table, "%" PRId64, a->bytes);
        ht_table_cell(table, "%" PRIu32, a->first);
        ht_table_cell(table, "%" PRIu32, a->last);
    }
}

void cli_timeline_text(ht_text *text, const ht_memory_timeline *t)
{
    ht_table alive = {.count = 0};
    if (!t->count) return;
    ht_text_add(text, "Memory in main over one step, %zu instructions\n", t->count);
    add_drawing(text, t);
    cli_timeline_peak(text, t);
    cli_timeline_alive(&alive, t, SHOWN_ALIVE);
    ht_text_add(text, "\nThe largest tensors that are alive then\n");
    ht_table_print(text, &alive, cli_columns());
    text->failed |= alive.failed;
    ht_table_free(&alive);
}
