/* LeNet-5 (LeCun et al. 1998) with ReLU and max pooling, or tanh and average as in the paper: two convolutions of 5×5,
 * three linear layers. 61,706 parameters for 28×28 images of ten classes. */
#include <string.h>

#include "model/layers.h"

static const ht_key lenet_keys[] = {
    {"activation", HT_KEY_CHOICE, "\"relu\"", 0, 0, HT_ACTIVATIONS, "after convolutions and hidden layers"},
    {"pool", HT_KEY_CHOICE, "\"max\"", 0, 0, "max|average", "how 2×2 windows become one"},
    {"dropout", HT_KEY_NUMBER, "0", 0, 0.99, NULL, "after the hidden linear layers, while training"},
    {0},
};

static ht_val pool(ht_build *b, ht_val x)
{
    ht_pool_opts opts = {.size = sizeof opts, .window = {2, 2}};
    bool max = strcmp(ht_field_text(b->f, "pool"), "max") == 0;
    return max ? ht_max_pool2d(b->g, x, &opts) : ht_avg_pool2d(b->g, x, &opts);
}

static ht_val lenet_logits(ht_build *b)
{
    const char *activation = ht_field_text(b->f, "activation");
    double dropout = ht_field_number(b->f, "dropout");
    ht_val x = ht_layer_image(b);
    if (!x.id) return HT_NONE;
    /* The paper puts its 28×28 digits into 32×32 fields. */
    int64_t padding = ht_val_dims(b->g, x)[2] < 32 ? 2 : 0;
    x = ht_layer_conv(b, "conv1", x, (ht_conv_spec){.out = 6, .kernel = 5, .padding = padding, .bias = true});
    x = pool(b, ht_layer_activation(b, activation, x));
    x = ht_layer_conv(b, "conv2", x, (ht_conv_spec){.out = 16, .kernel = 5, .bias = true});
    x = ht_layer_flatten(b, pool(b, ht_layer_activation(b, activation, x)));
    x = ht_layer_activation(b, activation, ht_layer_linear(b, "fc1", x, 120, NULL));
    x = ht_layer_dropout(b, "dropout1", x, dropout);
    x = ht_layer_activation(b, activation, ht_layer_linear(b, "fc2", x, 84, NULL));
    x = ht_layer_dropout(b, "dropout2", x, dropout);
    return ht_layer_linear(b, "fc3", x, ht_task_width(b->r), NULL);
}

const ht_model ht_model_lenet = {
    .name = "lenet",
    .help = "LeNet-5 for small images",
    .keys = lenet_keys,
    .tasks = 1u << HT_TASK_CLASS,
    .logits = lenet_logits,
};
