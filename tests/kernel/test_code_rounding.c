/* quantize_linear, dequantize_linear and quantize_dynamic on random shapes and axes: every row that this machine can run has the bits
 * of the reference, at halves of steps and beyond the ends of the codes, for any number of threads. */
#include <stdio.h>

#include "code_rows.h"

enum { SHAPES = 2000, MOST_ELEMS = 2000 };

/* A type's sizes, and which axes share a scale. */
typedef struct shape {
    int rank;
    long long dim[4];
    unsigned shared; /* a bit for each axis */
} shape;

/* Near the sizes of vectors and of blocks; a size may be zero. The reference of quantize_dynamic looks at all elements for each
 * scale. */
static shape draw_shape(draws *d, bool all_axes, long long most)
{
    static const long long near[] = {1, 8, 16, 32, 64, 256, 300, 1024, 4096};
    shape s = {.rank = (int)draw(d, 1, 4)};
    long long elems = 1;
    for (int i = 0; i < s.rank; i++) {
        s.dim[i] = draw(d, 0, 2) ? draw(d, 1, 20) : near[draw(d, 0, 8)] + draw(d, 0, 2) - 1;
        if (elems * s.dim[i] > most) s.dim[i] = 1 + s.dim[i] % 7;
        elems *= s.dim[i] ? s.dim[i] : 1;
    }
    if (!all_axes || draw(d, 0, 2)) s.shared = (unsigned)draw(d, 1, (1 << s.rank) - 1);
    return s;
}

typedef struct text {
    char data[128];
} text;

/* "[3,5]" of the axes whose bit is set; `numbers`: their numbers instead of their sizes. */
static text list(const shape *s, unsigned axes, bool numbers)
{
    text t = {"["};
    int length = 1;
    for (int i = 0; i < s->rank; i++)
        if (axes >> i & 1)
            length += snprintf(t.data + length, sizeof t.data - (size_t)length, "%s%lld", length > 1 ? "," : "",
                               numbers ? i : s->dim[i]);
    snprintf(t.data + length, sizeof t.data - (size_t)length, "]");
    return t;
}

static text all_of(const shape *s)
{
    return list(s, (1u << s->rank) - 1, false);
}

/* The shape of the scales, and the attribute. */
static text scales_of(const shape *s)
{
    return s->shared ? list(s, ~s->shared, false) : (text){"[]"};
}

static text axes_of(const shape *s)
{
    text t = {""};
    if (s->shared) snprintf(t.data, sizeof t.data, "axes=%.100s", list(s, s->shared, true).data);
    return t;
}

/* Halves of steps of a quarter, and a few that lie far beyond all codes, as x's type has them. */
static void draw_numbers(draws *d, op_call *c, bool far)
{
    ht_dtype dtype = c->c.call->in[0]->dtype;
    for (int64_t i = 0; i < op_call_elems_in(c, 0); i++) {
        int64_t step = draw(d, -700, 700);
        uint8_t stored[8];
        ht_store_f64(stored, dtype, 0, (double)step / 8 * (far && step % 97 == 0 ? 512 : 1));
        c->a.in[0][i] = ht_load_f64(stored, dtype, 0);
    }
}

static const char *draw_float(draws *d)
{
    static const char *const types[] = {"f32", "f32", "f16", "bf16"};
    return types[draw(d, 0, 3)];
}

static void open_linear(draws *d, op_call *c)
{
    shape s = draw_shape(d, true, MOST_ELEMS);
    bool is_signed = draw(d, 0, 1);
    char zero[160] = "";
    if (draw(d, 0, 1)) snprintf(zero, sizeof zero, ", i32%s -300..300", scales_of(&s).data);
    op_call_open(c, "quantize_linear", "(%s%s, f32%s %s%s) -> %s%s %s", draw_float(d), all_of(&s).data,
                 scales_of(&s).data, draw(d, 0, 1) ? "0.25..0.25" : "0.1..0.9", zero, is_signed ? "i8" : "u8",
                 all_of(&s).data, axes_of(&s).data);
    draw_numbers(d, c, true);
}

static void open_back(draws *d, op_call *c)
{
    shape s = draw_shape(d, true, MOST_ELEMS);
    bool is_signed = draw(d, 0, 1);
    char zero[160] = "";
    if (draw(d, 0, 1)) snprintf(zero, sizeof zero, ", i32%s -300..300", scales_of(&s).data);
    op_call_open(c, "dequantize_linear", "(%s%s, f32%s 0.003..9%s) %s", is_signed ? "i8" : "u8", all_of(&s).data,
                 scales_of(&s).data, zero, axes_of(&s).data);
    draw_codes(d, c, 0, is_signed ? -128 : 0, is_signed ? 127 : 255);
}

static void open_dynamic(draws *d, op_call *c)
{
    shape s = draw_shape(d, false, MOST_ELEMS / 2);
    op_call_open(c, "quantize_dynamic", "(%s%s) -> %s%s, f32%s, i32%s %s", draw_float(d), all_of(&s).data,
                 draw(d, 0, 1) ? "i8" : "u8", all_of(&s).data, scales_of(&s).data, scales_of(&s).data,
                 axes_of(&s).data);
    draw_numbers(d, c, draw(d, 0, 1));
}

static void check(const char *op, void (*open)(draws *d, op_call *c))
{
    draws d = {.stream = {.seed = 17, .site = ht_hash_text(op)}};
    code_rows rows = code_rows_open();
    for (int i = 0; i < SHAPES; i++) {
        op_call c;
        open(&d, &c);
        code_rows_check(&rows, &c, i % 4 == 0, false);
        op_call_close(&c);
    }
    code_rows_close(&rows);
}

static void quantize_linear__has_the_bits_of_the_reference(void **state)
{
    (void)state;
    check("quantize_linear", open_linear);
}

static void dequantize_linear__has_the_bits_of_the_reference(void **state)
{
    (void)state;
    check("dequantize_linear", open_back);
}

static void quantize_dynamic__has_the_bits_of_the_reference(void **state)
{
    (void)state;
    check("quantize_dynamic", open_dynamic);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantize_linear__has_the_bits_of_the_reference),
        cmocka_unit_test(dequantize_linear__has_the_bits_of_the_reference),
        cmocka_unit_test(quantize_dynamic__has_the_bits_of_the_reference),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
