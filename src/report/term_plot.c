#include "report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MOST_CELLS = 200, DOTS_ACROSS = 2, DOTS_DOWN = 4 };

typedef struct canvas {
    int columns, rows;                     /* cells */
    int across, down;                      /* dots in a cell */
    double low, high;                      /* logarithms */
    uint8_t cells[MOST_CELLS][MOST_CELLS]; /* bits of Braille's dots, or of what stands in a cell of ASCII */
} canvas;

enum { ASCII_LEVEL = 1, ASCII_CURVE = 2 };

bool ht_terminal_unicode(void)
{
    static const char *const names[] = {"LC_ALL", "LC_CTYPE", "LANG"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (!value || !*value) continue;
        const char *code = strchr(value, '.');
        return code && (strncasecmp(code, ".utf-8", 6) == 0 || strncasecmp(code, ".utf8", 5) == 0);
    }
    return false;
}

/* x and y count dots from the upper left. */
static void set_dot(canvas *c, int x, int y, bool level)
{
    /* Dots of a Braille cell by row and column, as Unicode numbers their bits. */
    static const uint8_t bits[DOTS_DOWN][DOTS_ACROSS] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    uint8_t *cell = &c->cells[y / c->down][x / c->across];
    if (c->down == 1)
        *cell |= level ? ASCII_LEVEL : ASCII_CURVE;
    else
        *cell |= bits[y % DOTS_DOWN][x % DOTS_ACROSS];
}

static int row_of(const canvas *c, double value)
{
    int last = c->rows * c->down - 1;
    int row = (int)lround((c->high - log(value)) / (c->high - c->low) * last);
    return row < 0 ? 0 : row > last ? last : row;
}

static bool usable(double y)
{
    return isfinite(y) && y > 0;
}

/* The mean of the values that fall on a column of dots; NAN when there is none. */
static double mean_at(const ht_term_plot *plot, int x, int width)
{
    size_t from = plot->count * (size_t)x / (size_t)width, to = plot->count * (size_t)(x + 1) / (size_t)width;
    double sum = 0;
    int used = 0;
    if (to == from) to = from + 1;
    for (size_t i = from; i < to && i < plot->count; i++)
        if (usable(plot->y[i])) sum += plot->y[i], used++;
    return used ? sum / used : NAN;
}

static bool measure(canvas *c, const ht_term_plot *plot, int width)
{
    c->low = INFINITY;
    c->high = -INFINITY;
    for (int x = 0; x < width; x++) {
        double y = mean_at(plot, x, width);
        if (!usable(y)) continue;
        c->low = fmin(c->low, log(y));
        c->high = fmax(c->high, log(y));
    }
    if (!(c->low <= c->high)) return false;
    if (usable(plot->level)) c->low = fmin(c->low, log(plot->level)), c->high = fmax(c->high, log(plot->level));
    if (c->low == c->high) c->low -= 0.5, c->high += 0.5;
    return true;
}

static void draw(canvas *c, const ht_term_plot *plot, int width)
{
    int before = -1;
    for (int x = 0; usable(plot->level) && x < width; x += c->down == 1 ? 2 : 3)
        set_dot(c, x, row_of(c, plot->level), true);
    for (int x = 0; x < width; x++) {
        double y = mean_at(plot, x, width);
        if (!usable(y)) {
            before = -1;
            continue;
        }
        int row = row_of(c, y), from = before < 0 ? row : before;
        /* A steep part is a line, not a few points. */
        for (int r = row; r != from; r += from > row ? 1 : -1) set_dot(c, x, r, false);
        set_dot(c, x, row, false);
        before = row;
    }
}

static void add_cell(ht_text *text, const canvas *c, uint8_t bits)
{
    if (c->down == 1) {
        ht_text_add(text, "%c", bits & ASCII_CURVE ? '*' : bits & ASCII_LEVEL ? '.' : ' ');
        return;
    }
    if (bits == 0)
        ht_text_add(text, " ");
    else /* U+2800 and the bits, as UTF-8 */
        ht_text_add(text, "\xe2%c%c", (char)(0xa0 | bits >> 6), (char)(0x80 | (bits & 0x3f)));
}

void ht_term_plot_add(ht_text *text, const ht_term_plot *plot)
{
    canvas *c = calloc(1, sizeof *c);
    if (!c) {
        text->failed = true;
        return;
    }
    c->columns = plot->columns < 2 ? 2 : plot->columns > MOST_CELLS ? MOST_CELLS : plot->columns;
    c->rows = plot->rows < 2 ? 2 : plot->rows > MOST_CELLS ? MOST_CELLS : plot->rows;
    c->across = plot->unicode ? DOTS_ACROSS : 1;
    c->down = plot->unicode ? DOTS_DOWN : 1;
    int width = c->columns * c->across;
    if (plot->count == 0 || !measure(c, plot, width)) {
        ht_text_add(text, "(nothing to draw)\n");
        free(c);
        return;
    }
    draw(c, plot, width);
    const char *bar = plot->unicode ? "\u2502" : "|";
    for (int row = 0; row < c->rows; row++) {
        bool marked = row == 0 || row == c->rows / 2 || row == c->rows - 1;
        double value = exp(c->high - (c->high - c->low) * row / (c->rows - 1));
        if (marked)
            ht_text_add(text, "%8.3g %s", value, bar);
        else
            ht_text_add(text, "%8s %s", "", bar);
        for (int column = 0; column < c->columns; column++) add_cell(text, c, c->cells[row][column]);
        while (text->length > 0 && text->data && text->data[text->length - 1] == ' ') text->data[--text->length] = '\0';
        ht_text_add(text, "\n");
    }
    ht_text_add(text, "%8s  1%*" PRId64 "\n", "", c->columns - 1, plot->last > 0 ? plot->last : (int64_t)plot->count);
    free(c);
}
