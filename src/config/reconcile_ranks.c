/* The axes of ranks: ranks = data × pipeline × tensor. How many share the layers and each layer is given, the rest share the
 * batch. */
#include "config/internal.h"

#include <inttypes.h>

/* Of our own key, or else of the first of DeepSpeed's that asks for more than one; *field: the one that says it. */
static int64_t tensor_ranks(ht_config *c, block_id *block, const ht_field **field)
{
    static const char *const others[] = {"tensor_parallel.autotp_size", "tensor_parallel.tp.tp_size"};
    const ht_fields *ours = c->blocks[BLOCK_HALFTONE], *engine = c->blocks[BLOCK_ENGINE];
    int64_t ranks = ht_field_int(ours, "parallel.tensor");
    *block = BLOCK_HALFTONE;
    *field = ht_fields_find(ours, "parallel.tensor");
    bool known = ht_is_given(ours, "parallel.tensor");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        int64_t wanted = ht_field_int(engine, others[i]);
        if (wanted < 2 || (known && wanted == ranks)) continue;
        const ht_field *other = ht_fields_find(engine, others[i]);
        if (known) {
            ht_text text = {0};
            ht_name_field(&text, c, *block, *field);
            ht_problems_error(&c->problems, &other->origin,
                              "%s: %" PRId64 " ranks share each layer, but %s says %" PRId64 ": leave out one of them",
                              others[i], wanted, text.failed ? (*field)->name : text.data, ranks);
            ht_text_free(&text);
            continue;
        }
        known = true;
        ranks = wanted;
        *block = BLOCK_ENGINE;
        *field = other;
    }
    return ranks;
}

/* A config of DeepSpeed's alone does not say on how many ranks it will run: then, and in lenient reading, it is told. */
static void refuse(ht_config *c, block_id block, const ht_field *field, int64_t tensor, int64_t pipeline)
{
    ht_text text = {0};
    bool told = block == BLOCK_ENGINE && (c->lenient || !c->training);
    ht_text_add(&text, "%s%" PRId64 " %s (--ranks, or the launcher's) %s no multiple of ", told ? "left out: " : "",
                c->ranks, c->ranks == 1 ? "rank" : "ranks", c->ranks == 1 ? "is" : "are");
    ht_name_field(&text, c, block, field);
    ht_text_add(&text, ": %" PRId64 " × halftone.parallel.pipeline: %" PRId64, tensor, pipeline);
    if (!text.failed && told) ht_problems_warn(&c->problems, NULL, "%s", text.data);
    if (!text.failed && !told) ht_problems_error(&c->problems, NULL, "%s", text.data);
    c->problems.failed |= text.failed;
    ht_text_free(&text);
}

void ht_rank_rules(ht_config *c)
{
    block_id block;
    const ht_field *field;
    int64_t tensor = tensor_ranks(c, &block, &field), product;
    /* What is not there yet is left out in lenient reading. */
    int64_t pipeline = c->lenient ? 1 : ht_field_int(c->blocks[BLOCK_HALFTONE], "parallel.pipeline");
    c->data_ranks = c->ranks;
    c->tensor = c->pipeline = 1;
    if (tensor == 1 && ht_field_bool(c->blocks[BLOCK_HALFTONE], "parallel.sequence"))
        ht_problems_warn(&c->problems, &ht_fields_find(c->blocks[BLOCK_HALFTONE], "parallel.sequence")->origin,
                         "halftone.parallel.sequence: no ranks share a layer (halftone.parallel.tensor is 1), so it "
                         "changes nothing");
    if (tensor == 1 && pipeline == 1) return;
    if (!__builtin_mul_overflow(tensor, pipeline, &product) && c->ranks % product == 0) {
        c->tensor = tensor;
        c->pipeline = pipeline;
        c->data_ranks = c->ranks / product;
        return;
    }
    refuse(c, block, field, tensor, pipeline);
}
