/* Coupling: which places of a model's tensors make a unit, for every architecture. */
#include "compress/coupling.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "model_fixture.h"

typedef struct coupling_case {
    model_fixture model;
    ht_coupling coupling;
} coupling_case;

static void start(coupling_case *c, const char *type, const char *json, ht_model_request request)
{
    model_must(&c->model, model_graph(&c->model, type, json, request, 1));
    model_must(&c->model, ht_coupling_derive(&c->coupling, c->model.ctx, c->model.arena, c->model.g));
}

static const ht_coupled_tensor *tensor(const coupling_case *c, const char *name)
{
    for (size_t i = 0; i < c->coupling.count; i++)
        if (strcmp(c->coupling.tensors[i].name, name) == 0) return &c->coupling.tensors[i];
    fail_msg("there is no %s", name);
    return NULL;
}

static int32_t unit(const coupling_case *c, const char *name, int axis, int64_t place)
{
    const ht_coupled_tensor *t = tensor(c, name);
    assert_true(axis < t->rank && place < t->dim[axis]);
    return t->axes[axis].unit[place];
}

/* Every place of the one is a unit, and that of the other. */
static void expect_same(const coupling_case *c, const char *a, int axis_a, const char *b, int axis_b)
{
    const ht_coupled_tensor *t = tensor(c, a);
    assert_int_equal(t->dim[axis_a], tensor(c, b)->dim[axis_b]);
    for (int64_t i = 0; i < t->dim[axis_a]; i++) {
        if (unit(c, a, axis_a, i) == 0) fail_msg("%s: place %d of axis %d cannot go", a, (int)i, axis_a);
        if (unit(c, a, axis_a, i) != unit(c, b, axis_b, i)) fail_msg("%s and %s part at %d", a, b, (int)i);
        for (int64_t k = 0; k < i; k++) assert_int_not_equal(unit(c, a, axis_a, i), unit(c, a, axis_a, k));
    }
}

static void expect_fixed(const coupling_case *c, const char *name, int axis)
{
    for (int64_t i = 0; i < tensor(c, name)->dim[axis]; i++)
        if (unit(c, name, axis, i) != 0) fail_msg("%s: place %d of axis %d is a unit", name, (int)i, axis);
}

static const ht_model_request images = {
    .task = HT_TASK_CLASS, .batch = 2, .classes = 10, .feature_rank = 3, .feature = {3, 28, 28}};
static const ht_model_request text = {.task = HT_TASK_LM, .batch = 2, .length = 6, .vocabulary = 11};

static void channels__go_with_norms_and_all_branches_of_a_residual_sum(void **state)
{
    coupling_case c;
    (void)state;
    start(&c, "resnet", "{\"width\": 4, \"stem\": \"cifar\"}", images);
    expect_same(&c, "layer1.0.conv1.weight", 0, "layer1.0.bn1.running_var", 0);
    expect_same(&c, "layer1.0.conv1.weight", 0, "layer1.0.conv2.weight", 1);
    expect_same(&c, "conv1.weight", 0, "bn1.bias", 0);
    expect_same(&c, "conv1.weight", 0, "layer1.0.conv1.weight", 1);
    expect_same(&c, "conv1.weight", 0, "layer1.1.conv2.weight", 0);
    expect_same(&c, "conv1.weight", 0, "layer2.0.downsample.0.weight", 1);
    expect_same(&c, "layer2.0.conv2.weight", 0, "layer2.0.downsample.0.weight", 0);
    expect_same(&c, "layer4.1.conv2.weight", 0, "fc.weight", 1);
    expect_fixed(&c, "conv1.weight", 1);
    expect_fixed(&c, "conv1.weight", 2);
    expect_fixed(&c, "fc.weight", 0);
    assert_int_equal(c.coupling.kind[unit(&c, "conv1.weight", 0, 0)], HT_UNIT_CHANNELS);
    /* Four streams of 4 to 32 channels, and the inside of two blocks of each. */
    assert_int_equal(c.coupling.units, 3 * (4 + 8 + 16 + 32));
    int32_t first = c.coupling.layer[unit(&c, "conv1.weight", 0, 0)];
    assert_int_equal(c.coupling.layer[unit(&c, "conv1.weight", 0, 3)], first);
    assert_int_not_equal(c.coupling.layer[unit(&c, "layer1.0.conv1.weight", 0, 0)], first);
    assert_true(tensor(&c, "layer1.0.conv1.weight")->axes[1].consumed);
    assert_false(tensor(&c, "layer1.0.conv1.weight")->axes[0].consumed);
    model_stop(&c.model);
}

static void channels__go_through_depthwise_convolutions(void **state)
{
    coupling_case c;
    (void)state;
    start(&c, "mobilenet_v2", "{\"width_mult\": 0.25, \"stem\": \"cifar\"}", images);
    expect_same(&c, "features.2.conv.0.0.weight", 0, "features.2.conv.1.0.weight", 0);
    expect_same(&c, "features.2.conv.0.0.weight", 0, "features.2.conv.2.weight", 1);
    expect_same(&c, "features.2.conv.0.0.weight", 0, "features.2.conv.1.1.running_mean", 0);
    expect_same(&c, "features.2.conv.2.weight", 0, "features.3.conv.0.0.weight", 1);
    expect_fixed(&c, "features.2.conv.1.0.weight", 1);
    model_stop(&c.model);
}

static void groups__of_a_convolution_go_as_a_whole(void **state)
{
    coupling_case c;
    (void)state;
    start(&c, "sequential",
          "{\"layers\": [{\"type\": \"conv2d\", \"out\": 8}, \"relu\", {\"type\": \"conv2d\", \"out\": 12, \"groups\": "
          "4}, "
          "\"flatten\", {\"type\": \"linear\"}]}",
          images);
    for (int64_t i = 0; i < 8; i++) assert_int_equal(unit(&c, "0.weight", 0, i), unit(&c, "2.weight", 0, i / 2 * 3));
    for (int64_t i = 0; i < 12; i++)
        assert_int_equal(unit(&c, "2.weight", 0, i), unit(&c, "4.weight", 1, i * 24 * 24 + 5));
    assert_int_not_equal(unit(&c, "2.weight", 0, 2), unit(&c, "2.weight", 0, 3));
    assert_int_equal(c.coupling.units, 4);
    model_stop(&c.model);
}

static void channels__go_through_pooling_into_a_linear_layer(void **state)
{
    coupling_case c;
    (void)state;
    start(&c, "lenet", "{}", images);
    expect_same(&c, "conv1.weight", 0, "conv2.weight", 1);
    for (int64_t i = 0; i < 400; i++)
        assert_int_equal(unit(&c, "fc1.weight", 1, i), unit(&c, "conv2.weight", 0, i / 25));
    expect_same(&c, "fc1.weight", 0, "fc2.weight", 1);
    assert_int_equal(c.coupling.kind[unit(&c, "conv2.bias", 0, 0)], HT_UNIT_CHANNELS);
    assert_int_equal(c.coupling.kind[unit(&c, "fc1.bias", 0, 0)], HT_UNIT_ROWS);
    assert_int_equal(c.coupling.units, 6 + 16 + 120 + 84);
    model_stop(&c.model);
}

static void heads__lie_in_all_thirds_of_gpt2s_matrix(void **state)
{
    coupling_case c;
    (void)state;
    start(&c, "gpt2", "{\"n_layer\": 2, \"n_head\": 3, \"n_embd\": 12}", text);
    for (int64_t i = 0; i < 36; i++) {
        int32_t head = unit(&c, "transformer.h.0.attn.c_attn.weight", 1, i);
        assert_int_equal(head, unit(&c, "transformer.h.0.attn.c_proj.weight", 0, i % 12 / 4 * 4));
        assert_int_equal(head, unit(&c, "transformer.h.0.attn.c_attn.bias", 0, i));
        assert_int_equal(c.coupling.kind[head], HT_UNIT_HEADS);
    }
    expect_same(&c, "transformer.h.1.mlp.c_fc.weight", 1, "transformer.h.1.mlp.c_proj.weight", 0);
    expect_fixed(&c, "transformer.h.1.mlp.c_proj.weight", 1);
    expect_fixed(&c, "transformer.wte.weight", 0);
    expect_fixed(&c, "transformer.wte.weight", 1);
    assert_int_equal(c.coupling.units, 2 * (3 + 48));
    assert_true(tensor(&c, "transformer.h.0.mlp.c_fc.weight")->axes[0].consumed);
    model_stop(&c.model);
}

static void heads__that_share_keys_go_together(void **state)
{
    coupling_case c;
    (void)state;
    start(&c, "llama",
          "{\"hidden_size\": 16, \"num_hidden_layers\": 1, \"num_attention_heads\": 4, \"num_key_value_heads\": 2}",
          text);
    for (int64_t i = 0; i < 16; i++) {
        int32_t head = unit(&c, "model.layers.0.self_attn.q_proj.weight", 0, i);
        assert_int_equal(head, unit(&c, "model.layers.0.self_attn.k_proj.weight", 0, i / 8 * 4));
        assert_int_equal(head, unit(&c, "model.layers.0.self_attn.v_proj.weight", 0, i / 8 * 4 + 3));
        assert_int_equal(head, unit(&c, "model.layers.0.self_attn.o_proj.weight", 1, i));
    }
    expect_same(&c, "model.layers.0.mlp.gate_proj.weight", 0, "model.layers.0.mlp.up_proj.weight", 0);
    expect_same(&c, "model.layers.0.mlp.gate_proj.weight", 0, "model.layers.0.mlp.down_proj.weight", 1);
    model_stop(&c.model);
}

static void bert__has_heads_and_rows(void **state)
{
    coupling_case c;
    ht_model_request request = text;
    (void)state;
    request.task = HT_TASK_MASKED_LM;
    start(&c, "bert", "{\"hidden_size\": 8, \"num_hidden_layers\": 1, \"num_attention_heads\": 2}", request);
    for (int64_t i = 0; i < 8; i++) {
        int32_t head = unit(&c, "bert.encoder.layer.0.attention.self.query.weight", 0, i);
        assert_int_equal(c.coupling.kind[head], HT_UNIT_HEADS);
        assert_int_equal(head, unit(&c, "bert.encoder.layer.0.attention.output.dense.weight", 1, i / 4 * 4 + 1));
    }
    expect_same(&c, "bert.encoder.layer.0.intermediate.dense.weight", 0, "bert.encoder.layer.0.output.dense.weight", 1);
    model_stop(&c.model);
}

static void recurrent_layers__keep_their_units(void **state)
{
    coupling_case c;
    (void)state;
    start(&c, "lstm_lm", "{\"hidden\": 6, \"layers\": 1}", text);
    assert_int_equal(c.coupling.units, 0);
    model_stop(&c.model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(channels__go_with_norms_and_all_branches_of_a_residual_sum),
        cmocka_unit_test(channels__go_through_depthwise_convolutions),
        cmocka_unit_test(groups__of_a_convolution_go_as_a_whole),
        cmocka_unit_test(channels__go_through_pooling_into_a_linear_layer),
        cmocka_unit_test(heads__lie_in_all_thirds_of_gpt2s_matrix),
        cmocka_unit_test(heads__that_share_keys_go_together),
        cmocka_unit_test(bert__has_heads_and_rows),
        cmocka_unit_test(recurrent_layers__keep_their_units),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
