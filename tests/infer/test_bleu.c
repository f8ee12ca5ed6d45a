/* BLEU against stored values of sacreBLEU and against a real translation. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "context_fixture.h"
#include "infer/infer.h"

typedef struct corpus {
    ht_bleu bleu;
    double score, brevity;
    char name[32];
    bool open;
} corpus;

static void check(const corpus *c)
{
    if (!c->open) return;
    double score = ht_bleu_score(&c->bleu), brevity = ht_bleu_brevity(&c->bleu);
    if (fabs(score - c->score) > 1e-9 || fabs(brevity - c->brevity) > 1e-12)
        fail_msg("%s, tokenizer %d: %.12f (brevity %.12f), not %.12f (%.12f)", c->name, (int)c->bleu.tokenizer, score,
                 brevity, c->score, c->brevity);
}

static void bleu__is_that_of_sacrebleu(void **state)
{
    (void)state;
    ht_context *ctx = test_ctx;
    char *text, tokenizer[8];
    size_t length;
    int corpora = 0;
    corpus c = {.open = false};
    assert_int_equal(ht_read_file(ctx, &text, &length, HT_TEST_DIR "/reference/bleu.txt"), HT_OK);
    for (char *at = text, *end; *at; at = end + 1) {
        end = strchr(at, '\n');
        assert_non_null(end);
        *end = '\0';
        if (strncmp(at, "corpus ", 7) == 0) {
            check(&c);
            c = (corpus){.open = true};
            assert_int_equal(sscanf(at, "corpus %7s %lf %lf %31s", tokenizer, &c.score, &c.brevity, c.name), 4);
            assert_true(ht_bleu_tokenizer_find(tokenizer, &c.bleu.tokenizer));
            corpora++;
            continue;
        }
        char *tab = strchr(at, '\t');
        assert_non_null(tab);
        *tab = '\0';
        assert_int_equal(ht_bleu_add(&c.bleu, ctx, at, tab + 1), HT_OK);
    }
    check(&c);
    assert_int_equal(corpora, 18);
    free(text);
}

/* "wor@@ ds" are one word. */
static void undo_pieces(char *line)
{
    char *to = line;
    for (char *from = line; *from;)
        if (strncmp(from, "@@ ", 3) == 0)
            from += 3;
        else
            *to++ = *from++;
    *to = '\0';
}

static void bleu__of_a_real_translation(void **state)
{
    (void)state;
    ht_context *ctx = test_ctx;
    const char *folder = getenv("HALFTONE_DATA");
    if (!folder) skip();
    char path[2][4096], *text[2];
    size_t length[2];
    snprintf(path[0], sizeof path[0], "%s/bleu/deen_output", folder);
    snprintf(path[1], sizeof path[1], "%s/bleu/deen_ref_bpe", folder);
    for (int i = 0; i < 2; i++) assert_int_equal(ht_read_file(ctx, &text[i], &length[i], path[i]), HT_OK);
    ht_bleu bleu = {.tokenizer = HT_BLEU_NONE};
    int lines = 0;
    for (char *at[2] = {text[0], text[1]}; *at[0] && *at[1]; lines++) {
        char *line[2] = {at[0], at[1]};
        for (int i = 0; i < 2; i++) {
            char *end = strchr(at[i], '\n');
            assert_non_null(end);
            *end = '\0';
            at[i] = end + 1;
        }
        undo_pieces(line[1]);
        assert_int_equal(ht_bleu_add(&bleu, ctx, line[0], line[1]), HT_OK);
    }
    assert_true(lines > 1000);
    /* Three outputs are empty. Counted as a word each, as where they come from, they would make it 22.5855084573. */
    assert_float_equal(ht_bleu_score(&bleu), 22.58467752124882, 1e-9);
    for (int i = 0; i < 2; i++) free(text[i]);
}

static void bleu__perfect_is_100_and_nothing_is_0(void **state)
{
    (void)state;
    ht_bleu same = {.tokenizer = HT_BLEU_13A}, none = {.tokenizer = HT_BLEU_13A};
    assert_int_equal(ht_bleu_add(&same, test_ctx, "Le chat voit l'ami.", "Le chat voit l'ami."), HT_OK);
    assert_float_equal(ht_bleu_score(&same), 100, 1e-9);
    assert_float_equal(ht_bleu_score(&none), 0, 0);
    assert_int_equal(ht_bleu_add(&none, test_ctx, "", ""), HT_OK);
    assert_float_equal(ht_bleu_score(&none), 0, 0);
    ht_bleu_tokenizer tokenizer;
    assert_false(ht_bleu_tokenizer_find("13", &tokenizer));
}

/* A line that ends with a hyphen goes on in the next; bytes that are no UTF-8 do no harm. */
static void bleu__takes_any_bytes(void **state)
{
    (void)state;
    ht_bleu bleu = {.tokenizer = HT_BLEU_13A};
    assert_int_equal(ht_bleu_add(&bleu, test_ctx, "one two three fo-\nur", "one two three four"), HT_OK);
    assert_float_equal(ht_bleu_score(&bleu), 100, 1e-9);
    assert_int_equal(ht_bleu_add(&bleu, test_ctx, "\xff\xfe \xe2\x80 \xc2 .\xe2", "\xc2"), HT_OK);
    assert_true(ht_bleu_score(&bleu) < 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bleu__is_that_of_sacrebleu),
        cmocka_unit_test(bleu__of_a_real_translation),
        cmocka_unit_test(bleu__perfect_is_100_and_nothing_is_0),
        cmocka_unit_test(bleu__takes_any_bytes),
    };
    return cmocka_run_group_tests(tests, context_setup, context_teardown);
}
