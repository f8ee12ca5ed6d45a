#include "config_fixture.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- a job alone ---- */

static void job__is_enough_alone(void **state)
{
    (void)state;
    reads(JOB(""));
    const ht_train_config *r = ht_config_train(config);
    assert_true(r->steps == 1000 && r->epochs == 0 && r->batch == 16 && r->micro_batch == 16 && r->accumulate == 1);
    assert_string_equal(r->optimizer->name, "adamw");
    assert_string_equal(r->schedule, "cosine");
    assert_string_equal(r->precision, "fp32");
    assert_true(r->lr == 1e-3 && r->clip == 0 && r->hyper.beta2 == 0.999);
    assert_true(ht_config_schedule_number(config, "warmup_steps", 1000) == 100);
    assert_true(ht_config_schedule_number(config, "decay_steps", 1000) == 1000);
    assert_true(ht_config_schedule_number(config, "min_lr", 1000) == 1e-4);
    assert_true(isnan(ht_config_schedule_number(config, "cycle_min_lr", 1000)));
    assert_false(ht_config_has_engine(config));
    assert_int_equal(ht_config_problems(config)->count, 0);
    assert_string_equal(ht_config_type(config, "model"), "mlp");
    is("train", "batch", "16 | derived: default of train.batch");
    is("train", "clip", "0 | default");
    is("model", "sizes", "[100] | default");
    is("data", "tokenizer", "\"byte\" | default");
    is("data", "train", "\"a\" | job.json:1");
}

static void job__schedules_are_told_as_numbers(void **state)
{
    (void)state;
    reads(JOB(", \"train\": {\"epochs\": 3, \"schedule\": \"linear\", \"lr\": 0.5, \"lr_min\": 0.1}"));
    assert_int_equal(ht_config_train(config)->steps, 0);
    assert_int_equal(ht_config_train(config)->epochs, 3);
    assert_string_equal(ht_config_train(config)->schedule, "linear");
    assert_true(ht_config_schedule_number(config, "warmup_steps", 70) == 7);
    assert_true(ht_config_schedule_number(config, "decay_steps", 70) == 70);
    assert_true(ht_config_schedule_number(config, "min_lr", 70) == 0.1);
    reads(JOB(", \"train\": {\"schedule\": \"constant\"}"));
    assert_string_equal(ht_config_train(config)->schedule, "constant");
    reads(JOB(", \"train\": {\"schedule\": \"constant\", \"warmup\": 9}"));
    assert_string_equal(ht_config_train(config)->schedule, "warmup");
    assert_true(ht_config_schedule_number(config, "warmup_steps", 1000) == 9);
    reads(JOB(", \"engine\": {\"scheduler\": {\"type\": \"onecycle\", \"params\": {\"cycle_min_lr\": [0.1],"
              "\"cycle_max_lr\": 1, \"cycle_momentum\": false}}}"));
    assert_string_equal(ht_config_train(config)->schedule, "OneCycle");
    assert_true(ht_config_schedule_number(config, "cycle_min_lr", 10) == 0.1);
    assert_true(ht_config_schedule_number(config, "cycle_max_lr", 10) == 1);
    assert_true(ht_config_schedule_number(config, "cycle_momentum", 10) == 0);
    assert_true(isnan(ht_config_schedule_number(config, "cycle_second_step_size", 10)));
    reads(JOB(", \"train\": {\"epochs\": 3}, \"engine\": {\"scheduler\": {\"type\": \"WarmupCosineLR\"}}"));
    assert_true(ht_config_schedule_number(config, "total_num_steps", 33) == 33);
    assert_true(ht_config_schedule_number(config, "warmup_linear", 33) == 0);
    refused(
        "{\"train_batch_size\": 1, \"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": [1, 2]}}}",
        "job.json:1: scheduler.params.warmup_max_lr: expected one number, for the one group of parameters, found 2");
}

static void job__comments_commas_and_numbers_as_people_write_them(void **state)
{
    (void)state;
    reads("{ // a job\n" MODEL ", # more\n\"train\": {\"steps\": 2e3, \"lr\": 3e-4, \"_comment\": \"x\",},\n"
          "\"_comment2\": [], \"engine\": {\"zero_optimization\": {\"reduce_bucket_size\": 5e8}}}");
    is("train", "steps", "2000 | job.json:3");
    is("train", "lr_min", "3e-05 | derived: a tenth of train.lr");
    is("train", "warmup", "100 | derived: a tenth of train.steps, 100 at most");
    is("engine", "zero_optimization.reduce_bucket_size", "500000000 | job.json:4");
}

static void job__keys_belong_to_the_chosen_type(void **state)
{
    (void)state;
    reads("{\"model\": {\"type\": \"gpt2\", \"n_embd\": 64}, \"data\": {\"format\": \"text\", \"train\": \"a\"}}");
    is("model", "n_layer", "6 | default");
    refused("{\"model\": {\"type\": \"gpt2\"}, \"data\": {\"format\": \"text\", \"train\": \"a\"}}",
            "model.n_embd: must be given: an integer from 1 up");
    refused("{\"model\": {\"type\": \"mlp\", \"size\": 3}, \"data\": {\"format\": \"text\", \"train\": \"a\"}}",
            "job.json:1: model.size: unknown key; did you mean \"sizes\"?");
    refused("{\"model\": {\"type\": \"gpt\", \"x\": 3}, \"data\": {\"format\": \"text\", \"train\": \"a\"}}",
            "job.json:1: model.type: expected one of gpt2, mlp, found \"gpt\"");
    refused("{\"train\": {}}", "model.type: must be given: one of gpt2, mlp\n"
                               "data.format: must be given: one of text\n"
                               "data.train: must be given: a string");
}

static void job__a_block_without_registered_keys_is_taken_as_it_stands(void **state)
{
    (void)state;
    request.block_count = 0;
    reads("{\"model\": {\"type\": \"new\", \"x\": {\"y\": 1}}}");
    is("model", "type", "\"new\" | job.json:1");
    is("model", "x", "{\"y\": 1} | job.json:1");
}

static void job__all_errors_at_once(void **state)
{
    (void)state;
    refused("{" MODEL
            ",\n\"train\": {\"stepz\": 1, \"lr\": \"fast\",\n \"steps\": 10, \"epochs\": 2},\n\"trian\": {},\n"
            "\"fp16\": {\"enabled\": true}}",
            "job.json:4: trian: unknown key; did you mean \"train\"?\n"
            "job.json:5: fp16: unknown key; it belongs to engine.fp16\n"
            "job.json:2: train.stepz: unknown key; did you mean \"steps\"?\n"
            "job.json:2: train.lr: expected a number from 0 up, found \"fast\"\n"
            "job.json:3: train.epochs: train.steps is given too; one of them says how long to train");
}

static void job__hostile_files_are_refused(void **state)
{
    (void)state;
    refused("", "job.json:1:1: expected a value, found the end of the text");
    refused("[]", "job.json:1: expected a job, which is an object, found an array\n"
                  "model.type: must be given: one of gpt2, mlp\n"
                  "data.format: must be given: one of text\n"
                  "data.train: must be given: a string");
    refused("{\"train\": {}, \"train\": {}}", "job.json:1:24: the key \"train\" was given before, at line 1");
    refused(JOB(", \"train\": []"), "job.json:1: train: expected an object, found an array");
    refused(JOB(", \"train\": {\"batch\": 1e30}"),
            "job.json:1: train.batch: expected an integer from 1 up, found 1e+30");
    refused(JOB(", \"train\": {\"micro_batch\": 9e18, \"accumulate\": 9e18}"),
            "train.micro_batch (job.json:1): 9000000000000000000 × 9000000000000000000 × 1 rank is too large");
    refused(JOB(", \"engine\": 3"), "job.json:1: engine: expected DeepSpeed's config, as a path or an object, found an "
                                    "integer");
    refused(JOB(", \"engine\": \"/nowhere/ds.json\""), "/nowhere/ds.json: No such file or directory");
    refused(JOB(", \"engine\": \"a\\u0000b\""),
            "job.json:1: engine: expected DeepSpeed's config, as a path or an object, found a string");
    refused(JOB(", \"train\": {\"betas\": [0.9]}"), "job.json:1: train.betas: expected two numbers, found 1");
    refused(JOB(", \"train\": {\"momentum\": 0, \"nesterov\": true}"),
            "job.json:1: train.nesterov: needs train.momentum above 0");
}

/* ---- the command line ---- */

static void set__overrides_and_says_so(void **state)
{
    (void)state;
    sets[0] = "train.lr=0.5", sets[1] = "train.output=runs/a=b", sets[2] = "engine.fp16.hysteresis=3";
    sets[3] = "train.lr=0.25", sets[4] = "model.sizes=[1,2]";
    request.set_count = 5;
    reads(JOB(", \"train\": {\"lr\": 1}"));
    is("train", "lr", "0.25 | --set");
    is("train", "output", "\"runs/a=b\" | --set");
    is("engine", "fp16.hysteresis", "3 | --set");
    is("model", "sizes", "[1, 2] | --set");
    assert_true(ht_config_has_engine(config));
}

static void set__chooses_the_type(void **state)
{
    (void)state;
    sets[0] = "model.type=gpt2", sets[1] = "model.n_embd=8";
    request.set_count = 2;
    reads(JOB(""));
    assert_string_equal(ht_config_type(config, "model"), "gpt2");
}

static void set__wrong_ones_are_refused(void **state)
{
    (void)state;
    sets[0] = "lr=1", sets[1] = "train.lr", sets[2] = "train..lr=1", sets[3] = "fp16.enabled=true", sets[4] = "=3";
    sets[5] = "train.lr=fast", sets[6] = "zebra=1";
    request.set_count = 7;
    refused(JOB(""), "--set lr: unknown key; did you mean \"train.lr\"?\n"
                     "--set train.lr: takes KEY=VALUE, as in train.lr=3e-4\n"
                     "--set train..lr=1: takes KEY=VALUE, as in train.lr=3e-4\n"
                     "--set fp16.enabled: unknown key; did you mean \"engine.fp16.enabled\"?\n"
                     "--set =3: takes KEY=VALUE, as in train.lr=3e-4\n"
                     "--set zebra: unknown key; keys begin with model, data, train, halftone or engine\n"
                     "--set: train.lr: expected a number from 0 up, found \"fast\"");
}

static void set__an_unknown_optimizer_over_a_known_one_is_refused(void **state)
{
    (void)state;
    sets[0] = "optimizer.type=Foo";
    request.set_count = 1;
    refused(
        "{\"optimizer\": {\"type\": \"Adam\", \"params\": {\"lr\": 1}}, \"train_batch_size\": 4}",
        "--set: optimizer.type: expected one of Adam, AdamW, SGD, Adagrad, Lamb, Lion, Muon, OneBitAdam, OneBitLamb, "
        "ZeroOneAdam, MuAdam, MuAdamW, MuSGD, found \"Foo\"");
}

/* ---- for people and programs ---- */

static void print__every_value_is_in_the_json_and_reads_back(void **state)
{
    (void)state;
    reads(JOB(", \"train\": {\"output\": \"a\\\"b\"}, \"engine\": {\"compression_training\": {\"weight_quantization\": "
              "{\"different_groups\": {\"g\": {\"params\": {\"start_bits\": 8}}}}}}"));
    ht_text text = {0};
    ht_config_print_json(&text, config);
    ht_arena *arena = ht_arena_create();
    const ht_json *root;
    if (ht_json_parse(&ctx, arena, "out", text.data, text.length, &root) != HT_OK) fail_msg("%s", ctx.message);
    const ht_json *values = ht_json_get(root, "values");
    assert_string_equal(ht_json_get(ht_json_get(values, "train.output"), "value")->text, "a\"b");
    const ht_json *bits =
        ht_json_get(values, "engine.compression_training.weight_quantization.different_groups.g.params.start_bits");
    assert_int_equal(ht_json_get(bits, "value")->integer, 8);
    assert_string_equal(ht_json_get(bits, "origin")->text, "file");
    assert_int_equal(ht_json_get(bits, "line")->integer, 1);
    assert_string_equal(ht_json_get(ht_json_get(values, "engine.fp16.hysteresis"), "origin")->text, "default");
    assert_true(values->count > 400);
    ht_arena_free(arena);
    ht_text_free(&text);
}

static void print__unused_defaults_are_counted_unless_all_is_wanted(void **state)
{
    (void)state;
    reads("{\"train_batch_size\": 1, \"zero_optimization\": {\"stage\": 2}}");
    ht_text few = {0}, all = {0};
    ht_config_print(&few, config, false);
    ht_config_print(&all, config, true);
    assert_non_null(strstr(few.data, "zero_optimization.stage"));
    assert_non_null(strstr(few.data, "job.json:1; nothing to do on one rank"));
    assert_null(strstr(few.data, "hysteresis"));
    assert_non_null(strstr(few.data, "more keys have their defaults"));
    assert_non_null(strstr(all.data, "fp16.hysteresis"));
    assert_null(strstr(all.data, "more keys have"));
    ht_text_free(&few);
    ht_text_free(&all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(job__is_enough_alone),
        TEST(job__schedules_are_told_as_numbers),
        TEST(job__comments_commas_and_numbers_as_people_write_them),
        TEST(job__keys_belong_to_the_chosen_type),
        TEST(job__a_block_without_registered_keys_is_taken_as_it_stands),
        TEST(job__all_errors_at_once),
        TEST(job__hostile_files_are_refused),
        TEST(set__overrides_and_says_so),
        TEST(set__chooses_the_type),
        TEST(set__wrong_ones_are_refused),
        TEST(set__an_unknown_optimizer_over_a_known_one_is_refused),
        TEST(print__every_value_is_in_the_json_and_reads_back),
        TEST(print__unused_defaults_are_counted_unless_all_is_wanted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
