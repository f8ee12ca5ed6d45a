/* halftone formats: the number types, asked rather than told: every number in the tables is found by rounding with the
 * functions that the kernels use. */
#include "cli/format_experiments.h"
#include "cli/option_table.h"
#include "cli/quantization.h"
#include "report/report.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const ht_dtype shown[] = {HT_F64, HT_F32, HT_F16, HT_BF16, HT_F8E4M3, HT_F8E5M2, HT_I8};
static const ht_dtype tried[] = {HT_F64, HT_F32, HT_F16, HT_BF16};
enum { SHOWN = sizeof shown / sizeof shown[0], TRIED = sizeof tried / sizeof tried[0] };

/* ---- what a type is like ---- */

typedef struct format_facts {
    int sign, exponent, mantissa;                   /* bits */
    double max, normal, subnormal, epsilon, digits; /* NAN: there is none */
    char bits[16];                                  /* s/e/m */
} format_facts;

static bool holds(ht_dtype dtype, double x)
{
    return isfinite(x) && ht_round_to(dtype, x) == x;
}

/* The largest number: the largest power of two, and below it every bit that fits. */
static double find_max(ht_dtype dtype, int mantissa)
{
    double power = 1;
    while (holds(dtype, power * 2)) power *= 2;
    double max = power;
    for (int bit = 1; bit <= mantissa; bit++) {
        double more = max + ldexp(power, -bit);
        if (holds(dtype, more)) max = more;
    }
    return max;
}

static format_facts find_float(ht_dtype dtype)
{
    format_facts f = {.sign = holds(dtype, -1)};
    while (1 + ldexp(1, -f.mantissa - 1) != 1 && holds(dtype, 1 + ldexp(1, -f.mantissa - 1))) f.mantissa++;
    f.exponent = 8 * (int)ht_dtype_bytes(dtype) - f.sign - f.mantissa;
    f.epsilon = ldexp(1, -f.mantissa);
    f.digits = (f.mantissa + 1) * log10(2);
    f.max = find_max(dtype, f.mantissa);
    f.normal = f.subnormal = 1;
    while (f.subnormal / 2 > 0 && holds(dtype, f.subnormal / 2)) f.subnormal /= 2;
    /* A normal number has a neighbour at the relative distance epsilon. */
    for (double half = 0.5; half + half * f.epsilon > half && holds(dtype, half + half * f.epsilon); half /= 2)
        f.normal = half;
    return f;
}

static format_facts find_integer(ht_dtype dtype)
{
    format_facts f = {.sign = holds(dtype, -1), .normal = NAN, .subnormal = NAN, .epsilon = NAN};
    f.mantissa = 8 * (int)ht_dtype_bytes(dtype) - f.sign;
    f.max = ht_round_to(dtype, HUGE_VAL);
    f.digits = f.mantissa * log10(2);
    return f;
}

static format_facts find_facts(ht_dtype dtype)
{
    format_facts f = ht_dtype_is_float(dtype) ? find_float(dtype) : find_integer(dtype);
    snprintf(f.bits, sizeof f.bits, "%d/%d/%d", f.sign, f.exponent, f.mantissa);
    return f;
}

/* ---- columns, for people and for programs ---- */

enum { TYPE_COLUMNS = 11, SUM_COLUMNS = 7, OSCILLATOR_COLUMNS = 5, QUANTIZATION_COLUMNS = 6 };

static void type_columns(ht_column columns[TYPE_COLUMNS], ht_dtype dtype, const format_facts *f)
{
    const ht_column all[TYPE_COLUMNS] = {
        {"name", "type", .cell = ht_cell_text(ht_dtype_name(dtype)), .width = 7},
        {NULL, "s/e/m", .cell = ht_cell_text(f->bits), .width = 7, .rank = 1},
        {"bytes", "bytes", .cell = ht_cell_int((int64_t)ht_dtype_bytes(dtype)), .width = 5},
        {"sign", .cell = ht_cell_int(f->sign)},
        {"exponent", .cell = ht_cell_int(f->exponent)},
        {"mantissa", .cell = ht_cell_int(f->mantissa)},
        {"max", "max", "%.6g", .cell = ht_cell_number(f->max), .width = 12},
        {"min_normal", "min normal", "%.6g", .cell = ht_cell_number(f->normal), .width = 12},
        {"min_subnormal", "min subnormal", "%.6g", .cell = ht_cell_number(f->subnormal), .width = 13},
        {"epsilon", "epsilon", "%.6g", .cell = ht_cell_number(f->epsilon), .width = 12},
        {"digits", "digits", "%.1f", .cell = ht_cell_number(f->digits), .width = 6},
    };
    memcpy(columns, all, sizeof all);
}

static void sum_columns(ht_column columns[SUM_COLUMNS], ht_dtype dtype, const cli_sum *s)
{
    bool wider = dtype == HT_F64; /* than what it would be added up in */
    const ht_column all[SUM_COLUMNS] = {
        {"name", "type", .cell = ht_cell_text(ht_dtype_name(dtype)), .width = 7},
        {"terms_error", "terms alone", "%.1e", .cell = ht_cell_number(s->terms_error), .width = 11, .rank = 1},
        {"sequential", "in the type", "%.6f", .cell = ht_cell_number(s->sequential), .width = 12},
        {"sequential_error", "error", "%.1e", .cell = ht_cell_number(s->sequential_error), .width = 8},
        {"last_change", "last change", .cell = ht_cell_int(s->last_change), .width = 11},
        {"f32", "in f32", "%.6f", .cell = ht_cell_number(wider ? NAN : s->accumulated), .width = 12},
        {"f32_error", "error", "%.1e", .cell = ht_cell_number(wider ? NAN : s->accumulated_error), .width = 8},
    };
    memcpy(columns, all, sizeof all);
}

static void oscillator_columns(ht_column columns[OSCILLATOR_COLUMNS], ht_dtype dtype, const cli_oscillator *o)
{
    const ht_column all[OSCILLATOR_COLUMNS] = {
        {"name", "type", .cell = ht_cell_text(ht_dtype_name(dtype)), .width = 7},
        {"energy_error", "energy error", "%.1e", .cell = ht_cell_number(o->energy_error), .width = 12},
        {"worst_energy_error", "worst", "%.1e", .cell = ht_cell_number(o->worst_energy), .width = 12},
        {"phase_error", "phase error", "%.1e rad", .cell = ht_cell_number(o->phase_error), .width = 14, .right = true},
        {"amplitude", "amplitude", "%.6f", .cell = ht_cell_number(o->amplitude), .width = 9},
    };
    memcpy(columns, all, sizeof all);
}

static void quantization_columns(ht_column columns[QUANTIZATION_COLUMNS], const cli_quantization *q)
{
    const ht_column all[QUANTIZATION_COLUMNS] = {
        {"name", "type", .cell = ht_cell_text(q->name), .width = 13},
        {"bytes", "bytes", .cell = ht_cell_int(q->bytes), .width = 8},
        {"rms_error", "rms error", "%.1e", .cell = ht_cell_number(q->rms_error), .width = 9},
        {"max_error", "max error", "%.1e", .cell = ht_cell_number(q->max_error), .width = 9},
        {"dead", "become 0", "%.1e", .cell = ht_cell_number(q->dead), .width = 8},
        {"dot_error", "of products", "%.1e", .cell = ht_cell_number(q->dot_error), .width = 11},
    };
    memcpy(columns, all, sizeof all);
}

/* ---- for people ---- */

/* A letter for each bit: sign, exponent, mantissa; of an integer its digits. */
static void add_bits(ht_text *text)
{
    ht_text_add(text, "\nBit by bit, the most significant first: s sign, e exponent, m mantissa, d digits\n");
    for (size_t i = 0; i < SHOWN; i++) {
        format_facts f = find_facts(shown[i]);
        const struct {
            int count;
            char letter;
        } fields[] = {{f.sign, 's'}, {f.exponent, 'e'}, {f.mantissa, ht_dtype_is_float(shown[i]) ? 'm' : 'd'}};
        ht_text_add(text, "%-8s", ht_dtype_name(shown[i]));
        for (size_t k = 0; k < sizeof fields / sizeof fields[0]; k++) {
            if (fields[k].count > 0) ht_text_add(text, " ");
            for (int bit = 0; bit < fields[k].count; bit++) ht_text_add(text, "%c", fields[k].letter);
        }
        ht_text_add(text, "\n");
    }
}

static void add_types(ht_text *text)
{
    ht_table table = {0};
    for (size_t i = 0; i < SHOWN; i++) {
        ht_column columns[TYPE_COLUMNS];
        format_facts f = find_facts(shown[i]);
        type_columns(columns, shown[i], &f);
        ht_table_row(&table, columns, TYPE_COLUMNS);
    }
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
}

static void add_sums(ht_text *text, const cli_sum *sums)
{
    ht_table table = {0};
    ht_text_add(text,
                "\nA sum of %d random terms between 0 and 2^-9, each rounded to the type; exactly %.6f.\n"
                "In order, rounded to the type after every addition; then the same terms added up in f32.\n",
                CLI_SUM_TERMS, sums[0].exact);
    for (size_t i = 0; i < TRIED; i++) {
        ht_column columns[SUM_COLUMNS];
        sum_columns(columns, tried[i], &sums[i]);
        ht_table_row(&table, columns, SUM_COLUMNS);
    }
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
}

static void add_oscillators(ht_text *text, const cli_oscillator *o)
{
    ht_table table = {0};
    ht_text_add(text,
                "\nAn oscillator, x'' = -x from x = 1: %d leapfrog steps of 1/16, %.1f periods. Errors are those of "
                "rounding alone.\n",
                CLI_OSCILLATOR_STEPS, o[0].periods);
    for (size_t i = 0; i < TRIED; i++) {
        ht_column columns[OSCILLATOR_COLUMNS];
        oscillator_columns(columns, tried[i], &o[i]);
        ht_table_row(&table, columns, OSCILLATOR_COLUMNS);
    }
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
}

static void add_quantizations(ht_text *text, const cli_matrix *matrix, const cli_quantization *q)
{
    ht_table table = {0};
    ht_text_add(text,
                "\nA weight matrix, %" PRId64 " x %" PRId64
                ": %s. Errors are relative; an i8 counts steps of a scale, by "
                "which the largest weight is 127.\n",
                matrix->rows, matrix->columns, matrix->name);
    for (int i = 0; i < CLI_QUANTIZATIONS; i++) {
        ht_column columns[QUANTIZATION_COLUMNS];
        quantization_columns(columns, &q[i]);
        ht_table_row(&table, columns, QUANTIZATION_COLUMNS);
    }
    ht_table_print(text, &table, cli_columns());
    ht_table_free(&table);
}

/* ---- for programs ---- */

static void put_quantizations(ht_json_writer *json, const cli_matrix *matrix, const cli_quantization *q)
{
    ht_json_line(json, 2);
    ht_json_begin_object(json, "matrix");
    ht_json_put_text(json, "name", matrix->name);
    ht_json_put_int(json, "rows", matrix->rows);
    ht_json_put_int(json, "columns", matrix->columns);
    ht_json_begin_array(json, "types");
    for (int i = 0; i < CLI_QUANTIZATIONS; i++) {
        ht_column columns[QUANTIZATION_COLUMNS];
        quantization_columns(columns, &q[i]);
        ht_json_line(json, 4);
        ht_json_put_row(json, columns, QUANTIZATION_COLUMNS);
    }
    ht_json_line(json, 2);
    ht_json_end_array(json);
    ht_json_end_object(json);
}

static void put_types(ht_json_writer *json)
{
    ht_json_line(json, 2);
    ht_json_begin_array(json, "types");
    for (size_t i = 0; i < SHOWN; i++) {
        ht_column columns[TYPE_COLUMNS];
        format_facts f = find_facts(shown[i]);
        type_columns(columns, shown[i], &f);
        ht_json_line(json, 4);
        ht_json_put_row(json, columns, TYPE_COLUMNS);
    }
    ht_json_line(json, 2);
    ht_json_end_array(json);
}

static void put_sums(ht_json_writer *json, const cli_sum *sums)
{
    ht_json_line(json, 2);
    ht_json_begin_object(json, "sum");
    ht_json_put_int(json, "terms", CLI_SUM_TERMS);
    ht_json_put_number(json, "exact", sums[0].exact);
    ht_json_begin_array(json, "types");
    for (size_t i = 0; i < TRIED; i++) {
        ht_column columns[SUM_COLUMNS];
        sum_columns(columns, tried[i], &sums[i]);
        ht_json_line(json, 4);
        ht_json_put_row(json, columns, SUM_COLUMNS);
    }
    ht_json_line(json, 2);
    ht_json_end_array(json);
    ht_json_end_object(json);
}

static void put_oscillators(ht_json_writer *json, const cli_oscillator *o)
{
    ht_json_line(json, 2);
    ht_json_begin_object(json, "oscillator");
    ht_json_put_int(json, "steps", CLI_OSCILLATOR_STEPS);
    ht_json_put_number(json, "periods", o[0].periods);
    ht_json_begin_array(json, "types");
    for (size_t i = 0; i < TRIED; i++) {
        ht_column columns[OSCILLATOR_COLUMNS];
        oscillator_columns(columns, tried[i], &o[i]);
        ht_json_line(json, 4);
        ht_json_put_row(json, columns, OSCILLATOR_COLUMNS);
    }
    ht_json_line(json, 2);
    ht_json_end_array(json);
    ht_json_end_object(json);
}

/* ---- the command ---- */

typedef struct formats_options {
    bool json;
    const char *weights; /* a file; NULL: none */
} formats_options;

/* What was measured. */
typedef struct experiments {
    cli_sum sums[TRIED];
    cli_oscillator oscillators[TRIED];
    cli_matrix matrix;
    cli_quantization quantizations[CLI_QUANTIZATIONS];
} experiments;

static void add_json(ht_text *text, const experiments *e)
{
    ht_json_writer json = {.text = text};
    ht_json_begin_object(&json, NULL);
    put_types(&json);
    put_sums(&json, e->sums);
    put_oscillators(&json, e->oscillators);
    put_quantizations(&json, &e->matrix, e->quantizations);
    ht_json_line(&json, 0);
    ht_json_end_object(&json);
    ht_text_add(text, "\n");
}

static void add_tables(ht_text *text, const experiments *e)
{
    add_types(text);
    add_bits(text);
    add_sums(text, e->sums);
    add_oscillators(text, e->oscillators);
    add_quantizations(text, &e->matrix, e->quantizations);
}

static int run_formats(void *arg)
{
    const formats_options *o = arg;
    experiments e = {.matrix = {0}};
    ht_context *ctx;
    int end = cli_context(&ctx);
    if (end != CLI_DONE) return end;
    ht_status status = o->weights ? cli_matrix_read(&e.matrix, ctx, o->weights) : cli_matrix_train(&e.matrix, ctx);
    if (status == HT_OK) status = cli_quantize(e.quantizations, ctx, &e.matrix);
    if (status != HT_OK) {
        end = cli_fail(status == HT_EIO ? CLI_WRONG : cli_end_of(status), "formats: %s", ht_context_message(ctx));
    } else {
        ht_text text = {0};
        for (size_t i = 0; i < TRIED; i++) {
            cli_sum_try(&e.sums[i], tried[i]);
            cli_oscillator_try(&e.oscillators[i], tried[i]);
        }
        if (o->json)
            add_json(&text, &e);
        else
            add_tables(&text, &e);
        end = o->json ? cli_put(&text) : cli_show(&text);
    }
    cli_matrix_free(&e.matrix);
    ht_context_free(ctx);
    return end;
}

static const cli_option options[] = {
    {"--weights", "FILE", CLI_TEXT, offsetof(formats_options, weights),
     .help = "quantize the largest matrix of this safetensors file, not one that is trained for the purpose",
     .flags = CLI_FILLED, .takes = "a file"},
    {"--json", NULL, CLI_FLAG, offsetof(formats_options, json),
     .help = "one object: {\"types\": [{\"name\", \"bytes\", \"sign\", \"exponent\", \"mantissa\", \"max\", "
             "\"min_normal\", \"min_subnormal\", \"epsilon\", \"digits\"}], \"sum\": {\"terms\", \"exact\", \"types\": "
             "[{\"name\", \"terms_error\", \"sequential\", \"sequential_error\", \"last_change\", \"f32\", "
             "\"f32_error\"}]}, \"oscillator\": {\"steps\", \"periods\", \"types\": [{\"name\", \"energy_error\", "
             "\"worst_energy_error\", \"phase_error\", \"amplitude\"}]}, \"matrix\": {\"name\", \"rows\", "
             "\"columns\", \"types\": [{\"name\", \"bytes\", \"rms_error\", \"max_error\", \"dead\", "
             "\"dot_error\"}]}}; what a type does not have is null"},
    {0},
};

static const cli_entry examples[] = {
    {"halftone formats", "the tables"},
    {"halftone formats --weights runs/demo/snapshots/step-00001600/weights.safetensors",
     "with a matrix of a model of one's own"},
    {0},
};

const cli_command cmd_formats = {
    .name = "formats",
    .summary = "the number types: range and precision, and what they do to sums, oscillators and weights",
    .description =
        "Prints the number types: bits of sign, exponent and mantissa, bytes, largest value, smallest normal and "
        "subnormal value, the distance from 1 to the next number (epsilon), decimal digits; and draws their bits. Then "
        "two small computations in f64, f32, f16 and bf16 with their errors: ten million numbers added one after the "
        "other, in the type itself and in f32, and 10,000 steps of an oscillator. Then a weight matrix in 16 and 8 "
        "bits: i8 beside the floats, with one scale for the matrix and with one for each row. Everything is measured "
        "while the command runs.",
    .options = options,
    .size = sizeof(formats_options),
    .run = run_formats,
    .examples = examples,
    .see_also = "compare explain",
};
