/* The axes of ranks: ranks = data × pipeline × tensor. How many share the layers and each layer is given, the rest share the
 * batch. */
#include "config/internal.h"

#include <inttypes.h>

/* How many ranks an axis has, and the key that says so. */
typedef struct axis {
    const char *key;       /* ours */
    const char *others[3]; /* DeepSpeed's; NULL ends them */
    const char *share;     /* what its ranks share */
    int64_t ranks;
    block_id block;
    const ht_field *field;
} axis;

static void refuse_second(ht_config *c, const axis *a, const ht_field *other, int64_t wanted)
{
    ht_text text = {0};
    ht_name_field(&text, c, a->block, a->field);
    ht_problems_error(&c->problems, &other->origin,
                      "%s: %" PRId64 " ranks share %s, but %s says %" PRId64 ": leave out one of them",
                      other->key->name, wanted, a->share, text.failed ? a->field->name : text.data, a->ranks);
    ht_text_free(&text);
}

/* Of our own key, or else of the first of DeepSpeed's that asks for more than one. */
static void find_ranks(ht_config *c, axis *a)
{
    const ht_fields *ours = c->blocks[BLOCK_HALFTONE], *engine = c->blocks[BLOCK_ENGINE];
    a->ranks = ht_field_int(ours, a->key);
    a->block = BLOCK_HALFTONE;
    a->field = ht_fields_find(ours, a->key);
    bool known = ht_is_given(ours, a->key);
    for (size_t i = 0; a->others[i]; i++) {
        const ht_field *other = ht_fields_find(engine, a->others[i]);
        int64_t wanted;
        bool given = ht_json_as_int(other->value, &wanted); /* null: it says nothing */
        if (!given || wanted < 2 || (known && wanted == a->ranks)) continue;
        if (known) {
            refuse_second(c, a, other, wanted);
            continue;
        }
        known = true;
        a->ranks = wanted;
        a->block = BLOCK_ENGINE;
        a->field = other;
    }
}

/* A config of DeepSpeed's alone does not say on how many ranks it will run: then, and in lenient reading, it is told. Of a
 * job it is wrong before it trains, too. */
static void refuse(ht_config *c, const axis *tensor, const axis *pipeline)
{
    ht_text text = {0};
    const axis *first = tensor->ranks > 1 ? tensor : pipeline;
    bool told = first->block == BLOCK_ENGINE && (c->lenient || !c->is_job);
    ht_text_add(&text, "%s%" PRId64 " %s (--ranks, or the launcher's) %s no multiple of ", told ? "left out: " : "",
                c->ranks, c->ranks == 1 ? "rank" : "ranks", c->ranks == 1 ? "is" : "are");
    ht_name_field(&text, c, tensor->block, tensor->field);
    ht_text_add(&text, ": %" PRId64 " × ", tensor->ranks);
    ht_name_field(&text, c, pipeline->block, pipeline->field);
    ht_text_add(&text, ": %" PRId64, pipeline->ranks);
    if (!text.failed && told) ht_problems_warn(&c->problems, NULL, "%s", text.data);
    if (!text.failed && !told) ht_problems_error(&c->problems, NULL, "%s", text.data);
    c->problems.failed |= text.failed;
    ht_text_free(&text);
}

void ht_rank_rules(ht_config *c)
{
    axis tensor = {.key = "parallel.tensor",
                   .others = {"tensor_parallel.autotp_size", "tensor_parallel.tp.tp_size"},
                   .share = "each layer"};
    axis pipeline = {.key = "parallel.pipeline", .others = {"pipeline.stages"}, .share = "the layers"};
    int64_t product;
    find_ranks(c, &tensor);
    find_ranks(c, &pipeline);
    c->data_ranks = c->ranks;
    c->tensor = c->pipeline = 1;
    if (tensor.ranks == 1 && ht_field_bool(c->blocks[BLOCK_HALFTONE], "parallel.sequence"))
        ht_problems_warn(&c->problems, &ht_fields_find(c->blocks[BLOCK_HALFTONE], "parallel.sequence")->origin,
                         "halftone.parallel.sequence: no ranks share a layer (halftone.parallel.tensor is 1), so it "
                         "changes nothing");
    if (tensor.ranks == 1 && pipeline.ranks == 1) return;
    if (!__builtin_mul_overflow(tensor.ranks, pipeline.ranks, &product) && c->ranks % product == 0) {
        c->tensor = tensor.ranks;
        c->pipeline = pipeline.ranks;
        c->data_ranks = c->ranks / product;
        return;
    }
    refuse(c, &tensor, &pipeline);
}
