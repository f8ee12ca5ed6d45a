/* A run as `halftone watch` draws it. */
#ifndef HT_CLI_WATCH_VIEW_H
#define HT_CLI_WATCH_VIEW_H

#include "cli/cli.h"
#include "train/train.h"

typedef struct cli_frame {
    const char *folder;
    int columns, lines; /* of the terminal; 0: as many as it takes */
    bool unicode;
} cli_frame;

/* State, the curve of the loss, and what is known of steps, evaluation, memory and ranks; at most as many lines and columns
 * as there are. */
void cli_watch_frame(ht_text *text, const ht_run_status *status, const cli_frame *frame);
/* The state in a line. */
void cli_watch_state(ht_text *text, const ht_run_status *status, const char *folder);

#endif
