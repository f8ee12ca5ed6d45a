/* train_batch_size = train_micro_batch_size_per_gpu × gradient_accumulation_steps × ranks of the data axis: two give the
 * third. */
#include "config/internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { WHOLE, MICRO, TIMES, TRIO };

static const char *const train_names[TRIO] = {"batch", "micro_batch", "accumulate"};
static const char *const engine_names[TRIO] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                               "gradient_accumulation_steps"};

typedef struct trio {
    int64_t value[TRIO];         /* 0: not given */
    const ht_field *field[TRIO]; /* that gives it */
    block_id block[TRIO];
    char name[TRIO][200]; /* for messages */
} trio;

static void take_side(ht_config *c, trio *t, int i, block_id block, const char *name)
{
    const ht_field *field = ht_fields_find(c->blocks[block], name);
    if (!ht_is_given(c->blocks[block], name) || field->value->kind == HT_JSON_NULL) return;
    int64_t value = ht_field_int(c->blocks[block], name);
    if (c->lenient && t->value[i] != 0) {
        if (t->value[i] != value) ht_clash(c, t->field[i], field);
        return;
    }
    ht_text text = {0};
    ht_name_field(&text, c, block, field);
    if (t->value[i] != 0 && t->value[i] != value)
        ht_problems_error(&c->problems, NULL, "%s is %" PRId64 ", but %s is %" PRId64 ": leave out one of them",
                          t->name[i], t->value[i], text.failed ? name : text.data, value);
    t->value[i] = value;
    t->field[i] = field;
    t->block[i] = block;
    size_t length = text.failed ? 0 : text.length < sizeof t->name[i] ? text.length : sizeof t->name[i] - 1;
    if (length > 0) memcpy(t->name[i], text.data, length);
    t->name[i][length] = '\0';
    c->problems.failed |= text.failed;
    ht_text_free(&text);
}

/* What a batch is shared among. */
static const char *plural(const ht_config *c)
{
    bool all = c->data_ranks == c->ranks;
    return c->data_ranks == 1 ? all ? "rank" : "data rank" : all ? "ranks" : "data ranks";
}

/* whole / (a × ranks), which must leave nothing. */
static bool divide(ht_config *c, const trio *t, int by, int64_t *out)
{
    int64_t product;
    bool overflow = __builtin_mul_overflow(t->value[by], c->data_ranks, &product);
    if (!overflow && t->value[WHOLE] % product == 0) {
        *out = t->value[WHOLE] / product;
        return true;
    }
    if (overflow)
        ht_problems_error(&c->problems, NULL, "%s %" PRId64 " × %" PRId64 " %s is too large", t->name[by], t->value[by],
                          c->data_ranks, plural(c));
    else
        ht_problems_error(&c->problems, NULL,
                          "%s: %" PRId64 " is not a multiple of %s: %" PRId64 " × %" PRId64 " %s = %" PRId64
                          "; %" PRId64 " / %" PRId64 " leaves %" PRId64,
                          t->name[WHOLE], t->value[WHOLE], t->name[by], t->value[by], c->data_ranks, plural(c), product,
                          t->value[WHOLE], product, t->value[WHOLE] % product);
    return false;
}

static bool multiply(ht_config *c, const trio *t, int64_t *out)
{
    bool overflow = __builtin_mul_overflow(t->value[MICRO], t->value[TIMES], out);
    overflow |= __builtin_mul_overflow(*out, c->data_ranks, out);
    if (overflow)
        ht_problems_error(&c->problems, NULL, "%s: %" PRId64 " × %" PRId64 " × %" PRId64 " %s is too large",
                          t->name[MICRO], t->value[MICRO], t->value[TIMES], c->data_ranks, plural(c));
    return !overflow;
}

static void check_all(ht_config *c, const trio *t)
{
    int64_t product, per_rank;
    if (!multiply(c, t, &product) || product == t->value[WHOLE]) return;
    char hint[80] = "";
    per_rank = t->value[MICRO] * t->value[TIMES]; /* smaller than product */
    if (t->value[WHOLE] % per_rank == 0)
        snprintf(hint, sizeof hint, "; it would fit %" PRId64 " %s", t->value[WHOLE] / per_rank,
                 t->value[WHOLE] == per_rank ? "rank" : "ranks");
    ht_problems_error(&c->problems, NULL,
                      "%s: %" PRId64 " is not %s: %" PRId64 " × %s: %" PRId64 " × %" PRId64 " %s = %" PRId64 "%s",
                      t->name[WHOLE], t->value[WHOLE], t->name[MICRO], t->value[MICRO], t->name[TIMES], t->value[TIMES],
                      c->data_ranks, plural(c), product, hint);
}

/* Gives both sides the value that they do not give themselves. */
static ht_status publish(ht_config *c, int i, int64_t value, const char *why)
{
    char json[32];
    snprintf(json, sizeof json, "%" PRId64, value);
    if (!ht_is_given(c->blocks[BLOCK_TRAIN], train_names[i]))
        HT_TRY(ht_derive(c, BLOCK_TRAIN, train_names[i], json, "%s", why));
    bool other = c->lenient && ht_is_given(c->blocks[BLOCK_ENGINE], engine_names[i]) &&
                 ht_field_int(c->blocks[BLOCK_ENGINE], engine_names[i]) != value;
    if (c->has_engine && (other || !ht_is_given(c->blocks[BLOCK_ENGINE], engine_names[i])))
        HT_TRY(ht_derive(c, BLOCK_ENGINE, engine_names[i], json, "%s", why));
    return HT_OK;
}

/* The value of each that was not given, with how it was found; false when they do not fit. */
static bool complete(ht_config *c, trio *t, char why[TRIO][200])
{
    bool given[TRIO];
    for (int i = 0; i < TRIO; i++) given[i] = t->value[i] != 0;
    if (given[WHOLE] && given[MICRO] && given[TIMES]) {
        size_t before = c->problems.errors;
        check_all(c, t);
        return c->problems.errors == before;
    }
    if (!given[WHOLE] && !given[MICRO]) {
        t->value[WHOLE] = ht_field_int(c->blocks[BLOCK_TRAIN], "batch");
        snprintf(t->name[WHOLE], sizeof t->name[WHOLE], "train.batch (default)");
        snprintf(why[WHOLE], 200, "default of train.batch");
    }
    if (!given[TIMES] && !(t->value[WHOLE] != 0 && given[MICRO])) {
        t->value[TIMES] = 1;
        snprintf(t->name[TIMES], sizeof t->name[TIMES], "accumulation");
        snprintf(why[TIMES], 200, "not given, so one pass per step");
    }
    if (t->value[WHOLE] == 0) {
        snprintf(why[WHOLE], 200, "%" PRId64 " × %" PRId64 " × %" PRId64 " %s", t->value[MICRO], t->value[TIMES],
                 c->data_ranks, plural(c));
        return multiply(c, t, &t->value[WHOLE]);
    }
    int missing = t->value[MICRO] == 0 ? MICRO : TIMES, by = missing == MICRO ? TIMES : MICRO;
    if (t->value[missing] != 0) return true;
    snprintf(why[missing], 200, "%" PRId64 " / (%" PRId64 " × %" PRId64 " %s)", t->value[WHOLE], t->value[by],
             c->data_ranks, plural(c));
    return divide(c, t, by, &t->value[missing]);
}

/* Do the values that are there leave one for the rest? */
static bool can_complete(const ht_config *c, const trio *t)
{
    int64_t product = c->data_ranks;
    bool overflow = false;
    for (int i = MICRO; i < TRIO; i++)
        if (t->value[i] != 0) overflow |= __builtin_mul_overflow(product, t->value[i], &product);
    if (overflow || t->value[WHOLE] == 0) return !overflow;
    bool all = t->value[MICRO] != 0 && t->value[TIMES] != 0;
    return all ? product == t->value[WHOLE] : t->value[WHOLE] % product == 0;
}

/* Lenient: what the engine config says of the parts of a step gives way to the whole, which decides what is learnt; a
 * config for eight ranks then accumulates eight times as often. */
static void drop_parts(ht_config *c, trio *t)
{
    static const int order[] = {TIMES, MICRO, WHOLE};
    for (size_t i = 0; i < TRIO && !can_complete(c, t); i++) {
        int which = order[i];
        if (t->value[which] == 0 || t->block[which] != BLOCK_ENGINE) continue;
        ht_problems_warn(&c->problems, NULL,
                         "left out: %s is %" PRId64 ": it does not fit the other sizes on %" PRId64 " %s",
                         t->name[which], t->value[which], c->data_ranks, plural(c));
        t->value[which] = 0;
        t->field[which] = NULL;
    }
}

ht_status ht_batch_rules(ht_config *c)
{
    trio t = {0};
    char why[TRIO][200] = {{0}};
    for (int i = 0; i < TRIO; i++) {
        take_side(c, &t, i, BLOCK_TRAIN, train_names[i]);
        if (c->has_engine) take_side(c, &t, i, BLOCK_ENGINE, engine_names[i]);
    }
    if (c->lenient) drop_parts(c, &t);
    bool asked = t.value[WHOLE] == 0 && t.value[MICRO] == 0 && c->has_engine && !c->bare;
    if (asked)
        ht_problems_warn(&c->problems, NULL, "no batch size is given: the job's train.batch is taken, %" PRId64,
                         ht_field_int(c->blocks[BLOCK_TRAIN], "batch"));
    if (!complete(c, &t, why)) return HT_OK;
    for (int i = 0; i < TRIO; i++) {
        if (t.field[i] != NULL) snprintf(why[i], sizeof why[i], "%s", t.name[i]);
        HT_TRY(publish(c, i, t.value[i], why[i]));
    }
    return HT_OK;
}
