/* The step `prune`: sets weights to zero. What it chooses are blocks of a matrix (magnitude: of one element), two of every
 * four elements (2:4), or units: rows, heads and channels, with all that belongs to them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "compress/units.h"
#include "compress/whole_layers.h"

static const ht_key prune_keys[] = {
    {"method", HT_KEY_CHOICE, "\"magnitude\"", 0, 0, "magnitude|2:4|blocks|rows|heads|channels|layers|movement",
     "which weights become zero: the smallest, two of every four, the smallest blocks, rows of feed-forward parts, "
     "heads, channels of convolutions, whole layers, those that training moves towards zero"},
    {"layers", HT_KEY_TEXT, NULL, 0, 0, NULL, "regular expression: tensors of two and more axes whose name matches"},
    {"except", HT_KEY_TEXT, "null", 0, 0, NULL, "regular expression: of these, tensors that stay as they are"},
    {"ratio", HT_KEY_NUMBER, "null", 0, 1, NULL, "share of weights, blocks or units, above 0 and below 1"},
    {"scope", HT_KEY_CHOICE, "\"layer\"", 0, 0, "layer|global", "the ratio of each tensor, or of all of them together"},
    {"block", HT_KEY_INTS, "[4, 4]", 1, 1 << 20, NULL, "of blocks, and of movement if given: rows and columns"},
    {"axis", HT_KEY_INT, "null", 0, 1, NULL, "of 2:4: the axis of inputs; as the model's matrices lie unless given"},
    {"schedule", HT_KEY_CHOICE, "\"one-shot\"", 0, 0, "one-shot|cubic",
     "all at once, or in stages with steps of training between them, most of it early"},
    {"stages", HT_KEY_INT, "4", 2, 1000, NULL, "of cubic"},
    {"steps", HT_KEY_INT, "null", 1, INFINITY, NULL, "of cubic and movement: of training, all stages together"},
    {"lr", HT_KEY_NUMBER, "null", 0, INFINITY, NULL, "of cubic and movement: learning rate; the run's unless given"},
    {0},
};

static bool is_method(const ht_fields *fields, const char *method)
{
    return strcmp(ht_field_text(fields, "method"), method) == 0;
}

static bool is_global(const ht_fields *fields)
{
    return strcmp(ht_field_text(fields, "scope"), "global") == 0;
}

/* HT_UNIT_KINDS: single weights, or blocks of them. */
static ht_unit_kind unit_kind(const ht_fields *fields)
{
    ht_unit_kind kind = 0;
    while (kind < HT_UNIT_KINDS && !is_method(fields, ht_unit_names[kind])) kind++;
    return kind;
}

static bool is_cubic(const ht_fields *fields)
{
    return strcmp(ht_field_text(fields, "schedule"), "cubic") == 0;
}

static ht_status prune_check(ht_context *ctx, const ht_fields *fields)
{
    bool pairs = is_method(fields, "2:4");
    if (ht_field_null(fields, "ratio") && !pairs) HT_FAIL(ctx, HT_EINVAL, "prune: ratio must be given");
    double ratio = ht_field_null(fields, "ratio") ? 0.5 : ht_field_number(fields, "ratio");
    if (!(ratio > 0 && ratio < 1)) HT_FAIL(ctx, HT_EINVAL, "prune: ratio %g is not above 0 and below 1", ratio);
    if (pairs && ratio != 0.5) HT_FAIL(ctx, HT_EINVAL, "prune: 2:4 has the ratio 0.5, not %g", ratio);
    if (ht_field_count(fields, "block") != 2) HT_FAIL(ctx, HT_EINVAL, "prune: block is two numbers, rows and columns");
    if (is_cubic(fields) && pairs) HT_FAIL(ctx, HT_EINVAL, "prune: 2:4 is all or nothing: schedule must be one-shot");
    if (is_cubic(fields) && ht_field_null(fields, "steps"))
        HT_FAIL(ctx, HT_EINVAL, "prune: the schedule cubic needs steps");
    if (is_method(fields, "movement") && ht_field_null(fields, "steps"))
        HT_FAIL(ctx, HT_EINVAL, "prune: the method movement needs steps, in which it looks where weights move");
    if (is_cubic(fields) && ht_field_int(fields, "steps") < ht_field_int(fields, "stages"))
        HT_FAIL(ctx, HT_EINVAL, "prune: the schedule cubic needs at least one step for each stage");
    return HT_OK;
}

/* ---- blocks ---- */

/* A tensor as blocks of its matrix. */
typedef struct blocks {
    ht_weight *weight;
    int64_t height, width; /* of a block */
    int64_t across, count; /* blocks beside each other, and all */
    int64_t columns;       /* of the matrix */
    const double *scores;  /* of elements, instead of their squares; NULL: none */
} blocks;

static ht_status cut_blocks(ht_context *ctx, ht_weight *weight, int64_t height, int64_t width, blocks *out)
{
    int64_t rows = ht_weight_rows(weight), columns = ht_weight_columns(weight);
    if (rows % height != 0 || columns % width != 0)
        HT_FAIL(ctx, HT_ESHAPE, "prune: '%s' is %lld x %lld, which blocks of %lld x %lld do not tile", weight->name,
                (long long)rows, (long long)columns, (long long)height, (long long)width);
    *out = (blocks){weight, height, width, columns / width, rows / height * (columns / width), columns, NULL};
    return HT_OK;
}

static int64_t first_element(const blocks *b, int64_t block)
{
    return block / b->across * b->height * b->columns + block % b->across * b->width;
}

static double score_block(const blocks *b, int64_t block)
{
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < b->height; r++)
        for (int64_t k = 0; k < b->width; k++) {
            int64_t at = first_element(b, block) + r * b->columns + k;
            double x = ht_weight_get(b->weight, at);
            squares += x * x;
            if (b->scores) sum += b->scores[at];
        }
    if (b->scores && squares == 0) return -INFINITY; /* it was pruned before */
    return b->scores ? sum : squares;
}

static void clear_block(const blocks *b, int64_t block)
{
    for (int64_t r = 0; r < b->height; r++)
        for (int64_t k = 0; k < b->width; k++) ht_weight_clear(b->weight, first_element(b, block) + r * b->columns + k);
}

/* The blocks of these tensors with the smallest sums of squares. */
static ht_status clear_smallest(ht_context *ctx, const blocks *tensors, size_t count, double ratio)
{
    int64_t all = 0, at = 0;
    for (size_t i = 0; i < count; i++) all += tensors[i].count;
    ht_score *scores = calloc((size_t)all + 1, sizeof *scores);
    if (!scores) HT_FAIL(ctx, HT_ENOMEM, "prune: out of memory for %lld blocks", (long long)all);
    for (size_t i = 0; i < count; i++)
        for (int64_t block = 0; block < tensors[i].count; block++, at++)
            scores[at] = (ht_score){score_block(&tensors[i], block), (int64_t)i, block};
    ht_scores_sort(scores, (size_t)all);
    for (int64_t i = 0; i < llround(ratio * (double)all); i++) clear_block(&tensors[scores[i].tensor], scores[i].index);
    free(scores);
    return HT_OK;
}

static ht_status prune_blocks(ht_compression *c, const ht_fields *fields, double ratio, const bool *chosen)
{
    bool whole = is_method(fields, "blocks") || (is_method(fields, "movement") && ht_field_given(fields, "block"));
    bool single = !whole, global = is_global(fields);
    int64_t height = single ? 1 : ht_field_int_at(fields, "block", 0);
    int64_t width = single ? 1 : ht_field_int_at(fields, "block", 1);
    blocks *tensors = calloc(c->weights.count + 1, sizeof *tensors);
    size_t count = 0;
    ht_status status = tensors ? HT_OK : ht_fail(c->ctx, HT_ENOMEM, "prune: out of memory");
    for (size_t i = 0; i < c->weights.count && status == HT_OK; i++)
        if (chosen[i]) {
            status = cut_blocks(c->ctx, &c->weights.items[i], height, width, &tensors[count]);
            tensors[count++].scores = ht_movement_scores(c->movement, c->weights.items[i].name);
        }
    for (size_t i = 0; i < count && status == HT_OK && !global; i++)
        status = clear_smallest(c->ctx, &tensors[i], 1, ratio);
    if (status == HT_OK && global) status = clear_smallest(c->ctx, tensors, count, ratio);
    free(tensors);
    return status;
}

/* ---- two of every four ---- */

/* The two smallest of four elements, `stride` apart; of equal ones the first. */
static void clear_two(ht_weight *weight, int64_t first, int64_t stride)
{
    double magnitude[4];
    for (int k = 0; k < 4; k++) magnitude[k] = fabs(ht_weight_get(weight, first + k * stride));
    for (int cleared = 0; cleared < 2; cleared++) {
        int least = 0;
        for (int k = 1; k < 4; k++)
            if (magnitude[k] < magnitude[least]) least = k;
        magnitude[least] = INFINITY;
        ht_weight_clear(weight, first + least * stride);
    }
}

/* Along the inputs of the layer, over which a product sums; those that are left over of four stay. */
static void prune_two_of_four(ht_weight *weight, int64_t axis)
{
    int64_t rows = ht_weight_rows(weight), columns = ht_weight_columns(weight);
    int64_t along = axis == 0 ? rows : columns, others = axis == 0 ? columns : rows;
    int64_t stride = axis == 0 ? columns : 1, next = axis == 0 ? 1 : columns;
    for (int64_t i = 0; i < others; i++)
        for (int64_t k = 0; k + 4 <= along; k += 4) clear_two(weight, i * next + k * stride, stride);
}

/* ---- the step ---- */

/* Along the axis over which the model's products sum. */
static ht_status prune_pairs(ht_compression *c, const ht_fields *fields, const bool *chosen)
{
    ht_coupling coupling;
    HT_TRY(ht_compression_coupling(c, &coupling));
    for (size_t i = 0; i < c->weights.count; i++) {
        int64_t axis = 1;
        for (size_t k = 0; k < coupling.count; k++)
            if (strcmp(coupling.tensors[k].name, c->weights.items[i].name) == 0 && coupling.tensors[k].axes[0].consumed)
                axis = 0;
        if (!ht_field_null(fields, "axis")) axis = ht_field_int(fields, "axis");
        if (chosen[i]) prune_two_of_four(&c->weights.items[i], axis);
    }
    return HT_OK;
}

/* `belong` receives the tensors that zeros lie in. */
static ht_status prune_to(ht_compression *c, const ht_fields *fields, double ratio, const bool *chosen, bool *belong)
{
    ht_units_request request = {.kind = unit_kind(fields), .ratio = ratio, .global = is_global(fields)};
    if (request.kind < HT_UNIT_KINDS) return ht_units_prune(c, &request, chosen, belong);
    if (is_method(fields, "layers")) return ht_layers_prune(c, ratio, chosen, belong);
    memcpy(belong, chosen, c->weights.count * sizeof *belong);
    return is_method(fields, "2:4") ? prune_pairs(c, fields, chosen) : prune_blocks(c, fields, ratio, chosen);
}

/* In stages the share of what is still there to be pruned falls with its third power. */
static double ratio_of_stage(double ratio, int64_t stage, int64_t stages)
{
    double left = 1 - (double)stage / (double)stages;
    return ratio * (1 - left * left * left);
}

static void put_layers(const ht_compression *c, const bool *chosen, ht_json_writer *json)
{
    ht_json_begin_array(json, "layers");
    for (size_t i = 0; i < c->weights.count; i++) {
        if (!chosen[i]) continue;
        ht_json_line(json, 6);
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "name", c->weights.items[i].name);
        ht_json_put_int(json, "elements", c->weights.items[i].array.count);
        ht_json_put_int(json, "zeros", ht_weight_zeros(&c->weights.items[i]));
        ht_json_end_object(json);
    }
    ht_json_end_array(json);
}

static ht_status train_between(ht_compression *c, const ht_fields *fields, int64_t stages)
{
    double lr = ht_field_null(fields, "lr") ? NAN : ht_field_number(fields, "lr");
    return ht_compression_tune(c, ht_field_int(fields, "steps") / stages, lr, NULL, NULL);
}

/* `matches` is for the moment. */
static ht_status leave_out(ht_compression *c, const char *expression, bool *chosen, bool *matches)
{
    bool some = false;
    HT_TRY(ht_weights_match(&c->weights, c->ctx, "prune.except", expression, 1, matches));
    for (size_t i = 0; i < c->weights.count; i++) {
        chosen[i] &= !matches[i];
        some |= chosen[i];
        matches[i] = false;
    }
    return some ? HT_OK : ht_fail(c->ctx, HT_EINVAL, "prune.except: it leaves none of the tensors of prune.layers");
}

static ht_status choose(ht_compression *c, const ht_fields *fields, bool *chosen, bool *belong)
{
    HT_TRY(ht_weights_match(&c->weights, c->ctx, "prune.layers", ht_field_text(fields, "layers"), 2, chosen));
    return ht_field_null(fields, "except") ? HT_OK : leave_out(c, ht_field_text(fields, "except"), chosen, belong);
}

static double ratio_of(const ht_fields *fields)
{
    return ht_field_null(fields, "ratio") ? 0.5 : ht_field_number(fields, "ratio");
}

/* Tensors are chosen anew in each stage, since training may leave them in another order; and it holds all zeros so far, also
 * those of layers that the first stage left alone. json: NULL but in the last stage. */
static ht_status prune_stage(ht_compression *c, const ht_fields *fields, double ratio, bool first, ht_json_writer *json)
{
    bool whole = unit_kind(fields) < HT_UNIT_KINDS || is_method(fields, "layers");
    bool *chosen = calloc(2 * (c->weights.count + 1), sizeof *chosen), *belong = chosen + c->weights.count + 1;
    if (!chosen) HT_FAIL(c->ctx, HT_ENOMEM, "prune: out of memory");
    ht_status status = choose(c, fields, chosen, belong);
    if (status == HT_OK) status = prune_to(c, fields, ratio, chosen, belong);
    if (!first) c->pruned_count--; /* what the stage before held, this one holds as well */
    if (status == HT_OK) status = ht_compression_hold_zeros(c, belong, whole ? ht_field_text(fields, "method") : NULL);
    if (status == HT_OK && json) put_layers(c, belong, json);
    free(chosen);
    return status;
}

/* Movement looks at steps before each stage, the other methods let weights recover behind all but the last. */
static ht_status prune_in_stages(ht_compression *c, const ht_fields *fields, ht_json_writer *json)
{
    int64_t stages = is_cubic(fields) ? ht_field_int(fields, "stages") : 1;
    for (int64_t stage = 1; stage <= stages; stage++) {
        double ratio = ratio_of_stage(ratio_of(fields), stage, stages);
        if (c->movement) HT_TRY(train_between(c, fields, stages));
        HT_TRY(prune_stage(c, fields, ratio, stage == 1, stage == stages ? json : NULL));
        if (stage < stages && !c->movement) HT_TRY(train_between(c, fields, stages));
    }
    return HT_OK;
}

static ht_status open_movement(ht_compression *c, const ht_fields *fields, ht_movement *movement)
{
    bool *chosen = calloc(2 * (c->weights.count + 1), sizeof *chosen);
    ht_status status = chosen ? choose(c, fields, chosen, chosen + c->weights.count + 1)
                              : ht_fail(c->ctx, HT_ENOMEM, "prune: out of memory");
    c->movement = movement;
    if (status == HT_OK) status = ht_movement_open(movement, c->ctx, &c->weights, chosen);
    free(chosen);
    return status;
}

static ht_status prune_apply(ht_compression *c, const ht_fields *fields, ht_json_writer *json)
{
    ht_movement movement = {0};
    bool last = c->last;
    c->last = false;
    ht_json_put_text(json, "method", ht_field_text(fields, "method"));
    ht_json_put_number(json, "ratio", ratio_of(fields));
    ht_status status = is_method(fields, "movement") ? open_movement(c, fields, &movement) : HT_OK;
    if (status == HT_OK) status = prune_in_stages(c, fields, json);
    ht_movement_close(&movement);
    c->movement = NULL;
    c->last = last;
    bool units = unit_kind(fields) < HT_UNIT_KINDS || is_method(fields, "layers"); /* which shrink removes */
    return status == HT_OK && !units ? ht_compression_choose_sparse(c) : status;
}

const ht_step_kind ht_step_prune = {
    .name = "prune",
    .keys = prune_keys,
    .check = prune_check,
    .apply = prune_apply,
};
