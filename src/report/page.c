#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"

static const char style[] =
    "body{font:16px/1.5 system-ui,sans-serif;color:#1b1f24;background:#fff;max-width:52rem;margin:2rem auto;padding:0 "
    "1rem}\n"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}\n"
    "table{border-collapse:collapse;display:block;overflow-x:auto}th,td{padding:.2rem .8rem .2rem "
    "0;text-align:left;border-bottom:1px solid #ddd;"
    "vertical-align:top}\n"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}svg{width:100%;height:auto}\n"
    "svg text{font:12px system-ui,sans-serif;fill:#444}svg .grid{stroke:#e4e4e4}svg .frame{stroke:#888;fill:none}\n"
    "svg .level{stroke:#666;stroke-dasharray:5 4}svg .bar{fill:#0072b2}svg "
    ".zoom{fill:#fff;stroke:#888}\n";

ht_status ht_report_create(ht_report **out, ht_context *ctx, const char *title)
{
    *out = calloc(1, sizeof **out);
    if (!*out) HT_FAIL(ctx, HT_ENOMEM, "report: out of memory");
    ht_report *r = *out;
    r->ctx = ctx;
    ht_text_add(&r->page, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                          "<meta name=\"viewport\" content=\"width=device-width\">\n<title>");
    ht_page_text(&r->page, title);
    ht_text_add(&r->page, "</title>\n<style>\n%s</style>\n</head>\n<body>\n<h1>", style);
    ht_page_text(&r->page, title);
    ht_text_add(&r->page, "</h1>\n");
    return HT_OK;
}

void ht_report_free(ht_report *report)
{
    if (!report) return;
    ht_text_free(&report->page);
    free(report);
}

void ht_page_text(ht_text *page, const char *text)
{
    for (const char *c = text; *c; c++) switch (*c) {
        case '<': ht_text_add(page, "&lt;"); break;
        case '>': ht_text_add(page, "&gt;"); break;
        case '&': ht_text_add(page, "&amp;"); break;
        case '"': ht_text_add(page, "&quot;"); break;
        case '\'': ht_text_add(page, "&#39;"); break;
        default: ht_text_add(page, "%c", (unsigned char)*c < 0x20 || *c == 0x7f ? ' ' : *c);
        }
}

void ht_page_coordinate(ht_text *page, double x)
{
    long hundredths = lround(fmax(-1e6, fmin(1e6, x)) * 100);
    long size = labs(hundredths);
    ht_text_add(page, "%s%ld.%02ld", hundredths < 0 ? "-" : "", size / 100, size % 100);
}

void ht_report_paragraph(ht_report *report, const char *text)
{
    ht_text_add(&report->page, "<p>");
    ht_page_text(&report->page, text);
    ht_text_add(&report->page, "</p>\n");
}

void ht_report_table(ht_report *report, const ht_page_table *table)
{
    ht_text *page = &report->page;
    if (table->title) {
        ht_text_add(page, "<h2>");
        ht_page_text(page, table->title);
        ht_text_add(page, "</h2>\n");
    }
    ht_text_add(page, "<table>\n<thead><tr>");
    for (size_t c = 0; c < table->columns; c++) {
        ht_text_add(page, "<th>");
        ht_page_text(page, table->heads[c]);
        ht_text_add(page, "</th>");
    }
    ht_text_add(page, "</tr></thead>\n<tbody>\n");
    for (size_t r = 0; r < table->rows; r++) {
        ht_text_add(page, "<tr>");
        for (size_t c = 0; c < table->columns; c++) {
            const char *cell = table->cells[r * table->columns + c];
            double number;
            ht_text_add(page, ht_number_read(cell, &number) ? "<td class=\"n\">" : "<td>");
            ht_page_text(page, cell);
            ht_text_add(page, "</td>");
        }
        ht_text_add(page, "</tr>\n");
    }
    ht_text_add(page, "</tbody>\n</table>\n");
}

const char *ht_report_page(ht_report *report)
{
    if (!report->ended) ht_text_add(&report->page, "</body>\n</html>\n");
    report->ended = true;
    return report->page.failed ? NULL : report->page.data;
}

static ht_status write_page(ht_report *report, const char *page, const char *path, const char *temporary)
{
    FILE *file = fopen(temporary, "wb");
    if (!file) HT_FAIL(report->ctx, HT_EIO, "%s: %s", temporary, strerror(errno));
    bool written = fwrite(page, 1, strlen(page), file) == strlen(page) && fflush(file) == 0;
    int why = errno;
    if (fclose(file) != 0 && written) written = false, why = errno;
    if (written && rename(temporary, path) == 0) return HT_OK;
    if (written) why = errno;
    remove(temporary);
    HT_FAIL(report->ctx, HT_EIO, "%s: %s", path, strerror(why));
}

ht_status ht_report_write(ht_report *report, const char *path)
{
    const char *page = ht_report_page(report);
    ht_text temporary = {0};
    ht_text_add(&temporary, "%s.part", path);
    ht_status status = page && !temporary.failed ? write_page(report, page, path, temporary.data)
                                                 : ht_fail(report->ctx, HT_ENOMEM, "report: out of memory");
    ht_text_free(&temporary);
    return status;
}
