/* docs/ir.md has a row for every attribute of every op, with its kind and its default. */
#include "context_fixture.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"

enum { COLUMNS = 5, MOST_ROWS = 200 };

/* A row of the page: ops, attribute, kind, default, meaning. */
typedef struct page_row {
    char *cells[COLUMNS];
} page_row;

typedef struct page {
    char *text;
    page_row rows[MOST_ROWS];
    size_t count;
} page;

static char *trimmed(char *text)
{
    while (*text == ' ') text++;
    size_t length = strlen(text);
    while (length > 0 && text[length - 1] == ' ') text[--length] = '\0';
    return text;
}

static void take_row(page *p, char *line)
{
    page_row row = {{0}};
    size_t cell = 0;
    for (char *at = strtok(line, "|"); at && cell < COLUMNS; at = strtok(NULL, "|")) row.cells[cell++] = trimmed(at);
    assert_true(cell == COLUMNS && p->count < MOST_ROWS);
    p->rows[p->count++] = row;
}

/* The rows of the table below the heading. */
static page read_page(ht_context *ctx)
{
    page p = {0};
    size_t length;
    char *next;
    context_must(ctx, ht_read_file(ctx, &p.text, &length, HT_TEST_DIR "/../docs/ir.md"));
    char *line = strstr(p.text, "\n## Attributes of ops\n");
    assert_non_null(line);
    for (line = strstr(line, "\n| `"); line && line[0] == '\n' && line[1] == '|'; line = next) {
        next = strchr(line + 1, '\n');
        assert_non_null(next);
        *next = '\0';
        take_row(&p, line + 1);
        *next = '\n'; /* behind the end of the last cell */
    }
    return p;
}

static bool names(const char *cell, const char *word)
{
    char quoted[128];
    snprintf(quoted, sizeof quoted, "`%s`", word);
    return strstr(cell, quoted) != NULL;
}

static const page_row *find_row(const page *p, const char *op, const char *attribute)
{
    const page_row *found = NULL;
    for (size_t i = 0; i < p->count; i++) {
        if (!names(p->rows[i].cells[0], op) || !names(p->rows[i].cells[1], attribute)) continue;
        if (found) fail_msg("docs/ir.md: two rows for %s of %s", attribute, op);
        found = &p->rows[i];
    }
    if (!found) fail_msg("docs/ir.md: no row for the attribute %s of %s", attribute, op);
    return found;
}

static void print_default(const ht_attr_def *attr, char *out, size_t size)
{
    const ht_attr *is = &attr->standard;
    if (attr->required)
        snprintf(out, size, "given");
    else if (attr->kind == HT_ATTR_INT)
        snprintf(out, size, "`%" PRId64 "`", is->i);
    else if (attr->kind == HT_ATTR_FLOAT)
        snprintf(out, size, "`%g`", is->f);
    else if (attr->kind == HT_ATTR_TEXT)
        snprintf(out, size, "`\"%s\"`", is->text);
    else if (is->count == 0)
        snprintf(out, size, "`[]`");
    else
        snprintf(out, size, "`[%" PRId64 ",%" PRId64 "]`", is->ints[0], is->ints[is->count - 1]);
}

static void the_page_of_the_ir__has_every_attribute_of_every_op(void **state)
{
    (void)state;
    static const char *const kinds[] = {"integer", "number", "text", "integers", "numbers"};
    const ht_context *ctx = context_shared();
    page p = read_page(context_shared());
    for (size_t i = 0; i < ctx->op_count; i++)
        for (const ht_attr_def *attr = ctx->ops[i]->attrs; attr && attr->key; attr++) {
            char standard[128];
            const page_row *row = find_row(&p, ctx->ops[i]->name, attr->key);
            print_default(attr, standard, sizeof standard);
            if (strcmp(row->cells[2], kinds[attr->kind]) != 0 || strcmp(row->cells[3], standard) != 0)
                fail_msg("docs/ir.md: %s of %s is %s, %s by default; the page says %s, %s", attr->key,
                         ctx->ops[i]->name, kinds[attr->kind], standard, row->cells[2], row->cells[3]);
        }
    free(p.text);
}

static void the_page_of_the_ir__has_no_other_attributes(void **state)
{
    (void)state;
    ht_context *ctx = context_shared();
    page p = read_page(ctx);
    for (size_t i = 0; i < p.count; i++) {
        char *attribute = p.rows[i].cells[1] + 1;
        attribute[strlen(attribute) - 1] = '\0';
        assert_true(strlen(p.rows[i].cells[4]) > 2);
        for (char *op = strtok(p.rows[i].cells[0], "`, "); op; op = strtok(NULL, "`, ")) {
            const ht_op *found = ht_op_find(ctx, op, strlen(op));
            if (!found || !ht_op_has_attr(found, attribute))
                fail_msg("docs/ir.md: there is no %s of %s", attribute, op);
        }
    }
    free(p.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_page_of_the_ir__has_every_attribute_of_every_op),
        cmocka_unit_test(the_page_of_the_ir__has_no_other_attributes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
