/* train.init_from: which tensors fit, what is told of those that do not, and files that are refused. */
#include <math.h>

#include "cli_case.h"
#include "format/format.h"

enum { ROWS = 24 };

/* "job.json": a network of two layers, 3 x 4 and 4 x 2, on a table; and "old.safetensors", which fits it under the names
 * fc1 and fc2, the weights in f16 and f64. */
static const char job[] =
    "{\"model\": {\"type\": \"mlp\", \"hidden\": [4]},\n"
    " \"data\": {\"format\": \"table\", \"train\": \"rows.csv\", \"validation_share\": 0.25},\n"
    " \"train\": {\"steps\": 4, \"batch\": 6, \"snapshot_every\": 2, \"eval_every\": 0, \"output\": \"run\"}}";

typedef struct tensor {
    const char *name;
    ht_element element;
    int rank;
    int64_t shape[2];
    double first; /* the others are small numbers */
} tensor;

static void write_tensors(data_case *c, const char *name, const tensor *tensors, size_t count)
{
    ht_named_array arrays[8];
    ht_safetensors_writer *writer;
    for (size_t i = 0; i < count; i++) {
        arrays[i] = (ht_named_array){tensors[i].name, {.element = tensors[i].element, .rank = tensors[i].rank}};
        memcpy(arrays[i].array.shape, tensors[i].shape, sizeof tensors[i].shape);
        assert_true(ht_array_measure(&arrays[i].array));
    }
    assert_int_equal(ht_safetensors_create(&writer, &c->ctx, data_case_path(c, name), arrays, count, NULL), HT_OK);
    for (size_t i = 0; i < count; i++) {
        double numbers[32]; /* aligned for any type */
        ht_dtype dtype = ht_element_dtype(tensors[i].element);
        for (int64_t k = 0; k < arrays[i].array.count; k++)
            ht_store_f64(numbers, dtype, k, k == 0 ? tensors[i].first : (double)(k % 5) / 8 - 0.25);
        assert_int_equal(ht_safetensors_append(writer, numbers, arrays[i].array.bytes), HT_OK);
    }
    assert_int_equal(ht_safetensors_finish(writer, NULL, NULL), HT_OK);
}

static int begin(void **state)
{
    if (data_case_begin(state) != 0) return -1;
    data_case *c = *state;
    ht_text rows = {0};
    ht_text_add(&rows, "a,b,c,y\n");
    for (int i = 0; i < ROWS; i++) ht_text_add(&rows, "%d,%d,%d,%s\n", i % 5, i % 7, i % 3, i % 2 ? "odd" : "even");
    data_case_text(c, "rows.csv", rows.data);
    ht_text_free(&rows);
    data_case_text(c, "job.json", job);
    static const tensor old[] = {
        {"fc1.weight", HT_ELEMENT_F16, 2, {4, 3}, 0.5},
        {"fc1.bias", HT_ELEMENT_F32, 1, {4}, 0.5},
        {"fc2.weight", HT_ELEMENT_F64, 2, {2, 4}, 0.1},
        {"fc2.bias", HT_ELEMENT_BF16, 1, {2}, 0.5},
    };
    write_tensors(c, "old.safetensors", old, 4);
    return 0;
}

#define MAP                                                                                                            \
    "\"map\": [{\"match\": \"fc1\", \"replace\": \"layers.0\"}, {\"match\": \"fc2\", \"replace\": \"layers.1\"}]"
#define SET(value) " --set 'train.init_from=" value "'"

/* ---- what fits ---- */

static void init_from__check_lists_what_fits_with_names_and_types(void **state)
{
    data_case *c = *state;
    static const char line[] = "\"$H\" check job.json" SET("{\"path\": \"old.safetensors\", " MAP "}");
    expect(c, line, 0, "init_from: layers.0.weight from fc1.weight: F16 [4, 3] as F32\n");
    expect(c, line, 0, "init_from: layers.0.bias from fc1.bias: F32 [4]\n");
    expect(c, line, 0, "init_from: layers.1.weight from fc2.weight: F64 [2, 4] as F32\n");
    expect(c, line, 0, "init_from: 4 of the model's 4 tensors come from old.safetensors\n");
}

/* The run's first snapshot, after steps with a rate of 0, holds the file's numbers as f32. */
static void init_from__converts_numbers_to_the_types_of_the_model(void **state)
{
    data_case *c = *state;
    expect(
        c,
        "\"$H\" train job.json --set train.lr=0 --set train.lr_min=0" SET("{\"path\": \"old.safetensors\", " MAP "}"),
        0, "");
    ht_safetensors *file;
    assert_int_equal(
        ht_safetensors_open(&file, &c->ctx, data_case_path(c, "run/snapshots/step-00000004/weights.safetensors")),
        HT_OK);
    const ht_named_array *half = ht_safetensors_find(file, "layers.0.weight"),
                         *wide = ht_safetensors_find(file, "layers.1.weight");
    assert_true(half && wide && wide->array.element == HT_ELEMENT_F32);
    assert_true(ht_array_number(&half->array, 0) == 0.5 && ht_array_number(&half->array, 2) == 0);
    assert_true(ht_array_number(&wide->array, 0) == (double)0.1F && ht_array_number(&wide->array, 1) == -0.125);
    ht_safetensors_free(file);
}

static void init_from__a_table_maps_names_and_leaves_tensors_out(void **state)
{
    data_case *c = *state;
    expect(c,
           "\"$H\" train job.json" SET("{\"path\": \"old.safetensors\", \"map\": {\"fc1.weight\": \"layers.0.weight\", "
                                       "\"fc1.bias\": \"layers.0.bias\", \"fc2.weight\": \"layers.1.weight\", "
                                       "\"fc2.bias\": \"layers.1.bias\"}}"),
           0, "4 of the model's 4 tensors");
    expect(c,
           "\"$H\" check job.json" SET("{\"path\": \"old.safetensors\", \"strict\": false, \"map\": {\"fc1.weight\": "
                                       "\"layers.0.weight\", \"fc1.bias\": null, \"fc9.bias\": \"layers.1.bias\"}}"),
           0, "init_from: fc9.bias: the map has it, and the file does not\n");
}

/* ---- what does not ---- */

/* All at once: both sides, and a shape. */
static void init_from__is_strict_and_names_every_difference(void **state)
{
    data_case *c = *state;
    static const char line[] = "\"$H\" train job.json --set 'model.hidden=[5]'" SET(
        "{\"path\": \"old.safetensors\", \"map\": [{\"match\": \"fc1.w\", \"replace\": \"layers.0.w\"}, {\"match\": "
        "\"fc2.b\", \"replace\": \"layers.1.b\"}]}");
    expect(c, line, 2,
           "train.init_from: old.safetensors and the model differ in 5 tensors, and agree in 1; \"strict\": "
           "false takes those:\n");
    expect(c, line, 2, "\nlayers.0.weight: F16 [4, 3] in the file, F32 [5, 3] in the model\n");
    expect(c, line, 2, "layers.0.bias: the model has it, and the file does not\n");
    expect(c, line, 2, "\nlayers.1.weight: the model has it, and the file does not\n");
    expect(c, line, 2, "\nfc1.bias: the file has it, and the model does not\n");
    expect(c, line, 2, "\nfc2.weight: the file has it, and the model does not");
    expect(c, "ls run/snapshots", 2, "");
}

static void init_from__without_strict_takes_what_fits_and_lists_the_rest(void **state)
{
    data_case *c = *state;
    static const char line[] = "\"$H\" train job.json --force --set 'model.hidden=[5]'" SET(
        "{\"path\": \"old.safetensors\", \"strict\": false, " MAP "}");
    expect(c, line, 0, "init_from: layers.0.bias: F32 [4] in the file, F32 [5] in the model\n");
    expect(c, line, 0, "init_from: 1 of the model's 4 tensors come from old.safetensors\n");
    expect(c, "\"$H\" train job.json --force" SET("{\"path\": \"old.safetensors\", \"strict\": false}"), 2,
           "train.init_from: old.safetensors: no tensor of it fits one of the model");
}

static void init_from__two_tensors_of_one_name_are_refused(void **state)
{
    data_case *c = *state;
    expect(c,
           "\"$H\" check job.json" SET("{\"path\": \"old.safetensors\", \"strict\": false, \"map\": [{\"match\": "
                                       "\"fc.\", \"replace\": \"layers.0\"}]}"),
           2, "map: 'fc1.bias' and 'fc2.bias' of old.safetensors both become 'layers.0.bias'");
}

static void init_from__numbers_that_are_not_finite_are_refused(void **state)
{
    data_case *c = *state;
    const tensor wrong[] = {{"layers.0.bias", HT_ELEMENT_F32, 1, {4}, NAN},
                            {"layers.1.bias", HT_ELEMENT_F64, 1, {2}, 1e300}};
    write_tensors(c, "nan.safetensors", wrong, 1);
    write_tensors(c, "large.safetensors", wrong + 1, 1);
    expect(c, "\"$H\" train job.json" SET("{\"path\": \"nan.safetensors\", \"strict\": false}"), 2,
           "nan.safetensors: element 0 of 'layers.0.bias' is nan as F32");
    expect(c, "\"$H\" train job.json" SET("{\"path\": \"large.safetensors\", \"strict\": false}"), 2,
           "large.safetensors: element 0 of 'layers.1.bias' is inf as F32");
    const tensor whole = {"layers.0.bias", HT_ELEMENT_I64, 1, {4}, 1};
    write_tensors(c, "whole.safetensors", &whole, 1);
    expect(c, "\"$H\" check job.json" SET("{\"path\": \"whole.safetensors\", \"strict\": false}"), 2,
           "init_from: layers.0.bias: I64 [4] in the file, F32 [4] in the model\n");
}

/* ---- where it comes from ---- */

static void init_from__takes_a_run_a_snapshot_or_a_file(void **state)
{
    data_case *c = *state;
    static const char *const paths[] = {"run", "run/snapshots/step-00000002",
                                        "run/snapshots/step-00000004/weights.safetensors"};
    expect(c, "\"$H\" train job.json", 0, "");
    for (int i = 0; i < 3; i++) {
        char line[256], said[256];
        snprintf(line, sizeof line, "\"$H\" train job.json --force --set train.output=next --set train.init_from=%s",
                 paths[i]);
        snprintf(said, sizeof said, "4 of the model's 4 tensors come from %s",
                 i == 0 ? "run/snapshots/step-00000004/weights.safetensors" : paths[i]);
        expect(c, line, 0, said);
    }
    expect(c, "\"$H\" check job.json --set train.init_from=nowhere", 2, "train.init_from: nowhere: No such file");
    expect(c, "\"$H\" check job.json --set train.init_from=rows.csv", 2,
           "train.init_from: rows.csv: not a safetensors");
    expect(c, "\"$H\" check job.json --set train.init_from=.", 2, "neither a run's nor a snapshot");
    expect(c, "rm -r run/snapshots/*; \"$H\" check job.json --set train.init_from=run", 2,
           "run/snapshots: there is no complete snapshot");
}

static void init_from__passes_over_a_damaged_snapshot(void **state)
{
    data_case *c = *state;
    expect(c,
           "\"$H\" train job.json && f=run/snapshots/step-00000004/weights.safetensors && "
           "printf X | dd of=$f bs=1 seek=$(($(wc -c < $f) - 3)) conv=notrunc && "
           "\"$H\" check job.json --set train.init_from=run",
           0, "4 of the model's 4 tensors come from run/snapshots/step-00000002/weights.safetensors");
    expect(c, "\"$H\" check job.json --set train.init_from=run/snapshots/step-00000004", 2, "the file is damaged");
}

static void init_from__force_does_not_remove_what_it_starts_from(void **state)
{
    data_case *c = *state;
    expect(c, "\"$H\" train job.json && \"$H\" train job.json --force --set train.init_from=run", 2,
           "run/snapshots/step-00000004/weights.safetensors lies in run, which --force would remove");
    expect(c, "ls run/snapshots", 0, "step-00000004");
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(init_from__check_lists_what_fits_with_names_and_types),
        CASE(init_from__converts_numbers_to_the_types_of_the_model),
        CASE(init_from__a_table_maps_names_and_leaves_tensors_out),
        CASE(init_from__is_strict_and_names_every_difference),
        CASE(init_from__without_strict_takes_what_fits_and_lists_the_rest),
        CASE(init_from__two_tensors_of_one_name_are_refused),
        CASE(init_from__numbers_that_are_not_finite_are_refused),
        CASE(init_from__takes_a_run_a_snapshot_or_a_file),
        CASE(init_from__passes_over_a_damaged_snapshot),
        CASE(init_from__force_does_not_remove_what_it_starts_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
