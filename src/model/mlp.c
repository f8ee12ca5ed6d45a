/* A multi-layer perceptron: items flattened, hidden layers with an activation, a linear head. */
#include "model/layers.h"

#include <stdio.h>

static const ht_key mlp_keys[] = {
    {"hidden", HT_KEY_INTS, "[128]", 1, 1 << 20, NULL, "sizes of the hidden layers; [] for a linear model"},
    {"activation", HT_KEY_CHOICE, "\"relu\"", 0, 0, HT_ACTIVATIONS, "between layers"},
    {"dropout", HT_KEY_NUMBER, "0", 0, 0.99, NULL, "after each hidden layer, while training"},
    {0},
};

static ht_val mlp_logits(ht_build *b)
{
    ht_val x = b->r->feature_rank == 1 ? b->x : ht_layer_flatten(b, b->x);
    size_t hidden = ht_field_count(b->f, "hidden");
    ht_enter(b, "layers");
    for (size_t i = 0; i <= hidden; i++) {
        char name[32];
        snprintf(name, sizeof name, "%zu", i);
        if (i == hidden) {
            x = ht_layer_linear(b, name, x, ht_task_width(b->r), NULL);
            break;
        }
        x = ht_layer_linear(b, name, x, ht_field_int_at(b->f, "hidden", i), NULL);
        x = ht_layer_activation(b, ht_field_text(b->f, "activation"), x);
        x = ht_layer_dropout(b, name, x, ht_field_number(b->f, "dropout"));
    }
    ht_leave(b);
    return x;
}

const ht_model ht_model_mlp = {
    .name = "mlp",
    .help = "multi-layer perceptron for tables and small images",
    .keys = mlp_keys,
    .tasks = 1u << HT_TASK_CLASS | 1u << HT_TASK_REGRESSION,
    .logits = mlp_logits,
};
