#include "code_rows.h"

#include <stdlib.h>
#include <string.h>

#include "op_layout.h"

enum { W = 1, MOST_RESULTS = 4 }; /* W: the weight of a convolution */

int64_t draw(draws *d, int64_t low, int64_t high)
{
    double u = ht_stream_uniform(&d->stream, d->next++);
    return low + (int64_t)(u * (double)(high - low + 1));
}

typedef enum filling { UNIFORM, ENDS, HIGH_ENDS, LOW_ENDS, FILLINGS } filling;

void draw_codes(draws *d, op_call *c, size_t input, double low, double high)
{
    filling how = (filling)draw(d, 0, FILLINGS - 1);
    for (int64_t i = 0; i < op_call_elems_in(c, input); i++) {
        double u = ht_stream_uniform(&d->stream, d->next++), *to = &c->a.in[input][i];
        if (how == UNIFORM) *to = low + (double)(int64_t)(u * (high - low + 1));
        if (how == ENDS) *to = u < 0.5 ? low : high;
        if (how == HIGH_ENDS) *to = u < 0.98 ? high : low;
        if (how == LOW_ENDS) *to = u < 0.98 ? low : high;
    }
}

/* ---- one row ---- */

/* A call whose operands lie in some order. */
typedef struct placed {
    ht_call call;
    ht_type types[HT_SAMPLE_MAX + MOST_RESULTS];
    const ht_type *list[HT_SAMPLE_MAX + MOST_RESULTS];
} placed;

static const ht_type *place_operand(placed *p, size_t i, const ht_type *type, bool channels_last)
{
    if (!type) return NULL;
    p->types[i] = op_layout_type(type, channels_last && type->rank == 4 ? OP_CHANNELS_LAST : OP_ROW_MAJOR);
    return &p->types[i];
}

static void place(placed *p, const ht_call *call, bool channels_last)
{
    p->call = *call;
    for (size_t i = 0; i < call->n_in; i++) p->list[i] = place_operand(p, i, call->in[i], channels_last && i != W);
    assert_true(call->n_out <= MOST_RESULTS);
    for (size_t i = 0; i < call->n_out; i++)
        p->list[call->n_in + i] = place_operand(p, call->n_in + i, call->out[i], channels_last);
    p->call.in = p->list;
    p->call.out = p->list + call->n_in;
}

static void *exact_block(size_t bytes)
{
    void *block = NULL;
    assert_int_equal(posix_memalign(&block, 64, bytes ? bytes : 1), 0);
    return block;
}

/* By the row alone; every block is as large as the row may touch. */
static void run_row(const ht_kernel *row, const ht_target *target, op_call *c, const ht_call *call, ht_pool *pool,
                    bool prepacked)
{
    void *in[HT_SAMPLE_MAX] = {0}, *out[MOST_RESULTS] = {0};
    for (size_t i = 0; i < call->n_out; i++) out[i] = exact_block(op_layout_bytes(call->out[i]));
    for (size_t i = 0; i < call->n_in; i++) {
        if (!call->in[i]) continue;
        in[i] = exact_block(op_layout_bytes(call->in[i]));
        for (int64_t e = 0; e < ht_type_elems(call->in[i]); e++)
            ht_store_f64(in[i], call->in[i]->dtype, op_layout_offset(call->in[i], e), c->a.in[i][e]);
    }
    ht_launch launch = {.call = call,
                        .in = (const void *const *)in,
                        .out = out,
                        .pool = pool,
                        .threads = target->threads,
                        .workspace = exact_block(row->workspace ? (size_t)row->workspace(call, target) : 0)};
    if (prepacked) {
        int64_t bytes = row->prepack->bytes(call, target);
        uint32_t inputs = row->prepack->inputs;
        assert_true(bytes > 0);
        launch.prepacked = exact_block((size_t)bytes);
        assert_int_equal(row->prepack->make(&launch), HT_OK);
        for (size_t i = 0; i < call->n_in; i++) {
            if (!(inputs >> i & 1)) continue;
            free(in[i]);
            in[i] = NULL; /* only its packed form is read */
        }
    }
    assert_int_equal(row->run(&launch), HT_OK);
    for (size_t i = 0; i < call->n_out; i++)
        for (int64_t e = 0; e < op_call_elems_out(c, i); e++)
            c->a.out[i][e] = ht_load_f64(out[i], call->out[i]->dtype, op_layout_offset(call->out[i], e));
    for (size_t i = 0; i < call->n_in; i++) free(in[i]);
    free(launch.prepacked);
    free(launch.workspace);
    for (size_t i = 0; i < call->n_out; i++) free(out[i]);
}

static void compare(const op_call *c, double *const want[MOST_RESULTS], const char *row, const char *how)
{
    for (size_t i = 0; i < c->c.call->n_out; i++)
        for (int64_t e = 0; e < op_call_elems_out(c, i); e++)
            if (memcmp(&c->a.out[i][e], &want[i][e], sizeof **want) != 0)
                op_case_fail(&c->c, "%s, %s: result %zu, element %lld is %.9g, not %.9g", row, how, i, (long long)e,
                             c->a.out[i][e], want[i][e]);
}

/* A row that packs nothing has run once. */
static void run_prepacked(const ht_kernel *row, const ht_target *target, op_call *c, const ht_call *call, ht_pool *pool,
                          double *const want[MOST_RESULTS])
{
    if (!row->prepack) return;
    run_row(row, target, c, call, pool, true);
    compare(c, want, row->name, "prepacked");
}

/* ---- all rows ---- */

code_rows code_rows_open(void)
{
    code_rows rows = {.machine = {.isa = ht_cpu_isa(), .features = ht_cpu_features()}, .pool = ht_pool_create(2)};
    assert_non_null(rows.pool);
    return rows;
}

static void note(code_rows *s, const ht_kernel *row)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->rows[i] == row) return;
    assert_true(s->count < 16);
    s->rows[s->count++] = row;
}

void code_rows_check(code_rows *rows, op_call *c, bool threads, bool channels_last)
{
    ht_context *ctx = context_shared();
    ht_pool *pool = threads ? rows->pool : NULL;
    double *want[MOST_RESULTS] = {0};
    placed p;
    place(&p, c->c.call, channels_last);
    op_call_reference(c);
    for (size_t i = 0; i < c->c.call->n_out; i++) {
        size_t bytes = (size_t)op_call_elems_out(c, i) * sizeof(double);
        want[i] = malloc(bytes + 1);
        assert_non_null(want[i]);
        memcpy(want[i], c->a.out[i], bytes);
    }
    for (size_t i = 0; i < ctx->kernel_count; i++) {
        const ht_kernel *row = ctx->kernels[i];
        ht_target target = {.isa = row->isa, .features = rows->machine.features, .threads = 1 + (int)(i % 3)};
        if (row->device != HT_DEVICE_CPU || strcmp(row->op, c->c.op->name) != 0) continue;
        if (row->isa > rows->machine.isa || row->can(&p.call, &target)) continue;
        run_row(row, &target, c, &p.call, pool, false);
        compare(c, want, row->name, "packed in the run");
        run_prepacked(row, &target, c, &p.call, pool, want);
        note(rows, row);
    }
    for (size_t i = 0; i < MOST_RESULTS; i++) free(want[i]);
}

void code_rows_close(code_rows *rows)
{
    ht_pool_free(rows->pool);
    assert_true(rows->count > 0);
    for (size_t i = 0; i < rows->count; i++) print_message("%s%s", i ? ", " : "rows: ", rows->rows[i]->name);
    print_message("\n");
}
