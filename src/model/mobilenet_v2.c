/* MobileNetV2 (Sandler et al. 2018) in torchvision's names: inverted residual blocks, which expand, apply a depthwise
 * convolution, and project without an activation. */
#include <stdio.h>
#include <string.h>

#include "model/layers.h"

static const ht_key mobilenet_keys[] = {
    {"width_mult", HT_KEY_NUMBER, "1", 0.05, 8, NULL, "factor on all channels"},
    {"stem", HT_KEY_CHOICE, "\"imagenet\"", 0, 0, "imagenet|cifar", "for small images the first strides are 1"},
    {"dropout", HT_KEY_NUMBER, "0.2", 0, 0.99, NULL, "before the head, while training"},
    {0},
};

/* Table 2 of the paper: expansion, channels, repeats, stride. */
static const struct {
    int expansion, channels, repeats, stride;
} stages[] = {
    {1, 16, 1, 1}, {6, 24, 2, 2}, {6, 32, 3, 2}, {6, 64, 4, 2}, {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1},
};

/* The nearest multiple of 8 that loses no more than a tenth. */
static int64_t channels(double wanted)
{
    int64_t near = (int64_t)(wanted + 4) / 8 * 8;
    if (near < 8) near = 8;
    return (double)near < 0.9 * wanted ? near + 8 : near;
}

static ht_val conv_norm(ht_build *b, ht_val x, ht_conv_spec spec, bool activate)
{
    ht_val y = ht_layer_batchnorm(b, "1", ht_layer_conv(b, "0", x, spec), 1);
    return activate ? ht_clip(b->g, y, 0, 6) : y;
}

static ht_val named_conv_norm(ht_build *b, int index, ht_val x, ht_conv_spec spec)
{
    ht_enter(b, "%d", index);
    ht_val y = conv_norm(b, x, spec, true);
    ht_leave(b);
    return y;
}

/* in, out: the architecture's channels; the job may give layers other widths. */
static ht_val block(ht_build *b, ht_val x, int expansion, int64_t in, int64_t out, int64_t stride)
{
    if (!x.id) return HT_NONE;
    int64_t inner = in * expansion;
    int at = 0;
    char name[2][16];
    ht_val y = x;
    ht_enter(b, "conv");
    if (expansion > 1) y = named_conv_norm(b, at++, y, (ht_conv_spec){.out = inner, .kernel = 1});
    ht_conv_spec each = {.out = inner, .kernel = 3, .stride = stride, .padding = 1, .groups = inner};
    y = named_conv_norm(b, at++, y, each);
    snprintf(name[0], sizeof name[0], "%d", at);
    snprintf(name[1], sizeof name[1], "%d", at + 1);
    y = ht_layer_batchnorm(b, name[1], ht_layer_conv(b, name[0], y, (ht_conv_spec){.out = out, .kernel = 1}), 1);
    ht_leave(b);
    return stride == 1 && in == out ? ht_add(b->g, x, y) : y;
}

static ht_val mobilenet_logits(ht_build *b)
{
    double width = ht_field_number(b->f, "width_mult");
    bool small = strcmp(ht_field_text(b->f, "stem"), "cifar") == 0;
    int index = 0;
    ht_enter(b, "features");
    ht_conv_spec first = {.out = channels(32 * width), .kernel = 3, .stride = small ? 1 : 2, .padding = 1};
    ht_val x = named_conv_norm(b, index++, ht_layer_image(b), first);
    int64_t in = first.out;
    for (size_t s = 0; s < sizeof stages / sizeof stages[0]; s++)
        for (int i = 0; i < stages[s].repeats; i++) {
            int64_t stride = i > 0 || (small && s == 1) ? 1 : stages[s].stride;
            ht_enter(b, "%d", index++);
            int64_t out = channels(stages[s].channels * width);
            x = block(b, x, stages[s].expansion, in, out, stride);
            in = out;
            ht_leave(b);
        }
    x = named_conv_norm(b, index, x, (ht_conv_spec){.out = channels(1280 * (width > 1 ? width : 1)), .kernel = 1});
    ht_leave(b);
    x = ht_layer_dropout(b, "classifier.0", ht_global_avg_pool2d(b->g, x), ht_field_number(b->f, "dropout"));
    ht_linear_spec spec = {.given = true, .weight = HT_NORMAL(0, 0.01), .bias = HT_ZERO};
    return ht_layer_linear(b, "classifier.1", x, ht_task_width(b->r), &spec);
}

const ht_model ht_model_mobilenet_v2 = {
    .name = "mobilenet_v2",
    .help = "MobileNetV2 for images on small machines",
    .keys = mobilenet_keys,
    .tasks = 1u << HT_TASK_CLASS | 1u << HT_TASK_REGRESSION,
    .logits = mobilenet_logits,
};
