#include "train/weight_codes.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pass/pass.h"
#include "train/nbits_tensors.h"
#include "train/range_tensors.h"
#include "train/train.h"

enum { NAME_BYTES = HT_TENSOR_NAME_BYTES };

/* ---- names ---- */

/* "w.int8" is the codes of w, "w.int8_scale" their scales: the format, and the name of w. NULL: it is no such name. */
static const ht_code_format *format_of(const char *name, const char *suffix, char base[NAME_BYTES])
{
    const char *dot = strrchr(name, '.');
    size_t length = dot ? strlen(dot + 1) : 0, tail = strlen(suffix);
    if (!dot || dot - name >= NAME_BYTES || length < tail || strcmp(dot + 1 + length - tail, suffix) != 0) return NULL;
    const ht_code_format *format = ht_code_format_find(dot + 1, length - tail);
    if (!format) return NULL;
    memcpy(base, name, (size_t)(dot - name));
    base[dot - name] = '\0';
    return format;
}

ht_tensor_form ht_tensor_form_of(const char *name, char base[HT_TENSOR_NAME_BYTES])
{
    ht_nbits_name words = ht_nbits_name_of(name);
    if (words.bits) snprintf(base, HT_TENSOR_NAME_BYTES, "%s", words.base);
    if (words.bits) return words.part == HT_NBITS_CODES ? HT_TENSOR_CODES : HT_TENSOR_SCALES;
    if (format_of(name, "", base)) return HT_TENSOR_CODES;
    if (format_of(name, "_scale", base)) return HT_TENSOR_SCALES;
    snprintf(base, HT_TENSOR_NAME_BYTES, "%s", name);
    return HT_TENSOR_PLAIN;
}

/* ---- elements that share a scale ---- */

typedef struct blocks {
    int rank;
    int64_t dim[HT_MAX_RANK];    /* of the weight */
    int64_t size[HT_MAX_RANK];   /* of a block */
    int64_t stride[HT_MAX_RANK]; /* in scales */
} blocks;

/* Scales are single, or have the rank of the weight and divide its axes. */
static bool find_blocks(const ht_array *weight, const ht_array *scale, blocks *out)
{
    int64_t step = 1;
    *out = (blocks){.rank = weight->rank};
    if (scale->element != HT_ELEMENT_F32 || (scale->rank != 0 && scale->rank != weight->rank)) return false;
    for (int i = weight->rank - 1; i >= 0; i--) {
        int64_t parts = scale->rank ? scale->shape[i] : 1;
        if (parts < 1 || weight->shape[i] % parts != 0) return false;
        out->dim[i] = weight->shape[i];
        out->size[i] = weight->shape[i] > 0 ? weight->shape[i] / parts : 1;
        out->stride[i] = step;
        step *= parts;
    }
    return true;
}

static int64_t scale_of(const blocks *b, int64_t element)
{
    int64_t at = 0;
    for (int i = b->rank - 1; i >= 0; i--) {
        at += element % b->dim[i] / b->size[i] * b->stride[i];
        element /= b->dim[i];
    }
    return at;
}

/* ---- floats to codes ---- */

static ht_status need_finite(const ht_tensor_source *s, const ht_named_array *weight)
{
    for (int64_t i = 0; i < weight->array.count; i++)
        if (!isfinite((float)ht_array_number(&weight->array, i)))
            HT_FAIL(s->ctx, HT_EINVAL, "%s: element %" PRId64 " of '%s' is %g: it has no codes", s->path, i,
                    weight->name, ht_array_number(&weight->array, i));
    return HT_OK;
}

/* The mean magnitude of those elements of each block that are larger than `least` has it; NULL: of all. */
static bool find_means(const ht_array *weight, const blocks *b, int64_t count, const float *least, float *to)
{
    double *sums = calloc((size_t)count + 1, sizeof *sums);
    int64_t *numbers = calloc((size_t)count + 1, sizeof *numbers);
    for (int64_t i = 0; sums && numbers && i < weight->count; i++) {
        int64_t at = scale_of(b, i);
        float x = fabsf((float)ht_array_number(weight, i));
        if (least && !(x > least[at])) continue;
        sums[at] += (double)x;
        numbers[at]++;
    }
    for (int64_t i = 0; sums && numbers && i < count; i++)
        to[i] = (float)(sums[i] / (double)(numbers[i] ? numbers[i] : 1));
    bool done = sums && numbers;
    free(sums);
    free(numbers);
    return done;
}

static void find_largest(const ht_array *weight, const blocks *b, int64_t count, float last, float *to)
{
    memset(to, 0, (size_t)count * sizeof *to);
    for (int64_t i = 0; i < weight->count; i++) {
        float x = fabsf((float)ht_array_number(weight, i)), *most = &to[scale_of(b, i)];
        if (x > *most) *most = x;
    }
    for (int64_t i = 0; i < count; i++) to[i] /= last;
}

static void encode(const ht_array *weight, const blocks *b, const ht_code_format *format, const float *scale,
                   const float *least, int8_t *to)
{
    for (int64_t i = 0; i < weight->count; i++) {
        int64_t at = scale_of(b, i);
        float x = (float)ht_array_number(weight, i);
        ht_coding coding = ht_coding_of(HT_I8, scale[at], 0);
        switch (format->kind) {
        case HT_CODES_INT: to[i] = (int8_t)ht_code_of(&coding, x); break;
        case HT_CODES_BINARY: to[i] = x >= 0 ? 1 : -1; break;
        case HT_CODES_TERNARY: to[i] = (int8_t)(fabsf(x) > least[at] ? (x > 0) - (x < 0) : 0); break;
        case HT_CODES_FP8: to[i] = (int8_t)ht_f8e4m3_from_f32(x / scale[at]).bits; break;
        }
    }
}

/* The codes of a weight, unless NULL, by its scales, which are found. */
static ht_status encode_weight(const ht_tensor_source *s, const ht_named_array *weight, const blocks *b,
                               const ht_code_format *format, int64_t count, float *scale, int8_t *codes)
{
    HT_TRY(need_finite(s, weight));
    float *least = calloc((size_t)count + 1, sizeof *least);
    bool done = least != NULL, ternary = format->kind == HT_CODES_TERNARY;
    if (format->kind == HT_CODES_INT || format->kind == HT_CODES_FP8) {
        find_largest(&weight->array, b, count, (float)format->last, scale);
    } else {
        done = done && find_means(&weight->array, b, count, NULL, scale);
        for (int64_t i = 0; done && i < count; i++) least[i] = scale[i] * (float)HT_TERNARY_SHARE;
        done = done && (!ternary || find_means(&weight->array, b, count, least, scale));
    }
    for (int64_t i = 0; i < count; i++) scale[i] = fmaxf(scale[i], FLT_MIN);
    if (done && codes) encode(&weight->array, b, format, scale, least, codes);
    free(least);
    return done ? HT_OK : ht_fail(s->ctx, HT_ENOMEM, "%s: out of memory for '%s'", s->path, weight->name);
}

/* ---- what is made ---- */

static ht_status no_memory(const ht_tensor_source *s, const char *name)
{
    return ht_fail(s->ctx, HT_ENOMEM, "%s: out of memory for '%s'", s->path, name);
}

/* A tensor as the plan wants it, with bytes to be filled. */
static ht_status make(const ht_tensor_source *s, const ht_snapshot_tensor *wanted, ht_named_array **out, void **bytes)
{
    *out = HT_NEW(s->arena, ht_named_array, 1);
    *bytes = HT_NEW(s->arena, uint8_t, wanted->array.bytes + 1);
    if (!*out || !*bytes) return no_memory(s, wanted->name);
    **out = (ht_named_array){wanted->name, wanted->array};
    (*out)->array.data = *bytes;
    return HT_OK;
}

static const ht_snapshot_tensor *find_wanted(const ht_tensor_source *s, const char *name)
{
    for (size_t i = 0; i < s->list->count; i++)
        if (strcmp(s->list->items[i].name, name) == 0) return &s->list->items[i];
    return NULL;
}

static bool is_float(const ht_array *array)
{
    ht_dtype dtype = ht_element_dtype(array->element);
    return dtype != HT_DTYPE_COUNT && ht_dtype_is_float(dtype);
}

static bool same_shape(const ht_array *a, const ht_array *b)
{
    return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

static bool is_of(const ht_array *codes, const ht_code_format *format)
{
    return ht_element_dtype(codes->element) == format->dtype;
}

/* Codes of a weight, or their scales: `scale` is as the plan wants them. */
static ht_status encode_one(const ht_tensor_source *s, const ht_snapshot_tensor *wanted, const char *base,
                            const ht_code_format *format, const ht_array *scale, const ht_named_array **out)
{
    const ht_named_array *weight = s->find(s->arg, base);
    ht_named_array *made;
    void *bytes;
    blocks b;
    bool codes = &wanted->array != scale;
    if (!weight || !is_float(&weight->array) || !find_blocks(&weight->array, scale, &b)) return HT_OK;
    if (codes && (!same_shape(&weight->array, &wanted->array) || !is_of(&wanted->array, format))) return HT_OK;
    HT_TRY(make(s, wanted, &made, &bytes));
    float *scales = codes ? malloc(scale->bytes + 1) : bytes;
    ht_status status = scales ? encode_weight(s, weight, &b, format, scale->count, scales, codes ? bytes : NULL)
                              : no_memory(s, wanted->name);
    if (codes) free(scales);
    *out = made;
    return status;
}

/* ---- codes to floats ---- */

static void decode_elements(const ht_array *codes, const ht_array *scale, const blocks *b, ht_dtype dtype, void *to)
{
    for (int64_t i = 0; i < codes->count; i++) {
        float step = (float)ht_array_number(scale, scale_of(b, i));
        ht_store_f64(to, dtype, i, (double)((float)ht_array_number(codes, i) * step));
    }
}

static const ht_named_array *find_in_file(void *arg, const char *name)
{
    return ht_safetensors_find(arg, name);
}

ht_status ht_tensor_decoded_shape(ht_context *ctx, ht_safetensors *file, const char *path, ht_named_array *codes)
{
    if (!ht_nbits_name_of(codes->name).bits) return HT_OK;
    codes->array.rank = 2;
    return ht_nbits_decode(ctx, path, find_in_file, file, codes->name, codes->array.shape, NULL);
}

ht_status ht_tensor_decode(ht_context *ctx, ht_safetensors *file, const char *path, const char *name, float *data)
{
    int64_t shape[2];
    if (ht_nbits_name_of(name).bits) return ht_nbits_decode(ctx, path, find_in_file, file, name, shape, data);
    char scale_name[NAME_BYTES];
    blocks b;
    snprintf(scale_name, sizeof scale_name, "%.900s_scale", name);
    char base[NAME_BYTES];
    const ht_code_format *format = format_of(name, "", base);
    const ht_named_array *codes = ht_safetensors_find(file, name), *scale = ht_safetensors_find(file, scale_name);
    if (!codes || !scale) HT_FAIL(ctx, HT_EINVAL, "%s: there is no tensor '%s'", path, codes ? scale_name : name);
    if (!format || !is_of(&codes->array, format) || !find_blocks(&codes->array, &scale->array, &b))
        HT_FAIL(ctx, HT_ESHAPE, "%s: '%s' is %s with scales %s", path, name, ht_array_describe(&codes->array).text,
                ht_array_describe(&scale->array).text);
    decode_elements(&codes->array, &scale->array, &b, HT_F32, data);
    return HT_OK;
}

static ht_status decode(const ht_tensor_source *s, const ht_snapshot_tensor *wanted, const ht_code_format *format,
                        const ht_named_array *codes, const ht_named_array *scale, const ht_named_array **out)
{
    ht_named_array *made;
    void *bytes;
    blocks b;
    if (!is_of(&codes->array, format) || !same_shape(&codes->array, &wanted->array) ||
        !find_blocks(&codes->array, &scale->array, &b))
        HT_FAIL(s->ctx, HT_ESHAPE, "%s: '%s' is %s with scales %s, and the model's weight is %s", s->path, codes->name,
                ht_array_describe(&codes->array).text, ht_array_describe(&scale->array).text,
                ht_array_describe(&wanted->array).text);
    HT_TRY(make(s, wanted, &made, &bytes));
    decode_elements(&codes->array, &scale->array, &b, ht_element_dtype(wanted->array.element), bytes);
    *out = made;
    return HT_OK;
}

static ht_status decode_one(const ht_tensor_source *s, const ht_snapshot_tensor *wanted, const ht_named_array **out)
{
    for (const ht_code_format *format = ht_code_formats; format->name; format++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%.900s.%s", wanted->name, format->name);
        const ht_named_array *codes = s->find(s->arg, name);
        if (!codes) continue;
        snprintf(name, sizeof name, "%.900s.%s_scale", wanted->name, format->name);
        const ht_named_array *scale = s->find(s->arg, name);
        if (!scale) HT_FAIL(s->ctx, HT_EINVAL, "%s: there is no tensor '%s'", s->path, name);
        return decode(s, wanted, format, codes, scale, out);
    }
    return HT_OK;
}

ht_status ht_weight_convert(const ht_tensor_source *s, const ht_snapshot_tensor *wanted, const ht_named_array **out)
{
    char base[NAME_BYTES], scale_name[NAME_BYTES + 32];
    *out = NULL;
    HT_TRY(ht_nbits_convert(s, wanted, out));
    if (*out) return HT_OK;
    if (ht_is_range(wanted->name)) return ht_range_convert(s, wanted, out);
    const ht_code_format *format = format_of(wanted->name, "_scale", base);
    if (format) return encode_one(s, wanted, base, format, &wanted->array, out);
    format = format_of(wanted->name, "", base);
    if (!format) return is_float(&wanted->array) ? decode_one(s, wanted, out) : HT_OK;
    snprintf(scale_name, sizeof scale_name, "%s.%s_scale", base, format->name);
    const ht_snapshot_tensor *scale = find_wanted(s, scale_name);
    return scale ? encode_one(s, wanted, base, format, &scale->array, out) : HT_OK;
}
