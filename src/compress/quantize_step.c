/* The step `quantize`: layers compute with codes from now on. The job says how (train.quantize); weights stay floats until the
 * result is written, so that steps behind this one can still change them. */
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compress/compression.h"

static const ht_key quantize_keys[] = {
    {"layers", HT_KEY_TEXT, "\"\"", 0, 0, NULL, "regular expression: weights whose name matches; all unless given"},
    {"weights", HT_KEY_CHOICE, "\"int8\"", 0, 0, "int8|int7|int6|int5|int4|int3|int2|ternary|binary|fp8",
     "codes of weights: ternary and binary ones by their mean magnitude, fp8 (e4m3) computed with floats"},
    {"activations", HT_KEY_CHOICE, "null", 0, 0, "int8|fp8|none",
     "codes of activations, fp8 with weights of fp8 and int8 with others; none: they stay floats"},
    {"granularity", HT_KEY_CHOICE, "\"channel\"", 0, 0, "tensor|channel", "elements of a weight that share a scale"},
    {"group", HT_KEY_INT, "null", 1, 1 << 20, NULL, "without codes of activations: inputs that share a scale"},
    {"method", HT_KEY_CHOICE, "\"rtn\"", 0, 0, "rtn|gptq|awq",
     "without codes of activations: round to nearest, or by what layers read in calibration.batches (32)"},
    {"calibration.batches", HT_KEY_INT, "null", 1, 1 << 20, NULL,
     "scales of activations from so many batches of the run's data, instead of from each row while the model runs"},
    {"calibration.method", HT_KEY_CHOICE, "\"minmax\"", 0, 0, HT_RANGE_METHODS,
     "the range: all numbers, a percentile of them, least divergence, least squared error"},
    {"calibration.percentile", HT_KEY_NUMBER, "99.99", 50, 100, NULL, "of percentile: numbers within the range"},
    {"calibration.data", HT_KEY_TEXT, "null", 0, 0, NULL, "files in place of data.train"},
    {"ranges", HT_KEY_CHOICE, "\"observed\"", 0, 0, "observed|learned",
     "with calibration, while steps behind train: ranges follow what layers read, or gradients (LSQ)"},
    {"smooth", HT_KEY_NUMBER, "null", 0, 1, NULL,
     "SmoothQuant's strength: how much of the outliers of activations moves into weights; needs calibration"},
    {"keep_slower", HT_KEY_BOOL, "false", 0, 0, NULL,
     "codes also for layers that they do not make faster on this machine, for a smaller file"},
    {"sensitivity", HT_KEY_BOOL, "false", 0, 0, NULL, "evaluate with the codes of each layer alone: which hurts most"},
    {"symmetric", HT_KEY_BOOL, "false", 0, 0, NULL, "activations have no zero point, as weights"},
    {0},
};

static bool is_word(const ht_fields *fields, const char *key, const char *word)
{
    return strcmp(ht_field_text(fields, key), word) == 0;
}

/* "int8", "fp8" or "none". */
static const char *activations_of(const ht_fields *fields)
{
    if (!ht_field_null(fields, "activations")) return ht_field_text(fields, "activations");
    return is_word(fields, "weights", "fp8") ? "fp8" : "int8";
}

/* Activations stay floats. */
static bool weights_alone(const ht_fields *fields)
{
    return strcmp(activations_of(fields), "none") == 0;
}

static const char *const methods[] = {"minmax", "percentile", "entropy", "mse"}; /* as ht_range_method */

static bool is_static(const ht_fields *fields)
{
    return !weights_alone(fields) && !ht_field_null(fields, "calibration.batches");
}

static ht_status check_weights_alone(ht_context *ctx, const ht_fields *fields)
{
    static const char *const keys[] = {"granularity", "calibration.method", "calibration.percentile"};
    const char *weights = ht_field_text(fields, "weights");
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (ht_field_given(fields, keys[i]))
            HT_FAIL(ctx, HT_EINVAL, "quantize.%s is given, and activations are none", keys[i]);
    if (strcmp(weights, "int4") != 0 && strcmp(weights, "int8") != 0)
        HT_FAIL(ctx, HT_EINVAL, "quantize.weights is %s; without codes of activations it is int4 or int8", weights);
    return HT_OK;
}

static ht_status quantize_check(ht_context *ctx, const ht_fields *fields)
{
    if (!is_static(fields) && is_word(fields, "ranges", "learned"))
        HT_FAIL(ctx, HT_EINVAL, "quantize.ranges is \"learned\", and %s",
                weights_alone(fields) ? "activations are none" : "calibration.batches is not given");
    if (weights_alone(fields)) return check_weights_alone(ctx, fields);
    if (is_word(fields, "weights", "fp8") != (strcmp(activations_of(fields), "fp8") == 0))
        HT_FAIL(ctx, HT_EINVAL, "quantize: weights are %s, and activations %s: fp8 goes with fp8",
                ht_field_text(fields, "weights"), activations_of(fields));
    if (is_word(fields, "weights", "fp8") && is_word(fields, "ranges", "learned"))
        HT_FAIL(ctx, HT_EINVAL, "quantize.ranges is \"learned\", and ranges of fp8 are not");
    if (ht_field_given(fields, "group") || ht_field_given(fields, "method"))
        HT_FAIL(ctx, HT_EINVAL, "quantize.%s is given, and activations are not none",
                ht_field_given(fields, "group") ? "group" : "method");
    static const char *const keys[] = {"calibration.method", "calibration.percentile", "calibration.data"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0] && !is_static(fields); i++)
        if (ht_field_given(fields, keys[i]))
            HT_FAIL(ctx, HT_EINVAL, "quantize.%s is given, and calibration.batches is not", keys[i]);
    if (!is_static(fields) && !ht_field_null(fields, "smooth"))
        HT_FAIL(ctx, HT_EINVAL, "quantize.smooth is given, and calibration.batches is not");
    return HT_OK;
}

/* ---- the job ---- */

/* The step as a group of train.quantize. */
static ht_status print_group(ht_compression *c, const ht_fields *fields)
{
    ht_text text = {0};
    ht_json_writer json = {.text = &text};
    if (c->quantize_count == HT_MOST_PARAM_PATTERNS)
        HT_FAIL(c->ctx, HT_EINVAL, "more than %d steps quantize", HT_MOST_PARAM_PATTERNS);
    ht_json_begin_object(&json, NULL);
    ht_json_put_text(&json, "layers", ht_field_text(fields, "layers"));
    bool alone = weights_alone(fields), grouped = !ht_field_null(fields, "group");
    ht_json_begin_object(&json, "weights");
    const char *weights = ht_field_text(fields, "weights");
    const ht_code_format *format = ht_code_format_find(weights, strlen(weights));
    if (format->kind == HT_CODES_INT)
        ht_json_put_int(&json, "bits", format->bits);
    else
        ht_json_put_text(&json, "format", weights);
    ht_json_put_text(&json, "granularity", grouped ? "group" : ht_field_text(fields, "granularity"));
    if (grouped) ht_json_put_int(&json, "group", ht_field_int(fields, "group"));
    if (alone) ht_json_put_bool(&json, "symmetric", ht_field_bool(fields, "symmetric"));
    ht_json_end_object(&json);
    if (alone) {
        ht_json_put_null(&json, "activations");
    } else {
        ht_json_begin_object(&json, "activations");
        const char *fixed = is_word(fields, "ranges", "learned") ? "learned" : "static";
        ht_json_put_text(&json, "range", is_static(fields) ? fixed : "dynamic");
        ht_json_put_bool(&json, "symmetric", ht_field_bool(fields, "symmetric"));
        ht_json_end_object(&json);
    }
    ht_json_end_object(&json);
    const char *group = text.failed ? NULL : ht_arena_text(c->arena, text.data, text.length);
    ht_text_free(&text);
    if (!group) HT_FAIL(c->ctx, HT_ENOMEM, "quantize: out of memory");
    memmove(c->quantize + 1, c->quantize, c->quantize_count++ * sizeof c->quantize[0]);
    c->quantize[0] = group; /* of several that match the first one counts */
    return HT_OK;
}

/* Layers that are not faster with codes keep their floats, whatever other groups say. */
static ht_status print_floats(ht_compression *c, ht_text *text)
{
    ht_json_writer json = {.text = text};
    ht_text names = {0};
    for (size_t i = 0; i < c->layer_count; i++) {
        if (c->layers[i].sparse || !c->layers[i].slower || c->layers[i].stays) continue;
        ht_text_add(&names, "%s", names.length ? "|" : "^(");
        ht_compression_add_name(&names, c->layers[i].name);
    }
    if (names.length) {
        ht_text_add(&names, ")$");
        ht_json_begin_object(&json, NULL);
        ht_json_put_text(&json, "layers", names.failed ? "" : names.data);
        ht_json_put_null(&json, "weights");
        ht_json_end_object(&json);
        ht_text_add(text, ", ");
    }
    bool failed = names.failed;
    ht_text_free(&names);
    return failed ? ht_fail(c->ctx, HT_ENOMEM, "quantize: out of memory") : HT_OK;
}

bool ht_compression_matches(const char *expression, const char *name)
{
    regex_t compiled;
    if (regcomp(&compiled, expression, REG_EXTENDED | REG_NOSUB) != 0) return false;
    bool found = regexec(&compiled, name, 0, NULL, 0) == 0;
    regfree(&compiled);
    return found;
}

ht_status ht_compression_put_only(const ht_compression *c, const char *weight, ht_text *text)
{
    for (size_t i = 0; i < c->quantize_count; i++) {
        const ht_json *group, *layers;
        ht_text name = {0};
        ht_json_writer json = {.text = text};
        HT_TRY(ht_json_parse(c->ctx, c->arena, "train.quantize", c->quantize[i], strlen(c->quantize[i]), &group));
        layers = ht_json_get(group, "layers");
        if (layers && !ht_compression_matches(layers->text, weight)) continue;
        ht_text_add(&name, "^");
        ht_compression_add_name(&name, weight);
        ht_text_add(&name, "$");
        ht_json_begin_array(&json, NULL);
        ht_json_begin_object(&json, NULL);
        ht_json_put_text(&json, "layers", name.failed ? "" : name.data);
        for (const ht_json *member = group->child; member; member = member->next)
            if (member != layers) ht_json_put_value(&json, member->key, member);
        ht_json_end_object(&json);
        ht_json_end_array(&json);
        text->failed |= name.failed;
        ht_text_free(&name);
        break;
    }
    return text->failed ? ht_fail(c->ctx, HT_ENOMEM, "quantize: out of memory") : HT_OK;
}

static ht_status set_job(ht_compression *c)
{
    ht_text text = {0};
    ht_status status = print_floats(c, &text);
    for (size_t i = 0; i < c->quantize_count; i++) ht_text_add(&text, "%s%s", i ? ", " : "", c->quantize[i]);
    if (status == HT_OK && text.failed) status = ht_fail(c->ctx, HT_ENOMEM, "quantize: out of memory");
    if (status == HT_OK) status = ht_compression_set(c, "train.quantize=[%s]", text.data);
    ht_text_free(&text);
    return status;
}

/* ---- what becomes of the weights ---- */

/* The run that evaluates with codes, of the folder's weights. */
static ht_status plan_evaluation(ht_compression *c, ht_plan **out)
{
    ht_config *config;
    HT_TRY(ht_compression_config(c, NULL, 0, &config));
    ht_run_request request = {
        .config = config, .mode = HT_RUN_EVALUATE, .folder = c->request->run, .data_folder = c->data_folder};
    ht_status status = ht_run_plan(out, c->ctx, &request);
    ht_config_free(config);
    return status;
}

/* Is it the state of a weight's codes? `name` receives that of the weight. */
static bool is_codes(const ht_slot *slot, char name[HT_TENSOR_NAME_BYTES])
{
    return slot->kind == HT_SLOT_STATE && ht_tensor_form_of(slot->name, name) == HT_TENSOR_CODES;
}

static void put_layers(const ht_compression *c, const ht_plan *plan, ht_json_writer *json)
{
    size_t count = 0;
    ht_json_begin_array(json, "layers");
    for (size_t i = 0; i < plan->slot_count; i++) {
        char name[HT_TENSOR_NAME_BYTES];
        if (!is_codes(&plan->slots[i], name)) continue;
        ht_json_line(json, 6);
        ht_json_begin_object(json, NULL);
        ht_json_put_text(json, "name", name);
        ht_json_put_text(json, "codes", strrchr(plan->slots[i].name, '.') + 1);
        ht_json_put_int(json, "elements", ht_type_elems(&plan->slots[i].type));
        ht_json_end_object(json);
        count++;
    }
    ht_json_end_array(json);
    ht_compression_note(c, "quantize: %zu layers read codes", count);
}

/* ---- the step ---- */

static ht_calibration calibration_of(const ht_fields *fields)
{
    ht_calibration how = {.layers = ht_field_text(fields, "layers"),
                          .batches = ht_field_int(fields, "calibration.batches"),
                          .percentile = ht_field_number(fields, "calibration.percentile"),
                          .data = ht_field_text(fields, "calibration.data"),
                          .symmetric = ht_field_bool(fields, "symmetric") || is_word(fields, "weights", "fp8")};
    while (strcmp(methods[how.method], ht_field_text(fields, "calibration.method")) != 0) how.method++;
    return how;
}

static ht_status calibrate(ht_compression *c, const ht_fields *fields, const ht_plan *plan, ht_json_writer *json)
{
    ht_calibration how = calibration_of(fields);
    ht_json_put_text(json, "method", methods[how.method]);
    ht_json_put_int(json, "batches", how.batches);
    if (!ht_field_null(fields, "smooth"))
        HT_TRY(ht_compression_smooth(c, ht_field_number(fields, "smooth"), &how, json));
    return ht_compression_calibrate(c, plan, &how, json);
}

static ht_status add_weight_only(ht_compression *c, const ht_fields *fields, ht_json_writer *json)
{
    enum { BATCHES = 32 };
    static const char *const roundings[] = {"rtn", "gptq", "awq"}; /* as ht_code_method */
    const char *method = ht_field_text(fields, "method"), *layers = ht_field_text(fields, "layers");
    ht_weight_only *to = &c->weight_only[c->weight_only_count++]; /* as many as groups of the job */
    *to = (ht_weight_only){.layers = layers, .data = ht_field_text(fields, "calibration.data")};
    while (strcmp(roundings[to->method], method) != 0) to->method++;
    to->batches = to->method == HT_CODES_RTN ? 0 : BATCHES;
    if (!ht_field_null(fields, "calibration.batches")) to->batches = ht_field_int(fields, "calibration.batches");
    ht_json_put_text(json, "method", method);
    return HT_OK;
}

/* What the step says of its layers; an earlier one's refusals of them are void. */
static void begin_layers(ht_compression *c, const char *layers)
{
    for (size_t i = 0; i < c->layer_count; i++)
        if (!c->layers[i].sparse && ht_compression_matches(layers, c->layers[i].name)) c->layers[i].slower = false;
}

/* Codes also where they are not faster: the recipe says so, or they are not for the time. Weights alone are codes for their size,
 * and fp8 is a simulation, which never is faster. */
static bool stays(const ht_fields *fields)
{
    return ht_field_bool(fields, "keep_slower") || weights_alone(fields) || is_word(fields, "weights", "fp8");
}

/* Which layers are not faster with codes: these keep their floats, unless they stay. */
static ht_status choose_layers(ht_compression *c, const ht_fields *fields)
{
    const char *layers = ht_field_text(fields, "layers");
    size_t slower = 0, count = 0;
    HT_TRY(ht_compression_time_layers(c, layers));
    for (size_t i = 0; i < c->layer_count; i++) {
        if (c->layers[i].sparse || !ht_compression_matches(layers, c->layers[i].name)) continue;
        c->layers[i].stays = stays(fields);
        slower += c->layers[i].slower && !c->layers[i].stays;
        count++;
    }
    if (!slower) return HT_OK;
    ht_compression_note(c, "quantize: %zu of %zu layers are not faster with codes here, and keep their floats", slower,
                        count);
    return set_job(c);
}

static ht_status quantize_apply(ht_compression *c, const ht_fields *fields, ht_json_writer *json)
{
    ht_plan *plan;
    if (c->pruned_count && is_word(fields, "weights", "binary"))
        HT_FAIL(c->ctx, HT_EINVAL,
                "quantize: binary weights have no code for the zeros that were pruned; ternary ones have");
    HT_TRY(print_group(c, fields));
    begin_layers(c, ht_field_text(fields, "layers"));
    HT_TRY(set_job(c));
    HT_TRY(choose_layers(c, fields));
    HT_TRY(plan_evaluation(c, &plan));
    ht_json_put_text(json, "weights", ht_field_text(fields, "weights"));
    ht_json_put_text(json, "activations", activations_of(fields));
    put_layers(c, plan, json);
    ht_status status = is_static(fields)       ? calibrate(c, fields, plan, json)
                       : weights_alone(fields) ? add_weight_only(c, fields, json)
                                               : HT_OK;
    ht_plan_free(plan);
    if (status == HT_OK && ht_field_bool(fields, "sensitivity"))
        status = ht_compression_scan_layers(c, ht_field_text(fields, "layers"));
    return status;
}

static ht_status quantize_prepare(ht_compression *c, const ht_fields *fields)
{
    bool given = !ht_field_null(fields, "calibration.data");
    return given ? ht_compression_check_files(c, ht_field_text(fields, "calibration.data")) : HT_OK;
}

const ht_step_kind ht_step_quantize = {
    .name = "quantize",
    .keys = quantize_keys,
    .check = quantize_check,
    .prepare = quantize_prepare,
    .apply = quantize_apply,
};

/* ---- the result ---- */

ht_status ht_compression_store_codes(ht_compression *c, const char *folder, ht_json_writer *json)
{
    ht_config *config;
    ht_run *run;
    if (!c->quantize_count) return HT_OK;
    HT_TRY(ht_compression_config(c, NULL, 0, &config));
    ht_run_request request = {.config = config,
                              .mode = HT_RUN_EVALUATE,
                              .folder = folder,
                              .data_folder = c->data_folder,
                              .init_weights = c->initial};
    ht_status status = ht_weights_write(&c->weights, c->ctx, c->initial);
    if (status == HT_OK) status = ht_run_open(&run, c->ctx, &request);
    if (status == HT_OK) {
        status = ht_compression_choose_codes(c, ht_run_session(run), json);
        if (status == HT_OK) status = ht_run_store_weights(run);
        ht_status closed = ht_run_close(run);
        if (status == HT_OK) status = closed;
    }
    ht_config_free(config);
    return status;
}

ht_status ht_compression_quantize_graph(const ht_config *config, ht_graph *graph)
{
    ht_pass_options *options = malloc(sizeof *options);
    if (!options) HT_FAIL(graph->ctx, HT_ENOMEM, "out of memory for a graph");
    *options = ht_pass_options_standard();
    options->quantize = ht_config_train(config)->quantize;
    ht_pass_env env = {.options = options};
    ht_status status = options->quantize.group_count ? ht_pass_run(graph, ht_pass_find("quantize"), &env) : HT_OK;
    free(options);
    return status;
}
