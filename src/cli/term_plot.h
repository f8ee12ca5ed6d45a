/* A line plot for the terminal. */
#ifndef HT_CLI_TERM_PLOT_H
#define HT_CLI_TERM_PLOT_H

#include "base/base.h"

typedef struct cli_term_plot {
    const double *y; /* at 1, 2, ...; what is not above zero is left out */
    size_t count;
    int columns, rows; /* of the field; at least 2 and at most 200 */
    double level;      /* a dotted line across; 0: none */
    bool unicode;      /* Braille characters, two by four dots each; else ASCII */
} cli_term_plot;

/* Adds the rows, a logarithmic axis at the left and the ends of the other axis below. */
void cli_term_plot_add(ht_text *text, const cli_term_plot *plot);

/* Does the environment promise a terminal that shows UTF-8? */
bool cli_unicode(void);

#endif
