/* What a probe found, for people, for programs, and as pictures. */
#ifndef HT_CLI_PROBE_VIEW_H
#define HT_CLI_PROBE_VIEW_H

#include "cli/cli.h"
#include "probe/probe.h"

void cli_probe_table(ht_text *text, const ht_probe *probe);
void cli_probe_json(ht_text *text, const ht_probe *probe);
/* The roofline alone, and the page with it. */
void cli_probe_svg(ht_text *text, const ht_probe *probe);
ht_status cli_probe_page(ht_context *ctx, const ht_probe *probe, const char *path);

#endif
