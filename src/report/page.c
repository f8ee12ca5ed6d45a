#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/page.h"

/* Of what the script adds: the line at the cursor, the values there, what is being zoomed. */
#define HT_SCRIPT_STYLE                                                                                                \
    "figure{position:relative}.scripted .field{touch-action:pan-y;cursor:crosshair}.scripted .hover{display:none}"     \
    "svg:focus-visible,figcaption span:focus-visible{outline:2px solid var(--frame);outline-offset:-1px}"              \
    ".cursor{stroke:var(--soft)}.drag{fill:var(--fg);fill-opacity:.1}.catch{fill:transparent}"                         \
    "figcaption span[role]{cursor:pointer}figcaption span[aria-pressed=false]{text-decoration:line-through;"           \
    "opacity:.55}.tip{position:absolute;top:0;left:0;pointer-events:none;background:var(--bg);border:1px solid "       \
    "var(--frame);border-radius:3px;padding:.2rem "                                                                    \
    ".5rem;font-size:.8rem;line-height:1.35;width:max-content;box-sizing:border-box;"                                  \
    "max-width:100%;overflow:hidden;z-index:1}.tip i{display:inline-block;width:.7em;height:.7em;margin-right:.4em;"   \
    "background:var(--c)}.tip[hidden]{display:none}summary{cursor:pointer;font-size:1.1rem;font-weight:600;"           \
    "margin:2rem 0 .5rem}\n"

/* Colours by name, so that a reader's setting for light or dark changes all of them at once; c0 to c9 are those of
 * series and parts. Prose keeps a width that can be read, tables take what there is, and scroll inside their box. */
static const char style[] =
    ":root{color-scheme:light dark;--fg:#1b1f24;--bg:#fff;--soft:#555d66;--rule:#d8dee4;--grid:#e6e8eb;--frame:#8a929a;"
    "--good:#0b6b35;--bad:#b3261e;--open:#7a5400;--grey:#8f979f;--fill:#f2f4f7;--half:#b3261e}\n" HT_COLOUR_STYLE
    "@media(prefers-color-scheme:dark){:root{--fg:#e8eaed;--bg:#16191d;--soft:#b0b7bf;--rule:#3a4149;--grid:#2a3037;"
    "--frame:#7d858e;--good:#63c98a;--bad:#ff8a80;--open:#e8b84a;--grey:#8f979f;--fill:#22272e;--half:#ff8a80}"
    "\n" HT_DARK_COLOUR_STYLE "}\n"
    "body{font:16px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:88rem;margin:2rem "
    "auto;padding:0 1rem;overflow-wrap:break-word}\n"
    "h1{font-size:1.5rem}h2{font-size:1.1rem;margin:2rem 0 .5rem}p,h1,h2,figure{max-width:52rem}figure{margin:0}\n"
    ".box{overflow-x:auto;max-width:100%;background:linear-gradient(to right,var(--bg) 30%,transparent) left/2rem "
    "100%,linear-gradient(to left,var(--bg) 30%,transparent) right/2rem 100%,linear-gradient(to right,var(--frame),"
    "transparent) left/.6rem calc(100% - 2px),linear-gradient(to left,var(--frame),transparent) right/.6rem calc(100% "
    "- 2px);"
    "background-repeat:no-repeat;background-attachment:local,local,scroll,scroll}table{border-collapse:collapse}th,td{"
    "padding:.2rem 1rem .2rem "
    "0;text-align:left;border-bottom:1px solid var(--rule);vertical-align:top}\n"
    "th{vertical-align:bottom}.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}"
    ".good{color:var(--good)}.bad{color:var(--bad)}.open{color:var(--open)}.good,.bad,.open{font-weight:600}\n"
    "svg{width:100%;height:auto;display:block}svg.narrow{display:none}\n"
    "@media(max-width:44rem){svg.wide{display:none}svg.narrow{display:block;max-width:30rem}th,td{padding-right:.6rem}"
    "td:first-child{white-space:nowrap}.n{white-space:normal}.fold thead{display:none}.fold tr,.fold "
    "td{display:block;white-space:normal}"
    ".fold tr{border-bottom:1px solid var(--rule);padding:.3rem 0}.fold td{border:0}.fold td:empty{display:none}"
    ".fold td:before{content:attr(data-head) ': ';color:var(--soft);font-weight:400}"
    ".fold td:first-child:before{content:none}.few,.few thead,.few tbody{display:flex}.few tr{display:flex;"
    "flex-direction:column}.few th,.few td{white-space:nowrap;min-height:1.5em}.few .n{text-align:right}"
    ".few th.n{text-align:left}}\n"
    "svg text{font:12px system-ui,sans-serif;fill:var(--soft)}\n" HT_CURVE_STYLE HT_SCRIPT_STYLE
    "line.level{stroke:var(--soft);stroke-dasharray:2 4}.hover{fill:transparent}.hover:hover{fill:var(--fg);"
    "fill-opacity:.08}.bar,rect.part{fill:var(--c)}\n" HT_DIAGRAM_STYLE "svg.diagram{max-width:28rem}\n"
    "figcaption{font-size:.85rem;color:var(--soft);display:flex;flex-wrap:wrap;gap:.1rem 1.2rem}"
    "figcaption i{display:inline-block;width:1.6em;margin-right:.5em;vertical-align:middle;border-top:3px solid "
    "var(--c)}figcaption i.dashed{border-top-style:dashed}figcaption i.level{border-top:2px dotted "
    "var(--soft)}figcaption i.part{width:.8em;height:.8em;border:0;background:var(--c)}"
    "figcaption i.dot{width:.5em;height:.5em;border:2px solid var(--c);border-radius:50%;background:var(--c)}"
    "figcaption i.hollow{background:var(--bg)}figcaption i.ringed{border-color:var(--grey)}"
    "figcaption i.cored{background:var(--grey)}\n";

/* Nothing comes from elsewhere; a page that is served may ask its own server for its next version. */
static const char policy[] = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
                             "connect-src 'self'";

ht_status ht_report_create(ht_report **out, ht_context *ctx, const char *title)
{
    *out = calloc(1, sizeof **out);
    if (!*out) HT_FAIL(ctx, HT_ENOMEM, "report: out of memory");
    ht_report *r = *out;
    r->ctx = ctx;
    ht_text_add(&r->page,
                "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
                "<meta http-equiv=\"Content-Security-Policy\" content=\"%s\">\n<title>",
                policy);
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
        case '\n': ht_text_add(page, "\n"); break;
        default: ht_text_add(page, "%c", (unsigned char)*c < 0x20 || *c == 0x7f ? ' ' : *c);
        }
}

void ht_page_coordinate(ht_text *page, double x)
{
    long hundredths = lround(fmax(-1e6, fmin(1e6, x)) * 100);
    long size = labs(hundredths);
    ht_text_add(page, "%s%ld.%02ld", hundredths < 0 ? "-" : "", size / 100, size % 100);
}

void ht_page_tenths(ht_text *page, double x)
{
    long tenths = lround(fmax(-1e6, fmin(1e6, x)) * 10), size = labs(tenths);
    ht_text_add(page, "%s%ld", tenths < 0 ? "-" : "", size / 10);
    if (size % 10) ht_text_add(page, ".%ld", size % 10);
}

void ht_report_paragraph(ht_report *report, const char *text)
{
    ht_text_add(&report->page, "<p>");
    ht_page_text(&report->page, text);
    ht_text_add(&report->page, "</p>\n");
}

void ht_page_heading(ht_text *page, const char *title)
{
    if (!title) return;
    ht_text_add(page, "<h2>");
    ht_page_text(page, title);
    ht_text_add(page, "</h2>\n");
}

void ht_report_details_open(ht_report *report, const char *summary)
{
    ht_text_add(&report->page, "<details><summary>");
    ht_page_text(&report->page, summary);
    ht_text_add(&report->page, "</summary>\n");
}

void ht_report_details_close(ht_report *report)
{
    ht_text_add(&report->page, "</details>\n");
}

void ht_report_refresh(ht_report *report, double seconds)
{
    report->scripted = true;
    ht_text_add(&report->page, "<p class=\"live\" role=\"status\" data-refresh=\"");
    ht_text_number(&report->page, seconds);
    ht_text_add(&report->page, "\"></p>\n");
}

/* ---- tables ---- */

bool ht_cell_is_number(const char *cell)
{
    double number;
    char text[64];
    if (strcmp(cell, "-") == 0) return true;
    cell += *cell == '<';
    size_t length = strlen(cell);
    if (length == 0 || length >= sizeof text) return false;
    memcpy(text, cell, length + 1);
    if (text[length - 1] == '%') text[length - 1] = '\0';
    return ht_number_read(text, &number);
}

static bool is_number_column(const ht_page_table *table, size_t column)
{
    bool numbers = table->rows > 0;
    for (size_t r = 0; r < table->rows; r++)
        numbers = numbers && ht_cell_is_number(table->cells[r * table->columns + column]);
    return numbers || (table->right && table->right[column]);
}

static const char *verdict_class(const char *cell)
{
    static const char *const classes[] = {"bad", "open", "good"};
    for (int v = HT_VERDICT_FALSE; v <= HT_VERDICT_TRUE; v++)
        if (strcmp(cell, ht_verdict_names[v]) == 0) return classes[v];
    return NULL;
}

/* A verdict has a colour, and a mark for those who do not see it. */
static void add_cell(ht_text *page, const ht_page_table *table, size_t row, size_t column, bool number, bool folds)
{
    const char *cell = table->cells[row * table->columns + column];
    bool verdict = column > 0 && column == table->verdict_column;
    static const char *const marks[] = {"\u2717", "?", "\u2713"};
    const char *class = verdict ? verdict_class(cell) : NULL;
    ht_text_add(page, number ? "<td class=\"n\"" : "<td");
    if (class) ht_text_add(page, " class=\"%s\"", class);
    if (folds) {
        ht_text_add(page, " data-head=\"");
        ht_page_text(page, table->heads[column]);
        ht_text_add(page, "\"");
    }
    ht_text_add(page, ">");
    if (class) ht_text_add(page, "%s ", marks[class[0] == 'g' ? 2 : class[0] == 'o']);
    ht_page_text(page, cell);
    ht_text_add(page, "</td>");
}

enum { FEW_ROWS = 3, MANY_COLUMNS = 6 };

/* On a phone a table of texts is folded, a cell a line; of one with few rows and many columns, rows and columns change
 * places; others scroll inside their box, whose edges are shaded where there is more. */
void ht_report_table(ht_report *report, const ht_page_table *table)
{
    ht_text *page = &report->page;
    bool *numbers = calloc(table->columns + 1, sizeof *numbers), folds = table->columns > 2;
    if (!numbers) {
        page->failed = true;
        return;
    }
    for (size_t c = 0; c < table->columns; c++) {
        numbers[c] = is_number_column(table, c);
        folds = folds && !numbers[c];
    }
    ht_page_heading(page, table->title);
    bool few = table->rows <= FEW_ROWS && table->columns >= MANY_COLUMNS;
    ht_text_add(page, "<div class=\"box\"><table%s>\n<thead><tr>",
                folds ? " class=\"fold\""
                : few ? " class=\"few\""
                      : "");
    for (size_t c = 0; c < table->columns; c++) {
        ht_text_add(page, numbers[c] ? "<th class=\"n\">" : "<th>");
        ht_page_text(page, table->heads[c]);
        ht_text_add(page, "</th>");
    }
    ht_text_add(page, "</tr></thead>\n<tbody>\n");
    for (size_t r = 0; r < table->rows; r++) {
        ht_text_add(page, "<tr>");
        for (size_t c = 0; c < table->columns; c++) add_cell(page, table, r, c, numbers[c], folds);
        ht_text_add(page, "</tr>\n");
    }
    ht_text_add(page, "</tbody>\n</table></div>\n");
    free(numbers);
}

/* ---- the page as a whole ---- */

const char *ht_report_page(ht_report *report)
{
    for (size_t i = 0; i < ht_page_script_count && report->scripted && !report->ended; i++)
        ht_text_add(&report->page, "<script>\n%s</script>\n", ht_page_scripts[i].text);
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
