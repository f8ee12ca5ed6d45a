/* Number types and loss scales in job files and DeepSpeed's configs. */
#include "config/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static ht_context ctx;
static ht_config *config;
static const char *set;

static int set_up(void **state)
{
    (void)state;
    ctx = (ht_context){0};
    config = NULL;
    set = NULL;
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    ht_config_free(config);
    return 0;
}

static ht_status read_text(const char *text)
{
    ht_config_free(config);
    ht_config_request request = {.path = "job.json", .text = text, .length = strlen(text), .training = true};
    request.sets = &set;
    request.set_count = set != NULL;
    return ht_config_read(&config, &ctx, &request);
}

/* A config that is complete but for these members. */
static const ht_train_config *reads(const char *members)
{
    char text[2048];
    snprintf(text, sizeof text, "{%s}", members);
    if (read_text(text) != HT_OK) fail_msg("%s: %s", text, ctx.message);
    return ht_config_train(config);
}

static void refused(const char *members, const char *part)
{
    char text[2048];
    snprintf(text, sizeof text, "{%s}", members);
    if (read_text(text) != HT_EINVAL) fail_msg("%s is read", text);
    if (strstr(ctx.message, part) == NULL) fail_msg("%s\n   says %s\n    not %s", text, ctx.message, part);
}

static void is(const char *block, const char *name, const char *wanted)
{
    const ht_field *field = ht_fields_find(ht_config_block(config, block), name);
    ht_text text = {0};
    assert_non_null(field);
    ht_json_print(&text, field->value);
    ht_text_add(&text, " | ");
    ht_origin_print(&text, &field->origin);
    if (strcmp(text.data, wanted) != 0) fail_msg("%s.%s: %s, not %s", block, name, text.data, wanted);
    ht_text_free(&text);
}

#define BLOCKS         "\"model\": {\"type\": \"mlp\"}, \"data\": {\"format\": \"text\"}"
#define TRAIN(members) BLOCKS ", \"train\": {" members "}"
#define ENGINE(rest)   "\"train_batch_size\": 1, \"gradient_clipping\": 0, " rest

static void job__the_scale_follows_the_precision(void **state)
{
    (void)state;
    static const struct {
        const char *precision, *scale;
    } rows[] = {{"fp32", "none"}, {"fp64", "none"}, {"bf16", "none"}, {"fp16", "dynamic"}};
    for (size_t i = 0; i < 4; i++) {
        char members[256];
        snprintf(members, sizeof members, BLOCKS ", \"train\": {\"precision\": \"%s\"}", rows[i].precision);
        const ht_train_config *r = reads(members);
        assert_string_equal(r->precision, rows[i].precision);
        assert_string_equal(r->loss_scale, rows[i].scale);
        assert_true(r->masters && !r->half_gradients && !r->half_moments);
        assert_string_equal(r->residual, "half");
        assert_null(r->fp32_ops);
        assert_null(r->fp32_params);
    }
    is("train", "loss_scale", "\"dynamic\" | derived: train.precision is fp16");
    const ht_train_config *r = ht_config_train(config);
    assert_true(r->scale_power == 16 && r->scale_window == 1000 && r->scale_hysteresis == 2);
    assert_true(!r->scale_consecutive && r->scale_min == 1);
}

static void job__a_scale_is_a_word_or_a_number(void **state)
{
    (void)state;
    assert_string_equal(reads(TRAIN("\"loss_scale\": 1024"))->loss_scale, "1024");
    assert_string_equal(reads(TRAIN("\"loss_scale\": 0.5, \"precision\": \"fp16\""))->loss_scale, "0.5");
    assert_string_equal(reads(TRAIN("\"loss_scale\": \"none\", \"precision\": \"fp16\""))->loss_scale, "none");
    assert_string_equal(reads(TRAIN("\"loss_scale\": \"dynamic\""))->loss_scale, "dynamic");
    set = "train.loss_scale=dynamic";
    assert_string_equal(reads(TRAIN("\"loss_scale\": 8"))->loss_scale, "dynamic");
    set = "train.loss_scale=64";
    assert_string_equal(reads(TRAIN("\"loss_scale\": \"none\""))->loss_scale, "64");
    set = NULL;
    static const char *const wrong[] = {"0", "-1", "1e39", "\"fast\"", "true", "[1]"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        char members[256], says[256];
        snprintf(members, sizeof members, BLOCKS ", \"train\": {\"loss_scale\": %s}", wrong[i]);
        snprintf(says, sizeof says,
                 "job.json:1: train.loss_scale: expected \"dynamic\", \"none\" or a number above 0, found %.2s",
                 wrong[i]);
        refused(members, says);
    }
}

static void job__the_policy_of_half_precision(void **state)
{
    (void)state;
    const ht_train_config *r = reads(
        TRAIN("\"precision\": \"bf16\"") ", \"halftone\": {\"residual\": \"f32\", \"fp32_ops\": [\"gelu\", \"add\"], "
                                         "\"half_ops\": \"softmax\", \"fp32_params\": \"norm\"}");
    assert_true(r->masters && !r->half_gradients);
    assert_string_equal(r->residual, "f32");
    assert_string_equal(r->fp32_ops, "gelu,add");
    assert_string_equal(r->half_ops, "softmax");
    assert_string_equal(r->fp32_params, "norm");
    assert_string_equal(r->rounding, "nearest");
    assert_false(reads(TRAIN("\"precision\": \"bf16\", \"masters\": false"))->masters);
#define KEPT(expression) ", \"halftone\": {\"fp32_params\": \"" expression "\"}"
    refused(TRAIN("\"precision\": \"bf16\"") KEPT("(["), "halftone.fp32_params: \"([\" is no regular expression: ");
    refused(TRAIN("\"precision\": \"bf16\", \"masters\": false") KEPT("norm"),
            "halftone.fp32_params: without masters all parameters are of one type");
}

static void job__rounding_by_chance_is_for_parameters_that_are_half(void **state)
{
    (void)state;
#define ROUNDING ", \"halftone\": {\"rounding\": \"stochastic\"}"
    const ht_train_config *r = reads(TRAIN("\"precision\": \"bf16\", \"masters\": false") ROUNDING);
    assert_string_equal(r->rounding, "stochastic");
    refused(TRAIN("\"precision\": \"bf16\"") ROUNDING, "halftone.rounding: \"stochastic\" is for fp16 and bf16 with");
    refused(TRAIN("\"precision\": \"fp32\", \"masters\": false") ROUNDING, "the precision is fp32");
}

static void engine__the_fp16_block_is_taken_as_it_stands(void **state)
{
    (void)state;
    const ht_train_config *r =
        reads(ENGINE("\"fp16\": {\"enabled\": true, \"loss_scale\": 0, \"initial_scale_power\": 12, "
                     "\"loss_scale_window\": 500, \"hysteresis\": 3, \"consecutive_hysteresis\": true, "
                     "\"min_loss_scale\": 4}"));
    assert_string_equal(r->precision, "fp16");
    assert_string_equal(r->loss_scale, "dynamic");
    assert_true(r->scale_power == 12 && r->scale_window == 500 && r->scale_hysteresis == 3);
    assert_true(r->scale_consecutive && r->scale_min == 4);
    is("train", "loss_scale", "\"dynamic\" | derived: fp16.loss_scale (job.json:1)");
    assert_string_equal(reads(ENGINE("\"fp16\": {\"enabled\": true, \"loss_scale\": 128}"))->loss_scale, "128");
    /* A block that is off says nothing. */
    r = reads(ENGINE("\"fp16\": {\"enabled\": false, \"loss_scale\": 128}"));
    assert_string_equal(r->loss_scale, "none");
    r = reads(ENGINE("\"bf16\": {\"enabled\": true}, \"fp16\": {\"loss_scale\": 128}"));
    assert_string_equal(r->loss_scale, "none");
    refused(ENGINE("\"fp16\": {\"enabled\": true, \"initial_scale_power\": 2, \"min_loss_scale\": 5}"),
            "fp16.min_loss_scale: 5 is above the first scale, two to the power of fp16.initial_scale_power, 2");
    /* DeepSpeed takes 0, and its scale may fall to it. */
    assert_true(reads(ENGINE("\"fp16\": {\"enabled\": true, \"min_loss_scale\": 0}"))->scale_min == 1);
    refused(ENGINE("\"fp16\": {\"enabled\": true, \"hysteresis\": 0}"), "fp16.hysteresis: expected an integer from 1");
}

static void engine__train_block_and_fp16_agree_on_the_scale(void **state)
{
    (void)state;
#define BOTH(train, fp16) TRAIN(train) ", \"engine\": {\"gradient_clipping\": 0, \"fp16\": {\"enabled\": true" fp16 "}}"
    assert_string_equal(reads(BOTH("\"loss_scale\": 64", ""))->loss_scale, "64");
    is("engine", "fp16.loss_scale", "64 | derived: train.loss_scale");
    assert_string_equal(reads(BOTH("\"loss_scale\": \"dynamic\"", ", \"loss_scale\": 0"))->loss_scale, "dynamic");
    assert_string_equal(reads(BOTH("\"loss_scale\": \"none\"", ", \"loss_scale\": 1"))->loss_scale, "none");
    assert_string_equal(reads(BOTH("", ", \"loss_scale\": \"auto\""))->loss_scale, "dynamic");
    refused(
        BOTH("\"loss_scale\": 64", ", \"loss_scale\": 32"),
        "train.loss_scale (job.json:1) is 64, but engine.fp16.loss_scale (job.json:1) is 32: leave out one of them");
    refused(BOTH("\"loss_scale\": \"dynamic\"", ", \"loss_scale\": 32"), "is \"dynamic\", but engine.fp16.loss_scale");
}

static void engine__pure_half_has_neither_masters_nor_fp32_gradients(void **state)
{
    (void)state;
    const ht_train_config *r = reads(ENGINE("\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true, "
                                            "\"bf16_optimizer_states\": true}"));
    assert_true(!r->masters && r->half_gradients && r->half_moments);
    is("train", "masters", "false | derived: bf16.bf16_master_weights_and_grads (job.json:1)");
    r = reads(ENGINE("\"fp16\": {\"enabled\": true, \"fp16_master_weights_and_grads\": true}"));
    assert_true(!r->masters && r->half_gradients && !r->half_moments);
    r = reads(ENGINE("\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true}, "
                     "\"data_types\": {\"grad_accum_dtype\": \"fp32\"}"));
    assert_true(!r->masters && !r->half_gradients);
    r = reads(ENGINE("\"bf16\": {\"enabled\": false, \"bf16_master_weights_and_grads\": true}"));
    assert_true(r->masters && !r->half_gradients);
    refused(TRAIN("\"masters\": true") ", \"engine\": {\"gradient_clipping\": 0, \"bf16\": {\"enabled\": true, "
                                       "\"bf16_master_weights_and_grads\": true}}",
            "train.masters (job.json:1) is true, but engine.bf16.bf16_master_weights_and_grads (job.json:1) is true");
}

static void engine__gradients_accumulate_in_fp32_or_in_the_precision(void **state)
{
    (void)state;
    const ht_train_config *r =
        reads(ENGINE("\"bf16\": {\"enabled\": true}, \"data_types\": {\"grad_accum_dtype\": \"bf16\"}"));
    assert_true(r->masters && r->half_gradients);
    reads(ENGINE("\"data_types\": {\"grad_accum_dtype\": \"fp32\"}"));
    refused(ENGINE("\"bf16\": {\"enabled\": true}, \"data_types\": {\"grad_accum_dtype\": \"fp16\"}"),
            "data_types.grad_accum_dtype: \"fp16\", but the precision is bf16: fp32 or the same");
    refused(ENGINE("\"data_types\": {\"grad_accum_dtype\": \"bf16\"}"), "but the precision is fp32");
}

static void engine__steps_with_nan_are_skipped_whatever_it_says(void **state)
{
    (void)state;
    reads(ENGINE("\"bf16\": {\"enabled\": true, \"check_grad_overflow\": false}"));
    const ht_problems *problems = ht_config_problems(config);
    assert_int_equal(problems->count, 1);
    assert_non_null(strstr(problems->list[0].text, "bf16.check_grad_overflow: false, but a step with inf or NaN"));
    reads(ENGINE("\"bf16\": {\"enabled\": false, \"check_grad_overflow\": false}"));
    assert_int_equal(ht_config_problems(config)->count, 0);
}

static void engine__apex_levels_are_mapped(void **state)
{
    (void)state;
    static const struct {
        const char *members, *precision, *scale;
        bool masters;
    } rows[] = {
        {"\"enabled\": true", "fp16", "dynamic", true},
        {"\"enabled\": true, \"opt_level\": \"O0\"", "fp32", "none", true},
        {"\"enabled\": true, \"opt_level\": \"O1\", \"verbosity\": 1", "fp16", "dynamic", true},
        {"\"enabled\": true, \"opt_level\": \"O2\"", "fp16", "dynamic", true},
        {"\"enabled\": true, \"opt_level\": \"O2\", \"loss_scale\": 512", "fp16", "512", true},
        {"\"enabled\": true, \"opt_level\": \"O3\"", "fp16", "none", false},
        {"\"enabled\": true, \"opt_level\": \"O3\", \"loss_scale\": \"dynamic\"", "fp16", "dynamic", false},
        {"\"enabled\": false, \"opt_level\": \"O3\"", "fp32", "none", true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char members[512];
        snprintf(members, sizeof members, ENGINE("\"amp\": {%s}"), rows[i].members);
        const ht_train_config *r = reads(members);
        if (strcmp(r->precision, rows[i].precision) != 0 || strcmp(r->loss_scale, rows[i].scale) != 0 ||
            r->masters != rows[i].masters)
            fail_msg("%s: %s, %s, %d", rows[i].members, r->precision, r->loss_scale, r->masters);
    }
    refused(ENGINE("\"amp\": {\"enabled\": true, \"opt_level\": \"O4\"}"), "amp.opt_level: expected one of O0, O1");
    refused(ENGINE("\"amp\": {\"enabled\": true, \"loss_scale\": \"much\"}"), "amp.loss_scale: expected \"dynamic\"");
    refused(TRAIN("\"precision\": \"bf16\"") ", \"engine\": {\"gradient_clipping\": 0, \"amp\": {\"enabled\": true}}",
            "train.precision (job.json:1) is \"bf16\", but engine.amp.enabled (job.json:1) is true");
}

static void engine__autocast_of_pytorch_is_mapped(void **state)
{
    (void)state;
    assert_string_equal(reads(ENGINE("\"torch_autocast\": {\"enabled\": true}"))->precision, "bf16");
    const ht_train_config *r = reads(ENGINE("\"torch_autocast\": {\"enabled\": true, \"dtype\": \"torch.float16\"}"));
    assert_string_equal(r->precision, "fp16");
    assert_string_equal(r->loss_scale, "dynamic");
    /* Two ways that mean the same are fine. */
    r = reads(
        ENGINE("\"bf16\": {\"enabled\": true}, \"torch_autocast\": {\"enabled\": true, \"dtype\": \"bfloat16\"}"));
    assert_string_equal(r->precision, "bf16");
    refused(ENGINE("\"bf16\": {\"enabled\": true}, \"torch_autocast\": {\"enabled\": true, \"dtype\": \"half\"}"),
            "bf16.enabled (job.json:1) and torch_autocast.enabled (job.json:1) are both true: one of them at a time");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(job__the_scale_follows_the_precision),
        TEST(job__a_scale_is_a_word_or_a_number),
        TEST(job__the_policy_of_half_precision),
        TEST(job__rounding_by_chance_is_for_parameters_that_are_half),
        TEST(engine__the_fp16_block_is_taken_as_it_stands),
        TEST(engine__train_block_and_fp16_agree_on_the_scale),
        TEST(engine__pure_half_has_neither_masters_nor_fp32_gradients),
        TEST(engine__gradients_accumulate_in_fp32_or_in_the_precision),
        TEST(engine__steps_with_nan_are_skipped_whatever_it_says),
        TEST(engine__apex_levels_are_mapped),
        TEST(engine__autocast_of_pytorch_is_mapped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
