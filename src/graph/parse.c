/* The parser of the text form. It handles syntax only: ht_emit checks nodes, ht_graph_verify checks graphs. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "graph/lex.h"
#include "graph/namemap.h"

enum { MAX_RESULTS = 8 };

typedef struct parser {
    ht_lex lex;
    ht_graph *g;
    ht_namemap names;
    ht_val *inputs; /* of the node at hand */
    size_t input_capacity;
    ht_lex_place statement; /* where the state, input, node or call at hand began */
} parser;

/* Reports a failure of the builder with its place in the text. */
static bool built(parser *p)
{
    if (p->lex.status == HT_OK && p->g->status != HT_OK) {
        char message[sizeof p->g->ctx->message];
        memcpy(message, p->g->ctx->message, sizeof message);
        ht_status status = p->g->status;
        ht_lex_fail_at(&p->lex, p->statement, "%s", message);
        p->lex.status = p->g->ctx->status = status;
    }
    return p->lex.status == HT_OK;
}

static const char *keep_text(parser *p, ht_slice s)
{
    const char *text = ht_arena_text(p->g->arena, s.text, s.length);
    if (!text) p->lex.status = ht_fail(p->g->ctx, HT_ENOMEM, "%s: out of memory", p->lex.file);
    return text ? text : "";
}

static void define(parser *p, ht_slice name, ht_val v)
{
    if (p->lex.status != HT_OK) return;
    if (ht_namemap_get(&p->names, name.text, name.length).id)
        ht_lex_fail_at(&p->lex, p->statement, "%%%.*s is defined twice", ht_slice_shown(name), name.text);
    else if (!ht_namemap_put(&p->names, name.text, name.length, v))
        p->lex.status = ht_fail(p->g->ctx, HT_ENOMEM, "%s: out of memory", p->lex.file);
}

static ht_slice value_name(parser *p)
{
    ht_slice none = {"", 0};
    return ht_lex_need(&p->lex, '%') ? ht_lex_name(&p->lex, "a value's name") : none;
}

static ht_val use(parser *p)
{
    ht_slice name = value_name(p);
    ht_val v = p->lex.status == HT_OK ? ht_namemap_get(&p->names, name.text, name.length) : HT_NONE;
    if (!v.id) ht_lex_fail_word(&p->lex, "%%%.*s is not defined here", ht_slice_shown(name), name.text);
    return v;
}

static bool is_number(ht_slice s)
{
    for (size_t i = 0; i < s.length; i++)
        if (!isdigit((unsigned char)s.text[i])) return false;
    return true;
}

/* `{%base, offset, [strides]}` after a type. */
static void parse_view(parser *p, ht_type *type, ht_val *base, int64_t *offset)
{
    *base = HT_NONE;
    *offset = 0;
    if (!ht_lex_take(&p->lex, '{')) return;
    *base = use(p);
    ht_lex_need(&p->lex, ',');
    *offset = ht_lex_int(&p->lex);
    ht_lex_need(&p->lex, ',');
    ht_lex_need(&p->lex, '[');
    for (int i = 0; i < type->rank && p->lex.status == HT_OK; i++) {
        if (i) ht_lex_need(&p->lex, ',');
        type->stride[i] = ht_lex_int(&p->lex);
    }
    ht_lex_need(&p->lex, ']');
    ht_lex_need(&p->lex, '}');
}

static int find_word(ht_slice word, const char *const *words, int count)
{
    for (int i = 0; i < count; i++)
        if (ht_slice_is(word, words[i])) return i;
    return -1;
}

static ht_init parse_init(parser *p)
{
    static const char *const kinds[] = {"constant", "normal", "uniform"};
    static const ht_init_kind ids[] = {HT_INIT_CONSTANT, HT_INIT_NORMAL, HT_INIT_UNIFORM};
    ht_init init = {0};
    ht_slice kind = ht_lex_name(&p->lex, "an init");
    int found = find_word(kind, kinds, 3);
    if (found < 0) {
        ht_lex_fail_word(&p->lex, "no init '%.*s': constant, normal or uniform", ht_slice_shown(kind), kind.text);
        return init;
    }
    init.kind = ids[found];
    ht_lex_need(&p->lex, '(');
    init.a = ht_lex_float(&p->lex);
    if (init.kind != HT_INIT_CONSTANT) {
        ht_lex_need(&p->lex, ',');
        init.b = ht_lex_float(&p->lex);
    }
    ht_lex_need(&p->lex, ')');
    return init;
}

/* [axis, blocks, ranks, rank] */
static ht_cut parse_cut(parser *p)
{
    int64_t number[4];
    for (int i = 0; i < 4; i++) {
        ht_lex_need(&p->lex, i ? ',' : '[');
        number[i] = ht_lex_int(&p->lex);
    }
    ht_lex_need(&p->lex, ']');
    int axis = number[0] >= 0 && number[0] < HT_MAX_RANK ? (int)number[0] : -1; /* which no type has */
    return (ht_cut){axis, number[1], number[2], number[3]};
}

/* [0, 3] */
static uint64_t parse_stages(parser *p)
{
    uint64_t stages = 0;
    ht_lex_need(&p->lex, '[');
    do {
        int64_t stage = ht_lex_int(&p->lex);
        if (stage >= 0 && stage < HT_MOST_STAGES)
            stages |= UINT64_C(1) << stage;
        else
            ht_lex_fail_word(&p->lex, "stages are 0 to %d", HT_MOST_STAGES - 1);
    } while (p->lex.status == HT_OK && ht_lex_take(&p->lex, ','));
    ht_lex_need(&p->lex, ']');
    return stages;
}

static void parse_state(parser *p)
{
    ht_state like = {0};
    ht_val base;
    int64_t offset;
    p->statement = ht_lex_here(&p->lex);
    ht_slice name = value_name(p);
    ht_type type = ht_lex_type(&p->lex);
    parse_view(p, &type, &base, &offset);
    while (ht_lex_peek_word(&p->lex)) {
        ht_lex before = p->lex;
        ht_slice word = ht_lex_name(&p->lex, "an attribute");
        if (ht_slice_is(word, "trained")) {
            like.trained = true;
        } else if (ht_slice_is(word, "derived")) {
            like.derived = true;
        } else if (ht_slice_is(word, "heading")) {
            ht_lex_need(&p->lex, '=');
            ht_slice heading = ht_lex_name(&p->lex, "a heading");
            int found = find_word(heading, ht_heading_names, HT_HEADING_COUNT);
            if (found < 0) ht_lex_fail_word(&p->lex, "no heading '%.*s'", ht_slice_shown(heading), heading.text);
            like.heading = found < 0 ? 0 : (ht_heading)found;
        } else if (ht_slice_is(word, "init")) {
            ht_lex_need(&p->lex, '=');
            like.init = parse_init(p);
        } else if (ht_slice_is(word, "part") || ht_slice_is(word, "whole")) {
            ht_lex_need(&p->lex, '=');
            like.part |= ht_slice_is(word, "part");
            like.whole = ht_lex_type(&p->lex);
        } else if (ht_slice_is(word, "cut")) {
            ht_lex_need(&p->lex, '=');
            like.cut = parse_cut(p);
        } else if (ht_slice_is(word, "per_call")) {
            like.per_call = true;
        } else if (ht_slice_is(word, "stages")) {
            ht_lex_need(&p->lex, '=');
            like.stages = parse_stages(p);
        } else if (ht_slice_is(word, "first")) {
            ht_lex_need(&p->lex, '=');
            like.first = ht_lex_int(&p->lex);
        } else {
            /* Not an attribute: the next statement. */
            p->lex = before;
            break;
        }
    }
    if (p->lex.status != HT_OK) return;
    ht_val v = ht_graph_add_state(p->g, keep_text(p, name), &type, &like);
    if (!built(p)) return;
    if (base.id) {
        p->g->values[v.id].type = type;
        ht_value_view(p->g, v, base, offset);
    }
    define(p, (ht_slice){ht_value_of(p->g, v)->name, name.length}, v);
}

static void parse_inputs(parser *p)
{
    if (!ht_lex_need(&p->lex, '(')) return;
    for (bool first = true; p->lex.status == HT_OK && !ht_lex_take(&p->lex, ')'); first = false) {
        if (!first) ht_lex_need(&p->lex, ',');
        p->statement = ht_lex_here(&p->lex);
        ht_slice name = value_name(p);
        ht_type type = ht_lex_type(&p->lex);
        ht_init init = HT_ZERO;
        if (ht_lex_peek_word(&p->lex)) {
            ht_slice word = ht_lex_name(&p->lex, "an attribute");
            if (!ht_slice_is(word, "init"))
                ht_lex_fail_word(&p->lex, "an input has no '%.*s'", ht_slice_shown(word), word.text);
            ht_lex_need(&p->lex, '=');
            init = parse_init(p);
        }
        if (p->lex.status != HT_OK) return;
        ht_val v = ht_graph_add_input(p->g, keep_text(p, name), &type, init);
        if (built(p)) define(p, (ht_slice){ht_value_of(p->g, v)->name, name.length}, v);
    }
}

/* Outputs precede the body: their names are stored and looked up at its end. */
typedef struct output_item {
    ht_slice name, value;
    ht_lex_place place;
} output_item;

typedef struct output_list {
    output_item *items;
    size_t count, capacity;
} output_list;

static void parse_outputs(parser *p, output_list *list)
{
    if (!ht_lex_take(&p->lex, '-')) return;
    ht_lex_need(&p->lex, '>');
    ht_lex_need(&p->lex, '(');
    for (bool first = true; p->lex.status == HT_OK && !ht_lex_take(&p->lex, ')'); first = false) {
        if (!first) ht_lex_need(&p->lex, ',');
        if (!ht_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items)) {
            p->lex.status = ht_fail(p->g->ctx, HT_ENOMEM, "%s: out of memory", p->lex.file);
            return;
        }
        ht_lex_place place = ht_lex_here(&p->lex);
        ht_slice name = ht_lex_peek(&p->lex, '%') ? (ht_slice){NULL, 0} : ht_lex_name(&p->lex, "an output's name");
        if (name.text) ht_lex_need(&p->lex, '=');
        ht_slice value = value_name(p);
        list->items[list->count++] = (output_item){name.text ? name : value, value, place};
    }
}

static void parse_common_attr(parser *p, ht_slice key, ht_node *n)
{
    if (ht_slice_is(key, "role")) {
        ht_slice word = ht_lex_name(&p->lex, "a role");
        int role = find_word(word, ht_role_names, HT_ROLE_COUNT);
        if (role < 0) ht_lex_fail_word(&p->lex, "no role '%.*s'", ht_slice_shown(word), word.text);
        n->role = role < 0 ? HT_ROLE_FWD : (ht_role)role;
    } else if (ht_slice_is(key, "region")) {
        int64_t region = ht_lex_int(&p->lex);
        if (region < 1 || region > UINT32_MAX) ht_lex_fail_word(&p->lex, "a region is a positive number");
        n->region = (uint32_t)region;
    } else if (ht_slice_is(key, "checkpoint")) {
        int64_t block = ht_lex_int(&p->lex);
        if (block < 1 || block > UINT32_MAX) ht_lex_fail_word(&p->lex, "a checkpoint is a positive number");
        n->checkpoint = (uint32_t)block;
    } else if (ht_slice_is(key, "from")) {
        ht_val v = use(p);
        if (v.id && ht_value_of(p->g, v)->kind != HT_VALUE_RESULT)
            ht_lex_fail_word(&p->lex, "from= names a node's result");
        n->origin = p->lex.status == HT_OK ? ht_value_of(p->g, v)->owner : 0;
    } else if (ht_slice_is(key, "at")) {
        n->site = ht_lex_string(&p->lex);
    } else {
        ht_slice word = ht_lex_name(&p->lex, "a hash");
        char digits[32];
        int used = 0;
        unsigned long long hash = 0;
        snprintf(digits, sizeof digits, "%.*s", (int)(word.length < 31 ? word.length : 31), word.text);
        if (sscanf(digits, "0x%16llx%n", &hash, &used) != 1 || (size_t)used != word.length)
            ht_lex_fail_word(&p->lex, "was= takes a hash like 0x0123456789abcdef");
        n->was = hash;
    }
}

static bool is_common(ht_slice key)
{
    static const char *const keys[] = {"role", "region", "checkpoint", "from", "at", "was"};
    return find_word(key, keys, 6) >= 0;
}

/* Attributes up to the end of the line's node; those of every node go to `common`. */
static size_t parse_attrs(parser *p, const ht_op *op, ht_attr *attrs, size_t capacity, ht_node *common)
{
    size_t count = 0;
    while (ht_lex_peek_word(&p->lex)) {
        ht_lex before = p->lex;
        ht_slice key = ht_lex_name(&p->lex, "an attribute");
        bool has_value = ht_lex_peek(&p->lex, '=');
        if ((ht_slice_is(key, "no_merge") || ht_slice_is(key, "keep")) && !has_value) {
            common->no_merge = true; /* `keep` is the spelling of older texts; `keep=1` is an op's own */
        } else if (ht_slice_is(key, "recomputed") && !has_value) {
            common->recomputed = true;
        } else if (ht_slice_is(key, "full") && !has_value) {
            common->full = true;
        } else if (!has_value) {
            p->lex = before; /* the next statement */
            break;
        } else if (ht_lex_take(&p->lex, '=') && is_common(key)) {
            parse_common_attr(p, key, common);
        } else if (count == capacity) {
            ht_lex_fail(&p->lex, "%s: more attributes than it has", op->name);
        } else {
            ht_lex_place place = {before.at, before.line_start, before.line};
            attrs[count] = ht_lex_attr(&p->lex, op, key);
            for (size_t i = 0; i < count && p->lex.status == HT_OK; i++)
                if (attrs[i].key == attrs[count].key)
                    ht_lex_fail_at(&p->lex, place, "'%s' is given twice", attrs[i].key);
            count++;
        }
    }
    return count;
}

static void stamp(parser *p, const ht_node *common)
{
    ht_node *n = &p->g->nodes[p->g->node_count - 1];
    n->role = common->role;
    n->region = common->region;
    n->no_merge = common->no_merge;
    n->recomputed = common->recomputed;
    n->full = common->full;
    n->checkpoint = common->checkpoint;
    n->origin = common->origin;
    n->site = common->site;
    n->was = common->was;
}

static void parse_store(parser *p)
{
    ht_node common = {0};
    ht_val state = use(p);
    ht_lex_need(&p->lex, '=');
    ht_val value = use(p);
    parse_attrs(p, &ht_op_store, NULL, 0, &common);
    if (p->lex.status != HT_OK) return;
    ht_store(p->g, state, value);
    if (built(p)) stamp(p, &common);
}

static size_t parse_operands(parser *p)
{
    size_t count = 0;
    ht_lex_need(&p->lex, '(');
    while (p->lex.status == HT_OK && !ht_lex_take(&p->lex, ')')) {
        if (count) ht_lex_need(&p->lex, ',');
        if (!ht_grow((void **)&p->inputs, &p->input_capacity, count + 1, sizeof *p->inputs)) {
            p->lex.status = ht_fail(p->g->ctx, HT_ENOMEM, "%s: out of memory", p->lex.file);
            return 0;
        }
        p->inputs[count++] = ht_lex_take(&p->lex, '_') ? HT_NONE : use(p);
    }
    return count;
}

static const ht_op *parse_op(parser *p)
{
    ht_slice name = ht_lex_name(&p->lex, "an op");
    if (p->lex.status != HT_OK) return NULL;
    const ht_op *op = ht_op_find(p->g->ctx, name.text, name.length);
    if (!op) ht_lex_fail_word(&p->lex, "there is no op '%.*s'", ht_slice_shown(name), name.text);
    return op;
}

static void parse_node(parser *p)
{
    ht_slice names[MAX_RESULTS];
    size_t n_out = 0;
    do {
        if (n_out == MAX_RESULTS) {
            ht_lex_fail(&p->lex, "more than %d results", MAX_RESULTS);
            return;
        }
        names[n_out++] = value_name(p);
    } while (ht_lex_take(&p->lex, ','));
    ht_lex_need(&p->lex, '=');
    const ht_op *op = parse_op(p);
    if (!op) return;
    if (n_out != (size_t)op->n_out) {
        ht_lex_fail_word(&p->lex, "%s has %d results, %zu are named", op->name, op->n_out, n_out);
        return;
    }
    ht_type types[MAX_RESULTS] = {{0}};
    ht_val bases[MAX_RESULTS] = {HT_NONE}, out[MAX_RESULTS];
    int64_t offsets[MAX_RESULTS] = {0};
    bool typed = !ht_lex_peek(&p->lex, '(');
    for (size_t i = 0; typed && i < n_out && p->lex.status == HT_OK; i++) {
        if (i) ht_lex_need(&p->lex, ',');
        types[i] = ht_lex_type(&p->lex);
        parse_view(p, &types[i], &bases[i], &offsets[i]);
    }
    size_t n_in = parse_operands(p);
    ht_attr attrs[32];
    ht_node common = {0};
    size_t n_attr = parse_attrs(p, op, attrs, sizeof attrs / sizeof attrs[0], &common);
    if (p->lex.status != HT_OK) return;
    ht_emit(p->g, op, n_in, p->inputs, n_attr, attrs, typed ? types : NULL, out);
    if (!built(p)) return;
    stamp(p, &common);
    for (size_t i = 0; i < n_out; i++) {
        if (bases[i].id) {
            p->g->values[out[i].id].type = types[i];
            ht_value_view(p->g, out[i], bases[i], offsets[i]);
        }
        if (!is_number(names[i])) p->g->values[out[i].id].name = keep_text(p, names[i]);
        define(p, names[i], out[i]);
    }
}

static void parse_segment(parser *p)
{
    output_list outputs = {0};
    p->statement = ht_lex_here(&p->lex);
    ht_slice name = ht_lex_name(&p->lex, "a segment's name");
    if (p->lex.status != HT_OK) return;
    p->g->segment = ht_graph_add_segment(p->g, keep_text(p, name));
    if (!built(p)) return;
    p->names.scope = (uint32_t)p->g->segment_count;
    parse_inputs(p);
    parse_outputs(p, &outputs);
    ht_lex_need(&p->lex, '{');
    while (p->lex.status == HT_OK && !ht_lex_take(&p->lex, '}')) {
        p->statement = ht_lex_here(&p->lex);
        if (ht_lex_peek(&p->lex, '%')) {
            parse_node(p);
        } else {
            ht_slice word = ht_lex_name(&p->lex, "a value, 'store' or '}'");
            if (ht_slice_is(word, "store"))
                parse_store(p);
            else
                ht_lex_fail_word(&p->lex, "a value, 'store' or '}' expected, found '%.*s'", ht_slice_shown(word),
                                 word.text);
        }
    }
    for (size_t i = 0; i < outputs.count && p->lex.status == HT_OK; i++) {
        const output_item *item = &outputs.items[i];
        ht_val v = ht_namemap_get(&p->names, item->value.text, item->value.length);
        p->statement = item->place;
        if (!v.id)
            ht_lex_fail_at(&p->lex, item->place, "output %%%.*s is not defined in the segment",
                           ht_slice_shown(item->value), item->value.text);
        else
            ht_output(p->g, keep_text(p, item->name), v);
        built(p);
    }
    free(outputs.items);
    p->names.scope = 0;
}

/* `slot=1` behind a call; a segment may be called "slot" all the same. */
static uint32_t parse_slot(parser *p)
{
    ht_lex before = p->lex;
    if (!ht_lex_peek_word(&p->lex)) return 0;
    if (!ht_slice_is(ht_lex_name(&p->lex, "a segment's name"), "slot") || !ht_lex_take(&p->lex, '=')) {
        p->lex = before;
        return 0;
    }
    int64_t slot = ht_lex_int(&p->lex);
    if (slot < 0 || slot >= HT_MAX_PROGRAM_SLOTS)
        ht_lex_fail_word(&p->lex, "a slot is a number from 0 to %d", HT_MAX_PROGRAM_SLOTS - 1);
    return (uint32_t)slot;
}

static void parse_program(parser *p)
{
    p->statement = ht_lex_here(&p->lex);
    const char *name = keep_text(p, ht_lex_name(&p->lex, "a program's name"));
    if (p->lex.status == HT_OK && ht_program_find(p->g, name) >= 0)
        ht_lex_fail_word(&p->lex, "program '%.60s' exists already", name);
    ht_lex_need(&p->lex, '{');
    while (p->lex.status == HT_OK && !ht_lex_take(&p->lex, '}')) {
        ht_slice word = ht_lex_name(&p->lex, "a segment's name");
        int segment = ht_segment_find(p->g, keep_text(p, word));
        if (segment < 0) ht_lex_fail_word(&p->lex, "there is no segment '%.*s'", ht_slice_shown(word), word.text);
        int64_t times = ht_lex_take(&p->lex, '*') ? ht_lex_int(&p->lex) : 1;
        if (times < 1 || times > 1000000) ht_lex_fail_word(&p->lex, "a segment is called 1 to 1000000 times");
        ht_program_call call = {(uint32_t)segment, (uint32_t)times, parse_slot(p)};
        if (p->lex.status == HT_OK) ht_graph_add_program_call(p->g, name, call);
        built(p);
    }
}

ht_status ht_graph_parse(ht_graph **out, ht_context *ctx, const char *name, const char *text, size_t length)
{
    HT_NEED(ctx, out, "out");
    *out = NULL;
    HT_NEED(ctx, name, "name");
    HT_NEED(ctx, text, "text");
    ht_graph *g;
    HT_TRY(ht_graph_create(&g, ctx));
    parser p = {.lex = {.ctx = ctx, .arena = g->arena, .file = name, .at = text, .line = 1}, .g = g};
    p.lex.end = text + length;
    p.lex.line_start = text;
    while (ht_lex_more(&p.lex)) {
        ht_slice word = ht_lex_name(&p.lex, "'state', 'segment' or 'program'");
        if (ht_slice_is(word, "state"))
            parse_state(&p);
        else if (ht_slice_is(word, "segment"))
            parse_segment(&p);
        else if (ht_slice_is(word, "program"))
            parse_program(&p);
        else
            ht_lex_fail_word(&p.lex, "'state', 'segment' or 'program' expected, found '%.*s'", ht_slice_shown(word),
                             word.text);
    }
    ht_namemap_free(&p.names);
    free(p.inputs);
    ht_status status = p.lex.status;
    if (status == HT_OK && (status = ht_graph_verify(g)) != HT_OK) {
        char message[sizeof ctx->message];
        memcpy(message, ctx->message, sizeof message);
        ht_fail(ctx, status, "%s: %s", name, message);
    }
    if (status != HT_OK) {
        ht_graph_free(g);
        return status;
    }
    *out = g;
    return HT_OK;
}
