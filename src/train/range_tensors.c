#include "train/range_tensors.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "format/format.h"
#include "train/train.h"

enum { LAST_CODE = 255, NAME_BYTES = 1024 };

/* Places of the words. */
enum { IN_SCALE, IN_ZERO, IN_START, IN_GAIN, IN_LOW, WORDS };
static const char *const words[WORDS] = {".in_scale", ".in_zero", ".in_start", ".in_gain", ".in_low"};

/* WORDS: it is no such name. */
static int word_of(const char *name)
{
    const char *dot = strrchr(name, '.');
    int word = 0;
    while (word < WORDS && (!dot || strcmp(dot, words[word]) != 0)) word++;
    return word;
}

bool ht_is_range(const char *name)
{
    return word_of(name) < WORDS;
}

/* NAN: the file has no such number. */
static double number_of(const ht_tensor_source *s, const char *name, int word)
{
    char other[NAME_BYTES];
    snprintf(other, sizeof other, "%.*s%s", (int)(strrchr(name, '.') - name), name, words[word]);
    const ht_named_array *found = strlen(other) + 1 < sizeof other ? s->find(s->arg, other) : NULL;
    return found && found->array.count == 1 ? ht_array_number(&found->array, 0) : NAN;
}

static float or_else(double number, double otherwise)
{
    return (float)(isnan(number) ? otherwise : number);
}

/* In the steps of the pass `quantize`, so that a number is the same on both sides. */
static double convert(const ht_tensor_source *s, const char *name)
{
    float start = or_else(number_of(s, name, IN_START), number_of(s, name, IN_SCALE));
    double zero = number_of(s, name, IN_ZERO), low = number_of(s, name, IN_LOW);
    float gain = or_else(number_of(s, name, IN_GAIN), 1), least = fmaxf(start, FLT_MIN);
    switch (word_of(name)) {
    case IN_SCALE: return start > 0 ? (double)fmaxf(least * gain, FLT_MIN) : (double)start;
    case IN_ZERO: return (double)floorf(fminf(fmaxf(-(float)low / least + 0.5f, 0), LAST_CODE));
    case IN_LOW: return -(double)((float)zero * start);
    case IN_GAIN: return isnan(start) ? NAN : 1;
    default: return (double)start;
    }
}

ht_status ht_range_convert(const ht_tensor_source *s, const ht_snapshot_tensor *wanted, const ht_named_array **out)
{
    ht_named_array *made = HT_NEW(s->arena, ht_named_array, 1);
    uint8_t *bytes = HT_NEW(s->arena, uint8_t, wanted->array.bytes + 1);
    double number = convert(s, wanted->name);
    *out = NULL;
    if (isnan(number) || wanted->array.count != 1) return HT_OK;
    if (!made || !bytes) HT_FAIL(s->ctx, HT_ENOMEM, "%s: out of memory for '%s'", s->path, wanted->name);
    *made = (ht_named_array){wanted->name, wanted->array};
    made->array.data = bytes;
    if (wanted->array.element == HT_ELEMENT_I32)
        memcpy(bytes, &(int32_t){(int32_t)number}, sizeof(int32_t));
    else
        ht_store_f64(bytes, ht_element_dtype(wanted->array.element), 0, number);
    *out = made;
    return HT_OK;
}

ht_status ht_range_check(ht_context *ctx, const char *path, const ht_named_array *tensor)
{
    bool scale = word_of(tensor->name) == IN_SCALE && tensor->array.count == 1;
    if (!scale || (ht_array_number(&tensor->array, 0) > 0 && isfinite(ht_array_number(&tensor->array, 0))))
        return HT_OK;
    HT_FAIL(ctx, HT_EINVAL, "%s: '%s' is %g: its activations were not calibrated (halftone compress, step quantize)",
            path, tensor->name, ht_array_number(&tensor->array, 0));
}
