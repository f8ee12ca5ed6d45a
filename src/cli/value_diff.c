#include "cli/value_diff.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Values are partners when they have the same name; without one, when site, op, role, the op they are a gradient of, the
 * number of the result and the shape are the same, the first of such values with the first, and so on. */

typedef struct kept_value {
    const char *key;
    size_t index; /* in A's order */
    ht_type type; /* row-major */
    void *bytes;
    double scale;
    size_t met; /* of the first of those with one key: how many of them B has met */
} kept_value;

typedef struct cli_kept_list {
    kept_value *values;
    size_t count, capacity;
    size_t left_out; /* met, and not compared */
    double scale;
} kept_list;

/* One side while it walks. */
typedef struct walker {
    cli_value_diff *diff;
    ht_replay *replay;
    double scale;
    bool other_scale; /* than A's */
    ht_text key;
    ht_status status;
} walker;

enum { CHUNK = 1024 };

ht_status cli_value_diff_start(cli_value_diff *d, ht_context *ctx)
{
    *d = (cli_value_diff){.ctx = ctx, .arena = ht_arena_create(), .kept = calloc(1, sizeof(kept_list))};
    if (!d->arena || !d->kept) HT_FAIL(ctx, HT_ENOMEM, "out of memory for a comparison");
    return HT_OK;
}

void cli_value_diff_free(cli_value_diff *d)
{
    for (size_t i = 0; d->kept && i < d->kept->count; i++) free(d->kept->values[i].bytes);
    if (d->kept) free(d->kept->values);
    free(d->kept);
    free(d->pairs);
    ht_arena_free(d->arena);
}

static ht_status no_memory(walker *w)
{
    return w->status = ht_fail(w->diff->ctx, HT_ENOMEM, "out of memory: the values of a step are too many to be kept");
}

static const char *site_of(const ht_instr *instr)
{
    return instr->site ? instr->site : instr->origin_site;
}

/* False when memory is out. */
static bool make_key(walker *w, const ht_instr *instr, size_t result, const ht_type *type)
{
    const char *name = ht_replay_name(w->replay, instr, result), *site = site_of(instr);
    ht_text *key = &w->key;
    key->length = 0;
    if (name)
        ht_text_add(key, "%s %d", name, instr->role == HT_ROLE_UPDATE);
    else
        ht_text_add(key, "\n%s\n%s\n%s\n%d %zu", instr->call->op->name, site ? site : "",
                    instr->origin ? instr->origin : "", (int)instr->role, result);
    for (int i = 0; i < type->rank; i++) ht_text_add(key, " %lld", (long long)type->dim[i]);
    return !key->failed;
}

/* In an update, gradients are still scaled or not any more, and nothing says which but what it ends with; the scale itself
 * and what follows from it differ because they shall. */
static bool is_about_scale(const walker *w, const ht_instr *instr, const char *name)
{
    return instr->role == HT_ROLE_UPDATE && w->other_scale && (!name || strncmp(name, "loss_scale", 10) == 0);
}

/* ---- A ---- */

static void copy_elements(const ht_type *type, const void *from, void *to)
{
    ht_type plain = *type;
    ht_type_row_major(&plain);
    if (ht_type_contiguous(type)) {
        memcpy(to, from, (size_t)ht_type_bytes(type));
        return;
    }
    for (int64_t i = 0; i < ht_type_elems(type); i++) {
        double x;
        ht_trace_load(type, from, i, 1, &x);
        ht_store_f64(to, type->dtype, i, x);
    }
}

static bool keep(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data)
{
    walker *w = arg;
    kept_list *list = w->diff->kept;
    if (!ht_dtype_is_float(type->dtype)) return true;
    bool ok = make_key(w, instr, result, type) &&
              ht_grow((void **)&list->values, &list->capacity, list->count + 1, sizeof *list->values);
    kept_value value = {.index = list->count, .type = *type, .scale = instr->loss_scaled ? w->scale : 1};
    if (ok) value.key = ht_arena_text(w->diff->arena, w->key.data, w->key.length);
    if (ok) value.bytes = malloc((size_t)ht_type_bytes(type) + 1);
    if (!ok || !value.key || !value.bytes) {
        free(value.bytes);
        no_memory(w);
        return false;
    }
    copy_elements(type, data, value.bytes);
    ht_type_row_major(&value.type);
    list->values[list->count++] = value;
    return true;
}

static int by_key(const void *a, const void *b)
{
    const kept_value *x = a, *y = b;
    int order = strcmp(x->key, y->key);
    return order ? order : (x->index > y->index) - (x->index < y->index);
}

ht_status cli_value_diff_keep(cli_value_diff *d, ht_replay *a)
{
    walker w = {.diff = d, .replay = a, .scale = ht_session_loss_scale(ht_replay_session(a))};
    ht_status status = ht_replay_step(a, 1, 1, true, keep, &w);
    ht_text_free(&w.key);
    HT_TRY(status);
    HT_TRY(w.status);
    d->kept->scale = w.scale;
    if (d->kept->count) qsort(d->kept->values, d->kept->count, sizeof *d->kept->values, by_key);
    return HT_OK;
}

/* ---- B ---- */

/* The partner of the walker's key, or NULL. */
static kept_value *find_partner(walker *w)
{
    kept_list *list = w->diff->kept;
    size_t low = 0, high = list->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(list->values[middle].key, w->key.data) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == list->count || strcmp(list->values[low].key, w->key.data) != 0) return NULL;
    kept_value *partner = &list->values[low + list->values[low].met];
    if (partner >= list->values + list->count || strcmp(partner->key, w->key.data) != 0) return NULL;
    list->values[low].met++;
    return partner;
}

typedef struct sums {
    double difference, most[2], squares, square[2];
    bool broken; /* only one of two numbers is finite, or they are not the same infinity */
    bool identical;
} sums;

static void add_number(sums *s, double a, double b)
{
    if (a == b || (isnan(a) && isnan(b))) {
        if (!isfinite(a)) return;
    } else {
        s->identical = false;
        if (!isfinite(a) || !isfinite(b)) {
            s->broken = true;
            return;
        }
    }
    s->difference = fmax(s->difference, fabs(a - b));
    s->most[0] = fmax(s->most[0], fabs(a));
    s->most[1] = fmax(s->most[1], fabs(b));
    s->squares += (a - b) * (a - b);
    s->square[0] += a * a;
    s->square[1] += b * b;
}

static void measure(cli_pair *pair, const kept_value *a, double scale, const ht_type *type, const void *data)
{
    double x[CHUNK], y[CHUNK];
    sums s = {.identical = true};
    int64_t elems = ht_type_elems(type);
    for (int64_t at = 0; at < elems; at += CHUNK) {
        int64_t count = elems - at < CHUNK ? elems - at : CHUNK;
        ht_trace_load(&a->type, a->bytes, at, count, x);
        ht_trace_load(type, data, at, count, y);
        for (int64_t i = 0; i < count; i++) add_number(&s, x[i] / a->scale, y[i] / scale);
    }
    double most = fmax(s.most[0], s.most[1]), square = fmax(s.square[0], s.square[1]);
    pair->identical = s.identical;
    pair->max = s.broken ? INFINITY : most > 0 ? s.difference / most : 0;
    pair->rms = s.broken ? INFINITY : square > 0 ? sqrt(s.squares / square) : 0;
}

static const char *own(cli_value_diff *d, const char *text)
{
    return text ? ht_arena_text(d->arena, text, strlen(text)) : NULL;
}

static bool compare(void *arg, const ht_instr *instr, size_t result, const ht_type *type, const void *data)
{
    walker *w = arg;
    cli_value_diff *d = w->diff;
    if (!ht_dtype_is_float(type->dtype)) return true;
    if (!make_key(w, instr, result, type) ||
        !ht_grow((void **)&d->pairs, &d->capacity, d->count + 1, sizeof *d->pairs)) {
        no_memory(w);
        return false;
    }
    kept_value *partner = find_partner(w);
    const char *name = ht_replay_name(w->replay, instr, result);
    if (is_about_scale(w, instr, name)) {
        d->kept->left_out += partner != NULL;
        return true;
    }
    if (!partner) {
        d->only[1]++;
        return true;
    }
    cli_pair pair = {.name = own(d, name),
                     .op = instr->call->op->name,
                     .site = own(d, site_of(instr)),
                     .origin = instr->origin,
                     .role = instr->role,
                     .result = result,
                     .type = {partner->type, *type}};
    if ((name && !pair.name) || (site_of(instr) && !pair.site)) {
        no_memory(w);
        return false;
    }
    measure(&pair, partner, instr->loss_scaled ? w->scale : 1, type, data);
    d->pairs[d->count++] = pair;
    free(partner->bytes);
    partner->bytes = NULL;
    return true;
}

ht_status cli_value_diff_compare(cli_value_diff *d, ht_replay *b)
{
    walker w = {.diff = d, .replay = b, .scale = ht_session_loss_scale(ht_replay_session(b))};
    w.other_scale = w.scale != d->kept->scale;
    ht_status status = ht_replay_step(b, 1, 1, true, compare, &w);
    ht_text_free(&w.key);
    HT_TRY(status);
    HT_TRY(w.status);
    d->only[0] = d->kept->count - d->kept->left_out - d->count;
    return HT_OK;
}
