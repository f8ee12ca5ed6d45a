#include "cli/numerics_page.h"
#include "cli/cli.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Exponents that are drawn; what lies outside is drawn at the ends. f16's own: smallest normal, smallest that is kept,
 * largest. */
enum { LOW = -60, HIGH = 20, SPAN = HIGH - LOW + 1, F16_NORMAL = -14, F16_KEPT = -25, F16_LARGEST = 15 };
enum { ACTIVATIONS, WEIGHTS, ROLES };
enum { UNSCALED, SCALED, VIEWS };
enum { SHOWN = 5, SHOWN_ON_PAGE = 40 };

static const char *const role_words[ROLES] = {"bwd_act", "bwd_weight"};
static const char *const role_names[ROLES] = {"gradients of activations", "gradients of weights"};

/* Values as f16 would hold them, in elements. */
typedef struct share_sums {
    double elements, zero, flushed, subnormal, normal, above, broken, max;
} share_sums;

typedef struct tensor_row {
    char *label;
    share_sums sums; /* as they are, with their loss scale */
} tensor_row;

typedef struct numerics {
    ht_context *ctx;
    share_sums sums[ROLES][VIEWS];
    double bins[ROLES][VIEWS][SPAN];
    bool scaled; /* a loss scale other than 1 was seen */
    size_t looks, look_capacity;
    double *look_step, *look_lost[ROLES]; /* per cent */
    size_t lost_capacity[ROLES];
    size_t scales, scale_capacity[2];
    double *scale_step, *scale;
    size_t tensors, tensor_capacity;
    tensor_row *tensor;
} numerics;

static void free_numerics(numerics *n)
{
    for (size_t i = 0; i < n->tensors; i++) free(n->tensor[i].label);
    free(n->tensor);
    free(n->look_step);
    for (int r = 0; r < ROLES; r++) free(n->look_lost[r]);
    free(n->scale_step);
    free(n->scale);
}

/* ---- reading ---- */

static double number(const ht_json *object, const char *name)
{
    double value = 0;
    return ht_json_as_number(ht_json_get(object, name), &value) ? value : 0;
}

static const char *word(const ht_json *object, const char *name)
{
    const ht_json *value = ht_json_get(object, name);
    return value && value->kind == HT_JSON_STRING ? value->text : NULL;
}

/* `broken`: the elements that are inf or NaN count as too large in this view. */
static share_sums read_sums(const ht_json *tensor, const ht_json *view, bool broken)
{
    double elements = number(tensor, "elements");
    return (share_sums){.elements = elements,
                        .zero = number(tensor, "zero") * elements,
                        .flushed = number(view, "flushed") * elements,
                        .subnormal = number(view, "subnormal") * elements,
                        .normal = number(view, "normal") * elements,
                        .above = number(view, "above") * elements,
                        .broken = broken ? number(tensor, "inf") + number(tensor, "nan") : 0,
                        .max = number(view, "max")};
}

static void add_sums(share_sums *to, const share_sums *more)
{
    to->elements += more->elements;
    to->zero += more->zero;
    to->flushed += more->flushed;
    to->subnormal += more->subnormal;
    to->normal += more->normal;
    to->above += more->above;
    to->broken += more->broken;
    to->max = fmax(to->max, more->max);
}

static void add_bins(double *bins, const ht_json *view)
{
    const ht_json *counts = ht_json_get(view, "counts");
    double exponent = number(view, "lowest");
    if (!counts || counts->kind != HT_JSON_ARRAY) return;
    for (const ht_json *count = counts->child; count; count = count->next, exponent++) {
        double elements;
        int bin = (int)fmax(LOW, fmin(HIGH, exponent)) - LOW;
        if (ht_json_as_number(count, &elements)) bins[bin] += elements;
    }
}

/* "h.0.attn.c_attn.weight.grad", or "matmul at h.0.attn of attention" for what has no name. Heap memory. */
static char *label_of(const ht_json *tensor)
{
    const char *name = word(tensor, "name"), *op = word(tensor, "op"), *layer = word(tensor, "layer");
    const char *origin = word(tensor, "origin");
    ht_text text = {0};
    if (name)
        ht_text_add(&text, "%s", name);
    else
        ht_text_add(&text, "%s%s%s%s%s", op ? op : "?", layer ? " at " : "", layer ? layer : "", origin ? " of " : "",
                    origin ? origin : "");
    return text.failed ? NULL : text.data;
}

/* Steps list their values in one order, so the place in the list is a good guess. Values of one label are one row. */
static bool add_tensor(numerics *n, const ht_json *tensor, const share_sums *sums, size_t guess)
{
    char *label = label_of(tensor);
    size_t at = guess;
    if (!label) return false;
    if (at >= n->tensors || strcmp(n->tensor[at].label, label) != 0)
        for (at = 0; at < n->tensors && strcmp(n->tensor[at].label, label) != 0;) at++;
    if (at < n->tensors) {
        free(label);
    } else {
        if (!ht_grow((void **)&n->tensor, &n->tensor_capacity, n->tensors + 1, sizeof *n->tensor)) {
            free(label);
            return false;
        }
        n->tensor[n->tensors++] = (tensor_row){.label = label};
    }
    add_sums(&n->tensor[at].sums, sums);
    return true;
}

static bool read_tensor(numerics *n, const ht_json *tensor, share_sums *look, size_t guess)
{
    const char *role = word(tensor, "role");
    int r = role && strcmp(role, role_words[WEIGHTS]) == 0 ? WEIGHTS : ACTIVATIONS;
    const ht_json *unscaled = ht_json_get(tensor, "unscaled"), *scaled = ht_json_get(tensor, "scaled");
    /* What is inf with the loss scale was made so by it: how large it is without the scale is not known. */
    share_sums sums[VIEWS] = {read_sums(tensor, unscaled, !scaled),
                              read_sums(tensor, scaled ? scaled : unscaled, true)};
    for (int v = 0; v < VIEWS; v++) {
        add_sums(&n->sums[r][v], &sums[v]);
        add_bins(n->bins[r][v], v == SCALED && scaled ? scaled : unscaled);
    }
    add_sums(&look[r], &sums[SCALED]);
    return add_tensor(n, tensor, &sums[SCALED], guess);
}

static bool read_look(numerics *n, const ht_json *line)
{
    share_sums look[ROLES] = {{0}};
    const ht_json *tensors = ht_json_get(line, "tensors");
    size_t guess = 0;
    if (tensors && tensors->kind == HT_JSON_ARRAY)
        for (const ht_json *tensor = tensors->child; tensor; tensor = tensor->next)
            if (!read_tensor(n, tensor, look, guess++)) return false;
    bool grown = ht_grow((void **)&n->look_step, &n->look_capacity, n->looks + 1, sizeof *n->look_step);
    for (int r = 0; r < ROLES && grown; r++)
        grown = ht_grow((void **)&n->look_lost[r], &n->lost_capacity[r], n->looks + 1, sizeof *n->look_lost[r]);
    if (!grown) return false;
    n->look_step[n->looks] = number(line, "step");
    for (int r = 0; r < ROLES; r++) n->look_lost[r][n->looks] = 100 * look[r].flushed / fmax(1, look[r].elements);
    n->looks++;
    return true;
}

static bool add_scale(numerics *n, double step, double scale)
{
    if (!ht_grow((void **)&n->scale_step, &n->scale_capacity[0], n->scales + 1, sizeof *n->scale_step) ||
        !ht_grow((void **)&n->scale, &n->scale_capacity[1], n->scales + 1, sizeof *n->scale))
        return false;
    n->scale_step[n->scales] = step;
    n->scale[n->scales++] = scale;
    return true;
}

/* A scale holds until there is another one: a staircase, which goes on to the last look. */
static bool hold_scale(numerics *n, double step)
{
    if (n->scales == 0 || !(step > n->scale_step[n->scales - 1])) return true;
    return add_scale(n, step, n->scale[n->scales - 1]);
}

static bool read_scale(numerics *n, const ht_json *line)
{
    double step = number(line, "step"), scale = number(line, "loss_scale");
    n->scaled = n->scaled || scale != 1;
    return hold_scale(n, step) && add_scale(n, step, scale);
}

static ht_status read_line(numerics *n, const char *path, const char *text, size_t length)
{
    const ht_json *line = NULL;
    ht_arena *arena = ht_arena_create();
    if (!arena) HT_FAIL(n->ctx, HT_ENOMEM, "%s: out of memory", path);
    ht_status status = ht_json_parse(n->ctx, arena, path, text, length, &line);
    const char *kind = status == HT_OK ? word(line, "kind") : NULL;
    bool ok = true;
    if (kind && strcmp(kind, "loss_scale") == 0) ok = read_scale(n, line);
    if (kind && strcmp(kind, "tensors") == 0) ok = read_look(n, line) && hold_scale(n, number(line, "step"));
    ht_arena_free(arena);
    if (!ok) HT_FAIL(n->ctx, HT_ENOMEM, "%s: out of memory", path);
    return status;
}

static ht_status read_lines(numerics *n, const char *path)
{
    char *text;
    size_t length;
    HT_TRY(ht_read_file(n->ctx, &text, &length, path));
    ht_status status = HT_OK;
    for (size_t at = 0; at < length && status == HT_OK;) {
        const char *end = memchr(text + at, '\n', length - at);
        size_t count = end ? (size_t)(end - text) - at : length - at;
        if (end && count > 0) status = read_line(n, path, text + at, count);
        at += count + 1;
    }
    free(text);
    return status;
}

/* ---- showing ---- */

/* What is lost of the values that are not zero: flushed, or too large. */
static double lost_share(const share_sums *s)
{
    double alive = s->elements - s->zero;
    return alive > 0 ? (s->flushed + s->above + s->broken) / alive : 0;
}

static int by_loss(const void *a, const void *b)
{
    const tensor_row *x = a, *y = b;
    double p = lost_share(&x->sums), q = lost_share(&y->sums);
    if (p != q) return p < q ? 1 : -1;
    p = x->sums.subnormal / fmax(1, x->sums.elements), q = y->sums.subnormal / fmax(1, y->sums.elements);
    return p != q ? (p < q ? 1 : -1) : strcmp(x->label, y->label);
}

enum { SHARE_COLUMNS = 7 };
static const char *const share_heads[SHARE_COLUMNS] = {"elements", "zero",      "lost",   "subnormal",
                                                       "normal",   "too large", "largest"};
typedef char share_cells[SHARE_COLUMNS][32];

static void fill_cells(share_cells cells, const share_sums *s)
{
    const double shares[] = {s->zero, s->flushed, s->subnormal, s->normal, s->above + s->broken};
    snprintf(cells[0], sizeof cells[0], "%.0f", s->elements);
    for (int i = 0; i < 5; i++) {
        double percent = 100 * shares[i] / fmax(1, s->elements);
        bool tiny = percent > 0 && percent < 0.005; /* which is not nothing */
        snprintf(cells[i + 1], sizeof cells[i + 1], "%s%.2f%%", tiny ? "<" : "", tiny ? 0.01 : percent);
    }
    snprintf(cells[6], sizeof cells[6], "%.3g", s->max);
}

static void add_row(ht_table *table, const char *name, const share_sums *s)
{
    share_cells cells;
    fill_cells(cells, s);
    ht_table_cell(table, "%s", name);
    for (int i = 0; i < SHARE_COLUMNS; i++) ht_table_cell(table, "%s", cells[i]);
}

/* How many values have lost something, up to `most`: they come first. */
static size_t count_losers(const numerics *n, size_t most)
{
    size_t count = 0;
    while (count < n->tensors && count < most && lost_share(&n->tensor[count].sums) > 0) count++;
    return count;
}

static void add_table(ht_text *text, const numerics *n)
{
    static const int ranks[SHARE_COLUMNS] = {3, 2, 0, 0, 0, 0, 1};
    size_t listed = count_losers(n, SHOWN);
    ht_table table = {0};
    ht_table_head(&table, "");
    for (int i = 0; i < SHARE_COLUMNS; i++) {
        ht_table_head(&table, share_heads[i]);
        table.rank[i + 1] = ranks[i];
        table.width[i + 1] = i == 0 ? 12 : 9;
        table.right[i + 1] = true;
    }
    for (int r = 0; r < ROLES; r++) {
        add_row(&table, role_names[r], &n->sums[r][UNSCALED]);
        if (n->scaled) add_row(&table, "  times the loss scale", &n->sums[r][SCALED]);
    }
    if (listed > 0) ht_table_cell(&table, "most lost in");
    for (int i = 0; listed > 0 && i < SHARE_COLUMNS; i++) ht_table_cell(&table, "%s", "");
    for (size_t i = 0; i < listed; i++) add_row(&table, n->tensor[i].label, &n->tensor[i].sums);
    ht_text_add(text, "\nGradients as f16 would hold them, over %zu steps looked at\n", n->looks);
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
}

static int class_of(int exponent)
{
    return exponent < F16_KEPT ? 1 : exponent < F16_NORMAL ? 2 : exponent <= F16_LARGEST ? 3 : 4;
}

/* Zero has a bar of its own at the left, as in the paper's figures. */
static void add_bars(ht_report *report, const numerics *n, int role, int view)
{
    enum { PARTS = 5, BARS = SPAN + 2 };
    static const char *const parts[PARTS] = {"zero", "lost: f16 makes it zero", "subnormal in f16", "normal in f16",
                                             "too large for f16"};
    double heights[PARTS][BARS] = {{0}}, elements = fmax(1, n->sums[role][view].elements);
    char numbers[BARS][16], title[128];
    const char *labels[BARS] = {"0"};
    heights[0][0] = 100 * n->sums[role][view].zero / elements;
    for (int i = 0; i < SPAN; i++) {
        int exponent = LOW + i;
        heights[class_of(exponent)][i + 2] = 100 * n->bins[role][view][i] / elements;
        snprintf(numbers[i], sizeof numbers[i], "%d", exponent);
        if (exponent % 10 == 0 && exponent > LOW) labels[i + 2] = numbers[i];
    }
    snprintf(title, sizeof title, "Magnitude of %s%s", role_names[role],
             view == SCALED ? ", times the loss scale" : "");
    ht_report_bars(report, &(ht_bars){.title = title,
                                      .x_label = "exponent of two; zero by itself",
                                      .y_label = "per cent of all values",
                                      .count = BARS,
                                      .labels = labels,
                                      .part_count = PARTS,
                                      .part_names = parts,
                                      .heights = &heights[0][0]});
}

static void add_curves(ht_report *report, const numerics *n)
{
    const ht_series lost[ROLES] = {{.name = role_names[0], .count = n->looks, .x = n->look_step, .y = n->look_lost[0]},
                                   {.name = role_names[1], .count = n->looks, .x = n->look_step, .y = n->look_lost[1]}};
    const ht_series scale = {.name = "loss scale", .count = n->scales, .x = n->scale_step, .y = n->scale};
    ht_report_chart(report, &(ht_chart){.title = "Lost to zero, over time",
                                        .x_label = "step",
                                        .y_label = "per cent of all values",
                                        .series = lost,
                                        .series_count = ROLES});
    if (n->scaled)
        ht_report_chart(report, &(ht_chart){.title = "Loss scale",
                                            .x_label = "step",
                                            .y_label = "scale",
                                            .y_log = true,
                                            .series = &scale,
                                            .series_count = 1});
}

static void add_page_table(ht_report *report, const numerics *n)
{
    enum { COLUMNS = SHARE_COLUMNS + 1 };
    static share_cells numbers[SHOWN_ON_PAGE];
    const char *cells[SHOWN_ON_PAGE * COLUMNS], *heads[COLUMNS] = {"value"};
    size_t rows = count_losers(n, SHOWN_ON_PAGE);
    if (rows == 0) {
        ht_report_paragraph(report, "No value lost anything.");
        return;
    }
    for (int i = 0; i < SHARE_COLUMNS; i++) heads[i + 1] = share_heads[i];
    for (size_t row = 0; row < rows; row++) {
        fill_cells(numbers[row], &n->tensor[row].sums);
        cells[row * COLUMNS] = n->tensor[row].label;
        for (int i = 0; i < SHARE_COLUMNS; i++) cells[row * COLUMNS + (size_t)i + 1] = numbers[row][i];
    }
    ht_report_table(report, &(ht_page_table){.title = "By value, those that lose most first",
                                             .columns = COLUMNS,
                                             .rows = rows,
                                             .heads = heads,
                                             .cells = cells});
}

static void add_charts(ht_report *report, const numerics *n)
{
    ht_report_paragraph(report, "How large gradients are, and what f16 would make of them: from 2^-25 downwards they "
                                "become zero, below 2^-14 they lose digits, above 65504 they are infinite. A loss "
                                "scale moves all of them to the right.");
    for (int r = 0; r < ROLES; r++)
        for (int v = 0; v < (n->scaled ? VIEWS : 1); v++) add_bars(report, n, r, v);
    add_curves(report, n);
    add_page_table(report, n);
}

/* Heap memory for free_all, after a failure, too. */
static ht_status read_folder(numerics **out, ht_context *ctx, const char *folder)
{
    ht_text path = {0};
    numerics *n = *out = calloc(1, sizeof *n);
    if (!n) HT_FAIL(ctx, HT_ENOMEM, "out of memory for numerics");
    n->ctx = ctx;
    ht_text_add(&path, "%s/numerics.jsonl", folder);
    ht_status status = path.failed ? ht_fail(ctx, HT_ENOMEM, "out of memory for numerics") : read_lines(n, path.data);
    if (status == HT_OK && n->tensors) qsort(n->tensor, n->tensors, sizeof *n->tensor, by_loss);
    ht_text_free(&path);
    return status;
}

static void free_all(numerics *n)
{
    if (n) free_numerics(n);
    free(n);
}

ht_status cli_numerics_add(ht_text *text, ht_report *report, ht_context *ctx, const char *folder)
{
    numerics *n;
    ht_status status = read_folder(&n, ctx, folder);
    if (status == HT_OK) add_charts(report, n);
    if (status == HT_OK) add_table(text, n);
    free_all(n);
    return status;
}

ht_status cli_numerics_zero_share(double *share, ht_context *ctx, const char *folder)
{
    numerics *n;
    ht_status status = read_folder(&n, ctx, folder);
    const share_sums *s = status == HT_OK ? &n->sums[ACTIVATIONS][SCALED] : NULL;
    *share = s && s->elements > 0 ? (s->zero + s->flushed) / s->elements : 0;
    free_all(n);
    return status;
}

ht_status cli_numerics_page(ht_text *text, ht_context *ctx, const char *folder)
{
    ht_report *report;
    ht_text path = {0}, title = {0};
    ht_text_add(&path, "%s/numerics.html", folder);
    ht_text_add(&title, "Gradients of %s", folder);
    ht_status status = path.failed || title.failed ? ht_fail(ctx, HT_ENOMEM, "out of memory for a page")
                                                   : ht_report_create(&report, ctx, title.data);
    if (status == HT_OK) {
        status = cli_numerics_add(text, report, ctx, folder);
        if (status == HT_OK) status = ht_report_write(report, path.data);
        ht_report_free(report);
    }
    ht_text_free(&path);
    ht_text_free(&title);
    return status;
}
