/* Images, tables and arrays as rows with labels. */
#include <math.h>
#include <png.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "data_case.h"
#include "format/format.h"

static ht_loader *loader_of(data_case *c, ht_data_part part)
{
    ht_loader *loader;
    if (ht_loader_open(&loader, c->data, part, false) != HT_OK) fail_msg("loader: %s", c->ctx.message);
    return loader;
}

/* ---- IDX ---- */

static void write_idx(data_case *c, const char *images, const char *labels, int count)
{
    uint8_t x[16 + 600] = {0, 0, 8, 3, 0, 0, 0, (uint8_t)count, 0, 0, 0, 2, 0, 0, 0, 3};
    uint8_t y[8 + 100] = {0, 0, 8, 1, 0, 0, 0, (uint8_t)count};
    for (int i = 0; i < count; i++) {
        for (int k = 0; k < 6; k++) x[16 + i * 6 + k] = (uint8_t)(i * 6 + k);
        y[8 + i] = (uint8_t)(i % 5);
    }
    data_case_file(c, images, x, 16 + (size_t)count * 6);
    data_case_file(c, labels, y, 8 + (size_t)count);
}

static void idx__labels_are_found_beside_the_images_and_stay_with_them(void **state)
{
    data_case *c = *state;
    write_idx(c, "train-images-idx3-ubyte", "train-labels-idx1-ubyte", 20);
    write_idx(c, "t10k-images-idx3-ubyte", "other", 7);
    data_case_open(
        c, HT_TASK_CLASS, 4,
        "{\"format\": \"idx\", \"train\": \"train-images-idx3-ubyte\", \"validation\": \"t10k-images-idx3-ubyte\", "
        "\"validation_labels\": \"other\", \"mean\": 0.5, \"std\": 0.25}");
    const ht_data_info *info = ht_data_info_of(c->data);
    assert_int_equal(info->classes, 5);
    assert_int_equal(info->feature_rank, 3);
    assert_int_equal(info->feature[0] * 100 + info->feature[1] * 10 + info->feature[2], 123);
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    int seen[20] = {0};
    for (int b = 0; b < 5; b++) {
        ht_batch batch = data_case_next(c, loader);
        for (int row = 0; row < 4; row++) {
            const float *x = data_case_floats(&batch, "x") + (ptrdiff_t)row * 6;
            int item = (int)lroundf((x[0] * 0.25f + 0.5f) * 255) / 6;
            seen[item]++;
            assert_int_equal(data_case_ints(&batch, "label")[row], item % 5);
            for (int k = 0; k < 6; k++) assert_true(fabs(x[k] - ((item * 6 + k) / 255.0 - 0.5) / 0.25) < 1e-6);
        }
        assert_int_equal(batch.counted, 4);
        data_case_drop(&batch);
    }
    for (int i = 0; i < 20; i++) assert_int_equal(seen[i], 1);
    ht_loader_free(loader);
    loader = loader_of(c, HT_DATA_VALIDATION);
    assert_int_equal(ht_loader_counted(loader, 2), 7);
    ht_batch batch = data_case_next(c, loader);
    data_case_drop(&batch);
    batch = data_case_next(c, loader);
    assert_int_equal(batch.rows, 3);
    assert_int_equal(data_case_ints(&batch, "label")[3], -1);
    assert_true(batch.last);
    data_case_drop(&batch);
    ht_loader_free(loader);
}

static void idx__what_does_not_fit_together_is_refused(void **state)
{
    data_case *c = *state;
    write_idx(c, "a-images", "a-labels", 20);
    write_idx(c, "b-images", "b-labels", 19);
    data_case_text(c, "junk", "hello");
    data_case_refused(c, HT_TASK_CLASS, 4,
                      "{\"format\": \"idx\", \"train\": \"a-images\", \"train_labels\": \"b-labels\"}",
                      "19 labels for 20 items");
    data_case_refused(c, HT_TASK_CLASS, 4,
                      "{\"format\": \"idx\", \"train\": \"a-labels\", \"train_labels\": \"a-labels\"}",
                      "rank 1 is not that of images");
    data_case_refused(c, HT_TASK_CLASS, 4, "{\"format\": \"idx\", \"train\": \"junk\"}",
                      "does not tell where its labels are");
    data_case_refused(c, HT_TASK_CLASS, 4, "{\"format\": \"idx\", \"train\": \"a-images\", \"mean\": [1, 2]}",
                      "2 and 1 numbers for 1 channels");
    data_case_refused(c, HT_TASK_CLASS, 4, "{\"format\": \"idx\", \"train\": \"?-images\"}", "2 files, one is wanted");
}

/* ---- tables ---- */

static void tables__roles_by_name_and_normalisation_from_what_is_trained_on(void **state)
{
    data_case *c = *state;
    data_case_text(c, "t.csv", "kind,size,note,weight\nred,1,x,10\nblue,2,y,10\nred,3,z,10\n");
    data_case_text(c, "v.csv", "kind,size,note,weight\nblue,100,,11\n");
    data_case_open(c, HT_TASK_CLASS, 3,
                   "{\"format\": \"table\", \"train\": \"t.csv\", \"validation\": \"v.csv\", \"label\": "
                   "\"kind\", \"features\": [\"weight\", \"size\"]}");
    assert_int_equal(ht_data_info_of(c->data)->classes, 2);
    assert_string_equal(ht_data_class_name(c->data, 0), "blue");
    assert_string_equal(ht_data_class_name(c->data, 1), "red");
    assert_null(ht_data_class_name(c->data, 2));
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    ht_batch batch = data_case_next(c, loader);
    double sum = 0, squares = 0;
    for (int row = 0; row < 3; row++) {
        const float *x = data_case_floats(&batch, "x") + (ptrdiff_t)row * 2;
        assert_true(x[0] == 0); /* a constant column */
        sum += x[1];
        squares += x[1] * x[1];
        assert_int_equal(data_case_ints(&batch, "label")[row], fabsf(x[1]) > 0.1f);
    }
    assert_true(fabs(sum) < 1e-6 && fabs(squares / 3 - 1) < 1e-6);
    data_case_drop(&batch);
    ht_loader_free(loader);
    loader = loader_of(c, HT_DATA_VALIDATION);
    batch = data_case_next(c, loader);
    assert_true(fabs(data_case_floats(&batch, "x")[1] - (100 - 2) / sqrt(2.0 / 3)) < 1e-4);
    assert_int_equal(data_case_ints(&batch, "label")[0], 0);
    assert_int_equal(data_case_ints(&batch, "label")[1], -1);
    data_case_drop(&batch);
    ht_loader_free(loader);
}

static void tables__regression_takes_the_last_column_unless_told(void **state)
{
    data_case *c = *state;
    data_case_text(c, "t.csv", "1;2;0.5\n3;4;-1.5\n");
    data_case_open(c, HT_TASK_REGRESSION, 2,
                   "{\"format\": \"table\", \"train\": \"t.csv\", \"normalize\": false, "
                   "\"validation_share\": 0, \"shape\": [2, 1]}");
    assert_int_equal(ht_data_info_of(c->data)->feature_rank, 2);
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    ht_batch batch = data_case_next(c, loader);
    for (int row = 0; row < 2; row++) {
        float x = data_case_floats(&batch, "x")[row * 2], y = data_case_floats(&batch, "y")[row];
        assert_true((x == 1 && y == 0.5f) || (x == 3 && y == -1.5f));
    }
    assert_int_equal(batch.counted, 2);
    data_case_drop(&batch);
    ht_loader_free(loader);
}

static void tables__wrong_cells_and_columns_are_named(void **state)
{
    data_case *c = *state;
    data_case_text(c, "t.csv", "a,b,c\n1,2,x\n1,two,y\n");
    static const struct {
        const char *keys, *message;
    } cases[] = {
        {"\"validation_share\": 0", "t.csv:3: column 1 holds 'two', not a number"},
        {"\"label\": \"d\"", "no column \"d\""},
        {"\"label\": 3", "no column 3"},
        {"\"label\": true", "a name or a number"},
        {"\"features\": [\"c\"]", "the label's column is among them"},
        {"\"features\": []", "no column is left"},
        {"\"features\": 7", "list of columns"},
        {"\"header\": \"no\", \"label\": \"a\"", "has no names of columns"},
        {"\"delimiter\": \",,\"", "one character"},
        {"\"features\": [\"a\"], \"shape\": [2]", "2 numbers, the table has 1"},
        {"\"features\": [\"a\"], \"validation_share\": 0, \"label\": -4", "no column -1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char block[512];
        snprintf(block, sizeof block, "{\"format\": \"table\", \"train\": \"t.csv\", %s}", cases[i].keys);
        data_case_refused(c, HT_TASK_CLASS, 1, block, cases[i].message);
    }
    data_case_refused(c, HT_TASK_REGRESSION, 1,
                      "{\"format\": \"table\", \"train\": \"t.csv\", \"features\": [\"a\"], \"validation_share\": 0}",
                      "t.csv:2: the label 'x' is not a number");
    data_case_text(c, "empty.csv", "");
    data_case_refused(c, HT_TASK_CLASS, 1, "{\"format\": \"table\", \"train\": \"empty.csv\"}", "no rows to train on");
    data_case_text(c, "v.csv", "a,b,c\n1,2,new\n");
    data_case_refused(c, HT_TASK_CLASS, 1,
                      "{\"format\": \"table\", \"train\": \"t.csv\", \"features\": [\"a\"], \"validation\": \"v.csv\"}",
                      "v.csv:2: class 'new' does not occur among the rows to train on");
    data_case_text(c, "nan.csv", "1,nan,0\n");
    data_case_refused(c, HT_TASK_CLASS, 1, "{\"format\": \"table\", \"train\": \"nan.csv\", \"validation_share\": 0}",
                      "holds 'nan', not a number");
}

static void tables__classes_and_nan_are_as_the_keys_say(void **state)
{
    data_case *c = *state;
    data_case_text(c, "t.csv", "1,x\n2,y\n");
    data_case_open(c, HT_TASK_CLASS, 1,
                   "{\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0, \"classes\": 5}");
    assert_int_equal(ht_data_info_of(c->data)->classes, 5);
    assert_string_equal(ht_data_class_name(c->data, 1), "y");
    assert_null(ht_data_class_name(c->data, 2));
    data_case_refused(c, HT_TASK_CLASS, 1,
                      "{\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0, \"classes\": 1}",
                      "data.classes: 1, but 2 classes occur");
    data_case_refused(c, HT_TASK_REGRESSION, 1,
                      "{\"format\": \"table\", \"train\": \"t.csv\", \"validation_share\": 0, \"classes\": 2}",
                      "data.classes: the task is regression");
    data_case_text(c, "n.csv", "1,4\nnan,5\n3,nan\n");
    data_case_refused(c, HT_TASK_REGRESSION, 1,
                      "{\"format\": \"table\", \"train\": \"n.csv\", \"validation_share\": 0, \"features\": [0]}",
                      "n.csv:2: column 0 holds 'nan'");
    data_case_open(c, HT_TASK_REGRESSION, 3,
                   "{\"format\": \"table\", \"train\": \"n.csv\", \"validation_share\": 0, \"allow_nan\": true}");
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    ht_batch batch = data_case_next(c, loader);
    assert_int_equal(batch.counted, 2);
    for (int row = 0; row < 3; row++) { /* mean 2, deviation 1, over the numbers that are there */
        float x = data_case_floats(&batch, "x")[row], y = data_case_floats(&batch, "y")[row];
        assert_true(isnan(x) ? y == 5 : x == -1 ? y == 4 : x == 1 && isnan(y));
    }
    data_case_drop(&batch);
    ht_loader_free(loader);
}

/* ---- arrays ---- */

static void write_npy(data_case *c, const char *name, const char *dictionary, const void *data, size_t bytes)
{
    uint8_t file[1024] = "\x93NUMPY\x01\x00";
    size_t length = strlen(dictionary);
    file[8] = 118; /* data at 128 */
    memset(file + 10, ' ', 118);
    memcpy(file + 10, dictionary, length);
    memcpy(file + 128, data, bytes);
    data_case_file(c, name, file, 128 + bytes);
}

static void arrays__npy_files_and_safetensors_give_the_same_rows(void **state)
{
    data_case *c = *state;
    float x[12];
    int64_t y[3] = {2, 0, 1};
    for (int i = 0; i < 12; i++) x[i] = (float)i;
    write_npy(c, "x.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2, 2)}", x, sizeof x);
    write_npy(c, "y.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}", y, sizeof y);
    const ht_named_array arrays[] = {{"labels", {.element = HT_ELEMENT_I64, .rank = 1, .shape = {3}}},
                                     {"images", {.element = HT_ELEMENT_F32, .rank = 3, .shape = {3, 2, 2}}}};
    ht_safetensors_writer *writer;
    assert_int_equal(ht_safetensors_create(&writer, &c->ctx, data_case_path(c, "d.safetensors"), arrays, 2, NULL),
                     HT_OK);
    ht_safetensors_append(writer, y, sizeof y);
    ht_safetensors_append(writer, x, sizeof x);
    assert_int_equal(ht_safetensors_finish(writer, NULL, NULL), HT_OK);
    static const char *const blocks[] = {
        "{\"format\": \"arrays\", \"train\": \"x.npy\", \"train_labels\": \"y.npy\", \"validation_share\": 0}",
        "{\"format\": \"arrays\", \"train\": \"d.safetensors\", \"x\": \"images\", \"y\": \"labels\", "
        "\"validation_share\": 0}"};
    for (int kind = 0; kind < 2; kind++) {
        data_case_open(c, HT_TASK_CLASS, 3, blocks[kind]);
        assert_int_equal(ht_data_info_of(c->data)->classes, 3);
        ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
        ht_batch batch = data_case_next(c, loader);
        for (int row = 0; row < 3; row++) {
            int item = (int)data_case_floats(&batch, "x")[row * 4] / 4;
            assert_int_equal(data_case_ints(&batch, "label")[row], y[item]);
        }
        data_case_drop(&batch);
        ht_loader_free(loader);
        data_case_open(c, HT_TASK_REGRESSION, 3, blocks[kind]);
        assert_int_equal(ht_data_info_of(c->data)->classes, 1);
    }
    data_case_refused(c, HT_TASK_CLASS, 3, "{\"format\": \"arrays\", \"train\": \"d.safetensors\"}", "no tensor \"x\"");
    data_case_refused(c, HT_TASK_CLASS, 3, "{\"format\": \"arrays\", \"train\": \"x.npy\"}",
                      "data.train_labels: must be given");
    data_case_refused(c, HT_TASK_CLASS, 3,
                      "{\"format\": \"arrays\", \"train\": \"y.npy\", \"train_labels\": \"x.npy\"}",
                      "12 labels for 3 items");
    y[1] = -2;
    write_npy(c, "y.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (3,)}", y, sizeof y);
    data_case_refused(c, HT_TASK_CLASS, 3, blocks[0], "y.npy: the label of item 1 is not a whole number from 0");
}

static void arrays__classes_and_nan_are_as_the_keys_say(void **state)
{
    data_case *c = *state;
    float x[4] = {0, 1, 2, 3}, y[2] = {1, INFINITY};
    int64_t labels[2] = {0, 7};
    write_npy(c, "x.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", x, sizeof x);
    write_npy(c, "y.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}", y, sizeof y);
    write_npy(c, "l.npy", "{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}", labels, sizeof labels);
#define ARRAYS(labels, rest)                                                                                           \
    "{\"format\": \"arrays\", \"train\": \"x.npy\", \"validation_share\": 0, \"train_labels\": \"" labels "\"" rest "}"
    data_case_open(c, HT_TASK_CLASS, 2, ARRAYS("l.npy", ", \"classes\": 10"));
    assert_int_equal(ht_data_info_of(c->data)->classes, 10);
    data_case_refused(c, HT_TASK_CLASS, 2, ARRAYS("l.npy", ", \"classes\": 7"),
                      "l.npy: the label of item 1 is 7, but data.classes is 7");
    data_case_refused(c, HT_TASK_REGRESSION, 2, ARRAYS("y.npy", ""),
                      "y.npy: number 0 of item 1 is inf; data.allow_nan takes it as it is");
    data_case_open(c, HT_TASK_REGRESSION, 2, ARRAYS("y.npy", ", \"allow_nan\": true"));
    x[3] = NAN;
    write_npy(c, "x.npy", "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}", x, sizeof x);
    data_case_refused(c, HT_TASK_CLASS, 2, ARRAYS("l.npy", ""), "x.npy: number 1 of item 1 is nan");
    data_case_open(c, HT_TASK_CLASS, 2, ARRAYS("l.npy", ", \"allow_nan\": true"));
}

/* ---- images ---- */

static void write_png(data_case *c, const char *name, int width, int height, uint8_t value)
{
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = PNG_FORMAT_RGB};
    uint8_t pixels[64 * 64 * 3];
    memset(pixels, value, sizeof pixels);
    for (int i = 0; i < width * height; i++) pixels[i * 3 + 2] = 255; /* blue */
    uint8_t file[1 << 14];
    png_alloc_size_t length = sizeof file;
    assert_true(png_image_write_to_memory(&image, file, &length, 0, pixels, 0, NULL));
    data_case_file(c, name, file, length);
}

static void images__folders_are_classes_and_channels_come_first(void **state)
{
    data_case *c = *state;
    write_png(c, "cat/1.png", 4, 3, 0);
    write_png(c, "dog/1.PNG", 4, 3, 51);
    data_case_text(c, "dog/readme.txt", "no image");
    data_case_open(c, HT_TASK_CLASS, 2, "{\"format\": \"images\", \"train\": \".\", \"validation_share\": 0}");
    const ht_data_info *info = ht_data_info_of(c->data);
    assert_int_equal(info->classes, 2);
    assert_int_equal(info->feature[0] * 100 + info->feature[1] * 10 + info->feature[2], 334);
    ht_loader *loader = loader_of(c, HT_DATA_TRAIN);
    ht_batch batch = data_case_next(c, loader);
    for (int row = 0; row < 2; row++) {
        const float *x = data_case_floats(&batch, "x") + (ptrdiff_t)row * 36;
        int label = data_case_ints(&batch, "label")[row];
        assert_string_equal(ht_data_class_name(c->data, label), label ? "dog" : "cat");
        assert_true(fabsf(x[0] - (label ? 0.2f : 0)) < 1e-6f);
        assert_true(fabsf(x[24] - 1) < 1e-6f);
    }
    data_case_drop(&batch);
    ht_loader_free(loader);
}

static void images__other_sizes_are_resized_or_refused(void **state)
{
    data_case *c = *state;
    write_png(c, "a/1.png", 4, 4, 10);
    write_png(c, "b/1.png", 8, 6, 10);
    data_case_refused(c, HT_TASK_CLASS, 1, "{\"format\": \"images\", \"train\": \".\"}", "8 by 6 pixels");
    data_case_open(c, HT_TASK_CLASS, 1,
                   "{\"format\": \"images\", \"train\": \".\", \"size\": [5, 6], \"channels\": 1}");
    assert_int_equal(ht_data_info_of(c->data)->feature[0] * 100 + ht_data_info_of(c->data)->feature[1] * 10 +
                         ht_data_info_of(c->data)->feature[2],
                     156);
    data_case_text(c, "b/2.png", "\x89PNG\r\n\x1a\n");
    data_case_refused(c, HT_TASK_CLASS, 1, "{\"format\": \"images\", \"train\": \".\", \"size\": 4}", "b/2.png: PNG");
    data_case_refused(c, HT_TASK_CLASS, 1, "{\"format\": \"images\", \"train\": \"a\"}", "no folders in it");
    data_case_refused(c, HT_TASK_CLASS, 1, "{\"format\": \"images\", \"train\": \"nowhere\"}", "nowhere: No such file");
    data_case_refused(c, HT_TASK_CLASS, 1, "{\"format\": \"images\", \"train\": \".\", \"channels\": 2}",
                      "1 or 3, not 2");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, data_case_begin, data_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(idx__labels_are_found_beside_the_images_and_stay_with_them),
        IN_FOLDER(idx__what_does_not_fit_together_is_refused),
        IN_FOLDER(tables__roles_by_name_and_normalisation_from_what_is_trained_on),
        IN_FOLDER(tables__regression_takes_the_last_column_unless_told),
        IN_FOLDER(tables__wrong_cells_and_columns_are_named),
        IN_FOLDER(arrays__npy_files_and_safetensors_give_the_same_rows),
        IN_FOLDER(images__folders_are_classes_and_channels_come_first),
        IN_FOLDER(images__other_sizes_are_resized_or_refused),
        IN_FOLDER(tables__classes_and_nan_are_as_the_keys_say),
        IN_FOLDER(arrays__classes_and_nan_are_as_the_keys_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
