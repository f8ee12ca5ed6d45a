#include "train/nbits_tensors.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "op/op.h"

/* ---- names ---- */

static const char *const parts[] = {"", "_scale", "_zero", "_a_scale"}; /* as ht_nbits_name.part */
static const char *const kinds[] = {"q4", "q4t", "q8", "q8t"};
enum { PARTS = sizeof parts / sizeof parts[0], KINDS = sizeof kinds / sizeof kinds[0] };

ht_nbits_name ht_nbits_name_of(const char *tensor)
{
    ht_nbits_name name = {.bits = 0};
    const char *dot = strrchr(tensor, '.');
    for (int i = 0; dot && dot - tensor < HT_TENSOR_NAME_BYTES - 8 && i < KINDS * PARTS; i++) {
        char end[32];
        const char *kind = kinds[i / PARTS];
        snprintf(end, sizeof end, ".%s%s", kind, parts[i % PARTS]);
        if (strcmp(dot, end) != 0) continue;
        snprintf(name.base, sizeof name.base, "%.*s", (int)(dot - tensor), tensor);
        snprintf(name.codes, sizeof name.codes, "%.*s.%s", (int)(dot - tensor), tensor, kind);
        name.bits = kind[1] - '0';
        name.transposed = kind[2] == 't';
        name.part = i % PARTS;
    }
    return name;
}

/* ---- memory ---- */

/* A matrix as floats [k, n] and as codes, in an arena. */
typedef struct matrix {
    float *w;
    ht_nbits_codes codes;
} matrix;

static bool allocate(matrix *m, ht_arena *arena, ht_nbits_format format, int64_t k, int64_t n, int64_t groups)
{
    m->codes = (ht_nbits_codes){.format = format, .k = k, .n = n, .groups = groups};
    m->w = HT_NEW(arena, float, k *n);
    m->codes.codes = HT_NEW(arena, uint8_t, k * n);
    m->codes.scale = HT_NEW(arena, float, groups *n);
    m->codes.zero = HT_NEW(arena, uint8_t, groups * n);
    m->codes.a_scale = HT_NEW(arena, float, k);
    return m->w && m->codes.codes && m->codes.scale && m->codes.zero && m->codes.a_scale;
}

/* ---- codes to floats ---- */

typedef struct stored {
    const ht_named_array *part[PARTS];
    int64_t k, n, groups;
} stored;

/* The tensors of a weight; they are those of one matrix. */
static ht_status find_parts(stored *out, ht_context *ctx, const char *path, ht_find_tensor_fn find, void *arg,
                            const ht_nbits_name *name)
{
    static const ht_element elements[] = {HT_ELEMENT_I32, HT_ELEMENT_F32, HT_ELEMENT_U8, HT_ELEMENT_F32};
    static const int ranks[] = {2, 2, 2, 1};
    for (int i = 0; i < PARTS; i++) {
        char full[HT_TENSOR_NAME_BYTES + 16];
        snprintf(full, sizeof full, "%s%s", name->codes, parts[i]);
        out->part[i] = find(arg, full);
        if (!out->part[i] && i != HT_NBITS_ZERO) HT_FAIL(ctx, HT_EINVAL, "%s: there is no tensor '%s'", path, full);
        const ht_array *array = out->part[i] ? &out->part[i]->array : NULL;
        if (array && (array->element != elements[i] || array->rank != ranks[i]))
            HT_FAIL(ctx, HT_ESHAPE, "%s: '%s' is %s", path, full, ht_array_describe(array).text);
    }
    out->k = out->part[HT_NBITS_A_SCALE]->array.shape[0];
    out->n = out->part[HT_NBITS_SCALE]->array.shape[1];
    out->groups = out->part[HT_NBITS_SCALE]->array.shape[0];
    const ht_array *codes = &out->part[HT_NBITS_CODES]->array;
    const ht_array *zero = out->part[HT_NBITS_ZERO] ? &out->part[HT_NBITS_ZERO]->array : NULL;
    ht_type words = ht_nbits_type(name->bits, out->k, out->n);
    bool fits =
        out->groups > 0 && out->k % out->groups == 0 && codes->shape[0] == words.dim[0] && codes->shape[1] == out->n;
    if (zero) fits = fits && zero->shape[0] == out->groups && zero->shape[1] == out->n;
    if (!fits) HT_FAIL(ctx, HT_ESHAPE, "%s: '%s' and its scales are of different matrices", path, name->codes);
    return HT_OK;
}

static void decode(const stored *s, const ht_nbits_name *name, matrix *m, float *data)
{
    ht_nbits_codes *c = &m->codes;
    const ht_array *scale = &s->part[HT_NBITS_SCALE]->array, *a_scale = &s->part[HT_NBITS_A_SCALE]->array;
    ht_array_floats(scale, 0, scale->count, c->scale);
    ht_array_floats(a_scale, 0, a_scale->count, c->a_scale);
    memset(c->zero, ht_nbits_middle(name->bits), (size_t)(c->groups * c->n));
    if (s->part[HT_NBITS_ZERO]) memcpy(c->zero, s->part[HT_NBITS_ZERO]->array.data, (size_t)(c->groups * c->n));
    for (int64_t i = 0; i < c->k; i++)
        for (int64_t j = 0; j < c->n; j++) {
            int shift;
            int64_t at = ht_nbits_at(name->bits, c->n, i, j, &shift);
            uint32_t word = (uint32_t)(int32_t)ht_array_number(&s->part[HT_NBITS_CODES]->array, at);
            c->codes[i * c->n + j] = (uint8_t)(word >> shift & ((1u << name->bits) - 1));
            data[name->transposed ? j * c->k + i : i * c->n + j] = ht_nbits_value(c, i, j);
        }
}

ht_status ht_nbits_decode(ht_context *ctx, const char *path, ht_find_tensor_fn find, void *arg, const char *codes,
                          int64_t shape[2], float *data)
{
    ht_nbits_name name = ht_nbits_name_of(codes);
    stored s = {.k = 0};
    matrix m;
    HT_TRY(find_parts(&s, ctx, path, find, arg, &name));
    shape[0] = name.transposed ? s.n : s.k;
    shape[1] = name.transposed ? s.k : s.n;
    if (!data) return HT_OK;
    ht_nbits_format format = {.bits = name.bits, .group = s.k / s.groups};
    ht_arena *arena = ht_arena_create();
    bool there = arena && allocate(&m, arena, format, s.k, s.n, s.groups);
    if (there) decode(&s, &name, &m, data);
    ht_arena_free(arena);
    if (!there) HT_FAIL(ctx, HT_ENOMEM, "%s: out of memory for '%s'", path, codes);
    return HT_OK;
}

/* ---- floats to codes ---- */

static ht_status take_floats(const ht_tensor_source *s, const ht_named_array *weight, bool transposed, matrix *m)
{
    int64_t k = m->codes.k, n = m->codes.n;
    for (int64_t i = 0; i < k * n; i++) {
        double x = ht_array_number(&weight->array, i);
        if (!isfinite(x))
            HT_FAIL(s->ctx, HT_EINVAL, "%s: element %" PRId64 " of '%s' is %g: it has no codes", s->path, i,
                    weight->name, x);
        m->w[transposed ? i % k * n + i / k : i] = (float)x;
    }
    return HT_OK;
}

/* The part of the codes that is wanted. */
static void put_part(const ht_nbits_codes *c, int part, void *to)
{
    size_t grid = (size_t)(c->groups * c->n);
    if (part == HT_NBITS_CODES) ht_nbits_pack(c, to);
    if (part == HT_NBITS_SCALE) memcpy(to, c->scale, grid * sizeof *c->scale);
    if (part == HT_NBITS_ZERO) memcpy(to, c->zero, grid);
    for (int64_t i = 0; part == HT_NBITS_A_SCALE && i < c->k; i++) ((float *)to)[i] = 1;
}

static const ht_snapshot_tensor *find_wanted(const ht_tensor_source *s, const ht_nbits_name *name, int part)
{
    char full[HT_TENSOR_NAME_BYTES + 16];
    snprintf(full, sizeof full, "%s%s", name->codes, parts[part]);
    for (size_t i = 0; i < s->list->count; i++)
        if (strcmp(s->list->items[i].name, full) == 0) return &s->list->items[i];
    return NULL;
}

static ht_status encode(const ht_tensor_source *s, const ht_snapshot_tensor *wanted, const ht_nbits_name *name,
                        const ht_named_array **out)
{
    const ht_named_array *weight = s->find(s->arg, name->base);
    const ht_snapshot_tensor *scale = find_wanted(s, name, HT_NBITS_SCALE);
    if (!weight || !scale || weight->array.rank != 2 || scale->array.rank != 2) return HT_OK;
    int64_t k = weight->array.shape[name->transposed ? 1 : 0], n = weight->array.shape[name->transposed ? 0 : 1];
    int64_t groups = scale->array.shape[0];
    if (groups < 1 || k % groups != 0 || scale->array.shape[1] != n) return HT_OK;
    ht_nbits_format format = {
        .bits = name->bits, .group = k / groups, .symmetric = !find_wanted(s, name, HT_NBITS_ZERO)};
    matrix m;
    ht_named_array *made = HT_NEW(s->arena, ht_named_array, 1);
    void *bytes = HT_NEW(s->arena, uint8_t, wanted->array.bytes + 1);
    ht_arena *arena = ht_arena_create();
    ht_status status = made && bytes && arena && allocate(&m, arena, format, k, n, groups)
                           ? take_floats(s, weight, name->transposed, &m)
                           : ht_fail(s->ctx, HT_ENOMEM, "%s: out of memory for '%s'", s->path, wanted->name);
    if (status == HT_OK) {
        ht_nbits_round(&m.codes, m.w, NULL, 0, n);
        put_part(&m.codes, name->part, bytes);
        *made = (ht_named_array){wanted->name, wanted->array};
        made->array.data = bytes;
        *out = made;
    }
    ht_arena_free(arena);
    return status;
}

/* ---- both ---- */

static ht_status decode_wanted(const ht_tensor_source *s, const ht_snapshot_tensor *wanted, const char *codes,
                               const ht_named_array **out)
{
    int64_t shape[2], count = wanted->array.count;
    HT_TRY(ht_nbits_decode(s->ctx, s->path, s->find, s->arg, codes, shape, NULL));
    if (shape[0] != wanted->array.shape[0] || shape[1] != wanted->array.shape[1])
        HT_FAIL(s->ctx, HT_ESHAPE, "%s: '%s' is of [%" PRId64 ", %" PRId64 "], and the model's weight is %s", s->path,
                codes, shape[0], shape[1], ht_array_describe(&wanted->array).text);
    ht_named_array *made = HT_NEW(s->arena, ht_named_array, 1);
    uint8_t *bytes = HT_NEW(s->arena, uint8_t, wanted->array.bytes + 1);
    float *data = malloc((size_t)count * sizeof *data + 1);
    ht_status status = made && bytes && data
                           ? ht_nbits_decode(s->ctx, s->path, s->find, s->arg, codes, shape, data)
                           : ht_fail(s->ctx, HT_ENOMEM, "%s: out of memory for '%s'", s->path, wanted->name);
    for (int64_t i = 0; status == HT_OK && i < count; i++)
        ht_store_f64(bytes, ht_element_dtype(wanted->array.element), i, (double)data[i]);
    free(data);
    if (status != HT_OK) return status;
    *made = (ht_named_array){wanted->name, wanted->array};
    made->array.data = bytes;
    *out = made;
    return HT_OK;
}

ht_status ht_nbits_convert(const ht_tensor_source *s, const ht_snapshot_tensor *wanted, const ht_named_array **out)
{
    ht_nbits_name name = ht_nbits_name_of(wanted->name);
    ht_dtype dtype = ht_element_dtype(wanted->array.element);
    if (name.bits) return encode(s, wanted, &name, out);
    if (dtype == HT_DTYPE_COUNT || !ht_dtype_is_float(dtype) || wanted->array.rank != 2) return HT_OK;
    for (int i = 0; i < KINDS; i++) {
        char codes[HT_TENSOR_NAME_BYTES];
        snprintf(codes, sizeof codes, "%.900s.%s", wanted->name, kinds[i]);
        if (s->find(s->arg, codes)) return decode_wanted(s, wanted, codes, out);
    }
    return HT_OK;
}
