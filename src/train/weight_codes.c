#include "train/weight_codes.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/op.h"
#include "train/nbits_tensors.h"
#include "train/train.h"

enum { FEWEST_BITS = 2, MOST_BITS = 8, NAME_BYTES = HT_TENSOR_NAME_BYTES };

/* ---- names ---- */

/* "w.int8" is the codes of w, "w.int8_scale" their scales: the bits, and the name of w. 0: it is no such name. */
static int bits_of(const char *name, const char *suffix, char base[NAME_BYTES])
{
    const char *dot = strrchr(name, '.');
    for (int bits = FEWEST_BITS; bits <= MOST_BITS && dot; bits++) {
        char end[32];
        snprintf(end, sizeof end, ".int%d%s", bits, suffix);
        if (strcmp(dot, end) != 0 || dot - name >= NAME_BYTES) continue;
        memcpy(base, name, (size_t)(dot - name));
        base[dot - name] = '\0';
        return bits;
    }
    return 0;
}

ht_tensor_form ht_tensor_form_of(const char *name, char base[HT_TENSOR_NAME_BYTES])
{
    ht_nbits_name words = ht_nbits_name_of(name);
    if (words.bits) snprintf(base, HT_TENSOR_NAME_BYTES, "%s", words.base);
    if (words.bits) return words.part == HT_NBITS_CODES ? HT_TENSOR_CODES : HT_TENSOR_SCALES;
    if (bits_of(name, "", base)) return HT_TENSOR_CODES;
    if (bits_of(name, "_scale", base)) return HT_TENSOR_SCALES;
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

/* The largest code of so many bits; the smallest is its negative. */
static int32_t last_code(int bits)
{
    return (1 << (bits - 1)) - 1;
}

static ht_status find_scales(const ht_tensor_source *s, const ht_named_array *weight, const blocks *b, int bits,
                             const ht_array *scale, float *to)
{
    memset(to, 0, scale->bytes);
    for (int64_t i = 0; i < weight->array.count; i++) {
        float x = fabsf((float)ht_array_number(&weight->array, i)), *most = &to[scale_of(b, i)];
        if (!isfinite(x))
            HT_FAIL(s->ctx, HT_EINVAL, "%s: element %" PRId64 " of '%s' is %g: it has no codes", s->path, i,
                    weight->name, ht_array_number(&weight->array, i));
        if (x > *most) *most = x;
    }
    for (int64_t i = 0; i < scale->count; i++) {
        to[i] /= (float)last_code(bits);
        if (to[i] < FLT_MIN) to[i] = FLT_MIN;
    }
    return HT_OK;
}

static void encode(const ht_array *weight, const blocks *b, const float *scale, int8_t *to)
{
    for (int64_t i = 0; i < weight->count; i++) {
        ht_coding coding = ht_coding_of(HT_I8, scale[scale_of(b, i)], 0);
        to[i] = (int8_t)ht_code_of(&coding, (float)ht_array_number(weight, i));
    }
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

/* Codes of a weight, or their scales: `scale` is as the plan wants them. */
static ht_status encode_one(const ht_tensor_source *s, const ht_snapshot_tensor *wanted, const char *base, int bits,
                            const ht_array *scale, const ht_named_array **out)
{
    const ht_named_array *weight = s->find(s->arg, base);
    ht_named_array *made;
    void *bytes;
    blocks b;
    bool codes = &wanted->array != scale;
    if (!weight || !is_float(&weight->array) || !find_blocks(&weight->array, scale, &b)) return HT_OK;
    if (codes && (!same_shape(&weight->array, &wanted->array) || wanted->array.element != HT_ELEMENT_I8)) return HT_OK;
    HT_TRY(make(s, wanted, &made, &bytes));
    float *scales = codes ? malloc(scale->bytes + 1) : bytes;
    ht_status status = scales ? find_scales(s, weight, &b, bits, scale, scales) : no_memory(s, wanted->name);
    if (status == HT_OK && codes) encode(&weight->array, &b, scales, bytes);
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
    const ht_named_array *codes = ht_safetensors_find(file, name), *scale = ht_safetensors_find(file, scale_name);
    if (!codes || !scale) HT_FAIL(ctx, HT_EINVAL, "%s: there is no tensor '%s'", path, codes ? scale_name : name);
    if (codes->array.element != HT_ELEMENT_I8 || !find_blocks(&codes->array, &scale->array, &b))
        HT_FAIL(ctx, HT_ESHAPE, "%s: '%s' is %s with scales %s", path, name, ht_array_describe(&codes->array).text,
                ht_array_describe(&scale->array).text);
    decode_elements(&codes->array, &scale->array, &b, HT_F32, data);
    return HT_OK;
}

static ht_status decode(const ht_tensor_source *s, const ht_snapshot_tensor *wanted, const ht_named_array *codes,
                        const ht_named_array *scale, const ht_named_array **out)
{
    ht_named_array *made;
    void *bytes;
    blocks b;
    if (codes->array.element != HT_ELEMENT_I8 || !same_shape(&codes->array, &wanted->array) ||
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
    for (int bits = FEWEST_BITS; bits <= MOST_BITS; bits++) {
        char name[NAME_BYTES];
        snprintf(name, sizeof name, "%.900s.int%d", wanted->name, bits);
        const ht_named_array *codes = s->find(s->arg, name);
        if (!codes) continue;
        snprintf(name, sizeof name, "%.900s.int%d_scale", wanted->name, bits);
        const ht_named_array *scale = s->find(s->arg, name);
        if (!scale) HT_FAIL(s->ctx, HT_EINVAL, "%s: there is no tensor '%s'", s->path, name);
        return decode(s, wanted, codes, scale, out);
    }
    return HT_OK;
}

ht_status ht_weight_convert(const ht_tensor_source *s, const ht_snapshot_tensor *wanted, const ht_named_array **out)
{
    char base[NAME_BYTES], scale_name[NAME_BYTES + 16];
    *out = NULL;
    HT_TRY(ht_nbits_convert(s, wanted, out));
    if (*out) return HT_OK;
    int bits = bits_of(wanted->name, "_scale", base);
    if (bits) return encode_one(s, wanted, base, bits, &wanted->array, out);
    bits = bits_of(wanted->name, "", base);
    if (!bits) return is_float(&wanted->array) ? decode_one(s, wanted, out) : HT_OK;
    snprintf(scale_name, sizeof scale_name, "%s.int%d_scale", base, bits);
    const ht_snapshot_tensor *scale = find_wanted(s, scale_name);
    return scale ? encode_one(s, wanted, base, bits, &scale->array, out) : HT_OK;
}

/* ---- ranges of activations ---- */

static bool ends_with(const char *name, const char *end)
{
    size_t length = strlen(name);
    return length > strlen(end) && strcmp(name + length - strlen(end), end) == 0;
}

bool ht_is_range(const char *name)
{
    return ends_with(name, ".in_scale") || ends_with(name, ".in_zero");
}

ht_status ht_range_check(ht_context *ctx, const char *path, const ht_named_array *tensor)
{
    bool scale = ends_with(tensor->name, ".in_scale") && tensor->array.count == 1;
    if (!scale || (ht_array_number(&tensor->array, 0) > 0 && isfinite(ht_array_number(&tensor->array, 0))))
        return HT_OK;
    HT_FAIL(ctx, HT_EINVAL, "%s: '%s' is %g: its activations were not calibrated (halftone compress, step quantize)",
            path, tensor->name, ht_array_number(&tensor->array, 0));
}
