/* The synthetic translation task of halftone demo. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "demo/demo.h"

static void grammar__a_pair_is_a_function_of_seed_and_index(void **state)
{
    (void)state;
    ht_grammar_pair a, b, c;
    int different = 0;
    for (uint64_t i = 0; i < 50; i++) {
        ht_grammar_make(1, i, &a);
        ht_grammar_make(1, i, &b);
        ht_grammar_make(2, i, &c);
        assert_string_equal(a.english, b.english);
        assert_string_equal(a.french, b.french);
        different += strcmp(a.english, c.english) != 0;
    }
    assert_true(different > 40);
}

/* Without this the lowest perplexity would not be what the generator says it is. */
static void grammar__english_has_one_meaning_and_its_translations_are_equally_likely(void **state)
{
    (void)state;
    int with_choice = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        ht_grammar_pair pair;
        int meanings, translations;
        ht_grammar_make(3, i, &pair);
        translations = ht_grammar_translations(pair.english, &meanings);
        if (meanings != 1) fail_msg("%s: %d meanings", pair.english, meanings);
        assert_true(ht_grammar_check(pair.english, pair.french));
        assert_float_equal(exp(-pair.log_probability), translations, 1e-9);
        with_choice += translations > 1;
    }
    assert_true(with_choice > 300 && with_choice < 900);
}

/* Two choices never give the same sentence: the synonyms that come out of many draws are all different. */
static void grammar__every_synonym_is_drawn(void **state)
{
    (void)state;
    static const char *const wanted[] = {"Tu as vu mon vélo.", "Tu as vu ma bicyclette.", "Vous avez vu mon vélo.",
                                         "Vous avez vu ma bicyclette."};
    assert_int_equal(ht_grammar_translations("You saw my bike.", NULL), 4);
    for (int i = 0; i < 4; i++) assert_true(ht_grammar_check("You saw my bike.", wanted[i]));
}

static void grammar__knows_the_rules_of_french(void **state)
{
    (void)state;
    static const char *const right[][2] = {
        /* elision */
        {"I love the orange.", "J'aime l'orange."},
        {"He does not wait for our uncle.", "Il n'attend pas notre oncle."},
        /* gender and number */
        {"The old aunt is tired.", "La vieille tante est fatiguée."},
        {"These horses were tired.", "Ces chevaux étaient fatigués."},
        {"She is happy.", "Elle est contente."},
        /* the place of adjectives */
        {"I hid a small white house.", NULL},
        {"I hid a white house.", "J'ai caché une maison blanche."},
        {"I hid a small house.", "J'ai caché une petite maison."},
        /* forms before a vowel */
        {"We see this old tree.", "Nous voyons ce vieil arbre."},
        {"We see this tree.", "Nous voyons cet arbre."},
        {"We see the old trees.", "Nous voyons les vieux arbres."},
        {"They draw my orange.", "Ils dessinent mon orange."},
        {"They draw this orange.", "Ils dessinent cette orange."},
        /* des and de */
        {"She buys some apples.", "Elle achète des pommes."},
        {"She buys some old apples.", "Elle achète de vieilles pommes."},
        {"She never buys an apple.", "Elle n'achète jamais de pomme."},
        {"She never buys an orange.", "Elle n'achète jamais d'orange."},
        {"She never buys the apple.", "Elle n'achète jamais la pomme."},
        /* tenses and adverbs */
        {"He is not going to sell the boat tomorrow.", "Il ne va pas vendre le bateau demain."},
        {"He will sell the boat soon.", "Il vendra le bateau bientôt."},
        {"The cat always found his hat.", "Le chat a toujours trouvé son chapeau."},
        {"The cat did not always find his hat.", "Le chat n'a pas toujours trouvé son chapeau."},
    };
    for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
        if (!right[i][1])
            assert_int_equal(ht_grammar_translations(right[i][0], NULL), 0);
        else if (!ht_grammar_check(right[i][0], right[i][1]))
            fail_msg("%s: '%s' is not taken", right[i][0], right[i][1]);
    }
}

static void grammar__refuses_what_is_wrong(void **state)
{
    (void)state;
    static const char *const wrong[][2] = {
        {"I love the orange.", "Je aime la orange."},
        {"The old aunt is tired.", "Le vieux tante est fatigué."},
        {"We see this old tree.", "Nous voyons ce vieux arbre."},
        {"She never buys an apple.", "Elle n'achète jamais une pomme."},
        {"He will sell the boat soon.", "Il vend le bateau bientôt."},
        {"He will sell the boat soon.", "Il vendra le bateau bientôt"},
        {"He will sell the boat soon.", ""},
        {"He will sell the boat soon", "Il vendra le bateau bientôt."},
        {"He will sell the boat soon. ", "Il vendra le bateau bientôt."},
        {"Colourless green ideas sleep.", "Il vendra le bateau bientôt."},
        {"", ""},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        if (ht_grammar_check(wrong[i][0], wrong[i][1])) fail_msg("%s: '%s' is taken", wrong[i][0], wrong[i][1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(grammar__a_pair_is_a_function_of_seed_and_index),
        cmocka_unit_test(grammar__english_has_one_meaning_and_its_translations_are_equally_likely),
        cmocka_unit_test(grammar__every_synonym_is_drawn),
        cmocka_unit_test(grammar__knows_the_rules_of_french),
        cmocka_unit_test(grammar__refuses_what_is_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
