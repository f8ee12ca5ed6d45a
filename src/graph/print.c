/* The printer of the text form, in a fixed order: parse(print(g)) prints the same. docs/ir.md is the grammar. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

typedef struct printer {
    const ht_graph *g;
    ht_text text;
    uint32_t *number;     /* by value id: what an unnamed result prints as */
    uint32_t *node_place; /* by node id: position in this segment + 1, 0 elsewhere */
} printer;

static void print_value(printer *p, ht_val v)
{
    const ht_value *value = ht_value_of(p->g, v);
    if (!v.id)
        ht_text_add(&p->text, "_");
    else if (value->name)
        ht_text_add(&p->text, "%%%s", value->name);
    else
        ht_text_add(&p->text, "%%%u", p->number[v.id]);
}

static void print_type(printer *p, ht_val v)
{
    const ht_value *value = ht_value_of(p->g, v);
    ht_type_print(&p->text, &value->type);
    if (!value->base.id) return;
    ht_text_add(&p->text, "{");
    print_value(p, value->base);
    ht_text_add(&p->text, ", %lld, [", (long long)value->offset);
    for (int i = 0; i < value->type.rank; i++)
        ht_text_add(&p->text, "%s%lld", i ? "," : "", (long long)value->type.stride[i]);
    ht_text_add(&p->text, "]}");
}

static void print_init(printer *p, ht_init init)
{
    static const char *const names[] = {"zero", "constant", "normal", "uniform"};
    if (init.kind == HT_INIT_ZERO) return;
    ht_text_add(&p->text, " init=%s(", names[init.kind]);
    ht_text_number(&p->text, init.a);
    if (init.kind != HT_INIT_CONSTANT) {
        ht_text_add(&p->text, ",");
        ht_text_number(&p->text, init.b);
    }
    ht_text_add(&p->text, ")");
}

static void print_string(ht_text *text, const char *s)
{
    ht_text_add(text, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            ht_text_add(text, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            ht_text_add(text, "\\x%02x", c);
        else
            ht_text_add(text, "%c", c);
    }
    ht_text_add(text, "\"");
}

static void print_attr(ht_text *text, const ht_attr *a)
{
    ht_text_add(text, " %s=", a->key);
    if (a->kind == HT_ATTR_INT) ht_text_add(text, "%lld", (long long)a->i);
    if (a->kind == HT_ATTR_FLOAT) ht_text_number(text, a->f);
    if (a->kind == HT_ATTR_TEXT) print_string(text, a->text);
    if (a->kind != HT_ATTR_INTS && a->kind != HT_ATTR_FLOATS) return;
    ht_text_add(text, "[");
    for (size_t i = 0; i < a->count; i++) {
        if (i) ht_text_add(text, ",");
        if (a->kind == HT_ATTR_INTS)
            ht_text_add(text, "%lld", (long long)a->ints[i]);
        else
            ht_text_number(text, a->floats[i]);
    }
    ht_text_add(text, "]");
}

/* Attributes: the op's own that differ from their defaults, then the common ones. */
static void print_attrs(printer *p, const ht_node *n, uint32_t place)
{
    ht_text *t = &p->text;
    for (size_t i = 0; i < ht_op_attr_count(n->op); i++) {
        bool standard = !n->op->attrs[i].required;
        ht_attr of_table = n->op->attrs[i].standard;
        of_table.kind = n->op->attrs[i].kind;
        if (!standard || !ht_attr_equal(&n->attr[i], &of_table)) print_attr(t, &n->attr[i]);
    }
    if (n->role != HT_ROLE_FWD) ht_text_add(t, " role=%s", ht_role_names[n->role]);
    if (n->region) ht_text_add(t, " region=%u", n->region);
    if (n->no_merge) ht_text_add(t, " no_merge");
    if (n->recomputed) ht_text_add(t, " recomputed");
    if (n->full) ht_text_add(t, " full");
    if (n->checkpoint) ht_text_add(t, " checkpoint=%u", n->checkpoint);
    uint32_t origin = n->origin ? p->node_place[n->origin] : 0;
    if (origin && origin <= place && p->g->nodes[n->origin].n_out) {
        ht_text_add(t, " from=");
        print_value(p, ht_node_out(&p->g->nodes[n->origin], 0));
    }
    if (n->site) {
        ht_text_add(t, " at=");
        print_string(t, n->site);
    }
    if (n->was) ht_text_add(t, " was=0x%016llx", (unsigned long long)n->was);
}

static void print_node(printer *p, const ht_node *n, uint32_t place)
{
    ht_text *t = &p->text;
    ht_text_add(t, "  ");
    if (n->op == &ht_op_store) {
        ht_text_add(t, "store ");
        print_value(p, ht_node_in(p->g, n, 0));
        ht_text_add(t, " = ");
        print_value(p, ht_node_in(p->g, n, 1));
    } else {
        for (size_t i = 0; i < n->n_out; i++) {
            if (i) ht_text_add(t, ", ");
            print_value(p, ht_node_out(n, i));
        }
        ht_text_add(t, " = %s ", n->op->name);
        for (size_t i = 0; i < n->n_out; i++) {
            if (i) ht_text_add(t, ", ");
            print_type(p, ht_node_out(n, i));
        }
        ht_text_add(t, " (");
        for (size_t i = 0; i < n->n_in; i++) {
            if (i) ht_text_add(t, ", ");
            print_value(p, ht_node_in(p->g, n, i));
        }
        ht_text_add(t, ")");
    }
    print_attrs(p, n, place);
    ht_text_add(t, "\n");
}

static void print_state(printer *p, const ht_state *s)
{
    ht_text *t = &p->text;
    ht_text_add(t, "state ");
    print_value(p, s->value);
    ht_text_add(t, " ");
    print_type(p, s->value);
    ht_text_add(t, " heading=%s", ht_heading_names[s->heading]);
    print_init(p, s->init);
    if (s->trained) ht_text_add(t, " trained");
    if (s->derived) ht_text_add(t, " derived");
    if (s->part) {
        ht_text_add(t, " part=");
        ht_type_print(t, &s->whole);
        ht_text_add(t, " first=%lld", (long long)s->first);
    }
    if (s->cut.ranks) {
        ht_text_add(t, " cut=[%d,%lld,%lld,%lld]", s->cut.axis, (long long)s->cut.blocks, (long long)s->cut.ranks,
                    (long long)s->cut.rank);
        if (!s->part) ht_text_add(t, " whole=");
        if (!s->part) ht_type_print(t, &s->whole);
    }
    if (s->per_call) ht_text_add(t, " per_call");
    if (s->stages) {
        ht_text_add(t, " stages=");
        for (int i = 0, count = 0; i < HT_MOST_STAGES; i++)
            if (s->stages >> i & 1) ht_text_add(t, "%s%d", count++ ? "," : "[", i);
        ht_text_add(t, "]");
    }
    ht_text_add(t, "\n");
}

/* A view is printed after what it views, so that text reads from top to bottom. */
static void print_states(printer *p)
{
    for (int views = 0; views < 2; views++)
        for (size_t i = 0; i < p->g->state_count; i++)
            if ((ht_value_of(p->g, p->g->states[i].value)->base.id != 0) == views) print_state(p, &p->g->states[i]);
}

static void print_segment(printer *p, const ht_segment *s)
{
    ht_text *t = &p->text;
    uint32_t next = 0;
    for (size_t i = 0; i < s->node_count; i++) {
        const ht_node *n = &p->g->nodes[s->nodes[i]];
        p->node_place[s->nodes[i]] = (uint32_t)i + 1;
        for (size_t o = 0; o < n->n_out; o++)
            if (!ht_value_of(p->g, ht_node_out(n, o))->name) p->number[n->out + o] = next++;
    }
    ht_text_add(t, "\nsegment %s (", s->name);
    for (size_t i = 0; i < s->input_count; i++) {
        if (i) ht_text_add(t, ", ");
        print_value(p, s->inputs[i]);
        ht_text_add(t, " ");
        print_type(p, s->inputs[i]);
        print_init(p, ht_input_init(p->g, s->inputs[i]));
    }
    ht_text_add(t, ") -> (");
    for (size_t i = 0; i < s->output_count; i++) {
        ht_text_add(t, "%s%s=", i ? ", " : "", s->outputs[i].name);
        print_value(p, s->outputs[i].value);
    }
    ht_text_add(t, ") {\n");
    for (size_t i = 0; i < s->node_count; i++) print_node(p, &p->g->nodes[s->nodes[i]], (uint32_t)i);
    ht_text_add(t, "}\n");
    for (size_t i = 0; i < s->node_count; i++) p->node_place[s->nodes[i]] = 0;
}

ht_status ht_graph_print(char **out, const ht_graph *g)
{
    HT_NEED(g ? g->ctx : NULL, out, "out");
    *out = NULL;
    HT_NEED(NULL, g, "graph");
    printer p = {.g = g};
    p.number = calloc(g->value_count, sizeof *p.number);
    p.node_place = calloc(g->node_count, sizeof *p.node_place);
    if (p.number && p.node_place) {
        print_states(&p);
        for (size_t i = 0; i < g->segment_count; i++) print_segment(&p, &g->segments[i]);
        for (size_t i = 0; i < g->program_count; i++) {
            const ht_program *program = &g->programs[i];
            ht_text_add(&p.text, "\nprogram %s {", program->name);
            for (size_t c = 0; c < program->call_count; c++) {
                ht_text_add(&p.text, " %s", g->segments[program->calls[c].segment].name);
                if (program->calls[c].times != 1) ht_text_add(&p.text, "*%u", program->calls[c].times);
                if (program->calls[c].slot) ht_text_add(&p.text, " slot=%u", program->calls[c].slot);
            }
            ht_text_add(&p.text, " }\n");
        }
        ht_text_add(&p.text, "%s", "");
    }
    bool ok = p.number && p.node_place && !p.text.failed;
    free(p.number);
    free(p.node_place);
    if (!ok) {
        ht_text_free(&p.text);
        HT_FAIL(g->ctx, HT_ENOMEM, "out of memory for the text of a graph");
    }
    *out = p.text.data;
    return HT_OK;
}

bool ht_graph_equal(const ht_graph *a, const ht_graph *b)
{
    char *text_a = NULL, *text_b = NULL;
    bool equal = ht_graph_print(&text_a, a) == HT_OK && ht_graph_print(&text_b, b) == HT_OK && !strcmp(text_a, text_b);
    free(text_a);
    free(text_b);
    return equal;
}
