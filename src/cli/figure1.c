/* Figure 1 of "Mixed Precision Training" for a layer of the user's model: what its blocks read and make, and in which
 * number type. */
#include "cli/explain_view.h"

#include <stdio.h>
#include <string.h>

enum { TYPE = 24, WIDTH = 360, HEIGHT = 396, BLOCK_WIDTH = 112, BLOCK_HEIGHT = 34, VALUE_HEIGHT = 26 };
enum { BLOCK_LEFT = 134, BLOCK_RIGHT = BLOCK_LEFT + BLOCK_WIDTH, CENTRE = BLOCK_LEFT + BLOCK_WIDTH / 2 };
enum { ROW_COPY = 24, ROW_FWD = 104, ROW_BWD_ACT = 184, ROW_BWD_WEIGHT = 264, ROW_UPDATE = 344, ABOVE = 5, BELOW = 13 };
enum { BUS = 300, BRANCH_X = 35, BRANCH_DY = 340, RETURN = 8, APART = 8 };

typedef enum block_side { READS, MAKES } block_side;

typedef struct figure1 {
    cli_layer_blocks layer;
    char types[HT_FIGURE_COUNT][2][TYPE]; /* by block: reads, makes */
    char weights[TYPE];                   /* what FWD and BWD-Actv read */
    char gradient[TYPE + 8];              /* "dw: f32" */
    char note[256];
    ht_diagram_box boxes[11];
    ht_diagram_arrow arrows[16];
    ht_diagram diagram;
} figure1;

static bool is_half(const char *types)
{
    return strstr(types, "f16") != NULL; /* bf16, too */
}

static void add_block(figure1 *f, ht_figure_block block, double y)
{
    bool there = f->layer.block[block] != NULL;
    f->boxes[f->diagram.box_count++] = (ht_diagram_box){.kind = there ? HT_BOX_STEP : HT_BOX_ABSENT,
                                                        .x = BLOCK_LEFT,
                                                        .y = y - BLOCK_HEIGHT / 2.,
                                                        .width = BLOCK_WIDTH,
                                                        .height = BLOCK_HEIGHT,
                                                        .text = there                           ? ht_figure_names[block]
                                                                : block == HT_FIGURE_FLOAT2HALF ? "no half copy"
                                                                                                : "none"};
}

static void add_value(figure1 *f, const char *text, double from, double to, double y)
{
    f->boxes[f->diagram.box_count++] = (ht_diagram_box){.kind = HT_BOX_VALUE,
                                                        .x = from,
                                                        .y = y - VALUE_HEIGHT / 2.,
                                                        .width = to - from,
                                                        .height = VALUE_HEIGHT,
                                                        .text = text};
}

/* An arrow through `count` points, its label at one place; none where there is no type. */
static void add_arrow(figure1 *f, const char *type, double label_x, double label_y, size_t count,
                      const double points[][2])
{
    if (!type[0]) return;
    ht_diagram_arrow *a = &f->arrows[f->diagram.arrow_count++];
    *a = (ht_diagram_arrow){
        .count = count, .label = type, .label_x = label_x, .label_y = label_y, .strong = is_half(type)};
    memcpy(a->points, points, count * sizeof *points);
}

#define POINTS(...)                                                                                                    \
    (sizeof((double[][2]){__VA_ARGS__}) / sizeof(double[2])), (const double[][2])                                      \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

/* Masters, the copy, and what reads it. */
static void add_weights(figure1 *f)
{
    const char *master = f->types[HT_FIGURE_UPDATE][MAKES];
    double first = ROW_FWD - APART, second = ROW_BWD_ACT - APART, low = ROW_COPY + VALUE_HEIGHT / 2.;
    add_value(f, f->layer.block[HT_FIGURE_FLOAT2HALF] ? "master w" : "w", 2, 74, ROW_COPY);
    add_block(f, HT_FIGURE_FLOAT2HALF, ROW_COPY);
    add_value(f, f->layer.block[HT_FIGURE_FLOAT2HALF] ? "w.half" : "w", 286, 346, ROW_COPY);
    add_arrow(f, master, 104, ROW_COPY - ABOVE, POINTS({74, ROW_COPY}, {BLOCK_LEFT, ROW_COPY}));
    add_arrow(f, f->weights, 266, ROW_COPY - ABOVE, POINTS({BLOCK_RIGHT, ROW_COPY}, {286, ROW_COPY}));
    add_arrow(f, f->layer.block[HT_FIGURE_FWD] ? f->weights : "", 273, first - ABOVE,
              POINTS({BUS, low}, {BUS, first}, {BLOCK_RIGHT, first}));
    add_arrow(f, f->layer.block[HT_FIGURE_BWD_ACT] ? f->weights : "", 273, second - ABOVE,
              POINTS({BUS, first}, {BUS, second}, {BLOCK_RIGHT, second}));
}

static void add_activations(figure1 *f)
{
    double out = ROW_FWD + APART, in = ROW_BWD_ACT + APART;
    const char *const *names = (const char *const[]){"x", "y", "dx", "dy"};
    add_value(f, names[0], 20, 50, ROW_FWD);
    add_block(f, HT_FIGURE_FWD, ROW_FWD);
    add_value(f, names[1], 326, 356, out);
    add_arrow(f, f->types[HT_FIGURE_FWD][READS], 98, ROW_FWD - ABOVE, POINTS({50, ROW_FWD}, {BLOCK_LEFT, ROW_FWD}));
    add_arrow(f, f->types[HT_FIGURE_FWD][MAKES], 273, out + BELOW, POINTS({BLOCK_RIGHT, out}, {326, out}));
    add_block(f, HT_FIGURE_BWD_ACT, ROW_BWD_ACT);
    if (f->layer.block[HT_FIGURE_BWD_ACT]) add_value(f, names[2], 58, 88, ROW_BWD_ACT);
    add_value(f, names[3], 326, 356, in);
    add_arrow(f, f->types[HT_FIGURE_BWD_ACT][READS], 273, in + BELOW, POINTS({326, in}, {BLOCK_RIGHT, in}));
    add_arrow(f, f->types[HT_FIGURE_BWD_ACT][MAKES], 111, ROW_BWD_ACT - ABOVE,
              POINTS({BLOCK_LEFT, ROW_BWD_ACT}, {88, ROW_BWD_ACT}));
}

static void add_update(figure1 *f)
{
    const char *reads = f->types[HT_FIGURE_BWD_WEIGHT][READS];
    double x_low = ROW_FWD + VALUE_HEIGHT / 2., dy_low = ROW_BWD_ACT + APART + VALUE_HEIGHT / 2.;
    add_block(f, HT_FIGURE_BWD_WEIGHT, ROW_BWD_WEIGHT);
    add_arrow(f, reads, 98, ROW_BWD_WEIGHT - ABOVE,
              POINTS({BRANCH_X, x_low}, {BRANCH_X, ROW_BWD_WEIGHT}, {BLOCK_LEFT, ROW_BWD_WEIGHT}));
    add_arrow(f, reads, 286, ROW_BWD_WEIGHT - ABOVE,
              POINTS({BRANCH_DY, dy_low}, {BRANCH_DY, ROW_BWD_WEIGHT}, {BLOCK_RIGHT, ROW_BWD_WEIGHT}));
    add_block(f, HT_FIGURE_UPDATE, ROW_UPDATE);
    add_arrow(f, f->gradient, CENTRE + 30, (ROW_BWD_WEIGHT + ROW_UPDATE) / 2. + 3,
              POINTS({CENTRE, ROW_BWD_WEIGHT + BLOCK_HEIGHT / 2.}, {CENTRE, ROW_UPDATE - BLOCK_HEIGHT / 2.}));
    add_arrow(f, f->types[HT_FIGURE_UPDATE][MAKES], 70, ROW_UPDATE - ABOVE,
              POINTS({BLOCK_LEFT, ROW_UPDATE}, {RETURN, ROW_UPDATE}, {RETURN, ROW_COPY + VALUE_HEIGHT / 2.}));
}

static ht_status make_figure(figure1 *f, const cli_explained *e, const char *layer)
{
    *f = (figure1){.note = ""};
    HT_TRY(cli_explain_layer(&f->layer, e, layer));
    for (int b = 0; b < HT_FIGURE_COUNT; b++)
        for (int side = READS; side <= MAKES; side++)
            cli_block_types(f->types[b][side], TYPE, f->layer.block[b], side == MAKES);
    snprintf(f->weights, TYPE, "%s",
             f->types[f->layer.block[HT_FIGURE_FLOAT2HALF] ? HT_FIGURE_FLOAT2HALF : HT_FIGURE_UPDATE][MAKES]);
    const char *gradient = f->types[HT_FIGURE_BWD_WEIGHT][MAKES];
    snprintf(f->gradient, sizeof f->gradient, gradient[0] ? "dw: %s" : "%s", gradient);
    snprintf(f->note, sizeof f->note, "%.40s, %s", f->layer.layer, e->plan->precision);
    f->diagram = (ht_diagram){.title = "Figure 1 of the paper, for a layer of this model",
                              .width = WIDTH,
                              .height = HEIGHT,
                              .boxes = f->boxes,
                              .arrows = f->arrows,
                              .note = f->note};
    add_weights(f);
    add_activations(f);
    add_update(f);
    return HT_OK;
}

ht_status cli_figure1_report(ht_report *report, const cli_explained *e, const char *layer)
{
    figure1 f;
    HT_TRY(make_figure(&f, e, layer));
    ht_report_diagram(report, &f.diagram);
    ht_report_paragraph(
        report, "x and y are what the layer reads and makes, dx and dy the gradients of the loss by them, dw that by "
                "the weights w.");
    if (is_half(f.types[HT_FIGURE_FWD][READS]) && !is_half(f.gradient))
        ht_report_paragraph(
            report, "Where this differs from the paper: there weight gradients (dw) are f16, here they are f32. The "
                    "product that makes them adds up in f32 anyway, and gradients of several micro-batches are added, "
                    "which f16 would round each time.");
    return HT_OK;
}

ht_status cli_figure1_svg(ht_text *text, const cli_explained *e, const char *layer)
{
    figure1 f;
    HT_TRY(make_figure(&f, e, layer));
    ht_diagram_svg(text, &f.diagram);
    return HT_OK;
}
