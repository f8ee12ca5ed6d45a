/* ResNet-18, -34 and -50 (He et al. 2015), in torchvision's names; the stride of a bottleneck is on its 3×3
 * convolution, as there. The stem for small images is one 3×3 convolution without pooling. */
#include <stdio.h>
#include <string.h>

#include "model/layers.h"

static const ht_key resnet_keys[] = {
    {"depth", HT_KEY_INT, "18", 18, 50, NULL, "layers: 18, 34 or 50"},
    {"stem", HT_KEY_CHOICE, "\"imagenet\"", 0, 0, "imagenet|cifar", "7×7 with pooling for large images, 3×3 for small"},
    {"width", HT_KEY_INT, "64", 1, 4096, NULL, "channels of the first stage; each next one doubles them"},
    {"zero_init_residual", HT_KEY_BOOL, "false", 0, 0, NULL, "start every block as the identity"},
    {0},
};

typedef struct shape {
    int64_t depth;
    bool bottleneck;
    int blocks[4];
} shape;

static const shape shapes[] = {
    {18, false, {2, 2, 2, 2}},
    {34, false, {3, 4, 6, 3}},
    {50, true, {3, 4, 6, 3}},
};

static ht_val conv_norm(ht_build *b, const char *conv, const char *norm, ht_val x, ht_conv_spec spec, double start)
{
    return ht_layer_batchnorm(b, norm, ht_layer_conv(b, conv, x, spec), start);
}

/* The shortcut of a block: x, or a 1×1 convolution of x where shapes change. Sizes are the architecture's: the job may give
 * its layers other widths. */
static ht_val shortcut(ht_build *b, ht_val x, int64_t in, int64_t out, int64_t stride)
{
    if (!x.id || (stride == 1 && in == out)) return x;
    ht_enter(b, "downsample");
    ht_val y = conv_norm(b, "0", "1", x, (ht_conv_spec){.out = out, .kernel = 1, .stride = stride}, 1);
    ht_leave(b);
    return y;
}

static ht_val block(ht_build *b, const shape *s, ht_val x, int64_t in, int64_t width, int64_t stride)
{
    double last = ht_field_bool(b->f, "zero_init_residual") ? 0 : 1;
    int64_t out = s->bottleneck ? 4 * width : width;
    ht_conv_spec full = {.out = width, .kernel = 3, .stride = stride, .padding = 1};
    ht_val y;
    if (s->bottleneck) {
        y = ht_relu(b->g, conv_norm(b, "conv1", "bn1", x, (ht_conv_spec){.out = width, .kernel = 1}, 1));
        y = ht_relu(b->g, conv_norm(b, "conv2", "bn2", y, full, 1));
        y = conv_norm(b, "conv3", "bn3", y, (ht_conv_spec){.out = out, .kernel = 1}, last);
    } else {
        y = ht_relu(b->g, conv_norm(b, "conv1", "bn1", x, full, 1));
        y = conv_norm(b, "conv2", "bn2", y, (ht_conv_spec){.out = width, .kernel = 3, .padding = 1}, last);
    }
    return ht_relu(b->g, ht_add(b->g, y, shortcut(b, x, in, out, stride)));
}

static ht_val stem(ht_build *b, int64_t width)
{
    ht_val x = ht_layer_image(b);
    if (strcmp(ht_field_text(b->f, "stem"), "cifar") == 0)
        return ht_relu(b->g,
                       conv_norm(b, "conv1", "bn1", x, (ht_conv_spec){.out = width, .kernel = 3, .padding = 1}, 1));
    ht_conv_spec large = {.out = width, .kernel = 7, .stride = 2, .padding = 3};
    ht_pool_opts pool = {.size = sizeof pool, .window = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
    return ht_max_pool2d(b->g, ht_relu(b->g, conv_norm(b, "conv1", "bn1", x, large, 1)), &pool);
}

static ht_val resnet_logits(ht_build *b)
{
    const shape *s = NULL;
    int64_t depth = ht_field_int(b->f, "depth");
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
        if (shapes[i].depth == depth) s = &shapes[i];
    if (!s) {
        ht_model_fail(b, "depth is 18, 34 or 50, not %lld", (long long)depth);
        return HT_NONE;
    }
    int64_t width = ht_field_int(b->f, "width"), in = width;
    ht_val x = stem(b, width);
    for (int stage = 0; stage < 4; stage++) {
        ht_enter(b, "layer%d", stage + 1);
        for (int i = 0; i < s->blocks[stage]; i++) {
            ht_enter(b, "%d", i);
            x = block(b, s, x, in, width << stage, stage > 0 && i == 0 ? 2 : 1);
            in = (s->bottleneck ? 4 : 1) * (width << stage);
            ht_leave(b);
        }
        ht_leave(b);
    }
    return ht_layer_linear(b, "fc", ht_global_avg_pool2d(b->g, x), ht_task_width(b->r), NULL);
}

const ht_model ht_model_resnet = {
    .name = "resnet",
    .help = "ResNet-18, -34 and -50 for images",
    .keys = resnet_keys,
    .tasks = 1u << HT_TASK_CLASS | 1u << HT_TASK_REGRESSION,
    .logits = resnet_logits,
};
